/* scanner_gpt.c: the GPT-2 / cl100k template, patterns R1 to R4.
 *
 *   contraction | lead? letters+ | digits{1,n} | space? others+ newline* | \s*newline+ |
 *   \s+(?!\S) | \s+
 *
 * Every character starts a match, so a search never skips. Runs on the tokenizing threads; looks at
 * each character at most twice.
 */
#include "engine/text/split/scanner.h"
#include "engine/text/unicode/unicode.h"

static bool is_newline(uint8_t byte) {
  return byte == '\n' || byte == '\r';
}

/* End of the run of characters that have one of the class bits (or none of them when `inverse`). */
static inline size_t run_of(const uint8_t *text, size_t at, size_t end, uint8_t classes,
                            bool inverse) {
  while (at < end) {
    unsigned n;
    uint32_t c = utf8_read(text + at, &n);
    if (((unicode_class(c) & classes) != 0) == inverse) break;
    at += n;
  }
  return at;
}

size_t scanner_spaces(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end) {
  size_t stop = at, last = at, newline_end = at;
  while (stop < end) {
    unsigned n;
    uint32_t c = utf8_read(text + stop, &n);
    if (!(unicode_class(c) & CLASS_SPACE)) break;
    last = stop, stop += n;
    if (is_newline((uint8_t)c) && c < 0x80) newline_end = stop;
  }
  if (scanner->whole_at_end && stop == end) return stop;
  if (scanner->newline_runs && newline_end > at) return newline_end;
  if (stop == end || last == at) return stop;
  return last; /* the last space belongs to the text that follows */
}

static unsigned fold(const uint8_t *bytes, size_t length, unsigned *used) {
  *used = 1;
  if (length >= 2 && bytes[0] == 0xC5 && bytes[1] == 0xBF)
    return *used = 2, 's'; /* U+017F folds to s */
  return bytes[0] >= 'A' && bytes[0] <= 'Z' ? bytes[0] + 32U : bytes[0];
}

size_t scanner_contraction(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end) {
  if (scanner->contraction == CONTRACTION_NONE || at + 1 >= end) return at;
  unsigned n = 1, m = 1;
  size_t next = at + 1;
  unsigned c =
      scanner->contraction == CONTRACTION_LOWER ? text[next] : fold(text + next, end - next, &n);
  if (c == 's' || c == 't' || c == 'm' || c == 'd') return next + n;
  if (c != 'r' && c != 'v' && c != 'l') return at;
  next += n;
  if (next >= end) return at;
  unsigned d =
      scanner->contraction == CONTRACTION_LOWER ? text[next] : fold(text + next, end - next, &m);
  return d == (c == 'l' ? 'l' : 'e') ? next + m : at;
}

static size_t digits_end(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end) {
  for (unsigned count = 0; at < end && (scanner->digits_max == 0 || count < scanner->digits_max);
       count++) {
    unsigned n;
    uint32_t c = utf8_read(text + at, &n);
    if (!(unicode_class(c) & CLASS_NUMBER)) break;
    at += n;
  }
  return at;
}

static size_t others_end(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end) {
  at = run_of(text, at, end, (uint8_t)(scanner->letters | CLASS_NUMBER | CLASS_SPACE), true);
  if (scanner->newline_tail)
    while (at < end && is_newline(text[at])) at++;
  return at;
}

size_t scanner_find_gpt(const scanner_t *scanner, const uint8_t *text, size_t from, size_t end,
                        size_t *match_end) {
  unsigned n, m = 0;
  uint32_t c = utf8_read(text + from, &n);
  uint8_t class = unicode_class(c), next = 0;
  if (class & scanner->letters)
    return *match_end = run_of(text, from + n, end, scanner->letters, false), from;
  if (c == '\'' && (*match_end = scanner_contraction(scanner, text, from, end)) > from) return from;
  if (class & CLASS_NUMBER) return *match_end = digits_end(scanner, text, from, end), from;
  bool has_next = from + n < end;
  if (has_next) next = unicode_class(utf8_read(text + from + n, &m));
  bool lead = scanner->lead ? c != '\n' && c != '\r' : c == ' ';
  if (lead && (next & scanner->letters)) {
    *match_end = run_of(text, from + n + m, end, scanner->letters, false);
  } else if (!(class & CLASS_SPACE)) {
    *match_end = others_end(scanner, text, from, end);
  } else if (c == ' ' && has_next && !(next & (scanner->letters | CLASS_NUMBER | CLASS_SPACE))) {
    *match_end = others_end(scanner, text, from + n, end);
  } else if (c == ' ' && !scanner->lead && (next & CLASS_NUMBER)) {
    *match_end = digits_end(scanner, text, from + n, end);
  } else {
    *match_end = scanner_spaces(scanner, text, from, end);
  }
  return from;
}
