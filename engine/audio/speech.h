/* speech.h: what the files of a model that hears say of its transcripts (Whisper).
 *
 * Plain data, of generation_config.json as transformers writes it; constant from READY on.
 */
#ifndef INFERD_ENGINE_AUDIO_SPEECH_H
#define INFERD_ENGINE_AUDIO_SPEECH_H

#include "engine/base/error.h"
#include "engine/base/json.h"
#include "engine/device/cross_weights.h"
#include "engine/device/speech_rules.h"

enum {
  SPEECH_LANGUAGES_MAX = 128,
  SPEECH_CODE_MAX = 8,         /* bytes of the code of a language, with the terminator */
  SPEECH_SUPPRESSED_MAX = 256, /* ids that are never drawn */
  SPEECH_HEADS_MAX = 512,      /* that say when a token was said */
  SPEECH_STAMPS_A_SECOND = 50
};

typedef struct speech_language {
  char code[SPEECH_CODE_MAX]; /* "en", "yue" */
  int32_t id;
} speech_language_t;

typedef struct speech {
  int32_t bands; /* of the spectrogram: num_mel_bins */
  /* A prompt is [previous_id, ids of a text,] start_id [, language, task] [, no_stamps_id]. */
  int32_t start_id, previous_id; /* previous_id -1 = it takes no text */
  int32_t transcribe_id, translate_id;
  int32_t no_speech_id; /* whose probability behind start_id is that of silence */
  speech_language_t languages[SPEECH_LANGUAGES_MAX];
  int32_t num_languages; /* 0 = it knows one, and no tasks */
  int32_t suppressed[SPEECH_SUPPRESSED_MAX];
  int32_t num_suppressed;
  speech_rules_t rules; /* with `stamps` */
  /* alignment_heads, whose cross attention follows the sound. Where the files name none, or some
   * that the decoder has not (distilled models keep the list of a larger one): as openai-whisper
   * has it, all heads of the last half of its layers. */
  cross_head_t heads[SPEECH_HEADS_MAX];
  int32_t num_heads;    /* at least 1 */
  int32_t median_width; /* of the filter over their weights: odd */
} speech_t;

/* Reads generation_config.json and config.json, for a vocabulary of vocab_size. Returns 0, or
 * ERR_MODEL_MALFORMED with the name of what is wrong. */
int speech_read(const json_t *generation, const json_t *config, int32_t vocab_size, speech_t *out,
                inferd_error_t *error);
/* The language of a code; NULL = the model does not know it. */
const speech_language_t *speech_language(const speech_t *speech, const char *code, size_t length);

#endif
