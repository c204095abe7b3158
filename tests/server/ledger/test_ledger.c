/* test_ledger.c: what a client may hold, alone and beside others; the clock is the test's. */
#include "tests/expect.h"

#include "engine/base/clock.h"
#include "server/ledger/ledger.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT = 1000 };

static ledger_t *ledger;
static uint64_t now;

uint64_t clock_now_ns(void) {
  return now;
}
uint64_t clock_thread_ns(void) {
  return now;
}

static void begin(void) {
  now = 1;
  ledger = ledger_new(LIMIT);
  cr_assert_not_null(ledger);
}

static void end(void) {
  ledger_stats_t stats = ledger_stats(ledger);
  ASSERT_EQ(stats.clients, 0);
  ledger_free(ledger);
}

static charge_t of(uint64_t client) {
  return charge_open(ledger, client, LEDGER_body);
}

TestSuite(ledger, .init = begin, .fini = end);

Test(ledger, a_lone_client_may_hold_everything) {
  charge_t body = of(1), reply = charge_open(ledger, 1, LEDGER_reply);
  cr_assert(charge_resize(&body, 600));
  cr_assert_not(charge_resize(&reply, 401));
  ASSERT_EQ(reply.bytes, 0);
  cr_assert_not(charge_resize(&reply, SIZE_MAX));
  cr_assert(charge_resize(&reply, 400));
  ledger_stats_t stats = ledger_stats(ledger);
  ASSERT_EQ(stats.held[LEDGER_body], 600);
  ASSERT_EQ(stats.held[LEDGER_reply], 400);
  ASSERT_EQ(stats.clients, 1);
  ASSERT_EQ(stats.refused, 2);
  cr_assert(charge_resize(&body, 100)); /* less always fits */
  ASSERT_EQ(ledger_stats(ledger).held[LEDGER_body], 100);
  charge_drop(&body);
  charge_drop(&body); /* once more is harmless */
  charge_drop(&reply);
}

/* Small clients do not take a large one's memory away while there is enough for all. */
Test(ledger, shares_do_not_matter_while_nobody_lacks_memory) {
  charge_t small[8], large = of(100);
  for (uint64_t i = 0; i < 8; i++) {
    small[i] = of(i);
    cr_assert(charge_resize(&small[i], 10));
  }
  cr_assert(charge_resize(&large, LIMIT - 80));
  for (int i = 0; i < 8; i++) charge_drop(&small[i]);
  charge_drop(&large);
}

/* One client holds everything; a second is refused. From then on the first gets nothing above its
 * share, so that what it gives back is there for the second. */
Test(ledger, a_refused_client_comes_next) {
  charge_t first[4], second = of(2);
  for (int i = 0; i < 4; i++) {
    first[i] = of(1);
    cr_assert(charge_resize(&first[i], LIMIT / 4));
  }
  cr_assert_not(charge_resize(&second, 100));
  charge_drop(&first[0]);
  cr_assert_not(charge_resize(&first[0], 100), "the memory is the second client's");
  cr_assert(charge_resize(&second, 250));
  charge_drop(&first[1]);
  cr_assert_not(charge_resize(&first[1], 1), "the first one holds its half");
  cr_assert(charge_resize(&second, LIMIT / 2));
  cr_assert_not(charge_resize(&second, LIMIT / 2 + 1));
  /* later nobody lacks memory any more */
  charge_drop(&first[2]);
  now += (uint64_t)LEDGER_LACK_S * 1000000000u;
  cr_assert(charge_resize(&second, 3 * LIMIT / 4));
  charge_drop(&first[3]);
  charge_drop(&second);
}

/* A client that was refused because it held more than its share takes nothing from the others. */
Test(ledger, a_greedy_client_does_not_lack_memory) {
  charge_t greedy = of(1), other = of(2);
  cr_assert(charge_resize(&greedy, 800));
  cr_assert(charge_resize(&other, 200));
  cr_assert_not(charge_resize(&greedy, 900));
  charge_resize(&greedy, 100);
  cr_assert(charge_resize(&other, 900), "nobody lacks memory");
  charge_drop(&greedy);
  charge_drop(&other);
}

/* More clients are refused than are remembered; none of them is counted twice. */
Test(ledger, many_refused_clients) {
  charge_t all = of(1000);
  cr_assert(charge_resize(&all, LIMIT));
  for (uint64_t round = 0; round < 3; round++) {
    for (uint64_t i = 0; i < 2 * LEDGER_LACKS_MAX; i++) {
      charge_t charge = of(i);
      cr_assert_not(charge_resize(&charge, 1));
    }
  }
  charge_drop(&all);
  /* Those that are remembered lack memory, so a share is LIMIT / (1 + LEDGER_LACKS_MAX). */
  cr_assert(charge_resize(&all, LIMIT / (1 + LEDGER_LACKS_MAX)));
  cr_assert_not(charge_resize(&all, LIMIT / (1 + LEDGER_LACKS_MAX) + 1));
  charge_drop(&all);
}

Test(ledger, a_block_gives_back_its_charge) {
  held_t block = {.bytes = malloc(64), .length = 10, .charge = of(7)};
  cr_assert(charge_resize(&block.charge, 64));
  held_t moved = block;
  moved.charge = charge_move(&block.charge);
  block.bytes = NULL;
  held_free(&block); /* nothing is left in it */
  ASSERT_EQ(ledger_stats(ledger).held[LEDGER_body], 64);
  held_free(&moved);
  held_free(&moved);
  ASSERT_EQ(ledger_stats(ledger).held[LEDGER_body], 0);
  cr_assert_null(moved.bytes);
}

Test(ledger, a_charge_without_ledger_always_fits) {
  charge_t charge = {0};
  cr_assert(charge_resize(&charge, SIZE_MAX));
  charge_drop(&charge);
  ASSERT_EQ(ledger_stats(NULL).limit, 0);
}

Test(ledger, the_refusal_names_the_limit) {
  charge_t charge = of(1);
  inferd_error_t error = {0};
  ASSERT_EQ(ledger_refuse(&charge, &error), ERR_OVERLOADED);
  cr_assert_not_null(strstr(error.message, "max_request_memory, 1000 bytes"));
}

/* So many clients that several have one place of the table: they come and go in every order. */
Test(ledger, clients_that_share_a_place_are_told_apart) {
  enum { CLIENTS = 5000 };
  static charge_t all[CLIENTS];
  ledger_t *large = ledger_new(3 * CLIENTS);
  for (uint64_t i = 0; i < CLIENTS; i++) {
    all[i] = charge_open(large, i, (ledger_kind_t)(i % LEDGER_KINDS));
    cr_assert(charge_resize(&all[i], 1 + i % 3));
  }
  ASSERT_EQ(ledger_stats(large).clients, CLIENTS);
  for (int i = 0; i < CLIENTS; i += 2) charge_drop(&all[i]);
  ASSERT_EQ(ledger_stats(large).clients, CLIENTS / 2);
  for (int i = 1; i < CLIENTS; i += 2) cr_assert(charge_resize(&all[i], 4));
  for (int i = CLIENTS - 1; i >= 0; i--) charge_drop(&all[i]);
  ledger_stats_t stats = ledger_stats(large);
  ASSERT_EQ(stats.clients, 0);
  for (int kind = 0; kind < LEDGER_KINDS; kind++) ASSERT_EQ(stats.held[kind], 0);
  ledger_free(large);
}

/* The second client lacks memory for five seconds, from the last time that it was refused. */
Test(ledger, a_refused_client_counts_for_so_long) {
  const uint64_t lack_ns = (uint64_t)LEDGER_LACK_S * 1000000000u;
  for (int again = 0; again < 2; again++) {
    charge_t first = of(1), second = of(2);
    now = 1;
    cr_assert(charge_resize(&first, LIMIT));
    cr_assert_not(charge_resize(&second, 100));
    now += 10;
    if (again) cr_assert_not(charge_resize(&second, 100));
    charge_drop(&first);
    now = lack_ns + (again ? 10 : 0);
    cr_assert_not(charge_resize(&first, LIMIT / 2 + 1));
    cr_assert(charge_resize(&first, LIMIT / 2));
    now++;
    cr_assert(charge_resize(&first, LIMIT / 2 + 1));
    charge_drop(&first);
  }
}

/* One more than are remembered are refused, one in each nanosecond: the first is forgotten. */
Test(ledger, the_oldest_lack_is_forgotten_first) {
  enum { LARGE = 1000000 };
  const uint64_t lack_ns = (uint64_t)LEDGER_LACK_S * 1000000000u;
  ledger_t *large = ledger_new(LARGE);
  charge_t all = charge_open(large, 1000, LEDGER_body);
  cr_assert(charge_resize(&all, LARGE));
  for (uint64_t i = 0; i <= LEDGER_LACKS_MAX; i++) {
    charge_t charge = charge_open(large, i, LEDGER_body);
    now = 1 + i;
    cr_assert_not(charge_resize(&charge, 1));
  }
  charge_drop(&all);
  for (size_t gone = 0; gone < 3; gone++) {
    now = lack_ns + 1 + gone; /* the lack of client `gone` has ended */
    const size_t share = LARGE / (1 + LEDGER_LACKS_MAX - gone);
    cr_assert_not(charge_resize(&all, share + 1), "%zu", gone);
    cr_assert(charge_resize(&all, share), "%zu", gone);
    charge_drop(&all);
  }
  ledger_free(large);
}

static void *work(void *argument) {
  uint64_t client = (uint64_t)(uintptr_t)argument;
  for (int round = 0; round < 20000; round++) {
    charge_t charge = charge_open(ledger, client, (ledger_kind_t)(round % LEDGER_KINDS));
    if (charge_resize(&charge, (size_t)(round % 300) + 1)) charge_resize(&charge, 5);
    charge_drop(&charge);
  }
  return NULL;
}

Test(ledger, any_thread) {
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++) {
    ASSERT_EQ(pthread_create(&threads[i], NULL, work, (void *)(i % 3)), 0);
  }
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}
