/* test_qkv.cc: q, k and v rotated and stored by the kernel that computes them, against the pair of
 * kernels, bit for bit: the columns, and every byte of the cache. */
#include "cuda/kernels/rope/qkv.h"
#include "tests/cuda/paged.h"

struct qkv_case_t {
  paged_shape shape;
  int rows, k, dims; /* dims 0: no rotation */
  bool norm = false, bias = false;
  int workers = 0; /* > 0: tiles may be split */
};

static std::string describe(const qkv_case_t &c) {
  const paged_shape &s = c.shape;
  return std::to_string(c.rows) + " rows of " + std::to_string(c.k) + ", " +
         std::to_string(s.num_heads) + " and " + std::to_string(s.num_kv_heads) + " heads of " +
         std::to_string(s.head_dim) + ", " + std::to_string(c.dims) + " rotated" +
         (s.fp8 ? ", fp8" : "") + (c.norm ? ", normed" : "") + (c.bias ? ", bias" : "") +
         (c.workers > 0 ? ", " + std::to_string(c.workers) + " workers" : "");
}

/* Rows end at some slot of their own blocks, which the block table scatters; some are padding. */
static std::vector<int64_t> random_slots(const qkv_case_t &c, int num_blocks) {
  std::vector<int32_t> block_table(num_blocks);
  std::vector<int64_t> slots(c.rows, -1);
  for (int i = 0; i < num_blocks; i++) block_table[i] = i;
  for (int i = num_blocks - 1; i > 0; i--) std::swap(block_table[i], block_table[random_below(i)]);
  for (int t = 0; t < c.rows; t++)
    if (t % 5 != 3)
      slots[t] = (int64_t)block_table[t] * c.shape.block_size + random_below(c.shape.block_size);
  return slots;
}

/* The inputs of a case on the device, and a way to run them. */
template <class T> struct qkv_device {
  const paged_shape s;
  const int num_blocks, columns;
  std::vector<T> before;
  std::vector<uint8_t> empty;
  std::vector<int64_t> h_slots;
  device_array<T> in, weight;
  device_array<float> bias, norm, table, scales;
  device_array<int64_t> slots;
  device_array<int32_t> tickets;
  gpu_skinny_t layer = {};
  gpu_rope_store_t store = {};

  explicit qkv_device(const qkv_case_t &c)
      : s(c.shape), num_blocks(c.rows + 2),
        columns((c.shape.num_heads + 2 * c.shape.num_kv_heads) * c.shape.head_dim),
        before(random_values<T>((size_t)c.rows * columns, 1)),
        empty(c.shape.block_bytes() * num_blocks * c.shape.num_layers),
        h_slots(random_slots(c, num_blocks)), in(random_values<T>((size_t)c.rows * c.k, 1)),
        weight(random_values<T>((size_t)columns * c.k, 1)),
        bias(random_values<float>((size_t)columns, 3)), norm(random_values<float>(c.k, 2)),
        table(random_values<float>((size_t)c.rows * c.dims + 1, 1)), scales(random_scales(c.shape)),
        slots(h_slots), tickets(std::vector<int32_t>(columns / 8 + 1)) {
    for (uint8_t &byte : empty) byte = (uint8_t)random_bits();
    layer.in = in.p, layer.weight = weight.p, layer.bias = c.bias ? bias.p : nullptr;
    layer.rows = c.rows, layer.n = columns, layer.k = c.k;
    layer.norm = c.norm, layer.norm_weight = norm.p, layer.norm_eps = 1e-5f;
    if (c.workers > 0) layer.tickets = tickets.p, layer.workers = c.workers;
    store.slots = slots.p, store.table = c.dims > 0 ? table.p : nullptr;
    store.dims = c.dims, store.num_heads = s.num_heads, store.tokens = c.rows;
    store.layer = s.layer;
  }

  static std::vector<float> random_scales(const paged_shape &s) {
    std::vector<float> values(s.num_layers * 2 * s.num_kv_heads);
    for (float &x : values) x = 0.02f + std::fabs(random_float(0.1f));
    return values;
  }
  gpu_kv_t kv(void *base) const {
    return {base,       s.num_layers,  num_blocks, s.block_size, s.num_kv_heads,
            s.head_dim, dtype_of<T>(), s.fp8,      scales.p};
  }
  /* Partial sums begin unwritten, so that a block that adds them too early is seen. */
  void run(bool fused, device_array<T> &qkv, device_array<uint8_t> &cache) {
    const gpu_kv_t there = kv(cache.p);
    device_array<float> partial(gpu_skinny_partial_bytes(layer.rows, columns) / sizeof(float));
    layer.out = store.qkv = qkv.p;
    if (layer.tickets != nullptr) layer.partial = partial.p;
    if (fused) {
      check_that(gpu_qkv_fits(&there, &layer, &store), "the layer fits one kernel");
      MUST(gpu_qkv(&there, &layer, &store, nullptr));
    } else {
      MUST(gpu_skinny(dtype_of<T>(), &layer, nullptr));
      MUST(gpu_rope_store(&there, &store, nullptr));
    }
    MUST(cudaDeviceSynchronize());
  }
  /* Bytes of the cache that differ from what was there. */
  size_t written(const std::vector<uint8_t> &cache) const {
    size_t count = 0;
    for (size_t i = 0; i < cache.size(); i++) count += cache[i] != empty[i];
    return count;
  }
};

template <class T> static void qkv_case(const qkv_case_t &c) {
  qkv_device<T> d(c);
  device_array<T> apart(d.before), at_once(d.before);
  device_array<uint8_t> apart_cache(d.empty), at_once_cache(d.empty);
  d.run(false, apart, apart_cache);
  d.run(true, at_once, at_once_cache);
  const std::vector<T> expected = apart.get(), got = at_once.get();
  const std::string what = std::string(name_of<T>()) + ", " + describe(c);
  size_t wrong = 0;
  while (wrong < got.size() && memcmp(&got[wrong], &expected[wrong], sizeof(T)) == 0) wrong++;
  check_that(wrong == got.size(), what + ": column " + std::to_string(wrong % d.columns) +
                                      " of row " + std::to_string(wrong / d.columns));
  check_that(apart_cache.get() == at_once_cache.get(), what + ": the same cache");
  size_t stored = 0;
  for (int64_t slot : d.h_slots) stored += slot >= 0;
  const size_t bytes = stored * 2 * c.shape.num_kv_heads * c.shape.padded();
  check_that(d.written(at_once_cache.get()) > bytes / 2, what + ": rows are stored");
  for (int32_t ticket : d.tickets.get()) check_that(ticket == 0, what + ": tickets stay zero");
}

/* Every size of the kernel. */
TEST(qkv_of_1_to_32_rows) {
  for (int rows : {1, 3, 8}) {
    qkv_case<bf16_t>({{4, 2, 64, 16}, rows, 264, 64, true});
    qkv_case<f16_t>({{2, 1, 128, 32}, rows, 520, 128, true, true});
    qkv_case<f16_t>({{4, 2, 64, 16}, rows, 136, 64, false, true});
  }
  qkv_case<bf16_t>({{3, 1, 128, 16}, 8, 72, 128});
  qkv_case<bf16_t>({{6, 2, 64, 64}, 9, 264, 64, false, true});
  qkv_case<f16_t>({{5, 1, 128, 16}, 16, 40, 128});
  qkv_case<bf16_t>({{2, 2, 128, 16}, 17, 136, 128});
  qkv_case<f16_t>({{8, 1, 64, 32}, 32, 64, 64, false, true});
}

/* What is not rotated, or not by halves of a head; heads that are padded; one tile a head. */
TEST(qkv_of_odd_heads) {
  qkv_case<bf16_t>({{2, 1, 80, 16}, 4, 72, 32, true});
  qkv_case<f16_t>({{3, 3, 96, 32}, 11, 40, 96});
  qkv_case<bf16_t>({{4, 2, 16, 16}, 7, 64, 16, true, true});
  qkv_case<bf16_t>({{3, 1, 48, 64}, 18, 32, 16});
  qkv_case<f16_t>({{2, 1, 256, 16}, 5, 48, 256});
  qkv_case<bf16_t>({{1, 1, 256, 16}, 20, 32, 64});
  qkv_case<f16_t>({{4, 1, 64, 16}, 6, 56, 0, true});
}

TEST(qkv_to_fp8) {
  for (int dim : {32, 64, 80, 128, 256})
    qkv_case<bf16_t>({{2, 1, dim, 16, true}, 5, 64, dim, dim % 64 == 0});
  qkv_case<f16_t>({{4, 2, 64, 64, true}, 19, 40, 32, false, true});
}

TEST(qkv_split) {
  qkv_case<bf16_t>({{2, 1, 64, 16}, 1, 1032, 64, true, false, 64});
  qkv_case<f16_t>({{1, 1, 128, 16}, 7, 520, 128, false, true, 40});
  qkv_case<bf16_t>({{3, 1, 64, 32}, 12, 264, 32, false, false, 100});
  qkv_case<f16_t>({{2, 2, 64, 16, true}, 30, 136, 64, false, true, 20});
}

TEST(qkv_of_random_shapes) {
  static const int dims[] = {16, 32, 48, 64, 80, 96, 112, 128}, sizes[] = {16, 32, 64};
  for (int i = 0; i < 12; i++) {
    const int dim = dims[random_below(8)], kv_heads = 1 + random_below(3);
    const int heads = kv_heads * (1 + random_below(4)), rows = 1 + random_below(32);
    qkv_case_t c = {{heads, kv_heads, dim, sizes[random_below(3)], random_below(3) == 0},
                    rows,
                    8 * (1 + random_below(40)),
                    16 * random_below(dim / 16 + 1)};
    c.norm = rows <= GPU_NORM_ROWS_MAX && random_below(2) == 0;
    c.bias = random_below(2) == 0, c.workers = random_below(2) * 40;
    c.shape.layer = random_below(2);
    if (i % 2 == 0)
      qkv_case<bf16_t>(c);
    else
      qkv_case<f16_t>(c);
  }
}

/* What the kernel does not do is said, and refused. */
TEST(qkv_refuses) {
  qkv_device<bf16_t> d({{2, 1, 64, 16}, 8, 64, 64});
  device_array<bf16_t> qkv(d.before);
  device_array<uint8_t> cache(d.empty);
  const gpu_kv_t kv = d.kv(cache.p);
  d.layer.out = d.store.qkv = qkv.p;
  auto fits = [&](gpu_kv_t there, gpu_skinny_t layer, gpu_rope_store_t store) {
    const bool is_said = gpu_qkv_fits(&there, &layer, &store);
    const int status = gpu_qkv(&there, &layer, &store, nullptr);
    check_that(is_said || status == cudaErrorInvalidValue, "what does not fit is refused");
    return is_said;
  };
  gpu_skinny_t layer = d.layer;
  gpu_rope_store_t store = d.store;
  gpu_kv_t narrow = kv;
  check_that(fits(kv, layer, store), "a plain layer");
  layer.rows = store.tokens = 33;
  check_that(!fits(kv, layer, store), "33 rows");
  layer.rows = store.tokens = 9, layer.norm = 1;
  check_that(!fits(kv, layer, store), "9 rows with a norm");
  layer = d.layer, store = d.store, layer.packed.codes = GPU_CODES_8;
  check_that(!fits(kv, layer, store), "packed weights");
  layer = d.layer, layer.residual = qkv.p;
  check_that(!fits(kv, layer, store), "a residual");
  layer = d.layer, store.q_norm = d.norm.p;
  check_that(!fits(kv, layer, store), "norms of queries");
  store = d.store, store.k_norm = d.norm.p;
  check_that(!fits(kv, layer, store), "norms of keys");
  store = d.store, store.dims = 24;
  check_that(!fits(kv, layer, store), "24 rotated dimensions");
  store = d.store, narrow.head_dim = 40;
  check_that(!fits(narrow, layer, store), "heads of 40");
  layer.n = d.columns + 64;
  check_that(gpu_qkv(&kv, &layer, &store, nullptr) == cudaErrorInvalidValue, "a head too many");
  layer = d.layer, layer.rows = 7;
  check_that(gpu_qkv(&kv, &layer, &store, nullptr) == cudaErrorInvalidValue, "a row too few");
  layer = d.layer, store.qkv = nullptr;
  check_that(gpu_qkv(&kv, &layer, &store, nullptr) == cudaErrorInvalidValue, "two places");
  store = d.store, store.layer = 2;
  check_that(gpu_qkv(&kv, &layer, &store, nullptr) == cudaErrorInvalidValue, "a layer beyond");
}
