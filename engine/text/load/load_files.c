/* load_files.c: reads and parses the files of a tokenizer directory.
 *
 * The loading thread only. Bounds sizes before it allocates; follows symbolic links, because model
 * caches are made of them.
 */
#include "engine/text/load/load.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int load_fail(tokenizer_load_t *load, const char *component, const char *format, ...) {
  char reason[ERROR_MESSAGE_MAX - 160];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(reason, sizeof reason, format, arguments);
  va_end(arguments);
  return error_set(load->error, ERR_MODEL_MALFORMED, component, "%s: %s: %s", load->file, component,
                   reason);
}

int load_no_memory(tokenizer_load_t *load) {
  return error_set(load->error, ERR_NO_MEMORY, NULL, "%s: not enough memory", load->file);
}

static int read_all(tokenizer_load_t *load, int fd, load_doc_t *out, size_t size) {
  out->text = malloc(size + 1);
  if (out->text == NULL) return load_no_memory(load);
  while (out->length < size) {
    ssize_t n = read(fd, out->text + out->length, size - out->length);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return error_set(load->error, ERR_IO, NULL, "%s: %s", load->file, strerror(errno));
    if (n == 0) break;
    out->length += (size_t)n;
  }
  return 0;
}

int load_read(tokenizer_load_t *load, const char *name, size_t bytes_max, load_doc_t *out,
              bool *found) {
  char path[PATH_MAX];
  struct stat status;
  *out = (load_doc_t){0};
  *found = false;
  load->file = name;
  int n = snprintf(path, sizeof path, "%s/%s", load->dir, name);
  if (n < 0 || (size_t)n >= sizeof path)
    return error_set(load->error, ERR_MODEL_MISSING, NULL, "%s: the path is too long", name);
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && (errno == ENOENT || errno == ENOTDIR)) return 0;
  if (fd < 0) return error_system(load->error, path, errno);
  int code = 0;
  if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode))
    code = load_fail(load, "file", "not a regular file");
  else if (status.st_size < 0 || (size_t)status.st_size > bytes_max)
    code = load_fail(load, "file", "%lld bytes, at most %zu are read", (long long)status.st_size,
                     bytes_max);
  else
    code = read_all(load, fd, out, (size_t)status.st_size);
  close(fd);
  *found = code == 0;
  if (code != 0) load_close(out);
  return code;
}

int load_open(tokenizer_load_t *load, const char *name, load_doc_t *out, bool *found) {
  int code = load_read(load, name, LOAD_FILE_BYTES_MAX, out, found);
  if (code != 0 || !*found) return code;
  inferd_error_t reason = {0};
  static const char pointer[] = "version https://git-lfs";
  if (out->length > sizeof pointer && memcmp(out->text, pointer, sizeof pointer - 1) == 0) {
    load_close(out);
    return load_fail(load, "file", "a pointer of Git LFS; fetch the file with git lfs pull");
  }
  code = json_parse(out->text, out->length, &json_limits_model, &out->doc, &reason);
  if (code != 0) {
    code =
        code == ERR_INTERNAL ? load_no_memory(load) : load_fail(load, "JSON", "%s", reason.message);
    load_close(out);
    return code;
  }
  if (json_root(out->doc)->type == JSON_OBJECT) return 0;
  code =
      load_fail(load, "JSON", "an object is expected, not %s", json_type_name(json_root(out->doc)));
  load_close(out);
  return code;
}

void load_close(load_doc_t *doc) {
  if (doc->doc != NULL) json_free(doc->doc);
  free(doc->text);
  *doc = (load_doc_t){0};
}

const json_t *load_field(const json_t *object, const char *key) {
  const json_t *value = json_get(object, key);
  return json_is_given(value) ? value : NULL;
}

bool load_text(const json_t *value, char *out, unsigned *length, size_t bytes_max) {
  if (value == NULL || value->type != JSON_STRING || value->length > bytes_max) return false;
  *length = value->length;
  memcpy(out, value->text, value->length);
  return true;
}

bool load_bool(tokenizer_load_t *load, const json_t *object, const char *key, const char *where,
               bool *out) {
  const json_t *value = load_field(object, key);
  if (value == NULL || json_bool(value, out)) return true;
  load_fail(load, where, "\"%s\" must be true or false, not %s", key, json_type_name(value));
  return false;
}

const char *load_quote(char *buffer, const json_t *value) {
  if (value == NULL) return "nothing";
  if (value->type != JSON_STRING) return json_type_name(value);
  return error_quote(buffer, 96, value->text, value->length);
}
