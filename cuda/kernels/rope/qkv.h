/* qkv.h: the launcher of the kernel that makes q, k and v of few rows, rotates and stores them.
 *
 * As kernels.h: it checks its shapes, launches and returns 0 or a cudaError_t. Engine thread.
 */
#ifndef INFERD_CUDA_KERNELS_QKV_H
#define INFERD_CUDA_KERNELS_QKV_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gpu_skinny of the layer that makes q, k and v, then gpu_rope_store of what it makes, as one
 * kernel with the bits of the two. layer->out is store->qkv, layer->n is (Hq + 2 Hk) D. */
int gpu_qkv(const gpu_kv_t *kv, const gpu_skinny_t *layer, const gpu_rope_store_t *store,
            gpu_stream_t stream);
/* 0 where it cannot: norms of heads, packed weights, more rows than gpu_skinny takes, a residual or
 * an activation, a head or a rotation that is no multiple of 16. */
int gpu_qkv_fits(const gpu_kv_t *kv, const gpu_skinny_t *layer, const gpu_rope_store_t *store);

#ifdef __cplusplus
}
#endif

#endif
