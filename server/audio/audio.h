/* audio.h: /v1/audio/transcriptions and /v1/audio/translations, OpenAI's, as a dialect.
 *
 * A form with a file becomes a completion with an input for each window of the sound
 * (engine/audio/windows.h): the encoder before the model reads the window's spectrogram, and the
 * decoder has two rounds. The first is one token behind the token that starts a transcript: the
 * language, where the form does not name it, and how likely there is no speech. The second writes
 * the text. Where words have times, a third one reads it again. request.c reads, rounds.c decides,
 * align.c finds times, segments.c and words.c put ids in the form of answers, writer.c prints.
 * Of models that hear in chats the form becomes one instead (chats.c).
 */
#ifndef INFERD_SERVER_AUDIO_AUDIO_H
#define INFERD_SERVER_AUDIO_AUDIO_H

#include "engine/audio/speech.h"
#include "engine/audio/windows.h"
#include "engine/base/buffer.h"
#include "engine/encoder_source.h"
#include "server/completion/dialect.h"

typedef enum audio_shape {
  AUDIO_JSON,
  AUDIO_TEXT,
  AUDIO_SRT,
  AUDIO_VTT,
  AUDIO_VERBOSE
} audio_shape_t;

/* The fields of a form; pointers into its document. */
typedef struct audio_fields {
  const json_t *model, *language, *prompt;
  float temperature;
  bool stream, has_granularities, words, segments;
  audio_shape_t shape;
} audio_fields_t;

typedef enum audio_round { AUDIO_START, AUDIO_WRITE, AUDIO_ALIGN, AUDIO_DONE } audio_round_t;

typedef struct audio_align audio_align_t; /* align.c */

/* A window of the sound: one input of the completion. Rows lie in completion->lent. */
typedef struct audio_window {
  encoder_source_t source;
  double begin_s, end_s; /* in the sound */
  audio_round_t round;
  bool started;       /* its first round is over */
  float temperature;  /* of the round */
  double no_speech;   /* probability; 0 before the first round */
  double logprob_sum; /* of the tokens of the round */
  int32_t *ids;       /* [num_ids] of the round, in the arena; room for ids_max */
  int32_t num_ids;
  size_t sent; /* stream: bytes of its text */
  /* With times of words, else NULL: the rows of the encoder at which ids begin, [num_ids], -1 =
   * before the first; once the last job of the window has ended. */
  int32_t *rows;
} audio_window_t;

/* Lies in the arena of the completion. */
typedef struct audio_state {
  bool translates;
  const char *type; /* Content-Type of the request */
  audio_shape_t shape;
  float temperature;
  bool stream, words, segments;
  const speech_language_t *language; /* NULL = not known yet, or the model has none */
  speech_rules_t rules;              /* of the second round */
  token_sequence_t *suppressed;      /* [num_suppressed] single ids that are never drawn */
  int32_t num_suppressed;
  int32_t *text_ids; /* [num_text_ids] of `prompt`, behind previous_id */
  int32_t num_text_ids;
  int32_t *language_ids; /* [num_languages of the model], that the first round draws from */
  int32_t *prompt_ids;   /* [num_prompt_ids] of the second; 0 = the language is not known yet */
  int32_t num_prompt_ids;
  audio_window_t *windows;
  int32_t num_windows, ids_max;
  audio_align_t *align; /* with times of words, else NULL */
  void *align_memory;   /* in completion->lent, behind the rows */
  int32_t num_begun;    /* windows[0 .. num_begun) are the engine's, or were */
  double duration_s;    /* of the sound */
  uint64_t helper_ns;   /* of the process that decoded it */
  /* the writer, loop thread */
  int32_t writing; /* stream: the window whose text goes out */
  buffer_t text;   /* stream: all of it; of a chat all that the model has written */
  /* chats.c: what stands between the language and the transcript, NULL = nothing, or it was found;
   * where that begins in `text`; up to where it is sent, or was looked for. */
  const char *tag;
  size_t begin, told;
} audio_state_t;

static inline audio_state_t *audio_state(const completion_t *completion) {
  return completion->dialect_state;
}
static inline audio_window_t *audio_window(const input_t *input) {
  return &audio_state(input->completion)->windows[input - input->completion->inputs];
}

/* form.c: the parts of a form as a JSON object, by the kinds of their rows; a part with a file is
 * true. Returns 0, or an error that names the part. */
struct multipart;
int audio_print_form(const struct multipart *form, const field_table_t *table, buffer_t *out,
                     inferd_error_t *error);
extern const field_table_t transcription_table, translation_table;
/* The code of a language that is named by its code or its English name, in any case; NULL = it is
 * none. And the name of a code; NULL = it has none here. */
const char *audio_language_code(const char *text, size_t length);
const char *audio_language_name(const char *code);

/* request.c: the hooks of the dialect on the way in (dialect.h). */
bool audio_open(completion_t *completion);
bool audio_open_translation(completion_t *completion);
int audio_unpack(completion_t *completion, reader_t *reader, buffer_t *body);
/* Reads the form; `then` appends the body. What it gets lasts for the call. */
struct multipart_part;
typedef int audio_form_t(completion_t *completion, const audio_fields_t *fields,
                         const struct multipart_part *file, buffer_t *body, inferd_error_t *error);
int audio_read_form(completion_t *completion, reader_t *reader, audio_form_t *then, buffer_t *body);
int audio_spread(completion_t *completion);
void audio_free(completion_t *completion);

/* Windows of a sound that the engine has at once, at most: one is with the encoder, and others are
 * written meanwhile. A long sound fills a step like other clients, and not the queue. */
enum { AUDIO_WINDOWS_AT_ONCE = 16 };
/* rounds.c: which request comes first, and what comes behind one that has ended. */
int audio_equip(completion_t *completion);
void audio_drawn(choice_t *choice, const event_t *event);
bool audio_again(input_t *input);
double audio_mean_logprob(const audio_window_t *window); /* of a token, the end among them */
bool audio_is_silent(const audio_window_t *window);

/* align.c: the third round, of answers with times of words. `bytes`: of the memory that its weights
 * need, once windows are cut; it lies behind the rows in completion->lent. audio_align_new: returns
 * false if memory is short. `ask`: what a window has written is complete; returns false if it has
 * no words. `read`: a pass over it has ended; returns true if another one follows. The answer waits
 * for the job of the last one (settle). */
size_t audio_align_bytes(const completion_t *completion);
bool audio_align_new(completion_t *completion, void *memory);
bool audio_align_ask(input_t *input);
bool audio_align_read(input_t *input);
bool audio_settle(completion_t *completion);

/* words.c: a word of a segment. */
typedef struct audio_word {
  size_t at, length;      /* its text in that of all, without the spaces around it */
  int32_t first, num_ids; /* of the segment's ids */
} audio_word_t;
/* Finds at most words[count] in ids[count], and appends their texts to `text`, which is empty.
 * `language`: its code, or NULL. Returns how many there are, none of them empty, or
 * ERR_NO_MEMORY. */
int32_t audio_find_words(const tokenizer_t *tokenizer, const char *language, const int32_t *ids,
                         int32_t count, audio_word_t *words, buffer_t *text);

/* ratio.c: a text that repeats itself is shorter than this many times what zlib makes of it. */
#define AUDIO_RATIO_HIGH 2.4
/* Bytes of the text of ids by those that zlib makes of it; 0 without text, or memory. */
double audio_ratio(const tokenizer_t *tokenizer, const int32_t *ids, int32_t count);

/* segments.c: a piece of a transcript with its times. */
typedef struct audio_segment {
  double begin_s, end_s; /* in the sound */
  const int32_t *ids;    /* [count] of text, without stamps */
  int32_t count;
  const audio_window_t *window;
} audio_segment_t;
/* The segment of a window that begins at or behind ids[*at], which is moved behind it; false: there
 * is none left. */
bool audio_next_segment(const speech_t *speech, const audio_window_t *window, int32_t *at,
                        audio_segment_t *out);
void audio_print_time(buffer_t *out, double seconds, char point); /* 00:01:02,345 */

/* writer.c: the parts of answers that are the same of all models; transcripts without the space
 * around them. The frames of a stream are whole. */
bool audio_is_space(char byte);
void audio_strip(buffer_t *text);
void audio_print_json(buffer_t *out, const audio_state_t *state, const buffer_t *text);
void audio_print_text(completion_t *completion, const buffer_t *text);
void audio_print_delta(buffer_t *out, const char *text, size_t length);
void audio_print_done(buffer_t *out, const audio_state_t *state, const buffer_t *text);
size_t audio_held(const completion_t *completion);

/* The dialects of the routes, of models with an encoder and a decoder (writer.c) and of models that
 * hear in chats (chats.c). */
extern const dialect_t audio_transcriptions, audio_translations;
extern const dialect_t audio_chat_transcriptions, audio_chat_translations;

#endif
