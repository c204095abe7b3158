/* params_read.c: reads the structured fields of POST /v1/completions: prompt, stop, logit_bias.
 *
 * Stage 2 of 9, first half. Loop thread or libuv's pool; keeps no state. Strings stay in the JSON
 * document, numbers go to the request's arena. Next: server/completion/prompt.c.
 */
#include "server/fields/params_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static params_t *out_of(reader_t *reader) {
  return reader->out;
}

int params_fail_empty(const char *param, inferd_error_t *error) {
  return error_set(error, ERR_MISSING_PARAMETER, param, "The '%s' must be provided and non-empty.",
                   param);
}

static int fail_mixed_prompt(reader_t *reader, const char *name) {
  return error_set(reader->error, ERR_INVALID_TYPE, name,
                   "The '%s' must be provided and non-empty: a string, an array of strings, an "
                   "array of token ids, or an array of arrays of token ids.",
                   name);
}

/* `index` is the place in a list, or -1. */
static int read_one_prompt(reader_t *reader, const char *name, int32_t index, const json_t *value,
                           prompt_t *prompt) {
  bool text = value->type == JSON_STRING;
  if (text ? value->length == 0 : value->count == 0) {
    if (index < 0) return params_fail_empty(name, reader->error);
    return error_set(reader->error, ERR_MISSING_PARAMETER, name,
                     "The '%s[%" PRId32 "]' must be provided and non-empty.", name, index);
  }
  if (text) {
    *prompt = (prompt_t){.text = value->text, .length = value->length};
    return 0;
  }
  id_list_t list;
  int code = field_ids(reader, name, value, 1, 2147483647.0, &list);
  if (code != 0) return code;
  *prompt = (prompt_t){.ids = list.ids, .count = list.count};
  return 0;
}

/* string | [string] | [int] | [[int]]; `prompt`, or `input` of embeddings */
int read_prompt(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  const char *name = field->name;
  const json_t *first = json_first(value);
  int32_t most = params->embedding.wanted ? reader->limits->inputs_max : PROMPTS_MAX;
  bool many = false;
  /* Clients that must send a prompt send none beside embeddings. */
  const bool is_empty =
      value->type == JSON_STRING ? value->length == 0 : value->type == JSON_ARRAY && first == NULL;
  if (is_empty && params->prompt_embeds != NULL) return 0;
  if (value->type == JSON_ARRAY) {
    if (first == NULL) return params_fail_empty(name, reader->error);
    many = first->type == JSON_STRING || first->type == JSON_ARRAY;
    JSON_EACH(element, value) {
      if (element->type != first->type) return fail_mixed_prompt(reader, name);
    }
    if (!many && first->type != JSON_NUMBER) return fail_mixed_prompt(reader, name);
    if (many && value->count > (uint32_t)most) {
      return error_set(reader->error, ERR_INVALID_VALUE, name,
                       "Too many %ss: at most %d in one request.", name, most);
    }
  } else if (value->type != JSON_STRING) {
    return fail_mixed_prompt(reader, name);
  }
  int32_t count = many ? (int32_t)value->count : 1;
  params->prompts = arena_calloc(reader->arena, (size_t)count, sizeof *params->prompts);
  if (params->prompts == NULL) return field_no_memory(reader);
  if (!many) {
    params->num_prompts = 1;
    return read_one_prompt(reader, name, -1, value, &params->prompts[0]);
  }
  JSON_EACH(element, value) {
    int32_t index = params->num_prompts++;
    int code = read_one_prompt(reader, name, index, element, &params->prompts[index]);
    if (code != 0) return code;
  }
  return 0;
}

static int check_rows_text(reader_t *reader, const char *name, const json_t *value) {
  if (value->type != JSON_STRING)
    return field_fail_type(reader, name, "a string, the base64 of a file of safetensors", value);
  return value->length == 0 ? params_fail_empty(name, reader->error) : 0;
}

/* string | [string], each the base64 of a tensor. params_read knows of it already. */
int read_prompt_embeds(reader_t *reader, const field_t *field, const json_t *value) {
  const engine_info_t *model = reader->limits->model;
  const char *name = field->name;
  char place[32];
  int32_t index = 0;
  if (model == NULL || model->rows == NULL)
    return error_set(reader->error, ERR_UNSUPPORTED_PARAMETER, name,
                     "The parameter '%s' is not supported by this server: --enable-prompt-embeds "
                     "turns it on.",
                     name);
  if (value->type != JSON_ARRAY) return check_rows_text(reader, name, value);
  if (value->count > PROMPTS_MAX)
    return error_set(reader->error, ERR_INVALID_VALUE, name,
                     "Too many prompts: at most %d in one request.", PROMPTS_MAX);
  JSON_EACH(element, value) {
    snprintf(place, sizeof place, "%s[%" PRId32 "]", name, index++);
    int code = check_rows_text(reader, place, element);
    if (code != 0) return code;
  }
  return 0;
}

int params_take_rows(params_t *params, reader_t *reader) {
  const json_t *value = params->prompt_embeds;
  const bool is_list = value != NULL && value->type == JSON_ARRAY;
  const int32_t count = value == NULL ? 0 : is_list ? (int32_t)value->count : 1;
  if (count == 0) return 0;
  if (params->num_prompts + count > PROMPTS_MAX)
    return error_set(reader->error, ERR_INVALID_VALUE, "prompt",
                     "Too many prompts: at most %d in one request, those of 'prompt_embeds' "
                     "included.",
                     PROMPTS_MAX);
  prompt_t *all =
      arena_calloc(reader->arena, (size_t)(params->num_prompts + count), sizeof *params->prompts);
  if (all == NULL) return field_no_memory(reader);
  for (const json_t *text = is_list ? json_first(value) : value; text != NULL;
       text = is_list ? json_next(text) : NULL)
    all[params->num_row_prompts++] = (prompt_t){.rows = text->text, .length = text->length};
  for (int32_t i = 0; i < params->num_prompts; i++) all[count + i] = params->prompts[i];
  params->prompts = all;
  params->num_prompts += count;
  return 0;
}

/* string | [int]; of models with an encoder */
int read_decoder_prompt(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  params->has_decoder_prompt = true;
  if (value->type != JSON_STRING && value->type != JSON_ARRAY)
    return field_fail_type(reader, field->name, "a string or an array of token ids", value);
  return read_one_prompt(reader, field->name, -1, value, &params->decoder_prompt);
}

int check_stop(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type == JSON_STRING)
    return field_string(reader, field->name, value, 1, STOP_STRING_BYTES_MAX);
  if (value->type != JSON_ARRAY) {
    return field_fail_type(reader, field->name, "a string or an array of strings", value);
  }
  if (value->count > STOP_STRINGS_MAX) {
    return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                     "Invalid 'stop': at most %d strings are allowed.", STOP_STRINGS_MAX);
  }
  JSON_EACH(element, value) {
    int code = field_string(reader, field->name, element, 1, STOP_STRING_BYTES_MAX);
    if (code != 0) return code;
  }
  return 0;
}

int read_stop(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  int code = check_stop(reader, field, value);
  if (code != 0) return code;
  if (value->type == JSON_STRING) {
    params->stop[0] = (span_t){value->text, value->length};
    params->num_stop = 1;
    return 0;
  }
  JSON_EACH(element, value) {
    params->stop[params->num_stop++] = (span_t){element->text, element->length};
  }
  return 0;
}

/* Appends ", name" while it fits, and "..." once when it does not. */
static void list_append(char *list, size_t capacity, const char *name) {
  size_t used = strlen(list);
  if (used + strlen(name) + 8 < capacity) {
    snprintf(list + used, capacity - used, "%s%s", used != 0 ? ", " : "", name);
  } else if (used < 3 || strcmp(list + used - 3, "...") != 0) {
    snprintf(list + used, capacity - used, "...");
  }
}

/* Returns true if a key is a token id: a decimal without sign, blanks or leading zeros. */
static bool key_id(const json_t *value, int64_t *out) {
  if (value->key_length == 0 || value->key_length > 18) return false;
  if (value->key[0] == '0' && value->key_length > 1) return false;
  *out = 0;
  for (uint32_t i = 0; i < value->key_length; i++) {
    if (value->key[i] < '0' || value->key[i] > '9') return false;
    *out = *out * 10 + (value->key[i] - '0');
  }
  return true;
}

/* Names every key that is not an integer, then every id outside the vocabulary. */
static int check_bias_keys(reader_t *reader, const json_t *value) {
  char wrong[300] = "", outside[300] = "", key[80];
  JSON_EACH(entry, value) {
    int64_t id;
    error_quote(key, sizeof key, entry->key, entry->key_length);
    if (!key_id(entry, &id)) {
      list_append(wrong, sizeof wrong, key);
    } else if (id >= reader->limits->vocab_size) {
      list_append(outside, sizeof outside, key);
    }
  }
  if (wrong[0] != '\0') {
    return error_set(reader->error, ERR_INVALID_VALUE, "logit_bias",
                     "Invalid 'logit_bias': keys must be token ids, but found: %s.", wrong);
  }
  if (outside[0] != '\0') {
    return error_set(reader->error, ERR_INVALID_VALUE, "logit_bias",
                     "Invalid 'logit_bias': token ids out of vocabulary (its size is %" PRId32
                     "): %s.",
                     reader->limits->vocab_size, outside);
  }
  return 0;
}

int read_logit_bias(reader_t *reader, const field_t *field, const json_t *value) {
  static const field_t range = {.name = "logit_bias", .min = -100, .max = 100};
  params_t *params = out_of(reader);
  if (value->type != JSON_OBJECT) return field_fail_type(reader, field->name, "an object", value);
  if (value->count > LOGIT_BIAS_MAX) {
    return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                     "Invalid 'logit_bias': at most %d entries are allowed.", LOGIT_BIAS_MAX);
  }
  int code = check_bias_keys(reader, value);
  if (code != 0) return code;
  params->logit_bias = arena_calloc(reader->arena, value->count, sizeof *params->logit_bias);
  if (params->logit_bias == NULL) return field_no_memory(reader);
  JSON_EACH(entry, value) {
    int64_t id = 0;
    logit_bias_t *bias = &params->logit_bias[params->num_logit_bias];
    if (!key_id(entry, &id)) continue; /* check_bias_keys has refused it */
    code = field_float(reader, field->name, entry, &range, &bias->bias);
    if (code != 0) return code;
    bias->id = (int32_t)id;
    params->num_logit_bias++;
  }
  return 0;
}

int read_stream_options(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  if (value->type != JSON_OBJECT) return field_fail_type(reader, field->name, "an object", value);
  params->stream_options_given = value->count > 0;
  JSON_EACH(option, value) {
    static const char *const names[] = {"stream_options.include_usage",
                                        "stream_options.continuous_usage_stats",
                                        "stream_options.include_obfuscation"};
    bool *const places[] = {&params->include_usage, &params->continuous_usage,
                            &params->obfuscation};
    size_t prefix = strlen("stream_options."), which = 0;
    while (which < 3 && (strlen(names[which] + prefix) != option->key_length ||
                         memcmp(names[which] + prefix, option->key, option->key_length) != 0)) {
      which++;
    }
    int code = 0;
    if (which == 3) {
      code = field_unknown(reader, "stream_options.", option->key, option->key_length);
    } else if (option->type != JSON_NULL && !json_bool(option, places[which])) {
      code = field_fail_type(reader, names[which], "a boolean", option);
    }
    if (code != 0) return code;
  }
  return 0;
}

/* -1 asks for a random seed, as null does. */
int read_seed(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  int code = field_integer(reader, field->name, value, -0x1p63, 0x1p63, &params->seed);
  params->has_seed = code == 0 && params->seed != -1;
  return code;
}

int read_truncation_side(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  bool left = json_equals(value, "left");
  if (!left && !json_equals(value, "right")) {
    return field_fail_value(reader, field->name, "'left' or 'right'", value);
  }
  params->truncation_side = left ? TRUNCATE_LEFT : TRUNCATE_RIGHT;
  return 0;
}

int read_allowed_ids(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  return field_ids(reader, field->name, value, 1, reader->limits->vocab_size,
                   &params->allowed_token_ids);
}

int read_bad_words(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  if (value->type != JSON_ARRAY) {
    return field_fail_type(reader, field->name, "an array of strings", value);
  }
  if (value->count > BAD_WORDS_FIELD_MAX) {
    return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                     "Invalid 'bad_words': at most %d strings are allowed.", BAD_WORDS_FIELD_MAX);
  }
  params->bad_words = arena_calloc(reader->arena, value->count, sizeof *params->bad_words);
  if (params->bad_words == NULL) return field_no_memory(reader);
  JSON_EACH(word, value) {
    int code = field_string(reader, field->name, word, 1, BAD_WORD_BYTES_MAX);
    if (code != 0) return code;
    params->bad_words[params->num_bad_words++] = (span_t){word->text, word->length};
  }
  return 0;
}

/* The value matters for beam search only; otherwise every valid value is accepted. */
int read_early_stopping(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  bool on;
  if (json_bool(value, &on)) {
    params->early_stopping = on ? EARLY_STOPPING_ON : EARLY_STOPPING_OFF;
  } else if (json_equals(value, "never")) {
    params->early_stopping = EARLY_STOPPING_NEVER;
  } else {
    return field_fail_type(reader, field->name, "a boolean or 'never'", value);
  }
  return 0;
}

bool request_id_valid(const char *text, size_t length) {
  if (length == 0 || length > 128) return false;
  for (size_t i = 0; i < length; i++) {
    char c = text[i];
    bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!letter && c != '.' && c != '_' && c != ':' && c != '-') return false;
  }
  return true;
}

int read_request_id(reader_t *reader, const field_t *field, const json_t *value) {
  params_t *params = out_of(reader);
  if (value->type != JSON_STRING) return field_fail_type(reader, field->name, "a string", value);
  if (!request_id_valid(value->text, value->length)) {
    return field_fail_value(reader, field->name, "1 to 128 of the characters A-Z a-z 0-9 . _ : -",
                            value);
  }
  params->request_id = value;
  return 0;
}

int read_ignored_string(reader_t *reader, const field_t *field, const json_t *value) {
  return field_string(reader, field->name, value, 0, field->max);
}

int read_metadata(reader_t *reader, const field_t *field, const json_t *value) {
  if (value->type != JSON_OBJECT) return field_fail_type(reader, field->name, "an object", value);
  bool fits = value->count <= 16;
  JSON_EACH(pair, value) {
    char key[80], shown[FIELD_SHOWN_MAX];
    if (pair->type != JSON_STRING) {
      return error_set(reader->error, ERR_INVALID_TYPE, field->name,
                       "Invalid type for 'metadata': expected a string as the value of \"%s\", but "
                       "got %s instead.",
                       error_quote(key, sizeof key, pair->key, pair->key_length),
                       field_shown(shown, pair));
    }
    if (pair->key_length > 64 || pair->length > 512) fits = false;
  }
  if (fits) return 0;
  return error_set(reader->error, ERR_INVALID_VALUE, field->name,
                   "Invalid 'metadata': at most 16 pairs of 64 and 512 bytes are allowed.");
}

int read_pairs(reader_t *reader, const field_t *field, const json_t *value) {
  *(const json_t **)reader->out = value;
  return read_metadata(reader, field, value);
}
