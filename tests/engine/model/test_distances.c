/* test_distances.c: entries of distances against transformers, and their tables against plain sums.
 */
#include "engine/model/forward/distances.h"
#include "tests/expect.h"

#include <math.h>
#include <stdlib.h>

typedef struct entry_case {
  int32_t distance, entry;
} entry_case_t;

static void check_entries(const entry_case_t *cases, size_t count, int32_t span, int32_t longest) {
  for (size_t i = 0; i < count; i++)
    ASSERT_EQ_FOR(distance_entry(cases[i].distance, span, longest), cases[i].entry,
                  "span %d, distance %d", span, cases[i].distance);
}

/* make_log_bucket_position of transformers 5.23, behind its bounds. */
Test(distances, entries_are_those_of_transformers) {
  static const entry_case_t v3[] = {{0, 256},    {1, 257},   {127, 383},  {128, 384},  {129, 385},
                                    {130, 386},  {256, 448}, {510, 511},  {511, 511},  {512, 511},
                                    {5000, 511}, {-1, 255},  {-128, 128}, {-129, 127}, {-256, 64},
                                    {-511, 1},   {-5000, 0}};
  static const entry_case_t few[] = {{0, 24},   {11, 35},  {12, 36},  {13, 37},  {14, 37},
                                     {100, 45}, {198, 47}, {199, 47}, {200, 47}, {-12, 12},
                                     {-13, 11}, {-100, 3}, {-199, 1}, {-5000, 0}};
  static const entry_case_t plain[] = {{0, 20}, {19, 39}, {20, 39}, {-20, 0}, {-21, 0}};
  check_entries(v3, sizeof v3 / sizeof *v3, 256, 512);
  check_entries(few, sizeof few / sizeof *few, 24, 200);
  check_entries(plain, sizeof plain / sizeof *plain, 20, 0);
}

Test(distances, entries_rise_with_the_distance) {
  for (int32_t i = -3000; i < 3000; i++) {
    const int32_t rise = distance_entry(i + 1, 256, 512) - distance_entry(i, 256, 512);
    cr_assert(rise == 0 || rise == 1, "at %d by %d", i, rise);
  }
}

Test(distances, tables_are_products_of_normed_rows) {
  enum { WIDTH = 30, HEAD = 5, SPAN = 35, COUNT = 2 * SPAN, ENTRIES = 80 };
  static float rows[COUNT * WIDTH], normed[COUNT * WIDTH], turned[WIDTH * ENTRIES];
  static float weight[WIDTH * WIDTH], bias[WIDTH], scale[WIDTH], shift[WIDTH];
  static float out[WIDTH * ENTRIES];
  ASSERT_EQ(distance_entries(SPAN), ENTRIES);
  ASSERT_EQ(distance_entries(8), 16);
  ASSERT_EQ(distance_entries(0), 0);
  for (int i = 0; i < COUNT * WIDTH; i++) rows[i] = normed[i] = (float)((i * 37) % 101) / 50 - 1;
  for (int i = 0; i < WIDTH * WIDTH; i++) weight[i] = (float)((i * 53) % 97) / 48 - 1;
  for (int i = 0; i < WIDTH; i++) {
    bias[i] = (float)(i % 7) - 3;
    scale[i] = 1 + (float)i / 40;
    shift[i] = (float)(i % 5) / 5;
  }
  distance_norm(normed, scale, shift, 1e-7f, COUNT, WIDTH);
  distance_turn(turned, normed, COUNT, WIDTH);
  distance_table(out, turned, weight, bias, WIDTH, HEAD, ENTRIES);
  for (int e = 0; e < ENTRIES; e++) {
    double mean = 0, variance = 0;
    for (int i = 0; i < WIDTH && e < COUNT; i++) mean += rows[e * WIDTH + i] / (double)WIDTH;
    for (int i = 0; i < WIDTH && e < COUNT; i++)
      variance += pow(rows[e * WIDTH + i] - mean, 2) / WIDTH;
    for (int o = 0; o < WIDTH; o++) {
      double sum = bias[o];
      for (int i = 0; i < WIDTH && e < COUNT; i++)
        sum += weight[o * WIDTH + i] *
               ((rows[e * WIDTH + i] - mean) / sqrt(variance + 1e-7) * scale[i] + shift[i]);
      const int at = ((o / HEAD * ENTRIES + e / 16 * 16) * HEAD) + o % HEAD * 16 + e % 16;
      cr_assert_float_eq(out[at], sum, 2e-5, "entry %d, row %d: %g, %g", e, o, out[at], sum);
    }
  }
}
