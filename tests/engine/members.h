/* members.h: ranks that are threads of a test. */
#ifndef INFERD_TESTS_ENGINE_MEMBERS_H
#define INFERD_TESTS_ENGINE_MEMBERS_H

#include "engine/device/comm.h"

#include <pthread.h>

enum { SUMS = 300000 }; /* more than a slot of shared memory holds */

typedef struct member {
  pthread_t thread;
  comm_t *comm;
  int code;
  uint64_t wrong; /* bytes that are not what the round says */
  float sums[SUMS];
} member_t;

/* Starts `size` threads, each with its member. */
void members_start(member_t *members, int32_t size, void *(*run)(void *));
void members_join(member_t *members, int32_t size);

#endif
