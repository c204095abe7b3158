/* altup.c: several residual streams, of which a layer computes one, and MLPs that keep the largest
 * values; the formulae are in altup_ops.h.
 *
 * Keeps no state. Called on the engine thread; pool workers take rows if there are enough.
 */
#include "engine/base/check.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <math.h>

enum { LANES = 16, N_MAX = ALTUP_STREAMS_MAX };
static const float LENGTH_MIN = 1e-5f; /* of a mean of squares */

typedef struct altup_rows {
  const altup_t *altup;
  float *streams[N_MAX];
  float *out;
  const float *computed; /* or what rows are matched with */
  float number;
  int32_t count, width, stride;
} altup_rows_t;

/* In an order that no instruction set changes. */
static float dot(const float *left, const float *right, int32_t count) {
  float sums[LANES] = {0}, sum = 0;
  int32_t i = 0;
  for (; i + LANES <= count; i += LANES)
    for (int32_t l = 0; l < LANES; l++) sums[l] += left[i + l] * right[i + l];
  for (; i < count; i++) sums[i % LANES] += left[i] * right[i];
  for (int32_t l = 0; l < LANES; l++) sum += sums[l];
  return sum;
}

/* The sum of the distances from a number, or of their squares; as above, in doubles. */
static double powers_from(const float *values, int32_t count, double from, bool square) {
  double sums[LANES] = {0}, sum = 0;
  for (int32_t i = 0; i < count; i += LANES) {
    for (int32_t l = 0; l < LANES && l < count - i; l++) {
      const double distance = values[i + l] - from;
      sums[l] += square ? distance * distance : distance;
    }
  }
  for (int32_t l = 0; l < LANES; l++) sum += sums[l];
  return sum;
}

static void mix(const altup_t *altup, const float *row, float *out) {
  const int32_t width = altup->width;
  const float length = sqrtf(dot(row, row, width) / (float)width + altup->eps);
  for (int32_t n = 0; n < altup->num_streams; n++)
    out[n] = tanhf(dot(&altup->router->values[(int64_t)n * width], row, width) / length);
}

static void predict_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const altup_rows_t *job = context;
  const altup_t *altup = job->altup;
  const int32_t count = altup->num_streams;
  for (int64_t row = first; row < last; row++) {
    float mixed[N_MAX], factors[N_MAX * N_MAX], old[N_MAX];
    mix(altup, job->streams[0] + row * altup->width, mixed);
    for (int32_t i = 0; i < count * count; i++)
      factors[i] = dot(&altup->prediction->values[i * count], mixed, count);
    for (int64_t i = row * altup->width; i < (row + 1) * altup->width; i++) {
      for (int32_t k = 0; k < count; k++) old[k] = job->streams[k][i];
      for (int32_t n = 0; n < count; n++) {
        float sum = 0;
        for (int32_t k = 0; k < count; k++) sum += factors[n * count + k] * old[k];
        job->streams[n][i] = sum + old[n];
      }
    }
  }
}

static void correct_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const altup_rows_t *job = context;
  const altup_t *altup = job->altup;
  for (int64_t row = first; row < last; row++) {
    const int64_t begin = row * altup->width;
    float mixed[N_MAX], factors[N_MAX];
    mix(altup, job->computed + begin, mixed);
    for (int32_t n = 0; n < altup->num_streams; n++)
      factors[n] =
          dot(&altup->correction->values[n * altup->num_streams], mixed, altup->num_streams) + 1;
    for (int32_t i = 0; i < altup->width; i++) {
      const float change = job->computed[begin + i] - job->streams[0][begin + i];
      for (int32_t n = 0; n < altup->num_streams; n++)
        job->streams[n][begin + i] += change * factors[n];
      job->out[begin + i] =
          job->streams[0][begin + i] * (altup->scale != NULL ? altup->scale->values[i] : 1);
    }
  }
}

static void match_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const altup_rows_t *job = context;
  for (int64_t row = first; row < last; row++) {
    const float *like = job->computed + row * job->width;
    float *out = job->out + row * job->width;
    const float wanted = sqrtf(dot(like, like, job->width) / (float)job->width);
    const float mean = dot(out, out, job->width) / (float)job->width;
    const float length = sqrtf(fmaxf(mean, LENGTH_MIN));
    for (int32_t i = 0; i < job->width; i++) out[i] = out[i] * wanted / length;
  }
}

static void sum_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const altup_rows_t *job = context;
  for (int64_t i = first * job->width; i < last * job->width; i++) {
    float sum = job->streams[0][i];
    for (int32_t n = 1; n < job->count; n++) sum += job->streams[n][i];
    job->out[i] = sum * job->number;
  }
}

static void keep_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const altup_rows_t *job = context;
  for (int64_t row = first; row < last; row++) {
    float *values = job->out + row * job->stride;
    const double mean = powers_from(values, job->width, 0, false) / job->width;
    const double variance = powers_from(values, job->width, mean, true) / job->width;
    const float least = (float)(mean + job->number * sqrt(variance));
    for (int32_t i = 0; i < job->width; i++) values[i] = fmaxf(values[i] - least, 0);
  }
}

static void run(device_t *device, pool_task_t task, altup_rows_t *job, int32_t width,
                int32_t rows) {
  pool_run(device->pool, task, job, rows, INLINE_ELEMENTS / width + 1);
}

static void take_streams(altup_rows_t *job, act_t *const *streams, int32_t count) {
  CHECK_RANGE(count, 1, N_MAX + 1);
  for (int32_t n = 0; n < count; n++) job->streams[n] = FLOATS(streams[n]);
}

static void cpu_predict(device_t *device, act_t *const *streams, const altup_t *altup,
                        int32_t rows) {
  altup_rows_t job = {.altup = altup};
  take_streams(&job, streams, altup->num_streams);
  run(device, predict_task, &job, altup->width, rows);
}

static void cpu_correct(device_t *device, act_t *const *streams, act_t *out, const act_t *computed,
                        const altup_t *altup, int32_t rows) {
  altup_rows_t job = {.altup = altup, .out = FLOATS(out), .computed = FLOATS(computed)};
  take_streams(&job, streams, altup->num_streams);
  run(device, correct_task, &job, altup->width, rows);
}

static void cpu_match(device_t *device, act_t *out, const act_t *like, int32_t width,
                      int32_t rows) {
  altup_rows_t job = {.out = FLOATS(out), .computed = FLOATS(like), .width = width};
  run(device, match_task, &job, width, rows);
}

static void cpu_sum(device_t *device, act_t *out, act_t *const *parts, int32_t count, float factor,
                    int32_t width, int32_t rows) {
  altup_rows_t job = {.out = FLOATS(out), .number = factor, .count = count, .width = width};
  take_streams(&job, parts, count);
  run(device, sum_task, &job, width, rows);
}

static void cpu_keep_largest(device_t *device, act_t *out, float deviations, int32_t width,
                             int32_t stride, int32_t rows) {
  altup_rows_t job = {.out = FLOATS(out), .number = deviations, .width = width, .stride = stride};
  CHECK_LE(width, stride);
  run(device, keep_task, &job, width, rows);
}

const altup_ops_t cpu_altup_ops = {.embed = cpu_embed_known,
                                   .predict = cpu_predict,
                                   .correct = cpu_correct,
                                   .match = cpu_match,
                                   .sum = cpu_sum,
                                   .keep_largest = cpu_keep_largest};
