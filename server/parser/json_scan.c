/* json_scan.c: the automaton of json_scan.h. Any thread; never allocates. */
#include "server/parser/json_scan.h"

#include <stddef.h>

static json_scan_state_t bad(json_scan_t *scan) {
  return scan->state = SCAN_BAD;
}

static bool inside_object(const json_scan_t *scan) {
  return scan->depth > 0 && (scan->objects >> scan->depth & 1) != 0;
}

/* Returns the state after a complete value. */
static json_scan_state_t value_done(json_scan_t *scan) {
  return scan->state = scan->depth == 0 ? SCAN_DONE : SCAN_AFTER;
}

static json_scan_state_t open_container(json_scan_t *scan, bool object) {
  if (scan->depth == JSON_SCAN_DEPTH_MAX) return bad(scan);
  scan->depth++;
  uint64_t bit = (uint64_t)1 << scan->depth;
  scan->objects = object ? scan->objects | bit : scan->objects & ~bit;
  return scan->state = object ? SCAN_FIRST_KEY : SCAN_FIRST_VALUE;
}

static json_scan_state_t close_container(json_scan_t *scan) {
  scan->depth--;
  return value_done(scan);
}

static json_scan_state_t begin_literal(json_scan_t *scan, const char *rest) {
  scan->literal = rest;
  return scan->state = SCAN_IN_LITERAL;
}

static json_scan_state_t begin_value(json_scan_t *scan, char c) {
  switch (c) {
  case '{': return open_container(scan, true);
  case '[': return open_container(scan, false);
  case '"': return scan->state = SCAN_IN_STRING;
  case '-': return scan->state = SCAN_MINUS;
  case '0': return scan->state = SCAN_ZERO;
  case 't': return begin_literal(scan, "rue");
  case 'f': return begin_literal(scan, "alse");
  case 'n': return begin_literal(scan, "ull");
  default: break;
  }
  return c >= '1' && c <= '9' ? (scan->state = SCAN_DIGITS) : bad(scan);
}

static bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

static json_scan_state_t string_byte(json_scan_t *scan, char c) {
  if (scan->escape > 1) {
    if (!is_hex(c)) return bad(scan);
    scan->escape--;
    if (scan->escape == 1) scan->escape = 0;
    return scan->state;
  }
  if (scan->escape == 1) {
    static const char simple[] = "\"\\/bfnrt";
    scan->escape = 0;
    if (c == 'u') {
      scan->escape = 5;
      return scan->state;
    }
    for (size_t i = 0; simple[i] != '\0'; i++) {
      if (simple[i] == c) return scan->state;
    }
    return bad(scan);
  }
  if ((unsigned char)c < 0x20) return bad(scan);
  if (c == '\\') {
    scan->escape = 1;
  } else if (c == '"') {
    if (scan->state == SCAN_IN_KEY) return scan->state = SCAN_COLON;
    return value_done(scan);
  }
  return scan->state;
}

/* Takes a byte after a value: a comma, the end of the container, or a blank. */
static json_scan_state_t after_byte(json_scan_t *scan, char c) {
  if (json_is_blank(c)) return scan->state;
  if (c == ',') return scan->state = inside_object(scan) ? SCAN_KEY : SCAN_VALUE;
  if (c == (inside_object(scan) ? '}' : ']')) return close_container(scan);
  return bad(scan);
}

/* Only the byte after a number shows that it has ended: that byte is then read again. */
static json_scan_state_t number_done(json_scan_t *scan, char c) {
  value_done(scan);
  if (scan->state == SCAN_DONE) return json_is_blank(c) ? SCAN_DONE : bad(scan);
  return after_byte(scan, c);
}

static json_scan_state_t number_byte(json_scan_t *scan, char c) {
  bool digit = c >= '0' && c <= '9';
  switch (scan->state) {
  case SCAN_MINUS:
    if (!digit) return bad(scan);
    return scan->state = c == '0' ? SCAN_ZERO : SCAN_DIGITS;
  case SCAN_POINT: return digit ? (scan->state = SCAN_FRACTION) : bad(scan);
  case SCAN_EXPONENT:
    if (c == '+' || c == '-') return scan->state = SCAN_EXPONENT_SIGN;
    return digit ? (scan->state = SCAN_EXPONENT_DIGITS) : bad(scan);
  case SCAN_EXPONENT_SIGN: return digit ? (scan->state = SCAN_EXPONENT_DIGITS) : bad(scan);
  default: break;
  }
  if (digit && scan->state != SCAN_ZERO) return scan->state;
  bool whole = scan->state == SCAN_ZERO || scan->state == SCAN_DIGITS;
  if (whole && c == '.') return scan->state = SCAN_POINT;
  if (scan->state != SCAN_EXPONENT_DIGITS && (c == 'e' || c == 'E')) {
    return scan->state = SCAN_EXPONENT;
  }
  return number_done(scan, c);
}

json_scan_state_t json_scan_byte(json_scan_t *scan, char c) {
  switch (scan->state) {
  case SCAN_FIRST_VALUE:
    if (c == ']') return close_container(scan);
    return json_is_blank(c) ? scan->state : begin_value(scan, c);
  case SCAN_VALUE: return json_is_blank(c) ? scan->state : begin_value(scan, c);
  case SCAN_FIRST_KEY:
    if (c == '}') return close_container(scan);
    if (json_is_blank(c)) return scan->state;
    return c == '"' ? (scan->state = SCAN_IN_KEY) : bad(scan);
  case SCAN_KEY:
    if (json_is_blank(c)) return scan->state;
    return c == '"' ? (scan->state = SCAN_IN_KEY) : bad(scan);
  case SCAN_COLON:
    if (json_is_blank(c)) return scan->state;
    return c == ':' ? (scan->state = SCAN_VALUE) : bad(scan);
  case SCAN_IN_KEY:
  case SCAN_IN_STRING: return string_byte(scan, c);
  case SCAN_AFTER: return after_byte(scan, c);
  case SCAN_IN_LITERAL:
    if (*scan->literal != c) return bad(scan);
    return *++scan->literal == '\0' ? value_done(scan) : scan->state;
  case SCAN_DONE: return json_is_blank(c) ? SCAN_DONE : bad(scan);
  case SCAN_BAD: return SCAN_BAD;
  default: return number_byte(scan, c);
  }
}
