/* packed_find.c: finds the tensors of a quantised layer in the files and checks them.
 *
 * The shapes of the tensors decide bits, group size and symmetry. After this, packed_row can rely
 * on every size. Engine thread, while a model loads.
 */
#include "engine/model/weights/packed.h"

#include "engine/base/util.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WORD_BITS = 32, FP8_BLOCK = 128, NVFP4_GROUP = 16 };

/* The search for the tensors of one layer: its input, its output and its first error. After an
 * error the functions below do nothing. */
typedef struct finder {
  const weight_files_t *files;
  const scheme_t *scheme;
  const char *stem;
  uint8_t *taken;
  packed_t *out;
  int code;
  inferd_error_t *error;
} finder_t;

/* Returns the tensor STEM.NAME and marks it as taken, or NULL. */
static const stored_tensor_t *find(finder_t *finder, const char *name) {
  char full[TENSOR_NAME_MAX];
  snprintf(full, sizeof(full), "%s.%s", finder->stem, name);
  const stored_tensor_t *tensor = weight_files_find(finder->files, full);
  if (tensor != NULL) finder->taken[tensor - weight_files_at(finder->files, 0)] = 1;
  return tensor;
}

/* Records what is wrong with a tensor. */
__attribute__((format(printf, 3, 4))) static void
fail(finder_t *finder, const stored_tensor_t *tensor, const char *format, ...) {
  char path[PATH_MAX], what[256];
  va_list arguments;
  if (finder->code != 0) return;
  va_start(arguments, format);
  vsnprintf(what, sizeof(what), format, arguments);
  va_end(arguments);
  finder->code =
      error_set(finder->error, ERR_MODEL_MALFORMED, NULL, "%s: tensor %s: %s",
                weight_files_path(finder->files, tensor, path, sizeof(path)), tensor->name, what);
}

/* Records that a tensor does not fit the layer. */
static void refuse(finder_t *finder, const stored_tensor_t *tensor, const char *expected) {
  char shape[160];
  size_t used = 0;
  shape[0] = '\0';
  for (int i = 0; i < tensor->rank && used < sizeof(shape); i++) {
    used += (size_t)snprintf(shape + used, sizeof(shape) - used, "%s%lld", i ? ", " : "",
                             (long long)tensor->shape[i]);
  }
  fail(finder, tensor, "%s [%s] does not fit a layer of %lld rows and %lld columns; expected: %s",
       tensor->type, shape, (long long)finder->out->rows, (long long)finder->out->cols, expected);
}

/* Returns the tensor STEM.NAME as `find` does. If it is missing, records an error: the layer would
 * be incomplete. */
static const stored_tensor_t *need(finder_t *finder, const char *name) {
  const stored_tensor_t *tensor = find(finder, name);
  if (tensor == NULL && finder->code == 0) {
    finder->code =
        error_set(finder->error, ERR_MODEL_MALFORMED, NULL,
                  "tensor %s.%s is missing; the layer is stored quantised", finder->stem, name);
  }
  return tensor;
}

static bool is_type(const stored_tensor_t *tensor, const char *type) {
  return strcmp(tensor->type, type) == 0;
}

static bool is_shape(const stored_tensor_t *tensor, int64_t rows, int64_t cols) {
  return tensor->rank == 2 && tensor->shape[0] == rows && tensor->shape[1] == cols;
}

static int64_t num_elements(const stored_tensor_t *tensor) {
  int64_t count = 1;
  for (int i = 0; i < tensor->rank; i++) count *= tensor->shape[i];
  return count;
}

static bool is_number(const stored_tensor_t *tensor) {
  return is_type(tensor, "F32") || is_type(tensor, "F16") || is_type(tensor, "BF16");
}

/* The columns of a group, when a row has `num_groups` of them; 0 = the numbers do not fit. */
static int64_t group_size(const finder_t *finder, int64_t num_groups) {
  int64_t cols = finder->out->cols, group = finder->scheme->group;
  if (num_groups < 1 || num_groups > cols) return 0;
  if (group > 0 && DIV_UP(cols, group) == num_groups) return group;
  return cols % num_groups == 0 ? cols / num_groups : 0;
}

/* Takes the scales of groups of columns, which must be those that the scheme gives all layers. */
static void set_groups(finder_t *finder, const stored_tensor_t *scales, int64_t num_groups) {
  const scheme_t *scheme = finder->scheme;
  packed_t *out = finder->out;
  char expected[96];
  int64_t group = scheme->varies ? GROUP_ANY : scheme->group;
  out->scales = scales;
  out->group = group_size(finder, num_groups);
  out->num_groups = num_groups;
  if (group > 0 && DIV_UP(out->cols, group) != num_groups) {
    snprintf(expected, sizeof(expected), "%lld groups of %lld columns, as quantization_config says",
             (long long)DIV_UP(out->cols, group), (long long)group);
    refuse(finder, scales, expected);
  } else if (group == GROUP_ROW && num_groups != 1) {
    refuse(finder, scales, "one group of all columns, as quantization_config says");
  } else if (out->group == 0) {
    refuse(finder, scales, "a number of groups that divides the columns");
  }
}

/* One scale for all the columns of a row. */
static void set_whole(finder_t *finder, const stored_tensor_t *scales, int64_t row_step) {
  finder->out->scales = scales;
  finder->out->group = finder->out->cols;
  finder->out->num_groups = 1;
  finder->out->grid = (scale_grid_t){1, row_step, 0};
}

/* Scales of codes of 8 bits, fp8 and int8: one for the tensor, one for each row, or one for blocks
 * of 128 x 128; the kind that the scheme names, if it names one. */
static void read_byte_scales(finder_t *finder, const stored_tensor_t *scales) {
  packed_t *out = finder->out;
  int64_t rows = DIV_UP(out->rows, FP8_BLOCK), cols = DIV_UP(out->cols, FP8_BLOCK);
  if (scales == NULL) return;
  int64_t count = num_elements(scales);
  int32_t kind = finder->scheme->group;
  bool one = count == 1, each_row = count == out->rows && scales->shape[0] == out->rows;
  if (!is_number(scales) && !is_type(scales, "F8_E8M0")) {
    refuse(finder, scales, "F32, F16 or BF16 (fp8 in blocks: F8_E8M0 too)");
  } else if (kind == GROUP_BLOCKS && !is_shape(scales, rows, cols)) {
    refuse(finder, scales, "a scale for each block of 128 x 128, as quantization_config says");
  } else if (kind == GROUP_TENSOR && !one) {
    refuse(finder, scales, "one scale of the tensor, as quantization_config says");
  } else if (kind == GROUP_ROW && !each_row) {
    refuse(finder, scales, "a scale for each row, as quantization_config says");
  } else if (one) {
    set_whole(finder, scales, 0);
  } else if (each_row) {
    set_whole(finder, scales, 1);
  } else if (is_shape(scales, rows, cols)) {
    out->scales = scales;
    out->group = FP8_BLOCK;
    out->num_groups = cols;
    out->grid = (scale_grid_t){FP8_BLOCK, cols, 1};
  } else {
    refuse(finder, scales, "[1], [rows, 1] or [rows / 128, columns / 128]");
  }
}

/* A byte a code: fp8 of every scheme, int8 of W8A8. */
static void find_bytes(finder_t *finder, const stored_tensor_t *weight) {
  packed_t *out = finder->out;
  bool is_fp8 = is_type(weight, "F8_E4M3");
  if (!is_shape(weight, out->rows, out->cols))
    refuse(finder, weight, "a matrix of these rows and columns");
  const stored_tensor_t *scales = find(finder, "weight_scale_inv");
  read_byte_scales(finder, scales != NULL ? scales : need(finder, "weight_scale"));
  const stored_tensor_t *zeros = find(finder, "weight_zero_point");
  if (zeros != NULL) refuse(finder, zeros, "no zero points: symmetric weights");
  out->codes = weight;
  out->bits = 8;
  out->packing = is_fp8 ? PACKING_FP8 : PACKING_INT8;
}

/* A single factor of all numbers. `divides`: the file holds its reciprocal. */
static void read_factor(finder_t *finder, const char *name, bool divides) {
  const stored_tensor_t *tensor = need(finder, name);
  float value;
  if (tensor == NULL) return;
  if (!is_type(tensor, "F32") || num_elements(tensor) != 1) {
    refuse(finder, tensor, "one F32 number");
    return;
  }
  memcpy(&value, tensor->data, sizeof(value));
  finder->out->factor = divides ? 1.0f / value : value;
  if (!isfinite(value) || value <= 0.0f || !isfinite(finder->out->factor))
    fail(finder, tensor, "is %g; expected: a finite number above 0%s", (double)value,
         divides ? ", and its reciprocal" : "");
}

/* NVFP4 and MXFP4: nibbles, a scale for 16 or 32 columns, with NVFP4 a factor of the whole. */
static void find_fp4(finder_t *finder, const stored_tensor_t *codes) {
  packed_t *out = finder->out;
  const stored_tensor_t *scales = need(finder, "weight_scale");
  bool modelopt = finder->scheme->kind == SCHEME_MODELOPT;
  if (out->cols % 2 != 0 || !is_shape(codes, out->rows, out->cols / 2))
    refuse(finder, codes, "U8 [rows, columns / 2]");
  if (scales == NULL || finder->code != 0) return;
  bool is_nvfp4 = is_type(scales, "F8_E4M3"),
       is_mxfp4 = is_type(scales, "U8") || is_type(scales, "F8_E8M0");
  int64_t group = is_nvfp4 ? NVFP4_GROUP : MXFP4_COLS;
  int32_t said =
      finder->scheme->scale_group; /* columns, as quantization_config says; 0 = nothing */
  if ((!is_nvfp4 && !is_mxfp4) || (said != 0 && said != group) || out->cols % group != 0 ||
      !is_shape(scales, out->rows, out->cols / group)) {
    refuse(finder, scales,
           said == NVFP4_GROUP  ? "F8_E4M3 [rows, columns / 16]"
           : said == MXFP4_COLS ? "U8 [rows, columns / 32]"
                                : "F8_E4M3 [rows, columns / 16] or U8 [rows, columns / 32]");
    return;
  }
  out->scales = scales;
  out->group = group;
  out->num_groups = out->cols / group;
  out->grid = (scale_grid_t){1, out->num_groups, 1};
  out->packing = PACKING_FP4;
  out->codes = codes;
  out->bits = 4;
  if (is_nvfp4) read_factor(finder, modelopt ? "weight_scale_2" : "weight_global_scale", !modelopt);
}

/* The tensor g_idx of act-order ("desc_act"): the group of each column. It is kept only if it
 * differs from columns in order, group after group. */
static void read_order(finder_t *finder, const stored_tensor_t *order) {
  packed_t *out = finder->out;
  bool in_order = true;
  if (order == NULL || finder->code != 0) return;
  if (!is_type(order, "I32") || order->rank != 1 || order->shape[0] != out->cols) {
    refuse(finder, order, "I32 [columns]");
    return;
  }
  for (int64_t k = 0; k < out->cols; k++) {
    int32_t group;
    memcpy(&group, order->data + 4 * k, sizeof(group));
    in_order = in_order && group == k / out->group;
    if (group >= 0 && group < out->num_groups) continue;
    fail(finder, order, "column %lld is of group %d, of %lld", (long long)k, group,
         (long long)out->num_groups);
    return;
  }
  if (!in_order) out->order = order;
}

/* Returns the bits of a code if the codes of `cols` columns take `words` 32-bit words; 0 = none of
 * `allowed`, a mask. With `fills` no bit of the last word may be unused. */
static int32_t code_bits(int64_t cols, int64_t words, uint32_t allowed, bool fills) {
  for (int32_t bits = 2; bits <= 8; bits++) {
    if ((allowed & 1U << bits) == 0 || words != DIV_UP(cols * bits, WORD_BITS)) continue;
    if (!fills || cols * bits % WORD_BITS == 0) return bits;
  }
  return 0;
}

/* Refuses codes of another width than the configuration gives all layers. */
static void check_bits(finder_t *finder, const stored_tensor_t *codes) {
  const scheme_t *scheme = finder->scheme;
  if (scheme->bits == 0 || scheme->varies || scheme->bits == finder->out->bits) return;
  fail(finder, codes, "has codes of %d bits, but quantization_config says %d", finder->out->bits,
       scheme->bits);
}

/* The shape of the whole layer, which pack-quantized files hold as two numbers. */
static void check_shape(finder_t *finder, const stored_tensor_t *tensor) {
  int64_t says[2] = {0};
  if (tensor == NULL || finder->code != 0) return;
  bool is_wide = is_type(tensor, "I64");
  if ((!is_wide && !is_type(tensor, "I32")) || tensor->rank != 1 || tensor->shape[0] != 2) {
    refuse(finder, tensor, "I64 [2] or I32 [2]");
    return;
  }
  for (int i = 0; i < 2; i++) {
    int32_t narrow;
    memcpy(&narrow, tensor->data + 4 * i, sizeof(narrow));
    says[i] = narrow;
    if (is_wide) memcpy(&says[i], tensor->data + 8 * i, sizeof(says[i]));
  }
  if (says[0] == finder->out->rows && says[1] == finder->out->cols) return;
  fail(finder, tensor, "says [%lld, %lld], but the layer has %lld rows and %lld columns",
       (long long)says[0], (long long)says[1], (long long)finder->out->rows,
       (long long)finder->out->cols);
}

/* "pack-quantized" of compressed-tensors: the codes of a row follow one another in words. */
static void find_rows(finder_t *finder, const stored_tensor_t *codes) {
  packed_t *out = finder->out;
  const stored_tensor_t *scales = need(finder, "weight_scale");
  out->bits =
      codes->rank == 2 ? code_bits(out->cols, codes->shape[1], 1U << 4 | 1U << 8, false) : 0;
  if (!is_type(codes, "I32") || out->bits == 0 || codes->shape[0] != out->rows)
    refuse(finder, codes, "I32 [rows, columns * bits / 32] with 4 or 8 bits");
  check_bits(finder, codes);
  check_shape(finder, find(finder, "weight_shape"));
  if (scales == NULL || finder->code != 0) return;
  if (!is_number(scales) || scales->rank != 2 || scales->shape[0] != out->rows) {
    refuse(finder, scales, "numbers [rows, groups]");
    return;
  }
  set_groups(finder, scales, scales->shape[1]);
  out->grid = (scale_grid_t){1, scales->shape[1], 1};
  out->packing = PACKING_ROWS;
  out->codes = codes;
  const zero_rule_t rule = finder->scheme->zeros;
  out->zeros =
      rule == ZEROS_STORED ? need(finder, "weight_zero_point") : find(finder, "weight_zero_point");
  if (out->zeros != NULL && rule == ZEROS_NONE)
    refuse(finder, out->zeros, "no zero points: quantization_config says symmetric");
  if (out->zeros != NULL &&
      (!is_type(out->zeros, "I32") ||
       !is_shape(out->zeros, DIV_UP(out->rows * out->bits, WORD_BITS), out->num_groups)))
    refuse(finder, out->zeros, "I32 [rows * bits / 32, groups]");
  read_order(finder, find(finder, "weight_g_idx"));
}

/* Scales and zero points of GPTQ and AWQ: [groups, rows] and [groups, words of a row]. */
static void read_column_scales(finder_t *finder, const stored_tensor_t *zeros) {
  packed_t *out = finder->out;
  const stored_tensor_t *scales = need(finder, "scales");
  if (scales == NULL || zeros == NULL || finder->code != 0) return;
  if (!is_number(scales) || scales->rank != 2 || scales->shape[1] != out->rows) {
    refuse(finder, scales, "numbers [groups, rows]");
    return;
  }
  set_groups(finder, scales, scales->shape[0]);
  out->grid = (scale_grid_t){1, 1, out->rows};
  out->zeros = zeros;
  if (!is_type(zeros, "I32") ||
      !is_shape(zeros, out->num_groups, DIV_UP(out->rows * out->bits, WORD_BITS)))
    refuse(finder, zeros, "I32 [groups, rows * bits / 32]");
}

static void find_gptq(finder_t *finder, const stored_tensor_t *codes) {
  packed_t *out = finder->out;
  const stored_tensor_t *zeros = need(finder, "qzeros");
  uint32_t allowed = 1U << 2 | 1U << 4 | 1U << 8;
  out->bits = codes->rank == 2 ? code_bits(out->cols, codes->shape[0], allowed, true) : 0;
  if (!is_type(codes, "I32") || out->bits == 0 || codes->shape[1] != out->rows ||
      out->rows * out->bits % WORD_BITS != 0) {
    refuse(finder, codes, "I32 [columns * bits / 32, rows] with 2, 4 or 8 bits");
    return;
  }
  check_bits(finder, codes);
  read_column_scales(finder, zeros);
  out->packing = PACKING_GPTQ;
  out->codes = codes;
  /* The first version of GPTQ stores zero points less 1. */
  out->zero_add = finder->scheme->kind == SCHEME_GPTQ ? 1 : 0;
  read_order(finder, find(finder, "g_idx"));
}

static void find_awq(finder_t *finder, const stored_tensor_t *codes) {
  packed_t *out = finder->out;
  const stored_tensor_t *zeros = need(finder, "qzeros");
  out->bits = 4;
  if (!is_type(codes, "I32") || out->rows % 8 != 0 || !is_shape(codes, out->cols, out->rows / 8)) {
    refuse(finder, codes, "I32 [columns, rows / 8]");
    return;
  }
  read_column_scales(finder, zeros);
  out->packing = PACKING_AWQ;
  out->codes = codes;
}

/* How a layer is stored that has this tensor; PACKING_NONE: as plain numbers. */
static packing_t packing_of(const scheme_t *scheme, const stored_tensor_t *tensor,
                            const char *part) {
  if (strcmp(part, "qweight") == 0) return scheme->kind == SCHEME_AWQ ? PACKING_AWQ : PACKING_GPTQ;
  if (strcmp(part, "weight_packed") == 0) return is_type(tensor, "U8") ? PACKING_FP4 : PACKING_ROWS;
  return is_type(tensor, "F8_E4M3") ? PACKING_FP8
         : is_type(tensor, "I8")    ? PACKING_INT8
         : is_type(tensor, "U8")    ? PACKING_FP4
                                    : PACKING_NONE;
}

/* The tensor that holds the codes of a layer, or its plain numbers; NULL = there is none, or there
 * are two. Sets the packing. */
static const stored_tensor_t *find_codes(finder_t *finder, packing_t *packing) {
  static const char *const parts[] = {"weight", "weight_packed", "qweight"};
  static const char *const names[] = {
      [PACKING_FP8] = "fp8 weights",         [PACKING_INT8] = "int8 weights",
      [PACKING_ROWS] = "packed integers",    [PACKING_GPTQ] = "GPTQ or AWQ weights",
      [PACKING_AWQ] = "GPTQ or AWQ weights", [PACKING_FP4] = "4-bit floats"};
  const stored_tensor_t *found = NULL;
  *packing = PACKING_NONE;
  for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
    const stored_tensor_t *tensor = find(finder, parts[i]);
    if (tensor == NULL) continue;
    if (found != NULL)
      fail(finder, tensor, "the layer is stored twice, as %s and as %s", found->name, tensor->name);
    found = tensor;
    *packing = packing_of(finder->scheme, tensor, parts[i]);
    if (*packing != PACKING_NONE && (finder->scheme->packings & 1U << *packing) == 0)
      fail(finder, tensor, "has %s, but quantization_config says %s", names[*packing],
           finder->scheme->says);
  }
  return finder->code == 0 ? found : NULL;
}

int packed_find(const weight_files_t *files, const scheme_t *scheme, const char *stem, int64_t rows,
                int64_t cols, uint8_t *taken, packed_t *out, inferd_error_t *error) {
  /* Of activations, which are not quantised here: known, so that they are not left over. */
  static const char *const unused[] = {"input_scale", "input_zero_point", "input_global_scale",
                                       "input_scale_ub"};
  finder_t finder = {
      .files = files, .scheme = scheme, .stem = stem, .taken = taken, .out = out, .error = error};
  packing_t packing;
  *out = (packed_t){.rows = rows, .cols = cols, .factor = 1.0f};
  const stored_tensor_t *codes = find_codes(&finder, &packing);
  if (codes == NULL) return finder.code;
  switch (packing) {
  case PACKING_FP8:
  case PACKING_INT8: find_bytes(&finder, codes); break;
  case PACKING_ROWS: find_rows(&finder, codes); break;
  case PACKING_GPTQ: find_gptq(&finder, codes); break;
  case PACKING_AWQ: find_awq(&finder, codes); break;
  case PACKING_FP4: find_fp4(&finder, codes); break;
  case PACKING_NONE: break;
  }
  for (size_t i = 0; i < ARRAY_LEN(unused); i++) find(&finder, unused[i]);
  return finder.code;
}

int packed_check_plain(const weight_files_t *files, const scheme_t *scheme, const uint8_t *taken,
                       inferd_error_t *error) {
  static const char *const parts[] = {"weight", "weight_packed", "qweight"};
  char full[TENSOR_NAME_MAX], path[PATH_MAX];
  if (scheme->plain == NULL) return 0;
  for (const char *name = scheme->plain; *name != '\0'; name += strlen(name) + 1) {
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
      snprintf(full, sizeof(full), "%s.%s", name, parts[i]);
      const stored_tensor_t *tensor = weight_files_find(files, full);
      if (tensor == NULL || !taken[tensor - weight_files_at(files, 0)]) continue;
      if (packing_of(scheme, tensor, parts[i]) == PACKING_NONE) continue;
      return error_set(error, ERR_MODEL_MALFORMED, "quantization_config",
                       "%s: \"%s\" of quantization_config has %s, which is stored quantised, as %s",
                       weight_files_path(files, tensor, path, sizeof(path)), scheme->plain_key,
                       name, tensor->name);
    }
  }
  return 0;
}

bool packed_is_harmless(const scheme_t *scheme, const stored_tensor_t *tensor) {
  size_t length = strlen(tensor->name);
  bool is_gptq = scheme->kind == SCHEME_GPTQ || scheme->kind == SCHEME_GPTQ_V2;
  if (!is_gptq || length < 5 || strcmp(tensor->name + length - 5, ".bias") != 0) return false;
  for (size_t i = 0; i < tensor->bytes; i++)
    if (tensor->data[i] != 0) return false;
  return true;
}
