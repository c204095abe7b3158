/* test_quant.c: linear layers over quantised weights of every tier: against double precision with
 * activations quantised as quant_layout.h says, against the values of the weights in fp32, and
 * their bits for any number of rows and threads. */
#include "engine/base/half.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"
#include "engine/quant/quant.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS_MAX = 300, VOCAB = 300, GROUP = 32 };

static const step_limits_t limits = {.tokens_max = ROWS_MAX,
                                     .reqs_max = 4,
                                     .logits_rows_max = 16,
                                     .hidden_max = 2048,
                                     .vocab_size = VOCAB,
                                     .max_model_len = 64,
                                     .heads_max = 1,
                                     .head_dim_max = 16,
                                     .experts_max = 4,
                                     .experts_top_max = 2,
                                     .expert_width_max = 64};

/* A matrix of random blocks. Formats repeat in runs of `run` rows. */
typedef struct matrix {
  int64_t rows, cols;
  const weight_format_t *formats;
  int32_t num_formats, run, group;
  uint8_t *blocks; /* [rows][4 cols] */
  float *values;   /* [rows][cols] as the format defines them */
  group_scales_t scales;
} matrix_t;

static weight_format_t format_of(void *context, int64_t row) {
  const matrix_t *matrix = context;
  return matrix->formats[row / matrix->run % matrix->num_formats];
}

static const void *blocks_of(void *context, int64_t row, void *scratch) {
  const matrix_t *matrix = context;
  size_t bytes = (size_t)matrix->cols * 4;
  if (row % 2) return matrix->blocks + (size_t)row * bytes;
  return memcpy(scratch, matrix->blocks + (size_t)row * bytes, bytes);
}

/* Scales and minima of the groups of a grouped row, as matrix->scales says. */
static void fill_scales(random_state_t *random, const group_scales_t *known, int64_t groups,
                        float *scale, float *min) {
  const float factor = 0.003f * random_float(random);
  for (int64_t g = 0; g < groups; g++) {
    const float any = 0.01f * random_float(random);
    const int32_t zero = known->zero_point < 0 ? random_below(random, 256) : known->zero_point;
    const uint8_t byte = (uint8_t)random_below(random, 0x7f);
    scale[g] = any;
    if (known->kind == SCALES_F16) scale[g] = round_to(any, DTYPE_F16);
    if (known->kind == SCALES_BF16) scale[g] = round_to(any, DTYPE_BF16);
    if (known->kind == SCALES_POWERS) scale[g] = ldexpf(1, random_below(random, 9) - 12);
    if (known->kind == SCALES_E4M3) scale[g] = float_from_e4m3(byte) * factor / 2;
    min[g] = known->zero_point == ZERO_POINT_NONE ? random_float(random) : scale[g] * (float)zero;
    if (known->kind == SCALES_E4M3) min[g] = factor;
  }
}

/* Random bytes, with scales that give values of about 1. */
static void fill_row(random_state_t *random, const quant_format_t *format, matrix_t *matrix,
                     int64_t row) {
  static const struct {
    weight_format_t format;
    int at[2];
    float scale;
  } halves[] = {{WEIGHT_Q4_0, {0, 0}, 0.1f},      {WEIGHT_Q4_1, {0, 2}, 0.1f},
                {WEIGHT_Q5_0, {0, 0}, 0.06f},     {WEIGHT_Q5_1, {0, 2}, 0.06f},
                {WEIGHT_Q8_0, {0, 0}, 0.008f},    {WEIGHT_Q2_K, {80, 82}, 0.03f},
                {WEIGHT_Q3_K, {108, 108}, 0.01f}, {WEIGHT_Q4_K, {0, 2}, 0.002f},
                {WEIGHT_Q5_K, {0, 2}, 0.001f},    {WEIGHT_Q6_K, {208, 208}, 0.0003f},
                {WEIGHT_IQ4_NL, {0, 0}, 0.01f},   {WEIGHT_IQ4_XS, {0, 0}, 0.0003f}};
  uint8_t *block = matrix->blocks + row * matrix->cols * 4;
  size_t bytes = quant_row_bytes(format, matrix->group, matrix->cols);
  for (size_t i = 0; i < bytes; i++) block[i] = (uint8_t)random_next(random);
  if (quant_is_grouped(format)) {
    float *scales = (float *)(void *)(block + ROUND_UP(matrix->cols, 4));
    int64_t groups = DIV_UP(matrix->cols, matrix->group);
    for (int64_t k = 0; k < matrix->cols; k++) block[k] = (uint8_t)(block[k] % format->num_codes);
    fill_scales(random, &matrix->scales, groups, scales, scales + groups);
  }
  for (int64_t b = 0; b < (int64_t)bytes && format->block_bytes > 0; b += format->block_bytes) {
    if (format->format == WEIGHT_GGUF_MXFP4) block[b] = (uint8_t)(122 + random_below(random, 4));
    for (size_t i = 0; format->format == WEIGHT_NVFP4 && i < 4; i++) /* most of them below 1 */
      if (random_below(random, 8) > 0) block[b + (int64_t)i] %= 0x38;
    for (size_t i = 0; i < ARRAY_LEN(halves); i++) {
      if (halves[i].format != format->format) continue;
      for (int j = 0; j < 2; j++) {
        uint16_t half = f16_from_float(halves[i].scale * random_float(random));
        memcpy(block + b + halves[i].at[j], &half, 2);
      }
    }
  }
  quant_decode(format, matrix->group, block, matrix->cols, matrix->values + row * matrix->cols);
}

static void matrix_make(random_state_t *random, matrix_t *matrix) {
  matrix->blocks = aligned_alloc(64, ROUND_UP((size_t)(matrix->rows * matrix->cols) * 4, 64));
  matrix->values = malloc((size_t)(matrix->rows * matrix->cols) * sizeof(float));
  for (int64_t row = 0; row < matrix->rows; row++)
    fill_row(random, quant_format(format_of(matrix, row)), matrix, row);
}

static void matrix_free(matrix_t *matrix) {
  free(matrix->blocks), free(matrix->values);
}

static weight_t *matrix_weight(device_t *device, matrix_t *matrix, int32_t stack) {
  weight_source_t source = {.name = "test",
                            .rows = matrix->rows,
                            .cols = matrix->cols,
                            .stack = stack,
                            .format = matrix->formats[0],
                            .dtype = DTYPE_BF16,
                            .group = matrix->group,
                            .scales = matrix->scales,
                            .row_format = matrix->num_formats > 1 ? format_of : NULL,
                            .row = blocks_of,
                            .context = matrix};
  weight_t *weight = NULL;
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.weight(device, &source, &weight, &error), 0, "%s", error.message);
  return weight;
}

/* A row as the kernels see it: rounded to 8 bits in groups of 32. */
static void quantise(const float *x, int64_t cols, double *out) {
  for (int64_t first = 0; first < cols; first += GROUP) {
    float largest = 0;
    int64_t end = MIN(first + GROUP, cols);
    for (int64_t k = first; k < end; k++) largest = fmaxf(largest, fabsf(x[k]));
    float scale = largest / 127.0f, inverse = largest > 0 ? 127.0f / largest : 0;
    for (int64_t k = first; k < end; k++)
      out[k] = (double)scale * (double)nearbyintf(x[k] * inverse);
  }
}

/* Each output is within rounding of the exact product of what the kernel sees, and within the
 * rounding of the activations (half a step of 32 columns each) of that of the values. */
static void check_product(device_t *device, const char *tier, matrix_t *matrix, int32_t rows,
                          random_state_t *random) {
  const int64_t n = matrix->rows, cols = matrix->cols;
  float *x = random_floats(random, rows * cols, 1), *out = malloc((size_t)(rows * n) * sizeof *out);
  float *bias = random_floats(random, n, 1), *residual = random_floats(random, rows * n, 1);
  double *seen = malloc((size_t)cols * sizeof *seen);
  weight_t *weight = matrix_weight(device, matrix, 1);
  memcpy(out, residual, (size_t)(rows * n) * sizeof *out);
  ops_cpu.linear(device, ACT(out), ACT(x), weight, vector_make(device, bias, n), ACT(out), rows);
  for (int32_t r = 0; r < rows; r++) {
    quantise(x + r * cols, cols, seen);
    for (int64_t c = 0; c < n; c++) {
      double sum = (double)bias[c] + residual[r * n + c], twin = sum, size = 2, slack = 0;
      for (int64_t k = 0; k < cols; k++) {
        double w = matrix->values[c * cols + k], a = x[r * cols + k];
        sum += seen[k] * w;
        twin += a * w;
        size += fabs(w) + fabs(seen[k] * w);
        slack += fabs(w) * 0.5 / 127;
      }
      double value = out[r * n + c];
      ASSERT_LE_FOR(fabs(value - sum), size * 0x1p-20,
                    "%s %s (%d, %d, %d) at %d,%d: %.9g, expected %.9g, seed %llu", tier,
                    quant_format(format_of(matrix, c))->name, rows, (int)n, (int)cols, r, (int)c,
                    value, sum, SEED);
      ASSERT_LE_FOR(fabs(value - twin), slack + size * 0x1p-20, "%s %s: %.9g, in fp32 %.9g", tier,
                    quant_format(format_of(matrix, c))->name, value, twin);
    }
  }
  free(x), free(out), free(bias), free(residual), free(seen);
}

static void check_table(device_t *device, matrix_t *matrix);

static const weight_format_t all[] = {
    WEIGHT_Q8_0,      WEIGHT_Q4_0,       WEIGHT_Q4_K,  WEIGHT_Q6_K,       WEIGHT_Q5_K,
    WEIGHT_Q4_1,      WEIGHT_Q5_0,       WEIGHT_Q5_1,  WEIGHT_Q2_K,       WEIGHT_Q3_K,
    WEIGHT_IQ4_NL,    WEIGHT_IQ4_XS,     WEIGHT_NVFP4, WEIGHT_GGUF_MXFP4, WEIGHT_GROUPED,
    WEIGHT_GROUPED_4, WEIGHT_GROUPED_FP4};

Test(quant, every_format_agrees_with_double_precision) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(40);
    device_t *device = device_prepared(tiers[t], 2, &limits);
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
      static const int32_t rows[] = {1, 2, 3, 5, 6, 7, 21, 70};
      const quant_format_t *format = quant_format(all[i]);
      for (size_t j = 0; j < ARRAY_LEN(rows); j += SANITIZED ? 6 : 1) {
        /* A whole chunk, part of one, and both. */
        int64_t blocks = format->block_cols == 256 ? 1 + (int64_t)j % 3 : 1 + 4 * (int64_t)j;
        matrix_t matrix = {.rows = 60 + 3 * (int64_t)j,
                           .cols = blocks * format->block_cols,
                           .formats = &all[i],
                           .num_formats = 1,
                           .run = 1,
                           .group = 16 << j % 5};
        matrix_make(&random, &matrix);
        check_product(device, tiers[t], &matrix, rows[j], &random);
        matrix_free(&matrix);
      }
    }
    ops_cpu.close(device);
  }
}

/* Groups of grouped rows that are no power of two, one for a whole row, and a column count that no
 * block divides. */
Test(quant, groups_of_any_size) {
  static const int32_t shapes[][2] = {{300, 48}, {300, 96}, {200, 200}, {45, 1024}, {513, 128}};
  static const weight_format_t grouped = WEIGHT_GROUPED;
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(41);
    device_t *device = device_prepared(tiers[t], 2, &limits);
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
      matrix_t matrix = {70, shapes[i][0], &grouped, 1, 1, shapes[i][1], NULL, NULL, {0}};
      if (matrix.group > matrix.cols) matrix.group = (int32_t)ROUND_UP(matrix.cols, 16);
      if (matrix.group % 16 != 0) matrix.group = ROUND_UP(matrix.group, 16);
      matrix_make(&random, &matrix);
      check_product(device, tiers[t], &matrix, 8, &random);
      matrix_free(&matrix);
    }
    ops_cpu.close(device);
  }
}

/* Scales in 16 or 8 bits, and zero points in place of minima, take less memory and change no bit.
 */
Test(quant, scales_of_groups) {
  static const struct {
    weight_format_t format;
    group_scales_t scales;
  } cases[] = {{WEIGHT_GROUPED, {SCALES_ANY, 128}},
               {WEIGHT_GROUPED, {SCALES_F16, ZERO_POINT_EACH}},
               {WEIGHT_GROUPED, {SCALES_BF16, ZERO_POINT_NONE}},
               {WEIGHT_GROUPED_4, {SCALES_ANY, ZERO_POINT_EACH}},
               {WEIGHT_GROUPED_4, {SCALES_F16, 8}},
               {WEIGHT_GROUPED_4, {SCALES_BF16, ZERO_POINT_EACH}},
               {WEIGHT_GROUPED_4, {SCALES_F16, ZERO_POINT_NONE}},
               {WEIGHT_GROUPED_FP4, {SCALES_POWERS, ZERO_POINT_NONE}},
               {WEIGHT_GROUPED_FP4, {SCALES_E4M3, ZERO_POINT_NONE}}};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(46);
    device_t *device = device_prepared(tiers[t], 2, &limits);
    for (size_t i = 0; i < 3 * ARRAY_LEN(cases); i++) {
      matrix_t matrix = {VOCAB, 528,  &cases[i / 3].format, 1, 1, 16 << i % 3,
                         NULL,  NULL, cases[i / 3].scales};
      matrix_make(&random, &matrix);
      check_product(device, tiers[t], &matrix, i % 2 ? 2 : 30, &random);
      check_table(device, &matrix);
      matrix_free(&matrix);
    }
    ops_cpu.close(device);
  }
}

/* Bits of a weight in the files of AWQ and GPTQ, compressed-tensors, W8A8, NVFP4 and MXFP4. */
Test(quant, groups_are_as_small_as_the_file) {
  static const struct {
    weight_format_t format;
    int32_t group;
    group_scales_t scales;
    double bits, ratio_max;
  } cases[] = {{WEIGHT_GROUPED_4, 128, {SCALES_F16, ZERO_POINT_EACH}, 4 + 20.0 / 128, 1.01},
               {WEIGHT_GROUPED_4, 32, {SCALES_BF16, 8}, 4 + 16.0 / 32, 1.002},
               {WEIGHT_GROUPED, 4096, {SCALES_F16, 128}, 8 + 16.0 / 4096, 1.01},
               {WEIGHT_GROUPED_FP4, 16, {SCALES_E4M3, ZERO_POINT_NONE}, 4 + 8.0 / 16, 1.03},
               {WEIGHT_GROUPED_FP4, 32, {SCALES_POWERS, ZERO_POINT_NONE}, 4 + 8.0 / 32, 1.002}};
  enum { ROWS = 640, COLS = 4096 };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    const weight_source_t source = {.rows = ROWS,
                                    .cols = COLS,
                                    .format = cases[i].format,
                                    .group = cases[i].group,
                                    .scales = cases[i].scales};
    double file = ROWS * COLS / 8.0 * cases[i].bits;
    ASSERT_LE_FOR((double)cpu_weight_bytes(&source) / file, cases[i].ratio_max, "case %d", (int)i);
  }
}

/* Fused matrices mix formats: panels of one format, and panels in which they meet. */
Test(quant, formats_mix_row_by_row) {
  static const weight_format_t mixed[] = {WEIGHT_Q4_K, WEIGHT_Q6_K, WEIGHT_Q8_0, WEIGHT_IQ4_XS,
                                          WEIGHT_NVFP4};
  static const int32_t runs[] = {1, 50, 64, 100};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(42);
    device_t *device = device_prepared(tiers[t], 2, &limits);
    for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
      matrix_t matrix = {200, 512, mixed, ARRAY_LEN(mixed), runs[i], 0, NULL, NULL, {0}};
      matrix_make(&random, &matrix);
      check_product(device, tiers[t], &matrix, 3, &random);
      matrix_free(&matrix);
    }
    ops_cpu.close(device);
  }
}

/* Rows come out the same alone, in pairs, in tiles of any height and in a full block. */
static void check_bits(const char *tier, weight_format_t format, random_state_t *random) {
  enum { N = 150, K = 768 };
  static const int32_t steps[] = {1, 2, 3, 4, 5, 6, 7, 12, 17, 33, 100, ROWS_MAX};
  static const int threads[] = {1, 2, 7};
  float *x = random_floats(random, ROWS_MAX * K, 1);
  float *expected = malloc(sizeof(float) * ROWS_MAX * N),
        *out = malloc(sizeof(float) * ROWS_MAX * N);
  matrix_t matrix = {N, K, &format, 1, 1, 128, NULL, NULL, {0}};
  matrix_make(random, &matrix);
  for (size_t i = 0; i < ARRAY_LEN(threads); i += SANITIZED ? 2 : 1) {
    device_t *device = device_prepared(tier, threads[i], &limits);
    weight_t *weight = matrix_weight(device, &matrix, 1);
    memset(device->ahead, i % 2, sizeof device->ahead);
    if (i == 0) ops_cpu.linear(device, ACT(expected), ACT(x), weight, NULL, NULL, ROWS_MAX);
    for (size_t j = i % 3; j < ARRAY_LEN(steps); j += SANITIZED ? 5 : i ? 3 : 1) {
      memset(out, 0xff, sizeof(float) * ROWS_MAX * N);
      for (int32_t row = 0; row < ROWS_MAX; row += steps[j])
        ops_cpu.linear(device, ACT(out + row * N), ACT(x + row * K), weight, NULL, NULL,
                       MIN(ROWS_MAX - row, steps[j]));
      ASSERT_EQ_FOR(memcmp(out, expected, sizeof(float) * ROWS_MAX * N), 0,
                    "%s %s: %d rows at a time on %d threads differ, seed %llu", tier,
                    quant_format(format)->name, steps[j], threads[i], SEED);
    }
    ops_cpu.close(device);
  }
  matrix_free(&matrix);
  free(x), free(expected), free(out);
}

Test(quant, bits_do_not_depend_on_rows_or_threads) {
  static const weight_format_t some[] = {
      WEIGHT_Q8_0,   WEIGHT_Q4_0,    WEIGHT_Q4_K,      WEIGHT_Q6_K,       WEIGHT_Q5_0,
      WEIGHT_Q5_K,   WEIGHT_Q3_K,    WEIGHT_Q2_K,      WEIGHT_GGUF_MXFP4, WEIGHT_NVFP4,
      WEIGHT_IQ4_XS, WEIGHT_GROUPED, WEIGHT_GROUPED_4, WEIGHT_GROUPED_FP4};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(43);
  for (int t = 0; t < count; t++)
    for (size_t i = 0; i < ARRAY_LEN(some); i++) check_bits(tiers[t], some[i], &random);
}

/* What is measured while a device is prepared: the largest matrix, whatever its last panel has, and
 * none that is too small. The choice changes no bit. */
Test(quant, prefetching_is_measured_and_changes_no_bit) {
  static const weight_format_t formats[] = {WEIGHT_Q8_0, WEIGHT_Q4_K};
  static const int64_t rows[] = {24 * PANEL_COLS - 63, 60 * PANEL_COLS + 1};
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(47);
  for (size_t i = 0; i < ARRAY_LEN(rows) * (size_t)count; i++) {
    matrix_t matrix = {rows[i % 2], 768, &formats[i % 2], 1, 1, 0, NULL, NULL, {0}};
    matrix_t small = {23 * PANEL_COLS, 256, &formats[1], 1, 1, 0, NULL, NULL, {0}};
    device_t *device = device_open(tiers[i / 2], 2);
    inferd_error_t error;
    float *x = random_floats(&random, matrix.cols, 1), *out[2];
    matrix_make(&random, &matrix), matrix_make(&random, &small);
    matrix_weight(device, &small, 1);
    ASSERT_EQ(device->probed[1], NULL);
    weight_t *weight = matrix_weight(device, &matrix, 1);
    matrix_weight(device, &small, 1);
    ASSERT_EQ(device->probed[1], weight);
    ASSERT_EQ_FOR(ops_cpu.prepare(device, &limits, &error), 0, "%s", error.message);
    for (int with = 0; with < 2; with++) {
      out[with] = malloc((size_t)matrix.rows * sizeof(float));
      memset(device->ahead, with, sizeof device->ahead);
      ops_cpu.linear(device, ACT(out[with]), ACT(x), weight, NULL, NULL, 1);
    }
    ASSERT_EQ(memcmp(out[0], out[1], (size_t)matrix.rows * sizeof(float)), 0);
    ops_cpu.close(device);
    matrix_free(&matrix), matrix_free(&small);
    free(x), free(out[0]), free(out[1]);
  }
}

/* Panels take little more than the rows of the file: codes keep their bits, and scales theirs but
 * for the 4 and 6 bits of K formats, which become bytes. */
Test(quant, panels_are_as_small_as_the_file) {
  static const struct {
    weight_format_t format;
    double ratio_max;
  } cases[] = {{WEIGHT_Q4_0, 1.002},       {WEIGHT_Q4_1, 1.002},   {WEIGHT_Q5_0, 1.002},
               {WEIGHT_Q5_1, 1.002},       {WEIGHT_Q8_0, 1.002},   {WEIGHT_Q2_K, 1.002},
               {WEIGHT_Q3_K, 1.04},        {WEIGHT_Q4_K, 1.03},    {WEIGHT_Q5_K, 1.03},
               {WEIGHT_Q6_K, 1.002},       {WEIGHT_IQ4_NL, 1.002}, {WEIGHT_IQ4_XS, 1.02},
               {WEIGHT_GGUF_MXFP4, 1.002}, {WEIGHT_NVFP4, 1.002}};
  enum { ROWS = 640, COLS = 4096 };
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    const weight_source_t source = {.rows = ROWS, .cols = COLS, .format = cases[i].format};
    const quant_format_t *format = quant_format(cases[i].format);
    double file = (double)(ROWS * quant_row_bytes(format, 0, COLS));
    ASSERT_LE_FOR((double)cpu_weight_bytes(&source) / file, cases[i].ratio_max, "%s", format->name);
  }
}

/* Scales of every byte that a file may have: exponents of MXFP4 whose number is subnormal among
 * them, and e4m3 with a sign, which has no meaning there, or all ones. */
static void check_bytes(device_t *device, const char *tier, weight_format_t format, int32_t rows) {
  enum { N = 256, K = 64 };
  const quant_format_t *known = quant_format(format);
  uint8_t *blocks = calloc(N, K * 4);
  float values[K], *x = malloc(sizeof(float) * (size_t)rows * K),
                   *out = malloc(sizeof(float) * (size_t)rows * N);
  for (int i = 0; i < rows * K; i++) x[i] = 127; /* its scale is 1 */
  for (int r = 0; r < N; r++) {
    uint8_t *block = blocks + (size_t)r * K * 4;
    block[0] = (uint8_t)(format == WEIGHT_GGUF_MXFP4 ? MIN(r, 240) : r);
    block[format == WEIGHT_GGUF_MXFP4 ? 1 : 4] = 2; /* the first weight is one times its scale */
  }
  matrix_t matrix = {N, K, &format, 1, 1, 0, blocks, NULL, {0}};
  weight_t *weight = matrix_weight(device, &matrix, 1);
  ops_cpu.linear(device, ACT(out), ACT(x), weight, NULL, NULL, rows);
  for (int i = 0; i < rows * N; i++) {
    quant_decode(known, 0, blocks + (size_t)(i % N) * K * 4, K, values);
    ASSERT_EQ_FOR(out[i], 127 * values[0], "%s %s: scale %d gives %g, not %g", tier, known->name,
                  i % N, out[i], 127 * values[0]);
  }
  free(blocks), free(x), free(out);
}

Test(quant, scales_of_every_byte) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    device_t *device = device_prepared(tiers[t], 1, &limits);
    for (int32_t rows = 1; rows < 60; rows += 29) {
      check_bytes(device, tiers[t], WEIGHT_GGUF_MXFP4, rows);
      check_bytes(device, tiers[t], WEIGHT_NVFP4, rows);
    }
    ops_cpu.close(device);
  }
}

/* A NaN or an infinity spoils its own row, and no other. Very small rows become zeros. */
Test(quant, rows_do_not_leak) {
  enum { N = 70, K = 256, M = 9 };
  static const weight_format_t format = WEIGHT_Q4_K;
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  random_state_t random = random_start(44);
  for (int t = 0; t < count; t++) {
    device_t *device = device_prepared(tiers[t], 2, &limits);
    float *x = random_floats(&random, M * K, 1), clean[M * N], dirty[M * N];
    matrix_t matrix = {N, K, &format, 1, 1, 0, NULL, NULL, {0}};
    matrix_make(&random, &matrix);
    weight_t *weight = matrix_weight(device, &matrix, 1);
    ops_cpu.linear(device, ACT(clean), ACT(x), weight, NULL, NULL, M);
    x[4 * K + 3] = t % 2 ? NAN : -INFINITY;
    for (int k = 0; k < K; k++) x[8 * K + k] = 1e-35f;
    ops_cpu.linear(device, ACT(dirty), ACT(x), weight, NULL, NULL, M);
    for (int c = 0; c < N; c++) cr_assert(isnan(dirty[4 * N + c]), "%s lost a NaN", tiers[t]);
    for (int c = 0; c < N; c++) ASSERT_EQ_FOR(dirty[8 * N + c], 0.0f, "%s", tiers[t]);
    ASSERT_EQ(memcmp(dirty, clean, sizeof(float) * 4 * N), 0);
    ASSERT_EQ(memcmp(dirty + 5 * N, clean + 5 * N, sizeof(float) * (M - 6) * N), 0);
    matrix_free(&matrix);
    free(x);
    ops_cpu.close(device);
  }
}

/* Rows of an embedding table are the values of the format, rounded to the type of the table, to the
 * bit; and it may be the head. */
static void check_table(device_t *device, matrix_t *matrix) {
  enum { TOKENS = 24 };
  const int64_t k = matrix->cols;
  weight_t *table = matrix_weight(device, matrix, 1);
  int32_t ids[TOKENS], starts[2] = {0, TOKENS};
  for (int i = 0; i < TOKENS; i++) ids[i] = (i * 13) % VOCAB;
  batch_t batch = {.num_tokens = TOKENS,
                   .num_reqs = 1,
                   .block_size = 16,
                   .input_ids = ids,
                   .query_start_loc = starts};
  float *x = malloc(sizeof(float) * (size_t)(TOKENS * k)), logits[VOCAB];
  double *seen = malloc(sizeof(double) * (size_t)k);
  ops_cpu.begin(device, &batch);
  ops_cpu.embed(device, ACT(x), table, 1);
  for (int64_t i = 0; i < TOKENS * k; i++) {
    float value = matrix->values[(int64_t)ids[i / k] * k + i % k];
    ASSERT_EQ_FOR(x[i], float_from_bf16(bf16_from_float(value)), "%s row %d",
                  quant_format(format_of(matrix, ids[i / k]))->name, ids[i / k]);
  }
  ops_cpu.logits(device, ACT(x), table, NULL, 0, 3, 1);
  ops_cpu.read_logits(device, logits, 1);
  quantise(x + 3 * k, k, seen);
  for (int c = 0; c < VOCAB; c++) {
    double sum = 0, size = 0;
    for (int64_t i = 0; i < k; i++) sum += seen[i] * (double)matrix->values[c * k + i];
    for (int64_t i = 0; i < k; i++) size += fabs(seen[i] * (double)matrix->values[c * k + i]);
    ASSERT_LE_FOR(fabs(logits[c] - sum), size * 0x1p-18, "logit %d", c);
  }
  free(x), free(seen);
}

Test(quant, tables_and_heads) {
  static const weight_format_t mixed[] = {WEIGHT_Q6_K, WEIGHT_Q4_K,       WEIGHT_IQ4_XS,
                                          WEIGHT_Q8_0, WEIGHT_GGUF_MXFP4, WEIGHT_Q4_1};
  random_state_t random = random_start(45);
  device_t *device = device_prepared("auto", 2, &limits);
  matrix_t matrix = {VOCAB, 512, mixed, ARRAY_LEN(mixed), 45, 0, NULL, NULL, {0}};
  matrix_make(&random, &matrix);
  check_table(device, &matrix);
  matrix_free(&matrix);
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    matrix = (matrix_t){VOCAB, 768, &all[i], 1, 1, 64, NULL, NULL, {0}};
    matrix_make(&random, &matrix);
    check_table(device, &matrix);
    matrix_free(&matrix);
  }
  ops_cpu.close(device);
}
