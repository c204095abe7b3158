/* metrics_internal.h: the counters behind metrics.c (counting) and metrics_page.c (printing). */
#ifndef INFERD_SERVER_OBSERVE_METRICS_INTERNAL_H
#define INFERD_SERVER_OBSERVE_METRICS_INTERNAL_H

#include "engine/base/buffer.h"
#include "server/keys/api_key.h"
#include "server/observe/histogram.h"
#include "server/observe/metrics.h"
#include "server/server.h"

/* HISTOGRAM_TTFT ..: the histograms of sequences and requests, in the order of metrics.def. */
typedef enum histogram_name {
#define METRIC(id, ...)
#define HISTOGRAM(id, ...) HISTOGRAM_##id,
#include "server/observe/metrics.def"
#undef METRIC
#undef HISTOGRAM
  HISTOGRAM_COUNT
} histogram_name_t;

#define REJECT_TABLE(X)                                                                            \
  X(auth)                                                                                          \
  X(host)                                                                                          \
  X(too_large)                                                                                     \
  X(invalid)                                                                                       \
  X(context_length) X(unsupported) X(queue_full) X(rate_limit) X(loading) X(draining) X(timeout)
#define ABORT_TABLE(X)                                                                             \
  X(disconnect)                                                                                    \
  X(slow_reader)                                                                                   \
  X(queue_timeout) X(queue_full) X(deadline) X(drain) X(shutdown) X(engine) X(admin)

typedef enum reject_reason {
#define X(name) REJECT_##name,
  REJECT_TABLE(X)
#undef X
      REJECT_COUNT
} reject_reason_t;

typedef enum abort_cause {
#define X(name) ABORT_##name,
  ABORT_TABLE(X)
#undef X
      ABORT_COUNT
} abort_cause_t;

enum { HTTP_SERIES_MAX = 256, REQUEST_SERIES_MAX = 128, USAGE_LABELS_MAX = 256 };

/* One series of HTTP requests. Route and method point to static text: pointers are compared. */
typedef struct http_series {
  const char *route, *method;
  int status;
  histogram_t duration;
} http_series_t;

typedef struct request_series {
  const char *route; /* static text */
  int status;
  finish_reason_t finish;
  uint64_t count;
} request_series_t;

/* What the keys of one label have used. */
typedef struct usage {
  char label[KEY_LABEL_BYTES];
  uint64_t requests, prompt_tokens, generated_tokens, refused;
} usage_t;

struct metrics {
  server_t *server;
  histogram_t histograms[HISTOGRAM_COUNT];
  uint64_t rejected[REJECT_COUNT], aborted[ABORT_COUNT];
  uint64_t finished[FINISH_ERROR + 1]; /* sequences */
  uint64_t own_unavailable; /* 503 answers of handlers that metrics_http has not seen yet */
  uint64_t reloads[2];      /* rejected, taken over */
  uint64_t ignored_params, tokenize_bytes, tokenize_ns, audio_windows;
  double audio_seconds;
  http_series_t *http; /* [HTTP_SERIES_MAX]; grows on demand */
  int num_http, http_capacity;
  request_series_t requests[REQUEST_SERIES_MAX];
  int num_requests;
  usage_t *usage; /* [num_usage], grows on demand; the last of USAGE_LABELS_MAX + 1 is "other" */
  int num_usage, usage_capacity;
  char *labels, *vllm_labels; /* model="..." and model_name="...",engine="0", escaped */
  struct {
    buffer_t text;
    uint64_t turn; /* of the loop in which it was printed; 0 = it must not be used again */
  } pages[2];      /* plain, OpenMetrics; reused from scrape to scrape */
};

/* metrics.c: appends the value of a label: backslash, quote and line feed are escaped. */
void metrics_escape(buffer_t *out, const char *value, size_t length);

extern const char *const reject_names[REJECT_COUNT];
extern const char *const abort_names[ABORT_COUNT];

#endif
