/* sequence.h: sequence groups and sequences: states, counters, queues.
 *
 * A group is one request with one prompt; a sequence is one continuation of it. Today a group has
 * exactly one sequence; the split is where forks (n, best_of, beam) will enter. Engine thread only.
 * One function changes a status, one table says which changes are allowed.
 */
#ifndef INFERD_ENGINE_SEQUENCE_H
#define INFERD_ENGINE_SEQUENCE_H

#include "engine/request.h"

/* The finished states are the largest, so that "is finished" is one comparison. */
typedef enum sequence_status {
  SEQUENCE_NEW,              /* made, not queued */
  SEQUENCE_WAITING,          /* not admitted yet, or preempted by recompute: no blocks */
  SEQUENCE_RUNNING,          /* admitted: blocks on the device; may get 0 tokens in a step */
  SEQUENCE_SWAPPED,          /* preempted by swap: blocks on the host (no back end uses it yet) */
  SEQUENCE_FINISHED_STOPPED, /* EOS, stop id, stop string */
  SEQUENCE_FINISHED_LENGTH_CAPPED, /* max_tokens or the context */
  SEQUENCE_FINISHED_ABORTED,       /* client gone, deadline, shutdown, engine error */
  SEQUENCE_FINISHED_IGNORED,       /* can never run: needs more blocks than the pool has */
  SEQUENCE_STATUS_COUNT
} sequence_status_t;

struct group;

typedef struct sequence {
  struct group *group;
  sequence_status_t status;
  int32_t row;     /* of token_table and block_table; -1 while none is held */
  int32_t *tokens; /* [M] prompt then output; NULL while no row is held */
  int32_t *blocks; /* [K] block table row */
  int32_t num_blocks;
  /* counters, engine.md names: 0 <= num_cached <= num_computed <= num_tokens */
  int32_t num_prompt_tokens, num_output_tokens;
  int32_t num_prefill_tokens;  /* PREFILL while num_computed < this */
  int32_t num_computed_tokens; /* K/V exists or is in flight for [0, num_computed) */
  int32_t num_cached_tokens;   /* of the first prefill, not computed by this request */
  int32_t num_published;       /* leading blocks whose identity is in the prefix cache */
  int32_t num_scored;          /* prompt logprobs emitted so far */
  uint64_t rng_key;
  detokenizer_t detokenizer;
  /* terminal */
  int32_t error_code, stop_token_id, stop_string;
  uint64_t first_scheduled_ns, first_token_ns, last_token_ns;
} sequence_t;

typedef struct group {
  request_t *request;
  sequence_t sequence; /* the only one until forks exist */
  uint64_t arrival;    /* order of arrival */
  int32_t num_preemptions;
  bool was_admitted;         /* counted out of the waiting gauges */
  struct group *prev, *next; /* in exactly one queue */
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

static inline bool sequence_is_finished(const sequence_t *s) {
  return s->status > SEQUENCE_SWAPPED;
}
static inline int32_t sequence_num_tokens(const sequence_t *s) {
  return s->num_prompt_tokens + s->num_output_tokens;
}
static inline bool sequence_in_prefill(const sequence_t *s) {
  return s->num_computed_tokens < s->num_prefill_tokens;
}
/* Scoring requests (max_tokens 0) end when their prompt is computed and sample nothing. */
static inline bool sequence_scores_only(const sequence_t *s) {
  return s->group->request->params.max_tokens == 0;
}

/* Resets a group for a request that has just arrived. */
void group_init(group_t *group, request_t *request, uint64_t arrival);

#endif
