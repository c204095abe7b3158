/* op_types.h: the parameters of a layer for the operations of ops.h: norm, rope, attention,
 * experts.
 *
 * Plain data. engine/model fills it while a model loads, and it is constant afterwards. Symbols:
 * h hidden size, D head_dim, Hq/Hk query and K/V heads, E experts, k experts of a row, I width of
 * an expert.
 */
#ifndef INFERD_ENGINE_DEVICE_OP_TYPES_H
#define INFERD_ENGINE_DEVICE_OP_TYPES_H

#include "engine/device/kv_desc.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct weight weight_t; /* a matrix in the back end's own layout */
typedef struct vector vector_t; /* a vector (norm weight, bias) on the device */
typedef struct act act_t;       /* activation buffer on the device: each back end casts it */

typedef enum norm_kind { NORM_RMS, NORM_LAYER } norm_kind_t;
typedef struct norm {
  norm_kind_t kind;
  int32_t width;
  float eps;
  const vector_t *weight; /* [width] or NULL = ones */
  const vector_t *bias;   /* [width] or NULL; LayerNorm only */
} norm_t;

/* Rotary position embedding (Su et al. 2021), which rotates the pairs (i, i + dims / 2) of a head
 * by angle = float(position) * inv_freq[i], in fp32; cos and sin are multiplied by `scale`. */
typedef struct rope {
  int32_t dims;          /* rotated dimensions of a head, even; the others stay unchanged */
  const float *inv_freq; /* [dims / 2], host memory, lives as long as the model */
  float scale;           /* 1, except for yarn and longrope */
  /* [dims / 2] which of batch_t.rope_positions turns a pair: 0 time, 1 line, 2 column; host memory
   * that lives as long; NULL = `positions` turns all pairs whatever the step says */
  const uint8_t *axes;
} rope_t;

typedef struct attention {
  int32_t layer; /* of the K/V pool; with kv_cache_desc_t.window_heads and group > 0: of a block's
                  * heads the first one of the layer; the rest follow, also in the next groups */
  int32_t group; /* of layers: which of the block tables of a row is its own */
  int32_t num_heads, num_kv_heads, head_dim;
  float scale;        /* factor of q.k before the softmax */
  float softcap;      /* 0 = none; else s = softcap * tanh(s / softcap), before the mask */
  int32_t window;     /* 0 = none; else p sees key j if and only if p - window < j <= p */
  bool bidirectional; /* p sees all keys of its request, of which the step has every token; with a
                       * window those with p - window < j < p + window */
  bool sees_pictures; /* a token of a picture sees all of it: batch_t.seen_until; with a window no
                       * key before that */
  const vector_t *q_norm; /* [D] RMSNorm over each head before rope, or NULL */
  const vector_t *k_norm; /* [D] or NULL */
  bool norm_whole;        /* one norm over all heads (OLMo 2): q_norm is [Hq D], k_norm [Hk D] */
  bool norm_each;         /* LayerNorms, each head its own (Cohere): q_norm [Hq D], k_norm [Hk D] */
  bool norm_late;         /* the norms come behind rope (Hunyuan); not with norm_whole */
  bool v_norm;            /* RMSNorm without weights over each head of v (Gemma 4) */
  bool reads_only; /* qkv is q alone: K and V are those that another layer stored as `layer` */
  bool crosses;    /* K and V are those of an encoder's rows, all of which each token sees:
                    * batch_t.cross_table; with reads_only, without rope, window and distances */
  float norm_eps;
  const rope_t *rope;    /* NULL = no rotation: learned positions, or none */
  const vector_t *sinks; /* [Hq] an extra logit in the softmax's denominator, or NULL */
  /* Added to the scores of key j (value_ops.h): -slope |j - p| of the head (ALiBi), and of each
   * head a number by clamp(j - p, -reach, reach), from -reach on; NULL = none. */
  const vector_t *slopes, *distances; /* [Hq]; [Hq, 2 reach + 1] */
  int32_t reach;
  /* Disentangled attention (DeBERTa) adds what entry e = entries[clamp(j - p, -reach, reach) +
   * reach] of two tables gives, times `scale`: q . a vector of key_table, and k . one of
   * query_table. Entries fall with the distance, by 1.5 on average at most; a head has as many K
   * as Q; with `bidirectional`. */
  const vector_t *key_table, *query_table; /* [Hq, E / 16, D, 16] entries side by side; or NULL */
  const int32_t *entries;                  /* [2 reach + 1], host memory that lives as the model */
  int32_t num_entries;                     /* E, a multiple of 16; 0 = no such attention */
} attention_t;

typedef enum activation {
  ACTIVATION_RELU,      /* out[f] = act(in[f]) */
  ACTIVATION_RELU2,     /* the square of that */
  ACTIVATION_GELU,      /* the form with erf */
  ACTIVATION_GELU_TANH, /* the tanh form: gelu_new, gelu_pytorch_tanh */
  ACTIVATION_TANH,
  ACTIVATION_SILU_MUL, /* out[i] = silu(in[i]) * in[f + i]; in has 2f columns: gate, then up */
  ACTIVATION_GELU_TANH_MUL,
  ACTIVATION_SIGMOID_MUL, /* sigmoid(in[i]) * in[f + i]: of gates (state_ops.h), not of MLPs */
  ACTIVATION_GELU_MUL,    /* the form with erf */
  /* gpt-oss: g = min(gate, 7), u = clamp(up, -7, 7): (u + 1) * g * sigmoid(1.702 g) */
  ACTIVATION_CLAMPED_SWIGLU,
  ACTIVATION_SILU,      /* without a gate: of Marian */
  ACTIVATION_QUICK_GELU /* x sigmoid(1.702 x), without a gate: of CLIP and Qwen2-VL */
} activation_t;

/* True when the input of an activation has 2f columns: gate, then up. */
static inline bool activation_is_gated(activation_t kind) {
  return kind == ACTIVATION_SILU_MUL || kind == ACTIVATION_GELU_TANH_MUL ||
         kind == ACTIVATION_SIGMOID_MUL || kind == ACTIVATION_GELU_MUL ||
         kind == ACTIVATION_CLAMPED_SWIGLU;
}

/* A linear layer with the norm of its input and what follows it, the activation of its output or
 * rope_store of it, for ops_t.fused_linear. A back end may leave the scratch buffers unwritten:
 * afterwards their contents are undefined. They alias neither each other nor the input or output of
 * the operation. */
typedef struct fused_linear {
  const norm_t *norm;     /* of the input, width K; NULL = none */
  act_t *normed;          /* scratch [rows, K]; unused without a norm */
  const weight_t *weight; /* [N, K] */
  const vector_t *bias;   /* [N] or NULL */
  bool has_activation;
  activation_t activation;
  int32_t width; /* columns of the activation's output: N / 2 if it is gated, else N */
  act_t *sums;   /* scratch [rows, N]; unused without an activation */
  const attention_t *attention; /* the output is q|k|v of this layer; NULL, or no activation */
} fused_linear_t;

/* Columns of q, k and v. */
static inline int64_t attention_width(const attention_t *attention) {
  int32_t kv_heads = attention->reads_only ? 0 : attention->num_kv_heads;
  return (int64_t)(attention->num_heads + 2 * kv_heads) * attention->head_dim;
}

/* What the experts of a row are chosen by, and what their shares are. */
typedef enum routing {
  ROUTING_LOGITS,  /* the k largest logits; shares: softmax of these if `normalise`, else of E */
  ROUTING_SOFTMAX, /* scores = softmax over E; shares = scores of the chosen, see moe_t */
  ROUTING_SIGMOID, /* scores = sigmoid of each logit */
  /* SparseMixer (Liu et al. 2024, arXiv 2409.12136) as transformers has it; k = 2. The first expert
   * is that of the largest logit, and its share the softmax over those logits l that are near it,
   * (largest - l) / max(|l|, largest) <= nearness; then the same without it. On a back end that has
   * ops_t.values. */
  ROUTING_MIXER
} routing_t;

#define SHARE_EPSILON 1e-20f /* is added to the sum that normalises shares */

/* A mixture of experts: E MLPs of width I, of which each row uses k. The weights of the
 * experts are stacks (weight_source_t) of E matrices. The router's weight is always DTYPE_F32,
 * because its logits are computed and compared in fp32. */
typedef struct moe {
  int32_t num_experts, top_k, width; /* E, k, I; 1 <= k <= E */
  bool normalise;                    /* the k weights of a row sum to 1 */
  routing_t routing;
  /* Of scores (DeepSeek V2 and V3, ERNIE 4.5). The k largest scores + choice_bias are chosen. With
   * groups_top < num_groups only among the best groups of E / num_groups experts: a group counts as
   * its largest sum, or with group_pairs as the total of its two largest. Shares are divided by
   * max(their sum, share_floor) + share_more if `normalise`, and multiplied by share_factor. */
  const vector_t *choice_bias; /* [E] or NULL */
  int32_t num_groups, groups_top;
  bool group_pairs;
  float share_floor, share_factor;
  float share_more;        /* 0 but for LFM2-MoE */
  float nearness;          /* of ROUTING_MIXER */
  activation_t activation; /* must be gated, but on a CPU */
  int32_t host_width;      /* h of experts in host memory, whose weights and vectors, those of the
                            * router too, are of host_ops_t.ops; 0 = they are on the device */
  const weight_t *router;  /* [E, K]; K = h without router_in */
  const vector_t *router_bias;   /* [E] or NULL */
  const act_t *router_in;        /* [rows, K] what the router reads; NULL = what the experts read */
  const vector_t *share_factors; /* [E] of the shares of ROUTING_LOGITS, or NULL */
  const int32_t *cuts; /* rank_ops.h: up and down have the experts of this rank; or NULL */
  bool sums_own;       /* with cuts: out has the sums over the experts of this rank, for `reduce` */
  const weight_t *up;  /* E x [2 I, h]: gate rows, then up rows; [I, h] if it is not gated */
  const vector_t *up_bias;   /* [E, 2 I] or NULL */
  const weight_t *down;      /* E x [h, I] */
  const vector_t *down_bias; /* [E, h] or NULL */
} moe_t;

#endif
