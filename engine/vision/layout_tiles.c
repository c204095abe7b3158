/* layout_tiles.c: the size of a picture -> views, in families whose views are squares of one size.
 * Any thread; no state, no allocation. */
#include "engine/vision/layout.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Views of the family's side; with tiles, the whole picture is one view more. */
static void squares(const vision_processor_t *processor, uint32_t rows, uint32_t columns,
                    vision_layout_t *out) {
  out->view_width = out->view_height = processor->view_side;
  out->tile_rows = rows;
  out->tile_columns = columns;
  out->views = rows * columns + 1;
  out->fit_width = processor->view_side * MAX(columns, 1);
  out->fit_height = processor->view_side * MAX(rows, 1);
}

/* pan_and_scan_batched: crops along the long side, where one side is much longer. The whole picture
 * is first; fit_* is the size of a crop, in pixels of the picture. */
int layout_gemma3(const vision_processor_t *processor, uint32_t width, uint32_t height,
                  vision_layout_t *out) {
  squares(processor, 0, 0, out);
  const double longer = MAX(width, height), shorter = MIN(width, height);
  if (!processor->tiles || longer / shorter < processor->crop_ratio) return 0;
  double count = floor(longer / shorter + 0.5);
  count = MIN(floor(longer / processor->crop_min), count);
  count = MIN(processor->tiles_max, MAX(2, count));
  const double crop = ceil(longer / count);
  if (MIN(crop, shorter) < processor->crop_min) return 0;
  const bool wide = width >= height;
  squares(processor, wide ? 1 : (uint32_t)count, wide ? (uint32_t)count : 1, out);
  out->fit_width = wide ? (uint32_t)crop : width;
  out->fit_height = wide ? height : (uint32_t)crop;
  return 0;
}

/* The longest edge becomes `longest`; the other keeps the shape and becomes even. */
static void to_longest(double longest, double *width, double *height) {
  const double aspect = *width / *height;
  const bool wide = *width >= *height;
  double other = trunc(wide ? longest / aspect : longest * aspect);
  if (fmod(other, 2) != 0) other++;
  other = MAX(other, 1);
  *width = wide ? longest : other;
  *height = wide ? other : longest;
}

/* Then no edge is longer than 4,096. */
static void below_bound(double *width, double *height) {
  const double bound = 4096, aspect = *width / *height;
  if (*width >= *height && *width > bound) {
    *width = bound;
    *height = MAX(trunc(bound / aspect), 1);
  } else if (*height > *width && *height > bound) {
    *height = bound;
    *width = MAX(trunc(bound * aspect), 1);
  }
}

int layout_idefics3(const vision_processor_t *processor, uint32_t width, uint32_t height,
                    vision_layout_t *out) {
  const double side = processor->view_side;
  double wide = width, tall = height;
  to_longest(processor->longest_edge, &wide, &tall);
  below_bound(&wide, &tall);
  out->step_width = (uint32_t)wide;
  out->step_height = (uint32_t)tall;
  squares(processor, 0, 0, out);
  if (!processor->tiles) return 0;
  const double aspect = wide / tall; /* resize_for_vision_encoder */
  if (wide >= tall) {
    wide = ceil(wide / side) * side;
    tall = ceil(trunc(wide / aspect) / side) * side;
  } else {
    tall = ceil(tall / side) * side;
    wide = ceil(trunc(tall * aspect) / side) * side;
  }
  if (wide < side || tall < side) return ERR_INVALID_VALUE;
  const uint32_t rows = (uint32_t)(tall / side), columns = (uint32_t)(wide / side);
  if (rows * columns > 1) squares(processor, rows, columns, out);
  out->whole = out->views - 1;
  return 0;
}

/* get_optimal_tiled_canvas: of all grids, by their number of tiles and then by columns, the nearest
 * shape; of equals a larger one if the picture has more than half of its pixels. */
static void nearest_grid(const vision_processor_t *processor, double width, double height,
                         uint32_t *columns, uint32_t *rows) {
  const double aspect = width / height, tile = (double)processor->view_side * processor->view_side;
  double best = INFINITY;
  *columns = *rows = 1;
  for (uint32_t count = processor->tiles_min; count <= processor->tiles_max; count++) {
    for (uint32_t across = 1; across <= count; across++) {
      if (count % across != 0) continue;
      const double distance = fabs(aspect - (double)across / (count / across));
      if (distance > best || (distance == best && !(width * height > 0.5 * tile * count))) continue;
      best = distance;
      *columns = across;
      *rows = count / across;
    }
  }
}

int layout_got_ocr2(const vision_processor_t *processor, uint32_t width, uint32_t height,
                    vision_layout_t *out) {
  uint32_t columns = 1, rows = 1;
  if (processor->tiles) nearest_grid(processor, width, height, &columns, &rows);
  if (columns * rows == 1) columns = rows = 0;
  squares(processor, rows, columns, out);
  out->whole = out->views - 1;
  return 0;
}

/* select_best_resolution: the most pixels of the picture, then the least waste. */
static const uint32_t *best_pinpoint(const vision_processor_t *processor, double width,
                                     double height) {
  const uint32_t *best = NULL;
  double most = 0, least = INFINITY;
  for (uint32_t i = 0; i < processor->num_pinpoints; i++) {
    const double tall = processor->pinpoints[i][0], wide = processor->pinpoints[i][1];
    const double scale = MIN(wide / width, tall / height);
    const double kept = MIN(trunc(width * scale) * trunc(height * scale), width * height);
    const double wasted = wide * tall - kept;
    if (kept < most || (kept == most && wasted >= least)) continue;
    most = kept;
    least = wasted;
    best = processor->pinpoints[i];
  }
  return best;
}

/* Python's int(round(value, 7)), by the decimal digits. */
static uint32_t round_7(double value) {
  char text[64];
  snprintf(text, sizeof text, "%.7f", value);
  return (uint32_t)strtod(text, NULL);
}

/* Python's int(count // ratio). */
static uint32_t floor_divide(double count, double ratio) {
  const double quotient = (count - fmod(count, ratio)) / ratio, whole = floor(quotient);
  return (uint32_t)(quotient - whole > 0.5 ? whole + 1 : whole);
}

/* unpad_image and pack_image_features: which of the joined tokens the picture covers. */
static void pack(const vision_processor_t *processor, double width, double height, uint32_t side,
                 vision_layout_t *out) {
  uint32_t rows = out->tile_rows * side, columns = out->tile_columns * side;
  if (width / height > (double)columns / rows) {
    out->kept_top = (rows - round_7(height * (columns / width))) / 2;
    rows -= 2 * out->kept_top;
  } else {
    out->kept_left = (columns - round_7(width * (rows / height))) / 2;
    columns -= 2 * out->kept_left;
  }
  out->packed = true;
  out->kept_rows = out->packed_rows = rows;
  out->kept_columns = out->packed_columns = columns;
  const double kept = (double)processor->tiles_kept * side * side;
  const double ratio = kept > 0 ? sqrt((double)rows * columns / kept) : 0;
  if (ratio > 1.1) {
    out->packed_rows = floor_divide(rows, ratio);
    out->packed_columns = floor_divide(columns, ratio);
  }
  out->tokens = side * side + out->packed_rows * (out->packed_columns + 1);
}

int layout_llava(const vision_processor_t *processor, uint32_t width, uint32_t height, bool alone,
                 vision_layout_t *out) {
  const uint32_t tile = processor->view_side, side = tile / processor->patch / processor->merge;
  squares(processor, 0, 0, out);
  out->tokens = side * side + 1;
  if (processor->kind == VISION_LLAVA_NEXT) alone = true;
  if (!alone || processor->num_pinpoints == 0) return 0;
  const uint32_t *best = best_pinpoint(processor, width, height);
  if (best == NULL) return ERR_INVALID_VALUE;
  squares(processor, best[0] / tile, best[1] / tile, out);
  /* get_patch_output_size: the picture inside the tiles, black around it */
  const double across = (double)best[1] / width, down = (double)best[0] / height;
  if (across < down)
    out->fit_height = (uint32_t)MIN(ceil(height * across), best[0]);
  else
    out->fit_width = (uint32_t)MIN(ceil(width * down), best[1]);
  pack(processor, width, height, side, out);
  /* the reference fails where nothing is left of tokens that are resized */
  return vision_sums(out) && out->packed_rows * out->packed_columns == 0 ? ERR_INVALID_VALUE : 0;
}

/* get_resize_output_image_size: its shortest edge becomes that; then a square of the middle. */
int layout_clip(const vision_processor_t *processor, uint32_t width, uint32_t height,
                vision_layout_t *out) {
  const double shorter = MIN(width, height), edge = processor->shortest_edge;
  const double longer = trunc(edge * MAX(width, height) / shorter);
  if (longer * edge > VISION_PIXELS_MAX) return ERR_INVALID_VALUE;
  squares(processor, 0, 0, out);
  out->step_width = (uint32_t)(width <= height ? edge : longer);
  out->step_height = (uint32_t)(width <= height ? longer : edge);
  return 0;
}
