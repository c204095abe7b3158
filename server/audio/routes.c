/* routes.c: which dialect answers /v1/audio, by what the served model is. Loop thread. */
#include "server/audio/audio.h"

/* Whether the model hears in chats, and is made to write down what it hears. */
static bool by_chat(const exchange_t *exchange) {
  const engine_info_t *info = engine_info(exchange->server->engine);
  return info != NULL && info->hearing != NULL && info->hearing->writes != NULL;
}

void api_transcriptions(exchange_t *exchange) {
  completion_start(exchange,
                   by_chat(exchange) ? &audio_chat_transcriptions : &audio_transcriptions);
}

void api_translations(exchange_t *exchange) {
  completion_start(exchange, by_chat(exchange) ? &audio_chat_translations : &audio_translations);
}
