/* sampler_lanes.h: the loops of the sampler over a whole vocabulary, a variant per instruction set.
 *
 * Every variant gives the same bits: sums are formed in 16 fixed lanes, no multiplication and
 * addition are fused, and the other operations are exact. Pure functions, any thread.
 */
#ifndef INFERD_ENGINE_SAMPLE_SAMPLER_LANES_H
#define INFERD_ENGINE_SAMPLE_SAMPLER_LANES_H

#include <stdbool.h>
#include <stdint.h>

/* Number of logits in a block: a multiple of 32 (bits of a mask word) and RANDOM_IDS_PER_WORD. */
enum { SAMPLER_BLOCK = 64 };

typedef struct sampler_lanes {
  const char *name;
  /* For each block b: sets the logits[64 b .. 64 b + 63] whose bit in `allowed` is 0 to -infinity
   * (NULL: none), and then tops[b] to the largest of them. Returns true if any logit was NaN. */
  bool (*tops)(float *logits, const uint32_t *allowed, int32_t num_blocks, float *tops);
  /* weights[i] = exp((values[i] - max) * scale) as a float, for values <= max, scale > 0. Relative
   * error below 2e-7 (of the exponential); 0 when the exponent is below -87. */
  void (*weigh)(const float *values, int32_t count, float max, float scale, float *weights);
  /* Returns the sum of these weights over all values >= cut. Blocks whose top is below `cut` are
   * skipped; the last block may be incomplete. */
  double (*sum)(const float *values, int32_t count, const float *tops, float max, float scale,
                float cut);
  /* Returns true if one of the 64 coarse random numbers from word `first_word` on is <= limit. */
  bool (*any_coarse)(uint64_t stream, uint32_t first_word, uint16_t limit);
  /* Returns how many values are larger than `than`. */
  int32_t (*count_larger)(const float *values, int32_t count, float than);
} sampler_lanes_t;

/* Returns the variants that this processor can run, the fastest first; NULL ends the list. */
const sampler_lanes_t *const *sampler_lanes_all(void);

#endif
