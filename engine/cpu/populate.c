/* populate.c: the thread of populate.h. It only changes page tables and never writes to the memory.
 *
 * It does not have a lower priority: it holds the lock of the address space while a piece is made,
 * and a thread that hardly runs would keep others waiting for that lock. It waits between pieces.
 */
#include "engine/cpu/populate.h"

#include "engine/base/util.h"

#include <sys/mman.h>
#include <time.h>

enum { PIECE_BYTES = 2 << 20, WAIT_MS_MAX = 20 };

/* While a step runs, the memory bus and the processors are its own: a piece every 20 ms. */
static void let_pass(const populate_t *populate) {
  for (int ms = 0;
       ms < WAIT_MS_MAX && atomic_load_explicit(&populate->busy, memory_order_relaxed) &&
       !atomic_load(&populate->stop);
       ms++)
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void *populate_main(void *context) {
  populate_t *populate = context;
  for (size_t at = 0; at < populate->bytes && !atomic_load(&populate->stop); at += PIECE_BYTES) {
    size_t left = populate->bytes - at;
    let_pass(populate);
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
  if (populate->started) pthread_setname_np(populate->thread, "populate");
}

void populate_stop(populate_t *populate) {
  if (!populate->started) return;
  atomic_store(&populate->stop, true);
  pthread_join(populate->thread, NULL);
  populate->started = false;
}
