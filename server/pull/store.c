/* store.c: one repository in the Hugging Face cache, written as huggingface_hub writes it.
 *
 * Main thread. Knows no network. Names of files were checked by repo_parse.
 */
#include "server/pull/store.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { ROOM = HUB_PATH_MAX + 2 * REPO_NAME_MAX + 256 }; /* for any path that this file makes */

/* CACHE/models--ORG--NAME/MIDDLE/NAME TAIL */
static const char *path_of(const store_t *store, char out[ROOM], const char *middle,
                           const char *name, const char *tail) {
  snprintf(out, ROOM, "%s/%s/%s/%s%s", store->cache, store->folder, middle, name, tail);
  return out;
}

/* Makes the folders above the last slash, as mkdir -p does. */
static int make_parents(const char *path, inferd_error_t *error) {
  char part[ROOM];
  for (size_t i = 1; path[i] != '\0' && i < sizeof part; i++) {
    if (path[i] != '/') continue;
    snprintf(part, sizeof part, "%.*s", (int)i, path);
    if (mkdir(part, 0777) != 0 && errno != EEXIST) return error_system(error, part, errno);
  }
  return 0;
}

int store_name(store_t *store, const char *cache_dir, const char *id, inferd_error_t *error) {
  hub_folder(id, store->folder);
  hub_caches_t *caches = malloc(sizeof *caches); /* too large for the stack */
  if (caches == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "no memory for paths");
  hub_caches(caches);
  if (cache_dir == NULL && caches->count > 0) cache_dir = caches->paths[0];
  size_t length = cache_dir != NULL ? strlen(cache_dir) : sizeof store->cache;
  bool fits = length < sizeof store->cache;
  if (fits) memcpy(store->cache, cache_dir, length + 1);
  int code =
      fits ? 0
           : error_set(error, ERR_CONFIGURATION, NULL, "the path of the cache is too long: %.100s",
                       cache_dir != NULL ? cache_dir : "HF_HUB_CACHE");
  free(caches); /* cache_dir may point into it */
  return code;
}

int store_make(const store_t *store, inferd_error_t *error) {
  static const char *const folders[] = {"blobs", "snapshots", "refs"};
  char path[ROOM];
  int code = 0;
  for (int i = 0; i < 3 && code == 0; i++) {
    code = make_parents(path_of(store, path, folders[i], "", ""), error);
  }
  snprintf(path, sizeof path, "%s/.locks/%s/", store->cache, store->folder);
  return code != 0 ? code : make_parents(path, error);
}

bool store_has(const store_t *store, const repo_file_t *file) {
  char path[ROOM];
  struct stat status;
  return stat(path_of(store, path, "blobs", file->sum, ""), &status) == 0 &&
         S_ISREG(status.st_mode) && status.st_size == file->size;
}

int64_t store_partial(const store_t *store, const repo_file_t *file) {
  char path[ROOM];
  struct stat status;
  if (stat(path_of(store, path, "blobs", file->sum, ".incomplete"), &status) != 0) return 0;
  return status.st_size <= file->size ? status.st_size : 0;
}

int64_t store_free_bytes(const store_t *store) {
  char path[ROOM];
  struct statvfs status;
  snprintf(path, sizeof path, "%s", store->cache);
  while (statvfs(path, &status) != 0) { /* of the nearest folder that exists */
    char *slash = strrchr(path, '/');
    if (slash == NULL || slash == path) return -1;
    *slash = '\0';
  }
  return (int64_t)status.f_bavail * (int64_t)status.f_frsize;
}

int store_lock(const store_t *store, const char *name, int *fd, inferd_error_t *error) {
  char path[ROOM];
  struct stat held, there;
  snprintf(path, sizeof path, "%s/.locks/%s/%s.lock", store->cache, store->folder, name);
  for (;;) {
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (*fd < 0) return error_system(error, path, errno);
    if (flock(*fd, LOCK_EX | LOCK_NB) != 0) {
      int number = errno;
      close(*fd);
      *fd = -1;
      return number == EWOULDBLOCK || number == EINTR ? 1 : error_system(error, path, number);
    }
    /* A file that was deleted before the lock was taken locks nothing. */
    if (fstat(*fd, &held) == 0 && stat(path, &there) == 0 && held.st_ino == there.st_ino) return 0;
    close(*fd);
  }
}

int store_open(const store_t *store, const repo_file_t *file, int *fd, inferd_error_t *error) {
  char path[ROOM];
  path_of(store, path, "blobs", file->sum, ".incomplete");
  *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  return *fd >= 0 ? 0 : error_system(error, path, errno);
}

int store_keep(const store_t *store, const repo_file_t *file, inferd_error_t *error) {
  char from[ROOM], to[ROOM];
  path_of(store, from, "blobs", file->sum, ".incomplete");
  path_of(store, to, "blobs", file->sum, "");
  return rename(from, to) == 0 ? 0 : error_system(error, to, errno);
}

/* ---- links and the reference ---- */

static int remove_one(const char *path, const struct stat *status, int type, struct FTW *walk) {
  (void)status, (void)type, (void)walk;
  return remove(path);
}

/* Makes FOLDER/NAME a link to the blob. `depth` is that of the folder below the repository's. */
static int put_link(const char *folder, int depth, const repo_file_t *file, inferd_error_t *error) {
  char path[ROOM], temporary[ROOM + 16], target[ROOM] = "", old[ROOM];
  snprintf(path, sizeof path, "%s/%s", folder, file->name);
  for (const char *p = file->name; *p != '\0'; p++) depth += *p == '/';
  for (int i = 0; i < depth; i++) memcpy(target + 3 * i, "../", 4);
  snprintf(target + 3 * depth, sizeof target - 3 * (size_t)depth, "blobs/%s", file->sum);
  ssize_t n = readlink(path, old, sizeof old - 1);
  if (n > 0 && (size_t)n == strlen(target) && memcmp(old, target, (size_t)n) == 0) return 0;
  int code = make_parents(path, error);
  if (code != 0) return code;
  snprintf(temporary, sizeof temporary, "%s.%d.new", path, (int)getpid());
  (void)unlink(temporary);
  if (symlink(target, temporary) != 0 || rename(temporary, path) != 0) {
    code = error_system(error, path, errno);
    (void)unlink(temporary);
  }
  return code;
}

static int put_links(const char *folder, int depth, const repo_t *repo, inferd_error_t *error) {
  int code = 0;
  for (int i = 0; i < repo->count && code == 0; i++) {
    if (repo->files[i].chosen) code = put_link(folder, depth, &repo->files[i], error);
  }
  return code;
}

const char *store_snapshot(const store_t *store, const char *commit, char out[HUB_PATH_MAX]) {
  snprintf(out, HUB_PATH_MAX, "%s/%s/snapshots/%s", store->cache, store->folder, commit);
  return out;
}

/* A revision that is a commit needs no reference. */
static int put_reference(const store_t *store, const char *revision, const char *commit,
                         inferd_error_t *error) {
  char path[ROOM], temporary[ROOM];
  if (strcmp(revision, commit) == 0) return 0;
  path_of(store, path, "refs", revision, "");
  snprintf(temporary, sizeof temporary, "%s/%s/.ref-%d", store->cache, store->folder,
           (int)getpid());
  int code = make_parents(path, error);
  if (code != 0) return code;
  FILE *stream = fopen(temporary, "we");
  if (stream == NULL) return error_system(error, temporary, errno);
  bool good = fputs(commit, stream) >= 0;
  good = fclose(stream) == 0 && good;
  if (!good || rename(temporary, path) != 0) {
    code = error_system(error, path, errno);
    (void)unlink(temporary);
  }
  return code;
}

int store_publish(const store_t *store, const repo_t *repo, const char *revision,
                  inferd_error_t *error) {
  char snapshot[HUB_PATH_MAX], fresh[ROOM];
  struct stat status;
  int code;
  store_snapshot(store, repo->commit, snapshot);
  if (stat(snapshot, &status) == 0) {
    code = put_links(snapshot, 2, repo, error);
  } else {
    /* Two folders below the repository's, as the snapshot, so the links stay right. */
    path_of(store, fresh, ".new-snapshots", repo->commit, "");
    (void)nftw(fresh, remove_one, 16, FTW_DEPTH | FTW_PHYS); /* of a pull that was killed */
    code = put_links(fresh, 2, repo, error);
    if (code == 0 && rename(fresh, snapshot) != 0) {
      /* Another program has made the snapshot meanwhile. */
      code = errno == EEXIST || errno == ENOTEMPTY ? put_links(snapshot, 2, repo, error)
                                                   : error_system(error, snapshot, errno);
      (void)nftw(fresh, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    }
    char *slash = strrchr(fresh, '/');
    *slash = '\0';
    (void)rmdir(fresh);
  }
  return code != 0 ? code : put_reference(store, revision, repo->commit, error);
}
