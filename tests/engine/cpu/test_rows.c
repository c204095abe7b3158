/* test_rows.c: embeddings, norms, activations and gather of every tier against double precision. */
#include "engine/cpu/act.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const step_limits_t limits = {.tokens_max = 64,
                                     .reqs_max = 4,
                                     .logits_rows_max = 4,
                                     .hidden_max = 700,
                                     .vocab_size = 300,
                                     .max_model_len = 64,
                                     .heads_max = 1,
                                     .head_dim_max = 16};

Test(rows, norms) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  static const int32_t widths[] = {1, 5, 16, 63, 64, 80, 257, 896};
  enum { ROWS = 40 };
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(10);
    device_t *device = device_prepared(tiers[t], 2, &limits);
    for (int variant = 0; variant < 8; variant++) {
      int32_t width = widths[variant];
      float *x = random_floats(&random, ROWS * width, 3), *w = random_floats(&random, width, 1);
      float *b = random_floats(&random, width, 1), *res = random_floats(&random, ROWS * width, 1);
      float *out = malloc(sizeof(float) * (size_t)(ROWS * width));
      norm_t norm = {.kind = variant % 2 ? NORM_LAYER : NORM_RMS, .width = width, .eps = 1e-5f};
      if (variant % 3) norm.weight = vector_make(device, w, width);
      if (variant % 2 && variant % 3) norm.bias = vector_make(device, b, width);
      bool add = variant >= 4;
      memcpy(out, res, sizeof(float) * (size_t)(ROWS * width));
      ops_cpu.norm(device, ACT(out), ACT(x), add ? ACT(out) : NULL, &norm, ROWS);
      for (int r = 0; r < ROWS; r++) {
        double mean = 0, square = 0;
        for (int i = 0; i < width; i++) mean += (double)x[r * width + i] / width;
        if (norm.kind == NORM_RMS) mean = 0;
        for (int i = 0; i < width; i++) square += pow(x[r * width + i] - mean, 2) / width;
        for (int i = 0; i < width; i++) {
          double y = (x[r * width + i] - mean) / sqrt(square + (double)norm.eps);
          if (norm.weight) y *= w[i];
          if (norm.bias) y += b[i];
          if (add) y += res[r * width + i];
          cr_assert_float_eq(out[r * width + i], y, 2e-5, "%s width %d: %g, not %g, seed %llu",
                             tiers[t], width, out[r * width + i], y, SEED);
        }
      }
      free(x), free(w), free(b), free(res), free(out);
    }
    ops_cpu.close(device);
  }
}

static double reference(activation_t kind, double x, double up) {
  double cubic = sqrt(2 / 3.14159265358979323846) * (x + 0.044715 * x * x * x);
  switch (kind) {
  case ACTIVATION_RELU: return x > 0 ? x : 0;
  case ACTIVATION_RELU2: return x > 0 ? x * x : 0;
  case ACTIVATION_GELU: return 0.5 * x * (1 + erf(x / sqrt(2)));
  case ACTIVATION_GELU_TANH: return 0.5 * x * (1 + tanh(cubic));
  case ACTIVATION_TANH: return tanh(x);
  case ACTIVATION_SILU: return x / (1 + exp(-x));
  case ACTIVATION_QUICK_GELU: return x / (1 + exp(-1.702 * x));
  case ACTIVATION_GELU_MUL: return 0.5 * x * (1 + erf(x / sqrt(2))) * up;
  case ACTIVATION_SILU_MUL: return x / (1 + exp(-x)) * up;
  case ACTIVATION_GELU_TANH_MUL: return 0.5 * x * (1 + tanh(cubic)) * up;
  case ACTIVATION_SIGMOID_MUL: return up / (1 + exp(-x));
  case ACTIVATION_CLAMPED_SWIGLU:
    x = fmin(x, 7);
    return (fmax(fmin(up, 7), -7) + 1) * x / (1 + exp(-1.702 * x));
  }
  return 0;
}

Test(rows, activations) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  enum { ROWS = 9, WIDTH = 1003 };
  static float in[ROWS * WIDTH * 2], out[ROWS * WIDTH];
  for (int t = 0; t < count; t++) {
    random_state_t random = random_start(11);
    device_t *device = device_prepared(tiers[t], 2, &limits);
    for (activation_t kind = ACTIVATION_RELU; kind <= ACTIVATION_QUICK_GELU; kind++) {
      bool gated = activation_is_gated(kind);
      int stride = gated ? 2 * WIDTH : WIDTH;
      for (int i = 0; i < ROWS * stride; i++)
        in[i] = random_float(&random) * (i % 3 ? 3.0f : i % 2 ? 100.0f : 0.01f);
      in[0] = -200, in[1] = 200, in[2] = 0;
      ops_cpu.activation(device, ACT(out), ACT(in), kind, WIDTH, ROWS);
      for (int r = 0; r < ROWS; r++) {
        for (int i = 0; i < WIDTH; i++) {
          double x = in[r * stride + i], up = gated ? in[r * stride + WIDTH + i] : 1;
          double y = reference(kind, x, up);
          double error = fabs(out[r * WIDTH + i] - y);
          /* cancellation in 1 + tanh: absolute in x for negative x */
          ASSERT_LE_FOR(error, 2e-7 * (fabs(y) * 4 + fabs(x * up)),
                        "%s kind %d at %g: %.9g, expected %.9g, seed %llu", tiers[t], kind, x,
                        out[r * WIDTH + i], y, SEED);
        }
      }
      in[5] = NAN;
      ops_cpu.activation(device, ACT(out), ACT(in), kind, WIDTH, 1);
      cr_assert(isnan(out[5]), "%s kind %d lost a NaN", tiers[t], kind);
      cr_assert(!isnan(out[4]));
      cr_assert(!isnan(out[6]));
    }
    ops_cpu.close(device);
  }
}

Test(rows, gated_add) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  enum { ROWS = 5, WIDTH = 77 };
  random_state_t random = random_start(13);
  for (int t = 0; t < count; t++) {
    device_t *device = device_prepared(tiers[t], 2, &limits);
    float *in = random_floats(&random, ROWS * WIDTH, 3);
    float *residual = random_floats(&random, ROWS * WIDTH, 3);
    float gate[ROWS] = {-200, -1.5f, 0, 0.25f, 200}, out[ROWS * WIDTH];
    memcpy(out, residual, sizeof out); /* residual aliases out */
    ops_cpu.gated_add(device, ACT(out), ACT(in), ACT(gate), ACT(out), WIDTH, ROWS);
    for (int i = 0; i < ROWS * WIDTH; i++) {
      double y = residual[i] + in[i] / (1 + exp(-(double)gate[i / WIDTH]));
      cr_assert_float_eq(out[i], y, 1e-6, "%s at %d: %g, expected %g, seed %llu", tiers[t], i,
                         out[i], y, SEED);
    }
    free(in), free(residual);
    ops_cpu.close(device);
  }
}

Test(rows, embeddings_and_gather) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  enum { T = 50, V = 133, H = 77 };
  random_state_t random = random_start(12);
  int32_t ids[T], positions[T], selected[3] = {0, 7, 49};
  for (int i = 0; i < T; i++) {
    ids[i] = random_below(&random, V);
    positions[i] = random_below(&random, V - 2);
  }
  ids[3] = V - 1, ids[4] = 0;
  batch_t batch = {.num_tokens = T,
                   .block_size = 16,
                   .input_ids = ids,
                   .positions = positions,
                   .num_selected = 3,
                   .selected_token_indices = selected};
  for (int t = 0; t < count; t++) {
    device_t *device = device_prepared(tiers[t], 3, &limits);
    for (dtype_t dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
      float *table = random_floats(&random, V * H, 1), *where = random_floats(&random, V * H, 1);
      weight_t *embed = weight_make(device, table, V, H, dtype);
      weight_t *learned = weight_make(device, where, V, H, dtype);
      float x[T * H], out[3 * H];
      ops_cpu.begin(device, &batch);
      ops_cpu.embed(device, ACT(x), embed, 1.5f);
      ops_cpu.embed_positions(device, ACT(x), learned, 2);
      ops_cpu.gather(device, ACT(out), ACT(x), H);
      inferd_error_t error;
      ASSERT_EQ(ops_cpu.end(device, &error), 0);
      for (int i = 0; i < T; i++)
        for (int j = 0; j < H; j++)
          ASSERT_EQ_FOR(x[i * H + j],
                        table[ids[i] * H + j] * 1.5f + where[(positions[i] + 2) * H + j],
                        "%s dtype %d token %d column %d, seed %llu", tiers[t], dtype, i, j, SEED);
      for (int i = 0; i < 3; i++)
        ASSERT_EQ(memcmp(out + i * H, x + selected[i] * H, sizeof(float) * H), 0);
      free(table), free(where);
    }
    ops_cpu.close(device);
  }
}
