/* tower_ops.h: the part of the back end interface for towers, the encoders that see images.
 *
 * A tower has no cache: its rows are the patches of images, and a row sees all rows of its segment,
 * an image or a window of one, and no other. A back end has all functions or none (ops_t.tower is
 * NULL). Towers run between two steps; they also use `linear`, `norm`, `activation`, `write_rows`
 * and `read_rows`. The promises are those of ops.h: the bits of a row depend on its segment alone,
 * and not on where it stands among the rows. Symbols: H heads, D head_dim.
 */
#ifndef INFERD_ENGINE_DEVICE_TOWER_OPS_H
#define INFERD_ENGINE_DEVICE_TOWER_OPS_H

#include "engine/base/error.h"
#include "engine/device/op_types.h"

struct device;

typedef struct tower_attention {
  int32_t num_heads, head_dim; /* K and V have as many heads */
  float scale;                 /* factor of q.k before the softmax */
  /* Of the angles by which row r is rotated: [rows, D / 2], host memory; NULL = no rotation. Pair
   * (i, i + D / 2) turns by angle i; with rope_parts 2 each half of a head by itself: (i, i + D /
   * 4) by angle i, and (D / 2 + i, D / 2 + i + D / 4) by angle D / 4 + i. */
  const float *cosine, *sine;
  int32_t rope_parts;
  /* RMSNorms over each head of q and of k before the rotation, [D], NULL = none; with these also
   * one of v, without weights. */
  const vector_t *q_norm, *k_norm;
  float norm_eps;
  /* [H, 2 reach + 1] added to the scores of key j of a row by clamp(j - row, -reach, reach), from
   * -reach on; NULL = none, and so in back ends without cross_ops.h. */
  const vector_t *distances;
  int32_t reach;
  bool rounds; /* q, k, v and the weights of the softmax may become bf16 before their products */
  /* What is computed: tiles of rows, as the back end cuts a segment, that begin in [first_row,
   * end_row). The calls of an attention go through all rows in order; the first one, of first_row
   * 0, norms and rotates. */
  int32_t first_row, end_row;
} tower_attention_t;

/* Columns of rows: [first, first + width) of each row of `stride` values. */
typedef struct tower_columns {
  int32_t first, width, stride;
} tower_columns_t;

/* Rows [starts[i], starts[i + 1]) are segment i; starts[0] is 0. Host memory. */
typedef struct tower_segments {
  const int32_t *starts; /* [count + 1] */
  int32_t count;
} tower_segments_t;

typedef struct tower_ops {
  /* Takes the workspace for heads of so many values. After `prepare` of ops_t. */
  int (*prepare)(struct device *device, int32_t head_dim_max, inferd_error_t *error);
  /* The activation without its first `values` values. */
  act_t *(*rows)(act_t *act, int64_t values);
  /* out[rows, H D] = attention of qkv[rows, 3 H D], columns q|k|v, which are normed and rotated in
   * place.
   */
  void (*attend)(struct device *device, act_t *out, act_t *qkv, const tower_attention_t *attention,
                 const tower_segments_t *segments);
  /* out[rows, its columns] = in[rows, width], but at least `least` and at most `most` (a NaN stays
   * one). */
  void (*clip)(struct device *device, act_t *out, const tower_columns_t *columns, const act_t *in,
               float least, float most, int32_t rows);
} tower_ops_t;

#endif
