/* pooling.c: hidden states -> the vector of a prompt.
 *
 * Engine thread; keeps no state of its own: a vector grows in the memory of its request, and
 * num_pooled says how far. The rows of a prompt are added one by one in the order of their
 * positions, in double precision, whichever steps computed them. So a vector does not depend on
 * chunks, on the batch or on preemptions. Next: engine/commit.c.
 */
#include "engine/sample/pooling.h"

#include "engine/internal.h"

#include <math.h>

void pooling_launch(engine_t *engine, step_t *step) {
  activity_enter(&engine->activity, ENGINE_LAUNCHES);
  if (step->batch->num_selected > 0)
    model_hidden(engine->model, step->hidden, step->batch->num_selected);
  engine_lap(engine, &engine->stats.device_ns);
}

int pooling_commit(const engine_t *engine, const step_t *step, const plan_entry_t *entry,
                   int32_t first, int32_t last) {
  const batch_t *batch = step->batch;
  sequence_t *seq = entry->sequence;
  double *pooled = seq->group->request->pooled;
  int32_t size = engine->embedding.size;
  for (int32_t i = first; i < last; i++) {
    const float *row = &step->hidden[(size_t)i * (size_t)size];
    float check = 0; /* stays 0 unless an element is not finite */
    for (int32_t c = 0; c < size; c++) {
      pooled[c] += (double)row[c];
      check += row[c] * 0.0f;
    }
    if (!(check == 0.0f)) return ERR_INTERNAL;
    int32_t row_begin = batch->query_start_loc[batch->selected_row[i]];
    seq->num_pooled = entry->num_computed + batch->selected_token_indices[i] - row_begin + 1;
  }
  return 0;
}

void pooling_finish(const engine_t *engine, const sequence_t *seq) {
  const request_t *request = seq->group->request;
  if (request->pooling != POOLING_MEAN) return;
  for (int32_t c = 0; c < engine->embedding.size; c++) request->pooled[c] /= seq->num_prompt_tokens;
}
