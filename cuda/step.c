/* step.c: begin and end of a step, and the operations that are one launch each.
 *
 * Engine thread; stages 6 and 7 of 9. Every function launches and returns; faults are kept and
 * reported by cuda_end, which alone waits.
 */
#include "cuda/operations.h"
#include "cuda/swap.h"
#include "engine/base/check.h"

/* Results and the event behind them; the newest step is launched whole. */
void step_seal(device_t *d) {
  flight_t *f = d->flight;
  if (f == NULL || f->is_sealed) return;
  f->is_sealed = true;
  if (d->mode == STEP_CAPTURE) {
    f->num_results = 0; /* nothing ran */
    graph_end_capture(d);
    d->mode = STEP_EAGER;
    return;
  }
  if (d->mode == STEP_REPLAY) graph_launch(d);
  if (d->fault != 0) return;
  size_t results = (size_t)f->num_results * sizeof *f->results;
  size_t tops = (size_t)f->num_tops * sizeof *f->tops;
  if (results > 0)
    device_note(
        d, (int)cudaMemcpyAsync(f->results, d->results, results, cudaMemcpyDeviceToHost, d->stream),
        "results");
  if (tops > 0 && d->fault == 0)
    device_note(d, (int)cudaMemcpyAsync(f->tops, d->tops, tops, cudaMemcpyDeviceToHost, d->stream),
                "results");
  if (d->fault == 0) device_note(d, (int)cudaEventRecord(f->done, d->stream), "results");
}

/* Page copies of the batch, of K, V and of the ids beside them. */
static void copy_pages(device_t *d, const batch_t *batch) {
  if (batch->num_copies == 0) return;
  size_t offset, bytes = (size_t)batch->num_copies * sizeof(block_copy_t);
  block_copy_t *copies = packet_room(d, bytes, &offset);
  for (int32_t i = 0; i < batch->num_copies; i++) copies[i] = batch->copies[i];
  packet_send(d);
  const block_copy_t *there = (const block_copy_t *)(const void *)(d->packet + offset);
  device_note(d, gpu_page_copy(&d->kv, there, batch->num_copies, d->stream), "page copies");
  device_note(
      d, gpu_history_copy(d->inputs.history, d->kv.block_size, there, batch->num_copies, d->stream),
      "page copies");
}

static void spread_inputs(device_t *d, const batch_t *batch) {
  d->inputs.tokens = batch->num_tokens;
  d->inputs.reqs = batch->num_reqs;
  d->inputs.selected_rows = batch->num_selected;
  device_note(d, gpu_inputs(&d->inputs, d->stream), "inputs");
}

/* What attention has to do in this step. */
static void count_work(device_t *d, const batch_t *batch) {
  const int32_t tile = gpu_prefill_tile(d->kv.head_dim);
  d->num_prefill_tiles = 0;
  d->has_decodes = false;
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    int32_t queries = batch->query_start_loc[r + 1] - batch->query_start_loc[r];
    if (queries > 1) d->num_prefill_tiles += (queries + tile - 1) / tile;
    if (queries == 1) d->has_decodes = true;
  }
}

void cuda_begin(device_t *d, const batch_t *batch) {
  CHECK(d->is_prepared);
  CHECK_LE(batch->num_tokens, d->limits.tokens_max);
  CHECK_LE(batch->num_reqs, d->limits.reqs_max);
  CHECK_LE(batch->num_selected, d->limits.tokens_max);
  CHECK_EQ(batch->block_size, d->kv.block_size);
  CHECK_LT(d->num_begun - d->num_ended, FLIGHTS);
  step_seal(d);
  d->batch = batch;
  d->flight = &d->flights[d->num_begun++ % FLIGHTS];
  d->flight->num_results = d->flight->num_tops = 0;
  d->flight->is_sealed = false;
  for (int i = 0; i < ROPES_MAX; i++) d->ropes[i].is_filled = false;
  for (int i = 0; i < WINDOWS_MAX; i++) d->windows[i].is_filled = false;
  fuse_reset(d);
  if (d->fault != 0) return;
  device_swap_fence(d, batch);
  graph_choose(d, batch);
  count_work(d, batch);
  packet_build(d, batch);
  if (d->mode == STEP_CAPTURE) {
    graph_begin_capture(d);
  } else {
    copy_pages(d, batch);
  }
  if (d->mode == STEP_EAGER) packet_send(d);
  if (device_is_live(d)) spread_inputs(d, batch);
}

void cuda_embed(device_t *d, act_t *x, const weight_t *table, float scale) {
  if (!device_is_live(d)) return;
  fuse_write(d, x);
  device_note(d,
              gpu_embed(d->dtype, x, table->data, d->inputs.input_ids, scale, (int32_t)table->rows,
                        (int32_t)table->cols, d->batch->num_tokens, d->stream),
              "embed");
}

void cuda_embed_positions(device_t *d, act_t *x, const weight_t *table, int32_t offset) {
  if (!device_is_live(d)) return;
  fuse_read(d, x);
  fuse_write(d, x);
  device_note(d,
              gpu_embed_positions(d->dtype, x, table->data, d->inputs.positions, offset,
                                  (int32_t)table->rows, (int32_t)table->cols, d->batch->num_tokens,
                                  d->stream),
              "embed_positions");
}

void cuda_norm(device_t *d, act_t *out, const act_t *in, const act_t *residual, const norm_t *norm,
               int32_t rows) {
  if (!device_is_live(d)) return;
  if (fuse_norm(d, out, in, residual, norm, rows)) return;
  device_note(d,
              gpu_norm(d->dtype, out, in, residual,
                       norm->weight != NULL ? norm->weight->values : NULL,
                       norm->bias != NULL ? norm->bias->values : NULL, norm->kind == NORM_LAYER,
                       norm->eps, norm->width, rows, d->stream),
              "norm");
}

gpu_activation_t activation_of(activation_t kind) {
  static const gpu_activation_t kinds[] = {[ACTIVATION_RELU] = GPU_RELU,
                                           [ACTIVATION_GELU] = GPU_GELU,
                                           [ACTIVATION_GELU_TANH] = GPU_GELU_TANH,
                                           [ACTIVATION_SILU_MUL] = GPU_SILU_MUL,
                                           [ACTIVATION_GELU_TANH_MUL] = GPU_GELU_TANH_MUL,
                                           [ACTIVATION_CLAMPED_SWIGLU] = GPU_CLAMPED_SWIGLU};
  CHECK_LT((size_t)kind, sizeof kinds / sizeof *kinds);
  return kinds[kind];
}

void cuda_activation(device_t *d, act_t *out, const act_t *in, activation_t kind, int32_t width,
                     int32_t rows) {
  if (!device_is_live(d)) return;
  if (fuse_activation(d, out, in, kind, width, rows)) return;
  device_note(d, gpu_activate(d->dtype, out, in, activation_of(kind), width, rows, d->stream),
              "activation");
}

void cuda_gather(device_t *d, act_t *out, const act_t *in, int32_t width) {
  if (!device_is_live(d)) return;
  fuse_read(d, in);
  fuse_write(d, out);
  device_note(
      d,
      gpu_gather(d->dtype, out, in, d->inputs.selected, width, d->batch->num_selected, d->stream),
      "gather");
}

void cuda_read_logits(device_t *d, float *out, int32_t rows) {
  CHECK_LE(rows, d->limits.logits_rows_max);
  if (d->mode == STEP_REPLAY) graph_launch(d);
  if (d->fault != 0) return;
  size_t bytes = (size_t)rows * (size_t)d->limits.vocab_size * sizeof(float);
  device_note(d, (int)cudaMemcpyAsync(out, d->logits, bytes, cudaMemcpyDeviceToHost, d->stream),
              "read_logits");
  device_note(d, (int)cudaStreamSynchronize(d->stream), "read_logits");
}

int cuda_end(device_t *d, error_t *error) {
  CHECK_LT(d->num_ended, d->num_begun);
  flight_t *f = &d->flights[d->num_ended++ % FLIGHTS];
  if (f == d->flight) step_seal(d);
  if (d->fault == 0) device_note(d, (int)cudaEventSynchronize(f->done), "the step");
  if (d->fault != 0) {
    return error_set(error, ERR_DEVICE_FAILED, NULL, "the device failed at %s: %s", d->fault_at,
                     cudaGetErrorString((cudaError_t)d->fault));
  }
  draw_finish(f);
  return 0;
}
