/* random.h: the counter-based random numbers of sampling.
 *
 * A random number is a function of (key, output position, vocabulary index) alone. There is no
 * state, so other requests in the batch, chunking, preemption and threads cannot change it. Every
 * back end computes these functions bit for bit. Pure functions, any thread.
 *
 * mix is the output function of SplitMix64 (Steele, Lea, Flood 2014; constants of Stafford's
 * mix13). Applied to multiples of the golden gamma, as here, it passes BigCrush. A number has 53
 * bits:
 *
 *   stream   = mix(key ^ mix(position * GAMMA + GAMMA))
 *   coarse   = 16 bits: quarter (id & 3) of mix(stream + (id >> 2) * GAMMA)
 *   fine     = 37 bits: top of mix(~stream + id * GAMMA)
 *   u        = (coarse * 2^37 + fine + 1/2) / 2^53, in (0, 1)
 *
 * The reason for the two parts: nearly all ids of a vocabulary lose a draw by their coarse bits
 * alone, and four ids share one mix for their coarse bits.
 */
#ifndef INFERD_ENGINE_BASE_RANDOM_H
#define INFERD_ENGINE_BASE_RANDOM_H

#include <stdint.h>

#define RANDOM_GAMMA UINT64_C(0x9E3779B97F4A7C15) /* odd, 2^64 / golden ratio */
#define RANDOM_MIX_1 UINT64_C(0xBF58476D1CE4E5B9)
#define RANDOM_MIX_2 UINT64_C(0x94D049BB133111EB)

enum { RANDOM_COARSE_BITS = 16, RANDOM_FINE_BITS = 37, RANDOM_IDS_PER_WORD = 4 };

static inline uint64_t random_mix(uint64_t value) {
  value = (value ^ (value >> 30)) * RANDOM_MIX_1;
  value = (value ^ (value >> 27)) * RANDOM_MIX_2;
  return value ^ (value >> 31);
}

/* The key of one sequence: sample number `sequence_index` of a request with this seed. */
static inline uint64_t random_key(uint64_t seed, uint32_t sequence_index) {
  return random_mix(random_mix(seed + RANDOM_GAMMA) + (uint64_t)sequence_index * RANDOM_GAMMA);
}

/* The stream of one draw, from which each id gets its number; `position` counts output tokens. */
static inline uint64_t random_stream(uint64_t key, uint64_t position) {
  return random_mix(key ^ random_mix(position * RANDOM_GAMMA + RANDOM_GAMMA));
}

/* The coarse bits of ids 4 * word .. 4 * word + 3, 16 bits each, the first id lowest. */
static inline uint64_t random_coarse_word(uint64_t stream, uint32_t word) {
  return random_mix(stream + (uint64_t)word * RANDOM_GAMMA);
}

/* The number u of one id, with 0 < u < 1; a multiple of 2^-54. */
static inline double random_uniform(uint64_t stream, uint32_t id) {
  uint64_t coarse = random_coarse_word(stream, id / RANDOM_IDS_PER_WORD);
  coarse = (coarse >> (RANDOM_COARSE_BITS * (id % RANDOM_IDS_PER_WORD))) & 0xFFFF;
  uint64_t fine = random_mix(~stream + (uint64_t)id * RANDOM_GAMMA) >> (64 - RANDOM_FINE_BITS);
  return ((double)((coarse << RANDOM_FINE_BITS) | fine) + 0.5) * 0x1p-53;
}

#endif
