/* tensors.c: a family's layout and a blueprint's sizes become the expected tensor list. */
#include "engine/model/tensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int64_t resolve(dim_t dim, const blueprint_t *bp) {
  int64_t head = bp->head_dim;
  switch (dim) {
  case DIM_NONE: return 0;
  case DIM_VOCAB: return bp->vocab_size;
  case DIM_EMBED: return bp->embed_size;
  case DIM_HIDDEN: return bp->hidden_size;
  case DIM_MLP: return bp->intermediate_size;
  case DIM_Q: return bp->num_heads * head;
  case DIM_KV: return bp->num_kv_heads * head;
  case DIM_QKV: return (bp->num_heads + 2 * bp->num_kv_heads) * head;
  case DIM_HEAD: return head;
  case DIM_POSITIONS: return (int64_t)bp->num_positions + bp->position_offset;
  }
  return 0;
}

const char *tensor_dim_name(dim_t dim) {
  static const char *const names[] = {
      [DIM_NONE] = "",
      [DIM_VOCAB] = "vocab_size",
      [DIM_EMBED] = "hidden_size (word_embed_proj_dim)",
      [DIM_HIDDEN] = "hidden_size",
      [DIM_MLP] = "intermediate_size",
      [DIM_Q] = "num_attention_heads x head_dim",
      [DIM_KV] = "num_key_value_heads x head_dim",
      [DIM_QKV] = "3 x hidden_size",
      [DIM_HEAD] = "head_dim",
      [DIM_POSITIONS] = "max_position_embeddings",
  };
  return names[dim];
}

static bool applies(when_t when, const blueprint_t *bp) {
  switch (when) {
  case WHEN_NEVER: return false;
  case WHEN_ALWAYS: return true;
  case WHEN_UNTIED: return !bp->tied;
  case WHEN_PROJECTED: return bp->embed_size != bp->hidden_size;
  case WHEN_FINAL_NORM: return bp->final_norm && bp->norm_affine;
  case WHEN_NORM_AFFINE: return bp->norm_affine;
  case WHEN_QKV_BIAS: return bp->qkv_bias;
  case WHEN_O_BIAS: return bp->o_bias;
  case WHEN_MLP_BIAS: return bp->mlp_bias;
  case WHEN_QK_NORM: return bp->qk_norm;
  }
  return false;
}

/* "layers.#.x" with the layer in place of '#', and the suffix behind it. */
static void write_name(expected_tensor_t *tensor, const char *pattern) {
  tensor->absolute = pattern[0] == '/';
  if (tensor->absolute) pattern++;
  const char *mark = strchr(pattern, '#'), *suffix = tensor->bias ? ".bias" : ".weight";
  if (mark == NULL) {
    snprintf(tensor->name, sizeof(tensor->name), "%s%s", pattern, suffix);
  } else {
    snprintf(tensor->name, sizeof(tensor->name), "%.*s%d%s%s", (int)(mark - pattern), pattern,
             tensor->layer, mark + 1, suffix);
  }
}

static void add(tensor_list_t *list, const blueprint_t *bp, const tensor_pattern_t *pattern,
                int32_t layer, bool bias) {
  if (!applies(bias ? pattern->bias : pattern->weight, bp)) return;
  expected_tensor_t *tensor = &list->tensors[list->count++];
  *tensor = (expected_tensor_t){.role = pattern->role,
                                .layer = layer,
                                .bias = bias,
                                .rows = resolve(pattern->rows, bp),
                                .row_dim = pattern->rows};
  if (!bias) {
    tensor->cols = resolve(pattern->cols, bp);
    tensor->col_dim = pattern->cols;
    tensor->conv1d = pattern->conv1d;
  }
  write_name(tensor, pattern->name);
}

static void add_all(tensor_list_t *list, const blueprint_t *bp, const layout_t *layout,
                    int32_t layer) {
  for (int i = 0; i < layout->num_patterns; i++) {
    const tensor_pattern_t *pattern = &layout->patterns[i];
    if ((pattern->role >= ROLE_FIRST_OF_LAYER) != (layer >= 0)) continue;
    add(list, bp, pattern, layer, false);
    add(list, bp, pattern, layer, true);
  }
}

int tensors_expect(const blueprint_t *bp, tensor_list_t *out, error_t *error) {
  const family_t *family = family_by_name(bp->family, strlen(bp->family));
  CHECK(family != NULL);
  size_t most = (size_t)family->layout->num_patterns * 2 * (size_t)(bp->num_layers + 1);
  *out = (tensor_list_t){.tensors = calloc(most, sizeof(expected_tensor_t))};
  if (out->tensors == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for tensors");
  for (int32_t layer = -1; layer < bp->num_layers; layer++) {
    if (layer == 0) out->first_of_layer = out->count;
    add_all(out, bp, family->layout, layer);
    if (layer == 0) out->per_layer = out->count - out->first_of_layer;
  }
  memset(out->place, -1, sizeof(out->place));
  for (int32_t i = 0; i < out->first_of_layer + out->per_layer; i++) {
    const expected_tensor_t *tensor = &out->tensors[i];
    out->place[tensor->role][tensor->bias] = tensor->layer < 0 ? i : i - out->first_of_layer;
  }
  return 0;
}

void tensors_free(tensor_list_t *list) {
  free(list->tensors);
  *list = (tensor_list_t){0};
}

const expected_tensor_t *tensors_get(const tensor_list_t *list, tensor_role_t role, int32_t layer,
                                     bool bias) {
  int32_t place = list->place[role][bias];
  if (place < 0) return NULL;
  if (role < ROLE_FIRST_OF_LAYER) return &list->tensors[place];
  return &list->tensors[list->first_of_layer + layer * list->per_layer + place];
}

int tensors_count_parameters(const blueprint_t *blueprint, int64_t *out, error_t *error) {
  tensor_list_t list;
  int status = tensors_expect(blueprint, &list, error);
  if (status != 0) return status;
  *out = 0;
  for (int32_t i = 0; i < list.count; i++) *out += tensor_elements(&list.tensors[i]);
  tensors_free(&list);
  return 0;
}
