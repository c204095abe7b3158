/* dummy.h: seeded random weights, the same on every machine and for every number of threads.
 *
 * An element is a function of (seed, tensor name, index in the stored order), so that rows can be
 * made in any order by any thread, and so that another program can make the same numbers:
 *
 *   mix(z):  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;  z = (z ^ z >> 27) * 0x94d049bb133111eb;
 *            return z ^ z >> 31                                   (finaliser of splitmix64)
 *   key    = mix(fnv1a64(name) ^ mix(seed))    name without prefix: "layers.0.mlp.up_proj.weight"
 *   word   = mix(key + (index / 2) * 0x9e3779b97f4a7c15), all arithmetic modulo 2^64
 *   half   = low 32 bits of word for an even index, high 32 bits for an odd one
 *   value  = float(sum of the 4 bytes of half - 510) * float(deviation / sqrt(21845))
 *
 * The sum of four uniform bytes is near enough to a normal distribution. Deviations: 1/sqrt(cols)
 * for a matrix of `cols` input columns or a convolution of so many taps, 0.1 for other vectors;
 * norm weights add 1, but those of (1 + w). Then the value is rounded to the run type. MXFP4
 * tensors take bytes: byte i of the blocks is byte i % 8 of mix(key + (i / 8) *
 * 0x9e3779b97f4a7c15), lowest first; an exponent is 125 - floor(log2(cols)) / 2 plus the lowest bit
 * of such a byte. Pure functions, any thread.
 */
#ifndef INFERD_ENGINE_MODEL_WEIGHTS_DUMMY_H
#define INFERD_ENGINE_MODEL_WEIGHTS_DUMMY_H

#include "engine/model/weights/tensors.h"

typedef struct dummy {
  uint64_t key;
  float scale, offset;
} dummy_t;

dummy_t dummy_tensor(const expected_tensor_t *tensor, uint64_t seed);
/* Elements [first, first + count) of the stored order, as `dtype`. */
void dummy_fill(const dummy_t *dummy, void *out, dtype_t dtype, int64_t first, int64_t count);
/* Bytes [first, first + count) of an MXFP4 tensor: nibbles as they come, or exponents. */
void dummy_bytes(const dummy_t *dummy, const expected_tensor_t *tensor, uint8_t *out, int64_t first,
                 int64_t count);

#endif
