/* describe.c: what the files of a model say of it, for `inferd check --show`.
 *
 * Main thread of the command. The parent of several models reads it, so that lists and /api/show
 * need no process of the model.
 */
#include "server/serve.h"

#include "engine/base/json.h"
#include "engine/model/source/card.h"
#include "engine/text/tokenizer.h"
#include "server/completion/chat.h"
#include "server/ollama/ollama.h"

#include <stdio.h>
#include <stdlib.h>

static void print_card(const model_card_t *card) {
  buffer_t text = {0};
  buffer_text(&text, "{\"is_gguf\":");
  buffer_text(&text, card->is_gguf ? "true" : "false");
  buffer_text(&text, ",\"bytes\":");
  buffer_int(&text, card->bytes);
  buffer_text(&text, ",\"parameters\":");
  buffer_int(&text, card->parameters);
  buffer_text(&text, ",\"modified\":");
  buffer_int(&text, card->modified_s);
  buffer_text(&text, ",\"family\":");
  buffer_quote(&text, card->family, strlen(card->family));
  buffer_text(&text, ",\"level\":");
  buffer_quote(&text, card->level, strlen(card->level));
  if (!text.failed) printf("%.*s}\n", (int)text.length, text.data);
  buffer_free(&text);
}

static int print_show(const config_t *config, const engine_survey_t *survey,
                      const model_card_t *card, completions_t *live, const tokenizer_t *tokenizer) {
  chat_model_ready(live, config, tokenizer);
  ollama_subject_t subject = {.live = live,
                              .config = config,
                              .info = &survey->info,
                              .tokenizer = tokenizer,
                              .card = card,
                              .task = survey->task,
                              .sees = survey->sees,
                              .hears = survey->hears};
  cJSON *object = ollama_show(&subject, "");
  char *text = cJSON_PrintUnformatted(object);
  cJSON_Delete(object);
  if (text == NULL) return ERR_NO_MEMORY;
  puts(text);
  cJSON_free(text);
  return 0;
}

int serve_describe(const config_t *config, const engine_survey_t *survey, inferd_error_t *error) {
  completions_t *live = calloc(1, sizeof *live);
  tokenizer_t *tokenizer = NULL;
  model_card_t card = {0};
  int code = live != NULL ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory for the model");
  if (code == 0) code = model_card_read(config->model, &card, error);
  if (code == 0)
    code = config->skip_tokenizer_init ? tokenizer_none(&tokenizer, error)
                                       : tokenizer_load(config->model, &tokenizer, error);
  if (code == 0) code = chat_model_load(live, config, error);
  if (code == 0 && model_names_set(live, &config->served_model_name, config->model) != 0)
    code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for the names of the model");
  if (code == 0) {
    print_card(&card);
    code = print_show(config, survey, &card, live, tokenizer);
    if (code != 0) error_set(error, code, NULL, "no memory for what is shown of the model");
  }
  if (live != NULL) {
    chat_model_free(live);
    model_names_free(live);
  }
  free(live);
  tokenizer_free(tokenizer);
  model_card_free(&card);
  return code;
}
