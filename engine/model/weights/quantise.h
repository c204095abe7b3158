/* quantise.h: a matrix of plain numbers as a source of Q8_0 blocks, for --quantization q8.
 *
 * Engine thread; rows from any thread.
 */
#ifndef INFERD_ENGINE_MODEL_QUANTISE_H
#define INFERD_ENGINE_MODEL_QUANTISE_H

#include "engine/device/ops.h"

#include <stdbool.h>

/* True when `plain` can be made Q8_0 and `ops` takes it: 16-bit numbers, columns in whole blocks.
 */
bool quantise_suits(const ops_t *ops, const weight_source_t *plain);

/* Returns a source whose rows are those of *plain in Q8_0. It borrows *plain. */
weight_source_t quantise_q8_0(weight_source_t *plain);

#endif
