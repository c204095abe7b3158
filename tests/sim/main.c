/* main.c: the simulator's program: runs seeds, and makes a failing one small.
 *
 *   sim [--seed FIRST] [--steps N] [--verbose] [--no-shrink]   seeds FIRST, FIRST + 1, ...
 *   sim --with F,F ...                                         all seeds have these features
 *   sim --seed S --replay [--remove F,F] [--drop 1,4-9]        one seed, smaller by these
 *   sim --torture                                              every call fails once
 *   sim --soak REQUESTS                                        many requests, cancels, no leak
 *   sim --overload                                             five times too much
 *
 * Simulations run in a child process, because a broken promise ends the process that found it. The
 * parent then names the seed, shrinks it (takes features and requests away while it still fails),
 * and prints the command that shows the smallest form. Exit status 1 when anything failed.
 */
#include "tests/sim/followers.h"
#include "tests/sim/law.h"

#include <getopt.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

/* SEED_LIMIT_S is processor time: a machine that is busy elsewhere proves nothing. */
enum { EXIT_BROKEN = 9, SEED_LIMIT_S = 10, SHRINK_RUNS_MAX = 600 };

/* Heap blocks of this size and above are pages of their own. */
enum { PAGES_FROM_BYTES = 256 << 10 };

/* What the child tells its parent, also when it dies. */
typedef struct report {
  uint64_t seed, seeds, steps, reads;
  followers_count_t ranks;
  law_waits_t waits;
  char message[512];
} report_t;

static report_t *report;
static scenario_t scenario;

void sim_fail(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int used = snprintf(report->message, sizeof report->message,
                      "iteration %" PRIu64 ", step %" PRIu64 ": ", sim.iteration, sim.steps);
  vsnprintf(report->message + used, sizeof report->message - (size_t)used, format, args);
  va_end(args);
  _exit(EXIT_BROKEN);
}

static void run_seed(uint64_t seed) {
  report->seed = seed;
  const struct itimerval limit = {.it_value.tv_sec = SEED_LIMIT_S};
  setitimer(ITIMER_PROF, &limit, NULL);
  scenario_make(&scenario, seed);
  report->steps += sim_run(&scenario);
  report->reads = device_reads();
  report->ranks = *followers_count();
  report->waits = law_longest();
  report->seeds++;
}

/* Runs `work` in a child. True when it ended well. */
static bool in_child(void (*work)(void *context), void *context, bool quiet) {
  report->message[0] = '\0';
  fflush(NULL);
  pid_t pid = fork();
  if (pid < 0) {
    perror("sim");
    exit(2);
  }
  if (pid == 0) {
    if (quiet && (!freopen("/dev/null", "w", stderr) || !freopen("/dev/null", "w", stdout))) {
      _exit(2);
    }
    work(context);
    exit(0);
  }
  int status;
  waitpid(pid, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  if (!report->message[0] && WIFSIGNALED(status)) {
    snprintf(report->message, sizeof report->message, "%s",
             WTERMSIG(status) == SIGPROF ? "it does not end" : strsignal(WTERMSIG(status)));
  } else if (!report->message[0]) {
    snprintf(report->message, sizeof report->message, "exit status %d", WEXITSTATUS(status));
  }
  return false;
}

/* ---- shrinking ---- */

static void replay(void *context) {
  run_seed(*(const uint64_t *)context);
}

static bool fails(uint64_t seed) {
  return !in_child(replay, &seed, true);
}

static void shrink_requests(uint64_t seed, int count, int *runs) {
  for (int size = (count + 1) / 2; size >= 1; size /= 2) {
    for (int first = 0; first < count && *runs < SHRINK_RUNS_MAX; first += size) {
      bool kept[SIM_REQUESTS_MAX];
      memcpy(kept, scenario.dropped, sizeof kept);
      int end = first + size < count ? first + size : count, news = 0;
      for (int i = first; i < end; i++) news += !scenario.dropped[i];
      if (news == 0) continue;
      for (int i = first; i < end; i++) scenario.dropped[i] = true;
      ++*runs;
      if (!fails(seed)) memcpy(scenario.dropped, kept, sizeof kept);
    }
  }
}

static void shrink_features(uint64_t seed, int *runs) {
  for (int f = 0; f < SIM_FEATURE_COUNT; f++) {
    if (!scenario_has(&scenario, (sim_feature_t)f)) continue;
    scenario.removed |= UINT64_C(1) << f;
    ++*runs;
    if (!fails(seed)) scenario.removed &= ~(UINT64_C(1) << f);
  }
}

static void print_set(const char *separator, uint64_t features) {
  for (int f = 0; f < SIM_FEATURE_COUNT; f++) {
    if (!(features >> f & 1)) continue;
    printf("%s%s", separator, scenario_feature_name(f));
    separator = ",";
  }
}

static void print_command(uint64_t seed) {
  printf("  replay: sim --seed %" PRIu64 " --replay", seed);
  print_set(" --with ", scenario.forced);
  print_set(" --remove ", scenario.removed);
  const char *separator = " --drop ";
  for (int i = 0; i < scenario.count; i++) {
    int end = i;
    while (end < scenario.count && scenario.dropped[end]) end++;
    if (end == i) continue;
    printf(end - i == 1 ? "%s%d" : "%s%d-%d", separator, i, end - 1);
    separator = ",";
    i = end;
  }
  printf("\n");
}

static void shrink(uint64_t seed) {
  int runs = 0;
  scenario_make(&scenario, seed);
  int count = scenario.count;
  if (!fails(seed)) {
    printf("  alone it does not fail: something is left from the seeds before it\n");
    return;
  }
  for (int round = 0; round < 2; round++) {
    shrink_requests(seed, count, &runs);
    shrink_features(seed, &runs);
    scenario_make(&scenario, seed);
  }
  int left = 0;
  for (int i = 0; i < count; i++) left += !scenario.dropped[i];
  fails(seed);
  printf("  smallest: %d of %d requests, after %d runs: %s\n", left, count, runs, report->message);
  print_command(seed);
}

/* ---- the command line ---- */

typedef struct range {
  uint64_t first, steps;
} range_t;

static void run_range(void *context) {
  const range_t *range = context;
  while (report->steps < range->steps) run_seed(range->first + report->seeds);
}

/* Adds the features of the list to a set. */
static int parse_features(char *list, uint64_t *features) {
  for (char *name = strtok(list, ","); name; name = strtok(NULL, ",")) {
    int feature = scenario_feature(name);
    if (feature < 0) {
      fprintf(stderr, "sim: there is no feature \"%s\"\n", name);
      return 2;
    }
    *features |= UINT64_C(1) << feature;
  }
  return 0;
}

static int parse_drop(char *list) {
  for (char *item = strtok(list, ","); item; item = strtok(NULL, ",")) {
    int first, last;
    int found = sscanf(item, "%d-%d", &first, &last);
    if (found == 1) last = first;
    if (found < 1 || first < 0 || last >= SIM_REQUESTS_MAX) {
      fprintf(stderr, "sim: \"%s\" is no range of requests\n", item);
      return 2;
    }
    for (int i = first; i <= last; i++) scenario.dropped[i] = true;
  }
  return 0;
}

static void print_features(void) {
  scenario_make(&scenario, scenario.seed);
  printf("seed %" PRIu64 ", %d requests:", scenario.seed, scenario.count);
  for (int f = 0; f < SIM_FEATURE_COUNT; f++) {
    if (scenario_has(&scenario, (sim_feature_t)f)) printf(" %s", scenario_feature_name(f));
  }
  const engine_options_t *o = &scenario.options;
  printf("\n  %d blocks of %d, context %lld, %d sequences, budget %d\n", o->num_blocks - 1,
         o->block_size, (long long)o->max_model_len, o->max_num_seqs, o->max_num_batched_tokens);
}

static int run_all(range_t range, bool verbose, bool shrinks) {
  bool well = in_child(run_range, &range, false);
  struct rusage used; /* of the child: others may want the core too */
  getrusage(RUSAGE_CHILDREN, &used);
  double seconds = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                   (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) * 1e-6;
  if (well) {
    printf("sim: %" PRIu64 " seeds from %" PRIu64 ", %" PRIu64 " steps, %" PRIu64
           " slots verified, no promise broken; %.1f s of a core, %.0f steps/s\n",
           report->seeds, range.first, report->steps, report->reads, seconds,
           (double)report->steps / seconds);
    printf("sim: who was below its share began within %d steps, with those that do not count %d\n",
           report->waits.counted, report->waits.all);
    printf("sim: whose prompts ran and lacked time alone had a row within %d steps\n",
           report->waits.rows);
    if (report->ranks.runs > 0)
      printf("sim: several ranks %" PRIu64 " times, %" PRIu64 " of them failed and started again\n",
             report->ranks.runs - report->ranks.restarts, report->ranks.restarts);
    return 0;
  }
  uint64_t seed = report->seed;
  printf("sim: seed %" PRIu64 " FAILED after %" PRIu64 " steps in %" PRIu64 " seeds: %s\n", seed,
         report->steps, report->seeds, report->message);
  scenario.seed = seed;
  if (verbose) print_features();
  fflush(stdout);
  if (shrinks) shrink(seed);
  return 1;
}

typedef struct other {
  int mode; /* option letter */
  uint64_t count;
} other_t;

static void run_other(void *context) {
  const other_t *other = context;
  if (other->mode == 't') torture_run();
  if (other->mode == 'k') load_soak(other->count);
  if (other->mode == 'o') load_overload();
}

/* Every seed starts an engine, whose tables take some 10 MB and are hardly used. As pages of their
 * own these tables come zeroed from the system, page by page as the engine touches them. On the
 * heap calloc would clear all of them for each seed, which was a fifth of the simulator's time. */
static void keep_tables_off_heap(void) {
  mallopt(M_MMAP_THRESHOLD, PAGES_FROM_BYTES);
  mallopt(M_TRIM_THRESHOLD, PAGES_FROM_BYTES); /* the heap's end has no room for a table */
}

int main(int argc, char **argv) {
  static const struct option options[] = {
      {"seed", required_argument, NULL, 's'}, {"steps", required_argument, NULL, 'n'},
      {"replay", no_argument, NULL, 'r'},     {"remove", required_argument, NULL, 'f'},
      {"with", required_argument, NULL, 'm'}, {"drop", required_argument, NULL, 'd'},
      {"verbose", no_argument, NULL, 'v'},    {"no-shrink", no_argument, NULL, 'w'},
      {"torture", no_argument, NULL, 't'},    {"soak", required_argument, NULL, 'k'},
      {"overload", no_argument, NULL, 'o'},   {NULL, 0, NULL, 0},
  };
  keep_tables_off_heap();
  range_t range = {.first = 1, .steps = 1000000};
  bool once = false, verbose = false, shrinks = true;
  other_t other = {0};
  for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
    if (option == '?') return 2;
    if (option == 's') range.first = strtoull(optarg, NULL, 10);
    if (option == 'n') range.steps = strtoull(optarg, NULL, 10);
    if (option == 'r') once = true;
    if (option == 'v') verbose = true;
    if (option == 'w') shrinks = false;
    if (option == 't' || option == 'k' || option == 'o') other.mode = option;
    if (option == 'k') other.count = strtoull(optarg, NULL, 10);
    if (option == 'f' && parse_features(optarg, &scenario.removed)) return 2;
    if (option == 'm' && parse_features(optarg, &scenario.forced)) return 2;
    if (option == 'd' && parse_drop(optarg)) return 2;
  }
  report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (report == MAP_FAILED) return 2;
  scenario.seed = range.first;
  if (other.mode) {
    bool held = in_child(run_other, &other, false);
    if (!held) printf("sim: %s\n", report->message);
    return !held;
  }
  if (!once) return run_all(range, verbose, shrinks);
  print_features();
  bool well = in_child(replay, &range.first, false);
  printf("%s\n", well ? "no promise broken" : report->message);
  return !well;
}
