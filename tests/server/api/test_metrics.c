/* test_metrics.c: /metrics read by a strict parser of the text format, and the arithmetic of what
 * it says. */
#include "server/observe/metrics.h"
#include "tests/expect.h"
#include "tests/server/api/fake.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(metrics, .init = fake_start, .fini = fake_stop, .timeout = 60);

enum { FAMILIES_MAX = 200, NAME_MAX_BYTES = 120 };

typedef struct family {
  char name[NAME_MAX_BYTES], type[16];
} family_t;

typedef struct parsed {
  family_t families[FAMILIES_MAX];
  int num_families, num_samples;
} parsed_t;

static bool name_ok(const char *name, size_t length) {
  for (size_t i = 0; i < length; i++) {
    char c = name[i];
    if (!isalpha((unsigned char)c) && c != '_' && c != ':' && !(i > 0 && isdigit((unsigned char)c)))
      return false;
  }
  return length > 0;
}

/* {a="b",c="d"}: returns what follows the brace. */
static const char *parse_labels(const char *at) {
  at++;
  for (;;) {
    size_t length = strcspn(at, "=");
    cr_assert(name_ok(at, length), "label name at %.40s", at);
    at += length;
    ASSERT_EQ(strncmp(at, "=\"", 2), 0);
    for (at += 2; *at != '"'; at++) {
      ASSERT_NE(*at, '\n');
      ASSERT_NE(*at, '\0');
      if (*at == '\\') {
        at++;
        cr_assert(*at == '\\' || *at == '"' || *at == 'n');
      }
    }
    at++;
    if (*at == '}') return at + 1;
    ASSERT_EQ_FOR(*at, ',', "%.40s", at);
    at++;
  }
}

static bool belongs(const family_t *family, const char *name, size_t length, bool open) {
  static const char *const suffixes[] = {"", "_bucket", "_sum", "_count", "_total"};
  size_t base = strlen(family->name);
  if (length < base || memcmp(name, family->name, base) != 0) return false;
  for (int i = 0; i < 5; i++) {
    if (strlen(suffixes[i]) != length - base) continue;
    if (memcmp(name + base, suffixes[i], length - base) != 0) continue;
    bool histogram = strcmp(family->type, "histogram") == 0;
    bool summary = strcmp(family->type, "summary") == 0;
    bool counter = strcmp(family->type, "counter") == 0;
    if (i == 0) return !histogram && !summary && !(open && counter);
    if (i == 1) return histogram;
    if (i == 4) return open && counter;
    return histogram || summary;
  }
  return false;
}

/* Dies on anything that Prometheus would not read, or would read with a warning. */
static parsed_t *parse(const char *page, bool open) {
  parsed_t *parsed = calloc(1, sizeof *parsed);
  bool ended = false;
  ASSERT_EQ(page[strlen(page) - 1], '\n');
  for (const char *line = page; *line != '\0'; line = strchr(line, '\n') + 1) {
    char word[8], name[NAME_MAX_BYTES], type[16] = "";
    cr_assert(!ended, "a line behind # EOF");
    family_t *last = parsed->num_families > 0 ? &parsed->families[parsed->num_families - 1] : NULL;
    if (strncmp(line, "# EOF\n", 6) == 0) {
      ended = true;
      continue;
    }
    if (*line == '#') {
      ASSERT_GE_FOR(sscanf(line, "# %7s %119s %15s", word, name, type), 3, "%.60s", line);
      if (strcmp(word, "HELP") == 0) {
        for (int i = 0; i < parsed->num_families; i++) {
          ASSERT_STR_NE_FOR(parsed->families[i].name, name, "a family twice");
        }
        strcpy(parsed->families[parsed->num_families++].name, name);
        ASSERT_LT(parsed->num_families, FAMILIES_MAX);
      } else {
        cr_assert(last != NULL && strcmp(last->name, name) == 0, "%.60s", line);
        if (strcmp(word, "TYPE") == 0) strcpy(last->type, type);
      }
      continue;
    }
    size_t length = strcspn(line, "{ ");
    cr_assert(name_ok(line, length), "%.60s", line);
    cr_assert(last != NULL && last->type[0] != '\0' && belongs(last, line, length, open), "%.60s",
              line);
    const char *at = line + length;
    if (*at == '{') at = parse_labels(at);
    ASSERT_EQ(*at, ' ');
    char *end;
    double value = strtod(at + 1, &end);
    cr_assert(*end == '\n' && !isnan(value), "%.80s", line);
    parsed->num_samples++;
  }
  ASSERT_EQ(ended, open);
  return parsed;
}

static char *page(bool open) {
  grammar_cache_stats_t grammars = grammar_cache_stats(server.live->grammars);
  size_t length;
  char *text = metrics_render(&server, &grammars, NULL, open, 0, &length);
  ASSERT_EQ(strlen(text), length);
  return text;
}

/* Value of a sample given as it is printed up to the blank; -1 = not there. */
static double value(const char *sample) {
  char *text = page(false), line[300];
  snprintf(line, sizeof line, "\n%s ", sample);
  const char *at = strstr(text, line);
  double number = at != NULL ? strtod(at + strlen(line), NULL) : -1;
  free(text);
  return number;
}

static void run_one(int tokens, const char *fields) {
  char body[200];
  snprintf(body, sizeof body, "{\"prompt\":\"abcdefg\"%s}", fields);
  fake_exchange_t *exchange = fake_call(api_completions, body);
  request_t *request = fake_engine.requests[0];
  for (int i = 0; i < tokens; i++) {
    fake_token(request, 'x', "x");
    fake_deliver();
  }
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  fake_exchange_free(exchange);
}

Test(metrics, both_formats_parse) {
  run_one(5, "");
  run_one(1, ",\"stream\":true,\"zebra\":1");
  metrics_http(&server, "/v1/completions", "POST", 200, 12345678);
  metrics_http(&server, "/v1/models", "HEAD", 200, 1);
  for (int open = 0; open <= 1; open++) {
    char *text = page(open);
    parsed_t *parsed = parse(text, open);
    ASSERT_GT(parsed->num_families, 60);
    ASSERT_GT(parsed->num_samples, 300);
    ASSERT_LT(strlen(text), 68 * 1024);
    free(parsed);
    free(text);
  }
}

/* Returns the sources that print the page, one after the other. */
static char *page_sources(void) {
  static const char *const names[] = {"server/observe/metrics_page.c",
                                      "server/observe/metrics_parts.c"};
  buffer_t out = {0};
  for (size_t i = 0; i < ARRAY_LEN(names); i++) {
    char part[4096];
    FILE *file = fopen(names[i], "r");
    cr_assert_not_null(file, "%s", names[i]);
    for (size_t got; (got = fread(part, 1, sizeof part, file)) > 0;) buffer_append(&out, part, got);
    fclose(file);
  }
  size_t length;
  return buffer_detach(&out, &length);
}

/* Many families show only in some configurations, so this reads who prints them: a row whose id
 * stands nowhere is never printed. Histograms are printed by expansion. */
Test(metrics, every_row_is_printed_somewhere) {
  static const char *const ids[] = {
#define METRIC(id, ...) "METRIC_" #id,
#define HISTOGRAM(id, ...)
#include "server/observe/metrics.def"
#undef METRIC
#undef HISTOGRAM
  };
  char *text = page_sources();
  for (size_t i = 0; i < ARRAY_LEN(ids); i++) {
    const size_t length = strlen(ids[i]);
    const char *at = strstr(text, ids[i]);
    while (at != NULL && (isalnum((unsigned char)at[length]) || at[length] == '_'))
      at = strstr(at + length, ids[i]);
    cr_assert_not_null(at, "%s of metrics.def is never printed", ids[i]);
  }
  free(text);
}

Test(metrics, name_sets) {
  static const struct {
    const char *set;
    bool own, vllm;
  } rows[] = {{"both", true, true}, {"inferd", true, false}, {"vllm", false, true}};
  for (int i = 0; i < 3; i++) {
    fake_option("metrics_names", rows[i].set);
    char *text = page(false);
    ASSERT_EQ(strstr(text, "# HELP inferd_") != NULL, rows[i].own);
    ASSERT_EQ(strstr(text, "# HELP vllm:") != NULL, rows[i].vllm);
    cr_assert(strstr(text, "process_start_time_seconds 1700000000\n") != NULL);
    free(parse(text, false));
    free(text);
  }
}

Test(metrics, before_ready_there_is_a_page) {
  fake_engine.state = ENGINE_LOADING;
  char *text = page(false);
  free(parse(text, false));
  ASSERT_EQ_FOR(strstr(text, "inferd_requests_running"), NULL, "what is not measured is absent");
  free(text);
  ASSERT_EQ(value("inferd_engine_state{model=\"tiny\",state=\"loading\"}"), 1);
  ASSERT_EQ(value("inferd_engine_state{model=\"tiny\",state=\"ready\"}"), 0);
  fake_engine.state = ENGINE_READY;
  ASSERT_EQ(value("inferd_engine_state{model=\"tiny\",state=\"ready\"}"), 1);
}

/* n sequential requests of P prompt and T tokens: TTFT count n, ITL count n (T - 1). */
Test(metrics, counts_of_sequential_requests) {
  for (int i = 0; i < 4; i++) run_one(6, i % 2 ? ",\"stream\":true" : "");
#define OWN "{model=\"tiny\"}"
#define VLLM "{model_name=\"tiny\",engine=\"0\"}"
  ASSERT_EQ(value("inferd_time_to_first_token_seconds_count" OWN), 4);
  ASSERT_EQ(value("vllm:time_to_first_token_seconds_count" VLLM), 4);
  ASSERT_EQ(value("inferd_inter_token_latency_seconds_count" OWN), 4 * 5);
  ASSERT_EQ(value("vllm:inter_token_latency_seconds_count" VLLM), 4 * 5);
  ASSERT_EQ(value("inferd_request_prompt_tokens_sum" OWN), 4 * 8);
  ASSERT_EQ(value("inferd_request_generation_tokens_sum" OWN), 4 * 6);
  ASSERT_EQ(value("vllm:request_max_num_generation_tokens_sum" VLLM), 4 * 6);
  ASSERT_EQ(value("inferd_params_max_tokens_sum" OWN), 4 * 16);
  ASSERT_EQ(value("inferd_params_n_count" OWN), 4);
  ASSERT_EQ(value("inferd_requests_total{model=\"tiny\",route=\"/v1/completions\",code=\"200\","
                  "finish_reason=\"length\"}"),
            4);
  ASSERT_EQ(value("inferd_e2e_request_latency_seconds_bucket{model=\"tiny\",le=\"+Inf\"}"), 4);
}

/* A sequence is one choice of one prompt; its prompt is computed once. */
Test(metrics, several_choices_are_several_sequences) {
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"abcdefg\",\"n\":2}");
  request_t *request = fake_engine.requests[0];
  for (int i = 0; i < 3; i++) fake_choice_token(request, 0, 'x', "x");
  fake_choice_token(request, 1, 'y', "y");
  fake_deliver();
  fake_choice_done(request, 1, FINISH_STOP, "");
  fake_choice_done(request, 0, FINISH_LENGTH, "");
  fake_done(request, FINISH_LENGTH, "");
  fake_deliver();
  fake_exchange_free(exchange);
  static const char *const counts[] = {"time_to_first_token_seconds", "e2e_request_latency_seconds",
                                       "decode_time_seconds", "request_prompt_tokens"};
  char sample[120];
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    snprintf(sample, sizeof sample, "inferd_%s_count" OWN, counts[i]);
    ASSERT_EQ_FOR(value(sample), 2, "%s", counts[i]);
  }
  ASSERT_EQ(value("inferd_time_per_output_token_seconds_count" OWN), 1);
  ASSERT_EQ(value("inferd_request_generation_tokens_sum" OWN), 4);
  ASSERT_EQ(value("inferd_prefill_computed_tokens_sum" OWN), 8);
  ASSERT_EQ(value("inferd_params_n_sum" OWN), 2);
  ASSERT_EQ(value("vllm:request_max_num_generation_tokens_sum" VLLM), 3);
  ASSERT_EQ(value("inferd_sequences_finished_total{model=\"tiny\",finished_reason=\"stop\"}"), 1);
  ASSERT_EQ(value("vllm:request_success_total{model_name=\"tiny\",engine=\"0\","
                  "finished_reason=\"length\"}"),
            1);
}

/* The client goes away after one of two choices has a token. */
Test(metrics, aborted_choices_are_aborted_sequences) {
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"abcdefg\",\"n\":2}");
  request_t *request = fake_engine.requests[0];
  fake_choice_token(request, 0, 'x', "x");
  fake_deliver();
  fake_exchange_gone(exchange, "disconnect");
  fake_done(request, FINISH_ABORT, "");
  fake_deliver();
  fake_exchange_free(exchange);
  ASSERT_EQ(value("inferd_sequences_finished_total{model=\"tiny\",finished_reason=\"abort\"}"), 2);
  ASSERT_EQ(value("inferd_request_generation_tokens_sum" OWN), 1);
  ASSERT_EQ(value("inferd_decode_time_seconds_count" OWN), 1);
}

/* One token has no time between tokens: the own set skips it, the alias counts a zero. */
Test(metrics, one_token_sequences) {
  run_one(1, "");
  ASSERT_EQ(value("inferd_time_per_output_token_seconds_count" OWN), 0);
  ASSERT_EQ(value("vllm:request_time_per_output_token_seconds_count" VLLM), 1);
}

Test(metrics, refusals_touch_no_engine_metric) {
  fake_exchange_t *exchange = fake_call(api_completions, "{}");
  fake_exchange_free(exchange);
  exchange = fake_call(api_completions, "{\"prompt\":\"a\",\"suffix\":\"x\"}");
  fake_exchange_free(exchange);
  exchange = fake_call(api_completions, "{\"prompt\":\"a\",\"max_tokens\":1000}");
  fake_exchange_free(exchange);
  fake_engine.refuse = ERR_QUEUE_FULL;
  exchange = fake_call(api_completions, "{\"prompt\":\"a\"}");
  fake_exchange_free(exchange);
  metrics_http(&server, "/v1/completions", "POST", 401, 1);
  metrics_http(&server, "/v1/completions", "POST", 413, 1);
  metrics_http(&server, "/v1/completions", "POST", 503, 1);
  static const char *const reasons[] = {"invalid", "unsupported", "context_length", "queue_full",
                                        "auth",    "too_large",   "loading"};
  for (size_t i = 0; i < sizeof reasons / sizeof reasons[0]; i++) {
    char sample[100];
    snprintf(sample, sizeof sample, "inferd_rejected_total{model=\"tiny\",reason=\"%s\"}",
             reasons[i]);
    ASSERT_EQ_FOR(value(sample), 1, "%s", reasons[i]);
  }
  ASSERT_EQ(value("inferd_time_to_first_token_seconds_count" OWN), 0);
  ASSERT_EQ(value("inferd_e2e_request_latency_seconds_count" OWN), 0);
  ASSERT_EQ(value("inferd_params_n_count" OWN), 0);
}

Test(metrics, requests_are_counted_by_their_route) {
  static const struct {
    void (*handle)(exchange_t *);
    const char *body, *series;
  } rows[] = {{api_messages,
               "{\"max_tokens\":3,\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}",
               "route=\"/v1/messages\",code=\"200\""},
              {api_responses, "{\"input\":\"a\"}", "route=\"/v1/responses\",code=\"200\""}};
  for (int i = 0; i < 2; i++) {
    char series[160];
    fake_exchange_t *exchange = fake_call(rows[i].handle, rows[i].body);
    cr_assert(!exchange->answered, "%s", exchange->body);
    fake_done(fake_engine.requests[0], FINISH_STOP, "");
    fake_deliver();
    fake_exchange_free(exchange);
    snprintf(series, sizeof series,
             "inferd_requests_total{model=\"tiny\",%s,finish_reason=\"stop\"}", rows[i].series);
    ASSERT_EQ_FOR(value(series), 1, "%s", series);
  }
  metrics_http(&server, "/v1/messages", "POST", 401, 1);
  metrics_http(&server, "/v1/responses", "POST", 413, 1);
  ASSERT_EQ(value("inferd_rejected_total{model=\"tiny\",reason=\"auth\"}"), 1);
  ASSERT_EQ(value("inferd_rejected_total{model=\"tiny\",reason=\"too_large\"}"), 1);
}

Test(metrics, chats_are_counted_as_chats) {
  fake_exchange_t *exchange =
      fake_call(api_chat_completions, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}");
  fake_token(fake_engine.requests[0], 'x', "x");
  fake_done(fake_engine.requests[0], FINISH_STOP, "");
  fake_deliver();
  fake_exchange_free(exchange);
  metrics_http(&server, "/v1/chat/completions", "POST", 401, 1);
  metrics_http(&server, "/v1/models", "GET", 401, 1); /* generates nothing */
  ASSERT_EQ(value("inferd_requests_total{model=\"tiny\",route=\"/v1/chat/completions\","
                  "code=\"200\",finish_reason=\"stop\"}"),
            1);
  ASSERT_EQ(value("inferd_rejected_total{model=\"tiny\",reason=\"auth\"}"), 1);
}

Test(metrics, reloads_are_counted_by_result) {
  metrics_reloaded(server.metrics, false);
  metrics_reloaded(server.metrics, false);
  metrics_reloaded(server.metrics, true);
  ASSERT_EQ(value("inferd_reloads_total{model=\"tiny\",result=\"rejected\"}"), 2);
  ASSERT_EQ(value("inferd_reloads_total{model=\"tiny\",result=\"ok\"}"), 1);
}

Test(metrics, a_503_is_counted_once) {
  server.phase = SERVER_DRAINING;
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"a\"}");
  metrics_http(&server, "/v1/completions", "POST", 503, 1); /* the transport, for the same one */
  fake_exchange_free(exchange);
  ASSERT_EQ(value("inferd_rejected_total{model=\"tiny\",reason=\"draining\"}"), 1);
  metrics_http(&server, "/v1/completions", "POST", 503, 1); /* one that it refused by itself */
  ASSERT_EQ(value("inferd_rejected_total{model=\"tiny\",reason=\"draining\"}"), 2);
}

Test(metrics, aborts) {
  fake_exchange_t *exchange = fake_call(api_completions, "{\"prompt\":\"a\"}");
  request_t *request = fake_engine.requests[0];
  fake_exchange_gone(exchange, "slow_reader");
  fake_done(request, FINISH_ABORT, "");
  fake_deliver();
  fake_exchange_free(exchange);
  ASSERT_EQ(value("inferd_aborted_total{model=\"tiny\",cause=\"slow_reader\"}"), 1);
  ASSERT_EQ(value("inferd_requests_total{model=\"tiny\",route=\"/v1/completions\",code=\"499\","
                  "finish_reason=\"abort\"}"),
            1);
}

Test(metrics, engine_numbers) {
  fake_engine.stats = (engine_stats_t){.num_running = 3,
                                       .num_waiting = 2,
                                       .blocks_used = 16,
                                       .blocks_cached = 8,
                                       .blocks_free = 40,
                                       .waiting_tokens = 55,
                                       .steps = 9,
                                       .steps_by_tokens = {2, 3, 4},
                                       .num_held = 1,
                                       .prompt_tokens = 100,
                                       .prompt_tokens_cached = 40,
                                       .generation_tokens = 7,
                                       .preemptions = 1};
  ASSERT_EQ(value("inferd_requests_running" OWN), 3);
  ASSERT_EQ(value("vllm:num_requests_running" VLLM), 3);
  ASSERT_EQ(value("vllm:num_requests_waiting" VLLM), 2);
  ASSERT_EQ(value("inferd_kv_cache_usage_ratio" OWN), 0.25);
  ASSERT_EQ(value("vllm:kv_cache_usage_perc" VLLM), 0.25);
  ASSERT_EQ(value("inferd_waiting_tokens" OWN), 55);
  ASSERT_EQ(value("inferd_kv_blocks{model=\"tiny\",pool=\"device\",state=\"cached\"}"), 8);
  ASSERT_EQ(value("vllm:prompt_tokens_by_source_total{model_name=\"tiny\",engine=\"0\","
                  "source=\"local_compute\"}"),
            60);
  ASSERT_EQ(value("inferd_iteration_tokens_count" OWN), 9);
  ASSERT_EQ(value("inferd_iteration_tokens_bucket{model=\"tiny\",le=\"8\"}"), 5);
  ASSERT_EQ(value("inferd_requests_waiting_by_reason{model=\"tiny\",reason=\"capacity\"}"), 1);
  ASSERT_EQ(value("inferd_queue_limit{model=\"tiny\",unit=\"tokens\"}"), 4 * 64 * 16);
  char *text = page(false);
  cr_assert(strstr(text,
                   "vllm:cache_config_info{model_name=\"tiny\",engine=\"0\",block_size=\"16\","
                   "num_gpu_blocks=\"64\",") != NULL);
  free(text);
}

Test(metrics, the_floor_of_the_prefix_cache_shows_only_where_there_is_one) {
  fake_engine.stats =
      (engine_stats_t){.floor_out_blocks = 9, .floor_in_blocks = 4, .floor_damaged_blocks = 1};
  fake_engine.info.num_floor_blocks = 20;
  ASSERT_EQ(value("inferd_prefix_cache_floor_hits_total" OWN), 4 * fake_engine.info.block_size);
  ASSERT_EQ(value("inferd_prefix_cache_floor_stored_blocks_total" OWN), 9);
  ASSERT_EQ(value("inferd_prefix_cache_floor_damaged_blocks_total" OWN), 1);
  fake_engine.info.num_floor_blocks = 0;
  char *text = page(false);
  cr_assert(!strstr(text, "floor_hits"));
  free(text);
}

Test(metrics, swapping_shows_only_where_there_is_a_host_pool) {
  fake_engine.stats = (engine_stats_t){.num_running = 1,
                                       .num_waiting = 2,
                                       .num_swapped = 3,
                                       .host_blocks_used = 5,
                                       .host_blocks_free = 15,
                                       .preemptions = 7,
                                       .preemptions_swap = 4,
                                       .swapped_out_blocks = 90,
                                       .swapped_in_blocks = 60};
  fake_engine.info.num_host_blocks = 20;
  ASSERT_EQ(value("inferd_requests_swapped" OWN), 3);
  ASSERT_EQ(value("vllm:num_requests_swapped" VLLM), 3);
  ASSERT_EQ(value("vllm:cpu_cache_usage_perc" VLLM), 0.25);
  ASSERT_EQ(value("inferd_kv_blocks{model=\"tiny\",pool=\"host\",state=\"free\"}"), 15);
  ASSERT_EQ(value("inferd_kv_blocks{model=\"tiny\",pool=\"host\",state=\"used\"}"), 5);
  ASSERT_EQ(value("inferd_preemptions_total{model=\"tiny\",mode=\"recompute\"}"), 3);
  ASSERT_EQ(value("inferd_preemptions_total{model=\"tiny\",mode=\"swap\"}"), 4);
  ASSERT_EQ(value("vllm:num_preemptions_total" VLLM), 7);
  ASSERT_EQ(value("inferd_swapped_blocks_total{model=\"tiny\",direction=\"out\"}"), 90);
  ASSERT_EQ(value("inferd_swapped_blocks_total{model=\"tiny\",direction=\"in\"}"), 60);
  fake_engine.info.num_host_blocks = 0;
  char *text = page(false);
  cr_assert(!strstr(text, "requests_swapped"));
  cr_assert(!strstr(text, "cpu_cache_usage"));
  cr_assert(!strstr(text, "pool=\"host\""));
  free(text);
}

Test(metrics, accept_headers) {
  static const struct {
    const char *accept;
    bool open;
  } rows[] = {
      {NULL, false},
      {"*/*", false},
      {"text/plain", false},
      {"application/openmetrics-text; version=1.0.0; charset=utf-8", true},
      {"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
       "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
       true},
      {"application/openmetrics-text;q=0.3,text/plain;q=0.5", false},
      {"application/openmetrics-text;q=0", false},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ASSERT_EQ_FOR(metrics_wants_open(rows[i].accept), rows[i].open, "row %zu", i);
  }
  fake_exchange_t *exchange = fake_exchange_new("", 0);
  strcpy(exchange->request_headers[0][0], "Accept");
  strcpy(exchange->request_headers[0][1], "application/openmetrics-text;version=1.0.0");
  api_metrics(&exchange->public);
  ASSERT_STR_EQ(exchange->content_type,
                "application/openmetrics-text; version=1.0.0; charset=utf-8");
  fake_exchange_free(exchange);
}

/* Series come from routes and statuses only; a flood of odd ones stays bounded. */
Test(metrics, http_series_are_bounded) {
  for (int i = 0; i < 5000; i++) metrics_http(&server, "/v1/models", "GET", i, 1);
  char *text = page(false);
  free(parse(text, false));
  ASSERT_LT(strlen(text), 2000000);
  free(text);
}
