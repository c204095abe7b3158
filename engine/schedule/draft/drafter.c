/* drafter.c: the draft model; the contract is in drafter.h.
 *
 * Engine thread. If the device of the draft model fails, no more draft tokens are made; the
 * requests continue without them.
 */
#include "engine/schedule/draft/drafter.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/internal.h"
#include "engine/model/forward/eagle.h"
#include "engine/schedule/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct drafter {
  device_t *device;
  blueprint_t blueprint;
  model_t *model;
  batch_t *batch;           /* one token per sequence */
  sample_row_t *rows;       /* [max_num_seqs] */
  sample_result_t *results; /* [max_num_seqs] */
  int32_t *entries;         /* [max_num_seqs] index of the plan entry of each row */
  const step_t *late;       /* launched, to be mirrored when its ids are known; NULL = none */
  int32_t *late_ids;        /* [tokens_max] of that step */
  batch_t mirrored;         /* while a mirrored step is in flight */
  bool is_in_flight;        /* a mirrored step is launched and not ended */
};

/* ---- set-up ---- */

static int check_tokens(const engine_t *engine, const tokenizer_t *other, const char *dir,
                        inferd_error_t *error) {
  int32_t count = tokenizer_vocab_size(engine->tokenizer), theirs = tokenizer_vocab_size(other);
  if (count != theirs) {
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "the tokenizer of %.200s has %d tokens, the model's has %d; a draft model "
                     "must have the same vocabulary",
                     dir, theirs, count);
  }
  for (int32_t id = 0; id < count; id++) {
    size_t n, m;
    const char *left = tokenizer_bytes(engine->tokenizer, id, &n),
               *right = tokenizer_bytes(other, id, &m);
    if (n == m && (n == 0 || memcmp(left, right, n) == 0)) continue;
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "token %d of %.200s is not the model's token %d; a draft model must have the "
                     "same vocabulary",
                     id, dir, id);
  }
  return 0;
}

/* The type that was asked for, which is the model's, else that of its own checkpoint; bfloat16
 * where the back end does not have that. */
static dtype_t choose_dtype(const engine_t *engine, const blueprint_t *blueprint) {
  const char *asked = engine->options.dtype;
  const uint32_t has = engine->ops->dtypes;
  if (asked != NULL && strcmp(asked, "auto") != 0) return engine->blueprint.dtype;
  return has == 0 || (has & 1u << blueprint->dtype) != 0 ? blueprint->dtype : DTYPE_BF16;
}

static int check_device(const engine_t *engine, blueprint_t *blueprint, inferd_error_t *error) {
  blueprint->dtype = choose_dtype(engine, blueprint);
  int code = model_check_device(engine->ops, blueprint, (int32_t)blueprint->dtype, error);
  if (code) snprintf(error->param, ERROR_PARAM_MAX, "speculative_model");
  return code;
}

/* A head of EAGLE-3 has no tokenizer, and drafts as a layer of the model does. */
static int read_head(engine_t *engine, const char *dir, inferd_error_t *error) {
  blueprint_t *bp = &engine->drafter->blueprint;
  if (engine->options.draft.predicts)
    return error_set(error, ERR_CONFIGURATION, "speculative_method",
                     "speculative_method is mtp, and speculative_model is given too");
  int code = blueprint_read(dir, 0, -1, bp, error);
  if (!code) code = eagle_check(engine->ops, bp, &engine->blueprint, dir, error);
  engine->options.draft.predicts = true;
  return code;
}

int drafter_read(engine_t *engine, inferd_error_t *error) {
  const char *dir = engine->options.draft_model_dir;
  if (engine->options.draft.tokens_max == 0) return 0;
  if (dir == NULL && !engine->options.draft.predicts)
    engine_say(engine, "drafts    by prompt lookup");
  if (engine->ops->separate_memory && !engine->options.batch_invariant)
    engine_say(engine,
               "drafts    %s verifies them in other sums than it decodes, so last bits may differ; "
               "with --batch-invariant no token does",
               engine->ops->name);
  if (dir == NULL || engine->blueprint.shard.rank > 0) return 0; /* rank 0 drafts alone */
  drafter_t *drafter = engine->drafter = calloc(1, sizeof *drafter);
  if (drafter == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a draft model");
  if (eagle_is_head(dir)) return read_head(engine, dir, error);
  tokenizer_t *tokenizer = NULL;
  int code = engine->options.skip_tokenizer ? tokenizer_none(&tokenizer, error)
                                            : tokenizer_load(dir, &tokenizer, error);
  if (!code) code = check_tokens(engine, tokenizer, dir, error);
  if (!code) {
    code = blueprint_read(dir, tokenizer_model_max_length(tokenizer), tokenizer_eos_id(tokenizer),
                          &drafter->blueprint, error);
  }
  tokenizer_free(tokenizer);
  if (!code && drafter->blueprint.headless)
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "speculative_model %.200s has no head to draw tokens with", dir);
  if (!code && drafter->blueprint.mixer.kind != MIXER_NONE)
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "speculative_model %.200s keeps a state for each sequence, which cannot be "
                     "rolled back yet",
                     dir);
  if (!code) code = check_device(engine, &drafter->blueprint, error);
  if (code || drafter->blueprint.vocab_size == engine->blueprint.vocab_size) return code;
  return error_set(error, ERR_CONFIGURATION, "speculative_model",
                   "vocab_size of %.200s is %d, the model's is %d; they must be equal", dir,
                   drafter->blueprint.vocab_size, engine->blueprint.vocab_size);
}

static model_options_t describe_model(const engine_t *engine) {
  const engine_options_t *o = &engine->options;
  return (model_options_t){.dir = o->draft_model_dir,
                           .dummy = o->dummy_weights,
                           .dummy_seed = o->seed,
                           .dtype = (int32_t)engine->drafter->blueprint.dtype};
}

int drafter_weight_bytes(const engine_t *engine, size_t *out, inferd_error_t *error) {
  *out = 0;
  if (engine->drafter == NULL) return 0;
  model_options_t options = describe_model(engine);
  return model_weight_bytes(engine->ops, &engine->drafter->blueprint, &options, out, error);
}

static kv_cache_desc_t describe_kv(const drafter_t *drafter, const kv_cache_desc_t *kv) {
  kv_cache_desc_t own = model_kv(&drafter->blueprint);
  own.num_blocks = kv->num_blocks;
  own.block_size = kv->block_size;
  own.fp8 = kv->fp8;
  own.int8 = kv->int8;
  return own;
}

size_t drafter_kv_bytes(const engine_t *engine, const kv_cache_desc_t *kv, int32_t num_blocks) {
  if (engine->drafter == NULL) return 0;
  kv_cache_desc_t own = describe_kv(engine->drafter, kv);
  return engine->ops->kv_bytes(&own, num_blocks);
}

/* Steps of the large model, without adapters, or one token of each sequence, which is drawn. */
static step_limits_t describe_limits(const drafter_t *drafter, const step_limits_t *limits) {
  step_limits_t own = *limits;
  own.ranks = own.drafts_all_max = own.adapter_rank_max = 0;
  model_limits(&drafter->blueprint, &own);
  return own;
}

size_t drafter_workspace_bytes(const engine_t *engine, const step_limits_t *limits) {
  if (engine->drafter == NULL) return 0;
  step_limits_t own = describe_limits(engine->drafter, limits);
  return model_workspace_bytes(engine->ops, &engine->drafter->blueprint, &own);
}

static int load_model(engine_t *engine, const kv_cache_desc_t *kv, const step_limits_t *limits,
                      inferd_error_t *error) {
  const engine_options_t *o = &engine->options;
  drafter_t *drafter = engine->drafter;
  device_options_t device = {.num_threads = o->num_threads,
                             .isa = o->isa,
                             .device_index = engine->backend.device_index,
                             .batch_invariant = o->batch_invariant};
  model_options_t options = describe_model(engine);
  kv_cache_desc_t own = describe_kv(drafter, kv);
  step_limits_t bounds = describe_limits(drafter, limits);
  int code = engine->ops->open(&device, &drafter->device, error);
  if (!code) {
    code = model_load(engine->ops, drafter->device, &drafter->blueprint, limits->max_model_len,
                      &options, &drafter->model, error);
  }
  if (!code) own.scales = model_kv_scales(drafter->model);
  if (!code) code = engine->ops->kv_cache(drafter->device, &own, error);
  if (!code) code = engine->ops->prepare(drafter->device, &bounds, error);
  if (!code) code = model_prepare(drafter->model, &bounds, error);
  return code;
}

int drafter_load(engine_t *engine, const kv_cache_desc_t *kv, const step_limits_t *limits,
                 inferd_error_t *error) {
  drafter_t *drafter = engine->drafter;
  if (drafter == NULL) return 0;
  const bool is_head = drafter_is_head(engine);
  if (is_head) /* rotations have no end, and drafts may be wrong */
    drafter->blueprint.max_model_len = MAX(drafter->blueprint.max_model_len, limits->max_model_len);
  if (drafter->blueprint.max_model_len < limits->max_model_len) {
    return error_set(
        error, ERR_CONFIGURATION, "speculative_model",
        "the draft model %.200s allows a context of %d tokens, and max_model_len is %d; "
        "lower --max-model-len",
        engine->options.draft_model_dir, drafter->blueprint.max_model_len, limits->max_model_len);
  }
  int code = load_model(engine, kv, limits, error);
  if (!code && is_head)
    code = eagle_attach(drafter->model, engine->model, engine->options.draft_model_dir,
                        limits->tokens_max, error);
  if (code) return code;
  const blueprint_t *bp = &drafter->blueprint;
  engine_say(engine, "drafts    by %.120s: %s, %d layers, hidden %d",
             engine->options.draft_model_dir, bp->architecture, bp->num_layers, bp->hidden_size);
  size_t seqs = (size_t)engine->options.max_num_seqs;
  int32_t stride = DIV_UP(limits->max_model_len, kv->block_size);
  drafter->rows = calloc(seqs, sizeof *drafter->rows);
  drafter->results = calloc(seqs, sizeof *drafter->results);
  drafter->entries = calloc(seqs, sizeof *drafter->entries);
  drafter->late_ids = calloc((size_t)limits->tokens_max, sizeof *drafter->late_ids);
  bool complete = drafter->rows != NULL && drafter->results != NULL && drafter->entries != NULL &&
                  drafter->late_ids != NULL &&
                  batch_new(engine->options.max_num_seqs, engine->options.max_num_seqs,
                            kv->block_size, stride, 1, &drafter->batch) == 0;
  return complete ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory for a draft model");
}

int drafter_swap_pool(engine_t *engine, int32_t num_blocks, inferd_error_t *error) {
  return engine->drafter != NULL
             ? engine->ops->swap->pool(engine->drafter->device, num_blocks, NULL, error)
             : 0;
}

void drafter_free(engine_t *engine) {
  drafter_t *drafter = engine->drafter;
  if (drafter == NULL) return;
  batch_free(drafter->batch);
  free(drafter->rows);
  free(drafter->results);
  free(drafter->entries);
  free(drafter->late_ids);
  model_free(drafter->model);
  if (drafter->device != NULL) engine->ops->close(drafter->device);
  blueprint_free(&drafter->blueprint);
  free(drafter);
}

/* ---- steps ---- */

sample_row_t drafter_row(const plan_entry_t *entry, int32_t index, sample_result_t *result) {
  const sequence_t *seq = entry->sequence;
  return (sample_row_t){
      .params = &seq->group->request->params,
      .score_id = -1,
      .num_top = -1,
      .rng_key = seq->rng_key,
      .rng_position = (uint64_t)(entry->output_position + index),
      .prompt_ids = seq->group->request->prompt_ids,
      .num_prompt = seq->num_prompt_tokens,
      .output_ids = seq->tokens + seq->num_prompt_tokens,
      .num_output = seq->num_output_tokens + index,
      .result = result,
  };
}

/* Adds one token of one sequence to the batch: the token before draft token number `index`, which
 * is the last known token for index 0. */
static void add_row(drafter_t *drafter, const plan_entry_t *entry, int32_t index) {
  batch_t *batch = drafter->batch;
  const sequence_t *seq = entry->sequence;
  int32_t r = batch->num_reqs++, position = sequence_num_tokens(seq) - 1 + index,
          block_size = batch->block_size;
  batch->input_ids[r] = table_id(seq, position);
  batch->positions[r] = position;
  batch->request_row[r] = batch->selected_token_indices[r] = batch->selected_row[r] =
      batch->query_start_loc[r] = r;
  batch->slot_mapping[r] =
      (int64_t)seq->blocks[position / block_size] * block_size + position % block_size;
  batch->num_computed_tokens[r] = position;
  batch->seq_lens[r] = position + 1;
  batch->block_table[r] = seq->blocks;
  batch->do_sample[r] = 1;
  batch->selected_target[r] = -1;
  batch->max_query_len = 1;
  if (position + 1 > batch->max_seq_len) batch->max_seq_len = position + 1;
  drafter->rows[r] = drafter_row(entry, index, &drafter->results[r]);
}

/* Builds the batch that draws draft token number `index` of every sequence which has so many.
 * Returns the number of rows. The copies of blocks belong to the first batch. */
static int32_t build(drafter_t *drafter, const plan_t *plan, int32_t index) {
  batch_t *batch = drafter->batch;
  batch->num_reqs = batch->max_seq_len = batch->num_copies = 0;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    if (plan->entries[i].num_drafts <= index || plan->entries[i].drafts_known) continue;
    drafter->entries[batch->num_reqs] = i;
    add_row(drafter, &plan->entries[i], index);
  }
  batch->num_tokens = batch->num_selected = batch->query_start_loc[batch->num_reqs] =
      batch->num_reqs;
  for (int32_t i = 0; i < plan->num_copies && index == 0; i++) {
    batch->copies[batch->num_copies++] = plan->copies[i].copy;
  }
  return batch->num_reqs;
}

/* The device of the draft model is lost: no more drafts. The draft tokens of this plan need not be
 * right, because the large model verifies them. */
static void give_up(engine_t *engine) {
  engine->scheduler->options.draft.tokens_max = 0;
  engine_say(engine, "the draft model failed: no more draft tokens");
}

bool drafter_is_head(const engine_t *engine) {
  return engine->drafter != NULL && engine->drafter->blueprint.eagle.target_size > 0;
}

model_t *drafter_head(const engine_t *engine, device_t **device) {
  *device = engine->drafter->device;
  return engine->drafter->model;
}

/* Draft tokens come from a model, not from a head. */
static bool makes_tokens(const engine_t *engine) {
  return engine->drafter != NULL && !drafter_is_head(engine) &&
         engine->scheduler->options.draft.tokens_max > 0;
}

device_t *drafter_device(const engine_t *engine) {
  const drafter_t *drafter = engine->drafter;
  bool works = drafter != NULL && engine->scheduler->options.draft.tokens_max > 0;
  return works ? drafter->device : NULL;
}

model_t *drafter_model(const engine_t *engine) {
  return engine->drafter != NULL ? engine->drafter->model : NULL;
}

static void end_mirrored(engine_t *engine) {
  drafter_t *drafter = engine->drafter;
  inferd_error_t error;
  if (!drafter->is_in_flight) return;
  drafter->is_in_flight = false;
  if (engine->ops->end(drafter->device, &error) != 0) give_up(engine);
}

/* Draws a token for each row of the batch. Returns false if the device is lost. */
static bool draw(engine_t *engine, int32_t rows) {
  drafter_t *drafter = engine->drafter;
  inferd_error_t error;
  end_mirrored(engine);
  if (!makes_tokens(engine)) return false;
  const uint64_t begun_ns = clock_now_ns();
  engine->ops->begin(drafter->device, drafter->batch);
  model_forward(drafter->model, drafter->batch);
  engine_draw(engine, drafter->device, drafter->model, drafter->rows, rows);
  if (engine->ops->end(drafter->device, &error) != 0) {
    give_up(engine);
    return false;
  }
  const double ns = (double)(clock_now_ns() - begun_ns);
  scheduler_note_drafts(engine->scheduler, lane_time(engine->lane, JOURNAL_DRAFT_TIME, ns));
  return true;
}

void drafter_propose(engine_t *engine, step_t *step) {
  drafter_t *drafter = engine->drafter;
  if (!makes_tokens(engine)) return;
  bool works = true;
  for (int32_t index = 0;; index++) {
    int32_t rows = build(drafter, &step->plan, index);
    if (rows == 0) return;
    works = works && draw(engine, rows);
    for (int32_t r = 0; r < rows; r++) {
      const sequence_t *seq = step->plan.entries[drafter->entries[r]].sequence;
      int32_t id = !works || drafter->results[r].status ? 0 : drafter->results[r].id;
      seq->tokens[sequence_num_tokens(seq) + index] = id;
    }
  }
}

/* Launches the step on the draft model, with these ids. Nothing is drawn. */
static void mirror(engine_t *engine, const step_t *step, int32_t *ids) {
  drafter_t *drafter = engine->drafter;
  end_mirrored(engine);
  if (!makes_tokens(engine)) return;
  drafter->mirrored = *step->batch;
  drafter->mirrored.input_ids = ids;
  drafter->mirrored.num_selected = drafter->mirrored.num_adapted = 0;
  engine->ops->begin(drafter->device, &drafter->mirrored);
  model_forward(drafter->model, &drafter->mirrored);
  drafter->is_in_flight = true;
  if (engine->steps_most == 1) end_mirrored(engine);
}

void drafter_mirror(engine_t *engine, const step_t *step) {
  if (!makes_tokens(engine)) return;
  const batch_t *batch = step->batch;
  int32_t t = 0;
  while (t < batch->num_tokens && batch->input_ids[t] >= 0) t++;
  if (t < batch->num_tokens)
    engine->drafter->late = step;
  else
    mirror(engine, step, batch->input_ids);
}

void drafter_mirror_late(engine_t *engine, const step_t *before) {
  drafter_t *drafter = engine->drafter;
  if (drafter_device(engine) == NULL || drafter->late == NULL) return;
  const step_t *step = drafter->late;
  drafter->late = NULL;
  for (int32_t t = 0; t < step->batch->num_tokens; t++) {
    const int32_t id = step->batch->input_ids[t];
    const sample_result_t *drawn = id < 0 ? &before->sample_results[-1 - id] : NULL;
    drafter->late_ids[t] = drawn == NULL ? id : drawn->status ? 0 : drawn->id;
  }
  mirror(engine, step, drafter->late_ids);
}
