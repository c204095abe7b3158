/* quant_blocks.h: one block of each format of GGUF files; for quant.c and for back ends that pack.
 *
 * Pure functions, any thread.
 */
#ifndef INFERD_ENGINE_QUANT_QUANT_BLOCKS_H
#define INFERD_ENGINE_QUANT_QUANT_BLOCKS_H

#include "engine/quant/quant.h"

/* Reads one block into columns [col, col + block) of a chunk: codes, and scales and minima of its
 * groups, or for a two-level format the super and sub values. */
void quant_block_read(weight_format_t format, const uint8_t *block, int32_t col,
                      quant_chunk_t *out);

/* Writes the small scales of a block of a two-level format, scale[256 / group], and the minima if
 * it has them. */
void quant_block_subs(weight_format_t format, const uint8_t *block, int8_t *scale, uint8_t *min);

/* Writes where the f16 numbers of a block stand, in bytes; returns how many there are, 0..2. */
int32_t quant_block_halves(weight_format_t format, int32_t *out);

#endif
