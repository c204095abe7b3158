/* work.c: what a child does to a picture, and who asks for it. picture_work has one thread, the
 * child's; picture_views is for any thread. */
#include "engine/picture/work.h"

#include <stdlib.h>
#include <string.h>

int picture_work(const void *job, const uint8_t *file, size_t bytes, uint8_t *views, size_t room,
                 size_t *used, inferd_error_t *error) {
  const picture_job_t *asked = job;
  picture_t picture = {0};
  if (room != vision_view_bytes(&asked->layout)) return ERR_NO_MEMORY;
  *used = room;
  int status = picture_decode(file, bytes, &picture, error);
  if (status == 0 && (picture.width != asked->width || picture.height != asked->height))
    status = error_set(error, ERR_INVALID_VALUE, NULL, "the picture has two sizes");
  if (status == 0) status = vision_views(&asked->processor, &asked->layout, &picture, views);
  free(picture.rgb);
  return status;
}

const helper_trade_t picture_trade = {.name = "picture",
                                      .process = "inferd-pictures",
                                      .job_bytes = sizeof(picture_job_t),
                                      .file_bytes_max = PICTURE_FILE_MAX,
                                      .cpu_seconds_max = PICTURE_CPU_SECONDS_MAX,
                                      .wait_s_max = PICTURE_WAIT_S_MAX,
                                      .memory_mib_max = PICTURE_MEMORY_MIB_MAX,
                                      .fills = true,
                                      .work = picture_work};

int picture_views(helper_t *helper, const picture_job_t *job, const uint8_t *file, size_t bytes,
                  uint8_t *views, uint64_t *spent_ns, inferd_error_t *error) {
  helper_result_t result = {0};
  const int status = helper_run(helper, job, file, bytes, vision_view_bytes(&job->layout), &result,
                                spent_ns, error);
  if (status == 0) memcpy(views, result.bytes, result.length);
  helper_result_free(&result);
  return status;
}
