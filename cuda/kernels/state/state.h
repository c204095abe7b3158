/* state.h: the launchers for layers that keep a state per sequence; see kernels.h for the rules and
 * engine/device/state_ops.h for what they compute.
 *
 * A state is read and written by the threads of one row, token after token, so that its bits depend
 * neither on the batch nor on how a sequence is cut into chunks. Engine thread; callable from C.
 */
#ifndef INFERD_CUDA_KERNELS_STATE_STATE_H
#define INFERD_CUDA_KERNELS_STATE_STATE_H

#include "cuda/kernels/inputs.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_CONV_TAPS_MAX = 8, GPU_KEY_DIM_MAX = 256, GPU_STATE_ALIGN = 4 /* numbers */ };

/* The states of one layer, and the rows of the step that have them. */
typedef struct gpu_states {
  float *base;                    /* that of slot s begins at base + s * stride */
  int64_t stride;                 /* a multiple of GPU_STATE_ALIGN */
  const int32_t *slots;           /* [R] 0 = none: begins with zeros and is not stored */
  const int32_t *query_start_loc; /* [R + 1] */
  const int32_t *seq_lens;        /* [R] with the tokens of the step */
  const int32_t *first_save;      /* [R + 1] saves of row r: [first_save[r], first_save[r + 1]) */
  const gpu_save_t *saves;
  int32_t reqs, tokens;
  int decodes; /* 1 = every row has one token at most */
} gpu_states_t;

typedef struct gpu_conv {
  gpu_states_t states; /* of a layer: the last taps - 1 inputs [taps - 1, channels] */
  const void *in;      /* [T, in_width] */
  void *out;           /* [T, out_width]; may be `in` with the same columns */
  int32_t channels, taps;
  int32_t in_width, in_column, before, after; /* as conv_t */
  int32_t out_width, out_column;
  int silu;
  const float *weight; /* [taps, channels] */
  const float *bias;   /* [channels] or NULL */
  float *borders;      /* [gpu_conv_borders(), taps - 1, channels] scratch */
} gpu_conv_t;
int gpu_conv(dtype_t dtype, const gpu_conv_t *args, gpu_stream_t stream);
int32_t gpu_conv_borders(void);

/* A recurrence, as recurrence_t. S of a head lies as the threads of recur.cu read it: value columns
 * padded to a multiple of 32, key rows to 64, 128 or 256, with zeros in the padding. */
typedef struct gpu_recur {
  gpu_states_t states; /* of a layer, at S of the first head: a multiple of 16 bytes */
  const void *in;      /* [T, width]; only read */
  void *out;           /* [T, heads * value_dim] */
  int32_t width, q, k, v, rate, step;
  int32_t heads, groups, key_dim, value_dim;
  int tiled;    /* 1 = head h is of group h mod groups, else neighbours share a group */
  int corrects; /* 1 = gated DeltaNet, else Mamba-2 */
  float step_min, step_max;
  float rate_most;                  /* of a DeltaNet: a rate is so often a sigmoid */
  const float *decay, *bias, *skip; /* [heads]; skip may be NULL */
} gpu_recur_t;
int gpu_recur(dtype_t dtype, const gpu_recur_t *args, gpu_stream_t stream);
/* Numbers of S of all heads; -1 if key_dim is above GPU_KEY_DIM_MAX. */
int64_t gpu_recur_values(int32_t heads, int32_t key_dim, int32_t value_dim);

/* As gating_t. */
typedef struct gpu_gate {
  const void *in, *gate; /* [rows, width], [rows, gate_width] */
  void *out;             /* [rows, width]; may be `in` */
  int32_t width, gate_width, gate_column;
  int32_t gate_repeats; /* columns that share one of the gate: 1, or, without a norm, a divisor */
  int sigmoid, gate_first;
  int32_t group; /* divides width; 0 = no norm */
  float eps;
  const float *weight; /* [width], or [group] if it repeats */
  int weight_repeats;
} gpu_gate_t;
int gpu_gate(dtype_t dtype, const gpu_gate_t *args, int32_t rows, gpu_stream_t stream);

/* values[rows, width] *= factors[width] */
int gpu_scale_columns(dtype_t dtype, void *values, const float *factors, int32_t width,
                      int32_t rows, gpu_stream_t stream);

/* Copies whole slots, `values` numbers each, one copy after another. */
typedef struct gpu_state_copy {
  int32_t src, dst;
} gpu_state_copy_t;
int gpu_state_copies(float *slots, int64_t values, const gpu_state_copy_t *copies,
                     int32_t num_copies, gpu_stream_t stream);

#ifdef __cplusplus
}
#endif

#endif
