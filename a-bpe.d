bpe.o: engine/text/model/bpe.c engine/text/model/bpe.h \
 engine/base/error.h engine/base/error.def engine/text/model/vocab.h \
 engine/base/buffer.h engine/text/model/word_cache.h engine/base/hash.h \
 engine/base/checked.h engine/base/util.h \
 engine/text/model/bpe_internal.h engine/text/unicode/unicode.h \
 engine/base/utf8.h
engine/text/model/bpe.h:
engine/base/error.h:
engine/base/error.def:
engine/text/model/vocab.h:
engine/base/buffer.h:
engine/text/model/word_cache.h:
engine/base/hash.h:
engine/base/checked.h:
engine/base/util.h:
engine/text/model/bpe_internal.h:
engine/text/unicode/unicode.h:
engine/base/utf8.h:
