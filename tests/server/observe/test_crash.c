/* test_crash.c: a crash is reported even where the thread has no stack left for it.
 *
 * tests/api/test_crash.py crashes the daemon itself and resolves the addresses.
 */
#include "engine/base/fault.h"
#include "server/observe/crash.h"
#include "tests/expect.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int depth_wanted = 1 << 30;

static int descend(int depth) { /* NOLINT(misc-no-recursion) */
  volatile char frame[1024];
  frame[depth % 1024] = (char)depth;
  if (depth >= depth_wanted) return 0;
  return descend(depth + 1) + frame[depth % 1024];
}

static void *overflow(void *context) {
  (void)context;
  fault_stack_use();
  printf("%d", descend(0));
  return NULL;
}

static void overflow_in_a_thread(void) {
  pthread_t thread;
  pthread_create(&thread, NULL, overflow, NULL);
  pthread_setname_np(thread, "deep");
  pthread_join(thread, NULL);
}

static void call_null(void) {
  void (*volatile none)(void) = NULL;
  none();
}

/* Runs `body` under the handler in a child, which must die of `number`; returns its report. */
static const char *report_of(void (*body)(void), int number) {
  static char report[16384];
  int ends[2], status = 0;
  ASSERT_EQ(pipe(ends), 0);
  pid_t child = fork();
  if (child == 0) {
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]);
    close(ends[1]);
    crash_install();
    body();
    _exit(0);
  }
  close(ends[1]);
  size_t used = 0;
  ssize_t got;
  while ((got = read(ends[0], report + used, sizeof report - 1 - used)) > 0) used += (size_t)got;
  report[used] = '\0';
  close(ends[0]);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (!FAULT_SANITIZED)
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == number, "status 0x%x, report:\n%s", status,
              report);
  return report;
}

static void expect_in(const char *report, const char *text) {
  /* The sanitizers' handlers stay in place. */
  if (FAULT_SANITIZED) {
    cr_assert_null(strstr(report, "crashed by"), "report:\n%s", report);
  } else {
    cr_assert_not_null(strstr(report, text), "expected: %s\nreport:\n%s", text, report);
  }
}

Test(crash, an_overflow_of_the_stack_is_reported) {
  const char *report = report_of(overflow_in_a_thread, SIGSEGV);
  expect_in(report, "inferd: crashed by SIGSEGV in thread deep, address 0x");
  expect_in(report, "inferd: frame 63: 0x"); /* and no more of so many */
}

Test(crash, a_call_of_nothing_says_so) {
  const char *report = report_of(call_null, SIGSEGV);
  expect_in(report, ", address 0x0\n");
  expect_in(report, "inferd: at 0x0\n");
}

Test(crash, an_abort_is_reported) {
  expect_in(report_of(abort, SIGABRT), "inferd: crashed by SIGABRT in thread ");
}

/* A sanitizer's runtime, that may be loaded without a sanitizer build, takes its stack back when
 * the thread ends. */
static void *keeps_what_it_has(void *context) {
  static unsigned char bytes[65536];
  const stack_t own = {.ss_sp = bytes, .ss_size = sizeof bytes};
  stack_t before = {0}, after = {0};
  (void)context;
  ASSERT_EQ(sigaltstack(&own, &before), 0);
  fault_stack_use();
  ASSERT_EQ(sigaltstack(&before, &after), 0);
  cr_assert_eq(after.ss_sp, (void *)bytes);
  return NULL;
}

Test(crash, a_stack_that_a_thread_has_is_kept) {
  pthread_t thread;
  ASSERT_EQ(pthread_create(&thread, NULL, keeps_what_it_has, NULL), 0);
  pthread_join(thread, NULL);
}
