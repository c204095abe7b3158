/* config_gguf_gemma4.c: what the keys and tensors of a GGUF file say about Gemma 4.
 *
 * Layers that see the whole context have heads of their own, and angles of which the slow ones
 * stand still: the file divides these by a huge number. Any thread, no state.
 */
#include "engine/model/blueprint.h"
#include "engine/model/config/metadata.h"

#include <stdio.h>
#include <string.h>

static const float STANDS_STILL = 1e20f; /* a divisor of an angle above this */

/* The number of a layer, of a list or of a number for all. */
static int64_t of_layer(metadata_t *writer, const char *source, int64_t layer, int64_t absent) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, source, key);
  int64_t number = absent;
  if (value == NULL) return absent;
  bool is_list = value->kind == GGUF_ARRAY;
  if ((is_list && layer >= value->count) ||
      !gguf_int(value, is_list ? (uint32_t)layer : 0, &number))
    metadata_refuse(writer, key, "has no integer for layer %d", (int)layer);
  return number;
}

static bool slides(metadata_t *writer, int64_t layer) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, "%.attention.sliding_window_pattern", key);
  bool flag = false;
  if (value == NULL || value->kind != GGUF_ARRAY || layer >= value->count ||
      !gguf_bool(value, (uint32_t)layer, &flag))
    metadata_refuse(
        writer, metadata_key(writer->arch, "%.attention.sliding_window_pattern", key, sizeof(key)),
        "has no flag for layer %d", (int)layer);
  return flag;
}

/* Heads of the layers that slide at the top, those of the others layer by layer. */
static void write_heads(metadata_t *writer, int64_t layers, int64_t heads, int64_t shared) {
  int64_t full_dim = 0, dim = 0, kv_heads = heads;
  bool k_is_v = false;
  const char *comma = "";
  char name[16];
  metadata_need_int(writer, "%.attention.key_length", &full_dim);
  if (!metadata_take_int(writer, "%.attention.key_length_swa", &dim)) dim = full_dim;
  for (int64_t i = layers - 1; i >= 0 && writer->code == 0; i--) {
    if (slides(writer, i)) kv_heads = of_layer(writer, "%.attention.head_count_kv", i, heads);
  }
  metadata_put_int(writer, "head_dim", dim);
  metadata_put_int(writer, "num_key_value_heads", kv_heads);
  metadata_name(writer, "per_layer_config");
  buffer_char(writer->json, '{');
  for (int64_t i = 0; i < layers && writer->code == 0; i++) {
    if (slides(writer, i)) continue;
    k_is_v |= i < layers - shared && metadata_layer_tensor(writer, i, "attn_v.weight") == NULL;
    snprintf(name, sizeof(name), "\"%d\":", (int)i);
    buffer_text(writer->json, comma);
    buffer_text(writer->json, name);
    buffer_text(writer->json, "{\"head_dim\":");
    buffer_int(writer->json, full_dim);
    buffer_text(writer->json, ",\"num_key_value_heads\":");
    buffer_int(writer->json, of_layer(writer, "%.attention.head_count_kv", i, heads));
    buffer_char(writer->json, '}');
    comma = ",";
  }
  buffer_char(writer->json, '}');
  metadata_put_bool(writer, "attention_k_eq_v", k_is_v);
}

static void write_angles(metadata_t *writer) {
  const gguf_tensor_t *divisors = gguf_tensor(writer->gguf, "rope_freqs.weight");
  double theta = 1e6, local = 1e4;
  int64_t moving = 0, dim = 1, rotated = 1;
  if (divisors == NULL || divisors->type != GGUF_TYPE_F32 || divisors->rank != 1) {
    metadata_refuse(writer, "rope_freqs.weight", "is missing, or no vector of F32");
    return;
  }
  for (int64_t i = 0; i < divisors->shape[0]; i++) {
    float divisor;
    memcpy(&divisor, divisors->data + 4 * i, sizeof(divisor));
    moving += divisor < STANDS_STILL;
  }
  metadata_take_double(writer, "%.rope.freq_base", &theta);
  metadata_take_double(writer, "%.rope.freq_base_swa", &local);
  if (metadata_take_int(writer, "%.attention.key_length_swa", &dim) &&
      metadata_take_int(writer, "%.rope.dimension_count_swa", &rotated) && dim != rotated) {
    char key[KEY_TEXT_MAX];
    metadata_refuse(writer,
                    metadata_key(writer->arch, "%.rope.dimension_count_swa", key, sizeof(key)),
                    "is %d, supported: the dimensions of a head, %d", (int)rotated, (int)dim);
  }
  metadata_name(writer, "rope_parameters");
  buffer_text(writer->json, "{\"full_attention\":{\"rope_type\":\"proportional\",\"rope_theta\":");
  metadata_plain_double(writer, theta);
  buffer_text(writer->json, ",\"partial_rotary_factor\":");
  metadata_plain_double(writer, (double)moving / (double)divisors->shape[0]);
  buffer_text(writer->json, "},\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":");
  metadata_plain_double(writer, local);
  buffer_text(writer->json, "}}");
}

/* MLPs of layers that share K and V may be twice as wide. */
static void write_widths(metadata_t *writer, int64_t layers, int64_t shared) {
  const int64_t width = of_layer(writer, "%.feed_forward_length", 0, 0);
  const int64_t last = of_layer(writer, "%.feed_forward_length", layers - 1, 0);
  const bool wide = last != width;
  for (int64_t i = 0; i < layers && writer->code == 0; i++) {
    int64_t expected = wide && i >= layers - shared ? 2 * width : width;
    if (of_layer(writer, "%.feed_forward_length", i, 0) == expected) continue;
    char key[KEY_TEXT_MAX];
    metadata_refuse(writer, metadata_key(writer->arch, "%.feed_forward_length", key, sizeof(key)),
                    "of layer %d is neither that of layer 0 nor, of a layer that shares K and V, "
                    "twice that",
                    (int)i);
  }
  metadata_put_int(writer, "intermediate_size", width);
  metadata_put_bool(writer, "use_double_wide_mlp", wide);
}

void metadata_write_gemma4(metadata_t *writer, int64_t experts) {
  const int64_t layers = metadata_layers(writer);
  const gguf_tensor_t *embed = gguf_tensor(writer->gguf, "token_embd.weight");
  int64_t hidden = 0, heads = 1, shared = 0, width = 0;
  if (embed == NULL || embed->rank != 2)
    metadata_refuse(writer, "token_embd.weight", embed == NULL ? "is missing" : "is no matrix");
  metadata_need_int(writer, "%.embedding_length", &hidden);
  metadata_need_int(writer, "%.attention.head_count", &heads);
  metadata_take_int(writer, "%.attention.shared_kv_layers", &shared);
  metadata_take_int(writer, "%.embedding_length_per_layer_input", &width);
  if (writer->code != 0) return;
  metadata_put_int(writer, "vocab_size", embed->shape[0]);
  metadata_put_int(writer, "hidden_size", hidden);
  metadata_put_int(writer, "num_attention_heads", heads);
  metadata_put_int(writer, "num_kv_shared_layers", shared);
  metadata_put_int(writer, "hidden_size_per_layer_input", width);
  metadata_put_int(writer, "vocab_size_per_layer_input", embed->shape[0]);
  metadata_copy_int(writer, "max_position_embeddings", "%.context_length");
  write_heads(writer, layers, heads, shared);
  write_widths(writer, layers, shared);
  write_angles(writer);
  metadata_put_bool(writer, "enable_moe_block", experts > 0);
  if (experts == 0) return;
  metadata_put_int(writer, "num_experts", experts);
  metadata_copy_int(writer, "top_k_experts", "%.expert_used_count");
  metadata_copy_int(writer, "moe_intermediate_size", "%.expert_feed_forward_length");
}
