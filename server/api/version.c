/* version.c: /version: what runs here.
 *
 * Loop thread; keeps no state.
 */
#include "server/http/reply_json.h"
#include "server/observe/health.h"
#include "server/observe/metrics.h"

void api_version(exchange_t *exchange) {
  const engine_t *engine = exchange->server->engine; /* NULL: of the parent of several models */
  const engine_info_t *info = engine != NULL ? engine_info(engine) : NULL;
  cJSON *object = cJSON_CreateObject();
  cJSON_AddStringToObject(object, "version", INFERD_VERSION);
  cJSON_AddStringToObject(object, "commit", INFERD_COMMIT);
  cJSON_AddStringToObject(object, "arch", health_architecture());
  if (info != NULL) {
    cJSON_AddStringToObject(object, "backend", info->backend);
    cJSON_AddStringToObject(object, "device", info->device);
    cJSON_AddStringToObject(object, "dtype", info->dtype);
    cJSON_AddStringToObject(object, "architecture", info->architecture);
  }
  reply_json(exchange, 200, object);
}
