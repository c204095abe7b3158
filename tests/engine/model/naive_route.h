/* naive_route.h: the shares of a row's experts by definition, apart from the engine's own code. */
#ifndef INFERD_TESTS_ENGINE_MODEL_NAIVE_ROUTE_H
#define INFERD_TESTS_ENGINE_MODEL_NAIVE_ROUTE_H

#include "engine/device/ops.h"

#include <math.h>
#include <stdlib.h>

/* Values that come before value `e`: larger ones, and equal ones with a lower index. */
static inline int32_t naive_before(const double *values, int32_t count, int32_t e) {
  int32_t before = 0;
  for (int32_t i = 0; i < count; i++)
    before += values[i] > values[e] || (values[i] == values[e] && i < e);
  return before;
}

/* Takes the experts out that are in none of the best groups. */
static inline void naive_keep_groups(const moe_t *moe, double *choice) {
  const int32_t size = moe->num_experts / moe->num_groups;
  double *rank = calloc((size_t)moe->num_groups, sizeof(double));
  for (int32_t g = 0; g < moe->num_groups; g++) {
    for (int32_t i = 0; i < size; i++) {
      int32_t before = naive_before(choice + g * size, size, i);
      if (before == 0 || (moe->group_pairs && before == 1)) rank[g] += choice[g * size + i];
    }
  }
  for (int32_t g = 0; g < moe->num_groups; g++) {
    if (naive_before(rank, moe->num_groups, g) < moe->groups_top) continue;
    for (int32_t i = 0; i < size; i++) choice[g * size + i] = -INFINITY;
  }
  free(rank);
}

/* Of ROUTING_MIXER: turn by turn the largest logit that was not taken, and its softmax over those
 * that are near it and were not taken. */
static inline void naive_mix(const moe_t *moe, const float *logits, double *shares) {
  const int32_t count = moe->num_experts;
  for (int32_t e = 0; e < count; e++) shares[e] = 0;
  for (int turn = 0; turn < 2; turn++) {
    int32_t best = -1;
    double total = 0;
    for (int32_t e = 0; e < count; e++)
      if (shares[e] == 0 && (best < 0 || logits[e] > logits[best])) best = e;
    for (int32_t e = 0; e < count; e++) {
      const double size = fmax(fabs((double)logits[e]), logits[best]);
      const bool is_far = ((double)logits[best] - logits[e]) / size > (double)moe->nearness;
      if (shares[e] == 0 && !is_far) total += exp((double)logits[e] - logits[best]);
    }
    shares[best] = 1 / total;
  }
}

/* shares[E]: 0 for an expert that the row does not take. `choice_bias` [E] or NULL. */
static inline void naive_route(const moe_t *moe, const float *logits, const float *choice_bias,
                               double *shares) {
  const int32_t count = moe->num_experts;
  const bool scored = moe->routing != ROUTING_LOGITS;
  if (moe->routing == ROUTING_MIXER) {
    naive_mix(moe, logits, shares);
    return;
  }
  double all = 0, chosen = 0;
  double *choice = calloc((size_t)count, sizeof(double));
  for (int32_t e = 0; e < count; e++) all += exp((double)logits[e]);
  for (int32_t e = 0; e < count; e++) {
    shares[e] = moe->routing == ROUTING_SIGMOID ? 1 / (1 + exp(-(double)logits[e]))
                                                : exp((double)logits[e]) / all;
    choice[e] = scored ? shares[e] + (choice_bias != NULL ? choice_bias[e] : 0) : logits[e];
  }
  if (scored && moe->groups_top < moe->num_groups) naive_keep_groups(moe, choice);
  for (int32_t e = 0; e < count; e++) {
    if (naive_before(choice, count, e) >= moe->top_k)
      shares[e] = 0;
    else
      chosen += shares[e];
  }
  for (int32_t e = 0; e < count; e++) {
    if (moe->normalise)
      shares[e] /= scored ? fmax(chosen, moe->share_floor) + 1e-20 + moe->share_more : chosen;
    if (scored) shares[e] *= moe->share_factor;
  }
  free(choice);
}

#endif
