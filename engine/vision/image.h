/* image.h: a picture in a prompt, and what a model that sees says of its pictures.
 *
 * The server makes an image_t of the bytes that a client sent; the engine reads it. Plain data.
 */
#ifndef INFERD_ENGINE_VISION_IMAGE_H
#define INFERD_ENGINE_VISION_IMAGE_H

#include "engine/vision/processor.h"

/* SHA-256 of the file's bytes, the layout and the processor: two pictures with the same key become
 * the same rows. It stands in the keys of the prefix cache, so clients must not be able to choose
 * two pictures with one key. */
typedef struct image_key {
  uint8_t bytes[32];
} image_key_t;

typedef struct image {
  image_key_t key;
  vision_layout_t layout;
  const uint8_t *views; /* vision_view_bytes(&layout), of the request's owner */
  /* prompt_ids[first, end) holds its placeholders: layout.tokens times vision_t.placeholder_id, in
   * the order of the picture's tokens, the first at `first`, the last at end - 1; between them may
   * stand what the family writes there (ends of rows, names of tiles), which is text. */
  int32_t first, end;
} image_t;

/* Of a model that sees; constant from READY on. */
typedef struct vision {
  vision_processor_t processor;
  int32_t placeholder_id; /* one such id in the prompt for each token of a picture */
  /* Ids of vision_piece_t, -1 = the family has none. */
  int32_t begin_id, end_id, break_id, whole_id;
} vision_t;

#endif
