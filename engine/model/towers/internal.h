/* internal.h: a loaded tower. Shared by load.c, which fills it, and tower.c, which runs it.
 *
 * Symbols as in towers.h and family.h. Device pointers belong to the device. */
#ifndef INFERD_ENGINE_MODEL_TOWERS_INTERNAL_H
#define INFERD_ENGINE_MODEL_TOWERS_INTERNAL_H

#include "engine/model/towers/family.h"

/* Of a convolution over a spectrogram. */
enum { TAPS = 3 };

typedef struct tower_linear {
  const weight_t *weight;
  const vector_t *bias;                         /* or NULL */
  float in_least, in_most, out_least, out_most; /* if plan.clips */
} tower_linear_t;

/* Matrices that are one of their own where what they read and make has bounds. */
typedef enum tower_split {
  SPLIT_Q,
  SPLIT_K,
  SPLIT_V,
  SPLIT_GATE,
  SPLIT_UP,
  NUM_SPLITS
} tower_split_t;

typedef struct tower_layer {
  norm_t norm_1, norm_2, out_norm_1, out_norm_2;
  const vector_t *q_norm, *k_norm;
  tower_linear_t qkv, o, up, down;  /* up of gated MLPs: [2 f, d], gate first */
  tower_linear_t split[NUM_SPLITS]; /* if plan.clips, in place of qkv and up */
} tower_layer_t;

/* m^2 patches -> one row, as tower_family_t says. A norm of width 0, and a matrix that is NULL, is
 * left out. */
typedef struct tower_merger {
  norm_t norm;
  tower_linear_t mix, up, down;
} tower_merger_t;

/* What all patches go through, one after the other. */
typedef enum tower_phase {
  PHASE_DONE,
  PHASE_PATCHES,
  PHASE_QKV, /* of each layer: norm and projection */
  PHASE_ATTENTION,
  PHASE_MLP,  /* and what is before it */
  PHASE_DEEP, /* behind some layers */
  PHASE_MERGE
} tower_phase_t;

/* Patches go through the phases part by part; P patches of a run, with those of classes, N of a
 * part. What tower_prepare takes; host memory is owned. */
typedef struct tower_run {
  int32_t patches_max;
  act_t *x, *y;          /* [P, d] */
  act_t *qkv;            /* [P, 3 d] */
  float *cosine, *sine;  /* [P, d / heads / 2] */
  int32_t *image_starts; /* [P / m^2 + 1] */
  /* [P / m^2]: the block of the input that is there, -1 = that of a class. With windows these stand
   * side by side, and [P / m^2 + 1]: where they begin among the patches. With a class a window is
   * an image with it, the next one what is left of its block; of sounds each is a window, and so is
   * what the last one lacks of its block. */
  int32_t *order, *window_starts, num_windows;
  /* of tower_begin */
  const tower_grid_t *grids;
  int32_t num_images, patches, merged; /* merged: those of whole blocks */
  tower_pixels_t *read;
  tower_write_t *write;
  void *context;
  tower_phase_t phase;       /* that is next, from patch_done on */
  int32_t layer, patch_done; /* of this phase */
  /* Of the last patch that was placed: its image, and the patches of the input before that. */
  int32_t image, image_patch;
  int32_t num_deep;  /* deepstacks that are made */
  int64_t work_done; /* multiplications */
} tower_run_t;

/* What convolutions of a chunk need, chunks.c; host memory is owned. */
typedef struct tower_chunk {
  float *planes[2]; /* one reads the first and writes the second, (times, frequencies, channels) */
  float *columns;   /* [CHUNK_PART, 9 C]: what rows of a convolution read */
  act_t *read, *made; /* [CHUNK_PART, 9 C or C frequencies]; [CHUNK_PART, C] */
} tower_chunk_t;

struct tower {
  const ops_t *ops;
  device_t *device;
  tower_plan_t plan;
  dtype_t dtype; /* of matrices */
  uint64_t hash;
  tower_linear_t patch, conv, conv_3, conv_out; /* the last two of chunks */
  float *table;                  /* [has class + tower_places, d], owned; NULL = there is none */
  float *mean_bias, *mean_scale; /* [d], owned; NULL = there are none */
  float *own;                    /* [d] class with its position, owned; NULL = there is none */
  float *line;                   /* [h] see tower_line, owned */
  norm_t pre_norm, post_norm;    /* width 0 = there is none */
  tower_layer_t *layers;         /* [num_layers], owned */
  tower_merger_t merger, deep[TOWER_DEEP_MAX];
  float *inv_freq; /* [d / heads / 2] of rows, then of columns; owned */
  /* Taken by tower_prepare: of the part that is computed; host memory is owned. */
  float *places;             /* [N, d] learned positions; of sounds [2 N, d] */
  float *host_pixels;        /* [N, patch_columns]; of sounds behind these what pixels has */
  float *merged;             /* [N / m^2, h] */
  act_t *pixels;             /* [N, patch_columns]; of sounds [3 N, 3 bands] */
  act_t *inner;              /* [N, f] of gated MLPs */
  act_t *up;                 /* [N, mlp_values]; of mergers [N / m^2, m^2 d] */
  act_t *rows;               /* [N / m^2, h] */
  act_t *clip_in, *clip_out; /* [N, max(f, d)] if plan.clips */
  tower_chunk_t chunk;
  tower_run_t runs[TOWER_RUNS_MAX];
  tower_run_t *run; /* that is chosen */
};

/* ---- chunks.c ---- */

static inline bool tower_has_chunks(const tower_plan_t *plan) {
  return plan->chunk > 0;
}
/* Multiplications of a position; numbers of all matrices; bytes of tower_chunk_t. */
int64_t chunk_work(const tower_plan_t *plan);
int64_t chunk_num_weights(const tower_plan_t *plan);
size_t chunk_bytes(const tower_plan_t *plan);
bool chunk_take(tower_t *tower); /* false: no memory */
void chunk_free(tower_t *tower);
/* [chunk, d]: what is added to the positions of a chunk, computed. */
void chunk_table(const tower_plan_t *plan, float *out);
/* out[count, d] = the first positions of a chunk of `rows`, [num_rows, bands], behind the
 * convolutions. */
void chunk_run(tower_t *tower, act_t *out, const float *rows, int32_t num_rows, int32_t count);

/* Rows of the table of positions, without that of a class. */
static inline int64_t tower_places(const tower_plan_t *plan) {
  const int64_t side = plan->table_side;
  if (plan->table == TABLE_OF_LINE) return side;
  return plan->table == TABLE_OF_AXES ? 2 * side : side * side;
}

#endif
