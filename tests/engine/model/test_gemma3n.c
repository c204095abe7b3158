/* test_gemma3n.c: the keys of Gemma 3n, what they make of layers, and what is refused. Logits are
 * compared in test_parity.c.
 */
#include "engine/model/sizes.h"
#include "tests/engine/model/maker.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>

static blueprint_t blueprint;
static inferd_error_t error;

/* The status of reading a config of these keys beside those of a model of six layers. */
static int read_keys(const char *keys) {
  maker_t maker;
  maker_open(&maker);
  snprintf(maker.config, sizeof(maker.config),
           "{\"architectures\":[\"Gemma3nForCausalLM\"],\"torch_dtype\":\"bfloat16\","
           "\"vocab_size\":64,\"vocab_size_per_layer_input\":60,\"hidden_size\":32,"
           "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":16,"
           "\"hidden_size_per_layer_input\":8%s}",
           keys);
  maker_write_config(&maker);
  error = (inferd_error_t){0};
  int status = blueprint_read(maker.dir, 0, -1, &blueprint, &error);
  maker_close(&maker);
  return status;
}

static void good(const char *keys) {
  ASSERT_EQ_FOR(read_keys(keys), 0, "%s: %s", keys, error.message);
}

static void bad(const char *keys, const char *part) {
  ASSERT_EQ_FOR(read_keys(keys), ERR_MODEL_MALFORMED, "%s: %s", keys, error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
}

#define SIX ",\"num_hidden_layers\":6"
#define LAYERS SIX ",\"num_kv_shared_layers\":1"
#define MLP ",\"intermediate_size\":48"

static int32_t count_flag(uint8_t flag) {
  int32_t count = 0;
  for (int32_t i = 0; i < blueprint.num_layers; i++)
    count += (blueprint.layer_flags[i] & flag) != 0;
  return count;
}

/* As transformers' configuration class has them. */
Test(gemma3n, defaults_are_those_of_the_class) {
  good(LAYERS MLP);
  ASSERT_EQ(blueprint.num_streams, 4);
  ASSERT_EQ(blueprint.laurel_rank, 64);
  ASSERT_EQ(count_flag(LAYER_SLIDES), 5); /* all but the fifth */
  ASSERT_EQ(blueprint.layer_flags[4] & LAYER_SLIDES, 0);
  ASSERT_EQ(count_flag(LAYER_SPARSE), 0);
  blueprint_free(&blueprint);
  good(",\"num_hidden_layers\":11,\"num_kv_shared_layers\":0" MLP);
  ASSERT_EQ(count_flag(LAYER_SPARSE), 10);
  ASSERT_EQ(blueprint.layer_flags[10] & LAYER_SPARSE, 0);
  ASSERT_EQ(blueprint.mlp_sparsity, 0.95);
  blueprint_free(&blueprint);
}

Test(gemma3n, an_mlp_has_one_width) {
  good(LAYERS ",\"intermediate_size\":[48,48,48,48,48,48]");
  ASSERT_EQ(blueprint.intermediate_size, 48);
  blueprint_free(&blueprint);
  bad(LAYERS ",\"intermediate_size\":[]", "intermediate_size");
  bad(LAYERS ",\"intermediate_size\":[48,48,48,48,48,40]", "intermediate_size");
  bad(LAYERS ",\"intermediate_size\":[0,0,0,0,0,0]", "intermediate_size");
}

Test(gemma3n, sparse_layers_have_one_share) {
  good(LAYERS MLP ",\"activation_sparsity_pattern\":[0.5,0,0.5,0.0,0,0.5]");
  ASSERT_EQ(blueprint.mlp_sparsity, 0.5);
  ASSERT_EQ(count_flag(LAYER_SPARSE), 3);
  ASSERT_EQ(blueprint.layer_flags[1] & LAYER_SPARSE, 0);
  blueprint_free(&blueprint);
  bad(LAYERS MLP ",\"activation_sparsity_pattern\":0.5", "activation_sparsity_pattern");
  bad(LAYERS MLP ",\"activation_sparsity_pattern\":[0.5,0,0,0,0]", "activation_sparsity_pattern");
  bad(LAYERS MLP ",\"activation_sparsity_pattern\":[0.5,0,0.6,0,0,0]", "are the same");
  bad(LAYERS MLP ",\"activation_sparsity_pattern\":[1,0,0,0,0,0]", "below 1");
  bad(LAYERS MLP ",\"activation_sparsity_pattern\":[-0.1,0,0,0,0,0]", "from 0");
}

Test(gemma3n, what_is_not_computed_is_refused) {
  bad(LAYERS MLP ",\"altup_active_idx\":1", "altup_active_idx");
  bad(LAYERS MLP ",\"altup_num_inputs\":1", "altup_num_inputs");
  bad(LAYERS MLP ",\"altup_num_inputs\":9", "altup_num_inputs");
  bad(LAYERS MLP ",\"laurel_rank\":0", "laurel_rank");
  bad(LAYERS MLP ",\"hidden_size_per_layer_input\":null", "hidden_size_per_layer_input");
  bad(SIX MLP ",\"num_kv_shared_layers\":6", "num_kv_shared_layers");
  bad(SIX MLP ",\"num_kv_shared_layers\":2", "no full_attention layer before");
}
