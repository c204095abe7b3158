/* test_response.c: HTTP answers of the load generator, whole and in pieces, good and bad. */
#include "server/bench/response.c"

#include <criterion/criterion.h>
#include <stdio.h>

typedef struct body {
  char bytes[256];
  size_t length;
} body_t;

static void keep(void *context, const char *bytes, size_t count) {
  body_t *body = context;
  cr_assert_lt(body->length + count, sizeof body->bytes);
  memcpy(body->bytes + body->length, bytes, count);
  body->length += count;
  body->bytes[body->length] = '\0';
}

/* Feeds `size` bytes at a time. */
static bool feed(response_t *response, body_t *body, const char *text, size_t size) {
  size_t length = strlen(text);
  *body = (body_t){.length = 0};
  response_begin(response, keep, body);
  for (size_t i = 0; i < length; i += size) {
    size_t count = length - i < size ? length - i : size;
    if (!response_feed(response, text + i, count)) return false;
  }
  return true;
}

typedef struct good {
  const char *text, *body;
  int status;
  bool keeps_alive, to_end; /* complete only when the connection ends */
} good_t;

static const good_t good[] = {
    {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200, true, false},
    {"HTTP/1.1 204 No Content\r\n\r\n", "", 204, true, false},
    {"HTTP/1.1 200\nCONTENT-LENGTH:  2\n\nok", "ok", 200, true, false},
    {"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", "ok", 200, false, false},
    {"HTTP/1.1 429 Busy\r\nConnection: Close\r\nContent-Length: 1\r\n\r\n!", "!", 429, false,
     false},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "x", 200, true,
     false},
    {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA;x=1\r\n0123456789\r\n0\r\n"
     "Trailer: 1\r\n\r\n",
     "abc0123456789", 200, true, false},
    {"HTTP/1.1 200 OK\r\n\r\nuntil the end", "until the end", 200, false, true},
    {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxMORE", "x", 200, false, false},
};

Test(response, good_answers_are_read_however_they_are_cut) {
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    for (size_t size = 1; size <= strlen(good[i].text); size++) {
      response_t response;
      body_t body;
      cr_assert(feed(&response, &body, good[i].text, size), "%zu: %s", i, response.error);
      cr_assert_eq(response_is_done(&response), !good[i].to_end, "%zu by %zu", i, size);
      if (good[i].to_end) cr_assert(response_close(&response));
      cr_assert(response_is_done(&response));
      cr_assert_eq(response.status, good[i].status, "%zu: %d", i, response.status);
      cr_assert_str_eq(body.bytes, good[i].body, "%zu by %zu: %s", i, size, body.bytes);
      cr_assert_eq(response.keeps_alive, good[i].keeps_alive, "%zu by %zu", i, size);
    }
  }
}

Test(response, what_is_no_answer_is_refused) {
  static const char *const bad[] = {
      "SSH-2.0-OpenSSH\r\n",
      "HTTP/1.1 99 Low\r\n",
      "HTTP/1.1 1000 High\r\n",
      "HTTP/1.1\r\n",
      "HTTP/1.\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
      "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
  };
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    response_t response;
    body_t body;
    cr_assert(!feed(&response, &body, bad[i], 7), "%s", bad[i]);
    cr_assert_not_null(response.error, "%s", bad[i]);
    cr_assert(!response_close(&response));
  }
}

/* Every answer but the one that ends with its connection is incomplete when its last byte lacks. */
Test(response, a_connection_that_ends_early_is_seen) {
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    char text[256];
    response_t response;
    body_t body;
    size_t length = strlen(good[i].text);
    if (good[i].to_end || length > strlen("xMORE") + 60) continue;
    snprintf(text, sizeof text, "%.*s", (int)(length - (i == 8 ? 5 : 1)), good[i].text);
    cr_assert(feed(&response, &body, text, 3), "%zu", i);
    cr_assert(!response_close(&response), "%zu", i);
    cr_assert_str_eq(response.error, "the connection ended within the answer");
  }
}

Test(response, a_long_header_line_is_cut_and_passed_over) {
  char text[2048];
  response_t response;
  body_t body;
  snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\nX-Long: %01000d\r\nContent-Length: 2\r\n\r\nok",
           7);
  cr_assert(feed(&response, &body, text, 11), "%s", response.error);
  cr_assert(response_is_done(&response));
  cr_assert_str_eq(body.bytes, "ok");
}
