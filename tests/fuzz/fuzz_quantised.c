/* fuzz_quantised.c: GGUF files, single and split, and quantised safetensors.
 *
 * gguf: a file. split: the length of the first file (u16, little endian), that file, the second;
 * by the top two bits of the length the second continues the first or has another name.
 * packed: config.json, a 0xFF byte, the JSON of the header of model.safetensors; the data are the
 * bytes of the header again and again, or those behind a second 0xFF byte. Behind a third stand the
 * files that some programs write beside config.json. What passes the checks is loaded, every row of
 * it, on a back end that keeps nothing; the tokenizer of a GGUF file encodes a text.
 */
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "engine/file/gguf.h"
#include "engine/model/model.h"
#include "engine/model/source/safetensors.h"
#include "engine/text/tokenizer.h"
#include "tests/fuzz/targets.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DATA_BYTES_MAX = 1 << 20, PARAMETERS_MAX = 1 << 20, LAYERS_MAX = 8 };

/* Reads every row of a matrix, into scratch of exactly the size of the contract. */
static int take_rows(device_t *device, const weight_source_t *source, weight_t **out,
                     inferd_error_t *error) {
  (void)device;
  uint8_t *scratch = aligned_alloc(64, ROUND_UP((size_t)source->cols * 4, 64));
  *out = NULL;
  if (scratch == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory");
  for (int64_t row = 0; row < source->rows; row++) {
    if (source->row_format != NULL) (void)source->row_format(source->context, row);
    if (source->row(source->context, row, scratch) == NULL) abort();
  }
  free(scratch);
  return 0;
}

static int take_vector(device_t *device, const float *values, int64_t count, vector_t **out,
                       inferd_error_t *error) {
  (void)device;
  bool finite = true;
  for (int64_t i = 0; i < count; i++) finite = finite && isfinite(values[i]);
  *out = NULL;
  return finite ? 0 : error_set(error, ERR_MODEL_MALFORMED, NULL, "a vector is not finite");
}

static void no_moe(device_t *device, act_t *out, const act_t *in, const act_t *residual,
                   const moe_t *moe, int32_t rows) {
  (void)device, (void)out, (void)in, (void)residual, (void)moe, (void)rows;
  abort(); /* nothing is computed */
}

static void no_gated_add(device_t *device, act_t *out, const act_t *in, const act_t *gate,
                         const act_t *residual, int32_t width, int32_t rows) {
  (void)device, (void)out, (void)in, (void)gate, (void)residual, (void)width, (void)rows;
  abort();
}

/* From the checks to the last row, once for a back end that takes blocks, once for one that does
 * not. */
static void load(const char *path) {
  blueprint_t blueprint;
  inferd_error_t error = {0};
  memset(&blueprint, 0, sizeof blueprint);
  if (blueprint_read(path, 0, -1, &blueprint, &error) != 0) return;
  ops_t ops = {.name = "fuzz",
               .weight_formats = (2U << WEIGHT_GROUPED_FP8) - 2,
               .weight = take_rows,
               .vector = take_vector,
               .moe = no_moe,
               .gated_add = no_gated_add};
  for (int i = 0; i < 2; i++) {
    model_options_t options = {.dir = path, .dtype = i == 0 ? DTYPE_BF16 : DTYPE_F32};
    size_t bytes = 0;
    model_t *model;
    if (model_weight_bytes(&ops, &blueprint, &options, &bytes, &error) != 0) break;
    if (blueprint.num_parameters > PARAMETERS_MAX || blueprint.num_layers > LAYERS_MAX) break;
    if (model_load(&ops, NULL, &blueprint, 1, &options, &model, &error) == 0) model_free(model);
    ops.weight_formats = 0;
  }
  blueprint_free(&blueprint);
}

static void encode(const char *path) {
  static const char text[] = "ab c\n\xE4\xB8\xAD <s> abc";
  tokenizer_t *t;
  inferd_error_t error = {0};
  int32_t *ids;
  size_t count, length;
  char *back;
  if (tokenizer_load(path, &t, &error) != 0) return;
  tokenizer_scratch_t *scratch = tokenizer_scratch_new(t);
  tokenize_options_t options = {.add_special_tokens = true};
  if (tokenizer_encode(t, scratch, text, sizeof text - 1, &options, &ids, &count, &error) == 0) {
    if (tokenizer_decode(t, ids, count, false, &back, &length, &error) == 0) free(back);
    free(ids);
  }
  tokenizer_scratch_free(scratch);
  tokenizer_free(t);
}

/* Reads every element of a value as every kind of value. */
static void read_value(const gguf_value_t *value) {
  int64_t whole;
  double number;
  bool flag;
  const char *text;
  size_t at = 0, length;
  uint64_t sum = 0;
  for (uint32_t i = 0; value != NULL && i < value->count; i++) {
    bool is_int = gguf_int(value, i, &whole), is_number = gguf_double(value, i, &number);
    if ((is_int && !is_number) || (is_number && gguf_bool(value, i, &flag))) abort();
  }
  while (gguf_next_string(value, &at, &text, &length))
    for (size_t i = 0; i < length; i++) sum += (uint8_t)text[i];
  if (sum > (uint64_t)UINT32_MAX) abort();
}

/* Reads every byte of every tensor, and the value "x". */
static void open_tensors(const char *path) {
  gguf_t *gguf;
  inferd_error_t error = {0};
  if (gguf_open(path, true, &gguf, &error) != 0) return;
  uint64_t sum = 0;
  for (size_t i = 0; i < gguf_num_tensors(gguf); i++) {
    const gguf_tensor_t *tensor = gguf_tensor_at(gguf, i);
    for (size_t k = 0; k < tensor->bytes; k++) sum += tensor->data[k];
  }
  if (sum > (uint64_t)UINT32_MAX << 16) abort(); /* more than a small file can hold */
  read_value(gguf_get(gguf, "x"));
  for (int32_t i = 0; i < gguf_num_files(gguf); i++)
    if (gguf_mapping(gguf, i) == NULL) abort();
  if (gguf_intact(gguf, &error) != 0) abort();
  gguf_close(gguf);
}

static const char *path_of(char path[PATH_MAX], const char *name) {
  snprintf(path, PATH_MAX, "%s/%s", fuzz_directory(), name);
  return path;
}

void fuzz_gguf(const uint8_t *data, size_t size) {
  char path[PATH_MAX];
  fuzz_write("model.gguf", data, size);
  path_of(path, "model.gguf");
  open_tensors(path);
  encode(path);
  load(path);
  encode(fuzz_directory()); /* finds the only file */
  fuzz_remove("model.gguf");
}

/* What the directory holds is one of the two files, or refused; a file is itself. */
static void find(const char *first, const char *second) {
  char found[PATH_MAX], path[PATH_MAX];
  inferd_error_t error = {0};
  int code = gguf_find(fuzz_directory(), found, sizeof found, &error);
  bool known = code != 1 || strcmp(found, path_of(path, first)) == 0 ||
               strcmp(found, path_of(path, second)) == 0;
  if (!known || (code < 0) != (error.message[0] != '\0')) abort();
  if (gguf_find(path_of(path, second), found, sizeof found, &error) == 1 &&
      strcmp(found, path) != 0)
    abort();
}

void fuzz_split(const uint8_t *data, size_t size) {
  static const char first[] = "m-00001-of-00002.gguf";
  static const char *const names[] = {"m-00002-of-00002.gguf", "model.safetensors", "x.gguf",
                                      "file"};
  char path[PATH_MAX];
  if (size < 2) return;
  const char *second = names[data[1] >> 6];
  size_t length = MIN((size_t)(data[0] | (data[1] & 0x3F) << 8), size - 2);
  fuzz_write(first, data + 2, length);
  fuzz_write(second, data + 2 + length, size - 2 - length);
  find(first, second);
  open_tensors(path_of(path, first));
  load(path);
  open_tensors(path_of(path, second));
  fuzz_remove(first);
  fuzz_remove(second);
}

/* The end of the last tensor of a header; at most DATA_BYTES_MAX. */
static size_t data_bytes(const uint8_t *header, size_t size) {
  json_doc_t *doc = NULL;
  inferd_error_t error;
  int64_t most = 0;
  if (json_parse((const char *)header, size, &json_limits_model, &doc, &error) != 0) return 0;
  JSON_EACH(entry, json_root(doc)) {
    const json_t *offsets = json_get(entry, "data_offsets");
    if (offsets == NULL || offsets->type != JSON_ARRAY) continue;
    JSON_EACH(offset, offsets) {
      int64_t at;
      if (json_int64(offset, &at) && at <= DATA_BYTES_MAX) most = MAX(most, at);
    }
  }
  json_free(doc);
  return (size_t)most;
}

void fuzz_packed(const uint8_t *data, size_t size) {
  static const char *const beside[] = {"quantize_config.json", "quant_config.json",
                                       "hf_quant_config.json"};
  size_t length, header_length, period;
  const uint8_t *config = fuzz_part(&data, &size, 0xFF, &length);
  if (size == 0 || size > 1 << 16) return;
  const uint8_t *header = fuzz_part(&data, &size, 0xFF, &header_length);
  const uint8_t *stored = fuzz_part(&data, &size, 0xFF, &period);
  if (period == 0) stored = header, period = header_length;
  size_t more = header_length > 0 ? data_bytes(header, header_length) : 0;
  uint8_t *file = malloc(8 + header_length + more);
  if (file == NULL) return;
  for (int i = 0; i < 8; i++) file[i] = (uint8_t)(header_length >> (8 * i));
  memcpy(file + 8, header, header_length);
  for (size_t i = 0; i < more; i++) file[8 + header_length + i] = stored[i % period];
  fuzz_write("config.json", config, length);
  fuzz_write("model.safetensors", file, 8 + header_length + more);
  fuzz_write_parts(beside, ARRAY_LEN(beside), data, size);
  load(fuzz_directory());
  free(file);
  fuzz_remove("config.json");
  fuzz_remove("model.safetensors");
  fuzz_remove_parts(beside, ARRAY_LEN(beside));
}
