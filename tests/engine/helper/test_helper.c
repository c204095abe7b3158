/* test_helper.c: a child that crashes, hangs or asks for what it may not costs its own file. A job
 * is the order that the tests' own work carries out. */
#include "engine/helper/helper.h"
#include "tests/expect.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum order {
  ORDER_FILL = 1,
  ORDER_CRASH,
  ORDER_SPIN,
  ORDER_OPEN,
  ORDER_SOCKET,
  ORDER_FORK,
  ORDER_KILL,
  ORDER_CODE,
  ORDER_SLEEP,
  ORDER_LOG,
  ORDER_HOARD,
  ORDER_RAVE,
  ORDER_WARN, /* as libraries do */
  ORDER_HALF, /* fills half of its room */
  ORDER_MORE  /* says that it has filled more than its room */
};

enum { CPU_SECONDS = 3, FILE_MAX = 100 * 1000, ROOM = 9408 };

static int obey(const void *job, const uint8_t *file, size_t bytes, uint8_t *out, size_t room,
                size_t *used, inferd_error_t *error) {
  uint32_t what;
  memcpy(&what, job, sizeof what);
  switch (what) {
  case ORDER_FILL: memset(out, bytes > 0 ? file[0] : 0, room); return 0;
  case ORDER_HALF: memset(out, file[0], *used = room / 2); return 0;
  case ORDER_MORE: *used = room + 1; return 0;
  case ORDER_CRASH: (void)raise(SIGKILL); break;
  case ORDER_SPIN:
    for (volatile unsigned i = 0;; i = i + 1) {
    }
  case ORDER_OPEN: return open("/etc/hostname", O_RDONLY) >= 0 ? 0 : ERR_NO_MEMORY;
  case ORDER_SOCKET: return socket(AF_INET, SOCK_STREAM, 0) >= 0 ? 0 : ERR_NO_MEMORY;
  case ORDER_FORK: return fork() >= 0 ? 0 : ERR_NO_MEMORY;
  case ORDER_KILL: return kill(getppid(), SIGKILL) == 0 ? 0 : ERR_NO_MEMORY;
  case ORDER_CODE:
    return mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED
               ? 0
               : ERR_NO_MEMORY;
  case ORDER_SLEEP: {
    int32_t awaited = 1;
    (void)syscall(SYS_futex, &awaited, FUTEX_WAIT, 1, NULL);
    break;
  }
  case ORDER_LOG: return write(STDERR_FILENO, "", 0) == 0 ? 0 : ERR_NO_MEMORY;
  case ORDER_HOARD:
    return mmap(NULL, (size_t)3 << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED
               ? 0
               : ERR_NO_MEMORY;
  case ORDER_WARN:
    for (int i = 0; i < 10000; i++) fprintf(stderr, "a warning of the library, number %d\n", i);
    break;
  case ORDER_RAVE: memset(error->message, '\n', sizeof error->message); return -4711;
  default: break;
  }
  return 0;
}

static const helper_trade_t filling = {.name = "file",
                                       .process = "inferd-test",
                                       .job_bytes = sizeof(uint32_t),
                                       .file_bytes_max = FILE_MAX,
                                       .cpu_seconds_max = CPU_SECONDS,
                                       .wait_s_max = 30,
                                       .memory_mib_max = 2048,
                                       .fills = true,
                                       .work = obey};

static helper_t *start(const helper_trade_t *trade) {
  helper_t *helper = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(helper_start(trade, &helper, &error), 0, "%s", error.message);
  return helper;
}

static uint64_t spent_ns; /* of children, all together */

static int order(helper_t *helper, uint32_t what, inferd_error_t *error) {
  helper_result_t result;
  int status =
      helper_run(helper, &what, (const uint8_t *)"\x2A", 1, ROOM, &result, &spent_ns, error);
  if (status == 0) ASSERT_EQ(result.length, ROOM);
  for (size_t i = 0; status == 0 && what == ORDER_FILL && i < ROOM; i++)
    ASSERT_EQ(result.bytes[i], 42);
  helper_result_free(&result);
  return status;
}

static void expect_death(helper_t *helper, uint32_t what) {
  inferd_error_t error = {0};
  EXPECT_EQ_FOR(order(helper, what, &error), ERR_INVALID_VALUE, "order %u", what);
  cr_expect(strstr(error.message, "its decoder failed") != NULL, "%u: %s", what, error.message);
  EXPECT_EQ_FOR(order(helper, ORDER_FILL, &error), 0, "behind order %u", what);
}

Test(helper, a_child_that_dies_costs_its_own_file) {
  helper_t *helper = start(&filling);
  expect_death(helper, ORDER_CRASH);
  helper_stop(helper);
}

Test(helper, a_child_that_never_ends_is_killed) {
  helper_t *helper = start(&filling);
  expect_death(helper, ORDER_SPIN);
  cr_expect_geq(spent_ns, (CPU_SECONDS - 1) * (uint64_t)1000000000u);
  helper_stop(helper);
}

#ifndef __SANITIZE_ADDRESS__ /* whose children keep these rights (rights.c) */
Test(helper, a_child_has_no_rights) {
  helper_t *helper = start(&filling);
  for (uint32_t what = ORDER_SOCKET; what <= ORDER_LOG; what++) expect_death(helper, what);
  inferd_error_t error = {0};
  EXPECT_EQ(order(helper, ORDER_HOARD, &error), ERR_NO_MEMORY);
  EXPECT_EQ(order(helper, ORDER_OPEN, &error), ERR_NO_MEMORY);
  helper_stop(helper);
}
#endif

Test(helper, the_words_of_a_child_are_not_believed) {
  helper_t *helper = start(&filling);
  inferd_error_t error = {0};
  EXPECT_EQ(order(helper, ORDER_RAVE, &error), ERR_INVALID_VALUE);
  cr_expect(strchr(error.message, '\n') == NULL);
  helper_stop(helper);
}

Test(helper, a_library_may_warn) {
  helper_t *helper = start(&filling);
  inferd_error_t error = {0};
  EXPECT_EQ_FOR(order(helper, ORDER_WARN, &error), 0, "%s", error.message);
  helper_stop(helper);
}

static void *many(void *helper) {
  for (uint32_t i = 0; i < 20; i++) {
    inferd_error_t error = {0};
    const uint32_t what = i % 3 == 0 ? ORDER_CRASH : ORDER_FILL;
    ASSERT_EQ(order(helper, what, &error), what == ORDER_FILL ? 0 : ERR_INVALID_VALUE);
  }
  return NULL;
}

Test(helper, several_threads_have_each_its_own_child) {
  helper_t *helper = start(&filling);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) cr_assert(pthread_create(&threads[i], NULL, many, helper) == 0);
  for (int i = 0; i < 4; i++) cr_assert(pthread_join(threads[i], NULL) == 0);
  helper_stop(helper);
}

static pid_t child_of_this_process(void) {
  char path[64];
  int found = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/children", getpid());
  FILE *file = fopen(path, "r");
  cr_assert_not_null(file);
  ASSERT_EQ(fscanf(file, "%d", &found), 1);
  fclose(file);
  return found;
}

Test(helper, without_its_keeper_a_file_is_refused_at_once) {
  helper_t *helper = start(&filling);
  inferd_error_t error = {0};
  const pid_t keeper = child_of_this_process();
  siginfo_t info;
  ASSERT_EQ(order(helper, ORDER_FILL, &error), 0);
  ASSERT_EQ(kill(keeper, SIGKILL), 0);
  ASSERT_EQ(waitid(P_PID, (id_t)keeper, &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(order(helper, ORDER_FILL, &error), ERR_OVERLOADED);
  helper_stop(helper);
}

Test(helper, files_are_bounded) {
  helper_t *helper = start(&filling);
  uint8_t *file = calloc(FILE_MAX + 1, 1);
  const uint32_t what = ORDER_FILL;
  for (size_t bytes = FILE_MAX - 1; bytes <= FILE_MAX + 1; bytes++) {
    inferd_error_t error = {0};
    helper_result_t result;
    EXPECT_EQ_FOR(helper_run(helper, &what, file, bytes, ROOM, &result, &spent_ns, &error),
                  bytes <= FILE_MAX ? 0 : ERR_INVALID_VALUE, "%zu bytes: %s", bytes, error.message);
    helper_result_free(&result);
  }
  free(file);
  helper_stop(helper);
}

/* A result of a size that its child tells: believed up to its room. */
Test(helper, a_result_is_no_longer_than_its_room) {
  static const struct {
    uint32_t what;
    size_t room, length;
  } rows[] = {{ORDER_FILL, ROOM, ROOM},
              {ORDER_FILL, 0, 0},
              {ORDER_HALF, ROOM, ROOM / 2},
              {ORDER_MORE, ROOM, ROOM},
              {ORDER_MORE, 0, 0}};
  helper_trade_t growing = filling;
  growing.fills = false;
  helper_t *helper = start(&growing);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    inferd_error_t error = {0};
    helper_result_t result;
    ASSERT_EQ_FOR(helper_run(helper, &rows[i].what, (const uint8_t *)"\x2A", 1, rows[i].room,
                             &result, &spent_ns, &error),
                  0, "row %zu: %s", i, error.message);
    EXPECT_EQ_FOR(result.length, rows[i].length, "row %zu", i);
    for (size_t b = 0; rows[i].what != ORDER_MORE && b < result.length; b++)
      ASSERT_EQ(result.bytes[b], 42);
    helper_result_free(&result);
  }
  helper_stop(helper);
}

/* The room is as large as a client may make it: only what is written takes memory. */
Test(helper, room_that_is_not_used_is_not_taken) {
  helper_trade_t growing = filling;
  growing.fills = false;
  helper_t *helper = start(&growing);
  const uint32_t what = ORDER_MORE;
  inferd_error_t error = {0};
  helper_result_t result;
  unsigned char resident[16];
  ASSERT_EQ(helper_run(helper, &what, (const uint8_t *)"\x2A", 1, (size_t)1 << 30, &result,
                       &spent_ns, &error),
            0);
  ASSERT_EQ(mincore((void *)(uintptr_t)result.bytes, sizeof resident * 4096, resident), 0);
  for (size_t i = 0; i < sizeof resident; i++) EXPECT_EQ(resident[i] & 1, 0);
  helper_result_free(&result);
  helper_stop(helper);
}
