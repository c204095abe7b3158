/* test_gemma4.c: the keys of Gemma 4, what they make of a cache, and what is refused. Logits are
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
           "{\"architectures\":[\"Gemma4ForCausalLM\"],\"torch_dtype\":\"bfloat16\","
           "\"vocab_size\":64,\"vocab_size_per_layer_input\":64,\"num_hidden_layers\":6,"
           "\"hidden_size\":32,\"intermediate_size\":48,\"num_attention_heads\":8,"
           "\"num_key_value_heads\":4,\"head_dim\":16,\"hidden_size_per_layer_input\":8%s}",
           keys);
  maker_write_config(&maker);
  error = (inferd_error_t){0};
  int status = blueprint_read(maker.dir, 0, -1, &blueprint, &error);
  maker_close(&maker);
  return status;
}

static kv_cache_desc_t good(const char *keys) {
  ASSERT_EQ_FOR(read_keys(keys), 0, "%s: %s", keys, error.message);
  kv_cache_desc_t kv = model_kv(&blueprint);
  blueprint_free(&blueprint);
  return kv;
}

static void bad(const char *keys, const char *part) {
  ASSERT_EQ_FOR(read_keys(keys), ERR_MODEL_MALFORMED, "%s: %s", keys, error.message);
  cr_assert_not_null(strstr(error.message, part), "\"%s\" is not in \"%s\"", part, error.message);
}

#define TYPES                                                                                      \
  ",\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\","              \
  "\"full_attention\",\"sliding_attention\",\"full_attention\"]"

/* A layer that shares K and V has none of its own. */
Test(gemma4, shared_layers_count_once) {
  kv_cache_desc_t kv = good(TYPES);
  ASSERT_EQ(kv.num_layers, 6);
  ASSERT_EQ(kv.others[0], 42); /* bits 1, 3, 5 */
  ASSERT_EQ(kv.head_dim, 16);
  ASSERT_EQ(kv.other_head_dim, 512);
  ASSERT_EQ(kv.other_kv_heads, 4);
  kv = good(TYPES ",\"num_kv_shared_layers\":3");
  ASSERT_EQ(kv.num_layers, 3);
  ASSERT_EQ(kv.others[0], 2);
}

/* transformers 5.23 writes two digits. */
Test(gemma4, listed_layers_may_have_zeros_in_front) {
  kv_cache_desc_t kv = good(TYPES ",\"per_layer_config\":{\"01\":{\"head_dim\":64},"
                                  "\"03\":{\"head_dim\":64},\"005\":{\"head_dim\":64}}");
  ASSERT_EQ(kv.others[0], 42);
  ASSERT_EQ(kv.other_head_dim, 64);
}

Test(gemma4, heads_of_full_layers_have_two_spellings) {
  kv_cache_desc_t kv = good(TYPES ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":2,"
                                  "\"global_head_dim\":64");
  ASSERT_EQ(kv.other_kv_heads, 2);
  ASSERT_EQ(kv.other_head_dim, 64);
  kv = good(TYPES ",\"num_global_key_value_heads\":2"); /* without attention_k_eq_v: no effect */
  ASSERT_EQ(kv.other_kv_heads, 4);
  kv = good(TYPES ",\"per_layer_config\":{\"1\":{\"head_dim\":64,\"num_key_value_heads\":2},"
                  "\"3\":{\"head_dim\":64,\"num_key_value_heads\":2},"
                  "\"5\":{\"head_dim\":64,\"num_key_value_heads\":2}}");
  ASSERT_EQ(kv.other_kv_heads, 2);
  ASSERT_EQ(kv.other_head_dim, 64);
}

/* The class default has every sixth layer full; the last is full, whatever the file says. */
Test(gemma4, the_last_layer_is_full) {
  ASSERT_EQ(good("").others[0], 32);
  ASSERT_EQ(good(",\"layer_types\":[\"full_attention\",\"sliding_attention\",\"sliding_attention\","
                 "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\"]")
                .others[0],
            33);
}

/* Groups and what a block of one holds, for these keys. */
static void expect_groups(const char *keys, int32_t groups, int32_t heads, int32_t layers) {
  ASSERT_EQ_FOR(read_keys(keys), 0, "%s: %s", keys, error.message);
  ASSERT_EQ_FOR(model_window_groups(&blueprint), groups, "%s", keys);
  blueprint.window_groups = groups;
  kv_cache_desc_t kv = model_kv(&blueprint);
  ASSERT_EQ_FOR(kv.window_heads, heads, "%s", keys);
  ASSERT_EQ_FOR(kv.num_layers, layers, "%s", keys);
  blueprint_free(&blueprint);
}

#define ONE_FULL                                                                                   \
  ",\"layer_types\":[\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","           \
  "\"sliding_attention\",\"sliding_attention\",\"full_attention\"]"
#define GLOBAL(heads, dim)                                                                         \
  ",\"attention_k_eq_v\":true,\"num_global_key_value_heads\":" #heads ",\"global_head_dim\":" #dim

/* The six layers have 4 KV heads of 16 values, where they slide. */
Test(gemma4, groups_take_the_heads_that_fit) {
  expect_groups(TYPES GLOBAL(4, 16), 1, 12, 3);
  expect_groups(TYPES GLOBAL(4, 32), 0, 0, 6); /* half of the second block would be empty */
  expect_groups(ONE_FULL GLOBAL(2, 32), 5, 4, 1);
  expect_groups(ONE_FULL GLOBAL(1, 32), 10, 2, 1);
  expect_groups(ONE_FULL GLOBAL(2, 40), 4, 5, 1); /* a layer and a head */
  expect_groups(ONE_FULL GLOBAL(2, 64), 3, 8, 1); /* two layers, two layers, one */
  expect_groups(ONE_FULL GLOBAL(2, 46), 4, 5, 1); /* of 5.75 */
  expect_groups(ONE_FULL GLOBAL(1, 12), 0, 0, 6); /* not one head */
  expect_groups(",\"layer_types\":[\"sliding_attention\",\"sliding_attention\",\"full_attention\","
                "\"sliding_attention\",\"sliding_attention\",\"full_attention\"],"
                "\"num_kv_shared_layers\":3" GLOBAL(2, 32),
                2, 4, 1);
}

Test(gemma4, what_is_not_computed_is_refused) {
  bad(",\"num_kv_shared_layers\":5", "num_kv_shared_layers");
  bad(",\"num_kv_shared_layers\":1", "no full_attention layer before");
  bad(",\"use_bidirectional_attention\":\"all\"", "use_bidirectional_attention");
  bad(",\"enable_moe_block\":true", "num_experts");
  bad(",\"enable_moe_block\":true,\"num_experts\":2,\"top_k_experts\":3,"
      "\"moe_intermediate_size\":8",
      "top_k_experts");
  bad(TYPES ",\"per_layer_config\":{\"1\":{\"head_dim\":64}}", "per_layer_config");
  bad(TYPES ",\"per_layer_config\":{\"06\":{\"head_dim\":64}}", "per_layer_config");
  bad(TYPES ",\"per_layer_config\":{\"\":{\"head_dim\":64}}", "per_layer_config");
  bad(TYPES ",\"per_layer_config\":{\"1x\":{\"head_dim\":64}}", "per_layer_config");
  bad(TYPES ",\"per_layer_config\":{\"4294967297\":{\"head_dim\":64}}", "per_layer_config");
  bad(TYPES ",\"per_layer_config\":{\"0\":{\"head_dim\":64}}", "per_layer_config");
  bad(",\"global_head_dim\":63", "global_head_dim");
}
