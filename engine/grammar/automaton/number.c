/* number.c: decimal numbers and their automata.
 *
 * Part of a compilation, on its thread. A range is checked on the text: each digit is
 * compared with the digit of each bound, and at the end of the integer part its length decides. A
 * multiple is checked by the remainder of the digits so far.
 */
#include "engine/grammar/automaton/number.h"

#include "engine/base/util.h"

#include <string.h>

/* ---- decimals ---- */

static int32_t read_exponent(const char *text, uint32_t length) {
  int32_t value = 0;
  uint32_t i = 0;
  bool negative = length > 0 && text[0] == '-';
  if (length > 0 && (text[0] == '-' || text[0] == '+')) i++;
  for (; i < length; i++) {
    if (value < 100000) value = value * 10 + (text[i] - '0');
  }
  return negative ? -value : value;
}

decimal_t decimal_of(const json_t *number) {
  decimal_t decimal = {0};
  const char *text = number->text, *end = text + number->length;
  const char *mark = text;
  while (mark < end && *mark != 'e' && *mark != 'E') mark++;
  int64_t exponent = mark < end ? read_exponent(mark + 1, (uint32_t)(end - mark - 1)) : 0;
  decimal.negative = text < mark && *text == '-';
  const char *first = NULL, *last = NULL; /* digits that are not 0 */
  int64_t point = -1, at = 0, first_at = 0, last_at = 0;
  for (const char *s = text; s < mark; s++) {
    if (*s == '.') point = at;
    if (*s < '0' || *s > '9') continue;
    if (*s != '0') {
      if (first == NULL) first = s, first_at = at;
      last = s, last_at = at;
    }
    at++;
  }
  if (first == NULL) {
    decimal.negative = false;
    return decimal;
  }
  int64_t integer = (point < 0 ? at : point) + exponent - first_at; /* digits before the point */
  int64_t count = last_at - first_at + 1;
  int64_t fraction = count - integer; /* digits after it */
  if (integer > DECIMAL_DIGITS_MAX - 8) {
    decimal.huge = true;
  } else if (fraction > DECIMAL_DIGITS_MAX - MAX(integer, 0)) {
    decimal.fine = true;
  } else {
    uint32_t used = 0;
    decimal.num_integer = (uint8_t)MAX(integer, 0);
    decimal.num_fraction = (uint8_t)MAX(fraction, 0);
    memset(decimal.digits, '0', sizeof decimal.digits);
    if (integer < 0) used = (uint32_t)-integer;
    for (const char *s = first; s <= last; s++) {
      if (*s != '.') decimal.digits[used++] = *s;
    }
  }
  return decimal;
}

static int compare_magnitude(const decimal_t *left, const decimal_t *right) {
  if (left->huge != right->huge) return left->huge ? 1 : -1;
  if (left->num_integer != right->num_integer)
    return left->num_integer < right->num_integer ? -1 : 1;
  uint32_t fraction =
      left->num_fraction > right->num_fraction ? left->num_fraction : right->num_fraction;
  for (uint32_t i = 0; i < left->num_integer + fraction; i++) {
    char x = i < left->num_integer + (uint32_t)left->num_fraction ? left->digits[i] : '0';
    char y = i < right->num_integer + (uint32_t)right->num_fraction ? right->digits[i] : '0';
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

int decimal_compare(const decimal_t *left, const decimal_t *right) {
  if (left->negative != right->negative) return left->negative ? -1 : 1;
  int order = compare_magnitude(left, right);
  return left->negative ? -order : order;
}

/* ---- the automaton ---- */

enum { LESS, EQUAL, GREATER };
typedef enum phase { BEGIN, SIGN, ZERO, INTEGER, POINT, FRACTION } phase_t;

/* Bounds of the magnitude under one sign. */
typedef struct magnitude {
  bool possible;
  const decimal_t *low, *high; /* NULL = none */
  bool low_open, high_open;
} magnitude_t;

typedef struct number_reader {
  const number_spec_t *spec;
  magnitude_t plus, minus;
  bool counts_digits;      /* the automaton itself bounds the number of digits */
  uint32_t integer_digits; /* beyond this many their number no longer matters */
} number_reader_t;

typedef struct text_state {
  bool minus;
  phase_t phase;
  uint32_t integer, fraction; /* digits so far */
  uint32_t low, high;         /* against the bounds */
  uint32_t rest;              /* of the digits so far */
} text_state_t;

static uint64_t pack(const text_state_t *state) {
  return UINT64_C(1) << 63 | (uint64_t)state->rest << 24 | (uint64_t)state->high << 22 |
         (uint64_t)state->low << 20 | (uint64_t)state->fraction << 14 |
         (uint64_t)state->integer << 8 | (uint64_t)state->phase << 1 | state->minus;
}

static text_state_t unpack(uint64_t state) {
  return (text_state_t){
      .minus = state & 1,
      .phase = (phase_t)(state >> 1 & 7),
      .integer = (uint32_t)(state >> 8 & 63),
      .fraction = (uint32_t)(state >> 14 & 63),
      .low = (uint32_t)(state >> 20 & 3),
      .high = (uint32_t)(state >> 22 & 3),
      .rest = (uint32_t)(state >> 24 & 0xFFFFFFF),
  };
}

static uint32_t compare_digit(uint32_t before, char digit, char bound) {
  if (before != EQUAL || digit == bound) return before;
  return digit < bound ? LESS : GREATER;
}

static uint32_t compare_integer(uint32_t before, const decimal_t *bound, uint32_t at, char digit) {
  if (bound == NULL) return EQUAL;
  if (at >= bound->num_integer) return GREATER;
  return compare_digit(before, digit, bound->digits[at]);
}

/* At the end of the integer part a number with fewer digits is less. */
static uint32_t finish_integer(uint32_t before, const decimal_t *bound, uint32_t count) {
  return bound != NULL && count < bound->num_integer ? LESS : before;
}

static uint32_t compare_fraction(uint32_t before, const decimal_t *bound, uint32_t at, char digit) {
  if (bound == NULL) return EQUAL;
  char other = at < bound->num_fraction ? bound->digits[bound->num_integer + at] : '0';
  return compare_digit(before, digit, other);
}

static bool add_digit(const number_reader_t *reader, text_state_t *state, char digit) {
  const number_spec_t *spec = reader->spec;
  const magnitude_t *magnitude = state->minus ? &reader->minus : &reader->plus;
  if (state->phase == ZERO) return false;
  if (state->phase == BEGIN || state->phase == SIGN || state->phase == INTEGER) {
    if (state->phase != INTEGER) state->low = state->high = EQUAL;
    if (state->phase != INTEGER && digit == '0') {
      state->phase = ZERO;
      return magnitude->possible;
    }
    if (reader->counts_digits && state->integer >= INTEGER_DIGITS_MAX) return false;
    state->phase = INTEGER;
    state->low = compare_integer(state->low, magnitude->low, state->integer, digit);
    state->high = compare_integer(state->high, magnitude->high, state->integer, digit);
    if (state->integer < reader->integer_digits) state->integer++;
  } else {
    uint32_t most = spec->multiple ? spec->scale : NUMBER_DIGITS_MAX;
    if (state->fraction >= most || state->fraction + state->integer >= NUMBER_DIGITS_MAX)
      return false;
    state->phase = FRACTION;
    state->low = compare_fraction(state->low, magnitude->low, state->fraction, digit);
    state->high = compare_fraction(state->high, magnitude->high, state->fraction, digit);
    state->fraction++;
  }
  if (spec->multiple) state->rest = (state->rest * 10 + (uint32_t)(digit - '0')) % spec->multiple;
  return magnitude->possible;
}

static bool add_point(const number_reader_t *reader, text_state_t *state) {
  const magnitude_t *magnitude = state->minus ? &reader->minus : &reader->plus;
  if (reader->spec->integer || (state->phase != ZERO && state->phase != INTEGER)) return false;
  state->low = finish_integer(state->low, magnitude->low, state->integer);
  state->high = finish_integer(state->high, magnitude->high, state->integer);
  state->phase = POINT;
  return true;
}

static uint64_t number_step(void *context, uint64_t state, uint8_t byte) {
  const number_reader_t *reader = context;
  text_state_t text = unpack(state);
  bool ok = false;
  if (byte == '-' && text.phase == BEGIN) {
    text.phase = SIGN;
    text.minus = reader->spec->has_low ||
                 reader->spec->has_high; /* without a bound both signs are treated alike */
    ok = reader->minus.possible;
  } else if (byte == '.') {
    ok = add_point(reader, &text);
  } else if (byte >= '0' && byte <= '9') {
    ok = add_digit(reader, &text, (char)byte);
  }
  return ok ? pack(&text) : 0;
}

static bool number_accepts(void *context, uint64_t state) {
  const number_reader_t *reader = context;
  text_state_t text = unpack(state);
  const magnitude_t *magnitude = text.minus ? &reader->minus : &reader->plus;
  if (text.phase != ZERO && text.phase != INTEGER && text.phase != FRACTION) return false;
  if (text.phase != FRACTION) {
    text.low = finish_integer(text.low, magnitude->low, text.integer);
    text.high = finish_integer(text.high, magnitude->high, text.integer);
  }
  /* Digits that a bound still has are not all zero. */
  if (magnitude->low != NULL && text.low == EQUAL && text.fraction < magnitude->low->num_fraction)
    text.low = LESS;
  if (magnitude->high != NULL && text.high == EQUAL &&
      text.fraction < magnitude->high->num_fraction)
    text.high = LESS;
  if (magnitude->low != NULL && (text.low == LESS || (text.low == EQUAL && magnitude->low_open)))
    return false;
  if (magnitude->high != NULL &&
      (text.high == GREATER || (text.high == EQUAL && magnitude->high_open)))
    return false;
  uint64_t rest = text.rest;
  for (uint32_t i = text.fraction; i < reader->spec->scale; i++)
    rest = rest * 10 % reader->spec->multiple;
  return rest == 0;
}

/* Computes the bounds of |x| for x >= 0 and for x written with a minus. A minus is allowed only for
 * numbers below zero. */
static void split_signs(number_reader_t *reader) {
  static const decimal_t zero = {0};
  const number_spec_t *spec = reader->spec;
  const decimal_t *low = spec->has_low ? &spec->low : NULL,
                  *high = spec->has_high ? &spec->high : NULL;
  bool high_below = high != NULL && (high->negative || (decimal_is_zero(high) && spec->high_open));
  reader->plus = (magnitude_t){.possible = !high_below};
  if (low != NULL && !low->negative && (!decimal_is_zero(low) || spec->low_open)) {
    reader->plus.low = low;
    reader->plus.low_open = spec->low_open;
  }
  if (high != NULL && !high_below) {
    reader->plus.high = high;
    reader->plus.high_open = spec->high_open;
  }
  reader->minus = (magnitude_t){.possible = low == NULL || low->negative};
  if (high_below) {
    reader->minus.low = high->negative ? high : &zero;
    reader->minus.low_open = spec->high_open;
  }
  if (low != NULL && low->negative) {
    reader->minus.high = low;
    reader->minus.high_open = spec->low_open;
  }
}

/* Removes bounds beyond every number that can be written. Returns false if such a bound allows no
 * number. */
static bool drop_huge_bounds(number_spec_t *spec) {
  if (spec->has_low && spec->low.huge) {
    if (!spec->low.negative) return false;
    spec->has_low = false;
  }
  if (spec->has_high && spec->high.huge) {
    if (spec->high.negative) return false;
    spec->has_high = false;
  }
  return true;
}

/* Marks the states that a digit leads to: the counter counts digits. */
static void count_digits(compile_t *compile, dfa_t *dfa) {
  for (uint32_t i = 1; i < dfa->num_states; i++) {
    for (int digit = '0'; digit <= '9'; digit++) {
      uint32_t to = dfa_next(dfa, i, (uint8_t)digit);
      if (to != DFA_DEAD) dfa->flags[to] |= DFA_COUNT;
    }
  }
  dfa_count(compile, dfa, 0, INTEGER_DIGITS_MAX);
}

dfa_t *number_dfa(compile_t *compile, const number_spec_t *spec) {
  number_spec_t bounded = *spec;
  if (!drop_huge_bounds(&bounded)) return compile_scratch(compile, 1, sizeof(dfa_t));
  if (!bounded.has_low && !bounded.has_high && !bounded.multiple) {
    return lexeme_dfa(compile, bounded.integer ? pattern_integer : pattern_number);
  }
  number_reader_t reader = {.spec = &bounded, .counts_digits = bounded.multiple == 0};
  split_signs(&reader);
  /* One digit more than any bound decides every comparison; for fractions the exact number is
   * needed. */
  reader.integer_digits = INTEGER_DIGITS_MAX;
  if (!reader.counts_digits) {
    uint32_t low = bounded.has_low ? bounded.low.num_integer : 0,
             high = bounded.has_high ? bounded.high.num_integer : 0;
    reader.integer_digits = MAX(low, high) + 1;
    if (bounded.scale > 0 && !bounded.integer) reader.integer_digits = NUMBER_DIGITS_MAX;
  }
  uint8_t class_of[256] = {['-'] = 1, ['.'] = 2};
  for (int digit = 0; digit < 10; digit++) class_of['0' + digit] = (uint8_t)(3 + digit);
  text_state_t begin = {.phase = BEGIN, .low = EQUAL, .high = EQUAL};
  automaton_t automaton = {&reader, pack(&begin), number_step, number_accepts, class_of};
  dfa_t *dfa = dfa_explore(compile, &automaton);
  if (!reader.counts_digits && !dfa_is_empty(dfa)) count_digits(compile, dfa);
  return dfa;
}
