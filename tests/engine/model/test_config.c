/* test_config.c: config.json and generation_config.json as a blueprint, value by value. */
#include "tests/engine/model/maker.h"
#include "tests/expect.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static maker_t maker;
static blueprint_t blueprint;

static void read_with(double tokenizer_max, int32_t tokenizer_eos) {
  inferd_error_t error = {0};
  maker_write_config(&maker);
  int status = blueprint_read(maker.dir, tokenizer_max, tokenizer_eos, &blueprint, &error);
  ASSERT_EQ_FOR(status, 0, "%s", error.message);
}

static void done(void) {
  blueprint_free(&blueprint);
  maker_close(&maker);
}

/* A config with these members and nothing else. */
static void read_text(const char *text) {
  maker_open(&maker);
  snprintf(maker.config, sizeof(maker.config), "%s", text);
  read_with(0, -1);
}

Test(config, a_llama_in_full) {
  maker_open(&maker);
  read_with(0, -1);
  ASSERT_STR_EQ(blueprint.family, "llama");
  ASSERT_STR_EQ(blueprint.architecture, "LlamaForCausalLM");
  ASSERT_EQ(blueprint.vocab_size, 8);
  ASSERT_EQ(blueprint.num_heads, 2);
  ASSERT_EQ(blueprint.num_kv_heads, 1);
  ASSERT_EQ(blueprint.head_dim, 4);
  ASSERT_EQ(blueprint.embed_size, 8);
  ASSERT_EQ(blueprint.dtype, DTYPE_F32);
  ASSERT_EQ(blueprint.norm, NORM_RMS);
  cr_assert_float_eq(blueprint.norm_eps, 1e-5, 1e-12);
  cr_assert(blueprint.gated_mlp);
  cr_assert(blueprint.final_norm);
  cr_assert(blueprint.norm_affine);
  cr_assert(!blueprint.tied);
  cr_assert(!blueprint.qkv_bias);
  cr_assert(!blueprint.o_bias);
  cr_assert(!blueprint.mlp_bias);
  cr_assert(!blueprint.qk_norm);
  cr_assert(!blueprint.learned_positions);
  ASSERT_EQ(blueprint.activation, ACTIVATION_SILU_MUL);
  ASSERT_EQ(blueprint.rope.type, ROPE_DEFAULT);
  ASSERT_EQ(blueprint.rope.dims, 4);
  ASSERT_EQ(blueprint.window, 0);
  ASSERT_EQ(blueprint.max_model_len, 32);
  ASSERT_EQ(blueprint.num_eos, 1);
  ASSERT_EQ(blueprint.primary_eos, 2);
  ASSERT_EQ(blueprint.bos_id, 1);
  cr_assert(isnan(blueprint.temperature));
  cr_assert(isnan(blueprint.top_p));
  cr_assert(isnan(blueprint.min_p));
  ASSERT_EQ(blueprint.top_k, -1);
  ASSERT_EQ(blueprint.num_parameters, 2 * 64 + 8 + 2 * 8 + 64 + 32 + 32 + 64 + 3 * 96);
  done();
}

typedef struct defaults {
  const char *architecture, *more;
  int32_t vocab, hidden, mlp, layers, heads, kv_heads, head_dim, positions, window, eos;
  bool tied, qkv_bias;
} defaults_t;

Test(config, class_defaults_of_absent_keys) {
  static const defaults_t all[] = {
      {"LlamaForCausalLM", "", 32000, 4096, 11008, 32, 32, 32, 128, 2048, 0, 2, false, false},
      {"MistralForCausalLM", "", 32000, 4096, 14336, 32, 32, 8, 128, 131072, 4096, 2, false, false},
      {"Qwen2ForCausalLM", ",\"rope_theta\":1e6", 151936, 4096, 22016, 32, 32, 32, 128, 32768, 0,
       -1, false, true},
      {"Qwen3ForCausalLM", ",\"rope_theta\":1e6,\"hidden_size\":1024", 151936, 1024, 22016, 32, 32,
       32, 128, 32768, 0, -1, false, false},
      {"OPTForCausalLM", "", 50272, 768, 3072, 12, 12, 12, 64, 2048, 0, 2, true, true},
      {"GPT2LMHeadModel", "", 50257, 768, 3072, 12, 12, 12, 64, 1024, 0, 50256, true, true},
  };
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
    const defaults_t *d = &all[i];
    char text[256];
    snprintf(text, sizeof(text), "{\"architectures\":[\"%s\"]%s}", d->architecture, d->more);
    read_text(text);
    ASSERT_EQ_FOR(blueprint.vocab_size, d->vocab, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.hidden_size, d->hidden, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.intermediate_size, d->mlp, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.num_layers, d->layers, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.num_heads, d->heads, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.num_kv_heads, d->kv_heads, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.head_dim, d->head_dim, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.max_model_len, d->positions, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.window, d->window, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.primary_eos, d->eos, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.tied, d->tied, "%s", d->architecture);
    ASSERT_EQ_FOR(blueprint.qkv_bias, d->qkv_bias, "%s", d->architecture);
    done();
  }
}

Test(config, null_is_not_absent) {
  read_text("{\"architectures\":[\"MistralForCausalLM\"],\"sliding_window\":null,"
            "\"num_key_value_heads\":null,\"head_dim\":null}");
  ASSERT_EQ(blueprint.window, 0);
  ASSERT_EQ(blueprint.num_kv_heads, 32);
  ASSERT_EQ(blueprint.head_dim, 128);
  done();
}

Test(config, family_by_model_type_when_architectures_is_silent) {
  read_text("{\"model_type\":\"gpt2\",\"architectures\":null}");
  ASSERT_STR_EQ(blueprint.architecture, "GPT2LMHeadModel");
  cr_assert(blueprint.conv1d);
  cr_assert(blueprint.learned_positions);
  ASSERT_EQ(blueprint.num_positions, 1024);
  ASSERT_EQ(blueprint.activation, ACTIVATION_GELU_TANH);
  done();
}

/* The shape of facebook/opt-350m. */
Test(config, opt_350m) {
  read_text("{\"architectures\":[\"OPTForCausalLM\"],\"hidden_size\":1024,\"ffn_dim\":4096,"
            "\"num_hidden_layers\":24,\"num_attention_heads\":16,\"word_embed_proj_dim\":512,"
            "\"do_layer_norm_before\":false,\"torch_dtype\":\"float16\"}");
  ASSERT_EQ(blueprint.block, BLOCK_POST_NORM);
  cr_assert(!blueprint.final_norm);
  ASSERT_EQ(blueprint.embed_size, 512);
  ASSERT_EQ(blueprint.position_offset, 2);
  ASSERT_EQ(blueprint.activation, ACTIVATION_RELU);
  cr_assert(blueprint.o_bias);
  cr_assert(blueprint.mlp_bias);
  cr_assert(!blueprint.gated_mlp);
  ASSERT_EQ(blueprint.dtype, DTYPE_F16);
  ASSERT_EQ(blueprint.num_parameters, 331196416); /* what the published model has */
  done();
}

/* Parameter counts of published models, which the tensor list must reproduce. */
Test(config, published_sizes) {
  read_text("{\"architectures\":[\"GPT2LMHeadModel\"]}");
  ASSERT_EQ(blueprint.num_parameters, 124439808);
  done();
  read_text("{\"architectures\":[\"OPTForCausalLM\"]}");
  ASSERT_EQ(blueprint.num_parameters, 125239296);
  done();
  read_text("{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":128256,"
            "\"intermediate_size\":14336,\"num_key_value_heads\":8,\"torch_dtype\":\"bfloat16\"}");
  ASSERT_EQ(blueprint.num_parameters, 8030261248);
  done();
  read_text("{\"architectures\":[\"Qwen2ForCausalLM\"],\"hidden_size\":896,"
            "\"intermediate_size\":4864,\"num_hidden_layers\":24,\"num_attention_heads\":14,"
            "\"num_key_value_heads\":2,\"tie_word_embeddings\":true,\"rope_theta\":1e6}");
  ASSERT_EQ(blueprint.num_parameters, 494032768);
  done();
  read_text("{\"architectures\":[\"Qwen3ForCausalLM\"],\"hidden_size\":1024,"
            "\"intermediate_size\":3072,\"num_hidden_layers\":28,\"num_attention_heads\":16,"
            "\"num_key_value_heads\":8,\"tie_word_embeddings\":true,\"rope_theta\":1e6}");
  ASSERT_EQ(blueprint.num_parameters, 596049920);
  done();
}

Test(config, llama3_scaling_in_both_styles) {
  static const char *const texts[] = {
      "{\"architectures\":[\"LlamaForCausalLM\"],\"max_position_embeddings\":131072,"
      "\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8.0,"
      "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":8192}}",
      "{\"architectures\":[\"LlamaForCausalLM\"],\"max_position_embeddings\":131072,"
      "\"rope_parameters\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\",\"factor\":8.0,"
      "\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":8192}}",
      "{\"architectures\":[\"LlamaForCausalLM\"],\"max_position_embeddings\":131072,"
      "\"rope_parameters\":{\"full_attention\":{\"rope_theta\":500000.0,\"rope_type\":\"llama3\","
      "\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"
      "\"original_max_position_embeddings\":8192}}}",
  };
  for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
    read_text(texts[i]);
    const rope_config_t *rope = &blueprint.rope;
    ASSERT_EQ(rope->type, ROPE_LLAMA3);
    ASSERT_EQ(rope->theta, 500000.0);
    ASSERT_EQ(rope->factor, 8.0);
    ASSERT_EQ(rope->low_freq_factor, 1.0);
    ASSERT_EQ(rope->high_freq_factor, 4.0);
    ASSERT_EQ(rope->original_max, 8192);
    ASSERT_EQ(blueprint.max_model_len, 131072); /* llama3 does not stretch it again */
    done();
  }
}

Test(config, rope_scaling_stands_before_rope_parameters) {
  read_text("{\"architectures\":[\"LlamaForCausalLM\"],\"rope_theta\":500.0,"
            "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7.0},"
            "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8.0}}");
  ASSERT_EQ(blueprint.rope.type, ROPE_LINEAR);
  ASSERT_EQ(blueprint.rope.theta, 500.0);
  done();
  read_text("{\"architectures\":[\"LlamaForCausalLM\"],\"rope_theta\":500.0,\"rope_scaling\":{},"
            "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":7.0}}");
  ASSERT_EQ(blueprint.rope.type, ROPE_DEFAULT);
  ASSERT_EQ(blueprint.rope.theta, 7.0);
  done();
}

Test(config, gpt_oss_has_yarn_without_a_word) {
  read_text("{\"architectures\":[\"GptOssForCausalLM\"],\"rope_scaling\":null}");
  const rope_config_t *rope = &blueprint.rope;
  ASSERT_EQ(rope->type, ROPE_YARN);
  ASSERT_EQ(rope->factor, 32);
  ASSERT_EQ(rope->original_max, 4096);
  ASSERT_EQ(rope->beta_fast, 32);
  ASSERT_EQ(rope->beta_slow, 1);
  cr_assert(!rope->truncate);
  cr_assert_float_eq(rope->attention_factor, 1.346573590, 1e-9);
  ASSERT_EQ(blueprint.max_model_len, 131072);
  done();
}

Test(config, length_by_type_of_scaling) {
  static const struct {
    const char *scaling;
    int32_t length, unasked; /* with --max-model-len, without */
  } cases[] = {
      {"{\"type\":\"linear\",\"factor\":2.5}", 10240, 10240},
      {"{\"type\":\"dynamic\",\"factor\":2.0}", 8192, 4096},
      {"{\"type\":\"yarn\",\"factor\":4.0,\"original_max_position_embeddings\":2048}", 8192, 8192},
      {"null", 4096, 4096},
      {"{\"rope_type\":\"default\"}", 4096, 4096},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    char text[512];
    snprintf(text, sizeof(text),
             "{\"architectures\":[\"LlamaForCausalLM\"],\"max_position_embeddings\":4096,"
             "\"rope_scaling\":%s}",
             cases[i].scaling);
    read_text(text);
    ASSERT_EQ_FOR(blueprint.max_model_len, cases[i].length, "%s", cases[i].scaling);
    ASSERT_EQ_FOR(blueprint.default_model_len, cases[i].unasked, "%s", cases[i].scaling);
    done();
  }
}

Test(config, tokenizer_may_shorten_the_context) {
  maker_open(&maker);
  read_with(20, -1);
  ASSERT_EQ(blueprint.max_model_len, 20);
  blueprint_free(&blueprint);
  read_with(1e30, -1);
  ASSERT_EQ(blueprint.max_model_len, 32);
  done();
}

Test(config, windows_of_qwen) {
  read_text("{\"architectures\":[\"Qwen2ForCausalLM\"],\"rope_theta\":1e6,"
            "\"num_hidden_layers\":4,\"use_sliding_window\":true,\"sliding_window\":99,"
            "\"max_window_layers\":3}");
  ASSERT_EQ(blueprint.window, 99);
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){0, 0, 0, 1}), 4);
  done();
  read_text("{\"architectures\":[\"Qwen2ForCausalLM\"],\"rope_theta\":1e6,"
            "\"num_hidden_layers\":3,\"use_sliding_window\":true,\"sliding_window\":99,"
            "\"layer_types\":[\"sliding_attention\",\"full_attention\",\"sliding_attention\"]}");
  cr_assert_arr_eq(blueprint.layer_flags, ((uint8_t[]){1, 0, 1}), 3);
  done();
  read_text("{\"architectures\":[\"Qwen2ForCausalLM\"],\"rope_theta\":1e6,"
            "\"num_hidden_layers\":2,\"use_sliding_window\":false,\"sliding_window\":99,"
            "\"max_window_layers\":0}");
  ASSERT_EQ(blueprint.window, 0);
  done();
}

Test(config, biases_of_qwen3_follow_the_key) {
  read_text("{\"architectures\":[\"Qwen3ForCausalLM\"],\"rope_theta\":1e6,"
            "\"attention_bias\":true}");
  cr_assert(blueprint.qkv_bias);
  cr_assert(blueprint.o_bias);
  cr_assert(!blueprint.mlp_bias);
  cr_assert(blueprint.qk_norm);
  done();
}

Test(config, eos_ids_are_a_union) {
  maker_open(&maker);
  maker_set(&maker, "eos_token_id", "[4, 2]");
  snprintf(maker.generation, sizeof(maker.generation), "{\"eos_token_id\": [2, 5, 6]}");
  read_with(0, 6);
  ASSERT_EQ(blueprint.primary_eos, 6);
  ASSERT_EQ(blueprint.num_eos, 4);
  cr_assert_arr_eq(blueprint.eos_ids, ((int32_t[]){6, 4, 2, 5}), 4 * sizeof(int32_t));
  blueprint_free(&blueprint);
  read_with(0, -1);
  ASSERT_EQ(blueprint.primary_eos, 4);
  done();
}

Test(config, eos_behind_the_vocabulary_is_dropped) {
  maker_open(&maker); /* 8 ids */
  maker_set(&maker, "eos_token_id", "[8, 2]");
  snprintf(maker.generation, sizeof(maker.generation), "{\"eos_token_id\": 151645}");
  read_with(0, -1);
  ASSERT_EQ(blueprint.num_eos, 1);
  ASSERT_EQ(blueprint.eos_ids[0], 2);
  ASSERT_STR_EQ(blueprint.notes,
                "warning: config.json: eos_token_id 8 is dropped, the vocabulary ends at 7\n"
                "warning: generation_config.json: eos_token_id 151645 is dropped, the vocabulary "
                "ends at 7");
  done();
}

Test(config, eos_null_means_none) {
  maker_open(&maker);
  maker_set(&maker, "eos_token_id", "null");
  read_with(0, -1);
  ASSERT_EQ(blueprint.primary_eos, -1);
  ASSERT_EQ(blueprint.num_eos, 0);
  done();
}

Test(config, sampling_defaults) {
  maker_open(&maker);
  snprintf(maker.generation, sizeof(maker.generation),
           "{\"do_sample\": true, \"temperature\": 0.7, \"top_p\": 0.8, \"top_k\": 20, "
           "\"min_p\": 0.05, \"repetition_penalty\": 1.05, \"max_new_tokens\": 512, "
           "\"num_beams\": \"many\", \"transformers_version\": \"4.51.0\"}");
  read_with(0, -1);
  cr_assert_float_eq(blueprint.temperature, 0.7, 1e-6);
  cr_assert_float_eq(blueprint.top_p, 0.8, 1e-6);
  cr_assert_float_eq(blueprint.min_p, 0.05, 1e-6);
  cr_assert_float_eq(blueprint.repetition_penalty, 1.05, 1e-6);
  ASSERT_EQ(blueprint.top_k, 20);
  ASSERT_EQ(blueprint.max_new_tokens, 512);
  done();
}

Test(config, dtype_of_the_embedding_when_no_key_says) {
  maker_open(&maker);
  maker_set(&maker, "torch_dtype", NULL);
  read_with(0, -1);
  ASSERT_EQ(blueprint.dtype, DTYPE_F32);
  blueprint_free(&blueprint);
  maker_reshape(maker_tensor(&maker, "model.embed_tokens.weight"), "BF16", 2, 8, 8);
  maker_write(&maker);
  read_with(0, -1);
  ASSERT_EQ(blueprint.dtype, DTYPE_BF16);
  done();
}
