/* resize.c: the two passes of a resize and the weights of an axis. Any thread; allocates scratch,
 * and frees it before it returns. */
#include "engine/vision/resize.h"

#include "engine/base/checked.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BITS_MAX = 22, WEIGHT_LIMIT = 1 << 15 };

/* Of one axis: output i is the inputs from first[i], count[i] of them, by weights[i * most ...]. */
typedef struct axis {
  uint32_t most; /* inputs of one output */
  unsigned bits; /* of the fraction of a weight */
  uint32_t *first, *count;
  int16_t *weights;
} axis_t;

static double bilinear(double at) {
  at = fabs(at);
  return at < 1.0 ? 1.0 - at : 0.0;
}

static double bicubic(double at) {
  const double a = -0.5;
  at = fabs(at);
  if (at < 1.0) return ((a + 2.0) * at - (a + 3.0)) * at * at + 1.0;
  if (at < 2.0) return (((at - 5.0) * at + 8.0) * at - 4.0) * a;
  return 0.0;
}

static double sinc(double at) {
  if (at == 0.0) return 1.0;
  at *= M_PI;
  return sin(at) / at;
}

static double lanczos(double at) {
  return -3.0 <= at && at < 3.0 ? sinc(at) * sinc(at / 3.0) : 0.0;
}

typedef struct kernel {
  double (*weight)(double at);
  double radius;
} kernel_t;

static const kernel_t filters[] = {[VISION_BILINEAR] = {bilinear, 1.0},
                                   [VISION_BICUBIC] = {bicubic, 2.0},
                                   [VISION_LANCZOS] = {lanczos, 3.0}};

static void axis_free(axis_t *axis) {
  free(axis->first);
  free(axis->count);
  free(axis->weights);
}

/* The inputs of output i and their weights, which add to 1. */
static void weigh(const kernel_t *filter, uint32_t in, double scale, uint32_t i, axis_t *axis,
                  double *weights) {
  const double support = filter->radius * MAX(scale, 1.0);
  const double inverse = scale >= 1.0 ? 1.0 / scale : 1.0, centre = scale * (i + 0.5);
  int64_t low = (int64_t)(centre - support + 0.5), high = (int64_t)(centre + support + 0.5);
  low = MAX(low, 0);
  high = MIN(high, (int64_t)in);
  uint32_t count = (uint32_t)MAX(high - low, 0);
  count = MIN(count, axis->most);
  double sum = 0;
  for (uint32_t j = 0; j < count; j++) {
    weights[j] = filter->weight(((double)(j + low) - centre + 0.5) * inverse);
    sum += weights[j];
  }
  for (uint32_t j = 0; j < count && sum != 0.0; j++) weights[j] /= sum;
  axis->first[i] = (uint32_t)low;
  axis->count[i] = count;
}

static int axis_make(const kernel_t *filter, uint32_t in, uint32_t out, axis_t *axis) {
  const double scale = (double)in / out;
  axis->most = (uint32_t)ceil(filter->radius * MAX(scale, 1.0)) * 2 + 1;
  double *weights = calloc((size_t)out * axis->most, sizeof *weights), largest = 0;
  axis->first = calloc(out, sizeof *axis->first);
  axis->count = calloc(out, sizeof *axis->count);
  axis->weights = calloc((size_t)out * axis->most, sizeof *axis->weights);
  if (weights == NULL || axis->first == NULL || axis->count == NULL || axis->weights == NULL) {
    free(weights);
    return ERR_NO_MEMORY;
  }
  for (uint32_t i = 0; i < out; i++) {
    double *own = weights + (size_t)i * axis->most;
    weigh(filter, in, scale, i, axis, own);
    for (uint32_t j = 0; j < axis->count[i]; j++) largest = MAX(largest, own[j]);
  }
  axis->bits = 0;
  while (axis->bits < BITS_MAX && (int)(0.5 + largest * (2 << axis->bits)) < WEIGHT_LIMIT)
    axis->bits++;
  for (size_t i = 0; i < (size_t)out * axis->most; i++) {
    const double grown = weights[i] * (1 << axis->bits);
    axis->weights[i] = (int16_t)(grown < 0 ? grown - 0.5 : grown + 0.5);
  }
  free(weights);
  return 0;
}

static uint8_t clip(int32_t sum, unsigned bits) {
  sum >>= bits;
  return (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
}

/* `lines` lines of the area to lines of `width` pixels. */
static void pass_across(const axis_t *axis, const vision_area_t *area, uint32_t width,
                        uint8_t *out) {
  const int32_t half = axis->bits == 0 ? 0 : 1 << (axis->bits - 1);
  for (uint32_t line = 0; line < area->height; line++) {
    const uint8_t *from = area->rgb + line * area->stride;
    for (uint32_t i = 0; i < width; i++, out += 3) {
      const int16_t *weights = axis->weights + (size_t)i * axis->most;
      const uint8_t *pixel = from + (size_t)axis->first[i] * 3;
      int32_t red = half, green = half, blue = half;
      for (uint32_t j = 0; j < axis->count[i]; j++, pixel += 3) {
        red += pixel[0] * weights[j];
        green += pixel[1] * weights[j];
        blue += pixel[2] * weights[j];
      }
      out[0] = clip(red, axis->bits);
      out[1] = clip(green, axis->bits);
      out[2] = clip(blue, axis->bits);
    }
  }
}

/* Lines of the area to `height` lines of the same width; `sums` has one number a byte of a line. */
static void pass_down(const axis_t *axis, const vision_area_t *area, uint32_t height, int32_t *sums,
                      uint8_t *out) {
  const size_t bytes = (size_t)area->width * 3;
  for (uint32_t i = 0; i < height; i++, out += bytes) {
    for (size_t k = 0; k < bytes; k++) sums[k] = axis->bits == 0 ? 0 : 1 << (axis->bits - 1);
    for (uint32_t j = 0; j < axis->count[i]; j++) {
      const uint8_t *from = area->rgb + (axis->first[i] + j) * area->stride;
      const int32_t weight = axis->weights[(size_t)i * axis->most + j];
      for (size_t k = 0; k < bytes; k++) sums[k] += from[k] * weight;
    }
    for (size_t k = 0; k < bytes; k++) out[k] = clip(sums[k], axis->bits);
  }
}

static void copy(const vision_area_t *area, uint8_t *out) {
  const size_t bytes = (size_t)area->width * 3;
  for (uint32_t line = 0; line < area->height; line++)
    memcpy(out + line * bytes, area->rgb + line * area->stride, bytes);
}

static int resize_down(const kernel_t *filter, const vision_area_t *area, uint32_t height,
                       uint8_t *out) {
  axis_t axis = {0};
  int32_t *sums = calloc((size_t)area->width * 3, sizeof *sums);
  int status = sums == NULL ? ERR_NO_MEMORY : axis_make(filter, area->height, height, &axis);
  if (status == 0) pass_down(&axis, area, height, sums, out);
  axis_free(&axis);
  free(sums);
  return status;
}

int vision_resize(vision_filter_t filter, const vision_area_t *area, uint32_t width,
                  uint32_t height, uint8_t *out) {
  const kernel_t *chosen = &filters[filter];
  if (area->width == width && area->height == height) {
    copy(area, out);
    return 0;
  }
  if (area->width == width) return resize_down(chosen, area, height, out);
  axis_t axis = {0};
  size_t bytes;
  uint8_t *middle = out;
  if (!checked_mul((size_t)width * 3, area->height, &bytes)) return ERR_NO_MEMORY;
  if (area->height != height) middle = malloc(bytes);
  int status = middle == NULL ? ERR_NO_MEMORY : axis_make(chosen, area->width, width, &axis);
  if (status == 0) pass_across(&axis, area, width, middle);
  axis_free(&axis);
  if (status == 0 && middle != out)
    status = resize_down(chosen, &(vision_area_t){middle, (size_t)width * 3, width, area->height},
                         height, out);
  if (middle != out) free(middle);
  return status;
}
