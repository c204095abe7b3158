/* predicts.c: see predicts.h. */
#include "tests/sim/predicts.h"

#include "tests/sim/oracle.h"

#include <string.h>

static uint64_t kept[SIM_CONTEXT_MAX];

bool predicts_runs(const batch_t *batch) {
  const engine_t *engine = sim.engine;
  return !sim.torture && scenario_has(sim.scenario, SIM_MTP) && batch != engine->steps[0].batch;
}

/* The sequence of a row: it was in the step before, or is in the one that is being prepared. */
static const sequence_t *sequence_of(const batch_t *batch, int32_t row) {
  const scheduler_t *scheduler = sim.engine->scheduler;
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    for (const sequence_t *q = &group->sequence; q != NULL; q = q->next) {
      if (sequence_is_live(q) && q->blocks == batch->block_table[row]) return q;
    }
  }
  sim_fail("row %d of the layer that predicts belongs to no sequence", row);
}

void predicts_begin(const batch_t *batch) {
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    const sequence_t *q = sequence_of(batch, r);
    const int32_t bs = batch->block_size;
    for (int32_t t = batch->query_start_loc[r]; t < batch->query_start_loc[r + 1]; t++) {
      const int32_t p = batch->positions[t];
      const int64_t slot = (int64_t)q->blocks[p / bs] * bs + p % bs;
      REQUIRE(p / bs < q->num_blocks && batch->slot_mapping[t] == slot,
              "the layer that predicts writes position %d to slot %lld", p,
              (long long)batch->slot_mapping[t]);
      if (p + 1 >= sequence_num_tokens(q)) continue; /* behind it are draft tokens */
      REQUIRE(batch->input_ids[t] == check_stream(q)->ids[p + 1],
              "the layer that predicts is given token %d behind position %d, it must be %d",
              batch->input_ids[t], p, check_stream(q)->ids[p + 1]);
    }
  }
}

void predicts_read(float *row, int32_t width, uint64_t prefix) {
  memset(row, 0, (size_t)width * sizeof *row);
  memcpy(row, &prefix, sizeof prefix);
}

/* Behind the known tokens a row follows from the draft token before it. */
static uint64_t prefix_at(const batch_t *batch, int32_t row, int32_t position) {
  const sequence_t *q = sequence_of(batch, row);
  const int32_t known = sequence_num_tokens(q);
  uint64_t prefix = check_stream(q)->hash[position < known ? position : known - 1];
  for (int32_t p = known; p <= position; p++) prefix = oracle_extend(prefix, q->tokens[p]);
  return prefix;
}

void predicts_take(const batch_t *batch, const float *rows, int32_t width) {
  for (int32_t t = 0; t < batch->num_tokens; t++) {
    uint64_t prefix, right = prefix_at(batch, batch->request_row[t], batch->positions[t]);
    memcpy(&prefix, rows + (size_t)width * (size_t)t, sizeof prefix);
    const uint64_t behind = oracle_extend(right, batch->input_ids[t]);
    REQUIRE(prefix == right || prefix == behind,
            "the layer that predicts is given a wrong row behind position %d", batch->positions[t]);
    for (int32_t i = 0; i < batch->num_selected; i++) {
      if (batch->selected_token_indices[i] == t) kept[i] = behind;
    }
  }
}

uint64_t predicts_kept(int32_t index) {
  return kept[index];
}
