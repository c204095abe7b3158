/* skinny_sums.h: what a block of few rows keeps in shared memory: the sums of its spans of K.
 *
 * Device functions of skinny_parts.h and split_parts.h.
 */
#ifndef INFERD_CUDA_KERNELS_SKINNY_SUMS_H
#define INFERD_CUDA_KERNELS_SKINNY_SUMS_H

#include "cuda/kernels/linear_parts.h"

enum { SKINNY_WARPS = 8, SKINNY_THREADS = SKINNY_WARPS * WARP };

/* TOKENS: groups of eight rows; TILES: weight tiles of a block. Tokens of a row of sums are mixed
 * (sum_column). */
template <int TOKENS, int TILES> struct skinny_shared_t {
  float sums[SPANS][TILES * 16][TOKENS * 8];
  float inverse[TOKENS * 8]; /* 1 / rms of each row */
  int last;
};

/* Column of a token in a row of sums. Mixed by the row, so that neither the pairs that the lanes of
 * an mma store nor the rows that write_spans reads meet in a bank. Pairs of tokens stay together.
 */
template <int TOKENS> GPU_FN int sum_column(int row, int token) {
  return token ^ (row % 4 * TOKENS / 4 * 8) ^ (row & 4) ^ ((row >> 2 ^ row >> 3) & 2);
}

/* Stores the sums of one span in shared memory. */
template <int TOKENS, int TILES>
GPU_FN void leave_sums(float (&acc)[TILES][TOKENS][4], float (*sums)[TOKENS * 8]) {
  const int lane = threadIdx.x % WARP;
  UNROLL
  for (int r = 0; r < TILES; r++) {
    UNROLL
    for (int m = 0; m < TOKENS; m++) {
      for (int h = 0; h < 2; h++) {
        const int row = r * 16 + lane / 4 + 8 * h;
        float *to = &sums[row][sum_column<TOKENS>(row, m * 8 + lane % 4 * 2)];
        *(float2 *)to = make_float2(acc[r][m][2 * h], acc[r][m][2 * h + 1]);
        acc[r][m][2 * h] = acc[r][m][2 * h + 1] = 0.0f;
      }
    }
  }
}

/* The sums of rows `row` and row + 8 of a tile over this block's spans, added in order. */
template <int TOKENS, int TILES>
GPU_FN float2 add_spans(const skinny_shared_t<TOKENS, TILES> &shared, int tile, int row,
                        int token) {
  float2 sums = make_float2(0.0f, 0.0f);
  const int first = tile * 16 + row, second = first + 8;
  for (int span = 0; span < SPANS; span++) {
    sums.x = add_rn(sums.x, shared.sums[span][first][sum_column<TOKENS>(first, token)]);
    sums.y = add_rn(sums.y, shared.sums[span][second][sum_column<TOKENS>(second, token)]);
  }
  return sums;
}

/* Adds the sums of this block's spans and writes the results. */
template <class T, int TOKENS, int TILES>
GPU_FN void write_spans(const gpu_skinny_t &args, const skinny_shared_t<TOKENS, TILES> &shared) {
  for (int i = threadIdx.x; i < TILES * 8 * TOKENS * 8; i += SKINNY_THREADS) {
    const int row = i % 8, tile = i / 8 % TILES, token = i / (8 * TILES);
    const int at = blockIdx.x * TILES + tile;
    if (token >= args.rows || at >= weight_tiles(args)) continue;
    const float2 sums = add_spans(shared, tile, row, token);
    write_pair<T>(args, token, at, row, sums.x, sums.y);
  }
}

#endif
