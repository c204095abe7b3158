/* values.c: operations that bound values, activations with numbers of a layer, and growth with the
 * position.
 *
 * Keeps no state. Called on the engine thread; pool workers take rows if there are enough.
 */
#include "engine/base/check.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <math.h>

typedef struct value_rows {
  const device_t *device;
  float *values;
  float limit;
  int32_t width;
  const growth_t *growth;
  float above, below, beta, eps; /* of xIELU, softplus taken */
} value_rows_t;

static void clamp_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const value_rows_t *job = context;
  for (int64_t i = first * job->width; i < last * job->width; i++) {
    if (job->values[i] < -job->limit) job->values[i] = -job->limit;
    if (job->values[i] > job->limit) job->values[i] = job->limit;
  }
}

static void cpu_clamp(device_t *device, act_t *out, float limit, int32_t width, int32_t rows) {
  value_rows_t job = {.device = device, .values = FLOATS(out), .limit = limit, .width = width};
  pool_run(device->pool, clamp_task, &job, rows, INLINE_ELEMENTS / width + 1);
}

static void xielu_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const value_rows_t *job = context;
  for (int64_t i = first * job->width; i < last * job->width; i++) {
    const float x = job->values[i];
    const float own = x > 0 ? job->above * x * x : (expm1f(fminf(x, job->eps)) - x) * job->below;
    job->values[i] = own + job->beta * x;
  }
}

static float softplus(float value) {
  return value > 20.0f ? value : log1pf(expf(value)); /* as torch */
}

static void cpu_xielu(device_t *device, act_t *out, const xielu_t *xielu, int32_t width,
                      int32_t rows) {
  const float beta = xielu->beta->values[0];
  value_rows_t job = {.device = device,
                      .values = FLOATS(out),
                      .width = width,
                      .above = softplus(xielu->above->values[0]),
                      .below = beta + softplus(xielu->below->values[0]),
                      .beta = beta,
                      .eps = xielu->eps->values[0]};
  pool_run(device->pool, xielu_task, &job, rows, INLINE_ELEMENTS / width + 1);
}

static void grow_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const value_rows_t *job = context;
  const growth_t *growth = job->growth;
  for (int64_t t = first; t < last; t++) {
    const int32_t position = job->device->batch->positions[t];
    if (position < growth->from) continue;
    const float factor = 1.0f + growth->beta * logf(1.0f + (float)(position / growth->from));
    float *row = job->values + t * growth->stride;
    for (int32_t i = 0; i < growth->width; i++) row[i] *= factor;
  }
}

static void cpu_grow(device_t *device, act_t *rows, const growth_t *growth) {
  CHECK_LE(growth->width, growth->stride);
  value_rows_t job = {.device = device, .values = FLOATS(rows), .growth = growth};
  pool_run(device->pool, grow_task, &job, device->batch->num_tokens,
           INLINE_ELEMENTS / growth->width + 1);
}

const value_ops_t cpu_value_ops = {.clamp = cpu_clamp, .xielu = cpu_xielu, .grow = cpu_grow};
