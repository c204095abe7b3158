/* lora_handler.c: /v1/load_lora_adapter and /v1/unload_lora_adapter, with the fields of vLLM.
 *
 * Loop thread; the adapter is read and checked by a job of the lanes and handed to the engine,
 * which copies it between two steps. Off unless --allow-runtime-lora is given, because the request
 * names a path of this host; http_check.c has asked for an admin key, or a UNIX socket.
 */
#include "engine/base/buffer.h"
#include "engine/base/util.h"
#include "server/completion/lora_table.h"
#include "server/fields/params_read.h"
#include "server/http/reply_json.h"
#include "server/lanes/lanes.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"
#include "server/observe/notify.h"

#include <stdlib.h>
#include <string.h>

typedef struct adapter_fields {
  const json_t *model, *name, *path; /* NULL = not given */
} adapter_fields_t;

#undef FIELDS_STRUCT
#define FIELDS_STRUCT adapter_fields_t
static const field_t load_rows[] = {
#include "server/fields/load_adapter_fields.def"
};
static const field_t unload_rows[] = {
#include "server/fields/unload_adapter_fields.def"
};
static const field_table_t load_table = {load_rows, ARRAY_LEN(load_rows), NULL};
static const field_table_t unload_table = {unload_rows, ARRAY_LEN(unload_rows), NULL};

typedef struct lora_job {
  lane_job_t job; /* first */
  server_t *server;
  exchange_t *exchange; /* NULL = the client disconnected; the adapter is loaded in any case */
  lora_entry_t *entry;
  struct adapter *adapter;
  int code;
  inferd_error_t error;
} lora_job_t;

static void reply_text(exchange_t *exchange, const char *verb, const char *name) {
  char text[LORA_NAME_MAX + 64];
  int n = snprintf(text, sizeof text, "Success: LoRA adapter '%s' %s successfully.", name, verb);
  char *body = strdup(text);
  if (body == NULL) {
    reply_no_memory(exchange);
    return;
  }
  exchange_reply(exchange, 200, "text/plain; charset=utf-8", body, (size_t)n);
}

static void run_job(lane_job_t *lane_job) {
  lora_job_t *job = (lora_job_t *)lane_job;
  job->code =
      engine_adapter_read(job->server->engine, job->entry->path, &job->adapter, &job->error);
}

/* Of a job of a reload, which has no client. */
static void log_outcome(const lora_job_t *job) {
  if (job->code == 0) {
    log_line(LOG_INFO, "reload", "adapter %.200s loaded", job->entry->name);
  } else {
    log_line(LOG_WARN, "reload", "adapter %.200s is not loaded: %s", job->entry->name,
             job->error.message);
  }
}

/* The parent of several models lists the adapters that each of them has. */
static void tell_parent(const server_t *server, const char *what, const lora_entry_t *entry) {
  buffer_t name = {0};
  if (!server->behind) return;
  buffer_quote(&name, entry->name, strlen(entry->name));
  buffer_char(&name, '\0');
  if (!name.failed) notify_send("X_INFERD_ADAPTER_%s=%s", what, name.data);
  buffer_free(&name);
}

static void job_done(lane_job_t *lane_job) {
  lora_job_t *job = (lora_job_t *)lane_job;
  completions_t *live = job->server->live;
  if (job->entry->configured) log_outcome(job);
  if (job->code == 0) {
    engine_adapter_set(job->server->engine, job->entry->slot, job->adapter);
    lora_ready(live, job->entry);
    tell_parent(job->server, "CAME", job->entry);
    if (job->exchange != NULL) reply_text(job->exchange, "added", job->entry->name);
  } else {
    engine_adapter_free(job->adapter);
    lora_drop(live, job->entry);
    if (job->code != ERR_INTERNAL)
      job->error.code = ERR_INVALID_VALUE; /* the path in the request is wrong */
    snprintf(job->error.param, sizeof job->error.param, "lora_path");
    if (job->exchange != NULL) exchange_error(job->exchange, &job->error);
  }
  live->jobs--;
  free(job);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  lora_job_t *job = exchange->user;
  (void)cause;
  job->exchange = NULL;
}

/* Copies a required string into `out`; the field table has checked its length. */
static int take_string(const json_t *value, const char *key, char *out, inferd_error_t *error) {
  if (value == NULL)
    return error_set(error, ERR_MISSING_PARAMETER, key, "The '%s' must be provided.", key);
  if (memchr(value->text, '\0', value->length) != NULL)
    return error_set(error, ERR_INVALID_VALUE, key, "'%s' must not have a zero byte.", key);
  memcpy(out, value->text, value->length);
  out[value->length] = '\0';
  return 0;
}

/* Reads the name and, unless `path` is NULL, the path of the body. */
static int read_fields(exchange_t *exchange, const json_t *root, char *name, char *path,
                       inferd_error_t *error) {
  adapter_fields_t fields = {0};
  field_limits_t limits = {.strict = exchange->server->config->strict_params};
  arena_t arena = {0};
  reader_t reader = {.out = &fields, .limits = &limits, .arena = &arena, .error = error};
  int code = fields_read(path != NULL ? &load_table : &unload_table, &reader, root);
  arena_free(&arena);
  if (code == 0)
    code = model_check(exchange->server->live, exchange->server->config->any_model, fields.model,
                       error);
  if (code == 0) code = take_string(fields.name, "lora_name", name, error);
  if (code == 0 && path != NULL) code = take_string(fields.path, "lora_path", path, error);
  if (code == 0 && reader.ignored[0] != '\0') {
    exchange_header(exchange, "x-inferd-ignored-params", reader.ignored);
    metrics_ignored_params(exchange->server->metrics);
  }
  return code;
}

static int read_body(exchange_t *exchange, char *name, char *path, inferd_error_t *error) {
  const server_t *server = exchange->server;
  json_doc_t *doc = NULL;
  if (!server->config->allow_runtime_lora || server->live->loras == NULL)
    return error_set(error, ERR_UNSUPPORTED_ENDPOINT, NULL,
                     "Adapters are loaded at start; --enable-lora and --allow-runtime-lora let "
                     "them be loaded later.");
  int code = json_parse(exchange->body, exchange->body_length, &json_limits_request, &doc, error);
  if (code == 0) code = read_fields(exchange, json_root(doc), name, path, error);
  json_free(doc);
  return code;
}

/* Reads the adapter of a reserved entry in a job. `exchange` gets the answer; NULL = no client
 * waits for one. */
static int load(server_t *server, lora_entry_t *entry, exchange_t *exchange) {
  lora_job_t *job = calloc(1, sizeof *job);
  if (job == NULL) {
    lora_drop(server->live, entry);
    return ERR_NO_MEMORY;
  }
  *job = (lora_job_t){.job = {.run = run_job,
                              .done = job_done,
                              .client = exchange != NULL ? exchange->source : 0,
                              .kind = LANE_HEAVY},
                      .server = server,
                      .exchange = exchange,
                      .entry = entry};
  if (exchange != NULL) {
    exchange->user = job;
    exchange->on_gone = on_gone;
  }
  server->live->jobs++;
  lanes_submit(server->lanes, &job->job);
  return 0;
}

void api_load_lora(exchange_t *exchange) {
  server_t *server = exchange->server;
  char name[LORA_NAME_MAX], path[LORA_PATH_MAX];
  inferd_error_t error;
  lora_entry_t *entry = NULL;
  int code = read_body(exchange, name, path, &error);
  if (code == 0) code = lora_reserve(server->live, name, path, &entry, &error);
  if (code != 0) {
    exchange_error(exchange, &error);
    return;
  }
  if (load(server, entry, exchange) != 0) reply_no_memory(exchange);
}

void api_unload_lora(exchange_t *exchange) {
  completions_t *live = exchange->server->live;
  char name[LORA_NAME_MAX];
  inferd_error_t error;
  int code = read_body(exchange, name, NULL, &error);
  lora_entry_t *entry = code == 0 ? lora_use(live, name, strlen(name)) : NULL;
  if (code == 0 && entry == NULL) {
    char shown[300];
    code = error_set(&error, ERR_MODEL_NOT_FOUND, "lora_name", "The adapter `%s` does not exist.",
                     error_quote(shown, sizeof shown, name, strlen(name)));
  }
  if (code != 0) {
    exchange_error(exchange, &error);
    return;
  }
  tell_parent(exchange->server, "WENT", entry);
  lora_drop(live, entry);
  lora_release(live, entry, false);
  reply_text(exchange, "removed", name);
}

/* ---- the list of a reload ---- */

static bool is_listed(const config_list_t *modules, const lora_entry_t *entry) {
  size_t length = strlen(entry->name);
  for (int i = 0; i < modules->count; i++) {
    const char *module = modules->items[i];
    if (strncmp(module, entry->name, length) == 0 && module[length] == '=' &&
        strcmp(module + length + 1, entry->path) == 0)
      return true;
  }
  return false;
}

/* Adapters that are not listed any more, or from elsewhere. */
static void unload_others(completions_t *live, const config_list_t *modules) {
  lora_entry_t *entry;
  for (int i = 0; (entry = lora_at(live, i)) != NULL;) {
    if (!entry->configured || is_listed(modules, entry)) {
      i++;
      continue;
    }
    log_line(LOG_INFO, "reload", "adapter %.200s unloaded", entry->name);
    lora_drop(live, entry);
  }
}

void loras_reload(server_t *server) {
  completions_t *live = server->live;
  const config_list_t *modules = &server->config->lora_modules;
  if (live->loras == NULL) return;
  unload_others(live, modules);
  for (int i = 0; i < modules->count; i++) {
    char name[LORA_NAME_MAX];
    inferd_error_t error = {0};
    lora_entry_t *entry = NULL;
    const char *equals = strchr(modules->items[i], '=');
    snprintf(name, sizeof name, "%.*s", (int)(equals - modules->items[i]), modules->items[i]);
    if (lora_known(live, name, strlen(name))) continue;
    int code = lora_reserve(live, name, equals + 1, &entry, &error);
    if (code == 0) {
      entry->configured = true;
      code = load(server, entry, NULL);
      if (code != 0) snprintf(error.message, sizeof error.message, "no memory");
    }
    if (code != 0) {
      log_line(LOG_WARN, "reload", "adapter %.200s is not loaded: %s", name, error.message);
    }
  }
}
