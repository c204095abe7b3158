/* metrics.c: counting on the loop thread. The page that shows it is metrics_page.c.
 *
 * Never takes a lock and never allocates but for a new (route, method, status) series.
 */
#include "server/observe/metrics_internal.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const reject_names[REJECT_COUNT] = {
#define X(name) #name,
    REJECT_TABLE(X)
#undef X
};

const char *const abort_names[ABORT_COUNT] = {
#define X(name) #name,
    ABORT_TABLE(X)
#undef X
};

void metrics_escape(buffer_t *out, const char *value, size_t length) {
  for (size_t i = 0; i < length; i++) {
    if (value[i] == '\\' || value[i] == '"') buffer_char(out, '\\');
    if (value[i] == '\n') {
      buffer_text(out, "\\n");
    } else {
      buffer_char(out, value[i]);
    }
  }
}

static char *label_text(const char *before, const char *value, const char *after) {
  buffer_t out = {0};
  size_t length;
  buffer_text(&out, before);
  metrics_escape(&out, value, strlen(value));
  buffer_text(&out, after);
  return buffer_detach(&out, &length);
}

void metrics_rename(metrics_t *metrics, const char *model) {
  char *own = label_text("model=\"", model, "\"");
  char *vllm = label_text("model_name=\"", model, "\",engine=\"0\"");
  bool ok = own != NULL && vllm != NULL;
  free(ok ? metrics->labels : own);
  free(ok ? metrics->vllm_labels : vllm);
  if (!ok) return;
  metrics->labels = own;
  metrics->vllm_labels = vllm;
}

struct metrics *metrics_new(server_t *server, const char *model) {
  static const struct {
    const bounds_t *own, *vllm;
  } bounds[HISTOGRAM_COUNT] = {
#define METRIC(id, ...)
#define HISTOGRAM(id, name, own, alias, vllm, help) {own, vllm},
#include "server/observe/metrics.def"
#undef METRIC
#undef HISTOGRAM
  };
  metrics_t *metrics = calloc(1, sizeof *metrics);
  if (metrics == NULL) return NULL;
  metrics_rename(metrics, model);
  if (metrics->labels == NULL || metrics->vllm_labels == NULL) {
    metrics_free(metrics);
    return NULL;
  }
  metrics->server = server;
  for (int i = 0; i < HISTOGRAM_COUNT; i++) {
    histogram_init(&metrics->histograms[i], bounds[i].own, bounds[i].vllm);
  }
  return metrics;
}

void metrics_free(struct metrics *metrics) {
  if (metrics == NULL) return;
  free(metrics->labels);
  free(metrics->vllm_labels);
  free(metrics->http);
  free(metrics->usage);
  for (int i = 0; i < 2; i++) buffer_free(&metrics->pages[i].text);
  free(metrics);
}

static void observe(metrics_t *metrics, histogram_name_t name, double value) {
  histogram_observe(&metrics->histograms[name], value);
}

static double seconds(uint64_t from_ns, uint64_t to_ns) {
  return to_ns > from_ns ? (double)(to_ns - from_ns) * 1e-9 : 0;
}

void metrics_ignored_params(metrics_t *metrics) {
  metrics->ignored_params++;
}

void metrics_rejected(metrics_t *metrics, int error_code) {
  reject_reason_t reason = REJECT_invalid;
  if (error_code == ERR_CONTEXT_LENGTH) reason = REJECT_context_length;
  if (error_code == ERR_UNSUPPORTED_PARAMETER || error_code == ERR_UNSUPPORTED_ENDPOINT) {
    reason = REJECT_unsupported;
  }
  if (error_code == ERR_RATE_LIMITED) reason = REJECT_rate_limit;
  if (error_code == ERR_QUEUE_FULL || error_code == ERR_OVERLOADED) reason = REJECT_queue_full;
  if (error_code == ERR_MODEL_LOADING || error_code == ERR_ENGINE_FAILED) reason = REJECT_loading;
  if (error_code == ERR_DRAINING) reason = REJECT_draining;
  metrics->rejected[reason]++;
}

void metrics_own_unavailable(metrics_t *metrics) {
  metrics->own_unavailable++;
}

void metrics_heard(metrics_t *metrics, double seconds, int32_t windows) {
  metrics->audio_seconds += seconds;
  metrics->audio_windows += (uint64_t)windows;
}

void metrics_tokenize(metrics_t *metrics, uint64_t bytes, uint64_t duration_ns) {
  metrics->tokenize_bytes += bytes;
  metrics->tokenize_ns += duration_ns;
}

void metrics_admitted(metrics_t *metrics, uint64_t frontend_ns) {
  observe(metrics, HISTOGRAM_FRONTEND, seconds(0, frontend_ns));
}

void metrics_first_token(metrics_t *metrics, uint64_t since_arrival_ns) {
  observe(metrics, HISTOGRAM_TTFT, seconds(0, since_arrival_ns));
}

void metrics_inter_token(metrics_t *metrics, uint64_t gap_ns) {
  observe(metrics, HISTOGRAM_ITL, seconds(0, gap_ns));
}

void metrics_sequence_done(metrics_t *metrics, const sequence_times_t *times) {
  double decode = seconds(times->first_token_ns, times->last_token_ns);
  double per_token = times->generated_tokens > 1 ? decode / (times->generated_tokens - 1) : 0;
  metrics->finished[times->finish]++;
  observe(metrics, HISTOGRAM_E2E, seconds(times->arrival_ns, times->finished_ns));
  if (times->scheduled_ns != 0) {
    observe(metrics, HISTOGRAM_QUEUE, seconds(times->queued_ns, times->scheduled_ns));
  }
  if (times->first_token_ns != 0) {
    observe(metrics, HISTOGRAM_PREFILL, seconds(times->scheduled_ns, times->first_token_ns));
    observe(metrics, HISTOGRAM_DECODE, decode);
    observe(metrics, HISTOGRAM_INFERENCE, seconds(times->scheduled_ns, times->last_token_ns));
    if (times->generated_tokens > 1) observe(metrics, HISTOGRAM_TPOT, per_token);
    observe(metrics, HISTOGRAM_TPOT_VLLM, per_token);
  }
  observe(metrics, HISTOGRAM_PROMPT_TOKENS, times->prompt_tokens);
  observe(metrics, HISTOGRAM_GENERATION_TOKENS, times->generated_tokens);
  observe(metrics, HISTOGRAM_PREFILL_COMPUTED, times->prompt_tokens - times->cached_tokens);
  observe(metrics, HISTOGRAM_MAX_TOKENS, times->max_tokens);
}

void metrics_request_done(metrics_t *metrics, const char *route, int status, finish_reason_t finish,
                          int32_t n, int32_t longest_output) {
  int i = 0;
  observe(metrics, HISTOGRAM_N, n);
  observe(metrics, HISTOGRAM_LONGEST, longest_output);
  for (; i < metrics->num_requests; i++) {
    const request_series_t *series = &metrics->requests[i];
    bool same = series->status == status && series->finish == finish;
    if (same && strcmp(series->route, route) == 0) break;
  }
  if (i == REQUEST_SERIES_MAX)
    return; /* does not happen: there are four routes, a few statuses and five finish reasons */
  if (i == metrics->num_requests) {
    metrics->requests[metrics->num_requests++] = (request_series_t){route, status, finish, 0};
  }
  metrics->requests[i].count++;
}

void metrics_aborted(metrics_t *metrics, const char *cause) {
  int which = ABORT_disconnect;
  for (int i = 0; cause != NULL && i < ABORT_COUNT; i++) {
    if (strcmp(cause, abort_names[i]) == 0) which = i;
  }
  metrics->aborted[which]++;
}

/* ---- usage of keys ---- */

/* The place of a label; a new one gets a place while there is room, then "other". Returns NULL if
 * memory is short: the use is then not counted. */
static usage_t *usage_of(metrics_t *metrics, api_key_t *key) {
  if (key == NULL) return NULL;
  if (key->usage >= 0) return &metrics->usage[key->usage];
  const char *label = key->label[0] != '\0' ? key->label : "unlabelled";
  if (metrics->num_usage >= USAGE_LABELS_MAX) label = "other";
  int at = 0;
  for (; at < metrics->num_usage; at++) {
    const char *known = metrics->usage[at].label;
    if (strcmp(known, label) == 0 || strcmp(known, key->label) == 0) break;
  }
  if (at == metrics->usage_capacity) {
    int capacity = at == 0 ? 8 : at * 2;
    usage_t *usage = reallocarray(metrics->usage, (size_t)capacity, sizeof *usage);
    if (usage == NULL) return NULL;
    metrics->usage = usage;
    metrics->usage_capacity = capacity;
  }
  if (at == metrics->num_usage) {
    metrics->usage[metrics->num_usage++] = (usage_t){.label = ""};
    snprintf(metrics->usage[at].label, KEY_LABEL_BYTES, "%s", label);
  }
  key->usage = at;
  return &metrics->usage[at];
}

void metrics_key_request(metrics_t *metrics, struct api_key *key) {
  usage_t *usage = usage_of(metrics, key);
  if (usage != NULL) usage->requests++;
}

void metrics_key_tokens(metrics_t *metrics, struct api_key *key, int64_t prompt_tokens,
                        int64_t generated_tokens) {
  usage_t *usage = usage_of(metrics, key);
  if (usage == NULL) return;
  usage->prompt_tokens += (uint64_t)prompt_tokens;
  usage->generated_tokens += (uint64_t)generated_tokens;
}

void metrics_key_refused(metrics_t *metrics, struct api_key *key, int error_code) {
  usage_t *usage = error_http_status(error_code) == 429 ? usage_of(metrics, key) : NULL;
  if (usage != NULL) usage->refused++;
}

static const char *method_label(const char *method) {
  static const char *const known[] = {"GET", "POST", "HEAD", "OPTIONS"};
  for (size_t i = 0; method != NULL && i < ARRAY_LEN(known); i++) {
    if (strcmp(method, known[i]) == 0) return known[i];
  }
  return "other";
}

/* Counts refusals that only the transport makes. Handlers count their own refusals; if such an
 * answer has a status that the transport uses too, the handler has called metrics_own_unavailable.
 */
static void count_refusal(metrics_t *metrics, int status) {
  if (status == 503 && metrics->own_unavailable > 0) {
    metrics->own_unavailable--;
  } else if (status == 503) {
    metrics
        ->rejected[metrics->server->phase >= SERVER_DRAINING ? REJECT_draining : REJECT_loading]++;
  }
  if (status == 401) metrics->rejected[REJECT_auth]++;
  if (status == 403) metrics->rejected[REJECT_host]++;
  if (status == 415) metrics->rejected[REJECT_invalid]++;
  if (status == 408) metrics->rejected[REJECT_timeout]++;
  if (status == 413) metrics->rejected[REJECT_too_large]++;
}

static http_series_t *find_series(metrics_t *metrics, const char *route, const char *method,
                                  int status) {
  for (int i = 0; i < metrics->num_http; i++) {
    http_series_t *series = &metrics->http[i];
    if (series->status == status && series->method == method &&
        (series->route == route || strcmp(series->route, route) == 0)) {
      return series;
    }
  }
  if (metrics->num_http == HTTP_SERIES_MAX) return NULL;
  if (metrics->num_http == metrics->http_capacity) {
    int capacity = metrics->http_capacity == 0 ? 8 : metrics->http_capacity * 2;
    http_series_t *http = reallocarray(metrics->http, (size_t)capacity, sizeof *http);
    if (http == NULL) return NULL;
    metrics->http = http;
    metrics->http_capacity = capacity;
  }
  http_series_t *series = &metrics->http[metrics->num_http++];
  *series = (http_series_t){.route = route, .method = method, .status = status};
  histogram_init(&series->duration, &bounds_e2e, NULL);
  return series;
}

void metrics_reloaded(metrics_t *metrics, bool taken) {
  metrics->reloads[taken]++;
}

/* `route` is the label in the route table (static text), or NULL if the path has no route. */
void metrics_http(server_t *server, const char *route, const char *method, int status,
                  uint64_t duration_ns) {
  static const char *const generating[] = {"/v1/completions", "/v1/chat/completions",
                                           "/v1/messages",    "/v1/responses",
                                           "/api/chat",       "/api/generate"};
  static const char *const quiet[] = {"/livez", "/readyz", "/health", "/ping", "/metrics"};
  metrics_t *metrics = server->metrics;
  if (metrics == NULL) return;
  if (route == NULL) route = "";
  for (size_t i = 0; i < ARRAY_LEN(quiet); i++) {
    if (strcmp(route, quiet[i]) == 0) return;
  }
  for (size_t i = 0; i < ARRAY_LEN(generating); i++) {
    if (strcmp(route, generating[i]) == 0) count_refusal(metrics, status);
  }
  http_series_t *series = find_series(metrics, route, method_label(method), status);
  if (series != NULL) histogram_observe(&series->duration, seconds(0, duration_ns));
}

/* ---- the form that a scraper asks for ---- */

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
