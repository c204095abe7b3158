/* sample.h: what the sampler is asked about one distribution, and what it answers (stage 7).
 *
 * Filled by engine/sample/sampling.c, worked off by a back end's `sample` operation (ops.h), read
 * by engine/commit.c. Engine thread, and the back end's workers between launch and `end`.
 */
#ifndef INFERD_ENGINE_DEVICE_SAMPLE_H
#define INFERD_ENGINE_DEVICE_SAMPLE_H

#include "engine/device/sampling_params.h"

/* Most ids that a row may suppress: those of the model and those of the request. */
enum { SUPPRESSED_IDS_MAX = 32 + STOP_TOKEN_IDS_MAX };

enum { SAMPLE_TOP_MAX = LOGPROBS_MAX + LOGPROB_TOKEN_IDS_MAX };

/* One distribution to sample from or to score, stage 7. The arrays stay alive until `end`. */
typedef struct sample_result {
  int32_t id;           /* drawn id, or the scored one */
  int32_t status;       /* 0, or ERR_INTERNAL when the row holds a NaN */
  float logprob;        /* raw log-softmax of id; only if num_top >= 0 */
  int32_t rank;         /* 1-based rank of id in the raw distribution; only if num_top >= 0 */
  int32_t num_top;      /* entries filled in `top` */
  token_logprob_t *top; /* [SAMPLE_TOP_MAX] of the caller; NULL only if no row asks for any */
} sample_result_t;

typedef struct sample_row {
  const sampling_params_t *params;
  int32_t score_id;      /* >= 0: no draw, report this id (prompt logprobs); -1: draw */
  int32_t num_top;       /* alternatives wanted, at most SAMPLE_TOP_MAX; -1 = no logprobs */
  uint64_t rng_key;      /* from (seed, sequence index) */
  uint64_t rng_position; /* output position: the stream is a function of (key, position, id) */
  const int32_t *prompt_ids;
  const int32_t *output_ids;
  int32_t num_prompt, num_output;
  const int32_t *suppressed_ids; /* EOS and stop ids while output < min_tokens */
  int32_t num_suppressed;
  const uint32_t *allowed_mask; /* grammar: bit per id, set = allowed; NULL = all */
  sample_result_t *result;
} sample_row_t;

#endif
