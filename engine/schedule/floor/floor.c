/* floor.c: the records of the floor under the prefix cache; the contract is in floor.h.
 *
 * Engine thread only; allocates in floor_new only. Never touches KV memory, but for the checksums
 * of a file.
 */
#include "engine/schedule/floor/floor.h"

#include "engine/base/check.h"
#include "engine/base/hash.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

/* ---- records ---- */

size_t floor_record_bytes(int32_t block_size) {
  return sizeof(floor_record_t) + ROUND_UP((size_t)block_size * sizeof(int32_t), sizeof(uint64_t));
}

static floor_record_t *record_of(const floor_t *floor, int32_t place) {
  return (floor_record_t *)(void *)(floor->records + (size_t)(place - 1) * floor->record_bytes);
}

static int32_t *ids_of(floor_record_t *record) {
  return (int32_t *)(void *)(record + 1);
}

/* Of the record but its checksum and stamp, and of the content; never 0. */
static uint64_t checksum_of(const floor_t *floor, int32_t place) {
  const floor_memory_t *memory = &floor->options.memory;
  const uint8_t *record = (const uint8_t *)record_of(floor, place);
  const size_t behind = offsetof(floor_record_t, key);
  uint64_t sum = hash_bytes(record + behind, floor->record_bytes - behind);
  sum = hash_mix(sum + hash_bytes(memory->content + (size_t)(place - 1) * memory->content_bytes,
                                  memory->content_bytes));
  return sum != 0 ? sum : 1;
}

static int32_t *bucket_of(const floor_t *floor, const block_key_t *key) {
  return &floor->buckets[(uint32_t)key->word[0] & floor->bucket_mask];
}

/* ---- the order of use ---- */

static void list_remove(floor_t *floor, int32_t place) {
  floor_place_t *entry = &floor->places[place];
  *(entry->prev ? &floor->places[entry->prev].next : &floor->head) = entry->next;
  *(entry->next ? &floor->places[entry->next].prev : &floor->tail) = entry->prev;
}

static void list_push_tail(floor_t *floor, int32_t place) {
  floor_place_t *entry = &floor->places[place];
  entry->prev = floor->tail;
  entry->next = 0;
  *(floor->tail ? &floor->places[floor->tail].next : &floor->head) = place;
  floor->tail = place;
}

static void use(floor_t *floor, int32_t place) {
  list_remove(floor, place);
  list_push_tail(floor, place);
  record_of(floor, place)->stamp = ++floor->stamp;
}

/* ---- places ---- */

static void add(floor_t *floor, int32_t place) {
  int32_t *bucket = bucket_of(floor, &record_of(floor, place)->key);
  floor->places[place].chain = *bucket;
  floor->places[place].is_used = true;
  floor->num_used++;
  *bucket = place;
}

/* The place holds nothing any more. */
static void empty(floor_t *floor, int32_t place) {
  floor_record_t *record = record_of(floor, place);
  if (!floor->places[place].is_used) return;
  int32_t *link = bucket_of(floor, &record->key);
  while (*link != place) link = &floor->places[*link].chain;
  *link = floor->places[place].chain;
  floor->places[place].is_used = floor->places[place].is_checked = false;
  floor->num_used--;
  record->checksum = 0;
}

/* The content is right. What is not, because the file is damaged, is forgotten. */
static bool check(floor_t *floor, int32_t place) {
  floor_place_t *entry = &floor->places[place];
  if (entry->is_checked || !floor->options.persists) return true;
  entry->is_checked = record_of(floor, place)->checksum == checksum_of(floor, place);
  if (entry->is_checked) return true;
  floor->num_damaged++;
  empty(floor, place);
  return false;
}

static int32_t find(const floor_t *floor, const block_key_t *key, const block_key_t *parent,
                    uint64_t domain, const int32_t *token_ids) {
  size_t bytes = (size_t)floor->options.block_size * sizeof *token_ids;
  for (int32_t p = *bucket_of(floor, key); p != 0; p = floor->places[p].chain) {
    floor_record_t *record = record_of(floor, p);
    if (memcmp(&record->key, key, sizeof *key) == 0 &&
        memcmp(&record->parent, parent, sizeof *parent) == 0 && record->domain == domain &&
        memcmp(ids_of(record), token_ids, bytes) == 0)
      return p;
  }
  return 0;
}

int32_t floor_find(floor_t *floor, const block_key_t *key, const block_key_t *parent,
                   uint64_t domain, const int32_t *token_ids) {
  int32_t place = find(floor, key, parent, domain, token_ids);
  return place != 0 && check(floor, place) ? place : 0;
}

/* ---- make and free ---- */

static int compare_stamps(const void *left, const void *right) {
  const floor_record_t *a = *(floor_record_t *const *)left, *b = *(floor_record_t *const *)right;
  return (a->stamp > b->stamp) - (a->stamp < b->stamp);
}

/* Puts all places into the order of use: empty ones first, then what the records of a file say. */
static int take_over(floor_t *floor) {
  int32_t count = floor->options.num_places;
  floor_record_t **sorted = calloc((size_t)count, sizeof *sorted);
  if (sorted == NULL) return -1;
  for (int32_t i = 0; i < count; i++) {
    sorted[i] = record_of(floor, i + 1);
    if (sorted[i]->checksum == 0) sorted[i]->stamp = 0;
  }
  if (floor->options.persists) qsort(sorted, (size_t)count, sizeof *sorted, compare_stamps);
  for (int32_t i = 0; i < count; i++) {
    size_t at = (size_t)((uint8_t *)sorted[i] - floor->records);
    int32_t place = 1 + (int32_t)(at / floor->record_bytes);
    list_push_tail(floor, place);
    if (sorted[i]->checksum == 0) continue;
    floor->stamp = sorted[i]->stamp;
    add(floor, place);
  }
  free(sorted);
  return 0;
}

int floor_new(const floor_options_t *options, floor_t **out, inferd_error_t *error) {
  floor_t *floor = calloc(1, sizeof *floor);
  size_t places = (size_t)options->num_places, blocks = (size_t)options->num_blocks, buckets = 1;
  CHECK_GE(options->num_places, 1);
  while (buckets < places) buckets *= 2;
  if (floor != NULL) {
    floor->options = *options;
    floor->record_bytes = floor_record_bytes(options->block_size);
    floor->records =
        options->persists ? options->memory.records : calloc(places, floor->record_bytes);
    floor->places = calloc(places + 1, sizeof *floor->places);
    floor->buckets = calloc(buckets, sizeof *floor->buckets);
    floor->bucket_mask = (uint32_t)buckets - 1;
    floor->leaving = calloc(blocks, sizeof *floor->leaving);
    floor->leave = calloc(blocks, sizeof *floor->leave);
    floor->outs = calloc(places, sizeof *floor->outs);
    floor->ins = calloc(blocks, sizeof *floor->ins);
    floor->in_of = calloc(blocks, sizeof *floor->in_of);
  }
  if (floor == NULL || floor->records == NULL || floor->places == NULL || floor->buckets == NULL ||
      floor->leaving == NULL || floor->leave == NULL || floor->outs == NULL || floor->ins == NULL ||
      floor->in_of == NULL || take_over(floor) != 0) {
    floor_free(floor);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the records of %d KV blocks",
                     options->num_places);
  }
  *out = floor;
  return 0;
}

void floor_free(floor_t *floor) {
  if (floor == NULL) return;
  if (!floor->options.persists) free(floor->records);
  free(floor->places);
  free(floor->buckets);
  free(floor->leaving);
  free(floor->leave);
  free(floor->outs);
  free(floor->ins);
  free(floor->in_of);
  free(floor);
}

/* ---- blocks that leave ---- */

/* What a block is found by. Returns false if it is not full or not findable, or if its adapter is
 * loaded under another number in another process. */
static bool describe(const block_pool_t *pool, int32_t block, floor_record_t *out) {
  const block_identity_t *identity = &pool->blocks[block].identity;
  int32_t parent = identity->place.parent;
  if (!identity->keyed || identity->num_valid < pool->block_size) return false;
  if (pool->floor->options.persists && identity->place.adapter != 0) return false;
  *out = (floor_record_t){.key = identity->key, .domain = identity->place.domain};
  if (parent != NO_BLOCK) out->parent = pool->blocks[parent].identity.key;
  return true;
}

static const int32_t *block_ids(const block_pool_t *pool, int32_t block) {
  return &pool->token_ids[(size_t)block * (size_t)pool->block_size];
}

/* Plans the copy of a block to the place that was used least recently. If every place is pinned the
 * block is not kept. */
static void leave(block_pool_t *pool, int32_t block) {
  floor_t *floor = pool->floor;
  floor_record_t what;
  int32_t place = floor->head;
  if (!describe(pool, block, &what) || floor->places[place].pins > 0 ||
      find(floor, &what.key, &what.parent, what.domain, block_ids(pool, block)) != 0)
    return;
  floor_record_t *record = record_of(floor, place);
  empty(floor, place);
  *record = what;
  memcpy(ids_of(record), block_ids(pool, block), (size_t)pool->block_size * sizeof(int32_t));
  add(floor, place);
  use(floor, place);
  floor->places[place].pins = 1;
  floor->places[place].is_checked = true;
  floor->outs[floor->num_outs++] = (block_swap_t){block, floor->options.first_host + place - 1};
  floor->num_stored++;
}

void floor_offer(block_pool_t *pool, int32_t block) {
  floor_t *floor = pool->floor;
  floor_record_t what;
  if (!describe(pool, block, &what)) return;
  int32_t place = find(floor, &what.key, &what.parent, what.domain, block_ids(pool, block));
  if (place != 0) {
    use(floor, place);
    return;
  }
  bool is_listed = floor->leave[block] != LEAVE_NO;
  floor->leave[block] = LEAVE_WANTED;
  if (is_listed) return;
  int32_t end = (floor->first_leaving + floor->num_leaving++) % floor->options.num_blocks;
  floor->leaving[end] = block;
}

void floor_evict(block_pool_t *pool, int32_t block) {
  uint8_t *state = &pool->floor->leave[block];
  if (*state != LEAVE_WANTED) return;
  *state = LEAVE_DONE;
  leave(pool, block);
}

void floor_collect(block_pool_t *pool, int32_t most) {
  floor_t *floor = pool->floor;
  for (; most > 0 && floor->num_leaving > 0; most--) {
    int32_t block = floor->leaving[floor->first_leaving];
    floor->first_leaving = (floor->first_leaving + 1) % floor->options.num_blocks;
    floor->num_leaving--;
    if (floor->leave[block] == LEAVE_WANTED) leave(pool, block);
    floor->leave[block] = LEAVE_NO;
  }
}

/* ---- blocks that enter ---- */

void floor_pin(floor_t *floor, int32_t place) {
  floor->places[place].pins++;
  use(floor, place);
}

void floor_enter(floor_t *floor, int32_t place, int32_t block) {
  int32_t host = floor->options.first_host + place - 1, index = floor->in_of[block];
  if (index > 0) { /* the copy that was planned into the block before is of no use */
    int32_t before = floor->ins[index - 1].host - floor->options.first_host + 1;
    floor->places[before].pins--;
  } else {
    index = floor->in_of[block] = ++floor->num_ins;
  }
  floor->ins[index - 1] = (block_swap_t){block, host};
  floor->num_brought++;
}

void floor_launched(floor_t *floor) {
  for (int32_t i = 0; i < floor->num_outs; i++) {
    int32_t place = floor->outs[i].host - floor->options.first_host + 1;
    floor->places[place].pins--;
    if (!floor->options.persists) continue;
    uint64_t sum = checksum_of(floor, place);
    __atomic_store_n(&record_of(floor, place)->checksum, sum, __ATOMIC_RELEASE);
  }
  for (int32_t i = 0; i < floor->num_ins; i++) {
    floor->places[floor->ins[i].host - floor->options.first_host + 1].pins--;
    floor->in_of[floor->ins[i].device] = 0;
  }
  floor->num_outs = floor->num_ins = 0;
}
