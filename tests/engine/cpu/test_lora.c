/* test_lora.c: what adapters add, against double precision, and its bits for any mix of tokens. */
#include "engine/cpu/act.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

enum { T = 37, N = 70, K = 51, WIDTH = 90, COLUMN = 13, SLOTS = 3, RANK = 9 };

static const step_limits_t limits = {.tokens_max = T,
                                     .reqs_max = 4,
                                     .logits_rows_max = 4,
                                     .hidden_max = 128,
                                     .vocab_size = 64,
                                     .max_model_len = 64,
                                     .heads_max = 1,
                                     .head_dim_max = 16};

Test(lora, adds_to_its_own_tokens) {
  const char *tiers[NUM_TIER_NAMES];
  int count = tiers_here(tiers);
  for (int tier = 0; tier < count; tier++) {
    random_state_t random = random_start(41);
    float *x = random_floats(&random, T * K, 1), *before = random_floats(&random, T * WIDTH, 1);
    float *a[SLOTS + 1] = {NULL}, *b[SLOTS + 1] = {NULL}, out[T * WIDTH], alone[WIDTH];
    int32_t ranks[SLOTS + 1] = {0, 1, RANK, 0}, adapters[T];
    device_t *device = device_prepared(tiers[tier], 3, &limits);
    lora_t *lora;
    inferd_error_t error;
    ASSERT_EQ_FOR(ops_cpu.lora(device, N, K, SLOTS, RANK, &lora, &error), 0, "%s", error.message);
    for (int32_t s = 1; s <= SLOTS; s++) {
      a[s] = random_floats(&random, RANK * K, 1);
      b[s] = random_floats(&random, N * RANK, 1);
      ops_cpu.lora_set(device, lora, s, RANK, b[s], b[s]); /* something that must not stay */
      ops_cpu.lora_set(device, lora, s, ranks[s], a[s], b[s]);
    }
    for (int t = 0; t < T; t++) adapters[t] = t == 0 ? 2 : random_below(&random, SLOTS + 1);
    batch_t batch = {.num_tokens = T, .block_size = 16, .adapters = adapters, .num_adapted = T};
    memcpy(out, before, sizeof out);
    ops_cpu.begin(device, &batch);
    ops_cpu.lora_add(device, ACT(out), ACT(x), lora, COLUMN, WIDTH);
    for (int t = 0; t < T; t++) {
      int32_t s = adapters[t], rank = ranks[s];
      for (int n = 0; n < WIDTH; n++) {
        double y = before[t * WIDTH + n];
        for (int r = 0; r < rank && n >= COLUMN && n < COLUMN + N; r++) {
          double low = 0;
          for (int k = 0; k < K; k++) low += (double)x[t * K + k] * a[s][r * K + k];
          y += low * b[s][(n - COLUMN) * rank + r];
        }
        cr_assert_float_eq(out[t * WIDTH + n], y, 1e-4,
                           "%s token %d slot %d: %g, not %g, seed %llu", tiers[tier], t, s,
                           out[t * WIDTH + n], y, SEED);
        if (rank == 0) ASSERT_EQ(out[t * WIDTH + n], before[t * WIDTH + n]);
      }
    }
    for (int t = 0; t < T; t += 5) { /* alone: the same bits */
      batch_t one = {.num_tokens = 1, .block_size = 16, .adapters = adapters + t, .num_adapted = 1};
      memcpy(alone, before + t * WIDTH, sizeof alone);
      ops_cpu.begin(device, &one);
      ops_cpu.lora_add(device, ACT(alone), ACT(x + t * K), lora, COLUMN, WIDTH);
      ASSERT_EQ_FOR(memcmp(alone, out + t * WIDTH, sizeof alone), 0, "%s token %d", tiers[tier], t);
    }
    for (int32_t s = 1; s <= SLOTS; s++) free(a[s]), free(b[s]);
    free(x), free(before);
    ops_cpu.close(device);
  }
}
