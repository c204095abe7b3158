/* rig.h: one row of the sampler with sensible defaults, for the tests of this room. */
#ifndef INFERD_TESTS_ENGINE_SAMPLE_RIG_H
#define INFERD_TESTS_ENGINE_SAMPLE_RIG_H

#include "engine/device/sampling_params.h"
#include "engine/sample/sampler.h"

/* Everything that a call needs; rig_run copies the logits, so that a row can run many times. */
typedef struct rig {
  const float *logits; /* [vocab] */
  int32_t vocab;
  sampling_params_t params;
  sample_row_t row;
  sample_result_t result;
  token_logprob_t top[SAMPLE_TOP_MAX]; /* of the result */
} rig_t;

/* T 1, no filter, no change, no logprobs, key 1, position 0. */
rig_t rig_new(const float *logits, int32_t vocab);

/* Runs every variant of the loops, demands equal results bit for bit, returns the id. Logits and
 * scratch stand in blocks of exactly their size; the scratch is filled with garbage before. */
int32_t rig_run(rig_t *rig);

/* Is `other`, whose bytes and those of its `top` were 0xC7 before, the rig's result bit for bit? */
bool rig_equal(const rig_t *rig, const sample_result_t *other);

#endif
