/* step.c: in-flight steps: the launch (stages 4 to 7 of 9) and the completion of a step.
 *
 * Engine thread; allocates in step_new only. A back end with pipeline_depth 2 gets step N + 1
 * while it runs step N, so it need not wait for the host. Step N + 1 refers to the ids that step N
 * draws by placeholders (batch.h). If a sequence stops in step N, its row in step N + 1 is useless
 * and commit.c drops it. KV blocks need no fences, because the device runs its steps in order. If
 * the device runs one step at a time (depth 1), a step is committed before the next is launched.
 */
#include "engine/internal.h"

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/ranks/follow.h"
#include "engine/ranks/turns.h"
#include "engine/sample/scores.h"
#include "engine/schedule/cross_blocks.h"
#include "engine/schedule/floor/floor.h"
#include "engine/schedule/image_rows.h"

#include <stdlib.h>
#include <string.h>

int step_new(const engine_t *engine, step_t *step) {
  const engine_options_t *options = &engine->options;
  size_t seqs = (size_t)options->max_num_seqs,
         rows = (size_t)options->max_num_batched_tokens + seqs;
  const int32_t num_groups = 1 + engine->pool->num_sides;
  step->plan.entries = calloc(seqs, sizeof *step->plan.entries);
  step->plan.copies = calloc(seqs * (size_t)num_groups, sizeof *step->plan.copies);
  step->plan.state_copies = calloc(seqs, sizeof *step->plan.state_copies);
  const bool has_states = engine->scheduler->options.has_states;
  if (has_states) step->plan.states = calloc(seqs, sizeof *step->plan.states);
  step->sample_rows = calloc(rows, sizeof *step->sample_rows);
  step->sample_results = calloc(rows, sizeof *step->sample_results);
  step->tops = calloc(rows * SAMPLE_TOP_MAX, sizeof *step->tops);
  step->suppressed_ids = calloc(seqs * SUPPRESSED_MAX, sizeof *step->suppressed_ids);
  const embedding_info_t *info = &engine->embedding;
  if (engine->embeds) {
    step->hidden =
        calloc((size_t)options->max_num_batched_tokens * (size_t)info->pooled_size, sizeof(float));
    step->vectors = calloc(seqs * EMBEDDING_ROOM(info), sizeof(float));
    step->pooled = calloc(seqs, sizeof *step->pooled);
    if (step->hidden == NULL || step->vectors == NULL || step->pooled == NULL) return -1;
  }
  if (step->plan.entries == NULL || step->plan.copies == NULL || step->plan.state_copies == NULL ||
      step->sample_rows == NULL || step->sample_results == NULL || step->tops == NULL ||
      step->suppressed_ids == NULL || (has_states && step->plan.states == NULL)) {
    return -1;
  }
  return batch_new(options->max_num_batched_tokens, options->max_num_seqs, engine->pool->block_size,
                   engine->scheduler->table_stride, num_groups, &step->batch);
}

void step_free(step_t *step) {
  batch_free(step->batch);
  free(step->plan.entries);
  free(step->plan.states);
  free(step->plan.copies);
  free(step->plan.state_copies);
  free(step->sample_rows);
  free(step->sample_results);
  free(step->tops);
  free(step->suppressed_ids);
  free(step->hidden);
  free(step->vectors);
  free(step->pooled);
}

/* Of the step launched last, the entries whose sequences are in no plan before its commit. */
static int32_t count_awaited(const step_t *last) {
  int32_t count = 0;
  for (int32_t i = 0; i < last->plan.num_entries; i++) {
    const plan_entry_t *entry = &last->plan.entries[i];
    count += plan_entry_live(entry) && scheduler_awaits(entry->sequence->group);
  }
  return count;
}

/* Whether a step may be launched now. While another one is in flight, the next one leaves out the
 * sequences whose tokens are awaited (scheduler_awaits), which costs them the time of a step; if
 * they are too many for that, it waits for the commit instead. */
static bool may_launch(engine_t *engine) {
  if (engine->num_steps == 0) return true;
  if (engine->num_steps == engine->steps_most) return false;
  if (engine_has_stages(engine)) return true; /* all in flight are awaited; others go */
  const step_t *last =
      &engine->steps[(engine->next_step + engine->steps_most - 1) % engine->steps_most];
  int32_t awaited = count_awaited(last);
  if (awaited * engine->awaited_one_in > last->plan.num_entries) return false;
  engine->stats.awaited_rows += (uint64_t)awaited;
  return true;
}

/* Updates the time that a copy of one block takes, from the rate that the back end has measured. */
static void note_swap_rate(engine_t *engine) {
  swap_t *swap = &engine->scheduler->swap;
  if (engine->info.num_host_blocks == 0) return;
  const double ns = engine->host_block_bytes * 1e9 / engine->ops->swap->rate(engine->device);
  swap->block_ns = lane_time(engine->lane, JOURNAL_SWAP_TIME, ns);
}

typedef void swap_function_t(device_t *device, const block_swap_t *swaps, int32_t count);

static void launch(engine_t *engine, swap_function_t *copy, const block_swap_t *swaps,
                   int32_t count) {
  if (count == 0) return;
  activity_enter(&engine->activity, ENGINE_LAUNCHES);
  copy(engine->device, swaps, count);
  device_t *drafter = drafter_device(engine);
  if (drafter != NULL) copy(drafter, swaps, count);
}

/* First what leaves, as it is before the step; then what enters, also into blocks that have left.
 * A block that entered and was given to a swapped group in the same plan is the group's. */
static void launch_swaps(engine_t *engine) {
  plan_t *plan = &engine->scheduler->plan;
  const swap_ops_t *ops = engine->ops->swap;
  floor_t *floor = engine->pool->floor;
  if (ops == NULL) return;
  CHECK(plan->num_swap_out == 0 || plan->num_swap_in == 0);
  launch(engine, ops->out, plan->swaps, plan->num_swap_out);
  plan->copies_floor = floor != NULL && floor->num_outs + floor->num_ins > 0;
  if (plan->copies_floor) {
    launch(engine, ops->out, floor->outs, floor->num_outs);
    launch(engine, ops->in, floor->ins, floor->num_ins);
    floor_launched(floor);
  }
  launch(engine, ops->in, plan->swaps, plan->num_swap_in);
}

void engine_flush_floor(engine_t *engine) {
  const floor_t *floor = engine->pool != NULL ? engine->pool->floor : NULL;
  if (floor == NULL || !floor->options.persists) return;
  do {
    floor_collect(engine->pool, FLOOR_BLOCKS_IDLE);
    engine->scheduler->plan.num_swap_out = engine->scheduler->plan.num_swap_in = 0;
    launch_swaps(engine);
  } while (floor->num_leaving > 0);
}

step_t *engine_plan(engine_t *engine, uint64_t now_ns) {
  if (!may_launch(engine)) return NULL;
  engine->lap_ns = now_ns;
  activity_enter(&engine->activity, ENGINE_PLANS);
  note_swap_rate(engine);
  engine->constrain.num_draft_masks = 0;
  now_ns = lane_begin_plan(engine->lane, engine, now_ns);
  int32_t num_entries = scheduler_plan(engine->scheduler, now_ns);
  lane_plan(engine->lane, engine->scheduler);
  launch_swaps(engine);
  if (num_entries == 0) return NULL;
  step_t *step = &engine->steps[engine->next_step];
  engine->stats.overlapped_steps += engine->num_steps > 0;
  engine->next_step = (engine->next_step + 1) % engine->steps_most;
  engine->num_steps++;
  step->device_before_ns = engine->stats.device_ns;
  scheduler_take_plan(engine->scheduler, &step->plan);
  engine_lap(engine, &engine->stats.overhead_ns);
  return step;
}

static bool reports_many(const engine_t *engine, const plan_t *plan) {
  if (engine->num_reporting == 0) return false;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    if (plan->entries[i].sequence->group->reports_many) return true;
  }
  return false;
}

void engine_prepare(engine_t *engine, step_t *step) {
  activity_enter(&engine->activity, ENGINE_LAUNCHES); /* of the draft model, if there is one */
  drafter_propose(engine, step);
  predictor_propose(engine, step);
  constrain_cut_drafts(engine, &step->plan);
  engine_lap(engine, &engine->stats.device_ns);
  batch_build(step->batch, &step->plan);
  step->batch->reports_many = reports_many(engine, &step->plan);
  engine_lap(engine, &engine->stats.overhead_ns);
}

/* Whether a step could be left: all in it run by best effort, and nothing but K/V comes of it
 * before it is committed. Who does not run by it stands first in a plan. */
static bool is_leavable(const engine_t *engine, const step_t *step) {
  const plan_t *plan = &step->plan;
  return engine->scheduler->options.leaves_steps && plan->entries[0].sequence->group->best_effort &&
         plan->num_drafts == 0 && step->batch->num_embedded == 0;
}

/* Whether a request comes for which the step is left; where a journal is played, what that says. */
static bool others_come(void *context) {
  const engine_t *engine = context;
  const int left = lane_left(engine->lane);
  return left < 0 ? mailbox_has_others(engine->mailbox) : left > 0;
}

/* Of two such steps one is not left, so that batches go on however often others come. */
static void forward(engine_t *engine, step_t *step) {
  const bool may = is_leavable(engine, step);
  bool *has_left = &engine->scheduler->best_effort.has_left;
  bool (*ends)(void *) = may && !*has_left ? others_come : NULL;
  step->is_left = !model_forward_until(engine->model, step->batch, ends, engine);
  if (may) *has_left = step->is_left;
}

void engine_forward(engine_t *engine, step_t *step) {
  step->launched_ns = engine->lap_ns;
  step->is_left = false;
  activity_enter(&engine->activity, ENGINE_LAUNCHES);
  if (engine_has_stages(engine)) {
    engine_launch_turn(engine, step);
    return;
  }
  bool at_once = engine->steps_most == 1; /* the device computes in the call */
  if (at_once) constrain_begin(engine, step);
  engine_send_step(engine, step->batch);
  engine->ops->begin(engine->device, step->batch);
  forward(engine, step);
  if (!at_once) constrain_begin(engine, step);
  engine_lap(engine, &engine->stats.device_ns);
}

/* Gives back what the entries of a step took that is not committed. NULL: nothing. */
static void settle(engine_t *engine, const step_t *step) {
  for (int32_t i = 0; step != NULL && i < step->plan.num_entries; i++)
    scheduler_settle(engine->scheduler, &step->plan.entries[i]);
}

/* After a step that was left: its sequences stand again where they stood before it. Copies of
 * blocks that were launched with it are done, and stay. */
static void take_back(engine_t *engine, step_t *step) {
  for (int32_t i = 0; i < step->plan.num_entries; i++) {
    plan_entry_t *entry = &step->plan.entries[i];
    if (plan_entry_live(entry)) {
      scheduler_complete(entry);
      scheduler_reject(entry, entry->num_tokens);
    }
  }
  settle(engine, step);
  engine->stats.steps_left++;
}

/* What the device took for a step that has ended. If it runs one step at a time, that is the time
 * of its calls; else it began when the step was launched, or when the step before ended. */
static void note_time(engine_t *engine, const step_t *step) {
  const plan_t *plan = &step->plan;
  uint64_t now_ns = clock_now_ns(), before_ns = engine->completed_ns;
  uint64_t begun_ns = step->launched_ns > before_ns ? step->launched_ns : before_ns;
  uint64_t calls_ns = engine->stats.device_ns - step->device_before_ns + now_ns - engine->lap_ns;
  engine->completed_ns = now_ns;
  uint64_t device_ns = engine->steps_most == 1 ? calls_ns : now_ns - begun_ns;
  if (engine_has_stages(engine)) device_ns = step->turns_ns;
  if (step->is_left) { /* it says nothing of what its plan takes */
    (void)lane_time(engine->lane, JOURNAL_LEFT, (double)device_ns);
    return;
  }
  scheduler_note_time(engine->scheduler, plan,
                      lane_time(engine->lane, JOURNAL_TIME, (double)device_ns));
}

step_t *engine_complete(engine_t *engine, inferd_error_t *error) {
  step_t *step = engine_oldest_step(engine);
  engine_finish_turns(engine, step);
  engine->num_steps--;
  if (step->batch->image_rows != NULL) image_rows_land(step->batch->image_rows);
  if (step->batch->cross_blocks != NULL) cross_blocks_land(step->batch->cross_blocks);
  int code = engine->ops->end(engine->device, error);
  if (code == 0) note_time(engine, step);
  if (code == 0) drafter_mirror_late(engine, step);
  scheduler_unpin(engine->scheduler, &step->plan);
  if (code != 0) settle(engine, step);
  if (code == 0 && step->is_left) take_back(engine, step);
  return code == 0 ? step : NULL;
}

void engine_complete_all(engine_t *engine) {
  inferd_error_t ignored;
  while (engine->num_steps > 0) settle(engine, engine_complete(engine, &ignored));
}
