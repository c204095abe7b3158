/* embedding.c: modules.json and its kin: the pooling, its normalisation, its limits.
 *
 * Reference: sentence-transformers 5, whose older and newer spellings are both read. A module that
 * is not known changes the vectors, so it is refused by name. Any thread, no state.
 */
#include "engine/model/config/embedding.h"

#include "engine/base/util.h"
#include "engine/file/gguf.h"
#include "engine/model/config/config.h"
#include "engine/model/source/model_file.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 24, MODULES_MAX = 16, TOKENS_MAX = 1 << 24, DENSE_WIDTH_MAX = 65536 };

/* Each way of pooling, by its name in the files. */
static const struct {
  const char *name, *key;
  pooling_t pooling;
} modes[] = {
    {"lasttoken", "pooling_mode_lasttoken", POOLING_LAST},
    {"mean", "pooling_mode_mean_tokens", POOLING_MEAN},
    {"cls", "pooling_mode_cls_token", POOLING_CLS},
    {"max", "pooling_mode_max_tokens", POOLING_MAX},
    {"mean_sqrt_len_tokens", "pooling_mode_mean_sqrt_len_tokens", POOLING_SQRT},
    {"weightedmean", "pooling_mode_weightedmean_tokens", POOLING_WEIGHTED},
};
static const char supported_modes[] =
    "one of lasttoken, mean, cls, max, mean_sqrt_len_tokens, weightedmean";

const char *pooling_name(pooling_t pooling) {
  static const char *const names[] = {"none", "last",          "mean",          "cls",
                                      "max",  "weighted mean", "mean_sqrt_len", "each token"};
  return names[pooling];
}

/* The newer spelling: a name, or a list with one name. */
static void read_mode(config_reader_t *reader, const json_t *value, embedding_info_t *info) {
  if (value->type == JSON_ARRAY && value->count == 1) value = json_first(value);
  for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
    if (!json_equals(value, modes[i].name)) continue;
    info->pooling = modes[i].pooling;
    return;
  }
  config_refuse(reader, "pooling_mode", value, "%s", supported_modes);
}

/* The older spelling: a flag for each; without a flag that is true the mean is meant. */
static void read_flags(config_reader_t *reader, embedding_info_t *info) {
  int count = 0;
  info->pooling = POOLING_MEAN;
  for (size_t i = 0; i < ARRAY_LEN(modes); i++) {
    if (!config_bool(reader, KEYS(modes[i].key), false)) continue;
    info->pooling = modes[i].pooling;
    if (++count > 1)
      config_refuse(reader, modes[i].key, json_get(reader->root, modes[i].key), "%s",
                    supported_modes);
  }
}

static void read_pooling(config_reader_t *reader, embedding_info_t *info) {
  const json_t *mode = json_get(reader->root, "pooling_mode");
  if (mode != NULL)
    read_mode(reader, mode, info);
  else
    read_flags(reader, info);
  if (info->pooling != POOLING_LAST && info->pooling != POOLING_CLS &&
      !config_bool(reader, KEYS("include_prompt"), true))
    config_refuse(reader, "include_prompt", json_get(reader->root, "include_prompt"), "true");
}

/* Reads DIR/NAME, an object, with `read`; an absent file is none. */
static int with_file(const char *dir, const char *name,
                     void (*read)(config_reader_t *reader, embedding_files_t *out),
                     embedding_files_t *out, inferd_error_t *error) {
  model_file_t file;
  int code = model_file_read(dir, name, FILE_BYTES_MAX, &config_limits, &file, error);
  if (code != 0 || file.doc == NULL) return code;
  config_reader_t reader = {.file = name, .root = json_root(file.doc), .error = error};
  read(&reader, out);
  model_file_free(&file);
  return reader.code;
}

static void read_pooling_file(config_reader_t *reader, embedding_files_t *out) {
  read_pooling(reader, &out->info);
}

static void read_limits(config_reader_t *reader, embedding_files_t *out) {
  out->max_tokens =
      (int32_t)config_int_or_null(reader, KEYS("max_seq_length"), 0, 0, 1, TOKENS_MAX);
  if (config_bool(reader, KEYS("do_lower_case"), false))
    config_refuse(reader, "do_lower_case", json_get(reader->root, "do_lower_case"), "false");
}

/* The keys by which vLLM, too, knows that vectors may be cut. */
static void read_sizes(config_reader_t *reader, embedding_files_t *out) {
  embedding_info_t *info = &out->info;
  const json_t *sizes = json_get(reader->root, "matryoshka_dimensions");
  info->matryoshka = config_bool(reader, KEYS("is_matryoshka"), false);
  if (sizes == NULL || sizes->type == JSON_NULL) return;
  if (sizes->type != JSON_ARRAY || sizes->count > EMBEDDING_SIZES_MAX) {
    config_refuse(reader, "matryoshka_dimensions", sizes, "a list of at most %d sizes",
                  EMBEDDING_SIZES_MAX);
    return;
  }
  JSON_EACH(size, sizes) {
    int64_t number;
    if (!json_int64(size, &number) || number < 1 || number > INT32_MAX) {
      config_refuse(reader, "matryoshka_dimensions", size, "integers of 1 and more");
      return;
    }
    info->sizes[info->num_sizes++] = (int32_t)number;
  }
  info->matryoshka = info->matryoshka || info->num_sizes > 0;
}

/* The class behind the last point of a module's type. */
static const char *class_of(const json_t *type, char out[64]) {
  size_t begin = 0;
  for (size_t i = 0; type != NULL && type->type == JSON_STRING && i < type->length; i++) {
    if (type->text[i] == '.') begin = i + 1;
  }
  out[0] = '\0';
  if (type == NULL || type->type != JSON_STRING || type->length - begin >= 64) return out;
  memcpy(out, type->text + begin, type->length - begin);
  out[type->length - begin] = '\0';
  return out;
}

/* A Dense module: its activation by the class in torch.nn; Tanh where the file says none. */
static void read_dense_file(config_reader_t *reader, embedding_files_t *out) {
  static const struct {
    const char *class;
    int32_t activation;
  } known[] = {{"Identity", -1},
               {"Tanh", ACTIVATION_TANH},
               {"GELU", ACTIVATION_GELU},
               {"ReLU", ACTIVATION_RELU}};
  dense_layer_t *dense = &out->dense[out->num_dense];
  const json_t *given = json_get(reader->root, "activation_function");
  char class[64] = "Tanh";
  if (json_is_given(given)) class_of(given, class);
  dense->in = (int32_t)config_int(reader, KEYS("in_features"), 0, 1, DENSE_WIDTH_MAX);
  dense->out = (int32_t)config_int(reader, KEYS("out_features"), 0, 1, DENSE_WIDTH_MAX);
  dense->has_bias = config_bool(reader, KEYS("bias"), true);
  for (size_t i = 0; i < ARRAY_LEN(known); i++) {
    if (strcmp(class, known[i].class) != 0) continue;
    dense->activation = known[i].activation;
    out->num_dense++;
    return;
  }
  config_refuse(reader, "activation_function", given, "Identity, Tanh, GELU, ReLU of torch.nn");
}

static void read_dense(const char *dir, config_reader_t *reader, const json_t *module,
                       const char *file, embedding_files_t *out) {
  const json_t *path = json_get(module, "path");
  int32_t before = out->num_dense;
  if (!out->found || out->num_dense == DENSE_MAX) {
    config_refuse(reader, "type", json_get(module, "type"), "at most %d Dense, behind the Pooling",
                  DENSE_MAX);
    return;
  }
  snprintf(out->dense[before].path, DENSE_PATH_MAX, "%.*s", (int)path->length, path->text);
  reader->code = with_file(dir, file, read_dense_file, out, reader->error);
  if (reader->code == 0 && out->num_dense == before)
    config_refuse(reader, "path", path, "a directory with the config.json of a Dense");
}

/* Writes PATH/config.json. A path that leads out of the directory is refused. */
static bool module_file(const json_t *path, char *out, size_t capacity) {
  if (path == NULL || path->type != JSON_STRING || path->length == 0 || path->length > 128)
    return false;
  if (path->text[0] == '/' || memchr(path->text, '\0', path->length) != NULL) return false;
  snprintf(out, capacity, "%.*s/config.json", (int)path->length, path->text);
  return strstr(out, "..") == NULL;
}

static void read_modules(const char *dir, config_reader_t *reader, embedding_files_t *out) {
  char class[64], name[160];
  JSON_EACH(module, reader->root) {
    const json_t *type = json_get(module, "type"), *path = json_get(module, "path");
    class_of(type, class);
    if (strcmp(class, "Transformer") == 0) continue;
    if (strcmp(class, "Normalize") == 0) {
      out->info.normalises = true;
    } else if (strcmp(class, "Pooling") != 0 && strcmp(class, "Dense") != 0) {
      config_refuse(reader, "type", type, "Transformer, Pooling, Dense, Normalize");
    } else if (!module_file(path, name, sizeof name)) {
      config_refuse(reader, "path", path, "a directory below the model's");
    } else if (strcmp(class, "Dense") == 0) {
      read_dense(dir, reader, module, name, out);
    } else if (out->found) {
      config_refuse(reader, "type", type, "one Pooling");
    } else {
      out->found = true;
      out->info.normalises = false;
      out->info.pooling = POOLING_MEAN; /* without a file of its own */
      reader->code = with_file(dir, name, read_pooling_file, out, reader->error);
    }
    if (reader->code != 0) return;
  }
}

static int read_directory(const char *dir, embedding_files_t *out, inferd_error_t *error) {
  static const char name[] = "modules.json";
  model_file_t file;
  int code = model_file_read_list(dir, name, FILE_BYTES_MAX, &config_limits, &file, error);
  if (code == 0 && file.doc != NULL) {
    config_reader_t reader = {.file = name, .root = json_root(file.doc), .error = error};
    if (reader.root->count > MODULES_MAX)
      config_refuse(&reader, "type", NULL, "at most %d modules", MODULES_MAX);
    if (reader.code == 0) read_modules(dir, &reader, out);
    code = reader.code;
    model_file_free(&file);
  }
  if (code == 0 && out->found)
    code = with_file(dir, "sentence_bert_config.json", read_limits, out, error);
  return code == 0 ? with_file(dir, "config.json", read_sizes, out, error) : code;
}

static int read_gguf(const char *path, embedding_files_t *out, inferd_error_t *error) {
  static const pooling_t poolings[] = {POOLING_NONE, POOLING_MEAN, POOLING_CLS, POOLING_LAST};
  enum { RANK = 4 };
  gguf_t *gguf;
  char key[128];
  int64_t number = 0;
  int code = gguf_open(path, false, &gguf, error);
  if (code != 0) return code;
  const gguf_value_t *architecture = gguf_get(gguf, "general.architecture");
  bool named = architecture != NULL && architecture->kind == GGUF_STRING;
  int length = named && architecture->length < 64 ? (int)architecture->length : 0;
  snprintf(key, sizeof key, "%.*s.pooling_type", length,
           length > 0 ? (const char *)architecture->data : "");
  bool given = gguf_int(gguf_get(gguf, key), 0, &number);
  if (given && number == RANK) { /* a file with its classifier is never asked for its pooling */
    code = error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "%s is 4 (rank), but the file has no classifier (cls.output.weight); take the "
                     "model as safetensors",
                     key);
  } else if (given && (number < 0 || number >= (int64_t)ARRAY_LEN(poolings))) {
    code = error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "%s is %lld, supported: 0 (none), 1 (mean), 2 (cls), 3 (last)", key,
                     (long long)number);
  } else if (given && number > 0) {
    out->found = true;
    out->info.pooling = poolings[number];
  }
  gguf_close(gguf);
  return code;
}

int embedding_read(const char *dir, embedding_files_t *out, inferd_error_t *error) {
  char path[PATH_MAX];
  *out = (embedding_files_t){.info = {.pooling = POOLING_LAST, .normalises = true}};
  int found = gguf_find(dir, path, sizeof path, error);
  if (found < 0) return found;
  return found > 0 ? read_gguf(path, out, error)
                   : error_within(error, read_directory(dir, out, error), dir);
}
