/* test_sender.c: the thread that writes to sockets, alone. */
#include "tests/expect.h"

#include "server/http/sockets/sender.h"

#include <errno.h>
#include <sched.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <criterion/criterion.h>

enum { SOCKETS = 20, BYTES = 1000 };

TestSuite(sender, .timeout = 60);

/* What one socket was sent, and what the last parcel said. */
typedef struct owner {
  int pair[2];
  bool waits; /* has a parcel */
  uint32_t sent;
  int error, parcels;
} owner_t;

static sem_t woken, go_on;
static atomic_bool blocks; /* the thread waits in `wake` for go_on */

static void wake(void *context) {
  (void)context;
  bool waits = blocks;
  sem_post(&woken);
  if (waits) sem_wait(&go_on);
}

static void on_done(const parcel_t *parcel) {
  owner_t *owner = parcel->owner;
  cr_assert(owner->waits);
  owner->waits = false;
  owner->sent = parcel->sent;
  owner->error = parcel->error;
  owner->parcels++;
}

static sender_t *start(void) {
  sender_t *sender;
  inferd_error_t error = {0};
  sem_init(&woken, 0, 0);
  sem_init(&go_on, 0, 0);
  ASSERT_EQ_FOR(sender_start(wake, NULL, &sender, &error), 0, "%s", error.message);
  return sender;
}

static owner_t owner_new(void) {
  owner_t owner = {0};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, owner.pair), 0);
  return owner;
}

static parcel_t *add(sender_t *sender, owner_t *owner, char byte, size_t length) {
  parcel_t *parcel = sender_add(sender, owner->pair[0], owner, length);
  if (parcel == NULL) return NULL;
  memset(parcel->bytes, byte, length);
  owner->waits = true;
  return parcel;
}

/* Until the owner's parcel has come back. */
static void collect(sender_t *sender, const owner_t *owner) {
  for (sender_flush(sender); owner->waits; sender_collect(sender, on_done)) {
    if (sem_trywait(&woken) != 0) usleep(100);
  }
}

Test(sender, parcels_arrive_whole_and_in_order) {
  sender_t *sender = start();
  owner_t owners[SOCKETS];
  static char got[BYTES];
  for (int i = 0; i < SOCKETS; i++) owners[i] = owner_new();
  for (int round = 0; round < 50; round++) {
    for (int i = 0; i < SOCKETS; i++)
      cr_assert_not_null(add(sender, &owners[i], (char)round, BYTES));
    for (int i = 0; i < SOCKETS; i++) collect(sender, &owners[i]);
    for (int i = 0; i < SOCKETS; i++) {
      ASSERT_EQ(owners[i].sent, BYTES);
      ASSERT_EQ(owners[i].error, 0);
      ASSERT_EQ(recv(owners[i].pair[1], got, BYTES, 0), BYTES);
      for (int j = 0; j < BYTES; j++) ASSERT_EQ(got[j], (char)round);
      ASSERT_EQ(recv(owners[i].pair[1], got, BYTES, 0), -1);
    }
  }
  sender_stop(sender, on_done);
  for (int i = 0; i < SOCKETS; i++) {
    EXPECT_EQ(owners[i].parcels, 50);
    close(owners[i].pair[0]), close(owners[i].pair[1]);
  }
}

Test(sender, wakes_who_wants_it_and_nobody_else) {
  sender_t *sender = start();
  owner_t owner = owner_new();
  add(sender, &owner, 'a', BYTES);
  collect(sender, &owner);
  EXPECT_EQ(sem_trywait(&woken), -1);
  for (int i = 0; i < 100; i++) { /* before or after the parcel is done: one wake-up */
    add(sender, &owner, 'b', 1);
    sender_flush(sender);
    if (i % 2 == 0) usleep(300);
    sender_want(sender);
    ASSERT_EQ(sem_wait(&woken), 0);
    sender_collect(sender, on_done);
    cr_assert(!owner.waits);
    ASSERT_EQ(sem_trywait(&woken), -1);
  }
  sender_stop(sender, on_done);
  close(owner.pair[0]), close(owner.pair[1]);
}

Test(sender, full_and_broken_sockets_come_back) {
  sender_t *sender = start();
  owner_t full = owner_new(), broken = owner_new();
  static char waste[65536];
  while (send(full.pair[0], waste, 512, MSG_DONTWAIT) > 0) {
  }
  add(sender, &full, 'x', PARCEL_BYTES_MAX);
  sender_flush(sender);
  ASSERT_EQ(sem_wait(&woken), 0); /* without being asked */
  collect(sender, &full);
  EXPECT_LT(full.sent, PARCEL_BYTES_MAX);
  EXPECT_EQ(full.error, 0);
  close(broken.pair[1]);
  add(sender, &broken, 'x', 10);
  collect(sender, &broken);
  EXPECT_EQ(broken.error, EPIPE);
  sender_stop(sender, on_done);
  close(full.pair[0]), close(full.pair[1]), close(broken.pair[0]);
}

/* The thread is held up, so nothing is sent before the parcels are cancelled. */
Test(sender, cancelled_parcels_are_never_sent) {
  sender_t *sender = start();
  owner_t broken = owner_new(), owner = owner_new(), other = owner_new();
  char got[BYTES];
  blocks = true;
  close(broken.pair[1]);
  add(sender, &broken, 'x', 10);
  sender_flush(sender);
  ASSERT_EQ(sem_wait(&woken), 0);
  parcel_t *parcel = add(sender, &owner, 'c', BYTES);
  add(sender, &other, 'o', BYTES);
  sender_flush(sender);
  sender_cancel(parcel);
  int reused = owner.pair[0];
  close(owner.pair[0]);
  ASSERT_EQ(dup2(other.pair[0], reused), reused); /* the number is another's now */
  blocks = false;
  sem_post(&go_on);
  collect(sender, &other);
  EXPECT_EQ(recv(other.pair[1], got, BYTES, 0), BYTES);
  EXPECT_EQ(got[0], 'o');
  EXPECT_EQ(recv(other.pair[1], got, BYTES, 0), -1);
  EXPECT_EQ(owner.parcels, 0);
  sender_stop(sender, on_done);
  close(reused), close(owner.pair[1]), close(other.pair[0]), close(other.pair[1]);
  close(broken.pair[0]);
}

/* Whenever a parcel is cancelled, all of it was sent, or nothing will be. */
Test(sender, cancels_at_any_moment) {
  sender_t *sender = start();
  char got[BYTES];
  for (int i = 0; i < 2000; i++) {
    owner_t owner = owner_new();
    parcel_t *parcel;
    while ((parcel = add(sender, &owner, 'c', BYTES)) == NULL) {
      sender_collect(sender, on_done); /* all batches are with the thread */
      sched_yield();
    }
    sender_flush(sender);
    for (volatile int spin = 0; spin < i * 7 % 3000; spin++) {
    }
    sender_cancel(parcel);
    ssize_t n = recv(owner.pair[1], got, BYTES, 0);
    cr_assert(n == BYTES || n == -1);
    close(owner.pair[0]);
    ASSERT_EQ(recv(owner.pair[1], got, BYTES, 0), 0);
    close(owner.pair[1]);
    sender_collect(sender, on_done);
    EXPECT_EQ(owner.parcels, 0);
  }
  sender_stop(sender, on_done);
}

Test(sender, batches_are_bounded_and_used_again) {
  sender_t *sender = start();
  owner_t broken = owner_new();
  static owner_t many[SENDER_BATCHES_MAX * 4 + 1];
  close(broken.pair[1]);
  for (int round = 0; round < 2; round++) {
    blocks = true;
    add(sender, &broken, 'x', 10);
    sender_flush(sender);
    ASSERT_EQ(sem_wait(&woken), 0);
    int count = 0;
    many[0] = owner_new();
    for (; count < SENDER_BATCHES_MAX * 4; count++) {
      memcpy(many[count].pair, many[0].pair, sizeof many[0].pair);
      if (add(sender, &many[count], 'm', PARCEL_BYTES_MAX) == NULL) break;
    }
    EXPECT_GT(count, SENDER_BATCHES_MAX * 2);
    EXPECT_LT(count, SENDER_BATCHES_MAX * 4);
    blocks = false;
    sem_post(&go_on);
    for (int i = 0; i < count; i++) collect(sender, &many[i]);
    close(many[0].pair[0]), close(many[0].pair[1]);
  }
  sender_stop(sender, on_done);
  close(broken.pair[0]);
}

Test(sender, a_stop_sends_what_was_added) {
  sender_t *sender = start();
  owner_t owner = owner_new();
  char got[BYTES];
  add(sender, &owner, 's', BYTES);
  sender_stop(sender, on_done);
  EXPECT_EQ(owner.parcels, 1);
  EXPECT_EQ(recv(owner.pair[1], got, BYTES, 0), BYTES);
  sender_stop(NULL, on_done);
  close(owner.pair[0]), close(owner.pair[1]);
}
