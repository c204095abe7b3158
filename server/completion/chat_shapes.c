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
#define CALL(id, key)                                                                              \
  "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"zeta_f\",\"arguments\":"      \
  "\"{\\\"" key "\\\": 3}\"}}"
#define CALLS(content, id)                                                                         \
  "{\"role\":\"assistant\",\"content\":" content ",\"tool_calls\":[" CALL(id, "zeta_n") "]}"
#define RESULT(id, text)                                                                           \
  "{\"role\":\"tool\",\"name\":\"zeta_f\",\"tool_call_id\":\"" id "\",\"content\":\"" text "\"}"
#define NINE "zetaCall7"
#define OTHER_NINE "zetaCall8"
#define TWO_CALLS                                                                                  \
  "{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[" CALL(NINE, "zeta_n") "," CALL(       \
      OTHER_NINE, "zeta_m") "]}"
#define THOUGHT_CALL                                                                               \
  "{\"role\":\"assistant\",\"content\":\"b\",\"reasoning_content\":\"t\",\"tool_calls\":[" CALL(   \
      NINE, "n") "]}"
#define TWO_RESULTS RESULT(NINE, "zeta-7") "," RESULT(OTHER_NINE, "zeta-8")
#define END SAYS("assistant", "zeta-c") "," SAYS("user", "zeta-d")
#define FOREIGN "call_zeta7FD1aGJk3mPqRsTu"

typedef struct shape_trial {
  const char *messages;
  const char *shown[3]; /* texts that the prompt must have; NULL = none */
  const char *name;
  unsigned shape;
} shape_trial_t;

#define ANSWERED(content, id)                                                                      \
  "[" SAYS("user", "a") "," CALLS(content, id) "," RESULT(id, "zeta-7") "," END "]"

static const shape_trial_t plain = {
    "[" SAYS("user", "zeta-a") "," SAYS("assistant", "zeta-b") "," SAYS("user", "zeta-c") "]",
    {"zeta-a", "zeta-c"},
    "",
    0};

static const shape_trial_t with_call = {ANSWERED("\"b\"", NINE), {"zeta_f", "zeta-7"}, "", 0};
static const shape_trial_t foreign_ids = {ANSWERED("\"b\"", FOREIGN), {"zeta_f", "zeta-7"}, "", 0};

/* In conversations without calls. */
static const shape_trial_t shapes[] = {
    {"[" SAYS("system", "zeta-s") "," SAYS("user", "zeta-a") "]",
     {"zeta-s", "zeta-a"},
     "a system message",
     SHAPE_SYSTEM},
    {"[" SAYS("system", "zeta-s") "]", {"zeta-s"}, "a system message alone", SHAPE_SYSTEM_ALONE},
    {"[" SAYS("system", "zeta-s") "," SAYS("system", "zeta-t") "," SAYS("user", "zeta-a") "]",
     {"zeta-s", "zeta-t", "zeta-a"},
     "two system messages",
     SHAPE_TWO_SYSTEMS},
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
    {"[" SAYS("user", "a") "," SAYS("zeta-role", "zeta-b") "," END "]",
     {"zeta-role", "zeta-b"},
     "a role that it does not name",
     SHAPE_OTHER_ROLE}};

/* In conversations with calls; where the template shows none, the first two are tried. */
static const shape_trial_t call_shapes[] = {
    {ANSWERED("\"b\"", NINE),
     {"zeta-7", "zeta-d"},
     "calls and their results",
     SHAPE_CALLS | SHAPE_CALL_WITHOUT_TEXT},
    {ANSWERED("null", NINE), {"zeta-7", "zeta-d"}, "a call without text", SHAPE_CALL_WITHOUT_TEXT},
    {"[" CALLS("\"b\"", NINE) "," RESULT(NINE, "zeta-7") "," END "]",
     {"zeta_n", "zeta-7"},
     "a call at the start",
     SHAPE_ANSWER_FIRST},
    {"[" SAYS("user", "a") "," RESULT(NINE, "zeta-7") "," END "]",
     {"zeta-7", "zeta-d"},
     "a result without its call",
     SHAPE_LOST_RESULT},
    {"[" SAYS("user", "a") "," CALLS("\"b\"", NINE) "," SAYS("user", "zeta-b") "," END "]",
     {"zeta_f", "zeta-b"},
     "a call without a result",
     SHAPE_OPEN_CALL},
    {"[" SAYS("user", "a") "," TWO_CALLS "," TWO_RESULTS "," END "]",
     {"zeta_n", "zeta_m", "zeta-8"},
     "two calls beside each other",
     SHAPE_TWO_CALLS},
    {"[" SAYS("user", "a") "," THOUGHT_CALL "," RESULT(NINE, "zeta-7") "," END "]",
     {"zeta-7", "zeta-d"},
     "a call beside a text and thoughts",
     SHAPE_TEXT_OF_CALL},
    {"[" SAYS("user", "a") "," CALLS("\"zeta-b\"", NINE) "," RESULT(NINE, "zeta-7") "," SAYS(
         "assistant", "c") "," SAYS("user", "d") "," CALLS("\"zeta-e\"",
                                                           OTHER_NINE) "," RESULT(OTHER_NINE,
                                                                                  "zeta-8") "," END
                                                                                            "]",
     {"zeta-b", "zeta-e", "zeta-8"},
     "a text beside a call",
     SHAPE_TEXT_HIDDEN},
    {"[" SAYS("system", "zeta-s") "," SAYS("user", "a") "," CALLS("\"\"", NINE) "," RESULT(
         NINE, "zeta-7") "]",
     {"zeta-s", "zeta-7"},
     "a system message where the last message is no user's",
     SHAPE_SYSTEM_HIDDEN}};

static const char tools[] =
    "[{\"type\":\"function\",\"function\":{\"name\":\"zeta_f\",\"description\":\"d\","
    "\"parameters\":{\"type\":\"object\",\"properties\":{\"n\":{\"type\":\"integer\"}}}}}]";

/* Renders a shape. Returns true if the template takes it and shows what it must, and no null. */
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
  for (size_t i = 0; fine && i < ARRAY_LEN(trial->shown) && trial->shown[i] != NULL; i++) {
    fine = memmem(out.text, out.length, trial->shown[i], strlen(trial->shown[i])) != NULL;
  }
  if (fine && trial->shape == SHAPE_CALL_WITHOUT_TEXT)
    fine = memmem(out.text, out.length, "None", 4) == NULL;
  jinja_output_free(&out);
  json_free(doc);
  return fine;
}

/* Tries a list of shapes; what is refused is added to *refused and logged. */
static void try_shapes(const completions_t *live, const shape_trial_t *trials, size_t count,
                       const json_t *functions, unsigned *refused) {
  for (size_t i = 0; i < count; i++) {
    if ((trials[i].shape & ~*refused) == 0 || takes(live, &trials[i], functions)) continue;
    *refused |= trials[i].shape;
    log_line(LOG_INFO, "load", "the chat template does not take %s%s", trials[i].name,
             functions != NULL ? " beside tools" : "");
  }
}

/* What the template refuses in requests with these functions, or with none. */
static unsigned refused_beside(completions_t *live, const json_t *functions) {
  unsigned refused = 0;
  bool chats = takes(live, &plain, functions), calls = takes(live, &with_call, functions);
  if (chats) try_shapes(live, shapes, ARRAY_LEN(shapes), functions, &refused);
  if (!chats) refused |= SHAPE_LATE_SYSTEM;
  size_t count = calls ? ARRAY_LEN(call_shapes) : chats ? 2 : 0;
  try_shapes(live, call_shapes, count, functions, &refused);
  if (calls && !takes(live, &foreign_ids, functions)) live->rules.ids = CALL_IDS_NINE;
  return refused;
}

void chat_try_shapes(completions_t *live) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  live->rules = (history_rules_t){.refused = {SHAPE_LATE_SYSTEM, SHAPE_LATE_SYSTEM}};
  if (live->templates == NULL || !chat_templates_any(live->templates)) return;
  if (json_parse(tools, sizeof tools - 1, &json_limits_request, &doc, &error) != 0) return;
  live->rules.templates = live->templates;
  live->rules.refused[0] = live->rules.refused[1] = refused_beside(live, NULL);
  if (chat_takes_tools(live)) live->rules.refused[1] = refused_beside(live, json_root(doc));
  json_free(doc);
}
