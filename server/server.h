/* server.h: the one context of the loop thread: configuration, engine, loop, transport.
 *
 * Owned by serve.c. Everything that lives on the loop thread hangs on it; the engine thread never
 * sees it.
 */
#ifndef INFERD_SERVER_SERVER_H
#define INFERD_SERVER_SERVER_H

#include "config/config.h"
#include "engine/engine.h"
#include "server/http/http.h"

#include <uv.h>

typedef struct server {
  config_t *config;
  uv_loop_t *loop;
  engine_t *engine;
  http_t *http;
  struct auth *auth;        /* server/http/auth.c: API keys */
  struct metrics *metrics;  /* server/observe/metrics.c */
  struct completions *live; /* server/completion/live.h: what is in flight */
  uv_async_t engine_wake;   /* engine -> loop, once per step */
  bool draining;
  uint64_t start_ns;  /* monotonic */
  int64_t start_time; /* unix seconds: `created` of the model cards */
  char system_fingerprint[48];
} server_t;

/* A route: one row of the table in route.c. Any route without OPEN needs a key when keys exist. */
typedef enum route_flag {
  ROUTE_OPEN = 1,    /* no key: /livez, /readyz, /health, /ping */
  ROUTE_PREFIX = 2,  /* the path continues: path_tail */
  ROUTE_JSON = 4,    /* needs a JSON body: Content-Type and size are checked */
  ROUTE_ENGINE = 8,  /* needs a READY engine that is not draining: else 503 */
  ROUTE_METRICS = 16 /* key by --metrics-auth */
} route_flag_t;

typedef struct route {
  const char *method; /* GET routes also answer HEAD */
  const char *path;
  unsigned flags;
  const char *label; /* for metrics and the access log: canonical path */
  void (*handle)(exchange_t *exchange);
} route_t;

/* route.c: normalises the path (doubled and trailing slashes, query dropped) and finds the row.
 * NULL: *allow is NULL (404) or the Allow list of the path (405). *tail is malloc'ed for prefix
 * routes (percent-decoded; the caller frees it), else NULL. */
const route_t *route_find(const char *method, const char *path, const char **allow, char **tail);

/* Handlers, one file each (server/api and server/completion). */
void api_completions(exchange_t *exchange);
void api_chat_completions(exchange_t *exchange);
void api_models(exchange_t *exchange);
void api_model(exchange_t *exchange);
void api_tokenize(exchange_t *exchange);
void api_detokenize(exchange_t *exchange);
void api_livez(exchange_t *exchange);
void api_readyz(exchange_t *exchange); /* also /health and /ping */
void api_version(exchange_t *exchange);
void api_metrics(exchange_t *exchange);
void api_load_lora(exchange_t *exchange);
void api_unload_lora(exchange_t *exchange);
void api_not_yet(exchange_t *exchange); /* embeddings: 400 unsupported_endpoint until built */

/* life.c: the set of all completions. */
int completions_new(server_t *server);        /* fills server->live; 0 or ERR_NO_MEMORY */
void completions_free(server_t *server);      /* after the last completion has ended */
int completions_live(const server_t *server); /* HTTP requests in flight */
/* When the engine last got work while it had none, monotonic; 0 = it has none. */
uint64_t completions_busy_since_ns(const server_t *server);

/* events.c: what the engine and the clock do to them. */
void completions_drain_events(server_t *server); /* called from engine_wake, once per step */
void completions_tick(server_t *server, uint64_t now_ns); /* SSE pings; every 250 ms */

/* metrics.c: counters of the loop thread; the page joins them with engine_stats. `model` is the
 * name in the labels and is copied. NULL when memory is short. */
struct metrics *metrics_new(server_t *server, const char *model);
void metrics_free(struct metrics *metrics);
void metrics_http(server_t *server, const char *route, const char *method, int status,
                  uint64_t duration_ns);

void server_drained(server_t *server); /* serve.c: everything in flight has ended while draining */

#endif
