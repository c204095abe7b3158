/* test_work.c: what a child without rights makes of a picture. */
#include "engine/picture/work.h"
#include "tests/engine/vision/show.h"
#include "tests/expect.h"

#include <stdlib.h>

static uint64_t spent_ns; /* of children, all together */

static picture_job_t job_of(uint32_t width, uint32_t height) {
  picture_job_t job = {.width = width, .height = height};
  inferd_error_t error = {0};
  vision_processor_default(VISION_QWEN2_VL, &job.processor);
  cr_assert(vision_layout(&job.processor, 56, 56, true, &job.layout, &error) == 0);
  return job;
}

static helper_t *start(void) {
  helper_t *helper = NULL;
  inferd_error_t error = {0};
  ASSERT_EQ_FOR(helper_start(&picture_trade, &helper, &error), 0, "%s", error.message);
  return helper;
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

Test(picture_work, a_picture_is_what_it_is_in_this_process) {
  helper_t *helper = start();
  size_t length;
  uint8_t *file = bmp_of(56, 0, &length), *ours = calloc(56 * 56, 3), *theirs = calloc(56 * 56, 3);
  const picture_job_t job = job_of(56, 56);
  inferd_error_t error = {0};
  cr_assert(ours != NULL && theirs != NULL);
  ASSERT_EQ_FOR(picture_views(helper, &job, file, length, theirs, &spent_ns, &error), 0, "%s",
                error.message);
  size_t used = 0;
  ASSERT_EQ(picture_work(&job, file, length, ours, 56 * 56 * 3, &used, &error), 0);
  EXPECT_EQ(used, 56 * 56 * 3);
  EXPECT_EQ(memcmp(ours, theirs, 56 * 56 * 3), 0);
  cr_expect_gt(spent_ns, 0);
  const picture_job_t other = job_of(57, 56);
  EXPECT_EQ(picture_views(helper, &other, file, length, theirs, &spent_ns, &error),
            ERR_INVALID_VALUE);
  cr_expect_str_eq(error.message, "the picture has two sizes");
  free(file);
  free(ours);
  free(theirs);
  helper_stop(helper);
}

Test(picture_work, files_are_bounded) {
  helper_t *helper = start();
  uint8_t views[56 * 56 * 3];
  inferd_error_t error = {0};
  for (size_t i = 0; i < 3; i++) {
    size_t length;
    uint8_t *file = bmp_of(56, PICTURE_FILE_MAX - 1 + i - 54 - 56 * 56 * 4, &length);
    const picture_job_t job = job_of(56, 56);
    EXPECT_EQ_FOR(picture_views(helper, &job, file, length, views, &spent_ns, &error),
                  i < 2 ? 0 : ERR_INVALID_VALUE, "%zu bytes: %s", length, error.message);
    free(file);
  }
  helper_stop(helper);
}
