/* scheduler.c: stage 4 of 9, waiting queue -> plan (which sequences run, how many tokens each).
 *
 * Engine thread only; allocates in scheduler_new only. A preempted group releases its blocks and
 * keeps its output. Either it returns to the waiting queue and is computed again, or its blocks are
 * swapped to the host (swap.c) and it comes back before any new request. Next: engine/batch.c.
 */
#include "engine/schedule/scheduler.h"

#include "engine/activity.h"
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/schedule/table.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *map_lazily(size_t bytes) {
  void *p =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? NULL : p;
}

static size_t token_table_bytes(const scheduler_t *scheduler) {
  return (size_t)scheduler->num_rows * (size_t)scheduler->options.max_model_len *
         sizeof *scheduler->token_table;
}

static size_t block_table_bytes(const scheduler_t *scheduler) {
  return (size_t)scheduler->num_rows * (size_t)scheduler->table_stride *
         sizeof *scheduler->block_table;
}

int scheduler_new(const scheduler_options_t *options, block_pool_t *pool, scheduler_t **out,
                  inferd_error_t *error) {
  CHECK_GE(options->max_num_batched_tokens, options->max_num_seqs);
  scheduler_t *scheduler = calloc(1, sizeof *scheduler);
  if (scheduler == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the scheduler");
  scheduler->options = *options;
  scheduler->waiting.priority_policy = options->priority_policy;
  scheduler->waiting.fair_share = options->fair_share;
  scheduler->pool = pool;
  /* Twice the running sequences, because preempted sequences keep their rows while others run. */
  scheduler->num_rows = 2 * options->max_num_seqs;
  scheduler->table_stride = DIV_UP(options->max_model_len, pool->block_size);
  scheduler->token_table = map_lazily(token_table_bytes(scheduler));
  scheduler->block_table = map_lazily(block_table_bytes(scheduler));
  scheduler->held_text = calloc((size_t)scheduler->num_rows, STOP_STRING_BYTES_MAX);
  scheduler->free_rows = calloc((size_t)scheduler->num_rows, sizeof *scheduler->free_rows);
  scheduler->sequences = calloc((size_t)scheduler->num_rows, sizeof *scheduler->sequences);
  scheduler->plan.entries = calloc((size_t)options->max_num_seqs, sizeof *scheduler->plan.entries);
  scheduler->plan.copies = calloc((size_t)options->max_num_seqs, sizeof *scheduler->plan.copies);
  if (scheduler->token_table == NULL || scheduler->block_table == NULL ||
      scheduler->held_text == NULL || scheduler->free_rows == NULL ||
      scheduler->sequences == NULL || scheduler->plan.entries == NULL ||
      scheduler->plan.copies == NULL || swap_new(scheduler) != 0) {
    scheduler_free(scheduler);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the tables of %d sequences",
                     options->max_num_seqs);
  }
  for (int32_t r = 0; r < scheduler->num_rows; r++)
    scheduler->free_rows[scheduler->num_free_rows++] = scheduler->num_rows - 1 - r;
  for (int32_t i = scheduler->num_rows - 1; i >= 0; i--) {
    scheduler->sequences[i].next = scheduler->free_sequences;
    scheduler->free_sequences = &scheduler->sequences[i];
  }
  *out = scheduler;
  return 0;
}

void scheduler_free(scheduler_t *scheduler) {
  if (scheduler == NULL) return;
  if (scheduler->token_table != NULL) munmap(scheduler->token_table, token_table_bytes(scheduler));
  if (scheduler->block_table != NULL) munmap(scheduler->block_table, block_table_bytes(scheduler));
  free(scheduler->held_text);
  free(scheduler->free_rows);
  free(scheduler->sequences);
  free(scheduler->plan.entries);
  free(scheduler->plan.copies);
  swap_free(scheduler);
  free(scheduler);
}

void scheduler_add(scheduler_t *scheduler, group_t *group) {
  sequence_set_status(&group->sequence, SEQUENCE_WAITING);
  waiting_add(&scheduler->waiting, group);
}

int32_t scheduler_blocks_for(const scheduler_t *scheduler, int64_t num_tokens) {
  return (int32_t)DIV_UP(num_tokens, scheduler->pool->block_size);
}

/* ---- planning ---- */

/* Removes the entries of a group from the plan. */
static void plan_remove(scheduler_t *scheduler, const group_t *group) {
  plan_t *plan = &scheduler->plan;
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

static void plan_add(scheduler_t *scheduler, sequence_t *seq, int32_t n) {
  plan_t *plan = &scheduler->plan;
  plan->entries[plan->num_entries++] = (plan_entry_t){
      .sequence = seq,
      .arrival = seq->group->arrival,
      .num_computed = seq->num_computed_tokens,
      .num_tokens = n,
      .do_sample = seq->num_computed_tokens + n - seq->num_drafts == sequence_num_planned(seq) &&
                   !sequence_scores_only(seq),
      .output_position = seq->num_output_tokens + seq->num_output_placeholders,
      .num_drafts = seq->num_drafts,
  };
  seq->num_drafts = 0;
  plan->num_tokens += n;
  table_written(scheduler, seq, n);
}

/* Forks count as decodes, and draw together, once each of them lacks its last token only. */
static bool is_prefill(const group_t *group) {
  bool behind = false;
  for (const sequence_t *seq = &group->sequence; seq != NULL && group->forked; seq = seq->next) {
    if (!sequence_is_live(seq)) continue;
    behind = behind || seq->num_computed_tokens < sequence_num_tokens(seq) - 1;
  }
  return group->forked ? behind : sequence_in_prefill(&group->sequence);
}

/* Resets the sequence so that all its tokens are computed again. */
static void forget_computed(scheduler_t *scheduler, sequence_t *seq) {
  scheduler->num_recomputed_tokens += (uint64_t)seq->num_computed_tokens;
  seq->recomputes = seq->recomputes || seq->num_computed_tokens > seq->num_cached_tokens;
  seq->num_computed_tokens = 0;
  seq->num_prefill_tokens = sequence_num_planned(seq);
}

/* Inserts a group into `swapped`, which is short: its groups were running. */
static void insert_swapped(scheduler_t *scheduler, group_t *group) {
  group_t *position = scheduler->swapped.head;
  while (position != NULL && waiting_precedes(&scheduler->waiting, position, group))
    position = position->next;
  queue_insert_before(&scheduler->swapped, position, group);
}

/* Moves a group from running to swapped or waiting. Blocks are released last first, so the prefix
 * cache may still have the leading ones when the group resumes. */
static void preempt(scheduler_t *scheduler, group_t *victim) {
  plan_remove(scheduler, victim);
  /* Forks that catch up share blocks which are not filled yet. A swap would lose the sharing; a
   * prefill finds these blocks again. */
  bool catches_up = victim->forked && is_prefill(victim);
  bool swaps = !catches_up && swap_chosen(scheduler, victim);
  if (swaps) swap_out(scheduler, victim);
  for (sequence_t *seq = &victim->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq)) continue;
    table_release(scheduler, seq);
    if (!swaps) forget_computed(scheduler, seq);
    sequence_set_status(seq, swaps ? SEQUENCE_SWAPPED : SEQUENCE_WAITING);
  }
  queue_remove(&scheduler->running, victim);
  if (swaps) {
    insert_swapped(scheduler, victim);
  } else {
    waiting_insert(&scheduler->waiting, victim);
  }
  victim->unfit.is_known = false;
  victim->num_preemptions++;
  scheduler->num_preemptions++;
  scheduler->plan.num_preempted++;
}

/* Whether the group was preempted `max_preemptions` times: choose_victim spares it if it can. */
static bool is_protected(const scheduler_t *scheduler, const group_t *group) {
  return scheduler->options.max_preemptions > 0 &&
         group->num_preemptions >= scheduler->options.max_preemptions;
}

/* The last of `running`, or with the priority policy the one of worst priority. Protected groups
 * are chosen only if there is no other victim. With the priority policy a group that runs before
 * the requester is never preempted: the requester itself counts as unprotected. */
static group_t *choose_victim(const scheduler_t *scheduler, group_t *requester) {
  group_t *victim = NULL;
  for (group_t *group = scheduler->running.tail; group != NULL; group = group->prev) {
    if (is_protected(scheduler, group) &&
        !(scheduler->options.priority_policy && group == requester))
      continue;
    bool worse = scheduler->options.priority_policy && victim != NULL &&
                 waiting_precedes(&scheduler->waiting, victim, group);
    if (victim == NULL || worse) victim = group;
  }
  if (victim != NULL) return victim;
  for (group_t *group = scheduler->running.tail; group != NULL; group = group->prev) {
    if (victim == NULL || waiting_precedes(&scheduler->waiting, victim, group)) victim = group;
  }
  return victim;
}

/* Beams are ranked against each other, so they draw in the same step: after a preemption no beam
 * computes its last token before all beams can. */
static bool has_beams(const group_t *group) {
  return group->forked && group->request->params.beam_width > 0;
}

/* Whether the tokens that are being drawn include the last one that the sequence may have. */
static bool ends_in_flight(const scheduler_t *scheduler, const sequence_t *seq) {
  int32_t drawn = seq->num_output_tokens + seq->num_output_placeholders;
  return seq->num_output_placeholders > 0 &&
         (drawn >= seq->group->request->params.max_tokens ||
          sequence_num_planned(seq) >= scheduler->options.max_model_len);
}

/* Tokens that one sequence may compute in this step. */
static int32_t chunk_size(const scheduler_t *scheduler, const sequence_t *seq, int32_t budget) {
  if (ends_in_flight(scheduler, seq)) return 0;
  int32_t n = sequence_num_planned(seq) - seq->num_computed_tokens;
  int32_t threshold = scheduler->options.long_prefill_token_threshold;
  if (seq->group->beams_wait) n--;
  if (threshold > 0 && n > threshold) n = threshold;
  return MIN(n, budget);
}

static int32_t budget_left(const scheduler_t *scheduler) {
  return scheduler->budget - scheduler->plan.num_tokens;
}

/* Preempts groups until `need` blocks are free. Returns false if the requester itself was
 * preempted: then the caller stops planning. Keeps `next` of the caller's walk valid. */
static bool make_room(scheduler_t *scheduler, group_t *requester, int32_t need, group_t **next) {
  while (need > scheduler->pool->num_free) {
    group_t *victim = choose_victim(scheduler, requester);
    if (victim == *next) *next = victim->next;
    preempt(scheduler, victim);
    if (victim == requester) return false;
  }
  return true;
}

/* Adds lookahead slots: draft tokens after the one token of a decode, as many as the step can
 * verify at little extra cost (DRAFT_STEP_TOKENS). */
static void add_drafts(const scheduler_t *scheduler, sequence_t *seq) {
  const draft_options_t *options = &scheduler->options.draft;
  const request_t *request = seq->group->request;
  if (options->tokens_max == 0 || seq->num_wanted != 1 || seq->num_output_placeholders > 0 ||
      group_forks(seq->group) || request->grammar != NULL) {
    return;
  }
  int32_t known = sequence_num_tokens(seq);
  int32_t limit = DRAFT_STEP_TOKENS / scheduler->running.count - 1;
  int32_t left = request->params.max_tokens - seq->num_output_tokens - 1;
  int32_t room = scheduler->options.max_model_len - 1 - known;
  int32_t budget = budget_left(scheduler) - 1;
  if (limit > left) limit = left;
  if (limit > room) limit = room;
  if (limit > budget) limit = budget;
  int32_t length = limit > 0 ? draft_length(options, &seq->draft_history) : 0;
  if (length < limit) limit = length;
  if (limit <= 0) return;
  seq->num_drafts = scheduler->options.draft_model
                        ? limit
                        : draft_lookup(options, seq->tokens, known, limit, &seq->tokens[known]);
  seq->num_wanted += seq->num_drafts;
}

static void drop_drafts(group_t *group) {
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    seq->num_wanted -= seq->num_drafts;
    seq->num_drafts = 0;
  }
}

/* Plans the next tokens of every sequence of the group, or of none if the budget is too small.
 * Returns false if the group itself was preempted. */
static bool plan_decode(scheduler_t *scheduler, group_t *group, group_t **next) {
  int32_t total = 0;
  group->beams_wait = false;
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    seq->num_drafts = 0;
    seq->num_wanted =
        sequence_is_live(seq) ? chunk_size(scheduler, seq, budget_left(scheduler)) : 0;
    add_drafts(scheduler, seq);
    total += seq->num_wanted;
  }
  /* Drafts must leave one token for each sequence that may still decode in this step. */
  int32_t others =
      scheduler->options.max_num_seqs - scheduler->plan.num_entries - group_num_running(group);
  if (total + others > budget_left(scheduler) ||
      table_need_group(scheduler, group) > scheduler->pool->num_free) {
    drop_drafts(group);
  }
  total = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next)
    total += seq->num_wanted;
  if (total > budget_left(scheduler)) return true;
  if (!make_room(scheduler, group, table_need_group(scheduler, group), next)) return false;
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (seq->num_wanted == 0) continue;
    table_grow(scheduler, seq, seq->num_wanted);
    plan_add(scheduler, seq, seq->num_wanted);
  }
  return true;
}

/* Plans a chunk of every sequence of the group. Returns false if the group itself was preempted. */
static bool plan_prefill(scheduler_t *scheduler, group_t *group, group_t **next) {
  if (has_beams(group)) {
    for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
      if (sequence_is_live(seq)) table_advance(scheduler, seq);
    }
    group->beams_wait = is_prefill(group);
    if (!group->beams_wait) return plan_decode(scheduler, group, next);
  }
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq) || !table_advance(scheduler, seq)) continue;
    int32_t n = chunk_size(scheduler, seq, budget_left(scheduler));
    if (n <= 0) continue;
    if (!make_room(scheduler, group, table_need(scheduler, seq, n), next)) return false;
    table_grow(scheduler, seq, n);
    plan_add(scheduler, seq, n);
  }
  return true;
}

/* Plans the decodes or the prefills of `running`, without the groups that this plan has planned
 * already. Returns false if a group had to preempt itself. */
static bool plan_running(scheduler_t *scheduler, bool prefill) {
  for (group_t *group = scheduler->running.head, *next; group != NULL && budget_left(scheduler) > 0;
       group = next) {
    next = group->next;
    if (is_prefill(group) != prefill || group->planned_in == scheduler->num_plans ||
        group->masks.wait)
      continue;
    if (!(prefill ? plan_prefill(scheduler, group, &next) : plan_decode(scheduler, group, &next)))
      return false;
  }
  return true;
}

int32_t scheduler_tokens_reserved(const scheduler_t *scheduler, const sequence_t *seq) {
  int32_t known = sequence_num_tokens(seq), most = scheduler->options.max_model_len;
  const group_t *group = seq->group;
  bool alone =
      group->forked || group_num_running(group) == 1; /* else each fork will reserve its own */
  if (!is_protected(scheduler, group) || !alone) return known;
  int64_t all = (int64_t)seq->num_prompt_tokens + group->request->params.max_tokens;
  return all < most ? (int32_t)all : most;
}

/* What the pool and the budget must have left to admit seq with this match. */
static unfit_t needs(const scheduler_t *scheduler, const sequence_t *seq,
                     const prefix_match_t *match) {
  const group_t *group = seq->group;
  int32_t reserved = scheduler_tokens_reserved(scheduler, seq);
  bool runs = group->queue == &scheduler->running;
  int32_t others = scheduler->running.count - runs;
  int32_t watermark = others > 0 ? scheduler->options.watermark_blocks : 0;
  int32_t blocks =
      scheduler_blocks_for(scheduler, reserved) - match->num_blocks + match->num_unused;
  /* Without chunked prefill a prompt is planned whole. The tokens that preempted forks compute
   * again always come in chunks, because all of them together might never fit into one step. */
  bool chunks = scheduler->options.chunked_prefill || group->forked;
  return (unfit_t){.is_known = true,
                   .num_blocks = blocks + watermark,
                   .num_tokens = chunks ? 0 : sequence_num_tokens(seq) - match->num_cached,
                   .num_claims = scheduler->num_claims};
}

static bool has_enough(const scheduler_t *scheduler, const unfit_t *needed) {
  return needed->num_blocks <= scheduler->pool->num_free &&
         needed->num_tokens <= budget_left(scheduler);
}

/* Whether the pool and the budget have enough left to admit seq. If they do not, and the match has
 * a partial block, it is dropped: the source of a copy needs a free block too. */
static bool fits(const scheduler_t *scheduler, sequence_t *seq, prefix_match_t *match) {
  unfit_t needed = needs(scheduler, seq, match);
  if (has_enough(scheduler, &needed)) return true;
  table_match_whole(scheduler, match);
  needed = needs(scheduler, seq, match);
  if (has_enough(scheduler, &needed)) return true;
  seq->group->unfit = needed;
  return false;
}

/* Whether the group did not fit when it was looked at, and cannot fit now: nothing was freed that
 * would be enough, and no prompt was admitted whose blocks it may share. If nothing runs, it is
 * always looked at. */
static bool is_unfit(const scheduler_t *scheduler, const group_t *group) {
  const unfit_t *unfit = &group->unfit;
  return unfit->is_known && scheduler->running.count > 0 &&
         unfit->num_claims == scheduler->num_claims && !has_enough(scheduler, unfit);
}

/* Takes the blocks of one sequence and plans its first chunk. Returns false, and takes nothing, if
 * they do not fit. */
static bool admit_sequence(scheduler_t *scheduler, sequence_t *seq, bool copies) {
  prefix_match_t match = table_match(scheduler, seq);
  if (!copies) table_match_whole(scheduler, &match);
  if (!fits(scheduler, seq, &match)) {
    memset(seq->blocks, 0, (size_t)match.num_blocks * sizeof *seq->blocks);
    return false;
  }
  bool blocked = match.num_valid < match.num_blocks;
  seq->num_computed_tokens = match.num_cached;
  int32_t n = blocked ? 0 : chunk_size(scheduler, seq, budget_left(scheduler));
  /* All blocks of the prompt are taken now: else two admissions could count the same free blocks.
   */
  bool whole = scheduler->options.reserve_full || blocked || is_protected(scheduler, seq->group);
  table_admit(scheduler, seq, &match,
              whole ? scheduler_tokens_reserved(scheduler, seq) : match.num_cached + n);
  if (!seq->recomputes) seq->num_cached_tokens = match.num_cached;
  if (n > 0) plan_add(scheduler, seq, n);
  return true;
}

/* Whether tokens of the group are still in flight, from before it was preempted. */
static bool is_in_flight(const group_t *group) {
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq) && seq->num_in_flight_tokens > 0) return true;
  }
  return false;
}

/* Takes the blocks of every sequence of the group, or of none if one does not fit. */
static bool admit_sequences(scheduler_t *scheduler, group_t *group, bool copies) {
  bool taken = true;
  for (sequence_t *seq = &group->sequence; seq != NULL && taken; seq = seq->next) {
    if (sequence_is_live(seq)) taken = admit_sequence(scheduler, seq, copies);
  }
  if (taken) return true;
  plan_remove(scheduler, group);
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq)) continue;
    table_release(scheduler, seq);
    seq->num_computed_tokens = 0;
  }
  return false;
}

/* Looks at a new group before it takes rows, which copies its prompt. */
static bool may_fit(scheduler_t *scheduler, group_t *group) {
  prefix_match_t match = table_match(scheduler, &group->sequence);
  return fits(scheduler, &group->sequence, &match);
}

/* Moves a group with all its sequences from waiting to running and plans it. Returns false, and
 * changes nothing, if rows or blocks do not suffice. */
static bool admit(scheduler_t *scheduler, group_t *group, uint64_t now_ns) {
  sequence_t *first = &group->sequence;
  if (is_unfit(scheduler, group)) return false;
  scheduler->num_looks++;
  activity_for(scheduler->activity, group->request->id);
  if (first->row < 0 && !group->forked &&
      (!may_fit(scheduler, group) || !table_take_rows(scheduler, group)))
    return false;
  waiting_remove(&scheduler->waiting, group);
  queue_push_tail(&scheduler->running, group);
  /* The first sequence may pin, as a copy source, the very block that the last one needs. Then try
   * again without copies. */
  group->beams_wait = has_beams(group);
  if (!admit_sequences(scheduler, group, true) &&
      !(first->next != NULL && admit_sequences(scheduler, group, false))) {
    queue_remove(&scheduler->running, group);
    waiting_insert(&scheduler->waiting, group);
    /* Of several sequences some fit: then more must be free than now. */
    if (first->next != NULL) group->unfit.num_blocks = scheduler->pool->num_free + 1;
    group->unfit.num_claims = scheduler->num_claims;
    if (group->num_preemptions == 0) table_give_rows(scheduler, group);
    return false;
  }
  for (sequence_t *seq = first; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) sequence_set_status(seq, SEQUENCE_RUNNING);
  }
  group->planned_in = scheduler->num_plans;
  /* The cache had all tokens of the beams but the last ones: they can draw in this step. They must,
   * because a plan without entries would be taken to mean that nothing can run. */
  group_t *none = NULL;
  if (group->beams_wait && !is_prefill(group)) plan_decode(scheduler, group, &none);
  waiting_admitted(&scheduler->waiting, group);
  if (!first->first_scheduled_ns) {
    first->first_scheduled_ns = now_ns;
    scheduler->prefix_queries_tokens += (uint64_t)first->num_prompt_tokens;
    scheduler->prefix_hits_tokens += (uint64_t)first->num_cached_tokens;
  }
  return true;
}

static int32_t count_running(const scheduler_t *scheduler) {
  int32_t count = 0;
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next)
    count += group_num_running(group);
  return count;
}

/* Whether the group fits even if the prefix cache has nothing for it. Overtaking requires this. */
static bool surely_fits(const scheduler_t *scheduler, const group_t *group) {
  int64_t need = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq))
      need += scheduler_blocks_for(scheduler, scheduler_tokens_reserved(scheduler, seq));
  }
  return need + scheduler->options.watermark_blocks <= scheduler->pool->num_free;
}

/* Whether the group holds its rows from an earlier admission: it was preempted. */
static bool holds_rows(const group_t *group) {
  return group->sequence.row >= 0 || group->forked;
}

static bool has_rows(const scheduler_t *scheduler, const group_t *group) {
  return holds_rows(group) || scheduler->num_free_rows >= group_num_running(group);
}

/* Whether `later` may overtake `group`. */
static bool may_overtake(const scheduler_t *scheduler, const group_t *group, const group_t *later) {
  /* Rows become free only when the preempted groups that hold them run and end. */
  if (!has_rows(scheduler, group) && holds_rows(later)) return true;
  if (scheduler->options.priority_policy && group->request->priority != later->request->priority)
    return false;
  return group->num_skips < scheduler->options.max_skips;
}

/* Tokens that a group which has not forked must still compute. */
static int32_t tokens_left(const group_t *group) {
  return sequence_num_planned(&group->sequence) - group->sequence.num_computed_tokens;
}

/* Whether `later` has fewer tokens to compute than the prefill `ahead`, and may overtake it. */
static bool is_shorter(const scheduler_t *scheduler, const group_t *later, const group_t *ahead) {
  if (later->forked || tokens_left(later) >= tokens_left(ahead)) return false;
  return !scheduler->options.priority_policy ||
         later->request->priority <= ahead->request->priority;
}

/* Bounded overtaking: later groups may overtake a group that does not fit yet, at most `max_skips`
 * times; after that they wait for it. With `ahead`, a prefill, a group is admitted only if it is
 * shorter than `ahead` or was overtaken `max_skips` times. */
static void admit_waiting(scheduler_t *scheduler, uint64_t now_ns, const group_t *ahead) {
  int32_t num_seqs = count_running(scheduler), scanned = 0;
  for (group_t *group = scheduler->waiting.queue.head, *next;
       group != NULL && budget_left(scheduler) > 0; group = next) {
    next = group->next;
    int32_t count = group_num_running(group);
    /* With nothing running, the first group that fits must be admitted, even if no group may be
     * overtaken: the groups before it may need the rows that it holds. */
    bool stuck = scheduler->running.count == 0;
    bool passes = group != scheduler->waiting.queue.head, must_wait = scanned >= ADMISSION_SCAN_MAX;
    for (const group_t *ahead_of = scheduler->waiting.queue.head; ahead_of != group && !must_wait;
         ahead_of = ahead_of->next) {
      must_wait = !may_overtake(scheduler, ahead_of, group);
    }
    if ((scanned++ >= ADMISSION_SCAN_MAX && !stuck) || is_in_flight(group)) return;
    if (must_wait && !stuck) continue; /* a later group that holds rows may still overtake */
    bool waited = group->num_skips > 0 && group->num_skips >= scheduler->options.max_skips;
    if (ahead != NULL && !waited && !is_shorter(scheduler, group, ahead)) continue;
    bool room = num_seqs + count <= scheduler->options.max_num_seqs && has_rows(scheduler, group);
    if (!room || (passes && !holds_rows(group) && !surely_fits(scheduler, group)) ||
        !admit(scheduler, group, now_ns))
      continue;
    num_seqs += count;
    for (group_t *ahead_of = scheduler->waiting.queue.head; ahead_of != next && !must_wait;
         ahead_of = ahead_of->next)
      ahead_of->num_skips++;
  }
}

static int32_t count_live(const group_t *group) {
  int32_t count = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next)
    count += sequence_is_live(seq);
  return count;
}

/* Swaps groups in, in the order of `swapped`, up to the first that does not fit. While a swapped
 * group is left, no group of `waiting` is admitted. */
static void plan_swapped(scheduler_t *scheduler) {
  int32_t num_seqs = scheduler->swapped.head != NULL ? count_running(scheduler) : 0;
  for (group_t *group = scheduler->swapped.head, *next, *none = NULL; group != NULL; group = next) {
    next = group->next;
    int32_t count = group_num_running(group);
    bool room = num_seqs + count <= scheduler->options.max_num_seqs &&
                count_live(group) <= budget_left(scheduler);
    bool looks = room && !is_in_flight(group) && !is_unfit(scheduler, group);
    swap_verdict_t verdict = looks ? swap_verdict(scheduler, group) : SWAP_LATER;
    if (verdict == SWAP_LATER) return;
    queue_remove(&scheduler->swapped, group);
    queue_push_tail(verdict == SWAP_OK ? &scheduler->running : &scheduler->ignored, group);
    if (verdict == SWAP_NEVER) continue;
    swap_in(scheduler, group);
    for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
      if (sequence_is_live(seq)) sequence_set_status(seq, SEQUENCE_RUNNING);
    }
    bool planned = is_prefill(group) ? plan_prefill(scheduler, group, &none)
                                     : plan_decode(scheduler, group, &none);
    CHECK(planned); /* its blocks are taken already, so this cannot preempt */
    num_seqs += count;
  }
}

/* The first prefill of `running` that can compute in this step. */
static group_t *first_prefill(scheduler_t *scheduler) {
  for (group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    if (!group->forked && is_prefill(group) && !group->masks.wait &&
        table_advance(scheduler, &group->sequence))
      return group;
  }
  return NULL;
}

/* Of the prefills behind `first` that may overtake it: the one with the fewest tokens left. */
static group_t *shortest_behind(const scheduler_t *scheduler, const group_t *first) {
  group_t *shortest = NULL;
  for (group_t *group = first->next; group != NULL; group = group->next) {
    if (group->planned_in == scheduler->num_plans || group->masks.wait || !is_prefill(group) ||
        !is_shorter(scheduler, group, first))
      continue;
    if (shortest == NULL || tokens_left(group) < tokens_left(shortest)) shortest = group;
  }
  return shortest;
}

/* A short prompt need not wait for a long one. Prefills behind the first one that have fewer tokens
 * left than it overtake it, the shortest first. The first prefill keeps half of the budget that the
 * decodes leave, or all that it can use. Returns false if a group had to preempt itself. */
static bool plan_shorter(scheduler_t *scheduler, uint64_t now_ns) {
  group_t *first = scheduler->options.short_prompts_pass ? first_prefill(scheduler) : NULL,
          *none = NULL;
  bool goes_on = true;
  if (first == NULL || !scheduler->options.chunked_prefill) return true;
  int32_t half = (budget_left(scheduler) + 1) / 2;
  scheduler->budget -= chunk_size(scheduler, &first->sequence, half);
  while (goes_on && scheduler->plan.num_preempted == 0 && budget_left(scheduler) > 0) {
    group_t *group = shortest_behind(scheduler, first);
    if (scheduler->swapped.head == NULL)
      admit_waiting(scheduler, now_ns, group != NULL ? group : first);
    if (group == NULL) break;
    group->planned_in = scheduler->num_plans;
    if (budget_left(scheduler) > 0) goes_on = plan_prefill(scheduler, group, &none);
  }
  scheduler->budget = scheduler->options.max_num_batched_tokens;
  return goes_on;
}

static void plan_all_running(scheduler_t *scheduler, uint64_t now_ns) {
  scheduler->num_plans++;
  if (plan_running(scheduler, false) && plan_shorter(scheduler, now_ns))
    plan_running(scheduler, true);
}

int32_t scheduler_plan(scheduler_t *scheduler, uint64_t now_ns) {
  plan_t *plan = &scheduler->plan;
  scheduler_unpin(scheduler, plan); /* of the last plan, unless scheduler_take_plan moved it */
  plan->num_entries = plan->num_tokens = plan->num_preempted = 0;
  plan->num_swap_out = plan->num_swap_in = 0;
  scheduler->budget = scheduler->options.max_num_batched_tokens;
  plan_all_running(scheduler, now_ns);
  /* The first group was preempted by its own allocation, so nothing is planned yet. Its blocks are
   * free now: plan the others. If they find none either, the next plan has one group less. */
  bool starved = plan->num_preempted > 0 && plan->num_entries == 0;
  if (starved && scheduler->running.head != NULL) plan_all_running(scheduler, now_ns);
  if (plan->num_preempted == 0) plan_swapped(scheduler);
  if (plan->num_preempted == 0 && scheduler->swapped.head == NULL)
    admit_waiting(scheduler, now_ns, NULL);
  for (int32_t i = 0; i < plan->num_entries; i++) {
    sequence_t *seq = plan->entries[i].sequence;
    seq->num_computed_tokens += plan->entries[i].num_tokens;
    seq->num_in_flight_tokens += plan->entries[i].num_tokens;
    seq->num_output_placeholders += plan->entries[i].do_sample;
  }
  return plan->num_entries;
}

void scheduler_take_plan(scheduler_t *scheduler, plan_t *out) {
  plan_t *plan = &scheduler->plan, taken = *plan;
  taken.entries = out->entries;
  taken.copies = out->copies;
  taken.swaps = NULL; /* launched already */
  memcpy(taken.entries, plan->entries, (size_t)plan->num_entries * sizeof *plan->entries);
  memcpy(taken.copies, plan->copies, (size_t)plan->num_copies * sizeof *plan->copies);
  plan->num_copies = 0;
  *out = taken;
}

void scheduler_unpin(scheduler_t *scheduler, plan_t *plan) {
  while (plan->num_copies > 0)
    block_unpin(scheduler->pool, plan->copies[--plan->num_copies].copy.src);
}
