/* work.c: what a child does to a file of sound, and who asks for it. The work has one thread, the
 * child's; audio_read is for any thread. */
#include "engine/audio/work.h"

#include <math.h>
#include <string.h>

/* What a result begins with. */
typedef struct audio_head {
  uint64_t count;
  audio_source_t source;
  uint8_t rest[64 - sizeof(uint64_t) - sizeof(audio_source_t)];
} audio_head_t;

static size_t room_of(const audio_job_t *job) {
  return sizeof(audio_head_t) + (size_t)job->seconds_max * AUDIO_RATE * sizeof(float);
}

static int audio_work(const void *job, const uint8_t *file, size_t bytes, uint8_t *out, size_t room,
                      size_t *used, inferd_error_t *error) {
  audio_head_t head = {0};
  float *samples = (float *)(void *)(out + sizeof head);
  (void)job;
  const uint64_t most = (room - sizeof head) / sizeof *samples;
  const int code = audio_decode(file, bytes, samples, most, &head.count, &head.source, error);
  memcpy(out, &head, sizeof head);
  *used = sizeof head + head.count * sizeof *samples;
  return code;
}

const helper_trade_t audio_trade = {.name = "sound",
                                    .process = "inferd-sounds",
                                    .job_bytes = sizeof(audio_job_t),
                                    .file_bytes_max = AUDIO_FILE_MAX,
                                    .cpu_seconds_max = AUDIO_CPU_SECONDS_MAX,
                                    .wait_s_max = AUDIO_WAIT_S_MAX,
                                    .memory_mib_max = AUDIO_MEMORY_MIB_MAX,
                                    .fills = false,
                                    .ready = audio_open_library,
                                    .work = audio_work};

/* What a child says that may have been captured. */
static bool take(const helper_result_t *result, audio_sound_t *out) {
  audio_head_t head;
  if (result->length < sizeof head) return false;
  memcpy(&head, result->bytes, sizeof head);
  if (head.count == 0 || head.count != (result->length - sizeof head) / sizeof(float)) return false;
  out->samples = (const float *)(const void *)(result->bytes + sizeof head);
  out->count = head.count;
  out->source = head.source;
  for (uint64_t i = 0; i < out->count; i++)
    if (!(fabsf(out->samples[i]) <= 2 * AUDIO_SAMPLE_MAX)) return false;
  return true;
}

int audio_read(helper_t *helper, const audio_job_t *job, const uint8_t *file, size_t bytes,
               audio_sound_t *out, uint64_t *spent_ns, inferd_error_t *error) {
  audio_format_t format;
  *out = (audio_sound_t){0};
  int code = audio_format(file, bytes, &format, error);
  if (code == 0)
    code = helper_run(helper, job, file, bytes, room_of(job), &out->memory, spent_ns, error);
  if (code == 0 && !take(&out->memory, out))
    code = error_set(error, ERR_INVALID_VALUE, NULL, "the sound cannot be read");
  if (code != 0) audio_sound_free(out);
  return code;
}

void audio_sound_free(audio_sound_t *sound) {
  helper_result_free(&sound->memory);
  *sound = (audio_sound_t){0};
}
