/* swap_ops.h: the part of the back end interface that copies KV blocks to host memory and back.
 *
 * A back end has all functions or none (ops_t.swap is NULL). The back end owns the host pool, which
 * `pool` makes and `close` frees, page-locked if that makes copies faster; or the engine lends it
 * the memory of one (`is_lent`), which lives longer than the device. The engine numbers its blocks
 * 0 .. num_blocks - 1, and keeps the records of their content (engine/schedule/swap.c, floor.c). A
 * host block has room for all that a KV block holds: K and V of every layer, and what the back end
 * stores with them (ids, scales). A block that was swapped out, and back in to any block number,
 * must be the same bit for bit for every later step.
 *
 * The engine thread calls `out` and then `in`, or one of them, before the `begin` of the step that
 * they were planned with, or without a step if that plan has no rows; each up to twice. The list is
 * read during the call only, and names no destination twice. Steps and copies must behave as if
 * they ran in one queue, in the order of the calls; a step whose launch the back end has deferred
 * runs first. A back end that copies on a separate stream must therefore ensure:
 *  - the copies of `out` begin after the steps launched before have ended: in-flight steps may
 *    still write rows of these blocks, and these rows are part of what is swapped out;
 *  - the engine reuses the device blocks of `out` at once: the step launched next may write to them
 *    by a block copy or in its forward, so neither begins before the copies of `out` have ended;
 *  - the copies of `in` begin after those of an `out` before it, which may read the same device
 *    blocks, and after the steps launched before have ended: these steps may still
 *    read or write a device block that a finished request has released; the copies end before the
 *    block copies and the forward of the step launched next begin;
 *  - the host blocks of `in` are free at once: an `out` of a later step may write to them, and its
 *    copies run after those of `in`.
 * Neither call waits for the device or counts as an in-flight step: the `end` of the step launched
 * next covers both and reports their faults. `close` may be called while copies run.
 */
#ifndef INFERD_ENGINE_DEVICE_SWAP_OPS_H
#define INFERD_ENGINE_DEVICE_SWAP_OPS_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct device;

typedef struct block_swap {
  int32_t device; /* block of the KV pool, >= 1 */
  int32_t host;   /* block of the host pool, >= 0 */
} block_swap_t;

typedef struct swap_ops {
  /* The KV cache is in host memory. There is no use in a second pool of it, only in one that is
   * more: the mapping of a file. Copies end within the call. */
  bool is_lent;
  /* Set-up, once, after kv_cache: allocates num_blocks >= 1 host blocks of kv_bytes(desc, 1) bytes,
   * or, if the pool is lent, takes `memory`, which has so many side by side. Returns 0; or
   * ERR_NO_MEMORY, and then the device works without swapping and holds no host memory. */
  int (*pool)(struct device *device, int32_t num_blocks, void *memory, inferd_error_t *error);
  /* Bytes per second in one direction, > 0: measured by `pool`, then updated by the swaps. */
  double (*rate)(const struct device *device);
  void (*out)(struct device *device, const block_swap_t *swaps, int32_t count); /* to the host */
  void (*in)(struct device *device, const block_swap_t *swaps, int32_t count);  /* to the device */
} swap_ops_t;

#endif
