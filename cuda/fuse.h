/* fuse.h: runs neighbouring operations as one kernel: norm, linear layer, gated activation.
 *
 * With few rows, the start and end of a kernel cost as much as its work. gpu_skinny can norm its
 * inputs and activate its outputs with the same bits as separate kernels. Then the normed rows, and
 * the sums before the activation, are never written, so no other operation may read them. The first
 * warm-up run, which runs every operation by itself, records which operation reads what. A forward
 * makes the same calls in the same order in every step, so a call is identified by its number.
 * Engine thread; launches only.
 */
#ifndef INFERD_CUDA_FUSE_H
#define INFERD_CUDA_FUSE_H

#include "cuda/kernels/kernels.h"
#include "engine/device/ops.h"

enum { FUSE_CALLS_MAX = 4096, FUSE_WATCHES_MAX = 8 };
typedef enum fuse_kind { FUSE_NORM, FUSE_LAYER, FUSE_KINDS } fuse_kind_t;

/* Rows whose readers are counted in the first warm-up run. */
typedef struct fuse_watch {
  const act_t *rows; /* NULL = free */
  fuse_kind_t kind;
  int32_t call;
  int32_t partners, others; /* reads by the op it may be fused with, and by any other op */
} fuse_watch_t;

typedef struct fusion {
  bool is_alone[FUSE_KINDS][FUSE_CALLS_MAX]; /* learnt: only an op that can be fused reads it */
  int32_t num_calls[FUSE_KINDS];             /* of this step so far */
  fuse_watch_t watches[FUSE_WATCHES_MAX];
  /* the rows `normed` are not written yet; they stand for the norm of `source` */
  const act_t *normed, *source; /* NULL = none */
  const norm_t *norm;
  int32_t norm_rows;
  /* a layer that has not been launched */
  bool has_layer;
  gpu_skinny_t layer;
  const void *narrow_bias;
  /* rows that were not computed and can no longer be */
  const act_t *lost_norm, *lost_layer;
} fusion_t;

void fuse_reset(device_t *device); /* at the begin of a step */
/* Call before an operation that reads or overwrites `rows`; NULL = none. Reads come before writes.
 */
void fuse_read(device_t *device, const act_t *rows);
void fuse_write(device_t *device, const act_t *rows);
/* Returns true if the norm was delayed; false: the caller must launch it. */
bool fuse_norm(device_t *device, act_t *out, const act_t *in, const act_t *residual,
               const norm_t *norm, int32_t rows);
void fuse_layer(device_t *device, const gpu_skinny_t *layer, const void *narrow_bias);
/* Returns true if the activation was launched with its layer; false: the caller must launch it. */
bool fuse_activation(device_t *device, act_t *out, const act_t *in, activation_t kind,
                     int32_t width, int32_t rows);

#endif
