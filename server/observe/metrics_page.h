/* metrics_page.h: what the files share that print the page of GET /metrics. Loop thread. */
#ifndef INFERD_SERVER_OBSERVE_METRICS_PAGE_H
#define INFERD_SERVER_OBSERVE_METRICS_PAGE_H

#include "server/observe/metrics_internal.h"

/* The place of each row: METRIC_build_info .. and, for histograms, METRIC_TTFT .. */
typedef enum metric_id {
#define METRIC(id, ...) METRIC_##id,
#define HISTOGRAM(id, ...) METRIC_##id,
#include "server/observe/metrics.def"
#undef METRIC
#undef HISTOGRAM
} metric_id_t;

/* One page in the making. */
typedef struct page {
  metrics_t *metrics;
  buffer_t *out;
  bool open;                 /* OpenMetrics */
  bool own, vllm;            /* print inferd_ names, print vllm: names */
  const engine_info_t *info; /* NULL before READY */
  engine_stats_t stats;
  uint64_t now_ns;
} page_t;

/* The head of a family under inferd's name. */
void page_family(page_t *page, metric_id_t id);
/* A sample of it; `labels` come behind those of the model. */
void page_sample(page_t *page, metric_id_t id, const char *labels, double value);
/* A sample of the process, which has no model. */
void page_bare_sample(page_t *page, metric_id_t id, const char *labels, double value);

/* metrics_parts.c */
void page_print_process(page_t *page);
void page_print_replicas(page_t *page); /* after READY */

#endif
