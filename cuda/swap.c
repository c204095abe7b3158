/* swap.c: KV blocks to pinned host memory and back, on a stream of their own.
 *
 * Engine thread; the contract is engine/device/swap_ops.h. A list of blocks is one call of the
 * driver, or a call for each block where the toolkit is older than 13.0. Events are the fences:
 * copies begin behind the steps launched before; the next step begins behind an `in`, and behind an
 * `out` only where it writes to a block that is leaving, so that copies out and a step run side by
 * side. Nothing here waits but `pool`.
 */
#include "cuda/swap.h"

#include "cuda/operations.h"
#include "engine/base/check.h"

#include <stdlib.h>
#include <string.h>

static const size_t TRIAL_BYTES = (size_t)64 << 20; /* that `pool` measures with */
static const size_t TIMED_BYTES_MIN = 1 << 20;      /* less says little about the rate */
enum { TRIAL_BLOCKS_MAX = 256, WORD_BITS = 64 };

static size_t leaving_bytes(const device_t *d) {
  return ((size_t)d->kv.num_blocks / WORD_BITS + 1) * sizeof(uint64_t);
}

/* ---- copies ---- */

/* cudaMemcpyBatchAsync came with toolkit 12.8 and got its arguments with 13.0. */
enum { HAS_BATCH = CUDART_VERSION >= 13000 };

#if CUDART_VERSION >= 13000
static int copy_batch(swap_t *s, size_t count) {
  struct cudaMemcpyAttributes attributes = {.srcAccessOrder = cudaMemcpySrcAccessOrderStream};
  size_t first = 0;
  return (int)cudaMemcpyBatchAsync(s->to, s->from, s->bytes, count, &attributes, &first, 1,
                                   s->stream);
}
#else
static int copy_batch(swap_t *s, size_t count) {
  (void)s, (void)count;
  return (int)cudaErrorNotSupported;
}
#endif

static int copy_each(swap_t *s, size_t count) {
  int status = 0;
  for (size_t i = 0; i < count && !status; i++) {
    status = (int)cudaMemcpyAsync(s->to[i], s->from[i], s->bytes[i], cudaMemcpyDefault, s->stream);
  }
  return status;
}

static int flush(swap_t *s) {
  const size_t count = s->count;
  s->count = 0;
  if (count == 0) return 0;
  return s->one_by_one ? copy_each(s, count) : copy_batch(s, count);
}

static int add_copy(swap_t *s, void *device, uint8_t *host, size_t bytes, bool out) {
  int status = s->count < SWAP_COPIES_MAX ? 0 : flush(s);
  s->to[s->count] = out ? (void *)host : device;
  s->from[s->count] = out ? device : (void *)host;
  s->bytes[s->count++] = bytes;
  return status;
}

static int copy_blocks(device_t *d, const block_swap_t *swaps, int32_t count, bool out) {
  swap_t *s = d->swap;
  const size_t block = gpu_kv_block_bytes(&d->kv), ids = (size_t)d->kv.block_size;
  const size_t layer = block * (size_t)d->kv.num_blocks;
  int status = 0;
  for (int32_t i = 0; i < count && !status; i++) {
    CHECK_RANGE(swaps[i].device, 1, d->kv.num_blocks);
    CHECK_RANGE(swaps[i].host, 0, s->num_blocks);
    const size_t at = (size_t)swaps[i].device;
    uint8_t *host = s->host + (size_t)swaps[i].host * s->block_bytes;
    for (size_t l = 0; l < (size_t)d->kv.num_layers && !status; l++, host += block) {
      status = add_copy(s, (uint8_t *)d->kv.base + l * layer + at * block, host, block, out);
    }
    if (!status)
      status = add_copy(s, d->inputs.history + at * ids, host, ids * sizeof(int32_t), out);
  }
  return status ? status : flush(s);
}

/* ---- rate ---- */

/* What the newest copies took, once it is known. */
static void learn_rate(swap_t *s) {
  float ms = 0;
  if (s->timed_bytes < TIMED_BYTES_MIN || cudaEventQuery(s->done) != cudaSuccess) return;
  if (cudaEventElapsedTime(&ms, s->begin, s->done) == cudaSuccess && ms > 0)
    s->rate = 0.75 * s->rate + 0.25 * (double)s->timed_bytes * 1e3 / (double)ms;
  s->timed_bytes = 0;
}

/* Copies some blocks out, once to warm up. Nothing is in the pool yet. */
static int measure(device_t *d) {
  swap_t *s = d->swap;
  block_swap_t swaps[TRIAL_BLOCKS_MAX] = {{0}};
  int32_t count = 0;
  float ms = 0;
  while (count < s->num_blocks && count < d->kv.num_blocks - 1 && count < TRIAL_BLOCKS_MAX &&
         (size_t)count * s->block_bytes < TRIAL_BYTES) {
    swaps[count] = (block_swap_t){count + 1, count};
    count++;
  }
  int status = copy_blocks(d, swaps, count, true);
  if (!status) status = (int)cudaEventRecord(s->begin, s->stream);
  if (!status) status = copy_blocks(d, swaps, count, true);
  if (!status) status = (int)cudaEventRecord(s->done, s->stream);
  if (!status) status = (int)cudaStreamSynchronize(s->stream);
  if (!status) status = (int)cudaEventElapsedTime(&ms, s->begin, s->done);
  const double least_ms = 1e-3;
  s->rate = (double)s->block_bytes * (count > 0 ? count : 1) * 1e3 /
            ((double)ms > least_ms ? (double)ms : least_ms);
  return status;
}

/* ---- the pool ---- */

static int open_stream(swap_t *s) {
  int status = (int)cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking);
  if (!status) status = (int)cudaEventCreateWithFlags(&s->steps, cudaEventDisableTiming);
  if (!status) status = (int)cudaEventCreate(&s->begin);
  return status ? status : (int)cudaEventCreate(&s->done);
}

static int swap_pool(device_t *d, int32_t num_blocks, error_t *error) {
  CHECK(d->swap == NULL);
  CHECK(d->kv.base);
  CHECK_GT(num_blocks, 0);
  swap_t *s = d->swap = calloc(1, sizeof *s);
  if (s == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for swapping");
  s->num_blocks = num_blocks;
  s->one_by_one = !HAS_BATCH;
  s->block_bytes = gpu_kv_block_bytes(&d->kv) * (size_t)d->kv.num_layers +
                   (size_t)d->kv.block_size * sizeof(int32_t);
  s->leaving = calloc(1, leaving_bytes(d));
  size_t bytes = device_product(s->block_bytes, (size_t)num_blocks, 1);
  int status = s->leaving != NULL ? open_stream(s) : (int)cudaErrorMemoryAllocation;
  if (!status && bytes == SIZE_MAX) status = cudaErrorMemoryAllocation;
  if (!status) status = (int)cudaMallocHost((void **)&s->host, bytes);
  if (!status) status = (int)cudaStreamSynchronize(d->stream); /* the zeroes of the KV cache */
  if (!status) status = measure(d);
  if (!status) return 0;
  (void)cudaGetLastError();
  device_swap_release(d);
  return error_set(error, ERR_NO_MEMORY, NULL, "the host pool of swapped blocks, %.1f MiB: %s",
                   (double)bytes / (1024.0 * 1024.0), cudaGetErrorString((cudaError_t)status));
}

void device_swap_release(device_t *d) {
  swap_t *s = d->swap;
  d->swap = NULL;
  if (s == NULL) return;
  if (s->stream != NULL) cudaStreamSynchronize(s->stream);
  if (s->steps != NULL) cudaEventDestroy(s->steps);
  if (s->begin != NULL) cudaEventDestroy(s->begin);
  if (s->done != NULL) cudaEventDestroy(s->done);
  if (s->stream != NULL) cudaStreamDestroy(s->stream);
  if (s->host != NULL) cudaFreeHost(s->host);
  free(s->leaving);
  free(s);
}

static double swap_rate(const device_t *d) {
  return d->swap->rate;
}

/* ---- swaps and their fences ---- */

static void forget_leaving(device_t *d) {
  memset(d->swap->leaving, 0, leaving_bytes(d));
  d->swap->is_leaving = false;
}

static void wait_for_copies(device_t *d) {
  device_note(d, (int)cudaStreamWaitEvent(d->stream, d->swap->done, 0), "a swap");
  forget_leaving(d);
}

static void swap_blocks(device_t *d, const block_swap_t *swaps, int32_t count, bool out) {
  swap_t *s = d->swap;
  if (count == 0) return;
  step_seal(d); /* a graph whose launch was put off */
  if (d->fault != 0) return;
  learn_rate(s);
  device_note(d, (int)cudaEventRecord(s->steps, d->stream), "a swap");
  device_note(d, (int)cudaStreamWaitEvent(s->stream, s->steps, 0), "a swap");
  device_note(d, (int)cudaEventRecord(s->begin, s->stream), "a swap");
  if (d->fault == 0) device_note(d, copy_blocks(d, swaps, count, out), "a swap");
  device_note(d, (int)cudaEventRecord(s->done, s->stream), "a swap");
  s->timed_bytes = s->block_bytes * (size_t)count;
  if (!out) wait_for_copies(d);
  for (int32_t i = 0; i < count && out; i++) {
    s->leaving[swaps[i].device / WORD_BITS] |= UINT64_C(1) << swaps[i].device % WORD_BITS;
    s->is_leaving = true;
  }
}

static void swap_out(device_t *d, const block_swap_t *swaps, int32_t count) {
  swap_blocks(d, swaps, count, true);
}

static void swap_in(device_t *d, const block_swap_t *swaps, int32_t count) {
  swap_blocks(d, swaps, count, false);
}

static bool is_leaving(const swap_t *s, int64_t block) {
  return s->leaving[block / WORD_BITS] >> block % WORD_BITS & 1;
}

void device_swap_fence(device_t *d, const batch_t *batch) {
  const swap_t *s = d->swap;
  bool writes = false;
  if (s == NULL || !s->is_leaving) return;
  if (cudaEventQuery(s->done) == cudaSuccess) {
    forget_leaving(d);
    return;
  }
  for (int32_t t = 0; t < batch->num_tokens && !writes; t++) {
    writes =
        batch->slot_mapping[t] >= 0 && is_leaving(s, batch->slot_mapping[t] / d->kv.block_size);
  }
  for (int32_t i = 0; i < batch->num_copies && !writes; i++) {
    writes = is_leaving(s, batch->copies[i].dst);
  }
  if (writes) wait_for_copies(d);
}

const swap_ops_t cuda_swap = {.pool = swap_pool, .rate = swap_rate, .out = swap_out, .in = swap_in};
