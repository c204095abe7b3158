/* commit.c: stage 8 of 9, sampled ids -> output tokens, text, stop decisions, events.
 *
 * Engine thread; allocates nothing. A row that failed ends its own sequence and no other. Full
 * blocks go to the prefix cache before a finished sequence releases them. Next: server/sse.c,
 * through the mailbox.
 */
#include "engine/internal.h"

#include <string.h>

static finish_reason_t finish_reason(sequence_status_t status, int error_code) {
  if (error_code) return FINISH_ERROR;
  if (status == SEQUENCE_FINISHED_STOPPED) return FINISH_STOP;
  if (status == SEQUENCE_FINISHED_ABORTED) return FINISH_ABORT;
  return FINISH_LENGTH;
}

static void count_finish(engine_t *e, finish_reason_t reason) {
  e->stats.finished_stop += reason == FINISH_STOP;
  e->stats.finished_length += reason == FINISH_LENGTH;
  e->stats.finished_abort += reason == FINISH_ABORT;
  e->stats.finished_error += reason == FINISH_ERROR;
  e->rate_window_count++;
}

void engine_finish(engine_t *e, group_t *group, sequence_status_t status, int error_code,
                   uint64_t now_ns) {
  sequence_t *q = &group->sequence;
  detokenized_t rest = {.text = "", .length = 0, .stop_index = -1};
  bool complete = status == SEQUENCE_FINISHED_STOPPED || status == SEQUENCE_FINISHED_LENGTH_CAPPED;
  if (complete && q->stop_string < 0 && q->num_output_tokens > 0) {
    rest = detokenizer_finish(&q->detokenizer, e->text);
  }
  if (!group->was_admitted) {
    atomic_fetch_sub(&e->queued_requests, 1);
    atomic_fetch_sub(&e->queued_tokens, q->num_prompt_tokens);
  }
  event_t event = {
      .request = group->request,
      .kind = EVENT_DONE,
      .token_id = -1,
      .text = rest.text,
      .text_length = (uint32_t)rest.length,
      .finish = finish_reason(status, error_code),
      .error_code = error_code,
      .stop_token_id = q->stop_token_id,
      .stop_string = q->stop_string,
      .num_output_tokens = q->num_output_tokens,
      .num_cached_tokens = q->num_cached_tokens,
      .first_scheduled_ns = q->first_scheduled_ns,
      .first_token_ns = q->first_token_ns,
      .finished_ns = now_ns,
  };
  count_finish(e, event.finish);
  scheduler_finish(e->scheduler, group, status);
  group->request->engine_sequence = NULL;
  mailbox_emit(e->mailbox, &event);
  group->free_next = e->free_groups;
  e->free_groups = group;
  e->num_live--;
}

static bool is_stop_id(const engine_t *e, const sampling_params_t *params, int32_t id) {
  for (int32_t i = 0; i < params->num_stop_token_ids; i++) {
    if (params->stop_token_ids[i] == id) return true;
  }
  if (params->ignore_eos) return false;
  for (int32_t i = 0; i < e->info.num_stop_ids; i++) {
    if (e->info.stop_ids[i] == id) return true;
  }
  return false;
}

/* The stop check in its fixed order: primary EOS, stop ids, stop strings, length. Feeds the text.
 */
static sequence_status_t append_token(engine_t *e, sequence_t *q, int32_t id, detokenized_t *text) {
  const request_t *request = q->group->request;
  const sampling_params_t *params = &request->params;
  q->tokens[q->num_prompt_tokens + q->num_output_tokens++] = id;
  bool may_stop = q->num_output_tokens >= params->min_tokens;
  bool is_eos = may_stop && !params->ignore_eos && id == e->info.primary_eos;
  bool is_stop = may_stop && !is_eos && is_stop_id(e, params, id);
  *text = (detokenized_t){.text = "", .length = 0, .stop_index = -1};
  if (is_stop) q->stop_token_id = id;
  if (!(is_eos || is_stop) || request->include_stop_string) {
    *text = detokenizer_feed(&q->detokenizer, id, may_stop, e->text);
  }
  if (is_eos || is_stop) return SEQUENCE_FINISHED_STOPPED;
  if (text->stop_index >= 0) {
    q->stop_string = text->stop_index;
    return SEQUENCE_FINISHED_STOPPED;
  }
  if (q->num_output_tokens >= params->max_tokens ||
      sequence_num_tokens(q) >= e->scheduler->options.max_model_len) {
    return SEQUENCE_FINISHED_LENGTH_CAPPED;
  }
  return SEQUENCE_RUNNING;
}

static event_t result_event(const sample_row_t *row, request_t *request) {
  const sample_result_t *result = row->result;
  return (event_t){
      .request = request,
      .token_id = result->id,
      .has_logprob = row->num_top >= 0,
      .logprob = result->logprob,
      .rank = result->rank,
      .num_top = row->num_top >= 0 ? result->num_top : 0,
      .top = result->top,
      .stop_token_id = -1,
      .stop_string = -1,
  };
}

/* One sampled token of a sequence: append, stop check, event. Returns the status that follows. */
static sequence_status_t commit_token(engine_t *e, sequence_t *q, const sample_row_t *row,
                                      uint64_t now_ns) {
  event_t event = result_event(row, q->group->request);
  detokenized_t text;
  sequence_status_t status = append_token(e, q, row->result->id, &text);
  event.kind = EVENT_TOKEN;
  event.position = q->num_output_tokens - 1;
  event.text = text.text;
  event.text_length = (uint32_t)text.length;
  if (!q->first_token_ns) q->first_token_ns = now_ns;
  q->last_token_ns = now_ns;
  e->stats.generation_tokens++;
  mailbox_emit(e->mailbox, &event);
  return status;
}

static void commit_score(engine_t *e, sequence_t *q, const sample_row_t *row) {
  event_t event = result_event(row, q->group->request);
  event.kind = EVENT_PROMPT_LOGPROB;
  event.position = ++q->num_scored;
  mailbox_emit(e->mailbox, &event);
}

static void count_prefill(engine_t *e, sequence_t *q, int32_t computed_before) {
  group_t *group = q->group;
  if (!group->was_admitted) {
    group->was_admitted = true;
    atomic_fetch_sub(&e->queued_requests, 1);
    atomic_fetch_sub(&e->queued_tokens, q->num_prompt_tokens);
  }
  bool first_prefill = group->num_preemptions == 0;
  if (first_prefill && computed_before < q->num_prompt_tokens &&
      q->num_computed_tokens >= q->num_prompt_tokens) {
    e->stats.prompt_tokens += (uint64_t)q->num_prompt_tokens;
    e->stats.prompt_tokens_cached += (uint64_t)q->num_cached_tokens;
  }
}

int engine_commit(engine_t *e, uint64_t now_ns) {
  const plan_t *plan = &e->scheduler->plan;
  int32_t index = 0;
  for (int32_t r = 0; r < plan->num_entries; r++) {
    sequence_t *q = plan->entries[r].sequence;
    sequence_status_t status = SEQUENCE_RUNNING;
    int error_code = q->group->request->fault ? ERR_INTERNAL : 0;
    count_prefill(e, q, plan->entries[r].num_computed);
    for (; index < e->batch->num_selected && e->batch->selected_row[index] == r; index++) {
      const sample_row_t *row = &e->sample_rows[index];
      if (!error_code) error_code = row->result->status;
      if (error_code) continue;
      if (row->score_id >= 0) {
        commit_score(e, q, row);
      } else {
        status = commit_token(e, q, row, now_ns);
      }
    }
    if (error_code) {
      engine_finish(e, q->group, SEQUENCE_FINISHED_ABORTED, error_code, now_ns);
      continue;
    }
    scheduler_publish(e->scheduler, q);
    if (sequence_scores_only(q) && q->num_computed_tokens == q->num_prompt_tokens) {
      status = SEQUENCE_FINISHED_LENGTH_CAPPED;
    }
    if (sequence_is_finished(&(sequence_t){.status = status})) {
      engine_finish(e, q->group, status, 0, now_ns);
    }
  }
  return index;
}
