/* softmax.h: the running softmax of attention, for 16 query rows of one warp.
 *
 * Device functions of all attention kernels. A warp holds 16 rows in the fragments of mma.m16n8k16:
 * a lane has rows lane / 4 and lane / 4 + 8. Scores are in base 2 (times log2 e), the state is
 * (maximum, sum, unnormalised output) as in Milakov and Gimelshein 2018, all fp32; probabilities
 * are rounded to the type of the values before they are multiplied (Dao 2022).
 *
 * One order for all: within a piece (pieces.h) keys are taken 16 at a time from the first, each
 * step relative to the maximum so far; pieces are then folded in order of their keys. Keys that a
 * row does not see change nothing. So the bits of a row depend on its own keys alone, whichever
 * kernel, tile, work item or batch it is in. Products and sums that a compiler might contract in
 * one kernel and not in the other are written with mul_rn, add_rn and fma_rn.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_SOFTMAX_H
#define INFERD_CUDA_DEVICE_CODE_SOFTMAX_H

#include "cuda/device_code/lanes.h"
#include "cuda/device_code/pieces.h"

#define LOG2_E 1.44269504f

enum { MMA_ROWS = 16, MMA_KEYS = 16 };

/* State of a warp's 16 rows; D is the padded head size. */
template <int D> struct attention_rows_t {
  float acc[D / 8][4];
  float max[2], sum[2]; /* of rows lane / 4 and + 8; sum is this lane's share until the end */
};

template <int D> GPU_FN void rows_reset(attention_rows_t<D> &rows) {
  UNROLL
  for (int j = 0; j < D / 8; j++)
    for (int i = 0; i < 4; i++) rows.acc[j][i] = 0.0f;
  for (int h = 0; h < 2; h++) {
    rows.max[h] = -INFINITY;
    rows.sum[h] = 0.0f;
  }
}

/* How a product q.k becomes a base-2 logit: scale, softcap. */
typedef struct logit_rule {
  float scale, softcap;
} logit_rule_t;

GPU_FN float score_logit(float score, const logit_rule_t &rule) {
  if (rule.softcap != 0.0f)
    return mul_rn(rule.softcap * LOG2_E, tanhf(mul_rn(score, rule.scale) / rule.softcap));
  return mul_rn(score, rule.scale * LOG2_E);
}

/* One step over 16 keys: `low` and `high` are the logits of eight each, masked ones -infinity. They
 * become probabilities relative to the new maximum. A row that saw no key yet stays all zeros. */
template <int D>
GPU_FN void softmax_step(attention_rows_t<D> &rows, float (&low)[4], float (&high)[4]) {
  float base[2], factor[2];
  UNROLL
  for (int h = 0; h < 2; h++) {
    float top = fmaxf(fmaxf(low[2 * h], low[2 * h + 1]), fmaxf(high[2 * h], high[2 * h + 1]));
    top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, 1));
    top = fmaxf(top, __shfl_xor_sync(FULL_WARP, top, 2));
    top = fmaxf(top, rows.max[h]);
    base[h] = top == -INFINITY ? 0.0f : top;
    factor[h] = exp2_approx(rows.max[h] - base[h]);
    rows.max[h] = top;
    rows.sum[h] = mul_rn(rows.sum[h], factor[h]);
  }
  UNROLL
  for (int i = 0; i < 4; i++) {
    low[i] = exp2_approx(low[i] - base[i / 2]);
    high[i] = exp2_approx(high[i] - base[i / 2]);
    rows.sum[i / 2] = add_rn(rows.sum[i / 2], add_rn(low[i], high[i]));
  }
  if (!__any_sync(FULL_WARP, factor[0] != 1.0f || factor[1] != 1.0f)) return; /* times 1 */
  UNROLL
  for (int j = 0; j < D / 8; j++)
    for (int i = 0; i < 4; i++) rows.acc[j][i] *= factor[i / 2];
}

/* Sums the lanes' shares: every lane of a row gets the row's sum. */
template <int D> GPU_FN void softmax_finish(attention_rows_t<D> &rows) {
  for (int h = 0; h < 2; h++) {
    rows.sum[h] = add_rn(rows.sum[h], __shfl_xor_sync(FULL_WARP, rows.sum[h], 1));
    rows.sum[h] = add_rn(rows.sum[h], __shfl_xor_sync(FULL_WARP, rows.sum[h], 2));
  }
}

/* Adding a piece to the pieces before it. */
typedef struct fold {
  float before, piece; /* factors of the two sides */
} fold_t;

GPU_FN fold_t fold_state(float &max, float &sum, float piece_max, float piece_sum) {
  const float top = fmaxf(max, piece_max), base = top == -INFINITY ? 0.0f : top;
  const fold_t fold = {exp2_approx(max - base), exp2_approx(piece_max - base)};
  sum = fma_rn(sum, fold.before, mul_rn(piece_sum, fold.piece));
  max = top;
  return fold;
}
GPU_FN float fold_value(const fold_t &fold, float before, float piece) {
  return fma_rn(before, fold.before, mul_rn(piece, fold.piece));
}

/* scale / denominator of a row, with its attention sink (natural-log logit) when it has one. */
GPU_FN float inverse_sum(float max, float sum, const float *sinks, int head, float scale) {
  if (sinks != nullptr) sum = add_rn(sum, exp2_approx(add_rn(mul_rn(sinks[head], LOG2_E), -max)));
  return sum > 0.0f ? scale / sum : 0.0f;
}

#endif
