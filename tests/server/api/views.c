/* views.c: what views.h says. */
#include "tests/server/api/views.h"

#include "server/dialect/chat_body.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

const char *const view_names[NUM_VIEWS] = {
    "chat",     "chat, streamed",     "responses", "responses, streamed",
    "messages", "messages, streamed", "ollama",    "ollama, streamed"};
const char *const view_part_names[VIEW_PARTS] = {"reasoning", "text", "calls", "finish", "usage"};

/* ---- requests ---- */

static const char question[] = "hi";

static bool is_streamed(int index) {
  return index % 2 == 1;
}

static bool is_word(const char *choice) {
  return strcmp(choice, "auto") == 0 || strcmp(choice, "required") == 0 ||
         strcmp(choice, "none") == 0;
}

static void put(buffer_t *out, const char *before, const char *text, const char *behind) {
  buffer_text(out, before);
  buffer_text(out, text);
  buffer_text(out, behind);
}

static void put_chat(buffer_t *out, const view_request_t *request) {
  put(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"", question, "\"}],\"n\":");
  buffer_int(out, request->num_choices);
  buffer_text(out, ",\"max_completion_tokens\":4000");
  if (request->tools != NULL) {
    put(out, ",\"tools\":", request->tools, "");
    put(out, ",\"parallel_tool_calls\":", request->parallel ? "true" : "false", "");
    if (is_word(request->choice)) {
      put(out, ",\"tool_choice\":\"", request->choice, "\"");
    } else {
      put(out, ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"", request->choice,
          "\"}}");
    }
  }
  if (request->stop != NULL) put(out, ",\"stop\":[\"", request->stop, "\"]");
  if (request->format != NULL)
    put(out,
        ",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"n\","
        "\"schema\":",
        request->format, "}}");
}

/* Prints the tools with the members of a function beside their type, or as messages have them. */
static void put_flat_tools(buffer_t *out, const char *tools, bool messages) {
  json_doc_t *doc = NULL;
  const char *comma = "";
  ASSERT_EQ(json_parse(tools, strlen(tools), &json_limits_request, &doc, NULL), 0);
  buffer_text(out, ",\"tools\":[");
  JSON_EACH(tool, json_root(doc)) {
    buffer_text(out, comma);
    buffer_text(out, messages ? "{\"type\":\"custom\"" : "{\"type\":\"function\"");
    JSON_EACH(member, json_get(tool, "function")) {
      bool schema = messages && json_named(member, "parameters");
      buffer_char(out, ',');
      if (schema) buffer_text(out, "\"input_schema\"");
      if (!schema) buffer_quote(out, member->key, member->key_length);
      buffer_char(out, ':');
      json_print(out, member);
    }
    buffer_char(out, '}');
    comma = ",";
  }
  buffer_char(out, ']');
  json_free(doc);
}

static void put_responses(buffer_t *out, const view_request_t *request) {
  put(out, "{\"input\":\"", question, "\",\"max_output_tokens\":4000");
  if (request->tools != NULL) {
    put_flat_tools(out, request->tools, false);
    put(out, ",\"parallel_tool_calls\":", request->parallel ? "true" : "false", "");
    if (is_word(request->choice)) {
      put(out, ",\"tool_choice\":\"", request->choice, "\"");
    } else {
      put(out, ",\"tool_choice\":{\"type\":\"function\",\"name\":\"", request->choice, "\"}");
    }
  }
  if (request->stop != NULL) put(out, ",\"stop\":[\"", request->stop, "\"]");
  if (request->format != NULL)
    put(out, ",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"n\",\"schema\":",
        request->format, "}}");
}

static void put_messages(buffer_t *out, const view_request_t *request) {
  put(out, "{\"messages\":[{\"role\":\"user\",\"content\":\"", question,
      "\"}],\"max_tokens\":4000");
  if (request->tools != NULL) {
    const char *choice = request->choice, *type = is_word(choice) ? choice : "tool";
    if (strcmp(choice, "required") == 0) type = "any";
    put_flat_tools(out, request->tools, true);
    put(out, ",\"tool_choice\":{\"type\":\"", type, "\"");
    if (!is_word(choice)) put(out, ",\"name\":\"", choice, "\"");
    if (strcmp(choice, "none") != 0)
      put(out, ",\"disable_parallel_tool_use\":", request->parallel ? "false" : "true", "");
    buffer_char(out, '}');
  }
  if (request->stop != NULL) put(out, ",\"stop_sequences\":[\"", request->stop, "\"]");
  if (request->format != NULL)
    put(out,
        ",\"output_config\":{\"format\":{\"type\":\"json_schema\",\"schema\":", request->format,
        "}}");
}

/* Ollama streams unless it is told not to, and has no field for one call at most: ours is there. */
static void put_ollama(buffer_t *out, const view_request_t *request) {
  put(out, "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"", question,
      "\"}],\"options\":{\"num_predict\":4000");
  if (request->stop != NULL) put(out, ",\"stop\":[\"", request->stop, "\"]");
  buffer_char(out, '}');
  if (request->tools != NULL) {
    put(out, ",\"tools\":", request->tools, "");
    put(out, ",\"parallel_tool_calls\":", request->parallel ? "true" : "false", "");
    if (is_word(request->choice)) {
      put(out, ",\"tool_choice\":\"", request->choice, "\"");
    } else {
      put(out, ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"", request->choice,
          "\"}}");
    }
  }
  if (request->format != NULL) put(out, ",\"format\":", request->format, "");
}

fake_exchange_t *view_ask(int index, const view_request_t *request) {
  static void (*const puts[])(buffer_t *, const view_request_t *) = {put_chat, put_responses,
                                                                     put_messages, put_ollama};
  static void (*const handlers[])(exchange_t *) = {api_chat_completions, api_responses,
                                                   api_messages, api_ollama_chat};
  buffer_t body = {0};
  puts[index / 2](&body, request);
  buffer_text(&body, is_streamed(index) ? ",\"stream\":true" : ",\"stream\":false");
  if (is_streamed(index) && index / 2 == 0)
    buffer_text(&body, ",\"stream_options\":{\"include_usage\":true}");
  buffer_text(&body, "}");
  buffer_char(&body, '\0');
  fake_exchange_t *exchange = fake_call(handlers[index / 2], body.data);
  buffer_free(&body);
  return exchange;
}

/* ---- answers ---- */

enum { CALLS_MAX = 32 };

typedef struct reading {
  buffer_t reasoning, text, names[CALLS_MAX], arguments[CALLS_MAX];
  int num_calls, choice;
  char finish[40];
  int64_t prompt, generated;
} reading_t;

static void add(buffer_t *out, const json_t *value) {
  if (value != NULL && value->type == JSON_STRING) buffer_append(out, value->text, value->length);
}

static int add_call(reading_t *reading, const json_t *name) {
  cr_assert_lt(reading->num_calls, CALLS_MAX);
  add(&reading->names[reading->num_calls], name);
  return reading->num_calls++;
}

static void set_finish(reading_t *reading, const json_t *value) {
  if (value == NULL || value->type != JSON_STRING) return;
  cr_assert(reading->finish[0] == '\0', "two ends");
  snprintf(reading->finish, sizeof reading->finish, "%.*s", (int)value->length, value->text);
}

static void add_usage(reading_t *reading, const json_t *usage, const char *prompt,
                      const char *generated) {
  if (!json_is_given(usage)) return;
  (void)json_int64(json_get(usage, prompt), &reading->prompt);
  (void)json_int64(json_get(usage, generated), &reading->generated);
}

/* A chunk of chat, or the whole answer. */
static void read_chat(reading_t *reading, const json_t *root) {
  JSON_EACH(choice, json_get(root, "choices")) {
    int64_t index = -1;
    cr_assert(json_int64(json_get(choice, "index"), &index));
    if (index != reading->choice) continue;
    const json_t *delta = json_get(choice, "delta");
    const json_t *message = delta != NULL ? delta : json_get(choice, "message");
    add(&reading->reasoning, json_get(message, "reasoning"));
    add(&reading->text, json_get(message, "content"));
    JSON_EACH(call, json_get(message, "tool_calls")) {
      const json_t *function = json_get(call, "function"), *name = json_get(function, "name");
      int64_t at = reading->num_calls;
      if (delta != NULL) cr_assert(json_int64(json_get(call, "index"), &at));
      if (name != NULL) ASSERT_EQ(add_call(reading, name), at);
      ASSERT_LT(at, reading->num_calls);
      add(&reading->arguments[at], json_get(function, "arguments"));
    }
    set_finish(reading, json_get(choice, "finish_reason"));
  }
  add_usage(reading, json_get(root, "usage"), "prompt_tokens", "completion_tokens");
}

static void read_response(reading_t *reading, const json_t *response) {
  JSON_EACH(item, json_get(response, "output")) {
    const json_t *type = json_get(item, "type");
    buffer_t *text = json_equals(type, "reasoning") ? &reading->reasoning : &reading->text;
    JSON_EACH(part, json_get(item, "content")) add(text, json_get(part, "text"));
    if (!json_equals(type, "function_call")) continue;
    int at = add_call(reading, json_get(item, "name"));
    add(&reading->arguments[at], json_get(item, "arguments"));
  }
  set_finish(reading, json_get(response, "status"));
  add_usage(reading, json_get(response, "usage"), "input_tokens", "output_tokens");
}

/* An event of responses. The text is that of the deltas; the last event must tell the same. */
static void read_response_event(reading_t *reading, const json_t *event) {
  const json_t *type = json_get(event, "type"), *delta = json_get(event, "delta");
  const json_t *item = json_get(event, "item"), *response = json_get(event, "response");
  if (json_equals(type, "response.reasoning_text.delta")) add(&reading->reasoning, delta);
  if (json_equals(type, "response.output_text.delta")) add(&reading->text, delta);
  if (json_equals(type, "response.function_call_arguments.delta"))
    add(&reading->arguments[reading->num_calls - 1], delta);
  if (json_equals(type, "response.output_item.added") &&
      json_equals(json_get(item, "type"), "function_call"))
    add_call(reading, json_get(item, "name"));
  if (json_equals(type, "response.completed") || json_equals(type, "response.incomplete")) {
    set_finish(reading, json_get(response, "status"));
    add_usage(reading, json_get(response, "usage"), "input_tokens", "output_tokens");
  }
}

static void read_block(reading_t *reading, const json_t *block) {
  const json_t *input = json_get(block, "input"), *cut = json_get(input, "partial_json");
  add(&reading->reasoning, json_get(block, "thinking"));
  add(&reading->text, json_get(block, "text"));
  if (!json_equals(json_get(block, "type"), "tool_use")) return;
  buffer_t *arguments = &reading->arguments[add_call(reading, json_get(block, "name"))];
  if (cut != NULL) add(arguments, cut);
  if (cut == NULL && input->count > 0) json_print(arguments, input);
}

static void read_message(reading_t *reading, const json_t *message) {
  JSON_EACH(block, json_get(message, "content")) read_block(reading, block);
  set_finish(reading, json_get(message, "stop_reason"));
  add_usage(reading, json_get(message, "usage"), "input_tokens", "output_tokens");
}

static void read_message_event(reading_t *reading, const json_t *event) {
  const json_t *delta = json_get(event, "delta"), *message = json_get(event, "message");
  if (message != NULL) read_message(reading, message);
  if (json_get(event, "content_block") != NULL)
    read_block(reading, json_get(event, "content_block"));
  add(&reading->reasoning, json_get(delta, "thinking"));
  add(&reading->text, json_get(delta, "text"));
  if (json_get(delta, "partial_json") != NULL)
    add(&reading->arguments[reading->num_calls - 1], json_get(delta, "partial_json"));
  set_finish(reading, json_get(delta, "stop_reason"));
  add_usage(reading, json_get(event, "usage"), "input_tokens", "output_tokens");
}

/* The whole answer, or a line of it. The last line alone has the counts. */
static void read_ollama(reading_t *reading, const json_t *root) {
  const json_t *message = json_get(root, "message"), *reason = json_get(root, "done_reason");
  bool done = false;
  add(&reading->reasoning, json_get(message, "thinking"));
  add(&reading->text, json_get(message, "content"));
  JSON_EACH(call, json_get(message, "tool_calls")) {
    const json_t *function = json_get(call, "function"), *input = json_get(function, "arguments");
    const json_t *cut = json_get(input, "partial_json");
    int64_t at = -1;
    cr_assert(json_int64(json_get(function, "index"), &at));
    ASSERT_EQ(add_call(reading, json_get(function, "name")), at);
    if (cut != NULL) add(&reading->arguments[at], cut);
    if (cut == NULL && input->count > 0) json_print(&reading->arguments[at], input);
  }
  cr_assert(json_bool(json_get(root, "done"), &done));
  ASSERT_EQ(done, reason != NULL);
  set_finish(reading, reason);
  if (json_equals(reason, "stop")) strcpy(reading->finish, "completed"); /* tells of no calls */
  add_usage(reading, root, "prompt_eval_count", "eval_count");
}

/* ---- one form ---- */

/* Arguments that are JSON are printed in one way; the bytes of others stand behind "~". An object
 * without members may be missing: the other form of messages cannot tell the two apart. */
static void put_call(buffer_t *out, const buffer_t *name, const buffer_t *arguments) {
  json_doc_t *doc = NULL;
  bool none = arguments->length == 0;
  bool whole =
      !none && json_parse(arguments->data, arguments->length, &json_limits_model, &doc, NULL) == 0;
  buffer_append(out, name->data, name->length);
  buffer_char(out, '(');
  if (whole && json_root(doc)->count > 0) {
    json_print(out, json_root(doc));
  } else if (!whole && !none) {
    buffer_char(out, '~');
    buffer_append(out, arguments->data, arguments->length);
  }
  buffer_text(out, ") ");
  json_free(doc);
}

/* The words of all routes as those of chat, where a call that was asked for by name ends like text.
 * Behind a stop string the words of the other routes do not tell whether calls are whole: "". */
static const char *finish_of(const reading_t *reading, const view_request_t *request) {
  static const char *const lengths[] = {"length", "incomplete", "max_tokens",
                                        "model_context_window_exceeded"};
  for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
    if (strcmp(reading->finish, lengths[i]) == 0) return "length";
  }
  bool any = reading->num_calls > 0, told = strcmp(reading->finish, "stop") != 0;
  bool counted =
      strcmp(reading->finish, "stop_sequence") == 0 || strcmp(reading->finish, "completed") == 0;
  if (counted && request->stop != NULL) return "";
  if (counted) return any ? "called" : "stop";
  if (strcmp(reading->finish, "stop") == 0) told = any && !is_word(request->choice);
  if (strcmp(reading->finish, "end_turn") == 0) told = false;
  return told ? "called" : "stop";
}

static view_t settle(reading_t *reading, const view_request_t *request) {
  view_t view = {0};
  cr_assert(reading->finish[0] != '\0', "no end");
  view.parts[VIEW_REASONING] = reading->reasoning;
  view.parts[VIEW_TEXT] = reading->text;
  for (int i = 0; i < reading->num_calls; i++) {
    put_call(&view.parts[VIEW_CALLS], &reading->names[i], &reading->arguments[i]);
    buffer_free(&reading->names[i]);
    buffer_free(&reading->arguments[i]);
  }
  buffer_text(&view.parts[VIEW_FINISH], finish_of(reading, request));
  buffer_int(&view.parts[VIEW_USAGE], reading->prompt);
  buffer_char(&view.parts[VIEW_USAGE], '+');
  buffer_int(&view.parts[VIEW_USAGE], reading->generated);
  return view;
}

view_t view_read(int index, const view_request_t *request, const fake_exchange_t *exchange,
                 int choice) {
  static void (*const readers[NUM_VIEWS])(reading_t *, const json_t *) = {
      read_chat,    read_chat,          read_response, read_response_event,
      read_message, read_message_event, read_ollama,   read_ollama};
  reading_t reading = {.choice = choice};
  json_doc_t *doc = NULL;
  ASSERT_EQ_FOR(exchange->status, 200, "%s", exchange->body);
  if (!is_streamed(index)) {
    doc = fake_json(exchange);
    readers[index](&reading, json_root(doc));
    json_free(doc);
    return settle(&reading, request);
  }
  const char *begin = readers[index] == read_ollama ? "{" : "data: {";
  for (const char *at = exchange->body; (at = strstr(at, begin)) != NULL;) {
    at += strlen(begin) - 1;
    size_t length = strcspn(at, "\n");
    ASSERT_EQ_FOR(json_parse(at, length, &json_limits_request, &doc, NULL), 0, "%s", at);
    readers[index](&reading, json_root(doc));
    json_free(doc);
    at += length;
  }
  return settle(&reading, request);
}

void view_free(view_t *view) {
  for (int i = 0; i < VIEW_PARTS; i++) buffer_free(&view->parts[i]);
}
