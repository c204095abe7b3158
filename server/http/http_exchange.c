/* http_exchange.c: one request and its answer.
 *
 * Loop thread. libmicrohttpd calls exchange_access when the headers are complete, for every piece
 * of the body, when the body is complete, and again after every resume. A response can be
 * queued only in the first of these calls (then the connection ends) or after the whole body. Only
 * exchange_completed frees an exchange. Next: the handler, then http_answer.c.
 */
#include "server/http/http_exchange.h"
#include "server/http/http_head.h"
#include "server/http/http_read.h"

#include "engine/base/check.h"
#include "engine/base/hex.h"
#include "engine/base/util.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

/* Echoed bytes, within ANSWER_HEAD_BYTES. The headers of the SDKs take about 250. */
enum { ALLOW_HEADERS_MAX = 512 };
enum { BODY_BYTES_FIRST = 4096, BODY_BYTES_TRUSTED = 64 * 1024 };

/* The one place that changes the state. */
void exchange_move(http_exchange_t *exchange, exchange_state_t to) {
#define FROM(state) (1u << (state))
  static const unsigned allowed_from[] = {
      [EXCHANGE_READING] = 0,
      [EXCHANGE_HANDLING] = FROM(EXCHANGE_READING),
      [EXCHANGE_ANSWERED] = FROM(EXCHANGE_READING) | FROM(EXCHANGE_HANDLING),
      [EXCHANGE_STREAMING] = FROM(EXCHANGE_HANDLING),
      [EXCHANGE_ENDING] = FROM(EXCHANGE_STREAMING),
      [EXCHANGE_GONE] = FROM(EXCHANGE_READING) | FROM(EXCHANGE_HANDLING) | FROM(EXCHANGE_ANSWERED) |
                        FROM(EXCHANGE_STREAMING) | FROM(EXCHANGE_ENDING),
  };
#undef FROM
  CHECK((allowed_from[to] & (1u << exchange->state)) != 0);
  exchange->state = to;
}

void exchange_suspend(http_exchange_t *exchange) {
  CHECK(!exchange->suspended);
  exchange->suspended = true;
  exchange->http->suspended++;
  MHD_suspend_connection(exchange->mhd);
}

void exchange_wake(http_exchange_t *exchange) {
  http_mark(exchange->http, false);
  if (!exchange->suspended) return;
  exchange->suspended = exchange->parked = false;
  exchange->http->suspended--;
  MHD_resume_connection(exchange->mhd);
}

void exchange_tell_gone(http_exchange_t *exchange, const char *cause) {
  void (*on_gone)(exchange_t *, const char *) = exchange->public.on_gone;
  exchange->public.on_gone = NULL;
  exchange->on_sent = NULL;
  bool waiting = exchange->state == EXCHANGE_HANDLING || exchange->state == EXCHANGE_STREAMING;
  if (waiting && on_gone != NULL) on_gone(&exchange->public, cause);
}

void exchange_cut(http_exchange_t *exchange, const char *cause) {
  if (exchange->state == EXCHANGE_GONE) return;
  exchange_tell_gone(exchange, cause);
  exchange->cause = cause;
  loan_cut(exchange);
  exchange_move(exchange, EXCHANGE_GONE);
  if (exchange->suspended) {
    exchange_wake(exchange);
  } else {
    connection_kill(exchange->connection);
  }
}

void exchange_doom(http_exchange_t *exchange, const char *cause) {
  if (exchange->doom != NULL) return;
  exchange->doom = cause;
  exchange->next_doomed = exchange->http->doomed;
  exchange->http->doomed = exchange;
  http_mark(exchange->http, true);
}

void exchange_cut_doomed(http_t *http) {
  while (http->doomed != NULL) {
    http_exchange_t *exchange = http->doomed;
    http->doomed = exchange->next_doomed;
    exchange_cut(exchange, exchange->doom);
  }
}

/* ---- request ---- */

void request_id_draw(char id[REQUEST_ID_MAX + 1]) {
  uint8_t random[16];
  if (getrandom(random, sizeof random, GRND_NONBLOCK) != (ssize_t)sizeof random) {
    uint64_t fallback[2] = {uv_hrtime(), (uint64_t)(uintptr_t)id};
    memcpy(random, fallback, sizeof random);
  }
  for (int i = 0; i < 16; i++) {
    id[2 * i] = hex_digit(random[i] >> 4);
    id[2 * i + 1] = hex_digit(random[i] & 15);
  }
  id[32] = '\0';
}

static void request_id_set(http_exchange_t *exchange) {
  static const char *const names[] = {"X-Request-Id", "X-Client-Request-Id"};
  char *id = exchange->public.request_id;
  for (int n = 0; n < 2; n++) {
    const char *given = exchange_request_header(&exchange->public, names[n]);
    size_t length = given != NULL ? strlen(given) : 0;
    while (length > 0 && (given[length - 1] == ' ' || given[length - 1] == '\t')) length--;
    bool ok = length >= 1 && length <= REQUEST_ID_MAX;
    for (size_t i = 0; ok && i < length; i++) {
      ok = isalnum((unsigned char)given[i]) != 0 || strchr("._:-", given[i]) != NULL;
    }
    if (ok) {
      memcpy(id, given, length);
      id[length] = '\0';
      return;
    }
  }
  request_id_draw(id);
}

static http_exchange_t *exchange_new(http_t *http, connection_t *connection,
                                     struct MHD_Connection *mhd, const char *method) {
  http_exchange_t *exchange = calloc(1, sizeof *exchange);
  if (exchange == NULL) return NULL;
  exchange->http = http;
  exchange->connection = connection;
  exchange->mhd = mhd;
  exchange->start_ns = uv_hrtime();
  uint64_t now_ms = uv_now(http->loop);
  (void)pace_is_slow(&exchange->body_pace, now_ms, 0);
  exchange->public.server = http->server;
  exchange->public.method = method;
  exchange->public.path_tail = "";
  exchange->public.body = "";
  exchange->public.log = (exchange_log_t)EXCHANGE_LOG_UNKNOWN;
  loan_begin(exchange);
  request_id_set(exchange);
  trace_context_read(exchange_request_header(&exchange->public, "traceparent"), &exchange->trace);
  connection->current = exchange;
  connection->deadline_ms = now_ms + (uint64_t)(http->server->config->body_timeout * 1000);
  return exchange;
}

static enum MHD_Result queue_response(http_exchange_t *exchange) {
  struct MHD_Response *response = exchange->response;
  exchange->response = NULL;
  exchange->progress_ms = uv_now(exchange->http->loop);
  enum MHD_Result result = MHD_queue_response(exchange->mhd, (unsigned)exchange->status, response);
  MHD_destroy_response(response);
  return result;
}

/* Makes the answer to a refused request; false when memory is short. */
static bool refuse(http_exchange_t *exchange, const inferd_error_t *error) {
  if (!reply_make_error(exchange, error)) return false;
  exchange_move(exchange, EXCHANGE_ANSWERED);
  return true;
}

static bool answer_options(http_exchange_t *exchange) {
  char *empty = calloc(1, 1);
  if (empty == NULL) return false;
  exchange_header(&exchange->public, "Allow", exchange->allow);
  if (exchange->origin != NULL) {
    exchange_header(&exchange->public, "Access-Control-Allow-Methods", exchange->allow);
    /* The SDKs send headers of their own (x-stainless-os ...); none of them is dangerous. */
    const char *wanted =
        exchange_request_header(&exchange->public, "Access-Control-Request-Headers");
    if (wanted != NULL && strlen(wanted) <= ALLOW_HEADERS_MAX) {
      exchange_header(&exchange->public, "Access-Control-Allow-Headers", wanted);
    }
    exchange_header(&exchange->public, "Access-Control-Max-Age", "600");
  }
  if (!reply_make(exchange, 204, NULL, empty, 0)) return false;
  exchange_move(exchange, EXCHANGE_ANSWERED);
  return true;
}

/* A request that strict.c has not found between the same bytes is no request: then the library
 * takes them apart in another way, and where the one before ended is not certain. */
static int begin_check(http_exchange_t *exchange, const char *path, inferd_error_t *error) {
  connection_t *connection = exchange->connection;
  if (++connection->requests <= connection->strict.heads) {
    return check_request(exchange, path, error);
  }
  exchange->close = connection->linger = true;
  log_line(LOG_ERROR, "http",
           "libmicrohttpd finds a request where the check of its bytes found none");
  return error_set(error, ERR_INTERNAL, NULL, "Where the request before ended is not certain.");
}

/* The first call for a request: its headers are complete. If a request with a body is refused, the
 * error is sent at once and the connection ends, so that neither the body is read nor 100 Continue
 * sent. If it has no body, the error is sent in the next call, which keeps the connection. */
static enum MHD_Result exchange_begin(http_t *http, struct MHD_Connection *mhd, const char *path,
                                      const char *method, void **context) {
  const union MHD_ConnectionInfo *info =
      MHD_get_connection_info(mhd, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
  if (info == NULL || info->socket_context == NULL || http->stopping) return MHD_NO;
  http_exchange_t *exchange = exchange_new(http, info->socket_context, mhd, method);
  if (exchange == NULL) return MHD_NO;
  *context = exchange;

  inferd_error_t error = {0};
  int code = begin_check(exchange, path, &error);
  if (code == 0 && exchange->public.route == NULL) {
    if (!answer_options(exchange)) return MHD_NO;
  } else if (code != 0 && !refuse(exchange, &error)) {
    return MHD_NO;
  }
  if (code == 0 || !check_has_body(exchange)) return MHD_YES;
  exchange->connection->linger = true;
  return queue_response(exchange);
}

/* Ends a request while its body arrives. libmicrohttpd cannot send a response at this point, so the
 * error is written to the socket directly. */
enum MHD_Result exchange_refuse_body(http_exchange_t *exchange, const inferd_error_t *error) {
  exchange->status = error_http_status(error->code);
  exchange->code = error_openai_code(error->code);
  connection_raw_error(exchange->connection, error, exchange->public.request_id);
  exchange->connection->linger = true;
  exchange_move(exchange, EXCHANGE_GONE);
  return MHD_NO;
}

/* The size of a block for `needed` bytes: it doubles, up to what was announced or is allowed. An
 * announcement alone gets BODY_BYTES_TRUSTED. */
static size_t body_room(const http_exchange_t *exchange, size_t needed) {
  const char *length = exchange_request_header(&exchange->public, "Content-Length");
  size_t announced = length != NULL ? (size_t)strtoull(length, NULL, 10) : exchange->body_limit;
  size_t capacity = MAX(needed, 2 * exchange->body_capacity);
  if (exchange->body_capacity == 0) {
    capacity = length != NULL ? MIN(announced + 1, BODY_BYTES_TRUSTED) : BODY_BYTES_FIRST;
  }
  return MAX(needed, MIN(capacity, announced + 1));
}

/* Makes room for `more` bytes and a NUL; the charge comes before the memory. */
static int body_grow(http_exchange_t *exchange, size_t more, inferd_error_t *error) {
  held_t *body = &exchange->body;
  size_t needed = body->length + more + 1;
  if (needed <= exchange->body_capacity) return 0;
  size_t capacity = body_room(exchange, needed);
  if (exchange->body_capacity == 0) {
    body->charge =
        charge_open(exchange->http->server->ledger, exchange->public.source, LEDGER_body);
  }
  if (!charge_resize(&body->charge, capacity)) return ledger_refuse(&body->charge, error);
  char *bytes = realloc(body->bytes, capacity);
  if (bytes == NULL) {
    (void)charge_resize(&body->charge, exchange->body_capacity);
    return error_set(error, ERR_OVERLOADED, NULL, "The server is short of memory.");
  }
  body->bytes = bytes;
  exchange->body_capacity = capacity;
  return 0;
}

/* Takes a piece of the body, always all of it: libmicrohttpd 0.9.75 would spin on a rest. */
static enum MHD_Result exchange_body(http_exchange_t *exchange, const char *bytes, size_t *size) {
  size_t length = *size;
  *size = 0;
  if (exchange->state != EXCHANGE_READING)
    return MHD_YES; /* the request was refused: drop its body */
  inferd_error_t error = {0};
  int code = 0;
  if (length > exchange->body_limit - exchange->body.length) {
    code = error_set(&error, ERR_BODY_TOO_LARGE, NULL, "The body is larger than %zu bytes.",
                     exchange->body_limit);
  } else {
    code = body_grow(exchange, length, &error);
  }
  if (code != 0) return exchange_refuse_body(exchange, &error);
  memcpy(exchange->body.bytes + exchange->body.length, bytes, length);
  exchange->body.length += length;
  exchange->body.bytes[exchange->body.length] = '\0';
  exchange->bytes_in = exchange->body.length;
  return MHD_YES;
}

static enum MHD_Result exchange_handle(http_exchange_t *exchange) {
  exchange_t *public = &exchange->public;
  http_t *http = exchange->http;
  inferd_error_t error = {0};
  if (http->stopping) return MHD_NO;
  int code = check_state(exchange, &error); /* the state may have changed while the body arrived */
  if (code != 0) return refuse(exchange, &error) ? queue_response(exchange) : MHD_NO;
  bool hung_up =
      exchange->connection->peer_closed && strcmp(http->server->config->half_close, "cancel") == 0;
  if (hung_up && (public->route->flags & ROUTE_ENGINE) != 0) {
    exchange->cause = "client_gone";
    exchange_move(exchange, EXCHANGE_GONE);
    return MHD_NO;
  }
  if (exchange->body.bytes != NULL) public->body = exchange->body.bytes;
  public->body_length = exchange->body.length;
  public->arrival_ns = uv_hrtime();
  exchange_move(exchange, EXCHANGE_HANDLING);
  exchange->counted = true;
  http->in_flight++;
  exchange->in_handler = true;
  void (*handle)(exchange_t *) =
      http->server->models != NULL ? models_handle : public->route->handle;
  handle(public);
  exchange->in_handler = false;
  if (exchange->state == EXCHANGE_GONE) return MHD_NO;
  if (exchange->response != NULL) return queue_response(exchange);
  /* A handler that answers later must set on_gone: else it would not learn that the client left. */
  CHECK(public->on_gone != NULL);
  exchange_suspend(exchange);
  return MHD_YES;
}

enum MHD_Result exchange_access(void *context, struct MHD_Connection *mhd, const char *url,
                                const char *method, const char *version, const char *upload,
                                size_t *upload_size, void **request_context) {
  http_exchange_t *exchange = *request_context;
  if (exchange == NULL) {
    enum MHD_Result result = exchange_begin(context, mhd, url, method, request_context);
    exchange = *request_context;
    if (exchange != NULL) exchange->chunked = strcmp(version, "HTTP/1.1") == 0;
    return result;
  }
  if (*upload_size != 0) return exchange_body(exchange, upload, upload_size);
  switch (exchange->state) {
  case EXCHANGE_READING: return exchange_handle(exchange);
  case EXCHANGE_HANDLING: exchange_suspend(exchange); return MHD_YES;
  case EXCHANGE_ANSWERED:
  case EXCHANGE_STREAMING:
  case EXCHANGE_ENDING:
    if (exchange->response != NULL) return queue_response(exchange);
    return MHD_NO;
  case EXCHANGE_GONE: break;
  }
  return MHD_NO;
}

/* ---- the end ---- */

static const char *known_method(const char *method) {
  static const char *const known[] = {"GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PATCH"};
  for (size_t i = 0; i < ARRAY_LEN(known); i++) {
    if (strcmp(method, known[i]) == 0) return known[i];
  }
  return "OTHER";
}

/* Returns true for the answer of a probe, or of a scrape, that says the same as the last one. */
static bool repeats_probe(http_t *http, const route_t *route, int status) {
  bool scrape = route != NULL && (route->flags & ROUTE_METRICS) != 0;
  bool probe = scrape || (route != NULL && (route->flags & ROUTE_OPEN) != 0);
  if (!probe || (status != 200 && status != 503)) return false;
  int *last = &http->probe_status[scrape ? 2 : strcmp(route->label, "/livez") == 0];
  bool same = *last == status;
  *last = status;
  return same;
}

/* Writes the time of a stage, which ends at `to_ns`, and moves *from_ns there; nothing for a stage
 * that did not happen. */
static void add_stage(char *out, size_t capacity, const char *name, uint64_t *from_ns,
                      uint64_t to_ns) {
  size_t used = strlen(out);
  if (to_ns < *from_ns) return;
  snprintf(out + used, capacity - used, ", %s %.3f s", name, (double)(to_ns - *from_ns) * 1e-9);
  *from_ns = to_ns;
}

/* Says where the time of a slow request went. Every moment between its headers and its end is in
 * one of the stages; of several prompts those of the first are shown. */
static void report_slow(const http_exchange_t *exchange, const access_t *access) {
  const exchange_t *public = &exchange->public;
  const exchange_log_t *log = access->log;
  double limit_s = exchange->http->server->config->slow_request;
  double seconds = (double)access->duration_ns * 1e-9;
  if (limit_s <= 0 || seconds < limit_s) return;
  char stages[200] = "";
  uint64_t from_ns = exchange->start_ns, end_ns = exchange->start_ns + access->duration_ns;
  add_stage(stages, sizeof stages, "read", &from_ns, public->arrival_ns);
  add_stage(stages, sizeof stages, "prepare", &from_ns, log->queued_ns);
  add_stage(stages, sizeof stages, "queue", &from_ns, log->scheduled_ns);
  add_stage(stages, sizeof stages, "prefill", &from_ns, log->first_token_ns);
  add_stage(stages, sizeof stages, "decode", &from_ns, log->last_token_ns);
  const char *last = log->last_token_ns > 0   ? "write"
                     : log->queued_ns > 0     ? "until its end"
                     : public->arrival_ns > 0 ? "answer"
                                              : "read";
  add_stage(stages, sizeof stages, last, &from_ns, end_ns);
  log_line(LOG_WARN, "slow-request",
           "request %s took %.3f s, slow_request is %g s: %s %s, status %d%s; %d prompt tokens, %d "
           "generated",
           access->id, seconds, limit_s, access->method, access->route, access->status, stages,
           MAX(log->prompt_tokens, 0), MAX(log->generated_tokens, 0));
}

/* Hands the request to the tracer, unless it is a probe, a scrape or of no route. */
static void report_trace(const http_exchange_t *exchange, const access_t *access) {
  enum { QUIET = ROUTE_OPEN | ROUTE_METRICS | ROUTE_PAGE };
  const exchange_t *public = &exchange->public;
  const exchange_log_t *log = access->log;
  struct tracer *tracer = exchange->http->server->tracer;
  span_record_t record = {.context = exchange->trace};
  if (public->route == NULL || (public->route->flags & QUIET) != 0) return;
  if (!tracer_samples(tracer, &record.context)) return;
  const char *state = exchange_request_header(public, "tracestate");
  if (record.context.parent_id[0] != '\0' && state != NULL && strlen(state) <= TRACE_STATE_MAX) {
    snprintf(record.trace_state, sizeof record.trace_state, "%s", state);
  }
  snprintf(record.request_id, sizeof record.request_id, "%s", public->request_id);
  snprintf(record.model, sizeof record.model, "%s", log->model);
  record.method = access->method;
  record.route = access->route;
  record.code = access->code;
  record.cause = access->cause;
  record.finish = log->finish;
  record.status = access->status;
  record.stream = log->stream;
  record.prompt_tokens = log->prompt_tokens;
  record.cached_tokens = log->cached_tokens;
  record.generated_tokens = log->generated_tokens;
  record.start_ns = exchange->start_ns;
  record.queued_ns = log->queued_ns;
  record.scheduled_ns = log->scheduled_ns;
  record.first_token_ns = log->first_token_ns;
  record.last_token_ns = log->last_token_ns;
  record.end_ns = exchange->start_ns + access->duration_ns;
  tracer_add(tracer, &record);
}

static void record(const http_exchange_t *exchange) {
  const exchange_t *public = &exchange->public;
  const char *route = public->route != NULL ? public->route->label : "other";
  const char *method = known_method(public->method);
  uint64_t duration_ns = uv_hrtime() - exchange->start_ns;
  bool answered = exchange->state == EXCHANGE_ANSWERED || exchange->state == EXCHANGE_ENDING ||
                  (exchange->state == EXCHANGE_GONE && exchange->status >= 400);
  int status = answered ? exchange->status : 499;
  metrics_http(exchange->http->server, route, method, status, duration_ns);
  access_t access = {.id = public->request_id,
                     .trace_id = exchange->trace.trace_id,
                     .peer = exchange->connection->peer_name,
                     .key = public->key != NULL ? public->key->name : "",
                     .method = method,
                     .route = route,
                     .path = exchange->path,
                     .code = exchange->code,
                     .param = exchange->param,
                     .cause = exchange->cause,
                     .status = status,
                     .duration_ns = duration_ns,
                     .bytes_in = exchange->bytes_in,
                     .bytes_out = exchange->bytes_out,
                     .log = &public->log,
                     .minor =
                         public->passed_on || repeats_probe(exchange->http, public->route, status)};
  log_access(&access);
  report_slow(exchange, &access);
  report_trace(exchange, &access);
  if (!log_wanted(LOG_DEBUG)) return;
  log_line(LOG_DEBUG, "stage", "id %s: %s, status %d, %llu bytes", public->request_id,
           answered ? "reply written" : "client gone", status,
           (unsigned long long)exchange->bytes_out);
}

static void exchange_free(http_exchange_t *exchange) {
  for (http_exchange_t **link = &exchange->http->doomed; *link != NULL;
       link = &(*link)->next_doomed) {
    if (*link == exchange) {
      *link = exchange->next_doomed;
      break;
    }
  }
  if (exchange->response != NULL) MHD_destroy_response(exchange->response);
  if (exchange->spare) exchange->http->spare_answers--;
  for (int i = 0; i < exchange->header_count; i++) {
    free(exchange->headers[i].name);
    free(exchange->headers[i].value);
  }
  held_free(&exchange->body);
  if (exchange->counted) exchange->http->in_flight--;
  api_key_release(exchange->public.key);
  pieces_free(exchange);
  loan_end(exchange);
  head_free(exchange);
  free(exchange->tail);
  free(exchange->path);
  free(exchange);
}

void exchange_completed(void *context, struct MHD_Connection *mhd, void **request_context,
                        enum MHD_RequestTerminationCode how) {
  (void)context, (void)mhd;
  http_exchange_t *exchange = *request_context;
  if (exchange == NULL) return;
  *request_context = NULL;
  connection_t *connection = exchange->connection;
  if (how != MHD_REQUEST_TERMINATED_COMPLETED_OK && exchange->cause == NULL) {
    exchange->cause = how == MHD_REQUEST_TERMINATED_TIMEOUT_REACHED   ? "timeout"
                      : how == MHD_REQUEST_TERMINATED_DAEMON_SHUTDOWN ? "shutdown"
                                                                      : "client_gone";
  }
  exchange_tell_gone(exchange, exchange->cause != NULL ? exchange->cause : "client_gone");
  direct_forget(exchange);
  if (exchange->suspended) exchange->http->suspended--;
  record(exchange);
  http_t *http = exchange->http;
  connection->current = NULL;
  connection->request_begun = false;
  connection->deadline_ms =
      uv_now(http->loop) + (uint64_t)(http->server->config->keep_alive_timeout * 1000);
  exchange_free(exchange);
  read_answered(connection);
  http_mark(http, false);
}
