/* test_kv.cc: rotary embedding and the write to the cache, page copy and zero. */
#include "tests/cuda/paged.h"

struct rope_case_t {
  paged_shape shape;
  int tokens, dims;
  bool q_norm, k_norm;
  bool late = false, each = false; /* norms behind the rotation; LayerNorms of each head */
};

static void norm_reference(double *x, int dim, const float *weight, double eps, bool centred) {
  double mean = 0, square = 0;
  if (weight == nullptr) return;
  for (int i = 0; i < dim && centred; i++) mean += x[i] / dim;
  for (int i = 0; i < dim; i++) square += (x[i] - mean) * (x[i] - mean);
  for (int i = 0; i < dim; i++)
    x[i] = (x[i] - mean) * (double)weight[i] / std::sqrt(square / dim + eps);
}

/* Norm and rotation of one head, in double. */
static void rope_reference(double *x, const rope_case_t &c, const float *weight, double eps,
                           const float *table) {
  const int dim = c.shape.head_dim, dims = c.dims;
  if (!c.late) norm_reference(x, dim, weight, eps, c.each);
  for (int i = 0; i < dims / 2; i++) {
    const double cosine = (double)table[2 * i], sine = (double)table[2 * i + 1];
    const double a = x[i], b = x[i + dims / 2];
    x[i] = a * cosine - b * sine;
    x[i + dims / 2] = b * cosine + a * sine;
  }
  if (c.late) norm_reference(x, dim, weight, eps, c.each);
}

/* Every slot that must be written, all others must keep their NaN. */
template <class T>
static void check_cache(const rope_case_t &c, const std::vector<uint8_t> &cache, int num_blocks,
                        const std::vector<int64_t> &slots, const std::vector<double> &rows,
                        const std::vector<float> &scales) {
  const paged_shape &s = c.shape;
  const int width = (s.num_heads + 2 * s.num_kv_heads) * s.head_dim;
  std::vector<double> expected, got;
  size_t filled = 0;
  for (int t = 0; t < c.tokens; t++) {
    if (slots[t] < 0) continue;
    for (int value = 0; value < 2; value++)
      for (int h = 0; h < s.num_kv_heads; h++)
        for (int d = 0; d < s.padded(); d++) {
          const int head = s.num_heads + value * s.num_kv_heads + h;
          const size_t from = (size_t)t * width + (size_t)head * s.head_dim + d;
          const size_t at = s.at(num_blocks, s.layer, (int)(slots[t] / s.block_size), value, h,
                                 (int)(slots[t] % s.block_size), d);
          const double scale = (double)scales[(s.layer * 2 + value) * s.num_kv_heads + h];
          expected.push_back(d < s.head_dim ? rows[from] : 0);
          got.push_back(stored_value<T>(s, &cache[at]) * scale);
        }
  }
  check_close("cache rows", expected, got, (s.fp8 ? 0x1p-4 : rounding_of<T>()) * 1.1, 0.01);
  for (size_t i = 0; i < cache.size(); i += s.element_bytes()) {
    const double x = stored_value<T>(s, &cache[i]);
    filled += x == x;
  }
  check_that(filled == got.size(), "only the slots of the mapping are written");
}

template <class T> static void rope_case(const rope_case_t &c) {
  const paged_shape &s = c.shape;
  const int dim = s.head_dim, heads = s.num_heads + 2 * s.num_kv_heads, num_blocks = 6;
  const float eps = 1e-6f, scale = 1.25f;
  const auto qkv = random_values<T>((size_t)c.tokens * heads * dim, 2);
  const auto q_norm = random_values<float>((size_t)dim * (c.each ? s.num_heads : 1), 2);
  const auto k_norm = random_values<float>((size_t)dim * (c.each ? s.num_kv_heads : 1), 2);
  std::vector<float> inv_freq(c.dims / 2);
  for (size_t i = 0; i < inv_freq.size(); i++)
    inv_freq[i] = (float)std::pow(10000.0, -2.0 * (double)i / c.dims);
  std::vector<int32_t> positions(c.tokens);
  std::vector<int64_t> slots(c.tokens);
  const int base = s.block_size + random_below(s.block_size);
  for (int t = 0; t < c.tokens; t++) {
    positions[t] = random_below(5000);
    slots[t] = t % 4 == 1 ? -1 : base + 3 * t % (4 * s.block_size);
  }
  std::vector<uint8_t> empty(s.block_bytes() * num_blocks * s.num_layers);
  for (size_t i = 0; i < empty.size(); i += s.element_bytes()) store_value<T>(s, &empty[i], NAN);
  std::vector<float> scales(s.num_layers * 2 * s.num_kv_heads);
  for (float &x : scales) x = s.fp8 ? 0.02f + std::fabs(random_float(0.1f)) : 1.0f;
  device_array<T> d_qkv(qkv);
  device_array<uint8_t> cache(empty);
  device_array<float> d_scales(scales);
  device_array<float> d_q(q_norm), d_k(k_norm), frequencies(inv_freq),
      table((size_t)c.tokens * c.dims + 1);
  device_array<int32_t> d_positions(positions);
  device_array<int64_t> d_slots(slots);
  if (c.dims > 0)
    MUST(gpu_rope_table(table.p, d_positions.p, frequencies.p, scale, c.dims, c.tokens, nullptr));
  const gpu_kv_t kv = {cache.p, s.num_layers,  num_blocks, s.block_size, s.num_kv_heads,
                       dim,     dtype_of<T>(), s.fp8,      d_scales.p};
  gpu_rope_store_t args = {};
  args.qkv = d_qkv.p, args.slots = d_slots.p, args.table = c.dims > 0 ? table.p : nullptr;
  args.q_norm = c.q_norm ? d_q.p : nullptr, args.k_norm = c.k_norm ? d_k.p : nullptr;
  args.norm_eps = eps, args.norm_each = c.each, args.norm_late = c.late;
  args.dims = c.dims, args.num_heads = s.num_heads, args.tokens = c.tokens, args.layer = s.layer;
  MUST(gpu_rope_store(&kv, &args, nullptr));
  std::vector<double> rows = as_double(qkv), angles;
  for (int t = 0; t < c.tokens; t++) {
    std::vector<float> angle(c.dims);
    for (int i = 0; i < c.dims / 2; i++) {
      const double a = (double)((float)positions[t] * inv_freq[i]);
      angle[2 * i] = (float)(std::cos(a) * (double)scale);
      angle[2 * i + 1] = (float)(std::sin(a) * (double)scale);
    }
    for (float a : angle) angles.push_back((double)a);
    for (int h = 0; h < s.num_heads + s.num_kv_heads; h++) {
      const bool query = h < s.num_heads;
      const float *weight =
          query ? (c.q_norm ? q_norm.data() : nullptr) : (c.k_norm ? k_norm.data() : nullptr);
      if (weight != nullptr && c.each) weight += (query ? h : h - s.num_heads) * dim;
      rope_reference(&rows[((size_t)t * heads + h) * dim], c, weight, (double)eps, angle.data());
    }
  }
  if (c.dims > 0) {
    auto got = as_double(table.get());
    got.pop_back();
    check_close("cos and sin", angles, got, 1e-6, 1);
  }
  check_close("rotated rows of head size " + std::to_string(dim), rows, as_double(d_qkv.get()),
              rounding_of<T>() * 1.1, 0.01);
  check_cache<T>(c, cache.get(), num_blocks, slots, rows, scales);
}

TEST(rope_store) {
  rope_case<bf16_t>({{8, 2, 128, 16}, 9, 128, false, false});
  rope_case<bf16_t>({{4, 4, 64, 32}, 5, 64, true, true});
  rope_case<bf16_t>({{6, 2, 80, 64}, 7, 32, false, false});
  rope_case<f16_t>({{3, 1, 96, 16}, 6, 96, true, false});
  rope_case<f16_t>({{2, 1, 256, 16}, 5, 256, false, true});
  rope_case<f16_t>({{2, 2, 64, 16}, 5, 12, false, false});
  rope_case<bf16_t>({{2, 2, 64, 16}, 5, 0, false, false});
}

TEST(rope_store_norms_of_each_head_and_behind_the_rotation) {
  rope_case<bf16_t>({{4, 2, 128, 16}, 5, 128, true, true, true, false});
  rope_case<f16_t>({{3, 1, 80, 16}, 6, 40, true, true, false, true});
  rope_case<bf16_t>({{2, 2, 64, 16}, 5, 64, true, true, true, true});
  rope_case<bf16_t>({{4, 2, 256, 16}, 5, 0, true, true, false, true});
}

/* One norm over all heads of a token: the columns alone, then the same with the rest. */
TEST(rope_store_norms_of_whole_tokens) {
  const int tokens = 5, query = 4 * 64, key = 2 * 64, stride = query + 2 * key;
  const auto qkv = random_values<bf16_t>((size_t)tokens * stride, 2);
  const auto q_norm = random_values<float>(query, 2), k_norm = random_values<float>(key, 2);
  device_array<bf16_t> apart(qkv), at_once(qkv);
  device_array<float> d_q(q_norm), d_k(k_norm);
  device_array<int64_t> slots(std::vector<int64_t>{16, 17, -1, 19, 20});
  std::vector<double> expected = as_double(qkv);
  for (int t = 0; t < tokens; t++) {
    double *row = &expected[(size_t)t * stride], q_square = 0, k_square = 0;
    for (int i = 0; i < query; i++) q_square += row[i] * row[i];
    for (int i = 0; i < key; i++) k_square += row[query + i] * row[query + i];
    for (int i = 0; i < query; i++) row[i] *= q_norm[i] / std::sqrt(q_square / query + 1e-6);
    for (int i = 0; i < key; i++) row[query + i] *= k_norm[i] / std::sqrt(k_square / key + 1e-6);
  }
  MUST(gpu_norm_columns(DTYPE_BF16, apart.p, stride, d_q.p, 1e-6f, query, tokens, nullptr));
  MUST(gpu_norm_columns(DTYPE_BF16, apart.p + query, stride, d_k.p, 1e-6f, key, tokens, nullptr));
  check_close("norms of columns", expected, as_double(apart.get()), 0x1p-8 * 1.1, 0.01);
  const paged_shape s = {4, 2, 64, 16};
  device_array<uint8_t> cache(std::vector<uint8_t>(s.block_bytes() * 3 * s.num_layers));
  const gpu_kv_t kv = {cache.p, s.num_layers, 3, 16, 2, 64, DTYPE_BF16, 0, nullptr};
  gpu_rope_store_t args = {};
  args.qkv = at_once.p, args.slots = slots.p, args.q_norm = d_q.p, args.k_norm = d_k.p;
  args.norm_eps = 1e-6f, args.num_heads = 4, args.tokens = tokens, args.norm_whole = 1;
  MUST(gpu_rope_store(&kv, &args, nullptr));
  const auto x = apart.get(), y = at_once.get();
  check_that(memcmp(x.data(), y.data(), x.size() * sizeof(bf16_t)) == 0, "the same in rope_store");
}

TEST(rope_store_fp8) {
  for (int dim : {64, 80, 128, 256}) {
    rope_case<bf16_t>({{4, 2, dim, 16, true}, 7, dim, dim == 64, true});
    rope_case<f16_t>({{2, 1, dim, 64, true}, 5, 16, false, false});
  }
}

static void page_case(int size, bool fp8, int dim) {
  const paged_shape s = {4, 2, dim, size, fp8};
  const int num_blocks = 7;
  std::vector<uint8_t> before(s.block_bytes() * num_blocks * s.num_layers);
  for (uint8_t &x : before) x = (uint8_t)random_bits();
  device_array<uint8_t> cache(before);
  const gpu_kv_t kv = {cache.p, s.num_layers, num_blocks, size, 2, dim, DTYPE_BF16, fp8, nullptr};
  check_that(gpu_kv_block_bytes(&kv) == s.block_bytes(), "bytes of a block");
  const std::vector<block_copy_t> copies = {{2, 5, size}, {3, 1, 1 + random_below(size - 1)}};
  device_array<block_copy_t> d_copies(copies);
  MUST(gpu_page_copy(&kv, d_copies.p, 2, nullptr));
  auto expected = before;
  for (int l = 0; l < s.num_layers; l++)
    for (int value = 0; value < 2; value++)
      for (int h = 0; h < 2; h++)
        for (int d = 0; d < s.padded(); d++)
          for (int b = 0; b < s.element_bytes(); b++)
            for (const block_copy_t &copy : copies)
              for (int slot = 0; slot < copy.rows; slot++)
                expected[s.at(num_blocks, l, copy.dst, value, h, slot, d) + b] =
                    before[s.at(num_blocks, l, copy.src, value, h, slot, d) + b];
  check_that(expected == cache.get(), "pages of " + std::to_string(size));
}

TEST(page_copy) {
  for (int size = 16; size <= 64; size *= 2) {
    page_case(size, false, 96);
    page_case(size, true, 64);
    page_case(size, true, 256);
  }
}
