/* writer.c: the output of a completion -> objects and events, as llama.cpp's server has them.
 *
 * Stage 9 of 9: text and ids -> bytes. Loop thread. An event has `data: ` in front and no [DONE]
 * behind the last, which has "stop":true. The times of the last event are known when the engine has
 * ended the request, so `done` prints it.
 */
#include "server/llama/llama.h"

#include "engine/base/util.h"
#include "server/completion/dialect.h"

#include <stdlib.h>
#include <string.h>

static llama_state_t *state_of(const completion_t *completion) {
  return completion->dialect_state;
}

/* ---- parts of an object ---- */

/* Begins an object: what the choice has, or, `empty`, nothing of it. */
static void print_part(cord_t *out, const choice_t *choice, bool empty) {
  static const buffer_t nothing = {0};
  const buffer_t *text = empty ? &nothing : &choice->text;
  const buffer_t *ids = empty ? &nothing : &choice->token_ids;
  buffer_text(&out->own, "{\"index\":");
  buffer_int(&out->own, choice->index);
  buffer_text(&out->own, ",\"content\":\"");
  cord_escape(out, text->data, text->length);
  buffer_text(&out->own, "\",\"tokens\":[");
  cord_bytes(out, ids->data, ids->length);
  buffer_text(&out->own, "],\"id_slot\":-1");
}

static int32_t cached_tokens(const input_t *input) {
  return MIN(input->num_cached_tokens, input->request.num_prompt_tokens - 1);
}

static void print_counts(buffer_t *out, const choice_t *choice) {
  buffer_text(out, ",\"tokens_predicted\":");
  buffer_int(out, choice->num_tokens);
  buffer_text(out, ",\"tokens_evaluated\":");
  buffer_int(out, choice->input->request.num_prompt_tokens);
}

/* Tokens and milliseconds of the prompt, or of what was generated, with their ratios. */
static void print_times(buffer_t *out, const char *what, int64_t tokens, uint64_t from_ns,
                        uint64_t to_ns) {
  double ms = from_ns != 0 && to_ns > from_ns ? (double)(to_ns - from_ns) / 1e6 : 0;
  const struct {
    const char *name;
    double value;
  } rows[] = {{"_ms\":", ms},
              {"_per_token_ms\":", tokens > 0 ? ms / (double)tokens : 0},
              {"_per_second\":", ms > 0 ? (double)tokens * 1000 / ms : 0}};
  buffer_char(out, '"');
  buffer_text(out, what);
  buffer_text(out, "_n\":");
  buffer_int(out, tokens);
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    buffer_text(out, ",\"");
    buffer_text(out, what);
    buffer_text(out, rows[i].name);
    buffer_float(out, (float)rows[i].value);
  }
}

static void print_timings(buffer_t *out, const choice_t *choice) {
  const input_t *input = choice->input;
  int32_t cached = cached_tokens(input);
  buffer_text(out, ",\"timings\":{\"cache_n\":");
  buffer_int(out, cached);
  buffer_char(out, ',');
  print_times(out, "prompt", input->request.num_prompt_tokens - cached, input->scheduled_ns,
              choice->first_token_ns);
  buffer_char(out, ',');
  print_times(out, "predicted", choice->num_tokens, choice->first_token_ns, choice->last_token_ns);
  buffer_char(out, '}');
}

static void print_stop(buffer_t *out, const choice_t *choice) {
  size_t length = 0;
  const char *text = "";
  if (choice->stop_string >= 0)
    text = stop_set_string(choice->input->request.stops, choice->stop_string, &length);
  buffer_text(out, ",\"stop_type\":");
  buffer_text(out, choice->finish != FINISH_STOP ? "\"limit\""
                   : choice->stop_string >= 0    ? "\"word\""
                                                 : "\"eos\"");
  buffer_text(out, ",\"stopping_word\":");
  buffer_quote(out, text, length);
}

/* What the last object of a choice has beside its part. */
static void print_end(buffer_t *out, const choice_t *choice) {
  const completion_t *completion = choice->input->completion;
  const char *model = completion_model_name(completion);
  const params_t *params = &completion->params;
  const llama_state_t *state = state_of(completion);
  bool lines = state->has_new_line[choice->index];
  buffer_text(out, ",\"stop\":true,\"model\":");
  buffer_quote(out, model, strlen(model));
  print_counts(out, choice);
  buffer_text(out, ",\"generation_settings\":");
  llama_print_settings(out, params, params_max_tokens(params));
  buffer_text(out, lines ? ",\"has_new_line\":true" : ",\"has_new_line\":false");
  buffer_text(out, ",\"truncated\":false");
  print_stop(out, choice);
  buffer_text(out, ",\"tokens_cached\":");
  buffer_int(out, cached_tokens(choice->input));
  print_timings(out, choice);
  buffer_char(out, '}');
}

static bool failed(const choice_t *choice) {
  return choice->text.failed || choice->token_ids.failed;
}

/* Whether a line has ended, in what is taken now or before. */
static void look_for_line(choice_t *choice) {
  bool *has = &state_of(choice->input->completion)->has_new_line[choice->index];
  *has = *has || (choice->text.length > 0 && memchr(choice->text.data, '\n', choice->text.length));
}

/* ---- the stream ---- */

static cord_t *event_begin(completion_t *completion) {
  cord_t *out = &completion->server->live->frame;
  buffer_clear(&out->own);
  buffer_text(&out->own, "data: ");
  return out;
}

static void chunk(choice_t *choice, bool last) {
  completion_t *completion = choice->input->completion;
  bool nothing = choice->text.length == 0 && choice->token_ids.length == 0;
  (void)last; /* `done` prints what the last event has */
  if (completion->exchange == NULL || nothing) return;
  cord_t *out = event_begin(completion);
  out->own.failed = out->own.failed || failed(choice);
  look_for_line(choice);
  print_part(out, choice, false);
  buffer_text(&out->own, ",\"stop\":false");
  print_counts(&out->own, choice);
  buffer_text(&out->own, "}\n\n");
  choice->sent_any = true;
  choice->unsent_tokens = 0;
  buffer_clear(&choice->text);
  buffer_clear(&choice->token_ids);
  sse_send_buffer(completion, &out->own);
}

static void done(completion_t *completion) {
  for (int32_t i = 0; i < completion->num_choices && completion->exchange != NULL; i++) {
    cord_t *out = event_begin(completion);
    print_part(out, &completion->choices[i], true);
    print_end(&out->own, &completion->choices[i]);
    buffer_text(&out->own, "\n\n");
    sse_send_buffer(completion, &out->own);
  }
}

static void ping(completion_t *completion) {
  text_dialect.ping(completion);
}

static void fail(completion_t *completion, const inferd_error_t *error) {
  bool numeric = strcmp(completion->server->config->error_code, "status") == 0;
  size_t length;
  char *body = error_body(error, numeric, &length);
  if (body == NULL) return;
  sse_send(completion, "data: ", 6);
  sse_send(completion, body, length);
  sse_send(completion, "\n\n", 2);
  free(body);
}

/* ---- the whole answer ---- */

/* The answer repeats them, and the body in which they stand is not kept. */
static bool keep_stops(completion_t *completion) {
  params_t *params = &completion->params;
  for (int32_t i = 0; i < params->num_stop; i++) {
    span_t *stop = &params->stop[i];
    stop->text = arena_copy(&completion->arena, stop->text, stop->length);
    if (stop->text == NULL) return false;
  }
  return true;
}

static bool prepare(completion_t *completion) {
  llama_state_t *state = state_of(completion);
  size_t count = (size_t)completion->num_choices;
  state->has_new_line = arena_calloc(&completion->arena, count, sizeof(bool));
  return state->has_new_line != NULL && keep_stops(completion);
}

/* Several answers are a list. */
static bool response(completion_t *completion) {
  cord_t *out = &completion->reply;
  bool list = completion->num_choices > 1;
  if (list) buffer_char(&out->own, '[');
  for (int32_t i = 0; i < completion->num_choices; i++) {
    choice_t *choice = &completion->choices[i];
    if (i > 0) buffer_char(&out->own, ',');
    out->own.failed = out->own.failed || failed(choice);
    look_for_line(choice);
    print_part(out, choice, false);
    print_end(&out->own, choice);
  }
  if (list) buffer_char(&out->own, ']');
  return !cord_failed(out);
}

/* ---- the dialects ---- */

#define WRITER                                                                                     \
  .rename = llama_rename, .prepare = prepare, .chunk = chunk, .done = done, .error = fail,         \
  .ping = ping, .response = response

static const dialect_t completion_dialect = {
    .route = "/completion", .translate = llama_translate_completion, WRITER};
static const dialect_t infill_dialect = {
    .route = "/infill", .translate = llama_translate_infill, WRITER};

void api_llama_completion(exchange_t *exchange) {
  completion_start(exchange, &completion_dialect);
}

void api_llama_infill(exchange_t *exchange) {
  completion_start(exchange, &infill_dialect);
}
