/* mailbox.c: stage 3 of 9 inwards and the way out: requests -> engine, events -> loop.
 *
 * A record in the event ring is an event_t followed by its alternatives and its text, all in one
 * piece: a record that would wrap is preceded by a filler up to the end of the ring. The reader
 * gets pointers into the ring and the space is free when its callback has returned.
 */
#include "engine/mailbox.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Head of every record. size counts the whole record; `filler` records carry nothing. */
typedef struct record {
  uint32_t size;
  uint32_t filler;
  event_t event;
} record_t;

enum { RECORD_ALIGN = 16, REWIND_BYTES = 65536 };

static size_t round_up(size_t n) {
  return (n + RECORD_ALIGN - 1) / RECORD_ALIGN * RECORD_ALIGN;
}

size_t mailbox_event_bytes(uint32_t text_length, int32_t num_top) {
  return round_up(sizeof(record_t) + (size_t)num_top * sizeof(token_logprob_t) + text_length);
}

int mailbox_new(uint32_t requests_max, size_t event_bytes, mailbox_t **out, error_t *error) {
  uint32_t slots = 2;
  while (slots < requests_max) slots *= 2;
  size_t bytes = 4096;
  while (bytes < event_bytes) bytes *= 2;
  mailbox_t *m = aligned_alloc(64, sizeof *m);
  if (m != NULL) {
    memset(m, 0, sizeof *m);
    m->requests = calloc(slots, sizeof(request_t *));
    m->events = aligned_alloc(64, bytes);
  }
  if (m == NULL || m->requests == NULL || m->events == NULL) {
    if (m != NULL) free(m->requests);
    if (m != NULL) free(m->events);
    free(m);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the event ring (%zu bytes)", bytes);
  }
  m->request_mask = slots - 1;
  m->event_mask = bytes - 1;
  pthread_mutex_init(&m->mutex, NULL);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&m->condition, &attributes);
  pthread_condattr_destroy(&attributes);
  *out = m;
  return 0;
}

void mailbox_free(mailbox_t *m) {
  if (m == NULL) return;
  pthread_cond_destroy(&m->condition);
  pthread_mutex_destroy(&m->mutex);
  free(m->requests);
  free(m->events);
  free(m);
}

void mailbox_post(mailbox_t *m, request_t *request) {
  unsigned head = atomic_load_explicit(&m->request_head, memory_order_relaxed);
  unsigned tail = atomic_load_explicit(&m->request_tail, memory_order_acquire);
  CHECK(head - tail <= m->request_mask);
  m->requests[head & m->request_mask] = request;
  atomic_store_explicit(&m->request_head, head + 1, memory_order_release);
}

request_t *mailbox_receive(mailbox_t *m) {
  unsigned tail = atomic_load_explicit(&m->request_tail, memory_order_relaxed);
  if (tail == atomic_load_explicit(&m->request_head, memory_order_acquire)) return NULL;
  request_t *request = m->requests[tail & m->request_mask];
  atomic_store_explicit(&m->request_tail, tail + 1, memory_order_release);
  return request;
}

size_t mailbox_room(const mailbox_t *m) {
  size_t tail = atomic_load_explicit(&m->event_tail, memory_order_acquire);
  return m->event_mask + 1 - (m->event_write - tail);
}

/* The ring is planned for the worst step and mostly holds a little: an empty one begins again at
 * its start, so that only the pages that a step needs become real. Not while the loop reads, which
 * works with the old positions; a loop that comes meanwhile finds nothing to read, and is woken
 * when there is. */
static void rewind_when_empty(mailbox_t *m) {
  size_t write = m->event_write, offset = write & m->event_mask;
  if (offset < REWIND_BYTES) return;
  if (write != atomic_load_explicit(&m->event_tail, memory_order_acquire)) return;
  if (atomic_exchange_explicit(&m->ends_held, true, memory_order_acquire)) return;
  m->event_write = write - offset + m->event_mask + 1;
  atomic_store_explicit(&m->event_head, m->event_write, memory_order_relaxed);
  atomic_store_explicit(&m->event_tail, m->event_write, memory_order_relaxed);
  atomic_store_explicit(&m->ends_held, false, memory_order_release);
}

void mailbox_emit(mailbox_t *m, const event_t *event) {
  rewind_when_empty(m);
  size_t size = mailbox_event_bytes(event->text_length, event->num_top);
  size_t head = m->event_write;
  size_t to_end = m->event_mask + 1 - (head & m->event_mask);
  if (to_end < size) {
    CHECK(mailbox_room(m) >= to_end + size);
    record_t *filler = (record_t *)(void *)&m->events[head & m->event_mask];
    filler->size = (uint32_t)to_end;
    filler->filler = 1;
    head += to_end;
  } else {
    CHECK(mailbox_room(m) >= size);
  }
  record_t *record = (record_t *)(void *)&m->events[head & m->event_mask];
  record->size = (uint32_t)size;
  record->filler = 0;
  record->event = *event;
  token_logprob_t *top = (token_logprob_t *)(void *)(record + 1);
  if (event->num_top) memcpy(top, event->top, (size_t)event->num_top * sizeof *top);
  char *text = (char *)(top + event->num_top);
  if (event->text_length) memcpy(text, event->text, event->text_length);
  record->event.top = top;
  record->event.text = text;
  m->event_write = head + size;
}

void mailbox_publish(mailbox_t *m) {
  atomic_store_explicit(&m->event_head, m->event_write, memory_order_release);
}

int mailbox_drain(mailbox_t *m, void (*handle)(void *context, const event_t *event),
                  void *context) {
  if (atomic_exchange_explicit(&m->ends_held, true, memory_order_acquire)) return 0;
  int count = 0;
  size_t tail = atomic_load_explicit(&m->event_tail, memory_order_relaxed);
  size_t head = atomic_load_explicit(&m->event_head, memory_order_acquire);
  while (tail != head) {
    const record_t *record = (const record_t *)(const void *)&m->events[tail & m->event_mask];
    if (!record->filler) {
      handle(context, &record->event);
      count++;
    }
    tail += record->size;
    atomic_store_explicit(&m->event_tail, tail, memory_order_release);
  }
  atomic_store_explicit(&m->ends_held, false, memory_order_release);
  bool wanted = count && atomic_load_explicit(&m->room_wanted, memory_order_seq_cst);
  if (wanted && atomic_exchange(&m->room_wanted, false)) mailbox_wake(m);
  return count;
}

void mailbox_wake(mailbox_t *m) {
  pthread_mutex_lock(&m->mutex);
  m->wake_pending = true;
  pthread_mutex_unlock(&m->mutex); /* first: who wakes up does not meet a held mutex */
  pthread_cond_signal(&m->condition);
}

void mailbox_sleep(mailbox_t *m, int timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += (long)timeout_ms % 1000 * 1000000;
  until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&m->mutex);
  while (!m->wake_pending) {
    if (pthread_cond_timedwait(&m->condition, &m->mutex, &until) == ETIMEDOUT) break;
  }
  m->wake_pending = false;
  pthread_mutex_unlock(&m->mutex);
}

void mailbox_want_room(mailbox_t *m) {
  atomic_store_explicit(&m->room_wanted, true, memory_order_seq_cst);
}
