/* reply_json.c: answers an exchange with a small cJSON object. Loop thread; keeps nothing. */
#include "server/http/reply_json.h"

#include <string.h>

void reply_no_memory(exchange_t *exchange) {
  inferd_error_t error;
  error_set(&error, ERR_INTERNAL, NULL, "Out of memory.");
  exchange_error(exchange, &error);
}

void reply_json(exchange_t *exchange, int status, cJSON *object) {
  char *text = object != NULL ? cJSON_PrintUnformatted(object) : NULL;
  cJSON_Delete(object);
  if (text == NULL) {
    reply_no_memory(exchange);
    return;
  }
  exchange_reply(exchange, status, "application/json", text, strlen(text));
}
