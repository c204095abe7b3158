/* decode.c: what the sequences of a group want in a step that lack one token each: that token, and
 * draft tokens behind it; the contract is in plan.h.
 *
 * Engine thread only; allocates nothing.
 */
#include "engine/schedule/pictures.h"
#include "engine/schedule/plan.h"

#include "engine/base/util.h"
#include "engine/schedule/promised.h"
#include "engine/schedule/table.h"

#include <string.h>

/* ---- entries ---- */

/* The next n tokens of a sequence, behind the entries of the plan. */
static plan_entry_t *want(scheduler_t *scheduler, sequence_t *seq, int32_t n) {
  plan_t *plan = &scheduler->plan;
  plan_entry_t *entry = &plan->entries[plan->num_entries + plan->num_wanted++];
  entry->sequence = seq;
  entry->num_tokens = n;
  entry->num_drafts = entry->num_cut = 0;
  entry->drafts_known = entry->waits = entry->late = entry->committed = false;
  entry->states = NULL;
  return entry;
}

/* Adds the first entry that is wanted to the plan. */
static void add_wanted(scheduler_t *scheduler) {
  plan_t *plan = &scheduler->plan;
  plan_entry_t *entry = &plan->entries[plan->num_entries++];
  sequence_t *seq = entry->sequence;
  int32_t n = entry->num_tokens;
  plan->num_wanted--;
  int32_t charged = MAX(seq->num_computed_tokens, seq->num_charged);
  int32_t num_charged = MAX(seq->num_computed_tokens + n - charged, 0);
  if (num_charged > 0) waiting_charge(&scheduler->waiting, seq->group, num_charged);
  entry->arrival = seq->group->arrival;
  entry->num_computed = seq->num_computed_tokens;
  entry->do_sample =
      seq->num_computed_tokens + n - entry->num_drafts == sequence_num_planned(seq) &&
      !sequence_scores_only(seq);
  entry->output_position = seq->num_output_tokens + seq->num_output_placeholders;
  bool in_flight = seq->num_output_placeholders > 0;
  entry->blocks = seq->blocks;
  entry->last_id = in_flight ? -1 - seq->entry->first_row : seq->last_id;
  entry->is_next = entry->do_sample && n == 1 && seq->group->is_plain && entry->output_position > 0;
  entry->num_charged = num_charged;
  entry->charged_before = seq->num_charged;
  seq->num_charged = charged + num_charged;
  plan->num_tokens += n;
  plan_spend(scheduler, entry, 1);
  if (block_offset(scheduler->pool, seq->num_computed_tokens) + n > scheduler->pool->block_size ||
      block_offset(scheduler->pool, seq->num_computed_tokens) == 0)
    table_written(scheduler, seq, n);
}

void plan_add(scheduler_t *scheduler, sequence_t *seq, int32_t n) {
  if (!seq->group->is_plain) seq->saving.ns = 0; /* else it saved nothing */
  want(scheduler, seq, n);
  add_wanted(scheduler);
}

/* ---- draft tokens ---- */

/* Draft tokens that the sequence can have: of the request, the context, the budget, less a picture
 * that needs so much of it at once, and its share of those that may be in flight. */
static int32_t drafts_room(const scheduler_t *scheduler, const sequence_t *seq) {
  int32_t most = scheduler->options.has_states ? DRAFT_STATES_MAX : DRAFTS_IN_FLIGHT_MAX;
  int32_t taken = scheduler->drafts.num_in_flight + scheduler->plan.num_drafts;
  int32_t room = MIN(most / MAX(scheduler->pace.num_draws, 1) - 1, most - taken);
  room = MIN(room, seq->group->request->params.max_tokens - seq->num_output_tokens - 1);
  room = MIN(room, scheduler->options.max_model_len - 1 - sequence_num_tokens(seq));
  return MIN(room, plan_budget_left(scheduler) - 1 - scheduler->pace.run_tokens);
}

/* Of so many decodes whose drafts are not worth their time one drafts a token all the same: or
 * nothing would tell that more rows cost less than it seems. */
enum { SLOW_TRIES = 64 };

/* Draft tokens that are worth their time. */
static int32_t drafts_wanted(scheduler_t *scheduler, sequence_t *seq) {
  if (scheduler->options.draft.longest) return scheduler->options.draft.tokens_max;
  if (draft_pauses(&seq->drafts.history)) {
    scheduler->drafts.num_paused++;
    return 0;
  }
  const draft_step_t step = plan_draft_step(scheduler, seq);
  int32_t length = draft_length(&scheduler->options.draft, &seq->drafts.history, &step);
  if (length > 0) return length;
  return scheduler->drafts.num_slow++ % SLOW_TRIES == 0 ? 1 : 0;
}

static bool may_draft(const scheduler_t *scheduler, const plan_entry_t *entry) {
  const sequence_t *seq = entry->sequence;
  const group_t *group = seq->group;
  bool may = !group_is_search(group) &&
             (group->request->grammar == NULL || scheduler->drafts.filter.choose != NULL);
  return scheduler->options.draft.tokens_max > 0 && entry->num_tokens == 1 && may &&
         seq->slices.total == 0 &&
         (!scheduler->options.draft.predicts ||
          seq->drafts.history.followed == sequence_num_tokens(seq));
}

/* Adds lookahead slots: draft tokens after the one token of a decode. They follow the last token,
 * which a step in flight may still draw. Then the next step waits for the token that this one
 * draws, if the text as it is known repeats itself, and drafts behind it. */
static void add_drafts(scheduler_t *scheduler, plan_entry_t *entry) {
  const draft_options_t *options = &scheduler->options.draft;
  sequence_t *seq = entry->sequence;
  const request_t *request = seq->group->request;
  if (!may_draft(scheduler, entry)) return;
  const int32_t known = sequence_num_tokens(seq), room = drafts_room(scheduler, seq);
  const int32_t wanted = room > 0 ? drafts_wanted(scheduler, seq) : 0, limit = MIN(room, wanted);
  const bool draws = scheduler->options.draft_model && limit > 0; /* a model does, later */
  const bool constrained = request->grammar != NULL && !draws;
  if (limit <= 0 && !(constrained && room > 0)) return;
  const draft_text_t text = {.prompt = request->prompt_ids,
                             .tokens = seq->tokens,
                             .num_prompt = seq->num_prompt_tokens,
                             .count = known};
  bool is_drawn = seq->num_output_placeholders == 0;
  int32_t unused[DRAFT_TOKENS_MAX], count = limit;
  int32_t *const drafts = is_drawn ? &seq->tokens[known] : unused;
  if (!draws && limit > 0)
    count = pictures_cut_drafts(scheduler, drafts, draft_lookup(options, &text, limit, drafts));
  if (constrained) { /* its last token is known: scheduler_awaits */
    const draft_filter_t *filter = &scheduler->drafts.filter;
    count = filter->choose(filter->context, seq, count, limit, MIN(room, options->tokens_max));
  }
  entry->waits = count > 0;
  entry->drafts_known = !draws;
  if (!is_drawn) return;
  entry->num_drafts = count;
  entry->num_tokens += count;
  scheduler->plan.num_drafts += count;
}

/* Of what the group wants. Returns how many it dropped. */
static int32_t drop_drafts(plan_t *plan) {
  int32_t count = 0;
  for (int32_t i = 0; i < plan->num_wanted; i++) {
    plan_entry_t *entry = &plan->entries[plan->num_entries + i];
    count += entry->num_drafts;
    entry->num_tokens -= entry->num_drafts;
    entry->num_drafts = 0;
    entry->waits = false;
  }
  plan->num_drafts -= count;
  return count;
}

static bool wants_drafts(const plan_t *plan) {
  bool any = false;
  for (int32_t i = 0; i < plan->num_wanted; i++)
    any = any || plan->entries[plan->num_entries + i].num_drafts > 0;
  return any;
}

/* ---- groups ---- */

/* Adds what every sequence of the group wants. Returns the sum of the tokens. */
static int32_t want_group(scheduler_t *scheduler, group_t *group) {
  int32_t total = 0;
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    int32_t n = sequence_is_live(seq) ? plan_chunk(scheduler, seq, plan_budget_left(scheduler)) : 0;
    if (n == 0) continue;
    plan_entry_t *entry = want(scheduler, seq, n);
    add_drafts(scheduler, entry);
    total += entry->num_tokens;
  }
  return total;
}

static int32_t blocks_wanted(const scheduler_t *scheduler) {
  const plan_t *plan = &scheduler->plan;
  return table_need_all(scheduler, &plan->entries[plan->num_entries], plan->num_wanted);
}

/* Adds what the group wants to the plan, or nothing if the budget is too small. Returns false if
 * the group itself was preempted. */
static bool add_group(scheduler_t *scheduler, group_t *group, group_t **next) {
  plan_t *plan = &scheduler->plan;
  int32_t total = want_group(scheduler, group);
  /* Drafts must leave one token for each sequence that may still decode in this step. */
  int32_t others = scheduler->options.max_num_seqs - plan->num_entries - group->width;
  if (wants_drafts(plan) && (total + others > plan_budget_left(scheduler) ||
                             blocks_wanted(scheduler) > promised_num_free(scheduler) ||
                             !plan_takes_drafts(scheduler, group)))
    total -= drop_drafts(plan);
  if (total > plan_budget_left(scheduler)) return true;
  if (!plan_make_room(scheduler, group, blocks_wanted(scheduler), next)) return false;
  while (plan->num_wanted > 0) {
    const plan_entry_t *entry = &plan->entries[plan->num_entries];
    table_grow(scheduler, entry->sequence, entry->num_tokens);
    add_wanted(scheduler);
  }
  return true;
}

bool plan_decode(scheduler_t *scheduler, group_t *group, group_t **next) {
  bool stays = add_group(scheduler, group, next);
  scheduler->plan.num_wanted = 0;
  return stays;
}
