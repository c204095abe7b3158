/* predicts.c: see predicts.h. */
#include "tests/sim/predicts.h"

#include "tests/sim/oracle.h"

#include <string.h>

static uint64_t kept[SIM_CONTEXT_MAX];

bool predicts_runs(const batch_t *batch) {
  const engine_t *engine = sim.engine;
  return !sim.torture && scenario_has(sim.scenario, SIM_MTP) && batch != engine->steps[0].batch;
}

/* The sequence of a row whose prompt the step before has computed, and that has ended with it. */
static const sequence_t *ended_at(const batch_t *batch, int32_t row) {
  const step_t *step = &sim.engine->steps[0];
  const batch_t *before = step->batch;
  const int32_t first = batch->query_start_loc[row];
  for (int32_t r = 0; r < step->plan.num_entries; r++) {
    const plan_entry_t *entry = &step->plan.entries[r];
    const int64_t *slots = &before->slot_mapping[before->query_start_loc[r]];
    const int32_t count = batch->query_start_loc[row + 1] - first;
    if (plan_entry_live(entry) || slots[0] != batch->slot_mapping[first]) continue;
    size_t bytes = (size_t)count * sizeof *slots;
    REQUIRE(count <= entry->num_tokens && memcmp(slots, &batch->slot_mapping[first], bytes) == 0,
            "the layer that predicts writes elsewhere than the step before");
    return entry->sequence;
  }
  sim_fail("row %d of the layer that predicts belongs to no sequence", row);
}

/* The sequence of a row: it was in the step before, or is in the one that is being prepared. */
static const sequence_t *sequence_of(const batch_t *batch, int32_t row) {
  const scheduler_t *scheduler = sim.engine->scheduler;
  for (const group_t *group = scheduler->running.head; group != NULL; group = group->next) {
    for (const sequence_t *q = &group->sequence; q != NULL; q = q->next) {
      if (sequence_is_live(q) && q->blocks == batch->block_table[row]) return q;
    }
  }
  return ended_at(batch, row);
}

/* Whether only the prompt of the sequence is followed. */
static bool is_prompt_only(const sequence_t *q) {
  return !sequence_is_live(q) || q->group->request->params.beam_width > 0;
}

void predicts_begin(const batch_t *batch) {
  for (int32_t r = 0; r < batch->num_reqs; r++) {
    const sequence_t *q = sequence_of(batch, r);
    const int32_t bs = batch->block_size;
    for (int32_t t = batch->query_start_loc[r]; t < batch->query_start_loc[r + 1]; t++) {
      const int32_t p = batch->positions[t];
      const int64_t slot =
          sequence_is_live(q) ? (int64_t)q->blocks[p / bs] * bs + p % bs : batch->slot_mapping[t];
      REQUIRE(batch->slot_mapping[t] == slot && (p / bs < q->num_blocks || !sequence_is_live(q)),
              "the layer that predicts writes position %d to slot %lld", p,
              (long long)batch->slot_mapping[t]);
      if (p + 1 >= sequence_num_tokens(q)) continue; /* behind it are draft tokens */
      const int32_t *ids = is_prompt_only(q) ? q->group->request->prompt_ids : check_stream(q)->ids;
      REQUIRE(p + 1 < q->num_prompt_tokens || !is_prompt_only(q),
              "the layer that predicts is given position %d, behind a prompt of %d", p,
              q->num_prompt_tokens);
      REQUIRE(batch->input_ids[t] == ids[p + 1],
              "the layer that predicts is given token %d behind position %d, it must be %d",
              batch->input_ids[t], p, ids[p + 1]);
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
  if (is_prompt_only(q)) {
    const script_t *script = check_track(q)->script;
    uint64_t hash = oracle_start(script);
    for (int32_t p = 0; p <= position; p++)
      hash = oracle_extend(oracle_before(script, hash, p), q->group->request->prompt_ids[p]);
    return hash;
  }
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
