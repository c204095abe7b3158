/* packed_tiled_parts.h: tiled_parts.h for weights that are packed (device_code/kernel_types.h).
 *
 * Device functions of gemm_packed.cu and moe.cu. A thread unpacks eight columns of each of its rows
 * into the tile in shared memory; the codes of the next step are on their way meanwhile. The sums
 * are those of the plain kernel.
 */
#ifndef INFERD_CUDA_KERNELS_PACKED_TILED_PARTS_H
#define INFERD_CUDA_KERNELS_PACKED_TILED_PARTS_H

#include "cuda/device_code/packed.h"
#include "cuda/kernels/tiled_parts.h"

/* What a thread unpacks of a step: eight columns of each of its rows. */
enum { THREAD_CHUNKS = SIDE * ROW_CHUNKS / TILED_THREADS };
struct packed_step_t {
  uint2 codes[THREAD_CHUNKS];
  raw_scale_t scales[THREAD_CHUNKS];
};

template <int CODES>
GPU_FN void load_packed_step(const gpu_skinny_t &args, int step, packed_step_t &out) {
  UNROLL
  for (int j = 0; j < THREAD_CHUNKS; j++) {
    const int i = j * TILED_THREADS + threadIdx.x, row = i / ROW_CHUNKS;
    const int at = step * STEP_K + i % ROW_CHUNKS * VECTOR;
    const int n = weight_row(args, blockIdx.x * (SIDE / 16) + row / 16, row % 16);
    out.codes[j] = out.scales[j] = make_uint2(0, 0);
    if (n < 0 || at >= args.k) continue;
    load_packed_8<CODES>(args.packed, args.weight, n, at, &out.codes[j], &out.scales[j]);
  }
}

template <class T, int CODES>
GPU_FN void store_packed_step(const gpu_skinny_t &args, int step, const packed_step_t &from,
                              tiled_shared_t *shared) {
  UNROLL
  for (int j = 0; j < THREAD_CHUNKS; j++)
    store_16(shared->weights[step % TILED_STAGES] + (j * TILED_THREADS + threadIdx.x) * KV_CHUNK,
             unpack_8<T, CODES, ANY_SCALES, GPU_UNPACK_STEPS>(args.packed, from.codes[j],
                                                              from.scales[j]));
}

/* tiled_block for packed weights. */
template <class T, int CODES>
GPU_FN void packed_block(const gpu_skinny_t &args, int first, tiled_shared_t *shared) {
  const int steps = (args.k + STEP_K - 1) / STEP_K, span_steps = span_columns(args.k) / STEP_K;
  warp_sums_t acc = {}, total = {};
  packed_step_t next;
  for (int i = 0; i < TILED_STAGES - 1; i++) {
    load_tokens<T>(args, first, i, shared);
    load_packed_step<CODES>(args, i, next);
    store_packed_step<T, CODES>(args, i, next, shared);
  }
  load_packed_step<CODES>(args, TILED_STAGES - 1, next);
  for (int step = 0; step < steps; step++) {
    const int ahead = step + TILED_STAGES - 1;
    cp_async_wait<TILED_STAGES - 2>();
    __syncthreads(); /* this step is complete, and the one before has been read */
    load_tokens<T>(args, first, ahead, shared);
    store_packed_step<T, CODES>(args, ahead, next, shared);
    load_packed_step<CODES>(args, ahead + 1, next);
    multiply_step<T>(shared, step % TILED_STAGES, acc);
    if ((step + 1) % span_steps == 0 || step + 1 == steps) end_span(total, acc);
  }
  cp_async_wait<0>();
  write_tile<T>(args, first, total);
}

#endif
