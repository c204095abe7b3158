/* step_plan.h: a plan: which sequences run in a step, how many tokens each, and its pace, which is
 * how much of the time of a step they may take. Engine thread only. scheduler.h makes plans.
 */
#ifndef INFERD_ENGINE_SCHEDULE_STEP_PLAN_H
#define INFERD_ENGINE_SCHEDULE_STEP_PLAN_H

#include "engine/cost.h"
#include "engine/device/batch.h"
#include "engine/device/swap_ops.h"
#include "engine/schedule/sequence.h"

#include <stddef.h>
#include <stdint.h>

typedef struct plan_entry {
  sequence_t *sequence;
  uint64_t arrival;        /* of its group: at commit the group object may serve another request */
  const int32_t *blocks;   /* of the sequence */
  int32_t num_computed;    /* tokens computed before this step */
  int32_t num_tokens;      /* size of the chunk, >= 1, draft tokens included */
  int32_t last_id;         /* of the output; a reference (ops.h) if a step in flight draws it */
  int32_t output_position; /* of the token that is sampled: 0 = first output token */
  int32_t first_row;       /* selected row of its first sample; set by batch_build */
  int32_t num_drafts;      /* draft tokens at the end of the chunk */
  int32_t num_cut;         /* draft tokens that were planned behind these (scheduler_cut_drafts) */
  int32_t num_charged, charged_before; /* tokens charged to its tenant; its mark before them */
  bool do_sample;    /* the chunk reaches the last known token: its logits are sampled */
  bool is_next;      /* it is the token last_id of a plain group, and one row is sampled */
  bool drafts_known; /* no model draws them: they stand behind the known tokens */
  bool waits;     /* the sequence is in no plan before the token that this entry draws is known */
  bool late;      /* a mask of its group was not ready: what it draws is dropped */
  bool committed; /* its sequence was live when the step was committed */
  struct entry_states *states; /* NULL = it stores none */
} plan_entry_t;

/* Where an entry stores states, besides the slot of its sequence (states.h). */
typedef struct entry_states {
  int32_t num_snapshots;
  snapshot_place_t snapshots[SNAPSHOTS_OF_ENTRY]; /* in order; the slots are taken */
  /* Slots for the state behind token i of the entry, i < num_drafts. */
  int32_t drafts[DRAFT_TOKENS_MAX];
} entry_states_t;

/* False if the sequence was finished after this entry was planned. */
static inline bool plan_entry_live(const plan_entry_t *entry) {
  const group_t *group = entry->sequence->group;
  return group->arrival == entry->arrival && !sequence_is_finished(entry->sequence);
}

/* A copy of the leading rows of a block, made before the forward. */
typedef struct plan_copy {
  block_copy_t copy;    /* src is pinned until scheduler_unpin */
  sequence_t *sequence; /* the one whose block table names dst */
} plan_copy_t;

/* The plan of a step. The sequences of a group stand together, by index. The entries are valid
 * until the next plan is made. */
typedef struct plan {
  plan_entry_t *entries;           /* [max_num_seqs] */
  entry_states_t *states;          /* [max_num_seqs] of the entries; NULL without has_states */
  int32_t num_entries, num_before; /* so far; of the plan before, whose entries are still there */
  /* While a group is planned: entries behind these that its sequences want; and whether a beam of
   * it still catches up, so that none draws. */
  int32_t num_wanted;
  bool beams_wait;
  plan_copy_t *copies; /* [max_num_seqs, groups]: copy-on-write, reuse of partial blocks */
  int32_t num_copies;
  /* [max_num_seqs]: forks and beginnings from snapshots since the plan that was launched last */
  state_copy_t *state_copies;
  int32_t num_state_copies;
  block_swap_t *swaps;               /* [swap.num_blocks of the options]: run before the copies */
  int32_t num_swap_out, num_swap_in; /* at least one of them is 0 */
  bool copies_floor;                 /* blocks leave or enter by the floor (floor.h) before it */
  int32_t num_tokens;                /* sum of chunks <= max_num_batched_tokens */
  int32_t num_drafts;                /* draft tokens among them, or that were wanted */
  cost_work_t work;                  /* of all entries, and of the step */
  int32_t num_preempted;             /* groups that this plan moved to waiting or swapped */
} plan_t;

/* Bounds of the time of a step in which something decodes, in ns; 0 = none. */
typedef struct pace_options {
  double step_ns;   /* of the step: prompts get what decodes leave */
  double reads;     /* and no less than so many times what a step costs that computes nothing */
  double client_ns; /* of what one client has in it, if another client decodes; with fair shares */
  bool bounds_admission; /* no group is admitted with which decodes alone would take step_ns */
} pace_options_t;

/* Of which groups a plan, or the part of it that is being made, is. */
typedef enum plan_class { CLASS_ALL, CLASS_OTHERS, CLASS_BEST_EFFORT } plan_class_t;

typedef struct step_pace {
  plan_class_t class;   /* with OTHERS and BEST_EFFORT, the times and counts below are theirs */
  bool is_on;           /* a bound is set, the costs are known, and a group decodes */
  double step_ns;       /* time of the step, less what plan_shorter sets aside */
  double client_ns;     /* time of a client, if a token is due to another one */
  double prompts_ns;    /* with ageing and a bound: what the decodes that it counts leave */
  int32_t num_decoding; /* clients that decode */
  int32_t num_due;      /* clients that decode, or of which a prompt may end in this step */
  int32_t num_draws;    /* sequences that decode; counted where drafts, a bound or stages are */
  int32_t draws_most;   /* of them, that this plan may have: with stages a part of all */
  group_t *prefills;    /* the first prefill of `running`: all before it decode; NULL = none */
  double seats_ns;   /* of a step in which all of `running` decode; 0 = admission is not bounded */
  double decodes_ns; /* of the decodes that num_draws counts; 0 = costs are unknown */
  int32_t num_prefills; /* of `running` */
  double prompt_tokens; /* that they have left */
  int32_t run_tokens;   /* of the longest picture that is next and must be whole in a step */
  int32_t num_chunks;   /* of prompts, so far */
  const group_t
      *first;      /* the prefill of `running` that gets a block whatever it costs; NULL = none */
  uint64_t number; /* of the pace: each plan has another one */
  double debt_ns;  /* with ageing: by how much steps took too long; at most half of a step */
  int32_t num_sat_out; /* groups that decode and do not in this step */
} step_pace_t;

/* How long prompts wait, by the learned costs and what runs now: a prompt that comes behind n
 * tokens of prompts in the queue is computed after base_ns + (n + its own) * token_ns. */
typedef struct forecast {
  double base_ns;  /* for prompts that are being computed */
  double token_ns; /* for a token of a prompt; the steps' decodes and cached tokens count in it */
} forecast_t;
struct scheduler;
/* As of the last plan. `mean_tokens`: of a prompt. All 0 while no cost is known. */
forecast_t scheduler_forecast(const struct scheduler *scheduler, double mean_tokens);
/* A model has drawn one draft token for each sequence that wants one, in so long. */
void scheduler_note_drafts(struct scheduler *scheduler, double ns);

/* ---- the processor's cache ---- */

/* Thousands of sequences do not fit into the cache of a core, so a walk over them would wait for
 * memory at each one. What it will read soon is brought there; nothing but the time changes. */
enum { PREFETCH_FAR = 16, PREFETCH_NEAR = 8 }; /* entries ahead */
/* The first bytes of a group: what a walk, a plan, a commit and the sampler need of a plain one.
 * The groups of an engine begin with a cache line. */
enum { CACHE_LINE = 64, GROUP_WALKED = 2 * CACHE_LINE, GROUP_PLANNED = 3 * CACHE_LINE };
enum { GROUP_COMMITTED = 4 * CACHE_LINE, GROUP_SAMPLED = 5 * CACHE_LINE };
_Static_assert(sizeof(group_t) % CACHE_LINE == 0, "so that each of an array begins with a line");

/* Any address is allowed, so these are numbers: a pointer may not leave its object. */
static inline void prefetch_from(uintptr_t first, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes; i += CACHE_LINE) __builtin_prefetch((const void *)(first + i));
}
static inline void prefetch_bytes(const void *first, size_t num_bytes) {
  prefetch_from((uintptr_t)first, num_bytes);
}

/* The first bytes of the group of a sequence, if it has no other. NULL is allowed. */
static inline void prefetch_group(const sequence_t *seq, size_t num_bytes) {
  prefetch_from((uintptr_t)seq - offsetof(group_t, sequence), num_bytes);
}

/* Before entry i of a plan is worked on: the group of a later one. */
static inline void prefetch_entry(const plan_t *plan, int32_t i, size_t num_bytes) {
  if (i + PREFETCH_FAR < plan->num_entries)
    prefetch_group(plan->entries[i + PREFETCH_FAR].sequence, num_bytes);
}

#endif
