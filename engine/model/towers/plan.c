/* plan.c: config.json -> the plan of a tower. Any thread, no state. */
#include "engine/base/util.h"
#include "engine/model/source/model_file.h"
#include "engine/model/towers/family.h"

#include <string.h>

enum { CONFIG_BYTES_MAX = 16 << 20 };

static const tower_family_t *const families[] = {
    &tower_qwen2_5_vl, &tower_qwen3_vl, &tower_qwen3_vl_moe, &tower_qwen3_5, &tower_qwen3_5_moe};

/* Older configs have the type of the whole model there. */
static bool is_type(const json_t *type, const char *name) {
  char whole[64];
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
  config_refuse(reader, key, value, "gelu, gelu_pytorch_tanh, %s", gated ? "silu" : "gelu_new");
  return ACTIVATION_GELU;
}

/* What holds between the numbers of every family. */
static void check_plan(config_reader_t *reader, const tower_plan_t *plan) {
  if (reader->code == 0 && plan->hidden % (4 * plan->num_heads) != 0)
    config_refuse(reader, "hidden_size", json_get(reader->root, "hidden_size"),
                  "a multiple of 4 for each of %d heads", plan->num_heads);
}

static int read_plan(const json_t *root, tower_plan_t *out, inferd_error_t *error) {
  const json_t *vision = json_get(root, "vision_config");
  const json_t *type = json_get(vision, "model_type");
  if (type == NULL) type = json_get(root, "model_type"); /* of both the name without _vision */
  config_reader_t reader = {.file = "config.json", .root = vision, .error = error};
  for (size_t i = 0; vision != NULL && i < ARRAY_LEN(families); i++) {
    if (!is_type(type, families[i]->model_type)) continue;
    out->family = families[i];
    out->family->read(&reader, out);
    check_plan(&reader, out);
    return reader.code;
  }
  return 0;
}

int tower_plan_read(const char *dir, tower_plan_t *out, inferd_error_t *error) {
  model_file_t file;
  *out = (tower_plan_t){0};
  int code = model_file_read(dir, "config.json", CONFIG_BYTES_MAX, &config_limits, &file, error);
  if (code != 0 || file.doc == NULL) return code;
  code = read_plan(json_root(file.doc), out, error);
  model_file_free(&file);
  return code;
}

int32_t tower_num_rows(const tower_plan_t *plan, tower_grid_t grid) {
  return grid.height / plan->merge * (grid.width / plan->merge);
}
