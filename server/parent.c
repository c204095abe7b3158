/* parent.c: the life of the parent of several models: open the port, serve, drain, end the
 * children.
 *
 * Loop thread (the main thread); there is no engine. Signals mean what they mean for one model
 * (serve.c): SIGTERM and SIGINT begin the end, SIGHUP reads keys and models again, SIGUSR1 opens
 * the log files again. Children are told the last two.
 */
#include "server/serve.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/http/auth.h"
#include "server/http/listen.h"
#include "server/keys/shared_rates.h"
#include "server/lanes/lanes.h"
#include "server/ledger/ledger.h"
#include "server/models/models.h"
#include "server/observe/crash.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"
#include "server/observe/notify.h"
#include "server/reload_answer.h"
#include "server/store/store.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ABORT_GRACE_MS = 1000, TICK_MS = 1000 };

static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
enum { SIGNAL_COUNT = ARRAY_LEN(signals) };

/* All state of the parent; a process has one. */
typedef struct parent {
  server_t server; /* first: on_drained converts its address */
  uv_loop_t loop;
  uv_signal_t signals[SIGNAL_COUNT];
  uv_timer_t tick, drain;
  bool aborting, told_ready, ending;
  uint64_t watchdog_ns, watchdog_sent_ns;
  int argc;
  char *const *argv;
} parent_t;

/* ---- the end ---- */

static void on_children_ended(void *context) {
  parent_t *parent = context;
  uv_stop(&parent->loop);
}

static void end_children(parent_t *parent) {
  if (parent->ending) return;
  parent->ending = true;
  runner_stop(&parent->server); /* else its lines would fail with their processes */
  models_stop(parent->server.models, on_children_ended, parent);
}

static void on_abort_deadline(uv_timer_t *timer) {
  end_children(timer->data);
}

static void abort_now(parent_t *parent, const char *why) {
  if (parent->aborting) return;
  parent->aborting = true;
  log_line(LOG_WARN, "stop", "%s: ending what runs", why);
  http_abort(parent->server.http);
  uv_timer_start(&parent->drain, on_abort_deadline, ABORT_GRACE_MS, 0);
}

static void on_drain_deadline(uv_timer_t *timer) {
  abort_now(timer->data, "drain timeout");
}

static void drain(parent_t *parent, const char *why) {
  server_t *server = &parent->server;
  server->phase = SERVER_DRAINING;
  log_line(LOG_INFO, "drain", "%s: draining", why);
  notify_send("STOPPING=1\nSTATUS=draining");
  uv_timer_start(&parent->drain, on_drain_deadline,
                 (uint64_t)(server->config->drain_timeout * 1000), 0);
  http_leave(server->http);
  http_drain(server->http);
}

static void on_leave_deadline(uv_timer_t *timer) {
  drain(timer->data, "drain delay");
}

static void end(parent_t *parent, const char *why) {
  server_t *server = &parent->server;
  double delay_s = server->config->drain_delay;
  if (server->phase == SERVER_DRAINING) {
    abort_now(parent, why);
  } else if (server->phase == SERVER_LEAVING || delay_s <= 0) {
    drain(parent, why);
  } else {
    server->phase = SERVER_LEAVING;
    http_leave(server->http);
    log_line(LOG_INFO, "drain", "%s: not ready any more, draining in %g s", why, delay_s);
    notify_send("STOPPING=1\nSTATUS=not ready any more, draining soon");
    uv_timer_start(&parent->drain, on_leave_deadline, (uint64_t)(delay_s * 1000), 0);
  }
}

static void on_drained(server_t *server) {
  end_children((parent_t *)server);
}

/* ---- reading again ---- */

/* Takes keys, sections and what the transport reads anew over; other options need a restart. */
static void reload(parent_t *parent) {
  server_t *server = &parent->server;
  config_t fresh;
  inferd_error_t error = {0};
  auth_t *auth = NULL;
  int code = config_load(&fresh, parent->argc, parent->argv, &error);
  if (code == 0) code = models_check(&fresh, &error);
  if (code == 0) code = auth_new(&fresh, &auth, &error);
  if (code == 0 && http_is_open(server->http) && auth_key_count(auth) == 0 &&
      !fresh.allow_unauthenticated)
    code = error_set(&error, ERR_CONFIGURATION, "api_key",
                     "api_key: no key would be left, but other machines reach this server");
  metrics_reloaded(server->metrics, code == 0);
  if (code == 0) {
    auth_replace(server->auth, auth);
    for (int i = 0; i < OPTION_COUNT; i++) {
      if (config_may_change((enum config_option)i))
        config_exchange(server->config, &fresh, (enum config_option)i);
    }
    config_exchange_sections(server->config, &fresh);
    log_reload(server->config);
    http_reload(server->http);
    models_reload(server->models, server->config);
    log_line(LOG_INFO, "reload", "models and keys read again: %d keys, %d admin keys",
             auth_key_count(server->auth), auth_admin_count(server->auth));
    reload_answer_write(true, "models and keys read again");
  } else {
    auth_free(auth);
    log_line(LOG_ERROR, "reload-rejected", "%s; the old values stay", error.message);
    reload_answer_write(false, error.message);
  }
  config_free(&fresh);
}

static void on_signal(uv_signal_t *handle, int number) {
  parent_t *parent = handle->data;
  switch (number) {
  case SIGTERM: end(parent, "SIGTERM"); break;
  case SIGINT: end(parent, "SIGINT"); break;
  case SIGHUP: reload(parent); break;
  case SIGUSR1:
    log_reopen();
    models_signal(parent->server.models, SIGUSR1);
    break;
  default: break;
  }
}

/* ---- start ---- */

static void tell_ready(parent_t *parent) {
  server_t *server = &parent->server;
  inferd_error_t error = {0};
  if (parent->told_ready || !models_ready(server)) return;
  parent->told_ready = true;
  if (http_ready(server->http, &error) != 0) log_line(LOG_ERROR, "ready", "%s", error.message);
  log_line(LOG_INFO, "ready", "several models behind %s: GET /v1/models lists them",
           http_address(server->http, 0));
  notify_send("READY=1\nSTATUS=Serving several models on %s", http_address(server->http, 0));
}

static void on_tick(uv_timer_t *timer) {
  parent_t *parent = timer->data;
  uint64_t now_ns = clock_now_ns();
  tell_ready(parent);
  runner_tick(&parent->server);
  http_identity_refresh(parent->server.http, now_ns);
  if (parent->watchdog_ns > 0 && now_ns - parent->watchdog_sent_ns >= parent->watchdog_ns / 2) {
    parent->watchdog_sent_ns = now_ns;
    notify_send("WATCHDOG=1");
  }
  uint64_t next_ms = parent->told_ready ? TICK_MS : TICK_MS / 10;
  if (parent->watchdog_ns > 0) next_ms = MIN(next_ms, parent->watchdog_ns / 4000000 + 1);
  uv_timer_start(timer, on_tick, next_ms, 0);
}

static int init_handles(parent_t *parent, inferd_error_t *error) {
  int code = uv_loop_init(&parent->loop);
  parent->server.loop = &parent->loop;
  for (int i = 0; i < SIGNAL_COUNT && code == 0; i++) {
    code = uv_signal_init(&parent->loop, &parent->signals[i]);
    parent->signals[i].data = parent;
    if (code == 0) code = uv_signal_start(&parent->signals[i], on_signal, signals[i]);
  }
  if (code != 0)
    return error_set(error, ERR_IO, NULL, "the event loop cannot be made: %s", uv_strerror(code));
  uv_timer_init(&parent->loop, &parent->tick);
  uv_timer_init(&parent->loop, &parent->drain);
  parent->tick.data = parent->drain.data = parent;
  return 0;
}

static void count_deferred(void *context, const stored_t *stored) {
  int *count = context;
  *count += stored->state == STORED_WAITING;
}

/* The file is that of all models: their processes write what they answer, this one has the rest,
 * and runs batches. */
static int open_store(server_t *server, inferd_error_t *error) {
  int deferred = 0, code = server_open_store(server, error);
  if (code != 0 || server->store == NULL) return code;
  code = store_waiting(server->store, count_deferred, &deferred, error);
  if (deferred > 0)
    log_line(LOG_WARN, "start", "%d responses with background wait for a server of one model",
             deferred);
  return code == 0 ? runner_new(server, error) : code;
}

static int set_up(parent_t *parent, inferd_error_t *error) {
  server_t *server = &parent->server;
  config_t *config = server->config;
  int code = models_check(config, error);
  if (code == 0) code = shared_rates_make(error);
  if (code == 0) code = auth_new(config, &server->auth, error);
  if (code != 0) return code;
  server->lanes = lanes_new(server->loop);
  server->ledger = ledger_new((size_t)config->max_request_memory);
  server->metrics = metrics_new(server, "");
  if (server->lanes == NULL || server->ledger == NULL || server->metrics == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the server");
  server->drained = on_drained;
  if ((code = open_store(server, error)) != 0) return code;
  if ((code = models_new(server, error)) != 0) return code;
  if ((code = http_start(server, &server->http, error)) != 0) return code;
  const char *address;
  for (int i = 0; (address = http_address(server->http, i)) != NULL; i++) {
    bool tls = http_has_tls(server->http) && strncmp(address, "unix:", 5) != 0;
    log_line(LOG_INFO, "start", "listening on %s%s, %s", address, tls ? " with TLS" : "",
             auth_key_count(server->auth) > 0 ? "API key needed" : "no API key set");
  }
  server_warn_of_access(server);
  return 0;
}

static void tear_down(parent_t *parent) {
  server_t *server = &parent->server;
  if (server->http != NULL) http_stop(server->http);
  if (server->models == NULL) runner_stop(server);
  if (server->models != NULL && !parent->ending) {
    end_children(parent);
    uv_run(&parent->loop, UV_RUN_DEFAULT);
  }
  for (int i = 0; i < SIGNAL_COUNT; i++) uv_close((uv_handle_t *)&parent->signals[i], NULL);
  uv_close((uv_handle_t *)&parent->tick, NULL);
  uv_close((uv_handle_t *)&parent->drain, NULL);
  uv_run(&parent->loop, UV_RUN_DEFAULT);
  CHECK_EQ(uv_loop_close(&parent->loop), 0);
  store_close(server->store);
  runner_free(server);
  models_free(server->models);
  lanes_free(server->lanes);
  ledger_free(server->ledger);
  if (server->metrics != NULL) metrics_free(server->metrics);
  auth_free(server->auth);
}

int parent_run(config_t *config, int argc, char *const *argv) {
  static parent_t parent; /* static, because callbacks may run until the process ends */
  inferd_error_t error = {0};
  serve_begin_process();
  crash_install();
  parent.server.config = config;
  parent.argc = argc;
  parent.argv = argv;
  parent.server.start_ns = clock_now_ns();
  parent.server.start_time = (int64_t)time(NULL);
  if (serve_open_log(config, &error) != 0) return error_exit_code(error.code);
  int code = init_handles(&parent, &error);
  if (code == 0) code = set_up(&parent, &error);
  if (code == 0) {
    parent.watchdog_ns = notify_watchdog_ns();
    uv_timer_start(&parent.tick, on_tick, 0, 0);
    uv_run(&parent.loop, UV_RUN_DEFAULT);
  } else {
    config_explain(config, &error);
    log_line(LOG_ERROR, "start", "%s", error.message);
  }
  if (parent.server.loop != NULL) tear_down(&parent);
  if (code == 0) log_line(LOG_INFO, "stop", "stopped");
  log_close();
  return code == 0 ? 0 : error_exit_code(code);
}
