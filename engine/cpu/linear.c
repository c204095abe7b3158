/* linear.c: linear layers and logits.
 *
 * Owns how a product is cut into work. Called on the engine thread; pool workers run panels. Rows
 * are taken ROW_BLOCK at a time: stage them (bf16 weights only), then every panel of 64 columns is
 * one unit. Threads share the columns, never the depth, so neither the number of threads nor that
 * of rows changes a bit.
 */
#include "engine/base/check.h"
#include "engine/cpu/cpu.h"

#include <string.h>

enum { ROWS_PER_UNIT = 64, STAGE_GRAIN_ELEMENTS = 32768 };

typedef struct product {
  const device_t *device;
  const kernels_t *kernels;
  const weight_t *weight;
  const void *x; /* staged or fp32 rows */
  size_t x_size; /* bytes of an element of x */
  int64_t ldx;
  float *out;
  int64_t ldo;
  const float *bias, *residual;
  int32_t rows;
  int32_t row_units; /* units a panel's rows are cut into */
  float softcap;
} product_t;

static void panel_task(void *context, int64_t first, int64_t last, int worker) {
  const product_t *p = context;
  const weight_t *w = p->weight;
  for (int64_t unit = first; unit < last; unit++) {
    int64_t panel = unit / p->row_units, part = unit % p->row_units;
    int64_t row = part * p->rows / p->row_units, end = (part + 1) * p->rows / p->row_units;
    int64_t col = panel * PANEL_COLS, left = w->rows - col;
    const uint8_t *data = weight_panel(p->device, w, panel, worker);
    bool more = w->format == WEIGHT_PLAIN && part + 1 == p->row_units && left > PANEL_COLS;
    gemm_t g = {
        .x = (const uint8_t *)p->x + (size_t)(row * p->ldx) * p->x_size,
        .ldx = p->ldx,
        .panel = data,
        .next = more ? data + w->panel_bytes : NULL,
        .depth = w->depth,
        .rows = (int32_t)(end - row),
        .cols = (int32_t)(left < PANEL_COLS ? left : PANEL_COLS),
        .out = p->out + row * p->ldo + col,
        .ldo = p->ldo,
        .bias = p->bias != NULL ? p->bias + col : NULL,
        .residual = p->residual != NULL ? p->residual + row * p->ldo + col : NULL,
    };
    p->kernels->gemm[w->dtype](&g);
    for (int32_t r = 0; p->softcap != 0 && r < g.rows; r++)
      p->kernels->softcap(g.out + r * g.ldo, g.cols, p->softcap);
  }
}

typedef struct staging {
  const kernels_t *kernels;
  uint8_t *out;
  const float *in;
  int64_t cols, depth, stride; /* of a row: given, staged, between staged rows */
} staging_t;

static void stage_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const staging_t *s = context;
  for (int64_t row = first; row < last; row++)
    s->kernels->stage(s->out + (size_t)(row * s->stride) * s->kernels->staged_size,
                      s->in + row * s->cols, s->cols, s->depth);
}

static void multiply(device_t *device, product_t *p, const float *in, int32_t rows) {
  const weight_t *w = p->weight;
  int64_t panels = (w->rows + PANEL_COLS - 1) / PANEL_COLS;
  float *out = p->out;
  const float *residual = p->residual;
  for (int32_t row = 0; row < rows; row += ROW_BLOCK) {
    p->rows = rows - row < ROW_BLOCK ? rows - row : ROW_BLOCK;
    const float *x = in + row * w->cols;
    if (w->dtype == DTYPE_BF16) {
      /* An odd number of cache lines apart, so that rows do not meet in one cache set. */
      int64_t stride = w->depth + (w->depth % (2 * DEPTH_ALIGN) == 0 ? DEPTH_ALIGN : 0);
      staging_t staging = {p->kernels, device->staged, x, w->cols, w->depth, stride};
      int64_t grain = 1 + STAGE_GRAIN_ELEMENTS / w->cols;
      pool_run(device->pool, stage_task, &staging, p->rows, grain);
      p->x = device->staged;
      p->x_size = p->kernels->staged_size;
      p->ldx = stride;
    } else {
      p->x = x;
      p->x_size = sizeof(float);
      p->ldx = w->cols;
    }
    p->out = out + row * p->ldo;
    p->residual = residual != NULL ? residual + row * p->ldo : NULL;
    p->row_units = (p->rows + ROWS_PER_UNIT - 1) / ROWS_PER_UNIT;
    pool_run(device->pool, panel_task, p, panels * p->row_units, 1);
  }
}

void cpu_linear(device_t *device, act_t *out, const act_t *in, const weight_t *weight,
                const vector_t *bias, const act_t *residual, int32_t rows) {
  CHECK(weight->dtype != DTYPE_BF16 || weight->depth <= device->staged_cols);
  CHECK_EQ(weight->stack, 1);
  CHECK(bias == NULL || bias->count == weight->rows);
  product_t p = {.device = device,
                 .kernels = device->kernels,
                 .weight = weight,
                 .out = out,
                 .ldo = weight->rows,
                 .bias = bias != NULL ? bias->values : NULL,
                 .residual = residual};
  multiply(device, &p, in, rows);
}

void cpu_logits(device_t *device, const act_t *hidden, const weight_t *head, float softcap,
                int32_t first, int32_t rows) {
  CHECK_LE(rows, device->limits.logits_rows_max);
  CHECK_LE(head->rows, device->logits_stride);
  CHECK(head->dtype != DTYPE_BF16 || head->depth <= device->staged_cols);
  device->logits_cols = head->rows;
  product_t p = {.device = device,
                 .kernels = device->kernels,
                 .weight = head,
                 .out = device->logits,
                 .ldo = device->logits_stride,
                 .softcap = softcap};
  multiply(device, &p, (const float *)hidden + first * head->cols, rows);
}

void cpu_read_logits(device_t *device, float *out, int32_t rows) {
  for (int32_t r = 0; r < rows; r++)
    memcpy(out + r * device->logits_cols, device->logits + r * device->logits_stride,
           (size_t)device->logits_cols * sizeof(float));
}
