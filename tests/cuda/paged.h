/* paged.h: a random paged KV cache for the tests, with its own idea of the layout.
 *
 * Rows that no request owns are NaN, so that any stray read shows; block 0 is zero. The layout is
 * written here a second time, from the description in cuda/kernels/kernels.h.
 */
#ifndef INFERD_TESTS_CUDA_PAGED_H
#define INFERD_TESTS_CUDA_PAGED_H

#include "tests/cuda/check.h"

struct paged_shape {
  int num_heads, num_kv_heads, head_dim, block_size;
  bool fp8 = false;
  int num_layers = 2, layer = 1;
  int padded() const { return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256; }
  int element_bytes() const { return fp8 ? 1 : 2; }
  size_t block_bytes() const {
    return (size_t)2 * num_kv_heads * padded() * block_size * element_bytes();
  }
  /* Byte of element d of a slot: [layer][block][K|V][head][part][slot][row], chunks permuted. */
  size_t at(int num_blocks, int in_layer, int block, int value, int head, int slot, int d) const {
    const int row = std::min(128, padded() * element_bytes()), in_row = row / element_bytes();
    const int chunk = d % in_row * element_bytes() / 16;
    const int mixed = row == 128 ? chunk ^ (slot % 8) : chunk ^ (slot / 2 % 4);
    size_t index = (size_t)in_layer * num_blocks + block;
    index = index * 2 + value;
    index = index * num_kv_heads + head;
    index = index * (padded() / in_row) + d / in_row;
    index = index * block_size + slot;
    return index * row + (size_t)mixed * 16 + d * element_bytes() % 16;
  }
};

/* An element of a cache as it is stored, and what it means. */
template <class T> double stored_value(const paged_shape &s, const uint8_t *at) {
  T value;
  if (s.fp8) return (double)e4m3_to_float(*at);
  memcpy(&value, at, sizeof value);
  return (double)to_float(value);
}
template <class T> void store_value(const paged_shape &s, uint8_t *at, float x) {
  const T value = from_float<T>(x);
  if (s.fp8)
    *at = float_to_e4m3(x);
  else
    memcpy(at, &value, sizeof value);
}

/* Requests with seq_lens keys, the last query_lens of them new. */
template <class T> struct paged_problem {
  paged_shape shape;
  std::vector<int32_t> seq_lens, query_lens, query_start_loc, block_table;
  std::vector<uint8_t> cache;
  std::vector<float> scales; /* [layers][K|V][heads] */
  std::vector<T> qkv;
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
    for (int i = 0; i < s.num_layers * 2 * s.num_kv_heads; i++)
      scales.push_back(s.fp8 ? 0.01f + std::fabs(random_float(0.02f)) : 1.0f);
    fill_table();
    fill_cache();
  }

  int width() const { return (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim; }
  int block_of(int row, int key) const {
    return block_table[(size_t)row * stride + key / shape.block_size];
  }
  double scale(int value, int head) const {
    return (double)scales[((size_t)shape.layer * 2 + value) * shape.num_kv_heads + head];
  }
  double element(int row, int key, int value, int head, int d) const {
    return stored_value<T>(shape, &cache[shape.at(num_blocks, shape.layer, block_of(row, key),
                                                  value, head, key % shape.block_size, d)]) *
           scale(value, head);
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
    const size_t layer_bytes = shape.block_bytes() * num_blocks;
    cache.resize(layer_bytes * shape.num_layers);
    for (size_t i = 0; i < cache.size(); i += shape.element_bytes())
      store_value<T>(shape, &cache[i], i % layer_bytes < shape.block_bytes() ? 0.0f : NAN);
    const float size = shape.fp8 ? 60.0f : 1.0f;
    for (size_t r = 0; r < seq_lens.size(); r++)
      for (int key = 0; key < seq_lens[r]; key++)
        for (int value = 0; value < 2; value++)
          for (int h = 0; h < shape.num_kv_heads; h++)
            for (int d = 0; d < shape.padded(); d++)
              store_value<T>(shape,
                             &cache[shape.at(num_blocks, shape.layer, block_of((int)r, key), value,
                                             h, key % shape.block_size, d)],
                             d < shape.head_dim ? random_float(size) : 0);
  }

  gpu_kv_t kv(void *base, const float *device_scales) const {
    return {base,           shape.num_layers, num_blocks, shape.block_size, shape.num_kv_heads,
            shape.head_dim, dtype_of<T>(),    shape.fp8,  device_scales};
  }
};

/* Blocks that a sliding window has left behind go back to the pool: the table then names the null
 * block, and somebody else's bytes are in the old one. */
template <class T> void drop_blocks_before(paged_problem<T> &p, int window) {
  for (size_t r = 0; r < p.seq_lens.size(); r++) {
    const int first = p.seq_lens[r] - p.query_lens[r] - window + 1;
    for (int i = 0; (i + 1) * p.shape.block_size <= first; i++) p.block_table[r * p.stride + i] = 0;
  }
}

#endif
