/* work.h: files of sound are decoded and resampled in processes without rights
 * (engine/helper/helper.h). */
#ifndef INFERD_ENGINE_AUDIO_WORK_H
#define INFERD_ENGINE_AUDIO_WORK_H

#include "engine/audio/audio.h"
#include "engine/helper/helper.h"

enum {
  AUDIO_FILE_MAX = 1000 * 1000 * 1000, /* bytes of a file; options allow less */
  AUDIO_CPU_SECONDS_MAX = 120,
  AUDIO_WAIT_S_MAX = 600,
  AUDIO_MEMORY_MIB_MAX = 4096,
  AUDIO_SECONDS_MAX = 4 * 3600 /* of a file; options allow less */
};

typedef struct audio_job {
  uint32_t seconds_max; /* at most AUDIO_SECONDS_MAX */
} audio_job_t;

/* helper_start takes it. */
extern const helper_trade_t audio_trade;

/* Samples of a file; free them by audio_sound_free. `(audio_sound_t){0}` has none. */
typedef struct audio_sound {
  const float *samples; /* [count], all of them numbers of at most AUDIO_SAMPLE_MAX */
  uint64_t count;
  audio_source_t source;
  helper_result_t memory; /* where they lie */
} audio_sound_t;

/* helper_run of this trade, and a check of what comes out. The file has at least one sample. */
int audio_read(helper_t *helper, const audio_job_t *job, const uint8_t *file, size_t bytes,
               audio_sound_t *out, uint64_t *spent_ns, inferd_error_t *error);
void audio_sound_free(audio_sound_t *sound);

#endif
