/* test_swap.c: KV blocks to host memory and back, in any company, against a shadow of the pools.
 *
 * Random steps write rows and copy pages, two in flight, with swaps in between. The shadow does
 * everything in one queue, in the order of the calls, as engine/device/swap_ops.h promises. The
 * streams of the emulated device run as late as they may, or in any order: a missing fence shows.
 */
#include "cuda/swap.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
  LAYERS = 3,
  HEADS = 2,
  DIM = 64,
  SIZE = 16,
  BLOCKS = 12,
  HOST_BLOCKS = 9,
  IDS = 100,
  WIDTH = 3 * HEADS * DIM,
  TOKENS = 24,
  TURNS = 300,
  SWAPS = 4,
  COPIES = 2
};

typedef int32_t ids_t[SIZE]; /* of the tokens in a block's slots; -1 = unknown */

typedef struct bench {
  device_t *device;
  weight_t *tables[LAYERS];
  act_t *qkv;
  batch_t batches[2];
  int32_t flights, begun;
  bool fp8;
  ids_t pool[BLOCKS], host[HOST_BLOCKS];
} bench_t;

static uint64_t random_state;

static int32_t below(int32_t n) { /* xorshift64* (Vigna 2016) */
  random_state ^= random_state >> 12;
  random_state ^= random_state << 25;
  random_state ^= random_state >> 27;
  return (int32_t)((random_state * 0x2545F4914F6CDD1Du >> 33) % (uint64_t)n);
}

/* `count` different numbers from `first` on, below `end`. */
static void draw(int32_t *out, int32_t count, int32_t first, int32_t end) {
  for (int32_t i = 0; i < count; i++) {
    bool is_new;
    do {
      out[i] = first + below(end - first);
      is_new = true;
      for (int32_t j = 0; j < i; j++) is_new = is_new && out[j] != out[i];
    } while (!is_new);
  }
}

/* Small whole numbers: exact in bf16 and in e4m3. */
static int32_t value_of(int32_t layer, int32_t id, int32_t column) {
  return (id * 7 + column * 3 + layer * 5) % 15 - 7;
}

static const void *table_row(void *context, int64_t row, void *scratch) {
  uint16_t *out = scratch;
  for (int32_t i = 0; i < WIDTH; i++) {
    float value = (float)value_of((int32_t)(intptr_t)context, (int32_t)row, i);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    out[i] = (uint16_t)(bits >> 16);
  }
  return out;
}

static void *take(size_t count, size_t size) {
  void *memory = calloc(count, size);
  cr_assert_not_null(memory);
  return memory;
}

static void make_batch(batch_t *b) {
  static const int32_t no_blocks[BLOCKS];
  *b = (batch_t){.block_size = SIZE, .block_table_stride = BLOCKS};
  b->input_ids = take(TOKENS, sizeof(int32_t));
  b->positions = take(TOKENS, sizeof(int32_t));
  b->slot_mapping = take(TOKENS, sizeof(int64_t));
  b->selected_token_indices = take(TOKENS, sizeof(int32_t));
  b->query_start_loc = take(2, sizeof(int32_t));
  b->seq_lens = take(1, sizeof(int32_t));
  b->block_table = take(1, sizeof(int32_t *));
  b->copies = take(COPIES, sizeof *b->copies);
  b->block_table[0] = no_blocks;
}

static void free_batch(batch_t *b) {
  free(b->input_ids);
  free(b->positions);
  free(b->slot_mapping);
  free(b->selected_token_indices);
  free(b->query_start_loc);
  free(b->seq_lens);
  free(b->block_table);
  free(b->copies);
}

static void open_bench(bench_t *t, bool fp8) {
  const device_options_t options = {.num_threads = 1};
  const kv_cache_desc_t desc = {.num_layers = LAYERS,
                                .num_kv_heads = HEADS,
                                .head_dim = DIM,
                                .num_blocks = BLOCKS,
                                .block_size = SIZE,
                                .dtype = DTYPE_BF16,
                                .fp8 = fp8};
  const step_limits_t limits = {.tokens_max = TOKENS,
                                .reqs_max = 2,
                                .logits_rows_max = 1,
                                .hidden_max = WIDTH,
                                .vocab_size = IDS,
                                .max_model_len = SIZE * BLOCKS,
                                .heads_max = HEADS,
                                .head_dim_max = DIM};
  inferd_error_t error = {0};
  *t = (bench_t){.fp8 = fp8};
  cr_assert_eq(ops_cuda.open(&options, &t->device, &error), 0, "%s", error.message);
  for (intptr_t l = 0; l < LAYERS; l++) {
    const weight_source_t source = {.name = "table",
                                    .rows = IDS,
                                    .cols = WIDTH,
                                    .dtype = DTYPE_BF16,
                                    .row = table_row,
                                    .context = (void *)l};
    cr_assert_eq(ops_cuda.weight(t->device, &source, &t->tables[l], &error), 0);
  }
  cr_assert_eq(ops_cuda.kv_cache(t->device, &desc, &error), 0, "%s", error.message);
  cr_assert_eq(ops_cuda.swap->pool(t->device, HOST_BLOCKS, NULL, &error), 0, "%s", error.message);
  cr_assert(ops_cuda.swap->rate(t->device) > 0);
  cr_assert_eq(ops_cuda.prepare(t->device, &limits, &error), 0, "%s", error.message);
  t->qkv = ops_cuda.buffer(t->device, TOKENS, WIDTH);
  for (int i = 0; i < 2; i++) make_batch(&t->batches[i]);
  memset(t->pool, -1, sizeof t->pool);
  memset(t->host, -1, sizeof t->host);
}

static void close_bench(bench_t *t) {
  ops_cuda.close(t->device);
  for (int i = 0; i < 2; i++) free_batch(&t->batches[i]);
}

/* ---- one turn ---- */

static void end_step(bench_t *t) {
  inferd_error_t error = {0};
  cr_assert_eq(ops_cuda.end(t->device, &error), 0, "%s", error.message);
  t->flights--;
}

static void plan_copies(bench_t *t, batch_t *b) {
  int32_t blocks[2 * COPIES];
  draw(blocks, 2 * COPIES, 1, BLOCKS);
  b->num_copies = below(COPIES + 1);
  for (int32_t i = 0; i < b->num_copies; i++) {
    const block_copy_t copy = {blocks[2 * i], blocks[2 * i + 1], 1 + below(SIZE)};
    b->copies[i] = copy;
    memcpy(t->pool[copy.dst], t->pool[copy.src], (size_t)copy.rows * sizeof(int32_t));
  }
}

static void launch_step(bench_t *t) {
  batch_t *b = &t->batches[t->begun++ % 2];
  int32_t slots[TOKENS];
  b->num_tokens = b->max_query_len = b->query_start_loc[1] = 1 + below(below(2) ? TOKENS : 2);
  b->num_reqs = 1;
  b->max_seq_len = b->seq_lens[0] = b->num_tokens;
  plan_copies(t, b);
  draw(slots, b->num_tokens, SIZE, BLOCKS * SIZE);
  for (int32_t i = 0; i < b->num_tokens; i++) {
    b->input_ids[i] = below(IDS);
    b->slot_mapping[i] = below(8) == 0 ? -1 : slots[i];
    if (b->slot_mapping[i] >= 0) t->pool[slots[i] / SIZE][slots[i] % SIZE] = b->input_ids[i];
  }
  ops_cuda.begin(t->device, b);
  for (int32_t l = 0; l < LAYERS; l++) {
    const attention_t layer = {
        .layer = l, .num_heads = HEADS, .num_kv_heads = HEADS, .head_dim = DIM};
    ops_cuda.embed(t->device, t->qkv, t->tables[l], 1);
    ops_cuda.rope_store(t->device, t->qkv, &layer);
  }
  t->flights++;
}

static void swap_some(bench_t *t) {
  int32_t blocks[SWAPS], hosts[SWAPS], count = 1 + below(SWAPS), kind = below(3);
  block_swap_t swaps[SWAPS];
  draw(blocks, SWAPS, 1, BLOCKS);
  draw(hosts, SWAPS, 0, HOST_BLOCKS);
  for (int32_t i = 0; i < count && kind < 2; i++) {
    swaps[i] = (block_swap_t){blocks[i], hosts[i]};
    memcpy(kind ? t->pool[blocks[i]] : t->host[hosts[i]],
           kind ? t->host[hosts[i]] : t->pool[blocks[i]], sizeof(ids_t));
  }
  if (kind < 2) (kind ? ops_cuda.swap->in : ops_cuda.swap->out)(t->device, swaps, count);
}

/* ---- what the pools hold ---- */

static int32_t stored(const bench_t *t, const uint8_t *block, int32_t value, int32_t head,
                      int32_t slot, int32_t d) {
  const int32_t bytes = t->fp8 ? 1 : 2, row = DIM * bytes, chunk = d * bytes / 16;
  const int32_t mixed = t->fp8 ? chunk ^ (slot / 2 % 4) : chunk ^ (slot % 8);
  const uint8_t *at = block + (size_t)(((value * HEADS + head) * SIZE + slot) * row) +
                      (size_t)(mixed * 16 + d * bytes % 16);
  if (t->fp8) { /* e4m3 of a whole number below 8 */
    int32_t exponent = (*at >> 3 & 15) - 7,
            size = exponent < 0 ? 0 : (8 + (*at & 7)) << exponent >> 3;
    return *at & 0x80 ? -size : size;
  }
  uint16_t half;
  memcpy(&half, at, sizeof half);
  uint32_t bits = (uint32_t)half << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return (int32_t)wide;
}

static void check_layer(const bench_t *t, const char *what, const uint8_t *block, int32_t layer,
                        const int32_t *ids) {
  for (int32_t slot = 0; slot < SIZE; slot++) {
    for (int32_t i = 0; i < 2 * HEADS * DIM && ids[slot] >= 0; i++) {
      int32_t found = stored(t, block, i / (HEADS * DIM), i / DIM % HEADS, slot, i % DIM);
      int32_t expected = value_of(layer, ids[slot], HEADS * DIM + i);
      cr_assert_eq(found, expected, "%s, layer %d, slot %d, element %d: %d, expected %d", what,
                   layer, slot, i, found, expected);
    }
  }
}

static void check_ids(const char *what, const int32_t *found, const int32_t *ids) {
  for (int32_t slot = 0; slot < SIZE; slot++) {
    cr_assert(ids[slot] < 0 || found[slot] == ids[slot], "%s, slot %d: id %d, expected %d", what,
              slot, found[slot], ids[slot]);
  }
}

static void check_pools(bench_t *t) {
  const device_t *d = t->device;
  const size_t block = gpu_kv_block_bytes(&d->kv);
  while (t->flights > 0) end_step(t);
  cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
  uint8_t *copy = take(1, block);
  char what[40];
  for (int32_t b = 1; b < BLOCKS; b++) {
    int32_t ids[SIZE];
    snprintf(what, sizeof what, "block %d", b);
    cudaMemcpy(ids, d->inputs.history + b * SIZE, sizeof ids, cudaMemcpyDeviceToHost);
    check_ids(what, ids, t->pool[b]);
    for (int32_t l = 0; l < LAYERS; l++) {
      const uint8_t *from = (const uint8_t *)d->kv.base + (size_t)(l * BLOCKS + b) * block;
      cudaMemcpy(copy, from, block, cudaMemcpyDeviceToHost);
      check_layer(t, what, copy, l, t->pool[b]);
    }
  }
  free(copy);
  for (int32_t h = 0; h < HOST_BLOCKS; h++) {
    const uint8_t *at = d->swap->host + (size_t)h * d->swap->block_bytes;
    int32_t ids[SIZE];
    snprintf(what, sizeof what, "host block %d", h);
    for (int32_t l = 0; l < LAYERS; l++)
      check_layer(t, what, at + (size_t)l * block, l, t->host[h]);
    memcpy(ids, at + LAYERS * block, sizeof ids);
    check_ids(what, ids, t->host[h]);
  }
}

static void run(const char *streams, bool fp8, bool one_by_one) {
  const char *seed = getenv("INFERD_TEST_SEED");
  char text[24];
  random_state = seed ? strtoull(seed, NULL, 10) : (uint64_t)time(NULL) * 1000003u + fp8;
  printf("swap %s, INFERD_TEST_SEED=%llu\n", streams, (unsigned long long)random_state);
  snprintf(text, sizeof text, "%d", 1 + below(1 << 30));
  setenv("EMU_STREAM", streams, 1);
  setenv("EMU_SEED", text, 1);
  bench_t t;
  open_bench(&t, fp8);
  t.device->swap->one_by_one = one_by_one;
  for (int32_t turn = 0; turn < TURNS; turn++) {
    swap_some(&t);
    launch_step(&t);
    while (t.flights == 2 || (t.flights > 0 && below(3) == 0)) end_step(&t);
    if (below(20) == 0) check_pools(&t);
  }
  check_pools(&t);
  close_bench(&t);
}

Test(swap, late_streams) {
  run("lazy", false, false);
}
Test(swap, late_streams_fp8) {
  run("lazy", true, false);
}
Test(swap, streams_in_any_order) {
  run("random", false, false);
}
Test(swap, streams_in_any_order_fp8) {
  run("random", true, false);
}
Test(swap, streams_in_any_order_copy_by_copy) {
  run("random", false, true);
}
Test(swap, close_while_copies_run) {
  bench_t t;
  setenv("EMU_STREAM", "random", 1);
  random_state = (uint64_t)time(NULL);
  open_bench(&t, false);
  launch_step(&t);
  ops_cuda.swap->out(t.device, &(block_swap_t){1, 0}, 1);
  close_bench(&t);
}

/* A pool that cannot be had: a reason, and a device that goes on without it. */
Test(swap, no_pool) {
  static const char *const calls[] = {"cudaMallocHost:1:2", "cudaStreamCreate:2:2",
                                      "cudaEventCreate:2:2"};
  const device_options_t options = {.num_threads = 1};
  const kv_cache_desc_t desc = {.num_layers = LAYERS,
                                .num_kv_heads = HEADS,
                                .head_dim = DIM,
                                .num_blocks = BLOCKS,
                                .block_size = SIZE,
                                .dtype = DTYPE_BF16};
  inferd_error_t error = {0};
  device_t *d;
  for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
    fflush(stdout);
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
      setenv("EMU_FAIL", calls[i], 1);
      bool good = ops_cuda.open(&options, &d, &error) == 0 &&
                  ops_cuda.kv_cache(d, &desc, &error) == 0 &&
                  ops_cuda.swap->pool(d, HOST_BLOCKS, NULL, &error) < 0 && d->swap == NULL &&
                  strstr(error.message, "host pool") && d->fault == 0 &&
                  ops_cuda.swap->pool(d, HOST_BLOCKS, NULL, &error) == 0;
      if (good) ops_cuda.close(d);
      _exit(good ? 0 : 1);
    }
    waitpid(child, &status, 0);
    cr_assert_eq(status, 0, "%s", calls[i]);
  }
}

/* A driver that refuses to copy a list: copy by copy, as above. */
Test(swap, no_lists) {
  setenv("EMU_FAIL", "cudaMemcpyBatchAsync:1:801", 1);
  bench_t t;
  open_bench(&t, false);
  cr_assert(t.device->swap->one_by_one);
  cr_assert_gt(ops_cuda.swap->rate(t.device), 0);
  close_bench(&t);
}
