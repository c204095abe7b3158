/* pickled.c: reads the files of torch.save in a directory and writes their tensors as safetensors.
 *
 * A tensor is written whole, dense and in its own type, also when it shares its numbers with
 * another, because readers of safetensors look for each by its name. Runs in `inferd convert`
 * alone.
 */
#include "engine/model/source/pickled.h"

#include "engine/base/buffer.h"
#include "engine/base/checked.h"
#include "engine/base/util.h"
#include "engine/file/torch_file.h"
#include "engine/model/source/model_file.h"
#include "engine/model/source/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20, INDEX_BYTES_MAX = 64 << 20, GROWTH_MAX = 16 };

#define INDEX "pytorch_model.bin.index.json"
#define NEW_INDEX "model.safetensors.index.json"

static const json_limits_t index_limits = {
    .depth_max = 8, .values_max = 8000000, .key_bytes_max = TENSOR_NAME_MAX, .allow_nul = false};

/* In which of the new files a tensor is. */
typedef struct tensor_place {
  char *tensor; /* owned */
  const char *file;
} tensor_place_t;

/* A run: what it has written so far. */
typedef struct conversion {
  const char *dir;
  void (*say)(const char *line);
  char **names; /* of the new files, owned; NULL behind the last */
  size_t num_names;
  buffer_t places; /* tensor_place_t of every tensor, for the new index */
  size_t bytes;
  inferd_error_t *error;
} conversion_t;

static void path_of(const conversion_t *run, const char *name, const char *ending,
                    char out[PATH_MAX]) {
  int n = snprintf(out, PATH_MAX, "%s/%s%s", run->dir, name, ending);
  if (n < 0 || n >= PATH_MAX) out[0] = '\0'; /* no such file */
}

static bool has(const conversion_t *run, const char *name) {
  char path[PATH_MAX];
  path_of(run, name, "", path);
  return access(path, F_OK) == 0;
}

static int no_memory(const conversion_t *run) {
  return error_set(run->error, ERR_NO_MEMORY, NULL, "%.300s: no memory", run->dir);
}

/* ---- one file ---- */

/* Large elements first, so that every tensor begins at a multiple of its elements. */
static int by_element(const void *left, const void *right) {
  const torch_tensor_t *first = *(const torch_tensor_t *const *)left,
                       *second = *(const torch_tensor_t *const *)right;
  if (first->form.element_bytes != second->form.element_bytes)
    return first->form.element_bytes < second->form.element_bytes ? 1 : -1;
  return strcmp(first->name, second->name);
}

static size_t tensor_bytes(const torch_tensor_t *tensor) {
  return tensor->form.elements * tensor->form.element_bytes; /* not above its storage */
}

/* The header of safetensors, padded, behind its length. False when the tensors have together much
 * more than the file, of which they then are many views. */
static bool make_header(const torch_tensor_t *const *tensors, size_t count, size_t bytes_max,
                        buffer_t *out, size_t *total) {
  const uint64_t none = 0;
  buffer_append(out, &none, sizeof none);
  buffer_text(out, "{\"__metadata__\":{\"format\":\"pt\"}");
  *total = 0;
  for (size_t i = 0; i < count; i++) {
    const torch_tensor_t *tensor = tensors[i];
    buffer_char(out, ',');
    buffer_quote(out, tensor->name, strlen(tensor->name));
    buffer_text(out, ":{\"dtype\":\"");
    buffer_text(out, tensor->form.type);
    buffer_text(out, "\",\"shape\":[");
    for (int32_t d = 0; d < tensor->form.rank; d++) {
      if (d > 0) buffer_char(out, ',');
      buffer_uint(out, tensor->form.shape[d]);
    }
    buffer_text(out, "],\"data_offsets\":[");
    buffer_uint(out, *total);
    buffer_char(out, ',');
    if (!checked_add(*total, tensor_bytes(tensor), total) || *total > bytes_max) return false;
    buffer_uint(out, *total);
    buffer_text(out, "]}");
  }
  buffer_char(out, '}');
  while (!out->failed && out->length % 8 != 0) buffer_char(out, ' ');
  for (size_t i = 0; !out->failed && i < 8; i++)
    out->bytes[i] = (uint8_t)((uint64_t)(out->length - 8) >> (8 * i));
  return true;
}

static bool write_tensor(const torch_tensor_t *tensor, uint8_t *piece, FILE *out) {
  const size_t bytes = tensor->form.element_bytes, most = PIECE_BYTES / bytes;
  for (size_t at = 0; at < tensor->form.elements;) {
    const size_t count = MIN(most, tensor->form.elements - at);
    torch_tensor_read(tensor, at, count, piece);
    if (fwrite(piece, bytes, count, out) != count) return false;
    at += count;
  }
  return true;
}

/* Writes the file beside its place, and puts it there when it is on the disk. `write` returns false
 * with errno. */
static int place_file(const conversion_t *run, const char *name,
                      bool (*write)(const void *context, FILE *out), const void *context) {
  char part[PATH_MAX], path[PATH_MAX];
  path_of(run, name, ".part", part);
  path_of(run, name, "", path);
  int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  FILE *out = fd >= 0 ? fdopen(fd, "wb") : NULL;
  if (out == NULL) {
    const int number = errno;
    if (fd >= 0) close(fd);
    return error_system(run->error, part, number);
  }
  errno = 0;
  bool good = write(context, out) && fflush(out) == 0 && fsync(fd) == 0;
  int number = errno;
  good = fclose(out) == 0 && good;
  if (good && rename(part, path) != 0) good = false, number = errno;
  if (good) return 0;
  unlink(part);
  return error_set(run->error, ERR_IO, NULL, "%s: cannot be written: %s", path,
                   strerror(number != 0 ? number : EIO));
}

typedef struct new_file {
  const torch_tensor_t **tensors;
  size_t count;
  buffer_t header;
  uint8_t *piece;
} new_file_t;

static bool write_tensors(const void *context, FILE *out) {
  const new_file_t *list = context;
  bool good = fwrite(list->header.data, 1, list->header.length, out) == list->header.length;
  for (size_t i = 0; good && i < list->count; i++)
    good = write_tensor(list->tensors[i], list->piece, out);
  return good;
}

static int write_list(conversion_t *run, const torch_file_t *file, const char *from,
                      const char *name, new_file_t *list) {
  size_t total;
  char line[ERROR_MESSAGE_MAX];
  list->count = torch_file_count(file);
  list->tensors = calloc(list->count + 1, sizeof *list->tensors);
  list->piece = malloc(PIECE_BYTES);
  if (list->tensors == NULL || list->piece == NULL) return no_memory(run);
  for (size_t i = 0; i < list->count; i++) list->tensors[i] = torch_file_at(file, i);
  qsort(list->tensors, list->count, sizeof *list->tensors, by_element);
  if (!make_header(list->tensors, list->count, GROWTH_MAX * torch_file_size(file), &list->header,
                   &total))
    return error_set(
        run->error, ERR_MODEL_MALFORMED, NULL,
        "%.200s/%s: its tensors have together more than %d times the bytes of the file", run->dir,
        from, GROWTH_MAX);
  if (list->header.failed) return no_memory(run);
  char *own = run->names[run->num_names] = strdup(name);
  for (size_t i = 0; own != NULL && i < list->count; i++) {
    const tensor_place_t place = {.tensor = strdup(list->tensors[i]->name), .file = own};
    if (place.tensor == NULL || !buffer_append(&run->places, &place, sizeof place))
      return free(place.tensor), no_memory(run);
  }
  if (own == NULL) return no_memory(run);
  int code = place_file(run, name, write_tensors, list);
  if (code != 0) return code;
  run->bytes += total;
  run->num_names++;
  if (!torch_file_intact(file))
    return error_set(run->error, ERR_IO, NULL,
                     "%.300s/%s: the file changed its size or could not be read while it was read",
                     run->dir, from);
  snprintf(line, sizeof line, "wrote     %s: %zu tensor%s, %.2f GiB", name, list->count,
           list->count == 1 ? "" : "s", (double)total / (1 << 30));
  run->say(line);
  return 0;
}

static int convert_file(conversion_t *run, const char *from, const char *name) {
  char path[PATH_MAX];
  torch_file_t *file;
  new_file_t list = {.count = 0};
  path_of(run, from, "", path);
  int code = torch_file_open(path, &file, run->error);
  if (code != 0) return code;
  code = write_list(run, file, from, name, &list);
  buffer_free(&list.header);
  free(list.tensors);
  free(list.piece);
  torch_file_close(file);
  return code;
}

/* ---- the files of a directory ---- */

/* model-00001-of-00002.safetensors of pytorch_model-00001-of-00002.bin. False: the name is no such
 * one, nor a plain file name. */
static bool new_name(const char *from, size_t length, char out[256]) {
  static const char start[] = "pytorch_model", end[] = ".bin";
  const size_t first = sizeof start - 1, last = sizeof end - 1;
  if (length < first + last || length > 200 || memcmp(from, start, first) != 0 ||
      memcmp(from + length - last, end, last) != 0 || memchr(from, '/', length) != NULL ||
      memchr(from, 0, length) != NULL)
    return false;
  snprintf(out, 256, "model%.*s.safetensors", (int)(length - first - last), from + first);
  return true;
}

static bool is_written(const conversion_t *run, const char *name) {
  for (size_t i = run->num_names; i-- > 0;) { /* tensors of a shard are listed together */
    if (strcmp(run->names[i], name) == 0) return true;
  }
  return false;
}

static int by_tensor(const void *left, const void *right) {
  const tensor_place_t *first = left, *second = right;
  return strcmp(first->tensor, second->tensor);
}

static bool write_index(const void *context, FILE *out) {
  const buffer_t *text = context;
  return fwrite(text->data, 1, text->length, out) == text->length;
}

static int place_index(conversion_t *run) {
  const size_t count = run->places.length / sizeof(tensor_place_t);
  tensor_place_t *places = (tensor_place_t *)(void *)run->places.data;
  buffer_t text = {0};
  char shown[96];
  if (count > 0) qsort(places, count, sizeof *places, by_tensor);
  buffer_text(&text, "{\"metadata\":{\"total_size\":");
  buffer_uint(&text, run->bytes);
  buffer_text(&text, "},\"weight_map\":{");
  for (size_t i = 0; i < count; i++) {
    const char *tensor = places[i].tensor, *file = places[i].file;
    if (i > 0 && strcmp(places[i - 1].tensor, tensor) == 0)
      return buffer_free(&text),
             error_set(run->error, ERR_MODEL_MALFORMED, NULL,
                       "%.240s: tensor %s would be in %.80s and in %.80s", run->dir,
                       error_quote(shown, sizeof shown, tensor, strlen(tensor)), places[i - 1].file,
                       file);
    buffer_text(&text, i > 0 ? ",\n" : "\n");
    buffer_quote(&text, tensor, strlen(tensor));
    buffer_char(&text, ':');
    buffer_quote(&text, file, strlen(file));
  }
  buffer_text(&text, "}}\n");
  int code = text.failed ? no_memory(run) : place_file(run, NEW_INDEX, write_index, &text);
  buffer_free(&text);
  return code;
}

static int convert_shards(conversion_t *run, const json_t *map) {
  char name[256], from[256], shown[96];
  if (map == NULL || map->type != JSON_OBJECT || map->count == 0)
    return error_set(run->error, ERR_MODEL_MALFORMED, NULL, "%.300s/" INDEX ": has no weight_map",
                     run->dir);
  JSON_EACH(entry, map) {
    const bool is_text = entry->type == JSON_STRING;
    if (!is_text || !new_name(entry->text, entry->length, name))
      return error_set(run->error, ERR_MODEL_MALFORMED, NULL,
                       "%.240s/" INDEX ": names the shard \"%s\"; a shard is pytorch_model*.bin in "
                       "the same directory",
                       run->dir,
                       error_quote(shown, sizeof shown, is_text ? entry->text : "?",
                                   is_text ? entry->length : 1));
    if (is_written(run, name)) continue;
    if (run->num_names == SHARDS_MAX)
      return error_set(run->error, ERR_MODEL_MALFORMED, NULL,
                       "%.300s/" INDEX ": names more than %d shards", run->dir, SHARDS_MAX);
    snprintf(from, sizeof from, "%.*s", (int)entry->length, entry->text);
    int code = convert_file(run, from, name);
    if (code != 0) return code;
  }
  int code = place_index(run);
  if (code != 0) return code;
  run->names[run->num_names] = strdup(NEW_INDEX);
  return run->names[run->num_names++] == NULL ? no_memory(run) : 0;
}

static int convert_model(conversion_t *run) {
  model_file_t index;
  int code = model_file_read(run->dir, INDEX, INDEX_BYTES_MAX, &index_limits, &index, run->error);
  if (code != 0) return code;
  if (index.doc == NULL) return convert_file(run, "pytorch_model.bin", "model.safetensors");
  code = convert_shards(run, json_get(json_root(index.doc), "weight_map"));
  model_file_free(&index);
  return code;
}

/* Opens what was written, as `serve` does. */
static int try_out(const conversion_t *run, bool is_adapter) {
  weight_files_t *files;
  int code = is_adapter
                 ? weight_files_open_file(run->dir, "adapter_model.safetensors", &files, run->error)
                 : weight_files_open(run->dir, &files, run->error);
  if (code == 0) weight_files_close(files);
  return code;
}

static int convert(conversion_t *run) {
  static const char *const done[] = {"model.safetensors", NEW_INDEX, "adapter_model.safetensors"};
  const bool model = has(run, INDEX) || has(run, "pytorch_model.bin");
  const bool adapter = has(run, "adapter_model.bin");
  if (!model && !adapter)
    return error_set(run->error, ERR_MODEL_MISSING, "model",
                     "%.300s: has no pytorch_model.bin, " INDEX " or adapter_model.bin", run->dir);
  for (size_t i = model ? 0 : 2; i < (adapter ? 3 : 2); i++) {
    if (has(run, done[i]))
      return error_set(run->error, ERR_CONFIGURATION, "model",
                       "%.300s: has %s already, which would be replaced", run->dir, done[i]);
  }
  run->names = calloc(SHARDS_MAX + 3, sizeof *run->names);
  if (run->names == NULL) return no_memory(run);
  int code = model ? convert_model(run) : 0;
  if (code == 0 && model) code = try_out(run, false);
  if (code == 0 && adapter) code = convert_file(run, "adapter_model.bin", done[2]);
  return code == 0 && adapter ? try_out(run, true) : code;
}

int pickled_convert(const char *dir, void (*say)(const char *line), inferd_error_t *error) {
  conversion_t run = {.dir = dir, .say = say, .error = error};
  char path[PATH_MAX];
  int code = convert(&run);
  tensor_place_t *places = (tensor_place_t *)(void *)run.places.data;
  for (size_t i = 0; i < run.places.length / sizeof *places; i++) free(places[i].tensor);
  for (size_t i = 0; run.names != NULL && run.names[i] != NULL; i++) {
    path_of(&run, run.names[i], "", path);
    if (code != 0 && i < run.num_names) unlink(path);
    free(run.names[i]);
  }
  free(run.names);
  buffer_free(&run.places);
  return code;
}

bool pickled_is_in(const char *dir) {
  const conversion_t run = {.dir = dir};
  return has(&run, INDEX) || has(&run, "pytorch_model.bin") || has(&run, "adapter_model.bin");
}
