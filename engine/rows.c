/* rows.c: prompts of rows; the contract is in rows.h.
 *
 * Engine thread, but for rows_check; allocates in rows_join only.
 */
#include "engine/rows.h"

#include "engine/internal.h"

/* Why a model takes no rows here; NULL = nothing speaks against it. */
static const char *why_not(const engine_t *engine) {
  const engine_options_t *options = &engine->options;
  const blueprint_t *bp = &engine->blueprint;
  if (engine->embeds) return "not where prompts become vectors or scores";
  if (bp->cross.crosses) return "not for a model with an encoder before its decoder";
  if (engine->ops->embed_pictures == NULL || engine->ops->pipeline_depth > 1)
    return "not on this device yet; they are with --device cpu";
  if (options->comm != NULL || options->planned_ranks > 1) return "not over ranks or stages";
  if (options->draft_model_dir != NULL) return "not with a draft model (--speculative-model)";
  if (options->draft.predicts) return "not with a layer that predicts (--speculative-method mtp)";
  if (bp->embed_size != bp->hidden_size)
    return "the model's embeddings have another width than its layers";
  if (bp->per_layer_size > 0) return "every layer of the model has embeddings of its own";
  if (sight_num_deep(engine) > 0)
    return "the model adds rows of pictures behind its layers; --limit-images 0 leaves them out";
  return NULL;
}

int rows_plan(engine_t *engine, inferd_error_t *error) {
  const blueprint_t *bp = &engine->blueprint;
  if (!engine->options.prompt_embeds) return 0;
  const char *why = why_not(engine);
  if (why != NULL)
    return error_set(error, ERR_CONFIGURATION, "enable_prompt_embeds",
                     "enable_prompt_embeds: %s takes no embeddings as prompts: %s",
                     bp->architecture, why);
  const double scale = bp->scales_rows ? bp->embed_scale : 1.0;
  engine->rows =
      (prompt_rows_info_t){.width = bp->hidden_size, .scale = (float)(scale / bp->residual_scale)};
  return 0;
}

int rows_join(const engine_t *engine, step_t *step) {
  if (engine->rows.width == 0) return 0;
  return batch_embed(step->batch, engine->options.max_num_batched_tokens);
}

const prompt_rows_info_t *rows_info(const engine_t *engine) {
  return engine->rows.width > 0 ? &engine->rows : NULL;
}

int rows_check(const engine_t *engine, const request_t *request, inferd_error_t *error) {
  const prompt_rows_info_t *info = engine->info.rows;
  const prompt_rows_t *rows = request->rows;
  if (rows == NULL) return 0;
  if (info == NULL)
    return error_set(error, ERR_BAD_REQUEST, "prompt_embeds",
                     "This server takes no embeddings as prompts (--enable-prompt-embeds).");
  if (rows->width != info->width || rows->values == NULL || rows->keys == NULL)
    return error_set(error, ERR_BAD_REQUEST, "prompt_embeds",
                     "The rows have %d values; the model reads %d.", rows->width, info->width);
  if (request->num_images > 0 || request->source != NULL || request->second_text > 0 ||
      request->params.num_prompt_logprobs >= 0)
    return error_set(error, ERR_BAD_REQUEST, "prompt_embeds",
                     "A prompt of rows has no pictures, no source, no second text and no "
                     "prompt_logprobs.");
  return 0;
}
