/* test_bad_models.c: broken model directories. Each must fail with the right code and a message
 * that names what is wrong, leave nothing behind, and not disturb the next load.
 */
#include "tests/engine/model/maker.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void expect(const maker_t *maker, int code, const char *part) {
  inferd_error_t error;
  int status = maker_load(maker, -1, &error);
  ASSERT_EQ_FOR(status, code, "expected %s, found %s: %s", error_name(code), error_name(status),
                error.message);
  ASSERT_EQ(error.code, code);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
}

static void expect_written(maker_t *maker, int code, const char *part) {
  maker_write(maker);
  expect(maker, code, part);
  maker_finish(maker);
}

static void bad_config(const char *key, const char *value, const char *part) {
  maker_t maker;
  maker_open(&maker);
  maker_set(&maker, key, value);
  expect_written(&maker, ERR_MODEL_MALFORMED, part);
}

typedef struct key_case {
  const char *key, *value, *part;
} key_case_t;

static void bad_configs(const key_case_t *cases, size_t count) {
  for (size_t i = 0; i < count; i++) bad_config(cases[i].key, cases[i].value, cases[i].part);
}

#define BAD_CONFIGS(name, ...)                                                                     \
  Test(bad_config, name) {                                                                         \
    static const key_case_t cases[] = {__VA_ARGS__};                                               \
    bad_configs(cases, sizeof(cases) / sizeof(cases[0]));                                          \
  }

BAD_CONFIGS(architecture,
            {"architectures", "[\"LlamaForCausalLM2\"]", "not supported; docs/models.md lists"},
            {"architectures", "[\"RwkvForCausalLM\"]", "architecture \"RwkvForCausalLM\""},
            {"architectures", "[7]", "architecture \"\""},
            {"architectures", "\"LlamaForCausalLM\"", "\"architectures\" is"},
            {"is_encoder_decoder", "true", "\"is_encoder_decoder\" is true"},
            {"is_causal", "false", "\"is_causal\" is false"})

BAD_CONFIGS(sizes, {"num_hidden_layers", "1000000000", "\"num_hidden_layers\" is 1000000000"},
            {"num_hidden_layers", "0", "1..1024"}, {"num_hidden_layers", "1.5", "is 1.5"},
            {"hidden_size", "-8", "\"hidden_size\" is -8"},
            {"hidden_size", "\"8\"", "\"hidden_size\" is \"8\""},
            {"hidden_size", "1e30", "\"hidden_size\" is 1e30"},
            {"hidden_size", "null", "\"hidden_size\" is null"},
            {"vocab_size", "99999999999999999999", "\"vocab_size\""},
            {"vocab_size", "4194305", "\"vocab_size\" is 4194305"},
            {"intermediate_size", "0", "\"intermediate_size\" is 0"},
            {"max_position_embeddings", "33554432", "\"max_position_embeddings\""})

BAD_CONFIGS(heads, {"num_attention_heads", "3", "does not divide hidden_size"},
            {"num_attention_heads", "0", "\"num_attention_heads\" is 0"},
            {"num_key_value_heads", "3", "does not divide num_attention_heads"},
            {"head_dim", "5", "\"head_dim\" is 5"}, {"head_dim", "1024", "\"head_dim\" is 1024"})

BAD_CONFIGS(numbers, {"rms_norm_eps", "0", "\"rms_norm_eps\" is 0"},
            {"rms_norm_eps", "-1", "\"rms_norm_eps\" is -1"},
            {"rms_norm_eps", "1e999", "number is too large"},
            {"rope_theta", "0", "\"rope_theta\" is 0"},
            {"rope_theta", "-5", "\"rope_theta\" is -5"},
            {"rope_theta", "\"big\"", "\"rope_theta\" is \"big\""})

BAD_CONFIGS(
    rope, {"rope_scaling", "{\"rope_type\": \"longrope\", \"factor\": 2}", "short_factor"},
    {"rope_scaling", "{\"type\": \"su\", \"short_factor\": [1, 1, 1], \"long_factor\": [1, 1]}",
     "\"short_factor\" has 3 values, expected 2 (head_dim 4)"},
    {"rope_scaling", "{\"type\": \"su\", \"short_factor\": [1, 1], \"long_factor\": [1, 0]}",
     "\"long_factor\" is 0"},
    {"rope_scaling", "{\"type\": \"su\", \"short_factor\": [1, 1], \"long_factor\": 3}",
     "\"long_factor\" has 0 values"},
    {"rope_scaling", "{\"type\": \"ntk\"}", "\"ntk\""},
    {"rope_scaling", "{\"type\": \"linear\"}", "\"factor\" is missing"},
    {"rope_scaling", "{\"type\": \"linear\", \"factor\": 0.5}", "\"factor\" is 0.5"},
    {"rope_scaling", "{\"type\": \"linear\", \"factor\": 1e300}", "\"factor\" is 1e300"},
    {"rope_scaling", "{\"type\": \"linear\", \"factor\": 2, \"mscale\": 1}",
     "\"mscale\" is supported beside yarn alone"},
    {"rope_scaling", "{\"type\": \"default\", \"section\": [1, 1]}", "key \"section\""},
    {"rope_scaling", "{\"type\": \"default\", \"llama_4_scaling_beta\": 0.1}",
     "key \"llama_4_scaling_beta\""},
    {"rope_scaling", "{\"rope_type\": \"llama3\", \"factor\": 8}", "low_freq_factor"},
    {"rope_scaling", "[1, 2]", "an object or null"},
    {"rope_scaling",
     "{\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, \"high_freq_factor\": 1}",
     "less than low_freq_factor"},
    {"rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 8, \"beta_fast\": 1, \"beta_slow\": 32}",
     "less than beta_slow"},
    {"rope_scaling",
     "{\"rope_type\": \"yarn\", \"factor\": 8, \"original_max_position_embeddings\": 0}",
     "original_max_position_embeddings"},
    {"rope_parameters",
     "{\"full_attention\": {\"rope_theta\": 1}, \"sliding_attention\": {\"rope_theta\": 2}}",
     "per kind of layer"},
    {"rope_parameters", "7", "\"rope_parameters\" is 7"},
    {"layer_types", "[\"sliding_attention\"]", "supported: full_attention for LlamaForCausalLM"},
    {"partial_rotary_factor", "0.5", "is 0.5, supported: 1 for LlamaForCausalLM"})

#define CACHE_OF(type, bits)                                                                       \
  "{\"quant_method\": \"compressed-tensors\", \"kv_cache_scheme\": {\"num_bits\": " bits           \
  ", \"type\": \"" type "\"}}"

BAD_CONFIGS(meaning, {"hidden_act", "\"gelu\"", "\"hidden_act\" is \"gelu\""},
            {"torch_dtype", "\"float64\"", "\"torch_dtype\" is \"float64\""},
            {"torch_dtype", "\"int8\"", "bfloat16"},
            {"quantization_config", "{\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true}",
             "take the 16-bit checkpoint"},
            {"quantization_config", "{\"quant_method\": \"hqq\"}", "\"quant_method\" is \"hqq\""},
            {"quantization_config", "{}", "\"quant_method\" fp8, compressed-tensors"},
            {"quantization_config", CACHE_OF("float", "4"), "8 bits of type float"},
            {"quantization_config", CACHE_OF("int", "8"), "8 bits of type float"},
            {"quantization_config", "{\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"}",
             "\"fmt\" is \"e5m2\""},
            {"quantization_config",
             "{\"quant_method\": \"gptq\", \"checkpoint_format\": \"marlin\"}",
             "\"checkpoint_format\" is \"marlin\""},
            {"quantization_config", "{\"quant_method\": \"gptq\", \"group_size\": \"many\"}",
             "\"group_size\""},
            {"quantization_config", "{\"quant_method\": \"gptq\", \"group_size\": 4}",
             "\"bits\" of the GPTQ weights is missing: 2, 4 or 8"},
            {"quantization_config", "{\"quant_method\": \"gptq\", \"bits\": 3}",
             "\"bits\" is 3, supported: 2, 4 or 8"},
            {"quantization_config", "{\"quant_method\": \"awq\", \"version\": \"gemv\"}",
             "\"version\" is \"gemv\""},
            {"quantization_config",
             "{\"quant_method\": \"compressed-tensors\", \"format\": \"marlin-24\"}",
             "\"format\" is \"marlin-24\""},
            {"quantization_config",
             "{\"quant_method\": \"compressed-tensors\", \"sparsity_config\": {\"format\": "
             "\"sparse-bitmask\"}}",
             "\"sparsity_config\""},
            {"final_logit_softcapping", "30.0", "\"final_logit_softcapping\" is 30.0"},
            {"num_experts", "8", "\"num_experts\" is 8"},
            {"attention_bias", "1", "\"attention_bias\" is 1"},
            {"tie_word_embeddings", "\"yes\"", "true or false"},
            {"eos_token_id", "[1, -1]", "\"eos_token_id\" is -1"},
            {"eos_token_id", "\"</s>\"", "\"eos_token_id\""},
            {"bos_token_id", "99", "\"bos_token_id\" is 99"})

Test(bad_config, layer_types) {
  static const key_case_t cases[] = {
      {"layer_types", "[\"full_attention\", \"full_attention\"]", "list of 1"},
      {"layer_types", "[\"chunked_attention\"]", "\"chunked_attention\" at layer 0"},
      {"layer_types", "{}", "must be a list"},
      {"layer_types", "[\"full_attention\"]", "\"full_attention\" at layer 0"},
      {"sliding_window", "-1", "\"sliding_window\" is -1"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    maker_t maker;
    maker_open(&maker);
    maker_set(&maker, "architectures", "[\"MistralForCausalLM\"]");
    maker_set(&maker, cases[i].key, cases[i].value);
    expect_written(&maker, ERR_MODEL_MALFORMED, cases[i].part);
  }
}

Test(bad_config, sliding_layers_without_a_window) {
  maker_t maker;
  maker_open(&maker);
  maker_set(&maker, "architectures", "[\"MistralForCausalLM\"]");
  maker_set(&maker, "sliding_window", "null");
  maker_set(&maker, "layer_types", "[\"sliding_attention\"]");
  expect_written(&maker, ERR_MODEL_MALFORMED, "sliding_window");
}

Test(bad_config, remote_code_is_never_run) {
  maker_t maker;
  maker_open(&maker);
  maker_set(&maker, "architectures", "[\"MyModel\"]");
  maker_set(&maker, "auto_map", "{\"AutoModel\": \"x.py\"}");
  expect_written(&maker, ERR_MODEL_MALFORMED, "remote code is never run");
}

Test(bad_config, qwen_without_theta) {
  maker_t maker;
  maker_open(&maker);
  maker_set(&maker, "architectures", "[\"Qwen2ForCausalLM\"]");
  maker_set(&maker, "rope_theta", NULL);
  expect_written(&maker, ERR_MODEL_MALFORMED, "\"rope_theta\" is missing");
}

Test(bad_config, gpt2_variants) {
  static const key_case_t cases[] = {
      {"scale_attn_by_inverse_layer_idx", "true", "scale_attn_by_inverse_layer_idx"},
      {"reorder_and_upcast_attn", "true", "reorder_and_upcast_attn"},
      {"add_cross_attention", "true", "add_cross_attention"},
      {"scale_attn_weights", "false", "scale_attn_weights"},
      {"activation_function", "\"swish\"", "\"activation_function\" is \"swish\""},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    maker_t maker;
    maker_open(&maker);
    maker_set(&maker, "architectures", "[\"GPT2LMHeadModel\"]");
    maker_set(&maker, "hidden_act", NULL);
    maker_set(&maker, cases[i].key, cases[i].value);
    expect_written(&maker, ERR_MODEL_MALFORMED, cases[i].part);
  }
}

static void config_text(const char *text, size_t length, const char *part) {
  maker_t maker;
  maker_open(&maker);
  maker_write(&maker);
  maker_write_file(&maker, "config.json", text, length);
  expect(&maker, ERR_MODEL_MALFORMED, part);
  maker_finish(&maker);
}

Test(bad_config, text) {
  static char deep[4096], large[(1 << 20) + 1];
  memset(deep, '[', sizeof(deep));
  memset(large, ' ', sizeof(large));
  config_text("", 0, "config.json: has 0 bytes");
  config_text("{\"architectures\": [", 19, "config.json");
  config_text("[]", 2, "must be a JSON object");
  config_text("{\"a\": 1, \"a\": 2}", 16, "config.json");
  config_text("{\"a\": \"\xff\"}", 10, "config.json");
  config_text(deep, sizeof(deep), "config.json");
  config_text(large, sizeof(large), "config.json: has 1048577 bytes");
}

Test(bad_config, generation) {
  static const key_case_t cases[] = {
      {"", "{\"temperature\": 9}", "\"temperature\" is 9"},
      {"", "{\"temperature\": \"hot\"}", "\"temperature\" is \"hot\""},
      {"", "{\"top_p\": 0}", "\"top_p\" is 0"},
      {"", "{\"top_k\": 2.5}", "\"top_k\" is 2.5"},
      {"", "{\"repetition_penalty\": 0}", "\"repetition_penalty\" is 0"},
      {"", "{\"eos_token_id\": {}}", "\"eos_token_id\""},
      {"", "{\"top_k\": }", "generation_config.json"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    maker_t maker;
    maker_open(&maker);
    snprintf(maker.generation, sizeof(maker.generation), "%s", cases[i].value);
    expect_written(&maker, ERR_MODEL_MALFORMED, cases[i].part);
  }
}

Test(bad_directory, is_not_there) {
  maker_t maker;
  maker_open(&maker);
  maker_close(&maker);
  expect(&maker, ERR_MODEL_MISSING, "No such file or directory");
}

/* Drops the rights of root, which opens everything, for as long as the model is read. */
static void expect_denied(maker_t *maker, const char *name, mode_t mode) {
  char path[256], user[64];
  const uid_t before = geteuid();
  snprintf(path, sizeof(path), "%s%s%s", maker->dir, name[0] != '\0' ? "/" : "", name);
  ASSERT_EQ(chmod(maker->dir, 0755), 0);
  ASSERT_EQ(chmod(path, mode), 0);
  if (before == 0) ASSERT_EQ(seteuid(65534), 0);
  snprintf(user, sizeof(user), "permission denied for user %s", before == 0 ? "nobody" : "");
  inferd_error_t error;
  int code = maker_load(maker, -1, &error);
  if (before == 0) ASSERT_EQ(seteuid(0), 0);
  ASSERT_EQ_FOR(code, ERR_PERMISSION, "%s", error.message);
  ASSERT_EQ(error_exit_code(code), 77);
  cr_assert_not_null(strstr(error.message, user), "%s", error.message);
  cr_assert_not_null(strstr(error.message, path), "%s", error.message);
  ASSERT_EQ(chmod(path, 0755), 0);
}

Test(bad_directory, may_not_be_read) {
  maker_t maker;
  maker_open(&maker);
  maker_write(&maker);
  expect_denied(&maker, "", 0);
  expect_denied(&maker, "config.json", 0);
  expect_denied(&maker, "model.safetensors", 0);
  maker_finish(&maker);
}

Test(bad_directory, has_no_config) {
  maker_t maker;
  maker_open(&maker);
  expect(&maker, ERR_MODEL_MISSING, "no config.json");
  maker_finish(&maker);
}

Test(bad_directory, config_is_a_pipe, .timeout = 20) {
  maker_t maker;
  char path[256];
  maker_open(&maker);
  snprintf(path, sizeof(path), "%s/config.json", maker.dir);
  ASSERT_EQ(mkfifo(path, 0600), 0);
  expect(&maker, ERR_MODEL_MALFORMED, "not a regular file");
  maker_finish(&maker);
}

Test(bad_directory, config_is_a_directory) {
  maker_t maker;
  char path[256];
  maker_open(&maker);
  snprintf(path, sizeof(path), "%s/config.json", maker.dir);
  ASSERT_EQ(mkdir(path, 0700), 0);
  expect(&maker, ERR_MODEL_MALFORMED, "not a regular file");
  maker_finish(&maker);
}

Test(bad_directory, has_no_weights) {
  maker_t maker;
  maker_open(&maker);
  maker_write_config(&maker);
  expect(&maker, ERR_MODEL_MISSING, "no model.safetensors");
  maker_finish(&maker);
}

Test(bad_directory, has_only_pickles) {
  maker_t maker;
  maker_open(&maker);
  maker_write_config(&maker);
  maker_write_file(&maker, "consolidated.00.pth", "PK", 2);
  expect(&maker, ERR_MODEL_MISSING, "pickle files (consolidated.00.pth) are never read");
  maker_write_file(&maker, "pytorch_model.bin", "PK", 2);
  expect(&maker, ERR_MODEL_MISSING, "by: inferd convert /");
  maker_finish(&maker);
}
