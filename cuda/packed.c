/* packed.c: rows of quantised matrices, from any format of files into panels of eight rows.
 *
 * Called on the engine thread while a model loads, packed_panel by its threads. No value changes by
 * a bit: codes move, and scales keep the precision that the file gives them. Never touches the
 * device.
 */
#include "cuda/packed.h"

#include "engine/base/checked.h"
#include "engine/base/half.h"
#include "engine/base/util.h"
#include "engine/quant/quant.h"

#include <math.h>
#include <string.h>

enum { NIBBLE_CODES = 16, LEVEL_OFFSET = 128, UNIT_ALIGN = 16, GROUP_WIDE = 256 };
enum { BLOCK_COLS_4 = 128, BLOCK_COLS_8 = 64, STEP_COLS = 32, LANE_COLS = 8, LANE_BYTES = 16 };
enum { UNIT_STEPS = GPU_UNIT_COLS / STEP_COLS };
static const float E4M3_MAX = 448, NIBBLE_ZERO = 0x1p7f, BYTE_ZERO = 0x1p15f;
static const float EXPONENT_MAX = 0x1p112f; /* times the number of level 0 it is finite */

/* Describes the blocks that quant.h does not know by those that have the same levels. */
static const quant_format_t *description(weight_format_t format) {
  if (format == WEIGHT_MXFP4) return quant_format(WEIGHT_GGUF_MXFP4);
  return quant_format(format == WEIGHT_GROUPED_FP8 ? WEIGHT_GROUPED : format);
}

static weight_format_t row_format(const weight_source_t *source, int64_t row) {
  return source->row_format != NULL ? source->row_format(source->context, row) : source->format;
}

/* Every format that a row has, as 1 << format. */
static uint32_t formats_of(const weight_source_t *source) {
  uint32_t seen = 1U << source->format;
  for (int64_t row = 0; source->row_format != NULL && row < source->rows; row++)
    seen |= 1U << row_format(source, row);
  return seen;
}

/* Scales of wide groups are halves, and minima a whole number of them. */
static bool has_zero_points(const weight_source_t *source, weight_format_t name, int32_t shift) {
  return name == WEIGHT_GROUPED_4 && source->scales.kind == SCALES_F16 &&
         source->scales.zero_point != ZERO_POINT_NONE && 1 << shift >= GPU_UNIT_COLS;
}

static gpu_scales_t scales_of(const quant_format_t *format) {
  if (format->is_two_level) return GPU_SCALES_TWO_LEVEL;
  if (format->format == WEIGHT_GGUF_MXFP4) return GPU_SCALES_EXPONENT;
  return quant_is_grouped(format) ? GPU_SCALES_F32 : GPU_SCALES_F16;
}

/* Log2 of the columns that share a scale: the largest power of two that divides the group. */
static int32_t group_shift(const weight_source_t *source, const quant_format_t *format) {
  int32_t shift = 4, group = format->group;
  if (quant_is_grouped(format)) group = source->group >= source->cols ? GROUP_WIDE : source->group;
  while (shift < 8 && group % (2 << shift) == 0) shift++;
  return shift;
}

static void form_of_one(const weight_source_t *source, weight_format_t name, gpu_packed_t *out) {
  const quant_format_t *format = description(name);
  const bool is_e4m3 = name == WEIGHT_GROUPED_FP8;
  *out = (gpu_packed_t){.codes = format->num_codes <= NIBBLE_CODES ? GPU_CODES_4 : GPU_CODES_8,
                        .scales = scales_of(format),
                        .group_shift = group_shift(source, format),
                        .has_min = format->has_min && !is_e4m3,
                        .zero = BYTE_ZERO + (quant_is_grouped(format) ? 0 : LEVEL_OFFSET)};
  if (is_e4m3) out->codes = GPU_CODES_E4M3;
  if (out->codes != GPU_CODES_4) return;
  out->zero = NIBBLE_ZERO + (float)format->offset;
  if (has_zero_points(source, name, out->group_shift)) out->scales = GPU_SCALES_F16_ZERO;
  if (format->table == NULL) return;
  out->codes = out->scales == GPU_SCALES_EXPONENT ? GPU_CODES_E2M1 : GPU_CODES_TABLE;
  out->zero = BYTE_ZERO + LEVEL_OFFSET;
  for (int32_t i = 0; i < NIBBLE_CODES; i++)
    out->table[i / 4] |= (uint32_t)(format->table[i] + LEVEL_OFFSET) << i % 4 * 8;
}

/* Rows of several formats, none of them grouped. */
static void form_of_mixture(const weight_source_t *source, uint32_t seen, gpu_packed_t *out) {
  *out = (gpu_packed_t){.codes = GPU_CODES_8,
                        .scales = GPU_SCALES_TWO_LEVEL,
                        .group_shift = 8,
                        .zero = BYTE_ZERO + LEVEL_OFFSET};
  for (int32_t i = 0; i <= WEIGHT_GROUPED_FP8; i++) {
    if (!(seen >> i & 1)) continue;
    const quant_format_t *format = description((weight_format_t)i);
    if (!format->is_two_level) out->scales = GPU_SCALES_F32;
    if (format->has_min) out->has_min = 1;
    out->group_shift = MIN(out->group_shift, group_shift(source, format));
  }
}

static bool is_f32(const gpu_packed_t *form) {
  return form->scales == GPU_SCALES_F32 || form->scales == GPU_SCALES_F32_WIDE;
}

static bool has_nibbles(const gpu_packed_t *form) {
  return form->codes == GPU_CODES_4 || form->codes == GPU_CODES_TABLE ||
         form->codes == GPU_CODES_E2M1;
}

/* The shortest way to the same bits that all matrices of this form have: the factors of an f16
 * scale or of a power of two have few bits; the products of two-level scales of at most 18 bits fit
 * for levels and zeros of at most six. */
static gpu_unpack_t unpack_of(const gpu_packed_t *form) {
  if (form->codes == GPU_CODES_E4M3) return GPU_UNPACK_STEPS;
  switch (form->scales) {
  case GPU_SCALES_F16: return form->has_min ? GPU_UNPACK_PRODUCT : GPU_UNPACK_FUSED;
  case GPU_SCALES_EXPONENT:
  case GPU_SCALES_F16_ZERO: return GPU_UNPACK_FUSED;
  case GPU_SCALES_TWO_LEVEL:
    return form->codes == GPU_CODES_4 ? GPU_UNPACK_PRODUCT : GPU_UNPACK_STEPS;
  case GPU_SCALES_F32:
  case GPU_SCALES_F32_WIDE: break;
  }
  return GPU_UNPACK_STEPS;
}

void packed_settle(gpu_packed_t *form, bool is_exact) {
  if (form->codes == GPU_CODES_4 && is_f32(form) && is_exact) form->unpack = GPU_UNPACK_FUSED;
}

static uint64_t scale_bytes(const gpu_packed_t *form) {
  const bool is_f16 = form->scales == GPU_SCALES_F16 || form->scales == GPU_SCALES_F16_ZERO;
  const uint64_t one = is_f32(form) ? 4 : is_f16 ? 2 : 1;
  return form->has_min ? 2 * one : one;
}

/* Scales of a row in a unit. */
static int32_t scale_slots(const gpu_packed_t *form) {
  return GPU_UNIT_COLS >> MIN(form->group_shift, 7);
}

static uint64_t code_bytes(const gpu_packed_t *form) {
  return has_nibbles(form) ? GPU_BLOCK_BYTES : 2 * GPU_BLOCK_BYTES;
}

static uint64_t super_bytes(const gpu_packed_t *form) {
  if (form->scales != GPU_SCALES_TWO_LEVEL) return 0;
  return form->has_min ? 2 * sizeof(uint16_t) : sizeof(uint16_t);
}

void packed_form(const weight_source_t *source, gpu_packed_t *out) {
  const uint32_t seen = formats_of(source);
  *out = (gpu_packed_t){.codes = GPU_CODES_PLAIN};
  if (source->format == WEIGHT_PLAIN) return;
  if (seen == 1U << source->format)
    form_of_one(source, source->format, out);
  else
    form_of_mixture(source, seen, out);
  const uint64_t scales = (uint64_t)scale_slots(out) * GPU_PANEL_ROWS * scale_bytes(out);
  const uint64_t supers = GPU_PANEL_ROWS * super_bytes(out);
  if (out->scales == GPU_SCALES_F32 && 1 << out->group_shift >= GPU_UNIT_COLS)
    out->scales = GPU_SCALES_F32_WIDE;
  out->unpack = unpack_of(out);
  out->supers_at = (uint32_t)(code_bytes(out) + scales);
  out->unit_bytes = (uint32_t)ROUND_UP(out->supers_at + supers, UNIT_ALIGN);
  out->panel_bytes = DIV_UP((uint64_t)source->cols, GPU_UNIT_COLS) * out->unit_bytes;
}

size_t cuda_weight_bytes(const weight_source_t *source) {
  gpu_packed_t form;
  size_t bytes;
  packed_form(source, &form);
  bool fits =
      form.codes != GPU_CODES_PLAIN
          ? checked_mul((size_t)DIV_UP(source->rows, GPU_PANEL_ROWS), form.panel_bytes, &bytes)
          : checked_mul((size_t)source->rows, (size_t)source->cols, &bytes) &&
                checked_mul(bytes, dtype_size(source->dtype), &bytes);
  return fits ? bytes : SIZE_MAX;
}

/* ---- one panel ---- */

/* A chunk of a row of MXFP4 blocks, in the form of quant_read. */
static void read_mxfp4(const uint8_t *row, int64_t cols, int64_t first, quant_chunk_t *out) {
  out->cols = (int32_t)MIN(cols - first, QUANT_CHUNK);
  for (int32_t k = 0; k < out->cols; k++) {
    const uint8_t *block = row + (first + k) / MXFP4_COLS * MXFP4_BYTES;
    out->codes[k] = block[k % MXFP4_COLS / 2] >> (k % 2 ? 4 : 0) & 15;
    if (k % MXFP4_COLS == 0)
      out->scale[k / MXFP4_COLS] = ldexpf(1.0f, block[MXFP4_BYTES - 1] - 128);
  }
}

static void put_half(uint8_t *to, float value) {
  const uint16_t half = f16_from_float(value); /* exact: it was read from an f16 number */
  memcpy(to, &half, sizeof half);
}

/* Where row `lane` of a panel has column `column`, and the shift of its code in that byte. */
static uint8_t *place(const gpu_packed_t *form, uint8_t *panel, int32_t lane, int64_t column,
                      int32_t *shift) {
  const bool nibbles = has_nibbles(form);
  const int32_t block = nibbles ? BLOCK_COLS_4 : BLOCK_COLS_8;
  const int32_t in_block = (int32_t)(column % block), in_lane = in_block % LANE_COLS;
  uint8_t *lanes = panel + column / GPU_UNIT_COLS * form->unit_bytes +
                   column % GPU_UNIT_COLS / block * GPU_BLOCK_BYTES +
                   lane * (GPU_BLOCK_BYTES / GPU_PANEL_ROWS) +
                   in_block % STEP_COLS / LANE_COLS * LANE_BYTES;
  lanes += in_block / STEP_COLS * (nibbles ? LANE_COLS / 2 : LANE_COLS);
  *shift = nibbles ? in_lane % 2 * 4 : 0;
  if (!nibbles) return lanes + in_lane;
  if (form->codes != GPU_CODES_E2M1) return lanes + in_lane / 2;
  *shift = in_lane / 2 % 2 * 4; /* even columns lie in the low half */
  return lanes + in_lane % 2 * 2 + in_lane / 4;
}

static void put_codes(const gpu_packed_t *form, const quant_format_t *format,
                      const quant_chunk_t *chunk, int64_t first, int32_t lane, uint8_t *panel) {
  const bool moves = form->codes == GPU_CODES_8 && !quant_is_grouped(format);
  for (int32_t k = 0; k < chunk->cols; k++) {
    int32_t shift, code = chunk->codes[k];
    if (moves)
      code = LEVEL_OFFSET + (format->table != NULL ? format->table[code] : code - format->offset);
    uint8_t *to = place(form, panel, lane, first + k, &shift);
    *to = (uint8_t)(*to | code << shift);
  }
}

/* The scale and min of one group. */
static void put_scale(const gpu_packed_t *form, const quant_format_t *format,
                      const quant_chunk_t *chunk, int32_t group, uint8_t *to) {
  const float min = format->has_min ? chunk->min[group] : 0;
  switch (form->scales) {
  case GPU_SCALES_F32:
  case GPU_SCALES_F32_WIDE:
    memcpy(to, &chunk->scale[group], sizeof(float));
    if (form->has_min) memcpy(to + sizeof(float), &min, sizeof min);
    break;
  case GPU_SCALES_F16:
    put_half(to, chunk->scale[group]);
    if (form->has_min) put_half(to + sizeof(uint16_t), min);
    break;
  case GPU_SCALES_F16_ZERO:
    put_half(to, chunk->scale[group]);
    put_half(to + sizeof(uint16_t),
             form->zero + (chunk->scale[group] != 0 ? roundf(min / chunk->scale[group]) : 0));
    break;
  case GPU_SCALES_TWO_LEVEL:
    to[0] = (uint8_t)chunk->sub_scale[group];
    if (form->has_min) to[1] = format->has_min ? chunk->sub_min[group] : 0;
    break;
  case GPU_SCALES_EXPONENT: to[0] = (uint8_t)(ilogbf(chunk->scale[group]) + 128); break;
  }
}

/* Which scale of a row in a unit is that of a column: halves of four steps where a step has two. */
static int32_t slot_of(const gpu_packed_t *form, int32_t in_unit) {
  if (form->group_shift != 4) return in_unit >> MIN(form->group_shift, 7);
  return in_unit % STEP_COLS / GPU_SCALE_GROUP_MIN * UNIT_STEPS + in_unit / STEP_COLS;
}

/* A chunk is what has one super scale: whole units, or what is left of the last. */
static void put_scales(const gpu_packed_t *form, const quant_format_t *format,
                       const quant_chunk_t *chunk, int64_t first, int32_t lane, uint8_t *panel) {
  const int32_t group = MIN(1 << form->group_shift, GPU_UNIT_COLS);
  uint8_t *units = panel + first / GPU_UNIT_COLS * form->unit_bytes;
  for (int32_t k = 0; k < chunk->cols; k += group) {
    uint8_t *unit = units + (size_t)(k / GPU_UNIT_COLS) * form->unit_bytes;
    const int32_t at = lane * scale_slots(form) + slot_of(form, k % GPU_UNIT_COLS);
    put_scale(form, format, chunk, k / format->group,
              unit + code_bytes(form) + (uint64_t)at * scale_bytes(form));
  }
  for (int32_t k = 0; k < chunk->cols && form->scales == GPU_SCALES_TWO_LEVEL; k += GPU_UNIT_COLS) {
    uint8_t *super = units + (size_t)(k / GPU_UNIT_COLS) * form->unit_bytes + form->supers_at +
                     (uint64_t)lane * super_bytes(form);
    put_half(super, chunk->super_scale);
    if (form->has_min) put_half(super + sizeof(uint16_t), format->has_min ? chunk->super_min : 0);
  }
}

static bool holds(dtype_t dtype, float value) {
  return dtype == DTYPE_F16 ? (f16_from_float(value) & 0x7c00) != 0x7c00
                            : (bf16_from_float(value) & 0x7f80) != 0x7f80;
}

/* False if a weight of the chunk is infinite or NaN in the run type. Most chunks are decided by a
 * bound. */
static bool fits(const weight_source_t *source, weight_format_t name, const quant_format_t *format,
                 const quant_chunk_t *chunk) {
  const bool is_e4m3 = name == WEIGHT_GROUPED_FP8;
  const bool is_power = scales_of(format) == GPU_SCALES_EXPONENT;
  for (int32_t k = 0; k < chunk->cols; k += format->group) {
    const float scale = chunk->scale[k / format->group];
    const float min = format->has_min && !is_e4m3 ? chunk->min[k / format->group] : 0;
    if (is_power && scale > EXPONENT_MAX) return false;
    if (holds(source->dtype, fabsf(scale) * E4M3_MAX + fabsf(min))) continue;
    for (int32_t i = k; i < MIN(k + format->group, chunk->cols); i++) {
      const int32_t code = chunk->codes[i];
      float level = (float)(format->table != NULL ? format->table[code] : code - format->offset);
      if (is_e4m3) level = float_from_e4m3(chunk->codes[i]);
      if (!holds(source->dtype, scale * level - min)) return false;
    }
  }
  return true;
}

/* True if number * scale - (zero * scale + min) is rounded once and has the bits of scale * level -
 * min, rounded twice: the product is exact with 16 bits of scale, the sum if it is a float. */
static bool is_exact(float zero, float scale, float min) {
  const double product = (double)zero * scale, sum = product + min;
  uint32_t bits;
  memcpy(&bits, &scale, sizeof bits);
  const bool is_short = (bits & 0xff) == 0 && fabsf(scale) < 0x1p100f;
  return is_short && (scale == 0 || fabsf(scale) > 0x1p-100f) && sum - product == min &&
         sum - min == product && (double)(float)sum == sum;
}

static bool is_chunk_exact(const gpu_packed_t *form, const quant_format_t *format,
                           const quant_chunk_t *chunk) {
  for (int32_t i = 0; i < DIV_UP(chunk->cols, format->group); i++)
    if (!is_exact(form->zero, chunk->scale[i], form->has_min ? chunk->min[i] : 0)) return false;
  return true;
}

bool packed_panel(const weight_source_t *source, const gpu_packed_t *form, int64_t panel,
                  uint8_t *to, void *scratch, bool *exact) {
  const int64_t begin = panel * GPU_PANEL_ROWS, end = MIN(begin + GPU_PANEL_ROWS, source->rows);
  bool good = true;
  *exact = is_f32(form);
  memset(to, 0, form->panel_bytes);
  for (int64_t r = begin; r < end; r++) {
    const weight_format_t name = row_format(source, r);
    const quant_format_t *format = description(name);
    const void *row = source->row(source->context, r, scratch);
    for (int64_t first = 0; first < source->cols; first += QUANT_CHUNK) {
      quant_chunk_t chunk = {0};
      if (name == WEIGHT_MXFP4)
        read_mxfp4(row, source->cols, first, &chunk);
      else
        quant_read(format, source->group, row, source->cols, first, &chunk);
      good = fits(source, name, format, &chunk) && good;
      *exact = *exact && is_chunk_exact(form, format, &chunk);
      put_codes(form, format, &chunk, first, (int32_t)(r - begin), to);
      put_scales(form, format, &chunk, first, (int32_t)(r - begin), to);
    }
  }
  return good;
}
