/* state_case.h: steps of the tests of layers with a state: some rows go on with some tokens each.
 *
 * A layer of a test keeps the inputs of SEQUENCES sequences and has `run(rows, out)`. One thread.
 */
#ifndef INFERD_TESTS_CUDA_STATE_CASE_H
#define INFERD_TESTS_CUDA_STATE_CASE_H

#include "cuda/kernels/state/state.h"
#include "tests/cuda/check.h"

static const int SEQUENCES = 3, SAVE_SLOT = SEQUENCES + 1, SAVES = 3, SLOTS = SAVE_SLOT + SAVES;

/* Rows of a step: row r goes on with counts[r] tokens of sequence sequences[r] behind done[r]. */
struct step_rows {
  std::vector<int32_t> sequences, done, counts;
  std::vector<gpu_save_t> saves; /* of the last row */
};

/* A step's arrays on the device. */
struct step_device {
  std::vector<int32_t> start, lens, slots, first;
  device_array<int32_t> d_start, d_lens, d_slots, d_first;
  device_array<gpu_save_t> saves;
  gpu_states_t states = {};

  static std::vector<int32_t> sums(const std::vector<int32_t> &counts) {
    std::vector<int32_t> made(1, 0);
    for (int32_t n : counts) made.push_back(made.back() + n);
    return made;
  }
  static std::vector<int32_t> lengths(const step_rows &rows) {
    std::vector<int32_t> made;
    for (size_t r = 0; r < rows.done.size(); r++) made.push_back(rows.done[r] + rows.counts[r]);
    return made;
  }
  static std::vector<int32_t> slots_of(const step_rows &rows) {
    std::vector<int32_t> made;
    for (int32_t s : rows.sequences) made.push_back(SEQUENCES - s);
    return made;
  }
  static std::vector<int32_t> saves_of(const step_rows &rows) {
    std::vector<int32_t> made(rows.counts.size() + 1, 0);
    made.back() = (int32_t)rows.saves.size();
    return made;
  }
  explicit step_device(const step_rows &rows)
      : start(sums(rows.counts)), lens(lengths(rows)), slots(slots_of(rows)), first(saves_of(rows)),
        d_start(start), d_lens(lens), d_slots(slots), d_first(first),
        saves(rows.saves.empty() ? std::vector<gpu_save_t>(1) : rows.saves) {
    states.slots = d_slots.p, states.query_start_loc = d_start.p, states.seq_lens = d_lens.p;
    states.first_save = d_first.p, states.saves = saves.p;
    states.reqs = (int32_t)rows.counts.size(), states.tokens = start.back();
    states.decodes = *std::max_element(rows.counts.begin(), rows.counts.end()) <= 1;
  }
};

/* All sequences from their begin to their end, in chunks of random sizes, `most` tokens at most. */
template <class L, class T> void run_chunks(L &layer, int length, int most, T &out) {
  std::vector<int32_t> done(SEQUENCES, 0);
  for (;;) {
    step_rows rows;
    for (int s = SEQUENCES - 1; s >= 0; s--) {
      if (done[s] == length || random_below(4) == 0) continue;
      rows.sequences.push_back(s);
      rows.done.push_back(done[s]);
      rows.counts.push_back(std::min(1 + random_below(most), length - done[s]));
      done[s] += rows.counts.back();
    }
    if (!rows.counts.empty()) layer.run(rows, out);
    if (std::all_of(done.begin(), done.end(), [&](int n) { return n == length; })) return;
  }
}

template <class T> bool same_bits(const std::vector<T> &a, const std::vector<T> &b) {
  return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

/* What is saved in the middle of a chunk: twice behind one token, as where a draft token follows
 * the end of a block, and behind the next one. `own`: the state behind all tokens. */
template <class L, class T>
void check_saves(L &layer, int length, T &out, const std::vector<float> &own,
                 const std::string &what) {
  const int half = length / 2, behind[SAVES] = {half, half, half + 1};
  std::vector<gpu_save_t> saves;
  std::vector<std::vector<float>> states;
  for (int i = 0; i < SAVES; i++) {
    layer.run({{0, 2}, {0, 0}, {1, behind[i]}, {}}, out);
    states.push_back(layer.state(1));
    saves.push_back({behind[i], SAVE_SLOT + i});
  }
  layer.run({{1, 2}, {0, 0}, {3, length}, saves}, out);
  for (int i = 0; i < SAVES; i++)
    check_that(same_bits(states[i], layer.state(SAVE_SLOT + i)),
               what + ": saved state " + std::to_string(i));
  check_that(same_bits(own, layer.state(1)), what + ": the state behind saves");
}

#endif
