/* ranks.c: the CPU as one of several ranks: columns, embeddings, logits and expert outputs of all.
 *
 * Engine thread; pool workers move rows. What the ranks exchange lies in `gathered`, the part of
 * one rank behind that of another, and is then put where it belongs. A comm_t that has failed does
 * nothing: the step goes on with wrong numbers, and `end` says that the device is lost.
 */
#include "engine/cpu/ranks.h"
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/cpu/act.h"
#include "engine/cpu/cpu.h"

#include <string.h>

int ranks_prepare(device_t *device, inferd_error_t *error) {
  const step_limits_t *limits = &device->limits;
  if (device->comm == NULL) return 0;
  size_t rows = (size_t)limits->tokens_max * (size_t)limits->hidden_max;
  size_t logits = (size_t)limits->logits_rows_max * (size_t)limits->vocab_size, bytes;
  if (!size_product(&bytes, MAX(rows, logits), sizeof(float), 1)) bytes = SIZE_MAX;
  device->gathered = memory_take(device, bytes);
  device->places = memory_take(device, (size_t)limits->tokens_max * sizeof(int32_t));
  if (device->gathered == NULL || device->places == NULL)
    return no_memory(error, "what ranks exchange", bytes);
  return 0;
}

/* Bytes of the parts of the ranks, for `rows` rows of which each has the columns of `cuts`. */
static void byte_cuts(const device_t *device, const int32_t *cuts, int64_t rows, size_t *out) {
  for (int32_t r = 0; r <= device->comm->size; r++)
    out[r] = (size_t)(rows * cuts[r]) * sizeof(float);
}

/* Rows whose columns are in `gathered`, rank by rank. */
typedef struct spreading {
  const device_t *device;
  float *out;
  const float *residual;
  const int32_t *cuts;
  int64_t rows, stride; /* of out */
} spreading_t;

static void spread_task(void *context, int64_t first, int64_t last, int worker) {
  (void)worker;
  const spreading_t *job = context;
  for (int64_t row = first; row < last; row++) {
    float *out = job->out + row * job->stride;
    const float *residual = job->residual != NULL ? job->residual + row * job->stride : NULL;
    for (int32_t r = 0; r < job->device->comm->size; r++) {
      const int64_t begin = job->cuts[r], width = job->cuts[r + 1] - begin;
      const float *in = job->device->gathered + job->rows * begin + row * width;
      if (residual == NULL) memcpy(out + begin, in, (size_t)width * sizeof *out);
      for (int64_t i = 0; residual != NULL && i < width; i++)
        out[begin + i] = in[i] + residual[begin + i];
    }
  }
}

static void cpu_gather_columns(device_t *device, act_t *out, const act_t *own,
                               const act_t *residual, const int32_t *cuts, int32_t rows) {
  const comm_t *comm = device->comm;
  size_t bytes[RANKS_MAX + 1];
  byte_cuts(device, cuts, rows, bytes);
  memcpy((uint8_t *)device->gathered + bytes[comm->rank], FLOATS(own),
         bytes[comm->rank + 1] - bytes[comm->rank]);
  if (comm_gather(device->comm, device->gathered, bytes, -1) != 0) return;
  const int32_t width = cuts[comm->size];
  spreading_t job = {device, FLOATS(out), FLOATS(residual), cuts, rows, width};
  pool_run(device->pool, spread_task, &job, rows, 1 + INLINE_ELEMENTS / width);
}

static void cpu_reduce(device_t *device, act_t *out, act_t *sums, const act_t *residual,
                       int32_t width, int32_t rows) {
  const int64_t count = (int64_t)rows * width;
  const float *from = FLOATS(residual), *whole = FLOATS(sums);
  float *to = FLOATS(out);
  if (comm_reduce(device->comm, FLOATS(sums), (size_t)count) != 0) return;
  if (from == NULL)
    memcpy(to, whole, (size_t)count * sizeof *to);
  else
    for (int64_t i = 0; i < count; i++) to[i] = whole[i] + from[i];
}

/* Tokens stand in `gathered` by the rank that has their row, then in their order. */
static void cpu_embed_rows(device_t *device, act_t *out, const weight_t *table, float scale,
                           const int32_t *cuts) {
  const comm_t *comm = device->comm;
  const int32_t *ids = device->batch->input_ids, count = device->batch->num_tokens;
  const size_t row_bytes = (size_t)table->cols * sizeof(float);
  size_t bytes[RANKS_MAX + 1] = {0};
  int32_t place = 0;
  for (int32_t r = 0; r < comm->size; r++) {
    for (int32_t t = 0; t < count; t++) {
      if (ids[t] < cuts[r] || ids[t] >= cuts[r + 1]) continue;
      if (r == comm->rank)
        weight_unpack_row(table, ids[t] - cuts[r], scale, false,
                          device->gathered + place * table->cols);
      device->places[t] = place++;
    }
    bytes[r + 1] = (size_t)place * row_bytes;
  }
  CHECK_EQ(place, count);
  if (comm_gather(device->comm, device->gathered, bytes, -1) != 0) return;
  for (int32_t t = 0; t < count; t++)
    memcpy(FLOATS(out) + t * table->cols, device->gathered + device->places[t] * table->cols,
           row_bytes);
}

/* `logits` has written the columns of this rank to the front of each row. */
static void cpu_gather_logits(device_t *device, const int32_t *cuts, int32_t rows) {
  const comm_t *comm = device->comm;
  const int64_t width = cuts[comm->rank + 1] - cuts[comm->rank];
  float *own = device->gathered + (int64_t)rows * cuts[comm->rank];
  size_t bytes[RANKS_MAX + 1];
  byte_cuts(device, cuts, rows, bytes);
  for (int64_t row = 0; row < rows; row++)
    memcpy(own + row * width, device->logits + row * device->logits_stride,
           (size_t)width * sizeof(float));
  device->logits_cols = cuts[comm->size];
  if (comm_gather(device->comm, device->gathered, bytes, 0) != 0 || comm->rank != 0) return;
  spreading_t job = {device, device->logits, NULL, cuts, rows, device->logits_stride};
  pool_run(device->pool, spread_task, &job, rows, 1);
}

/* Bytes that rank `from` alone has. */
static void cuts_of_one(const comm_t *comm, int32_t from, size_t bytes, size_t *out) {
  for (int32_t r = 0; r <= comm->size; r++) out[r] = r > from ? bytes : 0;
}

static void cpu_pass(device_t *device, act_t *hidden, int32_t width, int32_t rows, int32_t from) {
  size_t cuts[RANKS_MAX + 1];
  cuts_of_one(device->comm, from, (size_t)rows * (size_t)width * sizeof(float), cuts);
  (void)comm_gather(device->comm, FLOATS(hidden), cuts, from + 1);
}

static void cpu_pass_logits(device_t *device, int32_t from, int32_t vocab_size, int32_t rows) {
  const comm_t *comm = device->comm;
  const size_t row_bytes = (size_t)vocab_size * sizeof(float);
  size_t cuts[RANKS_MAX + 1];
  cuts_of_one(comm, from, (size_t)rows * row_bytes, cuts);
  for (int64_t row = 0; row < rows && comm->rank == from; row++)
    memcpy(device->gathered + row * vocab_size, device->logits + row * device->logits_stride,
           row_bytes);
  device->logits_cols = vocab_size;
  if (comm_gather(device->comm, device->gathered, cuts, 0) != 0 || comm->rank != 0) return;
  for (int64_t row = 0; row < rows; row++)
    memcpy(device->logits + row * device->logits_stride, device->gathered + row * vocab_size,
           row_bytes);
}

void ranks_gather_pairs(device_t *device, const int32_t *first, const int32_t *cuts,
                        int64_t hidden) {
  size_t bytes[RANKS_MAX + 1];
  for (int32_t r = 0; r <= device->comm->size; r++)
    bytes[r] = (size_t)(first[cuts[r]] * hidden) * sizeof(float);
  (void)comm_gather(device->comm, device->moe.down, bytes, -1);
}

const rank_ops_t cpu_rank_ops = {.panel_rows = PANEL_COLS,
                                 .gather = cpu_gather_columns,
                                 .reduce = cpu_reduce,
                                 .embed = cpu_embed_rows,
                                 .logits = cpu_gather_logits,
                                 .pass = cpu_pass,
                                 .pass_logits = cpu_pass_logits};
