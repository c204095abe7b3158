/* test_top.c: what `inferd top` reads out of a page of /metrics, and what it shows of it. */
#include "server/top/top.h"

#include "tests/expect.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

TestSuite(top, .timeout = 30);

static scrape_t read_page(const char *page) {
  static scrape_t scrape;
  cr_assert(scrape_read(page, &scrape), "%s", page);
  return scrape;
}

#define TTFT "inferd_time_to_first_token_seconds_bucket{model=\"m\",le="

/* 100 observations: 50 up to 0.1 s, 40 more up to 0.2 s, 10 beyond the last bound. */
static const char histogram[] =
    "inferd_requests_running{model=\"m\"} 2\n"
    "# TYPE inferd_time_to_first_token_seconds histogram\n" TTFT "\"0.05\"} 10\n" TTFT
    "\"0.1\"} 50\n" TTFT "\"0.2\"} 90\n" TTFT "\"+Inf\"} 100\n";

static void expect_quantile(const scrape_histogram_t *before, const scrape_histogram_t *now,
                            double q, double seconds) {
  double found = scrape_quantile(before, now, q);
  cr_expect(fabs(found - seconds) < 1e-9, "q %g: %g, expected %g", q, found, seconds);
}

Test(top, quantiles_of_prometheus) {
  scrape_t page = read_page(histogram);
  const scrape_histogram_t *ttft = &page.latencies[LATENCY_ttft];
  EXPECT_EQ(ttft->num_buckets, 4);
  expect_quantile(NULL, ttft, 0.05, 0.025); /* the lowest bucket begins at 0 */
  expect_quantile(NULL, ttft, 0.1, 0.05);
  expect_quantile(NULL, ttft, 0.3, 0.075);
  expect_quantile(NULL, ttft, 0.5, 0.1);
  expect_quantile(NULL, ttft, 0.7, 0.15);
  expect_quantile(NULL, ttft, 0.99, 0.2); /* beyond the last bound: that bound */
  cr_expect(isnan(scrape_quantile(NULL, &page.latencies[LATENCY_itl], 0.5)));
}

Test(top, quantiles_between_two_pages) {
  scrape_t before = read_page(histogram);
  scrape_t now = read_page("inferd_requests_running{model=\"m\"} 2\n" TTFT "\"0.05\"} 10\n" TTFT
                           "\"0.1\"} 50\n" TTFT "\"0.2\"} 100\n" TTFT "\"+Inf\"} 110\n");
  const scrape_histogram_t *old = &before.latencies[LATENCY_ttft];
  const scrape_histogram_t *new = &now.latencies[LATENCY_ttft];
  cr_expect(scrape_observed(old, new) == 10);
  expect_quantile(old, new, 0.5, 0.15); /* the ten new ones lie between 0.1 and 0.2 */
  cr_expect(scrape_observed(new, old) == 100, "a server that was started again");
  expect_quantile(new, old, 0.5, 0.1);
  cr_expect(isnan(scrape_quantile(old, old, 0.5)));
}

Test(top, names_of_inferd_before_those_of_vllm) {
  static const char vllm[] = "vllm:num_requests_running{model_name=\"v\",engine=\"0\"} 3\n"
                             "vllm:num_requests_waiting{model_name=\"v\",engine=\"0\"} 1\n"
                             "vllm:generation_tokens_total{model_name=\"v\"} 7\n"
                             "vllm:inter_token_latency_seconds_bucket{le=\"0.1\"} 4\n";
  char both[2000];
  scrape_t page = read_page(vllm);
  cr_expect(page.figures[FIGURE_running] == 3 && page.figures[FIGURE_generation_tokens] == 7);
  cr_expect(isnan(page.figures[FIGURE_kv_usage]));
  EXPECT_STR_EQ(page.model, "v");
  EXPECT_EQ(page.latencies[LATENCY_itl].num_buckets, 1);
  snprintf(both, sizeof both, "%sinferd_requests_running{model=\"i\"} 4\n", vllm);
  page = read_page(both);
  cr_expect(page.figures[FIGURE_running] == 4 && page.figures[FIGURE_waiting] == 1);
  EXPECT_STR_EQ(page.model, "i");
}

Test(top, labels_and_lines_of_any_kind) {
  scrape_t page = read_page("inferd_requests_running{model=\"a} 9,x=\\\"b\\\\\"} 1\r\n"
                            "inferd_requests_running 2\n\n#\n{\ninferd_requests_running\n"
                            "inferd_requests_running{model=\"open} 5\n"
                            "inferd_requests_waiting{model=\"m\"} word\n"
                            "inferd_key_requests_total{model=\"m\",key=\"al ice\"} 3 1700000000\n"
                            "inferd_key_refused_total{key=\"al ice\"} 1");
  cr_expect(page.figures[FIGURE_running] == 3, "%g", page.figures[FIGURE_running]);
  cr_expect(isnan(page.figures[FIGURE_waiting]));
  EXPECT_EQ(page.num_keys, 1);
  EXPECT_STR_EQ(page.keys[0].label, "al ice");
  cr_expect(page.keys[0].requests == 3 && page.keys[0].refused == 1);
  scrape_t none;
  cr_expect_not(scrape_read("", &none));
  cr_expect_not(scrape_read("go_goroutines 8\n", &none));
}

Test(top, more_of_anything_than_there_is_room_for) {
  static char page[200 * 120], label[SCRAPE_TEXT_MAX * 3];
  memset(label, 'x', sizeof label - 1);
  size_t used =
      (size_t)snprintf(page, sizeof page, "inferd_requests_running{model=\"%s\"} 1\n", label);
  for (int i = 0; i < 100; i++) {
    used +=
        (size_t)snprintf(page + used, sizeof page - used,
                         "inferd_key_requests_total{key=\"%d\"} 1\n" TTFT "\"%d\"} %d\n", i, i, i);
  }
  scrape_t scrape = read_page(page);
  EXPECT_EQ(scrape.num_keys, (int)SCRAPE_KEYS_MAX);
  EXPECT_EQ(scrape.latencies[LATENCY_ttft].num_buckets, (int)SCRAPE_BUCKETS_MAX);
  EXPECT_EQ(strlen(scrape.model), (size_t)SCRAPE_TEXT_MAX - 1);
  char text[FRAME_BYTES_MAX];
  scrape_t before = scrape;
  scrape.at_ns = 1000000000;
  top_frame(&before, &scrape, "here", 0, text);
  cr_expect(strstr(text, "and 48 more\n") != NULL, "%s", text);
}

static const char first[] =
    "inferd_build_info{version=\"0.1.0\",commit=\"c\"} 1\nprocess_start_time_seconds 1000\n"
    "inferd_engine_state{model=\"m\",state=\"loading\"} 0\n"
    "inferd_engine_state{model=\"m\",state=\"ready\"} 1\n"
    "inferd_requests_running{model=\"m\\u001b\"} 2\ninferd_requests_waiting{model=\"m\"} 1\n"
    "inferd_kv_cache_usage_ratio{model=\"m\"} 0.256\n"
    "inferd_prompt_tokens_total{model=\"m\"} 100\ninferd_generation_tokens_total{model=\"m\"} 10\n"
    "inferd_prefix_cache_queries_total{model=\"m\"} 100\n"
    "inferd_prefix_cache_hits_total{model=\"m\"} 0\n"
    "inferd_key_requests_total{key=\"bob\x1b[2J\"} 4\n"
    "inferd_key_prompt_tokens_total{key=\"bob\x1b[2J\"} 40\n";
static const char second[] =
    "inferd_build_info{version=\"0.1.0\",commit=\"c\"} 1\nprocess_start_time_seconds 1000\n"
    "inferd_engine_state{model=\"m\",state=\"ready\"} 1\n"
    "inferd_requests_running{model=\"m\"} 3\ninferd_requests_waiting{model=\"m\"} 0\n"
    "inferd_kv_cache_usage_ratio{model=\"m\"} 0.256\n"
    "inferd_prompt_tokens_total{model=\"m\"} 300\ninferd_generation_tokens_total{model=\"m\"} 21\n"
    "inferd_prefix_cache_queries_total{model=\"m\"} 300\n"
    "inferd_prefix_cache_hits_total{model=\"m\"} 50\n"
    "inferd_key_requests_total{key=\"bob\x1b[2J\"} 5\n"
    "inferd_key_prompt_tokens_total{key=\"bob\x1b[2J\"} 60\n"
    "inferd_key_refused_total{key=\"bob\x1b[2J\"} 1\n" TTFT "\"0.1\"} 4\n" TTFT "\"+Inf\"} 4\n";

Test(top, frame) {
  scrape_t before = read_page(first), now = read_page(second);
  char text[FRAME_BYTES_MAX];
  now.at_ns = 2000000000; /* two seconds later */
  size_t length = top_frame(&before, &now, "localhost:8000", 1000 + 3 * 3600 + 125, text);
  EXPECT_EQ(length, strlen(text));
  EXPECT_STR_EQ(text, "inferd 0.1.0  m  ready, up 3 h 02 min  localhost:8000\n"
                      "\n"
                      "running      3     waiting      0\n"
                      "KV cache  25.6 %   [######..............]\n"
                      "\n"
                      "prompt          100 tokens/s\n"
                      "generated       5.5 tokens/s\n"
                      "prefix hits      25 %\n"
                      "\n"
                      "                         p50         p99        of\n"
                      "first token            50 ms       99 ms         4\n"
                      "between tokens             -           -         0   since the start\n"
                      "\n"
                      "key                       requests      prompt/s   generated/s   refused\n"
                      "bob?[2J                          5            10             0         1\n");
}

#define OF(model, state) "{model_name=\"" model "\",state=\"" state "\"} "
#define TOKENS(model, kind) "inferd_model_tokens_total{model_name=\"" model "\",kind=\"" kind "\"} "

Test(top, a_line_for_each_of_several_models) {
  static const char page[] =
      "inferd_build_info{version=\"0.1.0\"} 1\nprocess_start_time_seconds 1000\n"
      "inferd_engine_state{state=\"ready\"} 1\n"
      "inferd_model_state" OF("idle", "unloaded") "1\ninferd_model_state" OF(
          "idle",
          "ready") "0\n"
                   "inferd_model_state" OF(
                       "b\x1b[2J",
                       "ready") "1\n"
                                "inferd_model_memory_bytes{model_name=\"idle\"} 0\n"
                                "inferd_model_memory_bytes{model_name=\"b\x1b[2J\"} 1610612736\n"
                                "inferd_model_requests" OF(
                                    "b\x1b[2J", "waiting") "1\n"
                                                           "inferd_model_requests" OF(
                                                               "b\x1b[2J", "running") "2\n";
  static const char late[] =
      TOKENS("b\x1b[2J", "prompt") "30\n" TOKENS("b\x1b[2J", "generated") "11";
  char both[2000], text[FRAME_BYTES_MAX];
  snprintf(both, sizeof both, "%s%s", page, late);
  scrape_t before = read_page(page), now = read_page(both);
  now.at_ns = 2000000000;
  top_frame(&before, &now, "localhost:8000", 1000, text);
  EXPECT_STR_EQ(
      text, "inferd 0.1.0  2 models  ready, up 0 h 00 min  localhost:8000\n"
            "\n"
            "model                   state         memory running waiting  prompt/s     gen/s\n"
            "b?[2J                   ready       1.50 GiB       2       1        15       5.5\n"
            "idle                    unloaded    0.00 GiB       0       0         0         0\n");
}

Test(top, more_models_than_there_is_room_for) {
  static char page[400 * 80];
  size_t used = 0;
  for (int i = 0; i < 300; i++)
    used += (size_t)snprintf(page + used, sizeof page - used,
                             "inferd_model_memory_bytes{model_name=\"%d\"} %d\n", i, i % 2);
  scrape_t scrape = read_page(page);
  EXPECT_EQ(scrape.num_models, (int)SCRAPE_MODELS_MAX);
  scrape_t before = scrape;
  char text[FRAME_BYTES_MAX];
  scrape.at_ns = 1000000000;
  top_frame(&before, &scrape, "here", 0, text);
  cr_expect(strstr(text, "\n63 ") != NULL && strstr(text, "\n64 ") == NULL, "%s", text);
  cr_expect(strstr(text, "and 224 more\n") != NULL, "%s", text);
}
