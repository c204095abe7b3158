/* batch.c: stage 5 of 9, plan -> input_ids, positions, slot_mapping, query_start_loc, seq_lens,
 * block_table, selected rows.
 *
 * Engine thread only; allocates in batch_new and never again. Next: engine/model/model.c.
 */
#include "engine/device/batch.h"

#include "engine/schedule/scheduler.h"

#include <stdlib.h>

int batch_new(int32_t tokens_max, int32_t reqs_max, int32_t block_size, int32_t block_table_stride,
              batch_t **out) {
  batch_t *b = calloc(1, sizeof *b);
  if (b == NULL) return -1;
  size_t t = (size_t)tokens_max, r = (size_t)reqs_max;
  b->block_size = block_size;
  b->block_table_stride = block_table_stride;
  b->input_ids = calloc(t, sizeof *b->input_ids);
  b->positions = calloc(t, sizeof *b->positions);
  b->request_row = calloc(t, sizeof *b->request_row);
  b->slot_mapping = calloc(t, sizeof *b->slot_mapping);
  b->adapters = calloc(t, sizeof *b->adapters);
  b->query_start_loc = calloc(r + 1, sizeof *b->query_start_loc);
  b->num_computed_tokens = calloc(r, sizeof *b->num_computed_tokens);
  b->seq_lens = calloc(r, sizeof *b->seq_lens);
  b->block_table = calloc(r, sizeof *b->block_table);
  b->do_sample = calloc(r, sizeof *b->do_sample);
  b->selected_token_indices = calloc(t + r, sizeof *b->selected_token_indices);
  b->selected_row = calloc(t + r, sizeof *b->selected_row);
  b->selected_sample = calloc(t + r, sizeof *b->selected_sample);
  b->selected_target = calloc(t + r, sizeof *b->selected_target);
  b->copies = calloc(r, sizeof *b->copies);
  bool complete = b->adapters != NULL && b->input_ids != NULL && b->positions != NULL &&
                  b->request_row != NULL && b->slot_mapping != NULL && b->query_start_loc != NULL &&
                  b->num_computed_tokens != NULL && b->seq_lens != NULL && b->block_table != NULL &&
                  b->do_sample != NULL && b->selected_token_indices != NULL &&
                  b->selected_row != NULL && b->selected_sample != NULL &&
                  b->selected_target != NULL && b->copies != NULL;
  if (!complete) {
    batch_free(b);
    return -1;
  }
  *out = b;
  return 0;
}

void batch_free(batch_t *b) {
  if (b == NULL) return;
  free(b->input_ids);
  free(b->positions);
  free(b->request_row);
  free(b->slot_mapping);
  free(b->adapters);
  free(b->query_start_loc);
  free(b->num_computed_tokens);
  free(b->seq_lens);
  free(b->block_table);
  free(b->do_sample);
  free(b->selected_token_indices);
  free(b->selected_row);
  free(b->selected_sample);
  free(b->selected_target);
  free(b->copies);
  free(b);
}

static void select_index(batch_t *b, int32_t index, int32_t row, int32_t target, int32_t sample) {
  b->selected_token_indices[b->num_selected] = index;
  b->selected_row[b->num_selected] = row;
  b->selected_target[b->num_selected] = target;
  b->selected_sample[b->num_selected] = sample;
  b->num_selected++;
}

/* Position p scores the prompt token at p + 1; what was scored before a preemption is not repeated.
 */
static void select_scores(batch_t *b, const plan_entry_t *entry, int32_t row) {
  const sequence_t *q = entry->sequence;
  if (q->group->request->params.num_prompt_logprobs < 0) return;
  int32_t first = b->query_start_loc[row];
  for (int32_t i = 0; i < entry->num_tokens; i++) {
    int32_t scored = entry->num_computed + i + 1;
    if (scored <= q->num_scored || scored >= q->num_prompt_tokens) continue;
    select_index(b, first + i, row, q->tokens[scored], 0);
  }
}

void batch_build(batch_t *b, const plan_t *plan) {
  b->num_tokens = b->num_selected = b->num_copies = b->num_adapted = 0;
  b->num_reqs = plan->num_entries;
  b->max_query_len = b->max_seq_len = 0;
  for (int32_t r = 0; r < plan->num_entries; r++) {
    const plan_entry_t *entry = &plan->entries[r];
    const sequence_t *q = entry->sequence;
    int32_t first = b->num_tokens;
    b->query_start_loc[r] = first;
    b->num_computed_tokens[r] = entry->num_computed;
    b->seq_lens[r] = entry->num_computed + entry->num_tokens;
    b->block_table[r] = q->blocks;
    b->do_sample[r] = entry->do_sample;
    for (int32_t i = 0; i < entry->num_tokens; i++) {
      int32_t position = entry->num_computed + i, t = first + i;
      bool known = position < sequence_num_tokens(q) + entry->num_drafts;
      b->input_ids[t] = known ? q->tokens[position] : -1 - q->sampled_index;
      b->positions[t] = position;
      b->request_row[t] = r;
      b->adapters[t] = q->group->request->adapter;
      b->slot_mapping[t] =
          (int64_t)q->blocks[position / b->block_size] * b->block_size + position % b->block_size;
    }
    b->num_tokens += entry->num_tokens;
    if (q->group->request->adapter > 0) b->num_adapted += entry->num_tokens;
    if (entry->num_tokens > b->max_query_len) b->max_query_len = entry->num_tokens;
    if (b->seq_lens[r] > b->max_seq_len) b->max_seq_len = b->seq_lens[r];
    select_scores(b, entry, r);
    if (entry->do_sample) entry->sequence->sampled_index = b->num_selected;
    int32_t num_samples = entry->do_sample ? group_num_draws(q->group) : 0;
    for (int32_t i = entry->num_drafts; i > 0; i--)
      select_index(b, b->num_tokens - 1 - i, r, -1, 0);
    for (int32_t i = 0; i < num_samples; i++) select_index(b, b->num_tokens - 1, r, -1, i);
  }
  b->query_start_loc[plan->num_entries] = b->num_tokens;
  b->num_copies = plan->num_copies;
  for (int32_t i = 0; i < plan->num_copies; i++) b->copies[i] = plan->copies[i].copy;
}
