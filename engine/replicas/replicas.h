/* replicas.h: several engines that read one model in memory and serve one queue.
 *
 * The server knows the first of them, the leader, whose public functions act on all. Each replica
 * has a thread, a device with a share of the processors, a KV cache, a prefix cache and a scheduler
 * of its own. The leader loads weights, tokenizer and vocabulary, which never change; the others
 * wait for it and read them in place. What waits counts in one share_t, with one limit.
 */
#ifndef INFERD_ENGINE_REPLICAS_REPLICAS_H
#define INFERD_ENGINE_REPLICAS_REPLICAS_H

#include "engine/base/error.h"
#include "engine/request.h"

struct engine;
struct engine_options;

enum { REPLICAS_MAX = 16 };

typedef struct replicas {
  struct engine *all[REPLICAS_MAX];    /* [count] of the leader: all; of another: itself */
  int32_t count;                       /* >= 1 */
  int32_t index;                       /* of this one, in those of its leader */
  struct engine *leader;               /* NULL = this one is it */
  const struct device *device;         /* of the leader, once that is READY; else NULL */
  struct routes *routes[REPLICAS_MAX]; /* loop thread: of all, once the first request has come */
  /* Loop thread: uncached prompt tokens of the requests that wait here, by slot [num_groups], and
   * their sum; NULL with one replica. */
  int32_t *uncached;
  int64_t num_uncached;
  _Atomic uint64_t busy_since_ns; /* when this one, idle, got a request; 0 = it has none */
} replicas_t;

/* Gives back what this one holds as a replica: routes, and the share that is its leader's. */
void replicas_free(struct engine *engine);

/* Engine thread of each, before it opens its device. Takes its share of the processors. */
void replicas_take_processors(struct engine *engine);
/* The same: waits until the leader is READY, and takes its sizes. Returns 0, or why there will be
 * no leader. */
int replicas_await(struct engine *engine, inferd_error_t *error);
/* ERR_CONFIGURATION: what does not go with several replicas, once the device is open. */
int replicas_check(const struct engine *engine, inferd_error_t *error);
/* How many KV caches and workspaces the memory must hold, by the plan of this engine. */
int32_t replicas_planned(const struct engine *engine);

/* Loop thread: sets `replica` of each request: the one that has least to compute, the prompt
 * without what it has cached included; a full one only when all are. */
void replicas_choose(struct engine *leader, request_t *const *requests, int count);
/* Loop thread: a request waits in this replica; it waits no longer. */
void replicas_wait(struct engine *engine, const request_t *request);
void replicas_left(struct engine *engine, int32_t slot);
/* The number in share_t of a slot of this engine, and back: the engine of such a number. */
int32_t replicas_share_slot(const struct engine *engine, int32_t slot);
struct engine *replicas_of_share_slot(const struct engine *leader, int32_t *slot);
/* Any thread: the busy replica whose thread has counted no work for longest; the leader if all are
 * idle. */
const struct engine *replicas_slowest(const struct engine *leader);

#endif
