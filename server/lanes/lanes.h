/* lanes.h: the order in which jobs of requests get a thread: reading, tokenising, compiling.
 *
 * libuv's pool runs jobs first come, first served, so one client with many slow jobs would make all
 * other clients wait. A lane is a queue of jobs before that pool. It hands the pool a few jobs at a
 * time; the next job is one of the client that has used the least CPU time (start-time fair
 * queueing; Goyal, Vin, Cheng 1996). Jobs that may take long have a lane of their own, which never
 * gets the last thread of the pool and runs at most LANE_HEAVY_EACH jobs of a client at once.
 *
 * Loop thread, except `run`, which is called on a thread of the pool. Those threads run below the
 * normal priority, so that a CPU back end comes before them.
 */
#ifndef INFERD_SERVER_LANES_LANES_H
#define INFERD_SERVER_LANES_LANES_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

enum {
  LANE_THREADS = 4,       /* of libuv's pool; lanes_new overrides UV_THREADPOOL_SIZE */
  LANE_LIGHT_DEPTH = 4,   /* light jobs handed to the pool, for each thread */
  LANE_HEAVY_EACH = 2,    /* heavy jobs of one client that run at once */
  LANE_CLIENTS_MAX = 4096 /* clients without jobs whose use is remembered; their number is a bound
                             on memory alone */
};

typedef enum lane_kind { LANE_LIGHT, LANE_HEAVY, LANE_KINDS } lane_kind_t;

typedef struct lanes lanes_t;

/* A job; its owner embeds it, sets the first four members, and `aside_ns` in `run` if other
 * processes work for it, and keeps it until `done` was called or
 * lanes_withdraw has returned true. */
typedef struct lane_job {
  void (*run)(struct lane_job *job);
  void (*done)(struct lane_job *job); /* loop thread; may free the job, or submit it again */
  uint64_t client;                    /* exchange_t.source of the request */
  lane_kind_t kind;
  uint64_t aside_ns; /* CPU time of these processes; the client is charged for it */
  /* The rest belongs to lanes.c. */
  lanes_t *lanes;
  struct lane_client *owner;
  struct lane_job *next, *previous; /* of one client, while it waits */
  uv_work_t work;
  uint64_t cpu_ns;
  bool waiting;
} lane_job_t;

/* Returns NULL if memory is short; the caller calls lanes_free. The loop must outlive the lanes.
 * Call it before another thread runs and before libuv's pool has its first job, because it sets an
 * environment variable. */
lanes_t *lanes_new(uv_loop_t *loop);
/* Every job has ended or was withdrawn before. NULL is allowed. */
void lanes_free(lanes_t *lanes);

/* Queues a job. `done` may be called before this function returns: if memory is short, the job runs
 * on the calling thread. */
void lanes_submit(lanes_t *lanes, lane_job_t *job);
/* Takes back a job that still waits for a thread: it never runs, and `done` is not called. Returns
 * false if it runs already. */
bool lanes_withdraw(lane_job_t *job);

typedef struct lane_stats {
  int32_t waiting, running; /* jobs now; running: handed to the pool */
  uint64_t jobs, cpu_ns;    /* ended so far, and the CPU time that they took */
} lane_stats_t;
lane_stats_t lanes_stats(const lanes_t *lanes, lane_kind_t kind);

#endif
