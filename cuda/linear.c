/* linear.c: matrix products, each by the way that suits its number of rows.
 *
 * Engine thread; only launches. gpu_linear gives a row the same bits whatever the number of rows;
 * cuBLASLt is faster for many and does not.
 */
#include "cuda/blas.h"
#include "cuda/operations.h"
#include "engine/base/check.h"

/* The layer of these rows; blocks share tiles where there are too few of them for the device. */
static gpu_skinny_t layer_of(const device_t *d, const weight_t *weight, int32_t rows) {
  gpu_skinny_t layer = {.weight = weight->data,
                        .rows = rows,
                        .n = (int32_t)weight->rows,
                        .k = (int32_t)weight->cols,
                        .workers = d->multiprocessors};
  if (layer.n > d->shared_rows_max) return layer;
  layer.partial = d->linear_partial;
  layer.tickets = d->tickets;
  return layer;
}

void linear_launch(device_t *d, const gpu_skinny_t *layer, const void *narrow_bias,
                   const char *where) {
  const blas_call_t call = {.layer = layer, .narrow_bias = narrow_bias};
  if (d->blas != NULL) {
    if (d->is_rehearsing && d->rehearsal == 0) blas_learn(d, &call);
    if (blas_linear(d, &call)) return;
  }
  device_note(d, gpu_linear(d->dtype, layer, d->stream), where);
}

void cuda_linear(device_t *d, act_t *out, const act_t *in, const weight_t *weight,
                 const vector_t *bias, const act_t *residual, int32_t rows) {
  if (!device_is_live(d)) return;
  gpu_skinny_t layer = layer_of(d, weight, rows);
  layer.in = in;
  layer.out = out;
  layer.bias = bias != NULL ? bias->values : NULL;
  layer.residual = residual;
  fuse_layer(d, &layer, bias != NULL ? bias->narrow : NULL);
}

void cuda_logits(device_t *d, const act_t *hidden, const weight_t *head, float softcap,
                 int32_t first, int32_t rows) {
  CHECK_LE(rows, d->limits.logits_rows_max);
  CHECK_EQ(head->rows, d->limits.vocab_size);
  if (!device_is_live(d)) return;
  gpu_skinny_t layer = layer_of(d, head, rows);
  layer.in = (const uint16_t *)hidden + (size_t)first * (size_t)head->cols;
  layer.out = d->logits;
  layer.logits = 1;
  layer.softcap = softcap;
  fuse_read(d, hidden);
  linear_launch(d, &layer, NULL, "logits");
}
