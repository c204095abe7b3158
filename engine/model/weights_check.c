/* weights_check.c: checks that a checkpoint has exactly the tensors that its config.json implies.
 *
 * It checks names, shapes and types. A checkpoint may also have scales of a KV cache, which
 * config.json need not announce: of these the values are checked too. Engine thread, while a model
 * loads.
 */
#include "engine/model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const type_names[] = {
    [DTYPE_F32] = "F32", [DTYPE_F16] = "F16", [DTYPE_BF16] = "BF16"};

dtype_t weights_stored_dtype(const stored_tensor_t *tensor) {
  for (int i = DTYPE_F32; i <= DTYPE_BF16; i++) {
    if (strcmp(tensor->type, type_names[i]) == 0) return (dtype_t)i;
  }
  return DTYPE_F32; /* not reached: weights_check_type comes first */
}

int weights_check_type(const stored_tensor_t *tensor, form_t form, inferd_error_t *error) {
  bool bytes = form == FORM_STACK_BLOCKS || form == FORM_STACK_SCALES;
  if (bytes && strcmp(tensor->type, "U8") == 0) return 0;
  for (int i = DTYPE_F32; !bytes && i <= DTYPE_BF16; i++) {
    if (strcmp(tensor->type, type_names[i]) == 0) return 0;
  }
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "tensor %s: dtype %s is not supported; supported: %s", tensor->name,
                   tensor->type, bytes ? "U8 (MXFP4)" : "F32, F16, BF16");
}

const char *weights_shape_text(char *out, size_t capacity, const int64_t *shape, int rank) {
  size_t used = (size_t)snprintf(out, capacity, "[");
  for (int i = 0; i < rank && used < capacity; i++) {
    used +=
        (size_t)snprintf(out + used, capacity - used, "%s%lld", i ? ", " : "", (long long)shape[i]);
  }
  if (used < capacity) snprintf(out + used, capacity - used, "]");
  return out;
}

static int check_shape(const stored_tensor_t *stored, const expected_tensor_t *tensor,
                       inferd_error_t *error) {
  bool same = stored->rank == tensor->rank;
  for (int i = 0; same && i < tensor->rank; i++) same = stored->shape[i] == tensor->shape[i];
  if (same) return 0;
  const char *rows = tensor_dim_name(tensor->row_dim), *cols = tensor_dim_name(tensor->col_dim);
  bool turned = tensor->form == FORM_TURNED || tensor->form == FORM_STACK_TURNED;
  char found[160], wanted[96];
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "tensor %s: shape %s, expected %s from %s%s%s%s", stored->name,
                   weights_shape_text(found, sizeof(found), stored->shape, stored->rank),
                   weights_shape_text(wanted, sizeof(wanted), tensor->shape, tensor->rank),
                   tensor->stack > 1 ? "the number of experts, " : "", turned ? cols : rows,
                   tensor->cols > 0 ? ", " : "", tensor->cols > 0 ? (turned ? rows : cols) : "");
}

/* Returns the prefix with which the embedding is stored; the first prefix if there is no embedding.
 */
static const char *find_prefix(const weight_files_t *files, const tensor_list_t *list,
                               const layout_t *layout) {
  const expected_tensor_t *embed = tensors_get(list, ROLE_EMBED, 0, false);
  for (int i = 0; i < 4 && layout->prefixes[i] != NULL; i++) {
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%s%s", layout->prefixes[i], embed->name);
    if (weight_files_find(files, name) != NULL) return layout->prefixes[i];
  }
  return layout->prefixes[0];
}

static int missing(const expected_tensor_t *tensor, const char *name, inferd_error_t *error) {
  if (tensor->role == ROLE_HEAD) {
    return error_set(error, ERR_MODEL_MALFORMED, "tie_word_embeddings",
                     "tie_word_embeddings is false but %s is missing", name);
  }
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "tensor %s is missing", name);
}

static bool ignored(const layout_t *layout, const blueprint_t *blueprint, const char *name) {
  if (blueprint->tied &&
      (strcmp(name, "lm_head.weight") == 0 || strcmp(name, "language_model.lm_head.weight") == 0))
    return true;
  for (int i = 0; i < 6 && layout->ignored[i] != NULL; i++) {
    const char *pattern = layout->ignored[i];
    if (pattern[0] != '$') {
      if (strstr(name, pattern) != NULL) return true;
      continue;
    }
    size_t length = strlen(name), tail = strlen(pattern) - 1;
    if (length >= tail && strcmp(name + length - tail, pattern + 1) == 0) return true;
  }
  return false;
}

/* Refuses tensors that the model does not expect: the message has the first five names and the
 * number. `taken` has a byte per stored tensor. */
static int refuse_unexpected(const weight_files_t *files, const layout_t *layout,
                             const blueprint_t *blueprint, const uint8_t *taken,
                             inferd_error_t *error) {
  char list[320] = "";
  size_t unexpected = 0, used = 0;
  for (size_t i = 0; i < weight_files_count(files); i++) {
    const stored_tensor_t *tensor = weight_files_at(files, i);
    if (taken[i] || ignored(layout, blueprint, tensor->name)) continue;
    char name[80];
    error_quote(name, sizeof(name), tensor->name, strlen(tensor->name));
    if (unexpected++ < 5 && used < sizeof(list)) {
      int n = snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "", name);
      used += n > 0 ? (size_t)n : 0;
    }
  }
  if (unexpected == 0) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "%zu unexpected tensor%s, first: %s",
                   unexpected, unexpected == 1 ? "" : "s", list);
}

/* Finds every expected tensor and marks it as taken. */
static int match(const weight_files_t *files, const tensor_list_t *list, const char *prefix,
                 const stored_tensor_t **stored, uint8_t *taken, inferd_error_t *error) {
  for (int32_t i = 0; i < list->count; i++) {
    const expected_tensor_t *tensor = &list->tensors[i];
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%s%s", tensor->absolute ? "" : prefix, tensor->name);
    stored[i] = weight_files_find(files, name);
    if (stored[i] == NULL) return missing(tensor, name, error);
    int code = weights_check_type(stored[i], tensor->form, error);
    if (code == 0) code = check_shape(stored[i], tensor, error);
    if (code != 0) return code;
    taken[stored[i] - weight_files_at(files, 0)] = 1;
  }
  return 0;
}

int weights_check(weight_loader_t *loader, const layout_t *layout, const blueprint_t *blueprint,
                  inferd_error_t *error) {
  const weight_files_t *files = loader->files;
  const tensor_list_t *list = &loader->list;
  uint8_t *taken = calloc(weight_files_count(files) + 1, 1);
  if (taken == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for tensor names");
  const char *prefix = find_prefix(files, list, layout);
  int code = match(files, list, prefix, loader->stored, taken, error);
  if (code == 0) code = kv_scales_read(files, list, prefix, taken, &loader->kv_scales, error);
  if (code == 0) code = refuse_unexpected(files, layout, blueprint, taken, error);
  free(taken);
  return code;
}
