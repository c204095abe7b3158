/* stages.c: the layers of one rank, for the parts of a step. Engine thread of each rank; see
 * stages.h.
 */
#include "engine/model/shard/stages.h"

#include "engine/base/util.h"
#include "engine/model/internal.h"
#include "engine/model/shard/parts.h"

/* Where this stage has the hidden rows of a part: the last one keeps those of all. */
static act_t *rows_of_part(const model_t *model, int32_t first) {
  const blueprint_t *bp = &model->blueprint;
  return stage_is_last(bp) ? model->ops->ranks->rows_from(model->x, bp->hidden_size, first)
                           : model->x;
}

void stages_run(model_t *model, const batch_t *batch, void (*embed)(model_t *model, int32_t rows)) {
  const blueprint_t *bp = &model->blueprint;
  const int32_t own = bp->shard.stage, stages = bp->shard.num_stages, all = batch->num_tokens;
  const int32_t count = parts_count(all, stages);
  for (int32_t tick = 0; tick < count + stages - 1; tick++) {
    const int32_t now = tick - own;
    if (now >= 0 && now < count) {
      act_t *hidden = rows_of_part(model, parts_begin(all, count, now));
      parts_take(model->parts, batch, count, now);
      const int32_t rows = model->parts->batch.num_tokens;
      model->ops->begin(model->device, &model->parts->batch);
      if (own == 0) embed(model, rows);
      for (int32_t i = stage_begin(bp, own); i < stage_begin(bp, own + 1); i++)
        model_run_layer(model, &model->layers[i], hidden, model->y, rows);
    }
    for (int32_t from = MIN(tick, stages - 2); from >= 0; from--) {
      const int32_t part = tick - from;
      if (part >= count) break;
      const int32_t first = parts_begin(all, count, part);
      const int32_t rows = parts_begin(all, count, part + 1) - first;
      act_t *hidden = own == from + 1 ? rows_of_part(model, first) : model->x;
      model->ops->ranks->pass(model->device, hidden, bp->hidden_size, rows, from);
    }
  }
  parts_take(model->parts, batch, 1, 0); /* what follows reads the whole batch */
  model->parts->batch.num_selected = batch->num_selected;
  model->ops->begin(model->device, &model->parts->batch);
}
