/* safetensors.c: one file's header, checked, and the set of files of a model directory.
 *
 * Format: a little-endian u64 n, n bytes of JSON (name -> dtype, shape, data_offsets), then data.
 * Every size is checked with overflow-proof arithmetic, and the tensors must tile the data section
 * exactly. Runs on the engine thread while a model loads. Never reads weights.
 */
#include "engine/model/source/safetensors.h"

#include "engine/base/checked.h"
#include "engine/base/json.h"
#include "engine/base/util.h"
#include "engine/file/gguf.h"
#include "engine/file/mapping.h"
#include "engine/model/source/hub_cache.h"
#include "engine/model/source/model_file.h"
#include "engine/model/source/pickled.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INDEX_BYTES_MAX = 64 << 20, METADATA_BYTES_MAX = 1 << 20 };

typedef struct shard {
  char *name;
  mapping_t *mapping;
} shard_t;

/* A row of an index. */
typedef struct indexed {
  char *name; /* of the tensor, owned */
  int32_t shard;
} indexed_t;

struct weight_files {
  char *dir;
  int dir_fd;
  shard_t *shards;
  int32_t num_shards;
  stored_tensor_t *tensors; /* sorted by name once all shards are open */
  size_t num_tensors, capacity;
  indexed_t *index; /* sorted by name; while the files are opened */
  size_t num_indexed;
  gguf_t *gguf;   /* in the place of the shards */
  char note[640]; /* see weight_files_note */
};

/* Bits of an element of every type that the format knows. */
static const struct {
  const char *name;
  unsigned bits;
} element_types[] = {
    {"F64", 64},    {"F32", 32},    {"F16", 16},    {"BF16", 16},   {"I64", 64},
    {"I32", 32},    {"I16", 16},    {"I8", 8},      {"U64", 64},    {"U32", 32},
    {"U16", 16},    {"U8", 8},      {"BOOL", 8},    {"F4", 4},      {"F6_E2M3", 6},
    {"F6_E3M2", 6}, {"F8_E5M2", 8}, {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"C64", 64},
};

static const json_limits_t header_limits = {
    .depth_max = 8, .values_max = 8000000, .key_bytes_max = TENSOR_NAME_MAX, .allow_nul = false};

/* Where a message points: the file and its directory. */
typedef struct file_place {
  char path[384];
} file_place_t;

static file_place_t place_of(const weight_files_t *files, const char *name) {
  file_place_t place;
  model_file_path(place.path, sizeof(place.path), files->dir, name);
  return place;
}

static unsigned element_bits(const json_t *type) {
  for (size_t i = 0; i < ARRAY_LEN(element_types); i++) {
    if (json_equals(type, element_types[i].name)) return element_types[i].bits;
  }
  return 0;
}

static int malformed(const char *path, const json_t *entry, const char *what,
                     inferd_error_t *error) {
  char name[96];
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: tensor %s: %s", path,
                   error_quote(name, sizeof(name), entry->key, entry->key_length), what);
}

/* Reads dtype, shape and data_offsets of one entry; the sizes must agree with each other. */
static int read_entry(const char *path, const json_t *entry, stored_tensor_t *out,
                      inferd_error_t *error) {
  const json_t *type = json_get(entry, "dtype"), *shape = json_get(entry, "shape");
  const json_t *offsets = json_get(entry, "data_offsets");
  if (entry->type != JSON_OBJECT || type == NULL || shape == NULL || offsets == NULL ||
      shape->type != JSON_ARRAY || offsets->type != JSON_ARRAY || offsets->count != 2) {
    return malformed(path, entry, "needs dtype, shape and data_offsets [begin, end]", error);
  }
  unsigned bits = element_bits(type);
  if (bits == 0) {
    char text[64], what[128];
    error_quote(text, sizeof(text), type->type == JSON_STRING ? type->text : "?",
                type->type == JSON_STRING ? type->length : 1);
    snprintf(what, sizeof(what), "dtype \"%s\" is not known", text);
    return malformed(path, entry, what, error);
  }
  memcpy(out->type, type->text, type->length);
  out->type[type->length] = '\0';
  if (shape->count > TENSOR_RANK_MAX) {
    return malformed(path, entry, "has more than 8 dimensions", error);
  }
  size_t elements = 1, total_bits = 0;
  JSON_EACH(dimension, shape) {
    int64_t size;
    if (!json_int64(dimension, &size) || size < 1) {
      return malformed(path, entry, "every dimension must be an integer of at least 1", error);
    }
    if (!checked_mul(elements, (size_t)size, &elements)) {
      return malformed(path, entry, "the product of its dimensions overflows", error);
    }
    out->shape[out->rank++] = size;
  }
  int64_t begin, end;
  if (!json_int64(json_first(offsets), &begin) ||
      !json_int64(json_next(json_first(offsets)), &end) || begin < 0 || end < begin) {
    return malformed(path, entry, "data_offsets must be integers with 0 <= begin <= end", error);
  }
  if (!checked_mul(elements, bits, &total_bits) || total_bits % 8 != 0 ||
      total_bits / 8 != (size_t)(end - begin)) {
    return malformed(path, entry, "shape and dtype do not fill its data_offsets", error);
  }
  out->begin = (size_t)begin;
  out->bytes = total_bits / 8;
  return 0;
}

static int check_metadata(const char *path, const json_t *metadata, inferd_error_t *error) {
  size_t bytes = 0;
  bool good = metadata->type == JSON_OBJECT;
  JSON_EACH(value, metadata) {
    good = good && value->type == JSON_STRING;
    bytes += (size_t)value->length + value->key_length;
  }
  if (good && bytes <= METADATA_BYTES_MAX) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "%s: __metadata__ must map strings to strings, at most 1 MiB in all", path);
}

static int grow(weight_files_t *files, size_t more, inferd_error_t *error) {
  size_t wanted;
  if (!checked_add(files->num_tensors, more, &wanted)) {
    return error_set(error, ERR_NO_MEMORY, NULL, "%s: too many tensors", files->dir);
  }
  if (wanted <= files->capacity) return 0;
  wanted = MAX(wanted, 2 * files->capacity); /* of memory that is there already: no overflow */
  stored_tensor_t *tensors = reallocarray(files->tensors, wanted, sizeof(stored_tensor_t));
  if (tensors == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", files->dir);
  files->tensors = tensors;
  files->capacity = wanted;
  return 0;
}

static int by_begin(const void *left, const void *right) {
  const stored_tensor_t *first = left, *second = right;
  return (first->begin > second->begin) - (first->begin < second->begin);
}

static int by_name(const void *left, const void *right) {
  const stored_tensor_t *first = left, *second = right;
  return strcmp(first->name, second->name);
}

/* The tensors of one file must lie one after the other from 0 to the end of the file. */
static int check_tiling(const char *path, stored_tensor_t *tensors, size_t count, size_t data_bytes,
                        inferd_error_t *error) {
  if (count > 0) qsort(tensors, count, sizeof(*tensors), by_begin);
  size_t expected = 0;
  char name[96];
  for (size_t i = 0; i < count; i++) {
    if (tensors[i].begin != expected) {
      error_quote(name, sizeof(name), tensors[i].name, strlen(tensors[i].name));
      return error_set(error, ERR_MODEL_MALFORMED, NULL,
                       "%s: tensor %s begins at byte %zu of the data, expected %zu: %s", path, name,
                       tensors[i].begin, expected,
                       tensors[i].begin < expected ? "tensors overlap" : "there is a hole");
    }
    if (!checked_add(expected, tensors[i].bytes, &expected)) {
      return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: sizes overflow", path);
    }
  }
  if (expected == data_bytes) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "%s: header says %zu bytes of data, file has %zu: the file is %s", path,
                   expected, data_bytes, expected > data_bytes ? "truncated" : "too long");
}

/* The name of an entry. Files of before 2020 call the weight of a norm gamma and its bias beta;
 * transformers 5.23 saves the layers of the texts of Kimi K2.5 and Qianfan-OCR as those of their
 * towers. It reads all of these. NULL: no memory. */
static char *entry_name(const char *key, size_t length) {
  static const char *const old[][2] = {{"LayerNorm.gamma", "weight"}, {"LayerNorm.beta", "bias"}};
  static const char *const layers[] = {"language_model.model.blocks.",
                                       "language_model.model.encoder.layers."};
  for (size_t i = 0; i < ARRAY_LEN(layers); i++) {
    const size_t begin = strlen(layers[i]);
    if (length < begin || memcmp(key, layers[i], begin) != 0) continue;
    char *name = NULL;
    const int rest = (int)(length - begin);
    return asprintf(&name, "language_model.model.layers.%.*s", rest, key + begin) < 0 ? NULL : name;
  }
  for (size_t i = 0; i < ARRAY_LEN(old); i++) {
    const size_t tail = strlen(old[i][0]), stem = tail - strlen(strchr(old[i][0], '.') + 1);
    if (length < tail || memcmp(key + length - tail, old[i][0], tail) != 0) continue;
    char *name = NULL;
    const int kept = (int)(length - tail + stem);
    return asprintf(&name, "%.*s%s", kept, key, old[i][1]) < 0 ? NULL : name;
  }
  return strndup(key, length);
}

/* Adds the tensors of a parsed header to the list. */
static int add_entries(weight_files_t *files, int32_t shard, const char *path, const json_t *root,
                       size_t data_start, inferd_error_t *error) {
  const mapping_t *mapping = files->shards[shard].mapping;
  size_t first = files->num_tensors;
  int code = 0;
  for (const json_t *json = json_first(root); code == 0 && json != NULL; json = json_next(json)) {
    if (json->key_length == 12 && memcmp(json->key, "__metadata__", 12) == 0) {
      code = check_metadata(path, json, error);
      continue;
    }
    if (json->key_length == 0 || memchr(json->key, 0, json->key_length) != NULL) {
      return malformed(path, json, "the name is empty or holds a NUL", error);
    }
    stored_tensor_t tensor = {.shard = shard};
    code = read_entry(path, json, &tensor, error);
    if (code == 0) code = grow(files, 1, error);
    if (code != 0) break;
    tensor.name = entry_name(json->key, json->key_length);
    if (tensor.name == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
    files->tensors[files->num_tensors++] = tensor;
  }
  if (code != 0) return code;
  size_t count = files->num_tensors - first, data_bytes = mapping_size(mapping) - data_start;
  stored_tensor_t *own = count == 0 ? NULL : files->tensors + first;
  code = check_tiling(path, own, count, data_bytes, error);
  if (code != 0) return code;
  for (size_t i = first; i < files->num_tensors; i++) {
    files->tensors[i].data = mapping_data(mapping) + data_start + files->tensors[i].begin;
    files->tensors[i].begin += data_start;
  }
  return 0;
}

static int read_header(weight_files_t *files, int32_t shard, inferd_error_t *error) {
  file_place_t place = place_of(files, files->shards[shard].name);
  const mapping_t *mapping = files->shards[shard].mapping;
  size_t size = mapping_size(mapping);
  uint8_t prefix[8];
  if (size < 8 || !mapping_read(mapping, prefix, 8, 0)) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: has %zu bytes, no header", place.path,
                     size);
  }
  if (memcmp(prefix, "version ", 8) == 0) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "%s: is a pointer of Git LFS, not the weights; fetch them with git lfs pull",
                     place.path);
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; i--) length = length << 8 | prefix[i];
  if (length < 2 || length > SAFETENSORS_HEADER_MAX || length > size - 8) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "%s: header length is %llu bytes, file has %zu, supported: 2..%d%s",
                     place.path, (unsigned long long)length, size, SAFETENSORS_HEADER_MAX,
                     length >= 2 && length <= SAFETENSORS_HEADER_MAX
                         ? "; its end is missing, so download it again"
                         : "");
  }
  char *text = malloc((size_t)length);
  if (text == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", place.path);
  json_doc_t *doc = NULL;
  inferd_error_t reason = {0};
  int code = 0;
  if (!mapping_read(mapping, text, (size_t)length, 8)) {
    code = error_set(error, ERR_IO, NULL, "%s: the header cannot be read", place.path);
  } else if (text[0] != '{') {
    code = error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: the header is not a JSON object",
                     place.path);
  } else if (json_parse(text, (size_t)length, &header_limits, &doc, &reason) != 0) {
    code =
        error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: header: %s", place.path, reason.message);
  } else {
    code = add_entries(files, shard, place.path, json_root(doc), 8 + (size_t)length, error);
  }
  json_free(doc);
  free(text);
  return code;
}

static int open_shard(weight_files_t *files, const char *name, size_t length,
                      inferd_error_t *error) {
  shard_t *shard = &files->shards[files->num_shards];
  *shard = (shard_t){.name = strndup(name, length)};
  if (shard->name == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", files->dir);
  files->num_shards++;
  file_place_t place = place_of(files, shard->name);
  int code = mapping_open(files->dir_fd, shard->name, place.path, &shard->mapping, error);
  return code != 0 ? code : read_header(files, files->num_shards - 1, error);
}

/* A shard name from the index must be a plain file name of the same directory. */
static bool plain_name(const json_t *name) {
  if (name->type != JSON_STRING || name->length == 0 || name->length > 255) return false;
  if (name->text[0] == '.' || memchr(name->text, 0, name->length) != NULL) return false;
  return memchr(name->text, '/', name->length) == NULL;
}

/* Finds the place of a shard among those that are open, by name: where it is, or would be. */
static int32_t place_of_shard(const weight_files_t *files, const int32_t *order, const json_t *name,
                              bool *found) {
  int32_t low = 0, high = files->num_shards;
  *found = false;
  while (low < high && !*found) {
    const int32_t middle = low + (high - low) / 2;
    const char *own = files->shards[order[middle]].name;
    const size_t length = strlen(own);
    int compared = memcmp(name->text, own, MIN(name->length, length));
    if (compared == 0) compared = (name->length > length) - (name->length < length);
    *found = compared == 0;
    if (*found || compared < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return high;
}

static int refuse_shard(const char *path, const json_t *entry, inferd_error_t *error) {
  char quoted[96];
  const bool is_text = entry->type == JSON_STRING;
  error_quote(quoted, sizeof(quoted), is_text ? entry->text : "?", is_text ? entry->length : 1);
  return error_set(error, ERR_MODEL_MALFORMED, NULL,
                   "%s: weight_map names shard \"%s\"; a shard is a plain file name in the "
                   "same directory",
                   path, quoted);
}

static int by_indexed_name(const void *left, const void *right) {
  const indexed_t *first = left, *second = right;
  return strcmp(first->name, second->name);
}

/* Opens the shards of the map, and makes the index. */
static int open_shards(weight_files_t *files, const char *path, const json_t *map,
                       inferd_error_t *error) {
  int32_t order[SHARDS_MAX]; /* the open shards by their names */
  int32_t last = -1;         /* tensors of a shard are listed together: try the last shard first */
  JSON_EACH(entry, map) {
    if (!plain_name(entry)) return refuse_shard(path, entry, error);
    if (last < 0 || !json_equals(entry, files->shards[last].name)) {
      bool found;
      const int32_t at = place_of_shard(files, order, entry, &found);
      last = found ? order[at] : files->num_shards;
      if (last == SHARDS_MAX)
        return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: more than %d shards", path,
                         SHARDS_MAX);
      int code = found ? 0 : open_shard(files, entry->text, entry->length, error);
      if (code != 0) return code;
      if (!found) {
        memmove(&order[at + 1], &order[at], (size_t)(last - at) * sizeof *order);
        order[at] = last;
      }
    }
    indexed_t *row = &files->index[files->num_indexed];
    *row = (indexed_t){.name = entry_name(entry->key, entry->key_length), .shard = last};
    if (row->name == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
    files->num_indexed++;
  }
  qsort(files->index, files->num_indexed, sizeof *files->index, by_indexed_name);
  return 0;
}

/* Adds a sentence to the note, as long as there is room. */
__attribute__((format(printf, 2, 3))) static void add_note(weight_files_t *files,
                                                           const char *format, ...) {
  const size_t used = strlen(files->note);
  const char *between = used > 0 ? "; " : "";
  char text[320];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  snprintf(files->note + used, sizeof files->note - used, "%s%s", between, text);
}

static bool same_tensor(const stored_tensor_t *left, const stored_tensor_t *right) {
  return strcmp(left->type, right->type) == 0 && left->rank == right->rank &&
         memcmp(left->shape, right->shape, sizeof left->shape) == 0 &&
         memcmp(left->data, right->data, left->bytes) == 0;
}

/* The shard that the index names for a tensor; -1 if none. */
static int32_t indexed_shard(const weight_files_t *files, char *name) {
  const indexed_t wanted = {.name = name};
  const indexed_t *row =
      bsearch(&wanted, files->index, files->num_indexed, sizeof wanted, by_indexed_name);
  return row != NULL ? row->shard : -1;
}

/* Of `count` tensors of one name the one that counts: some repair a tensor by a further shard.
 * transformers takes the shard whose name sorts last, other programs the one that the index names:
 * where the two differ and so do the bytes, nobody knows. NULL then. */
static const stored_tensor_t *choose_copy(const weight_files_t *files,
                                          const stored_tensor_t *copies, size_t count) {
  const stored_tensor_t *last = &copies[0];
  bool same = true, one_file = false;
  for (size_t i = 1; i < count; i++) {
    same = same && same_tensor(&copies[0], &copies[i]);
    one_file = one_file || copies[i - 1].shard == copies[i].shard;
    if (strcmp(files->shards[copies[i].shard].name, files->shards[last->shard].name) > 0)
      last = &copies[i];
  }
  if (one_file || files->index == NULL) return NULL;
  return same || indexed_shard(files, last->name) == last->shard ? last : NULL;
}

static int sort_names(weight_files_t *files, inferd_error_t *error) {
  if (files->num_tensors > 0) {
    qsort(files->tensors, files->num_tensors, sizeof(*files->tensors), by_name);
  }
  size_t kept = 0, twice = 0;
  char name[96] = "";
  for (size_t i = 0, count; i < files->num_tensors; i += count) {
    stored_tensor_t *copies = &files->tensors[i];
    for (count = 1; i + count < files->num_tensors; count++) {
      if (strcmp(copies[0].name, copies[count].name) != 0) break;
    }
    const stored_tensor_t *chosen = count > 1 ? choose_copy(files, copies, count) : copies;
    if (chosen == NULL) {
      return error_set(error, ERR_MODEL_MALFORMED, NULL,
                       "%s: tensor %s is stored twice, in %s and %s", files->dir,
                       error_quote(name, sizeof(name), copies->name, strlen(copies->name)),
                       files->shards[copies[0].shard].name, files->shards[copies[1].shard].name);
    }
    if (count > 1 && twice++ == 0)
      error_quote(name, sizeof(name), copies->name, strlen(copies->name));
    const stored_tensor_t taken = *chosen;
    for (size_t k = 0; k < count; k++) {
      if (&copies[k] != chosen) free(copies[k].name);
      copies[k].name = NULL;
    }
    files->tensors[kept++] = taken;
  }
  files->num_tensors = kept;
  if (twice > 0)
    add_note(files, "%zu tensor%s stored in several shards, the last of which is used, first: %s",
             twice, twice == 1 ? " is" : "s are", name);
  return 0;
}

/* Counts where the index and the shards differ: a tensor that the model needs is looked for in
 * every shard, and its absence is an error of its own. */
static void check_index(weight_files_t *files) {
  size_t absent = 0, moved = 0;
  char first_absent[96] = "", first_moved[96] = "";
  for (size_t i = 0; i < files->num_indexed; i++) {
    const indexed_t *row = &files->index[i];
    const stored_tensor_t *tensor = weight_files_find(files, row->name);
    if (tensor == NULL && absent++ == 0)
      error_quote(first_absent, sizeof(first_absent), row->name, strlen(row->name));
    if (tensor != NULL && row->shard != tensor->shard && moved++ == 0)
      error_quote(first_moved, sizeof(first_moved), row->name, strlen(row->name));
  }
  if (absent > 0)
    add_note(files, "%zu tensor%s of the index in no shard, first: %s", absent,
             absent == 1 ? " is" : "s are", first_absent);
  if (moved > 0)
    add_note(files, "%zu tensor%s in another shard than the index says, first: %s", moved,
             moved == 1 ? " is" : "s are", first_moved);
}

static int open_index(weight_files_t *files, const json_t *root, const char *path,
                      inferd_error_t *error) {
  const json_t *map = json_get(root, "weight_map");
  if (map == NULL || map->type != JSON_OBJECT || map->count == 0) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: has no weight_map", path);
  }
  files->shards = calloc(SHARDS_MAX, sizeof(*files->shards));
  files->index = calloc((size_t)map->count, sizeof *files->index);
  if (files->shards == NULL || files->index == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
  int code = open_shards(files, path, map, error);
  if (code == 0) code = sort_names(files, error);
  if (code == 0) check_index(files);
  for (size_t i = 0; i < files->num_indexed; i++) free(files->index[i].name);
  free(files->index);
  files->index = NULL;
  return code;
}

static int not_converted(const weight_files_t *files, const char *wanted, inferd_error_t *error) {
  return error_set(error, ERR_MODEL_MISSING, NULL,
                   "no %s in %s, which has pickle files; a server reads none: make safetensors of "
                   "them by: inferd convert %s",
                   wanted, files->dir, files->dir);
}

/* Makes the error for a directory without safetensors; it names what the directory has instead. */
static int no_weights(const weight_files_t *files, inferd_error_t *error) {
  char pickle[64] = "";
  bool own_layout = false; /* Mistral's */
  int fd = dup(files->dir_fd);
  DIR *stream = fd >= 0 ? fdopendir(fd) : NULL;
  if (stream == NULL && fd >= 0) close(fd);
  for (struct dirent *entry = NULL; stream != NULL && (entry = readdir(stream)) != NULL;) {
    const char *dot = strrchr(entry->d_name, '.');
    own_layout = own_layout || strcmp(entry->d_name, "consolidated.safetensors") == 0;
    if (dot == NULL) continue;
    if (strcmp(dot, ".bin") != 0 && strcmp(dot, ".pt") != 0 && strcmp(dot, ".pth") != 0) continue;
    error_quote(pickle, sizeof(pickle), entry->d_name, strlen(entry->d_name));
  }
  if (stream != NULL) closedir(stream);
  if (pickled_is_in(files->dir)) return not_converted(files, "model.safetensors", error);
  if (own_layout) {
    return error_set(error, ERR_MODEL_MISSING, NULL,
                     "no model.safetensors in %s; consolidated.safetensors has Mistral's own names "
                     "and is not read: get model*.safetensors of the same repository too",
                     files->dir);
  }
  if (pickle[0] == '\0') {
    return error_set(
        error, ERR_MODEL_MISSING, NULL,
        "%s: no model.safetensors and no model.safetensors.index.json; the weights are missing "
        "or have other names",
        files->dir);
  }
  return error_set(error, ERR_MODEL_MISSING, NULL,
                   "no model.safetensors in %s; pickle files (%s) are never read, because reading "
                   "one runs code; save the model with safetensors",
                   files->dir, pickle);
}

static int open_one(weight_files_t *files, const char *name, inferd_error_t *error) {
  files->shards = calloc(1, sizeof(*files->shards));
  if (files->shards == NULL)
    return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", files->dir);
  int code = open_shard(files, name, strlen(name), error);
  return code != 0 ? code : sort_names(files, error);
}

/* `name`: the one file, or NULL for the weights of a model. */
static int open_all(weight_files_t *files, const char *name, inferd_error_t *error) {
  files->dir_fd = open(files->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (files->dir_fd < 0) {
    return error_system(error, files->dir, errno);
  }
  if (name != NULL) {
    int code = open_one(files, name, error);
    if (code == ERR_MODEL_MISSING && pickled_is_in(files->dir))
      return not_converted(files, name, error);
    return code;
  }
  model_file_t index;
  file_place_t place = place_of(files, "model.safetensors.index.json");
  int code = model_file_read(files->dir, "model.safetensors.index.json", INDEX_BYTES_MAX,
                             &header_limits, &index, error);
  if (code != 0) return code;
  if (index.doc != NULL) {
    code = open_index(files, json_root(index.doc), place.path, error);
    model_file_free(&index);
    return code;
  }
  if (faccessat(files->dir_fd, "model.safetensors", F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    return no_weights(files, error);
  }
  return open_one(files, "model.safetensors", error);
}

/* The tensors of a GGUF file under the same description. */
static int adopt_gguf(weight_files_t *files, inferd_error_t *error) {
  size_t count = gguf_num_tensors(files->gguf);
  int code = grow(files, count, error);
  for (size_t i = 0; code == 0 && i < count; i++) {
    const gguf_tensor_t *from = gguf_tensor_at(files->gguf, i);
    stored_tensor_t *tensor = &files->tensors[i];
    *tensor = (stored_tensor_t){.name = strdup(from->name),
                                .rank = from->rank,
                                .bytes = from->bytes,
                                .begin = from->begin,
                                .data = from->data,
                                .shard = from->file,
                                .quant = quant_by_gguf_type(from->type)};
    if (tensor->name == NULL)
      return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", files->dir);
    files->num_tensors++;
    snprintf(tensor->type, sizeof(tensor->type), "%s", gguf_type_name(from->type));
    memcpy(tensor->shape, from->shape, sizeof(from->shape));
  }
  return code;
}

static int open_gguf(const char *path, weight_files_t **out, inferd_error_t *error) {
  weight_files_t *files = calloc(1, sizeof(*files));
  if (files == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path);
  files->dir_fd = -1;
  files->dir = strdup(path);
  int code = files->dir == NULL ? error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", path)
                                : gguf_open(path, true, &files->gguf, error);
  if (code == 0) code = adopt_gguf(files, error);
  if (code != 0) {
    weight_files_close(files);
    return code;
  }
  *out = files;
  return 0;
}

int weight_files_open(const char *dir, weight_files_t **out, inferd_error_t *error) {
  char path[PATH_MAX];
  int found = gguf_find(dir, path, sizeof(path), error);
  if (found < 0) return found;
  if (found > 0) return open_gguf(path, out, error);
  int code = weight_files_open_file(dir, NULL, out, error);
  if (code == ERR_MODEL_MISSING) hub_advise(dir, error);
  return code;
}

int weight_files_open_file(const char *dir, const char *name, weight_files_t **out,
                           inferd_error_t *error) {
  weight_files_t *files = calloc(1, sizeof(*files));
  if (files == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", dir);
  files->dir_fd = -1;
  files->dir = strdup(dir);
  int code = files->dir == NULL ? error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", dir)
                                : open_all(files, name, error);
  if (code != 0) {
    weight_files_close(files);
    return code;
  }
  *out = files;
  return 0;
}

void weight_files_close(weight_files_t *files) {
  if (files == NULL) return;
  for (int32_t i = 0; i < files->num_shards; i++) {
    mapping_close(files->shards[i].mapping);
    free(files->shards[i].name);
  }
  for (size_t i = 0; i < files->num_tensors; i++) free(files->tensors[i].name);
  gguf_close(files->gguf);
  if (files->dir_fd >= 0) close(files->dir_fd);
  free(files->tensors);
  free(files->shards);
  free(files->dir);
  free(files);
}

const stored_tensor_t *weight_files_find(const weight_files_t *files, const char *name) {
  size_t low = 0, high = files->num_tensors;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    int order = strcmp(name, files->tensors[middle].name);
    if (order == 0) return &files->tensors[middle];
    if (order < 0)
      high = middle;
    else
      low = middle + 1;
  }
  return NULL;
}

size_t weight_files_count(const weight_files_t *files) {
  return files->num_tensors;
}

const stored_tensor_t *weight_files_at(const weight_files_t *files, size_t index) {
  return &files->tensors[index];
}

const char *weight_files_note(const weight_files_t *files) {
  return files->note;
}

const char *weight_files_path(const weight_files_t *files, const stored_tensor_t *tensor, char *out,
                              size_t capacity) {
  if (files->gguf == NULL)
    return model_file_path(out, capacity, files->dir, files->shards[tensor->shard].name);
  snprintf(out, capacity, "%s", files->dir);
  return out;
}

void weight_files_done(const weight_files_t *files, const stored_tensor_t *tensor) {
  const mapping_t *mapping = files->gguf != NULL ? gguf_mapping(files->gguf, tensor->shard)
                                                 : files->shards[tensor->shard].mapping;
  mapping_drop(mapping, tensor->begin, tensor->bytes);
}

int weight_files_intact(const weight_files_t *files, inferd_error_t *error) {
  if (files->gguf != NULL) return gguf_intact(files->gguf, error);
  for (int32_t i = 0; i < files->num_shards; i++) {
    if (mapping_intact(files->shards[i].mapping)) continue;
    file_place_t place = place_of(files, files->shards[i].name);
    return error_set(error, ERR_IO, NULL,
                     "%s: the file changed its size or could not be read while it was loaded",
                     place.path);
  }
  return 0;
}
