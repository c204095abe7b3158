/* fuse.c: delays launches of a step so that neighbours can be fused; see fuse.h. */
#include "cuda/fuse.h"

#include "cuda/operations.h"
#include "engine/base/check.h"

/* With adapters nothing is fused: their products come between a norm, its layers and the
 * activation. */
static bool is_adapted(const device_t *device) {
  return device->batch->num_adapted > 0;
}

static bool is_learning(const device_t *device) {
  return device->is_rehearsing && device->rehearsal == 0 && !is_adapted(device);
}

/* ---- learning ---- */

static void close_watch(fusion_t *fusion, fuse_watch_t *watch) {
  if (watch->rows != NULL && watch->call < FUSE_CALLS_MAX)
    fusion->is_alone[watch->kind][watch->call] = watch->partners == 1 && watch->others == 0;
  watch->rows = NULL;
}

/* `rows` is overwritten now, so the number of reads of its old content is final. */
static void watch_write(fusion_t *fusion, const act_t *rows) {
  for (int i = 0; i < FUSE_WATCHES_MAX; i++) {
    if (fusion->watches[i].rows == rows) close_watch(fusion, &fusion->watches[i]);
  }
}

static void watch_begin(fusion_t *fusion, const act_t *rows, fuse_kind_t kind, int32_t call) {
  for (int i = 0; i < FUSE_WATCHES_MAX; i++) {
    if (fusion->watches[i].rows != NULL) continue;
    fusion->watches[i] = (fuse_watch_t){.rows = rows, .kind = kind, .call = call};
    return;
  }
}

static void watch_read(fusion_t *fusion, const act_t *rows, bool is_partner, fuse_kind_t kind) {
  for (int i = 0; i < FUSE_WATCHES_MAX; i++) {
    fuse_watch_t *watch = &fusion->watches[i];
    if (watch->rows != rows || rows == NULL) continue;
    *(is_partner && watch->kind == kind ? &watch->partners : &watch->others) += 1;
  }
}

/* Returns the number of this call. *alone: its output need not be written. */
static bool count_call(device_t *device, fuse_kind_t kind, int32_t *call) {
  fusion_t *fusion = &device->fusion;
  *call = fusion->num_calls[kind]++;
  return *call < FUSE_CALLS_MAX && fusion->is_alone[kind][*call] && !is_adapted(device);
}

/* ---- steps ---- */

void fuse_reset(device_t *device) {
  fusion_t *fusion = &device->fusion;
  for (int i = 0; i < FUSE_WATCHES_MAX; i++) close_watch(fusion, &fusion->watches[i]);
  for (int i = 0; i < FUSE_KINDS; i++) fusion->num_calls[i] = 0;
  fusion->normed = fusion->source = fusion->lost_norm = fusion->lost_layer = NULL;
  fusion->has_layer = false;
}

static void launch_layer(device_t *device) {
  fusion_t *fusion = &device->fusion;
  if (!fusion->has_layer) return;
  fusion->has_layer = false;
  linear_launch(device, &fusion->layer, fusion->narrow_bias, "linear");
}

static void launch_norm(device_t *device) {
  const fusion_t *fusion = &device->fusion;
  if (!device_is_live(device)) return;
  device_note(device,
              gpu_norm(device->dtype, (act_t *)(uintptr_t)fusion->normed, fusion->source, NULL,
                       fusion->norm->weight != NULL ? fusion->norm->weight->values : NULL, NULL, 0,
                       fusion->norm->eps, fusion->norm->width, fusion->norm_rows, device->stream),
              "norm");
}

void fuse_read(device_t *device, const act_t *rows) {
  fusion_t *fusion = &device->fusion;
  launch_layer(device);
  if (rows == NULL) return;
  if (is_learning(device)) watch_read(fusion, rows, false, FUSE_KINDS);
  CHECK_NE(rows, fusion->lost_norm);
  CHECK_NE(rows, fusion->lost_layer);
  if (rows != fusion->normed) return;
  launch_norm(device);
  fusion->normed = fusion->source = NULL;
}

void fuse_write(device_t *device, const act_t *rows) {
  fusion_t *fusion = &device->fusion;
  launch_layer(device);
  if (is_learning(device)) watch_write(fusion, rows);
  if (rows == fusion->lost_norm) fusion->lost_norm = NULL;
  if (rows == fusion->lost_layer) fusion->lost_layer = NULL;
  if (rows == fusion->source) fusion->lost_norm = fusion->normed;
  if (rows == fusion->source || rows == fusion->normed) fusion->normed = fusion->source = NULL;
}

bool fuse_norm(device_t *device, act_t *out, const act_t *in, const act_t *residual,
               const norm_t *norm, int32_t rows) {
  fusion_t *fusion = &device->fusion;
  int32_t call;
  bool alone = count_call(device, FUSE_NORM, &call);
  fuse_read(device, in);
  fuse_read(device, residual);
  fuse_write(device, out);
  if (is_learning(device)) watch_begin(fusion, out, FUSE_NORM, call);
  if (!alone || residual != NULL || norm->kind != NORM_RMS || out == in ||
      rows > GPU_SKINNY_ROWS_MAX)
    return false;
  if (fusion->normed != NULL)
    fuse_read(device, fusion->normed); /* only one norm can be delayed at a time */
  fusion->normed = out;
  fusion->source = in;
  fusion->norm = norm;
  fusion->norm_rows = rows;
  return true;
}

void fuse_layer(device_t *device, const gpu_skinny_t *layer, const void *narrow_bias) {
  fusion_t *fusion = &device->fusion;
  gpu_skinny_t mine = *layer;
  int32_t call;
  bool alone = count_call(device, FUSE_LAYER, &call);
  bool normed = fusion->normed != NULL && layer->in == fusion->normed &&
                layer->rows == fusion->norm_rows && layer->k == fusion->norm->width &&
                layer->out != fusion->source;
  if (normed) {
    fuse_read(device, NULL);
    mine.in = fusion->source;
    mine.norm = 1;
    mine.norm_weight = fusion->norm->weight != NULL ? fusion->norm->weight->values : NULL;
    mine.norm_eps = fusion->norm->eps;
  } else if (is_learning(device)) {
    watch_read(fusion, layer->in, true, FUSE_NORM);
  } else {
    fuse_read(device, layer->in);
  }
  fuse_read(device, layer->residual);
  fuse_write(device, layer->out);
  if (!device_is_live(device)) return;
  if (is_learning(device)) watch_begin(fusion, layer->out, FUSE_LAYER, call);
  fusion->layer = mine;
  fusion->narrow_bias = narrow_bias;
  fusion->has_layer = true;
  if (!alone || layer->residual != NULL || layer->rows > GPU_SKINNY_ROWS_MAX) launch_layer(device);
}

/* Returns the delayed layer if the activation reads its sums; else NULL. */
static bool is_partner(const fusion_t *fusion, const act_t *out, const act_t *in, activation_t kind,
                       int32_t width, int32_t rows) {
  const gpu_skinny_t *layer = &fusion->layer;
  bool gated = kind == ACTIVATION_SILU_MUL || kind == ACTIVATION_GELU_TANH_MUL;
  return gated && fusion->has_layer && layer->out == in && layer->n == 2 * width &&
         layer->rows == rows && out != in && out != layer->in;
}

bool fuse_activation(device_t *device, act_t *out, const act_t *in, activation_t kind,
                     int32_t width, int32_t rows) {
  fusion_t *fusion = &device->fusion;
  if (!is_partner(fusion, out, in, kind, width, rows)) {
    if (is_learning(device)) {
      launch_layer(device);
      watch_read(fusion, in, true, FUSE_LAYER);
    } else {
      fuse_read(device, in);
    }
    fuse_write(device, out);
    return false;
  }
  gpu_skinny_t whole = fusion->layer;
  fusion->has_layer = false;
  whole.n = width;
  whole.out = out;
  whole.activate = 1;
  whole.activation = activation_of(kind);
  fuse_write(device, out);
  fusion->lost_layer = in;
  linear_launch(device, &whole, fusion->narrow_bias, "linear");
  return true;
}
