/* mixer.h: layers that mix tokens by a state of fixed size, as data.
 *
 * Such a layer stands in the place of attention, or beside it. It projects its input to some
 * columns, runs a convolution over channels of these, mostly a recurrence over what comes out, and
 * projects back. The operations are those of state_ops.h. Plain data; part of a blueprint.
 */
#ifndef INFERD_ENGINE_MODEL_MIXER_H
#define INFERD_ENGINE_MODEL_MIXER_H

#include <stdbool.h>
#include <stdint.h>

/* The columns of the projection, with the parts that are not always there in brackets:
 *   CONV    B | C | x, h each: the convolution takes B x, and C times it is the output
 *   DELTA   q | k | v | z | rate | step; the convolution takes q, k, v
 *   MAMBA2  z | x | B | C | step; the convolution takes x, B, C; B is the k, C the q, x the v
 *   MAMBA   x | z; the convolution takes x, of which B, C and steps of a smaller rank are made */
typedef enum mixer_kind {
  MIXER_NONE,
  MIXER_CONV,
  MIXER_DELTA,
  MIXER_MAMBA2,
  MIXER_MAMBA
} mixer_kind_t;

/* Which keys of config.json describe the layers with a state. */
typedef enum mixer_keys {
  MIXERS_NONE,
  MIXERS_LFM2,  /* layer_types with conv, or full_attn_idxs; conv_L_cache, block_ keys of the MLP */
  MIXERS_DELTA, /* linear_attention in layer_types or by full_attention_interval; linear_ keys */
  MIXERS_DELTA_BY_GROUP, /* the same; the rows of q, k, v and z stand together by group */
  MIXERS_GRANITE,        /* mamba_ keys; layer_types; shared_intermediate_size */
  MIXERS_BAMBA,          /* mamba_ keys; attn_layer_indices */
  MIXERS_FALCON,         /* mamba_ keys, beside attention; multipliers */
  MIXERS_NEMOTRON,       /* hybrid_override_pattern or layers_block_type: one block a layer */
  MIXERS_MAMBA,          /* state_size and its kin, in every layer, which has no MLP */
  MIXERS_MAMBA2,         /* the same of Mamba-2 */
  MIXERS_JAMBA,          /* mamba_ keys; attn_layer_period */
  MIXERS_OLMO            /* as DELTA; the keys' defaults follow from the heads of attention */
} mixer_keys_t;

typedef struct mixer_config {
  mixer_kind_t kind;
  int32_t taps;
  bool conv_bias, bias; /* of the convolution; of both projections */
  /* As recurrence_t; 0 for CONV. MAMBA has one head of all channels, and no groups; its key_dim are
   * the rows of a selective_scan_t. */
  int32_t num_heads, num_groups, key_dim, value_dim;
  int32_t step_rank;             /* MAMBA */
  bool parts_normed, parts_free; /* MAMBA: steps, B and C are normed; without weights */
  float parts_eps;
  bool by_group; /* DELTA: the rows of q, k, v, z stand together by group, so do rate and step */
  bool z_apart;  /* of these only rate and step do */
  bool tiled;    /* head h is of group h mod num_groups */
  bool apart;    /* DELTA: q, k and v stand in tensors of their own, and so do their taps */
  bool thirds;   /* as transformers 5.23 saves these: all channels in three parts */
  bool doubles;  /* DELTA: a rate is twice a sigmoid */
  double step_min, step_max; /* MAMBA2 */
  bool norm, gate_first;     /* of the gate behind the recurrence */
  int32_t norm_group;        /* columns that share a mean square */
  float norm_eps;
  /* Falcon-H1: factors of columns: of q, k, v; of gate and up; of z, x, B, C, step and of what is
   * projected back. */
  bool has_factors;
  double qkv_factors[3], mlp_factors[2], in_factors[5], out_factor;
} mixer_config_t;

/* Columns of q and of k. */
static inline int32_t mixer_keys(const mixer_config_t *mixer) {
  return mixer->num_groups * mixer->key_dim;
}
/* Columns that are projected back. */
static inline int32_t mixer_inner(const mixer_config_t *mixer, int32_t hidden) {
  return mixer->kind == MIXER_CONV ? hidden : mixer->num_heads * mixer->value_dim;
}
/* Channels of the convolution. */
static inline int32_t mixer_channels(const mixer_config_t *mixer, int32_t hidden) {
  return mixer_inner(mixer, hidden) + 2 * mixer_keys(mixer);
}
/* Channels of part 0, 1 or 2 of the convolution: of q, of k, of v; or of the files' thirds. */
static inline int32_t mixer_part(const mixer_config_t *mixer, int part) {
  const int32_t all = mixer_channels(mixer, 0);
  const int32_t first = mixer->thirds ? (all + 2) / 3 : mixer_keys(mixer);
  return part < 2 ? first : all - 2 * first;
}
/* Numbers of the convolution of a layer in a slot. */
static inline int32_t mixer_conv_values(const mixer_config_t *mixer, int32_t hidden) {
  return (mixer->taps - 1) * mixer_channels(mixer, hidden);
}
/* Columns of the projection. */
static inline int32_t mixer_width(const mixer_config_t *mixer, int32_t hidden) {
  if (mixer->kind == MIXER_CONV) return 3 * hidden;
  if (mixer->kind == MIXER_MAMBA) return 2 * mixer_inner(mixer, hidden);
  int32_t factors = mixer->num_heads * (mixer->kind == MIXER_DELTA ? 2 : 1);
  return mixer_channels(mixer, hidden) + mixer_inner(mixer, hidden) + factors;
}

#endif
