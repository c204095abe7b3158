/* main.c: libFuzzer's entry for the target that FUZZ_TARGET names. */
#include "tests/fuzz/targets.h"

#include <stdio.h>
#include <stdlib.h>

#define CALL_(name) fuzz_##name
#define CALL(name) CALL_(name)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  CALL(FUZZ_TARGET)(data, size);
  if (getenv("FUZZ_COSTS") != NULL) fprintf(stderr, "cost %llu\n", (unsigned long long)fuzz_cost);
  return 0;
}
