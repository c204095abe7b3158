/* emu_mapped.cc: the fake driver's memory that is mapped into reserved addresses.
 *
 * Memory is a file of the kernel's own, so a mapping that comes later has what was written before.
 * Addresses without memory, or without access, cannot be read: work that still runs when its
 * memory is unmapped, or begins afterwards, ends the process. New memory is filled with 0xff.
 * Nothing waits for work that is queued, as nothing does in the driver.
 */
#include "emu_check.h"
#include "emu_runtime.h"
#include <cuda.h>
#include <sys/mman.h>
#include <unistd.h>

using namespace emu;

enum { GRANULARITY = 2 << 20 };
static const size_t FILLED_BYTES_MAX = (size_t)256 << 20;

namespace {
struct Memory {
  int file;
  size_t size;
  int users; /* mappings, and the handle itself */
};
struct Mapping {
  size_t size;
  CUmemGenericAllocationHandle handle;
};
std::map<CUmemGenericAllocationHandle, Memory> memories;
std::map<uintptr_t, Mapping> mappings;
std::map<uintptr_t, size_t> reserved;
CUmemGenericAllocationHandle last_handle = 0;
} // namespace

static CUresult result(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? CUDA_ERROR_OUT_OF_MEMORY : (CUresult)error;
}

static void *address(CUdeviceptr p) {
  return reinterpret_cast<void *>((uintptr_t)p);
}

static void leave(CUmemGenericAllocationHandle handle) {
  Memory &memory = memories[handle];
  if (--memory.users > 0) return;
  close(memory.file);
  runtime().memory_used -= memory.size;
  memories.erase(handle);
}

/* Neighbours count as one: an access may reach from one into the next. */
static void note_ranges() {
  std::map<uintptr_t, size_t> &all = runtime().device;
  for (uintptr_t base : runtime().mapped) all.erase(base);
  runtime().mapped.clear();
  uintptr_t begin = 0, end = 0;
  for (const auto &one : mappings) {
    if (begin == 0 || one.first != end) {
      begin = one.first;
      runtime().mapped.insert(begin);
    }
    end = one.first + one.second.size;
    all[begin] = end - begin;
  }
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *prop,
                                       CUmemAllocationGranularity_flags) {
  Call call("cuMemGetAllocationGranularity");
  if (call.error) return result(call.error);
  if (prop->type != CU_MEM_ALLOCATION_TYPE_PINNED) return CUDA_ERROR_INVALID_VALUE;
  *granularity = GRANULARITY;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *p, size_t size, size_t, CUdeviceptr,
                             unsigned long long flags) {
  Call call("cuMemAddressReserve");
  if (call.error) return result(call.error);
  if (flags || !size || size % GRANULARITY) return CUDA_ERROR_INVALID_VALUE;
  void *got = mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *p = (CUdeviceptr) reinterpret_cast<uintptr_t>(got);
  reserved[(uintptr_t)*p] = size;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t size) {
  Call call("cuMemAddressFree");
  if (call.error) return result(call.error);
  auto found = reserved.find((uintptr_t)p);
  if (found == reserved.end() || found->second != size) return CUDA_ERROR_INVALID_VALUE;
  auto inside = mappings.lower_bound((uintptr_t)p);
  if (inside != mappings.end() && inside->first < p + size) return CUDA_ERROR_INVALID_VALUE;
  reserved.erase(found);
  munmap(address(p), size);
  return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
                     const CUmemAllocationProp *prop, unsigned long long flags) {
  Call call("cuMemCreate");
  if (call.error) return result(call.error);
  const bool right = prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                     prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  if (!right || flags || !size || size % GRANULARITY) return CUDA_ERROR_INVALID_VALUE;
  const cudaError_t taken = take_memory(size);
  if (taken) return result(taken);
  const int file = memfd_create("device", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, (off_t)size)) return CUDA_ERROR_OUT_OF_MEMORY;
  memories[ *handle = ++last_handle] = {file, size, 1};
  return CUDA_SUCCESS;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  Call call("cuMemRelease");
  if (call.error) return result(call.error);
  if (!memories.count(handle)) return CUDA_ERROR_INVALID_VALUE;
  leave(handle);
  return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags) {
  Call call("cuMemMap");
  if (call.error) return result(call.error);
  auto memory = memories.find(handle);
  if (memory == memories.end() || flags || offset || size != memory->second.size)
    return CUDA_ERROR_INVALID_VALUE;
  if (p % 4096 || !is_inside(reserved, address(p), size)) return CUDA_ERROR_INVALID_VALUE;
  auto next = mappings.lower_bound((uintptr_t)p);
  if (next != mappings.end() && next->first < p + size) return CUDA_ERROR_INVALID_VALUE;
  if (mmap(address(p), size, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->second.file, 0) ==
      MAP_FAILED)
    return CUDA_ERROR_OUT_OF_MEMORY;
  memory->second.users++;
  mappings[(uintptr_t)p] = {size, handle};
  return CUDA_SUCCESS;
}

/* One call for each mapping here: the driver takes several, too. */
CUresult cuMemUnmap(CUdeviceptr p, size_t size) {
  Call call("cuMemUnmap");
  if (call.error) return result(call.error);
  auto found = mappings.find((uintptr_t)p);
  if (found == mappings.end() || found->second.size != size) return CUDA_ERROR_INVALID_VALUE;
  mmap(address(p), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  const CUmemGenericAllocationHandle handle = found->second.handle;
  mappings.erase(found);
  leave(handle);
  note_ranges();
  return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t count) {
  Call call("cuMemSetAccess");
  if (call.error) return result(call.error);
  auto found = mappings.find((uintptr_t)p);
  if (found == mappings.end() || found->second.size != size || count != 1 ||
      desc->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return CUDA_ERROR_INVALID_VALUE;
  if (mprotect(address(p), size, PROT_READ | PROT_WRITE)) return CUDA_ERROR_INVALID_VALUE;
  if (size <= FILLED_BYTES_MAX) memset(address(p), 0xff, size);
  check_memory(address(p), size);
  note_ranges();
  return CUDA_SUCCESS;
}
