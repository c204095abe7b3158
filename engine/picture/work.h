/* work.h: pictures are decoded and resized in processes without rights (engine/helper/helper.h). */
#ifndef INFERD_ENGINE_PICTURE_WORK_H
#define INFERD_ENGINE_PICTURE_WORK_H

#include "engine/helper/helper.h"
#include "engine/picture/picture.h"
#include "engine/vision/processor.h"

enum {
  PICTURE_FILE_MAX = 20 * 1000 * 1000, /* bytes of a file */
  PICTURE_CPU_SECONDS_MAX = 5,
  PICTURE_WAIT_S_MAX = 30,
  PICTURE_MEMORY_MIB_MAX = 2048
};

/* What a child is to do. */
typedef struct picture_job {
  vision_processor_t processor;
  vision_layout_t layout;
  uint32_t width, height; /* of the header that the layout was made of */
} picture_job_t;

/* helper_start takes it. Its work fills vision_view_bytes of the layout. */
extern const helper_trade_t picture_trade;

/* The work of the trade, for those who trust the file. */
int picture_work(const void *job, const uint8_t *file, size_t bytes, uint8_t *views, size_t room,
                 size_t *used, inferd_error_t *error);

/* helper_run of this trade; `views` has vision_view_bytes of job->layout. */
int picture_views(helper_t *helper, const picture_job_t *job, const uint8_t *file, size_t bytes,
                  uint8_t *views, uint64_t *spent_ns, inferd_error_t *error);

#endif
