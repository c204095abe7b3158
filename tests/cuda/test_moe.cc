/* test_moe.cc: mixtures of experts against double, and the bits of a row among any others. */
#include "cuda/kernels/moe.h"
#include "tests/cuda/check.h"

struct moe_case_t {
  int rows, hidden, width, experts, top_k;
  bool normalise, biases;
  gpu_activation_t activation = GPU_SILU_MUL;
  gpu_routing_t routing = GPU_ROUTING_LOGITS;
  int groups = 1, groups_top = 1;
  float floor = 0;
  float more = 0;   /* share_more */
  bool adds = true; /* to a residual */

  bool gated() const { return activation != GPU_RELU2; }
  size_t up_rows() const { return (size_t)experts * (gated() ? 2 : 1) * width; }
};

template <class T> struct moe_device {
  std::vector<T> h_in, h_residual, h_up, h_down;
  std::vector<float> h_router, h_router_bias, h_choice_bias, h_up_bias, h_down_bias;
  device_array<T> in, residual, up, down, out;
  device_array<float> router, router_bias, choice_bias, up_bias, down_bias;
  device_array<uint8_t> workspace;
  gpu_moe_t args = {};

  explicit moe_device(const moe_case_t &c)
      : h_in(random_values<T>((size_t)c.rows * c.hidden, 1)),
        h_residual(random_values<T>((size_t)c.rows * c.hidden, 1)),
        h_up(random_values<T>(c.up_rows() * c.hidden, 0.2f)),
        h_down(random_values<T>((size_t)c.experts * c.hidden * c.width, 0.2f)),
        h_router(random_values<float>((size_t)c.experts * c.hidden, 0.5f)),
        h_router_bias(random_values<float>(c.experts, 1)),
        h_choice_bias(random_values<float>(c.experts, 0.4f)),
        h_up_bias(random_values<float>(c.up_rows(), 1)),
        h_down_bias(random_values<float>((size_t)c.experts * c.hidden, 1)), in(h_in),
        residual(h_residual), up(h_up), down(h_down), out((size_t)c.rows * c.hidden),
        router(h_router), router_bias(h_router_bias), choice_bias(h_choice_bias),
        up_bias(h_up_bias), down_bias(h_down_bias),
        workspace(gpu_moe_workspace_bytes(c.hidden, c.width, c.experts, c.top_k)) {
    args.in = in.p, args.residual = c.adds ? residual.p : nullptr, args.out = out.p;
    args.router = router.p, args.up = up.p, args.down = down.p;
    if (c.biases)
      args.router_bias = router_bias.p, args.up_bias = up_bias.p, args.down_bias = down_bias.p;
    args.rows = c.rows, args.hidden = c.hidden, args.width = c.width;
    args.num_experts = c.experts, args.top_k = c.top_k, args.normalise = c.normalise;
    args.routing = c.routing, args.num_groups = c.groups, args.groups_top = c.groups_top;
    args.group_pairs = c.routing == GPU_ROUTING_SIGMOID;
    args.share_floor = c.floor, args.share_more = c.more, args.share_factor = 1.75f;
    if (c.biases) args.choice_bias = choice_bias.p;
    args.activation = c.activation, args.workspace = workspace.p;
  }
};

static double gate_of(gpu_activation_t kind, double gate, double up) {
  if (kind == GPU_RELU2) return gate > 0 ? gate * gate : 0;
  if (kind == GPU_SILU_MUL) return gate / (1 + std::exp(-gate)) * up;
  if (kind == GPU_CLAMPED_SWIGLU) {
    gate = std::min(gate, 7.0);
    return (std::min(std::max(up, -7.0), 7.0) + 1) * gate / (1 + std::exp(-1.702 * gate));
  }
  return 0.5 * gate * (1 + std::tanh(0.7978845608028654 * (gate + 0.044715 * gate * gate * gate))) *
         up;
}

/* What expert e adds to row r, unweighted. Its inner values have 16 bits, as in the kernels. */
template <class T>
static std::vector<double> expert_reference(const moe_case_t &c, const moe_device<T> &d, int r,
                                            int e) {
  std::vector<double> act(c.width), out(c.hidden);
  for (int i = 0; i < c.width; i++) {
    double sums[2] = {};
    const int parts = c.gated() ? 2 : 1;
    for (int u = 0; u < parts; u++) {
      const size_t row = ((size_t)e * parts + u) * c.width + i;
      sums[u] = c.biases ? (double)d.h_up_bias[row] : 0;
      for (int k = 0; k < c.hidden; k++)
        sums[u] += (double)to_float(d.h_in[(size_t)r * c.hidden + k]) *
                   (double)to_float(d.h_up[row * c.hidden + k]);
    }
    act[i] = (double)to_float(from_float<T>((float)gate_of(c.activation, sums[0], sums[1])));
  }
  for (int i = 0; i < c.hidden; i++) {
    const size_t row = (size_t)e * c.hidden + i;
    out[i] = c.biases ? (double)d.h_down_bias[row] : 0;
    for (int k = 0; k < c.width; k++)
      out[i] += act[k] * (double)to_float(d.h_down[row * c.width + k]);
  }
  return out;
}

/* What the experts of row r are chosen by, in their order, and their shares. */
struct routed_t {
  std::vector<int> order;
  std::vector<double> choice, shares;
};

/* Leaves the experts of the best groups in the choice. */
static double keep_groups(const moe_case_t &c, std::vector<double> &choice) {
  const int size = c.experts / c.groups;
  std::vector<double> rank(c.groups);
  std::vector<int> order(c.groups);
  for (int g = 0; g < c.groups; g++) {
    std::vector<double> own(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(own.rbegin(), own.rend());
    rank[g] = own[0] + (c.routing == GPU_ROUTING_SIGMOID ? own[1] : 0);
    order[g] = g;
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return rank[a] > rank[b]; });
  for (int j = c.groups_top; j < c.groups; j++)
    std::fill_n(choice.begin() + order[j] * size, size, -INFINITY);
  return c.groups_top < c.groups ? rank[order[c.groups_top - 1]] - rank[order[c.groups_top]] : 1;
}

/* `margin`: how far rounding is from another choice. */
template <class T>
static routed_t route_reference(const moe_case_t &c, const moe_device<T> &d, int r,
                                double *margin) {
  routed_t made;
  std::vector<double> logits(c.experts);
  const bool scored = c.routing != GPU_ROUTING_LOGITS;
  double all = 0, chosen = 0;
  for (int e = 0; e < c.experts; e++) {
    logits[e] = c.biases ? (double)d.h_router_bias[e] : 0;
    made.order.push_back(e);
    for (int k = 0; k < c.hidden; k++)
      logits[e] += (double)to_float(d.h_in[(size_t)r * c.hidden + k]) *
                   (double)d.h_router[(size_t)e * c.hidden + k];
    all += std::exp(logits[e]);
  }
  for (int e = 0; e < c.experts; e++) {
    made.shares.push_back(c.routing == GPU_ROUTING_SIGMOID ? 1 / (1 + std::exp(-logits[e]))
                                                           : std::exp(logits[e]) / all);
    made.choice.push_back(scored ? made.shares[e] + (c.biases ? (double)d.h_choice_bias[e] : 0)
                                 : logits[e]);
  }
  *margin = scored ? keep_groups(c, made.choice) : 1;
  const auto &choice = made.choice;
  std::stable_sort(made.order.begin(), made.order.end(),
                   [&](int a, int b) { return choice[a] > choice[b]; });
  if (c.top_k < c.experts)
    *margin = std::min(*margin, choice[made.order[c.top_k - 1]] - choice[made.order[c.top_k]]);
  for (int j = 0; j < c.top_k; j++) chosen += made.shares[made.order[j]];
  for (int j = 0; j < c.top_k; j++) {
    double &share = made.shares[made.order[j]];
    if (c.normalise) share /= scored ? std::max(chosen, (double)c.floor) + (double)c.more : chosen;
    if (scored) share *= 1.75;
  }
  return made;
}

/* Whether rounding could choose another expert somewhere. */
template <class T> static bool is_close_call(const moe_case_t &c, const moe_device<T> &d) {
  for (int r = 0; r < c.rows; r++) {
    double margin;
    route_reference(c, d, r, &margin);
    if (margin < 1e-5) return true;
  }
  return false;
}

template <class T> static void moe_case(const moe_case_t &c) {
  moe_device<T> d(c);
  if (is_close_call(c, d)) return moe_case<T>(c); /* other numbers */
  MUST(gpu_moe(dtype_of<T>(), &d.args, nullptr));
  std::vector<double> expected;
  for (int r = 0; r < c.rows; r++) {
    std::vector<double> row(c.hidden);
    double margin;
    const routed_t routed = route_reference(c, d, r, &margin);
    for (int i = 0; i < c.hidden; i++)
      row[i] = c.adds ? (double)to_float(d.h_residual[(size_t)r * c.hidden + i]) : 0;
    for (int j = 0; j < c.top_k; j++) {
      const auto out = expert_reference(c, d, r, routed.order[j]);
      const double share = routed.shares[routed.order[j]];
      for (int i = 0; i < c.hidden; i++) row[i] += share * out[i];
    }
    expected.insert(expected.end(), row.begin(), row.end());
  }
  check_rows(std::to_string(c.rows) + " rows, " + std::to_string(c.top_k) + " of " +
                 std::to_string(c.experts) + " experts",
             expected, as_double(d.out.get()), c.hidden, rounding_of<T>() * 2);
}

TEST(moe_experts) {
  moe_case<bf16_t>({5, 64, 40, 8, 2, true, false});
  moe_case<f16_t>({1, 136, 24, 5, 5, false, true, GPU_CLAMPED_SWIGLU});
  moe_case<bf16_t>({40, 64, 32, 3, 1, false, true, GPU_GELU_TANH_MUL}); /* many rows an expert */
  moe_case<f16_t>({130, 32, 16, 2, 2, true, true});                     /* tiled */
  moe_case<bf16_t>({9, 32, 16, 70, 8, true, false});                    /* most have no row */
  moe_case<f16_t>({300, 16, 8, 3, 1, true, false});                     /* 8 rows routed at once */
}

/* Nemotron-H; and without a residual. */
TEST(moe_experts_without_a_gate) {
  moe_case<bf16_t>({5, 64, 40, 8, 2, true, false, GPU_RELU2});
  moe_case_t many = {130, 32, 24, 2, 1, true, true, GPU_RELU2}; /* tiled */
  many.adds = false;
  moe_case<f16_t>(many);
}

/* DeepSeek V3 and V2, ERNIE 4.5. */
TEST(moe_routers_that_score) {
  moe_case<bf16_t>({11, 64, 40, 12, 3, true, true, GPU_SILU_MUL, GPU_ROUTING_SIGMOID, 4, 2});
  moe_case<bf16_t>(
      {7, 64, 24, 8, 3, true, true, GPU_SILU_MUL, GPU_ROUTING_SIGMOID, 1, 1, 0, 0.25f});
  moe_case<f16_t>({9, 64, 16, 8, 2, false, false, GPU_SILU_MUL, GPU_ROUTING_SIGMOID});
  moe_case<bf16_t>({9, 64, 16, 12, 2, false, false, GPU_SILU_MUL, GPU_ROUTING_SOFTMAX, 3, 1});
  moe_case<f16_t>({9, 64, 16, 70, 6, true, true, GPU_SILU_MUL, GPU_ROUTING_SOFTMAX, 1, 1, 0.9f});
  moe_case<bf16_t>({9, 32, 16, 800, 4, true, true, GPU_SILU_MUL, GPU_ROUTING_SIGMOID, 32, 5});
}

/* Rows alone, and among others: few rows an expert and many take different kernels, also to route
 * them. */
TEST(moe_bits_do_not_depend_on_the_batch) {
  const moe_case_t c = {300, 136, 40, 4, 2, true, true};
  moe_device<bf16_t> d(c);
  MUST(gpu_moe(DTYPE_BF16, &d.args, nullptr));
  const auto expected = d.out.get();
  for (int rows : {1, 7, 32, 33, 100}) {
    const int first = random_below(c.rows - rows);
    const size_t at = (size_t)first * c.hidden;
    device_array<bf16_t> out((size_t)rows * c.hidden);
    gpu_moe_t args = d.args;
    args.in = d.in.p + at, args.residual = d.residual.p + at, args.out = out.p, args.rows = rows;
    MUST(gpu_moe(DTYPE_BF16, &args, nullptr));
    check_that(memcmp(out.get().data(), &expected[at], out.count * sizeof(bf16_t)) == 0,
               std::to_string(rows) + " of 300 rows");
  }
}

/* Each rank has some experts, one of them none; all their pairs together have the bits of one. */
template <class T> static void ranks_case() {
  const moe_case_t c = {9, 64, 24, 5, 3, true, true};
  const std::vector<int32_t> cuts = {0, 2, 2, 5};
  moe_device<T> d(c);
  MUST(gpu_moe(dtype_of<T>(), &d.args, nullptr));
  const auto expected = d.out.get();
  const size_t pairs = (size_t)c.rows * c.top_k * c.hidden;
  device_array<T> parts(std::vector<T>(3 * pairs));
  MUST(cudaMemset(d.out.p, 0, d.out.bytes()));
  gpu_moe_t args = d.args;
  args.experts = gpu_cuts_of(3, cuts.data());
  for (args.rank = 0; args.rank < 3; args.rank++) {
    const size_t first = (size_t)cuts[args.rank], up = first * 2 * c.width;
    args.up = d.up.p + up * c.hidden, args.down = d.down.p + first * c.hidden * c.width;
    args.up_bias = d.up_bias.p + up, args.down_bias = d.down_bias.p + first * c.hidden;
    MUST(gpu_moe_pairs(dtype_of<T>(), &args, parts.p + args.rank * pairs, nullptr));
  }
  args.rank = 0;
  MUST(gpu_moe_mix(dtype_of<T>(), &args, parts.p, nullptr));
  check_that(memcmp(d.out.get().data(), expected.data(), d.out.bytes()) == 0,
             std::string("experts of three ranks, ") + name_of<T>());
}

TEST(moe_experts_of_ranks) {
  ranks_case<bf16_t>();
  ranks_case<f16_t>();
}

/* Equal logits: the lower experts; NaN: some experts, and no fault. */
TEST(moe_ties_and_nan) {
  moe_case_t c = {2, 32, 16, 6, 2, true, false};
  moe_device<bf16_t> d(c);
  std::vector<float> zeros(c.experts * c.hidden);
  MUST(cudaMemcpy(d.router.p, zeros.data(), zeros.size() * 4, cudaMemcpyHostToDevice));
  MUST(gpu_moe(DTYPE_BF16, &d.args, nullptr));
  std::vector<double> expected;
  for (int r = 0; r < c.rows; r++) {
    const auto a = expert_reference(c, d, r, 0), b = expert_reference(c, d, r, 1);
    for (int i = 0; i < c.hidden; i++)
      expected.push_back((double)to_float(d.h_residual[(size_t)r * c.hidden + i]) +
                         (a[i] + b[i]) / 2);
  }
  check_rows("equal logits", expected, as_double(d.out.get()), c.hidden, 0.01);
  for (float &x : zeros) x = NAN;
  MUST(cudaMemcpy(d.router.p, zeros.data(), zeros.size() * 4, cudaMemcpyHostToDevice));
  MUST(gpu_moe(DTYPE_BF16, &d.args, nullptr));
  const auto got = as_double(d.out.get());
  check_that(std::isnan(got[0]), "a row of NaN logits stays NaN");
}

TEST(moe_refuses) {
  check_that(gpu_moe_workspace_bytes(64, 32, 1025, 2) == 0 &&
                 gpu_moe_workspace_bytes(64, 30, 8, 2) == 0 &&
                 gpu_moe_workspace_bytes(64, 32, 8, 9) == 0,
             "sizes out of range");
}
