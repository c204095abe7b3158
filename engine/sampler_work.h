/* sampler_work.h: what sampler.c and sampler_draw.c share, and nobody else sees.
 *
 * The scratch of one row cut into arrays, and the exponential that both use.
 */
#ifndef INFERD_ENGINE_SAMPLER_WORK_H
#define INFERD_ENGINE_SAMPLER_WORK_H

#include "engine/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

enum {
  BLOCK = 64, /* logits; a multiple of 32 (mask words) and of RANDOM_IDS_PER_WORD */
  LANES = 16,
  SUM_LANES = 8,
  DIGIT_BITS = 11,
  DIGITS = 1 << DIGIT_BITS
};

/* The scratch, cut into arrays. `values`, `weights` and `counts` serve one step at a time. */
typedef struct work {
  float *logits; /* [vocab] */
  int32_t vocab;
  int32_t num_blocks;
  float *block_top;    /* [num_blocks] largest logit of each block */
  float *block_weight; /* [num_blocks] */
  float *values;       /* [vocab] candidates of a selection */
  float *weights;      /* [vocab] their exp((l - max) / T) */
  float *raw;          /* [vocab] logits at the time of the logprobs, when they change later */
  int32_t *counts;     /* [vocab], the same memory as values */
  uint32_t *mask;      /* [ceil(vocab / 32)] */
  double *digits;      /* [DIGITS] */
  float max;           /* largest logit */
  int32_t best_id;     /* lowest id that has it */
  bool has_nan;
} work_t;

static inline bool valid_id(const work_t *w, int32_t id) {
  return id >= 0 && id < w->vocab;
}

static inline int32_t block_length(const work_t *w, int32_t block) {
  int32_t rest = w->vocab - block * BLOCK;
  return rest < BLOCK ? rest : BLOCK;
}

/* exp(x) for x <= 0, relative error below 2e-7; 0 below -87. e^x = 2^n e^r, |r| <= ln(2)/2, with
 * (e^r - 1 - r) / r^2 as a polynomial of degree 4 (Chebyshev fit, error 1.1e-8). Own code, because
 * the bits of libm's expf depend on the processor, and because this one vectorises. */
static inline float exp_negative(float x) {
  const float lowest = -87.0f, to_integer = 12582912.0f; /* 1.5 * 2^23 */
  float c = x < lowest ? lowest : x;
  float shifted = c * 1.44269504f + to_integer;
  float n = shifted - to_integer;
  /* ln 2 in two parts; the first has 12 bits, so that n times it is exact. */
  float r = (c - n * 0.693359375f) + n * 2.12194440e-4f;
  float q = 1.3933688e-3f;
  q = q * r + 8.3632055e-3f;
  q = q * r + 4.1666465e-2f;
  q = q * r + 1.6666577e-1f;
  q = q * r + 0.5f;
  float y = 1.0f + (r + r * r * q);
  uint32_t bits, exponent;
  memcpy(&bits, &y, sizeof bits);
  memcpy(&exponent, &shifted, sizeof exponent);
  bits += exponent << 23;
  memcpy(&y, &bits, sizeof y);
  return x < lowest ? 0.0f : y;
}

/* Sum over logits >= cut of exp((logit - max) * scale), in 8 lanes of double. */
double sampler_sum_weights(const work_t *w, float scale, float cut);

/* Steps 6 to 10 for a temperature that is not greedy: the drawn id. w->max is finite. */
int32_t sampler_draw(work_t *w, const sample_row_t *row);

#endif
