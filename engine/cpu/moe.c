/* moe.c: a mixture of experts: routing, expert products, their sum.
 *
 * This file decides how the work is divided. Called on the engine thread; pool workers route rows,
 * compute panels and add up rows. A pair is a row and an expert chosen for it. Pairs are ordered by
 * expert, then row, so that the rows of one expert are one product. The output of a row depends
 * only on its own logits and pairs, and its experts are added in ascending order: its bits do not
 * depend on other rows.
 *
 * On one of several ranks it computes the pairs of its own experts, which stand together, and gets
 * the outputs of the others (moe_t.cuts), or leaves these out (moe_t.sums_own).
 *
 * Bytes moved: the weights of every expert that any row chose, once per MOE_ROWS rows; bound by
 * memory bandwidth until about ten rows share an expert.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/ranks.h"

#include <string.h>

enum { ROWS_PER_PART = 64 };

typedef struct mixing {
  device_t *device;
  const moe_t *moe;
  const moe_space_t *space;
  const float *in, *router_in; /* [rows, h] */
  const float *residual;       /* [rows, h] or NULL */
  float *out;                  /* [rows, h] */
  int32_t rows, num_active;
  int32_t first_expert, end_expert; /* that this rank has */
  int64_t first_pair, end_pair;     /* of these experts */
  int64_t hidden;
} mixing_t;

static void route_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const mixing_t *job = context;
  const int32_t count = job->moe->num_experts, top_k = job->moe->top_k;
  for (int64_t row = first; row < last; row++)
    route_row(job->moe, job->space->logits + row * count, job->space->chosen + row * top_k,
              job->space->shares + row * top_k);
}

/* Orders the pairs: by expert, then by row. */
static void place_pairs(mixing_t *job) {
  const moe_space_t *space = job->space;
  const int32_t pairs = job->rows * job->moe->top_k, experts = job->moe->num_experts;
  memset(space->first, 0, (size_t)(experts + 1) * sizeof *space->first);
  for (int32_t i = 0; i < pairs; i++) space->first[space->chosen[i] + 1]++;
  job->num_active = 0;
  for (int32_t e = 0; e < experts; e++) {
    const bool own = e >= job->first_expert && e < job->end_expert;
    if (space->first[e + 1] > 0 && own) space->active[job->num_active++] = e;
    space->first[e + 1] += space->first[e];
    space->next[e] = space->first[e];
  }
  for (int32_t i = 0; i < pairs; i++) space->place[i] = space->next[space->chosen[i]]++;
}

/* Bytes between rows of activations as the kernel of `weight` reads them. */
static size_t row_stride(const mixing_t *job, const weight_t *weight) {
  size_t stride = weight_stride(job->device, weight);
  return stride != 0 ? stride : (size_t)weight->cols * sizeof(float);
}

static void stage_row(const mixing_t *job, const weight_t *weight, const float *in, int64_t place) {
  weight_stage(job->device, weight, job->space->staged + (size_t)place * row_stride(job, weight),
               in);
}

static void stage_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const mixing_t *job = context;
  const int32_t top_k = job->moe->top_k;
  for (int64_t row = first; row < last; row++)
    for (int32_t j = 0; j < top_k; j++)
      stage_row(job, job->moe->up, job->in + row * job->hidden, job->space->place[row * top_k + j]);
}

/* One panel of one expert with all its rows; out[pair, stack_rows]. */
static void expert_panel(const mixing_t *job, const weight_t *weight, const vector_t *bias,
                         float *out, int64_t unit, int worker) {
  int32_t expert = job->space->active[unit / weight->stack_panels];
  int64_t panel = unit % weight->stack_panels, col = panel * PANEL_COLS,
          left = weight->stack_rows - col;
  int64_t place = expert - job->first_expert, index = place * weight->stack_panels + panel;
  int32_t row = job->space->first[expert], end = job->space->first[expert + 1];
  while (row < end) {
    int32_t rows = MIN(end - row, ROWS_PER_PART);
    gemm_t gemm = {
        .x = job->space->staged + (size_t)row * row_stride(job, weight),
        .rows = rows,
        .cols = (int32_t)MIN(left, PANEL_COLS),
        .out = out + row * weight->stack_rows + col,
        .ldo = weight->stack_rows,
        .bias = bias != NULL ? bias->values + place * weight->stack_rows + col : NULL,
    };
    weight_multiply(job->device, weight, index, left > PANEL_COLS && row + rows == end, worker,
                    &gemm);
    row += rows;
  }
}

static void up_task(void *context, int64_t first, int64_t last, int worker) {
  const mixing_t *job = context;
  for (int64_t unit = first; unit < last; unit++)
    expert_panel(job, job->moe->up, job->moe->up_bias, job->space->up, unit, worker);
}

static void down_task(void *context, int64_t first, int64_t last, int worker) {
  const mixing_t *job = context;
  for (int64_t unit = first; unit < last; unit++)
    expert_panel(job, job->moe->down, job->moe->down_bias, job->space->down, unit, worker);
}

static void activate_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const mixing_t *job = context;
  const int32_t width = job->moe->width;
  const bool gated = activation_is_gated(job->moe->activation);
  for (int64_t pair = job->first_pair + first; pair < job->first_pair + last; pair++) {
    float *up = job->space->up + pair * job->moe->up->stack_rows;
    job->device->kernels->activation(up, up, gated ? up + width : NULL, job->moe->activation,
                                     width);
    stage_row(job, job->moe->down, up, pair);
  }
}

static void add_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const mixing_t *job = context;
  const int32_t top_k = job->moe->top_k;
  for (int64_t row = first; row < last; row++) {
    float *out = job->out + row * job->hidden;
    const float *residual = job->residual != NULL ? job->residual + row * job->hidden : NULL;
    if (residual == NULL) memset(out, 0, (size_t)job->hidden * sizeof *out);
    if (residual != NULL && out != residual)
      memcpy(out, residual, (size_t)job->hidden * sizeof *out);
    for (int32_t j = 0; j < top_k; j++) {
      int64_t pair = job->space->place[row * top_k + j];
      if (job->moe->sums_own && (pair < job->first_pair || pair >= job->end_pair)) continue;
      job->device->kernels->add_scaled(out, job->space->down + pair * job->hidden,
                                       job->space->shares[row * top_k + j], job->hidden);
    }
  }
}

static void mix(mixing_t *job) {
  const moe_t *moe = job->moe;
  pool_t *pool = job->device->pool;
  cpu_linear(job->device, ACT(job->space->logits), ACT(job->router_in), moe->router,
             moe->router_bias, NULL, job->rows);
  pool_run(pool, route_task, job, job->rows, 1 + INLINE_ELEMENTS / moe->num_experts / 4);
  place_pairs(job);
  pool_run(pool, stage_task, job, job->rows, 1 + INLINE_ELEMENTS / (job->hidden * moe->top_k));
  pool_run(pool, up_task, job, job->num_active * moe->up->stack_panels, 1);
  job->first_pair = job->space->first[job->first_expert];
  job->end_pair = job->space->first[job->end_expert];
  int64_t pairs = job->end_pair - job->first_pair;
  pool_run(pool, activate_task, job, pairs, 1 + INLINE_ELEMENTS / 4 / moe->width);
  pool_run(pool, down_task, job, job->num_active * moe->down->stack_panels, 1);
  if (moe->cuts != NULL && !moe->sums_own)
    ranks_gather_pairs(job->device, job->space->first, moe->cuts, job->hidden);
  pool_run(pool, add_task, job, job->rows, 1 + INLINE_ELEMENTS / (job->hidden * moe->top_k));
}

void cpu_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual, const moe_t *moe,
             int32_t rows) {
  const step_limits_t *limits = &device->limits;
  CHECK_LE(moe->num_experts, limits->experts_max);
  CHECK_LE(moe->width, limits->expert_width_max);
  CHECK_GE(moe->top_k, 1);
  CHECK(moe->routing == ROUTING_LOGITS ||
        (moe->num_experts <= ROUTED_MAX && moe->num_groups <= GROUPS_MAX));
  CHECK_LE(moe->top_k, limits->experts_top_max);
  CHECK_LE(moe->top_k, moe->num_experts);
  const int32_t *cuts = moe->cuts;
  const int32_t first = cuts != NULL ? cuts[device->comm->rank] : 0;
  const int32_t end = cuts != NULL ? cuts[device->comm->rank + 1] : moe->num_experts;
  CHECK_EQ(moe->up->stack, end - first);
  CHECK_EQ(moe->down->stack, end - first);
  CHECK_EQ(moe->up->stack_rows,
           (activation_is_gated(moe->activation) ? 2 : 1) * (int64_t)moe->width);
  CHECK_EQ(moe->down->cols, moe->width);
  CHECK_EQ(moe->router->rows, moe->num_experts);
  CHECK(moe->router_in != NULL || moe->router->cols == moe->up->cols);
  CHECK_EQ(moe->up->cols, moe->down->stack_rows);
  const int64_t hidden = moe->up->cols;
  CHECK_LE(hidden, limits->hidden_max);
  const act_t *router_in = moe->router_in != NULL ? moe->router_in : in;
  for (int32_t row = 0; row < rows; row += MOE_ROWS) {
    mixing_t job = {.device = device,
                    .moe = moe,
                    .space = &device->moe,
                    .in = FLOATS(in) + row * hidden,
                    .router_in = FLOATS(router_in) + row * moe->router->cols,
                    .residual = residual != NULL ? FLOATS(residual) + row * hidden : NULL,
                    .out = FLOATS(out) + row * hidden,
                    .rows = MIN(rows - row, MOE_ROWS),
                    .first_expert = first,
                    .end_expert = end,
                    .hidden = hidden};
    mix(&job);
  }
}

int moe_prepare(device_t *device, inferd_error_t *error) {
  const step_limits_t *limits = &device->limits;
  moe_space_t *space = &device->moe;
  if (limits->experts_max == 0) return 0;
  CHECK_GE(limits->experts_top_max, 1);
  CHECK_LE(limits->experts_top_max, EXPERTS_TOP_MAX);
  CHECK_GE(limits->expert_width_max, 1);
  CHECK_LE(limits->experts_max, INT32_MAX / 2);
  size_t rows = (size_t)MIN(limits->tokens_max, MOE_ROWS);
  size_t pairs = rows * (size_t)limits->experts_top_max, experts = (size_t)limits->experts_max + 1;
  size_t hidden = (size_t)limits->hidden_max, width = (size_t)limits->expert_width_max;
  size_t staged = MAX(hidden, width) + 2 * DEPTH_ALIGN;
  struct {
    void **at;
    size_t count, size;
  } pieces[] = {
      {(void **)&space->logits, rows * experts, sizeof(float)},
      {(void **)&space->chosen, pairs, sizeof(int32_t)},
      {(void **)&space->place, pairs, sizeof(int32_t)},
      {(void **)&space->shares, pairs, sizeof(float)},
      {(void **)&space->first, experts, sizeof(int32_t)},
      {(void **)&space->next, experts, sizeof(int32_t)},
      {(void **)&space->active, experts, sizeof(int32_t)},
      {(void **)&space->staged, pairs, staged * 4},
      {(void **)&space->up, pairs, width * 2 * 4},
      {(void **)&space->down, pairs, hidden * 4},
  };
  for (size_t i = 0; i < ARRAY_LEN(pieces); i++) {
    size_t bytes = SIZE_MAX;
    bool fits = size_product(&bytes, pieces[i].count, pieces[i].size, 1);
    *pieces[i].at = fits ? memory_take(device, bytes) : NULL;
    if (*pieces[i].at == NULL) return no_memory(error, "experts", bytes);
  }
  return 0;
}
