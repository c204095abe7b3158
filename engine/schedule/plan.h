/* plan.h: what the files of the scheduler share while a plan is made. No other file of the product
 * includes it.
 *
 * Each calls those above it in this page, never one below: facts.c (of a group alone), shares.c (of
 * a client), pace.c (the time of the step), preempt.c (who makes room), decode.c (decodes of groups
 * that run), yield.c (who gives way to whom), admit.c (groups that wait); and scheduler.c, which
 * makes the plan of all of them. Under these stand table.h and swap.h (blocks), slices.h, floor.h.
 *
 * Engine thread only. All of them work on scheduler->plan, the plan that is being made.
 */
#ifndef INFERD_ENGINE_SCHEDULE_PLAN_H
#define INFERD_ENGINE_SCHEDULE_PLAN_H

#include "engine/schedule/scheduler.h"

/* ---- the processor's cache ---- */

/* At entry i of a walk over `running`: brings a group that comes soon. The entries from i on are
 * those of the plan before, in which the groups mostly stood in the same order. */
static inline void prefetch_planned(const plan_t *plan, int32_t i, size_t num_bytes) {
  if (i + PREFETCH_FAR < plan->num_before)
    prefetch_group(plan->entries[i + PREFETCH_FAR].sequence, num_bytes);
}

/* ---- the plan that is being made ---- */

/* Whether the part of the plan that is being made is without the group. */
static inline bool plan_is_out(const scheduler_t *scheduler, const group_t *group) {
  const plan_class_t class = scheduler->pace.class;
  return class != CLASS_ALL && group->best_effort != (class == CLASS_BEST_EFFORT);
}

/* Whether groups on the host come before those that wait: any, but for those by best effort, which
 * others do not wait for. */
static inline bool plan_host_first(const scheduler_t *scheduler) {
  const group_t *first = scheduler->swapped.head; /* those by best effort stand last */
  return first != NULL && !(scheduler->pace.class == CLASS_OTHERS && first->best_effort);
}
/* Tokens of the step that are not planned yet. */
static inline int32_t plan_budget_left(const scheduler_t *scheduler) {
  return scheduler->budget - scheduler->plan.num_tokens;
}

/* The first group of `running` that may be a prefill, at the time of plan_pace or later in the same
 * plan; the groups before it decode. NULL = none is. */
static inline group_t *plan_first_prefill(const scheduler_t *scheduler) {
  return scheduler->pace.prefills;
}

/* ---- facts.c: of a group or a sequence, whoever else is planned ---- */

/* Of beams: whether one of them lacks more than its last token. */
bool plan_is_behind(const group_t *group);
/* Whether the group computes more than the last token of each of its sequences. Forks count as
 * decodes, and draw together, once each of them lacks its last token only. */
static inline bool plan_is_prefill(const group_t *group) {
  return group->forked ? plan_is_behind(group) : sequence_in_prefill(&group->sequence);
}
/* Whether the group has beams. They are ranked against each other, so they draw in the same step:
 * after a preemption no beam computes its last token before all beams can. */
static inline bool plan_has_beams(const group_t *group) {
  return group->forked && group->request->params.beam_width > 0;
}
/* Whether the tokens that are being drawn include the last one that the sequence may have. */
static inline bool plan_ends_in_flight(const scheduler_t *scheduler, const sequence_t *seq) {
  int32_t drawn = seq->num_output_tokens + seq->num_output_placeholders;
  return seq->num_output_placeholders > 0 &&
         (drawn >= seq->group->max_tokens ||
          sequence_num_planned(seq) >= scheduler->options.max_model_len);
}
/* Whether tokens of the group are still in flight, from before it was preempted. */
bool plan_is_in_flight(const group_t *group);
/* Whether the group was preempted `max_preemptions` times, so that others are chosen before it. */
bool plan_is_protected(const scheduler_t *scheduler, const group_t *group);
/* Tokens that a group which has not forked must still compute. */
int32_t plan_tokens_left(const group_t *group);
/* Whether `later` has fewer tokens to compute than the prefill `ahead`, and may overtake it. */
bool plan_is_shorter(const scheduler_t *scheduler, const group_t *later, const group_t *ahead);
/* Sequences that count against max_num_seqs. */
int32_t plan_count_running(const scheduler_t *scheduler);
/* Blocks that must be free to admit the group, if the prefix cache has nothing for it. */
int32_t plan_blocks_wanted(const scheduler_t *scheduler, const group_t *group);

/* ---- shares.c ---- */

/* Counts what each tenant runs, and the weights of all that run or wait. Returns the sequences that
 * count against max_num_seqs. */
int32_t plan_count_tenants(scheduler_t *scheduler);
/* After a count: a group was admitted (sign 1), or leaves `running` (sign -1). */
void plan_count_group(scheduler_t *scheduler, const group_t *group, int32_t sign);
/* After a count, before the group is admitted: sequences that its tenant runs. */
int32_t plan_count_of(scheduler_t *scheduler, const group_t *group);
/* Whether the tenant has no more than its share of sequences, and of blocks if they are asked for,
 * with the waiting group. After a count. */
bool plan_is_entitled(scheduler_t *scheduler, const group_t *group, bool blocks);
/* Whether it has more than its share of blocks with it. After a count. */
bool plan_blocks_beyond(scheduler_t *scheduler, const group_t *group);
/* For yield.c. What the tenant of the group was counted to have; blocks that the group has, or will
 * have when its admission is complete; and what the tenant has above its share, times the weights
 * of all, so that it is a whole number: of blocks, or of sequences. */
tenant_t *shares_counted(scheduler_t *scheduler, const group_t *group);
int32_t shares_blocks(const scheduler_t *scheduler, const group_t *group);
int64_t shares_excess(const scheduler_t *scheduler, const tenant_t *tenant, bool blocks);

/* ---- pace.c ---- */

/* An entry is added (times 1), or taken back (times -1). */
void plan_spend(scheduler_t *scheduler, const plan_entry_t *entry, int times);
/* Before the walk over `running`: how much time the step has, and each client; and which groups are
 * prefills. */
void plan_pace(scheduler_t *scheduler);
/* The plan that is complete draws the first token of the group: how long that took. */
void plan_note_first(scheduler_t *scheduler, const group_t *group, uint64_t now_ns);
/* Whether a group that decodes does so in this step. If those of its client take more than its
 * time, they take turns; at least one of them goes. */
bool plan_takes_turn(scheduler_t *scheduler, group_t *group);
/* The step as far as draft tokens of the sequence are concerned: what all decodes yield and take.
 */
draft_step_t plan_draft_step(const scheduler_t *scheduler, const sequence_t *seq);
/* Whether the draft tokens that the group wants leave its client time for all its decodes; then
 * that time is theirs. */
bool plan_takes_drafts(scheduler_t *scheduler, const group_t *group);
/* Where a model has stages, so that each has a step: bounds the tokens that the prompts of a plan
 * have together, behind its decodes. */
void plan_share_budget(scheduler_t *scheduler);
/* Tokens that one sequence may compute in this step, `budget` at most. */
int32_t plan_chunk(const scheduler_t *scheduler, const sequence_t *seq, int32_t budget);
/* After all groups were asked: whether some that sit out may go after all, since a client has time
 * left and none whose turn is next: then they are asked again. */
bool plan_next_round(scheduler_t *scheduler);
/* After the decodes: chooses pace.first. */
void plan_choose_first(scheduler_t *scheduler);
/* plan_chunk of a prompt, within the time that the step and the client have left, or (part > 1)
 * within one of so many parts of it. A chunk that is cut ends at a block's length; the first of a
 * plan has one block at least. A picture that must be whole in a step is there when what was saved
 * for it and what is left are enough together. */
int32_t plan_prompt_chunk(const scheduler_t *scheduler, const sequence_t *seq, int32_t budget,
                          int32_t part);
/* A prompt whose next tokens are a picture that must be whole in a step, which takes longer than
 * what the step and the client have left, keeps that for later steps; in a plan a block's time at
 * least, once. */
void plan_save(scheduler_t *scheduler, sequence_t *seq, int32_t part);
/* The chunk is in the plan. */
void plan_note_chunk(scheduler_t *scheduler, const group_t *group);
/* Sets time aside for the chunk of a prompt, or (times -1) gives it free again. */
void plan_set_aside(scheduler_t *scheduler, const sequence_t *seq, int32_t num_tokens, int times);
/* How long a prompt takes which takes so long alone, if it comes next: beside the decodes of the
 * last plan, in whole steps, of which the first may be as long as the last one was. */
double plan_prompt_ns(const scheduler_t *scheduler, double alone_ns);
/* Whether a prompt may get a chunk: the step has time left, or no prompt has one yet. */
bool plan_has_time(const scheduler_t *scheduler);
/* Whether the waiting group may be admitted: see pace_options_t.bounds_admission. After a count. */
bool plan_may_begin(scheduler_t *scheduler, const group_t *group);
/* Time alone keeps the waiting group from beginning. Whether it begins all the same: its client is
 * within its share, beside others, and that was so for some plans. After a count. */
bool plan_has_waited(scheduler_t *scheduler, const group_t *group);
/* The same where the step has no time left, as its decodes leave less than two blocks take. */
bool plan_has_waited_for_step(scheduler_t *scheduler, const group_t *group);
/* The group is admitted. */
void plan_end_wait(scheduler_t *scheduler, const group_t *group);
/* The group is in `running` and counts for the next ones, or (times -1) has left it. */
void plan_count_seat(scheduler_t *scheduler, const group_t *group, int times);
/* Whether the client of the group has time left. */
bool plan_client_has_time(const scheduler_t *scheduler, const group_t *group);

/* ---- preempt.c ---- */

/* Removes the entries of a group from the plan. */
void plan_remove(scheduler_t *scheduler, const group_t *group);
/* Moves a group from running to waiting, as if it had not been admitted. */
void plan_send_back(scheduler_t *scheduler, group_t *group);
/* Moves a group from running to waiting or, if it may, to swapped. */
void plan_preempt(scheduler_t *scheduler, group_t *victim, bool may_swap);
/* Preempts groups until `need` blocks are free. Returns false if the requester itself was
 * preempted: then the caller stops planning. Keeps `next` of the caller's walk valid. */
bool plan_make_room(scheduler_t *scheduler, group_t *requester, int32_t need, group_t **next);

/* ---- decode.c ---- */

/* Plans the next n tokens of a sequence, whose blocks are taken. */
void plan_add(scheduler_t *scheduler, sequence_t *seq, int32_t n);
/* Plans the next tokens of every sequence of the group, or of none if the budget is too small.
 * Preempts if blocks are short; *next, a group of `running`, moves on if it is preempted. Returns
 * false if the group itself was preempted. */
bool plan_decode(scheduler_t *scheduler, group_t *group, group_t **next);

/* ---- yield.c ---- */

/* What a group lacks. */
typedef struct lack {
  int32_t num_seqs, num_blocks;
} lack_t;
/* Preempts groups of other tenants for the group, which is the first of its tenant, so that it
 * lacks nothing; but only if its tenant has no more than its share with it, and those above theirs.
 * Groups by best effort have no share beside it, and go first.
 * Returns false if that does not suffice. After a count. Groups that cannot leave yet, because a
 * step in flight decides how they go on, pause then if it would suffice with them. */
bool plan_make_way(scheduler_t *scheduler, group_t *group, lack_t lack);
/* Whether the group is not planned, so that it can leave in the next plans. */
bool plan_pauses(const scheduler_t *scheduler, const group_t *group);
/* Whether groups pause now. */
bool plan_has_pause(const scheduler_t *scheduler);
/* Ends the pause of all groups, if nothing is in flight. Returns whether there was one. */
bool plan_ends_pause(scheduler_t *scheduler);

/* ---- admit.c ---- */

/* Admits waiting groups in their order. Later groups may overtake one that does not fit yet, at
 * most `max_skips` times; after that they wait for it. With `ahead`, a prefill, a group is admitted
 * only if it is shorter than `ahead` or was overtaken `max_skips` times. */
void plan_admit(scheduler_t *scheduler, uint64_t now_ns, const group_t *ahead);
/* Whether the group did not fit when it was looked at, and cannot fit now. */
bool plan_is_unfit(const scheduler_t *scheduler, const group_t *group);

#endif
