/* sample_list.h: the candidates of a row: its highest logits, all above some bound, in shared
 * memory. There top_k, top_p and the best alternatives are found without further passes over the
 * row.
 *
 * Device functions of sample.cu. The k-th highest of the threads' maxima is a bound that at least k
 * ids reach, and rarely many more. When more than the list holds reach it, or the list does not
 * decide, the caller selects by passes over the row (sample_select.h), with the same result.
 */
#ifndef INFERD_CUDA_KERNELS_SAMPLER_SAMPLE_LIST_H
#define INFERD_CUDA_KERNELS_SAMPLER_SAMPLE_LIST_H

#include "cuda/kernels/sampler/sample_row.h"

enum { LIST_MAX = 1024, LIST_RANK = 256 /* of the bound, unless top_k says less */ };

typedef struct sample_list {
  float logits[LIST_MAX];
  int32_t ids[LIST_MAX];
  unsigned long long weights[LIST_MAX];
  float maxima[SAMPLE_THREADS];
  int32_t count; /* that reach the bound; above LIST_MAX when not all are listed */
  float bound, cut;
  unsigned long long above; /* of the logits above the cut */
  int32_t last_tie;
  bool decides;
} sample_list_t;

/* Sets the bound to the k-th highest of the threads' maxima, k <= SAMPLE_THREADS. */
GPU_FN void bound_list(const sample_work_t &work, int k, sample_list_t &list) {
  const float own = work.own_max;
  int rank = 0;
  list.maxima[threadIdx.x] = own;
  if (threadIdx.x == 0) list.count = 0, list.decides = false;
  __syncthreads();
  for (int i = 0; i < SAMPLE_THREADS; i++)
    rank += list.maxima[i] > own || (list.maxima[i] == own && i < (int)threadIdx.x);
  if (rank == k - 1) list.bound = own;
  __syncthreads();
}

/* Lists all ids that reach the bound. Returns the sum of the weights of all logits that reach `cut`
 * if `sums`, else 0. */
GPU_FN unsigned long long fill_list(const sample_work_t &work, float cut, float scale, bool sums,
                                    sample_list_t &list) {
  const float bound = list.bound;
  unsigned long long mine = 0;
  for (int at = threadIdx.x; at < work.vocab; at += CHUNK) {
    float l[AHEAD];
    load_chunk(work, work.logits, at, l);
    UNROLL
    for (int j = 0; j < AHEAD; j++) {
      const int i = at + j * SAMPLE_THREADS;
      if (i >= work.vocab) break;
      if (sums && l[j] >= cut) mine += weight_of(work, l[j], scale);
      if (l[j] < bound) continue;
      const int place = atomicAdd(&list.count, 1);
      if (place >= LIST_MAX) continue;
      list.logits[place] = l[j];
      list.ids[place] = i;
    }
  }
  __syncthreads();
  return sums ? block_total<unsigned long long>(mine) : 0;
}

/* How many of the list come before a place of it: higher logits, and equal ones of lower ids. */
GPU_FN int list_rank(const sample_list_t &list, int place) {
  const float own = list.logits[place];
  const int32_t id = list.ids[place];
  int rank = 0;
  for (int i = 0; i < list.count; i++)
    rank += list.logits[i] > own || (list.logits[i] == own && list.ids[i] < id);
  return rank;
}

/* The k-th highest logit of the list, which has as many. */
GPU_FN float list_highest(int k, sample_list_t &list) {
  for (int c = threadIdx.x; c < list.count; c += SAMPLE_THREADS)
    if (list_rank(list, c) == k - 1) list.cut = list.logits[c];
  __syncthreads();
  return list.cut;
}

/* Sets the weights of the list, 0 below `cut`; returns their sum. */
GPU_FN unsigned long long weigh_list(const sample_work_t &work, float cut, float scale,
                                     sample_list_t &list) {
  unsigned long long mine = 0;
  for (int c = threadIdx.x; c < list.count; c += SAMPLE_THREADS) {
    list.weights[c] = list.logits[c] >= cut ? weight_of(work, list.logits[c], scale) : 0;
    mine += list.weights[c];
  }
  return block_total<unsigned long long>(mine);
}

/* Finds where the weights, from the highest logit down, reach the target: sets cut, above and
 * decides. If they never do, the list decides only when it is `whole`, by its lowest logit. */
GPU_FN bool cut_list(double target, bool whole, sample_list_t &list) {
  for (int c = threadIdx.x; c < list.count; c += SAMPLE_THREADS) {
    const float own = list.logits[c];
    unsigned long long above = 0, equal = 0, lower = 0;
    bool speaks = list.weights[c] != 0; /* for those of its logit: the first in the list */
    for (int i = 0; i < c && speaks; i++) speaks = list.logits[i] != own;
    if (!speaks) continue;
    for (int i = 0; i < list.count; i++) {
      const float other = list.logits[i];
      above += other > own ? list.weights[i] : 0;
      equal += other == own ? list.weights[i] : 0;
      lower += other < own ? list.weights[i] : 0;
    }
    const bool reaches = (double)(above + equal) >= target;
    const bool is_first = above == 0 || (double)above < target;
    if (!is_first || !(reaches || (whole && lower == 0))) continue;
    list.cut = own;
    list.above = above;
    list.decides = true;
  }
  __syncthreads();
  return list.decides;
}

/* The last of the ids of the logit `value` that remain when `kept` of them do. */
GPU_FN int32_t list_tie(float value, double target, unsigned long long weight,
                        sample_list_t &list) {
  for (int c = threadIdx.x; c < list.count; c += SAMPLE_THREADS) {
    int32_t before = 0, total = 0;
    if (list.logits[c] != value) continue;
    for (int i = 0; i < list.count; i++) {
      total += list.logits[i] == value;
      before += list.logits[i] == value && list.ids[i] < list.ids[c];
    }
    if (before + 1 == ties_kept(target, list.above, weight, total)) list.last_tie = list.ids[c];
  }
  __syncthreads();
  return list.last_tie;
}

#endif
