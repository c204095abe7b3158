/* internal.h: a loaded model. Shared by load.c, which fills it, and model.c, which runs it.
 *
 * Symbols: h hidden size, E embedding width, f MLP width, V vocabulary, D head_dim, Hq/Hk heads,
 * T tokens of a step, S selected rows. Device pointers belong to the device. */
#ifndef INFERD_ENGINE_MODEL_FORWARD_INTERNAL_H
#define INFERD_ENGINE_MODEL_FORWARD_INTERNAL_H

#include "engine/model/forward/eagle.h"
#include "engine/model/weights/shard.h"

/* A matrix that an adapter may change: columns [column, column + rows) of an output of `width`
 * columns, which this rank has of a matrix of [all_rows, all_cols]. */
typedef struct lora_target {
  lora_t *lora; /* NULL = adapters are off, or the layer has no such part */
  int32_t rows, cols, column, width, all_rows, all_cols;
} lora_target_t;

/* In the order of adapter.c's table; qkv and gate_up are the fused ones of Phi-3. */
enum {
  LORA_Q,
  LORA_K,
  LORA_V,
  LORA_QKV,
  LORA_O,
  LORA_GATE,
  LORA_UP,
  LORA_GATE_UP,
  LORA_DOWN,
  LORA_TARGETS
};

/* The adapters of a model beside those of its layers; lora_target_t of an embedding has V columns.
 */
typedef struct model_lora {
  lora_target_t embed, head;
  int32_t slots;      /* 0 = adapters are off */
  bool *has_factors;  /* [slots + 1] of the adapter in the slot, in some layer; owned */
  float *pair;        /* room for a part of one on several ranks, or NULL; owned */
  act_t *plain;       /* [T, the widest output], for adapters with factors; or NULL */
  int32_t num_tokens; /* of the step that have an adapter */
  bool with_factors;  /* some of them one with factors */
} model_lora_t;

/* Of Mamba-1: what is made of the columns behind the convolution. */
typedef struct selective {
  const weight_t *rank, *keys, *queries, *steps; /* [R, I], [N, I], [N, I], [I, R] */
  norm_t rank_norm, key_norm, query_norm;        /* width 0 = none */
  selective_scan_t selection;                    /* channels 0 = there is none */
} selective_t;

/* A layer with a state (mixer.h): M columns behind the projection, I before the way back. */
typedef struct mixer {
  const weight_t *in;                 /* [M, h] */
  const vector_t *in_bias, *out_bias; /* [M], [h], or NULL */
  conv_t conv;
  recurrence_t recurrence;                  /* num_heads 0 = none */
  selective_t selective;                    /* in its place */
  gating_t gating;                          /* behind the recurrence */
  const weight_t *out;                      /* [h, I] */
  const vector_t *in_factors, *out_factors; /* [M], [I] of columns, or NULL */
} mixer_t;

/* Projections of latent attention. */
typedef struct latent_layer {
  const weight_t *q_down;      /* [q rank, h] or NULL */
  const vector_t *q_down_bias; /* [q rank] or NULL */
  norm_t q_norm;               /* of the q rank */
  const weight_t *q;           /* [Hq D, q rank] or [Hq D, h] */
  const weight_t *row;         /* [R + r, h] */
  const vector_t *row_bias;    /* [R + r] or NULL */
  latent_t attention;
  /* The indexer: [Hi d, q rank], [d, h], [Hi, h]; NULL = the layer has none. */
  const weight_t *index_q, *index_key, *index_weights;
  indexer_t indexer;
} latent_layer_t;

/* Attention to the rows of an encoder, behind the layer's own. K and V of these are made between
 * steps (encode.h). */
typedef struct cross_layer {
  norm_t norm;
  const weight_t *q, *kv, *o;                /* [Hq D, h], [2 Hk D, h], [h, Hq D] */
  const vector_t *q_bias, *kv_bias, *o_bias; /* or NULL */
  attention_t attention;
} cross_layer_t;

typedef struct layer {
  norm_t attn_norm;         /* width 0 = none */
  const weight_t *qkv;      /* [(Hq + 2 Hk) D, h] */
  const vector_t *qkv_bias; /* [(Hq + 2 Hk) D] or NULL */
  attention_t attention;
  latent_layer_t latent;  /* instead of qkv and attention; q NULL = they are not latent */
  const weight_t *o;      /* [h, Hq D] */
  const vector_t *o_bias; /* [h] or NULL */
  norm_t attn_out_norm, mlp_out_norm; /* BLOCK_SANDWICH, BLOCK_OUT_NORM */
  cross_layer_t cross;                /* q NULL = it sees no rows of an encoder */
  norm_t mlp_norm;
  const weight_t *up;        /* [2 f, h] gate then up; [f, h] without a gate */
  const vector_t *up_bias;   /* [2 f] or [f], or NULL */
  const weight_t *down;      /* [h, f] */
  const vector_t *down_bias; /* [h] or NULL */
  lora_target_t lora[LORA_TARGETS];
  const weight_t *attn_gate;      /* [Hq D, h], or [Hq, h], or NULL */
  mixer_t mixer;                  /* in the place of attention, or beside it; `in` NULL = none */
  xielu_t xielu;                  /* all NULL but with blueprint_t.xielu */
  const vector_t *shared_factors; /* of the inner values of shared experts, or NULL */
  const vector_t *qkv_factors, *up_factors; /* of the columns of qkv and up, or NULL */
  moe_t moe;                                /* num_experts 0: the layer is dense */
  const weight_t *experts_in, *experts_out; /* [H, h], [h, H] around the experts, or NULL */
  int32_t mlp_width;                        /* f of the dense MLP */
  /* Gemma 4. Of experts beside the dense MLP: norms behind it, before them (of what the router
   * reads and of what they read) and behind them. Then the embeddings of the layer. */
  norm_t dense_out_norm, router_norm, expert_norm, expert_out_norm;
  const weight_t *input_gate, *input_project; /* [P, h], [h, P]; or NULL */
  norm_t input_norm;
  const vector_t *scalar; /* [1] the layer's output is multiplied by; or NULL */
  /* Gemma 3n: of the streams; beside attention; of a gate the standard deviations above its mean
   * from where on its values are kept. */
  altup_t altup;                           /* num_streams 0 = there is one */
  const weight_t *laurel_down, *laurel_up; /* [r, h], [h, r] */
  norm_t laurel_norm;
  bool is_sparse;
  float deviations;
  const weight_t *shared; /* [1, h] gate of shared experts, which are in up and down; or NULL */
} layer_t;

/* A layer behind the pooling. */
typedef struct post_layer {
  const weight_t *weight; /* [out, in] */
  const vector_t *bias;   /* [out] or NULL */
  int32_t in, out;
  int32_t activation; /* activation_t; -1 = none */
  norm_t norm;        /* behind the activation; width 0 = none */
} post_layer_t;

struct model {
  const ops_t *ops;
  device_t *device;
  blueprint_t blueprint;              /* own copy */
  const batch_t *at_stage[RANKS_MAX]; /* of each stage in this turn (stages.h); or NULL */
  bool is_cut, is_lent; /* several ranks run it; inv_freq and kv_scales are another model's: */
  shard_cuts_t cuts;
  const weight_t *embed;              /* [V, E] */
  const weight_t *positions;          /* [positions + offset, h] or NULL */
  const weight_t *types;              /* [token types, h] or NULL */
  const vector_t *slopes, *distances; /* of attention_t, or NULL */
  /* Of an encoder that reads spectrograms: [h, 3 bands], [h, 3 h]. */
  const weight_t *conv_1, *conv_2;
  const vector_t *conv_1_bias, *conv_2_bias;
  norm_t embed_norm;                           /* of the embeddings; width 0 = none */
  const weight_t *embed_project;               /* [h, E] of what the norm leaves, or NULL */
  const vector_t *embed_project_bias;          /* [h] */
  const weight_t *project_in;                  /* [h, E] or NULL */
  const weight_t *layer_embed, *layer_project; /* [V, layers x P], [layers x P, h], or NULL */
  norm_t layer_norm;                           /* of P values */
  /* Of stream n + 1: [h, h] in front of all layers, and behind them. */
  const weight_t *stream_in[ALTUP_STREAMS_MAX - 1], *stream_out[ALTUP_STREAMS_MAX - 1];
  layer_t *layers; /* [num_layers], owned */
  norm_t final_norm;
  const weight_t *project_out; /* [E, h] or NULL */
  const weight_t *head;        /* [V, E]; the embedding when tied; NULL when headless */
  const vector_t *head_bias;   /* [V] or NULL */
  float embed_scale, layer_embed_scale;
  float *inv_freq, *local_inv_freq; /* [dims / 2], owned */
  int32_t *entries;                 /* [2 max_model_len - 1] of attention_t, or NULL; owned */
  int32_t num_distances;            /* max_model_len */
  uint8_t *rope_axes;               /* [dims / 2] of `rope`, or NULL; owned */
  rope_t rope, local_rope;          /* local_rope: of layers that slide, dims 0 = as the others */
  uint64_t hash;
  float *kv_scales; /* of model_kv_scales, owned */
  /* activations, from model_prepare */
  act_t *x;           /* [T, max(h, E)] the residual stream */
  act_t *y;           /* [T, max(h, E)] normed input of a block */
  act_t *qkv;         /* [T, (Hq + 2 Hk) D] */
  act_t *attn;        /* [T, Hq D] */
  act_t *up;          /* [T, 2 f] or [T, f] */
  act_t *act;         /* [T, f] */
  act_t *own;         /* [T, the widest part] what this rank has of these, or NULL */
  act_t *q_down;      /* latent attention: [T, q rank] */
  act_t *latent_rows; /* [T, R + r] */
  act_t *latent_q;    /* [T, Hq (R + r)] */
  act_t *latent_sums; /* [T, Hq R] */
  act_t *index_q, *index_keys, *index_weights; /* [T, Hi d], [T, d], [T, Hi] */
  act_t *chosen; /* [T, INDEX_WIDTH(top)] of the last layer with an indexer */
  model_lora_t lora;
  act_t *shared;                       /* [T, h] output of a shared expert, or NULL */
  act_t *gate;                         /* [T, 1] its gate, or NULL */
  act_t *experts_in, *experts_out;     /* [T, H] around experts of a smaller vector, or NULL */
  act_t *attn_gate;                    /* [T, Hq D] or NULL */
  act_t *inputs, *input_sums;          /* [T, layers x P] embeddings of the layers, or NULL */
  act_t *input;                        /* [T, P] of one, gated */
  act_t *streams[ALTUP_STREAMS_MAX];   /* [T, h]; the first one is x, all NULL = there is one */
  act_t *laurel_rank, *laurel;         /* [T, r], [T, h] beside attention, or NULL */
  act_t *computed;                     /* [T, h] what a layer makes of the first stream, or NULL */
  act_t *router_in, *expert_out;       /* [T, h] of experts beside a dense MLP, or NULL */
  act_t *mix_in, *mix_out;             /* [T, M], [T, I] of a layer with a state, or NULL */
  act_t *mix_factors;                  /* [T, 2 heads], scratch of recur; or NULL */
  act_t *mix_rank, *mix_steps;         /* [T, R], [T, I] of Mamba-1, or NULL */
  act_t *mix_keys, *mix_queries;       /* [T, N] */
  const act_t *head_in;                /* x or y: [S, E] after model_forward */
  mtp_t mtp;                           /* all 0 = none is loaded; also of a head that drafts */
  eagle_t eagle;                       /* of a head, or for one; all 0 = none */
  post_layer_t post_layers[DENSE_MAX]; /* behind the pooling, in order */
  int32_t num_post_layers;
  act_t *post_rows, *post_sums; /* [R, widest of them] */
};

/* model.c: hidden[T, h] += output of the layer; scratch[T, h] is overwritten. */
void model_run_layer(model_t *model, const layer_t *layer, act_t *hidden, act_t *scratch,
                     int32_t rows);

#endif
