/* populate.c: the thread of populate.h. It only changes page tables and never writes to the memory.
 */
#include "engine/cpu/populate.h"

#include "engine/base/util.h"

#include <sys/mman.h>

enum { PIECE_BYTES = 8 << 20 };

static void *populate_main(void *context) {
  populate_t *populate = context;
  for (size_t at = 0; at < populate->bytes && !atomic_load(&populate->stop); at += PIECE_BYTES) {
    size_t left = populate->bytes - at;
    /* Kernels before 5.14 do not support it: then a page is allocated when it is first touched. */
    if (madvise(populate->base + at, MIN(left, PIECE_BYTES), MADV_POPULATE_WRITE) != 0) {
      break;
    }
  }
  return NULL;
}

void populate_start(populate_t *populate, uint8_t *base, size_t bytes) {
  populate->base = base;
  populate->bytes = bytes;
  atomic_store(&populate->stop, false);
  populate->started = pthread_create(&populate->thread, NULL, populate_main, populate) == 0;
}

void populate_stop(populate_t *populate) {
  if (!populate->started) return;
  atomic_store(&populate->stop, true);
  pthread_join(populate->thread, NULL);
  populate->started = false;
}
