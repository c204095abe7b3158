/* test_select.c: the selection of Mamba-1 in every tier against double precision; and the same bits
 * however the sequences are cut into chunks, whatever stands beside them in the batch.
 */
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/weight.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 2, LENGTH = 33, TOKENS = SEQUENCES * LENGTH, CHANNELS_MAX = 300 };

static const step_limits_t limits = {.tokens_max = TOKENS,
                                     .reqs_max = SEQUENCES,
                                     .logits_rows_max = 1,
                                     .hidden_max = CHANNELS_MAX,
                                     .vocab_size = 8,
                                     .max_model_len = LENGTH,
                                     .heads_max = 1,
                                     .head_dim_max = 16};

/* What a sequence brings: [TOKENS, channels] and [TOKENS, rows]. */
typedef struct inputs {
  float *x, *steps, *keys, *queries;
} inputs_t;

static inputs_t draw_inputs(random_state_t *random, const selective_scan_t *of) {
  return (inputs_t){random_floats(random, (int64_t)TOKENS * of->channels, 1),
                    random_floats(random, (int64_t)TOKENS * of->channels, 12),
                    random_floats(random, (int64_t)TOKENS * of->rows, 1),
                    random_floats(random, (int64_t)TOKENS * of->rows, 1)};
}

static void free_inputs(inputs_t *in) {
  free(in->x), free(in->steps), free(in->keys), free(in->queries);
}

static selective_scan_t draw(device_t *device, random_state_t *random, int32_t channels,
                             int32_t rows) {
  float *decay = random_floats(random, (int64_t)channels * rows, 3);
  float *vectors = random_floats(random, 2 * (int64_t)channels, 1);
  for (int32_t i = 0; i < channels * rows; i++) decay[i] = -fabsf(decay[i]);
  selective_scan_t made = {.offset = 7,
                           .channels = channels,
                           .rows = rows,
                           .decay = vector_make(device, decay, (int64_t)channels * rows),
                           .bias = vector_make(device, vectors, channels),
                           .skip = vector_make(device, vectors + channels, channels)};
  free(decay), free(vectors);
  return made;
}

/* Runs `counts` tokens of rows behind `done` of them, which begin at token `first`. The rows of the
 * step are the tokens from there on. */
static void run(device_t *device, const selective_scan_t *of, const inputs_t *in, float *out,
                const int32_t *first, const int32_t *done, const int32_t *counts, int32_t rows,
                state_save_t *save) {
  int32_t starts[SEQUENCES + 1] = {0}, slots[SEQUENCES], before[SEQUENCES];
  for (int32_t r = 0; r < rows; r++) {
    starts[r + 1] = starts[r] + counts[r];
    slots[r] = 1 + first[r] / LENGTH;
    before[r] = done[r];
  }
  const batch_t batch = {.num_reqs = rows,
                         .num_tokens = starts[rows],
                         .block_size = 16,
                         .query_start_loc = starts,
                         .num_computed_tokens = before,
                         .state_slots = slots,
                         .num_state_saves = save != NULL,
                         .state_saves = save};
  const int64_t at = first[0] + done[0], wide = at * of->channels, narrow = at * of->rows;
  ops_cpu.begin(device, &batch);
  ops_cpu.state->select(device, ACT(out + wide), ACT(in->x + wide), ACT(in->steps + wide),
                        ACT(in->keys + narrow), ACT(in->queries + narrow), of);
}

/* One channel of one sequence in double precision: out[LENGTH], and how large the terms of each sum
 * are together. */
static void exact(const selective_scan_t *of, const inputs_t *in, int32_t sequence, int32_t channel,
                  double *out, double *size) {
  double state[SELECT_ROWS_MAX] = {0};
  for (int32_t t = 0; t < LENGTH; t++) {
    const int64_t token = (int64_t)sequence * LENGTH + t, at = token * of->channels + channel;
    const double step = (double)in->steps[at] + of->bias->values[channel];
    const double d = step > 30 ? step : log1p(exp(step));
    out[t] = (double)of->skip->values[channel] * in->x[at];
    size[t] = fabs(out[t]);
    for (int32_t n = 0; n < of->rows; n++) {
      const double decay = of->decay->values[(int64_t)n * of->channels + channel];
      state[n] = exp(decay * d) * state[n] + in->keys[token * of->rows + n] * d * in->x[at];
      const double term = state[n] * in->queries[token * of->rows + n];
      out[t] += term;
      size[t] += fabs(term);
    }
  }
}

static void check_exact(const char *tier, const selective_scan_t *of, const inputs_t *in,
                        const float *out) {
  double want[LENGTH], size[LENGTH];
  for (int32_t s = 0; s < SEQUENCES; s++) {
    for (int32_t c = 0; c < of->channels; c++) {
      exact(of, in, s, c, want, size);
      for (int32_t t = 0; t < LENGTH; t++) {
        const float got = out[((int64_t)s * LENGTH + t) * of->channels + c];
        cr_assert(fabs(got - want[t]) < 2e-6 * (1 + size[t]),
                  "%s: %d x %d, token %d, channel %d: %g, expected %g, seed %llu", tier, of->rows,
                  of->channels, t, c, got, want[t], SEED);
      }
    }
  }
}

static void check_shape(const char *tier, int32_t channels, int32_t rows) {
  static const int32_t first[SEQUENCES] = {0, LENGTH}, zeros[SEQUENCES] = {0};
  static const int32_t whole[SEQUENCES] = {LENGTH, LENGTH};
  static float out[TOKENS * CHANNELS_MAX], again[TOKENS * CHANNELS_MAX];
  random_state_t random = random_start(79);
  device_t *device = device_prepared(tier, 3, &limits);
  inferd_error_t error;
  const selective_scan_t of = draw(device, &random, channels, rows);
  inputs_t in = draw_inputs(&random, &of);
  const size_t bytes = (size_t)LENGTH * (size_t)channels * sizeof(float);
  state_desc_t desc = {.num_slots = 4, .num_layers = 1};
  desc.values = of.offset + ops_cpu.state->values(1, rows, channels);
  ASSERT_EQ(ops_cpu.state->make(device, &desc, &error), 0);
  run(device, &of, &in, out, first, zeros, whole, SEQUENCES, NULL);
  check_exact(tier, &of, &in, out);
  for (int32_t done = 0, n; done < LENGTH; done += n) {
    const int32_t piece = 1 + random_below(&random, 9);
    n = MIN(LENGTH - done, piece);
    run(device, &of, &in, again, &first[1], &done, &n, 1, NULL);
  }
  cr_assert(memcmp(out + LENGTH * channels, again + LENGTH * channels, bytes) == 0,
            "%s: pieces have other bits, seed %llu", tier, SEED);
  /* The first sequence stores its state on the way; a row goes on with a copy of it. */
  const int32_t behind = 20, left = LENGTH - behind;
  state_save_t save = {0, behind, 3};
  state_copy_t copy = {.src = 3, .dst = 1};
  const batch_t copies = {.block_size = 16, .num_state_copies = 1, .state_copies = &copy};
  run(device, &of, &in, again, first, zeros, whole, 1, &save);
  cr_assert(memcmp(out, again, bytes) == 0, "%s: storing changes the row, seed %llu", tier, SEED);
  memset(again, 0, bytes);
  ops_cpu.begin(device, &copies);
  run(device, &of, &in, again, first, &behind, &left, 1, NULL);
  cr_assert(memcmp(out + behind * channels, again + behind * channels,
                   (size_t)left * (size_t)channels * sizeof(float)) == 0,
            "%s: a stored state goes on otherwise, seed %llu", tier, SEED);
  free_inputs(&in);
  ops_cpu.close(device);
}

Test(state, selections) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    check_shape(tiers[t], 64, 16);
    check_shape(tiers[t], CHANNELS_MAX, 5);
    check_shape(tiers[t], 3, 33);
    check_shape(tiers[t], 17, SELECT_ROWS_MAX);
  }
}
