/* post.h: POST of JSON to a collector, by libcurl, which is opened by name when it is needed.
 *
 * post_open is for the loop thread, before other threads exist; the rest for one thread at a time.
 */
#ifndef INFERD_SERVER_TRACE_POST_H
#define INFERD_SERVER_TRACE_POST_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stddef.h>

typedef struct post post_t;

/* `headers`: NAME=VALUE separated by commas, values percent-encoded, as in
 * OTEL_EXPORTER_OTLP_HEADERS; "" = none. `stop` is read while a request runs: 2 ends it. */
int post_open(const char *url, const char *headers, long timeout_ms, const int *stop, post_t **out,
              inferd_error_t *error);
/* Returns the HTTP status, or 0 with the reason in post_reason. */
long post_send(post_t *post, const char *bytes, size_t length);
const char *post_reason(const post_t *post);
void post_close(post_t *post);

/* Decodes %XX in place. */
void post_unescape(char *text);

#endif
