/* processor.c: what the files of a model say of pictures -> vision_processor_t. Any thread; no
 * allocation. The defaults are the attributes of the classes in transformers 5. */
#include "engine/vision/processor.h"

#include "engine/base/util.h"

#include <stdio.h>
#include <string.h>

enum { PATCH_MAX = 64, MERGE_MAX = 16, EDGE_MIN = 16, PILLOW_FILTERS = 4, NUM_GEMMA4_BUDGETS = 5 };

static const double clip_mean[3] = {0.48145466, 0.4578275, 0.40821073};
static const double clip_std[3] = {0.26862954, 0.26130258, 0.27577711};
static const double half[3] = {0.5, 0.5, 0.5};

/* Names end in ImageProcessor, older ones in ImageProcessorFast. */
static const struct class {
  const char *name;
  vision_kind_t kind;
} classes[] = {{"Qwen2VL", VISION_QWEN2_VL},
               {"Qwen3VL", VISION_QWEN2_VL},
               {"Glm4v", VISION_GLM4V},
               {"Glm46V", VISION_GLM4V},
               {"Gemma3", VISION_GEMMA3},
               {"Gemma4", VISION_GEMMA4},
               {"Pixtral", VISION_PIXTRAL},
               {"Idefics3", VISION_IDEFICS3},
               {"SmolVLM", VISION_IDEFICS3},
               {"GotOcr2", VISION_GOT_OCR2},
               {"LlavaOnevision", VISION_LLAVA_ONEVISION},
               {"LlavaNext", VISION_LLAVA_NEXT},
               {"CLIP", VISION_CLIP}};

static const vision_processor_t defaults[] = {
    [VISION_QWEN2_VL] = {.filter = VISION_BICUBIC,
                         .order = VISION_BLOCKS,
                         .patch = 14,
                         .frames = 2,
                         .merge = 2,
                         .pixels_min = 56 * 56,
                         .pixels_max = 28 * 28 * 1280},
    [VISION_GLM4V] = {.filter = VISION_BICUBIC,
                      .order = VISION_BLOCKS,
                      .patch = 14,
                      .frames = 2,
                      .merge = 2,
                      .pixels_min = 112 * 112,
                      .pixels_max = 28 * 28 * 15000},
    [VISION_GEMMA3] = {.filter = VISION_BILINEAR,
                       .order = VISION_RASTER,
                       .patch = 14,
                       .merge = 4,
                       .view_side = 896,
                       .view_tokens = 256,
                       .tiles_max = 4,
                       .crop_min = 256,
                       .crop_ratio = 1.2},
    [VISION_GEMMA4] = {.filter = VISION_BICUBIC,
                       .order = VISION_RASTER_PIXEL,
                       .patch = 16,
                       .merge = 3,
                       .view_tokens = 280},
    [VISION_PIXTRAL] = {.filter = VISION_BICUBIC,
                        .order = VISION_RASTER,
                        .patch = 16,
                        .merge = 1,
                        .longest_edge = 1024},
    [VISION_IDEFICS3] = {.filter = VISION_LANCZOS,
                         .order = VISION_RASTER,
                         .patch = 14,
                         .merge = 2,
                         .longest_edge = 4 * 364,
                         .view_side = 364,
                         .view_tokens = 169,
                         .tiles = true},
    [VISION_GOT_OCR2] = {.filter = VISION_BICUBIC,
                         .order = VISION_RASTER,
                         .patch = 14,
                         .merge = 2,
                         .view_side = 448,
                         .view_tokens = 256,
                         .tiles = true,
                         .tiles_min = 1,
                         .tiles_max = 12},
    [VISION_LLAVA_ONEVISION] = {.filter = VISION_BICUBIC,
                                .order = VISION_RASTER,
                                .patch = 14,
                                .merge = 1,
                                .view_side = 384,
                                .view_tokens = 729,
                                .tiles_kept = 9,
                                .num_pinpoints = 36},
    [VISION_LLAVA_NEXT] =
        {.filter = VISION_BICUBIC,
         .order = VISION_RASTER,
         .patch = 14,
         .merge = 1,
         .view_side = 336,
         .view_tokens = 576,
         .num_pinpoints = 5,
         .pinpoints = {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}}},
    [VISION_CLIP] = {.filter = VISION_BICUBIC,
                     .order = VISION_RASTER,
                     .patch = 14,
                     .merge = 1,
                     .shortest_edge = 336,
                     .view_side = 336,
                     .view_tokens = 576},
};

void vision_processor_default(vision_kind_t kind, vision_processor_t *out) {
  const bool halves = kind == VISION_GEMMA3 || kind == VISION_IDEFICS3;
  *out = defaults[kind];
  out->kind = kind;
  out->normalizes = kind != VISION_GEMMA4;
  out->rescale = 1.0 / 255;
  if (out->frames == 0) out->frames = 1;
  for (int i = 0; i < 3; i++) {
    out->mean[i] = kind == VISION_GEMMA4 ? 0 : halves ? half[i] : clip_mean[i];
    out->std[i] = kind == VISION_GEMMA4 ? 1 : halves ? half[i] : clip_std[i];
  }
  for (uint32_t i = 0; kind == VISION_LLAVA_ONEVISION && i < out->num_pinpoints; i++) {
    out->pinpoints[i][0] = 384 * (i / 6 + 1);
    out->pinpoints[i][1] = 384 * (i % 6 + 1);
  }
}

/* ---- check ---- */

static int bad(inferd_error_t *error, const char *key, const char *what) {
  return error_set(error, ERR_MODEL_MALFORMED, key, "the image processor's %s %s", key, what);
}

static bool within(uint32_t value, uint32_t least, uint32_t most) {
  return value >= least && value <= most;
}

/* Families of square views: the side is whole patches but for a rest, and tokens are its square. */
static int check_square(const vision_processor_t *processor, inferd_error_t *error) {
  if (!within(processor->view_side, EDGE_MIN, PICTURE_SIDE_MAX / 4))
    return bad(error, "size", "is no side of a view");
  const uint32_t side = processor->view_side / processor->patch / processor->merge;
  if (side == 0 || side * side != processor->view_tokens)
    return bad(error, "image_seq_length", "does not follow from size, patch_size and merging");
  return 0;
}

static int check_pinpoints(const vision_processor_t *processor, inferd_error_t *error) {
  const char *const key = "image_grid_pinpoints";
  const bool keeps = processor->kind == VISION_LLAVA_ONEVISION;
  if (keeps && !within(processor->tiles_kept, 1, VISION_TILES_MAX))
    return bad(error, "vision_aspect_ratio", "is out of range");
  if (!within(processor->num_pinpoints, 0, VISION_PINPOINTS_MAX))
    return bad(error, key, "has too many");
  for (uint32_t i = 0; i < 2 * processor->num_pinpoints; i++) {
    const uint32_t side = processor->pinpoints[i / 2][i % 2];
    if (side == 0 || side > PICTURE_SIDE_MAX || side % processor->view_side != 0)
      return bad(error, key, "is no multiple of the view");
  }
  return 0;
}

static int check_tiles(const vision_processor_t *processor, inferd_error_t *error) {
  switch (processor->kind) {
  case VISION_GEMMA3:
    if (!within(processor->tiles_max, 2, VISION_TILES_MAX) ||
        !within(processor->crop_min, VISION_TILES_MAX, PICTURE_SIDE_MAX) ||
        !(processor->crop_ratio > 0))
      return bad(error, "pan_and_scan_max_num_crops", "and its like are out of range");
    break;
  case VISION_GOT_OCR2:
    if (processor->tiles_min == 0 ||
        !within(processor->tiles_max, processor->tiles_min, VISION_TILES_MAX))
      return bad(error, "max_patches", "is out of range");
    break;
  case VISION_IDEFICS3:
    if (processor->longest_edge / processor->view_side >= VISION_TILES_MAX)
      return bad(error, "max_image_size", "is too small for longest_edge");
    break;
  case VISION_LLAVA_ONEVISION:
  case VISION_LLAVA_NEXT:
    if (check_pinpoints(processor, error) != 0) return ERR_MODEL_MALFORMED;
    break;
  case VISION_CLIP:
    if (!within(processor->shortest_edge, processor->view_side, PICTURE_SIDE_MAX))
      return bad(error, "size", "has no shortest_edge from that of crop_size on");
    break;
  default: break;
  }
  return check_square(processor, error);
}

static int check_any_size(const vision_processor_t *processor, inferd_error_t *error) {
  static const uint32_t budgets[NUM_GEMMA4_BUDGETS] = {70, 140, 280, 560, 1120};
  if (processor->kind == VISION_PIXTRAL || processor->kind == VISION_GEMMA4) {
    if (processor->kind == VISION_PIXTRAL) return 0;
    for (int i = 0; i < NUM_GEMMA4_BUDGETS; i++) {
      if (processor->view_tokens == budgets[i]) return 0;
    }
    return bad(error, "max_soft_tokens", "is none of 70, 140, 280, 560, 1120");
  }
  if (processor->pixels_min < 1 || processor->pixels_max < processor->pixels_min ||
      processor->pixels_max > (int64_t)8 * PICTURE_PIXELS_MAX)
    return bad(error, "size", "has no pixels between shortest_edge and longest_edge");
  return 0;
}

int vision_processor_check(const vision_processor_t *processor, inferd_error_t *error) {
  if (!within(processor->patch, 1, PATCH_MAX)) return bad(error, "patch_size", "is out of range");
  if (!within(processor->merge, 1, MERGE_MAX)) return bad(error, "merge_size", "is out of range");
  if (!within(processor->frames, 1, 2))
    return bad(error, "temporal_patch_size", "is neither 1 nor 2");
  if (!(processor->rescale > 0 && processor->rescale <= 1))
    return bad(error, "rescale_factor", "is out of range");
  for (int i = 0; i < 3; i++) {
    if (!(processor->std[i] > 0) || !(processor->mean[i] >= 0 && processor->mean[i] <= 1))
      return bad(error, "image_mean", "or image_std is out of range");
  }
  const bool edged = processor->kind == VISION_PIXTRAL || processor->kind == VISION_IDEFICS3;
  if (edged && !within(processor->longest_edge, EDGE_MIN, PICTURE_SIDE_MAX))
    return bad(error, "size", "has no longest_edge in range");
  return processor->view_side == 0 ? check_any_size(processor, error)
                                   : check_tiles(processor, error);
}

/* ---- read ---- */

/* The first fault, so that readers need no checks. */
typedef struct files {
  const json_t *preprocessor, *processor, *config;
  inferd_error_t *error;
  int status;
} files_t;

static void fault(files_t *reader, const char *key, const char *what) {
  if (reader->status == 0) reader->status = bad(reader->error, key, what);
}

/* An absent or null value leaves *out; a list is read by its first element. */
static void read_count(files_t *reader, const json_t *value, const char *key, uint32_t *out) {
  int64_t number;
  if (json_is_given(value) && value->type == JSON_ARRAY) value = json_first(value);
  if (!json_is_given(value)) return;
  if (!json_int64(value, &number) || number < 0 || number > INT32_MAX)
    fault(reader, key, "is no whole number in range");
  else
    *out = (uint32_t)number;
}

static void read_own_count(files_t *reader, const char *key, uint32_t *out) {
  read_count(reader, json_get(reader->preprocessor, key), key, out);
}

static void read_flag(files_t *reader, const json_t *object, const char *key, bool *out) {
  const json_t *value = json_get(object, key);
  if (json_is_given(value) && !json_bool(value, out))
    fault(reader, key, "is neither true nor false");
}

static void read_colours(files_t *reader, const char *key, double out[3]) {
  const json_t *value = json_get(reader->preprocessor, key);
  if (!json_is_given(value)) return;
  int count = 0;
  JSON_EACH(colour, value) {
    if (count == 3 || !json_double(colour, &out[count])) break;
    count++;
  }
  if (value->type != JSON_ARRAY || value->count != 3 || count != 3)
    fault(reader, key, "is not three numbers");
}

static void read_filter(files_t *reader, vision_filter_t *out) {
  static const vision_filter_t pillow[PILLOW_FILTERS] = {
      [1] = VISION_LANCZOS, [2] = VISION_BILINEAR, [3] = VISION_BICUBIC};
  uint32_t number = 0;
  if (!json_is_given(json_get(reader->preprocessor, "resample"))) return;
  read_own_count(reader, "resample", &number);
  if (!within(number, 1, PILLOW_FILTERS - 1))
    fault(reader, "resample", "is none of 1 (Lanczos), 2 (bilinear), 3 (bicubic)");
  else
    *out = pillow[number];
}

/* What would change pixels and is not done. */
static void refuse(files_t *reader, vision_kind_t kind) {
  static const char *const key = "do_center_crop";
  bool resizes = true, rescales = true, crops = false;
  read_flag(reader, reader->preprocessor, "do_resize", &resizes);
  read_flag(reader, reader->preprocessor, "do_rescale", &rescales);
  read_flag(reader, reader->preprocessor, "do_center_crop", &crops);
  if (kind == VISION_CLIP && !crops && json_is_given(json_get(reader->preprocessor, key)))
    fault(reader, key, "is false, which is not supported");
  if (!resizes) fault(reader, "do_resize", "is false, which is not supported");
  if (!rescales) fault(reader, "do_rescale", "is false, which is not supported");
  if (crops && kind != VISION_CLIP && kind != VISION_LLAVA_NEXT)
    fault(reader, key, "is true, which is not supported");
}

static void read_pixel_limits(files_t *reader, vision_processor_t *out) {
  static const char *const keys[2][2] = {{"shortest_edge", "min_pixels"},
                                         {"longest_edge", "max_pixels"}};
  int64_t *const limits[2] = {&out->pixels_min, &out->pixels_max};
  const json_t *size = json_get(reader->preprocessor, "size");
  for (int i = 0; i < 2; i++) {
    const json_t *first = json_get(size, keys[i][0]),
                 *last = json_get(reader->preprocessor, keys[i][1]);
    if (json_is_given(first) && !json_int64(first, limits[i]))
      fault(reader, keys[i][0], "is no whole number");
    if (json_is_given(last) && !json_int64(last, limits[i]))
      fault(reader, keys[i][1], "is no whole number");
  }
}

static void read_pinpoints(files_t *reader, vision_processor_t *out) {
  const json_t *list = json_get(reader->preprocessor, "image_grid_pinpoints");
  if (!json_is_given(list)) return;
  out->num_pinpoints = 0;
  JSON_EACH(pair, list) {
    if (pair->type != JSON_ARRAY || pair->count != 2 ||
        out->num_pinpoints == VISION_PINPOINTS_MAX) {
      fault(reader, "image_grid_pinpoints", "is no list of at most 64 pairs");
      return;
    }
    uint32_t *place = out->pinpoints[out->num_pinpoints++];
    read_count(reader, json_first(pair), "image_grid_pinpoints", &place[0]);
    read_count(reader, json_next(json_first(pair)), "image_grid_pinpoints", &place[1]);
  }
  if (out->num_pinpoints == 0) fault(reader, "image_grid_pinpoints", "is empty");
}

/* "anyres_max_9" is 9, in the files of the processor and of the model. */
static void read_aspect_ratio(files_t *reader, vision_processor_t *out) {
  static const char *const key = "vision_aspect_ratio", prefix[] = "anyres_max_";
  const json_t *const values[] = {json_get(reader->config, key), json_get(reader->processor, key)};
  const size_t skip = sizeof prefix - 1;
  uint32_t kept[ARRAY_LEN(values)];
  for (size_t i = 0; i < ARRAY_LEN(values); i++) {
    const json_t *value = values[i];
    kept[i] = i == 0 ? out->tiles_kept : kept[0];
    if (!json_is_given(value)) continue;
    kept[i] = 0;
    if (value->type != JSON_STRING || value->length <= skip || value->length > skip + 2 ||
        memcmp(value->text, prefix, skip) != 0)
      continue;
    for (size_t c = skip; c < value->length; c++) {
      const uint32_t digit = (uint32_t)(value->text[c] - '0');
      kept[i] = digit > 9 ? VISION_TILES_MAX + 1 : kept[i] * 10 + digit;
    }
  }
  if (kept[0] != kept[1] || !within(kept[0], 1, VISION_TILES_MAX))
    fault(reader, key, "is not anyres_max_N, with N from 1 to 64, the same in config.json");
  out->tiles_kept = kept[0];
}

/* LLaVA-NeXT and CLIP have a shortest edge, and the side of what is cut from the middle. */
static void read_crop(files_t *reader, vision_processor_t *out) {
  const json_t *size = json_get(reader->preprocessor, "size");
  const json_t *crop = json_get(reader->preprocessor, "crop_size");
  const bool is_next = out->kind == VISION_LLAVA_NEXT;
  uint32_t *const edge = is_next ? &out->view_side : &out->shortest_edge;
  uint32_t high = out->view_side, wide;
  read_count(reader, json_get(size, "shortest_edge"), "size", edge);
  if (is_next) read_count(reader, json_get(size, "height"), "size", edge);
  if (is_next) high = out->view_side;
  read_count(reader, json_get(crop, "height"), "crop_size", &high);
  wide = high;
  read_count(reader, json_get(crop, "width"), "crop_size", &wide);
  if (wide != high) fault(reader, "crop_size", "is no square");
  if (is_next && high != out->view_side) fault(reader, "crop_size", "is not size");
  out->view_side = high;
}

/* The side of square views, and how their patches merge, which stands in several files. */
static void read_squares(files_t *reader, vision_processor_t *out) {
  const json_t *size = json_get(reader->preprocessor, "size");
  uint32_t width = 0;
  if (out->kind == VISION_IDEFICS3) {
    const json_t *most = json_get(reader->preprocessor, "max_image_size");
    read_count(reader, json_get(most, "longest_edge"), "max_image_size", &out->view_side);
    read_count(reader, json_get(size, "longest_edge"), "size", &out->longest_edge);
    read_flag(reader, reader->preprocessor, "do_image_splitting", &out->tiles);
  } else if (out->kind == VISION_LLAVA_NEXT || out->kind == VISION_CLIP) {
    read_crop(reader, out);
  } else {
    read_count(reader, json_get(size, "height"), "size", &out->view_side);
    width = out->view_side;
    read_count(reader, json_get(size, "width"), "size", &width);
    if (width != out->view_side) fault(reader, "size", "is no square");
  }
  out->view_tokens = 0;
  read_count(reader, json_get(reader->config, "mm_tokens_per_image"), "mm_tokens_per_image",
             &out->view_tokens);
  static const char *const keys[] = {"image_seq_length", "image_seq_len", "num_image_tokens"};
  for (size_t i = 0; i < ARRAY_LEN(keys); i++)
    read_count(reader, json_get(reader->processor, keys[i]), keys[i], &out->view_tokens);
  if (out->kind == VISION_IDEFICS3)
    read_count(reader, json_get(reader->config, "scale_factor"), "scale_factor", &out->merge);
  const uint32_t grid = out->patch == 0 ? 0 : out->view_side / out->patch;
  if (out->view_tokens == 0 && out->merge != 0)
    out->view_tokens = grid / out->merge * (grid / out->merge);
  for (uint32_t merge = 1; merge <= MERGE_MAX && merge <= grid; merge++) {
    if (grid / merge * (grid / merge) != out->view_tokens) continue;
    out->merge = merge;
    break;
  }
}

static void read_family(files_t *reader, vision_processor_t *out) {
  const json_t *size = json_get(reader->preprocessor, "size"), *ratio;
  const json_t *patch = json_get(reader->preprocessor, "patch_size");
  const json_t *vision = json_get(reader->config, "vision_config");
  read_count(reader, json_get(vision, "patch_size"), "patch_size", &out->patch);
  if (json_is_given(patch) && patch->type == JSON_OBJECT) patch = json_get(patch, "height");
  read_count(reader, patch, "patch_size", &out->patch);
  switch (out->kind) {
  case VISION_QWEN2_VL:
  case VISION_GLM4V:
    read_own_count(reader, "merge_size", &out->merge);
    read_own_count(reader, "temporal_patch_size", &out->frames);
    read_pixel_limits(reader, out);
    return;
  case VISION_GEMMA4:
    read_own_count(reader, "pooling_kernel_size", &out->merge);
    read_own_count(reader, "max_soft_tokens", &out->view_tokens);
    return;
  case VISION_PIXTRAL:
    read_count(reader, json_get(size, "longest_edge"), "size", &out->longest_edge);
    read_count(reader, json_get(reader->config, "spatial_merge_size"), "spatial_merge_size",
               &out->merge);
    read_count(reader, json_get(reader->processor, "spatial_merge_size"), "spatial_merge_size",
               &out->merge);
    return;
  case VISION_GEMMA3:
    read_flag(reader, reader->preprocessor, "do_pan_and_scan", &out->tiles);
    read_own_count(reader, "pan_and_scan_min_crop_size", &out->crop_min);
    read_own_count(reader, "pan_and_scan_max_num_crops", &out->tiles_max);
    ratio = json_get(reader->preprocessor, "pan_and_scan_min_ratio_to_activate");
    if (json_is_given(ratio) && !json_double(ratio, &out->crop_ratio))
      fault(reader, "pan_and_scan_min_ratio_to_activate", "is no number");
    break;
  case VISION_GOT_OCR2: /* InternVL's processor cuts whatever the file of its preprocessor says */
    read_own_count(reader, "min_patches", &out->tiles_min);
    read_own_count(reader, "max_patches", &out->tiles_max);
    break;
  case VISION_LLAVA_ONEVISION:
    read_aspect_ratio(reader, out);
    read_pinpoints(reader, out);
    break;
  case VISION_LLAVA_NEXT: read_pinpoints(reader, out); break;
  case VISION_IDEFICS3:
  case VISION_CLIP: break;
  }
  read_squares(reader, out);
}

static int read_kind(files_t *reader, vision_kind_t *out) {
  static const char *const ends[] = {"ImageProcessor", "ImageProcessorFast"};
  const json_t *name = json_get(reader->preprocessor, "image_processor_type");
  char shown[64], full[64];
  for (size_t i = 0; i < ARRAY_LEN(classes); i++) {
    for (size_t k = 0; k < ARRAY_LEN(ends); k++) {
      snprintf(full, sizeof full, "%s%s", classes[i].name, ends[k]);
      if (!json_equals(name, full)) continue;
      *out = classes[i].kind;
      return 0;
    }
  }
  if (name == NULL || name->type != JSON_STRING)
    return bad(reader->error, "image_processor_type", "is missing");
  error_quote(shown, sizeof shown, name->text, name->length);
  return error_set(reader->error, ERR_MODEL_MALFORMED, "image_processor_type",
                   "the image processor '%s' is none that inferd knows", shown);
}

int vision_processor_read(const json_t *preprocessor, const json_t *processor, const json_t *config,
                          vision_processor_t *out, inferd_error_t *error) {
  files_t reader = {preprocessor, processor, config, error, 0};
  vision_kind_t kind = VISION_QWEN2_VL;
  const json_t *rescale = json_get(preprocessor, "rescale_factor");
  if (read_kind(&reader, &kind) != 0) return ERR_MODEL_MALFORMED;
  vision_processor_default(kind, out);
  refuse(&reader, kind);
  read_filter(&reader, &out->filter);
  read_colours(&reader, "image_mean", out->mean);
  read_colours(&reader, "image_std", out->std);
  read_flag(&reader, preprocessor, "do_normalize", &out->normalizes);
  if (json_is_given(rescale) && !json_double(rescale, &out->rescale))
    fault(&reader, "rescale_factor", "is no number");
  read_family(&reader, out);
  return reader.status != 0 ? reader.status : vision_processor_check(out, error);
}

int vision_processor_read_internvl(const json_t *config, vision_processor_t *out,
                                   inferd_error_t *error) {
  static const double mean[3] = {0.485, 0.456, 0.406}, deviation[3] = {0.229, 0.224, 0.225};
  files_t reader = {config, NULL, config, error, 0};
  const json_t *vision = json_get(config, "vision_config");
  bool adds_whole = false;
  double ratio = 0.5;
  vision_processor_default(VISION_GOT_OCR2, out);
  memcpy(out->mean, mean, sizeof mean);
  memcpy(out->std, deviation, sizeof deviation);
  out->tiles = false;
  out->tiles_max = 6;
  read_flag(&reader, config, "dynamic_image_size", &out->tiles);
  read_flag(&reader, config, "use_thumbnail", &adds_whole);
  read_own_count(&reader, "min_dynamic_patch", &out->tiles_min);
  read_own_count(&reader, "max_dynamic_patch", &out->tiles_max);
  read_count(&reader, json_get(vision, "patch_size"), "patch_size", &out->patch);
  read_count(&reader, json_get(vision, "image_size"), "image_size", &out->view_side);
  read_own_count(&reader, "force_image_size", &out->view_side);
  if (json_is_given(json_get(config, "downsample_ratio")) &&
      !json_double(json_get(config, "downsample_ratio"), &ratio))
    fault(&reader, "downsample_ratio", "is no number");
  if (out->tiles && !adds_whole)
    fault(&reader, "use_thumbnail", "is false, which is not supported with dynamic_image_size");
  out->merge = ratio > 1.0 / (MERGE_MAX + 1) ? (uint32_t)(1 / ratio) : 0;
  if (reader.status != 0) return reader.status;
  if (!within(out->patch, 1, PATCH_MAX) || !within(out->merge, 1, MERGE_MAX))
    return bad(error, "patch_size", "or downsample_ratio is out of range");
  const uint32_t side = out->view_side / out->patch / out->merge;
  out->view_tokens = side * side;
  return vision_processor_check(out, error);
}
