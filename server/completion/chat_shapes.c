/* chat_shapes.c: which shapes of conversations the chat template of the model takes.
 *
 * Main thread, at start. Some templates refuse what clients send: a system message, two messages of
 * one role in a row, a call without text. Each shape is rendered once; what is refused is logged by
 * name, and mended in the conversations of clients (server/fields/history.h).
 */
#include "server/completion/chat.h"

#include "engine/base/util.h"
#include "server/observe/log.h"

#include <string.h>

#define SAYS(role, text) "{\"role\":\"" role "\",\"content\":\"" text "\"}"
#define CALLS(content, id)                                                                         \
  "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[{\"id\":\"" id                  \
  "\",\"type\":\"function\",\"function\":{\"name\":\"zeta_f\",\"arguments\":\"{\\\"n\\\": "        \
  "3}\"}}]}"
#define RESULT(id, text)                                                                           \
  "{\"role\":\"tool\",\"name\":\"zeta_f\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define NINE "zetaCall7"
#define FOREIGN "call_zeta7FD1aGJk3mPqRsTu"

typedef struct shape_trial {
  const char *messages;
  const char *shown[2]; /* texts that the prompt must have; NULL = none */
  const char *name;
  unsigned shape;
} shape_trial_t;

static const shape_trial_t plain = {
    "[" SAYS("user", "zeta-a") "," SAYS("assistant", "zeta-b") "," SAYS("user", "zeta-c") "]",
    {"zeta-a", "zeta-c"},
    "",
    0};

static const shape_trial_t with_call = {
    "[" SAYS("user", "a") "," CALLS("\"b\"", NINE) "," RESULT(NINE, "zeta-7") "," SAYS(
        "assistant", "c") "," SAYS("user", "d") "]",
    {"zeta_f", "zeta-7"},
    "",
    0};

static const shape_trial_t with_result = {
    "[" SAYS("user", "a") "," CALLS("\"b\"", NINE) "," RESULT(NINE, "zeta-7") "," SAYS(
        "assistant", "c") "," SAYS("user", "d") "]",
    {"zeta-7", "d"},
    "calls and their results",
    SHAPE_CALLS};

static const shape_trial_t foreign_ids = {
    "[" SAYS("user", "a") "," CALLS("\"b\"", FOREIGN) "," RESULT(FOREIGN, "zeta-7") "," SAYS(
        "assistant", "c") "," SAYS("user", "d") "]",
    {"zeta_f", "zeta-7"},
    "",
    0};

static const shape_trial_t shapes[] = {
    {"[" SAYS("system", "zeta-s") "," SAYS("user", "zeta-a") "]",
     {"zeta-s", "zeta-a"},
     "a system message",
     SHAPE_SYSTEM},
    {"[" SAYS("system", "first") "," SAYS("user", "a") "," SAYS("system", "zeta-s") "," SAYS(
         "assistant", "b") "," SAYS("user", "zeta-c") "]",
     {"zeta-s", "zeta-c"},
     "a system message behind others",
     SHAPE_LATE_SYSTEM},
    {"[" SAYS("user", "zeta-a") "," SAYS("user", "zeta-b") "]",
     {"zeta-a", "zeta-b"},
     "two messages of the user in a row",
     SHAPE_TWO_USERS},
    {"[" SAYS("user", "a") "," SAYS("assistant", "zeta-b") "," SAYS("assistant", "zeta-c") "," SAYS(
         "user", "d") "]",
     {"zeta-b", "zeta-c"},
     "two messages of the assistant in a row",
     SHAPE_TWO_ANSWERS},
    {"[" SAYS("assistant", "zeta-a") "," SAYS("user", "zeta-b") "]",
     {"zeta-a", "zeta-b"},
     "a message of the assistant at the start",
     SHAPE_ANSWER_FIRST},
    {"[" SAYS("user", "a") "," CALLS("null", NINE) "," RESULT(NINE, "zeta-7") "," SAYS(
         "assistant", "c") "," SAYS("user", "d") "]",
     {"zeta_f", "zeta-7"},
     "a call without text",
     SHAPE_CALL_WITHOUT_TEXT},
    {"[" SAYS("user", "a") "," RESULT(NINE, "zeta-7") "," SAYS("assistant",
                                                               "b") "," SAYS("user", "zeta-c") "]",
     {"zeta-7", "zeta-c"},
     "a result without its call",
     SHAPE_LOST_RESULT},
    {"[" SAYS("user", "a") "," CALLS("\"b\"", NINE) "," SAYS("user", "zeta-c") "," SAYS(
         "assistant", "d") "," SAYS("user", "e") "]",
     {"zeta_f", "zeta-c"},
     "a call without a result",
     SHAPE_OPEN_CALL}};

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"zeta_f\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}}}]";

/* Renders a shape. Returns true if the template takes it and shows what it must. */
static bool takes(const completions_t *live, const shape_trial_t *trial, const json_t *functions) {
  json_doc_t *doc = NULL;
  jinja_output_t out = {0};
  inferd_error_t error;
  bool fine =
      json_parse(trial->messages, strlen(trial->messages), &json_limits_request, &doc, &error) == 0;
  if (fine) {
    chat_input_t input = {
        .messages = json_root(doc), .tools = functions, .add_generation_prompt = true};
    fine = chat_template_render(live->templates, &input, &out, &error) == 0;
  }
  for (size_t i = 0; fine && i < ARRAY_LEN(trial->shown); i++) {
    fine = memmem(out.text, out.length, trial->shown[i], strlen(trial->shown[i])) != NULL;
  }
  jinja_output_free(&out);
  json_free(doc);
  return fine;
}

void chat_try_shapes(completions_t *live) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  live->rules = (history_rules_t){.refused = SHAPE_LATE_SYSTEM};
  if (live->templates == NULL || !chat_templates_any(live->templates)) return;
  if (json_parse(tools, sizeof tools - 1, &json_limits_request, &doc, &error) != 0) return;
  const json_t *functions = chat_takes_tools(live) ? json_root(doc) : NULL;
  bool chats = takes(live, &plain, NULL), calls = takes(live, &with_call, functions);
  live->rules.refused = 0;
  for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
    const shape_trial_t *trial = &shapes[i];
    bool of_calls = trial->shape >= SHAPE_CALL_WITHOUT_TEXT;
    if (of_calls ? !calls : !chats) continue;
    if (takes(live, trial, of_calls ? functions : NULL)) continue;
    live->rules.refused |= trial->shape;
    log_line(LOG_INFO, "load", "the chat template does not take %s", trial->name);
  }
  if (chats && !takes(live, &with_result, functions)) {
    live->rules.refused |= SHAPE_CALLS | SHAPE_CALL_WITHOUT_TEXT;
    log_line(LOG_INFO, "load", "the chat template does not take %s", with_result.name);
  }
  if (!chats) live->rules.refused |= SHAPE_LATE_SYSTEM;
  if (calls && !takes(live, &foreign_ids, functions)) live->rules.ids = CALL_IDS_NINE;
  json_free(doc);
}
