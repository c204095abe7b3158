/* scanner_run.c: runs of one character class (Digits, Punctuation, \p{N}{1,3}, \s?[...]+), the
 * pattern \s+$, and plain text.
 *
 * Runs on the tokenizing threads; a search steps over every character once.
 */
#include "engine/text/model/bpe.h"
#include "engine/text/split/scanner.h"
#include "engine/text/unicode/unicode.h"

static bool in_ranges(const scanner_t *scanner, uint32_t codepoint) {
  if (codepoint < 128) return scanner->ascii[codepoint >> 6] >> (codepoint & 63) & 1;
  uint32_t low = 0, high = scanner->num_ranges;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (codepoint > scanner->range[middle][1]) {
      low = middle + 1;
    } else if (codepoint < scanner->range[middle][0]) {
      high = middle;
    } else {
      return true;
    }
  }
  return false;
}

static bool in_run(const scanner_t *scanner, uint32_t codepoint) {
  if (scanner->extra_digits) return unicode_extra(codepoint) & EXTRA_DIGIT;
  if (scanner->extra_punct) return unicode_extra(codepoint) & EXTRA_PUNCT;
  if (scanner->run_classes != 0) return unicode_class(codepoint) & scanner->run_classes;
  return in_ranges(scanner, codepoint);
}

static uint32_t read_char(const scanner_t *scanner, const uint8_t *bytes, unsigned *length) {
  if (scanner->mapped_bytes) return *length = 1, bpe_byte_char(*bytes);
  return utf8_read(bytes, length);
}

/* Characters of the run at `at`, at most run_max; returns its end. */
static size_t run_end(const scanner_t *scanner, const uint8_t *text, size_t at, size_t end,
                      uint32_t *count) {
  for (*count = 0; at < end && (scanner->run_max == 0 || *count < scanner->run_max); (*count)++) {
    unsigned n;
    if (!in_run(scanner, read_char(scanner, text + at, &n))) break;
    at += n;
  }
  return at;
}

size_t scanner_find_run(const scanner_t *scanner, const uint8_t *text, size_t from, size_t end,
                        size_t *match_end) {
  while (from < end) {
    unsigned n;
    uint32_t c = read_char(scanner, text + from, &n), count;
    if (scanner->run_lead && (unicode_class(c) & CLASS_SPACE)) {
      *match_end = run_end(scanner, text, from + n, end, &count);
      if (count >= scanner->run_min) return from;
    }
    if (in_run(scanner, c)) {
      *match_end = run_end(scanner, text, from, end, &count);
      if (count >= scanner->run_min) return from;
    }
    from += n;
  }
  return end;
}

/* \s+$ where $ is the end of the piece or the place before a line feed. */
size_t scanner_find_space_end(const scanner_t *scanner, const uint8_t *text, size_t from,
                              size_t end, size_t *match_end) {
  (void)scanner;
  while (from < end) {
    unsigned n;
    uint32_t c = utf8_read(text + from, &n);
    if (!(unicode_class(c) & CLASS_SPACE)) {
      from += n;
      continue;
    }
    size_t stop = from, line_end = from;
    for (; stop < end; stop += n) {
      c = utf8_read(text + stop, &n);
      if (!(unicode_class(c) & CLASS_SPACE)) break;
      if (c == '\n') line_end = stop;
    }
    if (stop == end) line_end = end;
    if (line_end > from) return *match_end = line_end, from;
    from = stop; /* no later start inside this run can match either */
  }
  return end;
}

size_t scanner_find_literal(const scanner_t *scanner, const uint8_t *text, size_t from, size_t end,
                            size_t *match_end) {
  if (end - from < scanner->literal_length) return end;
  const uint8_t *hit = memmem(text + from, end - from, scanner->literal, scanner->literal_length);
  if (hit == NULL) return end;
  *match_end = (size_t)(hit - text) + scanner->literal_length;
  return (size_t)(hit - text);
}
