/* test_routes.c: models, tokenize, detokenize, health, version, what is not there yet. */
#include "tests/server/api/fake.h"

#include "server/observe/health.h"

#include "engine/base/clock.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

TestSuite(routes, .init = fake_start, .fini = fake_stop, .timeout = 60);

static void expect(void (*handle)(exchange_t *), const char *body, int status, const char *reply) {
  fake_exchange_t *exchange = fake_call(handle, body);
  ASSERT_EQ_FOR(exchange->status, status, "%s", exchange->body);
  ASSERT_STR_EQ(exchange->body, reply);
  fake_exchange_free(exchange);
}

static void refuse(void (*handle)(exchange_t *), const char *body, int code, const char *param) {
  fake_exchange_t *exchange = fake_call(handle, body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s: %s", body, exchange->body);
  ASSERT_STR_EQ(exchange->error.param, param);
  fake_exchange_free(exchange);
}

#define CARD(id)                                                                                   \
  "{\"id\":\"" id "\",\"object\":\"model\",\"created\":1700000000,\"owned_by\":\"inferd\","        \
  "\"type\":\"model\",\"display_name\":\"" id "\",\"created_at\":\"2023-11-14T22:13:20Z\","        \
  "\"root\":\"tiny\",\"parent\":null,\"max_model_len\":128,\"permission\":[]}"

Test(routes, models) {
  expect(api_models, "", 200,
         "{\"object\":\"list\",\"data\":[" CARD(
             "tiny") "],\"has_more\":false,\"first_id\":\"tiny\",\"last_id\":\"tiny\"}");
  fake_exchange_t *exchange = fake_call_path(api_model, "tiny");
  ASSERT_STR_EQ(exchange->body, CARD("tiny"));
  fake_exchange_free(exchange);
  exchange = fake_call_path(api_model, "org/other");
  ASSERT_EQ(exchange->status, 404);
  ASSERT_STR_EQ(
      exchange->error.message,
      "The model `org/other` does not exist. This server has `tiny`; GET /v1/models lists "
      "every name.");
  fake_exchange_free(exchange);
}

Test(routes, tokenize) {
  expect(api_tokenize, "{\"prompt\":\"ab\"}", 200,
         "{\"count\":3,\"max_model_len\":128,\"tokens\":[256,97,98],\"token_strs\":null}");
  expect(api_tokenize,
         "{\"prompt\":\"a\\u00e9\",\"add_special_tokens\":false,\"return_token_strs\":true}", 200,
         "{\"count\":3,\"max_model_len\":128,\"tokens\":[97,195,169],"
         "\"token_strs\":[\"#a\",\"#\xef\xbf\xbd\",\"#\xef\xbf\xbd\"]}");
  expect(api_tokenize, "{\"prompt\":\"\",\"add_special_tokens\":false}", 200,
         "{\"count\":0,\"max_model_len\":128,\"tokens\":[],\"token_strs\":null}");
  refuse(api_tokenize, "{}", ERR_MISSING_PARAMETER, "prompt");
  refuse(api_tokenize, "{\"prompt\":null}", ERR_MISSING_PARAMETER, "prompt");
  refuse(api_tokenize, "{\"prompt\":[\"a\"]}", ERR_INVALID_TYPE, "prompt");
  refuse(api_tokenize, "{\"prompt\":\"a\",\"model\":\"x\"}", ERR_MODEL_NOT_FOUND, "model");
  refuse(api_tokenize, "[", ERR_INVALID_JSON, "");
}

#define HI "\"messages\":[{\"role\":\"u\",\"content\":\"h\"}]"

Test(routes, tokenize_messages) {
  expect(api_tokenize, "{" HI "}", 200,
         "{\"count\":7,\"max_model_len\":128,\"tokens\":[60,117,62,104,60,97,62],"
         "\"token_strs\":null}");
  expect(api_tokenize, "{" HI ",\"add_generation_prompt\":false,\"add_special_tokens\":true}", 200,
         "{\"count\":5,\"max_model_len\":128,\"tokens\":[256,60,117,62,104],"
         "\"token_strs\":null}");
  expect(api_tokenize,
         "{" HI ",\"continue_final_message\":true,\"tools\":[{\"function\":{\"name\":\"f\"}}]}",
         200,
         "{\"count\":6,\"max_model_len\":128,\"tokens\":[49,35,60,117,62,104],"
         "\"token_strs\":null}");
  refuse(api_tokenize, "{\"messages\":[]}", ERR_INVALID_VALUE, "messages");
  refuse(api_tokenize, "{" HI ",\"prompt\":\"a\"}", ERR_INVALID_VALUE, "prompt");
  refuse(api_tokenize, "{" HI ",\"chat_template\":\"a\"}", ERR_UNSUPPORTED_PARAMETER,
         "chat_template");
  refuse(api_tokenize, "{" HI ",\"tools\":[1]}", ERR_INVALID_TYPE, "tools[0]");
  refuse(api_tokenize, "{\"messages\":[{\"role\":\"raise\",\"content\":\"\"}]}", ERR_BAD_REQUEST,
         "");
}

static void expect_report(const char *body, const char *part) {
  fake_exchange_t *exchange = fake_call(api_check_schema, body);
  ASSERT_EQ_FOR(exchange->status, 200, "%s", exchange->body);
  cr_assert_not_null(strstr(exchange->body, part), "%s", exchange->body);
  fake_exchange_free(exchange);
}

Test(routes, check_schema) {
  expect_report("{\"schema\":{\"type\":\"string\"}}", "\"accepted\":true");
  expect_report("{\"schema\":\"{\\\"type\\\":\\\"string\\\"}\"}", "\"accepted\":true");
  expect_report("{\"schema\":true,\"model\":\"tiny\",\"strict\":false}", "\"accepted\":true");
  expect_report("{\"schema\":{\"type\":\"object\"},\"strict\":true}", "\"accepted\":false");
  expect_report("{\"schema\":{\"properties\":{\"a\":{\"uniqueItems\":true}}}}",
                "{\"pointer\":\"/properties/a\",\"keyword\":\"uniqueItems\",");
  refuse(api_check_schema, "{}", ERR_MISSING_PARAMETER, "schema");
  refuse(api_check_schema, "{\"schema\":null}", ERR_MISSING_PARAMETER, "schema");
  refuse(api_check_schema, "{\"schema\":3}", ERR_INVALID_TYPE, "schema");
  refuse(api_check_schema, "{\"schema\":\"{\"}", ERR_INVALID_VALUE, "schema");
  refuse(api_check_schema, "{\"schema\":{},\"strict\":1}", ERR_INVALID_TYPE, "strict");
  refuse(api_check_schema, "{\"schema\":{},\"model\":\"x\"}", ERR_MODEL_NOT_FOUND, "model");
  ASSERT_EQ_FOR(schema_table.count, 3u, "a new field of /v1/schema/check wants a test");
}

Test(routes, detokenize) {
  expect(api_detokenize, "{\"tokens\":[256,104,105,258]}", 200, "{\"prompt\":\"<s>hi the\"}");
  expect(api_detokenize, "{\"tokens\":[]}", 200, "{\"prompt\":\"\"}");
  refuse(api_detokenize, "{}", ERR_MISSING_PARAMETER, "tokens");
  refuse(api_detokenize, "{\"tokens\":[300]}", ERR_INVALID_VALUE, "tokens");
  refuse(api_detokenize, "{\"tokens\":[-1]}", ERR_INVALID_VALUE, "tokens");
  refuse(api_detokenize, "{\"tokens\":\"a\"}", ERR_INVALID_TYPE, "tokens");
}

Test(routes, tokenize_for_a_client_that_goes) {
  fake_exchange_t *exchange = fake_exchange_new("{\"prompt\":\"ab\"}", 15);
  api_tokenize(&exchange->public);
  ASSERT_EQ(completions_live(&server), 1);
  fake_exchange_gone(exchange, "disconnect");
  fake_run();
  fake_exchange_free(exchange);
}

Test(routes, health_by_state) {
  static const struct {
    engine_state_t state;
    server_phase_t phase;
    int ready, live;
    const char *body;
  } rows[] = {
      {ENGINE_READY, SERVER_SERVING, 200, 200, "{\"status\":\"ok\"}"},
      {ENGINE_READY, SERVER_LEAVING, 503, 200, "{\"status\":\"leaving\"}"},
      {ENGINE_READY, SERVER_DRAINING, 503, 200, "{\"status\":\"draining\"}"},
      {ENGINE_FAILED, SERVER_SERVING, 503, 503, "{\"status\":\"failed\"}"},
      {ENGINE_FAILED, SERVER_DRAINING, 503, 503, "{\"status\":\"failed\"}"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fake_engine.state = rows[i].state;
    server.phase = rows[i].phase;
    expect(api_readyz, "", rows[i].ready, rows[i].body);
    fake_exchange_t *exchange = fake_call(api_livez, "");
    ASSERT_EQ(exchange->status, rows[i].live);
    ASSERT_EQ(strstr(exchange->headers, "Retry-After: ") != NULL, rows[i].live == 503);
    fake_exchange_free(exchange);
  }
  fake_engine.state = ENGINE_READY;
  server.phase = SERVER_SERVING;
}

Test(routes, health_while_loading) {
  fake_engine.state = ENGINE_LOADING;
  fake_engine.progress = 0.25;
  server.start_ns = clock_now_ns() - 4000000000u;
  fake_exchange_t *exchange = fake_call(api_readyz, "");
  ASSERT_EQ(exchange->status, 503);
  json_doc_t *doc = fake_json(exchange);
  int64_t eta;
  cr_assert(json_equals(json_get(json_root(doc), "status"), "loading"));
  cr_assert(json_int64(json_get(json_root(doc), "eta_s"), &eta));
  ASSERT_GE(eta, 12);
  ASSERT_LE(eta, 30);
  cr_assert(strstr(exchange->body, "\"progress\":0.25") != NULL);
  cr_assert(strstr(exchange->headers, "Retry-After: ") != NULL);
  json_free(doc);
  fake_exchange_free(exchange);
  expect(api_livez, "", 200, "{\"status\":\"ok\"}");
  fake_engine.state = ENGINE_READY;
}

static void expect_health(int status, health_verdict_t verdict, uint64_t now_ns) {
  const char *body = status == 200 ? "{\"status\":\"ok\"}" : "{\"status\":\"failed\"}";
  ASSERT_EQ(health_verdict(&server, now_ns, health_limit_ns(&server)), verdict);
  expect(api_livez, "", status, body);
  expect(api_readyz, "", status, body);
}

/* No step ends for two minutes, with a limit of one. What the engine thread does in that time tells
 * who is to blame. */
Test(routes, livez_sees_who_stands_still) {
  uint64_t now = clock_now_ns(), minute = 60000000000u;
  uint64_t long_ago = now - 2 * minute, lately = now - minute / 2;
  engine_activity_t *activity = &fake_engine.activity;
  fake_engine.stats.last_step_ns = now - 10 * minute;
  expect_health(200, HEALTH_FINE, now); /* idle for ten minutes is fine */
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":[1]}");
  expect_health(200, HEALTH_FINE, now); /* work has only just come */
  server.live->busy_since_ns = long_ago;
  *activity =
      (engine_activity_t){.phase = ENGINE_WAITS, .since_ns = long_ago, .worked_ns = long_ago};
  expect_health(503, HEALTH_HANGS, now);
  activity->phase = ENGINE_LAUNCHES;
  expect_health(503, HEALTH_HANGS, now);
  activity->since_ns = lately; /* launch after launch, each returns */
  expect_health(200, HEALTH_LATE, now);
  activity->phase = ENGINE_MAKES_MASKS;
  expect_health(503, HEALTH_STUCK, now);
  activity->since_ns = long_ago;
  activity->worked_ns = lately; /* one long phase, in which work is counted */
  expect_health(200, HEALTH_LATE, now);
  const request_t *request = fake_engine.requests[0];
  ASSERT_STR_EQ(completions_request_id(&server, request->id), exchange->public.request_id);
  ASSERT_STR_EQ(completions_request_id(&server, request->id + 1), "?");
  fake_engine.stats.last_step_ns = now;
  expect_health(200, HEALTH_FINE, now);
  fake_engine.stats.last_step_ns = 0;
  activity->worked_ns = long_ago;
  fake_option("watchdog_interval", "0");
  expect_health(200, HEALTH_FINE, now);
  fake_done(fake_engine.requests[0], FINISH_LENGTH, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(routes, version) {
  fake_exchange_t *exchange = fake_call(api_version, "");
  json_doc_t *doc = fake_json(exchange);
  const json_t *version = json_get(json_root(doc), "version");
  cr_assert(version != NULL);
  ASSERT_EQ(version->type, JSON_STRING);
  ASSERT_GT(version->length, 0);
  cr_assert(json_equals(json_get(json_root(doc), "backend"), "cpu"));
  json_free(doc);
  fake_exchange_free(exchange);
}
