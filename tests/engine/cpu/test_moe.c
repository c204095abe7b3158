/* test_moe.c: experts of every tier against double precision, their bits for any number of rows and
 * threads, ties and NaN in the router, and MXFP4 weights against the same values in bf16. */
#include "engine/cpu/act.h"
#include "tests/engine/cpu/helper.h"
#include "tests/engine/model/naive_route.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { E = 9, TOP = 3, HIDDEN = 96, WIDTH = 64, ROWS = 40 };

static const step_limits_t limits = {.tokens_max = 600,
                                     .reqs_max = 4,
                                     .logits_rows_max = 4,
                                     .hidden_max = 192,
                                     .vocab_size = 64,
                                     .max_model_len = 64,
                                     .heads_max = 1,
                                     .head_dim_max = 16,
                                     .experts_max = E,
                                     .experts_top_max = TOP,
                                     .expert_width_max = WIDTH};

typedef struct values {
  float *router, *router_bias, *up, *up_bias, *down, *down_bias;
} values_t;

static values_t values_make(random_state_t *random) {
  return (values_t){random_floats(random, E * HIDDEN, 0.3f),
                    random_floats(random, E, 0.3f),
                    random_floats(random, E * 2 * WIDTH * HIDDEN, 0.3f),
                    random_floats(random, E * 2 * WIDTH, 1),
                    random_floats(random, E * HIDDEN * WIDTH, 0.3f),
                    random_floats(random, E * HIDDEN, 1)};
}

static void values_free(values_t *v) {
  free(v->router), free(v->router_bias), free(v->up), free(v->up_bias), free(v->down);
  free(v->down_bias);
}

typedef struct rows_source {
  const float *values;
  const uint8_t *blocks;
  int64_t cols;
  dtype_t dtype;
} rows_source_t;

static const void *next_row(void *context, int64_t row, void *scratch) {
  const rows_source_t *s = context;
  if (s->blocks) return s->blocks + row * s->cols / MXFP4_COLS * MXFP4_BYTES;
  for (int64_t i = 0; i < s->cols; i++) {
    float x = round_to(s->values[row * s->cols + i], s->dtype);
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (s->dtype == DTYPE_F32) ((float *)scratch)[i] = x;
    if (s->dtype == DTYPE_BF16) ((uint16_t *)scratch)[i] = (uint16_t)(bits >> 16);
    if (s->dtype == DTYPE_F16) ((uint16_t *)scratch)[i] = half_of(x);
  }
  return scratch;
}

static weight_t *stack_make(device_t *device, const float *values, const uint8_t *blocks,
                            int64_t rows, int64_t cols, dtype_t dtype) {
  rows_source_t context = {values, blocks, cols, dtype};
  weight_source_t source = {.name = "stack",
                            .rows = E * rows,
                            .cols = cols,
                            .stack = E,
                            .format = blocks ? WEIGHT_MXFP4 : WEIGHT_PLAIN,
                            .dtype = dtype,
                            .row = next_row,
                            .context = &context};
  weight_t *weight = NULL;
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.weight(device, &source, &weight, &error), 0, "%s", error.message);
  return weight;
}

static moe_t moe_make(device_t *device, const values_t *v, dtype_t dtype, bool biases) {
  return (moe_t){.num_experts = E,
                 .top_k = TOP,
                 .width = WIDTH,
                 .activation = biases ? ACTIVATION_CLAMPED_SWIGLU : ACTIVATION_SILU_MUL,
                 .normalise = biases,
                 .router = weight_make(device, v->router, E, HIDDEN, DTYPE_F32),
                 .router_bias = biases ? vector_make(device, v->router_bias, E) : NULL,
                 .up = stack_make(device, v->up, NULL, 2 * WIDTH, HIDDEN, dtype),
                 .up_bias = biases ? vector_make(device, v->up_bias, E * 2 * WIDTH) : NULL,
                 .down = stack_make(device, v->down, NULL, HIDDEN, WIDTH, dtype),
                 .down_bias = biases ? vector_make(device, v->down_bias, E * HIDDEN) : NULL};
}

/* The k best by looking k times for the best that is left; ascending. */
static void choose_slowly(const double *logits, int *chosen) {
  bool taken[E] = {false};
  int count = 0;
  for (int j = 0; j < TOP; j++) {
    int best = -1;
    for (int e = 0; e < E; e++)
      if (!taken[e] && (best < 0 || logits[e] > logits[best])) best = e;
    taken[best] = true;
  }
  for (int e = 0; e < E; e++)
    if (taken[e]) chosen[count++] = e;
}

static void expert(const values_t *v, int e, const float *x, dtype_t dtype, bool biases,
                   double *out) {
  double act[WIDTH];
  for (int i = 0; i < WIDTH; i++) {
    double sums[2];
    for (int part = 0; part < 2; part++) {
      int row = part * WIDTH + i;
      sums[part] = biases ? v->up_bias[e * 2 * WIDTH + row] : 0;
      for (int k = 0; k < HIDDEN; k++) {
        double a = dtype == DTYPE_BF16 ? round_to(x[k], dtype) : x[k];
        sums[part] += a * round_to(v->up[(e * 2 * WIDTH + row) * HIDDEN + k], dtype);
      }
    }
    double gate = sums[0], up = sums[1];
    if (biases) {
      gate = fmin(gate, 7);
      act[i] = (fmax(fmin(up, 7), -7) + 1) * gate / (1 + exp(-1.702 * gate));
    } else {
      act[i] = up * gate / (1 + exp(-gate));
    }
  }
  for (int n = 0; n < HIDDEN; n++) {
    out[n] = biases ? v->down_bias[e * HIDDEN + n] : 0;
    for (int i = 0; i < WIDTH; i++)
      out[n] += act[i] * round_to(v->down[(e * HIDDEN + n) * WIDTH + i], dtype);
  }
}

static void reference(const values_t *v, const float *x, const float *residual, dtype_t dtype,
                      bool biases, double *out) {
  double logits[E], total = 0, part[HIDDEN];
  int chosen[TOP];
  for (int e = 0; e < E; e++) {
    logits[e] = biases ? v->router_bias[e] : 0;
    for (int k = 0; k < HIDDEN; k++) logits[e] += (double)x[k] * v->router[e * HIDDEN + k];
  }
  choose_slowly(logits, chosen);
  for (int j = 0; j < TOP && biases; j++) total += exp(logits[chosen[j]]);
  for (int e = 0; e < E && !biases; e++) total += exp(logits[e]);
  for (int n = 0; n < HIDDEN; n++) out[n] = residual[n];
  for (int j = 0; j < TOP; j++) {
    expert(v, chosen[j], x, dtype, biases, part);
    for (int n = 0; n < HIDDEN; n++) out[n] += exp(logits[chosen[j]]) / total * part[n];
  }
}

static void check_values(const char *tier, dtype_t dtype, bool biases, random_state_t *random) {
  device_t *device = device_open(tier, 3);
  values_t v = values_make(random);
  moe_t moe = moe_make(device, &v, dtype, biases);
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.prepare(device, &limits, &error), 0, "%s", error.message);
  float *x = random_floats(random, ROWS * HIDDEN, 1),
        *out = random_floats(random, ROWS * HIDDEN, 1);
  float residual[ROWS * HIDDEN];
  memcpy(residual, out, sizeof residual); /* residual aliases out */
  ops_cpu.moe(device, ACT(out), ACT(x), ACT(out), &moe, ROWS);
  for (int r = 0; r < ROWS; r++) {
    double y[HIDDEN];
    reference(&v, x + r * HIDDEN, residual + r * HIDDEN, dtype, biases, y);
    for (int n = 0; n < HIDDEN; n++) /* bf16 rounds the activations once more */
      cr_assert_float_eq(out[r * HIDDEN + n], y[n], dtype == DTYPE_BF16 ? 0.05 : 2e-5,
                         "%s dtype %d row %d: %g, expected %g, seed %llu", tier, dtype, r,
                         out[r * HIDDEN + n], y[n], SEED);
  }
  values_free(&v), free(x), free(out);
  ops_cpu.close(device);
}

Test(moe, agrees_with_double_precision) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(31);
  for (int t = 0; t < count; t++)
    for (dtype_t dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
      check_values(tiers[t], dtype, dtype != DTYPE_F16, &random);
  check_values("auto", DTYPE_F32, false, &random);
}

/* Routers that score: sigmoid or softmax, groups by their best or by their two best, a bias for the
 * choice alone, shares normalised or not. The seven rules take nine experts in three groups. */
Test(moe, routers_that_score) {
  enum { CASES = 7 };
  random_state_t random = random_start(35);
  values_t v = values_make(&random);
  float *bias = random_floats(&random, E, 0.4f), *x = random_floats(&random, ROWS * HIDDEN, 1);
  float zeros[ROWS * HIDDEN] = {0}, out[ROWS * HIDDEN];
  for (int i = 0; i < CASES; i++) {
    device_t *device = device_open("auto", 2);
    moe_t moe = moe_make(device, &v, DTYPE_F32, false);
    moe.routing = i % 2 ? ROUTING_SOFTMAX : ROUTING_SIGMOID;
    moe.choice_bias = i != 1 ? vector_make(device, bias, E) : NULL;
    moe.num_groups = i > 2 ? 3 : 1;
    moe.groups_top = i > 4 ? 2 : 1;
    moe.group_pairs = i % 2 == 0;
    moe.normalise = i != 2 && i != 3;
    moe.share_floor = i == 5 ? 0.9f : 0;
    moe.share_factor = i == 0 ? 1.0f : 2.5f;
    inferd_error_t error;
    ASSERT_EQ_FOR(ops_cpu.prepare(device, &limits, &error), 0, "%s", error.message);
    ops_cpu.moe(device, ACT(out), ACT(x), ACT(zeros), &moe, ROWS);
    for (int r = 0; r < ROWS; r++) {
      float logits[E];
      double shares[E], sum[HIDDEN] = {0}, part[HIDDEN];
      for (int e = 0; e < E; e++) {
        double logit = 0;
        for (int k = 0; k < HIDDEN; k++)
          logit += (double)x[r * HIDDEN + k] * v.router[e * HIDDEN + k];
        logits[e] = (float)logit;
      }
      naive_route(&moe, logits, moe.choice_bias != NULL ? bias : NULL, shares);
      for (int e = 0; e < E; e++) {
        if (shares[e] == 0) continue;
        expert(&v, e, x + r * HIDDEN, DTYPE_F32, false, part);
        for (int n = 0; n < HIDDEN; n++) sum[n] += shares[e] * part[n];
      }
      for (int n = 0; n < HIDDEN; n++)
        cr_assert_float_eq(out[r * HIDDEN + n], sum[n], 5e-5,
                           "rule %d row %d: %g, expected %g, seed %llu", i, r, out[r * HIDDEN + n],
                           sum[n], SEED);
    }
    ops_cpu.close(device);
  }
  values_free(&v), free(x), free(bias);
}

/* More rows than are routed at a time, in pieces of every size, on several threads. */
static void check_bits(const char *tier, dtype_t dtype, random_state_t *random) {
  enum { MANY = 530 };
  static const int32_t steps[] = {1, 2, 7, 65, 513, MANY};
  values_t v = values_make(random);
  float *x = random_floats(random, MANY * HIDDEN, 1);
  float *expected = calloc(MANY * HIDDEN, sizeof(float)), *zeros = calloc(MANY * HIDDEN, 4);
  float *out = calloc(MANY * HIDDEN, sizeof(float));
  for (int threads = 1; threads <= 5; threads += SANITIZED ? 4 : 2) {
    device_t *device = device_open(tier, threads);
    moe_t moe = moe_make(device, &v, dtype, true);
    inferd_error_t error;
    ASSERT_EQ_FOR(ops_cpu.prepare(device, &limits, &error), 0, "%s", error.message);
    if (threads == 1) ops_cpu.moe(device, ACT(expected), ACT(x), ACT(zeros), &moe, MANY);
    for (size_t i = 0; i < sizeof steps / sizeof *steps; i += SANITIZED ? 3 : 1) {
      memset(out, 0xff, sizeof(float) * MANY * HIDDEN);
      for (int32_t row = 0; row < MANY; row += steps[i]) {
        int32_t rows = MANY - row < steps[i] ? MANY - row : steps[i];
        ops_cpu.moe(device, ACT(out + row * HIDDEN), ACT(x + row * HIDDEN), ACT(zeros), &moe, rows);
      }
      ASSERT_EQ_FOR(memcmp(out, expected, sizeof(float) * MANY * HIDDEN), 0,
                    "%s dtype %d: %d rows at a time on %d threads differ, seed %llu", tier, dtype,
                    steps[i], threads, SEED);
    }
    ops_cpu.close(device);
  }
  values_free(&v), free(x), free(expected), free(zeros), free(out);
}

Test(moe, bits_do_not_depend_on_rows_or_threads) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(32);
  for (int t = 0; t < count; t++) check_bits(tiers[t], DTYPE_BF16, &random);
  check_bits("auto", DTYPE_F32, &random);
}

/* All logits equal: the first experts are taken. A row of NaN harms no other row. */
Test(moe, ties_and_nan) {
  random_state_t random = random_start(33);
  values_t v = values_make(&random);
  memset(v.router, 0, sizeof(float) * E * HIDDEN);
  device_t *device = device_open("auto", 2);
  moe_t moe = moe_make(device, &v, DTYPE_F32, false);
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.prepare(device, &limits, &error), 0, "%s", error.message);
  float *x = random_floats(&random, 3 * HIDDEN, 1), zeros[3 * HIDDEN] = {0}, out[3 * HIDDEN];
  for (int n = 0; n < HIDDEN; n++) x[HIDDEN + n] = NAN;
  ops_cpu.moe(device, ACT(out), ACT(x), ACT(zeros), &moe, 3);
  for (int r = 0; r < 3; r += 2) {
    double sum[HIDDEN] = {0}, part[HIDDEN];
    for (int e = 0; e < TOP; e++) {
      expert(&v, e, x + r * HIDDEN, DTYPE_F32, false, part);
      for (int n = 0; n < HIDDEN; n++) sum[n] += part[n] / E;
    }
    for (int n = 0; n < HIDDEN; n++) cr_assert_float_eq(out[r * HIDDEN + n], sum[n], 1e-5);
  }
  for (int n = 0; n < HIDDEN; n++) cr_assert(isnan(out[HIDDEN + n]));
  values_free(&v), free(x);
  ops_cpu.close(device);
}

/* Random nibbles with exponents around `middle`, and their values. */
static void blocks_make(random_state_t *random, int64_t count, int middle, uint8_t *blocks,
                        float *values) {
  static const float codes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (int64_t g = 0; g < count; g++, blocks += MXFP4_BYTES) {
    int exponent = middle + random_below(random, 3);
    blocks[16] = (uint8_t)exponent;
    for (int k = 0; k < 16; k++) blocks[k] = (uint8_t)random_below(random, 256);
    for (int k = 0; k < MXFP4_COLS; k++) {
      int code = blocks[k / 2] >> (k % 2 ? 4 : 0) & 15;
      values[g * MXFP4_COLS + k] = ldexpf(codes[code & 7] * (code & 8 ? -1 : 1), exponent - 127);
    }
  }
}

/* Blocks give the very bits that bf16 weights of the same values give. */
Test(moe, mxfp4_is_bf16_in_a_quarter) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  static const int middles[] = {123, 0, 3, 250, 252}; /* the last two lead to numbers near 2^127 */
  enum { UP = E * 2 * WIDTH * HIDDEN, DOWN = E * HIDDEN * WIDTH };
  uint8_t *up = malloc(UP / MXFP4_COLS * MXFP4_BYTES), *down = malloc(DOWN / 32 * MXFP4_BYTES);
  random_state_t random = random_start(34);
  values_t v = values_make(&random);
  float *x = random_floats(&random, ROWS * HIDDEN, 1), zeros[ROWS * HIDDEN] = {0};
  float out[ROWS * HIDDEN], expected[ROWS * HIDDEN];
  for (int t = 0; t < count; t++) {
    for (size_t i = 0; i < sizeof middles / sizeof *middles; i++) {
      device_t *device = device_open(tiers[t], 2);
      blocks_make(&random, UP / MXFP4_COLS, middles[i], up, v.up);
      blocks_make(&random, DOWN / MXFP4_COLS, 120, down, v.down);
      moe_t plain = moe_make(device, &v, DTYPE_BF16, false), packed = plain;
      packed.up = stack_make(device, NULL, up, 2 * WIDTH, HIDDEN, DTYPE_BF16);
      packed.down = stack_make(device, NULL, down, HIDDEN, WIDTH, DTYPE_BF16);
      inferd_error_t error;
      ASSERT_EQ_FOR(ops_cpu.prepare(device, &limits, &error), 0, "%s", error.message);
      ops_cpu.moe(device, ACT(expected), ACT(x), ACT(zeros), &plain, ROWS);
      ops_cpu.moe(device, ACT(out), ACT(x), ACT(zeros), &packed, ROWS);
      ASSERT_EQ_FOR(memcmp(out, expected, sizeof out), 0, "%s exponents %d, seed %llu", tiers[t],
                    middles[i], SEED);
      ops_cpu.close(device);
    }
  }
  values_free(&v), free(x), free(up), free(down);
}
