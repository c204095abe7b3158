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

#include <math.h>
#include <stdio.h>
#include <string.h>

static void reply_not_ready(exchange_t *exchange, const char *status) {
  const server_t *server = exchange->server;
  cJSON *object = cJSON_CreateObject();
  int retry_s = 5;
  cJSON_AddStringToObject(object, "status", status);
  if (strcmp(status, "loading") == 0) {
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

void api_metrics(exchange_t *exchange) {
  bool open = metrics_wants_open(exchange_request_header(exchange, "Accept"));
  grammar_cache_stats_t grammars = grammar_cache_stats(exchange->server->live->grammars);
  completions_t *live = exchange->server->live;
  lora_usage_t loras = {0};
  size_t length = 0;
  if (live->loras != NULL) lora_usage(live, &loras);
  char *page = metrics_render(exchange->server, &grammars, live->loras != NULL ? &loras : NULL,
                              open, &length);
  buffer_free(&loras.running);
  buffer_free(&loras.waiting);
  if (page == NULL) {
    inferd_error_t error;
    error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
    exchange_error(exchange, &error);
    return;
  }
  exchange_reply(exchange, 200,
                 open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                      : "text/plain; version=0.0.4; charset=utf-8",
                 page, length);
}
