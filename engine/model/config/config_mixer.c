/* config_mixer.c: layers that keep a state: which they are, and their sizes.
 *
 * The families that have them also spell a few common keys their own way. Any thread, no state.
 */
#include "engine/model/config/config.h"

#include "engine/base/util.h"

#include <math.h>
#include <string.h>

enum { MLP_MAX = 1 << 20, MIXER_HEADS_MAX = 1024, MIXER_DIM_MAX = 1024 };

/* A layer with a state in the place of attention. */
enum { IN_PLACE = LAYER_MIXER | LAYER_NO_ATTENTION };

/* Sets IN_PLACE for the layers that layer_types calls `name`; the others must be full_attention. */
static void read_types(config_reader_t *reader, const json_t *types, const char *name,
                       blueprint_t *bp) {
  if (types->type != JSON_ARRAY || types->count != (uint32_t)bp->num_layers) {
    config_refuse(reader, "layer_types", NULL, "must be a list of %d names, found %s of %u",
                  bp->num_layers, json_type_name(types), types->count);
    return;
  }
  int32_t layer = 0;
  JSON_EACH(type, types) {
    /* transformers 5 calls every layer with a recurrence linear_attention */
    if (json_equals(type, name) || json_equals(type, "linear_attention")) {
      bp->layer_flags[layer] |= IN_PLACE;
    } else if (!json_equals(type, "full_attention") && !json_equals(type, "attention")) {
      config_refuse(reader, "layer_types", type, "full_attention, %s (layer %d)", name, layer);
      return;
    }
    layer++;
  }
}

/* ---- LFM2 ---- */

static void read_attention_indices(config_reader_t *reader, const json_t *list, const char *key,
                                   blueprint_t *bp) {
  if (list->type != JSON_ARRAY) {
    config_refuse(reader, key, list, "a list of layers");
    return;
  }
  for (int32_t i = 0; i < bp->num_layers; i++) bp->layer_flags[i] |= IN_PLACE;
  JSON_EACH(item, list) {
    int64_t i;
    if (!json_int64(item, &i) || i < 0 || i >= bp->num_layers) {
      config_refuse(reader, key, item, "layers of 0..%d", bp->num_layers - 1);
      return;
    }
    bp->layer_flags[i] &= (uint8_t)~IN_PLACE;
  }
}

/* The file has the width of an MLP of two matrices, from which that of three follows. */
static void read_lfm2_mlp(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  int64_t width = config_int(reader, KEYS("block_ff_dim", "intermediate_size"),
                             family->intermediate_size, 1, MLP_MAX);
  if (config_bool(reader, KEYS("block_auto_adjust_ff_dim"), true)) {
    int64_t multiple = config_int(reader, KEYS("block_multiple_of"), 256, 1, MLP_MAX);
    width = (int64_t)(2.0 * (double)width / 3.0);
    const json_t *factor = config_get(reader, "block_ffn_dim_multiplier");
    if (factor == NULL || factor->type != JSON_NULL) {
      width = (int64_t)((double)width *
                        config_double(reader, KEYS("block_ffn_dim_multiplier"), 1, 0, 1e3, true));
      width = ROUND_UP(width, multiple);
    }
  }
  if (width < 1 || width > MLP_MAX)
    config_refuse(reader, "intermediate_size", NULL,
                  "gives an MLP of %lld columns, supported: 1..%d", (long long)width, MLP_MAX);
  bp->intermediate_size = (int32_t)width;
}

/* LFM3: some of the layers with attention have a window. */
static void read_lfm3(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const json_t *types = config_get(reader, "layer_types");
  const json_t *type = json_is_given(types) && types->type == JSON_ARRAY ? json_first(types) : NULL;
  bp->window =
      (int32_t)config_int_or_null(reader, KEYS("sliding_window"), family->window, 0, 1, INT32_MAX);
  if (json_is_given(types) &&
      (types->type != JSON_ARRAY || types->count != (uint32_t)bp->num_layers)) {
    config_refuse(reader, "layer_types", NULL, "must be a list of %d names, found %s of %u",
                  bp->num_layers, json_type_name(types), types->count);
    return;
  }
  for (int32_t i = 0; i < bp->num_layers; i++) {
    const bool given = type != NULL;
    const bool full = given ? json_equals(type, "full_attention") : i % 4 == 2;
    const bool slides = given ? json_equals(type, "sliding_attention") : i % 4 == 0 && i > 0;
    if (given && !full && !slides && !json_equals(type, "conv"))
      config_refuse(reader, "layer_types", type,
                    "full_attention, sliding_attention, conv (layer %d)", i);
    if (slides && bp->window == 0)
      config_refuse(reader, "sliding_window", NULL,
                    "is null, but layer_types has sliding_attention");
    bp->layer_flags[i] |= slides ? LAYER_SLIDES : full ? 0 : IN_PLACE;
    if (given) type = json_next(type);
  }
  if (memchr(bp->layer_flags, LAYER_SLIDES, (size_t)bp->num_layers) == NULL) bp->window = 0;
  if (!config_bool(reader, KEYS("use_sandwich_norm"), true)) bp->block = BLOCK_PRE_NORM;
  bp->attn_gate = config_bool(reader, KEYS("use_attention_gate"), true);
}

static void read_lfm2(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const json_t *types = config_get(reader, "layer_types");
  const json_t *indices = config_get(reader, "full_attn_idxs");
  mixer_config_t *mixer = &bp->mixer;
  const bool third = family->window > 0;
  if (third)
    read_lfm3(reader, family, bp);
  else if (json_is_given(types))
    read_types(reader, types, "conv", bp);
  else if (json_is_given(indices))
    read_attention_indices(reader, indices, "full_attn_idxs", bp);
  mixer->taps = (int32_t)config_int(reader, KEYS("conv_L_cache"), third ? 7 : 3, 2, CONV_TAPS_MAX);
  mixer->conv_bias = mixer->bias = config_bool(reader, KEYS("conv_bias"), false);
  bp->norm_eps = (float)config_double(reader, KEYS("norm_eps", "block_norm_eps"), family->norm_eps,
                                      1e-30, 0.999, false);
  bp->tied = config_bool(reader, KEYS("tie_embedding", "tie_word_embeddings"), family->tied);
  if (family->expert_keys == EXPERTS_NONE && !third) read_lfm2_mlp(reader, family, bp);
  mixer->kind = MIXER_CONV;
}

/* ---- gated DeltaNet: Qwen3-Next, Qwen3.5 ---- */

static void read_delta(config_reader_t *reader, blueprint_t *bp) {
  const json_t *types = config_get(reader, "layer_types");
  mixer_config_t *mixer = &bp->mixer;
  int64_t interval = config_int(reader, KEYS("full_attention_interval"), 4, 1, MODEL_LAYERS_MAX);
  if (json_is_given(types)) {
    read_types(reader, types, "linear_attention", bp);
  } else {
    for (int32_t i = 0; i < bp->num_layers; i++)
      bp->layer_flags[i] |= (i + 1) % interval != 0 ? IN_PLACE : 0;
  }
  mixer->kind = MIXER_DELTA;
  mixer->taps = (int32_t)config_int(reader, KEYS("linear_conv_kernel_dim"), 4, 2, CONV_TAPS_MAX);
  mixer->num_groups =
      (int32_t)config_int(reader, KEYS("linear_num_key_heads"), 16, 1, MIXER_HEADS_MAX);
  mixer->num_heads =
      (int32_t)config_int(reader, KEYS("linear_num_value_heads"), 32, 1, MIXER_HEADS_MAX);
  mixer->key_dim = (int32_t)config_int(reader, KEYS("linear_key_head_dim"), 128, 1, MIXER_DIM_MAX);
  mixer->value_dim =
      (int32_t)config_int(reader, KEYS("linear_value_head_dim"), 128, 1, MIXER_DIM_MAX);
  if (mixer->num_heads % mixer->num_groups != 0)
    config_refuse(reader, "linear_num_key_heads", NULL,
                  "is %d, which does not divide linear_num_value_heads, %d", mixer->num_groups,
                  mixer->num_heads);
  mixer->norm = true;
  mixer->norm_group = mixer->value_dim;
  mixer->norm_eps = bp->norm_eps;
  if (!config_bool(reader, KEYS("attn_output_gate"), true))
    config_refuse(reader, "attn_output_gate", config_get(reader, "attn_output_gate"), "true");
  if (config_bool(reader, KEYS("attention_bias"), false))
    config_refuse(reader, "attention_bias", config_get(reader, "attention_bias"), "false");
}

/* A rope_theta that is null: nothing rotates. The one in rope_parameters goes before. */
static void read_thetas(config_reader_t *reader, blueprint_t *bp) {
  const json_t *rope = config_get(reader, "rope_parameters");
  const json_t *theta =
      rope != NULL && rope->type == JSON_OBJECT ? json_get(rope, "rope_theta") : NULL;
  if (theta == NULL) theta = config_get(reader, "rope_theta");
  if (theta == NULL || theta->type != JSON_NULL) return;
  for (int32_t i = 0; i < bp->num_layers; i++) bp->layer_flags[i] |= LAYER_NO_ROPE;
}

/* OLMo hybrid. Its layers with attention have norms behind the blocks, the others before; the class
 * makes the last layer one of attention if no other is. */
static void read_olmo(config_reader_t *reader, blueprint_t *bp) {
  const json_t *types = config_get(reader, "layer_types");
  mixer_config_t *mixer = &bp->mixer;
  const int32_t heads = bp->num_heads, layers = bp->num_layers;
  for (int32_t i = 0; !json_is_given(types) && i < layers; i++)
    bp->layer_flags[i] |= i % 4 == 3 || (layers < 4 && i == layers - 1) ? 0 : IN_PLACE;
  if (json_is_given(types)) read_types(reader, types, "linear_attention", bp);
  mixer->kind = MIXER_DELTA;
  mixer->apart = true;
  mixer->taps = (int32_t)config_int(reader, KEYS("linear_conv_kernel_dim"), 4, 2, CONV_TAPS_MAX);
  mixer->num_groups = (int32_t)config_int_or_null(reader, KEYS("linear_num_key_heads"), heads,
                                                  heads, 1, MIXER_HEADS_MAX);
  mixer->num_heads = (int32_t)config_int_or_null(reader, KEYS("linear_num_value_heads"), heads,
                                                 heads, 1, MIXER_HEADS_MAX);
  const int64_t key_dim = 3 * (int64_t)bp->hidden_size / (4 * (int64_t)mixer->num_groups);
  mixer->key_dim = (int32_t)config_int_or_null(reader, KEYS("linear_key_head_dim"), key_dim,
                                               key_dim, 1, MIXER_DIM_MAX);
  mixer->value_dim =
      (int32_t)config_int_or_null(reader, KEYS("linear_value_head_dim"), 2 * mixer->key_dim,
                                  2 * mixer->key_dim, 1, MIXER_DIM_MAX);
  mixer->doubles = config_bool(reader, KEYS("linear_allow_neg_eigval"), true);
  if (mixer->num_heads % mixer->num_groups != 0)
    config_refuse(reader, "linear_num_key_heads", NULL,
                  "is %d, which does not divide linear_num_value_heads, %d", mixer->num_groups,
                  mixer->num_heads);
  if (mixer->key_dim < 1 || mixer->key_dim > MIXER_DIM_MAX || mixer->value_dim > MIXER_DIM_MAX)
    config_refuse(reader, "linear_key_head_dim", NULL, "is %d, and linear_value_head_dim %d: 1..%d",
                  mixer->key_dim, mixer->value_dim, MIXER_DIM_MAX);
  mixer->norm = true;
  mixer->norm_group = mixer->value_dim;
  mixer->norm_eps = 1e-5F; /* whatever rms_norm_eps is */
  read_thetas(reader, bp);
}

/* ---- Mamba-2: Granite 4, Bamba ---- */

/* Bounds of the steps: absent, null, or a list of two. Infinity is the word in older files, and in
 * those of transformers 5 a dict. */
static void read_step_limit(config_reader_t *reader, mixer_config_t *mixer) {
  const json_t *limit = config_get(reader, "time_step_limit");
  mixer->step_min = 0;
  mixer->step_max = INFINITY;
  if (!json_is_given(limit)) return;
  bool good = limit->type == JSON_ARRAY && limit->count == 2;
  double *out = &mixer->step_min;
  if (good) {
    JSON_EACH(bound, limit) {
      bool infinite =
          (bound->type == JSON_OBJECT || json_equals(bound, "Infinity")) && out == &mixer->step_max;
      if (!infinite) good = good && json_double(bound, out);
      out = &mixer->step_max;
    }
  }
  if (!good || mixer->step_min < 0 || mixer->step_max < mixer->step_min)
    config_refuse(reader, "time_step_limit", limit, "two numbers, the second no smaller");
}

/* The scan of heads [heads, head_dim], of which `groups` share B and C. */
static void set_scan(config_reader_t *reader, blueprint_t *bp, int64_t heads, int64_t head_dim,
                     int64_t groups) {
  mixer_config_t *mixer = &bp->mixer;
  if (heads % groups != 0)
    config_refuse(reader, "mamba_n_groups", NULL, "is %lld, which does not divide the %lld heads",
                  (long long)groups, (long long)heads);
  if (reader->code != 0) return;
  mixer->kind = MIXER_MAMBA2;
  mixer->num_heads = (int32_t)heads;
  mixer->num_groups = (int32_t)groups;
  mixer->value_dim = (int32_t)head_dim;
  mixer->norm = mixer->gate_first = true;
  mixer->norm_group = (int32_t)(heads * head_dim / groups);
  mixer->norm_eps = bp->norm_eps;
}

static void read_mamba(config_reader_t *reader, blueprint_t *bp) {
  mixer_config_t *mixer = &bp->mixer;
  int64_t inner = config_int(reader, KEYS("mamba_expand"), 2, 1, 64) * bp->hidden_size;
  if (bp->mixer.has_factors) /* Falcon-H1 */
    inner = config_int_or_null(reader, KEYS("mamba_d_ssm"), 1024, inner, 1, MLP_MAX);
  int64_t heads = config_int(reader, KEYS("mamba_n_heads"), 128, 1, MIXER_HEADS_MAX);
  int64_t groups = config_int(reader, KEYS("mamba_n_groups"), 1, 1, MIXER_HEADS_MAX);
  const json_t *dim = config_get(reader, "mamba_d_head");
  int64_t head_dim = inner / heads;
  if (dim != NULL && !json_equals(dim, "auto"))
    head_dim = config_int(reader, KEYS("mamba_d_head"), head_dim, 1, MIXER_DIM_MAX);
  if (head_dim * heads != inner || head_dim > MIXER_DIM_MAX)
    config_refuse(
        reader, "mamba_n_heads", NULL,
        "is %lld; with heads of %lld they must have %lld channels (mamba_expand x hidden_size, or "
        "mamba_d_ssm)",
        (long long)heads, (long long)head_dim, (long long)inner);
  set_scan(reader, bp, heads, head_dim, groups);
  mixer->key_dim = (int32_t)config_int(reader, KEYS("mamba_d_state"), 256, 1, MIXER_DIM_MAX);
  mixer->taps = (int32_t)config_int(reader, KEYS("mamba_d_conv"), 4, 2, CONV_TAPS_MAX);
  mixer->conv_bias = config_bool(reader, KEYS("mamba_conv_bias"), true);
  mixer->bias = config_bool(reader, KEYS("mamba_proj_bias"), false);
  read_step_limit(reader, mixer);
}

static void read_granite(config_reader_t *reader, blueprint_t *bp) {
  const json_t *types = config_get(reader, "layer_types");
  const json_t *position = config_get(reader, "position_embedding_type");
  if (!json_is_given(types)) types = config_get(reader, "layers_block_type");
  if (json_is_given(types)) {
    read_types(reader, types, "mamba", bp);
  } else {
    for (int32_t i = 0; i < bp->num_layers; i++) bp->layer_flags[i] |= IN_PLACE;
  }
  for (int32_t i = 0; i < bp->num_layers && (position == NULL || !json_equals(position, "rope"));
       i++)
    bp->layer_flags[i] |= LAYER_NO_ROPE;
  int32_t shared = (int32_t)config_int(reader, KEYS("shared_intermediate_size"), 1024, 1, MLP_MAX);
  if (config_int_or_null(reader, KEYS("num_local_experts"), 8, 0, 0, INT32_MAX) == 0)
    bp->intermediate_size = shared; /* of the only MLP */
  else
    bp->shared_size = shared;
  read_mamba(reader, bp);
}

static void read_bamba(config_reader_t *reader, blueprint_t *bp) {
  const json_t *indices = config_get(reader, "attn_layer_indices");
  for (int32_t i = 0; i < bp->num_layers; i++) bp->layer_flags[i] |= IN_PLACE;
  if (json_is_given(indices)) read_attention_indices(reader, indices, "attn_layer_indices", bp);
  read_mamba(reader, bp);
}

/* ---- Falcon-H1: attention and Mamba-2 side by side, and factors of what is projected ---- */

static double read_factor(config_reader_t *reader, const char *key) {
  return config_double(reader, KEYS(key), 1, -1e6, 1e6, false);
}

static void read_factors(config_reader_t *reader, const char *key, double *out, uint32_t count) {
  const json_t *list = config_get(reader, key);
  for (uint32_t i = 0; i < count; i++) out[i] = 1;
  if (!json_is_given(list)) return;
  bool good = list->type == JSON_ARRAY && list->count == count;
  if (good) {
    JSON_EACH(factor, list) good = json_double(factor, out++) && good;
  }
  if (!good) config_refuse(reader, key, list, "a list of %u numbers", count);
}

static void read_falcon(config_reader_t *reader, blueprint_t *bp) {
  static const char *const biases[] = {"attention_bias", "mlp_bias", "mamba_proj_bias",
                                       "projectors_bias"};
  double in = read_factor(reader, "ssm_in_multiplier");
  for (int32_t i = 0; i < bp->num_layers; i++) bp->layer_flags[i] |= LAYER_MIXER;
  for (size_t i = 0; i < ARRAY_LEN(biases);
       i++) /* factors stand behind the biases or before them */
    if (config_bool(reader, KEYS(biases[i]), false))
      config_refuse(reader, biases[i], config_get(reader, biases[i]), "false");
  bp->mixer.has_factors = true;
  read_mamba(reader, bp);
  bp->mixer.norm = config_bool(reader, KEYS("mamba_rms_norm"), false);
  bp->mixer.gate_first = !config_bool(reader, KEYS("mamba_norm_before_gate"), true);
  bp->embed_scale = read_factor(reader, "embedding_multiplier");
  bp->head_scale = read_factor(reader, "lm_head_multiplier");
  bp->mixer.qkv_factors[0] = read_factor(reader, "attention_in_multiplier");
  bp->mixer.qkv_factors[1] = bp->mixer.qkv_factors[0] * read_factor(reader, "key_multiplier");
  bp->mixer.qkv_factors[2] =
      bp->mixer.qkv_factors[0] * read_factor(reader, "attention_out_multiplier");
  read_factors(reader, "mlp_multipliers", bp->mixer.mlp_factors, 2);
  read_factors(reader, "ssm_multipliers", bp->mixer.in_factors, 5);
  for (int i = 0; i < 5; i++) bp->mixer.in_factors[i] *= in;
  bp->mixer.out_factor = read_factor(reader, "ssm_out_multiplier");
}

/* ---- Nemotron-H: a layer is one block: Mamba-2, attention, an MLP or experts ---- */

enum { ONLY_MIXER = IN_PLACE | LAYER_NO_MLP, ONLY_MLP = LAYER_NO_ATTENTION };
enum { ONLY_EXPERTS = ONLY_MLP | LAYER_EXPERTS };

static const struct {
  char letter; /* in hybrid_override_pattern */
  const char *name, *later_name;
  uint8_t flags;
} blocks[] = {
    {'M', "mamba", "linear_attention", ONLY_MIXER},
    {'*', "attention", "full_attention", LAYER_NO_MLP},
    {'-', "mlp", "mlp", ONLY_MLP},
    {'E', "moe", "moe", ONLY_EXPERTS},
};

/* A string with a letter for every layer, or a list of names. */
static const json_t *find_blocks(config_reader_t *reader, const char **key) {
  const json_t *list = config_find(reader, KEYS("layers_block_type", "layer_types"), key);
  if (json_is_given(list)) return list;
  *key = "hybrid_override_pattern";
  return config_get(reader, *key);
}

int32_t config_count_layers(config_reader_t *reader, const family_t *family) {
  const char *key;
  const json_t *given = family->mixer_keys == MIXERS_NEMOTRON ? find_blocks(reader, &key) : NULL;
  if (!json_is_given(given)) return family->num_layers;
  size_t count = given->type == JSON_STRING ? given->length : given->count;
  return (int32_t)MIN(count, MODEL_LAYERS_MAX + 1);
}

static void set_block(config_reader_t *reader, const char *key, const json_t *given, int32_t layer,
                      blueprint_t *bp) {
  for (size_t i = 0; i < ARRAY_LEN(blocks); i++) {
    bool found =
        given->type == JSON_STRING && strcmp(key, "hybrid_override_pattern") == 0
            ? given->text[layer] == blocks[i].letter
            : json_equals(given, blocks[i].name) || json_equals(given, blocks[i].later_name);
    if (!found) continue;
    bp->layer_flags[layer] |= blocks[i].flags | LAYER_NO_ROPE;
    return;
  }
  config_refuse(reader, key, given, "M, *, -, E, or mamba, attention, mlp, moe (layer %d)", layer);
}

static void read_blocks(config_reader_t *reader, blueprint_t *bp) {
  const char *key;
  const json_t *given = find_blocks(reader, &key);
  bool is_text = given != NULL && given->type == JSON_STRING;
  size_t count = !json_is_given(given) ? 0 : is_text ? given->length : given->count;
  if ((!is_text && (given == NULL || given->type != JSON_ARRAY)) ||
      count != (size_t)bp->num_layers) {
    config_refuse(reader, key, NULL, "must name the blocks of %d layers, found %zu", bp->num_layers,
                  count);
    return;
  }
  int32_t layer = 0;
  for (; is_text && layer < bp->num_layers; layer++) set_block(reader, key, given, layer, bp);
  if (is_text) return;
  JSON_EACH(name, given) set_block(reader, key, name, layer++, bp);
}

static void read_nemotron(config_reader_t *reader, blueprint_t *bp) {
  mixer_config_t *mixer = &bp->mixer;
  const json_t *window = config_get(reader, "sliding_window");
  const json_t *act = config_get(reader, "mamba_hidden_act");
  read_blocks(reader, bp);
  int64_t heads = config_int(reader, KEYS("mamba_num_heads"), 128, 1, MIXER_HEADS_MAX);
  int64_t head_dim = config_int(reader, KEYS("mamba_head_dim"), 64, 1, MIXER_DIM_MAX);
  int64_t groups = config_int(reader, KEYS("n_groups", "mamba_n_groups"), 8, 1, MIXER_HEADS_MAX);
  set_scan(reader, bp, heads, head_dim, groups);
  mixer->key_dim = (int32_t)config_int(reader, KEYS("ssm_state_size"), 128, 1, MIXER_DIM_MAX);
  mixer->taps =
      (int32_t)config_int(reader, KEYS("conv_kernel", "mamba_d_conv"), 4, 2, CONV_TAPS_MAX);
  mixer->conv_bias = config_bool(reader, KEYS("use_conv_bias", "mamba_conv_bias"), true);
  mixer->bias = config_bool(reader, KEYS("use_bias"), false);
  read_step_limit(reader, mixer);
  if (json_is_given(window)) config_refuse(reader, "sliding_window", window, "absent or null");
  if (json_is_given(act) && !json_equals(act, "silu"))
    config_refuse(reader, "mamba_hidden_act", act, "\"silu\"");
}

/* ---- Mamba-1, and Mamba-2 without attention ---- */

/* The rank of the steps: a number, or "auto". */
static int32_t read_rank(config_reader_t *reader, const char *key, int32_t hidden) {
  const json_t *rank = config_get(reader, key);
  const int32_t derived = DIV_UP(hidden, 16);
  if (rank == NULL || json_equals(rank, "auto")) return derived;
  return (int32_t)config_int(reader, KEYS(key), derived, 1, MLP_MAX);
}

/* A state of `rows` numbers a channel. */
static void set_selection(blueprint_t *bp, int64_t inner, int64_t rows) {
  mixer_config_t *mixer = &bp->mixer;
  mixer->kind = MIXER_MAMBA;
  mixer->num_heads = 1;
  mixer->value_dim = (int32_t)inner;
  mixer->key_dim = (int32_t)rows;
}

/* What Mamba and Mamba-2 spell alike. */
static void read_blocks_alone(config_reader_t *reader, blueprint_t *bp) {
  mixer_config_t *mixer = &bp->mixer;
  for (int32_t i = 0; i < bp->num_layers; i++) bp->layer_flags[i] |= ONLY_MIXER | LAYER_NO_ROPE;
  mixer->taps = (int32_t)config_int(reader, KEYS("conv_kernel"), 4, 2, CONV_TAPS_MAX);
  mixer->conv_bias = config_bool(reader, KEYS("use_conv_bias"), true);
  mixer->bias = config_bool(reader, KEYS("use_bias"), false);
}

/* Falcon-Mamba norms steps, B and C, without weights. intermediate_size goes before expand. */
static void read_mamba1(config_reader_t *reader, blueprint_t *bp) {
  mixer_config_t *mixer = &bp->mixer;
  const int64_t expand = config_int(reader, KEYS("expand"), 2, 1, 64);
  const int64_t inner =
      config_int(reader, KEYS("intermediate_size"), expand * bp->hidden_size, 1, MLP_MAX);
  read_blocks_alone(reader, bp);
  set_selection(bp, inner, config_int(reader, KEYS("state_size"), 16, 1, SELECT_ROWS_MAX));
  mixer->step_rank = read_rank(reader, "time_step_rank", bp->hidden_size);
  mixer->parts_normed = mixer->parts_free = strcmp(bp->family, "falcon_mamba") == 0;
  mixer->parts_eps = (float)config_double(reader, KEYS("mixer_rms_eps"), 1e-6, 1e-30, 0.999, false);
}

static void read_mamba2(config_reader_t *reader, blueprint_t *bp) {
  const int64_t inner = config_int(reader, KEYS("expand"), 2, 1, 64) * bp->hidden_size;
  const int64_t heads = config_int(reader, KEYS("num_heads"), 128, 1, MIXER_HEADS_MAX);
  const int64_t head_dim = config_int(reader, KEYS("head_dim"), 64, 1, MIXER_DIM_MAX);
  read_blocks_alone(reader, bp);
  if (heads * head_dim != inner)
    config_refuse(reader, "num_heads", NULL,
                  "is %lld; with heads of %lld they must have expand x hidden_size = %lld channels",
                  (long long)heads, (long long)head_dim, (long long)inner);
  set_scan(reader, bp, heads, head_dim,
           config_int(reader, KEYS("n_groups"), 8, 1, MIXER_HEADS_MAX));
  bp->mixer.key_dim = (int32_t)config_int(reader, KEYS("state_size"), 128, 1, MIXER_DIM_MAX);
  read_step_limit(reader, &bp->mixer);
}

/* Layers with attention, which nothing rotates, stand between those with a state. */
static void read_jamba(config_reader_t *reader, blueprint_t *bp) {
  mixer_config_t *mixer = &bp->mixer;
  const int64_t period = config_int(reader, KEYS("attn_layer_period"), 8, 1, MODEL_LAYERS_MAX);
  const int64_t offset = config_int(reader, KEYS("attn_layer_offset"), 4, 0, period - 1);
  const int64_t inner = config_int(reader, KEYS("mamba_expand"), 2, 1, 64) * bp->hidden_size;
  for (int32_t i = 0; i < bp->num_layers; i++)
    bp->layer_flags[i] |= (i % period == offset ? 0 : IN_PLACE) | LAYER_NO_ROPE;
  set_selection(bp, inner, config_int(reader, KEYS("mamba_d_state"), 16, 1, SELECT_ROWS_MAX));
  mixer->taps = (int32_t)config_int(reader, KEYS("mamba_d_conv"), 4, 2, CONV_TAPS_MAX);
  mixer->conv_bias = config_bool(reader, KEYS("mamba_conv_bias"), true);
  mixer->bias = config_bool(reader, KEYS("mamba_proj_bias"), false);
  mixer->step_rank = read_rank(reader, "mamba_dt_rank", bp->hidden_size);
  mixer->parts_normed = true;
  mixer->parts_eps = bp->norm_eps;
  if (!config_bool(reader, KEYS("mamba_inner_layernorms"), true))
    config_refuse(reader, "mamba_inner_layernorms", config_get(reader, "mamba_inner_layernorms"),
                  "true");
}

void config_read_mixer(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  switch (family->mixer_keys) {
  case MIXERS_NONE: return;
  case MIXERS_LFM2: read_lfm2(reader, family, bp); break;
  case MIXERS_GRANITE: read_granite(reader, bp); break;
  case MIXERS_BAMBA: read_bamba(reader, bp); break;
  case MIXERS_FALCON: read_falcon(reader, bp); break;
  case MIXERS_NEMOTRON: read_nemotron(reader, bp); break;
  case MIXERS_MAMBA: read_mamba1(reader, bp); break;
  case MIXERS_MAMBA2: read_mamba2(reader, bp); break;
  case MIXERS_JAMBA: read_jamba(reader, bp); break;
  case MIXERS_OLMO: read_olmo(reader, bp); break;
  case MIXERS_DELTA:
  case MIXERS_DELTA_BY_GROUP:
    bp->mixer.by_group = family->mixer_keys == MIXERS_DELTA_BY_GROUP;
    read_delta(reader, bp);
    break;
  }
  bool any = false, attends = false;
  for (int32_t i = 0; i < bp->num_layers; i++) {
    any |= (bp->layer_flags[i] & LAYER_MIXER) != 0;
    attends |= (bp->layer_flags[i] & LAYER_NO_ATTENTION) == 0;
  }
  if (!any) bp->mixer = (mixer_config_t){0};
  if (!any && !attends)
    config_refuse(reader, "layer_types", NULL, "has no layer that sees other tokens");
}
