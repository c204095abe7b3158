/* helper.h: what the tests of the CPU back end share: random numbers, tiers, weights, devices.
 *
 * Inputs are random from one seed, which every failing assertion prints; TEST_SEED=n sets another.
 */
#ifndef INFERD_TESTS_ENGINE_CPU_HELPER_H
#define INFERD_TESTS_ENGINE_CPU_HELPER_H

#include "engine/device/ops.h"

#include <criterion/criterion.h>

/* Sanitizers slow the kernels down 20-fold: less of the same is run under them. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 };
#else
enum { SANITIZED = 0 };
#endif

enum { NUM_TIER_NAMES = 10 };
extern const char *const tier_names[NUM_TIER_NAMES];

uint64_t test_seed(void);
#define SEED (unsigned long long)test_seed()

typedef struct random_state {
  uint64_t state;
} random_state_t;

random_state_t random_start(uint64_t stream); /* from test_seed and `stream` */
uint64_t random_next(random_state_t *random);
int32_t random_below(random_state_t *random, int32_t end);                /* 0..end-1 */
float random_float(random_state_t *random);                               /* -1..1 */
float *random_floats(random_state_t *random, int64_t count, float scale); /* free() it */

/* The tiers this machine has; prints the ones it lacks. */
int tiers_here(const char **out);

/* A device of `isa` with `threads`, as it is or prepared for `limits`. */
device_t *device_open(const char *isa, int threads);
device_t *device_prepared(const char *isa, int threads, const step_limits_t *limits);

/* values[rows, cols] rounded to `dtype` in place, and the weight made of them. */
weight_t *weight_make(device_t *device, float *values, int64_t rows, int64_t cols, dtype_t dtype);
vector_t *vector_make(device_t *device, const float *values, int64_t count);

float round_to(float x, dtype_t dtype);

/* An element conversion written apart from the back end's. */
uint16_t half_of(float x);

#endif
