/* rows.c: operations that act on one row at a time: embeddings, norms, activations, copies.
 *
 * Keeps no state. Called on the engine thread; pool workers take rows if there are enough. All are
 * bound by memory bandwidth: a row is read once and written once.
 */
#include "engine/base/check.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <string.h>

/* Runs a row task on the pool, with chunks of at least INLINE_ELEMENTS elements. */
static void run_rows(device_t *device, pool_task_t task, void *context, int64_t rows,
                     int64_t width) {
  int64_t grain = width > 0 ? INLINE_ELEMENTS / width + 1 : 1;
  pool_run(device->pool, task, context, rows, grain);
}

typedef struct embedding {
  float *x;
  const weight_t *table;
  const int32_t *rows; /* [T] */
  int32_t offset;
  float scale;
  bool add;
} embedding_t;

static void embed_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const embedding_t *job = context;
  for (int64_t t = first; t < last; t++) {
    int64_t row = (int64_t)job->rows[t] + job->offset;
    CHECK_RANGE(row, 0, job->table->rows);
    weight_unpack_row(job->table, row, job->scale, job->add, job->x + t * job->table->cols);
  }
}

void cpu_embed(device_t *device, act_t *out, const weight_t *table, float scale) {
  embedding_t job = {FLOATS(out), table, device->batch->input_ids, 0, scale, false};
  run_rows(device, embed_task, &job, device->batch->num_tokens, table->cols);
}

void cpu_embed_positions(device_t *device, act_t *out, const weight_t *table, int32_t offset) {
  embedding_t job = {FLOATS(out), table, device->batch->positions, offset, 1, true};
  run_rows(device, embed_task, &job, device->batch->num_tokens, table->cols);
}

typedef struct placing {
  float *x;
  const weight_t *places;
  int32_t first;
} placing_t;

static void place_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const placing_t *job = context;
  for (int64_t i = first; i < last; i++)
    weight_unpack_row(job->places, job->first + i, 1, true, job->x + i * job->places->cols);
}

void cpu_cross_look_up(device_t *device, act_t *out, const cross_lookup_t *lookup, int32_t rows) {
  embedding_t job = {FLOATS(out), lookup->table, lookup->ids, 0, lookup->scale, false};
  if (lookup->table != NULL) run_rows(device, embed_task, &job, rows, lookup->table->cols);
  placing_t places = {FLOATS(out), lookup->places, lookup->first};
  if (lookup->places == NULL || rows == 0) return;
  CHECK_RANGE(lookup->first, 0, lookup->places->rows - rows + 1);
  run_rows(device, place_task, &places, rows, lookup->places->cols);
}

/* Rows that the table lacks are its first. */
static void known_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const embedding_t *job = context;
  for (int64_t t = first; t < last; t++) {
    int64_t row = job->rows[t] < job->table->rows ? job->rows[t] : 0;
    weight_unpack_row(job->table, row, job->scale, job->add, job->x + t * job->table->cols);
  }
}

void cpu_embed_types(device_t *device, act_t *out, const weight_t *table) {
  embedding_t job = {FLOATS(out), table, device->batch->token_types, 0, 1, true};
  run_rows(device, known_task, &job, device->batch->num_tokens, table->cols);
}

void cpu_embed_known(device_t *device, act_t *out, const weight_t *table, float scale) {
  embedding_t job = {FLOATS(out), table, device->batch->input_ids, 0, scale, false};
  run_rows(device, known_task, &job, device->batch->num_tokens, table->cols);
}

typedef struct showing {
  const batch_t *batch;
  float *out;
  int32_t plane, width;
} showing_t;

static void pictures_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const showing_t *job = context;
  for (int64_t i = first; i < last; i++) {
    float *out = job->out + (int64_t)job->batch->embedded_tokens[i] * job->width;
    const float *row = job->batch->embedded_rows[i] + (int64_t)job->plane * job->width;
    if (job->plane == 0) memcpy(out, row, (size_t)job->width * sizeof(float));
    for (int32_t c = 0; job->plane > 0 && c < job->width; c++) out[c] += row[c];
  }
}

void cpu_embed_pictures(device_t *device, act_t *out, int32_t plane, int32_t width) {
  showing_t job = {device->batch, FLOATS(out), plane, width};
  run_rows(device, pictures_task, &job, device->batch->num_embedded, width);
}

typedef struct norming {
  const kernels_t *kernels;
  float *out;
  const float *in, *residual;
  norm_args_t args;
} norming_t;

static void norm_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const norming_t *norming = context;
  for (int64_t row = first; row < last; row++) {
    int64_t at = row * norming->args.width;
    norming->kernels->norm(norming->out + at, norming->in + at,
                           norming->residual != NULL ? norming->residual + at : NULL,
                           &norming->args);
  }
}

void cpu_norm(device_t *device, act_t *out, const act_t *in, const act_t *residual,
              const norm_t *norm, int32_t rows) {
  norming_t norming = {device->kernels,
                       FLOATS(out),
                       FLOATS(in),
                       FLOATS(residual),
                       {norm->kind, norm->width, norm->eps,
                        norm->weight != NULL ? norm->weight->values : NULL,
                        norm->bias != NULL ? norm->bias->values : NULL}};
  run_rows(device, norm_task, &norming, rows, norm->width);
}

typedef struct activating {
  const kernels_t *kernels;
  float *out;
  const float *in;
  activation_t kind;
  int32_t width;
} activating_t;

static void activation_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const activating_t *job = context;
  bool gated = activation_is_gated(job->kind);
  for (int64_t row = first; row < last; row++) {
    const float *in = job->in + row * job->width * (gated ? 2 : 1);
    job->kernels->activation(job->out + row * job->width, in, gated ? in + job->width : NULL,
                             job->kind, job->width);
  }
}

void cpu_activation(device_t *device, act_t *out, const act_t *in, activation_t kind, int32_t width,
                    int32_t rows) {
  activating_t job = {device->kernels, FLOATS(out), FLOATS(in), kind, width};
  run_rows(device, activation_task, &job, rows, width);
}

typedef struct adding {
  const kernels_t *kernels;
  float *out;
  const float *in, *gate, *residual;
  int32_t width;
} adding_t;

static void add_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const adding_t *job = context;
  for (int64_t row = first; row < last; row++) {
    int64_t at = row * job->width;
    job->kernels->gated_add(job->out + at, job->in + at, job->residual + at, job->gate[row],
                            job->width);
  }
}

void cpu_gated_add(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                   const act_t *residual, int32_t width, int32_t rows) {
  adding_t job = {device->kernels, FLOATS(out), FLOATS(in), FLOATS(gate), FLOATS(residual), width};
  run_rows(device, add_task, &job, rows, width);
}

typedef struct reading {
  float *out;
  const float *in;
  int32_t width;
} reading_t;

static void read_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const reading_t *job = context;
  memcpy(job->out + first * job->width, job->in + first * job->width,
         (size_t)((last - first) * job->width) * sizeof(float));
}

void cpu_read_rows(device_t *device, float *out, const act_t *in, int32_t width, int32_t rows) {
  reading_t job = {out, FLOATS(in), width};
  run_rows(device, read_task, &job, rows, width);
}

void cpu_write_rows(device_t *device, act_t *out, const float *in, int32_t width, int32_t rows) {
  (void)device;
  memcpy(FLOATS(out), in, (size_t)rows * (size_t)width * sizeof(float));
}

typedef struct gathering {
  float *out;
  const float *in;
  const int32_t *indices;
  int32_t width;
} gathering_t;

static void gather_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const gathering_t *job = context;
  for (int64_t s = first; s < last; s++)
    memcpy(job->out + s * job->width, job->in + (int64_t)job->indices[s] * job->width,
           (size_t)job->width * sizeof(float));
}

void cpu_gather(device_t *device, act_t *out, const act_t *in, int32_t width) {
  gathering_t job = {FLOATS(out), FLOATS(in), device->batch->selected_token_indices, width};
  run_rows(device, gather_task, &job, device->batch->num_selected, width);
}
