/* family.h: what tells one model family from another, as data.
 *
 * A family is one row of a table: the architecture name, the defaults that its configuration class
 * gives to absent keys, a few rules, and a layout (the names and shapes of its tensors). config.c
 * reads the row to make a blueprint, tensors.c reads the layout to make the expected tensor list.
 * Nothing here runs; a new family is a row and a test.
 */
#ifndef INFERD_ENGINE_MODEL_FAMILY_H
#define INFERD_ENGINE_MODEL_FAMILY_H

#include "engine/model/model.h"

/* What a tensor does in the forward. The layer roles repeat once per layer. */
typedef enum tensor_role {
  ROLE_EMBED,       /* [V, E] */
  ROLE_POSITIONS,   /* [positions + offset, h] */
  ROLE_PROJECT_IN,  /* [h, E] */
  ROLE_PROJECT_OUT, /* [E, h] */
  ROLE_FINAL_NORM,  /* [h] */
  ROLE_HEAD,        /* [V, E] */
  ROLE_ATTN_NORM,   /* [h]; the first of a layer */
  ROLE_FIRST_OF_LAYER = ROLE_ATTN_NORM,
  ROLE_MLP_NORM, /* [h] */
  ROLE_QKV,      /* fused in the file: [(Hq + 2 Hk) D, h] */
  ROLE_Q,        /* [Hq D, h] */
  ROLE_K,        /* [Hk D, h] */
  ROLE_V,        /* [Hk D, h] */
  ROLE_O,        /* [h, Hq D] */
  ROLE_Q_NORM,   /* [D] */
  ROLE_K_NORM,   /* [D] */
  ROLE_GATE,     /* [f, h] */
  ROLE_UP,       /* [f, h]; fc1 of a plain MLP */
  ROLE_DOWN,     /* [h, f]; fc2 of a plain MLP */
  ROLE_COUNT
} tensor_role_t;

/* Symbolic dimensions, resolved against a blueprint. */
typedef enum dim {
  DIM_NONE, /* no second dimension: a vector */
  DIM_VOCAB,
  DIM_EMBED,
  DIM_HIDDEN,
  DIM_MLP,
  DIM_Q,
  DIM_KV,
  DIM_QKV,
  DIM_HEAD,
  DIM_POSITIONS
} dim_t;

/* When a tensor, or its bias, is expected. */
typedef enum when {
  WHEN_NEVER,
  WHEN_ALWAYS,
  WHEN_UNTIED,
  WHEN_PROJECTED,
  WHEN_FINAL_NORM,
  WHEN_NORM_AFFINE,
  WHEN_QKV_BIAS,
  WHEN_O_BIAS,
  WHEN_MLP_BIAS,
  WHEN_QK_NORM
} when_t;

typedef struct tensor_pattern {
  tensor_role_t role;
  const char *name; /* without prefix and ".weight"; '#' is the layer; leading '/' = no prefix */
  dim_t rows, cols;
  when_t weight, bias;
  bool conv1d; /* the file holds it transposed: [cols, rows] */
} tensor_pattern_t;

typedef struct layout {
  const tensor_pattern_t *patterns;
  int num_patterns;
  const char *prefixes[2]; /* tried in order; NULL ends */
  const char *ignored[4];  /* names that hold or, after '$', end in one of these; NULL ends */
} layout_t;

typedef enum window_rule {
  WINDOW_NEVER, /* keys about windows are ignored, as the reference does */
  WINDOW_ALL,   /* every layer, when `sliding_window` is not null */
  WINDOW_UPPER  /* layers from `max_window_layers`, when `use_sliding_window` */
} window_rule_t;

typedef struct family {
  const char *name;         /* model_type */
  const char *architecture; /* architectures[0] */
  const layout_t *layout;
  /* class defaults of absent keys (transformers configuration_*.py) */
  int32_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads;
  int32_t num_kv_heads; /* 0 = num_heads */
  int32_t head_dim;     /* 0 = hidden_size / num_heads */
  int32_t max_positions, window;
  int32_t eos_id, bos_id; /* -1 = none */
  double norm_eps, rope_theta /* 0 = must be given */;
  const char *activation;
  bool tied;
  /* rules */
  norm_kind_t norm;
  bool rotary; /* else a learned table of positions */
  bool gated_mlp;
  bool grouped;                    /* honours num_key_value_heads and head_dim */
  bool qkv_bias, o_bias, mlp_bias; /* always there */
  const char *attention_bias_key;  /* switches q, k, v and o biases; NULL = no such key */
  const char *mlp_bias_key;
  bool bias_default; /* value of those keys when absent */
  bool qk_norm;
  const char *qk_norm_key; /* NULL = no such key */
  bool opt_keys;           /* do_layer_norm_before and the other keys of OPT */
  int32_t position_offset;
  window_rule_t window_rule;
} family_t;

/* By architecture name, or NULL. */
const family_t *family_by_architecture(const char *architecture, size_t length);
/* By model_type, or NULL. */
const family_t *family_by_name(const char *name, size_t length);
/* Writes "LlamaForCausalLM, ..." for messages. Returns `out`. */
const char *family_list(char *out, size_t capacity);

#endif
