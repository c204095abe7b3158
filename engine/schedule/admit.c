/* admit.c: waiting -> running: who fits, who may overtake; the contract is in plan.h.
 *
 * How a sequence gets its blocks (admit_sequence):
 *
 *  1. What the floor has of its prompt enters the prefix cache, as free blocks (floor/bring.c).
 *  2. The leading blocks that the cache has, or that a sibling holds, are its match (table.c). Of a
 *     long prompt those of a slice; what others hold behind it is counted by halving.
 *  3. The pool must have the rest free, beside a watermark and what is promised to prompts whose
 *     admission goes on (promised.c). Else the group stays, and what it lacks is noted.
 *  4. It takes the match, and free blocks for its first chunk or all its tokens. They are keyed
 *     ahead of their content, so others share them from now on. A long prompt takes a slice; the
 *     rest is promised to it, and it takes a slice more in each plan (slices.c).
 *  5. Its first chunk is planned, as far as tokens and time are left; but while another sequence
 *     still fills a block of the match, it waits for that.
 *
 * Engine thread only; allocates nothing.
 */
#include "engine/schedule/plan.h"

#include "engine/activity.h"
#include "engine/base/util.h"
#include "engine/quota.h"
#include "engine/schedule/floor/floor.h"
#include "engine/schedule/promised.h"
#include "engine/schedule/table.h"
#include "engine/schedule/window/side_blocks.h"
#include "engine/schedule/window/sides.h"

#include <string.h>

/* What the pool and the budget must have left to admit seq with this match. */
static unfit_t needs(const scheduler_t *scheduler, const sequence_t *seq,
                     const prefix_match_t *match) {
  const group_t *group = seq->group;
  int32_t reserved = scheduler_tokens_reserved(scheduler, seq);
  bool runs = group->queue == &scheduler->running;
  int32_t others = scheduler->running.count - runs;
  int32_t watermark = others > 0 ? scheduler->options.watermark_blocks : 0;
  int32_t blocks = scheduler_blocks_for(scheduler, reserved) - match->num_blocks +
                   match->num_unused - match->num_held_behind +
                   sides_most(scheduler, reserved, scheduler->options.window.in_flight);
  /* Without chunked prefill a prompt is planned whole. The tokens that preempted forks compute
   * again always come in chunks, because all of them together might never fit into one step. */
  bool chunks = scheduler->options.chunked_prefill || group->forked;
  return (unfit_t){.is_known = true,
                   .num_blocks = blocks + watermark,
                   .num_tokens = chunks ? 0 : sequence_num_tokens(seq) - match->num_cached,
                   .num_claims = scheduler->num_claims};
}

static bool has_enough(const scheduler_t *scheduler, const unfit_t *needed) {
  return needed->num_blocks <= promised_num_free(scheduler) &&
         needed->num_tokens <= plan_budget_left(scheduler);
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
bool plan_is_unfit(const scheduler_t *scheduler, const group_t *group) {
  const unfit_t *unfit = &group->unfit;
  return unfit->is_known && scheduler->running.count > 0 &&
         unfit->num_claims == scheduler->num_claims && !has_enough(scheduler, unfit);
}

/* Blocks that a match has at most: of a long prompt those of one slice. */
static int32_t match_most(const scheduler_t *scheduler, const sequence_t *seq) {
  return slices_wanted(scheduler, seq) ? scheduler->options.slice_blocks : INT32_MAX;
}

/* Takes the blocks of one sequence and plans its first chunk. Returns false, and takes nothing, if
 * they do not fit. */
static bool admit_sequence(scheduler_t *scheduler, sequence_t *seq, bool copies) {
  const int32_t most = match_most(scheduler, seq);
  const bool slices = most < INT32_MAX;
  if (table_prompt_holder(scheduler, seq) == NULL) floor_bring(scheduler, seq, 0, most);
  prefix_match_t match = table_match(scheduler, seq, most);
  if (!copies) table_match_whole(scheduler, &match);
  if (!fits(scheduler, seq, &match)) {
    memset(seq->blocks, 0, (size_t)match.num_blocks * sizeof *seq->blocks);
    return false;
  }
  int32_t left = plan_budget_left(scheduler);
  int32_t reserved = scheduler_tokens_reserved(scheduler, seq), n = 0;
  if (slices) {
    slices_begin(scheduler, seq, &match, reserved);
    if (!seq->recomputes) seq->num_cached_tokens = match.num_cached;
    if (table_advance(scheduler, seq)) n = plan_prompt_chunk(scheduler, seq, left, 1);
  } else {
    bool blocked = match.num_valid < match.num_blocks;
    seq->num_computed_tokens = match.num_cached;
    if (!blocked) n = plan_prompt_chunk(scheduler, seq, left, 1);
    /* All blocks of the prompt are taken now: else two admissions could count the same free blocks.
     */
    bool whole =
        scheduler->options.reserve_full || blocked || plan_is_protected(scheduler, seq->group);
    int32_t known = match.num_cached + n;
    bool draws = n == 0 && !blocked && plan_has_beams(seq->group); /* maybe in this plan */
    table_admit(scheduler, seq, &match, whole ? reserved : known, known + draws);
    if (!seq->recomputes) seq->num_cached_tokens = match.num_cached;
  }
  if (n > 0) plan_add(scheduler, seq, n);
  if (n > 0) plan_note_chunk(scheduler, seq->group);
  return true;
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

/* Forks that compute again share what the first of them claims. It claims no block that the cache
 * has; but if the side blocks are gone, what the cache has is of no use, and the forks share
 * nothing. Then the cache forgets it: nothing else runs that could make room for them. */
static bool admit_anew(scheduler_t *scheduler, group_t *group) {
  return scheduler->running.count <= 1 && table_forget_cached(scheduler, group) &&
         admit_sequences(scheduler, group, false);
}

/* Looks at a new group before it takes rows, which copies its prompt. */
static bool may_fit(scheduler_t *scheduler, group_t *group) {
  prefix_match_t match =
      table_match(scheduler, &group->sequence, match_most(scheduler, &group->sequence));
  return fits(scheduler, &group->sequence, &match);
}

/* Whether the group holds its rows from an earlier admission: it was preempted. */
static bool holds_rows(const group_t *group) {
  return group->sequence.row >= 0 || group->forked;
}

/* Whether the budget has room for a group that is planned whole. */
static bool may_plan_whole(scheduler_t *scheduler, const group_t *group) {
  if (group->forked) return true;
  const sequence_t *first = &group->sequence;
  prefix_match_t match = {0};
  if (!holds_rows(group)) match = table_match(scheduler, first, match_most(scheduler, first));
  return sequence_num_tokens(first) - match.num_cached <= plan_budget_left(scheduler);
}

/* Moves a group with all its sequences from waiting to running and plans it. Returns false, and
 * changes nothing, if rows or blocks do not suffice. */
static bool admit(scheduler_t *scheduler, group_t *group, uint64_t now_ns) {
  sequence_t *first = &group->sequence;
  if (plan_is_unfit(scheduler, group)) return false;
  scheduler->num_looks++;
  activity_for(scheduler->activity, group->request->id);
  if (first->row < 0 && !group->forked &&
      (!may_fit(scheduler, group) || !table_take_rows(scheduler, group)))
    return false;
  waiting_remove(&scheduler->waiting, group);
  queue_push_tail(&scheduler->running, group);
  /* The first sequence may pin, as a copy source, the very block that the last one needs. Then try
   * again without copies. With windows a source and its side blocks may be what the next chunk
   * needs, so who was preempted copies none. */
  bool copies = scheduler->pool->num_sides == 0 || group->num_preemptions == 0;
  scheduler->plan.beams_wait = plan_has_beams(group);
  bool taken = admit_sequences(scheduler, group, copies) ||
               (first->next != NULL && admit_sequences(scheduler, group, false)) ||
               admit_anew(scheduler, group);
  scheduler->plan.beams_wait = false;
  if (!taken) {
    queue_remove(&scheduler->running, group);
    waiting_insert(&scheduler->waiting, group);
    /* Of several sequences some fit: then more must be free than now. */
    if (first->next != NULL) group->unfit.num_blocks = promised_num_free(scheduler) + 1;
    group->unfit.num_claims = scheduler->num_claims;
    if (group->num_preemptions == 0) table_give_rows(scheduler, group);
    return false;
  }
  for (sequence_t *seq = first; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) sequence_set_status(seq, SEQUENCE_RUNNING);
  }
  group->planned_in = scheduler->num_plans;
  plan_end_wait(scheduler, group);
  group->yield.was_granted = false;
  group->yield.let_in = scheduler->num_plans;
  /* The cache had all tokens of the beams but the last ones: they can draw in this step. They must,
   * because a plan without entries would be taken to mean that nothing can run. */
  group_t *none = NULL;
  if (plan_has_beams(group) && !plan_is_prefill(group)) plan_decode(scheduler, group, &none);
  if (scheduler->options.ageing <= 0) waiting_begun(&scheduler->waiting, group);
  if (first->first_scheduled_ns != 0) return true;
  first->first_scheduled_ns = now_ns;
  if (group_is_lead(group)) {
    scheduler->prefix_queries_tokens += (uint64_t)first->num_prompt_tokens;
    scheduler->prefix_hits_tokens += (uint64_t)first->num_cached_tokens;
  } else {
    siblings_begin(scheduler, group);
  }
  return true;
}

/* Whether the group fits even if the prefix cache has nothing for it. Overtaking requires this. */
static bool surely_fits(const scheduler_t *scheduler, const group_t *group) {
  return plan_blocks_wanted(scheduler, group) <= promised_num_free(scheduler);
}

/* Whether the group has rows, or may take some. With fair shares the last of them are for tenants
 * within their shares of which no preempted group holds any: so nobody who makes room again and
 * again leaves none for others. */
static bool has_rows(scheduler_t *scheduler, const group_t *group) {
  int32_t left = scheduler->num_free_rows - group->width;
  if (holds_rows(group)) return true;
  if (left < 0 || !scheduler->options.fair_share) return left >= 0;
  if (left >= scheduler->num_rows - 2 * scheduler->options.max_num_seqs) return true;
  int32_t num_rows = waiting_tenant(&scheduler->waiting, group)->num_rows;
  return num_rows <= plan_count_of(scheduler, group) && plan_is_entitled(scheduler, group, false);
}

/* Whether `later` may overtake `group`. Between tenants there is only the share: what does not fit
 * keeps no other one waiting. */
static bool may_overtake(scheduler_t *scheduler, const group_t *group, const group_t *later) {
  if (scheduler->options.fair_share && group->tenant != later->tenant) return true;
  /* Rows become free only when the preempted groups that hold them run and end. */
  if (!has_rows(scheduler, group) && holds_rows(later)) return true;
  if (scheduler->options.priority_policy && group->request->priority != later->request->priority)
    return false;
  return group->num_skips < scheduler->options.max_skips;
}

/* ---- the walk over the waiting groups ---- */

typedef struct admission {
  uint64_t now_ns;
  bool is_owed;          /* the first walks: of tenants that stay within their shares */
  bool spares_blocks;    /* the very first, where one of these lacked blocks in the plan before:
                          * blocks, too, are for those who stay within theirs */
  bool is_spared;        /* it left somebody out for that */
  bool passed_others;    /* by best effort, where another one waits and nothing ran */
  int64_t best_left_out; /* priority, of those that this walk leaves to the next one */
  const group_t *ahead;  /* NULL, or the prefill that a group must be shorter than */
  int32_t num_seqs;      /* that count against max_num_seqs */
  int32_t num_looked, num_passed;
  group_t *passed[ADMISSION_LOOKS_MAX]; /* looked at, and not admitted */
} admission_t;

/* Whether the tenant would run more sequences than its key may. A group of more sequences than that
 * runs alone. */
static bool is_held(scheduler_t *scheduler, const group_t *group) {
  int32_t most = quota_max_running(group->request->quota);
  int32_t running = plan_count_of(scheduler, group);
  return most > 0 && running > 0 && running + group->width > most;
}

static bool must_wait(scheduler_t *scheduler, const admission_t *admission, const group_t *group) {
  for (int32_t i = 0; i < admission->num_passed; i++) {
    if (!may_overtake(scheduler, admission->passed[i], group)) return true;
  }
  return false;
}

/* Whether a group of the same tenant was looked at and stays. */
static bool is_behind_own(const admission_t *admission, const group_t *group) {
  for (int32_t i = 0; i < admission->num_passed; i++) {
    if (admission->passed[i]->tenant == group->tenant) return true;
  }
  return false;
}

/* Whether others made room in this plan or the one before: what they held may be in flight still,
 * or somebody else took it. */
static bool was_granted(const scheduler_t *scheduler, const group_t *group) {
  return group->yield.was_granted && scheduler->num_plans - group->yield.let_in < 2;
}

/* Whether the plan has tokens and time left. */
static bool is_open(const scheduler_t *scheduler) {
  return plan_budget_left(scheduler) > 0 && plan_has_time(scheduler);
}

/* Whether the plan has tokens left, and no time, and the group has waited for that long enough. */
static bool is_overdue(scheduler_t *scheduler, const admission_t *admission, const group_t *group) {
  return admission->is_owed && plan_budget_left(scheduler) > 0 && !plan_has_time(scheduler) &&
         !is_behind_own(admission, group) && plan_has_waited_for_step(scheduler, group);
}

/* Room for the first group of its tenant, from tenants above their shares. */
static bool gets_way(scheduler_t *scheduler, const admission_t *admission, group_t *group) {
  const plan_t *plan = &scheduler->plan;
  if (!admission->is_owed || was_granted(scheduler, group) || plan->num_swap_in > 0 ||
      !has_rows(scheduler, group) || is_behind_own(admission, group))
    return false;
  lack_t lack = {.num_seqs = admission->num_seqs + group->width - scheduler->options.max_num_seqs,
                 .num_blocks = plan_blocks_wanted(scheduler, group) - promised_num_free(scheduler)};
  if (lack.num_seqs <= 0 && lack.num_blocks <= 0) return false; /* it lacks something else */
  if (lack.num_blocks > 0 && !holds_rows(group) && !plan_is_unfit(scheduler, group) &&
      may_fit(scheduler, group))
    lack.num_blocks = 0;
  if (!scheduler->options.chunked_prefill && !may_plan_whole(scheduler, group)) return false;
  if (!plan_make_way(scheduler, group, lack)) {
    if (lack.num_blocks > 0 && plan_is_entitled(scheduler, group, true))
      scheduler->lacked_in = scheduler->num_plans;
    return false;
  }
  group->yield.was_granted = true;
  group->yield.let_in = scheduler->num_plans;
  return true;
}

/* Admits the group if it may run now and fits. */
static bool try_admit(scheduler_t *scheduler, admission_t *admission, group_t *group) {
  bool rows = admission->num_seqs + group->width <= scheduler->options.max_num_seqs &&
              has_rows(scheduler, group);
  bool behind =
      scheduler->options.fair_share ? is_behind_own(admission, group) : admission->num_passed > 0;
  bool sure = !behind || holds_rows(group) || surely_fits(scheduler, group);
  bool open = is_open(scheduler) || is_overdue(scheduler, admission, group);
  if (open && rows && sure && admit(scheduler, group, admission->now_ns)) return true;
  int32_t yielded = scheduler->plan.num_preempted;
  if (!gets_way(scheduler, admission, group)) return false;
  admission->num_seqs = plan_count_tenants(scheduler);
  return scheduler->plan.num_preempted > yielded && admit(scheduler, group, admission->now_ns);
}

/* The group stays, and counts for those of its tenant that come behind it. */
static void pass(admission_t *admission, group_t *group) {
  if (admission->num_passed < ADMISSION_LOOKS_MAX)
    admission->passed[admission->num_passed++] = group;
}

/* Looks at one waiting group. */
static void look(scheduler_t *scheduler, admission_t *admission, group_t *group) {
  /* With nothing running, the first group that fits must be admitted, even if no group may be
   * overtaken: the groups before it may need the rows that it holds. */
  bool stuck = scheduler->running.count == 0;
  bool waits = must_wait(scheduler, admission, group);
  bool waited = group->num_skips > 0 && group->num_skips >= scheduler->options.max_skips;
  bool longer =
      admission->ahead != NULL && !waited && !plan_is_shorter(scheduler, group, admission->ahead);
  /* A later group that holds rows may still overtake. */
  if (plan_is_in_flight(group) || (waits && !stuck) || longer ||
      !try_admit(scheduler, admission, group)) {
    pass(admission, group);
    return;
  }
  admission->num_seqs += group->width;
  plan_count_group(scheduler, group, 1);
  plan_count_seat(scheduler, group, 1);
  for (int32_t i = 0; i < admission->num_passed && !waits; i++) {
    group_t *passed = admission->passed[i];
    passed->num_skips += !scheduler->options.fair_share || passed->tenant == group->tenant;
  }
}

static bool is_on_host(const scheduler_t *scheduler, int32_t tenant) {
  for (const group_t *group = scheduler->swapped.head; group != NULL; group = group->next) {
    if (group->tenant == tenant) return true;
  }
  return false;
}

/* Whether the tenant was looked at often enough; or it made room in this plan, and comes back in a
 * later one. While groups are on the host, which come first, only other tenants may begin, within
 * their shares. */
static bool is_done_with(scheduler_t *scheduler, const group_t *group) {
  const tenant_t *tenant = waiting_tenant(&scheduler->waiting, group);
  if (group->yield.count > 0 && group->yield.plan == scheduler->num_plans) return true;
  if (tenant->num_looked >= ADMISSION_SCAN_MAX) return true;
  /* In a full plan nobody begins but the first of a tenant for whom others leave it. */
  if (tenant->num_looked > 0 && !is_open(scheduler)) return true;
  if (!plan_host_first(scheduler)) return false;
  bool lacks = plan_blocks_wanted(scheduler, group) > promised_num_free(scheduler);
  return is_on_host(scheduler, group->tenant) || !plan_is_entitled(scheduler, group, lacks);
}

/* Whether the walk ends before the group: with the priority policy, since a better one was left out
 * for whom there may be a place. */
static bool is_behind_better(const scheduler_t *scheduler, const admission_t *admission,
                             const group_t *group) {
  return scheduler->options.priority_policy &&
         group->request->priority > admission->best_left_out &&
         admission->num_seqs < scheduler->options.max_num_seqs;
}

/* Other tenants that offer a group, but for those to whom this one leaves nothing. */
static int32_t count_others(const scheduler_t *scheduler, const group_t *group) {
  const tenants_t *tenants = &scheduler->waiting.tenants;
  const tenant_t *own = &tenants->all[group->tenant];
  const int32_t lower = group->best_effort ? 0 : tenants->num_lower - own->is_lower;
  return tenants->num_offers - (own->place != 0) - lower;
}

/* Whether the tenant would have more than its share of places, and leave fewer than other tenants
 * wait that may have one. */
static bool lacks_places(scheduler_t *scheduler, const admission_t *admission,
                         const group_t *group) {
  int32_t num_left = scheduler->options.max_num_seqs - admission->num_seqs - group->width;
  int32_t others = count_others(scheduler, group);
  return admission->is_owed && others > 0 && num_left < others &&
         !plan_is_entitled(scheduler, group, false);
}

/* Whether the tenant would have more than its share of blocks, and leave fewer than the shares of
 * others that wait. */
static bool lacks_blocks(scheduler_t *scheduler, const admission_t *admission,
                         const group_t *group) {
  if (!admission->spares_blocks || count_others(scheduler, group) <= 0) return false;
  int64_t left = promised_num_free(scheduler) - plan_blocks_wanted(scheduler, group);
  int64_t others = scheduler->waiting.weights - waiting_tenant(&scheduler->waiting, group)->weight;
  return left * scheduler->weights < (scheduler->pool->num_blocks - 1) * others &&
         plan_blocks_beyond(scheduler, group);
}

/* What the walk does with the next group. Returns false if it ends there. */
static bool visit(scheduler_t *scheduler, admission_t *admission, group_t *group) {
  waiting_t *waiting = &scheduler->waiting;
  /* Groups by best effort stand behind all others, and none begins while one of these waits; but if
   * nothing runs, that one waits for rows which they hold: then one begins. */
  if (plan_is_out(scheduler, group)) {
    admission->passed_others = true;
    return scheduler->pace.class == CLASS_BEST_EFFORT && scheduler->running.count == 0;
  }
  if (admission->passed_others && scheduler->running.count > 0) return false;
  if (is_behind_better(scheduler, admission, group)) return false;
  if (is_held(scheduler, group)) {
    waiting_hold(waiting, group);
  } else if (lacks_blocks(scheduler, admission, group)) {
    admission->is_spared = true;
    waiting_leave_out(waiting, group);
  } else if (lacks_places(scheduler, admission, group)) {
    if (group->request->priority < admission->best_left_out)
      admission->best_left_out = group->request->priority;
    waiting_leave_out(waiting, group);
  } else if ((!plan_client_has_time(scheduler, group) && !plan_has_waited(scheduler, group)) ||
             (scheduler->running.count > 0 && is_done_with(scheduler, group))) {
    waiting_leave_out(waiting, group);
  } else if (!plan_may_begin(scheduler, group)) {
    if (!scheduler->options.fair_share) return false;
    waiting_leave_out(waiting, group); /* another tenant may have one that takes less time */
  } else {
    admission->num_looked++;
    waiting_tenant(waiting, group)->num_looked++;
    look(scheduler, admission, group);
  }
  return true;
}

static void walk(scheduler_t *scheduler, admission_t *admission) {
  waiting_t *waiting = &scheduler->waiting;
  for (group_t *group = waiting_first(waiting);
       group != NULL && (is_open(scheduler) || admission->is_owed) &&
       (admission->num_looked < ADMISSION_LOOKS_MAX || scheduler->running.count == 0) &&
       visit(scheduler, admission, group);
       group = waiting_next(waiting)) {
  }
  waiting_stop(waiting);
}

/* Walks again, with what was admitted so far. */
static void walk_again(scheduler_t *scheduler, admission_t *admission, bool is_owed, bool spares) {
  *admission = (admission_t){.now_ns = admission->now_ns,
                             .ahead = admission->ahead,
                             .num_seqs = admission->num_seqs,
                             .best_left_out = INT64_MAX,
                             .is_owed = is_owed,
                             .spares_blocks = spares};
  walk(scheduler, admission);
}

void plan_admit(scheduler_t *scheduler, uint64_t now_ns, const group_t *ahead) {
  if (scheduler->waiting.queue.head == NULL) return;
  admission_t admission = {.now_ns = now_ns, .ahead = ahead};
  admission.num_seqs = plan_count_tenants(scheduler);
  if (scheduler->options.fair_share && ahead == NULL) {
    walk_again(scheduler, &admission, true, scheduler->lacked_in + 1 == scheduler->num_plans);
    if (admission.is_spared && !plan_has_pause(scheduler))
      walk_again(scheduler, &admission, true, false);
    if (admission.num_seqs >= scheduler->options.max_num_seqs || plan_has_pause(scheduler)) return;
  }
  walk_again(scheduler, &admission, false, false);
}
