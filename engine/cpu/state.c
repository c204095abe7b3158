/* state.c: layers with a state per sequence: the slots, their copies, and the operations.
 *
 * Owns the memory of the slots: [slot][layer][numbers of the layer], so that a copy is one piece.
 * Called on the engine thread; pool workers take channels of a convolution or a selection, heads of
 * a recurrence, rows of a gate. A unit of work is one sequence's, from its first token of the step
 * to its last.
 *
 * A decode of one token reads and writes its state once: it is bound by memory. A prefill keeps 64
 * columns of a head in the first cache and takes every token through them; this recurrent form
 * costs about 4 Dk Dv operations a token and head, few beside the products of the same layer.
 */
#include "engine/cpu/state.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/isa/state.h"

#include <math.h>
#include <string.h>

enum { CONV_CHANNELS = 256, SLOT_ALIGN = 16, COPY_PIECE = 1 << 16 };

static int64_t state_values(int32_t num_heads, int32_t key_dim, int32_t value_dim) {
  return (int64_t)num_heads * key_dim * ROUND_UP((int64_t)value_dim, HEAD_ALIGN);
}

/* Numbers of a layer, so that each layer begins on a cache line. */
static int64_t layer_values(const state_desc_t *desc) {
  return ROUND_UP(desc->values, SLOT_ALIGN);
}

static size_t state_bytes(const state_desc_t *desc, int32_t num_slots) {
  size_t bytes = SIZE_MAX;
  size_product(&bytes, (size_t)desc->num_layers * (size_t)num_slots, (size_t)layer_values(desc),
               sizeof(float));
  return bytes;
}

static int make_states(device_t *device, const state_desc_t *desc, inferd_error_t *error) {
  size_t bytes = state_bytes(desc, desc->num_slots);
  memory_unmap(device->states, device->states_mapped);
  device->states = bytes > 0 && bytes < SIZE_MAX ? memory_map(bytes, &device->states_mapped) : NULL;
  if (device->states == NULL) return no_memory(error, "the states of sequences", bytes);
  device->state = *desc;
  return 0;
}

/* State of a layer in the slot of a row. */
static float *state_of(const device_t *device, int32_t slot, int32_t layer) {
  CHECK_RANGE(slot, 1, device->state.num_slots);
  CHECK_RANGE(layer, 0, device->state.num_layers);
  int64_t at = ((int64_t)slot * device->state.num_layers + layer) * layer_values(&device->state);
  return device->states + at;
}

/* ---- copies ---- */

typedef struct slot_copying {
  float *dst;
  const float *src;
  int64_t count;
} slot_copying_t;

static void copy_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const slot_copying_t *job = context;
  int64_t from = first * COPY_PIECE, to = MIN(last * COPY_PIECE, job->count);
  memcpy(job->dst + from, job->src + from, (size_t)(to - from) * sizeof(float));
}

void state_copy_slots(device_t *device, const batch_t *batch) {
  if (device->state.num_slots == 0) return; /* a draft model without states */
  for (int32_t i = 0; i < batch->num_state_copies; i++) {
    const state_copy_t *copy = &batch->state_copies[i];
    CHECK_NE(copy->src, copy->dst);
    slot_copying_t job = {state_of(device, copy->dst, 0), state_of(device, copy->src, 0),
                          device->state.num_layers * layer_values(&device->state)};
    pool_run(device->pool, copy_task, &job, DIV_UP(job.count, COPY_PIECE), 1);
  }
}

/* ---- saves ---- */

/* The saves of a row: [first, last) of the batch's. */
typedef struct saves {
  int32_t first, last;
} saves_t;

/* The first save of a row or of one behind it: saves are in the order of rows. */
static int32_t first_save(const batch_t *batch, int64_t row) {
  int32_t low = 0, high = batch->num_state_saves;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    if (batch->state_saves[middle].row < row)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static saves_t saves_of(const batch_t *batch, int64_t row) {
  return (saves_t){first_save(batch, row), first_save(batch, row + 1)};
}

/* ---- convolution ---- */

typedef struct convolving {
  const device_t *device;
  const conv_t *conv;
  const float *in;
  float *out;
  int32_t parts; /* of the channels */
} convolving_t;

/* The next tokens of a run. */
static void conv_next(const kernels_t *kernels, conv_run_t *run, int32_t num_tokens) {
  int64_t in = (int64_t)num_tokens * run->in_stride;
  run->num_tokens = num_tokens;
  if (num_tokens == 0) return;
  kernels->conv(run);
  run->in += in;
  if (run->before != NULL) run->before += in;
  if (run->after != NULL) run->after += in;
  run->out += num_tokens * run->out_stride;
  run->fresh = false;
}

/* Runs all tokens, and stores the state on the way. `at` is the first channel. */
static void conv_row(const convolving_t *job, conv_run_t *run, int64_t row, int64_t at) {
  const batch_t *batch = job->device->batch;
  const saves_t saves = saves_of(batch, row);
  int32_t total = run->num_tokens, done = 0;
  for (int32_t i = saves.first; i < saves.last; i++) {
    const state_save_t *save = &batch->state_saves[i];
    float *to = state_of(job->device, save->slot, job->conv->layer) + at;
    conv_next(job->device->kernels, run, save->behind - done);
    done = save->behind;
    for (int64_t k = 0; k < run->taps - 1; k++)
      memcpy(to + k * run->channels, run->state + k * run->channels,
             (size_t)run->count * sizeof(float));
  }
  conv_next(job->device->kernels, run, total - done);
}

static void conv_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const convolving_t *job = context;
  const conv_t *conv = job->conv;
  const batch_t *batch = job->device->batch;
  for (int64_t unit = first; unit < last; unit++) {
    int64_t row = unit / job->parts, at = unit % job->parts * CONV_CHANNELS;
    int64_t token = batch->query_start_loc[row];
    const float *in = job->in + token * conv->in_width + at;
    conv_run_t run = {
        .in = in + conv->in_column,
        .before = conv->before >= 0 ? in + conv->before : NULL,
        .after = conv->after >= 0 ? in + conv->after : NULL,
        .out = job->out + token * conv->out_width + conv->out_column + at,
        .in_stride = conv->in_width,
        .out_stride = conv->out_width,
        .state = state_of(job->device, batch->state_slots[row], conv->layer) + at,
        .weight = conv->weight->values + at,
        .bias = conv->bias != NULL ? conv->bias->values + at : NULL,
        .channels = conv->channels,
        .count = (int32_t)MIN(conv->channels - at, CONV_CHANNELS),
        .taps = conv->taps,
        .num_tokens = batch->query_start_loc[row + 1] - batch->query_start_loc[row],
        .fresh = batch->num_computed_tokens[row] == 0,
        .silu = conv->silu,
    };
    conv_row(job, &run, row, at);
  }
}

static void cpu_conv(device_t *device, act_t *out, const act_t *in, const conv_t *conv) {
  CHECK_RANGE(conv->taps, 1, CONV_TAPS_MAX + 1);
  convolving_t job = {device, conv, FLOATS(in), FLOATS(out), DIV_UP(conv->channels, CONV_CHANNELS)};
  pool_run(device->pool, conv_task, &job, (int64_t)device->batch->num_reqs * job.parts, 4);
}

/* ---- recurrence ---- */

typedef struct recurring {
  const device_t *device;
  const recurrence_t *r;
  float *in, *factors, *out;
} recurring_t;

static float softplus(float value) {
  return value > 20.0F ? value : log1pf(expf(value));
}

/* Divides every head of q or k by its length, times `scale`. */
static void normalise(const recurring_t *job, float *row, float scale) {
  const recurrence_t *r = job->r;
  const float dim = (float)r->key_dim;
  const norm_args_t norm = {NORM_RMS, r->key_dim, 1e-6F / dim, NULL, NULL};
  for (int32_t g = 0; g < r->num_groups; g++, row += r->key_dim) {
    job->device->kernels->norm(row, row, NULL, &norm);
    job->device->kernels->scale(row, scale / sqrtf(dim), r->key_dim);
  }
}

/* Tokens: the decay and the rate of every head, and q and k of unit length. */
static void factors_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const recurring_t *job = context;
  const recurrence_t *r = job->r;
  const bool delta = r->kind == RECURRENCE_DELTA;
  for (int64_t t = first; t < last; t++) {
    float *row = job->in + t * r->width, *factors = job->factors + t * 2 * r->num_heads;
    for (int32_t h = 0; h < r->num_heads; h++) {
      float step = softplus(row[r->step + h] + r->bias->values[h]);
      if (!delta) step = fminf(fmaxf(step, r->step_min), r->step_max);
      factors[h] = expf(r->decay->values[h] * step);
      factors[r->num_heads + h] =
          delta ? (r->doubles ? 2.0F : 1.0F) / (1.0F + expf(-row[r->rate + h])) : step;
    }
    if (!delta) continue;
    normalise(job, row + r->q, 1.0F / sqrtf((float)r->key_dim));
    normalise(job, row + r->k, 1.0F);
  }
}

/* The next tokens of a run. */
static void recur_next(const kernels_t *kernels, recur_run_t *run, int32_t num_tokens) {
  int64_t in = (int64_t)num_tokens * run->stride;
  run->num_tokens = num_tokens;
  if (num_tokens == 0) return;
  kernels->recur(run);
  run->q += in;
  run->k += in;
  run->v += in;
  run->out += num_tokens * run->out_stride;
  run->decay += num_tokens * run->factor_stride;
  run->rate += num_tokens * run->factor_stride;
  run->fresh = false;
}

/* Runs all tokens, and stores the state on the way. */
static void recur_row(const recurring_t *job, recur_run_t *run, int64_t row, int64_t head) {
  const batch_t *batch = job->device->batch;
  const recurrence_t *r = job->r;
  const int64_t each = state_values(1, r->key_dim, r->value_dim);
  const saves_t saves = saves_of(batch, row);
  int32_t total = run->num_tokens, done = 0;
  for (int32_t i = saves.first; i < saves.last; i++) {
    const state_save_t *save = &batch->state_saves[i];
    float *to = state_of(job->device, save->slot, r->layer) + r->offset + head * each;
    recur_next(job->device->kernels, run, save->behind - done);
    done = save->behind;
    memcpy(to, run->state, (size_t)each * sizeof(float));
  }
  recur_next(job->device->kernels, run, total - done);
}

static void recur_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const recurring_t *job = context;
  const recurrence_t *r = job->r;
  const batch_t *batch = job->device->batch;
  const int64_t each = state_values(1, r->key_dim, r->value_dim);
  for (int64_t unit = first; unit < last; unit++) {
    int64_t row = unit / r->num_heads, head = unit % r->num_heads;
    int64_t token = batch->query_start_loc[row], group = recurrence_group(r, (int32_t)head);
    const float *in = job->in + token * r->width;
    const float *factors = job->factors + token * 2 * r->num_heads + head;
    recur_run_t run = {
        .q = in + r->q + group * r->key_dim,
        .k = in + r->k + group * r->key_dim,
        .v = in + r->v + head * r->value_dim,
        .out = job->out + (token * r->num_heads + head) * r->value_dim,
        .stride = r->width,
        .out_stride = (int64_t)r->num_heads * r->value_dim,
        .decay = factors,
        .rate = factors + r->num_heads,
        .factor_stride = 2 * (int64_t)r->num_heads,
        .state = state_of(job->device, batch->state_slots[row], r->layer) + r->offset + head * each,
        .skip = r->skip != NULL ? r->skip->values[head] : 0,
        .key_dim = r->key_dim,
        .value_dim = r->value_dim,
        .num_tokens = batch->query_start_loc[row + 1] - batch->query_start_loc[row],
        .fresh = batch->num_computed_tokens[row] == 0,
        .corrects = r->kind == RECURRENCE_DELTA,
    };
    recur_row(job, &run, row, head);
  }
}

static void cpu_recur(device_t *device, act_t *out, act_t *in, act_t *scratch,
                      const recurrence_t *recurrence) {
  CHECK_EQ(recurrence->num_heads % recurrence->num_groups, 0);
  recurring_t job = {device, recurrence, FLOATS(in), FLOATS(scratch), FLOATS(out)};
  pool_run(device->pool, factors_task, &job, device->batch->num_tokens, 8);
  pool_run(device->pool, recur_task, &job, (int64_t)device->batch->num_reqs * recurrence->num_heads,
           1);
}

/* ---- selection ---- */

typedef struct selecting {
  const device_t *device;
  const selective_scan_t *selection;
  const float *x, *steps, *keys, *queries;
  float *out;
  int32_t parts; /* of the channels */
} selecting_t;

/* The next tokens of a run. */
static void select_next(const kernels_t *kernels, select_run_t *run, int32_t num_tokens) {
  const int64_t of_channels = num_tokens * run->stride, of_rows = num_tokens * run->rows_stride;
  run->num_tokens = num_tokens;
  if (num_tokens == 0) return;
  kernels->select(run);
  run->x += of_channels;
  run->steps += of_channels;
  run->out += of_channels;
  run->keys += of_rows;
  run->queries += of_rows;
  run->fresh = false;
}

/* Runs all tokens, and stores the state on the way. `at` is the first channel. */
static void select_row(const selecting_t *job, select_run_t *run, int64_t row, int64_t at) {
  const batch_t *batch = job->device->batch;
  const selective_scan_t *selection = job->selection;
  const saves_t saves = saves_of(batch, row);
  int32_t total = run->num_tokens, done = 0;
  for (int32_t i = saves.first; i < saves.last; i++) {
    const state_save_t *save = &batch->state_saves[i];
    float *to = state_of(job->device, save->slot, selection->layer) + selection->offset + at;
    select_next(job->device->kernels, run, save->behind - done);
    done = save->behind;
    for (int64_t n = 0; n < run->rows; n++)
      memcpy(to + n * run->channels, run->state + n * run->channels,
             (size_t)run->count * sizeof(float));
  }
  select_next(job->device->kernels, run, total - done);
}

static void select_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const selecting_t *job = context;
  const selective_scan_t *of = job->selection;
  const batch_t *batch = job->device->batch;
  for (int64_t unit = first; unit < last; unit++) {
    const int64_t row = unit / job->parts, at = unit % job->parts * CONV_CHANNELS;
    const int64_t token = batch->query_start_loc[row], from = token * of->channels + at;
    const int32_t slot = batch->state_slots[row];
    select_run_t run = {
        .x = job->x + from,
        .steps = job->steps + from,
        .keys = job->keys + token * of->rows,
        .queries = job->queries + token * of->rows,
        .out = job->out + from,
        .stride = of->channels,
        .rows_stride = of->rows,
        .state = state_of(job->device, slot, of->layer) + of->offset + at,
        .decay = of->decay->values + at,
        .bias = of->bias->values + at,
        .skip = of->skip->values + at,
        .channels = of->channels,
        .count = (int32_t)MIN(of->channels - at, CONV_CHANNELS),
        .rows = of->rows,
        .num_tokens = batch->query_start_loc[row + 1] - batch->query_start_loc[row],
        .fresh = batch->num_computed_tokens[row] == 0,
    };
    select_row(job, &run, row, at);
  }
}

static void cpu_select(device_t *device, act_t *out, const act_t *in, const act_t *steps,
                       const act_t *keys, const act_t *queries, const selective_scan_t *selection) {
  CHECK_RANGE(selection->rows, 1, SELECT_ROWS_MAX + 1);
  selecting_t job = {
      device,       selection,       FLOATS(in),  FLOATS(steps),
      FLOATS(keys), FLOATS(queries), FLOATS(out), DIV_UP(selection->channels, CONV_CHANNELS)};
  pool_run(device->pool, select_task, &job, (int64_t)device->batch->num_reqs * job.parts, 1);
}

/* ---- gates ---- */

typedef struct gating_job {
  const kernels_t *kernels;
  const gating_t *gating;
  const float *in, *gate;
  float *out;
} gating_job_t;

/* One number of the gate for each run of columns. */
static void gate_runs(const gating_job_t *job, float *out, const float *in, const float *gate,
                      activation_t kind) {
  const int32_t count = job->gating->gate_repeats;
  float same[GATE_REPEATS_MAX];
  for (int32_t at = 0; at < job->gating->width; at += count) {
    for (int32_t i = 0; i < count; i++) same[i] = gate[at / count];
    job->kernels->activation(out + at, same, in + at, kind, count);
  }
}

static void gate_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const gating_job_t *job = context;
  const gating_t *g = job->gating;
  const activation_t kind = g->sigmoid ? ACTIVATION_SIGMOID_MUL : ACTIVATION_SILU_MUL;
  for (int64_t row = first; row < last; row++) {
    const float *in = job->in + row * g->width, *gate = job->gate + row * g->gate_width;
    float *out = job->out + row * g->width;
    gate += g->gate_column;
    if (g->gate_repeats > 1) {
      gate_runs(job, out, in, gate, kind);
      continue;
    }
    if (g->gate_first || g->group == 0) job->kernels->activation(out, gate, in, kind, g->width);
    const float *from = g->gate_first ? out : in;
    for (int32_t at = 0; g->group > 0 && at < g->width; at += g->group) {
      const float *weight = g->weight->values + (g->weight_repeats ? 0 : at);
      const norm_args_t norm = {NORM_RMS, g->group, g->eps, weight, NULL};
      job->kernels->norm(out + at, from + at, NULL, &norm);
    }
    if (!g->gate_first && g->group > 0) job->kernels->activation(out, gate, out, kind, g->width);
  }
}

static void cpu_gate(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                     const gating_t *gating, int32_t rows) {
  gating_job_t job = {device->kernels, gating, FLOATS(in), FLOATS(gate), FLOATS(out)};
  CHECK(gating->gate_repeats <= (gating->group == 0 ? GATE_REPEATS_MAX : 1));
  pool_run(device->pool, gate_task, &job, rows, INLINE_ELEMENTS / gating->width + 1);
}

/* ---- factors of columns ---- */

typedef struct column_scaling {
  float *values;
  const float *factors;
  int32_t width;
} column_scaling_t;

static void scale_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const column_scaling_t *job = context;
  for (int64_t row = first; row < last; row++) {
    float *values = job->values + row * job->width;
    for (int32_t i = 0; i < job->width; i++) values[i] *= job->factors[i];
  }
}

static void cpu_scale_columns(device_t *device, act_t *values, const vector_t *factors,
                              int32_t width, int32_t rows) {
  column_scaling_t job = {FLOATS(values), factors->values, width};
  pool_run(device->pool, scale_task, &job, rows, INLINE_ELEMENTS / width + 1);
}

const state_ops_t cpu_state_ops = {.key_dim_max = INT32_MAX,
                                   .values = state_values,
                                   .bytes = state_bytes,
                                   .make = make_states,
                                   .conv = cpu_conv,
                                   .recur_has_scratch = true,
                                   .recur = cpu_recur,
                                   .select = cpu_select,
                                   .gate = cpu_gate,
                                   .scale = cpu_scale_columns};
