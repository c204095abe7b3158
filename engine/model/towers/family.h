/* family.h: what a family of towers is like, and what its tensors are called. Constant data. */
#ifndef INFERD_ENGINE_MODEL_TOWERS_FAMILY_H
#define INFERD_ENGINE_MODEL_TOWERS_FAMILY_H

#include "engine/model/config/config.h"
#include "engine/model/towers/towers.h"

/* What a tensor does. Symbols as in towers.h; f width of the MLP. */
typedef enum tower_role {
  TOWER_PATCH,      /* [d, patch_columns] */
  TOWER_POSITIONS,  /* [table_side^2, d] */
  TOWER_MERGE_NORM, /* [d] */
  TOWER_MERGE_UP,   /* [m^2 d, m^2 d] */
  TOWER_MERGE_DOWN, /* [h, m^2 d] */
  TOWER_NORM_1,     /* of each layer: [d] */
  TOWER_FIRST_OF_LAYER = TOWER_NORM_1,
  TOWER_QKV,       /* [3 d, d] */
  TOWER_O,         /* [d, d] */
  TOWER_NORM_2,    /* [d] */
  TOWER_GATE,      /* [f, d]; a family that has it has gated MLPs */
  TOWER_UP,        /* [f, d] */
  TOWER_DOWN,      /* [d, f] */
  TOWER_DEEP_NORM, /* of each deepstack: [m^2 d] */
  TOWER_FIRST_OF_DEEP = TOWER_DEEP_NORM,
  TOWER_DEEP_UP,   /* [m^2 d, m^2 d] */
  TOWER_DEEP_DOWN, /* [h, m^2 d] */
  TOWER_NUM_ROLES
} tower_role_t;

typedef struct tower_family {
  const char *model_type;             /* of vision_config */
  const char *prefixes[3];            /* of all names; the first that is found; NULL ends */
  const char *names[TOWER_NUM_ROLES]; /* without .weight and .bias; %d is the layer or the number of
                                       * a deepstack; NULL = there is none */
  uint32_t unbiased;                  /* bit 1 << role: no bias; norms of NORM_RMS have none */
  norm_kind_t norm;
  float norm_eps;
  /* Fills the plan from vision_config, the reader's root. */
  void (*read)(config_reader_t *reader, tower_plan_t *plan);
} tower_family_t;

/* qwen.c */
extern const tower_family_t tower_qwen2_5_vl, tower_qwen3_vl, tower_qwen3_vl_moe, tower_qwen3_5,
    tower_qwen3_5_moe;

/* Reads what the activation of an MLP of plan->family is called under `key`. plan.c */
activation_t tower_read_activation(config_reader_t *reader, const tower_plan_t *plan,
                                   const char *key, const char *absent);

#endif
