/* populate.h: allocates the pages of a large mapping in the background.
 *
 * The K/V pool is reserved at start; to allocate gigabytes of pages before READY would take
 * seconds. One thread asks the kernel for the pages piece by piece, while the engine may already
 * use them: MADV_POPULATE_WRITE changes no byte. The thread ends by itself or at populate_stop.
 */
#ifndef INFERD_ENGINE_CPU_POPULATE_H
#define INFERD_ENGINE_CPU_POPULATE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct populate {
  pthread_t thread;
  atomic_bool stop;
  atomic_bool busy; /* set by the engine while a step runs: the thread steps aside */
  bool started;
  uint8_t *base;
  size_t bytes;
} populate_t;

/* Starts the thread; `populate` is zero-initialised. If no thread can be made, a page is allocated
 * when it is first touched. */
void populate_start(populate_t *populate, uint8_t *base, size_t bytes);
/* Stops and joins the thread. Call it before the mapping is removed. */
void populate_stop(populate_t *populate);

#endif
