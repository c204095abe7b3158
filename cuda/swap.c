/* swap.c: KV blocks to pinned host memory and back, on a stream of their own.
 *
 * Engine thread; the contract is engine/device/swap_ops.h. A list of blocks is one call of the
 * driver, or a call for each block where the toolkit is older than 13.0 or the driver refuses.
 * Events order the work: copies begin after the steps launched before. The next step begins after
 * an `in`. It waits for an `out` only if it writes to a block that is being copied, so copies out
 * and a step can overlap. Only `pool` waits.
 */
#include "cuda/swap.h"

#include "cuda/operations.h"
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/device/topology.h"

#include <stdlib.h>
#include <string.h>

static const size_t TRIAL_BYTES = (size_t)64 << 20; /* that `pool` measures with */
static const size_t TIMED_BYTES_MIN = 1 << 20;      /* smaller copies do not show the rate */
static const double GIB = 1024.0 * 1024.0 * 1024.0;
enum { TRIAL_BLOCKS_MAX = 256, WORD_BITS = 64 };

static size_t leaving_bytes(const device_t *device) {
  return ((size_t)device->kv.num_blocks / WORD_BITS + 1) * sizeof(uint64_t);
}

/* ---- copies ---- */

/* cudaMemcpyBatchAsync came with toolkit 12.8 and got its arguments with 13.0. */
enum { HAS_BATCH = CUDART_VERSION >= 13000 };

#if CUDART_VERSION >= 13000
static int copy_batch(swap_state_t *swap, size_t count) {
  struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
  size_t first = 0;
  return (int)cudaMemcpyBatchAsync(swap->to, swap->from, swap->bytes, count, &attributes, &first, 1,
                                   swap->stream);
}
#else
static int copy_batch(swap_state_t *swap, size_t count) {
  (void)swap, (void)count;
  return (int)cudaErrorNotSupported;
}
#endif

static int copy_each(swap_state_t *swap, size_t count) {
  int status = 0;
  for (size_t i = 0; i < count && !status; i++) {
    status = (int)cudaMemcpyAsync(swap->to[i], swap->from[i], swap->bytes[i], cudaMemcpyDefault,
                                  swap->stream);
  }
  return status;
}

static int flush(swap_state_t *swap) {
  const size_t count = swap->count;
  swap->count = 0;
  if (count == 0) return 0;
  return swap->one_by_one ? copy_each(swap, count) : copy_batch(swap, count);
}

static int add_copy(swap_state_t *swap, void *device, uint8_t *host, size_t bytes, bool out) {
  int status = swap->count < SWAP_COPIES_MAX ? 0 : flush(swap);
  swap->to[swap->count] = out ? (void *)host : device;
  swap->from[swap->count] = out ? device : (void *)host;
  swap->bytes[swap->count++] = bytes;
  return status;
}

static int copy_blocks(device_t *device, const block_swap_t *swaps, int32_t count, bool out) {
  swap_state_t *swap = device->swap;
  const size_t block = gpu_kv_block_bytes(&device->kv), ids = (size_t)device->kv.block_size;
  const size_t layer = block * (size_t)device->kv.num_blocks;
  int status = 0;
  for (int32_t i = 0; i < count && !status; i++) {
    CHECK_RANGE(swaps[i].device, 1, device->kv.num_blocks);
    CHECK_RANGE(swaps[i].host, 0, swap->num_blocks);
    const size_t at = (size_t)swaps[i].device;
    uint8_t *host = swap->host + (size_t)swaps[i].host * swap->block_bytes;
    for (size_t l = 0; l < (size_t)device->kv.num_layers && !status; l++, host += block) {
      status =
          add_copy(swap, (uint8_t *)device->kv.base + l * layer + at * block, host, block, out);
    }
    if (!status)
      status = add_copy(swap, device->inputs.history + at * ids, host, ids * sizeof(int32_t), out);
  }
  return status ? status : flush(swap);
}

/* ---- rate ---- */

/* Reads the time of the newest copies, if it is known. */
static void learn_rate(swap_state_t *swap) {
  float ms = 0;
  if (swap->timed_bytes < TIMED_BYTES_MIN || cudaEventQuery(swap->done) != cudaSuccess) return;
  if (cudaEventElapsedTime(&ms, swap->begin, swap->done) == cudaSuccess && ms > 0)
    swap->rate = 0.75 * swap->rate + 0.25 * (double)swap->timed_bytes * 1e3 / (double)ms;
  swap->timed_bytes = 0;
}

/* Copies some blocks out, once to warm up. Nothing is in the pool yet. */
static int measure(device_t *device) {
  swap_state_t *swap = device->swap;
  block_swap_t swaps[TRIAL_BLOCKS_MAX] = {{0}};
  int32_t count = 0;
  float ms = 0;
  while (count < swap->num_blocks && count < device->kv.num_blocks - 1 &&
         count < TRIAL_BLOCKS_MAX && (size_t)count * swap->block_bytes < TRIAL_BYTES) {
    swaps[count] = (block_swap_t){count + 1, count};
    count++;
  }
  int status = copy_blocks(device, swaps, count, true);
  if (!status) status = (int)cudaEventRecord(swap->begin, swap->stream);
  if (!status) status = copy_blocks(device, swaps, count, true);
  if (!status) status = (int)cudaEventRecord(swap->done, swap->stream);
  if (!status) status = (int)cudaStreamSynchronize(swap->stream);
  if (!status) status = (int)cudaEventElapsedTime(&ms, swap->begin, swap->done);
  const double least_ms = 1e-3;
  swap->rate =
      (double)swap->block_bytes * (count > 0 ? count : 1) * 1e3 / MAX((double)ms, least_ms);
  return status;
}

/* ---- the pool ---- */

static int open_stream(swap_state_t *swap) {
  int status = (int)cudaStreamCreateWithFlags(&swap->stream, cudaStreamNonBlocking);
  if (!status) status = (int)cudaEventCreateWithFlags(&swap->steps, cudaEventDisableTiming);
  if (!status) status = (int)cudaEventCreate(&swap->begin);
  return status ? status : (int)cudaEventCreate(&swap->done);
}

/* Pinned memory is taken at once, and beyond the limit of a container the kernel ends the process
 * without a word. */
static int check_room(size_t bytes, inferd_error_t *error) {
  const size_t left = topology_memory_free();
  if (left == 0 || bytes <= left) return 0;
  return error_set(
      error, ERR_NO_MEMORY, NULL,
      "the host pool of swapped blocks takes %.2f GiB; %.2f GiB of host memory are free",
      (double)bytes / GIB, (double)left / GIB);
}

static int swap_pool(device_t *device, int32_t num_blocks, void *memory, inferd_error_t *error) {
  CHECK(memory == NULL);
  CHECK(device->swap == NULL);
  CHECK(device->kv.base);
  CHECK_GT(num_blocks, 0);
  const size_t block_bytes = gpu_kv_block_bytes(&device->kv) * (size_t)device->kv.num_layers +
                             (size_t)device->kv.block_size * sizeof(int32_t);
  const size_t bytes = device_product(block_bytes, (size_t)num_blocks, 1);
  const int code = check_room(bytes, error);
  if (code) return code;
  swap_state_t *swap = device->swap = calloc(1, sizeof *swap);
  if (swap == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for swapping");
  swap->num_blocks = num_blocks;
  swap->one_by_one = !HAS_BATCH;
  swap->block_bytes = block_bytes;
  swap->leaving = calloc(1, leaving_bytes(device));
  int status = swap->leaving != NULL ? open_stream(swap) : (int)cudaErrorMemoryAllocation;
  if (!status) status = (int)cudaMallocHost((void **)&swap->host, bytes);
  if (!status)
    status = (int)cudaStreamSynchronize(device->stream); /* the KV cache is being zeroed */
  if (!status) status = measure(device);
  if (status && swap->host != NULL && !swap->one_by_one) {
    /* a driver that does not have the call */
    (void)cudaGetLastError();
    swap->one_by_one = true;
    status = measure(device);
  }
  if (!status) return 0;
  (void)cudaGetLastError();
  device_swap_release(device);
  return error_set(error, ERR_NO_MEMORY, NULL, "the host pool of swapped blocks, %.2f GiB: %s",
                   (double)bytes / GIB, cudaGetErrorString((cudaError_t)status));
}

void device_swap_release(device_t *device) {
  swap_state_t *swap = device->swap;
  device->swap = NULL;
  if (swap == NULL) return;
  if (swap->stream != NULL) cudaStreamSynchronize(swap->stream);
  if (swap->steps != NULL) cudaEventDestroy(swap->steps);
  if (swap->begin != NULL) cudaEventDestroy(swap->begin);
  if (swap->done != NULL) cudaEventDestroy(swap->done);
  if (swap->stream != NULL) cudaStreamDestroy(swap->stream);
  if (swap->host != NULL) cudaFreeHost(swap->host);
  free(swap->leaving);
  free(swap);
}

static double swap_rate(const device_t *device) {
  return device->swap->rate;
}

/* ---- swaps and their fences ---- */

static void forget_leaving(device_t *device) {
  memset(device->swap->leaving, 0, leaving_bytes(device));
  device->swap->is_leaving = false;
}

static void wait_for_copies(device_t *device) {
  device_note(device, (int)cudaStreamWaitEvent(device->stream, device->swap->done, 0), "a swap");
  forget_leaving(device);
}

static void swap_blocks(device_t *device, const block_swap_t *swaps, int32_t count, bool out) {
  swap_state_t *swap = device->swap;
  if (count == 0) return;
  step_seal(device); /* a graph whose launch was put off */
  if (device->fault != 0) return;
  learn_rate(swap);
  device_note(device, (int)cudaEventRecord(swap->steps, device->stream), "a swap");
  device_note(device, (int)cudaStreamWaitEvent(swap->stream, swap->steps, 0), "a swap");
  device_note(device, (int)cudaEventRecord(swap->begin, swap->stream), "a swap");
  if (device->fault == 0) device_note(device, copy_blocks(device, swaps, count, out), "a swap");
  device_note(device, (int)cudaEventRecord(swap->done, swap->stream), "a swap");
  swap->timed_bytes = swap->block_bytes * (size_t)count;
  if (!out) wait_for_copies(device);
  for (int32_t i = 0; i < count && out; i++) {
    swap->leaving[swaps[i].device / WORD_BITS] |= UINT64_C(1) << swaps[i].device % WORD_BITS;
    swap->is_leaving = true;
  }
}

static void swap_out(device_t *device, const block_swap_t *swaps, int32_t count) {
  swap_blocks(device, swaps, count, true);
}

static void swap_in(device_t *device, const block_swap_t *swaps, int32_t count) {
  swap_blocks(device, swaps, count, false);
}

static bool is_leaving(const swap_state_t *swap, int64_t block) {
  return swap->leaving[block / WORD_BITS] >> block % WORD_BITS & 1;
}

void device_swap_fence(device_t *device, const batch_t *batch) {
  const swap_state_t *swap = device->swap;
  bool writes = false;
  if (swap == NULL || !swap->is_leaving) return;
  if (cudaEventQuery(swap->done) == cudaSuccess) {
    forget_leaving(device);
    return;
  }
  for (int32_t t = 0; t < batch->num_tokens && !writes; t++) {
    writes = batch->slot_mapping[t] >= 0 &&
             is_leaving(swap, batch->slot_mapping[t] / device->kv.block_size);
  }
  for (int32_t i = 0; i < batch->num_copies && !writes; i++) {
    writes = is_leaving(swap, batch->copies[i].dst);
  }
  if (writes) wait_for_copies(device);
}

const swap_ops_t cuda_swap = {.pool = swap_pool, .rate = swap_rate, .out = swap_out, .in = swap_in};
