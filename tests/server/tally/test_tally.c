/* test_tally.c: what is counted is added up by key, model and day, also across an end of the
 * process; quotas end at their last token, and begin anew at midnight of UTC. The clock is ours. */
#include "tests/expect.h"

#include "server/tally/tally.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DAY_S = 24 * 3600 };
/* 2026-02-27, noon: the next day is the last of its month. */
static const int64_t noon_s = INT64_C(1772193600);

static char folder[64], path[96];
static answer_store_t *store;
static tally_t *tally;
static inferd_error_t error;
static api_key_t *alice, *bob;

static api_key_t *key_of(uint8_t first, const char *label, int64_t day, int64_t month) {
  uint8_t digest[KEY_DIGEST_BYTES] = {first};
  key_limits_t limits = {.tokens_per_day = day, .tokens_per_month = month};
  api_key_t *key = api_key_new(digest, false);
  cr_assert(key != NULL);
  api_key_set(key, label, &limits, 0);
  return key;
}

static void open_at(int64_t now_s) {
  store_options_t options = {.path = path};
  ASSERT_EQ_FOR(store_open(&options, &store, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(tally_new(store, now_s, &tally, &error), 0, "%s", error.message);
}

static void close_both(void) {
  store_close(store);
  tally_free(tally);
  store = NULL;
  tally = NULL;
}

static void begin(void) {
  snprintf(folder, sizeof folder, "/tmp/inferd-tally-XXXXXX");
  cr_assert(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/answers.db", folder);
  alice = key_of(1, "alice", 100, 150);
  bob = key_of(2, "", 0, 0);
  open_at(noon_s);
}

static void end(void) {
  char command[128];
  close_both();
  api_key_release(alice);
  api_key_release(bob);
  snprintf(command, sizeof command, "rm -rf %s", folder);
  cr_assert_eq(system(command), 0);
}

TestSuite(tally, .init = begin, .fini = end, .timeout = 60);

static int wait_s;

static int check(int64_t tokens, int64_t now_s) {
  return tally_check(tally, alice, tokens, now_s, &wait_s, &error);
}

static bool print_use(void *context, const stored_use_t *use) {
  char *out = context;
  sprintf(out + strlen(out), "%d %d%s%s %s %d %d %d %d; ", (int)(use->day - noon_s / DAY_S),
          use->owner[0], use->label[0] != '\0' ? " " : "", use->label, use->model,
          (int)use->requests, (int)use->input, (int)use->cached, (int)use->output);
  return true;
}

/* What the file has, by days from that of noon_s. */
static const char *uses(const uint8_t *owner, int64_t from, int64_t until) {
  static const uint8_t nobody[STORE_OWNER_BYTES];
  static char out[1024];
  int64_t day = noon_s / DAY_S;
  out[0] = '\0';
  store_settle(store, nobody, tally_rows);
  ASSERT_EQ_FOR(store_uses(store, owner, day + from, day + until, print_use, out, &error), 0, "%s",
                error.message);
  return out;
}

Test(tally, a_quota_ends_at_its_last_token) {
  tally_row_t *row = tally_row(tally, alice, "m");
  ASSERT_EQ(check(100, noon_s), 0);
  ASSERT_EQ(check(101, noon_s), ERR_QUOTA_USED);
  tally_add(row, noon_s, 1, 60, 10, 30);
  ASSERT_EQ(check(9, noon_s), 0);
  ASSERT_EQ(check(10, noon_s), 0);
  ASSERT_EQ(check(11, noon_s), ERR_QUOTA_USED);
  EXPECT_STR_EQ(error.message,
                "This API key has used up its quota of tokens_per_day=100: 90 tokens are used, "
                "this request has at least 11; it begins anew at 2026-02-28T00:00:00Z, in 43200 "
                "s.");
  ASSERT_EQ(wait_s, DAY_S / 2);
  tally_reserve(row, 10); /* a prompt that waits counts, and not twice once it runs */
  ASSERT_EQ(check(1, noon_s), ERR_QUOTA_USED);
  tally_reserve(row, -10);
  tally_add(row, noon_s, 0, 10, 0, 0);
  ASSERT_EQ(check(1, noon_s), ERR_QUOTA_USED);
  ASSERT_EQ(tally_check(tally, bob, 1 << 30, noon_s, &wait_s, &error), 0);
  ASSERT_EQ(tally_check(tally, NULL, 1, noon_s, &wait_s, &error), 0);
}

Test(tally, a_day_ends_at_midnight_and_a_month_with_its_last_day) {
  tally_row_t *row = tally_row(tally, alice, "m");
  int64_t midnight_s = noon_s + DAY_S / 2;
  tally_add(row, noon_s, 1, 100, 0, 0);
  ASSERT_EQ(check(1, midnight_s - 1), ERR_QUOTA_USED);
  ASSERT_EQ(wait_s, 1);
  ASSERT_EQ(check(50, midnight_s), 0);
  ASSERT_EQ(check(51, midnight_s), ERR_QUOTA_USED);
  EXPECT_STR_EQ(error.message,
                "This API key has used up its quota of tokens_per_month=150: 100 tokens are used, "
                "this request has at least 51; it begins anew at 2026-03-01T00:00:00Z, in 86400 "
                "s.");
  tally_add(row, midnight_s, 1, 20, 0, 30);
  ASSERT_EQ(check(1, midnight_s + DAY_S - 1), ERR_QUOTA_USED);
  ASSERT_EQ_FOR(check(1, noon_s), ERR_QUOTA_USED, "a clock that is set back gives nothing");
  ASSERT_EQ(check(100, midnight_s + DAY_S), 0);
  tally_flush(tally, midnight_s, true);
  EXPECT_STR_EQ(uses(NULL, 0, 2), "0 1 alice m 1 100 0 0; 1 1 alice m 1 20 0 30; ");
}

Test(tally, what_was_counted_is_there_after_an_end) {
  tally_row_t *row = tally_row(tally, alice, "m");
  tally_add(row, noon_s, 1, 40, 0, 20);
  tally_add(tally_row(tally, alice, "n"), noon_s, 1, 10, 0, 5);
  tally_add(tally_row(tally, bob, "m"), noon_s, 1, 7, 3, 0);
  tally_add(tally_row(tally, NULL, "m"), noon_s, 1, 1, 0, 1);
  tally_flush(tally, noon_s, false);
  tally_add(row, noon_s, 0, 0, 0, 1);
  tally_flush(tally, noon_s + TALLY_FLUSH_S - 1, false);
  EXPECT_STR_EQ(uses(alice->digest, 0, 1), "0 1 alice m 1 40 0 20; 0 1 alice n 1 10 0 5; ");
  tally_flush(tally, noon_s + TALLY_FLUSH_S, false);
  EXPECT_STR_EQ(uses(NULL, 0, 1), "0 0 m 1 1 0 1; 0 1 alice m 1 40 0 21; 0 1 alice n 1 10 0 5; "
                                  "0 2 m 1 7 3 0; ");
  close_both();
  open_at(noon_s);
  ASSERT_EQ(check(24, noon_s), 0);
  ASSERT_EQ(check(25, noon_s), ERR_QUOTA_USED);
  tally_add(tally_row(tally, alice, "m"), noon_s, 1, 4, 0, 0);
  tally_flush(tally, noon_s, true);
  EXPECT_STR_EQ(uses(alice->digest, -1, 9), "0 1 alice m 2 44 0 21; 0 1 alice n 1 10 0 5; ");
  EXPECT_STR_EQ(uses(bob->digest, -1, 9), "0 2 m 1 7 3 0; ");
  EXPECT_STR_EQ(uses(NULL, 1, 9), "");
  close_both();
  open_at(noon_s + DAY_S);
  ASSERT_EQ_FOR(check(70, noon_s + DAY_S), 0, "of the month 80 are used: %s", error.message);
  ASSERT_EQ(check(71, noon_s + DAY_S), ERR_QUOTA_USED);
}

Test(tally, what_is_not_written_is_written_later) {
  sqlite3 *db = NULL;
  tally_row_t *row = tally_row(tally, alice, "m");
  ASSERT_EQ(sqlite3_open(path, &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db,
                         "CREATE TRIGGER full BEFORE INSERT ON use "
                         "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END",
                         NULL, NULL, NULL),
            SQLITE_OK);
  for (int i = 0; i < 3; i++) {
    tally_add(row, noon_s, 1, 2, 1, 3);
    tally_flush(tally, noon_s, true);
    EXPECT_STR_EQ(uses(NULL, 0, 1), "");
  }
  ASSERT_EQ(sqlite3_exec(db, "DROP TRIGGER full", NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(db);
  tally_flush(tally, noon_s, true);
  EXPECT_STR_EQ(uses(NULL, 0, 1), "0 1 alice m 3 6 3 9; ");
}

Test(tally, models_beyond_the_bound_are_others) {
  char name[200];
  for (int i = 0; i < TALLY_ROWS_MAX + 3; i++) {
    snprintf(name, sizeof name, "m%d", i % (TALLY_ROWS_MAX + 2));
    api_key_t *key = i % 2 == 0 ? alice : NULL;
    if (i < 2000 || i >= TALLY_ROWS_MAX) cr_assert(tally_row(tally, key, name) != NULL);
  }
  memset(name, 'x', sizeof name - 1);
  name[sizeof name - 1] = '\0';
  tally_row_t *row = tally_row(tally, alice, name);
  ASSERT_EQ(row == tally_row(tally, alice, name), true);
}

/* Two processes of a parent with several models; here two tallies of one store. */
Test(tally, a_quota_is_that_of_all_processes) {
  tally_t *other = NULL, *third = NULL;
  int64_t midnight_s = noon_s + DAY_S / 2;
  ASSERT_EQ_FOR(shared_rates_make(&error), 0, "%s", error.message);
  api_key_t *mine = key_of(9, "carol", 100, 150), *same = key_of(9, "carol", 100, 150);
  cr_assert(mine->place >= 0);
  api_key_share(same, mine->place);
  tally_add(tally_row(tally, alice, "m"), noon_s, 1, 99, 0, 0);
  ASSERT_EQ(tally_new(store, noon_s, &other, &error), 0);
  tally_add(tally_row(tally, mine, "m"), noon_s, 1, 40, 0, 10);
  ASSERT_EQ(tally_check(other, same, 50, noon_s, &wait_s, &error), 0);
  ASSERT_EQ(tally_check(other, same, 51, noon_s, &wait_s, &error), ERR_QUOTA_USED);
  tally_add(tally_row(other, same, "n"), noon_s, 1, 5, 0, 5);
  ASSERT_EQ(tally_check(tally, mine, 40, noon_s, &wait_s, &error), 0);
  ASSERT_EQ(tally_check(tally, mine, 41, noon_s, &wait_s, &error), ERR_QUOTA_USED);
  tally_flush(tally, noon_s, true);
  tally_flush(other, noon_s, true);
  EXPECT_STR_EQ(uses(mine->digest, 0, 1), "0 9 carol m 1 40 0 10; 0 9 carol n 1 5 0 5; ");
  /* what a new process reads from the store is counted already */
  ASSERT_EQ(tally_new(store, noon_s, &third, &error), 0);
  ASSERT_EQ(tally_check(third, same, 40, noon_s, &wait_s, &error), 0);
  ASSERT_EQ(tally_check(third, same, 41, noon_s, &wait_s, &error), ERR_QUOTA_USED);
  /* midnight comes once for all */
  tally_add(tally_row(third, same, "m"), midnight_s, 1, 30, 0, 0);
  ASSERT_EQ(tally_check(tally, mine, 60, midnight_s, &wait_s, &error), 0);
  ASSERT_EQ(tally_check(tally, mine, 61, midnight_s, &wait_s, &error), ERR_QUOTA_USED);
  cr_expect(strstr(error.message, "tokens_per_month=150: 90 tokens are used") != NULL, "%s",
            error.message);
  /* a place that another key gets has nothing of the one before */
  tally_flush(third, midnight_s, true);
  store_settle(store, (const uint8_t[STORE_OWNER_BYTES]){0}, tally_rows);
  tally_flush(third, midnight_s, true);
  tally_flush(other, midnight_s, true);
  int place = mine->place;
  api_key_release(mine);
  for (int i = 0; shared_rates_take() != place; i++) ASSERT_LT(i, 1 << 15);
  ASSERT_EQ(atomic_load(&shared_rates_at(place)->use.used_month), 0);
  tally_free(other);
  tally_free(third);
  api_key_release(same);
}
