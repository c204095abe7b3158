/* emu_runtime_device.cc: the fake runtime's device, errors, memory and injected failures.
 *
 * Device memory is host memory filled with 0xff, of the exact size asked for, so that
 * AddressSanitizer sees an overrun; the plain build puts a guard behind it and looks at it after
 * every kernel. Allocations of more than 256 MiB are sparse: untouched pages cost nothing.
 */
#include "emu_check.h"
#include "emu_runtime.h"
#include "host/calls.h"
#include <stdlib.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

namespace emu {

enum { DEVICE_ALIGNMENT = 512, GUARD_BYTES = 64, GUARD_FILL = 0xa5, SHARED_DEFAULT = 48 << 10 };
static const size_t SPARSE_BYTES = (size_t)256 << 20;

/* Real cards, by their data sheets. The first is what runs where none is asked for. */
static const Card cards[] = {{"emulated GPU", 90, 4, 1 << 20},
                             {"NVIDIA A100-SXM4-80GB", 80, 108, 40 << 20},
                             {"NVIDIA L40S", 89, 142, 96 << 20},
                             {"NVIDIA H100 80GB HBM3", 90, 132, 50 << 20},
                             {"NVIDIA GeForce RTX 5090", 120, 170, 96 << 20},
                             {"NVIDIA B200", 100, 148, 126 << 20}};

static std::string setting(const char *name) {
  const char *text = getenv(name);
  return text ? text : "";
}

thread_local int device_set = 0;

Runtime::Runtime() {
  streams.push_back(&legacy);
  const std::string order = setting("EMU_STREAM"), memory = setting("EMU_MEMORY");
  const std::string sm = setting("EMU_SM"), wanted = setting("EMU_CARD");
  card = cards[0];
  for (const Card &one : cards)
    if (!wanted.empty() && one.name == wanted) card = one;
  if (!wanted.empty() && card.name != wanted) {
    fprintf(stderr, "emu: EMU_CARD=%s is not known\n", wanted.c_str());
    abort();
  }
  capability = card.capability;
  if (order == "eager") mode = STREAM_EAGER;
  if (order == "random") mode = STREAM_RANDOM;
  memory_total = memory.empty() ? (size_t)1 << 30 : strtoull(memory.c_str(), nullptr, 0);
  if (!sm.empty()) capability = atoi(sm.c_str());
  if (!setting("EMU_DEVICES").empty()) devices = atoi(setting("EMU_DEVICES").c_str());
  if (!setting("EMU_DRIVER").empty()) driver = atoi(setting("EMU_DRIVER").c_str());
  fail(setting("EMU_FAIL"));
}

void Runtime::fail(const std::string &at) {
  const size_t colon = at.find(':');
  if (colon == std::string::npos) return;
  const size_t second = at.find(':', colon + 1);
  const std::string kind = second == std::string::npos ? "" : at.substr(second + 1);
  const int code = atoi(kind.c_str());
  failure[at.substr(0, colon)] = {atoi(at.c_str() + colon + 1),
                                  code ? (cudaError_t)code : cudaErrorInvalidValue, kind == "hang"};
}

Runtime &runtime() {
  static Runtime *only = new Runtime;
  return *only;
}

void inject_failure(const char *function, int call, cudaError_t error) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  runtime().calls[function] = 0;
  runtime().failure[function] = {call, error, false};
}

void set_stream_mode(StreamMode mode) {
  runtime().mode = mode;
}

cudaError_t set_error(cudaError_t error) {
  Runtime &r = runtime();
  if (error == cudaSuccess || error == cudaErrorNotReady) return error;
  r.last = error;
  if (error >= cudaErrorIllegalAddress && error <= cudaErrorLaunchFailure) r.sticky = error;
  return error;
}

static thread_local bool in_host_function = false;

void run_host_function(cudaHostFn_t function, void *argument) {
  std::thread thread([function, argument] {
    in_host_function = true;
    function(argument);
  });
  thread.join();
}

Call::Call(const char *function) : hold(runtime().lock, std::defer_lock) {
  Runtime &r = runtime();
  if (in_host_function) { /* whoever waits for the function has the lock */
    fprintf(stderr, "emu: a host function calls %s\n", function);
    error = NOT_PERMITTED;
    return;
  }
  hold.lock();
  error = r.sticky;
  const int call = ++r.calls[function];
  auto found = r.failure.find(function);
  if (!error && found != r.failure.end() && found->second.call == call) {
    while (found->second.hangs) pause();
    error = found->second.error;
  }
  set_error(error);
}

bool is_inside(const std::map<uintptr_t, size_t> &ranges, const void *p, size_t size) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(p);
  auto after = ranges.upper_bound(address);
  if (after == ranges.begin()) return false;
  --after;
  return address - after->first <= after->second &&
         size <= after->second - (address - after->first);
}

bool memory_is_sparse(size_t size) {
  return size > SPARSE_BYTES;
}

#if defined(__SANITIZE_ADDRESS__)
static size_t guard_bytes() {
  return 0;
}
void check_guards(const char *) {}
#else
static size_t guard_bytes() {
  return GUARD_BYTES;
}
void check_guards(const char *who) {
  for (const auto &range : runtime().device) {
    if (memory_is_sparse(range.second) || runtime().mapped.count(range.first)) continue;
    unsigned char *guard = reinterpret_cast<unsigned char *>(range.first) + range.second;
    for (size_t i = 0; i < GUARD_BYTES; i++) {
      if (guard[i] == GUARD_FILL) continue;
      memset(guard, GUARD_FILL, GUARD_BYTES);
      set_error(cudaErrorIllegalAddress);
      report(std::string(who) + " wrote " + std::to_string(i) + " bytes behind an allocation of " +
             std::to_string(range.second));
    }
  }
}
#endif

cudaError_t take_memory(size_t bytes) {
  Runtime &r = runtime();
  if (bytes > r.memory_total - r.memory_used) return cudaErrorMemoryAllocation;
  r.memory_used += bytes;
  return cudaSuccess;
}

static cudaError_t device_allocate(void **p, size_t size) {
  Runtime &r = runtime();
  *p = nullptr;
  if (!size) return cudaSuccess;
  if (size > r.memory_total - r.memory_used) return cudaErrorMemoryAllocation;
  if (memory_is_sparse(size)) {
    *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
              -1, 0);
    if (*p == MAP_FAILED) return cudaErrorMemoryAllocation;
  } else {
    if (posix_memalign(p, DEVICE_ALIGNMENT, size + guard_bytes())) return cudaErrorMemoryAllocation;
    memset(*p, 0xff, size);
    memset(static_cast<char *>(*p) + size, GUARD_FILL, guard_bytes());
  }
  r.device[reinterpret_cast<uintptr_t>(*p)] = size;
  check_memory(*p, size);
  return take_memory(size);
}

static cudaError_t device_release(void *p) {
  Runtime &r = runtime();
  auto found = r.device.find(reinterpret_cast<uintptr_t>(p));
  if (found == r.device.end()) return cudaErrorInvalidValue;
  const size_t size = found->second;
  r.memory_used -= size;
  r.device.erase(found);
  if (memory_is_sparse(size))
    munmap(p, size);
  else
    free(p);
  return cudaSuccess;
}

} // namespace emu

using namespace emu;

cudaError_t cudaGetDeviceCount(int *count) {
  Call call("cudaGetDeviceCount");
  *count = 0;
  if (call.error) return call.error;
  if (runtime().driver / 1000 < CUDART_VERSION / 1000)
    return set_error(cudaErrorInsufficientDriver);
  *count = runtime().devices;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  Call call("cudaSetDevice");
  if (call.error) return call.error;
  const bool exists = device >= 0 && device < runtime().devices;
  if (exists) device_set = device;
  return set_error(exists ? cudaSuccess : cudaErrorInvalidDevice);
}

cudaError_t cudaGetDevice(int *device) {
  *device = device_set;
  return cudaSuccess;
}

/* The largest block's shared memory, by the table of compute capabilities in NVIDIA's guide. */
static int shared_optin() {
  switch (runtime().capability) {
  case 80:
  case 87: return 163 << 10;
  case 90:
  case 100:
  case 103:
  case 110: return 227 << 10;
  default: return 99 << 10; /* 8.6, 8.9, 12.x */
  }
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device) {
  Call call("cudaGetDeviceProperties");
  if (call.error) return call.error;
  if (device < 0 || device >= runtime().devices) return set_error(cudaErrorInvalidDevice);
  memset(properties, 0, sizeof *properties);
  snprintf(properties->name, sizeof properties->name, "%s", runtime().card.name.c_str());
  properties->totalGlobalMem = runtime().memory_total;
  properties->sharedMemPerBlock = SHARED_DEFAULT;
  properties->sharedMemPerBlockOptin = (size_t)shared_optin();
  properties->multiProcessorCount = runtime().card.multiprocessors;
  properties->major = runtime().capability / 10;
  properties->minor = runtime().capability % 10;
  properties->maxThreadsPerBlock = 1024;
  properties->warpSize = 32;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr name, int) {
  Call call("cudaDeviceGetAttribute");
  if (call.error) return call.error;
  switch (name) {
  case cudaDevAttrMaxSharedMemoryPerBlock: *value = SHARED_DEFAULT; break;
  case cudaDevAttrMultiProcessorCount: *value = runtime().card.multiprocessors; break;
  case cudaDevAttrL2CacheSize: *value = runtime().card.l2_bytes; break;
  case cudaDevAttrComputeCapabilityMajor: *value = runtime().capability / 10; break;
  case cudaDevAttrComputeCapabilityMinor: *value = runtime().capability % 10; break;
  case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = shared_optin(); break;
  default: return set_error(cudaErrorNotSupported);
  }
  return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
  *version = runtime().driver;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
  Call call("cudaMemGetInfo");
  *total_bytes = runtime().memory_total;
  *free_bytes = runtime().memory_total - runtime().memory_used;
  return call.error;
}

cudaError_t cudaGetLastError(void) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  const cudaError_t error = runtime().last;
  runtime().last = runtime().sticky;
  return error;
}

const char *cudaGetErrorName(cudaError_t error) {
  static thread_local char text[40];
  if (error == cudaSuccess) return "cudaSuccess";
  snprintf(text, sizeof text, "cudaError %d", (int)error);
  return text;
}
const char *cudaGetErrorString(cudaError_t error) {
  return cudaGetErrorName(error);
}

cudaError_t cudaMalloc(void **p, size_t size) {
  Call call("cudaMalloc");
  if (call.error) return call.error;
  if (runtime().captures) return refuse_in_capture();
  return set_error(device_allocate(p, size));
}

cudaError_t cudaFree(void *p) {
  Call call("cudaFree");
  if (call.error) return call.error;
  if (!p) return cudaSuccess;
  if (runtime().captures) return refuse_in_capture();
  drain_all();
  check_guards("work before cudaFree");
  return set_error(device_release(p));
}

cudaError_t cudaMallocHost(void **p, size_t size) {
  Call call("cudaMallocHost");
  if (call.error) return call.error;
  if (posix_memalign(p, 4096, size ? size : 1)) return set_error(cudaErrorMemoryAllocation);
  memset(*p, 0xff, size);
  runtime().pinned[reinterpret_cast<uintptr_t>(*p)] = size;
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void *p) {
  Call call("cudaFreeHost");
  if (call.error) return call.error;
  if (!p) return cudaSuccess;
  drain_all();
  if (!runtime().pinned.erase(reinterpret_cast<uintptr_t>(p)))
    return set_error(cudaErrorInvalidValue);
  free(p);
  return cudaSuccess;
}

/* Every kernel is there: code for 8.0, which all 8.x run, 9.0, 10.x and 12.x, as nvcc makes it by
 * default, PTX of 9.0 for others; asking loads it. */
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, const void *kernel) {
  Call call("cudaFuncGetAttributes");
  if (call.error) return call.error;
  if (runtime().captures) return refuse_in_capture();
  runtime().loaded.insert(kernel);
  const int capability = runtime().capability, major = capability / 10;
  const bool is_from_ptx = major == 11 || major > 12;
  *attributes = {1024, is_from_ptx ? 90 : major == 8 ? 80 : capability, capability};
  return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *kernel, cudaFuncAttribute name, int value) {
  Call call("cudaFuncSetAttribute");
  if (call.error) return call.error;
  if (name != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > shared_optin()) return set_error(cudaErrorInvalidValue);
  runtime().shared_limit[kernel] = value;
  return cudaSuccess;
}

void emu_fail(const char *which) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  runtime().fail(which);
}

int emu_count_calls(const char *function) {
  std::lock_guard<std::recursive_mutex> hold(runtime().lock);
  return runtime().calls[function];
}
