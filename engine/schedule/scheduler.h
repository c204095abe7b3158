/* scheduler.h: stage 4 of 9, waiting queue -> plan (who, how many tokens).
 *
 * A token budget per step and no phases: every request catches up num_computed_tokens with its
 * tokens. Decodes come first, then prefill chunks of running requests, then admissions; short
 * prompts may pass a long one that is in progress. Engine thread only; allocates at scheduler_new
 * and never again. Next: engine/batch.c.
 */
#ifndef INFERD_ENGINE_SCHEDULE_SCHEDULER_H
#define INFERD_ENGINE_SCHEDULE_SCHEDULER_H

#include "engine/device/batch.h"
#include "engine/schedule/block.h"
#include "engine/schedule/draft.h"
#include "engine/schedule/sequence.h"
#include "engine/schedule/swap.h"

enum {
  FAIR_TENANTS = 1024,    /* by hash; two that collide share */
  ADMISSION_SCAN_MAX = 64 /* waiting groups that are looked at in a step */
};

typedef struct scheduler_options {
  int32_t max_num_seqs;
  int32_t max_num_batched_tokens;       /* >= max_num_seqs */
  int32_t max_model_len;                /* M */
  int32_t long_prefill_token_threshold; /* largest chunk of one request; 0 = off */
  int32_t watermark_blocks;             /* kept free at admission while something runs */
  bool reserve_full;                    /* admission takes the blocks of the whole prompt at once */
  bool chunked_prefill;                 /* false: a prompt is planned whole or not at all */
  bool short_prompts_pass;              /* up to half of a step goes to those behind a long one */
  draft_options_t draft;                /* tokens_max 0 = no lookahead slots */
  bool draft_model;                     /* guesses are drawn after planning: drafter.h */
  bool priority_policy;                 /* false = first come first served */
  bool fair_share;                      /* between tenants of one priority */
  int32_t max_skips;       /* how often others may pass one that does not fit; 0 = strict order */
  int32_t max_preemptions; /* after so many a group is protected; 0 = never */
  swap_options_t swap;
} scheduler_options_t;

typedef struct plan_entry {
  sequence_t *sequence;
  uint64_t arrival;        /* of its group: with steps in flight both may be gone at commit */
  int32_t num_computed;    /* before this step */
  int32_t num_tokens;      /* chunk, >= 1 */
  bool do_sample;          /* the chunk reaches the last token: its logits are sampled */
  int32_t output_position; /* of the token that is sampled: 0 = first output token */
  int32_t num_drafts;      /* guessed tokens at the end of the chunk, each to be verified */
} plan_entry_t;

/* False when the sequence was finished after this entry was planned. */
static inline bool plan_entry_live(const plan_entry_t *entry) {
  const group_t *group = entry->sequence->group;
  return group->arrival == entry->arrival && !sequence_is_finished(entry->sequence);
}

/* A page copy before the forward. */
typedef struct plan_copy {
  block_copy_t copy;    /* src is pinned until scheduler_unpin */
  sequence_t *sequence; /* whose table names dst */
} plan_copy_t;

/* Decodes first; the sequences of a group stand together, by index. Entries are valid until the
 * next plan. */
typedef struct plan {
  plan_entry_t *entries; /* [max_num_seqs] */
  int32_t num_entries;
  plan_copy_t *copies; /* [max_num_seqs]: copy-on-write, partial reuse */
  int32_t num_copies;
  block_swap_t *swaps; /* [blocks of the host pool]: made before the copies, each plan's own */
  int32_t num_swap_out, num_swap_in; /* one of them is 0 */
  int32_t num_tokens;                /* sum of chunks <= max_num_batched_tokens */
  int32_t num_preempted;             /* groups sent back to waiting or swapped out while planning */
} plan_t;

typedef struct scheduler {
  scheduler_options_t options;
  block_pool_t *pool;
  group_queue_t waiting, running, swapped;
  group_queue_t ignored; /* swapped ones that can never come back: the caller ends them */
  /* rows: a sequence holds one from the first admission of its group to its end, also while
   * preempted; so a fork always finds a row and an object */
  int32_t num_rows;
  int32_t table_stride; /* K = ceil(M / block_size) */
  int32_t *token_table; /* [num_rows, M], touched lazily */
  int32_t *block_table; /* [num_rows, K] */
  char *held_text;      /* [num_rows, STOP_STRING_BYTES_MAX] detokenizer room */
  int32_t *free_rows;
  int32_t num_free_rows;
  sequence_t *sequences;      /* [num_rows] of groups that have several */
  sequence_t *free_sequences; /* linked by `next` */
  swap_t swap;
  plan_t plan;
  int32_t budget;     /* tokens of the plan that is being made, so far */
  uint64_t num_plans; /* made since start */
  /* fair share, in tokens: where each tenant's next request starts, where the running ones did */
  uint64_t fair_end[FAIR_TENANTS], fair_now;
  /* totals since start */
  uint64_t num_preemptions, num_recomputed_tokens;
  uint64_t prefix_queries_tokens, prefix_hits_tokens;
} scheduler_t;

int scheduler_new(const scheduler_options_t *options, block_pool_t *pool, scheduler_t **out,
                  error_t *error);
void scheduler_free(scheduler_t *scheduler);

/* NEW -> WAITING, at the place that the policy gives. */
void scheduler_add(scheduler_t *scheduler, group_t *group);

/* Makes the plan of the next step in scheduler->plan: takes blocks, preempts, admits, and raises
 * num_computed_tokens by what is planned. Returns the number of entries; 0 = nothing can run. The
 * swaps of a plan have to be launched also then, and before the next plan is made. */
int32_t scheduler_plan(scheduler_t *scheduler, uint64_t now_ns);

/* Moves the plan that was just made to `out`, whose arrays have the same room, and with it the duty
 * to call scheduler_unpin. */
void scheduler_take_plan(scheduler_t *scheduler, plan_t *out);
/* After the step of a plan, when its results are known: its copies have read their sources. */
void scheduler_unpin(scheduler_t *scheduler, plan_t *plan);

/* After a forward, for a row that did not fail: what the entry computed becomes findable. Full
 * blocks go to the prefix cache in order; a block whose twin is already there is exchanged for the
 * twin; the rows of a last, partial block become findable by its parent. */
void scheduler_publish(scheduler_t *scheduler, const plan_entry_t *entry);

/* The first tokens are drawn: every waiting sequence of the group becomes a copy of the first one,
 * before that one gets its own first token. Shares all blocks; cannot fail. */
void scheduler_fork(scheduler_t *scheduler, group_t *group);

/* Ends one live sequence of a running group: frees its blocks and its row. The group stays in its
 * queue, also when this was the last one. */
void scheduler_finish_sequence(scheduler_t *scheduler, sequence_t *sequence,
                               sequence_status_t status);
/* Ends a group in any live state: every live sequence of it, and leaves its queue. */
void scheduler_finish(scheduler_t *scheduler, group_t *group, sequence_status_t status);

/* A step has ended: what it computed and drew for this entry, which is live, is no longer in
 * flight. To be called before the tokens are appended. */
void scheduler_land(const plan_entry_t *entry);
/* The last guesses of a landed entry were wrong: their slots are as good as never written. */
void scheduler_reject(plan_entry_t *entry, int32_t num_rejected);

/* Tokens whose blocks are taken when seq is let in, or comes back: those that are known, or all
 * that there may ever be when its group is protected. */
int32_t scheduler_tokens_reserved(const scheduler_t *scheduler, const sequence_t *seq);
/* Blocks that a sequence of `num_tokens` tokens takes. */
int32_t scheduler_blocks_for(const scheduler_t *scheduler, int64_t num_tokens);

#endif
