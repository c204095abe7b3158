/* fuse.c: see fuse.h. */
#include "cuda/fuse.h"

#include "cuda/operations.h"
#include "engine/base/check.h"

/* What an adapter adds lies between a norm, its layers and their activation: then nothing waits. */
static bool is_adapted(const device_t *d) {
  return d->batch->num_adapted > 0;
}

static bool is_learning(const device_t *d) {
  return d->is_rehearsing && d->rehearsal == 0 && !is_adapted(d);
}

/* ---- learning ---- */

static void close_watch(fusion_t *f, fuse_watch_t *w) {
  if (w->rows != NULL && w->call < FUSE_CALLS_MAX)
    f->is_alone[w->kind][w->call] = w->partners == 1 && w->others == 0;
  w->rows = NULL;
}

/* The rows of `p` are overwritten: what was read of the old ones is all that ever will be. */
static void watch_write(fusion_t *f, const act_t *p) {
  for (int i = 0; i < FUSE_WATCHES_MAX; i++) {
    if (f->watches[i].rows == p) close_watch(f, &f->watches[i]);
  }
}

static void watch_begin(fusion_t *f, const act_t *p, fuse_kind_t kind, int32_t call) {
  for (int i = 0; i < FUSE_WATCHES_MAX; i++) {
    if (f->watches[i].rows != NULL) continue;
    f->watches[i] = (fuse_watch_t){.rows = p, .kind = kind, .call = call};
    return;
  }
}

static void watch_read(fusion_t *f, const act_t *p, bool is_partner, fuse_kind_t kind) {
  for (int i = 0; i < FUSE_WATCHES_MAX; i++) {
    fuse_watch_t *w = &f->watches[i];
    if (w->rows != p || p == NULL) continue;
    *(is_partner && w->kind == kind ? &w->partners : &w->others) += 1;
  }
}

/* Number of this call, and whether what it makes may stay unwritten. */
static bool count_call(device_t *d, fuse_kind_t kind, int32_t *call) {
  fusion_t *f = &d->fusion;
  *call = f->num_calls[kind]++;
  return *call < FUSE_CALLS_MAX && f->is_alone[kind][*call] && !is_adapted(d);
}

/* ---- steps ---- */

void fuse_reset(device_t *d) {
  fusion_t *f = &d->fusion;
  for (int i = 0; i < FUSE_WATCHES_MAX; i++) close_watch(f, &f->watches[i]);
  for (int i = 0; i < FUSE_KINDS; i++) f->num_calls[i] = 0;
  f->normed = f->source = f->lost_norm = f->lost_layer = NULL;
  f->has_layer = false;
}

static void launch_layer(device_t *d) {
  fusion_t *f = &d->fusion;
  if (!f->has_layer) return;
  f->has_layer = false;
  linear_launch(d, &f->layer, f->narrow_bias, "linear");
}

static void launch_norm(device_t *d) {
  const fusion_t *f = &d->fusion;
  if (!device_is_live(d)) return;
  device_note(d,
              gpu_norm(d->dtype, (act_t *)(uintptr_t)f->normed, f->source, NULL,
                       f->norm->weight != NULL ? f->norm->weight->values : NULL, NULL, 0,
                       f->norm->eps, f->norm->width, f->norm_rows, d->stream),
              "norm");
}

void fuse_read(device_t *d, const act_t *p) {
  fusion_t *f = &d->fusion;
  launch_layer(d);
  if (p == NULL) return;
  if (is_learning(d)) watch_read(f, p, false, FUSE_KINDS);
  CHECK_NE(p, f->lost_norm);
  CHECK_NE(p, f->lost_layer);
  if (p != f->normed) return;
  launch_norm(d);
  f->normed = f->source = NULL;
}

void fuse_write(device_t *d, const act_t *p) {
  fusion_t *f = &d->fusion;
  launch_layer(d);
  if (is_learning(d)) watch_write(f, p);
  if (p == f->lost_norm) f->lost_norm = NULL;
  if (p == f->lost_layer) f->lost_layer = NULL;
  if (p == f->source) f->lost_norm = f->normed;
  if (p == f->source || p == f->normed) f->normed = f->source = NULL;
}

bool fuse_norm(device_t *d, act_t *out, const act_t *in, const act_t *residual, const norm_t *norm,
               int32_t rows) {
  fusion_t *f = &d->fusion;
  int32_t call;
  bool alone = count_call(d, FUSE_NORM, &call);
  fuse_read(d, in);
  fuse_read(d, residual);
  fuse_write(d, out);
  if (is_learning(d)) watch_begin(f, out, FUSE_NORM, call);
  if (!alone || residual != NULL || norm->kind != NORM_RMS || out == in ||
      rows > GPU_SKINNY_ROWS_MAX)
    return false;
  if (f->normed != NULL) fuse_read(d, f->normed); /* one norm waits at a time */
  f->normed = out;
  f->source = in;
  f->norm = norm;
  f->norm_rows = rows;
  return true;
}

void fuse_layer(device_t *d, const gpu_skinny_t *layer, const void *narrow_bias) {
  fusion_t *f = &d->fusion;
  gpu_skinny_t mine = *layer;
  int32_t call;
  bool alone = count_call(d, FUSE_LAYER, &call);
  bool normed = f->normed != NULL && layer->in == f->normed && layer->rows == f->norm_rows &&
                layer->k == f->norm->width && layer->out != f->source;
  if (normed) {
    fuse_read(d, NULL);
    mine.in = f->source;
    mine.norm = 1;
    mine.norm_weight = f->norm->weight != NULL ? f->norm->weight->values : NULL;
    mine.norm_eps = f->norm->eps;
  } else if (is_learning(d)) {
    watch_read(f, layer->in, true, FUSE_NORM);
  } else {
    fuse_read(d, layer->in);
  }
  fuse_read(d, layer->residual);
  fuse_write(d, layer->out);
  if (!device_is_live(d)) return;
  if (is_learning(d)) watch_begin(f, layer->out, FUSE_LAYER, call);
  f->layer = mine;
  f->narrow_bias = narrow_bias;
  f->has_layer = true;
  if (!alone || layer->residual != NULL || layer->rows > GPU_SKINNY_ROWS_MAX) launch_layer(d);
}

/* The layer that waits, if it is the one whose sums the activation reads. */
static bool is_partner(const fusion_t *f, const act_t *out, const act_t *in, activation_t kind,
                       int32_t width, int32_t rows) {
  const gpu_skinny_t *layer = &f->layer;
  bool gated = kind == ACTIVATION_SILU_MUL || kind == ACTIVATION_GELU_TANH_MUL;
  return gated && f->has_layer && layer->out == in && layer->n == 2 * width &&
         layer->rows == rows && out != in && out != layer->in;
}

bool fuse_activation(device_t *d, act_t *out, const act_t *in, activation_t kind, int32_t width,
                     int32_t rows) {
  fusion_t *f = &d->fusion;
  if (!is_partner(f, out, in, kind, width, rows)) {
    if (is_learning(d)) {
      launch_layer(d);
      watch_read(f, in, true, FUSE_LAYER);
    } else {
      fuse_read(d, in);
    }
    fuse_write(d, out);
    return false;
  }
  gpu_skinny_t whole = f->layer;
  f->has_layer = false;
  whole.n = width;
  whole.out = out;
  whole.activate = 1;
  whole.activation = activation_of(kind);
  fuse_write(d, out);
  f->lost_layer = in;
  linear_launch(d, &whole, f->narrow_bias, "linear");
  return true;
}
