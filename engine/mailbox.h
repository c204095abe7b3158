/* mailbox.h: the bounded queues between the loop thread and the engine thread.
 *
 * Requests enter as pointers through one ring and cancels as slot numbers through another. Events
 * leave as records of variable size through a ring of bytes, and the slots of requests that wait no
 * longer through a ring of their own. Each ring has one writer and one reader, so none needs a
 * lock. The engine rewinds an empty event ring to its start. The loop's reading and the rewinding
 * exclude each other by the flag `ends_held`; neither waits for it, the thread that comes second
 * returns at once. The condition variable only serves an engine thread that has nothing to do.
 * Nothing is allocated after mailbox_new.
 */
#ifndef INFERD_ENGINE_MAILBOX_H
#define INFERD_ENGINE_MAILBOX_H

#include "engine/request.h"

#include <pthread.h>

typedef struct mailbox {
  /* loop -> engine */
  request_t **requests; /* [request_mask + 1], borrowed */
  uint32_t request_mask;
  _Alignas(64) atomic_uint request_head; /* written by the loop */
  _Alignas(64) atomic_uint request_tail; /* written by the engine */
  int32_t *cancels;                      /* [request_mask + 1] slots to be looked at */
  atomic_bool *cancel_waits;             /* [request_mask + 1] the slot stands in `cancels` */
  atomic_uint cancel_head;               /* written by the loop */
  atomic_uint cancel_tail;               /* written by the engine */
  /* engine -> loop */
  int32_t *lefts;                     /* [request_mask + 1] slots whose requests wait no longer */
  _Alignas(64) atomic_uint left_head; /* written by the engine */
  _Alignas(64) atomic_uint left_tail; /* written by the loop */
  unsigned char *events;              /* [event_mask + 1] bytes */
  size_t event_mask;
  _Alignas(64) atomic_size_t event_head; /* end of the published events; written by the engine */
  size_t event_write, event_read; /* engine thread only: end of the emitted events, and event_tail
                                   * when it was looked at last */
  _Alignas(64) atomic_size_t event_tail; /* written by the loop; by the engine when it rewinds */
  /* The engine thread sleeps here when it has nothing to do or no room for events. */
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  atomic_bool ends_held;   /* set by the loop while it reads, by the engine while it rewinds */
  atomic_bool room_wanted; /* the engine sleeps until events are read */
  bool wake_pending;       /* protected by mutex */
} mailbox_t;

/* Makes a mailbox for at most `requests_max` requests and `event_bytes` bytes of events; both are
 * rounded up to powers of two. Returns 0 or ERR_NO_MEMORY. The caller calls mailbox_free. */
int mailbox_new(uint32_t requests_max, size_t event_bytes, mailbox_t **out, inferd_error_t *error);
void mailbox_free(mailbox_t *mailbox);

/* Loop thread: adds a request. The ring must have room; engine_submit ensures it by counting the
 * live requests. */
void mailbox_post(mailbox_t *mailbox, request_t *request);
/* Engine thread: removes and returns the oldest request; NULL if there is none. */
request_t *mailbox_receive(mailbox_t *mailbox);
/* Engine thread: whether a request that is not by best effort has been posted and not received.
 * Looks at those before it, which are by best effort, each time. */
bool mailbox_has_others(const mailbox_t *mailbox);

/* Loop thread: asks the engine to look at the request of a slot, 0 <= slot < requests_max. A slot
 * that waits already is not added again, so the ring always has room. */
void mailbox_cancel(mailbox_t *mailbox, int32_t slot);
/* Engine thread: removes and returns the oldest slot; -1 if there is none. A cancel that comes
 * later adds the slot again. All requests that were posted before the cancel can be received. */
int32_t mailbox_cancelled(mailbox_t *mailbox);

/* Engine thread: tells the loop that the request of a slot has begun or ended, once for each
 * request and before its EVENT_DONE is published. */
void mailbox_leave(mailbox_t *mailbox, int32_t slot);
/* Loop thread: removes and returns the oldest slot; -1 if there is none. The loop must have removed
 * a slot before it gives the slot to another request. */
int32_t mailbox_left(mailbox_t *mailbox);

/* Engine thread: bytes that an event with so much text and so many alternatives takes. */
size_t mailbox_event_bytes(uint32_t text_length, int32_t num_top);
/* Engine thread: bytes of events that can be emitted now, before the loop reads any. */
size_t mailbox_room(const mailbox_t *mailbox);
/* Engine thread: copies the event, its text and, unless they are lent, its alternatives into the
 * ring. The ring must have room for it, also if it does not fit before the end of the ring. */
void mailbox_emit(mailbox_t *mailbox, const event_t *event);
/* The same for an EVENT_TOKEN of a request of one choice that wants no logprobs. Its record is
 * short. The caller writes the fields of the token that is returned before mailbox_publish. They
 * are not copied from elsewhere: a copy would wait until all stores before it have ended. */
typedef struct token_text {
  request_t *request;
  int32_t token_id, position, num_cached_tokens, num_floor_tokens;
} token_text_t;
token_text_t *mailbox_emit_text(mailbox_t *mailbox, const char *text, uint32_t length);
/* Engine thread: makes the emitted events visible to the loop. Called after a step is committed, so
 * the last token of a request and its EVENT_DONE always arrive together. Returns false if there is
 * no new event. */
bool mailbox_publish(mailbox_t *mailbox);
/* Loop thread: calls `handle` for every published event, in order; returns how many. The event and
 * its pointers are valid during the call only. `handle` must not call mailbox_drain. */
int mailbox_drain(mailbox_t *mailbox, void (*handle)(void *context, const event_t *event),
                  void *context);

/* Any thread: wakes the engine thread if it sleeps, and else makes its next sleep end at once. */
void mailbox_wake(mailbox_t *mailbox);
/* Engine thread: sleeps until mailbox_wake is called or `timeout_ms` have passed. A mailbox_wake
 * since the last sleep ends it at once, so no wake-up is lost. */
void mailbox_sleep(mailbox_t *mailbox, int timeout_ms);
/* Engine thread: asks that the next mailbox_drain which reads an event wakes the engine. */
void mailbox_want_room(mailbox_t *mailbox);

#endif
