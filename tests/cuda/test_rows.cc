/* test_rows.cc: embed, gather, norm and activation against double references. */
#include "tests/cuda/check.h"

template <class T> static void embed_case(int width, int tokens) {
  const int rows = 37;
  const float scale = 1.7f;
  const auto table = random_values<T>((size_t)rows * width, 2);
  std::vector<int32_t> ids(tokens), positions(tokens);
  for (int t = 0; t < tokens; t++) {
    ids[t] = t == 1 ? -1 : t == 2 ? rows : random_below(rows);
    positions[t] = random_below(rows - 2);
  }
  std::vector<double> expected((size_t)tokens * width);
  for (int t = 0; t < tokens; t++)
    for (int i = 0; i < width; i++)
      if (ids[t] >= 0 && ids[t] < rows)
        expected[(size_t)t * width + i] =
            (double)to_float(table[(size_t)ids[t] * width + i]) * (double)scale;
  device_array<T> d_table(table), x((size_t)tokens * width);
  device_array<int32_t> d_ids(ids), d_positions(positions);
  const gpu_table_t args = {d_table.p, rows, width, {}, 0};
  MUST(gpu_embed(dtype_of<T>(), x.p, &args, d_ids.p, scale, tokens, nullptr));
  const auto embedded = x.get();
  check_close("embed", expected, as_double(embedded), rounding_of<T>(), smallest_normal_of<T>());
  for (int t = 0; t < tokens; t++)
    for (int i = 0; i < width; i++)
      expected[(size_t)t * width + i] =
          (double)to_float(embedded[(size_t)t * width + i]) +
          (double)to_float(table[(size_t)(positions[t] + 2) * width + i]);
  MUST(gpu_embed_positions(dtype_of<T>(), x.p, &args, d_positions.p, 2, tokens, nullptr));
  check_close("embed positions", expected, as_double(x.get()), rounding_of<T>(),
              smallest_normal_of<T>());
}

TEST(embed) {
  embed_case<bf16_t>(64, 5);
  embed_case<bf16_t>(3000, 4);
  embed_case<f16_t>(768, 9);
}

TEST(embed_positions_outside_the_table) {
  const std::vector<bf16_t> table(16 * 8, from_float<bf16_t>(1)), zeros(2 * 8);
  device_array<bf16_t> d_table(table), x(zeros);
  device_array<int32_t> positions(std::vector<int32_t>{15, -3});
  const gpu_table_t args = {d_table.p, 16, 8, {}, 0};
  MUST(gpu_embed_positions(DTYPE_BF16, x.p, &args, positions.p, 2, 2, nullptr));
  check_close("rows outside add nothing", std::vector<double>(16), as_double(x.get()), 0, 0);
}

template <class T> static void gather_case() {
  const int width = 1032, tokens = 20, rows = 7;
  const auto in = random_values<T>((size_t)tokens * width, 3);
  std::vector<int32_t> indices(rows);
  for (int s = 0; s < rows; s++) indices[s] = s == 3 ? -1 : random_below(tokens);
  std::vector<double> expected((size_t)rows * width);
  for (int s = 0; s < rows; s++)
    for (int i = 0; i < width; i++)
      if (indices[s] >= 0)
        expected[(size_t)s * width + i] = (double)to_float(in[(size_t)indices[s] * width + i]);
  device_array<T> d_in(in), out((size_t)rows * width);
  device_array<int32_t> d_indices(indices);
  MUST(gpu_gather(dtype_of<T>(), out.p, d_in.p, d_indices.p, width, rows, nullptr));
  check_close("gather", expected, as_double(out.get()), 0, 0);
}

TEST(gather) {
  gather_case<f16_t>();
  gather_case<bf16_t>();
}

struct norm_case_t {
  int width, rows, centred;
  bool weight, bias, residual;
  float shift; /* mean of the inputs: what a one-pass variance would lose */
};

template <class T> static void norm_case(const norm_case_t &c) {
  const size_t count = (size_t)c.rows * c.width;
  const float eps = 1e-5f;
  auto in = random_values<T>(count, 2);
  for (auto &x : in) x = from_float<T>(to_float(x) + c.shift);
  const auto residual = random_values<T>(count, 2);
  const auto weight = random_values<float>(c.width, 2), bias = random_values<float>(c.width, 1);
  std::vector<double> expected(count);
  for (int r = 0; r < c.rows; r++) {
    double mean = 0, square = 0;
    for (int i = 0; i < c.width; i++) mean += (double)to_float(in[(size_t)r * c.width + i]);
    mean = c.centred ? mean / c.width : 0;
    for (int i = 0; i < c.width; i++)
      square += std::pow((double)to_float(in[(size_t)r * c.width + i]) - mean, 2);
    for (int i = 0; i < c.width; i++) {
      const size_t at = (size_t)r * c.width + i;
      double y = ((double)to_float(in[at]) - mean) / std::sqrt(square / c.width + (double)eps);
      if (c.weight) y *= (double)weight[i];
      if (c.bias) y += (double)bias[i];
      if (c.residual) y += (double)to_float(residual[at]);
      expected[at] = y;
    }
  }
  device_array<T> d_in(in), d_residual(residual), out(count);
  device_array<float> d_weight(weight), d_bias(bias);
  const float *w = c.weight ? d_weight.p : nullptr, *b = c.bias ? d_bias.p : nullptr;
  const T *add = c.residual ? d_residual.p : nullptr;
  const gpu_norm_t args = {w, b, eps, c.centred, c.width};
  const std::string what = "norm of " + std::to_string(c.width);
  MUST(gpu_norm(dtype_of<T>(), out.p, d_in.p, add, &args, c.rows, nullptr));
  check_close(what, expected, as_double(out.get()), rounding_of<T>() * 1.1, 0.02);
  MUST(gpu_norm(dtype_of<T>(), d_in.p, d_in.p, add, &args, c.rows, nullptr));
  check_close(what + " in place", expected, as_double(d_in.get()), rounding_of<T>() * 1.1, 0.02);
}

TEST(norm) {
  norm_case<bf16_t>({64, 3, 0, true, false, false, 0});
  norm_case<bf16_t>({2048, 2, 0, true, false, true, 0});
  norm_case<bf16_t>({4096, 2, 1, true, true, true, 0});
  norm_case<f16_t>({768, 5, 1, true, true, false, 3});
  norm_case<f16_t>({1000, 5, 0, false, false, false, 0});
}

static double activation_reference(gpu_activation_t kind, double x) {
  switch (kind) {
  case GPU_RELU: return x < 0 ? 0 : x;
  case GPU_RELU2: return x < 0 ? 0 : x * x;
  case GPU_GELU: return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
  case GPU_SILU_MUL: return x / (1 + std::exp(-x));
  default: return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  }
}

template <class T> static void activation_case(gpu_activation_t kind, int width, int rows) {
  const bool gated = kind >= GPU_SILU_MUL;
  auto in = random_values<T>((size_t)rows * width * (gated ? 2 : 1), 9);
  in[0] = from_float<T>(-100), in[1] = from_float<T>(100);
  std::vector<double> expected((size_t)rows * width);
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < width; i++) {
      const T *row = in.data() + (size_t)r * width * (gated ? 2 : 1);
      const double x = (double)to_float(row[i]), up = gated ? (double)to_float(row[width + i]) : 1;
      double y = activation_reference(kind, x) * up;
      if (kind == GPU_CLAMPED_SWIGLU) {
        const double gate = std::min(x, 7.0);
        y = (std::min(std::max(up, -7.0), 7.0) + 1) * gate / (1 + std::exp(-1.702 * gate));
      }
      expected[(size_t)r * width + i] = y;
    }
  device_array<T> d_in(in), out(expected.size());
  MUST(gpu_activate(dtype_of<T>(), out.p, d_in.p, kind, width, rows, nullptr));
  /* 1 + erf(x) loses digits where it is near 0: up to some 1e-6 of the result are absolute. */
  const double tolerance = rounding_of<T>() * 1.1;
  check_close("activation " + std::to_string(kind), expected, as_double(out.get()), tolerance,
              4e-6 / tolerance);
}

TEST(activation) {
  for (int kind = GPU_RELU; kind <= GPU_CLAMPED_SWIGLU; kind++) {
    activation_case<bf16_t>((gpu_activation_t)kind, 72, 3);
    activation_case<f16_t>((gpu_activation_t)kind, 4096, 2);
  }
}

TEST(shapes_that_are_refused) {
  device_array<bf16_t> x((size_t)64);
  const gpu_norm_t odd = {nullptr, nullptr, 1e-5f, 0, 12};
  check_that(gpu_norm(DTYPE_BF16, x.p, x.p, nullptr, &odd, 1, nullptr) ==
                 (int)cudaErrorInvalidValue,
             "a width that is no multiple of 8");
  check_that(gpu_gather(DTYPE_F32, x.p, x.p, nullptr, 8, 1, nullptr) == (int)cudaErrorInvalidValue,
             "fp32 activations");
  check_that(gpu_gather(DTYPE_BF16, x.p, x.p, nullptr, 8, 0, nullptr) == 0, "no rows at all");
}

template <class T> static void gated_add_case() {
  const int width = 264, rows = 3;
  const auto in = random_values<T>(width * rows, 2), residual = in,
             gate = random_values<T>(rows, 3);
  std::vector<double> expected(width * rows);
  for (int i = 0; i < width * rows; i++)
    expected[i] = (double)to_float(residual[i]) +
                  (double)to_float(in[i]) / (1 + std::exp(-(double)to_float(gate[i / width])));
  device_array<T> d_in(in), d_gate(gate), out(residual);
  MUST(gpu_gated_add(dtype_of<T>(), out.p, d_in.p, d_gate.p, out.p, width, rows, nullptr));
  check_close("gated add", expected, as_double(out.get()), rounding_of<T>() * 1.1, 0.01);
}

TEST(gated_add) {
  gated_add_case<bf16_t>();
  gated_add_case<f16_t>();
}
