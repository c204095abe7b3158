/* span.h: requests as spans of OTLP in JSON, and the ids that they get. Any thread. */
#ifndef INFERD_SERVER_TRACE_SPAN_H
#define INFERD_SERVER_TRACE_SPAN_H

#include "engine/base/buffer.h"
#include "server/trace/trace.h"

/* An attribute of the process, such as service.name. Owns its texts. */
typedef struct resource_attribute {
  char *name, *value;
} resource_attribute_t;

/* Draws `digits` of hex, not all zeros. */
void span_draw_id(char *out, int digits);

/* The JSON of an ExportTraceServiceRequest. `unix_offset_ns` is Unix time minus the time of
 * clock.h. A request is a span of kind SERVER with a child for each stage that it reached: queue,
 * prefill, decode. */
void spans_begin(buffer_t *out, const resource_attribute_t *attributes, int count);
void spans_add(buffer_t *out, const span_record_t *record, int64_t unix_offset_ns, bool first);
void spans_end(buffer_t *out);

#endif
