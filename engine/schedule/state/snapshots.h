/* snapshots.h: copies of states behind full blocks, by which the prefix cache is of use to a model
 * that keeps a state per sequence.
 *
 * A snapshot is a slot of the back end's states (state_ops.h). It is free, taken while a step
 * writes it, or attached to a block that is findable by key: then it holds the state behind the
 * last token of this block. It is found as long as the block keeps this identity. Free snapshots,
 * and those whose block lost its identity, are taken first, then the one that was used least
 * recently. Engine thread only; snapshots_new allocates everything.
 */
#ifndef INFERD_ENGINE_SCHEDULE_STATE_SNAPSHOTS_H
#define INFERD_ENGINE_SCHEDULE_STATE_SNAPSHOTS_H

#include "engine/schedule/block.h"

typedef struct snapshot {
  int32_t prev, next; /* in the order in which they are taken; itself while it is taken */
  int32_t block;      /* that it was attached to; NO_BLOCK = none */
  uint64_t unique_id; /* of the identity that the block had then */
  bool was_hit;       /* a sequence has begun with it */
} snapshot_t;

typedef struct snapshots {
  const block_pool_t *pool;
  int32_t count, first_slot; /* slots [first_slot, first_slot + count) of the back end */
  snapshot_t *entries;       /* [count + 1]; entry 0 is both ends of the list */
  int32_t *of_block;         /* [num_blocks of the pool] the entry attached last; 0 = none */
  int32_t num_taken;
} snapshots_t;

/* Makes `count` free snapshots in the slots from first_slot on. Returns 0 and *out, to be freed
 * with snapshots_free, or ERR_NO_MEMORY. Borrows `pool`. */
int snapshots_new(int32_t count, int32_t first_slot, const block_pool_t *pool, snapshots_t **out,
                  inferd_error_t *error);
void snapshots_free(snapshots_t *snapshots); /* NULL is allowed */

/* Takes a slot to be written. Returns 0 if all of them are taken. */
int32_t snapshots_take(snapshots_t *snapshots);
/* Attaches a taken slot to a block that has an identity. If the block has a snapshot already, that
 * one counts as used and the slot is free. Returns the slot that is attached now. */
int32_t snapshots_attach(snapshots_t *snapshots, int32_t slot, int32_t block);
/* Frees the slot, if it is still taken. */
void snapshots_give(snapshots_t *snapshots, int32_t slot);

/* Returns the slot that holds the state behind a block; 0 = none. NULL holds none. */
int32_t snapshots_find(const snapshots_t *snapshots, int32_t block);
/* An attached slot is used: it is taken last. */
void snapshots_hit(snapshots_t *snapshots, int32_t slot);
/* A later snapshot of the same sequence makes this one, attached to an identity, less useful: it is
 * taken first, unless it was hit or serves another block by now. */
void snapshots_outdate(snapshots_t *snapshots, int32_t slot, uint64_t unique_id);
/* The block is about to lose its identity, for good or until it gets it back unwritten. */
void snapshots_lose(snapshots_t *snapshots, int32_t block);

#endif
