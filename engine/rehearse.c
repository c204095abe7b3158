/* rehearse.c: the steps that a back end wants to see before READY.
 *
 * Engine thread, at the end of engine_start. A rehearsal is a step of some sequences of one token
 * each, made by hand: it writes to no slot, reads the null block and samples greedily; nobody looks
 * at what it draws. The first one is also the first that a device runs at all, so a model that it
 * cannot run fails here and not in a request.
 */
#include "engine/internal.h"

#include <stdlib.h>

static void describe(batch_t *b, int32_t rows, const int32_t *no_blocks) {
  b->num_tokens = b->num_reqs = b->num_selected = rows;
  b->num_copies = b->num_adapted = 0;
  b->max_query_len = b->max_seq_len = 1;
  for (int32_t r = 0; r < rows; r++) {
    b->input_ids[r] = b->positions[r] = 0;
    b->request_row[r] = b->selected_row[r] = b->selected_token_indices[r] = r;
    b->selected_target[r] = -1;
    b->slot_mapping[r] = -1;
    b->query_start_loc[r] = r;
    b->num_computed_tokens[r] = 0;
    b->seq_lens[r] = 1;
    b->block_table[r] = no_blocks;
    b->do_sample[r] = 1;
  }
  b->query_start_loc[rows] = rows;
}

/* Every token takes the first adapter, if only an empty one. */
static void adapt(batch_t *b, int32_t rows) {
  for (int32_t r = 0; r < rows; r++) b->adapters[r] = 1;
  b->num_adapted = rows;
}

static int run_step(engine_t *e, flight_t *f, int32_t rows, error_t *error) {
  static const sampling_params_t greedy = {.top_p = 1, .repetition_penalty = 1, .num_logprobs = -1};
  static const int32_t prompt[1] = {0};
  for (int32_t i = 0; i < rows; i++) {
    f->sample_rows[i] = (sample_row_t){.params = &greedy,
                                       .score_id = -1,
                                       .num_top = -1,
                                       .prompt_ids = prompt,
                                       .num_prompt = 1,
                                       .output_ids = prompt + 1,
                                       .result = &f->sample_results[i]};
  }
  e->ops->begin(e->device, f->batch);
  model_forward(e->model, f->batch);
  engine_draw(e, e->device, e->model, f->sample_rows, rows);
  return e->ops->end(e->device, error);
}

int engine_rehearse(engine_t *e, error_t *error) {
  if (e->ops->rehearsal == NULL) return 0;
  flight_t *f = &e->flights[0];
  int32_t *no_blocks = calloc((size_t)e->scheduler->table_stride, sizeof *no_blocks);
  if (no_blocks == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for a rehearsal");
  int code = 0;
  for (int32_t index = 0; code == 0; index++) {
    int32_t rows = e->ops->rehearsal(e->device, index);
    if (rows == 0) break;
    CHECK(rows > 0 && rows <= e->options.max_num_seqs);
    describe(f->batch, rows, no_blocks);
    code = run_step(e, f, rows, error);
    if (code || e->options.max_loras == 0) continue;
    adapt(f->batch, rows);
    code = run_step(e, f, rows, error);
  }
  free(no_blocks);
  return code;
}
