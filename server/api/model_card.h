/* model_card.h: an entry of /v1/models, in the words of OpenAI and of Anthropic. */
#ifndef INFERD_SERVER_API_MODEL_CARD_H
#define INFERD_SERVER_API_MODEL_CARD_H

#include "server/server.h"

#include <cjson/cJSON.h>

/* The caller frees it. `root`: what serves this name; `parent`: the model of an adapter, NULL = it
 * is none. max_model_len 0: not known. */
cJSON *model_card(const server_t *server, const char *name, const char *root, const char *parent,
                  int64_t max_model_len);

#endif
