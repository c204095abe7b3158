/* test_packed.c: quantised matrices onto the device, emulated: every format of files arrives as the
 * numbers that engine/quant reads, takes the bytes that the plan counts, and is refused where a
 * number is beyond the run type.
 */
#include "cuda/blas.h"
#include "cuda/operations.h"
#include "cuda/packed.h"

#include "engine/base/half.h"
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/quant/quant_blocks.h"
#include "tests/emu/host/calls.h"
#include "tests/expect.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 21, COLS = 768, ROW_BYTES = 4 * COLS };

typedef struct matrix_case {
  uint8_t rows[ROWS][ROW_BYTES]; /* as the files hold them */
  weight_format_t formats[ROWS];
  float values[ROWS][COLS];
  dtype_t dtype;
  int32_t group;
  group_scales_t scales;
  uint64_t counter;
} matrix_case_t;

static uint32_t draw(matrix_case_t *c, uint32_t below) {
  return (uint32_t)(random_mix(++c->counter) >> 33) % below;
}

static float draw_scale(matrix_case_t *c) {
  return ((float)draw(c, 2001) - 1000) * 0x1p-20f;
}

/* Random codes, and f16 numbers of about a thousandth. */
static void draw_blocks(matrix_case_t *c, const quant_format_t *format, uint8_t *row) {
  for (int32_t at = 0; at < COLS / format->block_cols * format->block_bytes; at++)
    row[at] = (uint8_t)draw(c, 256);
  for (int32_t b = 0; b < COLS / format->block_cols; b++) {
    uint8_t *block = row + b * format->block_bytes;
    int32_t halves[2];
    for (int32_t i = 0; i < quant_block_halves(format->format, halves); i++) {
      const uint16_t half = f16_from_float(draw_scale(c));
      memcpy(block + halves[i], &half, sizeof half);
    }
    if (format->format == WEIGHT_GGUF_MXFP4) block[0] = (uint8_t)(100 + draw(c, 40));
  }
}

static void draw_grouped(matrix_case_t *c, weight_format_t format, uint8_t *row) {
  const int32_t groups = DIV_UP(COLS, c->group);
  const bool few = format == WEIGHT_GROUPED_4 || format == WEIGHT_GROUPED_FP4;
  for (int32_t k = 0; k < COLS; k++) {
    row[k] = (uint8_t)draw(c, few ? 16 : 256);
    if (format == WEIGHT_GROUPED_FP8 && (row[k] & 0x7f) == 0x7f) row[k] = 3;
  }
  for (int32_t g = 0; g < 2 * groups; g++) {
    const float number = draw_scale(c);
    memcpy(row + COLS + (size_t)g * sizeof number, &number, sizeof number);
  }
}

/* The numbers of a row by the definitions of weight_source.h. */
static void decode(matrix_case_t *c, int32_t r) {
  static const float e2m1[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const uint8_t *row = c->rows[r];
  float *out = c->values[r];
  for (int32_t k = 0; k < COLS && c->formats[r] == WEIGHT_MXFP4; k++) {
    const uint8_t *block = row + k / MXFP4_COLS * MXFP4_BYTES;
    const int32_t code = block[k % MXFP4_COLS / 2] >> k % 2 * 4 & 15;
    out[k] = ldexpf(code & 8 ? -e2m1[code & 7] : e2m1[code], block[MXFP4_BYTES - 1] - 127);
  }
  for (int32_t k = 0; k < COLS && c->formats[r] == WEIGHT_GROUPED_FP8; k++) {
    float scale;
    memcpy(&scale, row + COLS + (size_t)(k / c->group) * sizeof scale, sizeof scale);
    out[k] = float_from_e4m3(row[k]) * scale;
  }
  const quant_format_t *format = quant_format(c->formats[r]);
  if (format != NULL) quant_decode(format, c->group, row, COLS, out);
}

static void draw_row(matrix_case_t *c, int32_t r, weight_format_t format) {
  c->formats[r] = format;
  if (format >= WEIGHT_GROUPED) {
    draw_grouped(c, format, c->rows[r]);
  } else if (format != WEIGHT_MXFP4) {
    draw_blocks(c, quant_format(format), c->rows[r]);
  } else {
    for (int32_t i = 0; i < COLS / MXFP4_COLS * MXFP4_BYTES; i++)
      c->rows[r][i] = (uint8_t)(i % MXFP4_BYTES == MXFP4_BYTES - 1 ? draw(c, 140) : draw(c, 256));
  }
  decode(c, r);
}

static const void *row_of(void *context, int64_t row, void *scratch) {
  (void)scratch;
  return ((matrix_case_t *)context)->rows[row];
}
static weight_format_t format_of(void *context, int64_t row) {
  return ((matrix_case_t *)context)->formats[row];
}

static uint16_t narrow(dtype_t dtype, float value) {
  return dtype == DTYPE_BF16 ? bf16_from_float(value) : f16_from_float(value);
}

/* Embeds every row and compares it with the rounded numbers; a zero may have either sign. */
static void check_values(const matrix_case_t *c, device_t *d, const weight_t *weight) {
  uint16_t *got = malloc(sizeof(uint16_t[ROWS][COLS]));
  void *out;
  int32_t *ids, all[ROWS];
  for (int32_t r = 0; r < ROWS; r++) all[r] = r;
  cr_assert_not_null(got);
  cr_assert_eq(cudaMalloc(&out, sizeof(uint16_t[ROWS][COLS])), cudaSuccess);
  cr_assert_eq(cudaMalloc((void **)&ids, sizeof all), cudaSuccess);
  cr_assert_eq(cudaMemcpy(ids, all, sizeof all, cudaMemcpyHostToDevice), cudaSuccess);
  const gpu_table_t table = {weight->data, ROWS, COLS, weight->packed, 0};
  cr_assert_eq(gpu_embed(c->dtype, out, &table, ids, 1.0f, ROWS, d->stream), 0);
  cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
  cr_assert_eq(cudaMemcpy(got, out, sizeof(uint16_t[ROWS][COLS]), cudaMemcpyDeviceToHost),
               cudaSuccess);
  for (int32_t r = 0; r < ROWS; r++) {
    for (int32_t k = 0; k < COLS; k++) {
      const uint16_t expected = narrow(c->dtype, c->values[r][k]), found = got[r * COLS + k];
      cr_assert(found == expected || ((found | expected) & 0x7fff) == 0,
                "format %d, row %d, column %d: %#x, expected %#x (%g)", c->formats[r], r, k, found,
                expected, (double)c->values[r][k]);
    }
  }
  cudaFree(out);
  cudaFree(ids);
  free(got);
}

static device_t *open_device(void) {
  const device_options_t options = {.num_threads = 3};
  inferd_error_t error = {0};
  device_t *d;
  cr_assert_eq(ops_cuda.open(&options, &d, &error), 0, "%s", error.message);
  return d;
}

static weight_source_t source_of(matrix_case_t *c, bool mixed) {
  return (weight_source_t){.name = "packed",
                           .rows = ROWS,
                           .cols = COLS,
                           .format = c->formats[0],
                           .dtype = c->dtype,
                           .group = c->group,
                           .scales = c->scales,
                           .row_format = mixed ? format_of : NULL,
                           .row = row_of,
                           .context = c};
}

/* Loads the matrix; it takes what the plan counts, at most `bits_max` a weight. */
static void check_matrix(matrix_case_t *c, bool mixed, double bits_max) {
  device_t *d = open_device();
  inferd_error_t error = {0};
  weight_t *weight;
  const weight_source_t source = source_of(c, mixed);
  const size_t before = d->taken;
  cr_assert_eq(ops_cuda.weight(d, &source, &weight, &error), 0, "%s", error.message);
  cr_assert_eq(d->taken - before, ops_cuda.weight_bytes(&source));
  const double bits = 8.0 * (double)(d->taken - before) / (DIV_UP(ROWS, 8) * 8 * COLS);
  cr_assert_leq(bits, bits_max, "format %d takes %g bits", c->formats[0], bits);
  check_values(c, d, weight);
  ops_cuda.close(d);
}

typedef struct expected_bits {
  weight_format_t format;
  double bits; /* of a weight on the device */
} expected_bits_t;

static const expected_bits_t expectations[] = {
    {WEIGHT_MXFP4, 4.25},      {WEIGHT_Q4_0, 4.5},        {WEIGHT_Q4_1, 5},
    {WEIGHT_Q5_0, 8.5},        {WEIGHT_Q5_1, 9},          {WEIGHT_Q8_0, 8.5},
    {WEIGHT_Q2_K, 5.25},       {WEIGHT_Q3_K, 4.625},      {WEIGHT_Q4_K, 4.75},
    {WEIGHT_Q5_K, 8.75},       {WEIGHT_Q6_K, 8.625},      {WEIGHT_IQ4_NL, 4.5},
    {WEIGHT_IQ4_XS, 4.375},    {WEIGHT_GGUF_MXFP4, 4.25}, {WEIGHT_NVFP4, 5},
    {WEIGHT_GROUPED, 8.5},     {WEIGHT_GROUPED_4, 4.5},   {WEIGHT_GROUPED_FP4, 4.25},
    {WEIGHT_GROUPED_FP8, 8.25}};

Test(packed, every_format_arrives_in_its_bits) {
  static matrix_case_t c;
  cr_assert_eq(ARRAY_LEN(expectations), WEIGHT_GROUPED_FP8, "a format is missing");
  for (size_t i = 0; i < ARRAY_LEN(expectations); i++) {
    const dtype_t dtype = i % 2 ? DTYPE_F16 : DTYPE_BF16;
    c = (matrix_case_t){.dtype = dtype, .group = 128, .counter = i << 32};
    for (int32_t r = 0; r < ROWS; r++) draw_row(&c, r, expectations[i].format);
    check_matrix(&c, false, expectations[i].bits);
  }
}

/* Groups that are no power of two, or one for the row. */
Test(packed, groups_of_any_size) {
  static matrix_case_t c;
  static const int32_t groups[] = {16, 48, 96, 256, 768, 1024};
  for (size_t i = 0; i < ARRAY_LEN(groups); i++) {
    c = (matrix_case_t){.dtype = DTYPE_BF16, .group = groups[i], .counter = i << 40};
    for (int32_t r = 0; r < ROWS; r++)
      draw_row(&c, r, i % 2 ? WEIGHT_GROUPED_4 : WEIGHT_GROUPED_FP8);
    check_matrix(&c, false, 12);
  }
}

/* Scales of f16 with zero points keep their 16 bits; without what the loader knows, or in groups of
 * less than a unit, they are floats. */
Test(packed, zero_points_of_short_scales) {
  static matrix_case_t c;
  static const struct {
    int32_t group;
    group_scales_t scales;
    double bits;
  } cases[] = {{128, {SCALES_F16, ZERO_POINT_EACH}, 4.25},  {256, {SCALES_F16, 8}, 4.25},
               {1024, {SCALES_F16, ZERO_POINT_EACH}, 4.25}, {128, {SCALES_ANY, 8}, 4.5},
               {128, {SCALES_F16, ZERO_POINT_NONE}, 4.5},   {64, {SCALES_F16, 8}, 5}};
  for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
    const int32_t group = cases[i].group, groups = DIV_UP(COLS, group);
    c = (matrix_case_t){.dtype = i % 2 ? DTYPE_F16 : DTYPE_BF16, .group = group};
    c.scales = cases[i].scales, c.counter = i << 44;
    for (int32_t r = 0; r < ROWS; r++) {
      draw_row(&c, r, WEIGHT_GROUPED_4);
      float *numbers = (float *)(void *)(c.rows[r] + COLS);
      for (int32_t g = 0; g < groups; g++) {
        const int32_t own = (int32_t)draw(&c, 256), zero = cases[i].scales.zero_point;
        numbers[groups + g] = numbers[g] * (float)(zero > 0 ? zero : own);
      }
      decode(&c, r);
    }
    check_matrix(&c, false, cases[i].bits);
    gpu_packed_t form;
    const weight_source_t source = source_of(&c, false);
    packed_form(&source, &form);
    ASSERT_EQ(form.scales == GPU_SCALES_F16_ZERO, i < 3);
  }
}

/* q and k in one format, v in another; two levels in both, and in one alone. */
Test(packed, rows_of_several_formats) {
  static matrix_case_t c;
  static const weight_format_t pairs[][2] = {{WEIGHT_Q4_K, WEIGHT_Q6_K},
                                             {WEIGHT_Q4_0, WEIGHT_Q6_K},
                                             {WEIGHT_Q8_0, WEIGHT_IQ4_NL},
                                             {WEIGHT_Q5_1, WEIGHT_GGUF_MXFP4}};
  for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
    c = (matrix_case_t){.dtype = DTYPE_BF16, .counter = i << 48};
    for (int32_t r = 0; r < ROWS; r++) draw_row(&c, r, pairs[i][r > 12]);
    check_matrix(&c, true, i == 0 ? 9.25 : 12);
  }
}

/* 70,000 is beyond f16, not beyond bf16. */
Test(packed, numbers_beyond_the_run_type_are_refused) {
  static matrix_case_t c;
  for (int32_t i = 0; i < 2; i++) {
    c = (matrix_case_t){.dtype = i == 0 ? DTYPE_F16 : DTYPE_BF16, .group = 128};
    for (int32_t r = 0; r < ROWS; r++) draw_row(&c, r, WEIGHT_GROUPED);
    const float scale = 70000.0f / 255, min = 0;
    c.rows[17][200] = 255; /* of the second group of six */
    memcpy(c.rows[17] + COLS + sizeof scale, &scale, sizeof scale);
    memcpy(c.rows[17] + COLS + 7 * sizeof min, &min, sizeof min);
    device_t *d = open_device();
    inferd_error_t error = {0};
    weight_t *weight;
    const weight_source_t source = source_of(&c, false);
    const int code = ops_cuda.weight(d, &source, &weight, &error);
    cr_assert_eq(code, i == 0 ? ERR_MODEL_MALFORMED : 0, "%d: %s", code, error.message);
    if (i == 0) cr_assert_not_null(strstr(error.message, "packed"), "%s", error.message);
    ops_cuda.close(d);
  }
}

/* A float of so many significant bits, about a thousandth. */
static float short_float(matrix_case_t *c, uint32_t bits) {
  const float value = (float)(draw(c, 1U << bits) | 1U) * ldexpf(1, -10 - (int)bits);
  return draw(c, 2) ? value : -value;
}

/* out = the products of one row of inputs and the matrix. */
static void multiply_row(const matrix_case_t *c, device_t *d, const weight_t *weight,
                         gpu_unpack_t unpack, uint16_t *out) {
  uint16_t inputs[COLS];
  void *in, *sums;
  for (int32_t k = 0; k < COLS; k++) inputs[k] = narrow(c->dtype, (float)(k % 13 - 6) / 4);
  cr_assert_eq(cudaMalloc(&in, sizeof inputs), cudaSuccess);
  cr_assert_eq(cudaMalloc(&sums, sizeof(uint16_t[ROWS])), cudaSuccess);
  cr_assert_eq(cudaMemcpy(in, inputs, sizeof inputs, cudaMemcpyHostToDevice), cudaSuccess);
  gpu_skinny_t layer = {
      .in = in, .out = sums, .weight = weight->data, .rows = 1, .n = ROWS, .k = COLS};
  layer.packed = weight->packed;
  layer.packed.unpack = unpack;
  cr_assert_eq(gpu_linear(c->dtype, &layer, d->stream), 0);
  cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
  cr_assert_eq(cudaMemcpy(out, sums, sizeof(uint16_t[ROWS]), cudaMemcpyDeviceToHost), cudaSuccess);
  cudaFree(in);
  cudaFree(sums);
}

/* Scales and minima of any number of bits: a matrix that is said to need one rounding has the bits
 * of the three. Whole zeros of scales of f16 do, a third does not. */
Test(packed, one_rounding_where_it_has_the_bits_of_three) {
  static matrix_case_t c;
  int32_t fused = 0, cases = 60;
  for (int32_t i = 0; i < cases; i++) {
    c = (matrix_case_t){.dtype = i % 2 ? DTYPE_F16 : DTYPE_BF16, .group = 128};
    c.counter = (uint64_t)i << 32;
    const uint32_t bits = i == 0 ? 11 : i == 1 ? 24 : 8 + draw(&c, 11);
    const bool whole = i < 2 || draw(&c, 2);
    for (int32_t r = 0; r < ROWS; r++) {
      draw_row(&c, r, WEIGHT_GROUPED_4);
      float *numbers = (float *)(void *)(c.rows[r] + COLS);
      for (int32_t g = 0; g < COLS / 128; g++) {
        numbers[g] = short_float(&c, bits);
        numbers[COLS / 128 + g] =
            whole ? numbers[g] * (float)draw(&c, 16) : short_float(&c, 1 + draw(&c, 18));
      }
      decode(&c, r);
    }
    device_t *d = open_device();
    inferd_error_t error = {0};
    weight_t *weight;
    const weight_source_t source = source_of(&c, false);
    uint16_t once[ROWS], thrice[ROWS];
    cr_assert_eq(ops_cuda.weight(d, &source, &weight, &error), 0, "%s", error.message);
    if (i < 2)
      cr_assert_eq(weight->packed.unpack, i == 0 ? GPU_UNPACK_FUSED : GPU_UNPACK_STEPS, "%d", i);
    fused += weight->packed.unpack == GPU_UNPACK_FUSED;
    check_values(&c, d, weight);
    multiply_row(&c, d, weight, weight->packed.unpack, once);
    multiply_row(&c, d, weight, GPU_UNPACK_STEPS, thrice);
    cr_assert_arr_eq(once, thrice, sizeof once, "case %d, %u bits", i, bits);
    for (int32_t r = 0; r < ROWS; r++) {
      double sum = 0, size = 0;
      for (int32_t k = 0; k < COLS; k++) {
        sum += (double)c.values[r][k] * (k % 13 - 6) / 4;
        size += fabs((double)c.values[r][k]) * 1.5;
      }
      const float got = i % 2 ? float_from_f16(once[r]) : float_from_bf16(once[r]);
      cr_assert_float_eq(got, sum, size * 0x1p-8, "case %d, row %d: %g, expected %g", i, r,
                         (double)got, sum);
    }
    ops_cuda.close(d);
  }
  cr_assert(fused > cases / 8 && fused < cases, "%d of %d", fused, cases);
}

/* A power of two that times the number of a level is no float; 2^113 as a byte is 241. */
Test(packed, powers_of_two_beyond_the_kernels_are_refused) {
  static matrix_case_t c;
  for (int32_t exponent = 240; exponent <= 241; exponent++) {
    c = (matrix_case_t){.dtype = DTYPE_BF16};
    for (int32_t r = 0; r < ROWS; r++) draw_row(&c, r, WEIGHT_MXFP4);
    c.rows[3][MXFP4_BYTES - 1] = (uint8_t)exponent;
    decode(&c, 3);
    device_t *d = open_device();
    inferd_error_t error = {0};
    weight_t *weight;
    const weight_source_t source = source_of(&c, false);
    const int code = ops_cuda.weight(d, &source, &weight, &error);
    cr_assert_eq(code, exponent == 240 ? 0 : ERR_MODEL_MALFORMED, "%d: %s", code, error.message);
    if (code == 0) check_values(&c, d, weight);
    ops_cuda.close(d);
  }
}

/* ---- many rows ---- */

enum { WIDE = 300, MANY = 140, SLICE = 128 };

static const void *repeated_row(void *context, int64_t row, void *scratch) {
  return row_of(context, row % ROWS, scratch);
}

/* A layer of WIDE outputs on a device whose slices have SLICE rows. */
typedef struct layer_case {
  device_t *d;
  weight_t *weight;
  vector_t *bias;
  act_t *in, *residual, *out;
  uint16_t got[MANY][WIDE];
} layer_case_t;

static act_t *random_rows(matrix_case_t *c, int32_t width) {
  static uint16_t values[MANY * COLS];
  const size_t bytes = sizeof(uint16_t) * MANY * (size_t)width;
  void *rows;
  for (int32_t i = 0; i < MANY * width; i++) values[i] = narrow(c->dtype, 1000 * draw_scale(c));
  cr_assert_eq(cudaMalloc(&rows, bytes), cudaSuccess);
  cr_assert_eq(cudaMemcpy(rows, values, bytes, cudaMemcpyHostToDevice), cudaSuccess);
  return rows;
}

static void open_layer(matrix_case_t *c, layer_case_t *layer) {
  float bias[WIDE];
  inferd_error_t error = {0};
  *c = (matrix_case_t){.dtype = DTYPE_BF16, .group = 128, .counter = 77};
  for (int32_t r = 0; r < ROWS; r++) draw_row(c, r, WEIGHT_Q4_K);
  weight_source_t source = source_of(c, false);
  source.rows = WIDE, source.row = repeated_row;
  layer->d = open_device();
  cr_assert_eq(ops_cuda.weight(layer->d, &source, &layer->weight, &error), 0, "%s", error.message);
  for (int32_t i = 0; i < WIDE; i++) bias[i] = (float)draw(c, 9) / 8;
  cr_assert_eq(ops_cuda.vector(layer->d, bias, WIDE, &layer->bias, &error), 0);
  layer->in = random_rows(c, COLS), layer->residual = random_rows(c, WIDE);
  layer->out = random_rows(c, WIDE);
  layer->d->unpacked_bytes = sizeof(uint16_t[SLICE][COLS]) + 1000;
  cr_assert_eq(cudaMalloc(&layer->d->unpacked, layer->d->unpacked_bytes), cudaSuccess);
}

/* Runs the layer; returns how many calls of `function` that took. */
static int run_layer(layer_case_t *layer, int32_t rows, const char *function) {
  const int before = emu_count_calls(function);
  cr_assert_eq(cudaMemset(layer->out, 0x7f, sizeof layer->got), cudaSuccess);
  cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess); /* the layer is of another stream */
  cuda_linear(layer->d, layer->out, layer->in, layer->weight, layer->bias, layer->residual, rows);
  ASSERT_EQ(layer->d->fault, 0);
  const int calls = emu_count_calls(function) - before;
  cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
  cr_assert_eq(cudaMemcpy(layer->got, layer->out, sizeof layer->got, cudaMemcpyDeviceToHost),
               cudaSuccess);
  for (int32_t i = 0; i < rows * WIDE; i++)
    ASSERT_NE(layer->got[i / WIDE][i % WIDE], 0x7f7f); /* each was written */
  return calls;
}

static void close_layer(layer_case_t *layer) {
  cudaFree(layer->d->unpacked);
  cudaFree(layer->in);
  cudaFree(layer->residual);
  cudaFree(layer->out);
  ops_cuda.close(layer->d);
}

/* From 129 rows on each slice is unpacked and multiplied: the bits are those of the packed layer.
 */
Test(packed, many_rows_are_products_of_slices) {
  static matrix_case_t c;
  static layer_case_t layer;
  static uint16_t expected[MANY][WIDE];
  open_layer(&c, &layer);
  void *unpacked = layer.d->unpacked;
  ASSERT_EQ(run_layer(&layer, 128, "launch"), 4);
  ASSERT_EQ(run_layer(&layer, 129, "launch"), 2 * 3);
  ASSERT_EQ(run_layer(&layer, MANY, "launch"), 2 * 3);
  memcpy(expected, layer.got, sizeof expected);
  layer.d->unpacked = NULL;
  ASSERT_EQ(run_layer(&layer, MANY, "launch"), 1);
  cr_assert_eq(memcmp(expected, layer.got, sizeof expected), 0, "slices have other bits");
  layer.d->unpacked = unpacked;
  layer.d->unpacked_bytes = sizeof(uint16_t[SLICE][COLS]) - 1; /* no slice fits */
  ASSERT_EQ(run_layer(&layer, MANY, "launch"), 1);
  cr_assert_eq(memcmp(expected, layer.got, sizeof expected), 0, "without a slice");
  close_layer(&layer);
}

/* A slice is a shape of cuBLASLt's, whose rows are as far apart as those of the layer. */
Test(packed, slices_by_the_library) {
  static matrix_case_t c;
  static layer_case_t layer;
  static uint16_t expected[MANY][WIDE];
  inferd_error_t error = {0};
  open_layer(&c, &layer);
  cr_assert_eq(blas_open(layer.d, &error), 0, "%s", error.message);
  cr_assert_not_null(layer.d->blas);
  layer.d->is_warming_up = true;
  run_layer(&layer, MANY, "launch");
  layer.d->is_warming_up = false;
  memcpy(expected, layer.got, sizeof expected);
  blas_t *blas = layer.d->blas;
  ASSERT_EQ(blas->num_shapes, 2); /* of 128 outputs twice, and of 44 */
  for (int32_t i = 0; i < blas->num_shapes; i++) {
    ASSERT_EQ(blas->shapes[i].stride, WIDE);
    ASSERT_EQ(blas->shapes[i].num_weights, 1);
    blas_choice_t *choice = &blas->shapes[i].choices[blas_range(MANY)];
    choice->is_known = true;
    choice->algo.data[7] = 0x656d75; /* the first of the fake library's */
  }
  blas->is_tuned = true;
  ASSERT_EQ(run_layer(&layer, MANY, "cublasLtMatmul"), 3);
  for (int32_t i = 0; i < MANY * WIDE; i++) {
    const float want = float_from_bf16(expected[i / WIDE][i % WIDE]);
    const float got = float_from_bf16(layer.got[i / WIDE][i % WIDE]);
    cr_assert(fabsf(got - want) <= 0.02f * (1 + fabsf(want)), "row %d, output %d: %g, not %g",
              i / WIDE, i % WIDE, (double)got, (double)want);
  }
  close_layer(&layer);
}
