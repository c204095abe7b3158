/* trace.h: W3C trace context of requests, and their spans on the way to a collector by OTLP.
 *
 * A request with a `traceparent` continues that trace, always: the access line has its id. Spans
 * are made and sent with --otlp-endpoint only: OTLP over HTTP as JSON. The loop thread copies what
 * it knows of a request into a ring; a thread of its own prints and sends it. A full ring drops and
 * counts, so a slow or dead collector costs requests nothing.
 */
#ifndef INFERD_SERVER_TRACE_TRACE_H
#define INFERD_SERVER_TRACE_TRACE_H

#include "config/config.h"

#include <stdbool.h>
#include <stdint.h>

enum { TRACE_ID_TEXT = 33, SPAN_ID_TEXT = 17, TRACE_STATE_MAX = 512, TRACE_MODEL_MAX = 64 };

/* Where a request stands in a trace; ids in lower-case hex. All zero bytes: in none. */
typedef struct trace_context {
  char trace_id[TRACE_ID_TEXT]; /* "" = none */
  char parent_id[SPAN_ID_TEXT]; /* the caller's span */
  bool sampled;                 /* the caller records it */
} trace_context_t;

/* Reads a header `traceparent` (NULL = none): version 00, lower-case hex, ids that are not zero.
 * Anything else is no context, and no error. */
void trace_context_read(const char *traceparent, trace_context_t *out);

/* What is told of a request. Pointers are static texts; times are nanoseconds of clock.h, 0 = did
 * not happen. */
typedef struct span_record {
  trace_context_t context;
  char trace_state[TRACE_STATE_MAX + 1];
  char request_id[129], model[TRACE_MODEL_MAX];
  const char *method, *route, *code, *cause, *finish; /* NULL = none */
  int status;
  bool stream;
  int32_t prompt_tokens, cached_tokens, generated_tokens; /* -1 = not known */
  uint64_t start_ns, queued_ns, scheduled_ns, first_token_ns, last_token_ns, end_ns;
} span_record_t;

typedef struct tracer tracer_t;

typedef struct trace_counts {
  uint64_t exported, dropped, failed; /* requests: sent, no room in the ring, refused or unsent */
} trace_counts_t;

/* Starts the thread. Without --otlp-endpoint, and without the variables OTEL_EXPORTER_OTLP_ENDPOINT
 * and OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, does nothing and sets *out to NULL. Returns 0, or an
 * error: an address that is no http(s) URL, a sampler that is unknown, or libcurl that is missing.
 * Loop thread, before other threads exist, because libcurl wants that. `warn` is called on the
 * exporter's thread when the collector begins to fail. */
int tracer_start(const config_t *config, void (*warn)(const char *text), tracer_t **out,
                 inferd_error_t *error);
const char *tracer_address(const tracer_t *tracer); /* the URL that spans go to */
/* Whether this request gets spans; draws an id for a trace that begins here. NULL is allowed. */
bool tracer_samples(const tracer_t *tracer, trace_context_t *context);
/* Loop thread; never waits. */
void tracer_add(tracer_t *tracer, const span_record_t *record);
trace_counts_t tracer_counts(const tracer_t *tracer);
/* Sends what is left, for at most TRACER_STOP_MS, and frees. NULL is allowed. */
void tracer_stop(tracer_t *tracer);

enum { TRACER_STOP_MS = 1000 };

#endif
