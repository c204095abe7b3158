/* mapping.c: files mapped for reading, and the guard against SIGBUS.
 *
 * The signal handler may run on any thread that reads a mapping. It walks a list without a lock:
 * nodes are published with release stores. Only mapping_close removes a node, when no thread reads
 * that mapping any more.
 */
#include "engine/file/mapping.h"

#include "engine/base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct mapping {
  uint8_t *data;
  size_t size, span; /* bytes of the file; bytes mapped, a multiple of the page */
  int fd;
  atomic_bool damaged;
  _Atomic(mapping_t *) next;
};

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(mapping_t *) list_head;
static size_t mapped, most_mapped; /* bytes of the list; under the lock */
static struct sigaction previous_action;
static _Atomic size_t page_size;

static void pass_on(int number, siginfo_t *info, void *context) {
  if (previous_action.sa_flags & SA_SIGINFO) {
    previous_action.sa_sigaction(number, info, context);
  } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
    previous_action.sa_handler(number);
  } else {
    signal(number, SIG_DFL); /* the instruction faults again, and the process ends */
  }
}

static void on_sigbus(int number, siginfo_t *info, void *context) {
  int saved_errno = errno;
  uintptr_t address = (uintptr_t)info->si_addr;
  for (mapping_t *mapping = atomic_load(&list_head); mapping != NULL;
       mapping = atomic_load(&mapping->next)) {
    uintptr_t start = (uintptr_t)mapping->data;
    if (address < start || address - start >= mapping->span) continue;
    size_t page = atomic_load(&page_size);
    void *at = (void *)(address & ~(uintptr_t)(page - 1));
    void *got = mmap(at, page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    if (got == MAP_FAILED) break;
    atomic_store(&mapping->damaged, true);
    errno = saved_errno;
    return;
  }
  pass_on(number, info, context);
  errno = saved_errno;
}

/* The first mapping installs the handler; the last one restores the previous handler. */
static void list_add(mapping_t *mapping) {
  pthread_mutex_lock(&list_lock);
  mapping_t *head = atomic_load(&list_head);
  if (head == NULL) {
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    atomic_store(&page_size, (size_t)sysconf(_SC_PAGESIZE));
    sigaction(SIGBUS, &action, &previous_action);
  }
  mapped += mapping->span;
  most_mapped = MAX(most_mapped, mapped);
  atomic_store(&mapping->next, head);
  atomic_store(&list_head, mapping);
  pthread_mutex_unlock(&list_lock);
}

static void list_remove(mapping_t *mapping) {
  pthread_mutex_lock(&list_lock);
  mapped -= mapping->span;
  _Atomic(mapping_t *) *link = &list_head;
  while (atomic_load(link) != mapping) link = &atomic_load(link)->next;
  atomic_store(link, atomic_load(&mapping->next));
  if (atomic_load(&list_head) == NULL) sigaction(SIGBUS, &previous_action, NULL);
  pthread_mutex_unlock(&list_lock);
}

/* Says why a file cannot be opened. In a model cache every name is a link. A link whose target was
 * deleted gets a message of its own, because "no such file" would puzzle a user who sees the name.
 */
static int open_failed(int dir_fd, const char *name, const char *path, int number,
                       inferd_error_t *error) {
  struct stat status;
  if (number == ENOENT && fstatat(dir_fd, name, &status, AT_SYMLINK_NOFOLLOW) == 0 &&
      S_ISLNK(status.st_mode)) {
    return error_set(error, ERR_MODEL_MISSING, NULL,
                     "%s: the link leads to a file that does not exist; download the model again",
                     path);
  }
  return error_system(error, path, number);
}

/* Memory is missing as a rule because the process may have few addresses. */
static int map_failed(const char *path, size_t size, int number, inferd_error_t *error) {
  struct rlimit space;
  if (number != ENOMEM || getrlimit(RLIMIT_AS, &space) != 0 || space.rlim_cur == RLIM_INFINITY)
    return error_set(error, number == ENOMEM ? ERR_NO_MEMORY : ERR_IO, NULL,
                     "%s: cannot be mapped: %s", path, strerror(number));
  return error_set(error, ERR_NO_MEMORY, NULL,
                   "%s: %.2f GiB cannot be mapped; the address space is limited (ulimit -v %llu)",
                   path, (double)size / (1 << 30), (unsigned long long)space.rlim_cur / 1024);
}

static int map_file(int fd, const char *path, mapping_t **out, inferd_error_t *error) {
  struct stat status;
  if (fstat(fd, &status) != 0) return error_system(error, path, errno);
  if (!S_ISREG(status.st_mode)) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: is not a regular file", path);
  }
  if (status.st_size <= 0) {
    return error_set(error, ERR_MODEL_MALFORMED, NULL, "%s: is empty", path);
  }
  mapping_t *mapping = calloc(1, sizeof(*mapping));
  if (mapping == NULL) return error_set(error, ERR_NO_MEMORY, NULL, "%s: out of memory", path);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  mapping->fd = fd;
  mapping->size = (size_t)status.st_size;
  mapping->span = (mapping->size + page - 1) & ~(page - 1);
  void *data = mmap(NULL, mapping->size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) {
    const int number = errno;
    free(mapping);
    return map_failed(path, (size_t)status.st_size, number, error);
  }
  mapping->data = data;
  madvise(data, mapping->size, MADV_SEQUENTIAL);
  list_add(mapping);
  *out = mapping;
  return 0;
}

int mapping_open(int dir_fd, const char *name, const char *path, mapping_t **out,
                 inferd_error_t *error) {
  /* Links are followed, because a model cache is made of them; map_file checks what was opened.
   * O_NONBLOCK: opening a named pipe must not block the start. */
  int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return open_failed(dir_fd, name, path, errno, error);
  int code = map_file(fd, path, out, error);
  if (code != 0) close(fd);
  return code;
}

void mapping_close(mapping_t *mapping) {
  if (mapping == NULL) return;
  list_remove(mapping);
  munmap(mapping->data, mapping->span);
  close(mapping->fd);
  free(mapping);
}

size_t mapping_most(void) {
  pthread_mutex_lock(&list_lock);
  const size_t most = most_mapped;
  pthread_mutex_unlock(&list_lock);
  return most;
}

const uint8_t *mapping_data(const mapping_t *mapping) {
  return mapping->data;
}
size_t mapping_size(const mapping_t *mapping) {
  return mapping->size;
}

bool mapping_read(const mapping_t *mapping, void *out, size_t length, size_t offset) {
  uint8_t *at = out;
  while (length > 0) {
    ssize_t n = pread(mapping->fd, at, length, (off_t)offset);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n;
    offset += (size_t)n;
    length -= (size_t)n;
  }
  return true;
}

void mapping_drop(const mapping_t *mapping, size_t offset, size_t length) {
  /* A damaged mapping has anonymous pages in it: leave it alone until it is closed. */
  if (atomic_load(&mapping->damaged)) return;
  size_t page = atomic_load(&page_size);
  size_t first = (offset + page - 1) & ~(page - 1), last = (offset + length) & ~(page - 1);
  if (first < last) madvise(mapping->data + first, last - first, MADV_DONTNEED);
}

bool mapping_intact(const mapping_t *mapping) {
  struct stat status;
  return !atomic_load(&mapping->damaged) && fstat(mapping->fd, &status) == 0 &&
         status.st_size >= 0 && (size_t)status.st_size == mapping->size;
}
