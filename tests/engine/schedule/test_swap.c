/* test_swap.c: preemption by swap: the arithmetic of its blocks, its order, its choice, and the
 * same tokens as ever, on the fake device and on the CPU with a host pool of its own.
 */
#include "engine/internal.h"
#include "engine/schedule/plan.h"
#include "tests/engine/client.h"
#include "tests/engine/schedule/block_check.h"
#include "tests/engine/schedule/swap_double.h"
#include "tests/engine/support.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <string.h>

/* ---- the scheduler alone ---- */

static scheduler_options_t swapping(int32_t seqs, int32_t host_blocks, preemption_mode_t mode) {
  scheduler_options_t options = rig_options(seqs, 64, 128);
  options.swap = (swap_options_t){.num_blocks = host_blocks, .mode = mode};
  return options;
}

static int32_t host_used(const rig_t *rig) {
  return rig->scheduler->options.swap.num_blocks - rig->scheduler->swap.num_free;
}

static int32_t used(const rig_t *rig) {
  return rig->pool->num_blocks - 1 - rig->pool->num_free;
}

static void step(rig_t *rig, int32_t id) {
  rig_step(rig);
  rig_commit(rig, id);
  block_pool_check(rig->pool);
}

Test(swap, a_victim_comes_back_with_what_it_had) {
  scheduler_options_t options = swapping(4, 8, PREEMPT_SWAP);
  rig_t *rig = rig_new(&options, 6, 4, false); /* 5 blocks */
  const plan_t *plan = &rig->scheduler->plan;
  group_t *a = rig_add(rig, 8, 20, 1), *b = rig_add(rig, 7, 20, 2);
  step(rig, 9);
  step(rig, 9);
  group_t *c = rig_add(rig, 4, 4, 3);
  int32_t before[2] = {b->sequence.blocks[0], b->sequence.blocks[1]};
  step(rig, 9); /* b has 9 tokens and finds no third block */
  const sequence_t *q = &b->sequence;
  ASSERT_EQ(q->status, SEQUENCE_SWAPPED);
  cr_assert(b->queue == &rig->scheduler->swapped);
  ASSERT_EQ(q->num_computed_tokens, 8);
  ASSERT_EQ(q->num_output_tokens, 2);
  ASSERT_EQ(q->num_blocks, 0);
  ASSERT_EQ(plan->num_swap_out, 2);
  ASSERT_EQ(plan->num_swap_in, 0);
  ASSERT_EQ(host_used(rig), 2);
  ASSERT_EQ(plan->swaps[0].device, before[0]);
  ASSERT_EQ(plan->swaps[0].host, q->host_blocks[0]);
  ASSERT_EQ(plan->swaps[1].device, before[1]);
  ASSERT_EQ(plan->swaps[1].host, q->host_blocks[1]);
  ASSERT_EQ_FOR(c->sequence.status, SEQUENCE_WAITING, "nobody is let in in a step that preempted");
  step(rig, 9);
  ASSERT_EQ_FOR(plan->num_swap_in, 0, "two blocks are free, it needs three");
  ASSERT_EQ_FOR(c->sequence.status, SEQUENCE_WAITING, "nor before the swapped ones");
  int32_t host[2] = {q->host_blocks[0], q->host_blocks[1]};
  scheduler_finish(rig->scheduler, a, SEQUENCE_FINISHED_LENGTH_CAPPED);
  rig_step(rig);
  ASSERT_EQ(q->status, SEQUENCE_RUNNING);
  ASSERT_EQ(q->num_blocks, 3);
  ASSERT_EQ(host_used(rig), 0);
  ASSERT_EQ(plan->num_swap_in, 2);
  ASSERT_EQ(plan->num_swap_out, 0);
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(plan->swaps[i].host, host[i]);
    ASSERT_EQ(plan->swaps[i].device, q->blocks[i]);
  }
  ASSERT_EQ(plan->entries[0].sequence, q);
  ASSERT_EQ(plan->entries[0].num_tokens, 1);
  ASSERT_EQ(plan->entries[0].num_computed, 8);
  cr_assert(plan->entries[0].do_sample);
  ASSERT_EQ_FOR(c->sequence.status, SEQUENCE_RUNNING, "the last of the swapped is back");
  ASSERT_EQ(rig->scheduler->num_recomputed_tokens, 0);
  rig_free(rig);
}

/* A request comes back with two blocks and needs a third; of the free blocks one is left, and two
 * lines by best effort want one each. The second makes room, but is not copied: what copies a plan
 * has go one way. */
Test(swap, by_best_effort_one_leaves_without_a_copy_where_another_came_back) {
  scheduler_options_t options = swapping(4, 8, PREEMPT_SWAP);
  rig_t *rig = rig_new(&options, 7, 4, false); /* 6 blocks */
  const plan_t *plan = &rig->scheduler->plan;
  group_t *chat = rig_add(rig, 7, 20, 1), *lines[2];
  step(rig, 9);
  for (int i = 0; i < 2; i++) {
    rig->requests[rig->count].best_effort = true;
    lines[i] = rig_add(rig, 4, 20, 2 + i);
  }
  step(rig, 9); /* their prompts, of a block each */
  plan_preempt(rig->scheduler, chat, true);
  ASSERT_EQ(chat->sequence.status, SEQUENCE_SWAPPED);
  rig_step(rig);
  EXPECT_EQ(chat->sequence.status, SEQUENCE_RUNNING);
  EXPECT_EQ(plan->num_swap_in, 2);
  EXPECT_EQ(plan->num_preempted, 1);
  EXPECT_EQ(plan->num_swap_out, 0);
  EXPECT_EQ(lines[0]->sequence.status, SEQUENCE_RUNNING);
  EXPECT_EQ_FOR(lines[1]->sequence.status, SEQUENCE_WAITING, "it is computed again");
  rig_free(rig);
}

/* 3 forks of a prompt of 2 blocks and a half, preempted later and later: the shared blocks go once,
 * the rest once for each. */
Test(swap, forks_go_and_come_with_their_sharing) {
  for (int32_t blocks = 9; blocks < 30; blocks++) {
    scheduler_options_t options = swapping(4, 30, PREEMPT_AUTO);
    rig_t *rig = rig_new(&options, blocks + 1, 4, false);
    scheduler_t *s = rig->scheduler;
    group_t *a = rig_add(rig, 8, 60, 7), *g = rig_add_several(rig, 10, 60, 1, 3);
    const sequence_t *q = &g->sequence;
    for (int id = 0; q->status != SEQUENCE_SWAPPED; id += 5) {
      cr_assert(s->waiting.queue.count == 0 || id == 0);
      step(rig, id); /* the ids of the three differ */
    }
    int32_t computed = q->num_computed_tokens, all = (computed + 3) / 4, named = 0;
    for (const sequence_t *p = q; p; p = p->next) named += p->num_host_blocks;
    int32_t distinct = computed == 10 ? 3 : 2 + 3 * (all - 2);
    cr_assert(named == 3 * all && host_used(rig) == distinct, "%d blocks of %d", host_used(rig),
              distinct);
    scheduler_finish(s, a, SEQUENCE_FINISHED_ABORTED);
    rig_step(rig);
    ASSERT_EQ(host_used(rig), 0);
    ASSERT_EQ(s->plan.num_swap_in, distinct);
    cr_assert(used(rig) == 2 + 3 * ((computed + 1 + 3) / 4 - 2), "%d blocks", used(rig));
    for (int i = 0; i < 2; i++) {
      ASSERT_EQ(q->blocks[i], q->next->blocks[i]);
      ASSERT_EQ(q->blocks[i], q->next->next->blocks[i]);
      ASSERT_EQ(rig->pool->blocks[q->blocks[i]].ref_count, 3);
    }
    rig_commit(rig, 3);
    block_pool_check(rig->pool);
    rig_free(rig);
  }
}

/* Preempted before its next write: the partial block that forks share is kept once, and copied for
 * each writer but the last when it is back. */
Test(swap, a_shared_partial_block_is_kept_once) {
  scheduler_options_t options = swapping(4, 20, PREEMPT_AUTO);
  rig_t *rig = rig_new(&options, 7, 4, false); /* 6 blocks */
  scheduler_t *s = rig->scheduler;
  group_t *a = rig_add(rig, 8, 20, 7), *g = rig_add_several(rig, 10, 8, 1, 3);
  step(rig, 1); /* 2 and 3 blocks: one is free; the first token of g forks it */
  cr_assert(g->forked);
  ASSERT_EQ(rig->pool->num_free, 1);
  step(rig, 2); /* a takes the last one, and g lacks two for its copies */
  ASSERT_EQ(g->sequence.status, SEQUENCE_SWAPPED);
  ASSERT_EQ(host_used(rig), 3);
  for (sequence_t *q = &g->sequence; q; q = q->next) {
    ASSERT_EQ(q->num_host_blocks, 3);
    for (int i = 0; i < 3; i++) ASSERT_EQ(q->host_blocks[i], g->sequence.host_blocks[i]);
  }
  scheduler_finish(s, a, SEQUENCE_FINISHED_ABORTED);
  rig_step(rig);
  ASSERT_EQ(s->plan.num_swap_in, 3);
  ASSERT_EQ(s->plan.num_copies, 2);
  ASSERT_EQ(s->plan.num_entries, 3);
  ASSERT_EQ(used(rig), 2 + 3);
  ASSERT_EQ(host_used(rig), 0);
  for (int i = 0; i < 2; i++) {
    ASSERT_EQ(s->plan.copies[i].copy.src, g->sequence.next->next->blocks[2]);
    ASSERT_EQ(s->plan.copies[i].copy.rows, 2);
  }
  rig_free(rig);
}

/* The victim is planned already, its copies too: what goes is what they were to be made from. */
Test(swap, copies_of_the_same_plan_are_undone) {
  scheduler_options_t options = swapping(4, 20, PREEMPT_SWAP);
  options.priority_policy = true;
  options.long_prefill_token_threshold = 8;
  rig_t *rig = rig_new(&options, 8, 4, false); /* 7 blocks */
  scheduler_t *s = rig->scheduler;
  group_t *bad = rig_add_several(rig, 10, 8, 1, 3);
  step(rig, 1);
  rig->requests[1].priority = -1;
  group_t *good = rig_add(rig, 8, 20, 2);
  step(rig, 1); /* 3 and 2 blocks; the other two are for the copies of the forks */
  int32_t shared = bad->sequence.blocks[2];
  cr_assert(bad->forked);
  ASSERT_EQ(s->running.head, bad);
  ASSERT_EQ(rig->pool->num_free, 2);
  rig_step(rig);
  ASSERT_EQ(bad->sequence.status, SEQUENCE_SWAPPED);
  ASSERT_EQ(good->sequence.num_blocks, 3);
  ASSERT_EQ(s->plan.num_copies, 0);
  ASSERT_EQ(s->plan.num_swap_out, 3);
  ASSERT_EQ(host_used(rig), 3);
  ASSERT_EQ(s->plan.swaps[2].device, shared);
  ASSERT_EQ(rig->pool->blocks[shared].pins, 0);
  ASSERT_EQ(s->plan.swaps[2].host, bad->sequence.next->host_blocks[2]);
  rig_commit(rig, 1);
  block_pool_check(rig->pool);
  rig_free(rig);
}

Test(swap, what_the_cache_still_has_is_not_copied) {
  scheduler_options_t options = swapping(4, 20, PREEMPT_SWAP);
  rig_t *rig = rig_new(&options, 8, 4, true); /* 7 blocks */
  scheduler_t *s = rig->scheduler;
  group_t *a = rig_add(rig, 12, 20, 1), *b = rig_add(rig, 14, 20, 2);
  step(rig, 9); /* 3 and 4 blocks */
  const sequence_t *q = &b->sequence;
  int32_t first[3] = {q->blocks[0], q->blocks[1], q->blocks[2]};
  step(rig, 9); /* a needs a 4th: b goes, and a takes the oldest of its leaves */
  ASSERT_EQ(q->status, SEQUENCE_SWAPPED);
  ASSERT_EQ(host_used(rig), 4);
  scheduler_finish(s, a, SEQUENCE_FINISHED_ABORTED);
  rig_step(rig);
  ASSERT_EQ(q->status, SEQUENCE_RUNNING);
  ASSERT_EQ(s->plan.num_swap_in, 1);
  for (int i = 0; i < 3; i++) ASSERT_EQ_FOR(q->blocks[i], first[i], "a full block is found again");
  ASSERT_EQ(q->num_published, 3);
  ASSERT_EQ(host_used(rig), 0);
  rig_commit(rig, 9);
  block_pool_check(rig->pool);
  rig_free(rig);
}

/* It is let in with blocks of the cache and leaves in the same plan, for the next chunk of the long
 * prompt that it passed. The cache has all that it had, so it goes back to its place. */
Test(swap, who_has_computed_nothing_is_not_copied) {
  scheduler_options_t options = swapping(4, 20, PREEMPT_SWAP);
  options.short_prompts_pass = true;
  options.reserve_full = false;
  rig_t *rig = rig_new(&options, 100, 4, true);
  scheduler_t *s = rig->scheduler;
  group_t *cached = rig_add(rig, 33, 4, 1);
  step(rig, 9);
  scheduler_finish(s, cached, SEQUENCE_FINISHED_ABORTED);
  rig_add(rig, 120, 4, 2);
  step(rig, 9); /* 64 tokens of it */
  group_t *passes = rig_add(rig, 33, 4, 1);
  while (rig->pool->num_free > 18) block_allocate(rig->pool); /* the chunk needs 14, `passes` 9 */
  rig_step(rig);
  ASSERT_EQ(s->plan.num_preempted, 1);
  ASSERT_EQ(passes->num_preemptions, 1);
  ASSERT_EQ(s->plan.num_swap_out, 0);
  ASSERT_EQ(passes->sequence.status, SEQUENCE_WAITING);
  cr_assert(passes->queue == &s->waiting.queue);
  rig_free(rig);
}

/* Beams may fork up to their width, which is kept free among the sequences; but only those that
 * live need a token when they come back. */
Test(swap, beams_come_back_into_what_a_prefill_leaves) {
  int32_t seen = 0;
  for (int32_t length = 40; length < 48; length++) {
    scheduler_options_t options = swapping(6, 30, PREEMPT_SWAP);
    options.max_num_batched_tokens = 8;
    options.priority_policy = true;
    rig_t *rig = rig_new(&options, 6 + (length + 3) / 4, 4, false);
    group_t *a = rig_add(rig, 4, 60, 1), *g = rig_add_several(rig, 4, 60, 2, 3);
    g->request->priority = 1; /* the victim */
    step(rig, 9);
    cr_assert(g->forked);
    g->request->params.beam_width = 3;
    rig_end_sequence(rig, g->sequence.next, SEQUENCE_FINISHED_STOPPED);
    group_t *p = rig_add(rig, length, 4, 3);
    while (g->sequence.status == SEQUENCE_RUNNING) step(rig, 9);
    ASSERT_EQ(g->sequence.status, SEQUENCE_SWAPPED);
    ASSERT_EQ(p->sequence.status, SEQUENCE_RUNNING);
    scheduler_finish(rig->scheduler, a, SEQUENCE_FINISHED_ABORTED);
    int32_t left = length - p->sequence.num_computed_tokens;
    ASSERT_GT(left, 0);
    for (; left > 8; left -= 8) step(rig, 9);
    rig_step(rig);
    ASSERT_EQ_FOR((g->sequence.status == SEQUENCE_RUNNING), (left <= 6), "a chunk of %d of 8",
                  left);
    seen |= 1 << left;
    rig_free(rig);
  }
  ASSERT_EQ_FOR(seen, 0x1fe, "every rest from 1 to 8");
}

Test(swap, verdicts_are_ok_later_and_never) {
  scheduler_options_t options = swapping(2, 20, PREEMPT_SWAP);
  rig_t *rig = rig_new(&options, 5, 4, false); /* 4 blocks */
  scheduler_t *s = rig->scheduler;
  group_t *g = rig_add(rig, 15, 20, 1); /* no door has asked whether 35 tokens fit */
  step(rig, 9);
  step(rig, 9);
  ASSERT_EQ(g->sequence.num_computed_tokens, 16);
  ASSERT_EQ(used(rig), 4);
  rig_step(rig);
  ASSERT_EQ(g->sequence.status, SEQUENCE_SWAPPED);
  ASSERT_EQ(host_used(rig), 4);
  ASSERT_EQ(swap_verdict(s, g), SWAP_NEVER);
  rig_step(rig);
  ASSERT_EQ(s->ignored.head, g);
  ASSERT_EQ(s->swapped.count, 0);
  ASSERT_EQ(s->plan.num_swap_in, 0);
  scheduler_finish(s, g, SEQUENCE_FINISHED_IGNORED);
  ASSERT_EQ(s->ignored.count, 0);
  ASSERT_EQ(host_used(rig), 0);
  ASSERT_EQ(used(rig), 0);
  rig_free(rig);
}

Test(swap, a_cancelled_request_leaves_nothing_on_the_host) {
  scheduler_options_t options = swapping(4, 20, PREEMPT_AUTO);
  rig_t *rig = rig_new(&options, 7, 4, false);
  rig_add(rig, 8, 20, 7);
  group_t *g = rig_add_several(rig, 10, 8, 1, 3);
  step(rig, 1);
  step(rig, 2);
  ASSERT_EQ(host_used(rig), 3);
  rig_end_sequence(rig, &g->sequence, SEQUENCE_FINISHED_STOPPED);
  ASSERT_EQ_FOR(host_used(rig), 3, "two choices still need them");
  scheduler_finish(rig->scheduler, g, SEQUENCE_FINISHED_ABORTED);
  ASSERT_EQ(host_used(rig), 0);
  ASSERT_EQ(rig->scheduler->swapped.count, 0);
  rig_free(rig);
}

/* One victim with 8 computed tokens in 2 blocks: its mode and what is on the host. */
static sequence_status_t preempt_one(const scheduler_options_t *options, double block_ns,
                                     double token_ns, int32_t *host) {
  rig_t *rig = rig_new(options, 6, 4, false);
  rig->scheduler->swap.block_ns = block_ns;
  rig->scheduler->swap.token_ns = token_ns;
  rig_add(rig, 8, 20, 1);
  group_t *b = rig_add(rig, 7, 20, 2);
  for (int i = 0; i < 3; i++) step(rig, 9);
  sequence_status_t status = b->sequence.status;
  *host = host_used(rig);
  rig_free(rig);
  return status;
}

Test(swap, auto_takes_the_faster_way) {
  int32_t host;
  scheduler_options_t o = swapping(4, 8, PREEMPT_AUTO);
  /* out and in, 2 blocks: 4 block times against 8 token times */
  ASSERT_EQ(preempt_one(&o, 100, 51, &host), SEQUENCE_SWAPPED);
  ASSERT_EQ(host, 2);
  ASSERT_EQ(preempt_one(&o, 100, 49, &host), SEQUENCE_WAITING);
  ASSERT_EQ(host, 0);
  ASSERT_EQ_FOR(preempt_one(&o, 100, 0, &host), SEQUENCE_WAITING, "nothing is measured yet");
  o.swap.mode = PREEMPT_SWAP;
  ASSERT_EQ(preempt_one(&o, 100, 0, &host), SEQUENCE_SWAPPED);
  ASSERT_EQ(host, 2);
  o.swap.mode = PREEMPT_RECOMPUTE;
  ASSERT_EQ(preempt_one(&o, 1, 100, &host), SEQUENCE_WAITING);
  ASSERT_EQ(host, 0);
  o.swap = (swap_options_t){.num_blocks = 1, .mode = PREEMPT_SWAP};
  ASSERT_EQ_FOR(preempt_one(&o, 1, 100, &host), SEQUENCE_WAITING, "no room for two");
  ASSERT_EQ_FOR(host, 0, "no room for two");
}

/* ---- the engine ---- */

enum { VOCAB = 384, JOBS = 48 };

static engine_options_t tight(const ops_t *ops) {
  engine_options_t o = client_options(ops);
  o.num_threads = 2;
  o.num_blocks = 70;
  o.max_model_len = 1024;
  o.swap_space_bytes = (int64_t)1 << 26;
  o.preemption_mode = PREEMPT_SWAP;
  return o;
}

/* Greedy and drawn, alone, several choices, the best of several, beams. */
static void submit_mixed(client_t *c) {
  for (int i = 0; i < JOBS; i++) {
    job_t *job = client_job(c, 1 + (i * 29) % 150, 20 + (i * 11) % 60, i % 12);
    sampling_params_t *p = &job->request.params;
    p->ignore_eos = true;
    p->seed = (uint64_t)i;
    if (i % 3 == 1) p->temperature = 0.9f;
    if (i % 4 == 1) p->n = 1 + i % 3;
    if (i % 8 == 3) p->best_of = 3, p->temperature = 0.8f;
    if (i % 8 == 7) p->beam_width = 3, p->temperature = 0;
    if (params_multiple(p)) client_several(job);
    ASSERT_EQ(client_submit(c, job), 0);
  }
}

static client_t *run_mixed(const engine_options_t *options) {
  client_t *c = client_new(options);
  submit_mixed(c);
  client_run(c);
  return c;
}

static void expect_same(const client_t *want, const client_t *got) {
  for (int i = 0; i < JOBS; i++) {
    const job_t *a = &want->jobs[i], *b = &got->jobs[i];
    ASSERT_EQ(a->done.finish, b->done.finish);
    ASSERT_EQ(a->num_choices, b->num_choices);
    ASSERT_EQ_FOR(a->num_output, b->num_output, "request %d", i);
    ASSERT_IDS_EQ(b->output, a->output, CLIENT_OUTPUT_MAX);
    cr_assert(a->text_length == b->text_length && !memcmp(a->text, b->text, a->text_length),
              "request %d differs", i);
    for (int j = 0; j < a->num_choices; j++) {
      const choice_t *x = &a->choices[j], *y = &b->choices[j];
      cr_assert(x->num_output == y->num_output &&
                    memcmp(x->output, y->output, sizeof x->output) == 0 &&
                    memcmp(x->logprob, y->logprob, sizeof x->logprob) == 0,
                "choice %d of request %d differs", j, i);
    }
  }
}

static void expect_swapped(client_t *c) {
  engine_stats_t s = client_stats(c);
  cr_assert(s.preemptions_swap > 5 && s.swapped_out_blocks > 20, "%llu groups, %llu blocks",
            (unsigned long long)s.preemptions_swap, (unsigned long long)s.swapped_out_blocks);
  ASSERT_GT(s.swapped_in_blocks, 0);
  ASSERT_LE(s.swapped_in_blocks, s.swapped_out_blocks);
  ASSERT_EQ(s.preemptions, s.preemptions_swap);
  ASSERT_EQ(s.recomputed_tokens, 0);
  ASSERT_EQ(s.num_swapped, 0);
  ASSERT_EQ(s.host_blocks_used, 0);
  client_check_idle(c);
}

static void mixed_requests_are_the_same(const ops_t *ops, bool caching) {
  engine_options_t o = tight(ops);
  o.enable_prefix_caching = caching;
  client_t *got = run_mixed(&o);
  expect_swapped(got);
  ASSERT_EQ(fake_violations(), 0);
  o.num_blocks = 2000;
  client_t *want = run_mixed(&o);
  ASSERT_EQ(client_stats(want).preemptions, 0);
  expect_same(want, got);
  client_free(want);
  client_free(got);
}

Test(swap, mixed_requests_on_the_fake_device) {
  mixed_requests_are_the_same(&ops_fake, true);
}

Test(swap, mixed_requests_with_two_steps_in_flight) {
  mixed_requests_are_the_same(fake_ops_deep(), true);
}

Test(swap, mixed_requests_on_the_cpu, .timeout = 600) {
  mixed_requests_are_the_same(swap_double_ops(), true);
}

Test(swap, mixed_requests_without_a_cache, .timeout = 600) {
  mixed_requests_are_the_same(swap_double_ops(), false);
}

/* The model is its own drafter: a row of the drafter's cache that did not come back would cost a
 * draft token. */
Test(swap, a_draft_model_swaps_too, .timeout = 600) {
  engine_options_t o = tight(swap_double_ops());
  o.num_blocks = 66;
  o.draft = (draft_options_t){.tokens_max = 5, .match_min = 2, .match_max = 4, .longest = true};
  o.draft_model_dir = o.model_dir;
  client_t *c = run_mixed(&o);
  engine_stats_t s = client_stats(c);
  expect_swapped(c);
  cr_assert(s.draft_tokens > 100 && s.draft_tokens == s.draft_tokens_accepted, "%llu of %llu",
            (unsigned long long)s.draft_tokens_accepted, (unsigned long long)s.draft_tokens);
  client_free(c);
}

/* Both rates are measured: a link of a byte a second is never worth it, a perfect one always. */
Test(swap, auto_measures_while_running) {
  for (int fast = 0; fast < 2; fast++) {
    fake_settings.swap_rate = fast ? 1e15 : 1;
    engine_options_t o = tight(&ops_fake);
    o.preemption_mode = PREEMPT_AUTO;
    client_t *c = client_new(&o);
    for (int i = 0; i < JOBS; i++) {
      job_t *job = client_job(c, 20 + (i * 29) % 150, 20 + (i * 11) % 60, i);
      job->request.params.ignore_eos = true;
      ASSERT_EQ(client_submit(c, job), 0);
    }
    client_run(c);
    engine_stats_t s = client_stats(c);
    cr_assert(s.preemptions > 5 && s.preemptions_swap == (fast ? s.preemptions : 0),
              "%llu of %llu are swapped", (unsigned long long)s.preemptions_swap,
              (unsigned long long)s.preemptions);
    client_check_idle(c);
    client_free(c);
  }
  fake_settings.swap_rate = 0;
}

/* The door is talked into a sequence that outgrows the pool: the pool has lost blocks since. */
Test(swap, who_can_never_come_back_is_told_so) {
  engine_options_t o = tight(&ops_fake);
  o.num_blocks = 40;
  o.max_model_len = 400;
  client_t *c = client_by_hand(&o);
  block_pool_t *pool = c->engine->pool;
  int32_t taken[39];
  for (int i = 0; i < 39; i++) taken[i] = block_allocate(pool);
  for (int i = 0; i < 19; i++) block_release(pool, taken[i]);
  pool->num_blocks = 20;
  job_t *job = client_job(c, 40, 350, 1), *next = client_job(c, 40, 20, 2);
  job->request.params.ignore_eos = next->request.params.ignore_eos = true;
  ASSERT_EQ(client_submit(c, job), 0);
  ASSERT_EQ(client_submit(c, next), 0);
  for (int turn = 0; turn < 1000 && c->num_done < 2; turn++) {
    engine_iterate(c->engine);
    client_drain(c);
  }
  cr_assert(job->done.finish == FINISH_ERROR && job->done.error_code == ERR_CONTEXT_LENGTH,
            "done %d: finish %d, error %d", job->num_done, (int)job->done.finish,
            job->done.error_code);
  ASSERT_EQ(next->done.finish, FINISH_LENGTH);
  pool->num_blocks = 40;
  for (int i = 19; i < 39; i++) block_release(pool, taken[i]);
  engine_iterate(c->engine);
  engine_stats_t s = client_stats(c);
  ASSERT_GT(s.generation_tokens, 200);
  ASSERT_EQ(s.blocks_used, 0);
  ASSERT_EQ(s.host_blocks_used, 0);
  ASSERT_EQ(s.num_swapped, 0);
  client_free(c);
}

/* A host pool of 12 blocks: some are swapped, the others computed again. All requests are there
 * before the first step, so that the pool is too small whatever the threads do. */
Test(swap, a_full_host_pool_falls_back) {
  engine_options_t o = tight(&ops_fake);
  o.swap_space_bytes = 12 * 16 * (int64_t)sizeof(uint64_t);
  client_t *got = client_by_hand(&o);
  submit_mixed(got);
  for (int turn = 0; turn < 10000 && got->num_done < JOBS; turn++) {
    engine_iterate(got->engine);
    client_drain(got);
  }
  engine_iterate(got->engine);
  engine_stats_t s = client_stats(got);
  ASSERT_GT(s.preemptions_swap, 0);
  ASSERT_GT(s.preemptions, s.preemptions_swap);
  ASSERT_EQ(s.host_blocks_free, 12);
  ASSERT_EQ(fake_violations(), 0);
  client_check_idle(got);
  client_free(got);
}

static void expect_refused(const engine_options_t *o, const char *field, const char *word) {
  engine_t *e = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ(engine_create(o, &e, &error), 0);
  while (engine_state(e) == ENGINE_LOADING) continue;
  ASSERT_EQ(engine_state(e), ENGINE_FAILED);
  engine_failure(e, &error);
  cr_assert(error.code == ERR_CONFIGURATION && strstr(error.message, word), "%s", error.message);
  ASSERT_STR_EQ_FOR(error.param, field, "%s", error.param);
  engine_destroy(e);
}

Test(swap, what_cannot_be_is_refused_by_name) {
  engine_options_t o = client_options(&ops_cpu);
  o.swap_space_bytes = (int64_t)4 << 30;
  expect_refused(&o, "swap_space", "swap_space is 4 GiB; it must be 0, because cpu cannot swap");
  o.swap_space_bytes = -1;
  o.preemption_mode = PREEMPT_SWAP;
  expect_refused(&o, "preemption_mode", "it must be recompute or auto");
  o = client_options(&ops_fake);
  o.swap_space_bytes = 3;
  expect_refused(&o, "swap_space", "it must be 0, or hold a block of 16 tokens, 128 bytes");
}
