/* test_costs.c: the dearest inputs of the corpus cost no more than when they were found.
 *
 * tests/fuzz/costs.txt has a line for each, `TARGET FILE UNITS`, written by `scripts/fuzz --worst`.
 * Units are counts, the same on every machine. A rise of a fifth fails; who makes an input cheaper
 * writes the file anew.
 */
#include "tests/expect.h"
#include "tests/fuzz/replay.h"

#include <inttypes.h>

static void replay_costed(const char *target, const char *name) {
  char path[512];
  snprintf(path, sizeof path, "tests/fuzz/corpus/%s/%s", target, name);
#define X(known)                                                                                   \
  if (strcmp(target, #known) == 0) replay_file(path, fuzz_##known);
  FUZZ_TARGETS(X)
#undef X
}

Test(costs, no_input_became_dearer, .timeout = 120) {
  char line[512], target[64], name[256];
  uint64_t units;
  int count = 0;
  FILE *file = fopen("tests/fuzz/costs.txt", "r");
  cr_assert_not_null(file);
  while (fgets(line, sizeof line, file) != NULL) {
    if (line[0] == '#') continue;
    ASSERT_EQ_FOR(sscanf(line, "%63s %255s %" SCNu64, target, name, &units), 3, "%s", line);
    fuzz_cost = 0;
    replay_costed(target, name);
    EXPECT_GT_FOR(fuzz_cost, 0, "%s/%s", target, name);
    EXPECT_LE_FOR(fuzz_cost, units + units / 5, "%s/%s", target, name);
    count++;
  }
  fclose(file);
  cr_assert_geq(count, 20);
}
