/* family.h: the differences between model families, as data.
 *
 * A family is one row of a table: the architecture name, the defaults that its configuration class
 * gives to absent keys, a few rules, and a layout (the names and shapes of its tensors). A lineage
 * is a file with the rows and layouts of families that come from each other. config.c reads the row
 * to make a blueprint, tensors.c reads the layout to make the expected tensor list. Nothing here
 * runs; a new family is a row and a test.
 */
#ifndef INFERD_ENGINE_MODEL_FAMILIES_FAMILY_H
#define INFERD_ENGINE_MODEL_FAMILIES_FAMILY_H

#include "engine/model/families/layout.h"
#include "engine/model/families/rules.h"
#include "engine/model/model.h"

/* What scores labels. */
typedef enum label_head {
  LABELS_NONE,
  LABELS_OF_TEXTS, /* ForSequenceClassification */
  LABELS_OF_TOKENS /* ForTokenClassification */
} label_head_t;

enum { TABLE_IS_HIDDEN = -1 }; /* tables are as wide as the layers, if no key says otherwise */

/* Of a model of two stacks of layers: whose keys a family reads. */
typedef enum side { SIDE_ALONE, SIDE_ENCODER, SIDE_DECODER } side_t;

typedef struct family {
  const char *name;         /* model_type */
  const char *architecture; /* architectures[0] */
  const char *text_type;    /* nested: model_type in text_config */
  const layout_t *layout;
  bool gguf_zipped; /* GGUF files have rows i and i + D / 2 of every head of q and k side by side */
  /* class defaults of absent keys (transformers configuration_*.py) */
  int32_t vocab_size, hidden_size, intermediate_size, num_layers, num_heads;
  int32_t num_kv_heads; /* 0 = num_heads */
  int32_t head_dim;     /* 0 = hidden_size / num_heads */
  int32_t max_positions, window;
  int32_t eos_id, bos_id; /* -1 = none */
  double norm_eps, rope_theta /* 0 = must be given */;
  bool rms_by_key;          /* of NORM_LAYER: NORM_RMS where rms_norm_eps is given */
  const char *norm_eps_key; /* of an RMSNorm beside rms_norm_eps, of a LayerNorm alone; or NULL */
  const char *activation;
  bool tied;
  /* rules */
  norm_kind_t norm;
  bool rotary; /* else a learned table of positions */
  bool gated_mlp;
  bool grouped;                    /* honours num_key_value_heads and head_dim */
  bool qkv_bias, o_bias, mlp_bias; /* present unless a key is false */
  const char *qkv_bias_key, *o_bias_key;
  const char *attention_bias_key; /* switches q, k, v and o biases; NULL = no such key */
  const char *mlp_bias_key, *mlp_bias_key_also;
  const char *head_bias_key;   /* switches the bias of the head; NULL = no such key */
  bool bias_default;           /* value of those keys when absent */
  bool qk_norm, norm_plus_one; /* (1 + w) norms */
  const char *qk_norm_key;     /* NULL = no such key */
  bool opt_keys;               /* do_layer_norm_before and the other keys of OPT */
  int32_t position_offset;
  window_rule_t window_rule;
  int32_t window_pattern;
  full_rule_t full_rule;
  block_kind_t block;
  bool qk_norm_whole, qk_norm_each, qk_norm_late; /* attention_t */
  bool sinks, no_rope_keys, longrope;
  bool layer_thetas;      /* layer_rope_theta: a base for each layer; 0 = it does not rotate */
  double local_theta;     /* of sliding layers; -1 = theta without scaling, 0 = as the others */
  bool gemma_keys;        /* (1 + w) norms, embedding * sqrt(h), query_pre_attn_scalar, softcaps */
  bool gemma4_keys;       /* config_gemma4.c */
  bool gemma3n_keys;      /* config_gemma3n.c */
  int32_t per_layer_size; /* class default of hidden_size_per_layer_input */
  double proportional;  /* knows this kind of rotation: the part that moves without a key; 0 = no */
  double rotary_factor; /* default of partial_rotary_factor; 0 = all dimensions are rotated */
  bool rope_reversed;   /* it turns by the negative of the angles */
  bool rope_pairs;      /* the files have the dimensions of a rotated pair side by side */
  double attn_scale;    /* of q.k, whatever the keys say; 0 = as they say */
  const char *parallel_key; /* true: BLOCK_PARALLEL, false: BLOCK_PRE_NORM; absent: `block` */
  bool shared_norm;         /* attention and MLP of a parallel block read one norm */
  bool falcon_keys;         /* new_decoder_architecture and what it decides */
  bool multi_query;         /* the key: one head of K and V, or as many as of Q */
  int32_t rotary_dim;       /* default of the key, which counts dimensions; 0 = no such key */
  bool rope_alpha;          /* knows alpha beside dynamic: a larger theta, whatever the length */
  double attn_softcap, final_softcap; /* class defaults */
  bool granite_keys;                  /* the four multipliers */
  bool clova_keys;    /* of them logits_scaling is a factor; use_post_norm: BLOCK_SANDWICH or not */
  double logit_scale; /* class default of the key; 0 = no such key */
  bool nested;        /* the text model's keys stand in text_config */
  bool flat_too;      /* nested, but in older files they stand outside */
  bool text_ties;     /* of wrapper_t */
  bool query_growth;  /* llama_4_scaling_beta: q grows with the position */
  bool alibi;         /* scores fall with the distance, and nothing rotates */
  bool mpt_keys;      /* attn_config */
  bool distances;     /* scores have a number by distance (MPNet) */
  bool clip_key;      /* clip_qkv bounds q, k and v */
  bool attn_gate, attn_gate_apart, attn_gate_by_head; /* of blueprint_t */
  const char *embed_root_key; /* true: embeddings times sqrt(h); NULL = no such key */
  mixer_keys_t mixer_keys;
  bool unattended; /* no layer has attention, whose keys are not read */
  /* encoders: attention in both directions, no head */
  bool encoder, embed_norm, first_unnormed; /* layer 0 has no norm before attention */
  bool padded_positions; /* positions begin behind pad_token_id; the table has those before, too */
  int32_t pad_id, token_types;
  int32_t table_size;       /* class default of table_key; 0 = no such key, TABLE_IS_HIDDEN */
  const char *table_key;    /* NULL = embedding_size */
  bool table_projects;      /* also tables as wide as the layers */
  int32_t task_types;       /* class default of task_type_vocab_size; 0 = no use_task_id */
  bool deberta_keys;        /* relative_attention and what it decides: config_deberta.c */
  bool t5_keys;             /* config_t5.c */
  side_t side;              /* config_cross.c */
  const char *encoder_name; /* of a decoder: the family of the encoder before it; NULL = none */
  sinusoid_t sinusoid;
  bool speech_keys;          /* max_source_positions and its kin, of Whisper */
  int32_t num_bands;         /* class default of num_mel_bins; 0 = no such key */
  bool embed_root;           /* class default of embed_root_key */
  bool one_layer;            /* whose weights all layers have */
  bool tags_by_classifier;   /* a decoder: its layer of labels of tokens is classifier, not score */
  const char *norm_bias_key; /* switches the biases of norms; NULL = norms have them */
  mtp_kind_t mtp;            /* layers that mtp.h describes */
  bool eagle;                /* a head that eagle.h describes, no model */
  expert_keys_t expert_keys;
  int32_t num_experts, experts_top, expert_size, shared_size; /* class defaults */
  bool latent; /* latent attention; class defaults of kv_lora_rank and its kin: */
  int32_t kv_rank, q_rank, nope_dim, rope_dim, value_dim;
  int32_t index_heads, index_dim, index_top; /* class defaults of index_n_heads ...; 0 = none */
  bool index_pairs, index_shared;            /* of blueprint_t; layers may share what is chosen */
  bool rope_interleave_key;                  /* rope_interleave says what rope_pairs is */
  bool whole_factor; /* head_dim and partial_rotary_factor count the dimensions that do not turn */
  /* Of experts that are scored: their rule, and class defaults. */
  routing_t routing;
  dense_rule_t dense_rule;
  int32_t num_shared, dense_first, num_groups, groups_top;
  bool group_pairs;    /* of softmax scores: groups as those of sigmoid scores */
  bool shares_sum;     /* norm_topk_prob */
  double share_factor; /* routed_scaling_factor */
  picture_mask_t picture_mask;
  mrope_t mrope; /* MROPE_NONE: as the keys say (of GGUF files), and without them none */
  int32_t mrope_sections[3]; /* class default of mrope_section */
  bool rotary_dim_key;       /* rotary_dim instead of partial_rotary_factor (MiniMax M2) */
} family_t;

/* A model around the text model of any family. */
typedef struct wrapper {
  const char *architecture;
  const char *text_type; /* model_type of a text_config that names none */
  const char *text_key;  /* instead of text_config; "" = its keys stand outside */
  const char *within;    /* the object that has text_config, or NULL */
  const char *own;       /* the same of the files of who made the model; there its key ties */
  bool tied;             /* class default of tie_word_embeddings, which stands outside */
  bool text_ties;        /* the key of text_config ties, too */
  bool ties_inside;      /* that key alone does */
} wrapper_t;

/* A name that GGUF files give to a family, their general.architecture. */
typedef struct gguf_name {
  const char *name, *architecture;
  int needs;       /* beside the common keys, rules.h */
  int wide_layers; /* layers of the one model whose queries are scaled by hidden / heads; 0 = none
                    */
} gguf_name_t;

/* Rows of one file. */
typedef struct family_table {
  const family_t *rows;
  size_t count;
  const gguf_name_t *gguf;
  size_t num_gguf;
} family_table_t;

/* The names that files of one kind, GGUF or safetensors, have beside those of the patterns. */
const char *const *layout_prefixes(const layout_t *layout, bool gguf);
const char *const *layout_ignored(const layout_t *layout, bool gguf); /* LAYOUT_IGNORED_MAX */
static inline const char *pattern_name(const tensor_pattern_t *pattern, bool gguf) {
  return gguf ? pattern->gguf : pattern->name;
}
/* By architecture name, or NULL. */
const family_t *family_by_architecture(const char *architecture, size_t length);
/* The row of a wrapper whose text_config has this model_type, or NULL. */
const family_t *family_by_text(const char *architecture, const char *type, size_t length);
/* The row of a model without its head, or with another one, as transformers names it: Qwen3Model,
 * Gemma3TextModel, BertForMaskedLM, Qwen3ForSequenceClassification. *head: what the last of these
 * names. NULL = none. */
const family_t *family_by_body(const char *architecture, size_t length, label_head_t *head);
/* By the architecture of a wrapper, or NULL. wrappers.c. */
const wrapper_t *family_wrapper(const char *architecture, size_t length);
/* By model_type, as a model of its own or as the text part of one, or NULL. */
const family_t *family_by_text_type(const char *type, size_t length);
/* The names in GGUF files, from 0 on; NULL = no more. */
const gguf_name_t *family_gguf(size_t index);
/* By model_type, or NULL. */
const family_t *family_by_name(const char *name, size_t length);
/* Why an unknown architecture is not served, or what is instead: a sentence without its end, or
 * NULL. */
const char *family_advice(const char *architecture, size_t length);

#endif
