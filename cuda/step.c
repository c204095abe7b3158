/* step.c: begin and end of a step, and the operations that are one launch each.
 *
 * Engine thread; stages 6 and 7 of 9. Every function of a step launches and returns; faults are
 * kept, and cuda_end, the only one that waits, reports them. Warm-up runs and tests wait elsewhere,
 * too, and so does cuda_sample for rows that the host sorts (draw.c).
 */
#include "cuda/host.h"
#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"
#include "cuda/swap.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

/* Launches the copy of the newest step's results. */
static void copy_results(device_t *device) {
  cuda_step_t *step = device->step;
  size_t results = (size_t)step->num_results * sizeof *step->results;
  size_t tops = (size_t)step->num_tops * sizeof *step->tops;
  if (results > 0 && device->fault == 0)
    device_note(device,
                (int)cudaMemcpyAsync(step->results, device->results, results,
                                     cudaMemcpyDeviceToHost, device->stream),
                "results");
  if (tops > 0 && device->fault == 0)
    device_note(device,
                (int)cudaMemcpyAsync(step->tops, device->tops, tops, cudaMemcpyDeviceToHost,
                                     device->stream),
                "results");
}

/* Launches what the newest step still lacks, and the event after it. */
void step_seal(device_t *device) {
  cuda_step_t *step = device->step;
  if (step == NULL || step->is_sealed) return;
  step->is_sealed = true;
  if (device->mode == STEP_CAPTURE) {
    step->num_results = 0; /* nothing ran */
    graph_end_capture(device);
    device->mode = STEP_EAGER;
    return;
  }
  if (device->mode == STEP_REPLAY) graph_launch(device);
  if (device_copies_results(device)) copy_results(device);
  if (device->fault == 0)
    device_note(device, (int)cudaEventRecord(step->done, device->stream), "results");
}

/* Page copies of the batch, of K, V and of the ids beside them. */
static void copy_pages(device_t *device, const batch_t *batch) {
  if (batch->num_copies == 0) return;
  size_t offset, bytes = (size_t)batch->num_copies * sizeof(block_copy_t);
  block_copy_t *copies = packet_room(device, bytes, &offset);
  for (int32_t i = 0; i < batch->num_copies; i++) copies[i] = batch->copies[i];
  packet_send(device);
  const block_copy_t *there = (const block_copy_t *)(const void *)(device->packet + offset);
  device_note(device, gpu_page_copy(&device->kv, there, batch->num_copies, device->stream),
              "page copies");
  device_note(device,
              gpu_history_copy(device->inputs.history, device->kv.block_size, there,
                               batch->num_copies, device->stream),
              "page copies");
}

/* Copies of slots, in their order. */
static void copy_states(device_t *device, const batch_t *batch) {
  if (batch->num_state_copies == 0 || device->state.num_slots == 0) return;
  size_t offset, bytes = (size_t)batch->num_state_copies * sizeof(gpu_state_copy_t);
  gpu_state_copy_t *copies = packet_room(device, bytes, &offset);
  for (int32_t i = 0; i < batch->num_state_copies; i++)
    copies[i] = (gpu_state_copy_t){batch->state_copies[i].src, batch->state_copies[i].dst};
  packet_send(device);
  cuda_state_copies(device, (const gpu_state_copy_t *)(const void *)(device->packet + offset),
                    batch->num_state_copies);
}

static void spread_inputs(device_t *device, const batch_t *batch) {
  device->inputs.tokens = batch->num_tokens;
  device->inputs.reqs = batch->num_reqs;
  device->inputs.selected_rows = batch->num_selected;
  for (int i = 0; i < GPU_PACKETS; i++) { /* a graph fetches its packet */
    const void *packet = device->mode == STEP_CAPTURE ? device->host_packets[i] : NULL;
    device->inputs.host[i] = packet;
  }
  device_note(device, gpu_inputs(&device->inputs, device->stream), "inputs");
  host_count(device);
}

static int32_t query_len(const batch_t *batch, int32_t row) {
  return batch->query_start_loc[row + 1] - batch->query_start_loc[row];
}

/* Rows of up to how many query tokens the decode kernel takes: the longest of the batch that it can
 * have, when there is room for them, else 1. A graph is captured for all, so that its replays may
 * have draft tokens. */
static int32_t choose_decode_queries(const device_t *device, const batch_t *batch) {
  int32_t longest = 1, tokens = 0;
  if (device->mode == STEP_CAPTURE) return GPU_DECODE_QUERIES_MAX;
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    int32_t queries = query_len(batch, r);
    if (queries > GPU_DECODE_QUERIES_MAX) continue;
    longest = MAX(longest, queries);
    tokens += queries;
  }
  return tokens <= device->windows[0].plan.items_max ? longest : 1;
}

/* Finds out which attention kernels this step needs. */
static void count_work(device_t *device, const batch_t *batch) {
  const int32_t tile = gpu_prefill_tile(device->kv.head_dim);
  device->num_prefill_tiles = 0;
  device->has_decodes = false;
  device->decode_queries = choose_decode_queries(device, batch);
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    int32_t queries = query_len(batch, r);
    if (queries > device->decode_queries)
      device->num_prefill_tiles += DIV_UP(queries, tile);
    else if (queries > 0)
      device->has_decodes = true;
  }
}

void cuda_begin(device_t *device, const batch_t *batch) {
  CHECK(device->is_prepared);
  CHECK_LE(batch->num_tokens, device->limits.tokens_max);
  CHECK_LE(batch->num_reqs, device->limits.reqs_max);
  CHECK_LE(batch->num_selected, device->limits.tokens_max);
  CHECK_EQ(batch->block_size, device->kv.block_size);
  CHECK_LT(device->num_begun - device->num_ended, STEPS_IN_FLIGHT_MAX);
  step_seal(device);
  device->batch = batch;
  device->step = &device->steps[device->num_begun++ % STEPS_IN_FLIGHT_MAX];
  device->step->num_results = device->step->num_tops = 0;
  device->step->is_sealed = false;
  for (int i = 0; i < ROPES_MAX; i++) device->ropes[i].is_filled = false;
  for (int i = 0; i < WINDOWS_MAX; i++) device->windows[i].is_filled = false;
  if (device->fault != 0) return;
  device_swap_fence(device, batch);
  graph_choose(device, batch);
  /* The kernel that spreads a packet counts its turns; that of a capture does not run. */
  device->step->packet = device->host_packets[device->num_spread % GPU_PACKETS];
  if (device->mode != STEP_CAPTURE) device->num_spread++;
  count_work(device, batch);
  packet_build(device, batch);
  if (device->mode == STEP_CAPTURE) {
    graph_begin_capture(device);
  } else {
    copy_pages(device, batch);
    copy_states(device, batch);
  }
  if (device->mode == STEP_EAGER) packet_send(device);
  if (device_is_live(device)) spread_inputs(device, batch);
  if (device->mode == STEP_REPLAY && batch->num_selected == 0) graph_launch(device);
}

static gpu_table_t table_of(const weight_t *weight) {
  return (gpu_table_t){.values = weight->data,
                       .rows = (int32_t)weight->rows,
                       .width = (int32_t)weight->cols,
                       .packed = weight->packed};
}

void cuda_embed(device_t *device, act_t *out, const weight_t *table, float scale) {
  if (!device_is_live(device)) return;
  const gpu_table_t args = table_of(table);
  device_note(device,
              gpu_embed(device->dtype, out, &args, device->inputs.input_ids, scale,
                        device->batch->num_tokens, device->stream),
              "embed");
}

void cuda_embed_positions(device_t *device, act_t *out, const weight_t *table, int32_t offset) {
  if (!device_is_live(device)) return;
  const gpu_table_t args = table_of(table);
  device_note(device,
              gpu_embed_positions(device->dtype, out, &args, device->inputs.positions, offset,
                                  device->batch->num_tokens, device->stream),
              "embed_positions");
}

void cuda_norm(device_t *device, act_t *out, const act_t *in, const act_t *residual,
               const norm_t *norm, int32_t rows) {
  if (!device_is_live(device)) return;
  const gpu_norm_t args = {.weight = norm->weight != NULL ? norm->weight->values : NULL,
                           .bias = norm->bias != NULL ? norm->bias->values : NULL,
                           .eps = norm->eps,
                           .centred = norm->kind == NORM_LAYER,
                           .width = norm->width};
  device_note(device, gpu_norm(device->dtype, out, in, residual, &args, rows, device->stream),
              "norm");
}

gpu_activation_t activation_of(activation_t kind) {
  static const gpu_activation_t kinds[] = {[ACTIVATION_RELU] = GPU_RELU,
                                           [ACTIVATION_RELU2] = GPU_RELU2,
                                           [ACTIVATION_GELU] = GPU_GELU,
                                           [ACTIVATION_GELU_TANH] = GPU_GELU_TANH,
                                           [ACTIVATION_SILU_MUL] = GPU_SILU_MUL,
                                           [ACTIVATION_GELU_TANH_MUL] = GPU_GELU_TANH_MUL,
                                           [ACTIVATION_CLAMPED_SWIGLU] = GPU_CLAMPED_SWIGLU};
  CHECK((ops_cuda.activations & 1u << kind) != 0); /* what it lacks has the number of another */
  return kinds[kind];
}

void cuda_activation(device_t *device, act_t *out, const act_t *in, activation_t kind,
                     int32_t width, int32_t rows) {
  if (!device_is_live(device)) return;
  device_note(
      device,
      gpu_activate(device->dtype, out, in, activation_of(kind), width, rows, device->stream),
      "activation");
}

void cuda_gather(device_t *device, act_t *out, const act_t *in, int32_t width) {
  if (!device_is_live(device)) return;
  device_note(device,
              gpu_gather(device->dtype, out, in, device->inputs.selected, width,
                         device->batch->num_selected, device->stream),
              "gather");
}

void cuda_read_logits(device_t *device, float *out, int32_t rows) {
  CHECK_LE(rows, device->limits.logits_rows_max);
  if (device->mode == STEP_REPLAY) graph_launch(device);
  if (device->fault != 0) return;
  size_t bytes = (size_t)rows * (size_t)device->limits.vocab_size * sizeof(float);
  device_note(
      device,
      (int)cudaMemcpyAsync(out, device->logits, bytes, cudaMemcpyDeviceToHost, device->stream),
      "read_logits");
  device_note(device, exchange_sync(device), "read_logits");
}

int cuda_end(device_t *device, inferd_error_t *error) {
  CHECK_LT(device->num_ended, device->num_begun);
  cuda_step_t *step = &device->steps[device->num_ended++ % STEPS_IN_FLIGHT_MAX];
  if (step == device->step) step_seal(device);
  if (device->fault == 0) device_note(device, exchange_wait(device, step->done), "the step");
  if (device->exchange != NULL && device->exchange->comm->error.code != 0) {
    if (error != NULL) *error = device->exchange->comm->error;
    return ERR_DEVICE_FAILED;
  }
  if (device->fault != 0) {
    return error_set(error, ERR_DEVICE_FAILED, NULL, "the device failed at %s: %s%s",
                     device->fault_at, cudaGetErrorString((cudaError_t)device->fault),
                     device->fault == cudaErrorMemoryAllocation
                         ? "; a lower --memory leaves more to code and graphs"
                         : "");
  }
  draw_finish(step);
  return 0;
}
