/* rig.c: one call of the sampler, on every variant of its loops that this machine can run. */
#include "tests/engine/sample/rig.h"

#include "engine/sample/sampler_work.h"
#include "tests/expect.h"

#include <stdlib.h>
#include <string.h>

rig_t rig_new(const float *logits, int32_t vocab) {
  rig_t rig = {.logits = logits, .vocab = vocab};
  rig.params = (sampling_params_t){.temperature = 1,
                                   .top_p = 1,
                                   .repetition_penalty = 1,
                                   .num_logprobs = -1,
                                   .num_prompt_logprobs = -1};
  rig.row = (sample_row_t){.score_id = -1, .num_top = -1, .rng_key = 1};
  return rig;
}

static void run_variant(rig_t *rig, const sampler_lanes_t *lanes, sample_result_t *result,
                        token_logprob_t *top) {
  float *logits = malloc((size_t)rig->vocab * sizeof *logits);
  size_t bytes = (sampler_scratch_bytes(rig->vocab) + 63) / 64 * 64;
  void *scratch = aligned_alloc(64, bytes);
  memcpy(logits, rig->logits, (size_t)rig->vocab * sizeof *logits);
  memset(scratch, 0xC7, bytes);
  memset(result, 0xC7, sizeof *result);
  memset(top, 0xC7, SAMPLE_TOP_MAX * sizeof *top);
  result->top = top;
  rig->row.params = &rig->params;
  rig->row.result = result;
  sampler_row_on(lanes, logits, rig->vocab, &rig->row, scratch);
  free(logits);
  free(scratch);
}

bool rig_equal(const rig_t *rig, const sample_result_t *other) {
  sample_result_t here;
  memcpy(&here, other, sizeof here); /* with its padding */
  here.top = rig->result.top;
  return memcmp(&here, &rig->result, sizeof here) == 0 &&
         memcmp(other->top, rig->top, sizeof rig->top) == 0;
}

int32_t rig_run(rig_t *rig) {
  const sampler_lanes_t *const *lanes = sampler_lanes_all();
  run_variant(rig, lanes[0], &rig->result, rig->top);
  ASSERT_GE(rig->result.id, 0);
  ASSERT_LT(rig->result.id, rig->vocab);
  for (int i = 1; lanes[i] != NULL; i++) {
    sample_result_t other;
    token_logprob_t top[SAMPLE_TOP_MAX];
    run_variant(rig, lanes[i], &other, top);
    cr_assert(rig_equal(rig, &other), "%s differs from %s: id %d and %d", lanes[i]->name,
              lanes[0]->name, other.id, rig->result.id);
  }
  rig->row.result = &rig->result; /* which a test may fill again */
  return rig->result.id;
}
