/* threads.c: the worker pool of the CPU back end; see threads.h.
 *
 * Owns the worker threads. pool_run is called by the engine thread, pool__worker runs on each
 * worker. It never allocates after pool_new and never touches anything outside this directory.
 *
 * Protocol. A run has a number, the epoch. Each worker's range is one atomic word: epoch in the
 * high half, then next and end chunk (16 bits each). A chunk is taken by a compare-and-swap of that
 * word, from the front by the owner of the range and from the back by a thief. The task of a run is
 * written before its epoch appears in any range and is not changed before the run's last chunk is
 * done; so a thread that reads the task and then takes a chunk of epoch e has read the task of run
 * e. If the task had been replaced in between, run e would be over and its ranges empty, and the
 * compare-and-swap would fail. A stale word can recur only after 2^32 runs.
 */
#include "engine/cpu/threads.h"

#include "engine/base/fault.h"
#include "engine/base/util.h"
#include "engine/device/topology.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
  CACHE_LINE = 64,
  CHUNKS_PER_WORKER = 16,
  SPIN_NS = 80 * 1000, /* longer than the gaps between the operations of a step */
  SPINS_PER_CLOCK = 64 /* iterations of spinning per look at the clock */
};

typedef struct chunk_range {
  _Alignas(CACHE_LINE) _Atomic uint64_t word; /* epoch << 32 | next << 16 | end */
} chunk_range_t;

typedef struct worker {
  pool_t *pool;
  int index;
  pthread_t thread;
} worker_t;

struct pool {
  int num_threads;
  int num_started;       /* workers to join */
  bool spin;             /* false when there are more threads than processors */
  chunk_range_t *ranges; /* [num_threads] */
  worker_t *workers;
  _Alignas(CACHE_LINE) _Atomic uint32_t epoch; /* futex of idle workers */
  _Atomic uint32_t num_sleeping;
  _Atomic bool stop;
  _Atomic(pool_task_t) task;
  _Atomic(void *) context;
  _Atomic int64_t count;
  _Atomic int64_t chunk_units;
  _Alignas(CACHE_LINE) _Atomic uint32_t remaining; /* chunks not done; futex of the owner */
  _Atomic uint32_t owner_sleeps;
};

static void futex_wait(_Atomic uint32_t *word, uint32_t expected) {
  syscall(SYS_futex, (void *)word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int count) {
  syscall(SYS_futex, (void *)word, FUTEX_WAKE_PRIVATE, count, NULL, NULL, 0);
}

static uint64_t now_ns(void) {
  struct timespec timespec;
  clock_gettime(CLOCK_MONOTONIC, &timespec);
  return (uint64_t)timespec.tv_sec * 1000000000u + (uint64_t)timespec.tv_nsec;
}

static void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Spins while *word is `value`, for SPIN_NS at most. True when it changed. */
static bool spin_while(const pool_t *pool, _Atomic uint32_t *word, uint32_t value) {
  if (!pool->spin) return atomic_load_explicit(word, memory_order_acquire) != value;
  uint64_t deadline = now_ns() + SPIN_NS;
  do {
    for (int i = 0; i < SPINS_PER_CLOCK; i++) {
      if (atomic_load_explicit(word, memory_order_acquire) != value) return true;
      relax();
    }
  } while (now_ns() < deadline);
  return false;
}

/* Takes one chunk of run `epoch` from a range: its number, or -1 when none is left. */
static int take(chunk_range_t *range, uint32_t epoch, bool steal) {
  uint64_t word = atomic_load_explicit(&range->word, memory_order_acquire);
  for (;;) {
    uint32_t next = (uint32_t)(word >> 16) & 0xffff, end = (uint32_t)word & 0xffff;
    if ((uint32_t)(word >> 32) != epoch || next >= end) return -1;
    uint64_t taken = steal ? word - 1 : word + (1u << 16);
    if (atomic_compare_exchange_weak_explicit(&range->word, &word, taken, memory_order_acq_rel,
                                              memory_order_acquire))
      return (int)(steal ? end - 1 : next);
  }
}

static void finish_chunk(pool_t *pool) {
  if (atomic_fetch_sub(&pool->remaining, 1) != 1) return;
  if (atomic_load(&pool->owner_sleeps)) futex_wake(&pool->remaining, 1);
}

/* Runs chunks of run `epoch` until none is left. */
static void work(pool_t *pool, uint32_t epoch, int self) {
  pool_task_t task = atomic_load_explicit(&pool->task, memory_order_relaxed);
  void *context = atomic_load_explicit(&pool->context, memory_order_relaxed);
  int64_t count = atomic_load_explicit(&pool->count, memory_order_relaxed);
  int64_t units = atomic_load_explicit(&pool->chunk_units, memory_order_relaxed);
  for (int i = 0; i < pool->num_threads; i++) {
    int victim = (self + i) % pool->num_threads;
    for (;;) {
      int chunk = take(&pool->ranges[victim], epoch, i > 0);
      if (chunk < 0) break;
      int64_t first = chunk * units, last = MIN(first + units, count);
      task(context, first, last, self);
      finish_chunk(pool);
    }
  }
}

static void *pool__worker(void *argument) {
  worker_t *self = argument;
  pool_t *pool = self->pool;
  uint32_t seen = 0;
  fault_stack_use();
  for (;;) {
    while (!spin_while(pool, &pool->epoch, seen)) {
      atomic_fetch_add(&pool->num_sleeping, 1);
      futex_wait(&pool->epoch, seen);
      atomic_fetch_sub(&pool->num_sleeping, 1);
    }
    /* The epoch is read first: pool_free sets `stop` before it announces the last epoch. In the
     * other order a worker could take that epoch for a run's and sleep for ever. */
    seen = atomic_load_explicit(&pool->epoch, memory_order_acquire);
    if (atomic_load_explicit(&pool->stop, memory_order_acquire)) return NULL;
    work(pool, seen, self->index);
  }
}

/* Makes a new epoch visible and wakes the sleeping workers. The increment of num_sleeping and the
 * store of the epoch are both sequentially consistent: either the owner sees the sleeper, or the
 * sleeper's futex call sees the new epoch. */
static void announce(pool_t *pool, uint32_t epoch) {
  atomic_store(&pool->epoch, epoch);
  if (atomic_load(&pool->num_sleeping)) futex_wake(&pool->epoch, pool->num_threads);
}

static void wait_done(pool_t *pool) {
  for (;;) {
    uint32_t left = atomic_load_explicit(&pool->remaining, memory_order_acquire);
    if (left == 0) return;
    if (spin_while(pool, &pool->remaining, left)) continue;
    atomic_store(&pool->owner_sleeps, 1);
    left = atomic_load(&pool->remaining);
    if (left != 0) futex_wait(&pool->remaining, left);
    atomic_store(&pool->owner_sleeps, 0);
  }
}

void pool_run(pool_t *pool, pool_task_t task, void *context, int64_t count, int64_t grain) {
  if (count <= 0) return;
  int64_t threads = pool->num_threads;
  int64_t most = threads * CHUNKS_PER_WORKER;
  int64_t units = DIV_UP(count, most);
  if (units < grain) units = grain;
  int64_t chunks = DIV_UP(count, units);
  if (threads == 1 || chunks == 1) {
    task(context, 0, count, 0);
    return;
  }
  uint32_t epoch = atomic_load_explicit(&pool->epoch, memory_order_relaxed) + 1;
  atomic_store_explicit(&pool->task, task, memory_order_relaxed);
  atomic_store_explicit(&pool->context, context, memory_order_relaxed);
  atomic_store_explicit(&pool->count, count, memory_order_relaxed);
  atomic_store_explicit(&pool->chunk_units, units, memory_order_relaxed);
  atomic_store_explicit(&pool->remaining, (uint32_t)chunks, memory_order_relaxed);
  for (int64_t i = 0; i < threads; i++) {
    uint64_t next = (uint64_t)(i * chunks / threads), end = (uint64_t)((i + 1) * chunks / threads);
    uint64_t word = (uint64_t)epoch << 32 | next << 16 | end;
    atomic_store_explicit(&pool->ranges[i].word, word, memory_order_release);
  }
  announce(pool, epoch);
  work(pool, epoch, 0);
  wait_done(pool);
}

pool_t *pool_new(int num_threads) {
  if (num_threads < 1 || num_threads > POOL_THREADS_MAX) return NULL;
  size_t count = (size_t)num_threads, range_bytes = count * sizeof(chunk_range_t);
  pool_t *pool =
      aligned_alloc(CACHE_LINE, (sizeof *pool + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE);
  if (pool == NULL) return NULL;
  memset((void *)pool, 0, sizeof *pool);
  pool->num_threads = num_threads;
  pool->spin = num_threads <= topology_num_cpus();
  pool->ranges = aligned_alloc(CACHE_LINE, range_bytes);
  pool->workers = calloc(count, sizeof *pool->workers);
  if (pool->ranges == NULL || pool->workers == NULL) {
    pool_free(pool);
    return NULL;
  }
  memset((void *)pool->ranges, 0, range_bytes);
  /* Workers block all signals but their own faults: the loop thread handles the others. */
  sigset_t others, before;
  fault_block_others(&others);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  int failed = 0;
  for (int i = 1; i < num_threads && !failed; i++) {
    worker_t *worker = &pool->workers[i];
    worker->pool = pool;
    worker->index = i;
    failed = pthread_create(&worker->thread, NULL, pool__worker, worker);
    if (failed) break;
    char name[16];
    snprintf(name, sizeof name, "cpu-%d", i);
    pthread_setname_np(worker->thread, name);
    pool->num_started++;
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (failed) {
    pool_free(pool);
    return NULL;
  }
  return pool;
}

int pool_num_threads(const pool_t *pool) {
  return pool->num_threads;
}

void pool_free(pool_t *pool) {
  if (pool == NULL) return;
  if (pool->num_started > 0) {
    atomic_store_explicit(&pool->stop, true, memory_order_release);
    announce(pool, atomic_load(&pool->epoch) + 1);
    for (int i = 1; i <= pool->num_started; i++) pthread_join(pool->workers[i].thread, NULL);
  }
  free(pool->workers);
  free((void *)pool->ranges);
  free((void *)pool);
}
