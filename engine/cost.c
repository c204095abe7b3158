/* cost.c: the time of a step as a sum of parts, fitted online; the contract is in cost.h.
 *
 * Engine thread. Has no state of its own and allocates nothing.
 */
#include "engine/cost.h"

#include "engine/base/util.h"

#include <math.h>

/* Steps after which something is known; memory of a kind, in steps of its own and in all steps;
 * steps of a kind that may still surprise; sweeps over the terms for each step. */
enum { KNOWN_STEPS = 16, MEMORY_STEPS = 32, AGE_STEPS = 1024, NEW_STEPS = 4, SWEEPS = 16 };
/* A step counts as at most, and at least, this multiple of what was expected. */
static const double SURPRISE = 2, SURPRISE_NEW = 16;

bool cost_is_known(const cost_t *cost) {
  return cost->num_steps >= KNOWN_STEPS;
}

static int kind_of(const cost_work_t *work) {
  bool chunks = work->of[COST_PAIR] > 0;
  int kind = 0;
  for (double size = work->of[COST_TOKEN]; size >= 2 && kind < COST_KINDS / 2 - 1; size /= 2)
    kind++;
  return kind + (chunks ? COST_KINDS / 2 : 0);
}

/* The time that counts for a step that was expected to take `expected`. */
static double believe(const struct cost_evidence *evidence, double expected, double ns) {
  double most = evidence->weight < NEW_STEPS ? SURPRISE_NEW : SURPRISE;
  return MIN(MAX(ns, expected / most), expected * most);
}

static void forget(struct cost_evidence *evidence, double share) {
  evidence->weight -= share * evidence->weight;
  for (int t = 0; t < COST_TERMS; t++) {
    evidence->times[t] -= share * evidence->times[t];
    for (int u = 0; u < COST_TERMS; u++)
      evidence->products[t][u] -= share * evidence->products[t][u];
  }
}

/* Adds a step to the evidence of its kind, its errors relative to `unit`. */
static void remember(struct cost_evidence *evidence, const cost_work_t *work, double ns,
                     double unit) {
  forget(evidence, 1.0 / MEMORY_STEPS);
  evidence->weight += 1;
  for (int t = 0; t < COST_TERMS; t++) {
    double x = work->of[t] / unit;
    evidence->times[t] += x * ns / unit;
    for (int u = 0; u < COST_TERMS; u++) evidence->products[t][u] += x * work->of[u] / unit;
  }
}

/* Each kind counts with its mean, so that a kind of few steps is not lost beside the others; and
 * for less and less once its last step is long ago, or a machine that became slower would not be
 * seen. */
static struct cost_evidence sum_up(cost_t *cost) {
  struct cost_evidence sum = {0};
  for (int k = 0; k < COST_KINDS; k++) {
    struct cost_evidence *kind = &cost->kinds[k];
    double share = 1 / MAX(kind->weight, 1);
    if (kind->weight == 0) continue;
    for (int t = 0; t < COST_TERMS; t++) {
      sum.times[t] += share * kind->times[t];
      for (int u = 0; u < COST_TERMS; u++) sum.products[t][u] += share * kind->products[t][u];
    }
    forget(kind, 1.0 / AGE_STEPS);
  }
  return sum;
}

/* The method of Gauss and Seidel, bounded below by 0. What the evidence does not tell apart stays
 * as it was. */
static void fit(cost_t *cost) {
  const struct cost_evidence sum = sum_up(cost);
  for (int sweep = 0; sweep < SWEEPS; sweep++) {
    for (int t = 0; t < COST_TERMS; t++) {
      double rest = sum.times[t];
      if (sum.products[t][t] == 0) continue;
      for (int u = 0; u < COST_TERMS; u++) rest -= sum.products[t][u] * cost->ns[u];
      cost->ns[t] = MAX(cost->ns[t] + rest / sum.products[t][t], 0);
    }
  }
}

void cost_learn(cost_t *cost, const cost_work_t *work, double ns) {
  struct cost_evidence *evidence = &cost->kinds[kind_of(work)];
  double expected = cost_ns(cost, work);
  if (cost_is_known(cost) && expected > 0) ns = believe(evidence, expected, ns);
  if (!(ns > 0)) return;
  remember(evidence, work, ns, cost_is_known(cost) && expected > 0 ? expected : ns);
  cost->num_steps++;
  fit(cost);
}

int32_t cost_tokens(const cost_t *cost, int32_t start, bool rows, double ns) {
  double left = rows ? ns : ns - cost->ns[COST_ROW];
  double pair = cost->ns[COST_PAIR];
  double first = cost->ns[COST_TOKEN] + pair * (start + 0.5) + (rows ? cost->ns[COST_ROW] : 0);
  if (left <= 0) return 0;
  /* The root of pair/2 n^2 + first n = left, in the form that is exact for small `pair` too. */
  double n = 2 * left / (first + sqrt(first * first + 2 * pair * left));
  return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}
