/* moe.h: the launcher of a mixture of experts; see kernels.h for the rules and engine/device/ops.h
 * for what it computes.
 *
 * Engine thread; callable from C.
 */
#ifndef INFERD_CUDA_KERNELS_MOE_H
#define INFERD_CUDA_KERNELS_MOE_H

#include "cuda/kernels/ranks/ranks.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_EXPERTS_MAX = 1024, GPU_EXPERTS_TOP_MAX = 64, GPU_MOE_ROWS = 2048, GPU_GROUPS_MAX = 32 };

#define GPU_SHARE_EPSILON 1e-20f /* SHARE_EPSILON of engine/device/op_types.h */

typedef enum gpu_routing {
  GPU_ROUTING_LOGITS,
  GPU_ROUTING_SOFTMAX,
  GPU_ROUTING_SIGMOID
} gpu_routing_t;

typedef struct gpu_moe {
  const void *in, *residual; /* [rows, hidden]; residual may be NULL, for 0 */
  void *out;                 /* [rows, hidden], may alias residual */
  const float *router;       /* [experts, hidden], fp32 */
  const float *router_bias;  /* [experts] or NULL */
  /* [experts, width, hidden], with a gated activation [experts, 2 width, hidden], whose rows are
   * those of gate and up; and [experts, hidden, width]. */
  const void *up, *down;
  gpu_packed_t up_packed, down_packed; /* how they are packed, if they are */
  const float *up_bias, *down_bias;    /* [experts, rows of up], [experts, hidden], or NULL */
  int32_t rows, hidden, width, num_experts, top_k; /* hidden and width multiples of 8 */
  int normalise;
  gpu_routing_t routing;
  /* How the scores of the router become shares: each field as moe_t of engine/device/op_types.h
   * has it. */
  const float *choice_bias;       /* [experts] or NULL */
  int32_t num_groups, groups_top; /* at most GPU_GROUPS_MAX */
  int group_pairs;
  float share_floor, share_factor, share_more;
  gpu_activation_t activation;
  /* Ranks: this one has the experts [experts.at[rank], experts.at[rank + 1]), and up and down have
   * these alone. size 0 = it has all. */
  gpu_cuts_t experts;
  int32_t rank;
  void *workspace; /* gpu_moe_workspace_bytes of these sizes; nothing in it outlives a call */
} gpu_moe_t;

/* Bytes for any number of rows, of which GPU_MOE_ROWS at a time are computed. 0 = sizes out of
 * range. */
size_t gpu_moe_workspace_bytes(int32_t hidden, int32_t width, int32_t num_experts, int32_t top_k);
/* With experts of several ranks `out` is the sum over those of this one, without shares of others.
 * A row's bits depend on its own inputs only: its experts are added in ascending order. */
int gpu_moe(dtype_t dtype, const gpu_moe_t *args, gpu_stream_t stream);
/* The two halves of it where ranks exchange what each expert gives, for at most GPU_MOE_ROWS rows.
 * The first writes pairs[rows, top_k, hidden] where the expert, in ascending order, is of this
 * rank, and nothing elsewhere. */
int gpu_moe_pairs(dtype_t dtype, const gpu_moe_t *args, void *pairs, gpu_stream_t stream);
/* Then `out` is what one rank's gpu_moe writes; parts[ranks][rows, top_k, hidden]. */
int gpu_moe_mix(dtype_t dtype, const gpu_moe_t *args, const void *parts, gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
