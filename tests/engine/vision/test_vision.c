/* test_vision.c: pictures of numbers against transformers (tests/vectors/pictures.jsonl, which
 * scripts/vectors/pictures.py wrote), and what the files of a processor may not say. */
#include "engine/base/util.h"
#include "engine/vision/resize.h"
#include "tests/engine/vision/show.h"
#include "tests/expect.h"

#include <stdio.h>
#include <stdlib.h>

static json_doc_t *parse(const char *text, size_t length) {
  json_doc_t *doc = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(json_parse(text, length, &json_limits_request, &doc, &error), 0, "%s",
                error.message);
  return doc;
}

/* Both sides as inferd prints them, so that spaces do not count. */
static void expect_same(const json_t *request, const buffer_t *line) {
  json_doc_t *ours = parse(line->data, line->length);
  buffer_t left = {0}, right = {0};
  json_print(&left, json_root(ours));
  json_print(&right, json_get(request, "is"));
  buffer_char(&left, 0);
  buffer_char(&right, 0);
  int64_t width = 0, height = 0;
  const json_t *name = json_get(request, "name");
  (void)json_int64(json_get(request, "width"), &width);
  (void)json_int64(json_get(request, "height"), &height);
  cr_expect_str_eq(left.data, right.data, "%.*s, %d x %d:\n%s\n%s", (int)name->length, name->text,
                   (int)width, (int)height, left.data, right.data);
  buffer_free(&left);
  buffer_free(&right);
  json_free(ours);
}

Test(vision, pictures_become_what_transformers_makes_of_them) {
  FILE *file = fopen("tests/vectors/pictures.jsonl", "r");
  cr_assert_not_null(file);
  char *text = NULL;
  size_t capacity = 0, count = 0;
  buffer_t line = {0};
  for (ssize_t length; (length = getline(&text, &capacity, file)) > 0; count++) {
    json_doc_t *doc = parse(text, (size_t)length);
    inferd_error_t error = {0};
    buffer_clear(&line);
    ASSERT_EQ_FOR(show_case(json_root(doc), &line, &error), 0, "%s", error.message);
    expect_same(json_root(doc), &line);
    json_free(doc);
  }
  fclose(file);
  free(text);
  buffer_free(&line);
  ASSERT_EQ(count, 256);
}

static int read_text(const char *preprocessor, const char *config, vision_processor_t *out,
                     inferd_error_t *error) {
  json_doc_t *first = parse(preprocessor, strlen(preprocessor));
  json_doc_t *second = parse(config, strlen(config));
  int status = vision_processor_read(json_root(first), NULL, json_root(second), out, error);
  json_free(first);
  json_free(second);
  return status;
}

static const struct fault {
  const char *preprocessor, *config, *key;
} faults[] = {
    {"{}", "{}", "image_processor_type"},
    {"{\"image_processor_type\":\"ViTImageProcessor\"}", "{}", "image_processor_type"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"patch_size\":0}", "{}", "patch_size"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"patch_size\":65}", "{}", "patch_size"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"merge_size\":17}", "{}", "merge_size"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"temporal_patch_size\":3}", "{}",
     "temporal_patch_size"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"min_pixels\":0}", "{}", "size"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"max_pixels\":320000001}", "{}", "size"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"resample\":0}", "{}", "resample"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"resample\":4}", "{}", "resample"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"do_resize\":false}", "{}", "do_resize"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"do_center_crop\":true}", "{}",
     "do_center_crop"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"image_mean\":[0.5,0.5]}", "{}",
     "image_mean"},
    {"{\"image_processor_type\":\"Qwen2VLImageProcessor\",\"image_std\":[0.5,0,0.5]}", "{}",
     "image_mean"},
    {"{\"image_processor_type\":\"Gemma4ImageProcessor\",\"max_soft_tokens\":71}", "{}",
     "max_soft_tokens"},
    {"{\"image_processor_type\":\"PixtralImageProcessor\",\"size\":{\"longest_edge\":15}}", "{}",
     "size"},
    {"{\"image_processor_type\":\"Gemma3ImageProcessor\",\"size\":{\"height\":896,\"width\":448}}",
     "{}", "size"},
    {"{\"image_processor_type\":\"Gemma3ImageProcessor\",\"size\":{\"height\":896,\"width\":896}}",
     "{\"mm_tokens_per_image\":255}", "image_seq_length"},
    {"{\"image_processor_type\":\"GotOcr2ImageProcessor\",\"size\":{\"height\":448,\"width\":448},"
     "\"max_patches\":65}",
     "{}", "max_patches"},
    {"{\"image_processor_type\":\"LlavaOnevisionImageProcessor\",\"image_grid_pinpoints\":[[384,"
     "385]]}",
     "{}", "image_grid_pinpoints"},
    {"{\"image_processor_type\":\"LlavaOnevisionImageProcessor\",\"image_grid_pinpoints\":[384]}",
     "{}", "image_grid_pinpoints"},
    {"{\"image_processor_type\":\"LlavaOnevisionImageProcessor\",\"image_grid_pinpoints\":[]}",
     "{}", "image_grid_pinpoints"},
    {"{\"image_processor_type\":\"LlavaOnevisionImageProcessor\"}",
     "{\"vision_aspect_ratio\":\"square\"}", "vision_aspect_ratio"},
    {"{\"image_processor_type\":\"LlavaOnevisionImageProcessor\"}",
     "{\"vision_aspect_ratio\":\"anyres_max_65\"}", "vision_aspect_ratio"},
    {"{\"image_processor_type\":\"LlavaNextImageProcessor\",\"crop_size\":{\"height\":350,"
     "\"width\":350}}",
     "{}", "crop_size"},
    {"{\"image_processor_type\":\"CLIPImageProcessor\",\"crop_size\":{\"height\":336,"
     "\"width\":322}}",
     "{}", "crop_size"},
    {"{\"image_processor_type\":\"CLIPImageProcessor\",\"size\":{\"shortest_edge\":335}}", "{}",
     "size"},
    {"{\"image_processor_type\":\"CLIPImageProcessor\",\"do_center_crop\":false}", "{}",
     "do_center_crop"},
};

Test(vision, files_that_no_picture_can_be_cut_by_are_refused_by_their_key) {
  for (size_t i = 0; i < ARRAY_LEN(faults); i++) {
    vision_processor_t processor;
    inferd_error_t error = {0};
    int status = read_text(faults[i].preprocessor, faults[i].config, &processor, &error);
    ASSERT_EQ_FOR(status, ERR_MODEL_MALFORMED, "%s", faults[i].preprocessor);
    cr_expect_str_eq(error.param, faults[i].key, "%s: %s", faults[i].preprocessor, error.message);
  }
}

static int read_internvl(const char *config, vision_processor_t *out, inferd_error_t *error) {
  json_doc_t *doc = parse(config, strlen(config));
  int status = vision_processor_read_internvl(json_root(doc), out, error);
  json_free(doc);
  return status;
}

/* Whose numbers stand in config.json. */
Test(vision, files_of_opengvlab_say_how_pictures_are_cut) {
  static const struct fault bad[] = {{"{\"dynamic_image_size\":true}", "", "use_thumbnail"},
                                     {"{\"max_dynamic_patch\":65}", "", "max_patches"},
                                     {"{\"min_dynamic_patch\":0}", "", "max_patches"},
                                     {"{\"downsample_ratio\":0}", "", "patch_size"},
                                     {"{\"vision_config\":{\"patch_size\":0}}", "", "patch_size"},
                                     {"{\"force_image_size\":15}", "", "size"}};
  vision_processor_t processor;
  inferd_error_t error = {0};
  for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
    ASSERT_EQ_FOR(read_internvl(bad[i].preprocessor, &processor, &error), ERR_MODEL_MALFORMED, "%s",
                  bad[i].preprocessor);
    cr_expect_str_eq(error.param, bad[i].key, "%s: %s", bad[i].preprocessor, error.message);
  }
  ASSERT_EQ_FOR(read_internvl("{\"vision_config\":{\"patch_size\":14,\"image_size\":448},"
                              "\"dynamic_image_size\":true,\"use_thumbnail\":true,"
                              "\"min_dynamic_patch\":2,\"max_dynamic_patch\":12}",
                              &processor, &error),
                0, "%s", error.message);
  ASSERT_EQ(processor.view_side, 448);
  ASSERT_EQ(processor.view_tokens, 256);
  ASSERT_EQ(processor.tiles, true);
  ASSERT_EQ(processor.tiles_min, 2);
  ASSERT_EQ(processor.tiles_max, 12);
}

Test(vision, defaults_of_every_class_are_valid) {
  for (int kind = VISION_QWEN2_VL; kind <= VISION_CLIP; kind++) {
    vision_processor_t processor;
    inferd_error_t error = {0};
    vision_processor_default((vision_kind_t)kind, &processor);
    ASSERT_EQ_FOR(vision_processor_check(&processor, &error), 0, "%d: %s", kind, error.message);
  }
}

Test(vision, sizes_are_bounded) {
  vision_processor_t processor;
  vision_layout_t layout;
  inferd_error_t error = {0};
  vision_processor_default(VISION_GEMMA3, &processor);
  ASSERT_EQ(vision_layout(&processor, PICTURE_SIDE_MAX, 1, true, &layout, &error), 0);
  ASSERT_EQ(vision_layout(&processor, PICTURE_SIDE_MAX + 1, 1, true, &layout, &error),
            ERR_INVALID_VALUE);
  ASSERT_EQ(vision_layout(&processor, 8000, 5000, true, &layout, &error), 0);
  ASSERT_EQ(vision_layout(&processor, 8000, 5001, true, &layout, &error), ERR_INVALID_VALUE);
  ASSERT_EQ(vision_layout(&processor, 0, 1, true, &layout, &error), ERR_INVALID_VALUE);
}

/* Sizes at random: what is taken has a view that its rows can be cut from. */
Test(vision, every_layout_covers_its_rows) {
  uint32_t state = 1;
  for (int i = 0; i < 20000; i++) {
    vision_processor_t processor;
    vision_layout_t layout;
    state = state * 1664525u + 1013904223u;
    const uint32_t width = 1 + (state >> 16) % (i % 3 == 0 ? 16384 : 300);
    state = state * 1664525u + 1013904223u;
    const uint32_t height = 1 + (state >> 16) % (i % 5 == 0 ? 16384 : 300);
    vision_processor_default((vision_kind_t)(i % (VISION_CLIP + 1)), &processor);
    inferd_error_t error = {0};
    if (vision_layout(&processor, width, height, i % 2 == 0, &layout, &error) != 0) continue;
    ASSERT_LE(1, layout.tokens);
    ASSERT_LE(layout.grid_height * processor.patch, layout.view_height);
    ASSERT_LE(layout.grid_width * processor.patch, layout.view_width);
    ASSERT_EQ(layout.tile_rows * layout.tile_columns + (layout.views > 1 || layout.tile_rows == 0),
              layout.views);
  }
}

/* Tiles at random: a token is a new line, or rows of the tower count in it with weights of 1. */
Test(vision, tokens_are_lines_or_rows_whose_weights_are_one) {
  uint32_t state = 1, sums = 0;
  for (int i = 0; i < 3000; i++) {
    vision_processor_t processor;
    vision_layout_t layout;
    inferd_error_t error = {0};
    vision_processor_default(i % 3 > 0 ? VISION_LLAVA_ONEVISION : VISION_LLAVA_NEXT, &processor);
    processor.patch = 4;
    processor.view_side = 16 + 4 * (uint32_t)(i % 3);
    processor.view_tokens = processor.view_side / 4 * (processor.view_side / 4);
    processor.num_pinpoints = 1 + (uint32_t)i % 5;
    if (processor.kind == VISION_LLAVA_ONEVISION) processor.tiles_kept = 1 + (uint32_t)i % 4;
    for (uint32_t p = 0; p < 2 * processor.num_pinpoints; p++) {
      state = state * 1664525u + 1013904223u;
      processor.pinpoints[p / 2][p % 2] = processor.view_side * (1 + (state >> 16) % 5);
    }
    state = state * 1664525u + 1013904223u;
    const uint32_t width = 1 + (state >> 16) % 300;
    state = state * 1664525u + 1013904223u;
    if (vision_layout(&processor, width, 1 + (state >> 16) % 300, true, &layout, &error) != 0)
      continue;
    float weights[25 * 26 + 25 * 5 * 31] = {0};
    ASSERT_LE(layout.tokens, ARRAY_LEN(weights));
    for (uint32_t row = 0; row < layout.views * layout.view_tokens; row++) {
      vision_tap_t taps[VISION_TAPS_MAX];
      const uint32_t count = vision_taps(&layout, row, taps);
      for (uint32_t k = 0; k < count; k++) weights[taps[k].token] += taps[k].weight;
    }
    for (uint32_t t = 0; t < layout.tokens; t++) {
      const float expected = vision_is_line(&layout, t) ? 0 : 1;
      ASSERT_LE_FOR(weights[t] - expected, 1e-5f, "case %d, token %u", i, t);
      ASSERT_LE_FOR(expected - weights[t], 1e-5f, "case %d, token %u", i, t);
    }
    sums += vision_sums(&layout);
  }
  ASSERT_LE(100, sums);
}

/* Limits at random, those around the tokens of a view among them. */
Test(vision, a_limit_of_tokens_holds_for_every_size) {
  uint32_t state = 1;
  for (int i = 0; i < 20000; i++) {
    vision_processor_t processor;
    vision_layout_t layout;
    const vision_kind_t kind = (vision_kind_t)(i % (VISION_CLIP + 1));
    vision_processor_default(kind, &processor);
    const uint32_t view = MAX(processor.view_tokens, 1);
    state = state * 1664525u + 1013904223u;
    const uint32_t width = 1 + (state >> 16) % 6000;
    uint32_t tokens = 200 + (state >> 8) % 3000;
    if (i % 3 == 0) tokens = MAX(view * (1 + (uint32_t)i % 20) - 1 + (uint32_t)i % 5, 200);
    state = state * 1664525u + 1013904223u;
    const uint32_t height = 1 + (state >> 16) % 6000;
    inferd_error_t error = {0};
    const int64_t before = vision_patches_max(&processor);
    vision_limit(&processor, tokens);
    ASSERT_EQ_FOR(vision_processor_check(&processor, &error), 0, "%d: %s", kind, error.message);
    ASSERT_LE(vision_patches_max(&processor), before);
    if (vision_layout(&processor, width, height, true, &layout, &error) != 0) continue;
    const uint32_t least = kind == VISION_GEMMA4 ? 0 : view + (vision_lines_max(&processor, 1) > 0);
    cr_expect(layout.tokens <= MAX(tokens, least), "%d: %u x %u, %u: %u", kind, width, height,
              tokens, layout.tokens);
  }
}

/* One token less than the model's own limit, as many, and one more. */
Test(vision, a_limit_makes_smaller_what_the_model_makes_larger) {
  for (uint32_t tokens = 15; tokens <= 17; tokens++) {
    vision_processor_t processor;
    vision_layout_t layout;
    inferd_error_t error = {0};
    vision_processor_default(VISION_QWEN2_VL, &processor);
    const uint32_t side = processor.patch * processor.merge;
    processor.pixels_max = 16 * side * side;
    vision_limit(&processor, tokens);
    ASSERT_EQ(vision_layout(&processor, 4 * side, 4 * side, true, &layout, &error), 0);
    ASSERT_EQ_FOR(layout.tokens, tokens < 16 ? 9 : 16, "%u", tokens);
  }
}

Test(vision, a_picture_of_one_colour_keeps_it_at_every_size) {
  uint8_t from[7 * 5 * 3], to[40 * 40 * 3];
  for (int filter = VISION_BILINEAR; filter <= VISION_LANCZOS; filter++) {
    for (uint32_t side = 1; side <= 40; side++) {
      memset(from, 200, sizeof from);
      const vision_area_t area = {from, 7 * 3, 7, 5};
      ASSERT_EQ(vision_resize((vision_filter_t)filter, &area, side, 41 - side, to), 0);
      for (uint32_t i = 0; i < side * (41 - side) * 3; i++)
        ASSERT_EQ_FOR(to[i], 200, "filter %d, side %u", filter, side);
    }
  }
}

/* A file may ask for 64 tiles of any side: what would not fit is refused, not allocated. */
Test(vision, views_are_bounded_together) {
  for (uint32_t side = 1108; side <= 1110; side++) { /* 65 views of 1,109 squared fit */
    vision_processor_t processor;
    vision_layout_t layout;
    inferd_error_t error = {0};
    vision_processor_default(VISION_GOT_OCR2, &processor);
    processor.view_side = side;
    processor.view_tokens = side / 28 * (side / 28);
    processor.tiles_max = processor.tiles_min = 64;
    ASSERT_EQ(vision_processor_check(&processor, &error), 0);
    EXPECT_EQ_FOR(vision_layout(&processor, 900, 900, true, &layout, &error),
                  side < 1110 ? 0 : ERR_INVALID_VALUE, "%u", side);
  }
}
