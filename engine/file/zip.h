/* zip.h: where the parts of a zip archive are that torch.save has written: none is compressed.
 *
 * PKWARE's APPNOTE 6.3, with the records of 64 bits. Every place is checked against the size of the
 * archive. Pure functions over a reader; any thread.
 */
#ifndef INFERD_ENGINE_FILE_ZIP_H
#define INFERD_ENGINE_FILE_ZIP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { ZIP_ENTRY_BYTES = 46 }; /* of an entry of the directory, without its texts */

/* The archive. `read` copies bytes that lie inside it; false if they cannot be read. */
typedef struct zip_source {
  bool (*read)(const void *archive, void *out, size_t bytes, size_t at);
  const void *archive;
  size_t size;
} zip_source_t;

typedef struct zip_directory {
  size_t begin, bytes, count; /* count: entries, at most bytes / ZIP_ENTRY_BYTES */
} zip_directory_t;

typedef struct zip_part {
  const char *name; /* bytes of the directory, without NUL */
  size_t name_length, begin, bytes;
} zip_part_t;

/* Both return NULL, or what is wrong with the archive. zip_next reads the entry of a copy of the
 * directory at *at, of directory_bytes, and moves *at behind it. */
const char *zip_find_directory(const zip_source_t *source, zip_directory_t *out);
const char *zip_next(const zip_source_t *source, const uint8_t *directory, size_t directory_bytes,
                     size_t *at, zip_part_t *out);
/* `count` bytes at most 8, the lowest first, as everywhere in archives and pickles. */
uint64_t zip_number(const uint8_t *bytes, int count);

#endif
