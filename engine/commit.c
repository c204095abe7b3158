/* commit.c: stage 8 of 9, sampled ids -> output tokens, text, stop decisions, events.
 *
 * Engine thread; allocates nothing. A row that failed ends its own request and no other. Full
 * blocks enter the prefix cache before a finished sequence releases them. Next:
 * server/completion/events.c, through the mailbox.
 */
#include "engine/internal.h"
#include "engine/quota.h"
#include "engine/sample/choices.h"
#include "engine/sample/pooling.h"
#include "engine/sample/scores.h"
#include "engine/schedule/state/states.h"
#include "engine/schedule/table.h"

#include <string.h>

static finish_reason_t finish_reason(sequence_status_t status, int error_code) {
  if (error_code) return FINISH_ERROR;
  if (status == SEQUENCE_FINISHED_STOPPED) return FINISH_STOP;
  if (status == SEQUENCE_FINISHED_ABORTED) return FINISH_ABORT;
  return FINISH_LENGTH;
}

static void count_finish(engine_t *engine, finish_reason_t reason) {
  engine->stats.finished_stop += reason == FINISH_STOP;
  engine->stats.finished_length += reason == FINISH_LENGTH;
  engine->stats.finished_abort += reason == FINISH_ABORT;
  engine->stats.finished_error += reason == FINISH_ERROR;
  engine->rate_window_count++;
}

static bool is_complete(sequence_status_t status) {
  return status == SEQUENCE_FINISHED_STOPPED || status == SEQUENCE_FINISHED_LENGTH_CAPPED;
}

/* The prompt is computed: the choices behind the first begin, if there are some. */
static void begin_choices(const engine_t *engine, group_t *group) {
  if (group_is_lead(group) && group->siblings.num_begun == 1)
    siblings_begin(engine->scheduler, group);
}

/* The text that the detokenizer still holds back at the end of a choice. */
static detokenized_t last_text(engine_t *engine, sequence_t *seq) {
  if (seq->stop_string >= 0 || seq->num_output_tokens == 0) return (detokenized_t){.text = ""};
  return detokenizer_finish(&seq->detokenizer, engine->text);
}

static event_t end_event(const sequence_t *seq, event_kind_t kind, finish_reason_t finish) {
  const sequence_t *first = &seq->group->siblings.lead->sequence;
  return (event_t){
      .request = seq->group->request,
      .kind = kind,
      .choice = seq->index,
      .token_id = -1,
      .text = "",
      .finish = finish,
      .stop_token_id = seq->stop_token_id,
      .stop_string = seq->stop_string,
      .num_output_tokens = seq->num_output_tokens,
      .cumulative_logprob = seq->cumulative_logprob,
      .num_cached_tokens = first->num_cached_tokens,
      .num_floor_tokens = first->num_floor_tokens,
      .first_scheduled_ns = first->first_scheduled_ns,
      .first_token_ns = first->first_token_ns,
  };
}

/* The request has a row in a committed step, or ends without one: it waits no longer. */
static void leave_queue(engine_t *engine, group_t *lead) {
  if (lead->was_admitted) return;
  lead->was_admitted = true;
  atomic_fetch_sub(&engine->queued_requests, 1);
  atomic_fetch_sub(&engine->queued_tokens, lead->sequence.num_prompt_tokens);
  quota_leave(lead->request->quota, lead->sequence.num_prompt_tokens);
  mailbox_leave(engine->mailbox, lead->request->slot);
}

/* The group leaves the scheduler, if it is there. */
static void end_group(engine_t *engine, group_t *group, sequence_status_t status) {
  if (group->queue == NULL) return;
  constrain_end(engine, group);
  scheduler_finish(engine->scheduler, group, status);
}

/* The EVENT_DONE of a request. If it is complete its choices have ended, and their tokens add up.
 */
static event_t done_event(engine_t *engine, group_t *lead, sequence_status_t status,
                          int error_code) {
  const request_t *request = lead->request;
  event_t event = end_event(&lead->sequence, EVENT_DONE, finish_reason(status, error_code));
  if (!is_complete(status)) return event;
  if (params_collect(&request->params)) {
    event.finish = choices_finish(request);
    event.num_output_tokens = (int32_t)choices_num_tokens(request);
  } else if (params_multiple(&request->params)) {
    event.finish = finish_reason(lead->sequence.status, 0);
    event.num_output_tokens = (int32_t)lead->siblings.num_output_tokens;
  } else {
    detokenized_t rest = last_text(engine, &lead->sequence);
    event.text = rest.text;
    event.text_length = (uint32_t)rest.length;
  }
  return event;
}

void engine_finish(engine_t *engine, group_t *group, sequence_status_t status, int error_code,
                   uint64_t now_ns) {
  group_t *lead = group->siblings.lead;
  leave_queue(engine, lead);
  event_t event = done_event(engine, lead, status, error_code);
  event.choice = 0;
  event.error_code = error_code;
  event.finished_ns = now_ns;
  count_finish(engine, event.finish);
  lane_finish(engine->lane, engine, &event, is_complete(status) && error_code == 0);
  for (group_t *choice; (choice = siblings_next(lead, NULL)) != NULL;)
    end_group(engine, choice, status);
  end_group(engine, lead, status);
  constrain_leaves(engine, lead->request);
  sight_leave(engine, lead->request);
  encoding_leave(engine, lead->request);
  trace_add(engine->trace, TRACE_FINISHED, lead->request, event.num_output_tokens,
            (int32_t)event.finish);
  lead->in_use = false;
  mailbox_emit(engine->mailbox, &event);
  engine->num_live--;
  engine->num_reporting -= lead->reports_many;
}

/* The choice is complete: says so, or keeps it until all are. */
static void note_choice(engine_t *engine, sequence_t *seq, sequence_status_t status,
                        uint64_t now_ns) {
  group_t *lead = seq->group->siblings.lead;
  if (params_collect(&lead->request->params)) {
    choices_add_sequence(seq, finish_reason(status, 0));
    return;
  }
  detokenized_t rest = last_text(engine, seq);
  event_t event = end_event(seq, EVENT_CHOICE_DONE, finish_reason(status, 0));
  event.text = rest.text;
  event.text_length = (uint32_t)rest.length;
  event.finished_ns = now_ns;
  mailbox_emit(engine->mailbox, &event);
  lead->siblings.num_output_tokens += seq->num_output_tokens;
}

/* Finishes a choice that is complete, and with the last one the request. */
static void finish_choice(engine_t *engine, sequence_t *seq, sequence_status_t status,
                          uint64_t now_ns) {
  group_t *group = seq->group, *lead = group->siblings.lead;
  if (params_multiple(&lead->request->params)) {
    note_choice(engine, seq, status, now_ns);
    begin_choices(engine, group);
    end_group(engine, group, status);
    if (++lead->siblings.num_ended < lead->siblings.num_choices) return;
  }
  engine_finish(engine, lead, status, 0, now_ns);
}

static bool is_stop_id_of(const sampling_params_t *params, int32_t id) {
  for (int32_t i = 0; i < params->num_stop_token_ids; i++) {
    if (params->stop_token_ids[i] == id) return true;
  }
  return false;
}

/* Whether `id` is an EOS id of the model besides the primary one, and those count. */
static bool is_further_eos(const engine_t *engine, bool ignore_eos, int32_t id) {
  for (int32_t i = 0; i < engine->info.num_stop_ids && !ignore_eos; i++) {
    if (engine->info.stop_ids[i] == id) return true;
  }
  return false;
}

bool engine_is_end(const engine_t *engine, const sampling_params_t *params, int32_t id) {
  return is_stop_id_of(params, id) || is_further_eos(engine, params->ignore_eos, id) ||
         (!params->ignore_eos && id == engine->info.primary_eos);
}

/* The last tests of a token. complete: the grammar allows no further one, so the text stops without
 * a stop id. */
static sequence_status_t status_after(const engine_t *engine, sequence_t *seq, bool complete) {
  if (complete) seq->ended_by_grammar = true;
  if (complete) return SEQUENCE_FINISHED_STOPPED;
  bool at_end = seq->num_output_tokens >= seq->group->max_tokens ||
                sequence_num_tokens(seq) >= engine->scheduler->options.max_model_len;
  return at_end ? SEQUENCE_FINISHED_LENGTH_CAPPED : SEQUENCE_RUNNING;
}

/* See engine_append. With is_terse, which is that of the group, little of it is left. */
static inline __attribute__((always_inline)) sequence_status_t
append(engine_t *engine, sequence_t *seq, int32_t id, bool is_terse, detokenized_t *text,
       int *error_code) {
  const group_t *group = seq->group;
  const request_t *request = group->request;
  const sampling_params_t *params =
      &request->params; /* not read for most tokens of a terse group */
  table_add_id(seq, id);
  bool may_stop = is_terse || seq->num_output_tokens >= params->min_tokens;
  bool is_eos = may_stop && !group->ignore_eos && id == engine->info.primary_eos;
  bool is_stop =
      may_stop && !is_eos &&
      (is_further_eos(engine, group->ignore_eos, id) || (!is_terse && is_stop_id_of(params, id)));
  *text = (detokenized_t){.text = "", .length = 0, .stop_index = -1};
  if (is_stop) seq->stop_token_id = id;
  if (!(is_eos || is_stop) || request->include_stop_string) {
    if (!detokenizer_feed_whole(&seq->detokenizer, id, text))
      detokenizer_feed_to(&seq->detokenizer, id, may_stop, engine->text, text);
  }
  if (is_eos || is_stop) return SEQUENCE_FINISHED_STOPPED;
  bool complete = false, is_plain = is_terse || group->is_plain;
  if (!is_plain && request->grammar != NULL)
    *error_code = MIN(constrain_accept(engine, seq, &complete), 0);
  if (text->stop_index >= 0) {
    seq->stop_string = text->stop_index;
    return SEQUENCE_FINISHED_STOPPED;
  }
  bool is_late = !is_plain && seq->masks.late;
  return is_late ? SEQUENCE_RUNNING : status_after(engine, seq, complete);
}

sequence_status_t engine_append(engine_t *engine, sequence_t *seq, int32_t id, detokenized_t *text,
                                int *error_code) {
  return append(engine, seq, id, seq->group->is_terse, text, error_code);
}

static event_t result_event(const engine_t *engine, const sample_row_t *row, const sequence_t *seq,
                            int32_t num_logprobs) {
  const sample_result_t *result = row->result;
  return (event_t){
      .request = seq->group->request,
      .choice = seq->index,
      .token_id = result->id,
      .has_logprob = num_logprobs >= 0,
      .logprob = result->logprob,
      .rank = result->rank,
      .num_top = num_logprobs >= 0 ? result->num_top : 0,
      .top = result->top,
      .top_lent = scores_are_many(engine, row->num_top),
      .stop_token_id = -1,
      .stop_string = -1,
  };
}

void engine_first_token(const engine_t *engine, group_t *group, uint64_t now_ns) {
  sequence_t *first = &group->sequence;
  if (!group_is_lead(group) || first->first_token_ns != 0) return;
  first->first_token_ns = now_ns;
  scheduler_note_first(engine->scheduler, group);
  trace_add(engine->trace, TRACE_FIRST_TOKEN, group->request, first->num_prompt_tokens + 1, 0);
  begin_choices(engine, group);
}

/* A token was appended. */
static void count_token(engine_t *engine, const sequence_t *seq, uint64_t now_ns) {
  if (seq->num_output_tokens == 1) engine_first_token(engine, seq->group, now_ns);
  engine->stats.generation_tokens++;
}

/* The event of a token of a terse group. */
static void emit_text(const engine_t *engine, const sequence_t *seq, int32_t id,
                      const detokenized_t *text) {
  token_text_t *token = mailbox_emit_text(engine->mailbox, text->text, (uint32_t)text->length);
  token->request = seq->group->request;
  token->token_id = id;
  token->position = seq->num_output_tokens - 1;
  token->num_cached_tokens = seq->num_cached_tokens;
  token->num_floor_tokens = seq->num_floor_tokens;
}

/* Appends one sampled token, checks for a stop, emits the event. Returns the next status. */
static sequence_status_t commit_token(engine_t *engine, sequence_t *seq, const sample_row_t *row,
                                      int *error_code, uint64_t now_ns) {
  const group_t *group = seq->group;
  detokenized_t text;
  sequence_status_t status = engine_append(engine, seq, row->result->id, &text, error_code);
  count_token(engine, seq, now_ns);
  if (group->is_terse) {
    lane_token(engine->lane, row->result, false);
    emit_text(engine, seq, row->result->id, &text);
    return status;
  }
  const sampling_params_t *params = &group->request->params;
  if (!params_collect(params)) lane_token(engine->lane, row->result, params->num_logprobs >= 0);
  event_t event = result_event(engine, row, seq, params->num_logprobs);
  event.kind = EVENT_TOKEN;
  event.position = seq->num_output_tokens - 1;
  event.num_cached_tokens = group->siblings.lead->sequence.num_cached_tokens;
  event.num_floor_tokens = group->siblings.lead->sequence.num_floor_tokens;
  event.text = text.text;
  event.text_length = (uint32_t)text.length;
  if (row->num_top >= 0) seq->cumulative_logprob += row->result->logprob;
  if (params_collect(params)) {
    choices_keep_token(seq, &event);
  } else {
    mailbox_emit(engine->mailbox, &event);
  }
  return status;
}

static void commit_score(engine_t *engine, sequence_t *seq, const sample_row_t *row) {
  event_t event = result_event(engine, row, seq, seq->group->request->params.num_prompt_logprobs);
  event.kind = EVENT_PROMPT_LOGPROB;
  event.position = ++seq->num_scored;
  lane_score(engine->lane, &event);
  mailbox_emit(engine->mailbox, &event);
}

static void count_prefill(engine_t *engine, const plan_entry_t *entry) {
  sequence_t *seq = entry->sequence;
  if (entry->num_computed < seq->num_prompt_tokens &&
      entry->num_computed + entry->num_tokens >= seq->num_prompt_tokens &&
      seq->group->num_preemptions == 0 && group_is_lead(seq->group)) {
    engine->stats.prompt_tokens += (uint64_t)seq->num_prompt_tokens;
    engine->stats.prompt_tokens_cached += (uint64_t)seq->num_cached_tokens;
  }
}

/* The selected rows [first, last) of a step that belong to one plan entry. */
typedef struct row_range {
  int32_t first, last;
} row_range_t;

static int first_error(const step_t *step, row_range_t rows) {
  for (int32_t i = rows.first; i < rows.last; i++) {
    if (step->sample_rows[i].result->status) return step->sample_rows[i].result->status;
  }
  return 0;
}

/* The error by which the rows end their request, or 0. A draw that had no id left is none where the
 * constraint lets the text end, nor for one of several beams. */
static int judge_rows(const engine_t *engine, const step_t *step, const plan_entry_t *entry,
                      row_range_t rows) {
  const sequence_t *seq = entry->sequence;
  int code = entry->late ? seq->group->masks.code : 0;
  if (first_error(step, rows)) code = first_error(step, rows);
  if (code != ERR_NO_CHOICE || entry->late) return code;
  bool is_beam = seq->group->request->params.beam_width > 0;
  return is_beam || constrain_may_end(engine, seq) ? 0 : code;
}

/* How many of the entry's draft tokens equal the tokens that were drawn at their positions. */
static int32_t count_accepted(const step_t *step, const plan_entry_t *entry, row_range_t rows) {
  const sequence_t *seq = entry->sequence;
  const int32_t *drafts = &seq->tokens[sequence_num_tokens(seq)];
  int32_t accepted = 0;
  while (accepted < entry->num_drafts) {
    const sample_result_t *result = step->sample_rows[rows.first + accepted].result;
    if (result->status || result->id != drafts[accepted]) break;
    accepted++;
  }
  return accepted;
}

/* Those that a grammar leaves no choice for say nothing of the others. What it has cut was drafted
 * in vain, unless it has put only such ones in its place. */
static void learn_drafts(const engine_t *engine, const plan_entry_t *entry, int32_t accepted) {
  sequence_t *seq = entry->sequence;
  int32_t kept = entry->num_drafts - constrain_certain(engine, seq, entry->num_drafts);
  bool any_guess = kept > 0 || entry->num_drafts == 0;
  int32_t guessed = any_guess ? kept + entry->num_cut : 0;
  int32_t right = accepted - constrain_certain(engine, seq, accepted);
  if (guessed > 0) draft_learn(&seq->drafts.history, guessed, right);
}

/* Keeps the rows up to and with the first wrong draft token. The token drawn there is right; the
 * rows after it were computed for another text. A row that failed behind draft tokens is not kept,
 * and fails again without them if the tokens before it have not ended the text. */
static void verify_drafts(engine_t *engine, const step_t *step, plan_entry_t *entry,
                          row_range_t *rows) {
  if (entry->late || entry->num_drafts + entry->num_cut == 0) return;
  int32_t accepted = count_accepted(step, entry, *rows);
  learn_drafts(engine, entry, accepted);
  if (entry->num_drafts == 0) return;
  if (accepted > 0 && step->sample_rows[rows->first + accepted].result->status) accepted--;
  scheduler_reject(entry, entry->num_drafts - accepted);
  rows->last = rows->first + accepted + 1;
  engine->stats.drafts++;
  engine->stats.draft_tokens += (uint64_t)entry->num_drafts;
  engine->stats.draft_tokens_accepted += (uint64_t)accepted;
  _Static_assert((int)DRAFT_TOKENS_MAX <= (int)STATS_DRAFTS_MAX,
                 "every place among the drafts is counted");
  for (int32_t i = 0; i < accepted; i++) engine->stats.draft_accepted_at[i]++;
}

void engine_append_late(engine_t *engine, sequence_t *seq, bool complete, uint64_t now_ns) {
  sequence_status_t status = status_after(engine, seq, complete);
  if (seq->group->request->params.beam_width > 0) {
    beam_append_late(engine, seq, status, now_ns);
  } else if (is_complete(status)) {
    finish_choice(engine, seq, status, now_ns);
  }
}

/* Commits one drawn token of one sequence and finishes what it ends. Where none was left to draw
 * (see judge_rows) the text ends. */
static void commit_draw(engine_t *engine, sequence_t *seq, const sample_row_t *row,
                        uint64_t now_ns) {
  int error_code = 0;
  if (row->result->status) {
    seq->ended_by_grammar = true;
    finish_choice(engine, seq, SEQUENCE_FINISHED_STOPPED, now_ns);
    return;
  }
  group_t *group = seq->group;
  sequence_status_t status = commit_token(engine, seq, row, &error_code, now_ns);
  if (error_code) engine_finish(engine, group, SEQUENCE_FINISHED_ABORTED, error_code, now_ns);
  if (!error_code && is_complete(status)) finish_choice(engine, seq, status, now_ns);
}

/* Commits the scores and tokens of one entry that did not fail. */
static void commit_rows(engine_t *engine, const step_t *step, const plan_entry_t *entry,
                        row_range_t rows, uint64_t now_ns) {
  sequence_t *seq = entry->sequence;
  const group_t *group = seq->group;
  bool beams = group_is_search(group);
  /* An error ends the group, and a stop may end the sequence before its last draft token. */
  for (int32_t i = rows.first; i < rows.last && group->queue != NULL && sequence_is_live(seq);
       i++) {
    const sample_row_t *row = &step->sample_rows[i];
    if (row->score_id >= 0) {
      commit_score(engine, seq, row);
    } else if (beams) {
      beam_collect(engine, seq, row);
    } else {
      if (i > rows.first && entry->num_drafts > 0 && group->request->grammar != NULL)
        constrain_note_draft(engine, seq, i - rows.first - 1);
      commit_draw(engine, seq, row, now_ns);
    }
  }
}

/* Drops what an entry has drawn whose mask was late. The token is computed again when the mask is
 * ready; scores of the prompt are kept. */
static void drop_late(engine_t *engine, const step_t *step, plan_entry_t *entry,
                      row_range_t *rows) {
  entry->do_sample = false;
  scheduler_reject(entry, 1 + entry->num_drafts);
  engine->stats.grammar_masks_late++;
  while (rows->last > rows->first && step->sample_rows[rows->last - 1].score_id < 0) rows->last--;
}

/* Returns false if the request had to make room for another before its first step was committed. */
static bool begin(engine_t *engine, group_t *lead) {
  if (lead->was_admitted) return true;
  const bool may = share_begin(engine->share, replicas_share_slot(engine, lead->request->slot));
  if (!lane_may_begin(engine->lane, lead->request, may)) return false;
  leave_queue(engine, lead);
  return true;
}

/* Pools the rows of an entry. */
static void commit_pooled(engine_t *engine, const step_t *step, const plan_entry_t *entry,
                          row_range_t rows, uint64_t now_ns) {
  sequence_t *seq = entry->sequence;
  int error_code = pooling_commit(engine, step, entry, rows.first, rows.last);
  count_prefill(engine, entry);
  if (error_code) {
    engine_finish(engine, seq->group, SEQUENCE_FINISHED_ABORTED, error_code, now_ns);
    return;
  }
  scheduler_publish(engine->scheduler, entry);
  if (entry->num_computed + entry->num_tokens < seq->num_prompt_tokens) return;
  pooling_finish(engine, seq);
  step->pooled[engine->num_pooled++] = seq;
}

/* The vectors of the prompts that the step completed, and their ends. */
static void finish_pooled(engine_t *engine, const step_t *step, uint64_t now_ns) {
  pooling_run_post_layers(engine, step, engine->num_pooled);
  for (int32_t i = 0; i < engine->num_pooled; i++)
    engine_finish(engine, step->pooled[i]->group, SEQUENCE_FINISHED_STOPPED, 0, now_ns);
}

static void commit_entry(engine_t *engine, const step_t *step, plan_entry_t *entry,
                         row_range_t rows, uint64_t now_ns) {
  sequence_t *seq = entry->sequence;
  atomic_store_explicit(&engine->activity.request_id, seq->group->id, memory_order_relaxed);
  scheduler_complete(entry);
  if (!begin(engine, seq->group->siblings.lead)) {
    engine_finish(engine, seq->group, SEQUENCE_FINISHED_ABORTED, ERR_QUEUE_FULL, now_ns);
    return;
  }
  if (engine->embeds) {
    commit_pooled(engine, step, entry, rows, now_ns);
    return;
  }
  if (entry->late) drop_late(engine, step, entry, &rows);
  verify_drafts(engine, step, entry, &rows);
  if (entry->num_drafts > 0 && !entry->late)
    states_pick(engine->scheduler, entry, entry->num_tokens);
  int error_code = judge_rows(engine, step, entry, rows);
  count_prefill(engine, entry);
  if (error_code) {
    engine_finish(engine, seq->group, SEQUENCE_FINISHED_ABORTED, error_code, now_ns);
    return;
  }
  scheduler_publish(engine->scheduler, entry);
  bool computed = entry->num_computed + entry->num_tokens == seq->num_prompt_tokens;
  bool ends = seq->group->max_tokens == 0 && computed;
  commit_rows(engine, step, entry, rows, now_ns);
  if (ends) finish_choice(engine, seq, SEQUENCE_FINISHED_LENGTH_CAPPED, now_ns);
}

/* Whether the entry draws the next token of a terse group and nothing else, as most do. */
static bool is_next_token(const step_t *step, const plan_entry_t *entry, row_range_t rows) {
  const sequence_t *seq = entry->sequence;
  return seq->group->is_terse && seq->group->was_admitted && entry->num_tokens == 1 &&
         entry->do_sample && entry->num_computed >= seq->num_prompt_tokens &&
         entry->num_drafts + entry->num_cut == 0 && rows.last == rows.first + 1 &&
         step->sample_results[rows.first].status == 0;
}

/* What commit_entry comes to for such an entry. */
static void commit_next_token(engine_t *engine, const plan_entry_t *entry,
                              const sample_result_t *result, uint64_t now_ns) {
  const int32_t id = result->id;
  sequence_t *seq = entry->sequence;
  int error_code = 0; /* none comes: there is no grammar */
  detokenized_t text;
  atomic_store_explicit(&engine->activity.request_id, seq->group->id, memory_order_relaxed);
  scheduler_complete(entry);
  scheduler_publish(engine->scheduler, entry);
  sequence_status_t status = append(engine, seq, id, true, &text, &error_code);
  count_token(engine, seq, now_ns);
  if (engine->lane != NULL) lane_token(engine->lane, result, false); /* most have none: no call */
  emit_text(engine, seq, id, &text);
  if (is_complete(status)) engine_finish(engine, seq->group, status, 0, now_ns);
}

/* Before entry i is committed: where a later one appends its id. Its group is there by now. */
static void prefetch_ids(const plan_t *plan, int32_t i) {
  if (i + PREFETCH_NEAR >= plan->num_entries) return;
  const plan_entry_t *entry = &plan->entries[i + PREFETCH_NEAR];
  const int32_t *ids = entry->sequence->tokens;
  if (ids != NULL) __builtin_prefetch(&ids[entry->num_computed + 1]);
}

void engine_commit(engine_t *engine, const step_t *step, uint64_t now_ns) {
  row_range_t rows = {0, 0};
  engine->num_pooled = 0;
  lane_begin_commit(engine->lane);
  for (int32_t r = 0; r < step->plan.num_entries; r++) {
    plan_entry_t *entry = &step->plan.entries[r];
    prefetch_entry(&step->plan, r, GROUP_COMMITTED);
    prefetch_ids(&step->plan, r);
    rows.first = rows.last;
    while (rows.last < step->batch->num_selected && step->batch->selected_row[rows.last] == r) {
      rows.last++;
    }
    /* a sequence that ended while this step was in flight gets no more tokens */
    entry->committed = plan_entry_live(entry);
    if (engine->lane != NULL) lane_entry(engine->lane, entry->late);
    if (entry->committed) {
      if (is_next_token(step, entry, rows))
        commit_next_token(engine, entry, &step->sample_results[rows.first], now_ns);
      else
        commit_entry(engine, step, entry, rows, now_ns);
    }
    if (engine->beam_work.num_beams > 0) beam_commit(engine, &step->plan, r, now_ns);
    scheduler_settle(engine->scheduler, entry);
  }
  finish_pooled(engine, step, now_ns);
  lane_end_commit(engine->lane);
}
