/* lanes.c: jobs of requests -> threads of libuv's pool, fair between clients.
 *
 * Loop thread. A lane is a heap of the clients that have a job waiting, ordered by the CPU time
 * that they have used. A client that comes new begins at the time of the lane, which is the time of
 * the client that was chosen last: the new client owes nothing, and it has nothing saved up.
 * Clients without jobs stand in a second heap; when there are too many clients, the one that has
 * used the least of them is forgotten.
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
  NICE = 10,             /* priority of the pool's threads, as of nice(2) */
  FIRST_COST_NS = 100000 /* charged when a job starts; its CPU time replaces it at the end */
};

typedef struct lane_client {
  uint64_t id;
  uint64_t used_ns;         /* virtual: CPU time on the scale of the lane */
  uint64_t order;           /* of the last arrival in a heap; breaks ties */
  lane_job_t *first, *last; /* jobs that wait, oldest first */
  int32_t running;
  struct heap *heap;             /* NULL = in none */
  int32_t place;                 /* in it */
  struct lane_client *same_hash; /* of its bucket */
} lane_client_t;

/* The client that has used the least is at 0. */
typedef struct heap {
  lane_client_t **at; /* [lane->capacity] */
  int32_t count;
} heap_t;

typedef struct lane {
  lane_client_t *buckets[BUCKETS];
  heap_t ready;                  /* clients with a job that may run */
  heap_t idle;                   /* clients without jobs */
  int32_t clients;               /* in the buckets */
  int32_t capacity;              /* of the heaps */
  int32_t running_max, each_max; /* jobs at once: of the lane, of one client */
  uint64_t now_ns, highest_ns;   /* virtual time: of the client chosen last, the highest used_ns */
  uint64_t arrivals;             /* in the heaps so far */
  lane_stats_t stats;
} lane_t;

struct lanes {
  uv_loop_t *loop;
  lane_t lane[LANE_KINDS];
};

/* ---- heaps ---- */

static bool before(const lane_client_t *left, const lane_client_t *right) {
  if (left->used_ns != right->used_ns) return left->used_ns < right->used_ns;
  return left->order < right->order;
}

static void place_at(heap_t *heap, lane_client_t *client, int32_t place) {
  heap->at[place] = client;
  client->place = place;
}

/* Moves a client whose time has changed to its place. */
static void sift(lane_client_t *client) {
  heap_t *heap = client->heap;
  int32_t at = client->place;
  while (at > 0 && before(client, heap->at[(at - 1) / 2])) {
    place_at(heap, heap->at[(at - 1) / 2], at);
    at = (at - 1) / 2;
  }
  for (;;) {
    int32_t child = 2 * at + 1;
    if (child >= heap->count) break;
    if (child + 1 < heap->count && before(heap->at[child + 1], heap->at[child])) child++;
    if (!before(heap->at[child], client)) break;
    place_at(heap, heap->at[child], at);
    at = child;
  }
  place_at(heap, client, at);
}

static void heap_remove(lane_client_t *client) {
  heap_t *heap = client->heap;
  lane_client_t *last = heap->at[--heap->count];
  client->heap = NULL;
  if (last == client) return;
  last->place = client->place;
  sift(last);
}

static bool is_idle(const lane_client_t *client) {
  return client->first == NULL && client->running == 0;
}

/* Moves a client to the heap where it belongs, or out of both. */
static void settle(lane_t *lane, lane_client_t *client) {
  bool is_ready = client->first != NULL && client->running < lane->each_max;
  heap_t *heap = is_ready ? &lane->ready : is_idle(client) ? &lane->idle : NULL;
  if (client->heap == heap) return;
  if (client->heap != NULL) heap_remove(client);
  if (heap == NULL) return;
  client->order = ++lane->arrivals;
  client->heap = heap;
  client->place = heap->count++;
  sift(client);
}

/* ---- clients ---- */

static lane_client_t **bucket_of(lane_t *lane, uint64_t id) {
  return &lane->buckets[hash_mix(id) % BUCKETS];
}

/* Frees the idle client that has used the least. */
static void forget_client(lane_t *lane) {
  lane_client_t *client = lane->idle.at[0], **link = bucket_of(lane, client->id);
  heap_remove(client);
  while (*link != client) link = &(*link)->same_hash;
  *link = client->same_hash;
  free(client);
  lane->clients--;
}

/* Makes room in the heaps for one more client. Returns false if memory is short. */
static bool heaps_grow(lane_t *lane) {
  if (lane->clients < lane->capacity) return true;
  size_t capacity = (size_t)MAX(64, 2 * lane->capacity);
  heap_t *heaps[] = {&lane->ready, &lane->idle};
  for (size_t i = 0; i < ARRAY_LEN(heaps); i++) {
    lane_client_t **at = reallocarray(heaps[i]->at, capacity, sizeof *at);
    if (at == NULL) return false;
    heaps[i]->at = at;
  }
  lane->capacity = (int32_t)capacity;
  return true;
}

/* Returns the client of an id, or NULL if memory is short. */
static lane_client_t *client_of(lane_t *lane, uint64_t id) {
  lane_client_t **bucket = bucket_of(lane, id), *client = *bucket;
  while (client != NULL && client->id != id) client = client->same_hash;
  if (client == NULL) {
    if (lane->clients >= LANE_CLIENTS_MAX && lane->idle.count > 0) forget_client(lane);
    client = heaps_grow(lane) ? calloc(1, sizeof *client) : NULL;
    if (client == NULL) return NULL;
    *client = (lane_client_t){.id = id, .same_hash = *bucket};
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
  if (client->heap != NULL) sift(client);
}

/* ---- jobs ---- */

static void unlink_job(lane_t *lane, lane_job_t *job) {
  lane_client_t *client = job->owner;
  *(job->previous != NULL ? &job->previous->next : &client->first) = job->next;
  *(job->next != NULL ? &job->next->previous : &client->last) = job->previous;
  job->next = job->previous = NULL;
  job->waiting = false;
  lane->stats.waiting--;
  settle(lane, client);
}

/* On a thread of the pool. */
static void run_job(lane_job_t *job) {
  uint64_t begin_ns = clock_thread_ns();
  job->aside_ns = 0;
  job->run(job);
  job->cpu_ns = clock_thread_ns() - begin_ns + job->aside_ns;
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
  settle(lane, client);
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
  lane->stats.running++;
  client->running++;
  unlink_job(lane, job);
  charge(lane, client, client->used_ns + FIRST_COST_NS);
  if (uv_queue_work(lanes->loop, &job->work, run_in_pool, after_pool) == 0) return;
  run_job(job);
  end_job(job);
}

static void start_jobs(lanes_t *lanes) {
  for (int kind = 0; kind < LANE_KINDS; kind++) {
    lane_t *lane = &lanes->lane[kind];
    while (lane->ready.count > 0 && lane->stats.running < lane->running_max) {
      start_job(lanes, lane, lane->ready.at[0]);
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
  settle(lane, client);
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
    while (lane->idle.count > 0) forget_client(lane);
    CHECK_EQ(lane->clients, 0);
    free(lane->ready.at);
    free(lane->idle.at);
  }
  free(lanes);
}

lane_stats_t lanes_stats(const lanes_t *lanes, lane_kind_t kind) {
  return lanes->lane[kind].stats;
}
