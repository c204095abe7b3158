/* test_cost.c: the cost of steps, learned from made-up devices whose costs are known. */
#include "engine/cost.h"

#include "engine/base/random.h"
#include "tests/expect.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

typedef struct source {
  uint64_t state;
} source_t;

static int32_t between(source_t *s, int32_t low, int32_t high) {
  return low + (int32_t)(random_mix(s->state += RANDOM_GAMMA) % (uint64_t)(high - low + 1));
}

/* Decodes of some sequences, and sometimes a chunk of a prompt. */
static cost_work_t draw(source_t *s, int32_t rows_max, int32_t chunk_max) {
  cost_work_t work = {.of = {[COST_STEP] = 1}};
  int32_t rows = between(s, 0, rows_max), chunk = between(s, 0, 1) ? between(s, 2, chunk_max) : 0;
  if (rows + chunk == 0) rows = 1;
  for (int32_t i = 0; i < rows; i++) {
    cost_work_t one = cost_of_tokens(between(s, 10, 4000), 1);
    cost_add(&work, &one, 1);
  }
  work.of[COST_ROW] = rows + (chunk > 0 && between(s, 0, 3) == 0);
  if (chunk == 0) return work;
  cost_work_t more = cost_of_tokens(between(s, 0, 8000), chunk);
  cost_add(&work, &more, 1);
  return work;
}

static double true_ns(const double *ns, const cost_work_t *work) {
  double sum = 0;
  for (int t = 0; t < COST_TERMS; t++) sum += ns[t] * work->of[t];
  return sum;
}

static int compare(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The error that nine of ten further steps keep, as a part of their time. */
static double error_p90(const cost_t *cost, const double *ns, source_t *s, int32_t rows_max) {
  double errors[500];
  for (int i = 0; i < 500; i++) {
    cost_work_t work = draw(s, rows_max, 512);
    double right = true_ns(ns, &work);
    errors[i] = fabs(cost_ns(cost, &work) / right - 1);
  }
  qsort(errors, 500, sizeof *errors, compare);
  return errors[450];
}

/* A small model with a large vocabulary, a larger model on a CPU, a GPU. */
static const double devices[3][COST_TERMS] = {
    {300e3, 200e3, 8e3, 20, 8}, {40e6, 3e6, 4e6, 1e3, 800}, {4.5e6, 5e3, 26e3, 44, 1.3}};

Test(cost, nothing_is_known_at_first) {
  cost_t cost = {0};
  cost_work_t work = {.of = {[COST_STEP] = 1, [COST_TOKEN] = 1, [COST_KEY] = 1}};
  for (int i = 0; i < 15; i++) cost_learn(&cost, &work, 1e6);
  cr_assert(!cost_is_known(&cost));
  cost_learn(&cost, &work, 1e6);
  cr_assert(cost_is_known(&cost));
  cr_assert_float_eq(cost_ns(&cost, &work), 1e6, 1e3);
}

Test(cost, each_device_is_learned) {
  for (int d = 0; d < 3; d++) {
    cost_t cost = {0};
    source_t s = {(uint64_t)d};
    for (int i = 0; i < 400; i++) {
      cost_work_t work = draw(&s, 40, 512);
      double noise = 1 + between(&s, -10, 10) * 0.01;
      cost_learn(&cost, &work, noise * true_ns(devices[d], &work));
    }
    double error = error_p90(&cost, devices[d], &s, 40);
    cr_assert(error < 0.1, "device %d: an error of %.3f", d, error);
  }
}

/* Steps that alone would teach nothing about prompts. */
Test(cost, decodes_do_not_make_it_forget_prompts) {
  cost_t cost = {0};
  source_t s = {1};
  for (int i = 0; i < 400; i++) {
    cost_work_t work = draw(&s, 40, 512);
    cost_learn(&cost, &work, true_ns(devices[0], &work));
  }
  for (int i = 0; i < 100000; i++) {
    cost_work_t work = cost_of_tokens(100 + i % 1000, 1);
    work.of[COST_STEP] = work.of[COST_ROW] = 1;
    cost_learn(&cost, &work, (1 + (i % 5 - 2) * 0.05) * true_ns(devices[0], &work));
  }
  double error = error_p90(&cost, devices[0], &s, 40);
  cr_assert(error < 0.1, "an error of %.3f", error);
}

/* One step of twenty lasts for up to two hundred times as long. */
Test(cost, pauses_of_the_machine_move_it_little) {
  cost_t cost = {0};
  source_t s = {2};
  for (int i = 0; i < 1000; i++) {
    cost_work_t work = draw(&s, 40, 512);
    bool pause = i > 200 && between(&s, 0, 19) == 0;
    cost_learn(&cost, &work, (pause ? between(&s, 2, 200) : 1) * true_ns(devices[0], &work));
  }
  double error = error_p90(&cost, devices[0], &s, 40);
  cr_assert(error < 0.2, "an error of %.3f", error);
}

Test(cost, one_step_alone_changes_a_known_kind_by_a_few_percent) {
  cost_t cost = {0};
  cost_work_t work = cost_of_tokens(100, 1);
  work.of[COST_STEP] = work.of[COST_ROW] = 1;
  for (int i = 0; i < 100; i++) cost_learn(&cost, &work, 1e6);
  cost_learn(&cost, &work, 1e12);
  double after = cost_ns(&cost, &work);
  cr_assert(after < 1.06e6, "%.0f", after);
}

Test(cost, what_changes_for_good_is_learned_again) {
  cost_t cost = {0};
  source_t s = {3};
  for (int i = 0; i < 8000; i++) {
    cost_work_t work = draw(&s, 40, 512);
    cost_learn(&cost, &work, (i < 400 ? 1 : 8) * true_ns(devices[0], &work));
  }
  double slower[COST_TERMS];
  for (int t = 0; t < COST_TERMS; t++) slower[t] = 8 * devices[0][t];
  double error = error_p90(&cost, slower, &s, 40);
  cr_assert(error < 0.1, "an error of %.3f", error);
}

/* The first chunk ever is far larger than anything before it. */
Test(cost, a_first_prompt_is_learned_within_some_steps) {
  cost_t cost = {0};
  for (int i = 0; i < 1000; i++) {
    cost_work_t work = cost_of_tokens(3 + i, 1);
    work.of[COST_STEP] = work.of[COST_ROW] = 1;
    cost_learn(&cost, &work, true_ns(devices[1], &work));
  }
  cost_work_t chunk = cost_of_tokens(0, 64);
  chunk.of[COST_STEP] = 1;
  for (int i = 0; i < 10; i++) cost_learn(&cost, &chunk, true_ns(devices[1], &chunk));
  double error = cost_ns(&cost, &chunk) / true_ns(devices[1], &chunk) - 1;
  cr_assert(fabs(error) < 0.1, "an error of %.3f", error);
}

Test(cost, no_part_is_ever_below_0) {
  cost_t cost = {0};
  source_t s = {4};
  for (int i = 0; i < 2000; i++) {
    cost_work_t work = draw(&s, 40, 512);
    cost_learn(&cost, &work, between(&s, 0, 1000) * 1e5); /* any time for any work */
    for (int t = 0; t < COST_TERMS; t++)
      cr_assert(cost.ns[t] >= 0 && isfinite(cost.ns[t]), "term %d: %f", t, cost.ns[t]);
  }
}

Test(cost, a_chunk_is_as_long_as_its_time_allows) {
  for (int d = 0; d < 3; d++) {
    cost_t cost = {0};
    for (int t = 0; t < COST_TERMS; t++) cost.ns[t] = devices[d][t];
    source_t s = {5};
    for (int i = 0; i < 1000; i++) {
      int32_t start = between(&s, 0, 100000);
      bool rows = between(&s, 0, 1);
      double ns = between(&s, 1, 100) * 1e6;
      int32_t n = cost_tokens(&cost, start, rows, ns);
      cost_work_t fits = cost_of_tokens(start, n), longer = cost_of_tokens(start, n + 1);
      fits.of[COST_ROW] = rows ? n : 1;
      longer.of[COST_ROW] = rows ? n + 1 : 1;
      if (n > 1) cr_assert(cost_ns(&cost, &fits) <= ns * (1 + 1e-9));
      if (n > 0) cr_assert(cost_ns(&cost, &longer) > ns * (1 - 1e-9));
    }
  }
}

Test(cost, what_costs_nothing_is_not_bounded) {
  cost_t cost = {.ns = {[COST_STEP] = 1e6}};
  EXPECT_EQ(cost_tokens(&cost, 0, false, 1), INT32_MAX);
  EXPECT_EQ(cost_tokens(&cost, 0, false, 0), 0);
  EXPECT_EQ(cost_tokens(&cost, 0, true, -5), 0);
}
