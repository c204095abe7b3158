/* test_skinny.cc: linear layers against double, and their bits in every way of computing them. */
#include "tests/cuda/check.h"

struct skinny_case_t {
  int rows, n, k;
  bool bias, residual, logits;
  float softcap;
  int workers = 0; /* > 0: tiles may be split */
  bool norm = false;
  int activation = -1;
  bool gated() const { return activation >= GPU_SILU_MUL; }
};

/* A layer's arrays on the device. Outputs begin as the residual: the layer works in place. */
template <class T> struct linear_device {
  std::vector<T> h_in, h_weight, h_residual;
  std::vector<float> h_bias, h_norm;
  device_array<T> in, weight, out;
  device_array<float> bias, norm, logits, partial;
  device_array<int32_t> tickets;
  gpu_skinny_t args = {};

  explicit linear_device(const skinny_case_t &c)
      : h_in(random_values<T>((size_t)c.rows * c.k, 1)),
        h_weight(random_values<T>((size_t)c.n * c.k * (c.gated() ? 2 : 1), 1)),
        h_residual(random_values<T>((size_t)c.rows * c.n, 3)),
        h_bias(random_values<float>((size_t)c.n * 2, 3)), h_norm(random_values<float>(c.k, 2)),
        in(h_in), weight(h_weight), out(h_residual), bias(h_bias), norm(h_norm),
        logits((size_t)c.rows * c.n), partial(gpu_skinny_partial_bytes(c.rows, c.n) / 4),
        tickets(std::vector<int32_t>(c.n / 8 + 1)) {
    args.in = in.p, args.weight = weight.p, args.bias = c.bias ? bias.p : nullptr;
    args.residual = c.residual ? out.p : nullptr;
    args.out = c.logits ? (void *)logits.p : (void *)out.p;
    args.rows = c.rows, args.n = c.n, args.k = c.k, args.logits = c.logits;
    args.softcap = c.softcap;
    args.norm = c.norm, args.norm_weight = norm.p, args.norm_eps = 1e-5f;
    args.activate = c.activation >= 0;
    args.activation = args.activate ? (gpu_activation_t)c.activation : GPU_RELU;
    if (c.workers > 0) args.partial = partial.p, args.tickets = tickets.p, args.workers = c.workers;
  }
};

static double activation_of(int kind, double x) {
  if (kind == GPU_RELU) return x < 0 ? 0 : x;
  if (kind == GPU_RELU2) return x < 0 ? 0 : x * x;
  if (kind == GPU_GELU) return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  if (kind == GPU_SILU_MUL) return x / (1 + std::exp(-x));
  return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

template <class T>
static std::vector<double> linear_reference(const skinny_case_t &c, const linear_device<T> &d) {
  std::vector<double> out((size_t)c.rows * c.n), x(c.k);
  for (int r = 0; r < c.rows; r++) {
    double square = 0;
    for (int k = 0; k < c.k; k++) {
      x[k] = (double)to_float(d.h_in[(size_t)r * c.k + k]);
      square += x[k] * x[k];
    }
    for (int k = 0; k < c.k && c.norm; k++) {
      x[k] *= (double)d.h_norm[k] / std::sqrt(square / c.k + 1e-5);
      x[k] = (double)to_float(from_float<T>((float)x[k]));
    }
    for (int n = 0; n < c.n; n++) {
      double sums[2];
      for (int up = 0; up < (c.gated() ? 2 : 1); up++) {
        const size_t row = (size_t)up * c.n + n;
        sums[up] = c.bias ? (double)d.h_bias[row] : 0;
        for (int k = 0; k < c.k; k++)
          sums[up] += x[k] * (double)to_float(d.h_weight[row * c.k + k]);
      }
      double sum = c.activation >= 0 ? activation_of(c.activation, sums[0]) : sums[0];
      if (c.gated()) sum *= sums[1];
      if (c.residual) sum += (double)to_float(d.h_residual[(size_t)r * c.n + n]);
      if (c.softcap != 0) sum = c.softcap * std::tanh(sum / c.softcap);
      out[(size_t)r * c.n + n] = sum;
    }
  }
  return out;
}

static std::string describe(const skinny_case_t &c) {
  return std::to_string(c.rows) + " x " + std::to_string(c.n) + " x " + std::to_string(c.k) +
         (c.norm ? " normed" : "") + (c.workers > 0 ? " split" : "") +
         (c.activation >= 0 ? " activation " + std::to_string(c.activation) : "");
}

/* How many roundings of the type may add up: the sum (twice, where it is squared), the activation,
 * the product with a gate. */
static double roundings_of(const skinny_case_t &c) {
  return c.gated() ? 4 : c.activation == GPU_RELU2 ? 3 : 2;
}

template <class T> static void skinny_case(const skinny_case_t &c) {
  linear_device<T> d(c);
  MUST(gpu_linear(dtype_of<T>(), &d.args, nullptr));
  const std::vector<double> expected = linear_reference(c, d);
  const std::string what = "linear " + describe(c);
  if (c.logits)
    check_close(what, expected, as_double(d.logits.get()), 1e-5, std::sqrt((double)c.k));
  else if (c.activation >= 0 || c.norm)
    check_rows(what, expected, as_double(d.out.get()), c.n, rounding_of<T>() * roundings_of(c));
  else
    check_close(what, expected, as_double(d.out.get()), rounding_of<T>() * 1.1, 0.05);
  for (int32_t ticket : d.tickets.get()) check_that(ticket == 0, what + ": tickets stay zero");
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

TEST(linear_fused) {
  skinny_case<bf16_t>({3, 40, 776, false, false, false, 0, 0, true});
  skinny_case<f16_t>({8, 24, 2056, true, true, false, 0, 9, true});
  for (int kind = GPU_RELU; kind <= GPU_GELU_TANH_MUL; kind++) {
    skinny_case<bf16_t>({5, 36, 264, true, false, false, 0, 0, kind % 2 == 0, kind});
    skinny_case<f16_t>({18, 21, 512, kind % 2 == 0, false, false, 0, 3, false, kind});
    skinny_case<f16_t>({7, 21, 512, kind % 2 == 1, false, false, 0, 3, true, kind});
  }
}

TEST(linear_split) {
  skinny_case<bf16_t>({1, 16, 32, false, false, false, 0, 4});
  skinny_case<bf16_t>({7, 70, 1032, true, true, false, 0, 16});
  skinny_case<f16_t>({32, 50, 520, true, true, false, 0, 3});
  skinny_case<bf16_t>({12, 33, 2048, false, false, true, 3, 100});
}

TEST(linear_of_many_rows) {
  skinny_case<bf16_t>({33, 50, 40, true, true, false, 0});
  skinny_case<f16_t>({130, 140, 264, false, false, false, 0});
  skinny_case<bf16_t>({40, 70, 1000, true, false, true, 5});
  skinny_case<bf16_t>({65, 72, 136, true, false, false, 0, 0, false, GPU_SILU_MUL});
}

/* The bits of a row in layers of 1, 8, 32, 33 and 200 rows, split or not. */
TEST(linear_bits_do_not_depend_on_rows) {
  for (int k : {72, 776, 2048}) {
    const int n = 40;
    linear_device<bf16_t> d({200, n, k, true, false, true, 0});
    MUST(gpu_linear(DTYPE_BF16, &d.args, nullptr));
    const auto expected = d.logits.get();
    for (int rows : {1, 8, 9, 32, 33}) {
      const int first = random_below(200 - rows);
      device_array<float> out((size_t)rows * n);
      gpu_skinny_t args = d.args;
      args.in = d.in.p + (size_t)first * k, args.out = out.p, args.rows = rows;
      for (int workers : {1, 5, 50}) {
        args.partial = d.partial.p, args.tickets = d.tickets.p, args.workers = workers;
        MUST(gpu_linear(DTYPE_BF16, &args, nullptr));
        check_that(memcmp(out.get().data(), &expected[(size_t)first * n],
                          (size_t)rows * n * sizeof(float)) == 0,
                   std::to_string(rows) + " of 200 rows, k " + std::to_string(k) + ", " +
                       std::to_string(workers) + " workers");
      }
    }
  }
}

/* Output c - 1 is the sum of 1, the last product before cut c of K, and of two large ones behind it
 * that cancel: the 1 keeps its place only if a span ends between them. linear_parts.h promises 16
 * spans of equal length, in whole steps of 32 columns. */
static void spans_case(int rows, int k, int workers) {
  const int span = (k + 511) / 512 * 32, cuts = (k - 1) / span;
  const float large = 1 << 30;
  std::vector<bf16_t> weights((size_t)cuts * k, from_float<bf16_t>(0));
  for (int c = 1; c <= cuts; c++) {
    bf16_t *row = &weights[(size_t)(c - 1) * k];
    row[c * span - 1] = from_float<bf16_t>(1);
    row[c * span] = from_float<bf16_t>(large);
    row[std::min((c + 1) * span, k) - 1] = from_float<bf16_t>(-large);
  }
  device_array<bf16_t> in(std::vector<bf16_t>((size_t)rows * k, from_float<bf16_t>(1)));
  device_array<bf16_t> weight(weights);
  device_array<float> out((size_t)rows * cuts), partial(gpu_skinny_partial_bytes(rows, cuts) / 4);
  device_array<int32_t> tickets(std::vector<int32_t>(cuts / 8 + 1));
  gpu_skinny_t args = {};
  args.in = in.p, args.weight = weight.p, args.out = out.p, args.logits = 1;
  args.rows = rows, args.n = cuts, args.k = k;
  args.partial = partial.p, args.tickets = tickets.p, args.workers = workers;
  MUST(gpu_linear(DTYPE_BF16, &args, nullptr));
  check_that(out.get() == std::vector<float>((size_t)rows * cuts, 1.0f),
             std::to_string(rows) + " rows of " + std::to_string(k) + " columns, " +
                 std::to_string(workers) + " workers: cuts of K");
}

TEST(linear_spans) {
  for (int k : {512, 1304, 1536, 2048}) {
    spans_case(1, k, 1);
    spans_case(20, k, 50);
    spans_case(40, k, 1);
  }
}

/* A fused layer and the same operations one by one. */
template <class T> static void fused_case(int rows, int n, int k, int kind) {
  linear_device<T> d({rows, n, k, true, false, false, 0, 0, true, kind});
  MUST(gpu_linear(dtype_of<T>(), &d.args, nullptr));
  const std::vector<T> fused = d.out.get();
  const bool gated = kind >= GPU_SILU_MUL;
  const int width = gated ? 2 * n : n;
  device_array<T> normed((size_t)rows * k), sums((size_t)rows * width), out((size_t)rows * n);
  const gpu_norm_t norm = {d.norm.p, nullptr, 1e-5f, 0, k};
  MUST(gpu_norm(dtype_of<T>(), normed.p, d.in.p, nullptr, &norm, rows, nullptr));
  gpu_skinny_t args = d.args;
  args.in = normed.p, args.out = sums.p, args.n = width, args.norm = 0, args.activate = 0;
  MUST(gpu_linear(dtype_of<T>(), &args, nullptr));
  MUST(gpu_activate(dtype_of<T>(), out.p, sums.p, (gpu_activation_t)kind, n, rows, nullptr));
  check_that(memcmp(out.get().data(), fused.data(), fused.size() * sizeof(T)) == 0,
             "fused and separate: " + std::to_string(rows) + " rows, k " + std::to_string(k) +
                 ", activation " + std::to_string(kind));
}

TEST(linear_fused_bits) {
  for (int kind = GPU_RELU; kind <= GPU_CLAMPED_SWIGLU; kind++) {
    fused_case<bf16_t>(3, 40, 200, kind);
    fused_case<f16_t>(8, 24, 2304, kind);
  }
}

TEST(skinny_refuses) {
  gpu_skinny_t args = {};
  args.rows = 33, args.n = 16, args.k = 64;
  check_that(gpu_skinny(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue, "33 rows");
  args.norm = 1;
  for (int rows : {9, 33}) {
    args.rows = rows;
    check_that(gpu_linear(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue,
               std::to_string(rows) + " normed rows");
  }
  args.norm = 0;
  args.rows = 1, args.k = 60;
  check_that(gpu_skinny(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue, "k of 60");
}
