/* packet.c: a batch as bytes, and back.
 *
 * The engine thread of rank 0 sends, the one thread of a follower receives. A packet travels in one
 * broadcast if it fits into the first piece, else in two. All ranks run the same program, so the
 * bytes are those of the machine.
 */
#include "engine/ranks/packet.h"

#include "engine/base/check.h"
#include "engine/base/util.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_BYTES = 8192, PACKET_MAGIC = 0x494e4652 };

/* In front of the arrays. */
typedef struct packet_head {
  int32_t magic, kind;
  uint64_t bytes; /* of the whole packet */
  int32_t num_tokens, num_reqs, max_query_len, max_seq_len, num_groups, num_selected, num_copies;
  int32_t num_adapted, reports_many, num_state_copies, num_state_saves;
  int32_t table_width; /* block numbers of a row and group */
  int32_t slot;        /* of PACKET_ADAPTER, else 0 */
} packet_head_t;

/* A place in a packet: its arrays are written to it, or read from it. */
typedef struct packet_place {
  uint8_t *at;
  bool writes;
} packet_place_t;

static void pass(packet_place_t *cursor, void *values, size_t bytes) {
  if (cursor->writes)
    memcpy(cursor->at, values, bytes);
  else
    memcpy(values, cursor->at, bytes);
  cursor->at += bytes;
}

static void pass_numbers(packet_place_t *cursor, int32_t *values, int32_t count) {
  pass(cursor, values, (size_t)count * sizeof *values);
}

/* The arrays, in one order for both directions. Slots are 8 bytes wide and stand first. */
static void pass_arrays(packet_place_t *cursor, batch_t *batch, int32_t table_width) {
  const int32_t tokens = batch->num_tokens, reqs = batch->num_reqs;
  for (int32_t g = 0; g < batch->num_groups; g++)
    pass(cursor, batch->slot_mapping + (int64_t)g * batch->slots_stride,
         (size_t)tokens * sizeof *batch->slot_mapping);
  pass_numbers(cursor, batch->input_ids, tokens);
  pass_numbers(cursor, batch->positions, tokens);
  pass_numbers(cursor, batch->request_row, tokens);
  pass_numbers(cursor, batch->token_types, tokens);
  if (batch->num_adapted > 0) pass_numbers(cursor, batch->adapters, tokens);
  pass_numbers(cursor, batch->query_start_loc, reqs + 1);
  pass_numbers(cursor, batch->num_computed_tokens, reqs);
  pass_numbers(cursor, batch->seq_lens, reqs);
  pass_numbers(cursor, batch->state_slots, reqs);
  pass_numbers(cursor, batch->selected_token_indices, batch->num_selected);
  pass(cursor, batch->copies, (size_t)batch->num_copies * sizeof *batch->copies);
  pass(cursor, batch->state_copies, (size_t)batch->num_state_copies * sizeof *batch->state_copies);
  pass(cursor, batch->state_saves, (size_t)batch->num_state_saves * sizeof *batch->state_saves);
  for (int32_t r = 0; r < reqs; r++)
    for (int32_t g = 0; g < batch->num_groups; g++)
      pass_numbers(cursor,
                   (int32_t *)(uintptr_t)batch->block_table[r] + g * batch->block_table_stride,
                   table_width);
}

static size_t batch_bytes(const packet_head_t *head) {
  const int64_t tokens = head->num_tokens, reqs = head->num_reqs, groups = head->num_groups;
  const int64_t per_token = head->num_adapted > 0 ? 5 : 4; /* without slots */
  const int64_t numbers =
      per_token * tokens + 4 * reqs + 1 + head->num_selected + reqs * groups * head->table_width;
  return (size_t)(groups * tokens * 8 + 4 * numbers) +
         (size_t)head->num_copies * sizeof(block_copy_t) +
         (size_t)head->num_state_copies * sizeof(state_copy_t) +
         (size_t)head->num_state_saves * sizeof(state_save_t);
}

/* Of the largest batch, as batch_new has room for it. */
static packet_head_t largest(const packet_limits_t *limits) {
  const int32_t tokens = limits->tokens_max, reqs = limits->reqs_max;
  return (packet_head_t){.num_tokens = tokens,
                         .num_reqs = reqs,
                         .num_groups = limits->num_groups,
                         .num_selected = tokens + reqs,
                         .num_copies = limits->num_groups * reqs,
                         .num_adapted = tokens,
                         .num_state_copies = reqs,
                         .num_state_saves = limits->state_saves_max,
                         .table_width = limits->block_table_stride,
                         .slot = limits->adapters_max};
}

/* A receiver's batch, with room for the block numbers of its rows. */
static int make_batch(const packet_limits_t *limits, batch_t **batch, int32_t **tables) {
  const size_t width = (size_t)limits->num_groups * (size_t)limits->block_table_stride;
  *tables = calloc((size_t)limits->reqs_max * width, sizeof **tables);
  int code = batch_new(limits->tokens_max, limits->reqs_max, limits->block_size,
                       limits->block_table_stride, limits->num_groups, batch);
  if (*tables == NULL) code = -1;
  for (int32_t r = 0; r < limits->reqs_max && code == 0; r++)
    (*batch)->block_table[r] = *tables + (size_t)r * width;
  return code;
}

int packets_new(comm_t *comm, const packet_limits_t *limits, packets_t *out,
                inferd_error_t *error) {
  const packet_head_t most = largest(limits);
  *out = (packets_t){.comm = comm, .limits = *limits};
  out->capacity = sizeof most + batch_bytes(&most);
  out->capacity = MAX(out->capacity, (size_t)FIRST_BYTES);
  out->bytes = calloc(out->capacity, 1);
  int code = out->bytes == NULL;
  const int32_t num_batches = comm->rank != 0 ? MAX(limits->stage_steps, 1) : 0;
  CHECK_LE(num_batches, STAGE_STEPS_MAX);
  for (int32_t i = 0; i < num_batches && code == 0; i++)
    code = make_batch(limits, &out->batches[i], &out->tables[i]);
  out->batch = out->batches[0];
  if (code == 0) return 0;
  packets_free(out);
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for packets between ranks");
}

void packets_free(packets_t *packets) {
  free(packets->bytes);
  for (int32_t i = 0; i < STAGE_STEPS_MAX; i++) {
    free(packets->tables[i]);
    batch_free(packets->batches[i]);
  }
  *packets = (packets_t){0};
}

/* Block numbers that the step reads of a row: those of its tokens. */
static int32_t table_width(const batch_t *batch) {
  return MIN(DIV_UP(batch->max_seq_len, batch->block_size), batch->block_table_stride);
}

int packets_send(packets_t *packets, packet_kind_t kind, const batch_t *batch) {
  packet_head_t head = {.magic = PACKET_MAGIC,
                        .kind = (int32_t)kind,
                        .bytes = sizeof head,
                        .slot = kind == PACKET_ADAPTER ? packets->slot : 0};
  if (batch != NULL) {
    head.num_tokens = batch->num_tokens;
    head.num_reqs = batch->num_reqs;
    head.max_query_len = batch->max_query_len;
    head.max_seq_len = batch->max_seq_len;
    head.num_groups = batch->num_groups;
    head.num_selected = batch->num_selected;
    head.num_copies = batch->num_copies;
    head.num_adapted = batch->num_adapted;
    head.reports_many = batch->reports_many;
    head.num_state_copies = batch->num_state_copies;
    head.num_state_saves = batch->num_state_saves;
    head.table_width = table_width(batch);
    head.bytes += batch_bytes(&head);
    CHECK_LE(head.bytes, packets->capacity);
    packet_place_t cursor = {packets->bytes + sizeof head, true};
    pass_arrays(&cursor, (batch_t *)(uintptr_t)batch, head.table_width);
  }
  memcpy(packets->bytes, &head, sizeof head);
  int code = comm_broadcast(packets->comm, packets->bytes, FIRST_BYTES, 0);
  if (code != 0 || head.bytes <= FIRST_BYTES) return code;
  return comm_broadcast(packets->comm, packets->bytes + FIRST_BYTES, head.bytes - FIRST_BYTES, 0);
}

static bool is_count(int32_t count, int32_t most) {
  return count >= 0 && count <= most;
}

/* False for a packet that no rank 0 of this program sends. */
static bool fits(const packets_t *packets, const packet_head_t *head) {
  const packet_head_t most = largest(&packets->limits);
  return head->magic == PACKET_MAGIC && head->bytes >= sizeof *head &&
         head->bytes <= packets->capacity && is_count(head->num_tokens, most.num_tokens) &&
         is_count(head->num_reqs, most.num_reqs) && is_count(head->num_groups, most.num_groups) &&
         is_count(head->num_selected, most.num_selected) &&
         is_count(head->num_copies, most.num_copies) &&
         is_count(head->num_state_copies, most.num_state_copies) &&
         is_count(head->num_state_saves, most.num_state_saves) &&
         is_count(head->table_width, most.table_width) && is_count(head->slot, most.slot) &&
         (head->kind == PACKET_ADAPTER) == (head->slot > 0) &&
         (head->kind != PACKET_STEP || head->bytes == sizeof *head + batch_bytes(head));
}

int packets_receive(packets_t *packets, packet_kind_t *kind) {
  packet_head_t head;
  int code = comm_broadcast(packets->comm, packets->bytes, FIRST_BYTES, 0);
  if (code != 0) return code;
  memcpy(&head, packets->bytes, sizeof head);
  if (!fits(packets, &head)) {
    comm_abandon(packets->comm, "rank 0 sends no packet of this program");
    return packets->comm->error.code;
  }
  if (head.bytes > FIRST_BYTES)
    code = comm_broadcast(packets->comm, packets->bytes + FIRST_BYTES, head.bytes - FIRST_BYTES, 0);
  if (code != 0) return code;
  *kind = (packet_kind_t)head.kind;
  packets->slot = head.slot;
  if (*kind != PACKET_STEP) return 0;
  batch_t *batch = packets->batch = packets->batches[packets->next];
  packets->next = (packets->next + 1) % MAX(packets->limits.stage_steps, 1);
  batch->num_tokens = head.num_tokens;
  batch->num_reqs = head.num_reqs;
  batch->max_query_len = head.max_query_len;
  batch->max_seq_len = head.max_seq_len;
  batch->num_groups = head.num_groups;
  batch->num_selected = head.num_selected;
  batch->num_copies = head.num_copies;
  batch->num_adapted = head.num_adapted;
  batch->reports_many = head.reports_many != 0;
  batch->num_state_copies = head.num_state_copies;
  batch->num_state_saves = head.num_state_saves;
  packet_place_t cursor = {packets->bytes + sizeof head, false};
  pass_arrays(&cursor, batch, head.table_width);
  return 0;
}
