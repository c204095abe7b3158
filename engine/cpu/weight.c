/* weight.c: matrices and vectors in the back end's own layout.
 *
 * Owns packing. Called on the engine thread while a model loads; rows are read and packed by pool
 * workers, so that the source's page faults and the destination's first touch run in parallel.
 * Layout: panels of 64 rows of W (output columns), [depth][64], for bf16 [depth/2][64][2]: a kernel
 * reads a panel front to back. Rows past N and bf16 columns past K are zero. A stack of matrices
 * has the panels of one matrix after those of the other. MXFP4 panels are [depth/32] groups of
 * nibbles and exponents, a quarter of the bytes; workers unpack a panel just before they multiply
 * it. If an exponent is so large or small that a value is no normal bf16, the whole matrix is kept
 * as bf16. Panels of fp8 are scale[groups][64] in fp32, then [depth/2][64][2] codes, which become
 * bf16 in the same way; a run in f16 has them unpacked. Other quantised rows are packed by
 * quant_pack.c.
 */
#include "engine/base/check.h"
#include "engine/cpu/cpu.h"
#include "engine/cpu/probe.h"

#include "engine/base/half.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_ALIGN = 64, BLOCK = 16, EXPONENT_MIN = 2, EXPONENT_MAX = 252 };

typedef struct panel_packing {
  const weight_source_t *source;
  const weight_t *weight;
  uint8_t *scratch; /* [threads][64][row_bytes] */
  size_t row_bytes;
  atomic_bool failed;
  atomic_bool unsuited;  /* an MXFP4 exponent is out of the range of the kernels */
  atomic_bool too_large; /* a number of fp8 with its scale, for f16 */
} panel_packing_t;

/* Transposes units of `unit` bytes: dst[i][64] from 64 rows, i < count, in blocks that stay in L1.
 */
#define PACK_UNITS(name, type)                                                                     \
  static void name(type *dst, const void *const *rows, int num_rows, int64_t count) {              \
    for (int64_t i = 0; i < count; i += BLOCK) {                                                   \
      int64_t end = MIN(i + BLOCK, count);                                                         \
      for (int r = 0; r < num_rows; r++) {                                                         \
        const uint8_t *row = rows[r];                                                              \
        for (int64_t k = i; k < end; k++)                                                          \
          memcpy(dst + k * PANEL_COLS + r, row + (size_t)k * sizeof(type), sizeof(type));          \
      }                                                                                            \
    }                                                                                              \
  }
PACK_UNITS(pack_u16, uint16_t)
PACK_UNITS(pack_u32, uint32_t)

static void pack_plain(const panel_packing_t *job, uint8_t *dst, const void *const *rows,
                       int num_rows) {
  const weight_t *weight = job->weight;
  if (num_rows < PANEL_COLS || weight->depth != weight->cols) memset(dst, 0, weight->panel_bytes);
  if (weight->dtype == DTYPE_F16) {
    pack_u16((uint16_t *)(void *)dst, rows, num_rows, weight->cols);
  } else if (weight->dtype == DTYPE_F32) {
    pack_u32((uint32_t *)(void *)dst, rows, num_rows, weight->cols);
  } else {
    pack_u32((uint32_t *)(void *)dst, rows, num_rows, weight->cols / 2);
    for (int r = 0; weight->cols % 2 && r < num_rows; r++) {
      size_t last = (size_t)weight->cols - 1;
      memcpy(dst + (last / 2 * PANEL_COLS + (size_t)r) * 4,
             (const uint8_t *)rows[r] + last * sizeof(uint16_t), sizeof(uint16_t));
    }
  }
}

/* Packs blocks. Returns false if an exponent is out of the range of unpack_mxfp4. */
static bool pack_mxfp4(const weight_t *weight, mxfp4_group_t *dst, const void *const *rows,
                       int num_rows) {
  memset(dst, 0, weight->panel_bytes);
  bool suits = true;
  for (int64_t g = 0; g < weight->cols / MXFP4_COLS; g++) {
    memset(dst[g].exponent, 127, sizeof dst[g].exponent);
    for (int r = 0; r < num_rows; r++) {
      const uint8_t *block = (const uint8_t *)rows[r] + (size_t)g * MXFP4_BYTES;
      for (int k = 0; k < MXFP4_COLS / 2; k++) dst[g].nibbles[k][r] = block[k];
      dst[g].exponent[r] = block[MXFP4_COLS / 2];
      suits = suits && dst[g].exponent[r] >= EXPONENT_MIN && dst[g].exponent[r] <= EXPONENT_MAX;
    }
  }
  return suits;
}

static void pack_fp8(const weight_t *weight, uint8_t *dst, const void *const *rows, int num_rows) {
  const size_t groups = (size_t)DIV_UP(weight->cols, weight->group);
  const size_t last = (size_t)weight->cols - 1;
  uint8_t *codes = dst + groups * PANEL_COLS * sizeof(float);
  memset(dst, 0, weight->panel_bytes);
  for (int r = 0; r < num_rows; r++) {
    const uint8_t *scales = (const uint8_t *)rows[r] + ROUND_UP(last + 1, sizeof(float));
    for (size_t g = 0; g < groups; g++)
      memcpy(dst + (g * PANEL_COLS + (size_t)r) * sizeof(float), scales + g * sizeof(float),
             sizeof(float));
    if (weight->cols % 2)
      codes[last * PANEL_COLS + 2 * (size_t)r] = ((const uint8_t *)rows[r])[last];
  }
  pack_u16((uint16_t *)(void *)codes, rows, num_rows, weight->cols / 2);
}

/* Writes the numbers of a row of fp8 in f16. Returns false if one is too large for that. */
static bool halve_row(uint16_t *out, const uint8_t *row, int64_t cols, int64_t group) {
  const uint8_t *scales = row + ROUND_UP((size_t)cols, sizeof(float));
  bool good = true;
  for (int64_t k = 0; k < cols; k++) {
    float scale;
    memcpy(&scale, scales + (size_t)(k / group) * sizeof scale, sizeof scale);
    out[k] = f16_from_float(scale * float_from_e4m3(row[k]));
    good = good && (out[k] & 0x7fff) < 0x7c00;
  }
  return good;
}

/* Converts the blocks of a row to bf16 in place; `row` has room for the result. */
static void widen_row(uint16_t *row, int64_t cols) {
  static const float codes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  const uint8_t *blocks = (const uint8_t *)row;
  for (int64_t g = cols / MXFP4_COLS - 1; g >= 0;
       g--) { /* from the end, so that the output does not overwrite input that is not read yet */
    uint8_t block[MXFP4_BYTES];
    memcpy(block, blocks + (size_t)g * MXFP4_BYTES, sizeof block);
    for (int k = 0; k < MXFP4_COLS; k++) {
      int code = block[k / 2] >> (k % 2 ? 4 : 0) & 15;
      float value = ldexpf(codes[code & 7], block[MXFP4_COLS / 2] - 127);
      row[g * MXFP4_COLS + k] = bf16_from_float(code & 8 ? -value : value);
    }
  }
}

static bool pack_panel(panel_packing_t *job, int64_t panel, uint8_t *scratch) {
  const weight_t *weight = job->weight;
  const void *rows[PANEL_COLS];
  int64_t start = panel % weight->stack_panels * PANEL_COLS, left = weight->stack_rows - start;
  int num_rows = (int)MIN(left, PANEL_COLS);
  uint8_t *dst = weight->panels + (size_t)panel * weight->panel_bytes;
  start += panel / weight->stack_panels * weight->stack_rows;
  for (int r = 0; r < num_rows; r++) {
    void *own = scratch + (size_t)r * job->row_bytes;
    rows[r] = job->source->row(job->source->context, start + r, own);
    if (rows[r] == NULL) return false;
    if (job->source->format == weight->format) continue;
    if (job->source->format == WEIGHT_GROUPED_FP8) { /* which takes at most 1.5 bytes a column */
      uint16_t *halves = (uint16_t *)own + weight->cols;
      if (!halve_row(halves, rows[r], weight->cols, weight->group))
        atomic_store(&job->too_large, true);
      rows[r] = halves;
      continue;
    }
    if (rows[r] != own) memcpy(own, rows[r], (size_t)(weight->cols / MXFP4_COLS) * MXFP4_BYTES);
    rows[r] = own;
    widen_row(own, weight->cols);
  }
  if (weight->format == WEIGHT_PLAIN)
    pack_plain(job, dst, rows, num_rows);
  else if (weight->format == WEIGHT_GROUPED_FP8)
    pack_fp8(weight, dst, rows, num_rows);
  else if (!pack_mxfp4(weight, (mxfp4_group_t *)(void *)dst, rows, num_rows))
    atomic_store(&job->unsuited, true);
  return true;
}

static void pack_task(void *context, int64_t first, int64_t last, int worker) {
  panel_packing_t *job = context;
  uint8_t *scratch = job->scratch + (size_t)worker * PANEL_COLS * job->row_bytes;
  for (int64_t panel = first; panel < last; panel++) {
    if (pack_panel(job, panel, scratch)) continue;
    atomic_store(&job->failed, true);
    return;
  }
}

/* Writes the bytes of a panel in `format`. Returns false if they are more than a size_t holds. */
static bool plain_panel_bytes(const weight_t *weight, weight_format_t format, size_t *out) {
  bool is_mxfp4 = format == WEIGHT_MXFP4;
  if (format == WEIGHT_GROUPED_FP8) {
    *out = ((size_t)DIV_UP(weight->cols, weight->group) * sizeof(float) + (size_t)weight->depth) *
           PANEL_COLS;
    return true;
  }
  size_t step = is_mxfp4 ? sizeof(mxfp4_group_t) : PANEL_COLS * dtype_size(weight->dtype);
  return size_product(out, (size_t)(is_mxfp4 ? weight->depth / MXFP4_COLS : weight->depth), step,
                      1);
}

size_t weight_scratch(const weight_source_t *source) {
  return ROUND_UP((size_t)MAX(source->cols, source->whole_cols) * 4, SCRATCH_ALIGN);
}

/* Allocates the panels of `weight` in `format` and fills them. Returns 0, an error, or 1 if the
 * values do not fit the format. */
static int pack(device_t *device, const weight_source_t *source, weight_t *weight,
                weight_format_t format, inferd_error_t *error) {
  size_t panels = (size_t)(weight->stack * weight->stack_panels), bytes, scratch_bytes;
  size_t row_bytes = weight_scratch(source);
  weight->format = format;
  if (!plain_panel_bytes(weight, format, &weight->panel_bytes) ||
      !size_product(&bytes, panels, weight->panel_bytes, 1) ||
      !size_product(&scratch_bytes, (size_t)pool_num_threads(device->pool), PANEL_COLS, row_bytes))
    return no_memory(error, source->name, SIZE_MAX);
  weight->panels = memory_take(device, bytes);
  if (weight->panels == NULL) return no_memory(error, source->name, bytes);
  panel_packing_t packing = {.source = source, .weight = weight, .row_bytes = row_bytes};
  packing.scratch = aligned_alloc(SCRATCH_ALIGN, scratch_bytes);
  if (packing.scratch == NULL) return no_memory(error, source->name, scratch_bytes);
  pool_run(device->pool, pack_task, &packing, (int64_t)panels, 1);
  free(packing.scratch);
  if (atomic_load(&packing.failed))
    return error_set(error, ERR_IO, NULL, "%s: its data cannot be read", source->name);
  if (atomic_load(&packing.too_large))
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "%s: with its scales holds a number that float16 cannot hold; --dtype "
                     "bfloat16 can",
                     source->name);
  return atomic_load(&packing.unsuited) ? 1 : 0;
}

/* The format in which the panels are kept. */
static weight_format_t kept_format(const weight_source_t *source) {
  const bool is_fp8 = source->format == WEIGHT_GROUPED_FP8;
  return is_fp8 && source->dtype != DTYPE_BF16 ? WEIGHT_PLAIN : source->format;
}

static bool is_quantised(const weight_source_t *source) {
  return source->row_format != NULL || quant_format(source->format) != NULL;
}

/* The weight of a source, without its panels. */
static weight_t shape_weight(const weight_source_t *source) {
  int64_t stack = MAX(source->stack, 1), rows = source->rows / stack, cols = source->cols;
  bool padded = is_quantised(source) || source->dtype == DTYPE_BF16;
  return (weight_t){.rows = source->rows,
                    .cols = cols,
                    .depth = padded ? ROUND_UP(cols, DEPTH_ALIGN) : cols,
                    .dtype = source->dtype,
                    .group = source->group,
                    .stack = stack,
                    .stack_rows = rows,
                    .stack_panels = DIV_UP(rows, PANEL_COLS)};
}

size_t cpu_weight_bytes(const weight_source_t *source) {
  const weight_t weight = shape_weight(source);
  size_t count = (size_t)(weight.stack * weight.stack_panels), bytes = 0;
  size_t own = ROUND_UP(sizeof weight, SCRATCH_ALIGN);
  if (is_quantised(source)) {
    own += ROUND_UP(count * sizeof(quant_panel_t), SCRATCH_ALIGN);
    return own + ROUND_UP(quant_layout_panels(source, &weight, NULL), SCRATCH_ALIGN);
  }
  if (!plain_panel_bytes(&weight, kept_format(source), &bytes) ||
      !size_product(&bytes, count, bytes, 1) || bytes > SIZE_MAX / 2)
    return SIZE_MAX / 2;
  return own + ROUND_UP(bytes, SCRATCH_ALIGN);
}

int cpu_weight(device_t *device, const weight_source_t *source, weight_t **out,
               inferd_error_t *error) {
  *out = NULL;
  int64_t rows = source->rows, cols = source->cols, stack = source->stack > 0 ? source->stack : 1;
  bool blocks = source->format == WEIGHT_MXFP4;
  if (rows <= 0 || cols <= 0 || cols > INT32_MAX - DEPTH_ALIGN || rows % stack != 0 ||
      rows / stack > INT32_MAX || (blocks && cols % MXFP4_COLS != 0))
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: shape [%lld, %lld] is out of range",
                     source->name, (long long)rows, (long long)cols);
  CHECK(!blocks || source->dtype == DTYPE_BF16);
  weight_t *weight = memory_take(device, sizeof *weight);
  if (weight == NULL) return no_memory(error, source->name, sizeof *weight);
  *weight = shape_weight(source);
  int code = is_quantised(source) ? quant_pack(device, source, weight, error)
                                  : pack(device, source, weight, kept_format(source), error);
  if (code == 1) code = pack(device, source, weight, WEIGHT_PLAIN, error);
  if (code != 0) return code;
  if (weight->depth > device->cols_max) device->cols_max = weight->depth;
  if (weight->format != WEIGHT_PLAIN && weight->depth > device->unpacked_depth)
    device->unpacked_depth = weight->depth;
  probe_note(device, weight);
  *out = weight;
  return 0;
}

/* Returns a panel as the kernels read it: in place, or unpacked into the worker's scratch. */
static const uint8_t *panel_data(const device_t *device, const weight_t *weight, int64_t index,
                                 int worker) {
  if (weight->quant != NULL) return weight->panels + weight->quant[index].at;
  const uint8_t *panel = weight->panels + (size_t)index * weight->panel_bytes;
  if (weight->format == WEIGHT_PLAIN) return panel;
  size_t bytes = (size_t)device->unpacked_depth * PANEL_COLS * sizeof(uint16_t);
  uint8_t *out = device->unpacked + (size_t)worker * bytes;
  if (weight->format == WEIGHT_GROUPED_FP8) {
    const fp8_panel_t fp8 = {.scale = (const float *)(const void *)panel,
                             .groups = DIV_UP(weight->cols, weight->group),
                             .group = weight->group,
                             .depth = weight->depth};
    device->kernels->unpack_fp8((uint16_t *)(void *)out, &fp8);
    return out;
  }
  device->kernels->unpack_mxfp4((uint16_t *)(void *)out, (const mxfp4_group_t *)(const void *)panel,
                                weight->depth / MXFP4_COLS);
  return out;
}

size_t weight_stride(const device_t *device, const weight_t *weight) {
  const kernels_t *kernels = device->kernels;
  size_t bytes = (size_t)weight->depth, line = SCRATCH_ALIGN;
  if (weight->quant != NULL)
    bytes = bytes * (size_t)kernels->quant_eighths / 8;
  else if (weight->dtype == DTYPE_BF16)
    bytes *= kernels->staged_size;
  else
    return 0;
  /* An odd number of cache lines, so that rows fall into different cache sets. */
  return (DIV_UP(bytes, line) | 1) * line;
}

void weight_stage(const device_t *device, const weight_t *weight, uint8_t *out, const float *in) {
  const kernels_t *kernels = device->kernels;
  if (weight->quant != NULL)
    kernels->quant_stage(out, in, weight->cols, weight->depth);
  else if (weight->dtype == DTYPE_BF16)
    kernels->stage(out, in, weight->cols, weight->depth);
  else
    memcpy(out, in, (size_t)weight->cols * sizeof *in);
}

void weight_multiply(const device_t *device, const weight_t *weight, int64_t index, bool more,
                     int worker, gemm_t *gemm) {
  const kernels_t *kernels = device->kernels;
  const uint8_t *data = panel_data(device, weight, index, worker);
  size_t stride = weight_stride(device, weight);
  gemm->panel = data;
  gemm->depth = weight->depth;
  gemm->ahead = device->ahead[weight->quant != NULL][MIN(gemm->rows, AHEAD_CLASSES) - 1];
  if (weight->quant != NULL) {
    gemm->ldx = (int64_t)stride;
    gemm->layout = &weight->quant[index].layout;
    gemm->next = more ? weight->panels + weight->quant[index + 1].at : NULL;
    kernels->gemm_quant(gemm);
    return;
  }
  gemm->ldx = weight->cols;
  if (weight->dtype == DTYPE_BF16) gemm->ldx = (int64_t)(stride / kernels->staged_size);
  gemm->next = more && weight->format == WEIGHT_PLAIN ? data + weight->panel_bytes : NULL;
  kernels->gemm[weight->dtype](gemm);
}

int cpu_vector(device_t *device, const float *values, int64_t count, vector_t **out,
               inferd_error_t *error) {
  *out = NULL;
  if (count <= 0 || count > INT32_MAX)
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "a vector of %lld elements is out of range",
                     (long long)count);
  size_t bytes = (size_t)count * sizeof(float);
  vector_t *vector = memory_take(device, sizeof *vector);
  float *copy = memory_take(device, bytes);
  if (vector == NULL || copy == NULL) return no_memory(error, "a vector", bytes);
  memcpy(copy, values, bytes);
  vector->count = count;
  vector->values = copy;
  *out = vector;
  return 0;
}

/* Columns [first, first + count) of one row of a panel of numbers or of fp8. */
static void plain_values(const weight_t *weight, const uint8_t *panel, int64_t lane, int64_t first,
                         int64_t count, float *out) {
  const float *scale = (const float *)(const void *)panel;
  const uint8_t *codes = panel + DIV_UP(weight->cols, MAX(weight->group, 1)) * PANEL_COLS * 4;
  for (int64_t k = first; k < first + count; k++) {
    if (weight->format == WEIGHT_GROUPED_FP8) {
      float number = float_from_e4m3(codes[(k / 2 * PANEL_COLS + lane) * 2 + k % 2]);
      *out++ =
          float_from_bf16(bf16_from_float(scale[k / weight->group * PANEL_COLS + lane] * number));
    } else if (weight->dtype == DTYPE_F32) {
      *out++ = ((const float *)(const void *)panel)[k * PANEL_COLS + lane];
    } else if (weight->dtype == DTYPE_F16) {
      *out++ = float_from_f16(((const uint16_t *)(const void *)panel)[k * PANEL_COLS + lane]);
    } else {
      int64_t at = (k / 2 * PANEL_COLS + lane) * 2 + k % 2;
      *out++ = float_from_bf16(((const uint16_t *)(const void *)panel)[at]);
    }
  }
}

/* Numbers in fp32, rounded to the type of the weight. */
static void round_values(dtype_t dtype, int64_t count, float *values) {
  for (int64_t i = 0; dtype == DTYPE_BF16 && i < count; i++)
    values[i] = float_from_bf16(bf16_from_float(values[i]));
  for (int64_t i = 0; dtype == DTYPE_F16 && i < count; i++)
    values[i] = float_from_f16(f16_from_float(values[i]));
}

void weight_unpack_row(const weight_t *weight, int64_t row, float scale, bool add, float *out) {
  CHECK_EQ(weight->stack, 1);
  CHECK_NE(weight->format, WEIGHT_MXFP4);
  const uint8_t *panel = weight->panels + (size_t)(row / PANEL_COLS) * weight->panel_bytes;
  int64_t lane = row % PANEL_COLS;
  const bool quantised = weight->quant != NULL;
  for (int64_t first = 0; first < weight->cols; first += QUANT_CHUNK) {
    float values[QUANT_CHUNK];
    int64_t count = MIN(weight->cols - first, QUANT_CHUNK);
    if (quantised) {
      quant_unpack_row(weight, row, first, values);
      round_values(weight->dtype, count, values);
    } else {
      plain_values(weight, panel, lane, first, count, values);
    }
    for (int64_t i = 0; i < count; i++) {
      float value = values[i] * scale;
      out[first + i] = add ? out[first + i] + value : value;
    }
  }
}
