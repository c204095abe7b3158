store.o: server/store/store.c server/store/store.h engine/base/buffer.h \
 engine/base/error.h engine/base/error.def engine/base/util.h \
 server/store/sql.h
server/store/store.h:
engine/base/buffer.h:
engine/base/error.h:
engine/base/error.def:
engine/base/util.h:
server/store/sql.h:
