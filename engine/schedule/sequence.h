/* sequence.h: sequence groups and sequences: states, counters, queues.
 *
 * A group is what is scheduled as one; a sequence is one continuation of a prompt. Each independent
 * choice of a request is a group of one sequence (siblings.h). The beams of a search are one group
 * of several: the further ones are made at its first admission, and stay NEW until a beam forks
 * into them. Engine thread only. */
#ifndef INFERD_ENGINE_SCHEDULE_SEQUENCE_H
#define INFERD_ENGINE_SCHEDULE_SEQUENCE_H

#include "engine/request.h"
#include "engine/schedule/draft.h"
#include "engine/schedule/mask_state.h"
#include "engine/schedule/slices.h"
#include "engine/schedule/state/state_mark.h"
#include "engine/schedule/status.h"
#include "engine/schedule/unfit.h"
#include "engine/schedule/window/window.h"

enum { WAITING_LEVELS = 10 }; /* of the skip list of waiting.h: 4^10 groups */
struct group;
/* Time of steps that a prompt had and left, for a picture that must be in one step. pace.c */
typedef struct saving {
  double ns;
  uint64_t saved_in; /* scheduler.num_plans of the plan that gave the last of it */
} saving_t;
/* What every step reads of a decode stands first, here and in group_t: few cache lines. */
typedef struct sequence {
  struct group *group;
  struct sequence *next; /* next sequence of the group, by index; or of scheduler.free_sequences */
  int32_t *tokens; /* [max_model_len] its row of ids, see table_id; NULL while no row is held */
  int32_t *blocks; /* [row_stride] its row of the block table; NULL while no row is held */
  sequence_status_t status;
  int32_t num_blocks;
  /* Counters, in tokens; engine/README.md has their rules. */
  int32_t num_prompt_tokens, num_output_tokens;
  int32_t num_prefill_tokens;      /* PREFILL while num_computed < this */
  int32_t num_computed_tokens;     /* K/V exists or is in flight for [0, num_computed) */
  int32_t num_output_placeholders; /* tokens that the in-flight steps will draw */
  int32_t num_in_flight_tokens;    /* tokens planned in the in-flight steps */
  const struct plan_entry *entry;  /* its entry in the step in flight that draws its last token */
  int32_t num_published, num_charged; /* leading blocks with a key; leading tokens charged */
  int32_t num_unnoted;       /* tokens that decodes have committed without a prefix_note, or 0 */
  int32_t index;             /* sample number: the random stream is (seed, index) */
  int32_t num_cached_tokens; /* of the prompt, not computed in the first prefill */
  int32_t num_floor_tokens;  /* of blocks that came back from the floor for it */
  int32_t last_id;           /* of the output; see table_add_id */
  int32_t row; /* row of token_table and block_table; -1 while the sequence holds none */
  draft_state_t drafts;
  detokenizer_t detokenizer;
  uint64_t rng_key, first_scheduled_ns, first_token_ns;
  int32_t num_host_blocks;
  int32_t *host_blocks; /* [table_stride] its blocks on the host; NULL without a host pool */
  struct sequence *sharer_prev, *sharer_next; /* neighbours in scheduler.sharers */
  slices_t slices;
  side_range_t sides;
  sequence_state_t state;
  int32_t num_scored, num_pooled; /* prompt logprobs emitted; leading prompt tokens pooled */
  int32_t grammar_row;            /* row whose matcher follows this sequence; -1 = none yet */
  sequence_masks_t masks;
  saving_t saving;
  double cumulative_logprob; /* sum over the output tokens, of raw logprobs */
  /* Set when the sequence finishes; stop_token_id and stop_string are -1 if they do not apply. */
  int32_t error_code, stop_token_id, stop_string;
  bool ended_by_grammar;      /* the grammar allowed no further token: no stop token came */
  bool recomputes, is_sharer; /* was preempted after it had computed tokens; is in that list */
} sequence_t;

/* The groups of the choices of a request; see siblings.h. */
typedef struct siblings {
  struct group *lead;  /* the group of choice 0, which may be this one */
  struct group *next;  /* the one that began before it of those behind the lead; of the lead, the
                        * one that began last; NULL = none */
  int32_t num_choices; /* of the request: groups that it will have had in the end */
  int32_t num_begun, num_ended; /* of the lead: choices that have, or had, a group; that ended */
  int64_t num_output_tokens;    /* of the lead: of the choices that ended */
} siblings_t;

typedef struct group {
  request_t *request;
  uint64_t id;               /* of the request */
  struct group *next;        /* neighbour in `queue` */
  struct group_queue *queue; /* the one queue that holds the group; NULL = none */
  uint64_t arrival;          /* number in order of arrival: unique */
  uint64_t planned_in;       /* scheduler.num_plans of a plan that must not plan it again */
  int32_t tenant;            /* place in tenants.h, from arrival to end */
  int32_t max_tokens;        /* of the request */
  bool forked;               /* beams that have drawn: each sequence is planned by itself */
  bool was_admitted;         /* a step with a row was committed */
  /* Plain: one sequence that draws, no grammar, penalties, adapter, pictures, pair, scores;
   * with stages no group is. Terse: also no logprobs, min_tokens, stop ids. So most steps read
   * nothing of the request. */
  bool is_plain, is_terse;
  bool ignore_eos;     /* of the request */
  bool best_effort;    /* of the request */
  int16_t width;       /* sequences: of beams as many as they may ever be; else 1 */
  sequence_t sequence; /* index 0; the other sequences follow through sequence.next */
  struct group *prev;  /* neighbour in `queue` */
  bool in_use;         /* EVENT_DONE was not emitted */
  bool is_new;         /* it has not begun: it stands in the list of arrivals */
  bool reports_many;   /* rows of it report more alternatives than a step has memory for */
  mask_state_t masks;
  uint64_t key; /* before `arrival` in the queue's order */
  siblings_t siblings;
  yield_state_t yield;
  int32_t num_preemptions, num_skips; /* preempted so often; later groups admitted before */
  int32_t chunk_max;                  /* tokens of a step; 0 = any */
  unfit_t unfit;
  struct group *skip[WAITING_LEVELS]; /* waiting.c: the next group of each level */
  struct group *older, *newer;
  struct trace *trace; /* of the engine; NULL = off */
} group_t;

typedef struct group_queue {
  group_t *head, *tail;
  int32_t count;
} group_queue_t;

/* A group is in one queue at most. Position NULL = the tail. */
void queue_push_tail(group_queue_t *queue, group_t *group);
void queue_insert_before(group_queue_t *queue, group_t *position, group_t *group);
void queue_remove(group_queue_t *queue, group_t *group);

/* Changes the status; a change that the table of sequence.c does not allow is a bug and aborts. */
void sequence_set_status(sequence_t *sequence, sequence_status_t status);

static inline bool sequence_is_finished(const sequence_t *seq) {
  return seq->status > SEQUENCE_SWAPPED;
}
static inline int32_t sequence_num_tokens(const sequence_t *seq) {
  return seq->num_prompt_tokens + seq->num_output_tokens;
}
/* Known tokens plus the tokens that in-flight steps will draw. */
static inline int32_t sequence_num_planned(const sequence_t *seq) {
  return sequence_num_tokens(seq) + seq->num_output_placeholders;
}
static inline bool sequence_in_prefill(const sequence_t *seq) {
  return seq->num_computed_tokens < seq->num_prefill_tokens;
}
/* A request that scores or pools (max_tokens 0) draws nothing and ends behind its prompt. */
static inline bool sequence_scores_only(const sequence_t *seq) {
  return seq->group->max_tokens == 0;
}
/* True if the scheduler may plan the sequence: it is neither NEW nor finished. */
static inline bool sequence_is_live(const sequence_t *seq) {
  return seq->status != SEQUENCE_NEW && !sequence_is_finished(seq);
}
/* Whether the commit of its next token moves beams: until that commit no further step of the group
 * can be planned. */
static inline bool group_is_search(const group_t *group) {
  return !group->is_plain && group->request->params.beam_width > 0;
}

/* Makes `child` the NEW sequence `index` of the group, without a row. Overwrites all fields. */
void sequence_init(sequence_t *child, group_t *group, int32_t index);
/* Resets a group for a request that it borrows until EVENT_DONE: one NEW sequence, in no queue. The
 * numbers of arrival from this one on, one for each sequence of the request, are its own. */
void group_init(group_t *group, request_t *request, uint64_t arrival);
/* Makes a group that of choice `index` >= 1 of the request whose lead is given. */
void group_init_choice(group_t *group, group_t *lead, int32_t index);

#endif
