/* jumps.c: see jumps.h.
 *
 * The steps of a run are cut into regimes of equal length. In each something else happens: nothing,
 * all steps take longer, some do, one does, those of one kind do, or all do and then less and less.
 * The factors are up to JUMP_MOST, as often between 1 and 10 as between 10 and 100.
 */
#include "tests/sim/jumps.h"

#include "engine/base/random.h"

#include <math.h>

typedef enum regime {
  REGIME_CALM,
  REGIME_SLOW,
  REGIME_BURSTS,  /* one step of some */
  REGIME_OUTLIER, /* one step */
  REGIME_KIND,    /* steps with chunks or without, of one size as a power of two */
  REGIME_LARGE,   /* steps of many rows */
  REGIME_RECOVERS,
  REGIMES
} regime_t;

enum { SALT = 77, TAUGHT_MOST = 400 };

static uint64_t hash_of(const scenario_t *c, uint64_t what, uint64_t index) {
  return random_mix(random_mix(c->seed + SALT * RANDOM_GAMMA + what) + index);
}

/* Between 0 and 1. */
static double part_of(uint64_t hash) {
  return (double)(hash >> 11) * 0x1p-53;
}

static double between_logs(uint64_t hash, double low, double high) {
  return low * pow(high / low, part_of(hash));
}

static int size_of(int32_t tokens) {
  int size = 0;
  for (; tokens >= 2; tokens /= 2) size++;
  return size;
}

/* How much of the regime's factor the step has, from 0 to 1. */
static double strength(const scenario_t *c, uint64_t regime, uint64_t place, int32_t tokens,
                       int32_t rows) {
  const uint64_t hash = hash_of(c, 1, regime), own = hash_of(c, 2, regime * 10000 + place);
  switch ((regime_t)(hash % REGIMES)) {
  case REGIME_CALM: return 0;
  case REGIME_SLOW: return 1;
  case REGIME_BURSTS: return own % (2 + hash / 16 % 8) == 0;
  case REGIME_OUTLIER: return place == hash / 16 % (uint64_t)c->jump_steps;
  case REGIME_KIND:
    return (tokens > rows) == (hash / 16 % 2 > 0) && size_of(tokens) == (int)(hash / 32 % 6);
  case REGIME_LARGE: return rows > (int32_t)(1 + hash / 16 % 6);
  case REGIME_RECOVERS: return 1 - (double)place / c->jump_steps;
  case REGIMES: break;
  }
  return 0;
}

double jumps_factor(const scenario_t *c, uint64_t step, int32_t tokens, int32_t rows) {
  if (!scenario_has(c, SIM_JUMPS)) return 1;
  const uint64_t regime = step / (uint64_t)c->jump_steps, place = step % (uint64_t)c->jump_steps;
  const double most = between_logs(hash_of(c, 3, regime), 1, JUMP_MOST);
  return pow(most, strength(c, regime, place, tokens, rows));
}

/* Costs of a term, in ns, of whatever machine. */
static const double LEAST[COST_TERMS] = {1e3, 1e2, 1e2, 1, 1},
                    MOST[COST_TERMS] = {1e8, 2e7, 2e7, 1e4, 1e4};

void jumps_learn(const scenario_t *c, cost_t *cost) {
  const uint64_t steps = hash_of(c, 4, 0) % TAUGHT_MOST;
  double ns[COST_TERMS];
  if (!scenario_has(c, SIM_JUMPS) || !c->jump_taught) return;
  for (int t = 0; t < COST_TERMS; t++)
    ns[t] = between_logs(hash_of(c, 5, (uint64_t)t), LEAST[t], MOST[t]);
  for (uint64_t i = 0; i < steps; i++) {
    const uint64_t hash = hash_of(c, 6, i);
    const int32_t rows = (int32_t)(hash % 9);
    const int32_t chunk = hash / 16 % 2 > 0 ? 2 + (int32_t)(hash / 32 % 90) : 0;
    cost_work_t work = {.of = {[COST_STEP] = 1}};
    cost_add_next(&work, (int32_t)(hash / 4096 % SIM_CONTEXT_MAX), rows);
    if (chunk > 0) {
      const cost_work_t more = cost_of_tokens((int32_t)(hash / 65536 % SIM_CONTEXT_MAX), chunk);
      cost_add(&work, &more, 1);
    }
    if (rows + chunk == 0) continue;
    double sum = 0;
    for (int t = 0; t < COST_TERMS; t++) sum += ns[t] * work.of[t];
    cost_learn(cost, &work, sum);
  }
}
