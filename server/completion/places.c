/* places.c: spans in bytes -> characters, and which tokens begin a word.
 *
 * Runs on the tokenizing threads; keeps no state. Spans mostly ascend, so characters are counted
 * once over the text.
 */
#include "server/completion/places.h"

#include "engine/base/utf8.h"

#include <stdlib.h>

/* Bytes and characters of the text up to a place. */
typedef struct counted {
  const char *text;
  size_t bytes, characters;
} counted_t;

static uint32_t count_to(counted_t *counted, size_t bytes) {
  if (bytes < counted->bytes) counted->bytes = counted->characters = 0;
  counted->characters += utf8_count(counted->text + counted->bytes, bytes - counted->bytes);
  counted->bytes = bytes;
  return (uint32_t)counted->characters;
}

static bool is_inner(const tokenizer_t *tokenizer, const char *text, size_t length, int32_t id,
                     const token_place_t *place) {
  size_t spelled;
  if (tokenizer_is_unknown(tokenizer, id)) return false;
  const uint8_t *spelling = tokenizer_spelling(tokenizer, id, &spelled);
  if (tokenizer_marks_inner(tokenizer))
    return utf8_count((const char *)spelling, spelled) != place->end_char - place->first_char;
  if (place->begin == 0 || text[place->begin - 1] == ' ') return false;
  return place->begin >= length || text[place->begin] != ' ';
}

token_place_t *places_make(const tokenizer_t *tokenizer, const char *text, size_t length,
                           const int32_t *ids, const byte_span_t *spans, size_t count) {
  counted_t begins = {.text = text}, ends = {.text = text};
  token_place_t *places = calloc(count + 1, sizeof *places);
  for (size_t i = 0; places != NULL && i < count; i++) {
    token_place_t *place = &places[i];
    place->special = spans[i].begin > spans[i].end;
    if (place->special) continue;
    place->begin = (uint32_t)spans[i].begin;
    place->end = (uint32_t)spans[i].end;
    place->first_char = count_to(&begins, place->begin);
    place->end_char = count_to(&ends, place->end);
    place->inner = is_inner(tokenizer, text, length, ids[i], place);
  }
  return places;
}
