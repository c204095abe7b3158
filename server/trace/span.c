/* span.c: requests as spans of OTLP in JSON.
 *
 * Exporter thread; the ids of new traces on the loop thread. Names of attributes are those of the
 * GenAI conventions of OpenTelemetry and, where they differ, the older ones of vLLM. Ids are hex,
 * integers of 64 bits are strings, enumerations are numbers, as OTLP defines its JSON.
 */
#include "server/trace/span.h"

#include "engine/base/clock.h"
#include "engine/base/random.h"

#include <stdio.h>
#include <string.h>
#include <sys/random.h>

enum { KIND_INTERNAL = 1, KIND_SERVER = 2, STATUS_ERROR = 2 };

void span_draw_id(char *out, int digits) {
  uint64_t drawn[2] = {0};
  if (getrandom(drawn, sizeof drawn, GRND_NONBLOCK) != (ssize_t)sizeof drawn) {
    drawn[0] = random_mix(clock_now_ns());
    drawn[1] = random_mix(drawn[0] + (uint64_t)(uintptr_t)out);
  }
  drawn[0] |= 1; /* an id of zeros is none */
  char text[33];
  snprintf(text, sizeof text, "%016llx%016llx", (unsigned long long)drawn[1],
           (unsigned long long)drawn[0]);
  memcpy(out, text + 32 - digits, (size_t)digits);
  out[digits] = '\0';
}

/* ---- attributes ---- */

static void key(buffer_t *out, const char *name, const char *type) {
  if (out->length > 0 && out->bytes[out->length - 1] == '}') buffer_char(out, ',');
  buffer_text(out, "{\"key\":");
  buffer_quote(out, name, strlen(name));
  buffer_text(out, ",\"value\":{\"");
  buffer_text(out, type);
  buffer_text(out, "\":");
}

static void text_attribute(buffer_t *out, const char *name, const char *value) {
  if (value == NULL || value[0] == '\0') return;
  key(out, name, "stringValue");
  buffer_quote(out, value, strlen(value));
  buffer_text(out, "}}");
}

static void int_attribute(buffer_t *out, const char *name, int64_t value) {
  if (value < 0) return;
  key(out, name, "intValue");
  buffer_char(out, '"');
  buffer_int(out, value);
  buffer_text(out, "\"}}");
}

static void seconds_attribute(buffer_t *out, const char *name, uint64_t from_ns, uint64_t to_ns) {
  if (from_ns == 0 || to_ns < from_ns) return;
  char text[40];
  snprintf(text, sizeof text, "%.9f", (double)(to_ns - from_ns) * 1e-9);
  key(out, name, "doubleValue");
  buffer_text(out, text);
  buffer_text(out, "}}");
}

static const char *operation_of(const char *route) {
  static const struct {
    const char *route, *operation;
  } known[] = {{"/v1/completions", "text_completion"},
               {"/v1/chat/completions", "chat"},
               {"/v1/responses", "chat"},
               {"/v1/messages", "chat"},
               {"/v1/embeddings", "embeddings"}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if (strcmp(route, known[i].route) == 0) return known[i].operation;
  }
  return NULL;
}

static void request_attributes(buffer_t *out, const span_record_t *record) {
  const char *operation = operation_of(record->route);
  text_attribute(out, "http.request.method", record->method);
  text_attribute(out, "http.route", record->route);
  int_attribute(out, "http.response.status_code", record->status);
  text_attribute(out, "inferd.request.id", record->request_id);
  text_attribute(out, "error.type", record->code != NULL ? record->code : record->cause);
  if (operation == NULL) return;
  text_attribute(out, "gen_ai.operation.name", operation);
  text_attribute(out, "gen_ai.provider.name", "inferd");
  text_attribute(out, "gen_ai.request.model", record->model);
  text_attribute(out, "gen_ai.response.model", record->model);
  key(out, "gen_ai.request.stream", "boolValue");
  buffer_text(out, record->stream ? "true}}" : "false}}");
  if (record->finish != NULL) {
    key(out, "gen_ai.response.finish_reasons", "arrayValue");
    buffer_text(out, "{\"values\":[{\"stringValue\":");
    buffer_quote(out, record->finish, strlen(record->finish));
    buffer_text(out, "}]}}}");
  }
  int_attribute(out, "gen_ai.usage.input_tokens", record->prompt_tokens);
  int_attribute(out, "gen_ai.usage.output_tokens", record->generated_tokens);
  int_attribute(out, "gen_ai.usage.cache_read.input_tokens", record->cached_tokens);
  int_attribute(out, "gen_ai.usage.prompt_tokens", record->prompt_tokens);
  int_attribute(out, "gen_ai.usage.completion_tokens", record->generated_tokens);
  seconds_attribute(out, "gen_ai.latency.e2e", record->start_ns, record->end_ns);
  seconds_attribute(out, "gen_ai.latency.time_in_queue", record->queued_ns, record->scheduled_ns);
  seconds_attribute(out, "gen_ai.latency.time_to_first_token", record->start_ns,
                    record->first_token_ns);
  seconds_attribute(out, "gen_ai.latency.time_in_model_prefill", record->scheduled_ns,
                    record->first_token_ns);
  seconds_attribute(out, "gen_ai.latency.time_in_model_decode", record->first_token_ns,
                    record->last_token_ns);
}

/* ---- spans ---- */

static void time_member(buffer_t *out, const char *name, uint64_t ns, int64_t unix_offset_ns) {
  buffer_text(out, ",\"");
  buffer_text(out, name);
  buffer_text(out, "\":\"");
  buffer_int(out, (int64_t)ns + unix_offset_ns);
  buffer_char(out, '"');
}

static void id_member(buffer_t *out, const char *name, const char *id) {
  if (id[0] == '\0') return;
  buffer_text(out, name);
  buffer_text(out, id); /* hex */
  buffer_char(out, '"');
}

static void stage(buffer_t *out, const span_record_t *record, const char *parent, const char *name,
                  uint64_t from_ns, uint64_t to_ns, int64_t unix_offset_ns) {
  char id[SPAN_ID_TEXT];
  if (from_ns == 0 || to_ns < from_ns) return;
  span_draw_id(id, SPAN_ID_TEXT - 1);
  id_member(out, ",{\"traceId\":\"", record->context.trace_id);
  id_member(out, ",\"spanId\":\"", id);
  id_member(out, ",\"parentSpanId\":\"", parent);
  buffer_text(out, ",\"name\":\"");
  buffer_text(out, name);
  buffer_text(out, "\",\"kind\":");
  buffer_int(out, KIND_INTERNAL);
  time_member(out, "startTimeUnixNano", from_ns, unix_offset_ns);
  time_member(out, "endTimeUnixNano", to_ns, unix_offset_ns);
  buffer_char(out, '}');
}

void spans_begin(buffer_t *out, const resource_attribute_t *attributes, int count) {
  buffer_text(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
  for (int i = 0; i < count; i++) {
    text_attribute(out, attributes[i].name, attributes[i].value);
  }
  buffer_text(out,
              "]},\"scopeSpans\":[{\"scope\":{\"name\":\"inferd\",\"version\":\"" INFERD_VERSION
              "\"},\"spans\":[");
}

void spans_add(buffer_t *out, const span_record_t *record, int64_t unix_offset_ns, bool first) {
  char id[SPAN_ID_TEXT], name[160];
  const char *operation = operation_of(record->route);
  bool named = operation != NULL && record->model[0] != '\0';
  span_draw_id(id, SPAN_ID_TEXT - 1);
  snprintf(name, sizeof name, "%s %s", operation != NULL ? operation : record->method,
           named ? record->model : record->route);
  id_member(out, first ? "{\"traceId\":\"" : ",{\"traceId\":\"", record->context.trace_id);
  id_member(out, ",\"spanId\":\"", id);
  id_member(out, ",\"parentSpanId\":\"", record->context.parent_id);
  if (record->trace_state[0] != '\0') {
    buffer_text(out, ",\"traceState\":");
    buffer_quote(out, record->trace_state, strlen(record->trace_state));
  }
  buffer_text(out, ",\"name\":");
  buffer_quote(out, name, strlen(name));
  buffer_text(out, ",\"kind\":");
  buffer_int(out, KIND_SERVER);
  time_member(out, "startTimeUnixNano", record->start_ns, unix_offset_ns);
  time_member(out, "endTimeUnixNano", record->end_ns, unix_offset_ns);
  buffer_text(out, ",\"attributes\":[");
  request_attributes(out, record);
  buffer_char(out, ']');
  if (record->status >= 500 || record->cause != NULL) {
    buffer_text(out, ",\"status\":{\"code\":");
    buffer_int(out, STATUS_ERROR);
    buffer_char(out, '}');
  }
  buffer_char(out, '}');
  uint64_t begun_ns = record->scheduled_ns, token_ns = record->first_token_ns;
  stage(out, record, id, "queue", record->queued_ns, begun_ns, unix_offset_ns);
  stage(out, record, id, "prefill", begun_ns, token_ns, unix_offset_ns);
  stage(out, record, id, "decode", token_ns, record->last_token_ns, unix_offset_ns);
}

void spans_end(buffer_t *out) {
  buffer_text(out, "]}]}]}");
}
