/* scheduler.c: stage 4 of 9, waiting queue -> plan (which sequences run, how many tokens each).
 *
 * A group is in one queue: `waiting`, `running`, or `swapped` while its blocks are on the host. The
 * plan of a step (scheduler_plan) is a list of sequences, with the tokens that each computes:
 *
 *  1. Prompts that are being admitted over several plans take a slice more of their blocks
 *     (slices.c); blocks that nobody holds leave for the floor.
 *  2. Where groups by best effort are there, steps 3 to 8 are done for all others first, then for
 *     those, but not beside a prompt of the others (plan_classes).
 *  3. The time of the step is divided: what prompts may have of it, and each client (pace.c).
 *  4. Groups of `running` that decode get their next token and its draft tokens, in their order
 *     (decode.c). If they take more than their client's time, they take turns.
 *  5. Groups of `running` that are in their prompt get a chunk each, in their order, while tokens
 *     and time are left. The first one keeps its part of both; in the rest shorter ones go before
 *     it, those that wait included (plan_shorter).
 *  6. Whoever lacks blocks in 4 and 5 makes the youngest group leave `running`, maybe itself:
 *     it will be computed again, or its blocks go to the host (preempt.c). If that left the plan
 *     empty, 3 to 5 are done once more; after a preemption 7 and 8 are left out.
 *  7. Groups of `swapped` come back, as far as they fit (plan_swapped).
 *  8. Groups of `waiting` are admitted, by tenants: first those of tenants that have no more than
 *     their share, for whom others make way if places or blocks lack (yield.c), then any that fit,
 *     while tokens, time and places are left (admit.c). Their first chunk is in this plan.
 *  9. Sequences of the plan get slots of states, and count as computed to where the plan brings
 *     them: so the next plan is made while this one runs.
 *
 * The head of plan.h says which file calls which. Engine thread only; allocates in scheduler_new
 * only. Next: engine/batch.c.
 */
#include "engine/schedule/scheduler.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/device/pages.h"
#include "engine/schedule/floor/floor.h"
#include "engine/schedule/pictures.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/sources.h"
#include "engine/schedule/state/snapshots.h"
#include "engine/schedule/state/states.h"
#include "engine/schedule/table.h"

#include <stdlib.h>
#include <string.h>

/* A first token may take so many times as long as its prompt alone; steps before that time in which
 * it is looked whether it will. */
enum { LATE_ALONE = 3, LATE_STEPS = 4 };
enum { SHORT_ROW_BYTES = 16384 };

/* A table of rows. What is touched of a row is its beginning; if rows are short, that is about all
 * of it, and pages may be huge. */
static void *map_rows(int32_t num_rows, size_t row_bytes) {
  size_t bytes = (size_t)num_rows * row_bytes;
  void *rows = pages_map(bytes);
  if (row_bytes <= SHORT_ROW_BYTES) pages_want_huge(rows, bytes);
  return rows;
}

static size_t token_row_bytes(const scheduler_t *scheduler) {
  return (size_t)scheduler->options.max_model_len * sizeof *scheduler->token_table;
}

static size_t block_row_bytes(const scheduler_t *scheduler) {
  return (size_t)scheduler->row_stride * sizeof *scheduler->block_table;
}

int32_t scheduler_state_slots(const scheduler_options_t *options) {
  if (!options->has_states) return 0;
  return options->max_num_seqs + (options->draft.tokens_max > 0 ? DRAFT_STATES_MAX : 0);
}

int scheduler_new(const scheduler_options_t *options, block_pool_t *pool, scheduler_t **out,
                  inferd_error_t *error) {
  CHECK_GE(options->max_num_batched_tokens, options->max_num_seqs);
  scheduler_t *scheduler = calloc(1, sizeof *scheduler);
  if (scheduler == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the scheduler");
  scheduler->options = *options;
  scheduler->waiting.tenants.priority_policy = options->priority_policy;
  scheduler->waiting.tenants.span = (uint64_t)options->fair_span * SERVED_TOKEN;
  scheduler->waiting.fair_share = options->fair_share;
  scheduler->pool = pool;
  free_queues_set_weight(pool, 1, 1); /* whoever has no key: always */
  scheduler->num_rows = scheduler_num_rows(options->max_num_seqs);
  scheduler->table_stride = DIV_UP(options->max_model_len, pool->block_size);
  scheduler->row_stride = scheduler->table_stride * (1 + pool->num_sides);
  scheduler->token_table = map_rows(scheduler->num_rows, token_row_bytes(scheduler));
  scheduler->block_table = map_rows(scheduler->num_rows, block_row_bytes(scheduler));
  scheduler->held_text = calloc((size_t)scheduler->num_rows, STOP_STRING_BYTES_MAX);
  scheduler->free_rows = calloc((size_t)scheduler->num_rows, sizeof *scheduler->free_rows);
  scheduler->sequences = calloc((size_t)scheduler->num_rows, sizeof *scheduler->sequences);
  scheduler->entries = calloc((size_t)options->max_num_seqs, sizeof *scheduler->entries);
  scheduler->plan.entries = scheduler->entries;
  scheduler->plan.copies = calloc((size_t)options->max_num_seqs * (size_t)(1 + pool->num_sides),
                                  sizeof *scheduler->plan.copies);
  int32_t num_states = scheduler_state_slots(options);
  if (num_states > 0)
    scheduler->plan.states = calloc((size_t)options->max_num_seqs, sizeof *scheduler->plan.states);
  scheduler->free_states = calloc((size_t)num_states + 1, sizeof *scheduler->free_states);
  scheduler->plan.state_copies =
      calloc((size_t)options->max_num_seqs, sizeof *scheduler->plan.state_copies);
  if (scheduler->token_table == NULL || scheduler->block_table == NULL ||
      scheduler->held_text == NULL || scheduler->free_rows == NULL ||
      scheduler->sequences == NULL || scheduler->entries == NULL ||
      scheduler->plan.copies == NULL || scheduler->plan.state_copies == NULL ||
      (num_states > 0 && scheduler->plan.states == NULL) || scheduler->free_states == NULL ||
      group_store_new(&scheduler->choices,
                      scheduler->num_rows + options->max_requests + options->max_num_seqs) != 0 ||
      swap_new(scheduler) != 0) {
    scheduler_free(scheduler);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the tables of %d sequences",
                     options->max_num_seqs);
  }
  for (int32_t r = 0; r < scheduler->num_rows; r++)
    scheduler->free_rows[scheduler->num_free_rows++] = scheduler->num_rows - 1 - r;
  for (int32_t slot = num_states; slot > 0; slot--)
    scheduler->free_states[scheduler->num_free_states++] = slot;
  for (int32_t i = scheduler->num_rows - 1; i >= 0; i--) {
    scheduler->sequences[i].next = scheduler->free_sequences;
    scheduler->free_sequences = &scheduler->sequences[i];
  }
  int code = 0;
  if (options->num_snapshots > 0)
    code =
        snapshots_new(options->num_snapshots, num_states + 1, pool, &scheduler->snapshots, error);
  if (code != 0) {
    scheduler_free(scheduler);
    return code;
  }
  pool->snapshots = scheduler->snapshots;
  *out = scheduler;
  return 0;
}

void scheduler_free(scheduler_t *scheduler) {
  if (scheduler == NULL) return;
  size_t num_rows = (size_t)scheduler->num_rows;
  pages_unmap(scheduler->token_table, num_rows * token_row_bytes(scheduler));
  pages_unmap(scheduler->block_table, num_rows * block_row_bytes(scheduler));
  group_store_free(&scheduler->choices);
  free(scheduler->held_text);
  free(scheduler->free_rows);
  free(scheduler->sequences);
  free(scheduler->entries);
  free(scheduler->plan.states);
  free(scheduler->plan.copies);
  free(scheduler->plan.state_copies);
  free(scheduler->free_states);
  snapshots_free(scheduler->snapshots);
  swap_free(scheduler);
  free(scheduler);
}

/* True if the next token depends on the ids of the previous tokens, and not only on the logits. The
 * sampling row of such a sequence can be built only when these ids are known on the host. */
static bool needs_history(const scheduler_t *scheduler, const request_t *request) {
  const sampling_params_t *params = &request->params;
  if (scheduler->options.num_stages > 1) return true;
  if (request->grammar != NULL) return true;
  if (scheduler->options.history_on_device) return false;
  return params_have_penalties(params) || params->num_bad_words > 0;
}

/* The time that the prompt takes alone, behind `cached` tokens. */
static double prompt_ns(const scheduler_t *scheduler, const sequence_t *seq, int32_t cached) {
  cost_work_t work = cost_of_tokens(cached, seq->num_prompt_tokens - cached);
  return cost_ns(&scheduler->cost, &work);
}

/* The place in the queue, for good: a time. What the cache has now costs nothing. */
static uint64_t make_key(scheduler_t *scheduler, const group_t *group) {
  const sequence_t *seq = &group->sequence;
  if (scheduler->options.ageing <= 0) return 0;
  double ns = prompt_ns(scheduler, seq, table_count_cached(scheduler, seq));
  return group->request->arrival_ns + (uint64_t)(scheduler->options.ageing * ns);
}

/* How long the first token may take: more than the limit for a prompt that is long, in tokens or in
 * time. */
static double allowed_ns(const scheduler_t *scheduler, const sequence_t *seq, double limit_ns) {
  const int32_t most = scheduler->options.queue_time_tokens;
  double longer = most > 0 ? (double)seq->num_prompt_tokens / most : 1;
  double alone_ns = prompt_ns(scheduler, seq, seq->num_cached_tokens);
  return MAX(limit_ns * MAX(longer, 1), LATE_ALONE * alone_ns);
}

/* Whether the first token will come later than it may, if the prompt is computed from now on. */
static bool will_be_late(const scheduler_t *scheduler, const sequence_t *seq, double waited_ns,
                         double limit_ns) {
  int32_t computed = MAX(seq->num_computed_tokens, seq->num_cached_tokens);
  double needed_ns = plan_prompt_ns(scheduler, prompt_ns(scheduler, seq, computed));
  return waited_ns + needed_ns >= allowed_ns(scheduler, seq, limit_ns);
}

group_t *scheduler_find_late(scheduler_t *scheduler, uint64_t now_ns, double limit_ns) {
  bool predicts = scheduler->options.ageing > 0 && cost_is_known(&scheduler->cost);
  double ahead_ns = predicts ? LATE_STEPS * scheduler->options.pace.step_ns : 0;
  for (group_t *group = scheduler->waiting.oldest; group != NULL; group = group->newer) {
    const sequence_t *seq = &group->sequence;
    uint64_t arrival_ns = group->request->arrival_ns;
    scheduler->waiting.num_visited++;
    /* It is later than now_ns if it was posted since the iteration began. */
    double waited_ns = now_ns > arrival_ns ? (double)(now_ns - arrival_ns) : 0;
    if (waited_ns + ahead_ns < limit_ns) return NULL;
    if (predicts ? will_be_late(scheduler, seq, waited_ns, limit_ns) : seq->first_scheduled_ns == 0)
      return group;
  }
  return NULL;
}

void scheduler_note_first(scheduler_t *scheduler, group_t *group) {
  waiting_begun(&scheduler->waiting, group);
}

/* A key that asks for nothing for so long has no share of the prefix cache, until it asks. */
static const uint64_t CACHE_SHARE_NS = 300000000000; /* five minutes */

/* Looks at one tenant in each plan, in turn. */
static void end_cache_share(scheduler_t *scheduler, uint64_t now_ns) {
  tenants_t *tenants = &scheduler->waiting.tenants;
  if (tenants->num_used == 0) return;
  tenants->looked_at = tenants->looked_at % tenants->num_used + 1;
  tenant_t *tenant = &tenants->all[tenants->looked_at];
  if (tenant->num_groups > 0) {
    tenant->asked_ns = now_ns;
  } else if (now_ns > tenant->asked_ns + CACHE_SHARE_NS) {
    free_queues_set_weight(scheduler->pool, 1 + tenants->looked_at, 0);
  }
}

void scheduler_add(scheduler_t *scheduler, group_t *group) {
  group->masks.by_history = needs_history(scheduler, group->request);
  /* A state takes no token back: its masks are made before the row is planned. */
  if (scheduler->options.has_states && group->request->grammar != NULL)
    group->masks.wait = group->masks.slow = true;
  group->is_plain = group->is_plain && scheduler->options.num_stages <= 1; /* it may be awaited */
  group->key = make_key(scheduler, group);
  sequence_set_status(&group->sequence, SEQUENCE_WAITING);
  waiting_add(&scheduler->waiting, group);
  tenant_t *tenant = waiting_tenant(&scheduler->waiting, group);
  tenant->asked_ns = group->request->arrival_ns;
  if (group->tenant == 0) return;
  bool has_key = scheduler_owner(scheduler, &group->sequence) == 1 + group->tenant;
  free_queues_set_weight(scheduler->pool, 1 + group->tenant, has_key ? tenant->weight : 0);
}

/* ---- planning ---- */

/* Sends a group back to `waiting` that was to share side blocks which are gone: it will compute
 * them itself. Returns false if the group can go on. */
static bool send_back_lost(scheduler_t *scheduler, group_t *group) {
  bool is_lost = false;
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) table_advance(scheduler, seq);
    is_lost = is_lost || seq->sides.is_lost;
  }
  if (!is_lost) return false;
  plan_send_back(scheduler, group);
  return true;
}

/* Plans a chunk of every sequence of the group. Returns false if the group itself was preempted. */
static bool plan_chunks(scheduler_t *scheduler, group_t *group, group_t **next) {
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq) || !table_advance(scheduler, seq)) continue;
    int32_t n = plan_prompt_chunk(scheduler, seq, plan_budget_left(scheduler), 1);
    if (n <= 0) plan_save(scheduler, seq, 1);
    if (n <= 0) continue;
    if (!plan_make_room(scheduler, group, table_need(scheduler, seq, n), next)) return false;
    table_grow(scheduler, seq, n);
    plan_add(scheduler, seq, n);
    plan_note_chunk(scheduler, group);
  }
  return true;
}

/* The same for a group that was to share side blocks, and for beams. */
static bool plan_prefill(scheduler_t *scheduler, group_t *group, group_t **next) {
  if (sources_lack(scheduler, group)) return true;
  if (scheduler->pool->num_sides > 0 && send_back_lost(scheduler, group)) return true;
  if (!plan_has_beams(group)) return plan_chunks(scheduler, group, next);
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) table_advance(scheduler, seq);
  }
  if (!plan_is_prefill(group)) return plan_decode(scheduler, group, next);
  scheduler->plan.beams_wait = true;
  bool stays = plan_chunks(scheduler, group, next);
  scheduler->plan.beams_wait = false;
  return stays;
}

/* Whether the group of `running` is left out of this plan, or is planned already. */
static bool is_passed(const scheduler_t *scheduler, const group_t *group, bool prefill) {
  return plan_is_prefill(group) != prefill || group->planned_in == scheduler->num_plans ||
         group->masks.wait || plan_is_out(scheduler, group) || scheduler_awaits(group) ||
         plan_pauses(scheduler, group) || sources_lack(scheduler, group);
}

/* Plans the prefills of `running`, without the groups that this plan has planned already. Returns
 * false if a group had to preempt itself. */
static bool plan_prefills(scheduler_t *scheduler) {
  for (group_t *group = plan_first_prefill(scheduler), *next;
       group != NULL && plan_budget_left(scheduler) > 0 &&
       (plan_has_time(scheduler) || scheduler->pace.first != NULL);
       group = next) {
    next = group->next;
    if (is_passed(scheduler, group, true)) continue;
    if (!plan_prefill(scheduler, group, &next)) return false;
  }
  return true;
}

/* Whether the next token of the group takes nothing but a place in the plan, as most decodes do: it
 * has one sequence, and the block of its last computed token, which is its own, has a row left. */
static bool needs_place_only(const scheduler_t *scheduler, const group_t *group) {
  const sequence_t *seq = &group->sequence;
  return group->is_plain && scheduler->options.draft.tokens_max == 0 &&
         scheduler->pool->num_sides == 0 && !sequence_in_prefill(seq) &&
         sequence_num_planned(seq) == seq->num_computed_tokens + 1 &&
         block_offset(scheduler->pool, seq->num_computed_tokens) != 0 &&
         !plan_ends_in_flight(scheduler, seq);
}

/* Plans the decodes whose turn it is. Returns false if a group had to preempt itself. */
static bool plan_turns(scheduler_t *scheduler) {
  const bool has_classes = scheduler->pace.class != CLASS_ALL;
  for (group_t *group = scheduler->running.head, *next;
       group != NULL && plan_budget_left(scheduler) > 0 &&
       scheduler->plan.num_entries < scheduler->pace.draws_most;
       group = next) {
    next = group->next;
    prefetch_planned(&scheduler->plan, scheduler->plan.num_entries, GROUP_PLANNED);
    if (has_classes && plan_is_out(scheduler, group)) continue;
    if (needs_place_only(scheduler, group)) {
      if (group->planned_in == scheduler->num_plans || !plan_takes_turn(scheduler, group)) continue;
      group->planned_in = scheduler->num_plans;
      plan_add(scheduler, &group->sequence, 1);
      continue;
    }
    if (is_passed(scheduler, group, false) || !plan_takes_turn(scheduler, group)) continue;
    group->planned_in = scheduler->num_plans;
    if (!plan_decode(scheduler, group, &next)) return false;
  }
  return true;
}

static bool plan_decodes(scheduler_t *scheduler) {
  plan_pace(scheduler);
  if (!plan_turns(scheduler)) return false;
  if (plan_next_round(scheduler) && !plan_turns(scheduler)) return false;
  plan_choose_first(scheduler);
  plan_share_budget(scheduler);
  return true;
}

static int32_t count_live(const group_t *group) {
  int32_t count = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next)
    count += sequence_is_live(seq);
  return count;
}

/* Whether a group waits that this part of the plan is without, and that comes before all of it. If
 * nothing runs, it waits for what these hold, and one of them comes. */
static bool others_wait(scheduler_t *scheduler) {
  const tenant_t *next = tenants_next(&scheduler->waiting.tenants);
  return scheduler->pace.class == CLASS_BEST_EFFORT && scheduler->running.count > 0 &&
         next != NULL && !next->first->best_effort;
}

/* Swaps groups in, in the order of `swapped`, up to the first that does not fit. While a swapped
 * group is left, no group of `waiting` is admitted. */
static void plan_swapped(scheduler_t *scheduler) {
  int32_t num_seqs = scheduler->swapped.head != NULL ? plan_count_running(scheduler) : 0;
  for (group_t *group = scheduler->swapped.head, *next, *none = NULL; group != NULL; group = next) {
    next = group->next;
    /* Those by best effort stand last, and behind others that wait. */
    if (plan_is_out(scheduler, group) || others_wait(scheduler)) return;
    int32_t count = group->width;
    bool room = num_seqs + count <= scheduler->options.max_num_seqs &&
                count_live(group) <= plan_budget_left(scheduler);
    bool looks = room && !plan_is_in_flight(group) && !plan_is_unfit(scheduler, group);
    swap_verdict_t verdict = looks ? swap_verdict(scheduler, group) : SWAP_LATER;
    if (verdict == SWAP_LATER) return;
    queue_remove(&scheduler->swapped, group);
    queue_push_tail(verdict == SWAP_OK ? &scheduler->running : &scheduler->ignored, group);
    if (verdict == SWAP_NEVER) continue;
    swap_in(scheduler, group);
    for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
      if (sequence_is_live(seq)) sequence_set_status(seq, SEQUENCE_RUNNING);
    }
    bool planned = plan_is_prefill(group) ? plan_prefill(scheduler, group, &none)
                                          : plan_decode(scheduler, group, &none);
    CHECK(planned); /* its blocks are taken already, so this cannot preempt */
    num_seqs += count;
    plan_count_seat(scheduler, group, 1);
  }
}

/* The first prefill of `running` that can compute in this step. */
static group_t *first_prefill(scheduler_t *scheduler) {
  for (group_t *group = plan_first_prefill(scheduler); group != NULL; group = group->next) {
    if (!group->forked && plan_is_prefill(group) && !group->masks.wait &&
        !plan_is_out(scheduler, group) && table_advance(scheduler, &group->sequence) &&
        !pictures_block(scheduler, &group->sequence))
      return group;
  }
  return NULL;
}

/* In `planned_in`: it had its turn before the first prefill, and no time was left for it then. */
static const uint64_t IN_VAIN = UINT64_MAX;

/* Of the prefills behind `first` that may overtake it: the one with the fewest tokens left. */
static group_t *shortest_behind(const scheduler_t *scheduler, const group_t *first) {
  group_t *shortest = NULL;
  for (group_t *group = first->next; group != NULL; group = group->next) {
    if (group->planned_in == scheduler->num_plans || group->planned_in == IN_VAIN ||
        group->masks.wait || plan_is_out(scheduler, group) || !plan_is_prefill(group) ||
        !plan_is_shorter(scheduler, group, first) || pictures_block(scheduler, &group->sequence))
      continue;
    if (shortest == NULL || plan_tokens_left(group) < plan_tokens_left(shortest)) shortest = group;
  }
  return shortest;
}

/* What the first prefill keeps of what decodes leave, as one part of so many: with ageing less, so
 * of several long prompts the shorter one ends in its time. */
enum { PASSED_PART = 2, PASSED_PART_AGEING = 4 };

/* A short prompt need not wait for a long one. Prefills behind the first one that have fewer tokens
 * left than it overtake it, the shortest first. The first prefill keeps its part of the budget that
 * the decodes leave, or all that it can use. Returns false if a group had to preempt itself. */
static bool plan_shorter(scheduler_t *scheduler, uint64_t now_ns) {
  group_t *first = scheduler->options.short_prompts_pass ? first_prefill(scheduler) : NULL,
          *none = NULL;
  bool stays = true, any_in_vain = false;
  if (first == NULL || !scheduler->options.chunked_prefill) return true;
  int32_t part = scheduler->options.ageing > 0 ? PASSED_PART_AGEING : PASSED_PART;
  int32_t budget = DIV_UP(plan_budget_left(scheduler), part);
  budget = MAX(budget, pictures_run(scheduler, &first->sequence));
  budget = MIN(budget, plan_budget_left(scheduler));
  int32_t aside = plan_prompt_chunk(scheduler, &first->sequence, budget, part);
  if (aside == 0) plan_save(scheduler, &first->sequence, part);
  scheduler->budget -= aside;
  plan_set_aside(scheduler, &first->sequence, aside, 1);
  while (stays && scheduler->plan.num_preempted == 0 && plan_budget_left(scheduler) > 0 &&
         plan_has_time(scheduler)) {
    group_t *group = shortest_behind(scheduler, first);
    if (!plan_host_first(scheduler)) plan_admit(scheduler, now_ns, group != NULL ? group : first);
    if (group == NULL || plan_budget_left(scheduler) <= 0 || !plan_has_time(scheduler)) break;
    int32_t before = scheduler->plan.num_entries;
    group->planned_in = scheduler->num_plans;
    stays = plan_prefill(scheduler, group, &none);
    bool in_vain = scheduler->plan.num_preempted == 0 && scheduler->plan.num_entries == before;
    if (in_vain) group->planned_in = IN_VAIN;
    any_in_vain = any_in_vain || in_vain;
  }
  for (group_t *group = scheduler->running.head; group != NULL && any_in_vain; group = group->next)
    if (group->planned_in == IN_VAIN) group->planned_in = 0; /* it may get what the first leaves */
  scheduler->budget += aside;
  plan_set_aside(scheduler, &first->sequence, aside, -1);
  return stays;
}

static void plan_all_running(scheduler_t *scheduler, uint64_t now_ns) {
  const bool goes_on =
      scheduler->pace.class == CLASS_BEST_EFFORT && scheduler->plan.num_entries > 0;
  scheduler->num_plans += !goes_on; /* groups of the first class keep that they are planned */
  scheduler->budget = scheduler->options.max_num_batched_tokens;
  if (plan_decodes(scheduler) && plan_shorter(scheduler, now_ns)) plan_prefills(scheduler);
}

static void collect_leaving(scheduler_t *scheduler) {
  int32_t most = scheduler->pool->floor->options.step_blocks;
  if (most == 0) most = scheduler->running.count > 0 ? FLOOR_BLOCKS_A_STEP : FLOOR_BLOCKS_IDLE;
  floor_collect(scheduler->pool, most);
}

/* Plans the groups of a class behind those that are planned. */
static void plan_groups(scheduler_t *scheduler, uint64_t now_ns, plan_class_t class) {
  const plan_t *plan = &scheduler->plan;
  scheduler->pace.class = class;
  plan_all_running(scheduler, now_ns);
  /* The first group was preempted by its own allocation, so nothing is planned yet. Its blocks are
   * free now: plan the others. If they find none either, the next plan has one group less. */
  bool starved = plan->num_preempted > 0 && plan->num_entries == 0;
  if (starved && scheduler->running.head != NULL) plan_all_running(scheduler, now_ns);
  if (plan->num_preempted == 0) plan_swapped(scheduler);
  if (plan->num_preempted == 0 && (!plan_host_first(scheduler) || scheduler->options.fair_share))
    plan_admit(scheduler, now_ns, NULL);
  if (plan->num_entries == 0 && plan_ends_pause(scheduler)) plan_all_running(scheduler, now_ns);
  scheduler->num_sat_out += (uint64_t)scheduler->pace.num_sat_out;
}

/* For so long after others were there, a step by best effort is short: one may come again. */
static const uint64_t LATELY_NS = 60000000000;

/* Groups by best effort get what others leave: nothing beside their prompts, and else little time
 * in each step as long as one of them may come. */
static void plan_classes(scheduler_t *scheduler, uint64_t now_ns) {
  const waiting_t *waiting = &scheduler->waiting;
  const bool any_other = waiting->num_groups > waiting->num_best_effort;
  uint64_t *others_ns = &scheduler->best_effort.others_ns;
  if (any_other) *others_ns = now_ns;
  if (waiting->num_best_effort == 0 || *others_ns == 0 || now_ns - *others_ns >= LATELY_NS) {
    plan_groups(scheduler, now_ns, CLASS_ALL);
    return;
  }
  step_pace_t others = {.class = CLASS_OTHERS, .debt_ns = scheduler->pace.debt_ns};
  if (any_other) plan_groups(scheduler, now_ns, CLASS_OTHERS);
  if (any_other) others = scheduler->pace;
  if (others.num_chunks > 0) return;
  plan_groups(scheduler, now_ns, CLASS_BEST_EFFORT);
  others.number = scheduler->pace.number;
  scheduler->pace = others; /* forecasts are for those who come, and these wait for none of them */
}

int32_t scheduler_plan(scheduler_t *scheduler, uint64_t now_ns) {
  plan_t *plan = &scheduler->plan;
  group_store_renew(&scheduler->choices);
  block_begin_plan(scheduler->pool);
  end_cache_share(scheduler, now_ns);
  plan->num_before = plan->num_entries;
  plan->entries = scheduler->entries;
  plan->num_entries = plan->num_tokens = plan->num_preempted = plan->num_drafts = 0;
  plan->num_swap_out = plan->num_swap_in = 0;
  plan->work = (cost_work_t){.of = {[COST_STEP] = 1}};
  if (scheduler->pool->floor != NULL) collect_leaving(scheduler);
  scheduler->budget = scheduler->options.max_num_batched_tokens;
  slices_continue(scheduler);
  plan_classes(scheduler, now_ns);
  states_plan(scheduler);
  for (int32_t i = 0; i < plan->num_entries; i++) {
    sequence_t *seq = plan->entries[i].sequence;
    prefetch_entry(plan, i, GROUP_PLANNED);
    waiting_note_served(&scheduler->waiting, seq->group);
    if (plan->entries[i].do_sample && seq->num_output_tokens + seq->num_output_placeholders == 0)
      plan_note_first(scheduler, seq->group, now_ns);
    seq->num_computed_tokens += plan->entries[i].num_tokens;
    seq->num_in_flight_tokens += plan->entries[i].num_tokens;
    seq->num_output_placeholders += plan->entries[i].do_sample;
    seq->entry = &plan->entries[i];
    seq->drafts.waits = plan->entries[i].waits;
    scheduler->drafts.num_in_flight += plan->entries[i].num_drafts;
  }
  return plan->num_entries;
}

void scheduler_take_plan(scheduler_t *scheduler, plan_t *out) {
  plan_t *plan = &scheduler->plan, taken = *plan;
  scheduler->entries = out->entries;
  plan->states = out->states; /* its entries point into the other array */
  taken.copies = out->copies;
  taken.state_copies = out->state_copies;
  taken.swaps = NULL; /* launched already */
  memcpy(taken.copies, plan->copies, (size_t)plan->num_copies * sizeof *plan->copies);
  memcpy(taken.state_copies, plan->state_copies,
         (size_t)plan->num_state_copies * sizeof *plan->state_copies);
  plan->num_copies = plan->num_state_copies = 0;
  *out = taken;
}

void scheduler_unpin(scheduler_t *scheduler, plan_t *plan) {
  while (plan->num_copies > 0)
    block_unpin(scheduler->pool, plan->copies[--plan->num_copies].copy.src);
}
