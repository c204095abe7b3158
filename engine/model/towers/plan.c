/* plan.c: config.json -> the plan of a tower. Any thread, no state. */
#include "engine/base/util.h"
#include "engine/model/source/model_file.h"
#include "engine/model/towers/mmproj.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

static const tower_family_t *const families[] = {&tower_qwen2_vl,
                                                 &tower_qwen2_5_vl,
                                                 &tower_qwen3_vl,
                                                 &tower_qwen3_vl_moe,
                                                 &tower_qwen3_5,
                                                 &tower_qwen3_5_moe,
                                                 &tower_mistral3,
                                                 &tower_llava,
                                                 &tower_pixtral,
                                                 &tower_llava_next,
                                                 &tower_llava_onevision,
                                                 &tower_gemma3,
                                                 &tower_idefics3,
                                                 &tower_smolvlm,
                                                 &tower_internvl,
                                                 &tower_internvl_chat,
                                                 &tower_gemma4,
                                                 &tower_qwen2_audio,
                                                 &tower_voxtral,
                                                 &tower_audioflamingo3,
                                                 &tower_glmasr,
                                                 &tower_qwen3_asr,
                                                 &tower_qwen3_asr_thinker,
                                                 &tower_qwen3_omni,
                                                 &tower_qwen3_omni_thinker};

/* Older configs have the type of the whole model in vision_config. */
static bool is_type(const json_t *around, const json_t *type, const tower_family_t *family) {
  char whole[64];
  const char *name = family->model_type;
  if (family->around != NULL)
    return json_equals(around, family->around) &&
           (type == NULL || json_equals(type, name) || json_equals(type, family->around));
  if (type == NULL) type = around;
  size_t length = strlen(name) - strlen("_vision");
  memcpy(whole, name, length);
  whole[length] = '\0';
  return json_equals(type, name) || json_equals(type, whole);
}

activation_t tower_read_activation(config_reader_t *reader, const tower_plan_t *plan,
                                   const char *key, const char *absent) {
  static const struct {
    const char *name;
    bool gated;
    activation_t kind;
  } kinds[] = {{"gelu", false, ACTIVATION_GELU},
               {"gelu_new", false, ACTIVATION_GELU_TANH},
               {"gelu_pytorch_tanh", false, ACTIVATION_GELU_TANH},
               {"quick_gelu", false, ACTIVATION_QUICK_GELU},
               {"silu", true, ACTIVATION_SILU_MUL},
               {"gelu", true, ACTIVATION_GELU_MUL},
               {"gelu_pytorch_tanh", true, ACTIVATION_GELU_TANH_MUL}};
  const bool gated = plan->family->names[TOWER_GATE] != NULL;
  const json_t *value = json_get(reader->root, key);
  for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
    if (kinds[i].gated != gated) continue;
    if (value != NULL ? json_equals(value, kinds[i].name) : strcmp(absent, kinds[i].name) == 0)
      return kinds[i].kind;
  }
  config_refuse(reader, key, value, "gelu, gelu_pytorch_tanh, %s",
                gated ? "silu" : "gelu_new, quick_gelu");
  return ACTIVATION_GELU;
}

/* A number, or a list of it twice. */
static int64_t read_square(config_reader_t *reader, const char *key, int64_t absent, int64_t most) {
  const json_t *value = json_get(reader->root, key);
  int64_t side, other;
  if (!json_is_given(value) || value->type != JSON_ARRAY)
    return config_int(reader, KEYS(key), absent, 1, most);
  if (value->count == 2 && json_int64(json_first(value), &side) &&
      json_int64(json_next(json_first(value)), &other) && side == other && side >= 1 &&
      side <= most)
    return side;
  config_refuse(reader, key, value, "a square of 1 to %lld pixels", (long long)most);
  return absent;
}

int64_t tower_read_vit(config_reader_t *reader, tower_plan_t *plan, const tower_plan_t *absent,
                       int64_t patch) {
  plan->num_layers = (int32_t)config_int(reader, KEYS("num_hidden_layers"), absent->num_layers, 1,
                                         TOWER_LAYERS_MAX);
  plan->hidden =
      (int32_t)config_int(reader, KEYS("hidden_size"), absent->hidden, 4, TOWER_WIDTH_MAX);
  plan->mlp_width =
      (int32_t)config_int(reader, KEYS("intermediate_size"), absent->mlp_width, 1, TOWER_WIDTH_MAX);
  plan->num_heads = (int32_t)config_int(reader, KEYS("num_attention_heads"), absent->num_heads, 1,
                                        plan->hidden / 4);
  patch = read_square(reader, "patch_size", patch, 64);
  const int64_t channels = config_int(reader, KEYS("num_channels"), 3, 3, 3);
  plan->patch_columns = (int32_t)(channels * patch * patch);
  plan->raster = true;
  plan->merge = 1;
  return patch;
}

void tower_read_table(config_reader_t *reader, tower_plan_t *plan, int64_t image, int64_t patch) {
  image = read_square(reader, "image_size", image, TOWER_SIDE_MAX);
  plan->table_side = (int32_t)(image / patch);
  if (plan->table_side == 0)
    config_refuse(reader, "image_size", json_get(reader->root, "image_size"),
                  "at least a patch of %lld", (long long)patch);
}

void tower_expect(config_reader_t *reader, const json_t *object, const char *key,
                  const char *served) {
  const json_t *value = json_get(object, key);
  if (value != NULL && !json_equals(value, served)) config_refuse(reader, key, value, "%s", served);
}

void tower_expect_bool(config_reader_t *reader, const json_t *object, const char *key,
                       bool served) {
  const json_t *value = json_get(object, key);
  bool given = served;
  if (value != NULL && (!json_bool(value, &given) || given != served))
    config_refuse(reader, key, value, "%s", served ? "true" : "false");
}

void tower_read_text(config_reader_t *reader, const json_t *around, tower_plan_t *plan) {
  config_reader_t inner = *reader;
  inner.root = json_get(around, "text_config");
  const json_t *width = json_get(inner.root, "hidden_size");
  plan->out_size = (int32_t)config_int(&inner, KEYS("hidden_size"), 1, 1, TOWER_WIDTH_MAX);
  if (width == NULL) config_refuse(&inner, "hidden_size", NULL, "the width of the text model");
  reader->code = inner.code;
}

void tower_read_projector(config_reader_t *reader, const json_t *around, bool biased,
                          tower_plan_t *plan) {
  tower_read_text(reader, around, plan);
  config_reader_t outer = *reader;
  outer.root = around;
  tower_expect(&outer, around, "projector_hidden_act", "gelu");
  if (!config_bool(&outer, KEYS("multimodal_projector_bias"), biased))
    plan->unbiased |= 1U << TOWER_MERGE_UP | 1U << TOWER_MERGE_DOWN;
  plan->merge_width = plan->out_size;
  if (outer.code != 0) reader->code = outer.code;
}

/* What holds between the numbers of every family. */
static void check_plan(config_reader_t *reader, const tower_plan_t *plan) {
  const int32_t least = plan->theta > 0 ? 4 : 1;
  const bool short_name = json_get(reader->root, "d_model") != NULL;
  const char *width = short_name ? "d_model" : "hidden_size";
  if (reader->code == 0 && plan->hidden % (least * plan->num_heads) != 0)
    config_refuse(reader, width, json_get(reader->root, width),
                  "a multiple of %d for each of %d heads", least, plan->num_heads);
  if (reader->code == 0 && plan->table_side > 0 && plan->table == TABLE_OF_IMAGE &&
      plan->table_side % plan->merge != 0)
    config_refuse(reader, "image_size", json_get(reader->root, "image_size"),
                  "whole blocks of %d patches a side", plan->merge);
}

const json_t *tower_config_around(const json_t *root) {
  const json_t *inner = json_get(root, "thinker_config");
  return json_is_given(inner) && inner->type == JSON_OBJECT ? inner : root;
}

static int read_plan(const json_t *root, tower_plan_t *out, inferd_error_t *error) {
  const json_t *around = json_get(root, "model_type");
  root = tower_config_around(root);
  for (size_t i = 0; i < ARRAY_LEN(families); i++) {
    const json_t *sense = json_get(root, families[i]->hears ? "audio_config" : "vision_config");
    config_reader_t reader = {.file = "config.json", .root = sense, .error = error};
    if (sense == NULL || !is_type(around, json_get(sense, "model_type"), families[i])) continue;
    out->family = families[i];
    out->unbiased = families[i]->unbiased;
    out->family->read(&reader, root, out);
    check_plan(&reader, out);
    return reader.code;
  }
  return 0;
}

int tower_config_read(const char *path, model_file_t *out, inferd_error_t *error) {
  if (mmproj_is(path)) return mmproj_config(path, out, error);
  return model_file_read(path, "config.json", CONFIG_BYTES_MAX, &config_limits, out, error);
}

int tower_plan_read(const char *path, tower_plan_t *out, inferd_error_t *error) {
  model_file_t file;
  *out = (tower_plan_t){0};
  int code = tower_config_read(path, &file, error);
  if (code != 0 || file.doc == NULL) return code;
  code = read_plan(json_root(file.doc), out, error);
  model_file_free(&file);
  return code;
}

int32_t tower_num_rows(const tower_plan_t *plan, tower_grid_t grid) {
  if (plan->bands > 0) return grid.width / plan->merge;
  return grid.height / plan->merge * (grid.width / plan->merge);
}
