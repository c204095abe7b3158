/* buffer.c: growing byte buffers, and the printing of numbers.
 *
 * Any thread, one owner at a time. A failed allocation never aborts: it sets `failed`.
 */
#include "engine/base/buffer.h"

#include "engine/base/checked.h"
#include "engine/base/json.h"
#include "engine/base/util.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void buffer_free(buffer_t *buffer) {
  free(buffer->data);
  *buffer = (buffer_t){0};
}

void buffer_clear(buffer_t *buffer) {
  buffer->length = 0;
}

void buffer_trim(buffer_t *buffer, size_t keep_max) {
  buffer->length = 0;
  buffer->failed = false;
  if (buffer->capacity > keep_max) buffer_free(buffer);
}

/* The capacity grows by half, from 64 bytes, and to exactly what is needed if that is more. */
bool buffer_reserve(buffer_t *buffer, size_t extra) {
  if (buffer->capacity - buffer->length >= extra) return true;
  size_t need = 0, grown = buffer->capacity, capacity = 0;
  char *data = NULL;
  if (checked_add(buffer->length, extra, &need) && checked_add(grown, grown / 2, &grown)) {
    capacity = MAX(MAX(64, need), grown);
    data = realloc(buffer->data, capacity);
  }
  if (data == NULL) {
    buffer->failed = true;
    return false;
  }
  buffer->data = data;
  buffer->capacity = capacity;
  return true;
}

char *buffer_detach(buffer_t *buffer, size_t *length) {
  buffer_char(buffer, '\0');
  if (buffer->failed) {
    buffer_free(buffer);
    return NULL;
  }
  char *data = buffer->data;
  *length = buffer->length - 1;
  *buffer = (buffer_t){0};
  return data;
}

void buffer_uint(buffer_t *buffer, uint64_t value) {
  char digits[20];
  size_t count = 0;
  do {
    digits[sizeof digits - ++count] = (char)('0' + value % 10);
    value /= 10;
  } while (value != 0);
  buffer_append(buffer, digits + sizeof digits - count, count);
}

void buffer_int(buffer_t *buffer, int64_t value) {
  if (value < 0) {
    buffer_char(buffer, '-');
    buffer_uint(buffer, 0 - (uint64_t)value);
  } else {
    buffer_uint(buffer, (uint64_t)value);
  }
}

void buffer_escape(buffer_t *buffer, const char *text, size_t length) {
  if (length == 0) return;
  /* The first pass writes into the free space; only if that was too small a second pass follows. */
  if (!buffer_reserve(buffer, length + 16)) return;
  size_t room = buffer->capacity - buffer->length;
  size_t needed = json_escape(buffer->data + buffer->length, room, text, length);
  if (needed > room) {
    if (!buffer_reserve(buffer, needed)) return;
    room = buffer->capacity - buffer->length;
    needed = json_escape(buffer->data + buffer->length, room, text, length);
  }
  buffer->length += needed;
}

void buffer_quote(buffer_t *buffer, const char *text, size_t length) {
  buffer_char(buffer, '"');
  buffer_escape(buffer, text, length);
  buffer_char(buffer, '"');
}

void buffer_float(buffer_t *buffer, float value) {
  char text[FLOAT_TEXT_MAX];
  buffer_append(buffer, text, float_print(text, value));
}

void buffer_ids(buffer_t *buffer, const int32_t *ids, size_t count) {
  buffer_char(buffer, '[');
  for (size_t i = 0; i < count; i++) {
    if (i != 0) buffer_char(buffer, ',');
    buffer_int(buffer, ids[i]);
  }
  buffer_char(buffer, ']');
}

/* Writes `digits` with the decimal point before its last `places` >= 1 digits. Removes trailing
 * zeros, but keeps at least one digit after the point. Returns the length. */
static size_t print_fixed(char *out, bool negative, uint64_t digits, int places) {
  char reversed[24];
  int count = 0, skipped = 0;
  for (; skipped < places - 1 && digits % 10 == 0; skipped++) digits /= 10;
  places -= skipped;
  while (digits != 0 || count <= places) {
    reversed[count++] = (char)('0' + digits % 10);
    digits /= 10;
  }
  char *at = out;
  if (negative) *at++ = '-';
  while (count > places) *at++ = reversed[--count];
  *at++ = '.';
  while (count > 0) *at++ = reversed[--count];
  *at = '\0';
  return (size_t)(at - out);
}

/* float_print for the range of nearly all logprobs, with integers only: value = m / 2^shift, and
 * the decimal q / 10^places reads back as the value if it is nearer than half a unit of m. m < 2^24
 * and places <= 12, so m * 10^places < 2^64. Returns 0, and prints nothing, for other values. */
static size_t print_common(char *out, float value) {
  static const double limits[] = {1e-3, 1e-2, 1e-1, 1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6};
  double magnitude = fabs((double)value);
  if (!(magnitude >= 1e-4 && magnitude < 1e6)) return 0;
  int exponent, above = 0; /* 10^(above - 4) <= magnitude < 10^(above - 3) */
  uint64_t m = (uint64_t)ldexp(frexp(magnitude, &exponent), 24);
  int shift = 24 - exponent;
  if (m == (uint64_t)1 << 23) return 0; /* a power of two: its lower neighbour is nearer */
  while (magnitude >= limits[above]) above++;
  for (int digits = above == 9 ? 7 : 6; digits <= 9; digits++) {
    int places = digits + 3 - above; /* >= 1 */
    uint64_t power = 1;
    for (int i = 0; i < places; i++) power *= 10;
    uint64_t product = m * power, unit = (uint64_t)1 << shift, rest = product & (unit - 1);
    uint64_t q = product >> shift;
    if (rest > unit / 2) {
      q++;
      rest = unit - rest;
    }
    if (2 * rest < power) return print_fixed(out, value < 0, q, places);
  }
  return 0;
}

/* float32 keeps every decimal of up to FLT_DIG = 6 digits, so the search for the shortest decimal
 * can start with 6 digits; 9 digits are always enough. */
size_t float_print(char out[FLOAT_TEXT_MAX], float value) {
  size_t fast = print_common(out, value);
  if (fast != 0) return fast;
  int length = 0;
  for (int digits = 6; digits <= 9; digits++) {
    length = snprintf(out, FLOAT_TEXT_MAX, "%.*g", digits, (double)value);
    if (strtof(out, NULL) == value) break;
  }
  if (strpbrk(out, ".e") == NULL) {
    out[length++] = '.';
    out[length++] = '0';
    out[length] = '\0';
  }
  return (size_t)length;
}

size_t double_print(char out[DOUBLE_TEXT_MAX], double value) {
  if (isinf(value)) return (size_t)snprintf(out, DOUBLE_TEXT_MAX, value > 0 ? "+Inf" : "-Inf");
  if (value == floor(value) && fabs(value) < 9007199254740992.0) {
    return (size_t)snprintf(out, DOUBLE_TEXT_MAX, "%.0f", value);
  }
  int length = 0;
  for (int digits = 15; digits <= 17; digits++) {
    length = snprintf(out, DOUBLE_TEXT_MAX, "%.*g", digits, value);
    if (strtod(out, NULL) == value) break;
  }
  return (size_t)length;
}

/* ---- values of JSON ---- */

static void print_scalar(buffer_t *out, const json_t *value) {
  switch ((json_type_t)value->type) {
  case JSON_NULL: buffer_text(out, "null"); break;
  case JSON_FALSE: buffer_text(out, "false"); break;
  case JSON_TRUE: buffer_text(out, "true"); break;
  case JSON_NUMBER: buffer_append(out, value->text, value->length); break;
  case JSON_STRING: buffer_quote(out, value->text, value->length); break;
  case JSON_ARRAY:
  case JSON_OBJECT: break;
  }
}

enum { DEPTH_MAX = 128 }; /* of json_limits_model, the deepest that the reader takes */

void json_print(buffer_t *out, const json_t *value) {
  uint32_t left[DEPTH_MAX]; /* children that are still to be printed, of each open container */
  bool is_object[DEPTH_MAX];
  int depth = 0;
  const json_t *json = value; /* values lie in preorder, json.h */
  for (bool more = true; more; json++) {
    if (depth > 0 && is_object[depth - 1]) {
      buffer_quote(out, json->key, json->key_length);
      buffer_char(out, ':');
    }
    bool container = json->type == JSON_ARRAY || json->type == JSON_OBJECT;
    if (container && depth == DEPTH_MAX) out->failed = true;
    if (container && depth < DEPTH_MAX) {
      is_object[depth] = json->type == JSON_OBJECT;
      left[depth] = json->count;
      buffer_char(out, is_object[depth] ? '{' : '[');
      depth++;
      if (json->count > 0) continue;
    } else {
      print_scalar(out, json);
      if (depth > 0) left[depth - 1]--;
    }
    while (depth > 0 && left[depth - 1] == 0) {
      depth--;
      buffer_char(out, is_object[depth] ? '}' : ']');
      if (depth > 0) left[depth - 1]--;
    }
    more = depth > 0 && !out->failed;
    if (more) buffer_char(out, ',');
  }
}

void json_print_member(buffer_t *out, const char *name, const json_t *value) {
  buffer_text(out, ",\"");
  buffer_text(out, name);
  buffer_text(out, "\":");
  json_print(out, value);
}
