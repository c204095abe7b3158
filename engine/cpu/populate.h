/* populate.h: makes the pages of a large mapping real in the background.
 *
 * The K/V pool is promised at start; faulting gigabytes in would delay readiness. One thread asks
 * the kernel for the pages piece by piece while the engine may already use them:
 * MADV_POPULATE_WRITE changes no byte. It ends by itself or at populate_stop.
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
  bool started;
  uint8_t *base;
  size_t bytes;
} populate_t;

/* Zero-initialised `populate`. Without a thread the pages just become real when they are touched.
 */
void populate_start(populate_t *populate, uint8_t *base, size_t bytes);
/* Before the mapping goes away. */
void populate_stop(populate_t *populate);

#endif
