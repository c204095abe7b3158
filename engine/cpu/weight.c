/* weight.c: matrices and vectors in the back end's own layout.
 *
 * Owns packing. Called on the engine thread while a model loads; rows are read and packed by pool
 * workers, so that the source's page faults and the destination's first touch run in parallel.
 * Layout: panels of 64 rows of W (output columns), [depth][64], for bf16 [depth/2][64][2]: a kernel
 * reads a panel front to back. Rows past N and bf16 columns past K are zero.
 */
#include "engine/cpu/cpu.h"

#include "engine/cpu/convert.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { SCRATCH_ALIGN = 64, BLOCK = 16 };

typedef struct packing {
  const weight_source_t *source;
  const weight_t *weight;
  uint8_t *scratch; /* [threads][64][row_bytes] */
  size_t row_bytes;
  atomic_bool failed;
} packing_t;

/* Transposes units of `unit` bytes: dst[i][64] from 64 rows, i < count, in blocks that stay in L1.
 */
#define PACK_UNITS(name, type)                                                                     \
  static void name(type *dst, const void *const *rows, int num_rows, int64_t count) {              \
    for (int64_t i = 0; i < count; i += BLOCK) {                                                   \
      int64_t end = i + BLOCK < count ? i + BLOCK : count;                                         \
      for (int r = 0; r < num_rows; r++) {                                                         \
        const uint8_t *row = rows[r];                                                              \
        for (int64_t k = i; k < end; k++)                                                          \
          memcpy(dst + k * PANEL_COLS + r, row + (size_t)k * sizeof(type), sizeof(type));          \
      }                                                                                            \
    }                                                                                              \
  }
PACK_UNITS(pack_u16, uint16_t)
PACK_UNITS(pack_u32, uint32_t)

static void pack_panel(const packing_t *p, int64_t panel, const void *const *rows, int num_rows) {
  const weight_t *w = p->weight;
  uint8_t *dst = w->panels + (size_t)panel * w->panel_bytes;
  if (num_rows < PANEL_COLS || w->depth != w->cols) memset(dst, 0, w->panel_bytes);
  if (w->dtype == DTYPE_F16) {
    pack_u16((uint16_t *)(void *)dst, rows, num_rows, w->cols);
  } else if (w->dtype == DTYPE_F32) {
    pack_u32((uint32_t *)(void *)dst, rows, num_rows, w->cols);
  } else {
    pack_u32((uint32_t *)(void *)dst, rows, num_rows, w->cols / 2);
    for (int r = 0; w->cols % 2 && r < num_rows; r++) {
      size_t last = (size_t)w->cols - 1;
      memcpy(dst + (last / 2 * PANEL_COLS + (size_t)r) * 4,
             (const uint8_t *)rows[r] + last * sizeof(uint16_t), sizeof(uint16_t));
    }
  }
}

static void pack_task(void *context, int64_t first, int64_t last, int worker) {
  packing_t *p = context;
  uint8_t *scratch = p->scratch + (size_t)worker * PANEL_COLS * p->row_bytes;
  for (int64_t panel = first; panel < last; panel++) {
    const void *rows[PANEL_COLS];
    int64_t start = panel * PANEL_COLS, left = p->weight->rows - start;
    int num_rows = (int)(left < PANEL_COLS ? left : PANEL_COLS);
    for (int r = 0; r < num_rows; r++) {
      rows[r] = p->source->row(p->source->context, start + r, scratch + (size_t)r * p->row_bytes);
      if (!rows[r]) {
        atomic_store(&p->failed, true);
        return;
      }
    }
    pack_panel(p, panel, rows, num_rows);
  }
}

int cpu_weight(device_t *device, const weight_source_t *source, weight_t **out, error_t *error) {
  *out = NULL;
  int64_t rows = source->rows, cols = source->cols;
  if (rows <= 0 || cols <= 0 || rows > INT32_MAX || cols > INT32_MAX - DEPTH_ALIGN)
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: shape [%lld, %lld] is out of range",
                     source->name, (long long)rows, (long long)cols);
  int64_t depth = cols;
  if (source->dtype == DTYPE_BF16) depth = (cols + DEPTH_ALIGN - 1) / DEPTH_ALIGN * DEPTH_ALIGN;
  size_t panels = (size_t)(rows + PANEL_COLS - 1) / PANEL_COLS, panel_bytes, bytes;
  size_t row_bytes = ((size_t)cols * 4 + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
  size_t scratch_bytes;
  if (!size_product(&panel_bytes, (size_t)depth, PANEL_COLS, dtype_size(source->dtype)) ||
      !size_product(&bytes, panels, panel_bytes, 1) ||
      !size_product(&scratch_bytes, (size_t)pool_num_threads(device->pool), PANEL_COLS, row_bytes))
    return no_memory(error, source->name, SIZE_MAX);
  weight_t *weight = memory_take(device, sizeof *weight);
  if (!weight) return no_memory(error, source->name, sizeof *weight);
  weight->panels = memory_take(device, bytes);
  if (!weight->panels) return no_memory(error, source->name, bytes);
  weight->rows = rows;
  weight->cols = cols;
  weight->depth = depth;
  weight->dtype = source->dtype;
  weight->panel_bytes = panel_bytes;
  packing_t packing = {.source = source, .weight = weight, .row_bytes = row_bytes};
  packing.scratch = aligned_alloc(SCRATCH_ALIGN, scratch_bytes);
  if (!packing.scratch) return no_memory(error, source->name, scratch_bytes);
  pool_run(device->pool, pack_task, &packing, (int64_t)panels, 1);
  free(packing.scratch);
  if (atomic_load(&packing.failed))
    return error_set(error, ERR_IO, NULL, "%s: its data cannot be read", source->name);
  if (depth > device->cols_max) device->cols_max = depth;
  *out = weight;
  return 0;
}

int cpu_vector(device_t *device, const float *values, int64_t count, vector_t **out,
               error_t *error) {
  *out = NULL;
  if (count <= 0 || count > INT32_MAX)
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "a vector of %lld elements is out of range",
                     (long long)count);
  size_t bytes = (size_t)count * sizeof(float);
  vector_t *vector = memory_take(device, sizeof *vector);
  float *copy = memory_take(device, bytes);
  if (!vector || !copy) return no_memory(error, "a vector", bytes);
  memcpy(copy, values, bytes);
  vector->count = count;
  vector->values = copy;
  *out = vector;
  return 0;
}

void weight_unpack_row(const weight_t *w, int64_t row, float scale, bool add, float *out) {
  const uint8_t *panel = w->panels + (size_t)(row / PANEL_COLS) * w->panel_bytes;
  int64_t lane = row % PANEL_COLS;
  for (int64_t k = 0; k < w->cols; k++) {
    float value;
    if (w->dtype == DTYPE_F32) {
      value = ((const float *)(const void *)panel)[k * PANEL_COLS + lane];
    } else if (w->dtype == DTYPE_F16) {
      value = float_from_f16(((const uint16_t *)(const void *)panel)[k * PANEL_COLS + lane]);
    } else {
      int64_t at = (k / 2 * PANEL_COLS + lane) * 2 + k % 2;
      value = float_from_bf16(((const uint16_t *)(const void *)panel)[at]);
    }
    value *= scale;
    out[k] = add ? out[k] + value : value;
  }
}
