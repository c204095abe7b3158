/* states.h: the slots of states (engine/device/state_ops.h) that sequences hold, the snapshots that
 * the prefix cache has of them, and the way back behind rejected draft tokens.
 *
 * A state is overwritten by every token. So blocks are of use only up to a snapshot, and a step
 * that passes the end of a block which others may want stores the state there in its own slot:
 *   - where the prompt's last full block ends,
 *   - where the prompt leaves what the cache knows: the next one that branches off there has a hit,
 *   - while it decodes, every `snapshot_blocks` blocks; the one before is then outdated.
 * A step with draft tokens stores the state behind each of its tokens but the last. Engine thread
 * only; called by the scheduler and table.c. Nothing here does anything without has_states.
 */
#ifndef INFERD_ENGINE_SCHEDULE_STATE_STATES_H
#define INFERD_ENGINE_SCHEDULE_STATE_STATES_H

#include "engine/schedule/scheduler.h"

/* The slot of a sequence, taken and given back with its blocks. */
void states_take(scheduler_t *scheduler, sequence_t *seq);
void states_give(scheduler_t *scheduler, sequence_t *seq);
/* The child gets a slot; the step that is launched next copies the parent's state first. The parent
 * may end before: a slot keeps its content until that step, which makes the copies in their order
 * and then writes. */
void states_fork(scheduler_t *scheduler, const sequence_t *parent, sequence_t *child);
/* The sequence begins with a copy of a snapshot; 0 = none. The cache has blocks of `known` of its
 * tokens. */
void states_restore(scheduler_t *scheduler, sequence_t *seq, int32_t snapshot, int32_t known);

/* Chooses where the entries of the new plan store states. */
void states_plan(scheduler_t *scheduler);
/* The entry has become `num_cut` draft tokens shorter. */
void states_cut(scheduler_t *scheduler, const plan_entry_t *entry, int32_t num_cut);
/* At commit, when the blocks of the entry are findable: attaches its snapshots to them. */
void states_publish(scheduler_t *scheduler, const plan_entry_t *entry);
/* At commit, before the entry is settled: only its first num_tokens tokens are right. */
void states_pick(scheduler_t *scheduler, plan_entry_t *entry, int32_t num_tokens);

#endif
