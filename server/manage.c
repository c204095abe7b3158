/* manage.c: `inferd ps`, `load` and `unload`: the models of a running server, for people.
 *
 * Main thread of a command, which blocks. They ask a server by HTTP, with the first key of the
 * configuration; load and unload need an admin key where the server has one.
 */
#include "server/manage.h"

#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "server/client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { EXIT_USAGE = 64, POLL_MS = 200 };

typedef struct managed {
  config_t config;
  client_target_t target;
} managed_t;

static const char *text_of(const json_t *value, char *out, unsigned capacity) {
  out[0] = '\0';
  if (value != NULL && value->type == JSON_STRING)
    error_quote(out, capacity, value->text, value->length);
  return out;
}

/* Asks, and parses the answer. Returns the status of the command; says what is wrong. */
static int ask(const managed_t *asked, const char *path, const char *post, json_doc_t **out,
               char **body) {
  const config_t *config = &asked->config;
  const client_target_t *target = &asked->target;
  inferd_error_t error;
  const char *why = NULL, *key = NULL;
  char said[400];
  *out = NULL;
  if (config->api_key.count > 0) key = config->api_key.items[0];
  if (config->admin_key.count > 0) key = config->admin_key.items[0];
  int status = client_ask(target, path, key, post, body, &why);
  if (status <= 0) {
    fprintf(stderr, "inferd: %s at %s%s%s\n",
            status == 0 ? "no server answers" : "no whole answer from the server", target->shown,
            why != NULL ? ": " : "", why != NULL ? why : "");
    return 1;
  }
  if (json_parse(*body, strlen(*body), &json_limits_request, out, &error) != 0) {
    fprintf(stderr, "inferd: the answer of %s is not JSON\n", target->shown);
    return 1;
  }
  if (status == 200) return 0;
  const json_t *message = json_get(json_get(json_root(*out), "error"), "message");
  fprintf(stderr, "inferd: %s\n", text_of(message, said, sizeof said));
  return 1;
}

/* ---- ps ---- */

static void print_age(const json_t *used, char out[32]) {
  int64_t then = 0;
  snprintf(out, 32, "never");
  if (!json_int64(used, &then)) return;
  long long age = MAX((long long)(time(NULL) - (time_t)then), 0);
  if (age < 120)
    snprintf(out, 32, "%lld s ago", age);
  else if (age < 7200)
    snprintf(out, 32, "%lld min ago", age / 60);
  else
    snprintf(out, 32, "%lld h ago", age / 3600);
}

/* One line; an alias has none of its own. A server of one model says nothing of states. */
static void print_card(const json_t *card) {
  char name[200], state[32], age[32], reason[400], root[200];
  int64_t host = 0, device = 0, running = 0, waiting = 0;
  const json_t *memory = json_get(card, "memory");
  text_of(json_get(card, "id"), name, sizeof name);
  text_of(json_get(card, "root"), root, sizeof root);
  if (strcmp(name, root) != 0) return;
  text_of(json_get(card, "state"), state, sizeof state);
  text_of(json_get(card, "reason"), reason, sizeof reason);
  (void)json_int64(json_get(memory, "host"), &host);
  (void)json_int64(json_get(memory, "device"), &device);
  (void)json_int64(json_get(card, "running"), &running);
  (void)json_int64(json_get(card, "waiting"), &waiting);
  print_age(json_get(card, "last_used"), age);
  printf("%-32s %-9s %7.2f %7.2f %5lld %5lld  %-12s %s\n", name, state[0] != '\0' ? state : "ready",
         (double)host / (1 << 30), (double)device / (1 << 30), (long long)running,
         (long long)waiting, age, reason);
}

static int ps_command(const managed_t *asked) {
  json_doc_t *doc = NULL;
  char *body = NULL;
  int status = ask(asked, "/v1/models", NULL, &doc, &body);
  if (status == 0) {
    printf("%-32s %-9s %7s %7s %5s %5s  %-12s %s\n", "NAME", "STATE", "HOST", "DEVICE", "RUN",
           "WAIT", "USED", "REASON");
    JSON_EACH(card, json_get(json_root(doc), "data")) print_card(card);
  }
  json_free(doc);
  free(body);
  return status;
}

/* ---- load, unload ---- */

static int post_name(const managed_t *asked, const char *path) {
  const char *model = asked->config.model;
  char name[600] = "", post[700];
  json_doc_t *doc = NULL;
  char *body = NULL;
  json_escape(name, sizeof name - 1, model, strlen(model));
  snprintf(post, sizeof post, "{\"model\":\"%s\"}", name);
  int status = ask(asked, path, post, &doc, &body);
  json_free(doc);
  free(body);
  return status;
}

/* Waits until the model is in the state, or has failed. */
static int await(const managed_t *asked, const char *wanted) {
  const char *model = asked->config.model;
  char path[700], state[32], reason[400];
  const struct timespec pause = {.tv_nsec = POLL_MS * 1000000};
  snprintf(path, sizeof path, "/v1/models/%s", model);
  for (;;) {
    json_doc_t *doc = NULL;
    char *body = NULL;
    int status = ask(asked, path, NULL, &doc, &body);
    const json_t *card = status == 0 ? json_root(doc) : NULL;
    text_of(json_get(card, "state"), state, sizeof state);
    text_of(json_get(card, "reason"), reason, sizeof reason);
    json_free(doc);
    free(body);
    if (status != 0) return status;
    if (strcmp(state, wanted) == 0) break;
    if (strcmp(state, "failed") == 0) {
      fprintf(stderr, "inferd: %s: %s\n", model, reason);
      return 1;
    }
    nanosleep(&pause, NULL);
  }
  printf("%s is %s\n", model, state);
  return 0;
}

int manage_command(const char *what, int argc, char **argv) {
  managed_t asked;
  config_t *config = &asked.config;
  inferd_error_t error = {0};
  int code = config_load(config, argc, argv, &error), status = EXIT_USAGE;
  bool ps = strcmp(what, "ps") == 0, load = strcmp(what, "load") == 0;
  if (code != 0) {
    fprintf(stderr, "inferd: %s\n", error.message);
    status = error_exit_code(code);
  } else if (ps) {
    if (client_target_asked(config, &asked.target)) status = ps_command(&asked);
  } else if (config->model[0] == '\0') {
    fprintf(stderr, "usage: inferd %s NAME [--host, --port, --uds, --admin-key]\n", what);
  } else if (client_target_of(config, &asked.target)) {
    status = post_name(&asked, load ? "/v1/models/load" : "/v1/models/unload");
    if (status == 0) status = await(&asked, load ? "ready" : "unloaded");
  }
  config_free(config);
  return status;
}
