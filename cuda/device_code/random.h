/* random.h: the random numbers of sampling on the device, bit for bit those of
 * engine/base/random.h.
 *
 * The functions of that header are repeated here, because device code cannot call plain C
 * functions. A test compares both versions.
 */
#ifndef INFERD_CUDA_DEVICE_CODE_RANDOM_H
#define INFERD_CUDA_DEVICE_CODE_RANDOM_H

#include "cuda/device_code/gpu.h"

GPU_BOTH_FN uint64_t device_random_mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
  return value ^ (value >> 31);
}

#define DEVICE_RANDOM_GAMMA 0x9E3779B97F4A7C15u

GPU_BOTH_FN uint64_t device_random_stream(uint64_t key, uint64_t position) {
  const uint64_t at = position * DEVICE_RANDOM_GAMMA + DEVICE_RANDOM_GAMMA;
  return device_random_mix(key ^ device_random_mix(at));
}

/* The 16 coarse bits of an id: u < (coarse + 1) / 65536. */
GPU_BOTH_FN uint32_t device_random_coarse(uint64_t stream, uint32_t id) {
  const uint64_t word = device_random_mix(stream + (uint64_t)(id / 4) * DEVICE_RANDOM_GAMMA);
  return (uint32_t)(word >> (16 * (id % 4))) & 0xffff;
}

GPU_BOTH_FN double device_random_uniform(uint64_t stream, uint32_t id) {
  const uint64_t fine = device_random_mix(~stream + (uint64_t)id * DEVICE_RANDOM_GAMMA) >> 27;
  const uint64_t bits = (uint64_t)device_random_coarse(stream, id) << 37 | fine;
  return ((double)bits + 0.5) * 0x1p-53;
}

#endif
