/* config_quantization.c: which quantisation a checkpoint says it has.
 *
 * The dict "quantization_config" of config.json, or a file of its own: quantize_config.json (GPTQ),
 * quant_config.json (AWQ), hf_quant_config.json (ModelOpt). Methods that packed.h does not read are
 * refused by name, with what to do. Any thread, no state.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"
#include "engine/model/source/model_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 4 << 20, GROUP_MAX = 1 << 20, GROUP_DEFAULT = 128 };

#define SUPPORTED "fp8, compressed-tensors, gptq, awq, modelopt, mxfp4 of gpt-oss, and GGUF files"

/* Returns true for the scheme of an fp8 KV cache. */
static bool is_fp8_cache(const json_t *cache) {
  const json_t *type = json_get(cache, "type"), *bits = json_get(cache, "num_bits");
  double number;
  return type != NULL && json_equals(type, "float") && bits != NULL && json_double(bits, &number) &&
         number == 8;
}

static bool is_absent(const json_t *value) {
  return !json_is_given(value) || (value->type == JSON_OBJECT && !value->count);
}

/* Returns true for a dict that only has scales of an fp8 KV cache: the weights are unchanged. */
static bool is_of_cache_only(const json_t *json) {
  const json_t *method = json_get(json, "quant_method"), *cache = json_get(json, "kv_cache_scheme");
  if (method == NULL || cache == NULL || cache->type != JSON_OBJECT) return false;
  if (!json_equals(method, "compressed-tensors") && !json_equals(method, "modelopt")) return false;
  return is_absent(json_get(json, "config_groups")) && is_absent(json_get(json, "quant_algo")) &&
         is_fp8_cache(cache);
}

/* Returns true if the member is absent or one of the words. */
static bool is_one_of(const json_t *json, const char *key, const char *const *words) {
  const json_t *value = json_get(json, key);
  if (!json_is_given(value)) return true;
  for (; *words != NULL; words++)
    if (json_equals(value, *words)) return true;
  return false;
}

/* Refuses a member whose value is none of the words. */
static void need_one_of(config_reader_t *reader, const json_t *json, const char *key,
                        const char *const *words, const char *supported) {
  if (!is_one_of(json, key, words))
    config_refuse(reader, key, json_get(json, key), "%s", supported);
}

/* A reader of the keys of `json`; its first error goes back by `leave`. */
static config_reader_t enter(const config_reader_t *reader, const json_t *json) {
  config_reader_t inner = *reader;
  inner.root = json;
  inner.outer = NULL;
  return inner;
}

static void leave(config_reader_t *reader, const config_reader_t *inner) {
  reader->code = inner->code;
}

/* Columns that share a scale; -1 means all of a row. */
static int32_t read_group(config_reader_t *reader, const json_t *json, int64_t absent) {
  const char *name;
  config_reader_t inner = enter(reader, json);
  const char *const *keys = KEYS("group_size", "q_group_size");
  int64_t group = config_int_or_null(&inner, keys, absent, GROUP_ANY, -1, GROUP_MAX);
  const json_t *value = config_find(&inner, keys, &name);
  if (group == 0 && json_is_given(value)) config_refuse(&inner, name, value, "-1, or 1 and more");
  leave(reader, &inner);
  return group < 0 ? GROUP_ROW : (int32_t)group;
}

/* The number of bits under one of the keys, which must be one of `allowed`, a mask; 0 = absent. */
static int32_t read_bits(config_reader_t *reader, const json_t *json, const char *const *keys,
                         uint32_t allowed, const char *supported) {
  const char *name;
  config_reader_t inner = enter(reader, json);
  const json_t *value = config_find(&inner, keys, &name);
  double bits = 0;
  if (!json_is_given(value)) return 0;
  if (json_double(value, &bits) && bits >= 0 && bits <= 8 && bits == (int)bits &&
      allowed & 1U << (int)bits)
    return (int32_t)bits;
  config_refuse(&inner, name, value, "%s", supported);
  leave(reader, &inner);
  return 0;
}

/* Keeps the names of a list of layers that are not quantised. */
static void read_plain(config_reader_t *reader, const json_t *json, const char *key,
                       scheme_t *scheme) {
  const json_t *list = json_get(json, key);
  size_t bytes = 1, used = 0;
  if (reader->code != 0 || !json_is_given(list)) return;
  bool good = list->type == JSON_ARRAY;
  for (const json_t *name = good ? json_first(list) : NULL; name != NULL; name = json_next(name)) {
    good = good && name->type == JSON_STRING && memchr(name->text, 0, name->length) == NULL;
    bytes += (size_t)name->length + 1;
  }
  if (!good) {
    config_refuse(reader, key, list, "a list of names");
    return;
  }
  if (scheme->plain != NULL) return;
  scheme->plain = calloc(bytes, 1);
  if (scheme->plain == NULL) {
    reader->code = error_set(reader->error, ERR_NO_MEMORY, NULL, "no memory for a list of names");
    return;
  }
  snprintf(scheme->plain_key, sizeof scheme->plain_key, "%s", key);
  JSON_EACH(name, list) {
    if (name->length == 0) continue;
    memcpy(scheme->plain + used, name->text, name->length);
    used += (size_t)name->length + 1;
  }
}

static void read_gptq(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  need_one_of(reader, json, "checkpoint_format", KEYS("gptq", "gptq_v2"),
              "\"gptq\" or \"gptq_v2\"; convert the file, or take the GPTQ original");
  const json_t *format = json_get(json, "checkpoint_format");
  bool is_v2 = format != NULL && json_equals(format, "gptq_v2");
  *scheme = (scheme_t){.kind = is_v2 ? SCHEME_GPTQ_V2 : SCHEME_GPTQ,
                       .packings = 1U << PACKING_GPTQ,
                       .varies = !is_absent(json_get(json, "dynamic")),
                       .says = "gptq"};
  scheme->group = read_group(reader, json, GROUP_DEFAULT);
  scheme->bits = read_bits(reader, json, KEYS("bits"), 1U << 2 | 1U << 4 | 1U << 8, "2, 4 or 8");
}

static void read_awq(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  need_one_of(reader, json, "version", KEYS("gemm", "GEMM"),
              "\"gemm\"; take the gemm version of the file");
  *scheme = (scheme_t){.kind = SCHEME_AWQ, .packings = 1U << PACKING_AWQ, .says = "awq"};
  scheme->group = read_group(reader, json, GROUP_DEFAULT);
  scheme->bits = read_bits(reader, json, KEYS("bits", "w_bit"), 1U << 4, "4");
  read_plain(reader, json, "modules_to_not_convert", scheme);
}

/* True for [128, 128]. */
static bool is_block(const json_t *value) {
  int64_t side;
  if (value->type != JSON_ARRAY || value->count != 2) return false;
  JSON_EACH(number, value) {
    if (!json_int64(number, &side) || side != 128) return false;
  }
  return true;
}

static void read_fp8(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  const json_t *block = json_get(json, "weight_block_size");
  need_one_of(reader, json, "fmt", KEYS("e4m3", "float8_e4m3fn"), "\"e4m3\"");
  *scheme = (scheme_t){
      .kind = SCHEME_FP8, .packings = 1U << PACKING_FP8, .expected = true, .says = "fp8"};
  if (json_is_given(block)) {
    scheme->group = GROUP_BLOCKS;
    if (!is_block(block)) config_refuse(reader, "weight_block_size", block, "[128, 128]");
  }
  read_plain(reader, json, "modules_to_not_convert", scheme);
  read_plain(reader, json, "ignored_layers", scheme);
}

/* The weights of one of config_groups: what they have in common is added to `scheme`. */
static void read_weights(config_reader_t *reader, const json_t *json, bool is_first,
                         scheme_t *scheme) {
  static const char *const words[] = {"tensor", "channel", "block", "group", "tensor_group", NULL};
  static const int32_t groups[] = {GROUP_TENSOR, GROUP_ROW, GROUP_BLOCKS};
  const json_t *strategy = json_get(json, "strategy"), *block = json_get(json, "block_structure");
  config_reader_t inner = enter(reader, json);
  need_one_of(&inner, json, "strategy", words, "tensor, channel, block, group or tensor_group");
  bool symmetric = config_bool(&inner, KEYS("symmetric"), true);
  if (json_is_given(block) && !is_block(block))
    config_refuse(&inner, "block_structure", block, "[128, 128]");
  leave(reader, &inner);
  int32_t group = read_group(reader, json, GROUP_ANY);
  for (int i = 0; i < 3 && json_is_given(strategy); i++)
    if (json_equals(strategy, words[i])) group = groups[i];
  int32_t bits = read_bits(reader, json, KEYS("num_bits"), 1U << 4 | 1U << 8, "4 or 8");
  zero_rule_t zeros = symmetric ? ZEROS_NONE : ZEROS_STORED;
  if (is_first || scheme->group == group)
    scheme->group = group;
  else
    scheme->group = GROUP_ANY;
  scheme->bits = is_first || scheme->bits == bits ? bits : 0;
  scheme->zeros = is_first || scheme->zeros == zeros ? zeros : ZEROS_ANY;
}

static void read_config_groups(config_reader_t *reader, const json_t *groups, scheme_t *scheme) {
  bool is_first = true;
  if (is_absent(groups)) return;
  if (groups->type != JSON_OBJECT) {
    config_refuse(reader, "config_groups", groups, "an object");
    return;
  }
  char key[64];
  JSON_EACH(group, groups) {
    error_quote(key, sizeof key, group->key, group->key_length);
    if (group->type != JSON_OBJECT) config_refuse(reader, key, group, "an object");
    const json_t *weights = json_get(group, "weights");
    if (reader->code != 0) return;
    if (is_absent(weights)) continue;
    read_weights(reader, weights, is_first, scheme);
    is_first = false;
  }
  scheme->expected = !is_first;
}

/* What each format stores; the others are read as the tensors say. */
static const struct {
  const char *name;
  uint32_t packings;
  int32_t scale_group;
} stored_formats[] = {{"float-quantized", 1U << PACKING_FP8, 0},
                      {"int-quantized", 1U << PACKING_INT8, 0},
                      {"naive-quantized", 1U << PACKING_FP8 | 1U << PACKING_INT8, 0},
                      {"pack-quantized", 1U << PACKING_ROWS, 0},
                      {"nvfp4-pack-quantized", 1U << PACKING_FP4, 16},
                      {"mxfp4-pack-quantized", 1U << PACKING_FP4, 32}};

static void read_compressed(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  const json_t *format = json_get(json, "format");
  need_one_of(reader, json, "format",
              KEYS("float-quantized", "naive-quantized", "int-quantized", "pack-quantized",
                   "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision", "dense"),
              "float-quantized, int-quantized, pack-quantized, nvfp4-pack-quantized, "
              "mxfp4-pack-quantized, naive-quantized, mixed-precision");
  const json_t *sparsity = json_get(json_get(json, "sparsity_config"), "format");
  if (sparsity != NULL && !json_equals(sparsity, "dense"))
    config_refuse(reader, "sparsity_config", sparsity, "dense weights");
  *scheme = (scheme_t){.kind = SCHEME_COMPRESSED,
                       .packings = 1U << PACKING_FP8 | 1U << PACKING_INT8 | 1U << PACKING_ROWS |
                                   1U << PACKING_FP4,
                       .says = "compressed-tensors"};
  read_config_groups(reader, json_get(json, "config_groups"), scheme);
  for (size_t i = 0; i < ARRAY_LEN(stored_formats) && json_is_given(format); i++) {
    if (!json_equals(format, stored_formats[i].name)) continue;
    scheme->packings = stored_formats[i].packings;
    scheme->scale_group = stored_formats[i].scale_group;
    snprintf(scheme->says, sizeof scheme->says, "compressed-tensors with %s",
             stored_formats[i].name);
  }
  if (json_is_given(format) && json_equals(format, "dense")) scheme->expected = false;
  read_plain(reader, json, "ignore", scheme);
}

static void read_modelopt(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  const json_t *algorithm = json_get(json, "quant_algo");
  *scheme = (scheme_t){.kind = SCHEME_MODELOPT,
                       .packings = 1U << PACKING_FP8 | 1U << PACKING_FP4,
                       .expected = !is_absent(algorithm),
                       .says = "modelopt"};
  if (json_is_given(algorithm) && json_equals(algorithm, "FP8")) {
    scheme->packings = 1U << PACKING_FP8;
    snprintf(scheme->says, sizeof scheme->says, "modelopt with FP8");
  }
  read_plain(reader, json, "exclude_modules", scheme);
}

static void refuse_method(config_reader_t *reader, const json_t *method) {
  if (method != NULL && json_equals(method, "bitsandbytes")) {
    config_refuse(reader, "quant_method", method,
                  SUPPORTED "; take the 16-bit checkpoint, or a file of 4 bits in one of these");
  } else {
    config_refuse(reader, "quant_method", method, SUPPORTED);
  }
}

static void read_scheme(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  const json_t *method = json_get(json, "quant_method"), *cache = json_get(json, "kv_cache_scheme");
  if (!is_absent(cache) && !is_fp8_cache(cache)) {
    config_refuse(reader, "kv_cache_scheme", cache, "8 bits of type float");
    return;
  }
  if (method == NULL || method->type != JSON_STRING) {
    refuse_method(reader, method);
  } else if (json_equals(method, "fp8") || json_equals(method, "fbgemm_fp8")) {
    read_fp8(reader, json, scheme);
  } else if (json_equals(method, "compressed-tensors")) {
    read_compressed(reader, json, scheme);
  } else if (json_equals(method, "gptq")) {
    read_gptq(reader, json, scheme);
    if (json_get(json, "bits") == NULL)
      config_refuse(reader, "bits", NULL, "of the GPTQ weights is missing: 2, 4 or 8");
    scheme->expected = true;
  } else if (json_equals(method, "awq")) {
    read_awq(reader, json, scheme);
    scheme->expected = true;
  } else if (json_equals(method, "modelopt") || json_equals(method, "modelopt_fp4")) {
    read_modelopt(reader, json, scheme);
  } else {
    refuse_method(reader, method);
  }
}

/* The files that programs write beside config.json. The first that exists decides. */
static void read_file_beside(config_reader_t *reader, const char *dir, scheme_t *scheme) {
  static const struct {
    const char *name;
    void (*read)(config_reader_t *reader, const json_t *json, scheme_t *scheme);
  } files[] = {{"quantize_config.json", read_gptq}, {"quant_config.json", read_awq}};
  static const json_limits_t limits = {
      .depth_max = 32, .values_max = 100000, .key_bytes_max = 1024, .allow_nul = true};
  model_file_t file;
  for (int i = 0; i < 2 && reader->code == 0 && scheme->kind == SCHEME_PLAIN; i++) {
    reader->code =
        model_file_read(dir, files[i].name, FILE_BYTES_MAX, &limits, &file, reader->error);
    if (reader->code != 0 || file.doc == NULL) continue;
    config_reader_t inner = {
        .file = files[i].name, .root = json_root(file.doc), .error = reader->error};
    files[i].read(&inner, inner.root, scheme);
    reader->code = inner.code;
    model_file_free(&file);
  }
  if (reader->code != 0 || scheme->kind != SCHEME_PLAIN) return;
  reader->code =
      model_file_read(dir, "hf_quant_config.json", FILE_BYTES_MAX, &limits, &file, reader->error);
  if (reader->code != 0 || file.doc == NULL) return;
  const json_t *json = json_get(json_root(file.doc), "quantization");
  config_reader_t inner = {
      .file = "hf_quant_config.json", .root = json_root(file.doc), .error = reader->error};
  if (!is_absent(json_get(json, "quant_algo"))) read_modelopt(&inner, json, scheme);
  reader->code = inner.code;
  model_file_free(&file);
}

void config_read_quantization(config_reader_t *reader, const char *dir, const family_t *family,
                              blueprint_t *blueprint) {
  const char *name;
  if (reader->code != 0) return;
  const json_t *json =
      config_find(reader, KEYS("quantization_config", "compression_config"), &name);
  if (!json_is_given(json)) {
    read_file_beside(reader, dir, &blueprint->scheme);
    return;
  }
  const json_t *method = json_get(json, "quant_method");
  if (family->expert_keys == EXPERTS_GPT_OSS && method != NULL && json_equals(method, "mxfp4")) {
    blueprint->experts_mxfp4 = true;
    return;
  }
  if (is_of_cache_only(json)) return;
  if (family->expert_keys == EXPERTS_GPT_OSS)
    config_refuse(reader, "quant_method", method, "mxfp4 for %s", family->architecture);
  else
    read_scheme(reader, json, &blueprint->scheme);
}
