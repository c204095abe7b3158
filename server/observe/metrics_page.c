/* metrics_page.c: the page of GET /metrics, in the Prometheus text format 0.0.4 or OpenMetrics 1.0.
 *
 * Loop thread; reads one consistent copy of the engine's numbers and never waits for it. A family
 * that nothing measures yet is absent, not zero.
 */
#include "server/observe/metrics_internal.h"

#include "engine/base/clock.h"
#include "server/observe/health.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* One page in the making. */
typedef struct page {
  metrics_t *metrics;
  buffer_t *out;
  bool open;                 /* OpenMetrics */
  bool own, vllm;            /* which name sets */
  const engine_info_t *info; /* NULL before READY */
  engine_stats_t stats;
  uint64_t now_ns;
} page_t;

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), tail = strlen(end);
  return length >= tail && strcmp(text + length - tail, end) == 0;
}

/* OpenMetrics names a counter family without _total. */
static void family(page_t *page, const char *name, const char *type, const char *help) {
  size_t length = strlen(name);
  bool counter = strcmp(type, "counter") == 0;
  if (page->open && counter && ends_with(name, "_total")) length -= strlen("_total");
  buffer_text(page->out, "# HELP ");
  buffer_append(page->out, name, length);
  buffer_char(page->out, ' ');
  buffer_text(page->out, help);
  buffer_text(page->out, "\n# TYPE ");
  buffer_append(page->out, name, length);
  buffer_char(page->out, ' ');
  buffer_text(page->out, type);
  buffer_char(page->out, '\n');
  if (!page->open) return;
  const char *unit = NULL;
  char bare[128];
  snprintf(bare, sizeof bare, "%.*s", (int)length, name);
  if (ends_with(bare, "_seconds")) unit = "seconds";
  if (ends_with(bare, "_bytes")) unit = "bytes";
  if (unit == NULL) return;
  buffer_text(page->out, "# UNIT ");
  buffer_text(page->out, bare);
  buffer_char(page->out, ' ');
  buffer_text(page->out, unit);
  buffer_char(page->out, '\n');
}

static void number(page_t *page, double value) {
  char text[DOUBLE_TEXT_MAX];
  buffer_append(page->out, text, double_print(text, value));
  buffer_char(page->out, '\n');
}

static void name_and_labels(page_t *page, const char *name, const char *suffix, const char *labels,
                            const char *more) {
  buffer_text(page->out, name);
  buffer_text(page->out, suffix);
  bool any = *labels != '\0' || *more != '\0';
  if (any) buffer_char(page->out, '{');
  buffer_text(page->out, labels);
  if (*labels != '\0' && *more != '\0') buffer_char(page->out, ',');
  buffer_text(page->out, more);
  buffer_text(page->out, any ? "} " : " ");
}

static void sample(page_t *page, const char *name, const char *labels, const char *more,
                   double value) {
  name_and_labels(page, name, "", labels, more);
  number(page, value);
}

static const char *own_labels(const page_t *page) {
  return page->metrics->labels;
}

static const char *vllm_labels(const page_t *page) {
  return page->metrics->vllm_labels;
}

/* One value under its own name and its alias; either may be NULL. */
static void both(page_t *page, const char *type, const char *own, const char *vllm,
                 const char *help, double value) {
  if (page->own && own != NULL) {
    family(page, own, type, help);
    sample(page, own, own_labels(page), "", value);
  }
  if (page->vllm && vllm != NULL) {
    family(page, vllm, type, help);
    sample(page, vllm, vllm_labels(page), "", value);
  }
}

/* ---- histograms ---- */

static void histogram_samples(page_t *page, const char *name, const char *labels, const char *more,
                              const histogram_t *histogram, const bounds_t *bounds, double most) {
  char bucket[160], text[DOUBLE_TEXT_MAX];
  const char *comma = *more != '\0' ? "," : "";
  for (int i = 0; i < bounds->count && bounds->values[i] <= most; i++) {
    double_print(text, bounds->values[i]);
    /* OpenMetrics wants every le as a float. */
    const char *point = page->open && strpbrk(text, ".e") == NULL ? ".0" : "";
    snprintf(bucket, sizeof bucket, "%s%sle=\"%s%s\"", more, comma, text, point);
    name_and_labels(page, name, "_bucket", labels, bucket);
    number(page, (double)histogram_at_most(histogram, bounds->values[i]));
  }
  snprintf(bucket, sizeof bucket, "%s%sle=\"+Inf\"", more, comma);
  name_and_labels(page, name, "_bucket", labels, bucket);
  number(page, (double)histogram->count);
  name_and_labels(page, name, "_sum", labels, more);
  number(page, histogram->sum);
  name_and_labels(page, name, "_count", labels, more);
  number(page, (double)histogram->count);
}

typedef struct histogram_row {
  histogram_name_t name;
  const char *own, *vllm; /* NULL = not in that set */
  const bounds_t *own_bounds, *vllm_bounds;
  const char *help;
} histogram_row_t;

/* Prompt and generation tokens say `request`, as vLLM does: a histogram inferd_prompt_tokens and a
 * counter inferd_prompt_tokens_total would be one family in OpenMetrics. */
static const histogram_row_t histogram_rows[] = {
    {HISTOGRAM_TTFT, "inferd_time_to_first_token_seconds", "vllm:time_to_first_token_seconds",
     &bounds_ttft, &bounds_ttft, "From the arrival of a request to the first token of a sequence."},
    {HISTOGRAM_ITL, "inferd_inter_token_latency_seconds", "vllm:inter_token_latency_seconds",
     &bounds_itl, &bounds_itl_vllm, "Between two tokens of a sequence."},
    {HISTOGRAM_TPOT, "inferd_time_per_output_token_seconds", NULL, &bounds_itl, NULL,
     "Mean time per token after the first, of sequences with two tokens or more."},
    {HISTOGRAM_TPOT_VLLM, NULL, "vllm:request_time_per_output_token_seconds", NULL,
     &bounds_itl_vllm, "Mean time per token after the first."},
    {HISTOGRAM_E2E, "inferd_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds",
     &bounds_e2e, &bounds_e2e_vllm, "From the arrival of a request to the end of a sequence."},
    {HISTOGRAM_QUEUE, "inferd_queue_time_seconds", "vllm:request_queue_time_seconds", &bounds_queue,
     &bounds_e2e_vllm, "Time in the waiting queue before the first step."},
    {HISTOGRAM_PREFILL, "inferd_prefill_time_seconds", "vllm:request_prefill_time_seconds",
     &bounds_ttft, &bounds_e2e_vllm, "From the first step to the first token."},
    {HISTOGRAM_DECODE, "inferd_decode_time_seconds", "vllm:request_decode_time_seconds",
     &bounds_e2e, &bounds_e2e_vllm, "From the first token to the last."},
    {HISTOGRAM_INFERENCE, "inferd_inference_time_seconds", "vllm:request_inference_time_seconds",
     &bounds_e2e, &bounds_e2e_vllm, "From the first step to the last token."},
    {HISTOGRAM_FRONTEND, "inferd_frontend_time_seconds", NULL, &bounds_queue, NULL,
     "From the arrival of a request to the waiting queue: JSON and tokenising."},
    {HISTOGRAM_PROMPT_TOKENS, "inferd_request_prompt_tokens", "vllm:request_prompt_tokens",
     &bounds_tokens, &bounds_tokens, "Prompt tokens of a sequence."},
    {HISTOGRAM_GENERATION_TOKENS, "inferd_request_generation_tokens",
     "vllm:request_generation_tokens", &bounds_tokens, &bounds_tokens,
     "Generated tokens of a sequence."},
    {HISTOGRAM_PREFILL_COMPUTED, "inferd_prefill_computed_tokens",
     "vllm:request_prefill_kv_computed_tokens", &bounds_tokens, &bounds_tokens,
     "Prompt tokens that did not come from the prefix cache."},
    {HISTOGRAM_MAX_TOKENS, "inferd_params_max_tokens", "vllm:request_params_max_tokens",
     &bounds_tokens, &bounds_tokens, "Effective max_tokens of a sequence."},
    {HISTOGRAM_N, "inferd_params_n", "vllm:request_params_n", &bounds_n, &bounds_n_vllm,
     "Choices per prompt that a request asked for."},
    {HISTOGRAM_LONGEST, NULL, "vllm:request_max_num_generation_tokens", NULL, &bounds_tokens,
     "Tokens of the longest choice of a request."},
};

static void print_histograms(page_t *page) {
  double context = page->info != NULL ? page->info->max_model_len : 1;
  for (size_t i = 0; i < sizeof histogram_rows / sizeof histogram_rows[0]; i++) {
    const histogram_row_t *row = &histogram_rows[i];
    const histogram_t *histogram = &page->metrics->histograms[row->name];
    if (page->own && row->own != NULL) {
      double most = row->own_bounds == &bounds_tokens ? context : 1e300;
      family(page, row->own, "histogram", row->help);
      histogram_samples(page, row->own, own_labels(page), "", histogram, row->own_bounds, most);
    }
    if (page->vllm && row->vllm != NULL) {
      double most = row->vllm_bounds == &bounds_tokens ? context : 1e300;
      family(page, row->vllm, "histogram", row->help);
      histogram_samples(page, row->vllm, vllm_labels(page), "", histogram, row->vllm_bounds, most);
    }
  }
}

/* ---- the engine ---- */

static void print_engine_state(page_t *page) {
  static const char *const names[] = {"loading", "ready", "draining", "failed"};
  char label[32];
  if (page->own) {
    const char *state = health_state(page->metrics->server);
    family(page, "inferd_engine_state", "gauge", "State of the server; exactly one is 1.");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
      snprintf(label, sizeof label, "state=\"%s\"", names[i]);
      sample(page, "inferd_engine_state", own_labels(page), label, strcmp(state, names[i]) == 0);
    }
  }
  if (page->vllm && page->info != NULL) {
    family(page, "vllm:engine_sleep_state", "gauge", "Sleep state of the engine.");
    sample(page, "vllm:engine_sleep_state", vllm_labels(page), "sleep_state=\"awake\"", 1);
  }
}

static void print_kv(page_t *page) {
  const engine_stats_t *s = &page->stats;
  int32_t total = s->blocks_used + s->blocks_cached + s->blocks_free;
  double usage = total > 0 ? (double)s->blocks_used / total : 0;
  const char *help = "KV blocks owned by live sequences over usable blocks, 0 to 1.";
  both(page, "gauge", "inferd_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc", help, usage);
  both(page, "gauge", NULL, "vllm:gpu_cache_usage_perc", help, usage);
  if (page->own) {
    family(page, "inferd_kv_blocks", "gauge", "KV blocks by state.");
    sample(page, "inferd_kv_blocks", own_labels(page), "pool=\"device\",state=\"free\"",
           s->blocks_free);
    sample(page, "inferd_kv_blocks", own_labels(page), "pool=\"device\",state=\"cached\"",
           s->blocks_cached);
    sample(page, "inferd_kv_blocks", own_labels(page), "pool=\"device\",state=\"used\"",
           s->blocks_used);
  }
  if (page->info == NULL || page->info->num_host_blocks == 0) return;
  if (page->own) {
    sample(page, "inferd_kv_blocks", own_labels(page), "pool=\"host\",state=\"free\"",
           s->host_blocks_free);
    sample(page, "inferd_kv_blocks", own_labels(page), "pool=\"host\",state=\"used\"",
           s->host_blocks_used);
  }
  both(page, "gauge", NULL, "vllm:cpu_cache_usage_perc",
       "Blocks of the host pool that hold something, 0 to 1.",
       (double)s->host_blocks_used / page->info->num_host_blocks);
}

static void print_cache_config(page_t *page) {
  const engine_info_t *info = page->info;
  const config_t *config = page->metrics->server->config;
  char own[256], vllm[256];
  int32_t usable = info->num_blocks - 1;
  int64_t tokens = (int64_t)usable * info->block_size;
  const char *caching = config->enable_prefix_caching ? "True" : "False";
  snprintf(own, sizeof own,
           "block_size=\"%d\",num_gpu_blocks=\"%d\",dtype=\"%s\",kv_cache_size_tokens=\"%lld\","
           "kv_cache_max_concurrency=\"%.2f\",prefix_caching=\"%s\"",
           (int)info->block_size, (int)usable, info->dtype, (long long)tokens,
           (double)tokens / info->max_model_len, config->enable_prefix_caching ? "true" : "false");
  snprintf(vllm, sizeof vllm,
           "block_size=\"%d\",num_gpu_blocks=\"%d\",cache_dtype=\"%s\","
           "enable_prefix_caching=\"%s\",gpu_memory_utilization=\"%g\"",
           (int)info->block_size, (int)usable,
           strcmp(config->kv_cache_dtype, "auto") == 0 ? info->dtype : config->kv_cache_dtype,
           caching, config->memory);
  if (page->own) {
    family(page, "inferd_cache_config_info", "gauge", "Shape of the KV cache.");
    sample(page, "inferd_cache_config_info", own_labels(page), own, 1);
  }
  if (page->vllm) {
    family(page, "vllm:cache_config_info", "gauge", "Shape of the KV cache.");
    sample(page, "vllm:cache_config_info", vllm_labels(page), vllm, 1);
  }
}

static void print_load(page_t *page) {
  const engine_stats_t *s = &page->stats;
  const config_t *config = page->metrics->server->config;
  both(page, "gauge", "inferd_requests_running", "vllm:num_requests_running",
       "Sequences in the running set.", s->num_running);
  both(page, "gauge", "inferd_requests_waiting", "vllm:num_requests_waiting",
       "Sequences admitted and not running.", s->num_waiting);
  if (page->info != NULL && page->info->num_host_blocks > 0) {
    both(page, "gauge", "inferd_requests_swapped", "vllm:num_requests_swapped",
         "Sequences whose KV blocks are on the host.", s->num_swapped);
  }
  both(page, "gauge", "inferd_waiting_tokens", NULL, "Prompt tokens still to compute in the queue.",
       (double)s->waiting_tokens);
  both(page, "gauge", "inferd_last_step_age_seconds", NULL,
       "Since the end of the last step while work exists, else 0.",
       (double)health_stall_ns(page->metrics->server, page->now_ns) * 1e-9);
  if (!page->own) return;
  int64_t tokens = config->max_queue_tokens;
  if (tokens == 0) tokens = 4 * (int64_t)(page->info->num_blocks - 1) * page->info->block_size;
  family(page, "inferd_queue_limit", "gauge", "Configured bounds of the waiting queue.");
  sample(page, "inferd_queue_limit", own_labels(page), "unit=\"requests\"",
         (double)config->max_queue_requests);
  sample(page, "inferd_queue_limit", own_labels(page), "unit=\"tokens\"", (double)tokens);
}

static void print_finished(page_t *page) {
  const uint64_t *finished = page->metrics->finished;
  const struct {
    const char *label;
    uint64_t count;
  } rows[] = {{"finished_reason=\"stop\"", finished[FINISH_STOP]},
              {"finished_reason=\"length\"", finished[FINISH_LENGTH]},
              {"finished_reason=\"abort\"", finished[FINISH_ABORT]},
              {"finished_reason=\"error\"", finished[FINISH_ERROR]},
              {"finished_reason=\"repetition\"", 0}};
  const char *help = "Sequences that ended, by reason.";
  if (page->own) {
    family(page, "inferd_sequences_finished_total", "counter", help);
    for (int i = 0; i < 4; i++) {
      sample(page, "inferd_sequences_finished_total", own_labels(page), rows[i].label,
             (double)rows[i].count);
    }
  }
  if (page->vllm) { /* vLLM counts aborts and errors here too, and knows a fifth reason */
    family(page, "vllm:request_success_total", "counter", help);
    for (int i = 0; i < 5; i++) {
      sample(page, "vllm:request_success_total", vllm_labels(page), rows[i].label,
             (double)rows[i].count);
    }
  }
}

static void print_tokens(page_t *page) {
  const engine_stats_t *s = &page->stats;
  const char *queries = "Prompt tokens looked up in the prefix cache.";
  const char *hits = "Prompt tokens found in the prefix cache.";
  both(page, "counter", "inferd_prompt_tokens_total", "vllm:prompt_tokens_total",
       "Prompt tokens of finished prefills, cached ones included.", (double)s->prompt_tokens);
  both(page, "counter", "inferd_prompt_tokens_cached_total", "vllm:prompt_tokens_cached_total",
       "Prompt tokens that came from the prefix cache.", (double)s->prompt_tokens_cached);
  if (page->vllm) {
    const char *name = "vllm:prompt_tokens_by_source_total";
    family(page, name, "counter", "Prompt tokens by where their KV came from.");
    sample(page, name, vllm_labels(page), "source=\"local_compute\"",
           (double)(s->prompt_tokens - s->prompt_tokens_cached));
    sample(page, name, vllm_labels(page), "source=\"local_cache_hit\"",
           (double)s->prompt_tokens_cached);
    sample(page, name, vllm_labels(page), "source=\"external_kv_transfer\"", 0);
  }
  both(page, "counter", "inferd_generation_tokens_total", "vllm:generation_tokens_total",
       "Tokens generated.", (double)s->generation_tokens);
  both(page, "counter", "inferd_prefix_cache_queries_total", "vllm:prefix_cache_queries_total",
       queries, (double)s->prefix_queries_tokens);
  both(page, "counter", "inferd_prefix_cache_hits_total", "vllm:prefix_cache_hits_total", hits,
       (double)s->prefix_hits_tokens);
  both(page, "counter", NULL, "vllm:gpu_prefix_cache_queries_total", queries,
       (double)s->prefix_queries_tokens);
  both(page, "counter", NULL, "vllm:gpu_prefix_cache_hits_total", hits,
       (double)s->prefix_hits_tokens);
  both(page, "counter", "inferd_spec_decode_drafts_total", "vllm:spec_decode_num_drafts_total",
       "Steps of a sequence that verified guessed tokens.", (double)s->drafts);
  both(page, "counter", "inferd_spec_decode_draft_tokens_total",
       "vllm:spec_decode_num_draft_tokens_total", "Tokens guessed.", (double)s->draft_tokens);
  both(page, "counter", "inferd_spec_decode_accepted_tokens_total",
       "vllm:spec_decode_num_accepted_tokens_total", "Guessed tokens that were right.",
       (double)s->draft_tokens_accepted);
  if (page->own) {
    family(page, "inferd_preemptions_total", "counter", "Sequences put back into the queue.");
    sample(page, "inferd_preemptions_total", own_labels(page), "mode=\"recompute\"",
           (double)(s->preemptions - s->preemptions_swap));
    sample(page, "inferd_preemptions_total", own_labels(page), "mode=\"swap\"",
           (double)s->preemptions_swap);
    family(page, "inferd_swapped_blocks_total", "counter",
           "KV blocks copied to the host and back.");
    sample(page, "inferd_swapped_blocks_total", own_labels(page), "direction=\"out\"",
           (double)s->swapped_out_blocks);
    sample(page, "inferd_swapped_blocks_total", own_labels(page), "direction=\"in\"",
           (double)s->swapped_in_blocks);
  }
  both(page, "counter", NULL, "vllm:num_preemptions_total", "Sequences put back into the queue.",
       (double)s->preemptions);
  both(page, "counter", "inferd_recomputed_tokens_total", NULL,
       "Tokens prefilled again after a preemption.", (double)s->recomputed_tokens);
}

static void summary(page_t *page, const char *name, const char *labels, const char *help,
                    uint64_t count, double sum) {
  family(page, name, "summary", help);
  name_and_labels(page, name, "_sum", labels, "");
  number(page, sum);
  name_and_labels(page, name, "_count", labels, "");
  number(page, (double)count);
}

/* The engine keeps sums, not buckets: summaries say no more than that. */
static void print_grammars(page_t *page, const grammar_cache_stats_t *s) {
  both(page, "counter", "inferd_grammar_cache_hits_total", NULL,
       "Constraints that were compiled already.", (double)s->hits);
  both(page, "counter", "inferd_grammar_cache_misses_total", NULL,
       "Constraints that had to be compiled.", (double)s->misses);
  both(page, "counter", "inferd_grammar_cache_evictions_total", NULL,
       "Compiled constraints that made room for others.", (double)s->evictions);
  both(page, "gauge", "inferd_grammar_cache_bytes", NULL,
       "Memory of the compiled constraints that are kept.", (double)s->bytes);
  both(page, "counter", "inferd_grammar_masks_total", NULL,
       "Rows of constrained sequences that were masked.", (double)page->stats.grammar_masks);
  both(page, "counter", "inferd_grammar_mask_hits_total", NULL,
       "Masks that were known from an equal place.", (double)page->stats.grammar_mask_hits);
  both(page, "counter", "inferd_grammar_mask_seconds_total", NULL,
       "Time that making these masks took.", (double)page->stats.grammar_mask_ns / 1e9);
}

static void print_steps(page_t *page) {
  const engine_stats_t *s = &page->stats;
  if (page->own) {
    summary(page, "inferd_iteration_tokens", own_labels(page), "Tokens in the batch of a step.",
            s->steps, (double)s->scheduled_tokens);
    summary(page, "inferd_step_duration_seconds", own_labels(page), "From plan to commit.",
            s->steps, (double)(s->overhead_ns + s->device_ns) * 1e-9);
    summary(page, "inferd_device_wait_seconds", own_labels(page),
            "Part of the steps in which the device worked.", s->steps, (double)s->device_ns * 1e-9);
  }
  if (page->vllm) {
    summary(page, "vllm:iteration_tokens_total", vllm_labels(page),
            "Prompt tokens of finished prefills and tokens generated, per step.", s->steps,
            (double)(s->prompt_tokens - s->prompt_tokens_cached + s->generation_tokens));
  }
}

/* ---- requests and the transport ---- */

static void print_requests(page_t *page) {
  static const char *const finish[] = {"none", "stop", "length", "abort", "error"};
  metrics_t *m = page->metrics;
  char label[128];
  if (!page->own) return;
  family(page, "inferd_requests_total", "counter", "Admitted requests that ended.");
  for (int i = 0; i < m->num_requests; i++) {
    const request_series_t *r = &m->requests[i];
    snprintf(label, sizeof label, "route=\"%s\",code=\"%d\",finish_reason=\"%s\"",
             generation_routes[r->is_chat], r->status, finish[r->finish]);
    sample(page, "inferd_requests_total", own_labels(page), label, (double)r->count);
  }
  family(page, "inferd_rejected_total", "counter", "Requests refused before admission.");
  for (int i = 0; i < REJECT_COUNT; i++) {
    snprintf(label, sizeof label, "reason=\"%s\"", reject_names[i]);
    sample(page, "inferd_rejected_total", own_labels(page), label, (double)m->rejected[i]);
  }
  family(page, "inferd_aborted_total", "counter", "Admitted requests that were cut short.");
  for (int i = 0; i < ABORT_COUNT; i++) {
    snprintf(label, sizeof label, "cause=\"%s\"", abort_names[i]);
    sample(page, "inferd_aborted_total", own_labels(page), label, (double)m->aborted[i]);
  }
  both(page, "counter", "inferd_ignored_params_total", NULL,
       "Requests that carried unknown fields.", (double)m->ignored_params);
  both(page, "counter", "inferd_tokenize_bytes_total", NULL, "Bytes of text tokenised.",
       (double)m->tokenize_bytes);
  both(page, "counter", "inferd_tokenize_seconds_total", NULL, "Time spent tokenising.",
       (double)m->tokenize_ns * 1e-9);
}

static void http_label(const http_series_t *series, char *label, size_t capacity) {
  snprintf(label, capacity, "route=\"%s\",method=\"%s\",code=\"%d\"", series->route, series->method,
           series->status);
}

static void print_http(page_t *page) {
  metrics_t *m = page->metrics;
  http_stats_t stats = {0};
  char label[128];
  if (!page->own) return;
  family(page, "inferd_http_requests_total", "counter", "HTTP requests, by route and answer.");
  for (int i = 0; i < m->num_http; i++) {
    http_label(&m->http[i], label, sizeof label);
    sample(page, "inferd_http_requests_total", "", label, (double)m->http[i].duration.count);
  }
  const char *name = "inferd_http_request_duration_seconds";
  family(page, name, "histogram", "From the headers of a request to the end of its answer.");
  for (int i = 0; i < m->num_http; i++) {
    http_label(&m->http[i], label, sizeof label);
    histogram_samples(page, name, "", label, &m->http[i].duration, &bounds_e2e, 1e300);
  }
  if (m->server->http == NULL) return;
  http_stats(m->server->http, &stats);
  family(page, "inferd_connections", "gauge", "Open connections, by what they do.");
  sample(page, "inferd_connections", "", "state=\"idle\"", stats.connections_idle);
  sample(page, "inferd_connections", "", "state=\"reading\"", stats.connections_reading);
  sample(page, "inferd_connections", "", "state=\"streaming\"", stats.connections_streaming);
  sample(page, "inferd_connections", "", "state=\"waiting\"", stats.connections_waiting);
}

/* ---- the process ---- */

/* Linux 6.2 and later tell the number of open files as the size of the directory. */
static double open_files(void) {
  struct stat status;
  if (stat("/proc/self/fd", &status) == 0 && status.st_size > 0) return (double)status.st_size;
  DIR *directory = opendir("/proc/self/fd");
  double count = -3; /* ".", ".." and this directory */
  if (directory == NULL) return 0;
  while (readdir(directory) != NULL) count++;
  closedir(directory);
  return count;
}

static void process_row(page_t *page, const char *name, const char *type, const char *help,
                        double value) {
  family(page, name, type, help);
  sample(page, name, "", "", value);
}

static void print_process(page_t *page) {
  long long virtual_pages = 0, resident_pages = 0;
  struct rusage usage;
  struct rlimit files;
  FILE *statm = fopen("/proc/self/statm", "re");
  if (statm != NULL) {
    if (fscanf(statm, "%lld %lld", &virtual_pages, &resident_pages) != 2) resident_pages = 0;
    fclose(statm);
  }
  getrusage(RUSAGE_SELF, &usage);
  getrlimit(RLIMIT_NOFILE, &files);
  double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
  double bytes = (double)sysconf(_SC_PAGESIZE);
  process_row(page, "process_cpu_seconds_total", "counter", "CPU time used.", cpu);
  process_row(page, "process_resident_memory_bytes", "gauge", "Resident memory.",
              (double)resident_pages * bytes);
  process_row(page, "process_virtual_memory_bytes", "gauge", "Virtual memory.",
              (double)virtual_pages * bytes);
  process_row(page, "process_open_fds", "gauge", "Open file descriptors.", open_files());
  process_row(page, "process_max_fds", "gauge", "Most open file descriptors allowed.",
              files.rlim_cur == RLIM_INFINITY ? 1048576 : (double)files.rlim_cur);
  process_row(page, "process_start_time_seconds", "gauge", "Unix time of the start.",
              (double)page->metrics->server->start_time);
}

static void print_build(page_t *page) {
  char label[256];
  if (!page->own) return;
  const char *backend = page->info != NULL ? page->info->backend : "";
  snprintf(label, sizeof label, "version=\"%s\",commit=\"%s\",backend=\"%s\",arch=\"%s\"",
           INFERD_VERSION, INFERD_COMMIT, backend, health_architecture());
  family(page, "inferd_build_info", "gauge", "What is running.");
  sample(page, "inferd_build_info", "", label, 1);
}

char *metrics_render(server_t *server, const grammar_cache_stats_t *grammars, bool open_metrics,
                     size_t *length) {
  metrics_t *metrics = server->metrics;
  const char *names = server->config->metrics_names;
  page_t page = {.metrics = metrics,
                 .out = &metrics->page,
                 .open = open_metrics,
                 .own = strcmp(names, "vllm") != 0,
                 .vllm = strcmp(names, "inferd") != 0,
                 .info = engine_info(server->engine),
                 .now_ns = clock_now_ns()};
  buffer_clear(page.out);
  print_build(&page);
  print_engine_state(&page);
  if (page.info != NULL) {
    engine_stats(server->engine, &page.stats);
    print_load(&page);
    print_kv(&page);
    print_cache_config(&page);
    print_tokens(&page);
    print_grammars(&page, grammars);
    print_finished(&page);
    print_steps(&page);
    print_histograms(&page);
  }
  print_requests(&page);
  print_http(&page);
  print_process(&page);
  if (open_metrics) buffer_text(page.out, "# EOF\n");
  char *copy = page.out->failed ? NULL : malloc(page.out->length + 1);
  if (copy != NULL) {
    memcpy(copy, page.out->data, page.out->length);
    copy[page.out->length] = '\0';
    *length = page.out->length;
  }
  page.out->failed = false;
  return copy;
}

/* q of a media type in an Accept header, -1 = not listed. */
static double accept_quality(const char *accept, const char *type) {
  const char *at = strstr(accept, type);
  if (at == NULL) return -1;
  const char *end = strchr(at, ','), *quality = strstr(at, ";q=");
  if (quality == NULL || (end != NULL && quality > end)) return 1;
  return strtod(quality + 3, NULL);
}

bool metrics_wants_open(const char *accept) {
  if (accept == NULL) return false;
  double open = accept_quality(accept, "application/openmetrics-text");
  return open > 0 && open >= accept_quality(accept, "text/plain");
}
