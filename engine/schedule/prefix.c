/* prefix.c: the prefix cache: finds blocks by the content of their whole prefix, or by their parent
 * if they are filled in part.
 *
 * Engine thread only; allocates nothing. The key is SipHash-2-4 with 128 bits under a random key of
 * the process, so no client can construct collisions. Every hit also compares the stored token ids
 * and the parent block, so even a collision cannot return the content of another prefix.
 */
#include "engine/base/check.h"
#include "engine/schedule/block.h"

#include "engine/base/siphash.h"
#include "engine/base/util.h"
#include "engine/kv_events/kv_events.h"
#include "engine/schedule/state/snapshots.h"
#include "engine/schedule/window/side_blocks.h"

#include <string.h>

enum { PARTIAL_CANDIDATES_MAX = 64 };
static const uint64_t PLACES_APART = 0x9E3779B97F4A7C15;

static const int32_t *ids_of(const block_pool_t *pool, int32_t block) {
  return &pool->token_ids[(size_t)block * (size_t)pool->block_size];
}

static uint64_t parent_id(const block_pool_t *pool, prefix_place_t place) {
  return place.parent ? pool->blocks[place.parent].identity.unique_id : 0;
}

static block_key_t key_behind(const block_pool_t *pool, const block_key_t *parent,
                              prefix_place_t place, const int32_t *token_ids) {
  siphash_t siphash = siphash_begin_128(pool->secret);
  siphash_word(&siphash, parent != NULL ? parent->word[0] : 0, 2);
  siphash_word(&siphash, parent != NULL ? parent->word[1] : 0, 2);
  siphash_word(&siphash, place.domain, 2);
  siphash_bytes(&siphash, (const char *)token_ids, (size_t)pool->block_size * sizeof *token_ids, 2);
  block_key_t key;
  siphash_end_128(&siphash, key.word);
  return key;
}

block_key_t prefix_key(const block_pool_t *pool, prefix_place_t place, const int32_t *token_ids) {
  const block_key_t *parent = place.parent ? &pool->blocks[place.parent].identity.key : NULL;
  return key_behind(pool, parent, place, token_ids);
}

bool prefix_is_adapted(const request_t *request, int32_t index, int32_t block_size) {
  return request->adapter_from < (int64_t)(index + 1) * block_size;
}

/* Which pictures touch the block, and where they begin. 0 = none does; the secret key makes another
 * hash of other pictures, whatever a client chooses. */
static uint64_t pictures_at(const block_pool_t *pool, const request_t *request, int32_t index) {
  const int64_t begin = (int64_t)index * pool->block_size, end = begin + pool->block_size;
  siphash_t siphash = siphash_begin(pool->secret);
  for (int32_t i = 0; i < request->num_images && request->images[i].first < end; i++) {
    const image_t *image = &request->images[i];
    uint64_t words[sizeof image->key.bytes / sizeof(uint64_t)];
    if (image->end <= begin) continue;
    memcpy(words, image->key.bytes, sizeof words);
    for (size_t w = 0; w < ARRAY_LEN(words); w++) siphash_word(&siphash, words[w], 2);
    siphash_word(&siphash, (uint64_t)(image->first - begin), 2);
  }
  return siphash.num_bytes > 0 ? siphash_end(&siphash, 2) : 0;
}

/* What the decoder's blocks are made behind: the source of its encoder. All later blocks follow
 * from the first one. */
static uint64_t source_at(const block_pool_t *pool, const request_t *request) {
  uint64_t words[sizeof request->source->key.bytes / sizeof(uint64_t)];
  siphash_t siphash = siphash_begin(pool->secret);
  memcpy(words, request->source->key.bytes, sizeof words);
  for (size_t w = 0; w < ARRAY_LEN(words); w++) siphash_word(&siphash, words[w], 2);
  return siphash_end(&siphash, 2);
}

/* Which rows of its prompt a block has. 0 = none: it is behind the prompt. */
static uint64_t rows_at(const block_pool_t *pool, const request_t *request, int32_t index) {
  const int64_t begin = (int64_t)index * pool->block_size,
                end = MIN(begin + pool->block_size, request->num_prompt_tokens);
  siphash_t siphash = siphash_begin(pool->secret);
  for (int64_t i = begin; i < end; i++) {
    uint64_t words[sizeof request->rows->keys->bytes / sizeof(uint64_t)];
    memcpy(words, request->rows->keys[i].bytes, sizeof words);
    for (size_t w = 0; w < ARRAY_LEN(words); w++) siphash_word(&siphash, words[w], 2);
  }
  return siphash.num_bytes > 0 ? siphash_end(&siphash, 2) : 0;
}

uint64_t prefix_domain(const block_pool_t *pool, const request_t *request, int32_t index) {
  const int32_t block_size = pool->block_size;
  const bool begins = prefix_is_adapted(request, index, block_size) &&
                      (index == 0 || !prefix_is_adapted(request, index - 1, block_size));
  uint64_t more = request->num_images > 0 ? pictures_at(pool, request, index) : 0;
  if (request->source != NULL && index == 0) more += source_at(pool, request);
  if (request->rows != NULL) more += rows_at(pool, request, index);
  /* Prompts with the same tokens in this block may call the adapter at two places of it. */
  if (begins) return request->salt + (uint64_t)request->adapter_from * PLACES_APART + more;
  return (index == 0 ? request->base_salt : 0) + more;
}

void prefix_request_keys(const block_pool_t *pool, const request_t *request, int32_t num_blocks,
                         block_key_t *out) {
  for (int32_t i = 0; i < num_blocks; i++) {
    const int32_t *ids = &request->prompt_ids[(size_t)i * (size_t)pool->block_size];
    const prefix_place_t place = {.domain = prefix_domain(pool, request, i)};
    out[i] = key_behind(pool, i > 0 ? &out[i - 1] : NULL, place, ids);
  }
}

void prefix_keys(const block_pool_t *pool, uint64_t domain, const int32_t *token_ids,
                 int32_t num_blocks, block_key_t *out) {
  const request_t request = {.salt = domain, .prompt_ids = token_ids};
  prefix_request_keys(pool, &request, num_blocks, out);
}

static uint32_t bucket_of(const block_pool_t *pool, const block_key_t *key) {
  return (uint32_t)key->word[0] & pool->bucket_mask;
}

static bool stands_at(const block_pool_t *pool, const block_t *block, prefix_place_t place) {
  return block->identity.parent == parent_id(pool, place) &&
         block->identity.place.domain == place.domain;
}

int32_t prefix_find_key(const block_pool_t *pool, const block_key_t *key) {
  int32_t b = pool->buckets[bucket_of(pool, key)];
  while (b && memcmp(&pool->blocks[b].identity.key, key, sizeof *key) != 0)
    b = pool->blocks[b].chain;
  return b ? b : -1;
}

int32_t prefix_find(const block_pool_t *pool, const block_key_t *key, prefix_place_t place,
                    const int32_t *token_ids) {
  size_t bytes = (size_t)pool->block_size * sizeof *token_ids;
  for (int32_t b = pool->buckets[bucket_of(pool, key)]; b; b = pool->blocks[b].chain) {
    const block_t *block = &pool->blocks[b];
    if (memcmp(&block->identity.key, key, sizeof *key) != 0) continue;
    if (stands_at(pool, block, place) && memcmp(ids_of(pool, b), token_ids, bytes) == 0) return b;
  }
  return -1;
}

/* ---- identities ---- */

/* Tells that a block, keyed and with all its rows, is findable, or is so no longer. */
static void tell(const block_pool_t *pool, int32_t block, kv_event_kind_t kind) {
  const block_identity_t *identity = &pool->blocks[block].identity;
  if (pool->events == NULL || !identity->keyed || identity->num_valid < pool->block_size) return;
  kv_event_t event = {.kind = kind,
                      .hash = identity->key.word[0],
                      .has_parent = identity->place.parent != 0,
                      .adapter = identity->place.adapter,
                      .token_ids = &pool->token_ids[(size_t)block * (size_t)pool->block_size]};
  if (event.has_parent) event.parent = pool->blocks[identity->place.parent].identity.key.word[0];
  kv_events_add(pool->events, &event);
}

/* The head of the list of findable blocks at this place. */
static int32_t *children_of(const block_pool_t *pool, prefix_place_t place) {
  if (place.parent) return &pool->blocks[place.parent].first_child;
  return &pool->roots[(uint32_t)(place.domain ^ place.domain >> 32) & pool->bucket_mask];
}

static void identify(block_pool_t *pool, int32_t block, prefix_place_t place) {
  block_t *entry = &pool->blocks[block];
  CHECK(place.parent == 0 || pool->blocks[place.parent].identity.keyed);
  entry->identity = (block_identity_t){
      .unique_id = pool->next_unique_id++,
      .parent = parent_id(pool, place),
      .place = place,
      .owner = entry->identity.owner,
      .depth = 1 + (place.parent ? pool->blocks[place.parent].identity.depth : 0),
  };
  int32_t *head = children_of(pool, place);
  entry->child_prev = 0;
  entry->child_next = *head;
  if (*head) pool->blocks[*head].child_prev = block;
  *head = block;
}

static void set_ids(block_pool_t *pool, int32_t block, const int32_t *token_ids, int32_t first,
                    int32_t last) {
  memcpy(&pool->token_ids[(size_t)block * (size_t)pool->block_size + (size_t)first],
         &token_ids[first], (size_t)(last - first) * sizeof *token_ids);
}

void prefix_publish(block_pool_t *pool, int32_t block, const block_key_t *key, prefix_place_t place,
                    const int32_t *token_ids) {
  block_t *entry = &pool->blocks[block];
  CHECK(!entry->identity.keyed);
  if (!entry->identity.unique_id) identify(pool, block, place);
  CHECK_EQ(entry->identity.place.parent, place.parent);
  entry->identity.keyed = true;
  entry->identity.key = *key;
  set_ids(pool, block, token_ids, 0, pool->block_size);
  uint32_t bucket = bucket_of(pool, key);
  entry->chain = pool->buckets[bucket];
  pool->buckets[bucket] = block;
}

void prefix_note(block_pool_t *pool, int32_t block, prefix_place_t place, const int32_t *token_ids,
                 int32_t rows) {
  block_t *entry = &pool->blocks[block];
  if (!entry->identity.unique_id) identify(pool, block, place);
  if (entry->identity.num_valid >= rows) return;
  set_ids(pool, block, token_ids, entry->identity.num_valid, rows);
  entry->identity.num_valid = rows;
}

void prefix_validate(block_pool_t *pool, int32_t block, int32_t rows) {
  block_identity_t *identity = &pool->blocks[block].identity;
  CHECK_NE(identity->unique_id, 0);
  bool was_full = identity->num_valid == pool->block_size;
  identity->num_valid = rows;
  if (!was_full) tell(pool, block, KV_BLOCK_STORED);
}

prefix_partial_t prefix_find_partial(const block_pool_t *pool, prefix_place_t place,
                                     const int32_t *token_ids, int32_t rows_max) {
  prefix_partial_t best = {0, 0};
  int32_t b = *children_of(pool, place);
  for (int seen = 0; b && seen < PARTIAL_CANDIDATES_MAX; b = pool->blocks[b].child_next, seen++) {
    const block_t *block = &pool->blocks[b];
    if (!stands_at(pool, block, place)) continue;
    const int32_t *ids = ids_of(pool, b);
    int32_t limit = MIN(block->identity.num_valid, rows_max);
    int32_t rows = 0;
    while (rows < limit && ids[rows] == token_ids[rows]) rows++;
    if (rows > best.rows) best = (prefix_partial_t){b, rows};
  }
  return best;
}

static void unkey(block_pool_t *pool, int32_t block) {
  block_t *entry = &pool->blocks[block];
  int32_t *link = &pool->buckets[bucket_of(pool, &entry->identity.key)];
  while (*link != block) link = &pool->blocks[*link].chain;
  *link = entry->chain;
  entry->chain = 0;
  entry->identity.keyed = false;
}

void prefix_withdraw(block_pool_t *pool, int32_t block) {
  block_t *entry = &pool->blocks[block];
  CHECK_NE(entry->identity.unique_id, 0);
  CHECK_EQ(entry->first_child, 0); /* leaves go before their parents */
  tell(pool, block, KV_BLOCK_REMOVED);
  if (pool->snapshots != NULL) snapshots_lose(pool->snapshots, block);
  block_detach(pool, block);
  if (entry->identity.keyed) unkey(pool, block);
  if (entry->child_prev) {
    pool->blocks[entry->child_prev].child_next = entry->child_next;
  } else {
    *children_of(pool, entry->identity.place) = entry->child_next;
  }
  if (entry->child_next) pool->blocks[entry->child_next].child_prev = entry->child_prev;
  entry->child_prev = entry->child_next = 0;
  entry->identity = (block_identity_t){.owner = entry->identity.owner};
}

void prefix_abandon(block_pool_t *pool, int32_t block) {
  block_t *entry = &pool->blocks[block];
  CHECK(entry->identity.keyed);
  CHECK_LT(entry->identity.num_valid, pool->block_size);
  CHECK_EQ(entry->first_child, 0);
  if (entry->identity.num_valid == 0) {
    prefix_withdraw(pool, block);
  } else {
    unkey(pool, block);
  }
}
