/* test_lora.cc: low-rank adapters against double, and the bits of a token among any others. */
#include "cuda/kernels/lora.h"
#include "tests/cuda/far.h"

struct lora_case_t {
  int tokens, rows, cols, column, width, rank_max;
  std::vector<int32_t> ranks; /* of adapters 1, 2, .. */
};

template <class T> struct lora_device {
  int stride;
  std::vector<float> h_a, h_b;
  std::vector<T> h_in, h_out;
  std::vector<int32_t> h_adapters, h_ranks;
  device_array<float> a, b, low;
  device_array<T> in, out;
  device_array<int32_t> adapters, ranks;
  gpu_lora_t args = {};

  explicit lora_device(const lora_case_t &c)
      : stride((c.rank_max + 3) / 4 * 4), h_a(matrices(c, c.cols)), h_b(matrices(c, c.rows)),
        h_in(random_values<T>((size_t)c.tokens * c.cols, 1)),
        h_out(random_values<T>((size_t)c.tokens * c.width, 2)), h_adapters(draw_adapters(c)),
        h_ranks(c.ranks), a(h_a), b(h_b), low((size_t)c.tokens * stride), in(h_in), out(h_out),
        adapters(h_adapters), ranks((h_ranks.insert(h_ranks.begin(), 0), h_ranks)) {
    args.ranks = ranks.p, args.a = a.p, args.b = b.p;
    args.rows = c.rows, args.cols = c.cols, args.stride = stride;
    args.adapters = adapters.p, args.in = in.p, args.out = out.p, args.low = low.p;
    args.tokens = c.tokens, args.column = c.column, args.width = c.width;
  }
  /* What an earlier adapter of a higher rank left behind is there too. */
  std::vector<float> matrices(const lora_case_t &c, int width) const {
    return random_values<float>(c.ranks.size() * stride * width, 0.2f);
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
      const bool mine = i >= c.column && i < c.column + c.rows && d.h_ranks[d.h_adapters[t]] > 0;
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
}
