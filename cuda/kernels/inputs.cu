/* inputs.cu: spreads the packet of a step over the arrays that the other kernels read.
 *
 * A packet of 16 T + 8 R + 4 S bytes and block-table updates is read once and written once; bound
 * by latency. Ids that the host does not know yet are taken from the results of the step before,
 * so that the host need not wait for them. Measured: not yet.
 */
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/inputs.h"

enum { INPUT_THREADS = 256, INPUT_BLOCKS_MAX = 64, HISTORY_THREADS = 64 };

template <class T> GPU_FN const T *packet_array(const gpu_inputs_t &args, int32_t offset) {
  return (const T *)((const char *)args.packet + offset);
}

GPU_FN void spread_token(const gpu_inputs_t &args, const gpu_packet_t &packet, int i) {
  if (i >= packet.num_tokens) {
    args.input_ids[i] = -1;
    args.positions[i] = 0;
    args.slots[i] = -1;
    if (packet.adapters) args.adapters[i] = 0;
    return;
  }
  int32_t id = packet_array<int32_t>(args, packet.input_ids)[i];
  if (id < 0) id = args.drawn[-1 - id].id;
  const int64_t slot = packet_array<int64_t>(args, packet.slots)[i];
  args.input_ids[i] = id;
  args.positions[i] = packet_array<int32_t>(args, packet.positions)[i];
  args.slots[i] = slot;
  if (slot >= 0) args.history[slot] = id;
  if (packet.adapters) args.adapters[i] = packet_array<int32_t>(args, packet.adapters)[i];
}

GPU_FN void spread_states(const gpu_inputs_t &args, const gpu_packet_t &packet, int first,
                          int step) {
  const int32_t *slots = packet_array<int32_t>(args, packet.state_slots);
  const int32_t *saves = packet_array<int32_t>(args, packet.first_save);
  const int32_t num_saves = saves[packet.num_reqs];
  for (int i = first; i < args.reqs; i += step)
    args.state_slots[i] = i < packet.num_reqs ? slots[i] : 0;
  for (int i = first; i <= args.reqs; i += step)
    args.first_save[i] = i <= packet.num_reqs ? saves[i] : num_saves;
  for (int i = first; i < num_saves; i += step)
    args.saves[i] = packet_array<gpu_save_t>(args, packet.saves)[i];
}

__global__ void __launch_bounds__(INPUT_THREADS) inputs_kernel(const gpu_inputs_t args) {
  const gpu_packet_t packet = *args.packet;
  const int first = blockIdx.x * INPUT_THREADS + threadIdx.x, step = gridDim.x * INPUT_THREADS;
  const int32_t *start = packet_array<int32_t>(args, packet.query_start_loc);
  const int32_t *lens = packet_array<int32_t>(args, packet.seq_lens);
  const int32_t *selected = packet_array<int32_t>(args, packet.selected);
  const gpu_update_t *updates = packet_array<gpu_update_t>(args, packet.updates);
  for (int i = first; i < args.tokens; i += step) spread_token(args, packet, i);
  for (int i = first; i <= args.reqs; i += step)
    args.query_start_loc[i] = i <= packet.num_reqs ? start[i] : packet.num_tokens;
  for (int i = first; i < args.reqs; i += step)
    args.seq_lens[i] = i < packet.num_reqs ? lens[i] : 0;
  for (int i = first; i < args.selected_rows; i += step)
    args.selected[i] = i < packet.num_selected ? selected[i] : -1;
  for (int i = first; i < packet.num_updates; i += step)
    args.block_table[updates[i].index] = updates[i].block;
  if (packet.state_slots) spread_states(args, packet, first, step);
}

__global__ void history_copy_kernel(int32_t *history, int32_t block_size,
                                    const block_copy_t *__restrict__ copies) {
  const block_copy_t copy = copies[blockIdx.x];
  const int32_t *from = history + (size_t)copy.src * block_size;
  int32_t *to = history + (size_t)copy.dst * block_size;
  for (int i = threadIdx.x; i < copy.rows; i += HISTORY_THREADS) to[i] = from[i];
}

int gpu_inputs(const gpu_inputs_t *args, gpu_stream_t stream) {
  if (args->tokens < 0 || args->reqs < 0 || args->selected_rows < 0) return cudaErrorInvalidValue;
  const int32_t most = args->tokens > args->reqs ? args->tokens : args->reqs + 1;
  int32_t blocks = (most + INPUT_THREADS - 1) / INPUT_THREADS;
  blocks = blocks > INPUT_BLOCKS_MAX ? INPUT_BLOCKS_MAX : blocks;
  return LAUNCH(inputs_kernel, ((unsigned)blocks), (INPUT_THREADS), 0, stream, *args);
}

int gpu_history_copy(int32_t *history, int32_t block_size, const block_copy_t *copies,
                     int32_t num_copies, gpu_stream_t stream) {
  if (block_size <= 0 || num_copies < 0) return cudaErrorInvalidValue;
  if (num_copies == 0) return cudaSuccess;
  return LAUNCH(history_copy_kernel, ((unsigned)num_copies), (HISTORY_THREADS), 0, stream, history,
                block_size, copies);
}
