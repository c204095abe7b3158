/* test_sampler.c: each step of the sampler alone, with values worked out by hand. */
#include "tests/engine/sample/rig.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) ((int32_t)(sizeof(array) / sizeof(array)[0]))

/* Bit i is set when id i is drawn at one of `draws` positions. For rows of up to 64 ids. */
static uint64_t drawn_ids(rig_t *rig, int draws) {
  uint64_t seen = 0;
  for (int i = 0; i < draws; i++) {
    rig->row.rng_position = (uint64_t)i;
    seen |= UINT64_C(1) << rig_run(rig);
    ASSERT_EQ(rig->result.status, 0);
  }
  return seen;
}

Test(greedy, takes_the_best_and_the_lowest_of_equals) {
  float logits[200] = {0};
  rig_t rig = rig_new(logits, 200);
  rig.params.temperature = 0;
  ASSERT_EQ(rig_run(&rig), 0);
  for (int32_t best = 1; best < 200; best++) {
    logits[best] = 1;
    if (best + 70 < 200) logits[best + 70] = 1;
    ASSERT_EQ(rig_run(&rig), best);
    logits[best] = -1;
    if (best + 70 < 200) logits[best + 70] = 0;
  }
}

Test(greedy, starts_below_the_limit_and_ignores_the_filters) {
  float logits[] = {1.0f, 1.0f, 0.9999999f};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.temperature = 0.9e-5f;
  rig.params.top_p = 0.1f;
  rig.params.min_p = 1;
  rig.params.top_k = 1;
  ASSERT_EQ(drawn_ids(&rig, 30), 1u);
  rig.params.temperature = 1e-5f; /* no longer greedy: both equals are drawn */
  rig.params.top_p = 1;
  rig.params.top_k = 2;
  ASSERT_EQ(drawn_ids(&rig, 60), 3u);
}

Test(greedy, takes_negative_zero_for_zero) {
  float logits[] = {-1, -0.0f, 0.0f};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.temperature = 0;
  ASSERT_EQ(rig_run(&rig), 1);
}

Test(mask, leaves_only_what_it_allows) {
  float logits[70] = {0};
  for (int i = 0; i < 70; i++) logits[i] = (float)i;
  uint32_t mask[3] = {0x00000108, 0, 0};
  rig_t rig = rig_new(logits, 70);
  rig.row.allowed_mask = mask;
  rig.row.num_top = 3;
  rig.params.temperature = 0;
  ASSERT_EQ(rig_run(&rig), 8);
  ASSERT_EQ(rig.result.top[0].id, 8); /* raw logprobs are taken behind the mask */
  ASSERT_EQ(rig.result.top[1].id, 3);
  ASSERT_EQ(rig.result.top[2].id, 0);
  ASSERT_EQ(rig.result.top[2].logprob, SAMPLER_LOGPROB_MIN);
  cr_assert_float_eq(rig.result.logprob, -log1p(exp(-5)), 1e-6);
  mask[2] = 1u << 5;
  ASSERT_EQ(rig_run(&rig), 69);
  mask[0] = mask[2] = 0;
  mask[2] = 1u << 6; /* a bit behind the vocabulary allows nothing */
  rig_run(&rig);
  ASSERT_EQ(rig.result.status, ERR_NO_CHOICE);
}

Test(allowed, ids_and_bad_ids) {
  float logits[] = {5, 4, 3, 2, 1};
  int32_t allowed[] = {4, 2, 2, -1, 99};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.temperature = 0;
  rig.params.allowed_ids = allowed;
  rig.params.num_allowed_ids = COUNT(allowed);
  rig.row.num_top = 1;
  ASSERT_EQ(rig_run(&rig), 2);
  ASSERT_EQ(rig.result.top[0].id, 0); /* raw logprobs are taken before */
  ASSERT_EQ(rig.result.rank, 3);
  rig.params.temperature = 1;
  ASSERT_EQ(drawn_ids(&rig, 60), (1u << 2) | (1u << 4));
}

Test(bad_words, ban_the_last_id_behind_their_beginning) {
  float logits[] = {5, 4, 3, 2};
  int32_t output[] = {2, 3, 1};
  int32_t word[] = {3, 1, 0};
  token_sequence_t bad = {word, 3};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.temperature = 0;
  rig.params.bad_words = &bad;
  rig.params.num_bad_words = 1;
  rig.row.output_ids = output;
  rig.row.num_output = 3;
  ASSERT_EQ(rig_run(&rig), 1); /* output ends in 3 1 */
  rig.row.num_output = 2;
  ASSERT_EQ(rig_run(&rig), 0); /* ends in 2 3 */
  rig.row.output_ids = output + 2;
  rig.row.num_output = 1;
  ASSERT_EQ(rig_run(&rig), 0); /* shorter than the beginning */
  rig.row.output_ids = NULL;
  rig.row.num_output = 0;
  ASSERT_EQ(rig_run(&rig), 0);
  bad = (token_sequence_t){word + 2, 1}; /* a single id is always banned */
  ASSERT_EQ(rig_run(&rig), 1);
  bad.count = 0; /* no id at all bans nothing */
  ASSERT_EQ(rig_run(&rig), 0);
}

static void expect_id(rig_t *rig, int32_t wanted) {
  ASSERT_EQ(rig_run(rig), wanted);
  ASSERT_EQ(rig->result.status, 0);
}

Test(min_tokens, suppresses_ids_under_a_mask_too) {
  float logits[] = {5, 4, 3, 2};
  int32_t suppressed[] = {0, 1, -7, 4000};
  uint32_t mask = 0x3;
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.temperature = 0;
  rig.row.suppressed_ids = suppressed;
  rig.row.num_suppressed = COUNT(suppressed);
  expect_id(&rig, 2);
  rig.row.allowed_mask = &mask;
  rig_run(&rig);
  ASSERT_EQ(rig.result.status, ERR_NO_CHOICE);
  mask = 0xFFFFFFF3; /* bits behind the vocabulary are no way out */
  rig_run(&rig);
  ASSERT_EQ(rig.result.status, ERR_NO_CHOICE);
  mask = 0xB;
  expect_id(&rig, 3);
}

Test(bias, is_added) {
  float logits[] = {5, 4, 3, 2};
  logit_bias_t bias[] = {{3, 3.5f}, {0, -100}, {-1, 100}, {4, 100}};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.temperature = 0;
  rig.params.logit_bias = bias;
  rig.params.num_logit_bias = COUNT(bias);
  rig.row.num_top = 0;
  ASSERT_EQ(rig_run(&rig), 3);
  ASSERT_EQ(rig.result.rank, 4);
  double sum = exp(5) + exp(4) + exp(3) + exp(2);
  cr_assert_float_eq(rig.result.logprob, log(exp(2) / sum), 1e-6);
}

/* The logit of id 0 after penalties, measured against a comparison logit on id 1. */
static void expect_penalised(rig_t *rig, float *logits, float wanted) {
  rig->params.temperature = 0;
  logits[1] = wanted + 1e-4f;
  ASSERT_EQ_FOR(rig_run(rig), 1, "more than %g", (double)wanted);
  logits[1] = wanted - 1e-4f;
  ASSERT_EQ_FOR(rig_run(rig), 0, "less than %g", (double)wanted);
}

Test(penalties, follow_their_formulas) {
  float logits[] = {2, 0};
  int32_t ids[] = {0, 0, 0};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.row.prompt_ids = ids;
  rig.row.num_prompt = 3;
  rig.params.presence_penalty = 0.5f;
  rig.params.frequency_penalty = 0.25f;
  expect_penalised(&rig, logits, 2); /* these two count the output only */
  rig.params.repetition_penalty = 4;
  expect_penalised(&rig, logits, 0.5f); /* once, however often the id occurs */
  rig.row.output_ids = ids;
  rig.row.num_output = 2;
  expect_penalised(&rig, logits, 0.5f - 2 * 0.25f - 0.5f);
  rig.row.num_prompt = 0;
  rig.row.prompt_ids = NULL;
  expect_penalised(&rig, logits, 0.5f - 2 * 0.25f - 0.5f);
  logits[0] = -2;
  expect_penalised(&rig, logits, -8 - 2 * 0.25f - 0.5f);
  rig.params.repetition_penalty = 1;
  rig.params.presence_penalty = -1.5f;
  expect_penalised(&rig, logits, -2 - 2 * 0.25f + 1.5f);
}

Test(penalties, come_behind_the_bias) {
  float logits[] = {-1, 0};
  int32_t output[] = {0};
  logit_bias_t bias = {0, 3};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.row.output_ids = output;
  rig.row.num_output = 1;
  rig.params.logit_bias = &bias;
  rig.params.num_logit_bias = 1;
  rig.params.repetition_penalty = 2;
  expect_penalised(&rig, logits, 1); /* (-1 + 3) / 2, not -1 * 2 + 3 */
}

Test(min_p, drops_below_a_share_of_the_best) {
  float logits[4] = {0};
  for (int i = 0; i < 4; i++) logits[i] = logf((float)(8 - 2 * i)); /* p = 8 6 4 2 */
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.min_p = 0.6f; /* 4.8 of 8 */
  ASSERT_EQ(drawn_ids(&rig, 100), 3u);
  rig.params.min_p = 0.49f;
  ASSERT_EQ(drawn_ids(&rig, 100), 7u);
  rig.params.temperature = 0.5f; /* p = 64 36 16 4: 0.49 keeps two */
  ASSERT_EQ(drawn_ids(&rig, 100), 3u);
  rig.params.min_p = 1;
  ASSERT_EQ(drawn_ids(&rig, 100), 1u);
}

Test(top_k, keeps_ties_with_the_last) {
  float logits[] = {1, 3, 2, 2, 2, 0};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.top_k = 1;
  ASSERT_EQ(drawn_ids(&rig, 100), 1u << 1);
  rig.params.top_k = 2;
  ASSERT_EQ(drawn_ids(&rig, 100), 0x1Eu);
  rig.params.top_k = 4;
  ASSERT_EQ(drawn_ids(&rig, 100), 0x1Eu);
  rig.params.top_k = 5;
  ASSERT_EQ(drawn_ids(&rig, 200), 0x1Fu);
  rig.params.top_k = 6;
  ASSERT_EQ(drawn_ids(&rig, 400), 0x3Fu);
}

Test(top_k, counts_what_min_p_left) {
  float logits[] = {10, 9, 1, 0};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.min_p = 0.1f;
  rig.params.top_k = 3;
  ASSERT_EQ(drawn_ids(&rig, 200), 3u);
}

Test(top_p, drops_ascending_while_the_sum_is_at_most_the_rest) {
  float equal[] = {0, 0, 0, 0};
  rig_t rig = rig_new(equal, COUNT(equal));
  rig.params.top_p = 0.5f; /* 0.25 and 0.5 are <= 0.5: two are dropped */
  ASSERT_EQ(drawn_ids(&rig, 100), 3u);
  rig.params.top_p = 0.51f; /* 0.5 > 0.49: one is dropped */
  ASSERT_EQ(drawn_ids(&rig, 100), 7u);
  rig.params.top_p = 0.75f;
  ASSERT_EQ(drawn_ids(&rig, 100), 7u);
  rig.params.top_p = 0.76f;
  ASSERT_EQ(drawn_ids(&rig, 100), 15u);
  rig.params.top_p = 1e-6f; /* the best always stays */
  ASSERT_EQ(drawn_ids(&rig, 50), 1u);
  float uneven[] = {logf(1), logf(5), logf(2), logf(8)}; /* p = 1 5 2 8 of 16 */
  rig.logits = uneven;
  rig.params.top_p = 0.85f; /* 1 <= 2.4 goes, 3 > 2.4 stays */
  ASSERT_EQ(drawn_ids(&rig, 200), 0xEu);
  rig.params.top_p = 0.8f; /* 3 <= 3.2 goes too */
  ASSERT_EQ(drawn_ids(&rig, 200), 0xAu);
  rig.params.top_p = 0.45f; /* 8 <= 8.8 goes: only the best */
  ASSERT_EQ(drawn_ids(&rig, 50), 0x8u);
}

Test(top_p, is_taken_of_what_top_k_left) {
  float logits[] = {logf(4), logf(3), logf(2), logf(1)};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.top_k = 2;     /* 4 3 of 7 */
  rig.params.top_p = 0.55f; /* 3 <= 3.15 goes; of all ten it would have stayed */
  ASSERT_EQ(drawn_ids(&rig, 60), 1u);
}

/* Enough blocks that the candidates come in several rounds, and ties across blocks. */
Test(top_p, of_a_large_equal_row_keeps_the_lowest_ids) {
  enum { VOCAB = 20000 };
  float *logits = calloc(VOCAB, sizeof *logits);
  rig_t rig = rig_new(logits, VOCAB);
  const float shares[] = {0.001f, 0.1f, 0.5f, 0.95f};
  for (int s = 0; s < COUNT(shares); s++) {
    int32_t last = (int32_t)ceil((double)shares[s] * VOCAB) - 1, most = 0;
    rig.params.top_p = shares[s];
    for (uint64_t i = 0; i < 200; i++) {
      rig.row.rng_position = i;
      int32_t id = rig_run(&rig);
      ASSERT_LE(id, last);
      if (id > most) most = id;
    }
    ASSERT_GT(most, last - last / 10 - 1);
  }
  free(logits);
}

Test(logprobs, are_raw_and_ranked) {
  float logits[] = {1, 3, 3, 0, -INFINITY};
  int32_t extra[] = {3, 1, 3, 77, 4};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.temperature = 0.01f;
  rig.params.logprob_token_ids = extra;
  rig.params.num_logprob_token_ids = COUNT(extra);
  rig.row.num_top = 2;
  rig_run(&rig);
  double log_sum = log(exp(1) + 2 * exp(3) + 1);
  ASSERT_EQ(rig.result.rank, 1); /* equals share a rank */
  cr_assert_float_eq(rig.result.logprob, 3 - log_sum, 1e-6);
  const int32_t ids[] = {1, 2, 3, 4}; /* top two, then the extra ones that are new and valid */
  const double logprobs[] = {3 - log_sum, 3 - log_sum, -log_sum, -9999};
  ASSERT_EQ(rig.result.num_top, 4);
  for (int i = 0; i < 4; i++) {
    ASSERT_EQ(rig.result.top[i].id, ids[i]);
    cr_assert_float_eq(rig.result.top[i].logprob, logprobs[i], 1e-6);
  }
  rig.row.num_top = 20; /* more than there are */
  rig_run(&rig);
  ASSERT_EQ(rig.result.num_top, 5);
  rig.row.num_top = -1;
  rig_run(&rig);
  ASSERT_EQ(rig.result.num_top, 0);
}

Test(logprobs, of_a_scored_id_need_no_draw) {
  float logits[] = {1, 3, 2};
  int32_t extra[] = {0};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.logprob_token_ids = extra;
  rig.params.num_logprob_token_ids = 1;
  rig.params.repetition_penalty = 5; /* a score takes no notice of parameters */
  rig.row.prompt_ids = extra;
  rig.row.num_prompt = 1;
  rig.row.score_id = 2;
  rig.row.num_top = 1;
  ASSERT_EQ(rig_run(&rig), 2);
  ASSERT_EQ(rig.result.rank, 2);
  ASSERT_EQ(rig.result.num_top, 1);
  ASSERT_EQ(rig.result.top[0].id, 1);
  cr_assert_float_eq(rig.result.logprob, 2 - log(exp(1) + exp(3) + exp(2)), 1e-6);
}

/* Whole blocks, half ones and the broken one at the end, against a plain loop. */
Test(grammar_mask, leaves_exactly_what_is_allowed) {
  enum { VOCAB_MAX = 300, ROUNDS = 2000 };
  float logits[VOCAB_MAX];
  uint32_t mask[VOCAB_MAX / 32 + 1];
  uint64_t state = 5;
  for (int round = 0; round < ROUNDS; round++) {
    int32_t vocab = 1 + (int32_t)(next_random(&state) % VOCAB_MAX), best = -1;
    uint32_t kind = next_random(&state) % 4;
    for (size_t i = 0; i < COUNT(mask); i++) {
      uint32_t word = next_random(&state), other = next_random(&state);
      mask[i] = kind == 0 ? word : kind == 1 ? word & other : other % 2 ? UINT32_MAX : 0;
    }
    for (int32_t i = 0; i < vocab; i++) {
      logits[i] = (float)(next_random(&state) % 100000);
      bool allowed = mask[i / 32] >> (i % 32) & 1;
      if (allowed && (best < 0 || logits[i] > logits[best])) best = i;
    }
    rig_t rig = rig_new(logits, vocab);
    rig.params.temperature = 0;
    rig.row.allowed_mask = mask;
    int32_t id = rig_run(&rig);
    ASSERT_EQ_FOR(rig.result.status, best < 0 ? ERR_NO_CHOICE : 0, "round %d", round);
    ASSERT_EQ_FOR(id, best < 0 ? 0 : best, "round %d", round);
  }
}

Test(broken, rows_fail_alone) {
  float logits[130] = {0};
  rig_t rig = rig_new(logits, 130);
  rig.row.num_top = 5;
  for (int32_t at = 0; at < 130; at++) {
    for (int i = 0; i < 130; i++) logits[i] = (float)(i % 7);
    logits[at] = at % 2 ? NAN : -NAN;
    ASSERT_EQ(rig_run(&rig), 0);
    ASSERT_EQ_FOR(rig.result.status, ERR_INTERNAL, "NaN at %d", at);
    ASSERT_EQ(rig.result.num_top, 0);
    uint32_t mask[5] = {at == 7 ? 2 : 128}; /* a grammar that rules the id out hides nothing */
    rig.row.allowed_mask = mask;
    ASSERT_EQ(rig_run(&rig), 0);
    ASSERT_EQ_FOR(rig.result.status, ERR_INTERNAL, "NaN at %d behind a mask", at);
    rig.row.allowed_mask = NULL;
  }
  for (int i = 0; i < 130; i++) logits[i] = -INFINITY;
  rig_run(&rig);
  ASSERT_EQ(rig.result.status, ERR_INTERNAL);
}

Test(broken, contradictions_are_the_requests_fault) {
  float logits[] = {1, 2, 3};
  int32_t allowed[] = {1};
  token_sequence_t bad = {allowed, 1};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.params.allowed_ids = allowed;
  rig.params.num_allowed_ids = 1;
  ASSERT_EQ(rig_run(&rig), 1);
  rig.params.bad_words = &bad;
  rig.params.num_bad_words = 1;
  rig_run(&rig);
  ASSERT_EQ(rig.result.status, ERR_NO_CHOICE);
}

Test(infinity, shares_all_probability) {
  float logits[] = {3e38f, INFINITY, 0, INFINITY, -INFINITY};
  rig_t rig = rig_new(logits, COUNT(logits));
  rig.row.num_top = 3;
  ASSERT_EQ(drawn_ids(&rig, 100), 0xAu);
  cr_assert_float_eq(rig.result.logprob, log(0.5), 1e-6);
  ASSERT_EQ(rig.result.top[2].logprob, SAMPLER_LOGPROB_MIN);
  rig.params.temperature = 0;
  ASSERT_EQ(rig_run(&rig), 1);
  uint32_t mask = 0x15; /* not the infinite ones */
  rig.row.allowed_mask = &mask;
  ASSERT_EQ(rig_run(&rig), 0);
}
