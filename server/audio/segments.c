/* segments.c: ids of a window -> pieces with times. Loop thread; no state. */
#include "server/audio/audio.h"

#include "engine/base/util.h"

#include <math.h>
#include <stdio.h>

static bool is_stamp(const speech_t *speech, int32_t id) {
  return id >= speech->rules.first_stamp_id;
}

static double time_of(const speech_t *speech, const audio_window_t *window, int32_t id) {
  const double at = (double)(id - speech->rules.first_stamp_id) / SPEECH_STAMPS_A_SECOND;
  return MIN(window->begin_s + at, window->end_s);
}

/* Text stands between two stamps. One that is missing is that of the window's edge. */
bool audio_next_segment(const speech_t *speech, const audio_window_t *window, int32_t *at,
                        audio_segment_t *out) {
  *out = (audio_segment_t){.begin_s = window->begin_s, .end_s = window->end_s, .window = window};
  int32_t i = *at;
  /* Of stamps without text between them the last one counts. */
  for (; i < window->num_ids && is_stamp(speech, window->ids[i]); i++)
    out->begin_s = time_of(speech, window, window->ids[i]);
  out->ids = window->ids + i;
  for (; i < window->num_ids && !is_stamp(speech, window->ids[i]); i++) out->count++;
  if (i < window->num_ids) out->end_s = time_of(speech, window, window->ids[i]);
  *at = i;
  return out->count > 0;
}

void audio_print_time(buffer_t *out, double seconds, char point) {
  char text[48];
  const int64_t ms = llround(MAX(seconds, 0) * 1000);
  snprintf(text, sizeof text, "%02lld:%02lld:%02lld%c%03lld", (long long)(ms / 3600000),
           (long long)(ms / 60000 % 60), (long long)(ms / 1000 % 60), point,
           (long long)(ms % 1000));
  buffer_text(out, text);
}
