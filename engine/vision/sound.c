/* sound.c: see sound.h. References: WhisperFeatureExtractor and Qwen2AudioProcessor of
 * transformers. Any thread; no state. */
#include "engine/vision/sound.h"

#include "engine/base/util.h"

#include <string.h>

enum { SPAN = 5 }; /* rows around that of a position, TOWER_SPAN of a tower */

int sound_processor_read(const json_t *extractor, int32_t bands, int32_t merge, bool silence,
                         sound_processor_t *out, inferd_error_t *error) {
  const struct {
    const char *key;
    double absent, served;
  } keys[] = {{"feature_size", 80, bands},
              {"sampling_rate", SOUND_RATE, SOUND_RATE},
              {"hop_length", SOUND_HOP, SOUND_HOP},
              {"n_fft", 400, 400},
              {"chunk_length", SOUND_SECONDS, SOUND_SECONDS},
              {"dither", 0, 0}};
  const json_t *type = json_get(extractor, "feature_extractor_type");
  if (type != NULL && !json_equals(type, "WhisperFeatureExtractor"))
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "preprocessor_config.json: feature_extractor_type is none that is served: "
                     "WhisperFeatureExtractor");
  for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
    const json_t *value = json_get(extractor, keys[i].key);
    double number = keys[i].absent;
    if (json_is_given(value) && !json_double(value, &number)) number = -1;
    if (number != keys[i].served)
      return error_set(error, ERR_MODEL_MALFORMED, NULL,
                       "preprocessor_config.json: %s is %g; served is %g", keys[i].key, number,
                       keys[i].served);
  }
  *out = (sound_processor_t){.bands = bands, .merge = merge, .silence = silence};
  return 0;
}

int32_t sound_windows_max(const sound_processor_t *processor) {
  return processor->silence ? SOUND_WINDOWS_MAX : 1;
}

int sound_layout(const sound_processor_t *processor, uint64_t samples, vision_layout_t *out,
                 int32_t *windows, inferd_error_t *error) {
  const uint64_t window = (uint64_t)SOUND_SECONDS * SOUND_RATE;
  const int32_t most = sound_windows_max(processor);
  const double seconds = (double)samples / SOUND_RATE;
  if (samples > (uint64_t)most * window)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the sound has %.3f s; this model hears at most %d s of one", seconds,
                     most * SOUND_SECONDS);
  *windows = (int32_t)DIV_UP(MAX(samples, 1), window);
  if (processor->silence) samples = window;
  const uint32_t frames = (uint32_t)DIV_UP(samples, SOUND_HOP);
  const uint32_t positions = DIV_UP(frames, SOUND_STRIDE);
  const uint32_t tokens = positions / (uint32_t)processor->merge;
  if (tokens == 0)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the sound has %.3f s, which are too short for a token", seconds);
  *out = (vision_layout_t){.views = 1,
                           .grid_height = 1,
                           .grid_width = positions,
                           .view_tokens = tokens,
                           .token_rows = 1,
                           .token_columns = tokens,
                           .tokens = tokens};
  return 0;
}

int32_t sound_rows(const vision_layout_t *layout) {
  return (int32_t)MIN(SOUND_STRIDE * layout->grid_width + 1, SOUND_STRIDE * SOUND_POSITIONS);
}

void sound_patches(const sound_processor_t *processor, const vision_layout_t *layout,
                   const float *rows, int32_t first, int32_t count, float *out) {
  const size_t bands = (size_t)processor->bands;
  const int32_t all = sound_rows(layout);
  for (int32_t i = 0; i < count * SPAN; i++) {
    const int32_t row = SOUND_STRIDE * (first + i / SPAN) + i % SPAN - SPAN / 2;
    if (row >= 0 && row < all)
      memcpy(out + (size_t)i * bands, rows + (size_t)row * bands, bands * sizeof *out);
    else
      memset(out + (size_t)i * bands, 0, bands * sizeof *out);
  }
}
