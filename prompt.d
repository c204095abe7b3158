prompt.o: server/completion/prompt.c server/completion/chat.h \
 server/completion/completion.h engine/base/arena.h \
 server/completion/intake.h engine/grammar/grammar.h engine/base/json.h \
 engine/base/error.h engine/base/error.def engine/grammar/limits.h \
 server/completion/live.h server/fields/history.h engine/base/buffer.h \
 server/fields/fields.h engine/engine.h engine/request.h \
 engine/device/sampling_params.h engine/base/util.h \
 engine/device/sampling.def engine/embedding.h \
 engine/text/stream/detokenizer.h engine/text/tokenizer.h \
 engine/base/byte_span.h engine/vision/image.h engine/vision/processor.h \
 engine/schedule/draft.h engine/schedule/swap.h engine/device/swap_ops.h \
 engine/stats.h engine/trace.h server/ledger/cord.h server/server.h \
 config/config.h config/options.def server/http/http.h \
 server/ledger/ledger.h server/observe/log.h server/observe/priority.h \
 engine/grammar/cache.h engine/template/chat/chat_template.h \
 engine/template/template.h server/fields/params.h \
 server/fields/params_embedding.h server/fields/params_pairs.h \
 server/lanes/lanes.h server/completion/logprobs.h server/keys/api_key.h \
 engine/quota.h server/keys/rate.h server/parser/output.h \
 server/parser/formats.h engine/base/json_schema.h engine/base/clock.h \
 server/completion/dialect.h server/completion/memory.h
server/completion/chat.h:
server/completion/completion.h:
engine/base/arena.h:
server/completion/intake.h:
engine/grammar/grammar.h:
engine/base/json.h:
engine/base/error.h:
engine/base/error.def:
engine/grammar/limits.h:
server/completion/live.h:
server/fields/history.h:
engine/base/buffer.h:
server/fields/fields.h:
engine/engine.h:
engine/request.h:
engine/device/sampling_params.h:
engine/base/util.h:
engine/device/sampling.def:
engine/embedding.h:
engine/text/stream/detokenizer.h:
engine/text/tokenizer.h:
engine/base/byte_span.h:
engine/vision/image.h:
engine/vision/processor.h:
engine/schedule/draft.h:
engine/schedule/swap.h:
engine/device/swap_ops.h:
engine/stats.h:
engine/trace.h:
server/ledger/cord.h:
server/server.h:
config/config.h:
config/options.def:
server/http/http.h:
server/ledger/ledger.h:
server/observe/log.h:
server/observe/priority.h:
engine/grammar/cache.h:
engine/template/chat/chat_template.h:
engine/template/template.h:
server/fields/params.h:
server/fields/params_embedding.h:
server/fields/params_pairs.h:
server/lanes/lanes.h:
server/completion/logprobs.h:
server/keys/api_key.h:
engine/quota.h:
server/keys/rate.h:
server/parser/output.h:
server/parser/formats.h:
engine/base/json_schema.h:
engine/base/clock.h:
server/completion/dialect.h:
server/completion/memory.h:
