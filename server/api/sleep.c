/* sleep.c: /sleep, /wake_up and /is_sleeping, in vLLM's words.
 *
 * Loop thread. With several models their parent answers (server/models/list.c). One alone has its
 * device give the memory back, with --sleep-space: both routes answer when it is done.
 */
#include "server/api/sleep.h"

#include "server/http/reply_json.h"
#include "server/observe/log.h"

#include <stdlib.h>
#include <string.h>

/* A client that waits for its wish to be settled. */
struct sleep_wait {
  sleep_wait_t *next;
  exchange_t *exchange;
  unsigned asked;
  bool sleeps; /* what was wished */
};

/* What runs ends first. */
static int check_mode(const exchange_t *exchange, inferd_error_t *error) {
  const char *mode = exchange_query(exchange, "mode");
  char quoted[64];
  if (mode == NULL || strcmp(mode, "wait") == 0) return 0;
  return error_set(error, ERR_INVALID_VALUE, "mode",
                   "Invalid 'mode': %s is not 'wait'; what runs in the model ends first.",
                   error_quote(quoted, sizeof quoted, mode, strlen(mode)));
}

static int check(const exchange_t *exchange, bool sleeps, inferd_error_t *error) {
  const char *level = exchange_query(exchange, "level");
  char quoted[64];
  engine_sleep_t state;
  engine_asleep(exchange->server->engine, &state);
  if (!state.can)
    return error_set(error, ERR_UNSERVED_ROUTE, NULL,
                     "This server has one model, which stays in memory. On a GPU, --sleep-space "
                     "lets it give the device's memory back; with several models /sleep unloads "
                     "one: inferd serve MODEL MODEL.");
  if (sleeps && level != NULL && strcmp(level, "2") == 0)
    return error_set(error, ERR_INVALID_VALUE, "level",
                     "Invalid 'level': 2 drops the weights, which a server of one model keeps in "
                     "host memory: it is 1. With several models, 2 unloads one.");
  if (sleeps && level != NULL && strcmp(level, "1") != 0)
    return error_set(error, ERR_INVALID_VALUE, "level", "Invalid 'level': %s is not 1.",
                     error_quote(quoted, sizeof quoted, level, strlen(level)));
  return check_mode(exchange, error);
}

static void reply(exchange_t *exchange, const engine_sleep_t *state) {
  cJSON *object = cJSON_CreateObject();
  cJSON_AddBoolToObject(object, "is_sleeping", state->sleeps);
  cJSON_AddNumberToObject(object, "device_bytes_freed",
                          state->sleeps ? (double)state->given_bytes : 0);
  cJSON_AddNumberToObject(object, "host_bytes_kept", state->sleeps ? (double)state->host_bytes : 0);
  reply_json(exchange, 200, object);
}

static void finish(exchange_t *exchange, bool sleeps, const engine_sleep_t *state) {
  inferd_error_t error = {0};
  if (state->sleeps == sleeps) {
    reply(exchange, state);
    return;
  }
  if (state->code == 0)
    error_set(&error, ERR_OVERLOADED, NULL,
              sleeps ? "The model does not sleep: something has woken it."
                     : "The model sleeps: something has asked for it.");
  else
    error_set(&error, ERR_OVERLOADED, NULL,
              sleeps ? "The model does not sleep: there is no host memory for its weights. The log "
                       "says more."
                     : "The model sleeps on: the device has no memory for it. The log says more.");
  exchange_error(exchange, &error);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  sleep_wait_t **link = &exchange->server->sleep_waits, *wait;
  (void)cause;
  while ((wait = *link)->exchange != exchange) link = &wait->next;
  *link = wait->next;
  free(wait);
}

void sleep_settle(server_t *server) {
  engine_sleep_t state;
  if (server->sleep_waits == NULL) return;
  engine_asleep(server->engine, &state);
  for (sleep_wait_t **link = &server->sleep_waits, *wait; (wait = *link) != NULL;) {
    if ((int)(state.answered - wait->asked) < 0) {
      link = &wait->next;
      continue;
    }
    exchange_t *exchange = wait->exchange;
    bool sleeps = wait->sleeps;
    *link = wait->next;
    free(wait);
    exchange->on_gone = NULL;
    finish(exchange, sleeps, &state);
  }
}

static void ask(exchange_t *exchange, bool sleeps) {
  server_t *server = exchange->server;
  inferd_error_t error = {0};
  if (check(exchange, sleeps, &error) != 0) {
    exchange_error(exchange, &error);
    return;
  }
  sleep_wait_t *wait = calloc(1, sizeof *wait);
  if (wait == NULL) {
    reply_no_memory(exchange);
    return;
  }
  log_line(LOG_INFO, "sleep", "an operator wants the model %s", sleeps ? "asleep" : "awake");
  *wait = (sleep_wait_t){.next = server->sleep_waits,
                         .exchange = exchange,
                         .asked = engine_sleep(server->engine, sleeps),
                         .sleeps = sleeps};
  server->sleep_waits = wait;
  exchange->on_gone = on_gone;
}

void api_sleep(exchange_t *exchange) {
  if (exchange->server->models != NULL)
    models_sleep(exchange);
  else
    ask(exchange, true);
}

void api_wake_up(exchange_t *exchange) {
  if (exchange->server->models != NULL)
    models_wake(exchange);
  else
    ask(exchange, false);
}

void api_is_sleeping(exchange_t *exchange) {
  engine_sleep_t state;
  if (exchange->server->models != NULL) {
    models_is_sleeping(exchange);
    return;
  }
  engine_asleep(exchange->server->engine, &state);
  cJSON *object = cJSON_CreateObject();
  cJSON_AddBoolToObject(object, "is_sleeping", state.sleeps);
  reply_json(exchange, 200, object);
}
