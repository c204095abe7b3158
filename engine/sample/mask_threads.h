/* mask_threads.h: threads that make masks while the engine thread does other work.
 *
 * A job is the walk of one mask (masks.h). It belongs to the engine thread, except from
 * mask_threads_post on until its state is MASK_DONE or one of the other functions has given it
 * back. While it is away, nothing may touch its matcher, walk and row. The threads work in slices;
 * between two of them they see that a job was dropped, and jobs that take long let others pass.
 * They write to nothing that jobs share, and they never touch the cache of masks. The functions are
 * for the engine thread; none allocates after mask_threads_new.
 */
#ifndef INFERD_ENGINE_SAMPLE_MASK_THREADS_H
#define INFERD_ENGINE_SAMPLE_MASK_THREADS_H

#include "engine/grammar/mask/masks.h"

typedef enum mask_job_state {
  MASK_HERE,   /* the engine thread has it */
  MASK_QUEUED, /* no thread has begun a slice of it, or none since its last slice */
  MASK_RUNNING,
  MASK_DONE /* the walk is complete, or has cost more than units_max; the engine thread has it */
} mask_job_state_t;

typedef struct mask_job {
  grammar_matcher_t *matcher;
  uint32_t *row;
  grammar_walk_t walk;
  uint64_t units_max; /* of the walk: the job ends when it has cost more, complete or not */
  int code;           /* when it is done: 0, or GRAMMAR_LATER if the walk is not complete */
  uint64_t ns;        /* time that the threads spent on it since it was posted */
  void *context;      /* of the engine thread */
  /* Of mask_threads.c, under its lock. */
  mask_job_state_t state;
  bool urgent;             /* this step waits for it */
  struct grammar *kept;    /* dropped while a thread ran it: what it reads until that slice ends */
  struct mask_job *before; /* in its queue */
  struct mask_job *next;   /* in its queue, or in the list of those that were dropped */
} mask_job_t;

typedef struct mask_threads mask_threads_t;

/* Threads for a machine of so many processors, if none are given: one for four, at most 8. */
int32_t mask_threads_default(int num_cpus);
/* Starts `count` >= 1 threads. A thread calls wake(context) when it has ended a job that no step
 * waits for. Returns 0 or ERR_NO_MEMORY. */
int mask_threads_new(int32_t count, void (*wake)(void *context), void *context,
                     mask_threads_t **out, inferd_error_t *error);
/* Ends the threads, within a slice each. Jobs that they had are as they stand. NULL is allowed. */
void mask_threads_free(mask_threads_t *threads);

/* Gives away a job whose walk is zeroed or has stopped. urgent: a step waits for it, so it comes
 * before others, for its first slice. */
void mask_threads_post(mask_threads_t *threads, mask_job_t *job, bool urgent);
mask_job_state_t mask_threads_state(mask_threads_t *threads, const mask_job_t *job);
/* Takes back a job that is queued or done. Returns false if a thread is running it. */
bool mask_threads_take(mask_threads_t *threads, mask_job_t *job);
/* Takes back the job that a thread would begin next, or only if it is urgent; NULL = none is left.
 */
mask_job_t *mask_threads_take_next(mask_threads_t *threads, bool only_urgent);
/* Waits until no job is urgent, but not longer than `timeout_ns`. */
void mask_threads_wait(mask_threads_t *threads, uint64_t timeout_ns);
/* The result is not wanted any more. Returns true if the engine thread has the job back; false if a
 * thread still runs it: it keeps `grammar` alive itself, and gives the job to
 * mask_threads_dropped. */
bool mask_threads_drop(mask_threads_t *threads, mask_job_t *job, struct grammar *grammar);
/* A job that was dropped and that no thread runs any more; NULL = there is none. At most as many as
 * there are threads are still run at any time. */
mask_job_t *mask_threads_dropped(mask_threads_t *threads);

#endif
