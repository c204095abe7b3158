/* models.c: /v1/models and /v1/models/{id}, the cards of the model and its adapters.
 *
 * Loop thread. Keeps no state.
 */
#include "server/api/model_card.h"
#include "server/completion/live.h"
#include "server/completion/lora_table.h"
#include "server/http/reply_json.h"

#include <string.h>
#include <time.h>

cJSON *model_card(const server_t *server, const char *name, const char *root, const char *parent,
                  int64_t max_model_len) {
  char created_at[32] = "";
  time_t created = (time_t)server->start_time;
  struct tm parts;
  if (gmtime_r(&created, &parts) != NULL) {
    strftime(created_at, sizeof created_at, "%Y-%m-%dT%H:%M:%SZ", &parts);
  }
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "id", name);
  cJSON_AddStringToObject(object, "object", "model");
  cJSON_AddNumberToObject(object, "created", (double)server->start_time);
  cJSON_AddStringToObject(object, "owned_by", "inferd");
  /* The clients of Anthropic read these three, where those of OpenAI read the three above. */
  cJSON_AddStringToObject(object, "type", "model");
  cJSON_AddStringToObject(object, "display_name", name);
  cJSON_AddStringToObject(object, "created_at", created_at);
  cJSON_AddStringToObject(object, "root", root);
  if (parent != NULL)
    cJSON_AddStringToObject(object, "parent", parent);
  else
    cJSON_AddNullToObject(object, "parent");
  if (max_model_len > 0)
    cJSON_AddNumberToObject(object, "max_model_len", (double)max_model_len);
  else
    cJSON_AddNullToObject(object, "max_model_len");
  cJSON_AddItemToObject(object, "permission", cJSON_CreateArray());
  return object;
}

/* The card of the adapter `lora`; if it is NULL, of the model under a served name. */
static cJSON *card(const server_t *server, const char *name, const lora_entry_t *lora) {
  const engine_info_t *info = engine_info(server->engine);
  const char *model = model_name(server->live);
  return model_card(server, name, lora != NULL ? lora->path : model, lora != NULL ? model : NULL,
                    info != NULL ? info->max_model_len : 0);
}

void api_models(exchange_t *exchange) {
  const server_t *server = exchange->server;
  if (server->models != NULL) {
    models_list(exchange);
    return;
  }
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "object", "list");
  cJSON *data = cJSON_AddArrayToObject(object, "data");
  const model_names_t *names = model_names(server->live);
  for (int i = 0; i < names->count; i++) {
    cJSON_AddItemToArray(data, card(server, names->name[i], NULL));
  }
  const lora_entry_t *lora;
  const char *last = names->name[names->count - 1];
  for (int i = 0; (lora = lora_at(server->live, i)) != NULL; i++) {
    cJSON_AddItemToArray(data, card(server, lora->name, lora));
    last = lora->name;
  }
  /* The list is never cut: these say so in the words of Anthropic. */
  cJSON_AddFalseToObject(object, "has_more");
  cJSON_AddStringToObject(object, "first_id", names->name[0]);
  cJSON_AddStringToObject(object, "last_id", last);
  reply_json(exchange, 200, object);
}

void api_model(exchange_t *exchange) {
  const char *name = exchange->path_tail;
  if (exchange->server->models != NULL) {
    models_list(exchange);
    return;
  }
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
  inferd_error_t error;
  model_fail_unknown(exchange->server->live, name, strlen(name), &error);
  exchange_error(exchange, &error);
}
