/* main.cc: runs the kernel tests: all, or those whose name contains an argument. */
#include "tests/cuda/check.h"

#include <chrono>
#include <cstring>

struct test_t {
  const char *name;
  test_body_t body;
};

static std::vector<test_t> &all_tests() {
  static std::vector<test_t> tests;
  return tests;
}

static uint64_t random_state;
static int checks, failures;

test_registration::test_registration(const char *name, test_body_t body) {
  all_tests().push_back({name, body});
}

void check_that(bool holds, const std::string &what) {
  checks++;
  if (holds) return;
  failures++;
  printf("FAIL %s\n", what.c_str());
}

void must_succeed(int status, const char *call, const char *file, int line) {
  if (status == 0) return;
  printf("FAIL %s:%d %s: %s\n", file, line, call, cudaGetErrorString((cudaError_t)status));
  exit(2);
}

/* SplitMix64 (Steele, Lea, Flood 2014). */
uint64_t random_bits() {
  uint64_t x = random_state += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

float random_float(float magnitude) {
  return ((float)(random_bits() >> 40) * 0x1p-23f - 1.0f) * magnitude;
}

int random_below(int n) {
  return (int)(random_bits() % (uint64_t)n);
}

void check_close(const std::string &what, const std::vector<double> &expected,
                 const std::vector<double> &got, double tolerance, double scale) {
  size_t bad = 0, first = 0;
  for (size_t i = 0; i < expected.size() && i < got.size(); i++) {
    const double limit = tolerance * (scale + std::fabs(expected[i]));
    if (std::fabs(got[i] - expected[i]) <= limit) continue;
    if (bad++ == 0) first = i;
  }
  const bool sized = expected.size() == got.size();
  std::string text = what;
  if (bad > 0)
    text += ": " + std::to_string(bad) + " elements, first " + std::to_string(first) + " is " +
            std::to_string(got[first]) + ", expected " + std::to_string(expected[first]);
  check_that(sized && bad == 0, text);
}

void check_rows(const std::string &what, const std::vector<double> &expected,
                const std::vector<double> &got, size_t width, double tolerance) {
  double worst = 0;
  size_t at = 0;
  for (size_t row = 0; row + width <= expected.size(); row += width) {
    double error = 0, size = 0;
    for (size_t i = row; i < row + width; i++) {
      error += (got[i] - expected[i]) * (got[i] - expected[i]);
      size += expected[i] * expected[i];
    }
    const double relative = std::sqrt(error / (size + 1e-30));
    if (relative <= worst) continue; /* a NaN gets through */
    worst = relative;
    at = row / width;
    if (!(worst <= tolerance)) break;
  }
  const bool good = expected.size() == got.size() && worst <= tolerance;
  check_that(good, what + ": row " + std::to_string(at) + " is off by " + std::to_string(worst));
}

int main(int argc, char **argv) {
  const char *seed = getenv("INFERD_TEST_SEED");
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  random_state = seed ? strtoull(seed, nullptr, 10) : (uint64_t)now;
  printf("INFERD_TEST_SEED=%llu\n", (unsigned long long)random_state);
  const uint64_t first_state = random_state;
  int run = 0;
  for (const test_t &test : all_tests()) {
    bool wanted = argc < 2;
    for (int i = 1; i < argc; i++) wanted = wanted || strstr(test.name, argv[i]) != nullptr;
    if (!wanted) continue;
    random_state = first_state; /* a test alone sees what it sees among all */
    const int before = failures;
    test.body();
    if (failures > before) printf("FAIL test %s\n", test.name);
    run++;
  }
  printf("%d tests, %d checks, %d failed\n", run, checks, failures);
  return failures > 0 || run == 0;
}
