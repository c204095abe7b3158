/* test_comm.c: collectives between threads: every byte arrives, sums have one order, and nobody
 * waits for ever.
 */
#include "engine/base/clock.h"
#include "tests/engine/members.h"
#include "tests/expect.h"
#include "tests/random.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 5, ROUNDS = 60, LARGE = 3 << 20 };

static uint8_t byte_of(int round, size_t at) {
  return (uint8_t)((at * 2654435761u + (size_t)round * 40503u) >> 7);
}

/* Sizes of all kinds, none and several slots among them; the same in each rank. */
static void draw_cuts(uint64_t *state, int32_t size, size_t *cuts) {
  static const size_t most[] = {0, 1, 7, 4096, LARGE};
  cuts[0] = 0;
  for (int32_t r = 0; r < size; r++) {
    const size_t bound = most[next_random_64(state) % (sizeof most / sizeof *most)];
    cuts[r + 1] = cuts[r] + (bound > 0 ? next_random_64(state) % (bound + 1) : 0);
  }
}

static void *exchange(void *context) {
  member_t *own = context;
  comm_t *comm = own->comm;
  uint8_t *data = malloc((size_t)LARGE * SIZES);
  uint64_t state = 99; /* the same in each */
  for (int round = 0; round < ROUNDS && own->code == 0; round++) {
    size_t cuts[RANKS_MAX + 1];
    draw_cuts(&state, comm->size, cuts);
    const int kind = (int)(next_random_64(&state) % 4);
    const int32_t root = (int32_t)(next_random_64(&state) % (uint64_t)comm->size);
    const size_t all = cuts[comm->size];
    const bool mine = kind == 2 && comm->rank == root;
    memset(data, 0, all);
    for (size_t i = mine ? 0 : cuts[comm->rank]; i < (mine ? all : cuts[comm->rank + 1]); i++)
      data[i] = byte_of(round, i);
    bool has_all = true;
    if (kind == 0) own->code = comm_gather(comm, data, cuts, -1);
    if (kind == 1) own->code = comm_gather(comm, data, cuts, root), has_all = comm->rank == root;
    if (kind == 2) own->code = comm_broadcast(comm, data, all, root);
    if (kind == 3) own->code = comm_barrier(comm), has_all = false;
    for (size_t i = 0; has_all && i < all; i++) own->wrong += data[i] != byte_of(round, i);
  }
  free(data);
  return NULL;
}

Test(comm, every_byte_arrives, .timeout = 120) {
  for (int32_t size = 2; size <= SIZES; size++) {
    static member_t members[SIZES];
    members_start(members, size, exchange);
    members_join(members, size);
    for (int32_t r = 0; r < size; r++) {
      ASSERT_EQ_FOR(members[r].code, 0, "%d ranks: %s", size, members[r].comm->error.message);
      ASSERT_EQ_FOR(members[r].wrong, 0, "rank %d of %d", r, size);
    }
    for (int32_t r = 0; r < size; r++) comm_close(members[r].comm);
  }
}

static float term(int32_t rank, size_t i) {
  return (float)((i * 37 + (size_t)rank * 101) % 1009) * 1e-3f + (rank == 1 ? 1e6f : 0.0f);
}

/* The first `count` values are summed, twice: no call reads what another left. */
static void *add_up(void *context) {
  static const size_t counts[] = {1000, SUMS};
  member_t *own = context;
  for (int round = 0; round < 2; round++) {
    for (size_t i = 0; i < counts[round]; i++) own->sums[i] = term(own->comm->rank, i);
    own->code = comm_reduce(own->comm, own->sums, counts[round]);
  }
  return NULL;
}

Test(comm, sums_are_added_in_the_order_of_the_ranks, .timeout = 60) {
  static member_t members[4];
  members_start(members, 4, add_up);
  members_join(members, 4);
  for (int32_t r = 0; r < 4; r++) {
    ASSERT_EQ(members[r].code, 0);
    for (size_t i = 0; i < SUMS; i++) {
      float want = term(0, i);
      for (int32_t k = 1; k < 4; k++) want += term(k, i);
      cr_assert(memcmp(&members[r].sums[i], &want, sizeof want) == 0, "rank %d, sum %zu", r, i);
    }
    comm_close(members[r].comm);
  }
}

/* Rank 1 stays away; rank 2 abandons at the third barrier. */
static void *stay_away(void *context) {
  member_t *own = context;
  own->comm->limit_ns = 200000000;
  if (own->comm->rank != 1) own->code = comm_barrier(own->comm);
  return NULL;
}

Test(comm, a_rank_that_does_not_answer_fails_the_call_at_the_limit, .timeout = 60) {
  static member_t members[3];
  const uint64_t began_ns = clock_now_ns();
  members_start(members, 3, stay_away);
  members_join(members, 3);
  cr_assert(clock_now_ns() - began_ns >= 200000000u, "nobody has waited");
  for (int32_t r = 0; r < 3; r += 2) {
    ASSERT_EQ(members[r].code, ERR_DEVICE_FAILED);
    ASSERT_EQ_FOR(comm_barrier(members[r].comm), ERR_DEVICE_FAILED, "the error stays");
  }
  const char *first = members[0].comm->error.message, *last = members[2].comm->error.message;
  cr_assert(strstr(first, "rank 1 does not answer") || strstr(last, "rank 1 does not answer"),
            "%s; %s", first, last);
  for (int32_t r = 0; r < 3; r++) comm_close(members[r].comm);
}

static void *leave_early(void *context) {
  member_t *own = context;
  for (int i = 0; i < 5 && own->code == 0; i++) {
    if (own->comm->rank == 2 && i == 2) comm_abandon(own->comm, "planted");
    own->code = comm_barrier(own->comm);
  }
  return NULL;
}

static void *look(void *context) {
  static _Atomic int looked;
  member_t *own = context;
  own->wrong += comm_check(own->comm) != 0;
  looked++;
  while (looked < 3) sched_yield();
  if (own->comm->rank == 1) comm_abandon(own->comm, "of a test");
  while (comm_check(own->comm) == 0) sched_yield();
  return NULL;
}

Test(comm, a_look_finds_a_failure_without_a_call, .timeout = 60) {
  static member_t members[3];
  members_start(members, 3, look);
  members_join(members, 3);
  for (int32_t r = 0; r < 3; r++) {
    ASSERT_EQ(members[r].wrong, 0);
    const char *said = r == 1 ? "of a test" : "rank 1 has failed";
    cr_assert(strstr(members[r].comm->error.message, said), "%s", members[r].comm->error.message);
    comm_close(members[r].comm);
  }
}

Test(comm, a_failure_of_one_rank_reaches_all, .timeout = 60) {
  static member_t members[3];
  members_start(members, 3, leave_early);
  members_join(members, 3);
  for (int32_t r = 0; r < 3; r++) {
    ASSERT_EQ(members[r].code, ERR_DEVICE_FAILED);
    const char *said = members[r].comm->error.message;
    cr_assert(strstr(said, r == 2 ? "planted" : "has failed") != NULL, "rank %d: %s", r, said);
  }
  for (int32_t r = 0; r < 3; r++) comm_close(members[r].comm);
}
