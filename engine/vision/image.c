/* image.c: the tokens of pictures in a prompt: which row each of them is, and how text and pictures
 * are counted for M-RoPE. Pure functions, any thread. */
#include "engine/vision/image.h"

#include "engine/base/util.h"

#include <string.h>

uint32_t vision_run_ids(const vision_t *vision, const vision_run_t *run, const int32_t **ids) {
  *ids = NULL;
  switch (run->piece) {
  case VISION_TOKENS: *ids = &vision->placeholder_id; break;
  case VISION_BEGIN: *ids = &vision->begin_id; break;
  case VISION_END: *ids = &vision->end_id; break;
  case VISION_BREAK: *ids = &vision->break_id; break;
  case VISION_WHOLE: *ids = &vision->whole_id; break;
  case VISION_TILE:
    if (run->row > VISION_TILE_SIDE_MAX || run->column > VISION_TILE_SIDE_MAX) return 0;
    *ids = &vision->tile_ids[run->row - 1][run->column - 1];
    return **ids > 0;
  case VISION_TEXT: {
    const size_t line = strlen(run->text) - 1;
    if (line >= VISION_LINES || strspn(run->text, "\n") != line + 1) return 0;
    *ids = vision->line_ids[line];
    return vision->num_line_ids[line];
  }
  }
  return **ids >= 0;
}

/* Text behind a picture is counted as if the picture were as long as its larger side. */
static void pass(image_walk_t *walk) {
  const image_t *image = walk->images++;
  walk->num_images--;
  walk->row = 0;
  walk->shift += (int32_t)MAX(image->layout.token_rows, image->layout.token_columns) -
                 (image->end - image->first);
}

image_walk_t image_walk_from(const image_t *images, int32_t num_images, int32_t placeholder_id,
                             const int32_t *prompt_ids, int32_t position) {
  image_walk_t walk = {.images = images,
                       .num_images = num_images,
                       .placeholder_id = placeholder_id,
                       .position = position};
  while (walk.num_images > 0 && walk.images->end <= position) pass(&walk);
  for (int32_t i = walk.num_images > 0 ? walk.images->first : position; i < position; i++)
    walk.row += prompt_ids[i] == placeholder_id;
  return walk;
}

image_token_t image_walk_next(image_walk_t *walk, int32_t id) {
  const image_t *image = walk->num_images > 0 ? walk->images : NULL;
  const int32_t position = walk->position++, place = position + walk->shift;
  image_token_t token = {.rope = {place, place, place}};
  if (image == NULL || position < image->first) return token;
  if (id == walk->placeholder_id) {
    const int32_t columns = (int32_t)MAX(image->layout.token_columns, 1);
    token.image = image;
    token.row = walk->row++;
    token.rope[0] = image->first + walk->shift;
    token.rope[1] = token.rope[0] + token.row / columns;
    token.rope[2] = token.rope[0] + token.row % columns;
  }
  if (walk->position == image->end) pass(walk);
  return token;
}

int32_t image_run_first(const image_t *image, int32_t placeholder_id, const int32_t *prompt_ids,
                        int32_t position) {
  while (position > image->first && prompt_ids[position - 1] == placeholder_id) position--;
  return position;
}

int32_t image_run_end(const image_t *image, int32_t placeholder_id, const int32_t *prompt_ids,
                      int32_t position) {
  while (position < image->end && prompt_ids[position] == placeholder_id) position++;
  return position;
}
