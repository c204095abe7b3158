/* test_chat.c: chat requests: the prompt, both shapes of an answer, thoughts, tool calls. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(chat, .init = fake_start, .fini = fake_stop, .timeout = 60);

#define USER "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]"
#define TOOL(name) "{\"type\":\"function\",\"function\":{\"name\":\"" name "\"}}"
#define TOOLS ",\"tools\":[" TOOL("f") "," TOOL("g") "]"

static request_t *request_of(void) {
  return &server.live->first->inputs[0].request;
}

static fake_exchange_t *chat(const char *fields) {
  char body[2048];
  snprintf(body, sizeof body, "{" USER "%s}", fields);
  fake_exchange_t *exchange = fake_call(api_chat_completions, body);
  cr_assert(!exchange->answered, "%s", exchange->body);
  return exchange;
}

/* Generates `text`, a token a byte, and ends with `finish`. */
static void answer(const char *text, finish_reason_t finish) {
  request_t *request = request_of();
  for (const char *at = text; *at != '\0'; at++) {
    char piece[2] = {*at, '\0'};
    fake_token(request, (uint8_t)*at, piece);
    if ((at - text) % 3 == 0) fake_deliver();
  }
  fake_done(request, finish, "");
  fake_deliver();
}

#define HEAD(id, object)                                                                           \
  "\"id\":\"chatcmpl-" id "\",\"object\":\"" object "\",\"created\":1,\"model\":\"tiny\","
#define FINGERPRINT ",\"system_fingerprint\":\"inferd-0-abcdef01\""
#define USAGE(p, c, t)                                                                             \
  "{\"prompt_tokens\":" p ",\"completion_tokens\":" c ",\"total_tokens\":" t                       \
  ",\"prompt_tokens_details\":{\"cached_tokens\":0},\"completion_tokens_details\":null}"

static void expect_prompt(const char *expected) {
  char text[256] = "";
  const request_t *request = request_of();
  for (int32_t i = 0; i < request->num_prompt_tokens; i++) {
    text[i] = (char)request->prompt_ids[i];
    text[i + 1] = '\0';
  }
  ASSERT_STR_EQ(text, expected);
}

Test(chat, whole_response) {
  fake_exchange_t *exchange = chat(",\"request_id\":\"c1\"");
  expect_prompt("<user>hi<a>");
  ASSERT_EQ_FOR(request_of()->params.max_tokens, FAKE_CONTEXT - 11, "what is left of the context");
  answer("yo", FINISH_STOP);
  ASSERT_STR_EQ(
      fake_steady_body(exchange),
      "{" HEAD(
          "c1",
          "chat.completion") "\"choices\":[{\"index\":0,\"message\":{"
                             "\"role\":\"assistant\",\"content\":\"yo\",\"refusal\":null},"
                             "\"logprobs\":null,"
                             "\"finish_reason\":\"stop\",\"stop_reason\":null,\"token_ids\":null}],"
                             "\"service_tier\":null" FINGERPRINT ",\"usage\":" USAGE(
                                 "11", "2",
                                 "13") ",\"prompt_logprobs\":null,\"prompt_token_ids\":null,"
                                       "\"kv_transfer_params\":null}");
  fake_exchange_free(exchange);
}

Test(chat, streamed_response) {
  fake_exchange_t *exchange =
      chat(",\"request_id\":\"c2\",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  fake_deliver();
  cr_assert(!exchange->streaming, "nothing before the first token");
  request_t *request = request_of();
  fake_token(request, 'y', "y");
  fake_deliver();
  fake_token(request, 0xc3, "");
  fake_deliver();
  fake_token(request, 'o', "\xc3\xb6");
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
#define CHUNK(delta, finish)                                                                       \
  "data: {" HEAD(                                                                                  \
      "c2", "chat.completion.chunk") "\"choices\":[{\"index\":0,\"delta\":{" delta                 \
                                     "},\"logprobs\":null,\"finish_reason\":" finish               \
                                     ",\"stop_reason\":null}],\"usage\":null" FINGERPRINT "}\n\n"
  ASSERT_STR_EQ(
      fake_steady_body(exchange),
      CHUNK("\"role\":\"assistant\",\"content\":\"\"", "null") CHUNK("\"content\":\"y\"", "null")
          CHUNK("\"content\":\"\"", "null")
              CHUNK("\"content\":\"\xc3\xb6\"", "\"length\"") "data: {" HEAD(
                  "c2", "chat.completion.chunk") "\"choices\":[],\"usage\":" USAGE("11", "3", "14")
                  FINGERPRINT "}\n\ndata: [DONE]\n\n");
#undef CHUNK
  fake_exchange_free(exchange);
}

Test(chat, logprobs_have_the_shape_of_chat) {
  fake_exchange_t *exchange = chat(",\"logprobs\":true,\"top_logprobs\":1");
  request_t *request = request_of();
  ASSERT_EQ(request->params.num_logprobs, 1);
  token_logprob_t top[] = {{'z', -0.25f}};
  fake_token_logprob(request, 0xc3, "", -1, top, 1);
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(strstr(exchange->body,
                   "\"logprobs\":{\"content\":[{\"token\":\"\xef\xbf\xbd\",\"logprob\":-1.0,"
                   "\"bytes\":[195],\"top_logprobs\":[{\"token\":\"z\",\"logprob\":-0.25,"
                   "\"bytes\":[122]}]}],\"refusal\":null}") != NULL,
            "%s", exchange->body);
  fake_exchange_free(exchange);
  exchange = chat(",\"logprobs\":true");
  ASSERT_EQ(request_of()->params.num_logprobs, 0);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(chat, options_reach_the_template) {
  fake_exchange_t *exchange = chat(",\"add_generation_prompt\":false");
  expect_prompt("<user>hi");
  fake_finish_all();
  fake_exchange_free(exchange);
  exchange = chat(",\"continue_final_message\":true");
  expect_prompt("<user>hi");
  fake_finish_all();
  fake_exchange_free(exchange);
  exchange = chat(TOOLS);
  expect_prompt("2#<user>hi<a>");
  fake_finish_all();
  fake_exchange_free(exchange);
  exchange = chat(TOOLS ",\"tool_choice\":\"none\"");
  expect_prompt("<user>hi<a>");
  fake_finish_all();
  fake_exchange_free(exchange);
  fake_template.knows = "enable_thinking";
  exchange = chat(",\"reasoning_effort\":\"none\"");
  ASSERT_EQ(strstr(exchange->headers, "ignored"), NULL);
  fake_finish_all();
  fake_exchange_free(exchange);
  fake_template.knows = "reasoning_effort";
  exchange = chat(",\"reasoning_effort\":\"low\"");
  expect_prompt("low<user>hi<a>");
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(chat, echo_repeats_what_the_assistant_has_said) {
  static const char body[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":"
                             "\"assistant\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
                             "\"type\":\"text\",\"text\":\"b\"}]}],\"echo\":true%s}";
  for (int stream = 0; stream <= 1; stream++) {
    char text[400];
    snprintf(text, sizeof text, body, stream ? ",\"stream\":true" : "");
    fake_exchange_t *exchange = fake_call(api_chat_completions, text);
    cr_assert(!exchange->answered, "%s", exchange->body);
    answer("c", FINISH_STOP);
    cr_assert(strstr(exchange->body, "\"content\":\"a\\nbc\"") != NULL, "%s", exchange->body);
    fake_exchange_free(exchange);
  }
}

/* Templates read the text of parts alone, so a refusal is one. */
Test(chat, refusals_are_texts) {
  static const char parts[] = "[{\"type\":\"text\",\"text\":\"a\"},"
                              "{\"text\":null,\"refusal\":\"no\",\"type\":\"refusal\"}]";
  char body[400];
  snprintf(body, sizeof body,
           "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\","
           "\"content\":%s}],\"echo\":true}",
           parts);
  fake_exchange_t *exchange = fake_call(api_chat_completions, body);
  cr_assert(!exchange->answered, "%s", exchange->body);
  expect_prompt("<user>hi<assistant>[text=a][text=no]<a>");
  answer("c", FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"content\":\"a\\nnoc\"") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

/* ---- tools ---- */

#define CALL_F "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"\\\"\"}}</tool_call>"
#define CALL_G "<tool_call>{\"name\": \"g\", \"arguments\": {}}</tool_call>"

/* The arguments, put together by index, of every streamed call: "f{...}g{}". */
static void join_calls(const char *body, char *out, char *finish) {
  char calls[4][64] = {{0}};
  *finish = '\0';
  for (const char *at = strstr(body, "data: {"); at != NULL; at = strstr(at + 1, "data: {")) {
    json_doc_t *doc = NULL;
    const char *end = strstr(at, "\n\n");
    json_parse(at + 6, (size_t)(end - at) - 6, &json_limits_request, &doc, NULL);
    cr_assert(doc != NULL);
    const json_t *choice = json_first(json_get(json_root(doc), "choices"));
    const json_t *reason = json_get(choice, "finish_reason");
    if (reason->type == JSON_STRING)
      snprintf(finish, 16, "%.*s", (int)reason->length, reason->text);
    JSON_EACH(call, json_get(json_get(choice, "delta"), "tool_calls")) {
      int64_t index;
      cr_assert(json_int64(json_get(call, "index"), &index));
      ASSERT_LT(index, 4);
      const json_t *function = json_get(call, "function"), *name = json_get(function, "name");
      const json_t *arguments = json_get(function, "arguments");
      if (name != NULL) {
        ASSERT_GT(json_get(call, "id")->length, 8);
        ASSERT_EQ(calls[index][0], '\0');
        cr_assert(json_equals(json_get(call, "type"), "function"));
        strncat(calls[index], name->text, name->length);
      }
      strncat(calls[index], arguments->text, arguments->length);
    }
    json_free(doc);
  }
  snprintf(out, 256, "%s%s%s%s", calls[0], calls[1], calls[2], calls[3]);
}

Test(chat, tool_calls) {
  fake_exchange_t *exchange = chat(TOOLS);
  answer("See.\n" CALL_F "\n" CALL_G, FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"content\":\"See.\",\"refusal\":null,\"tool_calls\":[{\"id\":"
                                   "\"call_") != NULL,
            "%s", exchange->body);
  cr_assert(strstr(exchange->body, "\"function\":{\"name\":\"f\",\"arguments\":\"{\\\"a\\\": "
                                   "\\\"\\\\\\\"\\\"}\"}}") != NULL,
            "%s", exchange->body);
  cr_assert(strstr(exchange->body, "\"finish_reason\":\"tool_calls\"") != NULL);
  fake_exchange_free(exchange);
  exchange = chat(TOOLS);
  answer(CALL_G, FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"content\":null") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

Test(chat, streamed_tool_calls) {
  static const char *const intervals[] = {"", ",\"stream_interval\":1", ",\"stream_interval\":7"};
  for (int i = 0; i < 3; i++) {
    char fields[300], calls[256], finish[16];
    snprintf(fields, sizeof fields, TOOLS ",\"stream\":true%s", intervals[i]);
    fake_exchange_t *exchange = chat(fields);
    answer(CALL_F CALL_G, FINISH_STOP);
    join_calls(exchange->body, calls, finish);
    ASSERT_STR_EQ_FOR(calls, "f{\"a\": \"\\\"\"}g{}", "%s", exchange->body);
    ASSERT_STR_EQ(finish, "tool_calls");
    fake_exchange_free(exchange);
  }
}

/* Values follow the types of the request's tools, which is forgotten by then. */
Test(chat, calls_in_tags) {
  static const char typed[] =
      ",\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"type\":"
      "\"object\",\"properties\":{\"i\":{\"type\":\"integer\"},\"s\":{\"type\":\"string\"}}}}}]";
  static const char text[] = "<tool_call>\n<function=f>\n<parameter=i>\n1\n</parameter>\n"
                             "<parameter=s>\n2\n\n</parameter>\n</function>\n</tool_call>";
  server.live->tool_format = tool_format_find("qwen3_coder");
  for (int stream = 0; stream < 2; stream++) {
    char fields[400], calls[256], finish[16];
    snprintf(fields, sizeof fields, "%s,\"stream\":%s", typed, stream ? "true" : "false");
    fake_exchange_t *exchange = chat(fields);
    answer(text, FINISH_STOP);
    if (stream) {
      join_calls(exchange->body, calls, finish);
      ASSERT_STR_EQ_FOR(calls, "f{\"i\": 1, \"s\": \"2\\n\"}", "%s", exchange->body);
      ASSERT_STR_EQ(finish, "tool_calls");
    } else {
      cr_assert(strstr(exchange->body, "\"content\":null") != NULL, "%s", exchange->body);
      cr_assert(strstr(exchange->body, "\"arguments\":\"{\\\"i\\\": 1, \\\"s\\\": "
                                       "\\\"2\\\\n\\\"}\"}") != NULL,
                "%s", exchange->body);
    }
    fake_exchange_free(exchange);
  }
}

Test(chat, one_call_at_a_time) {
  fake_exchange_t *exchange = chat(TOOLS ",\"parallel_tool_calls\":false");
  answer(CALL_F CALL_G, FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"name\":\"f\"") != NULL);
  ASSERT_EQ_FOR(strstr(exchange->body, "\"name\":\"g\""), NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

/* Arguments are whole JSON: a call that was cut is text, except in a stream, which has sent its
 * beginning. */
Test(chat, a_call_that_was_cut_ends_there) {
  fake_exchange_t *exchange = chat(TOOLS);
  answer("<tool_call>{\"name\": \"f\", \"arguments\": {\"a\"", FINISH_LENGTH);
  cr_assert(strstr(exchange->body, "\"finish_reason\":\"length\"") != NULL);
  cr_assert(strstr(exchange->body, "\"content\":null") != NULL, "%s", exchange->body);
  cr_assert(strstr(exchange->body, "\"name\":\"f\",\"arguments\":\"{\\\"a\\\"\"}}]") != NULL, "%s",
            exchange->body);
  fake_exchange_free(exchange);
}

Test(chat, calls_are_text_without_tools) {
  fake_exchange_t *exchange = chat("");
  answer(CALL_G, FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"content\":\"<tool_call>{") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

/* ---- thoughts ---- */

Test(chat, thoughts) {
  server.live->reasoning_format = reasoning_format_find("think");
  fake_exchange_t *exchange = chat("");
  answer("<think>ab</think>\n\nc", FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"content\":\"c\",\"refusal\":null,\"reasoning\":\"ab\","
                                   "\"reasoning_content\":\"ab\"}") != NULL,
            "%s", exchange->body);
  cr_assert(strstr(exchange->body, "\"reasoning_tokens\":10}") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
  exchange = chat(",\"include_reasoning\":false");
  answer("<think>ab</think>c", FINISH_STOP);
  ASSERT_EQ(strstr(exchange->body, "\"reasoning\":"), NULL);
  cr_assert(strstr(exchange->body, "\"content\":\"c\"") != NULL);
  fake_exchange_free(exchange);
  exchange = chat(",\"chat_template_kwargs\":{\"think\":1},\"stream\":true");
  answer("ab</think>c", FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"delta\":{\"reasoning\":\"a\",\"reasoning_content\":\"a\"}") !=
                NULL,
            "%s", exchange->body);
  cr_assert(strstr(exchange->body, "\"delta\":{\"content\":\"c\"}") != NULL);
  fake_exchange_free(exchange);
}

/* The header of the message may stand in the prompt, and so may a part of its body. */
Test(chat, messages_in_channels) {
  server.live->reasoning_format = reasoning_format_find("harmony");
  server.live->tool_format = tool_format_find("harmony");
  fake_exchange_t *exchange = chat(TOOLS);
  answer("<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary "
         "to=functions.f <|constrain|>json<|message|>{\"a\":1}<|call|>",
         FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"content\":null,\"refusal\":null,\"reasoning\":\"hm\"") !=
                NULL,
            "%s", exchange->body);
  cr_assert(strstr(exchange->body, "{\"name\":\"f\",\"arguments\":\"{\\\"a\\\":1}\"}") != NULL,
            "%s", exchange->body);
  cr_assert(strstr(exchange->body, "\"finish_reason\":\"tool_calls\"") != NULL);
  fake_exchange_free(exchange);
  exchange = fake_call(api_chat_completions,
                       "{\"messages\":[{\"role\":\"assistant\",\"content\":\"<|start|>assistant"
                       "<|channel|>final<|message|>Hel\"}],\"continue_final_message\":true}");
  answer("lo <b>", FINISH_STOP);
  cr_assert(strstr(exchange->body, "\"content\":\"lo <b>\"") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

/* ---- what is refused ---- */

typedef struct bad {
  const char *body;
  int code;
  const char *param;
} bad_t;

#define M(message) "{\"messages\":[" message "]}"
#define WITH(fields) "{" USER "," fields "}"
#define CHOICE(allowed) "\"tool_choice\":{\"type\":\"allowed_tools\",\"allowed_tools\":" allowed "}"
#define ALLOWED(allowed) "{" USER TOOLS "," CHOICE(allowed) "}"

/* The model is shown the allowed functions alone. */
Test(chat, allowed_tools) {
  fake_exchange_t *exchange =
      chat(TOOLS "," CHOICE("{\"mode\":\"auto\",\"tools\":[" TOOL("g") "]}"));
  expect_prompt("1#<user>hi<a>");
  cr_assert(request_of()->grammar != NULL, "of the names alone: test_constraints.c");
  fake_finish_all();
  fake_exchange_free(exchange);
  exchange = chat(TOOLS "," CHOICE("{\"mode\":\"required\",\"tools\":[{\"function\":{\"name\":"
                                   "\"f\"}}," TOOL("g") "]}"));
  expect_prompt("2#<user>hi<a>");
  cr_assert(request_of()->grammar != NULL, "a call is forced");
  fake_finish_all();
  fake_exchange_free(exchange);
}

static const bad_t bad_bodies[] = {
    {"{}", ERR_MISSING_PARAMETER, "messages"},
    {"{\"messages\":null}", ERR_MISSING_PARAMETER, "messages"},
    {"{\"messages\":[]}", ERR_INVALID_VALUE, "messages"},
    {"{\"messages\":{}}", ERR_INVALID_TYPE, "messages"},
    {"{\"messages\":\"hi\"}", ERR_INVALID_TYPE, "messages"},
    {M("1"), ERR_INVALID_TYPE, "messages[0]"},
    {M("{}"), ERR_MISSING_PARAMETER, "messages[0].role"},
    {M("{\"role\":1}"), ERR_INVALID_TYPE, "messages[0].role"},
    {M("{\"role\":\"user\"}"), ERR_MISSING_PARAMETER, "messages[0].content"},
    {M("{\"role\":\"user\",\"content\":null}"), ERR_MISSING_PARAMETER, "messages[0].content"},
    {M("{\"role\":\"user\",\"content\":1}"), ERR_INVALID_TYPE, "messages[0].content"},
    {M("{\"role\":\"user\",\"content\":[]}"), ERR_INVALID_VALUE, "messages[0].content"},
    {M("{\"role\":\"user\",\"content\":[1]}"), ERR_INVALID_TYPE, "messages[0].content[0]"},
    {M("{\"role\":\"user\",\"content\":[{}]}"), ERR_MISSING_PARAMETER,
     "messages[0].content[0].type"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}"), ERR_MISSING_PARAMETER,
     "messages[0].content[0].text"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"image_url\","
       "\"image_url\":{\"url\":\"x\"}}]}"),
     ERR_UNSUPPORTED_CONTENT_PART, "messages[0].content[1]"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"input_audio\"}]}"),
     ERR_UNSUPPORTED_CONTENT_PART, "messages[0].content[0]"},
    {M("{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"a\"}]}"),
     ERR_UNSUPPORTED_CONTENT_PART, "messages[0].content[0]"},
    {M("{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"text\":\"a\"}]}"),
     ERR_MISSING_PARAMETER, "messages[0].content[0].refusal"},
    {M("{\"role\":\"assistant\",\"content\":[{\"type\":\"refusal\",\"refusal\":1}]}"),
     ERR_INVALID_TYPE, "messages[0].content[0].refusal"},
    {M("{\"role\":\"tool\",\"content\":\"a\"}"), ERR_MISSING_PARAMETER, "messages[0].tool_call_id"},
    {M("{\"role\":\"function\",\"content\":\"a\"}"), ERR_MISSING_PARAMETER, "messages[0].name"},
    {M("{\"role\":\"user\",\"content\":\"a\",\"name\":1}"), ERR_INVALID_TYPE, "messages[0].name"},
    {M("{\"role\":\"assistant\",\"function_call\":{}}"), ERR_UNSUPPORTED_PARAMETER,
     "messages[0].function_call"},
    {M("{\"role\":\"assistant\",\"tool_calls\":{}}"), ERR_INVALID_TYPE, "messages[0].tool_calls"},
    {M("{\"role\":\"assistant\",\"tool_calls\":[1]}"), ERR_INVALID_TYPE,
     "messages[0].tool_calls[0]"},
    {M("{\"role\":\"assistant\",\"tool_calls\":[{}]}"), ERR_MISSING_PARAMETER,
     "messages[0].tool_calls[0].function"},
    {M("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}"), ERR_MISSING_PARAMETER,
     "messages[0].tool_calls[0].function.name"},
    {M("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":[]}}]"
       "}"),
     ERR_INVALID_TYPE, "messages[0].tool_calls[0].function.arguments"},
    {M("{\"role\":\"raise\",\"content\":\"a\"}"), ERR_BAD_REQUEST, ""},
    {WITH("\"prompt\":\"a\""), ERR_UNSUPPORTED_PARAMETER, "prompt"},
    {WITH("\"suffix\":\"a\""), ERR_UNSUPPORTED_PARAMETER, "suffix"},
    {WITH("\"max_tokens\":0"), ERR_BELOW_MIN, "max_tokens"},
    {WITH("\"max_tokens\":0,\"echo\":true"), ERR_BELOW_MIN, "max_tokens"},
    {WITH("\"max_tokens\":118"), ERR_CONTEXT_LENGTH, "messages"},
    {WITH("\"logprobs\":1"), ERR_INVALID_TYPE, "logprobs"},
    {WITH("\"top_logprobs\":1"), ERR_INVALID_VALUE, "top_logprobs"},
    {WITH("\"logprobs\":true,\"top_logprobs\":21"), ERR_ABOVE_MAX, "top_logprobs"},
    {WITH("\"add_generation_prompt\":true,\"continue_final_message\":true"), ERR_INVALID_VALUE,
     "continue_final_message"},
    {WITH("\"chat_template\":\"x\""), ERR_UNSUPPORTED_PARAMETER, "chat_template"},
    {WITH("\"chat_template_kwargs\":[]"), ERR_INVALID_TYPE, "chat_template_kwargs"},
    {WITH("\"documents\":[{}]"), ERR_UNSUPPORTED_PARAMETER, "documents"},
    {WITH("\"documents\":[1]"), ERR_INVALID_TYPE, "documents"},
    {WITH("\"audio\":{}"), ERR_UNSUPPORTED_PARAMETER, "audio"},
    {WITH("\"modalities\":[\"text\",\"audio\"]"), ERR_UNSUPPORTED_PARAMETER, "modalities"},
    {WITH("\"modalities\":\"text\""), ERR_INVALID_TYPE, "modalities"},
    {WITH("\"web_search_options\":{}"), ERR_UNSUPPORTED_PARAMETER, "web_search_options"},
    {WITH("\"moderation\":{}"), ERR_UNSUPPORTED_PARAMETER, "moderation"},
    {WITH("\"functions\":[1]"), ERR_UNSUPPORTED_PARAMETER, "functions"},
    {WITH("\"function_call\":\"auto\""), ERR_UNSUPPORTED_PARAMETER, "function_call"},
    {WITH("\"tools\":{}"), ERR_INVALID_TYPE, "tools"},
    {WITH("\"tools\":[1]"), ERR_INVALID_TYPE, "tools[0]"},
    {WITH("\"tools\":[{}]"), ERR_MISSING_PARAMETER, "tools[0].function"},
    {WITH("\"tools\":[{\"type\":\"custom\"}]"), ERR_UNSUPPORTED_PARAMETER, "tools[0].type"},
    {WITH("\"tools\":[{\"type\":\"function\",\"function\":{}}]"), ERR_MISSING_PARAMETER,
     "tools[0].function.name"},
    {WITH("\"tools\":[" TOOL("a b") "]"), ERR_INVALID_VALUE, "tools[0].function.name"},
    {WITH("\"tools\":[" TOOL("a") "," TOOL("b") "," TOOL("a") "]"), ERR_INVALID_VALUE,
     "tools[0].function.name"},
    {WITH("\"tools\":[{\"function\":{\"name\":\"f\",\"parameters\":1}}]"), ERR_INVALID_TYPE,
     "tools[0].function.parameters"},
    {WITH("\"tools\":[{\"function\":{\"name\":\"f\",\"strict\":1}}]"), ERR_INVALID_TYPE,
     "tools[0].function.strict"},
    {WITH("\"tool_choice\":\"required\""), ERR_INVALID_VALUE, "tool_choice"},
    {WITH("\"tool_choice\":\"any\""), ERR_INVALID_VALUE, "tool_choice"},
    {WITH("\"tool_choice\":3"), ERR_INVALID_TYPE, "tool_choice"},
    {WITH("\"tools\":[" TOOL("a") "],\"tool_choice\":" TOOL("b")), ERR_INVALID_VALUE,
     "tool_choice"},
    {WITH("\"tools\":[" TOOL("a") "],\"tool_choice\":{\"type\":\"function\"}"),
     ERR_MISSING_PARAMETER, "tool_choice.function.name"},
    {ALLOWED("1"), ERR_INVALID_TYPE, "tool_choice.allowed_tools"},
    {ALLOWED("{\"tools\":[" TOOL("f") "]}"), ERR_MISSING_PARAMETER,
     "tool_choice.allowed_tools.mode"},
    {ALLOWED("{\"mode\":\"none\",\"tools\":[" TOOL("f") "]}"), ERR_INVALID_VALUE,
     "tool_choice.allowed_tools.mode"},
    {ALLOWED("{\"mode\":\"auto\"}"), ERR_MISSING_PARAMETER, "tool_choice.allowed_tools.tools"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":{}}"), ERR_INVALID_TYPE,
     "tool_choice.allowed_tools.tools"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[]}"), ERR_INVALID_VALUE,
     "tool_choice.allowed_tools.tools"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[1]}"), ERR_INVALID_TYPE,
     "tool_choice.allowed_tools.tools[0]"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[{\"type\":\"mcp\"}]}"), ERR_INVALID_VALUE,
     "tool_choice.allowed_tools.tools[0].type"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[{\"function\":{}}]}"), ERR_MISSING_PARAMETER,
     "tool_choice.allowed_tools.tools[0].function.name"},
    {ALLOWED("{\"mode\":\"auto\",\"tools\":[" TOOL("f") "," TOOL("x") "]}"), ERR_INVALID_VALUE,
     "tool_choice.allowed_tools.tools[1].function.name"},
    {WITH(CHOICE("{\"mode\":\"auto\",\"tools\":[" TOOL("f") "]}")), ERR_INVALID_VALUE,
     "tool_choice.allowed_tools.tools[0].function.name"},
    {WITH("\"model\":\"nope\""), ERR_MODEL_NOT_FOUND, "model"},
    {WITH("\"n\":129"), ERR_ABOVE_MAX, "n"},
};

static void refuse(const char *body, int code, const char *param) {
  fake_exchange_t *exchange = fake_call(api_chat_completions, body);
  cr_assert(exchange->answered, "%s", body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s: %s", body, exchange->body);
  ASSERT_STR_EQ_FOR(exchange->error.param, param, "%s", body);
  ASSERT_EQ(fake_engine.num_requests, 0);
  fake_exchange_free(exchange);
}

Test(chat, bad_bodies_are_refused) {
  config.lenient_history = false; /* else what is in a history is mended */
  for (size_t i = 0; i < sizeof bad_bodies / sizeof bad_bodies[0]; i++) {
    refuse(bad_bodies[i].body, bad_bodies[i].code, bad_bodies[i].param);
  }
}

/* Parts and tools of /v1/responses are often sent here. */
Test(chat, what_belongs_to_another_route_is_named) {
  static const struct {
    const char *body, *says;
  } rows[] = {{M("{\"role\":\"user\",\"content\":[{\"type\":\"input_text\",\"text\":\"a\"}]}"),
               "Content parts of type 'input_text' are not supported here: use 'text'."},
              {M("{\"role\":\"user\",\"content\":[{\"type\":\"image_url\"}]}"),
               "Content parts of type 'image_url' are not supported: this model takes text only."},
              {WITH("\"tools\":[{\"type\":\"custom\"}]"), "but got 'custom'; use /v1/responses."},
              {WITH("\"tools\":[{\"type\":\"mcp\"}]"), "are not supported here, but got 'mcp'."}};
  for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
    fake_exchange_t *exchange = fake_call(api_chat_completions, rows[i].body);
    cr_expect(strstr(exchange->error.message, rows[i].says) != NULL, "%s", exchange->error.message);
    fake_exchange_free(exchange);
  }
}

Test(chat, good_messages) {
  static const char *const good[] = {
      M("{\"role\":\"developer\",\"content\":\"a\"},{\"role\":\"user\",\"content\":\"b\",\"name\":"
        "\"me\"}"),
      M("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"\"}]}"),
      M("{\"role\":\"assistant\",\"content\":null,\"refusal\":\"no\"}"),
      M("{\"role\":\"assistant\",\"content\":null}"),
      M("{\"role\":\"assistant\"}"),
      M("{\"role\":\"assistant\",\"tool_calls\":[]}"),
      M("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":\"1\",\"type\":\"function\",\"function\":{"
        "\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"a\","
        "\"tool_call_id\":\"1\"}"),
      M("{\"role\":\"function\",\"content\":\"a\",\"name\":\"f\"}"),
      M("{\"role\":\"ipython\"}"),
      WITH("\"tools\":[],\"tool_choice\":\"none\",\"functions\":[],\"modalities\":[\"text\"],"
           "\"prompt\":null,\"max_completion_tokens\":3,\"max_tokens\":5,"
           "\"response_format\":{\"type\":\"text\"},\"store\":false,\"parallel_tool_calls\":true,"
           "\"chat_template_kwargs\":{},\"add_generation_prompt\":true,\"documents\":[]"),
  };
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    fake_exchange_t *exchange = fake_call(api_chat_completions, good[i]);
    cr_assert(!exchange->answered, "%s: %s", good[i], exchange->body);
    ASSERT_EQ_FOR(strstr(exchange->headers, "ignored"), NULL, "%s", exchange->headers);
    if (strstr(good[i], "max_completion_tokens")) ASSERT_EQ(request_of()->params.max_tokens, 3);
    fake_finish_all();
    fake_exchange_free(exchange);
  }
}

Test(chat, models_without_a_template) {
  fake_template.none = true;
  refuse("{" USER "}", ERR_BAD_REQUEST, "");
  fake_template.none = false;
  fake_template.tools = false;
  refuse("{" USER TOOLS "}", ERR_UNSUPPORTED_PARAMETER, "tools");
  fake_template.tools = true;
  server.live->tool_format = NULL;
  refuse("{" USER TOOLS "}", ERR_UNSUPPORTED_PARAMETER, "tools");
  server.live->templates = NULL;
  refuse("{" USER "}", ERR_BAD_REQUEST, "");
}

/* ---- how the model writes calls ---- */

Test(chat, formats_are_found_in_the_template) {
  static const struct {
    const char *words, *format;
  } rows[] = {{"<|start|>system<|message|>", "harmony"},
              {"<tool_call>\n{\"name\": function", "hermes"},
              {"<tool_call>", NULL}, /* several families write it */
              {"<tool_call>\n<function=name>", "qwen3_coder"},
              {"[AVAILABLE_TOOLS]", "mistral"},
              {"Respond in the format {\"name\": function name, \"parameters\": dictionary of "
               "argument name and its value}",
               "llama3_json"},
              {NULL, NULL}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fake_template.format_words = rows[i].words;
    server.live->chat_is_ready = false;
    chat_model_ready(server.live, &config, engine_tokenizer(server.engine));
    const tool_format_t *format = server.live->tool_format;
    ASSERT_EQ_FOR((format == NULL), (rows[i].format == NULL), "%s", rows[i].words);
    if (format != NULL) ASSERT_STR_EQ(format->name, rows[i].format);
    if (i == 0) ASSERT_STR_EQ(server.live->reasoning_format->name, "harmony");
  }
  fake_option("tool_call_parser", "mistral");
  fake_option("reasoning_parser", "think");
  server.live->chat_is_ready = false;
  chat_model_ready(server.live, &config, engine_tokenizer(server.engine));
  ASSERT_STR_EQ(server.live->tool_format->name, "mistral");
  ASSERT_STR_EQ(server.live->reasoning_format->name, "think");
  fake_option("tool_call_parser", "none");
  server.live->chat_is_ready = false;
  chat_model_ready(server.live, &config, engine_tokenizer(server.engine));
  ASSERT_EQ(server.live->tool_format, NULL);
}

Test(chat, templates_that_do_not_parse) {
  inferd_error_t error = {0};
  fake_template.broken = true;
  server.live->templates = NULL;
  ASSERT_EQ_FOR(chat_model_load(server.live, &config, &error), 0, "the model still completes");
  refuse("{" USER "}", ERR_BAD_REQUEST, "");
  fake_option("chat_template", "/own.jinja");
  ASSERT_NE_FOR(chat_model_load(server.live, &config, &error), 0, "the operator hears of it");
}
