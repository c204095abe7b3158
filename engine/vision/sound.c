/* sound.c: see sound.h. References: WhisperFeatureExtractor, Qwen2AudioProcessor and
 * Qwen3ASRProcessor of transformers. Any thread; no state. */
#include "engine/vision/sound.h"

#include "engine/base/util.h"

#include <string.h>

enum { SPAN = 5 }; /* rows around that of a position, TOWER_SPAN of a tower */

int sound_processor_read(const json_t *extractor, int32_t bands, sound_processor_t *out,
                         inferd_error_t *error) {
  static const char whisper[] = "WhisperFeatureExtractor", chunks[] = "Qwen3ASRFeatureExtractor";
  const json_t *type = json_get(extractor, "feature_extractor_type");
  /* Qwen's own files of Qwen3-ASR name the first one, and make the same of it. */
  const bool of_chunks = out->chunked && !json_equals(type, whisper);
  const struct {
    const char *key;
    double absent, served;
  } keys[] = {{"feature_size", of_chunks ? 128 : 80, bands},
              {"sampling_rate", SOUND_RATE, SOUND_RATE},
              {"hop_length", SOUND_HOP, SOUND_HOP},
              {"n_fft", 400, 400},
              {"chunk_length", SOUND_SECONDS, SOUND_SECONDS},
              {"dither", 0, 0},
              {"n_window", SOUND_CHUNK_ROWS / 2, SOUND_CHUNK_ROWS / 2},
              {"min_length", 8000, out->samples_min}};
  const size_t count = ARRAY_LEN(keys) - (of_chunks ? 0 : 2);
  if (type != NULL && !json_equals(type, of_chunks ? chunks : whisper))
    return error_set(error, ERR_MODEL_MALFORMED, NULL,
                     "preprocessor_config.json: feature_extractor_type is none that is served: %s",
                     of_chunks ? chunks : whisper);
  for (size_t i = 0; i < count; i++) {
    const json_t *value = json_get(extractor, keys[i].key);
    double number = keys[i].absent;
    if (json_is_given(value) && !json_double(value, &number)) number = -1;
    if (number != keys[i].served)
      return error_set(error, ERR_MODEL_MALFORMED, NULL,
                       "preprocessor_config.json: %s is %g; served is %g", keys[i].key, number,
                       keys[i].served);
  }
  out->bands = bands;
  return 0;
}

int32_t sound_seconds_max(const sound_processor_t *processor) {
  return processor->chunked ? SOUND_CHUNKED_SECONDS : processor->windows_max * SOUND_SECONDS;
}

int32_t sound_window_rows(const sound_processor_t *processor) {
  return processor->chunked ? SOUND_CHUNKS * SOUND_CHUNK_ROWS : SOUND_STRIDE * SOUND_POSITIONS;
}

/* Positions of a window that has so many rows. */
static uint32_t positions_of(const sound_processor_t *processor, uint64_t rows) {
  if (!processor->chunked) return (uint32_t)DIV_UP(rows, SOUND_STRIDE);
  return (uint32_t)(rows / SOUND_CHUNK_ROWS * SOUND_CHUNK_POSITIONS +
                    DIV_UP(rows % SOUND_CHUNK_ROWS, SOUND_CHUNK_STRIDE));
}

/* Rows of a sound, without those of silence behind it. */
static uint64_t rows_of(const sound_processor_t *processor, uint64_t samples) {
  if (!processor->chunked) return DIV_UP(samples, SOUND_HOP);
  samples = MAX(samples, (uint64_t)processor->samples_min);
  return samples < SOUND_SAMPLES_MIN ? 0 : samples / SOUND_HOP;
}

vision_layout_t sound_window(const sound_processor_t *processor, uint64_t samples, int32_t window) {
  const uint64_t whole = (uint64_t)sound_window_rows(processor);
  const uint64_t rows = rows_of(processor, samples) - (uint64_t)window * whole;
  const uint32_t own = positions_of(processor, MIN(rows, whole));
  const uint32_t positions = processor->silence ? positions_of(processor, whole) : own;
  const uint32_t told = processor->tokens_of_silence ? positions : own;
  const uint32_t tokens = told / (uint32_t)processor->merge;
  const bool is_short =
      processor->chunked && processor->samples_min == 0 && window == 0 && rows < SOUND_CHUNK_ROWS;
  return (vision_layout_t){.views = 1,
                           .short_rows = is_short ? (uint32_t)rows : 0,
                           .grid_height = 1,
                           .grid_width = positions,
                           .view_tokens = tokens,
                           .token_rows = 1,
                           .token_columns = tokens,
                           .tokens = tokens};
}

int sound_layout(const sound_processor_t *processor, uint64_t samples, vision_layout_t *out,
                 int32_t *windows, inferd_error_t *error) {
  const int32_t most = sound_seconds_max(processor);
  const double seconds = (double)samples / SOUND_RATE;
  if (samples > (uint64_t)most * SOUND_RATE)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the sound has %.3f s; this model hears at most %d s of one", seconds, most);
  samples = MAX(samples, 1);
  const uint64_t rows = MAX(rows_of(processor, samples), 1);
  *windows = (int32_t)DIV_UP(rows, (uint64_t)sound_window_rows(processor));
  *out = sound_window(processor, samples, 0);
  if (out->tokens == 0)
    return error_set(error, ERR_INVALID_VALUE, NULL,
                     "the sound has %.3f s, which are too short for a token", seconds);
  if (sound_window(processor, samples, *windows - 1).tokens == 0) --*windows;
  return 0;
}

int32_t sound_rows(const sound_processor_t *processor, const vision_layout_t *layout) {
  if (processor->chunked)
    return (int32_t)DIV_UP(layout->grid_width, SOUND_CHUNK_POSITIONS) * SOUND_CHUNK_ROWS;
  return (int32_t)MIN(SOUND_STRIDE * layout->grid_width + 1, SOUND_STRIDE * SOUND_POSITIONS);
}

/* Of each position the rows of its chunk that are its own. */
static void chunk_patches(const sound_processor_t *processor, const float *rows, int32_t first,
                          int32_t count, float *out) {
  const size_t bands = (size_t)processor->bands, all = SOUND_CHUNK_STRIDE * bands;
  memset(out, 0, (size_t)count * all * sizeof *out);
  for (int32_t i = 0; i < count; i++) {
    const int32_t chunk = (first + i) / SOUND_CHUNK_POSITIONS;
    const int32_t at = (first + i) % SOUND_CHUNK_POSITIONS * SOUND_CHUNK_STRIDE;
    const size_t own = (size_t)MIN(SOUND_CHUNK_STRIDE, SOUND_CHUNK_ROWS - at);
    memcpy(out + (size_t)i * all, rows + (size_t)(chunk * SOUND_CHUNK_ROWS + at) * bands,
           own * bands * sizeof *out);
  }
}

void sound_patches(const sound_processor_t *processor, const vision_layout_t *layout,
                   const float *rows, int32_t first, int32_t count, float *out) {
  const size_t bands = (size_t)processor->bands;
  const int32_t all = sound_rows(processor, layout);
  if (processor->chunked) {
    chunk_patches(processor, rows, first, count, out);
    return;
  }
  for (int32_t i = 0; i < count * SPAN; i++) {
    const int32_t row = SOUND_STRIDE * (first + i / SPAN) + i % SPAN - SPAN / 2;
    if (row >= 0 && row < all)
      memcpy(out + (size_t)i * bands, rows + (size_t)row * bands, bands * sizeof *out);
    else
      memset(out + (size_t)i * bands, 0, bands * sizeof *out);
  }
}
