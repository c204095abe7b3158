/* marks.c: what stands around the tokens of a picture in the prompts of a model: the ids of the
 * pieces of vision_expand. Engine thread, at start; allocates and frees. */
#include "engine/base/util.h"
#include "engine/internal.h"
#include "engine/sight.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As the processors of transformers name them. */
static const struct marks {
  vision_kind_t kind;
  const char *begin, *end, *row_end, *whole;
} marks[] = {{VISION_PIXTRAL, NULL, "[IMG_END]", "[IMG_BREAK]", NULL},
             {VISION_GOT_OCR2, "<img>", "</img>", NULL, NULL},
             {VISION_GEMMA3, "<start_of_image>", "<end_of_image>", NULL, NULL},
             {VISION_GEMMA4, "<|image>", "<image|>", NULL, NULL},
             {VISION_IDEFICS3, "<fake_token_around_image>", "<fake_token_around_image>", NULL,
              "<global-img>"}};

static int find(const engine_t *engine, const char *name, int32_t *id, inferd_error_t *error) {
  if (name == NULL) return 0;
  *id = tokenizer_id(engine->tokenizer, name, strlen(name));
  if (*id >= 0 && *id < engine->blueprint.vocab_size) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "the tokenizer has no token %s, which stands beside pictures", name);
}

/* Between special tokens a text has its ids whatever is around them. */
static int read_lines(const engine_t *engine, vision_t *vision, inferd_error_t *error) {
  static const char *const texts[VISION_LINES] = {"\n", "\n\n"};
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(engine->tokenizer);
  int code = scratch == NULL ? error_set(error, ERR_NO_MEMORY, NULL, "no memory for text") : 0;
  for (size_t i = 0; i < VISION_LINES && code == 0; i++) {
    const tokenize_options_t options = {.ids_max = VISION_LINE_IDS_MAX};
    int32_t *ids = NULL;
    size_t count = 0;
    code = tokenizer_encode(engine->tokenizer, scratch, texts[i], strlen(texts[i]), &options, &ids,
                            &count, error);
    if (code != 0) break;
    memcpy(vision->line_ids[i], ids, count * sizeof *ids);
    vision->num_line_ids[i] = (uint32_t)count;
    free(ids);
  }
  tokenizer_scratch_free(scratch);
  return code;
}

static void read_tiles(const engine_t *engine, vision_t *vision) {
  char name[32];
  for (int32_t i = 0; i < VISION_TILE_SIDE_MAX * VISION_TILE_SIDE_MAX; i++) {
    const int32_t row = i / VISION_TILE_SIDE_MAX, column = i % VISION_TILE_SIDE_MAX;
    snprintf(name, sizeof name, "<row_%d_col_%d>", row + 1, column + 1);
    const int32_t id = tokenizer_id(engine->tokenizer, name, strlen(name));
    vision->tile_ids[row][column] = MAX(id, 0);
  }
}

int sight_read_marks(const engine_t *engine, vision_t *vision, inferd_error_t *error) {
  const vision_kind_t kind = vision->processor.kind;
  int code = 0;
  for (size_t i = 0; i < ARRAY_LEN(marks); i++) {
    if (marks[i].kind != kind) continue;
    code = find(engine, marks[i].begin, &vision->begin_id, error);
    if (code == 0) code = find(engine, marks[i].end, &vision->end_id, error);
    if (code == 0) code = find(engine, marks[i].row_end, &vision->break_id, error);
    if (code == 0) code = find(engine, marks[i].whole, &vision->whole_id, error);
    if (kind == VISION_GEMMA3) vision->mark = marks[i].begin;
  }
  vision->mark_id = vision->mark != NULL ? vision->begin_id : vision->placeholder_id;
  if (code != 0 || kind != VISION_IDEFICS3) return code;
  read_tiles(engine, vision);
  return read_lines(engine, vision, error);
}
