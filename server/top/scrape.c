/* scrape.c: reads the page of /metrics, and quantiles out of its histograms.
 *
 * Pure functions, any thread. The page comes from outside: every name, label and count is bounded.
 */
#include "server/top/scrape.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Names of inferd and of vLLM; NULL: it has none. */
static const char *const figure_names[FIGURE_COUNT][2] = {
    [FIGURE_running] = {"inferd_requests_running", "vllm:num_requests_running"},
    [FIGURE_waiting] = {"inferd_requests_waiting", "vllm:num_requests_waiting"},
    [FIGURE_swapped] = {"inferd_requests_swapped", "vllm:num_requests_swapped"},
    [FIGURE_kv_usage] = {"inferd_kv_cache_usage_ratio", "vllm:kv_cache_usage_perc"},
    [FIGURE_prompt_tokens] = {"inferd_prompt_tokens_total", "vllm:prompt_tokens_total"},
    [FIGURE_generation_tokens] = {"inferd_generation_tokens_total", "vllm:generation_tokens_total"},
    [FIGURE_prefix_queries] = {"inferd_prefix_cache_queries_total",
                               "vllm:prefix_cache_queries_total"},
    [FIGURE_prefix_hits] = {"inferd_prefix_cache_hits_total", "vllm:prefix_cache_hits_total"},
    [FIGURE_preemptions] = {"inferd_preemptions_total", "vllm:num_preemptions_total"},
    [FIGURE_start_time] = {"process_start_time_seconds", NULL},
};
static const char *const latency_names[LATENCY_COUNT][2] = {
    [LATENCY_ttft] = {"inferd_time_to_first_token_seconds_bucket",
                      "vllm:time_to_first_token_seconds_bucket"},
    [LATENCY_itl] = {"inferd_inter_token_latency_seconds_bucket",
                     "vllm:inter_token_latency_seconds_bucket"},
};

/* One line of the page, taken apart in place. */
typedef struct sample {
  char *name;
  const char *labels; /* a="b",c="d"; "" = none */
  double value;
} sample_t;

/* Takes a line apart, which ends in a NUL. Returns false for a comment, or if it is none. */
static bool read_sample(char *line, sample_t *out) {
  size_t length = strcspn(line, "{ ");
  if (line[0] == '#' || length == 0 || line[length] == '\0') return false;
  char *rest = line + length;
  *out = (sample_t){.name = line, .labels = ""};
  if (*rest == '{') {
    bool quoted = false;
    out->labels = rest + 1;
    for (rest++; *rest != '\0' && (quoted || *rest != '}'); rest++) {
      if (*rest == '\\' && rest[1] != '\0') {
        rest++;
      } else if (*rest == '"') {
        quoted = !quoted;
      }
    }
    if (*rest == '\0') return false;
  }
  *rest++ = '\0';
  line[length] = '\0';
  char *end;
  out->value = strtod(rest, &end);
  return end != rest;
}

/* Copies the value of a label, unescaped; "" if there is none. */
static void read_label(const char *labels, const char *name, char out[SCRAPE_TEXT_MAX]) {
  size_t n = 0, length = strlen(name);
  const char *at = labels;
  out[0] = '\0';
  while (*at != '\0') {
    const char *value = strstr(at, "=\"");
    if (value == NULL) return;
    bool wanted = (size_t)(value - at) == length && strncmp(at, name, length) == 0;
    for (value += 2; *value != '\0' && *value != '"'; value++) {
      if (*value == '\\' && value[1] != '\0') value++;
      if (wanted && n < SCRAPE_TEXT_MAX - 1) out[n++] = *value;
    }
    if (wanted) {
      out[n] = '\0';
      return;
    }
    at = *value == '"' ? value + 1 : value;
    at += *at == ',';
  }
}

static void add_bucket(scrape_histogram_t *histogram, const sample_t *sample) {
  char text[SCRAPE_TEXT_MAX];
  read_label(sample->labels, "le", text);
  double bound = strtod(text, NULL);
  int i = 0;
  while (i < histogram->num_buckets && histogram->bounds[i] != bound) i++;
  if (text[0] == '\0' || i == SCRAPE_BUCKETS_MAX) return;
  if (i == histogram->num_buckets) {
    histogram->bounds[i] = bound;
    histogram->counts[i] = 0;
    histogram->num_buckets++;
  }
  histogram->counts[i] += sample->value;
}

static void add_key(scrape_t *out, const sample_t *sample) {
  static const char prefix[] = "inferd_key_";
  if (strncmp(sample->name, prefix, sizeof prefix - 1) != 0) return;
  const char *what = sample->name + sizeof prefix - 1;
  char label[SCRAPE_TEXT_MAX];
  read_label(sample->labels, "key", label);
  int i = 0;
  while (i < out->num_keys && strcmp(out->keys[i].label, label) != 0) i++;
  if (i == SCRAPE_KEYS_MAX) return;
  scrape_key_t *key = &out->keys[i];
  if (i == out->num_keys) {
    *key = (scrape_key_t){.requests = 0};
    memcpy(key->label, label, sizeof label);
    out->num_keys++;
  }
  if (strcmp(what, "requests_total") == 0) key->requests += sample->value;
  if (strcmp(what, "prompt_tokens_total") == 0) key->prompt_tokens += sample->value;
  if (strcmp(what, "generation_tokens_total") == 0) key->generation_tokens += sample->value;
  if (strcmp(what, "refused_total") == 0) key->refused += sample->value;
}

static void add_model(scrape_t *out, const sample_t *sample) {
  static const char prefix[] = "inferd_model_";
  if (strncmp(sample->name, prefix, sizeof prefix - 1) != 0) return;
  const char *what = sample->name + sizeof prefix - 1;
  char name[SCRAPE_TEXT_MAX], word[SCRAPE_TEXT_MAX];
  read_label(sample->labels, "model_name", name);
  int i = 0;
  while (i < out->num_models && strcmp(out->models[i].name, name) != 0) i++;
  if (name[0] == '\0' || i == SCRAPE_MODELS_MAX) return;
  scrape_model_t *model = &out->models[i];
  if (i == out->num_models) {
    *model = (scrape_model_t){.bytes = 0};
    memcpy(model->name, name, sizeof name);
    out->num_models++;
  }
  read_label(sample->labels, strcmp(what, "tokens_total") == 0 ? "kind" : "state", word);
  if (strcmp(what, "state") == 0 && sample->value == 1)
    snprintf(model->state, sizeof model->state, "%.15s", word);
  if (strcmp(what, "memory_bytes") == 0) model->bytes = sample->value;
  if (strcmp(what, "requests") == 0)
    *(strcmp(word, "running") == 0 ? &model->running : &model->waiting) = sample->value;
  if (strcmp(what, "tokens_total") == 0)
    *(strcmp(word, "prompt") == 0 ? &model->prompt_tokens : &model->generation_tokens) =
        sample->value;
}

static void add_text(scrape_t *out, const sample_t *sample) {
  if (strcmp(sample->name, "inferd_build_info") == 0) {
    read_label(sample->labels, "version", out->version);
  } else if (strcmp(sample->name, "inferd_engine_state") == 0 && sample->value == 1) {
    read_label(sample->labels, "state", out->state);
  } else if (strcmp(sample->name, figure_names[FIGURE_running][0]) == 0) {
    read_label(sample->labels, "model", out->model);
  } else if (strcmp(sample->name, figure_names[FIGURE_running][1]) == 0 && out->model[0] == '\0') {
    read_label(sample->labels, "model_name", out->model);
  }
}

/* Figures and latencies under one family of names. */
typedef struct half {
  double figures[FIGURE_COUNT];
  scrape_histogram_t latencies[LATENCY_COUNT];
} half_t;

static void add_sample(half_t *half, int names, const sample_t *sample) {
  for (int i = 0; i < FIGURE_COUNT; i++) {
    const char *name = figure_names[i][names];
    if (name == NULL || strcmp(name, sample->name) != 0) continue;
    half->figures[i] = (isnan(half->figures[i]) ? 0 : half->figures[i]) + sample->value;
  }
  for (int i = 0; i < LATENCY_COUNT; i++) {
    if (strcmp(latency_names[i][names], sample->name) == 0) add_bucket(&half->latencies[i], sample);
  }
}

bool scrape_read(const char *page, scrape_t *out) {
  half_t halves[2];
  memset(out, 0, sizeof *out);
  memset(halves, 0, sizeof halves);
  for (int i = 0; i < FIGURE_COUNT; i++) halves[0].figures[i] = halves[1].figures[i] = NAN;
  char *copy = strdup(page);
  if (copy == NULL) return false;
  char *rest = copy;
  for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
    sample_t sample;
    if (!read_sample(line, &sample)) continue;
    add_text(out, &sample);
    add_key(out, &sample);
    add_model(out, &sample);
    for (int names = 0; names < 2; names++) add_sample(&halves[names], names, &sample);
  }
  free(copy);
  for (int i = 0; i < FIGURE_COUNT; i++) {
    out->figures[i] = isnan(halves[0].figures[i]) ? halves[1].figures[i] : halves[0].figures[i];
  }
  for (int i = 0; i < LATENCY_COUNT; i++) {
    out->latencies[i] = halves[halves[0].latencies[i].num_buckets == 0].latencies[i];
  }
  return !isnan(out->figures[FIGURE_running]) || out->num_models > 0;
}

/* ---- quantiles ---- */

/* The observations up to bucket `i`; a server that was started again in between has fewer than
 * before, and all of them are new. */
static double count_at(const scrape_histogram_t *before, const scrape_histogram_t *now, int i) {
  int last = now->num_buckets - 1;
  bool same = before != NULL && before->num_buckets == now->num_buckets &&
              before->counts[last] <= now->counts[last];
  return now->counts[i] - (same ? before->counts[i] : 0);
}

double scrape_observed(const scrape_histogram_t *before, const scrape_histogram_t *now) {
  return now->num_buckets == 0 ? 0 : count_at(before, now, now->num_buckets - 1);
}

double scrape_quantile(const scrape_histogram_t *before, const scrape_histogram_t *now, double q) {
  double total = scrape_observed(before, now), below = 0, from = 0;
  if (!(total > 0)) return NAN;
  for (int i = 0; i < now->num_buckets; i++) {
    double count = count_at(before, now, i);
    if (isinf(now->bounds[i])) break;
    if (count >= q * total && count > below) {
      return from + (now->bounds[i] - from) * (q * total - below) / (count - below);
    }
    from = now->bounds[i];
    below = count;
  }
  return from;
}
