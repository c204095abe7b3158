/* sample_select.h: thresholds on a row of logits by radix selection, for rows whose candidates do
 * not decide (sample_list.h).
 *
 * Device functions of sample.cu. A pass over the row decides one byte of the key of a logit. Sums
 * of weights are kept in three counters of 32 bits, the first two of 14 bits of each weight,
 * because additions of 64 bits in shared memory are loops. There are four copies, each of four
 * warps: sums are exact for vocabularies up to 2^20.
 */
#ifndef INFERD_CUDA_KERNELS_SAMPLER_SAMPLE_SELECT_H
#define INFERD_CUDA_KERNELS_SAMPLER_SAMPLE_SELECT_H

#include "cuda/kernels/sampler/sample_row.h"

enum { DIGITS = 256, COPIES = 4, PARTS = 3, PART_BITS = 14 };

/* The result of a selection: a logit, and the sum of the weights of all logits above it. */
typedef struct gpu_selection {
  float value;
  unsigned long long above;
} gpu_selection_t;

GPU_FN void add_weight(uint32_t (*counters)[DIGITS], uint32_t digit, unsigned long long weight) {
  UNROLL
  for (int part = 0; part < PARTS; part++) {
    const uint32_t left = (uint32_t)(weight >> part * PART_BITS);
    const uint32_t piece = part + 1 < PARTS ? left & ((1u << PART_BITS) - 1) : left;
    if (piece != 0) atomicAdd(&counters[part][digit], piece);
  }
}

/* Adds the lanes' weights, digit by digit: the first digits of all logits are a handful, and lanes
 * that add to one counter wait for each other. A weight of 0 adds nothing. */
GPU_FN void add_together(uint32_t (*counters)[DIGITS], uint32_t digit, unsigned long long weight) {
  unsigned left = __ballot_sync(FULL_WARP, weight != 0);
  while (left != 0) {
    const int leader = __ffs((int)left) - 1;
    const bool same = digit == __shfl_sync(FULL_WARP, digit, leader);
    unsigned long long sum = same ? weight : 0;
    for (int offset = WARP / 2; offset > 0; offset /= 2)
      sum += __shfl_xor_sync(FULL_WARP, sum, offset);
    if ((int)(threadIdx.x % WARP) == leader) add_weight(counters, digit, sum);
    left &= ~__ballot_sync(FULL_WARP, same);
  }
}

/* One pass: sums of weights by the digit at `shift` of keys that begin with `prefix`, in
 * totals[DIGITS]. With scale 0 the weight of each logit is 1. */
GPU_FN void count_digits(const sample_work_t &work, float cut, float scale, uint32_t prefix,
                         int shift, unsigned long long *totals) {
  SHARED(counters, uint32_t[COPIES][PARTS][DIGITS]);
  uint32_t *const all = &counters[0][0][0];
  uint32_t(*const mine)[DIGITS] = counters[threadIdx.x / WARP % COPIES];
  for (int i = threadIdx.x; i < COPIES * PARTS * DIGITS; i += SAMPLE_THREADS) all[i] = 0;
  __syncthreads();
  const int rounds = (work.vocab + CHUNK - 1) / CHUNK;
  for (int round = 0; round < rounds; round++) { /* all lanes take every round */
    float l[AHEAD];
    load_chunk(work, work.logits, round * CHUNK + threadIdx.x, l);
    UNROLL
    for (int j = 0; j < AHEAD; j++) {
      const bool is_id = round * CHUNK + (int)threadIdx.x + j * SAMPLE_THREADS < work.vocab;
      const uint32_t key = order_key(l[j]);
      const bool counts = is_id && l[j] >= cut && (shift == 24 || key >> (shift + 8) == prefix);
      const unsigned long long weight = !counts ? 0 : scale == 0 ? 1 : weight_of(work, l[j], scale);
      if (shift == 24)
        add_together(mine, key >> 24, weight);
      else if (counts)
        add_weight(mine, key >> shift & (DIGITS - 1), weight);
    }
  }
  __syncthreads();
  for (int digit = threadIdx.x; digit < DIGITS; digit += SAMPLE_THREADS) {
    unsigned long long total = 0;
    for (int copy = 0; copy < COPIES; copy++)
      for (int part = 0; part < PARTS; part++)
        total += (unsigned long long)counters[copy][part][digit] << part * PART_BITS;
    totals[digit] = total;
  }
  __syncthreads();
}

/* Returns the largest logit for which the logits that are at least as large have a sum of weights
 * of at least `target`. Logits below `cut` do not count. If the sum of all is below `target`, the
 * result is the smallest logit with a weight. With scale 0 the weight of each logit is 1. */
GPU_FN gpu_selection_t select_weight(const sample_work_t &work, float cut, float scale,
                                     double target) {
  SHARED(totals, unsigned long long[DIGITS]);
  SHARED(chosen, uint32_t);
  SHARED(chosen_above, unsigned long long);
  uint32_t prefix = 0;
  unsigned long long above = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    count_digits(work, cut, scale, prefix, shift, totals);
    const int mine = threadIdx.x;
    if (mine < DIGITS && totals[mine] != 0) {
      unsigned long long higher = 0, lower = 0;
      for (int digit = 0; digit < DIGITS; digit++) {
        if (digit > mine) higher += totals[digit];
        if (digit < mine) lower += totals[digit];
      }
      const bool reaches = (double)(above + higher + totals[mine]) >= target;
      const bool is_first = higher == 0 || (double)(above + higher) < target;
      if (is_first && (reaches || lower == 0)) {
        chosen = (uint32_t)mine;
        chosen_above = above + higher;
      }
    }
    __syncthreads();
    prefix = prefix << 8 | chosen; /* safe to read: barriers stand before the next write */
    above = chosen_above;
  }
  return {order_value(prefix), above};
}

#endif
