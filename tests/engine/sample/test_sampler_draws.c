/* test_sampler_draws.c: the random numbers, the distribution of draws, and what must never happen
 * whatever the bits of a row are. All seeds are fixed: a failure is a defect, not bad luck. */
#include "engine/base/random.h"
#include "engine/sample/sampler_lanes.h"
#include "tests/engine/sample/rig.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The table of the loops, against libm in double. */
Test(lanes, weights_and_sums_are_accurate) {
  enum { COUNT = 64 * 40 + 17 };
  static float values[COUNT], weights[COUNT], tops[COUNT / 64 + 1];
  const sampler_lanes_t *const *lanes = sampler_lanes_all();
  for (int i = 0; i < COUNT; i++) values[i] = -(float)i * (90.0f / COUNT);
  for (int v = 0; lanes[v] != NULL; v++) {
    double sum = 0, sum_above = 0;
    lanes[v]->weigh(values, COUNT, 0, 1, weights);
    ASSERT_EQ(weights[0], 1);
    for (int i = 0; i < COUNT; i++) {
      double wanted = values[i] < -87.0f ? 0 : exp((double)values[i]);
      ASSERT_LE_FOR(fabs((double)weights[i] - wanted), 2e-7 * wanted, "%s: exp(%g)", lanes[v]->name,
                    (double)values[i]);
      sum += wanted;
      if (values[i] >= -1.5f) sum_above += wanted;
    }
    cr_assert_float_eq(lanes[v]->sum(values, COUNT, tops, 0, 1, -INFINITY), sum, 1e-6 * sum);
    cr_assert_float_eq(lanes[v]->sum(values, COUNT, tops, 0, 1, -1.5f), sum_above, 1e-6 * sum);
    ASSERT_EQ(lanes[v]->count_larger(values, COUNT, values[100]), 100);
  }
}

/* How far a chi-square sum is from its mean, in standard deviations. Right draws stay below 4. */
static double chi_square_sigmas(const double *seen, const double *expected, int32_t bins) {
  double sum = 0;
  int32_t used = 0;
  for (int32_t i = 0; i < bins; i++) {
    if (expected[i] == 0) {
      ASSERT_EQ(seen[i], 0);
      continue;
    }
    sum += (seen[i] - expected[i]) * (seen[i] - expected[i]) / expected[i];
    used++;
  }
  return (sum - (used - 1)) / sqrt(2.0 * (used - 1));
}

Test(random, numbers_are_even_along_ids_positions_and_keys) {
  enum { BINS = 256, NUMBERS = 256 * 400 };
  for (int axis = 0; axis < 3; axis++) {
    double seen[BINS] = {0}, expected[BINS], fine[BINS] = {0};
    for (int i = 0; i < BINS; i++) expected[i] = NUMBERS / BINS;
    for (uint32_t i = 0; i < NUMBERS; i++) {
      uint64_t key = random_key(axis == 2 ? i : 7, 0);
      double u = random_uniform(random_stream(key, axis == 1 ? i : 3), axis == 0 ? i : 5);
      ASSERT_GT(u, 0);
      ASSERT_LT(u, 1);
      seen[(int)(u * BINS)]++;
      double rest = u * 65536; /* the fine bits, whatever the coarse ones are */
      fine[(int)((rest - floor(rest)) * BINS)]++;
    }
    ASSERT_LT_FOR(fabs(chi_square_sigmas(seen, expected, BINS)), 4, "axis %d", axis);
    ASSERT_LT_FOR(fabs(chi_square_sigmas(fine, expected, BINS)), 4, "axis %d", axis);
  }
}

Test(random, neighbours_are_independent) {
  enum { SIDE = 16, NUMBERS = 256 * 400 };
  for (int axis = 0; axis < 3; axis++) {
    double seen[SIDE * SIDE] = {0}, expected[SIDE * SIDE];
    for (int i = 0; i < SIDE * SIDE; i++) expected[i] = NUMBERS / (SIDE * SIDE);
    for (uint32_t i = 0; i < NUMBERS; i++) {
      uint64_t stream = random_stream(random_key(9, 0), axis == 1 ? i : 0);
      uint32_t id = axis == 0 ? i : 11;
      double a = random_uniform(stream, id), b = random_uniform(stream, id + 1);
      if (axis == 1) b = random_uniform(random_stream(random_key(9, 0), (uint64_t)i + 1), id);
      if (axis == 2) {
        a = random_uniform(random_stream(random_key(i, 0), 0), 0);
        b = random_uniform(random_stream(random_key(i, 1), 0), 0);
      }
      seen[(int)(a * SIDE) * SIDE + (int)(b * SIDE)]++;
    }
    ASSERT_LT_FOR(fabs(chi_square_sigmas(seen, expected, SIDE * SIDE)), 4, "axis %d", axis);
  }
}

/* The function is part of the contract: other back ends and stored seeds depend on its bits. */
Test(random, known_values) {
  ASSERT_EQ(random_mix(RANDOM_GAMMA), UINT64_C(0xE220A8397B1DCDAF)); /* SplitMix64, seed 0 */
  ASSERT_EQ(random_mix(RANDOM_GAMMA * 2), UINT64_C(0x6E789E6AA1B965F4));
  ASSERT_EQ(random_key(1234, 0), UINT64_C(0x2851DDD6C202938B));
  ASSERT_EQ(random_key(1234, 1), UINT64_C(0x9E17E35F6D9238ED));
  uint64_t stream = random_stream(random_key(1234, 0), 5);
  ASSERT_EQ(stream, UINT64_C(0x01663EEDC779BE4D));
  ASSERT_EQ(random_uniform(stream, 151935), 0x1.de4360ba80f60p-1);
  ASSERT_NE(random_key(0, 0), random_key(1, 0));
}

/* Draws `draws` times, along positions or along seeds, and compares with `weights` (any scale). */
static void expect_distribution(rig_t *rig, const double *weights, int draws, bool along_seeds) {
  double *seen = calloc((size_t)rig->vocab, sizeof *seen), sum = 0;
  double *expected = calloc((size_t)rig->vocab, sizeof *expected);
  for (int32_t i = 0; i < rig->vocab; i++) sum += weights[i];
  for (int32_t i = 0; i < rig->vocab; i++) expected[i] = weights[i] / sum * draws;
  for (int i = 0; i < draws; i++) {
    rig->row.rng_key = random_key(along_seeds ? (uint64_t)i : 77, 0);
    rig->row.rng_position = along_seeds ? 0 : (uint64_t)i;
    seen[rig_run(rig)]++;
  }
  double sigmas = chi_square_sigmas(seen, expected, rig->vocab);
  ASSERT_LT_FOR(fabs(sigmas), 4, "%g standard deviations", sigmas);
  free(seen);
  free(expected);
}

enum { SMALL = 40, SMALL_DRAWS = 20000 };

/* Logits whose softmax has no tiny entries, so that every expected count is large. */
static void small_row(float *logits, double *weights, double temperature) {
  uint64_t state = 5;
  for (int i = 0; i < SMALL; i++) {
    logits[i] = (float)(next_random(&state) % 2000) / 1000.0f;
    weights[i] = exp((double)logits[i] / temperature);
  }
}

Test(draws, follow_the_softmax_along_positions_and_seeds) {
  float logits[SMALL];
  double weights[SMALL];
  small_row(logits, weights, 1.0);
  rig_t rig = rig_new(logits, SMALL);
  expect_distribution(&rig, weights, SMALL_DRAWS, false);
  expect_distribution(&rig, weights, SMALL_DRAWS, true);
}

Test(draws, follow_the_temperature) {
  float logits[SMALL];
  double weights[SMALL];
  small_row(logits, weights, 1.7);
  rig_t rig = rig_new(logits, SMALL);
  rig.params.temperature = 1.7f;
  expect_distribution(&rig, weights, SMALL_DRAWS, false);
}

Test(draws, keep_the_proportions_of_what_a_filter_leaves) {
  float logits[SMALL];
  double weights[SMALL];
  small_row(logits, weights, 1.0);
  float sorted[SMALL];
  memcpy(sorted, logits, sizeof sorted);
  for (int i = 0; i < SMALL; i++) { /* descending */
    for (int j = i + 1; j < SMALL; j++) {
      float a = sorted[i], b = sorted[j];
      sorted[i] = a > b ? a : b;
      sorted[j] = a > b ? b : a;
    }
  }
  for (int i = 0; i < SMALL; i++) {
    if (logits[i] < sorted[9]) weights[i] = 0;
  }
  rig_t rig = rig_new(logits, SMALL);
  rig.params.top_k = 10;
  expect_distribution(&rig, weights, SMALL_DRAWS, false);
}

Test(draws, of_a_wide_row_are_even) {
  enum { WIDE = 4096, GROUPS = 64, DRAWS = 6400 };
  float *logits = calloc(WIDE, sizeof *logits);
  double seen[GROUPS] = {0}, lanes[GROUPS] = {0}, expected[GROUPS];
  rig_t rig = rig_new(logits, WIDE);
  for (int i = 0; i < GROUPS; i++) expected[i] = DRAWS / GROUPS;
  for (int i = 0; i < DRAWS; i++) {
    rig.row.rng_position = (uint64_t)i;
    int32_t id = rig_run(&rig);
    seen[id / (WIDE / GROUPS)]++;
    lanes[id % GROUPS]++;
  }
  ASSERT_LT(fabs(chi_square_sigmas(seen, expected, GROUPS)), 4);
  ASSERT_LT(fabs(chi_square_sigmas(lanes, expected, GROUPS)), 4);
  free(logits);
}

/* The definition without any shortcut. */
static int32_t plain_draw(const float *logits, int32_t vocab, const rig_t *rig) {
  uint64_t stream = random_stream(rig->row.rng_key, rig->row.rng_position);
  double inverse_t = 1.0 / (double)rig->params.temperature, best_score = -INFINITY, max = -INFINITY;
  int32_t best = 0;
  for (int32_t i = 0; i < vocab; i++) max = (double)logits[i] > max ? (double)logits[i] : max;
  for (int32_t i = 0; i < vocab; i++) {
    double e = -log1p(-random_uniform(stream, (uint32_t)i));
    double score = ((double)logits[i] - max) * inverse_t - log(e);
    if (score > best_score) best = i, best_score = score;
  }
  return best;
}

Test(draws, of_a_real_vocabulary_skip_no_winner) {
  enum { VOCAB = 151936 };
  static const float temperatures[] = {1.0f, 2.0f, 0.3f, 1e-3f};
  float *logits = malloc(VOCAB * sizeof *logits);
  uint64_t state = 11;
  for (int kind = 0; kind < 4; kind++) { /* flat, noisy, peaked, all equal */
    for (int32_t i = 0; i < VOCAB; i++) {
      float noise = (float)(next_random(&state) % 10000) / 1000.0f;
      logits[i] = kind == 3 ? -4.0f : kind == 0 ? 0.1f * noise : noise;
      if (kind == 2 && i % 5000 == 17) logits[i] += 14;
    }
    for (int t = 0; t < 4; t++) {
      rig_t rig = rig_new(logits, VOCAB);
      rig.params.temperature = temperatures[t];
      rig.row.rng_key = random_key((uint64_t)kind, 0);
      for (uint64_t position = 0; position < 3; position++) {
        rig.row.rng_position = position;
        ASSERT_EQ_FOR(rig_run(&rig), plain_draw(logits, VOCAB, &rig), "kind %d, T %g", kind,
                      (double)temperatures[t]);
      }
    }
  }
  free(logits);
}

static float any_float(uint64_t *state) {
  uint32_t bits = next_random(state) << 1 ^ next_random(state);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* A row of arbitrary float32 bit patterns under arbitrary valid parameters. */
static void any_row(rig_t *rig, float *logits, uint64_t *state) {
  static const float shares[] = {1, 0.9f, 0.5f, 1e-6f};
  static const float factors[] = {1, 10, 1e-38f, 1.1f};
  static const int32_t ids[] = {0, 1, 2, 1, 0, 5, 33, 64, -1, INT32_MAX, INT32_MIN, 299};
  int32_t vocab = 1 + (int32_t)(next_random(state) % 300);
  uint32_t kind = next_random(state) % 4; /* any bits, no NaN, no NaN or infinity, huge */
  for (int32_t i = 0; i < vocab; i++) {
    do {
      logits[i] = any_float(state);
    } while ((kind > 0 && isnan(logits[i])) || (kind > 1 && isinf(logits[i])) ||
             (kind == 3 && fabsf(logits[i]) < 1e37f));
  }
  *rig = rig_new(logits, vocab);
  rig->params.temperature = (float)(next_random(state) % 5) * 0.5f;
  if (next_random(state) % 8 == 0) rig->params.temperature = 1e-5f;
  rig->params.top_p = shares[next_random(state) % 4];
  rig->params.min_p = next_random(state) % 3 == 0 ? shares[next_random(state) % 4] : 0;
  rig->params.top_k = next_random(state) % 2 ? (int32_t)(next_random(state) % 400) : 0;
  rig->params.repetition_penalty = factors[next_random(state) % 4];
  rig->params.frequency_penalty = next_random(state) % 2 ? -2 : 0;
  rig->row.prompt_ids = ids;
  rig->row.num_prompt = (int32_t)(next_random(state) % 13);
  rig->row.output_ids = ids;
  rig->row.num_output = (int32_t)(next_random(state) % 13);
  rig->row.num_top = (int32_t)(next_random(state) % 130) - 1;
  rig->row.rng_key = next_random(state);
  if (next_random(state) % 8 == 0) rig->row.score_id = (int32_t)next_random(state) % vocab;
}

Test(property, no_row_gives_a_bad_id_or_a_nan) {
  static float logits[300];
  uint64_t state = 2024;
  int32_t failed = 0;
  for (int round = 0; round < 20000; round++) {
    rig_t rig;
    any_row(&rig, logits, &state);
    rig_run(&rig); /* checks the id */
    const sample_result_t *result = &rig.result;
    bool has_nan = false, has_finite = false;
    for (int32_t i = 0; i < rig.vocab; i++) has_nan |= isnan(logits[i]) != 0;
    for (int32_t i = 0; i < rig.vocab; i++) has_finite |= logits[i] > -INFINITY;
    ASSERT_EQ(result->status == ERR_INTERNAL,
              has_nan || (!has_finite && rig.row.allowed_mask == NULL));
    if (result->status != 0) {
      failed++;
      continue;
    }
    ASSERT_GE(result->rank, 1);
    ASSERT_LE(result->rank, rig.vocab);
    ASSERT_GE(result->logprob, SAMPLER_LOGPROB_MIN);
    ASSERT_LE(result->logprob, 1e-6f);
    ASSERT_LE(result->num_top, SAMPLE_TOP_MAX);
    for (int32_t i = 0; i < result->num_top; i++) {
      ASSERT_GE(result->top[i].id, 0);
      ASSERT_LT(result->top[i].id, rig.vocab);
      float logprob = result->top[i].logprob;
      ASSERT_GE(logprob, SAMPLER_LOGPROB_MIN);
      ASSERT_LE(logprob, 1e-6f);
      cr_assert(i == 0 || logprob <= result->top[i - 1].logprob);
    }
  }
  cr_assert(failed > 1000 && failed < 8000, "%d rows failed", failed);
}

/* The same row between other rows, at another address, with another row's leftovers in the scratch.
 */
Test(property, neighbours_do_not_matter) {
  enum { VOCAB = 777, PLACES = 9 };
  static float rows[(PLACES + 2) * VOCAB + 16], row[VOCAB];
  uint64_t state = 3;
  void *scratch = aligned_alloc(64, (sampler_scratch_bytes(VOCAB) + 63) / 64 * 64);
  memset(scratch, 0x5A, sampler_scratch_bytes(VOCAB));
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < VOCAB; i++) row[i] = (float)(next_random(&state) % 4000) / 500.0f;
    rig_t rig = rig_new(row, VOCAB);
    rig.params.top_p = round % 2 ? 0.8f : 1;
    rig.params.top_k = round % 3 ? 0 : 50;
    rig.row.num_top = 5;
    rig.row.rng_position = (uint64_t)round;
    rig_run(&rig);
    for (int place = 0; place < PLACES; place++) {
      for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) rows[i] = any_float(&state);
      float *at = rows + (place + 1) * VOCAB + place;
      float before = at[-1], after = at[VOCAB];
      memcpy(at, row, sizeof row);
      sample_result_t result;
      token_logprob_t top[SAMPLE_TOP_MAX];
      memset(&result, 0xC7, sizeof result);
      memset(top, 0xC7, sizeof top);
      result.top = top;
      rig.row.result = &result;
      sampler_row(at, VOCAB, &rig.row, scratch);
      cr_assert(rig_equal(&rig, &result), "place %d", place);
      cr_assert(memcmp(&at[-1], &before, sizeof before) == 0);
      cr_assert(memcmp(&at[VOCAB], &after, sizeof after) == 0);
    }
  }
  free(scratch);
}
