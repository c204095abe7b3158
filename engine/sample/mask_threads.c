/* mask_threads.c: threads that make masks, and the two queues of their jobs.
 *
 * One mutex protects the queues and the states of jobs. It is held for a few instructions, never
 * during a slice. Urgent jobs come first; one that is not done after a slice is urgent no longer
 * and waits behind the others, so that each slow grammar gets the same.
 */
#include "engine/sample/mask_threads.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/util.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum {
  SLICE_UNITS = 50000, /* a fraction of a millisecond */
  CPUS_PER_THREAD = 4, /* the others compute */
  DEFAULT_MAX = 8,
  NICE = 10 /* of nice(2): on a CPU the model's own threads go first */
};

typedef struct job_queue {
  mask_job_t *head, *tail;
} job_queue_t;

struct mask_threads {
  pthread_mutex_t mutex;
  pthread_cond_t posted; /* the threads wait here */
  pthread_cond_t made;   /* the engine thread waits here until num_urgent is 0 */
  job_queue_t urgent, others;
  int32_t num_urgent; /* urgent jobs, queued or running */
  bool engine_waits, stop;
  mask_job_t *dropped;
  void (*wake)(void *context);
  void *context;
  int32_t num_started;
  struct mask_thread *each; /* [num_started] */
};

typedef struct mask_thread {
  mask_threads_t *threads;
  grammar_scratch_t *scratch;
  pthread_t id;
} mask_thread_t;

int32_t mask_threads_default(int num_cpus) {
  return MIN(num_cpus / CPUS_PER_THREAD, DEFAULT_MAX);
}

/* ---- queues ---- */

static void push(job_queue_t *queue, mask_job_t *job) {
  job->before = queue->tail;
  job->next = NULL;
  if (queue->head == NULL) queue->head = job;
  if (queue->tail != NULL) queue->tail->next = job;
  queue->tail = job;
}

static void unlink_job(job_queue_t *queue, const mask_job_t *job) {
  if (job->before != NULL) job->before->next = job->next;
  if (job->next != NULL) job->next->before = job->before;
  if (queue->head == job) queue->head = job->next;
  if (queue->tail == job) queue->tail = job->before;
}

static mask_job_t *pop(job_queue_t *queue) {
  mask_job_t *job = queue->head;
  if (job != NULL) unlink_job(queue, job);
  return job;
}

/* ---- the threads; the lock is held unless a comment says otherwise ---- */

static void urgent_no_longer(mask_threads_t *threads, mask_job_t *job) {
  if (!job->urgent) return;
  job->urgent = false;
  threads->num_urgent--;
  if (threads->num_urgent == 0 && threads->engine_waits) pthread_cond_signal(&threads->made);
}

/* Without the lock: one slice of a job that this thread has. Returns its end as job->code. */
static int run_slice(mask_job_t *job, grammar_scratch_t *scratch) {
  uint64_t begin_ns = clock_now_ns();
  int code = grammar_walk_on(job->matcher, scratch, &job->walk, SLICE_UNITS, job->row);
  job->ns += clock_now_ns() - begin_ns;
  return code;
}

/* Decides what becomes of a job after a slice. Returns true if the engine thread must be woken. */
static bool after_slice(mask_threads_t *threads, mask_job_t *job, int code) {
  bool was_urgent = job->urgent;
  urgent_no_longer(threads, job);
  if (job->kept != NULL) {
    job->kept = NULL;
    job->next = threads->dropped;
    threads->dropped = job;
  } else if (code == GRAMMAR_LATER && job->walk.units <= job->units_max) {
    job->state = MASK_QUEUED;
    push(&threads->others, job);
  } else {
    job->code = code;
    job->state = MASK_DONE;
    return !was_urgent;
  }
  return false;
}

static void *run(void *argument) {
  const mask_thread_t *self = argument;
  mask_threads_t *threads = self->threads;
  fault_stack_use();
  (void)setpriority(PRIO_PROCESS, 0, NICE); /* on Linux: this thread alone */
  pthread_mutex_lock(&threads->mutex);
  while (!threads->stop) {
    mask_job_t *job = pop(&threads->urgent);
    if (job == NULL) job = pop(&threads->others);
    if (job == NULL) {
      pthread_cond_wait(&threads->posted, &threads->mutex);
      continue;
    }
    job->state = MASK_RUNNING;
    pthread_mutex_unlock(&threads->mutex);
    int code = run_slice(job, self->scratch);
    pthread_mutex_lock(&threads->mutex);
    grammar_t *kept = job->kept;
    bool wakes = after_slice(threads, job, code);
    pthread_mutex_unlock(&threads->mutex);
    grammar_unref(kept);
    if (wakes) threads->wake(threads->context);
    pthread_mutex_lock(&threads->mutex);
  }
  pthread_mutex_unlock(&threads->mutex);
  return NULL;
}

/* ---- life cycle ---- */

static int start(mask_threads_t *threads, int32_t count, inferd_error_t *error) {
  for (; threads->num_started < count; threads->num_started++) {
    mask_thread_t *thread = &threads->each[threads->num_started];
    thread->threads = threads;
    thread->scratch = calloc(1, grammar_scratch_bytes());
    int number = thread->scratch != NULL ? pthread_create(&thread->id, NULL, run, thread) : ENOMEM;
    if (number == 0) {
      pthread_setname_np(thread->id, "mask");
      continue;
    }
    free(thread->scratch);
    return error_set(error, ERR_NO_MEMORY, NULL, "thread %d of %d for masks does not start: %s",
                     threads->num_started + 1, count, strerror(number));
  }
  return 0;
}

int mask_threads_new(int32_t count, void (*wake)(void *context), void *context,
                     mask_threads_t **out, inferd_error_t *error) {
  mask_threads_t *threads = calloc(1, sizeof *threads);
  if (threads != NULL) threads->each = calloc((size_t)count, sizeof *threads->each);
  if (threads == NULL || threads->each == NULL) {
    free(threads);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for %d threads for masks", count);
  }
  threads->wake = wake;
  threads->context = context;
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&threads->mutex, NULL);
  pthread_cond_init(&threads->posted, NULL);
  pthread_cond_init(&threads->made, &attributes);
  pthread_condattr_destroy(&attributes);
  int code = start(threads, count, error);
  if (code) {
    mask_threads_free(threads);
    return code;
  }
  *out = threads;
  return 0;
}

void mask_threads_free(mask_threads_t *threads) {
  if (threads == NULL) return;
  pthread_mutex_lock(&threads->mutex);
  threads->stop = true;
  pthread_cond_broadcast(&threads->posted);
  pthread_mutex_unlock(&threads->mutex);
  for (int32_t i = 0; i < threads->num_started; i++) {
    pthread_join(threads->each[i].id, NULL);
    free(threads->each[i].scratch);
  }
  pthread_cond_destroy(&threads->made);
  pthread_cond_destroy(&threads->posted);
  pthread_mutex_destroy(&threads->mutex);
  free(threads->each);
  free(threads);
}

/* ---- the engine thread ---- */

void mask_threads_post(mask_threads_t *threads, mask_job_t *job, bool urgent) {
  job->ns = 0;
  pthread_mutex_lock(&threads->mutex);
  CHECK_EQ(job->state, MASK_HERE);
  job->state = MASK_QUEUED;
  job->urgent = urgent;
  threads->num_urgent += urgent;
  push(urgent ? &threads->urgent : &threads->others, job);
  pthread_mutex_unlock(&threads->mutex);
  pthread_cond_signal(&threads->posted);
}

mask_job_state_t mask_threads_state(mask_threads_t *threads, const mask_job_t *job) {
  pthread_mutex_lock(&threads->mutex);
  mask_job_state_t state = job->state;
  pthread_mutex_unlock(&threads->mutex);
  return state;
}

/* Takes a job out of its queue, or a result. */
static void take_back(mask_threads_t *threads, mask_job_t *job) {
  if (job->state == MASK_QUEUED) unlink_job(job->urgent ? &threads->urgent : &threads->others, job);
  urgent_no_longer(threads, job);
  job->state = MASK_HERE;
}

bool mask_threads_take(mask_threads_t *threads, mask_job_t *job) {
  pthread_mutex_lock(&threads->mutex);
  bool taken = job->state != MASK_RUNNING;
  if (taken) take_back(threads, job);
  pthread_mutex_unlock(&threads->mutex);
  return taken;
}

mask_job_t *mask_threads_take_next(mask_threads_t *threads, bool only_urgent) {
  pthread_mutex_lock(&threads->mutex);
  mask_job_t *job = threads->urgent.head;
  if (job == NULL && !only_urgent) job = threads->others.head;
  if (job != NULL) take_back(threads, job);
  pthread_mutex_unlock(&threads->mutex);
  return job;
}

void mask_threads_wait(mask_threads_t *threads, uint64_t timeout_ns) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  timeout_ns += (uint64_t)until.tv_nsec;
  until.tv_sec += (time_t)(timeout_ns / 1000000000);
  until.tv_nsec = (long)(timeout_ns % 1000000000);
  pthread_mutex_lock(&threads->mutex);
  threads->engine_waits = true;
  while (threads->num_urgent > 0 &&
         pthread_cond_timedwait(&threads->made, &threads->mutex, &until) == 0) {
  }
  threads->engine_waits = false;
  pthread_mutex_unlock(&threads->mutex);
}

bool mask_threads_drop(mask_threads_t *threads, mask_job_t *job, grammar_t *grammar) {
  pthread_mutex_lock(&threads->mutex);
  bool here = job->state != MASK_RUNNING;
  if (here) take_back(threads, job);
  if (!here) job->kept = grammar_ref(grammar);
  pthread_mutex_unlock(&threads->mutex);
  return here;
}

mask_job_t *mask_threads_dropped(mask_threads_t *threads) {
  pthread_mutex_lock(&threads->mutex);
  mask_job_t *job = threads->dropped;
  if (job != NULL) {
    threads->dropped = job->next;
    job->state = MASK_HERE;
  }
  pthread_mutex_unlock(&threads->mutex);
  return job;
}
