/* utf8.c: validation of whole texts, with a fast path for ASCII. Pure functions, any thread. */
#include "engine/base/utf8.h"

#include <string.h>

bool utf8_valid(const char *text, size_t length) {
  size_t at = 0;
  while (at < length) {
    uint64_t word;
    while (length - at >= 8) { /* eight ASCII bytes at a time */
      memcpy(&word, text + at, 8);
      if (word & 0x8080808080808080ULL) break;
      at += 8;
    }
    if (at == length) break;
    int span = utf8_span(text + at, length - at);
    if (span < 0) return false;
    at += (size_t)span;
  }
  return true;
}
