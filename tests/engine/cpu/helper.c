/* helper.c: see helper.h. Runs in the test process only. */
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const tier_names[NUM_TIER_NAMES] = {"portable",   "avx2",       "avxvnni", "avx512",
                                                "avx512vnni", "avx512bf16", "amx",     "neon",
                                                "neondot",    "neoni8mm"};

uint64_t test_seed(void) {
  const char *text = getenv("TEST_SEED");
  return text ? strtoull(text, NULL, 10) : 20261120;
}

random_state_t random_start(uint64_t stream) {
  return (random_state_t){test_seed() * 0x9e3779b97f4a7c15u + stream * 0xd1342543de82ef95u};
}

/* splitmix64 */
uint64_t random_next(random_state_t *random) {
  uint64_t z = random->state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

int32_t random_below(random_state_t *random, int32_t end) {
  return (int32_t)(random_next(random) % (uint64_t)end);
}

float random_float(random_state_t *random) {
  return (float)((double)(random_next(random) >> 11) * 0x1p-52 - 1.0);
}

float *random_floats(random_state_t *random, int64_t count, float scale) {
  float *values = malloc((size_t)count * sizeof *values);
  cr_assert_not_null(values);
  for (int64_t i = 0; i < count; i++) values[i] = random_float(random) * scale;
  return values;
}

int tiers_here(const char **out) {
  int count = 0;
  for (int i = 0; i < NUM_TIER_NAMES; i++) {
    device_t *device = NULL;
    inferd_error_t error;
    device_options_t options = {.num_threads = 1, .isa = tier_names[i]};
    if (ops_cpu.open(&options, &device, &error) == 0) {
      out[count++] = tier_names[i];
      ops_cpu.close(device);
    } else {
      fprintf(stderr, "not tested here: %s\n", error.message);
    }
  }
  return count;
}

device_t *device_open(const char *isa, int threads) {
  device_t *device = NULL;
  inferd_error_t error;
  device_options_t options = {.num_threads = threads, .isa = isa};
  int status = ops_cpu.open(&options, &device, &error);
  ASSERT_EQ_FOR(status, 0, "%s", error.message);
  return device;
}

device_t *device_prepared(const char *isa, int threads, const step_limits_t *limits) {
  device_t *device = device_open(isa, threads);
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.prepare(device, limits, &error), 0, "%s", error.message);
  return device;
}

/* By double arithmetic: the nearest multiple of the spacing at x, ties to even (nearbyint). */
static float round_bits(float x, int mantissa_bits, int exponent_min) {
  if (x == 0 || !isfinite(x)) return x;
  int exponent;
  frexp(x, &exponent);
  if (exponent < exponent_min) exponent = exponent_min;
  double spacing = ldexp(1.0, exponent - mantissa_bits);
  return (float)(nearbyint((double)x / spacing) * spacing);
}

float round_to(float x, dtype_t dtype) {
  if (dtype == DTYPE_F32) return x;
  return dtype == DTYPE_BF16 ? round_bits(x, 8, -125) : round_bits(x, 11, -13);
}

uint16_t half_of(float x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  double m = fabs((double)x);
  if (m == 0) return sign;
  int exponent;
  double fraction = frexp(m, &exponent); /* m = fraction * 2^exponent, fraction in [0.5, 1) */
  if (exponent < -13) return (uint16_t)(sign | (int)ldexp(m, 24));
  return (uint16_t)(sign | (exponent + 14) << 10 | (int)((fraction * 2 - 1) * 1024));
}

typedef struct source {
  const float *values;
  int64_t cols;
  dtype_t dtype;
} source_t;

static const void *source_row(void *context, int64_t row, void *scratch) {
  const source_t *s = context;
  const float *values = s->values + row * s->cols;
  if (s->dtype == DTYPE_F32) return values;
  uint16_t *out = scratch;
  for (int64_t i = 0; i < s->cols; i++) {
    uint32_t u;
    memcpy(&u, &values[i], sizeof u);
    out[i] = s->dtype == DTYPE_BF16 ? (uint16_t)(u >> 16) : half_of(values[i]);
  }
  return out;
}

weight_t *weight_make(device_t *device, float *values, int64_t rows, int64_t cols, dtype_t dtype) {
  for (int64_t i = 0; i < rows * cols; i++) values[i] = round_to(values[i], dtype);
  source_t context = {values, cols, dtype};
  weight_source_t source = {.name = "test",
                            .rows = rows,
                            .cols = cols,
                            .dtype = dtype,
                            .row = source_row,
                            .context = &context};
  weight_t *weight = NULL;
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.weight(device, &source, &weight, &error), 0, "%s", error.message);
  return weight;
}

vector_t *vector_make(device_t *device, const float *values, int64_t count) {
  vector_t *vector = NULL;
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.vector(device, values, count, &vector, &error), 0, "%s", error.message);
  return vector;
}
