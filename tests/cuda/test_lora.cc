/* test_lora.cc: adapters of layers, embeddings and logits against double, and the bits of a token
 * among any others. */
#include "cuda/kernels/lora.h"
#include "tests/cuda/far.h"

struct lora_case_t {
  int tokens, rows, cols, column, width, rank_max;
  std::vector<int32_t> ranks; /* of adapters 1, 2, .. */
  bool has_vectors = false;   /* factors and offsets, also of an adapter without a pair */
};

template <class T> struct lora_device {
  int stride;
  std::vector<float> h_a, h_b, h_factors, h_offsets;
  std::vector<T> h_in, h_out;
  std::vector<int32_t> h_adapters, h_ranks, h_changes;
  device_array<float> a, b, factors, offsets, low;
  device_array<T> in, out;
  device_array<int32_t> adapters, ranks, changes;
  gpu_lora_t args = {};

  explicit lora_device(const lora_case_t &c)
      : stride((c.rank_max + 3) / 4 * 4), h_a(matrices(c, c.cols)), h_b(matrices(c, c.rows + 1)),
        h_factors(vectors(c)), h_offsets(vectors(c)),
        h_in(random_values<T>((size_t)c.tokens * c.cols, 1)),
        h_out(random_values<T>((size_t)c.tokens * c.width, 2)), h_adapters(draw_adapters(c)),
        h_ranks(c.ranks), a(h_a), b(h_b), factors(h_factors), offsets(h_offsets),
        low((size_t)c.tokens * stride), in(h_in), out(h_out), adapters(h_adapters),
        ranks((h_ranks.insert(h_ranks.begin(), 0), h_ranks)), changes(find_changes(c)) {
    args.ranks = ranks.p, args.changes = changes.p, args.a = a.p, args.b = b.p;
    args.factors = factors.p, args.offsets = offsets.p;
    if (c.has_vectors) args.plain = out.p;
    args.rows = c.rows, args.cols = c.cols, args.stride = stride;
    args.adapters = adapters.p, args.in = in.p, args.out = out.p, args.low = low.p;
    args.tokens = c.tokens, args.column = c.column, args.width = c.width;
  }
  /* What an earlier adapter of a higher rank left behind is there too. */
  std::vector<float> matrices(const lora_case_t &c, int width) const {
    return random_values<float>(c.ranks.size() * stride * width, 0.2f);
  }
  /* The end of an odd height is read, and not used. */
  std::vector<float> vectors(const lora_case_t &c) const {
    const size_t count = c.ranks.size() * c.rows + 1;
    return c.has_vectors ? random_values<float>(count, 0.5f) : std::vector<float>(count);
  }
  std::vector<int32_t> find_changes(const lora_case_t &c) {
    for (int32_t rank : h_ranks) h_changes.push_back(rank > 0 || c.has_vectors);
    h_changes[0] = 0;
    return h_changes;
  }
  /* Runs of tokens with one adapter, and tokens that change it. */
  static std::vector<int32_t> draw_adapters(const lora_case_t &c) {
    std::vector<int32_t> adapters(c.tokens);
    for (int t = 0; t < c.tokens; t++)
      adapters[t] =
          t > 0 && random_below(3) ? adapters[t - 1] : random_below((int)c.ranks.size() + 1);
    return adapters;
  }
};

template <class T>
static std::vector<double> lora_reference(const lora_case_t &c, const lora_device<T> &d) {
  std::vector<double> out = as_double(d.h_out);
  for (int t = 0; t < c.tokens; t++) {
    const int32_t slot = d.h_adapters[t], rank = d.h_ranks[slot];
    std::vector<double> low(rank);
    for (int r = 0; r < rank; r++)
      for (int k = 0; k < c.cols; k++)
        low[r] += (double)to_float(d.h_in[(size_t)t * c.cols + k]) *
                  (double)d.h_a[((size_t)(slot - 1) * d.stride + r) * c.cols + k];
    for (int n = 0; n < c.rows; n++)
      for (int r = 0; r < rank; r++)
        out[(size_t)t * c.width + c.column + n] +=
            low[r] * (double)d.h_b[((size_t)(slot - 1) * c.rows + n) * d.stride + r];
    for (int n = 0; n < c.rows && d.h_changes[slot]; n++) {
      const size_t at = (size_t)t * c.width + c.column + n, of = (size_t)(slot - 1) * c.rows + n;
      out[at] += (double)d.h_factors[of] * to_float(d.h_out[at]) + d.h_offsets[of];
    }
  }
  return out;
}

template <class T> static void lora_case(const lora_case_t &c) {
  lora_device<T> d(c);
  MUST(gpu_lora(dtype_of<T>(), &d.args, nullptr));
  const std::vector<T> got = d.out.get();
  const std::string what = "lora of " + std::to_string(c.tokens) + " x " + std::to_string(c.rows) +
                           " x " + std::to_string(c.cols);
  check_close(what, lora_reference(c, d), as_double(got), rounding_of<T>() * 1.1, 0.05);
  bool untouched = true;
  for (int t = 0; t < c.tokens; t++)
    for (int i = 0; i < c.width; i++) {
      const bool mine = i >= c.column && i < c.column + c.rows && d.h_changes[d.h_adapters[t]];
      const size_t at = (size_t)t * c.width + i;
      untouched = untouched && (mine || memcmp(&got[at], &d.h_out[at], sizeof(T)) == 0);
    }
  check_that(untouched, what + ": nothing else is written");
}

TEST(lora) {
  lora_case<bf16_t>({1, 64, 64, 0, 64, 16, {16}});
  lora_case<bf16_t>({37, 96, 264, 32, 160, 9, {9, 0, 1, 6}});
  lora_case<f16_t>({8, 520, 1032, 8, 544, 64, {64, 33}});
  lora_case<f16_t>({130, 48, 72, 0, 48, 8, {8, 8, 3}});
  lora_case<bf16_t>({3, 16, 40, 0, 16, 512, {512, 500}});
  lora_case<bf16_t>({37, 96, 264, 32, 160, 9, {9, 0, 1, 6}, true});
  lora_case<f16_t>({19, 48, 72, 0, 48, 8, {0, 0}, true});
}

/* The same for an embedding: the input of a token is the row of its id. */
template <class T> static void embedding_case(const lora_case_t &c, float scale) {
  lora_device<T> d(c);
  std::vector<int32_t> ids(c.tokens);
  for (int t = 0; t < c.tokens; t++)
    ids[t] = t == 0 ? 0 : t == 1 ? c.cols - 1 : random_below(c.cols);
  device_array<int32_t> device_ids(ids);
  for (int t = 0; t < c.tokens; t++) /* for the reference */
    for (int k = 0; k < c.cols; k++)
      d.h_in[(size_t)t * c.cols + k] = from_float<T>(k == ids[t] ? scale : 0.0f);
  d.args.ids = device_ids.p, d.args.scale = scale, d.args.in = nullptr;
  MUST(gpu_lora(dtype_of<T>(), &d.args, nullptr));
  check_close("an embedding of " + std::to_string(c.cols), lora_reference(c, d),
              as_double(d.out.get()), rounding_of<T>() * 1.1, 0.05);
}

TEST(lora_of_an_embedding) {
  embedding_case<bf16_t>({37, 64, 67, 0, 64, 9, {9, 0, 1, 6}, true}, 1.5f);
  embedding_case<f16_t>({9, 48, 1001, 0, 48, 64, {64, 33}}, 0.25f);
}

/* Logits in fp32, of tokens that are listed; an odd vocabulary, and a bias that has no factor. */
TEST(lora_of_logits) {
  for (bool has_bias : {false, true}) {
    const lora_case_t c = {21, 131, 72, 0, 131, 9, {9, 0, 4}, true};
    lora_device<bf16_t> d(c);
    std::vector<float> before = random_values<float>((size_t)c.tokens * c.rows, 2);
    std::vector<float> bias = random_values<float>(c.rows, has_bias ? 1.0f : 0.0f);
    std::vector<int32_t> selected(c.tokens);
    for (int t = 0; t < c.tokens; t++) selected[t] = t == 3 ? -1 : c.tokens - 1 - t;
    device_array<float> logits(before), device_bias(bias);
    device_array<int32_t> rows(selected);
    d.args.logits = true, d.args.out = logits.p, d.args.selected = rows.p, d.args.plain = nullptr;
    d.args.bias = has_bias ? device_bias.p : nullptr;
    MUST(gpu_lora(DTYPE_BF16, &d.args, nullptr));
    std::vector<double> expected(before.begin(), before.end());
    for (int t = 0; t < c.tokens; t++) {
      const int32_t slot = selected[t] < 0 ? 0 : d.h_adapters[selected[t]];
      for (int n = 0; n < c.rows && slot > 0; n++) {
        const size_t of = (size_t)(slot - 1) * c.rows + n;
        double &out = expected[(size_t)t * c.rows + n];
        double sum = d.h_offsets[of] + (double)d.h_factors[of] * (out - bias[n]);
        for (int r = 0; r < d.h_ranks[slot]; r++) {
          double low = 0;
          for (int k = 0; k < c.cols; k++)
            low += (double)to_float(d.h_in[(size_t)t * c.cols + k]) *
                   (double)d.h_a[((size_t)(slot - 1) * d.stride + r) * c.cols + k];
          sum += low * (double)d.h_b[of * d.stride + r];
        }
        out += sum;
      }
    }
    const std::vector<float> got = logits.get();
    check_close(has_bias ? "logits with a bias" : "logits", expected, as_double(got), 1e-5, 0.05);
  }
}

/* A token's bits alone, and among others with other adapters. */
TEST(lora_bits_do_not_depend_on_mates) {
  const lora_case_t c = {61, 136, 776, 8, 152, 24, {24, 5, 17}};
  lora_device<bf16_t> d(c);
  MUST(gpu_lora(DTYPE_BF16, &d.args, nullptr));
  const auto all = d.out.get();
  for (int count : {1, 2, 9, 30}) {
    const int first = random_below(c.tokens - count);
    device_array<bf16_t> out(
        std::vector<bf16_t>(d.h_out.begin() + (size_t)first * c.width,
                            d.h_out.begin() + (size_t)(first + count) * c.width));
    gpu_lora_t args = d.args;
    args.tokens = count, args.adapters = d.adapters.p + first, args.out = out.p;
    args.in = d.in.p + (size_t)first * c.cols;
    MUST(gpu_lora(DTYPE_BF16, &args, nullptr));
    check_that(
        memcmp(out.get().data(), &all[(size_t)first * c.width], out.count * sizeof(bf16_t)) == 0,
        std::to_string(count) + " tokens from " + std::to_string(first));
  }
}

/* A launch has at most 65,535 blocks in y: more tokens than eight for each of them. */
/* Only the last of them is compared: 25 million threads are too many for the checker of races. */
TEST(lora_of_more_tokens_than_a_grid_is_high) {
  const int tokens = 8 * 65535 + 1;
  const lora_case_t c = {tokens, 2, 8, 0, 2, 4, {4}};
  lora_device<bf16_t> d(c);
  std::vector<int32_t> adapters(tokens, 0);
  adapters[tokens - 1] = 1;
  d.h_adapters = adapters;
  MUST(cudaMemcpy(d.adapters.p, adapters.data(), d.adapters.bytes(), cudaMemcpyHostToDevice));
  const last_blocks_only last;
  MUST(gpu_lora(DTYPE_BF16, &d.args, nullptr));
  const std::vector<double> expected = lora_reference(c, d), got = as_double(d.out.get());
  check_close("the last of many tokens", {expected.end() - c.width, expected.end()},
              {got.end() - c.width, got.end()}, rounding_of<bf16_t>() * 1.1, 0.05);
}

TEST(lora_refuses) {
  lora_device<bf16_t> d({2, 16, 40, 0, 16, 8, {8}});
  auto refused = [&d](auto change) {
    gpu_lora_t args = d.args;
    change(args);
    return gpu_lora(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue;
  };
  check_that(refused([](gpu_lora_t &l) { l.cols = 36; }), "a width that is no multiple of 8");
  check_that(refused([](gpu_lora_t &l) { l.rows = 15; }), "an odd height");
  check_that(refused([](gpu_lora_t &l) { l.column = 2; }), "columns beyond the row");
  check_that(refused([](gpu_lora_t &l) { l.stride = 516; }), "a rank above the largest");
  check_that(refused([](gpu_lora_t &l) { l.logits = true, l.cols = 36; }),
             "logits of such a width");
}
