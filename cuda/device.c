/* device.c: a GPU as a back end: open, close, description, and the table ops_cuda.
 *
 * Owns device_t. Engine thread; close also runs on the thread that destroys the engine.
 */
#include "cuda/blas.h"
#include "cuda/host.h"
#include "cuda/operations.h"
#include "cuda/packed.h"
#include "cuda/ranks/exchange.h"
#include "cuda/sleep.h"
#include "cuda/swap.h"
#include "engine/device/sampling_params.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  CAPABILITY_MIN = 80,
  DRIVER_MIN = CUDART_VERSION / 1000 == 12 ? 525 : 580 /* the first of CUDA 12.0, of 13.0 */
};

static void cuda_close(device_t *device) {
  if (device == NULL) return;
  cudaSetDevice(device->index);
  if (device->stream != NULL) {
    exchange_abort(device);
    cudaStreamSynchronize(device->stream);
    device_swap_release(device);
    graph_release(device);
    blas_release(device);
    exchange_close(device);
    weight_staging_release(device);
    sleep_release(device);
  }
  host_close(device);
  for (int i = 0; i < STEPS_IN_FLIGHT_MAX; i++) {
    if (device->steps[i].done != NULL) cudaEventDestroy(device->steps[i].done);
  }
  device_release(device);
  if (device->stream != NULL) cudaStreamDestroy(device->stream);
  free(device);
}

/* Makes the error message: it distinguishes an old driver, no driver and no device. */
static int count_devices(int index, inferd_error_t *error) {
  int count = 0, driver = 0, status = (int)cudaGetDeviceCount(&count);
  if (status != 0) {
    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver); /* 0 without one */
    if (driver == 0) {
      return error_set(error, ERR_CONFIGURATION, "device",
                       "no NVIDIA driver is found; a container gets it by --gpus all");
    }
    if (status == cudaErrorInsufficientDriver)
      return error_set(error, ERR_CONFIGURATION, "device",
                       "no CUDA device can be used: the NVIDIA driver is one for CUDA %d.%d, and "
                       "this build needs one for CUDA %d.0 or later: release %d",
                       driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, DRIVER_MIN);
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    return error_set(error, ERR_CONFIGURATION, "device", "no CUDA device can be used: %s%s%.80s",
                     cudaGetErrorString((cudaError_t)status),
                     visible != NULL ? "; CUDA_VISIBLE_DEVICES is " : "",
                     visible != NULL ? visible : "");
  }
  if (count == 0) return error_set(error, ERR_CONFIGURATION, "device", "there is no CUDA device");
  if (index >= 0 && index < count) return 0;
  return error_set(error, ERR_CONFIGURATION, "device",
                   "device is cuda:%d; there are %d, from cuda:0", index, count);
}

static int attribute(int index, enum cudaDeviceAttr name) {
  int value = 0;
  return cudaDeviceGetAttribute(&value, name, index) == cudaSuccess ? value : 0;
}

static int capability_of(int index) {
  return attribute(index, cudaDevAttrComputeCapabilityMajor) * 10 +
         attribute(index, cudaDevAttrComputeCapabilityMinor);
}

static bool cuda_available(int32_t index) {
  return count_devices(index, NULL) == 0 && capability_of(index) >= CAPABILITY_MIN;
}

/* Whether the build has code for the device. Else the first launch would tell, after the model has
 * been read. */
static int check_code(device_t *device, const char *name, int capability, inferd_error_t *error) {
  int32_t made = 0;
  const int status = gpu_code(&made);
  const size_t length = strlen(device->description);
  if (made)
    snprintf(device->description + length, sizeof device->description - length, ", code from PTX");
  switch (status) {
  case cudaErrorNoKernelImageForDevice:
  case cudaErrorInvalidKernelImage:
  case cudaErrorInvalidPtx:
  case cudaErrorJitCompilerNotFound:
  case cudaErrorUnsupportedPtxVersion:
    return error_set(error, ERR_CONFIGURATION, "device",
                     "%.80s: this build has no code for it (%s); make CUDA_TARGETS=%d", name,
                     cudaGetErrorString((cudaError_t)status), capability);
  default: return status ? device_error(status, "loading a kernel", error) : 0;
  }
}

static int inspect(device_t *device, inferd_error_t *error) {
  struct cudaDeviceProp properties;
  int driver = 0, status = (int)cudaGetDeviceProperties(&properties, device->index);
  if (status != 0) return device_error(status, "asking for the device's properties", error);
  cudaDriverGetVersion(&driver);
  int capability = capability_of(device->index), major = capability / 10, minor = capability % 10;
  device->multiprocessors = attribute(device->index, cudaDevAttrMultiProcessorCount);
  snprintf(device->description, sizeof device->description,
           "%.80s, %.1f GiB, sm_%d%d, driver %d.%d", properties.name,
           (double)properties.totalGlobalMem / (1024.0 * 1024.0 * 1024.0), major, minor,
           driver / 1000, driver % 1000 / 10);
  /* 8.0, 9.0, 10.0: others have half the tensor cores for as many other units. */
  device->unpacks = minor == 0 && major < 12;
  if (capability >= CAPABILITY_MIN && device->multiprocessors > 0)
    return check_code(device, properties.name, capability, error);
  return error_set(error, ERR_CONFIGURATION, "device",
                   "%.80s has compute capability %d.%d; 8.0 is the least that inferd runs on",
                   properties.name, major, minor);
}

/* Of the affinity mask where none are asked for. */
static int count_threads(int wanted) {
  cpu_set_t allowed;
  if (wanted <= 0)
    wanted = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
  return wanted < 1 ? 1 : wanted < WEIGHT_THREADS_MAX ? wanted : WEIGHT_THREADS_MAX;
}

/* Each rank of a host has a device of its own, one behind the other. Every rank says so when there
 * are too few. */
static int count_for_ranks(int first, const comm_t *comm, inferd_error_t *error) {
  int count = 0;
  if (comm == NULL) return 0;
  (void)cudaGetDeviceCount(&count);
  if (first + comm->local_size <= count) return 0;
  return error_set(error, ERR_CONFIGURATION, "tensor_parallel_size",
                   "%d ranks on this host need a CUDA device each from cuda:%d on; there are %d",
                   comm->local_size, first, count);
}

static int cuda_open(const device_options_t *options, device_t **out, inferd_error_t *error) {
  comm_t *comm = options->comm;
  *out = NULL;
  int code = count_devices(options->device_index, error);
  if (!code) code = count_for_ranks(options->device_index, comm, error);
  if (code) return code;
  device_t *device = calloc(1, sizeof *device);
  if (device == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a device");
  device->index = options->device_index + (comm != NULL ? comm->rank % comm->local_size : 0);
  device->is_batch_invariant = options->batch_invariant;
  device->num_threads = count_threads(options->num_threads);
  int status = (int)cudaSetDevice(device->index);
  if (!status) status = (int)cudaStreamCreateWithFlags(&device->stream, cudaStreamNonBlocking);
  code = status ? device_error(status, "opening the device", error) : inspect(device, error);
  if (!code) code = host_open(device, options, error);
  if (!code && options->sleeps) code = sleep_open(device, error);
  if (!code) code = exchange_new(device, comm, error);
  if (code) {
    cuda_close(device);
    return code;
  }
  *out = device;
  return 0;
}

static const char *cuda_describe(const device_t *device) {
  return device->description;
}

static size_t cuda_memory_free(const device_t *device) {
  size_t available = 0, total = 0;
  (void)device;
  return cudaMemGetInfo(&available, &total) == cudaSuccess ? available : 0;
}

const ops_t ops_cuda = {
    .name = "cuda",
    .pipeline_depth = 2,
    .history_on_device = true,
    .logprobs_max = LOGPROBS_MAX,
    .act_bytes = 2,
    .dtypes = 1u << DTYPE_BF16 | 1u << DTYPE_F16,
    .activations = 1u << ACTIVATION_RELU | 1u << ACTIVATION_RELU2 | 1u << ACTIVATION_GELU |
                   1u << ACTIVATION_GELU_TANH | 1u << ACTIVATION_SILU_MUL |
                   1u << ACTIVATION_GELU_TANH_MUL | 1u << ACTIVATION_CLAMPED_SWIGLU,
    .weight_formats = (2U << WEIGHT_GROUPED_FP8) - 2, /* all but WEIGHT_PLAIN, which is no bit */
    .block_size = 64,
    .kv_fp8 = true,
    .separate_memory = true,
    .seqs_default = 256,
    .tokens_default = 4096,
    .step_ms = 40,
    .client_step_ms = 10,
    .bounds_admission = true,
    .swap = &cuda_swap,
    .sleep = &cuda_sleep,
    .host = &cuda_host,
    .state = &cuda_state,
    .ranks = &cuda_ranks,
    .available = cuda_available,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .memory_free = cuda_memory_free,
    .weight = cuda_weight,
    .weight_bytes = cuda_weight_bytes,
    .vector = cuda_vector,
    .kv_bytes = cuda_kv_bytes,
    .kv_cache = cuda_kv_cache,
    .lora = &cuda_lora_ops,
    .prepare = cuda_prepare,
    .buffer = cuda_buffer,
    .workspace_bytes = cuda_workspace_bytes,
    .warm_up_rows = cuda_warm_up_rows,
    .report = cuda_report,
    .begin = cuda_begin,
    .embed = cuda_embed,
    .embed_positions = cuda_embed_positions,
    .norm = cuda_norm,
    .linear = cuda_linear,
    .fused_linear = cuda_fused_linear,
    .rope_store = cuda_rope_store,
    .attention = cuda_attention,
    .activation = cuda_activation,
    .gated_add = cuda_gated_add,
    .moe = cuda_moe,
    .gather = cuda_gather,
    .logits = cuda_logits,
    .sample = cuda_sample,
    .end = cuda_end,
    .read_logits = cuda_read_logits,
};
