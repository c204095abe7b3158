/* stages.c: batches move from stage to stage, and their rows from rank to rank. Engine thread of
 * each rank; see stages.h.
 */
#include "engine/model/forward/stages.h"

#include "engine/model/forward/internal.h"

#include <string.h>

const batch_t *stages_begin_turn(model_t *model, const batch_t *batch) {
  const model_part_t *part = &model->blueprint.shard;
  const batch_t **at = model->at_stage, *own;
  memmove(&at[1], at, (size_t)(part->num_stages - 1) * sizeof *at);
  at[0] = batch;
  own = at[part->stage];
  if (own != NULL) {
    model->ops->begin(model->device, own);
    model_forward(model, own);
  }
  return at[part->num_stages - 1];
}

/* The last pair first: so a stage has sent its rows before it gets others. */
void stages_end_turn(model_t *model) {
  const blueprint_t *bp = &model->blueprint;
  for (int32_t from = bp->shard.num_stages - 2; from >= 0; from--) {
    const batch_t *batch = model->at_stage[from];
    if (batch == NULL) continue;
    model->ops->ranks->pass(model->device, model->x, bp->hidden_size, batch->num_tokens, from);
  }
}
