/* swap_ops.h: the part of the ops seam that moves KV blocks to host memory and back.
 *
 * A back end has all of it or none (ops_t.swap NULL). The host pool is the back end's memory,
 * page-locked where copies gain by it, made by `pool` and freed by `close`. The engine counts its
 * blocks, 0 .. num_blocks - 1, says what lies where (engine/schedule/swap.c), and never looks
 * inside. A host block takes all that a KV block holds: K and V of every layer, and what the back
 * end keeps beside them (ids, scales). A block that was swapped out, and in again to any number, is
 * the same bit for bit to every later step.
 *
 * `out` and `in` launch, on the engine thread, before the `begin` of the step that they were
 * planned with, or with no step at all when that plan has no rows; never both between two steps.
 * The list is read during the call only; no block is written twice by it. Everything happens as if
 * in one queue, in the order of the calls, steps included: a step whose launch was put off goes
 * first. What a back end that copies on a stream of its own has to fence for that:
 *  - the copies of `out` begin when the steps launched before have ended: those in flight may still
 *    write rows of these blocks, and such rows belong to what is swapped out;
 *  - the engine gives the device blocks away at once: the step launched next may write to them by a
 *    page copy or its forward, so neither begins before the copies of `out` are done;
 *  - the copies of `in` begin when the steps launched before have ended: these may still read or
 *    write a device block that a request which has left gave back; they are done before the page
 *    copies and the forward of the step launched next begin;
 *  - the host blocks of an `in` are free at once: an `out` of a later step may write to them, and
 *    its copies come behind.
 * Neither call waits for the device, and neither counts as a step in flight: the `end` of the step
 * launched next covers both and reports their faults. `close` may come while copies run.
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
  /* Set-up, once, after kv_cache: takes num_blocks >= 1 host blocks of kv_bytes(desc, 1) bytes. 0,
   * or ERR_NO_MEMORY: then the device goes on without swapping, and nothing is left behind. */
  int (*pool)(struct device *device, int32_t num_blocks, inferd_error_t *error);
  /* Bytes per second of one direction, > 0: `pool` measures first, then the swaps themselves do. */
  double (*rate)(const struct device *device);
  void (*out)(struct device *device, const block_swap_t *swaps, int32_t count); /* to the host */
  void (*in)(struct device *device, const block_swap_t *swaps, int32_t count);  /* to the device */
} swap_ops_t;

#endif
