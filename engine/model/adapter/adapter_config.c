/* adapter_config.c: reads adapter_config.json; see adapter_config.h. Any thread, no state. */
#include "engine/model/adapter/adapter_config.h"

#include "engine/base/util.h"
#include "engine/model/adapter/name_pattern.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONFIG_BYTES_MAX = 1 << 20, RANK_LIMIT = 1 << 20, SHOWN_BYTES = 120 };

typedef enum key_use { KEY_READ, KEY_HARMLESS, KEY_REFUSED } key_use_t;

typedef struct adapter_key {
  const char *name;
  key_use_t use;
} adapter_key_t;

static const adapter_key_t keys[] = {
#define ADAPTER_KEY(name, use) {#name, use},
#include "engine/model/adapter/adapter_keys.def"
#undef ADAPTER_KEY
};

static bool is_empty(const json_t *value) {
  const bool holds = value->type == JSON_STRING ? value->length > 0 : value->count > 0;
  return value->type == JSON_NULL || value->type == JSON_FALSE ||
         (value->type >= JSON_STRING && !holds);
}

static const json_t *given(const config_reader_t *reader, const char *key) {
  const json_t *value = json_get(reader->root, key);
  return value == NULL || is_empty(value) ? NULL : value;
}

/* Refuses what changes the computation, or may: every key that is not known. */
static void refuse_keys(config_reader_t *reader) {
  JSON_EACH(value, reader->root) {
    char shown[SHOWN_BYTES];
    key_use_t use = KEY_REFUSED;
    bool is_known = false;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
      if (!json_named(value, keys[i].name)) continue;
      use = keys[i].use;
      is_known = true;
    }
    if (use != KEY_REFUSED || is_empty(value)) continue;
    error_quote(shown, sizeof shown, value->key, value->key_length);
    config_refuse(reader, shown, value, "absent, null, false or empty%s",
                  is_known ? "" : "; it is no key of PEFT's LoraConfig that is known here");
  }
}

/* How training began. With these names PEFT changes the weights of the base, too. */
static void read_start(config_reader_t *reader, adapter_config_t *out) {
  static const char *const zero[] = {"gaussian", "eva"};
  const json_t *start = json_get(reader->root, "init_lora_weights");
  if (!json_is_given(start) || start->type == JSON_TRUE) return;
  for (size_t i = 0; i < ARRAY_LEN(zero); i++)
    if (json_equals(start, zero[i])) return;
  out->needs_tensors = true;
  if (start->type == JSON_FALSE || json_equals(start, "orthogonal")) return;
  config_refuse(reader, "init_lora_weights", start, "true, false, gaussian, orthogonal, eva");
}

/* The value, if it is one text or a list of texts. */
static const json_t *read_names(config_reader_t *reader, const char *key) {
  const json_t *value = given(reader, key);
  bool good = value == NULL || value->type == JSON_STRING || value->type == JSON_ARRAY;
  if (value != NULL && value->type == JSON_ARRAY)
    JSON_EACH(name, value) good = good && name->type == JSON_STRING;
  if (!good) config_refuse(reader, key, value, "a text or a list of texts");
  return good ? value : NULL;
}

static void read_layers(config_reader_t *reader, adapter_config_t *out) {
  int64_t number;
  const json_t *layers = json_get(reader->root, "layers_to_transform");
  out->layer_names = read_names(reader, "layers_pattern");
  bool good = true;
  if (json_is_given(layers) && layers->type != JSON_ARRAY) good = json_int64(layers, &number);
  JSON_EACH(one, layers) good = good && json_int64(one, &number);
  if (!good)
    config_refuse(reader, "layers_to_transform", layers, "a number of a layer or a list of them");
  const bool is_list = json_is_given(layers) && layers->type == JSON_ARRAY;
  out->layers = json_is_given(layers) && !(is_list && layers->count == 0) ? layers : NULL;
  if (json_is_given(layers) && out->targets != NULL && out->targets->type == JSON_STRING)
    config_refuse(reader, "layers_to_transform", layers, "null where target_modules is a text");
  if (out->layer_names != NULL && !json_is_given(layers))
    config_refuse(reader, "layers_pattern", out->layer_names, "null without layers_to_transform");
}

static const json_t *read_pattern(config_reader_t *reader, const char *key, bool is_rank) {
  const json_t *pattern = given(reader, key);
  if (pattern == NULL) return NULL;
  if (pattern->type != JSON_OBJECT) {
    config_refuse(reader, key, pattern, "an object of numbers");
    return NULL;
  }
  JSON_EACH(value, pattern) {
    int64_t whole;
    double number;
    if (is_rank ? json_int64(value, &whole) && whole >= 1 && whole <= RANK_LIMIT
                : json_double(value, &number) && fabs(number) <= 1e6)
      continue;
    config_refuse(reader, key, value, is_rank ? "ranks of 1 to %d" : "numbers up to 1e6",
                  RANK_LIMIT);
  }
  return pattern;
}

/* PEFT looks for the tokens only where the task is to generate. */
static void read_invocation(config_reader_t *reader, adapter_config_t *out) {
  const json_t *ids = json_get(reader->root, "alora_invocation_tokens");
  const json_t *task = json_get(reader->root, "task_type");
  bool good = ids != NULL && ids->type == JSON_ARRAY && ids->count >= 1;
  if (!json_is_given(ids)) return;
  JSON_EACH(id, ids) {
    int64_t number;
    good = good && json_int64(id, &number) && number >= 0 && number <= INT32_MAX;
  }
  if (!good) config_refuse(reader, "alora_invocation_tokens", ids, "null, or ids of tokens");
  if (!json_equals(task, "CAUSAL_LM"))
    config_refuse(reader, "task_type", task, "CAUSAL_LM with alora_invocation_tokens");
  out->invocation = ids;
}

int adapter_config_invocation(const adapter_config_t *config, invocation_t *out) {
  const json_t *ids = config->invocation;
  *out = (invocation_t){0};
  if (ids == NULL) return 0;
  out->ids = calloc(ids->count, sizeof *out->ids);
  if (out->ids == NULL)
    return error_set(config->reader.error, ERR_NO_MEMORY, NULL, "no memory for an adapter");
  JSON_EACH(id, ids) {
    int64_t number = 0;
    (void)json_int64(id, &number);
    out->ids[out->count++] = (int32_t)number;
  }
  return 0;
}

/* Which of the model's biases were trained: the file has them. */
static void read_biases(config_reader_t *reader, adapter_config_t *out) {
  const json_t *bias = json_get(reader->root, "bias");
  const json_t *start = json_get(reader->root, "init_lora_weights");
  const bool is_plain = start == NULL || start->type == JSON_TRUE || start->type == JSON_FALSE;
  const bool is_known = bias == NULL || json_equals(bias, "none") || json_equals(bias, "all") ||
                        json_equals(bias, "lora_only");
  if (!is_known) config_refuse(reader, "bias", bias, "none, all, lora_only");
  out->lora_bias = config_bool(reader, KEYS("lora_bias"), false);
  if (out->lora_bias && !is_plain)
    config_refuse(reader, "init_lora_weights", start, "true or false with lora_bias");
}

/* PEFT has no layer that is both. */
static void read_variant(config_reader_t *reader, adapter_config_t *out) {
  out->dora = config_bool(reader, KEYS("use_dora"), false);
  if (out->dora && out->invocation != NULL)
    config_refuse(reader, "alora_invocation_tokens", out->invocation, "null with use_dora");
  if (out->dora && out->lora_bias)
    config_refuse(reader, "lora_bias", json_get(reader->root, "lora_bias"), "false with use_dora");
}

/* Names that PEFT puts into an expression: of letters, digits, underscores, dashes and dots, each
 * of which stands for any character. */
static void read_saved(config_reader_t *reader, adapter_config_t *out) {
  const json_t *names = given(reader, "modules_to_save");
  bool good = names == NULL || names->type == JSON_ARRAY;
  JSON_EACH(name, good ? names : NULL) {
    good = good && name->type == JSON_STRING && name->length > 0;
    for (uint32_t i = 0; good && i < name->length; i++)
      good = isalnum((unsigned char)name->text[i]) || strchr("_-.", name->text[i]) != NULL;
  }
  if (!good) config_refuse(reader, "modules_to_save", names, "a list of names of modules");
  out->saved = good ? names : NULL;
}

static void read_keys(adapter_config_t *out) {
  config_reader_t *reader = &out->reader;
  const json_t *type = json_get(reader->root, "peft_type");
  refuse_keys(reader);
  if (type != NULL && !json_equals(type, "LORA")) config_refuse(reader, "peft_type", type, "LORA");
  read_start(reader, out);
  out->targets = read_names(reader, "target_modules");
  out->excluded = read_names(reader, "exclude_modules");
  if (out->targets == NULL)
    config_refuse(reader, "target_modules", json_get(reader->root, "target_modules"),
                  "the names of modules, or an expression of them");
  read_layers(reader, out);
  read_invocation(reader, out);
  read_biases(reader, out);
  read_variant(reader, out);
  read_saved(reader, out);
  out->ranks = read_pattern(reader, "rank_pattern", true);
  out->alphas = read_pattern(reader, "alpha_pattern", false);
  out->rank = config_int(reader, KEYS("r"), 8, 1, RANK_LIMIT);
  out->alpha = config_double(reader, KEYS("lora_alpha"), 8, -1e6, 1e6, false);
  out->stable = config_bool(reader, KEYS("use_rslora"), false);
}

int adapter_config_read(const char *dir, adapter_config_t *out, inferd_error_t *error) {
  static const json_limits_t limits = {
      .depth_max = 32, .values_max = 100000, .key_bytes_max = 1024, .allow_nul = true};
  *out = (adapter_config_t){0};
  int code =
      model_file_read(dir, "adapter_config.json", CONFIG_BYTES_MAX, &limits, &out->file, error);
  if (code != 0) return code;
  if (out->file.doc == NULL) {
    return error_set(error, ERR_MODEL_MISSING, "lora_path",
                     "%s: no adapter_config.json; an adapter as PEFT saves it is needed", dir);
  }
  out->reader = (config_reader_t){
      .file = "adapter_config.json", .root = json_root(out->file.doc), .error = error};
  read_keys(out);
  if (out->reader.code != 0) adapter_config_free(out);
  return out->reader.code;
}

void adapter_config_free(adapter_config_t *config) {
  model_file_free(&config->file);
}

static bool unreadable(adapter_config_t *config, const char *key, const char *text, size_t length) {
  char shown[SHOWN_BYTES];
  error_quote(shown, sizeof shown, text, length);
  config_refuse(&config->reader, key, NULL,
                "has an expression that Python and PCRE2 may read otherwise, or that is not read "
                "here: \"%s\"",
                shown);
  return false;
}

static bool matches(adapter_config_t *config, const char *key, const char *text, size_t length,
                    const char *module, bool is_tail) {
  switch (name_pattern_match(text, length, module, is_tail)) {
  case NAME_MATCHES: return true;
  case NAME_DIFFERS: return false;
  default: return unreadable(config, key, text, length);
  }
}

/* True if a list has the module's full name, or how it ends. */
static bool has_end(const json_t *names, const char *module) {
  const size_t length = strlen(module);
  JSON_EACH(name, names) {
    if (name->length > length) continue;
    const size_t from = length - name->length;
    if (memcmp(module + from, name->text, name->length) != 0) continue;
    if (from == 0 || module[from - 1] == '.') return true;
  }
  return false;
}

static bool names_module(adapter_config_t *config, const char *key, const json_t *names,
                         const char *module) {
  if (names->type == JSON_ARRAY) return has_end(names, module);
  return matches(config, key, names->text, names->length, module, false);
}

/* The number in the first ".name.NUMBER." of the module, which may also begin with "name."; without
 * a name, of the first ".*.NUMBER.". -1 = there is none. */
static int64_t layer_of(const char *module, const json_t *name) {
  const char *begin = name != NULL ? module : strchr(module, '.');
  for (; begin != NULL; begin = strchr(begin, '.')) {
    begin += *begin == '.';
    const char *dot = strchr(begin, '.');
    if (dot == NULL) return -1;
    const bool named = name == NULL || (name->length == (size_t)(dot - begin) &&
                                        memcmp(begin, name->text, name->length) == 0);
    int64_t number = 0;
    const char *digit = dot + 1;
    for (; isdigit((unsigned char)*digit) && number < INT32_MAX; digit++)
      number = number * 10 + (*digit - '0');
    if (named && digit > dot + 1 && *digit == '.') return number;
  }
  return -1;
}

static bool is_word(const json_t *text) {
  for (uint32_t i = 0; i < text->length; i++)
    if (!isalnum((unsigned char)text->text[i]) && text->text[i] != '_') return false;
  return text->length > 0;
}

/* True if the module is in one of the layers that the adapter is for. */
static bool in_layers(adapter_config_t *config, const char *module) {
  const json_t *names = config->layer_names;
  int64_t layer = names == NULL ? layer_of(module, NULL) : -1, number = 0;
  const json_t *one = names != NULL && names->type == JSON_ARRAY ? json_first(names) : names;
  for (; one != NULL && layer < 0; one = names->type == JSON_ARRAY ? json_next(one) : NULL) {
    if (!is_word(one)) return unreadable(config, "layers_pattern", one->text, one->length);
    layer = layer_of(module, one);
  }
  if (layer < 0) return false;
  if (config->layers->type != JSON_ARRAY)
    return json_int64(config->layers, &number) && number == layer;
  JSON_EACH(value, config->layers) {
    if (json_int64(value, &number) && number == layer) return true;
  }
  return false;
}

/* True if a name of modules that are saved whole is one part of the module's name or several, in
 * which PEFT puts no adapter. */
static bool in_saved(const json_t *names, const char *module) {
  JSON_EACH(name, names) {
    for (const char *at = module; at != NULL; at = strchr(at, '.')) {
      at += *at == '.';
      uint32_t i = 0;
      while (i < name->length && at[i] != '\0' && (name->text[i] == '.' || name->text[i] == at[i]))
        i++;
      if (i == name->length && (at[i] == '\0' || at[i] == '.')) return true;
    }
  }
  return false;
}

/* True if the module's name ends in one of the names, behind a dot or not. */
static bool is_saved(const json_t *names, const char *module) {
  const size_t length = strlen(module);
  JSON_EACH(name, names) {
    if (name->length <= length &&
        memcmp(module + length - name->length, name->text, name->length) == 0)
      return true;
  }
  return false;
}

/* As PEFT decides it. */
static bool is_target(adapter_config_t *config, const char *module) {
  static const char *const no_linear[] = {"lm_head", "embed_tokens", "wte", "embed_out"};
  if (config->excluded != NULL && names_module(config, "exclude_modules", config->excluded, module))
    return false;
  if (in_saved(config->saved, module)) return false;
  if (json_equals(config->targets, "all-linear")) {
    const char *dot = strrchr(module, '.'), *last = dot != NULL ? dot + 1 : module;
    for (size_t i = 0; i < ARRAY_LEN(no_linear); i++)
      if (strcmp(last, no_linear[i]) == 0) return false;
    return true;
  }
  if (!names_module(config, "target_modules", config->targets, module)) return false;
  return config->layers == NULL || in_layers(config, module);
}

/* The first value whose key matches the module's name, or its end behind a dot, as in PEFT.
 * NULL = none. */
static const json_t *find_pattern(adapter_config_t *config, const char *key, const json_t *pattern,
                                  const char *module) {
  JSON_EACH(value, pattern) {
    if (matches(config, key, value->key, value->key_length, module, true)) return value;
  }
  return NULL;
}

int adapter_config_module(adapter_config_t *config, const char *module, adapter_module_t *out) {
  const json_t *rank = find_pattern(config, "rank_pattern", config->ranks, module);
  const json_t *alpha = find_pattern(config, "alpha_pattern", config->alphas, module);
  double scale = config->alpha;
  *out = (adapter_module_t){.is_target = is_target(config, module),
                            .is_saved = is_saved(config->saved, module),
                            .rank = config->rank};
  (void)json_int64(rank, &out->rank);
  (void)json_double(alpha, &scale);
  out->scale = scale / (config->stable ? sqrt((double)out->rank) : (double)out->rank);
  return config->reader.code;
}
