/* base64.c: reads base64 (RFC 4648, section 4), in which model files write bytes. Any thread. */
#include "engine/text/base64.h"

static int digit_of(char digit) {
  if (digit >= 'A' && digit <= 'Z') return digit - 'A';
  if (digit >= 'a' && digit <= 'z') return digit - 'a' + 26;
  if (digit >= '0' && digit <= '9') return digit - '0' + 52;
  return digit == '+' ? 62 : digit == '/' ? 63 : -1;
}

bool base64_append(buffer_t *out, const char *text, size_t length) {
  if (length % 4 != 0 || !buffer_reserve(out, length)) return false;
  for (size_t i = 0; i < length; i += 4) {
    uint32_t word = 0;
    unsigned pads = 0;
    if (i + 4 == length) pads = text[i + 3] != '=' ? 0 : text[i + 2] != '=' ? 1 : 2;
    for (unsigned k = 0; k < 4; k++) {
      int digit = k >= 4 - pads ? 0 : digit_of(text[i + k]);
      if (digit < 0) return false;
      word = word << 6 | (uint32_t)digit;
    }
    if (pads > 0 && (word & ((1u << 8 * pads) - 1)) != 0) return false;
    for (unsigned k = 0; k < 3 - pads; k++)
      out->bytes[out->length++] = (uint8_t)(word >> (16 - 8 * k));
  }
  return true;
}
