/* lora.c: adapters: their matrices on the device, and the calls.
 *
 * Engine thread; the contract is engine/device/lora_ops.h. Matrices are fp32, as in the file.
 * Adapters are set between steps, which is rare and may wait for the device; a step with adapters
 * runs its layers one by one, with graphs of its own, or, with factors, without a graph (graph.c).
 */
#include "cuda/kernels/lora.h"
#include "engine/base/check.h"

#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"
#include "cuda/sleep.h"
#include "engine/base/util.h"

struct lora {
  gpu_lora_t args; /* without the members that belong to a step */
  int32_t slots, rank_max;
  bool *has_factors;      /* [slots + 1] */
  int32_t *ranks;         /* device, [2, slots + 1]: ranks, then whether anything changes */
  float *a, *b, *vectors; /* device; vectors: factors, then offsets */
  size_t vectors_stride;  /* numbers from the factors to the offsets */
};

static int check_sizes(lora_kind_t kind, int64_t rows, int64_t cols, inferd_error_t *error) {
  const bool has_rows = kind == LORA_HEAD || rows % 2 == 0;
  const bool has_cols = kind == LORA_EMBED || cols % GPU_ROW_ALIGN == 0;
  if (has_rows && has_cols && rows <= INT32_MAX && cols <= INT32_MAX) return 0;
  return error_set(error, ERR_CONFIGURATION, "enable_lora",
                   "adapters on cuda take layers of even heights and widths in multiples of %d, "
                   "not %lld x %lld",
                   GPU_ROW_ALIGN, (long long)rows, (long long)cols);
}

static int cuda_lora(device_t *device, lora_kind_t kind, int64_t rows, int64_t cols, int32_t slots,
                     int32_t rank_max, lora_t **out, inferd_error_t *error) {
  *out = NULL;
  CHECK_GT(rows, 0);
  CHECK_GT(cols, 0);
  CHECK_GT(slots, 0);
  CHECK_GE(rank_max, 1);
  CHECK_LE(rank_max, GPU_LORA_RANK_MAX);
  int code = check_sizes(kind, rows, cols, error);
  if (code) return code;
  const int32_t align = GPU_LORA_RANK_ALIGN, stride = ROUND_UP(rank_max, align);
  const size_t each = (size_t)slots + 1, row = (size_t)stride * sizeof(float);
  const size_t high = (size_t)slots * (size_t)rows + 1; /* an odd height ends in a half pair */
  lora_t *lora;
  code = device_take_heap(device, (void **)&lora, sizeof *lora, "adapters", error);
  if (code) return code;
  const struct {
    void **to;
    size_t bytes;
  } needs[] = {{(void **)&lora->ranks, 2 * each * sizeof(int32_t)},
               {(void **)&lora->a, device_product((size_t)slots * row, (size_t)cols, 1)},
               {(void **)&lora->b, device_product(high, row, 1)},
               {(void **)&lora->vectors, device_product(high, 2, sizeof(float))}};
  for (size_t i = 0; i < ARRAY_LEN(needs) && !code; i++)
    code = sleep_take(device, SLEEP_KEEPS, needs[i].to, needs[i].bytes, "adapters", error);
  if (!code) code = device_take_heap(device, (void **)&lora->has_factors, each, "adapters", error);
  if (!code && device->lora_factors == NULL)
    code = device_take_heap(device, (void **)&device->lora_factors, each * sizeof(int32_t),
                            "adapters", error);
  if (code) return code;
  lora->slots = slots;
  lora->rank_max = rank_max;
  lora->vectors_stride = high;
  lora->args = (gpu_lora_t){.ranks = lora->ranks,
                            .changes = lora->ranks + each,
                            .a = lora->a,
                            .b = lora->b,
                            .factors = lora->vectors,
                            .offsets = lora->vectors + high,
                            .rows = (int32_t)rows,
                            .cols = (int32_t)cols,
                            .stride = stride};
  if (stride > device->lora_stride) device->lora_stride = stride;
  *out = lora;
  return 0;
}

int cuda_lora_prepare(device_t *device, inferd_error_t *error) {
  size_t tokens = (size_t)device->limits.tokens_max;
  if (device->lora_stride == 0) return 0;
  int code = device_take(device, (void **)&device->inputs.adapters,
                         device_product(tokens, sizeof(int32_t), 1), "adapters", error);
  if (code) return code;
  return sleep_take(device, SLEEP_DROPS, (void **)&device->lora_low,
                    device_product(tokens, (size_t)device->lora_stride, sizeof(float)), "adapters",
                    error);
}

static void copy(device_t *device, void *to, const void *from, size_t bytes) {
  device_note(device, (int)cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device->stream),
              "an adapter");
}

/* A vector of the slot; NULL = zeros. */
static void copy_vector(device_t *device, float *to, const float *from, size_t rows) {
  if (from != NULL)
    copy(device, to, from, rows * sizeof *to);
  else
    device_note(device, (int)cudaMemsetAsync(to, 0, rows * sizeof *to, device->stream),
                "an adapter");
}

static void cuda_lora_set(device_t *device, lora_t *lora, int32_t slot,
                          const lora_values_t *values) {
  CHECK_GE(slot, 1);
  CHECK_LE(slot, lora->slots);
  CHECK_GE(values->rank, 0);
  CHECK_LE(values->rank, lora->rank_max);
  CHECK(values->whole == NULL);
  const size_t stride = (size_t)lora->args.stride, cols = (size_t)lora->args.cols;
  const size_t rows = (size_t)lora->args.rows, at = (size_t)slot - 1;
  const size_t row = (size_t)values->rank * sizeof(float), pitch = stride * sizeof(float);
  const bool has_factors = values->factors != NULL;
  const int32_t changes = values->rank > 0 || has_factors || values->offsets != NULL;
  device->lora_factors[slot] += has_factors - lora->has_factors[slot];
  lora->has_factors[slot] = has_factors;
  if (device->fault != 0) return;
  if (values->rank > 0) {
    copy(device, lora->a + at * stride * cols, values->a, cols * row);
    device_note(device,
                (int)cudaMemcpy2DAsync(lora->b + at * rows * stride, pitch, values->b, row, row,
                                       rows, cudaMemcpyHostToDevice, device->stream),
                "an adapter");
  }
  copy_vector(device, lora->vectors + at * rows, values->factors, rows);
  copy_vector(device, lora->vectors + lora->vectors_stride + at * rows, values->offsets, rows);
  copy(device, lora->ranks + slot, &values->rank, sizeof values->rank);
  copy(device, lora->ranks + lora->slots + 1 + slot, &changes, sizeof changes);
  /* The matrices are the caller's: the device may read them until the copies have ended. */
  if (device->fault == 0)
    device_note(device,
                device->step != NULL ? exchange_sync(device)
                                     : (int)cudaStreamSynchronize(device->stream),
                "an adapter");
}

static void cuda_lora_add(device_t *device, act_t *out, const act_t *in, const act_t *plain,
                          const lora_t *lora, int32_t column, int32_t width) {
  if (!device_is_live(device) || device->batch->num_adapted == 0) return;
  gpu_lora_t args = lora->args;
  args.adapters = device->inputs.adapters;
  args.in = in;
  args.plain = plain;
  args.out = out;
  args.low = device->lora_low;
  args.tokens = device->batch->num_tokens;
  args.column = column;
  args.width = width;
  device_note(device, gpu_lora(device->dtype, &args, device->stream), "lora_add");
}

static void cuda_lora_embed(device_t *device, act_t *out, const lora_t *lora, float scale) {
  if (!device_is_live(device) || device->batch->num_adapted == 0) return;
  gpu_lora_t args = lora->args;
  args.adapters = device->inputs.adapters;
  args.ids = device->inputs.input_ids;
  args.scale = scale;
  args.plain = args.out = out;
  args.low = device->lora_low;
  args.tokens = device->batch->num_tokens;
  args.width = args.rows;
  device_note(device, gpu_lora(device->dtype, &args, device->stream), "lora_embed");
}

static void cuda_lora_logits(device_t *device, const act_t *hidden, const vector_t *bias,
                             const lora_t *lora, float softcap, int32_t first, int32_t rows) {
  CHECK(softcap == 0); /* has_softcap */
  if (!device_is_live(device) || device->batch->num_adapted == 0) return;
  gpu_lora_t args = lora->args;
  args.adapters = device->inputs.adapters;
  args.selected = device->inputs.selected + first;
  args.in = (const uint16_t *)hidden + (size_t)first * (size_t)args.cols;
  args.logits = true;
  args.bias = bias != NULL ? bias->values : NULL;
  args.out = device->logits;
  args.low = device->lora_low;
  args.tokens = rows;
  device_note(device, gpu_lora(device->dtype, &args, device->stream), "lora_logits");
}

bool lora_has_factors(const device_t *device, const batch_t *batch) {
  if (device->lora_factors == NULL || batch->num_adapted == 0) return false;
  for (int32_t t = 0; t < batch->num_tokens; t++)
    if (device->lora_factors[batch->adapters[t]] > 0) return true;
  return false;
}

const lora_ops_t cuda_lora_ops = {.has_vectors = true,
                                  .make = cuda_lora,
                                  .set = cuda_lora_set,
                                  .add = cuda_lora_add,
                                  .embed = cuda_lora_embed,
                                  .logits = cuda_lora_logits};
