/* encoder_source.h: what the encoder before a decoder reads for a request, and what an engine says
 * of it.
 *
 * Plain data. The server makes an encoder_source_t, the engine reads it until EVENT_DONE. A source
 * is either ids, which the encoder looks up, or rows of numbers, of which convolutions make fewer
 * positions (a spectrogram).
 */
#ifndef INFERD_ENGINE_ENCODER_SOURCE_H
#define INFERD_ENGINE_ENCODER_SOURCE_H

#include <stdint.h>

/* SHA-256 of what the encoder reads. Two sources of one key and one domain become one run of the
 * encoder, and the key stands in those of the prefix cache: clients must not be able to choose two
 * sources with one key. */
typedef struct source_key {
  uint8_t bytes[32];
} source_key_t;

/* Rows of a source that convolutions make a position of. */
enum { SOURCE_ROWS = 2 };

typedef struct encoder_source {
  source_key_t key;
  const int32_t *ids; /* [length], each 0 <= id < vocab_size; NULL = rows */
  /* [SOURCE_ROWS length, source_info_t.columns], finite; NULL = ids */
  const float *rows;
  int32_t length; /* positions: 1..source_info_t.longest; of rows that many exactly */
} encoder_source_t;

/* Of a model with an encoder before its decoder; constant from READY on. */
typedef struct source_info {
  int32_t longest; /* positions */
  int32_t columns; /* of rows; 0 = a source is ids */
  /* The decoder's prompt: an id, and, if it is not -1, one behind it that the model always writes
   * first. -1 = a request says it (the id of a language). */
  int32_t start_id, forced_bos_id;
  /* Defaults of generation_config.json. */
  int32_t num_beams; /* 1 = none */
  float length_penalty;
  int32_t early_stopping; /* early_stopping_t */
} source_info_t;

#endif
