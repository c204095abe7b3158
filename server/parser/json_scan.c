/* json_scan.c: the automaton of json_scan.h. Any thread; never allocates. */
#include "server/parser/json_scan.h"

#include "engine/base/hex.h"

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

static json_scan_state_t begin_value(json_scan_t *scan, char byte) {
  switch (byte) {
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
  return byte >= '1' && byte <= '9' ? (scan->state = SCAN_DIGITS) : bad(scan);
}

static json_scan_state_t string_byte(json_scan_t *scan, char byte) {
  if (scan->escape > 1) {
    if (hex_value(byte) < 0) return bad(scan);
    scan->escape--;
    if (scan->escape == 1) scan->escape = 0;
    return scan->state;
  }
  if (scan->escape == 1) {
    static const char simple[] = "\"\\/bfnrt";
    scan->escape = 0;
    if (byte == 'u') {
      scan->escape = 5;
      return scan->state;
    }
    for (size_t i = 0; simple[i] != '\0'; i++) {
      if (simple[i] == byte) return scan->state;
    }
    return bad(scan);
  }
  if ((unsigned char)byte < 0x20) return bad(scan);
  if (byte == '\\') {
    scan->escape = 1;
  } else if (byte == '"') {
    if (scan->state == SCAN_IN_KEY) return scan->state = SCAN_COLON;
    return value_done(scan);
  }
  return scan->state;
}

/* Takes a byte after a value: a comma, the end of the container, or a blank. */
static json_scan_state_t after_byte(json_scan_t *scan, char byte) {
  if (json_is_blank(byte)) return scan->state;
  if (byte == ',') return scan->state = inside_object(scan) ? SCAN_KEY : SCAN_VALUE;
  if (byte == (inside_object(scan) ? '}' : ']')) return close_container(scan);
  return bad(scan);
}

/* Only the byte after a number shows that it has ended: that byte is then read again. */
static json_scan_state_t number_done(json_scan_t *scan, char byte) {
  value_done(scan);
  if (scan->state == SCAN_DONE) return json_is_blank(byte) ? SCAN_DONE : bad(scan);
  return after_byte(scan, byte);
}

static json_scan_state_t number_byte(json_scan_t *scan, char byte) {
  bool digit = byte >= '0' && byte <= '9';
  switch (scan->state) {
  case SCAN_MINUS:
    if (!digit) return bad(scan);
    return scan->state = byte == '0' ? SCAN_ZERO : SCAN_DIGITS;
  case SCAN_POINT: return digit ? (scan->state = SCAN_FRACTION) : bad(scan);
  case SCAN_EXPONENT:
    if (byte == '+' || byte == '-') return scan->state = SCAN_EXPONENT_SIGN;
    return digit ? (scan->state = SCAN_EXPONENT_DIGITS) : bad(scan);
  case SCAN_EXPONENT_SIGN: return digit ? (scan->state = SCAN_EXPONENT_DIGITS) : bad(scan);
  default: break;
  }
  if (digit && scan->state != SCAN_ZERO) return scan->state;
  bool whole = scan->state == SCAN_ZERO || scan->state == SCAN_DIGITS;
  if (whole && byte == '.') return scan->state = SCAN_POINT;
  if (scan->state != SCAN_EXPONENT_DIGITS && (byte == 'e' || byte == 'E')) {
    return scan->state = SCAN_EXPONENT;
  }
  return number_done(scan, byte);
}

json_scan_state_t json_scan_byte(json_scan_t *scan, char byte) {
  switch (scan->state) {
  case SCAN_FIRST_VALUE:
    if (byte == ']') return close_container(scan);
    return json_is_blank(byte) ? scan->state : begin_value(scan, byte);
  case SCAN_VALUE: return json_is_blank(byte) ? scan->state : begin_value(scan, byte);
  case SCAN_FIRST_KEY:
    if (byte == '}') return close_container(scan);
    if (json_is_blank(byte)) return scan->state;
    return byte == '"' ? (scan->state = SCAN_IN_KEY) : bad(scan);
  case SCAN_KEY:
    if (json_is_blank(byte)) return scan->state;
    return byte == '"' ? (scan->state = SCAN_IN_KEY) : bad(scan);
  case SCAN_COLON:
    if (json_is_blank(byte)) return scan->state;
    return byte == ':' ? (scan->state = SCAN_VALUE) : bad(scan);
  case SCAN_IN_KEY:
  case SCAN_IN_STRING: return string_byte(scan, byte);
  case SCAN_AFTER: return after_byte(scan, byte);
  case SCAN_IN_LITERAL:
    if (*scan->literal != byte) return bad(scan);
    return *++scan->literal == '\0' ? value_done(scan) : scan->state;
  case SCAN_DONE: return json_is_blank(byte) ? SCAN_DONE : bad(scan);
  case SCAN_BAD: return SCAN_BAD;
  default: return number_byte(scan, byte);
  }
}
