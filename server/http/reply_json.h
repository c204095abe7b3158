/* reply_json.h: small replies built with cJSON. Loop thread.
 *
 * For objects of a few fields; completions and metrics print themselves. Strings must be valid
 * UTF-8 (cJSON does not look). Reading goes through engine/base/json.h, never through cJSON.
 */
#ifndef INFERD_SERVER_HTTP_REPLY_JSON_H
#define INFERD_SERVER_HTTP_REPLY_JSON_H

#include "server/http/http.h"

#include <cjson/cJSON.h>

/* Prints the object, frees it and answers with it. Answers 500 if the object is NULL or memory is
 * short. */
void reply_json(exchange_t *exchange, int status, cJSON *object);
/* Answers 500 when a handler had no memory for its own body. */
void reply_no_memory(exchange_t *exchange);

#endif
