/* test_packet.c: what rank 0 sends of a step arrives, and bytes that are no packet are refused. */
#include "engine/ranks/packet.h"
#include "engine/ranks/shared.h"
#include "tests/engine/members.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

static const packet_limits_t limits = {.tokens_max = 300,
                                       .reqs_max = 20,
                                       .block_table_stride = 64,
                                       .num_groups = 2,
                                       .block_size = 4,
                                       .adapters_max = 4};

/* A batch of `reqs` rows of `each` tokens, full of numbers. */
static void fill_batch(batch_t *batch, int32_t **tables, int32_t reqs, int32_t each) {
  const int32_t tokens = reqs * each;
  batch->num_tokens = tokens, batch->num_reqs = reqs;
  batch->max_query_len = each, batch->max_seq_len = 100 + each;
  batch->num_selected = reqs, batch->num_copies = reqs / 2;
  for (int32_t t = 0; t < tokens; t++) {
    batch->input_ids[t] = 7 * t + 1, batch->positions[t] = t % each;
    batch->request_row[t] = t / each, batch->token_types[t] = t % 2;
    for (int32_t g = 0; g < 2; g++) batch->slot_mapping[g * batch->slots_stride + t] = t * 5L - g;
  }
  for (int32_t r = 0; r < reqs; r++) {
    batch->query_start_loc[r] = r * each, batch->num_computed_tokens[r] = 100;
    batch->seq_lens[r] = 100 + each, batch->selected_token_indices[r] = (r + 1) * each - 1;
    for (int32_t k = 0; k < 2 * 64; k++) tables[r][k] = 1000 * r + k;
    batch->block_table[r] = tables[r];
  }
  for (int32_t i = 0; i < reqs / 2; i++) batch->copies[i] = (block_copy_t){i, i + 1, i % 4};
  batch->query_start_loc[reqs] = tokens;
}

static bool same_batch(const batch_t *a, const batch_t *b) {
  const size_t word = sizeof(int32_t), tokens = (size_t)a->num_tokens * word;
  const int32_t width = (a->max_seq_len + a->block_size - 1) / a->block_size;
  bool same = a->num_tokens == b->num_tokens && a->num_reqs == b->num_reqs &&
              a->max_query_len == b->max_query_len && a->max_seq_len == b->max_seq_len &&
              a->num_selected == b->num_selected && a->num_copies == b->num_copies &&
              memcmp(a->input_ids, b->input_ids, tokens) == 0 &&
              memcmp(a->positions, b->positions, tokens) == 0 &&
              memcmp(a->request_row, b->request_row, tokens) == 0 &&
              memcmp(a->token_types, b->token_types, tokens) == 0;
  for (int32_t g = 0; g < 2 && same; g++)
    same = memcmp(a->slot_mapping + g * a->slots_stride, b->slot_mapping + g * b->slots_stride,
                  2 * tokens) == 0;
  for (int32_t r = 0; r < a->num_reqs && same; r++) {
    same = a->seq_lens[r] == b->seq_lens[r] && a->query_start_loc[r] == b->query_start_loc[r] &&
           a->num_computed_tokens[r] == b->num_computed_tokens[r] &&
           a->selected_token_indices[r] == b->selected_token_indices[r];
    for (int32_t g = 0; g < 2 && same; g++)
      same = memcmp(a->block_table[r] + g * a->block_table_stride,
                    b->block_table[r] + g * b->block_table_stride, (size_t)width * word) == 0;
  }
  return same && memcmp(a->copies, b->copies, (size_t)a->num_copies * sizeof *a->copies) == 0 &&
         a->query_start_loc[a->num_reqs] == b->query_start_loc[a->num_reqs];
}

typedef struct talk {
  int32_t reqs, each;
} talk_t;
static const talk_t talks[] = {{1, 1}, {20, 15}, {3, 2}, {20, 1}};

static void *talk(void *context) {
  member_t *own = context;
  inferd_error_t error = {0};
  packets_t packets;
  batch_t *batch = NULL;
  int32_t *tables[20];
  own->code = packets_new(own->comm, &limits, &packets, &error);
  (void)batch_new(300, 20, 4, 64, 2, &batch);
  for (int r = 0; r < 20; r++) tables[r] = calloc(2 * 64, sizeof(int32_t));
  for (size_t i = 0; i < sizeof talks / sizeof *talks && own->code == 0; i++) {
    packet_kind_t kind = PACKET_STOP;
    fill_batch(batch, tables, talks[i].reqs, talks[i].each);
    if (own->comm->rank == 0) {
      own->code = packets_send(&packets, PACKET_STEP, batch);
      if (own->code == 0) own->code = packets_send(&packets, PACKET_IDLE, NULL);
      packets.slot = 1 + (int32_t)i;
      if (own->code == 0) own->code = packets_send(&packets, PACKET_ADAPTER, NULL);
      continue;
    }
    own->code = packets_receive(&packets, &kind);
    own->wrong += kind != PACKET_STEP || !same_batch(batch, packets.batch);
    if (own->code == 0) own->code = packets_receive(&packets, &kind);
    own->wrong += kind != PACKET_IDLE || packets.slot != 0;
    if (own->code == 0) own->code = packets_receive(&packets, &kind);
    own->wrong += kind != PACKET_ADAPTER || packets.slot != 1 + (int32_t)i;
  }
  for (int r = 0; r < 20; r++) free(tables[r]);
  batch_free(batch);
  packets_free(&packets);
  return NULL;
}

Test(comm, a_packet_has_all_that_a_forward_reads, .timeout = 60) {
  member_t members[3];
  members_start(members, 3, talk);
  members_join(members, 3);
  for (int32_t r = 0; r < 3; r++) {
    ASSERT_EQ_FOR(members[r].code, 0, "%s", members[r].comm->error.message);
    ASSERT_EQ_FOR(members[r].wrong, 0, "rank %d", r);
    comm_close(members[r].comm);
  }
}

/* An adapter for a slot that there is not. */
static void *misplace(void *context) {
  member_t *own = context;
  inferd_error_t error = {0};
  packets_t packets;
  packet_kind_t kind;
  own->code = packets_new(own->comm, &limits, &packets, &error);
  packets.slot = limits.adapters_max + 1;
  if (own->code == 0)
    own->code = own->comm->rank == 0 ? packets_send(&packets, PACKET_ADAPTER, NULL)
                                     : packets_receive(&packets, &kind);
  packets_free(&packets);
  return NULL;
}

/* Bytes that no rank 0 of this program sends. */
static void *babble(void *context) {
  member_t *own = context;
  inferd_error_t error = {0};
  packets_t packets;
  packet_kind_t kind;
  own->code = packets_new(own->comm, &limits, &packets, &error);
  if (own->comm->rank == 0) {
    memset(packets.bytes, 0x5a, packets.capacity);
    own->code = comm_broadcast(own->comm, packets.bytes, 8192, 0);
  } else {
    own->code = packets_receive(&packets, &kind);
  }
  packets_free(&packets);
  return NULL;
}

static void expect_no_packet(void *(*send)(void *)) {
  member_t members[2];
  members_start(members, 2, send);
  members_join(members, 2);
  ASSERT_EQ(members[1].code, ERR_DEVICE_FAILED);
  cr_assert(strstr(members[1].comm->error.message, "no packet") != NULL);
  for (int32_t r = 0; r < 2; r++) comm_close(members[r].comm);
}

Test(comm, bytes_that_are_no_packet_are_refused, .timeout = 60) {
  expect_no_packet(babble);
  expect_no_packet(misplace);
}
