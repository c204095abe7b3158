/* writer.c: the output of a chat or a completion -> lines of JSON, or one object, as Ollama has
 * them.
 *
 * Stage 9 of 9: thoughts, text and calls -> bytes. Loop thread. A line is one frame of the stream.
 * A call is sent whole, because its arguments are an object. The times of the last line are known
 * when the engine has ended the request, so `done` prints it.
 */
#include "server/ollama/ollama.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/completion/chat.h"
#include "server/completion/dialect.h"
#include "server/dialect/rename.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static ollama_state_t *state_of(const completion_t *completion) {
  return completion->dialect_state;
}

/* ---- what every line has ---- */

static void print_moment(buffer_t *out, time_t seconds, long micros) {
  char text[48] = "";
  struct tm parts;
  size_t n = 0;
  if (gmtime_r(&seconds, &parts) != NULL) {
    n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  }
  if (micros >= 0) n += (size_t)snprintf(text + n, sizeof text - n, ".%06ld", micros);
  buffer_char(out, '"');
  buffer_append(out, text, n);
  buffer_text(out, "Z\"");
}

static void print_now(buffer_t *out) {
  struct timespec now = {0};
  clock_gettime(CLOCK_REALTIME, &now);
  print_moment(out, now.tv_sec, now.tv_nsec / 1000);
}

void ollama_print_time(buffer_t *out, int64_t seconds) {
  print_moment(out, (time_t)seconds, -1);
}

static void print_head(buffer_t *out, const ollama_state_t *state) {
  buffer_text(out, "{\"model\":");
  buffer_quote(out, state->model, state->model_length);
  buffer_text(out, ",\"created_at\":");
  print_now(out);
}

/* Nanoseconds from one stamp to another; a stamp that was never set gives 0. */
static void print_span(buffer_t *out, const char *name, uint64_t from_ns, uint64_t to_ns) {
  buffer_text(out, name);
  buffer_uint(out, from_ns != 0 && to_ns > from_ns ? to_ns - from_ns : 0);
}

/* The model is loaded before a request comes: what is called the load is the time until the engine
 * takes it. */
static void print_end(buffer_t *out, const choice_t *choice) {
  const completion_t *completion = choice->input->completion;
  uint64_t scheduled_ns = choice->input->scheduled_ns, first_ns = choice->first_token_ns;
  token_usage_t usage = completion_usage(completion);
  buffer_text(out, ",\"done\":true,\"done_reason\":");
  buffer_text(out, choice->finish == FINISH_LENGTH ? "\"length\"" : "\"stop\"");
  print_span(out, ",\"total_duration\":", completion->arrival_ns, clock_now_ns());
  print_span(out, ",\"load_duration\":", completion->arrival_ns, scheduled_ns);
  buffer_text(out, ",\"prompt_eval_count\":");
  buffer_int(out, usage.prompt);
  print_span(out, ",\"prompt_eval_duration\":", scheduled_ns, first_ns);
  buffer_text(out, ",\"eval_count\":");
  buffer_int(out, usage.generated);
  print_span(out, ",\"eval_duration\":", first_ns, choice->last_token_ns);
}

static void print_text(cord_t *out, const char *name, const buffer_t *text) {
  buffer_text(&out->own, name);
  buffer_char(&out->own, '"');
  cord_escape(out, text->data, text->length);
  buffer_char(&out->own, '"');
}

/* Prints one object up to its end: what the choice has, or, `empty`, nothing of it. */
static void print_part(cord_t *out, const choice_t *choice, bool empty) {
  static const buffer_t nothing = {0};
  const ollama_state_t *state = state_of(choice->input->completion);
  const buffer_t *thoughts = &choice->reasoning, *calls = &choice->tool_calls;
  print_head(&out->own, state);
  if (!state->generates) buffer_text(&out->own, ",\"message\":{\"role\":\"assistant\"");
  print_text(
      out, state->generates ? ",\"response\":" : ",\"content\":", empty ? &nothing : &choice->text);
  if (!empty && thoughts->length > 0) print_text(out, ",\"thinking\":", thoughts);
  if (!empty && calls->length > 0) {
    buffer_text(&out->own, ",\"tool_calls\":[");
    cord_bytes(out, calls->data, calls->length);
    buffer_char(&out->own, ']');
  }
  if (!state->generates) buffer_char(&out->own, '}');
  if (empty || choice->logprobs.count == 0) return;
  buffer_text(&out->own, ",\"logprobs\":[");
  logprob_text_chat_list(&choice->logprobs, out);
  buffer_char(&out->own, ']');
}

/* ---- parts of the output ---- */

/* Appends the call that has ended to those of the choice. Its arguments are an object; of a call
 * that was cut by the end of the output an object holds what there is, as on /v1/messages. */
static void end_call(choice_t *choice) {
  ollama_state_t *state = state_of(choice->input->completion);
  buffer_t *out = &choice->tool_calls, *call = &state->call;
  const char *text = call->data + state->arguments;
  size_t length = call->length - state->arguments;
  json_doc_t *doc = NULL;
  inferd_error_t error;
  if (call->failed || call->length == 0) {
    out->failed = out->failed || call->failed;
    return;
  }
  bool whole = length > 0 && json_parse(text, length, &json_limits_model, &doc, &error) == 0 &&
               json_root(doc)->type == JSON_OBJECT;
  if (out->length > 0) buffer_char(out, ',');
  buffer_append(out, call->data, state->arguments);
  if (whole) {
    json_print(out, json_root(doc)); /* on one line, whatever the model wrote between */
  } else if (length == 0) {
    buffer_text(out, "{}");
  } else {
    buffer_text(out, "{\"partial_json\":");
    buffer_quote(out, text, length);
    buffer_char(out, '}');
  }
  buffer_text(out, "}}");
  json_free(doc);
  buffer_clear(call);
}

static void begin_call(choice_t *choice, const char *name, size_t length) {
  const completion_t *completion = choice->input->completion;
  ollama_state_t *state = state_of(completion);
  buffer_t *call = &state->call;
  end_call(choice);
  buffer_text(call, "{\"id\":\"");
  chat_print_call_id(call, completion);
  buffer_text(call, "\",\"function\":{\"index\":");
  buffer_int(call, choice->num_calls++);
  buffer_text(call, ",\"name\":");
  buffer_quote(call, name, length);
  buffer_text(call, ",\"arguments\":");
  state->arguments = call->length;
}

static void take(choice_t *choice, output_kind_t kind, const char *text, size_t length) {
  ollama_state_t *state = state_of(choice->input->completion);
  switch (kind) {
  case OUTPUT_CONTENT:
  case OUTPUT_REASONING:
  case OUTPUT_CALL_ID: chat_take_part(choice, kind, text, length); break;
  case OUTPUT_CALL_BEGIN: begin_call(choice, text, length); break;
  case OUTPUT_CALL_TEXT: buffer_append(&state->call, text, length); break;
  case OUTPUT_CALL_END: end_call(choice); break;
  }
}

static bool failed(const choice_t *choice) {
  return choice->text.failed || state_of(choice->input->completion)->call.failed ||
         logprob_text_failed(&choice->logprobs) || chat_failed(choice);
}

/* ---- the stream ---- */

static cord_t *line_begin(completion_t *completion) {
  cord_t *out = &completion->server->live->frame;
  buffer_clear(&out->own);
  return out;
}

/* The line without anything new: it keeps a connection open, and clients read past it. */
static void send_empty(completion_t *completion, bool last) {
  choice_t *choice = &completion->choices[0];
  if (completion->exchange == NULL) return;
  cord_t *out = line_begin(completion);
  out->own.failed = out->own.failed || failed(choice);
  print_part(out, choice, true);
  if (last) print_end(&out->own, choice);
  buffer_text(&out->own, last ? "}\n" : ",\"done\":false}\n");
  sse_send_buffer(completion, &out->own);
}

static void chunk(choice_t *choice, bool last) {
  completion_t *completion = choice->input->completion;
  bool nothing = choice->text.length == 0 && choice->reasoning.length == 0 &&
                 choice->tool_calls.length == 0 && choice->logprobs.count == 0;
  (void)last; /* `done` prints what the last line has */
  if (completion->exchange == NULL || nothing) return;
  cord_t *out = line_begin(completion);
  out->own.failed = out->own.failed || failed(choice);
  print_part(out, choice, false);
  buffer_text(&out->own, ",\"done\":false}\n");
  choice->sent_any = true;
  choice->unsent_tokens = 0;
  buffer_clear(&choice->text);
  buffer_clear(&choice->reasoning);
  buffer_clear(&choice->tool_calls);
  logprob_text_clear(&choice->logprobs);
  sse_send_buffer(completion, &out->own);
}

static void done(completion_t *completion) {
  send_empty(completion, true);
}

static void ping(completion_t *completion) {
  send_empty(completion, false);
}

static void fail(completion_t *completion, const inferd_error_t *error) {
  size_t length;
  char *body = error_body_ollama(error, &length);
  if (body == NULL) return;
  sse_send(completion, body, length);
  sse_send(completion, "\n", 1);
  free(body);
}

/* ---- the whole answer ---- */

static bool prepare(completion_t *completion) {
  (void)completion; /* a line has nothing that is known before */
  return true;
}

static bool response(completion_t *completion) {
  const choice_t *choice = &completion->choices[0];
  cord_t *out = &completion->reply;
  print_part(out, choice, false);
  print_end(&out->own, choice);
  buffer_char(&out->own, '}');
  return !failed(choice) && !cord_failed(out);
}

/* Nothing was asked: the model is loaded, whoever asks. */
static bool say_loaded(completion_t *completion) {
  const ollama_state_t *state = state_of(completion);
  buffer_t *out = &completion->reply.own;
  print_head(out, state);
  buffer_text(out, state->generates ? ",\"response\":\"\""
                                    : ",\"message\":{\"role\":\"assistant\",\"content\":\"\"}");
  buffer_text(out, ",\"done\":true,\"done_reason\":\"load\"}");
  return true;
}

/* ---- the dialects ---- */

/* Names of chat in errors that are found behind the translation, and those of this format. */
static const struct {
  const char *of_chat, *name;
} names[] = {{"'max_tokens'", "'options.num_predict'"},
             {"'repetition_penalty'", "'options.repeat_penalty'"},
             {"'temperature'", "'options.temperature'"},
             {"'stop'", "'options.stop'"},
             {"'truncate_prompt_tokens'", "'truncate'"},
             {"reasoning_content", "thinking"},
             {"reasoning_effort", "think"},
             {"/v1/completions", "/api/generate with 'raw'"}};

/* An error is one text, so that names its place. */
void ollama_rename(const completion_t *completion, inferd_error_t *error) {
  const ollama_state_t *state = state_of(completion);
  char said[sizeof error->message];
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    rename_first(error->param, sizeof error->param, names[i].of_chat, names[i].name);
    rename_first(error->message, sizeof error->message, names[i].of_chat, names[i].name);
  }
  if (state != NULL && state->generates) return; /* there are no messages */
  if (strncmp(error->param, "messages[", 9) != 0 && strncmp(error->param, "tools[", 6) != 0) return;
  if (strstr(error->message, error->param) != NULL) return;
  memcpy(said, error->message, sizeof said);
  int n = snprintf(error->message, sizeof error->message, "%s: ", error->param);
  snprintf(error->message + n, sizeof error->message - (size_t)n, "%.*s",
           (int)(sizeof said - 1) - n, said);
}

static size_t held(const completion_t *completion) {
  const ollama_state_t *state = state_of(completion);
  return state != NULL ? state->call.capacity : 0;
}

static void forget(completion_t *completion) {
  ollama_state_t *state = state_of(completion);
  if (state != NULL) buffer_free(&state->call);
}

#define WRITER                                                                                     \
  .effort = "think", .clips_max_tokens = true, .rename = ollama_rename, .prepare = prepare,        \
  .chunk = chunk, .done = done, .error = fail, .ping = ping, .response = response, .held = held,   \
  .free = forget

static const dialect_t chat_of_ollama = {.route = "/api/chat",
                                         .is_chat = true,
                                         .translate = ollama_translate_chat,
                                         .take = take,
                                         WRITER};
static const dialect_t generate_dialect = {.route = "/api/generate",
                                           .is_chat = true,
                                           .translate = ollama_translate_generate,
                                           .take = take,
                                           WRITER};
const dialect_t ollama_raw_dialect = {
    .route = "/api/generate", .translate = ollama_translate_generate, WRITER};
const dialect_t ollama_load_dialect = {.rename = ollama_rename, .describe = say_loaded};

void api_ollama_chat(exchange_t *exchange) {
  completion_start(exchange, &chat_of_ollama);
}

void api_ollama_generate(exchange_t *exchange) {
  completion_start(exchange, &generate_dialect);
}
