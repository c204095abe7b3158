/* mailbox.c: stage 3 of 9, requests -> engine; and, after stage 8, events -> loop.
 *
 * Threads: see mailbox.h. A record in the event ring is an event_t followed by its alternatives and
 * its text, in one piece; that of a token of which only the text is told, as most are, is short,
 * because every cache line of it goes from one processor to another. A record that would wrap is
 * preceded by a filler record up to the end of the ring. The reader's callback gets pointers into
 * the ring; the space of a record becomes free when its callback has returned. Next:
 * engine/engine.c and engine/schedule/scheduler.c.
 */
#include "engine/mailbox.h"

#include "engine/base/check.h"
#include "engine/base/util.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef enum record_kind { RECORD_EVENT, RECORD_TOKEN, RECORD_FILLER } record_kind_t;

/* Head of every record. `size` counts the whole record, a multiple of RECORD_ALIGN. */
typedef struct record_head {
  uint32_t size;
  record_kind_t kind;
} record_head_t;

typedef struct record {
  record_head_t head;
  event_t event;
} record_t;

typedef struct token_record {
  record_head_t head;
  token_text_t token;
  uint32_t length;
  char text[]; /* [length] */
} token_record_t;

static const event_t no_token = {.kind = EVENT_TOKEN, .stop_token_id = -1, .stop_string = -1};

enum { RECORD_ALIGN = 16, REWIND_BYTES = 65536 };
enum { TOLD_BYTES = 4096 }; /* the loop gives space back in pieces of so much */

static size_t round_up(size_t n) {
  return ROUND_UP(n, RECORD_ALIGN);
}

size_t mailbox_event_bytes(uint32_t text_length, int32_t num_top) {
  return round_up(sizeof(record_t) + (size_t)num_top * sizeof(token_logprob_t) + text_length);
}

static void free_rings(mailbox_t *mailbox) {
  free(mailbox->requests);
  free(mailbox->cancels);
  free(mailbox->cancel_waits);
  free(mailbox->lefts);
  free(mailbox->events);
}

int mailbox_new(uint32_t requests_max, size_t event_bytes, mailbox_t **out, inferd_error_t *error) {
  uint32_t slots = 2;
  while (slots < requests_max) slots *= 2;
  size_t bytes = 4096;
  while (bytes < event_bytes) bytes *= 2;
  mailbox_t *mailbox = aligned_alloc(64, sizeof *mailbox);
  if (mailbox != NULL) {
    memset(mailbox, 0, sizeof *mailbox);
    mailbox->requests = calloc(slots, sizeof(request_t *));
    mailbox->cancels = calloc(slots, sizeof *mailbox->cancels);
    mailbox->cancel_waits = calloc(slots, sizeof *mailbox->cancel_waits);
    mailbox->lefts = calloc(slots, sizeof *mailbox->lefts);
    mailbox->events = aligned_alloc(64, bytes);
  }
  if (mailbox == NULL || mailbox->requests == NULL || mailbox->cancels == NULL ||
      mailbox->cancel_waits == NULL || mailbox->lefts == NULL || mailbox->events == NULL) {
    if (mailbox != NULL) free_rings(mailbox);
    free(mailbox);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the event ring (%zu bytes)", bytes);
  }
  mailbox->request_mask = slots - 1;
  mailbox->event_mask = bytes - 1;
  pthread_mutex_init(&mailbox->mutex, NULL);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&mailbox->condition, &attributes);
  pthread_condattr_destroy(&attributes);
  *out = mailbox;
  return 0;
}

void mailbox_free(mailbox_t *mailbox) {
  if (mailbox == NULL) return;
  pthread_cond_destroy(&mailbox->condition);
  pthread_mutex_destroy(&mailbox->mutex);
  free_rings(mailbox);
  free(mailbox);
}

void mailbox_post(mailbox_t *mailbox, request_t *request) {
  unsigned head = atomic_load_explicit(&mailbox->request_head, memory_order_relaxed);
  unsigned tail = atomic_load_explicit(&mailbox->request_tail, memory_order_acquire);
  CHECK_LE(head - tail, mailbox->request_mask);
  mailbox->requests[head & mailbox->request_mask] = request;
  atomic_store_explicit(&mailbox->request_head, head + 1, memory_order_release);
}

request_t *mailbox_receive(mailbox_t *mailbox) {
  unsigned tail = atomic_load_explicit(&mailbox->request_tail, memory_order_relaxed);
  if (tail == atomic_load_explicit(&mailbox->request_head, memory_order_acquire)) return NULL;
  request_t *request = mailbox->requests[tail & mailbox->request_mask];
  atomic_store_explicit(&mailbox->request_tail, tail + 1, memory_order_release);
  return request;
}

bool mailbox_has_others(const mailbox_t *mailbox) {
  unsigned at = atomic_load_explicit(&mailbox->request_tail, memory_order_relaxed);
  const unsigned head = atomic_load_explicit(&mailbox->request_head, memory_order_acquire);
  while (at != head && mailbox->requests[at & mailbox->request_mask]->best_effort) at++;
  return at != head;
}

void mailbox_cancel(mailbox_t *mailbox, int32_t slot) {
  /* Either the engine takes the slot after this exchange, and sees what was written before it, or
   * the slot is added here. */
  if (atomic_exchange_explicit(&mailbox->cancel_waits[slot], true, memory_order_acq_rel)) return;
  unsigned head = atomic_load_explicit(&mailbox->cancel_head, memory_order_relaxed);
  mailbox->cancels[head & mailbox->request_mask] = slot;
  atomic_store_explicit(&mailbox->cancel_head, head + 1, memory_order_release);
}

int32_t mailbox_cancelled(mailbox_t *mailbox) {
  unsigned tail = atomic_load_explicit(&mailbox->cancel_tail, memory_order_relaxed);
  if (tail == atomic_load_explicit(&mailbox->cancel_head, memory_order_acquire)) return -1;
  int32_t slot = mailbox->cancels[tail & mailbox->request_mask];
  atomic_store_explicit(&mailbox->cancel_tail, tail + 1, memory_order_release);
  atomic_exchange_explicit(&mailbox->cancel_waits[slot], false, memory_order_acq_rel);
  return slot;
}

void mailbox_leave(mailbox_t *mailbox, int32_t slot) {
  unsigned head = atomic_load_explicit(&mailbox->left_head, memory_order_relaxed);
  unsigned tail = atomic_load_explicit(&mailbox->left_tail, memory_order_acquire);
  CHECK_LE(head - tail, mailbox->request_mask);
  mailbox->lefts[head & mailbox->request_mask] = slot;
  atomic_store_explicit(&mailbox->left_head, head + 1, memory_order_release);
}

int32_t mailbox_left(mailbox_t *mailbox) {
  unsigned tail = atomic_load_explicit(&mailbox->left_tail, memory_order_relaxed);
  if (tail == atomic_load_explicit(&mailbox->left_head, memory_order_acquire)) return -1;
  int32_t slot = mailbox->lefts[tail & mailbox->request_mask];
  atomic_store_explicit(&mailbox->left_tail, tail + 1, memory_order_release);
  return slot;
}

size_t mailbox_room(const mailbox_t *mailbox) {
  size_t tail = atomic_load_explicit(&mailbox->event_tail, memory_order_acquire);
  return mailbox->event_mask + 1 - (mailbox->event_write - tail);
}

/* The ring is large enough for the worst step, but usually holds little. An empty ring is rewound
 * to its start, so that only the pages that a step needs become resident. The ring is not rewound
 * while the loop reads, because the loop uses the old positions. A loop that wants to read during
 * the rewind finds no events; it is woken again when events are published. */
static void rewind_when_empty(mailbox_t *mailbox) {
  size_t write = mailbox->event_write, offset = write & mailbox->event_mask;
  bool all_published = write == atomic_load_explicit(&mailbox->event_head, memory_order_relaxed);
  if (offset < REWIND_BYTES || !all_published) return; /* else it is not empty */
  if (write != atomic_load_explicit(&mailbox->event_tail, memory_order_acquire)) return;
  if (atomic_exchange_explicit(&mailbox->ends_held, true, memory_order_acquire)) return;
  mailbox->event_write = mailbox->event_read = write - offset + mailbox->event_mask + 1;
  atomic_store_explicit(&mailbox->event_head, mailbox->event_write, memory_order_relaxed);
  atomic_store_explicit(&mailbox->event_tail, mailbox->event_write, memory_order_relaxed);
  atomic_store_explicit(&mailbox->ends_held, false, memory_order_release);
}

/* How far the loop has read is looked at only if the events that were there at the last look leave
 * no room: while it reads, its counter is in its own processor's cache. */
static bool fits(mailbox_t *mailbox, size_t size) {
  if (mailbox->event_mask + 1 - (mailbox->event_write - mailbox->event_read) >= size) return true;
  mailbox->event_read = atomic_load_explicit(&mailbox->event_tail, memory_order_acquire);
  return mailbox_room(mailbox) >= size;
}

/* Makes room for a record and writes its head. */
static record_head_t *add_record(mailbox_t *mailbox, size_t size, record_kind_t kind) {
  rewind_when_empty(mailbox);
  size_t head = mailbox->event_write;
  size_t to_end = mailbox->event_mask + 1 - (head & mailbox->event_mask);
  if (to_end < size) {
    CHECK(fits(mailbox, to_end + size));
    record_head_t *filler = (void *)&mailbox->events[head & mailbox->event_mask];
    *filler = (record_head_t){.size = (uint32_t)to_end, .kind = RECORD_FILLER};
    head += to_end;
  } else {
    CHECK(fits(mailbox, size));
  }
  record_head_t *record = (void *)&mailbox->events[head & mailbox->event_mask];
  *record = (record_head_t){.size = (uint32_t)size, .kind = kind};
  mailbox->event_write = head + size;
  return record;
}

token_text_t *mailbox_emit_text(mailbox_t *mailbox, const char *text, uint32_t length) {
  size_t size = round_up(offsetof(token_record_t, text) + length);
  token_record_t *record = (void *)add_record(mailbox, size, RECORD_TOKEN);
  record->length = length;
  for (uint32_t i = 0; i < length; i++) record->text[i] = text[i]; /* a few bytes */
  return &record->token;
}

void mailbox_emit(mailbox_t *mailbox, const event_t *event) {
  int32_t copied = event->top_lent ? 0 : event->num_top;
  size_t size = mailbox_event_bytes(event->text_length, copied);
  record_t *record = (void *)add_record(mailbox, size, RECORD_EVENT);
  record->event = *event;
  token_logprob_t *top = (token_logprob_t *)(void *)(record + 1);
  if (copied > 0) memcpy(top, event->top, (size_t)copied * sizeof *top);
  char *text = (char *)(top + copied);
  if (event->text_length) memcpy(text, event->text, event->text_length);
  if (!event->top_lent) record->event.top = top;
  record->event.text = text;
}

bool mailbox_publish(mailbox_t *mailbox) {
  if (mailbox->event_write == atomic_load_explicit(&mailbox->event_head, memory_order_relaxed))
    return false;
  atomic_store_explicit(&mailbox->event_head, mailbox->event_write, memory_order_release);
  return true;
}

static event_t token_event(const token_record_t *record) {
  const token_text_t *token = &record->token;
  event_t event = no_token;
  event.request = token->request;
  event.token_id = token->token_id;
  event.position = token->position;
  event.num_cached_tokens = token->num_cached_tokens;
  event.num_floor_tokens = token->num_floor_tokens;
  event.text_length = record->length;
  event.text = record->text;
  return event;
}

int mailbox_drain(mailbox_t *mailbox, void (*handle)(void *context, const event_t *event),
                  void *context) {
  if (atomic_exchange_explicit(&mailbox->ends_held, true, memory_order_acquire)) return 0;
  int count = 0;
  size_t tail = atomic_load_explicit(&mailbox->event_tail, memory_order_relaxed), told = tail;
  size_t head = atomic_load_explicit(&mailbox->event_head, memory_order_acquire);
  while (tail != head) {
    const record_head_t *record = (const void *)&mailbox->events[tail & mailbox->event_mask];
    if (record->kind == RECORD_TOKEN) {
      event_t event = token_event((const void *)record);
      handle(context, &event);
    } else if (record->kind == RECORD_EVENT) {
      handle(context, &((const record_t *)(const void *)record)->event);
    }
    count += record->kind != RECORD_FILLER;
    tail += record->size;
    if (tail - told < TOLD_BYTES && tail != head) continue;
    told = tail;
    atomic_store_explicit(&mailbox->event_tail, tail, memory_order_release);
  }
  atomic_store_explicit(&mailbox->ends_held, false, memory_order_release);
  bool wanted = count && atomic_load_explicit(&mailbox->room_wanted, memory_order_seq_cst);
  if (wanted && atomic_exchange(&mailbox->room_wanted, false)) mailbox_wake(mailbox);
  return count;
}

void mailbox_wake(mailbox_t *mailbox) {
  pthread_mutex_lock(&mailbox->mutex);
  mailbox->wake_pending = true;
  pthread_mutex_unlock(&mailbox->mutex); /* before the signal: the woken thread needs the mutex */
  pthread_cond_signal(&mailbox->condition);
}

void mailbox_sleep(mailbox_t *mailbox, int timeout_ms) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += (long)timeout_ms % 1000 * 1000000;
  until.tv_sec += timeout_ms / 1000 + until.tv_nsec / 1000000000;
  until.tv_nsec %= 1000000000;
  pthread_mutex_lock(&mailbox->mutex);
  while (!mailbox->wake_pending) {
    if (pthread_cond_timedwait(&mailbox->condition, &mailbox->mutex, &until) == ETIMEDOUT) break;
  }
  mailbox->wake_pending = false;
  pthread_mutex_unlock(&mailbox->mutex);
}

void mailbox_want_room(mailbox_t *mailbox) {
  atomic_store_explicit(&mailbox->room_wanted, true, memory_order_seq_cst);
}
