/* test_skinny.cc: the weight-streaming linear layer against double. */
#include "tests/cuda/check.h"

struct skinny_case_t {
  int rows, n, k;
  bool bias, residual, logits;
  float softcap;
};

template <class T> static void skinny_case(const skinny_case_t &c) {
  const auto in = random_values<T>((size_t)c.rows * c.k, 1);
  const auto weight = random_values<T>((size_t)c.n * c.k, 1);
  const auto residual = random_values<T>((size_t)c.rows * c.n, 3);
  const auto bias = random_values<float>(c.n, 3);
  std::vector<double> expected((size_t)c.rows * c.n);
  for (int r = 0; r < c.rows; r++)
    for (int n = 0; n < c.n; n++) {
      double sum = c.bias ? (double)bias[n] : 0;
      for (int k = 0; k < c.k; k++)
        sum += (double)to_float(in[(size_t)r * c.k + k]) *
               (double)to_float(weight[(size_t)n * c.k + k]);
      if (c.residual) sum += (double)to_float(residual[(size_t)r * c.n + n]);
      if (c.softcap != 0) sum = c.softcap * std::tanh(sum / c.softcap);
      expected[(size_t)r * c.n + n] = sum;
    }
  device_array<T> d_in(in), d_weight(weight), out(residual);
  device_array<float> d_bias(bias), logits(expected.size());
  gpu_skinny_t args = {};
  args.in = d_in.p, args.weight = d_weight.p, args.bias = c.bias ? d_bias.p : nullptr;
  args.residual = c.residual ? out.p : nullptr; /* in place */
  args.out = c.logits ? (void *)logits.p : (void *)out.p;
  args.rows = c.rows, args.n = c.n, args.k = c.k, args.logits = c.logits;
  args.softcap = c.softcap;
  MUST(gpu_skinny(dtype_of<T>(), &args, nullptr));
  const std::string what = "linear " + std::to_string(c.rows) + " x " + std::to_string(c.n) +
                           " x " + std::to_string(c.k);
  if (c.logits)
    check_close(what, expected, as_double(logits.get()), 1e-5, std::sqrt((double)c.k));
  else
    check_close(what, expected, as_double(out.get()), rounding_of<T>() * 1.1, 0.05);
}

TEST(skinny_shapes) {
  skinny_case<bf16_t>({1, 16, 32, false, false, false, 0});
  skinny_case<bf16_t>({1, 50, 1032, true, false, false, 0});
  skinny_case<bf16_t>({7, 33, 264, true, true, false, 0});
  skinny_case<bf16_t>({9, 24, 2048, false, true, false, 0});
  skinny_case<f16_t>({16, 17, 8, true, false, false, 0});
  skinny_case<f16_t>({31, 40, 1100 / 8 * 8, true, true, false, 0});
  skinny_case<bf16_t>({32, 16, 3000, false, false, true, 0});
  skinny_case<bf16_t>({5, 70, 512, false, false, true, 4});
}

/* The bits of a row alone and among others of any number. */
TEST(skinny_rows_do_not_depend_on_mates) {
  const int n = 40, k = 776;
  const auto in = random_values<bf16_t>((size_t)32 * k, 1);
  const auto weight = random_values<bf16_t>((size_t)n * k, 1);
  device_array<bf16_t> d_in(in), d_weight(weight);
  device_array<float> all((size_t)32 * n), one((size_t)n);
  gpu_skinny_t args = {};
  args.weight = d_weight.p, args.n = n, args.k = k, args.logits = 1;
  args.in = d_in.p, args.out = all.p, args.rows = 32;
  MUST(gpu_skinny(DTYPE_BF16, &args, nullptr));
  const auto expected = all.get();
  for (int row : {0, 7, 19, 31}) {
    args.in = d_in.p + (size_t)row * k, args.out = one.p, args.rows = 1;
    MUST(gpu_skinny(DTYPE_BF16, &args, nullptr));
    check_that(memcmp(one.get().data(), &expected[(size_t)row * n], n * sizeof(float)) == 0,
               "row " + std::to_string(row) + " alone");
  }
}

TEST(skinny_refuses) {
  gpu_skinny_t args = {};
  args.rows = 33, args.n = 16, args.k = 64;
  check_that(gpu_skinny(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue, "33 rows");
  args.rows = 1, args.k = 60;
  check_that(gpu_skinny(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue, "k of 60");
}
