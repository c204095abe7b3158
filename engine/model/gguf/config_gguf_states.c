/* config_gguf_states.c: what the tensors and keys of a GGUF file say about layers that keep a
 * state.
 *
 * Which layers these are is taken from the tensors. Any thread, no state.
 */
#include "engine/model/blueprint.h"
#include "engine/model/gguf/metadata.h"

int64_t metadata_most_kv_heads(metadata_t *writer, int64_t absent) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, "%.attention.head_count_kv", key);
  int64_t most = 0, number;
  if (value == NULL) return absent;
  for (uint32_t i = 0; i < value->count; i++) {
    if (!gguf_int(value, i, &number)) {
      metadata_refuse(writer, key, "is no list of integers");
      return absent;
    }
    if (number == 0 || number == most) continue; /* a layer without attention */
    if (most != 0)
      metadata_refuse(writer, key, "differs between layers, supported: 0 or the same in all");
    most = number;
  }
  return most > 0 ? most : absent;
}

/* LFM2: short convolutions. */
void metadata_write_states(metadata_t *writer) {
  const int64_t layers = metadata_layers(writer);
  if (writer->code != 0) return;
  metadata_name(writer, "layer_types");
  buffer_char(writer->json, '[');
  for (int64_t i = 0; i < layers && i < MODEL_LAYERS_MAX; i++) {
    bool conv = metadata_layer_tensor(writer, i, "shortconv.in_proj.weight") != NULL;
    if (i > 0) buffer_char(writer->json, ',');
    buffer_text(writer->json, conv ? "\"conv\"" : "\"full_attention\"");
  }
  buffer_char(writer->json, ']');
  metadata_copy_int(writer, "conv_L_cache", "%.shortconv.l_cache");
  metadata_put_bool(writer, "block_auto_adjust_ff_dim", false);
  metadata_copy_double(writer, "norm_eps", "%.attention.layer_norm_rms_epsilon");
}
