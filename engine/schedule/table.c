/* table.c: see table.h.
 *
 * Only a block's filler writes into it. A block without one is written by whoever stands at its
 * next row; if a fork shares it, the writer takes a copy first, and the last holder writes in
 * place.
 */
#include "engine/schedule/table.h"

#include <string.h>

/* ---- rows ---- */

static void take_row(scheduler_t *s, sequence_t *q) {
  q->row = s->free_rows[--s->num_free_rows];
  q->tokens = &s->token_table[(size_t)q->row * (size_t)s->options.max_model_len];
  q->blocks = &s->block_table[(size_t)q->row * (size_t)s->table_stride];
  q->host_blocks = swap_table(s, q->row);
  q->detokenizer.held = &s->held_text[(size_t)q->row * STOP_STRING_BYTES_MAX];
}

bool table_take_rows(scheduler_t *s, group_t *group) {
  int32_t count = params_num_sequences(&group->request->params);
  if (s->num_free_rows < count) return false;
  sequence_t *first = &group->sequence, *last = first;
  take_row(s, first);
  memcpy(first->tokens, group->request->prompt_ids,
         (size_t)first->num_prompt_tokens * sizeof *first->tokens);
  for (int32_t i = 1; i < count; i++) {
    sequence_t *q = s->free_sequences;
    CHECK(q); /* as many as rows */
    s->free_sequences = q->next;
    sequence_init(q, group, i);
    q->detokenizer = first->detokenizer;
    take_row(s, q);
    last->next = q;
    last = q;
  }
  return true;
}

void table_give_row(scheduler_t *s, sequence_t *q) {
  if (q->row < 0) return;
  s->free_rows[s->num_free_rows++] = q->row;
  q->row = -1;
  q->tokens = NULL;
  q->blocks = q->host_blocks = NULL;
}

void table_give_rows(scheduler_t *s, group_t *group) {
  table_give_row(s, &group->sequence);
  for (sequence_t *q = group->sequence.next, *next; q != NULL; q = next) {
    next = q->next;
    table_give_row(s, q);
    q->next = s->free_sequences;
    s->free_sequences = q;
  }
  group->sequence.next = NULL;
}

/* ---- the prefix cache ---- */

/* Without a cache the sequences of one group still share by content, or a preempted group of forks
 * might never fit again: then a group is a domain of its own, and forgotten with its blocks. */
static prefix_place_t place_of(const scheduler_t *s, const sequence_t *q, int32_t index) {
  if (index > 0) return (prefix_place_t){.parent = q->blocks[index - 1]};
  const group_t *group = q->group;
  return (prefix_place_t){.domain = s->pool->caching ? group->request->salt : group->arrival};
}

static bool shares_content(const scheduler_t *s, const sequence_t *q) {
  return s->pool->caching || q->group->forked;
}

/* A request that scores its prompt needs the logits of every position once. */
static bool may_match(const scheduler_t *s, const sequence_t *q) {
  const group_t *group = q->group;
  bool scored = group->request->params.num_prompt_logprobs < 0 ||
                group->sequence.num_scored >= q->num_prompt_tokens - 1;
  return shares_content(s, q) && scored;
}

static const int32_t *ids_at(const scheduler_t *s, const sequence_t *q, int32_t index) {
  return &q->tokens[(size_t)index * (size_t)s->pool->block_size];
}

/* The longest run of known full blocks. The last token is never taken from the cache: it yields the
 * logits. */
prefix_match_t table_match(const scheduler_t *s, sequence_t *q) {
  prefix_match_t match = {0};
  const block_pool_t *pool = s->pool;
  int32_t bs = pool->block_size, last = sequence_num_tokens(q) - 1;
  if (!may_match(s, q)) return match;
  while ((match.num_blocks + 1) * bs <= last) {
    int32_t i = match.num_blocks;
    prefix_place_t place = place_of(s, q, i);
    block_key_t key = prefix_key(pool, place, ids_at(s, q, i));
    int32_t block = prefix_find(pool, &key, place, ids_at(s, q, i));
    if (block < 0) break;
    const block_t *b = &pool->blocks[block];
    q->blocks[match.num_blocks++] = block;
    match.num_unused += !block_is_held(b);
    if (match.num_valid == i && b->identity.num_valid == bs) match.num_valid++;
  }
  match.num_cached = match.num_valid * bs;
  if (match.num_valid < match.num_blocks || !pool->caching) return match;
  int32_t i = match.num_blocks, rows_max = last - i * bs < bs ? last - i * bs : bs;
  match.partial = prefix_find_partial(pool, place_of(s, q, i), ids_at(s, q, i), rows_max);
  if (match.partial.rows == 0) return match;
  match.num_cached += match.partial.rows;
  match.num_unused += !block_is_held(&pool->blocks[match.partial.block]);
  return match;
}

void table_match_whole(const scheduler_t *s, prefix_match_t *match) {
  if (match->partial.rows == 0) return;
  match->num_cached -= match->partial.rows;
  match->num_unused -= !block_is_held(&s->pool->blocks[match->partial.block]);
  match->partial.rows = 0;
}

static void plan_copy(scheduler_t *s, sequence_t *q, int32_t src, int32_t dst, int32_t rows) {
  block_pin(s->pool, src);
  block_written(s->pool, dst);
  s->plan.copies[s->plan.num_copies++] = (plan_copy_t){{src, dst, rows}, q};
}

void table_claim(scheduler_t *s, sequence_t *q, int32_t num_full) {
  block_pool_t *pool = s->pool;
  int32_t bs = pool->block_size;
  if (!shares_content(s, q)) return;
  while (q->num_published < num_full && q->num_published < q->num_blocks) {
    int32_t i = q->num_published;
    block_t *b = &pool->blocks[q->blocks[i]];
    if (!b->identity.keyed) { /* else it was found, or a fork was faster */
      prefix_place_t place = place_of(s, q, i);
      block_key_t key = prefix_key(pool, place, ids_at(s, q, i));
      if (prefix_find(pool, &key, place, ids_at(s, q, i)) >= 0) return;
      prefix_publish(pool, q->blocks[i], &key, place, ids_at(s, q, i));
      bool whole = (i + 1) * bs <= q->num_computed_tokens;
      if (whole) b->identity.num_valid = bs;
      b->filler = whole ? NULL : q;
    }
    q->num_published++;
  }
}

void table_admit(scheduler_t *s, sequence_t *q, const prefix_match_t *match, int32_t num_tokens) {
  int32_t bs = s->pool->block_size;
  for (int32_t i = 0; i < match->num_blocks; i++) block_acquire(s->pool, q->blocks[i]);
  q->num_blocks = q->num_published = match->num_blocks;
  q->num_computed_tokens = match->num_valid * bs;
  if (match->partial.rows > 0) block_pin(s->pool, match->partial.block); /* or growth may take it */
  table_grow(s, q, num_tokens - q->num_computed_tokens);
  if (match->partial.rows > 0) {
    plan_copy(s, q, match->partial.block, q->blocks[match->num_blocks], match->partial.rows);
    block_unpin(s->pool, match->partial.block);
    q->num_computed_tokens += match->partial.rows;
  }
  table_claim(s, q, sequence_num_tokens(q) / bs);
}

/* What the chunk computed in blocks that this sequence fills is valid now. */
static void validate(scheduler_t *s, const plan_entry_t *entry) {
  int32_t bs = s->pool->block_size;
  const sequence_t *q = entry->sequence;
  int32_t end = entry->num_computed + entry->num_tokens;
  for (int32_t i = entry->num_computed / bs; i * bs < end; i++) {
    block_t *b = &s->pool->blocks[q->blocks[i]];
    if (b->filler != q) continue;
    b->identity.num_valid = end - i * bs < bs ? end - i * bs : bs;
    if (b->identity.num_valid == bs) b->filler = NULL;
  }
}

/* Same content, same bits: keep the older copy, give ours back. */
static void exchange(scheduler_t *s, sequence_t *q, int32_t index, int32_t twin) {
  int32_t block = q->blocks[index];
  const block_t *b = &s->pool->blocks[block];
  block_acquire(s->pool, twin);
  q->blocks[index] = twin;
  if (b->ref_count == 1 && b->identity.unique_id) prefix_withdraw(s->pool, block);
  block_release(s->pool, block);
}

void scheduler_publish(scheduler_t *s, const plan_entry_t *entry) {
  block_pool_t *pool = s->pool;
  sequence_t *q = entry->sequence;
  if (!shares_content(s, q) || q->status != SEQUENCE_RUNNING) return;
  validate(s, entry);
  int32_t end = entry->num_computed + entry->num_tokens, num_full = end / pool->block_size;
  while (q->num_published < num_full) {
    int32_t i = q->num_published, block = q->blocks[i];
    if (!pool->blocks[block].identity.keyed) { /* else a fork of it was faster */
      const int32_t *ids = ids_at(s, q, i);
      prefix_place_t place = place_of(s, q, i);
      block_key_t key = prefix_key(pool, place, ids);
      int32_t twin = prefix_find(pool, &key, place, ids);
      if (twin < 0) {
        prefix_publish(pool, block, &key, place, ids);
        pool->blocks[block].identity.num_valid = pool->block_size;
      } else if (pool->blocks[twin].identity.num_valid == pool->block_size) {
        exchange(s, q, i, twin);
      } else {
        return; /* still being filled by another: ours stays private until it is full */
      }
    }
    q->num_published++;
  }
  int32_t rows = end % pool->block_size;
  if (q->num_published > num_full || rows == 0 || !pool->caching) return;
  prefix_note(pool, q->blocks[num_full], place_of(s, q, num_full), ids_at(s, q, num_full), rows);
}

/* ---- growth ---- */

bool table_advance(scheduler_t *s, sequence_t *q) {
  int32_t bs = s->pool->block_size;
  for (;;) {
    int32_t i = q->num_computed_tokens / bs;
    if (i >= q->num_blocks) return true;
    const block_t *b = &s->pool->blocks[q->blocks[i]];
    if (b->filler == q) return true;
    if (b->filler != NULL) return false;
    bool passes = q->num_computed_tokens % bs == 0 && b->identity.keyed &&
                  b->identity.num_valid == bs && (i + 1) * bs < sequence_num_tokens(q);
    if (!passes) return true;
    q->num_computed_tokens += bs;
    if (!q->recomputes) q->num_cached_tokens += bs;
  }
}

int32_t table_shared(const scheduler_t *s, const sequence_t *q) {
  int32_t bs = s->pool->block_size, i = q->num_computed_tokens / bs;
  if (i >= q->num_blocks) return 0;
  const block_t *b = &s->pool->blocks[q->blocks[i]];
  return b->ref_count > 1 && b->filler == NULL ? q->blocks[i] : 0;
}

int32_t table_need(const scheduler_t *s, const sequence_t *q, int32_t n) {
  int32_t grow = scheduler_blocks_for(s, q->num_computed_tokens + n) - q->num_blocks;
  return (grow > 0 ? grow : 0) + (table_shared(s, q) != 0);
}

int32_t table_need_group(const scheduler_t *s, const group_t *group) {
  int32_t need = 0;
  for (const sequence_t *q = &group->sequence; q != NULL; q = q->next) {
    if (q->num_wanted == 0) continue;
    need += table_need(s, q, q->num_wanted);
    block_t *b = &s->pool->blocks[table_shared(s, q)];
    if (++b->mark == b->ref_count) need--;
  }
  for (const sequence_t *q = &group->sequence; q != NULL; q = q->next) {
    if (q->num_wanted > 0) s->pool->blocks[table_shared(s, q)].mark = 0;
  }
  return need;
}

void table_grow(scheduler_t *s, sequence_t *q, int32_t n) {
  int32_t shared = table_shared(s, q), bs = s->pool->block_size;
  if (shared) {
    int32_t i = q->num_computed_tokens / bs, own = block_allocate(s->pool);
    CHECK(own > 0);
    plan_copy(s, q, shared, own, q->num_computed_tokens % bs);
    q->blocks[i] = own;
    block_release(s->pool, shared);
  }
  int32_t total = scheduler_blocks_for(s, q->num_computed_tokens + n);
  while (q->num_blocks < total) {
    int32_t block = block_allocate(s->pool);
    CHECK(block > 0);
    q->blocks[q->num_blocks++] = block;
  }
}

void table_written(scheduler_t *s, const sequence_t *q, int32_t n) {
  int32_t bs = s->pool->block_size, end = q->num_computed_tokens + n;
  for (int32_t i = q->num_computed_tokens / bs; i * bs < end; i++) {
    block_written(s->pool, q->blocks[i]);
  }
}

void table_fork(scheduler_t *s, const sequence_t *parent, sequence_t *child) {
  child->num_output_tokens = parent->num_output_tokens;
  child->num_computed_tokens = parent->num_computed_tokens;
  child->num_prefill_tokens = parent->num_prefill_tokens;
  child->num_published = parent->num_published;
  child->num_scored = child->num_prompt_tokens; /* the prompt is scored once, by the first one */
  /* what the parent has reserved beyond that stays its own */
  child->num_blocks = scheduler_blocks_for(s, parent->num_computed_tokens);
  memcpy(child->tokens, parent->tokens,
         (size_t)sequence_num_tokens(parent) * sizeof *child->tokens);
  memcpy(child->blocks, parent->blocks, (size_t)child->num_blocks * sizeof *child->blocks);
  for (int32_t i = 0; i < child->num_blocks; i++) block_acquire(s->pool, child->blocks[i]);
}

/* ---- giving back ---- */

/* The first running sequence but q whose table names `block` at this place. */
static sequence_t *find_sharer(const scheduler_t *s, const sequence_t *q, int32_t index) {
  int32_t block = q->blocks[index];
  for (group_t *g = s->running.head; g != NULL; g = g->next) {
    for (sequence_t *other = &g->sequence; other != NULL; other = other->next) {
      if (other == q || !sequence_is_live(other)) continue;
      if (other->num_blocks > index && other->blocks[index] == block) return other;
    }
  }
  return NULL;
}

/* Its copies are planned and not made: the sources take their places back. */
static void undo_copies(scheduler_t *s, sequence_t *q) {
  plan_t *plan = &s->plan;
  for (int32_t c = 0; c < plan->num_copies;) {
    plan_copy_t *entry = &plan->copies[c];
    if (entry->sequence != q) {
      c++;
      continue;
    }
    block_unpin(s->pool, entry->copy.src);
    *entry = plan->copies[--plan->num_copies];
  }
}

void table_release(scheduler_t *s, sequence_t *q) {
  undo_copies(s, q);
  while (q->num_blocks > 0) {
    int32_t i = q->num_blocks - 1, block = q->blocks[i];
    block_t *b = &s->pool->blocks[block];
    if (b->filler == q) {
      b->filler = b->ref_count > 1 ? find_sharer(s, q, i) : NULL;
      if (b->filler == NULL) prefix_abandon(s->pool, block);
    }
    block_release(s->pool, block);
    q->blocks[i] = 0;
    q->num_blocks--;
  }
  q->num_published = 0;
}
