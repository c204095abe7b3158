/* free_queues.c: the queues of free blocks and the heap of their owners; see free_queues.h. */
#include "engine/schedule/free_queues.h"

#include "engine/base/check.h"
#include "engine/schedule/block.h"

/* ---- whose turn it is ---- */

static bool goes_before(const free_queue_t *left, const free_queue_t *right) {
  uint64_t one = (uint64_t)left->count * right->weight,
           other = (uint64_t)right->count * left->weight;
  if (left->weight == 0 || right->weight == 0) return left->weight < right->weight;
  return one > other;
}

static void set_place(free_queues_t *free, int32_t at, int32_t owner) {
  free->heap[at] = owner;
  free->of[owner].place = 1 + at;
}

static bool goes_before_at(const free_queues_t *free, int32_t left, int32_t right) {
  return goes_before(&free->of[free->heap[left]], &free->of[free->heap[right]]);
}

static void swap_places(free_queues_t *free, int32_t at, int32_t other) {
  int32_t owner = free->heap[at];
  set_place(free, at, free->heap[other]);
  set_place(free, other, owner);
}

static void settle(free_queues_t *free, int32_t at) {
  for (; at > 0 && goes_before_at(free, at, (at - 1) / 2); at = (at - 1) / 2)
    swap_places(free, at, (at - 1) / 2);
  for (int32_t child; (child = 2 * at + 1) < free->num_used; at = child) {
    if (child + 1 < free->num_used && goes_before_at(free, child + 1, child)) child++;
    if (!goes_before_at(free, child, at)) return;
    swap_places(free, at, child);
  }
}

/* The queue has one block more, one less, or another weight. */
static void update(free_queues_t *free, int32_t owner) {
  free_queue_t *queue = &free->of[owner];
  if (owner == BLOCK_OF_NOBODY) return;
  if (queue->count > 0) {
    if (queue->place == 0) set_place(free, free->num_used++, owner);
    settle(free, queue->place - 1);
  } else if (queue->place != 0) {
    int32_t at = queue->place - 1, last = --free->num_used;
    queue->place = 0;
    if (at == last) return;
    set_place(free, at, free->heap[last]);
    settle(free, at);
  }
}

void free_queues_set_weight(block_pool_t *pool, int32_t owner, uint32_t weight) {
  free_queue_t *queue = &pool->free.of[owner];
  CHECK_RANGE(owner, 1, BLOCK_OWNERS_MAX);
  if (queue->weight == weight) return;
  queue->weight = weight;
  update(&pool->free, owner);
}

int32_t free_queues_head(const block_pool_t *pool) {
  const free_queues_t *free = &pool->free;
  int32_t owner = free->num_used > 0 ? free->heap[0] : BLOCK_OF_NOBODY;
  if (free->of[BLOCK_OF_NOBODY].count > 0) owner = BLOCK_OF_NOBODY;
  return free->of[owner].head;
}

/* ---- the queues ---- */

static void insert(block_pool_t *pool, int32_t block, int32_t owner, int32_t prev, int32_t next) {
  free_queue_t *queue = &pool->free.of[owner];
  block_t *entry = &pool->blocks[block];
  entry->prev = prev;
  entry->next = next;
  entry->queue = owner;
  *(prev != 0 ? &pool->blocks[prev].next : &queue->head) = block;
  *(next != 0 ? &pool->blocks[next].prev : &queue->tail) = block;
  queue->count++;
  pool->num_free++;
  update(&pool->free, owner);
}

void free_queue_append(block_pool_t *pool, int32_t block, int32_t owner) {
  insert(pool, block, owner, pool->free.of[owner].tail, 0);
}

void free_queue_push(block_pool_t *pool, int32_t block, int32_t owner) {
  insert(pool, block, owner, 0, pool->free.of[owner].head);
}

void free_queue_insert_behind(block_pool_t *pool, int32_t block, int32_t before) {
  const block_t *entry = &pool->blocks[before];
  insert(pool, block, entry->queue, before, entry->next);
}

void free_queue_remove(block_pool_t *pool, int32_t block) {
  block_t *entry = &pool->blocks[block];
  free_queue_t *queue = &pool->free.of[entry->queue];
  *(entry->prev != 0 ? &pool->blocks[entry->prev].next : &queue->head) = entry->next;
  *(entry->next != 0 ? &pool->blocks[entry->next].prev : &queue->tail) = entry->prev;
  entry->prev = entry->next = 0;
  queue->count--;
  pool->num_free--;
  update(&pool->free, entry->queue);
}
