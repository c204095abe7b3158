/* task.c: what an engine makes of prompts, tokens, vectors or scores; and what it cannot do because
 * of that, or because its model keeps states.
 *
 * Engine thread, in engine_start. The model directory says it, options go before it.
 */
#include "engine/internal.h"

#include "engine/base/util.h"
#include "engine/model/config/classifier.h"
#include "engine/model/config/embedding.h"
#include "engine/ranks/ranks.h"

#include <stdio.h>
#include <string.h>

/* What an engine that makes `product` cannot do; the message names it. */
static int check_options(const engine_t *engine, const char *product, inferd_error_t *error) {
  if (engine->ops->read_rows == NULL)
    return error_set(error, ERR_CONFIGURATION, "device",
                     "the model makes %s, which does not run on device %s yet; it does "
                     "with --device cpu",
                     product, engine->ops->name);
  if (engine->options.draft.tokens_max == 0) return 0;
  return error_set(error, ERR_CONFIGURATION, "num_speculative_tokens",
                   "num_speculative_tokens is %d; it must be 0, because the model makes "
                   "%s and no tokens",
                   engine->options.draft.tokens_max, product);
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

static void say_task(const engine_t *engine, const embedding_files_t *files) {
  const embedding_info_t *info = &engine->embedding;
  engine_say(engine, "embeds    pooling %s (%s), %d values, %s%s", pooling_name(info->pooling),
             engine->options.embedding.pooling != POOLING_NONE ? "option"
             : files->found                                    ? "of the model"
                                                               : "no modules.json names one",
             info->size, info->normalises ? "normalised" : "not normalised",
             info->matryoshka ? ", may be cut" : "");
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
    engine->blueprint.encoder.post_width = MAX(engine->blueprint.encoder.post_width, dense->out);
    engine->dense[engine->num_dense++] = *dense;
  }
  return 0;
}

/* ---- classifiers ---- */

static const char *task_name(engine_task_t task) {
  static const char *const names[] = {"auto",   "generate",       "embed", "classify",
                                      "rerank", "token_classify", "embed"};
  return names[task];
}

/* The tokens that a model which judges answers with. */
static int find_answers(engine_t *engine, const classifier_files_t *files, inferd_error_t *error) {
  const char *const needed[] = {files->answers[0], files->answers[1], "<|im_start|>", "<|im_end|>"};
  blueprint_t *bp = &engine->blueprint;
  for (size_t i = 0; i < ARRAY_LEN(needed); i++) {
    int32_t id = tokenizer_id(engine->tokenizer, needed[i], strlen(needed[i]));
    if (id < 0 || id >= bp->vocab_size)
      return error_set(error, ERR_CONFIGURATION, "task",
                       "task is rerank, for which the tokenizer must have the token \"%s\"; it has "
                       "not",
                       needed[i]);
    if (i < ARRAY_LEN(bp->encoder.answer_ids)) bp->encoder.answer_ids[i] = id;
  }
  bp->encoder.judges = true;
  return 0;
}

/* Whether a model that scores can do the task that an option asks for. */
static int check_scores(const engine_t *engine, engine_task_t task, inferd_error_t *error) {
  const embedding_options_t *options = &engine->options.embedding;
  const encoder_t *encoder = &engine->blueprint.encoder;
  const char *option = options->pooling != POOLING_NONE ? "pooling" : "matryoshka", *why = "";
  bool judge = strcmp(engine->blueprint.family, "qwen3") == 0;
  if (encoder->tags != (task == TASK_TAG))
    return error_set(error, ERR_CONFIGURATION, "task", "task is %s, but the model %s",
                     task_name(task),
                     encoder->tags ? "classifies each token (ForTokenClassification); it serves "
                                     "token_classify"
                                   : "has no classifier of tokens (ForTokenClassification)");
  if (encoder->num_labels > 0 && (task == TASK_GENERATE || task == TASK_EMBED))
    return error_set(error, ERR_CONFIGURATION, "task",
                     "task is %s, but the model classifies (num_labels is %d); it serves classify, "
                     "and rerank with one label",
                     task_name(task), encoder->num_labels);
  if (encoder->num_labels == 0 && (task == TASK_CLASSIFY || !judge))
    return error_set(error, ERR_CONFIGURATION, "task",
                     "task is %s, but the model (%s) has no classifier%s", task_name(task),
                     engine->blueprint.architecture,
                     task == TASK_RERANK ? ", and is no Qwen3 that answers yes or no" : "");
  if (encoder->num_labels > 1 && task == TASK_RERANK)
    return error_set(error, ERR_CONFIGURATION, "task",
                     "task is rerank, which needs a model of one label; this one has %d",
                     encoder->num_labels);
  if (options->pooling != POOLING_NONE || options->matryoshka)
    return error_set(error, ERR_CONFIGURATION, option, "%s is set, but the task is %s", option,
                     task_name(task));
  if (engine->ops->write_rows == NULL)
    return error_set(error, ERR_CONFIGURATION, "device",
                     "the model classifies, which does not run on device %s yet; it does with "
                     "--device cpu",
                     engine->ops->name);
  if (task != TASK_RERANK) return 0;
  if (tokenizer_is_none(engine->tokenizer))
    return error_set(error, ERR_CONFIGURATION, "skip_tokenizer_init",
                     "skip_tokenizer_init is set, but the task is rerank, which needs texts");
  if (encoder->num_labels == 0 || tokenizer_pair_extra(engine->tokenizer, &why) >= 0) return 0;
  return error_set(error, ERR_CONFIGURATION, "task",
                   "task is rerank, but the tokenizer cannot join two texts: %s", why);
}

static void say_scores(const engine_t *engine) {
  static const char *const names[] = {"sigmoid", "softmax", "tanh", "identity"};
  const embedding_info_t *info = &engine->embedding;
  char line[160];
  if (engine->options.log == NULL) return;
  snprintf(line, sizeof line, "%s pooling %s, %d label%s, %s%s",
           info->task == TASK_RERANK ? "reranks  "
           : info->task == TASK_TAG  ? "tags     "
                                     : "classifies",
           pooling_name(info->pooling), info->size, info->size == 1 ? "" : "s",
           names[info->activation],
           info->judges ? " of yes or no to a question (Qwen3-Reranker)" : "");
  engine->options.log(engine->options.context, line);
}

static int choose_scores(engine_t *engine, engine_task_t task, inferd_error_t *error) {
  blueprint_t *bp = &engine->blueprint;
  encoder_t *encoder = &bp->encoder;
  classifier_files_t files;
  int code = check_scores(engine, task, error);
  if (code == 0)
    code = classifier_read(engine->options.model_dir, encoder->num_labels, &files, error);
  if (code != 0) return code;
  engine->labels = files.labels;
  if (encoder->num_labels == 0) code = find_answers(engine, &files, error);
  if (code == 0) code = check_options(engine, "scores", error);
  if (code != 0) return code;
  engine->embeds = true;
  engine->embedding = (embedding_info_t){.task = task,
                                         .pooling = encoder->tags            ? POOLING_EACH
                                                    : encoder->mean_pooled   ? POOLING_MEAN
                                                    : encoder->bidirectional ? POOLING_CLS
                                                                             : POOLING_LAST,
                                         .size = MAX(encoder->num_labels, 1),
                                         .pooled_size = bp->embed_size,
                                         .activation = files.activation,
                                         .labels = files.labels,
                                         .judges = encoder->judges};
  encoder->post_width = MAX(MAX(encoder->num_labels, 1), bp->hidden_size);
  bp->headless = true;
  if (encoder->num_labels > 0) bp->head_scale = 1; /* it is meant for logits of tokens */
  say_scores(engine);
  return 0;
}

int engine_choose_task(engine_t *engine, inferd_error_t *error) {
  const embedding_options_t *options = &engine->options.embedding;
  blueprint_t *bp = &engine->blueprint;
  embedding_files_t files;
  engine_task_t task = options->task;
  const int32_t labels = bp->encoder.num_labels;
  bool open = task == TASK_AUTO || task == TASK_POOL;
  if (open && labels > 0) task = labels == 1 ? TASK_RERANK : TASK_CLASSIFY;
  if (open && bp->encoder.tags) task = TASK_TAG;
  if (open && bp->encoder.judges) task = TASK_RERANK;
  if (labels > 0 || task == TASK_CLASSIFY || task == TASK_RERANK || task == TASK_TAG)
    return choose_scores(engine, task, error);
  bp->encoder.judges = false;
  if (options->task == TASK_GENERATE) return check_generates(engine, error);
  int code = embedding_read(engine->options.model_dir, &files, error);
  if (code != 0) return code;
  if (options->task == TASK_AUTO && !files.found && !bp->headless)
    return check_generates(engine, error);
  code = check_options(engine, "embeddings", error);
  if (code != 0) return code;
  engine->embeds = true;
  engine->embedding = files.info;
  engine->embedding.task = TASK_EMBED;
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
  say_task(engine, &files);
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
  if (!model_states_run(engine->ops, &engine->blueprint))
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
  inferd_error_t failed; /* the next exchange of the ranks fails, too, and says so */
  (void)ranks_least(options->comm, &count, &failed);
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
