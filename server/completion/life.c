/* life.c: all completions of a server, and how each of them ends.
 *
 * Loop thread. A completion is freed when its exchange was answered or its client left, no job of
 * the pool works on it, and EVENT_DONE of every submitted request came back; never before.
 */
#include "engine/base/check.h"
#include "server/completion/chat.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/model/source/card.h"
#include "server/completion/dialect.h"
#include "server/completion/lora_table.h"
#include "server/completion/memory.h"
#include "server/observe/metrics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

enum { GRAMMAR_CACHE_BYTES = 64 << 20 };

/* ---- the set of all completions ---- */

int completions_new(server_t *server) {
  completions_t *live = calloc(1, sizeof *live);
  if (live == NULL) return ERR_NO_MEMORY;
  live->server = server;
  live->frame.flat = true;
  uv_mutex_init(&live->scratch_lock);
  server->live = live;
  if (getrandom(live->salt_key, sizeof live->salt_key, 0) != (ssize_t)sizeof live->salt_key ||
      model_names_set(live, &server->config->served_model_name, server->config->model) != 0 ||
      loras_new(live, server->config) != 0 ||
      grammar_cache_new(GRAMMAR_CACHE_BYTES, &live->grammars, NULL) != 0) {
    completions_free(server);
    return ERR_NO_MEMORY;
  }
  return 0;
}

void completions_free(server_t *server) {
  completions_t *live = server->live;
  if (live == NULL) return;
  CHECK_EQ(live->count, 0);
  loras_free(live);
  chat_model_free(live);
  grammar_cache_free(live->grammars);
  for (int i = 0; i < live->num_scratches; i++) tokenizer_scratch_free(live->scratches[i]);
  uv_mutex_destroy(&live->scratch_lock);
  cord_free(&live->frame);
  if (live->card != NULL) model_card_free(live->card);
  free(live->card);
  model_names_free(live);
  free(live);
  server->live = NULL;
}

int completions_live(const server_t *server) {
  return server->live != NULL ? server->live->count + server->live->jobs : 0;
}

uint64_t completions_busy_since_ns(const server_t *server) {
  const completions_t *live = server->live;
  return live != NULL && live->engine_requests > 0 ? live->busy_since_ns : 0;
}

const char *completions_request_id(const server_t *server, uint64_t id) {
  const completion_t *completion = server->live != NULL ? server->live->first : NULL;
  for (; completion != NULL; completion = completion->next) {
    if (completion->exchange == NULL) continue;
    for (int32_t i = 0; i < completion->num_inputs; i++) {
      if (completion->inputs[i].request.id == id) return completion->exchange->request_id;
    }
  }
  return "?";
}

tokenizer_scratch_t *scratch_take(completions_t *live, const tokenizer_t *tokenizer) {
  tokenizer_scratch_t *scratch = NULL;
  uv_mutex_lock(&live->scratch_lock);
  if (live->num_scratches > 0) scratch = live->scratches[--live->num_scratches];
  uv_mutex_unlock(&live->scratch_lock);
  return scratch != NULL ? scratch : tokenizer_scratch_new(tokenizer);
}

void scratch_give(completions_t *live, tokenizer_scratch_t *scratch) {
  int room = (int)ARRAY_LEN(live->scratches);
  if (scratch == NULL) return;
  uv_mutex_lock(&live->scratch_lock);
  if (live->num_scratches < room) {
    live->scratches[live->num_scratches++] = scratch;
    scratch = NULL;
  }
  uv_mutex_unlock(&live->scratch_lock);
  tokenizer_scratch_free(scratch);
}

/* ---- make and free ---- */

/* Without this call the body, a long prompt as text, and all that was parsed from it would stay in
 * memory until the answer is complete. */
void completion_forget_input(completion_t *completion) {
  intake_t *intake = completion->intake;
  params_t *params = &completion->params;
  if (intake == NULL) return;
  json_free(params->constraint.doc);
  params->constraint.doc = NULL;
  params->model = params->cache_salt = params->request_id = params->suffix = NULL;
  params->prompt_embeds = NULL;
  params->pairs.instruction = NULL;
  params->constraint.tree = NULL;
  params->constraint.schema = params->chat.messages = params->chat.tools = NULL;
  params->chat.documents = params->chat.template_kwargs = params->chat.reasoning_effort = NULL;
  json_free(intake->doc);
  if (intake->rendered.text != NULL) jinja_output_free(&intake->rendered);
  charge_drop(&intake->values);
  held_free(&intake->body);
  free(intake);
  completion->intake = NULL;
}

static void destroy(completion_t *completion) {
  completion_free_output(completion);
  for (int32_t i = 0; i < completion->num_choices; i++) {
    output_parser_free(completion->choices[i].parser);
  }
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    input_t *input = &completion->inputs[i];
    free(input->ids);
    free(input->row_memory);
    free(input->places);
    held_free(&input->keys);
    free(input->request.room);
    free(input->request.scores);
    free(input->scores.rows);
    free(input->scores.seen.slots);
    free(input->request.pooled);
  }
  completion_forget_input(completion);
  pictures_free(&completion->pictures);
  held_free(&completion->lent);
  grammar_unref(completion->grammar);
  stop_set_free(completion->stops);
  arena_free(&completion->arena);
  api_key_release(completion->key);
  charge_drop(&completion->ids);
  free(completion);
}

void completions_enter(completions_t *live) {
  if (live != NULL) live->depth++;
}

void completions_leave(completions_t *live) {
  if (live == NULL || --live->depth > 0) return;
  while (live->dead != NULL) {
    completion_t *completion = live->dead;
    live->dead = completion->next;
    destroy(completion);
  }
}

/* Removes the completion from the list if exchange, job and engine have finished with it;
 * completions_leave frees it. */
void completion_release(completion_t *completion) {
  completions_t *live = completion->server->live;
  if (completion->exchange != NULL || completion->working || completion->outstanding > 0) return;
  if (completion->goes_again) return;
  if (completion->released || completion->replying || completion->settling) return;
  completion->released = true;
  if (completion->previous != NULL) completion->previous->next = completion->next;
  if (live->first == completion) live->first = completion->next;
  if (completion->next != NULL) completion->next->previous = completion->previous;
  live->count--;
  lora_release(live, completion->lora, completion->begun);
  completion->next = live->dead;
  live->dead = completion;
}

void completion_give_back(const input_t *input) {
  const int64_t tokens = input_prompt_tokens(input);
  api_key_take_tokens(input->completion->key, -tokens, clock_now_ns());
  tally_reserve(input->completion->tally, -tokens);
}

/* Asks the engine and the job to stop. A job that still waits for a thread never runs. */
static void completion_cancel(completion_t *completion) {
  atomic_store(&completion->cancelled, true);
  if (completion->working &&
      (lanes_withdraw(&completion->intake->job) || pictures_leave(&completion->pictures)))
    completion->working = false;
  if (!completion->admitted) return;
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    input_t *input = &completion->inputs[i];
    if ((input->held_back || input->waits) && !input->prompt_counted)
      completion_give_back(input);
    else if (!input->done && !input->held_back && !input->waits)
      engine_cancel(completion->server->engine, &input->request);
  }
}

void completion_count_end(completion_t *completion, int status, finish_reason_t finish) {
  int32_t longest = 0;
  for (int32_t i = 0; i < completion->num_choices; i++) {
    if (completion->choices[i].num_tokens > longest) longest = completion->choices[i].num_tokens;
  }
  metrics_request_done(completion->server->metrics, completion->dialect->route, status, finish,
                       (int32_t)completion->params.n, longest);
}

static double milliseconds(uint64_t from_ns, uint64_t to_ns) {
  return from_ns == 0 || to_ns < from_ns ? -1 : (double)(to_ns - from_ns) * 1e-6;
}

const char *completion_model_name(const completion_t *completion) {
  if (completion->lora != NULL) return completion->lora->name;
  return model_name(completion->server->live);
}

/* Fills in the access line: token counts summed over the prompts, times of the first prompt. */
static void fill_log(completion_t *completion) {
  static const char *const finish[] = {NULL, "stop", "length", "abort", "error"};
  exchange_log_t *log = &completion->exchange->log;
  snprintf(log->model, sizeof log->model, "%s", completion_model_name(completion));
  if (!completion->admitted) return;
  const choice_t *first = &completion->choices[0];
  log->finish = finish[first->finish];
  log->prompt_tokens = log->cached_tokens = log->generated_tokens = 0;
  for (int32_t i = 0; i < completion->num_inputs; i++) {
    log->prompt_tokens += input_prompt_tokens(&completion->inputs[i]);
    log->cached_tokens += completion->inputs[i].num_cached_tokens;
  }
  for (int32_t i = 0; i < completion->num_choices; i++) {
    log->generated_tokens += completion->choices[i].num_tokens;
  }
  log->queued_ns = completion->queued_ns;
  log->scheduled_ns = completion->inputs[0].scheduled_ns;
  log->first_token_ns = first->first_token_ns;
  log->last_token_ns = first->last_token_ns;
  log->queue_ms = milliseconds(completion->queued_ns, completion->inputs[0].scheduled_ns);
  log->ttft_ms = milliseconds(completion->arrival_ns, first->first_token_ns);
  if (first->num_tokens > 1) {
    double decode_ms = milliseconds(first->first_token_ns, first->last_token_ns);
    log->itl_ms = decode_ms / (first->num_tokens - 1);
  }
}

exchange_t *completion_take_exchange(completion_t *completion) {
  exchange_t *exchange = completion->exchange;
  if (exchange != NULL) fill_log(completion);
  completion->exchange = NULL;
  return exchange;
}

static bool print_reply(void *owner, buffer_t *out, size_t room) {
  completion_t *completion = owner;
  const dialect_t *dialect = completion->dialect;
  size_t end = out->length + room;
  while (!cord_print(&completion->reply, out, end - MIN(out->length, end))) {
    if (dialect->describe_next == NULL) return false;
    cord_clear(&completion->reply);
    if (!dialect->describe_next(completion)) return false;
    out->failed = out->failed || cord_failed(&completion->reply);
  }
  return true;
}

static void end_reply(void *owner) {
  completion_t *completion = owner;
  completions_t *live = completion->server->live;
  completions_enter(live);
  completion->replying = false;
  completion_release(completion);
  completions_leave(live);
}

void completion_reply(completion_t *completion) {
  completion->replying = true;
  const char *type = completion->reply_type != NULL ? completion->reply_type : "application/json";
  exchange_reply_pieces(completion_take_exchange(completion), type,
                        (pieces_t){print_reply, end_reply, completion});
}

static bool print_frames(void *owner, buffer_t *out, size_t room) {
  completion_t *completion = owner;
  if (cord_failed(&completion->reply)) {
    out->failed = true; /* a frame lacks parts: the connection ends */
    return false;
  }
  bool more = cord_print(&completion->reply, out, room);
  if (!more) cord_clear(&completion->reply);
  return more;
}

void completion_send_frames(completion_t *completion) {
  if (completion->replying) {
    exchange_stream_more(completion->exchange);
    return;
  }
  completion->streaming = completion->replying = true;
  exchange_stream_pieces(completion->exchange, (pieces_t){print_frames, end_reply, completion});
}

/* Every failure of a completion whose client is still connected ends here. */
void completion_fail(completion_t *completion, const inferd_error_t *error) {
  metrics_t *metrics = completion->server->metrics;
  exchange_t *exchange;
  if (completion->exchange == NULL) return;
  if (completion->admitted) {
    completion_count_end(completion, error_http_status(error->code), FINISH_ERROR);
    if (error->code == ERR_QUEUE_TIMEOUT) metrics_aborted(metrics, "queue_timeout");
    if (error->code == ERR_QUEUE_FULL) metrics_aborted(metrics, "queue_full");
  } else {
    metrics_rejected(metrics, error->code);
  }
  metrics_key_refused(metrics, completion->key, error->code);
  if (completion->streaming) {
    completion->dialect->error(completion, error);
    exchange = completion_take_exchange(completion);
    if (exchange != NULL) exchange_end(exchange);
  } else {
    inferd_error_t renamed = *error;
    if (completion->renames) completion->dialect->rename(completion, &renamed);
    if (error_http_status(error->code) == 503) metrics_own_unavailable(metrics);
    exchange_error(completion_take_exchange(completion), &renamed);
  }
  completion_cancel(completion);
  completion_release(completion);
}

void completion_aborted(exchange_t *exchange, const inferd_error_t *error) {
  completion_t *completion = exchange->user;
  if (completion->streaming) completion->dialect->error(completion, error);
}

void completion_gone(exchange_t *exchange, const char *cause) {
  completion_t *completion = exchange->user;
  completions_t *live = completion->server->live;
  completions_enter(live);
  completion_take_exchange(completion);
  if (completion->admitted) {
    completion_count_end(completion, 499, FINISH_ABORT);
    metrics_aborted(completion->server->metrics, cause);
  }
  completion_cancel(completion);
  completion_release(completion);
  completions_leave(live);
}
