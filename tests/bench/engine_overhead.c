/* engine_overhead.c: what a step costs besides the model: receive, plan, prepare and commit.
 *
 * The whole engine over the fake device, N sequences decoding; the loop side drains in this thread.
 * Prints microseconds per step for the engine thread over the steady part of the run: the mean, and
 * the median over the times between two looks, which a pause of the machine does not move.
 * Usage: engine_overhead [sequences] [tokens]
 */
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/engine.h"
#include "tests/sim/fake_ops.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 1500 };

static int num_done;

static void handle(void *context, const event_t *event) {
  (void)context;
  num_done += event->kind == EVENT_DONE;
}

static void nap(long ns) {
  nanosleep(&(struct timespec){0, ns}, NULL);
}

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static engine_t *start(int sequences) {
  engine_options_t o;
  engine_options_default(&o);
  o.model_dir = "tests/fixtures/tiny";
  o.ops = &ops_fake;
  o.dummy_weights = true;
  o.seed = 1;
  o.num_blocks = sequences * 130 + 2;
  o.max_num_seqs = sequences;
  o.max_num_batched_tokens = sequences < 512 ? 512 : sequences;
  o.max_queue_requests = sequences;
  o.max_queue_tokens = 1 << 30;
  engine_t *engine;
  inferd_error_t error = {0};
  if (engine_create(&o, &engine, &error) != 0) {
    fprintf(stderr, "%s\n", error.message);
    exit(1);
  }
  while (engine_state(engine) == ENGINE_LOADING) nap(1000000);
  if (engine_state(engine) == ENGINE_FAILED) {
    engine_failure(engine, &error);
    fprintf(stderr, "%s\n", error.message);
    exit(1);
  }
  return engine;
}

static request_t *make_request(int index, int tokens) {
  request_t *r = calloc(1, sizeof *r);
  int32_t *ids = calloc(64, sizeof *ids);
  if (!r || !ids) exit(1);
  for (int i = 0; i < 64; i++) ids[i] = 2 + (index * 64 + i) % 300;
  r->prompt_ids = ids;
  r->num_prompt_tokens = 64;
  r->skip_special_tokens = true;
  r->arrival_ns = clock_now_ns();
  r->params = (sampling_params_t){.top_p = 1,
                                  .repetition_penalty = 1,
                                  .max_tokens = tokens,
                                  .num_logprobs = -1,
                                  .num_prompt_logprobs = -1};
  return r;
}

int main(int argc, char **argv) {
  int sequences = argc > 1 ? atoi(argv[1]) : 256, tokens = argc > 2 ? atoi(argv[2]) : 1900;
  fake_settings = (fake_settings_t){.first_id = 2, .step_ns = 300000};
  engine_t *engine = start(sequences);
  request_t **requests = calloc((size_t)sequences, sizeof(request_t *));
  for (int i = 0; i < sequences; i++) requests[i] = make_request(i, tokens);
  for (int i = 0; i < sequences; i += SUBMIT_MAX) {
    if (engine_submit(engine, requests + i, MIN(sequences - i, SUBMIT_MAX), NULL) != 0) return 1;
  }
  static double looks[STEPS];
  int num_looks = 0;
  engine_stats_t a, b, last;
  do {
    nap(200000);
    engine_drain(engine, handle, NULL);
    engine_stats(engine, &a);
  } while (a.num_running < sequences || a.num_waiting > 0 || a.steps < 100);
  for (b = last = a; b.steps < a.steps + STEPS && num_done == 0; last = b) {
    nap(200000);
    engine_drain(engine, handle, NULL);
    engine_stats(engine, &b);
    if (b.steps == last.steps) continue;
    looks[num_looks++] =
        (double)(b.overhead_ns - last.overhead_ns) / (double)(b.steps - last.steps);
  }
  qsort(looks, (size_t)num_looks, sizeof *looks, compare);
  double steps = (double)(b.steps - a.steps), median = looks[num_looks / 2];
  printf("engine overhead: %d sequences, %.0f steps, %.1f us per step, median %.1f (%.0f ns per "
         "token)\n",
         sequences, steps, (double)(b.overhead_ns - a.overhead_ns) / steps / 1e3, median / 1e3,
         median / sequences);
  engine_destroy(engine);
  for (int i = 0; i < sequences; i++) {
    free((void *)(uintptr_t)requests[i]->prompt_ids);
    free(requests[i]);
  }
  free(requests);
  return 0;
}
