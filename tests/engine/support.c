/* support.c: see support.h. */
#include "tests/engine/support.h"

#include "engine/schedule/table.h"
#include "engine/schedule/window/side_blocks.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>

scheduler_options_t rig_options(int32_t max_num_seqs, int32_t budget, int32_t max_model_len) {
  return (scheduler_options_t){
      .max_num_seqs = max_num_seqs,
      .max_num_batched_tokens = budget,
      .max_model_len = max_model_len,
      .reserve_full = true,
      .chunked_prefill = true,
  };
}

rig_t *rig_new(const scheduler_options_t *options, int32_t num_blocks, int32_t block_size,
               bool caching) {
  rig_t *rig = calloc(1, sizeof *rig);
  uint64_t secret[2] = {1, 2};
  cr_assert(rig != NULL);
  ASSERT_EQ(block_pool_new(num_blocks, block_size, caching, secret, &rig->pool, NULL), 0);
  if (options->window.tokens > 0) ASSERT_EQ(block_pool_add_sides(rig->pool, 1, NULL), 0);
  ASSERT_EQ(scheduler_new(options, rig->pool, &rig->scheduler, NULL), 0);
  ASSERT_EQ(batch_new(options->max_num_batched_tokens, options->max_num_seqs, block_size,
                      rig->scheduler->table_stride, 1, &rig->batch),
            0);
  rig->now_ns = 1;
  return rig;
}

void rig_free(rig_t *rig) {
  batch_free(rig->batch);
  scheduler_free(rig->scheduler);
  block_pool_free(rig->pool);
  free(rig);
}

static group_t *add(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed, int32_t n,
                    bool beams) {
  int i = rig->count++;
  ASSERT_LT(i, SUPPORT_GROUPS);
  ASSERT_LE(prompt_tokens, SUPPORT_TOKENS);
  for (int32_t t = 0; t < prompt_tokens; t++) rig->ids[i][t] = seed * 1000 + t;
  request_t *r = &rig->requests[i];
  r->prompt_ids = rig->ids[i];
  r->num_prompt_tokens = prompt_tokens;
  r->params.max_tokens = max_tokens;
  r->params.num_prompt_logprobs = -1;
  r->params.num_logprobs = -1;
  r->params.repetition_penalty = 1;
  r->params.n = n;
  r->params.beam_width = beams && n > 1 ? n : 0;
  group_init(&rig->groups[i], r, (uint64_t)i << 8); /* room for the numbers of its choices */
  scheduler_add(rig->scheduler, &rig->groups[i]);
  return &rig->groups[i];
}

group_t *rig_add(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed) {
  return add(rig, prompt_tokens, max_tokens, seed, 1, false);
}

group_t *rig_add_several(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed,
                         int32_t n) {
  return add(rig, prompt_tokens, max_tokens, seed, n, true);
}

group_t *rig_add_choices(rig_t *rig, int32_t prompt_tokens, int32_t max_tokens, int32_t seed,
                         int32_t n) {
  return add(rig, prompt_tokens, max_tokens, seed, n, false);
}

group_t *rig_choice(group_t *lead, int32_t index) {
  group_t *group = lead;
  while (group != NULL && group->sequence.index != index) group = group->siblings.next;
  return group;
}

void rig_end_sequence(rig_t *rig, sequence_t *seq, sequence_status_t status) {
  sequence_set_status(seq, status);
  table_release(rig->scheduler, seq);
  swap_release(rig->scheduler, seq);
}

/* As if the best continuations were those of as many different ids. */
static void fork_beams(rig_t *rig, group_t *group) {
  group->forked = true;
  for (sequence_t *seq = group->sequence.next; seq != NULL; seq = seq->next) {
    table_fork(rig->scheduler, &group->sequence, seq);
    sequence_set_status(seq, SEQUENCE_RUNNING);
  }
}

int32_t rig_step(rig_t *rig) {
  int32_t rows = scheduler_plan(rig->scheduler, rig->now_ns);
  batch_build(rig->batch, &rig->scheduler->plan);
  return rows;
}

void rig_commit(rig_t *rig, int32_t id) {
  plan_t *plan = &rig->scheduler->plan;
  scheduler_unpin(rig->scheduler, plan);
  for (int32_t r = 0; r < plan->num_entries; r++) {
    const plan_entry_t *entry = &plan->entries[r];
    sequence_t *q = entry->sequence;
    scheduler_complete(entry);
    scheduler_publish(rig->scheduler, entry);
    if (!entry->do_sample) continue;
    bool forks = q->group->width > 1 && !q->group->forked;
    if (q->index == 0 && q->num_output_tokens == 0) siblings_begin(rig->scheduler, q->group);
    if (forks) fork_beams(rig, q->group);
    do table_add_id(q, id + q->index);
    while (forks && (q = q->next) != NULL);
  }
}

int32_t rig_chunk(const rig_t *rig, const group_t *group) {
  const plan_t *plan = &rig->scheduler->plan;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    if (plan->entries[i].sequence == &group->sequence) return plan->entries[i].num_tokens;
  }
  return 0;
}

const char *plan_difference(const rig_t *rig, const expected_chunk_t *expected, int count) {
  static char text[2048];
  bool same = true;
  FILE *out = fmemopen(text, sizeof text, "w");
  cr_assert(out != NULL);
  for (int i = 0; i < count; i++) {
    int32_t got = rig_chunk(rig, expected[i].group);
    same = same && got == expected[i].num_tokens;
    fprintf(out, "%s %s %d", i == 0 ? "plan is" : ",", expected[i].name, got);
  }
  for (int i = 0; i < count; i++) {
    fprintf(out, "%s %s %d", i == 0 ? "; expected" : ",", expected[i].name, expected[i].num_tokens);
  }
  fclose(out);
  return same ? NULL : text;
}

const char *ids_difference(const int32_t *got, const int32_t *expected, int32_t count) {
  static char text[256];
  for (int32_t i = 0; i < count; i++) {
    if (got[i] == expected[i]) continue;
    snprintf(text, sizeof text, "id %d of %d is %d, expected %d; before it %d", i, count, got[i],
             expected[i], i > 0 ? got[i - 1] : -1);
    return text;
  }
  return NULL;
}
