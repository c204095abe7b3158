/* test_linear.c: linear layers and logits of every tier against double precision, and their bits
 * against each other for any number of rows and threads. */
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 300 };

static const step_limits_t limits = {.tokens_max = ROWS_MAX,
                                     .reqs_max = 4,
                                     .logits_rows_max = 16,
                                     .hidden_max = 700,
                                     .vocab_size = 300,
                                     .max_model_len = 64,
                                     .heads_max = 1,
                                     .head_dim_max = 16};

typedef struct shape {
  int32_t rows, n, k;
} shape_t;

/* N and K below, at and above the tile sizes; rows through every tile height and past a block. */
static const shape_t shapes[] = {{1, 1, 1},    {1, 64, 32},    {2, 65, 33},  {3, 127, 7},
                                 {4, 16, 80},  {5, 200, 31},   {6, 63, 64},  {7, 130, 97},
                                 {8, 128, 96}, {11, 300, 130}, {13, 5, 513}, {24, 70, 61},
                                 {65, 66, 40}, {260, 67, 37}};

static void check_product(device_t *device, const char *tier, dtype_t dtype, shape_t s, bool extras,
                          random_state_t *random) {
  float *w = random_floats(random, (int64_t)s.n * s.k, 1);
  float *x = random_floats(random, (int64_t)s.rows * s.k, 1);
  float *b = random_floats(random, s.n, 1);
  float *residual = random_floats(random, (int64_t)s.rows * s.n, 1);
  weight_t *weight = weight_make(device, w, s.n, s.k, dtype);
  vector_t *bias = extras ? vector_make(device, b, s.n) : NULL;
  float *out = malloc((size_t)(s.rows * s.n) * sizeof *out);
  memcpy(out, residual, (size_t)(s.rows * s.n) * sizeof *out); /* residual aliases out */
  ops_cpu.linear(device, ACT(out), ACT(x), weight, bias, extras ? ACT(out) : NULL, s.rows);
  for (int32_t r = 0; r < s.rows; r++) {
    for (int32_t c = 0; c < s.n; c++) {
      double sum = 0, magnitude = 0;
      for (int32_t k = 0; k < s.k; k++) {
        double a = x[r * s.k + k];
        if (dtype == DTYPE_BF16) a = round_to((float)a, DTYPE_BF16);
        sum += a * w[c * s.k + k];
        magnitude += fabs(a * w[c * s.k + k]);
      }
      if (extras) sum += (double)b[c] + residual[r * s.n + c];
      if (extras) magnitude += 2;
      double error = fabs(out[r * s.n + c] - sum);
      ASSERT_LE_FOR(error, magnitude * 0x1p-19,
                    "%s dtype %d (%d, %d, %d) at %d,%d: %.9g, expected %.9g, seed %llu", tier,
                    dtype, s.rows, s.n, s.k, r, c, out[r * s.n + c], sum, SEED);
    }
  }
  free(w), free(x), free(b), free(residual), free(out);
}

Test(linear, agrees_with_double_precision) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  ASSERT_GE(count, 1);
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(1);
    device_t *device = device_prepared(tiers[t], 3, &limits);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      for (dtype_t dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
        check_product(device, tiers[t], dtype, shapes[i], i % 2 == 1, &random);
    ops_cpu.close(device);
  }
}

/* Rows come out the same alone, in pairs, in tiles of any height and in a full block. */
static void check_bits(const char *tier, dtype_t dtype, random_state_t *random) {
  enum { N = 150, K = 203 };
  static const int32_t steps[] = {1, 2, 3, 4, 5, 6, 7, 12, 23, 64, 100, ROWS_MAX};
  static const int threads[] = {1, 2, 3, 7};
  float *w = random_floats(random, N * K, 1), *x = random_floats(random, ROWS_MAX * K, 1);
  float *expected = malloc(sizeof(float) * ROWS_MAX * N),
        *out = malloc(sizeof(float) * ROWS_MAX * N);
  for (size_t i = 0; i < 4; i += SANITIZED ? 2 : 1) {
    device_t *device = device_prepared(tier, threads[i], &limits);
    memset(device->ahead, i % 2, sizeof device->ahead);
    weight_t *weight = weight_make(device, w, N, K, dtype);
    if (i == 0) ops_cpu.linear(device, ACT(expected), ACT(x), weight, NULL, NULL, ROWS_MAX);
    for (size_t j = 0; j < sizeof steps / sizeof *steps; j += SANITIZED ? 4 : 1) {
      memset(out, 0xff, sizeof(float) * ROWS_MAX * N);
      for (int32_t row = 0; row < ROWS_MAX; row += steps[j]) {
        int32_t rows = ROWS_MAX - row < steps[j] ? ROWS_MAX - row : steps[j];
        ops_cpu.linear(device, ACT(out + row * N), ACT(x + row * K), weight, NULL, NULL, rows);
      }
      ASSERT_EQ_FOR(memcmp(out, expected, sizeof(float) * ROWS_MAX * N), 0,
                    "%s dtype %d: %d rows at a time on %d threads differ, seed %llu", tier, dtype,
                    steps[j], threads[i], SEED);
    }
    ops_cpu.close(device);
  }
  free(w), free(x), free(expected), free(out);
}

Test(linear, bits_do_not_depend_on_rows_or_threads) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(2);
  for (int t = 0; t < count; t++)
    for (dtype_t dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++)
      check_bits(tiers[t], dtype, &random);
}

/* A NaN or an infinity in one row stays in that row. */
/* A fused layer has the bits of norm, linear and activation one after another. */
static void check_fused(device_t *device, const char *tier, shape_t s, activation_t kind,
                        random_state_t *random) {
  bool gated = activation_is_gated(kind);
  int32_t width = gated ? s.n / 2 : s.n, n = gated ? 2 * width : s.n;
  size_t outs = (size_t)(s.rows * n) * sizeof(float), ins = (size_t)(s.rows * s.k) * sizeof(float);
  float *w = random_floats(random, (int64_t)n * s.k, 1), *b = random_floats(random, n, 1);
  float *x = random_floats(random, (int64_t)s.rows * s.k, 1), *sums = malloc(outs);
  float *out = malloc(outs), *expected = malloc(outs), *normed = malloc(ins);
  norm_t norm = {.kind = NORM_RMS, .width = s.k, .eps = 1e-5f};
  fused_linear_t fused = {.norm = &norm,
                          .normed = ACT(normed),
                          .weight = weight_make(device, w, n, s.k, DTYPE_F32),
                          .bias = vector_make(device, b, n),
                          .has_activation = true,
                          .activation = kind,
                          .width = width,
                          .sums = ACT(sums)};
  ops_cpu.norm(device, ACT(normed), ACT(x), NULL, &norm, s.rows);
  ops_cpu.linear(device, ACT(sums), ACT(normed), fused.weight, fused.bias, NULL, s.rows);
  ops_cpu.activation(device, ACT(expected), ACT(sums), kind, width, s.rows);
  memset(normed, 0xff, ins), memset(sums, 0xff, outs), memset(out, 0xff, outs);
  ops_cpu.fused_linear(device, ACT(out), ACT(x), &fused, s.rows);
  for (int32_t i = 0; i < s.rows * width; i++)
    ASSERT_EQ_FOR(memcmp(&out[i], &expected[i], sizeof *out), 0,
                  "%s activation %d (%d, %d, %d) at %d: %.9g, expected %.9g", tier, kind, s.rows, n,
                  s.k, i, out[i], expected[i]);
  free(w), free(b), free(x), free(sums), free(out), free(expected), free(normed);
}

Test(linear, fused_layers_have_the_same_bits) {
  static const activation_t kinds[] = {ACTIVATION_RELU, ACTIVATION_GELU, ACTIVATION_GELU_TANH,
                                       ACTIVATION_SILU_MUL};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(6);
    device_t *device = device_prepared(tiers[t], 3, &limits);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      check_fused(device, tiers[t], shapes[i], i == 0 ? ACTIVATION_GELU : kinds[i % 4], &random);
    ops_cpu.close(device);
  }
}

Test(linear, rows_do_not_leak) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  enum { N = 70, K = 50, M = 9 };
  random_state_t random = random_start(3);
  for (int t = 0; t < count; t++) {
    device_t *device = device_prepared(tiers[t], 2, &limits);
    for (dtype_t dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
      float *w = random_floats(&random, N * K, 1), *x = random_floats(&random, M * K, 1);
      float clean[M * N], dirty[M * N];
      weight_t *weight = weight_make(device, w, N, K, dtype);
      ops_cpu.linear(device, ACT(clean), ACT(x), weight, NULL, NULL, M);
      x[4 * K + 3] = NAN;
      ops_cpu.linear(device, ACT(dirty), ACT(x), weight, NULL, NULL, M);
      for (int c = 0; c < N; c++) cr_assert(isnan(dirty[4 * N + c]), "%s lost a NaN", tiers[t]);
      ASSERT_EQ(memcmp(dirty, clean, sizeof(float) * 4 * N), 0);
      ASSERT_EQ(memcmp(dirty + 5 * N, clean + 5 * N, sizeof(float) * (M - 5) * N), 0);
      free(w), free(x);
    }
    ops_cpu.close(device);
  }
}

Test(linear, logits_take_their_slice_and_cap_it) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  enum { V = 300, K = 48, S = 20 };
  random_state_t random = random_start(4);
  for (int t = 0; t < count; t++) {
    device_t *device = device_prepared(tiers[t], 2, &limits);
    float *w = random_floats(&random, V * K, 2), *x = random_floats(&random, S * K, 2);
    weight_t *head = weight_make(device, w, V, K, DTYPE_F32);
    float *b = random_floats(&random, V, 2);
    vector_t *bias = NULL;
    inferd_error_t error = {0};
    ASSERT_EQ(ops_cpu.vector(device, b, V, &bias, &error), 0);
    float plain[16 * V], capped[16 * V];
    ops_cpu.logits(device, ACT(x), head, bias, 0, 5, 13);
    ops_cpu.read_logits(device, plain, 13);
    ops_cpu.logits(device, ACT(x), head, bias, 30, 5, 13);
    ops_cpu.read_logits(device, capped, 13);
    for (int r = 0; r < 13; r++) {
      for (int c = 0; c < V; c++) {
        double sum = b[c];
        for (int k = 0; k < K; k++) sum += (double)x[(r + 5) * K + k] * w[c * K + k];
        cr_assert_float_eq(plain[r * V + c], sum, 1e-3, "%s seed %llu", tiers[t], SEED);
        double cap = 30 * tanh((double)plain[r * V + c] / 30);
        cr_assert_float_eq(capped[r * V + c], cap, 1e-5, "%s: %g capped to %g, seed %llu", tiers[t],
                           plain[r * V + c], capped[r * V + c], SEED);
      }
    }
    free(w), free(x), free(b);
    ops_cpu.close(device);
  }
}
