/* internal.h: a loaded tower. Shared by load.c, which fills it, and tower.c, which runs it.
 *
 * Symbols as in towers.h and family.h; P patches of a run. Device pointers belong to the device. */
#ifndef INFERD_ENGINE_MODEL_TOWERS_INTERNAL_H
#define INFERD_ENGINE_MODEL_TOWERS_INTERNAL_H

#include "engine/model/towers/family.h"

typedef struct tower_linear {
  const weight_t *weight;
  const vector_t *bias; /* or NULL */
} tower_linear_t;

typedef struct tower_layer {
  norm_t norm_1, norm_2;
  tower_linear_t qkv, o, up, down; /* up of gated MLPs: [2 f, d], gate first */
} tower_layer_t;

/* m^2 patches -> one row: MLP of their values side by side, behind a norm of each or of all. */
typedef struct tower_merger {
  norm_t norm;
  tower_linear_t up, down;
} tower_merger_t;

struct tower {
  const ops_t *ops;
  device_t *device;
  tower_plan_t plan;
  tower_linear_t patch;
  float *table;          /* [table_side^2, d], owned; NULL = no learned positions */
  tower_layer_t *layers; /* [num_layers], owned */
  tower_merger_t merger, deep[TOWER_DEEP_MAX];
  float *inv_freq; /* [d / heads / 4], owned */
  /* taken by tower_prepare; host memory is owned */
  int32_t patches_max;
  float *places;         /* [P, d] learned positions of the patches */
  float *cosine, *sine;  /* [P, d / heads / 2] */
  int32_t *image_starts; /* [P / m^2 + 1] */
  /* With windows, whose blocks stand side by side: where they begin among the patches, [P / m^2 +
   * 1]; the block of the input that is there, [P / m^2]; pixels in that order, and rows. */
  int32_t *window_starts, *order, num_windows;
  float *sorted, *merged;
  act_t *inner;  /* [P, f] of gated MLPs */
  act_t *pixels; /* [P, patch_columns] */
  act_t *x, *y;  /* [P, d] */
  act_t *qkv;    /* [P, 3 d] */
  act_t *up;     /* [P, max(f or 2 f, d)]; of mergers [P / m^2, m^2 d] */
  act_t *rows;   /* [P / m^2, h] */
};

#endif
