/* test_sharing.c: how many KV blocks live requests, forks and beams take, after every step.
 *
 * The test's own thread runs the engine, one iteration at a time. What it should hold is counted
 * from the token ids alone: one block for each different content, up to the end of each block, of
 * what is computed; and for forks the plain formula of shared and private blocks.
 */
#include "engine/internal.h"
#include "engine/schedule/table.h"
#include "tests/engine/client.h"
#include "tests/engine/schedule/block_check.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 16 };

static int32_t used(const client_t *c) {
  return c->engine->pool->num_blocks - 1 - c->engine->pool->num_free;
}

/* The first sequence of a job; NULL once it has ended. */
static const sequence_t *first_of(const client_t *c, const job_t *job) {
  const group_t *group = &c->engine->groups[job->request.slot];
  return group->in_use && group->request == &job->request ? &group->sequence : NULL;
}

/* Different contents of block `index` among live sequences, up to what they have computed. */
static int32_t contents_at(const client_t *c, int32_t index) {
  const sequence_t *seen[64];
  int32_t lengths[64], count = 0;
  for (int i = 0; i < c->count; i++) {
    for (const sequence_t *q = first_of(c, &c->jobs[i]); q; q = q->next) {
      int32_t end = (index + 1) * BLOCK_SIZE;
      if (!sequence_is_live(q) || q->num_computed_tokens <= index * BLOCK_SIZE) continue;
      if (q->num_computed_tokens < end) end = q->num_computed_tokens;
      bool is_new = true;
      for (int32_t k = 0; k < count && is_new; k++) {
        bool same_parts = end % BLOCK_SIZE == 0 || seen[k]->group == q->group;
        bool same = lengths[k] == end && same_parts;
        for (int32_t p = 0; p < end && same; p++) same = table_id(seen[k], p) == table_id(q, p);
        is_new = !same;
      }
      if (!is_new) continue;
      ASSERT_LT(count, 64);
      seen[count] = q;
      lengths[count++] = end;
    }
  }
  return count;
}

static int32_t contents(const client_t *c) {
  int32_t total = 0;
  for (int32_t i = 0; i < 32; i++) total += contents_at(c, i);
  return total;
}

static job_t *submit(client_t *c, int32_t prompt, int32_t most, int32_t seed, int32_t n,
                     int32_t width) {
  job_t *job = client_job(c, prompt, most, seed);
  job->request.params.n = n;
  job->request.params.beam_width = width;
  job->request.params.temperature = width ? 0 : 1;
  job->request.params.ignore_eos = true;
  if (n > 1 || width) client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
  return job;
}

static void finish_all(client_t *c) {
  while (c->num_done < c->count) {
    engine_iterate(c->engine);
    client_drain(c);
  }
  engine_iterate(c->engine);
  ASSERT_EQ(used(c), 0);
  client_free(c);
}

/* The choices behind the first begin one token later, each with a copy of the last rows. */
Test(sharing, choices_take_the_prompt_once_and_their_own_tails) {
  for (int32_t prompt = 40; prompt <= 49; prompt++) {
    engine_options_t o = client_options(&ops_fake);
    client_t *c = client_by_hand(&o);
    const int32_t n = 4;
    submit(c, prompt, 60, prompt, n, 0);
    engine_iterate(c->engine); /* the prompt is computed once */
    int32_t shared = prompt / BLOCK_SIZE, whole = (prompt + BLOCK_SIZE - 1) / BLOCK_SIZE;
    ASSERT_EQ_FOR(used(c), whole, "no choice but the first has begun");
    for (int32_t t = 1; t < 59; t++) {
      engine_iterate(c->engine);
      client_drain(c);
      int32_t first = (prompt + t + BLOCK_SIZE - 1) / BLOCK_SIZE;
      int32_t others = (prompt + t - 1 + BLOCK_SIZE - 1) / BLOCK_SIZE;
      cr_assert(used(c) == first + (n - 1) * (others - shared), "prompt %d, token %d: %d blocks",
                prompt, t, used(c));
      bool copies = t == 1 && (prompt - 1) % BLOCK_SIZE != 0;
      ASSERT_EQ(c->engine->steps[0].batch->num_copies, (copies ? n - 1 : 0));
      if (t == 1) ASSERT_EQ(c->engine->steps[0].plan.num_tokens, n);
    }
    finish_all(c);
  }
}

Test(sharing, live_requests_share_every_full_block_of_a_common_prefix) {
  engine_options_t o = client_options(&ops_fake);
  client_t *c = client_by_hand(&o);
  for (int i = 0; i < 6; i++) { /* 64 common tokens, then 20 of their own */
    job_t *job = client_job(c, 84, 40, 9);
    for (int t = 64; t < 84; t++) job->prompt[t] = 10 + i;
    job->request.params.ignore_eos = true;
    ASSERT_EQ(client_submit(c, job), 0);
  }
  for (int step = 0; step < 20; step++) {
    engine_iterate(c->engine);
    client_drain(c);
    bool all_decode = true;
    for (int i = 0; i < 6; i++) {
      const sequence_t *q = first_of(c, &c->jobs[i]);
      all_decode = all_decode && q && q->num_output_tokens > 0;
    }
    if (!all_decode) continue;
    cr_assert(used(c) == contents(c), "%d blocks for %d contents", used(c), contents(c));
    int32_t length = first_of(c, &c->jobs[5])->num_computed_tokens;
    if (length < 96) ASSERT_LE(used(c), 4 + 6 * 2);
  }
  ASSERT_EQ(first_of(c, &c->jobs[5])->num_cached_tokens, 64);
  finish_all(c);
}

Test(sharing, beams_hold_one_block_for_each_different_content) {
  for (int32_t width = 2; width <= 8; width++) {
    engine_options_t o = client_options(&ops_fake);
    client_t *c = client_by_hand(&o);
    job_t *job = submit(c, 37 + width, 50, width, 1, width);
    int32_t steps = 0, most = 0;
    while (engine_iterate(c->engine), client_drain(c), !job->num_done) {
      cr_assert(used(c) == contents(c), "width %d, step %d: %d blocks for %d contents", width,
                steps, used(c), contents(c));
      if (used(c) > most) most = used(c);
      block_pool_check(c->engine->pool);
      steps++;
    }
    cr_assert(steps >= 49 && (width < 8 || most > 6), "%d steps, %d blocks", steps, most);
    finish_all(c);
  }
}

/* A beam step copies a shared partial block once for each writer but the last. */
Test(sharing, beams_copy_only_what_two_of_them_write) {
  engine_options_t o = client_options(&ops_fake);
  client_t *c = client_by_hand(&o);
  job_t *job = submit(c, 20, 60, 3, 4, 4);
  int total = 0;
  engine_iterate(c->engine);
  for (int step = 1; !job->num_done; step++) {
    /* sharers of each partial block before the step, minus one, is what the step must copy */
    int expected = 0;
    for (const sequence_t *q = first_of(c, job); q; q = q->next) {
      int32_t i = q->num_computed_tokens / BLOCK_SIZE;
      if (!sequence_is_live(q) || q->num_computed_tokens % BLOCK_SIZE == 0) continue;
      bool first = true;
      for (const sequence_t *p = first_of(c, job); p != q; p = p->next) {
        first = first && !(sequence_is_live(p) && p->blocks[i] == q->blocks[i]);
      }
      expected += !first;
    }
    engine_iterate(c->engine);
    client_drain(c);
    cr_assert(c->engine->steps[0].batch->num_copies == expected, "step %d: %d copies, not %d", step,
              c->engine->steps[0].batch->num_copies, expected);
    total += expected;
  }
  ASSERT_GE(total, 3);
  finish_all(c);
}

/* Preempted beams share what they have in common when they come back, so that they catch up at
 * different steps; none of them draws before all can. */
Test(sharing, beams_that_were_preempted_draw_together) {
  uint64_t preemptions = 0;
  for (int32_t seed = 0; seed < 60; seed++) {
    engine_options_t o = client_options(&ops_fake);
    o.num_blocks = 146 + seed;
    o.block_size = 1 << seed % 2;
    o.max_model_len = 80;
    o.max_num_seqs = 16;
    o.max_num_batched_tokens = 16 + seed % 5;
    o.long_prefill_token_threshold = 2 + seed % 6;
    o.enable_prefix_caching = seed % 4 < 2;
    o.max_preemptions = 1; /* from then on they reserve their worst case, which is no content */
    client_t *c = client_by_hand(&o);
    submit(c, 3 + seed % 7, 40, seed, 2, 0);
    for (int i = 0; i < 5; i++) submit(c, 3 + (seed + i) % 20, 30, seed + i, 1, 2 + (seed + i) % 3);
    while (c->num_done < c->count) {
      engine_iterate(c->engine);
      client_drain(c);
      for (int i = 1; i < c->count; i++) {
        int32_t length = -1;
        for (const sequence_t *q = first_of(c, &c->jobs[i]); q; q = q->next) {
          if (!sequence_is_live(q)) continue;
          cr_assert(length < 0 || q->num_output_tokens == length,
                    "seed %d: a beam of request %d has %d tokens, another one %d", seed, i,
                    q->num_output_tokens, length);
          length = q->num_output_tokens;
        }
      }
    }
    preemptions += client_stats(c).preemptions;
    ASSERT_EQ_FOR(fake_violations(), 0, "seed %d: an empty copy, or a wrong prefix", seed);
    finish_all(c);
  }
  cr_assert(preemptions > 60, "only %d preemptions", (int)preemptions);
}

Test(sharing, a_repeated_prompt_is_cached_to_its_last_token_but_one) {
  const int32_t prompts[] = {77, 65, 64, 51, 48, 17, 16, 1};
  const int32_t cached[] = {76, 64, 63, 50, 47, 16, 15, 0};
  for (int i = 0; i < 8; i++) {
    engine_options_t o = client_options(&ops_fake);
    client_t *c = client_by_hand(&o);
    for (int turn = 0; turn < 2; turn++) {
      job_t *job = submit(c, prompts[i], 10, 1, 1, 0);
      while (!job->num_done) engine_iterate(c->engine), client_drain(c);
      cr_assert(job->done.num_cached_tokens == (turn ? cached[i] : 0), "prompt %d: %d cached",
                prompts[i], job->done.num_cached_tokens);
    }
    ASSERT_EQ(fake_violations(), 0);
    finish_all(c);
  }
}

/* The conversation goes on: what was decoded is there to the last computed token, also in a block
 * that is not full. */
Test(sharing, an_answer_is_cached_to_its_last_token_but_one) {
  for (int32_t tokens = 2; tokens < 40; tokens += 3) {
    engine_options_t o = client_options(&ops_fake);
    client_t *c = client_by_hand(&o);
    const job_t *first = submit(c, 20, tokens, 1, 1, 0);
    while (!first->num_done) engine_iterate(c->engine), client_drain(c);
    job_t *next = client_job(c, 20 + tokens + 5, 3, 1);
    memcpy(&next->prompt[20], first->output, (size_t)tokens * sizeof *first->output);
    ASSERT_EQ(client_submit(c, next), 0);
    while (!next->num_done) engine_iterate(c->engine), client_drain(c);
    ASSERT_EQ_FOR(next->done.num_cached_tokens, 20 + tokens - 1, "%d tokens", tokens);
    ASSERT_EQ(fake_violations(), 0);
    finish_all(c);
  }
}
