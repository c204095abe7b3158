/* block.c: reference counts and the free queue of KV blocks.
 *
 * Engine thread only. Never touches KV memory and never allocates after block_pool_new.
 */
#include "engine/block.h"

#include <stdlib.h>
#include <string.h>

static void free_queue_insert(block_pool_t *pool, int32_t block, bool at_tail) {
  block_t *b = &pool->blocks[block];
  if (at_tail) {
    b->prev = pool->free_tail;
    b->next = 0;
    if (pool->free_tail) pool->blocks[pool->free_tail].next = block;
    pool->free_tail = block;
    if (!pool->free_head) pool->free_head = block;
  } else {
    b->next = pool->free_head;
    b->prev = 0;
    if (pool->free_head) pool->blocks[pool->free_head].prev = block;
    pool->free_head = block;
    if (!pool->free_tail) pool->free_tail = block;
  }
  pool->num_free++;
}

static void free_queue_remove(block_pool_t *pool, int32_t block) {
  block_t *b = &pool->blocks[block];
  if (b->prev) {
    pool->blocks[b->prev].next = b->next;
  } else {
    pool->free_head = b->next;
  }
  if (b->next) {
    pool->blocks[b->next].prev = b->prev;
  } else {
    pool->free_tail = b->prev;
  }
  b->prev = b->next = 0;
  pool->num_free--;
}

int block_pool_new(int32_t num_blocks, int32_t block_size, bool caching, const uint64_t secret[2],
                   block_pool_t **out, error_t *error) {
  CHECK(num_blocks >= 2 && block_size >= 1);
  uint32_t num_buckets = 1;
  while (num_buckets < (uint32_t)num_blocks) num_buckets *= 2;
  block_pool_t *pool = calloc(1, sizeof *pool);
  if (pool) {
    pool->blocks = calloc((size_t)num_blocks, sizeof *pool->blocks);
    pool->token_ids = calloc((size_t)num_blocks, (size_t)block_size * sizeof *pool->token_ids);
    pool->buckets = calloc(num_buckets, sizeof *pool->buckets);
  }
  if (!pool || !pool->blocks || !pool->token_ids || !pool->buckets) {
    block_pool_free(pool);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the records of %d KV blocks",
                     num_blocks);
  }
  pool->num_blocks = num_blocks;
  pool->block_size = block_size;
  pool->caching = caching;
  pool->bucket_mask = num_buckets - 1;
  pool->secret[0] = secret[0];
  pool->secret[1] = secret[1];
  pool->next_unique_id = 1;
  for (int32_t b = 1; b < num_blocks; b++) free_queue_insert(pool, b, true);
  *out = pool;
  return 0;
}

void block_pool_free(block_pool_t *pool) {
  if (!pool) return;
  free(pool->blocks);
  free(pool->token_ids);
  free(pool->buckets);
  free(pool);
}

int32_t block_allocate(block_pool_t *pool) {
  int32_t block = pool->free_head;
  if (!block) return -1;
  free_queue_remove(pool, block);
  block_t *b = &pool->blocks[block];
  CHECK(b->ref_count == 0);
  if (b->published) {
    pool->num_cached--;
    prefix_withdraw(pool, block);
  }
  b->ref_count = 1;
  return block;
}

void block_acquire(block_pool_t *pool, int32_t block) {
  CHECK(block > 0 && block < pool->num_blocks);
  block_t *b = &pool->blocks[block];
  if (b->ref_count == 0) {
    CHECK(b->published); /* an empty block has nothing to share */
    free_queue_remove(pool, block);
    pool->num_cached--;
  }
  b->ref_count++;
}

void block_release(block_pool_t *pool, int32_t block) {
  CHECK(block > 0 && block < pool->num_blocks);
  block_t *b = &pool->blocks[block];
  CHECK(b->ref_count > 0);
  if (--b->ref_count > 0) return;
  if (b->published) pool->num_cached++;
  free_queue_insert(pool, block, b->published);
}

void block_pool_check(const block_pool_t *pool) {
  int32_t num_free = 0, num_cached = 0, previous = 0;
  for (int32_t b = pool->free_head; b; b = pool->blocks[b].next) {
    const block_t *block = &pool->blocks[b];
    CHECK(b > 0 && b < pool->num_blocks && block->ref_count == 0 && block->prev == previous);
    CHECK(++num_free < pool->num_blocks);
    if (block->published) num_cached++;
    /* leaf first: no cached child behind its cached parent */
    for (int32_t c = block->next; block->published && c; c = pool->blocks[c].next) {
      CHECK(!pool->blocks[c].published || pool->blocks[c].parent != block->unique_id);
    }
    previous = b;
  }
  CHECK(previous == pool->free_tail && num_free == pool->num_free &&
        num_cached == pool->num_cached);
  int32_t num_owned = 0;
  for (int32_t b = 1; b < pool->num_blocks; b++) num_owned += pool->blocks[b].ref_count > 0;
  CHECK(num_owned + num_free == pool->num_blocks - 1);
  CHECK(pool->blocks[0].ref_count == 0 && !pool->blocks[0].published);
}
