/* tiled_parts.h: a block's share of a linear layer of many rows: 128 weight rows, 128 tokens.
 *
 * Device functions of gemm_tiled.cu, gemm_packed.cu and moe.cu: 256 threads; both operands pass
 * through a ring of cp.async stages of 32 columns, a warp multiplies 64 weight rows and 32 tokens
 * with mma.sync. Spans of K are summed and added as linear_parts.h says.
 */
#ifndef INFERD_CUDA_KERNELS_TILED_PARTS_H
#define INFERD_CUDA_KERNELS_TILED_PARTS_H

#include "cuda/kernels/linear_parts.h"

enum { TILED_WARPS = 8, TILED_THREADS = TILED_WARPS * WARP, SIDE = 128, TILED_STAGES = 4 };
enum { WARP_TILES = 4, WARP_TOKENS = 4 }; /* of 16 weight rows, of 8 tokens */
enum { ROW_BYTES = STEP_K * 2, ROW_CHUNKS = ROW_BYTES / KV_CHUNK };

/* A row's 64 bytes lie beside the next row's: eight lanes read 128 neighbouring bytes. */
typedef struct tiled_shared {
  uint8_t weights[TILED_STAGES][SIDE * ROW_BYTES], tokens[TILED_STAGES][SIDE * ROW_BYTES];
} tiled_shared_t;

/* Starts the copies of one step's inputs, which end its group; past the end of K an empty one. */
template <class T>
GPU_FN void load_tokens(const gpu_skinny_t &args, int first, int step, tiled_shared_t *shared) {
  const int column = step * STEP_K, stage = step % TILED_STAGES;
  UNROLL
  for (int j = 0; column < args.k && j < SIDE * ROW_CHUNKS / TILED_THREADS; j++) {
    const int i = j * TILED_THREADS + threadIdx.x, token = first + i / ROW_CHUNKS;
    const int at = column + i % ROW_CHUNKS * VECTOR;
    const bool has_token = token < args.rows && at < args.k;
    const T *in = has_token ? input_row<T>(args, token) + at : (const T *)args.in;
    cp_async_16(shared->tokens[stage] + i * KV_CHUNK, in, has_token ? KV_CHUNK : 0);
  }
  cp_async_commit();
}

/* The same for weights and inputs. */
template <class T>
GPU_FN void load_step(const gpu_skinny_t &args, int first, int step, tiled_shared_t *shared) {
  const int column = step * STEP_K, stage = step % TILED_STAGES;
  UNROLL
  for (int j = 0; column < args.k && j < SIDE * ROW_CHUNKS / TILED_THREADS; j++) {
    const int i = j * TILED_THREADS + threadIdx.x, row = i / ROW_CHUNKS;
    const int at = column + i % ROW_CHUNKS * VECTOR;
    const int n = weight_row(args, blockIdx.x * (SIDE / 16) + row / 16, row % 16);
    const bool has_weight = n >= 0 && at < args.k;
    const T *weight = (const T *)args.weight + (has_weight ? (size_t)n * args.k + at : 0);
    cp_async_16(shared->weights[stage] + i * KV_CHUNK, weight, has_weight ? KV_CHUNK : 0);
  }
  load_tokens<T>(args, first, step, shared);
}

typedef float warp_sums_t[WARP_TILES][WARP_TOKENS][4];

/* One step of 32 columns for the warp's 64 weight rows and 32 tokens. */
template <class T>
GPU_FN void multiply_step(const tiled_shared_t *shared, int stage, warp_sums_t &acc) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int rows = warp % 2 * WARP_TILES * 16, tokens = warp / 2 * WARP_TOKENS * 8;
  const int at = lane / 4 * ROW_BYTES + lane % 4 * KV_CHUNK;
  uint4 x[WARP_TOKENS];
  UNROLL
  for (int m = 0; m < WARP_TOKENS; m++)
    x[m] = load_16(shared->tokens[stage] + (tokens + m * 8) * ROW_BYTES + at);
  UNROLL
  for (int r = 0; r < WARP_TILES; r++) {
    const uint8_t *from = shared->weights[stage] + (rows + r * 16) * ROW_BYTES + at;
    const uint4 low = load_16(from), high = load_16(from + 8 * ROW_BYTES);
    UNROLL
    for (int m = 0; m < WARP_TOKENS; m++) multiply<T>(acc[r][m], low, high, x[m]);
  }
}

/* Adds a span's sums to those of the spans before it. */
GPU_FN void end_span(warp_sums_t &total, warp_sums_t &acc) {
  UNROLL
  for (int r = 0; r < WARP_TILES; r++) {
    UNROLL
    for (int m = 0; m < WARP_TOKENS; m++) {
      for (int i = 0; i < 4; i++) {
        total[r][m][i] = add_rn(total[r][m][i], acc[r][m][i]);
        acc[r][m][i] = 0.0f;
      }
    }
  }
}

/* Writes the sums of the warp's weight rows and tokens. */
template <class T>
GPU_FN void write_tile(const gpu_skinny_t &args, int first, const warp_sums_t &total) {
  const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
  const int tile = blockIdx.x * (SIDE / 16) + warp % 2 * WARP_TILES;
  const int token = first + warp / 2 * WARP_TOKENS * 8 + lane % 4 * 2;
  UNROLL
  for (int r = 0; r < WARP_TILES; r++) {
    UNROLL
    for (int m = 0; m < WARP_TOKENS; m++) {
      for (int i = 0; i < 2; i++)
        write_pair<T>(args, token + m * 8 + i, tile + r, lane / 4, total[r][m][i],
                      total[r][m][2 + i]);
    }
  }
}

/* 128 weight rows times the tokens from `first` on; blockIdx.x counts the weight rows. */
template <class T>
GPU_FN void tiled_block(const gpu_skinny_t &args, int first, tiled_shared_t *shared) {
  const int steps = (args.k + STEP_K - 1) / STEP_K, span_steps = span_columns(args.k) / STEP_K;
  warp_sums_t acc = {}, total = {};
  for (int i = 0; i < TILED_STAGES - 1; i++) load_step<T>(args, first, i, shared);
  for (int step = 0; step < steps; step++) {
    cp_async_wait<TILED_STAGES - 2>();
    __syncthreads(); /* the copies of this step are complete, and the one before has been read */
    load_step<T>(args, first, step + TILED_STAGES - 1, shared);
    multiply_step<T>(shared, step % TILED_STAGES, acc);
    if ((step + 1) % span_steps == 0 || step + 1 == steps) end_span(total, acc);
  }
  cp_async_wait<0>();
  write_tile<T>(args, first, total);
}

#endif
