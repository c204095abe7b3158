/* kernel_types.h: the types that launchers and the code of kernels share: streams, the KV cache,
 * packed weights.
 *
 * Plain data, callable from C without a CUDA header.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_KERNEL_TYPES_H
#define INFERD_CUDA_DEVICE_CODE_KERNEL_TYPES_H

#include "engine/device/weight_source.h"

#include <stdint.h>

typedef struct CUstream_st *gpu_stream_t; /* a cudaStream_t */

enum { GPU_HEAD_DIM_MAX = 256, GPU_ROW_ALIGN = 8, GPU_SKINNY_ROWS_MAX = 32 };
enum {
  GPU_NORM_ROWS_MAX = 8,         /* of a layer that norms its inputs */
  GPU_PACKED_NORM_VALUES = 16384 /* inputs of such a layer whose weights are packed */
};

/* The paged KV cache: [layer][block][K|V][kv_head][part][slot][row of 128 bytes]. A head of D is
 * padded to 64, 128 or 256 elements; a row holds 64 of them, or 128 when they are stored as e4m3
 * (D <= 64: rows of 64 bytes). A row's 16-byte chunks stand in the order chunk ^ (slot & 7), in
 * rows of 64 bytes chunk ^ (slot >> 1 & 3), so that a copy to shared memory has no bank conflicts.
 * Padding elements are zero in every slot that was written. */
typedef struct gpu_kv {
  void *base;
  int32_t num_layers, num_blocks;
  int32_t block_size; /* 16, 32 or 64 slots */
  int32_t num_kv_heads, head_dim;
  dtype_t dtype;       /* of activations, and of the cache unless fp8 */
  int32_t fp8;         /* 1 = stored as e4m3, value / scale; computed in dtype */
  const float *scales; /* [num_layers][K|V][num_kv_heads] of the stored values; NULL = ones */
} gpu_kv_t;

/* Codes and scales of a packed matrix. */
typedef enum gpu_codes {
  GPU_CODES_PLAIN,
  GPU_CODES_4,
  GPU_CODES_8,
  GPU_CODES_E4M3,
  GPU_CODES_TABLE, /* 4 bits whose levels are no sequence */
  GPU_CODES_E2M1   /* 4 bits: a sign, and a float of two bits of exponent and one of mantissa */
} gpu_codes_t;
typedef enum gpu_scales {
  GPU_SCALES_F32,
  GPU_SCALES_F16,
  GPU_SCALES_TWO_LEVEL, /* f16 for 256 columns, times an int8; minima: f16 times a uint8 */
  GPU_SCALES_EXPONENT,  /* byte e: 2^(e - 128); never with minima */
  GPU_SCALES_F32_WIDE,  /* for groups of at least a unit */
  GPU_SCALES_F16_ZERO   /* for such groups of 4 bits: f16, and the number of level 0 as f16 */
} gpu_scales_t;
/* How a code becomes a weight, each with the same bits: the shortest that a matrix allows. `number`
 * is a float with the code among its bits: level + zero. */
typedef enum gpu_unpack {
  GPU_UNPACK_STEPS,   /* level = number - zero, times scale, minus min: all rounded */
  GPU_UNPACK_PRODUCT, /* zero * scale and level * scale are exact: number * scale - zero * scale */
  GPU_UNPACK_FUSED    /* zero * scale + min is exact as well: one multiply-add, minima included */
} gpu_unpack_t;
enum {
  GPU_PANEL_ROWS = 8,    /* rows that lie together */
  GPU_UNIT_COLS = 128,   /* columns that lie together */
  GPU_BLOCK_BYTES = 512, /* codes of a panel: 64 columns of 8 bits, or 128 of 4 */
  GPU_SCALE_GROUP_MIN = 16
};

/* A matrix [rows, cols] that stays quantised: weight = scale * level - min, in fp32 and rounded to
 * the type of the activations. Panels of 8 rows follow each other, panel_bytes each: units of 128
 * columns, unit_bytes each, so that one address serves all that a lane wants of them:
 *
 *   codes   [1 or 2 blocks][8 rows][4 lanes][16 bytes], a block being 128 columns of 4 bits or 64
 *           of 8. Lane j has columns 8 j .. 8 j + 7 of each 32 columns of the block, in order; low
 *           nibble first. E2M1: even columns in the low half of a word of eight, odd in the high
 *   scales  [8 rows][halves][slots] of: scale, then min if there are minima; two-level: the factors
 *           of both. Groups of 16 columns: 2 halves of 4 slots, a lane reads the half j / 2; of 32:
 *           4 slots; of 64: 2; of more: 1, the same in each unit of the group
 *   supers  at supers_at of the unit, [8 rows] of f16 scale, then f16 min if there are minima
 *
 * Number of a code: 2^7 + code, of 4 bits; 2^15 + code, of 8; with a table 2^15 + its byte `code`.
 * Of E2M1 twice its value, with exponents as scales alone.
 * Columns beyond cols have the code and the scale 0. */
typedef struct gpu_packed {
  gpu_codes_t codes; /* GPU_CODES_PLAIN: not packed, and the rest does not count */
  gpu_scales_t scales;
  gpu_unpack_t unpack;
  int32_t group_shift; /* 2^group_shift columns share a scale; at least GPU_SCALE_GROUP_MIN */
  int32_t has_min;
  float zero;        /* number of level 0 */
  uint32_t table[4]; /* 16 bytes */
  int64_t first_row; /* of an expert: row 0 of the product is this row of the matrix */
  uint32_t unit_bytes, supers_at;
  uint64_t panel_bytes;
} gpu_packed_t;

/* Values and order as activation_t of engine/device/ops.h. */
typedef enum gpu_activation {
  GPU_RELU,
  GPU_RELU2,
  GPU_GELU,
  GPU_GELU_TANH,
  GPU_SILU_MUL,
  GPU_GELU_TANH_MUL,
  GPU_CLAMPED_SWIGLU
} gpu_activation_t;

#endif
