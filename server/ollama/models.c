/* models.c: what programs ask about the model: /api/version, tags, ps, show and pull.
 *
 * Loop thread; a job of the lanes reads the headers of the files, once. With several models their
 * parent answers from what it knows of each, and loads none. Nothing that is asked here changes
 * anything.
 */
#include "server/ollama/ollama.h"

#include "engine/base/hash.h"
#include "engine/base/util.h"
#include "engine/model/source/card.h"
#include "engine/model/source/locate.h"
#include "server/completion/chat.h"
#include "server/completion/lora_table.h"
#include "server/completion/reply_job.h"
#include "server/fields/params_read.h"
#include "server/http/reply_json.h"
#include "server/keys/sha256.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The release of Ollama whose routes and fields these are. Programs compare it with the oldest that
 * they work with. */
#define OLLAMA_RELEASE "0.13.0"

/* ---- /api/version ---- */

void api_ollama_version(exchange_t *exchange) {
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "version", OLLAMA_RELEASE);
  cJSON_AddStringToObject(object, "inferd", INFERD_VERSION);
  reply_json(exchange, 200, object);
}

/* ---- entries of lists ---- */

/* Another digest means other weights or another name. */
static void add_digest(cJSON *object, uint64_t hash, const char *name) {
  uint8_t digest[SHA256_BYTES];
  char text[OLLAMA_NAME_MAX + 64], hex[2 * SHA256_BYTES + 1];
  int n = snprintf(text, sizeof text, "%016" PRIx64 " %s", hash, name);
  sha256(text, MIN((size_t)n, sizeof text - 1), digest);
  for (size_t i = 0; i < SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
  cJSON_AddStringToObject(object, "digest", hex);
}

/* `parent`: the name of the model of an adapter; NULL = it is none. `hash`: of the weights. */
static cJSON *entry(const model_card_t *card, uint64_t hash, const char *name, const char *parent) {
  char listed[OLLAMA_NAME_MAX], of[OLLAMA_NAME_MAX] = "";
  cJSON *object = cJSON_CreateObject();
  ollama_listed_name(name, listed);
  if (parent != NULL) ollama_listed_name(parent, of);
  cJSON_AddStringToObject(object, "name", listed);
  cJSON_AddStringToObject(object, "model", listed);
  add_digest(object, hash, listed);
  ollama_add_facts(object, card, of);
  return object;
}

static uint64_t weights_hash(const server_t *server) {
  return engine_info(server->engine)->weights_hash;
}

/* ---- /api/tags and /api/ps ---- */

static void reply_tags(exchange_t *exchange, const model_card_t *card) {
  const server_t *server = exchange->server;
  const model_names_t *names = model_names(server->live);
  const lora_entry_t *lora;
  uint64_t hash = weights_hash(server);
  cJSON *object = cJSON_CreateObject(), *models = cJSON_AddArrayToObject(object, "models");
  for (int i = 0; i < names->count; i++)
    cJSON_AddItemToArray(models, entry(card, hash, names->name[i], NULL));
  for (int i = 0; (lora = lora_at(server->live, i)) != NULL; i++)
    cJSON_AddItemToArray(models, entry(card, hash, lora->name, names->name[0]));
  reply_json(exchange, 200, object);
}

/* What is added to the entry of a model that is in memory. `ends`: seconds since 1970; 0: it has no
 * end, for which a far one stands. */
static void add_running(cJSON *model, int64_t ends, int64_t device_bytes, int64_t context) {
  if (ends > 0)
    ollama_add_time(model, "expires_at", ends);
  else
    cJSON_AddStringToObject(model, "expires_at", "2999-12-31T23:59:59Z");
  cJSON_AddNumberToObject(model, "size_vram", (double)device_bytes);
  cJSON_AddNumberToObject(model, "context_length", (double)context);
}

static void reply_ps(exchange_t *exchange, const model_card_t *card) {
  const server_t *server = exchange->server;
  const engine_info_t *info = engine_info(server->engine);
  bool on_gpu = strcmp(info->backend, "cuda") == 0;
  cJSON *object = cJSON_CreateObject(), *models = cJSON_AddArrayToObject(object, "models");
  cJSON *model = entry(card, info->weights_hash, model_name(server->live), NULL);
  add_running(model, 0, on_gpu ? card->bytes : 0, info->max_model_len);
  cJSON_AddItemToArray(models, model);
  reply_json(exchange, 200, object);
}

/* ---- /api/show ---- */

static bool is_adapter(const completions_t *live, const char *name) {
  const lora_entry_t *lora;
  for (int i = 0; (lora = lora_at(live, i)) != NULL; i++) {
    if (strcmp(lora->name, name) == 0) return true;
  }
  return false;
}

static void reply_show(exchange_t *exchange, const model_card_t *card, const char *name) {
  const server_t *server = exchange->server;
  const engine_info_t *info = engine_info(server->engine);
  ollama_subject_t subject = {.live = server->live,
                              .config = server->config,
                              .info = info,
                              .tokenizer = engine_tokenizer(server->engine),
                              .card = card,
                              .task =
                                  info->embedding != NULL ? info->embedding->task : TASK_GENERATE,
                              .sees = info->vision != NULL,
                              .hears = info->hearing != NULL};
  char parent[OLLAMA_NAME_MAX] = "";
  if (is_adapter(server->live, name)) ollama_listed_name(model_name(server->live), parent);
  reply_json(exchange, 200, ollama_show(&subject, parent));
}

/* ---- several models ---- */

/* What tells weights from others without reading them. */
static uint64_t files_hash(const model_card_t *card) {
  return fnv_64(fnv_64(FNV_64_BASIS, &card->bytes, sizeof card->bytes), &card->modified_s,
                sizeof card->modified_s);
}

static void tags_of_all(exchange_t *exchange) {
  cJSON *object = cJSON_CreateObject(), *models = cJSON_AddArrayToObject(object, "models");
  model_line_t line;
  for (int i = 0; models_line(exchange->server, i, &line); i++) {
    uint64_t hash = files_hash(line.card);
    for (int k = 0; k < line.num_names; k++)
      cJSON_AddItemToArray(models, entry(line.card, hash, line.names[k], NULL));
    for (int k = 0; k < line.num_adapters; k++)
      cJSON_AddItemToArray(models, entry(line.card, hash, line.adapters[k], line.name));
  }
  reply_json(exchange, 200, object);
}

static void ps_of_all(exchange_t *exchange) {
  cJSON *object = cJSON_CreateObject(), *models = cJSON_AddArrayToObject(object, "models");
  model_line_t line;
  for (int i = 0; models_line(exchange->server, i, &line); i++) {
    if (!line.answers) continue;
    cJSON *model = entry(line.card, files_hash(line.card), line.name, NULL);
    cJSON_ReplaceItemInObject(model, "size", cJSON_CreateNumber((double)line.bytes));
    add_running(model, line.ends, line.device_bytes, line.context);
    cJSON_AddItemToArray(models, model);
  }
  reply_json(exchange, 200, object);
}

/* The answer was printed from the headers of the files, when the model was planned. */
static void show_of_all(exchange_t *exchange, const char *name) {
  static const char mark[] = "\"parent_model\":\"";
  buffer_t text = {0};
  size_t length;
  char listed[OLLAMA_NAME_MAX];
  model_line_t line;
  inferd_error_t error = {0};
  if (!models_named(exchange->server, name, &line) || line.shown == NULL) {
    error_set(&error, ERR_MODEL_LOADING, "model",
              "The files of the model '%.200s' have not been read yet, or not without an error.",
              name);
    exchange_error(exchange, &error);
    return;
  }
  /* No text of JSON has this mark, for its quotes are escaped there. */
  const char *at = line.is_adapter ? strstr(line.shown, mark) : NULL;
  size_t begin = at != NULL ? (size_t)(at - line.shown) + sizeof mark - 1 : 0;
  buffer_append(&text, line.shown, begin);
  if (at != NULL) {
    ollama_listed_name(line.name, listed);
    buffer_escape(&text, listed, strlen(listed));
  }
  buffer_text(&text, line.shown + begin);
  char *body = text.failed ? NULL : buffer_detach(&text, &length);
  buffer_free(&text);
  if (body == NULL)
    reply_no_memory(exchange);
  else
    exchange_reply(exchange, 200, "application/json", body, length);
}

/* ---- the card ---- */

typedef enum card_use { ASKED_TAGS, ASKED_PS, ASKED_SHOW } card_use_t;

typedef struct card_job {
  reply_job_t base; /* first */
  card_use_t asked;
  char name[OLLAMA_NAME_MAX]; /* of ASKED_SHOW */
  char path[LOCATED_PATH_MAX];
  model_card_t *card;
} card_job_t;

static void answer(exchange_t *exchange, card_use_t asked, const char *name,
                   const model_card_t *card) {
  switch (asked) {
  case ASKED_TAGS: reply_tags(exchange, card); break;
  case ASKED_PS: reply_ps(exchange, card); break;
  case ASKED_SHOW: reply_show(exchange, card, name); break;
  }
}

/* A file that went away after it was loaded leaves an empty card, which is not kept. */
static int read_card(reply_job_t *base) {
  card_job_t *job = (card_job_t *)base;
  inferd_error_t error;
  job->card = calloc(1, sizeof *job->card);
  if (job->card == NULL) return error_set(&base->error, ERR_INTERNAL, NULL, "Out of memory.");
  (void)model_card_read(job->path, job->card, &error);
  return 0;
}

static void drop_card(card_job_t *job) {
  if (job->card == NULL || job->card == job->base.server->live->card) return;
  model_card_free(job->card);
  free(job->card);
}

static void finish_card(reply_job_t *base) {
  card_job_t *job = (card_job_t *)base;
  answer(base->exchange, job->asked, job->name, job->card);
  drop_card(job);
}

/* The first card is kept. */
static void settle_card(reply_job_t *base) {
  card_job_t *job = (card_job_t *)base;
  completions_t *live = base->server->live;
  if (job->card == NULL) return;
  if (live->card == NULL && job->card->modified_s != 0) live->card = job->card;
  if (base->exchange == NULL) drop_card(job); /* else `finish` does */
}

static void ask(exchange_t *exchange, card_use_t asked, const char *name) {
  server_t *server = exchange->server;
  if (server->live->card != NULL) {
    answer(exchange, asked, name, server->live->card);
    return;
  }
  card_job_t *job = (card_job_t *)reply_job_new(exchange, sizeof *job, false);
  if (job == NULL) return;
  job->base.work = read_card;
  job->base.settled = settle_card;
  job->base.finish = finish_card;
  job->asked = asked;
  snprintf(job->name, sizeof job->name, "%s", name);
  snprintf(job->path, sizeof job->path, "%s", server->config->model);
  reply_job_submit(&job->base);
}

void api_ollama_tags(exchange_t *exchange) {
  if (exchange->server->models != NULL)
    tags_of_all(exchange);
  else
    ask(exchange, ASKED_TAGS, "");
}

void api_ollama_ps(exchange_t *exchange) {
  if (exchange->server->models != NULL)
    ps_of_all(exchange);
  else
    ask(exchange, ASKED_PS, "");
}

/* ---- bodies that name a model ---- */

typedef struct name_body {
  const json_t *model, *name;
  bool stream;
} name_body_t;

#undef FIELDS_STRUCT
#define FIELDS_STRUCT name_body_t
static const field_t show_rows[] = {
#include "server/fields/ollama/show_fields.def"
};
static const field_t pull_rows[] = {
#include "server/fields/ollama/pull_fields.def"
};
static const field_table_t show_table = {show_rows, ARRAY_LEN(show_rows), NULL};
static const field_table_t pull_table = {pull_rows, ARRAY_LEN(pull_rows), NULL};

/* Reads the body and finds its model. False: that was answered. */
static bool read_named(exchange_t *exchange, const field_table_t *table, name_body_t *named,
                       char name[OLLAMA_NAME_MAX]) {
  const server_t *server = exchange->server;
  inferd_error_t error;
  json_doc_t *doc = NULL;
  field_limits_t limits = {.strict = server->config->strict_params};
  arena_t arena = {0};
  reader_t reader = {.out = named, .limits = &limits, .arena = &arena, .error = &error};
  int code = json_parse(exchange->body, exchange->body_length, &json_limits_request, &doc, &error);
  if (code == 0) code = ollama_read_fields(&reader, table, json_root(doc));
  if (code == 0) {
    const json_t *asked = named->model != NULL ? named->model : named->name;
    code = ollama_find_model(server, asked, name, &error);
  }
  if (reader.ignored[0] != '\0') {
    exchange_header(exchange, "x-inferd-ignored-params", reader.ignored);
    metrics_ignored_params(server->metrics);
  }
  arena_free(&arena);
  json_free(doc);
  if (code != 0) exchange_error(exchange, &error);
  return code == 0;
}

void api_ollama_show(exchange_t *exchange) {
  server_t *server = exchange->server;
  name_body_t named = {0};
  char name[OLLAMA_NAME_MAX];
  if (!read_named(exchange, &show_table, &named, name)) return;
  if (server->models != NULL) {
    show_of_all(exchange, name);
    return;
  }
  chat_model_ready(server->live, server->config, engine_tokenizer(server->engine));
  ask(exchange, ASKED_SHOW, name);
}

/* The model that is served is there. */
void api_ollama_pull(exchange_t *exchange) {
  static const char lines[] = "{\"status\":\"pulling manifest\"}\n{\"status\":\"success\"}\n";
  static const char whole[] = "{\"status\":\"success\"}";
  name_body_t named = {0};
  char name[OLLAMA_NAME_MAX];
  if (!read_named(exchange, &pull_table, &named, name)) return;
  if (named.stream) {
    exchange_reply_fixed(exchange, 200, "application/x-ndjson", lines, sizeof lines - 1);
  } else {
    exchange_reply_fixed(exchange, 200, "application/json", whole, sizeof whole - 1);
  }
}
