/* linear.c: linear layers and logits.
 *
 * This file decides how a product is divided. Called on the engine thread; pool workers compute
 * panels. Rows are taken ROW_BLOCK at a time: they are staged (for bf16 and quantised weights),
 * then every panel of 64 columns is one unit of work. The work is divided by columns, never by
 * depth, so the bits do not depend on the number of threads or rows.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/kv.h"
#include "engine/device/draft_ops.h"

#include <math.h>
#include <string.h>

enum { ROWS_PER_UNIT = 64, STAGE_GRAIN_ELEMENTS = 32768 };

typedef struct product {
  const device_t *device;
  const weight_t *weight;
  const uint8_t *x; /* staged or fp32 rows */
  size_t stride;    /* bytes between rows of x */
  float *out;
  int64_t ldo;
  const float *bias, *residual;
  int32_t rows;
  int32_t row_units; /* number of units into which the rows of a panel are divided */
  float softcap;
  const activation_t *activation; /* of the sums, in place; NULL = none */
} product_t;

static void panel_task(void *context, int64_t first, int64_t last, int worker) {
  const product_t *job = context;
  for (int64_t unit = first; unit < last; unit++) {
    int64_t panel = unit / job->row_units, part = unit % job->row_units;
    int64_t row = part * job->rows / job->row_units, end = (part + 1) * job->rows / job->row_units;
    int64_t col = panel * PANEL_COLS, left = job->weight->rows - col;
    bool more = part + 1 == job->row_units && left > PANEL_COLS;
    gemm_t gemm = {
        .x = job->x + (size_t)row * job->stride,
        .rows = (int32_t)(end - row),
        .cols = (int32_t)MIN(left, PANEL_COLS),
        .out = job->out + row * job->ldo + col,
        .ldo = job->ldo,
        .bias = job->bias != NULL ? job->bias + col : NULL,
        .residual = job->residual != NULL ? job->residual + row * job->ldo + col : NULL,
    };
    weight_multiply(job->device, job->weight, panel, more, worker, &gemm);
    const kernels_t *kernels = job->device->kernels;
    for (int32_t r = 0; job->softcap != 0 && r < gemm.rows; r++)
      kernels->softcap(gemm.out + r * gemm.ldo, gemm.cols, job->softcap);
    for (int32_t r = 0; job->activation != NULL && r < gemm.rows; r++) {
      float *sums = gemm.out + r * gemm.ldo; /* which the cache still has */
      kernels->activation(sums, sums, NULL, *job->activation, gemm.cols);
    }
  }
}

typedef struct linear_staging {
  const device_t *device;
  const weight_t *weight;
  uint8_t *out;
  const float *in;
  size_t stride; /* bytes between staged rows */
} linear_staging_t;

static void stage_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const linear_staging_t *staging = context;
  for (int64_t row = first; row < last; row++)
    weight_stage(staging->device, staging->weight, staging->out + (size_t)row * staging->stride,
                 staging->in + row * staging->weight->cols);
}

static void multiply(device_t *device, product_t *job, const float *in, int32_t rows) {
  const weight_t *weight = job->weight;
  int64_t panels = DIV_UP(weight->rows, PANEL_COLS);
  size_t stride = weight_stride(device, weight);
  float *out = job->out;
  const float *residual = job->residual;
  for (int32_t row = 0; row < rows; row += ROW_BLOCK) {
    job->rows = MIN(rows - row, ROW_BLOCK);
    const float *x = in + row * weight->cols;
    job->x = stride != 0 ? device->staged : (const uint8_t *)x;
    job->stride = stride != 0 ? stride : (size_t)weight->cols * sizeof *x;
    if (stride != 0) {
      linear_staging_t staging = {device, weight, device->staged, x, stride};
      int64_t grain = 1 + STAGE_GRAIN_ELEMENTS / weight->cols;
      pool_run(device->pool, stage_task, &staging, job->rows, grain);
    }
    job->out = out + row * job->ldo;
    job->residual = residual != NULL ? residual + row * job->ldo : NULL;
    job->row_units = DIV_UP(job->rows, ROWS_PER_UNIT);
    pool_run(device->pool, panel_task, job, panels * job->row_units, 1);
  }
}

static void run(device_t *device, product_t *job, const act_t *in, const vector_t *bias,
                int32_t rows) {
  CHECK_LE(job->weight->depth, device->staged_cols);
  CHECK_EQ(job->weight->stack, 1);
  CHECK(bias == NULL || bias->count == job->weight->rows);
  job->device = device;
  job->ldo = job->weight->rows;
  job->bias = bias != NULL ? bias->values : NULL;
  multiply(device, job, FLOATS(in), rows);
}

void cpu_linear(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                const vector_t *bias, const act_t *residual, int32_t rows) {
  product_t job = {.weight = weight, .out = FLOATS(out), .residual = FLOATS(residual)};
  run(device, &job, in, bias, rows);
}

void cpu_fused_linear(device_t *device, act_t *out, const act_t *in, const fused_linear_t *linear,
                      int32_t rows) {
  bool gated = linear->has_activation && activation_is_gated(linear->activation);
  product_t job = {.weight = linear->weight,
                   .out = FLOATS(gated ? linear->sums : out),
                   .activation = linear->has_activation && !gated ? &linear->activation : NULL};
  if (linear->norm != NULL) {
    cpu_norm(device, linear->normed, in, NULL, linear->norm, rows);
    in = linear->normed;
  }
  run(device, &job, in, linear->bias, rows);
  if (gated) /* its two halves come from two panels */
    cpu_activation(device, out, linear->sums, linear->activation, linear->width, rows);
  if (linear->attention != NULL) cpu_rope_store(device, out, linear->attention);
}

void cpu_logits(device_t *device, const act_t *hidden, const weight_t *head, const vector_t *bias,
                float softcap, int32_t first, int32_t rows) {
  CHECK_LE(rows, device->limits.logits_rows_max);
  CHECK_LE(head->rows, device->logits_stride);
  CHECK_LE(head->depth, device->staged_cols);
  device->logits_cols = head->rows;
  product_t job = {.device = device,
                   .weight = head,
                   .out = device->logits,
                   .ldo = device->logits_stride,
                   .bias = bias != NULL ? bias->values : NULL,
                   .softcap = softcap};
  multiply(device, &job, FLOATS(hidden) + first * head->cols, rows);
}

void cpu_read_logits(device_t *device, float *out, int32_t rows) {
  for (int32_t r = 0; r < rows; r++)
    memcpy(out + r * device->logits_cols, device->logits + r * device->logits_stride,
           (size_t)device->logits_cols * sizeof(float));
}

/* From the last one on, so that none is overwritten before it is moved. */
static void spread_row(float *row, const int32_t *ids, int32_t count, int32_t vocab_size) {
  int32_t end = vocab_size;
  for (int32_t i = count - 1; i >= 0; i--) {
    const float logit = row[i];
    while (--end > ids[i]) row[end] = -INFINITY;
    row[end] = logit;
  }
  while (--end >= 0) row[end] = -INFINITY;
}

static void cpu_spread_logits(device_t *device, const int32_t *ids, int32_t count,
                              int32_t vocab_size, int32_t rows) {
  CHECK_EQ(device->logits_cols, count);
  CHECK_LE(vocab_size, device->logits_stride);
  for (int32_t r = 0; r < rows; r++)
    spread_row(device->logits + r * device->logits_stride, ids, count, vocab_size);
  device->logits_cols = vocab_size;
}

const draft_ops_t cpu_draft_ops = {.spread_logits = cpu_spread_logits};
