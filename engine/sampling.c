/* sampling.c: stage 7 of 9, selected hidden rows -> token ids and logprobs.
 *
 * Engine thread. Describes every selected row to the back end and launches logits and sampling in
 * slices of at most logits_rows_max rows, so that a long prompt with logprobs never needs more
 * memory than was planned. Allocates nothing. The arithmetic of one row: engine/sampler.c. Next:
 * commit.c.
 */
#include "engine/internal.h"

/* While output < min_tokens no EOS and no stop id may be drawn. */
static void describe_suppressed(engine_t *e, sample_row_t *row, const sequence_t *q, int32_t r) {
  const sampling_params_t *params = row->params;
  if (q->num_output_tokens >= params->min_tokens) return;
  int32_t *ids = &e->suppressed_ids[(size_t)r * SUPPRESSED_MAX];
  int32_t count = 0;
  for (int32_t i = 0; i < e->blueprint.num_eos; i++) ids[count++] = e->blueprint.eos_ids[i];
  for (int32_t i = 0; i < params->num_stop_token_ids && count < SUPPRESSED_MAX; i++) {
    ids[count++] = params->stop_token_ids[i];
  }
  row->suppressed_ids = ids;
  row->num_suppressed = count;
}

static void describe_row(engine_t *e, int32_t index) {
  const batch_t *batch = e->batch;
  int32_t r = batch->selected_row[index], target = batch->selected_target[index];
  const sequence_t *q = e->scheduler->plan.entries[r].sequence;
  const sampling_params_t *params = &q->group->request->params;
  sample_row_t *row = &e->sample_rows[index];
  *row = (sample_row_t){
      .params = params,
      .score_id = target,
      .num_top = target >= 0 ? params->num_prompt_logprobs : params->num_logprobs,
      .rng_key = q->rng_key,
      .rng_position = (uint64_t)q->num_output_tokens,
      .prompt_ids = q->tokens,
      .num_prompt = q->num_prompt_tokens,
      .output_ids = q->tokens + q->num_prompt_tokens,
      .num_output = q->num_output_tokens,
      .result = &e->sample_results[index],
  };
  if (target < 0) describe_suppressed(e, row, q, r);
}

void engine_sample(engine_t *e) {
  int32_t total = e->batch->num_selected;
  for (int32_t i = 0; i < total; i++) describe_row(e, i);
  for (int32_t first = 0; first < total; first += e->logits_rows_max) {
    int32_t rows = total - first < e->logits_rows_max ? total - first : e->logits_rows_max;
    model_logits(e->model, first, rows);
    e->ops->sample(e->device, &e->sample_rows[first], rows);
  }
}
