/* sample_row.h: a row of logits as the block that samples it sees it: passes, sums, weights.
 *
 * Device functions of sample.cu and what it includes. A pass over the row has AHEAD loads of each
 * thread in flight; id i is always thread i % SAMPLE_THREADS's.
 */
#ifndef INFERD_CUDA_KERNELS_SAMPLER_SAMPLE_ROW_H
#define INFERD_CUDA_KERNELS_SAMPLER_SAMPLE_ROW_H

#include "cuda/device_code/lanes.h"
#include "cuda/kernels/sample.h"

enum { SAMPLE_THREADS = 512, SAMPLE_WARPS = SAMPLE_THREADS / WARP, AHEAD = 16 };
enum { CHUNK = SAMPLE_THREADS * AHEAD };
#define ONE_WEIGHT 0x1p40

/* What a block knows of its row. Every thread has a copy, and the copies are equal but for own_max.
 */
typedef struct sample_work {
  float *logits, *raw;
  int32_t *counts;
  int32_t vocab;
  float max;
  int32_t best_id; /* lowest id that has max; -1 when a logit is NaN */
  float own_max;   /* of the ids of this thread */
} sample_work_t;

typedef struct best {
  double score;
  int32_t id;
} best_t;

/* Loads `from[at + j * SAMPLE_THREADS]`; a place beyond the vocabulary gets -infinity. */
GPU_FN void load_chunk(const sample_work_t &work, const float *from, int at, float (&l)[AHEAD]) {
  UNROLL
  for (int j = 0; j < AHEAD; j++) {
    const int i = at + j * SAMPLE_THREADS;
    l[j] = i < work.vocab ? from[i] : -INFINITY;
  }
}

/* Returns the highest score among the threads of the block, to every thread; the lowest id wins
 * ties. */
GPU_FN best_t block_best(best_t mine) {
  SHARED(bests, best_t[SAMPLE_WARPS]);
  for (int offset = WARP / 2; offset > 0; offset /= 2) {
    const double score = __shfl_xor_sync(FULL_WARP, mine.score, offset);
    const int32_t id = __shfl_xor_sync(FULL_WARP, mine.id, offset);
    if (score > mine.score || (score == mine.score && id < mine.id)) mine = {score, id};
  }
  if (threadIdx.x % WARP == 0) bests[threadIdx.x / WARP] = mine;
  __syncthreads();
  best_t best = bests[0];
  for (int i = 1; i < SAMPLE_WARPS; i++)
    if (bests[i].score > best.score || (bests[i].score == best.score && bests[i].id < best.id))
      best = bests[i];
  __syncthreads();
  return best;
}

template <class N> GPU_FN N block_total(N mine) {
  SHARED(totals, N[SAMPLE_WARPS]);
  for (int offset = WARP / 2; offset > 0; offset /= 2)
    mine += __shfl_xor_sync(FULL_WARP, mine, offset);
  if (threadIdx.x % WARP == 0) totals[threadIdx.x / WARP] = mine;
  __syncthreads();
  N total = 0;
  for (int i = 0; i < SAMPLE_WARPS; i++) total += totals[i];
  __syncthreads();
  return total;
}

/* Sets max, best_id and own_max from the present logits. */
GPU_FN void scan_row(sample_work_t &work) {
  float top = -INFINITY;
  int32_t id = INT32_MAX;
  int has_nan = 0;
  for (int at = threadIdx.x; at < work.vocab; at += CHUNK) {
    float l[AHEAD];
    load_chunk(work, work.logits, at, l);
    UNROLL
    for (int j = 0; j < AHEAD; j++) {
      if (at + j * SAMPLE_THREADS >= work.vocab) break;
      if (l[j] != l[j]) has_nan = 1;
      if (l[j] > top || id == INT32_MAX) top = l[j], id = at + j * SAMPLE_THREADS;
    }
  }
  work.own_max = top;
  const best_t best = block_best({(double)top, id});
  work.max = (float)best.score;
  work.best_id = block_total<int32_t>(has_nan) > 0 ? -1 : best.id;
}

/* Maps a float to an unsigned number of the same order, and back; -0 and +0 are equal. */
GPU_FN uint32_t order_key(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
GPU_FN float order_value(uint32_t key) {
  return __uint_as_float(key >> 31 ? key & 0x7fffffffu : ~key);
}

/* The probability of a logit as an integer of which the largest is 2^40: so no sum depends on the
 * order of the threads. */
GPU_FN unsigned long long weight_of(const sample_work_t &work, float logit, float scale) {
  return (unsigned long long)(expf((logit - work.max) * scale) * (float)ONE_WEIGHT);
}

/* The tokens that remain: l > cut, or l == cut and id <= last_tie. */
typedef struct gpu_filter {
  float cut;
  int32_t last_tie;
} gpu_filter_t;

GPU_FN bool remains(const gpu_filter_t &filter, float logit, int32_t id) {
  return logit > filter.cut || (logit == filter.cut && id <= filter.last_tie);
}

/* Of `total` ids of the logit where the weights reach the target, the first so many remain. */
GPU_FN int32_t ties_kept(double target, unsigned long long above, unsigned long long weight,
                         int32_t total) {
  const double kept = ceil((target - (double)above) / (double)weight);
  return kept >= (double)total ? total : kept < 1 ? 1 : (int32_t)kept;
}

#endif
