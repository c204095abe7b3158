/* pooling.c: hidden states -> the vector of a prompt.
 *
 * Engine thread; keeps no state of its own: a vector grows in the memory of its request, and
 * num_pooled says how far. The rows of a prompt are added one by one in the order of their
 * positions, in double precision, whichever steps computed them. So a vector does not depend on
 * chunks, on the batch or on preemptions. Where each token has a vector of its own, its row goes
 * through the layers behind the pooling at once, and only what they make is kept.
 * Next: engine/commit.c.
 */
#include "engine/sample/pooling.h"

#include "engine/internal.h"

#include "engine/base/util.h"

#include <math.h>
#include <string.h>

void pooling_launch(engine_t *engine, step_t *step) {
  activity_enter(&engine->activity, ENGINE_LAUNCHES);
  if (step->batch->num_selected > 0)
    model_hidden(engine->model, step->hidden, step->batch->num_selected);
  engine_lap(engine, &engine->stats.device_ns);
}

/* Adds a row of the token at `position` to what is pooled. */
static void add_row(pooling_t pooling, const float *row, int32_t position, int32_t size,
                    double *pooled) {
  double weight = pooling == POOLING_WEIGHTED ? position + 1 : 1;
  for (int32_t c = 0; c < size; c++) {
    if (pooling != POOLING_MAX)
      pooled[c] += weight * (double)row[c];
    else if (position == 0 || (double)row[c] > pooled[c])
      pooled[c] = (double)row[c];
  }
}

static bool is_finite(const float *row, int32_t size) {
  float check = 0; /* stays 0 unless an element is not finite */
  for (int32_t c = 0; c < size; c++) check += row[c] * 0.0f;
  return check == 0.0f;
}

/* Of selected row i, which belongs to `entry`: the position of its token. */
static int32_t position_of(const step_t *step, const plan_entry_t *entry, int32_t i) {
  const batch_t *batch = step->batch;
  const int32_t begin = batch->query_start_loc[batch->selected_row[i]];
  return entry->num_computed + batch->selected_token_indices[i] - begin;
}

/* Each row is kept by itself. step->vectors has room for as many as there may be sequences. */
static int keep_rows(const engine_t *engine, const step_t *step, const plan_entry_t *entry,
                     int32_t first, int32_t last) {
  sequence_t *seq = entry->sequence;
  const int32_t most = engine->options.max_num_seqs, out = engine->embedding.size;
  const size_t in = (size_t)engine->embedding.pooled_size;
  double *kept = seq->group->request->pooled;
  for (int32_t count; first < last; first += count) {
    count = MIN(last - first, most);
    memcpy(step->vectors, &step->hidden[(size_t)first * in], (size_t)count * in * sizeof(float));
    model_run_post_layers(engine->model, step->vectors, count);
    for (int32_t i = 0; i < count; i++) {
      const float *row = &step->vectors[(size_t)i * (size_t)out];
      const int32_t position = position_of(step, entry, first + i);
      if (!is_finite(row, out)) return ERR_INTERNAL;
      for (int32_t c = 0; c < out; c++) kept[(size_t)position * (size_t)out + (size_t)c] = row[c];
      seq->num_pooled = position + 1;
    }
  }
  return 0;
}

int pooling_commit(const engine_t *engine, const step_t *step, const plan_entry_t *entry,
                   int32_t first, int32_t last) {
  sequence_t *seq = entry->sequence;
  const request_t *request = seq->group->request;
  int32_t size = engine->embedding.pooled_size;
  if (request->pooling == POOLING_EACH) return keep_rows(engine, step, entry, first, last);
  for (int32_t i = first; i < last; i++) {
    const float *row = &step->hidden[(size_t)i * (size_t)size];
    int32_t position = position_of(step, entry, i);
    if (!is_finite(row, size)) return ERR_INTERNAL;
    add_row(request->pooling, row, position, size, request->pooled);
    seq->num_pooled = position + 1;
  }
  return 0;
}

void pooling_finish(const engine_t *engine, const sequence_t *seq) {
  const request_t *request = seq->group->request;
  double n = seq->num_prompt_tokens, divisor = 1;
  if (request->pooling == POOLING_EACH) return;
  if (request->pooling == POOLING_MEAN) divisor = n;
  if (request->pooling == POOLING_WEIGHTED) divisor = n * (n + 1) / 2;
  if (request->pooling == POOLING_SQRT) divisor = sqrt(n);
  for (int32_t c = 0; c < engine->embedding.pooled_size; c++) request->pooled[c] /= divisor;
}

void pooling_run_post_layers(engine_t *engine, const step_t *step, int32_t count) {
  struct sequence *const *done = step->pooled;
  const size_t in = (size_t)engine->embedding.pooled_size, out = (size_t)engine->embedding.size;
  if (!model_has_post_layers(engine->model) || count == 0) return;
  if (engine->embedding.pooling == POOLING_EACH) return; /* their rows have been through them */
  for (int32_t i = 0; i < count; i++) {
    const double *pooled = done[i]->group->request->pooled;
    for (size_t c = 0; c < in; c++) step->vectors[(size_t)i * in + c] = (float)pooled[c];
  }
  model_run_post_layers(engine->model, step->vectors, count);
  for (int32_t i = 0; i < count; i++) {
    double *pooled = done[i]->group->request->pooled;
    for (size_t c = 0; c < out; c++) pooled[c] = (double)step->vectors[(size_t)i * out + c];
  }
}
