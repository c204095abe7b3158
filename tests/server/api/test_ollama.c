/* test_ollama.c: /api/...: the body of chat that a request becomes, names, errors, both answers. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include "server/ollama/ollama.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(ollama, .init = fake_start, .fini = fake_stop, .timeout = 60);

#define MODEL "\"model\":\"tiny\""
#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* ---- the request ---- */

typedef int translator_t(completion_t *, reader_t *, const json_t *, buffer_t *);

/* The body of chat, or the error, as text that is malloc'ed. */
static char *translated(translator_t *translator, const char *body, bool strict) {
  static const engine_info_t *info;
  info = engine_info(server.engine);
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  completion_t completion = {.server = &server, .info = info};
  field_limits_t limits = {.vocab_size = FAKE_VOCAB, .strict = strict};
  reader_t reader = {.limits = &limits, .arena = &completion.arena, .error = &error};
  buffer_t chat = {0};
  size_t length;
  ASSERT_EQ_FOR(json_parse(body, strlen(body), &json_limits_request, &doc, &error), 0, "%s", body);
  int code = translator(&completion, &reader, json_root(doc), &chat);
  char *text = code == 0 ? buffer_detach(&chat, &length) : strdup(error.message);
  buffer_free(&chat);
  arena_free(&completion.arena);
  json_free(doc);
  return text;
}

static void becomes(translator_t *translator, const char *body, const char *expected) {
  char *text = translated(translator, body, true);
  EXPECT_STR_EQ(text, expected);
  free(text);
}

#define END "," MODEL ",\"max_tokens\":-1,\"stream\":true}"
#define MESSAGES(list) "{" MODEL ",\"messages\":[" list "]}"
#define CHAT(list) "{\"messages\":[" list "]" END
#define USER(text) "{\"role\":\"user\",\"content\":\"" text "\"}"

Test(ollama, messages_keep_their_spelling) {
  becomes(ollama_translate_chat, MESSAGES(USER("a")), CHAT(USER("a")));
  becomes(ollama_translate_chat,
          MESSAGES("{\"role\":\"system\",\"content\":\"s\"}," USER(
              "a") ",{\"role\":\"assistant\","
                   "\"content\":\"b\",\"thinking\":\"t\"}," USER("c")),
          CHAT("{\"role\":\"system\",\"content\":\"s\"}," USER(
              "a") ",{\"role\":\"assistant\","
                   "\"content\":\"b\",\"reasoning_content\":\"t\"}," USER("c")));
  becomes(ollama_translate_chat, MESSAGES(USER("a") ",{\"role\":\"assistant\",\"content\":\"b\"}"),
          "{\"messages\":[" USER("a") ",{\"role\":\"assistant\",\"content\":\"b\"}],"
                                      "\"continue_final_message\":true" END);
  becomes(ollama_translate_chat,
          MESSAGES("{\"role\":\"user\",\"content\":\"a\",\"images\":[\"QUI=\",\"data:image/gif;"
                   "base64,QUI=\"]}"),
          CHAT("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":"
               "\"data:image/png;base64,QUI=\"}},{\"type\":\"image_url\",\"image_url\":{\"url\":"
               "\"data:image/gif;base64,QUI=\"}},{\"type\":\"text\",\"text\":\"a\"}]}"));
}

#define CALL(id, name)                                                                             \
  "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                        \
  "\",\"arguments\":\"{\\\"x\\\":1}\"}}"
#define CALLED(name) "{\"function\":{\"name\":\"" name "\",\"arguments\":{\"x\":1},\"index\":0}}"

/* Older clients send no ids: a result belongs to the first call of its name, or to the first. */
Test(ollama, results_find_their_calls) {
  becomes(ollama_translate_chat,
          MESSAGES(USER("a") ",{\"role\":\"assistant\",\"tool_calls\":[" CALLED("f") "," CALLED(
              "g") "]},{\"role\":\"tool\",\"content\":\"2\",\"tool_name\":\"g\"},"
                   "{\"role\":\"tool\",\"content\":\"1\"}"),
          CHAT(USER("a") ",{\"role\":\"assistant\",\"tool_calls\":[" CALL("call_0", "f") "," CALL(
              "call_1", "g") "]},{\"role\":\"tool\",\"content\":\"2\",\"name\":\"g\","
                             "\"tool_call_id\":\"call_1\"},{\"role\":\"tool\",\"content\":\"1\","
                             "\"tool_call_id\":\"call_0\"}"));
  becomes(ollama_translate_chat,
          MESSAGES(USER("a") ",{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"i\",\"function\":{"
                             "\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},{\"role\":"
                             "\"tool\",\"content\":\"1\",\"tool_call_id\":\"i\"}"),
          CHAT(USER("a") ",{\"role\":\"assistant\",\"tool_calls\":[" CALL(
              "i", "f") "]},{\"role\":\"tool\",\"content\":\"1\",\"tool_call_id\":\"i\"}"));
  /* one that answers nothing has no id: chat mends it, or refuses it */
  becomes(ollama_translate_chat,
          MESSAGES(USER("a") ",{\"role\":\"tool\",\"content\":\"1\",\"tool_name\":\"f\"}"),
          CHAT(USER("a") ",{\"role\":\"tool\",\"content\":\"1\",\"name\":\"f\"}"));
}

Test(ollama, options_have_the_names_of_chat) {
  becomes(ollama_translate_chat,
          "{" MODEL "," HI ",\"stream\":false,\"options\":{\"temperature\":0.5,\"top_k\":3,"
          "\"top_p\":0.9,\"min_p\":0.1,\"seed\":7,\"stop\":[\"x\"],\"num_predict\":9,"
          "\"repeat_penalty\":1.1,\"presence_penalty\":0.1,\"frequency_penalty\":0.2,"
          "\"repeat_last_n\":-1,\"num_ctx\":128,\"num_gpu\":99,\"mirostat\":0,\"typical_p\":1.0}}",
          "{" HI "," MODEL ",\"temperature\":0.5,\"top_k\":3,\"top_p\":0.9,\"min_p\":0.1,"
          "\"seed\":7,\"stop\":[\"x\"],\"repetition_penalty\":1.1,\"presence_penalty\":0.1,"
          "\"frequency_penalty\":0.2,\"max_tokens\":9,\"stream\":false}");
  /* a window without tokens is no penalty; -2 fills the context, as -1 does */
  becomes(ollama_translate_chat,
          "{" MODEL "," HI ",\"options\":{\"repeat_penalty\":1.1,\"repeat_last_n\":0,"
          "\"penalize_newline\":false,\"num_predict\":-2}}",
          "{" HI END);
}

Test(ollama, generate_is_chat_or_completions) {
  becomes(ollama_translate_generate, "{" MODEL ",\"prompt\":\"hi\"}", "{" HI END);
  becomes(ollama_translate_generate,
          "{" MODEL ",\"prompt\":\"hi\",\"system\":\"s\",\"format\":\"json\"}",
          "{\"messages\":[{\"role\":\"system\",\"content\":\"s\"}," USER(
              "hi") "]," MODEL ",\"max_tokens\":-1,\"format\":\"json\",\"stream\":true}");
  becomes(ollama_translate_generate, "{" MODEL ",\"prompt\":\"hi\",\"raw\":true}",
          "{\"prompt\":\"hi\"" END);
  becomes(ollama_translate_generate, "{" MODEL ",\"prompt\":\"hi\",\"suffix\":\"b\"}",
          "{\"prompt\":\"hi\",\"suffix\":\"b\"" END);
  becomes(ollama_translate_generate, "{" MODEL ",\"template\":\"\",\"context\":[]}",
          "{\"prompt\":[0],\"max_tokens\":1," MODEL "}");
  becomes(ollama_translate_chat, "{" MODEL ",\"keep_alive\":\"-1h2.5m\"}",
          "{\"prompt\":[0],\"max_tokens\":1," MODEL "}");
}

/* What would change an answer is done or refused, and the message says what and where. */
Test(ollama, refusals) {
  static const struct {
    const char *body, *message;
  } rows[] = {
      {"{" HI "}", "model is required"},
      {"{\"model\":\"x\"," HI "}", "model 'x' not found; this server has 'tiny:latest'"},
      {"{\"model\":\"tiny:7b\"," HI "}", "model 'tiny:7b' not found"},
      {"{" MODEL "," HI ",\"options\":{\"mirostat\":2}}", "'options.mirostat' is not supported"},
      {"{" MODEL "," HI ",\"options\":{\"tfs_z\":0.5}}", "'options.tfs_z'"},
      {"{" MODEL "," HI ",\"options\":{\"top_k\":1.5}}", "'options.top_k': expected an integer"},
      {"{" MODEL "," HI ",\"options\":{\"top_p\":1.01}}", "'options.top_p'"},
      {"{" MODEL "," HI ",\"options\":{\"zebra\":1}}", "Unknown parameter: 'options.zebra'"},
      {"{" MODEL "," HI ",\"options\":{\"num_predict\":0}}", "'options.num_predict': 0"},
      {"{" MODEL "," HI ",\"options\":{\"num_predict\":-3}}",
       "'options.num_predict': integer below"},
      {"{" MODEL "," HI ",\"options\":{\"num_ctx\":129}}",
       "'options.num_ctx': 129 is more than the context of this server, 128 tokens"},
      {"{" MODEL "," HI ",\"options\":{\"repeat_penalty\":1.1,\"repeat_last_n\":64}}",
       "'options.repeat_last_n'"},
      {"{" MODEL "," HI ",\"options\":{\"repeat_penalty\":1.1,\"penalize_newline\":false}}",
       "'options.penalize_newline'"},
      {"{" MODEL "," HI ",\"options\":{\"stop\":[\"\"]}}", "'options.stop'"},
      {"{" MODEL "," HI ",\"options\":3}", "'options': expected an object"},
      {"{" MODEL "," HI ",\"temperature\":1}", "'temperature' is not supported here; write it in"},
      {"{" MODEL "," HI ",\"keep_alive\":\"5\"}", "'keep_alive': expected a duration"},
      {"{" MODEL "," HI ",\"keep_alive\":\"5 m\"}", "'keep_alive'"},
      {"{" MODEL "," HI ",\"keep_alive\":true}", "'keep_alive'"},
      {"{" MODEL ",\"keep_alive\":0}", "stays loaded"},
      {"{" MODEL ",\"keep_alive\":\"0m\",\"messages\":[]}", "stays loaded"},
      {"{" MODEL "," HI ",\"think\":true}", "\"tiny\" does not support thinking"},
      {"{" MODEL "," HI ",\"template\":\"x\"}", "'template' is not supported"},
      {"{" MODEL ",\"messages\":[{\"role\":\"user\",\"content\":[]}]}", "'messages[0].content'"},
      {"{" MODEL ",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"images\":[3]}]}",
       "'messages[0].images[0]'"},
      {"{" MODEL ",\"messages\":[{\"role\":\"user\",\"content\":\"a\",\"imges\":[]}]}",
       "'messages.imges'"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char *text = translated(ollama_translate_chat, rows[i].body, true);
    cr_expect(strstr(text, rows[i].message) != NULL, "%s: %s", rows[i].body, text);
    free(text);
  }
}

Test(ollama, refusals_of_generate) {
  static const struct {
    const char *fields, *message;
  } rows[] = {{"\"context\":[1]", "'context' is not supported; send the conversation to /api/chat"},
              {"\"raw\":true,\"system\":\"s\"", "'system' is not supported with 'raw'"},
              {"\"raw\":true,\"suffix\":\"s\"", "'suffix' is not supported with 'raw'"},
              {"\"raw\":true,\"images\":[\"QQ==\"]", "'images' is not supported with 'raw'"},
              {"\"raw\":true,\"logprobs\":true", "'logprobs' is not supported with 'raw'"},
              {"\"suffix\":\"s\",\"think\":true", "'think' is not supported with 'suffix'"},
              {"\"images\":[true]", "'images[0]': expected a string"},
              {"\"width\":64", "'width' is not supported"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char body[256];
    snprintf(body, sizeof body, "{" MODEL ",\"prompt\":\"a\",%s}", rows[i].fields);
    char *text = translated(ollama_translate_generate, body, true);
    cr_expect(strstr(text, rows[i].message) != NULL, "%s: %s", body, text);
    free(text);
  }
}

/* A name may lack its tag, or have the one that nobody writes, on either side. */
Test(ollama, names) {
  static const struct {
    const char *asked, *found;
  } rows[] = {{"tiny", "tiny"},  {"tiny:latest", "tiny"}, {"a/b:q4", "a/b:q4"},
              {"a/b", NULL},     {"a/b:latest", NULL},    {"c:latest", "c:latest"},
              {"c", "c:latest"}, {":latest", NULL},       {"tiny:", NULL},
              {"TINY", NULL}};
  char out[OLLAMA_NAME_MAX];
  char *served[] = {"tiny", "a/b:q4", "c:latest"};
  config_list_t names = {.items = served, .count = 3};
  inferd_error_t error;
  ASSERT_EQ(model_names_set(server.live, &names, ""), 0);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    json_t name = {
        .type = JSON_STRING, .text = rows[i].asked, .length = (uint32_t)strlen(rows[i].asked)};
    int code = ollama_find_model(&server, &name, out, &error);
    EXPECT_EQ_FOR(code, rows[i].found != NULL ? 0 : ERR_MODEL_NOT_FOUND, "%s", rows[i].asked);
    if (code == 0) EXPECT_STR_EQ(out, rows[i].found);
  }
  EXPECT_STR_EQ(ollama_listed_name("tiny", out), "tiny:latest");
  EXPECT_STR_EQ(ollama_listed_name("host:80/tiny", out), "host:80/tiny:latest");
  EXPECT_STR_EQ(ollama_listed_name("a/b:q4", out), "a/b:q4");
}

/* ---- the answer ---- */

/* Puts X in the place of every time and duration of a body. */
static const char *steady(fake_exchange_t *exchange) {
  static const char *const keys[] = {"\"created_at\":\"", "_duration\":"};
  for (size_t i = 0; i < 2; i++) {
    for (char *at = exchange->body; (at = strstr(at, keys[i])) != NULL;) {
      at += strlen(keys[i]);
      size_t length = strspn(at, "0123456789-:.TZ");
      cr_assert_gt(length, 0);
      memmove(at + 1, at + length, strlen(at + length) + 1);
      *at = 'X';
    }
  }
  return exchange->body;
}

#define LINE(message) "{" MODEL ",\"created_at\":\"X\",\"message\":{" message "},\"done\":false}\n"
#define TIMES(reason, prompt, generated)                                                           \
  "\"done\":true,\"done_reason\":\"" reason                                                        \
  "\",\"total_duration\":X,\"load_duration\":X,\"prompt_eval_count\":" prompt                      \
  ",\"prompt_eval_duration\":X,\"eval_count\":" generated ",\"eval_duration\":X}"
#define OF "\"role\":\"assistant\","

Test(ollama, a_stream_is_lines) {
  fake_exchange_t *exchange = fake_call(api_ollama_chat, "{" MODEL "," HI "}");
  cr_assert(!exchange->answered, "%s", exchange->body);
  request_t *request = fake_engine.requests[0];
  fake_token(request, 'a', "a\n");
  fake_deliver();
  fake_token(request, FAKE_THE, "");
  fake_deliver();
  fake_token(request, 'b', "\"b");
  fake_done(request, FINISH_LENGTH, "c");
  fake_deliver();
  cr_assert(exchange->ended);
  EXPECT_STR_EQ(
      steady(exchange),
      LINE(OF "\"content\":\"a\\n\"")
          LINE(OF "\"content\":\"\\\"bc\"") "{" MODEL ",\"created_at\":\"X\",\"message\":{" OF
                                            "\"content\":\"\"}," TIMES("length", "11", "3") "\n");
  fake_exchange_free(exchange);
}

/* Models may write their arguments on several lines. */
Test(ollama, a_call_stands_on_one_line) {
  fake_exchange_t *exchange = fake_call(
      api_ollama_chat, "{" MODEL "," HI ",\"tools\":[{\"type\":\"function\",\"function\":{"
                       "\"name\":\"f\",\"parameters\":{\"type\":\"object\"}}}]}");
  request_t *request = fake_engine.requests[0];
  fake_token(request, 'a', "<tool_call>\n{\"name\": \"f\", ");
  fake_token(request, 'a', "\"arguments\": {\n  \"a\": 1.50,\r\n");
  fake_token(request, 'a', "  \"b\": \"\\n\"");
  fake_deliver();
  fake_token(request, 'b', "}}\n</tool_call>");
  fake_done(request, FINISH_STOP, "");
  fake_deliver();
  const char *call = strstr(steady(exchange), "\"function\":");
  cr_assert(call != NULL, "%s", exchange->body);
  const char *wanted =
      "\"function\":{\"index\":0,\"name\":\"f\",\"arguments\":{\"a\":1.50,\"b\":\"\\n\"}}}"
      "]},\"done\":false}\n{\"model\"";
  cr_expect(strncmp(call, wanted, strlen(wanted)) == 0, "%s", call);
  fake_exchange_free(exchange);
}

Test(ollama, a_whole_answer_names_the_model_as_it_was_asked) {
  fake_exchange_t *exchange = fake_call(
      api_ollama_generate, "{\"model\":\"tiny:latest\",\"prompt\":\"hi\",\"stream\":false}");
  request_t *request = fake_engine.requests[0];
  fake_token(request, 'a', "a");
  fake_done(request, FINISH_STOP, "");
  fake_deliver();
  EXPECT_STR_EQ(steady(exchange), "{\"model\":\"tiny:latest\",\"created_at\":\"X\",\"response\":"
                                  "\"a\"," TIMES("stop", "11", "1"));
  fake_exchange_free(exchange);
}

/* An empty line would end clients that read each as JSON, so what keeps a connection open is a line
 * that says nothing; an error in the midst is a line, too. */
Test(ollama, pings_and_errors_are_lines) {
  fake_exchange_t *exchange = fake_call(api_ollama_chat, "{" MODEL "," HI "}");
  completions_tick(&server, fake_engine.requests[0]->arrival_ns + 3600000000000u);
  fake_fail(fake_engine.requests[0], ERR_INTERNAL);
  fake_deliver();
  cr_assert(exchange->ended);
  EXPECT_STR_EQ(steady(exchange),
                LINE(OF "\"content\":\"\"") "{\"error\":\"The request failed inside the engine. "
                                            "Other requests are not affected.\"}\n");
  fake_exchange_free(exchange);
}

Test(ollama, nothing_asked_is_a_load) {
  static const struct {
    void (*handle)(exchange_t *);
    const char *body, *part;
  } rows[] = {{api_ollama_chat, "{" MODEL "}",
               "\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true"},
              {api_ollama_chat, "{" MODEL ",\"messages\":[]}", "\"done_reason\":\"load\""},
              {api_ollama_generate, "{" MODEL ",\"keep_alive\":\"5m\"}",
               "\"response\":\"\",\"done\":true,\"done_reason\":\"load\""},
              {api_ollama_generate, "{" MODEL ",\"prompt\":\"\"}", "\"done_reason\":\"load\""}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    fake_exchange_t *exchange = fake_call(rows[i].handle, rows[i].body);
    ASSERT_EQ_FOR(exchange->status, 200, "%s", exchange->body);
    cr_expect(strstr(exchange->body, rows[i].part) != NULL, "%s", exchange->body);
    fake_exchange_free(exchange);
  }
  ASSERT_EQ(fake_engine.num_requests, 0);
}

/* The files went away: the lists say what the server knows itself. */
Test(ollama, lists_without_files) {
  static void (*const handlers[])(exchange_t *) = {api_ollama_tags, api_ollama_ps};
  for (int i = 0; i < 2; i++) {
    fake_exchange_t *exchange = fake_call_path(handlers[i], "");
    ASSERT_EQ(exchange->status, 200);
    cr_expect(strstr(exchange->body, "\"name\":\"tiny:latest\"") != NULL, "%s", exchange->body);
    fake_exchange_free(exchange);
  }
  fake_exchange_t *exchange = fake_call(api_ollama_show, "{" MODEL "}");
  ASSERT_EQ(exchange->status, 200);
  cr_expect(strstr(exchange->body, "\"template\":\"fake\"") != NULL, "%s", exchange->body);
  cr_expect(strstr(exchange->body, "\"capabilities\":[\"completion\",\"tools\"") != NULL, "%s",
            exchange->body);
  fake_exchange_free(exchange);
}

/* A client that leaves while the files are read leaves nothing behind. */
Test(ollama, a_client_leaves_before_the_list) {
  fake_exchange_t *exchange = fake_exchange_new("", 0);
  api_ollama_tags(&exchange->public);
  fake_exchange_gone(exchange, "client_gone");
  fake_run();
  fake_exchange_free(exchange);
}
