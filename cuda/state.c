/* state.c: layers with a state per sequence: the slots, their copies, and the operations.
 *
 * Owns the memory of the slots: [slot][layer][numbers of the layer], so that a copy is one piece.
 * Engine thread; only launches, but for the set-up, which takes memory before READY.
 */
#include "cuda/operations.h"
#include "cuda/sleep.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

/* Numbers of a layer, so that each begins where a vector may. */
static int64_t layer_values(const state_desc_t *desc) {
  return ROUND_UP(desc->values, GPU_STATE_ALIGN);
}

static size_t state_bytes(const state_desc_t *desc, int32_t num_slots) {
  return device_product((size_t)desc->num_layers * (size_t)num_slots, (size_t)layer_values(desc),
                        sizeof(float));
}

static int make_states(device_t *device, const state_desc_t *desc, inferd_error_t *error) {
  size_t bytes = state_bytes(desc, desc->num_slots);
  device->state = *desc;
  return sleep_take(device, SLEEP_DROPS, (void **)&device->states, bytes, "the states of sequences",
                    error);
}

int states_prepare(device_t *device, inferd_error_t *error) {
  if (device->state.num_slots == 0) return 0;
  const size_t reqs = (size_t)device->limits.reqs_max, slots = (size_t)device->state.num_slots;
  const size_t borders = (size_t)gpu_conv_borders(), number = sizeof(int32_t);
  const char *what = "the states of a step";
  gpu_inputs_t *in = &device->inputs;
  int code =
      device_take(device, (void **)&in->state_slots, device_product(reqs, number, 1), what, error);
  if (!code)
    code = device_take(device, (void **)&in->first_save, device_product(reqs + 1, number, 1), what,
                       error);
  if (!code)
    code = device_take(device, (void **)&in->saves, device_product(slots, sizeof(gpu_save_t), 1),
                       what, error);
  if (code) return code;
  return device_take(device, (void **)&device->conv_borders,
                     device_product(borders, (size_t)device->limits.conv_values_max, sizeof(float)),
                     what, error);
}

void cuda_state_copies(device_t *device, const gpu_state_copy_t *copies, int32_t num_copies) {
  if (device->fault != 0) return;
  const int64_t values = device->state.num_layers * layer_values(&device->state);
  device_note(device, gpu_state_copies(device->states, values, copies, num_copies, device->stream),
              "copies of states");
}

/* The states of a layer, from number `offset` of it on, and the rows of the step. */
static gpu_states_t states_of(const device_t *device, int32_t layer, int64_t offset) {
  CHECK_RANGE(layer, 0, device->state.num_layers);
  const int64_t values = layer_values(&device->state);
  return (gpu_states_t){.base = device->states + layer * values + offset,
                        .stride = device->state.num_layers * values,
                        .slots = device->inputs.state_slots,
                        .query_start_loc = device->inputs.query_start_loc,
                        .seq_lens = device->inputs.seq_lens,
                        .first_save = device->inputs.first_save,
                        .saves = device->inputs.saves,
                        .reqs = device->batch->num_reqs,
                        .tokens = device->batch->num_tokens,
                        .decodes = device->batch->max_query_len == 1};
}

static void cuda_conv(device_t *device, act_t *out, const act_t *in, const conv_t *conv) {
  CHECK_LE((conv->taps - 1) * conv->channels, device->limits.conv_values_max);
  if (!device_is_live(device)) return;
  const gpu_conv_t args = {.states = states_of(device, conv->layer, 0),
                           .in = in,
                           .out = out,
                           .channels = conv->channels,
                           .taps = conv->taps,
                           .in_width = conv->in_width,
                           .in_column = conv->in_column,
                           .before = conv->before,
                           .after = conv->after,
                           .out_width = conv->out_width,
                           .out_column = conv->out_column,
                           .silu = conv->silu,
                           .weight = conv->weight->values,
                           .bias = conv->bias != NULL ? conv->bias->values : NULL,
                           .borders = device->conv_borders};
  device_note(device, gpu_conv(device->dtype, &args, device->stream), "convolution");
}

/* With the few by which S moves, so that it begins where a vector may. */
static int64_t recur_values(int32_t num_heads, int32_t key_dim, int32_t value_dim) {
  return gpu_recur_values(num_heads, key_dim, value_dim) + GPU_STATE_ALIGN;
}

static void cuda_recur(device_t *device, act_t *out, act_t *in, act_t *scratch,
                       const recurrence_t *recurrence) {
  (void)scratch;
  const recurrence_t *r = recurrence;
  if (!device_is_live(device)) return;
  const gpu_recur_t args = {.states =
                                states_of(device, r->layer, ROUND_UP(r->offset, GPU_STATE_ALIGN)),
                            .in = in,
                            .out = out,
                            .width = r->width,
                            .q = r->q,
                            .k = r->k,
                            .v = r->v,
                            .rate = r->rate,
                            .step = r->step,
                            .heads = r->num_heads,
                            .groups = r->num_groups,
                            .key_dim = r->key_dim,
                            .value_dim = r->value_dim,
                            .tiled = r->tiled,
                            .corrects = r->kind == RECURRENCE_DELTA,
                            .step_min = r->step_min,
                            .step_max = r->step_max,
                            .rate_most = r->doubles ? 2.0f : 1.0f,
                            .decay = r->decay->values,
                            .bias = r->bias->values,
                            .skip = r->skip != NULL ? r->skip->values : NULL};
  device_note(device, gpu_recur(device->dtype, &args, device->stream), "recurrence");
}

static void cuda_gate(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                      const gating_t *gating, int32_t rows) {
  if (!device_is_live(device)) return;
  const gpu_gate_t args = {.in = in,
                           .gate = gate,
                           .out = out,
                           .width = gating->width,
                           .gate_width = gating->gate_width,
                           .gate_column = gating->gate_column,
                           .gate_repeats = gating->gate_repeats > 1 ? gating->gate_repeats : 1,
                           .sigmoid = gating->sigmoid,
                           .gate_first = gating->gate_first,
                           .group = gating->group,
                           .eps = gating->eps,
                           .weight = gating->weight != NULL ? gating->weight->values : NULL,
                           .weight_repeats = gating->weight_repeats};
  device_note(device, gpu_gate(device->dtype, &args, rows, device->stream), "gate");
}

static void cuda_scale_columns(device_t *device, act_t *values, const vector_t *factors,
                               int32_t width, int32_t rows) {
  if (!device_is_live(device)) return;
  device_note(
      device,
      gpu_scale_columns(device->dtype, values, factors->values, width, rows, device->stream),
      "factors of columns");
}

const state_ops_t cuda_state = {.key_dim_max = GPU_KEY_DIM_MAX,
                                .values = recur_values,
                                .bytes = state_bytes,
                                .make = make_states,
                                .conv = cuda_conv,
                                .recur = cuda_recur,
                                .gate = cuda_gate,
                                .scale = cuda_scale_columns};
