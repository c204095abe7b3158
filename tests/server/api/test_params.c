/* test_params.c: every field of a completion request: what is refused, and that nothing which is
 * accepted is without effect. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(params, .init = fake_start, .fini = fake_stop, .timeout = 60);

static request_t *only_request(void) {
  ASSERT_EQ(fake_engine.num_requests, 1);
  return fake_engine.requests[0];
}

/* ---- bodies that must be refused ---- */

typedef struct bad_body {
  const char *body;
  int code;
  const char *param;
} bad_body_t;

#define P "\"prompt\":\"a\","

static const bad_body_t bad_bodies[] = {
    {"", ERR_INVALID_JSON, ""},
    {"{", ERR_INVALID_JSON, ""},
    {"[]", ERR_INVALID_JSON, ""},
    {"null", ERR_INVALID_JSON, ""},
    {"\"x\"", ERR_INVALID_JSON, ""},
    {"{} x", ERR_INVALID_JSON, ""},
    {"{\"prompt\":\"a\",\"prompt\":\"b\"}", ERR_INVALID_JSON, ""},
    {"{\"prompt\":\"\\ud800\"}", ERR_INVALID_JSON, ""},
    {"{\"prompt\":\"\\u0000\"}", ERR_INVALID_JSON, ""},
    {"{\"prompt\":\"\xff\"}", ERR_INVALID_JSON, ""},
    {"{" P "\"temperature\":NaN}", ERR_INVALID_JSON, ""},
    {"{" P "\"temperature\":1e999}", ERR_INVALID_JSON, ""},
    {"{" P "\"max_tokens\":01}", ERR_INVALID_JSON, ""},
    {"{}", ERR_MISSING_PARAMETER, "prompt"},
    {"{\"prompt\":null}", ERR_MISSING_PARAMETER, "prompt"},
    {"{\"prompt\":\"\"}", ERR_MISSING_PARAMETER, "prompt"},
    {"{\"prompt\":[]}", ERR_MISSING_PARAMETER, "prompt"},
    {"{\"prompt\":[\"\"]}", ERR_MISSING_PARAMETER, "prompt"},
    {"{\"prompt\":[[]]}", ERR_MISSING_PARAMETER, "prompt"},
    {"{\"prompt\":[[1],[]]}", ERR_MISSING_PARAMETER, "prompt"},
    {"{\"prompt\":7}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":{}}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":true}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":[\"a\",1]}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":[1,\"a\"]}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":[[1],2]}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":[null]}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":[[\"a\"]]}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":[1.5]}", ERR_INVALID_TYPE, "prompt"},
    {"{\"prompt\":[300]}", ERR_INVALID_VALUE, "prompt"},
    {"{\"prompt\":[-1]}", ERR_INVALID_VALUE, "prompt"},
    {"{\"prompt\":[1,4294967296]}", ERR_INVALID_VALUE, "prompt"},
    {"{" P "\"model\":\"nope\"}", ERR_MODEL_NOT_FOUND, "model"},
    {"{" P "\"model\":3}", ERR_INVALID_TYPE, "model"},
    {"{" P "\"max_tokens\":0}", ERR_BELOW_MIN, "max_tokens"},
    {"{" P "\"max_completion_tokens\":0}", ERR_BELOW_MIN, "max_completion_tokens"},
    {"{" P "\"max_tokens\":-2}", ERR_BELOW_MIN, "max_tokens"},
    {"{" P "\"max_tokens\":16.5}", ERR_INVALID_TYPE, "max_tokens"},
    {"{" P "\"max_tokens\":\"16\"}", ERR_INVALID_TYPE, "max_tokens"},
    {"{" P "\"max_tokens\":true}", ERR_INVALID_TYPE, "max_tokens"},
    {"{" P "\"max_tokens\":[1]}", ERR_INVALID_TYPE, "max_tokens"},
    {"{" P "\"max_tokens\":1e30}", ERR_ABOVE_MAX, "max_tokens"},
    {"{" P "\"max_tokens\":200}", ERR_CONTEXT_LENGTH, "prompt"},
    {"{" P "\"max_tokens\":1099511627776}", ERR_CONTEXT_LENGTH, "prompt"},
    {"{" P "\"n\":0}", ERR_BELOW_MIN, "n"},
    {"{" P "\"n\":129}", ERR_ABOVE_MAX, "n"},
    {"{\"prompt\":[\"a\",\"b\",\"c\"],\"n\":128}", ERR_INVALID_VALUE, "n"},
    {"{\"prompt\":[[1],[2],[3],[4],[5],[6],[7],[8],[9],[1],[1],[1],[1]],\"best_of\":20}",
     ERR_INVALID_VALUE, "best_of"},
    {"{" P "\"n\":2,\"echo\":true,\"max_tokens\":0}", ERR_INVALID_VALUE, "n"},
    {"{" P "\"use_beam_search\":true,\"n\":21}", ERR_ABOVE_MAX, "n"},
    {"{" P "\"use_beam_search\":true,\"stream\":true}", ERR_INVALID_VALUE, "stream"},
    {"{" P "\"use_beam_search\":true,\"temperature\":0.5}", ERR_INVALID_VALUE, "temperature"},
    {"{" P "\"use_beam_search\":true,\"top_p\":0.5}", ERR_INVALID_VALUE, "top_p"},
    {"{" P "\"use_beam_search\":true,\"top_k\":5}", ERR_INVALID_VALUE, "top_k"},
    {"{" P "\"use_beam_search\":true,\"min_p\":0.5}", ERR_INVALID_VALUE, "min_p"},
    {"{" P "\"use_beam_search\":true,\"presence_penalty\":0.5}", ERR_INVALID_VALUE,
     "presence_penalty"},
    {"{" P "\"use_beam_search\":true,\"logit_bias\":{\"5\":1}}", ERR_INVALID_VALUE, "logit_bias"},
    {"{" P "\"use_beam_search\":true,\"bad_words\":[\"a\"]}", ERR_INVALID_VALUE, "bad_words"},
    {"{" P "\"best_of\":21}", ERR_ABOVE_MAX, "best_of"},
    {"{" P "\"best_of\":2,\"n\":3}", ERR_INVALID_VALUE, "best_of"},
    {"{" P "\"best_of\":2,\"stream\":true}", ERR_INVALID_VALUE, "best_of"},
    {"{" P "\"temperature\":2.001}", ERR_INVALID_VALUE, "temperature"},
    {"{" P "\"temperature\":-0.001}", ERR_INVALID_VALUE, "temperature"},
    {"{" P "\"temperature\":\"1\"}", ERR_INVALID_TYPE, "temperature"},
    {"{" P "\"temperature\":false}", ERR_INVALID_TYPE, "temperature"},
    {"{" P "\"top_p\":-0.01}", ERR_INVALID_VALUE, "top_p"},
    {"{" P "\"top_p\":1.01}", ERR_INVALID_VALUE, "top_p"},
    {"{" P "\"top_k\":-2}", ERR_BELOW_MIN, "top_k"},
    {"{" P "\"min_p\":-0.1}", ERR_INVALID_VALUE, "min_p"},
    {"{" P "\"repetition_penalty\":0}", ERR_INVALID_VALUE, "repetition_penalty"},
    {"{" P "\"repetition_penalty\":10.5}", ERR_INVALID_VALUE, "repetition_penalty"},
    {"{" P "\"presence_penalty\":2.1}", ERR_INVALID_VALUE, "presence_penalty"},
    {"{" P "\"frequency_penalty\":-2.1}", ERR_INVALID_VALUE, "frequency_penalty"},
    {"{" P "\"length_penalty\":11}", ERR_INVALID_VALUE, "length_penalty"},
    {"{" P "\"early_stopping\":\"maybe\"}", ERR_INVALID_TYPE, "early_stopping"},
    {"{" P "\"logit_bias\":[]}", ERR_INVALID_TYPE, "logit_bias"},
    {"{" P "\"logit_bias\":{\"x\":1}}", ERR_INVALID_VALUE, "logit_bias"},
    {"{" P "\"logit_bias\":{\"-1\":1}}", ERR_INVALID_VALUE, "logit_bias"},
    {"{" P "\"logit_bias\":{\"1.0\":1}}", ERR_INVALID_VALUE, "logit_bias"},
    {"{" P "\"logit_bias\":{\"01\":1}}", ERR_INVALID_VALUE, "logit_bias"},
    {"{" P "\"logit_bias\":{\"300\":1}}", ERR_INVALID_VALUE, "logit_bias"},
    {"{" P "\"logit_bias\":{\"99999999999999999999\":1}}", ERR_INVALID_VALUE, "logit_bias"},
    {"{" P "\"logit_bias\":{\"1\":100.5}}", ERR_INVALID_VALUE, "logit_bias"},
    {"{" P "\"logit_bias\":{\"1\":\"a\"}}", ERR_INVALID_TYPE, "logit_bias"},
    {"{" P "\"logprobs\":21}", ERR_ABOVE_MAX, "logprobs"},
    {"{" P "\"logprobs\":-2}", ERR_BELOW_MIN, "logprobs"},
    {"{" P "\"logprobs\":-1}", ERR_ABOVE_MAX, "logprobs"},
    {"{" P "\"logprobs\":true}", ERR_INVALID_TYPE, "logprobs"},
    {"{" P "\"logprobs\":21,\"stream\":true}", ERR_ABOVE_MAX, "logprobs"},
    {"{" P "\"prompt_logprobs\":21}", ERR_ABOVE_MAX, "prompt_logprobs"},
    {"{" P "\"prompt_logprobs\":-1}", ERR_ABOVE_MAX, "prompt_logprobs"},
    {"{" P "\"prompt_logprobs\":-2}", ERR_BELOW_MIN, "prompt_logprobs"},
    {"{" P "\"prompt_logprobs\":1,\"stream\":true}", ERR_INVALID_VALUE, "prompt_logprobs"},
    {"{" P "\"logprob_token_ids\":[1]}", ERR_INVALID_VALUE, "logprob_token_ids"},
    {"{" P "\"logprob_token_ids\":[300],\"logprobs\":1}", ERR_INVALID_VALUE, "logprob_token_ids"},
    {"{" P "\"echo\":1}", ERR_INVALID_TYPE, "echo"},
    {"{" P "\"stop\":\"\"}", ERR_INVALID_VALUE, "stop"},
    {"{" P "\"stop\":[\"a\",\"\"]}", ERR_INVALID_VALUE, "stop"},
    {"{" P "\"stop\":[1]}", ERR_INVALID_TYPE, "stop"},
    {"{" P "\"stop\":{}}", ERR_INVALID_TYPE, "stop"},
    {"{" P "\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\","
     "\"d\",\"e\",\"f\",\"g\",\"h\"]}",
     ERR_INVALID_VALUE, "stop"},
    {"{" P "\"stream\":\"yes\"}", ERR_INVALID_TYPE, "stream"},
    {"{" P "\"stream_options\":{\"include_usage\":true}}", ERR_INVALID_VALUE, "stream_options"},
    {"{" P "\"stream\":true,\"stream_options\":[]}", ERR_INVALID_TYPE, "stream_options"},
    {"{" P "\"stream\":true,\"stream_options\":{\"include_usage\":1}}", ERR_INVALID_TYPE,
     "stream_options.include_usage"},
    {"{" P "\"seed\":9223372036854775808}", ERR_ABOVE_MAX, "seed"},
    {"{" P "\"seed\":-9223372036854775809}", ERR_BELOW_MIN, "seed"},
    {"{" P "\"seed\":1.5}", ERR_INVALID_TYPE, "seed"},
    {"{" P "\"suffix\":\"b\"}", ERR_UNSUPPORTED_PARAMETER, "suffix"},
    {"{" P "\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}", ERR_UNSUPPORTED_PARAMETER,
     "messages"},
    {"{" P "\"min_tokens\":-1}", ERR_BELOW_MIN, "min_tokens"},
    {"{" P "\"min_tokens\":5,\"max_tokens\":4}", ERR_INVALID_VALUE, "min_tokens"},
    {"{" P "\"min_tokens\":17}", ERR_INVALID_VALUE, "min_tokens"},
    {"{" P "\"stop_token_ids\":[300]}", ERR_INVALID_VALUE, "stop_token_ids"},
    {"{" P "\"stop_token_ids\":1}", ERR_INVALID_TYPE, "stop_token_ids"},
    {"{" P "\"allowed_token_ids\":[]}", ERR_INVALID_VALUE, "allowed_token_ids"},
    {"{" P "\"allowed_token_ids\":[1,-1]}", ERR_INVALID_VALUE, "allowed_token_ids"},
    {"{" P "\"bad_words\":[\"\"]}", ERR_INVALID_VALUE, "bad_words"},
    {"{" P "\"bad_words\":\"a\"}", ERR_INVALID_TYPE, "bad_words"},
    {"{" P "\"bad_words\":[3]}", ERR_INVALID_TYPE, "bad_words"},
    {"{" P "\"truncate_prompt_tokens\":-2}", ERR_BELOW_MIN, "truncate_prompt_tokens"},
    {"{" P "\"truncate_prompt_tokens\":128}", ERR_ABOVE_MAX, "truncate_prompt_tokens"},
    {"{" P "\"truncate_prompt_tokens\":0}", ERR_BELOW_MIN, "truncate_prompt_tokens"},
    {"{" P "\"truncation_side\":\"top\"}", ERR_INVALID_VALUE, "truncation_side"},
    {"{" P "\"cache_salt\":\"\"}", ERR_INVALID_VALUE, "cache_salt"},
    {"{" P "\"priority\":1.5}", ERR_INVALID_TYPE, "priority"},
    {"{" P "\"request_id\":\"a b\"}", ERR_INVALID_VALUE, "request_id"},
    {"{" P "\"stream_interval\":0}", ERR_BELOW_MIN, "stream_interval"},
    {"{" P "\"return_token_ids\":1}", ERR_INVALID_TYPE, "return_token_ids"},
    {"{" P "\"metadata\":3}", ERR_INVALID_TYPE, "metadata"},
    {"{" P "\"metadata\":{\"a\":1}}", ERR_INVALID_TYPE, "metadata"},
    {"{" P "\"metadata\":{\"a\":\"b\",\"c\":null}}", ERR_INVALID_TYPE, "metadata"},
    {"{" P "\"mirostat\":1}", ERR_UNSUPPORTED_PARAMETER, "mirostat"},
    {"{" P "\"mirostat_zeta\":1}", ERR_UNSUPPORTED_PARAMETER, "mirostat_zeta"},
    {"{" P "\"typical_p\":0.9}", ERR_UNSUPPORTED_PARAMETER, "typical_p"},
    {"{" P "\"dry_base\":2}", ERR_UNSUPPORTED_PARAMETER, "dry_base"},
    {"{" P "\"n_predict\":5}", ERR_UNSUPPORTED_PARAMETER, "n_predict"},
};

Test(params, bad_bodies_are_refused) {
  size_t count = sizeof bad_bodies / sizeof bad_bodies[0];
  ASSERT_GE(count, 60);
  for (size_t i = 0; i < count; i++) {
    const bad_body_t *bad = &bad_bodies[i];
    fake_exchange_t *exchange = fake_call(api_completions, bad->body);
    cr_assert(exchange->answered, "%s", bad->body);
    ASSERT_EQ_FOR(exchange->error.code, bad->code, "%s: %s", bad->body, exchange->body);
    ASSERT_STR_EQ_FOR(exchange->error.param, bad->param, "%s", bad->body);
    ASSERT_NE(exchange->error.message[0], '\0');
    ASSERT_EQ(strstr(exchange->error.message, "rate limit"), NULL);
    ASSERT_EQ(fake_engine.num_requests, 0);
    fake_exchange_free(exchange);
  }
}

/* ---- rows of sampling.def ---- */

typedef struct sampling_row {
  const char *name;
  double min, max, noop;
} sampling_row_t;

static const sampling_row_t sampling_rows[] = {
#define SAMPLING(name, flags, min, max, fallback, noop, kind, label, step, help)                   \
  {#name, min, max, noop},
#include "engine/device/sampling.def"
};

/* A value of each row is what /render says; beam search takes the one that changes nothing, and
 * refuses another by name. */
Test(params, every_sampling_row_is_rendered_and_is_nothing_to_beams) {
  for (size_t i = 0; i < ARRAY_LEN(sampling_rows); i++) {
    const sampling_row_t *row = &sampling_rows[i];
    double value = (row->min + row->max) / 2 + 0.25;
    char body[128], expected[64];
    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"%s\":%.6g}", row->name, value);
    snprintf(expected, sizeof expected, "\"%s\":%.6g", row->name, value);
    fake_exchange_t *exchange = fake_call(api_render_completion, body);
    cr_assert_not_null(strstr(exchange->body, expected), "%s: %s", expected, exchange->body);
    fake_exchange_free(exchange);
    ASSERT_NE_FOR(value, row->noop, "%s", row->name);
    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"use_beam_search\":true,\"%s\":%.6g}",
             row->name, value);
    exchange = fake_call(api_completions, body);
    ASSERT_EQ_FOR(exchange->error.code, ERR_INVALID_VALUE, "%s: %s", body, exchange->body);
    ASSERT_STR_EQ(exchange->error.param, row->name);
    fake_exchange_free(exchange);
    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"use_beam_search\":true,\"%s\":%.6g}",
             row->name, row->noop);
    exchange = fake_call(api_render_completion, body);
    ASSERT_EQ_FOR(exchange->error.code, 0, "%s: %s", body, exchange->body);
    fake_exchange_free(exchange);
  }
}

#define ALPHABET "abcdefghijklmnopqrstuvwxyz"

static void expect_error(const char *body, int code, const char *phrase) {
  fake_exchange_t *exchange = fake_call(api_completions, body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s", exchange->body);
  cr_assert(strstr(exchange->error.message, phrase) != NULL, "%s", exchange->error.message);
  fake_exchange_free(exchange);
}

/* Phrases that clients match on, and messages that name everything at fault. */
Test(params, key_phrases) {
  expect_error("{\"prompt\":\"a\",\"seed\":9223372036854775808}", ERR_ABOVE_MAX,
               "Expected a value <= 9223372036854775807, but got 9223372036854775808 instead.");
  expect_error("{\"prompt\":\"a\",\"seed\":-9223372036854775809}", ERR_BELOW_MIN,
               "Expected a value >= -9223372036854775808, but got -9223372036854775809 instead.");
  expect_error("{\"prompt\":\"a\",\"n\":1000}", ERR_ABOVE_MAX,
               "Invalid 'n': integer above maximum value. Expected a value <= 128, but got 1000 "
               "instead.");
  expect_error("{\"prompt\":\"a\",\"temperature\":2.50}", ERR_INVALID_VALUE,
               "Invalid 'temperature': expected a number >= 0 and <= 2, but got 2.50 instead.");
  expect_error(
      "{\"prompt\":\"a\",\"max_tokens\":0}", ERR_BELOW_MIN,
      "Expected a value >= 1, or -1 for no limit, but got 0 instead (0 scores a prompt and "
      "needs 'echo').");
  expect_error("{\"prompt\":\"a\",\"cache_salt\":\"\"}", ERR_INVALID_VALUE,
               "expected a string of 1 to 128 bytes, but got one of 0.");
  expect_error("{\"prompt\":\"a\",\"truncation_side\":\"top\"}", ERR_INVALID_VALUE,
               "Invalid 'truncation_side': expected 'left' or 'right', but got 'top' instead.");
  /* What is shown of a value is short, and safe on a terminal. */
  expect_error("{\"prompt\":\"a\",\"truncation_side\":\"\\u001b'" ALPHABET ALPHABET "\"}",
               ERR_INVALID_VALUE, "but got '??" ALPHABET "abcdefghijklmn...' instead.");
  expect_error(
      "{\"prompt\":\"a\",\"model\":\"no/pe\"}", ERR_MODEL_NOT_FOUND,
      "The model `no/pe` does not exist. This server has `tiny`; GET /v1/models lists every "
      "name.");
  expect_error("{\"prompt\":[299,300]}", ERR_INVALID_VALUE, "Token id 300 is out of vocabulary");
  expect_error("{\"prompt\":\"\"}", ERR_MISSING_PARAMETER, "must be provided and non-empty");
  expect_error("{\"prompt\":[\"a\",\"\"]}", ERR_MISSING_PARAMETER,
               "The 'prompt[1]' must be provided");
  expect_error("{\"prompt\":[[]]}", ERR_MISSING_PARAMETER, "The 'prompt[0]' must be provided");
  expect_error("{\"prompt\":\"abc\",\"max_tokens\":125}", ERR_CONTEXT_LENGTH,
               "This model's maximum context length is 128 tokens. However, you requested 129 "
               "tokens (4 in the prompt, 125 in the completion). Please reduce the length of the "
               "prompt or completion.");
  expect_error("{\"prompt\":\"a\",\"n\":3,\"best_of\":2}", ERR_INVALID_VALUE,
               "'best_of' is 2; it must be greater than or equal to 'n', which is 3.");
  expect_error("{\"prompt\":\"a\",\"min_tokens\":17}", ERR_INVALID_VALUE,
               "'min_tokens' is 17; it must be less than or equal to 'max_tokens', which is 16.");
  expect_error("{\"prompt\":\"a\",\"min_tokens\":5,\"max_tokens\":4}", ERR_INVALID_VALUE,
               "'min_tokens' is 5; it must be less than or equal to 'max_tokens', which is 4.");
  expect_error("{\"prompt\":\"a\",\"stream_options\":{\"include_usage\":false}}", ERR_INVALID_VALUE,
               "Stream options can only be defined when `stream=True`.");
  expect_error("{\"prompt\":\"a\",\"logit_bias\":{\"cat\":1,\"5\":1,\"dog\":2}}", ERR_INVALID_VALUE,
               "cat, dog");
  expect_error("{\"prompt\":\"a\",\"logit_bias\":{\"300\":1,\"5\":1,\"301\":2}}", ERR_INVALID_VALUE,
               "its size is 300): 300, 301");
  expect_error("{\"prompt\":\"a\",\"max_new_tokens\":3}", ERR_UNSUPPORTED_PARAMETER,
               "use 'max_tokens'");
}

Test(params, unknown_fields_are_reported_or_refused) {
  const char *body = "{\"prompt\":\"a\",\"zebra\":1,\"ox\":{\"a\":2},\"b\\nad\":1,"
                     "\"stream\":true,\"stream_options\":{\"horse\":1}}";
  fake_exchange_t *exchange = fake_call(api_completions, body);
  cr_assert(strstr(exchange->headers, "x-inferd-ignored-params: zebra,ox,?,stream_options.horse\n"),
            "%s", exchange->headers);
  fake_finish_all();
  fake_exchange_free(exchange);
  fake_option("strict_params", "true");
  exchange = fake_call(api_completions, body);
  ASSERT_EQ(exchange->error.code, ERR_UNKNOWN_PARAMETER);
  ASSERT_STR_EQ(exchange->error.param, "zebra");
  fake_exchange_free(exchange);
}

Test(params, many_unknown_names_stay_bounded) {
  char body[8000] = "{\"prompt\":\"a\"";
  for (int i = 0; i < 300; i++) {
    snprintf(body + strlen(body), sizeof body - strlen(body), ",\"stranger_%d\":1", i);
  }
  strcat(body, "}");
  fake_exchange_t *exchange = fake_call(api_completions, body);
  ASSERT_LT(strlen(exchange->headers), IGNORED_NAMES_MAX + 40);
  cr_assert(strstr(exchange->headers, ": stranger_0,stranger_1,") != NULL);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(params, exact_integers) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":[1,2.0,3e0],\"seed\":9007199254740993,"
                                 "\"priority\":-9223372036854775808}");
  const request_t *request = only_request();
  ASSERT_EQ(request->params.seed, 9007199254740993u);
  ASSERT_EQ(request->priority, INT64_MIN);
  ASSERT_EQ(request->num_prompt_tokens, 3);
  ASSERT_EQ(request->prompt_ids[2], 3);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(params, tiny_floats_stay_inside_open_bounds) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":\"a\",\"top_p\":1e-300,\"repetition_penalty\":1e-300,"
                                 "\"temperature\":1e-300}");
  const sampling_params_t *sampling = &only_request()->params;
  ASSERT_GT(sampling->top_p, 0);
  ASSERT_GT(sampling->repetition_penalty, 0);
  ASSERT_GE(sampling->temperature, 0);
  ASSERT_LT(sampling->temperature, 1e-5f);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(params, seeds_are_random_unless_given) {
  uint64_t seeds[3];
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":[\"a\",\"a\"]}");
  seeds[0] = server.live->first->inputs[0].request.params.seed;
  seeds[1] = server.live->first->inputs[1].request.params.seed;
  fake_finish_all();
  fake_exchange_free(exchange);
  exchange = fake_call(api_completions, "{\"prompt\":\"a\",\"seed\":-1}");
  seeds[2] = only_request()->params.seed;
  fake_finish_all();
  fake_exchange_free(exchange);
  ASSERT_NE(seeds[0], seeds[1]);
  ASSERT_NE(seeds[0], seeds[2]);
  ASSERT_NE(seeds[2], UINT64_MAX);
  exchange = fake_call(api_completions, "{\"prompt\":[\"a\",\"a\"],\"seed\":5}");
  ASSERT_EQ(server.live->first->inputs[0].request.params.seed, 5);
  ASSERT_EQ(server.live->first->inputs[1].request.params.seed, 5);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(params, generation_config_gives_the_defaults) {
  fake_engine.info.temperature = 0.6f;
  fake_engine.info.top_p = 0.9f;
  fake_engine.info.top_k = 20;
  fake_engine.info.min_p = 0.05f;
  fake_engine.info.repetition_penalty = 1.05f;
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"a\",\"top_p\":0.5}");
  const sampling_params_t *sampling = &only_request()->params;
  ASSERT_EQ(sampling->temperature, 0.6f);
  ASSERT_EQ(sampling->top_p, 0.5f);
  ASSERT_EQ(sampling->top_k, 20);
  ASSERT_EQ(sampling->min_p, 0.05f);
  ASSERT_EQ(sampling->repetition_penalty, 1.05f);
  fake_finish_all();
  fake_exchange_free(exchange);
  fake_option("generation_config", "none");
  exchange = fake_call(api_completions, "{\"prompt\":\"a\"}");
  sampling = &only_request()->params;
  ASSERT_EQ(sampling->temperature, 1);
  ASSERT_EQ(sampling->top_p, 1);
  ASSERT_EQ(sampling->top_k, 0);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(params, top_k_beyond_the_vocabulary_is_off) {
  static const char *const off[] = {"0", "-1", "300", "2147483648"};
  char body[64];
  for (int i = 0; i < 4; i++) {
    snprintf(body, sizeof body, "{\"prompt\":\"a\",\"top_k\":%s}", off[i]);
    fake_exchange_t *exchange = fake_call(api_completions, body);
    ASSERT_EQ(only_request()->params.top_k, 0);
    fake_finish_all();
    fake_exchange_free(exchange);
  }
}

Test(params, special_ids_can_be_denied) {
  fake_option("deny_special_ids", "true");
  expect_error("{\"prompt\":[1,257]}", ERR_INVALID_VALUE, "Token id 257 is a special token");
}

Test(params, bad_words_with_and_without_a_blank) {
  fake_exchange_t *exchange =
      fake_call(api_completions, "{\"prompt\":\"a\",\"bad_words\":[\"no\"]}");
  const sampling_params_t *sampling = &only_request()->params;
  ASSERT_EQ(sampling->num_bad_words, 2);
  ASSERT_EQ(sampling->bad_words[0].count, 2);
  ASSERT_EQ(sampling->bad_words[0].ids[0], 'n');
  ASSERT_EQ(sampling->bad_words[1].count, 3);
  ASSERT_EQ(sampling->bad_words[1].ids[0], ' ');
  fake_finish_all();
  fake_exchange_free(exchange);
}

/* ---- lengths ---- */

static void expect_prompt(const char *fields, const int32_t *ids, int32_t count) {
  char body[2048];
  snprintf(body, sizeof body, "{%s}", fields);
  fake_exchange_t *exchange = fake_call(api_completions, body);
  cr_assert(!exchange->answered, "%s", exchange->body);
  const request_t *request = only_request();
  ASSERT_EQ_FOR(request->num_prompt_tokens, count, "%s: %d", fields, request->num_prompt_tokens);
  for (int32_t i = 0; i < count; i++) ASSERT_EQ_FOR(request->prompt_ids[i], ids[i], "%s", fields);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(params, truncation) {
  expect_prompt("\"prompt\":[1,2,3,4,5],\"truncate_prompt_tokens\":3", (int32_t[]){3, 4, 5}, 3);
  expect_prompt("\"prompt\":[1,2,3,4,5],\"truncate_prompt_tokens\":3,\"truncation_side\":\"right\"",
                (int32_t[]){1, 2, 3}, 3);
  expect_prompt("\"prompt\":[1,2,3,4,5],\"truncate_prompt_tokens\":3,\"truncation_side\":\"left\"",
                (int32_t[]){3, 4, 5}, 3);
  expect_prompt("\"prompt\":\"abcde\",\"truncate_prompt_tokens\":3,\"truncation_side\":\"right\"",
                (int32_t[]){FAKE_BOS, 'a', 'b'}, 3);
  /* the tokenizer's BOS survives a cut from the left */
  expect_prompt("\"prompt\":\"abcde\",\"truncate_prompt_tokens\":3",
                (int32_t[]){FAKE_BOS, 'd', 'e'}, 3);
  expect_prompt("\"prompt\":\"abcde\",\"truncate_prompt_tokens\":2,\"truncation_side\":\"left\","
                "\"add_special_tokens\":false",
                (int32_t[]){'d', 'e'}, 2);
  expect_prompt("\"prompt\":[1,2],\"truncate_prompt_tokens\":5", (int32_t[]){1, 2}, 2);
}

Test(params, truncation_to_what_fits) {
  char body[3000] = "\"max_tokens\":100,\"truncate_prompt_tokens\":-1,\"prompt\":[7";
  int32_t expected[28];
  for (int i = 1; i < 400; i++) strcat(body, ",7");
  strcat(body, "]");
  for (int i = 0; i < 28; i++) expected[i] = 7;
  expect_prompt(body, expected, 28);
}

/* {"prompt":[1,1,...],...} of `tokens` ids. */
static fake_exchange_t *call_tokens(int tokens, const char *more) {
  char body[2048] = "{\"prompt\":[1";
  for (int i = 1; i < tokens; i++) strcat(body, ",1");
  strcat(body, "]");
  strcat(body, more);
  strcat(body, "}");
  return fake_call(api_completions, body);
}

Test(params, length_rules) {
  static const struct {
    int tokens;
    const char *more;
    int max_tokens; /* -1 = refused */
  } rows[] = {{127, "", 1},
              {128, "", -1},
              {112, "", 16},
              {113, "", 15},
              {127, ",\"max_tokens\":1", 1},
              {127, ",\"max_tokens\":2", -1},
              {128, ",\"max_tokens\":1", -1},
              {128, ",\"max_tokens\":0,\"echo\":true", 0},
              {129, ",\"max_tokens\":0,\"echo\":true", -1},
              {1, ",\"max_tokens\":127", 127},
              {1, ",\"max_tokens\":128", -1}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    fake_exchange_t *exchange = call_tokens(rows[i].tokens, rows[i].more);
    if (rows[i].max_tokens < 0) {
      ASSERT_EQ_FOR(exchange->error.code, ERR_CONTEXT_LENGTH, "row %zu", i);
      ASSERT_STR_EQ(exchange->error.param, "prompt");
    } else {
      cr_assert(!exchange->answered, "row %zu: %s", i, exchange->body);
      ASSERT_EQ_FOR(only_request()->params.max_tokens, rows[i].max_tokens, "row %zu", i);
      fake_finish_all();
    }
    fake_exchange_free(exchange);
  }
}

Test(params, text_that_cannot_fit_is_refused_unread) {
  size_t length = 4 * 129 + 4;
  char *body = malloc(length + 64);
  size_t n = (size_t)sprintf(body, "{\"prompt\":\"");
  memset(body + n, 'a', length);
  strcpy(body + n + length, "\"}");
  fake_exchange_t *exchange = fake_call(api_completions, body);
  ASSERT_EQ(exchange->error.code, ERR_CONTEXT_LENGTH);
  cr_assert(strstr(exchange->error.message, "his model's maximum context length is 128") != NULL);
  fake_exchange_free(exchange);
  body[n + 200] = '"', body[n + 201] = '}', body[n + 202] = '\0'; /* 201 tokens: counted */
  exchange = fake_call(api_completions, body);
  ASSERT_EQ(exchange->error.code, ERR_CONTEXT_LENGTH);
  fake_exchange_free(exchange);
  free(body);
}

Test(params, prompt_logprobs_have_a_budget) {
  fake_engine.info.max_model_len = 1 << 22;
  size_t tokens = 60000;
  char *body = malloc(tokens * 2 + 100);
  size_t n = (size_t)sprintf(body, "{\"prompt_logprobs\":20,\"prompt\":[1");
  for (size_t i = 1; i < tokens; i++) n += (size_t)sprintf(body + n, ",1");
  strcpy(body + n, "]}");
  fake_exchange_t *exchange = fake_call(api_completions, body);
  ASSERT_EQ(exchange->error.code, ERR_INVALID_VALUE);
  ASSERT_STR_EQ(exchange->error.param, "prompt_logprobs");
  fake_exchange_free(exchange);
  free(body);
}

/* ---- suffix ---- */

static void expect_ids(const char *fields, const int32_t *ids, int32_t count) {
  char body[200];
  snprintf(body, sizeof body, "{\"max_tokens\":4,%s}", fields);
  fake_exchange_t *exchange = fake_call(api_completions, body);
  cr_assert(!exchange->answered, "%s", exchange->body);
  const request_t *request = only_request();
  ASSERT_EQ(request->num_prompt_tokens, count);
  cr_assert_arr_eq(request->prompt_ids, ids, (size_t)count * sizeof *ids);
  fake_finish_all();
  fake_exchange_free(exchange);
}

Test(params, fill_in_the_middle) {
  expect_error("{\"prompt\":\"a\",\"suffix\":\"b\"}", ERR_UNSUPPORTED_PARAMETER,
               "no tokens for filling in");
  fake_template.fim = true;
  expect_ids("\"prompt\":\"ab\",\"suffix\":\"c\"",
             (int32_t[]){FAKE_BOS, 290, 'a', 'b', 291, 'c', 292}, 7);
  expect_ids("\"prompt\":\"ab\",\"suffix\":\"c\",\"add_special_tokens\":false",
             (int32_t[]){290, 'a', 'b', 291, 'c', 292}, 6);
  expect_ids("\"prompt\":[256,7],\"suffix\":\"c\"", (int32_t[]){290, 256, 7, 291, 'c', 292}, 6);
  expect_ids("\"prompt\":\"a\",\"suffix\":\"\"", (int32_t[]){FAKE_BOS, 'a'}, 2);
  expect_error("{\"prompt\":\"a\",\"suffix\":\"b\",\"echo\":true}", ERR_UNSUPPORTED_PARAMETER,
               "together with 'echo'");
  expect_error("{\"prompt\":\"a\",\"suffix\":\"b\",\"truncate_prompt_tokens\":3}",
               ERR_UNSUPPORTED_PARAMETER, "together with 'truncate_prompt_tokens'");
  expect_error("{\"prompt\":[1,2],\"suffix\":\"bbb\",\"max_tokens\":121}", ERR_CONTEXT_LENGTH,
               "(8 in the prompt, 121 in the completion)");
}
