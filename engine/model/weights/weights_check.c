/* weights_check.c: checks that a checkpoint has exactly the tensors that its config.json implies.
 *
 * It checks names, shapes and types. A checkpoint may also have scales of a KV cache, which
 * config.json need not announce: of these the values are checked too. Engine thread, while a model
 * loads.
 */
#include "engine/model/weights/weights.h"

#include "engine/base/util.h"
#include "engine/model/sizes.h"
#include "engine/model/weights/convert.h"

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

/* GGUF files have blocks in matrices; vectors are plain. */
static int check_gguf_type(const stored_tensor_t *tensor, bool is_vector, inferd_error_t *error) {
  if (tensor->quant != NULL && !is_vector) return 0;
  for (int i = DTYPE_F32; i <= DTYPE_BF16; i++) {
    if (strcmp(tensor->type, type_names[i]) == 0) return 0;
  }
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "tensor %s: type %s is not supported; supported: F32, F16, BF16%s", tensor->name,
                   tensor->type,
                   is_vector ? ""
                             : ", Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, "
                               "IQ4_NL, IQ4_XS, MXFP4, NVFP4. Take the same model as Q4_K_M");
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

/* Dimensions without those of 1. Returns their number. */
static int squeeze(const int64_t *shape, int rank, int64_t *out) {
  int count = 0;
  for (int i = 0; i < rank; i++) {
    if (shape[i] != 1) out[count++] = shape[i];
  }
  return count;
}

static int check_shape(const stored_tensor_t *stored, const expected_tensor_t *tensor, bool is_gguf,
                       inferd_error_t *error) {
  int64_t there[TENSOR_RANK_MAX], needed[EXPECTED_RANK_MAX];
  int rank = stored->rank, needed_rank = tensor->rank;
  memcpy(there, stored->shape, (size_t)rank * sizeof(int64_t));
  memcpy(needed, tensor->shape, sizeof(needed));
  if (is_gguf) { /* converters drop dimensions of 1, so these do not count */
    rank = squeeze(stored->shape, rank, there);
    needed_rank = squeeze(tensor->shape, needed_rank, needed);
  }
  if (rank == needed_rank && memcmp(there, needed, (size_t)rank * sizeof(int64_t)) == 0) return 0;
  const char *rows = tensor_dim_name(tensor->row_dim), *cols = tensor_dim_name(tensor->col_dim);
  bool transposed = tensor->form == FORM_TRANSPOSED || tensor->form == FORM_STACK_TRANSPOSED;
  char found[160], wanted[96];
  return error_set(
      error, ERR_MODEL_MALFORMED, NULL, "tensor %s: shape %s, expected %s from %s%s%s%s",
      stored->name, weights_shape_text(found, sizeof(found), stored->shape, stored->rank),
      weights_shape_text(wanted, sizeof(wanted), tensor->shape, tensor->rank),
      tensor->stack > 1 ? "the number of experts, " : "", transposed ? cols : rows,
      tensor->cols > 0 ? ", " : "", tensor->cols > 0 ? (transposed ? rows : cols) : "");
}

/* Returns the prefix with which the embedding is stored; the first prefix if there is no embedding.
 */
static const char *find_prefix(const weight_files_t *files, const tensor_list_t *list,
                               const layout_t *layout, bool gguf) {
  const expected_tensor_t *embed = tensors_get(list, ROLE_EMBED, 0, false);
  if (embed == NULL) embed = tensors_get(list, ROLE_FINAL_NORM, 0, false); /* of a head */
  const char *const *prefixes = layout_prefixes(layout, gguf);
  for (int i = 0; i < LAYOUT_PREFIXES_MAX && prefixes[i] != NULL; i++) {
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%s%s", prefixes[i], embed->name);
    if (weight_files_find(files, name) != NULL) return prefixes[i];
  }
  return prefixes[0];
}

/* The codes of a quantised layer whose weight is missing, or NULL. */
static const stored_tensor_t *find_quantised(const weight_files_t *files, const char *name) {
  static const char *const parts[] = {".qweight", ".weight_packed"};
  const char *suffix = strrchr(name, '.');
  char full[TENSOR_NAME_MAX];
  for (size_t i = 0; i < ARRAY_LEN(parts) && suffix != NULL; i++) {
    snprintf(full, sizeof(full), "%.*s%s", (int)(suffix - name), name, parts[i]);
    const stored_tensor_t *found = weight_files_find(files, full);
    if (found != NULL) return found;
  }
  return NULL;
}

static int missing(const weight_loader_t *loader, const expected_tensor_t *tensor, const char *name,
                   inferd_error_t *error) {
  const stored_tensor_t *codes = find_quantised(loader->files, name);
  if (codes != NULL) {
    return error_set(error, ERR_MODEL_MALFORMED, "quantization_config",
                     "tensor %s is missing; %s is there, but config.json has no "
                     "quantization_config",
                     name, codes->name);
  }
  if (tensor->role == ROLE_HEAD) {
    return error_set(error, ERR_MODEL_MALFORMED, "tie_word_embeddings",
                     "tie_word_embeddings is false but %s is missing", name);
  }
  if (tensor->layer >= loader->blueprint->num_layers) {
    return error_set(error, ERR_MODEL_MALFORMED, "speculative_method",
                     "tensor %s is missing: speculative_method is mtp, but the files do not have "
                     "the layer that predicts",
                     name);
  }
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "tensor %s is missing", name);
}

/* Places of the head: of a model of its own, and inside a model that sees images. */
static const char *const outer_prefixes[] = {"", "language_model.", "model.", "thinker.", "llm."};

static const stored_tensor_t *find_absolute(const weight_files_t *files, const char *name) {
  for (size_t i = 0; i < ARRAY_LEN(outer_prefixes); i++) {
    char full[TENSOR_NAME_MAX];
    snprintf(full, sizeof(full), "%s%s", outer_prefixes[i], name);
    const stored_tensor_t *found = weight_files_find(files, full);
    if (found != NULL) return found;
  }
  return NULL;
}

/* The name of the head without the prefixes of a wrapper. */
static const char *head_name(const layout_t *layout, bool gguf, char *out, size_t capacity) {
  int i = 0;
  while (i + 1 < layout->num_patterns && layout->patterns[i].role != ROLE_HEAD) i++;
  const char *name = pattern_name(&layout->patterns[i], gguf);
  snprintf(out, capacity, "%s.weight", name[0] == '/' ? name + 1 : name);
  return out;
}

/* Whether a list of what is ignored has the name. */
static bool is_listed(const char *const *names, const char *name) {
  for (int i = 0; i < LAYOUT_IGNORED_MAX && names[i] != NULL; i++) {
    const char *pattern = names[i];
    if (pattern[0] != '$') {
      if (strstr(name, pattern) != NULL) return true;
      continue;
    }
    size_t length = strlen(name), tail = strlen(pattern) - 1;
    if (length >= tail && strcmp(name + length - tail, pattern + 1) == 0) return true;
  }
  return false;
}

static bool ignored(const layout_t *layout, const weight_files_t *files,
                    const blueprint_t *blueprint, const char *name) {
  char head[TENSOR_NAME_MAX];
  const bool gguf = blueprint->gguf, unused = blueprint->tied || blueprint->headless;
  const char *const *names = layout_ignored(layout, gguf);
  if (unused && weight_files_find(files, name) ==
                    find_absolute(files, head_name(layout, gguf, head, sizeof(head))))
    return true;
  if (blueprint->headless && blueprint->gguf && strcmp(name, "output.weight") == 0) return true;
  return is_listed(names, name) || (gguf && is_listed(layout->ignored, name));
}

/* Parts of a checkpoint that text needs not: towers for images and sound, what connects them, and
 * layers that predict further tokens. */
static const char *const towers[] = {"mtp.",
                                     "visual.",
                                     "vision_tower.",
                                     "vision_model.",
                                     "vision_encoder.",
                                     "vision_language_adapter.",
                                     "multi_modal_projector.",
                                     "patch_merger.",
                                     "merger.",
                                     "connector.",
                                     "mm_projector.",
                                     "image_newline",
                                     "audio_tower.",
                                     "embed_vision.",
                                     "vision_embedder.",
                                     "embed_audio.",
                                     "embed_tokens_extend.",
                                     "vision_embed_tokens.",
                                     "vision_projection.",
                                     "visual_tokenizer.",
                                     "visual_embeddings_table.",
                                     "vte.",
                                     "mlp1.",
                                     "mlp_AR.",
                                     "projector.",
                                     "aligner.",
                                     "vqmodel.",
                                     "generation_",
                                     "image_tower.",
                                     "video_tower.",
                                     "audio_projector.",
                                     "talker.",
                                     "token2wav.",
                                     "code2wav."};
enum { TOWER_COUNT = ARRAY_LEN(towers), SKIP_SHARED = TOWER_COUNT + 1, SKIP_KINDS };

/* Index in `towers` of the part that a tensor belongs to; TOWER_COUNT for a layer behind the last
 * one, SKIP_SHARED for K and V of a layer that reads those of another; -1 for none of these. */
static int find_tower(const char *name, const char *prefix, const blueprint_t *bp) {
  size_t length = strlen(prefix);
  const char *layers = bp->gguf ? "blk." : "layers.";
  const size_t before = length + strlen(layers);
  if (strncmp(name, prefix, length) == 0 && strncmp(name + length, layers, before - length) == 0) {
    char *end;
    long layer = strtol(name + before, &end, 10);
    if (*end == '.' && layer >= bp->num_layers) return TOWER_COUNT;
    bool shared = *end == '.' && layer >= 0 && layer_reads_only(bp, (int32_t)layer);
    if (shared && strncmp(end, ".self_attn.k_", 13) == 0) return SKIP_SHARED;
    if (shared && strncmp(end, ".self_attn.v_", 13) == 0) return SKIP_SHARED;
    if (shared && bp->gguf && strncmp(end, ".attn_k", 7) == 0) return SKIP_SHARED;
    if (shared && bp->gguf && strncmp(end, ".attn_v", 7) == 0) return SKIP_SHARED;
  }
  static const char *const outside[] = {"thinker.", "model."};
  for (size_t i = 0; i < ARRAY_LEN(outside); i++) {
    if (strncmp(name, outside[i], strlen(outside[i])) == 0) name += strlen(outside[i]);
  }
  for (int i = 0; i < TOWER_COUNT; i++) {
    if (strncmp(name, towers[i], strlen(towers[i])) == 0) return i;
  }
  return -1;
}

/* Whether the tower of the model reads this part (engine/model/towers). */
static bool is_of_tower(const model_options_t *options, const char *part) {
  static const char *const parts[] = {"visual.", "vision_tower.", "vision_model.", "connector."};
  if (strcmp(part, "multi_modal_projector.") == 0) return options->sees || options->hears;
  if (strcmp(part, "audio_tower.") == 0) return options->hears;
  for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
    if (strcmp(part, parts[i]) == 0) return options->sees;
  }
  return false;
}

/* Marks the tensors of such parts as taken, and names the parts in one line of the log. */
static void skip_towers(weight_loader_t *loader, const char *prefix, const blueprint_t *bp,
                        uint8_t *taken) {
  size_t tensors[SKIP_KINDS] = {0}, bytes[SKIP_KINDS] = {0}, used = 0;
  char line[256] = "", kind[64];
  for (size_t i = 0; i < weight_files_count(loader->files); i++) {
    const stored_tensor_t *tensor = weight_files_at(loader->files, i);
    int tower = taken[i] ? -1 : find_tower(tensor->name, prefix, bp);
    if (tower < 0) continue;
    taken[i] = 1;
    tensors[tower]++;
    bytes[tower] += tensor->bytes;
  }
  for (int i = 0; i < SKIP_KINDS && used < sizeof(line); i++) {
    const bool is_seen = i < TOWER_COUNT && is_of_tower(loader->options, towers[i]);
    if (tensors[i] == 0 || is_seen) continue;
    if (i < TOWER_COUNT)
      snprintf(kind, sizeof(kind), "%s*", towers[i]);
    else if (i == SKIP_SHARED)
      snprintf(kind, sizeof(kind), "k and v of layers that share them");
    else
      snprintf(kind, sizeof(kind), "layers from %d", bp->num_layers);
    int n = snprintf(line + used, sizeof(line) - used, "%s %s (%zu tensors, %.1f MiB)",
                     used > 0 ? "," : "skipped  ", kind, tensors[i], (double)bytes[i] / 1048576.0);
    used += n > 0 ? (size_t)n : 0;
  }
  if (used > 0 && loader->options->log != NULL)
    loader->options->log(loader->options->log_context, line);
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
    if (taken[i] || ignored(layout, files, blueprint, tensor->name)) continue;
    if (packed_is_harmless(&blueprint->scheme, tensor)) continue;
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

/* Looks for a quantised form of a matrix; its codes become the stored tensor. */
static int match_packed(const weight_files_t *files, const scheme_t *scheme,
                        const expected_tensor_t *tensor, const char *name, uint8_t *taken,
                        packed_t *out, inferd_error_t *error) {
  static const char suffix[] = ".weight";
  char stem[TENSOR_NAME_MAX];
  size_t length = strlen(name), tail = sizeof(suffix) - 1;
  bool is_layer = tensor->form == FORM_PLAIN || tensor->form == FORM_EACH;
  if (!is_layer || tensor->bias || tensor->cols == 0 || length <= tail) return 0;
  if (strcmp(name + length - tail, suffix) != 0) return 0;
  snprintf(stem, sizeof(stem), "%.*s", (int)(length - tail), name);
  return packed_find(files, scheme, stem, tensor->shape[0], tensor->cols, taken, out, error);
}

/* Finds what GGUF files keep beside a tensor of NVFP4 blocks: NAME.scale, a factor of each matrix,
 * and NAME.input_scale, which is not used: activations keep their own scales. */
static int match_factors(const weight_files_t *files, const stored_tensor_t *blocks,
                         const expected_tensor_t *tensor, uint8_t *taken,
                         const stored_tensor_t **out, inferd_error_t *error) {
  static const char *const parts[] = {"scale", "input_scale"};
  const size_t stem = strlen(blocks->name) - strlen("weight");
  for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%.*s%s", (int)stem, blocks->name, parts[i]);
    const stored_tensor_t *found = weight_files_find(files, name);
    if (found == NULL) continue;
    taken[found - weight_files_at(files, 0)] = 1;
    if (i > 0) continue;
    const float *values = (const float *)(const void *)found->data;
    bool good = strcmp(found->type, "F32") == 0 && found->rank <= 1 &&
                found->bytes == (size_t)tensor->stack * sizeof(float) &&
                convert_finite(values, DTYPE_F32, tensor->stack);
    if (!good)
      return error_set(error, ERR_MODEL_MALFORMED, NULL,
                       "tensor %s: is not %lld finite numbers of F32, factors of %s", name,
                       (long long)tensor->stack, blocks->name);
    *out = found;
  }
  return 0;
}

/* The tensor under the other name of its last part, or NULL. */
static const stored_tensor_t *find_other(const weight_files_t *files,
                                         const expected_tensor_t *tensor, const char *name) {
  const char *suffix = strrchr(name, '.'), *part = suffix;
  char other[TENSOR_NAME_MAX];
  while (part > name && part[-1] != '.') part--;
  snprintf(other, sizeof(other), "%.*s%s%s", (int)(part - name), name, tensor->other, suffix);
  return weight_files_find(files, other);
}

/* Finds every expected tensor and marks it as taken. */
static int match(weight_loader_t *loader, const scheme_t *scheme, const char *prefix,
                 uint8_t *taken, inferd_error_t *error) {
  const weight_files_t *files = loader->files;
  for (int32_t i = 0; i < loader->list.count; i++) {
    const expected_tensor_t *tensor = &loader->list.tensors[i];
    char name[TENSOR_NAME_MAX];
    snprintf(name, sizeof(name), "%s%s", tensor->absolute ? "" : prefix, tensor->name);
    if (loader->packed != NULL) {
      packed_t *packed = &loader->packed[i];
      int code = match_packed(files, scheme, tensor, name, taken, packed, error);
      if (code != 0) return code;
      loader->stored[i] = packed->codes;
      if (packed->packing != PACKING_NONE) continue;
    }
    const stored_tensor_t *stored =
        tensor->absolute ? find_absolute(files, name) : weight_files_find(files, name);
    if (stored == NULL && tensor->other != NULL) stored = find_other(files, tensor, name);
    loader->stored[i] = stored;
    if (stored == NULL) return missing(loader, tensor, name, error);
    int code = loader->is_gguf ? check_gguf_type(stored, tensor->cols == 0, error)
                               : weights_check_type(stored, tensor->form, error);
    if (code == 0) code = check_shape(stored, tensor, loader->is_gguf, error);
    if (code == 0 && stored->quant != NULL && stored->quant->format == WEIGHT_NVFP4)
      code = match_factors(files, stored, tensor, taken, &loader->factors[i], error);
    if (code != 0) return code;
    taken[stored - weight_files_at(files, 0)] = 1;
  }
  return 0;
}

/* Refuses plain weights under a configuration that says that all layers are quantised: transformers
 * would look for quantised layers, find none and draw random ones. */
static int check_any_packed(const weight_loader_t *loader, const scheme_t *scheme,
                            inferd_error_t *error) {
  if (!scheme->expected) return 0;
  for (int32_t i = 0; i < loader->list.count; i++) {
    if (loader->packed[i].packing != PACKING_NONE) return 0;
  }
  return error_set(
      error, ERR_MODEL_MALFORMED, "quantization_config",
      "config.json: \"quantization_config\" says %s, but no layer is stored quantised. "
      "Without it the weights are served as they are",
      scheme->says);
}

int weights_check(weight_loader_t *loader, const layout_t *layout, const blueprint_t *blueprint,
                  inferd_error_t *error) {
  const weight_files_t *files = loader->files;
  const tensor_list_t *list = &loader->list;
  uint8_t *taken = calloc(weight_files_count(files) + 1, 1);
  if (taken == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for tensor names");
  const char *prefix = find_prefix(files, list, layout, blueprint->gguf);
  if (blueprint->scheme.kind != SCHEME_PLAIN) {
    loader->packed = calloc((size_t)list->count, sizeof(packed_t));
    if (loader->packed == NULL) {
      free(taken);
      return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the list of quantised layers");
    }
  }
  int code = match(loader, &blueprint->scheme, prefix, taken, error);
  if (code == 0) code = check_any_packed(loader, &blueprint->scheme, error);
  if (code == 0) code = packed_check_plain(files, &blueprint->scheme, taken, error);
  if (code == 0) code = kv_scales_read(files, list, prefix, taken, &loader->kv_scales, error);
  if (code == 0) skip_towers(loader, prefix, blueprint, taken);
  if (code == 0) code = refuse_unexpected(files, layout, blueprint, taken, error);
  if (code == 0 && loader->options->log != NULL && weight_files_note(files)[0] != '\0') {
    char line[704];
    snprintf(line, sizeof line, "warning   %s", weight_files_note(files));
    loader->options->log(loader->options->log_context, line);
  }
  free(taken);
  return code;
}

/* Two rows in one type: bits where the types are the same, else numbers. */
static bool same_row(const stored_tensor_t *left, const stored_tensor_t *right, int64_t row,
                     float *scratch) {
  const stored_tensor_t *const tensors[2] = {left, right};
  const int64_t cols = left->shape[1];
  const uint8_t *rows[2];
  for (int i = 0; i < 2; i++) {
    size_t width = (size_t)cols * dtype_size(weights_stored_dtype(tensors[i]));
    rows[i] = tensors[i]->data + (size_t)row * width;
    if (strcmp(left->type, right->type) == 0) continue;
    convert_row(scratch + i * cols, DTYPE_F32, rows[i], weights_stored_dtype(tensors[i]), cols);
    rows[i] = (const uint8_t *)(scratch + i * cols);
  }
  size_t size =
      strcmp(left->type, right->type) == 0 ? dtype_size(weights_stored_dtype(left)) : sizeof(float);
  return memcmp(rows[0], rows[1], (size_t)cols * size) == 0;
}

static bool is_matrix(const stored_tensor_t *tensor) {
  return tensor != NULL && tensor->rank == 2 && weights_check_type(tensor, FORM_PLAIN, NULL) == 0;
}

/* A few rows are enough to see a difference; only equal matrices are read whole. */
static bool differs(const stored_tensor_t *embed, const stored_tensor_t *head) {
  enum { SAMPLES = 16 };
  if (!is_matrix(embed) || !is_matrix(head)) return false;
  if (embed->shape[0] != head->shape[0] || embed->shape[1] != head->shape[1]) return false;
  const int64_t rows = embed->shape[0], step = rows / SAMPLES + 1;
  float *scratch = calloc(2 * (size_t)embed->shape[1], sizeof(float));
  bool same = scratch != NULL;
  for (int64_t row = 0; same && row < rows; row += step) same = same_row(embed, head, row, scratch);
  for (int64_t row = 0; same && row < rows; row++) same = same_row(embed, head, row, scratch);
  bool found = scratch != NULL && !same;
  free(scratch);
  return found;
}

bool weights_head_differs(const char *dir, const layout_t *layout, const blueprint_t *blueprint) {
  weight_files_t *files = NULL;
  tensor_list_t list;
  if (weight_files_open(dir, &files, NULL) != 0) return false;
  bool found = false;
  if (tensors_expect(blueprint, &list, NULL) == 0) {
    char name[TENSOR_NAME_MAX], head[TENSOR_NAME_MAX];
    const expected_tensor_t *embed = tensors_get(&list, ROLE_EMBED, 0, false);
    snprintf(name, sizeof(name), "%s%s",
             embed->absolute ? "" : find_prefix(files, &list, layout, blueprint->gguf),
             embed->name);
    found = differs(weight_files_find(files, name),
                    find_absolute(files, head_name(layout, blueprint->gguf, head, sizeof(head))));
    tensors_free(&list);
  }
  weight_files_close(files);
  return found;
}
