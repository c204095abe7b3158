/* probe.c: whether products of a few rows prefetch their weights; see gemm_t.ahead.
 *
 * Such a product is one stream from memory. Some processors follow it better alone, others are a
 * third slower without prefetches, so it is measured with the model's own weights while a device is
 * prepared: a few milliseconds on the engine thread, by its CPU time. No bit depends on it.
 */
#include "engine/cpu/probe.h"

#include "engine/base/util.h"

#include <string.h>
#include <time.h>

enum { RUNS = 8, RUN_BYTES = 2 << 20, ROWS_MAX = 4 };

static double thread_seconds(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Seconds of the products of `rows` rows of zeros with `count` panels. */
static double run(device_t *device, const weight_t *weight, int64_t first, int64_t count,
                  int32_t rows) {
  float out[ROWS_MAX * PANEL_COLS];
  const double start = thread_seconds();
  for (int64_t i = first; i < first + count; i++) {
    gemm_t gemm = {.x = device->staged,
                   .rows = rows,
                   .cols = (int32_t)MIN(weight->stack_rows - i % weight->stack_panels * PANEL_COLS,
                                        PANEL_COLS),
                   .out = out,
                   .ldo = PANEL_COLS};
    weight_multiply(device, weight, i, i + 1 < first + count, 0, &gemm);
  }
  return thread_seconds() - start;
}

/* Runs in turn with and without, each on panels of its own, and the slowest of each left out. */
static void probe(device_t *device, const weight_t *weight, int32_t rows, int64_t skip,
                  int64_t count) {
  bool *ahead = &device->ahead[weight->quant != NULL][MIN(rows, AHEAD_CLASSES) - 1];
  const int64_t part = weight->stack * weight->stack_panels / RUNS;
  double sum[2] = {0}, longest[2] = {0};
  for (int i = 0; i < RUNS; i++) {
    const int with = (i + 1) / 2 % 2; /* 0 1 1 0 0 1 1 0 */
    *ahead = with;
    const double seconds = run(device, weight, i * part + skip, count, rows);
    sum[with] += seconds;
    longest[with] = MAX(longest[with], seconds);
  }
  *ahead = sum[1] - longest[1] < sum[0] - longest[0];
}

void probe_products(device_t *device) {
  static const int32_t rows[AHEAD_CLASSES] = {1, 2, ROWS_MAX};
  memset(device->staged, 0, (size_t)device->staged_cols * sizeof(float) * ROWS_MAX);
  for (int kind = 0; kind < 2; kind++) {
    const weight_t *weight = device->probed[kind];
    if (weight == NULL) continue;
    const size_t bytes = weight->quant != NULL ? weight->quant[1].at : weight->panel_bytes;
    const int64_t all = weight->stack * weight->stack_panels / (RUNS * AHEAD_CLASSES);
    const int64_t count = MIN(all, 1 + RUN_BYTES / (int64_t)bytes);
    for (int64_t i = 0; i < AHEAD_CLASSES; i++) probe(device, weight, rows[i], i * count, count);
  }
}

void probe_note(device_t *device, const weight_t *weight) {
  const bool quantised = weight->quant != NULL;
  const weight_t **largest = &device->probed[quantised];
  if (weight->stack * weight->stack_panels < RUNS * AHEAD_CLASSES) return;
  if (!quantised && (weight->dtype != DTYPE_BF16 || weight->format != WEIGHT_PLAIN)) return;
  if (*largest == NULL || weight->rows * weight->cols > (*largest)->rows * (*largest)->cols)
    *largest = weight;
}
