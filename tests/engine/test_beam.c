/* test_beam.c: beam search of the engine against another implementation of the same definition.
 *
 * The reference below keeps whole sequences in arrays and asks the fake device's distribution for
 * every one of them: no blocks, no forks, no tree. Widths, penalties, ends and stopping rules are
 * drawn at random; tokens, order, ends and scores must agree.
 */
#include "tests/engine/client.h"
#include "tests/engine/support.h"
#include "tests/expect.h"
#include "tests/sim/fake_ops.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { VOCAB = 384, WIDTH_MAX = 8, LENGTH_MAX = 64, EOS = 0, FURTHER_EOS = 1 };

typedef struct hypothesis {
  int32_t ids[2048 + LENGTH_MAX];
  int32_t count; /* generated */
  double sum, score;
  bool stopped;
} hypothesis_t;

typedef struct search {
  const job_t *job;
  int32_t num_prompt, width, max_tokens;
  hypothesis_t live[WIDTH_MAX], done[WIDTH_MAX], next[WIDTH_MAX];
  int32_t num_live, num_done;
  struct {
    int32_t beam, id;
    double sum;
  } all[WIDTH_MAX * VOCAB];
} search_t;

static bool is_end(const search_t *s, int32_t id) {
  const sampling_params_t *p = &s->job->request.params;
  bool is_eos = !p->ignore_eos && (id == EOS || id == FURTHER_EOS);
  for (int32_t i = 0; i < p->num_stop_token_ids; i++) {
    is_eos = is_eos || p->stop_token_ids[i] == id;
  }
  return is_eos;
}

static void finish(search_t *s, const hypothesis_t *h, int32_t counted) {
  hypothesis_t done = *h;
  double length = counted > 1 ? counted : 1;
  done.score = done.sum / pow(length, (double)s->job->request.params.length_penalty);
  int32_t at = s->num_done;
  while (at > 0 && s->done[at - 1].score < done.score) at--;
  if (at == s->width) return;
  if (s->num_done < s->width) s->num_done++;
  for (int32_t i = s->num_done - 1; i > at; i--) s->done[i] = s->done[i - 1];
  s->done[at] = done;
}

static int by_sum(const void *a, const void *b) {
  const struct {
    int32_t beam, id;
    double sum;
  } *x = a, *y = b;
  if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
  return x->beam != y->beam ? x->beam - y->beam : x->id - y->id;
}

static hypothesis_t extend(const search_t *s, int32_t rank) {
  hypothesis_t h = s->live[s->all[rank].beam];
  h.ids[s->num_prompt + h.count++] = s->all[rank].id;
  h.sum = s->all[rank].sum;
  return h;
}

static void advance(search_t *s) {
  static float logprobs[VOCAB];
  int32_t total = 0, length = s->live[0].count + 1, num_next = 0, rank = 0;
  for (int32_t b = 0; b < s->num_live; b++) {
    fake_logprobs(s->live[b].ids, s->num_prompt + s->live[b].count, VOCAB, logprobs);
    for (int32_t id = 0; id < VOCAB; id++) {
      if (is_end(s, id) && length <= s->job->request.params.min_tokens) continue;
      s->all[total].beam = b;
      s->all[total].id = id;
      s->all[total++].sum = s->live[b].sum + (double)logprobs[id];
    }
  }
  qsort(s->all, (size_t)total, sizeof *s->all, by_sum);
  for (; rank < total && num_next < s->width; rank++) {
    hypothesis_t h = extend(s, rank);
    if (length == s->max_tokens && rank >= s->width) break;
    if (is_end(s, s->all[rank].id)) {
      h.stopped = true;
      if (rank < s->width) finish(s, &h, h.count - 1);
    } else {
      s->next[num_next++] = h;
    }
  }
  s->num_live = 0;
  for (int32_t i = 0; i < num_next; i++) {
    if (length == s->max_tokens) {
      finish(s, &s->next[i], length);
    } else {
      s->live[s->num_live++] = s->next[i];
    }
  }
}

static bool is_over(const search_t *s) {
  const sampling_params_t *p = &s->job->request.params;
  if (s->num_live == 0) return true;
  if (s->num_done < s->width) return false;
  if (p->early_stopping == EARLY_STOPPING_ON) return true;
  int32_t length = s->live[0].count;
  if (p->early_stopping == EARLY_STOPPING_NEVER && p->length_penalty > 0) length = s->max_tokens;
  double best = s->live[0].sum / pow(length, (double)p->length_penalty);
  return best <= s->done[s->width - 1].score;
}

static void expect_search(search_t *s, const job_t *job) {
  memset(s, 0, sizeof *s);
  s->job = job;
  s->num_prompt = job->request.num_prompt_tokens;
  s->width = job->request.params.beam_width;
  s->max_tokens = job->request.params.max_tokens;
  memcpy(s->live[0].ids, job->prompt, (size_t)s->num_prompt * sizeof *job->prompt);
  s->num_live = 1;
  while (!is_over(s)) advance(s);
  for (int32_t j = 0; j < job->num_choices; j++) {
    const choice_t *got = &job->choices[j];
    const hypothesis_t *want = &s->done[j];
    cr_assert(j < s->num_done && got->num_output == want->count,
              "request %d: choice %d has %d tokens, expected %d", (int)job->request.id, j,
              got->num_output, want->count);
    ASSERT_IDS_EQ(got->output, want->ids + s->num_prompt, want->count);
    ASSERT_LT(fabs(got->done.cumulative_logprob - want->sum), 1e-9);
    ASSERT_EQ(got->done.finish, (want->stopped ? FINISH_STOP : FINISH_LENGTH));
    int32_t last = got->output[got->num_output - 1];
    ASSERT_EQ(got->done.stop_token_id, (want->stopped && last != EOS ? last : -1));
  }
}

static void add_search(client_t *c, int i) {
  static const float penalties[] = {1, 0, 0.5f, 2, -1};
  static const int32_t stop_ids[] = {50, 60, 70};
  uint32_t r = (uint32_t)i * 2654435761u;
  job_t *job = client_job(c, 1 + (int)(r >> 7) % 60, 1 + (int)(r >> 13) % 40, i);
  sampling_params_t *p = &job->request.params;
  p->beam_width = 1 + (int)(r >> 3) % WIDTH_MAX;
  p->n = 1 + (int)(r >> 19) % p->beam_width;
  p->length_penalty = penalties[i % 5];
  p->early_stopping = (early_stopping_t)((r >> 5) % 3);
  p->ignore_eos = i % 4 == 1;
  p->num_stop_token_ids = i % 3 == 2 ? 3 : 0;
  p->stop_token_ids = stop_ids;
  p->min_tokens = i % 7 == 3 && p->max_tokens > 4 ? 4 : 0;
  p->num_logprobs = i % 4 - 1;
  client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
}

static void compare_searches(const struct ops *ops, int32_t num_blocks, bool caching) {
  engine_options_t o = client_options(ops);
  o.num_blocks = num_blocks;
  o.max_model_len = 256;
  o.max_num_batched_tokens = 64;
  o.enable_prefix_caching = caching;
  client_t *c = client_new(&o);
  search_t *s = malloc(sizeof *s);
  cr_assert(s != NULL);
  for (int i = 0; i < 60; i++) add_search(c, i);
  for (int i = 0; i < 30; i++) { /* company */
    ASSERT_EQ(client_submit(c, client_job(c, 20 + i, 60, i)), 0);
  }
  client_run(c);
  int num_stopped = 0;
  for (int i = 0; i < 60; i++) {
    expect_search(s, &c->jobs[i]);
    num_stopped += c->jobs[i].done.finish == FINISH_STOP;
  }
  cr_assert(num_stopped > 5 && num_stopped < 55, "%d searches ended by an id", num_stopped);
  if (num_blocks < 100) ASSERT_GT_FOR(client_stats(c).preemptions, 0, "the pool was to be small");
  ASSERT_EQ_FOR(fake_violations(), 0, "a block table led to a wrong prefix");
  client_check_idle(c);
  free(s);
  client_free(c);
}

Test(beam, the_best_sequences_are_found, .timeout = 120) {
  compare_searches(&ops_fake, 600, true);
}

Test(beam, preempted_searches_go_on_where_they_were, .timeout = 120) {
  compare_searches(&ops_fake, 44, true);
  compare_searches(&ops_fake, 44, false);
}

Test(beam, with_two_steps_in_flight_nothing_changes, .timeout = 120) {
  compare_searches(fake_ops_deep(), 44, true);
}

static void check_logprobs(int32_t width, int32_t num_logprobs) {
  engine_options_t o = client_options(&ops_fake);
  client_t *c = client_new(&o);
  static float logprobs[VOCAB];
  job_t *job = client_job(c, 33, 20, 4);
  job->request.params.beam_width = job->request.params.n = width;
  job->request.params.num_logprobs = num_logprobs;
  job->request.params.ignore_eos = true;
  client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
  client_run(c);
  for (int j = 0; j < width; j++) {
    int32_t ids[128];
    memcpy(ids, job->prompt, 33 * sizeof *ids);
    for (int t = 0; t < 20; t++) {
      fake_logprobs(ids, 33 + t, VOCAB, logprobs);
      ids[33 + t] = job->choices[j].output[t];
      ASSERT_EQ(job->choices[j].logprob[t], logprobs[ids[33 + t]]);
      for (int k = 0; k < num_logprobs; k++) {
        const token_logprob_t *top = &job->choices[j].top[t][k];
        int larger = 0;
        for (int id = 0; id < VOCAB; id++) larger += logprobs[id] > logprobs[top->id];
        ASSERT_EQ(top->logprob, logprobs[top->id]);
        ASSERT_EQ(larger, k);
      }
    }
  }
  client_free(c);
}

Test(beam, chosen_tokens_bring_their_logprobs, .timeout = 60) {
  check_logprobs(4, 3);
}

Test(beam, a_narrow_search_brings_all_logprobs_that_were_asked_for, .timeout = 60) {
  check_logprobs(1, 4);
}

/* Most sequences of such a group never come to life; they are no results. */
Test(beam, a_search_that_ends_with_its_first_token_returns_what_it_found, .timeout = 60) {
  engine_options_t o = client_options(&ops_fake);
  client_t *c = client_new(&o);
  search_t *s = malloc(sizeof *s);
  cr_assert(s != NULL);
  static float logprobs[VOCAB];
  int32_t best[3];
  job_t *job = client_job(c, 12, 1, 3);
  fake_logprobs(job->prompt, 12, VOCAB, logprobs);
  for (int i = 0; i < 3; i++) {
    best[i] = EOS;
    for (int32_t id = FURTHER_EOS + 1; id < VOCAB; id++) {
      bool taken = (i > 0 && id == best[0]) || (i > 1 && id == best[1]);
      if (!taken && (best[i] == EOS || logprobs[id] > logprobs[best[i]])) best[i] = id;
    }
  }
  job->request.params.beam_width = job->request.params.n = 4;
  job->request.params.ignore_eos = true;
  job->request.params.num_stop_token_ids = 3;
  job->request.params.stop_token_ids = best;
  client_several(job);
  ASSERT_EQ(client_submit(c, job), 0);
  client_run(c);
  expect_search(s, job);
  free(s);
  client_free(c);
}
