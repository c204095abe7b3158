/* slots.cu: copies of whole slots of states, for forks and from snapshots.
 *
 * Each thread has some numbers of all slots and makes the copies in their order, so a later copy
 * may read what an earlier one wrote. Moves 2 * values * 4 bytes a copy; bound by bandwidth, and
 * rare. Measured: not yet.
 */
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/state/state.h"

enum { SLOT_THREADS = 256 };
static const int64_t SLOT_BLOCKS_MAX = 1024;

__global__ void __launch_bounds__(SLOT_THREADS)
    state_copy_kernel(uint4 *slots, int64_t vectors, const gpu_state_copy_t *__restrict__ copies,
                      int32_t num_copies) {
  const int64_t first = (int64_t)blockIdx.x * SLOT_THREADS + threadIdx.x;
  for (int64_t i = first; i < vectors; i += (int64_t)gridDim.x * SLOT_THREADS)
    for (int c = 0; c < num_copies; c++)
      slots[copies[c].dst * vectors + i] = slots[copies[c].src * vectors + i];
}

int gpu_state_copies(float *slots, int64_t values, const gpu_state_copy_t *copies,
                     int32_t num_copies, gpu_stream_t stream) {
  if (values <= 0 || values % GPU_STATE_ALIGN != 0 || num_copies < 0) return cudaErrorInvalidValue;
  if (num_copies == 0) return cudaSuccess;
  const int64_t vectors = values / GPU_STATE_ALIGN;
  const int64_t all = (vectors + SLOT_THREADS - 1) / SLOT_THREADS;
  const unsigned blocks = (unsigned)(all < SLOT_BLOCKS_MAX ? all : SLOT_BLOCKS_MAX);
  return LAUNCH(state_copy_kernel, (blocks), (SLOT_THREADS), 0, stream, (uint4 *)slots, vectors,
                copies, num_copies);
}
