/* attention.h: the launchers of paged attention: plan, decode, prefill; see kernels.h for the
 * rules.
 *
 * The plan is made on the device from the step's own lengths, once per step and window, so that a
 * captured graph stays right. Engine thread; callable from C.
 */
#ifndef INFERD_CUDA_KERNELS_ATTENTION_H
#define INFERD_CUDA_KERNELS_ATTENTION_H

#include "cuda/kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Work of the decode kernel: keys [first, last) of a request for some of its query tokens. */
typedef struct gpu_decode_item {
  int32_t row, first, last;
  int32_t whole;          /* 1 = all keys of its queries: no partial result */
  int32_t query, queries; /* first of the chunk, and how many, that share a tile */
  int32_t position;       /* of that query */
  int32_t slot;           /* partial results of that query; the next ones follow */
} gpu_decode_item_t;

/* Query tokens of a decode row at most. */
enum { GPU_DECODE_QUERIES_MAX = 16 };

/* The result of gpu_attention_plan in device memory, for the kernels of the same step and window.
 */
typedef struct gpu_plan {
  int32_t *counts;          /* [4]: decode items, prefill tiles, cuts a row at most, 0 */
  gpu_decode_item_t *items; /* [items_max] */
  int32_t *row_items; /* [R][2] first slot of a row, number of cuts; one slot a cut and query */
  int32_t *tiles;     /* [tiles_max][2] row, first query of the tile within its chunk */
  int32_t items_max, tiles_max;
} gpu_plan_t;

typedef struct gpu_attention {
  gpu_kv_t kv;
  gpu_plan_t plan;
  const void *qkv;                /* [T, (Hq + 2 Hk) D] after gpu_rope_store */
  void *out;                      /* [T, Hq D]; rows of no request stay as they are */
  const int32_t *block_table;     /* [R, block_table_stride] */
  const int32_t *seq_lens;        /* [R] */
  const int32_t *query_start_loc; /* [R + 1] */
  const float *sinks;             /* [Hq] extra logit of the denominator, or NULL */
  float *partial;                 /* [items_max, Hq, D] unnormalised outputs */
  float *partial_state;           /* [items_max, Hq, 2] base-2 maximum, sum */
  uint32_t *tickets;              /* [items_max, Hq] zeroes, and zeroes again after a launch */
  int32_t block_table_stride, rows, layer, num_heads;
  int32_t decode_queries; /* rows of so many query tokens at most are decodes, the rest prefill */
  int32_t window;         /* 0 = none; key j visible to p iff p - window < j <= p */
  float scale, softcap;
} gpu_attention_t;

/* Query tokens of a prefill tile. */
int32_t gpu_prefill_tile(int32_t head_dim);
/* Items of a row of `len` keys when it is cut wherever it may be: 8 at 1k, 48 at 8k, 112 at 128k.
 * Host only. */
int32_t gpu_decode_items(int32_t len);
/* Requests with up to decode_queries query tokens become decode items, the others tiles of
 * gpu_prefill_tile tokens. Keys are cut at fixed positions (pieces.h), and the sums do not depend
 * on the cuts, so a row has the same bits in any batch and as a tile. A list that does not fit cuts
 * each row less: items_max of the query tokens of all decodes is enough, each times
 * gpu_decode_items(len) the fastest; tiles_max must be T / tile + R. */
int gpu_attention_plan(const gpu_attention_t *args, gpu_stream_t stream);
/* All requests of up to decode_queries query tokens; grid of `workers` blocks (2 per
 * multiprocessor). */
int gpu_attention_decode(const gpu_attention_t *args, int32_t workers, gpu_stream_t stream);
/* All requests of more query tokens; `tiles` is a bound on their number, at most tiles_max. */
int gpu_attention_prefill(const gpu_attention_t *args, int32_t tiles, gpu_stream_t stream);
/* The same for Hopper, faster. A token's bits are those of any other such chunk, not those of a
 * decode or of gpu_attention_prefill: not for --batch-invariant. scale > 0. */
int gpu_attention_prefill_sm90(const gpu_attention_t *args, int32_t tiles, gpu_stream_t stream);
/* 1 when this device and this cache can have it: sm_90, 16-bit elements, heads of up to 128. Loads
 * the kernel when it is first asked: before READY. */
int gpu_attention_prefill_sm90_fits(const gpu_kv_t *kv);

#ifdef __cplusplus
}
#endif

#endif
