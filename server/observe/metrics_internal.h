/* metrics_internal.h: the counters behind metrics.c (counting) and metrics_page.c (printing). */
#ifndef INFERD_SERVER_OBSERVE_METRICS_INTERNAL_H
#define INFERD_SERVER_OBSERVE_METRICS_INTERNAL_H

#include "engine/base/buffer.h"
#include "server/observe/histogram.h"
#include "server/observe/metrics.h"
#include "server/server.h"

/* X(name, own bounds, vLLM bounds) : histograms of sequences and requests. */
#define HISTOGRAM_TABLE(X)                                                                         \
  X(TTFT, &bounds_ttft, &bounds_ttft)                                                              \
  X(ITL, &bounds_itl, &bounds_itl_vllm)                                                            \
  X(TPOT, &bounds_itl, NULL)                                                                       \
  X(TPOT_VLLM, NULL, &bounds_itl_vllm)                                                             \
  X(E2E, &bounds_e2e, &bounds_e2e_vllm)                                                            \
  X(QUEUE, &bounds_queue, &bounds_e2e_vllm)                                                        \
  X(PREFILL, &bounds_ttft, &bounds_e2e_vllm)                                                       \
  X(DECODE, &bounds_e2e, &bounds_e2e_vllm)                                                         \
  X(INFERENCE, &bounds_e2e, &bounds_e2e_vllm)                                                      \
  X(FRONTEND, &bounds_queue, NULL)                                                                 \
  X(PROMPT_TOKENS, &bounds_tokens, &bounds_tokens)                                                 \
  X(GENERATION_TOKENS, &bounds_tokens, &bounds_tokens)                                             \
  X(PREFILL_COMPUTED, &bounds_tokens, &bounds_tokens)                                              \
  X(MAX_TOKENS, &bounds_tokens, &bounds_tokens)                                                    \
  X(N, &bounds_n, &bounds_n_vllm)                                                                  \
  X(LONGEST, NULL, &bounds_tokens)

typedef enum histogram_name {
#define X(name, own, vllm) HISTOGRAM_##name,
  HISTOGRAM_TABLE(X)
#undef X
      HISTOGRAM_COUNT
} histogram_name_t;

#define REJECT_TABLE(X)                                                                            \
  X(auth)                                                                                          \
  X(host)                                                                                          \
  X(too_large)                                                                                     \
  X(invalid)                                                                                       \
  X(context_length) X(unsupported) X(queue_full) X(rate_limit) X(loading) X(draining) X(timeout)
#define ABORT_TABLE(X)                                                                             \
  X(disconnect) X(slow_reader) X(queue_timeout) X(deadline) X(drain) X(shutdown) X(engine) X(admin)

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

enum { HTTP_SERIES_MAX = 256, REQUEST_SERIES_MAX = 64 };

/* Routes and methods are pointers to static text, so a series is found by comparing pointers. */
typedef struct http_series {
  const char *route, *method;
  int status;
  histogram_t duration;
} http_series_t;

typedef struct request_series {
  bool is_chat;
  int status;
  finish_reason_t finish;
  uint64_t count;
} request_series_t;

struct metrics {
  server_t *server;
  histogram_t histograms[HISTOGRAM_COUNT];
  uint64_t rejected[REJECT_COUNT], aborted[ABORT_COUNT];
  uint64_t finished[FINISH_ERROR + 1]; /* sequences */
  uint64_t own_unavailable; /* 503 answers of handlers that metrics_http has not seen yet */
  uint64_t ignored_params, tokenize_bytes, tokenize_ns;
  http_series_t *http; /* [HTTP_SERIES_MAX]; grows on demand */
  int num_http, http_capacity;
  request_series_t requests[REQUEST_SERIES_MAX];
  int num_requests;
  char *labels, *vllm_labels; /* model="..." and model_name="...",engine="0", escaped */
  buffer_t page;              /* reused from scrape to scrape */
};

extern const char *const generation_routes[2]; /* [is_chat] */
extern const char *const reject_names[REJECT_COUNT];
extern const char *const abort_names[ABORT_COUNT];

#endif
