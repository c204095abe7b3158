/* config_gguf_experts.c: the experts of GGUF files, written as the keys of config.json.
 *
 * Which layers have experts, and how wide the shared ones are, is taken from the tensors: the keys
 * of converters differ. Any thread; reads no weights.
 */
#include "engine/base/util.h"
#include "engine/model/config/metadata.h"
#include "engine/model/model.h"

#include <inttypes.h>
#include <string.h>

/* Layers without a router are dense. Returns true when there is one. */
static bool write_dense_layers(metadata_t *writer, int64_t layers) {
  const char *comma = "";
  metadata_name(writer, "mlp_only_layers");
  buffer_char(writer->json, '[');
  for (int64_t i = 0; i < layers && i < MODEL_LAYERS_MAX; i++) {
    if (metadata_layer_tensor(writer, i, "ffn_gate_inp.weight") != NULL) continue;
    buffer_text(writer->json, comma);
    buffer_int(writer->json, i);
    comma = ",";
  }
  buffer_char(writer->json, ']');
  return comma[0] != '\0';
}

/* Refuses routers that this program does not compute: all take a softmax, none scales. */
static void check_router(metadata_t *writer) {
  int64_t gating = 1;
  double scale = 1;
  char key[KEY_TEXT_MAX];
  if (metadata_take_int(writer, "%.expert_gating_func", &gating) && gating != 1 && gating != 3) {
    metadata_refuse(writer, metadata_key(writer->arch, "%.expert_gating_func", key, sizeof(key)),
                    "is %" PRId64 ", supported: 1 and 3, softmax", gating);
  }
  if (metadata_take_double(writer, "%.expert_weights_scale", &scale) && scale != 0 && scale != 1) {
    metadata_refuse(writer, metadata_key(writer->arch, "%.expert_weights_scale", key, sizeof(key)),
                    "is %g, supported: 1", scale);
  }
}

void metadata_write_experts(metadata_t *writer, int64_t experts) {
  const int64_t layers = metadata_layers(writer);
  int64_t width = 0, shared = 0, dense_width;
  bool normalises = writer->needs & NORMALISES;
  char key[KEY_TEXT_MAX];
  check_router(writer);
  metadata_put_int(writer, "num_experts", experts);
  metadata_copy_int(writer, "num_experts_per_tok", "%.expert_used_count");
  for (int64_t n = layers <= MODEL_LAYERS_MAX ? layers : 0; n > 0; n--) {
    const gguf_tensor_t *up = metadata_layer_tensor(writer, n - 1, "ffn_up_exps.weight");
    const gguf_tensor_t *shared_up = metadata_layer_tensor(writer, n - 1, "ffn_up_shexp.weight");
    if (up != NULL && up->rank == 3) width = up->shape[1];
    if (shared_up != NULL && shared_up->rank == 2) shared = shared_up->shape[0];
  }
  if (width == 0) metadata_need_int(writer, "%.expert_feed_forward_length", &width);
  metadata_put_int(writer, "moe_intermediate_size", width);
  metadata_put_int(writer, "shared_expert_intermediate_size", shared);
  gguf_bool(metadata_find(writer, "%.expert_weights_norm", key), 0, &normalises);
  metadata_put_bool(writer, "norm_topk_prob", normalises);
  bool dense = write_dense_layers(writer, layers);
  if (!dense || !metadata_take_int(writer, "%.feed_forward_length", &dense_width))
    dense_width = width;
  metadata_put_int(writer, "intermediate_size", dense_width);
}

/* ---- routers that score ---- */

/* The rule is that of the architecture; a file that names another one is refused. */
static void check_gating(metadata_t *writer, bool softmax) {
  int64_t gating = 0;
  char key[KEY_TEXT_MAX];
  if (!metadata_take_int(writer, "%.expert_gating_func", &gating) || gating == 0) return;
  if (gating != (softmax ? 1 : 2))
    metadata_refuse(writer, metadata_key(writer->arch, "%.expert_gating_func", key, sizeof(key)),
                    "is %" PRId64 ", supported here: %s", gating,
                    softmax ? "1, softmax" : "2, sigmoid");
}

/* Experts that every token takes: their width, in experts. */
static int64_t shared_experts(metadata_t *writer, int64_t layer, int64_t width) {
  const gguf_tensor_t *up = metadata_layer_tensor(writer, layer, "ffn_up_shexp.weight");
  if (up == NULL || width < 1) return 0;
  if (up->rank == 2 && up->shape[0] % width == 0) return up->shape[0] / width;
  metadata_refuse(writer, up->name,
                  "has %" PRId64 " rows, which the width of an expert, %" PRId64
                  ", does not divide",
                  up->shape[0], width);
  return 0;
}

/* The first layer with a router; the number of layers if there is none. */
static int64_t first_routed(metadata_t *writer) {
  const int64_t layers = metadata_layers(writer);
  int64_t first = 0;
  while (first < layers && first < MODEL_LAYERS_MAX &&
         metadata_layer_tensor(writer, first, "ffn_gate_inp.weight") == NULL)
    first++;
  return first;
}

bool metadata_scores_by_sigmoid(metadata_t *writer) {
  int64_t gating = 0;
  if (metadata_take_int(writer, "%.expert_gating_func", &gating) && gating != 0) return gating == 2;
  return metadata_layer_tensor(writer, first_routed(writer), "exp_probs_b.bias") != NULL;
}

static void write_groups(metadata_t *writer) {
  int64_t groups = 1, top = 1;
  metadata_take_int(writer, "%.expert_group_count", &groups);
  metadata_take_int(writer, "%.expert_group_used_count", &top);
  metadata_put_int(writer, "n_group", groups);
  metadata_put_int(writer, "topk_group", top);
  if (strcmp(writer->arch, "deepseek2") == 0 && !metadata_scores_by_sigmoid(writer))
    metadata_put_text(writer, "topk_method", groups > 1 ? "group_limited_greedy" : "greedy");
}

static void write_ernie(metadata_t *writer, int64_t experts, int64_t top, int64_t first,
                        int64_t shared) {
  int64_t step = 1;
  metadata_take_int(writer, "%.interleave_moe_layer_step", &step);
  metadata_put_int(writer, "moe_num_experts", experts);
  metadata_put_int(writer, "moe_k", top);
  metadata_put_int(writer, "moe_num_shared_experts", shared);
  metadata_put_int(writer, "moe_layer_start_index", first);
  metadata_put_int(writer, "moe_layer_interval", step);
}

/* A file without a key of the weights' sum or factor means neither. */
static void write_deepseek(metadata_t *writer, int64_t experts, int64_t first, int64_t shared) {
  double factor = 0;
  bool normalises = false;
  char key[KEY_TEXT_MAX];
  metadata_take_double(writer, "%.expert_weights_scale", &factor);
  gguf_bool(metadata_find(writer, "%.expert_weights_norm", key), 0, &normalises);
  metadata_put_int(writer, "n_routed_experts", experts);
  metadata_put_int(writer, "n_shared_experts", shared);
  metadata_put_int(writer, "first_k_dense_replace", first);
  metadata_put_double(writer, "routed_scaling_factor", factor != 0 ? factor : 1);
  metadata_put_bool(writer, "norm_topk_prob", normalises);
  write_groups(writer);
}

/* The shared expert has a width of its own. */
static void write_nemotron(metadata_t *writer, int64_t experts, int64_t first) {
  const gguf_tensor_t *up = metadata_layer_tensor(writer, first, "ffn_up_shexp.weight");
  if (up != NULL && up->rank == 2)
    metadata_put_int(writer, "moe_shared_expert_intermediate_size", up->shape[0]);
  write_deepseek(writer, experts, first, up != NULL);
}

void metadata_write_router(metadata_t *writer, int64_t experts) {
  const bool is_deepseek = strcmp(writer->arch, "deepseek2") == 0;
  const bool is_ernie = strcmp(writer->arch, "ernie4_5-moe") == 0;
  const bool is_minimax = strcmp(writer->arch, "minimax-m2") == 0;
  int64_t top = 1, width = 1, first = first_routed(writer);
  if (!is_deepseek) check_gating(writer, is_ernie);
  metadata_need_int(writer, "%.expert_used_count", &top);
  metadata_need_int(writer, "%.expert_feed_forward_length", &width);
  if (writer->code != 0) return;
  metadata_put_int(writer, "num_experts_per_tok", top);
  metadata_put_int(writer, "moe_intermediate_size", width);
  if (is_minimax) metadata_put_int(writer, "num_local_experts", experts);
  if (strcmp(writer->arch, "lfm2moe") == 0) {
    double factor = 1;
    metadata_take_double(writer, "%.expert_weights_scale", &factor);
    metadata_put_int(writer, "num_experts", experts);
    metadata_put_int(writer, "num_dense_layers", first);
    metadata_put_double(writer, "routed_scaling_factor", factor);
    return;
  }
  if (strcmp(writer->arch, "nemotron_h_moe") == 0) {
    write_nemotron(writer, experts, first);
    return;
  }
  const int64_t shared = shared_experts(writer, first, width);
  if (is_ernie) write_ernie(writer, experts, top, first, shared);
  if (!is_ernie && !is_minimax) write_deepseek(writer, experts, first, shared);
}
