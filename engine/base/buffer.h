/* buffer.h: a growing byte buffer, and the printing of JSON strings and numbers into it.
 *
 * One owner, one thread at a time. Memory that cannot be had sets `failed` and drops the bytes: the
 * writer goes on without checks and the reader asks once at the end. Capacity only grows, so a
 * buffer that is emptied and filled again costs no allocation.
 */
#ifndef INFERD_ENGINE_BASE_BUFFER_H
#define INFERD_ENGINE_BASE_BUFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct buffer {
  char *data; /* malloc'ed; not NUL-terminated */
  size_t length, capacity;
  bool failed; /* memory was short at least once */
} buffer_t;

enum { FLOAT_TEXT_MAX = 24, DOUBLE_TEXT_MAX = 32 };

void buffer_free(buffer_t *buffer);  /* leaves an empty, usable buffer */
void buffer_clear(buffer_t *buffer); /* length 0, memory kept */
/* Makes room for `extra` more bytes; false (and failed) when memory is short. */
bool buffer_reserve(buffer_t *buffer, size_t extra);
/* Hands the bytes to the caller (free()), NUL behind them; NULL when the buffer has failed. */
char *buffer_detach(buffer_t *buffer, size_t *length);

void buffer_append(buffer_t *buffer, const char *bytes, size_t length);
void buffer_text(buffer_t *buffer, const char *text); /* NUL-terminated */
void buffer_char(buffer_t *buffer, char byte);
void buffer_int(buffer_t *buffer, int64_t value);
void buffer_uint(buffer_t *buffer, uint64_t value);
/* Body of a JSON string, without quotes; invalid UTF-8 becomes U+FFFD. */
void buffer_escape(buffer_t *buffer, const char *text, size_t length);
void buffer_quote(buffer_t *buffer, const char *text, size_t length); /* the same in quotes */
void buffer_float(buffer_t *buffer, float value);                     /* float_print */
void buffer_ids(buffer_t *buffer, const int32_t *ids, size_t count);  /* [1,2,3] */

/* Shortest decimal that reads back as the same float32, always with a point or an exponent, so that
 * typed clients see a float: 0.5, -9999.0, 1e-07. The value must be finite. Returns the length. */
size_t float_print(char out[FLOAT_TEXT_MAX], float value);
/* Shortest decimal that reads back as the same double; integers without a point (metrics). */
size_t double_print(char out[DOUBLE_TEXT_MAX], double value);

#endif
