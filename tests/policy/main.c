/* main.c: policies side by side over the same traces, and floors that must hold.
 *
 * Usage: policy [--policy TEXT] [--trace TEXT] [--seconds N] [--seed N] [--step-ms N] [--queue-s N]
 *               [--costs FILE] [--floors FILE]
 * Prints a row for each trace and policy. --step-ms and --queue-s replace the bounds of those
 * policies that have one. With --floors, a line `good hits trace: policy` of the file is the least
 * that this policy must reach there, and a policy with a floor of the cache must reach nine tenths
 * of the hits that a cache without bounds had: the exit status is 1 if one does not, or was not
 * run. One thread.
 */
#include "tests/policy/policy.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INFERD_OPTIONS                                                                             \
  .max_num_batched_tokens = 4096, .max_model_len = CONTEXT,                                        \
  .watermark_blocks = POOL_TOKENS / BLOCK_SIZE / 100, .reserve_full = true, .slice_blocks = 512,   \
  .chunked_prefill = true, .short_prompts_pass = true, .fair_share = true, .max_skips = 4,         \
  .max_preemptions = 3

#define INFERD_PACE .pace = {.step_ns = 40e6, .client_ns = 10e6, .bounds_admission = true}

/* The policy slo: what engine/start.c sets for it. */
#define INFERD_SLO                                                                                 \
  .pace = {.step_ns = 49.5e6, .bounds_admission = true}, .max_num_seqs = 1024, .ageing = 200,      \
  .fair_span = 8192, .queue_time_tokens = LONG_TOKENS

/* On a GPU of 80 GB: inferd's defaults; the same with more sequences; with the policy slo as well,
 * a second for the first token, and 20 tokens a second on average; and without a bound in time. The
 * defaults of vLLM (V1), whose scheduler is first come, first served, within tokens and blocks; and
 * those of SGLang. */
static const policy_t policies[] = {
    {.name = "inferd",
     .serve = serve_inferd,
     .options = {INFERD_OPTIONS, INFERD_PACE, .max_num_seqs = 256},
     .queue_s = 30,
     .queue_max = 1024},
    {.name = "inferd, 1024",
     .serve = serve_inferd,
     .options = {INFERD_OPTIONS, INFERD_PACE, .max_num_seqs = 1024},
     .queue_s = 30,
     .queue_max = 1024},
    {.name = "inferd, slo",
     .serve = serve_inferd,
     .options = {INFERD_OPTIONS, INFERD_SLO},
     .queue_s = 1,
     .queue_max = 1024},
    {.name = "inferd, floor",
     .serve = serve_inferd,
     .options = {INFERD_OPTIONS, INFERD_SLO},
     .queue_s = 1,
     .queue_max = 1024,
     .floor_times = 4},
    {.name = "inferd, tokens",
     .serve = serve_inferd,
     .options = {INFERD_OPTIONS, .max_num_seqs = 256},
     .queue_s = 30,
     .queue_max = 1024},
    {.name = "vLLM's",
     .serve = serve_inferd,
     .options = {.max_num_seqs = 1024,
                 .max_num_batched_tokens = 8192,
                 .max_model_len = CONTEXT,
                 .chunked_prefill = true}},
    {.name = "SGLang's", .serve = serve_lpm},
};

/* Requests (of agents: conversations) a second: what the machine can just bear, and above that. */
static const load_t loads[] = {
    {"chat", 16, 60},          {"chat", 22, 60},          {"code", 11, 60},
    {"code", 17, 60},          {"sharegpt", 60, 30},      {"sharegpt", 110, 30},
    {"sharegpt+long", 15, 60}, {"sharegpt+long", 30, 60}, {"agents", 4, 60},
    {"agents", 8, 60},         {"dialogues", 1.5, 240},   {"dialogues", 3, 240},
    {"documents", 3.5, 240},   {"two clients", 24, 60},   {"bursts", 14, 60},
};

typedef struct run {
  const char *policy, *trace, *costs, *floors;
  double seconds, step_ms, queue_s; /* 0 = as the load and the policy have it */
  uint64_t seed;
} run_t;

typedef struct row {
  char name[96];
  bool has_floor; /* of the cache */
  double bound;   /* of the trace, see world_bound */
  result_t result;
} row_t;

static row_t rows[256];
static int num_rows;

static bool read_costs(const char *path, coefficients_t *out) {
  char line[256];
  FILE *file = fopen(path, "r");
  bool found = false;
  while (file != NULL && !found && fgets(line, sizeof line, file) != NULL)
    found = sscanf(line, "%lf %lf %lf %lf %lf", &out->step, &out->token, &out->key, &out->pair,
                   &out->block) == 5;
  if (file != NULL) fclose(file);
  return found;
}

static void print(const row_t *row) {
  const result_t *r = &row->result;
  printf("%-34s %6d %5.2f %6.1f %7.1f %6.1f %5.1f %4d %8.0f %8.0f %7.1f %7.1f %6.1f %5.1f %8d "
         "%9.1f %8.2f "
         "%6.1f %5.0f %5.0f\n",
         row->name, r->count, r->load, 100 * row->bound, 100 * r->good, 100 * r->good_short,
         100 * r->good_long, r->num_long, r->first_p50_s * 1e3, r->first_p99_s * 1e3,
         r->token_s * 1e3, r->gap_p99_s * 1e3, 100 * r->hits, 100 * r->best_hits, r->refused,
         r->longest_wait_s, r->fairness, 100 * r->smallest, 100 * r->off_p50, 100 * r->off_p90);
  fflush(stdout);
}

static void serve(const run_t *run, const load_t *load, const coefficients_t *coefficients) {
  world_t *world = malloc(sizeof *world);
  load_t cut = *load;
  double bound = 0;
  if (world == NULL) exit(1);
  if (run->seconds > 0) cut.seconds = MIN(run->seconds, load->seconds);
  for (size_t i = 0; i < ARRAY_LEN(policies); i++) {
    policy_t policy = policies[i];
    if (run->policy != NULL && strstr(policy.name, run->policy) == NULL) continue;
    double *step_ns = &policy.options.pace.step_ns;
    if (run->step_ms > 0 && *step_ns > 0) *step_ns = 1e6 * run->step_ms;
    if (run->queue_s > 0 && policy.queue_s > 0) policy.queue_s = run->queue_s;
    row_t *row = &rows[num_rows++];
    row->has_floor = policy.floor_times > 0;
    snprintf(row->name, sizeof row->name, "%s %g: %s", load->kind, load->rate, policy.name);
    world_begin(world, &cut, run->seed, coefficients);
    if (bound == 0) bound = world_bound(world);
    policy.serve(world, &policy);
    row->bound = bound;
    row->result = world_result(world);
    world_end(world);
    print(row);
  }
  free(world);
}

/* Returns the number of rows that pass the bound of their trace: then the bound is wrong. */
static int check_bounds(void) {
  int failed = 0;
  for (int i = 0; i < num_rows; i++) {
    if (rows[i].result.good <= rows[i].bound) continue;
    failed++;
    printf("%s: %.1f %% in time, the bound is %.1f\n", rows[i].name, 100 * rows[i].result.good,
           100 * rows[i].bound);
  }
  return failed;
}

/* Returns the number of floors that are not reached. */
static int check_floors(const char *path) {
  char line[256];
  int failed = 0, count = 0;
  FILE *file = fopen(path, "r");
  if (file == NULL) return 1;
  while (fgets(line, sizeof line, file) != NULL) {
    double good, hits;
    int name_at = 0;
    if (sscanf(line, "%lf %lf %n", &good, &hits, &name_at) != 2) continue;
    const char *name = line + name_at;
    const row_t *row = NULL;
    line[strcspn(line, "\n")] = 0;
    for (int i = 0; i < num_rows; i++) row = strcmp(rows[i].name, name) == 0 ? &rows[i] : row;
    count++;
    if (row != NULL && row->has_floor) hits = MAX(hits, 90 * row->result.best_hits);
    if (row != NULL && 100 * row->result.good >= good && 100 * row->result.hits >= hits) continue;
    failed++;
    printf("%s: %.1f %% in time, %.1f %% cached; at least %.1f and %.1f\n", name,
           row != NULL ? 100 * row->result.good : 0, row != NULL ? 100 * row->result.hits : 0, good,
           hits);
  }
  fclose(file);
  printf("floors: %d passed, %d failed\n", count - failed, failed);
  return count > 0 ? failed : 1;
}

static bool read_arguments(run_t *run, int argc, char **argv) {
  for (int i = 1; i + 1 < argc; i += 2) {
    const char *value = argv[i + 1];
    if (strcmp(argv[i], "--policy") == 0) {
      run->policy = value;
    } else if (strcmp(argv[i], "--trace") == 0) {
      run->trace = value;
    } else if (strcmp(argv[i], "--seconds") == 0) {
      run->seconds = atof(value);
    } else if (strcmp(argv[i], "--step-ms") == 0) {
      run->step_ms = atof(value);
    } else if (strcmp(argv[i], "--queue-s") == 0) {
      run->queue_s = atof(value);
    } else if (strcmp(argv[i], "--seed") == 0) {
      run->seed = strtoull(value, NULL, 10);
    } else if (strcmp(argv[i], "--costs") == 0) {
      run->costs = value;
    } else if (strcmp(argv[i], "--floors") == 0) {
      run->floors = value;
    } else {
      return false;
    }
  }
  return argc % 2 == 1;
}

int main(int argc, char **argv) {
  run_t run = {.seed = 1, .costs = "tests/policy/costs.txt"};
  coefficients_t coefficients;
  if (!read_arguments(&run, argc, argv) || !read_costs(run.costs, &coefficients)) {
    fprintf(stderr, "usage: policy [--policy TEXT] [--trace TEXT] [--seconds N] [--seed N] "
                    "[--step-ms N] [--queue-s N] [--costs FILE] [--floors FILE]\n");
    return 2;
  }
  printf("%-34s %6s %5s %6s %7s %6s %5s %4s %8s %8s %7s %7s %6s %5s %8s %9s %8s %6s %5s %5s\n",
         "trace, a second: policy", "number", "load", "bound", "in time", "short", "long", "of",
         "TTFT p50", "p99, ms", "TPOT", "gap p99", "hits", "best", "refused", "longest, s",
         "fairness", "least", "off", "p90");
  for (size_t i = 0; i < ARRAY_LEN(loads); i++) {
    char name[64];
    snprintf(name, sizeof name, "%s %g", loads[i].kind, loads[i].rate);
    if (run.trace == NULL || strstr(name, run.trace) != NULL) serve(&run, &loads[i], &coefficients);
  }
  if (check_bounds() > 0) return 1;
  return run.floors != NULL && check_floors(run.floors) > 0;
}
