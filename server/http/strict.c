/* strict.c: reads the bytes of a connection and says where each request ends.
 *
 * Any thread; a strict_t belongs to one connection. Never calls a socket, never allocates. One byte
 * makes one step; bodies and ordinary values are passed over in runs. Next: the bytes go on to
 * libmicrohttpd (http_read.c).
 */
#include "server/http/strict.h"

#include "engine/base/error.h"
#include "engine/base/hex.h"
#include "engine/base/util.h"

#include <string.h>
#include <strings.h>

/* Chunk sizes up to 2^60 - 1, so that no reader's number overflows. */
enum { SIZE_DIGITS_MAX = 15, TLS_HANDSHAKE = 0x16 };

/* Fields that must be single come first; `seen` has a bit for each. */
typedef enum header_field {
  FIELD_LENGTH,
  FIELD_CODING,
  FIELD_HOST,
  FIELD_AUTHORIZATION,
  FIELD_TYPE,
  FIELD_ORIGIN,
  FIELD_COOKIE,
  FIELD_OTHER
} header_field_t;

typedef struct field_name {
  uint32_t length;
  char name[STRICT_NAME_BYTES];
} field_name_t;

static const field_name_t field_names[] = {
    [FIELD_LENGTH] = {14, "content-length"},
    [FIELD_CODING] = {17, "transfer-encoding"},
    [FIELD_HOST] = {4, "host"},
    [FIELD_AUTHORIZATION] = {13, "authorization"},
    [FIELD_TYPE] = {12, "content-type"},
    [FIELD_ORIGIN] = {6, "origin"},
    [FIELD_COOKIE] = {6, "cookie"},
};

/* ---- refusals ---- */

static void refuse_as(strict_t *strict, int error, const char *message) {
  if (strict->error != 0) return;
  strict->error = error;
  strict->message = message;
}

/* A line end that is not CRLF is named as such, wherever it stands. */
static void refuse(strict_t *strict, unsigned char byte, const char *message) {
  if (byte == '\n') message = "A line ends in LF alone; lines end in CRLF.";
  if (byte == '\r') message = "A CR stands where no line may end.";
  refuse_as(strict, ERR_BAD_REQUEST, message);
}

static void expect_lf(strict_t *strict, unsigned char byte, strict_state_t next) {
  strict->state = next;
  if (byte != '\n') refuse_as(strict, ERR_BAD_REQUEST, "A CR is not followed by LF.");
}

/* Takes bytes from what the head may have. */
static void spend(strict_t *strict, size_t bytes) {
  strict_request_t *now = &strict->now;
  if (bytes <= now->room) {
    now->room -= bytes;
  } else if (strict->state < STRICT_LINE) {
    refuse_as(strict, ERR_URI_TOO_LONG, "The request line is too long");
  } else {
    refuse_as(strict, ERR_HEADERS_TOO_LARGE, "The headers are too large");
  }
}

static void spend_record(strict_t *strict) {
  spend(strict, STRICT_RECORD_BYTES);
  if (strict->now.records-- > 0) return;
  refuse_as(strict, ERR_HEADERS_TOO_LARGE, "There are too many headers, query fields and cookies");
}

/* ---- bytes ---- */

/* What a byte may stand in; a bit each. Tokens: RFC 9110 5.6.2. Hosts: RFC 3986 3.2.2, without the
 * comma, because some front ends read a list. Targets: what is visible, but no fragment. */
enum { TOKEN = 1, VALUE = 2, TARGET = 4, HOST = 8 };
static const uint8_t classes[256] = {
    0,  0,  0,  0,  0,  0,  0,  0,  0,  2,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,  0,
    0,  0,  0,  0,  0,  0,  0,  0,  2,  15, 6,  3,  15, 15, 15, 15, 14, 14, 15, 15, 6,  15, 15, 6,
    15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 14, 14, 6,  14, 6,  6,  6,  15, 15, 15, 15, 15, 15, 15,
    15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 14, 6,  14, 7,  15,
    7,  15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15,
    15, 15, 15, 6,  7,  6,  15, 0,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,
    2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,
    2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,
    2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,
    2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,
    2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,  2,
};

static bool is_a(unsigned char byte, unsigned class) {
  return (classes[byte] & class) != 0;
}

static bool is_blank(unsigned char byte) {
  return byte == ' ' || byte == '\t';
}

static unsigned char lower(unsigned char byte) {
  return byte >= 'A' && byte <= 'Z' ? (unsigned char)(byte + 32) : byte;
}

/* ---- request line ---- */

static void name_byte(strict_request_t *now, unsigned char byte) {
  if (now->at < STRICT_NAME_BYTES) now->name[now->at] = (char)byte;
  now->at++;
}

/* Returns true for the methods that may have * as target: OPTIONS, and PRI, with which a client of
 * HTTP/2 begins (RFC 9113 3.4). The version that follows PRI refuses it. */
static bool may_have_asterisk(const strict_request_t *now) {
  return (now->at == 7 && memcmp(now->name, "OPTIONS", 7) == 0) ||
         (now->at == 3 && memcmp(now->name, "PRI", 3) == 0);
}

static void start_byte(strict_t *strict, unsigned char byte) {
  strict_request_t *now = &strict->now;
  if (byte == '\r' && !now->empty_line) {
    now->empty_line = true; /* RFC 9112 2.2: some clients send one behind a body */
    strict->state = STRICT_START_LF;
  } else if (is_a(byte, TOKEN)) {
    strict->state = STRICT_METHOD;
    name_byte(now, byte);
  } else if (byte == TLS_HANDSHAKE) {
    strict->tls = true;
    refuse(strict, byte,
           "The client speaks TLS (https://), but this port speaks plain HTTP: use http://, or "
           "start the server with --tls-cert.");
  } else {
    refuse(strict, byte, "The request does not begin with a method; is it plain HTTP/1.1?");
  }
}

static void method_byte(strict_t *strict, unsigned char byte) {
  if (is_a(byte, TOKEN)) {
    name_byte(&strict->now, byte);
  } else if (byte == ' ') {
    strict->state = STRICT_TARGET;
    if (!may_have_asterisk(&strict->now)) strict->now.name[0] = '\0';
    strict->now.at = 0;
  } else {
    refuse(strict, byte, "The method is malformed.");
  }
}

/* The target is a path, an absolute http:// address, or * for OPTIONS and PRI. */
static void target_byte(strict_t *strict, unsigned char byte) {
  static const char scheme[] = "http://";
  enum { SCHEME_BYTES = sizeof scheme - 1 };
  strict_request_t *now = &strict->now;
  if (now->at == 0) now->form = byte;
  bool path = now->form == '/', asterisk = now->form == '*';
  if (byte == ' ') {
    strict->state = STRICT_VERSION;
    if (now->at == 0 || (!path && !asterisk && now->at <= SCHEME_BYTES) ||
        (asterisk && (now->at != 1 || now->name[0] == '\0'))) {
      refuse(strict, byte, "The request target is malformed.");
    }
    now->at = 0;
    return;
  }
  if (byte == '\r') {
    refuse_as(strict, ERR_BAD_REQUEST, "The request line ends without a version of HTTP.");
  } else if (!is_a(byte, TARGET)) {
    refuse(strict, byte, "The request target has a byte that is not allowed; percent-encode it.");
  } else if (!path && !asterisk && now->at < SCHEME_BYTES && lower(byte) != scheme[now->at]) {
    refuse(strict, byte, "The request target does not begin with / or http://.");
  }
  if (now->query ? byte == '&' : byte == '?') {
    now->query = true;
    spend_record(strict);
  }
  now->at++;
}

static void version_byte(strict_t *strict, unsigned char byte) {
  strict_request_t *now = &strict->now;
  unsigned at = now->at++;
  bool digit = byte >= '0' && byte <= '9';
  if (at == 5) now->major = byte;
  if (at == 7) now->minor = byte;
  if (at < 5 ? byte != "HTTP/"[at] : at == 6 ? byte != '.' : at < 8 ? !digit : byte != '\r') {
    refuse(strict, byte, "The request line does not end in HTTP/1.1 or HTTP/1.0.");
  } else if (at == 8) {
    strict->state = STRICT_VERSION_LF;
    if (now->major != '1' || now->minor > '1') {
      refuse_as(strict, ERR_HTTP_VERSION, "Only HTTP/1.1 and HTTP/1.0 are served here.");
    } else if (now->form == '*' && now->name[0] == 'P') {
      refuse_as(strict, ERR_BAD_REQUEST, "The request target is malformed.");
    }
  }
}

/* ---- headers and trailers ---- */

static void line_byte(strict_t *strict, unsigned char byte) {
  if (byte == '\r') {
    strict->state = STRICT_HEAD_LF;
  } else if (is_a(byte, TOKEN)) {
    strict->state = STRICT_NAME;
    strict->now.at = 0;
    name_byte(&strict->now, lower(byte));
    spend_record(strict);
  } else {
    refuse(strict, byte,
           is_blank(byte) ? "A header line begins with white space; folded lines are not allowed."
                          : "The name of a header has a byte that is not allowed.");
  }
}

static void name_end(strict_t *strict) {
  strict_request_t *now = &strict->now;
  unsigned field = 0;
  while (field < FIELD_OTHER && (field_names[field].length != now->at ||
                                 memcmp(now->name, field_names[field].name, now->at) != 0)) {
    field++;
  }
  strict->state = STRICT_BLANK;
  now->field = (uint8_t)field;
  now->at = 0;
  if (field >= FIELD_COOKIE) {
    if (field == FIELD_COOKIE) spend_record(strict);
    return;
  }
  if (now->trailers) {
    refuse_as(strict, ERR_BAD_REQUEST, "A trailer has a name that belongs into the headers.");
  } else if ((now->seen >> field & 1) != 0) {
    refuse_as(strict, ERR_BAD_REQUEST, "A header that must be single is repeated.");
  }
  now->seen |= 1u << field;
  if (field == FIELD_LENGTH) now->left = 0;
}

static void name_in_line(strict_t *strict, unsigned char byte) {
  if (is_a(byte, TOKEN)) {
    name_byte(&strict->now, lower(byte));
  } else if (byte == ':') {
    name_end(strict);
  } else {
    refuse(strict, byte,
           is_blank(byte) ? "White space stands before the colon of a header."
                          : "The name of a header has a byte that is not allowed.");
  }
}

static void length_byte(strict_t *strict, unsigned char byte) {
  strict_request_t *now = &strict->now;
  if (byte < '0' || byte > '9') {
    refuse(strict, byte, "Content-Length is not a plain number.");
  } else if (now->left > (INT64_MAX - 9) / 10) {
    refuse_as(strict, ERR_BODY_TOO_LARGE, "Content-Length is larger than any body can be.");
  } else {
    now->left = now->left * 10 + (byte - '0');
  }
}

static void value_end(strict_t *strict) {
  strict_request_t *now = &strict->now;
  strict->state = STRICT_VALUE_LF;
  if (now->field == FIELD_LENGTH && now->at == 0) {
    refuse_as(strict, ERR_BAD_REQUEST, "Content-Length is empty.");
  } else if (now->field == FIELD_CODING && now->at != 7) {
    refuse_as(strict, ERR_BAD_REQUEST, "The only Transfer-Encoding served here is chunked.");
  }
  if (now->field == FIELD_CODING) now->chunked = true;
}

/* Returns false for a blank that is dropped. */
static bool value_byte(strict_t *strict, unsigned char byte) {
  strict_request_t *now = &strict->now;
  if (byte == '\r') {
    value_end(strict);
    return true;
  }
  if (strict->state == STRICT_BLANK && is_blank(byte)) return true;
  bool one_word = now->field <= FIELD_HOST;
  if (one_word && is_blank(byte)) {
    strict->state = STRICT_TAIL;
    return false;
  }
  if (!is_a(byte, VALUE)) {
    refuse(strict, byte, "The value of a header has a control byte.");
  } else if (strict->state == STRICT_TAIL || (now->field == FIELD_HOST && !is_a(byte, HOST))) {
    refuse(strict, byte,
           "Host, Content-Length or Transfer-Encoding has a byte that is not allowed.");
  } else if (now->field == FIELD_LENGTH) {
    length_byte(strict, byte);
  } else if (now->field == FIELD_CODING && (now->at >= 7 || lower(byte) != "chunked"[now->at])) {
    refuse(strict, byte, "The only Transfer-Encoding served here is chunked.");
  } else if (now->field == FIELD_COOKIE) {
    spend(strict, 1); /* libmicrohttpd copies the value and splits it */
    if (byte == ';' || byte == ',') spend_record(strict);
  }
  if (strict->state == STRICT_BLANK) strict->state = STRICT_VALUE;
  now->at++;
  return true;
}

/* ---- bodies ---- */

static void complete(strict_t *strict) {
  strict->requests++;
  strict->state = STRICT_START;
  strict->now = (strict_request_t){.room = strict->bytes_max, .records = strict->records_max};
}

static void head_end(strict_t *strict) {
  strict_request_t *now = &strict->now;
  if (now->trailers) {
    complete(strict);
    return;
  }
  bool length = (now->seen >> FIELD_LENGTH & 1) != 0, host = (now->seen >> FIELD_HOST & 1) != 0;
  bool old = now->minor == '0';
  if (!host && !old) refuse_as(strict, ERR_BAD_REQUEST, "Exactly one Host header is needed.");
  if (length && now->chunked) {
    refuse_as(strict, ERR_BAD_REQUEST, "Content-Length and Transfer-Encoding stand together.");
  }
  if (now->chunked && old) {
    refuse_as(strict, ERR_BAD_REQUEST, "Transfer-Encoding stands in an HTTP/1.0 request.");
  }
  if (strict->error != 0) return;
  strict->heads++;
  now->at = 0;
  if (now->chunked) {
    now->left = 0;
    strict->state = STRICT_SIZE;
  } else if (length && now->left > 0) {
    strict->state = STRICT_BODY;
  } else {
    complete(strict);
  }
}

static void size_byte(strict_t *strict, unsigned char byte) {
  strict_request_t *now = &strict->now;
  int digit = hex_value((char)byte);
  if (digit >= 0 && now->at < SIZE_DIGITS_MAX) {
    now->left = now->left << 4 | (unsigned)digit;
    now->at++;
  } else if (byte == '\r' && now->at > 0) {
    strict->state = STRICT_SIZE_LF;
  } else {
    refuse(strict, byte,
           digit >= 0 ? "The size of a chunk has more than 15 digits."
           : byte == ';' || (is_blank(byte) && now->at > 0)
               ? "A chunk has an extension; none is allowed."
               : "The size of a chunk is not a hexadecimal number.");
  }
}

/* ---- steps ---- */

/* Takes one byte. Returns false for a byte that is dropped. */
static bool step(strict_t *strict, unsigned char byte) {
  strict_request_t *now = &strict->now;
  if (strict->state < STRICT_BODY) spend(strict, 1);
  switch (strict->state) {
  case STRICT_START: start_byte(strict, byte); break;
  case STRICT_START_LF: expect_lf(strict, byte, STRICT_START); break;
  case STRICT_METHOD: method_byte(strict, byte); break;
  case STRICT_TARGET: target_byte(strict, byte); break;
  case STRICT_VERSION: version_byte(strict, byte); break;
  case STRICT_VERSION_LF: expect_lf(strict, byte, STRICT_LINE); break;
  case STRICT_LINE: line_byte(strict, byte); break;
  case STRICT_NAME: name_in_line(strict, byte); break;
  case STRICT_BLANK:
  case STRICT_VALUE:
  case STRICT_TAIL: return value_byte(strict, byte);
  case STRICT_VALUE_LF: expect_lf(strict, byte, STRICT_LINE); break;
  case STRICT_HEAD_LF:
    expect_lf(strict, byte, STRICT_LINE);
    if (strict->error == 0) head_end(strict);
    break;
  case STRICT_SIZE: size_byte(strict, byte); break;
  case STRICT_SIZE_LF:
    now->trailers = now->left == 0;
    expect_lf(strict, byte, now->trailers ? STRICT_LINE : STRICT_CHUNK);
    break;
  case STRICT_CHUNK_CR:
    strict->state = STRICT_CHUNK_LF;
    if (byte != '\r') refuse(strict, byte, "A chunk is longer than its size says.");
    break;
  case STRICT_CHUNK_LF:
    expect_lf(strict, byte, STRICT_SIZE);
    now->at = 0;
    break;
  case STRICT_BODY:
  case STRICT_CHUNK: break; /* pass_over takes them */
  }
  return true;
}

/* The length of the run of bytes of a class, and of at most `most`. */
static size_t run_of(const char *bytes, size_t most, unsigned class) {
  size_t n = 0;
  while (n < most && is_a((unsigned char)bytes[n], class)) n++;
  return n;
}

static size_t pass_body(strict_t *strict, size_t length) {
  strict_request_t *now = &strict->now;
  size_t n = length < now->left ? length : (size_t)now->left;
  now->left -= n;
  if (now->left > 0) return n;
  if (strict->state == STRICT_BODY) {
    complete(strict);
  } else {
    strict->state = STRICT_CHUNK_CR;
  }
  return n;
}

/* Passes over bytes that need no step each: of a body, a name, and a value that is not looked at.
 * Returns their number. */
static size_t pass_over(strict_t *strict, const char *bytes, size_t length) {
  strict_request_t *now = &strict->now;
  if (strict->state == STRICT_BODY || strict->state == STRICT_CHUNK) {
    return pass_body(strict, length);
  }
  size_t n = 0, most = MIN(length, now->room);
  if (strict->state == STRICT_NAME) {
    n = run_of(bytes, most, TOKEN);
    for (size_t i = 0; i < n && now->at + i < STRICT_NAME_BYTES; i++) {
      now->name[now->at + i] = (char)lower((unsigned char)bytes[i]);
    }
    now->at += (uint32_t)n;
  } else if (strict->state == STRICT_VALUE && now->field > FIELD_HOST &&
             now->field != FIELD_COOKIE) {
    n = run_of(bytes, most, VALUE);
  }
  now->room -= n;
  return n;
}

void strict_begin(strict_t *strict, size_t bytes_max, int32_t records_max) {
  *strict = (strict_t){.bytes_max = bytes_max, .records_max = records_max};
  strict->now = (strict_request_t){.room = bytes_max, .records = records_max};
}

size_t strict_read(strict_t *strict, char *bytes, size_t length) {
  size_t kept = 0, at = 0;
  strict->whole = 0;
  while (at < length && strict->error == 0) {
    uint64_t before = strict->requests;
    size_t run = pass_over(strict, bytes + at, length - at);
    if (run == 0) {
      bool keep = step(strict, (unsigned char)bytes[at]);
      bytes[kept] = bytes[at++];
      kept += keep;
    } else {
      if (kept != at) memmove(bytes + kept, bytes + at, run);
      kept += run;
      at += run;
    }
    if (strict->requests != before) strict->whole = kept;
  }
  return kept;
}
