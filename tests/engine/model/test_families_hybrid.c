/* test_families_hybrid.c: what families that mix blocks of several kinds read from config.json, and
 * what they refuse. Their logits are compared in test_parity.c.
 */
#include "engine/model/sizes.h"
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
  bad(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"-E\"}",
      "no layer that sees other tokens");
  good(ARCHITECTURE("NemotronHForCausalLM") ",\"hybrid_override_pattern\":\"MM\"}");
  ASSERT_EQ(model_kv(&blueprint).num_layers, 0);
  blueprint_free(&blueprint);
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

#define STATES_ALONE (LAYER_MIXER | LAYER_NO_ATTENTION | LAYER_NO_MLP | LAYER_NO_ROPE)

Test(families_hybrid, mamba_has_no_attention) {
  good(ARCHITECTURE("MambaForCausalLM") ",\"num_hidden_layers\":24}"); /* mamba-130m */
  for (int32_t i = 0; i < 24; i++) ASSERT_EQ(blueprint.layer_flags[i], STATES_ALONE);
  ASSERT_EQ(blueprint.num_parameters, 129135360);
  ASSERT_EQ(blueprint.mixer.step_rank, 48);
  ASSERT_EQ(mixer_inner(&blueprint.mixer, 0), 1536);
  cr_assert(blueprint.tied && !blueprint.mixer.parts_normed);
  ASSERT_EQ(model_kv(&blueprint).num_layers, 0);
  ASSERT_EQ(blueprint.default_model_len, 32768);
  ASSERT_EQ(blueprint.max_model_len, 1 << 20);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("MambaForCausalLM") ",\"state_size\":256,\"time_step_rank\":7}");
  ASSERT_EQ(blueprint.mixer.step_rank, 7);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("MambaForCausalLM") ",\"state_size\":257}", "state_size");
  bad(ARCHITECTURE("MambaForCausalLM") ",\"time_step_rank\":0}", "time_step_rank");
  bad(ARCHITECTURE("MambaForCausalLM") ",\"conv_kernel\":9}", "conv_kernel");
  bad(ARCHITECTURE("MambaForCausalLM") ",\"hidden_act\":\"gelu\"}", "hidden_act");
}

Test(families_hybrid, falcon_mamba_norms_parts_and_reads_the_width) {
  good(ARCHITECTURE("FalconMambaForCausalLM") ",\"hidden_size\":4096,\"intermediate_size\":8192,"
                                              "\"expand\":16,\"num_hidden_layers\":64,"
                                              "\"time_step_rank\":256,\"vocab_size\":65024,"
                                              "\"tie_word_embeddings\":false}");
  ASSERT_EQ(blueprint.num_parameters, 7272665088); /* falcon-mamba-7b */
  cr_assert(blueprint.mixer.parts_normed && blueprint.mixer.parts_free);
  blueprint_free(&blueprint);
}

Test(families_hybrid, mamba2_may_stand_alone) {
  good(ARCHITECTURE("Mamba2ForCausalLM") "}"); /* Mamba-Codestral-7B */
  ASSERT_EQ(blueprint.num_parameters, 7285403648);
  ASSERT_EQ(blueprint.mixer.norm_group, 1024);
  ASSERT_EQ(model_kv(&blueprint).num_layers, 0);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("Mamba2ForCausalLM") ",\"num_heads\":127}", "num_heads");
  bad(ARCHITECTURE("Mamba2ForCausalLM") ",\"n_groups\":7}", "mamba_n_groups");
}

Test(families_hybrid, jamba_has_attention_and_experts_by_their_periods) {
  const uint8_t mixer = LAYER_MIXER | LAYER_NO_ATTENTION | LAYER_NO_ROPE;
  const uint8_t flags[6] = {mixer,         mixer | LAYER_EXPERTS, mixer, mixer | LAYER_EXPERTS,
                            LAYER_NO_ROPE, mixer | LAYER_EXPERTS};
  good(ARCHITECTURE("JambaForCausalLM") "}"); /* Jamba-v0.1 */
  cr_assert_arr_eq(blueprint.layer_flags, flags, 6);
  ASSERT_EQ(blueprint.num_parameters, 51570323328);
  ASSERT_EQ(blueprint.mixer.step_rank, 256);
  cr_assert(blueprint.mixer.parts_normed && !blueprint.mixer.parts_free);
  cr_assert(!blueprint.experts_normalise);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("JambaForCausalLM") ",\"num_experts\":1,\"num_experts_per_tok\":2,"
                                        "\"attn_layer_period\":1,\"attn_layer_offset\":0}");
  ASSERT_EQ(blueprint.num_experts, 0);
  ASSERT_EQ(blueprint.layer_flags[1], LAYER_NO_ROPE);
  ASSERT_EQ(blueprint.mixer.kind, MIXER_NONE);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("JambaForCausalLM") ",\"attn_layer_offset\":8}", "attn_layer_offset");
  bad(ARCHITECTURE("JambaForCausalLM") ",\"expert_layer_offset\":2}", "expert_layer_offset");
  bad(ARCHITECTURE("JambaForCausalLM") ",\"num_experts\":0}", "num_experts");
  bad(ARCHITECTURE("JambaForCausalLM") ",\"mamba_inner_layernorms\":false}",
      "mamba_inner_layernorms");
}

Test(families_hybrid, olmo_hybrid_takes_its_sizes_from_attention) {
  const uint8_t mixer = LAYER_MIXER | LAYER_NO_ATTENTION;
  const uint8_t flags[4] = {mixer, mixer, mixer, 0};
  const mixer_config_t *made = &blueprint.mixer;
  good(ARCHITECTURE("OlmoHybridForCausalLM") "}");
  cr_assert_arr_eq(blueprint.layer_flags, flags, 4);
  ASSERT_EQ(made->num_groups, 30);
  ASSERT_EQ(made->num_heads, 30);
  ASSERT_EQ(made->key_dim, 96);
  ASSERT_EQ(made->value_dim, 192);
  ASSERT_EQ(made->norm_eps, 1e-5F);
  cr_assert(made->doubles && made->apart && blueprint.qk_norm_whole);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("OlmoHybridForCausalLM") ",\"num_hidden_layers\":2,"
                                             "\"linear_allow_neg_eigval\":false,"
                                             "\"linear_num_key_heads\":15,"
                                             "\"rope_parameters\":{\"rope_theta\":null}}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){mixer | LAYER_NO_ROPE, LAYER_NO_ROPE}), 2);
  ASSERT_EQ(made->key_dim, 192);
  cr_assert(!made->doubles);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("OlmoHybridForCausalLM") ",\"linear_num_key_heads\":7}", "linear_num_key_heads");
  bad(ARCHITECTURE("OlmoHybridForCausalLM") ",\"linear_value_head_dim\":1025}",
      "linear_value_head_dim");
  bad(ARCHITECTURE("OlmoHybridForCausalLM") ",\"layer_types\":[\"full_attention\"]}",
      "layer_types");
}
