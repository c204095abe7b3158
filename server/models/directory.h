/* directory.h: what lies in the directory of --models-dir, and in the caches of Hugging Face.
 *
 * directory_read runs on any thread: a disk of the network may hang for minutes, and the loop
 * thread must not. A look is a thread of its own, which nobody waits for, not even the end of the
 * process.
 */
#ifndef INFERD_SERVER_MODELS_DIRECTORY_H
#define INFERD_SERVER_MODELS_DIRECTORY_H

#include "engine/base/util.h" /* before uv.h, which brings another MIN */

#include "config/config.h"

#include <uv.h>

typedef struct found {
  char *path;         /* of a model; or of a file with sections; of a cache ORG/NAME[:QUANT] */
  config_t *sections; /* NULL: a model */
  bool cached;        /* of a cache: a model that is named elsewhere goes before it */
} found_t;

/* Where to look. */
typedef struct places {
  char *dir;     /* NULL = none */
  char **caches; /* ends in NULL */
} places_t;

/* The places of a configuration. Main thread. False: memory is short. */
bool places_of(const config_t *config, places_t *out);
void places_free(places_t *places);

typedef struct directory {
  found_t *list; /* by name */
  int count;
  int code; /* 0, or the first thing that is wrong */
  inferd_error_t error;
  char **notes; /* why what is in a cache is not served; ends in NULL, or NULL */
  int num_notes;
  uint64_t hash; /* of all of the above */
} directory_t;

void directory_read(const places_t *places, directory_t *out);
void directory_free(directory_t *directory);

typedef struct disk_look disk_look_t;

/* Begins to read the places on a thread, which rings when it is done. Returns NULL if there are
 * none, or if that is not possible now. */
disk_look_t *look_start(const config_t *config, uv_async_t *bell);
/* Once it is done: puts what was found in the place of *out, frees the look, returns true. */
bool look_take(disk_look_t *look, directory_t *out);
/* Gives up a look, which may stand still for ever: it rings no more. */
void look_leave(disk_look_t *look);

#endif
