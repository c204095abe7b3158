/* config_gguf_gemma3n.c: what the keys and tensors of a GGUF file say about Gemma 3n. Any thread,
 * no state.
 */
#include "engine/model/config/metadata.h"

#include <math.h>

/* The file has standard deviations above the mean, -inf for none: the share of a normal
 * distribution that is below them. */
static void write_sparsity(metadata_t *writer, int64_t layers) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, "%.activation_sparsity_scale", key);
  if (value == NULL || value->kind != GGUF_ARRAY) return;
  metadata_name(writer, "activation_sparsity_pattern");
  buffer_char(writer->json, '[');
  for (int64_t i = 0; i < layers; i++) {
    double above = 0;
    if (i >= value->count || !gguf_double(value, (uint32_t)i, &above)) {
      metadata_refuse(writer, key, "has no number for layer %d", (int)i);
      break;
    }
    buffer_text(writer->json, i > 0 ? "," : "");
    metadata_plain_double(writer, isfinite(above) ? erfc(-above / sqrt(2)) / 2 : 0);
  }
  buffer_char(writer->json, ']');
}

/* The rows of a matrix, which is needed. */
static void write_rows(metadata_t *writer, const char *key, const char *name) {
  const gguf_tensor_t *tensor = gguf_tensor(writer->gguf, name);
  if (tensor == NULL || tensor->rank != 2) {
    metadata_refuse(writer, name, tensor == NULL ? "is missing" : "is no matrix");
    return;
  }
  metadata_put_int(writer, key, tensor->shape[0]);
}

void metadata_write_gemma3n(metadata_t *writer) {
  const int64_t layers = metadata_layers(writer);
  int64_t hidden = 0, heads = 0, dim = 0;
  metadata_need_int(writer, "%.embedding_length", &hidden);
  metadata_need_int(writer, "%.attention.head_count", &heads);
  metadata_need_int(writer, "%.attention.key_length", &dim);
  if (writer->code != 0) return;
  metadata_put_int(writer, "hidden_size", hidden);
  metadata_put_int(writer, "num_attention_heads", heads);
  metadata_put_int(writer, "head_dim", dim);
  metadata_copy_int(writer, "num_key_value_heads", "%.attention.head_count_kv");
  metadata_copy_int(writer, "intermediate_size", "%.feed_forward_length");
  metadata_copy_int(writer, "max_position_embeddings", "%.context_length");
  metadata_copy_int(writer, "num_kv_shared_layers", "%.attention.shared_kv_layers");
  metadata_copy_int(writer, "hidden_size_per_layer_input", "%.embedding_length_per_layer_input");
  metadata_copy_int(writer, "altup_num_inputs", "%.altup.num_inputs");
  metadata_copy_int(writer, "altup_active_idx", "%.altup.active_idx");
  write_rows(writer, "vocab_size", "token_embd.weight");
  write_rows(writer, "vocab_size_per_layer_input", "per_layer_token_embd.weight");
  write_rows(writer, "laurel_rank", "blk.0.laurel_l.weight");
  metadata_copy_double(writer, "rope_theta", "%.rope.freq_base");
  metadata_copy_double(writer, "rope_local_base_freq", "%.rope.freq_base_swa");
  write_sparsity(writer, layers);
}
