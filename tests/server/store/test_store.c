/* test_store.c: what is put is found, by its owner alone, in the list, in the file and after a
 * restart; what is too old or too much goes; files that are no store are refused by name. */
#include "tests/expect.h"

#include "engine/base/util.h"
#include "server/store/store.h"

#include <sqlite3.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static char folder[64], path[96];
static answer_store_t *store;
static inferd_error_t error;
static const uint8_t alice[STORE_OWNER_BYTES] = {1}, bob[STORE_OWNER_BYTES] = {2};
static atomic_int failures, recoveries;

static atomic_int syncs; /* of files, by SQLite: the linker gives it these two */

int fsync(int file) {
  atomic_fetch_add(&syncs, 1);
  return (int)syscall(SYS_fsync, file);
}

int fdatasync(int file) {
  atomic_fetch_add(&syncs, 1);
  return (int)syscall(SYS_fdatasync, file);
}

static void changed(const char *problem) {
  atomic_fetch_add(problem != NULL ? &failures : &recoveries, 1);
}

static void begin(void) {
  snprintf(folder, sizeof folder, "/tmp/inferd-store-XXXXXX");
  cr_assert(mkdtemp(folder) != NULL);
  snprintf(path, sizeof path, "%s/answers.db", folder);
}

static void end(void) {
  char command[128];
  store_close(store);
  store = NULL;
  snprintf(command, sizeof command, "rm -rf %s", folder);
  cr_assert_eq(system(command), 0);
}

TestSuite(store, .init = begin, .fini = end);

static int open_by(store_options_t options) {
  options.path = path;
  options.changed = changed;
  error = (inferd_error_t){0};
  return store_open(&options, &store, &error);
}

static int open_with(int64_t ttl_s, int64_t bytes_max) {
  return open_by((store_options_t){.ttl_s = ttl_s, .bytes_max = bytes_max});
}

static void open_store(void) {
  ASSERT_EQ_FOR(open_with(0, 0), 0, "%s", error.message);
}

static void reopen(void) {
  store_close(store);
  store = NULL;
  open_store();
}

static stored_t *make(const uint8_t owner[STORE_OWNER_BYTES], const char *id, const char *previous,
                      const char *body) {
  stored_t *stored = calloc(1, sizeof *stored);
  cr_assert(stored != NULL);
  snprintf(stored->id, sizeof stored->id, "%s", id);
  snprintf(stored->previous, sizeof stored->previous, "%s", previous);
  memcpy(stored->owner, owner, STORE_OWNER_BYTES);
  stored->created = (int64_t)time(NULL);
  buffer_text(&stored->input, "{\"role\":\"user\"}");
  buffer_text(&stored->body, body);
  return stored;
}

static void put(const uint8_t owner[STORE_OWNER_BYTES], const char *id) {
  cr_assert(store_put(store, make(owner, id, "", id)));
}

/* Returns the body, "" if it is not found; the caller has it until the next call. */
static const char *body_of(const uint8_t owner[STORE_OWNER_BYTES], const char *id) {
  static char body[256];
  stored_t *found = NULL;
  error = (inferd_error_t){0};
  int code = store_find(store, owner, id, false, &found, &error);
  if (code != 0) {
    ASSERT_EQ_FOR(code, ERR_NOT_STORED, "%s", error.message);
    return "";
  }
  snprintf(body, sizeof body, "%.*s", (int)found->body.length, found->body.data);
  stored_free(found);
  return body;
}

static store_stats_t stats(void) {
  store_stats_t out;
  store_stats(store, &out);
  return out;
}

static void wait_written(void) {
  for (int i = 0; i < 60000 && stats().waiting > 0; i++) usleep(1000);
  ASSERT_EQ(stats().waiting, 0);
}

Test(store, what_was_put_is_found_at_once_and_after_a_restart) {
  open_store();
  cr_assert(store_put(store, make(alice, "resp_2", "resp_1", "{\"id\":\"resp_2\"}")));
  EXPECT_STR_EQ(body_of(alice, "resp_2"), "{\"id\":\"resp_2\"}");
  wait_written();
  EXPECT_STR_EQ(body_of(alice, "resp_2"), "{\"id\":\"resp_2\"}");
  reopen();
  stored_t *found = NULL;
  ASSERT_EQ(store_find(store, alice, "resp_2", false, &found, &error), 0);
  EXPECT_STR_EQ(found->previous, "resp_1");
  ASSERT_EQ(found->input.length, strlen("{\"role\":\"user\"}"));
  ASSERT_GE(found->created, (int64_t)time(NULL) - 60);
  stored_free(found);
  ASSERT_EQ(stats().rows, 1);
}

/* How many times the disk is waited for while 10 answers are written, one after another. */
static int syncs_of_writes(bool is_synced) {
  ASSERT_EQ_FOR(open_by((store_options_t){.is_synced = is_synced}), 0, "%s", error.message);
  put(alice, "resp_first");
  wait_written();
  int before = atomic_load(&syncs);
  for (int i = 0; i < 10; i++) {
    stored_t *stored = make(alice, "resp_1", "", "{}");
    ASSERT_EQ(store_put_and_wait(store, stored, &error), 0);
  }
  int count = atomic_load(&syncs) - before;
  store_close(store);
  store = NULL;
  return count;
}

Test(store, the_disk_is_waited_for_where_that_was_asked) {
  ASSERT_EQ(syncs_of_writes(false), 0);
  ASSERT_GE(syncs_of_writes(true), 10);
}

Test(store, another_owner_finds_and_removes_nothing) {
  open_store();
  put(alice, "resp_a");
  EXPECT_STR_EQ(body_of(bob, "resp_a"), "");
  ASSERT_EQ(store_remove(store, bob, "resp_a", &error), ERR_NOT_STORED);
  wait_written();
  EXPECT_STR_EQ(body_of(bob, "resp_a"), "");
  ASSERT_EQ(store_remove(store, bob, "resp_a", &error), ERR_NOT_STORED);
  EXPECT_STR_EQ(error.message, "Response with id 'resp_a' not found.");
  EXPECT_STR_EQ(body_of(alice, "resp_a"), "resp_a");
}

/* Whether the writer has an answer already, takes it now or comes later: it stays removed. */
Test(store, what_is_removed_stays_removed) {
  open_store();
  for (int i = 0; i < 300; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    put(alice, id);
    if (i % 3 == 0) wait_written();
    if (i % 3 == 1) usleep((useconds_t)(i % 7) * 30);
    ASSERT_EQ_FOR(store_remove(store, alice, id, &error), 0, "%s", error.message);
    EXPECT_STR_EQ(body_of(alice, id), "");
    ASSERT_EQ(store_remove(store, alice, id, &error), ERR_NOT_STORED);
  }
  reopen();
  for (int i = 0; i < 300; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    EXPECT_STR_EQ(body_of(alice, id), "");
  }
  ASSERT_EQ(stats().rows, 0);
}

Test(store, everything_that_waits_at_the_end_is_written) {
  open_store();
  for (int i = 0; i < 2000; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    put(i % 2 ? alice : bob, id);
  }
  reopen();
  ASSERT_EQ(stats().rows, 2000);
  EXPECT_STR_EQ(body_of(alice, "resp_1999"), "resp_1999");
  EXPECT_STR_EQ(body_of(bob, "resp_1999"), "");
}

Test(store, an_answer_expires_at_its_time_to_live) {
  static const int64_t ages[] = {99, 100, 102};
  ASSERT_EQ(open_with(100, 0), 0);
  for (size_t i = 0; i < ARRAY_LEN(ages); i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", (int)ages[i]);
    stored_t *stored = make(alice, id, "", id);
    stored->created -= ages[i];
    cr_assert(store_put(store, stored));
  }
  wait_written();
  EXPECT_STR_EQ(body_of(alice, "resp_102"), "");
  EXPECT_STR_EQ(body_of(alice, "resp_99"), "resp_99");
  store_close(store);
  ASSERT_EQ(open_with(101, 0), 0);
  ASSERT_LE_FOR(stats().rows, 2, "removed when it is opened");
  ASSERT_GE(stats().rows, 1);
}

/* Beyond the bound the oldest go, and pages of the file with them. */
Test(store, the_oldest_go_when_there_are_too_many_bytes) {
  enum { BODY = 10000, BOUND = 50 * BODY };
  char *body = calloc(1, BODY + 1);
  memset(body, 'x', BODY);
  ASSERT_EQ(open_with(0, BOUND), 0);
  for (int i = 0; i < 200; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    stored_t *stored = make(alice, id, "", body);
    stored->created += i;
    cr_assert(store_put(store, stored));
  }
  wait_written();
  ASSERT_LE(stats().bytes, BOUND);
  ASSERT_GE(stats().bytes, BOUND - 5 * BODY);
  stored_t *found = NULL;
  ASSERT_EQ(store_find(store, alice, "resp_0", false, &found, &error), ERR_NOT_STORED);
  ASSERT_EQ(store_find(store, alice, "resp_199", false, &found, &error), 0);
  stored_free(found);
  store_close(store);
  store = NULL;
  struct stat info;
  ASSERT_EQ(stat(path, &info), 0);
  ASSERT_LE_FOR(info.st_size, 2 * BOUND, "the file shrinks, too");
  free(body);
}

Test(store, who_fills_the_file_loses_what_it_had_itself) {
  enum { BODY = 1000, BOUND = 100 * BODY };
  char *body = calloc(1, BODY + 1);
  memset(body, 'x', BODY);
  ASSERT_EQ(open_with(0, BOUND), 0);
  for (int i = 0; i < 400; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    stored_t *stored = make(i < 30 ? alice : bob, id, "", i < 30 ? id : body);
    stored->created += i;
    cr_assert(store_put(store, stored));
    if (i % 50 == 0) wait_written();
  }
  wait_written();
  for (int i = 0; i < 30; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    EXPECT_STR_EQ(body_of(alice, id), id);
  }
  stored_t *found = NULL;
  ASSERT_EQ(store_find(store, bob, "resp_30", false, &found, &error), ERR_NOT_STORED);
  ASSERT_EQ(store_find(store, bob, "resp_399", false, &found, &error), 0);
  stored_free(found);
  ASSERT_LE(stats().bytes, BOUND);
  free(body);
}

Test(store, one_answer_above_the_bound_is_not_kept) {
  ASSERT_EQ(open_with(0, 100), 0);
  put(alice, "resp_large");
  wait_written();
  for (int i = 0; i < 60000 && stats().rows > 0; i++) usleep(1000);
  EXPECT_STR_EQ(body_of(alice, "resp_large"), "");
  ASSERT_EQ(stats().rows, 0);
}

/* ---- files ---- */

Test(store, the_file_is_private) {
  struct stat info;
  open_store();
  put(alice, "resp_1");
  wait_written();
  ASSERT_EQ(stat(path, &info), 0);
  ASSERT_EQ(info.st_mode & 0777, 0600);
}

static void run_sql(const char *text) {
  sqlite3 *db = NULL;
  ASSERT_EQ(sqlite3_open(path, &db), SQLITE_OK);
  ASSERT_EQ_FOR(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK, "%s", sqlite3_errmsg(db));
  sqlite3_close(db);
}

static void expect_refused(int code, const char *part) {
  ASSERT_EQ_FOR(open_with(0, 0), code, "%s", error.message);
  cr_assert(strstr(error.message, part) != NULL && strstr(error.message, folder) != NULL, "%s",
            error.message);
  cr_assert(store == NULL);
}

Test(store, a_database_of_another_program_is_refused) {
  run_sql("CREATE TABLE bookmarks (url TEXT)");
  expect_refused(ERR_CONFIGURATION, "is a database of another program");
}

Test(store, a_store_of_a_newer_inferd_is_refused) {
  open_store();
  store_close(store);
  store = NULL;
  run_sql("PRAGMA user_version = 9");
  expect_refused(ERR_CONFIGURATION, "has schema 9, this inferd knows schemas up to 7");
}

Test(store, a_file_that_is_no_database_is_refused) {
  FILE *file = fopen(path, "w");
  for (int i = 0; i < 1000; i++) fputs("this is a diary, not a database\n", file);
  fclose(file);
  expect_refused(ERR_IO, "file is not a database");
}

Test(store, a_folder_that_is_not_there_is_named) {
  snprintf(path, sizeof path, "%s/no/answers.db", folder);
  expect_refused(ERR_IO, "No such file or directory");
}

/* A damaged file: every page but the first is overwritten. What is read fails by name. */
Test(store, a_damaged_file_is_named) {
  open_store();
  for (int i = 0; i < 500; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    put(alice, id);
  }
  store_close(store);
  store = NULL;
  FILE *file = fopen(path, "r+");
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  cr_assert(size > 3 * 4096);
  fseek(file, 4096, SEEK_SET);
  for (long at = 4096; at < size; at++) fputc(0xa5, file);
  fclose(file);
  if (open_with(0, 0) != 0) {
    cr_assert(strstr(error.message, "malformed") != NULL, "%s", error.message);
    return;
  }
  stored_t *found = NULL;
  ASSERT_EQ(store_find(store, alice, "resp_250", false, &found, &error), ERR_STORE_FAILED);
  cr_assert(strstr(error.message, "malformed") != NULL, "%s", error.message);
}

/* Two processes have the file while a restart hands over. */
Test(store, two_stores_share_a_file) {
  store_options_t options = {.path = path};
  answer_store_t *other = NULL;
  open_store();
  ASSERT_EQ_FOR(store_open(&options, &other, &error), 0, "%s", error.message);
  for (int i = 0; i < 200; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    cr_assert(store_put(i % 2 ? store : other, make(alice, id, "", id)));
  }
  store_close(other);
  wait_written();
  for (int i = 0; i < 200; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    EXPECT_STR_EQ(body_of(alice, id), id);
  }
}

/* While the file cannot be written answers are dropped and said; afterwards it goes on. A trigger
 * stands for a full disk. */
Test(store, a_failing_write_is_told_once_and_its_end) {
  char problem[256];
  open_store();
  run_sql("CREATE TRIGGER full BEFORE INSERT ON response "
          "BEGIN SELECT RAISE(ABORT, 'disk is full'); END");
  for (int i = 0; i < 3; i++) {
    put(alice, "resp_lost");
    wait_written();
  }
  store_problem(store, problem, sizeof problem);
  EXPECT_STR_EQ(problem, "disk is full");
  EXPECT_STR_EQ(body_of(alice, "resp_lost"), "");
  ASSERT_EQ(atomic_load(&failures), 1);
  ASSERT_EQ(stats().dropped, 3);
  run_sql("DROP TRIGGER full");
  for (int i = 0; i < 60000 && atomic_load(&recoveries) == 0; i++) usleep(1000);
  ASSERT_EQ_FOR(atomic_load(&recoveries), 1, "a probe finds it, without an answer to write");
  put(alice, "resp_kept");
  wait_written();
  store_problem(store, problem, sizeof problem);
  EXPECT_STR_EQ(problem, "");
  EXPECT_STR_EQ(body_of(alice, "resp_kept"), "resp_kept");
  ASSERT_EQ(atomic_load(&recoveries), 1);
}

Test(store, more_than_may_wait_is_dropped) {
  open_store();
  stored_t *stored = make(alice, "resp_huge", "", "");
  cr_assert(buffer_reserve(&stored->body, 1)); /* its length alone is looked at */
  stored->body.length = (size_t)STORE_WAITING_BYTES;
  cr_assert(!store_put(store, stored));
  ASSERT_EQ(stats().dropped, 1);
  EXPECT_STR_EQ(body_of(alice, "resp_huge"), "");
}

Test(store, what_could_not_be_put_is_counted) {
  open_store();
  store_lost(store);
  ASSERT_EQ(stats().dropped, 1);
}

static void copy_id(void *context, const stored_t *stored) {
  strcat(context, stored->id);
  strcat(context, " ");
}

Test(store, an_answer_that_waits_is_found_again_until_it_has_ended) {
  char ids[256] = "";
  open_store();
  for (int i = 1; i <= 3; i++) {
    char id[32];
    snprintf(id, sizeof id, "resp_%d", i);
    stored_t *stored = make(i == 2 ? bob : alice, id, "", "queued");
    stored->state = STORED_WAITING;
    buffer_text(&stored->request, "{\"input\":1}");
    ASSERT_EQ_FOR(store_put_and_wait(store, stored, &error), 0, "%s", error.message);
  }
  stored_t *done = make(alice, "resp_1", "", "completed");
  done->state = STORED_BACKGROUND;
  buffer_text(&done->events, "event: x");
  cr_assert(store_put(store, done));
  EXPECT_STR_EQ(body_of(alice, "resp_1"), "completed");
  wait_written();
  reopen();
  ASSERT_EQ(store_waiting(store, copy_id, ids, &error), 0);
  EXPECT_STR_EQ(ids, "resp_2 resp_3 ");
  stored_t *found = NULL;
  ASSERT_EQ(store_find(store, bob, "resp_2", true, &found, &error), 0);
  ASSERT_EQ(found->state, STORED_WAITING);
  ASSERT_EQ(found->request.length, strlen("{\"input\":1}"));
  stored_free(found);
  ASSERT_EQ(store_find(store, alice, "resp_1", true, &found, &error), 0);
  EXPECT_STR_EQ(body_of(alice, "resp_1"), "completed");
  ASSERT_EQ(found->request.length, 0);
  ASSERT_EQ(found->events.length, strlen("event: x"));
  stored_free(found);
  ASSERT_EQ(stats().rows, 3);
}

Test(store, an_id_of_another_owner_is_not_replaced) {
  open_store();
  put(alice, "resp_a");
  wait_written();
  cr_assert(store_put(store, make(bob, "resp_a", "", "bob's")));
  wait_written();
  EXPECT_STR_EQ(body_of(alice, "resp_a"), "resp_a");
  EXPECT_STR_EQ(body_of(bob, "resp_a"), "");
}

Test(store, who_waits_for_a_failing_write_hears_of_it) {
  open_store();
  run_sql("CREATE TRIGGER full BEFORE INSERT ON response "
          "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END");
  ASSERT_EQ(store_put_and_wait(store, make(alice, "resp_a", "", ""), &error), ERR_STORE_FAILED);
  cr_assert(strstr(error.message, "disk is full") != NULL);
}

Test(store, an_answer_that_is_not_written_is_given_back) {
  open_store();
  run_sql("CREATE TRIGGER full BEFORE INSERT ON response "
          "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END");
  int outcomes[3] = {0};
  stored_t *rows[3];
  for (int i = 0; i < 3; i++) {
    rows[i] = make(alice, i == 1 ? "resp_b" : "resp_a", "", "body");
    if (i != 1) rows[i]->outcome = &outcomes[i];
    cr_assert(store_put(store, rows[i]));
  }
  wait_written();
  ASSERT_EQ(store_outcome(store, &outcomes[0]), -1);
  ASSERT_EQ(store_outcome(store, &outcomes[2]), -1);
  ASSERT_EQ(stats().dropped, 1);
  EXPECT_STR_EQ(body_of(alice, "resp_a"), "");
  run_sql("DROP TRIGGER full");
  cr_assert(store_put(store, rows[0]));
  wait_written();
  ASSERT_EQ(store_outcome(store, &outcomes[0]), 1);
  EXPECT_STR_EQ(body_of(alice, "resp_a"), "body");
  rows[2]->body.length = (size_t)STORE_WAITING_BYTES; /* its length alone is looked at */
  cr_assert(!store_put(store, rows[2]));
  ASSERT_EQ(store_outcome(store, &outcomes[2]), -1);
  stored_free(rows[2]);
}

/* A file of the first schema, as the inferd before this one made it. */
Test(store, a_file_of_the_first_schema_is_brought_forward) {
  open_store();
  put(alice, "resp_old");
  store_close(store);
  store = NULL;
  run_sql("DROP TRIGGER response_items; DROP TRIGGER response_lines; DROP TRIGGER response_ended;"
          "DROP TRIGGER response_file;"
          "DROP TABLE item; DROP TABLE use; DROP INDEX response_kind;"
          "ALTER TABLE response DROP COLUMN conversation; DROP INDEX response_waiting; ALTER TABLE "
          "response DROP COLUMN state;"
          "ALTER TABLE response DROP COLUMN streams;"
          "ALTER TABLE response DROP COLUMN request; ALTER TABLE response DROP COLUMN events;"
          "ALTER TABLE response DROP COLUMN recipe;"
          "PRAGMA user_version = 1");
  open_store();
  EXPECT_STR_EQ(body_of(alice, "resp_old"), "resp_old");
}

/* ---- conversations ---- */

/* A conversation, or without `id` items for one; `items` is "a b c". */
static stored_t *make_items(const uint8_t owner[STORE_OWNER_BYTES], const char *id,
                            const char *conversation, const char *items) {
  stored_t *stored = make(owner, id, "", "{}");
  stored->state = id[0] == 'c' ? STORED_CONVERSATION : id[0] == '\0' ? STORED_ITEMS : STORED_ANSWER;
  snprintf(stored->conversation, sizeof stored->conversation, "%s", conversation);
  stored_item_t **link = &stored->items;
  for (const char *at = items; *at != '\0'; at += strspn(at, " ")) {
    size_t length = strcspn(at, " ");
    *link = calloc(1, sizeof **link);
    snprintf((*link)->id, sizeof(*link)->id, "%.*s", (int)length, at);
    buffer_append(&(*link)->body, at, length);
    link = &(*link)->next;
    at += length;
  }
  return stored;
}

static bool note_item(void *context, const char *id, const char *body, size_t length) {
  char *out = context;
  ASSERT_EQ(strlen(id), length);
  ASSERT_EQ(memcmp(id, body, length), 0);
  strcat(out, id);
  strcat(out, " ");
  return true;
}

/* The items of a page; "-" if there is no such conversation or file. */
static const char *items_of(const uint8_t owner[STORE_OWNER_BYTES], const char *id,
                            const store_page_t *page) {
  static char out[512];
  out[0] = '\0';
  int code = store_items(store, owner, id, page, note_item, out, &error);
  if (code == 0) return out;
  ASSERT_EQ_FOR(code, ERR_NO_SUCH_OBJECT, "%s", error.message);
  return "-";
}

static const char *page_of(const uint8_t owner[STORE_OWNER_BYTES], const char *after, int64_t limit,
                           bool ascending) {
  store_page_t page = {.limit = limit, .ascending = ascending};
  snprintf(page.after, sizeof page.after, "%s", after);
  return items_of(owner, "conv_1", &page);
}

Test(store, items_are_appended_in_order_and_found_page_by_page) {
  open_store();
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "-");
  cr_assert(store_put(store, make_items(alice, "conv_1", "conv_1", "a b")));
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "a b ");
  cr_assert(store_put(store, make_items(alice, "resp_1", "conv_1", "c d")));
  cr_assert(store_put(store, make_items(alice, "", "conv_1", "e")));
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "a b c d e ");
  EXPECT_STR_EQ(page_of(alice, "", 4, true), "a b c d ");
  EXPECT_STR_EQ(page_of(alice, "", 5, true), "a b c d e ");
  EXPECT_STR_EQ(page_of(alice, "b", 2, true), "c d ");
  EXPECT_STR_EQ(page_of(alice, "e", 2, true), "");
  EXPECT_STR_EQ(page_of(alice, "nothing", 1, true), "a ");
  EXPECT_STR_EQ(page_of(alice, "", 2, false), "e d ");
  EXPECT_STR_EQ(page_of(alice, "b", 9, false), "a ");
  ASSERT_EQ(stats().rows, 2);
  reopen();
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "a b c d e ");
  EXPECT_STR_EQ(body_of(alice, "resp_1"), "{}");
}

Test(store, an_item_is_of_its_conversation_and_owner_alone) {
  buffer_t text = {0};
  open_store();
  cr_assert(store_put(store, make_items(alice, "conv_1", "conv_1", "a b")));
  cr_assert(store_put(store, make_items(bob, "", "conv_1", "evil")));
  cr_assert(store_put(store, make_items(bob, "conv_2", "conv_2", "c")));
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "a b ");
  EXPECT_STR_EQ(page_of(bob, "", 9, true), "-");
  ASSERT_EQ(store_item(store, bob, "conv_1", "a", &text, &error), ERR_NO_SUCH_OBJECT);
  EXPECT_STR_EQ(error.message, "Conversation with id 'conv_1' not found.");
  ASSERT_EQ(store_item(store, bob, "conv_2", "a", &text, &error), ERR_NO_SUCH_OBJECT);
  EXPECT_STR_EQ(error.message, "Item with id 'a' not found in the conversation 'conv_2'.");
  ASSERT_EQ(store_remove_item(store, bob, "conv_1", "a", &error), ERR_NO_SUCH_OBJECT);
  ASSERT_EQ(store_remove(store, bob, "conv_1", &error), ERR_NO_SUCH_OBJECT);
  ASSERT_EQ(store_item(store, alice, "conv_1", "b", &text, &error), 0);
  ASSERT_EQ(text.length, 1);
  buffer_free(&text);
  ASSERT_EQ_FOR(store_remove_item(store, alice, "conv_1", "a", &error), 0, "%s", error.message);
  ASSERT_EQ(store_remove_item(store, alice, "conv_1", "a", &error), ERR_NO_SUCH_OBJECT);
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "b ");
}

/* Else the time of a refusal would tell that the other has such a conversation. */
Test(store, nobody_waits_for_what_another_owner_writes) {
  sqlite3 *db = NULL;
  open_store();
  ASSERT_EQ(sqlite3_open(path, &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
  cr_assert(store_put(store, make_items(alice, "conv_1", "conv_1", "a b")));
  EXPECT_STR_EQ(page_of(bob, "", 9, true), "-");
  ASSERT_EQ(stats().waiting, 1);
  ASSERT_EQ(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "a b ");
  sqlite3_close(db);
}

/* Its items go with it, also by the bound of bytes; what comes later finds nothing to belong to. */
Test(store, a_conversation_that_is_gone_takes_its_items_along) {
  sqlite3 *db = NULL;
  open_store();
  cr_assert(store_put(store, make_items(alice, "conv_1", "conv_1", "a b")));
  ASSERT_EQ_FOR(store_remove(store, alice, "conv_1", &error), 0, "%s", error.message);
  cr_assert(store_put(store, make_items(alice, "resp_1", "conv_1", "c")));
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "-");
  EXPECT_STR_EQ(body_of(alice, "resp_1"), "{}");
  stored_t *late = make_items(alice, "conv_1", "conv_1", "d");
  late->replaces = true;
  ASSERT_EQ_FOR(store_put_and_wait(store, late, &error), 0, "%s", error.message);
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "-");
  ASSERT_EQ(sqlite3_open(path, &db), SQLITE_OK);
  sqlite3_stmt *row = NULL;
  ASSERT_EQ(sqlite3_prepare_v2(db, "SELECT count(*) FROM item", -1, &row, NULL), SQLITE_OK);
  ASSERT_EQ(sqlite3_step(row), SQLITE_ROW);
  ASSERT_EQ(sqlite3_column_int(row, 0), 0);
  sqlite3_finalize(row);
  sqlite3_close(db);
}

/* Two processes may have made the same answer while a restart handed over. */
Test(store, an_answer_that_is_written_twice_appends_once) {
  open_store();
  cr_assert(store_put(store, make_items(alice, "conv_1", "conv_1", "a")));
  stored_t *waits = make_items(alice, "resp_1", "conv_1", "");
  waits->state = STORED_WAITING;
  cr_assert(store_put(store, waits));
  for (int i = 0; i < 2; i++) {
    stored_t *done = make_items(alice, "resp_1", "conv_1", i == 0 ? "b c" : "d e");
    done->state = STORED_BACKGROUND;
    cr_assert(store_put(store, done));
  }
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "a b c ");
}

/* The bytes of items count, whichever way they come and go. */
Test(store, items_count_for_the_bound_of_bytes) {
  open_store();
  cr_assert(store_put(store, make_items(alice, "conv_1", "conv_1", "a b")));
  cr_assert(store_put(store, make_items(alice, "", "conv_1", "c")));
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "a b c ");
  reopen();
  int64_t three = stats().bytes;
  stored_t *again = make_items(alice, "conv_1", "conv_1", "");
  again->replaces = true;
  cr_assert(store_put(store, again));
  EXPECT_STR_EQ(page_of(alice, "", 9, true), "a b c ");
  reopen();
  ASSERT_EQ(stats().bytes, three);
  ASSERT_EQ(store_remove_item(store, alice, "conv_1", "b", &error), 0);
  reopen();
  ASSERT_EQ(three - stats().bytes, 1 + 64);
}

/* ---- batches ---- */

static stored_t *make_lines(const uint8_t owner[STORE_OWNER_BYTES], line_state_t state,
                            const char *items) {
  stored_t *stored = make_items(owner, "", "batch_1", items);
  stored->state = STORED_LINES;
  for (stored_item_t *item = stored->items; item != NULL; item = item->next) {
    item->state = state;
    buffer_clear(&item->body);
    buffer_text(&item->body, item->id);
  }
  return stored;
}

static const char *lines_of(const uint8_t owner[STORE_OWNER_BYTES], line_state_t state,
                            const char *after) {
  static char out[512];
  store_page_t page = {.limit = 9};
  snprintf(page.after, sizeof page.after, "%s", after);
  out[0] = '\0';
  ASSERT_EQ_FOR(store_lines(store, owner, "batch_1", state, &page, note_item, out, &error), 0, "%s",
                error.message);
  return out;
}

static void copy_state(void *context, const stored_t *stored) {
  char text[64];
  snprintf(text, sizeof text, "%.20s:%d:%.*s ", stored->id, (int)stored->state,
           (int)stored->body.length, stored->body.data);
  strcat(context, text);
}

Test(store, a_line_ends_once_and_lines_go_with_their_batch) {
  char found[256] = "";
  const store_page_t all = {.limit = 9, .ascending = true};
  line_counts_t counts;
  open_store();
  stored_t *batch = make_items(alice, "conv", "batch_1", "1 2 3 4");
  snprintf(batch->id, sizeof batch->id, "batch_1");
  batch->state = STORED_BATCH;
  cr_assert(store_put(store, batch));
  cr_assert(store_put(store, make_lines(alice, LINE_ANSWERED, "2 3")));
  cr_assert(store_put(store, make_lines(alice, LINE_FAILED, "3 4")));
  cr_assert(store_put(store, make_lines(bob, LINE_FAILED, "1")));
  EXPECT_STR_EQ(lines_of(alice, LINE_WAITS, ""), "1 ");
  EXPECT_STR_EQ(lines_of(alice, LINE_WAITS, "1"), "");
  EXPECT_STR_EQ(lines_of(alice, LINE_ANSWERED, ""), "2 3 ");
  EXPECT_STR_EQ(lines_of(alice, LINE_FAILED, ""), "4 ");
  EXPECT_STR_EQ(lines_of(bob, LINE_ANSWERED, ""), "");
  ASSERT_EQ(store_count_lines(store, alice, "batch_1", &counts, &error), 0);
  ASSERT_EQ(counts.lines[LINE_WAITS], 1);
  ASSERT_EQ(counts.lines[LINE_ANSWERED], 2);
  ASSERT_EQ(counts.lines[LINE_FAILED], 1);
  reopen();
  ASSERT_EQ(store_waiting(store, copy_state, found, &error), 0);
  EXPECT_STR_EQ(found, "batch_1:5:{} ");
  stored_t *file = make(alice, "file-1", "", "of answers");
  buffer_free(&file->input);
  file->state = STORED_FILE;
  ASSERT_EQ_FOR(store_put_and_wait(store, file, &error), 0, "%s", error.message);
  batch = make_items(alice, "conv", "batch_1", "file-1");
  snprintf(batch->id, sizeof batch->id, "batch_1");
  buffer_clear(&batch->body);
  buffer_text(&batch->body, "done");
  batch->items->state = LINE_ANSWERED;
  batch->state = STORED_BATCH_ENDED;
  batch->replaces = true;
  cr_assert(store_put(store, batch));
  EXPECT_STR_EQ(items_of(alice, "file-1", &all), "2 3 ");
  EXPECT_STR_EQ(items_of(bob, "file-1", &all), "-");
  EXPECT_STR_EQ(lines_of(alice, LINE_ANSWERED, ""), "");
  EXPECT_STR_EQ(lines_of(alice, LINE_FAILED, ""), "");
  EXPECT_STR_EQ(body_of(alice, "batch_1"), "done");
  found[0] = '\0';
  ASSERT_EQ(store_waiting(store, copy_state, found, &error), 0);
  EXPECT_STR_EQ(found, "");
  ASSERT_EQ_FOR(store_remove(store, alice, "file-1", &error), 0, "%s", error.message);
  EXPECT_STR_EQ(items_of(alice, "file-1", &all), "-");
  reopen();
  ASSERT_LE_FOR(stats().bytes, 600 + (int64_t)sizeof *batch, "the bytes of lines are gone");
}

static const char *list_of(const uint8_t owner[STORE_OWNER_BYTES], stored_state_t state,
                           const char *after, int64_t limit, bool ascending) {
  static char out[512];
  store_page_t page = {.limit = limit, .ascending = ascending};
  snprintf(page.after, sizeof page.after, "%s", after);
  out[0] = '\0';
  ASSERT_EQ(store_list(store, owner, state, &page, note_item, out, &error), 0);
  return out;
}

Test(store, files_and_batches_are_listed_for_their_owner_alone) {
  static const stored_state_t states[] = {STORED_FILE, STORED_BATCH_ENDED, STORED_ANSWER,
                                          STORED_FILE, STORED_FILE};
  open_store();
  for (size_t i = 0; i < ARRAY_LEN(states); i++) {
    char id[16];
    snprintf(id, sizeof id, "x%zu", i);
    stored_t *row = make(i == 3 ? bob : alice, id, "", id);
    row->state = states[i];
    ASSERT_EQ_FOR(store_put_and_wait(store, row, &error), 0, "%s", error.message);
  }
  EXPECT_STR_EQ(list_of(alice, STORED_FILE, "", 9, true), "x0 x4 ");
  EXPECT_STR_EQ(list_of(alice, STORED_FILE, "", 1, false), "x4 ");
  EXPECT_STR_EQ(list_of(alice, STORED_FILE, "x4", 9, false), "x0 ");
  EXPECT_STR_EQ(list_of(alice, STORED_FILE, "x3", 9, false), "x4 x0 ");
  EXPECT_STR_EQ(list_of(bob, STORED_FILE, "", 9, true), "x3 ");
  EXPECT_STR_EQ(list_of(alice, STORED_BATCH, "", 9, true), "x1 ");
  EXPECT_STR_EQ(list_of(bob, STORED_BATCH, "x1", 9, true), "");
}
