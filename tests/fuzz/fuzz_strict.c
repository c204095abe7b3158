/* fuzz_strict.c: bytes of a connection -> where each request ends, and what its body is.
 *
 * The first byte chooses where the bytes are cut; the rest are the bytes. Where they are cut must
 * change nothing, and what the reader accepts, a second reader that knows no cuts and finds the
 * pieces by searching must take apart in the same way.
 */
#include "engine/base/buffer.h"
#include "server/http/strict.h"
#include "tests/fuzz/targets.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BYTES_MAX = 16384, RECORDS_MAX = 88 };

/* What a reader makes of the bytes: each body, then where its request ends. */
typedef struct reading {
  strict_t strict;
  buffer_t bodies;
  buffer_t kept;
  size_t whole; /* of kept: up to the end of the last request */
} reading_t;

static void tell_end(buffer_t *bodies, size_t at) {
  buffer_append(bodies, "|", 1);
  buffer_append(bodies, (const char *)&at, sizeof at);
}

/* Gives a block of its own to the reader, so that a read behind it is seen. */
static void read_piece(reading_t *reading, const uint8_t *bytes, size_t length) {
  char *piece = malloc(length);
  if (piece == NULL) abort();
  memcpy(piece, bytes, length);
  size_t kept = strict_read(&reading->strict, piece, length);
  if (kept > length || reading->strict.whole > kept) abort();
  if (reading->strict.whole > 0) reading->whole = reading->kept.length + reading->strict.whole;
  buffer_append(&reading->kept, piece, kept);
  free(piece);
}

static void read_bytewise(reading_t *reading, const uint8_t *data, size_t size) {
  for (size_t at = 0; at < size && reading->strict.error == 0; at++) {
    strict_state_t state = reading->strict.state;
    uint64_t before = reading->strict.requests;
    read_piece(reading, data + at, 1);
    if (state == STRICT_BODY || state == STRICT_CHUNK) {
      buffer_append(&reading->bodies, (const char *)data + at, 1);
    }
    if (reading->strict.requests != before) tell_end(&reading->bodies, at + 1);
  }
}

static void read_cut(reading_t *reading, const uint8_t *data, size_t size, uint64_t seed) {
  for (size_t at = 0; at < size;) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    size_t n = 1 + (size_t)(seed >> 33) % 40;
    if (n > size - at) n = size - at;
    read_piece(reading, data + at, n);
    at += n;
  }
}

static void expect_same(const reading_t *one, const reading_t *other) {
  if (one->strict.error != other->strict.error || one->strict.message != other->strict.message ||
      one->strict.requests != other->strict.requests || one->whole != other->whole ||
      (one->whole > 0 && memcmp(one->kept.data, other->kept.data, one->whole) != 0)) {
    abort();
  }
}

/* ---- the second reader ---- */

typedef struct span {
  const char *at, *end;
} span_t;

static const char *line_end(span_t text) {
  return text.at < text.end ? memmem(text.at, (size_t)(text.end - text.at), "\r\n", 2) : NULL;
}

static bool header_is(span_t line, const char *name) {
  size_t length = strlen(name);
  return (size_t)(line.end - line.at) > length && line.at[length] == ':' &&
         strncasecmp(line.at, name, length) == 0;
}

/* Appends the body behind `text.at`; returns what follows it, NULL if it is not complete. */
static const char *second_chunks(span_t text, buffer_t *bodies) {
  for (;;) {
    const char *end = line_end(text);
    if (end == NULL) return NULL;
    unsigned long long size = strtoull(text.at, NULL, 16);
    text.at = end + 2;
    if (size == 0) break;
    if ((size_t)(text.end - text.at) < 2 || size > (size_t)(text.end - text.at) - 2) return NULL;
    buffer_append(bodies, text.at, (size_t)size);
    text.at += size + 2;
  }
  for (;;) {
    const char *end = line_end(text);
    if (end == NULL) return NULL;
    bool last = end == text.at;
    text.at = end + 2;
    if (last) return text.at;
  }
}

static const char *second_request(span_t text, buffer_t *bodies) {
  unsigned long long length = 0;
  bool chunks = false;
  if (line_end(text) == text.at) text.at += 2; /* one empty line before it */
  for (;;) {
    const char *end = line_end(text);
    if (end == NULL) return NULL;
    span_t line = {text.at, end};
    text.at = end + 2;
    if (line.at == line.end) break;
    if (header_is(line, "content-length")) length = strtoull(line.at + 15, NULL, 10);
    if (header_is(line, "transfer-encoding")) chunks = true;
  }
  if (chunks) return second_chunks(text, bodies);
  if (length > (size_t)(text.end - text.at)) return NULL;
  buffer_append(bodies, text.at, (size_t)length);
  return text.at + length;
}

/* The copy ends in a NUL, where strtoull stops. */
static void expect_second(const reading_t *reading, const uint8_t *data, size_t size) {
  buffer_t copy = {0}, bodies = {0};
  buffer_append(&copy, (const char *)data, size);
  buffer_append(&copy, "\0", 1);
  span_t text = {copy.data, copy.data + size};
  for (uint64_t i = 0; i < reading->strict.requests; i++) {
    text.at = second_request(text, &bodies);
    if (text.at == NULL) abort();
    tell_end(&bodies, (size_t)(text.at - copy.data));
  }
  size_t told = bodies.length;
  if (told > reading->bodies.length) abort();
  if (told > 0 && memcmp(bodies.data, reading->bodies.data, told) != 0) abort();
  buffer_free(&bodies);
  buffer_free(&copy);
}

static void reading_free(reading_t *reading) {
  buffer_free(&reading->bodies);
  buffer_free(&reading->kept);
}

void fuzz_strict(const uint8_t *data, size_t size) {
  if (size < 2) return;
  reading_t whole = {0}, bytes = {0}, cut = {0};
  strict_begin(&whole.strict, BYTES_MAX, RECORDS_MAX);
  bytes.strict = cut.strict = whole.strict;
  read_piece(&whole, data + 1, size - 1);
  read_bytewise(&bytes, data + 1, size - 1);
  read_cut(&cut, data + 1, size - 1, data[0]);
  expect_same(&whole, &bytes);
  expect_same(&whole, &cut);
  expect_second(&bytes, data + 1, size - 1);
  reading_free(&whole);
  reading_free(&bytes);
  reading_free(&cut);
}
