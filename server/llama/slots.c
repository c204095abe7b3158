/* slots.c: /slots: the places of a model, as programs of llama.cpp's server look at them.
 *
 * Loop thread; keeps no state. A place is one of --max-num-seqs: requests share the KV cache, so
 * none has a part of it. How many are taken is told, and nothing of whose requests they have.
 */
#include "server/llama/llama.h"

#include "server/http/reply_json.h"

#include "engine/base/util.h"

void api_slots(exchange_t *exchange) {
  const server_t *server = exchange->server;
  const engine_info_t *info = engine_info(server->engine);
  const char *must = exchange_query(exchange, "fail_on_no_slot");
  engine_stats_t stats;
  engine_stats(server->engine, &stats);
  if (must != NULL && must[0] != '\0' && stats.num_running >= info->max_num_seqs) {
    inferd_error_t error;
    error_set(&error, ERR_OVERLOADED, NULL, "no slot available: %d sequences run",
              stats.num_running);
    exchange_error(exchange, &error);
    return;
  }
  cJSON *list = cJSON_CreateArray();
  for (int32_t i = 0; i < info->max_num_seqs; i++) {
    cJSON *slot = cJSON_CreateObject();
    cJSON_AddNumberToObject(slot, "id", i);
    cJSON_AddNumberToObject(slot, "n_ctx", info->max_model_len);
    cJSON_AddBoolToObject(slot, "speculative", server->config->num_speculative_tokens > 0);
    cJSON_AddBoolToObject(slot, "is_processing", i < stats.num_running);
    cJSON_AddItemToArray(list, slot);
  }
  reply_json(exchange, 200, list);
}
