/* test_sampler_vectors.c: the sampler against the plain float64 reference of
 * scripts/vectors/sampler.py, which wrote tests/vectors/sampler.txt. */
#include "engine/base/random.h"
#include "tests/engine/sample/rig.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIST_MAX = 4096, WORDS_MAX = 16 };

typedef struct vector_case {
  float *logits;
  rig_t rig;
  int32_t lists[5][LIST_MAX]; /* prompt, output, suppressed, allowed, extra */
  logit_bias_t bias[LIST_MAX];
  int32_t word_ids[WORDS_MAX][WORDS_MAX];
  token_sequence_t words[WORDS_MAX];
  uint32_t mask[LIST_MAX];
} vector_case_t;

static uint64_t read_number(FILE *file) {
  long long number;
  ASSERT_EQ(fscanf(file, "%lld", &number), 1);
  return (uint64_t)number;
}

static int32_t read_int(FILE *file) {
  return (int32_t)read_number(file);
}

static float read_float(FILE *file) {
  uint32_t bits = (uint32_t)read_number(file);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static int32_t read_list(FILE *file, int32_t *list) {
  int32_t count = read_int(file);
  ASSERT_LE(count, LIST_MAX);
  for (int32_t i = 0; i < count; i++) list[i] = read_int(file);
  return count;
}

static void read_logits(FILE *file, vector_case_t *c) {
  int32_t vocab = read_int(file);
  uint64_t recipe = read_number(file);
  int scale = read_int(file);
  c->logits = malloc((size_t)vocab * sizeof *c->logits);
  for (int32_t i = 0; i < vocab; i++) {
    int32_t x = (int32_t)(random_mix(recipe + (uint64_t)i * RANDOM_GAMMA) >> 40) - (1 << 23);
    c->logits[i] = (float)ldexp(x, scale - 24);
  }
  int32_t num_set = read_int(file);
  for (int32_t i = 0; i < num_set; i++) {
    int32_t id = read_int(file);
    c->logits[id] = read_float(file);
  }
  c->rig = rig_new(c->logits, vocab);
}

static void read_case(FILE *file, vector_case_t *c) {
  read_logits(file, c);
  sampling_params_t *params = &c->rig.params;
  sample_row_t *row = &c->rig.row;
  params->temperature = read_float(file);
  params->top_p = read_float(file);
  params->min_p = read_float(file);
  params->presence_penalty = read_float(file);
  params->frequency_penalty = read_float(file);
  params->repetition_penalty = read_float(file);
  params->top_k = read_int(file);
  row->num_top = read_int(file);
  row->score_id = read_int(file);
  row->rng_key = read_number(file);
  row->num_prompt = read_list(file, c->lists[0]);
  row->num_output = read_list(file, c->lists[1]);
  row->num_suppressed = read_list(file, c->lists[2]);
  params->num_allowed_ids = read_list(file, c->lists[3]);
  params->num_logprob_token_ids = read_list(file, c->lists[4]);
  row->prompt_ids = c->lists[0], row->output_ids = c->lists[1], row->suppressed_ids = c->lists[2];
  params->allowed_ids = c->lists[3], params->logprob_token_ids = c->lists[4];
  params->num_logit_bias = read_int(file);
  params->logit_bias = c->bias;
  for (int32_t i = 0; i < params->num_logit_bias; i++) {
    c->bias[i].id = read_int(file);
    c->bias[i].bias = read_float(file);
  }
  params->num_bad_words = read_int(file);
  params->bad_words = c->words;
  for (int32_t i = 0; i < params->num_bad_words; i++) {
    c->words[i] = (token_sequence_t){c->word_ids[i], read_list(file, c->word_ids[i])};
  }
  int32_t num_words = read_int(file);
  for (int32_t i = 0; i < num_words; i++) c->mask[i] = (uint32_t)read_number(file);
  row->allowed_mask = num_words > 0 ? c->mask : NULL;
}

static bool near(float value, float wanted) {
  return fabsf(value - wanted) <= 2e-6f * fabsf(wanted) + 2e-6f;
}

/* Runs the draws of one case against what the file says. */
static void check_case(FILE *file, vector_case_t *c, int32_t number) {
  rig_t *rig = &c->rig;
  int32_t status = read_int(file), draws = read_int(file);
  bool logprobs = rig->row.num_top >= 0;
  if (status != 0) {
    rig_run(rig);
    ASSERT_EQ_FOR(rig->result.status, status, "case %d: status %d", number, rig->result.status);
  }
  for (int32_t i = 0; i < draws; i++) {
    int32_t id = read_int(file);
    float logprob = read_float(file);
    int32_t rank = read_int(file);
    rig->row.rng_position = (uint64_t)i;
    rig_run(rig);
    ASSERT_EQ_FOR(rig->result.status, 0, "case %d", number);
    ASSERT_EQ_FOR(rig->result.id, id, "case %d draw %d: %d, not %d", number, i, rig->result.id, id);
    if (!logprobs) continue;
    cr_assert(near(rig->result.logprob, logprob), "case %d: logprob %.9g, not %.9g", number,
              (double)rig->result.logprob, (double)logprob);
    ASSERT_EQ_FOR(rig->result.rank, rank, "case %d: rank", number);
  }
  int32_t num_top = read_int(file);
  ASSERT_EQ_FOR(rig->result.num_top, logprobs ? num_top : 0, "case %d: num_top", number);
  for (int32_t i = 0; i < num_top; i++) {
    int32_t id = read_int(file);
    float logprob = read_float(file);
    ASSERT_EQ_FOR(rig->result.top[i].id, id, "case %d: top %d", number, i);
    cr_assert(near(rig->result.top[i].logprob, logprob), "case %d: top %d", number, i);
  }
}

Test(vectors, agree_with_the_reference) {
  FILE *file = fopen("tests/vectors/sampler.txt", "r");
  cr_assert_not_null(file, "run from the root of the repository");
  vector_case_t *c = malloc(sizeof *c);
  int32_t count = read_int(file);
  ASSERT_GE(count, 500);
  for (int32_t i = 0; i < count; i++) {
    read_case(file, c);
    check_case(file, c, i);
    free(c->logits);
  }
  free(c);
  fclose(file);
}
