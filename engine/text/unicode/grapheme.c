/* grapheme.c: the rules GB3 to GB11 of UAX #29. Pure functions, any thread; nothing is kept. */
#include "engine/text/unicode/grapheme.h"

#include "engine/text/unicode/unicode.h"

#include <stdbool.h>

typedef struct state {
  grapheme_class_t last;
  unsigned conjunct;   /* GB9c: 1 = a consonant and marks, 2 = with a linker among them */
  unsigned pictograph; /* GB11: 1 = a pictograph and marks, 2 = and a ZWJ */
} state_t;

static bool is_mark(grapheme_class_t c) {
  return c == GRAPHEME_EXTEND || c == GRAPHEME_EXTEND_INCB || c == GRAPHEME_LINKER;
}

static bool is_control(grapheme_class_t c) {
  return c >= GRAPHEME_CONTROL && c <= GRAPHEME_LF;
}

static void advance(state_t *s, grapheme_class_t c) {
  s->last = c;
  if (c == GRAPHEME_CONSONANT)
    s->conjunct = 1;
  else if (c == GRAPHEME_LINKER)
    s->conjunct = s->conjunct > 0 ? 2 : 0;
  else if (c != GRAPHEME_EXTEND_INCB && c != GRAPHEME_ZWJ)
    s->conjunct = 0;
  if (c == GRAPHEME_PICTOGRAPH)
    s->pictograph = 1;
  else if (c == GRAPHEME_ZWJ)
    s->pictograph = s->pictograph == 1 ? 2 : 0;
  else if (!is_mark(c) || s->pictograph != 1)
    s->pictograph = 0;
}

/* Hangul syllables: GB6 to GB8. */
static bool joins_hangul(grapheme_class_t a, grapheme_class_t b) {
  if (a == GRAPHEME_L) return b >= GRAPHEME_L && b != GRAPHEME_T;
  if (a == GRAPHEME_LV || a == GRAPHEME_V) return b == GRAPHEME_V || b == GRAPHEME_T;
  return (a == GRAPHEME_LVT || a == GRAPHEME_T) && b == GRAPHEME_T;
}

static bool joins(const state_t *s, grapheme_class_t next) {
  if (s->last == GRAPHEME_CR && next == GRAPHEME_LF) return true;
  if (is_control(s->last) || is_control(next)) return false;
  if (is_mark(next) || next == GRAPHEME_ZWJ || next == GRAPHEME_SPACING) return true;
  if (s->last == GRAPHEME_PREPEND || joins_hangul(s->last, next)) return true;
  if (next == GRAPHEME_CONSONANT) return s->conjunct == 2;
  return next == GRAPHEME_PICTOGRAPH && s->pictograph == 2;
}

static grapheme_class_t class_at(const uint8_t *text, unsigned *length) {
  uint32_t c = utf8_read(text, length);
  return grapheme_blocks[(uint32_t)grapheme_index[c >> 8] << 8 | (c & 255)];
}

size_t grapheme_length(const uint8_t *text, size_t length) {
  state_t s = {0};
  unsigned bytes;
  advance(&s, class_at(text, &bytes));
  size_t at = bytes;
  while (at < length) {
    grapheme_class_t next = class_at(text + at, &bytes);
    if (!joins(&s, next)) break;
    advance(&s, next);
    at += bytes;
  }
  return at;
}
