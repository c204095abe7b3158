/* snapshots.c: the list of snapshots of states; the contract is in snapshots.h.
 *
 * Engine thread only. Never touches a state, and never allocates after snapshots_new.
 */
#include "engine/schedule/state/snapshots.h"

#include "engine/base/check.h"

#include <stdlib.h>

int snapshots_new(int32_t count, int32_t first_slot, const block_pool_t *pool, snapshots_t **out,
                  inferd_error_t *error) {
  snapshots_t *snapshots = calloc(1, sizeof *snapshots);
  if (snapshots != NULL) {
    snapshots->entries = calloc((size_t)count + 1, sizeof *snapshots->entries);
    snapshots->of_block = calloc((size_t)pool->num_blocks, sizeof *snapshots->of_block);
  }
  if (snapshots == NULL || snapshots->entries == NULL || snapshots->of_block == NULL) {
    snapshots_free(snapshots);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the records of %d snapshots",
                     count);
  }
  snapshots->pool = pool;
  snapshots->count = count;
  snapshots->first_slot = first_slot;
  for (int32_t at = 0; at <= count; at++) {
    snapshots->entries[at].prev = at > 0 ? at - 1 : count;
    snapshots->entries[at].next = at < count ? at + 1 : 0;
  }
  *out = snapshots;
  return 0;
}

void snapshots_free(snapshots_t *snapshots) {
  if (snapshots == NULL) return;
  free(snapshots->entries);
  free(snapshots->of_block);
  free(snapshots);
}

static int32_t entry_of(const snapshots_t *snapshots, int32_t slot) {
  CHECK_RANGE(slot, snapshots->first_slot, snapshots->first_slot + snapshots->count);
  return slot - snapshots->first_slot + 1;
}

static bool is_taken(const snapshots_t *snapshots, int32_t at) {
  return snapshots->entries[at].next == at;
}

static void insert(snapshots_t *snapshots, int32_t at, int32_t before) {
  snapshot_t *entries = snapshots->entries;
  entries[at].next = before;
  entries[at].prev = entries[before].prev;
  entries[entries[at].prev].next = at;
  entries[before].prev = at;
}

static void unlink_entry(snapshots_t *snapshots, int32_t at) {
  snapshot_t *entries = snapshots->entries;
  entries[entries[at].prev].next = entries[at].next;
  entries[entries[at].next].prev = entries[at].prev;
  entries[at].prev = entries[at].next = at;
}

static void take_first(snapshots_t *snapshots, int32_t at) {
  unlink_entry(snapshots, at);
  insert(snapshots, at, snapshots->entries[0].next);
}

static void take_last(snapshots_t *snapshots, int32_t at) {
  unlink_entry(snapshots, at);
  insert(snapshots, at, 0);
}

/* The entry whose state stands behind the block; 0 = none. */
static int32_t find_entry(const snapshots_t *snapshots, int32_t block) {
  int32_t at = snapshots->of_block[block];
  const block_identity_t *identity = &snapshots->pool->blocks[block].identity;
  bool stands = at > 0 && identity->unique_id == snapshots->entries[at].unique_id;
  return stands ? at : 0;
}

int32_t snapshots_take(snapshots_t *snapshots) {
  int32_t at = snapshots->entries[0].next;
  if (at == 0) return 0;
  snapshot_t *entry = &snapshots->entries[at];
  unlink_entry(snapshots, at);
  if (snapshots->of_block[entry->block] == at) snapshots->of_block[entry->block] = 0;
  entry->block = NO_BLOCK;
  entry->unique_id = 0;
  entry->was_hit = false;
  snapshots->num_taken++;
  return snapshots->first_slot + at - 1;
}

void snapshots_give(snapshots_t *snapshots, int32_t slot) {
  int32_t at = entry_of(snapshots, slot);
  if (!is_taken(snapshots, at)) return;
  snapshots->num_taken--;
  insert(snapshots, at, snapshots->entries[0].next);
}

int32_t snapshots_attach(snapshots_t *snapshots, int32_t slot, int32_t block) {
  int32_t at = entry_of(snapshots, slot), other = find_entry(snapshots, block);
  uint64_t unique_id = snapshots->pool->blocks[block].identity.unique_id;
  CHECK(is_taken(snapshots, at));
  CHECK_NE(unique_id, 0);
  if (other > 0) {
    snapshots_give(snapshots, slot);
    take_last(snapshots, other);
    return snapshots->first_slot + other - 1;
  }
  snapshots->entries[at].block = block;
  snapshots->entries[at].unique_id = unique_id;
  snapshots->of_block[block] = at;
  snapshots->num_taken--;
  insert(snapshots, at, 0);
  return slot;
}

int32_t snapshots_find(const snapshots_t *snapshots, int32_t block) {
  int32_t at = snapshots != NULL ? find_entry(snapshots, block) : 0;
  return at > 0 ? snapshots->first_slot + at - 1 : 0;
}

void snapshots_hit(snapshots_t *snapshots, int32_t slot) {
  int32_t at = entry_of(snapshots, slot);
  CHECK(!is_taken(snapshots, at));
  snapshots->entries[at].was_hit = true;
  take_last(snapshots, at);
}

void snapshots_outdate(snapshots_t *snapshots, int32_t slot, uint64_t unique_id) {
  int32_t at = entry_of(snapshots, slot);
  const snapshot_t *entry = &snapshots->entries[at];
  if (entry->unique_id == unique_id && !entry->was_hit) take_first(snapshots, at);
}

void snapshots_lose(snapshots_t *snapshots, int32_t block) {
  int32_t at = find_entry(snapshots, block);
  if (at > 0) take_first(snapshots, at);
}
