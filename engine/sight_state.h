/* sight_state.h: what an engine's eyes are made of. Shared by sight.c, which makes them of the
 * files of a model, and sight_work.c, which works with them between steps. Engine thread only.
 */
#ifndef INFERD_ENGINE_SIGHT_STATE_H
#define INFERD_ENGINE_SIGHT_STATE_H

#include "engine/internal.h"
#include "engine/model/towers/mmproj.h"
#include "engine/schedule/pictures.h"

/* Runs of the tower, so that pictures of clients take turns: of the largest picture, and of such
 * as have no more patches than these, which wait for no larger ones. */
enum { RUNS_LARGE = 2, RUNS = 4, SMALL_PATCHES = 4096 };
_Static_assert((int)RUNS <= (int)TOWER_RUNS_MAX && (int)RUNS <= (int)PICTURES_BEGUN_MAX, "places");

/* A run of the tower: a picture, or a sound, that has no rows yet. */
typedef struct look {
  const vision_t *vision;
  const request_t *request; /* NULL = nobody's */
  const image_t *image;
  int32_t entry, patches_max;
  int64_t charged; /* tokens, for what is done */
  tower_grid_t grids[VISION_TILES_MAX];
  float **out;   /* of the tokens that so many patches become */
  int32_t width; /* of a plane of their rows */
} look_t;

typedef struct sight {
  vision_t vision;
  tower_plan_t plan;
  char path[MMPROJ_PATH_MAX]; /* of the files of the model, or of its mmproj file */
  tower_t *tower;             /* NULL until it is loaded */
  image_rows_t *rows;
  double token_work;  /* multiplications of a token of the text model, without attention */
  double work_per_ns; /* learned */
  look_t looks[RUNS]; /* those with most room first */
} sight_t;

#endif
