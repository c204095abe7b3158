/* naive_state.c: convolution and recurrences as state_ops.h writes them; never for serving.
 *
 * Sums are in double. One device at a time: its slots stand in static variables.
 */
#include "tests/engine/model/naive_state.h"

#include "engine/base/check.h"
#include "engine/cpu/act.h"

#include <math.h>
#include <string.h>

static state_desc_t desc;
static float *slots;

static int64_t naive_state_values(int32_t num_heads, int32_t key_dim, int32_t value_dim) {
  return (int64_t)num_heads * key_dim * value_dim;
}

static size_t naive_state_bytes(const state_desc_t *d, int32_t num_slots) {
  return (size_t)num_slots * (size_t)d->num_layers * (size_t)d->values * sizeof(float);
}

static int naive_make(device_t *device, const state_desc_t *d, inferd_error_t *error) {
  (void)error;
  desc = *d;
  slots = naive_take(device, naive_state_bytes(d, d->num_slots));
  return 0;
}

/* State of a layer of a row; zeros if the row begins. */
static float *state_at(const batch_t *batch, int32_t row, int32_t layer, int64_t offset,
                       int64_t count) {
  int32_t slot = batch->state_slots[row];
  CHECK_RANGE(slot, 1, desc.num_slots);
  float *state = slots + ((int64_t)slot * desc.num_layers + layer) * desc.values + offset;
  if (batch->num_computed_tokens[row] == 0) memset(state, 0, (size_t)count * sizeof(float));
  return state;
}

static double silu(double x) {
  return x / (1.0 + exp(-x));
}

/* One channel of one token; `window` has its inputs before. */
static double conv_one(const conv_t *c, float *window, const float *in, int32_t channel) {
  double x = in[c->in_column + channel];
  if (c->before >= 0) x *= in[c->before + channel];
  const float *weight = naive_values(c->weight);
  double sum = c->bias != NULL ? naive_values(c->bias)[channel] : 0.0;
  for (int32_t k = 0; k + 1 < c->taps; k++)
    sum += (double)weight[k * c->channels + channel] * window[k * c->channels + channel];
  sum += weight[(c->taps - 1) * c->channels + channel] * x;
  for (int32_t k = 0; k + 1 < c->taps; k++) {
    bool newest = k + 2 == c->taps;
    window[k * c->channels + channel] = newest ? (float)x : window[(k + 1) * c->channels + channel];
  }
  if (c->silu) sum = silu(sum);
  return c->after >= 0 ? sum * in[c->after + channel] : sum;
}

static void naive_conv(device_t *device, act_t *out, const act_t *in, const conv_t *c) {
  const batch_t *batch = naive_batch(device);
  for (int32_t row = 0; row < batch->num_reqs; row++) {
    float *window = state_at(batch, row, c->layer, 0, (int64_t)(c->taps - 1) * c->channels);
    for (int32_t t = batch->query_start_loc[row]; t < batch->query_start_loc[row + 1]; t++) {
      const float *from = FLOATS(in) + (int64_t)t * c->in_width;
      float *to = FLOATS(out) + (int64_t)t * c->out_width + c->out_column;
      for (int32_t i = 0; i < c->channels; i++) to[i] = (float)conv_one(c, window, from, i);
    }
  }
}

/* One head of one token. */
static void recur_one(const recurrence_t *r, float *state, const float *in, int32_t head,
                      float *out) {
  const bool delta = r->kind == RECURRENCE_DELTA;
  const int32_t group = recurrence_group(r, head), rows = r->key_dim;
  const float *q = in + r->q + group * rows, *k = in + r->k + group * rows;
  const float *v = in + r->v + head * r->value_dim;
  double step = log1p(exp((double)in[r->step + head] + naive_values(r->bias)[head]));
  if (!delta) step = fmin(fmax(step, r->step_min), r->step_max);
  double decay = exp(naive_values(r->decay)[head] * step), q_length = 1e-6, k_length = 1e-6;
  double rate = delta ? (r->doubles ? 2.0 : 1.0) / (1.0 + exp(-(double)in[r->rate + head])) : step;
  for (int32_t i = 0; i < rows; i++) {
    q_length += (double)q[i] * q[i];
    k_length += (double)k[i] * k[i];
  }
  double q_factor = delta ? 1.0 / sqrt(q_length * rows) : 1, k_factor = 1 / sqrt(k_length);
  if (!delta) k_factor = 1;
  for (int32_t j = 0; j < r->value_dim; j++) {
    double had = 0, sum = 0;
    for (int32_t i = 0; i < rows; i++) had += decay * state[i * r->value_dim + j] * k[i] * k_factor;
    double add = rate * (delta ? v[j] - had : v[j]);
    for (int32_t i = 0; i < rows; i++) {
      double s = decay * state[i * r->value_dim + j] + k[i] * k_factor * add;
      state[i * r->value_dim + j] = (float)s;
      sum += s * q[i] * q_factor;
    }
    out[j] = (float)(sum + (r->skip != NULL ? naive_values(r->skip)[head] * v[j] : 0.0F));
  }
}

static void naive_recur(device_t *device, act_t *out, act_t *in, act_t *scratch,
                        const recurrence_t *r) {
  (void)scratch;
  const batch_t *batch = naive_batch(device);
  const int64_t each = naive_state_values(1, r->key_dim, r->value_dim);
  for (int32_t row = 0; row < batch->num_reqs; row++) {
    float *state = state_at(batch, row, r->layer, r->offset, each * r->num_heads);
    for (int32_t t = batch->query_start_loc[row]; t < batch->query_start_loc[row + 1]; t++) {
      for (int32_t h = 0; h < r->num_heads; h++)
        recur_one(r, state + h * each, FLOATS(in) + (int64_t)t * r->width, h,
                  FLOATS(out) + ((int64_t)t * r->num_heads + h) * r->value_dim);
    }
  }
}

/* One channel of one token. */
static double select_one(const selective_scan_t *s, float *state, double x, double step,
                         const float *keys, const float *queries, int32_t channel) {
  const double d = log1p(exp(step + naive_values(s->bias)[channel]));
  double sum = naive_values(s->skip)[channel] * x;
  for (int32_t n = 0; n < s->rows; n++) {
    const int64_t at = (int64_t)n * s->channels + channel;
    const double made = exp(naive_values(s->decay)[at] * d) * state[at] + keys[n] * d * x;
    state[at] = (float)made;
    sum += made * queries[n];
  }
  return sum;
}

static void naive_select(device_t *device, act_t *out, const act_t *x, const act_t *steps,
                         const act_t *keys, const act_t *queries, const selective_scan_t *s) {
  const batch_t *batch = naive_batch(device);
  for (int32_t row = 0; row < batch->num_reqs; row++) {
    float *state = state_at(batch, row, s->layer, s->offset, (int64_t)s->rows * s->channels);
    for (int32_t t = batch->query_start_loc[row]; t < batch->query_start_loc[row + 1]; t++) {
      const int64_t at = (int64_t)t * s->channels, row_at = (int64_t)t * s->rows;
      for (int32_t c = 0; c < s->channels; c++) FLOATS(out)
      [at + c] = (float)select_one(s, state, FLOATS(x)[at + c], FLOATS(steps)[at + c],
                                   FLOATS(keys) + row_at, FLOATS(queries) + row_at, c);
    }
  }
}

static void naive_gate(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                       const gating_t *g, int32_t rows) {
  (void)device;
  for (int64_t r = 0; r < rows; r++) {
    const float *x = FLOATS(in) + r * g->width, *z = FLOATS(gate) + r * g->gate_width;
    float *y = FLOATS(out) + r * g->width;
    z += g->gate_column;
    const int32_t span = g->group > 0 ? g->group : g->width;
    for (int32_t first = 0; first < g->width; first += span) {
      double squares = 0;
      for (int32_t i = first; i < first + span; i++) {
        double value = g->gate_first ? x[i] * silu(z[i]) : x[i];
        squares += value * value;
      }
      double inverse = g->group > 0 ? 1.0 / sqrt(squares / span + g->eps) : 1.0;
      for (int32_t i = first; i < first + span; i++) {
        const double of = z[g->gate_repeats > 1 ? i / g->gate_repeats : i];
        double act = g->sigmoid ? 1.0 / (1.0 + exp(-of)) : silu(of), weight = 1;
        const float *w = g->group > 0 ? naive_values(g->weight) : NULL;
        if (w != NULL) weight = g->weight_repeats ? w[i - first] : w[i];
        y[i] = (float)(x[i] * act * inverse * weight);
      }
    }
  }
}

static void naive_scale(device_t *device, act_t *x, const vector_t *factors, int32_t width,
                        int32_t rows) {
  (void)device;
  for (int64_t i = 0; i < (int64_t)rows * width; i++)
    FLOATS(x)[i] *= naive_values(factors)[i % width];
}

const state_ops_t naive_state_ops = {.key_dim_max = INT32_MAX,
                                     .values = naive_state_values,
                                     .bytes = naive_state_bytes,
                                     .make = naive_make,
                                     .conv = naive_conv,
                                     .recur = naive_recur,
                                     .select = naive_select,
                                     .gate = naive_gate,
                                     .scale = naive_scale};
