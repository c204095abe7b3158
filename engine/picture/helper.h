/* helper.h: pictures are decoded and resized in processes without rights.
 *
 * picture_helper_start forks a keeper, which is small because the daemon still is: it must run
 * before threads, weights and secrets. For each picture the keeper forks one child. The child gives
 * up its rights (rights.c: no files, no network, no new processes, no sleep; bounded memory and
 * time), reads the file from shared memory, writes the bytes of the views there, and ends. A file
 * that crashes, hangs or captures its child costs its own request, and no picture meets the child
 * of another.
 *
 *   caller (any thread)      keeper                 child
 *   memory: file, room  -->  fork              -->  vision_views into the memory
 *   answer, or the end  <-------------------------  status
 *
 * The keeper ends when the daemon does. If it is killed, every later picture is refused; a
 * supervisor's restart brings it back: from a daemon with threads nothing may be forked.
 */
#ifndef INFERD_ENGINE_PICTURE_HELPER_H
#define INFERD_ENGINE_PICTURE_HELPER_H

#include "engine/picture/picture.h"
#include "engine/vision/processor.h"

enum {
  PICTURE_FILE_MAX = 20 * 1000 * 1000, /* bytes of a file */
  PICTURE_CPU_SECONDS_MAX = 5,         /* of a child; then it is killed */
  PICTURE_WAIT_MS_MAX = 30 * 1000,     /* of a caller, on a machine that is busy */
  PICTURE_MEMORY_MIB_MAX = 2048,       /* address space of a child */
  PICTURE_NICE = 10                    /* of a child, as of nice(2): a CPU back end comes first */
};

/* What a child is to do. No pointers: it crosses processes. */
typedef struct picture_job {
  vision_processor_t processor;
  vision_layout_t layout;
  uint32_t width, height; /* of the header that the layout was made of */
  size_t file_bytes;
} picture_job_t;

/* Runs in the child: reads job->file_bytes of `file`, writes vision_view_bytes to `views`. Returns
 * 0 or an ERR_ number with *error. */
typedef int (*picture_work_t)(const picture_job_t *job, const uint8_t *file, uint8_t *views,
                              inferd_error_t *error);
int picture_work(const picture_job_t *job, const uint8_t *file, uint8_t *views,
                 inferd_error_t *error);

typedef struct picture_helper picture_helper_t;

/* ---- make ---- */

/* Before any other thread. `work` is picture_work; tests have others. Returns 0, or ERR_IO. */
int picture_helper_start(picture_work_t work, picture_helper_t **out, inferd_error_t *error);

/* ---- use ---- */

/* Waits for the child; for threads that may wait, never the loop. `views` has vision_view_bytes of
 * job->layout. Returns 0; ERR_INVALID_VALUE, the picture's fault, also where its child died;
 * ERR_NO_MEMORY; or ERR_OVERLOADED: the keeper is gone, or the machine too busy. Adds to *spent_ns
 * what the child took of a processor, or, where it died, how long it lived. Any thread, and several
 * at once. */
int picture_helper_views(picture_helper_t *helper, const picture_job_t *job, const uint8_t *file,
                         uint8_t *views, uint64_t *spent_ns, inferd_error_t *error);

/* ---- free ---- */

void picture_helper_stop(picture_helper_t *helper); /* ends the keeper; NULL is allowed */

#endif
