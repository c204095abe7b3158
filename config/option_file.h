/* option_file.h: a small regular file that an option names: keys, certificates.
 *
 * Any thread. Never waits for a pipe or a device.
 */
#ifndef INFERD_CONFIG_OPTION_FILE_H
#define INFERD_CONFIG_OPTION_FILE_H

#include "engine/base/error.h"

#include <stddef.h>
#include <sys/types.h>

typedef struct option_file {
  char *text; /* with a NUL behind its last byte; malloc'ed */
  size_t size;
} option_file_t;

/* Reads the file into *out. `forbidden` = bits of its mode that must not be set (0 = any mode).
 * Returns 0, or with *out empty and a message that names option and path: ERR_CONFIGURATION (it
 * does not exist, is empty, or has more than `bytes_max` bytes), ERR_PERMISSION (it may not be
 * read, or others may), ERR_IO, ERR_NO_MEMORY. */
int option_file_read(option_file_t *out, const char *option, const char *path, size_t bytes_max,
                     mode_t forbidden, inferd_error_t *error);
/* Wipes the bytes and frees them; an empty one is fine. */
void option_file_free(option_file_t *file);

#endif
