/* test_mutations.c: seeded mutations of valid bodies: every one gets an answer or is admitted, and
 * what reaches the engine keeps the promises of request.h. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(mutations, .init = fake_start, .fini = fake_stop, .timeout = 300);

static uint32_t state = 20;

static uint32_t draw(uint32_t below) {
  state = state * 1664525 + 1013904223;
  return (state >> 8) % below;
}

static const char *const bodies[] = {
    "{\"prompt\":[\"ab\",\"c\"],\"max_tokens\":3,\"temperature\":0.7,\"top_p\":0.9,\"stop\":[\"x\","
    "\"yy\"],\"logit_bias\":{\"5\":1.5,\"299\":-100},\"logprobs\":2,\"seed\":-7,\"echo\":true}",
    "{\"prompt\":[1,2,256],\"stream\":true,\"stream_options\":{\"include_usage\":true},\"top_k\":5,"
    "\"min_p\":0.1,\"repetition_penalty\":1.1,\"stop_token_ids\":[7],\"allowed_token_ids\":[1,2],"
    "\"logprobs\":0,\"logprob_token_ids\":[3],\"priority\":4,\"n\":1}",
    "{\"prompt\":[[1],[2,3]],\"bad_words\":[\"no\",\"never\"],\"truncate_prompt_tokens\":1,"
    "\"truncation_side\":\"left\",\"prompt_logprobs\":1,\"cache_salt\":\"s\",\"metadata\":{\"a\":"
    "\"b\"},\"response_format\":{\"type\":\"text\"},\"request_id\":\"q\",\"zebra\":[{}]}",
};

static const char *const chats[] = {
    "{\"messages\":[{\"role\":\"system\",\"content\":\"a\"},{\"role\":\"user\",\"content\":[{"
    "\"type\":"
    "\"text\",\"text\":\"b\"}]},{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
    "\"1\","
    "\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":"
    "\"tool\","
    "\"content\":\"c\",\"tool_call_id\":\"1\"}],\"logprobs\":true,\"top_logprobs\":2,\"n\":2}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":9,\"tools\":[{\"type\":"
    "\"function\",\"function\":{\"name\":\"f\",\"strict\":true,\"parameters\":{\"type\":\"object\","
    "\"properties\":{\"a\":{\"enum\":[1,2]}},\"required\":[\"a\"],\"additionalProperties\":false}}}"
    "],"
    "\"tool_choice\":{\"type\":\"function\",\"function\":{\"name\":\"f\"}},\"stream\":true}",
    "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"max_tokens\":5,\"response_format\":{"
    "\"type\":"
    "\"json_schema\",\"json_schema\":{\"name\":\"n\",\"schema\":{\"anyOf\":[{\"type\":\"integer\"},"
    "{\"type\":"
    "\"string\",\"pattern\":\"^a+$\"}]}}},\"chat_template_kwargs\":{\"think\":1},\"seed\":3}",
};

static const char *const ollamas[] = {
    "{\"model\":\"tiny\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"},{\"role\":"
    "\"assistant\","
    "\"content\":\"\",\"thinking\":\"t\",\"tool_calls\":[{\"function\":{\"name\":\"f\","
    "\"arguments\":"
    "{\"b\":[1]}}}]},{\"role\":\"tool\",\"content\":\"c\",\"tool_name\":\"f\"}],\"options\":{"
    "\"seed\":1,"
    "\"temperature\":0.5,\"num_predict\":4,\"stop\":[\"x\"],\"repeat_penalty\":1.1}}",
    "{\"model\":\"tiny:latest\",\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"stream\":"
    "false,"
    "\"format\":{\"type\":\"integer\"},\"keep_alive\":\"1h5m\",\"think\":false,\"logprobs\":true,"
    "\"top_logprobs\":2,\"options\":{\"top_k\":3,\"top_p\":0.5,\"num_ctx\":16,\"mirostat\":0}}",
    "{\"model\":\"tiny\",\"messages\":[{\"role\":\"system\",\"content\":\"s\"},{\"role\":\"user\","
    "\"content\":\"a\",\"images\":[]}],\"tools\":[{\"type\":\"function\",\"function\":{\"name\":"
    "\"f\","
    "\"parameters\":{\"type\":\"object\"}}}],\"options\":{\"min_p\":0.1,\"repeat_last_n\":0}}",
};

static const char *const questions[] = {
    "{\"model\":\"tiny\",\"prompt\":\"ab\",\"system\":\"s\",\"options\":{\"seed\":1,\"num_"
    "predict\":4}}",
    "{\"model\":\"tiny\",\"prompt\":\"ab\",\"raw\":true,\"stream\":false,\"keep_alive\":-1,"
    "\"options\":{"
    "\"stop\":\"x\",\"presence_penalty\":0.5}}",
    "{\"model\":\"tiny:latest\",\"prompt\":\"ab\",\"format\":\"json\",\"template\":\"\","
    "\"context\":[],"
    "\"options\":{\"temperature\":1.5,\"numa\":true,\"num_predict\":-2}}",
};

static const char *const pieces[] = {"[",    "{",       "\"", "\\u0000", "1e999", "-",
                                     "\xff", "null",    "0",  "1e30",    ",",     ":",
                                     "}",    "\\ud83d", "99", "."};

/* One to four edits: a byte changed, a part cut or doubled, a piece put in. */
static size_t mutate(char *body, size_t length) {
  for (uint32_t edits = 1 + draw(4); edits > 0 && length > 0; edits--) {
    size_t at = draw((uint32_t)length), part = 1 + draw(8);
    if (part > length - at) part = length - at;
    switch (draw(4)) {
    case 0: body[at] = (char)draw(256); break;
    case 1:
      memmove(body + at, body + at + part, length - at - part);
      length -= part;
      break;
    case 2:
      memmove(body + at + part, body + at, length - at);
      length += part;
      break;
    default: {
      const char *piece = pieces[draw(sizeof pieces / sizeof pieces[0])];
      memmove(body + at + strlen(piece), body + at, length - at);
      memcpy(body + at, piece, strlen(piece));
      length += strlen(piece);
    }
    }
  }
  return length;
}

static void check_ids(const int32_t *ids, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    ASSERT_GE(ids[i], 0);
    ASSERT_LT(ids[i], FAKE_VOCAB);
  }
}

static void check_request(const request_t *request) {
  const sampling_params_t *p = &request->params;
  ASSERT_GE(request->num_prompt_tokens, 1);
  ASSERT_LE((int64_t)request->num_prompt_tokens + p->max_tokens, FAKE_CONTEXT);
  check_ids(request->prompt_ids, request->num_prompt_tokens);
  ASSERT_GE(p->temperature, 0);
  ASSERT_LE(p->temperature, 2);
  ASSERT_GT(p->top_p, 0);
  ASSERT_LE(p->top_p, 1);
  ASSERT_GE(p->min_p, 0);
  ASSERT_LE(p->min_p, 1);
  ASSERT_GE(p->top_k, 0);
  ASSERT_LT(p->top_k, FAKE_VOCAB);
  ASSERT_GT(p->repetition_penalty, 0);
  ASSERT_LE(p->repetition_penalty, 10);
  ASSERT_LE(fabsf(p->presence_penalty), 2);
  ASSERT_LE(fabsf(p->frequency_penalty), 2);
  ASSERT_GE(p->max_tokens, 0);
  ASSERT_GE(p->min_tokens, 0);
  ASSERT_LE(p->min_tokens, p->max_tokens);
  ASSERT_GE(p->num_logprobs, -1);
  ASSERT_LE(p->num_logprobs, LOGPROBS_MAX);
  ASSERT_GE(p->num_prompt_logprobs, -1);
  ASSERT_LE(p->num_prompt_logprobs, LOGPROBS_MAX);
  ASSERT_LE(p->num_stop_token_ids, STOP_TOKEN_IDS_MAX);
  ASSERT_LE(p->num_bad_words, BAD_WORDS_MAX);
  check_ids(p->stop_token_ids, p->num_stop_token_ids);
  check_ids(p->allowed_ids, p->num_allowed_ids);
  check_ids(p->logprob_token_ids, p->num_logprob_token_ids);
  for (int32_t i = 0; i < p->num_logit_bias; i++) {
    check_ids(&p->logit_bias[i].id, 1);
    ASSERT_LE(fabsf(p->logit_bias[i].bias), 100);
  }
  for (int32_t i = 0; i < p->num_bad_words; i++) {
    ASSERT_GE(p->bad_words[i].count, 1);
    check_ids(p->bad_words[i].ids, p->bad_words[i].count);
  }
}

static void storm(void (*handle)(exchange_t *), const char *const seeds[3]) {
  int admitted = 0, refused = 0;
  for (int round = 0; round < 6000; round++) {
    char body[1024];
    const char *seed = seeds[round % 3];
    memcpy(body, seed, strlen(seed));
    size_t length = mutate(body, strlen(seed));
    fake_exchange_t *exchange = fake_exchange_new(body, length);
    handle(&exchange->public);
    fake_run();
    if (exchange->answered) {
      bool loads = exchange->status == 200 && strstr(exchange->body, "\"load\"") != NULL;
      cr_assert(exchange->status == 400 || exchange->status == 404 || loads, "%s", exchange->body);
      json_free(fake_json(exchange));
      refused++;
    } else {
      admitted++;
    }
    for (int i = 0; i < fake_engine.num_requests; i++) check_request(fake_engine.requests[i]);
    fake_finish_all();
    fake_exchange_free(exchange);
  }
  cr_assert(admitted > 200 && refused > 2000, "%d admitted, %d refused", admitted, refused);
}

Test(mutations, of_completions) {
  storm(api_completions, bodies);
}

Test(mutations, of_chats) {
  storm(api_chat_completions, chats);
}

Test(mutations, of_chats_of_ollama) {
  storm(api_ollama_chat, ollamas);
}

Test(mutations, of_questions_of_ollama) {
  storm(api_ollama_generate, questions);
}
