/* grapheme.c: the rules GB3 to GB11 of UAX #29. Pure functions, any thread; nothing is kept. */
#include "engine/text/unicode/grapheme.h"

#include "engine/text/unicode/unicode.h"

#include <stdbool.h>

typedef struct state {
  grapheme_class_t last;
  unsigned conjunct;   /* GB9c: 1 = a consonant and marks, 2 = with a linker among them */
  unsigned pictograph; /* GB11: 1 = a pictograph and marks, 2 = and a ZWJ */
} state_t;

static bool is_mark(grapheme_class_t class) {
  return class == GRAPHEME_EXTEND || class == GRAPHEME_EXTEND_INCB || class == GRAPHEME_LINKER;
}

static bool is_control(grapheme_class_t class) {
  return class >= GRAPHEME_CONTROL && class <= GRAPHEME_LF;
}

static void advance(state_t *state, grapheme_class_t class) {
  state->last = class;
  if (class == GRAPHEME_CONSONANT)
    state->conjunct = 1;
  else if (class == GRAPHEME_LINKER)
    state->conjunct = state->conjunct > 0 ? 2 : 0;
  else if (class != GRAPHEME_EXTEND_INCB && class != GRAPHEME_ZWJ)
    state->conjunct = 0;
  if (class == GRAPHEME_PICTOGRAPH)
    state->pictograph = 1;
  else if (class == GRAPHEME_ZWJ)
    state->pictograph = state->pictograph == 1 ? 2 : 0;
  else if (!is_mark(class) || state->pictograph != 1)
    state->pictograph = 0;
}

/* Hangul syllables: GB6 to GB8. */
static bool joins_hangul(grapheme_class_t left, grapheme_class_t right) {
  if (left == GRAPHEME_L) return right >= GRAPHEME_L && right != GRAPHEME_T;
  if (left == GRAPHEME_LV || left == GRAPHEME_V) return right == GRAPHEME_V || right == GRAPHEME_T;
  return (left == GRAPHEME_LVT || left == GRAPHEME_T) && right == GRAPHEME_T;
}

static bool joins(const state_t *state, grapheme_class_t next) {
  if (state->last == GRAPHEME_CR && next == GRAPHEME_LF) return true;
  if (is_control(state->last) || is_control(next)) return false;
  if (is_mark(next) || next == GRAPHEME_ZWJ || next == GRAPHEME_SPACING) return true;
  if (state->last == GRAPHEME_PREPEND || joins_hangul(state->last, next)) return true;
  if (next == GRAPHEME_CONSONANT) return state->conjunct == 2;
  return next == GRAPHEME_PICTOGRAPH && state->pictograph == 2;
}

static grapheme_class_t class_at(const uint8_t *text, unsigned *length) {
  uint32_t c = utf8_read(text, length);
  return grapheme_blocks[(uint32_t)grapheme_index[c >> 8] << 8 | (c & 255)];
}

size_t grapheme_length(const uint8_t *text, size_t length) {
  state_t state = {0};
  unsigned bytes;
  advance(&state, class_at(text, &bytes));
  size_t at = bytes;
  while (at < length) {
    grapheme_class_t next = class_at(text + at, &bytes);
    if (!joins(&state, next)) break;
    advance(&state, next);
    at += bytes;
  }
  return at;
}
