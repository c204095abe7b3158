/* histogram.h: the bucket bounds of the metrics, and one histogram for two sets of names.
 *
 * inferd's own metrics and their vLLM aliases have different bucket bounds. A histogram counts into
 * the union of both sets of bounds; the buckets of one set are sums of these. Loop thread only.
 */
#ifndef INFERD_SERVER_OBSERVE_HISTOGRAM_H
#define INFERD_SERVER_OBSERVE_HISTOGRAM_H

#include <stdint.h>

enum { BOUNDS_MAX = 56 };

typedef struct bounds {
  const double *values; /* ascending */
  int count;
} bounds_t;

extern const bounds_t bounds_ttft, bounds_itl, bounds_itl_vllm, bounds_e2e, bounds_e2e_vllm,
    bounds_queue, bounds_tokens, bounds_n, bounds_n_vllm, bounds_step;

typedef struct histogram {
  double bounds[BOUNDS_MAX];
  uint64_t counts[BOUNDS_MAX + 1]; /* the last one: above every bound */
  int num_bounds;
  uint64_t count;
  double sum;
} histogram_t;

/* Makes an empty histogram over the union of two sets of bounds; one of them may be NULL. */
void histogram_init(histogram_t *histogram, const bounds_t *left, const bounds_t *right);
void histogram_observe(histogram_t *histogram, double value);
/* Returns the number of observations <= `bound`, which must be a bound of the histogram. */
/* Takes over what was counted elsewhere, in buckets of the histogram's bounds. */
void histogram_set(histogram_t *histogram, const uint64_t *counts, double sum);
uint64_t histogram_at_most(const histogram_t *histogram, double bound);

#endif
