/* memory.c: everything that the back end takes, so that close can give it back.
 *
 * Three lists: device memory, pinned host memory, plain host memory. Engine thread, before READY
 * and at the end; never during a step.
 */
#include "cuda/operations.h"

#include "engine/base/checked.h"

#include <stdlib.h>
#include <string.h>

static const double MIB = 1024.0 * 1024.0;

size_t device_product(size_t a, size_t b, size_t c) {
  size_t bytes;
  return checked_mul(a, b, &bytes) && checked_mul(bytes, c, &bytes) ? bytes : SIZE_MAX;
}

int device_error(int status, const char *what, error_t *error) {
  int code = status == cudaErrorMemoryAllocation ? ERR_NO_MEMORY : ERR_DEVICE_FAILED;
  return error_set(error, code, NULL, "%s: %s", what, cudaGetErrorString((cudaError_t)status));
}

static int lacks(size_t bytes, const char *kind, const char *what, error_t *error) {
  (void)cudaGetLastError(); /* a refused allocation is no fault of the device */
  return error_set(error, ERR_NO_MEMORY, NULL, "no %s memory for %s: %.1f MiB are needed", kind,
                   what, (double)bytes / MIB);
}

/* A list keeps a pointer; false without host memory. */
static bool keep(void ***list, size_t *count, size_t *room, void *p) {
  if (*count == *room) {
    size_t more = *room ? 2 * *room : 64, bytes;
    if (!checked_mul(more, sizeof **list, &bytes)) return false;
    void **longer = realloc(*list, bytes);
    if (longer == NULL) return false;
    *list = longer;
    *room = more;
  }
  (*list)[(*count)++] = p;
  return true;
}

int device_take(device_t *d, void **out, size_t bytes, const char *what, error_t *error) {
  *out = NULL;
  if (bytes == 0) bytes = 1;
  int status = bytes == SIZE_MAX ? cudaErrorMemoryAllocation : (int)cudaMalloc(out, bytes);
  if (status == cudaErrorMemoryAllocation) return lacks(bytes, "device", what, error);
  if (status != 0) return device_error(status, what, error);
  if (!keep(&d->memory, &d->num_memory, &d->room_memory, *out)) {
    cudaFree(*out);
    *out = NULL;
    return lacks(bytes, "host", what, error);
  }
  d->taken += bytes;
  status = (int)cudaMemsetAsync(*out, 0, bytes, d->stream);
  return status ? device_error(status, what, error) : 0;
}

int device_take_pinned(device_t *d, void **out, size_t bytes, const char *what, error_t *error) {
  *out = NULL;
  if (bytes == 0) bytes = 1;
  int status = bytes == SIZE_MAX ? cudaErrorMemoryAllocation : (int)cudaMallocHost(out, bytes);
  if (status != 0) return lacks(bytes, "pinned host", what, error);
  if (!keep(&d->pinned, &d->num_pinned, &d->room_pinned, *out)) {
    cudaFreeHost(*out);
    *out = NULL;
    return lacks(bytes, "host", what, error);
  }
  memset(*out, 0, bytes);
  return 0;
}

int device_take_heap(device_t *d, void **out, size_t bytes, const char *what, error_t *error) {
  *out = bytes == SIZE_MAX ? NULL : calloc(1, bytes ? bytes : 1);
  if (*out != NULL && keep(&d->heap, &d->num_heap, &d->room_heap, *out)) return 0;
  free(*out);
  *out = NULL;
  return lacks(bytes, "host", what, error);
}

void device_release(device_t *d) {
  for (size_t i = 0; i < d->num_memory; i++) cudaFree(d->memory[i]);
  for (size_t i = 0; i < d->num_pinned; i++) cudaFreeHost(d->pinned[i]);
  for (size_t i = 0; i < d->num_heap; i++) free(d->heap[i]);
  free(d->memory);
  free(d->pinned);
  free(d->heap);
  d->memory = d->pinned = d->heap = NULL;
  d->num_memory = d->num_pinned = d->num_heap = 0;
  d->room_memory = d->room_pinned = d->room_heap = 0;
}
