/* test_lanes.c: which job runs next, with libuv's own pool and with jobs that wait to be let go. */
#include "tests/expect.h"

#include "server/lanes/lanes.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { JOBS_MAX = 64 };

typedef struct work {
  lane_job_t job; /* first */
  char name;
  bool gated; /* waits until the gate is open, or for a pass; a job `y`: until the last slot is */
  int spins;  /* CPU time to use, in units of some 10 microseconds */
  uint64_t aside_ns;
} work_t;

static uv_loop_t loop;
static lanes_t *lanes;
static work_t works[JOBS_MAX];
static int count;
static atomic_bool gate; /* closed until a test opens it, or ends */
static atomic_bool last_slot;
static atomic_int passes; /* so many jobs may end before the gate opens */
static atomic_int ran;    /* jobs at the end of their run */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char started[JOBS_MAX + 1], ended[JOBS_MAX + 1]; /* names in their order */

static void add_name(char *names, char name) {
  pthread_mutex_lock(&lock);
  size_t length = strlen(names);
  names[length] = name;
  names[length + 1] = '\0';
  pthread_mutex_unlock(&lock);
}

static bool take_pass(void) {
  int left = atomic_load(&passes);
  while (left > 0 && !atomic_compare_exchange_weak(&passes, &left, left - 1)) continue;
  return left > 0;
}

static void run(lane_job_t *job) {
  work_t *work = (work_t *)job;
  add_name(started, work->name);
  const atomic_bool *opens = work->name == 'y' ? &last_slot : &gate;
  while (work->gated && !atomic_load(opens) && !take_pass()) uv_sleep(1);
  for (volatile int i = 0; i < work->spins * 10000; i++) continue;
  job->aside_ns = work->aside_ns;
  atomic_fetch_add(&ran, 1);
}

static void done(lane_job_t *job) {
  add_name(ended, ((work_t *)job)->name);
}

static void begin(void) {
  memset(started, 0, sizeof started);
  memset(ended, 0, sizeof ended);
  count = 0;
  atomic_store(&gate, false);
  atomic_store(&last_slot, false);
  atomic_store(&passes, 0);
  atomic_store(&ran, 0);
  setenv("UV_THREADPOOL_SIZE", "1", 1); /* the lanes do not depend on it */
  ASSERT_EQ(uv_loop_init(&loop), 0);
  lanes = lanes_new(&loop);
  cr_assert_not_null(lanes);
}

static void end(void) {
  atomic_store(&gate, true);
  uv_run(&loop, UV_RUN_DEFAULT);
  lanes_free(lanes);
  ASSERT_EQ(uv_loop_close(&loop), 0);
}

static work_t *submit(char name, uint64_t client, lane_kind_t kind, bool gated) {
  cr_assert(count < JOBS_MAX);
  work_t *work = &works[count++];
  *work = (work_t){.job = {.run = run, .done = done, .client = client, .kind = kind},
                   .name = name,
                   .gated = gated};
  lanes_submit(lanes, &work->job);
  return work;
}

static void wait_for_starts(size_t number) {
  for (;;) {
    pthread_mutex_lock(&lock);
    size_t found = strlen(started);
    pthread_mutex_unlock(&lock);
    if (found >= number) return;
    uv_run(&loop, UV_RUN_NOWAIT);
    uv_sleep(1);
  }
}

static int place_of(char name) {
  const char *at = strchr(started, name);
  cr_assert_not_null(at, "%c never began: %s", name, started);
  return (int)(at - started);
}

TestSuite(lanes, .init = begin, .fini = end);

/* However many heavy jobs a client has, a light one finds a thread, and so does the first heavy job
 * of another client. */
Test(lanes, heavy_jobs_leave_room) {
  for (int i = 0; i < 8; i++) submit('a', 1, LANE_HEAVY, true);
  wait_for_starts(LANE_HEAVY_EACH);
  ASSERT_EQ(lanes_stats(lanes, LANE_HEAVY).running, LANE_HEAVY_EACH);
  submit('b', 2, LANE_HEAVY, true);
  submit('c', 3, LANE_HEAVY, true);
  wait_for_starts(LANE_HEAVY_EACH + 1);
  ASSERT_EQ(lanes_stats(lanes, LANE_HEAVY).running, LANE_THREADS - 1);
  submit('l', 1, LANE_LIGHT, false);
  while (strchr(ended, 'l') == NULL) uv_run(&loop, UV_RUN_ONCE);
  ASSERT_EQ(place_of('b'), LANE_HEAVY_EACH);
  cr_assert_null(strchr(started, 'c'));
}

/* A client that comes behind the many jobs of another one gets the first place that is free. The
 * loop stands still while those that were handed to the pool run, so that they are all of them. */
Test(lanes, a_new_client_comes_next) {
  const int at_once = LANE_THREADS * LANE_LIGHT_DEPTH;
  for (int i = 0; i < 3 * at_once; i++) submit('a', 1, LANE_LIGHT, true);
  submit('b', 2, LANE_LIGHT, true);
  wait_for_starts(LANE_THREADS);
  ASSERT_EQ(lanes_stats(lanes, LANE_LIGHT).running, at_once);
  ASSERT_EQ(lanes_stats(lanes, LANE_LIGHT).waiting, 2 * at_once + 1);
  atomic_store(&passes, 1);
  while (strlen(ended) < 1) uv_run(&loop, UV_RUN_ONCE);
  ASSERT_EQ(lanes_stats(lanes, LANE_LIGHT).running, at_once);
  atomic_store(&passes, at_once);
  while (atomic_load(&ran) < at_once + 1) uv_sleep(1);
  (void)place_of('b');
}

/* Two clients with equal claims: the one whose jobs take ten times as long gets fewer of them. */
Test(lanes, turns_are_paid_in_time) {
  enum { EACH = 20 };
  for (int i = 0; i < EACH; i++) {
    submit('a', 1, LANE_HEAVY, false)->spins = 2000;
    submit('b', 2, LANE_HEAVY, false)->spins = 4;
  }
  uv_run(&loop, UV_RUN_DEFAULT);
  int before = 0; /* long jobs that began before the last short one */
  for (const char *at = started; at < strrchr(started, 'b'); at++) before += *at == 'a';
  cr_assert_leq(before, EACH / 2, "%s", started);
  ASSERT_EQ(lanes_stats(lanes, LANE_HEAVY).jobs, 2 * EACH);
  cr_assert_gt(lanes_stats(lanes, LANE_HEAVY).cpu_ns, 0);
}

/* The same where another process works for the long ones: one is begun, and the next when the short
 * ones have ended. One slot is left, so that the jobs run one after the other; it opens when all of
 * them wait. */
Test(lanes, turns_are_paid_in_time_of_other_processes) {
  enum { EACH = 20 };
  for (int i = 0; i < LANE_THREADS - 2; i++) submit('x', 7 + (uint64_t)i, LANE_HEAVY, true);
  submit('y', 6, LANE_HEAVY, true);
  for (int i = 0; i < EACH; i++) {
    submit('a', 1, LANE_HEAVY, false)->aside_ns = 1000000000u;
    submit('b', 2, LANE_HEAVY, false)->spins = 4;
  }
  atomic_store(&last_slot, true);
  while (strlen(ended) < 2 * EACH + 1) uv_run(&loop, UV_RUN_ONCE);
  int before = 0;
  for (const char *at = started; at < strrchr(started, 'b'); at++) before += *at == 'a';
  ASSERT_EQ(before, 1);
  cr_assert_geq(lanes_stats(lanes, LANE_HEAVY).cpu_ns, EACH * (uint64_t)1000000000u);
}

/* What was used in an idle past is not held against anybody: A comes after b, but before the second
 * job of its client. One slot is left, so that the jobs run one after the other. */
Test(lanes, an_empty_lane_begins_anew) {
  submit('a', 1, LANE_HEAVY, false)->spins = 2000;
  uv_run(&loop, UV_RUN_DEFAULT);
  for (int i = 0; i < LANE_THREADS - 2; i++) submit('x', 7 + (uint64_t)i, LANE_HEAVY, true);
  submit('b', 2, LANE_HEAVY, false)->spins = 100;
  submit('A', 1, LANE_HEAVY, false);
  submit('c', 2, LANE_HEAVY, false);
  while (strchr(ended, 'c') == NULL) uv_run(&loop, UV_RUN_ONCE);
  cr_assert_lt(place_of('A'), place_of('c'), "%s", started);
}

Test(lanes, a_job_is_withdrawn_while_it_waits) {
  work_t *first = submit('a', 1, LANE_HEAVY, true);
  submit('b', 1, LANE_HEAVY, true);
  work_t *third = submit('c', 1, LANE_HEAVY, true);
  work_t *fourth = submit('d', 1, LANE_HEAVY, true);
  work_t *other = submit('e', 2, LANE_HEAVY, true);
  work_t *last = submit('f', 3, LANE_HEAVY, true);
  wait_for_starts(3);
  cr_assert(lanes_withdraw(&third->job));
  cr_assert(lanes_withdraw(&last->job));
  cr_assert_not(lanes_withdraw(&first->job));
  cr_assert_not(lanes_withdraw(&other->job));
  ASSERT_EQ(lanes_stats(lanes, LANE_HEAVY).waiting, 1);
  atomic_store(&gate, true);
  uv_run(&loop, UV_RUN_DEFAULT);
  cr_assert_null(strpbrk(started, "cf"), "%s", started);
  cr_assert_not_null(strchr(ended, fourth->name));
}

/* More clients than are remembered; each has its turn, in the order in which they came. */
Test(lanes, many_clients) {
  enum { CLIENTS = 3 * LANE_CLIENTS_MAX };
  work_t *many = calloc(CLIENTS, sizeof *many);
  cr_assert_not_null(many);
  for (int i = 0; i < CLIENTS; i++) {
    many[i] = (work_t){.job = {.run = run, .done = done, .client = (uint64_t)i, .kind = i % 2}};
    lanes_submit(lanes, &many[i].job);
  }
  uv_run(&loop, UV_RUN_DEFAULT);
  ASSERT_EQ(lanes_stats(lanes, LANE_LIGHT).jobs + lanes_stats(lanes, LANE_HEAVY).jobs, CLIENTS);
  free(many);
}
