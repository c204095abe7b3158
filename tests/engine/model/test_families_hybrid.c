/* test_families_hybrid.c: what families that mix blocks of several kinds read from config.json, and
 * what they refuse. Their logits are compared in test_parity.c.
 */
#include "tests/engine/model/config_checks.h"

#include <math.h>

Test(families_hybrid, nemotron_h_has_one_block_a_layer) {
  const uint8_t still = LAYER_NO_ROPE;
  const uint8_t flags[4] = {LAYER_MIXER | LAYER_NO_ATTENTION | LAYER_NO_MLP | still,
                            LAYER_NO_ATTENTION | LAYER_EXPERTS | still, LAYER_NO_MLP | still,
                            LAYER_NO_ATTENTION | still};
  good(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"ME*-\"}");
  ASSERT_EQ(blueprint.num_layers, 4);
  cr_assert_arr_eq(blueprint.layer_flags, flags, 4);
  ASSERT_EQ(blueprint.activation, ACTIVATION_RELU2);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("NemotronHForCausalLM") ",\"layers_block_type\":[\"linear_attention\",\"moe\","
                                            "\"full_attention\",\"mlp\"]}");
  cr_assert_arr_eq(blueprint.layer_flags, flags, 4);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*\","
                                            "\"time_step_limit\":[0.0,Infinity]}");
  cr_assert(isinf(blueprint.mixer.step_max));
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*\","
                                           "\"layer_norm_epsilon\":Infinity}",
      "layer_norm_epsilon");
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*X\"}",
      "hybrid_override_pattern");
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*\","
                                           "\"num_hidden_layers\":3}",
      "hybrid_override_pattern");
  bad(ARCHITECTURE("NemotronHForCausalLM") "}", "hybrid_override_pattern");
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"MM\"}", "attention");
  good(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*E\","
                                            "\"moe_latent_size\":512}");
  ASSERT_EQ(blueprint.expert_in, 512);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"M*E\","
                                           "\"moe_latent_size\":0}",
      "moe_latent_size");
}

Test(families_hybrid, falcon_h1_has_attention_beside_a_state) {
  good(ARCHITECTURE("FalconH1ForCausalLM") ",\"num_hidden_layers\":2,\"mamba_d_ssm\":1536,\"mamba_"
                                           "n_heads\":24,\"mamba_d_head\":64,"
                                           "\"embedding_multiplier\":5.5,\"lm_head_multiplier\":0."
                                           "25,\"attention_in_multiplier\":2,"
                                           "\"key_multiplier\":0.5,\"attention_out_multiplier\":0."
                                           "75,\"mlp_multipliers\":[0.8,0.4],"
                                           "\"ssm_multipliers\":[1,2,3,4,5],\"ssm_in_multiplier\":"
                                           "3,\"ssm_out_multiplier\":0.5}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){LAYER_MIXER, LAYER_MIXER}), 2);
  cr_assert_arr_eq(blueprint.mixer.qkv_factors, ((double[]){2, 1, 1.5}), 3 * sizeof(double));
  cr_assert_arr_eq(blueprint.mixer.mlp_factors, ((double[]){0.8, 0.4}), 2 * sizeof(double));
  cr_assert_arr_eq(blueprint.mixer.in_factors, ((double[]){3, 6, 9, 12, 15}), 5 * sizeof(double));
  ASSERT_EQ(blueprint.mixer.out_factor, 0.5);
  ASSERT_EQ(blueprint.embed_scale, 5.5);
  ASSERT_EQ(blueprint.head_scale, 0.25);
  cr_assert(!blueprint.mixer.norm && !blueprint.mixer.gate_first);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("FalconH1ForCausalLM") ",\"mamba_n_heads\":24,\"mamba_d_head\":64}",
      "mamba_n_heads");
  bad(ARCHITECTURE("FalconH1ForCausalLM") ",\"mamba_d_ssm\":1536,\"mamba_n_heads\":24,\"ssm_"
                                          "multipliers\":[1,2]}",
      "ssm_multipliers");
  bad(ARCHITECTURE("FalconH1ForCausalLM") ",\"mamba_d_ssm\":1536,\"mamba_n_heads\":24,\"attention_"
                                          "bias\":true}",
      "attention_bias");
}

Test(families_hybrid, hunyuan_counts_experts_for_every_layer) {
  good(ARCHITECTURE("HunYuanMoEV1ForCausalLM") ",\"num_hidden_layers\":2,\"num_experts\":64,"
                                               "\"moe_topk\":[8,8],\"intermediate_size\":3072}");
  ASSERT_EQ(blueprint.num_experts, 64);
  ASSERT_EQ(blueprint.experts_top, 8);
  ASSERT_EQ(blueprint.shared_size, 3072);
  cr_assert(blueprint.experts_normalise && blueprint.qk_norm_late);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("HunYuanMoEV1ForCausalLM") ",\"num_experts\":64,\"moe_topk\":[8,4]}",
      "moe_topk");
  bad(ARCHITECTURE("HunYuanMoEV1ForCausalLM") ",\"num_experts\":64,\"moe_topk\":[]}", "moe_topk");
  bad(ARCHITECTURE("HunYuanMoEV1ForCausalLM") ",\"num_experts\":4,\"moe_topk\":8}",
      "more than the 4 experts");
  bad(ARCHITECTURE("HunYuanMoEV1ForCausalLM") ",\"num_experts\":4,\"use_cla\":true}", "use_cla");
}

Test(families_hybrid, norms_of_each_head) {
  good(ARCHITECTURE("StableLmForCausalLM") ",\"qk_layernorm\":true}");
  cr_assert(blueprint.qk_norm && blueprint.qk_norm_each);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("PhiForCausalLM") ",\"qk_layernorm\":true}", "qk_layernorm");
}
