/* test_answer.c: what the load client makes of answers: whole, cut, refused, in pieces. */
#include "server/bench/answer.c"
#include "tests/expect.h"

typedef struct gaps {
  double ms[16];
  int count;
} gaps_t;

static void keep_gap(void *context, double gap_ms) {
  gaps_t *gaps = context;
  ASSERT_LT(gaps->count, 16);
  gaps->ms[gaps->count++] = gap_ms;
}

static answer_t stream_to(gaps_t *gaps) {
  return (answer_t){.stream = true, .status = 200, .on_gap = keep_gap, .context = gaps};
}

static void feed(answer_t *a, const char *text, uint64_t at_ms) {
  answer_feed(a, text, strlen(text), at_ms * 1000000);
}

static const char token[] = "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n";
static const char closing[] =
    "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n";
static const char usage[] =
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3,"
    "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n";
static const char done[] = "data: [DONE]\n\n";

Test(answer, a_stream_gives_first_token_gaps_and_usage) {
  gaps_t gaps = {0};
  answer_t a = stream_to(&gaps);
  feed(&a, token, 10);
  feed(&a, token, 15);
  feed(&a, ": ping\n\n", 17);
  feed(&a, token, 35);
  feed(&a, usage, 36);
  feed(&a, done, 40);
  cr_assert(answer_end(&a, 41000000), "%s", a.error);
  ASSERT_EQ(a.first_ns, 10000000);
  ASSERT_EQ(a.last_ns, 35000000);
  ASSERT_EQ(gaps.count, 2);
  cr_assert_float_eq(gaps.ms[0], 5, 1e-9);
  cr_assert_float_eq(gaps.ms[1], 20, 1e-9);
  cr_assert(a.has_usage);
  ASSERT_EQ(a.prompt_tokens, 7);
  ASSERT_EQ(a.cached_tokens, 4);
  ASSERT_EQ(a.output_tokens, 3);
  answer_free(&a);
}

Test(answer, any_split_of_the_bytes_reads_the_same) {
  char all[1024];
  int length = snprintf(all, sizeof all, "%s%s%s%s%s%s", token, token, closing, usage, done, "");
  for (int cut = 1; cut < length; cut++) {
    gaps_t gaps = {0};
    answer_t a = stream_to(&gaps);
    answer_feed(&a, all, (size_t)cut, 1000000);
    answer_feed(&a, all + cut, (size_t)(length - cut), 2000000);
    cr_assert(answer_end(&a, 3000000), "cut at %d: %s", cut, a.error);
    ASSERT_EQ_FOR(a.num_chunks, 2, "cut at %d", cut);
    ASSERT_EQ_FOR(gaps.count, 1, "cut at %d", cut);
    answer_free(&a);
  }
}

Test(answer, a_closing_chunk_is_no_token_but_ends_the_last_one) {
  gaps_t gaps = {0};
  answer_t a = stream_to(&gaps);
  feed(&a, token, 10);
  feed(&a, token, 20);
  feed(&a, closing, 24);
  feed(&a, done, 25);
  cr_assert(answer_end(&a, 26000000));
  ASSERT_EQ(a.num_chunks, 2);
  ASSERT_EQ(gaps.count, 1);
  ASSERT_EQ(a.last_ns, 24000000);
  answer_free(&a);
}

Test(answer, empty_text_without_a_reason_is_a_held_back_token) {
  gaps_t gaps = {0};
  answer_t a = stream_to(&gaps);
  feed(&a, "data: {\"choices\": [{\"text\": \"\", \"finish_reason\": null}]}\r\n\r\n", 10);
  feed(&a, "data:{\"choices\":[{\"text\":\"\xc3\xa9\",\"finish_reason\":\"stop\"}]}\n\n", 20);
  feed(&a, done, 25);
  cr_assert(answer_end(&a, 26000000));
  ASSERT_EQ(a.num_chunks, 2);
  answer_free(&a);
}

Test(answer, chat_deltas_count_too) {
  gaps_t gaps = {0};
  answer_t a = stream_to(&gaps);
  feed(&a, "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":null}]}\n\n", 10);
  feed(&a, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", 20);
  feed(&a, done, 25);
  cr_assert(answer_end(&a, 26000000));
  ASSERT_EQ(a.num_chunks, 1);
  answer_free(&a);
}

Test(answer, without_usage_chunks_are_counted) {
  gaps_t gaps = {0};
  answer_t a = stream_to(&gaps);
  feed(&a, token, 10);
  feed(&a, token, 20);
  feed(&a, done, 25);
  cr_assert(answer_end(&a, 26000000));
  cr_assert_not(a.has_usage);
  ASSERT_EQ(a.output_tokens, 2);
  answer_free(&a);
}

static void expect_bad(answer_t *a, const char *text, const char *why) {
  feed(a, text, 10);
  cr_assert_not(answer_end(a, 20000000));
  cr_assert_not_null(strstr(a->error, why), "'%s' does not say '%s'", a->error, why);
  answer_free(a);
}

Test(answer, bad_streams_are_told_apart) {
  gaps_t gaps = {0};
  answer_t a = stream_to(&gaps), b = a, c = a, d = a, e = a;
  expect_bad(&a, token, "[DONE]");
  expect_bad(&b, done, "without tokens");
  expect_bad(&c, "data: {\"error\":{\"message\":\"lost\"}}\n\ndata: [DONE]\n\n", "lost");
  expect_bad(&d, "data: {\"choices\":\n\n", "not JSON");
  e.status = 429;
  expect_bad(&e, "{\"error\":{\"message\":\"The server is busy\"}}\n", "HTTP 429");
}

Test(answer, an_error_body_is_kept_to_a_bound) {
  answer_t a = {.stream = true, .status = 500};
  char block[4096];
  memset(block, 'x', sizeof block);
  for (int i = 0; i < 100; i++) answer_feed(&a, block, sizeof block, 1);
  ASSERT_LE(a.length, ERROR_BODY_MAX);
  cr_assert_not(answer_end(&a, 2));
  answer_free(&a);
}

Test(answer, a_whole_body_gives_usage) {
  answer_t a = {.status = 200};
  feed(&a, "{\"choices\":[{\"text\":\"abc\",\"finish_reason\":\"length\"}],", 10);
  feed(&a, "\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":9}}", 20);
  cr_assert(answer_end(&a, 30000000));
  ASSERT_EQ(a.output_tokens, 9);
  ASSERT_EQ(a.prompt_tokens, 5);
  answer_free(&a);
  answer_t empty = {.status = 200};
  cr_assert_not(answer_end(&empty, 1));
}
