/* events.c: the engine's events become text, chunks and responses.
 *
 * Between stages 8 and 9: events of the mailbox -> what sse.c prints. Loop thread, once per wake of
 * the engine. A chunk is sent at the end of the loop iteration, or when the next token of the same
 * choice comes in the same iteration. So the last token of a choice and its finish_reason are in
 * one chunk.
 */
#include "engine/base/check.h"
#include "server/completion/chat.h"

#include "engine/base/clock.h"
#include "server/completion/dialect.h"
#include "server/completion/lora_table.h"
#include "server/completion/memory.h"
#include "server/completion/stage_log.h"
#include "server/observe/metrics.h"

#include <string.h>
#include <time.h>

/* If there is no first token after this time, pings begin. The first ping sends the status 200;
 * before it, a queue timeout can still be answered with its own status. */
static const double PING_START_S = 30;

static token_style_t style_of(const completion_t *completion) {
  return (token_style_t){completion->tokenizer, completion->params.tokens_as_ids,
                         completion->params.skip_special_tokens};
}

static logprob_entry_t entry_of(const event_t *event, int64_t num_best, int32_t num_asked) {
  return (logprob_entry_t){.id = event->token_id,
                           .has_logprob = event->has_logprob,
                           .logprob = event->logprob,
                           .rank = event->rank,
                           .num_best = num_best > 0 ? (int32_t)num_best : 0,
                           .num_asked = num_asked,
                           .num_top = event->num_top,
                           .top = event->top};
}

/* The place of a position whose alternatives are printed later; NULL = they are printed now. */
static score_row_t *take_row(input_t *input, int64_t num_best) {
  if (num_best <= SAMPLE_TOP_MAX) return NULL;
  CHECK_LT(input->scores.count, input->scores.max);
  score_row_t *row = &input->scores.rows[input->scores.count++];
  row->seen = &input->scores.seen;
  return row;
}

static void fail_memory(completion_t *completion) {
  inferd_error_t error;
  (void)ledger_refuse(&completion->output, &error);
  completion_fail(completion, &error);
  if (!completion->replying) completion_free_output(completion); /* else its end is being sent */
}

/* Adds the score of a prompt token to the echoed logprobs, to prompt_logprobs, or to both. */
static void on_prompt_logprob(input_t *input, const event_t *event) {
  const completion_t *completion = input->completion;
  const params_t *params = &completion->params;
  token_style_t style = style_of(completion);
  int32_t asked = input->request.params.num_prompt_logprobs;
  int32_t id = input->request.prompt_ids[event->position];
  if (params->prompt_logprobs >= 0) {
    logprob_entry_t entry = entry_of(event, params->prompt_logprobs, asked);
    entry.id = id;
    buffer_char(&input->prompt_logprobs, ',');
    prompt_logprob_add(&input->prompt_logprobs, &input->prompt_gaps, &style, &entry,
                       take_row(input, params->prompt_logprobs));
  }
  if (params_echoes_scores(params)) {
    logprob_entry_t entry = entry_of(event, params->logprobs, asked);
    entry.id = id;
    entry.offset = input->offset.code_points;
    logprob_text_add(&input->echo_logprobs, &style, &entry, take_row(input, params->logprobs));
    text_offset_prompt(&input->offset, &style, id, input->echo_text.data, input->echo_text.length);
  }
  if (!completion_charge_input(input)) fail_memory(input->completion);
}

/* Before the first token of a choice: the text begins behind an echoed prompt. The tokens of the
 * prompt may not cover all of its text; the rest counts here. */
static void begin_offset(choice_t *choice) {
  input_t *input = choice->input;
  size_t walked = input->offset.walked;
  if (walked < input->echo_text.length) {
    text_offset_bytes(&input->offset, input->echo_text.data + walked,
                      input->echo_text.length - walked);
    input->offset.walked = input->echo_text.length;
  }
  choice->offset = input->offset;
}

static void mark_dirty(completions_t *live, choice_t *choice) {
  if (choice->dirty) return;
  choice->dirty = true;
  choice->next_dirty = live->dirty;
  live->dirty = choice;
}

static bool chunk_is_full(const choice_t *choice) {
  int64_t interval = choice->sent_any ? choice->input->completion->params.stream_interval : 1;
  return choice->unsent_tokens >= interval;
}

static void observe_token(completions_t *live, choice_t *choice) {
  metrics_t *metrics = live->server->metrics;
  if (choice->first_token_ns == 0) {
    choice->first_token_ns = live->now_ns;
    metrics_first_token(metrics, live->now_ns - choice->input->request.arrival_ns);
  } else {
    metrics_inter_token(metrics, live->now_ns - choice->last_token_ns);
  }
  choice->last_token_ns = live->now_ns;
}

static void add_text(choice_t *choice, const event_t *event) {
  if (choice->input->completion->params.is_chat) {
    chat_add_text(choice, event->text, event->text_length);
  } else {
    buffer_append(&choice->text, event->text, event->text_length);
  }
}

/* The first token of any choice. */
static void note_begun(completions_t *live, completion_t *completion) {
  if (completion->begun) return;
  completion->begun = true;
  if (completion->lora != NULL) lora_begin(live, completion->lora);
}

/* The prompt of an input that the engine has begun, once, in the use of its key. */
static void count_prompt(input_t *input, const event_t *event) {
  const completion_t *completion = input->completion;
  int64_t tokens = input_prompt_tokens(input);
  if (input->prompt_counted) return;
  input->prompt_counted = true;
  metrics_key_tokens(completion->server->metrics, completion->key, tokens, 0);
  tally_reserve(completion->tally, -tokens);
  tally_add(completion->tally, (int64_t)time(NULL), 0, tokens,
            MAX(MIN(event->num_cached_tokens, tokens - 1), 0), 0);
}

static void count_generated(const completion_t *completion, int64_t tokens) {
  metrics_key_tokens(completion->server->metrics, completion->key, 0, tokens);
  tally_add(completion->tally, (int64_t)time(NULL), 0, 0, 0, tokens);
}

static void on_token(completions_t *live, choice_t *choice, const event_t *event) {
  completion_t *completion = choice->input->completion;
  const params_t *params = &completion->params;
  observe_token(live, choice);
  note_begun(live, completion);
  count_prompt(choice->input, event);
  count_generated(completion, 1);
  if (params->stream && choice->unsent_tokens > 0 && chunk_is_full(choice)) {
    completion->dialect->chunk(choice, false);
  }
  choice->num_tokens++;
  api_key_take_tokens(completion->key, 1, choice->last_token_ns);
  if (completion->exchange == NULL) return;
  choice->num_reasoning_tokens += chat_is_reasoning(choice);
  if (choice->num_tokens == 1) {
    choice->input->num_cached_tokens = event->num_cached_tokens;
    choice->input->num_floor_tokens = event->num_floor_tokens;
    begin_offset(choice);
  }
  if (params->logprobs != ABSENT) {
    token_style_t style = style_of(completion);
    score_row_t *row = take_row(choice->input, params->logprobs);
    int32_t asked = choice->input->request.params.num_logprobs;
    logprob_entry_t entry = entry_of(event, params->logprobs, asked);
    entry.offset = text_offset_before(&choice->offset, &style, event->token_id);
    if (params->is_chat) {
      logprob_text_add_chat(&choice->logprobs, &style, &entry, row);
    } else {
      logprob_text_add(&choice->logprobs, &style, &entry, row);
    }
    text_offset_token(&choice->offset, &style, event->token_id);
  }
  if (completion->dialect->drawn != NULL) completion->dialect->drawn(choice, event);
  add_text(choice, event);
  if (params->return_token_ids) {
    if (choice->token_ids.length > 0) buffer_char(&choice->token_ids, ',');
    buffer_int(&choice->token_ids, event->token_id);
  }
  if (!completion_charge_choice(choice)) {
    fail_memory(completion);
    return;
  }
  if (!params->stream) return;
  choice->unsent_tokens++;
  mark_dirty(live, choice);
}

/* Ends the answer: every choice is complete and none has failed. */
static void complete(completion_t *completion) {
  const dialect_t *dialect = completion->dialect;
  if (dialect->settle != NULL && dialect->settle(completion)) return;
  finish_reason_t finish = completion->choices[0].finish;
  if (completion->params.stream) {
    dialect->done(completion);
    if (completion->exchange == NULL) return; /* the client disconnected during the last write */
    completion_count_end(completion, 200, finish);
    exchange_end(completion_take_exchange(completion));
    return;
  }
  if (!dialect->response(completion)) {
    inferd_error_t error;
    error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
    completion_fail(completion, &error);
    return;
  }
  completion_count_end(completion, 200, finish);
  completion_reply(completion);
}

void completion_settled(completion_t *completion) {
  if (completion->exchange != NULL) complete(completion);
  completion_release(completion);
}

static void fail_done(completion_t *completion, const event_t *event) {
  inferd_error_t error;
  int code = event->finish == FINISH_ERROR ? event->error_code : ERR_INTERNAL;
  if (event->finish == FINISH_ABORT && completion->server->phase >= SERVER_DRAINING)
    code = ERR_DRAINING;
  const char *message = "The request failed inside the engine. Other requests are not affected.";
  if (code == ERR_NO_CHOICE)
    message =
        "No token may come next, and the text may not end: the constraint on the output, "
        "'stop_token_ids', 'allowed_token_ids', 'bad_words' and 'min_tokens' together leave none.";
  if (code == ERR_QUEUE_TIMEOUT) message = "The request waited too long in the queue.";
  if (code == ERR_QUEUE_FULL)
    message =
        "The server is busy. Of all clients this one had most requests waiting, and the newest "
        "of them made room for another client.";
  if (code == ERR_OVERLOADED)
    message = "The model sleeps, and the device has no memory for it now. The log says more.";
  if (code == ERR_DEVICE_FAILED) message = "The device has failed.";
  if (code == ERR_DRAINING) message = "The server is shutting down.";
  error_set(&error, code, NULL, "%s", message);
  completion_fail(completion, &error);
}

/* Observes the times of a choice. The choices of a prompt share the prefill: it counts for the
 * first. */
static void observe_end(const choice_t *choice, const event_t *event) {
  const input_t *input = choice->input;
  int32_t prompt_tokens = input_prompt_tokens(input);
  sequence_times_t times = {.finish = event->finish,
                            .arrival_ns = input->request.arrival_ns,
                            .queued_ns = input->completion->queued_ns,
                            .scheduled_ns = event->first_scheduled_ns,
                            .first_token_ns = choice->num_tokens > 0 ? event->first_token_ns : 0,
                            .last_token_ns = event->finished_ns,
                            .finished_ns = event->finished_ns,
                            .prompt_tokens = prompt_tokens,
                            .cached_tokens =
                                choice == input->choices ? event->num_cached_tokens : prompt_tokens,
                            .generated_tokens = choice->num_tokens,
                            .max_tokens = input->request.params.max_tokens};
  metrics_sequence_done(input->completion->server->metrics, &times);
}

/* Ends a choice: it is complete, or its whole request has ended. */
static void on_choice_done(choice_t *choice, const event_t *event) {
  completion_t *completion = choice->input->completion;
  bool failed = event->finish == FINISH_ERROR || event->finish == FINISH_ABORT;
  choice->done = true;
  choice->input->num_cached_tokens = event->num_cached_tokens;
  choice->input->num_floor_tokens = event->num_floor_tokens;
  choice->finish = event->finish;
  choice->stop_token_id = event->stop_token_id;
  choice->stop_string = event->stop_string;
  if (!failed || !params_multiple(&choice->input->request.params)) {
    int32_t told = choice->num_tokens; /* none of them where beams end */
    choice->num_tokens = event->num_output_tokens;
    count_generated(completion, MAX(choice->num_tokens - told, 0));
  }
  if (event->first_token_ns != 0) { /* the times of the engine are exact */
    choice->first_token_ns = event->first_token_ns;
    choice->last_token_ns = event->finished_ns;
  }
  observe_end(choice, event);
  if (completion->exchange == NULL || failed) return;
  add_text(choice, event);
  chat_end_text(choice);
  if (!completion_charge_choice(choice)) {
    fail_memory(completion);
    return;
  }
  if (completion->params.stream) completion->dialect->chunk(choice, true);
}

/* What a request that never began has not used goes back to the rate of its key. */
static void count_usage(input_t *input, const event_t *event) {
  if (event->first_scheduled_ns == 0) {
    completion_give_back(input);
  } else {
    count_prompt(input, event);
  }
}

/* ---- further requests of a completion ---- */

static void join_again(completion_t *completion) {
  completions_t *live = completion->server->live;
  if (completion->goes_again) return;
  completion->goes_again = true;
  completion->next_again = live->again;
  live->again = completion;
}

void input_submit(input_t *input) {
  input->waits = true;
  join_again(input->completion);
}

/* Whether the input goes on by its dialect: see `again`. */
static bool goes_on(input_t *input) {
  const completion_t *completion = input->completion;
  if (completion->exchange == NULL || completion->dialect->again == NULL) return false;
  if (!completion->dialect->again(input)) return false;
  for (int32_t i = 0; i < input->num_choices; i++) {
    choice_t *choice = &input->choices[i];
    buffer_clear(&choice->text);
    choice->num_tokens = choice->unsent_tokens = 0;
  }
  return true;
}

static bool is_lack(int code) {
  return code == ERR_QUEUE_FULL || code == ERR_RATE_LIMITED || code == ERR_QUEUE_TIMEOUT;
}

/* Of an answer that has begun, what found no room in the queue, or lost it, is submitted again when
 * another of its requests has ended: the work before it was not for nothing. False: there is none,
 * or it is another error. */
static bool may_wait(const completion_t *completion, int code) {
  return is_lack(code) && completion->begun && completion->outstanding > 0 &&
         completion->exchange != NULL && completion->dialect->again != NULL;
}

/* The engine has not taken requests[count]. */
static void refuse_again(completion_t *completion, request_t *const *requests, int count,
                         const inferd_error_t *error) {
  for (int i = 0; i < count; i++) {
    input_t *input = requests[i]->owner;
    input->done = input->waits = true;
  }
  completion->lacks_room = may_wait(completion, error->code);
  if (!completion->lacks_room) completion_fail(completion, error);
}

/* Each waits from now on: its time in the queue and its place there are not those of the first. */
static void go_again(completions_t *live, completion_t *completion) {
  request_t *requests[EMBEDDING_INPUTS_MAX];
  int count = 0;
  inferd_error_t error;
  completion->goes_again = completion->lacks_room = false;
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    input_t *input = &completion->inputs[i];
    if (!input->waits) continue;
    input->waits = false;
    if (completion->exchange == NULL) continue;
    input->done = input->held_back = false;
    input->request.id = ++live->next_request_id;
    input->request.arrival_ns = clock_now_ns();
    requests[count++] = &input->request;
  }
  if (count > 0 && engine_submit(live->server->engine, requests, count, &error) != 0) {
    refuse_again(completion, requests, count, &error);
    return;
  }
  completion->outstanding += count;
  live->engine_requests += count;
  completion_release(completion);
}

void completions_submit(completions_t *live) {
  while (live->again != NULL) {
    completion_t *completion = live->again;
    live->again = completion->next_again;
    go_again(live, completion);
  }
}

static void on_done(completions_t *live, input_t *input, const event_t *event) {
  completion_t *completion = input->completion;
  bool failed = event->finish == FINISH_ERROR || event->finish == FINISH_ABORT;
  input->done = true;
  input->scheduled_ns = event->first_scheduled_ns;
  completion->outstanding--;
  live->engine_requests--;
  if (event->finish == FINISH_ERROR && may_wait(completion, event->error_code)) {
    input->waits = completion->lacks_room = true;
    return;
  }
  if (completion->lacks_room) join_again(completion);
  if (!failed && goes_on(input)) {
    count_usage(input, event);
    return;
  }
  for (int32_t i = 0; i < input->num_choices; i++) {
    if (!input->choices[i].done) on_choice_done(&input->choices[i], event);
  }
  count_usage(input, event);
  if (!failed && completion->exchange != NULL && completion->dialect->pooled != NULL)
    completion->dialect->pooled(input);
  if (failed && completion->exchange != NULL) fail_done(completion, event);
  const bool ends = completion->outstanding == 0 && !completion->goes_again;
  if (ends && completion->exchange != NULL) complete(completion);
  completion_release(completion);
}

static void on_event(void *context, const event_t *event) {
  completions_t *live = context;
  input_t *input = event->request->owner;
  CHECK_RANGE(event->choice, 0, input->num_choices);
  choice_t *choice = &input->choices[event->choice];
  switch (event->kind) {
  case EVENT_TOKEN: on_token(live, choice, event); break;
  case EVENT_PROMPT_LOGPROB:
    if (input->completion->exchange != NULL) on_prompt_logprob(input, event);
    break;
  case EVENT_CHOICE_DONE: on_choice_done(choice, event); break;
  case EVENT_DONE: on_done(live, input, event); break;
  }
}

void completions_drain_events(server_t *server) {
  completions_t *live = server->live;
  completions_enter(live);
  live->now_ns = clock_now_ns();
  engine_drain(server->engine, on_event, live);
  stage_log_engine(server);
  completions_submit(live);
  while (live->dirty != NULL) {
    choice_t *choice = live->dirty;
    live->dirty = choice->next_dirty;
    choice->dirty = false;
    if (!choice->done && choice->unsent_tokens > 0 && chunk_is_full(choice)) {
      choice->input->completion->dialect->chunk(choice, false);
    }
  }
  completions_leave(live);
}

void completions_tick(server_t *server, uint64_t now_ns) {
  completions_t *live = server->live;
  double interval = server->config->sse_ping_interval;
  stage_log_engine(server);
  if (interval <= 0) return;
  completions_enter(live);
  live->now_ns = now_ns;
  completion_t *next;
  for (completion_t *completion = live->first; completion != NULL; completion = next) {
    next = completion->next;
    if (!completion->admitted || !completion->params.stream || completion->exchange == NULL) {
      continue;
    }
    double wait = completion->streaming || interval > PING_START_S ? interval : PING_START_S;
    uint64_t since = completion->streaming ? completion->last_write_ns : completion->queued_ns;
    if (now_ns > since && (double)(now_ns - since) >= wait * 1e9)
      completion->dialect->ping(completion);
  }
  completions_leave(live);
}
