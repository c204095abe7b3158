/* openapi.c: `/openapi.json`, the description of the routes and the bodies that they take.
 *
 * Loop thread; keeps no state. The document is made from the tables by which requests are read.
 */
#include "server/api/openapi.h"
#include "server/server.h"

#include <stdlib.h>
#include <string.h>

void api_openapi(exchange_t *exchange) {
  char *body = malloc(openapi_length);
  if (body == NULL) {
    inferd_error_t error;
    error_set(&error, ERR_OVERLOADED, NULL, "The server is short of memory.");
    exchange_error(exchange, &error);
    return;
  }
  memcpy(body, openapi_bytes, openapi_length);
  exchange_reply(exchange, 200, "application/json", body, openapi_length);
}
