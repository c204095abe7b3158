/* beam.c: beam search: the draws of all beams of a group -> its next beams and finished candidates.
 *
 * Stage 8 of 9, called by commit.c on the engine thread; allocates nothing. The row of each beam
 * has its most likely ids, and the continuations of the group are ranked by the sum of raw
 * logprobs. A continuation that ends by EOS or a stop id becomes a candidate if it ranks among the
 * best `width`; the best other continuations become the next beams. The best continuation of a beam
 * stays in the beam's sequence. For its other continuations the beam is forked into sequences of
 * beams that have no continuation.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/internal.h"
#include "engine/sample/choices.h"
#include "engine/schedule/table.h"

#include <math.h>
#include <string.h>

void beam_collect(engine_t *engine, sequence_t *seq, const sample_row_t *row) {
  beam_work_t *work = &engine->beam_work;
  CHECK_LT(work->num_beams, BEAM_SEQUENCES_MAX);
  work->beams[work->num_beams++] = (beam_t){.sequence = seq, .row = row};
}

/* Takes the best continuation of the group that is not taken yet. The ids of each row are sorted,
 * so it is the head of one of the rows. On ties the first beam wins. Returns false if none is left.
 */
static bool next_continuation(engine_t *engine, continuation_t *out) {
  bool found = false;
  for (int32_t b = 0; b < engine->beam_work.num_beams; b++) {
    beam_t *beam = &engine->beam_work.beams[b];
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
  if (found) engine->beam_work.beams[out->beam].head++;
  return found;
}

static double score_of(const sampling_params_t *params, double sum, int32_t num_tokens) {
  return sum / pow(MAX(num_tokens + params->beam_tokens_before, 1), (double)params->length_penalty);
}

/* The token of a continuation, in the form that choices_set_node takes. */
static event_t token_event(const engine_t *engine, const continuation_t *next) {
  const sample_result_t *result = engine->beam_work.beams[next->beam].row->result;
  int32_t rank = next->entry;
  while (rank > 0 && result->top[rank - 1].logprob == next->logprob) rank--;
  return (event_t){
      .token_id = next->id,
      .logprob = next->logprob,
      .rank = rank + 1,
      .num_top = result->num_top,
      .top = result->top,
  };
}

static int32_t parent_node(const sequence_t *parent) {
  return parent->num_output_tokens > 0 ? choices_index(parent, parent->num_output_tokens - 1) : -1;
}

/* Adds a candidate for a continuation that ends by an EOS or stop id. This id counts as a token,
 * but in the length of the score only with beam_counts_end. */
static void finish_by_id(engine_t *engine, const continuation_t *next) {
  const sequence_t *parent = engine->beam_work.beams[next->beam].sequence;
  const request_t *request = parent->group->request;
  int32_t length = parent->num_output_tokens;
  const int32_t counted = length + request->params.beam_counts_end;
  candidate_t *candidate = choices_add(request, score_of(&request->params, next->sum, counted),
                                       choices_of(request)->num_finished);
  if (candidate == NULL) return;
  int32_t node = choices_spare_node(request);
  event_t token = token_event(engine, next);
  choices_set_node(request, node, parent_node(parent), &token);
  candidate->cumulative = next->sum;
  candidate->tail = node;
  candidate->num_tokens = length + 1;
  candidate->finish = FINISH_STOP;
  candidate->stop_token_id = next->id == engine->info.primary_eos ? -1 : next->id;
}

/* Ranks the continuations; puts those that continue into engine->beam_work.next. Returns how many
 * continue. */
static int32_t rank(engine_t *engine, const sampling_params_t *params) {
  int32_t width = params->beam_width, num_next = 0;
  const sequence_t *any = engine->beam_work.beams[0].sequence;
  int32_t length = any->num_output_tokens + 1;
  bool is_last = length >= params->max_tokens ||
                 sequence_num_tokens(any) + 1 >= engine->scheduler->options.max_model_len;
  continuation_t next;
  for (int32_t i = 0; num_next < width && !(is_last && i >= width); i++) {
    if (!next_continuation(engine, &next)) break;
    if (next.logprob <= LOGPROB_NEVER) break; /* an id of probability 0 never continues */
    if (engine_is_end(engine, params, next.id)) {
      if (length <= params->min_tokens) {
        i--; /* below min_tokens an end is not a continuation and takes no rank */
      } else if (i < width) {
        finish_by_id(engine, &next);
      }
      continue;
    }
    engine->beam_work.next[num_next++] = next;
  }
  return num_next;
}

static void drop(engine_t *engine, sequence_t *seq) {
  table_release(engine->scheduler, seq);
  sequence_set_status(seq, SEQUENCE_FINISHED_ABORTED);
}

/* The first sequence of the group that is not live, so that a fork can use it. */
static sequence_t *find_unused(group_t *group) {
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq)) return seq;
  }
  CHECK(false);
  return NULL;
}

static void fork_into(engine_t *engine, const sequence_t *parent, sequence_t *child) {
  char *held = child->detokenizer.held;
  memcpy(held, parent->detokenizer.held, parent->detokenizer.num_held);
  child->detokenizer = parent->detokenizer;
  child->detokenizer.held = held;
  child->cumulative_logprob = parent->cumulative_logprob;
  if (child->status != SEQUENCE_NEW) sequence_set_status(child, SEQUENCE_NEW);
  table_fork(engine->scheduler, parent, child);
  sequence_set_status(child, SEQUENCE_RUNNING);
  constrain_fork(engine, parent, child);
}

/* Gives every continuation a sequence of its own, in the state of its parent. Beams without a
 * continuation are dropped first, so that forks can use their sequences. All forks are made before
 * the first token is appended, because a fork copies the state of its parent. */
static void place_all(engine_t *engine, int32_t num_next) {
  beam_work_t *work = &engine->beam_work;
  for (int32_t i = 0; i < num_next; i++) {
    continuation_t *next = &work->next[i];
    beam_t *beam = &work->beams[next->beam];
    next->sequence = beam->num_children++ == 0 ? beam->sequence : NULL;
    next->parent_node = parent_node(beam->sequence);
  }
  for (int32_t b = 0; b < work->num_beams; b++) {
    if (work->beams[b].num_children == 0) drop(engine, work->beams[b].sequence);
  }
  for (int32_t i = 0; i < num_next; i++) {
    continuation_t *next = &work->next[i];
    const sequence_t *parent = work->beams[next->beam].sequence;
    if (next->sequence != NULL) continue;
    next->sequence = find_unused(parent->group);
    fork_into(engine, parent, next->sequence);
  }
}

/* Turns a beam that ends by a stop string, the grammar or the length into a candidate. */
static void add_beam(sequence_t *seq, sequence_status_t status) {
  const request_t *request = seq->group->request;
  double score = score_of(&request->params, seq->cumulative_logprob, seq->num_output_tokens);
  candidate_t *candidate = choices_add(request, score, choices_of(request)->num_finished);
  if (candidate != NULL) {
    candidate->cumulative = seq->cumulative_logprob;
    candidate->tail = parent_node(seq);
    candidate->num_tokens = seq->num_output_tokens;
    candidate->finish = status == SEQUENCE_FINISHED_STOPPED ? FINISH_STOP : FINISH_LENGTH;
    candidate->stop_string = seq->stop_string;
    candidate->by_grammar = seq->ended_by_grammar;
  }
  seq->stop_string = -1;
  seq->ended_by_grammar = false;
}

static void finish_beam(engine_t *engine, sequence_t *seq, sequence_status_t status) {
  add_beam(seq, status);
  drop(engine, seq);
}

/* Below min_tokens an end is not a continuation and takes no rank. */
static bool is_held(const engine_t *engine, const sampling_params_t *params, int32_t length,
                    int32_t id) {
  return length <= params->min_tokens && engine_is_end(engine, params, id);
}

static bool has_continuation(const engine_t *engine, const beam_t *beam) {
  const sample_result_t *result = beam->row->result;
  const sampling_params_t *params = beam->row->params;
  for (int32_t i = 0; i < result->num_top; i++) {
    if (result->top[i].logprob <= LOGPROB_NEVER) return false;
    if (!is_held(engine, params, beam->sequence->num_output_tokens + 1, result->top[i].id))
      return true;
  }
  return false;
}

/* Beams behind which no token is left become candidates, where the grammar lets their text end. */
static void add_stuck(engine_t *engine) {
  const beam_work_t *work = &engine->beam_work;
  for (int32_t b = 0; b < work->num_beams; b++) {
    sequence_t *seq = work->beams[b].sequence;
    if (has_continuation(engine, &work->beams[b]) || !constrain_may_end(engine, seq)) continue;
    seq->ended_by_grammar = true;
    add_beam(seq, SEQUENCE_FINISHED_STOPPED);
  }
}

/* Appends the token of a continuation to its sequence. Returns 0, or the error of the grammar: then
 * the request must end. */
static int append(engine_t *engine, int32_t i) {
  const continuation_t *next = &engine->beam_work.next[i];
  sequence_t *seq = next->sequence;
  event_t token = token_event(engine, next);
  detokenized_t text;
  int error_code = 0;
  sequence_status_t status = engine_append(engine, seq, next->id, &text, &error_code);
  seq->cumulative_logprob = next->sum;
  choices_set_node(seq->group->request, choices_index(seq, seq->num_output_tokens - 1),
                   next->parent_node, &token);
  engine->stats.generation_tokens++;
  if (!error_code && status != SEQUENCE_RUNNING) finish_beam(engine, seq, status);
  return error_code;
}

/* Whether the search is over: no live beam can, or by early_stopping may, still become a result. */
static bool is_over(const engine_t *engine, const group_t *group) {
  const sampling_params_t *params = &group->request->params;
  const choices_t *choices = choices_of(group->request);
  double best = -INFINITY;
  int32_t length = 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq)) continue;
    if (seq->cumulative_logprob > best) best = seq->cumulative_logprob;
    length = seq->num_output_tokens;
  }
  if (length == 0) return true;
  if (choices->num_candidates < params->beam_width) return false;
  if (params->early_stopping == EARLY_STOPPING_ON) return true;
  if (params->early_stopping == EARLY_STOPPING_NEVER && params->length_penalty > 0) {
    int32_t context = engine->scheduler->options.max_model_len - group->sequence.num_prompt_tokens;
    length = MIN(params->max_tokens, context);
  }
  return score_of(params, best, length) <= choices->candidates[params->beam_width - 1].score;
}

static bool any_late(const group_t *group) {
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq) && seq->masks.late) return true;
  }
  return false;
}

/* Finishes the group if the search is over, which is known once all grammars have taken their
 * tokens. */
static void end_search(engine_t *engine, group_t *group, uint64_t now_ns) {
  if (any_late(group) || !is_over(engine, group)) return;
  for (sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq)) drop(engine, seq);
  }
  bool any = choices_of(group->request)->num_candidates > 0;
  engine_finish(engine, group, any ? SEQUENCE_FINISHED_STOPPED : SEQUENCE_FINISHED_ABORTED,
                any ? 0 : ERR_NO_CHOICE, now_ns);
}

void beam_append_late(engine_t *engine, sequence_t *seq, sequence_status_t status,
                      uint64_t now_ns) {
  if (status != SEQUENCE_RUNNING) finish_beam(engine, seq, status);
  end_search(engine, seq->group, now_ns);
}

/* Extends all beams of a group by one token, and finishes the group if the search is over. */
static void advance(engine_t *engine, group_t *group, uint64_t now_ns) {
  add_stuck(engine);
  int32_t num_next = rank(engine, &group->request->params);
  group->forked = true;
  place_all(engine, num_next);
  engine_first_token(engine, group, now_ns);
  int error_code = 0;
  for (int32_t i = 0; i < num_next && !error_code; i++) error_code = append(engine, i);
  if (error_code) engine_finish(engine, group, SEQUENCE_FINISHED_ABORTED, error_code, now_ns);
  if (!error_code) end_search(engine, group, now_ns);
}

void beam_commit(engine_t *engine, const plan_t *plan, int32_t entry, uint64_t now_ns) {
  beam_work_t *work = &engine->beam_work;
  if (work->num_beams == 0) return;
  const sequence_t *any = work->beams[0].sequence;
  bool failed = sequence_is_finished(any); /* by an error in another beam's row */
  bool more =
      entry + 1 < plan->num_entries && plan->entries[entry + 1].sequence->group == any->group;
  if (more && !failed) return;
  if (!failed) advance(engine, any->group, now_ns);
  work->num_beams = 0;
}
