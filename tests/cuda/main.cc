/* main.cc: runs the kernel tests: all, or those whose name contains an argument.
 *
 *   tests_cuda [--no-fork] [PART OF A NAME]...
 *
 * Each test is a process of its own: a fault of the device, which CUDA never forgets, a crash or an
 * endless kernel fails one test, and the others still run. The parent calls nothing of CUDA.
 * INFERD_TEST_LIMIT_S (600) ends a test that hangs, INFERD_TEST_JOBS (1) runs so many at once, of
 * the tests of far memory one, and INFERD_TEST_STOP=1 ends the run at the first check that fails.
 * A part that no name has is an error.
 * --no-fork keeps all tests in this process, for debuggers and compute-sanitizer.
 */
#include "tests/cuda/check.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstring>

struct test_t {
  const char *name;
  test_body_t body;
};

static std::vector<test_t> &all_tests() {
  static std::vector<test_t> tests;
  return tests;
}

/* What a test has found so far; in memory that parent and child share. */
struct outcome_t {
  int checks, failures, has_ended;
};

static uint64_t random_state;
static const bool stops_early = getenv("INFERD_TEST_STOP") != nullptr;
static outcome_t in_this_process, *outcome = &in_this_process;

test_registration::test_registration(const char *name, test_body_t body) {
  all_tests().push_back({name, body});
}

void check_that(bool holds, const std::string &what) {
  outcome->checks++;
  if (holds) return;
  outcome->failures++;
  printf("FAIL %s\n", what.c_str());
  if (stops_early) exit(2);
}

void must_succeed(int status, const char *call, const char *file, int line) {
  if (status == 0) return;
  printf("FAIL %s:%d %s: %s\n", file, line, call, cudaGetErrorString((cudaError_t)status));
  exit(2);
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t random_bits() {
  uint64_t x = random_state += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

float random_float(float magnitude) {
  return ((float)(random_bits() >> 40) * 0x1p-23f - 1.0f) * magnitude;
}

int random_below(int n) {
  return (int)(random_bits() % (uint64_t)n);
}

void check_close(const std::string &what, const std::vector<double> &expected,
                 const std::vector<double> &got, double tolerance, double scale) {
  size_t bad = 0, first = 0;
  for (size_t i = 0; i < expected.size() && i < got.size(); i++) {
    const double limit = tolerance * (scale + std::fabs(expected[i]));
    if (std::fabs(got[i] - expected[i]) <= limit) continue;
    if (bad++ == 0) first = i;
  }
  const bool sized = expected.size() == got.size();
  std::string text = what;
  if (bad > 0)
    text += ": " + std::to_string(bad) + " elements, first " + std::to_string(first) + " is " +
            std::to_string(got[first]) + ", expected " + std::to_string(expected[first]);
  check_that(sized && bad == 0, text);
}

void check_rows(const std::string &what, const std::vector<double> &expected,
                const std::vector<double> &got, size_t width, double tolerance) {
  double worst = 0;
  size_t at = 0;
  for (size_t row = 0; row + width <= expected.size(); row += width) {
    double error = 0, size = 0;
    for (size_t i = row; i < row + width; i++) {
      error += (got[i] - expected[i]) * (got[i] - expected[i]);
      size += expected[i] * expected[i];
    }
    const double relative = std::sqrt(error / (size + 1e-30));
    if (relative <= worst) continue; /* a NaN gets through */
    worst = relative;
    at = row / width;
    if (!(worst <= tolerance)) break;
  }
  const bool good = expected.size() == got.size() && worst <= tolerance;
  check_that(good, what + ": row " + std::to_string(at) + " is off by " + std::to_string(worst));
}

/* ---- the runner ---- */

struct child_t {
  const test_t *test;
  pid_t pid;
  outcome_t *found;
  FILE *output; /* what it prints, or NULL where it prints for itself */
  double deadline_s;
};

struct totals_t {
  int run = 0, checks = 0, failures = 0;
};

static double now_s() {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static int setting(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text && atoi(text) > 0 ? atoi(text) : otherwise;
}

static child_t start(const test_t &test, bool is_captured, int limit_s) {
  void *shared =
      mmap(nullptr, sizeof(outcome_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  child_t child = {&test, -1, (outcome_t *)shared, is_captured ? tmpfile() : nullptr, 0};
  if (shared == MAP_FAILED || (is_captured && !child.output)) {
    perror("tests_cuda");
    exit(2);
  }
  fflush(stdout);
  child.pid = fork();
  child.deadline_s = now_s() + limit_s;
  if (child.pid != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (child.output) {
    dup2(fileno(child.output), STDOUT_FILENO);
    dup2(fileno(child.output), STDERR_FILENO);
  }
  outcome = child.found;
  test.body();
  outcome->has_ended = 1;
  exit(0);
}

static void show(FILE *output) {
  char bytes[4096];
  rewind(output);
  for (size_t n; (n = fread(bytes, 1, sizeof bytes, output)) > 0;) fwrite(bytes, 1, n, stdout);
  fclose(output);
}

/* Counts what a child has found; one that ended in any other way than by its test has failed. */
static void count(const child_t &child, int status, bool is_late, totals_t *totals) {
  const bool good = child.found->has_ended && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const char *name = child.test->name;
  if (child.output) show(child.output);
  if (is_late)
    printf("FAIL %s: killed, it ran past its time\n", name);
  else if (!good && WIFSIGNALED(status))
    printf("FAIL %s: ended by signal %d\n", name, WTERMSIG(status));
  else if (!good)
    printf("FAIL %s: ended with status %d\n", name, WEXITSTATUS(status));
  if (!good || child.found->failures > 0) printf("FAIL test %s\n", name);
  totals->run++;
  totals->checks += child.found->checks;
  totals->failures += child.found->failures + !good;
  munmap(child.found, sizeof *child.found);
}

/* Waits for a child to end or for the nearest deadline; takes away those that are done. */
static void reap(std::vector<child_t> *running, totals_t *totals) {
  double nearest = 1e30;
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  for (const child_t &child : *running) nearest = std::min(nearest, child.deadline_s);
  const double left = std::max(0.0, nearest - now_s());
  const struct timespec wait = {(time_t)left, (long)((left - (double)(time_t)left) * 1e9)};
  sigtimedwait(&ended, nullptr, &wait);
  for (size_t i = 0; i < running->size();) {
    const child_t child = (*running)[i];
    int status = 0;
    pid_t gone = waitpid(child.pid, &status, WNOHANG);
    const bool is_late = gone == 0 && now_s() >= child.deadline_s;
    if (is_late) {
      kill(child.pid, SIGKILL);
      gone = waitpid(child.pid, &status, 0);
    }
    if (gone == 0) {
      i++;
      continue;
    }
    count(child, status, is_late, totals);
    running->erase(running->begin() + (long)i);
  }
}

/* A test whose name has `far` takes up to 20 GB of the device (far.h): of these one at a time. */
static bool is_far(const test_t &test) {
  return strstr(test.name, "far") != nullptr;
}

/* Takes out the first test that may begin beside those that run; NULL when all must wait. */
static const test_t *take_next(std::vector<const test_t *> *waiting,
                               const std::vector<child_t> &running) {
  bool has_far = false;
  for (const child_t &child : running) has_far = has_far || is_far(*child.test);
  for (size_t i = 0; i < waiting->size(); i++) {
    const test_t *test = (*waiting)[i];
    if (has_far && is_far(*test)) continue;
    waiting->erase(waiting->begin() + (long)i);
    return test;
  }
  return nullptr;
}

static totals_t run_forked(const std::vector<test_t> &tests) {
  const int jobs = setting("INFERD_TEST_JOBS", 1), limit_s = setting("INFERD_TEST_LIMIT_S", 600);
  std::vector<const test_t *> waiting;
  std::vector<child_t> running;
  totals_t totals;
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  sigprocmask(SIG_BLOCK, &ended, nullptr); /* so that sigtimedwait gets it */
  for (const test_t &test : tests) waiting.push_back(&test);
  while (!waiting.empty() || !running.empty()) {
    if (stops_early && totals.failures > 0) waiting.clear();
    const bool is_full = (int)running.size() >= jobs;
    const test_t *test = is_full ? nullptr : take_next(&waiting, running);
    if (test != nullptr)
      running.push_back(start(*test, jobs > 1, limit_s));
    else if (!running.empty())
      reap(&running, &totals);
  }
  return totals;
}

static totals_t run_here(const std::vector<test_t> &tests) {
  const uint64_t first_state = random_state;
  totals_t totals;
  for (const test_t &test : tests) {
    random_state = first_state;
    const int before = outcome->failures;
    test.body();
    if (outcome->failures > before) printf("FAIL test %s\n", test.name);
    totals.run++;
  }
  totals.checks = outcome->checks;
  totals.failures = outcome->failures;
  return totals;
}

int main(int argc, char **argv) {
  const char *seed = getenv("INFERD_TEST_SEED");
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  const bool no_fork = argc > 1 && strcmp(argv[1], "--no-fork") == 0;
  const int first = no_fork ? 2 : 1;
  setvbuf(stdout, nullptr, _IOLBF, 0);
  random_state = seed ? strtoull(seed, nullptr, 10) : (uint64_t)now;
  printf("INFERD_TEST_SEED=%llu\n", (unsigned long long)random_state);
  std::vector<test_t> tests; /* each sees the same random numbers, alone or among all */
  std::vector<bool> is_part(argc);
  for (const test_t &test : all_tests()) {
    bool wanted = argc == first;
    for (int i = first; i < argc; i++) {
      const bool has = strstr(test.name, argv[i]) != nullptr;
      is_part[i] = is_part[i] || has, wanted = wanted || has;
    }
    if (wanted) tests.push_back(test);
  }
  for (int i = first; i < argc; i++) {
    if (is_part[i]) continue;
    printf("FAIL %s is part of no test's name\n", argv[i]);
    return 2;
  }
  const totals_t totals = no_fork ? run_here(tests) : run_forked(tests);
  printf("%d tests, %d checks, %d failed\n", totals.run, totals.checks, totals.failures);
  return totals.failures > 0 || totals.run == 0;
}
