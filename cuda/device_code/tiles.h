/* tiles.h: tensor-core products with a tile of keys or values in shared memory.
 *
 * Device functions of the attention kernels, for 16 query rows a warp and 16 keys a call. A tile is
 * [part][row][128 bytes] as the cache has it (kv_layout.h); S is its element: T itself or e4m3 as
 * uint8_t, converted in registers. ldmatrix moves pairs of bytes, so of an e4m3 row a lane gets
 * four neighbours where mma wants two pairs that are eight columns apart. Nothing is moved for
 * that: a product over dimensions does not depend on their order, so queries are put into the same
 * order (even_odd), and of the values' columns pair_column says which one a lane has.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_TILES_H
#define INFERD_CUDA_DEVICE_CODE_TILES_H

#include "cuda/device_code/kv_layout.h"
#include "cuda/device_code/softmax.h"

/* acc[16 x 8] += fragment[16 x 16] . b[16 x 8]: b0 is a lane's words of rows 0 to 7 of b, b1 of 8
 * to 15. */
template <class T>
GPU_FN void mma_16816(float (&acc)[4], const uint32_t (&fragment)[4], uint32_t b0, uint32_t b1);
template <>
GPU_FN void mma_16816<bf16_t>(float (&acc)[4], const uint32_t (&fragment)[4], uint32_t b0,
                              uint32_t b1) {
  mma_bf16_m16n8k16(acc, fragment, b0, b1);
}
template <>
GPU_FN void mma_16816<f16_t>(float (&acc)[4], const uint32_t (&fragment)[4], uint32_t b0,
                             uint32_t b1) {
  mma_f16_m16n8k16(acc, fragment, b0, b1);
}

/* Two words with four neighbours of a query row, 0 1 and 2 3, become 0 2 and 1 3: the order in
 * which e4m3_pairs gives those of a key. */
GPU_FN void even_odd(uint32_t first, uint32_t second, uint32_t &even, uint32_t &odd) {
  even = (first & 0xffffu) | second << 16;
  odd = first >> 16 | (second & 0xffff0000u);
}

/* A product of queries and keys goes in steps of 32 bytes of a key. For a step a warp keeps
 * FRAGMENTS fragments of its queries: one of 16 dimensions, or with e4m3 keys two, of 32. */
template <class S, int D> struct score_t {
  static constexpr int STEPS = D * (int)sizeof(S) / (2 * KV_CHUNK), FRAGMENTS = D / 16 / STEPS;
};

/* Adds step k of the scores of 16 keys, which begin at row `first` of the tile: those of the first
 * eight to `low`, of the others to `high`. `query` has the FRAGMENTS of this step. */
template <class T, class S, int D, int ROWS>
GPU_FN void score_step(float (&low)[4], float (&high)[4], const uint32_t (*query)[4],
                       const uint8_t *keys, int first, int k) {
  constexpr int SLOT = D * (int)sizeof(S);
  const int lane = threadIdx.x % WARP, matrix = lane / 8;
  const int row = first + (matrix >> 1) * 8 + lane % 8;
  uint32_t b[4];
  ldmatrix_x4(b, keys + kv_chunk_at<SLOT>(ROWS, row, k * 2 + (matrix & 1)));
  if constexpr (sizeof(S) == 2) {
    mma_16816<T>(low, query[0], b[0], b[1]);
    mma_16816<T>(high, query[0], b[2], b[3]);
  } else {
    UNROLL
    for (int i = 0; i < 2; i++) {
      uint32_t even, odd;
      e4m3_pairs<T>(b[i], even, odd);
      mma_16816<T>(low, query[i], even, odd);
      e4m3_pairs<T>(b[2 + i], even, odd);
      mma_16816<T>(high, query[i], even, odd);
    }
  }
}

/* Adds to rows.acc the values of 16 keys, which begin at row `first` of the tile, times their
 * weights (pack_weights): columns [part * OUT, part * OUT + OUT) of the head. */
template <class T, class S, int D, int ROWS, int OUT>
GPU_FN void add_values(attention_rows_t<OUT> &rows, const uint32_t (&weights)[4],
                       const uint8_t *values, int first, int part) {
  constexpr int SLOT = D * (int)sizeof(S), STEPS = OUT * (int)sizeof(S) / (2 * KV_CHUNK);
  const int lane = threadIdx.x % WARP, matrix = lane / 8;
  const int row = first + (matrix & 1) * 8 + lane % 8;
  UNROLL
  for (int j = 0; j < STEPS; j++) {
    uint32_t b[4];
    const int chunk = (part * STEPS + j) * 2 + (matrix >> 1);
    ldmatrix_x4_trans(b, values + kv_chunk_at<SLOT>(ROWS, row, chunk));
    if constexpr (sizeof(S) == 2) {
      mma_16816<T>(rows.acc[2 * j], weights, b[0], b[1]);
      mma_16816<T>(rows.acc[2 * j + 1], weights, b[2], b[3]);
    } else {
      UNROLL
      for (int i = 0; i < 2; i++) {
        uint32_t even[2], odd[2];
        e4m3_pairs<T>(b[2 * i], even[0], odd[0]);
        e4m3_pairs<T>(b[2 * i + 1], even[1], odd[1]);
        mma_16816<T>(rows.acc[4 * j + 2 * i], weights, even[0], even[1]);
        mma_16816<T>(rows.acc[4 * j + 2 * i + 1], weights, odd[0], odd[1]);
      }
    }
  }
}

/* A lane holds D / 8 pairs of neighbouring outputs for each of its rows lane / 4 and lane / 4 + 8.
 * Returns the first column of pair `pair`. */
template <class S> GPU_FN int pair_column(int pair) {
  const int t = threadIdx.x % 4;
  return sizeof(S) == 2 ? pair * 8 + t * 2 : pair / 2 * 16 + t * 4 + pair % 2 * 2;
}
/* The two accumulators of that pair, in row lane / 4 + 8 * half. */
template <class S, int D> GPU_FN float &pair_low(attention_rows_t<D> &rows, int pair, int half) {
  return sizeof(S) == 2 ? rows.acc[pair][2 * half] : rows.acc[pair / 2 * 2][2 * half + pair % 2];
}
template <class S, int D> GPU_FN float &pair_high(attention_rows_t<D> &rows, int pair, int half) {
  return sizeof(S) == 2 ? rows.acc[pair][2 * half + 1]
                        : rows.acc[pair / 2 * 2 + 1][2 * half + pair % 2];
}

/* Probabilities of 16 keys as the fragment a of the product with the values. */
template <class T>
GPU_FN void pack_weights(uint32_t (&fragment)[4], const float (&low)[4], const float (&high)[4]) {
  fragment[0] = pack<T>(low[0], low[1]);
  fragment[1] = pack<T>(low[2], low[3]);
  fragment[2] = pack<T>(high[0], high[1]);
  fragment[3] = pack<T>(high[2], high[3]);
}

#endif
