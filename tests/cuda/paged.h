/* paged.h: a random paged KV cache for the tests, with its own idea of the layout.
 *
 * Rows that no request owns are NaN, so that any stray read shows; block 0 is zero. The layout is
 * written here a second time, from the description in cuda/kernels.h.
 */
#ifndef INFERD_TESTS_CUDA_PAGED_H
#define INFERD_TESTS_CUDA_PAGED_H

#include "tests/cuda/check.h"

struct paged_shape {
  int num_heads, num_kv_heads, head_dim, block_size;
  int num_layers = 2, layer = 1;
  int padded() const { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }
  size_t block_elements() const { return (size_t)2 * num_kv_heads * padded() * block_size; }
  /* Element d of a slot: [layer][block][K|V][head][part][slot][64], chunks permuted by slot. */
  size_t at(int num_blocks, int in_layer, int block, int value, int head, int slot, int d) const {
    size_t index = (size_t)in_layer * num_blocks + block;
    index = index * 2 + value;
    index = index * num_kv_heads + head;
    index = index * (padded() / 64) + d / 64;
    index = index * block_size + slot;
    return index * 64 + (size_t)(((d % 64) / 8) ^ (slot % 8)) * 8 + d % 8;
  }
};

/* Requests with seq_lens keys, the last query_lens of them new. */
template <class T> struct paged_problem {
  paged_shape shape;
  std::vector<int32_t> seq_lens, query_lens, query_start_loc, block_table;
  std::vector<T> cache, qkv;
  int num_blocks, stride, tokens;

  paged_problem(const paged_shape &s, const std::vector<int32_t> &lens,
                const std::vector<int32_t> &queries, float query_size)
      : shape(s), seq_lens(lens), query_lens(queries), query_start_loc{0} {
    stride = 1, num_blocks = 3;
    for (int32_t len : lens) {
      const int blocks = (len + s.block_size - 1) / s.block_size;
      stride = std::max(stride, blocks + 1);
      num_blocks += blocks;
    }
    for (int32_t count : queries) query_start_loc.push_back(query_start_loc.back() + count);
    tokens = query_start_loc.back();
    qkv = random_values<T>((size_t)tokens * width(), query_size);
    fill_table();
    fill_cache();
  }

  int width() const { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }
  int block_of(int row, int key) const {
    return block_table[(size_t)row * stride + key / shape.block_size];
  }
  double element(int row, int key, int value, int head, int d) const {
    return (double)to_float(cache[shape.at(num_blocks, shape.layer, block_of(row, key), value, head,
                                           key % shape.block_size, d)]);
  }

  void fill_table() {
    std::vector<int32_t> ids(num_blocks - 1);
    for (int i = 0; i < num_blocks - 1; i++) ids[i] = i + 1;
    for (int i = num_blocks - 2; i > 0; i--) std::swap(ids[i], ids[random_below(i + 1)]);
    block_table.assign(seq_lens.size() * stride, 0);
    size_t used = 0;
    for (size_t r = 0; r < seq_lens.size(); r++)
      for (int i = 0; i * shape.block_size < seq_lens[r]; i++)
        block_table[r * stride + i] = ids[used++];
  }

  void fill_cache() {
    const size_t layer_elements = shape.block_elements() * num_blocks;
    cache.assign(layer_elements * shape.num_layers, from_float<T>(NAN));
    for (int l = 0; l < shape.num_layers; l++)
      std::fill_n(cache.begin() + l * layer_elements, shape.block_elements(), from_float<T>(0));
    for (size_t r = 0; r < seq_lens.size(); r++)
      for (int key = 0; key < seq_lens[r]; key++)
        for (int value = 0; value < 2; value++)
          for (int h = 0; h < shape.num_kv_heads; h++)
            for (int d = 0; d < shape.padded(); d++)
              cache[shape.at(num_blocks, shape.layer, block_of((int)r, key), value, h,
                             key % shape.block_size, d)] =
                  from_float<T>(d < shape.head_dim ? random_float(1) : 0);
  }

  /* Blocks that a sliding window has left behind go back to the pool: the table then names the
   * null block, and somebody else's bytes are in the old one. */
  void drop_blocks_before(int window) {
    for (size_t r = 0; r < seq_lens.size(); r++) {
      const int first = seq_lens[r] - query_lens[r] - window + 1;
      for (int i = 0; (i + 1) * shape.block_size <= first; i++) block_table[r * stride + i] = 0;
    }
  }

  gpu_kv_t kv(T *base) const {
    return {base,           shape.num_layers, num_blocks, shape.block_size, shape.num_kv_heads,
            shape.head_dim, dtype_of<T>()};
  }
};

#endif
