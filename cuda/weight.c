/* weight.c: matrices and vectors onto the device.
 *
 * Rows are gathered by several threads (weight_rows.c) into one of two pinned halves while the
 * other travels, so that reading the file and the copy overlap. Engine thread, before READY; plain
 * matrices stay as they are, row-major, of the run type; quantised ones become panels (packed.c).
 * Widths are multiples of GPU_ROW_ALIGN.
 */
#include "cuda/operations.h"
#include "cuda/packed.h"
#include "cuda/sleep.h"

#include "engine/base/checked.h"
#include "engine/base/util.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { STAGING_BYTES = 16 << 20, SCRATCH_ALIGN = 64 };

/* Pinned halves of at least one row. */
static int staging_take(device_t *device, size_t row_bytes, inferd_error_t *error) {
  cuda_staging_t *staging = &device->staging;
  size_t bytes = MAX(row_bytes, STAGING_BYTES);
  if (staging->bytes >= bytes) return 0;
  int waited = weight_staging_release(device);
  if (waited) return device_error(waited, "loading weights", error);
  for (int i = 0; i < 2; i++) {
    int status = (int)cudaMallocHost((void **)&staging->halves[i], bytes);
    if (!status) status = (int)cudaEventCreateWithFlags(&staging->free[i], cudaEventDisableTiming);
    if (status) {
      return error_set(error, ERR_NO_MEMORY, NULL, "no pinned host memory for loading weights: %s",
                       cudaGetErrorString((cudaError_t)status));
    }
  }
  staging->bytes = bytes;
  return 0;
}

int weight_staging_release(device_t *device) {
  cuda_staging_t *staging = &device->staging;
  int status = (int)cudaStreamSynchronize(device->stream);
  for (int i = 0; i < 2; i++) {
    if (staging->free[i] != NULL) cudaEventDestroy(staging->free[i]);
    if (staging->halves[i] != NULL) cudaFreeHost(staging->halves[i]);
  }
  *staging = (cuda_staging_t){0};
  return status;
}

/* Starts the copy of the half that was filled, and waits until the other one may be written. */
static int staging_send(device_t *device, void *to, size_t bytes) {
  cuda_staging_t *staging = &device->staging;
  int status = (int)cudaMemcpyAsync(to, staging->halves[staging->next], bytes,
                                    cudaMemcpyHostToDevice, device->stream);
  if (!status) status = (int)cudaEventRecord(staging->free[staging->next], device->stream);
  staging->next ^= 1;
  return status ? status : (int)cudaEventSynchronize(staging->free[staging->next]);
}

static int check_source(const device_t *device, const weight_source_t *source,
                        inferd_error_t *error) {
  /* fp32 is for routers alone: the engine runs no other model that has it (ops_t.dtypes). */
  if (device->has_dtype && source->dtype != DTYPE_F32 && device->dtype != source->dtype) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "tensor %s has another type than the rest",
                     source->name);
  }
  if (source->cols % GPU_ROW_ALIGN == 0) return 0;
  return error_set(error, ERR_CONFIGURATION, NULL,
                   "tensor %s has %lld columns; on cuda widths are multiples of %d", source->name,
                   (long long)source->cols, GPU_ROW_ALIGN);
}

static int send_rows(device_t *device, weight_items_t *items, uint8_t *to, uint8_t *scratch,
                     size_t scratch_bytes) {
  const int64_t items_max = (int64_t)(device->staging.bytes / items->bytes);
  for (int64_t first = 0; first < items->count; first += items_max) {
    int64_t count = MIN(items->count - first, items_max);
    weight_rows(device, items, first, count, device->staging.halves[device->staging.next], scratch,
                scratch_bytes);
    int status =
        staging_send(device, to + (size_t)first * items->bytes, (size_t)count * items->bytes);
    if (status) return status;
  }
  return 0;
}

static void describe_items(const weight_source_t *source, weight_items_t *out) {
  *out = (weight_items_t){.source = source};
  packed_form(source, &out->packed);
  const bool is_packed = out->packed.codes != GPU_CODES_PLAIN;
  out->count = is_packed ? DIV_UP(source->rows, GPU_PANEL_ROWS) : source->rows;
  out->bytes = is_packed ? out->packed.panel_bytes
                         : device_product((size_t)source->cols, 1, dtype_size(source->dtype));
}

int cuda_weight(device_t *device, const weight_source_t *source, weight_t **out,
                inferd_error_t *error) {
  *out = NULL;
  int code = check_source(device, source, error);
  if (code) return code;
  if (source->dtype != DTYPE_F32) device->has_dtype = true, device->dtype = source->dtype;
  weight_items_t items;
  weight_t *weight;
  describe_items(source, &items);
  code = device_take_heap(device, (void **)&weight, sizeof *weight, source->name, error);
  if (code) return code;
  weight->rows = source->rows;
  weight->cols = source->cols;
  weight->packed = items.packed;
  if (items.packed.codes != GPU_CODES_PLAIN) device->has_packed = true;
  code = sleep_take(device, SLEEP_KEEPS, &weight->data, cuda_weight_bytes(source), source->name,
                    error);
  if (!code) code = staging_take(device, items.bytes, error);
  if (code) return code;
  const size_t stored = (size_t)MAX(source->cols, source->whole_cols);
  size_t scratch_bytes = device_product(stored, sizeof(float), 1), all_bytes = 0;
  bool fits = checked_align(scratch_bytes, SCRATCH_ALIGN, &scratch_bytes) &&
              checked_mul(scratch_bytes, (size_t)device->num_threads, &all_bytes);
  uint8_t *scratch = fits ? aligned_alloc(SCRATCH_ALIGN, all_bytes) : NULL;
  if (scratch == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %s", source->name);
  int status = send_rows(device, &items, weight->data, scratch, scratch_bytes);
  free(scratch);
  if (status) return device_error(status, source->name, error);
  if (atomic_load(&items.is_beyond))
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "tensor %s: holds a number that the chosen dtype cannot hold", source->name);
  packed_settle(&weight->packed, !atomic_load(&items.is_inexact));
  *out = weight;
  return 0;
}

/* fp32 to the 16 bits of `dtype`; the loader has rounded, so nothing is lost. */
static uint16_t narrowed(float value, dtype_t dtype) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (dtype == DTYPE_BF16) return (uint16_t)(bits >> 16);
  uint32_t sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x38800000) return (uint16_t)(sign | (magnitude - 0x38000000) >> 13);
  float scaled; /* below the normal values of f16: a multiple of 2^-24 */
  memcpy(&scaled, &magnitude, sizeof scaled);
  return (uint16_t)(sign | (uint32_t)(scaled * 0x1p24f));
}

static int send_narrow(device_t *device, vector_t *vector, const float *values,
                       inferd_error_t *error) {
  size_t count = (size_t)vector->count;
  int code = sleep_take(device, SLEEP_KEEPS, &vector->narrow, device_product(count, 2, 1),
                        "a vector", error);
  uint16_t *narrow = code ? NULL : calloc(count, sizeof *narrow);
  if (code) return code;
  if (narrow == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a vector");
  for (size_t i = 0; i < count; i++) narrow[i] = narrowed(values[i], device->dtype);
  int status = (int)cudaMemcpyAsync(vector->narrow, narrow, count * sizeof *narrow,
                                    cudaMemcpyHostToDevice, device->stream);
  if (!status) status = (int)cudaStreamSynchronize(device->stream);
  free(narrow);
  return status ? device_error(status, "a vector", error) : 0;
}

int cuda_vector(device_t *device, const float *values, int64_t count, vector_t **out,
                inferd_error_t *error) {
  vector_t *vector;
  *out = NULL;
  int code = device_take_heap(device, (void **)&vector, sizeof *vector, "a vector", error);
  if (code) return code;
  size_t bytes = device_product((size_t)count, sizeof(float), 1);
  vector->count = count;
  code = sleep_take(device, SLEEP_KEEPS, (void **)&vector->values, bytes, "a vector", error);
  if (code) return code;
  int status =
      (int)cudaMemcpyAsync(vector->values, values, bytes, cudaMemcpyHostToDevice, device->stream);
  /* `values` belongs to the caller, so the copy must be complete. */
  if (!status) status = (int)cudaStreamSynchronize(device->stream);
  if (status) return device_error(status, "a vector", error);
  if (device->has_dtype) code = send_narrow(device, vector, values, error);
  if (!code) *out = vector;
  return code;
}
