/* align.c: see align.h. Any thread; no state. Numbers are floats where those of transformers are,
 * so that near ties fall as there. */
#include "engine/audio/align.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Of weights [count, columns]. A column without any difference between tokens becomes NaN, as
 * there. */
static void normalise(float *weights, int32_t count, int32_t columns) {
  for (int32_t c = 0; c < columns; c++) {
    double sum = 0, squares = 0;
    for (int32_t i = 0; i < count; i++) sum += (double)weights[(int64_t)i * columns + c];
    const double mean = sum / count;
    for (int32_t i = 0; i < count; i++) {
      const double off = (double)weights[(int64_t)i * columns + c] - mean;
      squares += off * off;
    }
    const float middle = (float)mean, deviation = (float)sqrt(squares / count);
    for (int32_t i = 0; i < count; i++) {
      float *weight = &weights[(int64_t)i * columns + c];
      *weight = (*weight - middle) / deviation;
    }
  }
}

/* NaN is larger than any number, as torch sorts. */
static bool is_less(float one, float two) {
  return isnan(two) ? !isnan(one) : one < two;
}

/* The median around each column of a row, which is mirrored at its ends. */
static void smooth(float *row, float *copy, int32_t columns, int32_t width) {
  float sorted[ALIGN_MEDIAN_MAX];
  const int32_t reach = width / 2;
  if (columns <= reach || reach == 0) return;
  memcpy(copy, row, (size_t)columns * sizeof *row);
  for (int32_t c = 0; c < columns; c++) {
    int32_t n = 0;
    for (int32_t at = c - reach; at <= c + reach; at++) {
      const int32_t inside = at < 0 ? -at : at >= columns ? 2 * (columns - 1) - at : at;
      int32_t place = n++;
      for (; place > 0 && is_less(copy[inside], sorted[place - 1]); place--)
        sorted[place] = sorted[place - 1];
      sorted[place] = copy[inside];
    }
    row[c] = sorted[reach];
  }
}

/* The way by which a cell is reached: from the token and row before, the token before, or the row
 * before. */
typedef enum warp_step { STEP_BOTH, STEP_TOKEN, STEP_ROW } warp_step_t;

/* Fills `steps`, by the costs of two columns of cells. The matrix is the mean over heads. */
static void warp(const align_t *align) {
  const int32_t count = align->count, columns = align->columns;
  float *before = align->costs, *now = align->costs + count + 1;
  for (int32_t i = 1; i <= count; i++) before[i] = INFINITY;
  before[0] = 0;
  for (int32_t j = 1; j <= columns; j++) {
    now[0] = INFINITY;
    for (int32_t i = 1; i <= count; i++) {
      const float both = before[i - 1], token = now[i - 1], row = before[i];
      const float mean = align->sums[(int64_t)(i - 1) * columns + j - 1] / (float)align->num_heads;
      float least = row;
      warp_step_t step = STEP_ROW;
      if (both < token && both < row)
        least = both, step = STEP_BOTH;
      else if (token < both && token < row)
        least = token, step = STEP_TOKEN;
      now[i] = (float)(-(double)mean + (double)least);
      align->steps[(int64_t)i * (columns + 1) + j] = (uint8_t)step;
    }
    float *other = before;
    before = now;
    now = other;
  }
}

static void walk_back(const align_t *align, int32_t *rows) {
  int32_t i = align->count, j = align->columns;
  while (i > 0 || j > 0) {
    warp_step_t step = STEP_TOKEN; /* before the first row there are tokens alone */
    if (j > 0)
      step = i > 0 ? (warp_step_t)align->steps[(int64_t)i * (align->columns + 1) + j] : STEP_ROW;
    if (i > 0) rows[i - 1] = j - 1;
    i -= step != STEP_ROW;
    j -= step != STEP_TOKEN;
  }
}

/* ---- the whole ---- */

static size_t count_floats(int32_t count, int32_t columns) {
  return (size_t)count * (size_t)columns + 2 * ((size_t)count + 1) + (size_t)columns;
}

size_t align_bytes(int32_t count, int32_t columns) {
  return count_floats(count, columns) * sizeof(float) + ((size_t)count + 1) * ((size_t)columns + 1);
}

align_t align_begin(int32_t count, int32_t columns, int32_t median_width, void *memory) {
  align_t align = {
      .count = count, .columns = columns, .median_width = median_width, .sums = memory};
  align.costs = align.sums + (int64_t)count * columns;
  align.row_copy = align.costs + 2 * ((int64_t)count + 1);
  align.steps = (uint8_t *)(align.row_copy + columns);
  memset(align.sums, 0, (size_t)count * (size_t)columns * sizeof *align.sums);
  return align;
}

void align_add(align_t *align, float *weights, int32_t num_heads) {
  const int64_t values = (int64_t)align->count * align->columns;
  for (int32_t h = 0; h < num_heads; h++, weights += values) {
    normalise(weights, align->count, align->columns);
    for (int32_t i = 0; i < align->count; i++)
      smooth(weights + (int64_t)i * align->columns, align->row_copy, align->columns,
             align->median_width);
    for (int64_t i = 0; i < values; i++) align->sums[i] += weights[i];
  }
  align->num_heads += num_heads;
}

void align_find(align_t *align, int32_t *rows) {
  warp(align);
  walk_back(align, rows);
}
