/* scanner_o200k.c: patterns R5 and R6 (o200k, tekken, Kimi) and R7 (DeepSeek).
 *
 * Runs on the tokenizing threads; each character is looked at a bounded number of times. R5 and R6
 * match at every character; R7 leaves some characters unmatched, and its search steps over them.
 */
#include "engine/text/split/scanner.h"
#include "engine/text/unicode/unicode.h"

static bool is_newline(uint32_t codepoint) {
  return codepoint == '\n' || codepoint == '\r';
}

static size_t skip_class(const uint8_t *text, size_t at, size_t end, uint8_t classes) {
  while (at < end) {
    unsigned n;
    uint32_t c = utf8_read(text + at, &n);
    if (!(unicode_class(c) & classes)) break;
    at += n;
  }
  return at;
}

/* Whether a character stands apart from letters: Han, in Kimi's pattern. */
static bool stands_apart(const scanner_t *scanner, uint32_t codepoint) {
  for (uint32_t i = 0; i < scanner->num_ranges && codepoint >= scanner->range[i][0]; i++)
    if (codepoint <= scanner->range[i][1]) return true;
  return false;
}

static size_t skip_apart(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end) {
  unsigned n;
  while (at < end && stands_apart(scanner, utf8_read(text + at, &n))) at += n;
  return at;
}

/* Class bits of a character as part of a word. */
static uint8_t word_class(const scanner_t *scanner, uint32_t codepoint) {
  return stands_apart(scanner, codepoint) ? 0 : unicode_class(codepoint);
}

/* U*W+ at `at`, greedy: U = upper, title, modifier, other letters and marks; W = lower, modifier,
 * other letters and marks. Without a lower-case letter after the U run, the match ends at the last
 * character of U that is also in W. `at` when there is no match; *upper_end = end of the U run. */
static size_t words_end(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end,
                        size_t *upper_end) {
  size_t both_end = at, u = at;
  unsigned n;
  while (u < end) {
    uint8_t class = word_class(scanner, utf8_read(text + u, &n));
    if (!(class & CLASS_UPPER)) break;
    u += n;
    if (class & CLASS_LOWER) both_end = u;
  }
  *upper_end = u;
  size_t w = u;
  while (w < end && word_class(scanner, utf8_read(text + w, &n)) & CLASS_LOWER) w += n;
  return w > u ? w : both_end;
}

/* The two word alternatives: with a lead character and without, first U*W+ and then U+W*. */
static size_t word_match(const scanner_t *scanner, const uint8_t *text, size_t from, size_t end) {
  unsigned n;
  uint32_t c = utf8_read(text + from, &n);
  uint8_t class = unicode_class(c);
  bool lead = !is_newline(c) && !(class & (CLASS_LETTER | CLASS_NUMBER));
  size_t lead_upper = from + n, plain_upper = from, stop;
  if (lead && (stop = words_end(scanner, text, from + n, end, &lead_upper)) > from + n) return stop;
  if ((stop = words_end(scanner, text, from, end, &plain_upper)) > from) return stop;
  if (lead && lead_upper > from + n) return lead_upper;
  return plain_upper;
}

size_t scanner_find_o200k(const scanner_t *scanner, const uint8_t *text, size_t from, size_t end,
                          size_t *match_end) {
  size_t stop = skip_apart(scanner, text, from, end);
  if (stop > from) return *match_end = stop, from;
  stop = word_match(scanner, text, from, end);
  if (stop > from) {
    *match_end = stop;
    if (stop < end && text[stop] == '\'')
      *match_end = scanner_contraction(scanner, text, stop, end);
    return from;
  }
  unsigned n;
  uint32_t c = utf8_read(text + from, &n);
  uint8_t class = unicode_class(c);
  if (class & CLASS_NUMBER) {
    stop = from;
    for (unsigned count = 0; stop < end && count < scanner->digits_max; count++, stop += n)
      if (!(unicode_class(utf8_read(text + stop, &n)) & CLASS_NUMBER)) break;
    return *match_end = stop, from;
  }
  stop = c == ' ' ? from + n : from;
  size_t others = stop;
  for (; others < end; others += n)
    if (unicode_class(utf8_read(text + others, &n)) & (CLASS_SPACE | CLASS_LETTER | CLASS_NUMBER))
      break;
  if (others > stop) {
    while (others < end &&
           (is_newline(text[others]) || (scanner->slash_tail && text[others] == '/')))
      others++;
    return *match_end = others, from;
  }
  return *match_end = scanner_spaces(scanner, text, from, end), from;
}

static bool ascii_letter(uint8_t byte) {
  return (byte | 32) >= 'a' && (byte | 32) <= 'z';
}

static bool ascii_punct(uint32_t codepoint) {
  return (codepoint >= '!' && codepoint <= '/') || (codepoint >= ':' && codepoint <= '@') ||
         (codepoint >= '[' && codepoint <= '`') || (codepoint >= '{' && codepoint <= '~');
}

/* R7 at one place; `from` when nothing matches there. */
static size_t deepseek_match(const scanner_t *scanner, const uint8_t *text, size_t from,
                             size_t end) {
  unsigned n;
  uint32_t c = utf8_read(text + from, &n);
  uint8_t class = unicode_class(c);
  size_t next = from + n;
  if (ascii_punct(c) && next < end && ascii_letter(text[next])) {
    while (next < end && ascii_letter(text[next])) next++;
    return next;
  }
  if (class & (CLASS_LETTER | CLASS_MARK))
    return skip_class(text, next, end, CLASS_LETTER | CLASS_MARK);
  if (!is_newline(c) && !(class & (CLASS_PUNCTUATION | CLASS_SYMBOL))) {
    size_t word = skip_class(text, next, end, CLASS_LETTER | CLASS_MARK);
    if (word > next) return word;
  }
  size_t start = c == ' ' ? next : from;
  size_t stop = skip_class(text, start, end, CLASS_PUNCTUATION | CLASS_SYMBOL);
  if (stop > start) {
    while (stop < end && is_newline(text[stop])) stop++;
    return stop;
  }
  return class & CLASS_SPACE ? scanner_spaces(scanner, text, from, end) : from;
}

size_t scanner_find_deepseek(const scanner_t *scanner, const uint8_t *text, size_t from, size_t end,
                             size_t *match_end) {
  while (from < end) {
    size_t stop = deepseek_match(scanner, text, from, end);
    if (stop > from) return *match_end = stop, from;
    from += utf8_length(text[from]);
  }
  return end;
}
