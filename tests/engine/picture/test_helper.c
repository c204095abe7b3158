/* test_helper.c: a child that crashes, hangs or asks for what it may not costs its own picture. The
 * width of a job is the order that the tests' own work carries out. */
#include "engine/picture/helper.h"
#include "engine/picture/rights.h"
#include "tests/engine/vision/show.h"
#include "tests/expect.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
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
  ORDER_RAVE
};

static int obey(const picture_job_t *job, const uint8_t *file, uint8_t *views,
                inferd_error_t *error) {
  switch (job->width) {
  case ORDER_FILL: memset(views, file[0], vision_view_bytes(&job->layout)); return 0;
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
  case ORDER_RAVE: memset(error->message, '\n', sizeof error->message); return -4711;
  default: break;
  }
  return 0;
}

static picture_helper_t *start(picture_work_t work) {
  picture_helper_t *helper = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(picture_helper_start(work, &helper, &error), 0, "%s", error.message);
  return helper;
}

static picture_job_t job_of(uint32_t width, uint32_t height, size_t bytes) {
  picture_job_t job = {.width = width, .height = height, .file_bytes = bytes};
  inferd_error_t error = {0};
  vision_processor_default(VISION_QWEN2_VL, &job.processor);
  cr_assert(vision_layout(&job.processor, 56, 56, true, &job.layout, &error) == 0);
  return job;
}

static uint64_t spent_ns; /* of children, all together */

static int order(picture_helper_t *helper, uint32_t what, inferd_error_t *error) {
  const picture_job_t job = job_of(what, 1, 1);
  uint8_t views[56 * 56 * 3] = {0};
  int status = picture_helper_views(helper, &job, (const uint8_t *)"\x2A", views, &spent_ns, error);
  for (size_t i = 0; status == 0 && what == ORDER_FILL && i < sizeof views; i++)
    ASSERT_EQ(views[i], 42);
  return status;
}

static void expect_death(picture_helper_t *helper, uint32_t what) {
  inferd_error_t error = {0};
  EXPECT_EQ_FOR(order(helper, what, &error), ERR_INVALID_VALUE, "order %u", what);
  cr_expect(strstr(error.message, "its decoder failed") != NULL, "%u: %s", what, error.message);
  EXPECT_EQ_FOR(order(helper, ORDER_FILL, &error), 0, "behind order %u", what);
}

Test(helper, a_child_that_dies_costs_its_own_picture) {
  picture_helper_t *helper = start(obey);
  expect_death(helper, ORDER_CRASH);
  picture_helper_stop(helper);
}

Test(helper, a_child_that_never_ends_is_killed) {
  picture_helper_t *helper = start(obey);
  expect_death(helper, ORDER_SPIN);
  cr_expect_geq(spent_ns, (PICTURE_CPU_SECONDS_MAX - 1) * (uint64_t)1000000000u);
  picture_helper_stop(helper);
}

#ifndef __SANITIZE_ADDRESS__ /* whose children keep these rights (rights.c) */
Test(helper, a_child_has_no_rights) {
  picture_helper_t *helper = start(obey);
  for (uint32_t what = ORDER_OPEN; what <= ORDER_LOG; what++) expect_death(helper, what);
  inferd_error_t error = {0};
  EXPECT_EQ(order(helper, ORDER_HOARD, &error), ERR_NO_MEMORY);
  picture_helper_stop(helper);
}
#endif

Test(helper, the_words_of_a_child_are_not_believed) {
  picture_helper_t *helper = start(obey);
  inferd_error_t error = {0};
  EXPECT_EQ(order(helper, ORDER_RAVE, &error), ERR_INVALID_VALUE);
  cr_expect(strchr(error.message, '\n') == NULL);
  picture_helper_stop(helper);
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
  picture_helper_t *helper = start(obey);
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) cr_assert(pthread_create(&threads[i], NULL, many, helper) == 0);
  for (int i = 0; i < 4; i++) cr_assert(pthread_join(threads[i], NULL) == 0);
  picture_helper_stop(helper);
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

Test(helper, without_its_keeper_a_picture_is_refused_at_once) {
  picture_helper_t *helper = start(obey);
  inferd_error_t error = {0};
  const pid_t keeper = child_of_this_process();
  siginfo_t info;
  ASSERT_EQ(order(helper, ORDER_FILL, &error), 0);
  ASSERT_EQ(kill(keeper, SIGKILL), 0);
  ASSERT_EQ(waitid(P_PID, (id_t)keeper, &info, WEXITED | WNOWAIT), 0);
  EXPECT_EQ(order(helper, ORDER_FILL, &error), ERR_OVERLOADED);
  picture_helper_stop(helper);
}

/* A BMP of noise, which has all its bytes; `spare` stands behind its pixels. */
static uint8_t *bmp_of(uint32_t side, size_t spare, size_t *length) {
  const size_t pixels = (size_t)side * side * 4;
  *length = 54 + pixels + spare;
  uint8_t *bytes = calloc(*length, 1);
  cr_assert_not_null(bytes);
  const uint32_t fields[] = {54, 40, side, side, 1 | 32 << 16};
  memcpy(bytes, "BM", 2);
  memcpy(bytes + 10, fields, sizeof fields);
  for (size_t i = 0; i < pixels; i++) bytes[54 + i] = (uint8_t)(i * 2654435761u >> 13);
  return bytes;
}

Test(helper, a_picture_is_what_it_is_in_this_process) {
  picture_helper_t *helper = start(picture_work);
  size_t length;
  uint8_t *file = bmp_of(56, 0, &length), *ours = calloc(56 * 56, 3), *theirs = calloc(56 * 56, 3);
  const picture_job_t job = job_of(56, 56, length);
  inferd_error_t error = {0};
  cr_assert(ours != NULL && theirs != NULL);
  ASSERT_EQ_FOR(picture_helper_views(helper, &job, file, theirs, &spent_ns, &error), 0, "%s",
                error.message);
  ASSERT_EQ(picture_work(&job, file, ours, &error), 0);
  EXPECT_EQ(memcmp(ours, theirs, 56 * 56 * 3), 0);
  cr_expect_gt(spent_ns, 0);
  const picture_job_t other = job_of(57, 56, length);
  EXPECT_EQ(picture_helper_views(helper, &other, file, theirs, &spent_ns, &error),
            ERR_INVALID_VALUE);
  cr_expect_str_eq(error.message, "the picture has two sizes");
  free(file);
  free(ours);
  free(theirs);
  picture_helper_stop(helper);
}

Test(helper, files_are_bounded) {
  picture_helper_t *helper = start(picture_work);
  uint8_t views[56 * 56 * 3];
  inferd_error_t error = {0};
  for (size_t i = 0; i < 3; i++) {
    size_t length;
    uint8_t *file = bmp_of(56, PICTURE_FILE_MAX - 1 + i - 54 - 56 * 56 * 4, &length);
    const picture_job_t job = job_of(56, 56, length);
    EXPECT_EQ_FOR(picture_helper_views(helper, &job, file, views, &spent_ns, &error),
                  i < 2 ? 0 : ERR_INVALID_VALUE, "%zu bytes: %s", length, error.message);
    free(file);
  }
  picture_helper_stop(helper);
}
