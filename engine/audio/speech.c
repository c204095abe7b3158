/* speech.c: see speech.h. At the start of the engine; no state. */
#include "engine/audio/speech.h"

#include "engine/audio/align.h"
#include "engine/audio/mel.h"

#include <string.h>

/* Where ids are read from, and what they must be below. */
typedef struct id_source {
  const json_t *generation;
  int32_t vocab_size;
  inferd_error_t *error;
} id_source_t;

static int fail(const id_source_t *source, const char *name, const char *what) {
  return error_set(source->error, ERR_MODEL_MALFORMED, NULL, "generation_config.json: %s %s", name,
                   what);
}

static int take_id(const id_source_t *source, const char *name, const json_t *value, int32_t *out) {
  int64_t id = -1;
  if (value != NULL && value->type == JSON_ARRAY) value = json_first(value);
  if (value == NULL || !json_int64(value, &id) || id < 0 || id >= source->vocab_size)
    return fail(source, name, "is no id of the vocabulary");
  *out = (int32_t)id;
  return 0;
}

/* One that may be missing: -1. */
static int take_optional(const id_source_t *source, const char *name, const json_t *value,
                         int32_t *out) {
  *out = -1;
  if (value == NULL || value->type == JSON_NULL) return 0;
  return take_id(source, name, value, out);
}

static int take_list(const id_source_t *source, const char *name, int32_t most, int32_t *out,
                     int32_t *count) {
  const json_t *list = json_get(source->generation, name);
  *count = 0;
  if (list == NULL || list->type != JSON_ARRAY) return 0;
  JSON_EACH(element, list) {
    if (*count == most) return fail(source, name, "has too many ids");
    const int code = take_id(source, name, element, &out[*count]);
    if (code != 0) return code;
    ++*count;
  }
  return 0;
}

/* "<|en|>": 50259 */
static int take_languages(const id_source_t *source, speech_t *out) {
  const json_t *languages = json_get(source->generation, "lang_to_id");
  if (languages == NULL || languages->type != JSON_OBJECT) return 0;
  JSON_EACH(member, languages) {
    speech_language_t *language = &out->languages[out->num_languages];
    const size_t length = member->key_length;
    if (out->num_languages == SPEECH_LANGUAGES_MAX)
      return fail(source, "lang_to_id", "has too many languages");
    if (length < 5 || length - 4 >= SPEECH_CODE_MAX || memcmp(member->key, "<|", 2) != 0)
      return fail(source, "lang_to_id", "has a name that is not <|CODE|>");
    memcpy(language->code, member->key + 2, length - 4);
    const int code = take_id(source, "lang_to_id", member, &language->id);
    if (code != 0) return code;
    out->num_languages++;
  }
  return 0;
}

static int take_tasks(const id_source_t *source, speech_t *out) {
  const json_t *tasks = json_get(source->generation, "task_to_id");
  out->transcribe_id = out->translate_id = -1;
  if (out->num_languages == 0) return 0;
  int code =
      take_id(source, "task_to_id.transcribe", json_get(tasks, "transcribe"), &out->transcribe_id);
  if (code != 0) return code;
  return take_optional(source, "task_to_id.translate", json_get(tasks, "translate"),
                       &out->translate_id);
}

static int take_rules(const id_source_t *source, speech_rules_t *out) {
  int64_t initial = -1;
  const json_t *most = json_get(source->generation, "max_initial_timestamp_index");
  int code = take_id(source, "no_timestamps_token_id",
                     json_get(source->generation, "no_timestamps_token_id"), &out->no_stamps_id);
  if (code == 0)
    code =
        take_id(source, "eos_token_id", json_get(source->generation, "eos_token_id"), &out->eos_id);
  if (code == 0)
    code = take_list(source, "begin_suppress_tokens", SPEECH_BEGIN_IDS_MAX, out->begin_ids,
                     &out->num_begin_ids);
  if (code != 0) return code;
  if (most != NULL && most->type != JSON_NULL && (!json_int64(most, &initial) || initial < 0))
    return fail(source, "max_initial_timestamp_index", "is no number of stamps");
  out->max_initial = initial > source->vocab_size ? -1 : (int32_t)initial;
  out->first_stamp_id = out->no_stamps_id + 1;
  out->stamps = true;
  return 0;
}

/* ---- heads whose attention follows the sound ---- */

static int take_size(const json_t *config, const char *name, int64_t *out, inferd_error_t *error) {
  if (json_int64(json_get(config, name), out) && *out > 0 && *out <= INT32_MAX) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "config.json: %s is no number of them", name);
}

/* [[layer, head], ...]. A list with one that is not in the decoder is none. */
static int take_listed(const id_source_t *source, int64_t layers, int64_t heads, speech_t *out) {
  const json_t *list = json_get(source->generation, "alignment_heads");
  if (list == NULL || list->type != JSON_ARRAY) return 0;
  bool inside = true;
  JSON_EACH(pair, list) {
    int64_t layer = -1, head = -1;
    const json_t *first = pair->type == JSON_ARRAY ? json_first(pair) : NULL;
    if (out->num_heads == SPEECH_HEADS_MAX) return fail(source, "alignment_heads", "has too many");
    if (first == NULL || pair->count != 2 || !json_int64(first, &layer) ||
        !json_int64(json_next(first), &head) || layer < 0 || head < 0)
      return fail(source, "alignment_heads", "has no pairs of a layer and a head");
    inside = inside && layer < layers && head < heads;
    out->heads[out->num_heads++] = (cross_head_t){(int32_t)layer, (int32_t)head};
  }
  if (!inside) out->num_heads = 0;
  return 0;
}

static int take_heads(const id_source_t *source, const json_t *config, speech_t *out) {
  int64_t layers = 0, heads = 0;
  int code = take_size(config, "decoder_layers", &layers, source->error);
  if (code == 0) code = take_size(config, "decoder_attention_heads", &heads, source->error);
  if (code == 0) code = take_listed(source, layers, heads, out);
  if (code != 0 || out->num_heads > 0) return code;
  for (int64_t i = layers / 2 * heads; i < layers * heads; i++) {
    if (out->num_heads == SPEECH_HEADS_MAX) break;
    out->heads[out->num_heads++] = (cross_head_t){(int32_t)(i / heads), (int32_t)(i % heads)};
  }
  return 0;
}

static int take_median(const json_t *config, speech_t *out, inferd_error_t *error) {
  const json_t *value = json_get(config, "median_filter_width");
  int64_t width = 7; /* as transformers has it where the file says nothing */
  if (value != NULL && value->type != JSON_NULL && !json_int64(value, &width)) width = 0;
  if (width < 1 || width > ALIGN_MEDIAN_MAX || width % 2 == 0)
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "config.json: median_filter_width must be odd, 1 to %d", ALIGN_MEDIAN_MAX);
  out->median_width = (int32_t)width;
  return 0;
}

/* ---- all of it ---- */

int speech_read(const json_t *generation, const json_t *config, int32_t vocab_size, speech_t *out,
                inferd_error_t *error) {
  const id_source_t source = {generation, vocab_size, error};
  int64_t bands = 0;
  *out = (speech_t){0};
  if (!json_int64(json_get(config, "num_mel_bins"), &bands) || bands < 1 || bands > MEL_BANDS_MAX)
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "config.json: num_mel_bins must be 1 to %d",
                     MEL_BANDS_MAX);
  out->bands = (int32_t)bands;
  int code = take_id(&source, "decoder_start_token_id",
                     json_get(generation, "decoder_start_token_id"), &out->start_id);
  if (code == 0)
    code = take_optional(&source, "prev_sot_token_id", json_get(generation, "prev_sot_token_id"),
                         &out->previous_id);
  if (code == 0) code = take_languages(&source, out);
  if (code == 0) code = take_tasks(&source, out);
  if (code == 0)
    code = take_list(&source, "suppress_tokens", SPEECH_SUPPRESSED_MAX, out->suppressed,
                     &out->num_suppressed);
  if (code == 0) code = take_heads(&source, config, out);
  if (code == 0) code = take_median(config, out, error);
  if (code == 0) code = take_rules(&source, &out->rules);
  out->no_speech_id = out->rules.no_stamps_id - 1;
  return code;
}

const speech_language_t *speech_language(const speech_t *speech, const char *code, size_t length) {
  for (int32_t i = 0; i < speech->num_languages; i++) {
    const speech_language_t *language = &speech->languages[i];
    if (strlen(language->code) == length && memcmp(language->code, code, length) == 0)
      return language;
  }
  return NULL;
}
