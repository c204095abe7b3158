/* faults.c: see faults.h; the calls that touch files and the system. The heap is in alloc.c.
 *
 * Counters that wake another thread (eventfd) are kept here: the one thread polls none of them, and
 * the two calls of the system for each step were a thirtieth of a run's time. */
#include "tests/sim/faults.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>

enum { EVENT_FILES_MAX = 256 };

static struct {
  bool armed, fired;
  int held;
  uint64_t count, fail_at;
  const char *last;
} faults;

void faults_arm(uint64_t fail_at) {
  faults.armed = true;
  faults.fired = false;
  faults.count = 0;
  faults.fail_at = fail_at;
}

bool faults_disarm(void) {
  faults.armed = false;
  return faults.fired;
}

void faults_hold(void) {
  faults.held++;
}

void faults_release(void) {
  faults.held--;
}

bool faults_named(const char *name) {
  if (!faults.armed || faults.held > 0) return false;
  if (++faults.count != faults.fail_at) return false;
  faults.fired = true;
  faults.last = name;
  return true;
}

bool faults_now(void) {
  return faults_named("the heap");
}

const char *faults_last(void) {
  return faults.last ? faults.last : "nothing";
}

static bool fails(const char *name, int error) {
  if (!faults_named(name)) return false;
  errno = error;
  return true;
}

/* ---- files and the system ---- */

int __real_open(const char *path, int flags, ...);
int __real_openat(int directory, const char *path, int flags, ...);
ssize_t __real_read(int file, void *to, size_t size);
ssize_t __real_pread(int file, void *to, size_t size, off_t at);
FILE *__real_fopen(const char *path, const char *mode);
int __real_fstat(int file, struct stat *out);
int __real_stat(const char *path, struct stat *out);
void *__real_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
ssize_t __real_getrandom(void *to, size_t size, unsigned flags);
int __real_eventfd(unsigned count, int flags);
int __real_close(int file);
ssize_t __real_write(int file, const void *from, size_t size);

int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int directory, const char *path, int flags, ...);
ssize_t __wrap_read(int file, void *to, size_t size);
ssize_t __wrap_pread(int file, void *to, size_t size, off_t at);
FILE *__wrap_fopen(const char *path, const char *mode);
int __wrap_fstat(int file, struct stat *out);
int __wrap_stat(const char *path, struct stat *out);
void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset);
ssize_t __wrap_getrandom(void *to, size_t size, unsigned flags);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_close(int file);
ssize_t __wrap_write(int file, const void *from, size_t size);

int __wrap_open(const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  int mode = flags & O_CREAT ? va_arg(args, int) : 0;
  va_end(args);
  return fails("open", EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __wrap_openat(int directory, const char *path, int flags, ...) {
  va_list args;
  va_start(args, flags);
  int mode = flags & O_CREAT ? va_arg(args, int) : 0;
  va_end(args);
  return fails("openat", EMFILE) ? -1 : __real_openat(directory, path, flags, mode);
}

static struct {
  bool is_open;
  uint64_t count;
} events[EVENT_FILES_MAX]; /* [file] */

static bool is_event(int file) {
  return file >= 0 && file < EVENT_FILES_MAX && events[file].is_open;
}

int __wrap_eventfd(unsigned count, int flags) {
  int file = __real_eventfd(count, flags);
  if (file < 0 || file >= EVENT_FILES_MAX || !(flags & EFD_NONBLOCK)) return file;
  events[file].is_open = true;
  events[file].count = count;
  return file;
}

int __wrap_close(int file) {
  if (is_event(file)) events[file].is_open = false;
  return __real_close(file);
}

ssize_t __wrap_write(int file, const void *from, size_t size) {
  uint64_t count;
  if (!is_event(file) || size != sizeof count) return __real_write(file, from, size);
  memcpy(&count, from, sizeof count);
  events[file].count += count;
  return sizeof count;
}

ssize_t __wrap_read(int file, void *to, size_t size) {
  if (fails("read", EIO)) return -1;
  if (!is_event(file) || size != sizeof events->count) return __real_read(file, to, size);
  if (events[file].count == 0) {
    errno = EAGAIN;
    return -1;
  }
  memcpy(to, &events[file].count, sizeof events->count);
  events[file].count = 0;
  return sizeof events->count;
}

ssize_t __wrap_pread(int file, void *to, size_t size, off_t at) {
  return fails("pread", EIO) ? -1 : __real_pread(file, to, size, at);
}

FILE *__wrap_fopen(const char *path, const char *mode) {
  return fails("fopen", EMFILE) ? NULL : __real_fopen(path, mode);
}

int __wrap_fstat(int file, struct stat *out) {
  return fails("fstat", EIO) ? -1 : __real_fstat(file, out);
}

int __wrap_stat(const char *path, struct stat *out) {
  return fails("stat", EIO) ? -1 : __real_stat(path, out);
}

void *__wrap_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
  if (fails("mmap", ENOMEM)) return MAP_FAILED;
  return __real_mmap(at, size, protection, flags, file, offset);
}

ssize_t __wrap_getrandom(void *to, size_t size, unsigned flags) {
  return fails("getrandom", EIO) ? -1 : __real_getrandom(to, size, flags);
}
