/* bytes.h: numbers and texts as bytes, and back: what a journal (engine/journal) consists of.
 *
 * A number is a varint: seven bits a byte, the lowest first, the top bit set in all but the last. A
 * signed one is folded first (0, -1, 1, -2 ...). A text is its length and its bytes. Floats are
 * their four bytes, the lowest first. Pure functions; any thread.
 */
#ifndef INFERD_ENGINE_BASE_BYTES_H
#define INFERD_ENGINE_BASE_BYTES_H

#include "engine/base/buffer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { VARINT_BYTES = 10 };

/* Takes bytes in pieces: `at` grows up to `room`, and then `flush` takes them and empties it. */
typedef struct byte_sink {
  uint8_t *bytes; /* [room] */
  size_t room, at;
  void (*flush)(struct byte_sink *sink);
  void *context;
} byte_sink_t;

static inline void put_byte(byte_sink_t *sink, uint8_t byte) {
  if (sink->at == sink->room) sink->flush(sink);
  sink->bytes[sink->at++] = byte;
}
static inline void put_uint(byte_sink_t *sink, uint64_t value) {
  for (; value >= 0x80; value >>= 7) put_byte(sink, (uint8_t)(value | 0x80));
  put_byte(sink, (uint8_t)value);
}
static inline void put_int(byte_sink_t *sink, int64_t value) {
  put_uint(sink, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}
static inline void put_fixed_32(byte_sink_t *sink, uint32_t value) {
  for (int i = 0; i < 4; i++) put_byte(sink, (uint8_t)(value >> 8 * i));
}
static inline void put_fixed_64(byte_sink_t *sink, uint64_t value) {
  put_fixed_32(sink, (uint32_t)value);
  put_fixed_32(sink, (uint32_t)(value >> 32));
}
static inline void put_float(byte_sink_t *sink, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_fixed_32(sink, bits);
}
static inline void put_double(byte_sink_t *sink, double value) {
  uint64_t bits;
  memcpy(&bits, &value, sizeof bits);
  put_fixed_64(sink, bits);
}
static inline void put_text(byte_sink_t *sink, const char *text, size_t length) {
  put_uint(sink, length);
  for (size_t i = 0; i < length; i++) put_byte(sink, (uint8_t)text[i]);
}

/* Appends what came to the buffer that is the context. */
static inline void bytes_to_buffer(byte_sink_t *sink) {
  buffer_append(sink->context, sink->bytes, sink->at);
  sink->at = 0;
}

/* Reads on from `at`. Behind the end, or in what is no number, everything is 0 and `failed`. */
typedef struct byte_source {
  const uint8_t *at, *end;
  bool failed;
} byte_source_t;

static inline size_t source_left(const byte_source_t *source) {
  return (size_t)(source->end - source->at);
}
static inline uint8_t take_byte(byte_source_t *source) {
  if (source->at == source->end) source->failed = true;
  return source->failed ? 0 : *source->at++;
}
static inline uint64_t take_uint(byte_source_t *source) {
  uint64_t value = 0;
  for (int shift = 0; shift < 7 * VARINT_BYTES; shift += 7) {
    uint8_t byte = take_byte(source);
    value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  source->failed = true;
  return 0;
}
static inline int64_t take_int(byte_source_t *source) {
  uint64_t folded = take_uint(source);
  return (int64_t)(folded >> 1 ^ (~(folded & 1) + 1));
}
static inline int32_t take_int32(byte_source_t *source) {
  int64_t value = take_int(source);
  if (value < INT32_MIN || value > INT32_MAX) source->failed = true;
  return source->failed ? 0 : (int32_t)value;
}
/* A number of things that take at least one byte each: so nothing is allocated for a lie. */
static inline int32_t take_count(byte_source_t *source) {
  uint64_t count = take_uint(source);
  if (count > source_left(source) || count > INT32_MAX) source->failed = true;
  return source->failed ? 0 : (int32_t)count;
}
static inline uint32_t take_fixed_32(byte_source_t *source) {
  uint32_t value = 0;
  for (int i = 0; i < 4; i++) value |= (uint32_t)take_byte(source) << 8 * i;
  return value;
}
static inline uint64_t take_fixed_64(byte_source_t *source) {
  uint64_t low = take_fixed_32(source);
  return low | (uint64_t)take_fixed_32(source) << 32;
}
static inline float take_float(byte_source_t *source) {
  uint32_t bits = take_fixed_32(source);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
static inline double take_double(byte_source_t *source) {
  uint64_t bits = take_fixed_64(source);
  double value;
  memcpy(&value, &bits, sizeof value);
  return value;
}
/* The bytes of a text, in place. */
static inline const char *take_text(byte_source_t *source, size_t *length) {
  uint64_t bytes = take_uint(source);
  if (bytes > source_left(source)) source->failed = true;
  const char *text = (const char *)source->at;
  *length = source->failed ? 0 : (size_t)bytes;
  source->at += *length;
  return text;
}

#endif
