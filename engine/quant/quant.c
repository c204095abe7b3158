/* quant.c: the table of block formats; reads rows into values, and checks that they are finite.
 *
 * Owns nothing. Pure functions, any thread. quant_blocks.c has the layout of a block.
 */
#include "engine/quant/quant.h"

#include "engine/base/half.h"
#include "engine/base/util.h"
#include "engine/quant/quant_blocks.h"

#include <math.h>
#include <string.h>

enum { EXPONENT_MAX = 252, NUM_ALIGN = 4, LINE_BYTES = 64, AHEAD_BYTES = 2048 };

/* Levels of IQ4_NL and IQ4_XS, and of e2m1 numbers (OCP microscaling formats 1.0). The levels of
 * e2m1 are doubled to make them integers; the scales of MXFP4 and NVFP4 are halved in return. */
static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                               1,    13,   25,  38,  53,  69,  89,  113};
static const int8_t e2m1[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

/* name, format, GGUF, columns, bytes, group, codes, offset, table, minimum, two levels */
static const quant_format_t formats[] = {
    {"Q4_0", WEIGHT_Q4_0, 2, 32, 18, 32, 16, 8, NULL, false, false},
    {"Q4_1", WEIGHT_Q4_1, 3, 32, 20, 32, 16, 0, NULL, true, false},
    {"Q5_0", WEIGHT_Q5_0, 6, 32, 22, 32, 32, 16, NULL, false, false},
    {"Q5_1", WEIGHT_Q5_1, 7, 32, 24, 32, 32, 0, NULL, true, false},
    {"Q8_0", WEIGHT_Q8_0, 8, 32, 34, 32, 256, 128, NULL, false, false},
    {"Q2_K", WEIGHT_Q2_K, 10, 256, 84, 16, 4, 0, NULL, true, true},
    {"Q3_K", WEIGHT_Q3_K, 11, 256, 110, 16, 8, 4, NULL, false, true},
    {"Q4_K", WEIGHT_Q4_K, 12, 256, 144, 32, 16, 0, NULL, true, true},
    {"Q5_K", WEIGHT_Q5_K, 13, 256, 176, 32, 32, 0, NULL, true, true},
    {"Q6_K", WEIGHT_Q6_K, 14, 256, 210, 16, 64, 32, NULL, false, true},
    {"IQ4_NL", WEIGHT_IQ4_NL, 20, 32, 18, 32, 16, 0, iq4, false, false},
    {"IQ4_XS", WEIGHT_IQ4_XS, 23, 256, 136, 32, 16, 0, iq4, false, true},
    {"MXFP4", WEIGHT_GGUF_MXFP4, 39, 32, 17, 32, 16, 0, e2m1, false, false},
    {"NVFP4", WEIGHT_NVFP4, 40, 64, 36, 16, 16, 0, e2m1, false, false},
    {"grouped", WEIGHT_GROUPED, -1, 16, 0, 16, 256, 0, NULL, true, false},
    {"grouped of 4 bits", WEIGHT_GROUPED_4, -1, 16, 0, 16, 16, 0, NULL, true, false},
    {"grouped FP4", WEIGHT_GROUPED_FP4, -1, 16, 0, 16, 16, 0, e2m1, false, false},
};

const quant_format_t *quant_format(weight_format_t format) {
  for (size_t i = 0; i < ARRAY_LEN(formats); i++)
    if (formats[i].format == format) return &formats[i];
  return NULL;
}

const quant_format_t *quant_by_gguf_type(uint32_t type) {
  for (size_t i = 0; i < ARRAY_LEN(formats); i++)
    if (formats[i].gguf_type >= 0 && (uint32_t)formats[i].gguf_type == type) return &formats[i];
  return NULL;
}

size_t quant_row_bytes(const quant_format_t *format, int32_t group, int64_t cols) {
  if (cols <= 0 || cols > INT32_MAX) return 0;
  if (!quant_is_grouped(format))
    return cols % format->block_cols != 0
               ? 0
               : (size_t)(cols / format->block_cols) * (size_t)format->block_bytes;
  if (group < QUANT_GROUP_MIN || group % QUANT_GROUP_MIN != 0) return 0;
  return ROUND_UP((size_t)cols, NUM_ALIGN) + 2 * sizeof(float) * (size_t)DIV_UP(cols, group);
}

/* Codes, then a scale and then a minimum for each group of `group` columns. */
static void read_grouped(int32_t group, const uint8_t *row, int64_t cols, int64_t first,
                         quant_chunk_t *out) {
  const uint8_t *scales = row + ROUND_UP((size_t)cols, NUM_ALIGN);
  const uint8_t *mins = scales + (size_t)DIV_UP(cols, group) * sizeof(float);
  memcpy(out->codes, row + first, (size_t)out->cols);
  for (int32_t k = 0; k < out->cols; k += QUANT_GROUP_MIN) {
    size_t at = (size_t)((first + k) / group) * sizeof(float);
    memcpy(&out->scale[k / QUANT_GROUP_MIN], scales + at, sizeof(float));
    memcpy(&out->min[k / QUANT_GROUP_MIN], mins + at, sizeof(float));
  }
}

void quant_read(const quant_format_t *format, int32_t group, const void *row, int64_t cols,
                int64_t first, quant_chunk_t *out) {
  out->cols = (int32_t)MIN(cols - first, QUANT_CHUNK);
  if (quant_is_grouped(format)) {
    read_grouped(group, row, cols, first, out);
    return;
  }
  const uint8_t *block = row;
  block += (size_t)(first / format->block_cols) * (size_t)format->block_bytes;
  for (int32_t k = 0; k < out->cols; k += format->block_cols, block += format->block_bytes)
    quant_block_read(format->format, block, k, out);
  for (int32_t g = 0; format->is_two_level && g < QUANT_CHUNK / format->group; g++) {
    out->scale[g] = out->super_scale * (float)out->sub_scale[g];
    out->min[g] = format->has_min ? out->super_min * (float)out->sub_min[g] : 0;
  }
}

void quant_decode(const quant_format_t *format, int32_t group, const void *row, int64_t cols,
                  float *out) {
  quant_chunk_t chunk;
  for (int64_t first = 0; first < cols; first += QUANT_CHUNK) {
    quant_read(format, group, row, cols, first, &chunk);
    for (int32_t k = 0; k < chunk.cols; k++) {
      int32_t code = chunk.codes[k], g = k / format->group;
      int32_t level = format->table != NULL ? format->table[code] : code - format->offset;
      float value = chunk.scale[g] * (float)level;
      out[first + k] = format->has_min ? value - chunk.min[g] : value;
    }
  }
}

static bool floats_are_finite(const uint8_t *from, int64_t count) {
  for (int64_t i = 0; i < count; i++) {
    float value;
    memcpy(&value, from + (size_t)i * sizeof value, sizeof value);
    if (!isfinite(value)) return false;
  }
  return true;
}

bool quant_is_finite(const quant_format_t *format, int32_t group, const void *row, int64_t cols) {
  const uint8_t *block = row;
  if (quant_is_grouped(format))
    return floats_are_finite(block + ROUND_UP((size_t)cols, NUM_ALIGN), 2 * DIV_UP(cols, group));
  if (format->format == WEIGHT_NVFP4)
    return true; /* every byte of e4m3 is read as a finite scale */
  int32_t halves[2], count = quant_block_halves(format->format, halves);
  const uint8_t *ahead = block;
  for (int64_t i = 0; i < cols / format->block_cols; i++, block += format->block_bytes) {
    /* Memory is read from here on: a processor does not look ahead across a page by itself. */
    for (; ahead < block + AHEAD_BYTES; ahead += LINE_BYTES) __builtin_prefetch(ahead);
    if (format->format == WEIGHT_GGUF_MXFP4 && block[0] > EXPONENT_MAX) return false;
    for (int32_t j = 0; j < count; j++) {
      uint16_t half;
      memcpy(&half, block + halves[j], sizeof half);
      if ((half & 0x7c00) == 0x7c00) return false;
    }
  }
  return true;
}

void quant_encode_q8_0(const float *values, uint8_t *out) {
  float largest = 0;
  for (int i = 0; i < 32; i++) largest = fmaxf(largest, fabsf(values[i]));
  float scale = largest / 127.0f, inverse = scale > 0 ? 1.0f / scale : 0;
  uint16_t half = f16_from_float(scale);
  memcpy(out, &half, sizeof half);
  for (int i = 0; i < 32; i++) {
    float x = fmaxf(-127.0f, fminf(127.0f, roundf(values[i] * inverse)));
    out[2 + i] = (uint8_t)(int8_t)x;
  }
}
