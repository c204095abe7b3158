/* list.c: /v1/models with several models, and the routes and numbers that operators look at.
 *
 * Loop thread of the parent.
 */
#include "server/models/models_internal.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "server/api/model_card.h"
#include "server/fields/params_read.h"
#include "server/http/reply_json.h"
#include "server/observe/log.h"
#include "server/observe/metrics.h"

#include <stdlib.h>
#include <string.h>

/* ---- cards ---- */

/* `failed` also while its plan cannot be made; a model that is planned anew is what it was. */
static const char *state_of(const served_t *model) {
  if (model->life != NULL) return life_state_names[model->life->state];
  return model->plan_state == PLAN_FAILED ? "failed" : "unloaded";
}

/* By its plan; of one that sleeps, what it has then. */
static int64_t bytes_of(const served_t *model, int first, int end) {
  const life_model_t *life = model->life;
  int64_t sum = 0;
  if (life == NULL) return 0;
  const int64_t *bytes = life->state == LIFE_ASLEEP ? life->plan.asleep : life->plan.bytes;
  for (int i = first; i < end; i++) sum += bytes[i];
  return sum;
}

static int64_t host_bytes(const served_t *model) {
  return bytes_of(model, LIFE_HOST, LIFE_HOST + 1);
}

static int64_t device_bytes(const served_t *model) {
  return bytes_of(model, LIFE_HOST + 1, LIFE_HOST + 1 + LIFE_GPUS);
}

static void add_state(cJSON *object, const served_t *model) {
  const char *state = state_of(model);
  const life_model_t *life = model->life;
  /* llama.cpp's server has the state in `status.value`, where ready is called loaded. */
  cJSON *status = cJSON_AddObjectToObject(object, "status");
  cJSON_AddStringToObject(status, "value", strcmp(state, "ready") == 0 ? "loaded" : state);
  cJSON_AddStringToObject(object, "state", state);
  if (strcmp(state, "loading") == 0)
    cJSON_AddNumberToObject(object, "progress", model->child.progress);
  if (model->reason[0] != '\0')
    cJSON_AddStringToObject(object, "reason", model->reason);
  else
    cJSON_AddNullToObject(object, "reason");
  cJSON *memory = cJSON_AddObjectToObject(object, "memory");
  cJSON_AddNumberToObject(memory, "host", (double)host_bytes(model));
  cJSON_AddNumberToObject(memory, "device", (double)device_bytes(model));
  cJSON_AddBoolToObject(object, "pinned", model->wish.pin);
  if (model->used > 0)
    cJSON_AddNumberToObject(object, "last_used", (double)model->used);
  else
    cJSON_AddNullToObject(object, "last_used");
  cJSON_AddNumberToObject(object, "waiting", life != NULL ? life->num_waiting : 0);
  cJSON_AddNumberToObject(object, "running", life != NULL ? life->num_running : 0);
}

/* The card of a model under one of its names, or of an adapter of it. */
static cJSON *card(const served_t *model, const char *name) {
  const char *own = model->wish.names.list[0];
  const char *parent = model_has_name(model, name) ? NULL : own;
  cJSON *object = model_card(model->models->server, name, own, parent, model->context);
  add_state(object, model);
  return object;
}

static void list_names(cJSON *data, const served_t *model, const words_t *names, const char **first,
                       const char **last) {
  for (int i = 0; i < names->count; i++) {
    *last = names->list[i];
    if (*first == NULL) *first = *last;
    cJSON_AddItemToArray(data, card(model, *last));
  }
}

static void list_all(exchange_t *exchange) {
  const models_t *models = exchange->server->models;
  cJSON *object = cJSON_CreateObject();
  const char *first = NULL, *last = NULL;
  cJSON_AddStringToObject(object, "object", "list");
  cJSON *data = cJSON_AddArrayToObject(object, "data");
  for (const served_t *model = models->first; model != NULL; model = model->next) {
    if (!model->listed) continue;
    list_names(data, model, &model->wish.names, &first, &last);
    list_names(data, model, served_adapters(model), &first, &last);
  }
  cJSON_AddFalseToObject(object, "has_more");
  if (first != NULL) {
    cJSON_AddStringToObject(object, "first_id", first);
    cJSON_AddStringToObject(object, "last_id", last);
  } else {
    cJSON_AddNullToObject(object, "first_id");
    cJSON_AddNullToObject(object, "last_id");
  }
  reply_json(exchange, 200, object);
}

void models_list(exchange_t *exchange) {
  const models_t *models = exchange->server->models;
  const char *name = exchange->path_tail;
  inferd_error_t error;
  if (name[0] == '\0') {
    list_all(exchange);
    return;
  }
  const served_t *model = models_find(models, name, strlen(name));
  if (model != NULL) {
    reply_json(exchange, 200, card(model, name));
    return;
  }
  models_fail_unknown(models, name, strlen(name), &error);
  exchange_error(exchange, &error);
}

/* ---- load, unload ---- */

typedef struct name_fields {
  const json_t *name; /* NULL = not given */
} name_fields_t;

#undef FIELDS_STRUCT
#define FIELDS_STRUCT name_fields_t
static const field_t name_rows[] = {
#include "server/fields/model_name_fields.def"
};
static const field_table_t name_table = {name_rows, ARRAY_LEN(name_rows), NULL};

static int find_named(const models_t *models, const char *name, size_t length, served_t **out,
                      inferd_error_t *error) {
  *out = models_find(models, name, length);
  return *out != NULL ? 0 : models_fail_unknown(models, name, length, error);
}

static int fail_alone(inferd_error_t *error) {
  return error_set(error, ERR_UNSERVED_ROUTE, NULL,
                   "This server has one model, which stays in memory; one with several loads and "
                   "unloads them: inferd serve MODEL MODEL.");
}

/* Finds the model that the query names, as vLLM's parameters stand there. */
static int read_query(const exchange_t *exchange, served_t **out, inferd_error_t *error) {
  const models_t *models = exchange->server->models;
  const char *name = exchange_query(exchange, "model");
  if (name == NULL || name[0] == '\0')
    return error_set(
        error, ERR_MISSING_PARAMETER, "model",
        "'model' must be provided in the query: this server has several; GET /v1/models "
        "lists them.");
  return find_named(models, name, strlen(name), out, error);
}

/* Finds the model that the body names. */
static int read_model(exchange_t *exchange, served_t **out, inferd_error_t *error) {
  models_t *models = exchange->server->models;
  if (models == NULL) return fail_alone(error);
  name_fields_t fields = {0};
  field_limits_t limits = {.strict = exchange->server->config->strict_params};
  arena_t arena = {0};
  json_doc_t *doc = NULL;
  reader_t reader = {.out = &fields, .limits = &limits, .arena = &arena, .error = error};
  int code = json_parse(exchange->body, exchange->body_length, &json_limits_request, &doc, error);
  if (code == 0) code = fields_read(&name_table, &reader, json_root(doc));
  if (code == 0 && fields.name == NULL)
    code = error_set(error, ERR_MISSING_PARAMETER, "model", "The 'model' must be provided.");
  if (code == 0) code = find_named(models, fields.name->text, fields.name->length, out, error);
  if (code == 0 && reader.ignored[0] != '\0') {
    exchange_header(exchange, "x-inferd-ignored-params", reader.ignored);
    metrics_ignored_params(exchange->server->metrics);
  }
  arena_free(&arena);
  json_free(doc);
  return code;
}

/* The card, and `success` for clients of llama.cpp's server. */
static void reply_card(exchange_t *exchange, const served_t *model) {
  cJSON *object = card(model, model->wish.names.list[0]);
  cJSON_AddTrueToObject(object, "success");
  reply_json(exchange, 200, object);
}

static int load(served_t *model, inferd_error_t *error) {
  models_t *models = model->models;
  if (model->life != NULL && !life_fits(models->life, &model->life->plan, model->life))
    return error_set(error, ERR_MODEL_LOADING, "model",
                     "The model `%.200s` needs more memory than models may have (--models-memory) "
                     "beside those that are pinned.",
                     model->wish.names.list[0]);
  log_line(LOG_INFO, "models", "%.200s: an operator wants it loaded", model->wish.names.list[0]);
  model->wanted = model->life == NULL; /* once it is planned */
  if (model->life != NULL)
    life_wish(models->life, model->life, LIFE_MAKE_ROOM, clock_now_ns());
  else if (model->plan_state == PLAN_FAILED)
    model->plan_state = PLAN_NONE;
  models_pump(models);
  return 0;
}

static void unload(served_t *model) {
  models_t *models = model->models;
  log_line(LOG_INFO, "models", "%.200s: an operator wants it unloaded", model->wish.names.list[0]);
  model->wanted = false;
  if (model->life != NULL) life_close(models->life, model->life, clock_now_ns());
  models_pump(models);
}

static void lay_down(served_t *model) {
  models_t *models = model->models;
  log_line(LOG_INFO, "models", "%.200s: an operator wants it asleep", model->wish.names.list[0]);
  model->wanted = false;
  if (model->life != NULL) life_lay_down(models->life, model->life, clock_now_ns());
  models_pump(models);
}

static void answer(exchange_t *exchange, const served_t *model, int code,
                   const inferd_error_t *error) {
  if (code == 0)
    reply_card(exchange, model);
  else
    exchange_error(exchange, error);
}

void api_load_model(exchange_t *exchange) {
  served_t *model = NULL;
  inferd_error_t error = {0};
  int code = read_model(exchange, &model, &error);
  if (code == 0) code = load(model, &error);
  answer(exchange, model, code, &error);
}

void api_unload_model(exchange_t *exchange) {
  served_t *model = NULL;
  inferd_error_t error = {0};
  int code = read_model(exchange, &model, &error);
  if (code == 0) unload(model);
  answer(exchange, model, code, &error);
}

/* ---- the same in vLLM's words ---- */

/* What runs ends first. */
static int check_mode(const exchange_t *exchange, inferd_error_t *error) {
  const char *mode = exchange_query(exchange, "mode");
  char quoted[64];
  if (mode == NULL || strcmp(mode, "wait") == 0) return 0;
  return error_set(error, ERR_INVALID_VALUE, "mode",
                   "Invalid 'mode': %s is not 'wait'; what runs in the model ends first.",
                   error_quote(quoted, sizeof quoted, mode, strlen(mode)));
}

/* With level 2 it has no process, nor with level 1 if it cannot sleep: of a model that runs on the
 * host the weights stay there, as the pages of its file. */
static int check_sleep(const exchange_t *exchange, inferd_error_t *error) {
  const char *level = exchange_query(exchange, "level");
  char quoted[64];
  if (level != NULL && strcmp(level, "1") != 0 && strcmp(level, "2") != 0)
    return error_set(error, ERR_INVALID_VALUE, "level", "Invalid 'level': %s is not 1 or 2.",
                     error_quote(quoted, sizeof quoted, level, strlen(level)));
  return check_mode(exchange, error);
}

void models_sleep(exchange_t *exchange) {
  const char *level = exchange_query(exchange, "level");
  served_t *model = NULL;
  inferd_error_t error = {0};
  int code = read_query(exchange, &model, &error);
  if (code == 0) code = check_sleep(exchange, &error);
  if (code == 0 && level != NULL && strcmp(level, "2") == 0)
    unload(model);
  else if (code == 0)
    lay_down(model);
  answer(exchange, model, code, &error);
}

void models_wake(exchange_t *exchange) {
  served_t *model = NULL;
  inferd_error_t error = {0};
  int code = read_query(exchange, &model, &error);
  if (code == 0) code = load(model, &error);
  answer(exchange, model, code, &error);
}

void models_is_sleeping(exchange_t *exchange) {
  served_t *model = NULL;
  inferd_error_t error = {0};
  if (read_query(exchange, &model, &error) != 0) {
    exchange_error(exchange, &error);
    return;
  }
  const life_model_t *life = model->life;
  bool awake = life != NULL && (life->state == LIFE_LOADING || life->state == LIFE_READY);
  cJSON *object = cJSON_CreateObject();
  cJSON_AddBoolToObject(object, "is_sleeping", !awake);
  reply_json(exchange, 200, object);
}

/* ---- numbers ---- */

static void fill_line(const served_t *model, model_line_t *out) {
  const life_model_t *life = model->life;
  life_state_t state = life != NULL ? life->state : LIFE_UNLOADED;
  bool answers = state == LIFE_READY || state == LIFE_DRAINING;
  bool in_memory = answers || state == LIFE_LOADING || state == LIFE_ASLEEP;
  bool ends = answers && model->wish.idle_s > 0 && !model->wish.pin;
  *out = (model_line_t){.name = model->wish.names.list[0],
                        .state = state_of(model),
                        .names = model->wish.names.list,
                        .adapters = served_adapters(model)->list,
                        .num_names = model->wish.names.count,
                        .num_adapters = served_adapters(model)->count,
                        .answers = answers,
                        .card = &model->card,
                        .shown = model->shown,
                        .context = model->context,
                        .ends = ends ? time(NULL) + (int64_t)model->wish.idle_s : 0,
                        .bytes = in_memory ? host_bytes(model) + device_bytes(model) : 0,
                        .device_bytes = in_memory ? device_bytes(model) : 0,
                        .waiting = life != NULL ? life->num_waiting : 0,
                        .running = life != NULL ? life->num_running : 0,
                        .loads = life != NULL ? life->num_loads : 0,
                        .failures = model->failures,
                        .requests = model->requests,
                        .prompt_tokens = model->prompt_tokens,
                        .generation_tokens = model->generation_tokens};
  if (ends && life->num_waiting + life->num_running == 0) {
    uint64_t idle_ns = clock_now_ns() - life->used_ns;
    out->ends -= (int64_t)MIN((double)idle_ns * 1e-9, model->wish.idle_s);
  }
}

bool models_line(const server_t *server, int index, model_line_t *out) {
  const served_t *model = server->models->first;
  for (; model != NULL && index > 0; index--) model = model->next;
  if (model == NULL) return false;
  fill_line(model, out);
  return true;
}

bool models_named(const server_t *server, const char *name, model_line_t *out) {
  const served_t *model = models_find(server->models, name, strlen(name));
  if (model == NULL) return false;
  fill_line(model, out);
  out->is_adapter = !model_has_name(model, name);
  return true;
}

/* ---- what the files of a model say of it ---- */

static void take_word(const json_t *value, char out[CARD_WORD_MAX]) {
  if (value != NULL) snprintf(out, CARD_WORD_MAX, "%.*s", (int)value->length, value->text);
}

/* Two lines: numbers and words for lists, and the answer of /api/show. */
void model_take_description(served_t *model, const char *text, size_t length) {
  const char *end = memchr(text, '\n', length);
  json_doc_t *doc = NULL;
  inferd_error_t error;
  if (end == NULL || text[length - 1] != '\n') return; /* cut: more than a plan may be */
  if (json_parse(text, (size_t)(end - text), &json_limits_request, &doc, &error) != 0) return;
  const json_t *root = json_root(doc);
  model_card_t *card = &model->card;
  json_bool(json_get(root, "is_gguf"), &card->is_gguf);
  json_int64(json_get(root, "bytes"), &card->bytes);
  json_int64(json_get(root, "parameters"), &card->parameters);
  json_int64(json_get(root, "modified"), &card->modified_s);
  take_word(json_get(root, "family"), card->family);
  take_word(json_get(root, "level"), card->level);
  json_free(doc);
  free(model->shown);
  model->shown = strndup(end + 1, length - 1 - (size_t)(end + 1 - text));
}
