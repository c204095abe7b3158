http_read.o: server/http/http_read.c server/http/http_read.h \
 engine/base/util.h server/http/http_internal.h server/http/auth.h \
 config/config.h engine/base/error.h engine/base/error.def \
 config/options.def server/keys/api_key.h engine/quota.h \
 server/keys/rate.h server/http/http_direct.h server/server.h \
 engine/engine.h engine/request.h engine/device/sampling_params.h \
 engine/device/sampling.def engine/embedding.h \
 engine/text/stream/detokenizer.h engine/text/tokenizer.h \
 engine/base/byte_span.h engine/vision/image.h engine/vision/processor.h \
 engine/base/json.h engine/schedule/draft.h engine/schedule/swap.h \
 engine/device/swap_ops.h engine/stats.h engine/trace.h \
 server/http/http.h server/ledger/ledger.h server/observe/log.h \
 server/observe/priority.h server/http/limit.h server/http/listen.h \
 server/http/strict.h server/http/http_exchange.h server/trace/trace.h \
 server/http/sockets/gate.h
server/http/http_read.h:
engine/base/util.h:
server/http/http_internal.h:
server/http/auth.h:
config/config.h:
engine/base/error.h:
engine/base/error.def:
config/options.def:
server/keys/api_key.h:
engine/quota.h:
server/keys/rate.h:
server/http/http_direct.h:
server/server.h:
engine/engine.h:
engine/request.h:
engine/device/sampling_params.h:
engine/device/sampling.def:
engine/embedding.h:
engine/text/stream/detokenizer.h:
engine/text/tokenizer.h:
engine/base/byte_span.h:
engine/vision/image.h:
engine/vision/processor.h:
engine/base/json.h:
engine/schedule/draft.h:
engine/schedule/swap.h:
engine/device/swap_ops.h:
engine/stats.h:
engine/trace.h:
server/http/http.h:
server/ledger/ledger.h:
server/observe/log.h:
server/observe/priority.h:
server/http/limit.h:
server/http/listen.h:
server/http/strict.h:
server/http/http_exchange.h:
server/trace/trace.h:
server/http/sockets/gate.h:
