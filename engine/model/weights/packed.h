/* packed.h: a linear layer that a safetensors file stores quantised, row by row as numbers.
 *
 * A layer X of N rows (outputs) and K columns (inputs) is stored as some of X.qweight,
 * X.weight_packed, X.weight, X.weight_scale and others; which, the scheme says. The layouts are
 * those of AutoGPTQ, AutoAWQ, compressed-tensors 0.20 and NVIDIA's ModelOpt, as their own packing
 * code writes them. Every number is scale * (code - zero point). Activations are not quantised,
 * also where the checkpoint was made for that: the result is then closer to the original model.
 * Engine thread; packed_row from any thread.
 */
#ifndef INFERD_ENGINE_MODEL_WEIGHTS_PACKED_H
#define INFERD_ENGINE_MODEL_WEIGHTS_PACKED_H

#include "engine/device/weight_source.h"
#include "engine/model/scheme.h"
#include "engine/model/source/safetensors.h"

#include <stdbool.h>

/* Where the scale of row n and column group g stands: element n / row_div * row_step +
 * g * group_step of its tensor. */
typedef struct scale_grid {
  int64_t row_div, row_step, group_step;
} scale_grid_t;

typedef struct packed {
  packing_t packing;
  int32_t bits;       /* of a code: 2 to 8 */
  int64_t rows, cols; /* N, K */
  int64_t group;      /* columns that share a scale */
  int64_t num_groups; /* DIV_UP(cols, group) */
  int32_t zero_add;   /* added to a stored zero point: 1 for GPTQ, else 0 */
  float factor;       /* of every number: the second scale of NVFP4, else 1 */
  scale_grid_t grid;
  const stored_tensor_t *codes, *scales;
  const stored_tensor_t *zeros; /* NULL: the zero point is 2^(bits - 1) */
  const stored_tensor_t *order; /* I32 [K] group of each column, or NULL = column / group */
} packed_t;

/* Looks for the quantised tensors of the layer `stem` ("model.layers.0.mlp.up_proj", with prefix,
 * without ".weight") and checks their types and shapes, and that they are what the scheme says.
 * out->packing is PACKING_NONE if the files have none. Marks what belongs to the layer in `taken`
 * [files' tensors]. 0 or ERR_MODEL_MALFORMED. */
int packed_find(const weight_files_t *files, const scheme_t *scheme, const char *stem, int64_t rows,
                int64_t cols, uint8_t *taken, packed_t *out, inferd_error_t *error);

/* out[K] = the numbers of row `row`, rounded once to fp32. */
void packed_row(const packed_t *packed, int64_t row, float *out);

/* The format in which a back end can take the layer without widening it: WEIGHT_GROUPED_4,
 * WEIGHT_GROUPED, WEIGHT_GROUPED_FP4, WEIGHT_GROUPED_FP8 (weight_source.h), or WEIGHT_PLAIN if the
 * layer has none: columns whose groups are in another order than the columns. Sets *group to its
 * columns that share a scale. */
weight_format_t packed_format(const packed_t *packed, int32_t *group);
/* What holds of the scales of a layer that has such a format, and, unless it is the `first`, of
 * those before it. */
void packed_scales(const packed_t *packed, bool first, group_scales_t *scales);
/* Writes row `row` in the format that packed_format returned, or in WEIGHT_GROUPED, which all of
 * these but fp8 have in common, for groups of `group` columns. Returns false if a scale or a code
 * is not finite.
 */
bool packed_grouped_row(const packed_t *packed, int64_t row, weight_format_t format, int32_t group,
                        uint8_t *out);

/* Refuses a layer that the scheme's list of plain layers names and whose quantised tensors are
 * `taken`. 0 or ERR_MODEL_MALFORMED. */
int packed_check_plain(const weight_files_t *files, const scheme_t *scheme, const uint8_t *taken,
                       inferd_error_t *error);
/* Of a layer of which a row was not finite: ERR_MODEL_MALFORMED with the first scale or code that
 * is no number, or with the numbers that are too large in fp32. */
int packed_not_finite(const packed_t *packed, const weight_files_t *files, inferd_error_t *error);

/* Returns true for an extra tensor that the scheme allows: a bias of zeros that AutoGPTQ writes for
 * layers that have none. */
bool packed_is_harmless(const scheme_t *scheme, const stored_tensor_t *tensor);

#endif
