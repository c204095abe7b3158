/* test_mailbox.c: the two rings, alone and with a thread on either end. */
#include "engine/mailbox.h"
#include "tests/expect.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* Those by best effort do not count; one other request among them does. */
Test(mailbox, it_tells_of_one_that_is_not_by_best_effort) {
  request_t line = {.best_effort = true}, chat = {0};
  mailbox_t *m;
  ASSERT_EQ(mailbox_new(4, 1, &m, NULL), 0);
  for (int turn = 0; turn < 5; turn++) { /* also where the ring begins anew */
    EXPECT_EQ(mailbox_has_others(m), false);
    mailbox_post(m, &line);
    mailbox_post(m, &line);
    EXPECT_EQ(mailbox_has_others(m), false);
    mailbox_post(m, &chat);
    EXPECT_EQ(mailbox_has_others(m), true);
    mailbox_receive(m);
    mailbox_receive(m);
    EXPECT_EQ(mailbox_has_others(m), true);
    mailbox_receive(m);
  }
  EXPECT_EQ(mailbox_has_others(m), false);
  mailbox_free(m);
}

typedef struct seen {
  int count;
  uint32_t next; /* expected token id */
  bool wrong;
} seen_t;

static char text_of(uint32_t id, uint32_t i) {
  return (char)('a' + (id + i) % 26);
}

static bool is_short(uint32_t id) {
  return id % 7 != 0 && id % 3 != 0;
}

static void emit(mailbox_t *m, uint32_t id) {
  char text[64];
  token_logprob_t top[20];
  uint32_t length = id % 61;
  int32_t num_top = (int32_t)(id % 7 == 0 ? id % 20 : 0);
  for (uint32_t i = 0; i < length; i++) text[i] = text_of(id, i);
  for (int32_t i = 0; i < num_top; i++) top[i] = (token_logprob_t){(int32_t)id + i, -(float)i};
  if (is_short(id)) {
    *mailbox_emit_text(m, text, length) =
        (token_text_t){.request = (request_t *)(uintptr_t)(16 * id),
                       .token_id = (int32_t)id,
                       .position = (int32_t)id + 1,
                       .num_cached_tokens = (int32_t)id + 2,
                       .num_floor_tokens = (int32_t)id + 3};
    return;
  }
  event_t event = {.kind = EVENT_TOKEN,
                   .request = (request_t *)(uintptr_t)(16 * id),
                   .choice = (int32_t)(id % 5),
                   .token_id = (int32_t)id,
                   .position = (int32_t)id + 1,
                   .has_logprob = id % 7 == 0,
                   .num_cached_tokens = (int32_t)id + 2,
                   .num_floor_tokens = (int32_t)id + 3,
                   .stop_token_id = -1,
                   .stop_string = id % 11 == 0 ? 1 : -1,
                   .text = text,
                   .text_length = length,
                   .top = top,
                   .num_top = num_top};
  mailbox_emit(m, &event);
}

static void check(void *context, const event_t *event) {
  seen_t *seen = context;
  uint32_t id = seen->next++;
  seen->count++;
  bool wrong = event->token_id != (int32_t)id || event->text_length != id % 61 ||
               event->kind != EVENT_TOKEN || event->request != (request_t *)(uintptr_t)(16 * id) ||
               event->choice != (is_short(id) ? 0 : (int32_t)(id % 5)) ||
               event->position != (int32_t)id + 1 || event->has_logprob != (id % 7 == 0) ||
               event->num_cached_tokens != (int32_t)id + 2 ||
               event->num_floor_tokens != (int32_t)id + 3 || event->stop_token_id != -1 ||
               event->stop_string != (!is_short(id) && id % 11 == 0 ? 1 : -1);
  for (uint32_t i = 0; !wrong && i < event->text_length; i++)
    wrong = event->text[i] != text_of(id, i);
  for (int32_t i = 0; !wrong && i < event->num_top; i++) {
    wrong = event->top[i].id != (int32_t)id + i || event->top[i].logprob != -(float)i;
  }
  seen->wrong |= wrong;
}

Test(mailbox, slots_that_wait_no_longer_arrive_in_order) {
  mailbox_t *m;
  ASSERT_EQ(mailbox_new(4, 4096, &m, NULL), 0);
  ASSERT_EQ(mailbox_left(m), -1);
  for (int32_t round = 0; round < 10; round++) {
    for (int32_t slot = 0; slot < 4; slot++) mailbox_leave(m, (slot + round) % 4);
    for (int32_t slot = 0; slot < 4; slot++) ASSERT_EQ(mailbox_left(m), (slot + round) % 4);
    ASSERT_EQ(mailbox_left(m), -1);
  }
  mailbox_free(m);
}

Test(mailbox, records_of_all_sizes_survive_the_wrap) {
  mailbox_t *m;
  ASSERT_EQ(mailbox_new(4, 4096, &m, NULL), 0);
  seen_t seen = {0};
  uint32_t id = 0;
  for (int round = 0; round < 2000; round++) {
    while (mailbox_room(m) >= 2 * mailbox_event_bytes(61, 20)) emit(m, id++);
    ASSERT_EQ_FOR(mailbox_drain(m, check, &seen), 0, "a step is seen before it is whole");
    mailbox_publish(m);
    mailbox_drain(m, check, &seen);
    cr_assert(!seen.wrong);
    ASSERT_EQ(seen.next, id);
  }
  mailbox_free(m);
}

enum { THREAD_EVENTS = 200000 };

static void *producer(void *context) {
  mailbox_t *m = context;
  for (uint32_t id = 0; id < THREAD_EVENTS;) {
    if (mailbox_room(m) >= 2 * mailbox_event_bytes(61, 20)) {
      emit(m, id++);
      mailbox_publish(m);
    } else {
      mailbox_sleep(m, 1);
    }
  }
  return NULL;
}

/* The large ring is the one that begins again at its start when it is empty. */
static void run_threads(size_t ring_bytes) {
  mailbox_t *m;
  pthread_t thread;
  ASSERT_EQ(mailbox_new(4, ring_bytes, &m, NULL), 0);
  ASSERT_EQ(pthread_create(&thread, NULL, producer, m), 0);
  seen_t seen = {0};
  while (seen.count < THREAD_EVENTS) mailbox_drain(m, check, &seen);
  pthread_join(thread, NULL);
  cr_assert(!seen.wrong);
  mailbox_free(m);
}

Test(mailbox, events_keep_their_order_between_threads) {
  run_threads(8192);
  run_threads(1 << 20);
}

static void farthest(void *context, const event_t *event) {
  const char **far = context;
  if (event->text > *far) *far = event->text;
}

Test(mailbox, a_ring_that_is_read_in_time_stays_small) {
  mailbox_t *m;
  ASSERT_EQ(mailbox_new(4, 1 << 22, &m, NULL), 0);
  const char *far = NULL;
  for (uint32_t id = 0; id < 100000; id++) {
    emit(m, id);
    mailbox_publish(m);
    mailbox_drain(m, farthest, &far);
  }
  ASSERT_LT(far, (const char *)m->events + 2 * 65536);
  ASSERT_EQ(mailbox_room(m), 1 << 22);
  mailbox_free(m);
}

static void *consumer(void *context) {
  mailbox_t *m = context;
  uintptr_t next = 1;
  while (next <= 50000) {
    request_t *r = mailbox_receive(m);
    if (!r) {
      mailbox_sleep(m, 1000);
      continue;
    }
    if ((uintptr_t)r != next * 64) return NULL;
    next++;
  }
  return m;
}

Test(mailbox, no_wake_is_lost) {
  mailbox_t *m;
  pthread_t thread;
  void *result;
  ASSERT_EQ(mailbox_new(65536, 4096, &m, NULL), 0);
  ASSERT_EQ(pthread_create(&thread, NULL, consumer, m), 0);
  for (uintptr_t i = 1; i <= 50000; i++) {
    mailbox_post(m, (request_t *)(i * 64)); /* never followed */
    mailbox_wake(m);
  }
  pthread_join(thread, &result);
  ASSERT_EQ(result, m);
  mailbox_free(m);
}

static uint64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t slept_ms(mailbox_t *m, int timeout_ms) {
  const uint64_t begun = now_ns();
  mailbox_sleep(m, timeout_ms);
  return (now_ns() - begun) / 1000000;
}

/* Above a second, too. A wake is good for one sleep; above 10 s nobody is only slow. */
Test(mailbox, who_is_not_woken_sleeps_as_long_as_asked) {
  mailbox_t *m;
  ASSERT_EQ(mailbox_new(4, 4096, &m, NULL), 0);
  mailbox_wake(m);
  mailbox_wake(m);
  ASSERT_LT(slept_ms(m, 60000), 10000);
  static const int times_ms[] = {0, 1, 30, 1010};
  for (size_t i = 0; i < sizeof times_ms / sizeof *times_ms; i++) {
    const uint64_t ms = slept_ms(m, times_ms[i]);
    ASSERT_GE_FOR(ms, (uint64_t)times_ms[i], "%d ms", times_ms[i]);
    ASSERT_LT_FOR(ms, 10000 + (uint64_t)times_ms[i], "%d ms", times_ms[i]);
  }
  mailbox_free(m);
}

static void ignore(void *context, const event_t *event) {
  (void)context, (void)event;
}

/* Once, and only by a reader that has read something. */
Test(mailbox, who_wants_room_is_woken_by_the_reader) {
  mailbox_t *m;
  ASSERT_EQ(mailbox_new(4, 4096, &m, NULL), 0);
  ASSERT_EQ(mailbox_publish(m), false);
  mailbox_want_room(m);
  ASSERT_EQ(mailbox_drain(m, ignore, NULL), 0);
  ASSERT_EQ(m->wake_pending, false);
  for (uint32_t id = 1; id < 3; id++) {
    emit(m, id);
    ASSERT_EQ(mailbox_publish(m), true);
    ASSERT_EQ(mailbox_publish(m), false);
    ASSERT_EQ(mailbox_drain(m, ignore, NULL), 1);
    ASSERT_EQ_FOR(m->wake_pending, id == 1, "event %u", id);
    m->wake_pending = false;
  }
  mailbox_free(m);
}

/* So many requests as were asked for wait at once, in order, also where the ring wraps. */
Test(mailbox, as_many_requests_wait_as_were_asked_for) {
  for (uint32_t most = 1; most < 10; most++) {
    mailbox_t *m;
    ASSERT_EQ(mailbox_new(most, 4096, &m, NULL), 0);
    uintptr_t sent = 0, seen = 0;
    for (int round = 0; round < 5; round++) {
      for (uint32_t i = 0; i < most; i++) mailbox_post(m, (request_t *)(++sent * 64));
      for (uint32_t i = 0; i < most; i++) ASSERT_EQ((uintptr_t)mailbox_receive(m), ++seen * 64);
      cr_assert_null(mailbox_receive(m));
    }
    mailbox_free(m);
  }
}

enum { CANCEL_SLOTS = 8, CANCEL_ROUNDS = 100000 };

typedef struct cancel_box {
  mailbox_t *mailbox;
  atomic_int wanted[CANCEL_SLOTS]; /* the round that was cancelled last */
  int seen[CANCEL_SLOTS];          /* the reader's: the round that it found last */
  atomic_bool done;
} cancel_box_t;

static void *canceller(void *context) {
  cancel_box_t *box = context;
  for (int round = 1; round <= CANCEL_ROUNDS; round++) {
    int32_t slot = (round * 5) % CANCEL_SLOTS;
    atomic_store_explicit(&box->wanted[slot], round, memory_order_relaxed);
    mailbox_cancel(box->mailbox, slot);
  }
  atomic_store(&box->done, true);
  return NULL;
}

/* The flag that is set before a cancel is seen behind it, although a slot that waits is not added a
 * second time. */
Test(mailbox, no_cancel_is_lost) {
  cancel_box_t box = {0};
  pthread_t thread;
  ASSERT_EQ(mailbox_new(CANCEL_SLOTS, 4096, &box.mailbox, NULL), 0);
  ASSERT_EQ(pthread_create(&thread, NULL, canceller, &box), 0);
  for (bool last = false;;) {
    int32_t slot = mailbox_cancelled(box.mailbox);
    if (slot >= 0) {
      box.seen[slot] = atomic_load_explicit(&box.wanted[slot], memory_order_relaxed);
    } else if (last) {
      break;
    } else {
      last = atomic_load(&box.done); /* one more walk behind the last cancel */
    }
  }
  pthread_join(thread, NULL);
  for (int i = 0; i < CANCEL_SLOTS; i++) ASSERT_EQ(box.seen[i], atomic_load(&box.wanted[i]));
  mailbox_free(box.mailbox);
}
