/* swap.c: KV blocks to memory that the engine lends, which is a mapped file, and back.
 *
 * Engine thread; pool workers copy. The contract is engine/device/swap_ops.h. The cache itself is
 * in host memory, so a block that is preempted gains nothing by a copy: only a floor of the prefix
 * cache that outlives the process does. A host block has the layers of a block side by side.
 */
#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/kv.h"

#include <string.h>

static const double RATE_FIRST = 5e9;       /* bytes a second, before any copy was timed */
static const uint64_t TIMED_NS_MIN = 20000; /* shorter copies do not show the rate */

static int swap_pool(device_t *device, int32_t num_blocks, void *memory, inferd_error_t *error) {
  (void)error;
  CHECK(memory != NULL);
  CHECK(device->kv_base != NULL);
  device->swap_base = memory;
  device->swap_blocks = num_blocks;
  device->swap_rate = RATE_FIRST;
  return 0;
}

static double swap_rate(const device_t *device) {
  return device->swap_rate;
}

typedef struct swapping {
  const device_t *device;
  const block_swap_t *swaps;
  bool out;
} swapping_t;

static void copy(uint8_t *kept, uint8_t *cached, size_t bytes, bool out) {
  memcpy(out ? kept : cached, out ? cached : kept, bytes);
}

static void swap_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const swapping_t *job = context;
  const device_t *device = job->device;
  for (int64_t i = first; i < last; i++) {
    const block_swap_t *swap = &job->swaps[i];
    uint8_t *kept = device->swap_base + (size_t)swap->host * device->kv_block_bytes;
    if (device->kv.window_heads > 0) { /* the layers lie side by side here, too */
      copy(kept, kv_block(device, 0, swap->device), device->kv_block_bytes, job->out);
      continue;
    }
    for (int32_t layer = 0; layer < device->kv.num_layers; layer++) {
      size_t bytes = kv_kind(device, layer)->block_bytes;
      copy(kept, kv_block(device, layer, swap->device), bytes, job->out);
      kept += bytes;
    }
  }
}

static void swap_all(device_t *device, const block_swap_t *swaps, int32_t count, bool out) {
  swapping_t job = {device, swaps, out};
  uint64_t begun_ns = clock_now_ns();
  for (int32_t i = 0; i < count; i++) {
    CHECK_RANGE(swaps[i].device, 1, device->kv.num_blocks);
    CHECK_RANGE(swaps[i].host, 0, device->swap_blocks);
  }
  pool_run(device->pool, swap_task, &job, count, 1);
  uint64_t ns = clock_now_ns() - begun_ns;
  if (ns < TIMED_NS_MIN) return;
  double rate = (double)count * (double)device->kv_block_bytes * 1e9 / (double)ns;
  device->swap_rate = 0.75 * device->swap_rate + 0.25 * rate;
}

static void swap_out(device_t *device, const block_swap_t *swaps, int32_t count) {
  swap_all(device, swaps, count, true);
}

static void swap_in(device_t *device, const block_swap_t *swaps, int32_t count) {
  swap_all(device, swaps, count, false);
}

const swap_ops_t cpu_swap_ops = {
    .is_lent = true, .pool = swap_pool, .rate = swap_rate, .out = swap_out, .in = swap_in};
