/* config_quantization.c: which quantisation a checkpoint says it has.
 *
 * The dict "quantization_config" of config.json, or a file of its own: quantize_config.json (GPTQ),
 * quant_config.json (AWQ), hf_quant_config.json (ModelOpt). Methods that packed.h does not read are
 * refused by name, with what to do. Any thread, no state.
 */
#include "engine/model/config/config.h"
#include "engine/model/model_file.h"

#include <string.h>

enum { FILE_BYTES_MAX = 4 << 20, GROUP_MAX = 1 << 20 };

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

static int32_t read_group(config_reader_t *reader, const json_t *json) {
  config_reader_t inner = *reader;
  inner.root = json;
  inner.outer = NULL;
  int64_t group = config_int(&inner, KEYS("group_size", "q_group_size"), 128, -1, GROUP_MAX);
  reader->code = inner.code;
  return group > 0 ? (int32_t)group : 0;
}

static void read_gptq(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  need_one_of(reader, json, "checkpoint_format", KEYS("gptq", "gptq_v2"),
              "\"gptq\" or \"gptq_v2\"; convert the file, or take the GPTQ original");
  const json_t *format = json_get(json, "checkpoint_format");
  bool is_v2 = format != NULL && json_equals(format, "gptq_v2");
  *scheme =
      (scheme_t){.kind = is_v2 ? SCHEME_GPTQ_V2 : SCHEME_GPTQ, .group = read_group(reader, json)};
}

/* The shapes of the tensors decide; but a config.json that transformers refuses is refused. */
static void check_bits(config_reader_t *reader, const json_t *json) {
  const json_t *bits = json_get(json, "bits");
  double number = 0;
  if (bits == NULL) {
    config_refuse(reader, "bits", NULL, "of the GPTQ weights is missing: 2, 4 or 8");
  } else if (!json_double(bits, &number) || (number != 2 && number != 4 && number != 8)) {
    config_refuse(reader, "bits", bits, "2, 4 or 8");
  }
}

static void read_awq(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  need_one_of(reader, json, "version", KEYS("gemm", "GEMM"),
              "\"gemm\"; take the gemm version of the file");
  *scheme = (scheme_t){.kind = SCHEME_AWQ, .group = read_group(reader, json)};
}

static void read_compressed(config_reader_t *reader, const json_t *json, scheme_t *scheme) {
  need_one_of(reader, json, "format",
              KEYS("float-quantized", "naive-quantized", "int-quantized", "pack-quantized",
                   "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mixed-precision", "dense"),
              "float-quantized, int-quantized, pack-quantized, nvfp4-pack-quantized, "
              "mxfp4-pack-quantized, naive-quantized, mixed-precision");
  const json_t *sparsity = json_get(json_get(json, "sparsity_config"), "format");
  if (sparsity != NULL && !json_equals(sparsity, "dense"))
    config_refuse(reader, "sparsity_config", sparsity, "dense weights");
  *scheme = (scheme_t){.kind = SCHEME_COMPRESSED};
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
    need_one_of(reader, json, "fmt", KEYS("e4m3", "float8_e4m3fn"), "\"e4m3\"");
    *scheme = (scheme_t){.kind = SCHEME_FP8};
  } else if (json_equals(method, "compressed-tensors")) {
    read_compressed(reader, json, scheme);
  } else if (json_equals(method, "gptq")) {
    read_gptq(reader, json, scheme);
    check_bits(reader, json);
    scheme->expected = true;
  } else if (json_equals(method, "awq")) {
    read_awq(reader, json, scheme);
    scheme->expected = true;
  } else if (json_equals(method, "modelopt") || json_equals(method, "modelopt_fp4")) {
    *scheme = (scheme_t){.kind = SCHEME_MODELOPT};
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
  const json_t *algorithm = json_get(json_get(json_root(file.doc), "quantization"), "quant_algo");
  if (!is_absent(algorithm)) *scheme = (scheme_t){.kind = SCHEME_MODELOPT};
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
