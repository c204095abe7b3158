/* test_embeddings.c: /v1/embeddings over a fake engine: what it is asked, and how vectors are
 * printed. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <string.h>

enum { SIZE = 4 };
static embedding_info_t info;

static void start(void) {
  fake_start();
  info = (embedding_info_t){.task = TASK_EMBED,
                            .pooling = POOLING_MEAN,
                            .size = SIZE,
                            .normalises = true,
                            .matryoshka = true};
  fake_engine.info.embedding = &info;
}

TestSuite(embeddings, .init = start, .fini = fake_stop, .timeout = 60);

/* Ends the requests that the engine has, in their order, with vectors of (first, 0, 0, 3). */
static void finish(void) {
  request_t *requests[8];
  int count = fake_engine.num_requests;
  memcpy(requests, fake_engine.requests, sizeof requests);
  for (int i = 0; i < count; i++) {
    requests[i]->pooled[0] = 4 + i;
    requests[i]->pooled[3] = 3;
    fake_done(requests[i], FINISH_STOP, "");
  }
  fake_deliver();
}

static void expect_answer(const char *body, const char *data, int tokens) {
  fake_exchange_t *exchange = fake_call(api_embeddings, body);
  char expected[512];
  finish();
  ASSERT_EQ_FOR(exchange->status, 200, "%s", exchange->error.message);
  json_doc_t *doc = fake_json(exchange); /* the id is random */
  const json_t *id = json_get(json_root(doc), "id");
  snprintf(expected, sizeof expected,
           "{\"id\":\"%.*s\",\"object\":\"list\",\"data\":[%s],\"model\":\"tiny\",\"usage\":"
           "{\"prompt_tokens\":%d,\"total_tokens\":%d}}",
           (int)id->length, id->text, data, tokens, tokens);
  ASSERT_STR_EQ(exchange->body, expected);
  cr_assert(strncmp(id->text, "embd-", 5) == 0);
  json_free(doc);
  fake_exchange_free(exchange);
}

#define VECTOR(index, values)                                                                      \
  "{\"object\":\"embedding\",\"index\":" #index ",\"embedding\":" values "}"

Test(embeddings, vectors_are_cut_and_then_normalised) {
  expect_answer("{\"input\":\"abc\"}", VECTOR(0, "[0.8,0.0,0.0,0.6]"), 4);
  expect_answer("{\"input\":\"abc\",\"normalize\":false}", VECTOR(0, "[4.0,0.0,0.0,3.0]"), 4);
  expect_answer("{\"input\":\"abc\",\"dimensions\":2}", VECTOR(0, "[1.0,0.0]"), 4);
  expect_answer("{\"input\":\"abc\",\"dimensions\":2,\"normalize\":false}", VECTOR(0, "[4.0,0.0]"),
                4);
  info.normalises = false;
  expect_answer("{\"input\":\"abc\"}", VECTOR(0, "[4.0,0.0,0.0,3.0]"), 4);
  expect_answer("{\"input\":\"abc\",\"normalize\":true}", VECTOR(0, "[0.8,0.0,0.0,0.6]"), 4);
  expect_answer("{\"input\":\"abc\",\"encoding_format\":\"base64\"}",
                VECTOR(0, "\"AACAQAAAAAAAAAAAAABAQA==\""), 4);
}

Test(embeddings, inputs_keep_their_order) {
  expect_answer("{\"input\":[\"abc\",\"d\"],\"normalize\":false}",
                VECTOR(0, "[4.0,0.0,0.0,3.0]") "," VECTOR(1, "[5.0,0.0,0.0,3.0]"), 6);
  expect_answer("{\"input\":[[1,2,3],[4]],\"normalize\":false,\"dimensions\":1}",
                VECTOR(0, "[4.0]") "," VECTOR(1, "[5.0]"), 4);
  expect_answer("{\"input\":[7,8],\"encoding_format\":\"base64\",\"dimensions\":1}",
                VECTOR(0, "\"AACAPw==\""), 2);
}

Test(embeddings, the_engine_gets_no_more_than_a_prompt) {
  fake_exchange_t *exchange =
      fake_call(api_embeddings, "{\"input\":\"abcdef\",\"truncate_prompt_tokens\":3}");
  ASSERT_EQ(fake_engine.num_requests, 1);
  const request_t *request = fake_engine.requests[0];
  ASSERT_EQ(request->pooling, POOLING_MEAN);
  ASSERT_EQ(request->params.max_tokens, 0);
  ASSERT_EQ(request->params.num_logprobs, -1);
  ASSERT_EQ(request->params.num_prompt_logprobs, -1);
  ASSERT_EQ(request->num_prompt_tokens, 3);
  ASSERT_EQ(request->prompt_ids[0], FAKE_BOS); /* the end is cut off */
  for (int i = 0; i < SIZE; i++) ASSERT_EQ(request->pooled[i], 0);
  fake_exchange_gone(exchange, "disconnected");
  ASSERT_EQ(fake_engine.num_cancelled, 1);
  fake_finish_all();
  fake_exchange_free(exchange);
}

static void expect_refused(void (*handle)(exchange_t *), const char *body, int code,
                           const char *param, const char *text) {
  fake_exchange_t *exchange = fake_call(handle, body);
  cr_assert(exchange->answered, "%s", body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s: %s", body, exchange->error.message);
  ASSERT_STR_EQ(exchange->error.param, param);
  cr_assert(strstr(exchange->error.message, text) != NULL, "%s", exchange->error.message);
  fake_exchange_free(exchange);
}

Test(embeddings, refusals_name_field_value_and_limit) {
  expect_refused(api_embeddings, "{\"input\":\"a\",\"dimensions\":5}", ERR_ABOVE_MAX, "dimensions",
                 "Expected a value <= 4, the size of the model's vectors");
  for (int i = 0; i < 2; i++) info.sizes[i] = i + 1;
  info.num_sizes = 2;
  expect_refused(api_embeddings, "{\"input\":\"a\",\"dimensions\":3}", ERR_INVALID_VALUE,
                 "dimensions", "'dimensions' is 3; the model was trained for 1 and 2.");
  info.matryoshka = false;
  expect_refused(api_embeddings, "{\"input\":\"a\",\"dimensions\":2}", ERR_INVALID_VALUE,
                 "dimensions", "'dimensions' is 2, but the model was not trained for shorter");
  expect_answer("{\"input\":\"abc\",\"dimensions\":4}", VECTOR(0, "[0.8,0.0,0.0,0.6]"), 4);
  expect_refused(api_embeddings, "{\"prompt\":\"a\"}", ERR_UNSUPPORTED_PARAMETER, "prompt",
                 "use 'input'");
  fake_option("max_queue_requests", "2");
  expect_refused(api_embeddings, "{\"input\":[\"a\",\"b\",\"c\"]}", ERR_INVALID_VALUE, "input",
                 "Too many inputs: at most 2");
}

Test(embeddings, each_task_refuses_the_routes_of_the_other) {
  expect_refused(api_completions, "{\"prompt\":\"a\"}", ERR_UNSUPPORTED_ENDPOINT, "",
                 "Use /v1/embeddings");
  expect_refused(api_chat_completions, "{}", ERR_UNSUPPORTED_ENDPOINT, "", "Use /v1/embeddings");
  fake_engine.info.embedding = NULL;
  expect_refused(api_embeddings, "{\"input\":\"a\"}", ERR_UNSUPPORTED_ENDPOINT, "",
                 "makes no embeddings");
}

Test(embeddings, a_failed_input_fails_the_request) {
  fake_exchange_t *exchange = fake_call(api_embeddings, "{\"input\":[\"a\",\"b\"]}");
  ASSERT_EQ(fake_engine.num_requests, 2);
  fake_fail(fake_engine.requests[0], ERR_INTERNAL);
  fake_deliver();
  ASSERT_EQ(exchange->error.code, ERR_INTERNAL);
  ASSERT_EQ(fake_engine.num_cancelled, 1);
  fake_finish_all();
  fake_exchange_free(exchange);
}
