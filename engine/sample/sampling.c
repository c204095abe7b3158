/* sampling.c: stage 7 of 9, selected hidden rows -> token ids and logprobs.
 *
 * Engine thread; allocates nothing. Fills a sample_row_t for every selected row, and launches
 * logits and sampling in slices of at most logits_rows_max rows, so that a long prompt with
 * logprobs never needs more memory than was planned. The arithmetic of one row:
 * engine/sample/sampler.c. Next: engine/commit.c.
 */
#include "engine/internal.h"
#include "engine/sample/pooling.h"
#include "engine/sample/scores.h"

/* Suppresses EOS and stop ids while the output has fewer than min_tokens tokens. */
static void describe_suppressed(const engine_t *engine, step_t *step, sample_row_t *row,
                                int32_t index) {
  const sampling_params_t *params = row->params;
  if ((int32_t)row->rng_position >= params->min_tokens) return;
  int32_t *ids = &step->suppressed_ids[(size_t)index * SUPPRESSED_MAX];
  int32_t count = 0;
  for (int32_t i = 0; i < engine->blueprint.num_eos; i++)
    ids[count++] = engine->blueprint.eos_ids[i];
  for (int32_t i = 0; i < params->num_stop_token_ids && count < SUPPRESSED_MAX; i++) {
    ids[count++] = params->stop_token_ids[i];
  }
  row->suppressed_ids = ids;
  row->num_suppressed = count;
}

/* Sets how many alternatives a row reports, and where. Row `index` of the step draws for `seq`. */
static void describe_top(const engine_t *engine, step_t *step, int32_t index, const sequence_t *seq,
                         int32_t scored) {
  const request_t *request = seq->group->request;
  sample_row_t *row = &step->sample_rows[index];
  bool scores = row->score_id >= 0;
  row->num_top = -1;
  row->result->top = &step->tops[(size_t)index * SAMPLE_TOP_MAX];
  if (seq->group->is_terse) return;
  row->num_top = scores ? scores_of_prompt(engine, &request->params)
                        : scores_of_output(engine, &request->params);
  if (!scores_are_many(engine, row->num_top)) return;
  row->result->top = scores ? scores_prompt_row(engine, request, scored)
                            : scores_output_row(engine, seq, (int32_t)row->rng_position);
  if (row->result->top == NULL) row->num_top = 0;
}

/* A row of a request that has ended between the launch and the turn that samples it (turns.h). */
static void describe_dropped(step_t *step, int32_t index) {
  static const sampling_params_t greedy = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
  step->sample_rows[index] = (sample_row_t){
      .params = &greedy, .score_id = -1, .num_top = -1, .result = &step->sample_results[index]};
}

static void describe_row(engine_t *engine, step_t *step, int32_t index) {
  const batch_t *batch = step->batch;
  int32_t r = batch->selected_row[index], target = batch->selected_target[index];
  const plan_entry_t *entry = &step->plan.entries[r];
  if (!plan_entry_live(entry)) {
    describe_dropped(step, index);
    return;
  }
  sequence_t *seq = entry->sequence;
  const sampling_params_t *params = &seq->group->request->params;
  /* An entry with drafts has 1 + num_drafts sampled rows: the first follows the known tokens, each
   * further row follows one more draft token. */
  int32_t last = batch->query_start_loc[r + 1] - 1;
  int32_t drafted = entry->num_drafts - (last - batch->selected_token_indices[index]);
  if (target >= 0) drafted = 0;
  sample_row_t *row = &step->sample_rows[index];
  *row = (sample_row_t){
      .params = params,
      .score_id = target,
      .rng_key = seq->rng_key,
      .rng_position = (uint64_t)(entry->output_position + drafted),
      .prompt_ids = seq->group->request->prompt_ids,
      .num_prompt = seq->group->request->rows != NULL ? 0 : seq->num_prompt_tokens,
      .output_ids = seq->tokens + seq->num_prompt_tokens,
      .num_output = seq->num_output_tokens + drafted,
      .result = &step->sample_results[index],
  };
  describe_top(engine, step, index, seq,
               batch->positions[batch->selected_token_indices[index]] + 1);
  if (target >= 0) return;
  describe_suppressed(engine, step, row, r);
  if (seq->group->request->grammar == NULL) return;
  if (drafted > 0)
    row->allowed_mask = constrain_draft_mask(engine, seq, drafted - 1);
  else
    constrain_row(engine, row, seq, r);
}

void engine_draw(const engine_t *engine, device_t *device, model_t *model, sample_row_t *rows,
                 int32_t total) {
  for (int32_t first = 0; first < total; first += engine->logits_rows_max) {
    int32_t some =
        total - first < engine->logits_rows_max ? total - first : engine->logits_rows_max;
    model_logits(model, first, some);
    engine->ops->sample(device, &rows[first], some);
  }
  const rank_ops_t *ranks = engine->ops->ranks;
  if (device != engine->device) return; /* a draft model is on this rank alone */
  if (engine->options.comm != NULL && ranks->pass_drawn != NULL) ranks->pass_drawn(device);
}

/* If the mask of one row is late, no sequence of its group gets a token in this step. */
static void mark_late(const step_t *step) {
  for (int32_t i = 0; i < step->plan.num_entries; i++) {
    plan_entry_t *entry = &step->plan.entries[i];
    if (!plan_entry_live(entry)) continue;
    entry->late = entry->do_sample && entry->sequence->group->masks.wait;
  }
}

/* Before the rows are described: each group that draws waits for no mask yet. */
static void finish_masks(engine_t *engine, const step_t *step) {
  for (int32_t i = 0; i < step->plan.num_entries; i++) {
    const plan_entry_t *entry = &step->plan.entries[i];
    if (entry->do_sample && plan_entry_live(entry)) entry->sequence->group->masks.wait = false;
  }
  activity_enter(&engine->activity, ENGINE_MAKES_MASKS);
  constrain_finish(engine);
}

/* Before the rows of entry i are described: the parameters of a later one, which the sampler reads,
 * too. */
static void prefetch_params(const plan_t *plan, int32_t i) {
  prefetch_entry(plan, i, GROUP_SAMPLED);
  if (i + PREFETCH_NEAR >= plan->num_entries) return;
  const request_t *request = plan->entries[i + PREFETCH_NEAR].sequence->group->request;
  prefetch_bytes(request, offsetof(request_t, params) + sizeof request->params);
}

void engine_sample(engine_t *engine, step_t *step) {
  if (engine->embeds) {
    pooling_launch(engine, step);
    return;
  }
  int32_t total = step->batch->num_selected;
  const bool is_constrained = engine->constrain.num_requests > 0;
  if (is_constrained) finish_masks(engine, step);
  for (int32_t i = 0; i < total; i++) {
    prefetch_params(&step->plan, step->batch->selected_row[i]);
    describe_row(engine, step, i);
  }
  if (is_constrained) mark_late(step);
  activity_enter(&engine->activity, ENGINE_LAUNCHES);
  engine_draw(engine, engine->device, engine->model, step->sample_rows, total);
  drafter_mirror(engine, step);
  engine_lap(engine, &engine->stats.device_ns);
}
