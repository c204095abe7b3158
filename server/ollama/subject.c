/* subject.c: a model in Ollama's words: its entry in a list, and the answer of /api/show.
 *
 * Loop thread, or the main thread of `inferd check`. Keeps no state.
 */
#include "server/ollama/ollama.h"

#include "engine/base/util.h"
#include "engine/model/source/card.h"
#include "server/completion/chat.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

void ollama_add_time(cJSON *object, const char *name, int64_t seconds) {
  buffer_t text = {0};
  ollama_print_time(&text, seconds);
  buffer_char(&text, '\0');
  if (!text.failed) cJSON_AddRawToObject(object, name, text.data);
  buffer_free(&text);
}

/* "494.03M", "7.6B": as Ollama writes numbers of parameters. */
static const char *human(int64_t number, char out[32]) {
  static const struct {
    double unit;
    int digits;
    const char *letter;
  } units[] = {{1e9, 1, "B"}, {1e6, 2, "M"}, {1e3, 0, "K"}};
  out[0] = '\0';
  for (size_t i = 0; i < ARRAY_LEN(units) && out[0] == '\0'; i++) {
    double value = (double)number / units[i].unit;
    if (value < 1) continue;
    snprintf(out, 32, "%.*f%s", value == floor(value) ? 0 : units[i].digits, value,
             units[i].letter);
  }
  if (out[0] == '\0' && number > 0) snprintf(out, 32, "%" PRId64, number);
  return out;
}

static void add_details(cJSON *object, const model_card_t *card, const char *parent) {
  char text[32];
  const char *family = card->family;
  cJSON *details = cJSON_AddObjectToObject(object, "details");
  cJSON_AddStringToObject(details, "parent_model", parent);
  cJSON_AddStringToObject(details, "format", card->is_gguf ? "gguf" : "safetensors");
  cJSON_AddStringToObject(details, "family", family);
  cJSON_AddItemToObject(details, "families", cJSON_CreateStringArray(&family, 1));
  cJSON_AddStringToObject(details, "parameter_size", human(card->parameters, text));
  cJSON_AddStringToObject(details, "quantization_level", card->level);
}

void ollama_add_facts(cJSON *object, const model_card_t *card, const char *parent) {
  cJSON_AddNumberToObject(object, "size", (double)card->bytes);
  add_details(object, card, parent);
  ollama_add_time(object, "modified_at", card->modified_s);
}

/* ---- /api/show ---- */

static void add_capabilities(cJSON *object, const ollama_subject_t *subject) {
  const completions_t *live = subject->live;
  cJSON *list = cJSON_AddArrayToObject(object, "capabilities");
  bool generates = subject->task == TASK_GENERATE;
  bool chats = generates && live->templates != NULL && chat_templates_any(live->templates);
  bool embeds = subject->task == TASK_EMBED;
  const struct {
    bool has;
    const char *name;
  } all[] = {{generates, "completion"},
             {embeds, "embedding"},
             {generates && subject->sees, "vision"},
             {generates && subject->hears, "audio"},
             {chats && live->tool_format != NULL && chat_takes_tools(live), "tools"},
             {chats && live->reasoning_format != NULL, "thinking"},
             {generates && completion_can_fill_in(subject->tokenizer), "insert"}};
  for (size_t i = 0; i < ARRAY_LEN(all); i++) {
    if (all[i].has) cJSON_AddItemToArray(list, cJSON_CreateString(all[i].name));
  }
}

/* The defaults of generation_config.json as lines of a Modelfile; `word` begins each. */
static void print_defaults(buffer_t *out, const ollama_subject_t *subject, const char *word) {
  const engine_info_t *info = subject->info;
  const struct {
    const char *name;
    float value;
  } numbers[] = {{"temperature", info->temperature},
                 {"top_p", info->top_p},
                 {"min_p", info->min_p},
                 {"repeat_penalty", info->repetition_penalty}};
  if (strcmp(subject->config->generation_config, "none") == 0) return;
  for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
    if (isnan(numbers[i].value)) continue;
    buffer_text(out, word);
    buffer_text(out, numbers[i].name);
    buffer_char(out, ' ');
    buffer_float(out, numbers[i].value);
    buffer_char(out, '\n');
  }
  if (info->top_k < 0) return;
  buffer_text(out, word);
  buffer_text(out, "top_k ");
  buffer_int(out, info->top_k);
  buffer_char(out, '\n');
}

static void add_text(cJSON *object, const char *name, buffer_t *text) {
  if (text->length > 0 && text->data[text->length - 1] == '\n') text->length--;
  buffer_char(text, '\0');
  if (!text->failed) cJSON_AddStringToObject(object, name, text->data);
  buffer_free(text);
}

static void add_texts(cJSON *object, const ollama_subject_t *subject) {
  const model_card_t *card = subject->card;
  const chat_templates_t *templates = subject->live->templates;
  buffer_t file = {0}, parameters = {0}, shown = {0}, license = {0};
  size_t length = 0;
  const char *text = templates != NULL ? chat_templates_text(templates, &length) : NULL;
  buffer_text(&file, "FROM ");
  buffer_text(&file, model_name(subject->live));
  if (text != NULL) {
    buffer_text(&file, "\nTEMPLATE \"\"\"");
    buffer_append(&file, text, length);
    buffer_text(&file, "\"\"\"");
    buffer_append(&shown, text, length);
  }
  buffer_char(&file, '\n');
  print_defaults(&file, subject, "PARAMETER ");
  print_defaults(&parameters, subject, "");
  buffer_append(&license, card->license.data, card->license.length);
  add_text(object, "modelfile", &file);
  add_text(object, "parameters", &parameters);
  add_text(object, "template", &shown);
  if (license.length > 0) add_text(object, "license", &license);
  buffer_free(&license);
}

/* The metadata of the file, and the context that this server takes, which may be shorter. */
static void add_info(cJSON *object, const ollama_subject_t *subject) {
  const model_card_t *card = subject->card;
  buffer_t text = {0};
  buffer_char(&text, '{');
  buffer_append(&text, card->info.data, card->info.length);
  buffer_text(&text, card->info.length > 0 ? ",\"" : "\"");
  buffer_escape(&text, card->family, strlen(card->family));
  buffer_text(&text, ".context_length\":");
  buffer_int(&text, subject->info->max_model_len);
  buffer_text(&text, "}");
  buffer_char(&text, '\0');
  if (!text.failed) cJSON_AddRawToObject(object, "model_info", text.data);
  buffer_free(&text);
}

cJSON *ollama_show(const ollama_subject_t *subject, const char *parent) {
  cJSON *object = cJSON_CreateObject();
  add_texts(object, subject);
  add_details(object, subject->card, parent);
  add_info(object, subject);
  add_capabilities(object, subject);
  ollama_add_time(object, "modified_at", subject->card->modified_s);
  return object;
}
