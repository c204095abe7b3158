/* floor_file.h: the file of a floor that outlives the process.
 *
 * A header says what the file is for: the model and all that decides bits of its K and V, as a line
 * of text that must be equal. It also has the secret of the keys, so that keys of another process
 * are found. Records and contents follow. The file is mapped as a whole, its space is taken from
 * the disk at the start, and a lock keeps a second process off. Whoever can read the file can read
 * the prompts, so its mode is 0600.
 *
 * Used at the start and at the end only, by the engine thread.
 */
#ifndef INFERD_ENGINE_SCHEDULE_FLOOR_FLOOR_FILE_H
#define INFERD_ENGINE_SCHEDULE_FLOOR_FLOOR_FILE_H

#include "engine/schedule/floor/floor.h"

enum { FLOOR_IDENTITY_MAX = 1024 };

typedef struct floor_file {
  int descriptor;
  uint8_t *base;
  size_t bytes;
} floor_file_t;

typedef struct floor_shape {
  int32_t num_places, block_size;
  size_t content_bytes;              /* of a place */
  char identity[FLOOR_IDENTITY_MAX]; /* line of text */
} floor_shape_t;

typedef enum floor_verdict {
  FLOOR_KEPT,    /* the file is of this model: what it holds can be found */
  FLOOR_NEW,     /* the file was empty, or there was none */
  FLOOR_EMPTIED, /* it was of something else, or damaged: it is empty now; `why` says what */
  FLOOR_LEFT     /* it is not such a file, or in use: it was left alone, and there is no floor */
} floor_verdict_t;

/* Opens the file, or makes it. If it is kept, its secret replaces `secret`. Returns a verdict, and
 * memory in *out, which lives until floor_file_close; or ERR_IO, ERR_NO_MEMORY. `why` has room for
 * 128 bytes. */
int floor_file_open(const char *path, const floor_shape_t *shape, uint64_t secret[2],
                    floor_file_t *file, floor_memory_t *out, char why[128], inferd_error_t *error);
void floor_file_close(floor_file_t *file); /* a zeroed one is allowed */

#endif
