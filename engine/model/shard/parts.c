/* parts.c: tokens of a batch as a batch of their own; see parts.h. */
#include "engine/model/shard/parts.h"

#include "engine/base/util.h"

#include <stdlib.h>

/* Fewer tokens read each weight nearly as long; more parts than these keep stages no busier. */
enum { PART_TOKENS_MIN = 16, PARTS_OF_A_STAGE = 4 };

int parts_new(const step_limits_t *limits, step_parts_t **out) {
  const size_t count = (size_t)limits->reqs_max + 1;
  step_parts_t *parts = calloc(1, sizeof *parts);
  *out = parts;
  if (parts == NULL) return -1;
  parts->query_start_loc = calloc(count, sizeof *parts->query_start_loc);
  parts->num_computed_tokens = calloc(count, sizeof *parts->num_computed_tokens);
  parts->seq_lens = calloc(count, sizeof *parts->seq_lens);
  if (parts->query_start_loc != NULL && parts->num_computed_tokens != NULL &&
      parts->seq_lens != NULL)
    return 0;
  parts_free(parts);
  *out = NULL;
  return -1;
}

void parts_free(step_parts_t *parts) {
  if (parts == NULL) return;
  free(parts->query_start_loc);
  free(parts->num_computed_tokens);
  free(parts->seq_lens);
  free(parts);
}

int32_t parts_count(int32_t num_tokens, int32_t num_stages) {
  int32_t count = MIN(num_tokens / PART_TOKENS_MIN, PARTS_OF_A_STAGE * num_stages);
  return MAX(count, 1);
}

int32_t parts_begin(int32_t num_tokens, int32_t count, int32_t index) {
  return (int32_t)((int64_t)num_tokens * index / count);
}

void parts_take(step_parts_t *parts, const batch_t *whole, int32_t count, int32_t index) {
  const int32_t first = parts_begin(whole->num_tokens, count, index);
  const int32_t end = parts_begin(whole->num_tokens, count, index + 1);
  batch_t *part = &parts->batch;
  int32_t row = 0, num_rows = 0, longest = 0, furthest = 0;
  while (whole->query_start_loc[row + 1] <= first) row++;
  *part = *whole;
  for (int32_t r = row; r < whole->num_reqs && whole->query_start_loc[r] < end; r++, num_rows++) {
    const int32_t from = MAX(whole->query_start_loc[r], first);
    const int32_t until = MIN(whole->query_start_loc[r + 1], end);
    const int32_t computed = whole->num_computed_tokens[r] + from - whole->query_start_loc[r];
    parts->query_start_loc[num_rows] = from - first;
    parts->num_computed_tokens[num_rows] = computed;
    parts->seq_lens[num_rows] = computed + until - from;
    longest = MAX(longest, until - from);
    furthest = MAX(furthest, computed + until - from);
  }
  parts->query_start_loc[num_rows] = end - first;
  part->num_tokens = end - first;
  part->num_reqs = num_rows;
  part->max_query_len = longest;
  part->max_seq_len = furthest;
  part->input_ids += first;
  part->positions += first;
  part->token_types += first;
  part->slot_mapping += first;
  if (part->num_adapted > 0) part->adapters += first;
  part->request_row = NULL; /* numbers of rows of the whole batch */
  part->query_start_loc = parts->query_start_loc;
  part->num_computed_tokens = parts->num_computed_tokens;
  part->seq_lens = parts->seq_lens;
  part->block_table += row;
  part->num_selected = part->num_copies = 0;
}
