/* test_graphs.c: the sizes of the decode steps that are captured as graphs.
 */
#include "cuda/operations.h"
#include "tests/expect.h"

#include <criterion/criterion.h>

/* Lists the rows of the warm-up runs that capture, largest first; returns their number. */
static int32_t list_sizes(int32_t reqs_max, int32_t sizes[GRAPHS_MAX + 1]) {
  static device_t device;
  int32_t count = 0;
  device.limits.reqs_max = reqs_max;
  for (int32_t index = 1; count <= GRAPHS_MAX; index += 2) {
    sizes[count] = cuda_warm_up_rows(&device, index);
    if (sizes[count] == 0) break;
    count++;
  }
  return count;
}

/* A step that is padded to the next size computes at most an eighth more, and beyond 8 rows less
 * than 64 rows; beyond 1,024 requests there is no graph for the largest steps. */
Test(graphs, sizes_reach_1024_rows) {
  const int32_t limits[] = {1, 7, 40, 256, 500, 700, 1024, 4096};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    int32_t sizes[GRAPHS_MAX + 1];
    const int32_t count = list_sizes(limits[i], sizes);
    ASSERT_EQ(sizes[0], limits[i] < 1024 ? limits[i] : 1024);
    ASSERT_EQ(sizes[count - 1], 1);
    for (int32_t s = 0; s + 1 < count; s++) {
      ASSERT_LT(sizes[s + 1], sizes[s]);
      if (sizes[s] > 64) ASSERT_LE(8 * (sizes[s] - sizes[s + 1]), sizes[s]);
    }
  }
}

/* With adapters each size is captured twice, and the device has a place for all of them. */
Test(graphs, all_sizes_have_a_place_with_adapters_too) {
  int32_t sizes[GRAPHS_MAX + 1];
  const int32_t count = list_sizes(4096, sizes);
  ASSERT_LE(2 * count, GRAPHS_MAX);
  ASSERT_EQ(graph_bytes(4096, true), 2 * graph_bytes(4096, false));
}
