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
enum { GPU_NORM_ROWS_MAX = 8 /* of a layer that norms its inputs */ };

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
typedef enum gpu_codes { GPU_CODES_PLAIN, GPU_CODES_4, GPU_CODES_8, GPU_CODES_E4M3 } gpu_codes_t;
typedef enum gpu_scales {
  GPU_SCALES_F32,
  GPU_SCALES_F16,
  GPU_SCALES_TWO_LEVEL, /* f16 for 256 columns, times an int8; minima: f16 times a uint8 */
  GPU_SCALES_EXPONENT   /* byte e: 2^(e - 128); never with minima */
} gpu_scales_t;
enum {
  GPU_PANEL_ROWS = 8,   /* rows that lie together */
  GPU_UNIT_BYTES = 512, /* codes of 64 columns (4 bits: 128) of these rows */
  GPU_SUPER_COLS = 256, /* columns of a super scale */
  GPU_SCALE_GROUP_MIN = 16
};

/* A matrix [rows, cols] that stays quantised: weight = scale * level - min, in fp32 and rounded to
 * the type of the activations. Panels of 8 rows follow each other, panel_bytes each:
 *
 *   codes   [units][8 rows][4 lanes][16 bytes], a unit being 128 columns of 4 bits or 64 of 8. Lane
 *           j has columns 8 j .. 8 j + 7 of each 32 columns of the unit, in order; low nibble first
 *   scales  at scales_at, [groups][8 rows] of: scale, then min if there are minima; two-level: the
 *           factors of both
 *   supers  at supers_at, [cols / 256, up][8 rows] of f16 scale, then f16 min if there are minima
 *
 * Level of a code: the byte `code` of table, of 4 bits; of 8 bits the code; minus offset. Columns
 * beyond cols have the code 0. */
typedef struct gpu_packed {
  gpu_codes_t codes; /* GPU_CODES_PLAIN: not packed, and the rest does not count */
  gpu_scales_t scales;
  int32_t group_shift; /* 2^group_shift columns share a scale; at least GPU_SCALE_GROUP_MIN */
  int32_t has_min;
  int32_t offset;
  uint32_t table[4]; /* 16 bytes */
  int64_t first_row; /* of an expert: row 0 of the product is this row of the matrix */
  uint64_t panel_bytes, scales_at, supers_at;
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
