/* world.c: the clock, what comes, and what each request got; the contract is in policy.h. */
#include "tests/policy/policy.h"

#include "engine/base/random.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double DRAIN_S = 60;
static const double WAIT_S = 0.5; /* shorter waits are no test of a forecast */

void world_begin(world_t *world, const load_t *load, uint64_t seed,
                 const coefficients_t *coefficients) {
  *world = (world_t){.coefficients = *coefficients, .end_s = load->seconds + DRAIN_S};
  if (!trace_make(load, seed, &world->trace)) exit(1);
}

static void forget(job_t *job) {
  free(job->ids);
  free(job->keys);
  job->ids = NULL;
  job->keys = NULL;
}

void world_end(world_t *world) {
  for (int i = 0; i < world->trace.count; i++) forget(&world->trace.jobs[i]);
  free(world->trace.jobs);
}

static void make_ids(const world_t *world, job_t *job) {
  int32_t length = job->prompt + job->output;
  job->ids = malloc((size_t)length * sizeof *job->ids);
  job->keys = malloc((size_t)(length / BLOCK_SIZE + 1) * sizeof *job->keys);
  if (job->ids == NULL || job->keys == NULL) exit(1);
  for (int32_t i = 0; i < length; i++) {
    uint64_t text = i < job->num_system ? job->system : job->text;
    job->ids[i] = (int32_t)(random_mix(text + (uint64_t)i * RANDOM_GAMMA) >> 40);
  }
  prefix_keys(world->pool, 0, job->ids, length / BLOCK_SIZE, job->keys);
}

/* Of the two lists the job that comes first; NULL = none is left. */
static job_t *peek(const world_t *world) {
  job_t *first =
      world->next < world->trace.num_first_turns ? &world->trace.jobs[world->next] : NULL;
  if (first == NULL || (world->later != NULL && world->later->due_s < first->due_s))
    return world->later;
  return first;
}

job_t *world_arrival(world_t *world) {
  job_t *job = peek(world);
  if (job == NULL || job->due_s > world->now_s) return NULL;
  if (job == world->later) {
    world->later = job->later;
  } else {
    world->next++;
  }
  job->came_s = MAX(job->due_s, 1e-9);
  make_ids(world, job);
  return job;
}

bool world_wait(world_t *world) {
  const job_t *job = peek(world);
  if (job == NULL || job->due_s >= world->end_s) return false;
  world->now_s = MAX(world->now_s, job->due_s);
  return true;
}

bool world_is_over(const world_t *world) {
  return world->now_s >= world->end_s;
}

double world_step(world_t *world, double tokens, double keys, double pairs) {
  const coefficients_t *c = &world->coefficients;
  double ns = c->step + c->token * tokens + c->key * keys + c->pair * pairs;
  world->now_s += ns * 1e-9;
  world->busy_s += ns * 1e-9;
  return ns;
}

double world_copy(world_t *world, int32_t num_blocks) {
  double ns = world->coefficients.block * num_blocks;
  world->now_s += ns * 1e-9;
  world->busy_s += ns * 1e-9;
  return ns;
}

void world_note_begun(world_t *world, job_t *job, int32_t num_cached) {
  bool *seen = &world->system_was_seen[job->system];
  int32_t best = *seen ? MAX(job->num_before, job->num_system) : job->num_before;
  *seen = true;
  world->best_tokens += MAX(MIN(best, job->prompt - 1), num_cached);
  job->num_cached = num_cached;
  world->prompt_tokens += job->prompt;
  world->cached_tokens += num_cached;
}

void world_note_token(world_t *world, job_t *job) {
  if (job->num_tokens++ == 0) {
    job->first_s = world->now_s;
  } else {
    int bin = (int)((world->now_s - job->last_s) * 1e4);
    world->gaps[MIN(bin, GAP_BINS - 1)]++;
  }
  job->last_s = world->now_s;
}

void world_note_end(world_t *world, job_t *job, bool refused) {
  job->refused = refused;
  if (refused) job->last_s = world->now_s;
  forget(job);
  job_t *next = refused ? NULL : job->next_turn;
  if (next == NULL) return;
  next->due_s += world->now_s;
  job_t **link = &world->later;
  while (*link != NULL && (*link)->due_s <= next->due_s) link = &(*link)->later;
  next->later = *link;
  *link = next;
}

/* ---- what came out ---- */

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

static double quantile(const double *sorted, int count, double share) {
  return count > 0 ? sorted[MIN((int)(share * count), count - 1)] : 0;
}

static double gap_quantile(const world_t *world, double share) {
  uint64_t total = 0, below = 0;
  int bin = 0;
  for (int i = 0; i < GAP_BINS; i++) total += world->gaps[i];
  while (bin < GAP_BINS - 1 && (double)(below + world->gaps[bin]) < share * (double)total)
    below += world->gaps[bin++];
  return (bin + 1) * 1e-4;
}

static double token_time(const job_t *job) {
  return job->num_tokens > 1 ? (job->last_s - job->first_s) / (job->num_tokens - 1) : 0;
}

double world_first_limit_s(const job_t *job) {
  return 1e-3 * FIRST_MS * MAX(1, (double)job->prompt / LONG_TOKENS);
}

static bool is_long(const job_t *job) {
  return job->prompt > LONG_TOKENS;
}

static bool is_good(const job_t *job) {
  return job->num_tokens == job->output && job->first_s - job->came_s <= world_first_limit_s(job) &&
         token_time(job) <= 1e-3 * TOKEN_MS;
}

/* The time of a request alone in large steps, in seconds, less what the cache had. */
static double work_s(const coefficients_t *c, const job_t *job) {
  double prompt = job->prompt, output = job->output, cached = job->num_cached;
  double pairs = (prompt * prompt - cached * cached) / 2;
  double keys = output * (prompt + output / 2);
  return (c->token * (prompt - cached + output) + c->key * keys + c->pair * pairs) * 1e-9;
}

/* The quantiles of the relative errors of forecasts; 0 where none was due. */
static void rate_forecasts(const world_t *world, double *errors, result_t *result) {
  int count = 0;
  for (int i = 0; i < world->trace.count; i++) {
    const job_t *job = &world->trace.jobs[i];
    double wait_s = job->first_s - job->came_s;
    if (job->first_s == 0 || job->forecast_s == 0 || wait_s < WAIT_S) continue;
    errors[count++] = fabs(job->forecast_s / wait_s - 1);
  }
  qsort(errors, (size_t)count, sizeof *errors, compare);
  result->off_p50 = quantile(errors, count, 0.5);
  result->off_p90 = quantile(errors, count, 0.9);
}

static double jain(const double *good, const int *count) {
  double sum = 0, squares = 0;
  int tenants = 0;
  for (int i = 0; i < TENANTS; i++) {
    if (count[i] == 0) continue;
    double share = good[i] / count[i];
    sum += share;
    squares += share * share;
    tenants++;
  }
  return squares > 0 ? sum * sum / (tenants * squares) : 1;
}

static double share_of_smallest(const double *good, const int *count) {
  int smallest = -1;
  for (int i = 0; i < TENANTS; i++) {
    if (count[i] > 0 && (smallest < 0 || count[i] < count[smallest])) smallest = i;
  }
  return smallest >= 0 ? good[smallest] / count[smallest] : 1;
}

result_t world_result(const world_t *world) {
  double prompts = (double)MAX(world->prompt_tokens, 1);
  result_t result = {.hits = (double)world->cached_tokens / prompts,
                     .best_hits = (double)world->best_tokens / prompts};
  double *firsts = calloc((size_t)world->trace.count + 1, sizeof *firsts);
  double good[TENANTS] = {0}, token_s = 0;
  int num_firsts = 0, num_timed = 0, of[TENANTS] = {0};
  if (firsts == NULL) exit(1);
  for (int i = 0; i < world->trace.count; i++) {
    const job_t *job = &world->trace.jobs[i];
    if (job->came_s == 0) continue;
    double until_s = job->first_s > 0 ? job->first_s : job->refused ? job->last_s : world->end_s;
    result.count++;
    result.load += work_s(&world->coefficients, job) / (world->end_s - DRAIN_S);
    result.refused += job->refused;
    result.longest_wait_s = MAX(result.longest_wait_s, until_s - job->came_s);
    of[job->tenant]++;
    good[job->tenant] += is_good(job);
    result.good += is_good(job);
    result.num_long += is_long(job);
    *(is_long(job) ? &result.good_long : &result.good_short) += is_good(job);
    if (job->first_s > 0) firsts[num_firsts++] = job->first_s - job->came_s;
    if (job->num_tokens > 1) token_s += token_time(job);
    num_timed += job->num_tokens > 1;
  }
  qsort(firsts, (size_t)num_firsts, sizeof *firsts, compare);
  result.good /= MAX(result.count, 1);
  result.good_long /= MAX(result.num_long, 1);
  result.good_short /= MAX(result.count - result.num_long, 1);
  result.first_p50_s = quantile(firsts, num_firsts, 0.5);
  result.first_p99_s = quantile(firsts, num_firsts, 0.99);
  rate_forecasts(world, firsts, &result);
  result.token_s = token_s / MAX(num_timed, 1);
  result.gap_p99_s = gap_quantile(world, 0.99);
  result.fairness = jain(good, of);
  result.smallest = share_of_smallest(good, of);
  free(firsts);
  return result;
}
