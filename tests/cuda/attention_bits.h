/* attention_bits.h: a problem computed whole, and its tokens in other batches, bit for bit. */
#ifndef INFERD_TESTS_CUDA_ATTENTION_BITS_H
#define INFERD_TESTS_CUDA_ATTENTION_BITS_H

#include "tests/cuda/attention_rig.h"

/* Tokens [first, first + count) of a request of the problem: one row of a batch. */
struct segment {
  int row, first, count;
};
typedef std::vector<segment> segments_t;

/* The batch of some segments of a problem whose requests have all their tokens as queries. */
template <class T> paged_problem<T> batch_of(const paged_problem<T> &p, segments_t parts) {
  paged_problem<T> batch = p;
  batch.seq_lens.clear(), batch.query_lens.clear(), batch.qkv.clear(), batch.block_table.clear();
  batch.query_start_loc = {0};
  for (const segment &s : parts) {
    batch.seq_lens.push_back(s.first + s.count);
    batch.query_lens.push_back(s.count);
    batch.query_start_loc.push_back(batch.query_start_loc.back() + s.count);
    const auto qkv = p.qkv.begin() + (size_t)(p.query_start_loc[s.row] + s.first) * p.width();
    batch.qkv.insert(batch.qkv.end(), qkv, qkv + (size_t)s.count * p.width());
    const auto table = p.block_table.begin() + (size_t)s.row * p.stride;
    batch.block_table.insert(batch.block_table.end(), table, table + p.stride);
  }
  batch.tokens = batch.query_start_loc.back();
  return batch;
}

template <class T> struct bits_case {
  paged_problem<T> p;
  attention_options o;
  std::vector<float> sinks;
  std::vector<T> whole;

  bits_case(const paged_shape &shape, const lens_t &lens, const attention_options &options)
      : p(shape, lens, lens, options.query_size), o(options),
        sinks(random_values<float>(shape.num_heads, 3)) {
    attention_device<T> device(p, o, sinks);
    device.run(o);
    whole = device.out.get();
  }
  size_t row_width() const { return (size_t)p.shape.num_heads * p.shape.head_dim; }

  /* Rows of up to `decode_queries` tokens are decodes; 0: any number. */
  void check(const std::string &what, const segments_t &parts, int items_max = 0,
             int decode_queries = 0) {
    attention_options mine = o;
    mine.items_max = items_max, mine.workers = 1 + random_below(7);
    mine.decode_queries = decode_queries > 0 ? decode_queries
                          : o.hopper         ? 1 /* decode has other bits than its chunks */
                                             : 1 + random_below(GPU_DECODE_QUERIES_MAX);
    const paged_problem<T> batch = batch_of(p, parts);
    attention_device<T> device(batch, mine, sinks);
    device.run(mine);
    const std::vector<T> got = device.out.get();
    for (size_t i = 0; i < parts.size(); i++) {
      const size_t at = (size_t)batch.query_start_loc[i] * row_width();
      const size_t in_whole =
          (size_t)(p.query_start_loc[parts[i].row] + parts[i].first) * row_width();
      const size_t bytes = parts[i].count * row_width() * sizeof(T);
      check_that(memcmp(&got[at], &whole[in_whole], bytes) == 0,
                 what + ": tokens from " + std::to_string(parts[i].first) + " of request " +
                     std::to_string(parts[i].row) + ", head size " +
                     std::to_string(p.shape.head_dim));
    }
  }
};

#endif
