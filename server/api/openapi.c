/* openapi.c: `/openapi.json`, the description of the routes and the bodies that they take.
 *
 * Loop thread; keeps no state. The document is made from the tables by which requests are read.
 */
#include "server/api/openapi.h"
#include "server/server.h"

void api_openapi(exchange_t *exchange) {
  exchange_reply_fixed(exchange, 200, "application/json", openapi_bytes, openapi_length);
}
