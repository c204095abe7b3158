/* prefill_parts.h: what the prefill kernels share: the work of a block, and the copy of its queries
 * to shared memory.
 *
 * Device functions only.
 */
#ifndef INFERD_CUDA_KERNELS_PREFILL_PARTS_H
#define INFERD_CUDA_KERNELS_PREFILL_PARTS_H

#include "cuda/device_code/kv_layout.h"
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/attention.h"

/* The work of one block. Positions count from the start of the request. */
typedef struct prefill_work {
  const int32_t *blocks;
  size_t token;     /* of the first query */
  int32_t queries;  /* of this tile */
  int32_t position; /* of the first query */
  int32_t len;      /* keys of the request */
  int32_t head, kv_head;
} prefill_work_t;

/* Work of tile `index` of the plan and a query head; `rows` queries a tile at most. */
GPU_FN prefill_work_t prefill_work(const gpu_attention_t &args, int index, int head, int rows) {
  const int row = args.plan.tiles[2 * index], skipped = args.plan.tiles[2 * index + 1];
  const int start = args.query_start_loc[row], count = args.query_start_loc[row + 1] - start;
  const int len = args.seq_lens[row], left = count - skipped;
  return {args.block_table + (size_t)row * args.block_table_stride,
          (size_t)start + skipped,
          left < rows ? left : rows,
          len - count + skipped,
          len,
          head,
          head / (args.num_heads / args.kv.num_kv_heads)};
}

/* Returns the position of the first key that a query of the tile sees: with a sliding window it may
 * be above 0. */
GPU_FN int prefill_low(const gpu_attention_t &args, const prefill_work_t &work) {
  const int low = args.window > 0 ? work.position - args.window + 1 : 0;
  return low > 0 ? low : 0;
}

/* Starts the copy of queries [first, first + ROWS) of the tile by the `threads` threads of which
 * this is number `thread`; rows and columns that are not there are zeros. */
template <class T, int D, int ROWS>
GPU_FN void load_queries(const gpu_attention_t &args, const prefill_work_t &work, int first,
                         int thread, int threads, uint8_t *to) {
  const int dim = args.kv.head_dim;
  const size_t width = (size_t)(args.num_heads + 2 * args.kv.num_kv_heads) * dim;
  const T *from = (const T *)args.qkv + work.token * width + (size_t)work.head * dim;
  for (int i = thread; i < ROWS * D / VECTOR; i += threads) {
    const int row = i / (D / VECTOR), chunk = i % (D / VECTOR);
    const bool valid = first + row < work.queries && chunk * VECTOR < dim;
    const T *source = from + (valid ? (first + row) * width + (size_t)chunk * VECTOR : 0);
    cp_async_16(to + kv_chunk_at<D * 2>(ROWS, row, chunk), source, valid ? KV_CHUNK : 0);
  }
}

#endif
