/* drafter.c: see drafter.h. A drafter whose device fails stops guessing; the requests go on. */
#include "engine/schedule/drafter.h"

#include "engine/internal.h"

#include <stdlib.h>
#include <string.h>

struct drafter {
  device_t *device;
  blueprint_t blueprint;
  model_t *model;
  batch_t *batch; /* one token a sequence */
  sample_row_t *rows;
  sample_result_t *results;
  int32_t *entries; /* plan entry of each row */
};

/* ---- set-up ---- */

static int check_tokens(const engine_t *e, const tokenizer_t *other, const char *dir,
                        error_t *error) {
  int32_t count = tokenizer_vocab_size(e->tokenizer), theirs = tokenizer_vocab_size(other);
  if (count != theirs) {
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "the tokenizer of %.200s has %d tokens, the model's has %d; a draft model "
                     "must have the same vocabulary",
                     dir, theirs, count);
  }
  for (int32_t id = 0; id < count; id++) {
    size_t n, m;
    const char *a = tokenizer_bytes(e->tokenizer, id, &n), *b = tokenizer_bytes(other, id, &m);
    if (n == m && (n == 0 || memcmp(a, b, n) == 0)) continue;
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "token %d of %.200s is not the model's token %d; a draft model must have the "
                     "same vocabulary",
                     id, dir, id);
  }
  return 0;
}

int drafter_read(engine_t *e, error_t *error) {
  const char *dir = e->options.draft_model_dir;
  if (dir == NULL || !*dir || e->options.draft.tokens_max == 0) return 0;
  if (e->ops->pipeline_depth > 1) {
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "a draft model needs a device that takes one step at a time; %s takes %d",
                     e->ops->name, e->ops->pipeline_depth);
  }
  drafter_t *d = e->drafter = calloc(1, sizeof *d);
  if (d == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a draft model");
  tokenizer_t *tokenizer = NULL;
  int code = tokenizer_load(dir, &tokenizer, error);
  if (!code) code = check_tokens(e, tokenizer, dir, error);
  if (!code) {
    code = blueprint_read(dir, tokenizer_model_max_length(tokenizer), tokenizer_eos_id(tokenizer),
                          &d->blueprint, error);
  }
  tokenizer_free(tokenizer);
  if (code || d->blueprint.vocab_size == e->blueprint.vocab_size) return code;
  return error_set(error, ERR_CONFIGURATION, "speculative_model",
                   "vocab_size of %.200s is %d, the model's is %d; they must be equal", dir,
                   d->blueprint.vocab_size, e->blueprint.vocab_size);
}

size_t drafter_weight_bytes(const engine_t *e) {
  return e->drafter != NULL ? model_weight_bytes(e->ops, &e->drafter->blueprint) : 0;
}

static kv_cache_desc_t describe_kv(const drafter_t *d, const kv_cache_desc_t *kv) {
  const blueprint_t *bp = &d->blueprint;
  kv_cache_desc_t own = *kv;
  own.num_layers = bp->num_layers;
  own.num_kv_heads = bp->num_kv_heads;
  own.head_dim = bp->head_dim;
  own.dtype = bp->dtype;
  return own;
}

size_t drafter_kv_bytes(const engine_t *e, const kv_cache_desc_t *kv, int32_t num_blocks) {
  if (e->drafter == NULL) return 0;
  kv_cache_desc_t own = describe_kv(e->drafter, kv);
  return e->ops->kv_bytes(&own, num_blocks);
}

static int load_model(engine_t *e, const kv_cache_desc_t *kv, const step_limits_t *limits,
                      error_t *error) {
  const engine_options_t *o = &e->options;
  drafter_t *d = e->drafter;
  device_options_t device = {
      .num_threads = o->num_threads, .isa = o->isa, .device_index = o->device_index};
  model_options_t options = {
      .dir = o->draft_model_dir, .dummy = o->dummy_weights, .dummy_seed = o->seed, .dtype = -1};
  kv_cache_desc_t own = describe_kv(d, kv);
  step_limits_t bounds = *limits;
  model_limits(&d->blueprint, &bounds);
  int code = e->ops->open(&device, &d->device, error);
  if (!code) {
    code = model_load(e->ops, d->device, &d->blueprint, limits->max_model_len, &options, &d->model,
                      error);
  }
  if (!code) code = e->ops->kv_cache(d->device, &own, error);
  if (!code) code = e->ops->prepare(d->device, &bounds, error);
  if (!code) code = model_prepare(d->model, &bounds, error);
  return code;
}

int drafter_load(engine_t *e, const kv_cache_desc_t *kv, const step_limits_t *limits,
                 error_t *error) {
  drafter_t *d = e->drafter;
  if (d == NULL) return 0;
  if (d->blueprint.max_model_len < limits->max_model_len) {
    return error_set(error, ERR_CONFIGURATION, "speculative_model",
                     "the draft model goes to %d tokens, the context is %d; lower --max-model-len",
                     d->blueprint.max_model_len, limits->max_model_len);
  }
  int code = load_model(e, kv, limits, error);
  if (code) return code;
  size_t seqs = (size_t)e->options.max_num_seqs;
  int32_t stride = (limits->max_model_len + kv->block_size - 1) / kv->block_size;
  d->rows = calloc(seqs, sizeof *d->rows);
  d->results = calloc(seqs, sizeof *d->results);
  d->entries = calloc(seqs, sizeof *d->entries);
  bool complete = d->rows != NULL && d->results != NULL && d->entries != NULL &&
                  batch_new(e->options.max_num_seqs, e->options.max_num_seqs, kv->block_size,
                            stride, &d->batch) == 0;
  return complete ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory for a draft model");
}

int drafter_swap_pool(engine_t *e, int32_t num_blocks, error_t *error) {
  return e->drafter != NULL ? e->ops->swap->pool(e->drafter->device, num_blocks, error) : 0;
}

void drafter_free(engine_t *e) {
  drafter_t *d = e->drafter;
  if (d == NULL) return;
  batch_free(d->batch);
  free(d->rows);
  free(d->results);
  free(d->entries);
  model_free(d->model);
  if (d->device != NULL) e->ops->close(d->device);
  blueprint_free(&d->blueprint);
  free(d);
}

/* ---- steps ---- */

/* One token of one sequence: the last known one, or the guess before the `index`-th. */
static void add_row(drafter_t *d, const plan_entry_t *entry, int32_t index) {
  batch_t *b = d->batch;
  const sequence_t *q = entry->sequence;
  int32_t r = b->num_reqs++, position = sequence_num_tokens(q) - 1 + index, bs = b->block_size;
  b->input_ids[r] = q->tokens[position];
  b->positions[r] = position;
  b->request_row[r] = b->selected_token_indices[r] = b->selected_row[r] = b->query_start_loc[r] = r;
  b->slot_mapping[r] = (int64_t)q->blocks[position / bs] * bs + position % bs;
  b->num_computed_tokens[r] = position;
  b->seq_lens[r] = position + 1;
  b->block_table[r] = q->blocks;
  b->do_sample[r] = 1;
  b->selected_target[r] = -1;
  b->max_query_len = 1;
  if (position + 1 > b->max_seq_len) b->max_seq_len = position + 1;
  d->rows[r] = (sample_row_t){
      .params = &q->group->request->params,
      .score_id = -1,
      .num_top = -1,
      .rng_key = q->rng_key,
      .rng_position = (uint64_t)(entry->output_position + index),
      .prompt_ids = q->tokens,
      .num_prompt = q->num_prompt_tokens,
      .output_ids = q->tokens + q->num_prompt_tokens,
      .num_output = q->num_output_tokens + index,
      .result = &d->results[r],
  };
}

/* The rows of every sequence that wants more than `index` guesses. Copies of blocks come first. */
static int32_t build(drafter_t *d, const plan_t *plan, int32_t index) {
  batch_t *b = d->batch;
  b->num_reqs = b->max_seq_len = b->num_copies = 0;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    if (plan->entries[i].num_drafts <= index) continue;
    d->entries[b->num_reqs] = i;
    add_row(d, &plan->entries[i], index);
  }
  b->num_tokens = b->num_selected = b->query_start_loc[b->num_reqs] = b->num_reqs;
  for (int32_t i = 0; i < plan->num_copies && index == 0; i++) {
    b->copies[b->num_copies++] = plan->copies[i].copy;
  }
  return b->num_reqs;
}

/* A lost draft device: the guesses of this plan are as good as any, and no more are made. */
static void give_up(engine_t *e) {
  e->scheduler->options.draft.tokens_max = 0;
  if (e->options.log != NULL)
    e->options.log(e->options.context, "the draft model failed: no more guesses");
}

void drafter_swap(engine_t *e) {
  const plan_t *plan = &e->scheduler->plan;
  const drafter_t *d = e->drafter;
  if (d == NULL || e->scheduler->options.draft.tokens_max == 0) return;
  if (plan->num_swap_out > 0) e->ops->swap->out(d->device, plan->swaps, plan->num_swap_out);
  if (plan->num_swap_in > 0) e->ops->swap->in(d->device, plan->swaps, plan->num_swap_in);
}

void drafter_guess(engine_t *e, flight_t *f) {
  drafter_t *d = e->drafter;
  error_t error;
  if (d == NULL || e->scheduler->options.draft.tokens_max == 0) return;
  for (int32_t index = 0;; index++) {
    int32_t rows = build(d, &f->plan, index);
    if (rows == 0) return;
    e->ops->begin(d->device, d->batch);
    model_forward(d->model, d->batch);
    engine_draw(e, d->device, d->model, d->rows, rows);
    bool failed = e->ops->end(d->device, &error) != 0;
    for (int32_t r = 0; r < rows; r++) {
      const sequence_t *q = f->plan.entries[d->entries[r]].sequence;
      int32_t id = failed || d->results[r].status ? 0 : d->results[r].id;
      q->tokens[sequence_num_tokens(q) + index] = id;
    }
    if (failed) give_up(e);
  }
}

void drafter_mirror(engine_t *e, const flight_t *f) {
  drafter_t *d = e->drafter;
  error_t error;
  if (d == NULL || e->scheduler->options.draft.tokens_max == 0) return;
  e->ops->begin(d->device, f->batch);
  model_forward(d->model, f->batch);
  if (e->ops->end(d->device, &error) != 0) give_up(e);
}
