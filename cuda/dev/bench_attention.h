/* bench_attention.h: a batch with a paged cache of random keys and values, for gpu_bench. */
#ifndef INFERD_CUDA_DEV_BENCH_ATTENTION_H
#define INFERD_CUDA_DEV_BENCH_ATTENTION_H

#include "cuda/dev/bench.h"
#include "cuda/kernels/attention.h"

struct shape_t {
  int heads, kv_heads, dim;
};

/* `batch` requests of `queries` new tokens each; a request has `len` keys. The same batch exists in
 * several copies whose block tables name different blocks, so that each repetition reads memory
 * that is not in the cache yet. */
struct attention_t {
  memory_t memory;
  gpu_attention_t args = {};
  std::vector<const int32_t *> tables;
  int tiles;
  double kv_bytes;
  attention_t(const shape_t &shape, int batch, int queries, int len, bool fp8,
              bool is_ordered = false);
  int copies() const { return (int)tables.size(); }
  const gpu_attention_t *turn(int index) {
    args.block_table = tables[index];
    return &args;
  }
};

#endif
