/* lanes.c: jobs of requests -> threads of libuv's pool, fair between clients.
 *
 * Loop thread. A lane is a heap of the clients that have a job waiting, ordered by the CPU time
 * that they have used. A client that comes new begins at the time of the lane, which is the time of
 * the client that was chosen last: the new client owes nothing, and it has nothing saved up.
 */
#include "engine/base/util.h" /* before uv.h, which brings a MIN of its own */

#include "server/lanes/lanes.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/fault.h"
#include "engine/base/hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

enum {
  BUCKETS = 1024,
  NICE = 5,              /* priority of the pool's threads, as of nice(2) */
  FIRST_COST_NS = 100000 /* charged when a job starts; its CPU time replaces it at the end */
};

typedef struct lane_client {
  uint64_t id;
  uint64_t used_ns;              /* virtual: CPU time on the scale of the lane */
  uint64_t order;                /* of the last arrival in the heap; breaks ties */
  lane_job_t *first, *last;      /* jobs that wait, oldest first */
  int32_t running, place;        /* place in the heap; -1: not in it */
  struct lane_client *same_hash; /* of its bucket */
} lane_client_t;

typedef struct lane {
  lane_client_t *buckets[BUCKETS];
  lane_client_t **heap;          /* [capacity] */
  int32_t clients;               /* in the buckets */
  int32_t waiting_clients;       /* in the heap */
  int32_t capacity;              /* of the heap */
  int32_t running_max, each_max; /* jobs at once: of the lane, of one client */
  uint64_t now_ns, highest_ns;   /* virtual time: of the client chosen last, the highest used_ns */
  uint64_t arrivals;             /* in the heap so far */
  lane_stats_t stats;
} lane_t;

struct lanes {
  uv_loop_t *loop;
  lane_t lane[LANE_KINDS];
};

/* ---- the heap of a lane: the client that has used the least is at 0 ---- */

static bool before(const lane_client_t *left, const lane_client_t *right) {
  if (left->used_ns != right->used_ns) return left->used_ns < right->used_ns;
  return left->order < right->order;
}

static void place_at(lane_t *lane, lane_client_t *client, int32_t place) {
  lane->heap[place] = client;
  client->place = place;
}

/* Moves a client whose time has changed to its place. */
static void sift(lane_t *lane, lane_client_t *client) {
  int32_t at = client->place;
  while (at > 0 && before(client, lane->heap[(at - 1) / 2])) {
    place_at(lane, lane->heap[(at - 1) / 2], at);
    at = (at - 1) / 2;
  }
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= lane->waiting_clients) break;
    if (child + 1 < lane->waiting_clients && before(lane->heap[child + 1], lane->heap[child])) {
      child++;
    }
    if (!before(lane->heap[child], client)) break;
    place_at(lane, lane->heap[child], at);
    at = child;
  }
  place_at(lane, client, at);
}

/* Puts a client into the heap if it has a job that may run. */
static void heap_add(lane_t *lane, lane_client_t *client) {
  if (client->place >= 0 || client->first == NULL || client->running >= lane->each_max) return;
  client->order = ++lane->arrivals;
  client->place = lane->waiting_clients++;
  sift(lane, client);
}

static void heap_remove(lane_t *lane, lane_client_t *client) {
  int32_t place = client->place;
  if (place < 0) return;
  client->place = -1;
  lane_client_t *last = lane->heap[--lane->waiting_clients];
  if (last == client) return;
  last->place = place;
  sift(lane, last);
}

/* ---- clients ---- */

static bool is_idle(const lane_client_t *client) {
  return client->first == NULL && client->running == 0;
}

/* Frees the clients without jobs that begin at the time of the lane anyway, or all without jobs. */
static void forget_clients(lane_t *lane, bool all) {
  for (int i = 0; i < BUCKETS; i++) {
    lane_client_t **at = &lane->buckets[i];
    while (*at != NULL) {
      lane_client_t *client = *at;
      if (!is_idle(client) || (!all && client->used_ns > lane->now_ns)) {
        at = &client->same_hash;
        continue;
      }
      *at = client->same_hash;
      free(client);
      lane->clients--;
    }
  }
}

/* Makes room in the heap for one more client. Returns false if memory is short. */
static bool heap_grow(lane_t *lane) {
  if (lane->clients < lane->capacity) return true;
  int32_t capacity = MAX(64, 2 * lane->capacity);
  lane_client_t **heap = reallocarray(lane->heap, (size_t)capacity, sizeof *heap);
  if (heap == NULL) return false;
  lane->heap = heap;
  lane->capacity = capacity;
  return true;
}

/* Returns the client of an id, or NULL if memory is short. */
static lane_client_t *client_of(lane_t *lane, uint64_t id) {
  lane_client_t **bucket = &lane->buckets[hash_mix(id) % BUCKETS];
  lane_client_t *client = *bucket;
  while (client != NULL && client->id != id) client = client->same_hash;
  if (client == NULL) {
    if (lane->clients >= LANE_CLIENTS_MAX) {
      forget_clients(lane, false);
      if (lane->clients >= LANE_CLIENTS_MAX) forget_clients(lane, true);
      bucket = &lane->buckets[hash_mix(id) % BUCKETS];
    }
    client = heap_grow(lane) ? calloc(1, sizeof *client) : NULL;
    if (client == NULL) return NULL;
    *client = (lane_client_t){.id = id, .place = -1, .same_hash = *bucket};
    *bucket = client;
    lane->clients++;
  }
  if (is_idle(client)) client->used_ns = MAX(client->used_ns, lane->now_ns);
  return client;
}

/* Sets what a client has used, and its place in the heap. */
static void charge(lane_t *lane, lane_client_t *client, uint64_t used_ns) {
  client->used_ns = used_ns;
  lane->highest_ns = MAX(lane->highest_ns, used_ns);
  if (client->place >= 0) sift(lane, client);
}

/* ---- jobs ---- */

static void unlink_job(lane_t *lane, lane_job_t *job) {
  lane_client_t *client = job->owner;
  *(job->previous != NULL ? &job->previous->next : &client->first) = job->next;
  *(job->next != NULL ? &job->next->previous : &client->last) = job->previous;
  job->next = job->previous = NULL;
  job->waiting = false;
  lane->stats.waiting--;
  if (client->first == NULL) heap_remove(lane, client);
}

/* On a thread of the pool. */
static void run_job(lane_job_t *job) {
  uint64_t begin_ns = clock_thread_ns();
  job->run(job);
  job->cpu_ns = clock_thread_ns() - begin_ns;
}

static void run_in_pool(uv_work_t *work) {
  static _Thread_local bool is_nice;
  fault_stack_use();
  if (!is_nice) (void)setpriority(PRIO_PROCESS, 0, NICE); /* on Linux: this thread alone */
  is_nice = true;
  run_job(work->data);
}

static void start_jobs(lanes_t *lanes);

static void end_job(lane_job_t *job) {
  lanes_t *lanes = job->lanes;
  lane_t *lane = &lanes->lane[job->kind];
  lane_client_t *client = job->owner;
  lane->stats.running--;
  lane->stats.jobs++;
  lane->stats.cpu_ns += job->cpu_ns;
  client->running--;
  charge(lane, client, client->used_ns + job->cpu_ns - MIN(client->used_ns, FIRST_COST_NS));
  heap_add(lane, client);
  /* A lane without work begins anew: no client waits that could gain by the old use of another. */
  if (lane->stats.running == 0 && lane->stats.waiting == 0) lane->now_ns = lane->highest_ns;
  start_jobs(lanes);
  job->done(job);
}

static void after_pool(uv_work_t *work, int status) {
  (void)status; /* uv_cancel is never called */
  end_job(work->data);
}

/* Hands the pool the oldest job of a client. */
static void start_job(lanes_t *lanes, lane_t *lane, lane_client_t *client) {
  lane_job_t *job = client->first;
  lane->now_ns = MAX(lane->now_ns, client->used_ns);
  unlink_job(lane, job);
  lane->stats.running++;
  client->running++;
  if (client->running >= lane->each_max) heap_remove(lane, client);
  charge(lane, client, client->used_ns + FIRST_COST_NS);
  if (uv_queue_work(lanes->loop, &job->work, run_in_pool, after_pool) == 0) return;
  run_job(job);
  end_job(job);
}

static void start_jobs(lanes_t *lanes) {
  for (int kind = 0; kind < LANE_KINDS; kind++) {
    lane_t *lane = &lanes->lane[kind];
    while (lane->waiting_clients > 0 && lane->stats.running < lane->running_max) {
      start_job(lanes, lane, lane->heap[0]);
    }
  }
}

/* ---- entry points ---- */

void lanes_submit(lanes_t *lanes, lane_job_t *job) {
  lane_t *lane = &lanes->lane[job->kind];
  lane_client_t *client = client_of(lane, job->client);
  job->lanes = lanes;
  job->work.data = job;
  if (client == NULL) {
    job->run(job);
    job->done(job);
    return;
  }
  job->owner = client;
  job->waiting = true;
  job->next = NULL;
  job->previous = client->last;
  *(client->last != NULL ? &client->last->next : &client->first) = job;
  client->last = job;
  lane->stats.waiting++;
  heap_add(lane, client);
  start_jobs(lanes);
}

bool lanes_withdraw(lane_job_t *job) {
  if (!job->waiting) return false;
  unlink_job(&job->lanes->lane[job->kind], job);
  return true;
}

lanes_t *lanes_new(uv_loop_t *loop) {
  lanes_t *lanes = calloc(1, sizeof *lanes);
  if (lanes == NULL) return NULL;
  /* With another size of the pool heavy jobs could take its last thread. libuv reads the variable
   * when the first job comes. */
  char threads[12];
  snprintf(threads, sizeof threads, "%d", LANE_THREADS);
  (void)setenv("UV_THREADPOOL_SIZE", threads, 1);
  lanes->loop = loop;
  lane_t *light = &lanes->lane[LANE_LIGHT], *heavy = &lanes->lane[LANE_HEAVY];
  light->running_max = light->each_max = LANE_THREADS * LANE_LIGHT_DEPTH;
  heavy->running_max = LANE_THREADS - 1;
  heavy->each_max = LANE_HEAVY_EACH;
  return lanes;
}

void lanes_free(lanes_t *lanes) {
  if (lanes == NULL) return;
  for (int kind = 0; kind < LANE_KINDS; kind++) {
    lane_t *lane = &lanes->lane[kind];
    CHECK_EQ(lane->stats.waiting + lane->stats.running, 0);
    forget_clients(lane, true);
    free(lane->heap);
  }
  free(lanes);
}

lane_stats_t lanes_stats(const lanes_t *lanes, lane_kind_t kind) {
  return lanes->lane[kind].stats;
}
