/* sequence.h: sequence groups and sequences: states, counters, queues.
 *
 * A group is one request with one prompt; a sequence is one continuation of it. A group begins as
 * one sequence; those of further samples or beams are made at its first admission and wait, NEW,
 * until the first token is drawn: then they fork off the first one. Engine thread only. One
 * function changes a status, one table says which changes are allowed.
 */
#ifndef INFERD_ENGINE_SCHEDULE_SEQUENCE_H
#define INFERD_ENGINE_SCHEDULE_SEQUENCE_H

#include "engine/request.h"
#include "engine/schedule/draft.h"

/* The finished states are the largest, so that "is finished" is one comparison. */
typedef enum sequence_status {
  SEQUENCE_NEW,                    /* made, not queued */
  SEQUENCE_WAITING,                /* not admitted yet, or preempted by recompute: no blocks */
  SEQUENCE_RUNNING,                /* admitted: blocks on the device; may get 0 tokens in a step */
  SEQUENCE_SWAPPED,                /* preempted by swap: blocks on the host */
  SEQUENCE_FINISHED_STOPPED,       /* EOS, stop id, stop string */
  SEQUENCE_FINISHED_LENGTH_CAPPED, /* max_tokens or the context */
  SEQUENCE_FINISHED_ABORTED,       /* client gone, deadline, shutdown, engine error */
  SEQUENCE_FINISHED_IGNORED,       /* can never run: needs more blocks than the pool has */
  SEQUENCE_STATUS_COUNT
} sequence_status_t;

struct group;

typedef struct sequence {
  struct group *group;
  struct sequence *next; /* of the group, by index; also links the scheduler's unused ones */
  int32_t index;         /* sample number: the random stream is (seed, index) */
  sequence_status_t status;
  int32_t row;     /* of token_table and block_table; -1 while none is held */
  int32_t *tokens; /* [M] prompt then output; NULL while no row is held */
  int32_t *blocks; /* [K] block table row */
  int32_t num_blocks;
  int32_t *host_blocks; /* [K] what it has on the host; NULL without a host pool */
  int32_t num_host_blocks;
  /* counters, engine.md names: 0 <= num_cached <= num_computed <= num_tokens */
  int32_t num_prompt_tokens, num_output_tokens;
  int32_t num_prefill_tokens;      /* PREFILL while num_computed < this */
  int32_t num_computed_tokens;     /* K/V exists or is in flight for [0, num_computed) */
  int32_t num_cached_tokens;       /* of the first prefill, not computed by this request */
  int32_t num_output_placeholders; /* tokens that steps in flight will draw */
  int32_t num_in_flight_tokens;    /* planned tokens of steps in flight */
  int32_t sampled_index;           /* selected row of its last sample in the step planned last */
  int32_t num_published;           /* leading blocks that are findable by key */
  int32_t num_scored;              /* prompt logprobs emitted so far */
  int32_t grammar_row;             /* row whose matcher follows this sequence; -1 = none yet */
  bool ended_by_grammar;           /* nothing more was allowed: no stop token came */
  int32_t num_wanted;              /* tokens that it gets in the step being planned */
  int32_t num_drafts; /* of them guesses; they stand in `tokens` behind the known ones */
  draft_history_t draft_history;
  bool recomputes;           /* was preempted after it had computed tokens */
  double cumulative_logprob; /* of the output, raw */
  uint64_t rng_key;
  detokenizer_t detokenizer;
  /* terminal */
  int32_t error_code, stop_token_id, stop_string;
  uint64_t first_scheduled_ns, first_token_ns, last_token_ns;
} sequence_t;

typedef struct group {
  request_t *request;
  sequence_t sequence;       /* index 0; the others hang behind it */
  uint64_t arrival;          /* order of arrival */
  bool forked;               /* the first tokens are drawn: every sequence lives by itself */
  bool beams_wait;           /* of the plan being made: beams are behind, none draws */
  int64_t num_output_tokens; /* of its finished choices */
  uint64_t fair_start;       /* under fair share: its place in line, in tokens */
  int32_t num_preemptions;
  int32_t num_skips;         /* times that a later one was admitted before it */
  uint64_t passed_in;        /* the plan that let it in or had it pass: planned already there */
  bool was_admitted;         /* counted out of the waiting gauges */
  struct group *prev, *next; /* in exactly one queue */
  struct group_queue *queue; /* that one; NULL = none */
  struct group *free_next;
} group_t;

typedef struct group_queue {
  group_t *head, *tail;
  int32_t count;
} group_queue_t;

void queue_push_tail(group_queue_t *queue, group_t *group);
void queue_push_head(group_queue_t *queue, group_t *group);
void queue_insert_before(group_queue_t *queue, group_t *position, group_t *group);
void queue_remove(group_queue_t *queue, group_t *group);

/* Moves to another status; a move that the table does not allow is a bug and aborts. */
void sequence_set_status(sequence_t *sequence, sequence_status_t status);
bool sequence_transition_allowed(sequence_status_t from, sequence_status_t to);

static inline bool sequence_is_finished(const sequence_t *seq) {
  return seq->status > SEQUENCE_SWAPPED;
}
static inline int32_t sequence_num_tokens(const sequence_t *seq) {
  return seq->num_prompt_tokens + seq->num_output_tokens;
}
/* With the tokens that are being drawn. */
static inline int32_t sequence_num_planned(const sequence_t *seq) {
  return sequence_num_tokens(seq) + seq->num_output_placeholders;
}
static inline bool sequence_in_prefill(const sequence_t *seq) {
  return seq->num_computed_tokens < seq->num_prefill_tokens;
}
/* Scoring requests (max_tokens 0) end when their prompt is computed and sample nothing. */
static inline bool sequence_scores_only(const sequence_t *seq) {
  return seq->group->request->params.max_tokens == 0;
}

/* A sequence that takes part in planning: forked off and not ended. */
static inline bool sequence_is_live(const sequence_t *seq) {
  return seq->status != SEQUENCE_NEW && !sequence_is_finished(seq);
}
/* Sequences that count against max_num_seqs. */
int32_t group_num_running(const group_t *group);

/* Tokens drawn from one row of logits: those of all samples before the fork, then one. Beams are
 * chosen from one row. */
static inline int32_t group_num_draws(const group_t *group) {
  const sampling_params_t *params = &group->request->params;
  return group->forked || params->beam_width > 0 ? 1 : params_num_sequences(params);
}

/* True when committing the next token makes or moves sequences: nothing of the group can be planned
 * before that. */
static inline bool group_forks(const group_t *group) {
  return group_num_draws(group) > 1 || group->request->params.beam_width > 0;
}

/* Makes `child` (NEW) a continuation of its own group, with its own random stream. */
void sequence_init(sequence_t *child, group_t *group, int32_t index);
/* Resets a group for a request that has just arrived. */
void group_init(group_t *group, request_t *request, uint64_t arrival);

#endif
