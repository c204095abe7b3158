/* json_scan.h: checks byte by byte that a text is JSON, without storing it.
 *
 * A strict pushdown automaton of RFC 8259 for text that arrives in pieces, such as the arguments of
 * a tool call while a model writes them. It decodes nothing and does not check UTF-8, because
 * the detokenizer gives valid UTF-8. No state besides the struct; any thread.
 */
#ifndef INFERD_SERVER_PARSER_JSON_SCAN_H
#define INFERD_SERVER_PARSER_JSON_SCAN_H

#include <stdbool.h>
#include <stdint.h>

enum { JSON_SCAN_DEPTH_MAX = 63 };

typedef enum json_scan_state {
  SCAN_VALUE,       /* a value must begin */
  SCAN_FIRST_VALUE, /* after [: a value or ] */
  SCAN_FIRST_KEY,   /* after {: a key or } */
  SCAN_KEY,         /* after a comma: a key */
  SCAN_IN_KEY,      /* inside the string of a key */
  SCAN_COLON,       /* after a key */
  SCAN_AFTER,       /* after a value inside a container */
  SCAN_IN_STRING,   /* inside the string of a value */
  SCAN_IN_LITERAL,  /* true, false, null */
  SCAN_MINUS,       /* numbers: after the sign */
  SCAN_ZERO,        /* a leading zero, which no digit may follow */
  SCAN_DIGITS,      /* digits before the point */
  SCAN_POINT,       /* after the point */
  SCAN_FRACTION,    /* digits after the point */
  SCAN_EXPONENT,    /* after e */
  SCAN_EXPONENT_SIGN,
  SCAN_EXPONENT_DIGITS,
  SCAN_DONE, /* the outermost value is complete; only blanks may follow */
  SCAN_BAD
} json_scan_state_t;

typedef struct json_scan {
  json_scan_state_t state;
  uint8_t depth;       /* open containers */
  uint8_t escape;      /* 0; 1 = after a backslash; 2..5 = 1 + hex digits that \u still lacks */
  const char *literal; /* the rest of a literal that must follow */
  uint64_t objects;    /* bit d = the container at depth d is an object */
} json_scan_t;

/* Takes one byte and returns the state after it. A zeroed json_scan_t expects a value. */
json_scan_state_t json_scan_byte(json_scan_t *scan, char byte);

static inline bool json_is_blank(char byte) {
  return byte == ' ' || byte == '\n' || byte == '\r' || byte == '\t';
}

#endif
