/* test_recur.cc: recurrences of layers with a state, their gates, and factors of columns, against
 * double; the same bits however the sequences are cut into chunks, and saved states.
 */
#include "tests/cuda/state_case.h"

struct recur_case_t {
  int heads, groups, key_dim, value_dim, length;
  bool corrects, skips, tiled = false, doubles = false;
};

/* The columns of a row: 3 that are of no use, q, k, v, rate, step. */
struct recur_columns_t {
  int q, k, v, rate, step, width;
  explicit recur_columns_t(const recur_case_t &c)
      : q(3), k(q + c.groups * c.key_dim), v(k + c.groups * c.key_dim),
        rate(v + c.heads * c.value_dim), step(rate + c.heads), width(step + c.heads) {}
};

static const float STEP_MIN = 0.05f, STEP_MAX = 1.5f;

static std::vector<float> decays(int heads) {
  std::vector<float> made = random_values<float>(heads, 0.6f);
  for (float &x : made) x -= 0.7f;
  return made;
}

/* A layer, its states and the inputs of all sequences, [SEQUENCES * length, width]. */
template <class T> struct recur_layer {
  recur_case_t c;
  recur_columns_t at;
  int values, inner; /* numbers of a slot, 8 of them before S; columns of an output */
  std::vector<T> in;
  std::vector<float> decay, bias, skip;
  device_array<float> d_decay, d_bias, d_skip, slots;

  explicit recur_layer(const recur_case_t &a)
      : c(a), at(a), values(8 + (int)gpu_recur_values(a.heads, a.key_dim, a.value_dim)),
        inner(a.heads * a.value_dim),
        in(random_values<T>((size_t)SEQUENCES * a.length * at.width, 2)), decay(decays(a.heads)),
        bias(random_values<float>(a.heads, 1)), skip(random_values<float>(a.heads, 1)),
        d_decay(decay), d_bias(bias), d_skip(skip),
        slots(std::vector<float>((size_t)SLOTS * values, NAN)) {} /* what is fresh is not read */

  /* Runs rows of a step; `out` of all sequences is [SEQUENCES * length, inner]. */
  void run(const step_rows &rows, std::vector<T> &out) {
    step_device step(rows);
    std::vector<T> x((size_t)step.states.tokens * at.width);
    for (size_t r = 0; r < rows.counts.size(); r++)
      std::copy_n(&in[(size_t)(rows.sequences[r] * c.length + rows.done[r]) * at.width],
                  (size_t)rows.counts[r] * at.width, &x[(size_t)step.start[r] * at.width]);
    device_array<T> d_x(x), y((size_t)step.states.tokens * inner);
    gpu_recur_t args = {};
    args.states = step.states, args.states.base = slots.p + 8, args.states.stride = values;
    args.in = d_x.p, args.out = y.p, args.width = at.width, args.q = at.q, args.k = at.k;
    args.v = at.v, args.rate = at.rate, args.step = at.step;
    args.heads = c.heads, args.groups = c.groups, args.key_dim = c.key_dim;
    args.value_dim = c.value_dim, args.tiled = c.tiled, args.corrects = c.corrects;
    args.step_min = STEP_MIN, args.step_max = STEP_MAX, args.rate_most = c.doubles ? 2 : 1;
    args.decay = d_decay.p, args.bias = d_bias.p, args.skip = c.skips ? d_skip.p : nullptr;
    MUST(gpu_recur(dtype_of<T>(), &args, nullptr));
    const std::vector<T> got = y.get();
    for (size_t r = 0; r < rows.counts.size(); r++)
      std::copy_n(&got[(size_t)step.start[r] * inner], (size_t)rows.counts[r] * inner,
                  &out[(size_t)(rows.sequences[r] * c.length + rows.done[r]) * inner]);
  }

  std::vector<float> state(int slot) const {
    const auto all = slots.get();
    return std::vector<float>(all.begin() + (long)slot * values + 8,
                              all.begin() + (long)(slot + 1) * values);
  }
};

/* Columns of a token in double; of a DeltaNet q and k have the length `scale`. */
template <class T>
static std::vector<double> key(const recur_case_t &c, const T *from, double scale) {
  std::vector<double> made(c.key_dim);
  double sum = 1e-6;
  for (int i = 0; i < c.key_dim; i++) {
    made[i] = (double)to_float(from[i]);
    sum += made[i] * made[i];
  }
  for (double &x : made) x *= c.corrects ? scale / std::sqrt(sum) : 1;
  return made;
}

/* Takes S [key_dim, value_dim] of a head over a token, and appends S^T q. */
template <class T>
static void next(const recur_layer<T> &layer, std::vector<double> &state, const T *row, int head,
                 double *out) {
  const recur_case_t &c = layer.c;
  const recur_columns_t &at = layer.at;
  const int group = c.tiled ? head % c.groups : head / (c.heads / c.groups), dim = c.value_dim;
  const auto q = key(c, row + at.q + group * c.key_dim, 1 / std::sqrt((double)c.key_dim));
  const auto k = key(c, row + at.k + group * c.key_dim, 1);
  double step = (double)to_float(row[at.step + head]) + (double)layer.bias[head];
  step = std::log1p(std::exp(step));
  if (!c.corrects) step = std::min(std::max(step, (double)STEP_MIN), (double)STEP_MAX);
  const double a = std::exp((double)layer.decay[head] * step);
  const double most = c.doubles ? 2 : 1;
  const double rate =
      c.corrects ? most / (1 + std::exp(-(double)to_float(row[at.rate + head]))) : step;
  for (int j = 0; j < dim; j++) {
    const double v = (double)to_float(row[at.v + head * dim + j]);
    double seen = 0, sum = c.skips ? (double)layer.skip[head] * v : 0;
    for (int i = 0; i < c.key_dim; i++) seen += k[i] * a * state[(size_t)i * dim + j];
    for (int i = 0; i < c.key_dim; i++) {
      double &s = state[(size_t)i * dim + j];
      s = a * s + k[i] * rate * (v - (c.corrects ? seen : 0));
      sum += s * q[i];
    }
    out[head * dim + j] = sum;
  }
}

template <class T> static std::vector<double> exact(const recur_layer<T> &layer) {
  const recur_case_t &c = layer.c;
  std::vector<double> made((size_t)SEQUENCES * c.length * layer.inner);
  for (int s = 0; s < SEQUENCES; s++)
    for (int h = 0; h < c.heads; h++) {
      std::vector<double> state((size_t)c.key_dim * c.value_dim, 0.0);
      for (int t = 0; t < c.length; t++) {
        const size_t token = (size_t)s * c.length + t;
        next(layer, state, &layer.in[token * layer.at.width], h, &made[token * layer.inner]);
      }
    }
  return made;
}

template <class T> static void recur_case(const recur_case_t &c) {
  recur_layer<T> layer(c);
  const size_t count = (size_t)SEQUENCES * c.length * layer.inner;
  std::vector<T> whole(count), parts(count);
  const std::string what = std::string(c.corrects ? "delta" : "scan") + " of " +
                           std::to_string(c.heads) + " heads " + std::to_string(c.key_dim) + " x " +
                           std::to_string(c.value_dim) + ", " + name_of<T>();
  layer.run({{0, 1, 2}, {0, 0, 0}, {c.length, c.length, c.length}, {}}, whole);
  const double size = c.corrects ? 0.02 : 0.2; /* keys of a scan are as long as they come */
  check_close(what, exact(layer), as_double(whole), rounding_of<T>() * 1.1, size);
  const auto behind = layer.state(1);
  for (int most : {1, 7, 2 * c.length / 3}) {
    run_chunks(layer, c.length, most, parts);
    check_that(same_bits(whole, parts), what + " in chunks of up to " + std::to_string(most));
    check_that(same_bits(behind, layer.state(1)), what + ": the state behind the chunks");
  }
  check_saves(layer, c.length, parts, behind, what);
}

TEST(recurrences_with_a_correction) {
  recur_case<bf16_t>({4, 2, 128, 128, 21, true, false});
  recur_case<f16_t>({2, 2, 64, 64, 35, true, false});
  recur_case<bf16_t>({3, 1, 13, 40, 19, true, false});
  recur_case<bf16_t>({6, 3, 24, 16, 11, true, false, true});
  recur_case<bf16_t>({4, 2, 96, 192, 21, true, false, false, true});
  recur_case<f16_t>({1, 1, 200, 8, 17, true, false});
}

TEST(recurrences_without_a_correction) {
  recur_case<bf16_t>({4, 1, 256, 64, 18, false, true});
  recur_case<f16_t>({3, 3, 128, 33, 33, false, true});
  recur_case<bf16_t>({4, 2, 16, 8, 50, false, false});
}

TEST(a_recurrence_without_a_slot_stores_nothing) {
  recur_layer<bf16_t> layer({2, 1, 16, 8, 4, true, false});
  std::vector<bf16_t> out((size_t)SEQUENCES * 4 * layer.inner), null;
  layer.run({{1}, {0}, {3}, {}}, out);
  const auto before = layer.slots.get();
  /* sequence SEQUENCES would have slot 0: its inputs are those of sequence 1 */
  layer.in.insert(layer.in.end(), layer.in.begin() + (long)4 * layer.at.width,
                  layer.in.begin() + (long)8 * layer.at.width);
  null.resize((size_t)(SEQUENCES + 1) * 4 * layer.inner);
  layer.run({{SEQUENCES}, {0}, {3}, {}}, null);
  const auto after = layer.slots.get();
  check_that(memcmp(before.data(), after.data(), before.size() * sizeof(float)) == 0,
             "slots after a row without one");
  check_that(memcmp(&out[(size_t)4 * layer.inner], &null[(size_t)12 * layer.inner],
                    (size_t)3 * layer.inner * sizeof(bf16_t)) == 0,
             "outputs of a row without a slot");
}

struct gate_case_t {
  int width, group, extra; /* columns of the gate's rows before and behind it */
  bool sigmoid, first, repeats;
};

template <class T> static void gate_case(const gate_case_t &c, int rows) {
  const int gate_width = c.width + 2 * c.extra;
  const auto in = random_values<T>((size_t)rows * c.width, 2);
  const auto gates = random_values<T>((size_t)rows * gate_width, 3);
  const auto weight = random_values<float>(c.width, 1);
  const float eps = 0.1f;
  std::vector<double> exact;
  for (int r = 0; r < rows; r++) {
    std::vector<double> x(c.width), gate(c.width);
    for (int i = 0; i < c.width; i++) {
      const double g = (double)to_float(gates[(size_t)r * gate_width + c.extra + i]);
      gate[i] = (c.sigmoid ? 1 : g) / (1 + std::exp(-g));
      x[i] = (double)to_float(in[(size_t)r * c.width + i]) * (c.first ? gate[i] : 1);
    }
    for (int at = 0; c.group > 0 && at < c.width; at += c.group) {
      double sum = 0;
      for (int i = 0; i < c.group; i++) sum += x[at + i] * x[at + i];
      for (int i = 0; i < c.group; i++)
        x[at + i] *=
            (double)weight[c.repeats ? i : at + i] / std::sqrt(sum / c.group + (double)eps);
    }
    for (int i = 0; i < c.width; i++) exact.push_back(x[i] * (c.first ? 1 : gate[i]));
  }
  device_array<T> x(in), d_gates(gates);
  device_array<float> d_weight(weight);
  gpu_gate_t args = {};
  args.in = args.out = x.p, args.gate = d_gates.p, args.width = c.width;
  args.gate_width = gate_width, args.gate_column = c.extra;
  args.sigmoid = c.sigmoid, args.gate_first = c.first, args.group = c.group, args.eps = eps;
  args.weight = d_weight.p, args.weight_repeats = c.repeats, args.gate_repeats = 1;
  MUST(gpu_gate(dtype_of<T>(), &args, rows, nullptr));
  check_close("gate of " + std::to_string(c.width) + " by " + std::to_string(c.group) + ", " +
                  name_of<T>(),
              exact, as_double(x.get()), rounding_of<T>() * 1.1, 0.001);
}

TEST(gates_of_recurrences) {
  gate_case<bf16_t>({256, 64, 8, false, false, true}, 5);
  gate_case<f16_t>({2048, 2048, 16, false, true, false}, 2);
  gate_case<bf16_t>({3072, 1024, 0, false, true, false}, 1);
  gate_case<f16_t>({90, 30, 7, false, false, false}, 3);
  gate_case<bf16_t>({30, 15, 3, true, true, true}, 4);
}

TEST(gates_without_a_norm) {
  gate_case<bf16_t>({272, 0, 0, true, false, false}, 3);
  gate_case<f16_t>({2304, 0, 24, false, true, false}, 2);
}

/* One number of the gate for each head. */
template <class T> static void gate_of_heads_case(int heads, int size, int extra, int rows) {
  const int width = heads * size, gate_width = heads + extra;
  const auto in = random_values<T>((size_t)rows * width, 2);
  const auto gates = random_values<T>((size_t)rows * gate_width, 2);
  std::vector<double> exact;
  for (int r = 0; r < rows; r++)
    for (int i = 0; i < width; i++) {
      const double g = (double)to_float(gates[(size_t)r * gate_width + extra + i / size]);
      exact.push_back((double)to_float(in[(size_t)r * width + i]) / (1 + std::exp(-g)));
    }
  device_array<T> x(in), d_gates(gates);
  gpu_gate_t args = {};
  args.in = args.out = x.p, args.gate = d_gates.p, args.width = width, args.sigmoid = 1;
  args.gate_width = gate_width, args.gate_column = extra, args.gate_repeats = size;
  MUST(gpu_gate(dtype_of<T>(), &args, rows, nullptr));
  check_close("gate of " + std::to_string(heads) + " heads, " + name_of<T>(), exact,
              as_double(x.get()), rounding_of<T>() * 1.1, 0.001);
}

TEST(gates_of_heads) {
  gate_of_heads_case<bf16_t>(16, 128, 0, 3);
  gate_of_heads_case<f16_t>(3, 20, 5, 4);
  gate_of_heads_case<bf16_t>(5, 7, 1, 2);
}

template <class T> static void scale_case(int width, int rows) {
  const auto values = random_values<T>((size_t)rows * width, 2);
  const auto factors = random_values<float>(width, 2);
  std::vector<double> exact;
  for (size_t i = 0; i < values.size(); i++)
    exact.push_back((double)to_float(values[i]) * (double)factors[i % width]);
  device_array<T> x(values);
  device_array<float> d_factors(factors);
  MUST(gpu_scale_columns(dtype_of<T>(), x.p, d_factors.p, width, rows, nullptr));
  check_close("factors of " + std::to_string(width) + " columns, " + name_of<T>(), exact,
              as_double(x.get()), rounding_of<T>() * 1.01, smallest_normal_of<T>());
}

TEST(factors_of_columns) {
  scale_case<bf16_t>(88, 7);
  scale_case<f16_t>(51, 11);
}
