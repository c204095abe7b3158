/* props.c: what programs of llama.cpp's server ask of a model: /props and /apply-template.
 *
 * Loop thread; keeps no state. Names and shapes are llama.cpp's. Of its settings those are told
 * that requests have here, too.
 */
#include "server/llama/llama.h"

#include "server/completion/chat.h"
#include "server/completion/dialect.h"
#include "server/http/reply_json.h"

#include "engine/base/util.h"

#include <string.h>

/* ---- /apply-template ---- */

static bool describe_prompt(completion_t *completion) {
  cord_t *out = &completion->reply;
  const prompt_t *prompt = &completion->params.prompts[0];
  buffer_text(&out->own, "{\"prompt\":\"");
  cord_escape(out, prompt->text, prompt->length);
  buffer_text(&out->own, "\"}");
  return true;
}

/* A prompt that is longer than the context is shown, too. */
static const dialect_t template_dialect = {
    .is_chat = true, .counts = true, .describe = describe_prompt};

void api_apply_template(exchange_t *exchange) {
  completion_start(exchange, &template_dialect);
}

/* ---- /props ---- */

/* Bytes that are no UTF-8 become U+FFFD. */
static void add_text(cJSON *object, const char *name, const char *text, size_t length) {
  buffer_t quoted = {0};
  buffer_quote(&quoted, text, length);
  buffer_char(&quoted, '\0');
  if (!quoted.failed) cJSON_AddRawToObject(object, name, quoted.data);
  buffer_free(&quoted);
}

static void add_token(cJSON *object, const char *name, const tokenizer_t *tokenizer, int32_t id) {
  size_t length;
  const uint8_t *spelling = tokenizer_spelling(tokenizer, id, &length);
  add_text(object, name, spelling != NULL ? (const char *)spelling : "", length);
}

static void print_float(buffer_t *out, const char *name, float value) {
  buffer_text(out, name);
  buffer_float(out, value);
}

static void print_int(buffer_t *out, const char *name, int64_t value) {
  buffer_text(out, name);
  buffer_int(out, value);
}

void llama_print_settings(buffer_t *out, const params_t *params, int64_t max_tokens) {
  print_int(out, "{\"n_predict\":", max_tokens);
  print_int(out, ",\"max_tokens\":", max_tokens);
  print_int(out, ",\"seed\":", params->has_seed ? params->seed : UINT32_MAX); /* any */
  print_float(out, ",\"temperature\":", params->temperature);
  print_int(out, ",\"top_k\":", MAX(params->top_k, 0));
  print_float(out, ",\"top_p\":", params->top_p);
  print_float(out, ",\"min_p\":", params->min_p);
  buffer_text(out, ",\"repeat_last_n\":-1"); /* all of the context */
  print_float(out, ",\"repeat_penalty\":", params->repetition_penalty);
  print_float(out, ",\"presence_penalty\":", params->presence_penalty);
  print_float(out, ",\"frequency_penalty\":", params->frequency_penalty);
  buffer_text(out, params->ignore_eos ? ",\"ignore_eos\":true" : ",\"ignore_eos\":false");
  buffer_text(out, params->stream ? ",\"stream\":true" : ",\"stream\":false");
  buffer_text(out, ",\"stop\":[");
  for (int32_t i = 0; i < params->num_stop; i++) {
    if (i > 0) buffer_char(out, ',');
    buffer_quote(out, params->stop[i].text, params->stop[i].length);
  }
  buffer_text(out, "]}");
}

/* What a request has that names none of them. */
static void add_settings(cJSON *object, const server_t *server, const engine_info_t *info) {
  bool of_model = strcmp(server->config->generation_config, "none") != 0;
  params_defaults_t defaults = {.model = of_model ? info : NULL};
  params_t params;
  buffer_t text = {0};
  params_default(&params, &defaults);
  llama_print_settings(&text, &params, of_model ? info->max_new_tokens : -1);
  buffer_char(&text, '\0');
  cJSON *settings = cJSON_AddObjectToObject(object, "default_generation_settings");
  if (!text.failed) cJSON_AddRawToObject(settings, "params", text.data);
  cJSON_AddNumberToObject(settings, "n_ctx", info->max_model_len);
  buffer_free(&text);
}

static void add_template(cJSON *object, const completions_t *live) {
  const chat_templates_t *templates = live->templates;
  size_t length = 0;
  const char *text = templates != NULL ? chat_templates_text(templates, &length) : NULL;
  bool calls = text != NULL && live->tool_format != NULL && chat_takes_tools(live);
  add_text(object, "chat_template", text != NULL ? text : "", length);
  cJSON *caps = cJSON_AddObjectToObject(object, "chat_template_caps");
  cJSON_AddBoolToObject(caps, "supports_tools", calls);
  cJSON_AddBoolToObject(caps, "supports_tool_calls", calls);
}

static void add_ends(cJSON *object, const server_t *server) {
  engine_sleep_t state = {0};
  if (server->engine != NULL) engine_asleep(server->engine, &state); /* a parent has none */
  cJSON_AddTrueToObject(object, "endpoint_slots");
  cJSON_AddFalseToObject(object, "endpoint_props");
  cJSON_AddTrueToObject(object, "endpoint_metrics");
  cJSON_AddBoolToObject(object, "webui", strcmp(server->config->web_page, "on") == 0);
  cJSON_AddStringToObject(object, "build_info", "inferd " INFERD_VERSION "-" INFERD_COMMIT);
  cJSON_AddBoolToObject(object, "is_sleeping", state.sleeps);
}

/* Of several models, where none is named: llama.cpp's router says that it is one. */
static void reply_of_router(exchange_t *exchange) {
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "role", "router");
  cJSON_AddStringToObject(object, "model_alias", "inferd");
  cJSON_AddStringToObject(object, "model_path", "none");
  cJSON *settings = cJSON_AddObjectToObject(object, "default_generation_settings");
  cJSON_AddItemToObject(settings, "params", cJSON_CreateObject());
  cJSON_AddNumberToObject(settings, "n_ctx", 0);
  add_ends(object, exchange->server);
  reply_json(exchange, 200, object);
}

void api_props(exchange_t *exchange) {
  const server_t *server = exchange->server;
  if (server->models != NULL) {
    reply_of_router(exchange);
    return;
  }
  const engine_info_t *info = engine_info(server->engine);
  const tokenizer_t *tokenizer = engine_tokenizer(server->engine);
  const char *path = server->asked.model, *alias = model_name(server->live);
  chat_model_ready(server->live, server->config, tokenizer);
  cJSON *object = cJSON_CreateObject();
  add_settings(object, server, info);
  cJSON_AddNumberToObject(object, "total_slots", info->max_num_seqs);
  add_text(object, "model_alias", alias, strlen(alias));
  add_text(object, "model_path", path, strlen(path));
  cJSON *modalities = cJSON_AddObjectToObject(object, "modalities");
  cJSON_AddBoolToObject(modalities, "vision", info->vision != NULL);
  cJSON_AddBoolToObject(modalities, "audio", info->hearing != NULL);
  add_template(object, server->live);
  add_token(object, "bos_token", tokenizer, tokenizer_bos_id(tokenizer));
  add_token(object, "eos_token", tokenizer, info->primary_eos);
  add_ends(object, server);
  reply_json(exchange, 200, object);
}
