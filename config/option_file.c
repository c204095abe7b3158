/* option_file.c: reading a small file that an option names.
 *
 * Owns the text until option_file_free. What it holds may be secret, so it is wiped.
 */
#include "config/option_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int open_error(const char *option, const char *path, inferd_error_t *error) {
  int code = errno == ENOENT                     ? ERR_CONFIGURATION
             : errno == EACCES || errno == EPERM ? ERR_PERMISSION
                                                 : ERR_IO;
  return error_set(error, code, option, "%s: cannot open %s: %s", option, path, strerror(errno));
}

/* Checks kind, mode and size of an open file. */
static int check(const struct stat *info, const char *option, const char *path, size_t bytes_max,
                 mode_t forbidden, inferd_error_t *error) {
  if (!S_ISREG(info->st_mode)) {
    return error_set(error, ERR_IO, option, "%s: %s is not a regular file", option, path);
  }
  if ((info->st_mode & forbidden) != 0) {
    return error_set(error, ERR_PERMISSION, option, "%s: %s has mode %04o; it must be 0600 or 0640",
                     option, path, (unsigned)(info->st_mode & 07777));
  }
  if (info->st_size == 0 || (size_t)info->st_size > bytes_max) {
    return error_set(error, ERR_CONFIGURATION, option, "%s: %s has %lld bytes, supported: 1..%zu",
                     option, path, (long long)info->st_size, bytes_max);
  }
  return 0;
}

int option_file_read(option_file_t *out, const char *option, const char *path, size_t bytes_max,
                     mode_t forbidden, inferd_error_t *error) {
  *out = (option_file_t){0};
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return open_error(option, path, error);
  struct stat info = {0};
  int code = fstat(fd, &info) == 0 ? check(&info, option, path, bytes_max, forbidden, error)
                                   : error_set(error, ERR_IO, option, "%s: cannot read %s: %s",
                                               option, path, strerror(errno));
  if (code == 0) {
    out->size = (size_t)info.st_size;
    out->text = calloc(1, out->size + 1);
    if (out->text == NULL) {
      code = error_set(error, ERR_NO_MEMORY, NULL, "no memory for %s", path);
    } else if (read(fd, out->text, out->size) != (ssize_t)out->size) {
      code = error_set(error, ERR_IO, option, "%s: cannot read the %zu bytes of %s", option,
                       out->size, path);
    }
  }
  close(fd);
  if (code != 0) option_file_free(out);
  return code;
}

void option_file_free(option_file_t *file) {
  if (file->text != NULL) explicit_bzero(file->text, file->size);
  free(file->text);
  *file = (option_file_t){0};
}
