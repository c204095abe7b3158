/* swap.c: see swap.h.
 *
 * What is kept of a sequence are the blocks under its computed tokens, those in flight included:
 * their rows are written before the copies read them. Blocks that it holds beyond, for a prompt
 * still to be computed or filled by another, are taken anew when it returns.
 */
#include "engine/schedule/swap.h"

#include "engine/schedule/table.h"

#include <stdlib.h>
#include <string.h>

int swap_new(scheduler_t *s) {
  swap_t *w = &s->swap;
  int32_t count = s->options.swap.num_blocks;
  if (count == 0) return 0;
  w->blocks = calloc((size_t)count, sizeof *w->blocks);
  w->free = calloc((size_t)count, sizeof *w->free);
  s->plan.swaps = calloc((size_t)count, sizeof *s->plan.swaps);
  w->tables = calloc((size_t)s->num_rows * (size_t)s->table_stride, sizeof *w->tables);
  if (w->blocks == NULL || w->free == NULL || s->plan.swaps == NULL || w->tables == NULL) return -1;
  for (int32_t i = count - 1; i >= 0; i--) w->free[w->num_free++] = i;
  return 0;
}

void swap_free(scheduler_t *s) {
  free(s->swap.tables);
  free(s->swap.blocks);
  free(s->swap.free);
  free(s->plan.swaps);
}

int32_t *swap_table(const scheduler_t *s, int32_t row) {
  return s->swap.tables != NULL ? &s->swap.tables[(size_t)row * (size_t)s->table_stride] : NULL;
}

/* ---- out ---- */

static int32_t num_kept(const scheduler_t *s, const sequence_t *q) {
  return sequence_is_live(q) ? scheduler_blocks_for(s, q->num_computed_tokens) : 0;
}

/* The block that holds the content: one that the step being planned was to copy from has it, its
 * copy not yet. */
static int32_t content_of(const scheduler_t *s, const sequence_t *q, int32_t index) {
  for (int32_t c = 0; c < s->plan.num_copies; c++) {
    const plan_copy_t *copy = &s->plan.copies[c];
    if (copy->sequence == q && copy->copy.dst == q->blocks[index]) return copy->copy.src;
  }
  return q->blocks[index];
}

static void clear_marks(const scheduler_t *s, const group_t *g) {
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    for (int32_t i = 0; i < num_kept(s, q); i++) s->pool->blocks[content_of(s, q, i)].mark = 0;
  }
}

static int32_t count_distinct(const scheduler_t *s, const group_t *g) {
  int32_t count = 0;
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    for (int32_t i = 0; i < num_kept(s, q); i++) {
      block_t *b = &s->pool->blocks[content_of(s, q, i)];
      count += b->mark == 0;
      b->mark = 1;
    }
  }
  clear_marks(s, g);
  return count;
}

bool swap_chosen(const scheduler_t *s, const group_t *g) {
  const swap_t *w = &s->swap;
  preemption_mode_t mode = s->options.swap.mode;
  if (w->num_free == 0 || mode == PREEMPT_RECOMPUTE) return false;
  int32_t count = count_distinct(s, g);
  if (count == 0 || count > w->num_free) return false;
  if (mode == PREEMPT_SWAP || group_num_running(g) > 1) return true;
  int32_t tokens = 0;
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    if (sequence_is_live(q)) tokens += q->num_computed_tokens;
  }
  return 2 * w->block_ns * count < w->token_ns * tokens;
}

void swap_out(scheduler_t *s, group_t *g) {
  swap_t *w = &s->swap;
  plan_t *plan = &s->plan;
  int32_t before = plan->num_swap_out;
  for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    for (int32_t i = 0; i < num_kept(s, q); i++) {
      int32_t device = content_of(s, q, i);
      block_t *b = &s->pool->blocks[device];
      if (b->mark == 0) {
        int32_t host = w->free[--w->num_free];
        plan->swaps[plan->num_swap_out++] = (block_swap_t){device, host};
        b->mark = host + 1;
      }
      q->host_blocks[i] = b->mark - 1;
      w->blocks[b->mark - 1].ref_count++;
      q->num_host_blocks = i + 1;
    }
  }
  clear_marks(s, g);
  w->num_groups_out++;
  w->num_blocks_out += (uint64_t)(plan->num_swap_out - before);
}

/* ---- in ---- */

static host_block_t *host_block(const scheduler_t *s, const sequence_t *q, int32_t index) {
  return &s->swap.blocks[q->host_blocks[index]];
}

static void clear_host_marks(const scheduler_t *s, const group_t *g) {
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    for (int32_t i = 0; i < q->num_host_blocks; i++) host_block(s, q, i)->mark = 0;
  }
}

/* Without a look at the cache: each different block once, what is to come, and a copy for every
 * writer of a shared block but the last. */
static int32_t count_need(const scheduler_t *s, const group_t *g) {
  int32_t need = 0, bs = s->pool->block_size;
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    int32_t kept = q->num_host_blocks, next = q->num_computed_tokens / bs;
    if (!sequence_is_live(q)) continue;
    for (int32_t i = 0; i < kept; i++) {
      host_block_t *b = host_block(s, q, i);
      if (b->mark == 0) need++, b->mark = 1;
    }
    int32_t total = scheduler_blocks_for(s, scheduler_tokens_reserved(s, q));
    need += total > kept ? total - kept : 0;
    if (next == kept) continue;
    host_block_t *b = host_block(s, q, next);
    need += ++b->mark <= b->ref_count;
  }
  clear_host_marks(s, g);
  return need;
}

/* Leading blocks of a swapped sequence that the cache has, written to q->blocks and not yet held.
 */
static int32_t find_cached(const scheduler_t *s, sequence_t *q) {
  prefix_match_t match = table_match(s, q);
  int32_t whole = q->num_computed_tokens / s->pool->block_size;
  int32_t found = match.num_valid < whole ? match.num_valid : whole;
  memset(&q->blocks[found], 0, (size_t)(match.num_blocks - found) * sizeof *q->blocks);
  return found;
}

/* Different ones that need no block because somebody holds the same content. */
static int32_t count_held(const scheduler_t *s, const group_t *g) {
  int32_t count = 0;
  for (const sequence_t *p = &g->sequence; p != NULL; p = p->next) {
    sequence_t *q = (sequence_t *)(uintptr_t)p; /* only its empty table is written to */
    int32_t found = sequence_is_live(q) ? find_cached(s, q) : 0;
    for (int32_t i = 0; i < found; i++) {
      host_block_t *b = host_block(s, q, i);
      count += b->mark == 0 && block_is_held(&s->pool->blocks[q->blocks[i]]);
      b->mark = 1;
    }
    if (found > 0) memset(q->blocks, 0, (size_t)found * sizeof *q->blocks);
  }
  clear_host_marks(s, g);
  return count;
}

swap_verdict_t swap_verdict(scheduler_t *s, const group_t *g) {
  int32_t need = count_need(s, g), free = s->pool->num_free;
  if (need > s->pool->num_blocks - 1) return SWAP_NEVER;
  if (s->running.head != NULL) free -= s->options.watermark_blocks;
  return need <= free || need - count_held(s, g) <= free ? SWAP_OK : SWAP_LATER;
}

/* Fills the table of one sequence. What came back whole is findable at once: the copies are made
 * before anything that is planned from now on. */
static void bring(scheduler_t *s, sequence_t *q) {
  plan_t *plan = &s->plan;
  int32_t found = find_cached(s, q);
  for (int32_t i = 0; i < q->num_host_blocks; i++) {
    host_block_t *b = host_block(s, q, i);
    if (b->device == 0 && i >= found) {
      b->device = block_allocate(s->pool);
      CHECK(b->device > 0);
      block_written(s->pool, b->device);
      plan->swaps[plan->num_swap_in++] = (block_swap_t){b->device, q->host_blocks[i]};
    } else {
      if (b->device == 0) b->device = q->blocks[i];
      block_acquire(s->pool, b->device);
    }
    q->blocks[i] = b->device;
    q->num_blocks = i + 1;
  }
  table_claim(s, q, q->num_computed_tokens / s->pool->block_size);
}

void swap_in(scheduler_t *s, group_t *g) {
  int32_t before = s->plan.num_swap_in;
  for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    if (sequence_is_live(q)) bring(s, q);
  }
  for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    swap_release(s, q);
    if (!sequence_is_live(q)) continue;
    table_grow(s, q, scheduler_tokens_reserved(s, q) - q->num_computed_tokens);
    table_claim(s, q, sequence_num_tokens(q) / s->pool->block_size);
  }
  s->swap.num_blocks_in += (uint64_t)(s->plan.num_swap_in - before);
}

void swap_release(scheduler_t *s, sequence_t *q) {
  swap_t *w = &s->swap;
  for (; q->num_host_blocks > 0; q->num_host_blocks--) {
    host_block_t *b = host_block(s, q, q->num_host_blocks - 1);
    CHECK(b->ref_count > 0);
    b->device = 0;
    if (--b->ref_count == 0) w->free[w->num_free++] = q->host_blocks[q->num_host_blocks - 1];
  }
}
