/* sanitized.c: runs Criterion tests in the sanitizer builds.
 *
 * Criterion's own runner starts each test in a boxfort sandbox. Under ThreadSanitizer that sandbox
 * cannot map its arena, and under AddressSanitizer the parent has already counted the test as
 * passed when the child reports its leaks. So the sanitizer builds link this file in front of
 * libcriterion: it walks the same table of tests, forks one plain child for each, and judges by the
 * exit status. A leak, an overflow, undefined behaviour or a race ends the child with a status of
 * its own, and so fails the test that caused it. Assertions and messages stay Criterion's.
 *
 * One thread. Never part of the plain build, where Criterion runs the tests itself.
 */
#include <criterion/criterion.h>
#include <criterion/parameterized.h>

#include <errno.h>
#include <fnmatch.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  EXIT_FAILED = 99,
  EXIT_SKIPPED = 98,
  JOBS_MAX = 64,
  TESTS_MAX = 65536,
  NAME_MAX_BYTES = 256
};

/* One run of one test; a parameterised test makes one for each parameter. */
typedef struct job {
  const struct criterion_test *test;
  void *parameter; /* NULL unless parameterised */
  size_t index;    /* of the parameter */
  pid_t pid;
  int log; /* memory file with the child's output */
} job_t;

extern struct criterion_test *__start_cr_tst[], *__stop_cr_tst[];
extern struct criterion_suite *__start_cr_sts[] __attribute__((weak));
extern struct criterion_suite *__stop_cr_sts[] __attribute__((weak));

static const job_t *current;  /* in the child: what it runs */
static bool assertion_failed; /* in the child: some cr_expect did not hold */
static unsigned timeout_s = 600;
static int passed, failed, crashed, skipped;

/* An allocation of more than there is fails, as it does in the plain build, and ends nothing. */
const char *__asan_default_options(void);
const char *__asan_default_options(void) {
  return "allocator_may_return_null=1";
}

/* What the macros of criterion.h call. These stand before libcriterion's own at link time. */

void criterion_send_assert(struct criterion_assert_stats *stats) {
  if (stats->passed) return;
  assertion_failed = true;
  fprintf(stderr, "%s:%u: assertion failed: %s\n", stats->file, stats->line, stats->message);
}

void criterion_abort_test(void) {
  fflush(NULL);
  _exit(EXIT_FAILED);
}

void criterion_continue_test(void) {}

void criterion_skip_test(const char *format, ...) {
  fprintf(stderr, "skipped: %s\n", format);
  _exit(EXIT_SKIPPED);
}

static const struct criterion_test_extra_data *suite_of(const struct criterion_test *test) {
  for (struct criterion_suite **s = __start_cr_sts; s != NULL && s < __stop_cr_sts; s++)
    if (*s != NULL && strcmp((*s)->name, test->category) == 0) return (*s)->data;
  return NULL;
}

void criterion_internal_test_setup(void) {
  const struct criterion_test_extra_data *suite = suite_of(current->test);
  if (suite != NULL && suite->init != NULL) suite->init();
  if (current->test->data->init != NULL) current->test->data->init();
}

void criterion_internal_test_main(void (*run)(void)) {
  if (current->parameter == NULL) {
    run();
    return;
  }
  void (*run_with)(void *) = (void (*)(void *))run;
  run_with(current->parameter);
}

void criterion_internal_test_teardown(void) {
  const struct criterion_test_extra_data *suite = suite_of(current->test);
  if (current->test->data->fini != NULL) current->test->data->fini();
  if (suite != NULL && suite->fini != NULL) suite->fini();
}

static void job_start(job_t *job) {
  job->log = memfd_create("test", MFD_CLOEXEC);
  fflush(NULL);
  job->pid = fork();
  if (job->log < 0 || job->pid < 0) {
    perror("sanitized");
    exit(EXIT_FAILURE);
  }
  if (job->pid > 0) return;
  current = job;
  dup2(job->log, STDOUT_FILENO);
  dup2(job->log, STDERR_FILENO);
  double limit = job->test->data->timeout;
  alarm(limit > 0 ? (unsigned)(limit * 10) + 1 : timeout_s);
  job->test->test();
  exit(assertion_failed ? EXIT_FAILED : 0); /* exit, not _exit: the leak check runs here */
}

static void job_print(const job_t *job, const char *verdict) {
  printf("[%s] %s::%s", verdict, job->test->category, job->test->name);
  if (job->parameter != NULL) printf(" (parameter %zu)", job->index);
  printf("\n");
}

static void job_print_log(const job_t *job) {
  char bytes[4096];
  ssize_t got;
  off_t at = 0;
  while ((got = pread(job->log, bytes, sizeof bytes, at)) > 0) {
    fwrite(bytes, 1, (size_t)got, stdout);
    at += got;
  }
}

static void job_judge(job_t *job, int status) {
  int signal_expected = job->test->data->signal;
  const struct criterion_test_extra_data *suite = suite_of(job->test);
  if (signal_expected == 0 && suite != NULL) signal_expected = suite->signal;
  if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_SKIPPED) {
    skipped++;
    job_print(job, "SKIP");
  } else if (WIFSIGNALED(status) && WTERMSIG(status) == signal_expected) {
    passed++;
  } else if (WIFEXITED(status) && signal_expected == 0 &&
             WEXITSTATUS(status) == job->test->data->exit_code) {
    passed++;
  } else if (WIFSIGNALED(status)) {
    crashed++;
    job_print(job, "CRASH");
    job_print_log(job);
    printf("ended by signal %d (%s)\n", WTERMSIG(status), strsignal(WTERMSIG(status)));
  } else {
    failed++;
    job_print(job, "FAIL");
    job_print_log(job);
    printf("exit status %d\n", WEXITSTATUS(status));
  }
  fflush(stdout);
  close(job->log);
}

/* Waits for one child of `running` and frees its place. */
static void wait_for_one(job_t **running, int *count) {
  int status;
  pid_t pid = waitpid(-1, &status, 0);
  if (pid < 0) {
    if (errno == EINTR) return;
    perror("waitpid");
    exit(EXIT_FAILURE);
  }
  for (int i = 0; i < *count; i++) {
    if (running[i]->pid != pid) continue;
    job_judge(running[i], status);
    running[i] = running[--*count];
    return;
  }
}

/* With `--filter PATTERN` on the command line, tests that one of the patterns fits; never those
 * that a `--without PATTERN` fits. */
static bool selected(const struct criterion_test *test, int argc, char **argv) {
  char name[NAME_MAX_BYTES];
  bool has_filter = false, is_wanted = false;
  snprintf(name, sizeof name, "%s/%s", test->category, test->name);
  for (int i = 1; i + 1 < argc; i++) {
    bool fits = fnmatch(argv[i + 1], name, 0) == 0;
    if (strcmp(argv[i], "--without") == 0 && fits) return false;
    if (strcmp(argv[i], "--filter") != 0) continue;
    has_filter = true;
    is_wanted = is_wanted || fits;
  }
  return is_wanted || !has_filter;
}

static size_t jobs_add(job_t *jobs, size_t count, const struct criterion_test *test) {
  const struct criterion_test_extra_data *suite = suite_of(test);
  if (test->data->disabled || (suite != NULL && suite->disabled)) {
    job_t one = {.test = test};
    job_print(&one, "SKIP");
    skipped++;
    return count;
  }
  if (test->data->kind_ == CR_TEST_NORMAL) {
    if (count < TESTS_MAX) jobs[count++] = (job_t){.test = test};
    return count;
  }
  /* The parameters live until the process ends: every child reads its own. */
  struct criterion_test_params params = test->data->param_();
  for (size_t i = 0; i < params.length && count < TESTS_MAX; i++) {
    void *parameter = (char *)params.params + i * params.size;
    jobs[count++] = (job_t){.test = test, .parameter = parameter, .index = i};
  }
  return count;
}

int main(int argc, char **argv) {
  static job_t jobs[TESTS_MAX];
  job_t *running[JOBS_MAX];
  int parallel = (int)sysconf(_SC_NPROCESSORS_ONLN), count = 0;
  size_t total = 0;
  for (int i = 1; i + 1 < argc; i++) {
    if (strcmp(argv[i], "--timeout") == 0) timeout_s = (unsigned)atoi(argv[i + 1]);
    if (strcmp(argv[i], "--jobs") == 0) parallel = atoi(argv[i + 1]);
  }
  if (parallel < 1) parallel = 1;
  if (parallel > JOBS_MAX) parallel = JOBS_MAX;
  for (struct criterion_test **t = __start_cr_tst; t < __stop_cr_tst; t++)
    if (*t != NULL && selected(*t, argc, argv)) total = jobs_add(jobs, total, *t);
  for (size_t i = 0; i < total; i++) {
    while (count >= parallel) wait_for_one(running, &count);
    job_start(&jobs[i]);
    running[count++] = &jobs[i];
  }
  while (count > 0) wait_for_one(running, &count);
  printf("[====] Synthesis: Tested: %zu | Passing: %d | Failing: %d | Crashing: %d \n", total,
         passed, failed, crashed);
  if (skipped > 0) printf("%d skipped\n", skipped);
  return failed + crashed > 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
