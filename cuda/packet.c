/* packet.c: a batch, flattened once more: into the pinned packet of its flight.
 *
 * Engine thread; stage 5 to 6. The block table lives on the device, and a mirror of it here: only
 * entries that differ travel, in steady decoding about one in block_size steps a row.
 */
#include "cuda/operations.h"
#include "engine/base/check.h"

#include <string.h>

void *packet_room(device_t *d, size_t bytes, size_t *offset) {
  size_t at = (d->packed + PACKET_ALIGN - 1) & ~(size_t)(PACKET_ALIGN - 1);
  CHECK_LE(at + bytes, d->packet_max);
  d->packed = at + bytes;
  *offset = at;
  return d->flight->packet + at;
}

static int32_t packet_array(device_t *d, const void *from, size_t count, size_t size) {
  size_t offset;
  void *to = packet_room(d, count * size, &offset);
  if (count > 0) memcpy(to, from, count * size);
  return (int32_t)offset;
}

/* Table entries of row r that the device does not have yet. */
static int32_t update_row(device_t *d, const batch_t *batch, int32_t r, gpu_update_t *to) {
  const int32_t *row = batch->block_table[r];
  const size_t at = (size_t)r * (size_t)d->block_table_stride;
  int32_t *mirror = d->block_table_mirror + at;
  const int32_t used = (batch->seq_lens[r] + batch->block_size - 1) / batch->block_size;
  CHECK_LE(used, d->block_table_stride);
  if (memcmp(mirror, row, (size_t)used * sizeof *row) == 0) return 0;
  int32_t count = 0;
  for (int32_t i = 0; i < used; i++) {
    if (mirror[i] == row[i]) continue;
    mirror[i] = row[i];
    to[count++] = (gpu_update_t){(int32_t)at + i, row[i]};
  }
  return count;
}

static void pack_updates(device_t *d, const batch_t *batch, gpu_packet_t *header) {
  size_t offset, entries = 0;
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    entries += (size_t)((batch->seq_lens[r] + batch->block_size - 1) / batch->block_size);
  }
  gpu_update_t *updates = packet_room(d, entries * sizeof *updates, &offset);
  int32_t count = 0;
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    count += update_row(d, batch, r, updates + count);
  }
  header->updates = (int32_t)offset;
  header->num_updates = count;
  d->packed = offset + (size_t)count * sizeof *updates;
}

/* Room for the rows that sample will describe, and those that pad the graph. The first row lies at
 * the same place in every packet, where a graph expects it. */
static void pack_padding(device_t *d, int32_t num_selected) {
  int32_t padded = d->mode == STEP_REPLAY ? d->rows : num_selected;
  gpu_sample_row_t *rows =
      packet_room(d, (size_t)padded * sizeof(gpu_sample_row_t), &d->samples_at);
  for (int32_t i = num_selected; i < padded; i++) {
    rows[i] = (gpu_sample_row_t){.score_id = GPU_SAMPLE_PADDING, .num_top = -1};
  }
}

void packet_build(device_t *d, const batch_t *batch) {
  const size_t tokens = (size_t)batch->num_tokens, reqs = (size_t)batch->num_reqs;
  size_t offset;
  d->packed = d->sent = 0;
  gpu_packet_t *header = packet_room(d, sizeof *header, &offset);
  *header = (gpu_packet_t){.num_tokens = batch->num_tokens,
                           .num_reqs = batch->num_reqs,
                           .num_selected = batch->num_selected};
  size_t rows = (size_t)batch->num_selected;
  pack_padding(d, batch->num_selected);
  header->input_ids = packet_array(d, batch->input_ids, tokens, sizeof(int32_t));
  header->positions = packet_array(d, batch->positions, tokens, sizeof(int32_t));
  header->slots = packet_array(d, batch->slot_mapping, tokens, sizeof(int64_t));
  header->query_start_loc = packet_array(d, batch->query_start_loc, reqs + 1, sizeof(int32_t));
  header->seq_lens = packet_array(d, batch->seq_lens, reqs, sizeof(int32_t));
  header->selected = packet_array(d, batch->selected_token_indices, rows, sizeof(int32_t));
  if (batch->num_adapted > 0)
    header->adapters = packet_array(d, batch->adapters, tokens, sizeof(int32_t));
  pack_updates(d, batch, header);
}

void packet_send(device_t *d) {
  if (d->packed == d->sent || d->fault != 0) return;
  device_note(d,
              (int)cudaMemcpyAsync(d->packet + d->sent, d->flight->packet + d->sent,
                                   d->packed - d->sent, cudaMemcpyHostToDevice, d->stream),
              "inputs");
  d->sent = d->packed;
}
