/* test_attention.cc: plan, decode and prefill over a paged cache, against softmax in double. */
#include "cuda/attention.h"
#include "tests/cuda/paged.h"

typedef std::vector<int32_t> lens_t;

struct attention_options {
  int chunk = 64, window = 0, workers = 6;
  float softcap = 0, query_size = 3;
  bool sinks = false;
};

template <class T>
static std::vector<double> attention_reference(const paged_problem<T> &p,
                                               const attention_options &o,
                                               const std::vector<float> &sinks) {
  const paged_shape &s = p.shape;
  const int dim = s.head_dim, group = s.num_heads / s.num_kv_heads;
  std::vector<double> out((size_t)p.tokens * s.num_heads * dim), score;
  for (size_t r = 0; r < p.seq_lens.size(); r++)
    for (int i = 0; i < p.query_lens[r]; i++)
      for (int h = 0; h < s.num_heads; h++) {
        const int position = p.seq_lens[r] - p.query_lens[r] + i;
        const int first = o.window > 0 ? std::max(0, position - o.window + 1) : 0;
        const size_t token = (size_t)p.query_start_loc[r] + i;
        const T *q = &p.qkv[token * p.width() + (size_t)h * dim];
        double top = o.sinks ? (double)sinks[h] : -1e300, sum = 0;
        score.assign(position + 1, 0);
        for (int key = first; key <= position; key++) {
          for (int d = 0; d < dim; d++)
            score[key] += (double)to_float(q[d]) * p.element((int)r, key, 0, h / group, d);
          score[key] /= std::sqrt((double)dim);
          if (o.softcap != 0) score[key] = o.softcap * std::tanh(score[key] / o.softcap);
          top = std::max(top, score[key]);
        }
        for (int key = first; key <= position; key++) sum += std::exp(score[key] - top);
        if (o.sinks) sum += std::exp((double)sinks[h] - top);
        for (int key = first; key <= position; key++)
          for (int d = 0; d < dim; d++)
            out[(token * s.num_heads + h) * dim + d] +=
                std::exp(score[key] - top) / sum * p.element((int)r, key, 1, h / group, d);
      }
  return out;
}

/* Device copies of a problem, and the arguments of the launchers. */
template <class T> struct attention_device {
  device_array<T> cache, qkv, out;
  device_array<int32_t> table, lens, starts, counts, row_items, tiles;
  device_array<gpu_decode_item_t> items;
  device_array<float> sinks, partial, state;
  gpu_attention_t args = {};

  attention_device(const paged_problem<T> &p, const attention_options &o,
                   const std::vector<float> &sink_values, int items_max)
      : cache(p.cache), qkv(p.qkv), out((size_t)p.tokens * p.shape.num_heads * p.shape.head_dim),
        table(p.block_table), lens(p.seq_lens), starts(p.query_start_loc), counts(4),
        row_items(2 * p.seq_lens.size()), tiles(2 * (p.tokens + p.seq_lens.size())),
        items(items_max), sinks(sink_values),
        partial((size_t)items_max * p.shape.num_heads * p.shape.head_dim),
        state((size_t)items_max * p.shape.num_heads * 2) {
    args.kv = p.kv(cache.p);
    args.plan = {counts.p, items.p, row_items.p, tiles.p, items_max, (int32_t)tiles.count / 2};
    args.qkv = qkv.p, args.out = out.p;
    args.block_table = table.p, args.seq_lens = lens.p, args.query_start_loc = starts.p;
    args.sinks = o.sinks ? sinks.p : nullptr;
    args.partial = partial.p, args.partial_state = state.p;
    args.block_table_stride = p.stride, args.rows = (int32_t)p.seq_lens.size();
    args.layer = p.shape.layer, args.num_heads = p.shape.num_heads, args.window = o.window;
    args.scale = 1.0f / std::sqrt((float)p.shape.head_dim), args.softcap = o.softcap;
  }

  void run(const attention_options &o) {
    MUST(gpu_attention_plan(&args, o.chunk, o.workers, nullptr));
    MUST(gpu_attention_decode(&args, o.workers, nullptr));
    MUST(gpu_attention_prefill(&args, args.plan.tiles_max, nullptr));
  }
};

template <class T> static double tolerance_of() {
  return dtype_of<T>() == DTYPE_BF16 ? 0.01 : 0.002;
}

template <class T>
static void attention_case(const paged_shape &shape, const lens_t &lens, const lens_t &queries,
                           const attention_options &o = attention_options()) {
  paged_problem<T> p(shape, lens, queries, o.query_size);
  if (o.window > 0) p.drop_blocks_before(o.window);
  const auto sinks = random_values<float>(shape.num_heads, 3);
  int items_max = (int)lens.size();
  for (int32_t len : lens) items_max += (len + 63) / 64;
  attention_device<T> device(p, o, sinks, items_max);
  device.run(o);
  const std::string what =
      std::string(name_of<T>()) + " " + std::to_string(shape.num_heads) + "/" +
      std::to_string(shape.num_kv_heads) + "x" + std::to_string(shape.head_dim) + " pages of " +
      std::to_string(shape.block_size) + ", " + std::to_string(lens[0]) + " keys, chunk " +
      std::to_string(o.chunk) + ", window " + std::to_string(o.window);
  check_rows(what, attention_reference(p, o, sinks), as_double(device.out.get()), shape.head_dim,
             tolerance_of<T>());
}

static lens_t ones(const lens_t &lens) {
  return lens_t(lens.size(), 1);
}

TEST(decode_head_sizes) {
  for (int dim : {64, 80, 96, 128, 256}) {
    const lens_t lens = {1, 15, 16, 17, 63, 64, 65, 130 + random_below(90)};
    attention_case<bf16_t>({4, 2, dim, 16}, lens, ones(lens));
    attention_case<f16_t>({4, 2, dim, 64}, lens, ones(lens));
  }
}

TEST(decode_groups) {
  for (int group = 1; group <= 8; group++) {
    const lens_t lens = {77 + random_below(50), 5};
    attention_case<bf16_t>({2 * group, 2, 64, 32}, lens, ones(lens));
  }
  attention_case<bf16_t>({20, 1, 64, 16}, {90, 33}, {1, 1});
}

TEST(decode_chunks) {
  const lens_t lens = {400, 1, 129, 128, 64};
  for (int chunk : {0, 64, 128, 1024}) {
    attention_options o;
    o.chunk = chunk;
    attention_case<bf16_t>({8, 2, 128, 16}, lens, ones(lens), o);
    o.workers = 1;
    attention_case<f16_t>({8, 2, 64, 64}, lens, ones(lens), o);
  }
}

TEST(decode_long_walk) { /* a warp's 32 block ids are used up */
  attention_options o;
  o.chunk = 4096;
  attention_case<bf16_t>({1, 1, 64, 16}, {2300}, {1}, o);
}

TEST(decode_windows) {
  for (int window : {1, 16, 40, 100, 1000}) {
    attention_options o;
    o.window = window;
    const lens_t lens = {200, 16, 17, 1, 150 + random_below(100)};
    attention_case<bf16_t>({4, 2, 128, 16}, lens, ones(lens), o);
  }
}

TEST(decode_softcap_and_sinks) {
  attention_options o;
  o.softcap = 2.5f, o.query_size = 8;
  attention_case<f16_t>({4, 2, 64, 16}, {100, 20}, {1, 1}, o);
  o.softcap = 0, o.sinks = true;
  attention_case<f16_t>({4, 2, 64, 16}, {100, 20}, {1, 1}, o);
}

TEST(decode_padding_rows) {
  attention_case<bf16_t>({4, 2, 128, 16}, {0, 70, 0, 9, 0}, {0, 1, 0, 1, 0});
}

TEST(extreme_logits) {
  attention_options o;
  o.query_size = 400;
  attention_case<f16_t>({2, 1, 64, 16}, {200, 40}, {1, 1}, o);
  attention_case<f16_t>({2, 1, 64, 16}, {100, 40}, {60, 40}, o);
}

TEST(prefill_head_sizes) {
  for (int dim : {64, 80, 96, 128, 256})
    attention_case<bf16_t>({2, 1, dim, 16}, {150, 20}, {140, 20});
  attention_case<f16_t>({2, 2, 128, 64}, {130}, {130});
}

TEST(prefill_with_cached_keys) {
  for (int size : {16, 32, 64}) {
    const int cached = 1 + random_below(150);
    attention_case<bf16_t>({4, 2, 64, size}, {cached + 70, 64, 3}, {70, 64, 2});
  }
}

TEST(prefill_windows_caps_and_sinks) {
  for (int window : {1, 63, 64, 100}) {
    attention_options o;
    o.window = window;
    attention_case<bf16_t>({2, 1, 64, 16}, {290, 30}, {80, 30}, o);
  }
  attention_options o;
  o.softcap = 3, o.sinks = true, o.query_size = 8;
  attention_case<f16_t>({2, 1, 64, 16}, {120}, {70}, o);
}

TEST(mixed_batch) {
  attention_case<bf16_t>({6, 2, 128, 16}, {50, 0, 200, 7, 33, 0}, {1, 0, 60, 1, 33, 0});
  attention_options o;
  o.window = 20;
  attention_case<bf16_t>({6, 2, 64, 16}, {50, 200, 7, 33}, {1, 60, 1, 33}, o);
}

/* With a fixed chunk a row's bits are its own, whoever is beside it and wherever a chunk begins. */
TEST(rows_do_not_depend_on_mates) {
  attention_options o;
  paged_problem<bf16_t> p({4, 2, 64, 16}, {140, 300, 90}, {1, 1, 50}, 3);
  attention_device<bf16_t> all(p, o, {0, 0, 0, 0}, 20);
  all.run(o);
  const auto expected = all.out.get();
  paged_problem<bf16_t> alone = p;
  alone.query_start_loc = {0, 0, 1, 31};
  alone.query_lens = {0, 1, 30};
  alone.seq_lens = {0, 300, 70};
  alone.tokens = 31;
  alone.qkv.assign(p.qkv.begin() + p.width(), p.qkv.begin() + 32 * p.width());
  o.workers = 3;
  attention_device<bf16_t> some(alone, o, {0, 0, 0, 0}, 20);
  some.run(o);
  const auto got = some.out.get();
  const size_t width = 4 * 64;
  check_that(memcmp(got.data(), expected.data() + width, 31 * width * sizeof(bf16_t)) == 0,
             "the same bits alone");
}

TEST(plan_that_does_not_fit_doubles_its_chunk) {
  attention_options o;
  paged_problem<bf16_t> p({2, 1, 64, 16}, {400, 300}, {1, 1}, 3);
  attention_device<bf16_t> device(p, o, {0, 0}, 4);
  device.run(o);
  check_that(device.counts.get()[0] == 4 && device.counts.get()[2] == 256, "chunk of 256");
  check_rows("with a short list", attention_reference(p, o, {0, 0}), as_double(device.out.get()),
             64, tolerance_of<bf16_t>());
}

TEST(plan_of_many_rows) { /* more rows than the planner has threads */
  const int rows = 300;
  lens_t lens(rows), queries(rows);
  for (int r = 0; r < rows; r++) {
    queries[r] = r % 7 == 3 ? 0 : r % 50 == 9 ? 3 : 1;
    lens[r] = queries[r] == 0 ? 0 : queries[r] + random_below(40);
  }
  attention_case<bf16_t>({1, 1, 64, 16}, lens, queries);
}
