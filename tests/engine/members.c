/* members.c: ranks that are threads of a test. */
#include "tests/engine/members.h"

#include "engine/ranks/shared.h"
#include "tests/expect.h"

#include <unistd.h>

void members_start(member_t *members, int32_t size, void *(*run)(void *)) {
  inferd_error_t error = {0};
  int fd = -1;
  ASSERT_EQ_FOR(shared_make(size, &fd, &error), 0, "%s", error.message);
  for (int32_t r = 0; r < size; r++) {
    members[r] = (member_t){0};
    ASSERT_EQ_FOR(shared_join(fd, r, &members[r].comm, &error), 0, "%s", error.message);
  }
  close(fd);
  for (int32_t r = 0; r < size; r++)
    ASSERT_EQ(pthread_create(&members[r].thread, NULL, run, &members[r]), 0);
}

void members_join(member_t *members, int32_t size) {
  for (int32_t r = 0; r < size; r++) pthread_join(members[r].thread, NULL);
}
