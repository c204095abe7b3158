/* reload.c: SIGHUP: the configuration and the keys are read again, and what may change is taken
 * over.
 *
 * Loop thread. All is read and checked before anything changes; after an error the old values stay.
 * The log names what changed and what needs a restart.
 */
#include "server/serve.h"

#include "server/completion/lora_table.h"
#include "server/http/auth.h"
#include "server/http/listen.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"
#include "server/observe/notify.h"
#include "server/reload_answer.h"

#include <stdio.h>
#include <string.h>

/* Names of options: "port, model". What does not fit is left out. */
typedef struct option_names {
  char text[700];
  int count;
} option_names_t;

static void names_add(option_names_t *names, const char *name) {
  size_t used = strlen(names->text), room = sizeof names->text - used;
  const char *comma = names->count > 0 ? ", " : "";
  if (strlen(comma) + strlen(name) < room) snprintf(names->text + used, room, "%s%s", comma, name);
  names->count++;
}

/* Returns true if the running server can take the new value over. The tables of the queue and the
 * memory of requests were sized at start, and before READY the engine thread reads its options. */
static bool may_change(const server_t *server, const config_t *fresh, enum config_option option) {
  const config_t *old = server->config;
  switch (option) {
  case OPTION_max_queue_requests:
    return engine_state(server->engine) == ENGINE_READY &&
           fresh->max_queue_requests <= server->queue_requests_max;
  case OPTION_max_queue_tokens: return engine_state(server->engine) == ENGINE_READY;
  case OPTION_lora_modules:
    return engine_state(server->engine) == ENGINE_READY && server->live->loras != NULL;
  case OPTION_tls_cert:
  case OPTION_tls_key:
  case OPTION_tls_client_ca: return http_has_tls(server->http) && fresh->tls_cert[0] != '\0';
  case OPTION_max_body_bytes: return fresh->max_body_bytes <= old->max_request_memory;
  default: return config_may_change(option);
  }
}

/* A server that other machines reach must not lose its last key by a change of a file. */
static int check_open(const server_t *server, const config_t *fresh, const auth_t *auth,
                      inferd_error_t *error) {
  if (!http_is_open(server->http) || auth_key_count(auth) > 0) return 0;
  if (fresh->allow_unauthenticated && server->config->allow_unauthenticated) return 0;
  return error_set(error, ERR_CONFIGURATION, "api_key",
                   "api_key: no key would be left, but other machines reach this server");
}

/* Without memory for the new names the old ones stay. */
static void rename_model(server_t *server) {
  if (model_names_set(server->live, &server->asked.served_model_name, server->config->model) != 0) {
    return;
  }
  metrics_rename(server->metrics, model_name(server->live));
}

/* Exchanges every option that differs and may change now, and names it in `changed`; the others
 * that differ are named in `unapplied`: they need a restart. */
static void take_over(server_t *server, config_t *fresh, option_names_t *changed,
                      option_names_t *unapplied) {
  config_t *config = server->config;
  for (int i = 0; i < OPTION_COUNT; i++) {
    enum config_option option = (enum config_option)i;
    if (option == OPTION_config) continue;
    bool can_reload = config_may_change(option);
    /* The start has replaced some values by what they came to, such as the model's path: these are
     * compared as they were typed. */
    bool as_typed = !can_reload || option == OPTION_served_model_name;
    config_t *old = as_typed ? &server->asked : config;
    if (config_same(old, fresh, option)) continue;
    if (!can_reload || !may_change(server, fresh, option)) {
      names_add(unapplied, config_name(option));
      continue;
    }
    config_exchange(old, fresh, option);
    names_add(changed, config_name(option));
    if (option == OPTION_served_model_name) rename_model(server);
  }
  log_reload(config);
  http_reload(server->http);
  if (engine_state(server->engine) == ENGINE_READY) {
    engine_set_queue(server->engine, (int32_t)config->max_queue_requests, config->max_queue_tokens);
  }
}

static void report(const server_t *server, const option_names_t *changed,
                   const option_names_t *unapplied) {
  log_line(LOG_INFO, "reload", "changed: %s; keys read again: %d, admin keys: %d",
           changed->count > 0 ? changed->text : "nothing", auth_key_count(server->auth),
           auth_admin_count(server->auth));
  if (unapplied->count > 0) {
    log_line(LOG_WARN, "reload", "the new values of these need a restart: %s", unapplied->text);
  }
  char text[640];
  snprintf(text, sizeof text, "changed: %.300s%s%.300s",
           changed->count > 0 ? changed->text : "nothing",
           unapplied->count > 0 ? "; needs a restart: " : "", unapplied->text);
  notify_send("STATUS=Reloaded; %s", text);
  reload_answer_write(true, text);
}

void serve_reload(server_t *server, int argc, char *const *argv) {
  config_t fresh;
  inferd_error_t error = {0};
  auth_t *auth = NULL;
  struct tls_identity *identity = NULL;
  option_names_t changed = {0}, unapplied = {0};
  int code = config_load(&fresh, argc, argv, &error);
  if (code == 0) code = auth_new(&fresh, &auth, &error);
  if (code == 0) code = loras_check(&fresh, &error);
  if (code == 0) code = check_open(server, &fresh, auth, &error);
  if (code == 0) code = http_identity_read(server->http, &fresh, &identity, &error);
  metrics_reloaded(server->metrics, code == 0);
  if (code == 0) {
    auth_replace(server->auth, auth);
    if (identity != NULL) http_identity_replace(server->http, identity);
    take_over(server, &fresh, &changed, &unapplied);
    report(server, &changed, &unapplied);
    if (engine_state(server->engine) == ENGINE_READY) loras_reload(server);
  } else {
    auth_free(auth);
    char text[sizeof error.message + 32];
    snprintf(text, sizeof text, "%s; the old values stay", error.message);
    log_line(LOG_ERROR, "reload-rejected", "%s", text);
    notify_send("STATUS=Reload rejected, the old values stay: %.400s", error.message);
    reload_answer_write(false, text);
  }
  config_free(&fresh);
}
