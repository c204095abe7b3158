/* pictures.c: the C side of tests/parity/parity_vision.py: a model that sees, prompts with
 * pictures, and their logits.
 *
 *   vision_driver DIR ISA PIXELS < prompt > floats
 *
 * Of stdin, numbers as text: TOKENS IMAGES PLACEHOLDER CHUNKS SEES PACKED; [CHUNKS] tokens of each
 * step, the last one of which goes on; [TOKENS] ids; [3, TOKENS] time, line and column, -1 alone =
 * there are none; with SEES [TOKENS] up to where each sees; [IMAGES, 2] rows and columns of
 * patches; [PACKED, 2] width and height of pictures, whose views the images are.
 * PIXELS is a file of raw fp32, the patches of all images. The rows of the tower take the places of
 * the placeholders in their order, or those that DIR/preprocessor_config.json makes of them for
 * pictures of these sizes. Writes the logits of every position as raw fp32.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "engine/model/config/config.h"
#include "engine/model/source/model_file.h"
#include "engine/model/towers/towers.h"
#include "engine/vision/processor.h"
#include "tests/engine/model/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { IMAGES_MAX = 64, CHUNKS_MAX = 4096 };

typedef struct prompt {
  int32_t count, num_images, placeholder, num_chunks, sees, packed;
  int32_t chunks[CHUNKS_MAX];
  int32_t *ids, *positions, *seen; /* [count], [3, count], [count] */
  tower_grid_t grids[IMAGES_MAX];
  vision_layout_t layouts[IMAGES_MAX]; /* [packed] */
} prompt_t;

static int32_t read_number(void) {
  int32_t number = 0;
  CHECK_EQ(scanf("%d", &number), 1);
  return number;
}

static int32_t *read_list(int32_t count) {
  int32_t *list = calloc((size_t)count, sizeof *list);
  CHECK(list != NULL);
  for (int32_t i = 0; i < count; i++) {
    list[i] = read_number();
    if (i == 0 && list[0] < 0) break;
  }
  return list;
}

static void read_prompt(prompt_t *prompt) {
  *prompt = (prompt_t){.count = read_number(),
                       .num_images = read_number(),
                       .placeholder = read_number(),
                       .num_chunks = read_number(),
                       .sees = read_number(),
                       .packed = read_number()};
  CHECK_RANGE(prompt->packed, 0, IMAGES_MAX + 1);
  CHECK_RANGE(prompt->num_images, 0, IMAGES_MAX + 1);
  CHECK_RANGE(prompt->num_chunks, 1, CHUNKS_MAX + 1);
  for (int32_t i = 0; i < prompt->num_chunks; i++) prompt->chunks[i] = read_number();
  prompt->ids = read_list(prompt->count);
  prompt->positions = read_list(3 * prompt->count);
  if (prompt->sees) prompt->seen = read_list(prompt->count);
  for (int32_t i = 0; i < prompt->num_images; i++) {
    prompt->grids[i].height = read_number();
    prompt->grids[i].width = read_number();
  }
}

/* Reads the sizes of packed pictures. */
static int lay_out(const char *dir, prompt_t *prompt, inferd_error_t *error) {
  model_file_t config, file;
  vision_processor_t processor;
  int code = 0;
  if (prompt->packed == 0) return 0;
  CHECK_EQ(model_file_read(dir, "config.json", 1 << 20, &config_limits, &config, error), 0);
  CHECK_EQ(model_file_read(dir, "preprocessor_config.json", 1 << 20, &config_limits, &file, error),
           0);
  CHECK(config.doc != NULL && file.doc != NULL);
  code = vision_processor_read(json_root(file.doc), NULL, json_root(config.doc), &processor, error);
  for (int32_t i = 0; i < prompt->packed && code == 0; i++) {
    const uint32_t width = (uint32_t)read_number(), height = (uint32_t)read_number();
    code =
        vision_layout(&processor, width, height, prompt->packed == 1, &prompt->layouts[i], error);
  }
  model_file_free(&config);
  model_file_free(&file);
  return code;
}

/* The file of patches, and where rows go: [1 + num_deep, width] of each token. */
typedef struct pixels {
  FILE *file;
  int32_t columns, width;
  const prompt_t *prompt;
  float **out;
} pixels_t;

/* As engine/sight_work.c. */
static void write_row(void *context, int32_t row, int32_t plane, const float *values) {
  const pixels_t *to = context;
  vision_tap_t taps[VISION_TAPS_MAX] = {{(uint32_t)row, 1}};
  uint32_t count = 1, own = (uint32_t)row, first = 0;
  for (int32_t i = 0; i < to->prompt->packed; i++) {
    const vision_layout_t *layout = &to->prompt->layouts[i];
    const uint32_t rows = layout->views * layout->view_tokens;
    if (own < rows) {
      count = vision_taps(layout, own, taps);
      break;
    }
    own -= rows;
    first += layout->tokens;
  }
  for (uint32_t i = 0; i < count; i++) {
    float *out = to->out[first + taps[i].token] + (int64_t)plane * to->width;
    for (int32_t k = 0; k < to->width; k++) out[k] += taps[i].weight * values[k];
  }
}

/* New lines, before rows are written. */
static void write_lines(const pixels_t *to, const tower_t *tower) {
  for (int32_t i = 0, first = 0; i < to->prompt->packed; i++) {
    const vision_layout_t *layout = &to->prompt->layouts[i];
    for (uint32_t token = 0; token < layout->tokens; token++) {
      if (vision_is_line(layout, token))
        memcpy(to->out[first + (int32_t)token], tower_line(tower),
               (size_t)to->width * sizeof(float));
    }
    first += (int32_t)layout->tokens;
  }
}

static void read_pixels(void *context, int32_t first, int32_t count, float *out) {
  const pixels_t *from = context;
  const size_t values = (size_t)count * (size_t)from->columns;
  CHECK_EQ(fseek(from->file, (long)first * from->columns * (long)sizeof(float), SEEK_SET), 0);
  CHECK_EQ(fread(out, sizeof(float), values, from->file), values);
}

/* The places of the prompt's rows in `rows`, which the caller frees, [count] or NULL = text. */
static const float **see(const rig_t *rig, const char *dir, const prompt_t *prompt,
                         const char *path, float **rows, int32_t *num_deep, inferd_error_t *error) {
  tower_plan_t plan;
  tower_t *tower = rig->tower;
  const float **places = calloc((size_t)prompt->count, sizeof *places);
  int32_t patches = 0, num_rows = 0, at = 0;
  if (prompt->num_images == 0) return places;
  if (tower_plan_read(dir, &plan, error) != 0) return NULL;
  for (int32_t i = 0; i < prompt->num_images; i++) {
    patches += prompt->grids[i].height * prompt->grids[i].width;
    num_rows += tower_num_rows(&plan, prompt->grids[i]);
  }
  for (int32_t i = 0; i < prompt->packed; i++)
    num_rows = (i == 0 ? 0 : num_rows) + (int32_t)prompt->layouts[i].tokens;
  if (tower_prepare(tower, &patches, 1, error) != 0) return NULL;
  const size_t row = (size_t)(1 + plan.num_deep) * (size_t)plan.out_size;
  float **out = calloc((size_t)num_rows, sizeof *out);
  pixels_t from = {fopen(path, "rb"), plan.patch_columns, plan.out_size, prompt, out};
  *rows = calloc((size_t)num_rows * row, sizeof **rows);
  CHECK(from.file != NULL && places != NULL && out != NULL && *rows != NULL);
  for (int32_t i = 0; i < num_rows; i++) out[i] = *rows + (size_t)i * row;
  write_lines(&from, tower);
  tower_begin(tower, prompt->grids, prompt->num_images, read_pixels, write_row, &from);
  while (!tower_advance(tower, 1 << 20)) {
  }
  for (int32_t i = 0; i < prompt->count && at < num_rows; i++)
    if (prompt->ids[i] == prompt->placeholder) places[i] = out[at++];
  CHECK_EQ(at, num_rows);
  fclose(from.file);
  free(out);
  *num_deep = plan.num_deep;
  return places;
}

static int run(rig_t *rig, const prompt_t *prompt, inferd_error_t *error) {
  const size_t vocab = (size_t)rig->blueprint.vocab_size;
  float *logits = calloc((size_t)prompt->count * vocab, sizeof *logits);
  int status = 0;
  CHECK(logits != NULL);
  for (int32_t at = 0, step = 0, count; at < prompt->count && status == 0; at += count, step++) {
    count = MIN(prompt->chunks[MIN(step, prompt->num_chunks - 1)], prompt->count - at);
    status = rig_run(rig, prompt->ids + at, count, at, count, logits + (size_t)at * vocab, error);
  }
  if (status == 0) fwrite(logits, sizeof(float), (size_t)prompt->count * vocab, stdout);
  free(logits);
  return status;
}

int main(int argc, char **argv) {
  inferd_error_t error = {0};
  rig_t rig = {0};
  prompt_t prompt;
  float *rows = NULL;
  if (argc != 4) {
    fprintf(stderr, "usage: vision_driver DIR ISA PIXELS < prompt\n");
    return 64;
  }
  read_prompt(&prompt);
  rig_options_t options = {.ops = &ops_cpu,
                           .isa = argv[2],
                           .dir = argv[1],
                           .dtype = -1,
                           .num_threads = 2,
                           .sees = prompt.num_images > 0};
  rig_sight_t sight = {.count = prompt.count,
                       .rope_positions = prompt.positions[0] < 0 ? NULL : prompt.positions,
                       .seen_until = prompt.seen};
  int status = rig_open(&options, &rig, &error);
  if (status == 0) status = lay_out(argv[1], &prompt, &error);
  if (status == 0) {
    sight.rows = see(&rig, argv[1], &prompt, argv[3], &rows, &sight.num_deep, &error);
    status = sight.rows == NULL ? error.code : 0;
  }
  rig.sight = &sight;
  if (status == 0) status = run(&rig, &prompt, &error);
  if (status != 0) fprintf(stderr, "%s %s\n", error_name(error.code), error.message);
  rig_close(&rig);
  free(rows), free((void *)sight.rows);
  free(prompt.ids), free(prompt.positions), free(prompt.seen);
  return status != 0;
}
