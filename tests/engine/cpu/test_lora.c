/* test_lora.c: what adapters change, against double precision, and its bits for any mix of tokens.
 */
#include "engine/base/half.h"
#include "engine/cpu/act.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { T = 37, N = 70, K = 51, WIDTH = 90, COLUMN = 13, SLOTS = 5, RANK = 9, S = 6 };

static const step_limits_t limits = {.tokens_max = T,
                                     .reqs_max = 8,
                                     .logits_rows_max = 8,
                                     .hidden_max = 128,
                                     .vocab_size = N,
                                     .max_model_len = 64,
                                     .heads_max = 1,
                                     .head_dim_max = 16,
                                     .adapter_rank_max = RANK};

/* Of each slot: nothing, a pair, a pair with vectors, vectors alone; the fifth is a table. */
typedef struct adapters {
  lora_values_t values[SLOTS + 1];
  float *numbers[SLOTS + 1][4];
  int32_t of[T];
} adapters_t;

static void make_adapters(random_state_t *random, int64_t rows, int64_t cols, void *table,
                          adapters_t *out) {
  static const int32_t ranks[SLOTS + 1] = {0, 1, RANK, 4, 0, 0};
  *out = (adapters_t){0};
  for (int32_t s = 1; s <= SLOTS; s++) {
    lora_values_t *values = &out->values[s];
    float **numbers = out->numbers[s];
    numbers[0] = random_floats(random, RANK * cols, 1);
    numbers[1] = random_floats(random, RANK * rows, 1);
    numbers[2] = random_floats(random, rows, 1);
    numbers[3] = random_floats(random, rows, 1);
    values->rank = ranks[s];
    if (values->rank > 0) values->a = numbers[0], values->b = numbers[1];
    if (s == 3 || s == 4) values->factors = numbers[2], values->offsets = numbers[3];
  }
  if (table != NULL) out->values[5].whole = table, out->values[5].whole_type = DTYPE_BF16;
  for (int t = 0; t < T; t++) out->of[t] = t <= SLOTS ? t : random_below(random, SLOTS + 1);
}

static lora_t *set_adapters(device_t *device, lora_kind_t kind, int64_t rows, int64_t cols,
                            const adapters_t *adapters) {
  lora_t *lora;
  inferd_error_t error;
  ASSERT_EQ_FOR(ops_cpu.lora->make(device, kind, rows, cols, SLOTS, RANK, &lora, &error), 0, "%s",
                error.message);
  for (int32_t s = 1; s <= SLOTS; s++) {
    float *const *numbers = adapters->numbers[s];
    const lora_values_t before = {.rank = RANK,
                                  .a = numbers[0],
                                  .b = numbers[1],
                                  .factors = numbers[3],
                                  .offsets = numbers[2]};
    ops_cpu.lora->set(device, lora, s, &before); /* something that must not stay */
    ops_cpu.lora->set(device, lora, s, &adapters->values[s]);
  }
  return lora;
}

static void free_adapters(adapters_t *adapters) {
  for (int32_t s = 1; s <= SLOTS; s++)
    for (int i = 0; i < 4; i++) free(adapters->numbers[s][i]);
}

/* out + B (A x) + factors * plain + offsets; x NULL: column `id` of A times `scale`. */
static double adapted(const lora_values_t *values, int64_t cols, int n, double out, double plain,
                      const float *x, int id, double scale) {
  double y = out;
  for (int r = 0; r < values->rank; r++) {
    double low = x == NULL ? scale * values->a[r * cols + id] : 0;
    for (int64_t k = 0; x != NULL && k < cols; k++) low += (double)x[k] * values->a[r * cols + k];
    y += low * values->b[n * values->rank + r];
  }
  if (values->factors != NULL) y += values->factors[n] * plain;
  return y + (values->offsets != NULL ? values->offsets[n] : 0);
}

static void expect_near(float found, double wanted, const char *tier, int t, int n) {
  cr_assert_float_eq(found, wanted, 1e-4 * fmax(1, fabs(wanted)),
                     "%s token %d column %d: %g, not %g, seed %llu", tier, t, n, found, wanted,
                     SEED);
}

Test(lora, adds_to_its_own_tokens) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int tier = 0; tier < count; tier++) {
    random_state_t random = random_start(41);
    float *x = random_floats(&random, T * K, 1), *before = random_floats(&random, T * WIDTH, 1);
    float *plain = random_floats(&random, T * WIDTH, 1), out[T * WIDTH], alone[WIDTH];
    adapters_t adapters;
    device_t *device = device_prepared(tiers[tier], 3, &limits);
    make_adapters(&random, N, K, NULL, &adapters);
    lora_t *lora = set_adapters(device, LORA_LINEAR, N, K, &adapters);
    batch_t batch = {.num_tokens = T, .block_size = 16, .adapters = adapters.of, .num_adapted = T};
    memcpy(out, before, sizeof out);
    ops_cpu.begin(device, &batch);
    ops_cpu.lora->add(device, ACT(out), ACT(x), ACT(plain), lora, COLUMN, WIDTH);
    for (int i = 0; i < T * WIDTH; i++) {
      const int t = i / WIDTH, n = i % WIDTH - COLUMN;
      const lora_values_t *values = &adapters.values[adapters.of[t]];
      const bool is_mine = n >= 0 && n < N && (values->rank > 0 || values->offsets != NULL);
      if (is_mine)
        expect_near(out[i], adapted(values, K, n, before[i], plain[i], x + t * K, 0, 1),
                    tiers[tier], t, n);
      else
        ASSERT_EQ(out[i], before[i]);
    }
    for (int t = 0; t < T; t += 5) { /* alone: the same bits */
      batch_t one = {
          .num_tokens = 1, .block_size = 16, .adapters = adapters.of + t, .num_adapted = 1};
      memcpy(alone, before + t * WIDTH, sizeof alone);
      ops_cpu.begin(device, &one);
      ops_cpu.lora->add(device, ACT(alone), ACT(x + t * K), ACT(plain + t * WIDTH), lora, COLUMN,
                        WIDTH);
      ASSERT_EQ_FOR(memcmp(alone, out + t * WIDTH, sizeof alone), 0, "%s token %d", tiers[tier], t);
    }
    free_adapters(&adapters);
    free(x), free(before), free(plain);
    ops_cpu.close(device);
  }
}

static void make_table(random_state_t *random, uint16_t *table, int64_t count) {
  float *values = random_floats(random, count, 1);
  for (int64_t i = 0; i < count; i++) table[i] = bf16_from_float(values[i]);
  free(values);
}

Test(lora, changes_embeddings) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  static uint16_t table[N * K];
  for (int tier = 0; tier < count; tier++) {
    random_state_t random = random_start(42);
    const float scale = 1.75f;
    float *before = random_floats(&random, T * K, 1), out[T * K];
    int32_t ids[T];
    adapters_t adapters;
    device_t *device = device_prepared(tiers[tier], 3, &limits);
    make_table(&random, table, N * K);
    make_adapters(&random, K, N, table, &adapters); /* K columns of N ids */
    lora_t *lora = set_adapters(device, LORA_EMBED, K, N, &adapters);
    for (int t = 0; t < T; t++) ids[t] = t == 0 ? 0 : t == 1 ? N - 1 : random_below(&random, N);
    batch_t batch = {.num_tokens = T,
                     .block_size = 16,
                     .adapters = adapters.of,
                     .num_adapted = T,
                     .input_ids = ids};
    memcpy(out, before, sizeof out);
    ops_cpu.begin(device, &batch);
    ops_cpu.lora->embed(device, ACT(out), lora, scale);
    for (int i = 0; i < T * K; i++) {
      const int t = i / K, n = i % K;
      const lora_values_t *values = &adapters.values[adapters.of[t]];
      double wanted = adapted(values, N, n, before[i], before[i], NULL, ids[t], scale);
      if (values->whole != NULL) wanted = scale * float_from_bf16(table[ids[t] * K + n]);
      expect_near(out[i], wanted, tiers[tier], t, n);
    }
    free_adapters(&adapters);
    free(before);
    ops_cpu.close(device);
  }
}

/* Rows `first` to the last of the selected ones; a softcap takes all of them. */
static void check_logits(const char *tier, int first, float softcap, bool has_bias) {
  static uint16_t table[N * K];
  static int32_t selected[S] = {0, 2, 3, 4, 5, 36};
  random_state_t random = random_start(43);
  float *x = random_floats(&random, S * K, 1), *w = random_floats(&random, N * K, 1);
  float *bias = random_floats(&random, N, 1), logits[S * N];
  adapters_t adapters;
  inferd_error_t error;
  device_t *device = device_open(tier, 3);
  make_table(&random, table, N * K);
  make_adapters(&random, N, K, table, &adapters);
  lora_t *lora = set_adapters(device, LORA_HEAD, N, K, &adapters);
  weight_t *head = weight_make(device, w, N, K, DTYPE_F32);
  vector_t *vector = has_bias ? vector_make(device, bias, N) : NULL;
  ASSERT_EQ(ops_cpu.prepare(device, &limits, &error), 0);
  batch_t batch = {.num_tokens = T,
                   .block_size = 16,
                   .adapters = adapters.of,
                   .num_adapted = T,
                   .num_selected = S,
                   .selected_token_indices = selected};
  ops_cpu.begin(device, &batch);
  ops_cpu.logits(device, ACT(x), head, vector, 0, first, S - first);
  ops_cpu.lora->logits(device, ACT(x), vector, lora, softcap, first, S - first);
  ops_cpu.read_logits(device, logits, S - first);
  for (int row = first; row < S; row++) {
    const lora_values_t *values = &adapters.values[adapters.of[selected[row]]];
    for (int n = 0; n < N; n++) {
      double plain = 0, own = has_bias ? bias[n] : 0;
      for (int k = 0; k < K; k++)
        plain += (double)x[row * K + k] *
                 (values->whole != NULL ? float_from_bf16(table[n * K + k]) : w[n * K + k]);
      double wanted = adapted(values, K, n, plain + own, plain, x + row * K, 0, 1);
      if (softcap != 0) wanted = softcap * tanh(wanted / softcap);
      expect_near(logits[(row - first) * N + n], wanted, tier, selected[row], n);
    }
  }
  free_adapters(&adapters);
  free(x), free(w), free(bias);
  ops_cpu.close(device);
}

Test(lora, changes_logits) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int tier = 0; tier < count; tier++) {
    check_logits(tiers[tier], 0, 0, false);
    check_logits(tiers[tier], 0, 5, true);
    check_logits(tiers[tier], 3, 0, true);
  }
}
