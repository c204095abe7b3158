/* threads.h: the worker pool of the CPU back end.
 *
 * One owner (the engine thread) starts a run of `count` independent units; the owner is worker 0
 * and works too. Units are divided into contiguous chunks. Every worker owns a range of chunks; if
 * its range is empty, it steals single chunks from the back of other ranges. A run is over when
 * every chunk is done, so a worker that the kernel preempts delays only its current chunk. Idle
 * workers spin for a moment and then sleep in the kernel. Workers call nothing but the given task.
 */
#ifndef INFERD_ENGINE_CPU_THREADS_H
#define INFERD_ENGINE_CPU_THREADS_H

#include <stddef.h>
#include <stdint.h>

enum { POOL_THREADS_MAX = 1024 };

typedef struct pool pool_t;

/* Handles units [first, last). `worker` is 0..num_threads-1 and belongs to one thread at a time. */
typedef void (*pool_task_t)(void *context, int64_t first, int64_t last, int worker);

/* `num_threads` 1..POOL_THREADS_MAX, the owner included. NULL when a thread cannot be made. */
pool_t *pool_new(int num_threads);

/* Runs `task` over [0, count) and returns when all of it is done. `grain` >= 1 is the least number
 * of units worth a chunk; with one chunk or one thread the owner does the work alone. Everything
 * the task wrote is visible to the owner afterwards. Owner only; must not be called from a task. */
void pool_run(pool_t *pool, pool_task_t task, void *context, int64_t count, int64_t grain);

int pool_num_threads(const pool_t *pool);

/* Joins the workers. NULL is allowed. No run may be in progress. */
void pool_free(pool_t *pool);

#endif
