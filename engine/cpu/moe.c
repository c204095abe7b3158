/* moe.c: a mixture of experts: routing, expert products, their sum.
 *
 * Owns how the work is cut. Called on the engine thread; pool workers route rows, run panels and
 * add up rows. A (row, expert) that was chosen is a pair; pairs stand in the order of (expert,
 * row), so that the rows of one expert are one product. What a row gets depends on its own logits
 * and its own pairs only, and its experts are added in ascending order: its bits do not depend on
 * the others.
 *
 * Bytes moved: the weights of every expert that any row chose, once per MOE_ROWS rows; bound by
 * memory until some ten rows share an expert.
 */
#include "engine/base/check.h"
#include "engine/cpu/cpu.h"

#include <math.h>
#include <string.h>

enum { ROWS_PER_PART = 64 };

typedef struct mixing {
  device_t *device;
  const moe_t *moe;
  const moe_space_t *space;
  const float *in, *residual; /* [rows, h] */
  float *out;                 /* [rows, h] */
  int32_t rows, num_active;
  int64_t hidden;
} mixing_t;

/* The k largest logits, of equal ones the lower index; NaN counts as the smallest. */
static void choose(const float *logits, int32_t count, int32_t top_k, int32_t *chosen) {
  float best[EXPERTS_TOP_MAX];
  int32_t filled = 0;
  for (int32_t e = 0; e < count; e++) {
    float x = isnan(logits[e]) ? -INFINITY : logits[e];
    if (filled == top_k && !(x > best[top_k - 1])) continue;
    int32_t at = filled < top_k ? filled++ : top_k - 1;
    for (; at > 0 && x > best[at - 1]; at--) {
      best[at] = best[at - 1];
      chosen[at] = chosen[at - 1];
    }
    best[at] = x;
    chosen[at] = e;
  }
}

static void sort_ascending(int32_t *chosen, int32_t count) {
  for (int32_t i = 1; i < count; i++) {
    int32_t e = chosen[i], at = i;
    for (; at > 0 && chosen[at - 1] > e; at--) chosen[at] = chosen[at - 1];
    chosen[at] = e;
  }
}

static void route_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const mixing_t *m = context;
  const int32_t count = m->moe->num_experts, top_k = m->moe->top_k;
  for (int64_t row = first; row < last; row++) {
    const float *logits = m->space->logits + row * count;
    int32_t *chosen = m->space->chosen + row * top_k;
    float *shares = m->space->shares + row * top_k, total = 0;
    choose(logits, count, top_k, chosen);
    float highest = logits[chosen[0]];
    sort_ascending(chosen, top_k);
    for (int32_t j = 0; j < top_k; j++) shares[j] = expf(logits[chosen[j]] - highest);
    if (m->moe->normalise) {
      for (int32_t j = 0; j < top_k; j++) total += shares[j];
    } else {
      for (int32_t e = 0; e < count; e++) total += expf(logits[e] - highest);
    }
    for (int32_t j = 0; j < top_k; j++) shares[j] /= total;
  }
}

/* Gives every pair its place: by expert, then by row. */
static void place_pairs(mixing_t *m) {
  const moe_space_t *s = m->space;
  const int32_t pairs = m->rows * m->moe->top_k, experts = m->moe->num_experts;
  memset(s->first, 0, (size_t)(experts + 1) * sizeof *s->first);
  for (int32_t i = 0; i < pairs; i++) s->first[s->chosen[i] + 1]++;
  m->num_active = 0;
  for (int32_t e = 0; e < experts; e++) {
    if (s->first[e + 1] > 0) s->active[m->num_active++] = e;
    s->first[e + 1] += s->first[e];
    s->next[e] = s->first[e];
  }
  for (int32_t i = 0; i < pairs; i++) s->place[i] = s->next[s->chosen[i]]++;
}

/* Bytes between staged rows of `weight`. Rows stand an odd number of cache lines apart, so that
 * they do not meet in one cache set. */
static int64_t staged_stride(const weight_t *weight) {
  if (weight->dtype != DTYPE_BF16) return weight->cols;
  return weight->depth + (weight->depth % (2 * DEPTH_ALIGN) == 0 ? DEPTH_ALIGN : 0);
}

static size_t staged_size(const mixing_t *m, const weight_t *weight) {
  return weight->dtype == DTYPE_BF16 ? m->device->kernels->staged_size : sizeof(float);
}

static void stage_row(const mixing_t *m, const weight_t *weight, const float *x, int64_t place) {
  uint8_t *to = m->space->staged + (size_t)(place * staged_stride(weight)) * staged_size(m, weight);
  if (weight->dtype == DTYPE_BF16)
    m->device->kernels->stage(to, x, weight->cols, weight->depth);
  else
    memcpy(to, x, (size_t)weight->cols * sizeof(float));
}

static void stage_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const mixing_t *m = context;
  const int32_t top_k = m->moe->top_k;
  for (int64_t row = first; row < last; row++)
    for (int32_t j = 0; j < top_k; j++)
      stage_row(m, m->moe->up, m->in + row * m->hidden, m->space->place[row * top_k + j]);
}

/* One panel of one expert with all its rows; out[pair, stack_rows]. */
static void expert_panel(const mixing_t *m, const weight_t *w, const vector_t *bias, float *out,
                         int64_t unit, int worker) {
  int32_t expert = m->space->active[unit / w->stack_panels];
  int64_t panel = unit % w->stack_panels, col = panel * PANEL_COLS, left = w->stack_rows - col;
  int64_t stride = staged_stride(w), index = expert * w->stack_panels + panel;
  int32_t row = m->space->first[expert], end = m->space->first[expert + 1];
  size_t size = staged_size(m, w);
  const uint8_t *data = weight_panel(m->device, w, index, worker);
  bool more = w->format == WEIGHT_PLAIN && left > PANEL_COLS;
  while (row < end) {
    int32_t rows = end - row < ROWS_PER_PART ? end - row : ROWS_PER_PART;
    gemm_t g = {
        .x = m->space->staged + (size_t)(row * stride) * size,
        .ldx = stride,
        .panel = data,
        .next = more && row + rows == end ? data + w->panel_bytes : NULL,
        .depth = w->depth,
        .rows = rows,
        .cols = (int32_t)(left < PANEL_COLS ? left : PANEL_COLS),
        .out = out + row * w->stack_rows + col,
        .ldo = w->stack_rows,
        .bias = bias != NULL ? bias->values + expert * w->stack_rows + col : NULL,
    };
    m->device->kernels->gemm[w->dtype](&g);
    row += rows;
  }
}

static void up_task(void *context, int64_t first, int64_t last, int worker) {
  const mixing_t *m = context;
  for (int64_t unit = first; unit < last; unit++)
    expert_panel(m, m->moe->up, m->moe->up_bias, m->space->up, unit, worker);
}

static void down_task(void *context, int64_t first, int64_t last, int worker) {
  const mixing_t *m = context;
  for (int64_t unit = first; unit < last; unit++)
    expert_panel(m, m->moe->down, m->moe->down_bias, m->space->down, unit, worker);
}

static void activate_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const mixing_t *m = context;
  const int32_t width = m->moe->width;
  for (int64_t pair = first; pair < last; pair++) {
    float *up = m->space->up + pair * 2 * width;
    m->device->kernels->activation(up, up, up + width, m->moe->activation, width);
    stage_row(m, m->moe->down, up, pair);
  }
}

static void add_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const mixing_t *m = context;
  const int32_t top_k = m->moe->top_k;
  for (int64_t row = first; row < last; row++) {
    float *out = m->out + row * m->hidden;
    const float *residual = m->residual + row * m->hidden;
    if (out != residual) memcpy(out, residual, (size_t)m->hidden * sizeof *out);
    for (int32_t j = 0; j < top_k; j++) {
      int64_t pair = m->space->place[row * top_k + j];
      m->device->kernels->add_scaled(out, m->space->down + pair * m->hidden,
                                     m->space->shares[row * top_k + j], m->hidden);
    }
  }
}

static void mix(mixing_t *m) {
  const moe_t *moe = m->moe;
  pool_t *pool = m->device->pool;
  int64_t pairs = (int64_t)m->rows * moe->top_k;
  cpu_linear(m->device, m->space->logits, m->in, moe->router, moe->router_bias, NULL, m->rows);
  pool_run(pool, route_task, m, m->rows, 1 + INLINE_ELEMENTS / moe->num_experts / 4);
  place_pairs(m);
  pool_run(pool, stage_task, m, m->rows, 1 + INLINE_ELEMENTS / (m->hidden * moe->top_k));
  pool_run(pool, up_task, m, m->num_active * moe->up->stack_panels, 1);
  pool_run(pool, activate_task, m, pairs, 1 + INLINE_ELEMENTS / 4 / moe->width);
  pool_run(pool, down_task, m, m->num_active * moe->down->stack_panels, 1);
  pool_run(pool, add_task, m, m->rows, 1 + INLINE_ELEMENTS / (m->hidden * moe->top_k));
}

void cpu_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual, const moe_t *moe,
             int32_t rows) {
  const step_limits_t *l = &device->limits;
  CHECK_LE(moe->num_experts, l->experts_max);
  CHECK_LE(moe->width, l->expert_width_max);
  CHECK_GE(moe->top_k, 1);
  CHECK_LE(moe->top_k, l->experts_top_max);
  CHECK_LE(moe->top_k, moe->num_experts);
  CHECK_EQ(moe->up->stack, moe->num_experts);
  CHECK_EQ(moe->down->stack, moe->num_experts);
  CHECK_EQ(moe->up->stack_rows, 2 * (int64_t)moe->width);
  CHECK_EQ(moe->down->cols, moe->width);
  CHECK_EQ(moe->router->rows, moe->num_experts);
  CHECK_EQ(moe->router->cols, moe->up->cols);
  CHECK_EQ(moe->up->cols, moe->down->stack_rows);
  CHECK(activation_is_gated(moe->activation));
  const int64_t hidden = moe->up->cols;
  CHECK_LE(hidden, l->hidden_max);
  for (int32_t row = 0; row < rows; row += MOE_ROWS) {
    mixing_t m = {.device = device,
                  .moe = moe,
                  .space = &device->moe,
                  .in = (const float *)in + row * hidden,
                  .residual = (const float *)residual + row * hidden,
                  .out = (float *)out + row * hidden,
                  .rows = rows - row < MOE_ROWS ? rows - row : MOE_ROWS,
                  .hidden = hidden};
    mix(&m);
  }
}

int moe_prepare(device_t *device, error_t *error) {
  const step_limits_t *l = &device->limits;
  moe_space_t *s = &device->moe;
  if (l->experts_max == 0) return 0;
  CHECK_GE(l->experts_top_max, 1);
  CHECK_LE(l->experts_top_max, EXPERTS_TOP_MAX);
  CHECK_GE(l->expert_width_max, 1);
  CHECK_LE(l->experts_max, INT32_MAX / 2);
  size_t rows = (size_t)(l->tokens_max < MOE_ROWS ? l->tokens_max : MOE_ROWS);
  size_t pairs = rows * (size_t)l->experts_top_max, experts = (size_t)l->experts_max + 1;
  size_t hidden = (size_t)l->hidden_max, width = (size_t)l->expert_width_max;
  size_t staged = (hidden > width ? hidden : width) + 2 * DEPTH_ALIGN;
  struct {
    void **at;
    size_t count, size;
  } pieces[] = {
      {(void **)&s->logits, rows * experts, sizeof(float)},
      {(void **)&s->chosen, pairs, sizeof(int32_t)},
      {(void **)&s->place, pairs, sizeof(int32_t)},
      {(void **)&s->shares, pairs, sizeof(float)},
      {(void **)&s->first, experts, sizeof(int32_t)},
      {(void **)&s->next, experts, sizeof(int32_t)},
      {(void **)&s->active, experts, sizeof(int32_t)},
      {(void **)&s->staged, pairs, staged * 4},
      {(void **)&s->up, pairs, width * 2 * 4},
      {(void **)&s->down, pairs, hidden * 4},
  };
  for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
    size_t bytes = SIZE_MAX;
    bool fits = size_product(&bytes, pieces[i].count, pieces[i].size, 1);
    *pieces[i].at = fits ? memory_take(device, bytes) : NULL;
    if (*pieces[i].at == NULL) return no_memory(error, "experts", bytes);
  }
  return 0;
}
