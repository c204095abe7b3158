/* http_reply.c: makes libmicrohttpd responses with all their headers.
 *
 * Loop thread. It never queues a response: http_exchange.c decides when.
 */
#include "server/http/http_exchange.h"

#include "engine/base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

static void add(struct MHD_Response *response, const char *name, const char *value) {
  /* If the value is not allowed in a header, or memory is short, the answer has no such header. */
  (void)MHD_add_response_header(response, name, value);
}

/* One bound of a key in the three headers of OpenAI: the bound, what is left, and when all of it
 * will be there again, such as "120ms", "8.5s" or "6m0s". */
static void add_rate(struct MHD_Response *response, const rate_t *rate, const char *what) {
  uint64_t now_ns = clock_now_ns();
  int64_t per_minute = atomic_load(&rate->per_minute);
  char name[48], value[48];
  if (per_minute == 0) return;
  snprintf(name, sizeof name, "x-ratelimit-limit-%s", what);
  snprintf(value, sizeof value, "%lld", (long long)per_minute);
  add(response, name, value);
  snprintf(name, sizeof name, "x-ratelimit-remaining-%s", what);
  snprintf(value, sizeof value, "%lld", (long long)rate_left(rate, now_ns));
  add(response, name, value);
  double wait_s = rate_wait_s(rate, per_minute, now_ns);
  if (wait_s < 1) {
    snprintf(value, sizeof value, "%.0fms", ceil(wait_s * 1000));
  } else if (wait_s < 60) {
    snprintf(value, sizeof value, "%.3gs", ceil(wait_s * 10) / 10);
  } else {
    snprintf(value, sizeof value, "%.0fm%.0fs", floor(wait_s / 60), floor(fmod(wait_s, 60)));
  }
  snprintf(name, sizeof name, "x-ratelimit-reset-%s", what);
  add(response, name, value);
}

/* Adds the headers that every answer has. */
static void add_common(http_exchange_t *exchange, struct MHD_Response *response) {
  const exchange_t *public = &exchange->public;
  const char *label = public->route != NULL ? public->route->label : "";
  add(response, "x-request-id", public->request_id);
  if (public->wire == WIRE_ANTHROPIC) {
    add(response, "request-id", public->request_id);
  } else if (strncmp(label, "/v1/", 4) == 0) {
    char text[32];
    uint64_t elapsed_ms = (uv_hrtime() - exchange->start_ns) / 1000000;
    snprintf(text, sizeof text, "%llu", (unsigned long long)elapsed_ms);
    add(response, "openai-processing-ms", text);
    add(response, "openai-version", "2020-10-01");
  }
  if (public->shows_rates && public->key != NULL) {
    add_rate(response, &public->key->rates->requests, "requests");
    add_rate(response, &public->key->rates->tokens, "tokens");
  }
  if (exchange->origin != NULL) {
    add(response, "Access-Control-Allow-Origin", exchange->origin);
    add(response, "Vary", "Origin");
    add(response, "Access-Control-Expose-Headers",
        "x-request-id, openai-processing-ms, Retry-After");
  }
  if (exchange->close || exchange->http->server->phase >= SERVER_LEAVING) {
    add(response, MHD_HTTP_HEADER_CONNECTION, "close");
  }
  for (int i = 0; i < exchange->header_count; i++) {
    add(response, exchange->headers[i].name, exchange->headers[i].value);
  }
}

/* Completes a response; false if there is none. */
static bool finish(http_exchange_t *exchange, struct MHD_Response *response, int status,
                   const char *content_type) {
  if (response == NULL) return false;
  if (content_type != NULL) add(response, MHD_HTTP_HEADER_CONTENT_TYPE, content_type);
  add_common(exchange, response);
  exchange->response = response;
  exchange->status = status;
  return true;
}

bool reply_make(http_exchange_t *exchange, int status, const char *content_type, char *body,
                size_t length) {
  struct MHD_Response *response =
      MHD_create_response_from_buffer(length, body, MHD_RESPMEM_MUST_FREE);
  if (response == NULL) free(body);
  exchange->bytes_out = length;
  return finish(exchange, response, status, content_type);
}

bool reply_make_fixed(http_exchange_t *exchange, int status, const char *type, const void *bytes,
                      size_t length) {
  /* The library's type for bytes that it does not change has no const. */
  struct MHD_Response *response =
      MHD_create_response_from_buffer(length, (void *)(uintptr_t)bytes, MHD_RESPMEM_PERSISTENT);
  exchange->bytes_out = length;
  return finish(exchange, response, status, type);
}

bool reply_make_out(http_exchange_t *exchange, const char *content_type) {
  size_t length = exchange->out_end - exchange->out_start;
  struct MHD_Response *response = MHD_create_response_from_buffer(
      length, exchange->out + exchange->out_start, MHD_RESPMEM_PERSISTENT);
  return finish(exchange, response, 200, content_type);
}

bool reply_make_pieces(http_exchange_t *exchange, const char *content_type,
                       MHD_ContentReaderCallback reader) {
  enum { BLOCK_BYTES = 16 * 1024 }; /* used for HTTP/1.0 only, see reply_make_stream */
  struct MHD_Response *response =
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, reader, exchange, NULL);
  if (response != NULL && strcmp(exchange->public.method, "HEAD") == 0) {
    /* libmicrohttpd 0.9.75 ends the answer to HEAD with the last chunk of a body. */
    MHD_set_response_options(response, MHD_RF_HTTP_1_0_SERVER, MHD_RO_END);
  }
  return finish(exchange, response, 200, content_type);
}

bool reply_make_stream(http_exchange_t *exchange, MHD_ContentReaderCallback reader) {
  /* The library keeps this block as long as the stream, and uses it for HTTP/1.0 only: the chunks
   * of HTTP/1.1 are made in the memory pool of the connection. */
  enum { BLOCK_BYTES = 128 };
  struct MHD_Response *response =
      MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, BLOCK_BYTES, reader, exchange, NULL);
  if (response == NULL) return false;
  add(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
  add(response, "X-Accel-Buffering", "no");
  bool lines = exchange->public.wire == WIRE_OLLAMA;
  return finish(exchange, response, 200,
                lines ? "application/x-ndjson" : "text/event-stream; charset=utf-8");
}

/* Returns the seconds until a retry makes sense; 0 = send no Retry-After. */
static int retry_after_s(const http_exchange_t *exchange, int code) {
  const engine_t *engine = exchange->http->server->engine;
  if (exchange->public.retry_after_s > 0) return exchange->public.retry_after_s;
  switch (code) {
  case ERR_RATE_LIMITED:
  case ERR_QUEUE_FULL:
  case ERR_QUEUE_TIMEOUT: return engine != NULL ? engine_retry_after_s(engine) : 1;
  case ERR_MODEL_LOADING:
  case ERR_OVERLOADED: return 2;
  case ERR_DRAINING:
  case ERR_DEVICE_FAILED:
  case ERR_ENGINE_FAILED: return 5;
  default: return 0;
  }
}

char *exchange_error_body(const exchange_t *public, const inferd_error_t *error, size_t *length) {
  bool numeric = strcmp(public->server->config->error_code, "status") == 0;
  switch (public->wire) {
  case WIRE_ANTHROPIC: return error_body_messages(error, public->request_id, length);
  case WIRE_OLLAMA: return error_body_ollama(error, length);
  case WIRE_OPENAI: break;
  }
  return error_body(error, numeric, length);
}

bool reply_make_error(http_exchange_t *exchange, const inferd_error_t *error) {
  size_t length = 0;
  char *body = exchange_error_body(&exchange->public, error, &length);
  if (body == NULL) return false;
  int status = error_http_status(error->code);
  exchange->code = error_openai_code(error->code);
  error_quote(exchange->param, sizeof exchange->param, error->param, strlen(error->param));
  if (!reply_make(exchange, status, "application/json", body, length)) return false;

  struct MHD_Response *response = exchange->response;
  char text[32];
  int seconds = retry_after_s(exchange, error->code);
  if (seconds > 0) {
    snprintf(text, sizeof text, "%d", seconds);
    add(response, MHD_HTTP_HEADER_RETRY_AFTER, text);
    snprintf(text, sizeof text, "%d", seconds * 1000);
    add(response, "retry-after-ms", text);
  }
  if (status == 401) add(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer");
  if (status == 405 && exchange->allow != NULL) {
    add(response, MHD_HTTP_HEADER_ALLOW, exchange->allow);
  }
  /* The SDKs retry 408, 409, 429 and every status from 500 on unless x-should-retry says no. */
  bool curable = status == 408 || status == 429 || status == 503;
  if (error->code == ERR_DEVICE_FAILED) {
    add(response, "x-should-retry", "true"); /* a supervisor restarts the server */
  } else if (!curable) {
    add(response, "x-should-retry", "false");
  }
  return true;
}
