/* rules.h: the rules by which families spell their layers and experts in config.json.
 *
 * Members of a family's row (family.h); plain data.
 */
#ifndef INFERD_ENGINE_MODEL_FAMILIES_RULES_H
#define INFERD_ENGINE_MODEL_FAMILIES_RULES_H

typedef enum window_rule {
  WINDOW_NEVER,   /* keys about windows are ignored, as the reference does */
  WINDOW_ALL,     /* every layer, when `sliding_window` is not null */
  WINDOW_UPPER,   /* layers from `max_window_layers`, when `use_sliding_window` */
  WINDOW_EVEN,    /* layers 0, 2, 4 ... */
  WINDOW_PATTERN, /* all but every `sliding_window_pattern`th layer */
  WINDOW_FROM,    /* layers from `max_window_layers`, when `sliding_window` is not null */
  WINDOW_LISTED,  /* every layer; layer_types goes before that */
  WINDOW_BEHIND,  /* all but layers 0, `window_pattern`, twice that ... */
  WINDOW_TYPES,   /* `window_size`, in layers that `attention_types` calls local */
  WINDOW_LOCAL,   /* all but every `global_attn_every_n_layers`th, from 0 on: `local_attention` */
  WINDOW_REFUSED  /* `use_sliding_window` true is refused */
} window_rule_t;

/* Which keys describe the experts. */
typedef enum expert_keys {
  EXPERTS_NONE,
  EXPERTS_MIXTRAL,  /* num_local_experts; width intermediate_size; always normalised */
  EXPERTS_QWEN,     /* num_experts, moe_intermediate_size, norm_topk_prob, dense layers between */
  EXPERTS_OLMOE,    /* num_experts; width intermediate_size; norm_topk_prob */
  EXPERTS_GPT_OSS,  /* as Mixtral, with biases, interleaved, MXFP4 */
  EXPERTS_DEEPSEEK, /* n_routed_experts, groups, shared experts behind the first dense layers */
  EXPERTS_ERNIE,    /* moe_num_experts, moe_k ... */
  EXPERTS_MINIMAX,  /* as Mixtral, scored by a sigmoid */
  EXPERTS_LFM2,     /* num_experts behind num_dense_layers, scored by a sigmoid */
  EXPERTS_GEMMA4,   /* enable_moe_block; beside a dense MLP */
  EXPERTS_GRANITE,  /* as Mixtral, with shared_intermediate_size */
  EXPERTS_HUNYUAN,  /* num_experts, moe_topk: numbers, or lists of one for each layer */
  EXPERTS_COHERE,   /* num_experts; width intermediate_size; dense layers prefix_dense_... */
  EXPERTS_JAMBA,    /* num_experts; expert_layer_period, expert_layer_offset */
  EXPERTS_NEMOTRON  /* as DeepSeek, without gates; the layers that config_mixer.c marks */
} expert_keys_t;

/* Which full-attention layers of a family with windows do without rotation. */
typedef enum full_rule {
  FULL_ROTATED,
  FULL_UNROTATED,               /* all, even in a model without windows */
  FULL_UNROTATED_BESIDE_WINDOWS /* all, but in a model without windows none */
} full_rule_t;

/* Which layers of a mixture of experts are dense. */
typedef enum dense_rule {
  DENSE_FIRST,  /* the first_k_dense_replace, or num_dense_layers, first ones */
  DENSE_LISTED, /* those of mlp_layer_types; without the list the `dense_first` first ones */
  DENSE_EITHER  /* those of mlp_layer_types; without the list the first ones by the key */
} dense_rule_t;

/* What a family of GGUF files needs beside the common keys. */
enum {
  NEEDS_NOTHING = 0,
  LAYER_NORMS = 1,     /* layer_norm_epsilon */
  GEMMA_SCALE = 2,     /* query_pre_attn_scalar, which follows from the sizes */
  NORMALISES = 4,      /* the weights of the chosen experts sum to 1 unless a key says otherwise */
  WINDOWED = 8,        /* attention.sliding_window is used; other families ignore the key */
  YARN_IS_EXACT = 16,  /* yarn's bounds are not rounded to whole dimensions */
  POSITION_TABLE = 32, /* positions are a table of the checkpoint, not rotations */
  QUERY_GROWTH = 128,  /* attention.temperature_scale, yarn_log_multiplier */
  PARALLEL = 256,      /* attention and MLP may stand side by side */
  LOGIT_SCALE = 512,
  WINDOW_OR_NONE = 1024, /* without a key of a window there is none */
  SCORED_EXPERTS = 2048, /* routers that score, config_router.c */
  LATENT = 4096,         /* latent attention */
  STATES = 16384,        /* some layers keep a state: config_gguf_states.c */
  GEMMA4 = 32768,        /* config_gguf_gemma4.c */
  GEMMA3N = 524288,      /* config_gguf_gemma3n.c */
  NO_ROPE = 65536,       /* no layer rotates, whatever the keys of the rotation say */
  SECTIONS = 131072,     /* rope.dimension_sections: tokens of pictures have three positions */
  BY_TURNS = 262144,     /* these stand interleaved, which no key says */
  ENCODER = 8192,        /* reads in both directions: config_gguf_encoder.c */
  TWO_ROPES = 64 /* sliding layers have rotary frequencies of their own; no window: none slides */
};

#endif
