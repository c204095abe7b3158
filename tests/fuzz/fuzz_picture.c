/* fuzz_picture.c: a file of a picture; and the files that say how a model's pictures are cut.
 *
 * What is read must have the size that the header alone gave. What a processor takes must give
 * layouts whose views, rows and text agree, and small ones are computed.
 */
#include "engine/base/json.h"
#include "engine/picture/picture.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>

enum { PIXELS_MAX = 1 << 20, RUNS_MAX = 1 << 16 };

void fuzz_picture(const uint8_t *data, size_t size) {
  picture_header_t header;
  picture_t picture = {0};
  inferd_error_t error = {0};
  if (picture_header(data, size, &header, &error) != 0) {
    if (picture_decode(data, size, &picture, &error) == 0) abort();
    return;
  }
  if ((uint64_t)header.width * header.height > PIXELS_MAX) return;
  if (picture_decode(data, size, &picture, &error) != 0) {
    if (error.message[0] == 0) abort();
    return;
  }
  if (picture.width != header.width || picture.height != header.height) abort();
  size_t bytes = (size_t)picture.width * picture.height * 3;
  uint8_t *copy = malloc(bytes);
  if (copy != NULL) memcpy(copy, picture.rgb, bytes);
  free(copy);
  free(picture.rgb);
}

static void cut(const vision_processor_t *processor, const vision_layout_t *layout,
                const picture_t *picture) {
  const size_t rows = vision_row_count(layout), values = vision_row_values(processor);
  if ((uint64_t)layout->step_height * layout->step_width > PIXELS_MAX) return;
  if (vision_view_bytes(layout) > PIXELS_MAX || rows * values > PIXELS_MAX * 8) return;
  uint8_t *views = malloc(vision_view_bytes(layout));
  float *floats = malloc(rows * values * sizeof *floats);
  if (views == NULL || floats == NULL) abort();
  if (vision_views(processor, layout, picture, views) != 0) abort();
  vision_rows(processor, layout, views, 0, rows, floats);
  free(views);
  free(floats);
}

static void lay_out(const vision_processor_t *processor, uint32_t width, uint32_t height) {
  static uint8_t pixels[64 * 64 * 3];
  vision_layout_t layout;
  inferd_error_t error = {0};
  if (vision_layout(processor, width, height, width % 2 == 0, &layout, &error) != 0) return;
  if (layout.views == 0 || layout.whole >= layout.views) abort();
  static vision_run_t runs[RUNS_MAX];
  const size_t count = vision_expand(processor, &layout, runs, RUNS_MAX);
  uint64_t tokens = 0;
  for (size_t i = 0; i < count && i < RUNS_MAX; i++)
    tokens += runs[i].piece == VISION_TOKENS ? runs[i].count : 0;
  if (count <= RUNS_MAX && tokens != layout.tokens) abort();
  const picture_t picture = {pixels, width, height};
  if (width <= 64 && height <= 64) cut(processor, &layout, &picture);
}

void fuzz_vision(const uint8_t *data, size_t size) {
  static const uint32_t sizes[][2] = {{1, 1},   {1, 64},      {64, 3},    {33, 47},
                                      {1, 200}, {16384, 300}, {5000, 40}, {6000, 6000}};
  json_doc_t *doc = NULL;
  vision_processor_t processor;
  inferd_error_t error = {0};
  if (json_parse((const char *)data, size, &json_limits_model, &doc, &error) != 0) return;
  const json_t *root = json_root(doc);
  if (vision_processor_read(json_get(root, "preprocessor"), json_get(root, "processor"),
                            json_get(root, "config"), &processor, &error) == 0) {
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
      lay_out(&processor, sizes[i][0], sizes[i][1]);
  }
  json_free(doc);
}
