/* test_sleep.c: a device that gives its memory back and gets it again, with the same weights.
 *
 * What is free is asked of the runtime, as another program would see it. While the device sleeps
 * another one takes the memory: then it cannot be woken, and says so.
 */
#include "cuda/operations.h"
#include "cuda/sleep.h"
#include "tests/emu/host/calls.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COLS = 136, ROWS = 30000, LAYERS = 2, HEADS = 2, DIM = 64, SIZE = 16, BLOCKS = 64 };
static const size_t MIB = 1 << 20;

static uint16_t element(int64_t row, int64_t column) {
  return (uint16_t)(row * 31 + column * 7);
}

static const void *counted_row(void *context, int64_t row, void *scratch) {
  uint16_t *out = scratch;
  (void)context;
  for (int64_t i = 0; i < COLS; i++) out[i] = element(row, i);
  return out;
}

static size_t left(void) {
  size_t available = 0, total = 0;
  cr_assert_eq(cudaMemGetInfo(&available, &total), cudaSuccess);
  return available;
}

typedef struct bench {
  device_t *device;
  weight_t *weight;
  vector_t *vector;
  act_t *buffer;
} bench_t;

static void open_bench(bench_t *t, bool sleeps) {
  const device_options_t options = {.num_threads = 1, .sleeps = sleeps};
  const kv_cache_desc_t desc = {.num_layers = LAYERS,
                                .num_kv_heads = HEADS,
                                .head_dim = DIM,
                                .num_blocks = BLOCKS,
                                .block_size = SIZE,
                                .dtype = DTYPE_BF16};
  const step_limits_t limits = {.tokens_max = 24,
                                .reqs_max = 2,
                                .logits_rows_max = 1,
                                .hidden_max = COLS,
                                .vocab_size = 100,
                                .max_model_len = SIZE * BLOCKS,
                                .heads_max = HEADS,
                                .head_dim_max = DIM};
  const weight_source_t source = {
      .name = "matrix", .rows = ROWS, .cols = COLS, .dtype = DTYPE_BF16, .row = counted_row};
  const float values[3] = {1, -2, 0.5F};
  inferd_error_t error = {0};
  cr_assert_eq(ops_cuda.open(&options, &t->device, &error), 0, "%s", error.message);
  cr_assert_eq(ops_cuda.weight(t->device, &source, &t->weight, &error), 0, "%s", error.message);
  cr_assert_eq(ops_cuda.vector(t->device, values, 3, &t->vector, &error), 0, "%s", error.message);
  cr_assert_eq(ops_cuda.kv_cache(t->device, &desc, &error), 0, "%s", error.message);
  cr_assert_eq(ops_cuda.prepare(t->device, &limits, &error), 0, "%s", error.message);
  t->buffer = ops_cuda.buffer(t->device, 24, COLS);
  cr_assert_not_null(t->buffer);
  cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
}

static void check_weights(const bench_t *t) {
  const size_t bytes = (size_t)ROWS * sizeof(uint16_t[COLS]);
  uint16_t *got = malloc(bytes), narrow[3];
  float values[3];
  cr_assert_not_null(got);
  cr_assert_eq(cudaMemcpy(got, t->weight->data, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  for (int64_t r = 0; r < ROWS; r++) {
    for (int64_t i = 0; i < COLS; i++)
      cr_assert_eq(got[r * COLS + i], element(r, i), "row %lld, column %lld", (long long)r,
                   (long long)i);
  }
  free(got);
  cr_assert_eq(cudaMemcpy(values, t->vector->values, sizeof values, cudaMemcpyDeviceToHost), 0);
  cr_assert(values[0] == 1 && values[1] == -2 && values[2] == 0.5F);
  cr_assert_eq(cudaMemcpy(narrow, t->vector->narrow, sizeof narrow, cudaMemcpyDeviceToHost), 0);
  cr_assert(narrow[0] == 0x3f80 && narrow[1] == 0xc000 && narrow[2] == 0x3f00);
}

/* What the cache held is gone, and padding reads zeros. */
static void check_zeros(const bench_t *t) {
  const gpu_kv_t *kv = &t->device->kv;
  const size_t bytes = gpu_kv_block_bytes(kv) * LAYERS * BLOCKS;
  uint8_t *got = malloc(bytes);
  cr_assert_not_null(got);
  cr_assert_eq(cudaMemcpy(got, kv->base, bytes, cudaMemcpyDeviceToHost), cudaSuccess);
  for (size_t i = 0; i < bytes; i++) cr_assert_eq(got[i], 0, "byte %zu", i);
  free(got);
}

static void sleep_now(const bench_t *t) {
  inferd_error_t error = {0};
  cr_assert_eq(ops_cuda.sleep->sleep(t->device, &error), 0, "%s", error.message);
}

static int wake(const bench_t *t, inferd_error_t *error) {
  return ops_cuda.sleep->wake(t->device, error);
}

Test(sleep, weights_come_back_and_the_memory_is_free_meanwhile) {
  bench_t t;
  inferd_error_t error = {0};
  size_t host, given;
  const size_t before = left();
  open_bench(&t, true);
  const size_t awake = left();
  for (int turn = 0; turn < 3; turn++) {
    check_weights(&t);
    cr_assert_eq(cudaMemset(t.device->kv.base, 7, 1000), cudaSuccess);
    cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
    sleep_now(&t);
    ops_cuda.sleep->bytes(t.device, &host, &given);
    cr_assert_eq(left(), awake + given, "%zu free, %zu awake, %zu given", left(), awake, given);
    cr_assert(host >= (size_t)ROWS * COLS * 2 && host < (size_t)ROWS * COLS * 2 + MIB);
    cr_assert(before - left() < MIB, "it keeps %zu bytes", before - left());
    cr_assert_eq(wake(&t, &error), 0, "%s", error.message);
    cr_assert_eq(left(), awake);
    check_zeros(&t);
  }
  check_weights(&t);
  ops_cuda.close(t.device);
  cr_assert_eq(left(), before);
}

Test(sleep, without_room_it_sleeps_on) {
  bench_t t;
  inferd_error_t error = {0};
  open_bench(&t, true);
  sleep_now(&t);
  void *others = NULL;
  const size_t free = left(), taken = free - MIB;
  cr_assert_eq(cudaMalloc(&others, taken), cudaSuccess);
  for (int turn = 0; turn < 2; turn++) {
    cr_assert_eq(wake(&t, &error), ERR_NO_MEMORY);
    cr_assert_not_null(strstr(error.message, "of the device to wake up"), "%s", error.message);
    cr_assert_eq(left(), MIB, "what it could not use it gives back");
  }
  cudaFree(others);
  cr_assert_eq(wake(&t, &error), 0, "%s", error.message);
  check_weights(&t);
  ops_cuda.close(t.device);
}

/* Weights fit, and the cache does not. */
Test(sleep, a_part_is_not_enough) {
  bench_t t;
  inferd_error_t error = {0};
  open_bench(&t, true);
  sleep_now(&t);
  void *others = NULL;
  cr_assert_eq(cudaMalloc(&others, left() - 9 * MIB), cudaSuccess);
  cr_assert_eq(wake(&t, &error), ERR_NO_MEMORY);
  cr_assert_eq(left(), 9 * MIB);
  cudaFree(others);
  cr_assert_eq(wake(&t, &error), 0, "%s", error.message);
  check_weights(&t);
  ops_cuda.close(t.device);
}

Test(sleep, a_device_that_sleeps_can_be_closed) {
  bench_t t;
  const size_t before = left();
  open_bench(&t, true);
  sleep_now(&t);
  ops_cuda.close(t.device);
  cr_assert_eq(left(), before);
}

/* No memory of the host: the device is as before. */
Test(sleep, without_pinned_memory_it_stays_awake) {
  bench_t t;
  inferd_error_t error = {0};
  char text[40];
  open_bench(&t, true);
  const size_t awake = left();
  ops_cuda.close(t.device);
  snprintf(text, sizeof text, "cudaMallocHost:%d:2", 2 * emu_count_calls("cudaMallocHost") + 1);
  emu_fail(text);
  open_bench(&t, true);
  cr_assert_eq(ops_cuda.sleep->sleep(t.device, &error), ERR_NO_MEMORY);
  cr_assert_not_null(strstr(error.message, "pinned"), "%s", error.message);
  cr_assert_eq(left(), awake);
  check_weights(&t);
  sleep_now(&t);
  cr_assert_eq(wake(&t, &error), 0, "%s", error.message);
  check_weights(&t);
  ops_cuda.close(t.device);
}

Test(sleep, a_driver_without_such_memory_is_named) {
  const device_options_t options = {.num_threads = 1, .sleeps = true};
  inferd_error_t error = {0};
  device_t *device;
  emu_fail("cuMemGetAllocationGranularity:1:801");
  cr_assert_eq(ops_cuda.open(&options, &device, &error), ERR_CONFIGURATION);
  cr_assert_null(device);
  cr_assert_not_null(strstr(error.message, "virtual memory management"), "%s", error.message);
}
