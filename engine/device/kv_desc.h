/* kv_desc.h: what a KV pool has to hold.
 *
 * Plain data, made by engine/model from a blueprint.
 */
#ifndef INFERD_ENGINE_DEVICE_KV_DESC_H
#define INFERD_ENGINE_DEVICE_KV_DESC_H

#include "engine/device/weight_source.h"

#include <stdbool.h>
#include <stdint.h>

enum { KV_LAYERS_MAX = 1024 };

typedef struct kv_cache_desc {
  int32_t num_layers, num_kv_heads, head_dim;
  /* Layers of another kind: those whose bit is set have these sizes. 0 = all layers are alike; else
   * the back end needs ops_t.per_layer. */
  int32_t other_kv_heads, other_head_dim;
  uint64_t others[KV_LAYERS_MAX / 64];
  /* With groups of layers (attention_t.group) whose sizes differ: all num_layers are of the other
   * kind, those of group 0, and a block of another group has K and V of so many heads of head_dim
   * in their place. They belong to layers of num_kv_heads in order; a layer may begin in one group
   * and end in the next. 0 = a block of any group has num_layers layers. */
  int32_t window_heads;
  int32_t num_blocks; /* block 0 is the null block: zeroed, never written */
  int32_t block_size;
  dtype_t dtype;
  bool latent;         /* one row of head_dim a token, of which values are a part: latent_ops.h */
  bool int8;           /* codes with a scale a token and head, not latent; needs ops_t.kv_int8 */
  bool fp8;            /* stored as e4m3; needs ops_t.kv_fp8 */
  const float *scales; /* for fp8: [num_layers][K, V], read during `kv_cache` only; NULL = ones */
} kv_cache_desc_t;

static inline bool kv_layer_is_other(const kv_cache_desc_t *desc, int32_t layer) {
  return desc->other_head_dim > 0 && (desc->others[layer / 64] >> layer % 64 & 1) != 0;
}

#endif
