/* kv_events.c: a ring of events with one writer, the engine thread, and one reader.
 *
 * The head is written by the engine only, the tail by the reader only, so no lock is needed. The
 * tokens of the events lie beside them, block_size for each place of the ring.
 */
#include "engine/kv_events/kv_events.h"

#include "engine/base/check.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct kv_events {
  int32_t capacity, block_size;
  int wake_fd;
  kv_event_t *ring;                /* [capacity] */
  int32_t *token_ids;              /* [capacity, block_size] */
  uint64_t next;                   /* number of the next event; engine */
  uint64_t woken;                  /* the head when the reader was woken last; engine */
  _Alignas(64) atomic_ullong head; /* events ever written, by the engine */
  atomic_ullong dropped;
  _Alignas(64) atomic_ullong tail; /* events ever read, by the reader */
};

int kv_events_new(int32_t capacity, kv_events_t **out, inferd_error_t *error) {
  CHECK_GE(capacity, 1);
  kv_events_t *events = aligned_alloc(_Alignof(kv_events_t), sizeof *events);
  if (events != NULL) {
    memset(events, 0, sizeof *events);
    events->capacity = capacity;
    events->ring = calloc((size_t)capacity, sizeof *events->ring);
    events->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  }
  if (events == NULL || events->ring == NULL || events->wake_fd < 0) {
    kv_events_free(events);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for events of the KV cache");
  }
  *out = events;
  return 0;
}

void kv_events_free(kv_events_t *events) {
  if (events == NULL) return;
  if (events->wake_fd >= 0) close(events->wake_fd);
  free(events->ring);
  free(events->token_ids);
  free(events);
}

int kv_events_start(kv_events_t *events, int32_t block_size, inferd_error_t *error) {
  CHECK(events->token_ids == NULL);
  events->block_size = block_size;
  events->token_ids =
      calloc((size_t)events->capacity, (size_t)block_size * sizeof *events->token_ids);
  if (events->token_ids != NULL) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for events of the KV cache");
}

void kv_events_add(kv_events_t *events, const kv_event_t *event) {
  uint64_t number = events->next++;
  uint64_t head = atomic_load_explicit(&events->head, memory_order_relaxed);
  uint64_t tail = atomic_load_explicit(&events->tail, memory_order_acquire);
  if (head - tail == (uint64_t)events->capacity) {
    atomic_fetch_add_explicit(&events->dropped, 1, memory_order_relaxed);
    return;
  }
  size_t place = head % (uint64_t)events->capacity;
  kv_event_t *to = &events->ring[place];
  *to = *event;
  to->number = number;
  if (event->kind == KV_BLOCK_STORED) {
    int32_t *ids = &events->token_ids[place * (size_t)events->block_size];
    memcpy(ids, event->token_ids, (size_t)events->block_size * sizeof *ids);
    to->token_ids = ids;
  }
  atomic_store_explicit(&events->head, head + 1, memory_order_release);
}

void kv_events_wake(kv_events_t *events) {
  if (events == NULL) return;
  uint64_t head = atomic_load_explicit(&events->head, memory_order_relaxed), one = 1;
  if (head == events->woken) return;
  events->woken = head;
  /* It fails only if the reader is far behind, and then it is awake. */
  ssize_t written = write(events->wake_fd, &one, sizeof one);
  (void)written;
}

int kv_events_fd(const kv_events_t *events) {
  return events->wake_fd;
}

int32_t kv_events_read(kv_events_t *events, int32_t max,
                       void (*handle)(void *context, const kv_event_t *event), void *context) {
  uint64_t count;
  ssize_t length = read(events->wake_fd, &count, sizeof count);
  (void)length; /* nothing to reset is no fault */
  uint64_t tail = atomic_load_explicit(&events->tail, memory_order_relaxed);
  uint64_t head = atomic_load_explicit(&events->head, memory_order_acquire);
  int32_t num_read = 0;
  for (; tail != head && num_read < max; tail++, num_read++) {
    handle(context, &events->ring[tail % (uint64_t)events->capacity]);
    atomic_store_explicit(&events->tail, tail + 1, memory_order_release);
  }
  return num_read;
}

int32_t kv_events_block_size(const kv_events_t *events) {
  return events->block_size;
}

uint64_t kv_events_dropped(const kv_events_t *events) {
  return atomic_load_explicit(&events->dropped, memory_order_relaxed);
}
