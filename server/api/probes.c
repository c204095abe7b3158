/* probes.c: /livez, /readyz, /health, /ping and /metrics, answered from atomics and counters.
 *
 * Loop thread; never waits for the engine. Alive means that the process and the engine make
 * progress, also while the model loads and while the server drains. Ready means that the server
 * accepts requests.
 */
#include "engine/base/clock.h"
#include "server/completion/lora_table.h"
#include "server/http/reply_json.h"
#include "server/observe/health.h"
#include "server/observe/metrics.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void reply_not_ready(exchange_t *exchange, const char *status) {
  const server_t *server = exchange->server;
  cJSON *object = cJSON_CreateObject();
  int retry_s = 5;
  cJSON_AddStringToObject(object, "status", status);
  if (strcmp(status, "loading") == 0 && server->models == NULL) {
    double progress = engine_progress(server->engine);
    double spent = (double)(clock_now_ns() - server->start_ns) * 1e-9;
    double eta = progress > 0.01 ? ceil(spent * (1 - progress) / progress) : 0;
    cJSON_AddNumberToObject(object, "progress", floor(progress * 100 + 0.5) / 100);
    if (progress > 0.01) {
      cJSON_AddNumberToObject(object, "eta_s", eta);
    } else {
      cJSON_AddNullToObject(object, "eta_s");
    }
    retry_s = eta < 1 ? 1 : eta > 120 ? 120 : (int)eta;
  }
  char seconds[16];
  snprintf(seconds, sizeof seconds, "%d", retry_s);
  exchange_header(exchange, "Retry-After", seconds);
  reply_json(exchange, 503, object);
}

static void reply_ok(exchange_t *exchange) {
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "status", "ok");
  reply_json(exchange, 200, object);
}

void api_livez(exchange_t *exchange) {
  if (strcmp(health_state(exchange->server), "failed") == 0) {
    reply_not_ready(exchange, "failed");
  } else {
    reply_ok(exchange);
  }
}

void api_readyz(exchange_t *exchange) {
  const char *state = health_state(exchange->server);
  if (strcmp(state, "ready") == 0) {
    reply_ok(exchange);
  } else {
    reply_not_ready(exchange, state);
  }
}

/* A page on its way to a client. */
typedef struct page_reply {
  char *text;
  size_t length, given;
  charge_t charge;
} page_reply_t;

static bool print_page(void *owner, buffer_t *out, size_t room) {
  page_reply_t *reply = owner;
  size_t n = MIN(room, reply->length - reply->given);
  buffer_append(out, reply->text + reply->given, n);
  reply->given += n;
  return reply->given < reply->length;
}

static void free_page(void *owner) {
  page_reply_t *reply = owner;
  free(reply->text);
  charge_drop(&reply->charge);
  free(reply);
}

/* The page may need no key, and a client may take it as slowly as any answer. Operators look at it
 * when requests hold all the memory that they may hold, so a few go out all the same. */
static void reply_page(exchange_t *exchange, const char *type, char *text, size_t length) {
  page_reply_t *reply = text != NULL ? calloc(1, sizeof *reply) : NULL;
  inferd_error_t error;
  if (reply == NULL) {
    free(text);
    reply_no_memory(exchange);
    return;
  }
  *reply = (page_reply_t){text, length, 0,
                          charge_open(exchange->server->ledger, exchange->source, LEDGER_reply)};
  /* Its text, and what is charged while the first piece of it is printed. */
  if (charge_resize(&reply->charge, length + 2 * REPLY_TURN_BYTES) || exchange_spare(exchange)) {
    (void)charge_resize(&reply->charge, MIN(reply->charge.bytes, length));
    exchange_reply_pieces(exchange, type, (pieces_t){print_page, free_page, reply});
    return;
  }
  (void)ledger_refuse(&reply->charge, &error);
  free_page(reply);
  exchange_error(exchange, &error);
}

void api_metrics(exchange_t *exchange) {
  bool open = metrics_wants_open(exchange_request_header(exchange, "Accept"));
  completions_t *live = exchange->server->live; /* NULL: of the parent of several models */
  grammar_cache_stats_t grammars = {0};
  lora_usage_t loras = {0};
  size_t length = 0;
  bool has_loras = live != NULL && live->loras != NULL;
  if (live != NULL) grammars = grammar_cache_stats(live->grammars);
  if (has_loras) lora_usage(live, &loras);
  char *page = metrics_render(exchange->server, &grammars, has_loras ? &loras : NULL, open,
                              exchange_turn(exchange), &length);
  buffer_free(&loras.running);
  buffer_free(&loras.waiting);
  reply_page(exchange,
             open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                  : "text/plain; version=0.0.4; charset=utf-8",
             page, length);
}
