/* test_state.cc: convolutions of layers with a state against double; the same bits however the
 * sequences are cut into chunks and whatever stands beside them; saved states, and copies of slots.
 */
#include "tests/cuda/state_case.h"

struct conv_case_t {
  int channels, taps, length;
  bool gates; /* LFM2: * before, * after; else in place, with silu and a bias */
};

/* A layer, its states and the inputs of all sequences, [SEQUENCES * length, width]. */
template <class T> struct conv_layer {
  conv_case_t c;
  int width, values;
  std::vector<T> in;
  std::vector<float> weight, bias;
  device_array<float> d_weight, d_bias, slots, borders;

  explicit conv_layer(const conv_case_t &a)
      : c(a), width(a.channels * (a.gates ? 3 : 1) + 16),
        values(((a.taps - 1) * a.channels + 7) / 4 * 4),
        in(random_values<T>((size_t)SEQUENCES * a.length * width, 2)),
        weight(random_values<float>((size_t)a.taps * a.channels, 1)),
        bias(random_values<float>(a.channels, 1)), d_weight(weight), d_bias(bias),
        slots(std::vector<float>((size_t)SLOTS * values, NAN)), /* what is fresh is not read */
        borders((size_t)gpu_conv_borders() * (a.taps - 1) * a.channels) {}

  /* Runs rows of a step; `out` of all sequences is [SEQUENCES * length, channels]. */
  void run(const step_rows &rows, std::vector<T> &out) {
    step_device step(rows);
    const int tokens = step.states.tokens, out_width = c.gates ? c.channels : width;
    std::vector<T> x((size_t)tokens * width);
    for (size_t r = 0; r < rows.counts.size(); r++)
      for (int t = 0; t < rows.counts[r]; t++)
        std::copy_n(&in[(size_t)(rows.sequences[r] * c.length + rows.done[r] + t) * width], width,
                    &x[(size_t)(step.start[r] + t) * width]);
    device_array<T> d_x(x), y((size_t)tokens * out_width);
    gpu_conv_t args = {};
    args.states = step.states, args.states.base = slots.p, args.states.stride = values;
    args.in = d_x.p, args.out = c.gates ? y.p : d_x.p;
    args.channels = c.channels, args.taps = c.taps, args.in_width = width;
    args.in_column = c.gates ? 2 * c.channels : 8, args.before = c.gates ? 0 : -1;
    args.after = c.gates ? c.channels : -1, args.silu = !c.gates;
    args.out_width = out_width, args.out_column = c.gates ? 0 : 8;
    args.weight = d_weight.p, args.bias = c.gates ? nullptr : d_bias.p, args.borders = borders.p;
    MUST(gpu_conv(dtype_of<T>(), &args, nullptr));
    const std::vector<T> got = c.gates ? y.get() : d_x.get();
    for (size_t r = 0; r < rows.counts.size(); r++)
      for (int t = 0; t < rows.counts[r]; t++)
        std::copy_n(&got[(size_t)(step.start[r] + t) * out_width + args.out_column], c.channels,
                    &out[(size_t)(rows.sequences[r] * c.length + rows.done[r] + t) * c.channels]);
  }

  double x_of(int sequence, int token, int channel) const {
    if (token < 0) return 0;
    const T *row = &in[(size_t)(sequence * c.length + token) * width];
    if (!c.gates) return (double)to_float(row[8 + channel]);
    return (double)to_float(row[2 * c.channels + channel]) * (double)to_float(row[channel]);
  }

  std::vector<double> exact() const {
    std::vector<double> made;
    for (int s = 0; s < SEQUENCES; s++)
      for (int t = 0; t < c.length; t++)
        for (int i = 0; i < c.channels; i++) {
          double sum = c.gates ? 0 : (double)bias[i];
          for (int k = 0; k < c.taps; k++)
            sum += (double)weight[(size_t)k * c.channels + i] * x_of(s, t - (c.taps - 1) + k, i);
          const T *row = &in[(size_t)(s * c.length + t) * width];
          made.push_back(c.gates ? sum * (double)to_float(row[c.channels + i])
                                 : sum / (1 + std::exp(-sum)));
        }
    return made;
  }
  std::vector<float> state(int slot) const {
    const auto all = slots.get();
    return std::vector<float>(all.begin() + (long)slot * values,
                              all.begin() + (long)slot * values + (c.taps - 1) * c.channels);
  }
};

template <class T> static void conv_case(const conv_case_t &c) {
  conv_layer<T> layer(c);
  const size_t count = (size_t)SEQUENCES * c.length * c.channels;
  std::vector<T> whole(count), parts(count);
  const std::string what = "convolution of " + std::to_string(c.channels) + ", " +
                           std::to_string(c.taps) + " taps, " + name_of<T>();
  layer.run({{0, 1, 2}, {0, 0, 0}, {c.length, c.length, c.length}, {}}, whole);
  check_close(what, layer.exact(), as_double(whole), rounding_of<T>() * 1.1, 0.02);
  const auto behind = layer.state(1);
  for (int most : {1, 7, 2 * c.length / 3}) {
    run_chunks(layer, c.length, most, parts);
    check_that(same_bits(whole, parts), what + " in chunks of up to " + std::to_string(most));
    check_that(same_bits(behind, layer.state(1)), what + ": the state behind the chunks");
  }
  check_saves(layer, c.length, parts, behind, what);
}

TEST(convolutions_with_a_state) {
  conv_case<bf16_t>({256, 3, 37, true});
  conv_case<f16_t>({1032, 4, 9, false});
  conv_case<bf16_t>({24, 4, 150, false});
  conv_case<bf16_t>({40, 3, 130, true});
  conv_case<bf16_t>({13, 4, 70, false}); /* no 16-byte accesses */
  conv_case<f16_t>({16, 6, 41, true});
  conv_case<bf16_t>({8, 2, 5, false});
  conv_case<f16_t>({24, 3, 9, true});
  conv_case<bf16_t>({5, 3, 6, true});
  conv_case<bf16_t>({5, 5, 6, false});
  conv_case<f16_t>({13, 3, 40, true});
  conv_case<f16_t>({5, 4, 6, false});
  conv_case<f16_t>({5, 2, 6, true});
}

TEST(a_row_without_a_slot_begins_with_zeros_and_stores_nothing) {
  conv_layer<bf16_t> layer({16, 3, 4, true});
  std::vector<bf16_t> out((size_t)SEQUENCES * 4 * 16), null(out);
  layer.run({{1}, {0}, {1}, {}}, out);
  const auto before = layer.slots.get();
  /* sequence SEQUENCES would have slot 0: its inputs are those of sequence 1 */
  layer.in.insert(layer.in.end(), layer.in.begin() + (long)4 * layer.width,
                  layer.in.begin() + (long)8 * layer.width);
  null.resize((size_t)(SEQUENCES + 1) * 4 * 16);
  layer.run({{SEQUENCES}, {0}, {1}, {}}, null);
  check_that(same_bits(before, layer.slots.get()), "slots after a row without one");
  check_that(std::equal(out.begin() + 4 * 16, out.begin() + 5 * 16, null.begin() + 12 * 16,
                        [](bf16_t a, bf16_t b) { return to_float(a) == to_float(b); }),
             "outputs of a row without a slot");
}

TEST(slots_are_copied_in_order) {
  const int values = 2000;
  const auto before = random_values<float>((size_t)4 * values, 1);
  device_array<float> slots(before);
  device_array<gpu_state_copy_t> copies(std::vector<gpu_state_copy_t>{{1, 2}, {2, 3}, {0, 1}});
  MUST(gpu_state_copies(slots.p, values, copies.p, 3, nullptr));
  const auto got = slots.get();
  for (int s = 0; s < 4; s++) {
    const int from = (const int[]){0, 0, 1, 1}[s];
    check_that(memcmp(&got[(size_t)s * values], &before[(size_t)from * values],
                      values * sizeof(float)) == 0,
               "slot " + std::to_string(s) + " after copies");
  }
}
