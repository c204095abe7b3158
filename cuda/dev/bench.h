/* bench.h: what the parts of gpu_bench share: random device memory, cold rotation, the clock.
 *
 * Laboratory, one thread. A figure is a JSON object on a line of its own, printed when it is known.
 */
#ifndef INFERD_CUDA_DEV_BENCH_H
#define INFERD_CUDA_DEV_BENCH_H

#include "cuda/blas.h"
#include "cuda/device_code/lanes.h"
#include "cuda/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

typedef struct bench {
  bool tiny; /* the smallest shapes, once: to try the program on the emulator */
  int multiprocessors;
  size_t cold; /* bytes after which nothing of a rotation is left in L2: four times its size */
  gpu_stream_t stream;
} bench_t;
extern bench_t bench;

void must(int status, const char *what); /* ends the program otherwise */
#define MUST(call) must((int)(call), #call)

typedef enum fill { FILL_ZERO, FILL_BF16, FILL_F32, FILL_E4M3, FILL_BITS } fill_t;

/* Device memory for one measurement, freed at its end. Random elements lie in (-2, 2); FILL_BITS:
 * all bits are random. */
struct memory_t {
  std::vector<void *> taken;
  ~memory_t();
  void *take(size_t bytes, fill_t fill = FILL_ZERO);
  template <class T> T *upload(const std::vector<T> &values) {
    T *p = (T *)take(values.size() * sizeof(T));
    MUST(cudaMemcpy(p, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return p;
  }
};

/* Returns how many copies of `bytes` a benchmark must use in turn so that none is still in L2 when
 * it is used again; at least 1. */
int cold_copies(size_t bytes);
/* Returns the median microseconds of one call; infinity when a graph cannot hold it. `run(copy)`
 * launches the call on bench.stream with one of the `copies`. At least `calls` calls, and all
 * copies, are captured in one graph, so that the host does nothing between them. `rounds` replays
 * or more, 10 ms of them together, are timed behind one that warms up; of one round no more. */
double time_us(const std::function<void(int copy)> &run, int copies = 1, int calls = 20,
               int rounds = 5);

/* cuBLASLt; `open` returns false if the machine has none. */
struct product_t {
  blas_api_t api = {};
  cublasLtHandle_t handle = nullptr;
  void *workspace = nullptr;
  memory_t memory;
  bool open();
};

/* The fastest of the library's algorithms for out[rows, cols] = in[rows, depth] w[cols, depth]^T,
 * in bf16, in microseconds; infinity when none runs. */
double best_product_us(product_t &lib, int rows, int cols, int depth, const void *in,
                       const std::vector<void *> &weights, void *out);

void bench_decode();
void bench_prefill();
void bench_sampler();
void bench_rest();
/* `lib`: NULL where the machine has no cuBLASLt. False if a layer's bits are not those of its
 * weights unpacked. */
bool bench_packed(product_t *lib);

#endif
