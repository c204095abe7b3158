/* blueprint.h: what config.json, or a GGUF file, says of a model, in one normal form.
 *
 * Plain data, made by blueprint_read on any thread and constant afterwards. */
#ifndef INFERD_ENGINE_MODEL_BLUEPRINT_H
#define INFERD_ENGINE_MODEL_BLUEPRINT_H

#include "engine/device/ops.h"
#include "engine/device/sampling_params.h"
#include "engine/model/mixer.h"
#include "engine/model/mtp_kind.h"
#include "engine/model/scheme.h"

enum { MODEL_EOS_MAX = 32, MODEL_LAYERS_MAX = 1024, ROPE_FACTORS_MAX = 256 };

typedef enum rope_type {
  ROPE_NONE,
  ROPE_DEFAULT,
  ROPE_LINEAR,
  ROPE_DYNAMIC,
  ROPE_LLAMA3,
  ROPE_YARN,
  ROPE_LONGROPE,
  ROPE_PROPORTIONAL /* Gemma 4, LFM3: of a whole head, of which the slow dimensions stand still */
} rope_type_t;

/* Which pairs of a head turn by the time, the line and the column of a token of a picture. */
typedef enum mrope {
  MROPE_NONE,
  MROPE_PARTS,      /* Qwen2-VL: the first `sections[0]` pairs, the next `sections[1]`, the rest */
  MROPE_INTERLEAVED /* Qwen3-VL: by turns; line and column as often as their sections say */
} mrope_t;

/* The layers in which a token of a picture sees all of it, also what stands behind the token. */
typedef enum picture_mask {
  PICTURES_CAUSAL,
  PICTURES_WHOLE,
  PICTURES_WHOLE_WHERE_SLIDING
} picture_mask_t;

/* Normal form of all spellings of rotary settings (reference: transformers modeling_rope_utils). */
typedef struct rope_config {
  rope_type_t type;
  double theta, factor, low_freq_factor, high_freq_factor;
  double beta_fast, beta_slow, attention_factor /* 0 = derive */;
  bool truncate;
  double query_growth;   /* llama_4_scaling_beta: q grows from original_max on; 0 = it does not */
  int32_t dims;          /* rotated dimensions */
  int32_t moving;        /* of these, with ROPE_PROPORTIONAL */
  int32_t original_max;  /* original_max_position_embeddings */
  double mscale_all_dim; /* yarn: grows the scale of latent attention */
  /* longrope: what the frequencies are divided by, [dims / 2], and the scale of cos and sin */
  float short_factor[ROPE_FACTORS_MAX], long_factor[ROPE_FACTORS_MAX];
  double short_scale, long_scale;
  mrope_t mrope;
  int32_t sections[3]; /* pairs of time, line, column */
  bool reversed;       /* turns by the negative of the angles (NanoChat) */
} rope_config_t;

typedef enum block_kind {
  BLOCK_PRE_NORM,  /* x += attn(norm(x)); x += mlp(norm(x)) */
  BLOCK_POST_NORM, /* x = norm(x + attn(x)); x = norm(x + mlp(x))   (OPT-350m) */
  BLOCK_SANDWICH,  /* x += norm(attn(norm(x))); x += norm(mlp(norm(x)))   (Gemma) */
  BLOCK_OUT_NORM,  /* x += norm(attn(x)); x += norm(mlp(x))   (OLMo 2) */
  BLOCK_PARALLEL,  /* x += attn(norm(x)) + mlp(norm(x)), of one norm or of two   (GPT-NeoX) */
  BLOCK_ALTUP      /* x is one of several streams (altup_ops.h)   (Gemma 3n) */
} block_kind_t;

/* Flags of a single layer. */
enum { LAYER_SLIDES = 1, LAYER_EXPERTS = 2, LAYER_NO_ROPE = 4, LAYER_MIXER = 8 };
enum { LAYER_NO_ATTENTION = 16, LAYER_NO_MLP = 32, LAYER_SPARSE = 64 };
enum { LAYER_CHOSEN = 128 }; /* its tokens attend to what a layer before it has chosen */

/* Of models that read in both directions, and of classifiers. */
typedef struct encoder {
  bool bidirectional;  /* a token sees all of its prompt, or those within the window at each side */
  bool embed_norm;     /* behind the embeddings */
  bool plain_norms;    /* LayerNorms without a bias */
  bool first_unnormed; /* layer 0 has no norm before attention */
  int32_t token_types; /* rows of the table of token types, 0 = none */
  int32_t task_types;  /* rows of a table of tasks, whose first row all tokens have; 0 = none */
  int32_t table_size;  /* columns of the tables, which are projected then; 0 = hidden_size */
  bool one_layer;      /* all layers are the first one (ALBERT) */
  /* Disentangled attention (DeBERTa): vectors of distances, 2 span of them; 0 = none. */
  int32_t distance_span, distance_longest; /* logarithms from span / 2 on to the longest; 0: none */
  bool distance_keys, distance_queries, distance_norm; /* which of them scores have; normed */
  /* The classifier, of decoders too: [pooler, activation, norm,] labels. */
  int32_t post_width; /* of the widest layer behind the pooling */
  int32_t num_labels; /* 0 = the model does not classify */
  bool tags;          /* it reads each token, and all that it computes stands for that token */
  bool has_pooler, pooler_bias, pooler_norm;
  activation_t pooler;
  bool mean_pooled; /* it reads the mean over all tokens, not the first (of a decoder: the last) */
  /* A score is the logit of the second token minus that of the first: rows of the head. */
  bool judges, answer_rows; /* GGUF: the file has those rows alone, that of the second first */
  int32_t answer_ids[2];
} encoder_t;

/* How a table of positions is made that no file has: sines, then cosines of position times powers
 * of 10000, whose exponents go by steps of -2 / h, or of -1 / (h / 2 - 1). */
typedef enum sinusoid { SINUSOID_NONE, SINUSOID_BY_WIDTH, SINUSOID_TO_END } sinusoid_t;

/* Of a decoder whose layers see the rows of an encoder, which has a blueprint of its own
 * (blueprint_read_encoder). */
enum { BANNED_IDS_MAX = 16 };
typedef struct cross_config {
  bool crosses;
  bool logits_bias;      /* there is a ROLE_HEAD_BIAS */
  int32_t start_id;      /* the first id of its prompts; -1 = requests say it */
  int32_t forced_bos_id; /* always the id behind it; -1 = none */
  int32_t num_banned, banned_ids[BANNED_IDS_MAX]; /* are never generated (bad_words_ids) */
  int32_t num_beams;                              /* default of generation_config.json; 1 = none */
  early_stopping_t early_stopping;
  float length_penalty;
} cross_config_t;

typedef struct blueprint {
  char family[32];       /* "llama", "qwen2", "opt", ... */
  char architecture[64]; /* config.json architectures[0] */
  int32_t vocab_size, hidden_size, intermediate_size, num_layers;
  int32_t num_heads, num_kv_heads, head_dim;
  int32_t num_mtp, mtp; /* layers that predict (mtp.h): in the files, loaded (0 or 1) */
  mtp_kind_t mtp_kind;
  eagle_config_t eagle;
  /* Latent attention (latent_ops.h): ranks of the latent vector and of queries, 0 = none; rotated
   * dimensions of a head, which are its last; dimensions of a head's values. */
  int32_t kv_rank, q_rank, rope_dim, value_dim;
  int32_t index_heads, index_dim, index_top; /* indexer_t; 0 = a token attends to all keys */
  bool index_pairs;   /* its files have the dimensions of a rotated pair side by side */
  int32_t embed_size; /* word_embed_proj_dim of OPT, else hidden_size */
  dtype_t dtype;      /* run dtype of weights */
  norm_kind_t norm;
  float norm_eps;
  bool norm_affine, final_norm;
  block_kind_t block;
  bool shared_norm; /* BLOCK_PARALLEL: attention and MLP read the same norm */
  bool qkv_bias, o_bias, mlp_bias, head_bias, qk_norm;
  bool qkv_fused, latent_split; /* GGUF: q, k, v in one tensor; K, V of latent rows apart */
  bool qk_norm_whole, qk_norm_each, qk_norm_late, sinks; /* attention_t */
  bool attn_gate, attn_gate_apart;   /* attention's output is times sigmoid of a projection, whose
                                      * rows stand behind each q or in a tensor apart; */
  bool attn_gate_by_head;            /* that has a row for each head, not for each of its values */
  mixer_config_t mixer;              /* of the layers with a state */
  bool norm_plus_one;                /* the stored norm weights are w of (1 + w) */
  double embed_scale;                /* of the embeddings; 1 = none */
  bool embed_rounds;                 /* embed_scale is rounded to the run dtype first */
  bool scales_rows;                  /* rows in the place of embeddings are scaled, too */
  double residual_scale, head_scale; /* of what is added to the stream; of the logits */
  double attn_scale, attn_softcap, final_softcap; /* of q.k, 0 = 1 / sqrt(D); 0 = none */
  double alibi_max;         /* of the slopes 2^(-alibi_max i / heads); 0 = no ALiBi */
  int32_t distance_buckets; /* numbers of a head that are added by distance; 0 = none */
  double qkv_limit;         /* of the absolute values of q, k and v; 0 = none */
  bool gated_mlp;           /* gate, up, down; else fc1, fc2 */
  activation_t activation;
  bool xielu;          /* instead: numbers of each layer, after fc1 */
  bool tied, headless; /* the head is the embedding; there is none: prompts become vectors */
  bool within;         /* the text model of a larger one, or a GGUF file, which may be */
  bool learned_positions;
  int32_t position_offset, num_positions; /* OPT: 2; rows of the learned table without it */
  bool rope_pairs;                /* the files have the dimensions of a rotated pair side by side */
  rope_config_t rope, local_rope; /* local_rope: of sliding layers, ROPE_NONE = as the others */
  picture_mask_t picture_mask;
  int32_t window, window_groups; /* sliding window; model_window_groups, or all share blocks */
  uint8_t *layer_flags;          /* [num_layers + 1] LAYER_ bits; owned */
  int32_t num_experts, experts_top, expert_size, shared_size; /* 0 = none */
  int32_t expert_in; /* numbers that experts read and write (Nemotron 3 Super); 0 = hidden_size */
  bool experts_normalise, experts_mxfp4;
  bool shared_mean;     /* the shared experts count half, as share_factor makes the others do */
  bool experts_stacked; /* one tensor for all experts: not one for each, or (Qwen3-VL) not turned */
  routing_t routing;    /* of the experts, with the numbers of moe_t */
  int32_t num_groups, groups_top;
  bool group_pairs; /* a group counts by its two best experts, not by its best one */
  double share_floor, share_factor, share_more, nearness;
  /* Gemma 4. Layers that do not slide have heads of their own; 0 = they are as the others. */
  int32_t full_head_dim, full_kv_heads;
  bool full_k_is_v, v_norm;  /* V of those layers is K before its norm; V is normed, too */
  int32_t num_kv_shared;     /* the last layers read K and V of the last one of their kind before */
  bool kv_shared_wide;       /* MLPs of those are twice as wide */
  int32_t per_layer_size;    /* embeddings of a layer: columns; 0 = none */
  int32_t layer_vocab;       /* their rows; ids behind these have those of id 0 */
  int32_t picture_id;        /* whose embeddings of layers a token of a picture has */
  bool layer_scalars;        /* each layer multiplies the stream */
  bool experts_beside;       /* experts stand beside a dense MLP, with norms of their own */
  int32_t num_streams;       /* Gemma 3n: residual streams; 0 = one */
  int32_t laurel_rank;       /* of what it has beside attention */
  bool stream_scale;         /* stream 0 is scaled before the embeddings of the layer */
  double mlp_sparsity;       /* share of the gate's values that LAYER_SPARSE makes 0 */
  sinusoid_t sinusoid;       /* of its table of positions */
  int32_t num_bands;         /* of the spectrograms that an encoder reads; 0 = it reads ids */
  cross_config_t cross;      /* all 0 = no encoder stands before it */
  encoder_t encoder;         /* all 0 = a decoder that generates, or embeds, in one direction */
  bool conv1d, gguf;         /* GPT-2: weights stored [in, out]; tensors stored as in GGUF files */
  scheme_t scheme;           /* of the quantised weights in safetensors files */
  int32_t max_model_len;     /* longest sequence that the checkpoint allows */
  int32_t default_model_len; /* length without --max-model-len: short longrope, or the longest */
  int32_t primary_eos, num_eos; /* -1 = none; union of config and generation_config, with it */
  int32_t eos_ids[MODEL_EOS_MAX], bos_id;
  float temperature, top_p, min_p, repetition_penalty; /* generation_config.json; NaN = not given */
  int32_t top_k, max_new_tokens;                       /* the same; -1 = not given */
  int64_t num_parameters;                              /* filled by model_load */
  model_part_t shard; /* what of it this process has; all 0 but for the engine of a rank */
  char notes[512];    /* for the log: lines between '\n', "" = none */
} blueprint_t;

/* Adds a line to the notes; what does not fit is cut. */
void blueprint_note(blueprint_t *blueprint, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* 0, or the refusal of an architecture that is not served; asked before the tokenizer is read. */
int blueprint_check_family(const char *dir, inferd_error_t *error);
/* Reads config.json and generation_config.json, or the metadata of the GGUF file that `dir` is or
 * holds. `tokenizer_max` is the tokenizer's model_max_length (0 = unknown), `tokenizer_eos` its EOS
 * id or -1. ERR_MODEL_MISSING, ERR_MODEL_MALFORMED with file, key, value found and supported. */
int blueprint_read(const char *dir, double tokenizer_max, int32_t tokenizer_eos, blueprint_t *out,
                   inferd_error_t *error);
/* The same of the encoder before a decoder with cross.crosses. */
int blueprint_read_encoder(const char *dir, double tokenizer_max, blueprint_t *out,
                           inferd_error_t *error);
void blueprint_free(blueprint_t *blueprint);

#endif
