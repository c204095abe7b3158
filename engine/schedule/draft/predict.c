/* predict.c: drafts by a layer that predicts; the contract is in predict.h.
 *
 * Engine thread; between the steps of the model, on its device. If that fails no more draft tokens
 * are made; the next step of the model says that the device is lost.
 */
#include "engine/schedule/draft/predict.h"

#include "engine/base/clock.h"
#include "engine/base/util.h"
#include "engine/internal.h"
#include "engine/model/forward/eagle.h"
#include "engine/schedule/table.h"

#include <stdlib.h>
#include <string.h>

struct predictor {
  model_t *model; /* that has the layer: the engine's, or a head, of EAGLE-3 */
  device_t *device;
  bool is_head;
  int32_t hidden, width;    /* columns of a row that left the layer; of a row of the model */
  batch_t *batch;           /* tokens of a whole step, or one token of each sequence */
  float *rows;              /* [tokens_max, width] of the tokens of the batch */
  float *outs;              /* [max_num_seqs, h] of its selected rows */
  float *kept;              /* [rows of the scheduler, h] behind the last known token */
  float *ahead;             /* [max_num_seqs, h] by entry of the plan: behind its last draft */
  sample_row_t *draws;      /* [max_num_seqs] */
  sample_result_t *results; /* [max_num_seqs] */
  int32_t *entries;         /* [max_num_seqs] index of the plan entry of each row */
  int32_t *tables; /* [max_num_seqs, stride] blocks of an entry that computes a prompt, before its
                    * step; NULL without a prefix cache */
};

/* ---- set-up ---- */

int predictor_read(engine_t *engine, inferd_error_t *error) {
  const engine_options_t *options = &engine->options;
  const char *why = NULL;
  if (engine->blueprint.eagle.target_size > 0)
    return error_set(
        error, ERR_CONFIGURATION, "model",
        "%s is a head that drafts for another model, whose speculative_model it may be",
        engine->blueprint.architecture);
  if (!options->draft.predicts || drafter_is_head(engine)) return 0;
  if (options->draft.tokens_max == 0)
    why = "num_speculative_tokens is 0; it must be 1 to 15";
  else if (options->draft_model_dir != NULL)
    why = "speculative_model is given too";
  if (why != NULL)
    return error_set(error, ERR_CONFIGURATION, "speculative_method",
                     "speculative_method is mtp, and %s", why);
  return mtp_choose(engine->ops, &engine->blueprint, error);
}

int predictor_new(engine_t *engine, const step_limits_t *limits, int32_t block_size,
                  inferd_error_t *error) {
  if (!engine->options.draft.predicts) return 0;
  predictor_t *predictor = engine->predictor = calloc(1, sizeof *predictor);
  if (predictor == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for drafts");
  const size_t seqs = (size_t)engine->options.max_num_seqs, tokens = (size_t)limits->tokens_max;
  const size_t width = (size_t)engine->blueprint.hidden_size * sizeof(float);
  predictor->model = engine->model;
  predictor->device = engine->device;
  predictor->is_head = drafter_is_head(engine);
  if (predictor->is_head) predictor->model = drafter_head(engine, &predictor->device);
  predictor->hidden = engine->blueprint.hidden_size; /* also of a head: eagle_check */
  predictor->width = predictor->hidden * (predictor->is_head ? EAGLE_LAYERS : 1);
  predictor->rows = calloc(tokens, (size_t)predictor->width * sizeof(float));
  predictor->outs = calloc(seqs, width);
  predictor->kept = calloc((size_t)scheduler_num_rows(engine->options.max_num_seqs), width);
  predictor->ahead = calloc(seqs, width);
  predictor->draws = calloc(seqs, sizeof *predictor->draws);
  predictor->results = calloc(seqs, sizeof *predictor->results);
  predictor->entries = calloc(seqs, sizeof *predictor->entries);
  const int32_t stride = DIV_UP(limits->max_model_len, block_size);
  const bool caches = engine->options.enable_prefix_caching;
  if (caches) predictor->tables = calloc(seqs * (size_t)stride, sizeof *predictor->tables);
  bool complete = predictor->rows != NULL && predictor->outs != NULL && predictor->kept != NULL &&
                  predictor->ahead != NULL && predictor->draws != NULL &&
                  predictor->results != NULL && predictor->entries != NULL &&
                  caches == (predictor->tables != NULL) &&
                  batch_new(limits->tokens_max, engine->options.max_num_seqs, block_size, stride, 1,
                            &predictor->batch) == 0;
  return complete ? 0 : error_set(error, ERR_NO_MEMORY, NULL, "no memory for drafts");
}

void predictor_free(engine_t *engine) {
  predictor_t *predictor = engine->predictor;
  if (predictor == NULL) return;
  batch_free(predictor->batch);
  free(predictor->rows);
  free(predictor->outs);
  free(predictor->kept);
  free(predictor->ahead);
  free(predictor->draws);
  free(predictor->results);
  free(predictor->entries);
  free(predictor->tables);
  free(predictor);
}

/* ---- batches ---- */

static float *row_at(const predictor_t *predictor, float *rows, int32_t row) {
  return rows + (size_t)predictor->hidden * (size_t)row;
}

static void copy_row(const predictor_t *predictor, float *to, const float *from) {
  memcpy(to, from, (size_t)predictor->hidden * sizeof *to);
}

static void begin_batch(batch_t *batch) {
  batch->num_tokens = batch->num_reqs = batch->num_selected = batch->num_copies = 0;
  batch->num_adapted = batch->num_state_copies = batch->num_state_saves = 0;
  batch->max_query_len = batch->max_seq_len = 0;
}

/* Adds the places [first, first + count) of a sequence, which lie in these blocks, each with the
 * token behind it, and selects the last one. */
static void add_places(batch_t *batch, const sequence_t *seq, const int32_t *blocks, int32_t first,
                       int32_t count) {
  const int32_t r = batch->num_reqs++, block_size = batch->block_size;
  batch->query_start_loc[r] = batch->num_tokens;
  batch->num_computed_tokens[r] = first;
  batch->seq_lens[r] = first + count;
  batch->block_table[r] = blocks;
  batch->do_sample[r] = 1;
  for (int32_t p = first; p < first + count; p++) {
    const int32_t t = batch->num_tokens++;
    batch->input_ids[t] = table_id(seq, p + 1);
    batch->positions[t] = p;
    batch->request_row[t] = r;
    batch->slot_mapping[t] = (int64_t)blocks[p / block_size] * block_size + p % block_size;
  }
  batch->query_start_loc[r + 1] = batch->num_tokens;
  batch->selected_token_indices[r] = batch->num_tokens - 1;
  batch->selected_row[r] = r;
  batch->selected_target[r] = -1;
  batch->num_selected++;
  batch->max_query_len = MAX(batch->max_query_len, count);
  batch->max_seq_len = MAX(batch->max_seq_len, first + count);
}

static void give_up(engine_t *engine) {
  engine->scheduler->options.draft.tokens_max = 0;
  engine_say(engine, "the layer that predicts failed: no more draft tokens");
}

/* Runs the layer over the batch: from rows of the model, or (not of_target) that left the layer. */
static void run_layer(const predictor_t *predictor, bool of_target) {
  if (predictor->is_head)
    eagle_forward(predictor->model, predictor->batch, predictor->rows, of_target, predictor->outs);
  else
    mtp_forward(predictor->model, predictor->batch, predictor->rows, predictor->outs);
}

/* ---- after a step ---- */

static int32_t *table_at(const predictor_t *predictor, int32_t entry) {
  return predictor->tables + (size_t)predictor->batch->block_table_stride * (size_t)entry;
}

/* Whether an entry computes a prompt, whose blocks others may find when it has ended. */
static bool is_prompt(const plan_entry_t *entry) {
  const sequence_t *seq = entry->sequence;
  return seq == &seq->group->sequence && entry->num_computed < seq->num_prompt_tokens;
}

/* Before a step: its sequences may end with it, and then have no blocks. */
static void keep_tables(const predictor_t *predictor, const plan_t *plan) {
  for (int32_t i = 0; i < plan->num_entries && predictor->tables != NULL; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    const int32_t end = entry->num_computed + entry->num_tokens;
    const size_t count = (size_t)DIV_UP(end, predictor->batch->block_size);
    if (is_prompt(entry)) memcpy(table_at(predictor, i), entry->blocks, count * sizeof(int32_t));
  }
}

/* Tokens of the entry that the layer can follow: the next token of each is known. Of beams, whose
 * further tokens change places, and if the sequence has ended, they are those of the prompt. Of one
 * that ended before the commit there are none: its request is the client's again. */
static int32_t count_followed(const predictor_t *predictor, const plan_entry_t *entry) {
  const sequence_t *seq = entry->sequence;
  const bool is_live = plan_entry_live(entry);
  if (!entry->committed) return 0;
  if (is_live ? seq->status != SEQUENCE_RUNNING : predictor->tables == NULL || !is_prompt(entry))
    return 0;
  const bool has_beams = seq->group->request->params.beam_width > 0;
  const int32_t known = is_live && !has_beams ? sequence_num_tokens(seq) : seq->num_prompt_tokens;
  return MIN(entry->num_tokens, known - 1 - entry->num_computed);
}

void predictor_follow(engine_t *engine, const step_t *step) {
  predictor_t *predictor = engine->predictor;
  inferd_error_t error;
  if (predictor == NULL || engine->scheduler->options.draft.tokens_max == 0) return;
  batch_t *batch = predictor->batch;
  const float *kept = predictor->is_head ? eagle_rows(engine->model) : mtp_rows(predictor->model);
  const size_t width = (size_t)predictor->width;
  begin_batch(batch);
  for (int32_t r = 0; r < step->plan.num_entries; r++) {
    const plan_entry_t *entry = &step->plan.entries[r];
    const int32_t count = count_followed(predictor, entry), t = batch->num_tokens;
    if (count <= 0) continue;
    predictor->entries[batch->num_reqs] = r;
    /* no plan has given the blocks of one that has ended to another yet */
    const int32_t *blocks = entry->sequence->blocks;
    if (!plan_entry_live(entry)) blocks = table_at(predictor, r);
    add_places(batch, entry->sequence, blocks, entry->num_computed, count);
    const size_t first = (size_t)step->batch->query_start_loc[r];
    memcpy(predictor->rows + (size_t)t * width, kept + first * width,
           (size_t)count * width * sizeof(float));
  }
  if (batch->num_reqs == 0) return;
  engine->ops->begin(predictor->device, batch);
  run_layer(predictor, true);
  if (engine->ops->end(predictor->device, &error) != 0) {
    give_up(engine);
    return;
  }
  for (int32_t i = 0; i < batch->num_reqs; i++) {
    const plan_entry_t *entry = &step->plan.entries[predictor->entries[i]];
    sequence_t *seq = entry->sequence;
    if (!plan_entry_live(entry)) continue;
    copy_row(predictor, row_at(predictor, predictor->kept, seq->row),
             row_at(predictor, predictor->outs, i));
    seq->drafts.history.followed = batch->seq_lens[i] + 1;
  }
}

/* ---- before a step ---- */

/* The batch that draws draft token number `index` of every sequence which has so many: from the row
 * that is kept, or (index > 0) behind the draft token before. Returns the number of rows. The first
 * batch has the copies of blocks that the step begins with, for the cache of a head. */
static int32_t build(predictor_t *predictor, const plan_t *plan, int32_t index) {
  batch_t *batch = predictor->batch;
  begin_batch(batch);
  for (int32_t i = 0; predictor->is_head && index == 0 && i < plan->num_copies; i++)
    batch->copies[batch->num_copies++] = plan->copies[i].copy;
  for (int32_t i = 0; i < plan->num_entries; i++) {
    const plan_entry_t *entry = &plan->entries[i];
    const int32_t r = batch->num_reqs;
    if (entry->num_drafts <= index || entry->drafts_known) continue;
    const float *from = index > 0 ? row_at(predictor, predictor->ahead, i)
                                  : row_at(predictor, predictor->kept, entry->sequence->row);
    copy_row(predictor, row_at(predictor, predictor->rows, r), from);
    predictor->entries[r] = i;
    predictor->draws[r] = drafter_row(entry, index, &predictor->results[r]);
    add_places(batch, entry->sequence, entry->blocks,
               sequence_num_tokens(entry->sequence) - 2 + index, 1);
  }
  return batch->num_reqs;
}

/* Nothing drafts in this step. */
static void copy_blocks(engine_t *engine) {
  const predictor_t *predictor = engine->predictor;
  inferd_error_t error;
  if (predictor->batch->num_copies == 0) return;
  engine->ops->begin(predictor->device, predictor->batch);
  if (engine->ops->end(predictor->device, &error) != 0) give_up(engine);
}

void predictor_propose(engine_t *engine, step_t *step) {
  predictor_t *predictor = engine->predictor;
  inferd_error_t error;
  if (predictor == NULL || engine->scheduler->options.draft.tokens_max == 0) return;
  keep_tables(predictor, &step->plan);
  for (int32_t index = 0;; index++) {
    const int32_t count = build(predictor, &step->plan, index);
    const uint64_t begun_ns = clock_now_ns();
    const float *rows = predictor->rows;
    if (count == 0 && index == 0) copy_blocks(engine);
    if (count == 0) return;
    engine->ops->begin(predictor->device, predictor->batch);
    if (index > 0) {
      run_layer(predictor, false);
      rows = predictor->outs;
    }
    if (predictor->is_head)
      eagle_head(predictor->model, rows, count);
    else
      mtp_head(predictor->model, rows, count);
    engine_draw(engine, predictor->device, predictor->model, predictor->draws, count);
    bool failed = engine->ops->end(predictor->device, &error) != 0;
    for (int32_t r = 0; r < count; r++) {
      const int32_t i = predictor->entries[r];
      const sequence_t *seq = step->plan.entries[i].sequence;
      const int32_t id = failed || predictor->results[r].status ? 0 : predictor->results[r].id;
      seq->tokens[sequence_num_tokens(seq) + index] = id;
      copy_row(predictor, row_at(predictor, predictor->ahead, i),
               rows + (size_t)predictor->hidden * (size_t)r);
    }
    if (failed) give_up(engine);
    const double ns = (double)(clock_now_ns() - begun_ns);
    scheduler_note_drafts(engine->scheduler, lane_time(engine->lane, JOURNAL_DRAFT_TIME, ns));
  }
}
