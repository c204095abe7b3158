/* sampler_lanes.h: the loops of the sampler that run over a whole vocabulary, once per instruction
 * set.
 *
 * Every variant gives the same bits: additions happen in 16 fixed lanes, nothing is contracted to a
 * fused multiply-add, and the rest is exact. Pure functions, any thread.
 */
#ifndef INFERD_ENGINE_SAMPLE_SAMPLER_LANES_H
#define INFERD_ENGINE_SAMPLE_SAMPLER_LANES_H

#include <stdbool.h>
#include <stdint.h>

/* Logits of one block; a multiple of 32 (mask words) and of RANDOM_IDS_PER_WORD. */
enum { SAMPLER_BLOCK = 64 };

typedef struct sampler_lanes {
  const char *name;
  /* Those of logits[64 b .. 64 b + 63] whose bit in `allowed` is not set become -infinity (NULL:
   * none); tops[b] = the largest then. True when any of them all was NaN before. */
  bool (*tops)(float *logits, const uint32_t *allowed, int32_t num_blocks, float *tops);
  /* weights[i] = exp((values[i] - max) * scale) as a float, for values <= max, scale > 0. Relative
   * error below 2e-7 (of the exponential); 0 when the exponent is below -87. */
  void (*weigh)(const float *values, int32_t count, float max, float scale, float *weights);
  /* The sum of these over all values >= cut, skipping blocks whose top is below; `count` may end in
   * a broken block. */
  double (*sum)(const float *values, int32_t count, const float *tops, float max, float scale,
                float cut);
  /* True when one of the 64 coarse random numbers from word `first_word` on is <= limit. */
  bool (*any_coarse)(uint64_t stream, uint32_t first_word, uint16_t limit);
  /* How many values are larger. */
  int32_t (*count_larger)(const float *values, int32_t count, float than);
} sampler_lanes_t;

/* The variants that this processor can run, best first; NULL ends them. */
const sampler_lanes_t *const *sampler_lanes_all(void);

#endif
