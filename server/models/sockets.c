/* sockets.c: the directory of the children's sockets, which only this user may enter.
 *
 * Main thread, at start and at the end. Its parent holds a lock in it for as long as it lives, so
 * what a parent that was killed has left behind is known by its lock, and the next start of this
 * user removes it. A number of a process would not tell: it may be of another container.
 */
#include "server/models/models_internal.h"

#include "engine/base/util.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "inferd-", lock_name[] = "lock";

/* Removes the directory with all that lies in it; it has no folders. */
static void remove_all(const char *path) {
  DIR *directory = opendir(path);
  if (directory == NULL) return;
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
    if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
      unlinkat(dirfd(directory), entry->d_name, 0);
  closedir(directory);
  rmdir(path);
}

/* Whether it was made here by a parent that lives no more. */
static bool is_left(const char *path) {
  char file[160];
  struct stat info;
  if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid()) return false;
  snprintf(file, sizeof file, "%s/%s", path, lock_name);
  int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return false;
  bool left = flock(fd, LOCK_EX | LOCK_NB) == 0;
  close(fd);
  return left;
}

static void remove_left(const char *place) {
  DIR *directory = opendir(place);
  if (directory == NULL) return;
  for (struct dirent *entry; (entry = readdir(directory)) != NULL;) {
    char path[120];
    bool ours = strncmp(entry->d_name, prefix, sizeof prefix - 1) == 0 &&
                strlen(entry->d_name) == sizeof prefix - 1 + 6;
    if (!ours) continue;
    snprintf(path, sizeof path, "%.60s/%.20s", place, entry->d_name);
    if (is_left(path)) remove_all(path);
  }
  closedir(directory);
}

/* The lock has its name only once it is held. */
static bool hold(models_t *models) {
  char draft[120], file[120];
  snprintf(draft, sizeof draft, "%s/lock.new", models->dir);
  snprintf(file, sizeof file, "%s/%s", models->dir, lock_name);
  models->dir_lock = open(draft, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return models->dir_lock >= 0 && flock(models->dir_lock, LOCK_EX | LOCK_NB) == 0 &&
         rename(draft, file) == 0;
}

int sockets_open(models_t *models, inferd_error_t *error) {
  const char *places[] = {getenv("RUNTIME_DIRECTORY"), getenv("XDG_RUNTIME_DIR"), "/tmp"};
  for (size_t i = 0; i < ARRAY_LEN(places); i++) {
    if (places[i] == NULL || places[i][0] != '/' || strlen(places[i]) > 50) continue;
    remove_left(places[i]);
    snprintf(models->dir, sizeof models->dir, "%s/%sXXXXXX", places[i], prefix);
    models->dir_made = mkdtemp(models->dir) != NULL; /* mode 0700 */
    if (!models->dir_made) continue;
    if (hold(models)) return 0;
    break;
  }
  return error_system(error, models->dir, errno);
}

void sockets_close(models_t *models) {
  if (models->dir_made) remove_all(models->dir);
  if (models->dir_lock >= 0) close(models->dir_lock);
}
