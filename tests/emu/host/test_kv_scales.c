/* test_kv_scales.c: an fp8 cache with scales of its own for K and V of every layer: written and
 * read through the back end's table, beside softmax in double over what e4m3 makes of the rows.
 */
#include "cuda/device.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
  LAYERS = 3,
  HEADS = 4,
  KV_HEADS = 2,
  DIM = 64,
  SIZE = 16,
  BLOCKS = 4,
  CHUNK = 20, /* tokens of the prefill; a decode follows */
  TOKENS = CHUNK + 1,
  OUT = HEADS * DIM,
  WIDTH = (HEADS + 2 * KV_HEADS) * DIM
};

typedef struct problem {
  float scales[LAYERS][2];
  uint16_t rows[LAYERS][TOKENS][WIDTH]; /* bf16 q|k|v of each token */
  double expected[LAYERS][TOKENS][OUT];
} problem_t;

static uint64_t random_state;

static float between(float low, float high) { /* xorshift64* (Vigna 2016) */
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return low + (high - low) * (float)(random_state * 0x2545F4914F6CDD1Du >> 40) * 0x1p-24f;
}

static uint16_t to_bf16(float x) { /* cut off: any bf16 will do */
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return (uint16_t)(bits >> 16);
}
static double from_bf16(uint16_t half) {
  uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return (double)x;
}

/* Nearest e4m3, ties to even: steps of 2^-9 below 2^-6, 448 at most (OCP 8-bit formats 1.0). */
static double to_e4m3(double x) {
  int exponent;
  frexp(x, &exponent);
  double step = ldexp(1, exponent - 4 < -9 ? -9 : exponent - 4), near = nearbyint(x / step) * step;
  return fabs(near) > 448 ? copysign(448, x) : near;
}

/* What a step of the kernel sees of element `column` of a token's K or V. */
static double cached(const problem_t *p, int layer, int token, int value, int column) {
  double scale = (double)p->scales[layer][value];
  int at = (HEADS + value * KV_HEADS) * DIM + column;
  return to_e4m3((double)((float)from_bf16(p->rows[layer][token][at]) / (float)scale)) * scale;
}

/* Scales over four orders of magnitude; rows that use most of what e4m3 has, and logits near 1. */
static void draw_problem(problem_t *p) {
  for (int l = 0; l < LAYERS; l++) {
    for (int value = 0; value < 2; value++) p->scales[l][value] = expf(between(-6, 3));
    float key = 400 * p->scales[l][0], size = 400 * p->scales[l][1];
    for (int t = 0; t < TOKENS; t++) {
      for (int i = 0; i < WIDTH; i++) {
        float most = i < HEADS * DIM ? 3 / key : i < (HEADS + KV_HEADS) * DIM ? key : size;
        p->rows[l][t][i] = to_bf16(between(-most, most));
      }
    }
  }
}

static void attend(problem_t *p, int l, int t, int head) {
  double weights[TOKENS], sum = 0, *out = &p->expected[l][t][head * DIM];
  int first = head / (HEADS / KV_HEADS) * DIM;
  for (int key = 0; key <= t; key++) {
    double dot = 0;
    for (int i = 0; i < DIM; i++) {
      dot += from_bf16(p->rows[l][t][head * DIM + i]) * cached(p, l, key, 0, first + i);
    }
    sum += weights[key] = exp(dot / 8);
  }
  for (int i = 0; i < DIM; i++) {
    out[i] = 0;
    for (int key = 0; key <= t; key++) {
      out[i] += weights[key] / sum * cached(p, l, key, 1, first + i);
    }
  }
}

static const void *table_row(void *context, int64_t row, void *scratch) {
  (void)scratch;
  return (const uint16_t *)context + row * WIDTH;
}

static device_t *open_device(problem_t *p, weight_t **tables) {
  const device_options_t options = {.num_threads = 1};
  const kv_cache_desc_t desc = {.num_layers = LAYERS,
                                .num_kv_heads = KV_HEADS,
                                .head_dim = DIM,
                                .num_blocks = BLOCKS,
                                .block_size = SIZE,
                                .dtype = DTYPE_BF16,
                                .fp8 = true,
                                .scales = p->scales[0]};
  const step_limits_t limits = {.tokens_max = TOKENS,
                                .reqs_max = 1,
                                .logits_rows_max = 1,
                                .hidden_max = WIDTH,
                                .vocab_size = TOKENS,
                                .max_model_len = SIZE * BLOCKS,
                                .heads_max = HEADS,
                                .head_dim_max = DIM};
  inferd_error_t error = {0};
  device_t *d;
  cr_assert_eq(ops_cuda.open(&options, &d, &error), 0, "%s", error.message);
  for (int l = 0; l < LAYERS; l++) {
    const weight_source_t source = {.name = "rows",
                                    .rows = TOKENS,
                                    .cols = WIDTH,
                                    .dtype = DTYPE_BF16,
                                    .row = table_row,
                                    .context = p->rows[l]};
    cr_assert_eq(ops_cuda.weight(d, &source, &tables[l], &error), 0, "%s", error.message);
  }
  cr_assert_eq(ops_cuda.kv_cache(d, &desc, &error), 0, "%s", error.message);
  cr_assert_eq(ops_cuda.prepare(d, &limits, &error), 0, "%s", error.message);
  return d;
}

/* Tokens [first, first + count) through every layer; their outputs within `tolerance` of a row. */
static void check_step(device_t *d, const problem_t *p, weight_t *const *tables, act_t *qkv,
                       act_t *const *outs, int first, int count) {
  static const int32_t blocks[] = {2, 1};
  int32_t ids[TOKENS], starts[2] = {0, count}, len = first + count, none[TOKENS] = {0};
  int64_t slots[TOKENS];
  const int32_t *table[1] = {blocks};
  for (int i = 0; i < count; i++) {
    ids[i] = first + i;
    slots[i] = blocks[ids[i] / SIZE] * SIZE + ids[i] % SIZE;
  }
  const batch_t batch = {.num_tokens = count,
                         .num_reqs = 1,
                         .max_query_len = count,
                         .max_seq_len = len,
                         .block_size = SIZE,
                         .input_ids = ids,
                         .positions = ids,
                         .slot_mapping = slots,
                         .query_start_loc = starts,
                         .seq_lens = &len,
                         .block_table = table,
                         .block_table_stride = 2,
                         .selected_token_indices = none};
  inferd_error_t error = {0};
  ops_cuda.begin(d, &batch);
  for (int l = 0; l < LAYERS; l++) {
    const attention_t layer = {
        .layer = l, .num_heads = HEADS, .num_kv_heads = KV_HEADS, .head_dim = DIM, .scale = 0.125f};
    ops_cuda.embed(d, qkv, tables[l], 1);
    ops_cuda.rope_store(d, qkv, &layer);
    ops_cuda.attention(d, outs[l], qkv, &layer);
  }
  cr_assert_eq(ops_cuda.end(d, &error), 0, "%s", error.message);
  cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
  for (int l = 0; l < LAYERS; l++) {
    uint16_t found[TOKENS * OUT];
    cudaMemcpy(found, outs[l], sizeof(uint16_t) * (size_t)(count * OUT), cudaMemcpyDeviceToHost);
    for (int row = 0; row < count * HEADS; row++) {
      double error_square = 0, square = 0;
      const double *expected = &p->expected[l][first][row * DIM];
      for (int i = 0; i < DIM; i++) {
        double difference = from_bf16(found[row * DIM + i]) - expected[i];
        error_square += difference * difference;
        square += expected[i] * expected[i];
      }
      cr_assert(error_square <= 1e-4 * square, "layer %d, token %d, head %d: off by %g of a row", l,
                first + row / HEADS, row % HEADS, sqrt(error_square / square));
    }
  }
}

Test(kv_scales, of_every_layer_for_writing_and_reading) {
  static problem_t problem;
  const char *seed = getenv("INFERD_TEST_SEED");
  random_state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) * 1000003u + 1;
  printf("kv_scales, INFERD_TEST_SEED=%llu\n", (unsigned long long)random_state);
  draw_problem(&problem);
  for (int l = 0; l < LAYERS; l++) {
    for (int i = 0; i < TOKENS * HEADS; i++) attend(&problem, l, i / HEADS, i % HEADS);
  }
  weight_t *tables[LAYERS];
  device_t *d = open_device(&problem, tables);
  act_t *qkv = ops_cuda.buffer(d, TOKENS, WIDTH), *outs[LAYERS];
  for (int l = 0; l < LAYERS; l++) {
    cr_assert_not_null(outs[l] = ops_cuda.buffer(d, TOKENS, OUT));
  }
  check_step(d, &problem, tables, qkv, outs, 0, CHUNK);
  check_step(d, &problem, tables, qkv, outs, CHUNK, 1);
  ops_cuda.close(d);
}
