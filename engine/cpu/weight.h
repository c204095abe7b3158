/* weight.h: matrices and vectors in the CPU back end's own layout, and products with a panel.
 *
 * Made on the engine thread while a model loads, constant afterwards; any worker reads them.
 */
#ifndef INFERD_ENGINE_CPU_WEIGHT_H
#define INFERD_ENGINE_CPU_WEIGHT_H

#include "engine/cpu/isa/kernels.h"

/* Where a panel of quantised weights lies. Panels differ in layout, because rows do in format. */
typedef struct quant_panel {
  size_t at; /* bytes from weight_t.panels */
  quant_layout_t layout;
} quant_panel_t;

struct weight {
  int64_t rows, cols; /* N, K */
  int64_t depth;      /* K, padded to DEPTH_ALIGN for bf16 and to QUANT_DEPTH_ALIGN if quantised */
  dtype_t dtype;      /* of the kernel that multiplies it, unless it is quantised */
  weight_format_t format;                  /* WEIGHT_PLAIN, WEIGHT_MXFP4, WEIGHT_GROUPED_FP8 */
  int32_t group;                           /* of fp8: columns that share a scale */
  int64_t stack, stack_rows, stack_panels; /* matrices, rows and panels of each; 1, N, ... */
  size_t panel_bytes;
  uint8_t *panels; /* [stack * stack_panels] panels, see gemm_t; MXFP4 ones see mxfp4_group_t */
  const quant_panel_t *quant; /* [stack * stack_panels], or NULL: not quantised */
};

struct vector {
  int64_t count;
  float *values;
};

int cpu_weight(device_t *device, const weight_source_t *source, weight_t **out,
               inferd_error_t *error);
/* Bytes that cpu_weight takes, with the description of the panels. If an exponent of MXFP4 is out
 * of the range of the kernels, which only the data show, the matrix takes those of bf16 instead. */
size_t cpu_weight_bytes(const weight_source_t *source);
int cpu_vector(device_t *device, const float *values, int64_t count, vector_t **out,
               inferd_error_t *error);

/* Bytes that the loader may write for one row. */
size_t weight_scratch(const weight_source_t *source);
/* quant_pack.c: fills panels, size and layouts of a quantised weight whose shape is set. */
int quant_pack(device_t *device, const weight_source_t *source, weight_t *weight,
               inferd_error_t *error);
/* Bytes of the panels, whose descriptions go to `panels` unless that is NULL. */
size_t quant_layout_panels(const weight_source_t *source, const weight_t *weight,
                           quant_panel_t *panels);
/* One column of a chunk of a panel, while it is packed. */
typedef struct panel_column {
  const quant_layout_t *layout;
  uint8_t *chunk, *spans; /* of the panel, and what follows the head of the chunk */
  size_t scale_bytes, span_bytes;
  int32_t lane; /* 0..63 */
} panel_column_t;

enum { REPACK_COLUMNS = 4 };
/* quant_repack.c: packs `count` blocks of a format of GGUF files, at most four, into as many
 * columns of a panel whose layout is that of the format; the lane of the `first` is a multiple of
 * four, and rows [col, col + block) of the chunk are theirs. Columns up to the fourth get zeros.
 * Any worker. */
void quant_repack(const quant_format_t *format, const uint8_t *const *blocks, int32_t count,
                  int32_t col, const panel_column_t *first);
/* Writes columns [first, first + 256), as far as there are, of a row of a quantised weight. */
void quant_unpack_row(const weight_t *weight, int64_t row, int64_t first, float *out);

/* Writes out[cols] = row of the weight * scale; with `add`, adds that to out. The numbers of a
 * quantised weight are first rounded to its dtype, as a table of plain numbers would hold them. */
void weight_unpack_row(const weight_t *weight, int64_t row, float scale, bool add, float *out);

/* Products: `weight_stage` writes one row of activations as the kernel of the weight reads it; such
 * rows stand weight_stride bytes apart. 0 means that it reads fp32 rows as they are. */
size_t weight_stride(const device_t *device, const weight_t *weight);
void weight_stage(const device_t *device, const weight_t *weight, uint8_t *out, const float *in);
/* Multiplies rows with panel `index`. The caller sets x, rows, cols, out, ldo, bias and residual of
 * *gemm. `more`: this thread multiplies the next panel too, so it is
 * prefetched. `worker` selects the scratch memory. */
void weight_multiply(const device_t *device, const weight_t *weight, int64_t index, bool more,
                     int worker, gemm_t *gemm);

#endif
