/* tensor.c: a file of safetensors with one matrix; the contract is in tensor.h. Any thread. Next:
 * tensor_torch.c.
 */
#include "server/completion/tensor.h"

#include "engine/base/checked.h"
#include "engine/base/half.h"
#include "engine/base/json.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

static const struct {
  const char *name;
  tensor_type_t type;
  size_t bytes;
} types[] = {{"F32", TENSOR_F32, 4}, {"F16", TENSOR_F16, 2}, {"BF16", TENSOR_BF16, 2}};

static size_t bytes_of(tensor_type_t type) {
  return type == TENSOR_F32 ? 4 : 2;
}

__attribute__((format(printf, 2, 3))) static int refuse(inferd_error_t *error, const char *format,
                                                        ...) {
  char reason[ERROR_MESSAGE_MAX - 64];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  return error_set(error, ERR_INVALID_VALUE, NULL, "%s", reason);
}

static uint64_t length_at(const uint8_t *bytes) {
  uint64_t length = 0;
  for (int i = LENGTH_BYTES; i-- > 0;) length = length << 8 | bytes[i];
  return length;
}

/* What pickle and numpy.save write is no file that is read. */
static int check_kind(const uint8_t *bytes, size_t length, inferd_error_t *error) {
  static const char way[] = "send safetensors.torch.save({\"prompt_embeds\": tensor})";
  if (length >= 2 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5)
    return refuse(error, "is a pickle, which is never read; %s", way);
  if (length >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0)
    return refuse(error, "is what numpy.save writes; %s", way);
  if (length < LENGTH_BYTES)
    return refuse(error, "has %zu bytes, which is too short for safetensors", length);
  const uint64_t header = length_at(bytes);
  if (header > length - LENGTH_BYTES)
    return refuse(
        error, "is no safetensors, or cut off: its header has %llu bytes, of which %zu are there",
        (unsigned long long)header, length - LENGTH_BYTES);
  if (header > TENSOR_HEADER_MAX)
    return refuse(error, "has a header of %llu bytes; at most %d are read",
                  (unsigned long long)header, TENSOR_HEADER_MAX);
  return 0;
}

/* The one tensor of the header. */
static int find_tensor(const json_t *root, const json_t **out, inferd_error_t *error) {
  uint32_t count = 0;
  if (root->type != JSON_OBJECT) return refuse(error, "has a header that is no object");
  JSON_EACH(member, root) {
    if (json_named(member, "__metadata__")) continue;
    *out = member;
    count++;
  }
  if (count != 1) return refuse(error, "has %u tensors; it must have exactly one", count);
  if ((*out)->type != JSON_OBJECT) return refuse(error, "has a header whose tensor is no object");
  return 0;
}

static int read_type(const json_t *tensor, tensor_t *out, inferd_error_t *error) {
  const json_t *type = json_get(tensor, "dtype");
  char shown[64];
  for (size_t i = 0; i < ARRAY_LEN(types); i++) {
    if (!json_equals(type, types[i].name)) continue;
    out->type = types[i].type;
    return 0;
  }
  if (type == NULL || type->type != JSON_STRING) return refuse(error, "has a tensor without dtype");
  return refuse(error, "has the dtype %s; read are F32, F16 and BF16",
                error_quote(shown, sizeof shown, type->text, type->length));
}

/* [rows, columns], or one matrix of a batch: [1, rows, columns]. */
static int read_shape(const json_t *tensor, tensor_t *out, inferd_error_t *error) {
  const json_t *shape = json_get(tensor, "shape");
  int64_t sizes[3] = {0};
  uint32_t count = 0;
  const bool is_list = shape != NULL && shape->type == JSON_ARRAY;
  if (!is_list || (shape->count != 2 && shape->count != 3))
    return refuse(error, "has a tensor of %u dimensions; it must be tokens x hidden size",
                  is_list ? shape->count : 0);
  JSON_EACH(size, shape) {
    if (!json_int64(size, &sizes[count]) || sizes[count] < 1)
      return refuse(error, "has a tensor whose size %u is no number of at least 1", count);
    count++;
  }
  if (count == 3 && sizes[0] != 1)
    return refuse(error, "has %lld matrices; send a list of files instead", (long long)sizes[0]);
  out->rows = sizes[count - 2];
  out->columns = sizes[count - 1];
  return 0;
}

/* The numbers begin behind the header, and are the rest of the file. */
static int read_place(const json_t *tensor, size_t rest, const tensor_t *matrix,
                      inferd_error_t *error) {
  const json_t *place = json_get(tensor, "data_offsets");
  const bool is_pair = place != NULL && place->type == JSON_ARRAY && place->count == 2;
  const json_t *first = is_pair ? json_first(place) : NULL;
  int64_t begin, end;
  size_t elements, bytes;
  if (!is_pair || !json_int64(first, &begin) || !json_int64(json_next(first), &end))
    return refuse(error, "has a tensor whose data_offsets are no pair of numbers");
  if (!checked_mul((size_t)matrix->rows, (size_t)matrix->columns, &elements) ||
      !checked_mul(elements, bytes_of(matrix->type), &bytes))
    return refuse(error, "has a tensor of %lld x %lld values, more than there can be",
                  (long long)matrix->rows, (long long)matrix->columns);
  if (begin == 0 && end >= 0 && (uint64_t)end == bytes && bytes == rest) return 0;
  return refuse(
      error,
      "has %zu bytes of numbers at [%lld, %lld), and its %lld x %lld values take %zu from "
      "0 on",
      rest, (long long)begin, (long long)end, (long long)matrix->rows, (long long)matrix->columns,
      bytes);
}

int tensor_read(const uint8_t *bytes, size_t length, tensor_t *out, inferd_error_t *error) {
  json_doc_t *doc = NULL;
  inferd_error_t why = {0};
  const json_t *tensor = NULL;
  if (length >= 4 && memcmp(bytes, "PK\3\4", 4) == 0)
    return tensor_read_torch(bytes, length, out, error);
  int code = check_kind(bytes, length, error);
  if (code != 0) return code;
  const size_t header = (size_t)length_at(bytes);
  code = json_parse((const char *)bytes + LENGTH_BYTES, header, &json_limits_request, &doc, &why);
  if (code == ERR_INTERNAL) return error_set(error, code, NULL, "%s", why.message);
  if (code != 0)
    return refuse(error, "is no safetensors: its header is no JSON: %.120s", why.message);
  *out = (tensor_t){.data = bytes + LENGTH_BYTES + header};
  code = find_tensor(json_root(doc), &tensor, error);
  if (code == 0) code = read_type(tensor, out, error);
  if (code == 0) code = read_shape(tensor, out, error);
  if (code == 0) code = read_place(tensor, length - LENGTH_BYTES - header, out, error);
  json_free(doc);
  return code;
}

int64_t tensor_row(const tensor_t *tensor, int64_t row, float scale, float *out) {
  const size_t each = bytes_of(tensor->type);
  const uint8_t *from = tensor->data + (size_t)row * (size_t)tensor->columns * each;
  int64_t wrong = -1;
  for (int64_t c = 0; c < tensor->columns; c++, from += each) {
    uint32_t bits = 0;
    for (size_t b = each; b-- > 0;) bits = bits << 8 | from[b];
    const float value = tensor->type == TENSOR_F32   ? float_from_bits(bits)
                        : tensor->type == TENSOR_F16 ? float_from_f16((uint16_t)bits)
                                                     : float_from_bf16((uint16_t)bits);
    out[c] = value * scale;
    if (wrong < 0 && !isfinite(out[c])) wrong = c;
  }
  return wrong;
}
