/* writer.c: the windows of a sound -> answers of /v1/audio: JSON, text, subtitles, events.
 *
 * Stage 9 of 9. Loop thread. A stream sends the tokens of its first unfinished window as they come,
 * and what later ones have written when it is their turn.
 */
#include "engine/base/util.h"
#include "server/audio/audio.h"
#include "server/observe/metrics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- text ---- */

/* Ids of stamps, and those that are special, are no text. */
static int decode(const completion_t *completion, const int32_t *ids, int32_t count,
                  buffer_t *out) {
  const int32_t first_stamp = completion->info->speech->rules.first_stamp_id;
  char *text = NULL;
  size_t length = 0;
  inferd_error_t error;
  int32_t *kept = calloc((size_t)MAX(count, 1), sizeof *kept), n = 0;
  if (kept == NULL) return ERR_NO_MEMORY;
  for (int32_t i = 0; i < count; i++) {
    if (ids[i] < first_stamp) kept[n++] = ids[i];
  }
  const int code =
      tokenizer_decode(completion->tokenizer, kept, (size_t)n, true, &text, &length, &error);
  if (code == 0) buffer_append(out, text, length);
  free(text);
  free(kept);
  return code;
}

bool audio_is_space(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

void audio_strip(buffer_t *text) {
  size_t begin = 0;
  while (text->length > 0 && audio_is_space(text->data[text->length - 1])) text->length--;
  while (begin < text->length && audio_is_space(text->data[begin])) begin++;
  if (begin > 0) memmove(text->data, text->data + begin, text->length -= begin);
}

/* All that is not silence, one window behind another. */
static void whole_text(const completion_t *completion, buffer_t *out) {
  const audio_state_t *state = audio_state(completion);
  for (int32_t i = 0; i < state->num_windows; i++) {
    const audio_window_t *window = &state->windows[i];
    if (audio_is_silent(window)) continue;
    out->failed = decode(completion, window->ids, window->num_ids, out) != 0 || out->failed;
  }
  audio_strip(out);
}

/* ---- answers ---- */

static void print_usage(buffer_t *out, const audio_state_t *state) {
  buffer_text(out, ",\"usage\":{\"type\":\"duration\",\"seconds\":");
  buffer_int(out, (int64_t)ceil(state->duration_s));
  buffer_char(out, '}');
}

static void print_number(buffer_t *out, double value) {
  buffer_float(out, isfinite(value) ? (float)value : 0);
}

static void print_segment(buffer_t *out, const completion_t *completion,
                          const audio_segment_t *segment, const buffer_t *text, int32_t index) {
  const audio_window_t *window = segment->window;
  buffer_text(out, "{\"id\":");
  buffer_int(out, index);
  buffer_text(out, ",\"seek\":");
  buffer_int(out, (int64_t)(window->begin_s * 100 + 0.5));
  buffer_text(out, ",\"start\":");
  print_number(out, segment->begin_s);
  buffer_text(out, ",\"end\":");
  print_number(out, segment->end_s);
  buffer_text(out, ",\"text\":");
  buffer_quote(out, text->data, text->length);
  buffer_text(out, ",\"tokens\":");
  buffer_ids(out, segment->ids, (size_t)segment->count);
  buffer_text(out, ",\"temperature\":");
  print_number(out, (double)window->temperature);
  buffer_text(out, ",\"avg_logprob\":");
  print_number(out, audio_mean_logprob(window));
  buffer_text(out, ",\"compression_ratio\":");
  print_number(out, audio_ratio(completion->tokenizer, window->ids, window->num_ids));
  buffer_text(out, ",\"no_speech_prob\":");
  print_number(out, window->no_speech);
  buffer_char(out, '}');
}

static void print_cue(buffer_t *out, const audio_segment_t *segment, buffer_t *text, int32_t index,
                      bool vtt) {
  const char point = vtt ? '.' : ',';
  if (!vtt) {
    buffer_int(out, index + 1);
    buffer_char(out, '\n');
  }
  audio_print_time(out, segment->begin_s, point);
  buffer_text(out, " --> ");
  audio_print_time(out, segment->end_s, point);
  buffer_char(out, '\n');
  audio_strip(text);
  buffer_append(out, text->data, text->length);
  buffer_text(out, "\n\n");
}

/* All segments, in the form of the answer. */
static void print_segments(buffer_t *out, const completion_t *completion) {
  const audio_state_t *state = audio_state(completion);
  const speech_t *speech = completion->info->speech;
  buffer_t text = {0};
  int32_t index = 0;
  for (int32_t i = 0; i < state->num_windows; i++) {
    const audio_window_t *window = &state->windows[i];
    audio_segment_t segment;
    int32_t at = 0;
    while (!audio_is_silent(window) && audio_next_segment(speech, window, &at, &segment)) {
      buffer_clear(&text);
      if (decode(completion, segment.ids, segment.count, &text) != 0) out->failed = true;
      if (state->shape == AUDIO_VERBOSE && index > 0) buffer_char(out, ',');
      if (state->shape == AUDIO_VERBOSE)
        print_segment(out, completion, &segment, &text, index);
      else
        print_cue(out, &segment, &text, index, state->shape == AUDIO_VTT);
      index++;
    }
  }
  out->failed = out->failed || text.failed;
  buffer_free(&text);
}

/* When an id of a window begins; the one before the first stands at the window's begin. */
static double begin_of(const audio_window_t *window, int32_t index) {
  const int32_t row = index < 0 ? 0 : MAX(window->rows[index], 0);
  return MIN(window->begin_s + (double)row / SPEECH_STAMPS_A_SECOND, window->end_s);
}

/* A word lasts from the begin of the token before it to that of its last one, as transformers has
 * it: a token's weights are where the next one is said. */
static void print_words(buffer_t *out, const completion_t *completion,
                        const audio_segment_t *segment, bool *first) {
  const audio_state_t *state = audio_state(completion);
  const audio_window_t *window = segment->window;
  const char *code = state->language != NULL ? state->language->code : NULL;
  const int32_t place = (int32_t)(segment->ids - window->ids);
  audio_word_t *words = calloc((size_t)segment->count, sizeof *words);
  buffer_t text = {0};
  const int32_t count = words != NULL ? audio_find_words(completion->tokenizer, code, segment->ids,
                                                         segment->count, words, &text)
                                      : ERR_NO_MEMORY;
  out->failed = out->failed || count < 0;
  for (int32_t i = 0; i < count; i++) {
    const int32_t at = place + words[i].first;
    buffer_text(out, *first ? "{\"word\":" : ",{\"word\":");
    *first = false;
    buffer_quote(out, text.data + words[i].at, words[i].length);
    buffer_text(out, ",\"start\":");
    print_number(out, begin_of(window, at - 1));
    buffer_text(out, ",\"end\":");
    print_number(out, begin_of(window, at + words[i].num_ids - 1));
    buffer_char(out, '}');
  }
  buffer_free(&text);
  free(words);
}

static void print_all_words(buffer_t *out, const completion_t *completion) {
  const audio_state_t *state = audio_state(completion);
  bool first = true;
  buffer_text(out, ",\"words\":[");
  for (int32_t i = 0; i < state->num_windows; i++) {
    const audio_window_t *window = &state->windows[i];
    audio_segment_t segment;
    int32_t at = 0;
    while (!audio_is_silent(window) &&
           audio_next_segment(completion->info->speech, window, &at, &segment))
      print_words(out, completion, &segment, &first);
  }
  buffer_char(out, ']');
}

static void print_verbose(buffer_t *out, const completion_t *completion, const buffer_t *text) {
  const audio_state_t *state = audio_state(completion);
  const char *name =
      state->language != NULL ? audio_language_name(state->language->code) : "english";
  if (name == NULL) name = state->language->code;
  buffer_text(out, state->translates ? "{\"task\":\"translate\",\"language\":"
                                     : "{\"task\":\"transcribe\",\"language\":");
  if (state->translates) name = "english";
  buffer_quote(out, name, strlen(name));
  buffer_text(out, ",\"duration\":");
  print_number(out, state->duration_s);
  buffer_text(out, ",\"text\":");
  buffer_quote(out, text->data, text->length);
  if (state->segments) {
    buffer_text(out, ",\"segments\":[");
    print_segments(out, completion);
    buffer_char(out, ']');
  }
  if (state->words) print_all_words(out, completion);
  print_usage(out, state);
  buffer_char(out, '}');
}

void audio_print_json(buffer_t *out, const audio_state_t *state, const buffer_t *text) {
  buffer_text(out, "{\"text\":");
  buffer_quote(out, text->data, text->length);
  print_usage(out, state);
  buffer_char(out, '}');
}

void audio_print_text(completion_t *completion, const buffer_t *text) {
  buffer_t *out = &completion->reply.own;
  completion->reply_type = "text/plain; charset=utf-8";
  buffer_append(out, text->data, text->length);
  buffer_char(out, '\n');
}

static bool print_response(completion_t *completion) {
  const audio_shape_t shape = audio_state(completion)->shape;
  buffer_t *out = &completion->reply.own, text = {0};
  if (shape != AUDIO_SRT && shape != AUDIO_VTT) whole_text(completion, &text);
  if (shape == AUDIO_SRT) completion->reply_type = "text/plain; charset=utf-8";
  if (shape == AUDIO_VTT) completion->reply_type = "text/vtt; charset=utf-8";
  if (shape == AUDIO_JSON) audio_print_json(out, audio_state(completion), &text);
  if (shape == AUDIO_VERBOSE) print_verbose(out, completion, &text);
  if (shape == AUDIO_VTT) buffer_text(out, "WEBVTT\n\n");
  if (shape == AUDIO_SRT || shape == AUDIO_VTT) print_segments(out, completion);
  if (shape == AUDIO_TEXT) audio_print_text(completion, &text);
  out->failed = out->failed || text.failed;
  buffer_free(&text);
  return !cord_failed(&completion->reply);
}

/* ---- stream ---- */

/* Bytes of a text before what may still become one character. */
static size_t complete_length(const buffer_t *text) {
  size_t length = text->length;
  for (int i = 0; i < 3 && length >= 3 && memcmp(text->data + length - 3, "\xEF\xBF\xBD", 3) == 0;
       i++)
    length -= 3;
  return length;
}

void audio_print_delta(buffer_t *out, const char *text, size_t length) {
  buffer_text(out, "data: {\"type\":\"transcript.text.delta\",\"delta\":");
  buffer_quote(out, text, length);
  buffer_text(out, "}\n\n");
}

/* Sends the text of a window that is not sent yet. The transcript begins without a space. */
static void send_delta(completion_t *completion, audio_window_t *window) {
  audio_state_t *state = audio_state(completion);
  buffer_t *out = &completion->server->live->frame.own, text = {0};
  const bool failed = decode(completion, window->ids, window->num_ids, &text) != 0 || text.failed;
  const size_t end = window->round == AUDIO_DONE ? text.length : complete_length(&text);
  size_t begin = MIN(window->sent, end);
  while (state->text.length == 0 && begin < end && audio_is_space(text.data[begin])) begin++;
  if (end > begin || failed) {
    buffer_append(&state->text, text.data + begin, end - begin);
    buffer_clear(out);
    audio_print_delta(out, text.data + begin, end - begin);
    out->failed = out->failed || failed || state->text.failed;
    sse_send_buffer(completion, out);
  }
  window->sent = end;
  buffer_free(&text);
}

static void send_chunk(choice_t *choice, bool last) {
  completion_t *completion = choice->input->completion;
  audio_state_t *state = audio_state(completion);
  (void)last;
  choice->unsent_tokens = 0;
  while (state->writing < state->num_windows) {
    const choice_t *next = &completion->choices[state->writing];
    audio_window_t *window = &state->windows[state->writing];
    if (completion->exchange == NULL || window->round == AUDIO_START) return;
    send_delta(completion, window);
    if (window->round != AUDIO_DONE || !next->done) return;
    state->writing++;
  }
}

void audio_print_done(buffer_t *out, const audio_state_t *state, const buffer_t *text) {
  static const char done[] = "data: [DONE]\n\n";
  buffer_text(out, "data: {\"type\":\"transcript.text.done\",\"text\":");
  buffer_quote(out, text->data, text->length);
  print_usage(out, state);
  buffer_text(out, "}\n\n");
  buffer_append(out, done, sizeof done - 1);
}

static void send_done(completion_t *completion) {
  audio_state_t *state = audio_state(completion);
  buffer_t *out = &completion->server->live->frame.own;
  if (completion->exchange == NULL) return;
  audio_strip(&state->text);
  buffer_clear(out);
  audio_print_done(out, state, &state->text);
  sse_send_buffer(completion, out);
}

static void send_error(completion_t *completion, const inferd_error_t *error) {
  text_dialect.error(completion, error);
}

static void send_ping(completion_t *completion) {
  text_dialect.ping(completion);
}

/* ---- dialects ---- */

static bool prepare(completion_t *completion) {
  const audio_state_t *state = audio_state(completion);
  completion->created = (int64_t)time(NULL);
  metrics_heard(completion->server->metrics, state->duration_s, state->num_windows);
  return true;
}

size_t audio_held(const completion_t *completion) {
  return audio_state(completion)->text.capacity;
}

#define AUDIO_DIALECT(label, opens)                                                                \
  {                                                                                                \
    .route = (label), .hears = true, .open = (opens), .unpack = audio_unpack,                      \
    .spread = audio_spread, .equip = audio_equip, .prepare = prepare, .drawn = audio_drawn,        \
    .again = audio_again, .settle = audio_settle, .chunk = send_chunk, .done = send_done,          \
    .error = send_error, .ping = send_ping, .response = print_response, .held = audio_held,        \
    .free = audio_free                                                                             \
  }
const dialect_t audio_transcriptions = AUDIO_DIALECT("/v1/audio/transcriptions", audio_open);
const dialect_t audio_translations =
    AUDIO_DIALECT("/v1/audio/translations", audio_open_translation);
