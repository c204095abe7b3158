/* stages.h: how steps go through the stages of a pipeline.
 *
 * Time goes in turns, which all ranks make together. In a turn each stage computes its layers for
 * one batch, if there is one; then it gives the rows to the next stage. So each stage may have a
 * step in flight (no more than STAGE_STEPS_MAX are), and runs them in the order of their launch: K
 * and V of an earlier one are there. Engine thread of each rank.
 */
#ifndef INFERD_ENGINE_MODEL_FORWARD_STAGES_H
#define INFERD_ENGINE_MODEL_FORWARD_STAGES_H

#include "engine/model/model.h"

/* Begins a turn: each batch moves on by a stage, `batch` (NULL = none) comes to the first one, and
 * each stage computes what it has. Returns the batch that has been through all stages, of which
 * model_logits may follow on all ranks; NULL = there is none. A batch stays as it is until then. */
const batch_t *stages_begin_turn(model_t *model, const batch_t *batch);
/* Ends it: each stage but the last gives its rows to the next one. */
void stages_end_turn(model_t *model);

#endif
