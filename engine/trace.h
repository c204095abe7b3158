/* trace.h: what happens to each request inside the engine, for the debug log of the server.
 *
 * The engine thread writes records of a fixed size into a ring; the loop thread reads them and
 * prints them. The engine never waits: records that do not fit are dropped and counted. A trace
 * that is NULL, the normal case, costs one comparison for each record.
 */
#ifndef INFERD_ENGINE_TRACE_H
#define INFERD_ENGINE_TRACE_H

#include "engine/base/error.h"

#include <stdint.h>

struct request;
typedef struct trace trace_t;

typedef enum trace_kind {
  TRACE_ADMITTED,    /* from waiting or swapped to running */
  TRACE_PREEMPTED,   /* from running to waiting or swapped */
  TRACE_FIRST_TOKEN, /* committed */
  TRACE_FINISHED     /* the last record of a request, written just before its EVENT_DONE */
} trace_kind_t;

typedef struct trace_record {
  uint64_t request_id;
  uint64_t arrival_ns, time_ns; /* monotonic: when the request came, when this happened */
  trace_kind_t kind;
  int32_t num_tokens; /* of prompt and output so far; TRACE_FINISHED: of the output alone */
  int32_t detail; /* TRACE_PREEMPTED: 1 = swapped to the host; TRACE_FINISHED: finish_reason_t */
} trace_record_t;

enum { TRACE_RECORDS = 1024 }; /* a power of two */

/* 0 or ERR_NO_MEMORY. */
int trace_new(trace_t **out, inferd_error_t *error);
void trace_free(trace_t *trace); /* NULL is allowed */

/* Engine thread; does nothing if `trace` is NULL. Neither allocates nor waits. */
void trace_add(trace_t *trace, trace_kind_t kind, const struct request *request, int32_t num_tokens,
               int32_t detail);
/* Loop thread: hands every record to `handle`, in order, and returns the number of records that
 * were dropped since the last call. */
uint64_t trace_drain(trace_t *trace, void (*handle)(void *context, const trace_record_t *record),
                     void *context);

#endif
