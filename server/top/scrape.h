/* scrape.h: the page of /metrics -> the few figures that `inferd top` shows.
 *
 * Pure functions, any thread. Names of inferd count where the page has them, else those of vLLM, so
 * any --metrics-names will do. Figures of several replicas are added up.
 */
#ifndef INFERD_SERVER_TOP_SCRAPE_H
#define INFERD_SERVER_TOP_SCRAPE_H

#include <stdbool.h>
#include <stdint.h>

enum {
  SCRAPE_BUCKETS_MAX = 64,
  SCRAPE_KEYS_MAX = 64,
  SCRAPE_MODELS_MAX = 256,
  SCRAPE_TEXT_MAX = 80
};

typedef enum scrape_figure {
  FIGURE_running,
  FIGURE_waiting,
  FIGURE_swapped,
  FIGURE_kv_usage,          /* 0 to 1 */
  FIGURE_prompt_tokens,     /* since the start, as all below */
  FIGURE_generation_tokens, /* those of the answers */
  FIGURE_prefix_queries,    /* prompt tokens looked up in the prefix cache */
  FIGURE_prefix_hits,       /* those found there */
  FIGURE_preemptions,
  FIGURE_start_time, /* Unix time of the process, s */
  FIGURE_COUNT
} scrape_figure_t;

/* A histogram of Prometheus: counts[i] observations are at most bounds[i]. */
typedef struct scrape_histogram {
  int num_buckets;
  double bounds[SCRAPE_BUCKETS_MAX]; /* s; the last may be infinite */
  double counts[SCRAPE_BUCKETS_MAX];
} scrape_histogram_t;

typedef enum scrape_latency { LATENCY_ttft, LATENCY_itl, LATENCY_COUNT } scrape_latency_t;

typedef struct scrape_key {
  char label[SCRAPE_TEXT_MAX];
  double requests, prompt_tokens, generation_tokens, refused;
} scrape_key_t;

/* One of several models behind one port. */
typedef struct scrape_model {
  char name[SCRAPE_TEXT_MAX], state[16];
  double bytes, running, waiting, prompt_tokens, generation_tokens;
} scrape_model_t;

typedef struct scrape {
  uint64_t at_ns;               /* monotonic; the caller's */
  double figures[FIGURE_COUNT]; /* NaN: the page has no such metric */
  scrape_histogram_t latencies[LATENCY_COUNT];
  scrape_key_t keys[SCRAPE_KEYS_MAX]; /* the first ones of the page */
  int num_keys;
  scrape_model_t models[SCRAPE_MODELS_MAX]; /* the first ones of the page of several models */
  int num_models;
  char model[SCRAPE_TEXT_MAX], version[SCRAPE_TEXT_MAX], state[SCRAPE_TEXT_MAX]; /* or "" */
} scrape_t;

/* Reads a page in the text format of Prometheus; lines that it does not know do not count. Returns
 * false if nothing on the page is of an inference server. */
bool scrape_read(const char *page, scrape_t *out);

/* The quantile `q` (0..1) of what was observed between two pages, in seconds, as PromQL's
 * histogram_quantile computes it: linear within a bucket, the last finite bound beyond. `before`
 * NULL: since the start. NaN if nothing was observed. */
double scrape_quantile(const scrape_histogram_t *before, const scrape_histogram_t *now, double q);
/* How many observations these were. */
double scrape_observed(const scrape_histogram_t *before, const scrape_histogram_t *now);

#endif
