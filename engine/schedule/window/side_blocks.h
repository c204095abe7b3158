/* side_blocks.h: blocks of layers with a sliding window, beside the blocks of the others.
 *
 * They come from the same pool (block.h), `num_sides` for each block of the layers that see
 * everything. A side block has no identity. It is attached to the block that holds the same tokens,
 * is found through it, and is empty again when that block loses its identity. A free side block
 * that is attached counts as cached, and is evicted alone. Engine thread only; implemented in
 * block.c.
 */
#ifndef INFERD_ENGINE_SCHEDULE_WINDOW_SIDE_BLOCKS_H
#define INFERD_ENGINE_SCHEDULE_WINDOW_SIDE_BLOCKS_H

#include "engine/schedule/block.h"

/* Once, before any block is taken: gives each block places for num_sides side blocks. Returns 0 or
 * ERR_NO_MEMORY. */
int block_pool_add_sides(block_pool_t *pool, int32_t num_sides, inferd_error_t *error);
/* The side blocks attached to a block: [num_sides]. */
static inline const int32_t *block_sides(const block_pool_t *pool, int32_t block) {
  return &pool->sides[(size_t)block * (size_t)pool->num_sides];
}
/* Whether all side blocks are attached; true if there are none. */
bool block_has_sides(const block_pool_t *pool, int32_t block);
/* Attaches a held side block to a block with an identity, in place of the one that is attached. It
 * must hold the valid rows of that block. */
void block_attach(block_pool_t *pool, int32_t block, int32_t index, int32_t side);
/* Detaches all side blocks of a block; the free ones among them are empty then. */
void block_detach(block_pool_t *pool, int32_t block);
/* Takes the identities of a block that nothing holds and of all that stand behind it. */
void block_forget(block_pool_t *pool, int32_t block);

#endif
