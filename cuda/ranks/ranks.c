/* ranks.c: the GPU as one of several ranks: columns, sums, embeddings and logits of all.
 *
 * Engine thread; step functions, which launch as exchange.h says. Rows are exchanged as many at a
 * time as rank_exchange_t.parts holds, the part of one rank behind that of another, and are then
 * put where they belong by kernels.
 */
#include "cuda/kernels/ranks/ranks.h"
#include "cuda/operations.h"
#include "cuda/ranks/exchange.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

_Static_assert((int)GPU_RANKS_MAX == (int)RANKS_MAX, "the kernels take as many ranks");

static const char WHERE[] = "an exchange of ranks";
static const size_t TWO_STEPS_BYTES = 1 << 20; /* of sums; not measured */

/* Bytes of `rows` rows of which each rank has the columns of `cuts`. */
static void byte_cuts(const device_t *device, const int32_t *cuts, int32_t rows, size_t element,
                      size_t *out) {
  for (int32_t r = 0; r <= device->exchange->comm->size; r++)
    out[r] = (size_t)rows * (size_t)cuts[r] * element;
}

/* Bytes of the ranks where each has `bytes`. */
static void equal_cuts(const device_t *device, size_t bytes, size_t *out) {
  for (int32_t r = 0; r <= device->exchange->comm->size; r++) out[r] = (size_t)r * bytes;
}

/* Rows of `bytes` of all ranks that are exchanged at once. */
static int32_t rows_at_once(const device_t *device, size_t bytes) {
  const size_t fitting = device->exchange->bytes / bytes;
  return (int32_t)MIN(fitting, (size_t)INT32_MAX);
}

static void ranks_take(device_t *device, act_t *own, const act_t *in, const int32_t *cuts,
                       int32_t rows) {
  const comm_t *comm = device->exchange->comm;
  const int32_t first = cuts[comm->rank], width = cuts[comm->rank + 1] - first;
  if (!device_is_live(device)) return;
  device_note(device, gpu_rank_take(own, in, first, width, cuts[comm->size], rows, device->stream),
              WHERE);
}

static void ranks_gather(device_t *device, act_t *out, const act_t *own, const act_t *residual,
                         const int32_t *cuts, int32_t rows) {
  const comm_t *comm = device->exchange->comm;
  const gpu_cuts_t columns = gpu_cuts_of(comm->size, cuts);
  const int32_t width = cuts[comm->size], width_own = cuts[comm->rank + 1] - cuts[comm->rank];
  const int32_t most = rows_at_once(device, (size_t)width * sizeof(uint16_t));
  CHECK(residual == NULL);
  for (int32_t first = 0; first < rows && device_is_live(device); first += most) {
    size_t bytes[RANKS_MAX + 1];
    const int32_t some = MIN(rows - first, most);
    byte_cuts(device, cuts, some, sizeof(uint16_t), bytes);
    exchange_gather(device, (const uint16_t *)(const void *)own + (size_t)first * (size_t)width_own,
                    bytes, -1);
    if (!device_is_live(device)) return;
    device_note(device,
                gpu_rank_spread((uint16_t *)(void *)out + (size_t)first * (size_t)width,
                                device->exchange->parts, &columns, some, device->stream),
                WHERE);
  }
}

/* Where a rank gets less by it: each adds up some columns of all, and these are gathered. The bits
 * are the same. parts = what this rank sends [rows, width], what it gets [ranks][rows, own columns]
 * with the residual behind it, and the sums [rows, own columns]; then the sums of all in the place
 * of the first. */
static void reduce_in_two(device_t *device, act_t *out, const act_t *sums, const act_t *residual,
                          int32_t width, int32_t rows) {
  const comm_t *comm = device->exchange->comm;
  const int32_t size = comm->size, units = width / GPU_ROW_ALIGN;
  int32_t at[RANKS_MAX + 1];
  for (int32_t r = 0; r <= size; r++) at[r] = (int32_t)((int64_t)units * r / size) * GPU_ROW_ALIGN;
  const gpu_cuts_t cuts = gpu_cuts_of(size, at);
  const int32_t own = at[comm->rank + 1] - at[comm->rank];
  const size_t row = (size_t)width * sizeof(uint16_t), own_row = (size_t)own * sizeof(uint16_t);
  const size_t widest = (size_t)(units / size + 1) * GPU_ROW_ALIGN * sizeof(uint16_t);
  const int32_t most = rows_at_once(device, row + (size_t)(size + 2) * widest);
  for (int32_t first = 0; first < rows && device_is_live(device); first += most) {
    size_t bytes[RANKS_MAX + 1];
    const int32_t some = MIN(rows - first, most);
    const size_t begin = (size_t)first * row, part = (size_t)some * own_row;
    uint8_t *sent = device->exchange->parts, *got = sent + (size_t)some * row;
    uint8_t *residual_part = got + (size_t)size * part, *added = residual_part + part;
    byte_cuts(device, at, some, sizeof(uint16_t), bytes);
    device_note(device,
                gpu_rank_split(sent, (const uint8_t *)(const void *)sums + begin, &cuts, some,
                               device->stream),
                WHERE);
    exchange_scatter(device, got, sent, bytes);
    if (residual != NULL && own > 0 && device_is_live(device))
      device_note(device,
                  gpu_rank_take(residual_part, (const uint8_t *)(const void *)residual + begin,
                                at[comm->rank], own, width, some, device->stream),
                  WHERE);
    if (own > 0 && device_is_live(device))
      device_note(device,
                  gpu_rank_add(device->dtype, added, got, NULL, size + (residual != NULL), own,
                               some, device->stream),
                  WHERE);
    exchange_gather(device, added, bytes, -1);
    if (device_is_live(device))
      device_note(device,
                  gpu_rank_spread((uint8_t *)(void *)out + begin, device->exchange->parts, &cuts,
                                  some, device->stream),
                  WHERE);
  }
}

static void ranks_reduce(device_t *device, act_t *out, act_t *sums, const act_t *residual,
                         int32_t width, int32_t rows) {
  const int32_t size = device->exchange->comm->size;
  const size_t row = (size_t)width * sizeof(uint16_t);
  const int32_t most = rows_at_once(device, (size_t)size * row);
  if (size > 2 && (size_t)rows * row >= TWO_STEPS_BYTES && device->exchange->way->scatter != NULL) {
    reduce_in_two(device, out, sums, residual, width, rows);
    return;
  }
  for (int32_t first = 0; first < rows && device_is_live(device); first += most) {
    size_t bytes[RANKS_MAX + 1];
    const int32_t some = MIN(rows - first, most);
    const size_t at = (size_t)first * row;
    equal_cuts(device, (size_t)some * row, bytes);
    exchange_gather(device, (const uint8_t *)(const void *)sums + at, bytes, -1);
    if (!device_is_live(device)) return;
    device_note(device,
                gpu_rank_add(device->dtype, (uint8_t *)(void *)out + at, device->exchange->parts,
                             residual != NULL ? (const uint8_t *)(const void *)residual + at : NULL,
                             size, width, some, device->stream),
                WHERE);
  }
}

/* Each rank looks up all tokens; the rows of those that it has are taken. */
static void ranks_embed(device_t *device, act_t *out, const weight_t *table, float scale,
                        const int32_t *cuts) {
  const comm_t *comm = device->exchange->comm;
  const gpu_cuts_t owners = gpu_cuts_of(comm->size, cuts);
  const gpu_table_t own = {table->data, (int32_t)table->rows, (int32_t)table->cols, table->packed,
                           cuts[comm->rank]};
  const size_t row = (size_t)own.width * sizeof(uint16_t);
  const int32_t most = rows_at_once(device, (size_t)comm->size * row);
  const int32_t count = device->batch->num_tokens;
  for (int32_t first = 0; first < count && device_is_live(device); first += most) {
    size_t bytes[RANKS_MAX + 1];
    const int32_t some = MIN(count - first, most), *ids = device->inputs.input_ids + first;
    equal_cuts(device, (size_t)some * row, bytes);
    uint8_t *place = device->exchange->parts + bytes[comm->rank];
    device_note(device, gpu_embed(device->dtype, place, &own, ids, scale, some, device->stream),
                WHERE);
    exchange_gather(device, place, bytes, -1);
    if (!device_is_live(device)) return;
    device_note(device,
                gpu_rank_pick((uint8_t *)(void *)out + (size_t)first * row, device->exchange->parts,
                              ids, &owners, own.width, some, device->stream),
                WHERE);
  }
}

/* `logits` has written rows of this rank's columns, which the whole rows of rank 0 overwrite: the
 * last rows first, so that none is overwritten before it is sent. */
static void ranks_logits(device_t *device, const int32_t *cuts, int32_t rows) {
  const comm_t *comm = device->exchange->comm;
  const gpu_cuts_t columns = gpu_cuts_of(comm->size, cuts);
  const int32_t width = cuts[comm->size], width_own = cuts[comm->rank + 1] - cuts[comm->rank];
  const int32_t most = rows_at_once(device, (size_t)width * sizeof(float));
  for (int32_t end = rows; end > 0 && device_is_live(device); end -= most) {
    size_t bytes[RANKS_MAX + 1];
    const int32_t first = MAX(end - most, 0), some = end - first;
    byte_cuts(device, cuts, some, sizeof(float), bytes);
    exchange_gather(device, device->logits + (size_t)first * (size_t)width_own, bytes, 0);
    if (!device_is_live(device) || comm->rank != 0) continue;
    device_note(device,
                gpu_rank_spread_floats(device->logits + (size_t)first * (size_t)width,
                                       (const float *)(const void *)device->exchange->parts,
                                       &columns, some, device->stream),
                WHERE);
  }
}

/* Two where what is drawn is passed on. */
static int32_t ranks_depth(const device_t *device) {
  return device->exchange->way->in_graphs ? STEPS_IN_FLIGHT_MAX : 1;
}

static void ranks_pass_drawn(device_t *device) {
  if (!device->exchange->way->in_graphs) return;
  if (device->mode == STEP_REPLAY) { /* the graph has it */
    graph_launch(device);
    return;
  }
  exchange_broadcast(device, device->results,
                     (size_t)device->batch->num_selected * sizeof *device->results, 0);
}

const rank_ops_t cuda_ranks = {.panel_rows = GPU_PANEL_ROWS,
                               .cut_cols = GPU_ROW_ALIGN,
                               .take = ranks_take,
                               .gather = ranks_gather,
                               .reduce = ranks_reduce,
                               .embed = ranks_embed,
                               .logits = ranks_logits,
                               .depth = ranks_depth,
                               .pass_drawn = ranks_pass_drawn};
