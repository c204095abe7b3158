/* number.c: decimal numbers and their automata.
 *
 * Part of a compilation, on its thread. A range is decided on the text: while digits come the
 * number is compared with each bound's digits, and its length decides at the end of the integer
 * part. A multiple is decided by the remainder of the digits so far.
 */
#include "engine/grammar/automaton/number.h"

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
  decimal_t d = {0};
  const char *text = number->text, *end = text + number->length;
  const char *mark = text;
  while (mark < end && *mark != 'e' && *mark != 'E') mark++;
  int64_t exponent = mark < end ? read_exponent(mark + 1, (uint32_t)(end - mark - 1)) : 0;
  d.negative = text < mark && *text == '-';
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
    d.negative = false;
    return d;
  }
  int64_t integer = (point < 0 ? at : point) + exponent - first_at; /* digits before the point */
  int64_t count = last_at - first_at + 1;
  int64_t fraction = count - integer; /* digits after it */
  if (integer > DECIMAL_DIGITS_MAX - 8) {
    d.huge = true;
  } else if (fraction > DECIMAL_DIGITS_MAX - (integer > 0 ? integer : 0)) {
    d.fine = true;
  } else {
    uint32_t used = 0;
    d.num_integer = (uint8_t)(integer > 0 ? integer : 0);
    d.num_fraction = (uint8_t)(fraction > 0 ? fraction : 0);
    memset(d.digits, '0', sizeof d.digits);
    if (integer < 0) used = (uint32_t)-integer;
    for (const char *s = first; s <= last; s++) {
      if (*s != '.') d.digits[used++] = *s;
    }
  }
  return d;
}

static int compare_magnitude(const decimal_t *a, const decimal_t *b) {
  if (a->huge != b->huge) return a->huge ? 1 : -1;
  if (a->num_integer != b->num_integer) return a->num_integer < b->num_integer ? -1 : 1;
  uint32_t fraction = a->num_fraction > b->num_fraction ? a->num_fraction : b->num_fraction;
  for (uint32_t i = 0; i < a->num_integer + fraction; i++) {
    char x = i < a->num_integer + (uint32_t)a->num_fraction ? a->digits[i] : '0';
    char y = i < b->num_integer + (uint32_t)b->num_fraction ? b->digits[i] : '0';
    if (x != y) return x < y ? -1 : 1;
  }
  return 0;
}

int decimal_compare(const decimal_t *a, const decimal_t *b) {
  if (a->negative != b->negative) return a->negative ? -1 : 1;
  int order = compare_magnitude(a, b);
  return a->negative ? -order : order;
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

typedef struct reader {
  const number_spec_t *spec;
  magnitude_t plus, minus;
  bool counts_digits;      /* the automaton itself bounds the number of digits */
  uint32_t integer_digits; /* beyond this many their number no longer matters */
} reader_t;

typedef struct text_state {
  bool minus;
  phase_t phase;
  uint32_t integer, fraction; /* digits so far */
  uint32_t low, high;         /* against the bounds */
  uint32_t rest;              /* of the digits so far */
} text_state_t;

static uint64_t pack(const text_state_t *s) {
  return UINT64_C(1) << 63 | (uint64_t)s->rest << 24 | (uint64_t)s->high << 22 |
         (uint64_t)s->low << 20 | (uint64_t)s->fraction << 14 | (uint64_t)s->integer << 8 |
         (uint64_t)s->phase << 1 | s->minus;
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

/* At the end of the integer part fewer digits are less. */
static uint32_t finish_integer(uint32_t before, const decimal_t *bound, uint32_t count) {
  return bound != NULL && count < bound->num_integer ? LESS : before;
}

static uint32_t compare_fraction(uint32_t before, const decimal_t *bound, uint32_t at, char digit) {
  if (bound == NULL) return EQUAL;
  char other = at < bound->num_fraction ? bound->digits[bound->num_integer + at] : '0';
  return compare_digit(before, digit, other);
}

static bool add_digit(const reader_t *r, text_state_t *s, char digit) {
  const number_spec_t *spec = r->spec;
  const magnitude_t *m = s->minus ? &r->minus : &r->plus;
  if (s->phase == ZERO) return false;
  if (s->phase == BEGIN || s->phase == SIGN || s->phase == INTEGER) {
    if (s->phase != INTEGER) s->low = s->high = EQUAL;
    if (s->phase != INTEGER && digit == '0') {
      s->phase = ZERO;
      return m->possible;
    }
    if (r->counts_digits && s->integer >= INTEGER_DIGITS_MAX) return false;
    s->phase = INTEGER;
    s->low = compare_integer(s->low, m->low, s->integer, digit);
    s->high = compare_integer(s->high, m->high, s->integer, digit);
    if (s->integer < r->integer_digits) s->integer++;
  } else {
    uint32_t most = spec->multiple ? spec->scale : NUMBER_DIGITS_MAX;
    if (s->fraction >= most || s->fraction + s->integer >= NUMBER_DIGITS_MAX) return false;
    s->phase = FRACTION;
    s->low = compare_fraction(s->low, m->low, s->fraction, digit);
    s->high = compare_fraction(s->high, m->high, s->fraction, digit);
    s->fraction++;
  }
  if (spec->multiple) s->rest = (s->rest * 10 + (uint32_t)(digit - '0')) % spec->multiple;
  return m->possible;
}

static bool add_point(const reader_t *r, text_state_t *s) {
  const magnitude_t *m = s->minus ? &r->minus : &r->plus;
  if (r->spec->integer || (s->phase != ZERO && s->phase != INTEGER)) return false;
  s->low = finish_integer(s->low, m->low, s->integer);
  s->high = finish_integer(s->high, m->high, s->integer);
  s->phase = POINT;
  return true;
}

static uint64_t number_step(const void *context, uint64_t state, uint8_t byte) {
  const reader_t *r = context;
  text_state_t s = unpack(state);
  bool ok = false;
  if (byte == '-' && s.phase == BEGIN) {
    s.phase = SIGN;
    s.minus = r->spec->has_low || r->spec->has_high; /* else both signs are alike */
    ok = r->minus.possible;
  } else if (byte == '.') {
    ok = add_point(r, &s);
  } else if (byte >= '0' && byte <= '9') {
    ok = add_digit(r, &s, (char)byte);
  }
  return ok ? pack(&s) : 0;
}

static bool number_accepts(const void *context, uint64_t state) {
  const reader_t *r = context;
  text_state_t s = unpack(state);
  const magnitude_t *m = s.minus ? &r->minus : &r->plus;
  if (s.phase != ZERO && s.phase != INTEGER && s.phase != FRACTION) return false;
  if (s.phase != FRACTION) {
    s.low = finish_integer(s.low, m->low, s.integer);
    s.high = finish_integer(s.high, m->high, s.integer);
  }
  /* Digits that a bound still has are not all zero. */
  if (m->low != NULL && s.low == EQUAL && s.fraction < m->low->num_fraction) s.low = LESS;
  if (m->high != NULL && s.high == EQUAL && s.fraction < m->high->num_fraction) s.high = LESS;
  if (m->low != NULL && (s.low == LESS || (s.low == EQUAL && m->low_open))) return false;
  if (m->high != NULL && (s.high == GREATER || (s.high == EQUAL && m->high_open))) return false;
  uint64_t rest = s.rest;
  for (uint32_t i = s.fraction; i < r->spec->scale; i++) rest = rest * 10 % r->spec->multiple;
  return rest == 0;
}

/* What the bounds say about |x| for x >= 0 and for x written with a minus. Without need no minus is
 * written before a number that is not below zero. */
static void split_signs(reader_t *r) {
  static const decimal_t zero = {0};
  const number_spec_t *s = r->spec;
  const decimal_t *low = s->has_low ? &s->low : NULL, *high = s->has_high ? &s->high : NULL;
  bool high_below = high != NULL && (high->negative || (decimal_is_zero(high) && s->high_open));
  r->plus = (magnitude_t){.possible = !high_below};
  if (low != NULL && !low->negative && (!decimal_is_zero(low) || s->low_open)) {
    r->plus.low = low;
    r->plus.low_open = s->low_open;
  }
  if (high != NULL && !high_below) {
    r->plus.high = high;
    r->plus.high_open = s->high_open;
  }
  r->minus = (magnitude_t){.possible = low == NULL || low->negative};
  if (high_below) {
    r->minus.low = high->negative ? high : &zero;
    r->minus.low_open = s->high_open;
  }
  if (low != NULL && low->negative) {
    r->minus.high = low;
    r->minus.high_open = s->low_open;
  }
}

/* A bound beyond every number that can be written says nothing, or says no. */
static bool drop_huge_bounds(number_spec_t *s) {
  if (s->has_low && s->low.huge) {
    if (!s->low.negative) return false;
    s->has_low = false;
  }
  if (s->has_high && s->high.huge) {
    if (s->high.negative) return false;
    s->has_high = false;
  }
  return true;
}

/* The states that a digit leads to count digits. */
static void count_digits(compile_t *c, dfa_t *d) {
  for (uint32_t i = 1; i < d->num_states; i++) {
    for (int digit = '0'; digit <= '9'; digit++) {
      uint32_t to = dfa_next(d, i, (uint8_t)digit);
      if (to != DFA_DEAD) d->flags[to] |= DFA_COUNT;
    }
  }
  dfa_count(c, d, 0, INTEGER_DIGITS_MAX);
}

dfa_t *number_dfa(compile_t *c, const number_spec_t *spec) {
  number_spec_t s = *spec;
  if (!drop_huge_bounds(&s)) return compile_scratch(c, 1, sizeof(dfa_t));
  if (!s.has_low && !s.has_high && !s.multiple) {
    return lexeme_dfa(c, s.integer ? pattern_integer : pattern_number);
  }
  reader_t r = {.spec = &s, .counts_digits = s.multiple == 0};
  split_signs(&r);
  /* One more digit than any bound has decides every comparison; fractions need the true number. */
  r.integer_digits = INTEGER_DIGITS_MAX;
  if (!r.counts_digits) {
    uint32_t low = s.has_low ? s.low.num_integer : 0, high = s.has_high ? s.high.num_integer : 0;
    r.integer_digits = (low > high ? low : high) + 1;
    if (s.scale > 0 && !s.integer) r.integer_digits = NUMBER_DIGITS_MAX;
  }
  uint8_t class_of[256] = {['-'] = 1, ['.'] = 2};
  for (int digit = 0; digit < 10; digit++) class_of['0' + digit] = (uint8_t)(3 + digit);
  text_state_t begin = {.phase = BEGIN, .low = EQUAL, .high = EQUAL};
  automaton_t a = {&r, pack(&begin), number_step, number_accepts, class_of};
  dfa_t *d = dfa_explore(c, &a);
  if (!r.counts_digits && !dfa_is_empty(d)) count_digits(c, d);
  return d;
}
