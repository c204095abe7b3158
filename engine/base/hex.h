/* hex.h: hexadecimal digits. Pure functions, any thread, also in a signal handler. */
#ifndef INFERD_ENGINE_BASE_HEX_H
#define INFERD_ENGINE_BASE_HEX_H

#include <stdint.h>

/* The lower-case digit of the lowest four bits. */
static inline char hex_digit(uint32_t value) {
  return "0123456789abcdef"[value & 15];
}

/* The value of a digit of either case; -1 for any other character. */
static inline int hex_value(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  return -1;
}

#endif
