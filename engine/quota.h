/* quota.h: how much of the waiting queue the requests of one API key may take, how much they have
 * taken, and their share of the engine.
 *
 * The owner of a request lends its quota with it (request_t.quota), from engine_submit to
 * EVENT_DONE. The loop thread sets the limits and raises the counts when it submits; the engine
 * lowers them when a request begins or ends, whichever comes first. So both counts are those of
 * requests of which no committed step had a row. Nothing here allocates.
 */
#ifndef INFERD_ENGINE_QUOTA_H
#define INFERD_ENGINE_QUOTA_H

#include "engine/base/error.h"

#include <stdatomic.h>
#include <stdint.h>

typedef struct quota {
  /* Loop thread only; 0 = no bound. */
  int32_t max_waiting;        /* requests */
  int64_t max_tokens_waiting; /* prompt tokens; any length may wait alone */
  /* For fair shares: a key of weight 2 gets twice as much as a key of weight 1. 0 means 1. The loop
   * thread sets the weight; a change applies to requests that come afterwards. */
  atomic_int weight;
  atomic_int max_running; /* sequences at a time, 0 = no bound; a request of more runs alone */
  atomic_int waiting;
  atomic_llong tokens_waiting;
} quota_t;

/* Loop thread: returns 0 if `count` requests with `tokens` prompt tokens may wait besides those
 * that wait now, or ERR_RATE_LIMITED. NULL has no limits. */
int quota_check(const quota_t *quota, int count, int64_t tokens, inferd_error_t *error);
/* Engine thread: the weight, >= 1. NULL has 1. */
uint32_t quota_weight(const quota_t *quota);
/* Engine thread: the limit of running sequences, 0 = none. NULL has none. */
int32_t quota_max_running(const quota_t *quota);
/* Loop thread: one request with `tokens` prompt tokens waits from now on. NULL is allowed. */
void quota_wait(quota_t *quota, int64_t tokens);
/* Engine thread: that request has begun or has ended. NULL is allowed. */
void quota_leave(quota_t *quota, int64_t tokens);

#endif
