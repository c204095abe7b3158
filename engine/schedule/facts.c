/* facts.c: what is so of a group or a sequence, whoever else is planned; the contract is in plan.h.
 *
 * Engine thread only; changes nothing. Whatever makes a plan may ask, and nothing here asks it.
 */
#include "engine/base/util.h"
#include "engine/schedule/plan.h"
#include "engine/schedule/table.h"
#include "engine/schedule/window/sides.h"

bool plan_is_behind(const group_t *group) {
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next)
    if (sequence_is_live(seq) && seq->num_computed_tokens < sequence_num_tokens(seq) - 1)
      return true;
  return false;
}

bool scheduler_awaits(const group_t *group) {
  bool draws = false, drafts = false;
  if (group->is_plain && !group->sequence.drafts.waits) return false;
  for (const sequence_t *seq = &group->sequence; seq != NULL && !drafts; seq = seq->next) {
    if (!sequence_is_live(seq) || seq->num_output_placeholders == 0) continue;
    draws = true;
    drafts = seq->drafts.waits;
  }
  return draws && (drafts || group->masks.by_history || group_is_search(group));
}

bool plan_is_in_flight(const group_t *group) {
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (sequence_is_live(seq) && seq->num_in_flight_tokens > 0) return true;
  }
  return false;
}

int32_t plan_tokens_left(const group_t *group) {
  return sequence_num_planned(&group->sequence) - group->sequence.num_computed_tokens;
}

bool plan_is_shorter(const scheduler_t *scheduler, const group_t *later, const group_t *ahead) {
  if (later->forked || plan_tokens_left(later) >= plan_tokens_left(ahead)) return false;
  return !scheduler->options.priority_policy ||
         later->request->priority <= ahead->request->priority;
}

bool plan_is_protected(const scheduler_t *scheduler, const group_t *group) {
  return scheduler->options.max_preemptions > 0 &&
         group->num_preemptions - group->yield.count >= scheduler->options.max_preemptions;
}

int32_t scheduler_tokens_reserved(const scheduler_t *scheduler, const sequence_t *seq) {
  int32_t known = sequence_num_tokens(seq), most = scheduler->options.max_model_len;
  const group_t *group = seq->group;
  bool alone = group->forked || group->width == 1; /* else each beam will reserve its own */
  if (!plan_is_protected(scheduler, group) || !alone) return known;
  int64_t all = (int64_t)seq->num_prompt_tokens + group->request->params.max_tokens;
  return all < most ? (int32_t)all : most;
}

int32_t plan_count_running(const scheduler_t *scheduler) {
  int32_t count = 0;
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next)
    count += group->width;
  return count;
}

int32_t plan_blocks_wanted(const scheduler_t *scheduler, const group_t *group) {
  int64_t wanted = scheduler->running.count > 0 ? scheduler->options.watermark_blocks : 0;
  for (const sequence_t *seq = &group->sequence; seq != NULL; seq = seq->next) {
    if (!sequence_is_live(seq)) continue;
    int32_t reserved = scheduler_tokens_reserved(scheduler, seq);
    wanted += scheduler_blocks_for(scheduler, reserved) +
              sides_most(scheduler, reserved, scheduler->options.window.in_flight);
  }
  return (int32_t)MIN(wanted, INT32_MAX);
}
