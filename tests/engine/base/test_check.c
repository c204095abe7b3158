/* test_check.c: a failing CHECK aborts and prints what it compared. */
#include "engine/base/check.h"
#include "tests/expect.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SAID_BYTES = 1024 };

/* Runs `body` in a child, which must abort, and returns what it wrote to standard error. */
static const char *said_by(void (*body)(void)) {
  static char said[SAID_BYTES];
  int ends[2], status = 0;
  ASSERT_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(ends[1], STDERR_FILENO);
    body();
    _exit(0);
  }
  close(ends[1]);
  size_t used = 0;
  ssize_t got;
  while ((got = read(ends[0], said + used, sizeof said - 1 - used)) > 0) used += (size_t)got;
  said[used] = '\0';
  close(ends[0]);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  cr_assert(WIFSIGNALED(status), "the child ended with status %d and said: %s", status, said);
  ASSERT_EQ(WTERMSIG(status), SIGABRT);
  return said;
}

static void expect_said(void (*body)(void), const char *text) {
  const char *said = said_by(body);
  cr_assert_not_null(strstr(said, text), "said: %sexpected: %s", said, text);
}

static void fail_plain(void) {
  CHECK(sizeof(char) == 2);
}
static void fail_eq(void) {
  int blocks = 3;
  CHECK_EQ(blocks + 4, -8);
}
static void fail_ne(void) {
  uint8_t bits = 200;
  CHECK_NE(bits, 200u);
}
static void fail_lt(void) {
  int32_t rows = -1;
  size_t room = 0;
  CHECK_LT(room, rows); /* -1 is not made the largest size_t */
}
static void fail_le(void) {
  uint64_t used = (uint64_t)1 << 40;
  CHECK_LE(used, INT32_MAX);
}
static void fail_pointer(void) {
  const char *at = (const char *)(uintptr_t)0x123456789ab;
  CHECK_EQ(at, NULL);
}
static void fail_below(void) {
  CHECK_RANGE(-2, 0, 16);
}
static void fail_above(void) {
  CHECK_RANGE(16, 0, 16);
}

Test(check, a_failing_one_prints_the_condition_and_both_values) {
  expect_said(fail_plain, ": sizeof(char) == 2\n");
  expect_said(fail_eq, ": blocks + 4 == -8; left is 7, right is -8\n");
  expect_said(fail_ne, ": bits != 200u; left is 200, right is 200\n");
  expect_said(fail_lt, ": room < rows; left is 0, right is -1\n");
  expect_said(fail_le, ": used <= INT32_MAX; left is 1099511627776 (0x10000000000), right is "
                       "2147483647\n");
  expect_said(fail_pointer, ": at == NULL; left is 1250999896491 (0x123456789ab), right is 0\n");
  expect_said(fail_below, ": -2 >= 0; left is -2, right is 0\n");
  expect_said(fail_above, ": 16 < 16; left is 16, right is 16\n");
}

static int evaluations;

static int count(int value) {
  evaluations++;
  return value;
}

Test(check, one_that_holds_evaluates_each_side_once) {
  CHECK_EQ(count(1), count(1));
  CHECK_NE(count(1), count(2));
  CHECK_LT(count(1), count(2));
  CHECK_LE(count(2), count(2));
  CHECK_GT(count(3), count(2));
  CHECK_GE(count(3), count(3));
  CHECK_RANGE(count(0), count(0), count(1));
  ASSERT_EQ_FOR(evaluations, 15, "evaluated %d times", evaluations);
}
