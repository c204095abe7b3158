/* sender.c: the thread of sender.h, and the batches that go to it and back.
 *
 * A batch belongs to the loop thread, but while it is in the queue or in hand of the thread. The
 * lock guards the two lists and the flags. Parcels have a state of their own, because the loop
 * thread may cancel one at any time.
 */
#include "server/http/sockets/sender.h"

#include "engine/base/check.h"
#include "engine/base/fault.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
  BATCH_BYTES = 16 * 1024,
  BATCH_PARCELS = 64, /* then the thread may begin, while the loop thread makes the next */
  PARCEL_ALIGN = alignof(parcel_t)
};

typedef struct batch {
  struct batch *next;
  size_t used;
  int count;
  alignas(PARCEL_ALIGN) char bytes[BATCH_BYTES];
} sender_batch_t;

typedef struct batches { /* oldest first */
  sender_batch_t *first, **last;
} sender_batches_t;

struct sender {
  void (*wake)(void *context);
  void *context;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t bell;
  sender_batches_t queue, done; /* under the lock, as the flags: */
  bool sleeps, wanted, stopping;
  sender_batch_t *filling, *spare; /* loop thread; NULL: none */
  int num_batches;
};

/* ---- batches ---- */

static void put_last(sender_batches_t *list, sender_batch_t *batch) {
  batch->next = NULL;
  if (list->first == NULL) list->last = &list->first;
  *list->last = batch;
  list->last = &batch->next;
}

static sender_batch_t *take_first(sender_batches_t *list) {
  sender_batch_t *batch = list->first;
  if (batch != NULL) list->first = batch->next;
  return batch;
}

static size_t parcel_bytes(size_t length) {
  return (sizeof(parcel_t) + length + PARCEL_ALIGN - 1) / PARCEL_ALIGN * PARCEL_ALIGN;
}

static parcel_t *parcel_at(sender_batch_t *batch, size_t at) {
  return (parcel_t *)(void *)(batch->bytes + at);
}

/* ---- the thread ---- */

/* Returns false if the socket has not taken all of it. */
static bool send_parcel(parcel_t *parcel) {
  parcel_state_t expected = PARCEL_READY;
  if (!atomic_compare_exchange_strong(&parcel->state, &expected, PARCEL_SENDING)) return true;
  ssize_t n = send(parcel->fd, parcel->bytes, parcel->length, MSG_NOSIGNAL | MSG_DONTWAIT);
  bool full = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
  bool whole = n == (ssize_t)parcel->length;
  parcel->error = n < 0 && !full ? errno : 0;
  parcel->sent = n > 0 ? (uint32_t)n : 0;
  atomic_store(&parcel->state, PARCEL_DONE);
  return whole;
}

static bool send_batch(sender_batch_t *batch) {
  bool whole = true;
  size_t at = 0;
  for (int i = 0; i < batch->count; i++) {
    parcel_t *parcel = parcel_at(batch, at);
    at += parcel_bytes(parcel->length);
    whole &= send_parcel(parcel);
  }
  return whole;
}

static void *run(void *argument) {
  sender_t *sender = argument;
  fault_stack_use();
  pthread_mutex_lock(&sender->lock);
  for (;;) {
    sender_batch_t *batch = take_first(&sender->queue);
    if (batch == NULL && sender->stopping) break;
    if (batch == NULL) {
      sender->sleeps = true;
      pthread_cond_wait(&sender->bell, &sender->lock);
      sender->sleeps = false;
      continue;
    }
    pthread_mutex_unlock(&sender->lock);
    bool whole = send_batch(batch);
    pthread_mutex_lock(&sender->lock);
    put_last(&sender->done, batch);
    if (whole && !sender->wanted) continue;
    sender->wanted = false;
    pthread_mutex_unlock(&sender->lock);
    sender->wake(sender->context);
    pthread_mutex_lock(&sender->lock);
  }
  pthread_mutex_unlock(&sender->lock);
  return NULL;
}

/* ---- loop thread ---- */

int sender_start(void (*wake)(void *context), void *context, sender_t **out,
                 inferd_error_t *error) {
  sigset_t others, old; /* signals are for the loop thread, but faults */
  sender_t *sender = calloc(1, sizeof *sender);
  *out = NULL;
  if (sender == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a sender");
  sender->wake = wake;
  sender->context = context;
  pthread_mutex_init(&sender->lock, NULL);
  pthread_cond_init(&sender->bell, NULL);
  fault_block_others(&others);
  pthread_sigmask(SIG_SETMASK, &others, &old);
  int status = pthread_create(&sender->thread, NULL, run, sender);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (status != 0) {
    free(sender);
    return error_set(error, ERR_IO, NULL, "cannot start a thread that sends: %s", strerror(status));
  }
  (void)pthread_setname_np(sender->thread, "send");
  *out = sender;
  return 0;
}

static sender_batch_t *batch_take(sender_t *sender) {
  sender_batch_t *batch = sender->spare;
  if (batch != NULL) {
    sender->spare = batch->next;
  } else if (sender->num_batches < SENDER_BATCHES_MAX) {
    batch = malloc(sizeof *batch);
    if (batch == NULL) return NULL;
    sender->num_batches++;
  } else {
    return NULL;
  }
  batch->used = 0;
  batch->count = 0;
  return batch;
}

parcel_t *sender_add(sender_t *sender, int fd, void *owner, size_t length) {
  size_t size = parcel_bytes(length);
  CHECK(length > 0 && length <= PARCEL_BYTES_MAX);
  sender_batch_t *batch = sender->filling;
  if (batch != NULL && (batch->count == BATCH_PARCELS || batch->used + size > BATCH_BYTES)) {
    sender_flush(sender);
  }
  if (sender->filling == NULL) sender->filling = batch_take(sender);
  batch = sender->filling;
  if (batch == NULL) return NULL;
  parcel_t *parcel = parcel_at(batch, batch->used);
  *parcel = (parcel_t){.fd = fd, .length = (uint32_t)length, .owner = owner};
  batch->used += size;
  batch->count++;
  return parcel;
}

void sender_flush(sender_t *sender) {
  if (sender->filling == NULL) return;
  pthread_mutex_lock(&sender->lock);
  put_last(&sender->queue, sender->filling);
  bool ring = sender->sleeps;
  sender->sleeps = false; /* the next batches need not ring again */
  pthread_mutex_unlock(&sender->lock);
  sender->filling = NULL;
  if (ring) pthread_cond_signal(&sender->bell);
}

void sender_cancel(parcel_t *parcel) {
  for (;;) {
    parcel_state_t state = PARCEL_READY;
    if (atomic_compare_exchange_strong(&parcel->state, &state, PARCEL_CANCELLED)) return;
    if (state == PARCEL_DONE &&
        atomic_compare_exchange_strong(&parcel->state, &state, PARCEL_CANCELLED)) {
      return;
    }
    CHECK(state != PARCEL_CANCELLED);
    sched_yield();
  }
}

void sender_collect(sender_t *sender, void (*done)(const parcel_t *parcel)) {
  pthread_mutex_lock(&sender->lock);
  sender_batch_t *batch = sender->done.first;
  sender->done.first = NULL;
  pthread_mutex_unlock(&sender->lock);
  while (batch != NULL) {
    sender_batch_t *next = batch->next;
    size_t at = 0;
    for (int i = 0; i < batch->count; i++) {
      parcel_t *parcel = parcel_at(batch, at);
      at += parcel_bytes(parcel->length);
      if (atomic_load(&parcel->state) == PARCEL_DONE) done(parcel);
    }
    batch->next = sender->spare;
    sender->spare = batch;
    batch = next;
  }
}

void sender_want(sender_t *sender) {
  pthread_mutex_lock(&sender->lock);
  bool now = sender->done.first != NULL;
  sender->wanted = !now;
  pthread_mutex_unlock(&sender->lock);
  if (now) sender->wake(sender->context);
}

void sender_stop(sender_t *sender, void (*done)(const parcel_t *parcel)) {
  if (sender == NULL) return;
  sender_flush(sender);
  pthread_mutex_lock(&sender->lock);
  sender->stopping = true;
  pthread_cond_signal(&sender->bell);
  pthread_mutex_unlock(&sender->lock);
  pthread_join(sender->thread, NULL);
  sender_collect(sender, done);
  while (sender->spare != NULL) {
    sender_batch_t *batch = sender->spare;
    sender->spare = batch->next;
    free(batch);
  }
  pthread_cond_destroy(&sender->bell);
  pthread_mutex_destroy(&sender->lock);
  free(sender);
}
