/* utf8.h: the one definition of well-formed UTF-8 (Unicode 15, table 3-7); reading and writing it.
 *
 * Pure functions, no allocation, any thread.
 */
#ifndef INFERD_ENGINE_BASE_UTF8_H
#define INFERD_ENGINE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Checks the first character of text[0..length), length >= 1. If it is well formed, returns its
 * length in bytes, 1..4. Otherwise returns minus the length of the ill-formed part: the longest
 * prefix of a valid sequence, at least 1 byte, which a decoder replaces by one U+FFFD. */
static inline int utf8_span(const char *text, size_t length) {
  const uint8_t *p = (const uint8_t *)text;
  uint8_t low = 0x80, high = 0xBF; /* range of the second byte */
  int need;
  if (p[0] < 0x80) return 1;
  if (p[0] >= 0xC2 && p[0] <= 0xDF) {
    need = 2;
  } else if (p[0] >= 0xE0 && p[0] <= 0xEF) {
    need = 3;
    if (p[0] == 0xE0) low = 0xA0;
    if (p[0] == 0xED) high = 0x9F; /* no surrogates */
  } else if (p[0] >= 0xF0 && p[0] <= 0xF4) {
    need = 4;
    if (p[0] == 0xF0) low = 0x90;
    if (p[0] == 0xF4) high = 0x8F; /* nothing above U+10FFFF */
  } else {
    return -1;
  }
  for (int i = 1; i < need; i++) {
    if ((size_t)i >= length || p[i] < low || p[i] > high) return -i;
    low = 0x80, high = 0xBF;
  }
  return need;
}

/* True if the whole text is well-formed UTF-8. */
bool utf8_valid(const char *text, size_t length);

/* The functions from here to utf8_previous take text that is known to be well formed. */

/* Bytes of the character that starts with `lead`, in well-formed UTF-8. */
static inline unsigned utf8_length(uint8_t lead) {
  return lead < 0x80 ? 1U : lead < 0xE0 ? 2U : lead < 0xF0 ? 3U : 4U;
}

/* Reads one character of well-formed UTF-8 and its length in bytes. */
static inline uint32_t utf8_read(const uint8_t *bytes, unsigned *length) {
  uint32_t c = bytes[0];
  if (c < 0x80) return *length = 1, c;
  if (c < 0xE0) return *length = 2, (c & 0x1F) << 6 | (bytes[1] & 0x3FU);
  if (c < 0xF0) return *length = 3, (c & 0x0F) << 12 | (bytes[1] & 0x3FU) << 6 | (bytes[2] & 0x3FU);
  *length = 4;
  return (c & 0x07) << 18 | (bytes[1] & 0x3FU) << 12 | (bytes[2] & 0x3FU) << 6 | (bytes[3] & 0x3FU);
}

/* True if a byte is a later byte of a character, false if it is the first. */
static inline bool utf8_continues(uint8_t byte) {
  return (byte & 0xC0) == 0x80;
}

static inline size_t utf8_count(const char *text, size_t length) {
  size_t count = 0;
  for (size_t i = 0; i < length; i++) count += !utf8_continues((uint8_t)text[i]);
  return count;
}

/* Returns the start of the character that ends before byte `at` > 0. */
static inline size_t utf8_previous(const uint8_t *text, size_t at) {
  do at--;
  while (at > 0 && utf8_continues(text[at]));
  return at;
}

/* Writes a code point (not a surrogate, <= 0x10FFFF) as 1..4 bytes and returns how many. */
static inline int utf8_write(char *out, uint32_t code_point) {
  if (code_point < 0x80) {
    out[0] = (char)code_point;
    return 1;
  }
  if (code_point < 0x800) {
    out[0] = (char)(0xC0 | (code_point >> 6));
    out[1] = (char)(0x80 | (code_point & 0x3F));
    return 2;
  }
  if (code_point < 0x10000) {
    out[0] = (char)(0xE0 | (code_point >> 12));
    out[1] = (char)(0x80 | ((code_point >> 6) & 0x3F));
    out[2] = (char)(0x80 | (code_point & 0x3F));
    return 3;
  }
  out[0] = (char)(0xF0 | (code_point >> 18));
  out[1] = (char)(0x80 | ((code_point >> 12) & 0x3F));
  out[2] = (char)(0x80 | ((code_point >> 6) & 0x3F));
  out[3] = (char)(0x80 | (code_point & 0x3F));
  return 4;
}

#endif
