/* model_file.c: reads and parses one JSON file of a model directory. Any thread; keeps no state. */
#include "engine/model/source/model_file.h"

#include "engine/file/gguf.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *model_file_path(char *out, size_t capacity, const char *dir, const char *name) {
  size_t length = strlen(dir), room = capacity > strlen(name) + 5 ? capacity - strlen(name) - 5 : 0;
  bool cut = length > room;
  snprintf(out, capacity, "%s%s/%s", cut ? "..." : "", cut ? dir + length - room : dir, name);
  return out;
}

/* Opens as a regular file; O_NONBLOCK so that a named pipe does not hold up the start. */
static int open_file(const char *dir, const char *name, const char *shown, int *out_fd,
                     size_t *size, inferd_error_t *error) {
  char path[PATH_MAX];
  *out_fd = -1;
  int n = snprintf(path, sizeof(path), "%s/%s", dir, name);
  if (n < 0 || (size_t)n >= sizeof(path)) {
    return error_set(error, ERR_MODEL_MISSING, NULL, "%s: the path is too long", shown);
  }
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    if (errno == ENOENT) return 0;
    return error_system(error, shown, errno);
  }
  struct stat status;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
    close(fd);
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: is not a regular file", shown);
  }
  *out_fd = fd;
  *size = (size_t)status.st_size;
  return 0;
}

static bool read_whole(int fd, char *text, size_t size) {
  while (size > 0) {
    ssize_t n = read(fd, text, size);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    text += n;
    size -= (size_t)n;
  }
  return true;
}

static int parse(const char *shown, size_t size, const json_limits_t *limits, json_type_t type,
                 model_file_t *out, inferd_error_t *error) {
  inferd_error_t reason = {0};
  if (json_parse(out->text, size, limits, &out->doc, &reason) != 0) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: %s", shown, reason.message);
  }
  if (json_root(out->doc)->type == type) return 0;
  return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: must be a JSON %s, found %s", shown,
                   type == JSON_OBJECT ? "object" : "array", json_type_name(json_root(out->doc)));
}

static int read_typed(const char *dir, const char *name, size_t bytes_max,
                      const json_limits_t *limits, json_type_t type, model_file_t *out,
                      inferd_error_t *error) {
  char shown[384];
  int fd;
  size_t size = 0;
  *out = (model_file_t){0};
  model_file_path(shown, sizeof(shown), dir, name);
  int code = open_file(dir, name, shown, &fd, &size, error);
  if (code != 0 || fd < 0) return code;
  if (size == 0 || size > bytes_max) {
    code = error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: has %zu bytes, supported: 1..%zu",
                     shown, size, bytes_max);
  } else if ((out->text = malloc(size)) == NULL) {
    code = error_set(error, ERR_NO_MEMORY, NULL, "%s: no memory", shown);
  } else if (!read_whole(fd, out->text, size)) {
    code = error_set(error, ERR_IO, NULL, "%s: cannot be read", shown);
  } else {
    code = parse(shown, size, limits, type, out, error);
  }
  close(fd);
  if (code != 0) model_file_free(out);
  return code;
}

int model_file_read(const char *dir, const char *name, size_t bytes_max,
                    const json_limits_t *limits, model_file_t *out, inferd_error_t *error) {
  return read_typed(dir, name, bytes_max, limits, JSON_OBJECT, out, error);
}

int model_file_read_list(const char *dir, const char *name, size_t bytes_max,
                         const json_limits_t *limits, model_file_t *out, inferd_error_t *error) {
  return read_typed(dir, name, bytes_max, limits, JSON_ARRAY, out, error);
}

void model_file_free(model_file_t *file) {
  json_free(file->doc);
  free(file->text);
  *file = (model_file_t){0};
}

int model_directory_check(const char *dir, inferd_error_t *error) {
  struct stat status;
  char path[PATH_MAX];
  int found = gguf_find(dir, path, sizeof path, error);
  if (found != 0) return found < 0 ? found : 0;
  if (stat(dir, &status) != 0) return error_system(error, dir, errno);
  if (!S_ISDIR(status.st_mode)) {
    return error_set(
        error, ERR_MODEL_MALFORMED, "model",
        "%.380s: is a file, but not a GGUF file; a model is such a file or a directory "
        "with config.json, tokenizer.json and *.safetensors",
        dir);
  }
  return access(dir, X_OK) == 0 ? 0 : error_system(error, dir, errno);
}
