/* config.c: a model directory's config.json becomes a blueprint, or is refused by name.
 *
 * Keys are looked up under all their published names. Absent keys take the defaults of the
 * configuration class of the family. A key that would change the computation in an unknown way is
 * an error, because a model that is computed almost right gives plausible but wrong text. Runs on
 * any thread; reads no weights (but for the headers, when config.json does not say the dtype).
 */
#include "engine/model/config/config.h"

#include "engine/base/util.h"
#include "engine/file/gguf.h"
#include "engine/model/config/config_gguf.h"
#include "engine/model/source/model_file.h"
#include "engine/model/source/safetensors.h"
#include "engine/model/weights/tensors.h"
#include "engine/model/weights/weights.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
  CONFIG_BYTES_MAX = 1 << 20,
  HIDDEN_MAX = 65536,
  HEADS_MAX = 1024,
  HEAD_DIM_MAX = 512,
  VOCAB_MAX = 1 << 22,
  MLP_MAX = 1 << 20,
  CONTEXT_MAX = 1 << 24,
  UNATTENDED_HEAD = 16,      /* the size of a head where no layer has one */
  UNATTENDED_CONTEXT = 32768 /* its files do not say how long a sequence may be */
};

/* Sets of families that support a key which others refuse. */
enum {
  FOR_NONE,
  FOR_GEMMA,
  FOR_ATTENTION_CAP,
  FOR_FINAL_CAP,
  FOR_GRANITE,
  FOR_LOGIT_SCALE,
  FOR_EXPERTS,
  FOR_SHARED_EXPERTS,
  FOR_QK_NORM,
  FOR_QK_LAYERNORM,
  FOR_NO_ROPE,
  FOR_LOCAL_THETA,
  FOR_NESTED,
  FOR_BIDIRECTIONAL,
  FOR_CLIP,
  FOR_T5
};

/* Keys that change the computation and are not supported. A neutral value is harmless: null, false,
 * 0, an empty container, or `neutral`. */
static const struct {
  const char *key;
  double neutral;
  int families; /* that know the key */
} refused_keys[] = {
    {"is_encoder_decoder", 0, FOR_T5},
    {"use_bidirectional_attention", 0, FOR_BIDIRECTIONAL},
    {"add_cross_attention", 0, FOR_NONE},
    {"scale_attn_by_inverse_layer_idx", 0, FOR_NONE},
    {"reorder_and_upcast_attn", 0, FOR_NONE},
    {"attn_logit_softcapping", 0, FOR_ATTENTION_CAP},
    {"final_logit_softcapping", 0, FOR_FINAL_CAP},
    {"query_pre_attn_scalar", 0, FOR_GEMMA},
    {"llama_4_scaling", 0, FOR_NONE},
    {"llama_4_scaling_beta", 0, FOR_NONE},
    {"attention_chunk_size", 0, FOR_NONE},
    {"no_rope_layers", 0, FOR_NO_ROPE},
    {"rope_local_base_freq", 0, FOR_LOCAL_THETA},
    {"use_mrope", 0, FOR_NONE},
    {"use_qk_norm", 0, FOR_QK_NORM},
    {"qk_layernorm", 0, FOR_QK_LAYERNORM},
    {"clip_qkv", 0, FOR_CLIP},
    {"alibi", 0, FOR_NONE},
    {"apply_residual_connection_post_layernorm", 0, FOR_NONE},
    {"num_experts", 0, FOR_EXPERTS},
    {"num_local_experts", 0, FOR_EXPERTS},
    {"n_routed_experts", 0, FOR_SHARED_EXPERTS},
    {"num_shared_experts", 0, FOR_SHARED_EXPERTS},
    {"n_shared_experts", 0, FOR_SHARED_EXPERTS},
    {"embedding_multiplier", 1, FOR_GRANITE},
    {"residual_multiplier", 1, FOR_GRANITE},
    {"attention_multiplier", 0, FOR_GRANITE},
    {"logits_scaling", 1, FOR_GRANITE},
    {"logit_scale", 1, FOR_LOGIT_SCALE},
    {"swiglu_alpha", 1.702, FOR_NONE},
    {"swiglu_limit", 7, FOR_NONE},
    {"text_config", 0, FOR_NESTED},
    {"vision_config", 0, FOR_NESTED},
};

static bool family_knows(const family_t *family, int families) {
  switch (families) {
  case FOR_GEMMA: return family->gemma_keys || family->gemma4_keys || family->gemma3n_keys;
  case FOR_ATTENTION_CAP:
    return family->attn_softcap != 0; /* the reference of Gemma 3 ignores it */
  case FOR_FINAL_CAP:
    return family->gemma_keys || family->gemma4_keys || family->final_softcap != 0;
  case FOR_GRANITE: return family->granite_keys || family->mixer_keys == MIXERS_FALCON;
  case FOR_LOGIT_SCALE: return family->logit_scale != 0;
  case FOR_EXPERTS: return family->expert_keys != EXPERTS_NONE;
  case FOR_SHARED_EXPERTS:
    return family->expert_keys == EXPERTS_DEEPSEEK || family->expert_keys == EXPERTS_NEMOTRON ||
           family->expert_keys == EXPERTS_COHERE;
  case FOR_QK_NORM: return family->qk_norm_key != NULL || family->qk_norm_whole;
  case FOR_QK_LAYERNORM: /* StableLM */
    return family->qk_norm_key != NULL && strcmp(family->qk_norm_key, "qk_layernorm") == 0;
  case FOR_NO_ROPE: return family->no_rope_keys;
  case FOR_LOCAL_THETA: return family->local_theta > 0;
  case FOR_CLIP: return family->clip_key;
  case FOR_T5: /* the encoder's file is often that of both */
    return family->t5_keys || family->side != SIDE_ALONE;
  case FOR_BIDIRECTIONAL: /* Gemma 3 and 4 */ return family->local_theta > 0;
  default: return false;
  }
}

static void refuse_semantic_keys(config_reader_t *reader, const family_t *family) {
  for (size_t i = 0; i < ARRAY_LEN(refused_keys); i++) {
    const json_t *value = config_get(reader, refused_keys[i].key);
    double number;
    if (family_knows(family, refused_keys[i].families)) continue;
    if (refused_keys[i].families == FOR_NESTED && (family->nested || reader->outer != NULL))
      continue;
    if (!json_is_given(value) || value->type == JSON_FALSE) continue;
    if (json_double(value, &number) && (number == 0 || number == refused_keys[i].neutral)) continue;
    if ((value->type == JSON_ARRAY || value->type == JSON_OBJECT) && value->count == 0) continue;
    config_refuse(reader, refused_keys[i].key, value, "absent, null or false");
  }
  static const char *const must_be_true[] = {"is_causal", "scale_attn_weights"};
  for (int i = 0; i < 2; i++) {
    const json_t *value = config_get(reader, must_be_true[i]);
    if (json_is_given(value) && value->type != JSON_TRUE) {
      config_refuse(reader, must_be_true[i], value, "true (a causal decoder with scaled scores)");
    }
  }
}

/* *headless: the files hold no head; *head: but one that scores labels. *wrapper: of the text
 * model that is read from now on, NULL = none. */
static const family_t *find_family(config_reader_t *reader, bool *headless, label_head_t *head,
                                   const wrapper_t **wrapper) {
  const json_t *list = json_get(reader->root, "architectures");
  const json_t *name = list != NULL && list->type == JSON_ARRAY ? json_first(list) : NULL;
  const json_t *type = json_get(reader->root, "model_type");
  if (list != NULL && list->type != JSON_ARRAY && list->type != JSON_NULL) {
    config_refuse(reader, "architectures", list, "a list of names");
    return NULL;
  }
  const family_t *family = NULL;
  *wrapper = NULL;
  if (name != NULL && name->type == JSON_STRING) {
    *wrapper = family_wrapper(name->text, name->length);
    if (*wrapper != NULL) return config_enter_wrapper(reader, *wrapper);
    family = family_by_architecture(name->text, name->length);
    *headless = family == NULL || family->encoder;
    if (family == NULL) family = family_by_body(name->text, name->length, head);
  } else if (name == NULL && type != NULL && type->type == JSON_STRING) {
    family = family_by_name(type->text, type->length);
    *headless = family != NULL && family->encoder;
    name = type;
  }
  if (family != NULL) return family;
  char quoted[96] = "";
  const char *advice = NULL;
  if (name != NULL && name->type == JSON_STRING) {
    error_quote(quoted, sizeof(quoted), name->text, name->length);
    advice = family_advice(name->text, name->length);
  }
  reader->code = error_set(
      reader->error, ERR_MODEL_MALFORMED, "architectures",
      "%s: architecture \"%s\" is not supported%s%s%s; docs/models.md lists those that are",
      reader->file, quoted,
      json_get(reader->root, "auto_map") != NULL ? " (remote code is never run)" : "",
      advice != NULL ? "; " : "", advice != NULL ? advice : "");
  return NULL;
}

static void read_heads(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const char *const *keys =
      family->window_rule == WINDOW_TYPES || family->t5_keys
          ? KEYS("num_heads", "num_attention_heads")
          : KEYS("num_attention_heads", "n_head", "n_heads", "attention_heads");
  if (family->side != SIDE_ALONE) keys = config_head_keys(family);
  if (family->unattended) {
    bp->num_heads = bp->num_kv_heads = 1;
    bp->head_dim = UNATTENDED_HEAD;
    return;
  }
  int64_t heads = config_int(reader, keys, family->num_heads, 1, HEADS_MAX);
  int64_t kv_heads = heads, head_dim = 0;
  if (family->latent) {
    bp->num_heads = bp->num_kv_heads = (int32_t)heads;
    config_read_latent(reader, family, bp);
    return;
  }
  if (family->grouped) {
    int64_t absent = family->num_kv_heads != 0 ? family->num_kv_heads : heads;
    kv_heads = config_int_or_null(reader, KEYS("num_key_value_heads", "num_kv_heads"), absent,
                                  heads, 1, HEADS_MAX);
    head_dim = config_int_or_null(reader, family->t5_keys ? KEYS("d_kv") : KEYS("head_dim"),
                                  family->head_dim, 0, 1, HEAD_DIM_MAX);
  }
  if (family->layout->qvk_groups > 0 && heads % family->layout->qvk_groups != 0)
    config_refuse(reader, "n_head", NULL, "is %lld, for %s supported: a multiple of %d",
                  (long long)heads, family->architecture, family->layout->qvk_groups);
  /* The first Falcons have one head of K and V, whatever the number of heads says. */
  bool counted =
      family->falcon_keys && config_bool(reader, KEYS("new_decoder_architecture"), false);
  if (family->multi_query && !counted)
    kv_heads = config_bool(reader, KEYS("multi_query"), true) ? 1 : heads;
  if (heads % kv_heads != 0) {
    config_refuse(reader, "num_key_value_heads", NULL,
                  "is %lld, which does not divide num_attention_heads, %lld", (long long)kv_heads,
                  (long long)heads);
  }
  if (head_dim == 0) {
    if (bp->hidden_size % heads != 0) {
      config_refuse(reader, "num_attention_heads", NULL,
                    "is %lld, which does not divide hidden_size, %d", (long long)heads,
                    bp->hidden_size);
    }
    head_dim = bp->hidden_size / heads;
  }
  const json_t *own = config_get(reader, "head_dim");
  int64_t given;
  if (family->rotary && !family->grouped && json_int64(own, &given) && given != head_dim)
    config_refuse(reader, "head_dim", own, "hidden_size / num_attention_heads for %s",
                  family->architecture);
  if (head_dim < 2 || head_dim > HEAD_DIM_MAX || head_dim % 2 != 0) {
    config_refuse(reader, "head_dim", NULL, "is %lld, supported: even, 2..%d", (long long)head_dim,
                  HEAD_DIM_MAX);
  }
  bp->num_heads = (int32_t)heads;
  bp->num_kv_heads = (int32_t)kv_heads;
  bp->head_dim = (int32_t)head_dim;
}

/* Layers that predict further tokens. Qwen3-Next has one, and no key for it. */
static void read_mtp(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const bool apart = family->mtp == MTP_APART;
  if (family->mtp == MTP_NONE) return;
  bp->mtp_kind = family->mtp;
  bp->num_mtp = (int32_t)config_int_or_null(
      reader, apart ? KEYS("mtp_num_hidden_layers") : KEYS("num_nextn_predict_layers"), apart, 0, 0,
      MODEL_LAYERS_MAX);
  if (apart && config_bool(reader, KEYS("mtp_use_dedicated_embeddings"), false))
    bp->mtp_kind = MTP_EMBEDS;
}

static void read_sizes(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bp->vocab_size =
      (int32_t)config_int(reader, KEYS("vocab_size"), family->vocab_size, 1, VOCAB_MAX);
  bp->hidden_size =
      (int32_t)config_int(reader, KEYS("hidden_size", "n_embd", "n_embed", "d_model", "dim"),
                          family->hidden_size, 1, HIDDEN_MAX);
  bp->num_layers = (int32_t)config_int(reader, config_layer_keys(reader, family),
                                       config_count_layers(reader, family), 1, MODEL_LAYERS_MAX);
  int64_t mlp_default =
      family->intermediate_size != 0 ? family->intermediate_size : 4LL * bp->hidden_size;
  bp->intermediate_size =
      family->gemma3n_keys
          ? config_uniform_int(reader, "intermediate_size", (int32_t)mlp_default, MLP_MAX)
          : (int32_t)config_int_or_null(reader, config_mlp_keys(family), mlp_default,
                                        4LL * bp->hidden_size, 1, MLP_MAX);
  bp->embed_size = bp->hidden_size;
  read_mtp(reader, family, bp);
  read_heads(reader, family, bp);
}

/* Whether attention and MLP stand side by side, and which norms they read. */
static void read_parallel(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bool parallel = family->block == BLOCK_PARALLEL;
  if (family->parallel_key != NULL) {
    parallel = config_bool(reader, KEYS(family->parallel_key), parallel);
    bp->block = parallel ? BLOCK_PARALLEL : BLOCK_PRE_NORM;
  }
  bp->shared_norm = parallel && family->shared_norm;
  if (!family->falcon_keys || !config_bool(reader, KEYS("new_decoder_architecture"), false)) return;
  bp->block = BLOCK_PARALLEL;
  bp->shared_norm = config_int_or_null(reader, KEYS("num_ln_in_parallel_attn"), 2, 2, 1, 2) == 1;
}

static void read_norms(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  const bool is_rms = family->rms_by_key && json_is_given(config_get(reader, "rms_norm_eps"));
  bp->norm = is_rms ? NORM_RMS : family->norm;
  bp->norm_eps = (float)family->norm_eps;
  if (!family->opt_keys) {
    const char *const *keys =
        bp->norm == NORM_RMS
            ? KEYS(family->norm_eps_key != NULL ? family->norm_eps_key : "rms_norm_eps",
                   "rms_norm_eps")
        : family->norm_eps_key != NULL && !family->rms_by_key
            ? KEYS(family->norm_eps_key)
            : KEYS("layer_norm_epsilon", "norm_epsilon", "layer_norm_eps", "norm_eps");
    bp->norm_eps = (float)config_double(reader, keys, family->norm_eps, 1e-30, 0.999, false);
  }
  bp->norm_affine = true;
  bp->block = family->block;
  bp->final_norm = family->block != BLOCK_POST_NORM || family->opt_keys;
  bp->qk_norm_whole = family->qk_norm_whole;
  bp->norm_plus_one = family->gemma_keys || family->norm_plus_one;
  bp->attn_gate = family->attn_gate;
  bp->picture_mask = family->picture_mask;
  bp->attn_gate_apart = family->attn_gate_apart;
  bp->attn_gate_by_head = family->attn_gate_by_head;
  bp->qk_norm = family->qk_norm;
  bp->qk_norm_each = family->qk_norm_each;
  bp->qk_norm_late = family->qk_norm_late;
  if (family->qk_norm_key != NULL)
    bp->qk_norm = config_bool(reader, KEYS(family->qk_norm_key), family->qk_norm);
  read_parallel(reader, family, bp);
  if (family->clova_keys && !config_bool(reader, KEYS("use_post_norm"), true))
    bp->block = BLOCK_PRE_NORM;
  if (!family->opt_keys) return;
  bool before = config_bool(reader, KEYS("do_layer_norm_before"), true);
  bool removed = config_bool(reader, KEYS("_remove_final_layer_norm"), false);
  bp->block = before ? BLOCK_PRE_NORM : BLOCK_POST_NORM;
  bp->final_norm = before && !removed;
  bp->norm_affine = config_bool(reader, KEYS("layer_norm_elementwise_affine"), true);
  bp->embed_size = (int32_t)config_int_or_null(reader, KEYS("word_embed_proj_dim"), bp->hidden_size,
                                               bp->hidden_size, 1, HIDDEN_MAX);
}

/* Of Gemma, before its second version. */
static bool is_first_gemma(const family_t *family) {
  return family->block == BLOCK_PRE_NORM && family->attn_softcap == 0;
}

static void read_activation(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  static const struct {
    const char *name;
    activation_t kind;
  } plain[] = {{"relu", ACTIVATION_RELU},
               {"relu2", ACTIVATION_RELU2},
               {"gelu", ACTIVATION_GELU},
               {"gelu_new", ACTIVATION_GELU_TANH},
               {"gelu_pytorch_tanh", ACTIVATION_GELU_TANH},
               {"silu", ACTIVATION_SILU},
               {"swish", ACTIVATION_SILU}};
  const char *name;
  const json_t *value = config_find(reader,
                                    KEYS("hidden_act", "hidden_activation", "activation_function",
                                         "activation", "mlp_hidden_act"),
                                    &name);
  bp->gated_mlp = family->gated_mlp;
  if (family->t5_keys) {
    config_read_t5_mlp(reader, family, bp);
    return;
  }
  if (family->gated_mlp) {
    bool tanh_form = strcmp(family->activation, "gelu_pytorch_tanh") == 0;
    bp->activation = tanh_form                                 ? ACTIVATION_GELU_TANH_MUL
                     : family->expert_keys == EXPERTS_GPT_OSS  ? ACTIVATION_CLAMPED_SWIGLU
                     : strcmp(family->activation, "gelu") == 0 ? ACTIVATION_GELU_MUL
                                                               : ACTIVATION_SILU_MUL;
    if (family->encoder && json_equals(value, "swiglu") &&
        bp->activation == ACTIVATION_SILU_MUL) /* nomic-bert's first files */
      return;
    if (value == NULL || json_equals(value, family->activation)) return;
    /* Files of the first Gemma say gelu and mean its approximation by tanh. */
    bool first_gemma = family->gemma_keys && is_first_gemma(family);
    if (first_gemma && json_equals(value, "gelu")) return;
    config_refuse(reader, name, value, "\"%s\" for %s", family->activation, family->architecture);
    return;
  }
  if (strcmp(family->activation, "xielu") == 0) {
    bp->xielu = true;
    if (value != NULL && !json_equals(value, "xielu"))
      config_refuse(reader, name, value, "xielu for %s", family->architecture);
    return;
  }
  for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
    bool given = value != NULL ? json_equals(value, plain[i].name)
                               : strcmp(family->activation, plain[i].name) == 0;
    if (!given || (plain[i].kind == ACTIVATION_SILU && family->side == SIDE_ALONE)) continue;
    bp->activation = plain[i].kind;
    return;
  }
  config_refuse(reader, name, value, "relu, relu2, gelu, gelu_new, gelu_pytorch_tanh%s for %s",
                family->side != SIDE_ALONE ? ", silu, swish" : "", family->architecture);
}

static void read_biases(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bool attention = family->attention_bias_key != NULL &&
                   config_bool(reader, KEYS(family->attention_bias_key), family->bias_default);
  bool mlp = family->mlp_bias_key != NULL &&
             config_bool(reader, KEYS(family->mlp_bias_key), family->bias_default);
  bp->qkv_bias = family->qkv_bias || attention;
  bp->o_bias = family->o_bias || attention;
  if (family->qkv_bias_key != NULL)
    bp->qkv_bias = config_bool(reader, KEYS(family->qkv_bias_key), bp->qkv_bias);
  if (family->o_bias_key != NULL)
    bp->o_bias = config_bool(reader, KEYS(family->o_bias_key), bp->o_bias);
  bp->mlp_bias = family->mlp_bias || mlp;
  if (family->head_bias_key != NULL)
    bp->head_bias = config_bool(reader, KEYS(family->head_bias_key), false);
  if (family->mlp_bias_key_also != NULL)
    bp->mlp_bias = config_bool(reader, KEYS(family->mlp_bias_key_also), bp->mlp_bias);
}

/* A number above 0, or 0 for null. */
static double positive_or_null(config_reader_t *reader, const char *key, double absent) {
  const json_t *value = config_get(reader, key);
  if (value != NULL && value->type == JSON_NULL) return 0;
  return config_double(reader, KEYS(key), absent, 0, 1e6, true);
}

/* Factors of the embeddings, the scores, the residual stream and the logits. */
static void read_scales(config_reader_t *reader, const family_t *family, blueprint_t *bp) {
  bp->embed_scale = bp->residual_scale = bp->head_scale = 1.0;
  bp->attn_scale = family->attn_scale;
  bp->sinks = family->sinks;
  if (family->gemma_keys) {
    /* The first Gemma divides by the square root of head_dim and has no such key. */
    double absent = is_first_gemma(family) ? bp->head_dim : 256;
    double scalar = config_double(reader, KEYS("query_pre_attn_scalar"), absent, 0, 1e6, true);
    bp->embed_scale = sqrt((double)bp->hidden_size);
    bp->embed_rounds = true;
    bp->attn_scale = 1.0 / sqrt(scalar);
    if (family->attn_softcap != 0)
      bp->attn_softcap = positive_or_null(reader, "attn_logit_softcapping", family->attn_softcap);
  }
  if (family->gemma_keys || (family->final_softcap != 0 && !family->gemma4_keys))
    bp->final_softcap = positive_or_null(reader, "final_logit_softcapping", family->final_softcap);
  if (family->clip_key) bp->qkv_limit = positive_or_null(reader, "clip_qkv", 0);
  if (family->embed_root_key != NULL &&
      config_bool(reader, KEYS(family->embed_root_key), family->embed_root))
    bp->embed_scale = sqrt((double)bp->hidden_size);
  if (family->logit_scale != 0)
    bp->head_scale = config_double(reader, KEYS("logit_scale"), family->logit_scale, 0, 1e6, true);
  if (family->granite_keys) {
    bp->embed_scale = config_double(reader, KEYS("embedding_multiplier"), 1, 0, 1e6, true);
    bp->scales_rows = true;
    bp->residual_scale = config_double(reader, KEYS("residual_multiplier"), 1, 1e-3, 1e3, false);
    const double scaling = config_double(reader, KEYS("logits_scaling"), 1, 1e-6, 1e6, false);
    bp->attn_scale = family->clova_keys
                         ? positive_or_null(reader, "attention_multiplier", 0)
                         : config_double(reader, KEYS("attention_multiplier"), 1, 0, 1e6, true);
    bp->head_scale = family->clova_keys ? scaling : 1.0 / scaling;
  }
}

static void read_positions(config_reader_t *reader, const family_t *family, double tokenizer_max,
                           blueprint_t *bp) {
  /* One expression: what KEYS makes lives as long as the block in which it stands. */
  const char *const *keys =
      family->alibi                  ? KEYS("max_seq_len", "seq_length") /* BLOOM has no bound */
      : !family->speech_keys         ? KEYS("max_position_embeddings", "n_positions", "n_ctx")
      : family->side == SIDE_ENCODER ? KEYS("max_source_positions")
                                     : KEYS("max_target_positions");
  int32_t positions = (int32_t)config_int(reader, keys, family->max_positions, 1, CONTEXT_MAX);
  int64_t base = positions;
  /* Positions of sound are no tokens. */
  const bool of_tokens = !family->speech_keys || family->side == SIDE_DECODER;
  if (of_tokens && isfinite(tokenizer_max) && tokenizer_max >= 1 && tokenizer_max < (double)base) {
    base = (int64_t)tokenizer_max;
  }
  bp->learned_positions = !family->rotary;
  bp->position_offset = family->position_offset;
  if (!family->rotary) {
    bp->num_positions = positions;
  } else {
    config_read_rope(reader, family, positions, bp);
    if (family->latent) config_scale_latent(bp);
  }
  double length = (double)base;
  bool stretched = bp->local_rope.type !=
                   ROPE_NONE; /* for Gemma 3 max_position_embeddings already includes the factor */
  if (bp->rope.type == ROPE_YARN) length = bp->rope.original_max * bp->rope.factor;
  if (!stretched && (bp->rope.type == ROPE_LINEAR || bp->rope.type == ROPE_DYNAMIC))
    length *= bp->rope.factor;
  bp->max_model_len = bp->default_model_len = (int32_t)fmin(length, CONTEXT_MAX);
  /* Up to the trained length the angles are those of the training; a user must ask for a longer
   * context, because they are chosen once for all positions. */
  bool chosen = bp->rope.type == ROPE_LONGROPE || bp->rope.type == ROPE_DYNAMIC;
  if (chosen && bp->rope.original_max < bp->max_model_len)
    bp->default_model_len = bp->rope.original_max;
  if (family->unattended && bp->max_model_len > UNATTENDED_CONTEXT)
    bp->default_model_len = UNATTENDED_CONTEXT;
}

/* DTYPE_ number of the stored weights, or -1 when the file does not say. A wrapper's own word goes
 * before that of its text_config, which often is a default of the program that wrote the file. */
static int read_dtype(config_reader_t *reader) {
  static const char *const names[] = {"float32", "float16", "bfloat16"};
  const char *name;
  const json_t *value = NULL;
  if (reader->outer != NULL) {
    const config_reader_t wrapper = {.root = reader->outer};
    value = config_find(&wrapper, KEYS("torch_dtype", "dtype"), &name);
  }
  if (value == NULL) value = config_find(reader, KEYS("torch_dtype", "dtype"), &name);
  if (!json_is_given(value) || json_equals(value, "auto")) return -1;
  for (int i = 0; i < 3; i++) {
    if (json_equals(value, names[i])) return i;
  }
  config_refuse(reader, name, value, "float32, float16, bfloat16");
  return -1;
}

/* The type of the embedding, when config.json is silent. Problems with the files are reported by
 * model_load; a directory without weights (dummy ones) runs in float32. */
static dtype_t stored_dtype(const char *dir, const family_t *family) {
  weight_files_t *files = NULL;
  dtype_t dtype = DTYPE_F32;
  if (weight_files_open(dir, &files, NULL) != 0) return dtype;
  for (int i = 0; i < LAYOUT_PREFIXES_MAX && family->layout->prefixes[i] != NULL; i++) {
    const char *embed_name = family->layout->patterns[0].name; /* the embedding comes first */
    const bool absolute = embed_name[0] == '/';
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%s%s.weight", absolute ? "" : family->layout->prefixes[i],
             embed_name + absolute);
    const stored_tensor_t *embed = weight_files_find(files, name);
    if (embed == NULL) continue;
    if (strcmp(embed->type, "F16") == 0) dtype = DTYPE_F16;
    if (strcmp(embed->type, "BF16") == 0) dtype = DTYPE_BF16;
    break;
  }
  weight_files_close(files);
  return dtype;
}

/* Whether the files have one tensor for all experts of a layer and, of Qwen3-VL, whether its rows
 * stand as in other matrices; false without files. */
static bool are_stacked(const char *dir, const family_t *family, const blueprint_t *bp) {
  weight_files_t *files = NULL;
  bool found = false;
  if (weight_files_open(dir, &files, NULL) != 0) return false;
  int32_t layer = 0;
  while (layer + 1 < bp->num_layers && !(bp->layer_flags[layer] & LAYER_EXPERTS)) layer++;
  /* where one matrix is square, the other is not */
  const char *part = bp->expert_size == bp->hidden_size ? "gate_up_proj" : "down_proj";
  int64_t rows = bp->expert_size == bp->hidden_size ? 2LL * bp->expert_size : bp->hidden_size;
  for (int i = 0; i < LAYOUT_PREFIXES_MAX && family->layout->prefixes[i] != NULL; i++) {
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%slayers.%d.mlp.experts.%s", family->layout->prefixes[i], layer,
             part);
    const stored_tensor_t *stored = weight_files_find(files, name);
    found |= stored != NULL && stored->rank == 3 && stored->shape[1] == rows;
  }
  weight_files_close(files);
  return found;
}

/* Whether the files have the taps of q, k and v of OLMo hybrid in thirds. */
static bool has_thirds(const char *dir, const family_t *family, const blueprint_t *bp) {
  weight_files_t *files = NULL;
  bool found = false;
  if (weight_files_open(dir, &files, NULL) != 0) return false;
  int32_t layer = 0;
  while (layer + 1 < bp->num_layers && !(bp->layer_flags[layer] & LAYER_MIXER)) layer++;
  for (int i = 0; i < LAYOUT_PREFIXES_MAX && family->layout->prefixes[i] != NULL; i++) {
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%slayers.%d.linear_attn.q_conv1d.weight",
             family->layout->prefixes[i], layer);
    const stored_tensor_t *stored = weight_files_find(files, name);
    found |= stored != NULL && stored->rank == 3 &&
             stored->shape[0] == (mixer_channels(&bp->mixer, 0) + 2) / 3;
  }
  weight_files_close(files);
  return found;
}

static void read_ids(config_reader_t *reader, const family_t *family, int32_t tokenizer_eos,
                     blueprint_t *bp) {
  bp->bos_id = (int32_t)config_int_or_null(reader, KEYS("bos_token_id"),
                                           family->bos_id < bp->vocab_size ? family->bos_id : -1,
                                           -1, 0, bp->vocab_size - 1);
  bp->primary_eos = -1;
  if (tokenizer_eos >= 0 && tokenizer_eos < bp->vocab_size) {
    bp->eos_ids[bp->num_eos++] = tokenizer_eos;
  }
  config_read_eos(reader, bp);
  bool silent = config_get(reader, "eos_token_id") == NULL;
  if (bp->num_eos == 0 && silent && family->eos_id >= 0 && family->eos_id < bp->vocab_size) {
    bp->eos_ids[bp->num_eos++] = family->eos_id;
  }
}

/* Keys of a wrapper's text model stand in text_config; ids, dtype and tie may stand outside.
 * Returns the row of the text model. */
static const family_t *enter_text_config(config_reader_t *reader, const family_t *family) {
  const json_t *text = json_get(reader->root, "text_config");
  if (!family->nested || (family->flat_too && text == NULL)) return family;
  if (text == NULL || text->type != JSON_OBJECT) {
    config_refuse(reader, "text_config", text, text == NULL ? "is missing" : "an object");
    return family;
  }
  const json_t *type = json_get(text, "model_type");
  reader->outer = reader->root;
  reader->root = text;
  if (type == NULL || type->type != JSON_STRING) return family;
  const family_t *found = family_by_text(family->architecture, type->text, type->length);
  if (found != NULL) return found;
  config_refuse(reader, "model_type", type, "the text models of %s", family->architecture);
  return family;
}

/* `start` looks into the whole document. `bp` may be NULL: then only the family is found. */
static int read_config(const char *dir, const config_reader_t *start, double tokenizer_max,
                       int32_t tokenizer_eos, blueprint_t *bp) {
  config_reader_t reader = *start;
  bool headless = false;
  label_head_t head = LABELS_NONE;
  const wrapper_t *wrapper;
  const family_t *family = find_family(&reader, &headless, &head, &wrapper);
  if (family == NULL || bp == NULL) return reader.code;
  if (start->encoder) {
    family = family_by_name(family->encoder_name, strlen(family->encoder_name));
    headless = true;
  }
  bp->headless = headless;
  if (wrapper == NULL) family = enter_text_config(&reader, family);
  bp->within = wrapper != NULL || reader.outer != NULL || start->gguf != NULL;
  snprintf(bp->family, sizeof(bp->family), "%s", family->name);
  snprintf(bp->architecture, sizeof(bp->architecture), "%s",
           wrapper != NULL ? wrapper->architecture : family->architecture);
  if (start->gguf == NULL) config_read_quantization(&reader, dir, family, bp);
  refuse_semantic_keys(&reader, family);
  read_sizes(&reader, family, bp);
  read_norms(&reader, family, bp);
  read_activation(&reader, family, bp);
  read_biases(&reader, family, bp);
  read_scales(&reader, family, bp);
  bp->tied = config_ties(&reader, wrapper, family);
  if (reader.code == 0) config_read_layers(&reader, family, bp);
  if (reader.code == 0) config_read_distances(&reader, family, bp);
  if (reader.code == 0) config_read_indexer(&reader, family, bp);
  if (reader.code == 0) config_read_gemma4(&reader, family, bp);
  if (reader.code == 0) config_read_gemma3n(&reader, family, bp);
  if (reader.code == 0) config_read_mixer(&reader, family, bp);
  if (reader.code == 0) config_read_eagle(&reader, family, bp);
  if (reader.code == 0) config_read_experts(&reader, family, bp);
  if (reader.code == 0) read_positions(&reader, family, tokenizer_max, bp);
  if (reader.code == 0) config_read_encoder(&reader, family, head, bp);
  if (reader.code == 0) config_read_deberta(&reader, family, bp);
  if (reader.code == 0) config_read_cross(&reader, dir, family, bp);
  read_ids(&reader, family, tokenizer_eos, bp);
  int dtype = read_dtype(&reader);
  if (reader.code != 0) return reader.code;
  bp->dtype = dtype >= 0 ? (dtype_t)dtype : stored_dtype(dir, family);
  bp->conv1d = strcmp(family->name, "gpt2") == 0;
  bp->mixer.thirds = bp->mixer.apart && has_thirds(dir, family, bp);
  bp->experts_stacked =
      family->layout->may_stack && bp->num_experts > 0 && are_stacked(dir, family, bp);
  return 0;
}

const json_limits_t config_limits = {.depth_max = 32,
                                     .values_max = 1000000,
                                     .key_bytes_max = 1024,
                                     .allow_nul = true,
                                     .allow_infinity = true};

static int read_directory(const char *dir, bool encoder, double tokenizer_max,
                          int32_t tokenizer_eos, blueprint_t *out, inferd_error_t *error) {
  struct stat status;
  if (stat(dir, &status) != 0) return error_system(error, dir, errno);
  if (!S_ISDIR(status.st_mode)) {
    return error_set(error, ERR_MODEL_MISSING, NULL, "%s: is neither a directory nor a GGUF file",
                     dir);
  }
  model_file_t file;
  int result = model_file_read(dir, "config.json", CONFIG_BYTES_MAX, &config_limits, &file, error);
  if (result == 0 && file.doc == NULL) {
    result = error_set(error, ERR_MODEL_MISSING, NULL,
                       "%s: no config.json; a model directory of Hugging Face is needed", dir);
  }
  if (result != 0) return result;
  config_reader_t reader = {
      .file = "config.json", .root = json_root(file.doc), .encoder = encoder, .error = error};
  result = read_config(dir, &reader, tokenizer_max, tokenizer_eos, out);
  model_file_free(&file);
  if (result != 0 || out == NULL) return result;
  const family_t *family = family_by_name(out->family, strlen(out->family));
  if (!encoder && out->tied && weights_head_differs(dir, family->layout, out)) {
    blueprint_note(out, "tie_word_embeddings is true, but lm_head.weight differs from the "
                        "embedding: the stored head is used");
    out->tied = false;
  }
  return config_read_generation(dir, out, error);
}

static int read_gguf(const gguf_t *gguf, double tokenizer_max, int32_t tokenizer_eos,
                     blueprint_t *out, inferd_error_t *error) {
  const char *path = gguf_path(gguf, 0), *slash = strrchr(path, '/');
  config_reader_t reader = {.file = slash != NULL ? slash + 1 : path, .error = error};
  buffer_t json = {0};
  json_doc_t *doc = NULL;
  int code = config_from_gguf(gguf, &reader.gguf, &json, error);
  if (code == 0) code = json_parse(json.data, json.length, &config_limits, &doc, error);
  if (code == 0) {
    reader.root = json_root(doc);
    code = read_config(path, &reader, tokenizer_max, tokenizer_eos, out);
  }
  json_free(doc);
  buffer_free(&json);
  if (code != 0 || out == NULL) return code;
  out->gguf = true;
  config_from_gguf_tensors(gguf, out);
  config_from_gguf_sampling(gguf, out);
  config_from_gguf_note(gguf, reader.gguf, out);
  return 0;
}

/* `out` may be NULL, as above. */
static int read_model(const char *dir, double tokenizer_max, int32_t tokenizer_eos,
                      blueprint_t *out, inferd_error_t *error) {
  char path[PATH_MAX];
  gguf_t *gguf;
  int result = gguf_find(dir, path, sizeof(path), error);
  if (result == 0) {
    result = read_directory(dir, false, tokenizer_max, tokenizer_eos, out, error);
    error_within(error, result, dir);
  } else if (result > 0) {
    result = gguf_open(path, true, &gguf, error);
    if (result == 0) {
      result = read_gguf(gguf, tokenizer_max, tokenizer_eos, out, error);
      gguf_close(gguf);
    }
  }
  return result;
}

int blueprint_check_family(const char *dir, inferd_error_t *error) {
  return read_model(dir, NAN, -1, NULL, error);
}

/* With nothing given. */
static const blueprint_t silent = {.temperature = NAN,
                                   .top_p = NAN,
                                   .min_p = NAN,
                                   .repetition_penalty = NAN,
                                   .top_k = -1,
                                   .max_new_tokens = -1,
                                   .primary_eos = -1};

int blueprint_read_encoder(const char *dir, double tokenizer_max, blueprint_t *out,
                           inferd_error_t *error) {
  *out = silent;
  int result = read_directory(dir, true, tokenizer_max, -1, out, error);
  error_within(error, result, dir);
  if (result == 0) result = tensors_count_parameters(out, &out->num_parameters, error);
  if (result != 0) blueprint_free(out);
  return result;
}

int blueprint_read(const char *dir, double tokenizer_max, int32_t tokenizer_eos, blueprint_t *out,
                   inferd_error_t *error) {
  *out = silent;
  int result = read_model(dir, tokenizer_max, tokenizer_eos, out, error);
  if (result == 0) result = tensors_count_parameters(out, &out->num_parameters, error);
  if (result == 0 && out->num_eos > 0) out->primary_eos = out->eos_ids[0];
  if (result != 0) blueprint_free(out);
  return result;
}

void blueprint_free(blueprint_t *blueprint) {
  free(blueprint->layer_flags);
  blueprint->layer_flags = NULL;
  free(blueprint->scheme.plain);
  blueprint->scheme.plain = NULL;
}
