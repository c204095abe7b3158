/* pooling.h: stage 7 of 9 of an engine that embeds: selected hidden rows -> one vector a prompt.
 *
 * Engine thread; allocates nothing.
 */
#ifndef INFERD_ENGINE_SAMPLE_POOLING_H
#define INFERD_ENGINE_SAMPLE_POOLING_H

#include "engine/step.h"

struct engine;

/* Launches the copy of the step's selected rows to step->hidden. */
void pooling_launch(struct engine *engine, step_t *step);
/* Adds the rows [first, last) of a completed step, which belong to `entry`, to the vector of its
 * request; with POOLING_EACH each of them becomes a vector. Returns 0, or ERR_INTERNAL if a row
 * holds a NaN or an infinity. */
int pooling_commit(const struct engine *engine, const step_t *step, const plan_entry_t *entry,
                   int32_t first, int32_t last);
/* After the last token of the prompt: the sum becomes what is pooled. */
void pooling_finish(const struct engine *engine, const sequence_t *seq);
/* Puts what was pooled of the first `count` sequences of step->pooled through the layers behind the
 * pooling, if there are any; all of a step at once, so that their weights are read once. */
void pooling_run_post_layers(struct engine *engine, const step_t *step, int32_t count);

#endif
