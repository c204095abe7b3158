/* metrics_page.c: the page of GET /metrics, in the Prometheus text format 0.0.4 or OpenMetrics 1.0.
 *
 * Loop thread; reads one consistent copy of the engine's counters and never waits for the engine.
 * A metric family that has no measurement yet is absent, not zero.
 */
#include "server/observe/metrics_page.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/journal/journal.h"
#include "server/kv_events/kv_publisher.h"
#include "server/lanes/lanes.h"
#include "server/ledger/ledger.h"
#include "server/observe/health.h"
#include "server/observe/log.h"
#include "server/store/store.h"
#include "server/trace/trace.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* One row of metrics.def. Only histograms have bounds. */
typedef struct metric {
  const char *type, *name, *alias; /* NULL = not in that set */
  const char *help;
  const bounds_t *bounds, *alias_bounds;
} metric_t;

static const metric_t families[] = {
#define METRIC(id, type, name, alias, labels, help) {#type, name, alias, help, NULL, NULL},
#define HISTOGRAM(id, name, bounds, alias, alias_bounds, help)                                     \
  {"histogram", name, alias, help, bounds, alias_bounds},
#include "server/observe/metrics.def"
#undef METRIC
#undef HISTOGRAM
};

/* The head of a family under one of its two names. OpenMetrics names a counter without _total. */
static void family(page_t *page, const metric_t *metric, const char *name) {
  size_t length = strlen(name);
  bool counter = strcmp(metric->type, "counter") == 0;
  if (page->open && counter && text_ends_in(name, "_total")) length -= strlen("_total");
  buffer_text(page->out, "# HELP ");
  buffer_append(page->out, name, length);
  buffer_char(page->out, ' ');
  buffer_text(page->out, metric->help);
  buffer_text(page->out, "\n# TYPE ");
  buffer_append(page->out, name, length);
  buffer_char(page->out, ' ');
  buffer_text(page->out, metric->type);
  buffer_char(page->out, '\n');
  if (!page->open) return;
  const char *unit = NULL;
  char bare[128];
  snprintf(bare, sizeof bare, "%.*s", (int)length, name);
  if (text_ends_in(bare, "_seconds")) unit = "seconds";
  if (text_ends_in(bare, "_bytes")) unit = "bytes";
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

void page_family(page_t *page, metric_id_t id) {
  family(page, &families[id], families[id].name);
}

static void vllm_family(page_t *page, metric_id_t id) {
  family(page, &families[id], families[id].alias);
}

void page_sample(page_t *page, metric_id_t id, const char *labels, double value) {
  name_and_labels(page, families[id].name, "", page->metrics->labels, labels);
  number(page, value);
}

static void vllm_sample(page_t *page, metric_id_t id, const char *labels, double value) {
  name_and_labels(page, families[id].alias, "", page->metrics->vllm_labels, labels);
  number(page, value);
}

void page_bare_sample(page_t *page, metric_id_t id, const char *labels, double value) {
  name_and_labels(page, families[id].name, "", "", labels);
  number(page, value);
}

/* A family under the names that it has, of one sample for each of `labels`. */
static void values_of(page_t *page, metric_id_t id, int count, const char *const *labels,
                      const double *values) {
  const bool own = page->own && families[id].name != NULL;
  const bool vllm = page->vllm && families[id].alias != NULL;
  if (own) page_family(page, id);
  for (int i = 0; own && i < count; i++) page_sample(page, id, labels[i], values[i]);
  if (vllm) vllm_family(page, id);
  for (int i = 0; vllm && i < count; i++) vllm_sample(page, id, labels[i], values[i]);
}

static void value_of(page_t *page, metric_id_t id, double value) {
  values_of(page, id, 1, (const char *const[]){""}, &value);
}

/* ---- histograms ---- */

static void histogram_samples(page_t *page, const char *name, const char *labels, const char *more,
                              const histogram_t *histogram, const bounds_t *bounds, double most) {
  char bucket[160], text[DOUBLE_TEXT_MAX];
  const char *comma = *more != '\0' ? "," : "";
  for (int i = 0; i < bounds->count && bounds->values[i] <= most; i++) {
    double_print(text, bounds->values[i]);
    /* OpenMetrics requires a float as value of every `le` label. */
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

static void print_histogram(page_t *page, metric_id_t id, const histogram_t *histogram) {
  const metric_t *metric = &families[id];
  const double context = page->info != NULL ? page->info->max_model_len : 1;
  for (int vllm = 0; vllm < 2; vllm++) {
    const char *name = vllm ? metric->alias : metric->name;
    const bounds_t *bounds = vllm ? metric->alias_bounds : metric->bounds;
    if (name == NULL || !(vllm ? page->vllm : page->own)) continue;
    family(page, metric, name);
    histogram_samples(page, name, vllm ? page->metrics->vllm_labels : page->metrics->labels, "",
                      histogram, bounds, bounds == &bounds_tokens ? context : 1e300);
  }
}

static void print_histograms(page_t *page) {
#define METRIC(id, ...)
#define HISTOGRAM(id, ...)                                                                         \
  print_histogram(page, METRIC_##id, &page->metrics->histograms[HISTOGRAM_##id]);
#include "server/observe/metrics.def"
#undef METRIC
#undef HISTOGRAM
}

/* ---- the engine ---- */

static void print_engine_state(page_t *page) {
  static const char *const names[] = {"loading", "ready", "leaving", "draining", "failed"};
  char label[32];
  if (page->own) {
    const char *state = health_state(page->metrics->server);
    page_family(page, METRIC_engine_state);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
      snprintf(label, sizeof label, "state=\"%s\"", names[i]);
      page_sample(page, METRIC_engine_state, label, strcmp(state, names[i]) == 0);
    }
  }
  if (page->vllm && page->info != NULL) {
    vllm_family(page, METRIC_sleep_state);
    vllm_sample(page, METRIC_sleep_state, "sleep_state=\"awake\"", 1);
  }
}

static void print_kv(page_t *page) {
  const engine_stats_t *stats = &page->stats;
  int32_t total = stats->blocks_used + stats->blocks_cached + stats->blocks_free;
  double usage = total > 0 ? (double)stats->blocks_used / total : 0;
  value_of(page, METRIC_kv_usage, usage);
  value_of(page, METRIC_gpu_usage, usage);
  if (page->own) {
    page_family(page, METRIC_kv_blocks);
    page_sample(page, METRIC_kv_blocks, "pool=\"device\",state=\"free\"", stats->blocks_free);
    page_sample(page, METRIC_kv_blocks, "pool=\"device\",state=\"cached\"", stats->blocks_cached);
    page_sample(page, METRIC_kv_blocks, "pool=\"device\",state=\"used\"", stats->blocks_used);
  }
  if (page->info == NULL || page->info->num_host_blocks == 0) return;
  if (page->own) {
    page_sample(page, METRIC_kv_blocks, "pool=\"host\",state=\"free\"", stats->host_blocks_free);
    page_sample(page, METRIC_kv_blocks, "pool=\"host\",state=\"used\"", stats->host_blocks_used);
  }
  value_of(page, METRIC_cpu_usage,
           (double)stats->host_blocks_used / page->info->num_host_blocks /
               page->info->num_replicas);
}

static void print_ranks(page_t *page) {
  const config_t *config = page->metrics->server->config;
  const bool fast = strcmp(config->tensor_parallel_mode, "fast") == 0;
  const char *mode = fast ? "mode=\"fast\"" : "mode=\"exact\"";
  if (config->pipeline_parallel_size > 1) mode = "mode=\"layers\"";
  if (page->info->num_ranks <= 1 || !page->own) return;
  page_family(page, METRIC_ranks);
  page_sample(page, METRIC_ranks, mode, page->info->num_ranks);
  value_of(page, METRIC_rank_exchanges, (double)page->stats.exchanges);
  value_of(page, METRIC_rank_bytes, (double)page->stats.exchanged_bytes);
}

static void print_lanes(page_t *page) {
  static const char *const names[LANE_KINDS] = {"light", "heavy"};
  char labels[64];
  if (!page->own) return;
  page_family(page, METRIC_lane_jobs);
  for (int kind = 0; kind < LANE_KINDS; kind++) {
    lane_stats_t stats = lanes_stats(page->metrics->server->lanes, (lane_kind_t)kind);
    snprintf(labels, sizeof labels, "lane=\"%s\",state=\"waiting\"", names[kind]);
    page_sample(page, METRIC_lane_jobs, labels, stats.waiting);
    snprintf(labels, sizeof labels, "lane=\"%s\",state=\"running\"", names[kind]);
    page_sample(page, METRIC_lane_jobs, labels, stats.running);
  }
  page_family(page, METRIC_lane_cpu);
  for (int kind = 0; kind < LANE_KINDS; kind++) {
    lane_stats_t stats = lanes_stats(page->metrics->server->lanes, (lane_kind_t)kind);
    snprintf(labels, sizeof labels, "lane=\"%s\"", names[kind]);
    page_sample(page, METRIC_lane_cpu, labels, (double)stats.cpu_ns * 1e-9);
  }
}

static void print_memory(page_t *page) {
  ledger_stats_t stats = ledger_stats(page->metrics->server->ledger);
  char labels[32];
  if (!page->own) return;
  page_family(page, METRIC_request_memory);
  for (int kind = 0; kind < LEDGER_KINDS; kind++) {
    snprintf(labels, sizeof labels, "kind=\"%s\"", ledger_kind_names[kind]);
    page_sample(page, METRIC_request_memory, labels, (double)stats.held[kind]);
  }
  page_family(page, METRIC_request_memory_refused);
  page_sample(page, METRIC_request_memory_refused, "", (double)stats.refused);
}

static void print_cache_config(page_t *page) {
  const engine_info_t *info = page->info;
  const config_t *config = page->metrics->server->config;
  char own[256], vllm[256];
  const int usable = info->num_blocks - 1;
  int64_t tokens = info->kv_tokens;
  snprintf(own, sizeof own,
           "block_size=\"%d\",num_gpu_blocks=\"%d\",dtype=\"%s\",kv_cache_size_tokens=\"%lld\","
           "kv_cache_max_concurrency=\"%.2f\",prefix_caching=\"%s\"",
           (int)info->block_size, usable, info->dtype, (long long)tokens,
           (double)tokens / info->max_model_len, config->enable_prefix_caching ? "true" : "false");
  snprintf(vllm, sizeof vllm,
           "block_size=\"%d\",num_gpu_blocks=\"%d\",cache_dtype=\"%s\","
           "enable_prefix_caching=\"%s\",gpu_memory_utilization=\"%g\"",
           (int)info->block_size, usable,
           strcmp(config->kv_cache_dtype, "auto") == 0 ? info->dtype : config->kv_cache_dtype,
           config->enable_prefix_caching ? "True" : "False", config->memory);
  if (page->own) {
    page_family(page, METRIC_cache_config);
    page_sample(page, METRIC_cache_config, own, 1);
  }
  if (page->vllm) {
    vllm_family(page, METRIC_cache_config);
    vllm_sample(page, METRIC_cache_config, vllm, 1);
  }
}

static void print_load(page_t *page) {
  const engine_stats_t *stats = &page->stats;
  const config_t *config = page->metrics->server->config;
  value_of(page, METRIC_running, stats->num_running);
  value_of(page, METRIC_waiting, stats->num_waiting);
  values_of(page, METRIC_waiting_by_reason, 2,
            (const char *const[]){"reason=\"capacity\"", "reason=\"deferred\""},
            (const double[]){stats->num_waiting - stats->num_held, stats->num_held});
  if (page->info != NULL && page->info->num_host_blocks > 0)
    value_of(page, METRIC_swapped, stats->num_swapped);
  value_of(page, METRIC_waiting_tokens, (double)stats->waiting_tokens);
  value_of(page, METRIC_last_step_age,
           (double)health_stall_ns(page->metrics->server, page->now_ns) * 1e-9);
  if (!page->own) return;
  const server_t *server = page->metrics->server;
  health_verdict_t verdict = health_verdict(server, page->now_ns, health_limit_ns(server));
  page_family(page, METRIC_watchdog);
  for (int i = 0; i < HEALTH_VERDICTS; i++) {
    char label[32];
    snprintf(label, sizeof label, "verdict=\"%s\"", health_verdict_names[i]);
    page_sample(page, METRIC_watchdog, label, i == (int)verdict);
  }
  const int64_t most = config->max_queue_tokens,
                tokens = most ? most : 4 * page->info->kv_tokens * page->info->num_replicas;
  page_family(page, METRIC_queue_limit);
  page_sample(page, METRIC_queue_limit, "unit=\"requests\"", (double)config->max_queue_requests);
  page_sample(page, METRIC_queue_limit, "unit=\"tokens\"", (double)tokens);
}

static void add_label(buffer_t *labels, const char *name, const buffer_t *value) {
  buffer_text(labels, name);
  buffer_text(labels, "=\"");
  metrics_escape(labels, value->data, value->length);
  buffer_char(labels, '"');
}

static void print_loras(page_t *page, const lora_usage_t *loras) {
  buffer_t labels = {0};
  if (loras == NULL) return;
  buffer_text(&labels, "max_lora=\"");
  buffer_int(&labels, loras->num_slots);
  add_label(&labels, "\",running_lora_adapters", &loras->running);
  add_label(&labels, ",waiting_lora_adapters", &loras->waiting);
  buffer_char(&labels, '\0');
  const double changed = (double)loras->changed_s;
  if (!labels.failed)
    values_of(page, METRIC_lora_requests, 1, (const char *const[]){labels.data}, &changed);
  buffer_free(&labels);
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
  if (page->own) {
    page_family(page, METRIC_finished);
    for (int i = 0; i < 4; i++)
      page_sample(page, METRIC_finished, rows[i].label, (double)rows[i].count);
  }
  if (page->vllm) { /* vLLM counts aborts and errors here too, and has a fifth reason */
    vllm_family(page, METRIC_finished);
    for (int i = 0; i < 5; i++)
      vllm_sample(page, METRIC_finished, rows[i].label, (double)rows[i].count);
  }
}

/* What auto stands for is known from the other options. */
static const char *drafting_method(const config_t *config) {
  if (strcmp(config->speculative_method, "auto") != 0) return config->speculative_method;
  return config->speculative_model[0] != '\0' ? "draft_model" : "ngram";
}

static void print_drafts(page_t *page) {
  const config_t *config = page->metrics->server->config;
  char method[48], texts[STATS_DRAFTS_MAX][24];
  const char *labels[STATS_DRAFTS_MAX];
  double values[STATS_DRAFTS_MAX];
  int count = (int)config->num_speculative_tokens;
  if (count == 0) return;
  snprintf(method, sizeof method, "method=\"%s\"", drafting_method(config));
  if (page->own) {
    page_family(page, METRIC_draft_info);
    page_sample(page, METRIC_draft_info, method, 1);
  }
  for (int i = 0; i < count; i++) {
    snprintf(texts[i], sizeof texts[i], "position=\"%d\"", i);
    labels[i] = texts[i];
    values[i] = (double)page->stats.draft_accepted_at[i];
  }
  values_of(page, METRIC_draft_accepted_at, count, labels, values);
  values_of(page, METRIC_drafts_withheld, 2,
            (const char *const[]){"reason=\"misses\"", "reason=\"time\""},
            (const double[]){(double)page->stats.drafts_paused, (double)page->stats.drafts_slow});
}

static void print_tokens(page_t *page) {
  const engine_stats_t *stats = &page->stats;
  value_of(page, METRIC_prompt_tokens, (double)stats->prompt_tokens);
  value_of(page, METRIC_prompt_tokens_cached, (double)stats->prompt_tokens_cached);
  if (page->vllm) {
    vllm_family(page, METRIC_prompt_tokens_by_source);
    vllm_sample(page, METRIC_prompt_tokens_by_source, "source=\"local_compute\"",
                (double)(stats->prompt_tokens - stats->prompt_tokens_cached));
    vllm_sample(page, METRIC_prompt_tokens_by_source, "source=\"local_cache_hit\"",
                (double)stats->prompt_tokens_cached);
    vllm_sample(page, METRIC_prompt_tokens_by_source, "source=\"external_kv_transfer\"", 0);
  }
  value_of(page, METRIC_generation_tokens, (double)stats->generation_tokens);
  value_of(page, METRIC_prefix_queries, (double)stats->prefix_queries_tokens);
  value_of(page, METRIC_prefix_hits, (double)stats->prefix_hits_tokens);
  value_of(page, METRIC_gpu_prefix_queries, (double)stats->prefix_queries_tokens);
  value_of(page, METRIC_gpu_prefix_hits, (double)stats->prefix_hits_tokens);
  if (page->info != NULL && page->info->num_floor_blocks > 0) {
    value_of(page, METRIC_floor_hits, (double)stats->floor_in_blocks * page->info->block_size);
    value_of(page, METRIC_floor_stored, (double)stats->floor_out_blocks);
    value_of(page, METRIC_floor_damaged, (double)stats->floor_damaged_blocks);
  }
  if (page->info != NULL && page->info->source != NULL) {
    value_of(page, METRIC_encoder_runs, (double)stats->sources_read);
    value_of(page, METRIC_encoder_seconds, (double)stats->encoder_ns * 1e-9);
  }
  if (page->info != NULL && page->info->vision != NULL) {
    value_of(page, METRIC_images, (double)stats->images_seen);
    value_of(page, METRIC_image_seconds, (double)stats->tower_ns * 1e-9);
  }
  if (page->info != NULL && page->info->hearing != NULL) {
    value_of(page, METRIC_sounds, (double)stats->images_seen);
    value_of(page, METRIC_sound_seconds, (double)stats->tower_ns * 1e-9);
  }
  value_of(page, METRIC_drafts, (double)stats->drafts);
  value_of(page, METRIC_draft_tokens, (double)stats->draft_tokens);
  value_of(page, METRIC_draft_accepted, (double)stats->draft_tokens_accepted);
  print_drafts(page);
  if (page->own) {
    page_family(page, METRIC_preemptions);
    page_sample(page, METRIC_preemptions, "mode=\"recompute\"",
                (double)(stats->preemptions - stats->preemptions_swap));
    page_sample(page, METRIC_preemptions, "mode=\"swap\"", (double)stats->preemptions_swap);
    page_family(page, METRIC_swapped_blocks);
    page_sample(page, METRIC_swapped_blocks, "direction=\"out\"",
                (double)stats->swapped_out_blocks);
    page_sample(page, METRIC_swapped_blocks, "direction=\"in\"", (double)stats->swapped_in_blocks);
  }
  value_of(page, METRIC_vllm_preemptions, (double)stats->preemptions);
  value_of(page, METRIC_recomputed_tokens, (double)stats->recomputed_tokens);
}

/* The engine keeps sums, no buckets, so these families are summaries without quantiles. */
static void summary(page_t *page, const char *name, const char *labels, uint64_t count,
                    double sum) {
  name_and_labels(page, name, "_sum", labels, "");
  number(page, sum);
  name_and_labels(page, name, "_count", labels, "");
  number(page, (double)count);
}

static void own_summary(page_t *page, metric_id_t id, uint64_t count, double sum) {
  page_family(page, id);
  summary(page, families[id].name, page->metrics->labels, count, sum);
}

static void print_grammars(page_t *page, const grammar_cache_stats_t *stats) {
  value_of(page, METRIC_grammar_hits, (double)stats->hits);
  value_of(page, METRIC_grammar_misses, (double)stats->misses);
  value_of(page, METRIC_grammar_evictions, (double)stats->evictions);
  value_of(page, METRIC_grammar_bytes, (double)stats->bytes);
  value_of(page, METRIC_grammar_masks, (double)page->stats.grammar_masks);
  value_of(page, METRIC_grammar_mask_hits, (double)page->stats.grammar_mask_hits);
  value_of(page, METRIC_grammar_masks_helped, (double)page->stats.grammar_masks_helped);
  value_of(page, METRIC_grammar_masks_late, (double)page->stats.grammar_masks_late);
  value_of(page, METRIC_grammar_mask_seconds, (double)page->stats.grammar_mask_ns / 1e9);
}

static void print_pace(page_t *page) {
  static const char *const parts[] = {"part=\"step\"", "part=\"row\"", "part=\"token\"",
                                      "part=\"key\"", "part=\"pair\""};
  page_family(page, METRIC_overlapped_steps);
  page_sample(page, METRIC_overlapped_steps, "", (double)page->stats.overlapped_steps);
  value_of(page, METRIC_steps_left, (double)page->stats.steps_left);
  page_family(page, METRIC_awaited_rows);
  page_sample(page, METRIC_awaited_rows, "", (double)page->stats.awaited_rows);
  page_family(page, METRIC_sat_out);
  page_sample(page, METRIC_sat_out, "", (double)page->stats.sat_out);
  page_family(page, METRIC_queue_visits);
  page_sample(page, METRIC_queue_visits, "", (double)page->stats.queue_visits);
  page_family(page, METRIC_step_cost);
  for (size_t i = 0; i < ARRAY_LEN(parts); i++)
    page_sample(page, METRIC_step_cost, parts[i], page->stats.step_cost_ns[i] * 1e-9);
}

static void print_steps(page_t *page) {
  const engine_stats_t *stats = &page->stats;
  if (page->own) {
    own_summary(page, METRIC_step_duration, stats->steps,
                (double)(stats->overhead_ns + stats->device_ns) * 1e-9);
    own_summary(page, METRIC_device_wait, stats->steps, (double)stats->device_ns * 1e-9);
    print_pace(page);
  }
  histogram_t *histograms = page->metrics->histograms;
  histogram_set(&histograms[HISTOGRAM_ITERATION_TOKENS], stats->steps_by_tokens,
                (double)stats->scheduled_tokens);
  histogram_set(
      &histograms[HISTOGRAM_ITERATION_VLLM], stats->steps_by_results,
      (double)(stats->prompt_tokens - stats->prompt_tokens_cached + stats->generation_tokens));
}

/* ---- requests and the transport ---- */

static void print_requests(page_t *page) {
  static const char *const finish[] = {"none", "stop", "length", "abort", "error"};
  metrics_t *metrics = page->metrics;
  char label[128];
  if (!page->own) return;
  page_family(page, METRIC_requests);
  for (int i = 0; i < metrics->num_requests; i++) {
    const request_series_t *series = &metrics->requests[i];
    snprintf(label, sizeof label, "route=\"%s\",code=\"%d\",finish_reason=\"%s\"", series->route,
             series->status, finish[series->finish]);
    page_sample(page, METRIC_requests, label, (double)series->count);
  }
  page_family(page, METRIC_reloads);
  page_sample(page, METRIC_reloads, "result=\"rejected\"", (double)metrics->reloads[0]);
  page_sample(page, METRIC_reloads, "result=\"ok\"", (double)metrics->reloads[1]);
  value_of(page, METRIC_log_dropped, (double)log_dropped());
  page_family(page, METRIC_rejected);
  for (int i = 0; i < REJECT_COUNT; i++) {
    snprintf(label, sizeof label, "reason=\"%s\"", reject_names[i]);
    page_sample(page, METRIC_rejected, label, (double)metrics->rejected[i]);
  }
  page_family(page, METRIC_aborted);
  for (int i = 0; i < ABORT_COUNT; i++) {
    snprintf(label, sizeof label, "cause=\"%s\"", abort_names[i]);
    page_sample(page, METRIC_aborted, label, (double)metrics->aborted[i]);
  }
  value_of(page, METRIC_ignored_params, (double)metrics->ignored_params);
  value_of(page, METRIC_audio_seconds, metrics->audio_seconds);
  value_of(page, METRIC_audio_windows, (double)metrics->audio_windows);
  value_of(page, METRIC_tokenize_bytes, (double)metrics->tokenize_bytes);
  value_of(page, METRIC_tokenize_seconds, (double)metrics->tokenize_ns * 1e-9);
}

static void http_label(const http_series_t *series, char *label, size_t capacity) {
  snprintf(label, capacity, "route=\"%s\",method=\"%s\",code=\"%d\"", series->route, series->method,
           series->status);
}

/* One family of the usage of keys: the counter stands at `offset` of a usage_t. */
static void print_usage_family(page_t *page, metric_id_t id, size_t offset) {
  const metrics_t *metrics = page->metrics;
  if (!page->own || metrics->num_usage == 0) return;
  page_family(page, id);
  for (int i = 0; i < metrics->num_usage; i++) {
    const usage_t *usage = &metrics->usage[i];
    char label[2 * KEY_LABEL_BYTES + 8] = "key=\"";
    size_t length = strlen(label);
    for (const char *c = usage->label; *c != '\0'; c++) {
      if (*c == '\\' || *c == '"') label[length++] = '\\';
      label[length++] = *c;
    }
    label[length++] = '"';
    label[length] = '\0';
    page_sample(page, id, label,
                (double)*(const uint64_t *)(const void *)((const char *)usage + offset));
  }
}

static void print_usage(page_t *page) {
  print_usage_family(page, METRIC_key_requests, offsetof(usage_t, requests));
  print_usage_family(page, METRIC_key_prompt_tokens, offsetof(usage_t, prompt_tokens));
  print_usage_family(page, METRIC_key_generation_tokens, offsetof(usage_t, generated_tokens));
  print_usage_family(page, METRIC_key_refused, offsetof(usage_t, refused));
}

/* What --store and --journal have. */
static void print_kept(page_t *page) {
  const metrics_t *metrics = page->metrics;
  if (metrics->server->store != NULL) {
    store_stats_t store;
    store_stats(metrics->server->store, &store);
    page_family(page, METRIC_store_answers);
    page_bare_sample(page, METRIC_store_answers, "result=\"written\"", (double)store.written);
    page_bare_sample(page, METRIC_store_answers, "result=\"dropped\"", (double)store.dropped);
    page_bare_sample(page, METRIC_store_answers, "result=\"retried\"", (double)store.retried);
    page_family(page, METRIC_store_rows);
    page_bare_sample(page, METRIC_store_rows, "", (double)store.rows);
    int32_t waiting = 0, running = 0;
    background_counts(metrics->server, &waiting, &running);
    page_family(page, METRIC_background);
    page_bare_sample(page, METRIC_background, "state=\"waiting\"", waiting);
    page_bare_sample(page, METRIC_background, "state=\"running\"", running);
    runner_counts_t batches = runner_counts(metrics->server);
    page_family(page, METRIC_batches);
    page_bare_sample(page, METRIC_batches, "state=\"waiting\"", batches.waiting);
    page_bare_sample(page, METRIC_batches, "state=\"running\"", batches.running);
    page_family(page, METRIC_batch_in_flight);
    page_bare_sample(page, METRIC_batch_in_flight, "", batches.in_flight);
    page_family(page, METRIC_batch_lines);
    page_bare_sample(page, METRIC_batch_lines, "result=\"answered\"", (double)batches.answered);
    page_bare_sample(page, METRIC_batch_lines, "result=\"failed\"", (double)batches.failed);
    page_bare_sample(page, METRIC_batch_lines, "result=\"again\"", (double)batches.again);
    page_family(page, METRIC_store_bytes);
    page_bare_sample(page, METRIC_store_bytes, "", (double)store.bytes);
  }
  if (metrics->server->journal != NULL) {
    journal_stats_t journal;
    journal_stats(metrics->server->journal, &journal);
    page_family(page, METRIC_journal_bytes);
    page_bare_sample(page, METRIC_journal_bytes, "", (double)journal.written_bytes);
    page_family(page, METRIC_journal_dropped);
    page_bare_sample(page, METRIC_journal_dropped, "", (double)journal.dropped_records);
  }
}

static void print_http(page_t *page) {
  metrics_t *metrics = page->metrics;
  http_stats_t stats = {0};
  char label[128];
  if (!page->own) return;
  page_family(page, METRIC_http_requests);
  for (int i = 0; i < metrics->num_http; i++) {
    http_label(&metrics->http[i], label, sizeof label);
    page_bare_sample(page, METRIC_http_requests, label, (double)metrics->http[i].duration.count);
  }
  page_family(page, METRIC_http_duration);
  for (int i = 0; i < metrics->num_http; i++) {
    http_label(&metrics->http[i], label, sizeof label);
    histogram_samples(page, families[METRIC_http_duration].name, "", label,
                      &metrics->http[i].duration, &bounds_e2e, 1e300);
  }
  if (metrics->server->http == NULL) return;
  http_stats(metrics->server->http, &stats);
  page_family(page, METRIC_connections);
  page_bare_sample(page, METRIC_connections, "state=\"idle\"", stats.connections_idle);
  page_bare_sample(page, METRIC_connections, "state=\"reading\"", stats.connections_reading);
  page_bare_sample(page, METRIC_connections, "state=\"streaming\"", stats.connections_streaming);
  page_bare_sample(page, METRIC_connections, "state=\"waiting\"", stats.connections_waiting);
  if (metrics->server->tracer != NULL) {
    trace_counts_t traces = tracer_counts(metrics->server->tracer);
    page_family(page, METRIC_traces);
    page_bare_sample(page, METRIC_traces, "result=\"exported\"", (double)traces.exported);
    page_bare_sample(page, METRIC_traces, "result=\"dropped\"", (double)traces.dropped);
    page_bare_sample(page, METRIC_traces, "result=\"failed\"", (double)traces.failed);
  }
  print_kept(page);
  if (stats.tls_expires != 0) {
    page_family(page, METRIC_tls_handshakes);
    page_bare_sample(page, METRIC_tls_handshakes, "result=\"ok\"", (double)stats.tls_done);
    page_bare_sample(page, METRIC_tls_handshakes, "result=\"failed\"", (double)stats.tls_failed);
    page_bare_sample(page, METRIC_tls_handshakes, "result=\"timeout\"", (double)stats.tls_late);
    page_family(page, METRIC_tls_expiry);
    page_bare_sample(page, METRIC_tls_expiry, "", (double)stats.tls_expires);
  }
  page_family(page, METRIC_reply_turn);
  page_bare_sample(page, METRIC_reply_turn, "scope=\"one\"", (double)stats.reply_turn_max);
  page_bare_sample(page, METRIC_reply_turn, "scope=\"all\"", (double)stats.replies_turn_max);
}

/* One family of several models: a sample for each, and for each value of its label `name`, NULL =
 * it has none. */
static void print_models_of(page_t *page, metric_id_t id, const char *name,
                            const char *const *states, int count,
                            double (*value)(const model_line_t *line, const char *state)) {
  model_line_t line;
  page_family(page, id);
  for (int i = 0; models_line(page->metrics->server, i, &line); i++) {
    for (int k = 0; k < count; k++) {
      buffer_t label = {0};
      buffer_text(&label, "model_name=");
      buffer_quote(&label, line.name, strlen(line.name));
      if (states[k] != NULL) {
        buffer_char(&label, ',');
        buffer_text(&label, name);
        buffer_char(&label, '=');
        buffer_quote(&label, states[k], strlen(states[k]));
      }
      buffer_char(&label, '\0');
      if (!label.failed) page_bare_sample(page, id, label.data, value(&line, states[k]));
      buffer_free(&label);
    }
  }
}

static double is_state(const model_line_t *line, const char *state) {
  return strcmp(line->state, state) == 0;
}
static double bytes_of(const model_line_t *line, const char *state) {
  return (void)state, (double)line->bytes;
}
static double requests_now(const model_line_t *line, const char *state) {
  return state[0] == 'w' ? line->waiting : line->running;
}
static double requests_of(const model_line_t *line, const char *state) {
  return (void)state, (double)line->requests;
}
static double tokens_of(const model_line_t *line, const char *kind) {
  return (double)(kind[0] == 'p' ? line->prompt_tokens : line->generation_tokens);
}
static double loads_of(const model_line_t *line, const char *state) {
  return (void)state, (double)line->loads;
}
static double failures_of(const model_line_t *line, const char *state) {
  return (void)state, (double)line->failures;
}

static void print_models(page_t *page) {
  static const char *const states[] = {"unloaded", "loading", "ready",
                                       "draining", "failed",  "asleep"};
  static const char *const now[] = {"waiting", "running"}, *const none[] = {NULL};
  static const char *const kinds[] = {"prompt", "generated"};
  if (!page->own) return;
  print_models_of(page, METRIC_model_state, "state", states, ARRAY_LEN(states), is_state);
  print_models_of(page, METRIC_model_memory, NULL, none, 1, bytes_of);
  print_models_of(page, METRIC_model_requests_now, "state", now, ARRAY_LEN(now), requests_now);
  print_models_of(page, METRIC_model_requests, NULL, none, 1, requests_of);
  print_models_of(page, METRIC_model_tokens, "kind", kinds, ARRAY_LEN(kinds), tokens_of);
  print_models_of(page, METRIC_model_loads, NULL, none, 1, loads_of);
  print_models_of(page, METRIC_model_failures, NULL, none, 1, failures_of);
}

static void print_build(page_t *page) {
  char label[256];
  if (!page->own) return;
  const char *backend = page->info != NULL ? page->info->backend : "";
  snprintf(label, sizeof label, "version=\"%s\",commit=\"%s\",backend=\"%s\",arch=\"%s\"",
           INFERD_VERSION, INFERD_COMMIT, backend, health_architecture());
  page_family(page, METRIC_build_info);
  page_bare_sample(page, METRIC_build_info, label, 1);
}

static void print_page(server_t *server, const grammar_cache_stats_t *grammars,
                       const lora_usage_t *loras, bool open_metrics, buffer_t *out) {
  const char *names = server->config->metrics_names;
  page_t page = {.metrics = server->metrics,
                 .out = out,
                 .open = open_metrics,
                 .own = strcmp(names, "vllm") != 0,
                 .vllm = strcmp(names, "inferd") != 0,
                 .info = server->models == NULL ? engine_info(server->engine) : NULL,
                 .now_ns = clock_now_ns()};
  buffer_clear(page.out);
  print_build(&page);
  print_engine_state(&page);
  if (page.info != NULL) {
    engine_stats(server->engine, &page.stats);
    print_load(&page);
    print_loras(&page, loras);
    print_ranks(&page);
    page_print_replicas(&page);
    print_lanes(&page);
    print_memory(&page);
    print_kv(&page);
    print_cache_config(&page);
    if (server->publisher != NULL) {
      kv_publisher_stats_t told = kv_publisher_stats(server->publisher);
      value_of(&page, METRIC_kv_event_batches, (double)told.batches);
      value_of(&page, METRIC_kv_events_dropped, (double)told.dropped);
    }
    print_tokens(&page);
    print_grammars(&page, grammars);
    print_finished(&page);
    print_steps(&page);
    print_histograms(&page);
  }
  print_requests(&page);
  print_usage(&page);
  print_http(&page);
  if (server->models != NULL) print_models(&page);
  page_print_process(&page);
  if (open_metrics) buffer_text(page.out, "# EOF\n");
  buffer_char(page.out, '\0');
}

char *metrics_render(server_t *server, const grammar_cache_stats_t *grammars,
                     const lora_usage_t *loras, bool open_metrics, uint64_t turn, size_t *length) {
  buffer_t *text = &server->metrics->pages[open_metrics].text;
  uint64_t *made_in = &server->metrics->pages[open_metrics].turn;
  if (turn == 0 || *made_in != turn) print_page(server, grammars, loras, open_metrics, text);
  char *copy = text->failed ? NULL : malloc(text->length);
  *made_in = text->failed ? 0 : turn;
  text->failed = false;
  if (copy == NULL) return NULL;
  *length = text->length - 1;
  return memcpy(copy, text->data, text->length);
}
