/* linear.c: matrix products; the number of rows decides which kernel does them.
 *
 * Engine thread; only launches. gpu_linear gives a row the same bits for every number of rows;
 * cuBLASLt is faster for many rows, but does not.
 */
#include "cuda/blas.h"
#include "cuda/operations.h"
#include "engine/base/check.h"

/* Describes the layer for these rows. If there are too few tiles for the device, several blocks
 * share a tile. */
static gpu_skinny_t layer_of(const device_t *device, const weight_t *weight, int32_t rows) {
  gpu_skinny_t layer = {.weight = weight->data,
                        .rows = rows,
                        .n = (int32_t)weight->rows,
                        .k = (int32_t)weight->cols,
                        .workers = device->multiprocessors};
  if (layer.n > device->shared_rows_max) return layer;
  layer.partial = device->linear_partial;
  layer.tickets = device->tickets;
  return layer;
}

void linear_launch(device_t *device, const gpu_skinny_t *layer, const void *narrow_bias,
                   const char *where) {
  const blas_call_t call = {.layer = layer, .narrow_bias = narrow_bias};
  if (device->blas != NULL) {
    if (device->is_rehearsing && device->rehearsal == 0) blas_learn(device, &call);
    if (blas_linear(device, &call)) return;
  }
  device_note(device, gpu_linear(device->dtype, layer, device->stream), where);
}

void cuda_linear(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                 const vector_t *bias, const act_t *residual, int32_t rows) {
  if (!device_is_live(device)) return;
  gpu_skinny_t layer = layer_of(device, weight, rows);
  layer.in = in;
  layer.out = out;
  layer.bias = bias != NULL ? bias->values : NULL;
  layer.residual = residual;
  fuse_layer(device, &layer, bias != NULL ? bias->narrow : NULL);
}

void cuda_logits(device_t *device, const act_t *hidden, const weight_t *head, float softcap,
                 int32_t first, int32_t rows) {
  CHECK_LE(rows, device->limits.logits_rows_max);
  CHECK_EQ(head->rows, device->limits.vocab_size);
  if (!device_is_live(device)) return;
  gpu_skinny_t layer = layer_of(device, head, rows);
  layer.in = (const uint16_t *)hidden + (size_t)first * (size_t)head->cols;
  layer.out = device->logits;
  layer.logits = 1;
  layer.softcap = softcap;
  fuse_read(device, hidden);
  linear_launch(device, &layer, NULL, "logits");
}
