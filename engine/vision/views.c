/* views.c: pixels of a picture -> pixels of its views. Any thread; allocates scratch, and frees it
 * before it returns. */
#include "engine/base/checked.h"
#include "engine/base/util.h"
#include "engine/vision/resize.h"

#include <stdlib.h>
#include <string.h>

static vision_area_t whole_of(const uint8_t *rgb, uint32_t width, uint32_t height) {
  return (vision_area_t){rgb, (size_t)width * 3, width, height};
}

/* Room for (height, width, 3); NULL without memory. */
static uint8_t *pixels_new(uint32_t width, uint32_t height) {
  size_t bytes;
  if (!checked_mul((size_t)width * 3, height, &bytes)) return NULL;
  return malloc(bytes);
}

/* Tiles in raster order from a picture of whole tiles. */
static void cut(const vision_layout_t *layout, const uint8_t *joined, uint8_t *bytes) {
  const size_t line = (size_t)layout->view_width * 3, across = line * layout->tile_columns;
  for (uint32_t row = 0; row < layout->tile_rows; row++) {
    for (uint32_t column = 0; column < layout->tile_columns; column++) {
      const uint8_t *from = joined + row * layout->view_height * across + column * line;
      for (uint32_t y = 0; y < layout->view_height; y++, bytes += line)
        memcpy(bytes, from + y * across, line);
    }
  }
}

/* Resizes the area to all tiles, cuts them, and writes the whole behind: that of `area`, or with
 * `from_joined` that of the joined tiles. */
static int tiles_then_whole(vision_filter_t filter, const vision_layout_t *layout,
                            const vision_area_t *area, bool from_joined, uint8_t *bytes) {
  if (layout->tile_rows == 0)
    return vision_resize(filter, area, layout->view_width, layout->view_height, bytes);
  const size_t view = (size_t)layout->view_height * layout->view_width * 3;
  uint8_t *joined = pixels_new(layout->fit_width, layout->fit_height);
  if (joined == NULL) return ERR_NO_MEMORY;
  int status = vision_resize(filter, area, layout->fit_width, layout->fit_height, joined);
  if (status == 0) {
    const vision_area_t again = whole_of(joined, layout->fit_width, layout->fit_height);
    cut(layout, joined, bytes);
    status = vision_resize(filter, from_joined ? &again : area, layout->view_width,
                           layout->view_height, bytes + view * (layout->views - 1));
  }
  free(joined);
  return status;
}

static int idefics3(vision_filter_t filter, const vision_layout_t *layout,
                    const vision_area_t *area, uint8_t *bytes) {
  uint8_t *step = pixels_new(layout->step_width, layout->step_height);
  if (step == NULL) return ERR_NO_MEMORY;
  int status = vision_resize(filter, area, layout->step_width, layout->step_height, step);
  const vision_area_t second = whole_of(step, layout->step_width, layout->step_height);
  if (status == 0) status = tiles_then_whole(filter, layout, &second, true, bytes);
  free(step);
  return status;
}

static int gemma3(vision_filter_t filter, const vision_layout_t *layout, const vision_area_t *area,
                  uint8_t *bytes) {
  const size_t view = (size_t)layout->view_height * layout->view_width * 3;
  int status = vision_resize(filter, area, layout->view_width, layout->view_height, bytes);
  for (uint32_t i = 0; status == 0 && i + 1 < layout->views; i++) {
    const uint32_t left = layout->tile_columns > 1 ? i * layout->fit_width : 0;
    const uint32_t top = layout->tile_rows > 1 ? i * layout->fit_height : 0;
    const vision_area_t crop = {area->rgb + top * area->stride + (size_t)left * 3, area->stride,
                                MIN(layout->fit_width, area->width - left),
                                MIN(layout->fit_height, area->height - top)};
    status = vision_resize(filter, &crop, layout->view_width, layout->view_height,
                           bytes + view * (i + 1));
  }
  return status;
}

/* A canvas of one colour with a picture in its middle; of an odd rest less is before. */
static void place(uint8_t *canvas, uint32_t width, uint32_t height, const uint8_t colour[3],
                  const vision_area_t *area) {
  const uint32_t left = (width - area->width) / 2, top = (height - area->height) / 2;
  for (size_t i = 0; i < (size_t)width * height; i++) memcpy(canvas + i * 3, colour, 3);
  for (uint32_t y = 0; y < area->height; y++)
    memcpy(canvas + ((size_t)(top + y) * width + left) * 3, area->rgb + y * area->stride,
           (size_t)area->width * 3);
}

/* One of several pictures: laid on a square of the mean colour. */
static int llava_square(const vision_processor_t *processor, const vision_layout_t *layout,
                        const vision_area_t *area, uint8_t *bytes) {
  const uint32_t side = MAX(area->width, area->height);
  uint8_t colour[3], *canvas = pixels_new(side, side);
  if (canvas == NULL) return ERR_NO_MEMORY;
  for (int i = 0; i < 3; i++) colour[i] = (uint8_t)(processor->mean[i] * 255);
  place(canvas, side, side, colour, area);
  const vision_area_t square = whole_of(canvas, side, side);
  int status =
      vision_resize(processor->filter, &square, layout->view_width, layout->view_height, bytes);
  free(canvas);
  return status;
}

static int llava(const vision_processor_t *processor, const vision_layout_t *layout,
                 const vision_area_t *area, uint8_t *bytes) {
  static const uint8_t black[3];
  if (!layout->packed) return llava_square(processor, layout, area, bytes);
  const size_t view = (size_t)layout->view_height * layout->view_width * 3;
  uint8_t *fit = pixels_new(layout->fit_width, layout->fit_height);
  uint8_t *joined = pixels_new(layout->tile_columns * layout->view_width,
                               layout->tile_rows * layout->view_height);
  int status = fit == NULL || joined == NULL ? ERR_NO_MEMORY : 0;
  if (status == 0)
    status = vision_resize(processor->filter, area, layout->view_width, layout->view_height, bytes);
  if (status == 0)
    status = vision_resize(processor->filter, area, layout->fit_width, layout->fit_height, fit);
  if (status == 0) {
    const vision_area_t inner = whole_of(fit, layout->fit_width, layout->fit_height);
    place(joined, layout->tile_columns * layout->view_width,
          layout->tile_rows * layout->view_height, black, &inner);
    cut(layout, joined, bytes + view);
  }
  free(fit);
  free(joined);
  return status;
}

/* The middle of a resized picture; of an odd rest less is before it. */
static int clip(vision_filter_t filter, const vision_layout_t *layout, const vision_area_t *area,
                uint8_t *bytes) {
  const uint32_t left = (layout->step_width - layout->view_width) / 2;
  const uint32_t top = (layout->step_height - layout->view_height) / 2;
  const size_t stride = (size_t)layout->step_width * 3, line = (size_t)layout->view_width * 3;
  uint8_t *step = pixels_new(layout->step_width, layout->step_height);
  if (step == NULL) return ERR_NO_MEMORY;
  const int status = vision_resize(filter, area, layout->step_width, layout->step_height, step);
  for (uint32_t y = 0; y < layout->view_height && status == 0; y++)
    memcpy(bytes + y * line, step + (top + y) * stride + (size_t)left * 3, line);
  free(step);
  return status;
}

int vision_views(const vision_processor_t *processor, const vision_layout_t *layout,
                 const picture_t *picture, uint8_t *bytes) {
  const vision_area_t area = whole_of(picture->rgb, picture->width, picture->height);
  switch (processor->kind) {
  case VISION_GEMMA3: return gemma3(processor->filter, layout, &area, bytes);
  case VISION_IDEFICS3: return idefics3(processor->filter, layout, &area, bytes);
  case VISION_LLAVA_ONEVISION:
  case VISION_LLAVA_NEXT: return llava(processor, layout, &area, bytes);
  case VISION_CLIP: return clip(processor->filter, layout, &area, bytes);
  case VISION_QWEN2_VL:
  case VISION_GLM4V:
  case VISION_GEMMA4:
  case VISION_PIXTRAL:
  case VISION_GOT_OCR2: break;
  }
  return tiles_then_whole(processor->filter, layout, &area, false, bytes);
}
