/* mailbox.h: the two bounded queues where the loop thread and the engine thread meet.
 *
 * Requests go in by pointer through a ring; events come out as variable-size records in a ring of
 * bytes. Each ring has one writer and one reader, so neither needs a lock; an empty event ring
 * begins again at its start, for which either end takes `ends_held` and nobody waits. The condition
 * variable is only for a thread that has nothing to do. Nothing is allocated after mailbox_new.
 */
#ifndef INFERD_ENGINE_MAILBOX_H
#define INFERD_ENGINE_MAILBOX_H

#include "engine/request.h"

#include <pthread.h>

typedef struct mailbox {
  /* loop -> engine */
  request_t **requests;
  uint32_t request_mask;
  _Alignas(64) atomic_uint request_head; /* written by the loop */
  _Alignas(64) atomic_uint request_tail; /* written by the engine */
  /* engine -> loop */
  unsigned char *events;
  size_t event_mask;
  _Alignas(64) atomic_size_t event_head; /* written by the engine */
  size_t event_write;                    /* engine's own: emitted and not yet published */
  _Alignas(64) atomic_size_t event_tail; /* written by the loop */
  /* an engine that has nothing to do, or no room for events, sleeps here */
  pthread_mutex_t mutex;
  pthread_cond_t condition;
  atomic_bool ends_held;   /* by the loop while it reads, by the engine while it rewinds */
  atomic_bool room_wanted; /* the engine waits until events are read */
  bool wake_pending;       /* under mutex */
} mailbox_t;

/* `requests_max` requests and `event_bytes` bytes of events at most; both are rounded up to powers
 * of two. 0 or ERR_NO_MEMORY. */
int mailbox_new(uint32_t requests_max, size_t event_bytes, mailbox_t **out, error_t *error);
void mailbox_free(mailbox_t *mailbox);

/* Loop thread. The caller has checked that there is room (engine_submit counts live requests). */
void mailbox_post(mailbox_t *mailbox, request_t *request);
/* Engine thread; NULL = empty. */
request_t *mailbox_receive(mailbox_t *mailbox);

/* Engine thread: bytes that the largest event takes. */
size_t mailbox_event_bytes(uint32_t text_length, int32_t num_top);
/* Engine thread: bytes that can be written now without waiting for the loop. */
size_t mailbox_room(const mailbox_t *mailbox);
/* Engine thread: copies the event, its text and its alternatives. The caller has checked the room.
 */
void mailbox_emit(mailbox_t *mailbox, const event_t *event);
/* Engine thread: lets the loop see what was emitted. Once per step, so that the last token of a
 * request and its EVENT_DONE always arrive together. */
void mailbox_publish(mailbox_t *mailbox);
/* Loop thread: hands every ready event to `handle`, in order; returns how many. `handle` must not
 * drain. */
int mailbox_drain(mailbox_t *mailbox, void (*handle)(void *context, const event_t *event),
                  void *context);

/* Any thread: wakes a sleeping engine. */
void mailbox_wake(mailbox_t *mailbox);
/* Engine thread: sleeps until mailbox_wake or `timeout_ms`; a wake between the last look and the
 * sleep is not lost. */
void mailbox_sleep(mailbox_t *mailbox, int timeout_ms);
/* Engine thread: the next mailbox_drain that reads something wakes the engine. */
void mailbox_want_room(mailbox_t *mailbox);

#endif
