/* load.c: makes a model from a blueprint: every tensor onto the device, in the order of use.
 *
 * Engine thread, once at start. Never computes; the forward is in model.c.
 */
#include "engine/model/internal.h"
#include "engine/model/rope.h"
#include "engine/model/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Sticky: after the first error nothing more is loaded. */
typedef struct load {
  weight_loader_t loader;
  int status;
  error_t *error;
} load_t;

static weight_t *matrix(load_t *load, int32_t layer, int num_roles, const tensor_role_t *roles) {
  weight_t *weight = NULL;
  if (load->status == 0) {
    load->status =
        weight_loader_matrix(&load->loader, roles, num_roles, layer, &weight, load->error);
  }
  return weight;
}

static vector_t *vector(load_t *load, int32_t layer, bool bias, int num_roles,
                        const tensor_role_t *roles) {
  vector_t *made = NULL;
  if (load->status == 0) {
    load->status =
        weight_loader_vector(&load->loader, roles, num_roles, layer, bias, &made, load->error);
  }
  return made;
}

static norm_t norm(load_t *load, const blueprint_t *bp, int32_t layer, tensor_role_t role) {
  norm_t made = {.kind = bp->norm, .width = bp->hidden_size, .eps = bp->norm_eps};
  made.weight = vector(load, layer, false, 1, &role);
  if (bp->norm == NORM_LAYER) made.bias = vector(load, layer, true, 1, &role);
  return made;
}

static void load_layer(load_t *load, model_t *model, int32_t i) {
  static const tensor_role_t qkv[3] = {ROLE_Q, ROLE_K, ROLE_V}, fused = ROLE_QKV, o = ROLE_O;
  static const tensor_role_t gate_up[2] = {ROLE_GATE, ROLE_UP}, down = ROLE_DOWN;
  static const tensor_role_t q_norm = ROLE_Q_NORM, k_norm = ROLE_K_NORM;
  const blueprint_t *bp = &model->blueprint;
  layer_t *layer = &model->layers[i];
  bool is_fused = tensors_get(&load->loader.list, ROLE_QKV, i, false) != NULL;
  const tensor_role_t *in = is_fused ? &fused : qkv;
  int num_in = is_fused ? 1 : 3;

  layer->attn_norm = norm(load, bp, i, ROLE_ATTN_NORM);
  layer->qkv = matrix(load, i, num_in, in);
  layer->qkv_bias = vector(load, i, true, num_in, in);
  layer->o = matrix(load, i, 1, &o);
  layer->o_bias = vector(load, i, true, 1, &o);
  layer->mlp_norm = norm(load, bp, i, ROLE_MLP_NORM);
  layer->up = matrix(load, i, 2, gate_up);
  layer->up_bias = vector(load, i, true, 2, gate_up);
  layer->down = matrix(load, i, 1, &down);
  layer->down_bias = vector(load, i, true, 1, &down);
  layer->attention = (attention_t){
      .layer = i,
      .num_heads = bp->num_heads,
      .num_kv_heads = bp->num_kv_heads,
      .head_dim = bp->head_dim,
      .scale = (float)(1.0 / sqrt((double)bp->head_dim)),
      .window = bp->window_layers != NULL && bp->window_layers[i] ? bp->window : 0,
      .norm_eps = bp->norm_eps,
      .rope = bp->learned_positions ? NULL : &model->rope,
      .q_norm = vector(load, i, false, 1, &q_norm),
      .k_norm = vector(load, i, false, 1, &k_norm),
  };
}

static void load_all(load_t *load, model_t *model) {
  static const tensor_role_t embed = ROLE_EMBED, positions = ROLE_POSITIONS, head = ROLE_HEAD;
  static const tensor_role_t project_in = ROLE_PROJECT_IN, project_out = ROLE_PROJECT_OUT;
  const blueprint_t *bp = &model->blueprint;
  model->embed = matrix(load, -1, 1, &embed);
  model->positions = matrix(load, -1, 1, &positions);
  model->project_in = matrix(load, -1, 1, &project_in);
  for (int32_t i = 0; i < bp->num_layers && load->status == 0; i++) load_layer(load, model, i);
  model->final_norm = norm(load, bp, -1, ROLE_FINAL_NORM);
  model->project_out = matrix(load, -1, 1, &project_out);
  model->head = bp->tied ? model->embed : matrix(load, -1, 1, &head);
  if (load->status == 0) load->status = weight_loader_finish(&load->loader, load->error);
}

static int make_rope(model_t *model, int32_t max_model_len, error_t *error) {
  const rope_config_t *config = &model->blueprint.rope;
  if (model->blueprint.learned_positions) return 0;
  size_t half = (size_t)config->dims / 2;
  double *exact = calloc(half, sizeof(double)), scale;
  model->inv_freq = calloc(half, sizeof(float));
  if (exact == NULL || model->inv_freq == NULL) {
    free(exact);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for rotary frequencies");
  }
  rope_frequencies(config, max_model_len, exact, &scale);
  for (size_t i = 0; i < half; i++) model->inv_freq[i] = (float)exact[i];
  free(exact);
  model->rope = (rope_t){.dims = config->dims, .inv_freq = model->inv_freq, .scale = (float)scale};
  return 0;
}

static model_t *make_model(const ops_t *ops, device_t *device, const blueprint_t *blueprint) {
  model_t *model = calloc(1, sizeof(*model));
  if (model == NULL) return NULL;
  size_t count = (size_t)blueprint->num_layers;
  model->ops = ops;
  model->device = device;
  model->blueprint = *blueprint;
  model->layers = calloc(count, sizeof(layer_t));
  model->blueprint.window_layers = calloc(count, 1);
  if (model->layers == NULL || model->blueprint.window_layers == NULL) {
    model_free(model);
    return NULL;
  }
  if (blueprint->window_layers != NULL) {
    memcpy(model->blueprint.window_layers, blueprint->window_layers, count);
  }
  return model;
}

int model_load(const ops_t *ops, device_t *device, const blueprint_t *blueprint,
               int32_t max_model_len, const model_options_t *options, model_t **out,
               error_t *error) {
  if (max_model_len < 1 || max_model_len > blueprint->max_model_len) {
    return error_set(error, ERR_CONFIGURATION, "max_model_len",
                     "max_model_len is %d, the model allows 1..%d", max_model_len,
                     blueprint->max_model_len);
  }
  model_t *model = make_model(ops, device, blueprint);
  if (model == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the model");
  load_t load = {.error = error};
  load.status = make_rope(model, max_model_len, error);
  if (load.status == 0) {
    load.status = weight_loader_open(&load.loader, ops, device, blueprint, options, error);
  }
  if (load.status == 0) {
    model->blueprint.dtype = load.loader.dtype;
    load_all(&load, model);
    model->hash = load.loader.hash;
    weight_loader_close(&load.loader);
  }
  if (load.status != 0) {
    model_free(model);
    return load.status;
  }
  *out = model;
  return 0;
}

void model_free(model_t *model) {
  if (model == NULL) return;
  free(model->layers);
  free(model->inv_freq);
  blueprint_free(&model->blueprint);
  free(model);
}

uint64_t model_hash(const model_t *model) {
  return model->hash;
}

size_t model_weight_bytes(const blueprint_t *blueprint) {
  tensor_list_t list;
  size_t bytes = 0;
  if (tensors_expect(blueprint, &list, NULL) != 0) return SIZE_MAX;
  for (int32_t i = 0; i < list.count; i++) {
    const expected_tensor_t *tensor = &list.tensors[i];
    size_t element = tensor->cols == 0 ? sizeof(float) : dtype_size(blueprint->dtype);
    bytes += (size_t)tensor_elements(tensor) * element;
  }
  tensors_free(&list);
  return bytes;
}
