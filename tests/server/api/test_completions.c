/* test_completions.c: the life of a completion: plain and streamed answers, several prompts, errors
 * before and after the first byte, clients that go away. */
#include "engine/base/clock.h"
#include "server/completion/salt.h"
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(completions, .init = fake_start, .fini = fake_stop, .timeout = 60);

static request_t *request_at(int index) {
  return &server.live->first->inputs[index].request;
}

static fake_exchange_t *complete(const char *fields) {
  char body[1024];
  snprintf(body, sizeof body, "{\"prompt\":\"ab\"%s%s}", *fields != '\0' ? "," : "", fields);
  fake_exchange_t *exchange = fake_call(api_completions, body);
  cr_assert(!exchange->answered, "%s", exchange->body);
  return exchange;
}

static void expect_body(fake_exchange_t *exchange, const char *expected) {
  ASSERT_STR_EQ_FOR(fake_steady_body(exchange), expected, "%s\nexpected\n%s", exchange->body,
                    expected);
}

#define HEAD(id)                                                                                   \
  "\"id\":\"cmpl-" id "\",\"object\":\"text_completion\",\"created\":1,\"model\":\"tiny\","
#define USAGE(p, c, t)                                                                             \
  "{\"prompt_tokens\":" p ",\"completion_tokens\":" c ",\"total_tokens\":" t                       \
  ",\"prompt_tokens_details\":{\"cached_tokens\":0},\"completion_tokens_details\":null}"
#define FINGERPRINT ",\"system_fingerprint\":\"inferd-0-abcdef01\""

Test(completions, whole_response) {
  fake_exchange_t *exchange = complete("\"request_id\":\"r1\"");
  request_t *request = request_at(0);
  fake_token(request, 'x', "x\"");
  fake_token(request, 'y', "\n\xc3\xa9");
  fake_token(request, FAKE_EOS, "");
  fake_done(request, FINISH_STOP, "");
  fake_deliver();
  cr_assert(exchange->answered && exchange->status == 200);
  ASSERT_STR_EQ(exchange->content_type, "application/json");
  expect_body(exchange,
              "{" HEAD("r1") "\"choices\":[{\"index\":0,\"text\":\"x\\\"\\n\xc3\xa9\","
                             "\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null,"
                             "\"token_ids\":null,\"prompt_logprobs\":null,"
                             "\"prompt_token_ids\":null}],\"service_tier\":null" FINGERPRINT
                             ",\"usage\":" USAGE("3", "3", "6") ",\"kv_transfer_params\":null}");
  ASSERT_STR_EQ(exchange->public.log.finish, "stop");
  ASSERT_EQ(exchange->public.log.prompt_tokens, 3);
  ASSERT_EQ(exchange->public.log.generated_tokens, 3);
  fake_exchange_free(exchange);
}

Test(completions, plain_stream) {
  fake_exchange_t *exchange = complete("\"request_id\":\"r2\",\"stream\":true");
  request_t *request = request_at(0);
  fake_deliver();
  cr_assert(!exchange->streaming, "the status line is held until the first token");
  cr_assert_null(server.live->first->intake, "input is forgotten");
  fake_token(request, 'x', "x");
  fake_deliver();
  fake_token(request, 0xc3, "");
  fake_deliver();
  fake_token(request, 0xa9, "\xc3\xa9");
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(exchange->ended);
#define CHUNK(text, finish)                                                                        \
  "data: {" HEAD("r2") "\"choices\":[{\"index\":0,\"text\":\"" text                                \
                       "\",\"logprobs\":null,\"finish_reason\":" finish                            \
                       ",\"stop_reason\":null}]" FINGERPRINT "}\n\n"
  expect_body(exchange, CHUNK("x", "null") CHUNK("", "null")
                            CHUNK("\xc3\xa9", "\"length\"") "data: [DONE]\n\n");
#undef CHUNK
  fake_exchange_free(exchange);
}

Test(completions, stream_with_usage) {
  fake_exchange_t *exchange =
      complete("\"request_id\":\"r3\",\"stream\":true,\"stream_options\":{\"include_usage\":true}");
  request_t *request = request_at(0);
  fake_token(request, 'x', "x");
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  expect_body(exchange,
              "data: {" HEAD("r3") "\"choices\":[{\"index\":0,\"text\":\"x\",\"logprobs\":null,"
                                   "\"finish_reason\":\"length\",\"stop_reason\":null}],"
                                   "\"usage\":null" FINGERPRINT "}\n\n"
                                   "data: {" HEAD("r3") "\"choices\":[],\"usage\":" USAGE(
                                       "3", "1", "4") FINGERPRINT "}\n\ndata: [DONE]\n\n");
  fake_exchange_free(exchange);
}

Test(completions, echo_and_scores_as_golden_json) {
  fake_exchange_t *exchange = complete(
      "\"request_id\":\"r4\",\"echo\":true,\"logprobs\":1,\"prompt_logprobs\":1,\"max_tokens\":1,"
      "\"return_token_ids\":true");
  request_t *request = request_at(0);
  ASSERT_EQ(request->params.num_prompt_logprobs, 1);
  token_logprob_t top[] = {{'a', -0.5f}, {'z', -1.5f}};
  fake_prompt_logprob(request, 1, -0.5f, 1, top, 1);
  fake_prompt_logprob(request, 2, -3.25f, 7, top, 1);
  fake_token_logprob(request, 'c', "c", -2, top, 1);
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  expect_body(exchange,
              "{" HEAD("r4") "\"choices\":[{\"index\":0,\"text\":\"abc\",\"logprobs\":{"
                             "\"text_offset\":[0,0,1,2],\"token_logprobs\":[null,-0.5,-3.25,-2.0],"
                             "\"tokens\":[\"<s>\",\"a\",\"b\",\"c\"],"
                             "\"top_logprobs\":[null,{\"a\":-0.5},{\"b\":-3.25,\"a\":-0.5},"
                             "{\"c\":-2.0,\"a\":-0.5}]},"
                             "\"finish_reason\":\"length\",\"stop_reason\":null,\"token_ids\":[99],"
                             "\"prompt_logprobs\":[null,"
                             "{\"97\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"a\"}},"
                             "{\"98\":{\"logprob\":-3.25,\"rank\":7,\"decoded_token\":\"b\"},"
                             "\"97\":{\"logprob\":-0.5,\"rank\":1,\"decoded_token\":\"a\"}}],"
                             "\"prompt_token_ids\":[256,97,98]}],\"service_tier\":null" FINGERPRINT
                             ",\"usage\":" USAGE("3", "1", "4") ",\"kv_transfer_params\":null}");
  fake_exchange_free(exchange);
}

Test(completions, scoring_without_tokens) {
  for (int stream = 0; stream <= 1; stream++) {
    fake_exchange_t *exchange = complete(stream ? "\"echo\":true,\"max_tokens\":0,\"stream\":true"
                                                : "\"echo\":true,\"max_tokens\":0");
    ASSERT_EQ(request_at(0)->params.max_tokens, 0);
    fake_done(request_at(0), FINISH_LENGTH, "");
    fake_deliver();
    cr_assert(strstr(exchange->body, "\"text\":\"ab\"") != NULL);
    cr_assert(strstr(exchange->body, "\"finish_reason\":\"length\"") != NULL);
    if (!stream) cr_assert(strstr(exchange->body, "\"completion_tokens\":0") != NULL);
    fake_exchange_free(exchange);
  }
}

Test(completions, ids_are_echoed_as_text) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":[256,104,105,258],\"echo\":true,\"logprobs\":0}");
  for (int i = 1; i < 4; i++) fake_prompt_logprob(request_at(0), i, -1, 1, NULL, 0);
  fake_token_logprob(request_at(0), '!', "!", -1, NULL, 0);
  fake_done(request_at(0), FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(strstr(exchange->body, "\"text\":\"<s>hi the!\"") != NULL, "%s", exchange->body);
  cr_assert(strstr(exchange->body, "\"text_offset\":[0,3,4,5,9]") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
  /* A cut text is decoded again, without the BOS that was added to it. */
  exchange = fake_call(api_completions,
                       "{\"prompt\":\"abcd\",\"echo\":true,\"truncate_prompt_tokens\":3}");
  fake_token(request_at(0), '!', "!");
  fake_done(request_at(0), FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(strstr(exchange->body, "\"text\":\"cd!\"") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

Test(completions, stop_reasons) {
  fake_exchange_t *exchange = complete("\"stop\":[\"x\",\"y\\\"\"]");
  fake_token(request_at(0), 'q', "q");
  fake_done_stop(request_at(0), -1, 1);
  fake_deliver();
  cr_assert(strstr(exchange->body, "\"stop_reason\":\"y\\\"\"") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
  exchange = complete("\"stop_token_ids\":[7],\"stream\":true");
  fake_token(request_at(0), 7, "");
  fake_done_stop(request_at(0), 7, -1);
  fake_deliver();
  cr_assert(strstr(exchange->body, "\"finish_reason\":\"stop\",\"stop_reason\":7}") != NULL);
  fake_exchange_free(exchange);
}

Test(completions, text_that_was_held_back_comes_with_the_end) {
  fake_exchange_t *exchange = complete("\"stream\":true");
  fake_token(request_at(0), 'q', "");
  fake_deliver();
  fake_done(request_at(0), FINISH_LENGTH, "held");
  fake_deliver();
  cr_assert(
      strstr(exchange->body, "\"text\":\"held\",\"logprobs\":null,\"finish_reason\":\"length\""));
  fake_exchange_free(exchange);
}

Test(completions, several_prompts) {
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":[\"a\",[1,2,3]]}");
  cr_assert(exchange->answered, "mixed forms are refused");
  fake_exchange_free(exchange);
  exchange = fake_call(api_completions, "{\"prompt\":[\"a\",\"bcd\",\"e\"],\"max_tokens\":4}");
  ASSERT_EQ(fake_engine.num_requests, 3);
  for (int i = 2; i >= 0; i--) { /* they end in another order */
    fake_token(request_at(i), '0' + i, (char[]){(char)('0' + i), '\0'});
    fake_done(request_at(i), FINISH_LENGTH, "");
    if (i > 0) fake_deliver();
    cr_assert(!exchange->answered);
  }
  fake_deliver();
  json_doc_t *doc = fake_json(exchange);
  int64_t index, expected = 0, tokens;
  JSON_EACH(choice, json_get(json_root(doc), "choices")) {
    char text[2] = {(char)('0' + expected), '\0'};
    cr_assert(json_int64(json_get(choice, "index"), &index) && index == expected++);
    cr_assert(json_equals(json_get(choice, "text"), text));
  }
  const json_t *usage = json_get(json_root(doc), "usage");
  cr_assert(json_int64(json_get(usage, "prompt_tokens"), &tokens) && tokens == 2 + 4 + 2);
  cr_assert(json_int64(json_get(usage, "completion_tokens"), &tokens) && tokens == 3);
  cr_assert(json_int64(json_get(usage, "total_tokens"), &tokens) && tokens == 11);
  json_free(doc);
  fake_exchange_free(exchange);
}

/* ---- errors ---- */

Test(completions, refusals_of_the_engine) {
  static const int codes[] = {ERR_QUEUE_FULL, ERR_CONTEXT_LENGTH, ERR_ENGINE_FAILED};
  for (int i = 0; i < 3; i++) {
    fake_engine.refuse = codes[i];
    fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"a\",\"stream\":true}");
    ASSERT_EQ(exchange->error.code, codes[i]);
    ASSERT_EQ(exchange->status, error_http_status(codes[i]));
    fake_exchange_free(exchange);
  }
  fake_engine.refuse = 0;
}

Test(completions, a_token_that_the_model_has_no_row_for) {
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"a\x7f\"}");
  cr_assert(exchange->status == 400 && exchange->error.code == ERR_INVALID_VALUE);
  fake_exchange_free(exchange);
}

Test(completions, draining_and_loading) {
  server.phase = SERVER_DRAINING;
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"a\"}");
  ASSERT_EQ(exchange->error.code, ERR_DRAINING);
  fake_exchange_free(exchange);
  fake_engine.state = ENGINE_LOADING;
  exchange = fake_call(api_completions, "{\"prompt\":\"a\"}");
  ASSERT_EQ(exchange->error.code, ERR_MODEL_LOADING);
  fake_exchange_free(exchange);
  fake_engine.state = ENGINE_READY;
}

Test(completions, a_failed_prompt_fails_the_request_and_cancels_the_rest) {
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":[\"a\",\"b\"]}");
  request_t *other = request_at(0);
  fake_fail(request_at(1), ERR_INTERNAL);
  fake_deliver();
  ASSERT_EQ(exchange->status, 500);
  ASSERT_EQ(fake_engine.num_cancelled, 1);
  ASSERT_EQ_FOR(completions_live(&server), 1, "the other one is still the engine's");
  fake_token(other, 'x', "late");
  fake_done(other, FINISH_ABORT, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(completions, waiting_too_long_is_429) {
  fake_exchange_t *exchange = complete("\"stream\":true");
  fake_fail(request_at(0), ERR_QUEUE_TIMEOUT);
  fake_deliver();
  cr_assert(exchange->answered && exchange->status == 429);
  fake_exchange_free(exchange);
}

Test(completions, errors_behind_the_first_byte_are_events) {
  fake_exchange_t *exchange = complete("\"stream\":true");
  fake_token(request_at(0), 'x', "x");
  fake_deliver();
  fake_fail(request_at(0), ERR_INTERNAL);
  fake_deliver();
  cr_assert(exchange->ended && exchange->status == 200);
  const char *event = strstr(exchange->body, "data: {\"error\":{\"message\":\"");
  cr_assert(event != NULL, "%s", exchange->body);
  ASSERT_STR_EQ(strstr(event, "\n\n") + 2, "data: [DONE]\n\n");
  ASSERT_EQ(strstr(exchange->body, "\"finish_reason\":\"error\""), NULL);
  fake_exchange_free(exchange);
}

/* A frame or a response that memory was too short for never leaves in part. */
Test(completions, memory_that_runs_out) {
  for (int stream = 0; stream <= 1; stream++) {
    fake_exchange_t *exchange = complete(stream ? "\"stream\":true" : "");
    request_t *request = request_at(0);
    server.live->first->choices[0].text.failed = true;
    fake_token(request, 'x', "x");
    fake_deliver();
    fake_done(request, FINISH_LENGTH, "");
    fake_deliver();
    ASSERT_EQ_FOR(exchange->status, 500, "%d: %s", stream, exchange->body);
    ASSERT_EQ(exchange->error.code, ERR_INTERNAL);
    fake_exchange_free(exchange);
  }
}

/* ---- clients that go ---- */

Test(completions, gone_clients_are_cancelled) {
  for (int stream = 0; stream <= 1; stream++) {
    fake_exchange_t *exchange = complete(stream ? "\"stream\":true" : "");
    request_t *request = request_at(0);
    fake_token(request, 'x', "x");
    fake_deliver();
    fake_exchange_gone(exchange, "disconnect");
    cr_assert(atomic_load(&request->cancelled));
    ASSERT_EQ(completions_live(&server), 1);
    fake_token(request, 'y', "y");
    fake_deliver();
    fake_done(request, FINISH_ABORT, "");
    fake_deliver();
    ASSERT_EQ(completions_live(&server), 0);
    fake_exchange_free(exchange);
  }
}

Test(completions, gone_while_the_pool_reads) {
  const char *body = "{\"prompt\":\"abc\",\"stop\":[\"x\"],\"bad_words\":[\"y\"],\"echo\":true}";
  fake_exchange_t *exchange = fake_exchange_new(body, strlen(body));
  api_completions(&exchange->public);
  ASSERT_EQ(exchange->public.body_length, 0); /* taken, and in use */
  fake_exchange_gone(exchange, "disconnect");
  ASSERT_EQ(completions_live(&server), 1);
  fake_run();
  ASSERT_EQ(completions_live(&server), 0);
  ASSERT_EQ(fake_engine.num_requests, 0);
  fake_exchange_free(exchange);
}

Test(completions, a_client_too_slow_to_take_a_chunk) {
  fake_exchange_t *exchange = complete("\"stream\":true");
  request_t *request = request_at(0);
  exchange->refuse_writes = true;
  fake_token(request, 'x', "x");
  fake_token(request, 'y', "y");
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(exchange->gone);
  ASSERT_EQ(completions_live(&server), 0);
  fake_exchange_free(exchange);
  exchange = complete("\"stream\":true");
  request = request_at(0);
  exchange->refuse_writes = true;
  fake_token(request, 'x', "x");
  fake_deliver();
  cr_assert(atomic_load(&request->cancelled));
  fake_done(request, FINISH_ABORT, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

/* ---- the pool ---- */

Test(completions, large_bodies_are_parsed_in_the_pool) {
  fake_engine.info.max_model_len = 1 << 22;
  size_t length = 200000;
  char *body = malloc(length + 64);
  size_t n = (size_t)sprintf(body, "{\"prompt\":\"");
  memset(body + n, 'a', length);
  strcpy(body + n + length, "\",\"zebra\":1}");
  fake_exchange_t *exchange = fake_exchange_new(body, strlen(body));
  api_completions(&exchange->public);
  ASSERT_EQ_FOR(fake_engine.num_requests, 0, "nothing is read on the loop thread");
  fake_run();
  ASSERT_EQ(request_at(0)->num_prompt_tokens, 200001);
  cr_assert(strstr(exchange->headers, "x-inferd-ignored-params: zebra\n") != NULL);
  fake_done(request_at(0), FINISH_LENGTH, "");
  fake_deliver();
  fake_exchange_free(exchange);
  body[n + 5] = '\xff';
  exchange = fake_call(api_completions, body);
  ASSERT_EQ(exchange->error.code, ERR_INVALID_JSON);
  fake_exchange_free(exchange);
  free(body);
}

Test(completions, small_bodies_of_ids_need_no_pool) {
  const char *body = "{\"prompt\":[1,2]}";
  fake_exchange_t *exchange = fake_exchange_new(body, strlen(body));
  api_completions(&exchange->public);
  ASSERT_EQ(fake_engine.num_requests, 1);
  fake_done(request_at(0), FINISH_LENGTH, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

/* ---- pings and intervals ---- */

static int count_of(const char *text, const char *part) {
  int count = 0;
  for (const char *at = text; at != NULL && (at = strstr(at, part)) != NULL; at++) count++;
  return count;
}

Test(completions, pings) {
  uint64_t second = 1000000000u;
  fake_exchange_t *exchange = complete("\"stream\":true");
  uint64_t start = server.live->first->queued_ns;
  completions_tick(&server, start + 29 * second);
  cr_assert(!exchange->streaming, "a request in the queue may still get its status");
  completions_tick(&server, start + 30 * second);
  cr_assert(exchange->streaming);
  completions_tick(&server, start + 44 * second);
  ASSERT_EQ(count_of(exchange->body, ": ping\n\n"), 1);
  completions_tick(&server, start + 45 * second);
  ASSERT_EQ(count_of(exchange->body, ": ping\n\n"), 2);
  fake_fail(request_at(0), ERR_QUEUE_TIMEOUT);
  fake_deliver();
  cr_assert(exchange->ended, "behind a ping every failure is an event");
  ASSERT_EQ(count_of(exchange->body, "\"code\":\"queue_timeout\""), 1);
  fake_exchange_free(exchange);
  exchange = complete("");
  completions_tick(&server, start + 1000 * second);
  cr_assert(!exchange->streaming);
  fake_done(request_at(0), FINISH_LENGTH, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(completions, stream_interval) {
  fake_exchange_t *exchange = complete("\"stream\":true,\"stream_interval\":3");
  for (int i = 0; i < 8; i++) {
    fake_token(request_at(0), 'a' + i, (char[]){(char)('a' + i), '\0'});
    fake_deliver();
  }
  fake_done(request_at(0), FINISH_LENGTH, "");
  fake_deliver();
  ASSERT_EQ(count_of(exchange->body, "\"text\":\"a\""), 1);
  ASSERT_EQ(count_of(exchange->body, "\"text\":\"bcd\""), 1);
  ASSERT_EQ(count_of(exchange->body, "\"text\":\"efg\""), 1);
  ASSERT_EQ(count_of(exchange->body, "\"text\":\"h\""), 1);
  fake_exchange_free(exchange);
}

Test(completions, obfuscation_pads_frames) {
  fake_exchange_t *exchange =
      complete("\"stream\":true,\"stream_options\":{\"include_obfuscation\":true}");
  fake_token(request_at(0), 'a', "a");
  fake_deliver();
  ASSERT_EQ(count_of(exchange->body, "\"obfuscation\":\""), 1);
  fake_done(request_at(0), FINISH_LENGTH, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(completions, headers_win_over_fields) {
  const char *body = "{\"prompt\":\"a\",\"request_id\":\"field\",\"priority\":5}";
  fake_exchange_t *exchange = fake_exchange_new(body, strlen(body));
  strcpy(exchange->public.request_id, "header-id");
  strcpy(exchange->request_headers[0][0], "X-Request-Id");
  strcpy(exchange->request_headers[0][1], "header-id");
  strcpy(exchange->request_headers[1][0], "X-Vllm-Priority");
  strcpy(exchange->request_headers[1][1], "-9");
  api_completions(&exchange->public);
  fake_run();
  ASSERT_EQ(request_at(0)->priority, -9);
  fake_done(request_at(0), FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(strstr(exchange->body, "\"id\":\"cmpl-header-id\"") != NULL);
  fake_exchange_free(exchange);
}

Test(completions, cache_domains) {
  static const struct {
    uint64_t tenant;
    const char *salt;
  } rows[] = {{0, ""}, {1, ""}, {0, "a"}, {1, "a"}, {1, "b"}, {1, "aaaaaaaa"}, {1, "aaaaaaaaa"}};
  enum { ROWS = sizeof rows / sizeof rows[0] };
  uint64_t salts[ROWS];
  for (int i = 0; i < ROWS; i++) {
    char body[80];
    const char *field = rows[i].salt[0] != '\0' ? "\"cache_salt\":\"" : "\"user\":\"";
    int n = snprintf(body, sizeof body, "{\"prompt\":[1],%s%s\"}", field, rows[i].salt);
    fake_exchange_t *exchange = fake_exchange_new(body, (size_t)n);
    exchange->public.tenant = rows[i].tenant;
    api_completions(&exchange->public);
    salts[i] = request_at(0)->salt;
    for (int j = 0; j < i; j++) ASSERT_NE_FOR(salts[i], salts[j], "rows %d and %d", i, j);
    fake_done(request_at(0), FINISH_LENGTH, "");
    fake_deliver();
    fake_exchange_free(exchange);
  }
}

/* SipHash-2-4 of the bytes 0..14 under the key 0..15, from its paper (appendix A); the tenant is
 * the first word of the message. */
Test(completions, salt_hash_is_siphash) {
  uint64_t key[2] = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
  char salt[] = {8, 9, 10, 11, 12, 13, 14};
  ASSERT_EQ(salt_hash(key, 0x0706050403020100u, salt, sizeof salt), 0xa129ca6149be45e5u);
}

/* ---- a stream equals the plain answer, however the engine's turns fall ---- */

typedef struct script {
  int num_prompts, num_tokens[4];
  char text[4][64][8]; /* of a token */
  int32_t ids[4][64];
  bool logprobs, ids_wanted, echo;
} script_t;

static void play(const script_t *script, uint32_t turns) {
  int at[4] = {0}, open = script->num_prompts;
  while (open > 0) {
    for (int p = 0; p < script->num_prompts; p++) {
      if (at[p] > script->num_tokens[p]) continue;
      turns = turns * 1664525 + 1013904223;
      int burst = (int)(turns >> 28) % 3; /* 0, 1 or 2 tokens in this turn */
      request_t *request = request_at(p);
      for (; burst > 0 && at[p] < script->num_tokens[p]; burst--, at[p]++) {
        token_logprob_t top = {script->ids[p][at[p]] / 2, -1.0f / (float)(at[p] + 1)};
        fake_token_logprob(request, script->ids[p][at[p]], script->text[p][at[p]],
                           -0.125f * (float)at[p], &top, 1);
      }
      if (at[p] == script->num_tokens[p] && (turns & 0x800000) != 0) {
        fake_done(request, FINISH_LENGTH, p == 1 ? "tail" : "");
        at[p]++;
        open--;
        if (open == 0) break;
      }
    }
    fake_deliver();
  }
}

static char *run_script(const script_t *script, bool stream, uint32_t turns) {
  static const char *const prompts[] = {"", "\"hi\"", "\"d\\u00e9f\",\"ab\"", "",
                                        "\"c\",\"<s>\",\"x y\",\"\\n\""};
  char body[512];
  snprintf(body, sizeof body,
           "{\"prompt\":[%s],\"max_tokens\":64,\"request_id\":\"x\",\"stream\":%s,"
           "\"logprobs\":%s,\"return_token_ids\":%s,\"echo\":%s,\"stream_interval\":%d}",
           prompts[script->num_prompts], stream ? "true" : "false", script->logprobs ? "1" : "null",
           script->ids_wanted ? "true" : "false", script->echo ? "true" : "false",
           1 + (int)(turns % 4));
  fake_exchange_t *exchange = fake_call(api_completions, body);
  cr_assert(!exchange->answered, "%s: %s", body, exchange->body);
  play(script, turns);
  cr_assert(stream ? exchange->ended : exchange->answered);
  char *copy = strdup(fake_steady_body(exchange));
  fake_exchange_free(exchange);
  return copy;
}

/* What a strict reader of the stream puts together, per choice. */
typedef struct joined {
  buffer_t text, ids, offsets, values, tokens;
  int finishes, chunks;
} joined_t;

static void join_array(buffer_t *out, const json_t *array) {
  JSON_EACH(element, array) {
    if (out->length > 0) buffer_char(out, ',');
    if (element->type == JSON_NULL) {
      buffer_text(out, "null");
    } else {
      buffer_append(out, element->text, element->length);
    }
  }
}

static void join_choice(joined_t *joined, const json_t *choice) {
  const json_t *text = json_get(choice, "text"), *logprobs = json_get(choice, "logprobs");
  cr_assert(text != NULL && logprobs != NULL && json_get(choice, "finish_reason") != NULL);
  cr_assert(json_get(choice, "stop_reason") != NULL);
  buffer_append(&joined->text, text->text, text->length);
  join_array(&joined->ids, json_get(choice, "token_ids"));
  join_array(&joined->offsets, json_get(logprobs, "text_offset"));
  join_array(&joined->values, json_get(logprobs, "token_logprobs"));
  join_array(&joined->tokens, json_get(logprobs, "tokens"));
  joined->chunks++;
  if (json_get(choice, "finish_reason")->type == JSON_STRING) {
    joined->finishes++;
  } else {
    ASSERT_EQ_FOR(joined->finishes, 0, "a chunk behind the last one");
  }
}

static void join_document(joined_t *joined, const char *text, size_t length, bool stream) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  int code = json_parse(text, length, &json_limits_model, &doc, &error);
  ASSERT_EQ_FOR(code, 0, "%s in %.*s", error.message, (int)length, text);
  const json_t *choices = json_get(json_root(doc), "choices");
  cr_assert(!stream || choices->count == 1);
  JSON_EACH(choice, choices) {
    int64_t index;
    cr_assert(json_int64(json_get(choice, "index"), &index) && index >= 0 && index < 4);
    join_choice(&joined[index], choice);
  }
  json_free(doc);
}

static void join_stream(joined_t *joined, const char *body) {
  while (strcmp(body, "data: [DONE]\n\n") != 0) {
    const char *end = strstr(body, "\n\n");
    cr_assert(end != NULL && strncmp(body, "data: ", 6) == 0);
    join_document(joined, body + 6, (size_t)(end - body - 6), true);
    body = end + 2;
  }
}

static void free_joined(joined_t *joined) {
  for (int i = 0; i < 4; i++) {
    buffer_free(&joined[i].text);
    buffer_free(&joined[i].ids);
    buffer_free(&joined[i].offsets);
    buffer_free(&joined[i].values);
    buffer_free(&joined[i].tokens);
  }
}

static void same(const buffer_t *a, const buffer_t *b, const char *what) {
  ASSERT_EQ_FOR(a->length, b->length, "%s: %.*s | %.*s", what, (int)a->length, a->data,
                (int)b->length, b->data);
  cr_assert(a->length == 0 || memcmp(a->data, b->data, a->length) == 0, "%s", what);
}

static void random_script(script_t *script, uint32_t seed) {
  static const char *const pieces[] = {"a",  "",     "\xc3\xa9",        "\"\\",
                                       "\n", " the", "\xf0\x9f\x98\x80"};
  memset(script, 0, sizeof *script);
  script->num_prompts = seed % 3 == 0 ? 4 : seed % 3 == 1 ? 2 : 1;
  script->logprobs = (seed & 4) != 0;
  script->ids_wanted = (seed & 8) != 0;
  script->echo = (seed & 16) != 0;
  for (int p = 0; p < script->num_prompts; p++) {
    seed = seed * 1664525 + 1013904223;
    script->num_tokens[p] = 1 + (int)(seed >> 26);
    if (script->num_tokens[p] > 60) script->num_tokens[p] = 60;
    for (int i = 0; i < script->num_tokens[p]; i++) {
      seed = seed * 1664525 + 1013904223;
      script->ids[p][i] = (int32_t)(seed >> 20) % FAKE_VOCAB;
      strcpy(script->text[p][i], pieces[(seed >> 12) % 7]);
    }
  }
}

Test(completions, streams_equal_plain_answers) {
  for (uint32_t seed = 0; seed < 96; seed++) {
    script_t script;
    joined_t plain[4] = {0}, streamed[4] = {0};
    random_script(&script, seed);
    char *whole = run_script(&script, false, seed),
         *events = run_script(&script, true, seed * 7 + 1);
    join_document(plain, whole, strlen(whole), false);
    join_stream(streamed, events);
    for (int p = 0; p < script.num_prompts; p++) {
      ASSERT_EQ(streamed[p].finishes, 1);
      ASSERT_LE(streamed[p].chunks, script.num_tokens[p] + 1);
      same(&plain[p].text, &streamed[p].text, "text");
      same(&plain[p].ids, &streamed[p].ids, "token_ids");
      same(&plain[p].offsets, &streamed[p].offsets, "text_offset");
      same(&plain[p].values, &streamed[p].values, "token_logprobs");
      same(&plain[p].tokens, &streamed[p].tokens, "tokens");
      ASSERT_EQ(script.ids_wanted, plain[p].ids.length > 0);
    }
    free_joined(plain);
    free_joined(streamed);
    free(whole);
    free(events);
  }
}

/* Many at once, ending in every way, the engine's turns interleaved. */
Test(completions, storm) {
  enum { LIVE = 60 };
  fake_exchange_t *exchanges[LIVE];
  uint32_t seed = 7;
  for (int i = 0; i < LIVE; i++) {
    exchanges[i] = complete(i % 2 ? "\"stream\":true,\"max_tokens\":50" : "\"max_tokens\":50");
  }
  while (fake_engine.num_requests > 0) {
    for (int i = 0; i < LIVE; i++) {
      seed = seed * 1664525 + 1013904223;
      fake_exchange_t *exchange = exchanges[i];
      bool over = exchange->answered || exchange->ended || exchange->gone;
      if ((seed >> 24) == 3 && !over) fake_exchange_gone(exchange, "disconnect");
    }
    for (int i = 0; i < fake_engine.num_requests; i++) {
      seed = seed * 1664525 + 1013904223;
      request_t *request = fake_engine.requests[i];
      if (atomic_load(&request->cancelled)) {
        fake_done(request, FINISH_ABORT, "");
      } else if ((seed >> 27) == 5) {
        fake_fail(request, ERR_INTERNAL);
      } else if ((seed >> 27) == 6) {
        fake_done(request, FINISH_LENGTH, "");
      } else {
        fake_token(request, 'x', "x");
      }
    }
    fake_deliver();
  }
  for (int i = 0; i < LIVE; i++) fake_exchange_free(exchanges[i]);
}
