/* lora.c: low-rank adapters of the linear layers: their matrices on the device, and the call.
 *
 * Engine thread; the contract is engine/device/ops.h. Matrices are fp32, as in the file. Adapters
 * are set between steps, which is rare and may wait for the device; a step with adapters runs its
 * layers one by one, with graphs of its own (graph.c).
 */
#include "cuda/kernels/lora.h"
#include "engine/base/check.h"

#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"
#include "engine/base/util.h"

struct lora {
  gpu_lora_t args; /* without the members that belong to a step */
  int32_t slots, rank_max;
  int32_t *ranks; /* device, [slots + 1] */
  float *a, *b;   /* device */
};

int cuda_lora(device_t *device, int64_t rows, int64_t cols, int32_t slots, int32_t rank_max,
              lora_t **out, inferd_error_t *error) {
  *out = NULL;
  CHECK_GT(rows, 0);
  CHECK_GT(cols, 0);
  CHECK_GT(slots, 0);
  CHECK_GE(rank_max, 1);
  CHECK_LE(rank_max, GPU_LORA_RANK_MAX);
  if (rows % 2 != 0 || cols % GPU_ROW_ALIGN != 0 || rows > INT32_MAX || cols > INT32_MAX)
    return error_set(error, ERR_CONFIGURATION, "enable_lora",
                     "adapters on cuda take layers of even heights and widths in multiples of %d, "
                     "not %lld x %lld",
                     GPU_ROW_ALIGN, (long long)rows, (long long)cols);
  const int32_t align = GPU_LORA_RANK_ALIGN, stride = ROUND_UP(rank_max, align);
  const size_t all = device_product((size_t)slots, (size_t)stride, sizeof(float));
  lora_t *lora;
  int code = device_take_heap(device, (void **)&lora, sizeof *lora, "adapters", error);
  if (code) return code;
  lora->slots = slots;
  lora->rank_max = rank_max;
  code = device_take(device, (void **)&lora->ranks, ((size_t)slots + 1) * sizeof(int32_t),
                     "adapters", error);
  if (!code)
    code = device_take(device, (void **)&lora->a, device_product(all, (size_t)cols, 1), "adapters",
                       error);
  if (!code)
    code = device_take(device, (void **)&lora->b, device_product(all, (size_t)rows, 1), "adapters",
                       error);
  if (code) return code;
  lora->args = (gpu_lora_t){.ranks = lora->ranks,
                            .a = lora->a,
                            .b = lora->b,
                            .rows = (int32_t)rows,
                            .cols = (int32_t)cols,
                            .stride = stride};
  if (stride > device->lora_stride) device->lora_stride = stride;
  *out = lora;
  return 0;
}

int lora_prepare(device_t *device, inferd_error_t *error) {
  size_t tokens = (size_t)device->limits.tokens_max;
  if (device->lora_stride == 0) return 0;
  int code = device_take(device, (void **)&device->inputs.adapters,
                         device_product(tokens, sizeof(int32_t), 1), "adapters", error);
  if (code) return code;
  return device_take(device, (void **)&device->lora_low,
                     device_product(tokens, (size_t)device->lora_stride, sizeof(float)), "adapters",
                     error);
}

void cuda_lora_set(device_t *device, lora_t *lora, int32_t slot, int32_t rank, const float *lora_a,
                   const float *lora_b) {
  CHECK_GE(slot, 1);
  CHECK_LE(slot, lora->slots);
  CHECK_GE(rank, 0);
  CHECK_LE(rank, lora->rank_max);
  const size_t stride = (size_t)lora->args.stride, cols = (size_t)lora->args.cols;
  const size_t rows = (size_t)lora->args.rows, at = (size_t)slot - 1;
  const size_t row = (size_t)rank * sizeof(float), pitch = stride * sizeof(float);
  if (device->fault != 0) return;
  if (rank > 0) {
    device_note(device,
                (int)cudaMemcpyAsync(lora->a + at * stride * cols, lora_a, cols * row,
                                     cudaMemcpyHostToDevice, device->stream),
                "an adapter");
    device_note(device,
                (int)cudaMemcpy2DAsync(lora->b + at * rows * stride, pitch, lora_b, row, row, rows,
                                       cudaMemcpyHostToDevice, device->stream),
                "an adapter");
  }
  device_note(device,
              (int)cudaMemcpyAsync(lora->ranks + slot, &rank, sizeof rank, cudaMemcpyHostToDevice,
                                   device->stream),
              "an adapter");
  /* The matrices are the caller's: the device may read them until the copies have ended. */
  if (device->fault == 0)
    device_note(device,
                device->step != NULL ? exchange_sync(device)
                                     : (int)cudaStreamSynchronize(device->stream),
                "an adapter");
}

void cuda_lora_add(device_t *device, act_t *out, const act_t *in, const lora_t *lora,
                   int32_t column, int32_t width) {
  if (!device_is_live(device) || device->batch->num_adapted == 0) return;
  gpu_lora_t args = lora->args;
  args.adapters = device->inputs.adapters;
  args.in = in;
  args.out = out;
  args.low = device->lora_low;
  args.tokens = device->batch->num_tokens;
  args.column = column;
  args.width = width;
  device_note(device, gpu_lora(device->dtype, &args, device->stream), "lora_add");
}
