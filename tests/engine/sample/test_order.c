/* test_order.c: rows of many alternatives: the order of a whole vocabulary. */
#include "tests/expect.h"

#include "engine/base/util.h"
#include "engine/device/order.h"
#include "engine/device/sampling_params.h"
#include "engine/sample/sampler_work.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <criterion/criterion.h>

static uint64_t state = 11;

static uint64_t next_random(void) {
  return state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
}

static const float *compared; /* by by_value, which qsort calls without a context */

static int by_value(const void *left, const void *right) {
  int32_t a = *(const int32_t *)left, b = *(const int32_t *)right;
  if (compared[a] != compared[b]) return compared[a] > compared[b] ? -1 : 1;
  return (a > b) - (a < b);
}

/* Few values, so that many are equal; zeros of both signs; infinities. */
static void fill(float *values, int32_t count) {
  static const float rare[] = {-INFINITY, 0.0f, -0.0f, INFINITY, 1e-42f, -1e-42f, 3e38f, -3e38f};
  for (int32_t i = 0; i < count; i++) {
    uint64_t draw = next_random() >> 33;
    values[i] = draw % 8 == 0 ? rare[draw / 8 % 8] : (float)((int)(draw % 4001) - 2000) / 128.0f;
  }
}

Test(order, is_that_of_a_sort_by_comparison) {
  static const int32_t counts[] = {0, 1, 2, 63, 300, 4096, 152064};
  for (size_t c = 0; c < ARRAY_LEN(counts); c++) {
    size_t count = (size_t)counts[c];
    float *values = calloc(count + 1, sizeof *values);
    int32_t *ids = calloc(count + 1, sizeof *ids), *spare = calloc(count + 1, sizeof *spare);
    int32_t *expected = calloc(count + 1, sizeof *expected);
    fill(values, counts[c]);
    ids[count] = spare[count] = 77;
    for (int32_t i = 0; i < counts[c]; i++) expected[i] = i;
    compared = values;
    qsort(expected, count, sizeof *expected, by_value);
    order_largest(values, counts[c], ids, spare);
    for (size_t i = 0; i < count; i++) ASSERT_EQ_FOR(ids[i], expected[i], "place %zu", i);
    ASSERT_EQ(ids[count], 77);
    ASSERT_EQ(spare[count], 77);
    free(values), free(ids), free(spare), free(expected);
  }
}

static sample_result_t sample(const float *logits, int32_t vocab, int32_t num_top,
                              const uint32_t *mask, token_logprob_t *top) {
  sampling_params_t params = {.temperature = 1, .top_p = 1, .repetition_penalty = 1.3f};
  int32_t ids[] = {1, 2, 3};
  sample_result_t result = {.top = top};
  sample_row_t row = {.params = &params,
                      .score_id = -1,
                      .num_top = num_top,
                      .rng_key = 5,
                      .prompt_ids = ids,
                      .num_prompt = 3,
                      .allowed_mask = mask,
                      .result = &result};
  float *copy = malloc((size_t)vocab * sizeof *copy);
  void *scratch = aligned_alloc(64, (sampler_scratch_bytes(vocab) + 63) / 64 * 64);
  memcpy(copy, logits, (size_t)vocab * sizeof *copy);
  sampler_row(copy, vocab, &row, scratch);
  free(copy), free(scratch);
  return result;
}

/* The first of many alternatives are the few, bit for bit; the token drawn is the same. All of them
 * are the log-softmax of the row, here by long double. */
Test(order, many_alternatives_begin_like_few) {
  enum { VOCAB = 5000 };
  static float logits[VOCAB];
  static token_logprob_t few[SAMPLE_TOP_MAX], many[VOCAB + 1];
  static uint32_t mask[VOCAB / 32 + 1];
  for (int round = 0; round < 40; round++) {
    bool masked = round % 2 == 1;
    fill(logits, VOCAB);
    for (int32_t i = 0; i < VOCAB; i++) {
      if (round % 8 < 6 && logits[i] > 1e30f) logits[i] = 3;
    }
    for (size_t i = 0; i < ARRAY_LEN(mask); i++) mask[i] = (uint32_t)(next_random() >> 20);
    const uint32_t *allowed = masked ? mask : NULL;
    int32_t wanted = round % 3 == 0 ? VOCAB : round % 3 == 1 ? SAMPLE_TOP_MAX + 1 : VOCAB + 9;
    many[MIN(wanted, VOCAB)] = (token_logprob_t){-7, -7};
    sample_result_t a = sample(logits, VOCAB, SAMPLE_TOP_MAX, allowed, few);
    sample_result_t b = sample(logits, VOCAB, wanted, allowed, many);
    ASSERT_EQ(a.status, 0);
    ASSERT_EQ(b.num_top, MIN(wanted, VOCAB));
    ASSERT_EQ(many[MIN(wanted, VOCAB)].id, -7);
    ASSERT_EQ(a.id, b.id);
    ASSERT_EQ(memcmp(&a.logprob, &b.logprob, sizeof a.logprob), 0);
    ASSERT_EQ(a.rank, b.rank);
    ASSERT_EQ_FOR(memcmp(few, many, sizeof few), 0, "round %d", round);
    long double sum = 0, most = -INFINITY;
    bool infinite = false;
    for (int32_t i = 0; i < VOCAB; i++) {
      if (masked && !(mask[i / 32] >> (i % 32) & 1)) logits[i] = -INFINITY;
      infinite = infinite || logits[i] == INFINITY;
    }
    for (int32_t i = 0; i < VOCAB; i++) {
      if (infinite) logits[i] = logits[i] == INFINITY ? 0 : -INFINITY;
      most = logits[i] > most ? logits[i] : most;
    }
    for (int32_t i = 0; i < VOCAB; i++) sum += expl(logits[i] - most);
    for (int32_t i = 0; i < b.num_top; i++) {
      double right = (double)(logits[many[i].id] - most - logl(sum));
      ASSERT_LT(fabs(fmax(right, -9999) - (double)many[i].logprob), 1e-5 * fmax(1, fabs(right)));
    }
  }
}
