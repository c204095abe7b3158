/* api_models.c: the names of the one model, /v1/models and /v1/models/{id}.
 *
 * Loop thread; the names are set at start and constant afterwards, so that pool threads may look
 * them up.
 */
#include "server/api_completion.h"
#include "server/json.h"
#include "server/lora.h"

#include <stdlib.h>
#include <string.h>

/* The last part of a path, whatever slashes end it; of "." and ".." that of the directory meant. */
static char *base_name(const char *path) {
  size_t end = strlen(path);
  while (end > 1 && path[end - 1] == '/') end--;
  size_t start = end;
  while (start > 0 && path[start - 1] != '/') start--;
  if (start == end) return strdup("model");
  char *name = strndup(path + start, end - start);
  if (name == NULL || (strcmp(name, ".") != 0 && strcmp(name, "..") != 0)) return name;
  char *real = realpath(path, NULL); /* has no such part */
  free(name);
  name = real != NULL ? base_name(real) : strdup("model");
  free(real);
  return name;
}

int model_names_set(completions_t *live, const config_t *config) {
  for (int i = 0; i < config->served_model_name.count && i < MODEL_NAMES_MAX; i++) {
    live->names[live->num_names++] = config->served_model_name.items[i];
  }
  if (live->num_names > 0) return 0;
  live->default_name = base_name(config->model);
  if (live->default_name == NULL) return ERR_NO_MEMORY;
  live->names[live->num_names++] = live->default_name;
  return 0;
}

bool model_name_known(const completions_t *live, const char *name, size_t length) {
  for (int i = 0; i < live->num_names; i++) {
    if (strlen(live->names[i]) == length && memcmp(live->names[i], name, length) == 0) return true;
  }
  return false;
}

static int fail_unknown_model(error_t *error, const char *name, size_t length) {
  char shown[280];
  return error_set(error, ERR_MODEL_NOT_FOUND, "model", "The model `%s` does not exist.",
                   error_quote(shown, sizeof shown, name, length));
}

int model_check(const completions_t *live, bool any, const json_t *name, error_t *error) {
  if (any || name == NULL || name->length == 0) return 0;
  if (model_name_known(live, name->text, name->length)) return 0;
  if (lora_known(live, name->text, name->length)) return 0;
  return fail_unknown_model(error, name->text, name->length);
}

/* `lora`: the card of an adapter, else of the model under one of its names. */
static cJSON *card(const server_t *server, const char *name, const lora_entry_t *lora) {
  const engine_info_t *info = engine_info(server->engine);
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "id", name);
  cJSON_AddStringToObject(object, "object", "model");
  cJSON_AddNumberToObject(object, "created", (double)server->start_time);
  cJSON_AddStringToObject(object, "owned_by", "inferd");
  cJSON_AddStringToObject(object, "root", lora != NULL ? lora->path : server->live->names[0]);
  if (lora != NULL)
    cJSON_AddStringToObject(object, "parent", server->live->names[0]);
  else
    cJSON_AddNullToObject(object, "parent");
  if (info != NULL) {
    cJSON_AddNumberToObject(object, "max_model_len", info->max_model_len);
  } else {
    cJSON_AddNullToObject(object, "max_model_len");
  }
  cJSON_AddItemToObject(object, "permission", cJSON_CreateArray());
  return object;
}

void api_models(exchange_t *exchange) {
  const server_t *server = exchange->server;
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "object", "list");
  cJSON *data = cJSON_AddArrayToObject(object, "data");
  for (int i = 0; i < server->live->num_names; i++) {
    cJSON_AddItemToArray(data, card(server, server->live->names[i], NULL));
  }
  const lora_entry_t *lora;
  for (int i = 0; (lora = lora_at(server->live, i)) != NULL; i++) {
    cJSON_AddItemToArray(data, card(server, lora->name, lora));
  }
  reply_json(exchange, 200, object);
}

void api_model(exchange_t *exchange) {
  const char *name = exchange->path_tail;
  if (model_name_known(exchange->server->live, name, strlen(name))) {
    reply_json(exchange, 200, card(exchange->server, name, NULL));
    return;
  }
  const lora_entry_t *lora;
  for (int i = 0; (lora = lora_at(exchange->server->live, i)) != NULL; i++) {
    if (strcmp(lora->name, name) != 0) continue;
    reply_json(exchange, 200, card(exchange->server, name, lora));
    return;
  }
  error_t error;
  fail_unknown_model(&error, name, strlen(name));
  exchange_error(exchange, &error);
}
