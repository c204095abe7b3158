/* test_quant.c: block formats against the values of llama.cpp's Python package, which
 * scripts/vectors/quant.py wrote to tests/vectors/quant.txt, and against the common form. */
#include "engine/base/half.h"
#include "engine/base/random.h"
#include "engine/base/util.h"
#include "engine/quant/quant.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS_MAX = 512, NUM_VECTORS = 14, LINE_MAX_BYTES = 16384 };

static uint32_t hex(const char *text, int digits) {
  uint32_t value = 0;
  for (int i = 0; i < digits; i++) {
    int c = text[i];
    value = value << 4 | (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
  }
  return value;
}

static const quant_format_t *by_name(const char *name) {
  for (uint32_t type = 0; type < 64; type++) {
    const quant_format_t *format = quant_by_gguf_type(type);
    if (format != NULL && strcmp(format->name, name) == 0) return format;
  }
  return NULL;
}

static void check_encoding(int count, const char *blocks, const char *bits) {
  for (int i = 0; i < count; i += 32) {
    float values[32];
    uint8_t block[34];
    for (int k = 0; k < 32; k++) values[k] = float_from_bits(hex(bits + 8 * (i + k), 8));
    quant_encode_q8_0(values, block);
    for (int k = 0; k < 34; k++)
      ASSERT_EQ_FOR(block[k], hex(blocks + 2 * (i / 32 * 34 + k), 2), "byte %d of block %d", k, i);
  }
}

Test(quant, blocks_have_the_values_of_the_reference) {
  static char line[LINE_MAX_BYTES], blocks[LINE_MAX_BYTES], bits[LINE_MAX_BYTES];
  FILE *file = fopen("tests/vectors/quant.txt", "r");
  int count = 0, weights;
  char name[16];
  cr_assert_not_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    ASSERT_EQ(sscanf(line, "%15s %d %16383s %16383s", name, &weights, blocks, bits), 4);
    if (strcmp(name, "encode") == 0) {
      check_encoding(weights, blocks, bits);
      continue;
    }
    const quant_format_t *format = by_name(name);
    cr_assert_not_null(format, "%s is in no row of the table", name);
    uint8_t row[WEIGHTS_MAX * 2];
    float values[WEIGHTS_MAX];
    size_t bytes = strlen(blocks) / 2;
    ASSERT_LE(weights, WEIGHTS_MAX);
    ASSERT_EQ_FOR(quant_row_bytes(format, 0, weights), bytes, "%s", name);
    for (size_t i = 0; i < bytes; i++) row[i] = (uint8_t)hex(blocks + 2 * i, 2);
    quant_decode(format, 0, row, weights, values);
    for (int i = 0; i < weights; i++)
      ASSERT_EQ_FOR(float_bits(values[i]), hex(bits + 8 * i, 8), "%s: weight %d is %.9g", name, i,
                    (double)values[i]);
    cr_assert(quant_is_finite(format, 0, row, weights), "%s", name);
    count++;
  }
  ASSERT_EQ(count, NUM_VECTORS);
  fclose(file);
}

/* Any bytes give codes in range and a value for every weight; nothing else is read. */
Test(quant, random_bytes_are_read_within_bounds) {
  uint64_t counter = 0;
  for (uint32_t type = 0; type < 64; type++) {
    const quant_format_t *format = quant_by_gguf_type(type);
    if (format == NULL) continue;
    ASSERT_EQ(quant_format(format->format), format);
    for (int64_t cols = format->block_cols; cols <= 5 * 256; cols += 3 * format->block_cols) {
      size_t bytes = quant_row_bytes(format, 0, cols);
      uint8_t *row = malloc(bytes);
      float *values = malloc((size_t)cols * sizeof *values);
      for (size_t i = 0; i < bytes; i++) row[i] = (uint8_t)random_mix(++counter);
      quant_decode(format, 0, row, cols, values);
      for (int64_t first = 0; first < cols; first += QUANT_CHUNK) {
        quant_chunk_t chunk;
        quant_read(format, 0, row, cols, first, &chunk);
        ASSERT_EQ(chunk.cols, MIN(cols - first, QUANT_CHUNK));
        for (int32_t k = 0; k < chunk.cols; k++) ASSERT_LT(chunk.codes[k], format->num_codes);
      }
      free(row), free(values);
    }
  }
}

Test(quant, rows_that_do_not_divide_have_no_size) {
  ASSERT_EQ(quant_row_bytes(quant_format(WEIGHT_Q4_K), 0, 896), 0);
  ASSERT_EQ(quant_row_bytes(quant_format(WEIGHT_Q5_0), 0, 896), 616);
  ASSERT_EQ(quant_row_bytes(quant_format(WEIGHT_Q5_0), 0, 895), 0);
  ASSERT_EQ(quant_row_bytes(quant_format(WEIGHT_GROUPED), 128, 300), 300 + 2 * 3 * 4);
  ASSERT_EQ(quant_row_bytes(quant_format(WEIGHT_GROUPED), 24, 300), 0);
  ASSERT_EQ(quant_row_bytes(quant_format(WEIGHT_GROUPED), 0, 300), 0);
  cr_assert_null(quant_format(WEIGHT_PLAIN));
  cr_assert_null(quant_format(WEIGHT_MXFP4));
  cr_assert_null(quant_by_gguf_type(UINT32_MAX));
}

Test(quant, grouped_rows_repeat_their_scales) {
  enum { COLS = 301, GROUP = 48, GROUPS = 7 };
  uint8_t row[304 + 8 * GROUPS];
  float values[COLS], scale[GROUPS], min[GROUPS];
  const quant_format_t *format = quant_format(WEIGHT_GROUPED);
  for (int k = 0; k < 304; k++) row[k] = (uint8_t)(k * 7);
  for (int g = 0; g < GROUPS; g++) {
    scale[g] = 0.5f + (float)g;
    min[g] = (float)(3 * g);
  }
  memcpy(row + 304, scale, sizeof scale);
  memcpy(row + 304 + sizeof scale, min, sizeof min);
  ASSERT_EQ(quant_row_bytes(format, GROUP, COLS), sizeof row);
  quant_decode(format, GROUP, row, COLS, values);
  for (int k = 0; k < COLS; k++)
    ASSERT_EQ_FOR(values[k], scale[k / GROUP] * (float)row[k] - min[k / GROUP], "weight %d", k);
  cr_assert(quant_is_finite(format, GROUP, row, COLS));
  min[GROUPS - 1] = NAN;
  memcpy(row + 304 + sizeof scale, min, sizeof min);
  cr_assert_not(quant_is_finite(format, GROUP, row, COLS));
}

Test(quant, scales_that_are_no_numbers_are_found) {
  static const struct {
    weight_format_t format;
    int at;
  } places[] = {{WEIGHT_Q4_0, 0},   {WEIGHT_Q4_1, 0},    {WEIGHT_Q4_1, 2},       {WEIGHT_Q5_0, 0},
                {WEIGHT_Q5_1, 2},   {WEIGHT_Q8_0, 0},    {WEIGHT_Q2_K, 80},      {WEIGHT_Q2_K, 82},
                {WEIGHT_Q3_K, 108}, {WEIGHT_Q4_K, 0},    {WEIGHT_Q4_K, 2},       {WEIGHT_Q5_K, 2},
                {WEIGHT_Q6_K, 208}, {WEIGHT_IQ4_NL, 0},  {WEIGHT_IQ4_XS, 0},     {WEIGHT_Q5_K, 0},
                {WEIGHT_Q5_1, 0},   {WEIGHT_IQ4_NL, 18}, {WEIGHT_GGUF_MXFP4, -1}};
  for (size_t i = 0; i < ARRAY_LEN(places); i++) {
    const quant_format_t *format = quant_format(places[i].format);
    int64_t cols = 2 * format->block_cols;
    uint8_t row[512] = {0};
    cr_assert(quant_is_finite(format, 0, row, cols), "%s", format->name);
    float values[512];
    if (places[i].at < 0)
      row[format->block_bytes] = 255;
    else
      row[places[i].at + 1] = 0x7c;
    cr_assert_not(quant_is_finite(format, 0, row, cols), "%s at %d", format->name, places[i].at);
    quant_decode(format, 0, row, cols, values);
  }
}
