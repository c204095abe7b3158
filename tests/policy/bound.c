/* bound.c: what no order of serving can exceed; the contract is in policy.h.
 *
 * In a window of time the device can do no more work than fits into it. Of a request that comes in
 * the window, the prompt is due in it if the first token is, and all if the last token is. Where
 * that is more than the window holds, some are late: fewest if those with the least work are
 * served. Windows that do not overlap have their late requests apart, so these add up, and the
 * windows are chosen that have the most. The device is taken to know every length beforehand, to
 * lose no time between steps, and to have in its cache all that any request before has had. One
 * thread.
 */
#include "tests/policy/policy.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>

static const double TICK_S = 0.25;
static const int LENGTHS[] = {4, 5, 6, 8, 10, 12, 16, 24, 32, 64, 128, 256, 512, 1024}; /* ticks */

static int compare(const void *left, const void *right) {
  double a = *(const double *)left, b = *(const double *)right;
  return (a > b) - (a < b);
}

/* What the request asks for that must be done by `end_s`, in seconds. */
static double due_work_s(const world_t *world, const job_t *job, double end_s) {
  const coefficients_t *c = &world->coefficients;
  double prompt = job->prompt, output = job->output;
  double cached = MIN(MAX(job->num_system, job->num_before), job->prompt - 1);
  double first_s = job->due_s + world_first_limit_s(job);
  double ns = c->token * (prompt - cached) + c->pair * (prompt * prompt - cached * cached) / 2;
  if (first_s > end_s) return 0;
  if (first_s + (output - 1) * 1e-3 * TOKEN_MS <= end_s)
    ns += (output - 1) * (c->token + c->key * (prompt + output / 2));
  return ns * 1e-9;
}

/* How many of the requests that come in a window and are due in it cannot all be in time. */
static int count_late(const world_t *world, double begin_s, double end_s, double *work) {
  int count = 0, fit = 0;
  double left_s = end_s - begin_s;
  for (int i = 0; i < world->trace.count; i++) {
    const job_t *job = &world->trace.jobs[i];
    if (job->due_s < begin_s || job->due_s > end_s) continue;
    work[count] = due_work_s(world, job, end_s);
    count += work[count] > 0;
  }
  qsort(work, (size_t)count, sizeof *work, compare);
  while (fit < count && work[fit] <= left_s) left_s -= work[fit++];
  return count - fit;
}

double world_bound(const world_t *world) {
  const trace_t *trace = &world->trace;
  if (trace->num_first_turns < trace->count || trace->count == 0) return 1;
  int ticks = (int)ceil(world->end_s / TICK_S) + 1;
  int *most = calloc((size_t)ticks, sizeof *most);
  double *work = calloc((size_t)trace->count, sizeof *work);
  if (most == NULL || work == NULL) exit(1);
  for (int end = 1; end < ticks; end++) {
    most[end] = most[end - 1];
    for (size_t i = 0; i < ARRAY_LEN(LENGTHS) && LENGTHS[i] <= end; i++) {
      int begin = end - LENGTHS[i];
      int late = count_late(world, begin * TICK_S, end * TICK_S, work);
      most[end] = MAX(most[end], most[begin] + late);
    }
  }
  double bound = 1 - (double)most[ticks - 1] / trace->count;
  free(most);
  free(work);
  return bound;
}
