/* mapping.h: a file mapped for reading; the file may shrink without ending the process.
 *
 * Reading a page after the end of a mapped file raises SIGBUS. While any mapping of this module is
 * open, a handler catches the signal: a fault inside one of our mappings gets a page of zeroes and
 * marks the mapping as damaged, every other fault goes to the previous handler. Any thread may open
 * and close (a mutex serialises them) and read.
 */
#ifndef INFERD_ENGINE_FILE_MAPPING_H
#define INFERD_ENGINE_FILE_MAPPING_H

#include "engine/base/error.h"

#include <stddef.h>
#include <stdint.h>

typedef struct mapping mapping_t;

/* Maps a regular file of directory `dir_fd`, or the one that a link there leads to. `path` is for
 * messages. ERR_MODEL_MISSING (also a link that leads nowhere), ERR_MODEL_MALFORMED (no regular
 * file), ERR_PERMISSION, ERR_IO, ERR_NO_MEMORY. */
int mapping_open(int dir_fd, const char *name, const char *path, mapping_t **out,
                 inferd_error_t *error);
void mapping_close(mapping_t *mapping); /* NULL is allowed */
size_t mapping_most(void);              /* the most bytes that were mapped at once, so far */

const uint8_t *mapping_data(const mapping_t *mapping);
size_t mapping_size(const mapping_t *mapping);
/* Copies from the file by pread, so that what was checked cannot change. false = short or failed.
 */
bool mapping_read(const mapping_t *mapping, void *out, size_t length, size_t offset);
/* Tells the kernel that the pages entirely inside [offset, offset + length) need not stay in
 * memory. */
void mapping_drop(const mapping_t *mapping, size_t offset, size_t length);
/* Returns false if a read went past the end of the file, or if its size has changed. */
bool mapping_intact(const mapping_t *mapping);

#endif
