/* metadata.c: one key of a GGUF file after the other -> a member of config.json; see metadata.h.
 *
 * Any thread, no state.
 */
#include "engine/model/config/metadata.h"

#include "engine/base/util.h"
#include "engine/model/config/config_gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Where the value of a key of config.json comes from; "%" is the architecture. */
static const struct {
  const char *key, *source;
} sources[] = {
    {"num_hidden_layers", "%.block_count"},
    {"hidden_size", "%.embedding_length"},
    {"intermediate_size", "%.feed_forward_length"},
    {"num_attention_heads", "%.attention.head_count"},
    {"num_key_value_heads", "%.attention.head_count_kv"},
    {"head_dim", "%.attention.key_length"},
    {"max_position_embeddings", "%.context_length"},
    {"rms_norm_eps", "%.attention.layer_norm_rms_epsilon"},
    {"layer_norm_epsilon", "%.attention.layer_norm_epsilon"},
    {"rope_theta", "%.rope.freq_base"},
    {"rope_local_base_freq", "%.rope.freq_base_swa"},
    {"factor", "%.rope.scaling.factor"},
    {"original_max_position_embeddings", "%.rope.scaling.original_context_length"},
    {"attention_factor", "%.rope.scaling.attn_factor"},
    {"attn_factor", "%.rope.scaling.attn_factor"},
    {"beta_fast", "%.rope.scaling.yarn_beta_fast"},
    {"beta_slow", "%.rope.scaling.yarn_beta_slow"},
    {"llama_4_scaling_beta", "%.attention.temperature_scale"},
    {"mscale", "%.rope.scaling.yarn_log_multiplier"},
    {"sliding_window", "%.attention.sliding_window"},
    {"local_attention", "%.attention.sliding_window"},
    {"global_attn_every_n_layers", "%.attention.sliding_window_pattern"},
    {"hidden_activation", "%.hidden_activation"},
    {"type_vocab_size", "the rows of token_types.weight"},
    {"num_labels", "the rows of cls.output.weight"},
    {"sliding_window_pattern", "%.attention.sliding_window_pattern"},
    {"layer_types", "%.attention.sliding_window_pattern"},
    {"attn_logit_softcapping", "%.attn_logit_softcapping"},
    {"final_logit_softcapping", "%.final_logit_softcapping"},
    {"query_pre_attn_scalar", "%.attention.scale"},
    {"attention_multiplier", "%.attention.scale"},
    {"embedding_multiplier", "%.embedding_scale"},
    {"residual_multiplier", "%.residual_scale"},
    {"logits_scaling", "%.logit_scale"},
    {"num_experts", "%.expert_count"},
    {"num_experts_per_tok", "%.expert_used_count"},
    {"moe_intermediate_size", "%.expert_feed_forward_length"},
    {"partial_rotary_factor", "%.rope.dimension_count"},
    {"n_routed_experts", "%.expert_count"},
    {"moe_num_experts", "%.expert_count"},
    {"moe_k", "%.expert_used_count"},
    {"routed_scaling_factor", "%.expert_weights_scale"},
    {"n_group", "%.expert_group_count"},
    {"topk_group", "%.expert_group_used_count"},
    {"moe_layer_interval", "%.interleave_moe_layer_step"},
    {"rotary_dim", "%.rope.dimension_count"},
    {"kv_lora_rank", "%.attention.kv_lora_rank"},
    {"q_lora_rank", "%.attention.q_lora_rank"},
    {"qk_rope_head_dim", "%.rope.dimension_count"},
    {"qk_nope_head_dim", "%.attention.key_length_mla"},
    {"v_head_dim", "%.attention.value_length_mla"},
    {"short_factor", "rope_factors_short.weight"},
    {"long_factor", "rope_factors_long.weight"},
    {"eos_token_id", "tokenizer.ggml.eos_token_id"},
    {"bos_token_id", "tokenizer.ggml.bos_token_id"},
    {"conv_L_cache", "%.shortconv.l_cache"},
    {"linear_conv_kernel_dim", "%.ssm.conv_kernel"},
    {"mamba_d_conv", "%.ssm.conv_kernel"},
    {"conv_kernel", "%.ssm.conv_kernel"},
    {"linear_key_head_dim", "%.ssm.state_size"},
    {"mamba_d_state", "%.ssm.state_size"},
    {"ssm_state_size", "%.ssm.state_size"},
    {"linear_num_key_heads", "%.ssm.group_count"},
    {"mamba_n_groups", "%.ssm.group_count"},
    {"n_groups", "%.ssm.group_count"},
    {"linear_num_value_heads", "%.ssm.time_step_rank"},
    {"mamba_n_heads", "%.ssm.time_step_rank"},
    {"mamba_num_heads", "%.ssm.time_step_rank"},
    {"linear_value_head_dim", "%.ssm.inner_size"},
    {"mamba_d_head", "%.ssm.inner_size"},
    {"mamba_head_dim", "%.ssm.inner_size"},
    {"mamba_expand", "%.ssm.inner_size"},
    {"mamba_d_ssm", "%.ssm.inner_size"},
    {"vocab_size", "the rows of token_embd.weight"},
};

void metadata_refuse(metadata_t *writer, const char *key, const char *format, ...) {
  char reason[ERROR_MESSAGE_MAX - 160];
  va_list arguments;
  if (writer->code != 0) return;
  va_start(arguments, format);
  vsnprintf(reason, sizeof(reason), format, arguments);
  va_end(arguments);
  writer->code = error_set(writer->error, ERR_MODEL_MALFORMED, key, "%s: \"%s\" %s",
                           gguf_path(writer->gguf, 0), key, reason);
}

const char *metadata_key(const char *arch, const char *source, char *out, size_t capacity) {
  bool own = source[0] == '%';
  snprintf(out, capacity, "%s%s", own ? arch : "", source + own);
  return out;
}

const char *config_gguf_key(const char *arch, const char *key, char *out, size_t capacity) {
  for (size_t i = 0; i < ARRAY_LEN(sources); i++) {
    if (strcmp(sources[i].key, key) == 0)
      return metadata_key(arch, sources[i].source, out, capacity);
  }
  return key;
}

const gguf_value_t *metadata_find(const metadata_t *writer, const char *source, char *key) {
  return gguf_get(writer->gguf, metadata_key(writer->arch, source, key, KEY_TEXT_MAX));
}

void metadata_name(metadata_t *writer, const char *key) {
  if (writer->json->length > 1) buffer_char(writer->json, ',');
  buffer_quote(writer->json, key, strlen(key));
  buffer_char(writer->json, ':');
}

void metadata_put_text(metadata_t *writer, const char *key, const char *text) {
  metadata_name(writer, key);
  buffer_quote(writer->json, text, strlen(text));
}

void metadata_put_int(metadata_t *writer, const char *key, int64_t number) {
  metadata_name(writer, key);
  buffer_int(writer->json, number);
}

void metadata_plain_double(metadata_t *writer, double number) {
  char text[40];
  snprintf(text, sizeof(text), "%.17g", isfinite(number) ? number : 0.0);
  buffer_text(writer->json, text);
}

void metadata_put_double(metadata_t *writer, const char *key, double number) {
  metadata_name(writer, key);
  metadata_plain_double(writer, number);
}

void metadata_put_bool(metadata_t *writer, const char *key, bool flag) {
  metadata_name(writer, key);
  buffer_text(writer->json, flag ? "true" : "false");
}

/* The integer of a key. A list with one number for every layer counts if they are all the same. */
bool metadata_take_int(metadata_t *writer, const char *source, int64_t *out) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, source, key);
  int64_t other;
  if (value == NULL || writer->code != 0) return false;
  if (!gguf_int(value, 0, out)) {
    metadata_refuse(writer, key, "is no integer");
    return false;
  }
  for (uint32_t i = 1; i < value->count; i++) {
    if (gguf_int(value, i, &other) && other == *out) continue;
    metadata_refuse(writer, key,
                    "differs between layers: %" PRId64 " at layer 0, %" PRId64 " at layer %u; "
                    "supported: the same in all",
                    *out, other, i);
    return false;
  }
  return true;
}

bool metadata_take_double(metadata_t *writer, const char *source, double *out) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, source, key);
  if (value == NULL || writer->code != 0) return false;
  if (value->kind != GGUF_ARRAY && gguf_double(value, 0, out) && isfinite(*out)) return true;
  metadata_refuse(writer, key, "is no finite number");
  return false;
}

void metadata_copy_int(metadata_t *writer, const char *key, const char *source) {
  int64_t number;
  if (metadata_take_int(writer, source, &number)) metadata_put_int(writer, key, number);
}

bool metadata_copy_double(metadata_t *writer, const char *key, const char *source) {
  double number;
  if (!metadata_take_double(writer, source, &number)) return false;
  metadata_put_double(writer, key, number);
  return true;
}

const gguf_tensor_t *metadata_layer_tensor(const metadata_t *writer, int64_t layer,
                                           const char *part) {
  char text[GGUF_NAME_MAX];
  snprintf(text, sizeof(text), "blk.%" PRId64 ".%s", layer, part);
  return gguf_tensor(writer->gguf, text);
}

void metadata_need_int(metadata_t *writer, const char *source, int64_t *out) {
  char key[KEY_TEXT_MAX];
  if (metadata_take_int(writer, source, out) || writer->code != 0) return;
  metadata_refuse(writer, metadata_key(writer->arch, source, key, sizeof(key)), "is missing");
}

int64_t metadata_layers(metadata_t *writer) {
  int64_t layers = 0, further = 0;
  metadata_need_int(writer, "%.block_count", &layers);
  if (metadata_take_int(writer, "%.nextn_predict_layers", &further) && further > 0 && layers > 0)
    layers -= further;
  return layers; /* refused by the reader of the JSON unless it is 1..MODEL_LAYERS_MAX */
}
