/* fetch_file.c: a file from its lock to its blob: opening, writing at the end, checking the sum.
 *
 * Main thread. Knows no network.
 */
#include "engine/base/clock.h"
#include "server/pull/fetch_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The system's reason for a file of the store, with its name in the repository. */
static int disk_error(fetch_t *fetch, const fetch_file_t *file, int number) {
  char need[PROGRESS_SIZE_MAX], room[PROGRESS_SIZE_MAX];
  if (number != ENOSPC && number != EDQUOT) {
    return error_set(fetch->error, ERR_IO, NULL, "%s: %.100s: %s: %.200s", fetch->settings->id,
                     file->repo->name, strerror(number), fetch->store->cache);
  }
  return error_set(fetch->error, ERR_IO, NULL,
                   "%s: %.100s: the disk of %.200s is full: %s are needed, %s are free; what is "
                   "there is kept",
                   fetch->settings->id, file->repo->name, fetch->store->cache,
                   progress_size(need, file->repo->size - file->written),
                   progress_size(room, store_free_bytes(fetch->store)));
}

/* Begins the sum anew, and the file with it. */
static int empty_file(fetch_t *fetch, fetch_file_t *file) {
  sum_free(file->sum);
  file->sum = sum_new((int)strlen(file->repo->sum), file->repo->size);
  file->written = file->issued = 0;
  if (file->sum == NULL) {
    return error_set(fetch->error, ERR_NO_MEMORY, NULL, "no memory for a sum");
  }
  return ftruncate(file->fd, 0) == 0 ? 0 : disk_error(fetch, file, errno);
}

/* Sums up what an earlier download has left. */
static int sum_up(fetch_t *fetch, fetch_file_t *file) {
  enum { CHUNK = 1 << 20 };
  struct stat status;
  if (fstat(file->fd, &status) != 0) return disk_error(fetch, file, errno);
  int64_t there = status.st_size;
  if (there == 0 || there > file->repo->size) return empty_file(fetch, file);
  file->sum = sum_new((int)strlen(file->repo->sum), file->repo->size);
  uint8_t *chunk = malloc(CHUNK);
  int code = file->sum != NULL && chunk != NULL
                 ? 0
                 : error_set(fetch->error, ERR_NO_MEMORY, NULL, "no memory for a sum");
  while (code == 0 && file->written < there && !hub_interrupted) {
    ssize_t n = pread(file->fd, chunk, CHUNK, file->written);
    if (n <= 0) {
      code = disk_error(fetch, file, n < 0 ? errno : EIO);
    } else {
      (void)sum_add(file->sum, chunk, (size_t)n);
      file->written += n;
    }
  }
  free(chunk);
  file->issued = file->written;
  return code;
}

int file_begin(fetch_t *fetch, fetch_file_t *file) {
  if (clock_now_ns() < file->due_ns) return 0;
  int code = store_lock(fetch->store, file->repo->sum, &file->lock_fd, fetch->error);
  if (code < 0) return code;
  if (code > 0) {
    enum { LOCK_POLL_MS = 200 };
    file->due_ns = clock_now_ns() + LOCK_POLL_MS * 1000000ull;
    if (!file->told) {
      progress_clear(fetch->progress);
      fprintf(stderr, "inferd: %s: %s: another process downloads it; waiting\n",
              fetch->settings->id, file->repo->name);
    }
    file->told = true;
    return 0;
  }
  if (store_has(fetch->store, file->repo)) { /* another process was faster */
    file->state = FILE_DONE;
    file_close(file);
    return 0;
  }
  file->state = FILE_OPEN;
  code = store_open(fetch->store, file->repo, &file->fd, fetch->error);
  return code != 0 ? code : sum_up(fetch, file);
}

int file_write(fetch_t *fetch, piece_t *piece) {
  fetch_file_t *file = piece->file;
  size_t done = 0;
  while (done < piece->used) {
    ssize_t n = pwrite(file->fd, piece->bytes + done, piece->used - done, piece->at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      memmove(piece->bytes, piece->bytes + done, piece->used - done);
      piece->used -= done;
      return disk_error(fetch, file, n < 0 ? errno : ENOSPC);
    }
    (void)sum_add(file->sum, piece->bytes + done, (size_t)n);
    file->written += n;
    piece->at += n;
    done += (size_t)n;
  }
  piece->used = 0;
  return 0;
}

int file_finish(fetch_t *fetch, fetch_file_t *file) {
  if (!sum_equals(file->sum, file->repo->sum)) {
    const char *kind = strlen(file->repo->sum) == 40 ? "git sha1" : "sha256";
    if (file->restarts++ > 0) {
      (void)empty_file(fetch, file);
      return error_set(fetch->error, ERR_IO, NULL,
                       "%s: %.100s: its %s is wrong again after a second download, %.64s is "
                       "expected; the bytes were thrown away; a proxy or a mirror may change them",
                       fetch->settings->id, file->repo->name, kind, file->repo->sum);
    }
    progress_clear(fetch->progress);
    fprintf(stderr, "inferd: %s: %s: its %s is wrong; downloading it again\n", fetch->settings->id,
            file->repo->name, kind);
    return empty_file(fetch, file);
  }
  if (fdatasync(file->fd) != 0) return disk_error(fetch, file, errno);
  int code = store_keep(fetch->store, file->repo, fetch->error);
  if (code == 0) file->state = FILE_DONE;
  file_close(file);
  return code;
}

void file_close(fetch_file_t *file) {
  if (file->fd >= 0) close(file->fd);
  if (file->lock_fd >= 0) close(file->lock_fd);
  file->fd = file->lock_fd = -1;
  sum_free(file->sum);
  file->sum = NULL;
  free(file->direct);
  file->direct = NULL;
}
