/* json_scan.h: is this still JSON? One byte at a time, without keeping any of it.
 *
 * A strict pushdown automaton of RFC 8259 for text that arrives in pieces, such as the arguments of
 * a tool call while a model writes them. Text is not decoded; UTF-8 is taken on trust, because the
 * detokenizer has made it whole. No memory, no state beyond the struct, any thread.
 */
#ifndef INFERD_SERVER_PARSER_JSON_SCAN_H
#define INFERD_SERVER_PARSER_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH_MAX = 63 };

typedef enum json_scan_state {
  SCAN_VALUE,       /* a value must begin */
  SCAN_FIRST_VALUE, /* behind [: a value or ] */
  SCAN_FIRST_KEY,   /* behind {: a key or } */
  SCAN_KEY,         /* behind a comma: a key */
  SCAN_IN_KEY,      /* inside the string of a key */
  SCAN_COLON,       /* behind a key */
  SCAN_AFTER,       /* behind a value inside a container */
  SCAN_IN_STRING,   /* inside the string of a value */
  SCAN_IN_LITERAL,  /* true, false, null */
  SCAN_MINUS,       /* numbers: behind the sign */
  SCAN_ZERO,        /* a leading zero, which stays alone */
  SCAN_DIGITS,      /* digits before the point */
  SCAN_POINT,       /* behind the point */
  SCAN_FRACTION,    /* digits behind the point */
  SCAN_EXPONENT,    /* behind e */
  SCAN_EXPONENT_SIGN,
  SCAN_EXPONENT_DIGITS,
  SCAN_DONE, /* the outermost value is complete; only blanks may follow */
  SCAN_BAD
} json_scan_state_t;

typedef struct json_scan {
  json_scan_state_t state;
  uint8_t depth;       /* open containers */
  uint8_t escape;      /* 0; 1 = behind a backslash; 2..5 = hex digits that \u still wants + 1 */
  const char *literal; /* what is left of a literal */
  uint64_t objects;    /* bit d = the container at depth d is an object */
} json_scan_t;

/* A zeroed json_scan_t waits for a value. Returns the state behind the byte. */
json_scan_state_t json_scan_byte(json_scan_t *scan, char c);

static inline bool json_is_blank(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

#endif
