/* share.h: how much of the waiting queue each client has, and which client makes room if it is
 * full.
 *
 * The loop thread counts here the requests that wait, by client, before the engine has them. When
 * the queue is full, the newest waiting bundle of the client that has most makes room for a client
 * that has less (longest queue drop; Suter, Lakshman, Stiliadis, Choudhury 1998). So a client alone
 * may have every place, and a client below its share, which is the limit divided by the clients
 * that wait, is never refused because of another one.
 *
 * A bundle is what one call of engine_submit brings: the prompts of one HTTP request. It is dropped
 * as a whole, and only before a step with a row of it was committed: until then nothing of it can
 * have been sent. Both threads decide that by one atomic state of the bundle. All other fields
 * belong to the loop thread. Allocates in share_new only; O(log clients) for each request.
 */
#ifndef INFERD_ENGINE_SHARE_H
#define INFERD_ENGINE_SHARE_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct share share_t;

/* Memory for `num_slots` requests. Returns 0 or ERR_NO_MEMORY; the caller calls share_free. */
int share_new(int32_t num_slots, share_t **out, inferd_error_t *error);
void share_free(share_t *share); /* NULL is allowed */

/* ---- loop thread ---- */

/* What a client asks for. */
typedef struct share_ask {
  uint64_t client;
  int32_t num_requests; /* >= 1 */
  int64_t num_tokens;   /* of their prompts */
} share_ask_t;

typedef struct share_limits {
  int32_t num_requests;
  int64_t num_tokens; /* does not apply while no request waits: then any length may enter */
} share_limits_t;

/* Returns true if the queue can take the requests: it has room, or room can be made by clients that
 * have more than this one would then have. Changes nothing. */
bool share_has_room(const share_t *share, const share_ask_t *ask, const share_limits_t *limits);
/* Drops bundles until the queue has room, and calls `drop` for each request of theirs that waits.
 * Returns false if a bundle has begun in the meantime and the room no longer suffices. */
bool share_make_room(share_t *share, const share_ask_t *ask, const share_limits_t *limits,
                     void (*drop)(void *context, int32_t slot), void *context);
/* Adds a bundle: the request of slots[i] has a prompt of tokens[i] tokens. The slots are free. */
void share_add(share_t *share, uint64_t client, const int32_t *slots, const int32_t *tokens,
               int32_t count);
/* The request of the slot has begun or has ended, so it does not wait. A second call does nothing.
 */
void share_left(share_t *share, int32_t slot);
/* The request has ended and the slot becomes free. */
void share_give_back(share_t *share, int32_t slot);

typedef struct share_count {
  int32_t num_requests, num_clients;
  int64_t num_tokens;
} share_count_t;
share_count_t share_count(const share_t *share); /* of those that wait */

/* ---- engine thread, for a slot whose request it has received and not yet ended ---- */

/* A step with a row of the request is being committed. Returns false if its bundle was dropped:
 * then the request must end without an event but its EVENT_DONE. From true on it is not dropped. */
bool share_begin(share_t *share, int32_t slot);
/* Any thread: the bundle of the request was dropped. */
bool share_is_dropped(const share_t *share, int32_t slot);

#endif
