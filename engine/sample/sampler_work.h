/* sampler_work.h: the working state of one row, shared by sampler.c and sampler_draw.c only.
 *
 * Worker threads; a work_t belongs to one call. No allocation.
 */
#ifndef INFERD_ENGINE_SAMPLE_SAMPLER_WORK_H
#define INFERD_ENGINE_SAMPLE_SAMPLER_WORK_H

#include "engine/base/util.h"
#include "engine/sample/sampler.h"
#include "engine/sample/sampler_lanes.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { BLOCK = SAMPLER_BLOCK, DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };

/* The scratch of one row, cut into arrays. `values`, `weights` and `counts` keep their content only
 * within one operation. */
typedef struct work {
  const sampler_lanes_t *lanes;
  float *logits; /* [vocab] */
  int32_t vocab;
  int32_t num_blocks;
  float *block_top;    /* [num_blocks] largest logit of each block */
  float *block_weight; /* [num_blocks] exp((block_top - max) / T) */
  float *values;       /* [vocab] candidates of a selection */
  float *weights;      /* [vocab] exp((l - max) / T) of the candidates */
  float *raw;          /* [vocab] copy of the raw logits, if later operations change them */
  int32_t *counts;     /* [vocab] occurrences in the output; the same memory as values */
  uint32_t *mask;      /* [ceil(vocab / 32)] */
  double *digits;      /* [DIGITS] */
  float max;           /* largest logit */
  int32_t best_id;     /* lowest id with the largest logit */
  bool has_nan;
} work_t;

static inline bool valid_id(const work_t *work, int32_t id) {
  return id >= 0 && id < work->vocab;
}

static inline int32_t block_length(const work_t *work, int32_t block) {
  int32_t rest = work->vocab - block * BLOCK;
  return MIN(rest, BLOCK);
}

/* Operations 6 to 10 of sampler.h, for a temperature that is not greedy: returns the drawn id. The
 * largest logit must be finite. */
int32_t sampler_draw(work_t *work, const sample_row_t *row);

/* sampler_row with a given variant of the loops. The tests compare the variants. */
void sampler_row_on(const sampler_lanes_t *lanes, float *logits, int32_t vocab,
                    const sample_row_t *row, void *scratch);

#endif
