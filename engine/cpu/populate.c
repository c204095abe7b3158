/* populate.c: see populate.h. A thread of its own; it touches page tables only, never memory. */
#include "engine/cpu/populate.h"

#include <sys/mman.h>

enum { PIECE_BYTES = 8 << 20 };

static void *populate_main(void *context) {
  populate_t *p = context;
  for (size_t at = 0; at < p->bytes && !atomic_load(&p->stop); at += PIECE_BYTES) {
    size_t left = p->bytes - at;
    /* Kernels before 5.14 refuse: then pages become real on first touch. */
    if (madvise(p->base + at, left < PIECE_BYTES ? left : PIECE_BYTES, MADV_POPULATE_WRITE) != 0) {
      break;
    }
  }
  return NULL;
}

void populate_start(populate_t *p, uint8_t *base, size_t bytes) {
  p->base = base;
  p->bytes = bytes;
  atomic_store(&p->stop, false);
  p->started = pthread_create(&p->thread, NULL, populate_main, p) == 0;
}

void populate_stop(populate_t *p) {
  if (!p->started) return;
  atomic_store(&p->stop, true);
  pthread_join(p->thread, NULL);
  p->started = false;
}
