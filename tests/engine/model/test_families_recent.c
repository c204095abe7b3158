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

#define SWA(thetas)                                                                                \
  ARCHITECTURE("GraniteSWAForCausalLM")                                                            \
  ",\"num_hidden_layers\":5,\"layer_rope_theta\":" thetas "}"

Test(families_recent, granite_swa_has_a_base_of_the_rotation_for_each_layer) {
  const uint8_t window = LAYER_SLIDES, still = LAYER_NO_ROPE;
  good(SWA("null"));
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, window, window, window, 0}), 5);
  ASSERT_EQ(blueprint.window, 128);
  ASSERT_EQ(blueprint.rope.theta, 1e4);
  ASSERT_EQ(blueprint.local_rope.type, ROPE_NONE);
  cr_assert(blueprint.sinks && blueprint.tied);
  blueprint_free(&blueprint);
  good(SWA("[0,5e5,5e5,5e5,1e6]"));
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){still, window, window, window, 0}), 5);
  ASSERT_EQ(blueprint.rope.theta, 1e6);
  ASSERT_EQ(blueprint.local_rope.type, ROPE_DEFAULT);
  ASSERT_EQ(blueprint.local_rope.theta, 5e5);
  ASSERT_EQ(blueprint.local_rope.dims, blueprint.rope.dims);
  blueprint_free(&blueprint);
  good(SWA("[0,5e5,0,5e5,0]"));
  cr_assert_arr_eq(blueprint.layer_flags,
                   ((uint8_t[]){still, window, window | still, window, still}), 5);
  ASSERT_EQ(blueprint.rope.theta, 5e5);
  ASSERT_EQ(blueprint.local_rope.type, ROPE_NONE);
  blueprint_free(&blueprint);
  bad(SWA("[1e4,1e4,2e4,1e4,1e4]"), "layer_rope_theta");
  bad(SWA("[1e4,1e4,1e4,1e4]"), "must be a list of 5 numbers");
  bad(SWA("[1e4,1e4,-1,1e4,1e4]"), "layer_rope_theta");
  bad(SWA("[1e4,1e4,\"x\",1e4,1e4]"), "layer_rope_theta");
}

Test(families_recent, lfm3_has_three_kinds_of_layers) {
  const uint8_t window = LAYER_SLIDES, state = LAYER_MIXER | LAYER_NO_ATTENTION;
  good(ARCHITECTURE("Lfm3ForCausalLM") ",\"num_hidden_layers\":5}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){state, state, 0, state, window}), 5);
  ASSERT_EQ(blueprint.window, 256);
  ASSERT_EQ(blueprint.block, BLOCK_SANDWICH);
  ASSERT_EQ(blueprint.mixer.taps, 7);
  ASSERT_EQ(blueprint.rope.type, ROPE_PROPORTIONAL);
  ASSERT_EQ(blueprint.rope.moving, 64);
  ASSERT_EQ(blueprint.local_rope.theta, 1e4);
  cr_assert(blueprint.attn_gate && blueprint.attn_gate_by_head);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("Lfm3ForCausalLM") ",\"num_hidden_layers\":2,\"sliding_window\":null,"
                                       "\"use_sandwich_norm\":false,\"use_attention_gate\":false,"
                                       "\"layer_types\":[\"conv\",\"full_attention\"]}");
  ASSERT_EQ(blueprint.block, BLOCK_PRE_NORM);
  ASSERT_EQ(blueprint.window, 0);
  cr_assert_not(blueprint.attn_gate);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("Lfm3ForCausalLM") ",\"num_hidden_layers\":2,\"sliding_window\":null,"
                                      "\"layer_types\":[\"sliding_attention\","
                                      "\"full_attention\"]}",
      "sliding_window");
  bad(ARCHITECTURE("Lfm3ForCausalLM") ",\"num_hidden_layers\":2,"
                                      "\"layer_types\":[\"full_attention\",\"mamba\"]}",
      "layer_types");
  bad(ARCHITECTURE("Lfm3ForCausalLM") ",\"num_hidden_layers\":2,"
                                      "\"layer_types\":[\"full_attention\"]}",
      "layer_types");
}

Test(families_recent, nanochat_has_norms_without_weights) {
  good(ARCHITECTURE("NanoChatForCausalLM") ",\"num_hidden_layers\":2}");
  ASSERT_EQ(blueprint.final_softcap, 15.0);
  ASSERT_EQ(blueprint.activation, ACTIVATION_RELU2);
  cr_assert(blueprint.qk_norm && blueprint.qk_norm_late && blueprint.encoder.embed_norm);
  cr_assert(blueprint.rope.reversed);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("NanoChatForCausalLM") ",\"final_logit_softcapping\":null}");
  ASSERT_EQ(blueprint.final_softcap, 0.0);
  blueprint_free(&blueprint);
}

#define WRAPPED(architecture, outside, text)                                                       \
  ARCHITECTURE(architecture) outside ",\"text_config\":{" text "}}"

Test(families_recent, a_wrapper_has_a_text_model_of_any_family) {
  good(WRAPPED("InternVLForConditionalGeneration", ",\"vision_config\":{\"hidden_size\":8}",
               "\"model_type\":\"qwen3\",\"hidden_size\":1024,\"rope_theta\":1000000.0"));
  cr_assert_str_eq(blueprint.family, "qwen3");
  cr_assert_str_eq(blueprint.architecture, "InternVLForConditionalGeneration");
  ASSERT_EQ(blueprint.hidden_size, 1024);
  cr_assert(blueprint.tied && blueprint.qk_norm);
  blueprint_free(&blueprint);
  good(WRAPPED("KimiK25ForConditionalGeneration", ",\"tie_word_embeddings\":false",
               "\"model_type\":\"kimi_k2\""));
  cr_assert_str_eq(blueprint.family, "deepseek_v3");
  cr_assert(!blueprint.tied);
  blueprint_free(&blueprint);
}

Test(families_recent, a_text_model_stands_where_the_wrapper_says) {
  good(ARCHITECTURE("InternVLChatModel") ",\"tie_word_embeddings\":true,\"hidden_size\":9,"
                                         "\"vision_config\":{\"hidden_size\":8},\"llm_config\":{"
                                         "\"model_type\":\"internlm2\","
                                         "\"hidden_size\":1024,\"num_attention_heads\":8}}");
  cr_assert_str_eq(blueprint.family, "internlm2");
  ASSERT_EQ(blueprint.hidden_size, 1024);
  cr_assert(!blueprint.tied); /* a model of its own in there says whether it ties */
  blueprint_free(&blueprint);
  good(ARCHITECTURE(
      "Qwen3OmniMoeForConditionalGeneration") ",\"thinker_config\":{\"text_config\":"
                                              "{\"model_type\":\"qwen3_omni_moe_text\",\"num_"
                                              "attention_heads\":16,\"num_key_value_heads\":4,"
                                              "\"num_experts\":9}},\"talker_config\":{}}");
  cr_assert_str_eq(blueprint.family, "qwen3_omni_moe");
  ASSERT_EQ(blueprint.num_experts, 9);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("Phi3VForCausalLM") ",\"model_type\":\"phi3_v\",\"num_hidden_layers\":3,"
                                        "\"vision_config\":{\"hidden_size\":8}}");
  cr_assert_str_eq(blueprint.family, "phi3");
  ASSERT_EQ(blueprint.num_layers, 3);
  blueprint_free(&blueprint);
}

/* Its class gives them, though its text model is a Llama. */
Test(families_recent, a_wrapper_may_have_defaults_of_its_own) {
  good(WRAPPED("VoxtralForConditionalGeneration", "", "\"model_type\":\"llama\""));
  cr_assert_str_eq(blueprint.family, "voxtral");
  ASSERT_EQ(blueprint.head_dim, 128);
  ASSERT_EQ(blueprint.hidden_size, 3072);
  ASSERT_EQ(blueprint.rope.theta, 1e8);
  blueprint_free(&blueprint);
}

/* Positions of text are the same in every direction. */
Test(families_recent, sections_of_positions_say_nothing_of_text) {
  good(ARCHITECTURE("LlamaForCausalLM") ",\"rope_scaling\":{\"type\":\"mrope\","
                                        "\"mrope_section\":[16,24,24]}}");
  ASSERT_EQ(blueprint.rope.type, ROPE_DEFAULT);
  blueprint_free(&blueprint);
}

/* A position of a picture has a line and a column. */
Test(families_recent, sections_of_families_that_see) {
#define VL(name, type, more) WRAPPED(name, "", "\"model_type\":\"" type "\"" more)
#define SECTIONS_OF(text) ",\"rope_parameters\":{\"rope_theta\":1e6,\"mrope_section\":" text "}"
  static const struct {
    const char *text;
    mrope_t mrope;
    int32_t sections[3];
  } rows[] = {
      {VL("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", ""), MROPE_PARTS, {16, 24, 24}},
      {VL("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", SECTIONS_OF("[64,0,0]")),
       MROPE_PARTS,
       {64, 0, 0}},
      {VL("Qwen3VLForConditionalGeneration", "qwen3_vl_text", ""), MROPE_INTERLEAVED, {24, 20, 20}},
      {VL("Qwen3VLForConditionalGeneration", "qwen3_vl_text", SECTIONS_OF("[1,2,3]")),
       MROPE_INTERLEAVED,
       {1, 2, 3}},
      {VL("Qwen3_5ForConditionalGeneration", "qwen3_5_text", ""), MROPE_INTERLEAVED, {11, 11, 10}},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    good(rows[i].text);
    ASSERT_EQ(blueprint.rope.mrope, rows[i].mrope);
    for (int k = 0; k < 3; k++) ASSERT_EQ(blueprint.rope.sections[k], rows[i].sections[k]);
    blueprint_free(&blueprint);
  }
  static const char *const lists[] = {SECTIONS_OF("[16,24,23]"), SECTIONS_OF("[16,24,25]"),
                                      SECTIONS_OF("[16,48]"), SECTIONS_OF("[-1,40,25]"),
                                      SECTIONS_OF("64")};
  for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
    char text[512];
    snprintf(text, sizeof text, VL("Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", "%s"),
             lists[i]);
    bad(text, "mrope_section");
  }
}

Test(families_recent, text_models_of_glm_stand_in_two_wrappers) {
  good(WRAPPED("Glm46VForConditionalGeneration", "",
               "\"model_type\":\"glm4v_moe_text\",\"head_dim\":128,\"num_hidden_layers\":2"));
  cr_assert_str_eq(blueprint.family, "glm4v_moe");
  cr_assert(blueprint.qkv_bias && !blueprint.qk_norm && !blueprint.rope_pairs);
  ASSERT_EQ(blueprint.num_experts, 128);
  blueprint_free(&blueprint);
  good(WRAPPED("Glm4vForConditionalGeneration", "",
               "\"model_type\":\"glm4v_text\",\"rope_parameters\":{\"rope_type\":\"default\","
               "\"rope_theta\":10000.0,\"mrope_section\":[8,12,12]}"));
  ASSERT_EQ(blueprint.rope.dims, 128);
  cr_assert(blueprint.rope_pairs);
  blueprint_free(&blueprint);
}

/* [outside][in text_config]: absent, true, false; 0 and 1 as transformers 5.23 has it. */
static void expect_ties(const char *architecture, const char *type, const char *tied) {
  static const char *const keys[] = {"", ",\"tie_word_embeddings\":true",
                                     ",\"tie_word_embeddings\":false"};
  for (int i = 0; i < 9; i++) {
    char text[512];
    snprintf(text, sizeof(text),
             "{\"architectures\":[\"%s\"]%s,\"text_config\":{\"model_type\":\"%s\"%s}}",
             architecture, keys[i / 3], type, keys[i % 3]);
    good(text);
    ASSERT_EQ_FOR(blueprint.tied, tied[i] == '1', "%s", text);
    blueprint_free(&blueprint);
  }
}

Test(families_recent, a_wrapper_says_whether_the_head_is_the_embedding) {
  static const struct {
    const char *architecture, *type, *tied;
  } rows[] = {
      {"LlavaForConditionalGeneration", "llama", "010111010"},
      {"Mistral3ForConditionalGeneration", "mistral", "111111000"},
      {"Gemma3ForConditionalGeneration", "gemma3_text", "111111000"},
      {"Gemma4ForConditionalGeneration", "gemma4_text", "111111000"},
      {"Qwen2VLForConditionalGeneration", "qwen2_vl_text", "010111010"},
      {"Qwen2_5_VLForConditionalGeneration", "qwen2_5_vl_text", "010111010"},
      {"Qwen2_5OmniThinkerForConditionalGeneration", "qwen2_5_omni_text", "000111000"},
      {"Qwen3VLForConditionalGeneration", "qwen3_vl_text", "000111000"},
      {"Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text", "000111000"},
      {"Qwen3_5ForConditionalGeneration", "qwen3_5_text", "000111000"},
      {"Glm4vForConditionalGeneration", "glm4v_text", "010111010"},
      {"GlmOcrForConditionalGeneration", "glm_ocr_text", "010111010"},
      {"PaddleOCRVLForConditionalGeneration", "paddleocr_vl_text", "111111110"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    expect_ties(rows[i].architecture, rows[i].type, rows[i].tied);
  good(WRAPPED("Lfm2VlForConditionalGeneration", ",\"tie_embedding\":false",
               "\"model_type\":\"lfm2\",\"tie_word_embeddings\":true"));
  cr_assert(!blueprint.tied);
  blueprint_free(&blueprint);
}

Test(families_recent, a_wrapper_of_an_unknown_text_model_is_refused) {
  bad(ARCHITECTURE("InternVLForConditionalGeneration") "}", "text_config");
  bad(ARCHITECTURE("InternVLForConditionalGeneration") ",\"text_config\":[]}", "text_config");
  bad(ARCHITECTURE("InternVLChatModel") ",\"text_config\":{}}", "llm_config");
  bad(ARCHITECTURE("InternVLChatModel") ",\"llm_config\":7}", "llm_config");
  bad(ARCHITECTURE("Qwen2_5OmniModel") ",\"text_config\":{}}", "thinker_config");
  bad(ARCHITECTURE("Qwen2_5OmniModel") ",\"thinker_config\":{}}", "text_config");
  bad(WRAPPED("InternVLForConditionalGeneration", "", "\"model_type\":\"rwkv\""), "rwkv");
  bad(WRAPPED("InternVLForConditionalGeneration", "", "\"model_type\":\"bert\""), "bert");
  /* factors of the logits that the reference leaves out there */
  bad(WRAPPED("LlavaNextForConditionalGeneration", "", "\"model_type\":\"granite\""), "granite");
}

typedef struct reading {
  const char *text;
  rope_type_t type;
  double theta;
  const char *note;
} reading_t;

#define LLAMA ARCHITECTURE("LlamaForCausalLM") ",\"rope_theta\":500.0,"
#define GEMMA ARCHITECTURE("Gemma3ForCausalLM") ","
#define OLMO ARCHITECTURE("Olmo3ForCausalLM") ","
#define TYPES(old, new) "{\"type\":\"" old "\",\"rope_type\":\"" new "\",\"factor\":2.0}"

/* Files that can be read in two ways: the log says which one is taken. */
Test(families_recent, two_readings_of_the_angles_are_noted) {
  static const char taken[] = "which is taken: ", flat[] = "its values are taken",
                    nested[] = "taken for all layers";
  static const reading_t all[] = {
      {LLAMA "\"rope_scaling\":" TYPES("linear", "yarn") "}", ROPE_YARN, 500, taken},
      {LLAMA "\"rope_scaling\":" TYPES("yarn", "linear") "}", ROPE_LINEAR, 500, taken},
      {LLAMA "\"rope_scaling\":" TYPES("linear", "default") "}", ROPE_DEFAULT, 500, taken},
      {LLAMA "\"rope_parameters\":" TYPES("yarn", "dynamic") "}", ROPE_DYNAMIC, 500, taken},
      {LLAMA "\"rope_scaling\":" TYPES("banana", "linear") "}", ROPE_LINEAR, 500, taken},
      {LLAMA "\"rope_scaling\":" TYPES("mrope", "linear") "}", ROPE_LINEAR, 500, NULL},
      {LLAMA "\"rope_scaling\":" TYPES("linear", "linear") "}", ROPE_LINEAR, 500, NULL},
      {LLAMA "\"rope_scaling\":{\"type\":\"linear\",\"factor\":2.0}}", ROPE_LINEAR, 500, NULL},
      {LLAMA "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7.0}}}", ROPE_DEFAULT, 7,
       nested},
      {LLAMA "\"rope_scaling\":{\"full_attention\":" TYPES("linear", "linear") "}}", ROPE_LINEAR,
       500, nested},
      {LLAMA "\"rope_parameters\":{\"rope_theta\":7.0}}", ROPE_DEFAULT, 7, NULL},
      {GEMMA "\"rope_parameters\":{\"rope_theta\":7.0}}", ROPE_DEFAULT, 7, flat},
      {GEMMA "\"rope_parameters\":" TYPES("linear", "linear") "}", ROPE_LINEAR, 1e6, flat},
      {GEMMA "\"rope_scaling\":" TYPES("linear", "linear") "}", ROPE_LINEAR, 1e6, NULL},
      {GEMMA "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":7.0}}}", ROPE_DEFAULT, 7,
       NULL},
      {OLMO "\"rope_parameters\":{\"rope_theta\":7.0}}", ROPE_DEFAULT, 7, flat},
      {OLMO "\"rope_theta\":7.0}", ROPE_DEFAULT, 7, NULL},
      {OLMO "\"rope_parameters\":{\"full_attention\":" TYPES("linear", "yarn") "}}", ROPE_YARN, 5e5,
       taken},
  };
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
    good(all[i].text);
    EXPECT_EQ_FOR(blueprint.rope.type, all[i].type, "%s", all[i].text);
    EXPECT_EQ_FOR(blueprint.rope.theta, all[i].theta, "%s", all[i].text);
    if (all[i].note == NULL)
      EXPECT_STR_EQ_FOR(blueprint.notes, "", "%s", all[i].text);
    else
      cr_expect_not_null(strstr(blueprint.notes, all[i].note), "%s: \"%s\"", all[i].text,
                         blueprint.notes);
    blueprint_free(&blueprint);
  }
}

Test(families_recent, gpt_neo_lists_its_layers) {
  static const uint8_t mixed[5] = {LAYER_SLIDES, LAYER_SLIDES, 0, LAYER_SLIDES, 0};
#define NEO(layers, types)                                                                         \
  ARCHITECTURE("GPTNeoForCausalLM") ",\"num_layers\":" layers ",\"attention_types\":" types "}"
  good(NEO("5", "[[[\"local\"],2],[[\"global\",\"local\"],1],[[\"global\"],1],[[\"local\"],0]]"));
  cr_assert_arr_eq(blueprint.layer_flags, mixed, 5);
  ASSERT_EQ(blueprint.window, 256);
  ASSERT_EQ(blueprint.attn_scale, 1.0);
  blueprint_free(&blueprint);
  good(NEO("2", "[[[\"global\"],2]]"));
  ASSERT_EQ(blueprint.window, 0);
  blueprint_free(&blueprint);
  good(ARCHITECTURE("GPTNeoForCausalLM") "}");
  for (int i = 0; i < 24; i++) ASSERT_EQ(blueprint.layer_flags[i], i % 2 == 0 ? 0 : LAYER_SLIDES);
  blueprint_free(&blueprint);
  static const char *const wrong[] = {NEO("2", "null"),
                                      NEO("2", "7"),
                                      NEO("2", "[7]"),
                                      NEO("2", "[[[\"global\"],1]]"),
                                      NEO("2", "[[[\"global\"],3]]"),
                                      NEO("2", "[[[\"global\"]]]"),
                                      NEO("2", "[[[],2]]"),
                                      NEO("2", "[[\"global\",2]]"),
                                      NEO("2", "[[[\"banana\"],2]]"),
                                      NEO("2", "[[[\"global\"],9000000000000000000]]"),
                                      NEO("2", "[[[\"global\"],\"2\"]]")};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) bad(wrong[i], "attention_types");
}

Test(families_recent, a_hyperclova_has_norms_behind_its_blocks_or_not) {
  good(ARCHITECTURE("HyperCLOVAXForCausalLM") ",\"logits_scaling\":0.125}");
  ASSERT_EQ(blueprint.block, BLOCK_SANDWICH);
  ASSERT_EQ(blueprint.head_scale, 0.125);
  ASSERT_EQ(blueprint.attn_scale, 0.0); /* of its heads */
  blueprint_free(&blueprint);
  good(ARCHITECTURE("HyperCLOVAXForCausalLM") ",\"use_post_norm\":false,"
                                              "\"attention_multiplier\":0.5}");
  ASSERT_EQ(blueprint.block, BLOCK_PRE_NORM);
  ASSERT_EQ(blueprint.attn_scale, 0.5);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("HyperCLOVAXForCausalLM") ",\"use_post_norm\":1}", "use_post_norm");
}

Test(families_recent, a_vaultgemma_has_no_norms_behind_its_blocks) {
  good(ARCHITECTURE("VaultGemmaForCausalLM") ",\"head_dim\":128}");
  ASSERT_EQ(blueprint.block, BLOCK_PRE_NORM);
  ASSERT_EQ(blueprint.attn_scale, 1.0 / 16); /* query_pre_attn_scalar is 256 */
  ASSERT_EQ(blueprint.attn_softcap, 50.0);
  ASSERT_EQ(blueprint.window, 4096);
  blueprint_free(&blueprint);
  bad(ARCHITECTURE("VaultGemmaForCausalLM") ",\"hidden_act\":\"gelu\"}", "gelu_pytorch_tanh");
}
