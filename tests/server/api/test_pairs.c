/* test_pairs.c: /rerank, /score and /classify over a fake engine: what it is asked, and how scores
 * are printed. */
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <string.h>

static embedding_info_t info;

static void start(void) {
  fake_start();
  info = (embedding_info_t){.task = TASK_RERANK, .pooling = POOLING_CLS, .size = 1};
  fake_engine.info.embedding = &info;
}

TestSuite(pairs, .init = start, .fini = fake_stop, .timeout = 60);

/* Ends the requests that the engine has, in their order, with these scores. */
static void finish(const double *scores) {
  request_t *requests[16];
  int count = fake_engine.num_requests;
  memcpy(requests, fake_engine.requests, sizeof requests);
  for (int i = 0; i < count; i++) {
    requests[i]->pooled[0] = scores[i];
    fake_done(requests[i], FINISH_STOP, "");
  }
  fake_deliver();
}

/* `expected` is what stands behind the id, which is random. */
static void expect_answer(void (*handle)(exchange_t *), const char *body, const double *scores,
                          const char *expected) {
  fake_exchange_t *exchange = fake_call(handle, body);
  finish(scores);
  ASSERT_EQ_FOR(exchange->status, 200, "%s", exchange->error.message);
  const char *text = fake_steady_body(exchange);
  cr_assert(strncmp(text, "{\"id\":\"", 7) == 0 && strchr(text, ',') != NULL, "%s", text);
  ASSERT_STR_EQ(strchr(text, ','), expected);
  fake_exchange_free(exchange);
}

/* The ids of request `index`, as text: <s> is ^, </s> is $. */
static const char *ids_of(int index, char out[64]) {
  const request_t *request = fake_engine.requests[index];
  for (int32_t i = 0; i < request->num_prompt_tokens && i < 63; i++) {
    int32_t id = request->prompt_ids[i];
    out[i] = (char)(id == FAKE_BOS ? '^' : id == FAKE_EOS ? '$' : id);
    out[i + 1] = '\0';
  }
  return out;
}

static void expect_ids(const char *body, const char *ids, int32_t second_text) {
  static const double scores[1];
  char text[64] = "";
  fake_exchange_t *exchange = fake_call(api_score, body);
  ASSERT_EQ_FOR(fake_engine.num_requests, 1, "%s", exchange->error.message);
  ASSERT_STR_EQ(ids_of(0, text), ids);
  ASSERT_EQ(fake_engine.requests[0]->second_text, second_text);
  finish(scores);
  fake_exchange_free(exchange);
}

static void expect_refused_by(void (*handle)(exchange_t *), const char *body, int code,
                              const char *param, const char *says) {
  fake_exchange_t *exchange = fake_call(handle, body);
  ASSERT_EQ_FOR(exchange->error.code, code, "%s: %s", body, exchange->error.message);
  ASSERT_STR_EQ(exchange->error.param, param);
  cr_assert(strstr(exchange->error.message, says) != NULL, "%s", exchange->error.message);
  fake_exchange_free(exchange);
}

#define PAIR "{\"text_1\":\"abc\",\"text_2\":\"defgh\""

Test(pairs, texts_are_joined_and_the_longer_is_cut_first) {
  expect_ids(PAIR "}", "^abc$defgh$", 5);
  expect_ids(PAIR ",\"max_tokens_per_doc\":2}", "^abc$de$", 5);
  expect_ids(PAIR ",\"max_tokens_per_query\":1}", "^a$defgh$", 3);
  expect_ids(PAIR ",\"truncate_prompt_tokens\":9}", "^abc$def$", 5);
  expect_ids(PAIR ",\"truncate_prompt_tokens\":8}", "^ab$def$", 4);
  expect_ids(PAIR ",\"truncate_prompt_tokens\":7}", "^ab$de$", 4);
  expect_ids(PAIR ",\"truncate_prompt_tokens\":8,\"truncation_side\":\"left\"}", "^bc$fgh$", 4);
  expect_ids("{\"text_1\":\"abcde\",\"text_2\":\"f\",\"truncate_prompt_tokens\":7}", "^abc$f$", 5);
}

Test(pairs, results_come_best_first_and_ties_in_order) {
  static const double scores[] = {0, 2, 0, 1};
  info.activation = SCORE_IDENTITY;
  expect_answer(api_rerank,
                "{\"query\":\"q\",\"documents\":[\"a\",\"b\\n\",{\"text\":\"c\"},\"d\"]}", scores,
                ",\"model\":\"tiny\",\"results\":["
                "{\"index\":1,\"relevance_score\":2.0,\"document\":{\"text\":\"b\\n\"}},"
                "{\"index\":3,\"relevance_score\":1.0,\"document\":{\"text\":\"d\"}},"
                "{\"index\":0,\"relevance_score\":0.0,\"document\":{\"text\":\"a\"}},"
                "{\"index\":2,\"relevance_score\":0.0,\"document\":{\"text\":\"c\"}}],"
                "\"usage\":{\"prompt_tokens\":21,\"total_tokens\":21}}");
  info.activation = SCORE_SIGMOID;
  expect_answer(
      api_rerank_v2, "{\"query\":\"q\",\"documents\":[\"a\",\"b\"],\"top_n\":1}", &scores[2],
      ",\"model\":\"tiny\",\"results\":[{\"index\":1,\"relevance_score\":0.7310586}],"
      "\"meta\":{\"api_version\":{\"version\":\"2\"},\"billed_units\":{\"search_units\":1}},"
      "\"usage\":{\"prompt_tokens\":10,\"total_tokens\":10}}");
  expect_answer(api_score, "{\"queries\":\"q\",\"items\":[\"a\",\"b\"],\"raw_scores\":true}",
                &scores[2],
                ",\"object\":\"list\",\"created\":1,\"model\":\"tiny\",\"data\":["
                "{\"index\":0,\"object\":\"score\",\"score\":0.0},"
                "{\"index\":1,\"object\":\"score\",\"score\":1.0}],"
                "\"usage\":{\"prompt_tokens\":10,\"total_tokens\":10}}");
}

Test(pairs, labels_have_names_and_probabilities) {
  static const char *const labels[] = {"good", "bad"};
  static const double scores[] = {1};
  info = (embedding_info_t){
      .task = TASK_CLASSIFY, .pooling = POOLING_CLS, .size = 2, .labels = labels};
  info.activation = SCORE_SOFTMAX;
  expect_answer(api_classify, "{\"input\":\"a\"}", scores,
                ",\"object\":\"list\",\"created\":1,\"model\":\"tiny\",\"data\":[{\"index\":0,"
                "\"label\":\"good\",\"num_classes\":2,\"probs\":[0.7310586,0.26894143]}],"
                "\"usage\":{\"prompt_tokens\":2,\"total_tokens\":2}}");
  expect_refused_by(api_pooling, "{\"input\":\"a\",\"task\":\"embed\"}", ERR_UNSUPPORTED_PARAMETER,
                    "task", "but the served model classifies");
  expect_refused_by(api_pooling, "{\"input\":\"a\",\"task\":\"token_embed\"}", ERR_INVALID_VALUE,
                    "task", "'classify' or 'token_classify', but got 'token_embed' instead.");
  expect_refused_by(api_pooling, "{\"input\":\"a\",\"dimensions\":1}", ERR_UNSUPPORTED_PARAMETER,
                    "dimensions", "a model that classifies");
}

Test(pairs, a_request_is_one_bundle_within_the_queue) {
  fake_option("max_queue_requests", "2");
  expect_refused_by(api_rerank, "{\"query\":\"q\",\"documents\":[\"a\",\"b\",\"c\"]}",
                    ERR_INVALID_VALUE, "documents", "3 texts; at most 2");
  info.task = TASK_EMBED;
  expect_refused_by(api_rerank, "{\"query\":\"q\",\"documents\":[\"a\",\"b\"]}", ERR_INVALID_VALUE,
                    "documents", "3 texts in all; at most 2");
}
