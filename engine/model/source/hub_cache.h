/* hub_cache.h: where the Hugging Face cache is, and how it names a repository.
 *
 * A cache has a folder models--ORG--NAME for each repository: blobs/SHA are the bytes of files,
 * snapshots/COMMIT/FILE relative links to them, refs/BRANCH files that hold a commit. Main thread,
 * because hub_caches reads the environment.
 */
#ifndef INFERD_ENGINE_MODEL_DISK_HUB_CACHE_H
#define INFERD_ENGINE_MODEL_DISK_HUB_CACHE_H

#include "engine/base/error.h"

enum {
  HUB_CACHES_MAX = 6,
  HUB_PATH_MAX = 4096,
  HUB_ID_MAX = 96, /* bytes of ORG/NAME, the bound of the hub */
  HUB_FOLDER_MAX = HUB_ID_MAX + 16
};

typedef struct hub_caches {
  char paths[HUB_CACHES_MAX][HUB_PATH_MAX]; /* without repeats, the first wins */
  int count;                                /* 0 only when all are too long */
} hub_caches_t;

/* The caches of this user, in the order in which they are searched: HF_HUB_CACHE,
 * HUGGINGFACE_HUB_CACHE, $HF_HOME/hub, $CACHE_DIRECTORY/hub (set by systemd, and in the container
 * image), $XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub. New models belong into the
 * first. "~" at the beginning of a variable is the home directory. */
void hub_caches(hub_caches_t *out);
/* True for ORG/NAME, and for a NAME alone, as the hub allows them. */
bool hub_is_id(const char *text);
/* Writes "models--ORG--NAME" of an id that hub_is_id accepts. */
void hub_folder(const char *id, char out[HUB_FOLDER_MAX]);
/* Writes ORG/NAME when the real path of `path` lies in a folder models--ORG--NAME. */
bool hub_id_of_path(const char *path, char out[HUB_ID_MAX + 1]);
/* Appends the command that finishes the download to the message of an error about `path`, when it
 * lies in such a folder. */
void hub_advise(const char *path, inferd_error_t *error);

#endif
