/* pools.c: see pools.h.
 *
 * The hidden state of a token is a function of the hash that the shadow store holds in its slot, so
 * a vector is right or wrong by definition: whatever the batch, the chunks and the preemptions,
 * each row that the pooling names is in it once, and no other. The vector is worked out here over
 * the whole prompt at once.
 */
#include "tests/sim/pools.h"

#include "engine/base/random.h"

#include <math.h>
#include <string.h>

static double vectors[SIM_REQUESTS_MAX][SIM_POOLED];

double *pools_room(int index) {
  return memset(vectors[index], 0, sizeof vectors[index]);
}

float pools_value(uint64_t hash, int32_t column) {
  return (float)(random_mix(hash + (uint64_t)column * RANDOM_GAMMA) % 2001) - 1000;
}

bool pools_breaks(const script_t *script, int32_t position) {
  return script->fault || script->nan_at == position;
}

/* The tokens that are pooled: [*first, *end). */
static void pooled_range(pooling_t pooling, int32_t num_prompt, int32_t *first, int32_t *end) {
  *first = pooling == POOLING_LAST ? num_prompt - 1 : 0;
  *end = pooling == POOLING_CLS ? 1 : num_prompt;
}

int pools_error(const scenario_t *scenario, const script_t *script, int32_t num_prompt) {
  int32_t first, end;
  pooled_range(scenario->options.embedding.pooling, num_prompt, &first, &end);
  for (int32_t p = first; p < end; p++) {
    if (pools_breaks(script, p)) return ERR_INTERNAL;
  }
  return 0;
}

static double expect_value(const track_t *k, pooling_t pooling, int32_t column) {
  const uint64_t *hash = k->streams[0].hash;
  double n = k->num_prompt, sum = 0, most = -INFINITY;
  int32_t first, end;
  pooled_range(pooling, k->num_prompt, &first, &end);
  for (int32_t p = first; p < end; p++) {
    double value = (double)pools_value(hash[p], column);
    sum += value * (pooling == POOLING_WEIGHTED ? p + 1 : 1);
    if (value > most) most = value;
  }
  if (pooling == POOLING_MAX) return most;
  if (pooling == POOLING_MEAN) return sum / n;
  if (pooling == POOLING_WEIGHTED) return sum / (n * (n + 1) / 2);
  return pooling == POOLING_SQRT ? sum / sqrt(n) : sum;
}

void pools_check(const scenario_t *scenario, const track_t *k) {
  pooling_t pooling = scenario->options.embedding.pooling;
  for (int32_t c = 0; c < SIM_POOLED; c++) {
    double want = expect_value(k, pooling, c), have = vectors[k->index][c];
    REQUIRE(have == want, "request %d: value %d of its vector is %.17g, it must be %.17g", k->index,
            c, have, want);
  }
}
