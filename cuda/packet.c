/* packet.c: packs a batch into the pinned packet of its step.
 *
 * Engine thread; stage 5 to 6. The device has the block table, and this file a mirror of it. Only
 * entries that differ are sent: in steady decoding about one per row and block_size steps.
 */
#include "cuda/operations.h"
#include "engine/base/check.h"
#include "engine/base/util.h"

#include <string.h>

_Static_assert((int)GPU_PACKETS == (int)STEPS_IN_FLIGHT_MAX, "a packet for each step in flight");

void *packet_room(device_t *device, size_t bytes, size_t *offset) {
  size_t at = (device->packed + PACKET_ALIGN - 1) & ~(size_t)(PACKET_ALIGN - 1);
  CHECK_LE(at + bytes, device->packet_max);
  device->packed = at + bytes;
  *offset = at;
  return device->step->packet + at;
}

static int32_t packet_array(device_t *device, const void *from, size_t count, size_t size) {
  size_t offset;
  void *to = packet_room(device, count * size, &offset);
  if (count > 0) memcpy(to, from, count * size);
  return (int32_t)offset;
}

/* Table entries of row `index` that the device does not have yet. */
static int32_t update_row(device_t *device, const batch_t *batch, int32_t index, gpu_update_t *to) {
  const int32_t *row = batch->block_table[index];
  const size_t at = (size_t)index * (size_t)device->block_table_stride;
  int32_t *mirror = device->block_table_mirror + at;
  const int32_t used = DIV_UP(batch->seq_lens[index], batch->block_size);
  CHECK_LE(used, device->block_table_stride);
  if (memcmp(mirror, row, (size_t)used * sizeof *row) == 0) return 0;
  int32_t count = 0;
  for (int32_t i = 0; i < used; i++) {
    if (mirror[i] == row[i]) continue;
    mirror[i] = row[i];
    to[count++] = (gpu_update_t){(int32_t)at + i, row[i]};
  }
  return count;
}

static void pack_updates(device_t *device, const batch_t *batch, gpu_packet_t *header) {
  size_t offset, entries = 0;
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    entries += (size_t)DIV_UP(batch->seq_lens[r], batch->block_size);
  }
  gpu_update_t *updates = packet_room(device, entries * sizeof *updates, &offset);
  int32_t count = 0;
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    count += update_row(device, batch, r, updates + count);
  }
  header->updates = (int32_t)offset;
  header->num_updates = count;
  device->packed = offset + (size_t)count * sizeof *updates;
}

/* Reserves room for the rows to sample and for the rows that pad the graph. The first row is at the
 * same place in every packet, where a graph expects it. */
static void pack_padding(device_t *device, int32_t num_selected) {
  int32_t padded = device->selected_rows;
  gpu_sample_row_t *rows =
      packet_room(device, (size_t)padded * sizeof(gpu_sample_row_t), &device->samples_at);
  for (int32_t i = num_selected; i < padded; i++) {
    rows[i] = (gpu_sample_row_t){.score_id = GPU_SAMPLE_PADDING, .num_top = -1};
  }
}

/* The slots of all rows, and where the saves of each begin. */
static void pack_states(device_t *device, const batch_t *batch, gpu_packet_t *header) {
  const size_t reqs = (size_t)batch->num_reqs, count = (size_t)batch->num_state_saves;
  CHECK_LE(batch->num_state_saves, device->state.num_slots);
  size_t offset;
  header->state_slots = packet_array(device, batch->state_slots, reqs, sizeof(int32_t));
  int32_t *first = packet_room(device, (reqs + 1) * sizeof *first, &offset), next = 0;
  header->first_save = (int32_t)offset;
  gpu_save_t *saves = packet_room(device, count * sizeof *saves, &offset);
  header->saves = (int32_t)offset;
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    first[r] = next;
    for (; next < batch->num_state_saves && batch->state_saves[next].row == r; next++)
      saves[next] = (gpu_save_t){batch->state_saves[next].behind, batch->state_saves[next].slot};
  }
  first[reqs] = next;
  CHECK_EQ(next, batch->num_state_saves); /* they are in the order of rows */
}

void packet_build(device_t *device, const batch_t *batch) {
  const size_t tokens = (size_t)batch->num_tokens, reqs = (size_t)batch->num_reqs;
  size_t offset;
  device->packed = device->sent = 0;
  gpu_packet_t *header = packet_room(device, sizeof *header, &offset);
  *header = (gpu_packet_t){.num_tokens = batch->num_tokens,
                           .num_reqs = batch->num_reqs,
                           .num_selected = batch->num_selected};
  size_t rows = (size_t)batch->num_selected;
  pack_padding(device, batch->num_selected);
  header->input_ids = packet_array(device, batch->input_ids, tokens, sizeof(int32_t));
  header->positions = packet_array(device, batch->positions, tokens, sizeof(int32_t));
  header->slots = packet_array(device, batch->slot_mapping, tokens, sizeof(int64_t));
  header->query_start_loc = packet_array(device, batch->query_start_loc, reqs + 1, sizeof(int32_t));
  header->seq_lens = packet_array(device, batch->seq_lens, reqs, sizeof(int32_t));
  header->selected = packet_array(device, batch->selected_token_indices, rows, sizeof(int32_t));
  if (batch->num_adapted > 0)
    header->adapters = packet_array(device, batch->adapters, tokens, sizeof(int32_t));
  if (device->state.num_slots > 0) pack_states(device, batch, header);
  pack_updates(device, batch, header);
}

void packet_send(device_t *device) {
  if (device->packed == device->sent || device->fault != 0) return;
  device_note(
      device,
      (int)cudaMemcpyAsync(device->packet + device->sent, device->step->packet + device->sent,
                           device->packed - device->sent, cudaMemcpyHostToDevice, device->stream),
      "inputs");
  device->sent = device->packed;
}
