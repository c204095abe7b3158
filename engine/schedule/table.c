/* table.c: the rows and KV blocks of sequences; the contract is in table.h.
 *
 * Engine thread only; allocates nothing. Rule of writing: if a block has a filler, only the filler
 * writes into it. A block without a filler is written by the sequence whose next position lies in
 * it. If forks share such a block, a writer takes a copy first; the last holder writes in place.
 */
#include "engine/schedule/table.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/schedule/promised.h"
#include "engine/schedule/state/snapshots.h"
#include "engine/schedule/state/states.h"
#include "engine/schedule/window/side_blocks.h"
#include "engine/schedule/window/sides.h"

#include <string.h>

/* ---- rows ---- */

static int32_t *host_row(const scheduler_t *scheduler, int32_t row) {
  int32_t *tables = scheduler->swap.tables;
  return tables != NULL ? &tables[(size_t)row * (size_t)scheduler->table_stride] : NULL;
}

static void take_row(scheduler_t *scheduler, sequence_t *seq) {
  waiting_tenant(&scheduler->waiting, seq->group)->num_rows++;
  seq->row = scheduler->free_rows[--scheduler->num_free_rows];
  seq->tokens =
      &scheduler->token_table[(size_t)seq->row * (size_t)scheduler->options.max_model_len];
  seq->blocks = &scheduler->block_table[(size_t)seq->row * (size_t)scheduler->row_stride];
  seq->host_blocks = host_row(scheduler, seq->row);
  seq->detokenizer.held = &scheduler->held_text[(size_t)seq->row * STOP_STRING_BYTES_MAX];
}

/* First position of the block in which the prompt ends: from there on a row has ids. */
static int32_t row_begins(const scheduler_t *scheduler, const sequence_t *seq) {
  return seq->num_prompt_tokens - seq->num_prompt_tokens % scheduler->pool->block_size;
}

bool table_take_rows(scheduler_t *scheduler, group_t *group) {
  int32_t count = group->width;
  if (scheduler->num_free_rows < count) return false;
  sequence_t *first = &group->sequence, *last = first;
  take_row(scheduler, first);
  for (int32_t i = row_begins(scheduler, first); i < first->num_prompt_tokens; i++)
    first->tokens[i] = group->request->prompt_ids[i];
  for (int32_t i = 1; i < count; i++) {
    sequence_t *seq = scheduler->free_sequences;
    CHECK(seq); /* there are as many sequences as rows */
    scheduler->free_sequences = seq->next;
    sequence_init(seq, group, i);
    seq->detokenizer = first->detokenizer;
    take_row(scheduler, seq);
    last->next = seq;
    last = seq;
  }
  return true;
}

static void give_row(scheduler_t *scheduler, sequence_t *seq) {
  if (seq->row < 0) return;
  waiting_tenant(&scheduler->waiting, seq->group)->num_rows--;
  scheduler->free_rows[scheduler->num_free_rows++] = seq->row;
  seq->row = -1;
  seq->tokens = NULL;
  seq->blocks = seq->host_blocks = NULL;
}

void table_give_rows(scheduler_t *scheduler, group_t *group) {
  give_row(scheduler, &group->sequence);
  for (sequence_t *seq = group->sequence.next, *next; seq != NULL; seq = next) {
    next = seq->next;
    give_row(scheduler, seq);
    seq->next = scheduler->free_sequences;
    scheduler->free_sequences = seq;
  }
  group->sequence.next = NULL;
}

/* ---- the prefix cache ---- */

/* Without prefix caching the beams of one group still share by content: else they might never fit
 * again once they were preempted. Each group is then a domain of its own, and a block loses its
 * identity when it is released. */
static prefix_place_t place_behind(const scheduler_t *scheduler, const sequence_t *seq,
                                   int32_t index, int32_t parent) {
  const group_t *group = seq->group;
  const request_t *request = group->request;
  const int32_t block_size = scheduler->pool->block_size;
  prefix_place_t place = {.parent = parent};
  if (prefix_is_adapted(request, index, block_size)) place.adapter = request->adapter;
  if (scheduler->pool->caching)
    place.domain = prefix_domain(scheduler->pool, request, index);
  else if (parent == NO_BLOCK)
    place.domain = group->arrival;
  return place;
}

static prefix_place_t place_of(const scheduler_t *scheduler, const sequence_t *seq, int32_t index) {
  return place_behind(scheduler, seq, index, index > 0 ? seq->blocks[index - 1] : NO_BLOCK);
}

/* Blocks that another has filled are of no use without a snapshot of the state behind them. */
static bool shares_content(const scheduler_t *scheduler, const sequence_t *seq) {
  return scheduler->pool->caching || (seq->group->forked && !scheduler->options.has_states);
}

/* Whether the hidden states of all tokens but the last are pooled, or none of them is wanted. */
static bool is_pooled(const sequence_t *seq) {
  switch (seq->group->request->pooling) {
  case POOLING_MAX:
  case POOLING_WEIGHTED:
  case POOLING_SQRT:
  case POOLING_EACH:
  case POOLING_MEAN: return seq->num_pooled >= seq->num_prompt_tokens - 1;
  case POOLING_CLS: return seq->num_pooled > 0;
  default: return true;
  }
}

/* A request that scores or pools its prompt needs the hidden states of these positions once. One
 * that wants the weights of its attention computes all of it. */
static bool may_match(const scheduler_t *scheduler, const sequence_t *seq) {
  const group_t *group = seq->group;
  bool scored = group->request->params.num_prompt_logprobs < 0 ||
                group->sequence.num_scored >= seq->num_prompt_tokens - 1;
  const bool weighed = group->request->cross_weights == NULL;
  return shares_content(scheduler, seq) && scored && weighed && is_pooled(seq);
}

/* The ids of a block; there may be no row yet. */
static const int32_t *ids_at(const scheduler_t *scheduler, const sequence_t *seq, int32_t index) {
  int64_t first = (int64_t)index * scheduler->pool->block_size;
  bool of_prompt = first + scheduler->pool->block_size <= seq->num_prompt_tokens;
  bool given = of_prompt || seq->tokens == NULL;
  return &(given ? seq->group->request->prompt_ids : seq->tokens)[first];
}

/* The key of the block at `index`. The request brings those of its prompt. */
static block_key_t key_at(scheduler_t *scheduler, const sequence_t *seq, int32_t index,
                          prefix_place_t place) {
  const request_t *request = seq->group->request;
  int32_t block_size = scheduler->pool->block_size;
  bool is_given = request->prompt_keys != NULL && scheduler->pool->caching &&
                  index < request->num_prompt_tokens / block_size;
  if (is_given) return request->prompt_keys[index];
  scheduler->num_hashed += (uint64_t)block_size;
  return prefix_key(scheduler->pool, place, ids_at(scheduler, seq, index));
}

/* The last token is never taken from the cache: it yields the logits. */
bool table_wanted(scheduler_t *scheduler, const sequence_t *seq, int32_t index, int32_t parent,
                  block_wanted_t *out) {
  int32_t last = sequence_num_tokens(seq) - 1;
  if (!may_match(scheduler, seq) || (index + 1) * scheduler->pool->block_size > last) return false;
  out->place = place_behind(scheduler, seq, index, parent);
  out->key = key_at(scheduler, seq, index, out->place);
  out->token_ids = ids_at(scheduler, seq, index);
  return true;
}

int32_t table_find(scheduler_t *scheduler, const sequence_t *seq, int32_t index, int32_t parent) {
  block_wanted_t wanted;
  if (!table_wanted(scheduler, seq, index, parent, &wanted)) return NO_BLOCK;
  int32_t block = prefix_find(scheduler->pool, &wanted.key, wanted.place, wanted.token_ids);
  scheduler->num_walked++;
  return block < 0 ? NO_BLOCK : block;
}

/* Returns the first index from `low` on, below `high`, whose block the cache lacks or, with `held`,
 * no sequence holds; else `high`. A sequence that has a block has all blocks before it, so the
 * index is found by halving. */
static int32_t find_end(scheduler_t *scheduler, const sequence_t *seq, int32_t low, int32_t high,
                        bool held) {
  const block_pool_t *pool = scheduler->pool;
  while (low < high) {
    int32_t middle = low + (high - low) / 2;
    int32_t block = prefix_find_key(pool, &seq->group->request->prompt_keys[middle]);
    bool has = block > 0 && (!held || pool->blocks[block].ref_count > 0);
    scheduler->num_walked++;
    if (has) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

int32_t table_count_cached(scheduler_t *scheduler, const sequence_t *seq) {
  const block_pool_t *pool = scheduler->pool;
  const block_key_t *keys = seq->group->request->prompt_keys;
  if (keys == NULL || !may_match(scheduler, seq)) return 0;
  int32_t end = find_end(scheduler, seq, 0, (seq->num_prompt_tokens - 1) / pool->block_size, false);
  int32_t block = end > 0 ? prefix_find_key(pool, &keys[end - 1]) : NO_BLOCK;
  while (scheduler->options.has_states && end > 0 && snapshots_find(pool->snapshots, block) == 0) {
    block = pool->blocks[block].identity.place.parent;
    end--;
  }
  return pool->block_size * end;
}

/* Counts the blocks behind a slice that the cache has, without a look at each of them. */
static void match_behind(scheduler_t *scheduler, const sequence_t *seq, prefix_match_t *match) {
  int32_t block_size = scheduler->pool->block_size;
  int32_t most = MIN(seq->num_prompt_tokens, sequence_num_tokens(seq) - 1) / block_size;
  int32_t held = find_end(scheduler, seq, match->num_blocks, most, true);
  match->num_held_behind = held - match->num_blocks;
}

/* With states: the blocks up to the last snapshot. */
static prefix_match_t match_state(scheduler_t *scheduler, const sequence_t *seq) {
  prefix_match_t match = {0};
  const block_pool_t *pool = scheduler->pool;
  int32_t block = NO_BLOCK, count = 0, num_unused = 0;
  bool valid = true;
  while ((block = table_find(scheduler, seq, count, block)) != NO_BLOCK) {
    const block_t *entry = &pool->blocks[block];
    valid = valid && entry->identity.num_valid == pool->block_size;
    num_unused += !block_is_held(entry);
    if (seq->blocks != NULL) seq->blocks[count] = block;
    count++;
    int32_t snapshot = valid ? snapshots_find(pool->snapshots, block) : 0;
    if (snapshot == 0) continue;
    match.num_blocks = match.num_valid = count;
    match.num_unused = num_unused;
    match.snapshot = snapshot;
  }
  for (int32_t i = match.num_blocks; i < count && seq->blocks != NULL; i++)
    seq->blocks[i] = NO_BLOCK;
  match.num_cached = match.num_blocks * pool->block_size;
  match.num_known = count * pool->block_size;
  return match;
}

/* How many of a block and its side blocks are free. */
static int32_t num_free_at(const block_pool_t *pool, int32_t block) {
  int32_t num_free = !block_is_held(&pool->blocks[block]);
  for (int32_t s = 0; s < pool->num_sides; s++)
    num_free += !block_is_held(&pool->blocks[block_sides(pool, block)[s]]);
  return num_free;
}

/* Cuts a match to what the side blocks allow. `block` is the last block of the match. Returns the
 * last one that is left. */
static int32_t match_sides(const scheduler_t *scheduler, const sequence_t *seq,
                           prefix_match_t *match, int32_t block) {
  const block_pool_t *pool = scheduler->pool;
  if (pool->num_sides == 0 || match->num_blocks == 0) return block;
  int32_t i = match->num_blocks, valid = block;
  for (; i > match->num_valid; i--) valid = pool->blocks[valid].identity.place.parent;
  int32_t agreed = sides_agree(scheduler, valid, match->num_valid);
  if (agreed < match->num_valid) {
    for (i = match->num_blocks; i > agreed; i--) {
      match->num_unused -= !block_is_held(&pool->blocks[block]);
      if (seq->blocks != NULL) seq->blocks[i - 1] = NO_BLOCK;
      block = pool->blocks[block].identity.place.parent;
    }
    match->num_blocks = match->num_valid = agreed;
  }
  return block;
}

/* Whether a copy of this plan fills the block: no other copy may read it in the same step. */
static bool is_filled_by_copy(const scheduler_t *scheduler, int32_t block) {
  const plan_t *plan = &scheduler->plan;
  for (int32_t i = 0; i < plan->num_copies; i++)
    if (plan->copies[i].copy.dst == block) return true;
  return false;
}

/* Whether all full blocks of the prompt have their rows. Those that a step in flight computes do
 * not: if seq ends before, who has them must be among the sharers. */
static bool has_valid_prompt(const block_pool_t *pool, const sequence_t *seq, int32_t num_full) {
  if (!pool->caching || num_full == 0) return true;
  return seq->num_published >= num_full &&
         pool->blocks[seq->blocks[num_full - 1]].identity.num_valid == pool->block_size;
}

static bool holds_prompt(const scheduler_t *scheduler, const sequence_t *seq) {
  int32_t last = seq->num_prompt_tokens - 1, block = block_index(scheduler->pool, last);
  return seq->status == SEQUENCE_RUNNING && seq->slices.total == 0 &&
         seq->num_computed_tokens > last && has_valid_prompt(scheduler->pool, seq, block) &&
         !is_filled_by_copy(scheduler, seq->blocks[block]);
}

const sequence_t *table_prompt_holder(const scheduler_t *scheduler, const sequence_t *seq) {
  const group_t *lead = seq->group->siblings.lead, *other = NULL;
  bool looks = seq->num_output_tokens == 0 || !scheduler->pool->caching; /* else it finds more */
  if (lead->siblings.num_choices == 1 || !looks || scheduler->options.has_states ||
      scheduler->pool->num_sides > 0)
    return NULL;
  if (holds_prompt(scheduler, &lead->sequence)) return &lead->sequence;
  while ((other = siblings_next(lead, other)) != NULL)
    if (holds_prompt(scheduler, &other->sequence)) return &other->sequence;
  return NULL;
}

/* All of the prompt but its last token, from a sequence that holds it. */
static prefix_match_t match_holder(const scheduler_t *scheduler, const sequence_t *seq,
                                   const sequence_t *holder) {
  int32_t cached = seq->num_prompt_tokens - 1, count = block_index(scheduler->pool, cached);
  int32_t rows = block_offset(scheduler->pool, cached);
  prefix_match_t match = {.num_blocks = count, .num_valid = count, .num_cached = cached};
  if (rows > 0) match.partial = (prefix_partial_t){holder->blocks[count], rows};
  if (seq->blocks != NULL) memcpy(seq->blocks, holder->blocks, (size_t)count * sizeof *seq->blocks);
  return match;
}

prefix_match_t table_match(scheduler_t *scheduler, const sequence_t *seq, int32_t most) {
  const sequence_t *holder = table_prompt_holder(scheduler, seq);
  if (holder != NULL) return match_holder(scheduler, seq, holder);
  prefix_match_t match = {0};
  const block_pool_t *pool = scheduler->pool;
  int32_t block_size = pool->block_size, last = sequence_num_tokens(seq) - 1;
  int32_t block = NO_BLOCK, parent = NO_BLOCK;
  if (!may_match(scheduler, seq)) return match;
  if (scheduler->options.has_states) return match_state(scheduler, seq);
  while (match.num_blocks < most &&
         (block = table_find(scheduler, seq, match.num_blocks, block)) != NO_BLOCK) {
    const block_t *entry = &pool->blocks[block];
    bool valid = entry->identity.num_valid == block_size;
    if (valid && match.num_valid == match.num_blocks) match.num_valid++;
    match.num_unused += !block_is_held(entry);
    if (seq->blocks != NULL) seq->blocks[match.num_blocks] = block;
    match.num_blocks++;
    parent = block;
  }
  parent = match_sides(scheduler, seq, &match, parent);
  match.num_cached = match.num_valid * block_size;
  if (match.num_blocks == most) {
    match_behind(scheduler, seq, &match);
    return match;
  }
  if (match.num_valid < match.num_blocks || !pool->caching) return match;
  int32_t i = match.num_blocks, rows_max = MIN(last - i * block_size, block_size);
  match.partial = prefix_find_partial(pool, place_behind(scheduler, seq, i, parent),
                                      ids_at(scheduler, seq, i), rows_max);
  if (!block_has_sides(pool, match.partial.block)) match.partial.rows = 0;
  if (match.partial.rows == 0) return match;
  match.num_cached += match.partial.rows;
  match.num_unused += num_free_at(pool, match.partial.block);
  return match;
}

void table_match_whole(const scheduler_t *scheduler, prefix_match_t *match) {
  if (match->partial.rows == 0) return;
  match->num_cached -= match->partial.rows;
  match->num_unused -= num_free_at(scheduler->pool, match->partial.block);
  match->partial.rows = 0;
}

bool table_forget_cached(scheduler_t *scheduler, const group_t *group) {
  if (scheduler->pool->num_sides == 0 || !group->forked) return false;
  int32_t block = table_find(scheduler, &group->sequence, 0, NO_BLOCK);
  if (block == NO_BLOCK || block_is_held(&scheduler->pool->blocks[block])) return false;
  block_forget(scheduler->pool, block);
  return true;
}

/* ---- who shares blocks that another one fills ---- */

static void join_sharers(scheduler_t *scheduler, sequence_t *seq) {
  if (seq->is_sharer) return;
  seq->is_sharer = true;
  seq->sharer_prev = scheduler->last_sharer;
  seq->sharer_next = NULL;
  *(seq->sharer_prev != NULL ? &seq->sharer_prev->sharer_next : &scheduler->sharers) = seq;
  scheduler->last_sharer = seq;
}

static void leave_sharers(scheduler_t *scheduler, sequence_t *seq) {
  sequence_t *prev = seq->sharer_prev, *next = seq->sharer_next;
  if (!seq->is_sharer) return;
  seq->is_sharer = false;
  *(prev != NULL ? &prev->sharer_next : &scheduler->sharers) = next;
  *(next != NULL ? &next->sharer_prev : &scheduler->last_sharer) = prev;
}

static bool shares(const sequence_t *seq, const sequence_t *other, int32_t index) {
  return other != seq && other->num_blocks > index && other->blocks[index] == seq->blocks[index];
}

/* A sequence, other than seq, whose table names the block at this index, which is still to be
 * filled: so it is in PREFILL. Who shares a block shares the blocks before it, too: so `heir`,
 * which was found for a later block or is NULL, is tried first, and the list is searched once for
 * all blocks of seq. Who has passed what it shared leaves the list here. */
static sequence_t *find_sharer(scheduler_t *scheduler, const sequence_t *seq, sequence_t *heir,
                               int32_t index) {
  if (heir != NULL && shares(seq, heir, index)) return heir;
  for (sequence_t *other = scheduler->sharers, *next; other != NULL; other = next) {
    next = other->sharer_next;
    scheduler->num_visited++;
    if (shares(seq, other, index)) return other;
    if (!sequence_in_prefill(other)) leave_sharers(scheduler, other);
  }
  return NULL;
}

/* ---- taking blocks ---- */

static void plan_copy(scheduler_t *scheduler, sequence_t *seq, int32_t src, int32_t dst,
                      int32_t rows) {
  block_pin(scheduler->pool, src);
  block_written(scheduler->pool, dst);
  scheduler->plan.copies[scheduler->plan.num_copies++] = (plan_copy_t){{src, dst, rows}, seq};
}

/* Pins a block and its side blocks, or (pins false) unpins them. */
static void pin(block_pool_t *pool, int32_t block, bool pins) {
  void (*change)(block_pool_t *, int32_t) = pins ? block_pin : block_unpin;
  change(pool, block);
  for (int32_t s = 0; s < pool->num_sides; s++) change(pool, block_sides(pool, block)[s]);
}

/* Returns whether blocks were keyed. */
static bool claim(scheduler_t *scheduler, sequence_t *seq, int32_t num_full) {
  block_pool_t *pool = scheduler->pool;
  int32_t block_size = pool->block_size;
  bool keyed = false;
  if (!shares_content(scheduler, seq)) return false;
  while (seq->num_published < num_full && seq->num_published < seq->num_blocks) {
    int32_t i = seq->num_published;
    block_t *block = &pool->blocks[seq->blocks[i]];
    if (!block->identity.keyed) { /* else it came from the cache, or a fork has keyed it */
      prefix_place_t place = place_of(scheduler, seq, i);
      block_key_t key = key_at(scheduler, seq, i, place);
      scheduler->num_walked++;
      if (prefix_find(pool, &key, place, ids_at(scheduler, seq, i)) >= 0) break;
      keyed = true;
      prefix_publish(pool, seq->blocks[i], &key, place, ids_at(scheduler, seq, i));
      bool whole = (i + 1) * block_size <= seq->num_computed_tokens;
      if (whole) prefix_validate(pool, seq->blocks[i], block_size);
      if (whole) sides_attach(scheduler, seq, i, false);
      block->filler = whole ? NULL : seq;
    }
    seq->num_published++;
  }
  return keyed;
}

void table_claim(scheduler_t *scheduler, sequence_t *seq, int32_t num_full) {
  scheduler->num_claims += claim(scheduler, seq, num_full);
}

/* Plans the copy of a block and its side blocks to those at `index` of the table. */
static void copy_block(scheduler_t *scheduler, sequence_t *seq, int32_t block, int32_t index,
                       int32_t rows) {
  plan_copy(scheduler, seq, block, seq->blocks[index], rows);
  for (int32_t s = 0; s < scheduler->pool->num_sides; s++)
    plan_copy(scheduler, seq, block_sides(scheduler->pool, block)[s],
              *sides_at(scheduler, seq, s, index), rows);
}

static void add_free_block(scheduler_t *scheduler, sequence_t *seq) {
  int32_t block = block_allocate(scheduler->pool);
  CHECK_GT(block, 0);
  block_use(scheduler->pool, block, scheduler_owner(scheduler, seq));
  seq->blocks[seq->num_blocks++] = block;
  scheduler->num_walked++;
}

static void grow_table(scheduler_t *scheduler, sequence_t *seq, int32_t num_tokens) {
  int32_t total = scheduler_blocks_for(scheduler, num_tokens);
  while (seq->num_blocks < total) add_free_block(scheduler, seq);
}

void table_append(scheduler_t *scheduler, sequence_t *seq, int32_t block) {
  int32_t block_size = scheduler->pool->block_size, i = seq->num_blocks;
  if (block == NO_BLOCK) {
    add_free_block(scheduler, seq);
    bool known = (i + 1) * block_size <= sequence_num_tokens(seq);
    if (known && seq->num_published == i) claim(scheduler, seq, i + 1);
    return;
  }
  bool valid = scheduler->pool->blocks[block].identity.num_valid == block_size;
  block_acquire(scheduler->pool, block);
  block_use(scheduler->pool, block, scheduler_owner(scheduler, seq));
  seq->blocks[i] = block;
  seq->num_blocks = seq->num_published = i + 1;
  if (!valid) join_sharers(scheduler, seq);
  if (valid && seq->group->num_preemptions == 0 && group_is_lead(seq->group))
    scheduler->prefix_hits_tokens += (uint64_t)block_size;
}

void table_admit(scheduler_t *scheduler, sequence_t *seq, const prefix_match_t *match,
                 int32_t num_tokens, int32_t num_seen) {
  int32_t block_size = scheduler->pool->block_size;
  states_take(scheduler, seq);
  states_restore(scheduler, seq, match->snapshot, match->num_known);
  for (int32_t i = 0; i < match->num_blocks; i++) {
    block_acquire(scheduler->pool, seq->blocks[i]);
    block_use(scheduler->pool, seq->blocks[i], scheduler_owner(scheduler, seq));
  }
  seq->num_blocks = seq->num_published = match->num_blocks;
  seq->num_computed_tokens = match->num_valid * block_size;
  if (match->num_valid < match->num_blocks) join_sharers(scheduler, seq);
  sides_take(scheduler, seq, match->num_valid);
  bool copies = match->partial.rows > 0;
  if (copies) pin(scheduler->pool, match->partial.block, true); /* else it could be allocated */
  grow_table(scheduler, seq, num_tokens);
  sides_grow(scheduler, seq, num_seen);
  if (copies) {
    copy_block(scheduler, seq, match->partial.block, match->num_blocks, match->partial.rows);
    pin(scheduler->pool, match->partial.block, false);
    seq->num_computed_tokens += match->partial.rows;
  }
  bool keyed = claim(scheduler, seq, sequence_num_tokens(seq) / block_size);
  scheduler->num_claims += keyed || match->num_blocks > 0;
}

/* Marks the rows as valid that the chunk has computed in blocks which this sequence fills. */
static void validate(scheduler_t *scheduler, const plan_entry_t *entry) {
  int32_t block_size = scheduler->pool->block_size;
  const sequence_t *seq = entry->sequence;
  int32_t end = entry->num_computed + entry->num_tokens;
  for (int32_t i = block_index(scheduler->pool, entry->num_computed); i * block_size < end; i++) {
    block_t *block = &scheduler->pool->blocks[seq->blocks[i]];
    if (block->filler != seq) continue;
    prefix_validate(scheduler->pool, seq->blocks[i], MIN(end - i * block_size, block_size));
    sides_attach(scheduler, seq, i, false);
    if (block->identity.num_valid == block_size) block->filler = NULL;
  }
}

/* Whether a sequence has the same block at this index. */
static bool has_block(const sequence_t *seq, int32_t index, int32_t block) {
  return seq->num_blocks > index && seq->blocks[index] == block;
}

static int32_t count_forks(const sequence_t *seq, int32_t index) {
  int32_t count = 0;
  for (const sequence_t *fork = &seq->group->sequence; fork != NULL; fork = fork->next)
    count += has_block(fork, index, seq->blocks[index]);
  return count;
}

/* Replaces the block at `index` by its twin. Both hold the same bits, so one of them can be freed:
 * the twin, which is the older, stays. All forks that share the block get the twin: they may share
 * blocks behind it, too, and who holds a block holds the one before it. */
static void exchange(scheduler_t *scheduler, sequence_t *seq, int32_t index, int32_t twin) {
  const int32_t block = seq->blocks[index];
  const block_t *entry = &scheduler->pool->blocks[block];
  for (sequence_t *fork = &seq->group->sequence; fork != NULL; fork = fork->next) {
    if (!has_block(fork, index, block)) continue;
    block_acquire(scheduler->pool, twin);
    fork->blocks[index] = twin;
    if (entry->ref_count == 1 && entry->identity.unique_id) prefix_withdraw(scheduler->pool, block);
    block_release(scheduler->pool, block);
  }
  sides_attach(scheduler, seq, index, true);
}

/* Whether the block must stay although it has a twin: others than forks have it, too, or the
 * exchange takes a free block and gives none back, while all free ones are promised. */
static bool must_stay(const scheduler_t *scheduler, const sequence_t *seq, int32_t index,
                      int32_t twin) {
  const block_t *own = &scheduler->pool->blocks[seq->blocks[index]],
                *other = &scheduler->pool->blocks[twin];
  if (own->ref_count > count_forks(seq, index)) return true;
  return !block_is_held(other) && own->pins > 0 && promised_num_free(scheduler) <= 0;
}

/* Keys the blocks that the entry has filled. */
static void publish(scheduler_t *scheduler, const plan_entry_t *entry) {
  block_pool_t *pool = scheduler->pool;
  sequence_t *seq = entry->sequence;
  int32_t end = entry->num_computed + entry->num_tokens, num_full = block_index(pool, end);
  while (seq->num_published < num_full) {
    int32_t i = seq->num_published, block = seq->blocks[i];
    if (!pool->blocks[block].identity.keyed) { /* else a fork has keyed it already */
      const int32_t *ids = ids_at(scheduler, seq, i);
      prefix_place_t place = place_of(scheduler, seq, i);
      block_key_t key = key_at(scheduler, seq, i, place);
      int32_t twin = prefix_find(pool, &key, place, ids);
      /* Also of a twin that is held: by a copy alone, or as what somebody has generated. */
      scheduler->num_claims += (i + 1) * pool->block_size <= seq->num_prompt_tokens;
      if (twin < 0) {
        prefix_publish(pool, block, &key, place, ids);
        prefix_validate(pool, block, pool->block_size);
        sides_attach(scheduler, seq, i, false);
      } else if (pool->blocks[twin].identity.num_valid < pool->block_size ||
                 must_stay(scheduler, seq, i, twin)) {
        return; /* another sequence still fills the twin: this block stays private until then */
      } else {
        exchange(scheduler, seq, i, twin);
      }
    }
    seq->num_published++;
  }
  int32_t rows = block_offset(pool, end);
  if (seq->num_published > num_full || rows == 0 || !pool->caching ||
      scheduler->options.has_states) /* no state stands behind a part of a block */
    return;
  prefix_note(pool, seq->blocks[num_full], place_of(scheduler, seq, num_full),
              ids_at(scheduler, seq, num_full), rows);
  sides_attach(scheduler, seq, num_full, false);
}

/* Forks that compute again what they share pass over the blocks now, while their side blocks are
 * there. */
static void advance_forks(scheduler_t *scheduler, sequence_t *writer) {
  group_t *group = writer->group;
  for (sequence_t *seq = &group->sequence; group->forked && seq != NULL; seq = seq->next) {
    if (seq != writer && seq->status == SEQUENCE_RUNNING && sequence_in_prefill(seq))
      table_advance(scheduler, seq);
  }
}

/* Whether the entry is a decode that neither fills a block nor shares one: what it has computed is
 * noted when the block is full or released (note_rest). So most decodes touch no record of a block.
 */
static bool is_noted_later(const scheduler_t *scheduler, const plan_entry_t *entry) {
  const block_pool_t *pool = scheduler->pool;
  const sequence_t *seq = entry->sequence;
  int32_t end = entry->num_computed + 1;
  return entry->num_tokens == 1 && block_offset(pool, end) != 0 && seq->group->is_plain &&
         entry->num_computed >= seq->num_prefill_tokens &&
         seq->num_published == block_index(pool, end) && pool->num_sides == 0 &&
         !scheduler->options.has_states;
}

/* Before the blocks of a sequence are released: the rows that is_noted_later has put off. */
static void note_rest(scheduler_t *scheduler, sequence_t *seq) {
  block_pool_t *pool = scheduler->pool;
  int32_t i = seq->num_published, rows = seq->num_unnoted - i * pool->block_size;
  seq->num_unnoted = 0;
  if (rows <= 0 || !pool->caching) return;
  prefix_note(pool, seq->blocks[i], place_of(scheduler, seq, i), ids_at(scheduler, seq, i), rows);
}

/* The rare half of scheduler_publish, in a function of its own: so the common half, which is inline
 * code, saves no registers. */
static __attribute__((noinline)) void publish_blocks(scheduler_t *scheduler,
                                                     const plan_entry_t *entry) {
  sequence_t *seq = entry->sequence;
  if (shares_content(scheduler, seq)) {
    validate(scheduler, entry);
    publish(scheduler, entry);
    states_publish(scheduler, entry);
  }
  if (scheduler->pool->num_sides == 0) return;
  advance_forks(scheduler, seq);
  sides_leave(scheduler, seq,
              (entry->num_computed + entry->num_tokens) / scheduler->pool->block_size);
}

void scheduler_publish(scheduler_t *scheduler, const plan_entry_t *entry) {
  sequence_t *seq = entry->sequence;
  if (seq->status != SEQUENCE_RUNNING) return;
  if (is_noted_later(scheduler, entry))
    seq->num_unnoted = entry->num_computed + 1;
  else
    publish_blocks(scheduler, entry);
}

/* ---- growth ---- */

/* Finds the first block, from the one of the next position on, that seq does not pass. Returns
 * whether seq may compute behind those before it. */
static bool find_stop(const scheduler_t *scheduler, const sequence_t *seq, int32_t *index) {
  int32_t block_size = scheduler->pool->block_size, computed = seq->num_computed_tokens;
  for (;; ++*index) {
    if (*index >= seq->num_blocks) return seq->slices.total == 0;
    const block_t *block = &scheduler->pool->blocks[seq->blocks[*index]];
    if (block->filler != NULL) return block->filler == seq;
    bool passes = computed % block_size == 0 && block->identity.keyed &&
                  block->identity.num_valid == block_size &&
                  (*index + 1) * block_size < sequence_num_tokens(seq);
    if (!passes) return true;
  }
}

bool table_advance(scheduler_t *scheduler, sequence_t *seq) {
  int32_t block_size = scheduler->pool->block_size;
  int32_t next = seq->num_computed_tokens / block_size, stop = next;
  bool computes = find_stop(scheduler, seq, &stop);
  if (stop == next) return computes;
  if (!sides_can_pass(scheduler, seq, stop)) {
    seq->sides.is_lost = computes; /* who fills the next block may bring others */
    return false;
  }
  sides_take(scheduler, seq, stop);
  seq->num_computed_tokens += (stop - next) * block_size;
  if (!seq->recomputes) seq->num_cached_tokens += (stop - next) * block_size;
  return computes;
}

/* Who fills one block need not fill those behind it: a sequence that takes its blocks by slices may
 * be the heir of one before it takes the next. */
int32_t table_own_tokens(const scheduler_t *scheduler, const sequence_t *seq, int32_t n) {
  const block_pool_t *pool = scheduler->pool;
  if (!seq->is_sharer) return n;
  int32_t end = seq->num_computed_tokens + n, i = block_index(pool, seq->num_computed_tokens);
  for (; i < seq->num_blocks && i * pool->block_size < end; i++) {
    const sequence_t *filler = pool->blocks[seq->blocks[i]].filler;
    if (filler != NULL && filler != seq)
      return MAX(i * pool->block_size - seq->num_computed_tokens, 0);
  }
  return n;
}

/* Returns the block of the next position if a fork shares it, so that it must be copied before seq
 * writes; NO_BLOCK = no such block. */
static int32_t shared_block(const scheduler_t *scheduler, const sequence_t *seq) {
  int32_t i = block_index(scheduler->pool, seq->num_computed_tokens);
  if (i >= seq->num_blocks) return NO_BLOCK;
  const block_t *block = &scheduler->pool->blocks[seq->blocks[i]];
  return block->ref_count > 1 && block->filler == NULL ? seq->blocks[i] : NO_BLOCK;
}

int32_t table_need(const scheduler_t *scheduler, const sequence_t *seq, int32_t n) {
  int32_t grow = scheduler_blocks_for(scheduler, seq->num_computed_tokens + n) - seq->num_blocks;
  int32_t copies = shared_block(scheduler, seq) != NO_BLOCK ? 1 + scheduler->pool->num_sides : 0;
  return MAX(grow, 0) + sides_need(scheduler, seq, seq->num_computed_tokens + n) + copies;
}

int32_t table_need_all(const scheduler_t *scheduler, const plan_entry_t *entries, int32_t count) {
  int32_t need = 0;
  if (count == 1) return table_need(scheduler, entries->sequence, entries->num_tokens);
  for (int32_t i = 0; i < count; i++) {
    need += table_need(scheduler, entries[i].sequence, entries[i].num_tokens);
    int32_t shared = shared_block(scheduler, entries[i].sequence);
    if (shared == NO_BLOCK) continue;
    block_t *block = &scheduler->pool->blocks[shared];
    block->mark++; /* writers so far; if all holders write, the last one needs no copy */
    if (block->mark == block->ref_count) need -= 1 + scheduler->pool->num_sides;
  }
  for (int32_t i = 0; i < count; i++)
    scheduler->pool->blocks[shared_block(scheduler, entries[i].sequence)].mark = 0;
  return need;
}

/* Replaces a table entry, whose block others hold, by a copy of the rows before the next one. */
static void unshare(scheduler_t *scheduler, sequence_t *seq, int32_t *entry) {
  int32_t shared = *entry, own = block_allocate(scheduler->pool);
  CHECK_GT(own, 0);
  block_use(scheduler->pool, own, scheduler_owner(scheduler, seq));
  plan_copy(scheduler, seq, shared, own, seq->num_computed_tokens % scheduler->pool->block_size);
  *entry = own;
  block_release(scheduler->pool, shared);
}

void table_grow(scheduler_t *scheduler, sequence_t *seq, int32_t n) {
  int32_t i = block_index(scheduler->pool, seq->num_computed_tokens);
  if (shared_block(scheduler, seq) != NO_BLOCK) {
    unshare(scheduler, seq, &seq->blocks[i]);
    for (int32_t s = 0; s < scheduler->pool->num_sides; s++)
      unshare(scheduler, seq, sides_at(scheduler, seq, s, i));
  }
  grow_table(scheduler, seq, seq->num_computed_tokens + n);
  sides_grow(scheduler, seq, seq->num_computed_tokens + n);
}

void table_written(scheduler_t *scheduler, const sequence_t *seq, int32_t n) {
  /* A block that has computed rows was written before. */
  int32_t first = scheduler_blocks_for(scheduler, seq->num_computed_tokens);
  int32_t end = scheduler_blocks_for(scheduler, seq->num_computed_tokens + n);
  for (int32_t i = first; i < end; i++) block_written(scheduler->pool, seq->blocks[i]);
}

void table_fork(scheduler_t *scheduler, const sequence_t *parent, sequence_t *child) {
  child->num_output_tokens = parent->num_output_tokens;
  child->last_id = parent->last_id;
  child->num_computed_tokens = parent->num_computed_tokens;
  child->num_prefill_tokens = parent->num_prefill_tokens;
  child->num_charged = parent->num_charged;
  child->num_published = parent->num_published;
  child->num_scored = child->num_prompt_tokens; /* the prompt is scored once, by the first one */
  /* blocks that the parent has reserved beyond its computed tokens are not shared */
  child->num_blocks = scheduler_blocks_for(scheduler, parent->num_computed_tokens);
  int32_t from = row_begins(scheduler, parent), count = sequence_num_tokens(parent) - from;
  memcpy(&child->tokens[from], &parent->tokens[from], (size_t)count * sizeof *child->tokens);
  memcpy(child->blocks, parent->blocks, (size_t)child->num_blocks * sizeof *child->blocks);
  for (int32_t i = 0; i < child->num_blocks; i++) block_acquire(scheduler->pool, child->blocks[i]);
  sides_fork(scheduler, parent, child);
  states_fork(scheduler, parent, child);
}

/* ---- giving back ---- */

/* The copies of seq were planned but not executed: unpins their sources and removes them. */
static void undo_copies(scheduler_t *scheduler, sequence_t *seq) {
  plan_t *plan = &scheduler->plan;
  for (int32_t c = 0; c < plan->num_copies;) {
    plan_copy_t *entry = &plan->copies[c];
    if (entry->sequence != seq) {
      c++;
      continue;
    }
    block_unpin(scheduler->pool, entry->copy.src);
    *entry = plan->copies[--plan->num_copies];
  }
}

void table_release(scheduler_t *scheduler, sequence_t *seq) {
  sequence_t *heir = NULL;
  note_rest(scheduler, seq);
  undo_copies(scheduler, seq);
  leave_sharers(scheduler, seq);
  promised_end(scheduler, seq);
  states_give(scheduler, seq);
  while (seq->num_blocks > 0) {
    int32_t i = seq->num_blocks - 1, block = seq->blocks[i];
    block_t *entry = &scheduler->pool->blocks[block];
    if (entry->filler == seq) { /* another holder must fill it, or it is never filled */
      if (entry->ref_count > 1) heir = find_sharer(scheduler, seq, heir, i);
      entry->filler = entry->ref_count > 1 ? heir : NULL;
      if (entry->filler == NULL) prefix_abandon(scheduler->pool, block);
    }
    sides_release(scheduler, seq, i);
    block_release(scheduler->pool, block);
    seq->blocks[i] = 0;
    seq->num_blocks--;
  }
  seq->num_published = seq->sides.first = seq->sides.end = 0;
  seq->sides.is_lost = false;
}
