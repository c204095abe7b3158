/* cross_blocks.c: a bounded cache of K and V of sources; the contract is in cross_blocks.h.
 *
 * Engine thread only; allocates in cross_blocks_new only.
 */
#include "engine/schedule/cross_blocks.h"

#include "engine/base/check.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

enum { ENTRIES_MAX = 1024 };

typedef struct cross_entry {
  source_key_t key;
  uint64_t domain;
  uint64_t used, step; /* larger = later; the last step that reads it */
  int32_t positions, num_blocks;
  int32_t chain; /* next entry of the same bucket; 0 ends it */
  bool is_used, is_full;
  cross_mark_t mark;
} cross_entry_t;

struct cross_blocks {
  int32_t block_size, num_entries, stride;
  cross_entry_t *entries; /* [num_entries + 1]; entry 0 stands for "none" */
  int32_t *tables;        /* [num_entries + 1, stride] block numbers */
  int32_t *buckets;       /* [num_entries] by the first bytes of the key */
  int32_t *free_blocks;   /* [num_free] */
  int32_t num_free;
  uint64_t clock, launched, landed;
};

int cross_blocks_new(int32_t first, int32_t count, int32_t block_size, int32_t longest,
                     cross_blocks_t **out, inferd_error_t *error) {
  cross_blocks_t *cross = calloc(1, sizeof *cross);
  if (cross == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for cross blocks");
  cross->block_size = block_size;
  cross->stride = DIV_UP(longest, block_size);
  CHECK_GE(count, cross->stride);
  cross->num_entries = MIN(count, ENTRIES_MAX);
  const size_t all = (size_t)cross->num_entries + 1;
  cross->entries = calloc(all, sizeof *cross->entries);
  cross->tables = calloc(all, (size_t)cross->stride * sizeof *cross->tables);
  cross->buckets = calloc(all, sizeof *cross->buckets);
  cross->free_blocks = calloc((size_t)count, sizeof *cross->free_blocks);
  if (cross->entries == NULL || cross->tables == NULL || cross->buckets == NULL ||
      cross->free_blocks == NULL) {
    cross_blocks_free(cross);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the tables of %d cross blocks",
                     count);
  }
  for (int32_t i = count - 1; i >= 0; i--) cross->free_blocks[cross->num_free++] = first + i;
  *out = cross;
  return 0;
}

void cross_blocks_free(cross_blocks_t *cross) {
  if (cross == NULL) return;
  free(cross->entries);
  free(cross->tables);
  free(cross->buckets);
  free(cross->free_blocks);
  free(cross);
}

int32_t cross_blocks_num_free(const cross_blocks_t *cross) {
  return cross->num_free;
}

int32_t cross_blocks_num_entries(const cross_blocks_t *cross) {
  int32_t count = 0;
  for (int32_t e = 1; e <= cross->num_entries; e++) count += cross->entries[e].is_used;
  return count;
}

/* ---- entries ---- */

static int32_t *bucket_of(const cross_blocks_t *cross, const source_key_t *key) {
  uint32_t word;
  memcpy(&word, key->bytes, sizeof word);
  return &cross->buckets[word % (uint32_t)cross->num_entries];
}

static int32_t find(const cross_blocks_t *cross, const request_t *request) {
  const source_key_t *key = &request->source->key;
  int32_t e = *bucket_of(cross, key);
  for (; e != 0; e = cross->entries[e].chain) {
    const cross_entry_t *entry = &cross->entries[e];
    if (entry->domain == request->base_salt && memcmp(&entry->key, key, sizeof *key) == 0) break;
  }
  return e;
}

bool cross_blocks_has(const cross_blocks_t *cross, const request_t *request) {
  return cross->entries[find(cross, request)].is_full;
}

bool cross_blocks_is_begun(const cross_blocks_t *cross, const request_t *request) {
  const int32_t e = find(cross, request);
  return e != 0 && !cross->entries[e].is_full;
}

static int32_t *table_of(const cross_blocks_t *cross, int32_t entry) {
  return &cross->tables[(size_t)entry * (size_t)cross->stride];
}

const int32_t *cross_blocks_use(cross_blocks_t *cross, const request_t *request, int32_t *length) {
  const int32_t e = find(cross, request);
  cross_entry_t *entry = &cross->entries[e];
  CHECK(entry->is_full);
  entry->used = ++cross->clock;
  entry->step = cross->launched;
  *length = entry->positions;
  return table_of(cross, e);
}

/* ---- room ---- */

void cross_blocks_unmark(cross_blocks_t *cross) {
  for (int32_t e = 1; e <= cross->num_entries; e++) cross->entries[e].mark = CROSS_MAY_GO;
}

void cross_blocks_mark(cross_blocks_t *cross, const request_t *request, cross_mark_t mark) {
  const int32_t e = find(cross, request);
  if (e != 0) cross->entries[e].mark = MAX(cross->entries[e].mark, mark);
}

static bool may_go(const cross_blocks_t *cross, int32_t number) {
  const cross_entry_t *entry = &cross->entries[number];
  return entry->is_full && entry->mark != CROSS_MUST_STAY && entry->step <= cross->landed;
}

/* The entry that goes first; 0 = none may. */
static int32_t first_to_go(const cross_blocks_t *cross) {
  int32_t first = 0;
  for (int32_t e = 1; e <= cross->num_entries; e++) {
    const cross_entry_t *entry = &cross->entries[e], *best = &cross->entries[first];
    if (!may_go(cross, e)) continue;
    if (first == 0 || entry->mark < best->mark ||
        (entry->mark == best->mark && entry->used < best->used))
      first = e;
  }
  return first;
}

void cross_blocks_drop(cross_blocks_t *cross, int32_t number) {
  cross_entry_t *entry = &cross->entries[number];
  const int32_t *table = table_of(cross, number);
  int32_t *link = bucket_of(cross, &entry->key);
  while (*link != number) link = &cross->entries[*link].chain;
  *link = entry->chain;
  for (int32_t i = entry->num_blocks - 1; i >= 0; i--)
    cross->free_blocks[cross->num_free++] = table[i];
  *entry = (cross_entry_t){0};
}

/* An entry that is nobody's; 0 = there is none. */
static int32_t find_unused(const cross_blocks_t *cross) {
  for (int32_t e = 1; e <= cross->num_entries; e++)
    if (!cross->entries[e].is_used) return e;
  return 0;
}

/* Room for an entry of so many blocks, if what may go is enough. */
static bool make_room(cross_blocks_t *cross, int32_t num_blocks) {
  int32_t most = cross->num_free;
  for (int32_t e = 1; e <= cross->num_entries; e++)
    if (may_go(cross, e)) most += cross->entries[e].num_blocks;
  if (most < num_blocks) return false;
  if (find_unused(cross) == 0) {
    const int32_t first = first_to_go(cross);
    if (first == 0) return false;
    cross_blocks_drop(cross, first);
  }
  while (cross->num_free < num_blocks) cross_blocks_drop(cross, first_to_go(cross));
  return true;
}

int32_t cross_blocks_take(cross_blocks_t *cross, const request_t *request, int32_t positions,
                          const int32_t **table) {
  const int32_t num_blocks = DIV_UP(positions, cross->block_size);
  CHECK_RANGE(num_blocks, 1, cross->stride + 1);
  CHECK_EQ(find(cross, request), 0);
  if (!make_room(cross, num_blocks)) return 0;
  const int32_t e = find_unused(cross);
  int32_t *bucket = bucket_of(cross, &request->source->key), *blocks = table_of(cross, e);
  cross->entries[e] = (cross_entry_t){.key = request->source->key,
                                      .domain = request->base_salt,
                                      .used = ++cross->clock,
                                      .positions = positions,
                                      .num_blocks = num_blocks,
                                      .chain = *bucket,
                                      .is_used = true};
  *bucket = e;
  for (int32_t i = 0; i < num_blocks; i++) blocks[i] = cross->free_blocks[--cross->num_free];
  *table = blocks;
  return e;
}

void cross_blocks_fill(cross_blocks_t *cross, int32_t entry) {
  cross->entries[entry].is_full = true;
}

void cross_blocks_launch(cross_blocks_t *cross) {
  cross->launched++;
}

void cross_blocks_land(cross_blocks_t *cross) {
  cross->landed++;
}
