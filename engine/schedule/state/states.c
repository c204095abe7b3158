/* states.c: slots of states, snapshots at the ends of blocks, states behind draft tokens; the
 * contract is in states.h.
 *
 * Engine thread only; allocates nothing.
 */
#include "engine/schedule/state/states.h"

#include "engine/base/check.h"
#include "engine/schedule/state/snapshots.h"

#include <string.h>

static int32_t pop_slot(scheduler_t *scheduler) {
  CHECK_GT(scheduler->num_free_states, 0); /* scheduler_new has made enough for all */
  return scheduler->free_states[--scheduler->num_free_states];
}

static void push_slot(scheduler_t *scheduler, int32_t slot) {
  scheduler->free_states[scheduler->num_free_states++] = slot;
}

void states_take(scheduler_t *scheduler, sequence_t *seq) {
  if (!scheduler->options.has_states) return;
  CHECK_EQ(seq->state.slot, 0);
  seq->state = (sequence_state_t){.slot = pop_slot(scheduler)};
}

static void plan_copy(scheduler_t *scheduler, int32_t src, int32_t dst) {
  plan_t *plan = &scheduler->plan;
  CHECK_LT(plan->num_state_copies, scheduler->options.max_num_seqs); /* one for each sequence */
  plan->state_copies[plan->num_state_copies++] = (state_copy_t){.src = src, .dst = dst};
}

/* The sequence leaves before its copy was launched: there is one for each slot at most. The others
 * keep their order. */
static void undo_copy(plan_t *plan, int32_t dst) {
  int32_t kept = 0;
  for (int32_t i = 0; i < plan->num_state_copies; i++)
    if (plan->state_copies[i].dst != dst) plan->state_copies[kept++] = plan->state_copies[i];
  plan->num_state_copies = kept;
}

void states_give(scheduler_t *scheduler, sequence_t *seq) {
  if (seq->state.slot == 0) return;
  undo_copy(&scheduler->plan, seq->state.slot);
  push_slot(scheduler, seq->state.slot);
  seq->state = (sequence_state_t){0};
}

void states_fork(scheduler_t *scheduler, const sequence_t *parent, sequence_t *child) {
  if (!scheduler->options.has_states) return;
  states_take(scheduler, child);
  plan_copy(scheduler, parent->state.slot, child->state.slot);
}

void states_restore(scheduler_t *scheduler, sequence_t *seq, int32_t snapshot, int32_t known) {
  if (!scheduler->options.has_states) return;
  seq->state.branch = known;
  if (snapshot == 0) return;
  snapshots_hit(scheduler->pool->snapshots, snapshot);
  plan_copy(scheduler, snapshot, seq->state.slot);
}

/* ---- stores of a step ---- */

/* A snapshot behind `position` tokens of the sequence, if the entry passes there. */
static void plan_snapshot(scheduler_t *scheduler, const plan_entry_t *entry, int32_t position) {
  entry_states_t *states = entry->states;
  int32_t behind = position - entry->num_computed;
  if (behind <= 0 || behind > entry->num_tokens) return;
  int32_t slot = snapshots_take(scheduler->pool->snapshots);
  if (slot > 0)
    states->snapshots[states->num_snapshots++] = (snapshot_place_t){.behind = behind, .slot = slot};
}

static void plan_snapshots(scheduler_t *scheduler, const plan_entry_t *entry) {
  const sequence_t *seq = entry->sequence;
  int32_t block_size = scheduler->pool->block_size;
  if (entry->num_computed >= seq->num_prefill_tokens) {
    int32_t every = scheduler->options.snapshot_blocks * block_size;
    int32_t end = entry->num_computed + entry->num_tokens;
    plan_snapshot(scheduler, entry, end / every * every);
    return;
  }
  int32_t last = (seq->num_prefill_tokens - 1) / block_size * block_size;
  if (seq->state.branch < last) plan_snapshot(scheduler, entry, seq->state.branch);
  plan_snapshot(scheduler, entry, last);
}

void states_plan(scheduler_t *scheduler) {
  plan_t *plan = &scheduler->plan;
  for (int32_t i = 0; i < plan->num_entries && scheduler->options.has_states; i++) {
    plan_entry_t *entry = &plan->entries[i];
    entry->states = &plan->states[i];
    entry->states->num_snapshots = 0;
    for (int32_t j = 0; j < entry->num_drafts; j++) entry->states->drafts[j] = pop_slot(scheduler);
    if (scheduler->pool->snapshots != NULL) plan_snapshots(scheduler, entry);
  }
}

/* ---- at commit ---- */

static void attach(scheduler_t *scheduler, sequence_t *seq, int32_t slot, int32_t block,
                   bool decodes) {
  snapshots_t *snapshots = scheduler->pool->snapshots;
  sequence_state_t *state = &seq->state;
  bool own = snapshots_attach(snapshots, slot, block) == slot;
  scheduler->num_claims++; /* a waiting group may find it */
  if (!decodes) return;
  if (state->latest > 0) snapshots_outdate(snapshots, state->latest, state->latest_id);
  state->latest = own ? slot : 0;
  state->latest_id = scheduler->pool->blocks[block].identity.unique_id;
}

void states_publish(scheduler_t *scheduler, const plan_entry_t *entry) {
  sequence_t *seq = entry->sequence;
  const entry_states_t *states = entry->states;
  for (int32_t i = 0; states != NULL && i < states->num_snapshots; i++) {
    const snapshot_place_t *place = &states->snapshots[i];
    int32_t index = (entry->num_computed + place->behind) / scheduler->pool->block_size - 1;
    if (seq->num_published <= index) continue; /* rejected, or its block has a twin in progress */
    attach(scheduler, seq, place->slot, seq->blocks[index],
           entry->num_computed >= seq->num_prefill_tokens);
  }
}

void states_cut(scheduler_t *scheduler, const plan_entry_t *entry, int32_t num_cut) {
  entry_states_t *states = entry->states;
  if (states == NULL) return;
  for (int32_t i = 0; i < num_cut; i++) push_slot(scheduler, states->drafts[entry->num_drafts + i]);
  while (states->num_snapshots > 0 &&
         states->snapshots[states->num_snapshots - 1].behind > entry->num_tokens)
    snapshots_give(scheduler->pool->snapshots, states->snapshots[--states->num_snapshots].slot);
}

void states_pick(scheduler_t *scheduler, plan_entry_t *entry, int32_t num_tokens) {
  sequence_t *seq = entry->sequence;
  int32_t last = num_tokens - 1, slot = seq->state.slot;
  if (!scheduler->options.has_states || last >= entry->num_drafts) return;
  seq->state.slot = entry->states->drafts[last];
  entry->states->drafts[last] = slot;
}

void scheduler_settle(scheduler_t *scheduler, plan_entry_t *entry) {
  scheduler->drafts.num_in_flight -= entry->num_drafts;
  const entry_states_t *states = entry->states;
  if (states == NULL) return;
  for (int32_t i = 0; i < entry->num_drafts; i++) push_slot(scheduler, states->drafts[i]);
  for (int32_t i = 0; i < states->num_snapshots; i++)
    snapshots_give(scheduler->pool->snapshots, states->snapshots[i].slot);
}
