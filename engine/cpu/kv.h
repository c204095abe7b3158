/* kv.h: the paged K/V pool of the CPU back end.
 *
 * The layout of a block is in kv.c. Called on the engine thread, and by pool workers where it says
 * so.
 */
#ifndef INFERD_ENGINE_CPU_KV_H
#define INFERD_ENGINE_CPU_KV_H

#include "engine/device/ops.h"

/* The layout of K and V in the layers of one kind. */
typedef struct kv_kind {
  int32_t num_heads, head_dim;
  int32_t head_stride;                        /* head_dim padded to HEAD_ALIGN */
  size_t block_bytes, key_bytes, value_bytes; /* of a block in a layer: all, K part, V part */
} kv_kind_t;

size_t cpu_kv_bytes(const kv_cache_desc_t *desc, int32_t num_blocks);
int cpu_kv_cache(device_t *device, const kv_cache_desc_t *desc, inferd_error_t *error);
void kv_copy_blocks(device_t *device, const batch_t *batch);
void cpu_rope_store(device_t *device, act_t *qkv, const attention_t *attention);
/* Stores columns [first, first + count) of a latent row. Any worker. */
void kv_store_columns(const device_t *device, int32_t layer, int64_t slot, const float *columns,
                      int32_t first, int32_t count);
/* Where K and V of a head of a layer are: block b at first + b * stride. */
typedef struct kv_place {
  const kv_kind_t *kind;
  int32_t group, head; /* whose block table; which of the kind's heads */
  uint8_t *first;
  size_t stride;
} kv_place_t;
kv_place_t kv_place(const device_t *device, const attention_t *attention, int32_t kv_head);
void kv_check(const device_t *device, const attention_t *attention); /* that they fit the pool */
size_t kv_element(const kv_cache_desc_t *desc);                      /* bytes of a stored element */
/* Scales of a pool in 8 bits for the slots of a block. */
float *kv_scales(const device_t *device, const kv_kind_t *kind, const uint8_t *block,
                 int32_t kv_head, bool values);
/* Of group 0, or of a pool without window_heads. */
const kv_kind_t *kv_kind(const device_t *device, int32_t layer);
uint8_t *kv_block(const device_t *device, int32_t layer, int32_t block); /* K part, then V part */

#endif
