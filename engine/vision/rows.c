/* rows.c: pixels of views -> rows of patches for the tower. Any thread; no state, no allocation. */
#include "engine/base/patch_place.h"
#include "engine/vision/processor.h"

/* What a byte becomes, in the arithmetic of transformers' rescale_and_normalize: mean and deviation
 * are scaled to bytes in float32 once, or the byte is multiplied. (colour, byte) */
typedef struct tones {
  float of[3][256];
} tones_t;

static void tones_make(const vision_processor_t *processor, tones_t *tones) {
  const float up = (float)(1.0 / processor->rescale), rescale = (float)processor->rescale;
  for (int colour = 0; colour < 3; colour++) {
    const float mean = (float)processor->mean[colour] * up;
    const float deviation = (float)processor->std[colour] * up;
    for (int byte = 0; byte < 256; byte++)
      tones->of[colour][byte] =
          processor->normalizes ? ((float)byte - mean) / deviation : (float)byte * rescale;
  }
}

size_t vision_row_values(const vision_processor_t *processor) {
  return (size_t)3 * processor->frames * processor->patch * processor->patch;
}

/* (channel, frame, y, x) */
static float *row_by_channel(const tones_t *tones, const uint8_t *from, size_t stride,
                             uint32_t frames, uint32_t patch, float *row) {
  for (uint32_t colour = 0; colour < 3; colour++) {
    for (uint32_t frame = 0; frame < frames; frame++) {
      for (uint32_t y = 0; y < patch; y++) {
        const uint8_t *pixel = from + y * stride + colour;
        for (uint32_t x = 0; x < patch; x++) *row++ = tones->of[colour][pixel[(size_t)x * 3]];
      }
    }
  }
  return row;
}

/* (y, x, channel) */
static float *row_by_pixel(const tones_t *tones, const uint8_t *from, size_t stride, uint32_t patch,
                           float *row) {
  for (uint32_t y = 0; y < patch; y++) {
    for (uint32_t x = 0; x < patch * 3; x++) *row++ = tones->of[x % 3][from[y * stride + x]];
  }
  return row;
}

void vision_rows(const vision_processor_t *processor, const vision_layout_t *layout,
                 const uint8_t *bytes, size_t first, size_t count, float *rows) {
  const uint32_t patch = processor->patch, grid = layout->grid_height * layout->grid_width;
  const size_t stride = (size_t)layout->view_width * 3;
  const int32_t merge = processor->order == VISION_BLOCKS ? (int32_t)processor->merge : 1;
  tones_t tones;
  tones_make(processor, &tones);
  for (size_t i = first; i < first + count; i++) {
    const patch_place_t place =
        patch_place((int32_t)layout->grid_width, merge, (int32_t)(i % grid));
    const uint8_t *from = bytes + i / grid * layout->view_height * stride +
                          (size_t)place.row * patch * stride + (size_t)place.column * patch * 3;
    rows = processor->order == VISION_RASTER_PIXEL
               ? row_by_pixel(&tones, from, stride, patch, rows)
               : row_by_channel(&tones, from, stride, processor->frames, patch, rows);
  }
}
