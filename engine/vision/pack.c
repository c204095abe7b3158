/* pack.c: embeddings of views -> tokens of a picture, where tiles are joined, what was padded is
 * left out, and a new line is behind each row: pack_image_features of models/llava_next and
 * llava_onevision in transformers. Any thread; no state.
 */
#include "engine/base/util.h"
#include "engine/vision/processor.h"

#include <math.h>

enum { AXIS_TAPS = 2 };

/* Of a side of `in` that becomes `out`, no longer: the places that place `at` counts in, by torch's
 * bilinear interpolation without aligned corners, in fp32. */
static uint32_t axis_taps(uint32_t at, uint32_t in, uint32_t out, vision_tap_t *taps) {
  const float scale = (float)in / (float)out;
  uint32_t count = 0;
  if (in == out) {
    taps[0] = (vision_tap_t){at, 1};
    return 1;
  }
  for (uint32_t i = (uint32_t)MAX((int64_t)(at / (double)scale) - 2, 0); i < out; i++) {
    const float from = fmaxf(scale * ((float)i + 0.5f) - 0.5f, 0);
    const uint32_t low = MIN((uint32_t)from, in - 1), high = MIN(low + 1, in - 1);
    const float above = from - (float)low;
    const float weight = (low == at ? 1 - above : 0) + (high == at ? above : 0);
    if (low > at || count == AXIS_TAPS) break;
    if (weight > 0) taps[count++] = (vision_tap_t){i, weight};
  }
  return count;
}

uint32_t vision_taps(const vision_layout_t *layout, uint32_t row, vision_tap_t *out) {
  vision_tap_t down[AXIS_TAPS], across[AXIS_TAPS];
  uint32_t count = 0;
  out[0] = (vision_tap_t){row, 1};
  if (!layout->packed || row < layout->view_tokens) return 1;
  const uint32_t tile = row / layout->view_tokens - 1, own = row % layout->view_tokens;
  const uint32_t y = tile / layout->tile_columns * layout->token_rows + own / layout->token_columns;
  const uint32_t x =
      tile % layout->tile_columns * layout->token_columns + own % layout->token_columns;
  /* a place before the rectangle wraps to a large one */
  const uint32_t inner_y = y - layout->kept_top, inner_x = x - layout->kept_left;
  if (inner_y >= layout->kept_rows || inner_x >= layout->kept_columns) return 0;
  const uint32_t rows = axis_taps(inner_y, layout->kept_rows, layout->packed_rows, down);
  const uint32_t columns = axis_taps(inner_x, layout->kept_columns, layout->packed_columns, across);
  for (uint32_t i = 0; i < rows; i++) {
    for (uint32_t k = 0; k < columns; k++)
      out[count++] = (vision_tap_t){
          layout->view_tokens + down[i].token * (layout->packed_columns + 1) + across[k].token,
          down[i].weight * across[k].weight};
  }
  return count;
}

bool vision_sums(const vision_layout_t *layout) {
  return layout->packed && (layout->packed_rows != layout->kept_rows ||
                            layout->packed_columns != layout->kept_columns);
}

bool vision_is_line(const vision_layout_t *layout, uint32_t token) {
  if (!layout->packed) return token >= layout->views * layout->view_tokens;
  const uint32_t line = layout->packed_columns + 1;
  return token >= layout->view_tokens && (token - layout->view_tokens) % line == line - 1;
}
