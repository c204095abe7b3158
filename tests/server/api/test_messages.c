/* test_messages.c: /v1/messages: the body of chat that a request becomes, errors, both answers. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include "server/messages/messages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(messages, .init = fake_start, .fini = fake_stop, .timeout = 60);

#define HI "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"

/* ---- the request ---- */

/* Translates a body. Returns the body of chat, malloc'ed, or NULL with *error set. */
static char *translate(const char *body, bool late_system, bool strict, inferd_error_t *error) {
  json_doc_t *doc = NULL;
  arena_t arena = {0};
  field_limits_t limits = {.vocab_size = FAKE_VOCAB, .strict = strict};
  reader_t reader = {.limits = &limits, .arena = &arena, .error = error};
  messages_state_t state = {0};
  buffer_t chat = {0};
  size_t length;
  ASSERT_EQ_FOR(json_parse(body, strlen(body), &json_limits_request, &doc, error), 0, "%s", body);
  int code = messages_translate(&reader, json_root(doc), late_system, false, &state, &chat);
  char *text = code == 0 ? buffer_detach(&chat, &length) : NULL;
  buffer_free(&chat);
  arena_free(&arena);
  json_free(doc);
  return text;
}

static void becomes(const char *body, const char *expected) {
  inferd_error_t error = {0};
  char *chat = translate(body, true, false, &error);
  ASSERT_STR_EQ_FOR(chat != NULL ? chat : error.message, expected, "%s", body);
  free(chat);
}

#define MOST "\"max_tokens\":9"
#define BODY(messages) "{" MOST ",\"messages\":[" messages "]}"
#define CHAT(messages) "{\"messages\":[" messages "]," MOST "}"
#define USER(content) "{\"role\":\"user\",\"content\":" content "}"
#define ASSISTANT(content) "{\"role\":\"assistant\",\"content\":" content "}"
#define SYSTEM(content) "{\"role\":\"system\",\"content\":" content "}"
#define TEXT(text) "{\"type\":\"text\",\"text\":\"" text "\"}"

Test(messages, one_spelling_of_texts) {
  const char *one = CHAT(USER("\"a\""));
  becomes(BODY(USER("\"a\"")), one);
  becomes(BODY(USER("[" TEXT("a") "]")), one);
  becomes(BODY(USER("[" TEXT("") "," TEXT("a") "]")), one);
  becomes(
      BODY(USER("[{\"type\":\"text\",\"text\":\"a\",\"cache_control\":{},\"citations\":null}]")),
      one);
  becomes(BODY(USER("[" TEXT("a") "," TEXT("b") "]")), CHAT(USER("[" TEXT("a") "," TEXT("b") "]")));
  becomes(BODY(USER("\"\"")), CHAT(USER("\"\"")));
  becomes(BODY(USER("[]")), CHAT(USER("\"\"")));
}

Test(messages, system_prompts) {
  const char *one = "{\"messages\":[" SYSTEM("\"a\\n\\nb\"") "," USER("\"u\"") "]," MOST "}";
  becomes("{" MOST ",\"system\":\"a\\n\\nb\",\"messages\":[" USER("\"u\"") "]}", one);
  becomes("{" MOST ",\"system\":[" TEXT("a") "," TEXT("b") "],\"messages\":[" USER("\"u\"") "]}",
          one);
  becomes("{" MOST ",\"system\":[" TEXT("x-anthropic-billing-header: cc=1;") "," TEXT(
              "a") "],\"messages\":[" SYSTEM("\"b\"") "," USER("\"u\"") "]}",
          one);
  becomes("{" MOST ",\"system\":[],\"messages\":[" USER("\"u\"") "]}", CHAT(USER("\"u\"")));
  becomes("{" MOST ",\"system\":\"\",\"messages\":[" USER("\"u\"") "]}", CHAT(USER("\"u\"")));
  becomes(BODY(USER("\"u\"") "," SYSTEM("[" TEXT("s") "]")),
          CHAT(USER("\"u\"") "," SYSTEM("\"s\"")));
}

#define CALL(id, name, arguments)                                                                  \
  "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" name                        \
  "\",\"arguments\":\"" arguments "\"}}"

Test(messages, turns_of_tools) {
  const char *used = "{\"type\":\"tool_use\",\"id\":\"t1\",\"name\":\"f\",\"input\":{\"b\":1.50,"
                     "\"a\":[null]},\"caller\":{}}";
  char body[1024], chat[1024];
  snprintf(
      body, sizeof body,
      BODY(USER("\"u\"") ",{\"role\":\"assistant\",\"content\":[{\"type\":\"thinking\","
                         "\"thinking\":\"hm\",\"signature\":\"x\"},{\"type\":"
                         "\"redacted_thinking\",\"data\":\"y\"}," TEXT("a") ",%s]}," USER(
                             "[" TEXT("more") ",{\"type\":\"tool_result\",\"tool_use_id\":\"t1\","
                                              "\"content\":[" TEXT("r") "],\"is_error\":true}]")),
      used);
  snprintf(chat, sizeof chat,
           CHAT(USER("\"u\"") ",{\"role\":\"assistant\",\"reasoning_content\":\"hm\",\"content\":"
                              "\"a\",\"tool_calls\":[%s]},{\"role\":\"tool\",\"tool_call_id\":"
                              "\"t1\",\"content\":\"r\"}," USER("\"more\"")),
           CALL("t1", "f", "{\\\"b\\\":1.50,\\\"a\\\":[null]}"));
  becomes(body, chat);
  /* what the assistant said in two messages is one, and a result may be a string or nothing */
  becomes(BODY(USER("\"u\"") "," ASSISTANT(
              "\"a\"") ",{\"role\":\"assistant\",\"content\":[{"
                       "\"type\":\"tool_use\",\"id\":\"t\",\"name\":"
                       "\"f\",\"input\":{}}]}," USER(
                           "[{\"type\":\"tool_result\",\"tool_use_id\":\"t\"},{\"type\":\"tool_"
                           "result\","
                           "\"tool_use_id\":\"s\",\"content\":\"x\"},{\"type\":\"tool_result\","
                           "\"tool_use_id\":\"r\",\"content\":[{\"type\":\"tool_reference\","
                           "\"tool_name\":\"g\"}]}]")),
          CHAT(USER("\"u\"") ",{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[" CALL(
              "t", "f", "{}") "]},{\"role\":\"tool\",\"tool_call_id\":\"t\",\"content\":"
                              "\"\"},{\"role\":\"tool\",\"tool_call_id\":\"s\",\"content\":"
                              "\"x\"},{\"role\":\"tool\",\"tool_call_id\":\"r\","
                              "\"content\":\"g\"}"));
}

Test(messages, a_last_message_of_the_assistant_is_continued) {
  becomes(BODY(USER("\"u\"") "," ASSISTANT("[" TEXT("a") "]")),
          "{\"messages\":[" USER("\"u\"") "," ASSISTANT(
              "\"a\"") "]," MOST ",\"continue_final_message\":true}");
}

#define FUNCTION(rest) "{\"type\":\"function\",\"function\":{" rest "}}"

Test(messages, tools) {
  becomes(
      "{" MOST "," HI ",\"tools\":[{\"name\":\"f\",\"description\":\"d\",\"input_schema\":{"
      "\"$schema\":\"x\",\"type\":\"object\"},\"strict\":true,\"cache_control\":{},"
      "\"eager_input_streaming\":true,\"input_examples\":[1],\"type\":\"custom\"},"
      "{\"name\":\"g\",\"input_schema\":{},\"defer_loading\":true},"
      "{\"name\":\"h\",\"input_schema\":{},\"type\":null}],"
      "\"tool_choice\":{\"type\":\"any\",\"disable_parallel_tool_use\":true}}",
      "{" HI ",\"tools\":[" FUNCTION(
          "\"name\":\"f\",\"description\":\"d\",\"parameters\":{"
          "\"$schema\":\"x\",\"type\":\"object\"},\"strict\":true") "," FUNCTION("\"name\":\"h\","
                                                                                 "\"parameters\":{"
                                                                                 "}") "],\"tool_"
                                                                                      "choice\":"
                                                                                      "\"required\""
                                                                                      ","
                                                                                      "\"parallel_"
                                                                                      "tool_"
                                                                                      "calls\":"
                                                                                      "false," MOST
                                                                                      "}");
  becomes("{" MOST "," HI ",\"tools\":[],\"tool_choice\":{\"type\":\"none\"}}",
          "{" HI ",\"tool_choice\":\"none\"," MOST "}");
  becomes("{" MOST "," HI ",\"tool_choice\":{\"type\":\"tool\",\"name\":\"f\"}}",
          "{" HI ",\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}}," MOST
          "}");
  becomes("{" MOST "," HI ",\"tool_choice\":{\"type\":\"auto\"}}",
          "{" HI ",\"tool_choice\":\"auto\"," MOST "}");
}

Test(messages, other_fields) {
  becomes("{" MOST "," HI ",\"model\":\"tiny\",\"temperature\":0.50,\"top_p\":1,\"top_k\":4,"
          "\"stop_sequences\":[\"x\"],\"stream\":true,\"seed\":7,\"cache_salt\":\"s\","
          "\"metadata\":{\"user_id\":\"u\"},\"service_tier\":\"auto\",\"context_management\":{},"
          "\"container\":null,\"mcp_servers\":[]}",
          "{" HI ",\"model\":\"tiny\"," MOST ",\"temperature\":0.50,\"top_p\":1,\"top_k\":4,"
          "\"stop\":[\"x\"],\"stream\":true,\"seed\":7,\"cache_salt\":\"s\"}");
  becomes("{" MOST "," HI ",\"thinking\":{\"type\":\"adaptive\",\"display\":\"updates\"},"
          "\"chat_template_kwargs\":{\"a\":{\"b\":1},\"enable_thinking\":false}}",
          "{" HI ",\"chat_template_kwargs\":{\"a\":{\"b\":1},\"enable_thinking\":true}," MOST "}");
  becomes("{" MOST "," HI ",\"thinking\":{\"type\":\"disabled\"},\"output_config\":{\"effort\":"
          "\"low\",\"format\":{\"type\":\"json_schema\",\"schema\":{\"type\":\"object\"}}}}",
          "{" HI ",\"chat_template_kwargs\":{\"enable_thinking\":false},\"reasoning_effort\":"
          "\"low\",\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{"
          "\"type\":\"object\"}}}," MOST "}");
}

static void refused(const char *body, int code, const char *message) {
  inferd_error_t error = {0};
  char *chat = translate(body, true, true, &error);
  ASSERT_EQ_FOR(chat, NULL, "%s", body);
  ASSERT_EQ_FOR(error.code, code, "%s: %s", body, error.message);
  ASSERT_STR_EQ_FOR(error.message, message, "%s", body);
}

Test(messages, errors_name_the_place) {
#define WITH(field) "{" MOST "," HI "," field "}"
#define IN_USER(block) BODY(USER("[" TEXT("a") "," block "]"))
  refused("{" HI "}", ERR_MISSING_PARAMETER, "max_tokens: Field required");
  refused("{" MOST "}", ERR_MISSING_PARAMETER, "messages: Field required");
  refused(BODY(""), ERR_INVALID_VALUE, "messages: at least one message is required");
  refused(BODY("1"), ERR_INVALID_TYPE, "messages.0: expected an object, but got a number");
  refused(BODY("{\"role\":\"tool\",\"content\":\"\"}"), ERR_INVALID_VALUE,
          "messages.0.role: expected 'user', 'assistant' or 'system', but got 'tool'");
  refused(BODY("{\"role\":\"user\"}"), ERR_MISSING_PARAMETER, "messages.0.content: Field required");
  refused(BODY(USER("7")), ERR_INVALID_TYPE,
          "messages.0.content: expected a string or an array of blocks, but got a number");
  refused(IN_USER("{\"type\":\"image\",\"source\":{}}"), ERR_UNSUPPORTED_CONTENT_PART,
          "messages.0.content.1: image blocks are not supported by this model");
  refused(IN_USER("{\"type\":\"tool_use\"}"), ERR_UNSUPPORTED_CONTENT_PART,
          "messages.0.content.1: tool_use blocks are not supported by this model");
  refused(IN_USER("{\"type\":\"tool_result\"}"), ERR_MISSING_PARAMETER,
          "messages.0.content.1.tool_use_id: Field required");
  refused(IN_USER("{\"type\":\"tool_result\",\"tool_use_id\":\"a\",\"content\":[{\"type\":"
                  "\"document\"}]}"),
          ERR_UNSUPPORTED_CONTENT_PART,
          "messages.0.content.1.content.0: document blocks are not supported by this model");
  refused(
      BODY(ASSISTANT(
          "[{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\",\"input\":\"\"}]") "," USER("\"\"")),
      ERR_INVALID_TYPE, "messages.0.content.0.input: expected an object");
  refused(BODY(USER("\"\"") "," ASSISTANT("[{\"type\":\"thinking\",\"thinking\":\"\"}]")),
          ERR_INVALID_VALUE,
          "messages.1.content: the last message is of the assistant, so the answer continues it; "
          "it may have text blocks only");
  refused(WITH("\"system\":[{\"type\":\"image\"}]"), ERR_UNSUPPORTED_CONTENT_PART,
          "system.0: image blocks are not supported by this model");
  refused(WITH("\"tools\":[{\"type\":\"web_search_20250305\",\"name\":\"w\"}]"),
          ERR_UNSUPPORTED_PARAMETER,
          "tools.0: tools of type 'web_search_20250305' are not supported, only tools that the "
          "client runs");
  refused(WITH("\"tools\":[{\"name\":\"w\"}]"), ERR_MISSING_PARAMETER,
          "tools.0.input_schema: Field required");
  refused(WITH("\"tool_choice\":{\"type\":\"some\"}"), ERR_INVALID_VALUE,
          "tool_choice.type: expected 'auto', 'any', 'tool' or 'none', but got 'some'");
  refused(WITH("\"tool_choice\":{\"type\":\"tool\"}"), ERR_MISSING_PARAMETER,
          "tool_choice.name: Field required");
  refused(WITH("\"thinking\":{}"), ERR_INVALID_VALUE,
          "thinking.type: expected 'enabled', 'adaptive' or 'disabled', but got nothing");
  refused(WITH("\"output_config\":{\"format\":{\"type\":\"json\"}}"), ERR_INVALID_VALUE,
          "output_config.format.type: expected 'json_schema', but got 'json'");
  refused(WITH("\"temperature\":1.5"), ERR_INVALID_VALUE,
          "Invalid 'temperature': expected a number >= 0 and <= 1, but got 1.5 instead.");
  refused(WITH("\"mcp_servers\":[{}]"), ERR_UNSUPPORTED_PARAMETER,
          "The parameter 'mcp_servers' is not supported; the client runs the tools.");
  refused(WITH("\"other\":1"), ERR_UNKNOWN_PARAMETER, "Unknown parameter: 'other'.");
  refused(WITH("\"logprobs\":1"), ERR_UNSUPPORTED_PARAMETER,
          "The parameter 'logprobs' is not supported here.");
}

/* ---- the answer ---- */

static request_t *request_of(void) {
  return &server.live->first->inputs[0].request;
}

static fake_exchange_t *call(const char *fields) {
  char body[2048];
  snprintf(body, sizeof body, "{" HI "%s}", fields);
  fake_exchange_t *exchange = fake_call(api_messages, body);
  cr_assert(!exchange->answered, "%s: %s", exchange->error.message, exchange->body);
  return exchange;
}

static void generate(const char *text) {
  for (const char *at = text; *at != '\0'; at++) {
    char piece[2] = {*at, '\0'};
    fake_token(request_of(), (uint8_t)*at, piece);
    if ((at - text) % 3 == 2) fake_deliver();
  }
}

Test(messages, an_effort_without_effect_is_named) {
  fake_exchange_t *exchange = call("," MOST ",\"output_config\":{\"effort\":\"low\"}");
  fake_finish_all();
  cr_expect(strstr(exchange->headers, "x-inferd-ignored-params: output_config.effort\n") != NULL,
            "%s", exchange->headers);
  fake_exchange_free(exchange);
}

/* Makes the random letters of ids of calls dots. */
static const char *steady(fake_exchange_t *exchange) {
  char *at = exchange->body;
  while ((at = strstr(at, "toolu_")) != NULL) {
    for (at += 6; *at != '"'; at++) *at = '.';
  }
  return exchange->body;
}

#define HEAD "\"id\":\"msg_test-1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"tiny\","
#define COUNTS(input, output)                                                                      \
  "\"usage\":{\"input_tokens\":" input ",\"cache_creation_input_tokens\":0,"                       \
  "\"cache_read_input_tokens\":0,\"output_tokens\":" output "}"
#define EVENT(name, rest) "event: " name "\ndata: {\"type\":\"" name "\"" rest "}\n\n"
#define START(input)                                                                               \
  EVENT("message_start", ",\"message\":{" HEAD "\"content\":[],\"stop_reason\":null,"              \
                         "\"stop_sequence\":null," COUNTS(input, "1") "}")                         \
  EVENT("ping", "")
#define BEGIN(index, block)                                                                        \
  EVENT("content_block_start", ",\"index\":" index ",\"content_block\":{" block "}")
#define DELTA(index, delta)                                                                        \
  EVENT("content_block_delta", ",\"index\":" index ",\"delta\":{\"type\":" delta "}")
#define STOP(index) EVENT("content_block_stop", ",\"index\":" index)
#define FINISH(reason, string, input, output)                                                      \
  EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"" reason "\",\"stop_sequence\":" string    \
                         "}," COUNTS(input, output))                                               \
  EVENT("message_stop", "")

#define TOOLS ",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]"
static const char output[] =
    "<think>ab</think>hey<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</tool_call>";

Test(messages, whole_answer) {
  server.live->reasoning_format = reasoning_format_find("think");
  fake_exchange_t *exchange = call(",\"max_tokens\":90" TOOLS);
  generate(output);
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  ASSERT_STR_EQ(steady(exchange),
                "{" HEAD "\"content\":[{\"type\":\"thinking\",\"thinking\":\"ab\",\"signature\":"
                "\"inferd\"},{\"type\":\"text\",\"text\":\"hey\"},{\"type\":\"tool_use\",\"id\":"
                "\"toolu_........................\",\"name\":\"f\",\"input\":{\"a\": 1}}],"
                "\"stop_reason\":\"tool_use\",\"stop_sequence\":null," COUNTS("13", "79") "}");
  fake_exchange_free(exchange);
}

/* Gives each piece as one token and delivers it. */
static void give(const char *const *pieces) {
  for (; *pieces != NULL; pieces++) {
    fake_token(request_of(), 'x', *pieces);
    fake_deliver();
  }
}

Test(messages, stream) {
  static const char *const pieces[] = {"<think>",
                                       "Easy.",
                                       "</think>",
                                       "Hello",
                                       "<tool_call>",
                                       "{\"name\": \"Bash\", \"arguments\": ",
                                       "{\"command\": \"echo hi\"}",
                                       "}</tool_call>",
                                       NULL};
  server.live->reasoning_format = reasoning_format_find("think");
  fake_exchange_t *exchange = call(
      ",\"max_tokens\":90,\"stream\":true,\"tools\":[{\"name\":\"Bash\",\"input_schema\":{}}]");
  give(pieces);
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  ASSERT_STR_EQ(steady(exchange),
                START("13") BEGIN("0", "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"")
                    DELTA("0", "\"thinking_delta\",\"thinking\":\"Easy.\"")
                        DELTA("0", "\"signature_delta\",\"signature\":\"inferd\"") STOP("0")
                            BEGIN("1", "\"type\":\"text\",\"text\":\"\"")
                                DELTA("1", "\"text_delta\",\"text\":\"Hello\"") STOP("1") BEGIN(
                                    "2", "\"type\":\"tool_use\",\"id\":"
                                         "\"toolu_........................\",\"name\":\"Bash\","
                                         "\"input\":{}")
                                    DELTA("2", "\"input_json_delta\",\"partial_json\":"
                                               "\"{\\\"command\\\": \\\"echo hi\\\"}\"") STOP("2")
                                        FINISH("tool_use", "null", "13", "8"));
  cr_expect(exchange->ended);
  fake_exchange_free(exchange);
}

Test(messages, thinking_without_its_text) {
  static const char *const pieces[] = {"<think>", "Easy.", "</think>", "Hi", NULL};
  server.live->reasoning_format = reasoning_format_find("think");
  fake_exchange_t *exchange = call(",\"max_tokens\":9,\"stream\":true,\"thinking\":{\"type\":"
                                   "\"enabled\",\"display\":\"omitted\"}");
  give(pieces);
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  ASSERT_STR_EQ(exchange->body,
                START("11") BEGIN("0", "\"type\":\"thinking\",\"thinking\":\"\",\"signature\":\"\"")
                    DELTA("0", "\"signature_delta\",\"signature\":\"inferd\"") STOP("0")
                        BEGIN("1", "\"type\":\"text\",\"text\":\"\"")
                            DELTA("1", "\"text_delta\",\"text\":\"Hi\"") STOP("1")
                                FINISH("end_turn", "null", "11", "4"));
  fake_exchange_free(exchange);
}

/* An empty answer has one block. */
Test(messages, empty_answers) {
  fake_exchange_t *exchange = call(",\"max_tokens\":9,\"stream\":true");
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  ASSERT_STR_EQ(exchange->body, START("11") BEGIN("0", "\"type\":\"text\",\"text\":\"\"") STOP("0")
                                    FINISH("end_turn", "null", "11", "0"));
  fake_exchange_free(exchange);
}

Test(messages, empty_whole_answers) {
  fake_exchange_t *exchange = call(",\"max_tokens\":9");
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  ASSERT_STR_EQ(exchange->body,
                "{" HEAD "\"content\":[{\"type\":\"text\",\"text\":\"\"}],\"stop_reason\":"
                "\"end_turn\",\"stop_sequence\":null," COUNTS("11", "0") "}");
  fake_exchange_free(exchange);
}

static void expect_end(fake_exchange_t *exchange, const char *reason) {
  fake_deliver();
  cr_expect(strstr(exchange->body, reason) != NULL, "%s: %s", reason, exchange->body);
  fake_exchange_free(exchange);
}

Test(messages, reasons_of_the_end) {
  fake_exchange_t *exchange = call(",\"max_tokens\":9,\"stop_sequences\":[\"x\",\"y\"]");
  fake_done_stop(request_of(), -1, 1);
  expect_end(exchange, "\"stop_reason\":\"stop_sequence\",\"stop_sequence\":\"y\"");
  exchange = call(",\"max_tokens\":9");
  fake_done(request_of(), FINISH_LENGTH, "");
  expect_end(exchange, "\"stop_reason\":\"max_tokens\",\"stop_sequence\":null");
  exchange = call(",\"max_tokens\":32000");
  ASSERT_EQ(request_of()->params.max_tokens, FAKE_CONTEXT - 11);
  fake_done(request_of(), FINISH_LENGTH, "");
  expect_end(exchange, "\"stop_reason\":\"model_context_window_exceeded\"");
}

/* What there is of a call that the end has cut is content: broken arguments would be no object. */
Test(messages, a_call_that_is_cut) {
  fake_exchange_t *exchange = call(",\"max_tokens\":9" TOOLS);
  generate("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"");
  fake_done(request_of(), FINISH_LENGTH, "");
  expect_end(exchange,
             "\"name\":\"f\",\"input\":{\"partial_json\":\"{\\\"a\\\"\"}}],\"stop_reason\":"
             "\"max_tokens\"");
}

Test(messages, pings) {
  fake_exchange_t *exchange = call(",\"max_tokens\":9,\"stream\":true");
  completions_tick(&server, uv_hrtime() + (uint64_t)3600e9);
  ASSERT_STR_EQ(exchange->body, START("11"));
  completions_tick(&server, uv_hrtime() + (uint64_t)7200e9);
  ASSERT_STR_EQ(exchange->body, START("11") EVENT("ping", ""));
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(messages, failure_of_a_stream) {
  fake_exchange_t *exchange = call(",\"max_tokens\":9,\"stream\":true");
  fake_token(request_of(), 'a', "a");
  fake_deliver();
  fake_fail(request_of(), ERR_DEVICE_FAILED);
  fake_deliver();
  ASSERT_STR_EQ(exchange->body,
                START("11") BEGIN("0", "\"type\":\"text\",\"text\":\"\"")
                    DELTA("0", "\"text_delta\",\"text\":\"a\"") EVENT(
                        "error", ",\"error\":{\"type\":\"api_error\",\"message\":\"The device has "
                                 "failed.\"},\"request_id\":\"test-1\""));
  cr_expect(exchange->ended);
  fake_exchange_free(exchange);
}

/* ---- lengths, and what is found behind the translation ---- */

static void fails(void (*handle)(exchange_t *), const char *body, int code, const char *message) {
  fake_exchange_t *exchange = fake_call(handle, body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s: %s", body, exchange->body);
  ASSERT_STR_EQ(exchange->error.message, message);
  fake_exchange_free(exchange);
}

Test(messages, errors_behind_the_translation) {
  char body[512], text[200];
  memset(text, 'a', sizeof text);
  text[sizeof text - 1] = '\0';
  snprintf(body, sizeof body, BODY(USER("\"%s\"")), text);
  fails(api_messages, body, ERR_CONTEXT_LENGTH, "prompt is too long: 208 tokens > 128 maximum");
  text[FAKE_CONTEXT - 9] = '\0'; /* with the roles as long as the context */
  snprintf(body, sizeof body, BODY(USER("\"%s\"")), text);
  fails(api_messages, body, ERR_CONTEXT_LENGTH, "prompt is too long: 128 tokens > 127 maximum");
  fails(api_messages, "{" MOST "," HI ",\"model\":\"other\"}", ERR_MODEL_NOT_FOUND,
        "The model `other` does not exist. This server has `tiny`; GET /v1/models lists every "
        "name.");
  fails(api_messages,
        "{" MOST "," HI ",\"tools\":[{\"name\":\"f\",\"input_schema\":{\"type\":\"object\",\"type"
        "s\":1,\"properties\":{\"a\":{\"type\":\"odd\"}}},\"strict\":true}]}",
        ERR_INVALID_VALUE,
        "tools[0].input_schema: Invalid schema at '/': 'additionalProperties' is required to be "
        "supplied and to be false.");
}

Test(messages, counting) {
  static const char *const bodies[] = {
      "{" HI "}", "{" HI ",\"system\":\"abc\",\"tools\":[{\"name\":\"f\",\"input_schema\":{}}]}"};
  for (int i = 0; i < 2; i++) {
    char text[64], body[512];
    fake_exchange_t *exchange = fake_call(api_count_tokens, bodies[i]);
    snprintf(body, sizeof body, "{\"max_tokens\":5,%s", bodies[i] + 1);
    fake_exchange_t *asked = fake_call(api_messages, body);
    snprintf(text, sizeof text, "{\"input_tokens\":%d}", request_of()->num_prompt_tokens);
    ASSERT_STR_EQ(exchange->body, text);
    fake_finish_all();
    fake_exchange_free(exchange);
    fake_exchange_free(asked);
  }
  fails(api_count_tokens, "{}", ERR_MISSING_PARAMETER, "messages: Field required");
  fails(api_count_tokens, "[", ERR_INVALID_JSON,
        "Invalid JSON at byte 1: the text ends inside an array or object.");
}
