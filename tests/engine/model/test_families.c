/* test_families.c: what the younger families read from config.json, what they refuse, and that
 * their numbers do not depend on how a prompt is cut. Their logits are compared in test_parity.c.
 */
#include "engine/model/sizes.h"
#include "engine/model/source/safetensors.h"
#include "tests/engine/model/config_checks.h"
#include "tests/engine/model/maker.h"
#include "tests/engine/model/rig.h"
#include "tests/engine/model/vectors.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void parameters(const char *text, int64_t count) {
  good(text);
  ASSERT_EQ_FOR(blueprint.num_parameters, count, "%s: %lld, published %lld", blueprint.architecture,
                (long long)blueprint.num_parameters, (long long)count);
  blueprint_free(&blueprint);
}

/* Parameter counts of published models, which the tensor list must reproduce. */
Test(families, published_sizes) {
  parameters(ARCHITECTURE("GemmaForCausalLM") "}", 8537680896);
  parameters(ARCHITECTURE("Gemma2ForCausalLM") "}", 2614341888);
  parameters(ARCHITECTURE("Gemma3ForCausalLM") ",\"vocab_size\":262144,\"hidden_size\":1152,"
                                               "\"intermediate_size\":6912,\"num_attention_heads\":"
                                               "4,\"num_key_value_heads\":1,"
                                               "\"sliding_window\":512}",
             999885952);
  parameters(ARCHITECTURE("Phi3ForCausalLM") "}", 3821079552);
  parameters(ARCHITECTURE("BertModel") "}", 108891648); /* without its pooler */
  parameters(ARCHITECTURE("ModernBertModel") "}", 149014272);
  parameters(ARCHITECTURE("NomicBertModel") "}", 136731648);
  parameters(ARCHITECTURE("MixtralForCausalLM") "}", 46702792704);
  parameters(ARCHITECTURE("Qwen2MoeForCausalLM") ",\"rope_theta\":1e6}", 14315784192);
  parameters(ARCHITECTURE("Qwen3MoeForCausalLM") ",\"rope_theta\":1e6,\"num_hidden_layers\":48,"
                                                 "\"head_dim\":128}",
             30532122624);
  parameters(ARCHITECTURE("GptOssForCausalLM") ",\"num_hidden_layers\":24,"
                                               "\"num_local_experts\":32,\"quantization_config\":{"
                                               "\"quant_method\":\"mxfp4\"}}",
             20914757184);
  parameters(ARCHITECTURE("Olmo2ForCausalLM") ",\"vocab_size\":100352}", 7298617344);
  parameters(ARCHITECTURE("SmolLM3ForCausalLM") "}", 3075098624);
  parameters(ARCHITECTURE("GPTNeoXForCausalLM") "}", 20554567680);
  parameters(ARCHITECTURE("FalconForCausalLM") "}", 6921720704);
  parameters(ARCHITECTURE("StableLmForCausalLM") "}", 2795443200);
  parameters(ARCHITECTURE("CohereForCausalLM") "}", 34980831232);
  parameters(ARCHITECTURE("PhiForCausalLM") ",\"hidden_size\":2560,\"intermediate_size\":10240,"
                                            "\"num_hidden_layers\":32}",
             2779683840);
  parameters(ARCHITECTURE("GPTJForCausalLM") "}", 6050882784);
  parameters(ARCHITECTURE("OlmoForCausalLM") "}", 6888095744);
  parameters(ARCHITECTURE("Glm4ForCausalLM") "}", 9400279040);
  parameters(ARCHITECTURE("Ernie4_5ForCausalLM") "}", 360748032);
  parameters(ARCHITECTURE("InternLM2ForCausalLM") ",\"vocab_size\":92544,\"bias\":false,"
                                                  "\"intermediate_size\":14336,"
                                                  "\"num_key_value_heads\":8}",
             7737708544);
}

/* Those of transformers' own models of these configurations. */
Test(families, sizes_of_routed_experts) {
  parameters(ARCHITECTURE("Glm4MoeForCausalLM") ",\"head_dim\":128}", 106851591808);
  parameters(ARCHITECTURE("Glm4MoeForCausalLM") ",\"head_dim\":128,\"hidden_size\":5120,"
                                                "\"intermediate_size\":12288,\"use_qk_norm\":true,"
                                                "\"num_hidden_layers\":92,\"attention_bias\":true,"
                                                "\"moe_intermediate_size\":1536,"
                                                "\"n_routed_experts\":160,"
                                                "\"first_k_dense_replace\":3}",
             352797829024);
  parameters(ARCHITECTURE("SolarOpenForCausalLM") "}", 102651799552);
  parameters(ARCHITECTURE("DeepseekV3ForCausalLM") "}", 671026419200);
  parameters(ARCHITECTURE("DeepseekV3ForCausalLM") ",\"vocab_size\":163840,\"n_group\":1,"
                                                   "\"n_routed_experts\":384,\"topk_group\":1,"
                                                   "\"num_attention_heads\":64,"
                                                   "\"first_k_dense_replace\":1}",
             1026408232448); /* Kimi K2 */
  parameters(ARCHITECTURE("Glm4MoeLiteForCausalLM") "}", 29943393920);
  parameters(
      ARCHITECTURE("DeepseekV2ForCausalLM") ",\"num_experts_per_tok\":6,\"hidden_size\":2048,"
                                            "\"intermediate_size\":10944,"
                                            "\"moe_intermediate_size\":1408,"
                                            "\"num_hidden_layers\":27,\"q_lora_rank\":null,"
                                            "\"num_attention_heads\":16,"
                                            "\"first_k_dense_replace\":1}",
      15706484224); /* V2-Lite */
  parameters(ARCHITECTURE("Ernie4_5_MoeForCausalLM") "}", 21825437888);
  parameters(ARCHITECTURE("MiniMaxM2ForCausalLM") "}", 228689764864);
  parameters(ARCHITECTURE("Dots1ForCausalLM") ",\"n_routed_experts\":128,\"n_shared_experts\":2,"
                                              "\"num_experts_per_tok\":6,\"hidden_size\":4096,"
                                              "\"first_k_dense_replace\":1,\"head_dim\":128}",
             142774381696);
}

#define GLM ARCHITECTURE("Glm4MoeForCausalLM") ",\"head_dim\":40"

Test(families, routers_are_read_or_refused) {
  good(GLM ",\"num_hidden_layers\":3,\"first_k_dense_replace\":2,"
           "\"n_group\":8,\"topk_group\":3,"
           "\"routed_scaling_factor\":2.5}");
  ASSERT_EQ(blueprint.routing, ROUTING_SIGMOID);
  ASSERT_EQ(blueprint.num_groups, 8);
  ASSERT_EQ(blueprint.groups_top, 3);
  ASSERT_EQ(blueprint.rope.dims, 20);
  cr_assert_float_eq(blueprint.share_factor, 2.5, 1e-12);
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, 0, LAYER_EXPERTS}), 3);
  blueprint_free(&blueprint);
  bad(GLM ",\"n_group\":3,\"topk_group\":1}", "n_group");
  bad(GLM ",\"n_group\":128}", "n_group");
  bad(GLM ",\"n_group\":32,\"topk_group\":1}", "topk_group");
  bad(GLM ",\"num_experts_per_tok\":9,\"n_routed_experts\":8}", "num_experts_per_tok");
  bad(GLM ",\"scoring_func\":\"softmax\"}", "scoring_func");
  bad(GLM ",\"moe_layer_freq\":2}", "moe_layer_freq");
  /* what follows a refusal divides by nothing */
  bad(ARCHITECTURE("DeepseekV2ForCausalLM") ",\"norm_topk_prob\":true,\"n_group\":2,"
                                            "\"topk_method\":\"group_limited_greedy\"}",
      "norm_topk_prob");
  bad(ARCHITECTURE("Dots1ForCausalLM") "}", "n_routed_experts");
  bad(ARCHITECTURE("Ernie4_5_MoeForCausalLM") ",\"use_bias\":true}", "use_bias");
}

Test(families, latent_attention_is_read_or_refused) {
  good(ARCHITECTURE("DeepseekV3ForCausalLM") ",\"num_hidden_layers\":4,\"head_dim\":64,"
                                             "\"max_position_embeddings\":163840,"
                                             "\"rope_scaling\":{\"type\":\"yarn\",\"factor\":40,"
                                             "\"mscale\":1.0,\"mscale_all_dim\":1.0,"
                                             "\"original_max_position_embeddings\":4096}}");
  const kv_cache_desc_t kv = model_kv(&blueprint);
  ASSERT_EQ(kv.num_kv_heads, 1);
  ASSERT_EQ(kv.head_dim, 576);
  cr_assert(kv.latent);
  ASSERT_EQ(blueprint.head_dim, 192);
  cr_assert_float_eq(blueprint.attn_scale, pow(0.1 * log(40) + 1, 2) / sqrt(192), 1e-12);
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, 0, 0, LAYER_EXPERTS}), 4);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("DeepseekV3ForCausalLM") ",\"kv_lora_rank\":33}", "kv_lora_rank");
  bad(ARCHITECTURE("DeepseekV3ForCausalLM") ",\"kv_lora_rank\":1024}", "kv_lora_rank");
  bad(ARCHITECTURE("DeepseekV3ForCausalLM") ",\"num_key_value_heads\":8}", "num_key_value_heads");
  bad(ARCHITECTURE("DeepseekV3ForCausalLM") ",\"head_dim\":128}", "head_dim");
  bad(ARCHITECTURE("DeepseekV2ForCausalLM") "}", "num_experts_per_tok");
  bad(ARCHITECTURE("DeepseekV2ForCausalLM") ",\"num_experts_per_tok\":6,"
                                            "\"topk_method\":\"group_limited_greedy\"}",
      "n_group");
  bad(ARCHITECTURE("DeepseekV2ForCausalLM") ",\"num_experts_per_tok\":6,\"norm_topk_prob\":true}",
      "norm_topk_prob");
  bad(ARCHITECTURE("DeepseekV2ForCausalLM") ",\"num_experts_per_tok\":6,\"mlp_bias\":true}",
      "mlp_bias");
}

Test(families, indexers_are_read_or_refused) {
#define GLM5(more) ARCHITECTURE("GlmMoeDsaForCausalLM") ",\"num_hidden_layers\":5," more "}"
  const uint8_t own = LAYER_EXPERTS, takes = LAYER_EXPERTS | LAYER_CHOSEN;
  good(ARCHITECTURE("DeepseekV32ForCausalLM") "}");
  const kv_cache_desc_t kv = model_kv(&blueprint);
  ASSERT_EQ(kv.head_dim, 512 + 64 + 128);
  ASSERT_EQ(blueprint.index_heads, 64);
  ASSERT_EQ(blueprint.index_top, 2048);
  cr_assert(!blueprint.index_pairs);
  ASSERT_EQ(blueprint.layer_flags[2], 0);
  ASSERT_EQ(blueprint.layer_flags[3], own);
  blueprint_free(&blueprint);
  good(GLM5("\"first_k_dense_replace\":0"));
  cr_assert(blueprint.index_pairs);
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){own, own, own, own, own}), 5);
  blueprint_free(&blueprint);
  good(GLM5("\"first_k_dense_replace\":0,\"index_topk_pattern\":\"FSSFS\""));
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){own, takes, takes, own, takes}), 5);
  blueprint_free(&blueprint);
  good(GLM5("\"first_k_dense_replace\":0,\"index_topk_freq\":2"));
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){own, own, takes, own, takes}), 5);
  blueprint_free(&blueprint);
  good(GLM5("\"mlp_layer_types\":[\"dense\",\"dense\",\"dense\",\"dense\",\"sparse\"],"
            "\"indexer_types\":[\"full\",\"shared\",\"full\",\"full\",\"full\"]"));
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, LAYER_CHOSEN, 0, 0, own}), 5);
  blueprint_free(&blueprint);
  bad(GLM5("\"index_topk_pattern\":\"SFFFF\""), "index_topk_pattern");
  bad(GLM5("\"index_topk_pattern\":\"FFFFX\""), "index_topk_pattern");
  bad(GLM5("\"index_topk_pattern\":\"FFFFFF\""), "index_topk_pattern");
  bad(GLM5("\"indexer_types\":[\"full\"]"), "indexer_types");
  bad(GLM5("\"indexer_types\":7"), "indexer_types");
  bad(GLM5("\"index_head_dim\":62"), "index_head_dim");
  bad(GLM5("\"index_head_dim\":450"), "index_head_dim");
  bad(GLM5("\"index_topk\":0"), "index_topk");
  bad(GLM5("\"q_lora_rank\":null"), "q_lora_rank");
}

/* Mistral 4: q grows over the whole head, of which a part turns. */
Test(families, mistral4_counts_the_dimensions_of_a_whole_head) {
#define MISTRAL4(part)                                                                             \
  ARCHITECTURE("Mistral4ForCausalLM")                                                              \
  ",\"head_dim\":128,\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":128.0,"                \
  "\"rope_theta\":10000.0,\"original_max_position_embeddings\":8192,"                              \
  "\"llama_4_scaling_beta\":0.1,\"partial_rotary_factor\":" part "}}"
  good(MISTRAL4("0.5"));
  ASSERT_EQ(blueprint.rope.dims, 64);
  ASSERT_EQ(blueprint.rope.query_growth, 0.1);
  ASSERT_EQ(blueprint.max_model_len, 8192 * 128);
  ASSERT_EQ(blueprint.routing, ROUTING_SOFTMAX);
  cr_assert(blueprint.group_pairs && blueprint.experts_normalise);
  blueprint_free(&blueprint);
  bad(MISTRAL4("0.25"), "\"partial_rotary_factor\" is 0.25, but qk_rope_head_dim 64 of 128");
  bad(ARCHITECTURE("Mistral4ForCausalLM") ",\"head_dim\":64,\"rope_theta\":1e4}", "head_dim");
}

static void expect_lack(const ops_t *poor, const char *dir, const char *part) {
  rig_options_t options = {.ops = poor, .dir = dir, .dummy = true, .dtype = -1, .num_threads = 1};
  rig_t rig;
  ASSERT_EQ_FOR(rig_open(&options, &rig, &error), ERR_CONFIGURATION, "%s", dir);
  cr_assert_not_null(strstr(error.message, part), "%s", error.message);
}

Test(families, a_back_end_without_an_operation_says_so) {
  static ops_t poor;
  poor = ops_cpu;
  poor.values = NULL;
  expect_lack(&poor, "tests/vectors/models/recent-bloom", "scores by distance of BloomForCausalLM");
  expect_lack(&poor, "tests/vectors/models/recent-mpt", "clipped q, k and v of MptForCausalLM");
  expect_lack(&poor, "tests/vectors/models/recent-olmo-clipped", "clipped q, k and v of Olmo");
  poor.per_layer = NULL;
  expect_lack(&poor, "tests/vectors/models/state-files-nemotron-h-super",
              "experts of a smaller vector of NemotronHForCausalLM");
}

Test(families, a_back_end_without_selections_says_so) {
  static ops_t poor;
  static state_ops_t states;
  poor = ops_cpu;
  states = *ops_cpu.state;
  states.select = NULL;
  poor.state = &states;
  expect_lack(&poor, "tests/vectors/models/state-jamba", "layers with a state of JambaForCausalLM");
  poor = ops_cpu;
  poor.separate_memory = true;
  expect_lack(&poor, "tests/vectors/models/state-mamba2",
              "layers without attention of Mamba2ForCausalLM");
}

Test(families, a_back_end_without_latent_attention_says_so) {
  static ops_t poor;
  poor = ops_cpu;
  poor.latent = NULL;
  rig_options_t options = {.ops = &poor,
                           .dir = "tests/vectors/models/latent-deepseek-v3",
                           .dummy = true,
                           .dtype = -1,
                           .num_threads = 1};
  rig_t rig;
  ASSERT_EQ(rig_open(&options, &rig, &error), ERR_CONFIGURATION);
  cr_assert_not_null(strstr(error.message, "latent attention of DeepseekV3ForCausalLM"), "%s",
                     error.message);
}

Test(families, gemma_reads_its_scales) {
  good(ARCHITECTURE("Gemma2ForCausalLM") ",\"num_hidden_layers\":3,\"hidden_size\":1152}");
  ASSERT_EQ(blueprint.block, BLOCK_SANDWICH);
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){1, 0, 1}), 3);
  cr_assert_float_eq(blueprint.embed_scale, sqrt(1152), 1e-12);
  cr_assert(blueprint.embed_rounds);
  cr_assert(blueprint.norm_plus_one);
  cr_assert(blueprint.tied);
  ASSERT_EQ(blueprint.attn_softcap, 50);
  ASSERT_EQ(blueprint.final_softcap, 30);
  cr_assert_float_eq(blueprint.attn_scale, 1.0 / 16, 1e-12);
  ASSERT_EQ(blueprint.activation, ACTIVATION_GELU_TANH_MUL);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("Gemma2ForCausalLM") ",\"attn_logit_softcapping\":null,"
                                         "\"final_logit_softcapping\":null}");
  ASSERT_EQ(blueprint.attn_softcap, 0);
  ASSERT_EQ(blueprint.final_softcap, 0);
  blueprint_free(&blueprint);
}

/* Published files say gelu; transformers takes its approximation all the same. */
Test(families, the_first_gemma_has_no_norms_behind_its_blocks) {
  good(ARCHITECTURE("GemmaForCausalLM") ",\"hidden_act\":\"gelu\",\"head_dim\":64}");
  ASSERT_EQ(blueprint.block, BLOCK_PRE_NORM);
  ASSERT_EQ(blueprint.activation, ACTIVATION_GELU_TANH_MUL);
  cr_assert_float_eq(blueprint.attn_scale, 0.125, 1e-12);
  cr_assert(blueprint.norm_plus_one);
  cr_assert(blueprint.embed_rounds);
  cr_assert(blueprint.tied);
  ASSERT_EQ(blueprint.final_softcap, 0);
  blueprint_free(&blueprint);
}

/* Two spellings of one Gemma 3; absent keys of text_config take the class defaults. */
Test(families, gemma3_has_two_angles) {
  static const char *const spellings[] = {
      ARCHITECTURE("Gemma3ForConditionalGeneration") ",\"torch_dtype\":\"bfloat16\",\"eos_token_"
                                                     "id\":[1,106],\"vision_config\":{\"a\":1},"
                                                     "\"text_config\":{\"model_type\":\"gemma3_"
                                                     "text\",\"num_hidden_layers\":7,"
                                                     "\"sliding_window\":1024,\"rope_scaling\":{"
                                                     "\"factor\":8.0,\"rope_type\":\"linear\"}}}",
      ARCHITECTURE("Gemma3ForCausalLM") ",\"dtype\":\"bfloat16\",\"eos_token_id\":[1,106],\"num_"
                                        "hidden_layers\":7,"
                                        "\"sliding_window\":1024,\"rope_parameters\":{\"full_"
                                        "attention\":{\"rope_type\":\"linear\","
                                        "\"factor\":8.0,\"rope_theta\":1e6},\"sliding_attention\":{"
                                        "\"rope_type\":\"default\","
                                        "\"rope_theta\":1e4}}}"};
  for (int i = 0; i < 2; i++) {
    good(spellings[i]);
    ASSERT_EQ(blueprint.rope.type, ROPE_LINEAR);
    ASSERT_EQ(blueprint.rope.theta, 1e6);
    ASSERT_EQ(blueprint.rope.factor, 8);
    ASSERT_EQ(blueprint.local_rope.type, ROPE_DEFAULT);
    ASSERT_EQ(blueprint.local_rope.theta, 1e4);
    cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){1, 1, 1, 1, 1, 0, 1}), 7);
    ASSERT_EQ(blueprint.hidden_size, 2304);
    ASSERT_EQ(blueprint.head_dim, 256);
    cr_assert(blueprint.tied);
    ASSERT_EQ(blueprint.max_model_len, 131072); /* it holds the factor already */
    ASSERT_EQ(blueprint.dtype, DTYPE_BF16);
    ASSERT_EQ(blueprint.num_eos, 2);
    blueprint_free(&blueprint);
  }
}

/* As `dtype="auto"` of transformers: the wrapper's word first, then that of its text_config. */
Test(families, the_type_of_a_wrapper_is_that_of_the_wrapper) {
  static const struct {
    const char *outside, *inside;
    dtype_t dtype;
  } cases[] = {{",\"dtype\":\"bfloat16\"", ",\"dtype\":\"float32\"", DTYPE_BF16},
               {",\"torch_dtype\":\"float16\"", ",\"dtype\":\"bfloat16\"", DTYPE_F16},
               {"", ",\"dtype\":\"bfloat16\"", DTYPE_BF16}};
  for (int i = 0; i < 3; i++) {
    char text[512];
    snprintf(text, sizeof(text),
             ARCHITECTURE("Mistral3ForConditionalGeneration") "%s,\"text_config\":{\"model_type\":"
                                                              "\"mistral\"%s}}",
             cases[i].outside, cases[i].inside);
    good(text);
    cr_assert_eq(blueprint.dtype, cases[i].dtype, "case %d: %d", i, blueprint.dtype);
    blueprint_free(&blueprint);
  }
}

/* What stands in the dict has no say, even where nothing stands beside it. */
Test(families, longrope_of_phi3_was_trained_to_4096_unless_told) {
  char list[512] = "1", text[2048];
  for (int i = 1; i < 48; i++) strcat(list, ",1.5");
  snprintf(text, sizeof(text),
           ARCHITECTURE("Phi3ForCausalLM") ",\"max_position_embeddings\":131072,\"rope_scaling\":{"
                                           "\"original_max_position_embeddings\":16,"
                                           "\"type\":\"longrope\",\"short_factor\":[%s],"
                                           "\"long_factor\":[%s]}}",
           list, list);
  good(text);
  ASSERT_EQ(blueprint.rope.original_max, 4096);
  blueprint_free(&blueprint);
}

Test(families, longrope_is_short_unless_asked) {
  char list[512] = "1", text[2048];
  for (int i = 1; i < 48; i++) strcat(list, ",1.5");
  snprintf(text, sizeof(text),
           ARCHITECTURE("Phi3ForCausalLM") ",\"max_position_embeddings\":131072,"
                                           "\"original_max_position_embeddings\":4096,\"rope_"
                                           "scaling\":{\"type\":\"longrope\","
                                           "\"short_factor\":[%s],\"long_factor\":[%s]}}",
           list, list);
  good(text);
  ASSERT_EQ(blueprint.default_model_len, 4096);
  ASSERT_EQ(blueprint.max_model_len, 131072);
  cr_assert_float_eq(blueprint.rope.long_scale, 1.190238071, 1e-9);
  blueprint_free(&blueprint);
}

Test(families, experts) {
  good(ARCHITECTURE("Qwen3MoeForCausalLM") ",\"rope_theta\":1e6,\"num_hidden_layers\":6,"
                                           "\"decoder_sparse_step\":2,\"mlp_only_layers\":[3],"
                                           "\"norm_topk_prob\":true}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, 2, 0, 0, 0, 2}), 6);
  ASSERT_EQ(blueprint.num_experts, 128);
  ASSERT_EQ(blueprint.experts_top, 8);
  ASSERT_EQ(blueprint.expert_size, 768);
  ASSERT_EQ(blueprint.shared_size, 0);
  cr_assert(blueprint.experts_normalise);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("Qwen2MoeForCausalLM") ",\"rope_theta\":1e6}");
  cr_assert(!blueprint.experts_normalise);
  ASSERT_EQ(blueprint.shared_size, 5632);
  cr_assert(blueprint.qkv_bias);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("GptOssForCausalLM") "}");
  cr_assert(blueprint.sinks);
  cr_assert(blueprint.qkv_bias);
  cr_assert(blueprint.o_bias);
  cr_assert(!blueprint.experts_mxfp4);
  ASSERT_EQ(blueprint.activation, ACTIVATION_CLAMPED_SWIGLU);
  blueprint_free(&blueprint);
}

/* Positions of RoBERTa begin behind the padding; a window of encoders counts both sides. */
Test(families, encoders) {
  good(ARCHITECTURE("XLMRobertaModel") ",\"max_position_embeddings\":514,\"type_vocab_size\":1}");
  EXPECT_EQ(blueprint.position_offset, 2);
  EXPECT_EQ(blueprint.num_positions, 512);
  EXPECT_EQ(blueprint.max_model_len, 512);
  cr_expect(blueprint.headless && blueprint.encoder.bidirectional && !blueprint.final_norm);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("ModernBertForMaskedLM") ",\"local_attention\":128,"
                                             "\"global_attn_every_n_layers\":3}");
  EXPECT_EQ(blueprint.window, 65);
  EXPECT_EQ(blueprint.layer_flags[0] & LAYER_SLIDES, 0);
  EXPECT_EQ(blueprint.layer_flags[1] & LAYER_SLIDES, LAYER_SLIDES);
  EXPECT_EQ(blueprint.layer_flags[3] & LAYER_SLIDES, 0);
  EXPECT_EQ(blueprint.activation, ACTIVATION_GELU_MUL);
  cr_expect(blueprint.encoder.plain_norms && blueprint.encoder.first_unnormed);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("Gemma3TextModel") ",\"use_bidirectional_attention\":true,"
                                       "\"sliding_window\":512}");
  EXPECT_EQ(blueprint.window, 257);
  cr_expect(blueprint.headless && blueprint.encoder.bidirectional);
  blueprint_free(&blueprint);
}

#define DEBERTA ARCHITECTURE("DebertaV2Model") ",\"relative_attention\":true"
/* Tables of a width of their own, and what scores have for distances. */
Test(families, recent_encoders) {
  good(ARCHITECTURE("ElectraModel") "}");
  EXPECT_EQ(blueprint.encoder.table_size, 128);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("ElectraModel") ",\"embedding_size\":256}");
  EXPECT_EQ(blueprint.encoder.table_size, 0);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("AlbertModel") ",\"embedding_size\":4096}");
  EXPECT_EQ(blueprint.encoder.table_size, 4096);
  cr_expect(blueprint.encoder.one_layer);
  EXPECT_EQ(blueprint.num_parameters, /* tables, their projection, one layer */
            (30000 + 512 + 2 + 2) * 4096LL + (4096 + 1) * 4096LL + 4 * (4096 + 1) * 4096LL +
                2 * 16384 * 4096LL + 16384 + 4096 + 4 * 4096LL);
  blueprint_free(&blueprint);
  good(DEBERTA ",\"position_buckets\":256,\"norm_rel_ebd\":\"layer_norm\","
               "\"share_att_key\":true,\"pos_att_type\":\"p2c|c2p\","
               "\"position_biased_input\":false,\"max_relative_positions\":-1}");
  EXPECT_EQ(blueprint.encoder.distance_span, 256);
  EXPECT_EQ(blueprint.encoder.distance_longest, 512);
  EXPECT_EQ(blueprint.num_positions, 0);
  EXPECT_EQ(blueprint.max_model_len, 512);
  EXPECT_EQ(blueprint.attn_scale, 1 / sqrt(64.0 * 3));
  cr_expect(blueprint.encoder.distance_keys && blueprint.encoder.distance_queries &&
            blueprint.encoder.distance_norm);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("DebertaV2Model") "}"); /* without distances, as its class has it */
  EXPECT_EQ(blueprint.encoder.distance_span, 0);
  EXPECT_EQ(blueprint.num_positions, 512);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("MT5EncoderModel") ",\"is_encoder_decoder\":true}");
  EXPECT_EQ(blueprint.num_heads, 6);
  EXPECT_EQ(blueprint.head_dim, 64);
  EXPECT_EQ(blueprint.attn_scale, 1);
  EXPECT_EQ(blueprint.distance_buckets, 32);
  EXPECT_EQ(blueprint.activation, ACTIVATION_GELU_TANH_MUL);
  cr_expect(blueprint.gated_mlp && blueprint.final_norm);
  blueprint_free(&blueprint);
}

/* A decoder behind an encoder: the keys of its own stack, and how its prompts begin. */
Test(families, decoders_behind_encoders) {
  good(ARCHITECTURE("T5ForConditionalGeneration") ",\"num_layers\":5,\"num_decoder_layers\":null,"
                                                  "\"decoder_start_token_id\":0,"
                                                  "\"is_encoder_decoder\":true,\"d_model\":64}");
  cr_expect(blueprint.cross.crosses && !blueprint.encoder.bidirectional && blueprint.tied);
  EXPECT_EQ(blueprint.num_layers, 5);
  EXPECT_EQ(blueprint.head_scale, 0.125); /* of tied heads */
  EXPECT_EQ(blueprint.cross.start_id, 0);
  EXPECT_EQ(blueprint.cross.forced_bos_id, -1);
  EXPECT_EQ(blueprint.default_model_len, 512);
  EXPECT_GT(blueprint.max_model_len, 512);
  blueprint_free(&blueprint);
  good(ARCHITECTURE(
      "T5ForConditionalGeneration") ",\"num_decoder_layers\":3,\"tie_word_embeddings\":false}");
  EXPECT_EQ(blueprint.num_layers, 3);
  EXPECT_EQ(blueprint.head_scale, 1);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("BartForConditionalGeneration") ",\"num_hidden_layers\":12,\"decoder_layers\":"
                                                    "4,\"decoder_attention_heads\":8,"
                                                    "\"decoder_ffn_dim\":96,\"encoder_ffn_dim\":72,"
                                                    "\"d_model\":64,\"num_beams\":4,"
                                                    "\"decoder_start_token_id\":2,\"forced_bos_"
                                                    "token_id\":0,\"early_stopping\":true,"
                                                    "\"length_penalty\":2.0,\"max_length\":142}");
  EXPECT_EQ(blueprint.num_layers, 4);
  EXPECT_EQ(blueprint.num_heads, 8);
  EXPECT_EQ(blueprint.intermediate_size, 96);
  EXPECT_EQ(blueprint.position_offset, 2);
  EXPECT_EQ(blueprint.cross.num_beams, 4);
  EXPECT_EQ(blueprint.cross.forced_bos_id, 0);
  EXPECT_EQ(blueprint.cross.early_stopping, EARLY_STOPPING_ON);
  EXPECT_EQ(blueprint.max_new_tokens, 141);
  EXPECT_EQ(blueprint.block, BLOCK_POST_NORM);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("M2M100ForConditionalGeneration") ",\"d_model\":64,\"pad_token_id\":5}");
  EXPECT_EQ(blueprint.position_offset, 6);
  EXPECT_EQ(blueprint.sinusoid, SINUSOID_TO_END);
  EXPECT_EQ(blueprint.embed_scale, 8);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("MarianMTModel") ",\"share_encoder_decoder_embeddings\":false}",
      "\"share_encoder_decoder_embeddings\" is false");
  bad(ARCHITECTURE("MarianMTModel") ",\"decoder_vocab_size\":7}", "\"decoder_vocab_size\" is 7");
  bad(ARCHITECTURE("MarianMTModel") ",\"activation_function\":\"mish\"}", "silu, swish");
}

Test(families, variants_of_encoders_are_refused) {
  static const char *const cases[][2] = {
      {ARCHITECTURE("BertModel") ",\"position_embedding_type\":\"relative_key\"}",
       "\"position_embedding_type\" is \"relative_key\", supported: absolute for BertModel"},
      {ARCHITECTURE("BertModel") ",\"is_decoder\":true}", "\"is_decoder\" is true"},
      {ARCHITECTURE("NomicBertModel") ",\"prenorm\":true}", "\"prenorm\" is true"},
      {ARCHITECTURE("NewModel") ",\"logn_attention_scale\":true}", "\"logn_attention_scale\""},
      {ARCHITECTURE("RobertaModel") ",\"max_position_embeddings\":2}", "pad_token_id + 1, 2"},
      {ARCHITECTURE("MPNetModel") ",\"pad_token_id\":0}", "\"pad_token_id\" is 0, supported: 1"},
      {ARCHITECTURE("MPNetModel") ",\"relative_attention_num_buckets\":31}",
       "\"relative_attention_num_buckets\" is 31, supported: 32"},
      {ARCHITECTURE("AlbertModel") ",\"num_hidden_groups\":2}",
       "\"num_hidden_groups\" is 2, supported: 1"},
      {ARCHITECTURE("AlbertModel") ",\"inner_group_num\":2}", "\"inner_group_num\" is 2"},
      {ARCHITECTURE("EuroBertForSequenceClassification") ",\"rope_theta\":250000}",
       "bos, mean (its default is late)"},
      {ARCHITECTURE("DebertaForSequenceClassification") "}", "DeBERTa V2 and V3 are"},
      {ARCHITECTURE("DebertaV2Model") ",\"conv_kernel_size\":3}",
       "\"conv_kernel_size\" is 3, supported: 0 (V2 XLarge and XXLarge have a convolution"},
      {ARCHITECTURE("DebertaV2Model") ",\"embedding_size\":128}",
       "\"embedding_size\" is 128, supported: 1536"},
      {DEBERTA ",\"position_buckets\":256,\"pos_att_type\":\"c2p\"}", "\"share_att_key\""},
      {DEBERTA ",\"position_buckets\":3}", "\"position_buckets\" is 3, supported: 4 or more"},
      {DEBERTA ",\"position_buckets\":256,\"max_relative_positions\":256}",
       "below max_relative_positions, 256"},
      {DEBERTA ",\"position_buckets\":256,\"norm_rel_ebd\":\"other\"}",
       "\"norm_rel_ebd\" is \"other\", supported: none, layer_norm"},
      {ARCHITECTURE("PLBartForConditionalGeneration") "}",
       "it was not compared with its reference yet"},
      {ARCHITECTURE("UMT5EncoderModel") "}", "it needs numbers by distance in each layer"},
      {ARCHITECTURE("T5EncoderModel") ",\"relative_attention_max_distance\":127}",
       "\"relative_attention_max_distance\" is 127, supported: 128"},
      {ARCHITECTURE("T5EncoderModel") ",\"feed_forward_proj\":\"gated-relu\"}",
       "\"feed_forward_proj\" is \"gated-relu\", supported: relu"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) bad(cases[i][0], cases[i][1]);
}

Test(families, refusals_say_what_is_needed) {
  static const char *const cases[][2] = {
      {ARCHITECTURE("Llama4ForConditionalGeneration") "}",
       "\"Llama4ForConditionalGeneration\" is not supported; it needs attention in chunks"},
      {ARCHITECTURE("BailingMoeV2ForCausalLM") ",\"auto_map\":{\"a\":\"b\"}}",
       "with which nothing was compared yet"},
      {ARCHITECTURE("BailingHybridForCausalLM") "}", "it needs layers of linear attention"},
      {ARCHITECTURE("MiMoForCausalLM") "}", "published with remote code alone"},
      {ARCHITECTURE("MiMoV2FlashForCausalLM") "}", "it needs values of another width than keys"},
      {ARCHITECTURE("MiniCPMForCausalLM") "}", "published with remote code alone"},
      {ARCHITECTURE("MiniCPM3ForCausalLM") "}", "it needs scales of its embeddings"},
      {ARCHITECTURE("DeciLMForCausalLM") "}", "its layers differ"},
      {ARCHITECTURE("Qwen2ForRewardModel") "}", "it needs a head of two layers"},
      {ARCHITECTURE("DbrxForCausalLM") "}", "it needs clipped q, k and v"},
      {ARCHITECTURE("Zamba2ForCausalLM") "}", "it needs blocks of attention that layers share"},
      {ARCHITECTURE("RwkvForCausalLM") "}", "it needs layers of RWKV"},
      {ARCHITECTURE("MiniMaxText01ForCausalLM") "}", "it needs lightning attention"},
      {ARCHITECTURE("MiniMaxForCausalLM") "}", "it needs lightning attention"},
      {ARCHITECTURE("LongcatFlashForCausalLM") "}", "it needs two attentions a layer"},
      {ARCHITECTURE("JinaBertForMaskedLM") "}", "(ALiBi)"},
      {ARCHITECTURE("NeoBERTLMHead") ",\"auto_map\":{\"a\":\"b\"}}",
       "published with remote code alone"},
      {ARCHITECTURE("Ernie4_5_VLMoeForConditionalGeneration") "}", "it needs experts of images"},
      {ARCHITECTURE("NopeForCausalLM") "}", "docs/models.md lists those that are"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) bad(cases[i][0], cases[i][1]);
}

Test(families, refusals) {
  static const char *const cases[][2] = {
      {ARCHITECTURE("BloomForCausalLM") ",\"apply_residual_connection_post_layernorm\":true}",
       "\"apply_residual_connection_post_layernorm\" is true"},
      {ARCHITECTURE("MptForCausalLM") ",\"attn_config\":{\"alibi\":false}}", "\"alibi\" is false"},
      {ARCHITECTURE("MptForCausalLM") ",\"attn_config\":{\"qk_ln\":true}}", "\"qk_ln\" is true"},
      {ARCHITECTURE("MptForCausalLM") ",\"attn_config\":{\"alibi_bias_max\":9}}",
       "\"alibi_bias_max\" is 9, supported: 8"},
      {ARCHITECTURE("OlmoeForCausalLM") ",\"clip_qkv\":8}", "\"clip_qkv\" is 8"},
      {ARCHITECTURE("ChatGLMModel") ",\"auto_map\":{\"a\":\"b\"}}",
       "(remote code is never run); its files for transformers are"},
      {ARCHITECTURE("Phi3SmallForCausalLM") "}", "\"Phi3SmallForCausalLM\""},
      {ARCHITECTURE("Speech2TextForConditionalGeneration") "}", "Speech2TextForConditionalGene"},
      {ARCHITECTURE("Qwen3VLForConditionalGeneration") "}", "\"text_config\" is missing"},
      {ARCHITECTURE("Mistral3ForConditionalGeneration") ",\"text_config\":{\"model_type\":"
                                                        "\"qwen2\"}}",
       "the text models of Mistral3ForConditionalGeneration"},
      {ARCHITECTURE("Gemma2ForCausalLM") ",\"hidden_act\":\"gelu\"}",
       "supported: \"gelu_pytorch_tanh\" for Gemma2ForCausalLM"},
      {ARCHITECTURE("Gemma2ForCausalLM") ",\"hidden_act\":\"silu\"}",
       "supported: \"gelu_pytorch_tanh\" for Gemma2ForCausalLM"},
      {ARCHITECTURE("Gemma2ForCausalLM") ",\"query_pre_attn_scalar\":0}", "query_pre_attn_scalar"},
      {ARCHITECTURE("Gemma2ForCausalLM") ",\"final_logit_softcapping\":-1}", "is -1"},
      {ARCHITECTURE("Gemma3ForCausalLM") ",\"attn_logit_softcapping\":50}",
       "\"attn_logit_softcapping\" is 50"},
      {ARCHITECTURE("Gemma3ForCausalLM") ",\"use_bidirectional_attention\":true}",
       "use_bidirectional_attention"},
      {ARCHITECTURE("Gemma3ForConditionalGeneration") "}", "\"text_config\" is missing"},
      {ARCHITECTURE("Gemma3ForConditionalGeneration") ",\"text_config\":7}",
       "\"text_config\" is 7"},
      {ARCHITECTURE("LlamaForCausalLM") ",\"text_config\":{\"a\":1}}", "\"text_config\" is"},
      {ARCHITECTURE("Gemma3ForCausalLM") ",\"rope_parameters\":{\"full_attention\":{},"
                                         "\"chunked_attention\":{}}}",
       "full_attention and sliding_attention"},
      {ARCHITECTURE("LlamaForCausalLM") ",\"rope_local_base_freq\":1e4}", "rope_local_base_freq"},
      {ARCHITECTURE("Olmo3ForCausalLM") ",\"rope_local_base_freq\":1e4}", "rope_local_base_freq"},
      {ARCHITECTURE("MixtralForCausalLM") ",\"num_experts_per_tok\":9}", "more than the 8 experts"},
      {ARCHITECTURE("MixtralForCausalLM") ",\"num_local_experts\":1025}", "is 1025"},
      {ARCHITECTURE("MixtralForCausalLM") ",\"num_local_experts\":0}", "needs some"},
      {ARCHITECTURE("MixtralForCausalLM") ",\"num_local_experts\":1000,"
                                          "\"num_hidden_layers\":1000}",
       "is 1000 in 1000 layers"},
      {ARCHITECTURE("Qwen3MoeForCausalLM") ",\"rope_theta\":1e6,\"mlp_only_layers\":[24]}",
       "\"mlp_only_layers\" is 24"},
      {ARCHITECTURE("Qwen3MoeForCausalLM") ",\"rope_theta\":1e6,\"decoder_sparse_step\":0}",
       "\"decoder_sparse_step\" is 0"},
      {ARCHITECTURE("Qwen2MoeForCausalLM") ",\"rope_theta\":1e6,\"use_sliding_window\":true}",
       "\"use_sliding_window\" is true"},
      {ARCHITECTURE("Qwen2MoeForCausalLM") "}", "\"rope_theta\" is missing"},
      {ARCHITECTURE("OlmoeForCausalLM") ",\"clip_qkv\":8}", "\"clip_qkv\" is 8"},
      {ARCHITECTURE("GptOssForCausalLM") ",\"swiglu_limit\":5}", "\"swiglu_limit\" is 5"},
      {ARCHITECTURE("GptOssForCausalLM") ",\"quantization_config\":{\"quant_method\":\"fp8\"}}",
       "\"quant_method\" is \"fp8\", supported: mxfp4"},
      {ARCHITECTURE("LlamaForCausalLM") ",\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
       "\"quant_method\" is \"mxfp4\", supported: fp8, compressed-tensors"},
      {ARCHITECTURE("GptOssForCausalLM") ",\"hidden_size\":72,\"head_dim\":64,"
                                         "\"quantization_config\":{\"quant_method\":\"mxfp4\"}}",
       "multiples of 32"},
      {ARCHITECTURE("GraniteForCausalLM") ",\"residual_multiplier\":0}", "residual_multiplier"},
      {ARCHITECTURE("GraniteForCausalLM") ",\"logits_scaling\":0}", "logits_scaling"},
      {ARCHITECTURE("LlamaForCausalLM") ",\"residual_multiplier\":0.2}", "residual_multiplier"},
      {ARCHITECTURE("SmolLM3ForCausalLM") ",\"no_rope_layers\":[1,0]}", "a list of 36 numbers"},
      {ARCHITECTURE("SmolLM3ForCausalLM") ",\"num_hidden_layers\":1,\"no_rope_layers\":[2]}",
       "0 or 1"},
      {ARCHITECTURE("LlamaForCausalLM") ",\"no_rope_layers\":[1]}", "no_rope_layers"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) bad(cases[i][0], cases[i][1]);
}

Test(families, a_back_end_without_experts_says_so) {
  static ops_t poor;
  poor = ops_cpu;
  poor.moe = NULL;
  rig_options_t options = {.ops = &poor,
                           .dir = "tests/vectors/models/moe-mixtral",
                           .dummy = true,
                           .dtype = -1,
                           .num_threads = 1};
  rig_t rig;
  ASSERT_EQ(rig_open(&options, &rig, &error), ERR_CONFIGURATION);
  cr_assert_not_null(strstr(error.message, "experts of MixtralForCausalLM"), "%s", error.message);
}

Test(families, gemma_overflows_in_float16) {
  rig_options_t options = {.ops = &ops_cpu,
                           .dir = "tests/vectors/models/gemma2",
                           .dummy = true,
                           .dtype = DTYPE_F16,
                           .num_threads = 1};
  rig_t rig;
  ASSERT_EQ(rig_open(&options, &rig, &error), ERR_CONFIGURATION);
  cr_assert_not_null(strstr(error.message, "use bfloat16 or float32"), "%s", error.message);
}

/* A Mixtral of one layer and two experts in the place of the maker's Llama. */
static void make_mixtral(maker_t *maker) {
  maker_open(maker);
  maker_set(maker, "architectures", "[\"MixtralForCausalLM\"]");
  maker_set(maker, "num_local_experts", "2");
  for (int i = 0; i < 3; i++) {
    static const char *const names[] = {"gate_proj", "up_proj", "down_proj"};
    char name[96];
    snprintf(name, sizeof(name), "model.layers.0.mlp.%s.weight", names[i]);
    maker_remove(maker, name);
  }
  maker_add(maker, "model.layers.0.block_sparse_moe.gate.weight", "F32", 2, 2, 8);
  for (int i = 0; i < 6; i++) {
    char name[96];
    snprintf(name, sizeof(name), "model.layers.0.block_sparse_moe.experts.%d.w%d.weight", i / 3,
             i % 3 + 1);
    maker_add(maker, name, "F32", 2, i % 3 == 1 ? 8 : 12, i % 3 == 1 ? 12 : 8);
  }
}

Test(families, files_of_experts) {
  maker_t maker;
  make_mixtral(&maker);
  maker_write(&maker);
  ASSERT_EQ_FOR(maker_load(&maker, -1, &error), 0, "%s", error.message);
  const char *last = "model.layers.0.block_sparse_moe.experts.1.w3.weight";
  maker_reshape(maker_tensor(&maker, last), "F32", 2, 8, 12);
  maker_write(&maker);
  ASSERT_EQ(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "experts.1.w3.weight: shape [8, 12], expected [12, 8] "
                                           "from the width of an expert, hidden_size"),
                     "%s", error.message);
  maker_reshape(maker_tensor(&maker, last), "F32", 2, 12, 8);
  maker_tensor(&maker, last)->poison = NAN;
  maker_write(&maker);
  ASSERT_EQ(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "experts.1.w3.weight: holds NaN"), "%s", error.message);
  maker_remove(&maker, last);
  maker_write(&maker);
  ASSERT_EQ(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "experts.1.w3.weight is missing"), "%s", error.message);
  maker_add(&maker, last, "F32", 2, 12, 8);
  maker_add(&maker, "model.layers.0.block_sparse_moe.experts.2.w1.weight", "F32", 2, 12, 8);
  maker_write(&maker);
  ASSERT_EQ(maker_load(&maker, -1, &error), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "1 unexpected tensor"), "%s", error.message);
  maker_close(&maker);
}

/* A copy of the stored MXFP4 model with one byte of a tensor replaced. */
static int load_patched(const char *name, size_t at, uint8_t byte) {
  static const char dir[] = "tests/vectors/models/files-gpt-oss-mxfp4";
  static uint8_t bytes[1 << 20];
  static char config[8192];
  maker_t maker;
  weight_files_t *files;
  ASSERT_EQ_FOR(weight_files_open(dir, &files, &error), 0, "%s", error.message);
  const stored_tensor_t *tensor = weight_files_find(files, name);
  cr_assert_not_null(tensor);
  FILE *file = fopen("tests/vectors/models/files-gpt-oss-mxfp4/model.safetensors", "rb");
  size_t length = fread(bytes, 1, sizeof(bytes), file);
  fclose(file);
  bytes[tensor->begin + at] = byte;
  weight_files_close(files);
  maker_open(&maker);
  file = fopen("tests/vectors/models/files-gpt-oss-mxfp4/config.json", "rb");
  size_t text = fread(config, 1, sizeof(config), file);
  fclose(file);
  maker_write_file(&maker, "config.json", config, text);
  maker_write_file(&maker, "model.safetensors", bytes, length);
  int status = maker_load(&maker, -1, &error);
  maker_close(&maker);
  return status;
}

Test(families, blocks_that_are_no_numbers) {
  const char *scales = "model.layers.1.mlp.experts.down_proj_scales";
  ASSERT_EQ_FOR(load_patched(scales, 5, 0), 0, "%s", error.message); /* 2^-127 and less: fine */
  ASSERT_EQ(load_patched(scales, 5, 255), ERR_MODEL_MALFORMED);
  cr_assert_not_null(strstr(error.message, "down_proj_blocks: holds NaN"), "%s", error.message);
  ASSERT_EQ(load_patched(scales, 5, 254), ERR_MODEL_MALFORMED); /* 2 x 2^127 and more */
}

/* One prefill, pieces of some tokens, and one by one give the same bits. */
static void check_pieces(const char *name) {
  enum { COUNT = 61 };
  vector_list_t list = vectors_open(name);
  vector_case_t c;
  vectors_read(&list, 0, &c);
  rig_options_t options = {.ops = &ops_cpu,
                           .dir = c.dir,
                           .dummy = !c.has_files,
                           .seed = c.seed,
                           .dtype = -1,
                           .max_model_len = c.max_model_len,
                           .num_threads = 2};
  size_t vocab = (size_t)c.vocab;
  float *whole = calloc(COUNT * vocab, sizeof(float)), *pieces = calloc(COUNT * vocab, 4);
  for (int32_t step = COUNT; step > 0; step = step == COUNT ? 17 : step == 17 ? 1 : 0) {
    rig_t rig;
    ASSERT_EQ_FOR(rig_open(&options, &rig, &error), 0, "%s", error.message);
    float *out = step == COUNT ? whole : pieces;
    for (int32_t at = 0; at < COUNT; at += step) {
      int32_t n = COUNT - at < step ? COUNT - at : step;
      ASSERT_EQ(rig_run(&rig, c.ids + at, n, at, n, out + (size_t)at * vocab, &error), 0);
    }
    rig_close(&rig);
    if (step == COUNT) continue;
    ASSERT_EQ_FOR(memcmp(whole, pieces, COUNT * vocab * sizeof(float)), 0, "%s by %d", name, step);
  }
  free(whole);
  free(pieces);
  vectors_free(&c);
  vectors_close(&list);
}

Test(families, pieces_of_a_prompt_make_no_difference) {
  static const char *const names[] = {
      "gemma2-bf16",          "gemma3-bf16",        "gemma4-e-bf16",      "phi3-gqa-bf16",
      "moe-qwen2-moe-normed", "moe-qwen3-moe-f16",  "gpt-oss-mxfp4-bf16", "olmo2-bf16",
      "smollm3-bf16",         "routed-glm4-moe-n",  "routed-ernie",       "latent-deepseek-v3",
      "latent-kimi-k2-bf16",  "recent-files-bloom", "recent-mpt",         "recent-ministral3-long",
      "recent-mistral4"};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) check_pieces(names[i]);
}

/* Blocks whose attention and MLP stand side by side. */
Test(families, parallel_blocks_read_one_norm_or_two) {
  good(ARCHITECTURE("GPTNeoXForCausalLM") "}");
  ASSERT_EQ(blueprint.block, BLOCK_PARALLEL);
  cr_assert(!blueprint.shared_norm);
  ASSERT_EQ(blueprint.rope.dims, 24);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("GPTNeoXForCausalLM") ",\"use_parallel_residual\":false,\"rotary_pct\":1}");
  ASSERT_EQ(blueprint.block, BLOCK_PRE_NORM);
  ASSERT_EQ(blueprint.rope.dims, 96);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("FalconForCausalLM") ",\"num_kv_heads\":71}");
  ASSERT_EQ(blueprint.block, BLOCK_PARALLEL);
  cr_assert(blueprint.shared_norm);
  ASSERT_EQ(blueprint.num_kv_heads, 1);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("FalconForCausalLM") ",\"hidden_size\":8192,\"num_attention_heads\":128,"
                                         "\"num_kv_heads\":8,\"parallel_attn\":false,"
                                         "\"new_decoder_architecture\":true}");
  ASSERT_EQ(blueprint.block, BLOCK_PARALLEL);
  cr_assert(!blueprint.shared_norm);
  ASSERT_EQ(blueprint.num_kv_heads, 8);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("StableLmForCausalLM") "}");
  ASSERT_EQ(blueprint.block, BLOCK_PRE_NORM);
  ASSERT_EQ(blueprint.rope.dims, 20);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("FalconForCausalLM") ",\"alibi\":true}", "alibi");
  bad(ARCHITECTURE("GPTNeoXForCausalLM") ",\"head_dim\":32}", "head_dim");
  bad(ARCHITECTURE("FalconForCausalLM") ",\"partial_rotary_factor\":0.5}", "partial_rotary_factor");
}

/* Layers without a window that are not rotated; files with the two of a rotated pair side by side.
 */
Test(families, layers_that_see_everything_may_not_be_rotated) {
  good(ARCHITECTURE("Cohere2ForCausalLM") ",\"num_hidden_layers\":5}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){1, 1, 1, 4, 1}), 5);
  cr_assert(blueprint.rope_pairs);
  cr_assert(blueprint.shared_norm);
  cr_assert_float_eq(blueprint.head_scale, 0.0625, 1e-12);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("Exaone4ForCausalLM") ",\"num_hidden_layers\":4}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){1, 1, 1, 4}), 4);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("Exaone4ForCausalLM") ",\"num_hidden_layers\":3,\"sliding_window\":null}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, 0, 0}), 3);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("Glm4ForCausalLM") "}");
  ASSERT_EQ(blueprint.rope.dims, 64);
  ASSERT_EQ(blueprint.block, BLOCK_SANDWICH);
  cr_assert(blueprint.qkv_bias);
  cr_assert(!blueprint.o_bias);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("Cohere2ForCausalLM") ",\"use_qk_norm\":true}", "use_qk_norm");
}

Test(families, squared_relu_and_heads_with_biases) {
  good(ARCHITECTURE("NemotronForCausalLM") "}");
  ASSERT_EQ(blueprint.activation, ACTIVATION_RELU2);
  cr_assert(blueprint.norm_plus_one);
  cr_assert(!blueprint.embed_rounds);
  ASSERT_EQ(blueprint.rope.dims, 64);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("GPTJForCausalLM") ",\"rope_theta\":5e5}");
  ASSERT_EQ(blueprint.rope.dims, 64);
  ASSERT_EQ(blueprint.rope.theta, 1e4);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("GPTBigCodeForCausalLM") "}");
  ASSERT_EQ(blueprint.num_kv_heads, 1);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("GPTJForCausalLM") ",\"rotary_dim\":null}", "rotary_dim");
  bad(ARCHITECTURE("PhiForCausalLM") ",\"qk_layernorm\":true}", "qk_layernorm");
}

Test(families, the_first_olmo_may_clip) {
  good(ARCHITECTURE("OlmoForCausalLM") ",\"clip_qkv\":8}");
  ASSERT_EQ(blueprint.qkv_limit, 8);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("OlmoForCausalLM") ",\"clip_qkv\":null}");
  ASSERT_EQ(blueprint.qkv_limit, 0);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("OlmoForCausalLM") ",\"clip_qkv\":-1}", "clip_qkv");
}

Test(families, norms_of_q_and_k) {
  good(ARCHITECTURE("CohereForCausalLM") ",\"use_qk_norm\":true}");
  cr_assert(blueprint.qk_norm);
  cr_assert(blueprint.qk_norm_each);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("HunYuanDenseV1ForCausalLM") ",\"rope_scaling\":{\"type\":\"dynamic\","
                                                 "\"alpha\":1000,\"mscale\":1}}");
  cr_assert(blueprint.qk_norm);
  cr_assert(blueprint.qk_norm_late);
  ASSERT_EQ(blueprint.rope.type, ROPE_DEFAULT);
  cr_assert_float_eq(blueprint.rope.theta, 1e4 * pow(1000, 128.0 / 126), 1);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("LlamaForCausalLM") ",\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2,"
                                       "\"alpha\":1000}}",
      "alpha");
}
