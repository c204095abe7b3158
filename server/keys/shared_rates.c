/* shared_rates.c: the memory of shared_rates.h: a file without a name, mapped by all.
 *
 * A place that is given back is taken again last of all. What still runs for the key that had it is
 * counted there, until it ends.
 */
#include "server/keys/shared_rates.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PLACES = 16384 }; /* more than keys and those of a reload beside them */

static key_rates_t *all;
static int memory_fd = -1;
static bool taken[PLACES];
static int last;

static int map(int fd) {
  void *memory = mmap(NULL, PLACES * sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return -errno;
  all = memory;
  return 0;
}

int shared_rates_make(inferd_error_t *error) {
  memory_fd = memfd_create("inferd-rates", MFD_CLOEXEC);
  bool made = memory_fd >= 0 && ftruncate(memory_fd, PLACES * sizeof *all) == 0;
  if (made && map(memory_fd) == 0) return 0;
  return error_set(error, ERR_NO_MEMORY, NULL, "no memory for the rates of keys: %s",
                   strerror(errno));
}

int shared_rates_fd(void) {
  return memory_fd;
}

int shared_rates_join(int fd, inferd_error_t *error) {
  int code = map(fd);
  close(fd);
  if (code == 0) return 0;
  return error_set(error, ERR_IO, NULL, "cannot share the rates of keys with the parent: %s",
                   strerror(-code));
}

int shared_rates_take(void) {
  for (int i = 0; i < PLACES && memory_fd >= 0; i++) {
    int at = (last + 1 + i) % PLACES;
    if (taken[at]) continue;
    taken[at] = true;
    last = at;
    rate_set(&all[at].requests, 0, 0);
    rate_set(&all[at].tokens, 0, 0);
    all[at].use = (key_spent_t){0};
    return at;
  }
  return -1;
}

void shared_rates_give(int place) {
  if (place >= 0) taken[place] = false;
}

key_rates_t *shared_rates_at(int place) {
  return all != NULL && place >= 0 && place < PLACES ? &all[place] : NULL;
}
