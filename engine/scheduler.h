/* scheduler.h: stage 4 of 9, waiting queue -> plan (who, how many tokens).
 *
 * A token budget per step and no phases: every request catches up num_computed_tokens with its
 * tokens. Decodes come first, then prefill chunks of running requests, then admissions. Engine
 * thread only; allocates at scheduler_new and never again. Next: engine/batch.c.
 */
#ifndef INFERD_ENGINE_SCHEDULER_H
#define INFERD_ENGINE_SCHEDULER_H

#include "engine/block.h"
#include "engine/sequence.h"

typedef struct scheduler_options {
  int32_t max_num_seqs;
  int32_t max_num_batched_tokens;       /* >= max_num_seqs */
  int32_t max_model_len;                /* M */
  int32_t long_prefill_token_threshold; /* largest chunk of one request; 0 = off */
  int32_t watermark_blocks;             /* kept free at admission while something runs */
  bool reserve_full;                    /* admission takes the blocks of the whole prompt at once */
  bool chunked_prefill;                 /* false: a prompt is planned whole or not at all */
  bool priority_policy;                 /* false = first come first served */
} scheduler_options_t;

typedef struct plan_entry {
  sequence_t *sequence;
  int32_t num_computed; /* before this step */
  int32_t num_tokens;   /* chunk, >= 1 */
  bool do_sample;       /* the chunk reaches the last token: its logits are sampled */
} plan_entry_t;

/* Decodes first. Entries are valid until the next plan. */
typedef struct plan {
  plan_entry_t *entries; /* [max_num_seqs] */
  int32_t num_entries;
  int32_t num_tokens;    /* sum of chunks <= max_num_batched_tokens */
  int32_t num_preempted; /* sequences sent back to waiting while planning */
} plan_t;

typedef struct scheduler {
  scheduler_options_t options;
  block_pool_t *pool;
  group_queue_t waiting, running;
  /* rows: a sequence holds one from its first admission to its end, also while preempted */
  int32_t num_rows;
  int32_t table_stride; /* K = ceil(M / block_size) */
  int32_t *token_table; /* [num_rows, M], touched lazily */
  int32_t *block_table; /* [num_rows, K] */
  char *held_text;      /* [num_rows, STOP_STRING_BYTES_MAX] detokenizer room */
  int32_t *free_rows;
  int32_t num_free_rows;
  plan_t plan;
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
 * num_computed_tokens by what is planned. Returns the number of entries; 0 = nothing can run. */
int32_t scheduler_plan(scheduler_t *scheduler, uint64_t now_ns);

/* Ends a sequence in any live state: frees its blocks and its row, leaves its queue. */
void scheduler_finish(scheduler_t *scheduler, group_t *group, sequence_status_t status);

/* After a forward: gives the full blocks of a running sequence to the prefix cache, in order. A
 * block whose twin is already there is exchanged for the twin. */
void scheduler_publish(scheduler_t *scheduler, sequence_t *sequence);

/* Blocks that a sequence of `num_tokens` tokens takes. */
int32_t scheduler_blocks_for(const scheduler_t *scheduler, int64_t num_tokens);

#endif
