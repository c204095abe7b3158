/* buffer.h: the growing byte buffer, and functions that append JSON strings and numbers to it.
 *
 * One owner, one thread at a time. If an allocation fails, the bytes are dropped and `failed` is
 * set: the writer needs no checks, and the reader checks `failed` once at the end. A writer that
 * must stop at once looks at what buffer_reserve and buffer_append return. The capacity never
 * shrinks, so a buffer that is cleared and filled again allocates nothing. Arrays in an arena grow
 * by arena_grow instead: others keep pointers into them, and only the arena frees.
 */
#ifndef INFERD_ENGINE_BASE_BUFFER_H
#define INFERD_ENGINE_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct buffer {
  union { /* [length], from malloc, so aligned for any type; not NUL-terminated */
    char *data;
    uint8_t *bytes;
  };
  size_t length, capacity;
  bool failed; /* an allocation has failed, so bytes are missing */
} buffer_t;

enum { FLOAT_TEXT_MAX = 24, DOUBLE_TEXT_MAX = 32 };

void buffer_free(buffer_t *buffer);  /* leaves an empty buffer that can be used again */
void buffer_clear(buffer_t *buffer); /* sets the length to 0 and keeps memory and `failed` */
/* Empties the buffer for the next user, who starts without `failed`; frees the memory if a rare
 * large input made it more than `keep_max` bytes. */
void buffer_trim(buffer_t *buffer, size_t keep_max);
/* Makes room for `extra` more bytes. Returns false, and sets `failed`, without memory; a later,
 * smaller request may succeed. */
bool buffer_reserve(buffer_t *buffer, size_t extra);
/* Moves the bytes, followed by a NUL, to the caller, who frees them with free(). Leaves an empty
 * buffer. Returns NULL if the buffer has failed. */
char *buffer_detach(buffer_t *buffer, size_t *length);

/* Returns false if the bytes were dropped. Inline: a frame of a stream is made of many short texts
 * whose lengths the compiler knows. */
static inline bool buffer_append(buffer_t *buffer, const void *bytes, size_t length) {
  if (length == 0) return true;
  if (buffer->capacity - buffer->length < length && !buffer_reserve(buffer, length)) return false;
  memcpy(buffer->data + buffer->length, bytes, length);
  buffer->length += length;
  return true;
}
static inline void buffer_text(buffer_t *buffer, const char *text) { /* NUL-terminated */
  buffer_append(buffer, text, strlen(text));
}
static inline void buffer_char(buffer_t *buffer, char byte) {
  buffer_append(buffer, &byte, 1);
}
void buffer_int(buffer_t *buffer, int64_t value);
void buffer_uint(buffer_t *buffer, uint64_t value);
/* Appends `text` as the body of a JSON string, without quotes; invalid UTF-8 becomes U+FFFD. */
void buffer_escape(buffer_t *buffer, const char *text, size_t length);
void buffer_quote(buffer_t *buffer, const char *text, size_t length); /* the same in quotes */
void buffer_float(buffer_t *buffer, float value);                     /* float_print */
void buffer_ids(buffer_t *buffer, const int32_t *ids, size_t count);  /* [1,2,3] */
struct json;
/* A value as JSON text, numbers as they were written; and the same behind ,"name": */
void json_print(buffer_t *out, const struct json *value);
void json_print_member(buffer_t *out, const char *name, const struct json *value);

/* Prints the shortest decimal that reads back as the same float32. It always has a point or an
 * exponent, so that typed clients read a float: 0.5, -9999.0, 1e-07. The value must be finite.
 * Returns the length. */
size_t float_print(char out[FLOAT_TEXT_MAX], float value);
/* For metrics: prints the shortest decimal that reads back as the same double, integers without a
 * point, infinities as +Inf and -Inf. Returns the length. */
size_t double_print(char out[DOUBLE_TEXT_MAX], double value);

#endif
