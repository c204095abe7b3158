/* packed.h: quantised matrices in the form in which kernels read them (device_code/kernel_types.h).
 *
 * Pure functions, any thread; the threads that gather weights (weight_rows.c) call packed_panel.
 */
#ifndef INFERD_CUDA_PACKED_H
#define INFERD_CUDA_PACKED_H

#include "cuda/device_code/kernel_types.h"

#include <stdbool.h>

/* Fills *out; out->codes is GPU_CODES_PLAIN if the matrix is not quantised. Rows of several formats
 * share one form: 8 bits, the smallest group, minima if one format has them. */
void packed_form(const weight_source_t *source, gpu_packed_t *out);
/* Bytes of `source` on the device; SIZE_MAX for an overflow. */
size_t cuda_weight_bytes(const weight_source_t *source);
/* Writes panel `panel` of the matrix to `to` [panel_bytes]; `scratch` as weight_source_t.row wants
 * it. *exact: float scales and minima are so short that weights need one rounding. Returns false if
 * a number is beyond the run type, or a power of two beyond 2^112. */
bool packed_panel(const weight_source_t *source, const gpu_packed_t *form, int64_t panel,
                  uint8_t *to, void *scratch, bool *exact);
/* Once all panels are written; is_exact: every one was. */
void packed_settle(gpu_packed_t *form, bool is_exact);

#endif
