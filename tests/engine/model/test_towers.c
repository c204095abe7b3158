/* test_towers.c: towers beside transformers (scripts/vectors/towers.py), the bits of an image
 * whatever other images there are, and files and configs that are refused by name.
 */
#include "engine/base/util.h"
#include "engine/model/config/config.h"
#include "engine/model/source/model_file.h"
#include "engine/model/source/safetensors.h"
#include "engine/model/towers/towers.h"
#include "engine/vision/processor.h"
#include "tests/expect.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VECTORS "tests/vectors/towers"
enum { IMAGES_MAX = 16, CASES_MAX = 64 };

/* A tower of a case, and what the reference made. */
typedef struct sight {
  char dir[256];
  tower_plan_t plan;
  device_t *device;
  tower_t *tower;
  weight_files_t *expected;
  tower_grid_t grids[IMAGES_MAX];
  int32_t num_images, patches, rows;
  float *pixels; /* [patches, patch_columns] */
} sight_t;

/* A copy, aligned; free() it. */
static float *take(const weight_files_t *files, const char *name, int64_t *count) {
  const stored_tensor_t *stored = weight_files_find(files, name);
  ASSERT_EQ_FOR(stored != NULL, true, "no tensor %s", name);
  float *values = calloc(stored->bytes, 1);
  memcpy(values, stored->data, stored->bytes);
  *count = (int64_t)(stored->bytes / sizeof *values);
  return values;
}

static void sight_open(sight_t *sight, const char *name, const char *isa, int threads,
                       dtype_t dtype) {
  inferd_error_t error = {0};
  const device_options_t options = {.isa = isa, .num_threads = threads};
  const step_limits_t limits = {.tokens_max = 8,
                                .reqs_max = 1,
                                .logits_rows_max = 1,
                                .hidden_max = 8,
                                .vocab_size = 16,
                                .max_model_len = 8,
                                .heads_max = 1,
                                .head_dim_max = 8};
  int64_t count;
  *sight = (sight_t){0};
  snprintf(sight->dir, sizeof sight->dir, "%s/%s", VECTORS, name);
  ASSERT_EQ_FOR(tower_plan_read(sight->dir, &sight->plan, &error), 0, "%s", error.message);
  ASSERT_EQ_FOR(sight->plan.family != NULL, true, "%s has no tower", name);
  ASSERT_EQ(ops_cpu.open(&options, &sight->device, &error), 0);
  ASSERT_EQ_FOR(
      tower_load(&ops_cpu, sight->device, sight->dir, &sight->plan, dtype, &sight->tower, &error),
      0, "%s", error.message);
  ASSERT_EQ(weight_files_open_file(sight->dir, "expected.safetensors", &sight->expected, &error),
            0);
  float *grids = take(sight->expected, "grids", &count);
  sight->num_images = (int32_t)count / 2;
  ASSERT_LE(sight->num_images, IMAGES_MAX);
  for (int32_t i = 0; i < sight->num_images; i++) {
    sight->grids[i] = (tower_grid_t){(int32_t)grids[2 * i], (int32_t)grids[2 * i + 1], 0};
    sight->patches += sight->grids[i].height * sight->grids[i].width;
    sight->rows += tower_num_rows(&sight->plan, sight->grids[i]);
  }
  free(grids);
  sight->pixels = take(sight->expected, "pixels", &count);
  ASSERT_EQ(count, (int64_t)sight->patches * sight->plan.patch_columns);
  ASSERT_EQ(ops_cpu.prepare(sight->device, &limits, &error), 0);
  ASSERT_EQ(
      tower_prepare(sight->tower, (const int32_t[]){sight->patches, sight->patches}, 2, &error), 0);
}

static void sight_close(sight_t *sight) {
  weight_files_close(sight->expected);
  tower_free(sight->tower);
  ops_cpu.close(sight->device);
  free(sight->pixels);
}

/* Pixels of a run, whose first patch is `pixels`, and places of its rows, [1 + num_deep, h] each.
 */
typedef struct pixels {
  const float *pixels;
  int32_t columns, width;
  float **places;
} pixels_t;

static void read_pixels(void *context, int32_t first, int32_t count, float *out) {
  const pixels_t *from = context;
  memcpy(out, from->pixels + (int64_t)first * from->columns,
         (size_t)count * (size_t)from->columns * sizeof *out);
}

static void write_row(void *context, int32_t row, int32_t plane, const float *values) {
  const pixels_t *to = context;
  memcpy(to->places[row] + (int64_t)plane * to->width, values, (size_t)to->width * sizeof *values);
}

/* [1 + num_deep][rows, h] of images [first, last), whose pixels begin at `patch`, in parts of so
 * much work; free() it. */
static float *see_in_parts(sight_t *sight, int32_t first, int32_t last, int32_t patch, int32_t rows,
                           int64_t work) {
  const tower_plan_t *plan = &sight->plan;
  const size_t h = (size_t)plan->out_size, planes = (size_t)(1 + plan->num_deep);
  float *made = calloc(planes * (size_t)rows * h, sizeof *made);
  float *out = calloc(planes * (size_t)rows * h, sizeof *out);
  float **places = calloc((size_t)rows, sizeof *places);
  for (int32_t i = 0; i < rows; i++) places[i] = made + (size_t)i * planes * h;
  pixels_t from = {sight->pixels + (int64_t)patch * plan->patch_columns, plan->patch_columns,
                   plan->out_size, places};
  tower_begin(sight->tower, sight->grids + first, last - first, read_pixels, write_row, &from);
  while (!tower_advance(sight->tower, work)) {
  }
  for (size_t plane = 0; plane < planes; plane++) {
    for (size_t i = 0; i < (size_t)rows; i++)
      memcpy(out + (plane * (size_t)rows + i) * h, places[i] + plane * h, h * sizeof *out);
  }
  free(made), free(places);
  return out;
}

static float *see(sight_t *sight, int32_t first, int32_t last, int32_t patch, int32_t rows) {
  return see_in_parts(sight, first, last, patch, rows, INT64_MAX / 2);
}

/* Largest difference from the reference in a plane, over the largest number there; or as it is. */
static double distance(const sight_t *sight, const char *name, const float *plane, bool relative) {
  int64_t count;
  double most = 0, largest = 0;
  float *expected = take(sight->expected, name, &count);
  cr_assert(count == (int64_t)sight->rows * sight->plan.out_size);
  for (int64_t i = 0; i < count; i++) {
    double difference = fabs((double)plane[i] - expected[i]);
    if (!(difference <= most)) most = difference; /* a NaN stays */
    largest = fmax(largest, fabs(expected[i]));
  }
  free(expected);
  return relative ? most / largest : most;
}

/* Distance of all planes. */
static double distances(sight_t *sight, bool relative) {
  float *out = see(sight, 0, sight->num_images, 0, sight->rows);
  double most = distance(sight, "rows", out, relative);
  for (int32_t i = 0; i < sight->plan.num_deep; i++) {
    char name[32];
    snprintf(name, sizeof name, "deep.%d", i);
    const float *plane = out + (int64_t)(i + 1) * sight->rows * sight->plan.out_size;
    most = fmax(most, distance(sight, name, plane, relative));
  }
  free(out);
  return most;
}

/* [tokens, h] of the case's pictures, whose views' rows these are; free() it. */
static float *pack(const sight_t *sight, const float *rows, const vision_processor_t *processor,
                   int64_t tokens) {
  const int64_t h = sight->plan.out_size;
  int64_t count, first = 0, from = 0;
  float *out = calloc((size_t)(tokens * h), sizeof *out);
  float *sizes = take(sight->expected, "sizes", &count);
  for (int64_t p = 0; p < count / 2; p++) {
    vision_layout_t layout;
    inferd_error_t error = {0};
    ASSERT_EQ_FOR(vision_layout(processor, (uint32_t)sizes[2 * p], (uint32_t)sizes[2 * p + 1], true,
                                &layout, &error),
                  0, "%s", error.message);
    ASSERT_LE(first + layout.tokens, tokens);
    for (uint32_t t = 0; t < layout.tokens; t++) {
      if (vision_is_line(&layout, t))
        memcpy(out + (first + t) * h, tower_line(sight->tower), (size_t)h * sizeof *out);
    }
    for (uint32_t row = 0; row < layout.views * layout.view_tokens; row++, from++) {
      vision_tap_t taps[VISION_TAPS_MAX];
      const uint32_t num_taps = vision_taps(&layout, row, taps);
      for (uint32_t i = 0; i < num_taps * h; i++)
        out[(first + taps[i / h].token) * h + i % h] += taps[i / h].weight * rows[from * h + i % h];
    }
    first += layout.tokens;
  }
  ASSERT_EQ(first, tokens);
  ASSERT_EQ(from, sight->rows);
  free(sizes);
  return out;
}

static void check_packed(const char *name, const char *preprocessor) {
  sight_t sight;
  json_doc_t *own = NULL;
  model_file_t config;
  vision_processor_t processor;
  inferd_error_t error = {0};
  int64_t count;
  double most = 0, largest = 0;
  sight_open(&sight, name, "auto", 2, DTYPE_F32);
  ASSERT_EQ(json_parse(preprocessor, strlen(preprocessor), &config_limits, &own, &error), 0);
  ASSERT_EQ(model_file_read(sight.dir, "config.json", 1 << 20, &config_limits, &config, &error), 0);
  ASSERT_EQ_FOR(
      vision_processor_read(json_root(own), NULL, json_root(config.doc), &processor, &error), 0,
      "%s", error.message);
  float *expected = take(sight.expected, "packed", &count);
  float *rows = see(&sight, 0, sight.num_images, 0, sight.rows);
  float *made = pack(&sight, rows, &processor, count / sight.plan.out_size);
  for (int64_t i = 0; i < count; i++) {
    most = fmax(most, fabs((double)made[i] - expected[i]));
    largest = fmax(largest, fabs(expected[i]));
  }
  EXPECT_LE_FOR(most / largest, 1e-5, "%s: %g of %g", name, most, largest);
  free(made), free(rows), free(expected);
  model_file_free(&config);
  json_free(own);
  sight_close(&sight);
}

/* One picture whose tiles are padded above and below, and one whose tokens are resized if the
 * family does that. */
Test(towers, tiles_become_the_tokens_of_transformers) {
#define PINPOINTS "\"image_grid_pinpoints\": [[24, 24], [24, 48], [48, 24], [48, 48]]"
  check_packed("llava-next", "{\"image_processor_type\": \"LlavaNextImageProcessor\", \"size\": "
                             "{\"shortest_edge\": 24}, \"crop_size\": {\"height\": 24, \"width\": "
                             "24}, " PINPOINTS "}");
  check_packed("llava-onevision",
               "{\"image_processor_type\": \"LlavaOnevisionImageProcessor\", \"size\": "
               "{\"height\": 24, \"width\": 24}, " PINPOINTS "}");
}

static int list_cases(char names[CASES_MAX][64]) {
  DIR *dir = opendir(VECTORS);
  int count = 0;
  ASSERT_EQ(dir != NULL, true);
  for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
    if (entry->d_name[0] != '.' && count < CASES_MAX)
      snprintf(names[count++], 64, "%.63s", entry->d_name);
  }
  closedir(dir);
  ASSERT_GE(count, 4);
  return count;
}

Test(towers, rows_are_those_of_transformers) {
  static const char *const tiers[] = {"auto", "portable"};
  char names[CASES_MAX][64];
  int count = list_cases(names);
  for (int c = 0; c < count; c++) {
    for (size_t t = 0; t < ARRAY_LEN(tiers); t++) {
      sight_t sight;
      sight_open(&sight, names[c], tiers[t], 2, DTYPE_F32);
      double most = distances(&sight, true);
      ASSERT_LE_FOR(most, 1e-5, "%s, %s: %g", names[c], tiers[t], most);
      sight_close(&sight);
    }
  }
}

/* In bf16 no further from the fp32 reference than twice what transformers is in bf16. */
Test(towers, bf16_is_as_near_as_that_of_transformers) {
  char names[CASES_MAX][64];
  int count = list_cases(names);
  for (int c = 0; c < count; c++) {
    sight_t sight;
    int64_t one;
    sight_open(&sight, names[c], "auto", 2, DTYPE_BF16);
    float *error = take(sight.expected, "error", &one);
    double most = distances(&sight, false);
    ASSERT_LE_FOR(most, 2 * *error, "%s: %g", names[c], most);
    free(error);
    sight_close(&sight);
  }
}

/* Each image alone, and with another number of threads, has the bits that it has among the others.
 */
Test(towers, bits_of_an_image_are_its_own) {
  static const dtype_t types[] = {DTYPE_F32, DTYPE_BF16};
  char names[CASES_MAX][64];
  int count = list_cases(names);
  for (int c = 0; c < 2 * count; c++) {
    sight_t all, single;
    sight_open(&all, names[c / 2], "auto", 3, types[c % 2]);
    sight_open(&single, names[c / 2], "auto", 1, types[c % 2]);
    float *together = see(&all, 0, all.num_images, 0, all.rows);
    const int32_t width = all.plan.out_size;
    for (int32_t i = 0, patch = 0, row = 0; i < all.num_images; i++) {
      int32_t rows = tower_num_rows(&all.plan, all.grids[i]);
      float *alone = see(&single, i, i + 1, patch, rows);
      for (int32_t plane = 0; plane <= all.plan.num_deep; plane++) {
        const float *there = together + ((int64_t)plane * all.rows + row) * width;
        ASSERT_EQ_FOR(memcmp(there, alone + (int64_t)plane * rows * width,
                             (size_t)rows * (size_t)width * sizeof *there),
                      0, "%s: image %d, plane %d", names[c / 2], i, plane);
      }
      free(alone);
      patch += all.grids[i].height * all.grids[i].width;
      row += rows;
    }
    free(together);
    sight_close(&all);
    sight_close(&single);
  }
}

/* Between the parts of a run other runs may be begun and left. */
Test(towers, bits_do_not_depend_on_the_parts_of_a_run) {
  static const int64_t works[] = {1, 20000, 300000};
  char names[CASES_MAX][64];
  int count = list_cases(names);
  for (int c = 0; c < count; c++) {
    sight_t sight;
    sight_open(&sight, names[c], "auto", 2, DTYPE_BF16);
    const size_t bytes = (size_t)(1 + sight.plan.num_deep) * (size_t)sight.rows *
                         (size_t)sight.plan.out_size * sizeof(float);
    float *whole = see(&sight, 0, sight.num_images, 0, sight.rows);
    for (size_t i = 0; i < ARRAY_LEN(works); i++) {
      float *parts = see_in_parts(&sight, 0, sight.num_images, 0, sight.rows, works[i]);
      ASSERT_EQ_FOR(memcmp(whole, parts, bytes), 0, "%s, parts of %lld", names[c],
                    (long long)works[i]);
      free(parts);
    }
    free(whole);
    sight_close(&sight);
  }
}

/* A run of the first `images` images, in the places of `from`. Returns the floats. */
static float *begin_run(sight_t *sight, int run, int32_t images, pixels_t *from) {
  const int64_t each = (int64_t)(1 + sight->plan.num_deep) * sight->plan.out_size;
  float *made = calloc((size_t)sight->rows, (size_t)each * sizeof *made);
  for (int32_t i = 0; i < sight->rows; i++) from->places[i] = made + i * each;
  tower_choose(sight->tower, run);
  tower_begin(sight->tower, sight->grids, images, read_pixels, write_row, from);
  return made;
}

/* Between the parts of a run goes another one, of one image. */
Test(towers, runs_that_take_turns_have_their_own_bits) {
  char names[CASES_MAX][64];
  int count = list_cases(names);
  for (int c = 0; c < count; c++) {
    sight_t sight;
    sight_open(&sight, names[c], "auto", 2, DTYPE_BF16);
    const int32_t all = sight.rows, one = tower_num_rows(&sight.plan, sight.grids[0]);
    const int64_t width = sight.plan.out_size;
    float *expected[2] = {see(&sight, 0, sight.num_images, 0, all), see(&sight, 0, 1, 0, one)};
    float **places[2] = {calloc((size_t)all, sizeof(float *)),
                         calloc((size_t)all, sizeof(float *))};
    pixels_t from[2];
    for (int run = 0; run < 2; run++)
      from[run] = (pixels_t){sight.pixels, sight.plan.patch_columns, (int32_t)width, places[run]};
    float *made[2] = {begin_run(&sight, 0, sight.num_images, &from[0]),
                      begin_run(&sight, 1, 1, &from[1])};
    bool done[2] = {false, false};
    for (int turn = 0; !done[0] || !done[1]; turn = 1 - turn) {
      tower_choose(sight.tower, turn);
      done[turn] = tower_advance(sight.tower, 20000);
    }
    for (int run = 0; run < 2; run++) {
      for (int32_t i = 0; i < (run == 0 ? all : one); i++)
        ASSERT_EQ_FOR(
            memcmp(places[run][i], expected[run] + i * width, (size_t)width * sizeof(float)), 0,
            "%s: run %d, row %d", names[c], run, i);
      free(made[run]), free(expected[run]), free(places[run]);
    }
    sight_close(&sight);
  }
}

/* A directory with this vision_config. */
static int read_config(const char *config, tower_plan_t *plan, inferd_error_t *error) {
  char dir[] = "/tmp/inferd-towers-XXXXXX", path[64];
  ASSERT_EQ(mkdtemp(dir) != NULL, true);
  snprintf(path, sizeof path, "%s/config.json", dir);
  FILE *file = fopen(path, "w");
  fputs(config, file);
  fclose(file);
  int code = tower_plan_read(dir, plan, error);
  remove(path);
  remove(dir);
  return code;
}

Test(towers, models_without_a_known_tower_have_no_plan) {
  static const char *const configs[] = {
      "{\"model_type\": \"llama\"}", "{\"model_type\": \"qwen3_vl\"}",
      "{\"vision_config\": {\"model_type\": \"siglip_vision_model\", \"depth\": -1}}",
      "{\"model_type\": \"llava\", \"vision_config\": {\"model_type\": \"dinov2\"}}"};
  for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
    tower_plan_t plan;
    inferd_error_t error = {0};
    ASSERT_EQ_FOR(read_config(configs[i], &plan, &error), 0, "%s", error.message);
    ASSERT_EQ(plan.family == NULL, true);
  }
}

Test(towers, configs_are_refused_by_key_and_value) {
  static const struct {
    const char *type, *keys, *key, *found;
  } bad[] = {
      {"qwen3_vl", "\"depth\": 0", "depth", "0"},
      {"qwen3_vl", "\"depth\": 257", "depth", "257"},
      {"qwen3_vl", "\"hidden_size\": 1150", "hidden_size", "1150"},
      {"qwen3_vl", "\"num_heads\": 0", "num_heads", "0"},
      {"qwen3_vl", "\"hidden_act\": \"tanh\"", "hidden_act", "tanh"},
      {"qwen3_vl", "\"num_position_embeddings\": 2305", "num_position_embeddings", "2305"},
      {"qwen3_vl", "\"deepstack_visual_indexes\": [5, 5]", "deepstack_visual_indexes", "is 5"},
      {"qwen3_vl", "\"depth\": 24", "deepstack_visual_indexes", "24"},
      {"qwen3_vl", "\"in_channels\": 4", "in_channels", "4"},
      {"qwen3_vl", "\"patch_size\": [16, 16]", "patch_size", "array"},
      {"qwen3_vl", "\"rope_parameters\": {\"rope_type\": \"yarn\"}", "rope_type", "yarn"},
      {"qwen2_vl", "\"embed_dim\": 1282", "hidden_size", "heads"},
      {"qwen2_vl", "\"mlp_ratio\": 52", "mlp_ratio", "52"},
      {"qwen2_vl", "\"hidden_act\": \"silu\"", "hidden_act", "silu"},
      {"qwen2_5_vl", "\"window_size\": 27", "window_size", "27"},
      {"qwen2_5_vl", "\"fullatt_block_indexes\": [31, 32]", "fullatt_block_indexes", "is 32"},
      {"qwen2_5_vl", "\"hidden_act\": \"gelu_new\"", "hidden_act", "gelu_new"},
  };
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    char config[256];
    tower_plan_t plan;
    inferd_error_t error = {0};
    snprintf(config, sizeof config, "{\"vision_config\": {\"model_type\": \"%s\", %s}}",
             bad[i].type, bad[i].keys);
    ASSERT_EQ_FOR(read_config(config, &plan, &error), ERR_MODEL_MALFORMED, "%s", bad[i].keys);
    ASSERT_EQ_FOR(strstr(error.message, bad[i].key) != NULL, true, "%s", error.message);
    ASSERT_EQ_FOR(strstr(error.message, bad[i].found) != NULL, true, "%s", error.message);
  }
}

/* The same of families that are known by the model around the tower, whose keys these are. */
Test(towers, configs_around_a_tower_are_refused_by_key_and_value) {
#define TEXT_48 "\"text_config\": {\"hidden_size\": 48, \"rms_norm_eps\": 1e-5}"
  static const struct {
    const char *type, *keys, *key, *found;
  } bad[] = {
      {"mistral3", "\"text_config\": {\"rms_norm_eps\": 1e-5}", "hidden_size", "width"},
      {"mistral3", "\"text_config\": {\"hidden_size\": 48}", "rms_norm_eps", "text model"},
      {"mistral3", TEXT_48 ", \"vision_feature_layer\": -2", "vision_feature_layer", "-2"},
      {"mistral3", TEXT_48 ", \"vision_feature_layer\": [-2, -1]", "vision_feature_layer", "-1"},
      {"mistral3", TEXT_48 ", \"projector_hidden_act\": \"silu\"", "projector_hidden_act", "silu"},
      {"llava",
       TEXT_48 ", \"vision_feature_select_strategy\": \"full\", \"vision_config\": "
               "{\"model_type\": \"pixtral\"}",
       "vision_feature_layer", "-1"},
      {"llava",
       TEXT_48 ", \"vision_feature_layer\": -1, \"vision_config\": {\"model_type\": "
               "\"pixtral\"}",
       "vision_feature_select_strategy", "full"},
      {"llava_onevision", TEXT_48 ", \"vision_feature_layer\": 0", "vision_feature_layer", "0"},
      {"llava_onevision", TEXT_48 ", \"vision_feature_layer\": 27", "vision_feature_layer", "27"},
      {"llava_onevision", TEXT_48 ", \"vision_feature_layer\": -27", "vision_feature_layer", "-27"},
      {"llava_onevision", TEXT_48 ", \"vision_feature_select_strategy\": \"default\"",
       "vision_feature_select_strategy", "full"},
      {"llava_next", TEXT_48 ", \"vision_feature_select_strategy\": \"full\"",
       "vision_feature_select_strategy", "default"},
      {"llava_next", TEXT_48 ", \"vision_feature_layer\": [-2, -5]", "vision_feature_layer", "24"},
      {"llava_next", TEXT_48 ", \"vision_config\": {\"hidden_act\": \"silu\"}", "hidden_act",
       "quick_gelu"},
      {"smolvlm", TEXT_48 ", \"scale_factor\": 0", "scale_factor", "0"},
      {"internvl", TEXT_48 ", \"downsample_ratio\": 0.3", "downsample_ratio", "0.3"},
      {"internvl", TEXT_48 ", \"vision_config\": {\"use_qk_norm\": true}", "use_qk_norm", "true"},
      {"internvl", TEXT_48 ", \"vision_config\": {\"norm_type\": \"rms_norm\"}", "norm_type",
       "rms_norm"},
      {"internvl", TEXT_48 ", \"vision_config\": {\"image_size\": [448, 224]}", "image_size",
       "array"},
      {"internvl", TEXT_48 ", \"vision_config\": {\"image_size\": 14}", "image_size", "14"},
      {"internvl_chat", "\"llm_config\": {\"hidden_size\": 48}", "ps_version", "v2"},
      {"internvl_chat", "\"ps_version\": \"v1\"", "ps_version", "v1"},
      {"internvl_chat", "\"ps_version\": \"v2\"", "hidden_size", "llm_config"},
      {"internvl_chat", "\"ps_version\": \"v2\", \"select_layer\": -2", "select_layer", "-2"},
      {"internvl_chat", "\"vision_config\": {\"qk_normalization\": true}", "qk_normalization",
       "true"},
      {"gemma3", TEXT_48 ", \"vision_config\": {\"vision_use_head\": true}", "vision_use_head",
       "true"},
      {"gemma3", TEXT_48 ", \"mm_tokens_per_image\": 200", "mm_tokens_per_image", "200"},
      {"gemma4", TEXT_48 ", \"vision_config\": {\"head_dim\": 32}", "head_dim", "64"},
      {"gemma4", TEXT_48 ", \"vision_config\": {\"num_key_value_heads\": 4}", "num_key_value_heads",
       "12"},
      {"gemma4", TEXT_48 ", \"vision_config\": {\"position_embedding_size\": 0}",
       "position_embedding_size", "0"},
      {"gemma4", TEXT_48 ", \"vision_config\": {\"rope_parameters\": {\"rope_type\": \"yarn\"}}",
       "rope_type", "yarn"},
  };
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    char config[320];
    tower_plan_t plan;
    inferd_error_t error = {0};
    const char *sight =
        strstr(bad[i].keys, "vision_config") != NULL ? "" : ", \"vision_config\": {}";
    snprintf(config, sizeof config, "{\"model_type\": \"%s\", %s%s}", bad[i].type, bad[i].keys,
             sight);
    ASSERT_EQ_FOR(read_config(config, &plan, &error), ERR_MODEL_MALFORMED, "%s", config);
    ASSERT_EQ_FOR(strstr(error.message, bad[i].key) != NULL, true, "%s", error.message);
    ASSERT_EQ_FOR(strstr(error.message, bad[i].found) != NULL, true, "%s", error.message);
  }
}

/* The same of towers that hear, whose keys are in audio_config. */
Test(towers, configs_of_sounds_are_refused_by_key_and_value) {
#define TEXT_3584 "}, \"text_config\": {\"hidden_size\": 3584"
  static const struct {
    const char *type, *keys, *key, *found;
  } bad[] = {
      {"qwen2_audio", "\"encoder_layers\": 0", "encoder_layers", "0"},
      {"qwen2_audio", "\"d_model\": 1290", "d_model", "1290"},
      {"qwen2_audio", "\"num_mel_bins\": 129", "num_mel_bins", "129"},
      {"qwen2_audio", "\"max_source_positions\": 1", "max_source_positions", "1"},
      {"voxtral", "\"hidden_size\": 1290", "hidden_size", "1290"},
      {"voxtral", "\"intermediate_size\": 5130", "intermediate_size", "5130"},
      {"voxtral", "\"intermediate_size\": 8960", "intermediate_size", "8960"},
      {"qwen2_audio", "\"activation_function\": \"relu\"", "activation_function", "relu"},
      {"audioflamingo3", "\"hidden_size\": 1290", "hidden_size", "1290"},
      {"audioflamingo3", "}, \"projector_hidden_act\": \"relu\", \"other\": {",
       "projector_hidden_act", "relu"},
      {"glmasr", "\"intermediate_size\": 2560", "intermediate_size", "2560"},
      {"glmasr", "\"num_key_value_heads\": 4", "num_key_value_heads", "4"},
      {"glmasr", "\"max_position_embeddings\": 1499", "max_position_embeddings", "1499"},
      {"glmasr", "\"rope_parameters\": {\"partial_rotary_factor\": 0.25}", "partial_rotary_factor",
       "0.25"},
      {"glmasr", "\"rope_parameters\": {\"rope_type\": \"linear\"}", "rope_type", "linear"},
      {"qwen3_asr", "\"n_window\": 40", "n_window", "40"},
      {"qwen3_asr", "\"model_type\": \"qwen3_asr_audio_encoder\", \"n_window\": 100", "n_window",
       "100"},
      {"qwen3_asr", "\"n_window_infer\": 850" TEXT_3584, "n_window_infer", "850"},
      {"qwen3_asr", "\"output_dim\": 3583" TEXT_3584, "output_dim", "3583"},
      {"qwen3_asr", "\"d_model\": 1023, \"encoder_attention_heads\": 11" TEXT_3584, "d_model",
       "even"},
      {"qwen3_asr", "\"activation_function\": \"relu\"", "activation_function", "relu"},
      {"qwen3_asr", "\"max_position_embeddings\": 12", "max_position_embeddings", "12"},
  };
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    char config[256];
    tower_plan_t plan;
    inferd_error_t error = {0};
    snprintf(config, sizeof config, "{\"model_type\": \"%s\", \"audio_config\": {%s}}", bad[i].type,
             bad[i].keys);
    ASSERT_EQ_FOR(read_config(config, &plan, &error), ERR_MODEL_MALFORMED, "%s", config);
    ASSERT_EQ_FOR(strstr(error.message, bad[i].key) != NULL, true, "%s", error.message);
    ASSERT_EQ_FOR(strstr(error.message, bad[i].found) != NULL, true, "%s", error.message);
  }
}

/* A plan that asks for other tensors than the files have. */
static void check_refused(const char *name, void (*change)(tower_plan_t *plan), const char *part) {
  sight_t sight;
  inferd_error_t error = {0};
  tower_t *tower;
  sight_open(&sight, name, "portable", 1, DTYPE_F32);
  tower_plan_t plan = sight.plan;
  change(&plan);
  ASSERT_EQ(tower_load(&ops_cpu, sight.device, sight.dir, &plan, DTYPE_F32, &tower, &error),
            ERR_MODEL_MALFORMED);
  ASSERT_EQ_FOR(strstr(error.message, part) != NULL, true, "%s", error.message);
  ASSERT_EQ(tower == NULL, true);
  sight_close(&sight);
}

static void one_layer_more(tower_plan_t *plan) {
  plan->num_layers++;
}
static void one_layer_less(tower_plan_t *plan) {
  plan->num_layers--;
}
static void one_layer_read_less(tower_plan_t *plan) {
  plan->spare_layers--;
}
static void wider(tower_plan_t *plan) {
  plan->mlp_width++;
}
static void with_bounds(tower_plan_t *plan) {
  plan->clips = true;
}
static void without_bounds(tower_plan_t *plan) {
  plan->clips = false;
}
static void no_deepstack(tower_plan_t *plan) {
  plan->num_deep = 0;
}

Test(towers, files_that_do_not_fit_are_refused_by_tensor) {
  check_refused("gemma4-large", with_bounds,
                "encoder.layers.0.self_attn.o_proj.input_min is missing");
  check_refused("gemma4", without_bounds, "begin with model.vision_tower.");
  check_refused("qwen3-vl", one_layer_more, "model.visual.blocks.3.norm1.weight is missing");
  check_refused("qwen3-vl", one_layer_less, "begin with model.visual.");
  check_refused("qwen3-vl", wider, "blocks.0.mlp.linear_fc1.weight has shape [20, 16]");
  check_refused("qwen3-vl", no_deepstack, "begin with model.visual.");
  check_refused("mistral3", one_layer_less, "begin with vision_tower. or multi_modal_projector.");
  check_refused("llava-onevision", one_layer_less,
                "begin with vision_tower. or multi_modal_projector.");
  check_refused("llava-next", one_layer_read_less, "begin with vision_tower.");
  check_refused("internvl", one_layer_more, "vision_tower.encoder.layer.2.layernorm_before.weight");
}

Test(towers, a_back_end_without_towers_says_so) {
  tower_plan_t plan;
  inferd_error_t error = {0};
  tower_t *tower;
  ops_t blind = ops_cpu;
  blind.tower = NULL;
  ASSERT_EQ(tower_plan_read(VECTORS "/qwen3-vl", &plan, &error), 0);
  ASSERT_EQ(tower_load(&blind, NULL, VECTORS "/qwen3-vl", &plan, DTYPE_F32, &tower, &error),
            ERR_CONFIGURATION);
}
