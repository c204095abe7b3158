/* check.h: what the kernel tests share: device arrays, random inputs, comparisons, registration.
 *
 * The same test files run on the emulator and, built by nvcc, on a GPU: they use the runtime API
 * alone. References are computed in double by each test. Inputs are fresh in every run; the seed is
 * printed, and INFERD_TEST_SEED repeats a run. One thread.
 */
#ifndef INFERD_TESTS_CUDA_CHECK_H
#define INFERD_TESTS_CUDA_CHECK_H

#include "cuda/device_code/gpu.h"
#include "cuda/kernels/kernels.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

typedef void (*test_body_t)();
struct test_registration {
  test_registration(const char *name, test_body_t body);
};

/* TEST(name) { ... } is run by tests/cuda/main.cc. */
#define TEST(name)                                                                                 \
  static void test_##name();                                                                       \
  static const test_registration registration_##name(#name, test_##name);                          \
  static void test_##name()

/* Counts a check; prints `what` when it does not hold. */
void check_that(bool holds, const std::string &what);

/* A CUDA call that must succeed; ends the program otherwise. */
#define MUST(call) must_succeed((int)(call), #call, __FILE__, __LINE__)
void must_succeed(int status, const char *call, const char *file, int line);

/* Random numbers of this run. */
uint64_t random_bits();
float random_float(float magnitude); /* uniform in (-magnitude, magnitude) */
int random_below(int n);

template <class T> std::vector<T> random_values(size_t count, float magnitude) {
  std::vector<T> values(count);
  for (auto &v : values) v = from_float<T>(random_float(magnitude));
  return values;
}

template <class T> dtype_t dtype_of();
template <> inline dtype_t dtype_of<bf16_t>() {
  return DTYPE_BF16;
}
template <> inline dtype_t dtype_of<f16_t>() {
  return DTYPE_F16;
}
template <class T> const char *name_of() {
  return dtype_of<T>() == DTYPE_BF16 ? "bf16" : "f16";
}
/* Half a unit in the last place, relative. */
template <class T> double rounding_of() {
  return dtype_of<T>() == DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
}

/* The smallest normal number: below it a rounding is absolute, rounding_of() of this one. */
template <class T> double smallest_normal_of() {
  return dtype_of<T>() == DTYPE_BF16 ? 0x1p-126 : 0x1p-14;
}

/* An array in device memory. */
template <class T> struct device_array {
  T *p = nullptr;
  size_t count;
  explicit device_array(size_t n) : count(n) { MUST(cudaMalloc((void **)&p, bytes())); }
  explicit device_array(const std::vector<T> &values) : device_array(values.size()) {
    if (count == 0) return; /* an empty vector has no address to copy from */
    MUST(cudaMemcpy(p, values.data(), count * sizeof(T), cudaMemcpyHostToDevice));
  }
  device_array(const device_array &) = delete;
  ~device_array() { cudaFree(p); }
  size_t bytes() const { return (count > 0 ? count : 1) * sizeof(T); }
  std::vector<T> get() const {
    std::vector<T> values(count);
    MUST(cudaDeviceSynchronize());
    MUST(cudaMemcpy(values.data(), p, count * sizeof(T), cudaMemcpyDeviceToHost));
    return values;
  }
};

template <class T> std::vector<double> as_double(const std::vector<T> &values) {
  std::vector<double> out(values.size());
  for (size_t i = 0; i < values.size(); i++) out[i] = (double)to_float(values[i]);
  return out;
}

/* Every element within `tolerance` * (scale + |expected|). A NaN never is. */
void check_close(const std::string &what, const std::vector<double> &expected,
                 const std::vector<double> &got, double tolerance, double scale);
/* Rows of `width`: |got - expected| <= tolerance * |expected| in the Euclidean norm of each row: a
 * single wrong key among n moves a row by about 1 / sqrt(n). */
void check_rows(const std::string &what, const std::vector<double> &expected,
                const std::vector<double> &got, size_t width, double tolerance);

#endif
