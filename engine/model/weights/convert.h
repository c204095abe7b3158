/* convert.h: rows of weights from one element type to another.
 *
 * Round to nearest even, NaN stays NaN. Pure functions, any thread; pointers may be unaligned.
 */
#ifndef INFERD_ENGINE_MODEL_CONVERT_H
#define INFERD_ENGINE_MODEL_CONVERT_H

#include "engine/device/ops.h"

/* Converts `count` elements. Equal types copy. */
void convert_row(void *out, dtype_t to, const void *in, dtype_t from, int64_t count);
/* True when every element is finite. */
bool convert_finite(const void *row, dtype_t dtype, int64_t count);

#endif
