/* sizes.h: what a model needs of a back end, and sizes of single layers where these differ, from
 * its blueprint alone. Any thread.
 */
#ifndef INFERD_ENGINE_MODEL_SIZES_H
#define INFERD_ENGINE_MODEL_SIZES_H

#include "engine/model/model.h"

/* Whether the back end and the type, -1 = the checkpoint's, can run the model: 0, or
 * ERR_CONFIGURATION with what is missing. In survey.c. */
int model_check_device(const ops_t *ops, const blueprint_t *blueprint, int32_t dtype,
                       inferd_error_t *error);
/* Fills what the model itself knows of the limits: hidden_max, vocab_size, heads. */
void model_limits(const blueprint_t *blueprint, step_limits_t *limits);
/* Bytes of the activations of the largest step, plus the workspace of the back end. In survey.c. */
size_t model_workspace_bytes(const ops_t *ops, const blueprint_t *blueprint,
                             const step_limits_t *limits);
/* Layers with a window can have blocks of their own, which are freed when no token sees them. All
 * blocks have as many layers as see everything; so the layers with a window make one or several
 * such groups, the last of which may have fewer. If those that see everything have other sizes, the
 * groups have as many heads as fit (kv_cache_desc_t.window_heads). Returns how many; 0 if all
 * layers are of one kind, or the part of the last group that stays empty is too large. */
int32_t model_window_groups(const blueprint_t *blueprint);
/* The cache of a model: everything but num_blocks, block_size and fp8. Layers without attention
 * have no part in it. With window_groups its layers are those of a group. */
kv_cache_desc_t model_kv(const blueprint_t *blueprint);
/* False if the model has layers with a state that the back end does not run. */
bool model_states_run(const ops_t *ops, const blueprint_t *blueprint);
/* The states of `num_slots` slots; all 0 if no layer has a state, or the back end runs none. */
state_desc_t model_states(const ops_t *ops, const blueprint_t *blueprint, int32_t num_slots);

/* False if no layer has attention: then a cache has no layers. */
static inline bool model_attends(const blueprint_t *bp) {
  for (int32_t i = 0; i < bp->num_layers + bp->mtp; i++)
    if (!(bp->layer_flags[i] & LAYER_NO_ATTENTION)) return true;
  return false;
}

static inline bool layer_is_full(const blueprint_t *bp, int32_t layer) {
  return layer >= 0 && !(bp->layer_flags[layer] & LAYER_SLIDES);
}

/* `layer` -1 stands for the layers that slide, or for all. */
static inline int32_t layer_head_dim(const blueprint_t *bp, int32_t layer) {
  return bp->full_head_dim > 0 && layer_is_full(bp, layer) ? bp->full_head_dim : bp->head_dim;
}

static inline int32_t layer_kv_heads(const blueprint_t *bp, int32_t layer) {
  return bp->full_kv_heads > 0 && layer_is_full(bp, layer) ? bp->full_kv_heads : bp->num_kv_heads;
}

/* The layer reads K and V that an earlier one has stored. */
static inline bool layer_reads_only(const blueprint_t *bp, int32_t layer) {
  return layer >= bp->num_layers - bp->num_kv_shared && layer < bp->num_layers;
}

/* V of the layer is K before its norm. */
static inline bool layer_k_is_v(const blueprint_t *bp, int32_t layer) {
  return bp->full_k_is_v && layer_is_full(bp, layer);
}

/* Columns of the fused projection. */
static inline int32_t layer_qkv_width(const blueprint_t *bp, int32_t layer) {
  int32_t kv = layer_reads_only(bp, layer) ? 0 : 2 * layer_kv_heads(bp, layer);
  return (bp->num_heads + kv) * layer_head_dim(bp, layer);
}

/* Width of the dense MLP. */
static inline int32_t layer_mlp_width(const blueprint_t *bp, int32_t layer) {
  bool wide = layer >= 0 && bp->kv_shared_wide && layer_reads_only(bp, layer);
  return bp->intermediate_size * (wide ? 2 : 1);
}

#endif
