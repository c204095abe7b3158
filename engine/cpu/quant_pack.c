/* quant_pack.c: quantised rows into panels, and back for the rows of an embedding table.
 *
 * Called on the engine thread while a model loads; pool workers read and pack panels. A panel of 64
 * rows keeps codes in as many bits as their format has, or in 8 bits if formats mix in it.
 * quant_layout.h says how a panel lies in memory. No value changes by a bit.
 */
#include "engine/base/check.h"
#include "engine/base/half.h"
#include "engine/base/util.h"
#include "engine/cpu/cpu.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_ALIGN = 64, NIBBLE_CODES = 16, LEVEL_OFFSET = 128 };

typedef struct quant_packing {
  const weight_source_t *source;
  weight_t *weight;
  quant_panel_t *panels; /* of the weight */
  uint8_t *scratch;      /* [threads][64][row_bytes] */
  size_t row_bytes;
  atomic_bool failed;
} quant_packing_t;

/* The rows of one panel in the formats of the source. */
typedef struct panel_rows {
  const quant_format_t *format[PANEL_COLS];
  const void *data[PANEL_COLS];
  int32_t count;
  bool by_codes; /* grouped, or the formats differ: read code by code, not bit field by bit field */
} panel_rows_t;

static weight_format_t row_format(const weight_source_t *source, int64_t row) {
  return source->row_format != NULL ? source->row_format(source->context, row) : source->format;
}

static int64_t first_row(const weight_t *weight, int64_t panel, int32_t *count) {
  int64_t start = panel % weight->stack_panels * PANEL_COLS;
  *count = (int32_t)MIN(weight->stack_rows - start, PANEL_COLS);
  return start + panel / weight->stack_panels * weight->stack_rows;
}

/* Bits of a code in a panel of this format. */
static int32_t code_bits(const quant_format_t *format) {
  if (format->table != NULL) return 4;
  for (int32_t bits = 2; bits <= 6; bits++)
    if (format->num_codes <= 1 << bits) return bits;
  return 8;
}

/* The layout of a panel whose rows are all of one format. */
static quant_layout_t layout_of(const quant_format_t *format, const weight_source_t *source) {
  quant_layout_t layout = {.scales = QUANT_SCALES_F16,
                           .bits = code_bits(format),
                           .group = format->group,
                           .offset = format->table != NULL ? LEVEL_OFFSET : format->offset,
                           .has_min = format->has_min,
                           .has_table = format->table != NULL};
  for (int i = 0; i < NIBBLE_CODES; i++)
    layout.table[i] = (uint8_t)(format->table != NULL ? format->table[i] + LEVEL_OFFSET : i);
  if (format->is_two_level) layout.scales = QUANT_SCALES_TWO_LEVEL;
  if (format->format == WEIGHT_Q2_K) layout.scales = QUANT_SCALES_NIBBLES;
  if (format->format == WEIGHT_GGUF_MXFP4) layout.scales = QUANT_SCALES_E8M0;
  if (format->format == WEIGHT_NVFP4) layout.scales = QUANT_SCALES_E4M3;
  if (!quant_is_grouped(format)) return layout;
  static const quant_scales_t scales[] = {[SCALES_ANY] = QUANT_SCALES_F32,
                                          [SCALES_F16] = QUANT_SCALES_F16,
                                          [SCALES_BF16] = QUANT_SCALES_BF16,
                                          [SCALES_POWERS] = QUANT_SCALES_E8M0,
                                          [SCALES_E4M3] = QUANT_SCALES_FACTOR};
  layout.scales = scales[source->scales.kind];
  if (layout.has_min) layout.zero_point = source->scales.zero_point;
  if (layout.has_min && layout.zero_point == ZERO_POINT_NONE) layout.scales = QUANT_SCALES_F32;
  for (int32_t wide = 2 * QUANT_GROUP_MIN; wide <= QUANT_CHUNK; wide *= 2)
    if (source->group % wide == 0 || source->group >= source->cols) layout.group = wide;
  return layout;
}

/* The layout of a panel whose rows are of several formats; no format is a grouped one. */
static quant_layout_t layout_of_mixture(void) {
  return (quant_layout_t){.scales = QUANT_SCALES_F32,
                          .bits = 8,
                          .group = QUANT_GROUP_MIN,
                          .offset = LEVEL_OFFSET,
                          .has_min = true};
}

static quant_layout_t choose_layout(const weight_source_t *source, int64_t first, int32_t count) {
  const quant_format_t *format = quant_format(row_format(source, first));
  for (int32_t r = 1; r < count; r++) {
    const quant_format_t *other = quant_format(row_format(source, first + r));
    if (other == format) continue;
    CHECK(!quant_is_grouped(format) && !quant_is_grouped(other));
    return layout_of_mixture();
  }
  return layout_of(format, source);
}

/* Converts a code of the format to the 8-bit code of a panel with this offset: the levels are the
 * same.
 */
static uint8_t wide_code(const quant_format_t *format, int32_t offset, uint8_t code) {
  int32_t level = format->table != NULL ? format->table[code] : code - format->offset;
  return (uint8_t)(level + offset);
}

/* Writes 32 codes of one column, of 4 or 8 bits. */
static void pack_plane(const uint8_t *codes, int32_t bits, uint8_t *out) {
  const uint32_t mask = 0x01010101u * ((1u << bits) - 1);
  for (int32_t line = 0; line < bits; line++, out += QUANT_LINE) {
    uint32_t packed = 0;
    for (int32_t at = 0; at < 8; at += bits, codes += 4) {
      uint32_t four;
      memcpy(&four, codes, sizeof four);
      packed |= (four & mask) << at;
    }
    memcpy(out, &packed, sizeof packed);
  }
}

static void pack_codes(const panel_column_t *column, const quant_format_t *format,
                       quant_chunk_t *chunk, int32_t padded) {
  const quant_layout_t *layout = column->layout;
  if (layout->bits == 8 && (format->table != NULL || format->offset != layout->offset))
    for (int32_t k = 0; k < padded; k++)
      chunk->codes[k] = wide_code(format, layout->offset, chunk->codes[k]);
  for (int32_t k = 0; k < padded; k += QUANT_DEPTH_ALIGN)
    pack_plane(chunk->codes + k, layout->bits,
               column->chunk + quant_codes_at(layout, k) + column->lane * 4);
}

/* Writes number `index` of the scales and minima. */
static void put_number(const quant_layout_t *layout, uint8_t *out, int32_t index, float value) {
  uint16_t half =
      layout->scales == QUANT_SCALES_F16 ? f16_from_float(value) : bf16_from_float(value);
  const size_t size = quant_scale_size(layout);
  memcpy(out + (size_t)index * size, size == sizeof half ? (void *)&half : (void *)&value, size);
}

/* The e4m3 number that this is but for rounding in fp32. */
static uint8_t nearest_e4m3(float number) {
  const uint32_t bits = float_bits(number), magnitude = bits & 0x7fffffff;
  const uint32_t sign = bits >> 24 & 0x80;
  if (magnitude < 121u << 23) return (uint8_t)(sign | (uint32_t)lrintf(fabsf(number) * 512));
  return (uint8_t)(sign | (((magnitude + (1u << 19)) >> 20) - (120u << 3)));
}

/* The scale of group `group` of one column; `min` is its minimum, or the factor of its scale. */
static void pack_scale(const panel_column_t *column, int32_t group, float scale, float min) {
  const quant_layout_t *layout = column->layout;
  const int32_t groups = quant_span_groups(layout), lane = column->lane,
                at = group % groups * PANEL_COLS + lane, all = groups * PANEL_COLS;
  uint8_t *out = column->chunk + quant_span_at(layout, group * layout->group);
  switch (layout->scales) {
  case QUANT_SCALES_E8M0: out[at] = (uint8_t)(ilogbf(scale) + 128); return;
  case QUANT_SCALES_FACTOR:
    memcpy(column->chunk + 4 * lane, &min, sizeof min);
    out[at] = min == 0 ? 0 : nearest_e4m3(2 * scale / min);
    return;
  default: break;
  }
  put_number(layout, out, at, scale);
  if (layout->zero_point == ZERO_POINT_EACH)
    out[quant_scale_size(layout) * (size_t)all + (size_t)at] =
        scale == 0 ? 0 : (uint8_t)lrintf(min / scale);
  else if (layout->has_min && layout->zero_point == ZERO_POINT_NONE)
    put_number(layout, out, all + at, min);
}

/* Scales and minima of one row in the panel's chunk. No value changes by a bit. */
static void pack_scales(const panel_column_t *column, const quant_format_t *format,
                        const quant_chunk_t *chunk) {
  const bool has_factor = column->layout->scales == QUANT_SCALES_FACTOR;
  for (int32_t g = 0; g * column->layout->group < chunk->cols; g++) {
    int32_t from = g * column->layout->group / format->group;
    pack_scale(column, g, chunk->scale[from], format->has_min || has_factor ? chunk->min[from] : 0);
  }
}

/* The columns of one row, from `first` on, in the panel's chunk, code by code. */
static void pack_row(const weight_t *weight, const panel_rows_t *rows, int32_t row, int64_t first,
                     int32_t group, const panel_column_t *column) {
  const quant_format_t *format = rows->format[row];
  const int32_t padded = (int32_t)MIN(weight->depth - first, QUANT_CHUNK);
  quant_chunk_t chunk;
  quant_read(format, group, rows->data[row], weight->cols, first, &chunk);
  /* Columns past K meet activations of zero, so any code will do. */
  memset(chunk.codes + chunk.cols, 0, (size_t)(QUANT_CHUNK - chunk.cols));
  pack_scales(column, format, &chunk);
  pack_codes(column, format, &chunk, padded);
}

/* The same of rows that have one format, block by block, four rows at a time. */
static void pack_blocks(const weight_t *weight, const panel_rows_t *rows, int64_t first,
                        panel_column_t *column) {
  const quant_format_t *format = rows->format[0];
  const int32_t padded = (int32_t)MIN(weight->depth - first, QUANT_CHUNK);
  const size_t bytes = QUANT_CHUNK / (size_t)format->block_cols * (size_t)format->block_bytes;
  const uint8_t *blocks[REPACK_COLUMNS];
  for (column->lane = 0; column->lane < rows->count; column->lane += REPACK_COLUMNS) {
    const int32_t count = MIN(rows->count - column->lane, REPACK_COLUMNS);
    for (int32_t r = 0; r < count; r++) {
      blocks[r] =
          (const uint8_t *)rows->data[column->lane + r] + (size_t)(first / QUANT_CHUNK) * bytes;
      for (size_t i = 0; i < bytes; i += SCRATCH_ALIGN) __builtin_prefetch(blocks[r] + bytes + i);
    }
    for (int32_t col = 0; col < padded; col += format->block_cols) {
      quant_repack(format, blocks, count, col, column);
      for (int32_t r = 0; r < count; r++) blocks[r] += format->block_bytes;
    }
  }
}

static void pack_rows(const weight_t *weight, const quant_layout_t *layout, int32_t group,
                      const panel_rows_t *rows, uint8_t *out) {
  for (int64_t first = 0; first < weight->depth; first += QUANT_CHUNK) {
    int32_t padded = (int32_t)MIN(weight->depth - first, QUANT_CHUNK);
    const size_t head = quant_head_bytes(layout), scales = quant_scale_bytes(layout);
    const size_t span = quant_span_at(layout, quant_span(layout)) - head;
    size_t bytes = quant_chunk_bytes(layout, padded);
    panel_column_t column = {layout, out, out + head, scales, span, 0};
    if (rows->count < PANEL_COLS || rows->by_codes) memset(out, 0, bytes);
    if (!rows->by_codes) pack_blocks(weight, rows, first, &column);
    for (; rows->by_codes && column.lane < rows->count; column.lane++)
      pack_row(weight, rows, column.lane, first, group, &column);
    out += bytes;
  }
}

static void pack_task(void *context, int64_t first, int64_t last, int worker) {
  quant_packing_t *job = context;
  const weight_t *weight = job->weight;
  uint8_t *scratch = job->scratch + (size_t)worker * PANEL_COLS * job->row_bytes;
  for (int64_t panel = first; panel < last; panel++) {
    panel_rows_t rows;
    int64_t start = first_row(weight, panel, &rows.count);
    for (int32_t r = 0; r < rows.count; r++) {
      rows.format[r] = quant_format(row_format(job->source, start + r));
      rows.data[r] =
          job->source->row(job->source->context, start + r, scratch + (size_t)r * job->row_bytes);
      if (rows.data[r] != NULL) continue;
      atomic_store(&job->failed, true);
      return;
    }
    const quant_layout_t *layout = &job->panels[panel].layout;
    rows.by_codes = quant_is_grouped(rows.format[0]) || layout->scales == QUANT_SCALES_F32;
    pack_rows(weight, layout, job->source->group, &rows, weight->panels + job->panels[panel].at);
  }
}

static size_t panel_bytes(const weight_t *weight, const quant_layout_t *layout) {
  int64_t whole = weight->depth / QUANT_CHUNK;
  int32_t rest = (int32_t)(weight->depth % QUANT_CHUNK);
  return (size_t)whole * quant_chunk_bytes(layout, QUANT_CHUNK) +
         (rest > 0 ? quant_chunk_bytes(layout, rest) : 0);
}

size_t quant_layout_panels(const weight_source_t *source, const weight_t *weight,
                           quant_panel_t *panels) {
  size_t bytes = 0;
  for (int64_t i = 0; i < weight->stack * weight->stack_panels; i++) {
    int32_t rows;
    int64_t first = first_row(weight, i, &rows);
    quant_layout_t layout = choose_layout(source, first, rows);
    if (panels != NULL) panels[i] = (quant_panel_t){.at = bytes, .layout = layout};
    bytes += panel_bytes(weight, &layout);
  }
  return bytes;
}

int quant_pack(device_t *device, const weight_source_t *source, weight_t *weight,
               inferd_error_t *error) {
  size_t count = (size_t)(weight->stack * weight->stack_panels), bytes, scratch_bytes;
  size_t row_bytes = weight_scratch(source);
  if (!size_product(&scratch_bytes, (size_t)pool_num_threads(device->pool), PANEL_COLS, row_bytes))
    return no_memory(error, source->name, SIZE_MAX);
  quant_packing_t job = {.source = source, .weight = weight, .row_bytes = row_bytes};
  job.panels = memory_take(device, count * sizeof *job.panels);
  if (job.panels == NULL) return no_memory(error, source->name, count * sizeof *job.panels);
  bytes = quant_layout_panels(source, weight, job.panels);
  weight->quant = job.panels;
  weight->format = WEIGHT_PLAIN;
  weight->panels = memory_take(device, bytes);
  if (weight->panels == NULL) return no_memory(error, source->name, bytes);
  job.scratch = aligned_alloc(SCRATCH_ALIGN, scratch_bytes);
  if (job.scratch == NULL) return no_memory(error, source->name, scratch_bytes);
  pool_run(device->pool, pack_task, &job, (int64_t)count, 1);
  free(job.scratch);
  if (atomic_load(&job.failed))
    return error_set(error, ERR_IO, NULL, "%s: its data cannot be read", source->name);
  return 0;
}

/* Bits of row `k` of a plane, which begins at the column's first byte. */
static int32_t plane_bits(const uint8_t *plane, int32_t bits, int32_t k) {
  if (bits == 0) return 0;
  int32_t row = k % (QUANT_DEPTH_ALIGN / bits);
  const uint8_t *line = plane + k / (QUANT_DEPTH_ALIGN / bits) * QUANT_LINE;
  return line[row % 4] >> row / 4 * bits & ((1 << bits) - 1);
}

/* The code of column `lane` in row `k` of a chunk. */
static int32_t unpack_code(const quant_layout_t *layout, const uint8_t *chunk, int64_t lane,
                           int32_t k) {
  const int32_t low = quant_low_bits(layout->bits), row = k % QUANT_DEPTH_ALIGN;
  const uint8_t *block = chunk + quant_codes_at(layout, k) + lane * 4;
  int32_t high = plane_bits(block + low * QUANT_LINE, layout->bits - low, row);
  int32_t code = plane_bits(block, low, row) | high << low;
  return layout->has_table ? layout->table[code] : code;
}

static float read_half(const uint8_t *halves, int64_t at) {
  uint16_t half;
  memcpy(&half, halves + 2 * at, sizeof half);
  return float_from_f16(half);
}

/* As the kernels read it, also where all bits are set, which is no NaN in NVFP4 of GGUF files. */
static float number_of_e4m3(uint8_t byte) {
  const uint32_t magnitude = byte & 0x7f, bits = (magnitude << 20) + (120u << 23);
  const float number = magnitude < 8 ? (float)magnitude * 0x1p-9f : float_from_bits(bits);
  return byte & 0x80 ? -number : number;
}

/* The scale of kind 0, or the minimum, kind 1, of column `lane` in group `group` of a chunk. */
static float read_scale(const quant_layout_t *layout, const uint8_t *chunk, int32_t group,
                        int64_t lane, int32_t kind) {
  const int32_t groups = quant_span_groups(layout), own = group % groups;
  const int64_t at = (kind * groups + own) * PANEL_COLS + lane, super = kind * PANEL_COLS + lane;
  const uint8_t *span = chunk + quant_span_at(layout, group * layout->group);
  uint32_t byte;
  uint16_t half;
  float value;
  if (kind == 1 && layout->zero_point != ZERO_POINT_NONE) {
    const uint8_t *zeros = span + quant_scale_size(layout) * (size_t)(groups * PANEL_COLS);
    value = (float)layout->zero_point;
    if (layout->zero_point == ZERO_POINT_EACH) value = (float)zeros[own * PANEL_COLS + lane];
    return read_scale(layout, chunk, group, lane, 0) * value;
  }
  switch (layout->scales) {
  case QUANT_SCALES_F16: return read_half(span, at);
  case QUANT_SCALES_BF16: memcpy(&half, span + 2 * at, 2); return float_from_bf16(half);
  case QUANT_SCALES_TWO_LEVEL:
    value = kind == 0 ? (float)(int8_t)span[at] : (float)span[at];
    return read_half(chunk, super) * value;
  case QUANT_SCALES_NIBBLES:
    value = (float)(span[own * PANEL_COLS + lane] >> 4 * kind & 15);
    return read_half(chunk, super) * value;
  case QUANT_SCALES_E8M0:
    byte = span[at];
    return float_from_bits(byte < 2 ? (byte + 1) << 21 : (byte - 1) << 23);
  case QUANT_SCALES_E4M3: return 0.5f * number_of_e4m3(span[at]);
  case QUANT_SCALES_FACTOR:
    memcpy(&value, chunk + lane * 4, sizeof value);
    return number_of_e4m3(span[at]) * value * 0.5f;
  default: memcpy(&value, span + 4 * at, sizeof value); return value;
  }
}

void quant_unpack_row(const weight_t *weight, int64_t row, int64_t first, float *out) {
  const quant_panel_t *panel = &weight->quant[row / PANEL_COLS];
  const quant_layout_t *layout = &panel->layout;
  int64_t lane = row % PANEL_COLS;
  int32_t cols = (int32_t)MIN(weight->cols - first, QUANT_CHUNK);
  const uint8_t *chunk = weight->panels + panel->at;
  chunk += (size_t)(first / QUANT_CHUNK) * quant_chunk_bytes(layout, QUANT_CHUNK);
  float scale = 0, min = 0;
  for (int32_t k = 0; k < cols; k++) {
    const int32_t group = k / layout->group;
    if (k % layout->group == 0) {
      scale = read_scale(layout, chunk, group, lane, 0);
      min = layout->has_min ? read_scale(layout, chunk, group, lane, 1) : 0;
    }
    float value = scale * (float)(unpack_code(layout, chunk, lane, k) - layout->offset);
    out[k] = layout->has_min ? value - min : value;
  }
}
