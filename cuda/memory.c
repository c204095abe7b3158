/* memory.c: lists all memory that the back end allocates, so that close can free it.
 *
 * Three lists: device memory, pinned host memory, plain host memory. Engine thread, before READY
 * and at the end; never during a step.
 */
#include "cuda/operations.h"

#include "engine/base/checked.h"

#include <stdlib.h>
#include <string.h>

static const double MIB = 1024.0 * 1024.0;

size_t device_product(size_t first, size_t second, size_t third) {
  size_t bytes;
  return checked_mul(first, second, &bytes) && checked_mul(bytes, third, &bytes) ? bytes : SIZE_MAX;
}

int device_error(int status, const char *what, inferd_error_t *error) {
  int code = status == cudaErrorMemoryAllocation ? ERR_NO_MEMORY : ERR_DEVICE_FAILED;
  return error_set(error, code, NULL, "%s: %s", what, cudaGetErrorString((cudaError_t)status));
}

static int lacks(size_t bytes, const char *kind, const char *what, inferd_error_t *error) {
  (void)cudaGetLastError(); /* clears the error: a refused allocation is no fault of the device */
  return error_set(error, ERR_NO_MEMORY, NULL, "no %s memory for %s: %.1f MiB are needed", kind,
                   what, (double)bytes / MIB);
}

/* A list keeps a pointer; false without host memory. */
static bool keep(void ***list, size_t *count, size_t *room, void *pointer) {
  if (*count == *room) {
    size_t more = *room ? 2 * *room : 64, bytes;
    if (!checked_mul(more, sizeof **list, &bytes)) return false;
    void **longer = realloc(*list, bytes);
    if (longer == NULL) return false;
    *list = longer;
    *room = more;
  }
  (*list)[(*count)++] = pointer;
  return true;
}

int device_take(device_t *device, void **out, size_t bytes, const char *what,
                inferd_error_t *error) {
  *out = NULL;
  if (bytes == 0) bytes = 1;
  int status = bytes == SIZE_MAX ? cudaErrorMemoryAllocation : (int)cudaMalloc(out, bytes);
  if (status == cudaErrorMemoryAllocation) return lacks(bytes, "device", what, error);
  if (status != 0) return device_error(status, what, error);
  if (!keep(&device->memory, &device->num_memory, &device->room_memory, *out)) {
    cudaFree(*out);
    *out = NULL;
    return lacks(bytes, "host", what, error);
  }
  device->taken += bytes;
  status = (int)cudaMemsetAsync(*out, 0, bytes, device->stream);
  return status ? device_error(status, what, error) : 0;
}

int device_take_pinned(device_t *device, void **out, size_t bytes, const char *what,
                       inferd_error_t *error) {
  *out = NULL;
  if (bytes == 0) bytes = 1;
  int status = bytes == SIZE_MAX ? cudaErrorMemoryAllocation : (int)cudaMallocHost(out, bytes);
  if (status != 0) return lacks(bytes, "pinned host", what, error);
  if (!keep(&device->pinned, &device->num_pinned, &device->room_pinned, *out)) {
    cudaFreeHost(*out);
    *out = NULL;
    return lacks(bytes, "host", what, error);
  }
  memset(*out, 0, bytes);
  return 0;
}

int device_take_heap(device_t *device, void **out, size_t bytes, const char *what,
                     inferd_error_t *error) {
  *out = bytes == SIZE_MAX ? NULL : calloc(1, bytes ? bytes : 1);
  if (*out != NULL && keep(&device->heap, &device->num_heap, &device->room_heap, *out)) return 0;
  free(*out);
  *out = NULL;
  return lacks(bytes, "host", what, error);
}

void device_release(device_t *device) {
  for (size_t i = 0; i < device->num_memory; i++) cudaFree(device->memory[i]);
  for (size_t i = 0; i < device->num_pinned; i++) cudaFreeHost(device->pinned[i]);
  for (size_t i = 0; i < device->num_heap; i++) free(device->heap[i]);
  free(device->memory);
  free(device->pinned);
  free(device->heap);
  device->memory = device->pinned = device->heap = NULL;
  device->num_memory = device->num_pinned = device->num_heap = 0;
  device->room_memory = device->room_pinned = device->room_heap = 0;
}
