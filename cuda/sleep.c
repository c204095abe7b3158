/* sleep.c: a device that sleeps: weights go to pinned host memory, the rest is dropped.
 *
 * Engine thread; the contract is engine/device/sleep_ops.h. Kernels' arguments and recorded graphs
 * hold addresses, so these must outlive the memory behind them: the driver's virtual memory
 * management reserves addresses once, and maps memory into them again after each sleep. What is
 * small, or holds something between steps, is not here: it stays on the device.
 */
#include "cuda/sleep.h"

#include "cuda/operations.h"
#include "engine/base/util.h"
#include "engine/device/topology.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

enum { TAKE_ALIGN = 512 };
static const double GIB = 1024.0 * 1024.0 * 1024.0;

typedef struct driver {
  void *handle; /* NULL: the functions are in the program itself */
  CUresult (*granularity)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
  CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
  CUresult (*unreserve)(CUdeviceptr, size_t);
  CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                     unsigned long long);
  CUresult (*release)(CUmemGenericAllocationHandle);
  CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
  CUresult (*unmap)(CUdeviceptr, size_t);
  CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
} driver_t;

typedef struct sleep_range {
  CUdeviceptr base;
  size_t reserved, mapped, used; /* bytes from base on */
  size_t *extents;               /* [num_extents] mapped by one call each, side by side */
  size_t num_extents, room_extents;
} sleep_range_t;

struct sleep_state {
  driver_t driver;
  CUmemAllocationProp where;
  CUmemAccessDesc access;
  size_t granularity;
  sleep_range_t ranges[SLEEP_KINDS];
  uint8_t *kept; /* pinned, what SLEEP_KEEPS holds; NULL: the device is awake */
};

/* ---- the driver ---- */

static bool driver_open(driver_t *driver) {
  const struct {
    const char *name;
    void *to; /* a pointer to a function */
  } functions[] = {
      {"cuMemGetAllocationGranularity", &driver->granularity},
      {"cuMemAddressReserve", &driver->reserve},
      {"cuMemAddressFree", &driver->unreserve},
      {"cuMemCreate", &driver->create},
      {"cuMemRelease", &driver->release},
      {"cuMemMap", &driver->map},
      {"cuMemUnmap", &driver->unmap},
      {"cuMemSetAccess", &driver->access},
  };
  bool is_inside = dlsym(RTLD_DEFAULT, functions[0].name) != NULL;
  if (!is_inside) driver->handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!is_inside && driver->handle == NULL) return false;
  for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
    void *found = dlsym(is_inside ? RTLD_DEFAULT : driver->handle, functions[i].name);
    if (found == NULL) return false;
    memcpy(functions[i].to, &found, sizeof found);
  }
  return true;
}

static int driver_error(CUresult status, const char *what, inferd_error_t *error) {
  int code = status == CUDA_ERROR_OUT_OF_MEMORY ? ERR_NO_MEMORY : ERR_DEVICE_FAILED;
  return error_set(error, code, NULL, "%s: the driver says %d", what, (int)status);
}

/* ---- ranges ---- */

/* Maps `bytes` more, a multiple of the granularity. */
static CUresult extend(sleep_state_t *sleep, sleep_range_t *range, size_t bytes) {
  const driver_t *driver = &sleep->driver;
  CUmemGenericAllocationHandle handle;
  const CUdeviceptr at = range->base + range->mapped;
  if (range->num_extents == range->room_extents) {
    size_t room = range->room_extents > 0 ? 2 * range->room_extents : 64;
    size_t *longer = reallocarray(range->extents, room, sizeof *longer);
    if (longer == NULL) return CUDA_ERROR_OUT_OF_MEMORY;
    range->extents = longer;
    range->room_extents = room;
  }
  if (bytes > range->reserved - range->mapped) return CUDA_ERROR_OUT_OF_MEMORY;
  CUresult status = driver->create(&handle, bytes, &sleep->where, 0);
  if (status != CUDA_SUCCESS) return status;
  status = driver->map(at, bytes, 0, handle, 0);
  /* The mapping holds the memory from here on, and gives it back at its end. */
  (void)driver->release(handle);
  if (status != CUDA_SUCCESS) return status;
  status = driver->access(at, bytes, &sleep->access, 1);
  if (status != CUDA_SUCCESS) {
    (void)driver->unmap(at, bytes);
    return status;
  }
  range->extents[range->num_extents++] = bytes;
  range->mapped += bytes;
  return CUDA_SUCCESS;
}

/* Gives the memory of a range back. What was `used` is known still. */
static CUresult clear(sleep_state_t *sleep, sleep_range_t *range) {
  CUresult first = CUDA_SUCCESS;
  while (range->num_extents > 0) {
    const size_t bytes = range->extents[--range->num_extents];
    range->mapped -= bytes;
    CUresult status = sleep->driver.unmap(range->base + range->mapped, bytes);
    if (first == CUDA_SUCCESS) first = status;
  }
  return first;
}

static size_t whole(const sleep_state_t *sleep, size_t bytes) {
  return DIV_UP(bytes, sleep->granularity) * sleep->granularity;
}

int sleep_open(device_t *device, inferd_error_t *error) {
  sleep_state_t *sleep = device->sleep = calloc(1, sizeof *sleep);
  size_t available = 0, total = 0;
  if (sleep == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a device");
  if (!driver_open(&sleep->driver))
    return error_set(error, ERR_CONFIGURATION, "sleep_space",
                     "sleep_space is set, but libcuda.so.1 of this machine has no virtual memory "
                     "management (cuMemMap)");
  sleep->where =
      (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->index}};
  sleep->access = (CUmemAccessDesc){.location = sleep->where.location,
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  CUresult status = sleep->driver.granularity(&sleep->granularity, &sleep->where,
                                              CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  if (status != CUDA_SUCCESS)
    return error_set(error, ERR_CONFIGURATION, "sleep_space",
                     "sleep_space is set, but the device has no virtual memory management: the "
                     "driver says %d",
                     (int)status);
  int failed = (int)cudaMemGetInfo(&available, &total);
  if (failed != 0) return device_error(failed, "the memory of the device", error);
  for (int i = 0; i < SLEEP_KINDS; i++) {
    sleep_range_t *range = &sleep->ranges[i];
    const size_t bytes = whole(sleep, total);
    status = sleep->driver.reserve(&range->base, bytes, 0, 0, 0);
    if (status != CUDA_SUCCESS) return driver_error(status, "addresses of the device", error);
    range->reserved = bytes;
  }
  return 0;
}

int sleep_take(device_t *device, sleep_kind_t kind, void **out, size_t bytes, const char *what,
               inferd_error_t *error) {
  sleep_state_t *sleep = device->sleep;
  if (sleep == NULL || bytes == SIZE_MAX) return device_take(device, out, bytes, what, error);
  sleep_range_t *range = &sleep->ranges[kind];
  const size_t needed = DIV_UP(MAX(bytes, 1), TAKE_ALIGN) * TAKE_ALIGN;
  *out = NULL;
  if (needed > range->reserved - range->used)
    return error_set(error, ERR_NO_MEMORY, NULL, "no device memory for %s", what);
  if (range->used + needed > range->mapped) {
    CUresult status = extend(sleep, range, whole(sleep, range->used + needed - range->mapped));
    if (status == CUDA_ERROR_OUT_OF_MEMORY)
      return error_set(error, ERR_NO_MEMORY, NULL, "no device memory for %s: %.1f MiB are needed",
                       what, (double)bytes / (1 << 20));
    if (status != CUDA_SUCCESS) return driver_error(status, what, error);
  }
  *out = (void *)(uintptr_t)(range->base + range->used);
  range->used += needed;
  device->taken += needed;
  int failed = (int)cudaMemsetAsync(*out, 0, needed, device->stream);
  return failed ? device_error(failed, what, error) : 0;
}

void sleep_release(device_t *device) {
  sleep_state_t *sleep = device->sleep;
  device->sleep = NULL;
  if (sleep == NULL) return;
  for (int i = 0; i < SLEEP_KINDS; i++) {
    sleep_range_t *range = &sleep->ranges[i];
    (void)clear(sleep, range);
    if (range->reserved > 0) (void)sleep->driver.unreserve(range->base, range->reserved);
    free(range->extents);
  }
  if (sleep->kept != NULL) cudaFreeHost(sleep->kept);
  if (sleep->driver.handle != NULL) dlclose(sleep->driver.handle);
  free(sleep);
}

/* ---- asleep, and awake ---- */

static void *address(const sleep_range_t *range) {
  return (void *)(uintptr_t)range->base;
}

/* Pinned memory is taken at once, and beyond the limit of a container the kernel ends the process
 * without a word. */
static int take_host(sleep_state_t *sleep, size_t bytes, inferd_error_t *error) {
  const size_t left = topology_memory_free();
  if (left > 0 && bytes > left)
    return error_set(error, ERR_NO_MEMORY, NULL,
                     "the weights take %.2f GiB; %.2f GiB of host memory are free",
                     (double)bytes / GIB, (double)left / GIB);
  int status = (int)cudaMallocHost((void **)&sleep->kept, MAX(bytes, 1));
  if (status == 0) return 0;
  (void)cudaGetLastError();
  sleep->kept = NULL;
  return error_set(error, ERR_NO_MEMORY, NULL, "no pinned host memory for %.2f GiB of weights",
                   (double)bytes / GIB);
}

static void drop_host(sleep_state_t *sleep) {
  cudaFreeHost(sleep->kept);
  sleep->kept = NULL;
}

static int fall_asleep(device_t *device, inferd_error_t *error) {
  sleep_state_t *sleep = device->sleep;
  sleep_range_t *keeps = &sleep->ranges[SLEEP_KEEPS], *drops = &sleep->ranges[SLEEP_DROPS];
  int code = take_host(sleep, keeps->used, error);
  if (code != 0) return code;
  int status = (int)cudaMemcpyAsync(sleep->kept, address(keeps), keeps->used,
                                    cudaMemcpyDeviceToHost, device->stream);
  if (!status) status = (int)cudaStreamSynchronize(device->stream);
  if (status) {
    drop_host(sleep);
    return device_error(status, "copying weights to host memory", error);
  }
  CUresult cleared = clear(sleep, drops), more = clear(sleep, keeps);
  if (cleared == CUDA_SUCCESS) cleared = more;
  return cleared == CUDA_SUCCESS ? 0 : driver_error(cleared, "giving memory back", error);
}

static int wake_up(device_t *device, inferd_error_t *error) {
  sleep_state_t *sleep = device->sleep;
  sleep_range_t *keeps = &sleep->ranges[SLEEP_KEEPS], *drops = &sleep->ranges[SLEEP_DROPS];
  CUresult mapped = extend(sleep, keeps, whole(sleep, keeps->used));
  if (mapped == CUDA_SUCCESS && drops->used > 0)
    mapped = extend(sleep, drops, whole(sleep, drops->used));
  if (mapped != CUDA_SUCCESS) {
    size_t available = 0, total = 0;
    (void)clear(sleep, keeps);
    (void)cudaMemGetInfo(&available, &total);
    if (mapped != CUDA_ERROR_OUT_OF_MEMORY) return driver_error(mapped, "waking up", error);
    return error_set(error, ERR_NO_MEMORY, NULL,
                     "the model needs %.2f GiB of the device to wake up; %.2f GiB are free",
                     (double)(keeps->used + drops->used) / GIB, (double)available / GIB);
  }
  int status = (int)cudaMemcpyAsync(address(keeps), sleep->kept, keeps->used,
                                    cudaMemcpyHostToDevice, device->stream);
  if (!status && drops->used > 0)
    status = (int)cudaMemsetAsync(address(drops), 0, drops->used, device->stream);
  if (!status) status = (int)cudaStreamSynchronize(device->stream);
  if (status) return device_error(status, "copying weights back", error);
  drop_host(sleep);
  return 0;
}

static void sleep_bytes(const device_t *device, size_t *host, size_t *given) {
  const sleep_state_t *sleep = device->sleep;
  *host = sleep->ranges[SLEEP_KEEPS].used;
  *given = whole(sleep, *host) + whole(sleep, sleep->ranges[SLEEP_DROPS].used);
}

const sleep_ops_t cuda_sleep = {.sleep = fall_asleep, .wake = wake_up, .bytes = sleep_bytes};
