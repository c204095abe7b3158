/* stages.h: how a step goes through the stages of a pipeline. */
#ifndef INFERD_ENGINE_MODEL_SHARD_STAGES_H
#define INFERD_ENGINE_MODEL_SHARD_STAGES_H

#include "engine/model/model.h"

/* Runs the layers of this rank for all parts (parts.h) of a batch, of which ops->begin was called.
 * Time goes in ticks: stage s computes part t - s in tick t, then each stage gives its rows to the
 * next one, the last pair first: so a stage has sent its rows before it gets others. The last stage
 * has the rows of all parts in model->x then, and the batch is the whole one again. `embed` makes
 * the rows of the first stage. */
void stages_run(model_t *model, const batch_t *batch, void (*embed)(model_t *model, int32_t rows));

#endif
