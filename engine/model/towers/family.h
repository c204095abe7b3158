/* family.h: what a family of towers is like, and what its tensors are called. Constant data. */
#ifndef INFERD_ENGINE_MODEL_TOWERS_FAMILY_H
#define INFERD_ENGINE_MODEL_TOWERS_FAMILY_H

#include "engine/model/config/config.h"
#include "engine/model/source/model_file.h"
#include "engine/model/towers/towers.h"

/* What a tensor does. Symbols as in towers.h; f width of the MLP, u = merge_width. */
typedef enum tower_role {
  TOWER_PATCH,      /* [d, patch_columns]; of sounds the first convolution, [d, 3 bands] */
  TOWER_CONV,       /* [d, 3 d] the second one */
  TOWER_CONV_3,     /* of chunks [C, 9 C], as the second one then; the first one is [C, 9] */
  TOWER_CONV_OUT,   /* of chunks [d, C frequencies] */
  TOWER_POSITIONS,  /* [table_side^2, d]; with a class [1 + table_side^2, d], its own first; of
                     * TABLE_OF_AXES [2, table_side, d], columns first; of TABLE_OF_LINE
                     * [table_side, d] */
  TOWER_CLASS,      /* [d]: what each image has beside its patches; no row is made of it */
  TOWER_PRE_NORM,   /* [d] before the first layer */
  TOWER_POST_NORM,  /* [d] behind the last layer */
  TOWER_MEAN_BIAS,  /* [d] taken from means of blocks; if plan.standardizes */
  TOWER_MEAN_SCALE, /* [d] by which they are multiplied then */
  TOWER_LINE,       /* [h]: the row that is a new line, see tower_line */
  TOWER_MEAN_NORM,  /* [d] of the means, as TOWER_MERGE_NORM, but a tensor of the tower */
  TOWER_MERGE_NORM, /* [d], or [m^2 d] with MERGE_NORM_ALL */
  TOWER_FIRST_OF_MERGE = TOWER_MERGE_NORM,
  TOWER_MERGE_MIX,  /* [d, m^2 d]: of a block one patch, before the MLP */
  TOWER_MERGE_UP,   /* [u, m^2 d], behind a mix or a mean [u, d] */
  TOWER_MERGE_DOWN, /* [h, u], without an MLP [h, m^2 d] or [h, d] */
  TOWER_END_OF_MERGE,
  TOWER_NORM_1 = TOWER_END_OF_MERGE, /* of each layer: [d] */
  TOWER_FIRST_OF_LAYER = TOWER_NORM_1,
  TOWER_QKV,        /* [3 d, d], or */
  TOWER_Q,          /* [d, d] */
  TOWER_K,          /* [d, d] */
  TOWER_V,          /* [d, d] */
  TOWER_Q_NORM,     /* [d / heads]; with these also a norm of v, without a weight */
  TOWER_K_NORM,     /* [d / heads] */
  TOWER_O,          /* [d, d] */
  TOWER_OUT_NORM_1, /* [d] of what attention adds */
  TOWER_SCALE_1,    /* [d] factor of what attention adds */
  TOWER_NORM_2,     /* [d] */
  TOWER_GATE,       /* [f, d]; a family that has it has gated MLPs */
  TOWER_UP,         /* [f, d] */
  TOWER_DOWN,       /* [d, f] */
  TOWER_OUT_NORM_2, /* [d] of what the MLP adds */
  TOWER_SCALE_2,    /* [d] factor of what the MLP adds */
  TOWER_DEEP_NORM,  /* of each deepstack: [m^2 d] */
  TOWER_FIRST_OF_DEEP = TOWER_DEEP_NORM,
  TOWER_DEEP_UP,   /* [m^2 d, m^2 d] */
  TOWER_DEEP_DOWN, /* [h, m^2 d] */
  TOWER_NUM_ROLES
} tower_role_t;

/* What is done with the m^2 patches of a block. */
typedef enum tower_merge {
  MERGE_NORM_EACH, /* a norm of each patch, if there is one; then their values side by side */
  MERGE_NORM_ALL,  /* side by side, then a norm of all, if there is one */
  MERGE_MEAN       /* their mean, then a norm of that */
} tower_merge_t;

enum { TOWER_PREFIXES_MAX = 5 };

typedef struct tower_family {
  const char *around;     /* model_type of config.json; NULL = that of vision_config says enough */
  const char *model_type; /* of vision_config, or, if it hears, of audio_config */
  bool hears;
  bool writes;          /* down what is said: the model is made for that */
  int32_t windows_max;  /* of 30 s, of a sound; 0 of chunks */
  int32_t samples_min;  /* of chunks: silence stands behind a shorter sound */
  bool hears_silence;   /* windows of a sound are whole: with the silence behind it */
  bool rows_of_silence; /* which becomes rows, too */
  bool joins_windows;   /* one spectrogram of all of them, else each has its own */
  /* Of the names of the tower, of the merger, NULL there = the same, and of TOWER_LINE; the first
   * that is found; NULL ends. */
  struct {
    const char *tower, *merger, *line;
  } prefixes[TOWER_PREFIXES_MAX];
  const char *names[TOWER_NUM_ROLES]; /* without .weight and .bias; %d is the layer or the number of
                                       * a deepstack; NULL = there is none */
  uint64_t unbiased, bare;            /* bit 1 << role; bare: without .weight */
  uint64_t clippable;                 /* .linear.weight, and if plan.clips the bounds beside it */
  uint32_t unread;                    /* in the files, but the reference leaves it out */
  norm_kind_t norm, merge_norm;
  bool merge_plus_one; /* that norm multiplies by 1 + weight */
  bool merge_plain;    /* that norm has no weight, and so no role */
  bool centres;        /* a value of a patch between 0 and 1 becomes 2 (value - 1 / 2) */
  bool unscaled;       /* q.k is not divided */
  bool mean_grows;     /* means of blocks are multiplied by the root of d */
  bool mix_by_channel; /* columns of the mix: (value, patch of the block), else the reverse */
  bool down_is_turned; /* the matrix is [u, h] in the files */
  tower_merge_t merge;
  /* Fills the plan from vision_config or audio_config, the reader's root; `around` has all of
   * config.json. */
  void (*read)(config_reader_t *reader, const json_t *around, tower_plan_t *plan);
} tower_family_t;

/* qwen.c */
extern const tower_family_t tower_qwen2_vl, tower_qwen2_5_vl, tower_qwen3_vl, tower_qwen3_vl_moe,
    tower_qwen3_5, tower_qwen3_5_moe;
/* pixtral.c */
extern const tower_family_t tower_mistral3, tower_pixtral;
/* siglip.c */
extern const tower_family_t tower_gemma3, tower_idefics3, tower_smolvlm, tower_llava,
    tower_llava_next, tower_llava_onevision;
/* gemma4.c */
extern const tower_family_t tower_gemma4;
/* internvl.c */
extern const tower_family_t tower_internvl, tower_internvl_chat;
/* whisper.c */
extern const tower_family_t tower_qwen2_audio, tower_audioflamingo3, tower_glmasr, tower_voxtral,
    tower_qwen3_asr, tower_qwen3_asr_thinker, tower_qwen3_omni, tower_qwen3_omni_thinker;

/* config.json of `path`, or what a mmproj file says in its place. out->doc NULL: there is none.
 * plan.c
 */
int tower_config_read(const char *path, model_file_t *out, inferd_error_t *error);

/* Reads what the activation of an MLP of plan->family is called under `key`. plan.c */
activation_t tower_read_activation(config_reader_t *reader, const tower_plan_t *plan,
                                   const char *key, const char *absent);
/* The sizes that vision transformers of transformers have under these keys, and a merge of 1, for
 * patches that come row by row. Returns the side of a patch in pixels. */
int64_t tower_read_vit(config_reader_t *reader, tower_plan_t *plan, const tower_plan_t *absent,
                       int64_t patch);
/* The table of positions by image_size. */
void tower_read_table(config_reader_t *reader, tower_plan_t *plan, int64_t image, int64_t patch);
/* out_size: the width of the text model that is beside it. */
void tower_read_text(config_reader_t *reader, const json_t *around, tower_plan_t *plan);
/* The MLP that LLaVA makes rows by, whose matrices have biases if multimodal_projector_bias, or
 * what is `biased` without that key, says so. */
void tower_read_projector(config_reader_t *reader, const json_t *around, bool biased,
                          tower_plan_t *plan);
/* Refuses a key that is there with another value. */
void tower_expect(config_reader_t *reader, const json_t *object, const char *key,
                  const char *served);
void tower_expect_bool(config_reader_t *reader, const json_t *object, const char *key, bool served);

#endif
