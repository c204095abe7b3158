/* lora.c: low-rank adapters: their matrices, and the product that they add to a linear layer.
 *
 * Owns lora_t. Called on the engine thread; pool workers take tokens. A is kept as [K, rank] and B
 * as [rank, N], both padded, so that every product is a sum of scaled rows in one fixed order: the
 * bits of a token depend only on its own input and adapter. All in fp32. A decode reads
 * rank (K + N) floats per layer, which is little compared to the layer itself.
 */
#include "engine/cpu/lora.h"
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <string.h>

enum { RANK_ALIGN = 16, LORA_RANK_MAX = 512 };

struct lora {
  int64_t rows, cols;              /* N, K */
  int32_t slots, rank_max, stride; /* stride: rank_max padded */
  int32_t *ranks;                  /* [slots] */
  float *a;                        /* [slots, K, stride] */
  float *b;                        /* [slots, rank_max, N] */
};

int cpu_lora(device_t *device, int64_t rows, int64_t cols, int32_t slots, int32_t rank_max,
             lora_t **out, inferd_error_t *error) {
  *out = NULL;
  CHECK_GT(rows, 0);
  CHECK_GT(cols, 0);
  CHECK_GT(slots, 0);
  CHECK_GE(rank_max, 1);
  CHECK_LE(rank_max, LORA_RANK_MAX);
  int32_t stride = ROUND_UP(rank_max, RANK_ALIGN);
  size_t left, right;
  if (!size_product(&left, (size_t)slots * (size_t)stride, (size_t)cols, sizeof(float)) ||
      !size_product(&right, (size_t)slots * (size_t)rank_max, (size_t)rows, sizeof(float)))
    return no_memory(error, "adapters", SIZE_MAX);
  lora_t *lora = memory_take(device, sizeof *lora);
  if (lora == NULL) return no_memory(error, "adapters", sizeof *lora);
  *lora = (lora_t){rows,
                   cols,
                   slots,
                   rank_max,
                   stride,
                   memory_take(device, (size_t)slots * sizeof(int32_t)),
                   memory_take(device, left),
                   memory_take(device, right)};
  if (lora->ranks == NULL || lora->a == NULL || lora->b == NULL)
    return no_memory(error, "adapters", left + right);
  *out = lora;
  return 0;
}

void cpu_lora_set(device_t *device, lora_t *lora, int32_t slot, int32_t rank, const float *lora_a,
                  const float *lora_b) {
  (void)device;
  CHECK_GE(slot, 1);
  CHECK_LE(slot, lora->slots);
  CHECK_GE(rank, 0);
  CHECK_LE(rank, lora->rank_max);
  float *to = lora->a + (int64_t)(slot - 1) * lora->cols * lora->stride;
  memset(to, 0, (size_t)(lora->cols * lora->stride) * sizeof *to);
  for (int32_t r = 0; r < rank; r++)
    for (int64_t k = 0; k < lora->cols; k++) to[k * lora->stride + r] = lora_a[r * lora->cols + k];
  to = lora->b + (int64_t)(slot - 1) * lora->rank_max * lora->rows;
  for (int32_t r = 0; r < rank; r++)
    for (int64_t n = 0; n < lora->rows; n++) to[r * lora->rows + n] = lora_b[n * rank + r];
  lora->ranks[slot - 1] = rank;
}

typedef struct adapting {
  const device_t *device;
  const lora_t *lora;
  float *out;
  const float *in;
  int32_t column, width;
} adapting_t;

static void add_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const adapting_t *job = context;
  const lora_t *lora = job->lora;
  const kernels_t *kernels = job->device->kernels;
  for (int64_t t = first; t < last; t++) {
    int32_t slot = job->device->batch->adapters[t];
    CHECK_GE(slot, 0);
    CHECK_LE(slot, lora->slots);
    if (slot == 0 || lora->ranks[slot - 1] == 0) continue;
    float low[LORA_RANK_MAX] = {0};
    const float *left = lora->a + (slot - 1) * lora->cols * lora->stride;
    const float *right = lora->b + (int64_t)(slot - 1) * lora->rank_max * lora->rows;
    const float *x = job->in + t * lora->cols;
    float *out = job->out + t * job->width + job->column;
    for (int64_t k = 0; k < lora->cols; k++)
      kernels->add_scaled(low, left + k * lora->stride, x[k], lora->stride);
    for (int32_t r = 0; r < lora->ranks[slot - 1]; r++)
      kernels->add_scaled(out, right + r * lora->rows, low[r], lora->rows);
  }
}

void cpu_lora_add(device_t *device, act_t *out, const act_t *in, const lora_t *lora, int32_t column,
                  int32_t width) {
  CHECK_GE(column, 0);
  CHECK_LE(column + lora->rows, width);
  if (device->batch->num_adapted == 0) return;
  adapting_t job = {device, lora, FLOATS(out), FLOATS(in), column, width};
  pool_run(device->pool, add_task, &job, device->batch->num_tokens, 1);
}
