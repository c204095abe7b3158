/* scheduler.h: stage 4 of 9, waiting queue -> plan (which sequences run, how many tokens each).
 *
 * A step has a token budget and no phases: each sequence computes tokens until num_computed_tokens
 * equals its number of tokens. Decodes come first, then prefill chunks of running groups, then
 * admissions; a short prompt may overtake a long one that is being computed. Engine thread only;
 * allocates in scheduler_new only. engine/README.md has the rules. Next: engine/batch.c.
 */
#ifndef INFERD_ENGINE_SCHEDULE_SCHEDULER_H
#define INFERD_ENGINE_SCHEDULE_SCHEDULER_H

#include "engine/schedule/block.h"
#include "engine/schedule/draft.h"
#include "engine/schedule/siblings.h"
#include "engine/schedule/step_plan.h"
#include "engine/schedule/swap.h"
#include "engine/schedule/waiting.h"

enum {
  ADMISSION_SCAN_MAX = 64,   /* waiting groups of a tenant that one admission pass looks at */
  ADMISSION_LOOKS_MAX = 256, /* and of all tenants */
  /* Between snapshots of a decode: storing them takes a hundredth of what the states take. */
  SNAPSHOT_TOKENS_DEFAULT = 64
};

typedef struct scheduler_options {
  int32_t max_num_seqs, max_num_batched_tokens; /* the second >= the first */
  int32_t num_stages;    /* that may have a step in flight each; 0 = the model has none */
  int32_t max_requests;  /* at a time: of so many a choice may wait */
  int32_t max_model_len; /* tokens of a sequence: prompt and output */
  int32_t long_prefill_token_threshold; /* largest chunk of one sequence; 0 = no limit */
  int32_t watermark_blocks;             /* kept free at admission while another group runs */
  bool reserve_full;                    /* admission takes the blocks of the whole prompt */
  int32_t slice_blocks;    /* that an admission takes in one plan (slices.h); 0 = all of them */
  bool chunked_prefill;    /* false: a prompt is planned whole or not at all */
  bool short_prompts_pass; /* shorter prompts overtake a long one (plan_shorter) */
  pace_options_t pace;
  draft_options_t draft;            /* tokens_max 0 = no lookahead slots */
  bool draft_model;                 /* one draws draft tokens later: drafter.h, predict.h */
  bool history_on_device;           /* of ops_t: penalties need no tokens on the host */
  bool priority_policy, fair_share; /* else first come, first served; between tenants */
  /* A new group counts as so many times the time of its prompt later, so short prompts go first:
   * one of time t is passed by none of its tenant that comes this times t later. 0 = by arrival. */
  double ageing;
  int32_t fair_span;         /* tokens: tenants.h; 0 = turns by exactly what was served */
  int32_t queue_time_tokens; /* of a prompt; a longer one may be later in proportion; 0 = none */
  int32_t max_skips;         /* times that a group which does not fit may be overtaken; 0 = never */
  int32_t max_preemptions;   /* after so many preemptions a group is protected; 0 = never */
  swap_options_t swap;
  window_options_t window; /* of layers with side blocks (sides.h) */
  bool leaves_steps;       /* steps of best effort alone may be left: step.h */
  bool has_states;         /* the model keeps a state per sequence (states.h) */
  int32_t num_snapshots;   /* slots of states behind those of sequences; 0 without prefix caching */
  int32_t snapshot_blocks; /* a decode makes a snapshot each time it has filled so many blocks */
} scheduler_options_t;

/* What is known for the groups that run by best effort. */
typedef struct best_effort {
  uint64_t others_ns; /* when a plan last had other groups; 0 = never */
  bool has_left;      /* the last step that could be left was left: the next one is not */
  /* First tokens of others, from their arrival: in the mean, and the longest of late; 0 = none was
   * seen. */
  double mean_first_ns, longest_first_ns;
  tenant_pace_t pace; /* of all of them together, beside others */
} best_effort_t;

typedef struct scheduler {
  scheduler_options_t options;
  block_pool_t *pool;
  waiting_t waiting;
  group_queue_t running, swapped, ignored; /* ignored: cannot come back; the caller ends them */
  group_store_t choices;
  /* A sequence holds a row from the first admission of its group to its own end, also while it is
   * preempted. So a beam that forks always finds a row and a sequence object. */
  int32_t num_rows;
  int32_t table_stride, row_stride; /* ceil(max_model_len / block_size); times groups of layers */
  int32_t *token_table;             /* [num_rows, max_model_len], pages are touched lazily */
  int32_t *block_table;             /* [num_rows, row_stride] */
  char *held_text; /* [num_rows, STOP_STRING_BYTES_MAX] text that detokenizers hold back */
  int32_t num_free_rows, *free_rows; /* [num_free_rows] */
  sequence_t *sequences;             /* [num_rows] beams other than the first of a group */
  sequence_t *free_sequences;        /* linked by `next` */
  /* Those whose table names a block that another one fills, in the order of their admission; some
   * of them have passed it since. */
  sequence_t *sharers, *last_sharer;
  swap_t swap;
  /* Slots of states: one for each sequence that holds blocks, and one for each draft token. */
  int32_t num_free_states, *free_states; /* [num_free_states] from 1 on; none without has_states */
  struct snapshots *snapshots; /* the prefix cache's, in slots behind these; NULL = none */
  slices_sum_t slices;
  cost_t cost;      /* of the steps that have ended */
  step_pace_t pace; /* of the plan being made */
  best_effort_t best_effort;
  draft_sums_t drafts;
  struct activity *activity;         /* of the engine; NULL = none */
  struct image_rows *image_rows;     /* of the engine, lent; NULL = the model sees no pictures */
  struct cross_blocks *cross_blocks; /* the same; NULL = no encoder stands before the model */
  bool pictures_whole;               /* a token of a picture sees all of it: a step has it whole */
  double tower_ns; /* of the tower since the last plan, for a group of this tenant */
  int32_t tower_tenant;
  plan_t plan;
  plan_entry_t *entries; /* [max_num_seqs] for the next plan; scheduler_take_plan swaps it */
  int32_t budget;        /* of tokens, for the plan being made, less what plan_shorter sets aside */
  uint64_t num_plans;    /* passes over `running` since start; a plan makes one, at most two */
  uint64_t num_counts, num_yields; /* yield.c: counts of tenants, groups preempted for others */
  uint64_t pause;                  /* yield.c: num_plans when groups began to pause; 0 = never */
  uint64_t weighed_in;             /* yield.c: num_plans of the plan that num_weighed counts */
  int32_t num_weighed;             /* looks at running groups, for those who lack room */
  int64_t weights;                 /* at the last count: sum over the tenants that run or wait */
  uint64_t num_sat_out; /* since start, as below: decodes that a bound of time put off in a step */
  uint64_t num_preemptions, num_recomputed_tokens, prefix_queries_tokens, prefix_hits_tokens;
  /* work: sequences met in searches for a filler, ids hashed, looks at waiting groups, blocks
   * looked up, added to a table or keyed */
  uint64_t num_visited, num_hashed, num_looks, num_walked;
  uint64_t lacked_in;  /* the plan in which one within its share found nobody to give it blocks */
  uint64_t num_claims; /* of blocks of prompts, which a waiting group may share */
} scheduler_t;

/* Rows of the tables. Several times the running sequences, because those that make room for others
 * keep theirs: of n clients that come one after the other the shares of all add up to 1 + 1/2 + ...
 * + 1/n times these, which is above 4 from 31 clients on. Who may take the last half: admit.c. */
static inline int32_t scheduler_num_rows(int32_t max_num_seqs) {
  return 4 * max_num_seqs;
}

/* Whose the blocks are that a sequence writes (free_queues.h): those of its API key, else of all
 * that have none, as place 0 of the tenants. */
static inline int32_t scheduler_owner(const scheduler_t *scheduler, const sequence_t *seq) {
  bool has_key = scheduler->options.fair_share && seq->group->request->quota != NULL;
  return has_key ? 1 + seq->group->tenant : 1;
}

/* Returns 0 and *out, or ERR_NO_MEMORY. Borrows `pool`. */
int scheduler_new(const scheduler_options_t *options, block_pool_t *pool, scheduler_t **out,
                  inferd_error_t *error);
void scheduler_free(scheduler_t *scheduler);

/* NEW -> WAITING: inserts the group into `waiting`. */
void scheduler_add(scheduler_t *scheduler, group_t *group);
/* The oldest group that has waited `limit_ns` for its first admission; with ageing, whose first
 * token will be later than queue_time_tokens and 3 times its prompt alone allow. NULL = none. */
group_t *scheduler_find_late(scheduler_t *scheduler, uint64_t now_ns, double limit_ns);
/* The first token of the group has come. */
void scheduler_note_first(scheduler_t *scheduler, group_t *group);
/* Makes the plan of the next step in scheduler->plan: takes blocks, preempts, admits, and raises
 * num_computed_tokens by the planned tokens. Returns the number of entries; 0 = nothing can run.
 * The swaps of a plan must be launched in both cases, before the next plan is made. */
int32_t scheduler_plan(scheduler_t *scheduler, uint64_t now_ns);

/* Whether the next step of the group depends on a token in flight: by a grammar, penalties on the
 * host, a fork, beams, draft tokens. Until its commit it is in no plan, and is not preempted. */
bool scheduler_awaits(const group_t *group);
/* Moves the new plan, without its swaps, to `out`, whose owner must call scheduler_unpin. */
void scheduler_take_plan(scheduler_t *scheduler, plan_t *out);
/* After the step of a plan, when its results are known: unpins the sources of its copies. */
void scheduler_unpin(scheduler_t *scheduler, plan_t *plan);

/* After a forward, for a row that did not fail: makes the blocks of the entry findable, full ones
 * by key, a last one by its parent, at once or when it is released. In table.c. */
void scheduler_publish(scheduler_t *scheduler, const plan_entry_t *entry);

/* Finishes every live sequence of a group: frees its blocks and its rows, and removes the group
 * from its queue. */
void scheduler_finish(scheduler_t *scheduler, group_t *group, sequence_status_t status);

/* The step of this plan has ended, and took the device `device_ns`. */
void scheduler_note_time(scheduler_t *scheduler, const plan_t *plan, double device_ns);
/* Before a plan: a tower worked so long for the group. The next step has that much less time, and
 * so has the client. */
void scheduler_note_tower(scheduler_t *scheduler, const group_t *group, double ns);
/* Slots of states for sequences and draft tokens; snapshots have those behind them. */
int32_t scheduler_state_slots(const scheduler_options_t *options);
/* After the commit of an entry, or when its step failed: frees what it took. In states.c. */
void scheduler_settle(scheduler_t *scheduler, plan_entry_t *entry);

/* Before the tokens of a live entry are appended. */
void scheduler_complete(const plan_entry_t *entry);
/* Takes the last tokens back from a completed entry: draft tokens, or one whose mask is late. */
void scheduler_reject(plan_entry_t *entry, int32_t num_rejected);
/* Takes the last draft tokens out of an entry, before its batch is built. */
void scheduler_cut_drafts(scheduler_t *scheduler, plan_t *plan, plan_entry_t *entry, int32_t count);

/* Tokens whose blocks seq takes when it is admitted or swapped in: its known tokens, or, if its
 * group is protected, all that it may ever have. */
int32_t scheduler_tokens_reserved(const scheduler_t *scheduler, const sequence_t *seq);

#endif
