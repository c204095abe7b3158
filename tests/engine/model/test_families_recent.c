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

Test(families_recent, youtu_is_latent_and_dense) {
  good(ARCHITECTURE("YoutuForCausalLM") ",\"num_hidden_layers\":2}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, 0}), 2);
  ASSERT_EQ(blueprint.kv_rank, 512);
  ASSERT_EQ(blueprint.num_experts, 0);
  cr_assert(blueprint.tied);
  blueprint_free(&blueprint);
}
