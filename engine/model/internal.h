/* internal.h: a loaded model. Shared by load.c, which fills it, and model.c, which runs it.
 *
 * Symbols: h hidden size, E embedding width, f MLP width, V vocabulary, D head_dim, Hq/Hk heads,
 * T tokens of a step, S selected rows. Device pointers belong to the device.
 */
#ifndef INFERD_ENGINE_MODEL_INTERNAL_H
#define INFERD_ENGINE_MODEL_INTERNAL_H

#include "engine/model/model.h"

typedef struct layer {
  norm_t attn_norm;
  const weight_t *qkv;      /* [(Hq + 2 Hk) D, h] */
  const vector_t *qkv_bias; /* [(Hq + 2 Hk) D] or NULL */
  attention_t attention;
  const weight_t *o;      /* [h, Hq D] */
  const vector_t *o_bias; /* [h] or NULL */
  norm_t mlp_norm;
  const weight_t *up;        /* [2 f, h] gate then up; [f, h] without a gate */
  const vector_t *up_bias;   /* [2 f] or [f], or NULL */
  const weight_t *down;      /* [h, f] */
  const vector_t *down_bias; /* [h] or NULL */
} layer_t;

struct model {
  const ops_t *ops;
  device_t *device;
  blueprint_t blueprint;      /* own copy */
  const weight_t *embed;      /* [V, E] */
  const weight_t *positions;  /* [positions + offset, h] or NULL */
  const weight_t *project_in; /* [h, E] or NULL */
  layer_t *layers;            /* [num_layers], owned */
  norm_t final_norm;
  const weight_t *project_out; /* [E, h] or NULL */
  const weight_t *head;        /* [V, E]; the embedding when tied */
  float *inv_freq;             /* [rope.dims / 2], owned */
  rope_t rope;
  uint64_t hash;
  /* activations, from model_prepare */
  act_t *x;             /* [T, max(h, E)] the residual stream */
  act_t *y;             /* [T, max(h, E)] normed input of a block */
  act_t *qkv;           /* [T, (Hq + 2 Hk) D] */
  act_t *attn;          /* [T, Hq D] */
  act_t *up;            /* [T, 2 f] or [T, f] */
  act_t *act;           /* [T, f] */
  const act_t *head_in; /* x or y: [S, E] after model_forward */
};

#endif
