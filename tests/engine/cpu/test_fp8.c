/* test_fp8.c: linear layers over fp8 of safetensors, whose panels keep a byte for each number: the
 * bits are those of a layer of the same numbers in 16 bits, in every tier. */
#include "engine/base/half.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/weight.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 70 };

static const step_limits_t limits = {.tokens_max = ROWS_MAX,
                                     .reqs_max = 4,
                                     .logits_rows_max = 16,
                                     .hidden_max = 2048,
                                     .vocab_size = 300,
                                     .max_model_len = 64,
                                     .heads_max = 1,
                                     .head_dim_max = 16};

typedef struct fp8_matrix {
  int64_t rows, cols, group;
  uint8_t *stored; /* [rows][4 cols + 64]: codes, then scales and minima */
  float *values;   /* [rows][cols] */
} fp8_matrix_t;

static const void *stored_row(void *context, int64_t row, void *scratch) {
  const fp8_matrix_t *matrix = context;
  const uint8_t *from = matrix->stored + row * (4 * matrix->cols + 64);
  return row % 2 ? from : memcpy(scratch, from, (size_t)matrix->cols * 4);
}

/* Every code that is a number occurs, subnormal ones and both zeros among them. */
static void fill(random_state_t *random, fp8_matrix_t *matrix, float scale) {
  const int64_t cols = matrix->cols, group = matrix->group, stride = 4 * cols + 64;
  matrix->stored = calloc((size_t)matrix->rows, (size_t)stride);
  matrix->values = calloc((size_t)(matrix->rows * cols), sizeof(float));
  for (int64_t r = 0; r < matrix->rows; r++) {
    uint8_t *codes = matrix->stored + r * stride;
    float *scales = (float *)(void *)(codes + ROUND_UP(cols, 4));
    for (int64_t g = 0; g < DIV_UP(cols, group); g++) scales[g] = scale * random_float(random);
    for (int64_t k = 0; k < cols; k++) {
      codes[k] = (uint8_t)random_next(random);
      if ((codes[k] & 0x7f) == 0x7f) codes[k] = 0;
      matrix->values[r * cols + k] = scales[k / group] * float_from_e4m3(codes[k]);
    }
  }
}

static int make(device_t *device, fp8_matrix_t *matrix, dtype_t dtype, weight_t **out,
                inferd_error_t *error) {
  weight_source_t source = {.name = "layer",
                            .rows = matrix->rows,
                            .cols = matrix->cols,
                            .format = WEIGHT_GROUPED_FP8,
                            .dtype = dtype,
                            .group = (int32_t)matrix->group,
                            .row = stored_row,
                            .context = matrix};
  return ops_cpu.weight(device, &source, out, error);
}

static void check(device_t *device, const char *tier, fp8_matrix_t *matrix, dtype_t dtype,
                  random_state_t *random) {
  static const int32_t rows[] = {1, 7, ROWS_MAX};
  const int64_t n = matrix->rows, cols = matrix->cols;
  float *x = random_floats(random, ROWS_MAX * cols, 1);
  float *out = calloc((size_t)(ROWS_MAX * n), sizeof *out);
  float *expected = calloc((size_t)(ROWS_MAX * n), sizeof *out);
  float *row = calloc((size_t)cols, sizeof *row);
  inferd_error_t error = {0};
  weight_t *weight;
  ASSERT_EQ_FOR(make(device, matrix, dtype, &weight, &error), 0, "%s", error.message);
  weight_t *twin = weight_make(device, matrix->values, n, cols, dtype); /* rounds the values */
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    ops_cpu.linear(device, ACT(out), ACT(x), weight, NULL, NULL, rows[i]);
    ops_cpu.linear(device, ACT(expected), ACT(x), twin, NULL, NULL, rows[i]);
    ASSERT_EQ_FOR(memcmp(out, expected, sizeof(float) * (size_t)(rows[i] * n)), 0,
                  "%s dtype %d: %d rows of [%d, %d] in groups of %d, seed %llu", tier, dtype,
                  rows[i], (int)n, (int)cols, (int)matrix->group, SEED);
  }
  for (int64_t r = 0; r < n; r++) { /* as the rows of an embedding table */
    weight_unpack_row(weight, r, 1, false, row);
    ASSERT_EQ_FOR(memcmp(row, matrix->values + r * cols, sizeof(float) * (size_t)cols), 0, "row %d",
                  (int)r);
  }
  free(x), free(out), free(expected), free(row);
}

Test(fp8, has_the_bits_of_16_bit_numbers) {
  static const int64_t shapes[][3] = {/* rows, columns, group */
                                      {70, 33, 16},
                                      {64, 128, 128},
                                      {130, 300, 256},
                                      {5, 513, 48}};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(60);
    for (size_t i = 0; i < 2 * ARRAY_LEN(shapes); i++) {
      const int64_t *shape = shapes[i / 2];
      fp8_matrix_t matrix = {.rows = shape[0], .cols = shape[1], .group = shape[2]};
      device_t *device = device_open(tiers[t], 2); /* weights come before the workspaces */
      fill(&random, &matrix, 0.01f);
      inferd_error_t error = {0};
      weight_t *weight;
      ASSERT_EQ_FOR(make(device, &matrix, DTYPE_BF16, &weight, &error), 0, "%s", error.message);
      ASSERT_EQ_FOR(ops_cpu.prepare(device, &limits, &error), 0, "%s", error.message);
      check(device, tiers[t], &matrix, i % 2 ? DTYPE_F16 : DTYPE_BF16, &random);
      free(matrix.stored), free(matrix.values);
      ops_cpu.close(device);
    }
  }
}

Test(fp8, takes_a_byte_for_a_number) {
  const weight_source_t source = {
      .rows = 640, .cols = 4096, .format = WEIGHT_GROUPED_FP8, .dtype = DTYPE_BF16, .group = 128};
  ASSERT_LE((double)cpu_weight_bytes(&source), 640 * 4096 * 1.04);
}

Test(fp8, numbers_beyond_f16_are_refused_there) {
  random_state_t random = random_start(61);
  fp8_matrix_t matrix = {.rows = 3, .cols = 64, .group = 64};
  device_t *device = device_open("auto", 1);
  inferd_error_t error = {0};
  weight_t *weight;
  fill(&random, &matrix, 1e6f);
  ASSERT_EQ(make(device, &matrix, DTYPE_F16, &weight, &error), ERR_MODEL_MALFORMED);
  ASSERT_STR_EQ(error.message, "layer: with its scales holds a number that float16 cannot hold; "
                               "--dtype bfloat16 can");
  ASSERT_EQ_FOR(make(device, &matrix, DTYPE_BF16, &weight, &error), 0, "%s", error.message);
  free(matrix.stored), free(matrix.values);
  ops_cpu.close(device);
}
