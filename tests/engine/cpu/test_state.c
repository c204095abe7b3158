/* test_state.c: convolutions, recurrences and gates of every tier against double precision; and the
 * same bits however the sequences are cut into chunks, whatever stands beside them in the batch.
 */
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/weight.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SEQUENCES = 3, LENGTH = 37, TOKENS = SEQUENCES * LENGTH };

static const step_limits_t limits = {.tokens_max = TOKENS,
                                     .reqs_max = SEQUENCES,
                                     .logits_rows_max = 1,
                                     .hidden_max = 700,
                                     .vocab_size = 8,
                                     .max_model_len = LENGTH,
                                     .heads_max = 1,
                                     .head_dim_max = 16};

/* A batch with up to SEQUENCES rows; row r goes on with `counts[r]` tokens behind `done[r]`. */
typedef struct step {
  int32_t starts[SEQUENCES + 1], done[SEQUENCES], slots[SEQUENCES];
  batch_t batch;
} step_t;

static void describe(step_t *step, const int32_t *sequences, const int32_t *done,
                     const int32_t *counts, int32_t rows) {
  step->batch = (batch_t){.num_reqs = rows,
                          .block_size = 16,
                          .query_start_loc = step->starts,
                          .num_computed_tokens = step->done,
                          .state_slots = step->slots};
  step->starts[0] = 0;
  for (int32_t r = 0; r < rows; r++) {
    step->starts[r + 1] = step->starts[r] + counts[r];
    step->done[r] = done[r];
    step->slots[r] = SEQUENCES - sequences[r];
  }
  step->batch.num_tokens = step->starts[rows];
}

typedef struct shapes {
  recurrence_kind_t kind;
  int32_t taps, heads, groups, key_dim, value_dim;
  bool doubles;
} shapes_t;

/* One layer: the convolution in place over q, k, v, then the recurrence. */
typedef struct layer {
  conv_t conv;
  recurrence_t r;
  int32_t channels, width, inner;
} layer_t;

static layer_t make_layer(device_t *device, random_state_t *random, const shapes_t *s) {
  layer_t made = {.inner = s->heads * s->value_dim};
  const int32_t keys = s->groups * s->key_dim;
  made.channels = 2 * keys + made.inner;
  made.width = made.channels + 2 * s->heads + 3; /* columns that nobody reads */
  float *weight = random_floats(random, (int64_t)s->taps * made.channels, 1);
  float *bias = random_floats(random, made.channels, 0.3F);
  float *decay = random_floats(random, s->heads, 1), *step = random_floats(random, s->heads, 1);
  for (int32_t h = 0; h < s->heads; h++) decay[h] = -0.05F - fabsf(decay[h]);
  made.conv = (conv_t){.channels = made.channels,
                       .taps = s->taps,
                       .in_width = made.width,
                       .out_width = made.width,
                       .before = -1,
                       .after = -1,
                       .silu = true,
                       .weight = vector_make(device, weight, (int64_t)s->taps * made.channels),
                       .bias = vector_make(device, bias, made.channels)};
  made.r = (recurrence_t){.kind = s->kind,
                          .offset = (int64_t)(s->taps - 1) * made.channels,
                          .doubles = s->doubles,
                          .num_heads = s->heads,
                          .num_groups = s->groups,
                          .key_dim = s->key_dim,
                          .value_dim = s->value_dim,
                          .width = made.width,
                          .k = keys,
                          .v = 2 * keys,
                          .rate = made.channels,
                          .step = made.channels + s->heads,
                          .step_min = 0.1F,
                          .step_max = 1.5F,
                          .decay = vector_make(device, decay, s->heads),
                          .bias = vector_make(device, step, s->heads)};
  if (s->kind == RECURRENCE_SCAN) made.r.skip = vector_make(device, bias, s->heads);
  free(weight), free(bias), free(decay), free(step);
  return made;
}

/* States that the next run stores. */
static state_save_t *saves;
static int32_t num_saves;

/* Runs rows through the layer. `out` of a sequence is [LENGTH, inner]. */
static void run(device_t *device, const layer_t *layer, const float *in, float *out,
                const int32_t *sequences, const int32_t *done, const int32_t *counts,
                int32_t rows) {
  static float x[TOKENS * 700], y[TOKENS * 400], scratch[TOKENS * 64];
  step_t step;
  describe(&step, sequences, done, counts, rows);
  step.batch.state_saves = saves;
  step.batch.num_state_saves = num_saves;
  const size_t width = (size_t)layer->width, inner = (size_t)layer->inner;
  for (int32_t r = 0; r < rows; r++)
    memcpy(x + (size_t)step.starts[r] * width,
           in + (size_t)(sequences[r] * LENGTH + done[r]) * width,
           (size_t)counts[r] * width * sizeof *x);
  ops_cpu.begin(device, &step.batch);
  ops_cpu.state->conv(device, ACT(x), ACT(x), &layer->conv);
  ops_cpu.state->recur(device, ACT(y), ACT(x), ACT(scratch), &layer->r);
  for (int32_t r = 0; r < rows; r++)
    memcpy(out + (size_t)(sequences[r] * LENGTH + done[r]) * inner,
           y + (size_t)step.starts[r] * inner, (size_t)counts[r] * inner * sizeof *y);
}

static double silu(double x) {
  return x / (1 + exp(-x));
}

/* One head of one token in double precision; `x` has the channels behind the convolution. */
static void step_exact(const recurrence_t *r, const double *x, const float *in, int32_t head,
                       double *state, double *out) {
  const bool delta = r->kind == RECURRENCE_DELTA;
  const int32_t group = head / (r->num_heads / r->num_groups), rows = r->key_dim;
  const double *q = x + r->q + group * rows, *k = x + r->k + group * rows;
  const double *v = x + r->v + head * r->value_dim;
  double step = log1p(exp((double)in[r->step + head] + r->bias->values[head]));
  if (!delta) step = fmin(fmax(step, r->step_min), r->step_max);
  double decay = exp(r->decay->values[head] * step), qq = 1e-6, kk = 1e-6;
  double rate = delta ? (r->doubles ? 2 : 1) / (1 + exp(-(double)in[r->rate + head])) : step;
  for (int32_t i = 0; i < rows; i++) qq += q[i] * q[i], kk += k[i] * k[i];
  double q_factor = delta ? 1 / sqrt(qq * rows) : 1, k_factor = delta ? 1 / sqrt(kk) : 1;
  for (int32_t j = 0; j < r->value_dim; j++) {
    double had = 0, sum = 0;
    for (int32_t i = 0; delta && i < rows; i++)
      had += decay * state[i * r->value_dim + j] * k[i] * k_factor;
    for (int32_t i = 0; i < rows; i++) {
      double *s = &state[i * r->value_dim + j];
      *s = decay * *s + k[i] * k_factor * rate * (v[j] - had);
      sum += *s * q[i] * q_factor;
    }
    out[head * r->value_dim + j] = sum + (r->skip != NULL ? r->skip->values[head] * v[j] : 0);
  }
}

/* One sequence in double precision: [LENGTH, inner]. */
static void exact(const layer_t *layer, const float *in, double *out) {
  const recurrence_t *r = &layer->r;
  const int32_t taps = layer->conv.taps, channels = layer->channels;
  const size_t each = (size_t)r->key_dim * (size_t)r->value_dim;
  double *state = calloc((size_t)r->num_heads * each, sizeof *state), x[700];
  cr_assert_not_null(state);
  for (int32_t t = 0; t < LENGTH; t++) {
    for (int32_t c = 0; c < channels; c++) {
      double sum = layer->conv.bias->values[c];
      for (int32_t k = t < taps - 1 ? taps - 1 - t : 0; k < taps; k++)
        sum += (double)layer->conv.weight->values[k * channels + c] *
               in[(t - taps + 1 + k) * layer->width + c];
      x[c] = silu(sum);
    }
    for (int32_t h = 0; h < r->num_heads; h++)
      step_exact(r, x, in + t * layer->width, h, state + (size_t)h * each, out + t * layer->inner);
  }
  free(state);
}

/* Runs sequences 0 and 1 in pieces of random lengths, sequence 2 between the pieces of 1. */
static void run_in_pieces(device_t *device, random_state_t *random, const layer_t *layer,
                          const float *in, float *out) {
  const int32_t other = 2, zero = 0, length = LENGTH;
  for (int32_t s = 0; s < 2; s++) {
    for (int32_t done = 0, n; done < LENGTH; done += n) {
      int32_t piece = 1 + random_below(random, 9);
      n = MIN(LENGTH - done, piece);
      run(device, layer, in, out, &s, &done, &n, 1);
      if (s == 1 && done == 0) run(device, layer, in, out, &other, &zero, &length, 1);
    }
  }
}

/* Sequence 1 goes on behind a copy of the state of sequence 0, with the same last token. */
static void run_copied(device_t *device, const layer_t *layer, float *in, float *out) {
  const int32_t sequences[2] = {0, 1}, zero = 0, most = LENGTH - 1, one = 1;
  const size_t width = (size_t)layer->width;
  state_copy_t copy = {.src = SEQUENCES, .dst = SEQUENCES - 1}; /* their slots */
  batch_t copies = {.block_size = 16, .num_state_copies = 1, .state_copies = &copy};
  run(device, layer, in, out, &sequences[0], &zero, &most, 1);
  ops_cpu.begin(device, &copies);
  memcpy(in + (2 * LENGTH - 1) * width, in + (LENGTH - 1) * width, width * sizeof *in);
  run(device, layer, in, out, &sequences[1], &most, &one, 1);
}

/* Sequence 0 stores its state behind some tokens; sequence 1 goes on from there in one slot after
 * the other. Every stored state is that behind so many tokens. */
static void run_saved(device_t *device, const layer_t *layer, float *in, float *out) {
  const int32_t both[2] = {0, 1}, zeros[2] = {0}, counts[2] = {LENGTH, LENGTH};
  const size_t width = (size_t)layer->width, inner = (size_t)layer->inner;
  static float kept[TOKENS * 400];
  state_save_t places[] = {{0, 1, SEQUENCES + 1},
                           {0, 12, SEQUENCES + 2},
                           {0, 12, SEQUENCES + 3},
                           {1, LENGTH, SEQUENCES + 4}};
  memcpy(in + LENGTH * width, in, LENGTH * width * sizeof *in);
  saves = places, num_saves = 4;
  run(device, layer, in, kept, both, zeros, counts, 2);
  saves = NULL, num_saves = 0;
  for (int i = 0; i < 3; i++) {
    const int32_t done = places[i].behind, left = LENGTH - done;
    state_copy_t copy = {.src = places[i].slot, .dst = SEQUENCES - 1};
    batch_t copies = {.block_size = 16, .num_state_copies = 1, .state_copies = &copy};
    ops_cpu.begin(device, &copies);
    run(device, layer, in, out, &both[1], &done, &left, 1);
    cr_assert(memcmp(out + (size_t)(LENGTH + done) * inner, kept + (size_t)done * inner,
                     (size_t)left * inner * sizeof *out) == 0,
              "a state stored behind %d tokens goes on otherwise, seed %llu", done, SEED);
  }
  cr_assert(memcmp(kept, kept + LENGTH * inner, LENGTH * inner * sizeof *kept) == 0,
            "storing states on the way changes the row, seed %llu", SEED);
}

static void check_shape(const char *tier, const shapes_t *shapes) {
  static const int32_t all[SEQUENCES] = {0, 1, 2}, zeros[SEQUENCES] = {0};
  static const int32_t whole[SEQUENCES] = {LENGTH, LENGTH, LENGTH};
  static float out[TOKENS * 400], again[TOKENS * 400];
  static double want[LENGTH * 400];
  random_state_t random = random_start(77);
  device_t *device = device_prepared(tier, 3, &limits);
  inferd_error_t error;
  layer_t layer = make_layer(device, &random, shapes);
  const state_ops_t *ops = ops_cpu.state;
  state_desc_t desc = {.num_slots = SEQUENCES + 5, .num_layers = 1};
  desc.values = layer.r.offset + ops->values(shapes->heads, shapes->key_dim, shapes->value_dim);
  ASSERT_EQ(ops->make(device, &desc, &error), 0);
  float *in = random_floats(&random, (int64_t)TOKENS * layer.width, 1);
  const size_t inner = (size_t)layer.inner;
  run(device, &layer, in, out, all, zeros, whole, SEQUENCES);
  for (int32_t s = 0; s < SEQUENCES; s++) {
    const float *got = out + s * LENGTH * layer.inner;
    exact(&layer, in + (int64_t)s * LENGTH * layer.width, want);
    for (int32_t i = 0; i < LENGTH * layer.inner; i++)
      cr_assert(fabs(got[i] - want[i]) < 2e-5 * (1 + fabs(want[i])),
                "%s kind %d: sequence %d token %d: %g, expected %g, seed %llu", tier,
                (int)shapes->kind, s, i / layer.inner, got[i], want[i], SEED);
  }
  run_in_pieces(device, &random, &layer, in, again);
  cr_assert(memcmp(out, again, TOKENS * inner * sizeof *out) == 0, "%s: other bits, seed %llu",
            tier, SEED);
  run_copied(device, &layer, in, again);
  cr_assert(memcmp(out + (LENGTH - 1) * inner, again + (2 * LENGTH - 1) * inner,
                   inner * sizeof *out) == 0,
            "%s: a copied state goes on otherwise, seed %llu", tier, SEED);
  run_saved(device, &layer, in, again);
  free(in);
  ops_cpu.close(device);
}

Test(state, recurrences) {
  static const shapes_t shapes[] = {
      {RECURRENCE_DELTA, 4, 4, 2, 16, 32, false}, {RECURRENCE_DELTA, 2, 3, 1, 33, 70, false},
      {RECURRENCE_DELTA, 5, 2, 2, 7, 5, false},   {RECURRENCE_DELTA, 4, 4, 2, 16, 32, true},
      {RECURRENCE_SCAN, 4, 6, 2, 24, 64, false},  {RECURRENCE_SCAN, 3, 4, 1, 17, 12, false},
  };
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) check_shape(tiers[t], &shapes[i]);
  }
}

enum { GATE_ROWS = 9, WIDTH = 60, GATE_WIDTH = 71 };

/* Column `c` of a gated row in double precision. */
static double gate_exact(const gating_t *g, const float *in, const float *gate, const float *weight,
                         int c) {
  const float *z = gate + g->gate_column;
  const int span = g->group > 0 ? g->group : WIDTH;
  double squares = 0, y = in[c];
  for (int j = c / span * span; j < (c / span + 1) * span; j++) {
    double x = in[j] * (g->gate_first ? silu(z[j]) : 1);
    squares += x * x;
  }
  if (g->group > 0)
    y *= weight[g->weight_repeats ? c % g->group : c] / sqrt(squares / span + g->eps);
  if (g->gate_repeats > 1) c /= g->gate_repeats;
  return y * (g->sigmoid ? 1 / (1 + exp(-(double)z[c])) : silu(z[c]));
}

Test(state, gates) {
  static const gating_t gatings[] = {
      {.width = WIDTH, .gate_width = GATE_WIDTH, .gate_column = 4, .sigmoid = true},
      {.width = WIDTH, .gate_width = GATE_WIDTH, .gate_column = 11, .group = 20, .eps = 1e-5F},
      {.width = WIDTH, .gate_width = GATE_WIDTH, .group = 15, .eps = 1e-3F, .weight_repeats = true},
      {.width = WIDTH, .gate_width = GATE_WIDTH, .group = 60, .eps = 1e-5F, .gate_first = true},
      {.width = WIDTH,
       .gate_width = GATE_WIDTH,
       .gate_column = 3,
       .gate_repeats = 12,
       .sigmoid = true},
  };
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(78);
    device_t *device = device_prepared(tiers[t], 2, &limits);
    float *in = random_floats(&random, GATE_ROWS * WIDTH, 3);
    float *gate = random_floats(&random, GATE_ROWS * GATE_WIDTH, 3);
    float *weight = random_floats(&random, WIDTH, 1), out[GATE_ROWS * WIDTH];
    for (size_t i = 0; i < sizeof gatings / sizeof *gatings; i++) {
      gating_t g = gatings[i];
      g.weight = vector_make(device, weight, g.weight_repeats ? g.group : WIDTH);
      ops_cpu.state->gate(device, ACT(out), ACT(in), ACT(gate), &g, GATE_ROWS);
      for (int at = 0; at < GATE_ROWS * WIDTH; at++) {
        int row = at / WIDTH;
        double y = gate_exact(&g, in + row * WIDTH, gate + row * GATE_WIDTH, weight, at % WIDTH);
        cr_assert(fabs(out[at] - y) < 3e-6 * (1 + fabs(y)),
                  "%s case %zu: %g, expected %g, seed %llu", tiers[t], i, out[at], y, SEED);
      }
    }
    free(in), free(weight), free(gate);
    ops_cpu.close(device);
  }
}
