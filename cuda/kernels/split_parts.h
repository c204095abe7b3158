/* split_parts.h: blocks that share a tile of a linear layer of few rows: each has some spans of K.
 *
 * Device functions of gemm_skinny.cu, gemm_qkv.cu and gemm_packed.cu. Each block leaves the sums of
 * its spans in memory, and the last one to arrive adds all of them, in order.
 */
#ifndef INFERD_CUDA_KERNELS_SPLIT_PARTS_H
#define INFERD_CUDA_KERNELS_SPLIT_PARTS_H

#include "cuda/kernels/skinny_parts.h"

enum { SPLIT_MAX = 4 };

/* Where a split leaves the sum of a span, a tile row of all blocks and a token. */
GPU_FN float *partial_at(const gpu_skinny_t &args, int span, int row, int token) {
  const size_t rows = (size_t)weight_tiles(args) * 16;
  return args.partial + ((size_t)span * rows + row) * args.rows + token;
}

/* Leaves this block's spans in memory. True in the block that was the last of its tile: then all
 * spans are there. */
template <int TOKENS, int TILES>
GPU_FN bool meet_blocks(const gpu_skinny_t &args, skinny_shared_t<TOKENS, TILES> &shared) {
  const int mine = SPANS / gridDim.y, first = blockIdx.y * mine, rows = TILES * 16;
  for (int i = threadIdx.x; i < mine * rows * args.rows; i += SKINNY_THREADS) {
    const int token = i % args.rows, row = i / args.rows % rows,
              span = first + i / args.rows / rows;
    const int tile_row = blockIdx.x * rows + row;
    if (tile_row / 16 >= weight_tiles(args)) continue;
    *partial_at(args, span, tile_row, token) =
        shared.sums[span][row][sum_column<TOKENS>(row, token)];
  }
  __threadfence(); /* the sums are visible before the ticket is */
  __syncthreads();
  if (threadIdx.x == 0) {
    shared.last = atomicAdd(&args.tickets[blockIdx.x], 1) == (int)gridDim.y - 1;
    if (shared.last) args.tickets[blockIdx.x] = 0; /* as the next launch expects it */
  }
  __syncthreads();
  __threadfence();
  return shared.last;
}

/* The sums of rows `row` and row + 8 of tile `at` that all its blocks left, added in order. */
GPU_FN float2 add_partials(const gpu_skinny_t &args, int at, int row, int token) {
  float2 sums = make_float2(0.0f, 0.0f);
  for (int span = 0; span < SPANS; span++) {
    sums.x = add_rn(sums.x, __ldcg(partial_at(args, span, at * 16 + row, token)));
    sums.y = add_rn(sums.y, __ldcg(partial_at(args, span, at * 16 + row + 8, token)));
  }
  return sums;
}

/* Adds these sums and writes the results. */
template <class T, int TOKENS, int TILES> GPU_FN void write_partials(const gpu_skinny_t &args) {
  for (int i = threadIdx.x; i < TILES * 8 * TOKENS * 8; i += SKINNY_THREADS) {
    const int row = i % 8, at = blockIdx.x * TILES + i / 8 % TILES, token = i / (8 * TILES);
    if (token >= args.rows || at >= weight_tiles(args)) continue;
    const float2 sums = add_partials(args, at, row, token);
    write_pair<T>(args, token, at, row, sums.x, sums.y);
  }
}

/* Blocks that share a tile: so many that every multiprocessor has one. */
inline unsigned split_of(const gpu_skinny_t &args, unsigned blocks) {
  unsigned split = 1;
  if (args.partial == nullptr || args.tickets == nullptr) return 1;
  while (split < SPLIT_MAX && blocks * split < (unsigned)args.workers) split *= 2;
  return split;
}

#endif
