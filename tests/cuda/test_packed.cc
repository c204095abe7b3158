/* test_packed.cc: layers of packed weights have the bits of the same numbers unpacked. */
#include "cuda/kernels/moe.h"
#include "tests/cuda/packed_case.h"

struct layer_case_t {
  int rows, n, k;
  bool bias = false, residual = false, logits = false, norm = false;
  int activation = -1, workers = 0;
};

template <class T> static void layer_case(const packed_form_t &form, const layer_case_t &c) {
  const bool gated = c.activation >= GPU_SILU_MUL;
  const packed_matrix_t<T> matrix(form, gated ? 2 * c.n : c.n, c.k);
  const size_t outputs = (size_t)c.rows * c.n;
  device_array<uint8_t> packed(matrix.bytes);
  device_array<T> plain(matrix.values), in(random_values<T>((size_t)c.rows * c.k, 1));
  device_array<T> residual(random_values<T>(outputs, 1)), out(outputs);
  device_array<float> bias(random_values<float>(2 * c.n, 1)), norm(random_values<float>(c.k, 2));
  device_array<float> logits(outputs), partial(gpu_skinny_partial_bytes(c.rows, c.n) / 4);
  device_array<int32_t> tickets(std::vector<int32_t>(c.n / 8 + 1));
  gpu_skinny_t args = {};
  args.in = in.p, args.weight = plain.p, args.bias = c.bias ? bias.p : nullptr;
  args.residual = c.residual ? residual.p : nullptr;
  args.out = c.logits ? (void *)logits.p : (void *)out.p;
  args.rows = c.rows, args.n = c.n, args.k = c.k, args.logits = c.logits;
  args.norm = c.norm, args.norm_weight = norm.p, args.norm_eps = 1e-5f;
  args.activate = c.activation >= 0;
  args.activation = args.activate ? (gpu_activation_t)c.activation : GPU_RELU;
  if (c.workers > 0) args.partial = partial.p, args.tickets = tickets.p, args.workers = c.workers;
  MUST(gpu_linear(dtype_of<T>(), &args, nullptr));
  const auto expected_logits = logits.get();
  const auto expected = out.get();
  MUST(cudaMemset(out.p, 0, out.bytes()));
  MUST(cudaMemset(logits.p, 0, logits.bytes()));
  args.weight = packed.p, args.packed = matrix.form;
  MUST(gpu_linear(dtype_of<T>(), &args, nullptr));
  const std::string what = std::string(form.name) + " " + name_of<T>() + ": " +
                           std::to_string(c.rows) + " x " + std::to_string(c.n) + " x " +
                           std::to_string(c.k);
  if (c.logits)
    check_that(memcmp(logits.get().data(), expected_logits.data(), logits.bytes()) == 0, what);
  else
    check_that(memcmp(out.get().data(), expected.data(), out.bytes()) == 0, what);
}

TEST(packed_few_rows) {
  for (const packed_form_t &form : packed_forms) {
    layer_case<bf16_t>(form, {1, 16, 256, false, false, true});
    layer_case<bf16_t>(form, {3, 37, 1032, true, true});
    layer_case<f16_t>(form, {9, 41, 2312, true, false, true});
    layer_case<bf16_t>(form, {32, 40, 520, false, true});
    layer_case<f16_t>(form, {5, 70, 8, true});
    layer_case<bf16_t>(form, {11, 20, 264, false, true});
  }
}

/* Spans that do not begin where units do: 11,008 columns are 16 spans of 704. */
TEST(packed_spans_across_units) {
  for (const packed_form_t &form : packed_forms) {
    layer_case<bf16_t>(form, {2, 16, 11008, false, false, true});
    layer_case<bf16_t>(form, {17, 16, 3584, false, false, true});
  }
}

TEST(packed_fused) {
  for (const packed_form_t &form : packed_forms) {
    layer_case<bf16_t>(form, {7, 36, 776, true, false, false, true, GPU_SILU_MUL});
    layer_case<f16_t>(form, {18, 21, 512, true, false, false, false, GPU_GELU_TANH_MUL});
    layer_case<bf16_t>(form, {1, 40, 264, false, false, false, true, GPU_RELU2, 9});
    layer_case<f16_t>(form, {2, 24, 136, false, true, false, true});
  }
  layer_case<bf16_t>(packed_forms[0],
                     {4, 16, GPU_PACKED_NORM_VALUES / 4, false, false, false, true});
}

TEST(packed_split) {
  for (const packed_form_t &form : packed_forms) {
    layer_case<bf16_t>(form, {7, 70, 1032, true, true, false, false, -1, 16});
    layer_case<f16_t>(form, {20, 50, 520, false, false, true, false, -1, 100});
  }
}

TEST(packed_many_rows) {
  for (const packed_form_t &form : packed_forms) {
    layer_case<bf16_t>(form, {33, 50, 40, true, true});
    layer_case<f16_t>(form, {130, 140, 1100 / 8 * 8, false, false, true});
    layer_case<bf16_t>(form, {65, 72, 136, true, false, false, false, GPU_SILU_MUL});
    layer_case<f16_t>(form, {64, 40, 264, true, true, false, false, -1, 16});
    layer_case<bf16_t>(form, {129, 20, 72, false, true});
  }
  for (int rows : {127, 128}) layer_case<bf16_t>(packed_forms[0], {rows, 40, 72, true, true});
}

/* Rows of a list, in launches of 32 and in tiles. */
TEST(packed_mapped_rows) {
  const int n = 24, k = 136;
  for (const packed_form_t &form : packed_forms) {
    const packed_matrix_t<bf16_t> matrix(form, n, k);
    device_array<uint8_t> packed(matrix.bytes);
    device_array<bf16_t> in(random_values<bf16_t>((size_t)300 * k, 1)), out((size_t)300 * n);
    device_array<bf16_t> listed((size_t)300 * n);
    std::vector<int32_t> reversed(300);
    for (int i = 0; i < 300; i++) reversed[i] = 299 - i;
    device_array<int32_t> map(reversed);
    gpu_skinny_t args = {};
    args.in = in.p, args.weight = packed.p, args.packed = matrix.form, args.out = out.p;
    args.rows = 300, args.n = n, args.k = k;
    MUST(gpu_linear(dtype_of<bf16_t>(), &args, nullptr));
    args.row_map = map.p, args.out = listed.p, args.rows = 40;
    MUST(gpu_linear(dtype_of<bf16_t>(), &args, nullptr));
    const auto all = out.get(), some = listed.get();
    for (int i = 0; i < 40; i++)
      check_that(memcmp(&some[(size_t)i * n], &all[(size_t)(299 - i) * n], n * sizeof some[0]) == 0,
                 std::string(form.name) + " listed row " + std::to_string(i));
  }
}

/* Experts whose rows are no whole panels; few rows an expert, many, and tiles of them. */
template <class T>
static void experts_case(const packed_form_t &form, const std::vector<int> &row_counts) {
  const int hidden = 136, width = 36 / 8 * 8 + 8, experts = 3, top = 2;
  const packed_matrix_t<T> up(form, experts * 2 * width, hidden),
      down(form, experts * hidden, width);
  device_array<uint8_t> up_packed(up.bytes), down_packed(down.bytes);
  device_array<T> up_plain(up.values), down_plain(down.values);
  device_array<float> router(random_values<float>(experts * hidden, 0.5f));
  device_array<uint8_t> space(gpu_moe_workspace_bytes(hidden, width, experts, top));
  for (int rows : row_counts) {
    const size_t count = (size_t)rows * hidden;
    device_array<T> in(random_values<T>(count, 1)), out(count), other(count);
    device_array<T> residual(random_values<T>(count, 1));
    gpu_moe_t args = {};
    args.in = in.p, args.residual = residual.p, args.out = out.p, args.router = router.p;
    args.up = up_plain.p, args.down = down_plain.p, args.workspace = space.p;
    args.rows = rows, args.hidden = hidden, args.width = width, args.num_experts = experts;
    args.top_k = top, args.normalise = 1, args.activation = GPU_SILU_MUL;
    MUST(gpu_moe(dtype_of<T>(), &args, nullptr));
    args.out = other.p, args.up = up_packed.p, args.up_packed = up.form;
    MUST(gpu_moe(dtype_of<T>(), &args, nullptr));
    check_that(memcmp(out.get().data(), other.get().data(), out.bytes()) == 0,
               std::string(form.name) + " up, " + std::to_string(rows) + " rows");
    args.down = down_packed.p, args.down_packed = down.form;
    MUST(gpu_moe(dtype_of<T>(), &args, nullptr));
    check_that(memcmp(out.get().data(), other.get().data(), out.bytes()) == 0,
               std::string(form.name) + " both, " + std::to_string(rows) + " rows");
  }
}

TEST(packed_experts) {
  for (const packed_form_t &form : packed_forms) {
    experts_case<bf16_t>(form, {1, 20, 60, 200});
    experts_case<f16_t>(form, {20, 200});
  }
}

template <class T> static void embeddings_case(const packed_form_t &form) {
  const int rows = 21, width = 264, tokens = 5;
  const std::vector<int32_t> wanted = {3, 20, -1, 0, 21};
  device_array<int32_t> ids(wanted);
  const packed_matrix_t<T> matrix(form, rows, width);
  device_array<uint8_t> packed(matrix.bytes);
  device_array<T> plain(matrix.values), out((size_t)tokens * width), other(out.count);
  const gpu_table_t table = {plain.p, rows, width, {}, 0};
  const gpu_table_t small = {packed.p, rows, width, matrix.form, 0};
  MUST(gpu_embed(dtype_of<T>(), out.p, &table, ids.p, 1.5f, tokens, nullptr));
  MUST(gpu_embed(dtype_of<T>(), other.p, &small, ids.p, 1.5f, tokens, nullptr));
  check_that(memcmp(out.get().data(), other.get().data(), out.bytes()) == 0,
             std::string(form.name) + " embedded");
  MUST(gpu_embed_positions(dtype_of<T>(), out.p, &table, ids.p, 2, tokens, nullptr));
  MUST(gpu_embed_positions(dtype_of<T>(), other.p, &small, ids.p, 2, tokens, nullptr));
  check_that(memcmp(out.get().data(), other.get().data(), out.bytes()) == 0,
             std::string(form.name) + " positions");
}

TEST(packed_embeddings) {
  for (const packed_form_t &form : packed_forms) {
    embeddings_case<bf16_t>(form);
    embeddings_case<f16_t>(form);
  }
}

/* Rows of a matrix, from any on, in the bits of the numbers that were packed. */
template <class T>
static void unpack_case(const packed_form_t &form, int first, int count, int cols) {
  const packed_matrix_t<T> matrix(form, first + count + 5, cols);
  device_array<uint8_t> packed(matrix.bytes);
  device_array<T> out((size_t)(count + 1) * cols);
  const gpu_unpack_rows_t rows = {first, count, cols};
  MUST(cudaMemset(out.p, 0x55, out.bytes()));
  MUST(gpu_unpack(dtype_of<T>(), out.p, &matrix.form, packed.p, &rows, nullptr));
  const auto got = out.get();
  const std::string what = std::string(form.name) + " " + name_of<T>() +
                           " unpacked: " + std::to_string(first) + " + " + std::to_string(count) +
                           " of " + std::to_string(cols);
  check_that(memcmp(got.data(), &matrix.values[(size_t)first * cols],
                    (size_t)count * cols * sizeof(T)) == 0,
             what);
  const uint8_t *behind = (const uint8_t *)&got[(size_t)count * cols];
  for (size_t i = 0; i < cols * sizeof(T); i++)
    if (behind[i] != 0x55) check_that(false, what + ": writes behind the last row");
}

TEST(packed_unpacked) {
  for (const packed_form_t &form : packed_forms) {
    unpack_case<bf16_t>(form, 0, 21, 264);
    unpack_case<f16_t>(form, 3, 13, 136);
    unpack_case<bf16_t>(form, 128, 9, 1032);
    unpack_case<f16_t>(form, 7, 1, 8);
  }
}

/* Slices of a matrix, unpacked and multiplied as plain weights, have the bits of the packed layer
 * and leave the columns of the others alone. */
template <class T> static void slices_case(const packed_form_t &form, const layer_case_t &c) {
  const packed_matrix_t<T> matrix(form, c.n, c.k);
  const size_t outputs = (size_t)c.rows * c.n, width = c.logits ? sizeof(float) : sizeof(T);
  const int cut = (c.n / 2 + 7) / 8 * 8;
  device_array<uint8_t> packed(matrix.bytes), whole(outputs * width), parts(outputs * width);
  device_array<T> slice((size_t)c.n * c.k), in(random_values<T>((size_t)c.rows * c.k, 1));
  device_array<T> residual(random_values<T>(outputs, 1));
  device_array<float> bias(random_values<float>(c.n, 1));
  gpu_skinny_t args = {};
  args.in = in.p, args.weight = packed.p, args.packed = matrix.form, args.out = whole.p;
  args.bias = c.bias ? bias.p : nullptr, args.residual = c.residual ? residual.p : nullptr;
  args.rows = c.rows, args.n = c.n, args.k = c.k, args.logits = c.logits;
  MUST(gpu_linear(dtype_of<T>(), &args, nullptr));
  for (int first = 0; first < c.n; first += cut) {
    gpu_skinny_t part = args;
    part.packed = {}, part.weight = slice.p, part.stride = c.n;
    part.n = c.n - first < cut ? c.n - first : cut;
    part.out = parts.p + first * width;
    if (c.bias) part.bias = bias.p + first;
    if (c.residual) part.residual = residual.p + first;
    const gpu_unpack_rows_t rows = {first, part.n, c.k};
    MUST(gpu_unpack(dtype_of<T>(), slice.p, &matrix.form, packed.p, &rows, nullptr));
    MUST(gpu_linear(dtype_of<T>(), &part, nullptr));
  }
  check_that(memcmp(whole.get().data(), parts.get().data(), whole.bytes()) == 0,
             std::string(form.name) + " in slices, " + std::to_string(c.rows) + " rows");
}

TEST(packed_slices) {
  for (const packed_form_t &form : packed_forms) {
    slices_case<bf16_t>(form, {140, 40, 264, true, true});
    slices_case<f16_t>(form, {129, 24, 136, true, false, true});
  }
  slices_case<bf16_t>(packed_forms[0], {5, 40, 264, true, true});
  slices_case<f16_t>(packed_forms[2], {40, 136, 72, false, true});
}

TEST(packed_refuses) {
  gpu_skinny_t args = {};
  args.packed.codes = GPU_CODES_8;
  args.rows = GPU_NORM_ROWS_MAX + 1, args.n = 16, args.k = 64, args.norm = 1;
  check_that(gpu_linear(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue, "normed rows");
  args.rows = 4, args.k = GPU_PACKED_NORM_VALUES / 4 + 8;
  check_that(gpu_linear(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue, "normed values");
  args.norm = 0, args.stride = args.n - 1;
  check_that(gpu_linear(DTYPE_BF16, &args, nullptr) == (int)cudaErrorInvalidValue, "stride");
  const gpu_unpack_rows_t rows = {0, 4, 12};
  check_that(gpu_unpack(DTYPE_BF16, nullptr, &args.packed, nullptr, &rows, nullptr) ==
                 (int)cudaErrorInvalidValue,
             "12 columns unpacked");
}
