/* packed_row.c: the codes, zero points and scales of one row of a quantised layer -> numbers.
 *
 * packed_find.c has checked every shape, so that no index below can leave its tensor. The packing
 * threads of a back end call packed_row.
 */
#include "engine/model/weights/packed.h"

#include "engine/base/half.h"
#include "engine/base/util.h"

#include <limits.h>
#include <math.h>
#include <string.h>

/* LEVEL_MAX: no code, or number of fp8, is larger. */
enum { WORD_BITS = 32, AWQ_COLS = 8, GROUP_ALIGN = 16, WIDE_GROUP = 256, LEVEL_MAX = 448 };
/* Codes of e2m1 numbers: twice the number, plus 12. */
enum { FP4_OFFSET = 12 };

/* Element `i` of a tensor of scales. U8 and F8_E8M0 hold the exponent of a power of two. */
static float read_scale(const stored_tensor_t *tensor, int64_t i) {
  const uint8_t *data = tensor->data;
  if (tensor->type[0] == 'U' || strcmp(tensor->type, "F8_E8M0") == 0)
    return data[i] == 255 ? NAN : ldexpf(1.0f, data[i] - 127);
  if (strcmp(tensor->type, "F8_E4M3") == 0) return float_from_e4m3(data[i]);
  if (strcmp(tensor->type, "F32") == 0) {
    float value;
    memcpy(&value, data + 4 * i, sizeof(value));
    return value;
  }
  uint16_t half;
  memcpy(&half, data + 2 * i, sizeof(half));
  return tensor->type[0] == 'F' ? float_from_f16(half) : float_from_bf16(half);
}

static uint32_t read_word(const stored_tensor_t *tensor, int64_t i) {
  uint32_t word;
  memcpy(&word, tensor->data + 4 * i, sizeof(word));
  return word;
}

/* Field `i` of a row of 32-bit words that hold fields of `bits` bits one after the other; the row
 * begins at word `first`. A field may cross into the next word. */
static int32_t read_field(const stored_tensor_t *tensor, int64_t first, int64_t i, int32_t bits) {
  int64_t at = i * bits, word = first + at / WORD_BITS;
  int32_t shift = (int32_t)(at % WORD_BITS);
  uint64_t value = read_word(tensor, word) >> shift;
  if (shift + bits > WORD_BITS)
    value |= (uint64_t)read_word(tensor, word + 1) << (WORD_BITS - shift);
  return (int32_t)(value & ((1U << bits) - 1));
}

/* The nibble of column `i` of AWQ: a word holds the columns 0 2 4 6 1 3 5 7, lowest bits first. */
static int32_t read_awq(const stored_tensor_t *tensor, int64_t row, int64_t words, int64_t i) {
  static const int place[AWQ_COLS] = {0, 4, 1, 5, 2, 6, 3, 7};
  uint32_t word = read_word(tensor, row * words + i / AWQ_COLS);
  return (int32_t)(word >> (4 * place[i % AWQ_COLS]) & 15);
}

static int32_t zero_point(const packed_t *packed, int64_t row, int64_t group) {
  const stored_tensor_t *zeros = packed->zeros;
  if (zeros == NULL) return 1 << (packed->bits - 1);
  if (packed->packing == PACKING_AWQ) return read_awq(zeros, group, zeros->shape[1], row);
  if (packed->packing == PACKING_GPTQ) {
    return read_field(zeros, group * zeros->shape[1], row, packed->bits) + packed->zero_add;
  }
  /* compressed-tensors packs zero points along the rows: word n * bits / 32 of column `group`. */
  int64_t at = row * packed->bits, word = at / WORD_BITS, groups = zeros->shape[1];
  int32_t shift = (int32_t)(at % WORD_BITS);
  uint64_t value = read_word(zeros, word * groups + group) >> shift;
  if (shift + packed->bits > WORD_BITS)
    value |= (uint64_t)read_word(zeros, (word + 1) * groups + group) << (WORD_BITS - shift);
  return (int32_t)(value & ((1U << packed->bits) - 1));
}

/* out[count] = the columns [first, first + count) of a row without their scale: code - zero point
 * for integers, the number itself for floats. */
static void read_levels(const packed_t *packed, int64_t row, int64_t first, int64_t count,
                        int32_t zero, float *out) {
  static const float e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  const stored_tensor_t *codes = packed->codes;
  const uint8_t *bytes =
      codes->data + (packed->packing == PACKING_FP4 ? row * packed->cols / 2 : row * packed->cols);
  const int32_t bits = packed->bits, per_word = WORD_BITS / bits;
  const uint32_t mask = (1U << bits) - 1;
  int64_t end = first + count;
  switch (packed->packing) {
  case PACKING_FP8:
    for (int64_t k = first; k < end; k++) out[k - first] = float_from_e4m3(bytes[k]);
    break;
  case PACKING_INT8:
    for (int64_t k = first; k < end; k++) out[k - first] = (float)(int8_t)bytes[k];
    break;
  case PACKING_FP4:
    for (int64_t k = first; k < end; k++)
      out[k - first] = e2m1[bytes[k / 2] >> (k % 2 ? 4 : 0) & 15];
    break;
  case PACKING_ROWS:
    for (int64_t k = first; k < end; k++)
      out[k - first] = (float)(read_field(codes, row * codes->shape[1], k, bits) - zero);
    break;
  case PACKING_GPTQ:
    for (int64_t k = first; k < end; k++) {
      uint32_t word = read_word(codes, k / per_word * packed->rows + row);
      out[k - first] = (float)((int32_t)(word >> (k % per_word * bits) & mask) - zero);
    }
    break;
  case PACKING_AWQ:
    for (int64_t k = first; k < end; k++)
      out[k - first] = (float)(read_awq(codes, k, codes->shape[1], row) - zero);
    break;
  case PACKING_NONE: break;
  }
}

static bool has_zeros(const packed_t *packed) {
  return packed->packing == PACKING_ROWS || packed->packing == PACKING_GPTQ ||
         packed->packing == PACKING_AWQ;
}

static float scale_of(const packed_t *packed, int64_t row, int64_t group) {
  const scale_grid_t *grid = &packed->grid;
  int64_t at = row / grid->row_div * grid->row_step + group * grid->group_step;
  return read_scale(packed->scales, at) * packed->factor;
}

/* Reads columns that share a group. */
static void read_group(const packed_t *packed, int64_t row, int64_t group, int64_t first,
                       int64_t count, float *out) {
  float scale = scale_of(packed, row, group);
  int32_t zero = has_zeros(packed) ? zero_point(packed, row, group) : 0;
  read_levels(packed, row, first, count, zero, out);
  for (int64_t i = 0; i < count; i++) out[i] *= scale;
}

void packed_row(const packed_t *packed, int64_t row, float *out) {
  int64_t count;
  for (int64_t k = 0; k < packed->cols; k += count) {
    int64_t group = k / packed->group;
    count = MIN(packed->group, packed->cols - k);
    if (packed->order != NULL) {
      group = (int64_t)read_word(packed->order, k);
      count = 1;
    }
    read_group(packed, row, group, k, count, out + k);
  }
}

weight_format_t packed_format(const packed_t *packed, int32_t *group) {
  bool is_whole = packed->num_groups == 1;
  if (packed->packing == PACKING_NONE) return WEIGHT_PLAIN;
  if (packed->order != NULL || (!is_whole && packed->group % GROUP_ALIGN != 0)) return WEIGHT_PLAIN;
  if (!is_whole && packed->group > INT32_MAX) return WEIGHT_PLAIN;
  *group = is_whole ? WIDE_GROUP : (int32_t)packed->group;
  if (packed->packing == PACKING_FP8) return WEIGHT_GROUPED_FP8;
  if (packed->packing == PACKING_FP4) return WEIGHT_GROUPED_FP4;
  return packed->bits <= 4 ? WEIGHT_GROUPED_4 : WEIGHT_GROUPED;
}

static group_scales_t own_scales(const packed_t *packed) {
  const char *type = packed->scales->type;
  group_scales_t own = {SCALES_ANY, ZERO_POINT_NONE};
  if (packed->packing == PACKING_FP8) return own;
  if (packed->packing == PACKING_FP4) {
    own.kind = strcmp(type, "F8_E4M3") == 0 ? SCALES_E4M3 : SCALES_POWERS;
    own.zero_point = FP4_OFFSET;
    return own;
  }
  if (packed->factor == 1.0f && strcmp(type, "F16") == 0) own.kind = SCALES_F16;
  if (packed->factor == 1.0f && strcmp(type, "BF16") == 0) own.kind = SCALES_BF16;
  if (packed->zeros == NULL)
    own.zero_point = 1 << (packed->bits - 1);
  else if (packed->bits < 8 || packed->zero_add == 0)
    own.zero_point = ZERO_POINT_EACH;
  return own;
}

void packed_scales(const packed_t *packed, bool first, group_scales_t *scales) {
  const group_scales_t own = own_scales(packed);
  if (first) *scales = own;
  if (own.kind != scales->kind) scales->kind = SCALES_ANY;
  if (own.zero_point == scales->zero_point) return;
  const bool both = own.zero_point != ZERO_POINT_NONE && scales->zero_point != ZERO_POINT_NONE;
  scales->zero_point = both ? ZERO_POINT_EACH : ZERO_POINT_NONE;
}

/* Columns [first, first + count) of a row as they are stored: bytes of e4m3, nibbles of FP4. False
 * if one is NaN. */
static bool read_stored(const packed_t *packed, int64_t row, int64_t first, int64_t count,
                        uint8_t *out) {
  if (packed->packing == PACKING_FP8) {
    memcpy(out, packed->codes->data + row * packed->cols + first, (size_t)count);
    for (int64_t i = 0; i < count; i++)
      if ((out[i] & 0x7f) == 0x7f) return false;
    return true;
  }
  const uint8_t *bytes = packed->codes->data + row * packed->cols / 2;
  for (int64_t k = first; k < first + count; k++)
    out[k - first] = bytes[k / 2] >> (k % 2 ? 4 : 0) & 15;
  return true;
}

bool packed_grouped_row(const packed_t *packed, int64_t row, weight_format_t format, int32_t group,
                        uint8_t *out) {
  const bool as_stored = format == WEIGHT_GROUPED_FP4 || format == WEIGHT_GROUPED_FP8;
  int64_t num_groups = DIV_UP(packed->cols, group);
  uint8_t *numbers = out + ROUND_UP((size_t)packed->cols, sizeof(float));
  bool good = true;
  for (int64_t g = 0; g < num_groups; g++) {
    float levels[WIDE_GROUP] = {0};
    int64_t own = g * group / packed->group, first = g * group;
    int64_t end = MIN(first + group, packed->cols);
    float scale = scale_of(packed, row, own);
    int32_t zero = has_zeros(packed) ? zero_point(packed, row, own) : 0;
    /* Codes are not negative: an int8 begins at -128, an e2m1 number at -6. */
    float step = packed->packing == PACKING_FP4 ? 2.0f : 1.0f;
    int32_t offset = packed->packing == PACKING_FP4 ? FP4_OFFSET : 128;
    if (has_zeros(packed)) offset = zero;
    if (as_stored) good = read_stored(packed, row, first, end - first, out + first) && good;
    for (int64_t k = first; k < end && !as_stored; k += WIDE_GROUP) {
      int64_t count = MIN(end - k, WIDE_GROUP);
      read_levels(packed, row, k, count, zero, levels);
      for (int64_t i = 0; i < count; i++)
        out[k + i] = (uint8_t)((int32_t)(levels[i] * step) + offset);
    }
    float min = as_stored ? packed->factor : scale / step * (float)offset;
    scale /= step;
    good = good && isfinite(scale * LEVEL_MAX) && isfinite(min);
    memcpy(numbers + (size_t)g * sizeof(float), &scale, sizeof(float));
    memcpy(numbers + (size_t)(num_groups + g) * sizeof(float), &min, sizeof(float));
  }
  return good;
}

/* The first element of a tensor of scales, or of fp8 codes, that is no number; -1 = none. */
static int64_t find_bad(const stored_tensor_t *tensor, float *value) {
  int64_t count = 1;
  for (int i = 0; i < tensor->rank; i++) count *= tensor->shape[i];
  for (int64_t i = 0; i < count; i++) {
    *value = read_scale(tensor, i);
    if (!isfinite(*value)) return i;
  }
  return -1;
}

int packed_not_finite(const packed_t *packed, const weight_files_t *files, inferd_error_t *error) {
  const stored_tensor_t *tensor = packed->scales;
  char path[PATH_MAX];
  float value = 0;
  int64_t at = find_bad(tensor, &value);
  if (at < 0 && packed->packing == PACKING_FP8) {
    tensor = packed->codes;
    at = find_bad(tensor, &value);
  }
  if (at >= 0)
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "%s: tensor %s: element %lld is %g, which is no number that a weight may have",
                     weight_files_path(files, tensor, path, sizeof(path)), tensor->name,
                     (long long)at, (double)value);
  return error_set(
      error, ERR_MODEL_MALFORMED, NULL,
      "%s: tensor %s: with its scales holds a number that the chosen dtype cannot hold",
      weight_files_path(files, packed->codes, path, sizeof(path)), packed->codes->name);
}
