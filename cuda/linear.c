/* linear.c: matrix products; the number of rows decides which kernel does them.
 *
 * Engine thread; only launches. gpu_linear gives a row the same bits for every number of rows;
 * cuBLASLt is faster for many rows, but does not. With few rows the start and end of a kernel cost
 * as much as its work, so gpu_skinny can also norm its inputs and activate its outputs, and gpu_qkv
 * rotate and store them, with the bits of separate kernels.
 */
#include "cuda/blas.h"
#include "cuda/kernels/rope/qkv.h"
#include "cuda/operations.h"
#include "engine/base/check.h"

/* Describes the layer for these rows. If there are too few tiles for the device, several blocks
 * share a tile. */
static gpu_skinny_t layer_of(const device_t *device, const weight_t *weight, int32_t rows) {
  gpu_skinny_t layer = {.weight = weight->data,
                        .packed = weight->packed,
                        .rows = rows,
                        .n = (int32_t)weight->rows,
                        .k = (int32_t)weight->cols,
                        .workers = device->multiprocessors};
  if (layer.n > device->shared_rows_max) return layer;
  layer.partial = device->linear_partial;
  layer.tickets = device->tickets;
  return layer;
}

/* The first warm-up run registers the products that cuBLASLt may compute: those without a norm and
 * an activation, which a step of many rows launches. */
static void learn(device_t *device, const gpu_skinny_t *layer) {
  const blas_call_t call = {.layer = layer};
  if (device->blas == NULL || !device->is_warming_up || device->warm_up != 0) return;
  if (!unpacked_learn(device, &call)) blas_learn(device, &call);
}

static void launch(device_t *device, const gpu_skinny_t *layer, const void *narrow_bias,
                   const char *where) {
  const blas_call_t call = {.layer = layer, .narrow_bias = narrow_bias};
  if (unpacked_linear(device, &call, where)) return;
  if (device->blas != NULL && blas_linear(device, &call)) return;
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
  learn(device, &layer);
  launch(device, &layer, bias != NULL ? bias->narrow : NULL, "linear");
}

static bool can_norm_inside(const fused_linear_t *linear, int32_t rows) {
  const weight_t *weight = linear->weight;
  const bool fits = weight->packed.codes == GPU_CODES_PLAIN
                        ? rows <= GPU_NORM_ROWS_MAX
                        : gpu_packed_norm_fits(rows, (int32_t)weight->cols);
  return linear->norm != NULL && linear->norm->kind == NORM_RMS && fits;
}

static bool can_activate_inside(const fused_linear_t *linear, int32_t rows) {
  bool is_known =
      linear->activation == ACTIVATION_SILU_MUL || linear->activation == ACTIVATION_GELU_TANH_MUL;
  return linear->has_activation && is_known && rows <= GPU_SKINNY_ROWS_MAX;
}

/* Launches the layer and rope_store of its output as one kernel. Returns false if that cannot be.
 */
static bool launch_stored(device_t *device, const gpu_skinny_t *layer,
                          const attention_t *attention) {
  const gpu_rope_store_t store = rope_store_of(device, layer->out, attention);
  if (!gpu_qkv_fits(&device->kv, layer, &store)) return false;
  if (device_is_live(device))
    device_note(device, gpu_qkv(&device->kv, layer, &store, device->stream), "qkv");
  return true;
}

void cuda_fused_linear(device_t *device, act_t *out, const act_t *in, const fused_linear_t *linear,
                       int32_t rows) {
  const norm_t *norm = linear->norm;
  const vector_t *bias = linear->bias;
  if (!device_is_live(device)) return;
  gpu_skinny_t layer = layer_of(device, linear->weight, rows);
  layer.in = in;
  layer.out = linear->has_activation ? linear->sums : out;
  layer.bias = bias != NULL ? bias->values : NULL;
  learn(device, &layer);
  if (can_norm_inside(linear, rows)) {
    CHECK_EQ(norm->width, layer.k);
    layer.norm = 1;
    layer.norm_weight = norm->weight != NULL ? norm->weight->values : NULL;
    layer.norm_eps = norm->eps;
  } else if (norm != NULL) {
    cuda_norm(device, linear->normed, in, NULL, norm, rows);
    layer.in = linear->normed;
  }
  bool is_activated = can_activate_inside(linear, rows);
  if (is_activated) {
    CHECK_EQ(layer.n, 2 * linear->width);
    layer.n = linear->width;
    layer.out = out;
    layer.activate = 1;
    layer.activation = activation_of(linear->activation);
  }
  const attention_t *attention = linear->attention;
  if (!device_is_live(device)) return;
  if (attention != NULL && launch_stored(device, &layer, attention)) return;
  launch(device, &layer, bias != NULL ? bias->narrow : NULL, "linear");
  if (linear->has_activation && !is_activated)
    cuda_activation(device, out, linear->sums, linear->activation, linear->width, rows);
  if (attention != NULL) cuda_rope_store(device, out, attention);
}

void cuda_logits(device_t *device, const act_t *hidden, const weight_t *head, const vector_t *bias,
                 float softcap, int32_t first, int32_t rows) {
  CHECK_LE(rows, device->limits.logits_rows_max);
  CHECK_LE(head->rows, device->limits.vocab_size); /* a rank has some of them */
  if (!device_is_live(device)) return;
  gpu_skinny_t layer = layer_of(device, head, rows);
  layer.in = (const uint16_t *)hidden + (size_t)first * (size_t)head->cols;
  layer.out = device->logits;
  layer.bias = bias != NULL ? bias->values : NULL;
  layer.logits = 1;
  layer.softcap = softcap;
  learn(device, &layer);
  launch(device, &layer, NULL, "logits");
}
