/* swap_ops.h: the part of the back end interface that copies KV blocks to host memory and back.
 *
 * A back end has all functions or none (ops_t.swap is NULL). The back end owns the host pool, which
 * `pool` makes and `close` frees, page-locked if that makes copies faster. The engine numbers its
 * blocks 0 .. num_blocks - 1, keeps the records of their content (engine/schedule/swap.c) and never
 * reads them. A host block has room for all that a KV block holds: K and V of every layer, and what
 * the back end stores with them (ids, scales). A block that was swapped out, and back in to any
 * block number, must be the same bit for bit for every later step.
 *
 * The engine thread calls `out` or `in` before the `begin` of the step that they were planned with,
 * or without a step if that plan has no rows; never both between two steps. The list is read during
 * the call only, and names no destination twice. Steps and copies must behave as if they ran in one
 * queue, in the order of the calls; a step whose launch the back end has deferred runs first. A
 * back end that copies on a separate stream must therefore ensure:
 *  - the copies of `out` begin after the steps launched before have ended: in-flight steps may
 *    still write rows of these blocks, and these rows are part of what is swapped out;
 *  - the engine reuses the device blocks of `out` at once: the step launched next may write to them
 *    by a block copy or in its forward, so neither begins before the copies of `out` have ended;
 *  - the copies of `in` begin after the steps launched before have ended: these steps may still
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

#include <stdint.h>

struct device;

typedef struct block_swap {
  int32_t device; /* block of the KV pool, >= 1 */
  int32_t host;   /* block of the host pool, >= 0 */
} block_swap_t;

typedef struct swap_ops {
  /* Set-up, once, after kv_cache: allocates num_blocks >= 1 host blocks of kv_bytes(desc, 1) bytes.
   * Returns 0; or ERR_NO_MEMORY, and then the device works without swapping and holds no host
   * memory. */
  int (*pool)(struct device *device, int32_t num_blocks, inferd_error_t *error);
  /* Bytes per second in one direction, > 0: measured by `pool`, then updated by the swaps. */
  double (*rate)(const struct device *device);
  void (*out)(struct device *device, const block_swap_t *swaps, int32_t count); /* to the host */
  void (*in)(struct device *device, const block_swap_t *swaps, int32_t count);  /* to the device */
} swap_ops_t;

#endif
