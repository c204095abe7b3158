/* warm_up.c: warm-up runs: the steps that a back end asks for before READY.
 *
 * Engine thread, in engine_start, after memory is taken. A warm-up run is a step without a plan. It
 * has some sequences of one token each, or of more, as decodes with draft tokens have; the last
 * runs have a chunk of a prompt, so that kernels for few rows and for many are loaded before READY.
 * It writes to no slot, reads the null block and samples greedily; the drawn tokens are not used.
 * Then the draft model has runs of its own: steps that draw a token for each sequence, and steps
 * that draw nothing, as those that it repeats, and chunks. All ranks run the same ones, without
 * packets. The first warm-up run is the first step of the device, so a model that the device cannot
 * run fails here and not in a request.
 */
#include "engine/internal.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/ranks/follow.h"

#include <stdlib.h>

/* Of the chunks: kernels for few rows take 8, 16 or 32. */
static const int32_t CHUNKS[] = {33, 32, 16};

static void describe_token(batch_t *batch, int32_t token, int32_t row) {
  batch->input_ids[token] = batch->positions[token] = 0;
  batch->request_row[token] = batch->selected_row[token] = row;
  batch->selected_token_indices[token] = token;
  batch->selected_target[token] = -1;
  for (int32_t g = 0; g < batch->num_groups; g++)
    batch->slot_mapping[g * batch->slots_stride + token] = -1;
}

/* Fills the batch with `tokens`, spread evenly over as many sequences as may be. `no_blocks` is a
 * block table of null blocks; NULL = the batch has such tables. */
static void describe(batch_t *batch, int32_t tokens, int32_t seqs_max, const int32_t *no_blocks) {
  static const int32_t no_source[1] = {0};
  const int32_t rows = MIN(tokens, seqs_max);
  batch->num_tokens = batch->num_selected = tokens;
  batch->num_reqs = rows;
  batch->num_copies = batch->num_adapted = 0;
  batch->max_query_len = batch->max_seq_len = DIV_UP(tokens, rows);
  for (int32_t r = 0; r < rows; r++) {
    const int32_t first = (int32_t)((int64_t)tokens * r / rows);
    const int32_t next = (int32_t)((int64_t)tokens * (r + 1) / rows);
    for (int32_t t = first; t < next; t++) describe_token(batch, t, r);
    batch->query_start_loc[r] = first;
    batch->num_computed_tokens[r] = 0;
    batch->seq_lens[r] = next - first;
    if (no_blocks != NULL) batch->block_table[r] = no_blocks;
    if (batch->cross_table != NULL) batch->cross_table[r] = no_source;
    if (batch->cross_table != NULL) batch->cross_lens[r] = 1;
    batch->do_sample[r] = 1;
    batch->state_slots[r] = 0;
  }
  batch->query_start_loc[rows] = tokens;
}

/* One sequence with a chunk of a prompt, behind a copy of no rows. */
static void describe_chunk(const engine_t *engine, batch_t *batch, int32_t tokens,
                           const int32_t *no_blocks) {
  const int32_t room = batch->block_table_stride * batch->block_size;
  const int32_t most = MIN(engine->options.max_num_batched_tokens, room);
  describe(batch, MIN(tokens, most), 1, no_blocks);
  batch->num_selected = 1;
  batch->num_copies = 1;
  batch->copies[0] = (block_copy_t){0};
}

/* Makes every token use adapter slot 1, which may be empty. */
static void adapt(batch_t *batch, int32_t rows) {
  for (int32_t r = 0; r < rows; r++) batch->adapters[r] = 1;
  batch->num_adapted = rows;
}

/* A step of rank 0, which draws, or of the draft model. */
static int run_step(engine_t *engine, device_t *device, model_t *model, int32_t rows,
                    inferd_error_t *error) {
  const step_t *step = &engine->steps[0];
  static const sampling_params_t greedy = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
  static const int32_t prompt[1] = {0};
  for (int32_t i = 0; i < rows; i++) {
    step->sample_rows[i] = (sample_row_t){.params = &greedy,
                                          .score_id = -1,
                                          .num_top = -1,
                                          .prompt_ids = prompt,
                                          .num_prompt = 1,
                                          .output_ids = prompt + 1,
                                          .result = &step->sample_results[i]};
  }
  engine->ops->begin(device, step->batch);
  model_forward(model, step->batch);
  engine_draw(engine, device, model, step->sample_rows, rows);
  return engine->ops->end(device, error);
}

static int run_rows(engine_t *engine, int32_t rows, inferd_error_t *error) {
  if (!engine_follows(engine)) return run_step(engine, engine->device, engine->model, rows, error);
  engine_follow_step(engine);
  return engine->ops->end(engine->device, error);
}

/* The draft model draws one token for each sequence, and repeats steps without a draw. */
static int run_drafter(engine_t *engine, const int32_t *no_blocks, inferd_error_t *error) {
  const int32_t seqs = engine->options.max_num_seqs;
  device_t *device = drafter_device(engine);
  batch_t *batch = engine->steps[0].batch;
  int code = 0;
  for (int32_t index = 0; device != NULL && code == 0; index++) {
    const int32_t rows = engine->ops->warm_up_rows(device, index);
    if (rows == 0) break;
    CHECK_LE(rows, engine->options.max_num_batched_tokens);
    const int32_t drawn = index == 0 ? MIN(rows, seqs) : rows; /* the first run has every kernel */
    describe(batch, drawn, seqs, no_blocks);
    if (drawn <= seqs) code = run_step(engine, device, drafter_model(engine), drawn, error);
    describe(batch, rows, seqs, no_blocks);
    batch->num_selected = 0;
    if (code == 0) code = run_step(engine, device, drafter_model(engine), 0, error);
  }
  for (size_t i = 0; device != NULL && code == 0 && i < ARRAY_LEN(CHUNKS); i++) {
    describe_chunk(engine, batch, CHUNKS[i], no_blocks);
    code = run_step(engine, device, drafter_model(engine), 1, error);
  }
  return code;
}

int engine_warm_up(engine_t *engine, inferd_error_t *error) {
  if (engine->ops->warm_up_rows == NULL) return 0;
  const bool follows = engine_follows(engine);
  batch_t *batch = follows ? engine->packets.batch : engine->steps[0].batch;
  int32_t *no_blocks = NULL;
  int code = 0;
  if (!follows) no_blocks = calloc((size_t)engine->scheduler->row_stride, sizeof *no_blocks);
  if (!follows && no_blocks == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a warm-up run");
  for (int32_t index = 0; code == 0; index++) {
    int32_t rows = engine->ops->warm_up_rows(engine->device, index);
    if (rows == 0) break;
    CHECK_GE(rows, 1);
    CHECK_LE(rows, engine->options.max_num_batched_tokens);
    describe(batch, rows, engine->options.max_num_seqs, no_blocks);
    code = run_rows(engine, rows, error);
    if (code || engine->options.max_loras == 0) continue;
    adapt(batch, rows);
    code = run_rows(engine, rows, error);
  }
  for (size_t i = 0; code == 0 && i < ARRAY_LEN(CHUNKS); i++) {
    describe_chunk(engine, batch, CHUNKS[i], no_blocks);
    code = run_rows(engine, 1, error);
  }
  if (code == 0) code = run_drafter(engine, no_blocks, error);
  free(no_blocks);
  return code;
}
