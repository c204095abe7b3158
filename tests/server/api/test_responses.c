/* test_responses.c: POST /v1/responses: items in, items and events out, byte for byte. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(responses, .init = fake_start, .fini = fake_stop, .timeout = 60);

static request_t *request_of(void) {
  return &server.live->first->inputs[0].request;
}

static fake_exchange_t *ask(const char *body) {
  fake_exchange_t *exchange = fake_call(api_responses, body);
  cr_assert(!exchange->answered, "%s", exchange->error.message);
  return exchange;
}

enum { PIECE_MAX = 16 }; /* bytes of the text of a token */

/* Generates `text`, of which "|" ends a token and is not in it. */
static void answer(const char *text, finish_reason_t finish) {
  request_t *request = request_of();
  for (const char *at = text; *at != '\0'; at += strspn(at, "|")) {
    char piece[PIECE_MAX + 1] = "";
    size_t length = strcspn(at, "|");
    if (length > PIECE_MAX) length = PIECE_MAX;
    memcpy(piece, at, length);
    fake_token(request, (uint8_t)*at, piece);
    fake_deliver();
    at += length;
  }
  fake_done(request, finish, "");
  fake_deliver();
}

/* Random ids lose what is random, times become 1. */
static char *steady(const fake_exchange_t *exchange) {
  static const char *const ids[] = {"rs_", "msg_", "fc_", "ctc_", "call_"};
  static const char *const times[] = {"\"created_at\":", "\"completed_at\":"};
  char *text = strdup(exchange->body);
  for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
    for (char *at = text; (at = strstr(at, ids[i])) != NULL;) {
      at += strlen(ids[i]);
      size_t length = 0;
      while (length < 24 && isalnum((unsigned char)at[length])) length++;
      if (length == 24) memmove(at, at + 24, strlen(at + 24) + 1);
    }
  }
  for (size_t i = 0; i < 2; i++) {
    for (char *at = text; (at = strstr(at, times[i])) != NULL;) {
      at += strlen(times[i]);
      size_t length = strspn(at, "0123456789");
      if (length == 0) continue;
      *at = '1';
      memmove(at + 1, at + length, strlen(at + length) + 1);
    }
  }
  return text;
}

static void expect_body(const fake_exchange_t *exchange, const char *expected) {
  char *text = steady(exchange);
  ASSERT_STR_EQ(text, expected);
  free(text);
}

static void expect_events(const fake_exchange_t *exchange, const char *const *events,
                          size_t count) {
  char *text = steady(exchange), *at = text;
  for (size_t i = 0; i < count; i++) {
    size_t length = strlen(events[i]);
    if (strncmp(at, events[i], length) != 0) ASSERT_STR_EQ(at, events[i]);
    at += length;
  }
  ASSERT_STR_EQ(at, "");
  free(text);
}

static void expect_in(const fake_exchange_t *exchange, const char *expected) {
  char *text = steady(exchange);
  cr_expect(strstr(text, expected) != NULL, "%s\nis not in\n%s", expected, text);
  free(text);
}

static void expect_prompt(const char *expected) {
  char text[256] = "";
  const request_t *request = request_of();
  cr_assert_leq(request->num_prompt_tokens, 255);
  for (int32_t i = 0; i < request->num_prompt_tokens; i++) {
    text[i] = (char)request->prompt_ids[i];
    text[i + 1] = '\0';
  }
  ASSERT_STR_EQ(text, expected);
}

static void prompt_of(const char *body, const char *expected) {
  fake_exchange_t *exchange = ask(body);
  expect_prompt(expected);
  fake_finish_all();
  fake_exchange_free(exchange);
}

static void refuse(const char *body, int code, const char *param) {
  fake_exchange_t *exchange = fake_call(api_responses, body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s", body);
  ASSERT_STR_EQ(exchange->error.param, param);
  if (!exchange->answered) fake_finish_all();
  fake_exchange_free(exchange);
}

/* ---- the answer ---- */

#define TOOLS                                                                                      \
  "[{\"type\":\"function\",\"name\":\"run\",\"parameters\":{\"type\":\"object\"}},"                \
  "{\"type\":\"web_search\"},"                                                                     \
  "{\"type\":\"namespace\",\"name\":\"ns\",\"tools\":[{\"type\":\"function\",\"name\":\"go\"},"    \
  "{\"type\":\"mcp\"}]},{\"type\":\"custom\",\"name\":\"patch\"}]"
/* What the answer says of them. */
#define REPEATED_TOOLS                                                                             \
  "[{\"type\":\"function\",\"name\":\"run\",\"parameters\":{\"type\":\"object\"},"                 \
  "\"description\":null,\"strict\":null},{\"type\":\"web_search\"},"                               \
  "{\"type\":\"namespace\",\"name\":\"ns\",\"tools\":[{\"type\":\"function\",\"name\":\"go\"},"    \
  "{\"type\":\"mcp\"}]},{\"type\":\"custom\",\"name\":\"patch\"}]"
#define HEAD(status, completed, details)                                                           \
  "{\"id\":\"resp_test-1\",\"object\":\"response\",\"created_at\":1,\"completed_at\":" completed   \
  ",\"status\":\"" status "\",\"background\":false,\"error\":null,\"incomplete_details\":" details
#define MIDDLE                                                                                     \
  ",\"instructions\":null,\"max_output_tokens\":null,\"max_tool_calls\":null,\"metadata\":{},"     \
  "\"model\":\"tiny\",\"output\":["
#define TAIL(tools)                                                                                \
  "],\"parallel_tool_calls\":true,\"previous_response_id\":null,\"prompt_cache_key\":null,"        \
  "\"reasoning\":{\"effort\":null,\"summary\":null},\"safety_identifier\":null,"                   \
  "\"service_tier\":\"default\",\"store\":false,\"temperature\":1.0,\"text\":{\"format\":{"        \
  "\"type\":\"text\"}},\"presence_penalty\":0.0,\"frequency_penalty\":0.0,\"tool_choice\":"        \
  "\"auto\",\"tools\":" tools                                                                      \
  ",\"top_logprobs\":0,\"top_p\":1.0,\"truncation\":\"disabled\",\"user\":null,\"usage\":"
#define USAGE(input, output, thoughts, total)                                                      \
  "{\"input_tokens\":" input ",\"input_tokens_details\":{\"cached_tokens\":0,"                     \
  "\"cache_write_tokens\":0},\"output_tokens\":" output                                            \
  ",\"output_tokens_details\":{\"reasoning_tokens\":" thoughts "},\"total_tokens\":" total "}}"
#define REASONING(status, content)                                                                 \
  "{\"id\":\"rs_\",\"type\":\"reasoning\",\"summary\":[],\"content\":[" content                    \
  "],\"status\":\"" status "\"}"
#define THOUGHT(text) "{\"type\":\"reasoning_text\",\"text\":\"" text "\"}"
#define MESSAGE(status, content)                                                                   \
  "{\"id\":\"msg_\",\"type\":\"message\",\"role\":\"assistant\",\"status\":\"" status              \
  "\",\"content\":[" content "]}"
#define TEXT(text)                                                                                 \
  "{\"type\":\"output_text\",\"text\":\"" text "\",\"annotations\":[],\"logprobs\":[]}"
#define CALL(status, arguments)                                                                    \
  "{\"id\":\"fc_\",\"type\":\"function_call\",\"status\":\"" status                                \
  "\",\"call_id\":\"call_\",\"name\":\"run\",\"arguments\":\"" arguments "\"}"
#define EVENT(type, number, rest)                                                                  \
  "event: " type "\ndata: {\"type\":\"" type "\",\"sequence_number\":" number "," rest "}\n\n"
#define AT(id, index) "\"item_id\":\"" id "\",\"output_index\":" index

Test(responses, whole_answer) {
  fake_exchange_t *exchange = ask("{\"input\":\"hi\"}");
  expect_prompt("<user>hi<a>");
  ASSERT_EQ_FOR(request_of()->params.max_tokens, FAKE_CONTEXT - 11, "what is left of the context");
  answer("y|o", FINISH_STOP);
  expect_body(exchange, HEAD("completed", "1", "null") MIDDLE MESSAGE("completed", TEXT("yo"))
                            TAIL("[]") USAGE("11", "2", "0", "13"));
  fake_exchange_free(exchange);
}

#define CALLED "<tool_call>\n|{\"name\": \"run\",| \"arguments\": |{\"x\": 1}|}\n|</tool_call>"
#define THOUGHTS "<think>\nEasy.\n</think>\n\nHello|" CALLED

static fake_exchange_t *with_thoughts(const char *fields) {
  char body[1024];
  server.live->reasoning_format = reasoning_format_find("think");
  snprintf(body, sizeof body, "{\"input\":\"hi\",\"tools\":" TOOLS "%s}", fields);
  return ask(body);
}

#define R HEAD("in_progress", "null", "null") MIDDLE TAIL(REPEATED_TOOLS) "null}"

Test(responses, stream_of_thoughts_text_and_a_call) {
  fake_exchange_t *exchange = with_thoughts(",\"stream\":true");
  expect_prompt("3#<user>hi<a>");
  cr_expect(strstr(exchange->headers, "x-inferd-ignored-params: tools.1:web_search,"
                                      "tools.2.tools.1:mcp\n") != NULL,
            "%s", exchange->headers);
  answer("<think>|Easy.</think>\n\n|Hel|lo" CALLED, FINISH_STOP);
  static const char *const events[] = {
      EVENT("response.created", "0", "\"response\":" R),
      EVENT("response.in_progress", "1", "\"response\":" R),
      EVENT("response.output_item.added", "2",
            "\"output_index\":0,\"item\":" REASONING("in_progress", "")),
      EVENT("response.content_part.added", "3",
            AT("rs_", "0") ",\"content_index\":0,\"part\":" THOUGHT("")),
      EVENT("response.reasoning_text.delta", "4",
            AT("rs_", "0") ",\"content_index\":0,\"delta\":\"Easy.\""),
      EVENT("response.reasoning_text.done", "5",
            AT("rs_", "0") ",\"content_index\":0,\"text\":\"Easy.\""),
      EVENT("response.content_part.done", "6",
            AT("rs_", "0") ",\"content_index\":0,\"part\":" THOUGHT("Easy.")),
      EVENT("response.output_item.done", "7",
            "\"output_index\":0,\"item\":" REASONING("completed", THOUGHT("Easy."))),
      EVENT("response.output_item.added", "8",
            "\"output_index\":1,\"item\":" MESSAGE("in_progress", "")),
      EVENT("response.content_part.added", "9",
            AT("msg_", "1") ",\"content_index\":0,\"part\":" TEXT("")),
      EVENT("response.output_text.delta", "10",
            AT("msg_", "1") ",\"content_index\":0,\"delta\":"
                            "\"Hel\",\"logprobs\":[]"),
      EVENT("response.output_text.delta", "11",
            AT("msg_", "1") ",\"content_index\":0,\"delta\":\"lo\",\"logprobs\":[]"),
      EVENT("response.output_text.done", "12",
            AT("msg_", "1") ",\"content_index\":0,\"text\":\"Hello\",\"logprobs\":[]"),
      EVENT("response.content_part.done", "13",
            AT("msg_", "1") ",\"content_index\":0,\"part\":" TEXT("Hello")),
      EVENT("response.output_item.done", "14",
            "\"output_index\":1,\"item\":" MESSAGE("completed", TEXT("Hello"))),
      EVENT("response.output_item.added", "15",
            "\"output_index\":2,\"item\":" CALL("in_progress", "")),
      EVENT("response.function_call_arguments.delta", "16",
            AT("fc_", "2") ",\"delta\":\"{\\\"x\\\": 1}\""),
      EVENT("response.function_call_arguments.done", "17",
            AT("fc_", "2") ",\"name\":\"run\",\"arguments\":\"{"
                           "\\\"x\\\": 1}\""),
      EVENT("response.output_"
            "item.done",
            "18",
            "\"output_index\":"
            "2,\"item\":" CALL("completed", "{\\\"x\\\": "
                                            "1}")),
      EVENT("response.completed", "19",
            "\"response\":" HEAD("completed", "1", "null")
                MIDDLE REASONING("completed", THOUGHT("Easy.")) "," MESSAGE(
                    "completed", TEXT("Hello")) "," CALL("completed", "{\\\"x\\\": 1}")
                    TAIL(REPEATED_TOOLS) USAGE("13", "9", "1", "22"))};
  expect_events(exchange, events, sizeof events / sizeof *events);
  cr_expect(exchange->ended);
  fake_exchange_free(exchange);
}

/* The text of "output" in an answer, or in the last event of a stream. */
static char *output_of(const fake_exchange_t *exchange) {
  char *text = steady(exchange), *last = text;
  for (char *at = text; (at = strstr(at, "\"output\":")) != NULL; at++) last = at;
  char *end = strstr(last, ",\"parallel_tool_calls\"");
  cr_assert(end != NULL);
  char *output = strndup(last, (size_t)(end - last));
  free(text);
  return output;
}

Test(responses, streams_and_whole_answers_have_the_same_output) {
  static const char *const texts[] = {
      THOUGHTS,
      "",
      " \n",
      "Hello",
      "<think>\n\n</think>\n\nHi",
      "<think>hm",
      CALLED "\n" CALLED,
      " " CALLED " x",
      "<tool_call>\n{\"name\": \"ns__go\", \"arguments\": {}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"input\": \"a\\n\\\"b\"}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"patch\", \"arguments\": {\"in\": 1}}\n</tool_call>",
      "<tool_call>\n{\"name\": \"run\", \"arguments\": {\"x\""};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
    for (int finish = FINISH_STOP; finish <= FINISH_LENGTH; finish++) {
      char *outputs[2];
      for (int stream = 0; stream < 2; stream++) {
        fake_exchange_t *exchange = with_thoughts(stream ? ",\"stream\":true" : "");
        answer(texts[i], (finish_reason_t)finish);
        outputs[stream] = output_of(exchange);
        fake_exchange_free(exchange);
      }
      ASSERT_STR_EQ(outputs[0], outputs[1]);
      free(outputs[0]);
      free(outputs[1]);
    }
  }
}

Test(responses, cut_by_the_length) {
  fake_exchange_t *exchange = with_thoughts(",\"max_output_tokens\":4,\"stream\":true");
  ASSERT_EQ(request_of()->params.max_tokens, 4);
  answer("H|e|l|l", FINISH_LENGTH);
  expect_in(exchange, "event: response.incomplete\n");
  expect_in(exchange, HEAD("incomplete", "null", "{\"reason\":\"max_output_tokens\"}"));
  expect_in(exchange, "\"output\":[" MESSAGE("incomplete", TEXT("Hell")) "]");
  expect_in(exchange, ",\"max_output_tokens\":4,");
  fake_exchange_free(exchange);
}

Test(responses, call_that_is_cut) {
  fake_exchange_t *exchange = with_thoughts("");
  answer("<tool_call>\n{\"name\": \"run\", \"arguments\": {\"x\"", FINISH_LENGTH);
  expect_in(exchange, "\"output\":[" CALL("incomplete", "{\\\"x\\\"") "]");
  fake_exchange_free(exchange);
}

Test(responses, empty_answer_is_an_empty_message) {
  fake_exchange_t *exchange = with_thoughts("");
  answer("", FINISH_STOP);
  expect_in(exchange, "\"output\":[" MESSAGE("completed", TEXT("")) "]");
  fake_exchange_free(exchange);
}

Test(responses, call_of_a_namespace_and_of_a_custom_tool) {
  fake_exchange_t *exchange = with_thoughts(",\"stream\":true");
  answer(
      "<tool_call>\n{\"name\": \"ns__go\", \"arguments\": {}}\n</tool_call>\n"
      "<tool_call>\n{\"name\": \"patch\", \"argum|ents\": {\"inp|ut\": \"a\\n|b\"}}\n</tool_call>",
      FINISH_STOP);
  expect_in(exchange, ",\"name\":\"go\",\"namespace\":\"ns\",\"arguments\":\"{}\"}");
  expect_in(exchange, "{\"id\":\"ctc_\",\"type\":\"custom_tool_call\",\"status\":\"completed\","
                      "\"call_id\":\"call_\",\"name\":\"patch\",\"input\":\"a\\nb\"}");
  expect_in(exchange, EVENT("response.custom_tool_call_input.delta", "7",
                            AT("ctc_", "1") ",\"delta\":\"a\\nb\""));
  expect_in(exchange, EVENT("response.custom_tool_call_input.done", "8",
                            AT("ctc_", "1") ",\"input\":\"a\\nb\""));
  fake_exchange_free(exchange);
}

Test(responses, ids_stay_the_same) {
  fake_exchange_t *exchange = with_thoughts(",\"stream\":true");
  answer(THOUGHTS, FINISH_STOP);
  static const char *const kinds[] = {"rs_", "msg_", "fc_", "call_"};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    const char *first = NULL, *at = exchange->body;
    int count = 0;
    char quoted[16];
    snprintf(quoted, sizeof quoted, ":\"%s", kinds[i]);
    for (; (at = strstr(at, quoted)) != NULL; at++, count++) {
      if (first == NULL) first = at;
      cr_expect(strncmp(first, at, strlen(quoted) + 24) == 0);
    }
    cr_expect_geq(count, 3);
  }
  fake_exchange_free(exchange);
}

Test(responses, logprobs_of_the_text) {
  token_logprob_t top[2] = {{.id = 'o', .logprob = -0.5f}, {.id = 'x', .logprob = -1.5f}};
  for (int stream = 0; stream < 2; stream++) {
    fake_exchange_t *exchange =
        ask(stream ? "{\"input\":\"hi\",\"include\":[\"message.output_text.logprobs\"],"
                     "\"top_logprobs\":1,\"stream\":true}"
                   : "{\"input\":\"hi\",\"include\":[\"message.output_text.logprobs\"],"
                     "\"top_logprobs\":1}");
    fake_token_logprob(request_of(), 'y', "y", -0.25f, top, 1);
    fake_deliver();
    fake_token_logprob(request_of(), 'o', "o", -0.5f, top, 1);
    fake_done(request_of(), FINISH_STOP, "");
    fake_deliver();
#define SCORE(token, byte, logprob)                                                                \
  "{\"token\":\"" token "\",\"logprob\":" logprob ",\"bytes\":[" byte                              \
  "],\"top_logprobs\":[{\"token\":\"o\",\"logprob\":-0.5,\"bytes\":[111]}]}"
    expect_in(exchange, "\"text\":\"yo\",\"annotations\":[],\"logprobs\":[" SCORE(
                            "y", "121", "-0.25") "," SCORE("o", "111", "-0.5") "]}");
    if (stream) {
      expect_in(exchange, "\"delta\":\"y\",\"logprobs\":[" SCORE("y", "121", "-0.25") "]}");
      expect_in(exchange, "\"delta\":\"o\",\"logprobs\":[" SCORE("o", "111", "-0.5") "]}");
    }
    fake_exchange_free(exchange);
  }
}

/* The events at the end are printed in one turn of the loop, and each would repeat the scores. */
Test(responses, many_logprobs_stand_in_the_deltas_alone) {
  enum { TOKENS = 2000, SCORE_BYTES = 55 };
  fake_exchange_t *exchange = ask("{\"input\":\"hi\",\"stream\":true,"
                                  "\"include\":[\"message.output_text.logprobs\"]}");
  for (int i = 0; i < TOKENS; i++) {
    fake_token_logprob(request_of(), 'y', "y", -0.25f, NULL, 0);
    fake_deliver();
  }
  size_t deltas = exchange->body_length;
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  ASSERT_GT(deltas, (size_t)TOKENS * SCORE_BYTES);
  ASSERT_LT(exchange->body_length - deltas, 4 * (TOKENS + 1000));
  char last[2 * TOKENS];
  memset(last, 'y', TOKENS);
  strcpy(last + TOKENS, "\",\"annotations\":[],\"logprobs\":[]}");
  expect_in(exchange, last);
  fake_exchange_free(exchange);
}

enum { LONG_TOKENS = 4000, LONG_BYTES = LONG_TOKENS * PIECE_MAX, SENT_MAX = 20000 };

static void generate(int tokens) {
  for (int i = 0; i < tokens; i++) {
    fake_token(request_of(), 'y', "0123456789abcde\"");
    fake_deliver();
  }
}

static int count_of(const fake_exchange_t *exchange, const char *text) {
  int count = 0;
  for (const char *at = exchange->body; (at = strstr(at, text)) != NULL; at++) count++;
  return count;
}

/* The events at the end point to a large text, and are printed while they are sent. */
Test(responses, a_large_text_is_repeated_in_pieces) {
  fake_exchange_t *exchange = ask("{\"input\":\"hi\",\"stream\":true}");
  generate(LONG_TOKENS);
  size_t deltas = exchange->body_length;
  fake_token(request_of(), 'z', "z");
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  cr_assert(exchange->ended);
  ASSERT_LE_FOR(exchange->largest_write, (size_t)SENT_MAX, "bytes that one turn has built");
  ASSERT_GT(exchange->body_length - deltas, (size_t)4 * LONG_BYTES);
  ASSERT_EQ(count_of(exchange, "event: response.output_text.done\n"), 1);
  ASSERT_EQ(count_of(exchange, "event: response.completed\n"), 1);
  ASSERT_EQ_FOR(count_of(exchange, "abcde\\\"z\""), 4, "whole in four places");
  fake_exchange_free(exchange);
}

/* The thoughts end while the stream goes on: what follows waits until they are printed. */
Test(responses, what_follows_large_thoughts_waits_for_them) {
  server.live->reasoning_format = reasoning_format_find("think");
  fake_exchange_t *exchange = ask("{\"input\":\"hi\",\"stream\":true}");
  fake_token(request_of(), 't', "<think>");
  generate(LONG_TOKENS);
  fake_token(request_of(), 't', "</think>");
  fake_token(request_of(), 'a', "behind");
  fake_deliver();
  size_t sent = exchange->body_length;
  fake_token(request_of(), 'a', " them");
  fake_deliver();
  ASSERT_EQ_FOR(exchange->body_length, sent, "the end of the thoughts is not taken yet");
  fake_pull(exchange);
  ASSERT_EQ(count_of(exchange, "event: response.reasoning_text.done\n"), 1);
  const char *end = strstr(exchange->body, "event: response.reasoning_text.done\n");
  cr_assert(strstr(end, "\"delta\":\" them\"") != NULL);
  fake_token(request_of(), 'a', " more");
  fake_deliver();
  fake_done(request_of(), FINISH_STOP, "");
  fake_deliver();
  cr_assert(exchange->ended);
  ASSERT_EQ_FOR(count_of(exchange, "\"text\":\"behind them more\""), 4, "in four places");
  ASSERT_LE(exchange->largest_write, (size_t)SENT_MAX);
  fake_exchange_free(exchange);
}

Test(responses, a_client_that_leaves_amid_the_pieces_leaves_nothing) {
  server.live->reasoning_format = reasoning_format_find("think");
  fake_exchange_t *exchange = ask("{\"input\":\"hi\",\"stream\":true}");
  fake_token(request_of(), 't', "<think>");
  generate(LONG_TOKENS);
  fake_token(request_of(), 't', "</think>");
  fake_token(request_of(), 'a', "behind");
  fake_deliver();
  fake_exchange_gone(exchange, "client_gone");
  fake_done(request_of(), FINISH_ABORT, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(responses, failure_of_a_stream) {
  fake_exchange_t *exchange = ask("{\"input\":\"hi\",\"stream\":true}");
  fake_token(request_of(), 'a', "a");
  fake_deliver();
  fake_fail(request_of(), ERR_DEVICE_FAILED);
  fake_deliver();
  expect_in(exchange, "event: response.failed\n");
  expect_in(exchange, "\"status\":\"failed\",\"background\":false,\"error\":{\"code\":"
                      "\"server_error\",\"message\":\"The device has failed.\"}");
  cr_expect(exchange->ended && strstr(exchange->body, "[DONE]") == NULL);
  fake_exchange_free(exchange);
}

Test(responses, failure_before_the_first_token_of_a_stream_with_pings) {
  fake_exchange_t *exchange = ask("{\"input\":\"hi\",\"stream\":true}");
  completions_tick(&server, uv_hrtime() + (uint64_t)3600e9);
  fake_fail(request_of(), ERR_QUEUE_TIMEOUT);
  fake_deliver();
  cr_expect(strncmp(exchange->body, ": ping\n\nevent: response.created\n", 31) == 0);
  expect_in(exchange, "\"error\":{\"code\":\"rate_limit_exceeded\"");
  fake_exchange_free(exchange);
}

Test(responses, a_client_that_leaves_frees_its_request) {
  fake_exchange_t *exchange = ask("{\"input\":\"hi\",\"stream\":true}");
  request_t *request = request_of();
  fake_token(request, 'a', "a");
  fake_deliver();
  fake_exchange_gone(exchange, "client_disconnect");
  cr_expect(atomic_load(&request->cancelled));
  fake_done(request, FINISH_ABORT, "");
  fake_deliver();
  ASSERT_EQ(completions_live(&server), 0);
  fake_exchange_free(exchange);
}

/* ---- the request ---- */

Test(responses, spellings_of_one_history) {
#define PROMPT "<system>be\n\nkind<user>hi<assistant>yo<user>more<a>"
  prompt_of("{\"instructions\":\"be\",\"input\":[{\"role\":\"developer\",\"content\":\"kind\"},"
            "{\"role\":\"user\",\"content\":\"hi\"},{\"role\":\"assistant\",\"content\":\"yo\"},"
            "{\"role\":\"user\",\"content\":\"more\"}]}",
            PROMPT);
  prompt_of("{\"input\":[{\"type\":\"message\",\"role\":\"system\",\"content\":[{\"type\":"
            "\"input_text\",\"text\":\"be\"}]},{\"role\":\"developer\",\"content\":[{\"type\":"
            "\"input_text\",\"text\":\"kind\"}]},{\"role\":\"user\",\"content\":[{\"type\":"
            "\"input_text\",\"text\":\"hi\"}]},{\"type\":\"reasoning\",\"id\":\"rs_1\",\"summary\":"
            "[],\"content\":[]},{\"type\":\"message\",\"id\":\"msg_1\",\"status\":\"completed\","
            "\"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"yo\","
            "\"annotations\":[],\"logprobs\":[]}]},{\"role\":\"user\",\"content\":\"more\"}]}",
            PROMPT);
}

Test(responses, calls_and_their_outputs) {
  prompt_of("{\"input\":[{\"role\":\"user\",\"content\":\"a\"},{\"type\":\"function_call\","
            "\"call_id\":\"c1\",\"name\":\"run\",\"arguments\":\"{}\"},{\"type\":"
            "\"custom_tool_call\",\"call_id\":\"c2\",\"name\":\"p\",\"input\":\"x\"},"
            "{\"type\":\"function_call_output\",\"call_id\":\"c1\",\"output\":\"1\"},"
            "{\"type\":\"custom_tool_call_output\",\"call_id\":\"c2\",\"output\":[{\"type\":"
            "\"input_text\",\"text\":\"2\"}]}]}",
            "<user>a<assistant><tool>1<tool>2<a>");
}

Test(responses, refusals_name_the_place) {
  static const struct {
    const char *body;
    int code;
    const char *param;
  } cases[] = {
      {"{}", ERR_MISSING_PARAMETER, "input"},
      {"[]", ERR_INVALID_JSON, ""},
      {"{\"input\":[]}", ERR_INVALID_VALUE, "input"},
      {"{\"input\":7}", ERR_INVALID_TYPE, "input"},
      {"{\"input\":[7]}", ERR_INVALID_TYPE, "input[0]"},
      {"{\"input\":[{\"role\":\"x\",\"content\":\"\"}]}", ERR_INVALID_VALUE, "input[0].role"},
      {"{\"input\":[{\"role\":\"user\"}]}", ERR_MISSING_PARAMETER, "input[0].content"},
      {"{\"input\":[{\"role\":\"user\",\"content\":[{\"type\":\"input_image\"}]}]}",
       ERR_UNSUPPORTED_CONTENT_PART, "input[0].content[0]"},
      {"{\"input\":[{\"type\":\"item_reference\",\"id\":\"x\"}]}", ERR_INVALID_VALUE,
       "input[0].type"},
      {"{\"input\":[{\"type\":7}]}", ERR_INVALID_VALUE, "input[0].type"},
      {"{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\",\"output\":\"\"}]}",
       ERR_INVALID_VALUE, "input[0].call_id"},
      {"{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\"}]}",
       ERR_MISSING_PARAMETER, "input[0].arguments"},
      {"{\"input\":[{\"type\":\"function_call\",\"call_id\":\"c\",\"name\":\"f\",\"arguments\":"
       "\"{\"}]}",
       0, ""},
      {"{\"input\":\"a\",\"previous_response_id\":\"r\"}", ERR_UNSUPPORTED_PARAMETER,
       "previous_response_id"},
      {"{\"input\":\"a\",\"background\":true}", ERR_UNSUPPORTED_PARAMETER, "background"},
      {"{\"input\":\"a\",\"n\":2}", ERR_UNSUPPORTED_PARAMETER, "n"},
      {"{\"input\":\"a\",\"truncation\":\"auto\"}", ERR_INVALID_VALUE, "truncation"},
      {"{\"input\":\"a\",\"max_output_tokens\":0}", ERR_BELOW_MIN, "max_output_tokens"},
      {"{\"input\":\"a\",\"max_output_tokens\":1000}", ERR_CONTEXT_LENGTH, "input"},
      {"{\"input\":\"a\",\"temperature\":3}", ERR_INVALID_VALUE, "temperature"},
      {"{\"input\":\"a\",\"top_logprobs\":2}", ERR_INVALID_VALUE, "top_logprobs"},
      {"{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"xml\"}}}", ERR_INVALID_VALUE,
       "text.format.type"},
      {"{\"input\":\"a\",\"text\":{\"format\":{\"type\":\"json_schema\",\"name\":\"a\"}}}",
       ERR_MISSING_PARAMETER, "text.format.schema"},
      {"{\"input\":\"a\",\"tools\":[{\"type\":\"mcp\"},{\"type\":\"function\",\"name\":\"a b\"}]}",
       ERR_INVALID_VALUE, "tools[1].name"},
      {"{\"input\":\"a\",\"tools\":[{\"type\":\"mcp\"}],\"tool_choice\":\"required\"}",
       ERR_INVALID_VALUE, "tool_choice"},
      {"{\"input\":\"a\",\"tools\":" TOOLS ",\"tool_choice\":{\"type\":\"function\",\"name\":"
       "\"web_search\"}}",
       ERR_INVALID_VALUE, "tool_choice"},
      {"{\"input\":\"a\",\"tools\":" TOOLS ",\"tool_choice\":{\"type\":\"mcp\"}}",
       ERR_INVALID_VALUE, "tool_choice"},
  };
  config.lenient_history = false; /* else histories are mended */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    refuse(cases[i].body, cases[i].code, cases[i].param);
  }
}

Test(responses, choice_of_tools) {
  static const struct {
    const char *choice, *prompt;
  } cases[] = {
      {"\"auto\"", "3#<user>hi<a>"},
      {"\"none\"", "<user>hi<a>"},
      {"{\"type\":\"allowed_tools\",\"mode\":\"auto\",\"tools\":[{\"type\":\"function\",\"name\":"
       "\"go\"},{\"type\":\"custom\",\"name\":\"patch\"}]}",
       "2#<user>hi<a>"},
      {"{\"type\":\"custom\",\"name\":\"patch\"}", "3#<user>hi<a>"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    char fields[300];
    snprintf(fields, sizeof fields, ",\"tool_choice\":%s", cases[i].choice);
    fake_exchange_t *exchange = with_thoughts(fields);
    expect_prompt(cases[i].prompt);
    fake_finish_all();
    fake_exchange_free(exchange);
  }
}

/* A template that does not read the effort: the header has the name that the client used. */
Test(responses, an_effort_without_effect_is_named) {
  fake_exchange_t *exchange = ask("{\"input\":\"hi\",\"reasoning\":{\"effort\":\"low\"}}");
  fake_finish_all();
  cr_expect(strstr(exchange->headers, "x-inferd-ignored-params: reasoning.effort\n") != NULL, "%s",
            exchange->headers);
  fake_exchange_free(exchange);
}

Test(responses, body_of_codex) {
  fake_exchange_t *exchange = ask(
      "{\"client_metadata\":{\"a\":\"b\"},\"include\":[\"reasoning.encrypted_content\"],"
      "\"input\":[{\"type\":\"message\",\"role\":\"developer\",\"content\":[{\"type\":"
      "\"input_text\",\"text\":\"d\"}]},{\"type\":\"message\",\"role\":\"user\",\"content\":[{"
      "\"type\":\"input_text\",\"text\":\"u\"}]}],\"model\":\"tiny\",\"parallel_tool_calls\":false,"
      "\"prompt_cache_key\":\"k\",\"reasoning\":{\"summary\":\"auto\"},\"store\":false,"
      "\"stream\":true,\"tool_choice\":\"auto\",\"tools\":[]}");
  expect_prompt("<system>d<user>u<a>");
  cr_expect(strstr(exchange->headers, "ignored") == NULL, "%s", exchange->headers);
  answer("ok", FINISH_STOP);
  expect_in(exchange, "\"parallel_tool_calls\":false");
  fake_exchange_free(exchange);
}

enum { MUCH = 3 << 20, HALF = 80 * 1024 }; /* bytes of a value */

/* Asks with two values that are `first` and `second` times "a" long, and generates an answer. */
static fake_exchange_t *ask_at_length(const char *format, size_t first, size_t second) {
  char *body = malloc(first + second + 1000), *long_text = malloc(first + second + 1);
  cr_assert(body != NULL && long_text != NULL);
  memset(long_text, 'a', first + second);
  long_text[first + second] = '\0';
  snprintf(body, first + second + 1000, format, (int)first, long_text, (int)second, long_text);
  fake_exchange_t *exchange = fake_call(api_responses, body);
  free(body);
  free(long_text);
  cr_assert(!exchange->answered, "%s", exchange->error.message);
  answer("ok", FINISH_STOP);
  return exchange;
}

Test(responses, what_the_events_repeat_is_bounded) {
  static const char format[] = "{\"stream\":true,\"input\":\"hi\",\"metadata\":{\"a\":\"%.*s\"},"
                               "\"tools\":[{\"type\":\"mcp\",\"x\":\"%.*s\"}]}";
  fake_exchange_t *exchange = ask_at_length(format, MUCH, MUCH);
  ASSERT_LE(exchange->body_length, 10000);
  expect_in(exchange, "\"metadata\":{},");
  expect_in(exchange, "\"tools\":[],");
  cr_expect(strstr(exchange->headers, "x-inferd-ignored-params: metadata:not_repeated,"
                                      "tools:not_repeated,tools.0:mcp\n") != NULL,
            "%s", exchange->headers);
  fake_exchange_free(exchange);
  /* Of two halves that do not fit together the first is repeated, three times. */
  exchange = ask_at_length(format, HALF, HALF);
  expect_in(exchange, "\"metadata\":{\"a\":\"aaa");
  expect_in(exchange, "\"tools\":[],");
  ASSERT_LE(3 * HALF, exchange->body_length);
  ASSERT_LE(exchange->body_length, 3 * HALF + 10000);
  fake_exchange_free(exchange);
}

Test(responses, input_tokens) {
  fake_exchange_t *exchange = fake_call(api_responses_input_tokens, "{\"input\":\"hi\"}");
  ASSERT_STR_EQ(exchange->body, "{\"object\":\"response.input_tokens\",\"input_tokens\":11}");
  fake_exchange_free(exchange);
  exchange = fake_call(api_responses_input_tokens, "{}");
  ASSERT_EQ(exchange->error.code, ERR_MISSING_PARAMETER);
  fake_exchange_free(exchange);
}
