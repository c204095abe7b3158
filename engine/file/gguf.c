/* gguf.c: opens the files of a GGUF model and reads values out of them.
 *
 * A split model has the files NAME-00001-of-0000N.gguf. The names of the others follow from the
 * given one, so the content of a file cannot make this program open another path. Each file holds
 * its number and the number of files; both must agree with the names. Any thread; reads no weights.
 */
#include "engine/file/gguf.h"

#include "engine/base/half.h"
#include "engine/file/gguf_internal.h"

#include <ctype.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPLIT_SUFFIX = sizeof("-00001-of-00002.gguf") - 1 };

static int no_memory(const char *path, inferd_error_t *error) {
  return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
}

/* Maps a file and parses its header. */
static int open_file(gguf_t *gguf, const char *path, inferd_error_t *error) {
  gguf_file_t *file = &gguf->files[gguf->num_files++];
  file->path = strdup(path);
  if (file->path == NULL) return no_memory(path, error);
  int code = mapping_open(AT_FDCWD, path, path, &file->mapping, error);
  return code != 0 ? code : gguf_parse(gguf, gguf->num_files - 1, error);
}

static void close_files(gguf_t *gguf) {
  for (int32_t i = 0; i < gguf->num_files; i++) {
    mapping_close(gguf->files[i].mapping);
    free(gguf->files[i].path);
    free(gguf->files[i].header);
    free(gguf->files[i].values);
  }
  for (size_t i = 0; i < gguf->num_tensors; i++) free(gguf->tensors[i].name);
  gguf->num_files = 0;
  gguf->num_tensors = 0;
}

/* A number of split.* in a file; `absent` when there is no such key. */
static int split_number(const gguf_file_t *file, const char *key, int64_t absent, int64_t most,
                        int64_t *out, inferd_error_t *error) {
  const gguf_value_t *value = gguf_lookup(file->values, file->num_values, key);
  *out = absent;
  if (value == NULL || (gguf_int(value, 0, out) && *out >= 0 && *out <= most)) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: \"%s\" is %lld, supported: 0..%lld",
                   file->path, key, (long long)*out, (long long)most);
}

/* "NAME-00002-of-00003.gguf" of file `number` (from 0) in place of the number in `path`. */
static bool split_path(const char *path, int64_t number, int64_t count, char *out,
                       size_t capacity) {
  size_t length = strlen(path);
  char suffix[48], any[SPLIT_SUFFIX + 1];
  if (length < SPLIT_SUFFIX || length + 1 > capacity) return false;
  const char *old = path + length - SPLIT_SUFFIX;
  int n = snprintf(suffix, sizeof(suffix), "-%05d-of-%05d.gguf", (int)number + 1, (int)count);
  if (n != SPLIT_SUFFIX) return false;
  memcpy(any, suffix, sizeof(any));
  for (int i = 1; i < 6; i++) {
    if (!isdigit((unsigned char)old[i])) return false;
    any[i] = old[i];
  }
  if (memcmp(old, any, SPLIT_SUFFIX) != 0) return false;
  memcpy(out, path, length - SPLIT_SUFFIX);
  memcpy(out + length - SPLIT_SUFFIX, suffix, SPLIT_SUFFIX + 1);
  return true;
}

/* Checks that file `number` of `count` says so itself. */
static int check_split(const gguf_file_t *file, int64_t number, int64_t count,
                       inferd_error_t *error) {
  int64_t own_number, own_count;
  int code = split_number(file, "split.no", 0, UINT16_MAX, &own_number, error);
  if (code == 0) code = split_number(file, "split.count", 1, UINT16_MAX, &own_count, error);
  if (code != 0 || (own_number == number && own_count == count)) return code;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "%s: says that it is file %lld of %lld, its name says %lld of %lld", file->path,
                   (long long)own_number + 1, (long long)own_count, (long long)number + 1,
                   (long long)count);
}

static int open_splits(gguf_t *gguf, const char *path, bool with_splits, inferd_error_t *error) {
  int64_t count, number, tensors;
  int code = split_number(gguf->files, "split.count", 1, GGUF_SPLITS_MAX, &count, error);
  if (code == 0) code = split_number(gguf->files, "split.no", 0, UINT16_MAX, &number, error);
  if (code != 0 || count <= 1) return code;
  char name[PATH_MAX];
  if (!split_path(path, 0, count, name, sizeof(name))) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "%s: is file %lld of %lld of a split model; its name must end in "
                     "-%05lld-of-%05lld.gguf, as do the others",
                     path, (long long)number + 1, (long long)count, (long long)number + 1,
                     (long long)count);
  }
  gguf_file_t *files = calloc((size_t)count, sizeof(*files));
  if (files == NULL) return no_memory(path, error);
  close_files(gguf); /* opened again below, in order: the given file need not be the first */
  free(gguf->files);
  gguf->files = files;
  for (int64_t i = 0; i < (with_splits ? count : 1); i++) {
    if (!split_path(path, i, count, name, sizeof(name))) return no_memory(path, error);
    code = open_file(gguf, name, error);
    if (code == 0) code = check_split(&gguf->files[i], i, count, error);
    if (code != 0) return code;
  }
  code = split_number(gguf->files, "split.tensors.count", -1, INT32_MAX, &tensors, error);
  if (code != 0 || !with_splits || tensors < 0 || (size_t)tensors == gguf->num_tensors) return code;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "%s: \"split.tensors.count\" is %lld, but the files have %zu", path,
                   (long long)tensors, gguf->num_tensors);
}

static int by_name(const void *left, const void *right) {
  const gguf_tensor_t *first = left, *second = right;
  return strcmp(first->name, second->name);
}

static int sort_tensors(gguf_t *gguf, inferd_error_t *error) {
  char quoted[72];
  if (gguf->num_tensors > 0) {
    qsort(gguf->tensors, gguf->num_tensors, sizeof(*gguf->tensors), by_name);
  }
  for (size_t i = 1; i < gguf->num_tensors; i++) {
    const gguf_tensor_t *left = &gguf->tensors[i - 1], *right = &gguf->tensors[i];
    if (strcmp(left->name, right->name) != 0) continue;
    error_quote(quoted, sizeof(quoted), right->name, strlen(right->name));
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: tensor %s is there twice%s%s",
                     gguf_path(gguf, left->file), quoted,
                     left->file == right->file ? "" : ", the second time in ",
                     left->file == right->file ? "" : gguf_path(gguf, right->file));
  }
  return 0;
}

int gguf_open(const char *path, bool with_splits, gguf_t **out, inferd_error_t *error) {
  gguf_t *gguf = calloc(1, sizeof(*gguf));
  if (gguf == NULL) return no_memory(path, error);
  gguf->files = calloc(1, sizeof(*gguf->files));
  int code = gguf->files == NULL ? no_memory(path, error) : open_file(gguf, path, error);
  if (code == 0) code = open_splits(gguf, path, with_splits, error);
  if (code == 0) code = sort_tensors(gguf, error);
  if (code != 0) {
    gguf_close(gguf);
    return code;
  }
  *out = gguf;
  return 0;
}

void gguf_close(gguf_t *gguf) {
  if (gguf == NULL) return;
  close_files(gguf);
  free(gguf->tensors);
  free(gguf->files);
  free(gguf);
}

const char *gguf_path(const gguf_t *gguf, int32_t file) {
  return gguf->files[file].path;
}

int32_t gguf_num_files(const gguf_t *gguf) {
  return gguf->num_files;
}

const gguf_value_t *gguf_get(const gguf_t *gguf, const char *key) {
  return gguf_lookup(gguf->files[0].values, gguf->files[0].num_values, key);
}

size_t gguf_num_values(const gguf_t *gguf) {
  return gguf->files[0].num_values;
}

const gguf_value_t *gguf_value_at(const gguf_t *gguf, size_t index) {
  return &gguf->files[0].values[index];
}

static uint64_t read_bits(const uint8_t *data, int bytes) {
  uint64_t bits = 0;
  while (bytes-- > 0) bits = bits << 8 | data[bytes];
  return bits;
}

bool gguf_int(const gguf_value_t *value, uint32_t index, int64_t *out) {
  if (value == NULL || index >= value->count) return false;
  uint64_t bits;
  switch (value->element) {
  case GGUF_U8: *out = value->data[index]; return true;
  case GGUF_I8: *out = (int8_t)value->data[index]; return true;
  case GGUF_U16: *out = (int64_t)read_bits(value->data + 2 * (size_t)index, 2); return true;
  case GGUF_I16: *out = (int16_t)read_bits(value->data + 2 * (size_t)index, 2); return true;
  case GGUF_U32: *out = (int64_t)read_bits(value->data + 4 * (size_t)index, 4); return true;
  case GGUF_I32: *out = (int32_t)read_bits(value->data + 4 * (size_t)index, 4); return true;
  case GGUF_U64:
    bits = read_bits(value->data + 8 * (size_t)index, 8);
    if (bits > INT64_MAX) return false;
    *out = (int64_t)bits;
    return true;
  case GGUF_I64: *out = (int64_t)read_bits(value->data + 8 * (size_t)index, 8); return true;
  default: return false;
  }
}

bool gguf_double(const gguf_value_t *value, uint32_t index, double *out) {
  int64_t number;
  if (value == NULL || index >= value->count) return false;
  if (value->element == GGUF_F32) {
    *out = (double)float_from_bits((uint32_t)read_bits(value->data + 4 * (size_t)index, 4));
    return true;
  }
  if (value->element == GGUF_F64) {
    uint64_t bits = read_bits(value->data + 8 * (size_t)index, 8);
    memcpy(out, &bits, sizeof(*out));
    return true;
  }
  if (!gguf_int(value, index, &number)) return false;
  *out = (double)number;
  return true;
}

bool gguf_bool(const gguf_value_t *value, uint32_t index, bool *out) {
  if (value == NULL || index >= value->count || value->element != GGUF_BOOL) return false;
  *out = value->data[index] != 0;
  return true;
}

bool gguf_next_string(const gguf_value_t *value, size_t *at, const char **text, size_t *length) {
  if (value == NULL || value->element != GGUF_STRING || *at >= value->length) return false;
  if (value->kind == GGUF_STRING) {
    *text = (const char *)value->data;
    *length = *at = value->length;
    return true;
  }
  *length = (size_t)read_bits(value->data + *at, 8); /* within the array: checked when parsed */
  *text = (const char *)value->data + *at + 8;
  *at += 8 + *length;
  return true;
}

size_t gguf_num_tensors(const gguf_t *gguf) {
  return gguf->num_tensors;
}

const gguf_tensor_t *gguf_tensor_at(const gguf_t *gguf, size_t index) {
  return &gguf->tensors[index];
}

const gguf_tensor_t *gguf_tensor(const gguf_t *gguf, const char *name) {
  gguf_tensor_t wanted = {.name = (char *)(uintptr_t)name};
  if (gguf->num_tensors == 0) return NULL;
  return bsearch(&wanted, gguf->tensors, gguf->num_tensors, sizeof(*gguf->tensors), by_name);
}

const mapping_t *gguf_mapping(const gguf_t *gguf, int32_t file) {
  return gguf->files[file].mapping;
}

int gguf_intact(const gguf_t *gguf, inferd_error_t *error) {
  for (int32_t i = 0; i < gguf->num_files; i++) {
    if (mapping_intact(gguf->files[i].mapping)) continue;
    return error_set(error, ERR_IO, NULL,
                     "%s: the file changed its size or could not be read while it was loaded",
                     gguf->files[i].path);
  }
  return 0;
}
