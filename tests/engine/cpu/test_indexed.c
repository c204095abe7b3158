/* test_indexed.c: attention to the tokens that an indexer chooses: the choice against one in double
 * precision, the sums against attention to rows that were chosen by hand, the same bits however a
 * prompt is cut, and those of plain latent attention where a token may attend to all.
 */
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 2700, RANK = 34, ROPE = 8, NOPE = 12, VALUE = 10, HEADS = 20, WIDTH = RANK + ROPE };
enum { INDEX_HEADS = 18, INDEX_DIM = 14, ROW = WIDTH + INDEX_DIM };

/* What stands in the rows of all tokens. */
typedef struct inputs {
  float *rows, *q, *keys, *index_q, *weights;
  float inv_freq[ROPE / 2];
} inputs_t;

typedef struct rig {
  const inputs_t *in;
  device_t *device;
  int32_t block_size;
  dtype_t dtype;
  rope_t rope;
  latent_t latent;
  indexer_t indexer;
  float *rows, *q, *queries, *sums, *out, *keys, *index_q, *weights, *chosen;
  int32_t table[LENGTH + 1];
  float *found; /* [LENGTH, HEADS VALUE] */
} rig_t;

static inputs_t inputs_make(void) {
  random_state_t random = random_start(77);
  inputs_t made = {.rows = random_floats(&random, LENGTH * WIDTH, 1),
                   .q = random_floats(&random, LENGTH * HEADS * (NOPE + ROPE), 2),
                   .keys = random_floats(&random, LENGTH * INDEX_DIM, 1),
                   .index_q = random_floats(&random, LENGTH * INDEX_HEADS * INDEX_DIM, 1),
                   .weights = random_floats(&random, LENGTH * INDEX_HEADS, 1)};
  for (int i = 0; i < ROPE / 2; i++) made.inv_freq[i] = (float)pow(100, -2.0 * i / ROPE);
  return made;
}

static void inputs_free(inputs_t *in) {
  free(in->rows), free(in->q), free(in->keys), free(in->index_q), free(in->weights);
}

static const void *next_row(void *context, int64_t row, void *scratch) {
  const weight_source_t *source = context;
  (void)scratch;
  return (const float *)source->context + row * source->cols;
}

/* A matrix of every head. */
static weight_t *stack(device_t *device, random_state_t *random, int32_t rows, int32_t cols) {
  float *values = random_floats(random, (int64_t)HEADS * rows * cols, 0.4f);
  weight_source_t values_of = {.cols = cols, .context = values};
  const weight_source_t source = {.name = "heads",
                                  .rows = (int64_t)HEADS * rows,
                                  .cols = cols,
                                  .stack = HEADS,
                                  .dtype = DTYPE_F32,
                                  .row = next_row,
                                  .context = &values_of};
  weight_t *weight = NULL;
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.weight(device, &source, &weight, &error), 0, "%s", error.message);
  free(values);
  return weight;
}

static rig_t rig_start(const inputs_t *in, const char *isa, int threads, dtype_t dtype,
                       int32_t block_size, int32_t top) {
  const step_limits_t limits = {.tokens_max = LENGTH,
                                .reqs_max = 1,
                                .logits_rows_max = 1,
                                .hidden_max = HEADS * WIDTH,
                                .vocab_size = 16,
                                .max_model_len = LENGTH,
                                .heads_max = HEADS,
                                .head_dim_max = ROW};
  const kv_cache_desc_t desc = {.num_layers = 2,
                                .num_kv_heads = 1,
                                .head_dim = ROW,
                                .num_blocks = LENGTH / block_size + 3,
                                .block_size = block_size,
                                .latent = true,
                                .dtype = dtype};
  random_state_t random = random_start(78);
  inferd_error_t error;
  rig_t r = {.in = in,
             .device = device_prepared(isa, threads, &limits),
             .block_size = block_size,
             .dtype = dtype,
             .rope = {ROPE, in->inv_freq, 1.25f, NULL}};
  ASSERT_EQ_FOR(ops_cpu.kv_cache(r.device, &desc, &error), 0, "%s", error.message);
  float *norm = random_floats(&random, RANK, 1), *key_norm = random_floats(&random, INDEX_DIM, 1),
        *key_bias = random_floats(&random, INDEX_DIM, 1);
  const weight_t *key = stack(r.device, &random, RANK, NOPE);
  const weight_t *value = stack(r.device, &random, VALUE, RANK);
  r.latent = (latent_t){.layer = 1,
                        .num_heads = HEADS,
                        .rank = RANK,
                        .rope_dim = ROPE,
                        .nope_dim = NOPE,
                        .value_dim = VALUE,
                        .scale = 0.3f,
                        .norm_eps = 1e-6f,
                        .norm = vector_make(r.device, norm, RANK),
                        .key = key,
                        .value = value,
                        .top = top};
  r.indexer = (indexer_t){.num_heads = INDEX_HEADS,
                          .dim = INDEX_DIM,
                          .norm_eps = 1e-6f,
                          .norm = vector_make(r.device, key_norm, INDEX_DIM),
                          .norm_bias = vector_make(r.device, key_bias, INDEX_DIM)};
  free(norm), free(key_norm), free(key_bias);
  float **const buffers[] = {&r.rows, &r.q,       &r.queries, &r.sums,  &r.out,
                             &r.keys, &r.index_q, &r.weights, &r.chosen};
  const int32_t widths[] = {
      WIDTH,     HEADS * (NOPE + ROPE),   HEADS * WIDTH, HEADS * RANK,    HEADS * VALUE,
      INDEX_DIM, INDEX_HEADS * INDEX_DIM, INDEX_HEADS,   INDEX_WIDTH(top)};
  for (size_t i = 0; i < sizeof widths / sizeof *widths; i++)
    *buffers[i] = FLOATS(ops_cpu.buffer(r.device, LENGTH, widths[i]));
  for (int32_t b = 0; b <= LENGTH / block_size; b++)
    r.table[b] = 1 + (b * 7 + 3) % (LENGTH / block_size + 1); /* every block once, in no order */
  r.found = calloc((size_t)LENGTH * HEADS * VALUE, sizeof(float));
  return r;
}

static void rig_stop(rig_t *r) {
  ops_cpu.close(r->device);
  free(r->found);
}

static void copy(float *to, const float *from, int32_t first, int32_t count, int32_t width) {
  memcpy(to, from + (int64_t)first * width, (size_t)count * (size_t)width * sizeof(float));
}

/* Tokens [first, first + count); with `plain` as a layer without an indexer computes them. */
static void run(rig_t *r, int32_t first, int32_t count, bool plain) {
  static int32_t positions[LENGTH], request_row[LENGTH];
  static int64_t slots[LENGTH];
  const latent_ops_t *ops = ops_cpu.latent;
  const int32_t starts[] = {0, count}, len = first + count, *const table = r->table;
  for (int32_t i = 0; i < count; i++) {
    const int32_t at = first + i;
    positions[i] = at;
    slots[i] = (int64_t)r->table[at / r->block_size] * r->block_size + at % r->block_size;
  }
  const batch_t batch = {.num_tokens = count,
                         .num_reqs = 1,
                         .block_size = r->block_size,
                         .positions = positions,
                         .request_row = request_row,
                         .slot_mapping = slots,
                         .query_start_loc = (int32_t *)(uintptr_t)starts,
                         .seq_lens = (int32_t *)(uintptr_t)&len,
                         .block_table = (const int32_t **)(uintptr_t)&table};
  r->latent.rope = &r->rope;
  copy(r->rows, r->in->rows, first, count, WIDTH);
  copy(r->q, r->in->q, first, count, HEADS * (NOPE + ROPE));
  copy(r->keys, r->in->keys, first, count, INDEX_DIM);
  copy(r->index_q, r->in->index_q, first, count, INDEX_HEADS * INDEX_DIM);
  copy(r->weights, r->in->weights, first, count, INDEX_HEADS);
  ops_cpu.begin(r->device, &batch);
  ops->store(r->device, ACT(r->rows), &r->latent);
  ops->store_keys(r->device, ACT(r->keys), &r->latent, &r->indexer);
  if (plain) {
    ops->attend(r->device, ACT(r->out), ACT(r->q), ACT(r->queries), ACT(r->sums), &r->latent);
  } else {
    ops->choose(r->device, ACT(r->chosen), ACT(r->index_q), ACT(r->weights), &r->latent,
                &r->indexer);
    ops->attend_chosen(r->device, ACT(r->out), ACT(r->q), ACT(r->queries), ACT(r->sums),
                       ACT(r->chosen), &r->latent);
  }
  memcpy(r->found + (int64_t)first * HEADS * VALUE, r->out,
         (size_t)count * HEADS * VALUE * sizeof(float));
}

static void run_chunks(rig_t *r, int32_t chunk, bool plain) {
  for (int32_t first = 0; first < LENGTH; first += chunk)
    run(r, first, LENGTH - first < chunk ? LENGTH - first : chunk, plain);
}

static void turn(double *head, const inputs_t *in, int32_t position) {
  for (int32_t i = 0; i < ROPE / 2; i++) {
    const double angle = (float)position * in->inv_freq[i];
    const double c = cos(angle) * 1.25, s = sin(angle) * 1.25;
    const double a = head[i], b = head[i + ROPE / 2];
    head[i] = a * c - b * s;
    head[i + ROPE / 2] = b * c + a * s;
  }
}

/* The key that a token leaves for the indexer. */
static void index_key(const rig_t *r, int32_t at, double *key) {
  const float *in = r->in->keys + (int64_t)at * INDEX_DIM;
  double mean = 0, squares = 0;
  for (int i = 0; i < INDEX_DIM; i++) mean += (double)in[i] / INDEX_DIM;
  for (int i = 0; i < INDEX_DIM; i++) squares += (in[i] - mean) * (in[i] - mean) / INDEX_DIM;
  for (int i = 0; i < INDEX_DIM; i++)
    key[i] = (in[i] - mean) / sqrt(squares + 1e-6) * (double)r->indexer.norm->values[i] +
             (double)r->indexer.norm_bias->values[i];
  turn(key, r->in, at);
}

/* scores[0 .. at] of the keys that the token at `at` sees. */
static void index_scores(const rig_t *r, int32_t at, double *scores) {
  static double q[INDEX_HEADS][INDEX_DIM];
  for (int h = 0; h < INDEX_HEADS; h++) {
    for (int i = 0; i < INDEX_DIM; i++)
      q[h][i] = r->in->index_q[((int64_t)at * INDEX_HEADS + h) * INDEX_DIM + i];
    turn(q[h], r->in, at);
  }
  for (int32_t j = 0; j <= at; j++) {
    double key[INDEX_DIM];
    index_key(r, j, key);
    scores[j] = 0;
    for (int h = 0; h < INDEX_HEADS; h++) {
      double product = 0;
      for (int i = 0; i < INDEX_DIM; i++) product += q[h][i] * key[i];
      scores[j] += (double)r->in->weights[(int64_t)at * INDEX_HEADS + h] * fmax(product, 0);
    }
  }
}

/* Positions of the best `top` keys in `best`; how much better the last of them is than the next. */
static double choose(double *scores, int32_t count, int32_t top, bool *best) {
  double last = 0, next = -INFINITY;
  memset(best, 0, (size_t)count);
  for (int32_t n = 0; n <= top && n < count; n++) {
    int32_t found = -1;
    for (int32_t j = 0; j < count; j++)
      if (!best[j] && (found < 0 || scores[j] > scores[found])) found = j;
    if (n == top)
      next = scores[found];
    else
      best[found] = true, last = scores[found];
  }
  return last - next;
}

/* The sums of a head over chosen rows, K and V written out. */
static void reference(const rig_t *r, int32_t at, int32_t head, const bool *chosen, double *out) {
  const float *in = r->in->q + ((int64_t)at * HEADS + head) * (NOPE + ROPE);
  double q[NOPE + ROPE], latent_q[RANK] = {0}, sums[RANK] = {0}, total = 0, row[WIDTH];
  for (int i = 0; i < NOPE + ROPE; i++) q[i] = in[i];
  turn(q + NOPE, r->in, at);
  random_state_t random = random_start(78); /* the matrices, as rig_start drew them */
  free(random_floats(&random, RANK, 1));
  free(random_floats(&random, INDEX_DIM, 1));
  free(random_floats(&random, INDEX_DIM, 1));
  float *key = random_floats(&random, HEADS * RANK * NOPE, 0.4f);
  float *value = random_floats(&random, HEADS * VALUE * RANK, 0.4f);
  for (int i = 0; i < RANK; i++)
    for (int n = 0; n < NOPE; n++)
      latent_q[i] += q[n] * (double)key[((int64_t)head * RANK + i) * NOPE + n];
  for (int32_t j = 0; j <= at; j++) {
    if (!chosen[j]) continue;
    const float *from = r->in->rows + (int64_t)j * WIDTH;
    double squares = 0, score = 0;
    for (int i = 0; i < RANK; i++) squares += (double)from[i] * from[i];
    for (int i = 0; i < RANK; i++)
      row[i] = from[i] / sqrt(squares / RANK + 1e-6) * (double)r->latent.norm->values[i];
    for (int i = RANK; i < WIDTH; i++) row[i] = from[i];
    turn(row + RANK, r->in, j);
    for (int i = 0; i < RANK; i++) score += latent_q[i] * row[i];
    for (int i = 0; i < ROPE; i++) score += q[NOPE + i] * row[RANK + i];
    const double share = exp(score * (double)0.3f);
    total += share;
    for (int i = 0; i < RANK; i++) sums[i] += share * row[i];
  }
  for (int v = 0; v < VALUE; v++) {
    out[v] = 0;
    for (int i = 0; i < RANK; i++)
      out[v] += sums[i] / total * (double)value[((int64_t)head * VALUE + v) * RANK + i];
  }
  free(key), free(value);
}

Test(indexed, tokens_attend_to_the_best_keys_of_an_indexer) {
  static const int32_t places[] = {3, 4, 5, 6, 40, 255, 256, 1000, 2047, 2048, LENGTH - 1};
  static const int32_t tops[] = {1, 5, 300, 2100};
  inputs_t in = inputs_make();
  double *scores = calloc(LENGTH, sizeof *scores);
  bool *best = calloc(LENGTH, sizeof *best);
  for (size_t n = 0; n < sizeof tops / sizeof *tops; n++) {
    rig_t r = rig_start(&in, "auto", 2, DTYPE_F32, n % 2 == 0 ? 16 : 4, tops[n]);
    run_chunks(&r, 500, false);
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
      const int32_t at = places[p];
      index_scores(&r, at, scores);
      /* what rounding may decide says nothing */
      if (choose(scores, at + 1, tops[n], best) < 1e-5 && at >= tops[n]) continue;
      for (int32_t head = 0; head < HEADS; head += 7) {
        double wanted[VALUE];
        reference(&r, at, head, best, wanted);
        const float *found = r.found + ((int64_t)at * HEADS + head) * VALUE;
        for (int v = 0; v < VALUE; v++)
          cr_assert_float_eq(found[v], wanted[v], 1e-4, "top %d, token %d: %g, expected %g",
                             tops[n], at, (double)found[v], wanted[v]);
      }
    }
    rig_stop(&r);
  }
  free(scores), free(best);
  inputs_free(&in);
}

Test(indexed, bits_do_not_depend_on_chunks_or_threads) {
  static const int32_t chunks[] = {7, 48, 700};
  const char *tiers[NUM_TIER_NAMES];
  const int count = tiers_here(tiers);
  const size_t bytes = (size_t)LENGTH * HEADS * VALUE * sizeof(float);
  inputs_t in = inputs_make();
  float *expected = malloc(bytes);
  for (int t = 0; t < count; t++) {
    const dtype_t dtype = t % 2 == 0 ? DTYPE_BF16 : DTYPE_F32;
    for (size_t n = 0; n < sizeof chunks / sizeof *chunks; n++) {
      rig_t r = rig_start(&in, tiers[t], n == 0 ? 1 : 3, dtype, 16, 100);
      if (n == 0) {
        run_chunks(&r, LENGTH, false);
        memcpy(expected, r.found, bytes);
      }
      run_chunks(&r, chunks[n], false);
      ASSERT_EQ_FOR(memcmp(r.found, expected, bytes), 0, "%s: %d at a time", tiers[t], chunks[n]);
      rig_stop(&r);
    }
  }
  free(expected);
  inputs_free(&in);
}

/* Also in a step in which others choose: the last token alone sees more keys than it may. */
Test(indexed, who_may_attend_to_all_gets_the_bits_of_plain_attention) {
  const size_t bytes = (size_t)LENGTH * HEADS * VALUE * sizeof(float);
  inputs_t in = inputs_make();
  float *expected = malloc(bytes);
  for (dtype_t dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
    for (int32_t top = LENGTH - 1; top <= LENGTH; top++) {
      const size_t same = bytes - (size_t)(LENGTH - top) * HEADS * VALUE * sizeof(float);
      rig_t r = rig_start(&in, "auto", 2, dtype, 16, top);
      run_chunks(&r, LENGTH, true);
      memcpy(expected, r.found, bytes);
      run_chunks(&r, LENGTH, false);
      ASSERT_EQ_FOR(memcmp(r.found, expected, same), 0, "dtype %d, top %d", dtype, top);
      ASSERT_EQ_FOR(memcmp(r.found, expected, bytes) == 0, top == LENGTH, "dtype %d", dtype);
      rig_stop(&r);
    }
  }
  free(expected);
  inputs_free(&in);
}
