/* task.c: what an engine makes of prompts, tokens or vectors; and what it cannot do because of
 * that, or because its model keeps states.
 *
 * Engine thread, in engine_start. The model directory says it, options go before it.
 */
#include "engine/internal.h"

#include "engine/base/util.h"
#include "engine/model/config/embedding.h"

#include <stdio.h>

/* What an engine that embeds cannot do; the message names it. */
static int check_options(const engine_t *engine, inferd_error_t *error) {
  if (engine->ops->read_rows == NULL)
    return error_set(error, ERR_CONFIGURATION, "device",
                     "the model makes embeddings, which does not run on device %s yet; it does "
                     "with --device cpu",
                     engine->ops->name);
  if (engine->options.draft.tokens_max == 0) return 0;
  return error_set(error, ERR_CONFIGURATION, "num_speculative_tokens",
                   "num_speculative_tokens is %d; it must be 0, because the model makes "
                   "embeddings and no tokens",
                   engine->options.draft.tokens_max);
}

static int check_generates(const engine_t *engine, inferd_error_t *error) {
  const embedding_options_t *options = &engine->options.embedding;
  const char *option = options->pooling != POOLING_NONE ? "pooling" : "matryoshka";
  if (engine->blueprint.headless)
    return error_set(error, ERR_CONFIGURATION, "task",
                     "task is generate, but the model has no head (architectures in config.json "
                     "names the model without it); it can embed");
  if (options->pooling == POOLING_NONE && !options->matryoshka) return 0;
  return error_set(error, ERR_CONFIGURATION, option,
                   "%s is set, but the model generates; add --task embed", option);
}

static void say(const engine_t *engine, const embedding_files_t *files) {
  char line[160], cut[48] = "";
  const embedding_info_t *info = &engine->embedding;
  if (engine->options.log == NULL) return;
  if (info->matryoshka) snprintf(cut, sizeof cut, ", may be cut");
  snprintf(line, sizeof line, "embeds    pooling %s (%s), %d values, %s%s",
           pooling_name(info->pooling),
           engine->options.embedding.pooling != POOLING_NONE ? "option"
           : files->found                                    ? "of the model"
                                                             : "no modules.json names one",
           info->size, info->normalises ? "normalised" : "not normalised", cut);
  engine->options.log(engine->options.context, line);
}

/* The layers behind the pooling: each reads what the one before it makes. */
static int take_dense(engine_t *engine, const embedding_files_t *files, inferd_error_t *error) {
  embedding_info_t *info = &engine->embedding;
  for (int32_t i = 0; i < files->num_dense; i++) {
    const dense_layer_t *dense = &files->dense[i];
    if (engine->ops->write_rows == NULL)
      return error_set(error, ERR_CONFIGURATION, "device",
                       "the model has a Dense layer behind the pooling, which does not run on "
                       "device %s yet; it does with --device cpu",
                       engine->ops->name);
    if (dense->in != info->size)
      return error_set(error, ERR_MODEL_MALFORMED, "in_features",
                       "%s/config.json: \"in_features\" is %d, but the layer before it has %d",
                       dense->path, dense->in, info->size);
    info->size = dense->out;
    engine->blueprint.encoder.head_width = MAX(engine->blueprint.encoder.head_width, dense->out);
    engine->dense[engine->num_dense++] = *dense;
  }
  return 0;
}

int engine_choose_task(engine_t *engine, inferd_error_t *error) {
  const embedding_options_t *options = &engine->options.embedding;
  blueprint_t *bp = &engine->blueprint;
  embedding_files_t files;
  if (bp->encoder.num_labels > 0)
    return error_set(error, ERR_MODEL_MALFORMED, "architectures",
                     "the model classifies (%d labels), which is not supported yet",
                     bp->encoder.num_labels);
  if (options->task == TASK_GENERATE) return check_generates(engine, error);
  int code = embedding_read(engine->options.model_dir, &files, error);
  if (code != 0) return code;
  if (options->task == TASK_AUTO && !files.found && !bp->headless)
    return check_generates(engine, error);
  code = check_options(engine, error);
  if (code != 0) return code;
  engine->embeds = true;
  engine->embedding = files.info;
  engine->embedding.size = engine->embedding.pooled_size = bp->embed_size;
  if (!files.found && bp->encoder.bidirectional) engine->embedding.pooling = POOLING_CLS;
  if (options->pooling != POOLING_NONE) engine->embedding.pooling = options->pooling;
  engine->embedding.matryoshka = engine->embedding.matryoshka || options->matryoshka;
  code = take_dense(engine, &files, error);
  if (code != 0) return code;
  bp->headless = true;
  bp->head_scale = 1; /* it is a factor of the last norm, meant for logits */
  if (files.max_tokens > 0 && files.max_tokens < bp->max_model_len) {
    bp->max_model_len = files.max_tokens;
    bp->default_model_len = MIN(bp->default_model_len, files.max_tokens);
  }
  say(engine, &files);
  return 0;
}

/* ---- states ---- */

static int refuse_state(const engine_t *engine, const char *option, const char *why,
                        inferd_error_t *error) {
  return error_set(error, ERR_CONFIGURATION, option,
                   "%s is set, but %s keeps a state for each sequence, which %s yet", option,
                   engine->blueprint.architecture, why);
}

int engine_plan_states(engine_t *engine, state_desc_t *out, inferd_error_t *error) {
  engine_options_t *options = &engine->options;
  const char *name = engine->blueprint.architecture;
  const scheduler_options_t slots = {
      .has_states = true, .max_num_seqs = options->max_num_seqs, .draft = options->draft};
  *out = model_states(engine->ops, &engine->blueprint, scheduler_state_slots(&slots) + 1);
  if (engine->blueprint.mixer.kind == MIXER_NONE) return 0;
  if (engine->ops->state == NULL)
    return error_set(error, ERR_CONFIGURATION, "device",
                     "the model (%s) has layers with a state, which do not run on device %s yet; "
                     "they do with --device cpu",
                     name, engine->ops->name);
  if (options->max_loras > 0)
    return refuse_state(engine, "enable_lora", "has no place for adapters", error);
  if (options->preemption_mode == PREEMPT_SWAP || options->swap_space_bytes > 0)
    return refuse_state(engine,
                        options->preemption_mode == PREEMPT_SWAP ? "preemption_mode" : "swap_space",
                        "is not swapped", error);
  options->swap_space_bytes = 0;
  return 0;
}

size_t engine_plan_snapshots(engine_t *engine, size_t other_bytes, size_t free_bytes,
                             state_desc_t *states, int32_t *num_snapshots) {
  engine_options_t *options = &engine->options;
  if (states->num_layers == 0) return 0;
  const state_ops_t *ops = engine->ops->state;
  double left =
      (double)free_bytes - (double)other_bytes - (double)ops->bytes(states, states->num_slots);
  double most = left > 0 ? left / 4 / (double)ops->bytes(states, 1) : 0;
  int32_t count = most < options->max_num_seqs ? (int32_t)most : options->max_num_seqs;
  if (options->num_snapshots > 0) count = options->num_snapshots;
  if (count == 0 && options->enable_prefix_caching && options->log != NULL)
    options->log(options->context,
                 "prefix caching is off: there is no place for snapshots of states");
  options->enable_prefix_caching = options->enable_prefix_caching && count > 0;
  *num_snapshots = options->enable_prefix_caching ? count : 0;
  states->num_slots += *num_snapshots;
  size_t bytes = ops->bytes(states, states->num_slots);
  char line[128];
  snprintf(line, sizeof line, "states    %.2f GiB: %d slots of %.2f MiB (%d snapshots), %d layers",
           (double)bytes / (1 << 30), states->num_slots - 1,
           (double)ops->bytes(states, 1) / (1 << 20), *num_snapshots, states->num_layers);
  if (options->log != NULL) options->log(options->context, line);
  return bytes;
}

void engine_take_whole_prompts(engine_t *engine, int32_t longest) {
  engine_options_t *options = &engine->options;
  char line[128];
  if (!engine->blueprint.encoder.bidirectional) return;
  options->enable_chunked_prefill = options->enable_prefix_caching = false;
  options->long_prefill_token_threshold = 0;
  if (options->max_num_batched_tokens >= longest) return;
  options->max_num_batched_tokens = longest;
  snprintf(line, sizeof line, "a step    %d tokens: those of the longest prompt, computed whole",
           longest);
  if (options->log != NULL) options->log(options->context, line);
}
