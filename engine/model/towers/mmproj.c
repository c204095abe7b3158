/* mmproj.c: the words of a mmproj file -> those of the files of transformers, see mmproj.h. Keys
 * and names are those of llama.cpp's package `gguf`. Reads no weights. */
#include "engine/model/towers/mmproj.h"

#include "engine/base/buffer.h"
#include "engine/base/util.h"
#include "engine/file/gguf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* ---- names ---- */

static const char *const names[TOWER_NUM_ROLES] = {[TOWER_PATCH] = "v.patch_embd",
                                                   [TOWER_POSITIONS] = "v.position_embd",
                                                   [TOWER_CLASS] = "v.class_embd",
                                                   [TOWER_PRE_NORM] = "v.pre_ln",
                                                   [TOWER_POST_NORM] = "v.post_ln",
                                                   [TOWER_LINE] = "model.image_newline",
                                                   [TOWER_NORM_1] = "v.blk.%d.ln1",
                                                   [TOWER_QKV] = "v.blk.%d.attn_qkv",
                                                   [TOWER_Q] = "v.blk.%d.attn_q",
                                                   [TOWER_K] = "v.blk.%d.attn_k",
                                                   [TOWER_V] = "v.blk.%d.attn_v",
                                                   [TOWER_O] = "v.blk.%d.attn_out",
                                                   [TOWER_SCALE_1] = "v.blk.%d.ls1",
                                                   [TOWER_NORM_2] = "v.blk.%d.ln2",
                                                   [TOWER_GATE] = "v.blk.%d.ffn_gate",
                                                   [TOWER_UP] = "v.blk.%d.ffn_up",
                                                   [TOWER_DOWN] = "v.blk.%d.ffn_down",
                                                   [TOWER_SCALE_2] = "v.blk.%d.ls2",
                                                   [TOWER_DEEP_NORM] = "v.deepstack.%d.norm",
                                                   [TOWER_DEEP_UP] = "v.deepstack.%d.fc1",
                                                   [TOWER_DEEP_DOWN] = "v.deepstack.%d.fc2"};

typedef struct projector projector_t;

/* Writes the members of vision_config that only this family has, and behind it those of the whole
 * model and of the processor. */
typedef struct mmproj_words {
  const gguf_t *gguf;
  const projector_t *projector;
  buffer_t json;
  inferd_error_t *error;
  int code;
  int64_t image, patch, layers; /* sizes that several keys follow from */
} mmproj_words_t;

struct projector {
  const char *kind; /* clip.projector_type */
  const char *around, *type, *processor, *token;
  const char *norm, *mix, *up, *down;             /* names of the merger's tensors */
  const char *layers, *heads;                     /* what vision_config calls these numbers */
  const char *width;                              /* the same, NULL = hidden_size */
  void (*write)(mmproj_words_t *words);           /* members of vision_config */
  void (*write_around)(mmproj_words_t *words);    /* of the model; may be NULL */
  void (*write_processor)(mmproj_words_t *words); /* may be NULL */
};

/* ---- numbers ---- */

static void refuse(mmproj_words_t *words, const char *key, const char *what) {
  if (words->code == 0)
    words->code = error_set(words->error, ERR_MODEL_MALFORMED, key, "%s: \"%s\" %s",
                            gguf_path(words->gguf, 0), key, what);
}

static int64_t number_of(mmproj_words_t *words, const char *name, int64_t absent) {
  char key[96];
  int64_t number = absent;
  snprintf(key, sizeof key, "clip.vision.%s", name);
  const gguf_value_t *value = gguf_get(words->gguf, key);
  if (value == NULL && absent >= 0) return absent;
  if (value == NULL || !gguf_int(value, 0, &number) || number < 0 || number > INT32_MAX)
    refuse(words, key, "is no whole number");
  return number;
}

static bool flag_of(const mmproj_words_t *words, const char *key) {
  bool flag = false;
  return gguf_bool(gguf_get(words->gguf, key), 0, &flag) && flag;
}

static double eps_of(const mmproj_words_t *words, double absent) {
  double eps = absent;
  (void)gguf_double(gguf_get(words->gguf, "clip.vision.attention.layer_norm_epsilon"), 0, &eps);
  return eps;
}

/* A member of the object that is being written. */
static void put_name(mmproj_words_t *words, const char *name) {
  const buffer_t *json = &words->json;
  const char last = json->length > 0 ? json->data[json->length - 1] : '{';
  if (last != '{') buffer_char(&words->json, ',');
  buffer_quote(&words->json, name, strlen(name));
  buffer_char(&words->json, ':');
}

static void put_int(mmproj_words_t *words, const char *name, int64_t number) {
  put_name(words, name);
  buffer_int(&words->json, number);
}

static void put_double(mmproj_words_t *words, const char *name, double number) {
  char text[DOUBLE_TEXT_MAX];
  put_name(words, name);
  buffer_append(&words->json, text, double_print(text, number));
}

static void put_text(mmproj_words_t *words, const char *name, const char *text) {
  put_name(words, name);
  buffer_quote(&words->json, text, strlen(text));
}

static void put_bool(mmproj_words_t *words, const char *name, bool flag) {
  put_name(words, name);
  buffer_text(&words->json, flag ? "true" : "false");
}

static void begin(mmproj_words_t *words, const char *name) {
  put_name(words, name);
  buffer_char(&words->json, '{');
}

static void end(mmproj_words_t *words) {
  buffer_char(&words->json, '}');
}

/* The layers of `is_of`, as a list. */
static void put_layers(mmproj_words_t *words, const char *name,
                       bool (*is_of)(mmproj_words_t *words, int64_t layer)) {
  const char *comma = "";
  put_name(words, name);
  buffer_char(&words->json, '[');
  for (int64_t i = 0; i < words->layers; i++) {
    if (!is_of(words, i)) continue;
    buffer_text(&words->json, comma);
    buffer_int(&words->json, i);
    comma = ",";
  }
  buffer_char(&words->json, ']');
}

static void put_colours(mmproj_words_t *words, const char *name) {
  char key[96];
  snprintf(key, sizeof key, "clip.vision.%s", name);
  const gguf_value_t *value = gguf_get(words->gguf, key);
  if (value == NULL) return;
  put_name(words, name);
  for (uint32_t i = 0; i < 3; i++) {
    double number = 0;
    char text[DOUBLE_TEXT_MAX], single[FLOAT_TEXT_MAX];
    if (value->count != 3 || !gguf_double(value, i, &number)) refuse(words, key, "is no colour");
    /* It was written as a float32: its shortest decimal is what the file of the processor said. */
    size_t length = float_print(single, (float)number);
    memcpy(text, single, length);
    buffer_char(&words->json, i == 0 ? '[' : ',');
    buffer_append(&words->json, text, length);
  }
  buffer_char(&words->json, ']');
}

/* ---- families ---- */

static bool is_full(mmproj_words_t *words, int64_t layer) {
  const int64_t every = number_of(words, "n_wa_pattern", 0);
  return every > 0 && (layer + 1) % every == 0;
}

static bool is_deep(mmproj_words_t *words, int64_t layer) {
  bool flag = false;
  const gguf_value_t *value = gguf_get(words->gguf, "clip.vision.is_deepstack_layers");
  return value != NULL && layer < value->count && gguf_bool(value, (uint32_t)layer, &flag) && flag;
}

static void write_qwen(mmproj_words_t *words) {
  put_int(words, "out_hidden_size", number_of(words, "projection_dim", -1));
  put_int(words, "spatial_merge_size", number_of(words, "spatial_merge_size", 2));
}

/* feed_forward_length is the width of the text model in these files. */
static void write_qwen2(mmproj_words_t *words) {
  const gguf_tensor_t *up = gguf_tensor(words->gguf, "v.blk.0.ffn_up.weight");
  const int64_t width = number_of(words, "embedding_length", -1);
  put_int(words, "spatial_merge_size", number_of(words, "spatial_merge_size", 2));
  put_int(words, "hidden_size", number_of(words, "projection_dim", -1));
  if (up == NULL || up->rank != 2 || width < 1 || up->shape[0] % width != 0)
    refuse(words, "v.blk.0.ffn_up.weight", "is no matrix of a multiple of embedding_length");
  else
    put_int(words, "mlp_ratio", up->shape[0] / width);
}

static void write_qwen2_5(mmproj_words_t *words) {
  write_qwen(words);
  put_layers(words, "fullatt_block_indexes", is_full);
}

static void write_qwen3(mmproj_words_t *words) {
  const int64_t side = words->image / MAX(words->patch, 1);
  write_qwen(words);
  put_int(words, "num_position_embeddings", side * side);
  put_layers(words, "deepstack_visual_indexes", is_deep);
}

static void write_qwen_processor(mmproj_words_t *words) {
  put_int(words, "patch_size", words->patch);
  put_int(words, "merge_size", number_of(words, "spatial_merge_size", 2));
}

static void write_siglip(mmproj_words_t *words) {
  put_double(words, "layer_norm_eps", eps_of(words, 1e-6));
}

static void write_gemma3_around(mmproj_words_t *words) {
  const int64_t scale = number_of(words, "projector.scale_factor", 4);
  const int64_t side = words->image / MAX(words->patch * scale, 1);
  put_int(words, "mm_tokens_per_image", side * side);
}

static void put_square(mmproj_words_t *words) {
  begin(words, "size");
  put_int(words, "height", words->image);
  put_int(words, "width", words->image);
  end(words);
}

static void write_idefics3_around(mmproj_words_t *words) {
  put_int(words, "scale_factor", number_of(words, "projector.scale_factor", 2));
}

static void write_idefics3_processor(mmproj_words_t *words) {
  begin(words, "size");
  put_int(words, "longest_edge", number_of(words, "preproc_image_size", words->image));
  end(words);
  begin(words, "max_image_size");
  put_int(words, "longest_edge", words->image);
  end(words);
}

static void write_pixtral(mmproj_words_t *words) {
  put_text(words, "hidden_act", flag_of(words, "clip.use_silu") ? "silu" : "gelu");
}

static void write_pixtral_around(mmproj_words_t *words) {
  put_int(words, "spatial_merge_size", number_of(words, "spatial_merge_size", 1));
  put_bool(words, "multimodal_projector_bias", gguf_tensor(words->gguf, "mm.1.bias") != NULL);
  put_int(words, "vision_feature_layer", -1);
  put_text(words, "vision_feature_select_strategy", "full");
}

static void write_pixtral_processor(mmproj_words_t *words) {
  begin(words, "size");
  put_int(words, "longest_edge", words->image);
  end(words);
  put_int(words, "patch_size", words->patch);
}

static void write_internvl(mmproj_words_t *words) {
  write_siglip(words);
  put_bool(words, "attention_bias", gguf_tensor(words->gguf, "v.blk.0.attn_q.bias") != NULL);
}

static void write_internvl_around(mmproj_words_t *words) {
  put_double(words, "downsample_ratio",
             1.0 / (double)MAX(number_of(words, "projector.scale_factor", 2), 1));
}

static void write_internvl_processor(mmproj_words_t *words) {
  const int64_t least = number_of(words, "preproc_min_tiles", 0);
  const int64_t most = number_of(words, "preproc_max_tiles", 0);
  put_square(words);
  if (least > 0) put_int(words, "min_patches", least);
  if (most > 0) put_int(words, "max_patches", most);
}

/* Of the old script for LLaVA, whose files end behind the layer that is read. */
static void write_clip(mmproj_words_t *words) {
  put_double(words, "layer_norm_eps", eps_of(words, 1e-5));
  put_text(words, "hidden_act", flag_of(words, "clip.use_gelu") ? "gelu" : "quick_gelu");
}

static void write_clip_around(mmproj_words_t *words) {
  static const char key[] = "clip.vision.feature_layer";
  const gguf_value_t *value = gguf_get(words->gguf, key);
  int64_t layer = words->layers;
  if (value != NULL && (value->count != 1 || !gguf_int(value, 0, &layer) || layer != words->layers))
    refuse(words, key, "is not block_count alone");
  put_int(words, "vision_feature_layer", -1);
  put_text(words, "vision_feature_select_strategy", "default");
  put_bool(words, "multimodal_projector_bias", gguf_tensor(words->gguf, "mm.0.bias") != NULL);
}

/* Sizes of tiles together, side by side in these files. */
static void put_pinpoints(mmproj_words_t *words) {
  static const char key[] = "clip.vision.image_grid_pinpoints";
  const gguf_value_t *value = gguf_get(words->gguf, key);
  if (value == NULL) return;
  put_name(words, "image_grid_pinpoints");
  buffer_char(&words->json, '[');
  for (uint32_t i = 0; i < value->count; i++) {
    int64_t side = 0;
    if (value->count % 2 != 0 || !gguf_int(value, i, &side)) refuse(words, key, "has no pairs");
    if (words->code != 0) return;
    buffer_text(&words->json, i % 2 == 0 ? (i == 0 ? "[" : ",[") : ",");
    buffer_int(&words->json, side);
    if (i % 2 == 1) buffer_char(&words->json, ']');
  }
  buffer_char(&words->json, ']');
}

static void write_clip_processor(mmproj_words_t *words) {
  begin(words, "size");
  put_int(words, "shortest_edge", words->image);
  end(words);
  begin(words, "crop_size");
  put_int(words, "height", words->image);
  put_int(words, "width", words->image);
  end(words);
  put_pinpoints(words);
}

#define QWEN                                                                                       \
  .processor = "Qwen2VLImageProcessor", .token = "<|image_pad|>", .norm = "v.post_ln",             \
  .up = "mm.0", .down = "mm.2", .layers = "depth", .heads = "num_heads",                           \
  .write_processor = write_qwen_processor
#define VIT .layers = "num_hidden_layers", .heads = "num_attention_heads"

static const projector_t projectors[] = {{.kind = "qwen2vl_merger",
                                          .around = "qwen2_vl",
                                          .type = "qwen2_vl",
                                          QWEN,
                                          .width = "embed_dim",
                                          .write = write_qwen2},
                                         {.kind = "qwen2.5vl_merger",
                                          .around = "qwen2_5_vl",
                                          .type = "qwen2_5_vl",
                                          QWEN,
                                          .write = write_qwen2_5},
                                         {.kind = "qwen3vl_merger",
                                          .around = "qwen3_vl",
                                          .type = "qwen3_vl",
                                          QWEN,
                                          .write = write_qwen3},
                                         {.kind = "gemma3",
                                          .around = "gemma3",
                                          .type = "siglip_vision_model",
                                          .processor = "Gemma3ImageProcessor",
                                          .token = "<image_soft_token>",
                                          .norm = "mm.soft_emb_norm",
                                          .down = "mm.input_projection",
                                          VIT,
                                          .write = write_siglip,
                                          .write_around = write_gemma3_around,
                                          .write_processor = put_square},
                                         {.kind = "idefics3",
                                          .around = "smolvlm",
                                          .type = "smolvlm_vision",
                                          .processor = "SmolVLMImageProcessor",
                                          .token = "<image>",
                                          .down = "mm.model.fc",
                                          VIT,
                                          .write = write_siglip,
                                          .write_around = write_idefics3_around,
                                          .write_processor = write_idefics3_processor},
                                         {.kind = "pixtral",
                                          .around = "mistral3", /* without a merger: llava */
                                          .type = "pixtral",
                                          .processor = "PixtralImageProcessor",
                                          .token = "[IMG]",
                                          .norm = "mm.input_norm",
                                          .mix = "mm.patch_merger",
                                          .up = "mm.1",
                                          .down = "mm.2",
                                          VIT,
                                          .write = write_pixtral,
                                          .write_around = write_pixtral_around,
                                          .write_processor = write_pixtral_processor},
                                         {.kind = "internvl",
                                          .around = "internvl",
                                          .type = "internvl_vision",
                                          .processor = "GotOcr2ImageProcessor",
                                          .token = "<IMG_CONTEXT>",
                                          .norm = "mm.model.mlp.0",
                                          .up = "mm.model.mlp.1",
                                          .down = "mm.model.mlp.3",
                                          VIT,
                                          .write = write_internvl,
                                          .write_around = write_internvl_around,
                                          .write_processor = write_internvl_processor},
                                         {.kind = "mlp",
                                          .around = "llava", /* with new lines: llava_next */
                                          .type = "clip_vision_model",
                                          .processor = "CLIPImageProcessor",
                                          .token = "<image>",
                                          .up = "mm.0",
                                          .down = "mm.2",
                                          VIT,
                                          .write = write_clip,
                                          .write_around = write_clip_around,
                                          .write_processor = write_clip_processor}};

/* Whether the file is of this kind at all: else it is a text model. */
static bool is_clip(const gguf_t *gguf) {
  const char *text = "";
  size_t at = 0, length = 0;
  const gguf_value_t *value = gguf_get(gguf, "general.architecture");
  return value != NULL && gguf_next_string(value, &at, &text, &length) && length == 4 &&
         memcmp(text, "clip", 4) == 0;
}

static const projector_t *find_projector(mmproj_words_t *words) {
  const gguf_value_t *value = gguf_get(words->gguf, "clip.projector_type");
  const char *text = "";
  char shown[64];
  size_t at = 0, length = 0;
  if (value == NULL) value = gguf_get(words->gguf, "clip.vision.projector_type");
  if (value == NULL || !gguf_next_string(value, &at, &text, &length)) {
    refuse(words, "clip.projector_type", "is missing: this is no mmproj file");
    return NULL;
  }
  for (size_t i = 0; i < ARRAY_LEN(projectors); i++) {
    if (strlen(projectors[i].kind) == length && memcmp(projectors[i].kind, text, length) == 0)
      return &projectors[i];
  }
  words->code = error_set(
      words->error, ERR_MODEL_MALFORMED, "clip.projector_type",
      "%s: \"clip.projector_type\" is \"%s\", supported: qwen2vl_merger, qwen2.5vl_merger, "
      "qwen3vl_merger, gemma3, idefics3, pixtral, internvl, mlp",
      gguf_path(words->gguf, 0), error_quote(shown, sizeof shown, text, length));
  return NULL;
}

static bool is_kind(const mmproj_words_t *words, const char *kind) {
  return strcmp(words->projector->kind, kind) == 0;
}

static bool has_lines(const mmproj_words_t *words) {
  return is_kind(words, "mlp") && gguf_tensor(words->gguf, names[TOWER_LINE]) != NULL;
}

static const char *model_type_of(const mmproj_words_t *words) {
  const bool merges = gguf_tensor(words->gguf, "mm.patch_merger.weight") != NULL;
  if (is_kind(words, "pixtral") && !merges) return "llava";
  return has_lines(words) ? "llava_next" : words->projector->around;
}

/* In files of the old script projection_dim is that of CLIP. */
static int64_t text_width(mmproj_words_t *words) {
  if (!is_kind(words, "mlp")) return number_of(words, "projection_dim", -1);
  const gguf_tensor_t *down = gguf_tensor(words->gguf, "mm.2.weight");
  if (down != NULL && down->rank == 2) return down->shape[0];
  refuse(words, "mm.2.weight", "is no matrix");
  return 1;
}

static void write_all(mmproj_words_t *words) {
  const projector_t *projector = words->projector;
  words->image = number_of(words, "image_size", -1);
  words->patch = number_of(words, "patch_size", -1);
  words->layers = number_of(words, "block_count", -1);
  buffer_char(&words->json, '{');
  put_text(words, "model_type", model_type_of(words));
  put_text(words, "mmproj_image_token", projector->token);
  begin(words, "vision_config");
  put_text(words, "model_type", projector->type);
  put_int(words, "image_size", words->image);
  put_int(words, "patch_size", words->patch);
  put_int(words, projector->layers, words->layers);
  put_int(words, projector->width != NULL ? projector->width : "hidden_size",
          number_of(words, "embedding_length", -1));
  put_int(words, "intermediate_size", number_of(words, "feed_forward_length", -1));
  put_int(words, projector->heads, number_of(words, "attention.head_count", -1));
  projector->write(words);
  end(words);
  begin(words, "text_config");
  put_int(words, "hidden_size", text_width(words));
  put_double(words, "rms_norm_eps", eps_of(words, 1e-5));
  end(words);
  if (projector->write_around != NULL) projector->write_around(words);
  begin(words, "image_processor");
  put_text(words, "image_processor_type",
           has_lines(words) ? "LlavaNextImageProcessor" : projector->processor);
  put_colours(words, "image_mean");
  put_colours(words, "image_std");
  if (projector->write_processor != NULL) projector->write_processor(words);
  end(words);
  end(words);
}

int mmproj_config(const char *path, model_file_t *out, inferd_error_t *error) {
  gguf_t *gguf = NULL;
  size_t length = 0;
  *out = (model_file_t){0};
  int code = gguf_open(path, false, &gguf, error);
  if (code != 0) return code;
  if (!is_clip(gguf)) {
    gguf_close(gguf);
    return 0;
  }
  mmproj_words_t words = {.gguf = gguf, .error = error};
  words.projector = find_projector(&words);
  if (words.projector != NULL) write_all(&words);
  code = words.code;
  out->text = buffer_detach(&words.json, &length);
  if (code == 0 && out->text == NULL)
    code = error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
  if (code == 0) code = json_parse(out->text, length, &json_limits_model, &out->doc, error);
  if (code != 0) {
    free(out->text);
    *out = (model_file_t){0};
  }
  gguf_close(gguf);
  return code;
}

/* ---- tensors ---- */

/* Of a plan that mmproj_config has led to. */
static const projector_t *projector_of(const tower_plan_t *plan) {
  for (size_t i = 0; i < ARRAY_LEN(projectors); i++) {
    const size_t length = strlen(projectors[i].type);
    if (strncmp(plan->family->model_type, projectors[i].type, length) == 0) return &projectors[i];
  }
  return NULL;
}

bool mmproj_name(const tower_plan_t *plan, tower_role_t role, int32_t index, const char *part,
                 char *out, size_t size) {
  const projector_t *projector = projector_of(plan);
  const char *pattern = names[role];
  if (projector == NULL) return false;
  if (role == TOWER_MERGE_NORM) pattern = projector->norm;
  if (role == TOWER_MERGE_MIX) pattern = projector->mix;
  if (role == TOWER_MERGE_UP) pattern = projector->up;
  if (role == TOWER_MERGE_DOWN) pattern = projector->down;
  if (pattern == NULL) return false;
  if (role >= TOWER_FIRST_OF_DEEP) index = plan->deep_layers[index];
  const char *number = strstr(pattern, "%d");
  int used = number == NULL ? snprintf(out, size, "%s", pattern)
                            : snprintf(out, size, "%.*s%d%s", (int)(number - pattern), pattern,
                                       (int)index, number + 2);
  if (role != TOWER_CLASS && role != TOWER_LINE)
    snprintf(out + used, size - (size_t)used, ".%s", part[0] != '\0' ? part : "weight");
  return true;
}

bool mmproj_turns_heads(const tower_plan_t *plan, tower_role_t role) {
  return plan->rope_turns && (role == TOWER_Q || role == TOWER_K);
}

bool mmproj_is_copy(const char *name) {
  return strcmp(name, "v.token_embd.img_break") == 0;
}

/* ---- files ---- */

bool mmproj_is(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* How much a name is liked; 0 = it is none. */
static int rank_of(const char *name) {
  static const char *const kinds[] = {"q8_0", "f32", "f16", "bf16"};
  int rank = 1;
  if (strcasestr(name, "mmproj") == NULL || !text_ends_in(name, ".gguf")) return 0;
  for (int i = 0; i < (int)ARRAY_LEN(kinds); i++)
    if (strcasestr(name, kinds[i]) != NULL) rank = i + 2;
  return rank;
}

bool mmproj_beside(const char *model_path, char out[MMPROJ_PATH_MAX]) {
  char best[256] = "";
  int best_rank = 0;
  const char *slash = strrchr(model_path, '/');
  if (!mmproj_is(model_path)) return false;
  int used = slash != NULL
                 ? snprintf(out, MMPROJ_PATH_MAX, "%.*s/", (int)(slash - model_path), model_path)
                 : snprintf(out, MMPROJ_PATH_MAX, "./");
  if (used < 0 || used >= MMPROJ_PATH_MAX - (int)sizeof best) return false;
  DIR *folder = opendir(out);
  if (folder == NULL) return false;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    const int rank = rank_of(entry->d_name);
    if (rank == 0 || rank < best_rank || strlen(entry->d_name) >= sizeof best) continue;
    if (rank == best_rank && strcmp(entry->d_name, best) >= 0) continue;
    snprintf(best, sizeof best, "%s", entry->d_name);
    best_rank = rank;
  }
  closedir(folder);
  snprintf(out + used, MMPROJ_PATH_MAX - (size_t)used, "%s", best);
  return best_rank > 0;
}
