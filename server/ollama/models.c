/* models.c: what programs ask about the model: /api/version, tags, ps, show and pull.
 *
 * Loop thread; a job of the lanes reads the headers of the files, once. There is one model, and it
 * stays: nothing that is asked here changes anything.
 */
#include "server/ollama/ollama.h"

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
#include <math.h>
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

/* ---- parts of answers ---- */

static void add_time(cJSON *object, const char *name, int64_t seconds) {
  buffer_t text = {0};
  ollama_print_time(&text, seconds);
  buffer_char(&text, '\0');
  if (!text.failed) cJSON_AddRawToObject(object, name, text.data);
  buffer_free(&text);
}

/* "494.03M", "7.6B": as Ollama writes numbers of parameters. */
static const char *human(int64_t number, char out[32]) {
  static const struct {
    double unit;
    int digits;
    const char *letter;
  } units[] = {{1e9, 1, "B"}, {1e6, 2, "M"}, {1e3, 0, "K"}};
  out[0] = '\0';
  for (size_t i = 0; i < ARRAY_LEN(units) && out[0] == '\0'; i++) {
    double value = (double)number / units[i].unit;
    if (value < 1) continue;
    snprintf(out, 32, "%.*f%s", value == floor(value) ? 0 : units[i].digits, value,
             units[i].letter);
  }
  if (out[0] == '\0' && number > 0) snprintf(out, 32, "%" PRId64, number);
  return out;
}

/* `lora`: of the adapter, which the model is the parent of. */
static void add_details(cJSON *object, const server_t *server, const model_card_t *card,
                        const lora_entry_t *lora) {
  char text[32], parent[OLLAMA_NAME_MAX] = "";
  const char *family = card->family;
  cJSON *details = cJSON_AddObjectToObject(object, "details");
  if (lora != NULL) ollama_listed_name(model_name(server->live), parent);
  cJSON_AddStringToObject(details, "parent_model", parent);
  cJSON_AddStringToObject(details, "format", card->is_gguf ? "gguf" : "safetensors");
  cJSON_AddStringToObject(details, "family", family);
  cJSON_AddItemToObject(details, "families", cJSON_CreateStringArray(&family, 1));
  cJSON_AddStringToObject(details, "parameter_size", human(card->parameters, text));
  cJSON_AddStringToObject(details, "quantization_level", card->level);
}

/* Another digest means other weights or another name: it is of the engine's hash of the weights. */
static void add_digest(cJSON *object, const server_t *server, const char *name) {
  const engine_info_t *info = engine_info(server->engine);
  uint8_t digest[SHA256_BYTES];
  char text[OLLAMA_NAME_MAX + 64], hex[2 * SHA256_BYTES + 1];
  int n = snprintf(text, sizeof text, "%016" PRIx64 " %s", info->weights_hash, name);
  sha256(text, MIN((size_t)n, sizeof text - 1), digest);
  for (size_t i = 0; i < SHA256_BYTES; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
  cJSON_AddStringToObject(object, "digest", hex);
}

static cJSON *entry(const server_t *server, const model_card_t *card, const char *name,
                    const lora_entry_t *lora) {
  char listed[OLLAMA_NAME_MAX];
  cJSON *object = cJSON_CreateObject();
  ollama_listed_name(name, listed);
  cJSON_AddStringToObject(object, "name", listed);
  cJSON_AddStringToObject(object, "model", listed);
  cJSON_AddNumberToObject(object, "size", (double)card->bytes);
  add_digest(object, server, listed);
  add_details(object, server, card, lora);
  return object;
}

/* ---- /api/tags and /api/ps ---- */

static void add_tag(cJSON *models, const server_t *server, const model_card_t *card,
                    const char *name, const lora_entry_t *lora) {
  cJSON *object = entry(server, card, name, lora);
  add_time(object, "modified_at", card->modified_s);
  cJSON_AddItemToArray(models, object);
}

static void reply_tags(exchange_t *exchange, const model_card_t *card) {
  const server_t *server = exchange->server;
  const model_names_t *names = model_names(server->live);
  const lora_entry_t *lora;
  cJSON *object = cJSON_CreateObject(), *models = cJSON_AddArrayToObject(object, "models");
  for (int i = 0; i < names->count; i++) add_tag(models, server, card, names->name[i], NULL);
  for (int i = 0; (lora = lora_at(server->live, i)) != NULL; i++) {
    add_tag(models, server, card, lora->name, lora);
  }
  reply_json(exchange, 200, object);
}

/* The model that runs: it has no end, for which a far one stands. */
static void reply_ps(exchange_t *exchange, const model_card_t *card) {
  const server_t *server = exchange->server;
  const engine_info_t *info = engine_info(server->engine);
  bool on_gpu = strcmp(info->backend, "cuda") == 0;
  cJSON *object = cJSON_CreateObject(), *models = cJSON_AddArrayToObject(object, "models");
  cJSON *model = entry(server, card, model_name(server->live), NULL);
  cJSON_AddStringToObject(model, "expires_at", "2999-12-31T23:59:59Z");
  cJSON_AddNumberToObject(model, "size_vram", on_gpu ? (double)card->bytes : 0);
  cJSON_AddNumberToObject(model, "context_length", info->max_model_len);
  cJSON_AddItemToArray(models, model);
  reply_json(exchange, 200, object);
}

/* ---- /api/show ---- */

static void add_capabilities(cJSON *object, const server_t *server) {
  const completions_t *live = server->live;
  const engine_info_t *info = engine_info(server->engine);
  cJSON *list = cJSON_AddArrayToObject(object, "capabilities");
  bool generates = info->embedding == NULL;
  bool chats = generates && live->templates != NULL && chat_templates_any(live->templates);
  bool embeds = !generates && info->embedding->task == TASK_EMBED;
  const struct {
    bool has;
    const char *name;
  } all[] = {{generates, "completion"},
             {embeds, "embedding"},
             {generates && info->vision != NULL, "vision"},
             {chats && live->tool_format != NULL && chat_takes_tools(live), "tools"},
             {chats && live->reasoning_format != NULL, "thinking"},
             {generates && completion_can_fill_in(engine_tokenizer(server->engine)), "insert"}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    if (all[i].has) cJSON_AddItemToArray(list, cJSON_CreateString(all[i].name));
  }
}

/* The defaults of generation_config.json as lines of a Modelfile; `word` begins each. */
static void print_defaults(buffer_t *out, const server_t *server, const char *word) {
  const engine_info_t *info = engine_info(server->engine);
  const struct {
    const char *name;
    float value;
  } numbers[] = {{"temperature", info->temperature},
                 {"top_p", info->top_p},
                 {"min_p", info->min_p},
                 {"repeat_penalty", info->repetition_penalty}};
  if (strcmp(server->config->generation_config, "none") == 0) return;
  for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
    if (isnan(numbers[i].value)) continue;
    buffer_text(out, word);
    buffer_text(out, numbers[i].name);
    buffer_char(out, ' ');
    buffer_float(out, numbers[i].value);
    buffer_char(out, '\n');
  }
  if (info->top_k < 0) return;
  buffer_text(out, word);
  buffer_text(out, "top_k ");
  buffer_int(out, info->top_k);
  buffer_char(out, '\n');
}

static void add_text(cJSON *object, const char *name, buffer_t *text) {
  if (text->length > 0 && text->data[text->length - 1] == '\n') text->length--;
  buffer_char(text, '\0');
  if (!text->failed) cJSON_AddStringToObject(object, name, text->data);
  buffer_free(text);
}

static void add_texts(cJSON *object, const server_t *server, const model_card_t *card) {
  const chat_templates_t *templates = server->live->templates;
  buffer_t file = {0}, parameters = {0}, shown = {0}, license = {0};
  size_t length = 0;
  const char *text = templates != NULL ? chat_templates_text(templates, &length) : NULL;
  buffer_text(&file, "FROM ");
  buffer_text(&file, model_name(server->live));
  if (text != NULL) {
    buffer_text(&file, "\nTEMPLATE \"\"\"");
    buffer_append(&file, text, length);
    buffer_text(&file, "\"\"\"");
    buffer_append(&shown, text, length);
  }
  buffer_char(&file, '\n');
  print_defaults(&file, server, "PARAMETER ");
  print_defaults(&parameters, server, "");
  buffer_append(&license, card->license.data, card->license.length);
  add_text(object, "modelfile", &file);
  add_text(object, "parameters", &parameters);
  add_text(object, "template", &shown);
  if (license.length > 0) add_text(object, "license", &license);
  buffer_free(&license);
}

/* The metadata of the file, and the context that this server takes, which may be shorter. */
static void add_info(cJSON *object, const server_t *server, const model_card_t *card) {
  buffer_t text = {0};
  buffer_char(&text, '{');
  buffer_append(&text, card->info.data, card->info.length);
  buffer_text(&text, card->info.length > 0 ? ",\"" : "\"");
  buffer_escape(&text, card->family, strlen(card->family));
  buffer_text(&text, ".context_length\":");
  buffer_int(&text, engine_info(server->engine)->max_model_len);
  buffer_text(&text, "}");
  buffer_char(&text, '\0');
  if (!text.failed) cJSON_AddRawToObject(object, "model_info", text.data);
  buffer_free(&text);
}

static const lora_entry_t *adapter_of(const completions_t *live, const char *name) {
  const lora_entry_t *lora;
  for (int i = 0; (lora = lora_at(live, i)) != NULL; i++) {
    if (strcmp(lora->name, name) == 0) return lora;
  }
  return NULL;
}

static void reply_show(exchange_t *exchange, const model_card_t *card, const char *name) {
  const server_t *server = exchange->server;
  cJSON *object = cJSON_CreateObject();
  add_texts(object, server, card);
  add_details(object, server, card, adapter_of(server->live, name));
  add_info(object, server, card);
  add_capabilities(object, server);
  add_time(object, "modified_at", card->modified_s);
  reply_json(exchange, 200, object);
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
  ask(exchange, ASKED_TAGS, "");
}

void api_ollama_ps(exchange_t *exchange) {
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
    code = ollama_find_model(server->live, asked, name, &error);
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
