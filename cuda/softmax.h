/* softmax.h: scores, online softmax and the sum over values, for 16 query rows of one warp.
 *
 * Device functions of both attention kernels. A warp holds 16 rows in the fragments of
 * mma.m16n8k16: a lane has rows lane / 4 and lane / 4 + 8. Scores are in base 2 (times log2 e), the
 * state is (maximum, sum, unnormalised output) as in Milakov and Gimelshein 2018, all fp32; the
 * probabilities are rounded to the type of the values before they are multiplied (Dao 2022).
 */
#ifndef INFERD_CUDA_SOFTMAX_H
#define INFERD_CUDA_SOFTMAX_H

#include "cuda/kv_layout.h"
#include "cuda/lanes.h"

#define LOG2_E 1.44269504f

enum { MMA_ROWS = 16 };

/* State of a warp's 16 rows; D is the padded head size. */
template <int D> struct attention_rows_t {
  float acc[D / 8][4];
  float max[2], sum[2]; /* of rows lane / 4 and + 8; sum is this lane's share until the end */
};

template <class T>
GPU_FN void mma_16816(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
GPU_FN void mma_16816<bf16_t>(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma_bf16_m16n8k16(acc, a, b0, b1);
}
template <>
GPU_FN void mma_16816<f16_t>(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  mma_f16_m16n8k16(acc, a, b0, b1);
}

template <int D> GPU_FN void rows_reset(attention_rows_t<D> &rows) {
  UNROLL
  for (int j = 0; j < D / 8; j++)
    for (int i = 0; i < 4; i++) rows.acc[j][i] = 0.0f;
  for (int h = 0; h < 2; h++) {
    rows.max[h] = -INFINITY;
    rows.sum[h] = 0.0f;
  }
}

/* scores += q (fragments) . keys of a tile [part][ROWS][64] in shared memory, from row `first`: 16
 * keys, fragments 0 and 1. */
template <class T, int D, int ROWS>
GPU_FN void score_keys(float (&low)[4], float (&high)[4], const uint32_t (&query)[D / 16][4],
                       const T *keys, int first) {
  const int lane = threadIdx.x % WARP, matrix = lane / 8;
  const int row = first + (matrix >> 1) * 8 + lane % 8;
  UNROLL
  for (int k = 0; k < D / 16; k++) {
    uint32_t b[4];
    ldmatrix_x4(b, keys + kv_chunk_at(ROWS, row, k * 2 + (matrix & 1)));
    mma_16816<T>(low, query[k], b[0], b[1]);
    mma_16816<T>(high, query[k], b[2], b[3]);
  }
}

/* acc += weights (16 keys, fragment a) . values of a tile in shared memory, from row `first`. */
template <class T, int D, int ROWS>
GPU_FN void add_values(attention_rows_t<D> &rows, const uint32_t (&weights)[4], const T *values,
                       int first) {
  const int lane = threadIdx.x % WARP, matrix = lane / 8;
  const int row = first + (matrix & 1) * 8 + lane % 8;
  UNROLL
  for (int j = 0; j < D / 16; j++) {
    uint32_t b[4];
    ldmatrix_x4_trans(b, values + kv_chunk_at(ROWS, row, j * 2 + (matrix >> 1)));
    mma_16816<T>(rows.acc[2 * j], weights, b[0], b[1]);
    mma_16816<T>(rows.acc[2 * j + 1], weights, b[2], b[3]);
  }
}

/* q.k -> base-2 logit: scale, softcap. */
GPU_FN float score_logit(float score, float scale, float softcap) {
  if (softcap != 0.0f) return softcap * LOG2_E * tanhf(score * scale / softcap);
  return score * (scale * LOG2_E);
}

/* One step of the online softmax over N * 8 logits a row; masked ones are -infinity. Turns logits
 * into probabilities relative to the new maximum. A row that saw no key yet stays all zeros. */
template <int D, int N> GPU_FN void softmax_step(attention_rows_t<D> &rows, float (&logits)[N][4]) {
  float base[2], factor[2];
  UNROLL
  for (int h = 0; h < 2; h++) {
    float top = rows.max[h];
    for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(logits[n][2 * h], logits[n][2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, 1));
    top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, 2));
    base[h] = top == -INFINITY ? 0.0f : top;
    factor[h] = exp2_approx(rows.max[h] - base[h]);
    rows.max[h] = top;
    rows.sum[h] *= factor[h];
  }
  UNROLL
  for (int n = 0; n < N; n++) {
    for (int i = 0; i < 4; i++) {
      logits[n][i] = exp2_approx(logits[n][i] - base[i / 2]);
      rows.sum[i / 2] += logits[n][i];
    }
  }
  UNROLL
  for (int j = 0; j < D / 8; j++)
    for (int i = 0; i < 4; i++) rows.acc[j][i] *= factor[i / 2];
}

/* Probabilities of 16 keys as the fragment a of the product with the values. */
template <class T>
GPU_FN void pack_weights(uint32_t (&a)[4], const float (&low)[4], const float (&high)[4]) {
  a[0] = pack<T>(low[0], low[1]);
  a[1] = pack<T>(low[2], low[3]);
  a[2] = pack<T>(high[0], high[1]);
  a[3] = pack<T>(high[2], high[3]);
}

/* Sums the lanes' shares: every lane of a row gets the row's sum. */
template <int D> GPU_FN void softmax_finish(attention_rows_t<D> &rows) {
  for (int h = 0; h < 2; h++) {
    rows.sum[h] += __shfl_xor_sync(FULL_WARP, rows.sum[h], 1);
    rows.sum[h] += __shfl_xor_sync(FULL_WARP, rows.sum[h], 2);
  }
}

/* 1 / denominator of a row, with its attention sink (natural-log logit) when it has one. */
GPU_FN float inverse_sum(float max, float sum, const float *sinks, int head) {
  if (sinks) sum += exp2f(sinks[head] * LOG2_E - max);
  return sum > 0.0f ? 1.0f / sum : 0.0f;
}

#endif
