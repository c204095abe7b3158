/* far.h: arrays of more than 2^32 bytes and 2^31 elements, of which a test touches little.
 *
 * The emulator maps them without memory behind; a GPU needs 20 GB of its own for each test. main.cc
 * runs one of those whose name has `far` at a time: eight would want 80 GB and more.
 */
#ifndef INFERD_TESTS_CUDA_FAR_H
#define INFERD_TESTS_CUDA_FAR_H

#include "tests/cuda/check.h"

/* The emulator has 1 GB unless told otherwise before its first use. */
static const int more_memory = setenv("EMU_MEMORY", "68719476736", 1);

/* Device memory whose contents only the test's own writes decide. */
struct far_memory {
  uint8_t *p = nullptr;
  explicit far_memory(size_t bytes) { MUST(cudaMalloc((void **)&p, bytes)); }
  far_memory(const far_memory &) = delete;
  ~far_memory() { cudaFree(p); }
  void put(size_t at, const void *from, size_t bytes) const {
    MUST(cudaMemcpy(p + at, from, bytes, cudaMemcpyHostToDevice));
  }
  std::vector<uint8_t> get(size_t at, size_t bytes) const {
    std::vector<uint8_t> values(bytes);
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(values.data(), p + at, bytes, cudaMemcpyDeviceToHost));
    return values;
  }
};

/* While it lives, the emulator runs the last blocks of a grid only; a GPU runs them all. */
struct last_blocks_only {
  last_blocks_only() { setenv("EMU_BLOCKS", "last", 1); }
  last_blocks_only(const last_blocks_only &) = delete;
  ~last_blocks_only() {
    MUST(cudaDeviceSynchronize());
    unsetenv("EMU_BLOCKS");
  }
};

#endif
