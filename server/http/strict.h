/* strict.h: reads the bytes of a connection and says where each request ends.
 *
 * Calls no socket and allocates nothing. Any thread; a strict_t belongs to one connection.
 *
 * The grammar is RFC 9112 without any of its leniencies. A request that two readers could take
 * apart in two ways is refused: lines that do not end in CRLF, control bytes, folded lines, white
 * space before a colon, chunk extensions, a length that is not plain digits, a length beside
 * chunks, repeated fields that must be single. The bytes that pass go on to libmicrohttpd.
 */
#ifndef INFERD_SERVER_HTTP_STRICT_H
#define INFERD_SERVER_HTTP_STRICT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
  STRICT_RECORD_BYTES = 64, /* of the connection's memory for each header, query field or cookie */
  STRICT_NAME_BYTES = 18    /* the longest name or method that matters, and one byte more */
};

typedef enum strict_state {
  STRICT_START, /* before a request line; one empty line may stand there */
  STRICT_START_LF,
  STRICT_METHOD,
  STRICT_TARGET,
  STRICT_VERSION,
  STRICT_VERSION_LF,
  STRICT_LINE, /* before a header or trailer, or the empty line behind them */
  STRICT_NAME,
  STRICT_BLANK, /* behind the colon */
  STRICT_VALUE,
  STRICT_TAIL, /* blanks behind a value that has none inside */
  STRICT_VALUE_LF,
  STRICT_HEAD_LF,
  STRICT_BODY,
  STRICT_SIZE, /* of a chunk */
  STRICT_SIZE_LF,
  STRICT_CHUNK,
  STRICT_CHUNK_CR,
  STRICT_CHUNK_LF
} strict_state_t;

/* What is known of the request that is being read. */
typedef struct strict_request {
  size_t room;          /* bytes that its head and trailers may still take */
  int32_t records;      /* headers, query fields and cookies that it may still have */
  uint64_t left;        /* bytes of the body or chunk that follow; digits of a length so far */
  uint32_t seen;        /* fields that must be single and were read, a bit each */
  uint32_t at;          /* bytes of the present token so far */
  uint8_t field;        /* of the present line; numbers of strict.c */
  uint8_t form;         /* first byte of the target */
  uint8_t major, minor; /* digits of the version */
  bool empty_line, query, chunked, trailers;
  char name[STRICT_NAME_BYTES]; /* method, or name of a field in lower case; cut */
} strict_request_t;

typedef struct strict {
  strict_state_t state;
  int error;           /* 0, or the ERR_ of the refusal; no byte is read after a refusal */
  const char *message; /* of the refusal; static text */
  bool tls;            /* it was refused because its first byte is one of TLS */
  uint64_t heads;      /* requests whose head was complete and right */
  uint64_t requests;   /* of them, those that are complete */
  size_t whole;        /* of the bytes that the last call kept: those up to the end of the last
                          request that it completed */
  size_t bytes_max;
  int32_t records_max;
  strict_request_t now;
} strict_t;

/* bytes_max bounds request line, headers and trailers together, with STRICT_RECORD_BYTES for each
 * record and the value of a cookie counted twice; records_max the number of records. */
void strict_begin(strict_t *strict, size_t bytes_max, int32_t records_max);
/* Reads the next bytes of the connection. Drops the blanks behind Content-Length, Transfer-Encoding
 * and Host, in place; returns the number of bytes that are left. Sets strict->error and
 * strict->message at the first byte that is wrong. */
size_t strict_read(strict_t *strict, char *bytes, size_t length);

#endif
