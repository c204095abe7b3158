/* lora.c: adapters: their matrices, and what they change in a layer, an embedding and a head.
 *
 * Owns lora_t. Called on the engine thread; pool workers take tokens, and of logits columns. A is
 * kept as [K, rank] and B as [rank, N], both padded, so that every product is a sum of scaled rows
 * in one fixed order: the bits of a token depend only on its own input and adapter. All in fp32. A
 * decode reads rank (K + N) floats per layer, which is little compared to the layer itself.
 */
#include "engine/cpu/lora.h"
#include "engine/base/check.h"
#include "engine/base/half.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <string.h>

enum { RANK_ALIGN = 16, LORA_RANK_MAX = 512, LANES = 16, PIECE = 256 };

typedef struct lora_slot {
  int32_t rank;
  bool has_factors, has_offsets;
  const void *whole; /* [V, E] of `whole_type`, or NULL */
  dtype_t whole_type;
} lora_slot_t;

struct lora {
  int64_t rows, cols;              /* N, K */
  int32_t slots, rank_max, stride; /* stride: rank_max padded */
  lora_slot_t *slot;               /* [slots] */
  float *a;                        /* [slots, K, stride] */
  float *b;                        /* [slots, rank_max, N] */
  float *factors, *offsets;        /* [slots, N] */
};

static int cpu_lora(device_t *device, lora_kind_t kind, int64_t rows, int64_t cols, int32_t slots,
                    int32_t rank_max, lora_t **out, inferd_error_t *error) {
  (void)kind;
  *out = NULL;
  CHECK_GT(rows, 0);
  CHECK_GT(cols, 0);
  CHECK_GT(slots, 0);
  CHECK_GE(rank_max, 1);
  CHECK_LE(rank_max, LORA_RANK_MAX);
  int32_t stride = ROUND_UP(rank_max, RANK_ALIGN);
  size_t left, right, row;
  if (!size_product(&left, (size_t)slots * (size_t)stride, (size_t)cols, sizeof(float)) ||
      !size_product(&right, (size_t)slots * (size_t)rank_max, (size_t)rows, sizeof(float)) ||
      !size_product(&row, (size_t)slots, (size_t)rows, sizeof(float)))
    return no_memory(error, "adapters", SIZE_MAX);
  lora_t *lora = memory_take(device, sizeof *lora);
  if (lora == NULL) return no_memory(error, "adapters", sizeof *lora);
  *lora = (lora_t){.rows = rows,
                   .cols = cols,
                   .slots = slots,
                   .rank_max = rank_max,
                   .stride = stride,
                   .slot = memory_take(device, (size_t)slots * sizeof(lora_slot_t)),
                   .a = memory_take(device, left),
                   .b = memory_take(device, right),
                   .factors = memory_take(device, row),
                   .offsets = memory_take(device, row)};
  if (lora->slot == NULL || lora->a == NULL || lora->b == NULL || lora->factors == NULL ||
      lora->offsets == NULL)
    return no_memory(error, "adapters", left + right + 2 * row);
  device->has_adapters = true;
  *out = lora;
  return 0;
}

int lora_prepare(device_t *device, inferd_error_t *error) {
  size_t rows = (size_t)device->limits.logits_rows_max, bytes;
  if (!device->has_adapters) return 0;
  bytes = rows * LORA_RANK_MAX * sizeof(float);
  device->lora_low = memory_take(device, bytes);
  return device->lora_low != NULL ? 0 : no_memory(error, "adapters", bytes);
}

static void cpu_lora_set(device_t *device, lora_t *lora, int32_t slot,
                         const lora_values_t *values) {
  (void)device;
  CHECK_GE(slot, 1);
  CHECK_LE(slot, lora->slots);
  CHECK_GE(values->rank, 0);
  CHECK_LE(values->rank, lora->rank_max);
  const int32_t rank = values->rank;
  const size_t row = (size_t)lora->rows * sizeof(float);
  float *to = lora->a + (int64_t)(slot - 1) * lora->cols * lora->stride;
  if (rank > 0) memset(to, 0, (size_t)(lora->cols * lora->stride) * sizeof *to);
  for (int32_t r = 0; r < rank; r++)
    for (int64_t k = 0; k < lora->cols; k++)
      to[k * lora->stride + r] = values->a[r * lora->cols + k];
  to = lora->b + (int64_t)(slot - 1) * lora->rank_max * lora->rows;
  for (int32_t r = 0; r < rank; r++)
    for (int64_t n = 0; n < lora->rows; n++) to[r * lora->rows + n] = values->b[n * rank + r];
  if (values->factors != NULL)
    memcpy(lora->factors + (slot - 1) * lora->rows, values->factors, row);
  if (values->offsets != NULL)
    memcpy(lora->offsets + (slot - 1) * lora->rows, values->offsets, row);
  lora->slot[slot - 1] = (lora_slot_t){rank, values->factors != NULL, values->offsets != NULL,
                                       values->whole, values->whole_type};
}

typedef struct adapting {
  const device_t *device;
  const lora_t *lora;
  float *out;
  const float *in;
  const float *plain, *bias; /* or NULL */
  float *low;                /* [rows, LORA_RANK_MAX] of logits */
  int32_t column, width, rows;
  float scale;
} adapting_t;

/* The adapter of a token, or NULL: nothing is done. */
static const lora_slot_t *slot_of(const adapting_t *job, int64_t token) {
  const int32_t slot = job->device->batch->adapters[token];
  CHECK_GE(slot, 0);
  CHECK_LE(slot, job->lora->slots);
  const lora_slot_t *found = slot > 0 ? &job->lora->slot[slot - 1] : NULL;
  const bool does = found != NULL && (found->rank > 0 || found->has_factors || found->has_offsets ||
                                      found->whole != NULL);
  return does ? found : NULL;
}

/* low[stride] = A in */
static void shrink(const adapting_t *job, const lora_slot_t *slot, const float *in, float *low) {
  const lora_t *lora = job->lora;
  const float *left = lora->a + (slot - lora->slot) * lora->cols * lora->stride;
  memset(low, 0, (size_t)lora->stride * sizeof *low);
  for (int64_t k = 0; k < lora->cols; k++)
    job->device->kernels->add_scaled(low, left + k * lora->stride, in[k], lora->stride);
}

/* out[count] += B low + offsets + factors * plain, of the columns [first, first + count) */
static void expand(const adapting_t *job, const lora_slot_t *slot, const float *low,
                   const float *plain, int64_t first, int64_t count, float *out) {
  const lora_t *lora = job->lora;
  const int64_t at = slot - lora->slot;
  const float *right = lora->b + at * lora->rank_max * lora->rows + first;
  const float *factors = lora->factors + at * lora->rows + first;
  const float *offsets = lora->offsets + at * lora->rows + first;
  for (int64_t n = 0; slot->has_factors && n < count; n++) out[n] += factors[n] * plain[n];
  for (int32_t r = 0; r < slot->rank; r++)
    job->device->kernels->add_scaled(out, right + r * lora->rows, low[r], count);
  for (int64_t n = 0; slot->has_offsets && n < count; n++) out[n] += offsets[n];
}

static void add_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const adapting_t *job = context;
  const lora_t *lora = job->lora;
  for (int64_t t = first; t < last; t++) {
    const lora_slot_t *slot = slot_of(job, t);
    float low[LORA_RANK_MAX];
    if (slot == NULL) continue;
    if (slot->rank > 0) shrink(job, slot, job->in + t * lora->cols, low);
    CHECK(!slot->has_factors || job->plain != NULL);
    const int64_t at = t * job->width + job->column;
    expand(job, slot, low, job->plain != NULL ? job->plain + at : NULL, 0, lora->rows,
           job->out + at);
  }
}

static void cpu_lora_add(device_t *device, act_t *out, const act_t *in, const act_t *plain,
                         const lora_t *lora, int32_t column, int32_t width) {
  CHECK_GE(column, 0);
  CHECK_LE(column + lora->rows, width);
  if (device->batch->num_adapted == 0) return;
  adapting_t job = {.device = device,
                    .lora = lora,
                    .out = FLOATS(out),
                    .in = FLOATS(in),
                    .plain = plain != NULL ? FLOATS(plain) : NULL,
                    .column = column,
                    .width = width};
  pool_run(device->pool, add_task, &job, device->batch->num_tokens, 1);
}

/* ---- embeddings ---- */

/* out[count] = elements of a table from `first` on. */
static void widen(const lora_slot_t *slot, int64_t first, int64_t count, float *out) {
  const uint16_t *halves = (const uint16_t *)slot->whole + first;
  if (slot->whole_type == DTYPE_F32)
    memcpy(out, (const float *)slot->whole + first, (size_t)count * sizeof *out);
  else if (slot->whole_type == DTYPE_BF16)
    for (int64_t i = 0; i < count; i++) out[i] = float_from_bf16(halves[i]);
  else
    for (int64_t i = 0; i < count; i++) out[i] = float_from_f16(halves[i]);
}

static void embed_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const adapting_t *job = context;
  const lora_t *lora = job->lora;
  const int64_t width = lora->rows;
  for (int64_t t = first; t < last; t++) {
    const lora_slot_t *slot = slot_of(job, t);
    const int64_t id = job->device->batch->input_ids[t];
    float low[LORA_RANK_MAX], *out = job->out + t * width;
    if (slot == NULL) continue;
    CHECK_RANGE(id, 0, lora->cols);
    if (slot->whole != NULL) {
      widen(slot, id * width, width, out);
      for (int64_t n = 0; n < width; n++) out[n] *= job->scale;
      continue;
    }
    const float *left = lora->a + ((slot - lora->slot) * lora->cols + id) * lora->stride;
    for (int32_t r = 0; r < slot->rank; r++) low[r] = left[r] * job->scale;
    expand(job, slot, low, out, 0, width, out);
  }
}

static void cpu_lora_embed(device_t *device, act_t *out, const lora_t *lora, float scale) {
  if (device->batch->num_adapted == 0) return;
  adapting_t job = {.device = device, .lora = lora, .out = FLOATS(out), .scale = scale};
  pool_run(device->pool, embed_task, &job, device->batch->num_tokens, 1);
}

/* ---- logits ---- */

static int64_t token_of(const adapting_t *job, int64_t row) {
  return job->device->batch->selected_token_indices[job->column + row];
}

static void low_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const adapting_t *job = context;
  for (int64_t row = first; row < last; row++) {
    const lora_slot_t *slot = slot_of(job, token_of(job, row));
    if (slot != NULL && slot->rank > 0)
      shrink(job, slot, job->in + row * job->lora->cols, job->low + row * LORA_RANK_MAX);
  }
}

/* The product of a row of a table and `in`, in LANES sums. */
static float whole_dot(const lora_slot_t *slot, int64_t row, const float *in, int64_t cols) {
  float sums[LANES] = {0}, piece[PIECE], sum = 0;
  for (int64_t k = 0; k < cols; k += PIECE) {
    const int64_t count = MIN(cols - k, PIECE);
    widen(slot, row * cols + k, count, piece);
    for (int64_t i = 0; i < count; i++) sums[i % LANES] += piece[i] * in[k + i];
  }
  for (int i = 0; i < LANES; i++) sum += sums[i];
  return sum;
}

/* Columns [first, first + count) of a row. */
static void adapt_logits(const adapting_t *job, int64_t row, int64_t first, int64_t count,
                         float *out) {
  const lora_slot_t *slot = slot_of(job, token_of(job, row));
  const float *bias = job->bias != NULL ? job->bias + first : NULL;
  const float *x = job->in + row * job->lora->cols;
  float plain[PANEL_COLS];
  if (slot == NULL) return;
  for (int64_t n = 0; slot->whole != NULL && n < count; n++)
    out[n] = whole_dot(slot, first + n, x, job->lora->cols) + (bias != NULL ? bias[n] : 0);
  for (int64_t n = 0; n < count; n++) plain[n] = out[n] - (bias != NULL ? bias[n] : 0);
  expand(job, slot, job->low + row * LORA_RANK_MAX, plain, first, count, out);
}

/* Panels as in linear.c, so that the softcap takes the same numbers at a time. */
static void logits_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const adapting_t *job = context;
  for (int64_t panel = first; panel < last; panel++) {
    const int64_t at = panel * PANEL_COLS, count = MIN(job->lora->rows - at, PANEL_COLS);
    for (int32_t row = 0; row < job->rows; row++) {
      float *out = job->out + row * job->device->logits_stride + at;
      adapt_logits(job, row, at, count, out);
      if (job->scale != 0) job->device->kernels->softcap(out, (int32_t)count, job->scale);
    }
  }
}

static void cpu_lora_logits(device_t *device, const act_t *hidden, const vector_t *bias,
                            const lora_t *lora, float softcap, int32_t first, int32_t rows) {
  CHECK_EQ(device->logits_cols, lora->rows);
  CHECK_LE(rows, device->limits.logits_rows_max);
  adapting_t job = {.device = device,
                    .lora = lora,
                    .out = device->logits,
                    .in = FLOATS(hidden) + first * lora->cols,
                    .bias = bias != NULL ? bias->values : NULL,
                    .low = device->lora_low,
                    .column = first,
                    .rows = rows,
                    .scale = softcap};
  pool_run(device->pool, low_task, &job, rows, 1);
  pool_run(device->pool, logits_task, &job, DIV_UP(lora->rows, PANEL_COLS), 16);
}

const lora_ops_t cpu_lora_ops = {.has_vectors = true,
                                 .has_wholes = true,
                                 .has_softcap = true,
                                 .make = cpu_lora,
                                 .set = cpu_lora_set,
                                 .add = cpu_lora_add,
                                 .embed = cpu_lora_embed,
                                 .logits = cpu_lora_logits};
