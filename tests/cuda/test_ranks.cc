/* test_ranks.cc: what devices of several ranks do between their exchanges, beside plain loops. */
#include "cuda/kernels/ranks/ranks.h"
#include "tests/cuda/check.h"

/* Cuts of `all` columns in multiples of `unit`; a part may be empty. */
static gpu_cuts_t random_cuts(int size, int all, int unit) {
  std::vector<int> at = {0, all};
  for (int r = 1; r < size; r++) at.push_back(random_below(all / unit + 1) * unit);
  std::sort(at.begin(), at.end());
  return gpu_cuts_of(size, at.data());
}

/* The columns of each rank, one rank behind the other. */
template <class T>
static std::vector<T> split(const std::vector<T> &whole, const gpu_cuts_t &cuts, int rows) {
  std::vector<T> parts;
  const int width = cuts.at[cuts.size];
  for (int r = 0; r < cuts.size; r++)
    for (int row = 0; row < rows; row++)
      for (int i = cuts.at[r]; i < cuts.at[r + 1]; i++)
        parts.push_back(whole[(size_t)row * width + i]);
  return parts;
}

TEST(rank_columns_come_together) {
  for (int size = 2; size <= 5; size++) {
    const int width = 8 * (40 + random_below(300)), rows = 1 + random_below(6);
    const gpu_cuts_t cuts = random_cuts(size, width, 8);
    const auto whole = random_values<bf16_t>((size_t)rows * width, 3);
    device_array<bf16_t> parts(split(whole, cuts, rows)), out(whole.size()), in(whole);
    MUST(gpu_rank_spread(out.p, parts.p, &cuts, rows, nullptr));
    check_close("columns", as_double(whole), as_double(out.get()), 0, 0);
    device_array<bf16_t> apart(whole.size());
    MUST(gpu_rank_split(apart.p, in.p, &cuts, rows, nullptr));
    check_close("columns apart", as_double(parts.get()), as_double(apart.get()), 0, 0);
    for (int r = 0; r < size; r++) {
      const int own = cuts.at[r + 1] - cuts.at[r];
      if (own == 0) continue;
      device_array<bf16_t> taken((size_t)rows * own);
      std::vector<double> expected;
      for (int row = 0; row < rows; row++)
        for (int i = cuts.at[r]; i < cuts.at[r + 1]; i++)
          expected.push_back(to_float(whole[(size_t)row * width + i]));
      MUST(gpu_rank_take(taken.p, in.p, cuts.at[r], own, width, rows, nullptr));
      check_close("own columns", expected, as_double(taken.get()), 0, 0);
    }
  }
}

TEST(rank_logits_come_together_at_any_cut) {
  const int width = 1003, rows = 3;
  const gpu_cuts_t cuts = random_cuts(4, width, 1);
  std::vector<float> whole((size_t)rows * width);
  for (auto &v : whole) v = random_float(9);
  device_array<float> parts(split(whole, cuts, rows)), out(whole.size());
  MUST(gpu_rank_spread_floats(out.p, parts.p, &cuts, rows, nullptr));
  check_that(out.get() == whole, "logits of all ranks");
}

/* The sum of bf16 parts in fp32, in the order of the ranks, rounded once. */
template <class T> static void add_case(int ranks, bool with_residual) {
  const int width = 8 * (1 + random_below(500)), rows = 1 + random_below(4);
  const size_t count = (size_t)rows * width;
  const auto parts = random_values<T>(count * ranks, 5), residual = random_values<T>(count, 5);
  std::vector<double> expected(count);
  for (size_t i = 0; i < count; i++) {
    volatile float sum = to_float(parts[i]);
    for (int r = 1; r < ranks; r++) sum = sum + to_float(parts[r * count + i]);
    if (with_residual) sum = sum + to_float(residual[i]);
    expected[i] = to_float(from_float<T>(sum));
  }
  device_array<T> d_parts(parts), out(residual); /* the residual may be the output */
  MUST(gpu_rank_add(dtype_of<T>(), out.p, d_parts.p, with_residual ? out.p : nullptr, ranks, width,
                    rows, nullptr));
  check_close("sums of ranks", expected, as_double(out.get()), 0, 0);
}

TEST(rank_sums_are_added_in_order) {
  for (int ranks = 2; ranks <= 5; ranks++) {
    add_case<bf16_t>(ranks, true);
    add_case<bf16_t>(ranks, false);
    add_case<f16_t>(ranks, true);
  }
}

TEST(rank_embeddings_are_those_of_the_whole_table) {
  const int rows = 53, width = 24, tokens = 40, size = 4;
  const gpu_cuts_t cuts = random_cuts(size, rows, 1);
  const auto table = random_values<bf16_t>((size_t)rows * width, 2);
  std::vector<int32_t> ids(tokens);
  for (int t = 0; t < tokens; t++) ids[t] = t == 1 ? -1 : t == 2 ? rows : random_below(rows);
  device_array<bf16_t> d_table(table), whole((size_t)tokens * width), out((size_t)tokens * width),
      parts((size_t)size * tokens * width);
  device_array<int32_t> d_ids(ids);
  const gpu_table_t all = {d_table.p, rows, width, {}, 0};
  MUST(gpu_embed(DTYPE_BF16, whole.p, &all, d_ids.p, 1.5f, tokens, nullptr));
  for (int r = 0; r < size; r++) {
    const gpu_table_t own = {
        d_table.p + (size_t)cuts.at[r] * width, cuts.at[r + 1] - cuts.at[r], width, {}, cuts.at[r]};
    MUST(gpu_embed(DTYPE_BF16, parts.p + (size_t)r * tokens * width, &own, d_ids.p, 1.5f, tokens,
                   nullptr));
  }
  MUST(gpu_rank_pick(out.p, parts.p, d_ids.p, &cuts, width, tokens, nullptr));
  check_close("embeddings", as_double(whole.get()), as_double(out.get()), 0, 0);
}

TEST(rank_shapes_that_no_kernel_takes) {
  const gpu_cuts_t odd = gpu_cuts_of(2, std::vector<int>{0, 12, 24}.data());
  check_that(gpu_rank_spread(nullptr, nullptr, &odd, 1, nullptr) != 0, "a cut inside of a vector");
  check_that(gpu_rank_take(nullptr, nullptr, 4, 8, 16, 1, nullptr) != 0, "unaligned columns");
  check_that(gpu_rank_add(DTYPE_BF16, nullptr, nullptr, nullptr, 2, 12, 1, nullptr) != 0, "12");
  check_that(gpu_rank_add(DTYPE_F32, nullptr, nullptr, nullptr, 2, 16, 1, nullptr) != 0, "fp32");
}
