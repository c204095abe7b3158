/* distances.c: vectors of the distances of tokens become keys and queries of a layer.
 *
 * Runs once at start, on the engine thread, so that no step does. The products keep one order of
 * their sums; the loops over entries are for the vector units that every processor has.
 */
#include "engine/model/forward/distances.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>

enum { LANES = 16, ROWS_AT_ONCE = 4, ENTRIES_AT_ONCE = 64 };

int32_t distance_entries(int32_t span) {
  return ROUND_UP(2 * span, LANES);
}

int32_t distance_entry(int32_t distance, int32_t span, int32_t longest) {
  const int32_t middle = span / 2, away = abs(distance);
  int32_t bucket = distance;
  if (longest > 0 && away > middle) { /* in fp32, as the reference has it */
    const float ratio =
        logf((float)away / (float)middle) / logf((float)((double)(longest - 1) / (double)middle));
    const float far = ceilf(ratio * (float)(middle - 1)) + (float)middle;
    bucket = far < (float)span ? (int32_t)far : span;
    if (distance < 0) bucket = -bucket;
  }
  return MIN(MAX(bucket, -span) + span, 2 * span - 1);
}

void distance_norm(float *rows, const float *weight, const float *bias, float eps, int32_t count,
                   int32_t width) {
  for (int32_t r = 0; r < count; r++) {
    float *row = rows + (int64_t)r * width;
    double mean = 0, variance = 0;
    for (int32_t i = 0; i < width; i++) mean += row[i];
    mean /= width;
    for (int32_t i = 0; i < width; i++) variance += (row[i] - mean) * (row[i] - mean);
    const double factor = 1 / sqrt(variance / width + eps);
    for (int32_t i = 0; i < width; i++)
      row[i] = (float)((row[i] - mean) * factor) * weight[i] + bias[i];
  }
}

void distance_turn(float *out, const float *rows, int32_t count, int32_t width) {
  const int64_t entries = distance_entries(count / 2);
  for (int64_t r = 0; r < count; r++)
    for (int64_t i = 0; i < width; i++) out[i * entries + r] = rows[r * width + i];
}

/* sums[ROWS_AT_ONCE][ENTRIES_AT_ONCE] of weight rows [row, row + rows), entries [first, first + n)
 */
static void multiply(float sums[ROWS_AT_ONCE][ENTRIES_AT_ONCE], const float *turned,
                     const float *weight, int32_t width, int32_t entries, int32_t rows,
                     int32_t num) {
  for (int32_t k = 0; k < width; k++) {
    const float *in = turned + (int64_t)k * entries;
    for (int32_t r = 0; r < rows; r++) {
      const float factor = weight[(int64_t)r * width + k];
      for (int32_t e = 0; e < num; e++) sums[r][e] += factor * in[e];
    }
  }
}

void distance_table(float *out, const float *turned, const float *weight, const float *bias,
                    int32_t width, int32_t head_dim, int32_t entries) {
  for (int32_t row = 0; row < width; row += ROWS_AT_ONCE) {
    const int32_t rows = MIN(width - row, ROWS_AT_ONCE);
    for (int32_t first = 0; first < entries; first += ENTRIES_AT_ONCE) {
      const int32_t num = MIN(entries - first, ENTRIES_AT_ONCE);
      float sums[ROWS_AT_ONCE][ENTRIES_AT_ONCE] = {{0}};
      multiply(sums, turned + first, weight + (int64_t)row * width, width, entries, rows, num);
      for (int32_t i = 0; i < rows * num; i++) {
        const int64_t r = row + i / num, e = first + i % num, head = r / head_dim;
        out[((head * entries / LANES + e / LANES) * head_dim + r % head_dim) * LANES + e % LANES] =
            sums[i / num][i % num] + bias[r];
      }
    }
  }
}
