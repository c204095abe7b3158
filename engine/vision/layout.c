/* layout.c: the size of a picture -> views, grid and tokens; families with one view of any size.
 * Any thread; no state, no allocation. The rules are those of image_processing_NAME.py in
 * transformers, models/qwen2_vl, glm4v, gemma4 and pixtral. */
#include "engine/vision/layout.h"

#include "engine/base/util.h"

#include <math.h>

static int too_long(uint32_t width, uint32_t height, inferd_error_t *error) {
  return error_set(error, ERR_INVALID_VALUE, NULL,
                   "a picture of %u x %u pixels is too narrow or too large for this model", width,
                   height);
}

/* One view of these pixels; false if it is none, or larger than any view may be. */
static bool one_view(double width, double height, vision_layout_t *out) {
  if (!(width >= 1 && height >= 1 && width <= VISION_SIDE_MAX && height <= VISION_SIDE_MAX))
    return false;
  out->views = 1;
  out->view_width = out->fit_width = (uint32_t)width;
  out->view_height = out->fit_height = (uint32_t)height;
  return true;
}

/* smart_resize: multiples of `factor` near the size, within the limits of pixels. A still picture
 * counts as `frames` frames in Glm4v and as one in Qwen2VL; of a whole number nothing is lost. */
static bool layout_smart(const vision_processor_t *processor, double width, double height,
                         vision_layout_t *out) {
  const bool glm = processor->kind == VISION_GLM4V;
  const double factor = (double)processor->patch * processor->merge;
  const double times = glm ? processor->frames : 1;
  const double most = (double)processor->pixels_max, least = (double)processor->pixels_min;
  if (glm && (height < factor || width < factor)) {
    const double scale = MAX(factor / height, factor / width);
    height = trunc(height * scale);
    width = trunc(width * scale);
  }
  if (MAX(width, height) / MIN(width, height) > 200) return false;
  double tall = rint(height / factor) * factor, wide = rint(width / factor) * factor;
  if (times * tall * wide > most) {
    const double beta = sqrt(times * height * width / most);
    tall = MAX(factor, floor(height / beta / factor) * factor);
    wide = MAX(factor, floor(width / beta / factor) * factor);
  } else if (times * tall * wide < least) {
    const double beta = sqrt(least / (times * height * width));
    tall = ceil(height * beta / factor) * factor;
    wide = ceil(width * beta / factor) * factor;
  }
  return one_view(wide, tall, out);
}

/* get_aspect_ratio_preserving_size: the largest of this shape within the budget of tokens. */
static bool layout_gemma4(const vision_processor_t *processor, double width, double height,
                          vision_layout_t *out) {
  const double side = (double)processor->patch * processor->merge;
  const double budget = (double)processor->view_tokens * processor->merge * processor->merge *
                        processor->patch * processor->patch;
  const double factor = sqrt(budget / (height * width)), longest = processor->view_tokens * side;
  double tall = floor(factor * height / side) * side, wide = floor(factor * width / side) * side;
  if (tall == 0 && wide == 0) return false;
  if (tall == 0) {
    tall = side;
    wide = MIN(floor(width / height) * side, longest);
  } else if (wide == 0) {
    wide = side;
    tall = MIN(floor(height / width) * side, longest);
  }
  return tall * wide <= budget && one_view(wide, tall, out);
}

/* get_resize_output_image_size: down to the longest edge, then up to whole patches. */
static bool layout_pixtral(const vision_processor_t *processor, double width, double height,
                           vision_layout_t *out) {
  const double edge = processor->longest_edge;
  const double patch = (double)processor->patch * processor->merge;
  const double ratio = MAX(height / edge, width / edge);
  if (ratio > 1) {
    height = floor(height / ratio);
    width = floor(width / ratio);
  }
  return one_view((floor((width - 1) / patch) + 1) * patch,
                  (floor((height - 1) / patch) + 1) * patch, out);
}

static int by_family(const vision_processor_t *processor, uint32_t width, uint32_t height,
                     bool alone, vision_layout_t *out) {
  bool fits = false;
  switch (processor->kind) {
  case VISION_QWEN2_VL:
  case VISION_GLM4V: fits = layout_smart(processor, width, height, out); break;
  case VISION_GEMMA4: fits = layout_gemma4(processor, width, height, out); break;
  case VISION_PIXTRAL: fits = layout_pixtral(processor, width, height, out); break;
  case VISION_GEMMA3: return layout_gemma3(processor, width, height, out);
  case VISION_IDEFICS3: return layout_idefics3(processor, width, height, out);
  case VISION_GOT_OCR2: return layout_got_ocr2(processor, width, height, out);
  case VISION_LLAVA_ONEVISION:
  case VISION_LLAVA_NEXT: return layout_llava(processor, width, height, alone, out);
  case VISION_CLIP: return layout_clip(processor, width, height, out);
  }
  return fits ? 0 : ERR_INVALID_VALUE;
}

/* Whether all views together, and what they are cut from, are of a size that one can hold. */
static bool can_be_held(const vision_layout_t *layout) {
  const uint64_t views = (uint64_t)layout->views * layout->view_height * layout->view_width;
  return views <= VISION_PIXELS_MAX &&
         (uint64_t)layout->fit_height * layout->fit_width <= VISION_PIXELS_MAX;
}

int vision_layout(const vision_processor_t *processor, uint32_t width, uint32_t height, bool alone,
                  vision_layout_t *out, inferd_error_t *error) {
  *out = (vision_layout_t){0};
  if (width == 0 || height == 0 || width > PICTURE_SIDE_MAX || height > PICTURE_SIDE_MAX ||
      (uint64_t)width * height > PICTURE_PIXELS_MAX)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "a picture of %u x %u pixels; at most %d a side and %d in all", width, height,
                     PICTURE_SIDE_MAX, PICTURE_PIXELS_MAX);
  if (by_family(processor, width, height, alone, out) != 0 || !can_be_held(out))
    return too_long(width, height, error);
  out->grid_height = out->view_height / processor->patch;
  out->grid_width = out->view_width / processor->patch;
  out->token_rows = out->grid_height / processor->merge;
  out->token_columns = out->grid_width / processor->merge;
  out->view_tokens = out->token_rows * out->token_columns;
  if (out->tokens == 0) out->tokens = out->views * out->view_tokens;
  return 0;
}

/* Whether pictures have new lines. */
static bool has_lines(const vision_processor_t *processor) {
  return processor->kind == VISION_LLAVA_ONEVISION || processor->kind == VISION_LLAVA_NEXT;
}

/* Lines of tokens of a view. */
static uint32_t side_of(const vision_processor_t *processor) {
  return processor->view_side / processor->patch / processor->merge;
}

int64_t vision_lines_max(const vision_processor_t *processor, int64_t views) {
  return has_lines(processor) ? MAX(views, 1) * side_of(processor) : 0;
}

/* Tokens that tiles of a size have at most, with the whole picture and the new lines. */
static uint64_t packed_most(const vision_processor_t *processor, const uint32_t pinpoint[2]) {
  const uint64_t side = side_of(processor);
  const uint64_t rows = pinpoint[0] / processor->view_side * side;
  uint64_t tokens = pinpoint[1] / processor->view_side * side * rows;
  if (processor->tiles_kept > 0) /* more than 1.1 times as many a side are resized to these */
    tokens = MIN(tokens, (uint64_t)(1.21 * processor->tiles_kept * (double)(side * side)) + 1);
  return side * side + tokens + rows;
}

static int64_t most_tiles(const vision_processor_t *processor) {
  int64_t most = 0;
  for (uint32_t i = 0; i < processor->num_pinpoints; i++) {
    const uint32_t *size = processor->pinpoints[i], side = processor->view_side;
    most = MAX(most, (int64_t)(size[0] / side) * (size[1] / side));
  }
  return most;
}

int64_t vision_patches_max(const vision_processor_t *processor) {
  const int64_t merge = processor->merge, patch = processor->patch, token = merge * patch;
  const int64_t side = processor->view_side / patch;
  int64_t views = 1;
  switch (processor->kind) {
  case VISION_QWEN2_VL: return processor->pixels_max / (patch * patch);
  case VISION_GLM4V: return processor->pixels_max / (patch * patch * processor->frames);
  case VISION_GEMMA4: return processor->view_tokens * merge * merge;
  case VISION_PIXTRAL: {
    const int64_t tokens = DIV_UP((int64_t)processor->longest_edge, token);
    return tokens * tokens * merge * merge;
  }
  case VISION_GEMMA3:
  case VISION_GOT_OCR2: views += processor->tiles ? processor->tiles_max : 0; break;
  case VISION_IDEFICS3:
    views = DIV_UP(processor->longest_edge, processor->view_side);
    views = processor->tiles ? views * views + 1 : 1;
    break;
  case VISION_LLAVA_ONEVISION:
  case VISION_LLAVA_NEXT: views += most_tiles(processor); break;
  case VISION_CLIP: break;
  }
  return MIN(views, VISION_TILES_MAX) * side * side;
}

/* Tiles, beside the whole picture, whose tokens are no more than these; 0 = not even two views. */
static uint32_t tiles_within(const vision_processor_t *processor, uint32_t tokens) {
  return MAX(tokens / MAX(processor->view_tokens, 1), 1) - 1;
}

/* Leaves the pinpoints whose pictures have no more tokens than these. */
static void limit_pinpoints(vision_processor_t *processor, uint32_t tokens) {
  uint32_t count = 0;
  for (uint32_t i = 0; i < processor->num_pinpoints; i++) {
    const uint32_t size[2] = {processor->pinpoints[i][0], processor->pinpoints[i][1]};
    if (packed_most(processor, size) > tokens) continue;
    processor->pinpoints[count][0] = size[0];
    processor->pinpoints[count++][1] = size[1];
  }
  processor->num_pinpoints = count;
}

void vision_limit(vision_processor_t *processor, uint32_t tokens) {
  static const uint32_t budgets[] = {70, 140, 280, 560, 1120}; /* those of the reference */
  const int64_t side = (int64_t)processor->patch * processor->merge;
  const uint32_t tiles = tiles_within(processor, tokens);
  uint32_t budget = budgets[0];
  switch (processor->kind) {
  case VISION_QWEN2_VL:
  case VISION_GLM4V: {
    const int64_t frames = processor->kind == VISION_GLM4V ? processor->frames : 1;
    processor->pixels_max = MIN(processor->pixels_max, tokens * side * side * frames);
    processor->pixels_min = MIN(processor->pixels_min, processor->pixels_max);
    return;
  }
  case VISION_GEMMA4:
    for (size_t i = 0; i < ARRAY_LEN(budgets) && budgets[i] <= tokens; i++) budget = budgets[i];
    processor->view_tokens = MIN(processor->view_tokens, budget);
    return;
  case VISION_PIXTRAL:
    processor->longest_edge =
        MIN(processor->longest_edge, (uint32_t)sqrt((double)tokens) * (uint32_t)side);
    return;
  case VISION_GEMMA3: /* one crop is none */
    processor->tiles = processor->tiles && tiles > 1;
    if (tiles > 1) processor->tiles_max = MIN(processor->tiles_max, tiles);
    return;
  case VISION_GOT_OCR2: /* one tile is the whole picture */
    processor->tiles_max = MIN(processor->tiles_max, MAX(tiles, 1));
    processor->tiles_min = MIN(processor->tiles_min, processor->tiles_max);
    return;
  case VISION_IDEFICS3:
    processor->longest_edge =
        MIN(processor->longest_edge, MAX((uint32_t)sqrt((double)tiles), 1) * processor->view_side);
    return;
  case VISION_LLAVA_ONEVISION:
  case VISION_LLAVA_NEXT: limit_pinpoints(processor, tokens); return;
  case VISION_CLIP: return;
  }
}

size_t vision_view_bytes(const vision_layout_t *layout) {
  return (size_t)layout->views * layout->view_height * layout->view_width * 3;
}

size_t vision_row_count(const vision_layout_t *layout) {
  return (size_t)layout->views * layout->grid_height * layout->grid_width;
}
