/* test_weights.c: matrices onto the device: every row arrives, and several threads make them. */
#include "cuda/operations.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { COLS = 136, ROWS_FEW = 3, ROWS_MANY = 70001 /* more than one half of the staging memory */ };
enum { THREADS = 3, PATIENCE_S = 20 };

static uint16_t element(int64_t row, int64_t column) {
  return (uint16_t)(row * 31 + column * 7);
}

/* Every other row lies elsewhere, as rows of a mapped file do. */
static const void *counted_row(void *context, int64_t row, void *scratch) {
  static _Thread_local uint16_t elsewhere[COLS];
  uint16_t *out = row % 2 ? scratch : elsewhere;
  atomic_fetch_add((atomic_llong *)context, 1);
  for (int64_t i = 0; i < COLS; i++) out[i] = element(row, i);
  return out;
}

static void load(device_t *d, int64_t rows) {
  atomic_llong made = 0;
  inferd_error_t error = {0};
  weight_t *weight;
  const weight_source_t source = {.name = "matrix",
                                  .rows = rows,
                                  .cols = COLS,
                                  .dtype = DTYPE_BF16,
                                  .row = counted_row,
                                  .context = &made};
  cr_assert_eq(ops_cuda.weight(d, &source, &weight, &error), 0, "%s", error.message);
  uint16_t *got = malloc((size_t)rows * sizeof(uint16_t[COLS]));
  cr_assert_not_null(got);
  cr_assert_eq(cudaDeviceSynchronize(), cudaSuccess);
  cr_assert_eq(
      cudaMemcpy(got, weight->data, (size_t)rows * sizeof(uint16_t[COLS]), cudaMemcpyDeviceToHost),
      cudaSuccess);
  cr_assert_eq(atomic_load(&made), rows, "%lld rows were made of %lld", (long long)made,
               (long long)rows);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < COLS; i++)
      cr_assert_eq(got[r * COLS + i], element(r, i), "row %lld, column %lld", (long long)r,
                   (long long)i);
  }
  free(got);
}

Test(weights, every_row_arrives_for_any_number_of_threads) {
  static const int threads[] = {1, 2, 7, 0, 1000};
  for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
    const device_options_t options = {.num_threads = threads[i]};
    inferd_error_t error = {0};
    device_t *d;
    cr_assert_eq(ops_cuda.open(&options, &d, &error), 0, "%s", error.message);
    load(d, ROWS_FEW);
    load(d, ROWS_MANY);
    ops_cuda.close(d);
  }
}

typedef struct meeting {
  pthread_mutex_t lock;
  pthread_cond_t all_here;
  int here;
} meeting_t;

/* The first row of each thread waits for the others. */
static const void *meeting_row(void *context, int64_t row, void *scratch) {
  static _Thread_local bool was_here;
  meeting_t *m = context;
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += PATIENCE_S;
  pthread_mutex_lock(&m->lock);
  if (!was_here && ++m->here == THREADS) pthread_cond_broadcast(&m->all_here);
  while (!was_here && m->here < THREADS &&
         pthread_cond_timedwait(&m->all_here, &m->lock, &until) == 0)
    ;
  was_here = true;
  pthread_mutex_unlock(&m->lock);
  memset(scratch, (int)(row % 100), sizeof(uint16_t[COLS]));
  return scratch;
}

Test(weights, rows_are_made_side_by_side) {
  const device_options_t options = {.num_threads = THREADS};
  meeting_t meeting = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0};
  inferd_error_t error = {0};
  device_t *d;
  weight_t *weight;
  const weight_source_t source = {.name = "matrix",
                                  .rows = ROWS_MANY,
                                  .cols = COLS,
                                  .dtype = DTYPE_BF16,
                                  .row = meeting_row,
                                  .context = &meeting};
  cr_assert_eq(ops_cuda.open(&options, &d, &error), 0, "%s", error.message);
  cr_assert_eq(ops_cuda.weight(d, &source, &weight, &error), 0, "%s", error.message);
  cr_assert_geq(meeting.here, THREADS, "only %d threads came", meeting.here);
  ops_cuda.close(d);
}
