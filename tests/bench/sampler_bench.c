/* sampler_bench.c: microseconds per row of the sampler, for the kinds of rows that are common.
 *
 * Prints one line a case: median over the rounds, on one thread. "peaked" logits are like those of
 * a language model (a few ids hold the mass), "flat" ones hold nothing but noise.
 */
#include "engine/device/sampling_params.h"
#include "engine/sample/sampler.h"
#include "tests/random.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 41, VOCABS = 2 };

typedef struct bench_case {
  const char *name;
  bool flat;
  float temperature, top_p, min_p;
  int32_t top_k, num_top, context;
} bench_case_t;

static const bench_case_t cases[] = {
    {"greedy", false, 0, 1, 0, 0, -1, 0},
    {"greedy, 5 logprobs", false, 0, 1, 0, 0, 5, 0},
    {"T 1 peaked", false, 1, 1, 0, 0, -1, 0},
    {"T 1 flat", true, 1, 1, 0, 0, -1, 0},
    {"T 1, 5 logprobs", false, 1, 1, 0, 0, 5, 0},
    {"T 0.7 min_p 0.05", false, 0.7f, 1, 0.05f, 0, -1, 0},
    {"top_p 0.9 peaked", false, 1, 0.9f, 0, 0, -1, 0},
    {"top_p 0.9 flat", true, 1, 0.9f, 0, 0, -1, 0},
    {"top_k 50 peaked", false, 1, 1, 0, 50, -1, 0},
    {"top_k 50 flat", true, 1, 1, 0, 50, -1, 0},
    {"T 0.7 top_k 20 top_p 0.8", false, 0.7f, 0.8f, 0, 20, -1, 0},
    {"T 1, penalties, 4k context", false, 1, 1, 0, 0, -1, 4096},
};

/* Sum of four uniforms: near enough to a normal distribution. */
static float noise(uint64_t *state) {
  double sum = 0;
  for (int i = 0; i < 4; i++) sum += (double)next_random(state) / 2147483648.0 - 0.5;
  return (float)(sum * sqrt(3.0));
}

static void fill_logits(float *logits, int32_t vocab, bool flat, uint64_t seed) {
  uint64_t state = seed;
  for (int32_t i = 0; i < vocab; i++) logits[i] = noise(&state) * (flat ? 0.5f : 2.5f);
  for (int32_t i = 0; !flat && i < 30; i++) {
    logits[next_random(&state) % (uint32_t)vocab] = 20.0f - 0.5f * (float)i;
  }
}

static double now_us(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double time_case(const bench_case_t *c, int32_t vocab, float *source, float *logits,
                        void *scratch, int32_t *context) {
  double times[ROUNDS];
  sampling_params_t params = {.temperature = c->temperature,
                              .top_p = c->top_p,
                              .min_p = c->min_p,
                              .top_k = c->top_k,
                              .repetition_penalty = c->context > 0 ? 1.1f : 1.0f,
                              .frequency_penalty = c->context > 0 ? 0.2f : 0.0f};
  token_logprob_t top[SAMPLE_TOP_MAX];
  sample_result_t result = {.top = top};
  fill_logits(source, vocab, c->flat, 7);
  for (int round = 0; round < ROUNDS; round++) {
    sample_row_t row = {.params = &params,
                        .score_id = -1,
                        .num_top = c->num_top,
                        .rng_key = 42,
                        .rng_position = (uint64_t)round,
                        .prompt_ids = context,
                        .num_prompt = c->context / 2,
                        .output_ids = context + c->context / 2,
                        .num_output = c->context / 2,
                        .result = &result};
    memcpy(logits, source, (size_t)vocab * sizeof *logits);
    double start = now_us();
    sampler_row(logits, vocab, &row, scratch);
    times[round] = now_us() - start;
    if (result.status != 0) exit(1);
  }
  qsort(times, ROUNDS, sizeof times[0], compare_doubles);
  return times[ROUNDS / 2];
}

int main(void) {
  static const int32_t vocabs[VOCABS] = {128256, 151936};
  static int32_t context[4096];
  printf("%-28s %12s %12s   (us per row, one thread)\n", "case", "V=128256", "V=151936");
  uint64_t state = 3;
  for (int i = 0; i < 4096; i++) context[i] = (int32_t)(next_random(&state) % 128256);
  float *source = malloc(151936 * sizeof *source), *logits = malloc(151936 * sizeof *logits);
  void *scratch = aligned_alloc(64, sampler_scratch_bytes(151936));
  if (source == NULL || logits == NULL || scratch == NULL) return 1;
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    printf("%-28s", cases[i].name);
    for (int v = 0; v < VOCABS; v++) {
      printf(" %12.1f", time_case(&cases[i], vocabs[v], source, logits, scratch, context));
    }
    printf("\n");
  }
  free(source);
  free(logits);
  free(scratch);
  return 0;
}
