/* resize.h: a picture of bytes to another size, as torchvision does it on a CPU with AVX2.
 *
 * Antialiased, separable, integers alone, so any machine gives the same bytes. Of one axis, with
 * s = in / out, f = max(s, 1) and R the radius of the filter (bilinear 1, bicubic 2, Lanczos 3),
 * output i reads the inputs from max(int(c - R f + .5), 0) to min(int(c + R f + .5), in), where
 * c = (i + .5) s; the weight of input j is filter((j - c + .5) / f), divided by their sum. Weights
 * become 16-bit integers of P fractional bits, as many as the largest weight of the axis allows
 * below 2^15, and at most 22; a sum is rounded, shifted and clipped to a byte. The horizontal pass
 * is first; a pass that changes no size is left out.
 *
 * Source: PyTorch, aten/src/ATen/native/cpu/UpSampleKernel.cpp, compute_index_ranges_int16_weights;
 * the bicubic filter has a = -0.5. Any thread; no state.
 */
#ifndef INFERD_ENGINE_VISION_RESIZE_H
#define INFERD_ENGINE_VISION_RESIZE_H

#include "engine/vision/processor.h"

/* A rectangle of pixels in a larger picture. */
typedef struct vision_area {
  const uint8_t *rgb;     /* its first pixel */
  size_t stride;          /* bytes from a line to the next */
  uint32_t width, height; /* >= 1 */
} vision_area_t;

/* Writes (height, width, 3) to `out`, which does not overlap the area. Returns 0, or ERR_NO_MEMORY:
 * the scratch is one picture of the area's height and the new width. */
int vision_resize(vision_filter_t filter, const vision_area_t *area, uint32_t width,
                  uint32_t height, uint8_t *out);

#endif
