/* trace.c: a ring of records with one writer, the engine thread, and one reader, the loop thread.
 *
 * The head is written by the engine only, the tail by the loop only, so no lock is needed.
 */
#include "engine/trace.h"

#include "engine/base/clock.h"
#include "engine/request.h"

#include <stdatomic.h>
#include <stdlib.h>

_Static_assert((TRACE_RECORDS & (TRACE_RECORDS - 1)) == 0, "positions are masked");

struct trace {
  trace_record_t records[TRACE_RECORDS];
  _Alignas(64) atomic_uint head; /* records ever written, by the engine */
  atomic_ullong dropped;
  _Alignas(64) atomic_uint tail; /* records ever read, by the loop */
};

int trace_new(trace_t **out, inferd_error_t *error) {
  *out = aligned_alloc(_Alignof(trace_t), sizeof **out);
  if (*out == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the trace");
  atomic_init(&(*out)->head, 0);
  atomic_init(&(*out)->tail, 0);
  atomic_init(&(*out)->dropped, 0);
  return 0;
}

void trace_free(trace_t *trace) {
  free(trace);
}

void trace_add(trace_t *trace, trace_kind_t kind, const request_t *request, int32_t num_tokens,
               int32_t detail) {
  if (trace == NULL) return;
  unsigned head = atomic_load_explicit(&trace->head, memory_order_relaxed);
  unsigned tail = atomic_load_explicit(&trace->tail, memory_order_acquire);
  if (head - tail == TRACE_RECORDS) {
    atomic_fetch_add_explicit(&trace->dropped, 1, memory_order_relaxed);
    return;
  }
  trace->records[head % TRACE_RECORDS] = (trace_record_t){.request_id = request->id,
                                                          .arrival_ns = request->arrival_ns,
                                                          .time_ns = clock_now_ns(),
                                                          .kind = kind,
                                                          .num_tokens = num_tokens,
                                                          .detail = detail};
  atomic_store_explicit(&trace->head, head + 1, memory_order_release);
}

uint64_t trace_drain(trace_t *trace, void (*handle)(void *context, const trace_record_t *record),
                     void *context) {
  unsigned tail = atomic_load_explicit(&trace->tail, memory_order_relaxed);
  unsigned head = atomic_load_explicit(&trace->head, memory_order_acquire);
  for (; tail != head; tail++) {
    handle(context, &trace->records[tail % TRACE_RECORDS]);
    atomic_store_explicit(&trace->tail, tail + 1, memory_order_release);
  }
  return atomic_exchange_explicit(&trace->dropped, 0, memory_order_relaxed);
}
