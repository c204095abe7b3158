/* oracle_beam.c: what a beam search must find, worked out with whole texts in arrays.
 *
 * No tree, no forks, no blocks: every beam is a stream of its own, copied when it goes on in two
 * ways. Which sequence of the engine holds which beam is part of the contract (engine/README.md),
 * because ties go to the lower one. One thread.
 */
#include "tests/sim/oracle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct hypothesis {
  stream_t stream;
  text_t text;
  double sum, score;
  int32_t index; /* of the sequence that it lives in, -1 = not yet known */
} hypothesis_t;

typedef struct oracle_step {
  int32_t beam, rank; /* which of `live`, where in its list */
  token_logprob_t token;
  double sum;
} oracle_step_t;

enum { TOP_MAX = SIM_STREAMS_MAX * (3 + SIM_STOP_IDS_MAX) };

typedef struct search {
  const scenario_t *scenario;
  track_t *track;
  const tokenizer_t *tokenizer;
  int32_t width, tokens_max;
  int32_t num_live, num_done;
  hypothesis_t live[SIM_STREAMS_MAX], next[SIM_STREAMS_MAX]; /* live: by index */
  hypothesis_t done[SIM_STREAMS_MAX];                        /* the best first */
} search_t;

static search_t search; /* one at a time */

static void copy(hypothesis_t *to, const hypothesis_t *from) {
  *to = *from;
  to->text.stream = &to->stream;
}

/* Among the finished ones by score, behind equals. `length`: tokens that count. */
static void finish(search_t *s, const hypothesis_t *h, int32_t length) {
  double penalty = (double)s->track->script->params.length_penalty;
  double score = h->sum / pow(length > 1 ? length : 1, penalty);
  int32_t at = s->num_done;
  while (at > 0 && s->done[at - 1].score < score) at--;
  if (at == s->width) return;
  if (s->num_done < s->width) s->num_done++;
  for (int32_t i = s->num_done - 1; i > at; i--) copy(&s->done[i], &s->done[i - 1]);
  copy(&s->done[at], h);
  s->done[at].score = score;
  oracle_text_end(&s->done[at].text);
}

/* True when the text ends with it. */
static bool extend(const search_t *s, hypothesis_t *h, const oracle_step_t *step) {
  stream_t *k = &h->stream;
  int32_t at = s->track->num_prompt + k->num_expected++;
  k->ids[at] = step->token.id;
  k->hash[at] = oracle_extend(k->hash[at - 1], step->token.id);
  h->sum = k->cumulative = step->sum;
  return oracle_text_add(&h->text, s->tokenizer, step->token.id, s->tokens_max);
}

static int compare(const void *a, const void *b) {
  const oracle_step_t *x = a, *y = b;
  if (x->sum != y->sum) return x->sum > y->sum ? -1 : 1;
  return x->beam != y->beam ? x->beam - y->beam : x->rank - y->rank;
}

/* Every continuation of every beam, the best first. */
static int32_t list_steps(const search_t *s, oracle_step_t *steps) {
  token_logprob_t top[TOP_MAX];
  int32_t count = 0;
  for (int32_t b = 0; b < s->num_live; b++) {
    const stream_t *k = &s->live[b].stream;
    uint64_t hash = k->hash[s->track->num_prompt + k->num_expected - 1];
    int32_t found = oracle_top(s->scenario, hash, TOP_MAX, top);
    for (int32_t i = 0; i < found; i++) {
      steps[count++] = (oracle_step_t){b, i, top[i], s->live[b].sum + (double)top[i].logprob};
    }
  }
  qsort(steps, (size_t)count, sizeof *steps, compare);
  return count;
}

/* A beam stays in its sequence for its best continuation; the others take the lowest free ones. */
static void place(search_t *s, const oracle_step_t *const *chosen, int32_t count) {
  bool taken[SIM_STREAMS_MAX] = {false}, stays[SIM_STREAMS_MAX] = {false};
  for (int32_t i = 0; i < count; i++) {
    int32_t beam = chosen[i]->beam, index = s->live[beam].index;
    copy(&s->next[i], &s->live[beam]);
    s->next[i].index = stays[beam] ? -1 : index;
    stays[beam] = taken[index] = true;
  }
  for (int32_t i = 0; i < count; i++) {
    int32_t free = 0;
    if (s->next[i].index >= 0) continue;
    while (taken[free]) free++;
    s->next[i].index = free;
    taken[free] = true;
  }
}

/* Those that go on, in the order of their sequences, and what these must hold from now on. */
static void settle(search_t *s, const bool *ended, int32_t count) {
  track_t *k = s->track;
  s->num_live = 0;
  for (int32_t index = 0; index < s->width; index++) {
    for (int32_t i = 0; i < count; i++) {
      const hypothesis_t *h = &s->next[i];
      if (ended[i] || h->index != index) continue;
      int32_t length = h->stream.num_expected;
      k->beams[length][index] = h->stream.hash[k->num_prompt + length - 1];
      copy(&s->live[s->num_live++], h);
    }
  }
}

/* One token on. The best 2 * width continuations count: ends among the best `width` are results,
 * the best others go on. */
static void advance(search_t *s) {
  static oracle_step_t steps[SIM_STREAMS_MAX * TOP_MAX];
  static hypothesis_t last;
  const oracle_step_t *chosen[SIM_STREAMS_MAX];
  bool ended[SIM_STREAMS_MAX];
  const script_t *r = s->track->script;
  int32_t total = list_steps(s, steps), count = 0, rank = 0;
  int32_t length = s->live[0].stream.num_expected + 1;
  for (int32_t i = 0; i < total && count < s->width; i++) {
    bool ends = oracle_is_end(r, steps[i].token.id);
    if (ends && length <= r->params.min_tokens) continue;
    if (length >= s->tokens_max && rank >= s->width) break;
    if (!ends) {
      chosen[count++] = &steps[i];
    } else if (rank < s->width) {
      copy(&last, &s->live[steps[i].beam]);
      extend(s, &last, &steps[i]);
      finish(s, &last, length - 1);
    }
    rank++;
  }
  place(s, chosen, count);
  for (int32_t i = 0; i < count; i++) {
    ended[i] = extend(s, &s->next[i], chosen[i]);
    if (ended[i]) finish(s, &s->next[i], length);
  }
  settle(s, ended, count);
}

static bool is_over(const search_t *s) {
  const sampling_params_t *p = &s->track->script->params;
  double best = -INFINITY;
  if (s->num_live == 0) return true;
  if (s->num_done < s->width) return false;
  if (p->early_stopping == EARLY_STOPPING_ON) return true;
  for (int32_t b = 0; b < s->num_live; b++) best = fmax(best, s->live[b].sum);
  int32_t length = s->live[0].stream.num_expected;
  if (p->early_stopping == EARLY_STOPPING_NEVER && p->length_penalty > 0) length = s->tokens_max;
  double reachable = best / pow(length > 1 ? length : 1, (double)p->length_penalty);
  return reachable <= s->done[s->width - 1].score;
}

void oracle_search(const scenario_t *c, track_t *k, const tokenizer_t *tokenizer) {
  search_t *s = &search;
  const sampling_params_t *p = &k->script->params;
  s->scenario = c;
  s->track = k;
  s->tokenizer = tokenizer;
  s->width = p->beam_width;
  s->tokens_max = (int32_t)c->options.max_model_len - k->num_prompt;
  if (s->tokens_max > p->max_tokens) s->tokens_max = p->max_tokens;
  s->num_live = 1;
  s->num_done = 0;
  memset(k->beams, 0, sizeof k->beams);
  hypothesis_t *first = &s->live[0];
  first->stream = k->streams[0];
  first->sum = 0;
  first->index = 0;
  oracle_text_begin(&first->text, k->script, &first->stream);
  k->beams[0][0] = first->stream.hash[k->num_prompt - 1];
  if (k->error_code || p->max_tokens == 0) return; /* every choice is empty */
  do {
    advance(s);
  } while (!is_over(s));
  int32_t found = s->num_done < k->num_choices ? s->num_done : k->num_choices;
  for (int32_t i = 0; i < found; i++) k->streams[SIM_STREAMS_MAX + i] = s->done[i].stream;
}

stream_t *oracle_beam(track_t *k, const sequence_t *q) {
  stream_t *stream = &k->streams[q->index];
  int32_t from = k->num_prompt, end = from + q->num_output_tokens;
  uint64_t hash = stream->hash[from - 1];
  for (int32_t p = from; p < end; p++) {
    stream->ids[p] = q->tokens[p];
    stream->hash[p] = hash = oracle_extend(hash, q->tokens[p]);
  }
  REQUIRE(k->beams[q->num_output_tokens][q->index] == hash,
          "I4: request %d: sequence %d holds a beam that does not live there after %d tokens",
          k->index, q->index, q->num_output_tokens);
  stream->num_expected = SIM_CONTEXT_MAX;
  return stream;
}
