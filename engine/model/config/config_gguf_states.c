/* config_gguf_states.c: what the tensors and keys of a GGUF file say about layers that keep a
 * state.
 *
 * Which layers these are, and how wide the MLPs are, is taken from the tensors: files of one
 * architecture differ in their keys. Any thread, no state.
 */
#include "engine/base/util.h"
#include "engine/model/blueprint.h"
#include "engine/model/config/metadata.h"

#include <inttypes.h>
#include <string.h>

int64_t metadata_take_most(metadata_t *writer, const char *source, int64_t absent) {
  char key[KEY_TEXT_MAX];
  const gguf_value_t *value = metadata_find(writer, source, key);
  int64_t most = 0, number;
  if (value == NULL) return absent;
  for (uint32_t i = 0; i < value->count; i++) {
    if (!gguf_int(value, i, &number)) {
      metadata_refuse(writer, key, "is no list of integers");
      return absent;
    }
    if (number == 0 || number == most) continue; /* a layer without this part */
    if (most != 0)
      metadata_refuse(writer, key, "differs between layers, supported: 0 or the same in all");
    most = number;
  }
  return most > 0 ? most : absent;
}

/* Rows of the first matrix of this name, in a stack those of an expert; 0 = no layer has one. */
static int64_t rows_of(metadata_t *writer, const char *part) {
  const int64_t layers = metadata_layers(writer);
  for (int64_t i = 0; i < layers && i < MODEL_LAYERS_MAX; i++) {
    const gguf_tensor_t *tensor = metadata_layer_tensor(writer, i, part);
    if (tensor != NULL && tensor->rank >= 2) return tensor->shape[tensor->rank - 2];
  }
  return 0;
}

static bool has_part(metadata_t *writer, const char *part) {
  const int64_t layers = metadata_layers(writer);
  for (int64_t i = 0; i < layers && i < MODEL_LAYERS_MAX; i++) {
    if (metadata_layer_tensor(writer, i, part) != NULL) return true;
  }
  return false;
}

/* Experts that are not scored have their width as intermediate_size, too. */
void metadata_write_mlp(metadata_t *writer, int64_t experts) {
  int64_t rows = rows_of(writer, "ffn_up.weight");
  if (experts > 0 && !(writer->needs & SCORED_EXPERTS)) return;
  if (rows == 0) rows = metadata_take_most(writer, "%.feed_forward_length", 1);
  metadata_put_int(writer, "intermediate_size", rows);
}

/* A name for each layer: that of the first part which it has, or the last name. */
typedef struct layer_name {
  const char *part, *name;
} layer_name_t;

static void write_layers(metadata_t *writer, const char *key, const layer_name_t *names) {
  const int64_t layers = metadata_layers(writer);
  metadata_name(writer, key);
  buffer_char(writer->json, '[');
  for (int64_t i = 0; i < layers && i < MODEL_LAYERS_MAX; i++) {
    const layer_name_t *is = names;
    while (is->part != NULL && metadata_layer_tensor(writer, i, is->part) == NULL) is++;
    if (i > 0) buffer_char(writer->json, ',');
    buffer_quote(writer->json, is->name, strlen(is->name));
  }
  buffer_char(writer->json, ']');
}

/* Channels of a head, which the file has of all heads together. */
static int64_t head_dim(metadata_t *writer, int64_t *heads, int64_t *inner) {
  char key[KEY_TEXT_MAX];
  metadata_need_int(writer, "%.ssm.time_step_rank", heads);
  metadata_need_int(writer, "%.ssm.inner_size", inner);
  if (writer->code != 0) return 0;
  if (*heads >= 1 && *inner >= 1 && *inner % *heads == 0) return *inner / *heads;
  metadata_refuse(writer, metadata_key(writer->arch, "%.ssm.inner_size", key, sizeof(key)),
                  "is %" PRId64 ", of %" PRId64 " heads of equal size", *inner, *heads);
  return 0;
}

static void write_lfm2(metadata_t *writer) {
  static const layer_name_t names[] = {{"shortconv.in_proj.weight", "conv"},
                                       {NULL, "full_attention"}};
  write_layers(writer, "layer_types", names);
  metadata_copy_int(writer, "conv_L_cache", "%.shortconv.l_cache");
  metadata_put_bool(writer, "block_auto_adjust_ff_dim", false);
  metadata_copy_double(writer, "norm_eps", "%.attention.layer_norm_rms_epsilon");
}

/* Qwen3-Next and Qwen3.5: gated DeltaNet. */
static void write_delta(metadata_t *writer) {
  static const layer_name_t names[] = {{"ssm_conv1d.weight", "linear_attention"},
                                       {NULL, "full_attention"}};
  int64_t heads = 0, inner = 0, dim = head_dim(writer, &heads, &inner);
  write_layers(writer, "layer_types", names);
  metadata_copy_int(writer, "linear_conv_kernel_dim", "%.ssm.conv_kernel");
  metadata_copy_int(writer, "linear_key_head_dim", "%.ssm.state_size");
  metadata_copy_int(writer, "linear_num_key_heads", "%.ssm.group_count");
  metadata_put_int(writer, "linear_num_value_heads", heads);
  metadata_put_int(writer, "linear_value_head_dim", dim);
}

/* Granite 4, and Falcon-H1, whose factors stand in the weights and whose norm, if it has one, comes
 * behind the gate. Bamba has Granite's name, too: its rows of q and k stand as if all dimensions of
 * a head were rotated, but half of them are. */
static void write_mamba(metadata_t *writer, int64_t experts) {
  static const layer_name_t names[] = {{"ssm_in.weight", "mamba"}, {NULL, "attention"}};
  const bool is_falcon = strcmp(writer->arch, "falcon-h1") == 0;
  int64_t heads = 0, inner = 0, hidden = 0, dim = head_dim(writer, &heads, &inner);
  bool rotates = false;
  char key[KEY_TEXT_MAX];
  metadata_need_int(writer, "%.embedding_length", &hidden);
  metadata_copy_int(writer, "mamba_d_conv", "%.ssm.conv_kernel");
  metadata_copy_int(writer, "mamba_d_state", "%.ssm.state_size");
  metadata_copy_int(writer, "mamba_n_groups", "%.ssm.group_count");
  metadata_put_int(writer, "mamba_n_heads", heads);
  metadata_put_int(writer, "mamba_d_head", dim);
  metadata_put_bool(writer, "mamba_conv_bias", has_part(writer, "ssm_conv1d.bias"));
  metadata_put_bool(writer, "mamba_proj_bias", has_part(writer, "ssm_in.bias"));
  if (is_falcon) {
    metadata_put_int(writer, "mamba_d_ssm", inner);
    metadata_put_bool(writer, "mamba_rms_norm", has_part(writer, "ssm_norm.weight"));
    metadata_put_bool(writer, "mamba_norm_before_gate", false);
    return;
  }
  write_layers(writer, "layer_types", names);
  metadata_put_int(writer, "mamba_expand", hidden > 0 ? inner / hidden : 0);
  metadata_put_int(writer, "num_local_experts", experts);
  int64_t shared = rows_of(writer, experts > 0 ? "ffn_up_shexp.weight" : "ffn_up.weight");
  if (shared > 0) metadata_put_int(writer, "shared_intermediate_size", shared);
  metadata_put_text(writer, "position_embedding_type", "nope");
  gguf_bool(metadata_find(writer, "%.rope.scaling.finetuned", key), 0, &rotates);
  if (rotates)
    metadata_refuse(writer, key,
                    "is true, as in files of Bamba, which are not read: use its safetensors");
}

/* Nemotron-H: a layer is one block. */
static void write_blocks(metadata_t *writer) {
  static const layer_name_t names[] = {{"ssm_in.weight", "mamba"},
                                       {"attn_q.weight", "attention"},
                                       {"ffn_gate_inp.weight", "moe"},
                                       {NULL, "mlp"}};
  int64_t heads = 0, inner = 0, dim = head_dim(writer, &heads, &inner);
  write_layers(writer, "layers_block_type", names);
  metadata_put_int(writer, "mamba_num_heads", heads);
  metadata_put_int(writer, "mamba_head_dim", dim);
  metadata_copy_int(writer, "conv_kernel", "%.ssm.conv_kernel");
  metadata_copy_int(writer, "ssm_state_size", "%.ssm.state_size");
  metadata_copy_int(writer, "n_groups", "%.ssm.group_count");
  metadata_put_bool(writer, "use_conv_bias", has_part(writer, "ssm_conv1d.bias"));
  metadata_put_bool(writer, "use_bias", has_part(writer, "ssm_in.bias"));
  metadata_put_bool(writer, "mlp_bias", has_part(writer, "ffn_up.bias"));
  metadata_copy_double(writer, "layer_norm_epsilon", "%.attention.layer_norm_rms_epsilon");
}

void metadata_write_states(metadata_t *writer, int64_t experts) {
  if (writer->code != 0) return;
  if (strncmp(writer->arch, "lfm2", strlen("lfm2")) == 0)
    write_lfm2(writer);
  else if (strncmp(writer->arch, "qwen3", strlen("qwen3")) == 0)
    write_delta(writer);
  else if (strncmp(writer->arch, "nemotron", strlen("nemotron")) == 0)
    write_blocks(writer);
  else
    write_mamba(writer, experts);
}
