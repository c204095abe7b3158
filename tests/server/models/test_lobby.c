/* test_lobby.c: counts of waiting requests by client, against a walk over all of them. */
#include "tests/expect.h"

#include "engine/base/util.h"
#include "server/models/lobby.h"
#include "tests/random.h"

enum { GUESTS = 300, CLIENTS = 7 };

static guest_t guests[GUESTS];
static uint64_t sources[GUESTS], entered[GUESTS]; /* entered: when; 0 = outside */

static int64_t count_of(uint64_t source) {
  int64_t count = 0;
  for (int i = 0; i < GUESTS; i++) count += entered[i] > 0 && sources[i] == source;
  return count;
}

static void expect_as_walked(const lobby_t *lobby) {
  int64_t all = 0, most = 0, said = -1;
  for (uint64_t source = 1; source <= CLIENTS; source++) {
    int64_t count = count_of(source);
    ASSERT_EQ(lobby_count_of(lobby, source), count);
    all += count;
    most = MAX(most, count);
  }
  ASSERT_EQ(lobby_count(lobby), all);
  guest_t *found = lobby_newest_of_most(lobby, &said);
  ASSERT_EQ(said, most);
  ASSERT_EQ(found != NULL, most > 0);
  if (found == NULL) return;
  int at = (int)(found - guests);
  ASSERT_EQ(count_of(sources[at]), most);
  for (int i = 0; i < GUESTS; i++)
    ASSERT_EQ(entered[i] > entered[at] && sources[i] == sources[at], false);
}

Test(lobby, counts_are_those_of_a_walk) {
  lobby_t *lobby = lobby_new();
  uint64_t random = 5, now = 0;
  ASSERT_EQ(lobby != NULL, true);
  expect_as_walked(lobby);
  for (int turn = 0; turn < 6000; turn++) {
    int i = (int)(next_random(&random) % GUESTS);
    bool filling = turn / 1000 % 2 == 0; /* it fills, it empties, and so on */
    bool enter = next_random(&random) % 4 != 0 ? filling : !filling;
    if (enter && entered[i] == 0) {
      uint64_t drawn = next_random(&random) % (2 * CLIENTS);
      sources[i] = drawn < CLIENTS ? drawn + 1 : 1; /* one has half of all */
      entered[i] = ++now;
      ASSERT_EQ(lobby_enter(lobby, &guests[i], sources[i]), true);
    } else if (!enter) {
      entered[i] = 0;
      lobby_leave(lobby, &guests[i]); /* also where it is outside */
    }
    expect_as_walked(lobby);
  }
  for (int i = 0; i < GUESTS; i++) {
    entered[i] = 0;
    lobby_leave(lobby, &guests[i]);
  }
  expect_as_walked(lobby);
  lobby_free(lobby);
}
