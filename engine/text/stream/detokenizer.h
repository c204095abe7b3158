/* detokenizer.h: stage 8 of 9, token ids -> text that may be sent.
 *
 * Per sequence state, no allocation: the engine thread feeds one id at a time and gets the bytes
 * that are safe to send now. No output ever ends inside a code point; a stop string never leaks,
 * however it is split over tokens. Next: engine/mailbox.c.
 */
#ifndef INFERD_ENGINE_TEXT_STREAM_DETOKENIZER_H
#define INFERD_ENGINE_TEXT_STREAM_DETOKENIZER_H

#include "engine/text/tokenizer.h"

enum { STOP_STRINGS_MAX = 16, STOP_STRING_BYTES_MAX = 1024 };

/* Stop strings of one request, compiled by the loop side before submit (one Aho-Corasick automaton
 * over bytes). Immutable afterwards. */
typedef struct stop_set stop_set_t;

/* `strings[i]` has `lengths[i]` >= 1 bytes. count 0 gives *out = NULL, which every function takes.
 */
int stop_set_new(const char *const *strings, const size_t *lengths, int count, stop_set_t **out,
                 inferd_error_t *error);
void stop_set_free(stop_set_t *stops);
int stop_set_count(const stop_set_t *stops); /* NULL has none */
const char *stop_set_string(const stop_set_t *stops, int index, size_t *length);
size_t stop_set_hold_max(const stop_set_t *stops); /* most bytes that can be held back */

typedef struct detokenizer {
  const tokenizer_t *tokenizer;
  const stop_set_t *stops;
  bool skip_special_tokens;
  bool include_stop_string;
  const int32_t *shown_ids; /* special tokens that are text all the same; set after init */
  int32_t num_shown_ids;
  uint8_t num_pending; /* bytes of an unfinished UTF-8 sequence, at most 3 */
  uint8_t pending[4];
  uint32_t stop_state; /* automaton state */
  uint32_t num_held;   /* emitted bytes held back because a stop string may be forming */
  char *held;          /* room of stop_set_hold_max bytes, owned by the caller */
} detokenizer_t;

typedef struct detokenized {
  const char *text; /* points into `out` given to the call, or to the bytes of the token */
  size_t length;
  int stop_index; /* index of the stop string that completed, or -1 */
} detokenized_t;

void detokenizer_init(detokenizer_t *detokenizer, const tokenizer_t *tokenizer,
                      const stop_set_t *stops, bool skip_special_tokens, bool include_stop_string,
                      char *held);
/* Makes `detokenizer` what `from` was before anything was fed, without room for held text. */
static inline void detokenizer_init_as(detokenizer_t *detokenizer, const detokenizer_t *from) {
  *detokenizer = (detokenizer_t){.tokenizer = from->tokenizer,
                                 .stops = from->stops,
                                 .skip_special_tokens = from->skip_special_tokens,
                                 .include_stop_string = from->include_stop_string,
                                 .shown_ids = from->shown_ids,
                                 .num_shown_ids = from->num_shown_ids};
}
/* Room needed in `out` for any one call. */
size_t detokenizer_out_max(const tokenizer_t *tokenizer, const stop_set_t *stops);
/* Feeds one id. With search_stops false (fewer than min_tokens so far) no stop string is searched
 * in the bytes of this token. When stop_index >= 0 the text is final and nothing may be fed
 * afterwards. */
void detokenizer_feed_to(detokenizer_t *detokenizer, int32_t id, bool search_stops, char *out,
                         detokenized_t *text);
static inline detokenized_t detokenizer_feed(detokenizer_t *detokenizer, int32_t id,
                                             bool search_stops, char *out) {
  detokenized_t text;
  detokenizer_feed_to(detokenizer, id, search_stops, out, &text);
  return text;
}
/* The same for most tokens: whole characters, while nothing is held back and no stop string can
 * come. Returns false, and changes nothing, for any other. */
static inline bool detokenizer_feed_whole(const detokenizer_t *detokenizer, int32_t id,
                                          detokenized_t *text) {
  text->stop_index = -1;
  if (detokenizer->stops != NULL || detokenizer->num_pending > 0) return false;
  text->text = tokenizer_whole(detokenizer->tokenizer, id, &text->length);
  return text->text != NULL;
}
/* Ends the text: flushes held and pending bytes (an unfinished sequence as one U+FFFD). */
detokenized_t detokenizer_finish(detokenizer_t *detokenizer, char *out);

#endif
