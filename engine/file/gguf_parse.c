/* gguf_parse.c: the header of one GGUF file, copied and checked.
 *
 * A header is: magic, version, number of tensors, number of pairs, the pairs (key, type, value),
 * the tensors (name, dimensions, type, offset). The data of the tensors follow at the next multiple
 * of general.alignment. Every number is from a stranger: it is compared with its limit and with the
 * bytes that the file has before it is used. Any thread; reads no weights.
 */
#include "engine/base/checked.h"
#include "engine/base/util.h"
#include "engine/file/gguf_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_READ = 1 << 16, DIMENSION_MAX_BITS = 40, ALIGNMENT_DEFAULT = 32, FIELD_MAX = 96 };
/* A name of one byte with its length; rank, one dimension, type, offset; type and value of a key.
 */
enum { TENSOR_BYTES_MIN = 9 + 4 + 8 + 4 + 8, PAIR_BYTES_MIN = 9 + 4 + 1, COUNT_FREE = 16 };

/* The types of tensors: elements and bytes of a block. A type of 0 bytes was withdrawn from the
 * format.
 */
static const struct {
  uint32_t type;
  const char *name;
  uint32_t elements, bytes;
} tensor_types[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {4, "Q4_2", 0, 0},        {5, "Q4_3", 0, 0},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},
    {9, "Q8_1", 32, 40},      {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},
    {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},   {14, "Q6_K", 256, 210},
    {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136},
    {24, "I8", 1, 1},         {25, "I16", 1, 2},        {26, "I32", 1, 4},
    {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {31, "Q4_0_4_4", 0, 0},   {32, "Q4_0_4_8", 0, 0},
    {33, "Q4_0_8_8", 0, 0},   {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},
    {36, "IQ4_NL_4_4", 0, 0}, {37, "IQ4_NL_4_8", 0, 0}, {38, "IQ4_NL_8_8", 0, 0},
    {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},    {41, "Q1_0", 128, 18},
};

/* Bytes of an element by gguf_kind_t; 0 for strings and arrays. */
static const uint8_t kind_bytes[GGUF_KINDS] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

/* The header while it is read: bytes [0, have) of the file are in `bytes`. */
typedef struct gguf_cursor {
  const mapping_t *mapping;
  const char *path;
  uint8_t *bytes;
  size_t have, at, file_bytes;
  inferd_error_t *error;
} gguf_cursor_t;

/* A value whose places are offsets, because the copy of the header moves while it grows. */
typedef struct pair {
  gguf_value_t value;
  size_t key_at, data_at;
} pair_t;

const char *gguf_type_name(uint32_t type) {
  for (size_t i = 0; i < ARRAY_LEN(tensor_types); i++) {
    if (tensor_types[i].type == type) return tensor_types[i].name;
  }
  return "unknown";
}

static int refuse(const gguf_cursor_t *cursor, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static int refuse(const gguf_cursor_t *cursor, const char *format, ...) {
  char reason[ERROR_MESSAGE_MAX - 160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof(reason), format, arguments);
  va_end(arguments);
  return error_set(cursor->error, ERR_MODEL_MALFORMED, NULL, "%s: %s", cursor->path, reason);
}

/* Makes sure that the next `count` bytes are in memory; `field` is what they are. */
static int need(gguf_cursor_t *cursor, size_t count, const char *field) {
  size_t end;
  if (!checked_add(cursor->at, count, &end) || end > cursor->file_bytes) {
    return refuse(cursor, "%s needs %zu bytes at byte %zu, but the file has %zu", field, count,
                  cursor->at, cursor->file_bytes);
  }
  if (end > GGUF_HEADER_MAX) {
    return refuse(cursor, "%s ends at byte %zu; a header may have %d bytes", field, end,
                  GGUF_HEADER_MAX);
  }
  if (end <= cursor->have) return 0;
  size_t wanted = MAX(2 * cursor->have, MAX(end, (size_t)FIRST_READ));
  wanted = MIN(wanted, cursor->file_bytes);
  uint8_t *larger = realloc(cursor->bytes, wanted);
  if (larger == NULL) {
    return error_set(cursor->error, ERR_NO_MEMORY, NULL, "%s: no memory for the header",
                     cursor->path);
  }
  cursor->bytes = larger;
  if (!mapping_read(cursor->mapping, larger + cursor->have, wanted - cursor->have, cursor->have)) {
    return error_set(cursor->error, ERR_IO, NULL, "%s: the header cannot be read", cursor->path);
  }
  cursor->have = wanted;
  return 0;
}

static uint64_t little_endian(const uint8_t *bytes, int count) {
  uint64_t number = 0;
  while (count-- > 0) number = number << 8 | bytes[count];
  return number;
}

static int take_number(gguf_cursor_t *cursor, int bytes, const char *field, uint64_t *out) {
  int code = need(cursor, (size_t)bytes, field);
  if (code != 0) return code;
  *out = little_endian(cursor->bytes + cursor->at, bytes);
  cursor->at += (size_t)bytes;
  return 0;
}

/* Takes a length or count that must not be above `most`. */
static int take_count(gguf_cursor_t *cursor, int bytes, const char *field, uint64_t most,
                      uint64_t *out) {
  int code = take_number(cursor, bytes, field, out);
  if (code != 0 || *out <= most) return code;
  return refuse(cursor, "%s is %llu, at most %llu", field, (unsigned long long)*out,
                (unsigned long long)most);
}

/* Takes a string; *at is where its bytes begin. */
static int take_string(gguf_cursor_t *cursor, const char *field, uint64_t most, size_t *at,
                       size_t *length) {
  char of_length[FIELD_MAX + 16];
  uint64_t number;
  snprintf(of_length, sizeof(of_length), "the length of %s", field);
  int code = take_count(cursor, 8, of_length, most, &number);
  if (code == 0) code = need(cursor, (size_t)number, field);
  if (code != 0) return code;
  *at = cursor->at;
  *length = (size_t)number;
  cursor->at += *length;
  return 0;
}

static int take_kind(gguf_cursor_t *cursor, const char *field, gguf_kind_t *out) {
  uint64_t number;
  int code = take_number(cursor, 4, field, &number);
  if (code != 0) return code;
  if (number >= GGUF_KINDS) {
    return refuse(cursor, "%s has the type %llu, known are 0..%d", field,
                  (unsigned long long)number, GGUF_KINDS - 1);
  }
  *out = (gguf_kind_t)number;
  return 0;
}

/* Takes the elements of a value; strings are walked over, flags must be 0 or 1. */
static int take_elements(gguf_cursor_t *cursor, const char *field, gguf_kind_t kind,
                         uint32_t count) {
  size_t at, length;
  for (uint32_t i = 0; kind == GGUF_STRING && i < count; i++) {
    int code = take_string(cursor, field, GGUF_STRING_MAX, &at, &length);
    if (code != 0) return code;
  }
  if (kind == GGUF_STRING) return 0;
  size_t bytes = (size_t)count * kind_bytes[kind];
  int code = need(cursor, bytes, field);
  if (code != 0) return code;
  for (size_t i = 0; kind == GGUF_BOOL && i < bytes; i++) {
    if (cursor->bytes[cursor->at + i] > 1) {
      return refuse(cursor, "%s is %d, a flag is 0 or 1", field, cursor->bytes[cursor->at + i]);
    }
  }
  cursor->at += bytes;
  return 0;
}

static int take_pair(gguf_cursor_t *cursor, uint64_t index, pair_t *out) {
  char field[FIELD_MAX], quoted[72];
  size_t length;
  gguf_value_t *value = &out->value;
  snprintf(field, sizeof(field), "key %llu", (unsigned long long)index);
  int code = take_string(cursor, field, GGUF_KEY_MAX, &out->key_at, &length);
  if (code != 0) return code;
  const char *key = (const char *)cursor->bytes + out->key_at;
  if (length == 0 || memchr(key, 0, length) != NULL) {
    return refuse(cursor, "%s is empty or holds a NUL", field);
  }
  *value = (gguf_value_t){.key_length = (uint32_t)length, .count = 1};
  snprintf(field, sizeof(field), "\"%s\"", error_quote(quoted, sizeof(quoted), key, length));
  code = take_kind(cursor, field, &value->kind);
  if (code != 0) return code;
  value->element = value->kind;
  if (value->kind == GGUF_ARRAY) {
    uint64_t count;
    char of_count[FIELD_MAX + 40];
    snprintf(of_count, sizeof(of_count), "the number of elements of %s", field);
    code = take_kind(cursor, field, &value->element);
    if (code == 0) code = take_count(cursor, 8, of_count, GGUF_ELEMENTS_MAX, &count);
    if (code != 0) return code;
    if (value->element == GGUF_ARRAY) return refuse(cursor, "%s is an array of arrays", field);
    value->count = (uint32_t)count;
  }
  out->data_at = cursor->at;
  code = take_elements(cursor, field, value->element, value->count);
  value->length = cursor->at - out->data_at;
  if (value->kind == GGUF_STRING) { /* the text alone, without its length */
    out->data_at += 8;
    value->length -= code == 0 ? 8 : 0;
  }
  return code;
}

static int by_key(const void *left, const void *right) {
  const gguf_value_t *first = left, *second = right;
  size_t least = MIN(first->key_length, second->key_length);
  int order = memcmp(first->key, second->key, least);
  return order != 0
             ? order
             : (first->key_length > second->key_length) - (first->key_length < second->key_length);
}

const gguf_value_t *gguf_lookup(const gguf_value_t *values, size_t count, const char *key) {
  gguf_value_t wanted = {.key = key, .key_length = (uint32_t)strlen(key)};
  return count == 0 ? NULL : bsearch(&wanted, values, count, sizeof(*values), by_key);
}

/* Turns offsets into pointers into the finished copy, and sorts. */
static int keep_pairs(const gguf_cursor_t *cursor, const pair_t *pairs, size_t count,
                      gguf_file_t *file) {
  char quoted[96];
  file->values = calloc(count + 1, sizeof(*file->values));
  if (file->values == NULL) {
    return error_set(cursor->error, ERR_NO_MEMORY, NULL, "%s: no memory", cursor->path);
  }
  file->num_values = count;
  for (size_t i = 0; i < count; i++) {
    file->values[i] = pairs[i].value;
    file->values[i].key = (const char *)cursor->bytes + pairs[i].key_at;
    file->values[i].data = cursor->bytes + pairs[i].data_at;
  }
  qsort(file->values, count, sizeof(*file->values), by_key);
  for (size_t i = 1; i < count; i++) {
    if (by_key(&file->values[i - 1], &file->values[i]) != 0) continue;
    const gguf_value_t *value = &file->values[i];
    return refuse(cursor, "the key \"%s\" is there twice",
                  error_quote(quoted, sizeof(quoted), value->key, value->key_length));
  }
  return 0;
}

static int take_pairs(gguf_cursor_t *cursor, uint64_t count, pair_t **out) {
  *out = calloc((size_t)count + 1, sizeof(pair_t));
  if (*out == NULL) {
    return error_set(cursor->error, ERR_NO_MEMORY, NULL, "%s: no memory", cursor->path);
  }
  int code = 0;
  for (uint64_t i = 0; code == 0 && i < count; i++) code = take_pair(cursor, i, &(*out)[i]);
  return code;
}

/* Sets the bytes of a tensor from its type and dimensions, which the file has innermost first. */
static int set_size(const gguf_cursor_t *cursor, const char *field, gguf_tensor_t *tensor) {
  size_t index = 0, elements = 1;
  while (index < ARRAY_LEN(tensor_types) && tensor_types[index].type != tensor->type) index++;
  if (index == ARRAY_LEN(tensor_types)) {
    return refuse(cursor, "%s has the type %u, which is not known", field, tensor->type);
  }
  uint32_t block = tensor_types[index].elements;
  if (block == 0) {
    return refuse(cursor, "%s has the type %s, which is no longer written", field,
                  tensor_types[index].name);
  }
  int64_t columns = tensor->shape[tensor->rank - 1];
  if (columns % block != 0) {
    return refuse(cursor, "%s has %lld columns; blocks of %s have %u", field, (long long)columns,
                  tensor_types[index].name, block);
  }
  for (int i = 0; i < tensor->rank; i++) {
    if (!checked_mul(elements, (size_t)tensor->shape[i], &elements)) {
      return refuse(cursor, "the product of the dimensions of %s overflows", field);
    }
  }
  if (!checked_mul(elements / block, tensor_types[index].bytes, &tensor->bytes)) {
    return refuse(cursor, "the bytes of %s overflow", field);
  }
  return 0;
}

static int take_tensor(gguf_cursor_t *cursor, uint64_t index, gguf_tensor_t *out) {
  char field[FIELD_MAX], quoted[72];
  size_t at, length;
  uint64_t rank = 0, number = 0;
  snprintf(field, sizeof(field), "the name of tensor %llu", (unsigned long long)index);
  int code = take_string(cursor, field, GGUF_NAME_MAX, &at, &length);
  if (code != 0) return code;
  const char *name = (const char *)cursor->bytes + at;
  if (length == 0 || memchr(name, 0, length) != NULL) {
    return refuse(cursor, "%s is empty or holds a NUL", field);
  }
  out->name = strndup(name, length);
  if (out->name == NULL) {
    return error_set(cursor->error, ERR_NO_MEMORY, NULL, "%s: no memory", cursor->path);
  }
  snprintf(field, sizeof(field), "tensor %s", error_quote(quoted, sizeof(quoted), name, length));
  code = take_number(cursor, 4, field, &rank);
  if (code == 0 && (rank < 1 || rank > GGUF_RANK_MAX)) {
    code = refuse(cursor, "%s has %llu dimensions, supported: 1..%d", field,
                  (unsigned long long)rank, GGUF_RANK_MAX);
  }
  for (uint64_t i = rank; code == 0 && i > 0; i--) {
    code = take_number(cursor, 8, field, &number);
    out->shape[i - 1] = (int64_t)number;
    if (code == 0 && (number < 1 || number >> DIMENSION_MAX_BITS != 0)) {
      code = refuse(cursor, "%s has a dimension of %lld, supported: 1 to 2^%d", field,
                    (long long)number, DIMENSION_MAX_BITS);
    }
  }
  out->rank = (int32_t)rank;
  if (code == 0) code = take_number(cursor, 4, field, &number);
  out->type = (uint32_t)number;
  if (code == 0) code = set_size(cursor, field, out);
  if (code == 0) code = take_number(cursor, 8, field, &number);
  out->begin = (size_t)number;
  return code;
}

static int take_tensors(gguf_cursor_t *cursor, gguf_t *gguf, int32_t file, uint64_t count) {
  size_t wanted = gguf->num_tensors + (size_t)count;
  gguf_tensor_t *larger = reallocarray(gguf->tensors, wanted + 1, sizeof(*larger));
  if (larger == NULL) {
    return error_set(cursor->error, ERR_NO_MEMORY, NULL, "%s: no memory", cursor->path);
  }
  gguf->tensors = larger;
  int code = 0;
  for (uint64_t i = 0; code == 0 && i < count; i++) {
    gguf_tensor_t *tensor = &gguf->tensors[gguf->num_tensors++];
    *tensor = (gguf_tensor_t){.file = file};
    code = take_tensor(cursor, i, tensor);
  }
  return code;
}

static int by_begin(const void *left, const void *right) {
  const gguf_tensor_t *first = left, *second = right;
  return (first->begin > second->begin) - (first->begin < second->begin);
}

/* Offsets count from the aligned end of the header. The tensors must lie inside the file, each at a
 * multiple of the alignment, and apart from each other. */
static int place_tensors(const gguf_cursor_t *cursor, const gguf_file_t *file,
                         gguf_tensor_t *tensors, size_t count) {
  int64_t alignment = ALIGNMENT_DEFAULT;
  const gguf_value_t *given = gguf_lookup(file->values, file->num_values, "general.alignment");
  size_t start, end = 0;
  if (given != NULL && (!gguf_int(given, 0, &alignment) || alignment < 1 ||
                        alignment > GGUF_ALIGNMENT_MAX || (alignment & (alignment - 1)) != 0)) {
    return refuse(cursor, "\"general.alignment\" is %lld, supported: powers of two up to %d",
                  (long long)alignment, GGUF_ALIGNMENT_MAX);
  }
  if (!checked_align(cursor->at, (size_t)alignment, &start)) {
    return refuse(cursor, "the header ends at byte %zu, too near to 2^64 to align", cursor->at);
  }
  qsort(tensors, count, sizeof(*tensors), by_begin);
  for (size_t i = 0; i < count; i++) {
    gguf_tensor_t *tensor = &tensors[i];
    char quoted[72];
    size_t begin, tensor_end;
    error_quote(quoted, sizeof(quoted), tensor->name, strlen(tensor->name));
    if (tensor->begin % (size_t)alignment != 0) {
      return refuse(cursor, "tensor %s: its offset %zu is no multiple of the alignment %lld",
                    quoted, tensor->begin, (long long)alignment);
    }
    if (!checked_add(start, tensor->begin, &begin) ||
        !checked_add(begin, tensor->bytes, &tensor_end) || tensor_end > cursor->file_bytes) {
      return refuse(cursor,
                    "tensor %s: %zu bytes at offset %zu of the data, which begins at byte %zu, but "
                    "the file has %zu: it is truncated",
                    quoted, tensor->bytes, tensor->begin, start, cursor->file_bytes);
    }
    if (begin < end) {
      return refuse(cursor, "tensor %s: begins at byte %zu, inside another tensor", quoted, begin);
    }
    end = tensor_end;
    tensor->begin = begin;
    tensor->data = mapping_data(cursor->mapping) + begin;
  }
  return 0;
}

/* Refuses a count that the rest of the file cannot hold, `each` bytes at least for one: nothing of
 * that size is allocated. What is wrong with a few is said of the first that is wrong. */
static int check_count(const gguf_cursor_t *cursor, const char *field, uint64_t count,
                       size_t each) {
  if (count <= COUNT_FREE + (cursor->file_bytes - cursor->at) / each) return 0;
  return refuse(cursor, "%s is %llu, for which the file has too few bytes: %zu", field,
                (unsigned long long)count, cursor->file_bytes);
}

static int take_start(gguf_cursor_t *cursor, uint64_t *tensors, uint64_t *pairs) {
  uint64_t magic, version;
  int code = take_number(cursor, 4, "the magic number", &magic);
  if (code == 0 && magic != 0x46554747) { /* "GGUF" */
    bool pointer = cursor->have >= 8 && memcmp(cursor->bytes, "version ", 8) == 0;
    return refuse(cursor, pointer ? "is a pointer of Git LFS, not the model; fetch it with git lfs "
                                    "pull"
                                  : "is not a GGUF file: it does not begin with GGUF");
  }
  if (code == 0) code = take_number(cursor, 4, "the version", &version);
  if (code == 0 && version != 2 && version != 3) {
    bool swapped = version != 0 && (version & 0xffff) == 0;
    return refuse(cursor, "version %llu of GGUF%s, supported: 2 and 3", (unsigned long long)version,
                  swapped ? ", or a file in big endian order" : "");
  }
  if (code == 0) code = take_count(cursor, 8, "the number of tensors", GGUF_TENSORS_MAX, tensors);
  if (code == 0) code = take_count(cursor, 8, "the number of keys", GGUF_PAIRS_MAX, pairs);
  if (code == 0) code = check_count(cursor, "the number of tensors", *tensors, TENSOR_BYTES_MIN);
  if (code == 0) code = check_count(cursor, "the number of keys", *pairs, PAIR_BYTES_MIN);
  return code;
}

int gguf_parse(gguf_t *gguf, int32_t index, inferd_error_t *error) {
  gguf_file_t *file = &gguf->files[index];
  size_t first = gguf->num_tensors;
  uint64_t num_tensors = 0, num_pairs = 0;
  pair_t *pairs = NULL;
  gguf_cursor_t cursor = {.mapping = file->mapping,
                          .path = file->path,
                          .file_bytes = mapping_size(file->mapping),
                          .error = error};
  int code = take_start(&cursor, &num_tensors, &num_pairs);
  if (code == 0) code = take_pairs(&cursor, num_pairs, &pairs);
  if (code == 0) code = take_tensors(&cursor, gguf, index, num_tensors);
  file->header = cursor.bytes;
  if (code == 0) code = keep_pairs(&cursor, pairs, (size_t)num_pairs, file);
  free(pairs);
  if (code != 0) return code;
  return place_tensors(&cursor, file, gguf->tensors + first, gguf->num_tensors - first);
}
