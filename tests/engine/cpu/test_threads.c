/* test_threads.c: the worker pool: every unit exactly once, sums visible, sleep and wake, no CPU
 * when idle. Run under TSan by `make check`. */
#include "engine/cpu/threads.h"
#include "tests/engine/cpu/helper.h"
#include "tests/expect.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { UNITS_MAX = 5000 };

typedef struct count {
  uint8_t seen[UNITS_MAX]; /* plain: two workers on one unit would be a race */
  atomic_int per_worker[16];
  int slow_worker; /* sleeps in each chunk, -1 = none */
} count_t;

static void count_task(void *context, int64_t first, int64_t last, int worker) {
  count_t *c = context;
  if (worker == c->slow_worker) usleep(200);
  for (int64_t i = first; i < last; i++) c->seen[i]++;
  atomic_fetch_add(&c->per_worker[worker], (int)(last - first));
}

static void check_run(pool_t *pool, count_t *c, int64_t units, int64_t grain) {
  memset(c->seen, 0, sizeof c->seen);
  pool_run(pool, count_task, c, units, grain);
  for (int64_t i = 0; i < UNITS_MAX; i++)
    ASSERT_EQ_FOR(c->seen[i], i < units ? 1 : 0, "unit %ld of %ld ran %d times, seed %llu", (long)i,
                  (long)units, c->seen[i], SEED);
}

Test(threads, every_unit_runs_once) {
  static count_t c;
  random_state_t random = random_start(20);
  for (int threads = 1; threads <= 7; threads += SANITIZED ? 2 : 1) {
    pool_t *pool = pool_new(threads);
    cr_assert_not_null(pool);
    ASSERT_EQ(pool_num_threads(pool), threads);
    c.slow_worker = -1;
    for (int i = 0; i < (SANITIZED ? 500 : 2000); i++)
      check_run(pool, &c, random_below(&random, i % 4 ? 40 : UNITS_MAX + 1),
                1 + random_below(&random, 5));
    pool_free(pool);
  }
}

Test(threads, others_take_over_from_a_slow_worker) {
  static count_t c;
  pool_t *pool = pool_new(3);
  c.slow_worker = 1;
  for (int i = 0; i < 20; i++) check_run(pool, &c, 4000, 1);
  int slow = atomic_load(&c.per_worker[1]);
  int rest = atomic_load(&c.per_worker[0]) + atomic_load(&c.per_worker[2]);
  ASSERT_EQ(slow + rest, 20 * 4000);
  ASSERT_LT_FOR(slow, rest / 2, "nothing was stolen: %d of %d", slow, slow + rest);
  pool_free(pool);
}

Test(threads, workers_wake_after_sleeping) {
  static count_t c;
  c.slow_worker = -1;
  pool_t *pool = pool_new(4);
  for (int i = 0; i < 60; i++) {
    check_run(pool, &c, 64, 1);
    usleep(i % 3 ? 50 : 2000); /* around and beyond the spinning time */
  }
  pool_free(pool);
}

Test(threads, idle_workers_use_no_processor) {
  static count_t c;
  c.slow_worker = -1;
  pool_t *pool = pool_new(2);
  check_run(pool, &c, 100, 1);
  usleep(20000);
  struct timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  usleep(200000);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  double used =
      (double)(after.tv_sec - before.tv_sec) + 1e-9 * (double)(after.tv_nsec - before.tv_nsec);
  ASSERT_LT_FOR(used, 0.05, "%g s of processor time in 0.2 s of idling", used);
  pool_free(pool);
}

Test(threads, ends_at_once_and_many_times) {
  for (int i = 0; i < 200; i++) {
    pool_t *pool = pool_new(1 + i % 5);
    cr_assert_not_null(pool);
    static count_t c;
    c.slow_worker = -1;
    if (i % 2) check_run(pool, &c, 10, 1);
    pool_free(pool);
  }
  pool_free(NULL);
  cr_assert_null(pool_new(0));
  cr_assert_null(pool_new(POOL_THREADS_MAX + 1));
}
