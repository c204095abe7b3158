/* torch_file.c: where the pickle and the storages of a file of torch.save are.
 *
 * A zip archive has NAME/data.pkl, NAME/byteorder and NAME/data/KEY for each storage, all of them
 * uncompressed. The older form is a magic number, a version, a description of the machine, the
 * dictionary and the list of keys, each a pickle, and then the storages in the order of that list,
 * each behind its number of elements. Any thread; reads no storage.
 */
#include "engine/file/torch_file.h"

#include "engine/base/checked.h"
#include "engine/base/utf8.h"
#include "engine/base/util.h"
#include "engine/file/mapping.h"
#include "engine/file/zip.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DIRECTORY_MAX = 64 << 20, FIRST_READ = 1 << 20 };

/* The numbers of one storage. */
typedef struct storage_place {
  const char *key;
  size_t key_length, begin, bytes;
  uint32_t element_bytes; /* 0: no tensor of the pickle uses it */
} storage_place_t;

struct torch_file {
  mapping_t *mapping;
  const char *path;   /* while it is opened */
  uint8_t *directory; /* of the archive: keys are bytes of it */
  uint8_t *program;   /* the pickle: texts are bytes of it */
  pickle_t pickle;
  storage_place_t *pieces, **sorted; /* sorted: by key */
  size_t num_pieces;
  torch_tensor_t *tensors; /* sorted by name */
  size_t num_tensors;
  inferd_error_t *error;
};

__attribute__((format(printf, 2, 3))) static int refuse(const torch_file_t *file,
                                                        const char *format, ...) {
  char reason[ERROR_MESSAGE_MAX - 160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  return error_set(file->error, ERR_MODEL_MALFORMED, NULL, "%s: %s", file->path, reason);
}

static int no_memory(const torch_file_t *file) {
  return error_set(file->error, ERR_NO_MEMORY, NULL, "%s: no memory", file->path);
}

/* Copies bytes of the file, so that what is checked stays as it is. NULL and *code on failure. */
static uint8_t *copy_of(const torch_file_t *file, size_t begin, size_t bytes, int *code) {
  uint8_t *copy = malloc(bytes > 0 ? bytes : 1);
  if (copy == NULL) {
    *code = no_memory(file);
  } else if (!mapping_read(file->mapping, copy, bytes, begin)) {
    *code = error_set(file->error, ERR_IO, NULL, "%s: cannot be read", file->path);
    free(copy);
    copy = NULL;
  }
  return copy;
}

/* ---- pieces by their keys ---- */

static int compare_keys(const char *left, size_t left_length, const char *right,
                        size_t right_length) {
  int order = memcmp(left, right, MIN(left_length, right_length));
  return order != 0 ? order : (left_length > right_length) - (left_length < right_length);
}

static int by_key(const void *left, const void *right) {
  const storage_place_t *first = *(storage_place_t *const *)left,
                        *second = *(storage_place_t *const *)right;
  return compare_keys(first->key, first->key_length, second->key, second->key_length);
}

static int sort_pieces(torch_file_t *file) {
  file->sorted = calloc(file->num_pieces + 1, sizeof *file->sorted);
  if (file->sorted == NULL) return no_memory(file);
  for (size_t i = 0; i < file->num_pieces; i++) file->sorted[i] = &file->pieces[i];
  qsort(file->sorted, file->num_pieces, sizeof *file->sorted, by_key);
  for (size_t i = 1; i < file->num_pieces; i++) {
    if (by_key(&file->sorted[i - 1], &file->sorted[i]) == 0)
      return refuse(file, "two storages have the same key");
  }
  return 0;
}

static storage_place_t *find_piece(const torch_file_t *file, const char *key, size_t length) {
  size_t low = 0, high = file->num_pieces;
  while (low < high) {
    const size_t middle = low + (high - low) / 2;
    storage_place_t *piece = file->sorted[middle];
    const int order = compare_keys(key, length, piece->key, piece->key_length);
    if (order == 0) return piece;
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

static storage_place_t *piece_of_storage(const torch_file_t *file,
                                         const pickle_storage_t *storage) {
  return find_piece(file, (const char *)file->program + storage->key.number, storage->key.count);
}

/* ---- a zip archive ---- */

/* True if the piece is NAME/`path`...; then the key loses that part. */
static bool strip(storage_place_t *piece, size_t prefix, const char *path) {
  const size_t length = strlen(path);
  if (piece->key_length < prefix + length || memcmp(piece->key + prefix, path, length) != 0)
    return false;
  piece->key += prefix + length, piece->key_length -= prefix + length;
  return true;
}

static bool read_mapping(const void *archive, void *out, size_t bytes, size_t at) {
  return mapping_read(archive, out, bytes, at);
}

/* Finds the storages, the pickle and the order of bytes. */
static int read_directory(torch_file_t *file, storage_place_t *pickle) {
  const zip_source_t source = {read_mapping, file->mapping, mapping_size(file->mapping)};
  zip_directory_t directory = {0};
  size_t at = 0, prefix = 0;
  int code = 0;
  const char *wrong = zip_find_directory(&source, &directory);
  if (wrong != NULL) return refuse(file, "%s", wrong);
  if (directory.bytes > DIRECTORY_MAX)
    return refuse(file, "the directory of the archive is damaged");
  file->directory = copy_of(file, directory.begin, directory.bytes, &code);
  if (code != 0) return code;
  file->pieces = calloc(directory.count + 1, sizeof *file->pieces);
  if (file->pieces == NULL) return no_memory(file);
  for (size_t i = 0; i < directory.count; i++) {
    zip_part_t part;
    char order[8] = "";
    wrong = zip_next(&source, file->directory, directory.bytes, &at, &part);
    if (wrong != NULL) return refuse(file, "%s", wrong);
    storage_place_t piece = {part.name, part.name_length, part.begin, part.bytes, 0};
    const char *slash = memchr(piece.key, '/', piece.key_length);
    if (i == 0) prefix = slash != NULL ? (size_t)(slash - piece.key) + 1 : 0;
    if (piece.key_length < prefix ||
        memcmp(piece.key, file->directory + ZIP_ENTRY_BYTES, prefix) != 0)
      return refuse(file, "the archive has several folders");
    if (strip(&piece, prefix, "data/")) {
      file->pieces[file->num_pieces++] = piece;
    } else if (strip(&piece, prefix, "data.pkl") && piece.key_length == 0) {
      *pickle = piece;
    } else if (strip(&piece, prefix, "byteorder") && piece.key_length == 0 &&
               (!mapping_read(file->mapping, order, MIN(piece.bytes, sizeof order - 1),
                              piece.begin) ||
                strcmp(order, "little") != 0)) {
      return refuse(file, "its numbers are not little endian");
    }
  }
  return sort_pieces(file);
}

static int open_archive(torch_file_t *file, pickle_value_t *root) {
  storage_place_t pickle = {.key = NULL};
  int code = read_directory(file, &pickle);
  if (code != 0) return code;
  if (pickle.bytes == 0)
    return refuse(file, "the archive has no data.pkl, so torch.save has not written it");
  if (pickle.bytes > TORCH_PICKLE_MAX)
    return refuse(file, "data.pkl has %zu bytes, at most %d", pickle.bytes, TORCH_PICKLE_MAX);
  file->program = copy_of(file, pickle.begin, pickle.bytes, &code);
  if (code != 0) return code;
  file->pickle.data = file->program, file->pickle.size = pickle.bytes;
  return pickle_run(&file->pickle, root);
}

/* ---- the older form ---- */

/* PROTO 2, the magic number and version 1001, each with its STOP. */
static const uint8_t old_start[] = {0x80, 2,    0x8A, 0x0A, 0x6C, 0xFC, 0x9C,
                                    0x46, 0xF9, 0x20, 0x6A, 0xA8, 0x50, 0x19,
                                    '.',  0x80, 2,    'M',  0xE9, 3,    '.'};

/* Takes the keys from the list, in its order. */
static int take_keys(torch_file_t *file, const pickle_value_t *list) {
  size_t count;
  const pickle_node_t *nodes = pickle_nodes(&file->pickle, &count);
  file->pieces = calloc(count + 1, sizeof *file->pieces);
  if (file->pieces == NULL) return no_memory(file);
  if (list->kind != PICKLE_LIST) return refuse(file, "the keys of its storages are no list");
  for (size_t i = 0; i < count; i++) {
    if (nodes[i].container != list->number) continue;
    if (nodes[i].value.kind != PICKLE_TEXT)
      return refuse(file, "the key of a storage is %s", pickle_kind_name(nodes[i].value.kind));
    file->pieces[file->num_pieces++] =
        (storage_place_t){.key = (const char *)file->program + nodes[i].value.number,
                          .key_length = nodes[i].value.count};
  }
  return sort_pieces(file);
}

/* Walks over the storages: only the pickle knows how large their elements are. */
static int place_pieces(torch_file_t *file) {
  size_t count, at = file->pickle.at;
  const size_t size = mapping_size(file->mapping);
  const pickle_storage_t *storages = pickle_storages(&file->pickle, &count);
  for (size_t i = 0; i < count; i++) {
    storage_place_t *piece = piece_of_storage(file, &storages[i]);
    if (piece == NULL) return refuse(file, "a storage is not in the list of keys");
    if (piece->element_bytes != 0 && piece->element_bytes != storages[i].element_bytes)
      return refuse(file, "a storage has elements of two sizes");
    piece->element_bytes = storages[i].element_bytes;
  }
  for (size_t i = 0; i < file->num_pieces; i++) {
    storage_place_t *piece = &file->pieces[i];
    uint8_t text[8];
    if (piece->element_bytes == 0) return refuse(file, "a storage belongs to no tensor");
    if (size - at < 8 || !mapping_read(file->mapping, text, 8, at) ||
        !checked_mul(zip_number(text, 8), piece->element_bytes, &piece->bytes) ||
        size - at - 8 < piece->bytes)
      return refuse(file, "a storage reaches behind the file: the file is cut off");
    piece->begin = at + 8;
    at = piece->begin + piece->bytes;
  }
  return 0;
}

static int run_pickles(torch_file_t *file, pickle_value_t *root) {
  pickle_value_t machine, keys;
  size_t count;
  file->pickle.at = sizeof old_start;
  int code = pickle_run(&file->pickle, &machine);
  const pickle_node_t *nodes = pickle_nodes(&file->pickle, &count);
  for (size_t i = 0; code == 0 && i < count; i++) {
    const pickle_value_t *key = &nodes[i].key, *value = &nodes[i].value;
    static const char order[] = "little_endian";
    if (key->kind == PICKLE_TEXT && key->count == sizeof order - 1 &&
        memcmp(file->program + key->number, order, sizeof order - 1) == 0 &&
        (value->kind != PICKLE_BOOL || value->number != 1))
      return refuse(file, "its numbers are not little endian");
  }
  if (code == 0) code = pickle_run(&file->pickle, root);
  if (code == 0) code = pickle_run(&file->pickle, &keys);
  return code != 0 ? code : take_keys(file, &keys);
}

/* How long the pickles are stands nowhere: twice as much is read as long as they end too early. */
static int open_row(torch_file_t *file, pickle_value_t *root) {
  const size_t size = MIN(mapping_size(file->mapping), (size_t)TORCH_PICKLE_MAX);
  for (size_t bytes = MIN(size, (size_t)FIRST_READ);; bytes = MIN(size, 2 * bytes)) {
    int code = 0;
    file->program = copy_of(file, 0, bytes, &code);
    if (code != 0) return code;
    file->pickle.data = file->program, file->pickle.size = bytes;
    code = run_pickles(file, root);
    if (code == 0) return place_pieces(file);
    if (bytes == size || !file->pickle.is_cut) return code;
    pickle_free(&file->pickle);
    file->pickle.is_cut = false;
    free(file->program);
    file->program = NULL;
  }
}

/* ---- the dictionary ---- */

static int take_tensor(torch_file_t *file, const pickle_node_t *node) {
  const char *text = (const char *)file->program + node->key.number;
  const size_t length = node->key.count;
  char shown[96];
  if (node->key.kind != PICKLE_TEXT)
    return refuse(file, "a key of its dictionary is %s", pickle_kind_name(node->key.kind));
  error_quote(shown, sizeof shown, text, length);
  if (node->value.kind != PICKLE_TENSOR)
    return refuse(file, "\"%s\" is %s; read is one dictionary of tensors (a state_dict)", shown,
                  pickle_kind_name(node->value.kind));
  if (length == 0 || length > TORCH_NAME_MAX || memchr(text, 0, length) != NULL ||
      !utf8_valid(text, length))
    return refuse(file, "\"%s\" is no name of a tensor: 1 to %d bytes of UTF-8 without NUL", shown,
                  TORCH_NAME_MAX);
  size_t count;
  const pickle_tensor_t *form = &pickle_tensors(&file->pickle)[node->value.number];
  const pickle_storage_t *storage = &pickle_storages(&file->pickle, &count)[form->storage];
  const storage_place_t *piece = piece_of_storage(file, storage);
  if (piece == NULL || piece->bytes != storage->bytes)
    return refuse(file, "tensor %s: its storage %s", shown,
                  piece == NULL ? "is not in the file" : "has another size than the pickle says");
  torch_tensor_t *tensor = &file->tensors[file->num_tensors];
  *tensor = (torch_tensor_t){.name = strndup(text, length),
                             .form = *form,
                             .data = mapping_data(file->mapping) + piece->begin};
  if (tensor->name == NULL) return no_memory(file);
  file->num_tensors++;
  return 0;
}

static int by_name(const void *left, const void *right) {
  const torch_tensor_t *first = left, *second = right;
  return strcmp(first->name, second->name);
}

static int take_tensors(torch_file_t *file, const pickle_value_t *root) {
  size_t count;
  const pickle_node_t *nodes = pickle_nodes(&file->pickle, &count);
  char shown[96];
  if (root->kind != PICKLE_DICT)
    return refuse(file, "holds %s; read is one dictionary of tensors (a state_dict)",
                  pickle_kind_name(root->kind));
  file->tensors = calloc(count + 1, sizeof *file->tensors);
  if (file->tensors == NULL) return no_memory(file);
  for (size_t i = 0; i < count; i++) {
    int code = nodes[i].container == root->number ? take_tensor(file, &nodes[i]) : 0;
    if (code != 0) return code;
  }
  qsort(file->tensors, file->num_tensors, sizeof *file->tensors, by_name);
  for (size_t i = 1; i < file->num_tensors; i++) {
    const char *name = file->tensors[i].name;
    if (strcmp(file->tensors[i - 1].name, name) == 0)
      return refuse(file, "tensor %s is there twice",
                    error_quote(shown, sizeof shown, name, strlen(name)));
  }
  return 0;
}

static int read_file(torch_file_t *file) {
  uint8_t start[sizeof old_start] = {0};
  const size_t size = mapping_size(file->mapping);
  pickle_value_t root;
  file->pickle.path = file->path, file->pickle.error = file->error;
  if (!mapping_read(file->mapping, start, MIN(size, sizeof start), 0))
    return error_set(file->error, ERR_IO, NULL, "%s: cannot be read", file->path);
  int code;
  if (memcmp(start, "PK\3\4", 4) == 0) {
    code = open_archive(file, &root);
  } else if (memcmp(start, old_start, sizeof start) == 0) {
    code = open_row(file, &root);
  } else if (memcmp(start, "version ", 8) == 0) {
    code = refuse(file, "is a pointer of Git LFS, not the weights; fetch them with git lfs pull");
  } else {
    code = refuse(file, "does not begin as torch.save writes it");
  }
  return code != 0 ? code : take_tensors(file, &root);
}

int torch_file_open(const char *path, torch_file_t **out, inferd_error_t *error) {
  torch_file_t *file = calloc(1, sizeof *file);
  if (file == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
  file->path = path, file->error = error;
  int code = mapping_open(AT_FDCWD, path, path, &file->mapping, error);
  if (code == 0) code = read_file(file);
  if (code != 0) {
    torch_file_close(file);
    return code;
  }
  *out = file;
  return 0;
}

void torch_file_close(torch_file_t *file) {
  if (file == NULL) return;
  for (size_t i = 0; i < file->num_tensors; i++) free(file->tensors[i].name);
  pickle_free(&file->pickle);
  mapping_close(file->mapping);
  free(file->tensors);
  free(file->sorted);
  free(file->pieces);
  free(file->program);
  free(file->directory);
  free(file);
}

size_t torch_file_count(const torch_file_t *file) {
  return file->num_tensors;
}

const torch_tensor_t *torch_file_at(const torch_file_t *file, size_t index) {
  return &file->tensors[index];
}

size_t torch_file_size(const torch_file_t *file) {
  return mapping_size(file->mapping);
}

bool torch_file_intact(const torch_file_t *file) {
  return mapping_intact(file->mapping);
}

/* True if the elements stand one behind the other in the order of the dimensions. */
static bool is_dense(const pickle_tensor_t *form) {
  size_t expected = 1;
  for (int32_t i = form->rank; i-- > 0;) {
    if (form->shape[i] != 1 && form->stride[i] != expected) return false;
    expected *= form->shape[i];
  }
  return true;
}

void torch_tensor_read(const torch_tensor_t *tensor, size_t first, size_t count, uint8_t *out) {
  const pickle_tensor_t *form = &tensor->form;
  const size_t bytes = form->element_bytes;
  const uint8_t *start = tensor->data + form->offset * bytes;
  if (is_dense(form)) {
    memcpy(out, start + first * bytes, count * bytes);
    return;
  }
  for (size_t i = first; i < first + count; i++, out += bytes) {
    size_t rest = i, at = 0;
    for (int32_t d = form->rank; d-- > 0; rest /= form->shape[d])
      at += rest % form->shape[d] * form->stride[d];
    memcpy(out, start + at * bytes, bytes);
  }
}
