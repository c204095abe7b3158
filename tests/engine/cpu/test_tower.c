/* test_tower.c: attention of towers by every tier against double precision, with q, k and v as they
 * are and rounded, and the bits of a row whatever other segments there are and however many
 * threads.
 */
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/isa/kernels.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 1 + 16 + 300 + 64 + 2 + 513 };

typedef struct heads {
  int32_t count, dim, parts; /* parts 0 = no rotation */
} heads_t;

static const heads_t shapes[] = {{2, 8, 1}, {3, 72, 1}, {2, 64, 2}, {1, 80, 0}, {2, 4, 1}};
/* One row, a whole vector of keys, more than a strip, a whole tile, two rows, two strips + 1. */
static const int32_t starts[] = {0, 1, 17, 317, 381, 383, ROWS};
static const tower_segments_t all = {starts, ARRAY_LEN(starts) - 1};

typedef struct rows {
  float *qkv, *cosine, *sine;
} rows_t;

static rows_t rows_make(const heads_t *shape) {
  random_state_t random = random_start(71);
  rows_t made = {.qkv = random_floats(&random, (int64_t)ROWS * 3 * shape->count * shape->dim, 2),
                 .cosine = random_floats(&random, (int64_t)ROWS * shape->dim / 2, 1),
                 .sine = random_floats(&random, (int64_t)ROWS * shape->dim / 2, 1)};
  return made;
}

static void rows_free(rows_t *rows) {
  free(rows->qkv), free(rows->cosine), free(rows->sine);
}

/* Value `i` of a head of row `row`, rotated. */
static double turned(const rows_t *rows, const heads_t *shape, int64_t row, const float *head,
                     int32_t i) {
  if (shape->parts == 0) return head[i];
  int32_t half = shape->dim / shape->parts / 2, part = i / (2 * half), j = i % half;
  double c = rows->cosine[row * shape->dim / 2 + part * half + j];
  double s = rows->sine[row * shape->dim / 2 + part * half + j];
  double a = head[part * 2 * half + j], b = head[part * 2 * half + half + j];
  return i % (2 * half) < half ? a * c - b * s : b * c + a * s;
}

static double rounded(double value, bool rounds) {
  return rounds ? (double)round_to((float)value, DTYPE_BF16) : value;
}

/* out[dim]: attention of a head of one row, written out. */
static void expect_row(const rows_t *rows, const heads_t *shape, int32_t begin, int32_t end,
                       int32_t row, int32_t head, bool rounds, double *out) {
  static double weights[ROWS];
  int64_t columns = (int64_t)shape->count * shape->dim, at = (int64_t)head * shape->dim;
  double max = -INFINITY, sum = 0;
  const float *q = rows->qkv + row * 3 * columns + at;
  for (int32_t key = begin; key < end; key++) {
    const float *k = rows->qkv + key * 3 * columns + columns + at;
    double dot = 0;
    for (int32_t i = 0; i < shape->dim; i++)
      dot += rounded(turned(rows, shape, row, q, i), rounds) *
             rounded(turned(rows, shape, key, k, i), rounds);
    weights[key] = dot * 0.25;
    max = fmax(max, weights[key]);
  }
  memset(out, 0, (size_t)shape->dim * sizeof *out);
  for (int32_t key = begin; key < end; key++) sum += weights[key] = exp(weights[key] - max);
  for (int32_t key = begin; key < end; key++) {
    const float *v = rows->qkv + key * 3 * columns + 2 * columns + at;
    for (int32_t i = 0; i < shape->dim; i++) out[i] += weights[key] / sum * rounded(v[i], rounds);
  }
}

static const step_limits_t small = {.tokens_max = 8,
                                    .reqs_max = 1,
                                    .logits_rows_max = 1,
                                    .hidden_max = 8,
                                    .vocab_size = 16,
                                    .max_model_len = 8,
                                    .heads_max = 1,
                                    .head_dim_max = 8};

/* Rows [first, ...) of the input by `segments`, whose places are relative to it; free() it. */
static float *attend(const char *isa, int threads, const heads_t *shape, const rows_t *rows,
                     int32_t first, const tower_segments_t *segments, bool rounds) {
  device_t *device = device_prepared(isa, threads, &small);
  inferd_error_t error;
  int64_t columns = (int64_t)shape->count * shape->dim;
  size_t count = (size_t)segments->starts[segments->count];
  ASSERT_EQ_FOR(ops_cpu.tower->prepare(device, shape->dim, &error), 0, "%s", error.message);
  act_t *qkv = ops_cpu.buffer(device, (int64_t)count, 3 * columns);
  act_t *out = ops_cpu.buffer(device, (int64_t)count, columns);
  tower_attention_t attention = {.num_heads = shape->count,
                                 .head_dim = shape->dim,
                                 .scale = 0.25f,
                                 .rope_parts = 1,
                                 .rounds = rounds,
                                 .end_row = segments->starts[segments->count]};
  if (shape->parts > 0) {
    attention.cosine = rows->cosine + (int64_t)first * shape->dim / 2;
    attention.sine = rows->sine + (int64_t)first * shape->dim / 2;
    attention.rope_parts = shape->parts;
  }
  ops_cpu.write_rows(device, qkv, rows->qkv + first * 3 * columns, (int32_t)(3 * columns),
                     (int32_t)count);
  ops_cpu.tower->attend(device, out, qkv, &attention, segments);
  float *taken = calloc(count * (size_t)columns, sizeof *taken);
  memcpy(taken, FLOATS(out), count * (size_t)columns * sizeof *taken);
  ops_cpu.close(device);
  return taken;
}

/* Every seventh row of all segments. `rounds` is what was allowed; a tier without `attend` does not
 * do it. Weights of the softmax are rounded, too: 2^-9 of values up to 2, and as much again for q
 * or k that lie between two numbers of bf16. */
static void check_tier(const char *tier, const heads_t *shape, bool rounds) {
  inferd_error_t error;
  const bool rounded_here = rounds && kernels_find(tier, &error)->attend != NULL;
  const double bound = rounded_here ? 8e-3 : 1e-5;
  rows_t rows = rows_make(shape);
  double expected[128];
  float *out = attend(tier, 2, shape, &rows, 0, &all, rounds);
  for (int32_t i = 0; i < all.count; i++) {
    for (int32_t row = starts[i]; row < starts[i + 1]; row += 7) {
      const int32_t head = row % shape->count;
      expect_row(&rows, shape, starts[i], starts[i + 1], row, head, rounded_here, expected);
      for (int32_t j = 0; j < shape->dim; j++) {
        double got = out[((int64_t)row * shape->count + head) * shape->dim + j];
        ASSERT_LE_FOR(fabs(got - expected[j]), bound, "%s, dim %d, row %d: %g for %g, seed %llu",
                      tier, shape->dim, row, got, expected[j], SEED);
      }
    }
  }
  free(out);
  rows_free(&rows);
}

Test(tower, attention_is_that_of_double_precision) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
    for (int t = 0; t < count; t++) check_tier(tiers[t], &shapes[s], false);
  }
}

Test(tower, rounded_attention_is_that_of_rounded_numbers) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
    for (int t = 0; t < count; t++) check_tier(tiers[t], &shapes[s], true);
  }
}

/* Each segment alone, on one thread and on three, has the bits that it has among the others. */
Test(tower, bits_of_a_segment_are_its_own) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < 2 * count; t++) {
    const heads_t *shape = &shapes[t % (int)ARRAY_LEN(shapes)];
    const char *tier = tiers[t % count];
    const bool rounds = t >= count;
    rows_t rows = rows_make(shape);
    float *together = attend(tier, 3, shape, &rows, 0, &all, rounds);
    size_t width = (size_t)shape->count * (size_t)shape->dim;
    for (int32_t i = 0; i < all.count; i++) {
      const int32_t alone[] = {0, starts[i + 1] - starts[i]};
      float *out =
          attend(tier, 1 + i % 2, shape, &rows, starts[i], &(tower_segments_t){alone, 1}, rounds);
      ASSERT_EQ_FOR(
          memcmp(out, together + (size_t)starts[i] * width, (size_t)alone[1] * width * sizeof *out),
          0, "%s: segment %d", tier, i);
      free(out);
    }
    free(together);
    rows_free(&rows);
  }
}

/* Columns of wider rows; what is beside them stays, and so does a NaN. */
Test(tower, clips_columns_at_their_bounds) {
  static const float in[] = {-INFINITY, -1.5f, -1.0f, 0.25f, 2.0f, 2.5f, INFINITY, NAN};
  static const float expected[] = {-1.0f, -1.0f, -1.0f, 0.25f, 2.0f, 2.0f, 2.0f, NAN};
  device_t *device = device_prepared("auto", 2, &small);
  act_t *from = ops_cpu.buffer(device, 4, 2), *out = ops_cpu.buffer(device, 4, 5);
  const tower_columns_t columns = {.first = 1, .width = 2, .stride = 5};
  float *values = FLOATS(out);
  memcpy(FLOATS(from), in, sizeof in);
  for (int i = 0; i < 4 * 5; i++) values[i] = 100 + (float)i;
  ops_cpu.tower->clip(device, out, &columns, from, -1, 2, 4);
  for (int i = 0; i < 4 * 5; i++) {
    const int column = i % 5 - 1, at = i / 5 * 2 + column;
    const bool is_own = column >= 0 && column < 2;
    const float wanted = is_own ? expected[at] : 100 + (float)i;
    ASSERT_EQ_FOR(isnan(wanted) ? isnan(values[i]) : values[i] == wanted, true, "%d: %g for %g", i,
                  (double)values[i], (double)wanted);
  }
  ops_cpu.close(device);
}
