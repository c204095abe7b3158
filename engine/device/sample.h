/* sample.h: the input and the result of sampling one row of logits (stage 7 of 9).
 *
 * engine/sample/sampling.c fills the rows, a back end's `sample` operation (ops.h) computes the
 * results, engine/commit.c reads them. Threads: the engine thread, and the workers of the back end
 * between the launch and the `end` of a step. Who reads the parameters includes sampling_params.h:
 * the kernels of the CPU, which take minutes to compile, do not depend on it.
 */
#ifndef INFERD_ENGINE_DEVICE_SAMPLE_H
#define INFERD_ENGINE_DEVICE_SAMPLE_H

#include "engine/base/util.h"

#include <stdbool.h>
#include <stdint.h>

/* The result of one row, written by the back end before `end` returns. */
typedef struct sample_result {
  int32_t id;      /* drawn id, or score_id */
  int32_t status;  /* 0, or ERR_INTERNAL or ERR_NO_CHOICE: see sampler.h */
  float logprob;   /* raw log-softmax of id; only if num_top >= 0 of the row */
  int32_t rank;    /* 1-based rank of id in the raw distribution; only if num_top >= 0 */
  int32_t num_top; /* entries filled in `top` */
  /* [SAMPLE_TOP_MAX], or [num_top] of a row that asks for more than ops_t.logprobs_max; the
   * caller's. Of such a row it is written during the launch: its request may be gone at `end`. May
   * be NULL if no row has num_top > 0. */
  struct token_logprob *top;
} sample_result_t;

/* One row of logits to sample from or to score. Its arrays must live until `end`. */
typedef struct sample_row {
  const struct sampling_params *params;
  int32_t score_id;      /* >= 0: do not draw, report this id (prompt logprobs); -1: draw */
  int32_t num_top;       /* alternatives to report, at most the vocabulary; -1 = no logprobs */
  uint64_t rng_key;      /* from (seed, sequence index) */
  uint64_t rng_position; /* output position; a random number depends on (key, position, id) */
  const int32_t *prompt_ids;
  const int32_t *output_ids;
  int32_t num_prompt, num_output;
  const int32_t *suppressed_ids; /* ids not to draw: EOS and stop ids while output < min_tokens */
  int32_t num_suppressed;
  const uint32_t *allowed_mask; /* from a grammar: one bit per id, 1 = allowed; NULL = all */
  sample_result_t *result;
} sample_row_t;

#endif
