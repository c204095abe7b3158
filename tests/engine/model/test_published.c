/* test_published.c: configurations with the sizes and kinds of keys of published mixtures of
 * experts, and of Gemma 3n and 4.
 *
 * Written by hand after them, not copies. Most keys say nothing about the computation and must not
 * be refused; the numbers of parameters are those of transformers' models of the same sizes.
 */
#include "tests/engine/model/maker.h"
#include "tests/expect.h"

#include <stdio.h>

static void published(const char *name, const char *text, int64_t parameters) {
  blueprint_t blueprint;
  inferd_error_t error = {0};
  maker_t maker;
  maker_open(&maker);
  snprintf(maker.config, sizeof(maker.config), "%s", text);
  maker_write_config(&maker);
  int status = blueprint_read(maker.dir, 0, -1, &blueprint, &error);
  ASSERT_EQ_FOR(status, 0, "%s: %s", name, error.message);
  ASSERT_EQ_FOR(blueprint.num_parameters, parameters, "%s", name);
  blueprint_free(&blueprint);
  maker_close(&maker);
}

Test(published, latent_attention) {
  published("DeepSeek V3",
            "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"attention_bias\":false,"
            "\"attention_dropout\":0.0,"
            "\"auto_map\":{\"AutoConfig\":\"configuration_deepseek.DeepseekV3Config\"},"
            "\"aux_loss_alpha\":0.001,\"bos_token_id\":0,\"eos_token_id\":1,"
            "\"ep_size\":1,\"first_k_dense_replace\":3,\"hidden_act\":\"silu\","
            "\"hidden_size\":7168,\"initializer_range\":0.02,\"intermediate_size\":18432,"
            "\"kv_lora_rank\":512,\"max_position_embeddings\":163840,"
            "\"model_type\":\"deepseek_v3\",\"moe_intermediate_size\":2048,"
            "\"moe_layer_freq\":1,\"n_group\":8,\"n_routed_experts\":256,"
            "\"n_shared_experts\":1,\"norm_topk_prob\":true,\"num_attention_heads\":128,"
            "\"num_experts_per_tok\":8,\"num_hidden_layers\":61,"
            "\"num_key_value_heads\":128,\"num_nextn_predict_layers\":1,"
            "\"pretraining_tp\":1,\"q_lora_rank\":1536,\"qk_nope_head_dim\":128,"
            "\"qk_rope_head_dim\":64,"
            "\"quantization_config\":{\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\","
            "\"quant_method\":\"fp8\",\"weight_block_size\":[128,128]},"
            "\"rms_norm_eps\":1e-06,\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,"
            "\"factor\":40,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
            "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},"
            "\"rope_theta\":10000,\"routed_scaling_factor\":2.5,"
            "\"scoring_func\":\"sigmoid\",\"seq_aux\":true,\"tie_word_embeddings\":false,"
            "\"topk_group\":4,\"topk_method\":\"noaux_tc\",\"torch_dtype\":\"bfloat16\","
            "\"use_cache\":true,\"v_head_dim\":128,\"vocab_size\":129280}",
            671026419200);
  published("DeepSeek V2 Lite",
            "{\"architectures\":[\"DeepseekV2ForCausalLM\"],\"attention_bias\":false,"
            "\"aux_loss_alpha\":0.001,\"bos_token_id\":100000,\"eos_token_id\":100001,"
            "\"first_k_dense_replace\":1,\"hidden_act\":\"silu\",\"hidden_size\":2048,"
            "\"intermediate_size\":10944,\"kv_lora_rank\":512,"
            "\"max_position_embeddings\":163840,\"model_type\":\"deepseek_v2\","
            "\"moe_intermediate_size\":1408,\"moe_layer_freq\":1,\"n_group\":1,"
            "\"n_routed_experts\":64,\"n_shared_experts\":2,\"norm_topk_prob\":false,"
            "\"num_attention_heads\":16,\"num_experts_per_tok\":6,"
            "\"num_hidden_layers\":27,\"num_key_value_heads\":16,\"pretraining_tp\":1,"
            "\"q_lora_rank\":null,\"qk_nope_head_dim\":128,\"qk_rope_head_dim\":64,"
            "\"rms_norm_eps\":1e-06,\"rope_scaling\":{\"beta_fast\":32,\"beta_slow\":1,"
            "\"factor\":40,\"mscale\":0.707,\"mscale_all_dim\":0.707,"
            "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},"
            "\"rope_theta\":10000,\"routed_scaling_factor\":1.0,"
            "\"scoring_func\":\"softmax\",\"seq_aux\":true,\"tie_word_embeddings\":false,"
            "\"topk_group\":1,\"topk_method\":\"greedy\",\"torch_dtype\":\"bfloat16\","
            "\"v_head_dim\":128,\"vocab_size\":102400}",
            15706484224);
}

Test(published, latent_attention_of_others) {
  published("Kimi K2",
            "{\"architectures\":[\"DeepseekV3ForCausalLM\"],\"model_type\":\"kimi_k2\","
            "\"auto_map\":{\"AutoConfig\":\"x.Y\"},\"vocab_size\":163840,"
            "\"hidden_size\":7168,\"intermediate_size\":18432,"
            "\"moe_intermediate_size\":2048,\"num_hidden_layers\":61,"
            "\"num_attention_heads\":64,\"num_key_value_heads\":64,"
            "\"n_routed_experts\":384,\"n_shared_experts\":1,\"n_group\":1,"
            "\"topk_group\":1,\"num_experts_per_tok\":8,\"first_k_dense_replace\":1,"
            "\"kv_lora_rank\":512,\"q_lora_rank\":1536,\"qk_nope_head_dim\":128,"
            "\"qk_rope_head_dim\":64,\"v_head_dim\":128,\"norm_topk_prob\":true,"
            "\"routed_scaling_factor\":2.827,\"scoring_func\":\"sigmoid\","
            "\"topk_method\":\"noaux_tc\",\"moe_layer_freq\":1,\"seq_aux\":true,"
            "\"rope_theta\":50000.0,\"rope_scaling\":{\"beta_fast\":1.0,"
            "\"beta_slow\":1.0,\"factor\":32.0,\"mscale\":1.0,\"mscale_all_dim\":1.0,"
            "\"original_max_position_embeddings\":4096,\"type\":\"yarn\"},"
            "\"max_position_embeddings\":131072,\"torch_dtype\":\"bfloat16\","
            "\"bos_token_id\":163584,\"eos_token_id\":163585}",
            1026408232448);
  published("GLM-4.7-Flash",
            "{\"architectures\":[\"Glm4MoeLiteForCausalLM\"],\"attention_bias\":false,"
            "\"attention_dropout\":0.0,\"pad_token_id\":154820,\"eos_token_id\":[154820,"
            "154827,154829],\"hidden_act\":\"silu\",\"hidden_size\":2048,"
            "\"intermediate_size\":10240,\"max_position_embeddings\":202752,"
            "\"model_type\":\"glm4_moe_lite\",\"moe_intermediate_size\":1536,"
            "\"topk_method\":\"noaux_tc\",\"norm_topk_prob\":true,"
            "\"num_attention_heads\":20,\"n_group\":1,\"topk_group\":1,"
            "\"n_routed_experts\":64,\"n_shared_experts\":1,"
            "\"routed_scaling_factor\":1.8,\"num_experts_per_tok\":4,"
            "\"first_k_dense_replace\":1,\"num_hidden_layers\":47,"
            "\"num_key_value_heads\":20,\"num_nextn_predict_layers\":1,"
            "\"partial_rotary_factor\":1.0,\"rms_norm_eps\":1e-05,\"rope_scaling\":null,"
            "\"rope_theta\":1000000,\"tie_word_embeddings\":false,\"dtype\":\"bfloat16\","
            "\"q_lora_rank\":768,\"kv_lora_rank\":512,\"qk_nope_head_dim\":192,"
            "\"qk_rope_head_dim\":64,\"v_head_dim\":256,\"vocab_size\":154880}",
            29943393920);
}

Test(published, scored_experts) {
  published("GLM-4.5",
            "{\"architectures\":[\"Glm4MoeForCausalLM\"],\"attention_bias\":true,"
            "\"attention_dropout\":0.0,\"pad_token_id\":151329,\"eos_token_id\":[151329,"
            "151336,151338],\"head_dim\":128,\"hidden_act\":\"silu\","
            "\"hidden_size\":5120,\"partial_rotary_factor\":0.5,"
            "\"initializer_range\":0.02,\"intermediate_size\":12288,"
            "\"max_position_embeddings\":131072,\"model_type\":\"glm4_moe\","
            "\"moe_intermediate_size\":1536,\"norm_topk_prob\":true,"
            "\"num_attention_heads\":96,\"n_group\":1,\"topk_group\":1,"
            "\"n_routed_experts\":160,\"n_shared_experts\":1,"
            "\"routed_scaling_factor\":2.5,\"num_experts_per_tok\":8,"
            "\"first_k_dense_replace\":3,\"num_hidden_layers\":92,"
            "\"num_key_value_heads\":8,\"num_nextn_predict_layers\":1,"
            "\"rms_norm_eps\":1e-05,\"rope_scaling\":null,\"rope_theta\":1000000,"
            "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\","
            "\"use_cache\":true,\"use_qk_norm\":true,\"vocab_size\":151552}",
            352797829024);
  published("MiniMax M2",
            "{\"architectures\":[\"MiniMaxM2ForCausalLM\"],\"attn_type_list\":[1,1],"
            "\"bos_token_id\":null,\"eos_token_id\":null,\"head_dim\":128,"
            "\"hidden_act\":\"silu\",\"hidden_size\":3072,\"intermediate_size\":1536,"
            "\"layernorm_full_attention_beta\":1.0,\"max_position_embeddings\":196608,"
            "\"mlp_intermediate_size\":8192,\"model_type\":\"minimax\","
            "\"mtp_transformer_layers\":1,\"num_attention_heads\":48,"
            "\"num_experts_per_tok\":8,\"num_hidden_layers\":62,"
            "\"num_key_value_heads\":8,\"num_local_experts\":256,\"num_mtp_modules\":3,"
            "\"output_router_logits\":false,\"qk_norm_type\":\"per_layer\","
            "\"quantization_config\":{\"activation_scheme\":\"dynamic\","
            "\"fmt\":\"float8_e4m3fn\",\"quant_method\":\"fp8\","
            "\"weight_block_size\":[128,128],\"modules_to_not_convert\":[\"gate\","
            "\"e_score_correction_bias\",\"lm_head\"]},\"rms_norm_eps\":1e-06,"
            "\"rope_theta\":5000000,\"rotary_dim\":64,\"router_aux_loss_coef\":0.001,"
            "\"router_jitter_noise\":0.0,\"scoring_func\":\"sigmoid\","
            "\"shared_intermediate_size\":0,\"shared_moe_mode\":\"sigmoid\","
            "\"sliding_window\":null,\"tie_word_embeddings\":false,\"use_cache\":true,"
            "\"use_mtp\":true,\"use_qk_norm\":true,\"use_routing_bias\":true,"
            "\"vocab_size\":200064}",
            228689764864);
  published("ERNIE 4.5 21B",
            "{\"architectures\":[\"Ernie4_5_MoeForCausalLM\"],\"bos_token_id\":1,"
            "\"eos_token_id\":2,\"hidden_act\":\"silu\",\"hidden_size\":2560,"
            "\"intermediate_size\":12288,\"max_position_embeddings\":131072,"
            "\"model_type\":\"ernie4_5_moe\",\"num_attention_heads\":20,"
            "\"num_key_value_heads\":4,\"num_hidden_layers\":28,\"pad_token_id\":0,"
            "\"rms_norm_eps\":1e-05,\"use_cache\":false,\"vocab_size\":103424,"
            "\"rope_theta\":500000,\"use_bias\":false,\"moe_num_experts\":64,"
            "\"moe_num_shared_experts\":2,\"moe_k\":6,\"moe_intermediate_size\":1536,"
            "\"moe_capacity\":[64,64,64],\"moe_layer_start_index\":1,"
            "\"moe_layer_end_index\":27,\"moe_layer_interval\":1,\"moe_gate\":\"topk\","
            "\"moe_use_aux_free\":true,\"tie_word_embeddings\":true,"
            "\"torch_dtype\":\"bfloat16\",\"rope_scaling\":null,"
            "\"num_nextn_predict_layers\":0,\"head_dim\":128}",
            21825437888);
}

Test(published, gemma4) {
  published("Gemma 4 E2B",
            "{\"architectures\":[\"Gemma4ForConditionalGeneration\"],"
            "\"audio_config\":{\"hidden_size\":1024,\"model_type\":\"gemma4_audio\"},"
            "\"audio_token_id\":258881,\"boa_token_id\":256000,\"boi_token_id\":255999,"
            "\"dtype\":\"bfloat16\",\"eos_token_id\":[1,106],\"image_token_id\":258880,"
            "\"model_type\":\"gemma4\",\"tie_word_embeddings\":true,"
            "\"text_config\":{\"attention_bias\":false,\"attention_dropout\":0.0,"
            "\"bos_token_id\":2,\"dtype\":\"bfloat16\",\"eos_token_id\":1,"
            "\"final_logit_softcapping\":30.0,\"global_head_dim\":512,\"head_dim\":256,"
            "\"hidden_activation\":\"gelu_pytorch_tanh\",\"initializer_range\":0.02,"
            "\"max_position_embeddings\":131072,\"model_type\":\"gemma4_text\","
            "\"pad_token_id\":0,\"rms_norm_eps\":1e-06,\"tie_word_embeddings\":true,"
            "\"use_cache\":true,\"vocab_size\":262144,\"vocab_size_per_layer_input\":262144,"
            "\"rope_parameters\":{\"full_attention\":{\"partial_rotary_factor\":0.25,"
            "\"rope_theta\":1000000.0,\"rope_type\":\"proportional\"},"
            "\"sliding_attention\":{\"rope_theta\":10000.0,\"rope_type\":\"default\"}},"
            "\"attention_k_eq_v\":false,\"enable_moe_block\":false,\"hidden_size\":1536,"
            "\"hidden_size_per_layer_input\":256,\"intermediate_size\":6144,"
            "\"moe_intermediate_size\":null,\"num_attention_heads\":8,\"num_experts\":null,"
            "\"num_global_key_value_heads\":null,\"num_hidden_layers\":35,"
            "\"num_key_value_heads\":1,\"num_kv_shared_layers\":20,\"sliding_window\":512,"
            "\"top_k_experts\":null,\"use_bidirectional_attention\":null,"
            "\"use_double_wide_mlp\":true,\"layer_types\":[\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"full_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"full_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"full_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"full_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"full_attention\"]},\"vision_config\":{\"hidden_size\":768,"
            "\"model_type\":\"gemma4_vision\"}}",
            4628569379);
}

Test(published, gemma4_with_experts) {
  published("Gemma 4 26B-A4B",
            "{\"architectures\":[\"Gemma4ForConditionalGeneration\"],\"audio_config\":null,"
            "\"dtype\":\"bfloat16\",\"eos_token_id\":[1,106],\"model_type\":\"gemma4\","
            "\"tie_word_embeddings\":true,\"text_config\":{\"attention_bias\":false,"
            "\"attention_dropout\":0.0,\"bos_token_id\":2,\"dtype\":\"bfloat16\","
            "\"eos_token_id\":1,\"final_logit_softcapping\":30.0,\"global_head_dim\":512,"
            "\"head_dim\":256,\"hidden_activation\":\"gelu_pytorch_tanh\","
            "\"initializer_range\":0.02,\"max_position_embeddings\":131072,"
            "\"model_type\":\"gemma4_text\",\"pad_token_id\":0,\"rms_norm_eps\":1e-06,"
            "\"tie_word_embeddings\":true,\"use_cache\":true,\"vocab_size\":262144,"
            "\"vocab_size_per_layer_input\":262144,"
            "\"rope_parameters\":{\"full_attention\":{\"partial_rotary_factor\":0.25,"
            "\"rope_theta\":1000000.0,\"rope_type\":\"proportional\"},"
            "\"sliding_attention\":{\"rope_theta\":10000.0,\"rope_type\":\"default\"}},"
            "\"attention_k_eq_v\":true,\"enable_moe_block\":true,\"hidden_size\":2816,"
            "\"hidden_size_per_layer_input\":0,\"intermediate_size\":2112,"
            "\"moe_intermediate_size\":704,\"num_attention_heads\":16,\"num_experts\":128,"
            "\"num_global_key_value_heads\":2,\"num_hidden_layers\":30,\"num_key_value_heads\":8,"
            "\"num_kv_shared_layers\":0,\"sliding_window\":1024,\"top_k_experts\":8,"
            "\"use_bidirectional_attention\":\"vision\",\"use_double_wide_mlp\":false,"
            "\"layer_types\":[\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\"]},"
            "\"vision_config\":{\"hidden_size\":1152,\"model_type\":\"gemma4_vision\"}}",
            25233141790);
}

Test(published, gemma3n) {
  published("Gemma 3n E4B",
            "{\"architectures\":[\"Gemma3nForConditionalGeneration\"],"
            "\"audio_config\":{\"hidden_size\":1536,\"model_type\":\"gemma3n_audio\"},"
            "\"audio_soft_tokens_per_image\":188,\"audio_token_id\":262273,\"eos_token_id\":[1,"
            "106],\"model_type\":\"gemma3n\","
            "\"text_config\":{\"activation_sparsity_pattern\":[0.95,0.95,0.95,0.95,0.95,0.95,"
            "0.95,0.95,0.95,0.95,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,"
            "0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0],\"altup_active_idx\":0,"
            "\"altup_coef_clip\":120.0,\"altup_correct_scale\":true,"
            "\"altup_lr_multiplier\":1.0,\"altup_num_inputs\":4,\"attention_bias\":false,"
            "\"attention_dropout\":0.0,\"final_logit_softcapping\":30.0,\"head_dim\":256,"
            "\"hidden_activation\":\"gelu_pytorch_tanh\",\"hidden_size\":2048,"
            "\"hidden_size_per_layer_input\":256,\"initializer_range\":0.02,"
            "\"intermediate_size\":[16384,16384,16384,16384,16384,16384,16384,16384,16384,"
            "16384,16384,16384,16384,16384,16384,16384,16384,16384,16384,16384,16384,16384,"
            "16384,16384,16384,16384,16384,16384,16384,16384,16384,16384,16384,16384,16384],"
            "\"laurel_rank\":64,\"layer_types\":[\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"full_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"full_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"full_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"full_attention\",\"sliding_attention\",\"sliding_attention\","
            "\"sliding_attention\",\"sliding_attention\",\"full_attention\"],"
            "\"max_position_embeddings\":32768,\"model_type\":\"gemma3n_text\","
            "\"num_attention_heads\":8,\"num_hidden_layers\":35,\"num_key_value_heads\":2,"
            "\"num_kv_shared_layers\":15,\"query_pre_attn_scalar\":256,\"rms_norm_eps\":1e-06,"
            "\"rope_local_base_freq\":10000.0,\"rope_scaling\":null,\"rope_theta\":1000000.0,"
            "\"sliding_window\":512,\"torch_dtype\":\"bfloat16\",\"use_cache\":true,"
            "\"vocab_size\":262400,\"vocab_size_per_layer_input\":262144},"
            "\"torch_dtype\":\"bfloat16\",\"vision_config\":{\"hidden_size\":2048,"
            "\"model_type\":\"gemma3n_vision\"},\"vision_soft_tokens_per_image\":256}",
            6835235568);
}

Test(published, phi_mixture) {
  published("Phi-3.5-MoE",
            "{\"architectures\":[\"PhiMoEForCausalLM\"],\"attention_bias\":true,"
            "\"attention_dropout\":0.0,"
            "\"auto_map\":{\"AutoConfig\":\"configuration_phimoe.PhiMoEConfig\","
            "\"AutoModelForCausalLM\":\"modeling_phimoe.PhiMoEForCausalLM\"},"
            "\"bos_token_id\":1,\"eos_token_id\":32000,\"hidden_act\":\"silu\","
            "\"hidden_dropout\":0.0,\"hidden_size\":4096,\"initializer_range\":0.02,"
            "\"input_jitter_noise\":0.01,\"intermediate_size\":6400,\"lm_head_bias\":true,"
            "\"max_position_embeddings\":131072,\"model_type\":\"phimoe\","
            "\"num_attention_heads\":32,\"num_experts_per_tok\":2,\"num_hidden_layers\":32,"
            "\"num_key_value_heads\":8,\"num_local_experts\":16,"
            "\"original_max_position_embeddings\":4096,\"output_router_logits\":false,"
            "\"rms_norm_eps\":1e-05,\"rope_scaling\":{\"long_factor\":[1.1,1.1,1.1,1.1,1.1,1.1,"
            "1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,"
            "1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,"
            "1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1,1.1],"
            "\"long_mscale\":1.243163121016122,\"original_max_position_embeddings\":4096,"
            "\"short_factor\":[1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,"
            "1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,"
            "1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0,"
            "1.0,1.0,1.0,1.0,1.0,1.0,1.0,1.0],\"short_mscale\":1.243163121016122,"
            "\"type\":\"longrope\"},\"rope_theta\":10000.0,\"router_aux_loss_coef\":0.0,"
            "\"router_jitter_noise\":0.01,\"sliding_window\":131072,"
            "\"tie_word_embeddings\":false,\"torch_dtype\":\"bfloat16\",\"use_cache\":true,"
            "\"vocab_size\":32064}",
            41873153344);
}
