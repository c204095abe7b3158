/* per_layer.c: the operations of layers that have embeddings and a scalar of their own.
 *
 * Keeps no state. Called on the engine thread; pool workers take rows if there are enough.
 */
#include "engine/base/check.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

typedef struct picturing {
  const batch_t *batch;
  float *out;
  const weight_t *table;
  int32_t id;
  float scale;
} picturing_t;

static void pictures_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const picturing_t *job = context;
  for (int64_t i = first; i < last; i++)
    weight_unpack_row(job->table, job->id, job->scale, false,
                      job->out + (int64_t)job->batch->embedded_tokens[i] * job->table->cols);
}

static void cpu_embed_layer_pictures(device_t *device, act_t *out, const weight_t *table,
                                     int32_t id, float scale) {
  picturing_t job = {device->batch, FLOATS(out), table, id, scale};
  CHECK_RANGE(id, 0, table->rows);
  pool_run(device->pool, pictures_task, &job, device->batch->num_embedded,
           INLINE_ELEMENTS / table->cols + 1);
}

typedef struct gating_rows {
  const device_t *device;
  const input_gate_t *gate;
  float *out;
  const float *in, *factors;
} gating_rows_t;

static void gate_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const gating_rows_t *job = context;
  const input_gate_t *gate = job->gate;
  for (int64_t row = first; row < last; row++)
    job->device->kernels->activation(job->out + row * gate->width, job->in + row * gate->width,
                                     job->factors + row * gate->factors_width + gate->column,
                                     gate->activation, gate->width);
}

static void cpu_input_gate(device_t *device, act_t *out, const act_t *in, const act_t *factors,
                           const input_gate_t *gate, int32_t rows) {
  CHECK(activation_is_gated(gate->activation));
  CHECK_LE(gate->column + gate->width, gate->factors_width);
  gating_rows_t job = {device, gate, FLOATS(out), FLOATS(in), FLOATS(factors)};
  pool_run(device->pool, gate_task, &job, rows, INLINE_ELEMENTS / gate->width + 1);
}

typedef struct scaling {
  float *values;
  float factor;
  int32_t width;
} scaling_t;

static void scale_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const scaling_t *job = context;
  for (int64_t i = first * job->width; i < last * job->width; i++) job->values[i] *= job->factor;
}

static void cpu_scale(device_t *device, act_t *values, const vector_t *factor, int32_t width,
                      int32_t rows) {
  scaling_t job = {FLOATS(values), factor->values[0], width};
  pool_run(device->pool, scale_task, &job, rows, INLINE_ELEMENTS / width + 1);
}

const per_layer_ops_t cpu_per_layer_ops = {
    .embed_pictures = cpu_embed_layer_pictures, .gate = cpu_input_gate, .scale = cpu_scale};
