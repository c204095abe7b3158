/* swap.h: the host pool of swapped KV blocks, and the stream of their copies.
 *
 * Part of device_t; engine thread. The calls of ops_t.swap are described in
 * engine/device/swap_ops.h.
 */
#ifndef INFERD_CUDA_SWAP_H
#define INFERD_CUDA_SWAP_H

#include "cuda/device.h"

enum { SWAP_COPIES_MAX = 1024 /* of one call of the driver */ };

typedef struct swap_state {
  uint8_t *host; /* pinned, [num_blocks, block_bytes]: K and V of every layer, then the ids */
  size_t block_bytes;
  int32_t num_blocks;
  cudaStream_t stream;
  cudaEvent_t steps;       /* the steps launched before the newest copies */
  cudaEvent_t begin, done; /* of the newest copies */
  size_t timed_bytes;      /* of them; 0 = their time is known */
  double rate;             /* bytes per second */
  uint64_t *leaving;       /* bit per device block: its copy out may still be running */
  bool is_leaving;         /* true if a bit of `leaving` is set */
  void *to[SWAP_COPIES_MAX];
  const void *from[SWAP_COPIES_MAX];
  size_t bytes[SWAP_COPIES_MAX];
  size_t count;
  bool one_by_one; /* toolkit or driver cannot copy a list in one call */
} swap_state_t;

extern const swap_ops_t cuda_swap;
/* Call before a step is launched: the step waits for copies out of blocks to which it writes. */
void device_swap_fence(device_t *device, const batch_t *batch);
void device_swap_release(device_t *device);

#endif
