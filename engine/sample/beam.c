/* beam.c: beam search: the draws of all beams of a group -> its next beams and finished candidates.
 *
 * Stage 8 of 9, called by commit.c on the engine thread; allocates nothing. Each beam's row brings
 * the most likely ids; the best 2 * width continuations of the group are ranked by the sum of raw
 * logprobs. Those that end by EOS or a stop id become candidates if they are among the best
 * `width`; the best others go on. A beam stays in its own sequence for its best continuation, and
 * is forked for further ones into the sequences of beams that have none.
 */
#include "engine/base/check.h"
#include "engine/internal.h"
#include "engine/sample/choices.h"
#include "engine/schedule/table.h"

#include <math.h>
#include <string.h>

void beam_collect(engine_t *e, sequence_t *q, const sample_row_t *row) {
  beam_work_t *w = &e->beam_work;
  CHECK_LT(w->num_beams, BEAM_SEQUENCES_MAX);
  w->beams[w->num_beams++] = (beam_t){.sequence = q, .row = row};
}

int32_t beam_num_top(const engine_t *e, const sampling_params_t *p) {
  int32_t num_stops = p->num_stop_token_ids + (p->ignore_eos ? 0 : 1 + e->info.num_stop_ids);
  int32_t factor = num_stops < 1 ? 2 : 1 + num_stops;
  int64_t wanted = (int64_t)factor * p->beam_width;
  if (wanted < p->num_logprobs) wanted = p->num_logprobs;
  return wanted < SAMPLE_TOP_MAX ? (int32_t)wanted : SAMPLE_TOP_MAX;
}

/* The best continuation of the group behind those that were taken: each beam's list is sorted, so
 * one of its heads. Ties go to the older beam. False = none left. */
static bool next_continuation(engine_t *e, continuation_t *out) {
  bool found = false;
  for (int32_t b = 0; b < e->beam_work.num_beams; b++) {
    beam_t *beam = &e->beam_work.beams[b];
    const sample_result_t *result = beam->row->result;
    if (beam->head >= result->num_top) continue;
    const token_logprob_t *top = &result->top[beam->head];
    double sum = beam->sequence->cumulative_logprob + (double)top->logprob;
    if (found && sum <= out->sum) continue;
    *out = (continuation_t){
        .beam = b,
        .entry = beam->head,
        .id = top->id,
        .logprob = top->logprob,
        .sum = sum,
    };
    found = true;
  }
  if (found) e->beam_work.beams[out->beam].head++;
  return found;
}

static double score_of(const sampling_params_t *p, double sum, int32_t num_tokens) {
  return sum / pow(num_tokens > 1 ? num_tokens : 1, (double)p->length_penalty);
}

/* The event that a token's node is made from. */
static event_t token_event(const engine_t *e, const continuation_t *c) {
  const sample_result_t *result = e->beam_work.beams[c->beam].row->result;
  int32_t rank = c->entry;
  while (rank > 0 && result->top[rank - 1].logprob == c->logprob) rank--;
  return (event_t){
      .token_id = c->id,
      .logprob = c->logprob,
      .rank = rank + 1,
      .num_top = result->num_top,
      .top = result->top,
  };
}

static int32_t parent_node(const sequence_t *parent) {
  return parent->num_output_tokens > 0 ? choices_index(parent, parent->num_output_tokens - 1) : -1;
}

/* A continuation that ends by an id, which does not count in the score. */
static void finish_by_id(engine_t *e, const continuation_t *c) {
  const sequence_t *parent = e->beam_work.beams[c->beam].sequence;
  const request_t *request = parent->group->request;
  int32_t length = parent->num_output_tokens;
  candidate_t *candidate = choices_add(request, score_of(&request->params, c->sum, length),
                                       choices_of(request)->num_finished);
  if (candidate == NULL) return;
  int32_t node = choices_spare_node(request);
  event_t token = token_event(e, c);
  choices_set_node(request, node, parent_node(parent), &token);
  candidate->cumulative = c->sum;
  candidate->tail = node;
  candidate->num_tokens = length + 1;
  candidate->finish = FINISH_STOP;
  candidate->stop_token_id = c->id == e->info.primary_eos ? -1 : c->id;
}

/* Ranks the continuations; fills e->beam_work.next with those that go on and returns how many. */
static int32_t rank(engine_t *e, const sampling_params_t *p) {
  int32_t width = p->beam_width, num_next = 0;
  const sequence_t *any = e->beam_work.beams[0].sequence;
  int32_t length = any->num_output_tokens + 1;
  bool is_last = length >= p->max_tokens ||
                 sequence_num_tokens(any) + 1 >= e->scheduler->options.max_model_len;
  continuation_t c;
  for (int32_t i = 0; num_next < width && !(is_last && i >= width); i++) {
    if (!next_continuation(e, &c)) break;
    if (c.logprob <= LOGPROB_NEVER) break; /* impossible ids stay impossible */
    if (engine_is_end(e, p, c.id)) {
      if (length <= p->min_tokens) {
        i--; /* may not be drawn yet: as if it were not there */
      } else if (i < width) {
        finish_by_id(e, &c);
      }
      continue;
    }
    e->beam_work.next[num_next++] = c;
  }
  return num_next;
}

static void drop(engine_t *e, sequence_t *q) {
  table_release(e->scheduler, q);
  sequence_set_status(q, SEQUENCE_FINISHED_ABORTED);
}

/* A sequence of the group that no continuation lives in. */
static sequence_t *find_unused(group_t *group) {
  for (sequence_t *q = &group->sequence; q != NULL; q = q->next) {
    if (!sequence_is_live(q)) return q;
  }
  CHECK(false);
  return NULL;
}

static void fork_into(engine_t *e, const sequence_t *parent, sequence_t *child) {
  char *held = child->detokenizer.held;
  memcpy(held, parent->detokenizer.held, parent->detokenizer.num_held);
  child->detokenizer = parent->detokenizer;
  child->detokenizer.held = held;
  child->cumulative_logprob = parent->cumulative_logprob;
  child->grammar_row = -1;      /* its matcher follows the tokens anew */
  child->status = SEQUENCE_NEW; /* a new life of the object */
  table_fork(e->scheduler, parent, child);
  sequence_set_status(child, SEQUENCE_RUNNING);
}

/* Gives every continuation a sequence of its own, in the state of its parent: beams without a
 * continuation go first, then forks, all before the first token is appended. */
static void place_all(engine_t *e, int32_t num_next) {
  beam_work_t *w = &e->beam_work;
  for (int32_t i = 0; i < num_next; i++) {
    continuation_t *c = &w->next[i];
    beam_t *beam = &w->beams[c->beam];
    c->sequence = beam->num_children++ == 0 ? beam->sequence : NULL;
    c->parent_node = parent_node(beam->sequence);
  }
  for (int32_t b = 0; b < w->num_beams; b++) {
    if (w->beams[b].num_children == 0) drop(e, w->beams[b].sequence);
  }
  for (int32_t i = 0; i < num_next; i++) {
    continuation_t *c = &w->next[i];
    const sequence_t *parent = w->beams[c->beam].sequence;
    if (c->sequence != NULL) continue;
    c->sequence = find_unused(parent->group);
    fork_into(e, parent, c->sequence);
  }
}

/* A beam that ends by a stop string or the length. */
static void finish_beam(engine_t *e, sequence_t *q, sequence_status_t status) {
  const request_t *request = q->group->request;
  double score = score_of(&request->params, q->cumulative_logprob, q->num_output_tokens);
  candidate_t *candidate = choices_add(request, score, choices_of(request)->num_finished);
  if (candidate != NULL) {
    candidate->cumulative = q->cumulative_logprob;
    candidate->tail = choices_index(q, q->num_output_tokens - 1);
    candidate->num_tokens = q->num_output_tokens;
    candidate->finish = status == SEQUENCE_FINISHED_STOPPED ? FINISH_STOP : FINISH_LENGTH;
    candidate->stop_string = q->stop_string;
  }
  q->stop_string = -1;
  drop(e, q);
}

/* 0, or the error of a grammar: the request ends. */
static int append(engine_t *e, int32_t i, uint64_t now_ns) {
  const continuation_t *c = &e->beam_work.next[i];
  sequence_t *q = c->sequence;
  event_t token = token_event(e, c);
  detokenized_t text;
  int error_code = 0;
  sequence_status_t status = engine_append(e, q, c->id, &text, &error_code);
  q->cumulative_logprob = c->sum;
  q->last_token_ns = now_ns;
  choices_set_node(q->group->request, choices_index(q, q->num_output_tokens - 1), c->parent_node,
                   &token);
  e->stats.generation_tokens++;
  if (!error_code && status != SEQUENCE_RUNNING) finish_beam(e, q, status);
  return error_code;
}

/* Whether no live beam can or may still enter the result. */
static bool is_over(const engine_t *e, const group_t *group) {
  const sampling_params_t *p = &group->request->params;
  const choices_t *choices = choices_of(group->request);
  double best = -INFINITY;
  int32_t length = 0;
  for (const sequence_t *q = &group->sequence; q != NULL; q = q->next) {
    if (!sequence_is_live(q)) continue;
    if (q->cumulative_logprob > best) best = q->cumulative_logprob;
    length = q->num_output_tokens;
  }
  if (length == 0) return true;
  if (choices->num_candidates < p->beam_width) return false;
  if (p->early_stopping == EARLY_STOPPING_ON) return true;
  if (p->early_stopping == EARLY_STOPPING_NEVER && p->length_penalty > 0) {
    int32_t context = e->scheduler->options.max_model_len - group->sequence.num_prompt_tokens;
    length = p->max_tokens < context ? p->max_tokens : context;
  }
  return score_of(p, best, length) <= choices->candidates[p->beam_width - 1].score;
}

/* One token on, for all beams of a group. */
static void advance(engine_t *e, group_t *group, uint64_t now_ns) {
  int32_t num_next = rank(e, &group->request->params);
  group->forked = true;
  place_all(e, num_next);
  if (!group->sequence.first_token_ns) group->sequence.first_token_ns = now_ns;
  int error_code = 0;
  for (int32_t i = 0; i < num_next && !error_code; i++) error_code = append(e, i, now_ns);
  if (error_code) engine_finish(e, group, SEQUENCE_FINISHED_ABORTED, error_code, now_ns);
  if (error_code || !is_over(e, group)) return;
  for (sequence_t *q = &group->sequence; q != NULL; q = q->next) {
    if (sequence_is_live(q)) drop(e, q);
  }
  engine_finish(e, group, SEQUENCE_FINISHED_STOPPED, 0, now_ns);
}

void beam_commit(engine_t *e, const plan_t *plan, int32_t entry, uint64_t now_ns) {
  beam_work_t *w = &e->beam_work;
  if (w->num_beams == 0) return;
  const sequence_t *any = w->beams[0].sequence;
  bool failed = sequence_is_finished(any); /* by an error in another beam's row */
  bool more =
      entry + 1 < plan->num_entries && plan->entries[entry + 1].sequence->group == any->group;
  if (more && !failed) return;
  if (!failed) advance(e, any->group, now_ns);
  w->num_beams = 0;
}
