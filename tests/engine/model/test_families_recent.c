/* test_families_recent.c: what decoders of 2025 and 2026 read from config.json, and what they
 * refuse. Their logits are compared in test_parity.c.
 */
#include "tests/engine/model/config_checks.h"

Test(families_recent, windows_stand_where_layer_types_say) {
  good(ARCHITECTURE("MinistralForCausalLM") ",\"num_hidden_layers\":3,\"sliding_window\":64,"
                                            "\"layer_types\":[\"full_attention\","
                                            "\"sliding_attention\",\"full_attention\"]}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, LAYER_SLIDES, 0}), 3);
  ASSERT_EQ(blueprint.window, 64);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("MinistralForCausalLM") ",\"num_hidden_layers\":2,\"sliding_window\":64}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){LAYER_SLIDES, LAYER_SLIDES}), 2);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("MinistralForCausalLM") ",\"num_hidden_layers\":2,\"sliding_window\":null}");
  ASSERT_EQ(blueprint.window, 0);
  blueprint_free(&blueprint);
}

Test(families_recent, cwm_sees_everything_in_every_fourth_layer_from_0_on) {
  good(ARCHITECTURE("CwmForCausalLM") ",\"num_hidden_layers\":6,\"rope_theta\":1000000.0}");
  for (int i = 0; i < 6; i++) ASSERT_EQ(blueprint.layer_flags[i], i % 4 == 0 ? 0 : LAYER_SLIDES);
  ASSERT_EQ(blueprint.window, 8192);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("CwmForCausalLM") ",\"num_hidden_layers\":6}", "rope_theta");
}

Test(families_recent, dense_layers_are_listed_or_counted) {
  static const uint8_t sparse[3] = {LAYER_EXPERTS, 0, LAYER_EXPERTS};
  good(ARCHITECTURE("ExaoneMoeForCausalLM") ",\"num_hidden_layers\":3,\"sliding_window\":null,"
                                            "\"first_k_dense_replace\":2}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, 0, LAYER_EXPERTS}), 3);
  ASSERT_EQ(blueprint.shared_size, 1024);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("ExaoneMoeForCausalLM") ",\"num_hidden_layers\":3,\"sliding_window\":null,"
                                            "\"mlp_layer_types\":[\"sparse\",\"dense\","
                                            "\"sparse\"],\"first_k_dense_replace\":2}");
  cr_assert_arr_eq(blueprint.layer_flags, sparse, 3);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("HYV3ForCausalLM") ",\"num_hidden_layers\":2,\"first_k_dense_replace\":2}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, LAYER_EXPERTS}), 2);
  ASSERT_EQ(blueprint.share_factor, 2.826);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("MellumForCausalLM") ",\"num_hidden_layers\":3,\"mlp_layer_types\":["
                                         "\"sparse\",\"dense\",\"sparse\"]}");
  cr_assert_arr_eq(blueprint.layer_flags, sparse, 3);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("MellumForCausalLM") ",\"num_hidden_layers\":3,\"mlp_layer_types\":["
                                        "\"sparse\"]}",
      "mlp_layer_types");
}

Test(families_recent, trinity_has_a_gate_and_still_full_layers) {
  const uint8_t window = LAYER_SLIDES, full = LAYER_NO_ROPE, experts = LAYER_EXPERTS;
  good(ARCHITECTURE("AfmoeForCausalLM") ",\"num_hidden_layers\":4,\"num_dense_layers\":2,"
                                        "\"mup_enabled\":true,\"hidden_size\":1024,"
                                        "\"num_shared_experts\":1,\"route_scale\":2.5}");
  cr_assert_arr_eq(blueprint.layer_flags,
                   ((uint8_t[]){window, window, window | experts, full | experts}), 4);
  cr_assert(blueprint.attn_gate && blueprint.attn_gate_apart);
  ASSERT_EQ(blueprint.embed_scale, 32.0);
  ASSERT_EQ(blueprint.shared_size, 1408);
  ASSERT_EQ(blueprint.share_factor, 2.5);
  blueprint_free(&blueprint);
}

Test(families_recent, youtu_is_latent_and_dense) {
  good(ARCHITECTURE("YoutuForCausalLM") ",\"num_hidden_layers\":2}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, 0}), 2);
  ASSERT_EQ(blueprint.kv_rank, 512);
  ASSERT_EQ(blueprint.num_experts, 0);
  cr_assert(blueprint.tied);
  blueprint_free(&blueprint);
}
