/* layout.h: the names and shapes of a family's tensors, as data.
 *
 * A layout is a table of patterns; tensors.c makes the expected tensor list of a model from it.
 * Constant; any thread may read it. Symbols: V vocabulary, E embedding width (of ROLE_EMBED) or
 * experts, h hidden size, f MLP width, I width of an expert, D head_dim, Hq/Hk heads. */
#ifndef INFERD_ENGINE_MODEL_FAMILIES_LAYOUT_H
#define INFERD_ENGINE_MODEL_FAMILIES_LAYOUT_H

#include "engine/model/roles.h"

#include <stdbool.h>

/* Symbolic dimensions, resolved against a blueprint. */
typedef enum dim {
  DIM_NONE, /* no second dimension: a vector */
  DIM_VOCAB,
  DIM_EMBED,
  DIM_TABLE, /* of the tables of an encoder */
  DIM_HIDDEN,
  DIM_HIDDEN_2, /* 2 h */
  DIM_HIDDEN_3,
  DIM_BANDS_3,  /* three taps of the bands of a spectrogram */
  DIM_TARGET_3, /* three rows of the target of a head that drafts */
  DIM_MLP,
  DIM_Q,
  DIM_KV,
  DIM_QKV,
  DIM_HEAD,
  DIM_Q_NORM, /* D, or Hq D when q and k are normed over all heads */
  DIM_K_NORM,
  DIM_HEADS,
  DIM_POSITIONS,
  DIM_GATE_UP,   /* 2 f */
  DIM_BUCKETS,   /* of distances */
  DIM_DISTANCES, /* vectors of them */
  DIM_EXPERTS,   /* E */
  DIM_EXPERT,    /* I */
  DIM_EXPERT_UP, /* 2 I */
  DIM_EXPERT_IN, /* what experts read and write: h, or fewer */
  DIM_SHARED,    /* width of the shared expert */
  DIM_SHARED_UP, /* twice that */
  DIM_MIX_IN,    /* of ROLE_MIX_IN and so on, see mixer.h */
  DIM_MIX_HEADS,
  DIM_MIX_HEADS_2, /* 2 heads */
  DIM_MIX_CONV,    /* channels x taps */
  DIM_MIX_NORM,
  DIM_MIX_INNER,
  DIM_MIX_KEYS, /* G Dk */
  DIM_MIX_KEY_TAPS,
  DIM_MIX_VALUE_TAPS,
  DIM_MIX_PARTS, /* of ROLE_MIX_PARTS */
  DIM_MIX_STEPS,
  DIM_MIX_STATE,  /* N */
  DIM_MIX_STATES, /* inner x N */
  DIM_TYPES,
  DIM_TASKS,
  DIM_LABELS,
  DIM_Q_RANK,
  DIM_LATENT,     /* R */
  DIM_LATENT_ROW, /* R + r */
  DIM_LATENT_UP,  /* Hq (n + v) */
  DIM_LATENT_OUT, /* Hq v */
  DIM_LATENT_KEY, /* Hq R */
  DIM_NOPE,       /* n */
  DIM_INDEX_Q,    /* Hi d */
  DIM_INDEX_KEY,  /* d */
  DIM_INDEX_HEADS,
  DIM_PER_LAYER, /* P: embeddings of a layer */
  DIM_PER_LAYERS,
  DIM_LAYER_VOCAB, /* rows of their table */
  DIM_STREAMS,     /* N */
  DIM_STREAMS_2,   /* N N */
  DIM_LAUREL,      /* r */
  DIM_ONE,
  DIM_ANSWERS /* rows of the head that a model which judges reads */
} dim_t;

/* When a tensor, or its bias, is expected. */
typedef enum when {
  WHEN_NEVER,
  WHEN_ALWAYS,
  WHEN_UNTIED,
  WHEN_HEAD, /* the model has a head */
  WHEN_HEAD_BIAS,
  WHEN_PROJECTED,
  WHEN_FINAL_NORM,
  WHEN_NORM_AFFINE,
  WHEN_MLP_NORM,   /* the MLP has a norm of its own before it */
  WHEN_TWO_INPUTS, /* attention and MLP of a parallel block read two norms */
  WHEN_ONE_INPUT,  /* they do not */
  WHEN_OUT_NORMS,  /* attention and MLP have norms behind them */
  WHEN_SERIAL,     /* the block is not parallel */
  WHEN_QKV_FUSED,  /* one tensor holds q, k and v */
  WHEN_QKV_APART,
  WHEN_QKV_BIAS_FUSED,
  WHEN_QKV_BIAS_APART,
  WHEN_QKV_BIAS,
  WHEN_O_BIAS,
  WHEN_MLP_BIAS,
  WHEN_QK_NORM,
  WHEN_DENSE, /* layers without experts */
  WHEN_DENSE_BIAS,
  WHEN_DENSE_GATED, /* their MLP has a gate */
  WHEN_DENSE_PLAIN,
  WHEN_EXPERTS,
  WHEN_EXPERTS_PLAIN, /* layers with experts that are not MXFP4 */
  WHEN_EXPERTS_MXFP4,
  WHEN_EXPERTS_EACH, /* layers with experts that have tensors of their own */
  WHEN_EXPERTS_STACKED,
  WHEN_EXPERTS_IN, /* layers with experts that read a smaller vector */
  WHEN_SHARED,
  WHEN_SCORED, /* layers with experts that are scored */
  WHEN_Q_RANK, /* queries have a rank */
  WHEN_Q_RANK_BIAS,
  WHEN_Q_WHOLE, /* they have none */
  WHEN_LATENT_WHOLE,
  WHEN_LATENT_SPLIT,
  WHEN_CHOOSES, /* layers with an indexer */
  WHEN_MIXER_BIAS,
  WHEN_CONV_BIAS,
  WHEN_MIXER_NORM,
  WHEN_PARTS_NORM,
  WHEN_STATE,    /* layers that keep a state */
  WHEN_NO_STATE, /* layers that do not */
  WHEN_TYPES,
  WHEN_TASKS,
  WHEN_POSITIONS, /* there is a table of positions */
  WHEN_DISTANCES, /* distances have vectors */
  WHEN_DISTANCE_NORM,
  WHEN_TABLES_APART, /* tables have a width of their own */
  WHEN_NORM_BIAS,
  WHEN_NOT_FIRST, /* layers whose attention has a norm before it */
  WHEN_NOT_FIRST_BIAS,
  WHEN_LABELS, /* the model classifies */
  WHEN_POOLER_BIAS,
  WHEN_LABELS_NORM_BIAS,
  WHEN_ANSWERS,
  WHEN_LOGITS_BIAS,
  WHEN_PER_LAYER /* layers have embeddings of their own */
} when_t;

typedef struct tensor_pattern {
  tensor_role_t role;
  /* Without prefix and ".weight"; '#': the layer; first '/': no prefix; last '!': no ".weight";
   * behind '|': what files may have in the place of its last part. */
  const char *name;
  const char *gguf; /* the same in GGUF files; NULL, as above: files of this kind lack it */
  dim_t rows, cols;
  when_t weight, bias;
  form_t form;
} tensor_pattern_t;

enum { LAYOUT_PREFIXES_MAX = 10, LAYOUT_IGNORED_MAX = 6 };

typedef struct layout {
  const tensor_pattern_t *patterns;
  int num_patterns;
  /* Of safetensors; those of GGUF files are the same for all. */
  const char *prefixes[LAYOUT_PREFIXES_MAX]; /* tried in order; NULL ends */
  const char
      *ignored[LAYOUT_IGNORED_MAX]; /* names that hold or, after '$', end in one; NULL ends */
  bool experts_interleaved;         /* gate and up of stacked experts alternate, row by row */
  bool qkv_grouped; /* fused q, k, v: heads of q that share a head of k, that head, its head of v */
  int qvk_groups;   /* q, v and k of so many groups of heads follow each other in one tensor */
  bool may_stack;   /* experts may stand in stacks, which the files tell */
} layout_t;

#endif
