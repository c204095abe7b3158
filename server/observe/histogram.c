/* histogram.c: bucket bounds and counting. Loop thread only; never allocates. */
#include "server/observe/histogram.h"

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/engine.h"

#include <stddef.h>
#include <string.h>

#define BOUNDS(name, ...)                                                                          \
  static const double name##_values[] = {__VA_ARGS__};                                             \
  const bounds_t name = {name##_values, sizeof name##_values / sizeof name##_values[0]}

/* Contains OpenTelemetry's bounds for the time to the first token, and more. */
BOUNDS(bounds_ttft, .001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20,
       40, 80, 160, 640, 2560);
BOUNDS(bounds_itl, .001, .002, .003, .004, .005, .0065, .008, .01, .015, .02, .025, .03, .04, .05,
       .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 10);
BOUNDS(bounds_itl_vllm, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20,
       40, 80);
BOUNDS(bounds_e2e, .01, .02, .04, .08, .16, .32, .64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
       163.84, 655.36);
BOUNDS(bounds_e2e_vllm, .3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480,
       960, 1920, 7680);
BOUNDS(bounds_queue, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60,
       120);
/* The page prints the bounds up to the context length of the model. */
BOUNDS(bounds_tokens, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5,
       5e5, 1e6, 2e6, 5e6, 1e7);
BOUNDS(bounds_n, 1, 2, 5, 10, 20, 50, 128);
BOUNDS(bounds_n_vllm, 1, 2, 5, 10, 20);
BOUNDS(bounds_step, STEP_TOKEN_BOUNDS);
_Static_assert(sizeof bounds_step_values / sizeof bounds_step_values[0] == STEP_TOKEN_BUCKETS - 1,
               "the engine counts steps in these buckets");

void histogram_init(histogram_t *histogram, const bounds_t *left, const bounds_t *right) {
  static const bounds_t none = {NULL, 0};
  int i = 0, j = 0;
  memset(histogram, 0, sizeof *histogram);
  if (left == NULL) left = &none;
  if (right == NULL) right = &none;
  while (i < left->count || j < right->count) {
    double next;
    if (j == right->count || (i < left->count && left->values[i] <= right->values[j])) {
      next = left->values[i];
    } else {
      next = right->values[j];
    }
    if (i < left->count && left->values[i] <= next) i++;
    if (j < right->count && right->values[j] <= next) j++;
    CHECK_LT(histogram->num_bounds, BOUNDS_MAX);
    histogram->bounds[histogram->num_bounds++] = next;
  }
}

void histogram_observe(histogram_t *histogram, double value) {
  int low = 0, high = histogram->num_bounds; /* first bound >= value */
  while (low < high) {
    int middle = (low + high) / 2;
    if (histogram->bounds[middle] >= value) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  histogram->counts[low]++;
  histogram->count++;
  histogram->sum += value;
}

void histogram_set(histogram_t *histogram, const uint64_t *counts, double sum) {
  histogram->count = 0;
  histogram->sum = sum;
  for (int i = 0; i <= histogram->num_bounds; i++) {
    histogram->counts[i] = counts[i];
    histogram->count += counts[i];
  }
}

uint64_t histogram_at_most(const histogram_t *histogram, double bound) {
  uint64_t sum = 0;
  for (int i = 0; i < histogram->num_bounds && histogram->bounds[i] <= bound; i++) {
    sum += histogram->counts[i];
  }
  return sum;
}
