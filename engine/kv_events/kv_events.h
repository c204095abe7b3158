/* kv_events.h: what the prefix cache holds, told to the outside as it changes.
 *
 * The engine thread adds an event when a full block becomes findable by its content, and when it is
 * no longer. One other thread reads them. The engine never waits: events that do not fit are
 * dropped, and the reader sees it by a number that is left out. The blocks of a prompt are stored
 * from its beginning on, and removed from its end on; a hash that is stored is not stored again
 * until it is removed.
 */
#ifndef INFERD_ENGINE_KV_EVENTS_KV_EVENTS_H
#define INFERD_ENGINE_KV_EVENTS_KV_EVENTS_H

#include "engine/base/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct kv_events kv_events_t;

typedef enum kv_event_kind { KV_BLOCK_STORED, KV_BLOCK_REMOVED } kv_event_kind_t;

typedef struct kv_event {
  uint64_t number; /* of the event, from 0; dropped ones have numbers, too */
  uint64_t hash;   /* a keyed one, of the whole prefix that ends with the block */
  uint64_t parent; /* STORED: hash of the block before it */
  kv_event_kind_t kind;
  bool has_parent;          /* STORED: false for the first block of a prompt */
  int32_t adapter;          /* slot of the low-rank adapter, 0 = none */
  const int32_t *token_ids; /* STORED: [block_size] */
} kv_event_t;

/* Makes a list for `capacity` events, at least 1. Returns 0 or ERR_NO_MEMORY. */
int kv_events_new(int32_t capacity, kv_events_t **out, inferd_error_t *error);
void kv_events_free(kv_events_t *events); /* NULL is allowed; no thread uses it any more */

/* Engine thread, at start: the size of a block is known. Returns 0 or ERR_NO_MEMORY. */
int kv_events_start(kv_events_t *events, int32_t block_size, inferd_error_t *error);
/* Engine thread: copies the event; its number is set here. Neither allocates nor waits. */
void kv_events_add(kv_events_t *events, const kv_event_t *event);
/* Engine thread, once a step: wakes the reader if there are new events. NULL is allowed. */
void kv_events_wake(kv_events_t *events);

/* The reader: a descriptor that is readable once events were added; kv_events_read resets it. */
int kv_events_fd(const kv_events_t *events);
/* The reader: hands up to `max` events to `handle`, in order. Returns how many. What an event
 * points to is valid until `handle` returns. */
int32_t kv_events_read(kv_events_t *events, int32_t max,
                       void (*handle)(void *context, const kv_event_t *event), void *context);

int32_t kv_events_block_size(const kv_events_t *events); /* any thread, once an event was read */
uint64_t kv_events_dropped(const kv_events_t *events);   /* any thread */

#endif
