/* batch.c: stage 5 of 9, plan -> input_ids, positions, slot_mapping, query_start_loc, seq_lens,
 * block_table, selected rows.
 *
 * Engine thread only; allocates in batch_new only, chooses nothing. Next:
 * engine/model/forward/model.c.
 */
#include "engine/device/batch.h"

#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/schedule/cross_blocks.h"
#include "engine/schedule/image_rows.h"
#include "engine/schedule/table.h"

#include <stdlib.h>

int batch_new(int32_t tokens_max, int32_t reqs_max, int32_t block_size, int32_t block_table_stride,
              int32_t num_groups, batch_t **out) {
  batch_t *batch = calloc(1, sizeof *batch);
  if (batch == NULL) return -1;
  size_t t = (size_t)tokens_max, r = (size_t)reqs_max, g = (size_t)num_groups;
  batch->block_size = block_size;
  batch->block_table_stride = block_table_stride;
  batch->num_groups = num_groups;
  batch->slots_stride = tokens_max;
  batch->input_ids = calloc(t, sizeof *batch->input_ids);
  batch->positions = calloc(t, sizeof *batch->positions);
  batch->request_row = calloc(t, sizeof *batch->request_row);
  batch->token_types = calloc(t, sizeof *batch->token_types);
  batch->slot_mapping = calloc(g * t, sizeof *batch->slot_mapping);
  batch->adapters = calloc(t, sizeof *batch->adapters);
  batch->query_start_loc = calloc(r + 1, sizeof *batch->query_start_loc);
  batch->num_computed_tokens = calloc(r, sizeof *batch->num_computed_tokens);
  batch->seq_lens = calloc(r, sizeof *batch->seq_lens);
  batch->block_table = calloc(r, sizeof *batch->block_table);
  batch->do_sample = calloc(r, sizeof *batch->do_sample);
  batch->selected_token_indices = calloc(t + r, sizeof *batch->selected_token_indices);
  batch->selected_row = calloc(t + r, sizeof *batch->selected_row);
  batch->selected_target = calloc(t + r, sizeof *batch->selected_target);
  batch->copies = calloc(g * r, sizeof *batch->copies);
  batch->state_slots = calloc(r, sizeof *batch->state_slots);
  batch->state_copies = calloc(r, sizeof *batch->state_copies);
  batch->state_saves = calloc(t + r * SNAPSHOTS_OF_ENTRY, sizeof *batch->state_saves);
  bool complete =
      batch->adapters != NULL && batch->input_ids != NULL && batch->positions != NULL &&
      batch->request_row != NULL && batch->token_types != NULL && batch->slot_mapping != NULL &&
      batch->query_start_loc != NULL && batch->num_computed_tokens != NULL &&
      batch->seq_lens != NULL && batch->block_table != NULL && batch->do_sample != NULL &&
      batch->selected_token_indices != NULL && batch->selected_row != NULL &&
      batch->selected_target != NULL && batch->copies != NULL && batch->state_slots != NULL &&
      batch->state_copies != NULL && batch->state_saves != NULL;
  if (!complete) {
    batch_free(batch);
    return -1;
  }
  *out = batch;
  return 0;
}

void batch_free(batch_t *batch) {
  if (batch == NULL) return;
  free(batch->input_ids);
  free(batch->positions);
  free(batch->request_row);
  free(batch->token_types);
  free(batch->slot_mapping);
  free(batch->adapters);
  free(batch->query_start_loc);
  free(batch->num_computed_tokens);
  free(batch->seq_lens);
  free(batch->block_table);
  free(batch->do_sample);
  free(batch->selected_token_indices);
  free(batch->selected_row);
  free(batch->selected_target);
  free(batch->copies);
  free(batch->state_slots);
  free(batch->state_copies);
  free(batch->state_saves);
  free(batch->embedded_tokens);
  free(batch->embedded_rows);
  free(batch->rope_room);
  free(batch->seen_room);
  free(batch->cross_table);
  free(batch->cross_lens);
  free(batch->cross_weights);
  free(batch);
}

int batch_see(batch_t *batch, int32_t tokens_max, image_rows_t *rows, bool whole) {
  const size_t t = (size_t)tokens_max;
  batch->image_rows = rows;
  batch->rope_stride = tokens_max;
  batch->embedded_tokens = calloc(t, sizeof *batch->embedded_tokens);
  batch->embedded_rows = calloc(t, sizeof *batch->embedded_rows);
  batch->rope_room = calloc(3 * t, sizeof *batch->rope_room);
  if (whole) batch->seen_room = calloc(t, sizeof *batch->seen_room);
  bool complete = batch->embedded_tokens != NULL && batch->embedded_rows != NULL &&
                  batch->rope_room != NULL && (!whole || batch->seen_room != NULL);
  return complete ? 0 : -1;
}

int batch_embed(batch_t *batch, int32_t tokens_max) {
  const size_t t = (size_t)tokens_max;
  batch->takes_rows = true;
  if (batch->image_rows != NULL) return 0; /* batch_see has taken them */
  batch->embedded_tokens = calloc(t, sizeof *batch->embedded_tokens);
  batch->embedded_rows = calloc(t, sizeof *batch->embedded_rows);
  return batch->embedded_tokens != NULL && batch->embedded_rows != NULL ? 0 : -1;
}

int batch_cross(batch_t *batch, int32_t reqs_max, cross_blocks_t *blocks) {
  batch->cross_blocks = blocks;
  batch->cross_table = calloc((size_t)reqs_max, sizeof *batch->cross_table);
  batch->cross_lens = calloc((size_t)reqs_max, sizeof *batch->cross_lens);
  batch->cross_weights = calloc((size_t)reqs_max, sizeof *batch->cross_weights);
  const bool complete =
      batch->cross_table != NULL && batch->cross_lens != NULL && batch->cross_weights != NULL;
  return complete ? 0 : -1;
}

static void select_index(batch_t *batch, int32_t index, int32_t row, int32_t target) {
  batch->selected_token_indices[batch->num_selected] = index;
  batch->selected_row[batch->num_selected] = row;
  batch->selected_target[batch->num_selected] = target;
  batch->num_selected++;
}

/* Selects the rows that score prompt tokens: the logits of position p score the token at p + 1. A
 * token that was scored before a preemption is not scored again. */
static void select_scores(batch_t *batch, const plan_entry_t *entry, int32_t row) {
  const sequence_t *seq = entry->sequence;
  if (seq->group->request->params.num_prompt_logprobs < 0) return;
  int32_t first = batch->query_start_loc[row];
  for (int32_t i = 0; i < entry->num_tokens; i++) {
    int32_t scored = entry->num_computed + i + 1;
    if (scored <= seq->num_scored || scored >= seq->num_prompt_tokens) continue;
    select_index(batch, first + i, row, table_id(seq, scored));
  }
}

/* Selects the rows whose hidden states make the vector of a prompt, those that no chunk before a
 * preemption has pooled. */
static void select_pooled(batch_t *batch, const plan_entry_t *entry, int32_t row) {
  const sequence_t *seq = entry->sequence;
  pooling_t pooling = seq->group->request->pooling;
  if (pooling == POOLING_NONE) return;
  int32_t first = pooling == POOLING_LAST ? seq->num_prompt_tokens - 1 : 0;
  int32_t end = pooling == POOLING_CLS ? 1 : seq->num_prompt_tokens;
  for (int32_t i = 0; i < entry->num_tokens; i++) {
    int32_t position = entry->num_computed + i;
    if (position < first || position < seq->num_pooled || position >= end) continue;
    select_index(batch, batch->query_start_loc[row] + i, row, -1);
  }
}

/* The snapshots of an entry, and the states behind its tokens that draft tokens follow. */
static void save_states(batch_t *batch, const plan_entry_t *entry, int32_t row) {
  const entry_states_t *states = entry->states;
  if (states == NULL) return;
  const snapshot_place_t *next = states->snapshots, *end = next + states->num_snapshots;
  int32_t drafts = entry->num_drafts;
  for (int32_t behind = 1; next < end || behind <= drafts; behind++) {
    if (behind > drafts) behind = next->behind;
    if (behind <= drafts)
      batch->state_saves[batch->num_state_saves++] =
          (state_save_t){row, behind, states->drafts[behind - 1]};
    if (next < end && next->behind == behind) {
      batch->state_saves[batch->num_state_saves++] = (state_save_t){row, behind, next->slot};
      next++;
    }
  }
}

static void set_slots(batch_t *batch, int32_t token, int32_t row, int32_t position) {
  int32_t shift = __builtin_ctz((unsigned)batch->block_size); /* a power of two */
  const int32_t *entry = &batch->block_table[row][position >> shift];
  int64_t *slot = &batch->slot_mapping[token];
  for (int32_t g = 0; g < batch->num_groups; g++) {
    *slot = ((int64_t)*entry << shift) + (position & (batch->block_size - 1));
    entry += batch->block_table_stride;
    slot += batch->slots_stride;
  }
}

/* Up to where a token sees its picture, that of the batch which is at `position`. The one before
 * it, if it is of the same run, knows. */
static int32_t find_end(const batch_t *batch, const request_t *request, const image_t *image,
                        int32_t token, int32_t first, int32_t position) {
  if (token > first && batch->seen_room[token - 1] > position) return batch->seen_room[token - 1];
  return image_run_end(image, image_rows_placeholder(batch->image_rows), request->prompt_ids,
                       position);
}

/* How the tokens of an entry, the last of the batch, are rotated, which of them are rows of
 * pictures, and what these see. */
static void see_tokens(batch_t *batch, const plan_entry_t *entry, int32_t first) {
  const request_t *request = entry->sequence->group->request;
  const int32_t stride = batch->rope_stride;
  image_walk_t walk = image_walk_from(request->images, request->num_images,
                                      image_rows_placeholder(batch->image_rows),
                                      request->prompt_ids, entry->num_computed);
  for (int32_t i = 0; i < entry->num_tokens; i++) {
    const int32_t t = first + i;
    const image_token_t token = image_walk_next(&walk, batch->input_ids[t]);
    for (int32_t axis = 0; axis < 3; axis++) batch->rope_room[axis * stride + t] = token.rope[axis];
    if (batch->seen_until != NULL) batch->seen_until[t] = 0;
    if (token.image == NULL) continue;
    if (batch->seen_until != NULL)
      batch->seen_until[t] =
          find_end(batch, request, token.image, t, first, entry->num_computed + i);
    batch->embedded_tokens[batch->num_embedded] = t;
    batch->embedded_rows[batch->num_embedded++] =
        image_rows_use(batch->image_rows, request, token.image, token.row);
  }
}

/* The rows of a prompt of rows that are among the tokens of an entry, the last of the batch. */
static void take_rows(batch_t *batch, const plan_entry_t *entry, int32_t first) {
  const request_t *request = entry->sequence->group->request;
  const prompt_rows_t *rows = request->rows;
  CHECK(batch->takes_rows);
  for (int32_t i = 0; i < entry->num_tokens; i++) {
    const int32_t position = entry->num_computed + i;
    if (position >= request->num_prompt_tokens) return;
    batch->embedded_tokens[batch->num_embedded] = first + i;
    batch->embedded_rows[batch->num_embedded++] = rows->values + (int64_t)position * rows->width;
  }
}

/* Whether a sequence of the plan has pictures. Groups with pictures are not plain. */
static bool sees(const plan_t *plan) {
  for (int32_t r = 0; r < plan->num_entries; r++) {
    const group_t *group = plan->entries[r].sequence->group;
    if (!plan->entries[r].is_next && group->request->num_images > 0) return true;
  }
  return false;
}

/* The encoder's rows that a row sees, and what its request wants of the weights. */
static void cross(batch_t *batch, const plan_entry_t *entry, int32_t row) {
  const request_t *request = entry->sequence->group->request;
  batch->cross_table[row] = cross_blocks_use(batch->cross_blocks, request, &batch->cross_lens[row]);
  batch->cross_weights[row] = request->cross_weights;
  batch->num_weighed += request->cross_weights != NULL;
}

/* The tokens of an entry, and the rows that it selects. */
static void add_tokens(batch_t *batch, plan_entry_t *entry, int32_t row) {
  const sequence_t *seq = entry->sequence;
  const request_t *request = seq->group->request;
  int32_t first = batch->num_tokens, second = request->second_text;
  for (int32_t i = 0; i < entry->num_tokens; i++) {
    int32_t position = entry->num_computed + i, t = first + i;
    /* An id that an in-flight step still draws is a reference to its selected row (batch.h). */
    bool known = position < sequence_num_tokens(seq) + entry->num_drafts;
    batch->input_ids[t] = known ? table_id(seq, position) : entry->last_id;
    batch->positions[t] = position;
    batch->request_row[t] = row;
    batch->token_types[t] = second > 0 && position >= second;
    batch->adapters[t] = position >= request->adapter_from ? request->adapter : 0;
    batch->num_adapted += batch->adapters[t] > 0;
    set_slots(batch, t, row, position);
  }
  batch->num_tokens += entry->num_tokens;
  if (batch->rope_positions != NULL) see_tokens(batch, entry, first);
  if (request->rows != NULL) take_rows(batch, entry, first);
  select_scores(batch, entry, row);
  select_pooled(batch, entry, row);
  entry->first_row = batch->num_selected;
  for (int32_t i = entry->num_drafts; i > 0; i--)
    select_index(batch, batch->num_tokens - 1 - i, row, -1);
  if (entry->do_sample) select_index(batch, batch->num_tokens - 1, row, -1);
}

/* The same for the next token of a plain group. Nothing is read of the sequence. */
static void add_next(batch_t *batch, plan_entry_t *entry, int32_t row) {
  int32_t t = batch->num_tokens++;
  batch->input_ids[t] = entry->last_id;
  batch->positions[t] = entry->num_computed;
  batch->request_row[t] = row;
  batch->token_types[t] = batch->adapters[t] = 0;
  for (int32_t axis = 0; axis < 3 && batch->rope_positions != NULL; axis++)
    batch->rope_room[axis * batch->rope_stride + t] = entry->num_computed;
  if (batch->seen_until != NULL) batch->seen_until[t] = 0;
  set_slots(batch, t, row, entry->num_computed);
  entry->first_row = batch->num_selected;
  select_index(batch, t, row, -1);
}

/* Before entry i is added: what a later one needs. */
static void prefetch_later(const plan_t *plan, int32_t i, int32_t block_shift) {
  if (i + PREFETCH_FAR >= plan->num_entries) return;
  const plan_entry_t *entry = &plan->entries[i + PREFETCH_FAR];
  __builtin_prefetch(&entry->blocks[entry->num_computed >> block_shift]);
  if (!entry->is_next) prefetch_entry(plan, i, GROUP_PLANNED);
}

void batch_build(batch_t *batch, const plan_t *plan) {
  batch->num_tokens = batch->num_selected = batch->num_copies = batch->num_adapted = 0;
  batch->num_state_saves = batch->num_embedded = batch->num_weighed = 0;
  if (batch->image_rows != NULL) image_rows_launch(batch->image_rows);
  if (batch->cross_blocks != NULL) cross_blocks_launch(batch->cross_blocks);
  const bool seeing = batch->image_rows != NULL && sees(plan);
  batch->rope_positions = seeing ? batch->rope_room : NULL;
  batch->seen_until = seeing ? batch->seen_room : NULL;
  batch->num_reqs = plan->num_entries;
  batch->max_query_len = batch->max_seq_len = 0;
  const int32_t shift = __builtin_ctz((unsigned)batch->block_size);
  for (int32_t r = 0; r < plan->num_entries; r++) {
    prefetch_later(plan, r, shift);
    plan_entry_t *entry = &plan->entries[r];
    int32_t first = batch->num_tokens;
    batch->query_start_loc[r] = first;
    batch->num_computed_tokens[r] = entry->num_computed;
    batch->seq_lens[r] = entry->num_computed + entry->num_tokens;
    batch->block_table[r] = entry->blocks;
    batch->do_sample[r] = entry->do_sample;
    batch->state_slots[r] = entry->states != NULL ? entry->sequence->state.slot : 0;
    if (batch->cross_blocks != NULL) cross(batch, entry, r);
    save_states(batch, entry, r);
    batch->max_query_len = MAX(batch->max_query_len, entry->num_tokens);
    batch->max_seq_len = MAX(batch->max_seq_len, batch->seq_lens[r]);
    if (entry->is_next) {
      add_next(batch, entry, r);
    } else {
      add_tokens(batch, entry, r);
    }
  }
  batch->query_start_loc[plan->num_entries] = batch->num_tokens;
  batch->num_copies = plan->num_copies;
  for (int32_t i = 0; i < plan->num_copies; i++) batch->copies[i] = plan->copies[i].copy;
  batch->num_state_copies = plan->num_state_copies;
  for (int32_t i = 0; i < plan->num_state_copies; i++)
    batch->state_copies[i] = plan->state_copies[i];
}
