/* test_memory.c: the memory that requests hold: counted while it lives, and gone with its buffer.
 */
#include "engine/base/util.h"
#include "server/lanes/lanes.h"
#include "server/observe/metrics.h"
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(memory, .init = fake_start, .fini = fake_stop);

static atomic_bool gate;
static uv_work_t blockers[LANE_THREADS];

static void wait_at_gate(uv_work_t *work) {
  (void)work;
  while (!atomic_load(&gate)) uv_sleep(1);
}

static void nothing(uv_work_t *work, int status) {
  (void)work, (void)status;
}

/* Occupies every thread of the pool until the gate is opened. */
static void block_pool(void) {
  atomic_store(&gate, false);
  for (size_t i = 0; i < ARRAY_LEN(blockers); i++) {
    ASSERT_EQ(uv_queue_work(server.loop, &blockers[i], wait_at_gate, nothing), 0);
  }
}

static size_t held(ledger_kind_t kind) {
  return ledger_stats(server.ledger).held[kind];
}

static void expect_sample(const char *line) {
  grammar_cache_stats_t grammars = {0};
  size_t length;
  char *page = metrics_render(&server, &grammars, NULL, false, 0, &length);
  cr_assert_not_null(strstr(page, line), "no line '%s' in %s", line, page);
  free(page);
}

static char *long_text_body(size_t length) {
  static const char head[] = "{\"prompt\":\"",
                    tail[] = "\",\"max_tokens\":1,\"truncate_prompt_tokens\":5}";
  char *body = malloc(length + sizeof head + sizeof tail);
  memcpy(body, head, sizeof head - 1);
  memset(body + sizeof head - 1, 'a', length);
  memcpy(body + sizeof head - 1 + length, tail, sizeof tail);
  return body;
}

/* Clients send large bodies and leave at once, while the pool is busy: their bodies are counted as
 * long as somebody holds them, and none of them is read. */
Test(memory, bodies_of_clients_that_left) {
  enum { CLIENTS = 12, LENGTH = 100000 };
  static void (*const handlers[])(exchange_t *) = {api_completions, api_tokenize};
  for (size_t h = 0; h < ARRAY_LEN(handlers); h++) {
    fake_exchange_t *exchanges[CLIENTS];
    char *body = long_text_body(LENGTH);
    block_pool();
    for (int i = 0; i < CLIENTS; i++) {
      exchanges[i] = fake_exchange_new(body, strlen(body));
      exchanges[i]->public.source = (uint64_t)i;
      handlers[h](&exchanges[i]->public);
      ASSERT_EQ(held(LEDGER_body), (size_t)(i + 1) * (strlen(body) + 1));
    }
    for (int i = 0; i < CLIENTS; i++) fake_exchange_gone(exchanges[i], "client_gone");
    /* What waited in a lane is gone; what the lane has handed to the pool is there, and counts. */
    int32_t running = lanes_stats(server.lanes, LANE_HEAVY).running;
    ASSERT_EQ(running, LANE_THREADS - 1);
    ASSERT_EQ(held(LEDGER_body), (size_t)running * (strlen(body) + 1));
    atomic_store(&gate, true);
    fake_run();
    ASSERT_EQ(ledger_stats(server.ledger).clients, 0);
    expect_sample("inferd_tokenize_bytes_total{model=\"tiny\"} 0\n"); /* no body was read */
    for (int i = 0; i < CLIENTS; i++) fake_exchange_free(exchanges[i]);
    free(body);
  }
}

/* A body of many JSON values, or of many ids, is refused before they are made; and what was counted
 * is gone with the request. */
Test(memory, values_and_ids_are_counted) {
  static void (*const handlers[])(exchange_t *) = {api_completions, api_detokenize};
  static const char *const names[] = {"prompt", "tokens"};
  for (size_t h = 0; h < ARRAY_LEN(handlers); h++) {
    for (int count = 100; count <= 10000; count *= 100) {
      buffer_t body = {0};
      buffer_text(&body, "{\"");
      buffer_text(&body, names[h]);
      buffer_text(&body, "\":[97");
      for (int i = 1; i < count; i++) buffer_text(&body, ",97");
      buffer_text(&body, "]}");
      buffer_char(&body, '\0');
      charge_t others = charge_open(server.ledger, 0, LEDGER_body);
      size_t limit = ledger_stats(server.ledger).limit;
      cr_assert(charge_resize(&others, limit - 300000)); /* room for a few thousand values */
      fake_exchange_t *exchange = fake_call(handlers[h], body.data);
      if (count == 100) {
        fake_finish_all();
        ASSERT_EQ_FOR(exchange->status, 200, "%s", exchange->body);
      } else {
        ASSERT_EQ_FOR(exchange->status, 503, "%s", exchange->body);
        cr_assert_not_null(strstr(exchange->body, "max_request_memory"));
      }
      fake_exchange_free(exchange);
      charge_drop(&others);
      ASSERT_EQ(ledger_stats(server.ledger).clients, 0);
      buffer_free(&body);
    }
  }
}

Test(memory, ids_count_until_the_request_is_done) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":\"abcdefg\",\"max_tokens\":3}");
  cr_assert_geq(held(LEDGER_ids), 7 * sizeof(int32_t));
  ASSERT_EQ(held(LEDGER_body), 0);
  ASSERT_EQ(held(LEDGER_values), 0);
  fake_finish_all();
  ASSERT_EQ(ledger_stats(server.ledger).clients, 0);
  fake_exchange_free(exchange);
}

static size_t output_of(int n) {
  char body[300];
  snprintf(body, sizeof body,
           "{\"prompt\":\"%090d\",\"max_tokens\":1,\"n\":%d,\"echo\":true,"
           "\"return_token_ids\":true,\"logprobs\":0}",
           7, n);
  fake_exchange_t *exchange = fake_call(api_completions, body);
  request_t *request = fake_engine.requests[0];
  for (int32_t i = 1; i < request->num_prompt_tokens; i++) {
    fake_prompt_logprob(request, i, -1, 1, NULL, 0);
  }
  fake_deliver();
  size_t bytes = held(LEDGER_output);
  fake_finish_all();
  ASSERT_EQ_FOR(exchange->status, 200, "%s", exchange->body);
  json_doc_t *doc = fake_json(exchange);
  const json_t *choices = json_get(json_root(doc), "choices");
  ASSERT_EQ(choices->count, n);
  JSON_EACH(choice, choices) {
    ASSERT_EQ(json_get(choice, "text")->length, 90);
    ASSERT_EQ(json_get(choice, "prompt_token_ids")->count, 91);
    ASSERT_EQ(json_get(json_get(choice, "logprobs"), "tokens")->count, 91);
  }
  json_free(doc);
  fake_exchange_free(exchange);
  ASSERT_EQ(ledger_stats(server.ledger).clients, 0);
  return bytes;
}

/* Ids, text and logprobs of a prompt are kept once, however many choices repeat them. */
Test(memory, choices_share_their_prompt) {
  size_t one = output_of(1);
  ASSERT_GT(one, 90 * 3);
  ASSERT_EQ(output_of(8), one);
}

/* The output of a request that does not stream counts while it grows. When it is too much, the
 * request fails, and its memory is free at once. */
Test(memory, output_is_counted) {
  charge_t others = charge_open(server.ledger, 0, LEDGER_body);
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"abc\",\"max_tokens\":90}");
  request_t *request = fake_engine.requests[0];
  size_t begun = held(LEDGER_output);
  for (int i = 0; i < 20; i++) fake_token(request, 'x', "a text of some forty bytes, more or less");
  fake_deliver();
  ASSERT_GE(held(LEDGER_output), begun + 800);
  cr_assert(charge_resize(&others, ledger_stats(server.ledger).limit -
                                       (held(LEDGER_output) + held(LEDGER_ids) + 200)));
  for (int i = 0; i < 50; i++) fake_token(request, 'x', "a text of some forty bytes, more or less");
  fake_deliver();
  ASSERT_EQ_FOR(exchange->status, 503, "%s", exchange->body);
  ASSERT_EQ(held(LEDGER_output), 0);
  fake_finish_all();
  charge_drop(&others);
  ASSERT_EQ(ledger_stats(server.ledger).clients, 0);
  fake_exchange_free(exchange);
}

Test(memory, tokenize_has_a_limit) {
  enum { MOST = 1 << 20 };
  for (int more = 0; more <= 1; more++) {
    static const char head[] = "{\"add_special_tokens\":false,\"prompt\":\"", tail[] = "\"}";
    size_t length = MOST + (size_t)more;
    char *body = malloc(length + sizeof head + sizeof tail);
    memcpy(body, head, sizeof head - 1);
    memset(body + sizeof head - 1, 'a', length);
    memcpy(body + sizeof head - 1 + length, tail, sizeof tail);
    fake_exchange_t *exchange = fake_call(api_tokenize, body);
    ASSERT_EQ_FOR(exchange->status, more == 0 ? 200 : 400, "%.300s", exchange->body);
    if (more != 0) cr_assert_not_null(strstr(exchange->body, "1048576"), "%s", exchange->body);
    fake_exchange_free(exchange);
    free(body);
    ASSERT_EQ(ledger_stats(server.ledger).clients, 0);
  }
}
