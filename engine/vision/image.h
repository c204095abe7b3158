/* image.h: a picture in a prompt, and what a model that sees says of its pictures; or a sound, and
 * what one that hears says of its sounds: a picture of one line (sound.h).
 *
 * The server makes an image_t of the bytes that a client sent; the engine reads it. Plain data.
 */
#ifndef INFERD_ENGINE_VISION_IMAGE_H
#define INFERD_ENGINE_VISION_IMAGE_H

#include "engine/vision/sound.h"

/* SHA-256 of the file's bytes, the layout and the processor: two pictures with the same key become
 * the same rows. It stands in the keys of the prefix cache, so clients must not be able to choose
 * two pictures with one key. */
typedef struct image_key {
  uint8_t bytes[32];
} image_key_t;

typedef struct image {
  image_key_t key;
  vision_layout_t layout;
  const uint8_t *views; /* vision_view_bytes(&layout), of the request's owner; NULL of a sound */
  const float *rows;    /* of a sound its spectrogram, for sound_patches; NULL of a picture */
  /* prompt_ids[first, end) holds its placeholders: layout.tokens times vision_t.placeholder_id, in
   * the order of the picture's tokens, the first at `first`, the last at end - 1; between them may
   * stand what the family writes there (ends of rows, names of tiles), which is text. */
  int32_t first, end;
} image_t;

enum { VISION_TILE_SIDE_MAX = 8, VISION_LINES = 2, VISION_LINE_IDS_MAX = 4 };
/* Tokens of a picture of low detail: of 512 x 512 pixels where a token has 32 x 32. */
enum { VISION_LOW_TOKENS = 256 };

/* Of a model that sees, or hears; constant from READY on. */
typedef struct vision {
  bool hears; /* sounds in the place of pictures, by `sound`, not the processors */
  /* Of a model that is made to write down what it hears: its model_type, else NULL. */
  const char *writes;
  sound_processor_t sound;
  vision_processor_t processor;
  vision_processor_t low; /* the same with VISION_LOW_TOKENS at most */
  int32_t placeholder_id; /* one such id in the prompt for each token of a picture */
  /* What the chat template writes for a picture: an id; where texts stand around pictures, which
   * are joined with those of the template before they become ids, also its spelling, else NULL. */
  int32_t mark_id;
  const char *mark;
  /* Of models whose template takes texts alone: what stands in these for a picture; else NULL. */
  const char *spelling;
  /* Ids of vision_piece_t, -1 = the family has none. */
  int32_t begin_id, end_id, break_id, whole_id;
  /* Of the names of tiles, by row and column from 0; 0 = the tokenizer has no such name. */
  int32_t tile_ids[VISION_TILE_SIDE_MAX][VISION_TILE_SIDE_MAX];
  /* Of one and of two ends of lines between special tokens; 0 ids = they are text, see VISION_TEXT.
   */
  int32_t line_ids[VISION_LINES][VISION_LINE_IDS_MAX];
  uint32_t num_line_ids[VISION_LINES];
  int32_t tokens_max, patches_max; /* of a picture: the tower has memory for no more */
} vision_t;

/* The ids that a run has `count` times. Returns how many, 0 = it is no ids, and *ids, of `vision`.
 */
uint32_t vision_run_ids(const vision_t *vision, const vision_run_t *run, const int32_t **ids);

/* Of a token of a sequence whose prompt has pictures. */
typedef struct image_token {
  /* Time, line and column by which it is rotated (M-RoPE, as in transformers): text
   * counts on in all three; a picture has one time, its lines and its columns count from there, and
   * what is behind it counts on from the larger side. */
  int32_t rope[3];
  const image_t *image; /* whose row takes the place of its embedding; NULL = it is text */
  int32_t row;          /* of the picture's tokens */
} image_token_t;

/* A walk over the tokens of such a sequence, one by one. Plain data; any thread. */
typedef struct image_walk {
  const image_t *images; /* [num_images]: that the walk has not passed */
  int32_t num_images, placeholder_id;
  int32_t position, row; /* of the next token; row of the first picture if it is a placeholder */
  int32_t shift;         /* text is rotated by its position and this */
} image_walk_t;

/* The next token is that at `position`. `prompt_ids` are read before it, from where the picture
 * begins in which it stands. */
image_walk_t image_walk_from(const image_t *images, int32_t num_images, int32_t placeholder_id,
                             const int32_t *prompt_ids, int32_t position);
image_token_t image_walk_next(image_walk_t *walk, int32_t id);

/* The run of placeholders of a picture around `position`, that of one of them: where it begins and
 * where it ends, in [first, end) of the picture. */
int32_t image_run_first(const image_t *image, int32_t placeholder_id, const int32_t *prompt_ids,
                        int32_t position);
int32_t image_run_end(const image_t *image, int32_t placeholder_id, const int32_t *prompt_ids,
                      int32_t position);

#endif
