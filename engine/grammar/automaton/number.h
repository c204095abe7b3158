/* number.h: decimal numbers as text, and automata for ranges and multiples of them.
 *
 * No binary floating point: bounds are compared digit by digit. Part of a compilation, on its
 * thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_AUTOMATON_NUMBER_H
#define INFERD_ENGINE_GRAMMAR_AUTOMATON_NUMBER_H

#include "engine/grammar/automaton/dfa.h"

enum { DECIMAL_DIGITS_MAX = 48, INTEGER_DIGITS_MAX = 32, NUMBER_DIGITS_MAX = 15 };

/* digits = integer part without leading zeros, then fraction without trailing ones; zero has none.
 */
typedef struct decimal {
  bool negative; /* never for zero */
  bool huge;     /* more than DECIMAL_DIGITS_MAX - 8 integer digits: digits are not kept */
  bool fine;     /* more digits than fit: digits are not kept */
  uint8_t num_integer, num_fraction;
  char digits[DECIMAL_DIGITS_MAX];
} decimal_t;

decimal_t decimal_of(const json_t *number);
int decimal_compare(const decimal_t *left, const decimal_t *right); /* -1, 0, 1; exact */
static inline bool decimal_is_zero(const decimal_t *decimal) {
  return !decimal->huge && !decimal->fine && decimal->num_integer + decimal->num_fraction == 0;
}

typedef struct number_spec {
  bool integer; /* no fraction, no exponent */
  bool has_low, has_high, low_open, high_open;
  decimal_t low, high;
  uint32_t multiple, scale; /* multiple of multiple / 10^scale; 0 = of anything */
} number_spec_t;

/* Returns the automaton of the numbers that the specification allows. With a bound or a multiple,
 * no exponent is allowed. */
dfa_t *number_dfa(compile_t *compile, const number_spec_t *spec);

#endif
