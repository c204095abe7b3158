/* inputs.cu: spreads the packet of a step over the arrays that the other kernels read.
 *
 * A packet of 16 T + 8 R + 4 S bytes and block-table updates is read once and written once; bound
 * by latency. Ids that the host does not know yet are taken from the results of the step before,
 * so that the host need not wait for them. A replayed graph reads the packet where the host wrote
 * it, over the bus, one trip for the header and one for the arrays: no thread waits for two of
 * them. Measured: not yet.
 */
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/inputs.h"

enum {
  INPUT_THREADS = 256,
  INPUT_BLOCKS_MAX = 64,
  FETCH_BLOCKS = 32,
  FETCH_AHEAD = 4, /* vectors that a thread has under way */
  HISTORY_THREADS = 64
};

/* A packet, its header in registers. */
typedef struct packet_view {
  gpu_packet_t header;
  const char *bytes;
} packet_view_t;

template <class T> GPU_FN const T *packet_array(const packet_view_t &packet, int32_t offset) {
  return (const T *)(packet.bytes + offset);
}

/* Copies the packet to the device, for the kernels behind this one. */
GPU_FN void copy_packet(const gpu_inputs_t &args, const packet_view_t &packet, int first,
                        int step) {
  const int vectors = (packet.header.bytes + 15) / 16;
  uint4 *to = (uint4 *)args.packet;
  for (int at = first; at < vectors; at += FETCH_AHEAD * step) {
    uint4 value[FETCH_AHEAD];
    UNROLL
    for (int j = 0; j < FETCH_AHEAD; j++) {
      const int from = at + j * step < vectors ? at + j * step : at;
      value[j] = load_16(packet.bytes + (size_t)from * 16);
    }
    UNROLL
    for (int j = 0; j < FETCH_AHEAD; j++)
      if (at + j * step < vectors) store_16(to + at + j * step, value[j]);
  }
}

GPU_FN void spread_token(const gpu_inputs_t &args, const packet_view_t &view, int i) {
  const gpu_packet_t &packet = view.header;
  if (i >= packet.num_tokens) {
    args.input_ids[i] = -1;
    args.positions[i] = 0;
    args.slots[i] = -1;
    if (packet.adapters) args.adapters[i] = 0;
    return;
  }
  int32_t id = packet_array<int32_t>(view, packet.input_ids)[i];
  const int32_t position = packet_array<int32_t>(view, packet.positions)[i];
  const int64_t slot = packet_array<int64_t>(view, packet.slots)[i];
  const int32_t adapter = packet.adapters ? packet_array<int32_t>(view, packet.adapters)[i] : 0;
  if (id < 0) id = args.drawn[-1 - id].id;
  args.input_ids[i] = id;
  args.positions[i] = position;
  args.slots[i] = slot;
  if (slot >= 0) args.history[slot] = id;
  if (packet.adapters) args.adapters[i] = adapter;
}

GPU_FN void spread_states(const gpu_inputs_t &args, const packet_view_t &view, int first,
                          int step) {
  const gpu_packet_t &packet = view.header;
  const int32_t *slots = packet_array<int32_t>(view, packet.state_slots);
  const int32_t *saves = packet_array<int32_t>(view, packet.first_save);
  const int32_t num_saves = saves[packet.num_reqs];
  for (int i = first; i < args.reqs; i += step)
    args.state_slots[i] = i < packet.num_reqs ? slots[i] : 0;
  for (int i = first; i <= args.reqs; i += step)
    args.first_save[i] = i <= packet.num_reqs ? saves[i] : num_saves;
  for (int i = first; i < num_saves; i += step)
    args.saves[i] = packet_array<gpu_save_t>(view, packet.saves)[i];
}

GPU_FN void spread_rows(const gpu_inputs_t &args, const packet_view_t &view, int first, int step) {
  const gpu_packet_t &packet = view.header;
  const int32_t *start = packet_array<int32_t>(view, packet.query_start_loc);
  const int32_t *lens = packet_array<int32_t>(view, packet.seq_lens);
  for (int i = first; i <= args.reqs; i += step)
    args.query_start_loc[i] = i <= packet.num_reqs ? start[i] : packet.num_tokens;
  for (int i = first; i < args.reqs; i += step)
    args.seq_lens[i] = i < packet.num_reqs ? lens[i] : 0;
}

/* Leaves the turn of the next launch, once all blocks have read their own. */
GPU_FN void pass_turn(const gpu_inputs_t &args, int32_t turn) {
  __syncthreads(); /* all threads have read it */
  if (threadIdx.x > 0) return;
  __threadfence();
  if (atomicAdd(&args.turn[1], 1) < (int)gridDim.x - 1) return;
  __threadfence(); /* what the others have read is older than what is stored */
  args.turn[0] = (turn + 1) % GPU_PACKETS;
  args.turn[1] = 0;
}

__global__ void __launch_bounds__(INPUT_THREADS) inputs_kernel(const gpu_inputs_t args) {
  const int32_t turn = args.turn[0];
  const gpu_packet_t *from = args.host[0] != nullptr ? args.host[turn] : args.packet;
  const packet_view_t view = {*from, (const char *)from};
  const int step = gridDim.x * INPUT_THREADS;
  /* The arrays begin at different threads, so that short ones are under way at the same time. */
  const int first = blockIdx.x * INPUT_THREADS + threadIdx.x, eighth = (step + 7) / 8;
  const int32_t *selected = packet_array<int32_t>(view, view.header.selected);
  const gpu_update_t *updates = packet_array<gpu_update_t>(view, view.header.updates);
  if (args.host[0] != nullptr) copy_packet(args, view, (first + 4 * eighth) % step, step);
  for (int i = first; i < args.tokens; i += step) spread_token(args, view, i);
  spread_rows(args, view, (first + eighth) % step, step);
  for (int i = (first + 2 * eighth) % step; i < args.selected_rows; i += step)
    args.selected[i] = i < view.header.num_selected ? selected[i] : -1;
  for (int i = (first + 3 * eighth) % step; i < view.header.num_updates; i += step)
    args.block_table[updates[i].index] = updates[i].block;
  if (view.header.state_slots) spread_states(args, view, (first + 5 * eighth) % step, step);
  pass_turn(args, turn);
}

__global__ void history_copy_kernel(int32_t *history, int32_t block_size,
                                    const block_copy_t *__restrict__ copies) {
  const block_copy_t copy = copies[blockIdx.x];
  const int32_t *from = history + (size_t)copy.src * block_size;
  int32_t *to = history + (size_t)copy.dst * block_size;
  for (int i = threadIdx.x; i < copy.rows; i += HISTORY_THREADS) to[i] = from[i];
}

int gpu_code(int32_t *made) {
  struct cudaFuncAttributes loaded = {};
  const cudaError_t status = cudaFuncGetAttributes(&loaded, (const void *)inputs_kernel);
  if (status != cudaSuccess) (void)cudaGetLastError();
  *made = status == cudaSuccess && loaded.binaryVersion > loaded.ptxVersion;
  return status;
}

int gpu_inputs(const gpu_inputs_t *args, gpu_stream_t stream) {
  if (args->tokens < 0 || args->reqs < 0 || args->selected_rows < 0) return cudaErrorInvalidValue;
  const int32_t most = args->tokens > args->reqs ? args->tokens : args->reqs + 1;
  int32_t blocks = (most + INPUT_THREADS - 1) / INPUT_THREADS;
  blocks = blocks > INPUT_BLOCKS_MAX ? INPUT_BLOCKS_MAX : blocks;
  if (args->host[0] != nullptr && blocks < FETCH_BLOCKS) blocks = FETCH_BLOCKS;
  return LAUNCH(inputs_kernel, ((unsigned)blocks), (INPUT_THREADS), 0, stream, *args);
}

int gpu_history_copy(int32_t *history, int32_t block_size, const block_copy_t *copies,
                     int32_t num_copies, gpu_stream_t stream) {
  if (block_size <= 0 || num_copies < 0) return cudaErrorInvalidValue;
  if (num_copies == 0) return cudaSuccess;
  return LAUNCH(history_copy_kernel, ((unsigned)num_copies), (HISTORY_THREADS), 0, stream, history,
                block_size, copies);
}
