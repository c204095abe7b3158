table.o: engine/schedule/table.c engine/schedule/table.h \
 engine/schedule/scheduler.h engine/schedule/block.h engine/base/error.h \
 engine/base/error.def engine/request.h engine/device/sampling_params.h \
 engine/base/util.h engine/device/sampling.def engine/embedding.h \
 engine/text/stream/detokenizer.h engine/text/tokenizer.h \
 engine/base/byte_span.h engine/vision/image.h engine/vision/processor.h \
 engine/base/json.h engine/schedule/free_queues.h engine/schedule/draft.h \
 engine/schedule/siblings.h engine/schedule/sequence.h \
 engine/schedule/mask_state.h engine/schedule/slices.h \
 engine/schedule/state/state_mark.h engine/schedule/status.h \
 engine/schedule/unfit.h engine/schedule/window/window.h \
 engine/schedule/step_plan.h engine/cost.h engine/device/batch.h \
 engine/device/swap_ops.h engine/schedule/swap.h \
 engine/schedule/waiting.h engine/schedule/tenants.h engine/base/check.h \
 engine/schedule/state/snapshots.h engine/schedule/state/states.h \
 engine/schedule/window/side_blocks.h engine/schedule/window/sides.h
engine/schedule/table.h:
engine/schedule/scheduler.h:
engine/schedule/block.h:
engine/base/error.h:
engine/base/error.def:
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
engine/base/json.h:
engine/schedule/free_queues.h:
engine/schedule/draft.h:
engine/schedule/siblings.h:
engine/schedule/sequence.h:
engine/schedule/mask_state.h:
engine/schedule/slices.h:
engine/schedule/state/state_mark.h:
engine/schedule/status.h:
engine/schedule/unfit.h:
engine/schedule/window/window.h:
engine/schedule/step_plan.h:
engine/cost.h:
engine/device/batch.h:
engine/device/swap_ops.h:
engine/schedule/swap.h:
engine/schedule/waiting.h:
engine/schedule/tenants.h:
engine/base/check.h:
engine/schedule/state/snapshots.h:
engine/schedule/state/states.h:
engine/schedule/window/side_blocks.h:
engine/schedule/window/sides.h:
