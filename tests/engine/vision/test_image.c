/* test_image.c: places of tokens beside those of get_rope_index of transformers 5.23, which gives
 * Qwen2.5-VL, Qwen3-VL and Qwen3.5 the same numbers; and rows, from wherever a walk begins.
 */
#include "engine/base/util.h"
#include "engine/vision/image.h"
#include "tests/expect.h"

enum { PAD = 7, TEXT = 1, TOKENS_MAX = 64, IMAGES_MAX = 4 };

/* Text, then pictures of (lines, columns) and text by turns; a line of places each. */
static const struct rope_case {
  int32_t first, count;
  struct {
    uint32_t lines, columns;
    int32_t behind;
  } images[IMAGES_MAX];
  int32_t time[TOKENS_MAX], line[TOKENS_MAX], column[TOKENS_MAX];
} cases[] = {
    {5,
     1,
     {{2, 3, 3}},
     {0, 1, 2, 3, 4, 5, 5, 5, 5, 5, 5, 8, 9, 10},
     {0, 1, 2, 3, 4, 5, 5, 5, 6, 6, 6, 8, 9, 10},
     {0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8, 9, 10}},
    {1,
     2,
     {{1, 1, 1}, {5, 1, 2}},
     {0, 1, 2, 3, 3, 3, 3, 3, 8, 9},
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9},
     {0, 1, 2, 3, 3, 3, 3, 3, 8, 9}},
    {0,
     1,
     {{3, 2, 4}},
     {0, 0, 0, 0, 0, 0, 3, 4, 5, 6},
     {0, 0, 1, 1, 2, 2, 3, 4, 5, 6},
     {0, 1, 0, 1, 0, 1, 3, 4, 5, 6}},
    {7,
     1,
     {{4, 1, 0}},
     {0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7},
     {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10},
     {0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7}},
    {2,
     3,
     {{1, 7, 5}, {2, 2, 1}, {3, 4, 9}},
     {0,  1,  2,  2,  2,  2,  2,  2,  2,  9,  10, 11, 12, 13, 14, 14, 14, 14, 16, 17,
      17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 21, 22, 23, 24, 25, 26, 27, 28, 29},
     {0,  1,  2,  2,  2,  2,  2,  2,  2,  9,  10, 11, 12, 13, 14, 14, 15, 15, 16, 17,
      17, 17, 17, 18, 18, 18, 18, 19, 19, 19, 19, 21, 22, 23, 24, 25, 26, 27, 28, 29},
     {0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 14, 15, 16, 17,
      18, 19, 20, 17, 18, 19, 20, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29}},
};

typedef struct prompt {
  int32_t ids[TOKENS_MAX], length;
  image_t images[IMAGES_MAX];
} prompt_t;

static void add(prompt_t *prompt, int32_t id, int32_t count) {
  for (int32_t i = 0; i < count; i++) prompt->ids[prompt->length++] = id;
}

static prompt_t make(const struct rope_case *it) {
  prompt_t prompt = {0};
  add(&prompt, TEXT, it->first);
  for (int32_t i = 0; i < it->count; i++) {
    image_t *image = &prompt.images[i];
    image->layout.token_rows = it->images[i].lines;
    image->layout.token_columns = it->images[i].columns;
    image->layout.tokens = it->images[i].lines * it->images[i].columns;
    image->first = prompt.length;
    add(&prompt, PAD, (int32_t)image->layout.tokens);
    image->end = prompt.length;
    add(&prompt, TEXT, it->images[i].behind);
  }
  return prompt;
}

/* Also of a decode, which may draw the id of placeholders: that is text. */
Test(image, places_are_those_of_transformers_from_wherever_a_walk_begins) {
  for (size_t c = 0; c < ARRAY_LEN(cases); c++) {
    const struct rope_case *it = &cases[c];
    const prompt_t prompt = make(it);
    const int32_t last = prompt.length - 1;
    int32_t next = MAX(MAX(it->time[last], it->line[last]), it->column[last]) + 1;
    for (int32_t from = 0; from <= prompt.length; from++) {
      image_walk_t walk = image_walk_from(prompt.images, it->count, PAD, prompt.ids, from);
      for (int32_t p = from; p < prompt.length; p++) {
        const image_token_t token = image_walk_next(&walk, prompt.ids[p]);
        ASSERT_EQ_FOR(token.rope[0], it->time[p], "case %zu, from %d, token %d", c, from, p);
        ASSERT_EQ_FOR(token.rope[1], it->line[p], "case %zu, from %d, token %d", c, from, p);
        ASSERT_EQ_FOR(token.rope[2], it->column[p], "case %zu, from %d, token %d", c, from, p);
        ASSERT_EQ(token.image != NULL, prompt.ids[p] == PAD);
        if (token.image != NULL) ASSERT_EQ(token.row, p - token.image->first);
      }
      for (int32_t i = 0; i < 3; i++) {
        const image_token_t token = image_walk_next(&walk, PAD);
        ASSERT_EQ(token.image == NULL, true);
        ASSERT_EQ_FOR(token.rope[i], next + i, "case %zu, decode %d", c, i);
      }
    }
  }
}

/* The ends of rows of Pixtral are text between the tokens of a picture. */
Test(image, what_stands_between_placeholders_is_no_row) {
  const int32_t ids[] = {1, PAD, PAD, 2, PAD, PAD, 3, 1, PAD};
  const image_t image = {
      .layout = {.token_rows = 2, .token_columns = 2, .tokens = 4}, .first = 1, .end = 6};
  static const int32_t rows[] = {-1, 0, 1, -1, 2, 3, -1, -1, -1};
  for (int32_t from = 0; from < (int32_t)ARRAY_LEN(ids); from++) {
    image_walk_t walk = image_walk_from(&image, 1, PAD, ids, from);
    for (int32_t p = from; p < (int32_t)ARRAY_LEN(ids); p++) {
      const image_token_t token = image_walk_next(&walk, ids[p]);
      ASSERT_EQ_FOR(token.image != NULL ? token.row : -1, rows[p], "from %d, token %d", from, p);
    }
  }
}

/* What stands around the tokens of a picture, and what is no ids of its own. */
Test(image, runs_have_the_ids_of_their_pieces) {
  static vision_t vision = {.placeholder_id = PAD,
                            .begin_id = 0,
                            .end_id = -1,
                            .break_id = 9,
                            .whole_id = 10,
                            .tile_ids[1][7] = 30,
                            .line_ids = {{11}, {11, 12}},
                            .num_line_ids = {1, 2}};
  static const struct {
    vision_run_t run;
    uint32_t count;
    int32_t last;
  } runs[] = {
      {{.piece = VISION_TOKENS, .count = 5}, 1, PAD},
      {{.piece = VISION_BEGIN}, 1, 0},
      {{.piece = VISION_END}, 0, 0},
      {{.piece = VISION_BREAK}, 1, 9},
      {{.piece = VISION_WHOLE}, 1, 10},
      {{.piece = VISION_TILE, .row = 2, .column = 8}, 1, 30},
      {{.piece = VISION_TILE, .row = 2, .column = 9}, 0, 0},
      {{.piece = VISION_TILE, .row = 9, .column = 1}, 0, 0},
      {{.piece = VISION_TILE, .row = 1, .column = 1}, 0, 0}, /* the tokenizer has no such name */
      {{.piece = VISION_TEXT, .text = "\n"}, 1, 11},
      {{.piece = VISION_TEXT, .text = "\n\n"}, 2, 12},
      {{.piece = VISION_TEXT, .text = "\n\n\n"}, 0, 0},
      {{.piece = VISION_TEXT, .text = "\n "}, 0, 0},
  };
  for (size_t i = 0; i < ARRAY_LEN(runs); i++) {
    const int32_t *ids;
    ASSERT_EQ_FOR(vision_run_ids(&vision, &runs[i].run, &ids), runs[i].count, "run %zu", i);
    if (runs[i].count > 0) ASSERT_EQ_FOR(ids[runs[i].count - 1], runs[i].last, "run %zu", i);
  }
}
