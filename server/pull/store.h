/* store.h: one repository in the Hugging Face cache, written as huggingface_hub writes it.
 *
 *   models--ORG--NAME/blobs/SUM               the bytes of a file, whole and checked
 *   models--ORG--NAME/blobs/SUM.incomplete    the first bytes of one, always without a gap, so that
 *                                             its length is all that a later download must know
 *   models--ORG--NAME/snapshots/COMMIT/FILE   a relative link to a blob
 *   models--ORG--NAME/refs/REVISION           the commit of a branch or tag
 *   .locks/models--ORG--NAME/SUM.lock         flock while a blob is made, as huggingface_hub does
 *
 * Main thread. Links are made when every blob is there, and the reference last.
 */
#ifndef INFERD_SERVER_PULL_STORE_H
#define INFERD_SERVER_PULL_STORE_H

#include "engine/model/source/hub_cache.h"
#include "server/pull/repo.h"

enum { STORE_CACHE_MAX = HUB_PATH_MAX - 512 }; /* leaves room for what is below it */

typedef struct store {
  char cache[STORE_CACHE_MAX]; /* the folder of all repositories */
  char folder[HUB_FOLDER_MAX];
} store_t;

/* Names the folder of `id` in `cache_dir` (NULL: the first cache of this user) and makes nothing.
 * Returns 0, or ERR_CONFIGURATION for a path that is too long. */
int store_name(store_t *store, const char *cache_dir, const char *id, inferd_error_t *error);
/* Makes the folders. Returns 0 or an error of error_system. */
int store_make(const store_t *store, inferd_error_t *error);

/* True when the blob of this file is there with the size that the hub tells. */
bool store_has(const store_t *store, const repo_file_t *file);
/* Bytes of the file that an earlier download has left; 0 = none, or more than the file has. */
int64_t store_partial(const store_t *store, const repo_file_t *file);
/* Bytes that the file system of the cache has free; -1 = unknown. */
int64_t store_free_bytes(const store_t *store);

/* Takes the lock of a name, without waiting. Returns 0 and *fd, which frees the lock when it is
 * closed; 1 when another process has it; or an error. */
int store_lock(const store_t *store, const char *name, int *fd, inferd_error_t *error);
/* Opens SUM.incomplete for reading and writing, and makes it if need be. */
int store_open(const store_t *store, const repo_file_t *file, int *fd, inferd_error_t *error);
/* Makes SUM.incomplete, whose bytes are on the disk, the blob. */
int store_keep(const store_t *store, const repo_file_t *file, inferd_error_t *error);

/* Writes the links of the chosen files, then the reference. A new snapshot appears whole, by one
 * rename; to one that exists each link is added by a rename. The caller holds the lock COMMIT. */
int store_publish(const store_t *store, const repo_t *repo, const char *revision,
                  inferd_error_t *error);
/* Writes the path of the snapshot. Returns `out`. */
const char *store_snapshot(const store_t *store, const char *commit, char out[HUB_PATH_MAX]);

#endif
