/* check_pool.c: I1, and the content half of I8, looked at in the block pool after every iteration.
 *
 * Holders and pins are counted anew from the block tables each time, and so is what is neither held
 * nor free. Each block that is held, or was after the iteration before, is looked at: its counts,
 * its identity, its key when it is new, and its content, which is compared with the shadow store
 * when more of it is said to be valid. In one of WALK_ONE_IN iterations, drawn from the seed, and
 * when a run has ended, the whole pool is walked: the free queue and its order, blocks that nobody
 * holds, and every key, because a change of one chain can lose another key of it. One thread.
 */
#include "engine/base/random.h"
#include "engine/schedule/window/side_blocks.h"
#include "tests/sim/floor.h"
#include "tests/sim/oracle.h"

#include <string.h>

enum { BLOCKS_MAX = 2048, WALK_ONE_IN = 8 };

typedef struct checked {
  uint64_t unique_id;
  int32_t rows; /* whose content was compared */
  bool keyed;   /* its key was looked up */
} checked_t;

/* Blocks that are held after an iteration, each once. */
typedef struct held {
  int32_t blocks[BLOCKS_MAX], count;
} held_t;

static int32_t references[BLOCKS_MAX]; /* table entries that name the block */
static int32_t pins[BLOCKS_MAX];       /* copies in flight that read it */
static held_t held[2];                 /* now and after the iteration before, in turn */
static int now;
static int32_t num_sharers;       /* sequences that say that they are listed */
static int32_t place[BLOCKS_MAX]; /* in the free queue, 0 = not there; of the last walk */
static checked_t checked[BLOCKS_MAX];
static uint64_t last_unique_id; /* of the last walk: the map may have changed since */
static int32_t last_num_keyed;

static bool is_held(int32_t b) {
  return references[b] > 0 || pins[b] > 0;
}

static void hold(int32_t b, int32_t *count) {
  held_t *list = &held[now];
  if (!is_held(b)) list->blocks[list->count++] = b;
  ++*count;
}

static void count_sides(const sequence_t *q) {
  const int32_t stride = sim.engine->scheduler->table_stride;
  for (int32_t s = 0; s < sim.engine->pool->num_sides && q->num_blocks > 0; s++) {
    for (int32_t i = 0; i < stride; i++) {
      int32_t side = q->blocks[(s + 1) * stride + i];
      REQUIRE((side > 0) == (i >= q->sides.first && i < q->sides.end),
              "I1: block %d of group %d is %d, those from %d to %d are held", i, s + 1, side,
              q->sides.first, q->sides.end);
      if (side > 0) hold(side, &references[side]);
    }
  }
}

static void count_references(const group_queue_t *queue) {
  for (const group_t *g = queue->head; g; g = g->next) {
    for (const sequence_t *q = &g->sequence; q; q = q->next) {
      for (int32_t i = 0; i < q->num_blocks; i++) {
        const sequence_t *filler = sim.engine->pool->blocks[q->blocks[i]].filler;
        hold(q->blocks[i], &references[q->blocks[i]]);
        REQUIRE(!filler || filler == q || q->is_sharer,
                "I1: who shares block %d, which another fills, is not listed", q->blocks[i]);
      }
      num_sharers += q->is_sharer;
      count_sides(q);
    }
  }
}

static void check_sharers(const scheduler_t *s) {
  const sequence_t *last = NULL;
  int32_t count = 0;
  for (const sequence_t *q = s->sharers; q && count <= num_sharers; last = q, q = q->sharer_next)
    count += q->is_sharer && q->sharer_prev == last;
  REQUIRE(count == num_sharers && last == s->last_sharer,
          "I1: %d sequences are listed as sharers, counted %d", count, num_sharers);
}

/* A copy pins its source until its step is committed. */
static void count_pins(const engine_t *e) {
  const plan_t *plans[STEPS_IN_FLIGHT_MAX + 1] = {&e->scheduler->plan};
  for (int i = 0; i < STEPS_IN_FLIGHT_MAX; i++) plans[i + 1] = &e->steps[i].plan;
  for (int i = 0; i <= STEPS_IN_FLIGHT_MAX; i++) {
    for (int32_t c = 0; c < plans[i]->num_copies; c++) {
      int32_t source = plans[i]->copies[c].copy.src;
      hold(source, &pins[source]);
    }
  }
}

static int32_t check_free_queue(const block_pool_t *pool, int32_t owner, int32_t *num_cached) {
  const free_queue_t *queue = &pool->free.of[owner];
  int32_t count = 0, previous = 0;
  for (int32_t b = queue->head; b; b = pool->blocks[b].next) {
    const block_t *block = &pool->blocks[b];
    bool is_cached = block->identity.unique_id != 0 || block->side_of != 0;
    REQUIRE(b > 0 && b < pool->num_blocks && place[b] == 0, "I1: block %d is in a queue twice", b);
    REQUIRE(block->ref_count == 0 && block->pins == 0 && block->prev == previous &&
                block->queue == owner && (is_cached ? block->identity.owner : 0) == owner,
            "I1: block %d in the free queue of %d", b, owner);
    place[b] = ++count;
    *num_cached += is_cached;
    previous = b;
  }
  REQUIRE(previous == queue->tail && count == queue->count, "I1: the queue of %d has %d, not %d",
          owner, count, queue->count);
  return count;
}

static int32_t owners_end(void) {
  return 2 + sim.engine->scheduler->waiting.tenants.num_used;
}

/* The first of the heap has the most for its weight; who has nothing free is not there. */
static void check_owners(const free_queues_t *free) {
  const free_queue_t *top = &free->of[free->heap[0]];
  int32_t num_used = 0;
  for (int32_t owner = 1; owner < owners_end(); owner++) {
    const free_queue_t *queue = &free->of[owner];
    if (queue->count == 0) continue;
    num_used++;
    REQUIRE(top->weight == 0 || (queue->weight > 0 && (uint64_t)queue->count * top->weight <=
                                                          (uint64_t)top->count * queue->weight),
            "owner %d has %d of weight %u, the first %d of %u", owner, queue->count, queue->weight,
            top->count, top->weight);
  }
  REQUIRE(num_used == free->num_used, "%d owners in the heap of %d", free->num_used, num_used);
}

static void check_free_queues(const block_pool_t *pool) {
  int32_t count = 0, num_cached = 0;
  for (int32_t owner = 0; owner < owners_end(); owner++)
    if (pool->free.of[owner].head != 0) count += check_free_queue(pool, owner, &num_cached);
  if (pool->free.num_used > 0) check_owners(&pool->free);
  REQUIRE(count == pool->num_free && num_cached == pool->num_cached,
          "I1: %d free blocks, %d of them cached; counted %d and %d", pool->num_free,
          pool->num_cached, count, num_cached);
}

/* What admissions that go on were promised, by whom; and it is there. */
static void check_promises(const scheduler_t *s) {
  int32_t num_open = 0, promised = 0;
  for (const group_t *g = s->running.head; g; g = g->next) {
    const slices_t *slices = &g->sequence.slices;
    int32_t lacks = slices->total > 0 ? slices->total - g->sequence.num_blocks : 0;
    num_open += slices->total > 0;
    promised += slices->promised;
    REQUIRE(slices->total == 0 || lacks > 0, "request %d lacks no block and is open",
            check_track(&g->sequence)->index);
    REQUIRE(slices->promised >= 0 && slices->promised <= lacks,
            "request %d lacks %d blocks, %d are promised", check_track(&g->sequence)->index, lacks,
            slices->promised);
  }
  REQUIRE(num_open == s->slices.num_open && promised == s->slices.promised &&
              promised <= s->pool->num_free,
          "I1: %d admissions go on, with %d of %d free blocks; counted %d and %d",
          s->slices.num_open, s->slices.promised, s->pool->num_free, num_open, promised);
}

/* Rows that are said to be valid hold what their ids say: the shadow store agrees. */
static void check_content(const block_pool_t *pool, int32_t b) {
  const block_identity_t *id = &pool->blocks[b].identity;
  int32_t bs = pool->block_size, parent = id->place.parent;
  if (checked[b].unique_id != id->unique_id) checked[b] = (checked_t){.unique_id = id->unique_id};
  const int32_t *ids = &pool->token_ids[(size_t)b * (size_t)bs];
  const uint64_t *have = device_rows(b);
  for (int32_t i = checked[b].rows; i < id->num_valid; i++) {
    uint64_t before = parent ? device_rows(parent)[bs - 1] : 0;
    if (i > 0) before = have[i - 1];
    const int32_t adapter = id->place.adapter; /* it may begin in the block */
    bool right = i == 0 && !parent
                     ? have[0] != 0
                     : oracle_follows(have[i], before, ids[i], adapter > 0 ? adapter : 1, adapter);
    REQUIRE(right, "I8: block %d has %d valid rows and slot %d holds something else", b,
            id->num_valid, i);
  }
  checked[b].rows = id->num_valid;
}

/* The side blocks of a block hold the same rows as it, and nobody else's. */
static void check_sides(const block_pool_t *pool, int32_t b) {
  const block_t *block = &pool->blocks[b];
  int32_t num_named = 0;
  if (block->side_of != 0) {
    const int32_t *named = block_sides(pool, block->side_of);
    for (int32_t s = 0; s < pool->num_sides; s++) num_named += named[s] == b;
    REQUIRE(num_named == 1 && !block->identity.unique_id,
            "I1: block %d is at the side of block %d, which names it %d times", b, block->side_of,
            num_named);
  }
  for (int32_t s = 0; s < pool->num_sides; s++) {
    int32_t side = block_sides(pool, b)[s];
    if (side == 0) continue;
    REQUIRE(pool->blocks[side].side_of == b && block->identity.unique_id,
            "I1: block %d names block %d, which is at the side of block %d", b, side,
            pool->blocks[side].side_of);
    size_t bytes = (size_t)block->identity.num_valid * sizeof(uint64_t);
    REQUIRE(memcmp(device_rows(b), device_rows(side), bytes) == 0,
            "I8: block %d has %d valid rows and its side block %d others", b,
            block->identity.num_valid, side);
  }
}

static void check_key(const block_pool_t *pool, int32_t b) {
  const block_identity_t *id = &pool->blocks[b].identity;
  const int32_t *ids = &pool->token_ids[(size_t)b * (size_t)pool->block_size];
  int32_t found = prefix_find(pool, &id->key, id->place, ids);
  REQUIRE(found == b, "I1: block %d is keyed and its key finds %d", b, found);
}

static void check_map(const block_pool_t *pool) {
  for (int32_t b = 1; b < pool->num_blocks; b++) {
    if (pool->blocks[b].identity.keyed) check_key(pool, b);
  }
}

static void check_block(const block_pool_t *pool, int32_t b) {
  const block_t *block = &pool->blocks[b];
  const block_identity_t *id = &block->identity;
  REQUIRE(block->ref_count == references[b], "I1: block %d has %d holders, its count is %d", b,
          references[b], block->ref_count);
  REQUIRE(block->pins == pins[b], "I1: %d copies read block %d, its count is %d", pins[b], b,
          block->pins);
  REQUIRE(!block->filler || (id->keyed && block->ref_count > 0), "block %d has a filler", b);
  if (!id->unique_id) {
    checked[b].keyed = false;
    return;
  }
  int32_t parent = id->place.parent;
  /* Without a cache only forks find each other's blocks. */
  REQUIRE(pool->caching || is_held(b), "block %d is cached without a cache", b);
  REQUIRE(!id->keyed || block->filler || id->num_valid == pool->block_size,
          "block %d is keyed, not full, and nobody fills it", b);
  REQUIRE(id->num_valid == 0 || !block->saved.unique_id,
          "block %d has %d valid rows and could be reverted", b, id->num_valid);
  REQUIRE(!parent || references[b] == 0 || is_held(parent),
          "I1: block %d is held and its parent %d is not", b, parent);
  const block_identity_t *before_it = &pool->blocks[parent].identity;
  REQUIRE(parent ? before_it->keyed && before_it->unique_id == id->parent : id->parent == 0,
          "I1: the parent of block %d was evicted before it", b);
  REQUIRE(id->depth == 1 + before_it->depth, "block %d is of depth %d, its parent of %d", b,
          id->depth, before_it->depth);
  check_content(pool, b);
  if (id->keyed && !checked[b].keyed) check_key(pool, b);
  checked[b].keyed = id->keyed;
}

/* All that is held, or was after the iteration before; and no block is lost. */
static void check_held(const block_pool_t *pool) {
  const held_t *list = &held[now], *before = &held[!now];
  for (int32_t i = 0; i < list->count; i++) {
    check_block(pool, list->blocks[i]);
    check_sides(pool, list->blocks[i]);
  }
  for (int32_t i = 0; i < before->count; i++) {
    if (is_held(before->blocks[i])) continue;
    check_block(pool, before->blocks[i]);
    check_sides(pool, before->blocks[i]);
  }
  REQUIRE(list->count + pool->num_free == pool->num_blocks - 1,
          "I1: %d blocks are held, %d are free, of %d", list->count, pool->num_free,
          pool->num_blocks - 1);
}

static void check_place(const block_pool_t *pool, int32_t b) {
  int32_t parent = pool->blocks[b].identity.place.parent;
  REQUIRE(is_held(b) == (place[b] == 0), "I1: block %d is free and held, or lost", b);
  bool one_owner = !scenario_has(sim.scenario, SIM_QUOTAS); /* else a parent may be passed on */
  REQUIRE(!pool->blocks[b].identity.unique_id || !parent || !place[b] || !place[parent] ||
              place[b] < place[parent] || !one_owner,
          "I1: block %d stands behind its parent %d", b, parent);
}

static void walk(const block_pool_t *pool) {
  int32_t num_keyed = 0;
  memset(place, 0, (size_t)pool->num_blocks * sizeof *place);
  check_free_queues(pool);
  for (int32_t b = 1; b < pool->num_blocks; b++) {
    check_block(pool, b);
    check_sides(pool, b);
    check_place(pool, b);
    num_keyed += pool->blocks[b].identity.keyed;
  }
  bool same = pool->next_unique_id - 1 == last_unique_id && num_keyed == last_num_keyed;
  if (!same) check_map(pool);
  last_unique_id = pool->next_unique_id - 1;
  last_num_keyed = num_keyed;
}

bool check_walks(void) {
  return random_mix(sim.scenario->seed * RANDOM_GAMMA + sim.iteration) % WALK_ONE_IN == 0;
}

void check_pool_begin(void) {
  last_unique_id = 0;
  last_num_keyed = now = 0;
  held[0].count = held[1].count = 0;
  memset(references, 0, sizeof references);
  memset(pins, 0, sizeof pins);
  memset(checked, 0, sizeof checked);
  REQUIRE(sim.engine->pool->num_blocks <= BLOCKS_MAX, "the scenario is larger than the checks");
}

void check_pool(const engine_t *e, bool all) {
  const block_pool_t *pool = e->pool;
  for (int32_t i = 0; i < held[now].count; i++)
    references[held[now].blocks[i]] = pins[held[now].blocks[i]] = 0;
  now = !now;
  held[now].count = num_sharers = 0;
  count_pins(e);
  count_references(&e->scheduler->running);
  count_references(&e->scheduler->waiting.queue);
  count_references(&e->scheduler->swapped);
  check_sharers(e->scheduler);
  check_promises(e->scheduler);
  REQUIRE(!is_held(0) && pool->blocks[0].ref_count == 0 && !pool->blocks[0].identity.unique_id,
          "I1: the null block is in use");
  check_held(pool);
  if (all) walk(pool);
  floor_check_all(e);
}
