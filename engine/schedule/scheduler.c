/* scheduler.c: stage 4 of 9, waiting queue -> plan (who, how many tokens).
 *
 * Engine thread only; allocates only in scheduler_new. A victim of preemption gives its blocks back
 * and keeps its output: it goes to the front of the waiting queue and is computed again, or its
 * blocks go to the host (swap.c) and it comes back before anybody new. Next: engine/batch.c.
 */
#include "engine/schedule/scheduler.h"

#include "engine/schedule/table.h"

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
  if (s == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the scheduler");
  s->options = *options;
  s->pool = pool;
  /* Twice the running set: preempted sequences keep their rows while others run. */
  s->num_rows = 2 * options->max_num_seqs;
  s->table_stride = (options->max_model_len + pool->block_size - 1) / pool->block_size;
  s->token_table = map_lazily(token_table_bytes(s));
  s->block_table = map_lazily(block_table_bytes(s));
  s->held_text = calloc((size_t)s->num_rows, STOP_STRING_BYTES_MAX);
  s->free_rows = calloc((size_t)s->num_rows, sizeof *s->free_rows);
  s->sequences = calloc((size_t)s->num_rows, sizeof *s->sequences);
  s->plan.entries = calloc((size_t)options->max_num_seqs, sizeof *s->plan.entries);
  s->plan.copies = calloc((size_t)options->max_num_seqs, sizeof *s->plan.copies);
  if (s->token_table == NULL || s->block_table == NULL || s->held_text == NULL ||
      s->free_rows == NULL || s->sequences == NULL || s->plan.entries == NULL ||
      s->plan.copies == NULL || swap_new(s) != 0) {
    scheduler_free(s);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the tables of %d sequences",
                     options->max_num_seqs);
  }
  for (int32_t r = 0; r < s->num_rows; r++) s->free_rows[s->num_free_rows++] = s->num_rows - 1 - r;
  for (int32_t i = s->num_rows - 1; i >= 0; i--) {
    s->sequences[i].next = s->free_sequences;
    s->free_sequences = &s->sequences[i];
  }
  *out = s;
  return 0;
}

void scheduler_free(scheduler_t *s) {
  if (s == NULL) return;
  if (s->token_table != NULL) munmap(s->token_table, token_table_bytes(s));
  if (s->block_table != NULL) munmap(s->block_table, block_table_bytes(s));
  free(s->held_text);
  free(s->free_rows);
  free(s->sequences);
  free(s->plan.entries);
  free(s->plan.copies);
  swap_free(s);
  free(s);
}

/* True when `a` should run before `b`. */
static bool runs_before(const scheduler_t *s, const group_t *a, const group_t *b) {
  if (s->options.priority_policy && a->request->priority != b->request->priority) {
    return a->request->priority < b->request->priority;
  }
  if (a->fair_start != b->fair_start) return a->fair_start < b->fair_start;
  return a->arrival < b->arrival;
}

/* Start-time fair queueing (Goyal, Vin, Cheng 1996): a request starts where the one before it of
 * the same tenant ends, counted in tokens, but not before those that run now. So a tenant with many
 * requests waits for itself, and one with few passes by. */
static void set_fair_start(scheduler_t *s, group_t *group) {
  const request_t *request = group->request;
  uint64_t tokens = (uint64_t)request->num_prompt_tokens;
  tokens += (uint64_t)request->params.max_tokens * (uint64_t)params_num_sequences(&request->params);
  uint64_t *tenant = &s->fair_end[request->tenant % FAIR_TENANTS];
  group->fair_start = *tenant > s->fair_now ? *tenant : s->fair_now;
  *tenant = group->fair_start + tokens;
}

void scheduler_add(scheduler_t *s, group_t *group) {
  sequence_set_status(&group->sequence, SEQUENCE_WAITING);
  if (s->options.fair_share) set_fair_start(s, group);
  group_t *after = s->waiting.tail;
  while (after != NULL && runs_before(s, group, after)) after = after->prev;
  queue_insert_before(&s->waiting, after != NULL ? after->next : s->waiting.head, group);
}

int32_t scheduler_blocks_for(const scheduler_t *s, int64_t num_tokens) {
  return (int32_t)((num_tokens + s->pool->block_size - 1) / s->pool->block_size);
}

/* ---- planning ---- */

static void plan_remove(scheduler_t *s, const group_t *group) {
  plan_t *plan = &s->plan;
  int32_t kept = 0;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    if (entry->sequence->group == group) {
      plan->num_tokens -= entry->num_tokens;
    } else {
      plan->entries[kept++] = *entry;
    }
  }
  plan->num_entries = kept;
}

static void plan_add(scheduler_t *s, sequence_t *q, int32_t n) {
  plan_t *plan = &s->plan;
  plan->entries[plan->num_entries++] = (plan_entry_t){
      .sequence = q,
      .arrival = q->group->arrival,
      .num_computed = q->num_computed_tokens,
      .num_tokens = n,
      .do_sample = q->num_computed_tokens + n - q->num_drafts == sequence_num_planned(q) &&
                   !sequence_scores_only(q),
      .output_position = q->num_output_tokens + q->num_output_placeholders,
      .num_drafts = q->num_drafts,
  };
  q->num_drafts = 0;
  plan->num_tokens += n;
  table_written(s, q, n);
}

/* Forks that have caught up but for their last token draw together, like decodes. */
static bool is_prefill(const group_t *g) {
  bool behind = false;
  for (const sequence_t *q = &g->sequence; q != NULL && g->forked; q = q->next) {
    if (!sequence_is_live(q)) continue;
    behind = behind || q->num_computed_tokens < sequence_num_tokens(q) - 1;
  }
  return g->forked ? behind : sequence_in_prefill(&g->sequence);
}

/* All is computed again: what it had goes as if it had never run. */
static void forget_computed(scheduler_t *s, sequence_t *q) {
  s->num_recomputed_tokens += (uint64_t)q->num_computed_tokens;
  q->recomputes = q->recomputes || q->num_computed_tokens > q->num_cached_tokens;
  q->num_computed_tokens = 0;
  q->num_prefill_tokens = sequence_num_planned(q);
}

/* Back to the queue, or to the host. The blocks are given back tail first, so that much of them may
 * still be found when it resumes. */
static void preempt(scheduler_t *s, group_t *victim) {
  plan_remove(s, victim);
  /* Forks that catch up share blocks that are not filled yet: only a prefill finds these again. */
  bool catches_up = victim->forked && is_prefill(victim);
  bool swaps = !catches_up && swap_chosen(s, victim);
  if (swaps) swap_out(s, victim);
  for (sequence_t *q = &victim->sequence; q != NULL; q = q->next) {
    if (!sequence_is_live(q)) continue;
    table_release(s, q);
    if (!swaps) forget_computed(s, q);
    sequence_set_status(q, swaps ? SEQUENCE_SWAPPED : SEQUENCE_WAITING);
  }
  queue_remove(&s->running, victim);
  group_queue_t *queue = swaps ? &s->swapped : &s->waiting;
  group_t *position = queue->head;
  while (position != NULL && runs_before(s, position, victim)) position = position->next;
  queue_insert_before(queue, position, victim);
  victim->num_preemptions++;
  s->num_preemptions++;
  s->plan.num_preempted++;
}

/* After so many preemptions a group is no victim while one runs that had fewer. */
static bool is_protected(const scheduler_t *s, const group_t *g) {
  return s->options.max_preemptions > 0 && g->num_preemptions >= s->options.max_preemptions;
}

/* Last of running under fcfs, worst priority otherwise; the protected ones only when there is no
 * other. Under the priority policy nobody better than the asker goes. */
static group_t *choose_victim(const scheduler_t *s, group_t *asker) {
  group_t *victim = NULL;
  for (group_t *g = s->running.tail; g != NULL; g = g->prev) {
    if (is_protected(s, g) && !(s->options.priority_policy && g == asker)) continue;
    bool worse = s->options.priority_policy && victim != NULL && runs_before(s, victim, g);
    if (victim == NULL || worse) victim = g;
  }
  if (victim != NULL) return victim;
  for (group_t *g = s->running.tail; g != NULL; g = g->prev) {
    if (victim == NULL || runs_before(s, victim, g)) victim = g;
  }
  return victim;
}

/* Beams are ranked against each other, so they draw in the same step: after a preemption none takes
 * its last token before all can. */
static bool has_beams(const group_t *g) {
  return g->forked && g->request->params.beam_width > 0;
}

/* Whether the tokens in flight are the last ones that the sequence may have. */
static bool ends_in_flight(const scheduler_t *s, const sequence_t *q) {
  int32_t drawn = q->num_output_tokens + q->num_output_placeholders;
  return q->num_output_placeholders > 0 && (drawn >= q->group->request->params.max_tokens ||
                                            sequence_num_planned(q) >= s->options.max_model_len);
}

/* Tokens that one sequence may have in this step. */
static int32_t chunk_size(const scheduler_t *s, const sequence_t *q, int32_t budget) {
  if (ends_in_flight(s, q)) return 0;
  int32_t n = sequence_num_planned(q) - q->num_computed_tokens;
  int32_t threshold = s->options.long_prefill_token_threshold;
  if (q->group->beams_wait) n--;
  if (threshold > 0 && n > threshold) n = threshold;
  return n < budget ? n : budget;
}

static int32_t budget_left(const scheduler_t *s) {
  return s->budget - s->plan.num_tokens;
}

/* Preempts until `need` blocks are free. False when the asker itself had to go: nothing more is
 * planned. `next` of the caller's walk is kept valid. */
static bool make_room(scheduler_t *s, group_t *asker, int32_t need, group_t **next) {
  while (need > s->pool->num_free) {
    group_t *victim = choose_victim(s, asker);
    if (victim == *next) *next = victim->next;
    preempt(s, victim);
    if (victim == asker) return false;
  }
  return true;
}

/* Lookahead slots: guesses behind the one token that a decode gets, as many as the step can verify
 * at little cost next to what all decodes need anyway. */
static void add_drafts(const scheduler_t *s, sequence_t *q) {
  const draft_options_t *options = &s->options.draft;
  const request_t *request = q->group->request;
  if (options->tokens_max == 0 || q->num_wanted != 1 || q->num_output_placeholders > 0 ||
      group_forks(q->group) || request->grammar != NULL) {
    return;
  }
  int32_t known = sequence_num_tokens(q);
  int32_t limit = DRAFT_STEP_TOKENS / s->running.count - 1;
  int32_t left = request->params.max_tokens - q->num_output_tokens - 1;
  int32_t room = s->options.max_model_len - 1 - known;
  int32_t budget = budget_left(s) - 1;
  if (limit > left) limit = left;
  if (limit > room) limit = room;
  if (limit > budget) limit = budget;
  int32_t length = limit > 0 ? draft_length(options, &q->draft_history) : 0;
  if (length < limit) limit = length;
  if (limit <= 0) return;
  q->num_drafts = s->options.draft_model
                      ? limit
                      : draft_lookup(options, q->tokens, known, limit, &q->tokens[known]);
  q->num_wanted += q->num_drafts;
}

static void drop_drafts(group_t *g) {
  for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    q->num_wanted -= q->num_drafts;
    q->num_drafts = 0;
  }
}

/* The next tokens of every sequence of the group, or of none. */
static bool plan_decode(scheduler_t *s, group_t *g, group_t **next) {
  int32_t total = 0;
  g->beams_wait = false;
  for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    q->num_drafts = 0;
    q->num_wanted = sequence_is_live(q) ? chunk_size(s, q, budget_left(s)) : 0;
    add_drafts(s, q);
    total += q->num_wanted;
  }
  /* Guesses leave a token for everybody who is still to decode in this step. */
  int32_t others = s->options.max_num_seqs - s->plan.num_entries - group_num_running(g);
  if (total + others > budget_left(s) || table_need_group(s, g) > s->pool->num_free) {
    drop_drafts(g);
  }
  total = 0;
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) total += q->num_wanted;
  if (total > budget_left(s)) return true;
  if (!make_room(s, g, table_need_group(s, g), next)) return false;
  for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    if (q->num_wanted == 0) continue;
    table_grow(s, q, q->num_wanted);
    plan_add(s, q, q->num_wanted);
  }
  return true;
}

static bool plan_prefill(scheduler_t *s, group_t *g, group_t **next) {
  if (has_beams(g)) {
    for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
      if (sequence_is_live(q)) table_advance(s, q);
    }
    g->beams_wait = is_prefill(g);
    if (!g->beams_wait) return plan_decode(s, g, next);
  }
  for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    if (!sequence_is_live(q) || !table_advance(s, q)) continue;
    int32_t n = chunk_size(s, q, budget_left(s));
    if (n <= 0) continue;
    if (!make_room(s, g, table_need(s, q, n), next)) return false;
    table_grow(s, q, n);
    plan_add(s, q, n);
  }
  return true;
}

/* One pass over running: decodes or prefills, but for those that plan_shorter has planned. False
 * when the asker itself was preempted. */
static bool plan_running(scheduler_t *s, bool prefill) {
  for (group_t *g = s->running.head, *next; g != NULL && budget_left(s) > 0; g = next) {
    next = g->next;
    if (is_prefill(g) != prefill || g->passed_in == s->num_plans) continue;
    if (!(prefill ? plan_prefill(s, g, &next) : plan_decode(s, g, &next))) return false;
  }
  return true;
}

int32_t scheduler_tokens_reserved(const scheduler_t *s, const sequence_t *q) {
  int32_t known = sequence_num_tokens(q), most = s->options.max_model_len;
  const group_t *g = q->group;
  bool alone = g->forked || group_num_running(g) == 1; /* else its forks reserve for themselves */
  if (!is_protected(s, g) || !alone) return known;
  int64_t all = (int64_t)q->num_prompt_tokens + g->request->params.max_tokens;
  return all < most ? (int32_t)all : most;
}

/* Whether q can be admitted with this match. */
static bool fits(const scheduler_t *s, const sequence_t *q, const prefix_match_t *match) {
  int32_t num_tokens = sequence_num_tokens(q), reserved = scheduler_tokens_reserved(s, q);
  int32_t watermark = s->running.count > 1 ? s->options.watermark_blocks : 0;
  int32_t need = scheduler_blocks_for(s, reserved) - match->num_blocks + match->num_unused;
  /* A prompt is planned whole if that is asked for; what forks have to catch up with is no prompt,
   * and together it may never fit into one step. */
  bool chunks = s->options.chunked_prefill || q->group->forked;
  return need + watermark <= s->pool->num_free &&
         (chunks || num_tokens - match->num_cached <= budget_left(s));
}

/* Takes the blocks of one sequence that is to be admitted, and plans its first chunk. */
static bool admit_sequence(scheduler_t *s, sequence_t *q, bool copies) {
  prefix_match_t match = table_match(s, q);
  /* Where every block counts, rows are not kept for a copy. */
  if (!copies || !fits(s, q, &match)) table_match_whole(s, &match);
  if (!fits(s, q, &match)) {
    memset(q->blocks, 0, (size_t)match.num_blocks * sizeof *q->blocks);
    return false;
  }
  bool blocked = match.num_valid < match.num_blocks;
  q->num_computed_tokens = match.num_cached;
  int32_t n = blocked ? 0 : chunk_size(s, q, budget_left(s));
  /* The whole prompt's blocks are taken now, or two admissions could count on the same free one. */
  bool whole = s->options.reserve_full || blocked || is_protected(s, q->group);
  table_admit(s, q, &match, whole ? scheduler_tokens_reserved(s, q) : match.num_cached + n);
  if (!q->recomputes) q->num_cached_tokens = match.num_cached;
  if (n > 0) plan_add(s, q, n);
  return true;
}

/* A group that was preempted while its last tokens are on the way. */
static bool is_in_flight(const group_t *g) {
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    if (sequence_is_live(q) && q->num_in_flight_tokens > 0) return true;
  }
  return false;
}

/* Takes the blocks of every sequence of the group, or of none. */
static bool admit_sequences(scheduler_t *s, group_t *g, bool copies) {
  bool taken = true;
  for (sequence_t *q = &g->sequence; q != NULL && taken; q = q->next) {
    if (sequence_is_live(q)) taken = admit_sequence(s, q, copies);
  }
  if (taken) return true;
  plan_remove(s, g);
  for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    if (!sequence_is_live(q)) continue;
    table_release(s, q);
    q->num_computed_tokens = 0;
  }
  return false;
}

/* Moves a group from waiting to running, with all its sequences, and plans it. */
static bool admit(scheduler_t *s, group_t *g, uint64_t now_ns) {
  sequence_t *first = &g->sequence;
  if (first->row < 0 && !g->forked && !table_take_rows(s, g)) return false;
  group_t *position = g->next;
  queue_remove(&s->waiting, g);
  queue_push_tail(&s->running, g);
  /* The source that the first one copies may be the block that the last one lacks. */
  g->beams_wait = has_beams(g);
  if (!admit_sequences(s, g, true) && !(first->next != NULL && admit_sequences(s, g, false))) {
    queue_remove(&s->running, g);
    queue_insert_before(&s->waiting, position, g);
    if (g->num_preemptions == 0) table_give_rows(s, g);
    return false;
  }
  for (sequence_t *q = first; q != NULL; q = q->next) {
    if (sequence_is_live(q)) sequence_set_status(q, SEQUENCE_RUNNING);
  }
  g->passed_in = s->num_plans;
  /* The cache had everything: nothing is behind, and nobody else may be there to go on. */
  if (g->beams_wait && !is_prefill(g)) plan_decode(s, g, &position);
  if (g->fair_start > s->fair_now) s->fair_now = g->fair_start;
  if (!first->first_scheduled_ns) {
    first->first_scheduled_ns = now_ns;
    s->prefix_queries_tokens += (uint64_t)first->num_prompt_tokens;
    s->prefix_hits_tokens += (uint64_t)first->num_cached_tokens;
  }
  return true;
}

static int32_t count_running(const scheduler_t *s) {
  int32_t count = 0;
  for (const group_t *g = s->running.head; g != NULL; g = g->next) count += group_num_running(g);
  return count;
}

/* Without looking at the cache: enough for somebody who would pass others. */
static bool surely_fits(const scheduler_t *s, const group_t *g) {
  int64_t need = 0;
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) {
    if (sequence_is_live(q)) need += scheduler_blocks_for(s, scheduler_tokens_reserved(s, q));
  }
  return need + s->options.watermark_blocks <= s->pool->num_free;
}

/* Preempted: it was let in before and holds its rows. */
static bool holds_rows(const group_t *g) {
  return g->sequence.row >= 0 || g->forked;
}

static bool has_rows(const scheduler_t *s, const group_t *g) {
  return holds_rows(g) || s->num_free_rows >= group_num_running(g);
}

/* Whether `g` may be passed by `later`. */
static bool may_pass(const scheduler_t *s, const group_t *g, const group_t *later) {
  /* Those who hold the rows that it lacks give them back by running, and nothing else does. */
  if (!has_rows(s, g) && holds_rows(later)) return true;
  if (s->options.priority_policy && g->request->priority != later->request->priority) return false;
  return g->num_skips < s->options.max_skips;
}

/* Tokens that a group which has not forked is behind. */
static int32_t tokens_left(const group_t *g) {
  return sequence_num_planned(&g->sequence) - g->sequence.num_computed_tokens;
}

/* Whether `later` is done sooner than a prefill that is ahead of it, and may go before it. */
static bool is_shorter(const scheduler_t *s, const group_t *later, const group_t *ahead) {
  if (later->forked || tokens_left(later) >= tokens_left(ahead)) return false;
  return !s->options.priority_policy || later->request->priority <= ahead->request->priority;
}

/* Bounded overtaking: behind one that does not fit now, later ones that do may start, unless one of
 * those that they pass was passed too often already; then the queue waits for it. With `ahead`, a
 * prefill, only those fit that are shorter, or that were passed too often. */
static void admit_waiting(scheduler_t *s, uint64_t now_ns, const group_t *ahead) {
  int32_t num_seqs = count_running(s), scanned = 0;
  for (group_t *g = s->waiting.head, *next; g != NULL && budget_left(s) > 0; g = next) {
    next = g->next;
    int32_t count = group_num_running(g);
    bool passes = g != s->waiting.head, barred = false;
    for (const group_t *p = s->waiting.head; p != g && !barred; p = p->next) {
      barred = !may_pass(s, p, g);
    }
    /* With nothing running whoever can run must: those in front may lack the rows that he holds. */
    bool stuck = s->running.count == 0;
    if ((scanned++ >= ADMISSION_SCAN_MAX && !stuck) || is_in_flight(g)) return;
    if (barred && !stuck) continue; /* one that holds rows may stand behind it and pass */
    bool waited = g->num_skips > 0 && g->num_skips >= s->options.max_skips;
    if (ahead != NULL && !waited && !is_shorter(s, g, ahead)) continue;
    bool room = num_seqs + count <= s->options.max_num_seqs && has_rows(s, g);
    if (!room || (passes && !holds_rows(g) && !surely_fits(s, g)) || !admit(s, g, now_ns)) continue;
    num_seqs += count;
    for (group_t *p = s->waiting.head; p != next && !barred; p = p->next) p->num_skips++;
  }
}

static int32_t count_live(const group_t *g) {
  int32_t count = 0;
  for (const sequence_t *q = &g->sequence; q != NULL; q = q->next) count += sequence_is_live(q);
  return count;
}

/* Those on the host come back in order, and nobody new is let in before the last of them. */
static void plan_swapped(scheduler_t *s) {
  int32_t num_seqs = s->swapped.head != NULL ? count_running(s) : 0;
  for (group_t *g = s->swapped.head, *next, *none = NULL; g != NULL; g = next) {
    next = g->next;
    int32_t count = group_num_running(g);
    bool room = num_seqs + count <= s->options.max_num_seqs && count_live(g) <= budget_left(s);
    swap_verdict_t verdict = room && !is_in_flight(g) ? swap_verdict(s, g) : SWAP_LATER;
    if (verdict == SWAP_LATER) return;
    queue_remove(&s->swapped, g);
    queue_push_tail(verdict == SWAP_OK ? &s->running : &s->ignored, g);
    if (verdict == SWAP_NEVER) continue;
    swap_in(s, g);
    for (sequence_t *q = &g->sequence; q != NULL; q = q->next) {
      if (sequence_is_live(q)) sequence_set_status(q, SEQUENCE_RUNNING);
    }
    bool planned = is_prefill(g) ? plan_prefill(s, g, &none) : plan_decode(s, g, &none);
    CHECK(planned); /* its blocks are there: nobody has to go for it */
    num_seqs += count;
  }
}

/* The prefill that is first in line and can go on. */
static group_t *first_prefill(scheduler_t *s) {
  for (group_t *g = s->running.head; g != NULL; g = g->next) {
    if (!g->forked && is_prefill(g) && table_advance(s, &g->sequence)) return g;
  }
  return NULL;
}

/* Of the prefills behind `first` that may go before it: the one that is done soonest. */
static group_t *shortest_behind(const scheduler_t *s, const group_t *first) {
  group_t *shortest = NULL;
  for (group_t *g = first->next; g != NULL; g = g->next) {
    if (g->passed_in == s->num_plans || !is_prefill(g) || !is_shorter(s, g, first)) continue;
    if (shortest == NULL || tokens_left(g) < tokens_left(shortest)) shortest = g;
  }
  return shortest;
}

/* A short prompt need not wait for a long one: of the budget that decodes leave, those behind the
 * first prefill that have less to compute than it come before it, the shortest first, as long as it
 * is left one half, or all that it can use. False when the asker itself was preempted. */
static bool plan_shorter(scheduler_t *s, uint64_t now_ns) {
  group_t *first = s->options.short_prompts_pass ? first_prefill(s) : NULL, *none = NULL;
  bool goes_on = true;
  if (first == NULL || !s->options.chunked_prefill) return true;
  int32_t half = (budget_left(s) + 1) / 2;
  s->budget -= chunk_size(s, &first->sequence, half);
  while (goes_on && s->plan.num_preempted == 0 && budget_left(s) > 0) {
    group_t *g = shortest_behind(s, first);
    if (s->swapped.head == NULL) admit_waiting(s, now_ns, g != NULL ? g : first);
    if (g == NULL) break;
    g->passed_in = s->num_plans;
    if (budget_left(s) > 0) goes_on = plan_prefill(s, g, &none);
  }
  s->budget = s->options.max_num_batched_tokens;
  return goes_on;
}

static void plan_all_running(scheduler_t *s, uint64_t now_ns) {
  s->num_plans++;
  if (plan_running(s, false) && plan_shorter(s, now_ns)) plan_running(s, true);
}

int32_t scheduler_plan(scheduler_t *s, uint64_t now_ns) {
  plan_t *plan = &s->plan;
  scheduler_unpin(s, plan); /* unless scheduler_take_plan has taken them along */
  plan->num_entries = plan->num_tokens = plan->num_preempted = 0;
  plan->num_swap_out = plan->num_swap_in = 0;
  s->budget = s->options.max_num_batched_tokens;
  plan_all_running(s, now_ns);
  /* The asker itself had to go, and it was the first: those who shared its blocks go on. */
  if (plan->num_preempted > 0 && plan->num_entries == 0 && s->running.head != NULL) {
    plan_all_running(s, now_ns);
  }
  if (plan->num_preempted == 0) plan_swapped(s);
  if (plan->num_preempted == 0 && s->swapped.head == NULL) admit_waiting(s, now_ns, NULL);
  for (int32_t i = 0; i < plan->num_entries; i++) {
    sequence_t *q = plan->entries[i].sequence;
    q->num_computed_tokens += plan->entries[i].num_tokens;
    q->num_in_flight_tokens += plan->entries[i].num_tokens;
    q->num_output_placeholders += plan->entries[i].do_sample;
  }
  return plan->num_entries;
}

void scheduler_take_plan(scheduler_t *s, plan_t *out) {
  plan_t *plan = &s->plan, taken = *plan;
  taken.entries = out->entries;
  taken.copies = out->copies;
  taken.swaps = NULL; /* launched already */
  memcpy(taken.entries, plan->entries, (size_t)plan->num_entries * sizeof *plan->entries);
  memcpy(taken.copies, plan->copies, (size_t)plan->num_copies * sizeof *plan->copies);
  plan->num_copies = 0;
  *out = taken;
}

void scheduler_unpin(scheduler_t *s, plan_t *plan) {
  while (plan->num_copies > 0) block_unpin(s->pool, plan->copies[--plan->num_copies].copy.src);
}

/* ---- forks and ends ---- */

void scheduler_fork(scheduler_t *s, group_t *group) {
  CHECK(!group->forked);
  group->forked = true;
  for (sequence_t *q = group->sequence.next; q != NULL; q = q->next) {
    table_fork(s, &group->sequence, q);
    sequence_set_status(q, SEQUENCE_RUNNING);
  }
}

void scheduler_finish_sequence(scheduler_t *s, sequence_t *q, sequence_status_t status) {
  sequence_set_status(q, status);
  table_release(s, q);
  swap_release(s, q);
  table_give_row(s, q);
}

void scheduler_finish(scheduler_t *s, group_t *group, sequence_status_t status) {
  for (sequence_t *q = &group->sequence; q != NULL; q = q->next) {
    if (!sequence_is_live(q)) continue;
    table_release(s, q);
    swap_release(s, q);
    sequence_set_status(q, status);
  }
  queue_remove(group->queue, group);
  table_give_rows(s, group);
}

void scheduler_land(const plan_entry_t *entry) {
  sequence_t *q = entry->sequence;
  q->num_in_flight_tokens -= entry->num_tokens;
  q->num_output_placeholders -= entry->do_sample;
}

void scheduler_reject(plan_entry_t *entry, int32_t num_rejected) {
  entry->num_tokens -= num_rejected;
  entry->sequence->num_computed_tokens -= num_rejected;
}
