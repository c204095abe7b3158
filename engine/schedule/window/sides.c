/* sides.c: block tables of layers with a sliding window; the contract is in sides.h.
 *
 * Engine thread only; allocates nothing.
 */
#include "engine/schedule/window/sides.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/schedule/table.h"
#include "engine/schedule/window/side_blocks.h"
#include "engine/schedule/window/window.h"

static int32_t count(const scheduler_t *scheduler) {
  return scheduler->pool->num_sides;
}

/* ---- how many ---- */

/* First block that a sequence sees which goes on behind `num_full` full blocks. */
static int32_t first_seen(const scheduler_t *scheduler, int32_t num_full) {
  int32_t reach = DIV_UP(scheduler->options.window.tokens - 1, scheduler->pool->block_size);
  return MAX(num_full - reach, 0);
}

int32_t sides_most(const scheduler_t *scheduler, int64_t num_tokens, int32_t in_flight) {
  if (count(scheduler) == 0) return 0;
  return count(scheduler) * window_blocks(scheduler->pool->block_size,
                                          scheduler->options.window.tokens, num_tokens, in_flight);
}

int32_t sides_need(const scheduler_t *scheduler, const sequence_t *seq, int32_t num_tokens) {
  if (count(scheduler) == 0) return 0;
  int32_t lacks = scheduler_blocks_for(scheduler, num_tokens) - seq->sides.end;
  return count(scheduler) * MAX(lacks, 0);
}

int32_t sides_count_freed(const scheduler_t *scheduler, const sequence_t *seq) {
  int32_t freed = 0;
  for (int32_t i = seq->sides.first; i < seq->sides.end; i++) {
    for (int32_t s = 0; s < count(scheduler); s++) {
      block_t *block = &scheduler->pool->blocks[*sides_at(scheduler, seq, s, i)];
      freed += ++block->mark == block->ref_count && block->pins == 0;
    }
  }
  return freed;
}

void sides_forget_freed(const scheduler_t *scheduler, const sequence_t *seq) {
  for (int32_t i = seq->sides.first; i < seq->sides.end; i++) {
    for (int32_t s = 0; s < count(scheduler); s++)
      scheduler->pool->blocks[*sides_at(scheduler, seq, s, i)].mark = 0;
  }
}

/* ---- taking ---- */

void sides_grow(scheduler_t *scheduler, sequence_t *seq, int32_t num_tokens) {
  if (count(scheduler) == 0) return;
  int32_t end = scheduler_blocks_for(scheduler, num_tokens);
  for (; seq->sides.end < end; seq->sides.end++) {
    for (int32_t s = 0; s < count(scheduler); s++) {
      int32_t block = block_allocate(scheduler->pool);
      CHECK_GT(block, 0);
      block_use(scheduler->pool, block, scheduler_owner(scheduler, seq));
      block_written(scheduler->pool, block);
      *sides_at(scheduler, seq, s, seq->sides.end) = block;
      scheduler->num_walked++;
    }
  }
}

static int32_t parent_of(const block_pool_t *pool, int32_t block) {
  return pool->blocks[block].identity.place.parent;
}

int32_t sides_agree(const scheduler_t *scheduler, int32_t block, int32_t num_full) {
  const block_pool_t *pool = scheduler->pool;
  int32_t agreed = num_full;
  for (int32_t i = num_full - 1; i >= first_seen(scheduler, agreed);
       i--, block = parent_of(pool, block)) {
    if (!block_has_sides(pool, block)) agreed = i;
  }
  return agreed;
}

void sides_take(scheduler_t *scheduler, sequence_t *seq, int32_t num_full) {
  if (count(scheduler) == 0) return;
  int32_t first = first_seen(scheduler, num_full), from = MAX(first, seq->sides.end);
  for (int32_t i = from; i < num_full; i++) {
    for (int32_t s = 0; s < count(scheduler); s++) {
      int32_t block = block_sides(scheduler->pool, seq->blocks[i])[s];
      CHECK_GT(block, 0);
      block_acquire(scheduler->pool, block);
      block_use(scheduler->pool, block, scheduler_owner(scheduler, seq));
      *sides_at(scheduler, seq, s, i) = block;
    }
  }
  sides_leave(scheduler, seq, num_full);
  seq->sides.end = MAX(seq->sides.end, num_full);
}

bool sides_can_pass(const scheduler_t *scheduler, const sequence_t *seq, int32_t num_full) {
  if (count(scheduler) == 0) return true;
  int32_t from = MAX(first_seen(scheduler, num_full), seq->sides.end);
  for (int32_t i = num_full - 1; i >= from; i--) {
    if (!block_has_sides(scheduler->pool, seq->blocks[i])) return false;
  }
  return true;
}

/* ---- sharing ---- */

void sides_attach(scheduler_t *scheduler, const sequence_t *seq, int32_t index, bool missing) {
  if (index < seq->sides.first || index >= seq->sides.end) return;
  for (int32_t s = 0; s < count(scheduler); s++) {
    if (missing && block_sides(scheduler->pool, seq->blocks[index])[s] != 0) continue;
    block_attach(scheduler->pool, seq->blocks[index], s, *sides_at(scheduler, seq, s, index));
  }
}

void sides_fork(scheduler_t *scheduler, const sequence_t *parent, sequence_t *child) {
  if (count(scheduler) == 0) return;
  child->sides.first = parent->sides.first;
  child->sides.end = MIN(parent->sides.end, child->num_blocks);
  for (int32_t i = child->sides.first; i < child->sides.end; i++) {
    for (int32_t s = 0; s < count(scheduler); s++) {
      int32_t block = *sides_at(scheduler, parent, s, i);
      block_acquire(scheduler->pool, block);
      *sides_at(scheduler, child, s, i) = block;
    }
  }
}

/* ---- giving back ---- */

void sides_release(scheduler_t *scheduler, sequence_t *seq, int32_t index) {
  if (index < seq->sides.first || index >= seq->sides.end) return;
  for (int32_t s = 0; s < count(scheduler); s++) {
    int32_t *entry = sides_at(scheduler, seq, s, index);
    block_release(scheduler->pool, *entry);
    *entry = 0;
  }
}

void sides_leave(scheduler_t *scheduler, sequence_t *seq, int32_t num_full) {
  if (count(scheduler) == 0) return;
  int32_t first = first_seen(scheduler, num_full);
  while (seq->sides.first < MIN(first, seq->sides.end)) {
    sides_release(scheduler, seq, seq->sides.first);
    seq->sides.first++;
  }
  if (seq->sides.first < first && seq->sides.end <= first)
    seq->sides.first = seq->sides.end = first;
}
