/* test_rounds.c: a dialect that gives the engine two inputs at a time and the next one when one has
 * ended: what waits, what finds no room in the queue, and who leaves. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include "server/completion/dialect.h"

#include <string.h>

TestSuite(rounds, .init = fake_start, .fini = fake_stop, .timeout = 60);

enum { AT_ONCE = 2 };
static int32_t begun;

static int equip(completion_t *completion) {
  begun = AT_ONCE;
  for (int32_t i = 0; i < completion->num_inputs; i++)
    completion->inputs[i].held_back = i >= AT_ONCE;
  return 0;
}

static bool again(input_t *input) {
  completion_t *completion = input->completion;
  if (begun < completion->num_inputs) input_submit(&completion->inputs[begun++]);
  return false;
}

static dialect_t rounds;

static void handle(exchange_t *exchange) {
  rounds = text_dialect;
  rounds.equip = equip;
  rounds.again = again;
  completion_start(exchange, &rounds);
}

static request_t *request_at(int index) {
  return &server.live->first->inputs[index].request;
}

static bool has(const request_t *request) {
  for (int i = 0; i < fake_engine.num_requests; i++)
    if (fake_engine.requests[i] == request) return true;
  return false;
}

static fake_exchange_t *ask(int inputs) {
  static const char *const bodies[] = {
      [3] = "{\"prompt\":[\"a\",\"b\",\"c\"]}", [4] = "{\"prompt\":[\"a\",\"b\",\"c\",\"d\"]}"};
  fake_exchange_t *exchange = fake_call(handle, bodies[inputs]);
  ASSERT_EQ(fake_engine.num_requests, AT_ONCE);
  return exchange;
}

/* Ends input `index`, which says its number. */
static void end(int index) {
  const char text[] = {(char)('0' + index), '\0'};
  fake_token(request_at(index), text[0], text);
  fake_done(request_at(index), FINISH_STOP, "");
}

static void expect_texts(fake_exchange_t *exchange, const char *texts) {
  ASSERT_EQ_FOR(exchange->status, 200, "%s", exchange->body);
  json_doc_t *doc = fake_json(exchange);
  const json_t *choices = json_get(json_root(doc), "choices");
  ASSERT_EQ(choices->count, strlen(texts));
  JSON_EACH(choice, choices) {
    const char text[] = {*texts++, '\0'};
    cr_assert(json_equals(json_get(choice, "text"), text), "%s", exchange->body);
  }
  json_free(doc);
  fake_exchange_free(exchange);
}

Test(rounds, the_next_begins_when_one_has_ended) {
  fake_exchange_t *exchange = ask(4);
  cr_assert(has(request_at(0)) && has(request_at(1)));
  const uint64_t first_ns = request_at(1)->arrival_ns;
  end(1);
  fake_deliver();
  ASSERT_EQ(fake_engine.num_requests, AT_ONCE);
  cr_assert(has(request_at(0)) && has(request_at(2)));
  cr_assert(request_at(2)->arrival_ns > first_ns, "it waits from now on");
  end(2);
  end(0);
  fake_deliver();
  ASSERT_EQ(fake_engine.num_requests, 1);
  cr_assert(has(request_at(3)) && !exchange->answered);
  end(3);
  fake_deliver();
  expect_texts(exchange, "0123");
}

Test(rounds, who_leaves_leaves_what_was_held_back) {
  fake_exchange_t *exchange = ask(4);
  fake_exchange_gone(exchange, "disconnected");
  ASSERT_EQ(fake_engine.num_cancelled, AT_ONCE);
  fake_finish_all();
  ASSERT_EQ(server.live->count, 0);
  fake_exchange_free(exchange);
}

Test(rounds, who_leaves_while_one_waits_for_room) {
  fake_exchange_t *exchange = ask(3);
  fake_token(request_at(0), '0', "0");
  fake_fail(request_at(1), ERR_QUEUE_FULL);
  fake_deliver();
  ASSERT_EQ(fake_engine.num_requests, 1);
  fake_exchange_gone(exchange, "disconnected");
  ASSERT_EQ(fake_engine.num_cancelled, 1);
  fake_finish_all();
  ASSERT_EQ(server.live->count, 0);
  fake_exchange_free(exchange);
}

/* It has made room for another client, or has waited too long: it comes again when the other one
 * has ended. */
Test(rounds, what_lost_its_place_in_the_queue_comes_again) {
  static const int codes[] = {ERR_QUEUE_FULL, ERR_QUEUE_TIMEOUT};
  for (size_t i = 0; i < 2; i++) {
    fake_exchange_t *exchange = ask(3);
    fake_token(request_at(0), '0', "0");
    fake_fail(request_at(1), codes[i]);
    fake_deliver();
    ASSERT_EQ(fake_engine.num_requests, 1);
    cr_assert(!exchange->answered);
    fake_done(request_at(0), FINISH_STOP, "");
    fake_deliver();
    ASSERT_EQ(fake_engine.num_requests, AT_ONCE);
    end(1);
    end(2);
    fake_deliver();
    expect_texts(exchange, "012");
  }
}

Test(rounds, what_finds_no_room_comes_again) {
  fake_exchange_t *exchange = ask(4);
  fake_engine.refuse = ERR_QUEUE_FULL;
  end(0);
  fake_deliver();
  ASSERT_EQ(fake_engine.num_requests, 1);
  cr_assert(!exchange->answered);
  fake_engine.refuse = 0;
  end(1);
  fake_deliver();
  ASSERT_EQ(fake_engine.num_requests, AT_ONCE);
  end(2);
  end(3);
  fake_deliver();
  expect_texts(exchange, "0123");
}

Test(rounds, without_another_that_runs_it_is_refused) {
  fake_exchange_t *exchange = ask(3);
  end(0);
  end(1);
  fake_engine.refuse = ERR_QUEUE_FULL;
  fake_deliver();
  ASSERT_EQ(exchange->error.code, ERR_QUEUE_FULL);
  ASSERT_EQ(fake_engine.num_requests, 0);
  fake_exchange_free(exchange);
}

/* Nobody has seen anything of it: it is as any other request. */
Test(rounds, what_has_not_begun_is_refused) {
  fake_exchange_t *exchange = ask(3);
  fake_fail(request_at(0), ERR_QUEUE_FULL);
  fake_deliver();
  ASSERT_EQ(exchange->error.code, ERR_QUEUE_FULL);
  ASSERT_EQ(fake_engine.num_cancelled, 1);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(rounds, other_errors_end_it) {
  fake_exchange_t *exchange = ask(3);
  fake_token(request_at(0), '0', "0");
  fake_fail(request_at(1), ERR_INTERNAL);
  fake_deliver();
  ASSERT_EQ(exchange->error.code, ERR_INTERNAL);
  fake_finish_all();
  fake_exchange_free(exchange);
}
