/* scheduler.c: stage 4 of 9, waiting queue -> plan (who, how many tokens).
 *
 * Engine thread only; allocates only in scheduler_new. Preemption is by recompute: the victim gives
 * its blocks back, keeps its output and goes to the front of the waiting queue. Next:
 * engine/batch.c.
 */
#include "engine/scheduler.h"

#include "engine/clock.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *map_lazily(size_t bytes) {
  void *p =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static size_t token_table_bytes(const scheduler_t *s) {
  return (size_t)s->num_rows * (size_t)s->options.max_model_len * sizeof *s->token_table;
}

static size_t block_table_bytes(const scheduler_t *s) {
  return (size_t)s->num_rows * (size_t)s->table_stride * sizeof *s->block_table;
}

int scheduler_new(const scheduler_options_t *options, block_pool_t *pool, scheduler_t **out,
                  error_t *error) {
  CHECK(options->max_num_batched_tokens >= options->max_num_seqs);
  scheduler_t *s = calloc(1, sizeof *s);
  if (!s) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the scheduler");
  s->options = *options;
  s->pool = pool;
  /* Twice the running set: preempted sequences keep their rows while others run. */
  s->num_rows = 2 * options->max_num_seqs;
  s->table_stride = (options->max_model_len + pool->block_size - 1) / pool->block_size;
  s->token_table = map_lazily(token_table_bytes(s));
  s->block_table = map_lazily(block_table_bytes(s));
  s->held_text = calloc((size_t)s->num_rows, STOP_STRING_BYTES_MAX);
  s->free_rows = calloc((size_t)s->num_rows, sizeof *s->free_rows);
  s->plan.entries = calloc((size_t)options->max_num_seqs, sizeof *s->plan.entries);
  if (!s->token_table || !s->block_table || !s->held_text || !s->free_rows || !s->plan.entries) {
    scheduler_free(s);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the tables of %d sequences",
                     options->max_num_seqs);
  }
  for (int32_t r = 0; r < s->num_rows; r++) s->free_rows[s->num_free_rows++] = s->num_rows - 1 - r;
  *out = s;
  return 0;
}

void scheduler_free(scheduler_t *s) {
  if (!s) return;
  if (s->token_table) munmap(s->token_table, token_table_bytes(s));
  if (s->block_table) munmap(s->block_table, block_table_bytes(s));
  free(s->held_text);
  free(s->free_rows);
  free(s->plan.entries);
  free(s);
}

/* True when `a` should run before `b`. */
static bool runs_before(const scheduler_t *s, const group_t *a, const group_t *b) {
  if (s->options.priority_policy && a->request->priority != b->request->priority) {
    return a->request->priority < b->request->priority;
  }
  return a->arrival < b->arrival;
}

void scheduler_add(scheduler_t *s, group_t *group) {
  sequence_set_status(&group->sequence, SEQUENCE_WAITING);
  group_t *after = s->waiting.tail;
  while (after && runs_before(s, group, after)) after = after->prev;
  queue_insert_before(&s->waiting, after ? after->next : s->waiting.head, group);
}

int32_t scheduler_blocks_for(const scheduler_t *s, int64_t num_tokens) {
  return (int32_t)((num_tokens + s->pool->block_size - 1) / s->pool->block_size);
}

/* -- rows ------------------------------------------------------------------------------------- */

static void row_take(scheduler_t *s, sequence_t *q) {
  q->row = s->free_rows[--s->num_free_rows];
  q->tokens = &s->token_table[(size_t)q->row * (size_t)s->options.max_model_len];
  q->blocks = &s->block_table[(size_t)q->row * (size_t)s->table_stride];
  memcpy(q->tokens, q->group->request->prompt_ids,
         (size_t)q->num_prompt_tokens * sizeof *q->tokens);
  q->detokenizer.held = &s->held_text[(size_t)q->row * STOP_STRING_BYTES_MAX];
}

static void row_give_back(scheduler_t *s, sequence_t *q) {
  if (q->row < 0) return;
  s->free_rows[s->num_free_rows++] = q->row;
  q->row = -1;
  q->tokens = NULL;
  q->blocks = NULL;
}

/* -- blocks ----------------------------------------------------------------------------------- */

/* Makes room for `num_tokens` tokens in all. False when the pool is short; takes nothing then. */
static bool blocks_grow(scheduler_t *s, sequence_t *q, int64_t num_tokens) {
  int32_t need = scheduler_blocks_for(s, num_tokens);
  if (need - q->num_blocks > s->pool->num_free) return false;
  while (q->num_blocks < need) q->blocks[q->num_blocks++] = block_allocate(s->pool);
  return true;
}

/* Last block first, so that leaves of the prefix tree are evicted before their parents. */
static void blocks_release(scheduler_t *s, sequence_t *q) {
  while (q->num_blocks > 0) {
    block_release(s->pool, q->blocks[--q->num_blocks]);
    q->blocks[q->num_blocks] = 0;
  }
  q->num_published = 0;
}

/* -- prefix cache ----------------------------------------------------------------------------- */

static uint64_t cache_domain(const sequence_t *q) {
  return q->group->request->salt;
}

typedef struct prefix_match {
  int32_t num_blocks;
  int32_t num_unused; /* of them, free now: taking them shrinks the free count */
} prefix_match_t;

/* Longest run of cached full blocks; writes their ids to q->blocks without holding them. The last
 * token is never taken from the cache: it yields the logits. */
static prefix_match_t prefix_match(const scheduler_t *s, sequence_t *q) {
  prefix_match_t match = {0, 0};
  const block_pool_t *pool = s->pool;
  if (!pool->caching || q->group->request->params.num_prompt_logprobs >= 0) return match;
  int32_t limit = (sequence_num_tokens(q) - 1) / pool->block_size;
  block_key_t key = {{0, 0}};
  uint64_t parent = 0;
  for (int32_t i = 0; i < limit; i++) {
    const int32_t *ids = &q->tokens[(size_t)i * (size_t)pool->block_size];
    key = prefix_key(pool, i ? &key : NULL, ids, i ? 0 : cache_domain(q));
    int32_t block = prefix_find(pool, &key, parent, ids);
    if (block < 0) break;
    q->blocks[match.num_blocks++] = block;
    if (pool->blocks[block].ref_count == 0) match.num_unused++;
    parent = pool->blocks[block].unique_id;
  }
  return match;
}

static void prefix_take(scheduler_t *s, sequence_t *q, int32_t num_blocks) {
  for (int32_t i = 0; i < num_blocks; i++) block_acquire(s->pool, q->blocks[i]);
  q->num_blocks = num_blocks;
  q->num_published = num_blocks;
  q->num_computed_tokens = num_blocks * s->pool->block_size;
}

void scheduler_publish(scheduler_t *s, sequence_t *q) {
  block_pool_t *pool = s->pool;
  if (!pool->caching || q->status != SEQUENCE_RUNNING) return;
  int32_t num_full = q->num_computed_tokens / pool->block_size;
  while (q->num_published < num_full) {
    int32_t i = q->num_published, block = q->blocks[i];
    const int32_t *ids = &q->tokens[(size_t)i * (size_t)pool->block_size];
    const block_t *before = i ? &pool->blocks[q->blocks[i - 1]] : NULL;
    block_key_t key = prefix_key(pool, before ? &before->key : NULL, ids, i ? 0 : cache_domain(q));
    uint64_t parent = before ? before->unique_id : 0;
    int32_t twin = prefix_find(pool, &key, parent, ids);
    if (twin < 0) {
      prefix_publish(pool, block, &key, parent, ids);
    } else { /* same content, same bits: keep the older copy, give ours back */
      block_acquire(pool, twin);
      q->blocks[i] = twin;
      block_release(pool, block);
    }
    q->num_published++;
  }
}

/* -- planning --------------------------------------------------------------------------------- */

static void preempt(scheduler_t *s, group_t *victim) {
  sequence_t *q = &victim->sequence;
  s->num_recomputed_tokens += (uint64_t)q->num_computed_tokens;
  blocks_release(s, q);
  q->num_computed_tokens = 0;
  q->num_prefill_tokens = sequence_num_tokens(q);
  queue_remove(&s->running, victim);
  sequence_set_status(q, SEQUENCE_WAITING);
  group_t *position = s->waiting.head;
  while (position && runs_before(s, position, victim)) position = position->next;
  queue_insert_before(&s->waiting, position, victim);
  victim->num_preemptions++;
  s->num_preemptions++;
  s->plan.num_preempted++;
}

/* Last of running under fcfs, worst priority otherwise. */
static group_t *choose_victim(const scheduler_t *s) {
  group_t *victim = s->running.tail;
  for (group_t *g = s->running.tail; s->options.priority_policy && g; g = g->prev) {
    if (runs_before(s, victim, g)) victim = g;
  }
  return victim;
}

static void plan_remove(scheduler_t *s, const sequence_t *q) {
  plan_t *plan = &s->plan;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    if (plan->entries[i].sequence != q) continue;
    plan->num_tokens -= plan->entries[i].num_tokens;
    memmove(&plan->entries[i], &plan->entries[i + 1],
            (size_t)(plan->num_entries - i - 1) * sizeof *plan->entries);
    plan->num_entries--;
    return;
  }
}

static void plan_add(scheduler_t *s, sequence_t *q, int32_t n) {
  plan_t *plan = &s->plan;
  plan->entries[plan->num_entries++] = (plan_entry_t){
      .sequence = q,
      .num_computed = q->num_computed_tokens,
      .num_tokens = n,
      .do_sample = q->num_computed_tokens + n == sequence_num_tokens(q) && !sequence_scores_only(q),
  };
  plan->num_tokens += n;
}

/* Tokens that one request may have in this step. */
static int32_t chunk_size(const scheduler_t *s, const sequence_t *q, int32_t budget) {
  int32_t n = sequence_num_tokens(q) - q->num_computed_tokens;
  int32_t threshold = s->options.long_prefill_token_threshold;
  if (threshold > 0 && n > threshold) n = threshold;
  return n < budget ? n : budget;
}

/* One pass over running: decodes or prefills. False when the asker itself was preempted: the pool
 * is exhausted and nothing more is planned. */
static bool plan_running(scheduler_t *s, bool prefill) {
  int32_t budget_max = s->options.max_num_batched_tokens;
  for (group_t *g = s->running.head, *next; g && s->plan.num_tokens < budget_max; g = next) {
    next = g->next;
    sequence_t *q = &g->sequence;
    if (sequence_in_prefill(q) != prefill) continue;
    int32_t n = chunk_size(s, q, budget_max - s->plan.num_tokens);
    if (n == 0) continue;
    while (!blocks_grow(s, q, q->num_computed_tokens + n)) {
      group_t *victim = choose_victim(s);
      plan_remove(s, &victim->sequence);
      if (victim == next) next = victim->next;
      preempt(s, victim);
      if (victim == g) return false;
    }
    plan_add(s, q, n);
  }
  return true;
}

/* True when the head of waiting was admitted and planned. */
static bool admit(scheduler_t *s, group_t *g, uint64_t now_ns) {
  sequence_t *q = &g->sequence;
  int32_t budget = s->options.max_num_batched_tokens - s->plan.num_tokens;
  bool first_time = q->row < 0;
  if (first_time) {
    if (s->num_free_rows == 0) return false;
    row_take(s, q);
  }
  prefix_match_t match = prefix_match(s, q);
  int32_t cached = match.num_blocks * s->pool->block_size;
  int32_t total = scheduler_blocks_for(s, sequence_num_tokens(q));
  int32_t watermark = s->running.count > 0 ? s->options.watermark_blocks : 0;
  int32_t need = total - match.num_blocks + match.num_unused;
  int32_t left = sequence_num_tokens(q) - cached;
  bool fits =
      need + watermark <= s->pool->num_free && (s->options.chunked_prefill || left <= budget);
  if (!fits) {
    memset(q->blocks, 0, (size_t)match.num_blocks * sizeof *q->blocks);
    if (first_time) row_give_back(s, q);
    return false;
  }
  prefix_take(s, q, match.num_blocks);
  int32_t n = chunk_size(s, q, budget);
  /* The whole prompt's blocks are taken now, or two admissions could count on the same free one. */
  blocks_grow(s, q, s->options.reserve_full ? sequence_num_tokens(q) : q->num_computed_tokens + n);
  queue_remove(&s->waiting, g);
  queue_push_tail(&s->running, g);
  sequence_set_status(q, SEQUENCE_RUNNING);
  if (!q->first_scheduled_ns) {
    q->first_scheduled_ns = now_ns;
    q->num_cached_tokens = cached;
    s->prefix_queries_tokens += (uint64_t)q->num_prompt_tokens;
    s->prefix_hits_tokens += (uint64_t)cached;
  }
  plan_add(s, q, n);
  return true;
}

int32_t scheduler_plan(scheduler_t *s, uint64_t now_ns) {
  plan_t *plan = &s->plan;
  plan->num_entries = plan->num_tokens = plan->num_preempted = 0;
  if (plan_running(s, false)) plan_running(s, true);
  while (plan->num_preempted == 0 && s->waiting.head &&
         plan->num_tokens < s->options.max_num_batched_tokens &&
         s->running.count < s->options.max_num_seqs) {
    if (!admit(s, s->waiting.head, now_ns)) break;
  }
  for (int32_t i = 0; i < plan->num_entries; i++) {
    plan->entries[i].sequence->num_computed_tokens += plan->entries[i].num_tokens;
  }
  return plan->num_entries;
}

void scheduler_finish(scheduler_t *s, group_t *group, sequence_status_t status) {
  sequence_t *q = &group->sequence;
  queue_remove(q->status == SEQUENCE_RUNNING ? &s->running : &s->waiting, group);
  sequence_set_status(q, status);
  blocks_release(s, q);
  row_give_back(s, q);
}
