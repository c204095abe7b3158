/* test_far_rows.cc: activations, weights and experts beyond 2^31 elements: the last row has the
 * bits that it has near the beginning.
 */
#include "cuda/kernels/moe.h"
#include "tests/cuda/far.h"
#include "tests/cuda/packed_case.h"
#include "tests/cuda/paged.h"

static const size_t FAR_ROWS = 600000, FAR_WIDTH = 4096, LAST = FAR_ROWS - 1;

/* [FAR_ROWS, width], of which the last row has values. */
template <class T> struct far_rows {
  std::vector<T> row;
  size_t width;
  far_memory all;
  explicit far_rows(size_t columns)
      : row(random_values<T>(columns, 1)), width(columns), all(FAR_ROWS * columns * sizeof(T)) {
    all.put(LAST * width * sizeof(T), row.data(), width * sizeof(T));
  }
  T *p() const { return (T *)all.p; }
  std::vector<T> last() const {
    const auto bytes = all.get(LAST * width * sizeof(T), width * sizeof(T));
    std::vector<T> values(width);
    memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
};

template <class T>
static void check_same(const char *what, const std::vector<T> &near, const std::vector<T> &far) {
  check_that(near.size() == far.size() && !memcmp(near.data(), far.data(), near.size() * sizeof(T)),
             std::string(what) + " of a far row");
}

/* What the last block of an activation computes of a row. */
static std::vector<bf16_t> last_half(const std::vector<bf16_t> &row) {
  return std::vector<bf16_t>(row.begin() + FAR_WIDTH / 2, row.end());
}

TEST(far_rows_of_activations) {
  const far_rows<bf16_t> in(FAR_WIDTH), gated(2 * FAR_WIDTH), out(FAR_WIDTH);
  device_array<bf16_t> row(in.row), gated_row(gated.row), near(FAR_WIDTH);
  const gpu_norm_t norm = {nullptr, nullptr, 1e-5f, 1, (int32_t)FAR_WIDTH};
  const int32_t rows = (int32_t)FAR_ROWS, width = (int32_t)FAR_WIDTH;
  MUST(gpu_norm(DTYPE_BF16, near.p, row.p, row.p, &norm, 1, nullptr));
  const auto normed = near.get();
  MUST(gpu_activate(DTYPE_BF16, near.p, row.p, GPU_GELU, width, 1, nullptr));
  const auto activated = near.get();
  MUST(gpu_activate(DTYPE_BF16, near.p, gated_row.p, GPU_SILU_MUL, width, 1, nullptr));
  const auto multiplied = near.get();
  const last_blocks_only last;
  MUST(gpu_norm(DTYPE_BF16, out.p(), in.p(), in.p(), &norm, rows, nullptr));
  check_same("norm", normed, out.last());
  MUST(gpu_activate(DTYPE_BF16, out.p(), in.p(), GPU_GELU, width, rows, nullptr));
  check_same("activation", last_half(activated), last_half(out.last()));
  MUST(gpu_activate(DTYPE_BF16, out.p(), gated.p(), GPU_SILU_MUL, width, rows, nullptr));
  check_same("gated activation", last_half(multiplied), last_half(out.last()));
}

TEST(far_rows_of_embeddings) {
  const far_rows<bf16_t> out(FAR_WIDTH);
  const auto table = random_values<bf16_t>(3 * FAR_WIDTH, 1);
  const std::vector<bf16_t> row(table.begin() + FAR_WIDTH, table.begin() + 2 * FAR_WIDTH);
  device_array<bf16_t> d_table(table);
  const gpu_table_t near = {d_table.p, 3, (int32_t)FAR_WIDTH, {}, 0};
  std::vector<int32_t> values(FAR_ROWS, -1);
  values[LAST] = 1;
  device_array<int32_t> ids(values);
  const last_blocks_only last;
  MUST(gpu_embed(DTYPE_BF16, out.p(), &near, ids.p, 1.0f, (int32_t)FAR_ROWS, nullptr));
  check_same("embedding", row, out.last());
  out.all.put(LAST * FAR_WIDTH * sizeof(bf16_t), out.row.data(), FAR_WIDTH * sizeof(bf16_t));
  MUST(gpu_gather(DTYPE_BF16, out.p(), d_table.p, ids.p, (int32_t)FAR_WIDTH, (int32_t)FAR_ROWS,
                  nullptr));
  check_same("gathered row", row, out.last());
}

TEST(far_rows_gated_and_normed_in_place) {
  const far_rows<bf16_t> in(FAR_WIDTH), gate(1), out(FAR_WIDTH);
  device_array<bf16_t> row(in.row), gate_row(gate.row), near(out.row);
  const int32_t rows = (int32_t)FAR_ROWS, width = (int32_t)FAR_WIDTH;
  const device_array<float> weight(random_values<float>(256, 1));
  MUST(gpu_gated_add(DTYPE_BF16, near.p, row.p, gate_row.p, near.p, width, 1, nullptr));
  const auto added = near.get();
  MUST(gpu_norm_columns(DTYPE_BF16, row.p + 512, width, weight.p, 1e-5f, 256, 1, nullptr));
  const auto normed = row.get();
  const last_blocks_only last;
  MUST(gpu_gated_add(DTYPE_BF16, out.p(), in.p(), gate.p(), out.p(), width, rows, nullptr));
  check_same("gated sum", added, out.last());
  MUST(gpu_norm_columns(DTYPE_BF16, in.p() + 512, width, weight.p, 1e-5f, 256, rows, nullptr));
  check_same("norm of columns", normed, in.last());
}

TEST(far_tokens_are_rotated_and_stored) {
  const paged_shape s = {28, 2, 128, 16}; /* 4,096 columns a token */
  const far_rows<bf16_t> qkv(FAR_WIDTH);
  const far_rows<float> table(128);
  device_array<bf16_t> row(qkv.row);
  device_array<float> angles(table.row);
  device_array<uint8_t> near_cache(std::vector<uint8_t>(s.block_bytes() * 2 * s.num_layers)),
      far_cache(near_cache.get());
  std::vector<int64_t> slots(FAR_ROWS, -1);
  slots[LAST] = 21;
  device_array<int64_t> far_slots(slots), near_slots(std::vector<int64_t>{21});
  const gpu_kv_t near = {near_cache.p, s.num_layers, 2, 16, 2, 128, DTYPE_BF16, 0, nullptr};
  gpu_kv_t far = near;
  gpu_rope_store_t args = {};
  args.qkv = row.p, args.slots = near_slots.p, args.table = angles.p, args.dims = 128;
  args.num_heads = s.num_heads, args.tokens = 1, args.layer = 1;
  MUST(gpu_rope_store(&near, &args, nullptr));
  const auto rotated = row.get();
  const auto stored = near_cache.get();
  const last_blocks_only last;
  far.base = far_cache.p;
  args.qkv = qkv.all.p, args.slots = far_slots.p, args.table = table.p();
  args.tokens = (int32_t)FAR_ROWS;
  MUST(gpu_rope_store(&far, &args, nullptr));
  check_same("rotation", rotated, qkv.last());
  check_same("cache", stored, far_cache.get());
}

/* Inputs, then outputs and residuals, then fp32 outputs lie beyond 2^31 elements. */
TEST(far_rows_of_linear_layers) {
  for (int which = 0; which < 3; which++) {
    const size_t k = which == 0 ? FAR_WIDTH : 32, n = which == 0 ? 16 : FAR_WIDTH;
    const far_rows<bf16_t> in(k), out(which < 2 ? n : 8);
    const far_rows<float> logits(which < 2 ? 8 : n);
    device_array<bf16_t> row(in.row), weight(random_values<bf16_t>(n * k, 1)), near(out.row);
    device_array<float> near_logits(logits.row);
    gpu_skinny_t args = {};
    args.in = row.p, args.weight = weight.p, args.out = near.p, args.rows = 1;
    args.n = (int32_t)n, args.k = (int32_t)k, args.residual = near.p;
    if (which == 2) args.logits = 1, args.out = near_logits.p, args.residual = nullptr;
    MUST(gpu_linear(DTYPE_BF16, &args, nullptr));
    const auto expected = near.get();
    const auto expected_logits = near_logits.get();
    const last_blocks_only last;
    args.in = in.p(), args.out = out.p(), args.rows = (int32_t)FAR_ROWS;
    args.residual = out.p();
    if (which == 2) args.out = logits.p(), args.residual = nullptr;
    MUST(gpu_linear(DTYPE_BF16, &args, nullptr));
    check_same(which == 0 ? "inputs of a linear layer" : "outputs of a linear layer", expected,
               out.last());
    check_same("logits", expected_logits, logits.last());
  }
}

/* 262,144 rows of 8,448 weights: the last 16, by both kernels. */
TEST(far_weights_of_linear_layers) {
  const size_t n = 262144, k = 8448, own = 16, rows = 40;
  const auto values = random_values<bf16_t>(own * k, 1);
  far_memory far(n * k * sizeof(bf16_t));
  far.put((n - own) * k * sizeof(bf16_t), values.data(), own * k * sizeof(bf16_t));
  device_array<bf16_t> weight(values), in(random_values<bf16_t>(rows * k, 1));
  device_array<float> near(rows * own), out(rows * n);
  for (int count : {3, (int)rows}) {
    gpu_skinny_t args = {};
    args.in = in.p, args.weight = weight.p, args.out = near.p, args.rows = count, args.logits = 1;
    args.n = (int32_t)own, args.k = (int32_t)k;
    MUST(gpu_linear(DTYPE_BF16, &args, nullptr));
    const auto expected = near.get();
    const last_blocks_only last;
    args.weight = far.p, args.out = out.p, args.n = (int32_t)n;
    MUST(gpu_linear(DTYPE_BF16, &args, nullptr));
    const auto all = out.get();
    std::vector<float> got;
    for (int r = 0; r < (int)rows; r++)
      for (size_t i = 0; i < own; i++)
        got.push_back(r < count ? all[(r + 1) * n - own + i] : expected[got.size()]);
    check_same(count == 3 ? "weights, few rows," : "weights, many rows,", expected, got);
  }
}

/* A packed table and layer of more than 2^32 bytes; the last panel has weights. */
TEST(far_panels_of_packed_weights) {
  const int k = 4096, panels = 140000;
  const packed_matrix_t<bf16_t> matrix(packed_form_q8_0, GPU_PANEL_ROWS, k);
  far_memory far(matrix.bytes.size() * panels);
  far.put(matrix.bytes.size() * (panels - 1), matrix.bytes.data(), matrix.bytes.size());
  const int32_t rows = panels * GPU_PANEL_ROWS, row = 3;
  device_array<uint8_t> packed(matrix.bytes);
  device_array<bf16_t> in(random_values<bf16_t>(k, 1)), near((size_t)k), out((size_t)k);
  device_array<int32_t> near_id(std::vector<int32_t>{row});
  device_array<int32_t> far_id(std::vector<int32_t>{rows - GPU_PANEL_ROWS + row});
  const gpu_table_t near_table = {packed.p, GPU_PANEL_ROWS, k, matrix.form, 0};
  const gpu_table_t far_table = {far.p, rows, k, matrix.form, 0};
  MUST(gpu_embed(DTYPE_BF16, near.p, &near_table, near_id.p, 1.5f, 1, nullptr));
  MUST(gpu_embed(DTYPE_BF16, out.p, &far_table, far_id.p, 1.5f, 1, nullptr));
  check_same("a packed embedding", near.get(), out.get());
  device_array<float> few(GPU_PANEL_ROWS), many((size_t)rows);
  gpu_skinny_t args = {};
  args.in = in.p, args.weight = packed.p, args.packed = matrix.form, args.out = few.p;
  args.rows = 1, args.n = GPU_PANEL_ROWS, args.k = k, args.logits = 1;
  MUST(gpu_linear(DTYPE_BF16, &args, nullptr));
  const auto expected = few.get();
  const last_blocks_only last;
  args.weight = far.p, args.out = many.p, args.n = rows;
  MUST(gpu_linear(DTYPE_BF16, &args, nullptr));
  const auto all = many.get();
  check_same("packed weights", expected, std::vector<float>(all.end() - GPU_PANEL_ROWS, all.end()));
}

/* Expert 1,023 of stacks of 4.3 and 2.2 * 10^9 weights, plain and packed, beside itself alone. */
template <class Stack>
static void far_expert_case(const char *what, const Stack &up, const Stack &down, size_t up_bytes,
                            size_t down_bytes, gpu_moe_t args) {
  const int32_t experts = GPU_EXPERTS_MAX, hidden = args.hidden;
  far_memory all_up(up_bytes * experts), all_down(down_bytes * experts);
  all_up.put(up_bytes * (experts - 1), up.data(), up_bytes);
  all_down.put(down_bytes * (experts - 1), down.data(), down_bytes);
  device_array<uint8_t> one_up(up_bytes), one_down(down_bytes);
  MUST(cudaMemcpy(one_up.p, up.data(), up_bytes, cudaMemcpyHostToDevice));
  MUST(cudaMemcpy(one_down.p, down.data(), down_bytes, cudaMemcpyHostToDevice));
  std::vector<float> choice(experts);
  choice.back() = 50;
  device_array<float> router(std::vector<float>((size_t)experts * hidden)), bias(choice);
  device_array<bf16_t> in(random_values<bf16_t>(hidden, 1)), near((size_t)hidden),
      out((size_t)hidden);
  device_array<uint8_t> space(gpu_moe_workspace_bytes(hidden, args.width, experts, 1));
  args.in = in.p, args.router = router.p, args.workspace = space.p, args.rows = 1, args.top_k = 1;
  args.normalise = 1, args.activation = GPU_SILU_MUL;
  args.out = near.p, args.up = one_up.p, args.down = one_down.p, args.num_experts = 1;
  MUST(gpu_moe(DTYPE_BF16, &args, nullptr));
  args.out = out.p, args.up = all_up.p, args.down = all_down.p, args.num_experts = experts;
  args.router_bias = bias.p;
  MUST(gpu_moe(DTYPE_BF16, &args, nullptr));
  check_same(what, near.get(), out.get());
}

TEST(far_experts) {
  gpu_moe_t args = {};
  args.hidden = 2048, args.width = 1040;
  const size_t up = (size_t)2 * args.width * args.hidden, down = up / 2;
  far_expert_case("an expert", random_values<bf16_t>(up, 0.1f), random_values<bf16_t>(down, 0.1f),
                  up * sizeof(bf16_t), down * sizeof(bf16_t), args);
  const packed_matrix_t<bf16_t> packed_up(packed_form_q8_0, 2 * args.width, args.hidden),
      packed_down(packed_form_q8_0, args.hidden, args.width);
  args.up_packed = packed_up.form, args.down_packed = packed_down.form;
  far_expert_case("a packed expert", packed_up.bytes, packed_down.bytes, packed_up.bytes.size(),
                  packed_down.bytes.size(), args);
}
