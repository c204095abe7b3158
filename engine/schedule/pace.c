/* pace.c: the time of a step: who may take how much of it; the contract is in plan.h.
 *
 * A step in which something decodes is bounded in time, so that the next tokens come soon. Decodes
 * go first; prompts get chunks that fit into what they leave. Beside a token that is due to another
 * client, all that a client has in a step is bounded as well, its decodes too: they take turns.
 * Engine thread only; allocates nothing.
 */
#include "engine/base/util.h"
#include "engine/schedule/pictures.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/table.h"

#include <math.h>

static const double NO_BOUND = 1e18; /* ns */
/* Time alone keeps a client that is within its share from its next prompt, or one of its prompts
 * from a block, for so many plans at most: what was learned may be wrong, steps may become slow. */
enum { HELD_PLANS = 2 };
/* Before costs are known: tokens that take as long as reading the weights does. */
static const double STEP_IN_TOKENS = 16;

/* ---- what entries cost ---- */

/* Rows that score tokens of the prompt: those of positions before its last one, each once. */
static int32_t count_scores(const plan_entry_t *entry) {
  const sequence_t *seq = entry->sequence;
  if (seq->group->request->params.num_prompt_logprobs < 0) return 0;
  int32_t end = MIN(entry->num_computed + entry->num_tokens, seq->num_prompt_tokens - 1);
  return MAX(end - MAX(entry->num_computed, seq->num_scored), 0);
}

static int32_t count_rows(const plan_entry_t *entry) {
  if (entry->sequence->group->is_plain) return entry->do_sample + entry->num_drafts;
  return entry->do_sample + entry->num_drafts + count_scores(entry);
}

/* The time of a step; 0 = no bound. */
static double bound_ns(const scheduler_t *scheduler) {
  const pace_options_t *options = &scheduler->options.pace;
  if (options->step_ns <= 0) return 0;
  return MAX(options->step_ns, options->reads * scheduler->cost.ns[COST_STEP]);
}

/* With ageing the time of a step is meant for the mean: what a step with decodes took more, as by
 * blocks that came from the host, the next ones take less. */
static void note_debt(scheduler_t *scheduler, const plan_t *plan, double device_ns) {
  const double most_ns = bound_ns(scheduler);
  double *debt_ns = &scheduler->pace.debt_ns;
  if (scheduler->options.ageing <= 0 || plan->work.of[COST_KEY] == 0) return;
  *debt_ns = MIN(MAX(*debt_ns + device_ns - most_ns, 0), most_ns / 2);
}

void scheduler_note_time(scheduler_t *scheduler, const plan_t *plan, double device_ns) {
  double *token_ns = &scheduler->swap.token_ns;
  note_debt(scheduler, plan, device_ns);
  if (plan->num_swap_in > 0 || plan->num_swap_out > 0 || plan->copies_floor) return;
  cost_learn(&scheduler->cost, &plan->work, device_ns);
  if (plan->num_tokens < 2 * plan->num_entries) return;
  /* The step is mostly prefills: the time of a token that is computed again after a preemption. */
  double mean_ns = device_ns / plan->num_tokens;
  *token_ns = *token_ns > 0 ? 0.9 * *token_ns + 0.1 * mean_ns : mean_ns;
}

void scheduler_note_drafts(scheduler_t *scheduler, double ns) {
  double *mean_ns = &scheduler->drafts.model_ns;
  *mean_ns = *mean_ns > 0 ? 0.9 * *mean_ns + 0.1 * ns : ns;
}

/* The time of the next token of a sequence. */
static double sequence_ns(const scheduler_t *scheduler, const sequence_t *seq) {
  return cost_next_ns(&scheduler->cost, seq->num_computed_tokens);
}

/* The time of the next token of each sequence of a group. */
static double decode_ns(const scheduler_t *scheduler, const group_t *group) {
  double ns = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) ns += sequence_ns(scheduler, seq);
  }
  return ns;
}

/* What was kept for an earlier plan is 0 now. */
static tenant_pace_t *renew(const scheduler_t *scheduler, tenant_pace_t *pace) {
  if (pace->number != scheduler->pace.number)
    *pace = (tenant_pace_t){.number = scheduler->pace.number,
                            .round = MAX(pace->round, 1),
                            .held_from = pace->held_from,
                            .lacks_from = pace->lacks_from};
  return pace;
}

static tenant_pace_t *pace_of_tenant(scheduler_t *scheduler, int32_t tenant) {
  return renew(scheduler, &scheduler->waiting.tenants.all[tenant].pace);
}

/* Beside others, all that runs by best effort is as one client. */
static tenant_pace_t *pace_of(scheduler_t *scheduler, const group_t *group) {
  if (scheduler->pace.class == CLASS_BEST_EFFORT)
    return renew(scheduler, &scheduler->best_effort.pace);
  return pace_of_tenant(scheduler, group->tenant);
}

void scheduler_note_tower(scheduler_t *scheduler, const group_t *group, double ns) {
  scheduler->tower_ns += ns;
  scheduler->tower_tenant = group->tenant;
}

/* The tower's work is part of the step that follows. */
static void spend_tower(scheduler_t *scheduler, double ns) {
  if (ns == 0) return;
  scheduler->pace.step_ns -= ns;
  pace_of_tenant(scheduler, scheduler->tower_tenant)->aside_ns += ns;
}

void plan_spend(scheduler_t *scheduler, const plan_entry_t *entry, int times) {
  int32_t rows = count_rows(entry);
  const bool is_next = entry->num_tokens == 1 && rows == 1; /* most entries are */
  if (is_next) cost_add_next(&scheduler->plan.work, entry->num_computed, times);
  if (is_next && !scheduler->pace.is_on) return; /* nobody asks what a client has spent */
  tenant_pace_t *pace = pace_of(scheduler, entry->sequence->group);
  if (is_next) {
    pace->spent_ns += times * cost_next_ns(&scheduler->cost, entry->num_computed);
    pace->num_planned += times;
    return;
  }
  cost_work_t work = cost_of_tokens(entry->num_computed, entry->num_tokens);
  work.of[COST_ROW] = rows;
  cost_add(&scheduler->plan.work, &work, times);
  pace->spent_ns += times * cost_ns(&scheduler->cost, &work);
  pace->num_planned += times;
}

/* Without chunks a prompt takes the time that it needs. */
static bool bounds_prompts(const scheduler_t *scheduler) {
  return scheduler->pace.is_on && scheduler->options.chunked_prefill;
}

/* The time of a step that a group takes once it decodes. */
static double seat_ns(const scheduler_t *scheduler, const group_t *group) {
  double one_ns = cost_next_ns(&scheduler->cost, sequence_num_tokens(&group->sequence));
  return group->width * one_ns;
}

void plan_count_seat(scheduler_t *scheduler, const group_t *group, int times) {
  if (scheduler->pace.seats_ns == 0) return;
  const double ns = times * seat_ns(scheduler, group);
  scheduler->pace.seats_ns += ns;
  pace_of_tenant(scheduler, group->tenant)->seats_ns += ns;
}

/* Whether the client has no more than its share of the time of a step with the group, or nothing
 * else that runs. */
static bool has_seat(scheduler_t *scheduler, const group_t *group) {
  const tenant_t *tenant = waiting_tenant(&scheduler->waiting, group);
  const double own_ns = pace_of_tenant(scheduler, group->tenant)->seats_ns;
  const double most_ns = bound_ns(scheduler) * tenant->weight;
  if (!scheduler->options.fair_share || group->best_effort) return false;
  return plan_count_of(scheduler, group) == 0 ||
         (own_ns + seat_ns(scheduler, group)) * (double)scheduler->weights <= most_ns;
}

bool plan_may_begin(scheduler_t *scheduler, const group_t *group) {
  const step_pace_t *pace = &scheduler->pace;
  return pace->seats_ns == 0 || scheduler->running.count == 0 ||
         pace->seats_ns + seat_ns(scheduler, group) <= bound_ns(scheduler) ||
         has_seat(scheduler, group);
}

bool plan_has_waited(scheduler_t *scheduler, const group_t *group) {
  tenant_pace_t *client = pace_of(scheduler, group);
  const tenant_t *tenant = waiting_tenant(&scheduler->waiting, group);
  const bool is_alone = scheduler->weights == tenant->weight;
  if (!bounds_prompts(scheduler) || !scheduler->options.fair_share || group->best_effort ||
      is_alone || !plan_is_entitled(scheduler, group, false))
    return false;
  if (client->held_from == 0) client->held_from = scheduler->pace.number;
  return scheduler->pace.number - client->held_from >= HELD_PLANS;
}

bool plan_has_waited_for_step(scheduler_t *scheduler, const group_t *group) {
  const step_pace_t *pace = &scheduler->pace;
  const cost_work_t block = cost_of_tokens(0, scheduler->pool->block_size);
  const double left_ns = bound_ns(scheduler) - scheduler->cost.ns[COST_STEP] - pace->decodes_ns;
  return bounds_prompts(scheduler) && left_ns < 2 * cost_ns(&scheduler->cost, &block) &&
         plan_has_waited(scheduler, group);
}

void plan_end_wait(scheduler_t *scheduler, const group_t *group) {
  pace_of(scheduler, group)->held_from = 0;
}

/* A client has a token due if it decodes, or if a prompt of it may end in this step: one that takes
 * no longer than a client may. */
static void note_due(scheduler_t *scheduler, tenant_pace_t *client) {
  scheduler->pace.num_due += !client->is_due;
  client->is_due = true;
}

static bool is_short(const scheduler_t *scheduler, const group_t *group) {
  const sequence_t *seq = &group->sequence;
  cost_work_t work = cost_of_tokens(seq->num_computed_tokens, plan_tokens_left(group));
  work.of[COST_ROW] = 1;
  return cost_ns(&scheduler->cost, &work) <= scheduler->pace.client_ns;
}

/* Of the prompts that wait, the one whose turn is next counts. */
static void note_short_prompts(scheduler_t *scheduler) {
  const tenant_t *next = tenants_next(&scheduler->waiting.tenants);
  if (!scheduler->pace.is_on || scheduler->pace.client_ns == NO_BOUND) return;
  if (next != NULL && !plan_is_out(scheduler, next->first) && is_short(scheduler, next->first))
    note_due(scheduler, pace_of(scheduler, next->first));
  for (group_t *group = scheduler->pace.prefills; group != NULL; group = group->next)
    if (plan_is_prefill(group) && !plan_is_out(scheduler, group) && is_short(scheduler, group))
      note_due(scheduler, pace_of(scheduler, group));
}

/* ---- best effort ---- */

/* If nobody else has been there for long, best effort has so many steps; as many times as long as
 * all weights are read, at least: with less of it most of the time would be spent on reading them.
 * Else whoever comes waits for the step in flight, unless that can be left. So it has a tenth of
 * the longest first tokens of others, but no more than a third of these in the mean, since a client
 * can make its own first tokens late. In a step that can be left it has the time of one, or more
 * where little of that would be left behind the weights: half of it is lost for each who comes. */
enum { LONGEST_PART = 10, MEAN_PART = 3, STEPS_MOST = 4 };
static const double WEIGHTS_TIMES = 1.5, WEIGHTS_TIMES_LEFT = 4;
/* Beside tokens of others, which have read the weights, a part of the time that these take: their
 * answers end the later by it, and more of those who come meet them. */
static const double BESIDE_PART = 0.5;
/* Of a first token, its part in what is known of them. */
static const double FIRST_WEIGHT = 0.1;

void plan_note_first(scheduler_t *scheduler, const group_t *group, uint64_t now_ns) {
  best_effort_t *known = &scheduler->best_effort;
  const uint64_t arrival_ns = group->request->arrival_ns;
  if (group->best_effort || !group_is_lead(group) || !cost_is_known(&scheduler->cost)) return;
  const double waited_ns = now_ns > arrival_ns ? (double)(now_ns - arrival_ns) : 0;
  const double ns = waited_ns + cost_ns(&scheduler->cost, &scheduler->plan.work);
  const double mean_ns = known->mean_first_ns, longest_ns = known->longest_first_ns;
  known->mean_first_ns = mean_ns > 0 ? mean_ns + FIRST_WEIGHT * (ns - mean_ns) : ns;
  known->longest_first_ns = MAX(ns, longest_ns + FIRST_WEIGHT * (ns - longest_ns));
}

static void pace_best_effort(scheduler_t *scheduler) {
  step_pace_t *pace = &scheduler->pace;
  const double step_ns = bound_ns(scheduler);
  const best_effort_t *known = &scheduler->best_effort;
  const plan_t *plan = &scheduler->plan;
  const bool is_beside = plan->num_entries > 0;
  const double others_ns = cost_ns(&scheduler->cost, &plan->work); /* with reading the weights */
  const double weights_ns = scheduler->cost.ns[COST_STEP];
  double ns = MIN(known->longest_first_ns / LONGEST_PART, known->mean_first_ns / MEAN_PART);
  if (scheduler->options.leaves_steps && !known->has_left)
    ns = MAX(ns, MAX(step_ns, WEIGHTS_TIMES_LEFT * weights_ns));
  if (step_ns > 0) ns = MIN(ns, step_ns * STEPS_MOST);
  ns = MAX(ns, MAX(scheduler->options.pace.client_ns, WEIGHTS_TIMES * weights_ns));
  if (is_beside) ns = BESIDE_PART * others_ns;
  pace->is_on = true;
  pace->client_ns = ns;
  pace->step_ns = is_beside ? MIN(pace->step_ns, others_ns + ns) : others_ns + ns;
}

/* The time of this step: more where best effort alone is there. */
static double step_now_ns(const scheduler_t *scheduler) {
  const waiting_t *waiting = &scheduler->waiting;
  const double ns = bound_ns(scheduler);
  if (waiting->num_best_effort == 0 || waiting->num_groups > waiting->num_best_effort) return ns;
  return MAX(ns * STEPS_MOST, scheduler->cost.ns[COST_STEP] * (1 + WEIGHTS_TIMES));
}

void plan_pace(scheduler_t *scheduler) {
  const pace_options_t *options = &scheduler->options.pace;
  const int32_t stages = scheduler->options.num_stages;
  step_pace_t *pace = &scheduler->pace;
  *pace = (step_pace_t){.class = pace->class,
                        .number = pace->number + 1,
                        .debt_ns = pace->debt_ns,
                        .draws_most = INT32_MAX,
                        .step_ns = NO_BOUND,
                        .client_ns = NO_BOUND};
  bool is_bounded = options->step_ns + options->client_ns > 0 && cost_is_known(&scheduler->cost);
  if (is_bounded && options->bounds_admission && options->step_ns > 0)
    pace->seats_ns = MAX(scheduler->cost.ns[COST_STEP], 1);
  int32_t place = 0;
  for (group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    prefetch_planned(&scheduler->plan, place++, GROUP_WALKED);
    if (plan_is_out(scheduler, group)) continue;
    plan_count_seat(scheduler, group, 1);
    if (plan_is_prefill(group)) {
      if (pace->prefills == NULL) pace->prefills = group;
      pace->num_prefills++;
      if (!group->forked) pace->prompt_tokens += plan_tokens_left(group);
      if (scheduler->pictures_whole)
        pace->run_tokens = MAX(pace->run_tokens, pictures_run(scheduler, &group->sequence));
      continue;
    }
    if (!is_bounded && scheduler->options.draft.tokens_max == 0 && stages <= 1) continue;
    double ns = decode_ns(scheduler, group);
    pace->num_draws += group->width;
    pace->decodes_ns += ns;
    if (!is_bounded) continue;
    tenant_pace_t *client = pace_of(scheduler, group);
    pace->num_decoding += client->num_decodes++ == 0;
    note_due(scheduler, client);
    client->decodes_ns += ns;
  }
  if (stages > 1) pace->draws_most = MAX(DIV_UP(pace->num_draws, stages), 1);
  const double tower_ns = scheduler->tower_ns;
  scheduler->tower_ns = 0;
  if (!is_bounded) return;
  pace->is_on = pace->num_decoding > 0;
  if (options->step_ns > 0) pace->step_ns = step_now_ns(scheduler) - pace->debt_ns;
  if (scheduler->options.fair_share && options->client_ns > 0)
    pace->client_ns = MAX(options->client_ns, scheduler->cost.ns[COST_STEP]);
  if (pace->class == CLASS_BEST_EFFORT) pace_best_effort(scheduler);
  note_short_prompts(scheduler);
  spend_tower(scheduler, tower_ns);
  if (scheduler->options.ageing > 0 && options->step_ns > 0)
    pace->prompts_ns = pace->step_ns - scheduler->cost.ns[COST_STEP] - pace->decodes_ns;
}

/* Time that the client may have in this step. */
static double client_bound(const scheduler_t *scheduler, const tenant_pace_t *client) {
  const step_pace_t *pace = &scheduler->pace;
  const bool is_bounded = pace->class == CLASS_BEST_EFFORT || pace->num_due > client->is_due;
  return is_bounded ? pace->client_ns : NO_BOUND;
}

/* The same for prompts, behind its decodes. With ageing a long one has a time in which it must be
 * computed, so beside other clients it may have half of what all decodes leave. */
static double client_prompts_bound(const scheduler_t *scheduler, const tenant_pace_t *client) {
  double bound = client_bound(scheduler, client);
  if (client->decodes_ns >= bound) return bound;
  return MAX(bound, client->decodes_ns + scheduler->pace.prompts_ns / 2);
}

/* ---- stages ---- */

/* While stages have a step each, what the steps draw is awaited. So a plan takes a part of the
 * decodes, and prompts in chunks that keep all stages busy; but fewer tokens than these read each
 * weight nearly as long. */
enum { CHUNKS_OF_A_STAGE = 4, SHARE_TOKENS_MIN = 16 };

static int32_t share(const scheduler_t *scheduler, int32_t num_tokens) {
  return MAX(DIV_UP(num_tokens, CHUNKS_OF_A_STAGE * scheduler->options.num_stages),
             SHARE_TOKENS_MIN);
}

static bool shares_prompts(const scheduler_t *scheduler) {
  return scheduler->options.num_stages > 1 && scheduler->options.chunked_prefill;
}

static int32_t share_of_prompt(const scheduler_t *scheduler, const sequence_t *seq) {
  return shares_prompts(scheduler) ? share(scheduler, seq->num_prefill_tokens) : INT32_MAX;
}

/* Tokens that one sequence may compute in this step. */
int32_t plan_chunk(const scheduler_t *scheduler, const sequence_t *seq, int32_t budget) {
  if (plan_ends_in_flight(scheduler, seq)) return 0;
  int32_t n = sequence_num_planned(seq) - seq->num_computed_tokens;
  int32_t threshold = scheduler->options.long_prefill_token_threshold;
  bool waits_for_mask = scheduler->options.has_states && seq->group->masks.wait;
  if (scheduler->plan.beams_wait) n--;
  if (waits_for_mask && !scheduler->plan.beams_wait) n--;
  if (seq->slices.total > 0)
    n = MIN(n, seq->num_blocks * scheduler->pool->block_size - seq->num_computed_tokens);
  int32_t most = scheduler->options.chunked_prefill ? seq->group->chunk_max : 0;
  const int32_t run = pictures_run(scheduler, seq); /* it is whole whatever bounds chunks */
  if (threshold > 0 && n > threshold) n = MIN(n, MAX(threshold, run));
  n = MIN(n, share_of_prompt(scheduler, seq));
  if (most > 0 && n > most) n = MIN(n, MAX(most, run));
  return pictures_cut(scheduler, seq, table_own_tokens(scheduler, seq, MIN(n, budget)));
}

void plan_share_budget(scheduler_t *scheduler) {
  if (!shares_prompts(scheduler)) return;
  const scheduler_options_t *options = &scheduler->options;
  const int32_t most =
      MAX(share(scheduler, options->max_num_batched_tokens), options->max_num_seqs);
  scheduler->budget = MIN(scheduler->budget, scheduler->plan.num_tokens + most);
}

/* ---- decodes ---- */

bool plan_takes_turn(scheduler_t *scheduler, group_t *group) {
  if (!scheduler->pace.is_on) return true;
  tenant_pace_t *client = pace_of(scheduler, group);
  double bound = client_bound(scheduler, client);
  if (client->decodes_ns <= bound) return true;
  if (group->yield.round == 0)
    group->yield.round = client->round; /* it came in the middle of a round */
  bool had_turn = group->yield.round == client->round;
  bool fits = client->num_planned == 0 || client->spent_ns + decode_ns(scheduler, group) <= bound;
  client->sits_out = client->sits_out || had_turn;
  client->is_late = client->is_late || !(had_turn || fits);
  scheduler->pace.num_sat_out += had_turn || !fits;
  if (had_turn || !fits) return false;
  group->yield.round = client->round;
  return true;
}

draft_step_t plan_draft_step(const scheduler_t *scheduler, const sequence_t *seq) {
  const cost_t *cost = &scheduler->cost;
  const double draws = MAX(scheduler->pace.num_draws, 1);
  if (!cost_is_known(cost)) return (draft_step_t){.tokens = draws, .cost = STEP_IN_TOKENS + draws};
  double one_ns = cost->ns[COST_ROW] + cost->ns[COST_TOKEN] +
                  cost->ns[COST_PAIR] * (seq->num_computed_tokens + 1.0) +
                  scheduler->drafts.model_ns / draws;
  double step_ns = cost->ns[COST_STEP] + scheduler->pace.decodes_ns;
  return (draft_step_t){.tokens = draws, .cost = step_ns / MAX(one_ns, 1)};
}

bool plan_takes_drafts(scheduler_t *scheduler, const group_t *group) {
  if (!scheduler->pace.is_on) return true;
  tenant_pace_t *client = pace_of(scheduler, group);
  double ns = 0;
  const plan_t *plan = &scheduler->plan;
  for (int32_t i = plan->num_entries; i < plan->num_entries + plan->num_wanted; i++) {
    const sequence_t *seq = plan->entries[i].sequence;
    const int32_t drafts = plan->entries[i].num_drafts;
    if (drafts == 0) continue;
    cost_work_t work = cost_of_tokens(seq->num_computed_tokens, 1 + drafts);
    work.of[COST_ROW] = 1 + drafts;
    ns += MAX(cost_ns(&scheduler->cost, &work) - sequence_ns(scheduler, seq), 0);
  }
  /* A group that was on the host is not among the decodes that were counted. */
  double decodes_ns =
      MAX(client->decodes_ns + client->drafts_ns, client->spent_ns + decode_ns(scheduler, group));
  if (decodes_ns + ns > client_bound(scheduler, client)) return false;
  client->drafts_ns += ns;
  return true;
}

bool plan_next_round(scheduler_t *scheduler) {
  bool any = false;
  if (scheduler->pace.num_sat_out == 0) return false;
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    tenant_pace_t *client = pace_of(scheduler, group);
    if (!client->sits_out || client->is_late) continue;
    client->sits_out = false;
    client->round++;
    any = true;
  }
  if (any) scheduler->pace.num_sat_out = 0;
  return any;
}

/* ---- prompts ---- */

static bool can_compute(scheduler_t *scheduler, group_t *group) {
  return !plan_is_out(scheduler, group) && plan_is_prefill(group) && !group->masks.wait &&
         (group->forked || table_advance(scheduler, &group->sequence)) &&
         !pictures_block(scheduler, &group->sequence);
}

/* The first prompt; but if its client had a block in the plan before, that of the client whose
 * prompts have had none for longest, and for HELD_PLANS plans. */
void plan_choose_first(scheduler_t *scheduler) {
  const uint64_t number = scheduler->pace.number;
  group_t *first = NULL, *longest = NULL;
  int32_t left = scheduler->pace.is_on ? scheduler->pace.num_prefills : 0;
  uint64_t before = number - MIN(number, HELD_PLANS) + 1;
  for (group_t *group = plan_first_prefill(scheduler); left > 0 && group != NULL;
       group = group->next) {
    tenant_pace_t *client = pace_of(scheduler, group);
    left -= plan_is_prefill(group) && !plan_is_out(scheduler, group);
    if (first != NULL && client->lacks_from >= before) continue;
    if (!can_compute(scheduler, group)) continue;
    if (first == NULL) first = group;
    if (!scheduler->options.fair_share) break;
    if (client->lacks_from == 0) client->lacks_from = number;
    if (client->lacks_from >= before) continue;
    longest = group;
    before = client->lacks_from;
  }
  const bool had = first != NULL && pace_of(scheduler, first)->lacks_from == number;
  scheduler->pace.first = had && longest != NULL ? longest : first;
}

static double step_left(const scheduler_t *scheduler) {
  return scheduler->pace.step_ns - cost_ns(&scheduler->cost, &scheduler->plan.work);
}

static const tenant_pace_t *client_of(const scheduler_t *scheduler, const group_t *group) {
  static const tenant_pace_t nothing = {0};
  const tenant_pace_t *client = scheduler->pace.class == CLASS_BEST_EFFORT
                                    ? &scheduler->best_effort.pace
                                    : &scheduler->waiting.tenants.all[group->tenant].pace;
  return client->number == scheduler->pace.number ? client : &nothing;
}

bool plan_has_time(const scheduler_t *scheduler) {
  const step_pace_t *pace = &scheduler->pace;
  const bool is_bounded =
      bounds_prompts(scheduler) || (pace->is_on && pace->class == CLASS_BEST_EFFORT);
  return !is_bounded || pace->num_chunks == 0 || step_left(scheduler) > 0;
}

/* None for prompts if its decodes alone take more than it has. */
bool plan_client_has_time(const scheduler_t *scheduler, const group_t *group) {
  const tenant_pace_t *client = client_of(scheduler, group);
  return !bounds_prompts(scheduler) ||
         MAX(client->spent_ns + client->aside_ns, client->decodes_ns) <
             client_prompts_bound(scheduler, client);
}

/* Of the time of the step, what a prompt of the group may still have. */
static double time_left(const scheduler_t *scheduler, const group_t *group) {
  const tenant_pace_t *client = client_of(scheduler, group);
  double left = client_prompts_bound(scheduler, client) - client->spent_ns - client->aside_ns;
  return MIN(left, step_left(scheduler));
}

/* Whether a prompt of the group gets a block where it has no time for more. */
static bool gets_block(const scheduler_t *scheduler, const group_t *group) {
  bool has_time = plan_client_has_time(scheduler, group) && plan_has_time(scheduler);
  return has_time || group == scheduler->pace.first;
}

int32_t plan_prompt_chunk(const scheduler_t *scheduler, const sequence_t *seq, int32_t budget,
                          int32_t part) {
  const group_t *group = seq->group;
  int32_t n = plan_chunk(scheduler, seq, budget), block = scheduler->pool->block_size;
  if (!bounds_prompts(scheduler)) return n;
  const bool scores = group->request->params.num_prompt_logprobs >= 0;
  const double left = time_left(scheduler, group) / part;
  const int32_t run = pictures_run(scheduler, seq);
  const double saved = run > 0 ? seq->saving.ns : 0;
  int32_t fits = cost_tokens(&scheduler->cost, seq->num_computed_tokens, scores, left + saved);
  if (fits >= n) return n;
  if (run > 0) return fits >= run ? run : 0;
  n = MIN(n, MAX(fits - fits % block, gets_block(scheduler, group) ? block : 0));
  return pictures_cut(scheduler, seq, n);
}

/* In the mean of steps a picture takes no more time than chunks would; a step that has it takes as
 * much longer as those before it took less. */
void plan_save(scheduler_t *scheduler, sequence_t *seq, int32_t part) {
  group_t *group = seq->group;
  const bool again = seq->saving.saved_in == scheduler->num_plans;
  if (!bounds_prompts(scheduler) || pictures_run(scheduler, seq) == 0 ||
      plan_chunk(scheduler, seq, plan_budget_left(scheduler)) <= 0)
    return;
  const cost_work_t work = cost_of_tokens(seq->num_computed_tokens, scheduler->pool->block_size);
  const double least =
      gets_block(scheduler, group) && !again ? cost_ns(&scheduler->cost, &work) : 0;
  const double ns = MAX(time_left(scheduler, group) / part, least);
  if (ns <= 0) return;
  seq->saving = (saving_t){seq->saving.ns + ns, scheduler->num_plans};
  pace_of(scheduler, group)->aside_ns += ns;
  scheduler->pace.step_ns -= ns;
  plan_note_chunk(scheduler, group);
}

void plan_note_chunk(scheduler_t *scheduler, const group_t *group) {
  scheduler->pace.num_chunks++;
  pace_of(scheduler, group)->lacks_from = 0;
  if (scheduler->pace.first == group) scheduler->pace.first = NULL;
}

void plan_set_aside(scheduler_t *scheduler, const sequence_t *seq, int32_t num_tokens, int times) {
  cost_work_t work = cost_of_tokens(seq->num_computed_tokens, num_tokens);
  double ns = times * cost_ns(&scheduler->cost, &work);
  if (num_tokens == 0) return;
  pace_of(scheduler, seq->group)->aside_ns += ns;
  scheduler->pace.step_ns -= ns;
}

/* ---- what is to come ---- */

double plan_prompt_ns(const scheduler_t *scheduler, double alone_ns) {
  const step_pace_t *pace = &scheduler->pace;
  const double step_ns = bound_ns(scheduler);
  const double last_ns = cost_ns(&scheduler->cost, &scheduler->plan.work);
  double beside_ns = scheduler->cost.ns[COST_STEP] + pace->decodes_ns;
  if (!bounds_prompts(scheduler) || step_ns <= 0) return alone_ns + beside_ns;
  double left_ns = MAX(step_ns - beside_ns, step_ns / 8);
  return MAX(last_ns, ceil(alone_ns / left_ns) * step_ns);
}

/* A step has the time for prompts that decodes leave, or all its tokens; at least a block. */
forecast_t scheduler_forecast(const scheduler_t *scheduler, double mean_tokens) {
  const cost_t *cost = &scheduler->cost;
  const step_pace_t *pace = &scheduler->pace;
  double token_ns = cost->ns[COST_TOKEN] + cost->ns[COST_PAIR] * mean_tokens / 2;
  double beside_ns = cost->ns[COST_STEP] + pace->decodes_ns;
  double most_ns = scheduler->options.max_num_batched_tokens * token_ns;
  const double step_ns = bound_ns(scheduler);
  if (!cost_is_known(cost) || token_ns <= 0) return (forecast_t){0};
  if (step_ns > 0 && pace->is_on) most_ns = MIN(most_ns, step_ns - beside_ns - cost->ns[COST_ROW]);
  most_ns = MAX(most_ns, scheduler->pool->block_size * token_ns);
  double each_ns = token_ns * (1 + beside_ns / most_ns);
  double queries = (double)scheduler->prefix_queries_tokens;
  double cached = queries > 0 ? (double)scheduler->prefix_hits_tokens / queries : 0;
  return (forecast_t){.base_ns = pace->prompt_tokens * each_ns,
                      .token_ns = each_ns * MAX(1 - cached, 0)};
}
