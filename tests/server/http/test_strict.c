/* test_strict.c: the reader of framing alone, without a socket: every request of the table, cut at
 * every byte.
 */
#include "engine/base/error.h"
#include "server/http/strict.h"
#include "tests/expect.h"
#include "tests/server/http/requests.h"

#include <stdlib.h>
#include <string.h>

TestSuite(strict, .timeout = 60);

enum { BYTES_MAX = 16384, RECORDS_MAX = 88 };

/* What the reader made of a text. */
typedef struct reading {
  strict_t strict;
  char *kept;
  size_t kept_bytes;
  size_t whole; /* of the kept bytes */
} reading_t;

/* Each piece is a block of its own size, so that a sanitizer sees a read behind it. */
static void read_piece(reading_t *reading, const char *bytes, size_t length) {
  char *piece = malloc(length);
  memcpy(piece, bytes, length);
  size_t kept = strict_read(&reading->strict, piece, length);
  ASSERT_LE(kept, length);
  memcpy(reading->kept + reading->kept_bytes, piece, kept);
  if (reading->strict.whole > 0) reading->whole = reading->kept_bytes + reading->strict.whole;
  reading->kept_bytes += kept;
  free(piece);
}

static reading_t reading_new(size_t length) {
  reading_t reading = {.kept = malloc(length + 1)};
  strict_begin(&reading.strict, BYTES_MAX, RECORDS_MAX);
  return reading;
}

/* What two readings of one text must have in common. */
static void expect_same(const reading_t *whole, const reading_t *cut, const char *name, size_t at) {
  EXPECT_EQ_FOR(cut->strict.error, whole->strict.error, "%s, cut at %zu", name, at);
  EXPECT_EQ_FOR(cut->strict.message, whole->strict.message, "%s, cut at %zu", name, at);
  EXPECT_EQ_FOR(cut->strict.requests, whole->strict.requests, "%s, cut at %zu", name, at);
  EXPECT_EQ_FOR(cut->strict.heads, whole->strict.heads, "%s, cut at %zu", name, at);
  ASSERT_EQ_FOR(cut->whole, whole->whole, "%s, cut at %zu", name, at);
  ASSERT_EQ_FOR(memcmp(cut->kept, whole->kept, whole->whole), 0, "%s, cut at %zu", name, at);
}

/* Final answers, and the status of the last. */
static uint64_t count_answers(const char *statuses, int *last) {
  uint64_t count = 0;
  for (const char *p = statuses; *p != '\0';) {
    char *end;
    *last = (int)strtol(p, &end, 10);
    count += *last >= 200;
    p = end + strspn(end, "? ");
  }
  return count;
}

static void expect_reading(const reading_t *reading, const raw_request_t *row) {
  int last = 0;
  uint64_t answers = count_answers(row->statuses, &last);
  EXPECT_EQ_FOR(reading->strict.requests, answers - (row->message != NULL), "%s", row->name);
  if (row->message == NULL) {
    EXPECT_EQ_FOR(reading->strict.error, 0, "%s: %s", row->name, reading->strict.message);
    EXPECT_EQ_FOR(reading->strict.state, STRICT_START, "%s", row->name);
    EXPECT_EQ_FOR(reading->whole, reading->kept_bytes, "%s", row->name);
    return;
  }
  EXPECT_NE_FOR(reading->strict.error, 0, "%s", row->name);
  EXPECT_EQ_FOR(error_http_status(reading->strict.error), last, "%s", row->name);
}

Test(strict, every_request_of_the_table_cut_at_every_byte) {
  for (size_t i = 0; i < raw_request_count; i++) {
    const raw_request_t *row = &raw_requests[i];
    reading_t whole = reading_new(row->length);
    read_piece(&whole, row->bytes, row->length);
    expect_reading(&whole, row);
    size_t step = row->length > 1000 ? 97 : 1; /* long texts are one letter, many times */
    for (size_t at = 1; at < row->length; at += step) {
      reading_t cut = reading_new(row->length);
      read_piece(&cut, row->bytes, at);
      read_piece(&cut, row->bytes + at, row->length - at);
      expect_same(&whole, &cut, row->name, at);
      free(cut.kept);
    }
    reading_t bytes = reading_new(row->length);
    for (size_t at = 0; at < row->length; at++) read_piece(&bytes, row->bytes + at, 1);
    expect_same(&whole, &bytes, row->name, 0);
    free(bytes.kept);
    free(whole.kept);
  }
}

Test(strict, nothing_is_read_behind_a_refusal) {
  reading_t reading = reading_new(200);
  read_piece(&reading, "GET / HTTP/1.1\n", 15);
  uint64_t heads = reading.strict.heads;
  const char *message = reading.strict.message;
  static const char right[] = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  read_piece(&reading, right, sizeof right - 1);
  EXPECT_EQ(reading.strict.heads, heads);
  EXPECT_EQ(reading.strict.message, message);
  free(reading.kept);
}

/* The library compares values to their end, so blanks that are legal are dropped. */
Test(strict, blanks_behind_a_length_are_dropped) {
  static const char text[] =
      "POST / HTTP/1.1\r\nHost: a \t\r\nContent-Length:  5  \r\nX: b \r\n\r\nabc \r";
  static const char wanted[] =
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:  5\r\nX: b \r\n\r\nabc \r";
  reading_t reading = reading_new(sizeof text);
  read_piece(&reading, text, sizeof text - 1);
  ASSERT_EQ(reading.kept_bytes, sizeof wanted - 1);
  EXPECT_EQ(memcmp(reading.kept, wanted, sizeof wanted - 1), 0);
  EXPECT_EQ(reading.whole, reading.kept_bytes);
  free(reading.kept);
}

/* Each byte at each place of a short request: a table of the classes of bytes, written a second
 * time as lists. */
Test(strict, every_byte_in_a_name_a_value_and_a_target) {
  static const char token[] = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                              "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
  for (int c = 0; c < 256; c++) {
    bool in_token = c != 0 && strchr(token, c) != NULL;
    bool in_value = c >= 0x80 || (c >= 0x20 && c < 0x7f) || c == '\t';
    bool in_host = in_token ? strchr("#^`|", c) == NULL : c != 0 && strchr(":[]();=", c) != NULL;
    bool in_target = c > 0x20 && c < 0x7f && c != '#';
    struct {
      const char *before, *behind;
      bool allowed;
    } places[] = {
        {"GET / HTTP/1.1\r\nHost: a\r\nX", "Y: b\r\n\r\n", in_token || c == ':'},
        {"GET / HTTP/1.1\r\nHost: a\r\nX: b", "c\r\n\r\n", in_value},
        {"GET / HTTP/1.1\r\nHost: a", "b\r\n\r\n", in_host},
        {"GET /a", "b HTTP/1.1\r\nHost: a\r\n\r\n", in_target},
        {"G", "T / HTTP/1.1\r\nHost: a\r\n\r\n", in_token},
    };
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
      char text[64];
      int before = snprintf(text, sizeof text, "%s", places[i].before);
      text[before] = (char)c;
      int behind =
          snprintf(text + before + 1, sizeof text - (size_t)before - 1, "%s", places[i].behind);
      reading_t reading = reading_new(sizeof text);
      read_piece(&reading, text, (size_t)(before + 1 + behind));
      EXPECT_EQ_FOR(reading.strict.requests == 1, places[i].allowed, "byte %d in place %zu", c, i);
      free(reading.kept);
    }
  }
}

/* The bound holds to the byte, and the counting begins anew with each request. */
Test(strict, the_head_has_exactly_its_room) {
  enum { ROOM = 200 };
  static const char before[] = "GET / HTTP/1.1\r\nHost: a\r\nX: ", behind[] = "\r\n\r\n";
  size_t fits = ROOM - 2 * STRICT_RECORD_BYTES - (sizeof before - 1) - (sizeof behind - 1);
  for (size_t length = fits - 1; length <= fits + 1; length++) {
    char text[ROOM * 2];
    int n = snprintf(text, sizeof text, "%s%.*s%s", before, (int)length,
                     "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", behind);
    reading_t reading = reading_new(sizeof text * 3);
    strict_begin(&reading.strict, ROOM, 2);
    for (int i = 0; i < 3; i++) read_piece(&reading, text, (size_t)n);
    EXPECT_EQ_FOR(reading.strict.requests, length <= fits ? 3 : 0, "%zu", length);
    EXPECT_EQ(reading.strict.error, length <= fits ? 0 : ERR_HEADERS_TOO_LARGE);
    free(reading.kept);
  }
}
