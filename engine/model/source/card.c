/* card.c: what card.h says. Any thread; keeps no state, and reads no weights. */
#include "engine/model/source/card.h"

#include "engine/base/util.h"
#include "engine/file/gguf.h"
#include "engine/model/source/model_file.h"
#include "engine/model/source/safetensors.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { CONFIG_BYTES = 16 << 20 };

void model_card_free(model_card_t *card) {
  buffer_free(&card->info);
  buffer_free(&card->license);
  *card = (model_card_t){0};
}

/* The size of a file counts if it has weights; its age always does. */
static void add_file(model_card_t *card, const char *path, bool has_weights) {
  struct stat file;
  if (stat(path, &file) != 0) return;
  if (has_weights) card->bytes += file.st_size;
  card->modified_s = MAX(card->modified_s, (int64_t)file.st_mtime);
}

static void name(buffer_t *out, const char *prefix, const char *text, size_t length) {
  if (out->length > 0) buffer_char(out, ',');
  buffer_char(out, '"');
  buffer_escape(out, prefix, strlen(prefix));
  buffer_escape(out, text, length);
  buffer_text(out, "\":");
}

/* ---- how most weights are stored ---- */

typedef struct type_sums {
  struct {
    const char *type; /* lives as long as the files */
    uint64_t bytes;
  } types[64];
  size_t count;
} type_sums_t;

static void count_type(type_sums_t *tally, const char *type, uint64_t bytes) {
  size_t i = 0;
  while (i < tally->count && strcmp(tally->types[i].type, type) != 0) i++;
  if (i == ARRAY_LEN(tally->types)) return;
  if (i == tally->count) {
    tally->types[i].type = type;
    tally->types[i].bytes = 0;
    tally->count++;
  }
  tally->types[i].bytes += bytes;
}

static void set_level(model_card_t *card, const type_sums_t *tally) {
  size_t most = 0;
  for (size_t i = 1; i < tally->count; i++) {
    if (tally->types[i].bytes > tally->types[most].bytes) most = i;
  }
  if (tally->count == 0) return;
  snprintf(card->level, sizeof card->level, "%s", tally->types[most].type);
}

static int64_t elements(const int64_t *shape, int32_t rank) {
  int64_t product = 1;
  for (int32_t i = 0; i < rank; i++) product *= shape[i]; /* checked when the file was opened */
  return product;
}

/* ---- GGUF ---- */

/* Names of general.file_type, in the specification of GGUF: mixes of formats. */
static const char *file_type_name(int64_t type) {
  static const char *const names[] = {
      [0] = "F32",     [1] = "F16",     [2] = "Q4_0",    [3] = "Q4_1",    [7] = "Q8_0",
      [8] = "Q5_0",    [9] = "Q5_1",    [10] = "Q2_K",   [11] = "Q3_K_S", [12] = "Q3_K_M",
      [13] = "Q3_K_L", [14] = "Q4_K_S", [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M",
      [18] = "Q6_K",   [32] = "BF16"};
  return type >= 0 && type < (int64_t)ARRAY_LEN(names) ? names[type] : NULL;
}

static void print_number(buffer_t *out, const gguf_value_t *value) {
  int64_t whole;
  double number;
  char text[DOUBLE_TEXT_MAX];
  if (gguf_int(value, 0, &whole)) {
    buffer_int(out, whole);
  } else if (gguf_double(value, 0, &number) && isfinite(number)) {
    if (value->kind == GGUF_F32) {
      buffer_float(out, (float)number);
    } else {
      buffer_append(out, text, double_print(text, number));
    }
  } else {
    buffer_text(out, "null");
  }
}

static void print_value(buffer_t *out, const gguf_value_t *value) {
  bool flag;
  name(out, "", value->key, value->key_length);
  if (value->kind == GGUF_STRING) {
    buffer_quote(out, (const char *)value->data, value->length);
  } else if (value->kind == GGUF_ARRAY) {
    buffer_text(out, "null");
  } else if (value->kind == GGUF_BOOL && gguf_bool(value, 0, &flag)) {
    buffer_text(out, flag ? "true" : "false");
  } else {
    print_number(out, value);
  }
}

static bool key_is(const gguf_value_t *value, const char *key) {
  return value->key_length == strlen(key) && memcmp(value->key, key, value->key_length) == 0;
}

/* The caller prints the context; a whole template has a place of its own. */
static bool is_shown(const gguf_value_t *value, const char *context) {
  static const char template[] = "tokenizer.chat_template";
  bool is_template = value->key_length >= sizeof template - 1 &&
                     memcmp(value->key, template, sizeof template - 1) == 0;
  return !is_template && !key_is(value, context) && !key_is(value, "general.license");
}

static void read_metadata(model_card_t *card, const gguf_t *gguf) {
  const gguf_value_t *arch = gguf_get(gguf, "general.architecture");
  const gguf_value_t *license = gguf_get(gguf, "general.license");
  const gguf_value_t *type = gguf_get(gguf, "general.file_type");
  char context[CARD_WORD_MAX + 32];
  int64_t number;
  if (arch != NULL && arch->kind == GGUF_STRING) {
    snprintf(card->family, sizeof card->family, "%.*s", (int)MIN(arch->length, CARD_WORD_MAX - 1),
             (const char *)arch->data);
  }
  if (license != NULL && license->kind == GGUF_STRING) {
    buffer_append(&card->license, license->data, license->length);
  }
  if (type != NULL && gguf_int(type, 0, &number) && file_type_name(number) != NULL) {
    snprintf(card->level, sizeof card->level, "%s", file_type_name(number));
  }
  snprintf(context, sizeof context, "%s.context_length", card->family);
  for (size_t i = 0; i < gguf_num_values(gguf); i++) {
    const gguf_value_t *value = gguf_value_at(gguf, i);
    if (is_shown(value, context)) print_value(&card->info, value);
  }
}

static int read_gguf(model_card_t *card, const char *path, inferd_error_t *error) {
  gguf_t *gguf = NULL;
  type_sums_t tally = {.count = 0};
  int code = gguf_open(path, true, &gguf, error);
  if (code != 0) return code;
  card->is_gguf = true;
  for (size_t i = 0; i < gguf_num_tensors(gguf); i++) {
    const gguf_tensor_t *tensor = gguf_tensor_at(gguf, i);
    card->parameters += elements(tensor->shape, tensor->rank);
    count_type(&tally, gguf_type_name(tensor->type), tensor->bytes);
  }
  for (int32_t i = 0; i < gguf_num_files(gguf); i++) add_file(card, gguf_path(gguf, i), true);
  set_level(card, &tally);
  read_metadata(card, gguf);
  gguf_close(gguf);
  return 0;
}

/* ---- config.json and safetensors ---- */

/* Members of config.json, and what GGUF calls them behind the family. */
static const struct {
  const char *member, *key;
} translated[] = {{"num_hidden_layers", ".block_count"},
                  {"hidden_size", ".embedding_length"},
                  {"intermediate_size", ".feed_forward_length"},
                  {"num_attention_heads", ".attention.head_count"},
                  {"num_key_value_heads", ".attention.head_count_kv"},
                  {"head_dim", ".attention.key_length"},
                  {"rms_norm_eps", ".attention.layer_norm_rms_epsilon"},
                  {"layer_norm_eps", ".attention.layer_norm_epsilon"},
                  {"sliding_window", ".attention.sliding_window"},
                  {"rope_theta", ".rope.freq_base"},
                  {"num_experts", ".expert_count"},
                  {"num_local_experts", ".expert_count"},
                  {"num_experts_per_tok", ".expert_used_count"},
                  {"vocab_size", ".vocab_size"}};

static void print_string(buffer_t *out, const char *key, const char *text) {
  name(out, "", key, strlen(key));
  buffer_quote(out, text, strlen(text));
}

static void read_config(model_card_t *card, const json_t *root) {
  const json_t *type = json_get(root, "model_type"), *text = json_get(root, "text_config");
  const json_t *quantised = json_get(root, "quantization_config");
  const json_t *method = json_get(quantised, "quant_method");
  if (type != NULL && type->type == JSON_STRING) {
    snprintf(card->family, sizeof card->family, "%.*s", (int)MIN(type->length, CARD_WORD_MAX - 1),
             type->text);
  }
  if (json_is_given(quantised)) card->parameters = 0; /* the tensors hold packed ones */
  if (method != NULL && method->type == JSON_STRING) {
    snprintf(card->level, sizeof card->level, "%.*s", (int)MIN(method->length, CARD_WORD_MAX - 1),
             method->text);
    for (char *at = card->level; *at != '\0'; at++) *at = (char)toupper((unsigned char)*at);
  }
  print_string(&card->info, "general.architecture", card->family);
  for (size_t i = 0; i < ARRAY_LEN(translated); i++) {
    const json_t *value = json_get(root, translated[i].member);
    if (value == NULL) value = json_get(text, translated[i].member);
    if (value == NULL || value->type != JSON_NUMBER) continue;
    name(&card->info, card->family, translated[i].key, strlen(translated[i].key));
    json_print(&card->info, value);
  }
}

static int read_weights(model_card_t *card, const char *path, inferd_error_t *error) {
  weight_files_t *files = NULL;
  type_sums_t tally = {.count = 0};
  char file[PATH_MAX];
  int code = weight_files_open(path, &files, error);
  if (code == ERR_MODEL_MISSING) return 0; /* weights may be drawn */
  if (code != 0) return code;
  bool *seen = calloc(SHARDS_MAX, sizeof *seen);
  for (size_t i = 0; i < weight_files_count(files) && seen != NULL; i++) {
    const stored_tensor_t *tensor = weight_files_at(files, i);
    card->parameters += elements(tensor->shape, tensor->rank);
    count_type(&tally, tensor->type, tensor->bytes);
    if (!seen[tensor->shard])
      add_file(card, weight_files_path(files, tensor, file, sizeof file), true);
    seen[tensor->shard] = true;
  }
  set_level(card, &tally);
  weight_files_close(files);
  if (seen == NULL) code = error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
  free(seen);
  return code;
}

static int read_directory(model_card_t *card, const char *path, inferd_error_t *error) {
  model_file_t config = {0};
  char file[PATH_MAX];
  int code = read_weights(card, path, error);
  if (code == 0) {
    code = model_file_read(path, "config.json", CONFIG_BYTES, &json_limits_model, &config, error);
  }
  if (code != 0) return code;
  add_file(card, model_file_path(file, sizeof file, path, "config.json"), false);
  if (config.doc != NULL) read_config(card, json_root(config.doc));
  model_file_free(&config);
  return 0;
}

int model_card_read(const char *path, model_card_t *out, inferd_error_t *error) {
  char file[PATH_MAX];
  *out = (model_card_t){0};
  int code = gguf_find(path, file, sizeof file, error);
  if (code >= 0) code = code > 0 ? read_gguf(out, file, error) : read_directory(out, path, error);
  if (code == 0 && out->parameters > 0) {
    static const char key[] = "general.parameter_count";
    name(&out->info, "", key, sizeof key - 1);
    buffer_int(&out->info, out->parameters);
  }
  if (code == 0 && (out->info.failed || out->license.failed)) {
    code = error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
  }
  if (code != 0) model_card_free(out);
  return code;
}
