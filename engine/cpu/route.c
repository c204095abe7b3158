/* route.c: which experts a row takes, and their shares.
 *
 * Pool workers call it for single rows. It reads the logits of that row alone, so a row's choice
 * does not depend on other rows.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/moe.h"
#include "engine/cpu/weight.h"

#include <math.h>

/* Chooses the k largest values; of equal ones the lower index. NaN counts as the smallest. */
static void choose(const float *values, int32_t count, int32_t top_k, int32_t *chosen) {
  float best[EXPERTS_TOP_MAX];
  int32_t filled = 0;
  for (int32_t e = 0; e < count; e++) {
    float x = isnan(values[e]) ? -INFINITY : values[e];
    if (filled == top_k && !(x > best[top_k - 1])) continue;
    int32_t at = filled < top_k ? filled++ : top_k - 1;
    for (; at > 0 && x > best[at - 1]; at--) {
      best[at] = best[at - 1];
      chosen[at] = chosen[at - 1];
    }
    best[at] = x;
    chosen[at] = e;
  }
}

static void sort_ascending(int32_t *chosen, int32_t count) {
  for (int32_t i = 1; i < count; i++) {
    int32_t e = chosen[i], at = i;
    for (; at > 0 && chosen[at - 1] > e; at--) chosen[at] = chosen[at - 1];
    chosen[at] = e;
  }
}

static void route_by_logits(const moe_t *moe, const float *logits, int32_t *chosen, float *shares) {
  const int32_t count = moe->num_experts, top_k = moe->top_k;
  float total = 0;
  choose(logits, count, top_k, chosen);
  float highest = logits[chosen[0]];
  sort_ascending(chosen, top_k);
  for (int32_t j = 0; j < top_k; j++) shares[j] = expf(logits[chosen[j]] - highest);
  if (moe->normalise) {
    for (int32_t j = 0; j < top_k; j++) total += shares[j];
  } else {
    for (int32_t e = 0; e < count; e++) total += expf(logits[e] - highest);
  }
  for (int32_t j = 0; j < top_k; j++) shares[j] /= total;
  for (int32_t j = 0; moe->share_factors != NULL && j < top_k; j++)
    shares[j] *= moe->share_factors->values[chosen[j]];
}

static void score_experts(const moe_t *moe, const float *logits, float *scores) {
  const int32_t count = moe->num_experts;
  float highest = logits[0], total = 0;
  if (moe->routing == ROUTING_SIGMOID) {
    for (int32_t e = 0; e < count; e++) scores[e] = 1.0f / (1.0f + expf(-logits[e]));
    return;
  }
  for (int32_t e = 1; e < count; e++) highest = fmaxf(highest, logits[e]);
  for (int32_t e = 0; e < count; e++) total += scores[e] = expf(logits[e] - highest);
  for (int32_t e = 0; e < count; e++) scores[e] /= total;
}

/* Takes the experts out of the choice that are not in the best groups. */
static void mask_groups(const moe_t *moe, float *choice) {
  const int32_t groups = moe->num_groups, size = moe->num_experts / groups;
  float rank[GROUPS_MAX] = {0};
  int32_t kept[EXPERTS_TOP_MAX];
  for (int32_t g = 0; g < groups; g++) {
    float first = -INFINITY, second = -INFINITY;
    for (int32_t e = g * size; e < (g + 1) * size; e++) {
      second = fmaxf(second, fminf(first, choice[e]));
      first = fmaxf(first, choice[e]);
    }
    rank[g] = moe->group_pairs ? first + second : first;
  }
  choose(rank, groups, moe->groups_top, kept);
  sort_ascending(kept, moe->groups_top);
  for (int32_t g = 0, next = 0; g < groups; g++) {
    if (next < moe->groups_top && kept[next] == g) {
      next++;
      continue;
    }
    for (int32_t e = g * size; e < (g + 1) * size; e++) choice[e] = -INFINITY;
  }
}

static void route_by_scores(const moe_t *moe, const float *logits, int32_t *chosen, float *shares) {
  float scores[ROUTED_MAX] = {0}, choice[ROUTED_MAX] = {0}, total = 0;
  const int32_t count = moe->num_experts, top_k = moe->top_k;
  const float *bias = moe->choice_bias != NULL ? moe->choice_bias->values : NULL;
  score_experts(moe, logits, scores);
  for (int32_t e = 0; e < count; e++) choice[e] = scores[e] + (bias != NULL ? bias[e] : 0.0f);
  if (moe->groups_top < moe->num_groups) mask_groups(moe, choice);
  choose(choice, count, top_k, chosen);
  sort_ascending(chosen, top_k);
  for (int32_t j = 0; j < top_k; j++) total += scores[chosen[j]];
  total = fmaxf(total, moe->share_floor) + SHARE_EPSILON + moe->share_more;
  for (int32_t j = 0; j < top_k; j++)
    shares[j] = scores[chosen[j]] / (moe->normalise ? total : 1.0f) * moe->share_factor;
}

/* Chooses the expert of the largest logit but `without`; returns its share. */
static float choose_near(const moe_t *moe, const float *logits, int32_t without, int32_t *chosen) {
  float largest = -INFINITY, total = 0;
  *chosen = without == 0; /* of logits that are no numbers */
  for (int32_t e = 0; e < moe->num_experts; e++) {
    if (e == without || !(logits[e] > largest)) continue;
    largest = logits[e];
    *chosen = e;
  }
  for (int32_t e = 0; e < moe->num_experts; e++) {
    const float size = fmaxf(fabsf(logits[e]), largest);
    if (e == without || (largest - logits[e]) / size > moe->nearness) continue;
    total += expf(logits[e] - largest);
  }
  return 1 / total;
}

static void route_by_mixer(const moe_t *moe, const float *logits, int32_t *chosen, float *shares) {
  int32_t first, second;
  const float share = choose_near(moe, logits, -1, &first);
  const float other = choose_near(moe, logits, first, &second);
  const bool ascends = first < second;
  chosen[0] = ascends ? first : second;
  chosen[1] = ascends ? second : first;
  shares[0] = ascends ? share : other;
  shares[1] = ascends ? other : share;
}

void route_row(const moe_t *moe, const float *logits, int32_t *chosen, float *shares) {
  if (moe->routing == ROUTING_LOGITS)
    route_by_logits(moe, logits, chosen, shares);
  else if (moe->routing == ROUTING_MIXER)
    route_by_mixer(moe, logits, chosen, shares);
  else
    route_by_scores(moe, logits, chosen, shares);
}
