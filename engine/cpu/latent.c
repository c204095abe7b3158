/* latent.c: latent attention: its rows of the cache, and the products with the matrices of the
 * heads.
 *
 * This file decides how the products are divided; attention.c does the rest. Called on the engine
 * thread; pool workers take tokens, or parts of the rows of one head. A head's product is staged in
 * the worker's attention scratch, which is not in use then. Bytes moved: the matrices of all heads
 * once per HEAD_ROWS rows.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <string.h>

enum {
  HEAD_ROWS = 32,  /* rows of a head's product at a time */
  GROUP_HEADS = 16 /* heads of one unit of attention, at most */
};

typedef struct latent_job {
  device_t *device;
  const latent_t *latent;
  const rope_table_t *table;
  float *rows;    /* of `store` */
  const float *q; /* of `attend`: [T, Hq (n + r)] */
  float *queries; /* [T, Hq (R + r)] */
} latent_job_t;

/* A product of every head: out[t, h, 0..N) = in[t, h, 0..K) . W_h[N, K]^T. */
typedef struct head_product {
  device_t *device;
  const weight_t *weight;
  const float *in;
  float *out;
  int32_t in_width, out_width; /* columns between the heads of a row; at least K and N */
  int32_t rows, heads;
} head_product_t;

static void product_task(void *context, int64_t first, int64_t last, int worker) {
  const head_product_t *job = context;
  const weight_t *weight = job->weight;
  const size_t stride = weight_stride(job->device, weight);
  const size_t pitch = stride != 0 ? stride : (size_t)weight->cols * sizeof(float);
  uint8_t *staged = (uint8_t *)job->device->attention[worker].q;
  for (int64_t unit = first; unit < last; unit++) {
    int32_t head = (int32_t)(unit % job->heads), row = (int32_t)(unit / job->heads) * HEAD_ROWS;
    int32_t rows = MIN(job->rows - row, HEAD_ROWS);
    const float *in = job->in + ((int64_t)row * job->heads + head) * job->in_width;
    float *out = job->out + ((int64_t)row * job->heads + head) * job->out_width;
    for (int32_t r = 0; r < rows; r++) {
      const float *from = in + (int64_t)r * job->heads * job->in_width;
      if (stride != 0)
        weight_stage(job->device, weight, staged + (size_t)r * pitch, from);
      else
        memcpy(staged + (size_t)r * pitch, from, pitch);
    }
    for (int64_t panel = 0; panel < weight->stack_panels; panel++) {
      int64_t left = weight->stack_rows - panel * PANEL_COLS;
      gemm_t gemm = {.x = staged,
                     .rows = rows,
                     .cols = (int32_t)MIN(left, PANEL_COLS),
                     .out = out + panel * PANEL_COLS,
                     .ldo = (int64_t)job->heads * job->out_width};
      weight_multiply(job->device, weight, head * weight->stack_panels + panel, left > PANEL_COLS,
                      worker, &gemm);
    }
  }
}

static void multiply_heads(head_product_t *job) {
  CHECK_EQ(job->weight->stack, job->heads);
  CHECK_LE(job->weight->cols, job->in_width);
  CHECK_LE(job->weight->stack_rows, job->out_width);
  CHECK_LE(job->weight->depth, job->device->limits.head_dim_max + DEPTH_ALIGN);
  pool_run(job->device->pool, product_task, job, (int64_t)DIV_UP(job->rows, HEAD_ROWS) * job->heads,
           1);
}

static void store_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const latent_job_t *job = context;
  const latent_t *latent = job->latent;
  const int32_t half = latent->rope_dim / 2;
  const norm_args_t norm = {NORM_RMS, latent->rank, latent->norm_eps, latent->norm->values, NULL};
  for (int64_t t = first; t < last; t++) {
    float *row = job->rows + t * (latent->rank + latent->rope_dim);
    job->device->kernels->norm(row, row, NULL, &norm);
    job->device->kernels->rotate(row + latent->rank, job->table->cosine + t * half,
                                 job->table->sine + t * half, half);
    int64_t slot = job->device->batch->slot_mapping[t];
    if (slot >= 0)
      kv_store_columns(job->device, latent->layer, slot, row, 0, latent->rank + latent->rope_dim);
  }
}

static void check(const device_t *device, const latent_t *latent) {
  CHECK(device->kv_base);
  CHECK(device->kv.latent);
  CHECK_RANGE(latent->layer, 0, device->kv.num_layers);
  CHECK_GE(device->kv.head_dim, latent->rank + latent->rope_dim);
  CHECK_EQ(device->kv.num_kv_heads, 1);
  CHECK_EQ(latent->rope->dims, latent->rope_dim);
}

static void cpu_latent_store(device_t *device, act_t *rows, const latent_t *latent) {
  check(device, latent);
  latent_job_t job = {.device = device,
                      .latent = latent,
                      .table = rope_table(device, latent->rope),
                      .rows = FLOATS(rows)};
  int32_t width = latent->rank + latent->rope_dim;
  pool_run(device->pool, store_task, &job, device->batch->num_tokens, INLINE_ELEMENTS / width + 1);
}

/* The rotated parts of the queries. */
static void rotate_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const latent_job_t *job = context;
  const latent_t *latent = job->latent;
  const int32_t half = latent->rope_dim / 2, width = latent->rank + latent->rope_dim;
  const int32_t head_dim = latent->nope_dim + latent->rope_dim;
  for (int64_t t = first; t < last; t++) {
    for (int32_t h = 0; h < latent->num_heads; h++) {
      int64_t head = t * latent->num_heads + h;
      float *to = job->queries + head * width + latent->rank;
      memcpy(to, job->q + head * head_dim + latent->nope_dim, 2 * (size_t)half * sizeof(float));
      job->device->kernels->rotate(to, job->table->cosine + t * half, job->table->sine + t * half,
                                   half);
    }
  }
}

/* The largest group of heads that divides them and is not too large for one unit. */
static int32_t group_heads(int32_t heads) {
  int32_t group = MIN(heads, GROUP_HEADS);
  while (heads % group != 0) group--;
  return group;
}

static void cpu_attend_chosen(device_t *device, act_t *out, const act_t *q, act_t *queries,
                              act_t *sums, const act_t *chosen, const latent_t *latent) {
  check(device, latent);
  const int32_t heads = latent->num_heads, rows = device->batch->num_tokens;
  const int32_t width = latent->rank + latent->rope_dim;
  latent_job_t job = {.device = device,
                      .latent = latent,
                      .table = rope_table(device, latent->rope),
                      .q = FLOATS(q),
                      .queries = FLOATS(queries)};
  head_product_t into = {.device = device,
                         .weight = latent->key,
                         .in = FLOATS(q),
                         .out = FLOATS(queries),
                         .in_width = latent->nope_dim + latent->rope_dim,
                         .out_width = width,
                         .rows = rows,
                         .heads = heads};
  head_product_t from = {.device = device,
                         .weight = latent->value,
                         .in = FLOATS(sums),
                         .out = FLOATS(out),
                         .in_width = latent->rank,
                         .out_width = latent->value_dim,
                         .rows = rows,
                         .heads = heads};
  const attention_t attention = {.layer = latent->layer,
                                 .num_heads = heads,
                                 .num_kv_heads = heads / group_heads(heads),
                                 .head_dim = width,
                                 .scale = latent->scale};
  multiply_heads(&into);
  pool_run(device->pool, rotate_task, &job, rows, INLINE_ELEMENTS / (heads * width) + 1);
  if (chosen != NULL && indexed_chooses(device, latent))
    indexed_attend(device, FLOATS(sums), FLOATS(queries), FLOATS(chosen), latent,
                   group_heads(heads));
  else
    attention_latent(device, FLOATS(sums), FLOATS(queries), &attention, latent->rank);
  multiply_heads(&from);
}

static void cpu_latent_attend(device_t *device, act_t *out, const act_t *q, act_t *queries,
                              act_t *sums, const latent_t *latent) {
  cpu_attend_chosen(device, out, q, queries, sums, NULL, latent);
}

const latent_ops_t cpu_latent_ops = {.store = cpu_latent_store,
                                     .attend = cpu_latent_attend,
                                     .store_keys = cpu_store_keys,
                                     .choose = cpu_choose,
                                     .attend_chosen = cpu_attend_chosen};
