/* state.h: the inner loops of layers with a state: the entries `conv`, `recur` and `select` of
 * kernels_t.
 *
 * All go through the tokens of one sequence in order, and keep what they carry from token to token
 * in registers or in the first cache. Called by pool workers.
 */
#ifndef INFERD_ENGINE_CPU_ISA_STATE_H
#define INFERD_ENGINE_CPU_ISA_STATE_H

#include "engine/cpu/isa/kernels.h"

enum { STATE_COLS = 64 }; /* columns of a state that lie together */

/* state_ops.h says what is computed. Channels [0, count) of what the pointers point at. */
typedef struct conv_run {
  const float *in, *before, *after; /* of the first token; before and after may be NULL */
  float *out;
  int64_t in_stride, out_stride; /* from token to token */
  float *state;                  /* [taps - 1][channels] */
  const float *weight;           /* [taps][channels] */
  const float *bias;             /* [channels] or NULL */
  int64_t channels;
  int32_t count, taps, num_tokens;
  bool fresh; /* the state is zeros, whatever is stored */
  bool silu;
} conv_run_t;

/* One head. The state is [blocks of STATE_COLS columns][key_dim][columns of the block], the columns
 * padded to a multiple of HEAD_ALIGN. */
typedef struct recur_run {
  const float *q, *k, *v; /* of the first token; q and k [key_dim], v [value_dim] */
  float *out;
  int64_t stride, out_stride; /* from token to token */
  const float *decay, *rate;  /* of the first token: S = decay S + k (rate ...)^T */
  int64_t factor_stride;
  float *state;
  float skip;
  int32_t key_dim, value_dim, num_tokens;
  bool fresh;
  bool corrects; /* rate (v - S^T k), else rate v */
} recur_run_t;

/* Channels [0, count) of what the pointers to rows of channels point at. */
typedef struct select_run {
  const float *x, *steps, *keys, *queries; /* of the first token; keys and queries [rows] */
  float *out;
  int64_t stride, rows_stride; /* from token to token: of x, steps and out; of keys and queries */
  float *state;                /* [rows][channels] */
  const float *decay;          /* [rows][channels] */
  const float *bias, *skip;    /* [channels] */
  int64_t channels;
  int32_t count, rows, num_tokens;
  bool fresh; /* the state is zeros, whatever is stored */
} select_run_t;

#endif
