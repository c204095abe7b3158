/* kernels.h: the inner loops of the CPU back end, one table per instruction-set tier.
 *
 * A tier is one file, kernels_<tier>.c, compiled with that tier's flags; device.c chooses the table
 * when a device is opened. Every function computes each output element in one fixed order that does
 * not depend on the number of rows. Two tiers may differ in the last bits. Kernels use only their
 * arguments; any pool worker runs them.
 */
#ifndef INFERD_ENGINE_CPU_ISA_KERNELS_H
#define INFERD_ENGINE_CPU_ISA_KERNELS_H

#include "engine/cpu/isa/quant_layout.h"
#include "engine/device/ops.h"

enum {
  DEPTH_ALIGN = 32,  /* depth of a bf16 panel is padded to this */
  STRIP_KEYS = 256,  /* keys per softmax strip */
  SPLIT_KEYS = 2048, /* keys per split: partial results are merged at these bounds */
  SEGMENT_KEYS = 16, /* lanes of one K vector group */
  SEGMENT_GROUP = 4, /* segments that a kernel may score together */
  SCORE_STRIDE = STRIP_KEYS + SEGMENT_KEYS,
  HEAD_ALIGN = 16, /* head_dim of V and accumulators is padded to this */
  NUM_DTYPES = 3
};

/* out[rows, cols] = x[rows, depth] . panel (+ bias) (+ residual), one panel of a weight.
 * bf16: panel [depth/2][64][2], x staged by `stage`; f16, f32: panel [depth][64], x fp32.
 * Quantised: panel by `layout`, x staged by `quant_stage`, at most 64 rows. */
typedef struct gemm {
  const void *x;
  int64_t ldx; /* elements between rows of x; bytes if the weights are quantised */
  const void *panel;
  const void *next; /* panel that this thread reads next, prefetched; never dereferenced */
  bool ahead; /* a single pass of a few rows prefetches; else the processor does, see probe.c */
  const quant_layout_t *layout; /* quantised weights only */
  int64_t depth;
  int32_t rows, cols; /* cols 1..64 */
  float *out;         /* may alias residual */
  int64_t ldo;
  const float *bias;     /* [cols] or NULL */
  const float *residual; /* [rows, ldo] or NULL */
} gemm_t;

/* 32 rows of depth of an MXFP4 panel. Exponents are 2..252, so that every value is a normal bf16.
 */
typedef struct mxfp4_group {
  uint8_t nibbles[MXFP4_COLS / 2][PANEL_COLS]; /* low nibble: even k; codes as in weight_source.h */
  uint8_t exponent[PANEL_COLS];
} mxfp4_group_t;

/* Keys and values of one strip by segments of `segment_keys` (1..16) consecutive keys. */
typedef struct strip {
  const void *k[STRIP_KEYS]; /* [head_dim][k_stride], 16 lanes readable */
  const void *v[STRIP_KEYS]; /* [segment_keys][head_dim padded] */
  int32_t segment_keys;
  int32_t k_stride;
  int32_t head_dim;
} strip_t;

typedef struct norm_args {
  norm_kind_t kind;
  int32_t width;
  float eps;
  const float *weight, *bias; /* [width] or NULL */
} norm_args_t;

struct attend;
struct conv_run;
struct recur_run;
struct select_run;

typedef struct kernels {
  const char *name;
  bool (*supported)(void);
  size_t staged_size; /* bytes of a staged element: 2 (bf16) or 4 (fp32 holding a bf16 value) */
  /* Rounds in[count] to bf16 and pads with zeros to `padded` elements: input of gemm[BF16]. */
  void (*stage)(void *out, const float *in, int64_t count, int64_t padded);
  void (*gemm[NUM_DTYPES])(const gemm_t *gemm);
  /* The same for quantised weights: `depth` columns as quant_layout.h says; 64-byte aligned. */
  void (*quant_stage)(uint8_t *out, const float *in, int64_t count, int64_t depth);
  int32_t quant_eighths; /* bytes of a staged row, times 8 / depth */
  void (*gemm_quant)(const gemm_t *gemm);
  /* out[count * 16][64][2] bf16 = the values of a panel, ready for gemm[BF16] */
  void (*unpack_mxfp4)(uint16_t *out, const mxfp4_group_t *groups, int64_t count);
  /* out[depth / 2][64][2] bf16 = the same, each product of scale and number rounded once */
  void (*unpack_fp8)(uint16_t *out, const fp8_panel_t *panel);
  /* out[width] = norm(in) (+ residual); out may alias in or residual */
  void (*norm)(float *out, const float *in, const float *residual, const norm_args_t *args);
  /* out[count] = act(in) or act(in) * up; out may alias in */
  void (*activation)(float *out, const float *in, const float *up, activation_t kind,
                     int64_t count);
  /* out[count] = residual + sigmoid(gate) * in; out may alias residual */
  void (*gated_add)(float *out, const float *in, const float *residual, float gate, int64_t count);
  void (*softcap)(float *row, int64_t count, float cap); /* row = cap * tanh(row / cap) */
  /* (a, b) = (a cos - b sin, b cos + a sin), a = row[0..half), b = row[half..2 half) */
  void (*rotate)(float *value, const float *cosine, const float *sine, int32_t half);
  /* scores[rows][SCORE_STRIDE]: q[rows][ldq] . keys of segments [first, last); `first` and the
   * pointers behind `last` fill whole groups of SEGMENT_GROUP */
  void (*scores[NUM_DTYPES])(float *scores, const float *q, int64_t ldq, int32_t rows,
                             const strip_t *strip, int32_t first, int32_t last);
  /* One row of a strip, keys [first, last) visible, first < last: scores become weights
   * exp(s - max); *max and *sum are brought up to date; returns the factor for what was
   * accumulated before. */
  float (*softmax)(float *scores, int32_t first, int32_t last, float cap, float *max, float *sum);
  /* out[rows][ldo] += weights[rows][SCORE_STRIDE] . values of keys [first, last) */
  void (*values[NUM_DTYPES])(float *out, int64_t ldo, const float *weights, int32_t rows,
                             const strip_t *strip, int32_t first, int32_t last);
  /* The same for a pool of latent rows, whose first `dim` elements are the values: keys are lanes.
   * Keys [0, last) in one call: the sum over lanes comes at the end. */
  void (*latent_values[NUM_DTYPES])(float *out, int64_t ldo, const float *weights, int32_t rows,
                                    const strip_t *strip, int32_t last, int32_t dim);
  /* All of the above for a bf16 pool, see attend.h; NULL = the tier has no such entry. */
  void (*attend)(const struct attend *attend);
  /* The same for attention to an encoder's rows, where most tiles are one token: both are there, or
   * neither. Which of them it is follows from the layer alone, so bits do not depend on it. */
  void (*attend_across)(const struct attend *attend);
  /* A K/V pool in 8 bits, see kv8.inc. `kv8_narrow` returns the scale of codes[count]. Elements of
   * kv8_type: out[dims][SEGMENT_KEYS] = codes[dims][stride] times scales[SEGMENT_KEYS], and
   * out[keys][dims] = codes[keys][dims] times scales[keys], dims a multiple of HEAD_ALIGN. */
  dtype_t kv8_type;
  float (*kv8_narrow)(int8_t *codes, const float *in, int32_t count);
  void (*kv8_widen_keys)(void *out, const int8_t *codes, const float *scales, int32_t dims,
                         int64_t stride);
  void (*kv8_widen_values)(void *out, const int8_t *codes, const float *scales, int32_t keys,
                           int32_t dims);
  /* (max, sum, acc[dim]) of a row takes in the same of a later split, dim a multiple of 16 */
  void (*merge)(float *acc, float *max, float *sum, const float *part, float part_max,
                float part_sum, int32_t dim);
  /* out[dim] = acc / sum after a sink logit joined the denominator (-INFINITY = none) */
  void (*finish)(float *out, const float *acc, float max, float sum, float sink, int32_t dim);
  /* Layers with a state, see state.h. */
  void (*conv)(const struct conv_run *run);
  void (*recur)(const struct recur_run *run);
  void (*select)(const struct select_run *run);
  void (*scale)(float *row, float factor, int64_t count);
  void (*add_scaled)(float *out, const float *in, float factor, int64_t count); /* out += f in */
} kernels_t;

/* A table is NULL where its tier was not compiled in. */
extern const kernels_t *const kernels_portable;
extern const kernels_t *const kernels_avx2;
extern const kernels_t *const kernels_avxvnni;
extern const kernels_t *const kernels_avx512;
extern const kernels_t *const kernels_avx512vnni;
extern const kernels_t *const kernels_avx512bf16;
extern const kernels_t *const kernels_amx;
extern const kernels_t *const kernels_neon;
extern const kernels_t *const kernels_neondot;
extern const kernels_t *const kernels_neoni8mm;

/* Returns the tier of a name; of "auto" or NULL the fastest that this machine has. Returns NULL and
 * sets *error (ERR_CONFIGURATION) if the name is unknown or the machine lacks the tier. */
const kernels_t *kernels_find(const char *isa, inferd_error_t *error);

#endif
