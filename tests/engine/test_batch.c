/* test_batch.c: golden vectors A, B and C of the prepared inputs, number by number.
 *
 * A: three prompts of 3, 2 and 8 tokens, blocks of 2, budget 10, through the real scheduler. B:
 * pages of 256. C: prompts of 48, 44 and 43 tokens with blocks handed out downwards from 2759.
 * Derived arrays (block_numbers, token_indices, ...) follow from slot_mapping, positions and
 * request_row.
 */
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/support.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static void expect_i32(const char *name, const int32_t *got, const int32_t *want, int count) {
  for (int i = 0; i < count; i++) {
    cr_assert(got[i] == want[i], "%s[%d] is %d, expected %d", name, i, got[i], want[i]);
  }
}

#define EXPECT(got, ...)                                                                           \
  do {                                                                                             \
    const int32_t want[] = {__VA_ARGS__};                                                          \
    expect_i32(#got, got, want, COUNT(want));                                                      \
  } while (0)

/* The arrays of the golden vectors that the batch does not store. */
typedef struct derived {
  int32_t token_indices[2048], visible_keys[2048], block_table_indices[2048];
  int32_t block_numbers[2048], block_offsets[2048], slots[2048];
} derived_t;

static derived_t derive(const batch_t *b, int32_t max_model_len) {
  derived_t d;
  for (int32_t t = 0; t < b->num_tokens; t++) {
    d.token_indices[t] = b->positions[t] + b->request_row[t] * max_model_len;
    d.visible_keys[t] = b->positions[t] + 1;
    d.block_table_indices[t] =
        b->request_row[t] * b->block_table_stride + b->positions[t] / b->block_size;
    d.block_numbers[t] = (int32_t)(b->slot_mapping[t] / b->block_size);
    d.block_offsets[t] = (int32_t)(b->slot_mapping[t] % b->block_size);
    d.slots[t] = (int32_t)b->slot_mapping[t];
  }
  return d;
}

static void check_scalars(const batch_t *b, int reqs, int tokens, int query_max, int seq_max) {
  cr_assert(b->num_reqs == reqs && b->num_tokens == tokens, "%d rows, %d tokens", b->num_reqs,
            b->num_tokens);
  ASSERT_EQ(b->max_query_len, query_max);
  ASSERT_EQ(b->max_seq_len, seq_max);
}

static void golden_a_step_1(const batch_t *b) {
  derived_t d = derive(b, 12);
  check_scalars(b, 3, 10, 5, 5);
  EXPECT(b->block_table[0], 1, 2, 0, 0, 0, 0);
  EXPECT(b->block_table[1], 3, 0, 0, 0, 0, 0);
  EXPECT(b->block_table[2], 4, 5, 6, 0, 0, 0);
  EXPECT(b->request_row, 0, 0, 0, 1, 1, 2, 2, 2, 2, 2);
  EXPECT(b->positions, 0, 1, 2, 0, 1, 0, 1, 2, 3, 4);
  EXPECT(d.token_indices, 0, 1, 2, 12, 13, 24, 25, 26, 27, 28);
  EXPECT(d.visible_keys, 1, 2, 3, 1, 2, 1, 2, 3, 4, 5);
  EXPECT(d.block_table_indices, 0, 0, 1, 6, 6, 12, 12, 13, 13, 14);
  EXPECT(d.block_numbers, 1, 1, 2, 3, 3, 4, 4, 5, 5, 6);
  EXPECT(d.block_offsets, 0, 1, 0, 0, 1, 0, 1, 0, 1, 0);
  EXPECT(d.slots, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12);
  EXPECT(b->query_start_loc, 0, 3, 5, 10);
  EXPECT(b->num_computed_tokens, 0, 0, 0);
  EXPECT(b->seq_lens, 3, 2, 5);
  EXPECT(b->selected_token_indices, 2, 4);
  EXPECT(b->input_ids, 0, 1, 2, 1000, 1001, 2000, 2001, 2002, 2003, 2004);
  cr_assert(b->do_sample[0]);
  cr_assert(b->do_sample[1]);
  cr_assert(!b->do_sample[2]);
  ASSERT_EQ(b->num_selected, 2);
}

static void golden_a_step_2(const batch_t *b) {
  derived_t d = derive(b, 12);
  check_scalars(b, 3, 5, 3, 8);
  EXPECT(b->block_table[0], 1, 2, 0, 0, 0, 0);
  EXPECT(b->block_table[1], 3, 7, 0, 0, 0, 0);
  EXPECT(b->block_table[2], 4, 5, 6, 8, 0, 0);
  EXPECT(b->request_row, 0, 1, 2, 2, 2);
  EXPECT(b->positions, 3, 2, 5, 6, 7);
  EXPECT(d.token_indices, 3, 14, 29, 30, 31);
  EXPECT(d.visible_keys, 4, 3, 6, 7, 8);
  EXPECT(d.block_table_indices, 1, 7, 14, 15, 15);
  EXPECT(d.block_numbers, 2, 7, 6, 8, 8);
  EXPECT(d.block_offsets, 1, 0, 1, 0, 1);
  EXPECT(d.slots, 5, 14, 13, 16, 17);
  EXPECT(b->query_start_loc, 0, 1, 2, 5);
  EXPECT(b->num_computed_tokens, 3, 2, 5);
  EXPECT(b->seq_lens, 4, 3, 8);
  EXPECT(b->selected_token_indices, 0, 1, 4);
  EXPECT(b->input_ids, 77, 77, 2005, 2006, 2007);
  cr_assert(b->do_sample[0]);
  cr_assert(b->do_sample[1]);
  cr_assert(b->do_sample[2]);
  ASSERT_EQ(b->num_selected, 3);
}

static void golden_a_step_3(const batch_t *b) {
  derived_t d = derive(b, 12);
  check_scalars(b, 3, 3, 1, 9);
  EXPECT(b->block_table[0], 1, 2, 9, 0, 0, 0);
  EXPECT(b->block_table[1], 3, 7, 0, 0, 0, 0);
  EXPECT(b->block_table[2], 4, 5, 6, 8, 10, 0);
  EXPECT(b->positions, 4, 3, 8);
  EXPECT(d.token_indices, 4, 15, 32);
  EXPECT(d.block_table_indices, 2, 7, 16);
  EXPECT(d.block_numbers, 9, 7, 10);
  EXPECT(d.block_offsets, 0, 1, 0);
  EXPECT(d.slots, 18, 15, 20);
  EXPECT(b->query_start_loc, 0, 1, 2, 3);
  EXPECT(b->seq_lens, 5, 4, 9);
  EXPECT(b->selected_token_indices, 0, 1, 2);
}

Test(batch, golden_vector_a) {
  scheduler_options_t options = rig_options(3, 10, 12);
  options.reserve_full = false; /* the vector takes blocks chunk by chunk */
  rig_t *rig = rig_new(&options, 16, 2, true);
  const int32_t prompts[] = {3, 2, 8};
  for (int i = 0; i < 3; i++) rig_add(rig, prompts[i], 4, i);
  ASSERT_EQ(rig_step(rig), 3);
  golden_a_step_1(rig->batch);
  rig_commit(rig, 77);
  rig_step(rig);
  golden_a_step_2(rig->batch);
  rig_commit(rig, 78);
  rig_step(rig);
  golden_a_step_3(rig->batch);
  rig_free(rig);
}

/* Rows with given tables, without a scheduler. */
typedef struct table_rig {
  request_t request;
  group_t groups[16];
  plan_entry_t entries[16];
  int32_t tokens[2048], blocks[16][16];
  plan_t plan;
  batch_t *batch;
} table_rig_t;

static table_rig_t *table_rig_new(int32_t block_size, int32_t stride) {
  table_rig_t *t = calloc(1, sizeof *t);
  cr_assert(t);
  ASSERT_EQ(batch_new(2048, 16, block_size, stride, 1, &t->batch), 0);
  t->request.params.num_prompt_logprobs = -1;
  t->plan.entries = t->entries;
  return t;
}

static void table_rig_free(table_rig_t *t) {
  batch_free(t->batch);
  free(t);
}

static void table_rig_row(table_rig_t *t, int32_t num_computed, int32_t num_tokens,
                          const int32_t *blocks, int num_blocks) {
  int32_t r = t->plan.num_entries++;
  sequence_t *q = &t->groups[r].sequence;
  t->groups[r].request = &t->request;
  q->group = &t->groups[r];
  q->tokens = t->tokens;
  q->blocks = t->blocks[r];
  memcpy(q->blocks, blocks, (size_t)num_blocks * sizeof *blocks);
  t->entries[r] = (plan_entry_t){.sequence = q,
                                 .blocks = q->blocks,
                                 .num_computed = num_computed,
                                 .num_tokens = num_tokens,
                                 .do_sample = true};
}

Test(batch, golden_vector_b_decode) {
  table_rig_t *t = table_rig_new(256, 6);
  table_rig_row(t, 10, 1, (const int32_t[]){1, 2}, 2);
  table_rig_row(t, 1025, 1, (const int32_t[]){3, 4, 5, 6, 7, 8}, 6);
  table_rig_row(t, 320, 1, (const int32_t[]){9, 10, 11, 12}, 4);
  batch_build(t->batch, &t->plan);
  derived_t d = derive(t->batch, 2048);
  EXPECT(t->batch->positions, 10, 1025, 320);
  EXPECT(d.block_table_indices, 0, 10, 13); /* columns 0, 4, 1 */
  EXPECT(d.block_numbers, 1, 7, 10);
  EXPECT(d.block_offsets, 10, 1, 64);
  EXPECT(d.slots, 266, 1793, 2624);
  EXPECT(t->batch->seq_lens, 11, 1026, 321);
  EXPECT(t->batch->query_start_loc, 0, 1, 2, 3);
  ASSERT_EQ(t->batch->max_seq_len, 1026);
  table_rig_free(t);
}

Test(batch, golden_vector_b_packed_prefill) {
  table_rig_t *t = table_rig_new(256, 6);
  table_rig_row(t, 0, 10, (const int32_t[]){1}, 1);
  table_rig_row(t, 0, 1025, (const int32_t[]){3, 4, 5, 6, 7}, 5);
  table_rig_row(t, 0, 320, (const int32_t[]){9, 10}, 2);
  batch_build(t->batch, &t->plan);
  derived_t d = derive(t->batch, 2048);
  ASSERT_EQ(t->batch->num_tokens, 1355);
  EXPECT(t->batch->query_start_loc, 0, 10, 1035, 1355);
  EXPECT(t->batch->selected_token_indices, 9, 1034, 1354);
  /* as printed, with every page one higher because of the null block */
  for (int i = 0; i < 10; i++) ASSERT_EQ(d.slots[i], 256 + i);
  for (int i = 0; i < 1025; i++) ASSERT_EQ(d.slots[10 + i], 256 + 512 + i);
  for (int i = 0; i < 320; i++) ASSERT_EQ(d.slots[1035 + i], 256 + 2048 + i);
  table_rig_free(t);
}

Test(batch, golden_vector_c_prefill) {
  table_rig_t *t = table_rig_new(16, 16);
  table_rig_row(t, 0, 48, (const int32_t[]){2759, 2758, 2757}, 3);
  table_rig_row(t, 0, 44, (const int32_t[]){2756, 2755, 2754}, 3);
  table_rig_row(t, 0, 43, (const int32_t[]){2753, 2752, 2751}, 3);
  batch_build(t->batch, &t->plan);
  derived_t d = derive(t->batch, 2048);
  const int32_t starts[] = {44144, 44128, 44112, 44096, 44080, 44064, 44048, 44032, 44016};
  const int32_t lengths[] = {16, 16, 16, 16, 16, 12, 16, 16, 11};
  ASSERT_EQ(t->batch->num_tokens, 135);
  EXPECT(t->batch->query_start_loc, 0, 48, 92, 135);
  EXPECT(t->batch->selected_token_indices, 47, 91, 134);
  for (int run = 0, at = 0; run < COUNT(starts); run++) {
    for (int i = 0; i < lengths[run]; i++) ASSERT_EQ(d.slots[at++], starts[run] + i);
  }
  table_rig_free(t);
}

Test(batch, golden_vector_c_first_decode_of_four_each) {
  table_rig_t *t = table_rig_new(16, 16);
  const int32_t computed[] = {48, 44, 43};
  const int32_t full[3][3] = {{2759, 2758, 2757}, {2756, 2755, 0}, {2753, 2752, 0}};
  const int32_t last[3][4] = {
      {2750, 2749, 2748, 2747}, {2746, 2745, 2744, 2754}, {2743, 2742, 2741, 2751}};
  for (int p = 0; p < 3; p++) {
    for (int s = 0; s < 4; s++) {
      int32_t blocks[4] = {full[p][0], full[p][1], full[p][2], 0};
      blocks[p == 0 ? 3 : 2] = last[p][s];
      table_rig_row(t, computed[p], 1, blocks, 4);
    }
  }
  batch_build(t->batch, &t->plan);
  derived_t d = derive(t->batch, 2048);
  EXPECT(d.slots, 44000, 43984, 43968, 43952, 43948, 43932, 43916, 44076, 43899, 43883, 43867,
         44027);
  table_rig_free(t);
}

/* The same step through the scheduler: forks, copy-on-write, the last sharer in place. Its blocks
 * are handed out upwards from 1, so block b stands for 2760 - b of the vector. */
Test(batch, golden_vector_c_forks_into_four_each) {
  scheduler_options_t options = rig_options(12, 256, 256);
  rig_t *rig = rig_new(&options, 2760, 16, true);
  const int32_t prompts[] = {48, 44, 43};
  for (int i = 0; i < 3; i++) rig_add_several(rig, prompts[i], 10, i, 4);
  ASSERT_EQ(rig_step(rig), 3);
  const batch_t *b = rig->batch;
  EXPECT(b->query_start_loc, 0, 48, 92, 135);
  EXPECT(b->selected_token_indices, 47, 91, 134);
  ASSERT_EQ(b->num_selected, 3);
  ASSERT_EQ(rig->pool->num_free, 2759 - 9);
  rig_commit(rig, 7);
  ASSERT_EQ_FOR(rig->pool->num_free, 2759 - 9, "a fork allocates nothing");
  const int32_t shared[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
  for (int i = 0; i < 9; i++) ASSERT_EQ(rig->pool->blocks[shared[i]].ref_count, 4);
  ASSERT_EQ(rig_step(rig), 12);
  const int32_t copies[][2] = {{2754, 2746}, {2754, 2745}, {2754, 2744},
                               {2751, 2743}, {2751, 2742}, {2751, 2741}};
  ASSERT_EQ(b->num_copies, 6);
  for (int i = 0; i < 6; i++) {
    ASSERT_EQ(2760 - b->copies[i].src, copies[i][0]);
    ASSERT_EQ(2760 - b->copies[i].dst, copies[i][1]);
    ASSERT_EQ(b->copies[i].rows, (i < 3 ? 12 : 11));
  }
  int32_t slots[12];
  for (int t = 0; t < 12; t++) {
    slots[t] = (2760 - (int32_t)b->slot_mapping[t] / 16) * 16 + (int32_t)b->slot_mapping[t] % 16;
  }
  EXPECT(slots, 44000, 43984, 43968, 43952, 43948, 43932, 43916, 44076, 43899, 43883, 43867, 44027);
  EXPECT(b->input_ids, 7, 8, 9, 10, 7, 8, 9, 10, 7, 8, 9, 10);
  EXPECT(b->seq_lens, 49, 49, 49, 49, 45, 45, 45, 45, 44, 44, 44, 44);
  ASSERT_EQ(rig->pool->blocks[6].pins, 3);
  ASSERT_EQ(rig->pool->blocks[6].ref_count, 1);
  ASSERT_EQ(rig->pool->num_free, 2759 - 9 - 10);
  rig_commit(rig, 7);
  ASSERT_EQ(rig->pool->blocks[6].pins, 0);
  block_pool_check(rig->pool);
  rig_free(rig);
}

Test(batch, prompt_logprobs_select_every_position_once) {
  scheduler_options_t options = rig_options(2, 8, 64);
  rig_t *rig = rig_new(&options, 32, 4, true);
  group_t *g = rig_add(rig, 13, 4, 1);
  rig->requests[0].params.num_prompt_logprobs = 0;
  rig_step(rig); /* tokens 0..7 score prompt tokens 1..8 */
  ASSERT_EQ(rig->batch->num_selected, 8);
  EXPECT(rig->batch->selected_target, 1001, 1002, 1003, 1004, 1005, 1006, 1007, 1008);
  g->sequence.num_scored = 8;
  rig_commit(rig, 1);
  rig_step(rig); /* tokens 8..12: four scores and the sample */
  EXPECT(rig->batch->selected_target, 1009, 1010, 1011, 1012, -1);
  EXPECT(rig->batch->selected_token_indices, 0, 1, 2, 3, 4);
  ASSERT_EQ(rig->batch->num_selected, 5);
  rig_free(rig);
}
