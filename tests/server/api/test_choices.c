/* test_choices.c: several choices of one prompt: n, best_of, beam search, plain and streamed. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <stdio.h>
#include <string.h>

TestSuite(choices, .init = fake_start, .fini = fake_stop, .timeout = 60);

static request_t *request_at(int index) {
  return &server.live->first->inputs[index].request;
}

/* Text of the choice `index` of a whole response; fails when indexes are not 0, 1, 2 ... */
static void expect_choices(fake_exchange_t *exchange, const char *const *texts, int count) {
  json_doc_t *doc = fake_json(exchange);
  const json_t *choices = json_get(json_root(doc), "choices");
  int64_t index, expected = 0;
  ASSERT_EQ_FOR(choices->count, (uint32_t)count, "%s", exchange->body);
  JSON_EACH(choice, choices) {
    cr_assert(json_int64(json_get(choice, "index"), &index));
    ASSERT_EQ(index, expected);
    cr_assert(json_equals(json_get(choice, "text"), texts[expected]), "%s", exchange->body);
    expected++;
  }
  json_free(doc);
}

static int64_t usage_of(fake_exchange_t *exchange, const char *name) {
  json_doc_t *doc = fake_json(exchange);
  int64_t value = -1;
  cr_assert(json_int64(json_get(json_get(json_root(doc), "usage"), name), &value));
  json_free(doc);
  return value;
}

Test(choices, two_prompts_of_two) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":[\"ab\",\"c\"],\"n\":2,\"echo\":true}");
  ASSERT_EQ(fake_engine.num_requests, 2);
  ASSERT_EQ(request_at(0)->params.n, 2);
  request_t *first = request_at(0), *second = request_at(1);
  fake_choice_token(second, 1, 'z', "z");
  fake_choice_token(first, 1, 'x', "x");
  fake_choice_token(first, 0, 'w', "w");
  fake_choice_token(first, 0, 'w', "w");
  fake_choice_done(first, 1, FINISH_STOP, "!");
  fake_deliver();
  fake_choice_token(second, 0, 'y', "y");
  fake_choice_done(second, 0, FINISH_LENGTH, "");
  fake_choice_done(first, 0, FINISH_LENGTH, "");
  fake_done(first, FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(!exchange->answered);
  fake_choice_done(second, 1, FINISH_STOP, "");
  fake_done(second, FINISH_LENGTH, "");
  fake_deliver();
  expect_choices(exchange, (const char *[]){"abww", "abx!", "cy", "cz"}, 4);
  ASSERT_EQ(usage_of(exchange, "prompt_tokens"), 3 + 2);
  ASSERT_EQ(usage_of(exchange, "completion_tokens"), 5);
  fake_exchange_free(exchange);
}

Test(choices, scores_of_an_echoed_prompt_stand_in_every_choice) {
  fake_exchange_t *exchange = fake_call(
      api_completions,
      "{\"prompt\":\"ab\",\"n\":2,\"echo\":true,\"logprobs\":0,\"add_special_tokens\":false}");
  request_t *request = request_at(0);
  fake_prompt_logprob(request, 1, -0.5f, 1, NULL, 0);
  for (int32_t choice = 0; choice < 2; choice++) {
    fake_choice_token(request, choice, 'c' + choice, choice == 0 ? "c" : "d");
    fake_choice_done(request, choice, FINISH_LENGTH, "");
  }
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  cr_assert(strstr(exchange->body, "\"tokens\":[\"a\",\"b\",\"c\"]") != NULL, "%s", exchange->body);
  cr_assert(strstr(exchange->body, "\"tokens\":[\"a\",\"b\",\"d\"]") != NULL, "%s", exchange->body);
  fake_exchange_free(exchange);
}

Test(choices, each_streamed_choice_ends_once) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":\"a\",\"n\":3,\"stream\":true,\"stream_options\":{"
                                 "\"include_usage\":true}}");
  request_t *request = request_at(0);
  for (int32_t choice = 2; choice >= 0; choice--) {
    fake_choice_token(request, choice, 'x', "x");
    fake_deliver();
    fake_choice_token(request, choice, 'y', "y");
    fake_choice_done(request, choice, FINISH_STOP, "");
    if (choice == 0) fake_done(request, FINISH_STOP, "");
    fake_deliver();
  }
  cr_assert(exchange->ended);
  for (int choice = 0; choice < 3; choice++) {
    char chunk[120];
    const char *form = "{\"index\":%d,\"text\":\"%s\",\"logprobs\":null,\"finish_reason\":%s,";
    snprintf(chunk, sizeof chunk, form, choice, "x", "null");
    cr_assert(strstr(exchange->body, chunk) != NULL, "%s", exchange->body);
    snprintf(chunk, sizeof chunk, form, choice, "y", "\"stop\"");
    cr_assert(strstr(exchange->body, chunk) != NULL, "%s", exchange->body);
  }
  cr_assert(strstr(exchange->body, "\"completion_tokens\":6") != NULL);
  fake_exchange_free(exchange);
}

Test(choices, best_of_lends_room_and_returns_n) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":\"a\",\"n\":2,\"best_of\":4,\"max_tokens\":3}");
  request_t *request = request_at(0);
  ASSERT_EQ(request->params.best_of, 4);
  cr_assert(request->room != NULL);
  fake_choice_token(request, 0, 'x', "x");
  fake_choice_done(request, 0, FINISH_STOP, "");
  fake_choice_token(request, 1, 'y', "y");
  fake_choice_done(request, 1, FINISH_LENGTH, "");
  fake_done(request, FINISH_STOP, "");
  fake_deliver();
  expect_choices(exchange, (const char *[]){"x", "y"}, 2);
  fake_exchange_free(exchange);
}

Test(choices, room_has_a_bound) {
  fake_engine.info.max_model_len = 16 * 1024 * 1024;
  fake_exchange_t *exchange = fake_call(
      api_completions, "{\"prompt\":\"a\",\"n\":1,\"best_of\":20,\"max_tokens\":16000000}");
  ASSERT_EQ(exchange->error.code, ERR_INVALID_VALUE);
  ASSERT_STR_EQ(exchange->error.param, "best_of");
  fake_exchange_free(exchange);
}

Test(choices, beams_are_greedy_whatever_the_model_says) {
  fake_engine.info.temperature = 0.7f;
  fake_engine.info.top_p = 0.9f;
  fake_exchange_t *exchange = fake_call(
      api_completions, "{\"prompt\":\"a\",\"use_beam_search\":true,\"best_of\":5,\"n\":2,"
                       "\"temperature\":0,\"length_penalty\":0.5,\"early_stopping\":true}");
  const sampling_params_t *params = &request_at(0)->params;
  ASSERT_EQ(params->beam_width, 5);
  ASSERT_EQ(params->n, 2);
  ASSERT_EQ(params->temperature, 0);
  ASSERT_EQ(params->top_p, 1);
  ASSERT_EQ(params->length_penalty, 0.5f);
  ASSERT_EQ(params->early_stopping, EARLY_STOPPING_ON);
  request_t *request = request_at(0);
  for (int32_t choice = 0; choice < 2; choice++) {
    fake_choice_token(request, choice, 'x', "x");
    fake_choice_done(request, choice, FINISH_STOP, "");
  }
  fake_done(request, FINISH_STOP, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(choices, a_failure_fails_all_of_them) {
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"a\",\"n\":2}");
  request_t *request = request_at(0);
  fake_choice_token(request, 0, 'x', "x");
  fake_choice_done(request, 0, FINISH_STOP, "");
  fake_fail(request, ERR_INTERNAL);
  fake_deliver();
  ASSERT_EQ(exchange->status, 500);
  fake_exchange_free(exchange);
}
