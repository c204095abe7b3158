/* unpacked.c: layers of packed weights for many rows: slices of the matrix are unpacked, one after
 * the other, into one piece of memory, and multiplied there as plain weights are.
 *
 * Engine thread; only launches, but for unpacked_prepare. A slice is unpacked behind the product of
 * the one before, because a stream has one order. Unpacking moves two and a half to three times the
 * bytes of a plain matrix whatever the rows, so it pays for many. Our own kernels give the same
 * bits both ways; cuBLASLt gives those of plain weights.
 */
#include "cuda/blas.h"
#include "cuda/operations.h"
#include "cuda/sleep.h"
#include "engine/base/util.h"

enum {
  SLICE_BYTES_MAX = 64 << 20,
  SLICE_ALIGN = 128,      /* rows of a tile; outputs of a slice begin at a multiple of 256 bytes */
  UNPACKED_ROWS_MIN = 129 /* fewer are launches of 32, by estimate (packed_chunks.h) */
};

/* Both sides of a matrix are activations, but for the vocabulary's. */
size_t unpacked_bytes(const step_limits_t *limits) {
  const size_t widest = (size_t)limits->hidden_max;
  if (limits->tokens_max < UNPACKED_ROWS_MIN) return 0;
  return MIN(device_product(widest, widest, sizeof(uint16_t)), (size_t)SLICE_BYTES_MAX);
}

int unpacked_prepare(device_t *device, inferd_error_t *error) {
  if (!device->unpacks || !device->has_packed) return 0;
  const size_t bytes = unpacked_bytes(&device->limits);
  if (bytes == 0) return 0;
  device->unpacked_bytes = bytes;
  return sleep_take(device, SLEEP_DROPS, &device->unpacked, bytes, "unpacked weights", error);
}

/* Rows of the matrix in a slice, about the same in all; 0 = none fit. */
static int32_t slice_rows(const device_t *device, const gpu_skinny_t *layer) {
  const size_t row = (size_t)layer->k * sizeof(uint16_t), fitting = device->unpacked_bytes / row;
  const int32_t most = (int32_t)MIN(fitting / SLICE_ALIGN * SLICE_ALIGN, (size_t)INT32_MAX / 2);
  if (most == 0) return 0;
  return ROUND_UP(DIV_UP(layer->n, DIV_UP(layer->n, most)), SLICE_ALIGN);
}

static bool is_unpacked(const device_t *device, const gpu_skinny_t *layer) {
  return device->unpacked != NULL && layer->packed.codes != GPU_CODES_PLAIN && !layer->norm &&
         !layer->activate && slice_rows(device, layer) > 0;
}

/* The layer's outputs from `first` on, of plain weights at device->unpacked. */
static blas_call_t slice_of(const device_t *device, const blas_call_t *call, int32_t first,
                            int32_t rows, gpu_skinny_t *slice) {
  const gpu_skinny_t *layer = call->layer;
  const size_t width = layer->logits ? sizeof(float) : sizeof(uint16_t), at = (size_t)first;
  *slice = *layer;
  slice->packed = (gpu_packed_t){.codes = GPU_CODES_PLAIN};
  slice->weight = device->unpacked;
  slice->partial = NULL, slice->tickets = NULL;
  slice->n = MIN(rows, layer->n - first);
  slice->stride = layer->n;
  slice->out = (uint8_t *)layer->out + at * width;
  if (layer->bias != NULL) slice->bias = layer->bias + at;
  if (layer->residual != NULL) slice->residual = (const uint16_t *)layer->residual + at;
  const void *narrow = call->narrow_bias;
  return (blas_call_t){slice, narrow != NULL ? (const uint16_t *)narrow + at : NULL};
}

bool unpacked_learn(device_t *device, const blas_call_t *call) {
  if (!is_unpacked(device, call->layer)) return false;
  const int32_t rows = slice_rows(device, call->layer);
  for (int32_t first = 0; first < call->layer->n; first += rows) {
    gpu_skinny_t slice;
    const blas_call_t part = slice_of(device, call, first, rows, &slice);
    blas_learn(device, &part);
  }
  return true;
}

bool unpacked_linear(device_t *device, const blas_call_t *call, const char *where) {
  const gpu_skinny_t *layer = call->layer;
  if (layer->rows < UNPACKED_ROWS_MIN || !is_unpacked(device, layer)) return false;
  const int32_t rows = slice_rows(device, layer);
  for (int32_t first = 0; first < layer->n; first += rows) {
    gpu_skinny_t slice;
    const blas_call_t part = slice_of(device, call, first, rows, &slice);
    const gpu_unpack_rows_t unpacked = {first, slice.n, slice.k};
    device_note(device,
                gpu_unpack(device->dtype, device->unpacked, &layer->packed, layer->weight,
                           &unpacked, device->stream),
                where);
    if (device->blas != NULL && blas_linear(device, &part)) continue;
    device_note(device, gpu_linear(device->dtype, &slice, device->stream), where);
  }
  return true;
}
