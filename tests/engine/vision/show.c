/* show.c: pictures of numbers and lines about them; one thread. */
#include "tests/engine/vision/show.h"

#include "engine/base/check.h"

#include <stdio.h>
#include <stdlib.h>

picture_t show_draw(uint32_t width, uint32_t height, uint32_t seed) {
  const size_t bytes = (size_t)width * height * 3;
  uint8_t *rgb = malloc(bytes);
  CHECK(rgb != NULL);
  for (size_t i = 0; i < bytes; i++) {
    uint32_t value = ((uint32_t)i + seed) * 2654435761u;
    value ^= value >> 15;
    rgb[i] = (uint8_t)(value * 2246822519u >> 24);
  }
  return (picture_t){rgb, width, height};
}

uint32_t show_crc(const void *bytes, size_t length) {
  static uint32_t table[256];
  if (table[1] == 0) {
    for (uint32_t i = 0; i < 256; i++) {
      uint32_t value = i;
      for (int k = 0; k < 8; k++) value = value >> 1 ^ (value & 1 ? 0xEDB88320u : 0);
      table[i] = value;
    }
  }
  uint32_t crc = 0xFFFFFFFFu;
  const uint8_t *byte = bytes;
  for (size_t i = 0; i < length; i++) crc = crc >> 8 ^ table[(crc ^ byte[i]) & 255];
  return crc ^ 0xFFFFFFFFu;
}

static void show_text(const vision_processor_t *processor, const vision_layout_t *layout,
                      buffer_t *line) {
  static const char *const names[] = {[VISION_BEGIN] = "<begin>",
                                      [VISION_END] = "<end>",
                                      [VISION_BREAK] = "<break>",
                                      [VISION_WHOLE] = "<whole>"};
  const size_t count = vision_expand(processor, layout, NULL, 0);
  vision_run_t *runs = calloc(count, sizeof *runs);
  CHECK(runs != NULL && vision_expand(processor, layout, runs, count) == count);
  char text[64];
  buffer_t all = {0};
  for (size_t i = 0; i < count; i++) {
    const bool fake = runs[i].piece == VISION_END && processor->kind == VISION_IDEFICS3;
    switch (runs[i].piece) {
    case VISION_TOKENS: snprintf(text, sizeof text, "<image*%u>", runs[i].count); break;
    case VISION_TILE:
      snprintf(text, sizeof text, "<row_%u_col_%u>", runs[i].row, runs[i].column);
      break;
    default: snprintf(text, sizeof text, "%s", fake ? "<begin>" : names[runs[i].piece]); break;
    case VISION_TEXT: snprintf(text, sizeof text, "%s", runs[i].text); break;
    }
    buffer_text(&all, text);
  }
  buffer_quote(line, all.data, all.length);
  buffer_free(&all);
  free(runs);
}

static void show_rows(const vision_processor_t *processor, const vision_layout_t *layout,
                      const picture_t *picture, buffer_t *line) {
  const size_t rows = vision_row_count(layout), values = vision_row_values(processor);
  uint8_t *views = malloc(vision_view_bytes(layout));
  float *floats = malloc(rows * values * sizeof *floats);
  CHECK(views != NULL && floats != NULL);
  CHECK_EQ(vision_views(processor, layout, picture, views), 0);
  /* In two pieces, which must meet. */
  vision_rows(processor, layout, views, 0, rows / 2, floats);
  vision_rows(processor, layout, views, rows / 2, rows - rows / 2, floats + rows / 2 * values);
  char text[128];
  snprintf(text, sizeof text, ", \"rows\": [%zu, %zu], \"crc\": %u}", rows, values,
           show_crc(floats, rows * values * sizeof *floats));
  buffer_text(line, text);
  free(views);
  free(floats);
}

static uint32_t number(const json_t *request, const char *key) {
  int64_t value = 0;
  (void)json_int64(json_get(request, key), &value);
  return (uint32_t)value;
}

int show_case(const json_t *request, buffer_t *line, inferd_error_t *error) {
  vision_processor_t processor;
  vision_layout_t layout;
  bool alone = true;
  const uint32_t width = number(request, "width"), height = number(request, "height");
  int status =
      vision_processor_read(json_get(request, "preprocessor"), json_get(request, "processor"),
                            json_get(request, "config"), &processor, error);
  if (status != 0) return status;
  (void)json_bool(json_get(request, "alone"), &alone);
  if (vision_layout(&processor, width, height, alone, &layout, error) != 0) {
    buffer_text(line, "{\"refused\": true}");
    return 0;
  }
  char text[160];
  snprintf(text, sizeof text, "{\"views\": [%u, %u, %u], \"tokens\": %u, \"text\": ", layout.views,
           layout.view_height, layout.view_width, layout.tokens);
  buffer_text(line, text);
  show_text(&processor, &layout, line);
  const picture_t picture = show_draw(width, height, number(request, "seed"));
  show_rows(&processor, &layout, &picture, line);
  free(picture.rgb);
  return 0;
}
