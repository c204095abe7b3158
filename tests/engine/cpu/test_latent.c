/* test_latent.c: latent attention of every tier against double precision with K and V written out,
 * and the bits of a row against each other however it was computed. */
#include "engine/cpu/act.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 2200, SHORT = 70, BLOCKS = LONG + SHORT + 2, PARTS_MAX = 4 };

/* Two sequences over a scattered pool. */
typedef struct pool {
  int32_t heads, rank, rope, nope, value, block_size;
  dtype_t dtype;
  float *rows, *q, *key, *weights, *norm, inv_freq[8]; /* rows and q of both, the long one first */
  int32_t blocks[2][LONG];
  float *out; /* as the device gave it */
} pool_t;

typedef struct part {
  int32_t sequence, first, count;
} part_t;

static const pool_t shapes[] = {
    {.heads = 20, .rank = 34, .rope = 8, .nope = 12, .value = 10, .block_size = 16},
    {.heads = 6, .rank = 64, .rope = 16, .nope = 32, .value = 32, .block_size = 4},
    {.heads = 17, .rank = 18, .rope = 2, .nope = 3, .value = 5, .block_size = 64},
};
static const int32_t lengths[] = {LONG, SHORT};

static int64_t start_of(int32_t sequence) {
  return sequence == 0 ? 0 : LONG;
}

static pool_t pool_make(const pool_t *shape, dtype_t dtype) {
  pool_t p = *shape;
  const int64_t tokens = LONG + SHORT;
  random_state_t random = random_start(61);
  int32_t used = 1;
  p.dtype = dtype;
  p.rows = random_floats(&random, tokens * (p.rank + p.rope), 1);
  p.q = random_floats(&random, tokens * p.heads * (p.nope + p.rope), 2);
  p.key = random_floats(&random, (int64_t)p.heads * p.rank * p.nope, 0.4f);
  p.weights = random_floats(&random, (int64_t)p.heads * p.value * p.rank, 0.4f);
  p.norm = random_floats(&random, p.rank, 1);
  for (int i = 0; i < p.rope / 2; i++) p.inv_freq[i] = (float)pow(100, -2.0 * i / p.rope);
  for (int s = 0; s < 2; s++) /* interleaved, from the back */
    for (int32_t b = 0; b <= lengths[s] / p.block_size; b++)
      p.blocks[s][b] = BLOCKS / p.block_size + 4 - used++;
  p.out = calloc((size_t)(tokens * p.heads * p.value), sizeof(float));
  return p;
}

static void pool_free(pool_t *p) {
  free(p->rows), free(p->q), free(p->key), free(p->weights), free(p->norm), free(p->out);
}

/* The matrices stay in fp32, so that only the pool's type rounds. */
static const void *next_row(void *context, int64_t row, void *scratch) {
  const weight_source_t *source = context;
  (void)scratch;
  return (const float *)source->context + row * source->cols;
}

static weight_t *stack_make(device_t *device, float *values, int32_t heads, int64_t rows,
                            int64_t cols) {
  weight_source_t values_of = {.cols = cols, .context = values};
  weight_source_t source = {.name = "heads",
                            .rows = heads * rows,
                            .cols = cols,
                            .stack = heads,
                            .dtype = DTYPE_F32,
                            .row = next_row,
                            .context = &values_of};
  weight_t *weight = NULL;
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.weight(device, &source, &weight, &error), 0, "%s", error.message);
  return weight;
}

typedef struct world {
  pool_t *p;
  device_t *device;
  rope_t rope;
  latent_t latent;
  float *rows, *q, *queries, *sums, *out;
} latent_world_t;

static void world_start(latent_world_t *w, pool_t *p, const char *isa, int threads) {
  const int32_t width = p->rank + p->rope, tokens = LONG + SHORT;
  const step_limits_t limits = {.tokens_max = tokens,
                                .reqs_max = PARTS_MAX,
                                .logits_rows_max = 1,
                                .hidden_max = p->heads * width,
                                .vocab_size = 16,
                                .max_model_len = LONG,
                                .heads_max = p->heads,
                                .head_dim_max = width};
  const kv_cache_desc_t desc = {.num_layers = 2,
                                .num_kv_heads = 1,
                                .head_dim = width,
                                .num_blocks = BLOCKS / p->block_size + 6,
                                .block_size = p->block_size,
                                .latent = true,
                                .dtype = p->dtype};
  inferd_error_t error;
  *w = (latent_world_t){.p = p, .device = device_prepared(isa, threads, &limits)};
  ASSERT_EQ_FOR(ops_cpu.kv_cache(w->device, &desc, &error), 0, "%s", error.message);
  w->rope = (rope_t){p->rope, p->inv_freq, 1.25f, NULL};
  w->latent = (latent_t){.layer = 1,
                         .num_heads = p->heads,
                         .rank = p->rank,
                         .rope_dim = p->rope,
                         .nope_dim = p->nope,
                         .value_dim = p->value,
                         .scale = 0.3f,
                         .norm_eps = 1e-6f,
                         .norm = vector_make(w->device, p->norm, p->rank),
                         .rope = &w->rope,
                         .key = stack_make(w->device, p->key, p->heads, p->rank, p->nope),
                         .value = stack_make(w->device, p->weights, p->heads, p->value, p->rank)};
  w->rows = FLOATS(ops_cpu.buffer(w->device, tokens, width));
  w->q = FLOATS(ops_cpu.buffer(w->device, tokens, p->heads * (p->nope + p->rope)));
  w->queries = FLOATS(ops_cpu.buffer(w->device, tokens, p->heads * width));
  w->sums = FLOATS(ops_cpu.buffer(w->device, tokens, p->heads * p->rank));
  w->out = FLOATS(ops_cpu.buffer(w->device, tokens, p->heads * p->value));
}

/* `copy` NULL = none. */
static void run_after(latent_world_t *w, const part_t *parts, int32_t count, block_copy_t *copy) {
  static int32_t positions[LONG + SHORT], starts[PARTS_MAX + 1];
  static int64_t slots[LONG + SHORT];
  const int32_t *tables[PARTS_MAX];
  int32_t lens[PARTS_MAX];
  pool_t *p = w->p;
  const size_t row = (size_t)(p->rank + p->rope),
               q = (size_t)p->heads * (size_t)(p->nope + p->rope);
  const size_t out = (size_t)p->heads * (size_t)p->value;
  int32_t tokens = 0;
  for (int32_t i = 0; i < count; i++) {
    starts[i] = tokens;
    lens[i] = parts[i].first + parts[i].count;
    tables[i] = p->blocks[parts[i].sequence];
    for (int32_t j = 0; j < parts[i].count; j++, tokens++) {
      int32_t at = parts[i].first + j;
      size_t from = (size_t)(start_of(parts[i].sequence) + at);
      positions[tokens] = at;
      slots[tokens] = (int64_t)tables[i][at / p->block_size] * p->block_size + at % p->block_size;
      memcpy(w->rows + (size_t)tokens * row, p->rows + from * row, row * sizeof(float));
      memcpy(w->q + (size_t)tokens * q, p->q + from * q, q * sizeof(float));
    }
  }
  starts[count] = tokens;
  const batch_t batch = {.num_tokens = tokens,
                         .num_reqs = count,
                         .block_size = p->block_size,
                         .positions = positions,
                         .slot_mapping = slots,
                         .query_start_loc = starts,
                         .seq_lens = lens,
                         .block_table = tables,
                         .num_copies = copy != NULL,
                         .copies = copy};
  ops_cpu.begin(w->device, &batch);
  ops_cpu.latent->store(w->device, ACT(w->rows), &w->latent);
  ops_cpu.latent->attend(w->device, ACT(w->out), ACT(w->q), ACT(w->queries), ACT(w->sums),
                         &w->latent);
  for (int32_t i = 0; i < count; i++)
    memcpy(p->out + (size_t)(start_of(parts[i].sequence) + parts[i].first) * out,
           w->out + (size_t)starts[i] * out, (size_t)parts[i].count * out * sizeof(float));
}

static void run(latent_world_t *w, const part_t *parts, int32_t count) {
  run_after(w, parts, count, NULL);
}

/* Both sequences together, `chunk` tokens of each at a time. */
static void run_chunks(latent_world_t *w, int32_t chunk) {
  for (int32_t first = 0; first < LONG; first += chunk) {
    part_t parts[2];
    int32_t count = 0;
    for (int s = 0; s < 2; s++) {
      int32_t left = lengths[s] - first;
      if (left > 0) parts[count++] = (part_t){s, first, left < chunk ? left : chunk};
    }
    run(w, parts, count);
  }
}

static void turn(double *head, const pool_t *p, int32_t position) {
  int32_t half = p->rope / 2;
  for (int32_t i = 0; i < half; i++) {
    double angle = (float)position * p->inv_freq[i];
    double c = cos(angle) * 1.25, s = sin(angle) * 1.25, a = head[i], b = head[i + half];
    head[i] = a * c - b * s;
    head[i + half] = b * c + a * s;
  }
}

/* The row that token `at` leaves, rounded as the pool has it. */
static void latent_row(const pool_t *p, int32_t sequence, int32_t at, double *row) {
  const float *in = p->rows + (start_of(sequence) + at) * (p->rank + p->rope);
  double squares = 0;
  for (int32_t i = 0; i < p->rank; i++) squares += (double)in[i] * in[i];
  for (int32_t i = 0; i < p->rank; i++)
    row[i] = in[i] / sqrt(squares / p->rank + 1e-6) * p->norm[i];
  for (int32_t i = 0; i < p->rope; i++) row[p->rank + i] = in[p->rank + i];
  turn(row + p->rank, p, at);
  for (int32_t i = 0; i < p->rank + p->rope; i++) row[i] = round_to((float)row[i], p->dtype);
}

/* One head at one position, K and V written out; `rows` as latent_row makes them. */
static void reference(const pool_t *p, int32_t sequence, int32_t at, int32_t head,
                      const double *rows, double *out) {
  const int32_t dim = p->nope + p->rope, width = p->rank + p->rope;
  const float *in = p->q + ((start_of(sequence) + at) * p->heads + head) * dim;
  double q[64], total = 0;
  for (int32_t i = 0; i < dim; i++) q[i] = in[i];
  turn(q + p->nope, p, at);
  memset(out, 0, (size_t)p->value * sizeof *out);
  for (int32_t j = 0; j <= at; j++) {
    const double *row = rows + (int64_t)j * width;
    double score = 0;
    for (int32_t n = 0; n < p->nope; n++) {
      double k = 0;
      for (int32_t i = 0; i < p->rank; i++)
        k += row[i] * p->key[((int64_t)head * p->rank + i) * p->nope + n];
      score += q[n] * k;
    }
    for (int32_t i = 0; i < p->rope; i++) score += q[p->nope + i] * row[p->rank + i];
    double share = exp(score * 0.3f);
    total += share;
    for (int32_t v = 0; v < p->value; v++) {
      double value = 0;
      for (int32_t i = 0; i < p->rank; i++)
        value += row[i] * p->weights[((int64_t)head * p->value + v) * p->rank + i];
      out[v] += share * value;
    }
  }
  for (int32_t v = 0; v < p->value; v++) out[v] /= total;
}

static void check_rows(const pool_t *p, const char *tier, double allowed) {
  static const int32_t places[][2] = {{0, 0},    {0, 17},       {0, 255},      {0, 256},
                                      {0, 2047}, {0, LONG - 1}, {1, SHORT - 1}};
  const int32_t width = p->rank + p->rope;
  double *rows = malloc((size_t)(LONG * width) * sizeof *rows);
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    int32_t sequence = places[i][0], at = places[i][1];
    for (int32_t j = 0; j <= at; j++) latent_row(p, sequence, j, rows + (int64_t)j * width);
    for (int32_t head = 0; head < p->heads; head += 5) {
      double wanted[64];
      reference(p, sequence, at, head, rows, wanted);
      const float *found = p->out + ((start_of(sequence) + at) * p->heads + head) * p->value;
      for (int32_t v = 0; v < p->value; v++)
        cr_assert_float_eq(found[v], wanted[v], allowed, "%s dtype %d: %g at %d.%d, expected %g",
                           tier, p->dtype, found[v], sequence, at, wanted[v]);
    }
  }
  free(rows);
}

/* Tiers with a bf16 product round queries too, as attention of other models does there. */
static double allowed(const char *tier, dtype_t dtype) {
  if (dtype == DTYPE_F32) return 1e-4;
  if (dtype == DTYPE_F16) return 4e-3;
  return strcmp(tier, "avx512bf16") == 0 || strcmp(tier, "amx") == 0 ? 6e-2 : 3e-2;
}

Test(latent, agrees_with_double_precision) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) {
    for (dtype_t dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
      pool_t p = pool_make(&shapes[((size_t)t + dtype) % 3], dtype);
      latent_world_t w;
      world_start(&w, &p, tiers[t], 2);
      run_chunks(&w, 500);
      check_rows(&p, tiers[t], allowed(tiers[t], dtype));
      ops_cpu.close(w.device);
      pool_free(&p);
    }
  }
}

/* A token alone, in chunks of every size, behind others, on several threads. */
static void check_bits(const char *tier, const pool_t *shape, dtype_t dtype) {
  static const int32_t chunks[] = {1, 7, 48, 700};
  pool_t p = pool_make(shape, dtype);
  size_t bytes = (size_t)(LONG + SHORT) * (size_t)(p.heads * p.value) * sizeof(float);
  float *expected = malloc(bytes);
  for (int threads = 1; threads <= 3; threads += 2) {
    latent_world_t w;
    world_start(&w, &p, tier, threads);
    if (threads == 1) {
      run(&w, (part_t[]){{0, 0, LONG}}, 1);
      run(&w, (part_t[]){{1, 0, SHORT}}, 1);
      memcpy(expected, p.out, bytes);
    }
    for (size_t i = SANITIZED || threads > 1; i < sizeof chunks / sizeof *chunks; i++) {
      memset(p.out, 0xff, bytes);
      run_chunks(&w, chunks[i]);
      ASSERT_EQ_FOR(memcmp(p.out, expected, bytes), 0, "%s dtype %d: %d at a time, %d threads",
                    tier, dtype, chunks[i], threads);
    }
    ops_cpu.close(w.device);
  }
  pool_free(&p);
  free(expected);
}

Test(latent, bits_do_not_depend_on_chunks_or_threads) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int t = 0; t < count; t++) check_bits(tiers[t], &shapes[t % 3], DTYPE_BF16);
  check_bits("auto", &shapes[0], DTYPE_F32);
}

/* A row does not see what stands behind it in its block, be it NaN. A token takes one row. */
Test(latent, rows_behind_count_for_nothing) {
  pool_t p = pool_make(&shapes[1], DTYPE_F32);
  latent_world_t w;
  world_start(&w, &p, "auto", 1);
  float *whole = p.rows, poison[128];
  for (int i = 0; i < 128; i++) poison[i] = NAN;
  p.rows = malloc((size_t)((LONG + SHORT) * (p.rank + p.rope)) * sizeof(float));
  memcpy(p.rows, whole, (size_t)((LONG + SHORT) * (p.rank + p.rope)) * sizeof(float));
  for (int32_t at = 9; at < 12; at++) /* the rest of the block of token 8 */
    memcpy(p.rows + (start_of(1) + at) * (p.rank + p.rope), poison,
           (size_t)(p.rank + p.rope) * sizeof(float));
  run(&w, (part_t[]){{1, 0, 12}}, 1);
  for (int32_t i = 0; i < 9 * p.heads * p.value; i++)
    cr_assert(!isnan(p.out[start_of(1) * p.heads * p.value + i]));
  ASSERT_EQ(ops_cpu.kv_bytes(&(kv_cache_desc_t){.num_layers = 1,
                                                .num_kv_heads = 1,
                                                .head_dim = 576,
                                                .block_size = 16,
                                                .latent = true,
                                                .dtype = DTYPE_BF16},
                             10),
            (size_t)10 * 16 * 576 * 2);
  free(whole);
  ops_cpu.close(w.device);
  pool_free(&p);
}

/* A fork copies the rows of a block that it shares in part. */
Test(latent, copied_rows_are_the_same) {
  for (dtype_t dtype = DTYPE_F32; dtype <= DTYPE_BF16; dtype++) {
    pool_t p = pool_make(&shapes[2], dtype);
    latent_world_t w;
    world_start(&w, &p, "auto", 2);
    run(&w, (part_t[]){{1, 0, SHORT}}, 1);
    const size_t width = (size_t)(p.heads * p.value);
    float *at = p.out + ((size_t)start_of(1) + 40) * width, *wanted = malloc(width * sizeof *at);
    memcpy(wanted, at, width * sizeof *at);
    block_copy_t copy = {.src = p.blocks[1][0], .dst = p.blocks[0][0], .rows = 40};
    p.blocks[1][0] = copy.dst;
    memset(at, 0xff, width * sizeof *at);
    run_after(&w, (part_t[]){{1, 40, 1}}, 1, &copy);
    ASSERT_EQ(memcmp(at, wanted, width * sizeof *at), 0);
    free(wanted);
    ops_cpu.close(w.device);
    pool_free(&p);
  }
}
