/* towers.h: the encoders that make rows of a text model's width of the patches of images, or of the
 * positions of sounds.
 *
 * config.json becomes a plan (plain data, constant afterwards; any thread), plan and safetensors
 * files become a tower on a device. Families are rows of data (family.h); one forward of the
 * operations of ops.h and tower_ops.h serves them (tower.c). Patches come and rows leave in the
 * order of the reference, transformers. Engine thread only, but for tower_plan_read and what needs
 * a plan alone. Nothing is allocated behind tower_prepare.
 * Symbols: m side of a block of patches that becomes one row, d width inside, h of the text model.
 *
 * A sound is an image of one line. Its patches are the positions that two convolutions make of its
 * spectrogram, each of every second row and those beside it, and m of them become a row; what is
 * left behind the last row is seen, and becomes none. Towers of chunks cut the spectrogram into
 * such of 100 rows, each of which becomes 13 positions by itself; those of several chunks see each
 * other.
 */
#ifndef INFERD_ENGINE_MODEL_TOWERS_TOWERS_H
#define INFERD_ENGINE_MODEL_TOWERS_TOWERS_H

#include "engine/base/json.h"
#include "engine/device/ops.h"

enum {
  TOWER_LAYERS_MAX = 256,
  TOWER_DEEP_MAX = 16,
  TOWER_WIDTH_MAX = 65536, /* d, f, h */
  TOWER_SIDE_MAX = 16384,
  TOWER_RUNS_MAX = 8,
  TOWER_STRIDE = 2,       /* rows of a spectrogram from a position to the next */
  TOWER_SPAN = 5,         /* those that a position is made of; the third is its own */
  TOWER_CHUNK_ROWS = 100, /* of a chunk */
  TOWER_CHUNK_STRIDE = 8  /* of each of its positions; the last one has fewer */
};

typedef struct tower tower_t;

/* How the square table of learned positions is read at a patch. */
typedef enum tower_table {
  TABLE_RESAMPLED, /* as a picture of the size of the image, bilinear */
  TABLE_OF_IMAGE,  /* an image has as many patches a side as the table, and no other number */
  TABLE_OF_PARTS,  /* the place that is the same part of a side, never between two */
  TABLE_OF_AXES,   /* one of columns and one of rows, whose places are added up */
  TABLE_OF_LINE    /* of a sound: by its positions */
} tower_table_t;

typedef struct tower_plan {
  const struct tower_family *family; /* NULL = the model has no tower that is known here */
  int32_t hidden, num_layers, num_heads, mlp_width; /* d, ... */
  int32_t spare_layers;                             /* of the files behind those, which go unread */
  int32_t bands;                                    /* of a spectrogram; 0 = it sees images */
  /* Positions of a chunk, which three convolutions over time and frequency with `channels` channels
   * make of its rows; 0 = no chunks. `stretch` positions see each other then. */
  int32_t chunk, channels, stretch;
  int32_t patch_columns;   /* numbers of a patch: its row of pixels; rows of bands, TOWER_SPAN or
                            * TOWER_CHUNK_STRIDE of them */
  bool raster;             /* patches come row by row; else block by block, and so within a block */
  bool by_pixel;           /* numbers of a patch: (y, x, colour), else (colour, y, x) */
  int32_t merge, out_size; /* m, h */
  int32_t merge_width;     /* of the MLP that makes the rows; 0 = it is one matrix */
  uint64_t unbiased;       /* bit 1 << tower_role_t: no bias; norms of NORM_RMS have none */
  float norm_eps, merge_eps;
  int32_t table_side; /* 0 = no learned positions */
  tower_table_t table;
  double theta;     /* of the rotation by row and column, 0 = none */
  bool rope_turns;  /* of its frequencies every second one is of columns; else they have the same */
  bool rope_halves; /* each half of a head turns by itself, the first one by columns */
  bool clips; /* what the matrices of layers read and make has bounds, which are in the files */
  bool standardizes; /* means of blocks, by numbers in the files */
  /* Side of a window in blocks, 0 = a patch sees all of its image; so it does in full layers. */
  int32_t window;
  bool full[TOWER_LAYERS_MAX];
  activation_t activation;
  int32_t num_deep; /* deepstack: rows for the first layers of the text model, taken behind these */
  int32_t deep_layers[TOWER_DEEP_MAX]; /* layers, ascending */
} tower_plan_t;

/* The patches of an image, rows and columns of them: multiples of m, 1..TOWER_SIDE_MAX. Of a sound
 * one row, where there is a table of 1..table_side; of several in a run all but the last are
 * multiples of m. `rows` of a sound whose only chunk has so many, and ends there; else 0. */
typedef struct tower_grid {
  int32_t height, width, rows;
} tower_grid_t;

/* What has audio_config and text_config of a config.json: all of it, or what some of Qwen have
 * inside. */
const json_t *tower_config_around(const json_t *root);
/* Reads the tower of DIR/config.json, or of a mmproj file (mmproj.h). A model without images and
 * sounds, or with a tower of another family: 0 and out->family NULL. ERR_MODEL_MALFORMED with key
 * and value, and what is supported. */
int tower_plan_read(const char *path, tower_plan_t *out, inferd_error_t *error);
/* Positions that three convolutions, each of every second one, make of so many rows of a chunk, or
 * of as many frequencies. */
static inline int32_t tower_chunk_positions(int32_t rows) {
  return (rows + 7) / 8;
}
/* Patches of a block, which becomes a row. */
static inline int32_t tower_block(const tower_plan_t *plan) {
  return plan->bands > 0 ? plan->merge : plan->merge * plan->merge;
}
/* Rows that an image becomes. */
int32_t tower_num_rows(const tower_plan_t *plan, tower_grid_t grid);

/* Reads the tower's tensors in the safetensors files of `path`, or in the mmproj file, into
 * `device`, matrices as `dtype`. ERR_CONFIGURATION when the back end has no towers;
 * ERR_MODEL_MALFORMED names the tensor, also one that the family does not know. Before `prepare` of
 * the device. */
int tower_load(const ops_t *ops, device_t *device, const char *path, const tower_plan_t *plan,
               dtype_t dtype, tower_t **out, inferd_error_t *error);
/* Of names, shapes and a sample of the data. */
uint64_t tower_hash(const tower_t *tower);
/* [h]: what stands at the end of a line of patches in families where some token does (see
 * vision_layout_t.packed), else NULL. */
const float *tower_line(const tower_t *tower);
/* Takes the buffers of runs, [num_runs], each of images of so many patches together, whole blocks
 * unless they are of sounds. After
 * `prepare` of the device. */
int tower_prepare(tower_t *tower, const int32_t *patches_max, int32_t num_runs,
                  inferd_error_t *error);
void tower_free(tower_t *tower); /* NULL is allowed; device memory goes with the device */

/* The sizes that a plan of memory and of time needs: multiplications of an image; parameters of
 * matrices; bytes that tower_prepare takes for a run, and, with the tables that are kept on the
 * host, for all runs together. */
int64_t tower_work(const tower_plan_t *plan, tower_grid_t grid);
int64_t tower_num_weights(const tower_plan_t *plan);
size_t tower_run_bytes(const tower_plan_t *plan, int32_t patches_max);
size_t tower_shared_bytes(const tower_plan_t *plan);

/* Writes the pixels of patches [first, first + count) of the images of a run, one behind the other,
 * [count, patch_columns]. */
typedef void tower_pixels_t(void *context, int32_t first, int32_t count, float *out);

/* Takes row `row`, [h]: with plane 0 what takes the place of its embedding, else what is added
 * behind layer plane - 1 of the text model. Rows of a plane come once each, in one order, whatever
 * the parts. */
typedef void tower_write_t(void *context, int32_t row, int32_t plane, const float *values);

/* Which run the functions below mean; the first one until it is called. */
void tower_choose(tower_t *tower, int32_t run);
/* A run, between steps: images -> rows, `context` is that of `read` and of `write`. tower_begin
 * starts one, in place of one that is not complete. All pointers are used until it is. The bits of
 * an image's rows do not depend on the others, on other runs, nor on the parts in which they are
 * made. */
void tower_begin(tower_t *tower, const tower_grid_t *grids, int32_t num_images,
                 tower_pixels_t *read, tower_write_t *write, void *context);
/* Does about so many multiplications of it, some at least. Returns whether it is complete. */
bool tower_advance(tower_t *tower, int64_t work);
int64_t tower_work_done(const tower_t *tower); /* multiplications, since it began */

#endif
