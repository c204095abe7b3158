/* kv_scales.c: the scales of an fp8 KV cache, where a checkpoint carries them.
 *
 * Calibration leaves two numbers a layer, and its tools name them in several ways: llm-compressor
 * and compressed-tensors k_scale in the attention module, ModelOpt in the projections, Quark and
 * older files output_scale, the oldest one kv_scale for both. Engine thread, while a model loads.
 */
#include "engine/base/check.h"
#include "engine/model/weights/convert.h"
#include "engine/model/weights/weights.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPELLINGS = 6 };

static const char *const spellings[2][SPELLINGS] = {
    {"k_scale", "attn.k_scale", "k_proj.k_scale", "qkv_proj.k_scale", "k_proj.output_scale",
     "kv_scale"},
    {"v_scale", "attn.v_scale", "v_proj.v_scale", "qkv_proj.v_scale", "v_proj.output_scale",
     "kv_scale"},
};

/* Bytes of a layer's attention module in the name of its output projection, with the last dot:
 * those of "layers.7.self_attn." in "layers.7.self_attn.o_proj.weight". */
static int module_length(const char *name) {
  const char *end = strrchr(name, '.');
  CHECK(end != NULL);
  while (end > name && end[-1] != '.') end--;
  return (int)(end - name);
}

/* The scale under the first spelling that the files have, or NULL. */
static const stored_tensor_t *find_scale(const weight_files_t *files, const char *prefix,
                                         const char *layer_name, int value) {
  for (int i = 0; i < SPELLINGS; i++) {
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%s%.*s%s", prefix, module_length(layer_name), layer_name,
             spellings[value][i]);
    const stored_tensor_t *found = weight_files_find(files, name);
    if (found != NULL) return found;
  }
  return NULL;
}

static int read_scale(const stored_tensor_t *tensor, float *out, inferd_error_t *error) {
  int code = weights_check_type(tensor, FORM_PLAIN, error);
  if (code != 0) return code;
  if (tensor->rank > 1 || (tensor->rank == 1 && tensor->shape[0] != 1)) {
    char shape[160];
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "tensor %s: shape %s, expected [] or [1]: one scale for all heads",
                     tensor->name,
                     weights_shape_text(shape, sizeof(shape), tensor->shape, tensor->rank));
  }
  convert_row(out, DTYPE_F32, tensor->data, weights_stored_dtype(tensor), 1);
  if (isfinite(*out) && *out > 0) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "tensor %s: is %g; the scale of a KV cache is finite and above 0", tensor->name,
                   (double)*out);
}

/* Lists the names of the output projections of the layers with attention. Returns their number. */
static int32_t list_layers(const tensor_list_t *list, const char **names) {
  int32_t count = 0;
  for (int32_t i = 0; i < list->num_layers; i++) {
    const expected_tensor_t *tensor = tensors_get(list, ROLE_O, i, false);
    if (tensor != NULL) names[count++] = tensor->name;
  }
  return count;
}

int kv_scales_read(const weight_files_t *files, const tensor_list_t *list, const char *prefix,
                   uint8_t *taken, float **out, inferd_error_t *error) {
  int32_t found = 0, missing = -1;
  int code = 0;
  float *scales = calloc(2 * (size_t)list->num_layers, sizeof(float));
  const char **names = calloc((size_t)list->num_layers, sizeof(*names));
  *out = NULL;
  if (scales == NULL || names == NULL) {
    free(scales);
    free(names);
    return error_set(error, ERR_NO_MEMORY, NULL, "no memory for scales");
  }
  const int32_t total = 2 * list_layers(list, names);
  for (int32_t i = 0; i < total && code == 0; i++) {
    const stored_tensor_t *tensor = find_scale(files, prefix, names[i / 2], i % 2);
    if (tensor == NULL) {
      if (missing < 0) missing = i;
      continue;
    }
    found++;
    taken[tensor - weight_files_at(files, 0)] = 1;
    code = read_scale(tensor, &scales[i], error);
  }
  if (code == 0 && found > 0 && missing >= 0) {
    const char *layer_name = names[missing / 2];
    code =
        error_set(error, ERR_MODEL_MALFORMED, NULL,
                  "tensor %s%.*s%s is missing; %d of %d scales of the KV cache are there", prefix,
                  module_length(layer_name), layer_name, spellings[missing % 2][0], found, total);
  }
  free(names);
  if (code == 0 && found == total) {
    *out = scales;
    return 0;
  }
  free(scales);
  return code;
}
