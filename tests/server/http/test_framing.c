/* test_framing.c: framing over real sockets: each request of the table, and random ones of any
 * right and wrong parts, beside an honest client.
 */
#include "engine/base/error.h"
#include "server/http/strict.h"
#include "tests/expect.h"
#include "tests/server/http/harness.h"
#include "tests/server/http/requests.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

TestSuite(framing, .timeout = 120);

#define HOST "Host: localhost\r\n"
static const char last_get[] = "GET /livez HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n";

/* ---- answers ---- */

typedef struct answers {
  int status[512]; /* in order; 100 too */
  int count;
  bool closes;        /* the last one says so */
  const char *last;   /* begin of the last one */
  const char *broken; /* why the text is no sequence of answers; NULL: it is */
} answers_t;

static const char *header_in(const char *head, const char *end, const char *name) {
  const char *at = strcasestr(head, name);
  return at != NULL && at < end ? at + strlen(name) : NULL;
}

/* Returns what follows the body that begins at `body`, or NULL if it is not complete. */
static const char *behind_body(const char *head, const char *body) {
  const char *length = header_in(head, body, "\r\nContent-Length: ");
  if (length != NULL) {
    size_t bytes = (size_t)atoll(length);
    return strlen(body) >= bytes ? body + bytes : NULL;
  }
  if (header_in(head, body, "\r\nTransfer-Encoding: chunked") == NULL) return NULL;
  const char *end = strstr(body, "\r\n0\r\n\r\n");
  return end != NULL ? end + 7 : NULL;
}

/* Every answer whole, one head each, JSON for an error and with a request id, nothing between. */
static answers_t split_answers(const char *text) {
  answers_t found = {0};
  while (*text != '\0' && found.broken == NULL && found.count < 512) {
    int status = status_of(text);
    const char *body = strstr(text, "\r\n\r\n");
    found.last = text;
    if (status == 0 || body == NULL) {
      found.broken = "no head";
      break;
    }
    body += 4;
    found.status[found.count++] = status;
    found.closes = header_in(text, body, "\r\nConnection: close") != NULL;
    const char *next = status == 100 ? body : behind_body(text, body);
    if (next == NULL) found.broken = "the body is not complete";
    if (status >= 400 && strncmp(body, "{\"error\":{\"message\":\"", 21) != 0) {
      found.broken = "an error that is not JSON";
    }
    if (status >= 400 && header_in(text, body, "\r\nx-request-id: ") == NULL) {
      found.broken = "an error without a request id";
    }
    text = next != NULL ? next : "";
  }
  return found;
}

/* ---- the table ---- */

/* Whether the statuses are those of the row; one with ? may be missing. */
static bool statuses_are(const answers_t *found, const char *wanted, int more) {
  int at = 0;
  for (const char *p = wanted; *p != '\0';) {
    char *end;
    int status = (int)strtol(p, &end, 10);
    bool here = at < found->count && found->status[at] == status;
    if (!here && *end != '?') return false;
    at += here;
    p = end + strspn(end, "? ");
  }
  if (more != 0 && (at >= found->count || found->status[at++] != more)) return false;
  return at == found->count;
}

static int connect_without_delay(void) {
  int fd = client_connect(harness_port(0)), on = 1;
  ASSERT_GE(fd, 0);
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return fd;
}

/* Sends the row in pieces of `step` bytes. A connection that is kept answers once more. */
static void expect_row(const raw_request_t *row, size_t step) {
  int fd = connect_without_delay();
  for (size_t at = 0; at < row->length; at += step) {
    size_t n = row->length - at < step ? row->length - at : step;
    client_send_bytes(fd, row->bytes + at, n);
    if (step == 1) usleep(20); /* most bytes are read alone */
  }
  if (row->message == NULL) client_send(fd, last_get);
  char *text = client_read_all(fd, 5000);
  answers_t found = split_answers(text);
  EXPECT_EQ_FOR(found.broken, NULL, "%s, by %zu: %s in\n%s", row->name, step, found.broken, text);
  cr_expect(statuses_are(&found, row->statuses, row->message == NULL ? 200 : 0),
            "%s, by %zu: not %s in\n%s", row->name, step, row->statuses, text);
  cr_expect(found.closes, "%s, by %zu: the last answer does not close:\n%s", row->name, step, text);
  if (row->message != NULL && found.last != NULL) {
    cr_expect(strstr(found.last, row->message) != NULL, "%s, by %zu: no '%s' in\n%s", row->name,
              step, row->message, text);
  }
  free(text);
  close(fd);
}

Test(framing, every_request_of_the_table_in_one_piece) {
  harness_start(NULL);
  for (size_t i = 0; i < raw_request_count; i++) expect_row(&raw_requests[i], SIZE_MAX / 2);
  harness_stop();
}

Test(framing, every_request_of_the_table_byte_by_byte) {
  harness_start(NULL);
  for (size_t i = 0; i < raw_request_count; i++) {
    expect_row(&raw_requests[i], raw_requests[i].length > 1000 ? 61 : 1);
  }
  harness_stop();
}

Test(framing, refused_requests_are_counted) {
  harness_start(NULL);
  char *answer = client_request("GET / HTTP/1.1\n\n");
  EXPECT_EQ(status_of(answer), 400);
  free(answer);
  cr_expect(wait_for(&seen.metrics, 1, 1000));
  EXPECT_EQ(atomic_load(&seen.last_status), 400);
  answer = client_request("POST /v1/completions HTTP/1.1\r\n" HOST "X-Request-Id: mine\r\n"
                          "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\n");
  cr_expect(strstr(answer, "x-request-id: ") != NULL);
  EXPECT_EQ(status_of(answer), 400);
  free(answer);
  cr_expect(wait_for(&seen.metrics, 2, 1000));
  EXPECT_EQ(atomic_load(&seen.handled), 0);
  harness_stop();
}

Test(framing, a_target_for_another_server_is_refused) {
  harness_start(NULL);
  char *answer = client_request("GET http://example.org/livez HTTP/1.1\r\n" HOST "\r\n");
  EXPECT_EQ(status_of(answer), 400);
  cr_expect(strstr(answer, "different servers") != NULL);
  free(answer);
  answer = client_request("GET http://LOCALHOST?a HTTP/1.1\r\n" HOST "Connection: close\r\n\r\n");
  EXPECT_EQ(status_of(answer), 200); /* the path is "/" */
  free(answer);
  harness_stop();
}

/* The library shrinks and enlarges its read buffer; a head of every size up to the bound is either
 * served or refused by us, with all the records that are allowed and a second request behind it. */
Test(framing, heads_of_every_size_are_served_or_refused) {
  enum { HEAD_MAX = 16384, STEP = 173 };
  harness_start(NULL);
  char *text = malloc(4 * HEAD_MAX);
  for (int fields = 0; fields <= 90; fields += 30) {
    for (int length = 1; length < HEAD_MAX + 2000; length += STEP) {
      int n = snprintf(text, 4 * HEAD_MAX, "POST /v1/completions?a&b HTTP/1.1\r\n" HOST);
      for (int i = 0; i < fields; i++) n += sprintf(text + n, "X-%d: 1\r\n", i);
      n += sprintf(text + n, "Content-Length: 8000\r\nX: ");
      memset(text + n, 'x', (size_t)length);
      n += length + sprintf(text + n + length, "\r\n\r\n");
      memset(text + n, ' ', 8000);
      n += 8000 + sprintf(text + n + 8000, "%s", last_get);
      bool fits =
          fields <= 88 - 5 &&
          n - 8000 - (int)sizeof last_get + 1 + (fields + 5) * STRICT_RECORD_BYTES <= HEAD_MAX;
      int fd = client_connect(harness_port(0));
      client_send_bytes(fd, text, (size_t)n);
      char *answer = client_read_all(fd, 5000);
      answers_t found = split_answers(answer);
      EXPECT_EQ_FOR(found.broken, NULL, "%d + %d: %s", fields, length, answer);
      cr_assert(statuses_are(&found, fits ? "200 200" : "431", 0), "%d headers, one of %d: %s",
                fields, length, answer);
      free(answer);
      close(fd);
    }
  }
  free(text);
  harness_stop();
}

/* What is echoed into the head of an answer is bounded, or the head would not fit. */
Test(framing, long_values_of_cors_are_answered) {
  harness_start((const char *[]){"--cors-origin=*", NULL});
  static const struct {
    const char *header;
    int length, status;
  } rows[] = {{"Access-Control-Request-Headers", 500, 204},
              {"Access-Control-Request-Headers", 12000, 204},
              {"X", 12000, 204},
              {"Origin", 300, 204},
              {"Origin", 12000, 403}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    char *value = malloc((size_t)rows[i].length + 1), *text = NULL;
    memset(value, 'a', (size_t)rows[i].length);
    value[rows[i].length] = '\0';
    bool origin = strcmp(rows[i].header, "Origin") == 0;
    ASSERT_GT(asprintf(&text,
                       "OPTIONS /v1/completions HTTP/1.1\r\n" HOST "%s%s: %s\r\n"
                       "Connection: close\r\n\r\n",
                       origin ? "" : "Origin: http://a\r\n", rows[i].header, value),
              0);
    char *answer = client_request(text);
    EXPECT_EQ_FOR(status_of(answer), rows[i].status, "%s of %d: %s", rows[i].header, rows[i].length,
                  answer);
    EXPECT_EQ(strstr(answer, "Access-Control-Allow-Headers") != NULL, i == 0);
    free(answer), free(text), free(value);
  }
  harness_stop();
}

/* ---- random requests ---- */

static uint64_t random_state;

static unsigned draw(unsigned below) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)(random_state >> 33) % below;
}

typedef struct text {
  char bytes[65536];
  size_t length;
} text_t;

static void append(text_t *text, const char *bytes, size_t length) {
  if (length > sizeof text->bytes - text->length) return;
  memcpy(text->bytes + text->length, bytes, length);
  text->length += length;
}

static void append_line(text_t *text, const char *line) {
  append(text, line, strlen(line));
}

/* A right request: by length, in chunks, without a body, or one of the table. */
static void append_right(text_t *text) {
  char line[256];
  unsigned body = draw(4) == 0 ? draw(20000) : draw(40);
  if (draw(4) == 0) {
    const raw_request_t *row = &raw_requests[draw((unsigned)raw_request_count)];
    if (row->message == NULL) append(text, row->bytes, row->length);
    return;
  }
  snprintf(line, sizeof line, "POST /v1/completions HTTP/1.1\r\n" HOST);
  append_line(text, line);
  bool chunks = draw(2) == 0;
  if (!chunks) snprintf(line, sizeof line, "Content-Length: %u\r\n\r\n", body);
  append_line(text, chunks ? "Transfer-Encoding: chunked\r\n\r\n" : line);
  while (body > 0) {
    unsigned n = chunks ? 1 + draw(body) : body;
    if (chunks) append(text, line, (size_t)snprintf(line, sizeof line, "%x\r\n", n));
    for (unsigned i = 0; i < n; i++) append(text, &"{\"mo:0\r\n\r\nGET / HTTP"[draw(20)], 1);
    if (chunks) append_line(text, "\r\n");
    body -= n;
  }
  if (chunks) append_line(text, draw(2) == 0 ? "0\r\n\r\n" : "0\r\nX: y\r\n\r\n");
}

static void make_case(text_t *text) {
  text->length = 0;
  unsigned requests = 1 + draw(4);
  for (unsigned i = 0; i < requests; i++) {
    const raw_request_t *row = &raw_requests[draw((unsigned)raw_request_count)];
    if (draw(6) == 0 && row->length < 1000) {
      append(text, row->bytes, row->length);
    } else {
      append_right(text);
    }
  }
  for (unsigned i = draw(3); i > 0 && text->length > 0; i--) { /* a byte that is another */
    static const char bytes[] = "\r\n\0 \t:;,0aF/\x01\xff";
    text->bytes[draw((unsigned)text->length)] = bytes[draw(sizeof bytes - 1)];
  }
  append_line(text, last_get);
}

/* An honest client keeps its connection and is answered, whatever the others send. */
static void expect_honest(int fd, int number) {
  char body[64], wanted[64];
  snprintf(body, sizeof body, "{\"number\":%d}", number);
  char *request = client_post_text("/v1/completions", "", body);
  snprintf(wanted, sizeof wanted, "{\"length\":%zu,", strlen(body));
  client_send(fd, request);
  char *answer = client_read(fd, "}", 5000);
  cr_assert(status_of(answer) == 200 && strstr(answer, wanted) != NULL, "case %d: %s", number,
            answer);
  free(answer);
  free(request);
}

/* What the reader says of the text, which the tables above have shown to be right. */
typedef struct prediction {
  strict_t strict;
  size_t body_bytes[64]; /* of each complete request */
} prediction_t;

static void predict(const text_t *text, prediction_t *out) {
  *out = (prediction_t){0};
  strict_t *strict = &out->strict;
  strict_begin(strict, 16384, 88);
  for (size_t at = 0; at < text->length; at++) {
    char byte = text->bytes[at];
    bool body = strict->state == STRICT_BODY || strict->state == STRICT_CHUNK;
    if (body && strict->requests < 64) out->body_bytes[strict->requests]++;
    strict_read(strict, &byte, 1);
  }
}

/* The handlers tell the bytes of the body that libmicrohttpd gave them. Not every request reaches
 * one, but those that do come in their order. */
static void expect_bodies(const char *answer, const prediction_t *prediction, int number) {
  static const char told[] = "{\"length\":";
  uint64_t next = 0, requests = prediction->strict.requests;
  for (const char *p = answer; (p = strstr(p, told)) != NULL; p++) {
    size_t bytes = (size_t)atoll(p + sizeof told - 1);
    while (next < requests && next < 64 && prediction->body_bytes[next] != bytes) next++;
    cr_assert(next < requests, "case %d: a body of %zu bytes in\n%s", number, bytes, answer);
    next++;
  }
}

static void expect_answers(const char *answer, const strict_t *strict, int number) {
  answers_t found = split_answers(answer);
  cr_assert(found.broken == NULL, "case %d: %s in\n%s", number, found.broken, answer);
  uint64_t final = 0;
  for (int i = 0; i < found.count; i++) {
    ASSERT_NE_FOR(found.status[i], 500, "case %d: the readers disagree: %s", number, answer);
    final += found.status[i] >= 200;
  }
  ASSERT_LE(final, strict->requests + (strict->error != 0));
  if (final < strict->requests + (strict->error != 0)) { /* refused for another reason before */
    cr_assert(found.closes, "case %d: %d answers in\n%s", number, found.count, answer);
  } else if (strict->error != 0 && strict->heads > strict->requests) {
    /* A head that came alone may have been refused before the wrong byte of its body came. */
    cr_assert(found.closes && found.status[found.count - 1] >= 400, "case %d: %s", number, answer);
  } else if (strict->error != 0) {
    EXPECT_EQ_FOR(found.status[found.count - 1], error_http_status(strict->error), "case %d: %s",
                  number, answer);
  }
}

Test(framing, thousands_of_random_requests_beside_an_honest_client) {
  enum { CASES = 4000 };
  harness_start(NULL);
  static text_t text;
  int honest = client_connect(harness_port(0));
  random_state = 20261123;
  for (int number = 0; number < CASES; number++) {
    make_case(&text);
    prediction_t prediction;
    predict(&text, &prediction);
    const strict_t strict = prediction.strict;
    int fd = connect_without_delay();
    unsigned end = draw(8); /* 0: reset, 1: closed, 2: half closed at a random place; else read */
    size_t length = end < 3 ? draw((unsigned)text.length + 1) : text.length;
    size_t largest = draw(2) == 0 ? text.length : 1 + draw(60);
    if (text.length / largest > 200) largest = text.length / 200;
    for (size_t at = 0; at < length;) {
      size_t n = 1 + draw((unsigned)largest);
      if (n > length - at) n = length - at;
      client_send_bytes(fd, text.bytes + at, n);
      at += n;
    }
    if (end == 0) {
      client_reset(fd);
    } else {
      if (end == 2) shutdown(fd, SHUT_WR);
      if (end >= 3 && (strict.error != 0 || strict.state == STRICT_START)) {
        char *answer = client_read_all(fd, 5000);
        expect_answers(answer, &strict, number);
        expect_bodies(answer, &prediction, number);
        free(answer);
      }
      close(fd);
    }
    if (number % 16 == 0) expect_honest(honest, number);
  }
  close(honest);
  harness_stop();
}
