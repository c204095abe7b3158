/* scanner_run.c: runs of one character class (Digits, Punctuation, \p{N}{1,3}, \s?[...]+), the
 * pattern \s+$, and plain text.
 *
 * Runs on the tokenizing threads; a search steps over every character once.
 */
#include "engine/text/model/bpe.h"
#include "engine/text/split/scanner.h"
#include "engine/text/unicode/unicode.h"

static bool in_ranges(const scanner_t *s, uint32_t c) {
  if (c < 128) return s->ascii[c >> 6] >> (c & 63) & 1;
  uint32_t low = 0, high = s->num_ranges;
  while (low < high) {
    uint32_t middle = (low + high) / 2;
    if (c > s->range[middle][1]) {
      low = middle + 1;
    } else if (c < s->range[middle][0]) {
      high = middle;
    } else {
      return true;
    }
  }
  return false;
}

static bool in_run(const scanner_t *s, uint32_t c) {
  if (s->extra_digits) return unicode_extra(c) & EXTRA_DIGIT;
  if (s->extra_punct) return unicode_extra(c) & EXTRA_PUNCT;
  if (s->run_classes != 0) return unicode_class(c) & s->run_classes;
  return in_ranges(s, c);
}

static uint32_t read_char(const scanner_t *s, const uint8_t *p, unsigned *n) {
  if (s->mapped_bytes) return *n = 1, bpe_byte_char(*p);
  return utf8_read(p, n);
}

/* Characters of the run at `at`, at most run_max; returns its end. */
static size_t run_end(const scanner_t *s, const uint8_t *text, size_t at, size_t end,
                      uint32_t *count) {
  for (*count = 0; at < end && (s->run_max == 0 || *count < s->run_max); (*count)++) {
    unsigned n;
    if (!in_run(s, read_char(s, text + at, &n))) break;
    at += n;
  }
  return at;
}

size_t scanner_find_run(const scanner_t *s, const uint8_t *text, size_t from, size_t end,
                        size_t *match_end) {
  while (from < end) {
    unsigned n;
    uint32_t c = read_char(s, text + from, &n), count;
    if (s->run_lead && (unicode_class(c) & CLASS_SPACE)) {
      *match_end = run_end(s, text, from + n, end, &count);
      if (count >= s->run_min) return from;
    }
    if (in_run(s, c)) {
      *match_end = run_end(s, text, from, end, &count);
      if (count >= s->run_min) return from;
    }
    from += n;
  }
  return end;
}

/* \s+$ where $ is the end of the piece or the place before a line feed. */
size_t scanner_find_space_end(const scanner_t *s, const uint8_t *text, size_t from, size_t end,
                              size_t *match_end) {
  (void)s;
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

size_t scanner_find_literal(const scanner_t *s, const uint8_t *text, size_t from, size_t end,
                            size_t *match_end) {
  if (end - from < s->literal_length) return end;
  const uint8_t *hit = memmem(text + from, end - from, s->literal, s->literal_length);
  if (hit == NULL) return end;
  *match_end = (size_t)(hit - text) + s->literal_length;
  return (size_t)(hit - text);
}
