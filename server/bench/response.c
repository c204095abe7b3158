/* response.c: see response.h. */
#include "server/bench/response.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

void response_begin(response_t *response, void (*on_body)(void *, const char *, size_t),
                    void *context) {
  *response = (response_t){.on_body = on_body, .context = context, .keeps_alive = true};
}

/* The value of a header line if it has this name, else NULL. */
static const char *value_of(const char *line, const char *name) {
  size_t length = strlen(name);
  if (strncasecmp(line, name, length) != 0 || line[length] != ':') return NULL;
  return line + length + 1 + strspn(line + length + 1, " \t");
}

static void fail(response_t *response, const char *why) {
  response->error = why;
  response->keeps_alive = false;
}

/* Digits of a base, then nothing or one of `ends`. */
static bool read_number(const char *text, int base, const char *ends, uint64_t *out) {
  static const char digits[] = "0123456789abcdefABCDEF";
  size_t length = strspn(text, base == 16 ? digits : "0123456789");
  if (length == 0 || length > 15 || (text[length] != '\0' && !strchr(ends, text[length]))) {
    return false;
  }
  *out = strtoull(text, NULL, base);
  return true;
}

static void read_status(response_t *response, const char *line) {
  uint64_t status;
  if (strncmp(line, "HTTP/1.", 7) != 0 || line[7] == '\0' || line[8] != ' ' ||
      !read_number(line + 9, 10, " ", &status) || status < 100 || status > 999) {
    fail(response, "the answer is not HTTP/1.1");
    return;
  }
  response->status = (int)status;
  response->keeps_alive = line[7] != '0';
  response->chunked = response->has_length = false;
  response->state = RESPONSE_HEADER;
}

static void begin_body(response_t *response) {
  bool no_body = response->status == 204 || response->status == 304;
  if (response->status < 200) {
    response->state = RESPONSE_STATUS;
  } else if (no_body || (!response->chunked && response->has_length && response->left == 0)) {
    response->state = RESPONSE_DONE;
  } else if (response->chunked) {
    response->state = RESPONSE_CHUNK_SIZE;
  } else {
    response->state = response->has_length ? RESPONSE_BODY : RESPONSE_BODY_TO_END;
    if (!response->has_length) response->keeps_alive = false;
  }
}

static void read_header(response_t *response, const char *line) {
  const char *value;
  if (line[0] == '\0') {
    begin_body(response);
  } else if ((value = value_of(line, "Content-Length")) != NULL) {
    response->has_length = read_number(value, 10, " \t", &response->left);
    if (!response->has_length) fail(response, "the answer has a bad Content-Length");
  } else if ((value = value_of(line, "Transfer-Encoding")) != NULL) {
    response->chunked = strcasecmp(value, "chunked") == 0;
    if (!response->chunked) fail(response, "the answer has an unknown Transfer-Encoding");
  } else if ((value = value_of(line, "Connection")) != NULL && strcasecmp(value, "close") == 0) {
    response->keeps_alive = false;
  }
}

static void read_chunk_size(response_t *response, const char *line) {
  if (!read_number(line, 16, " \t;", &response->left)) {
    fail(response, "the answer has a bad chunk size");
  } else {
    response->state = response->left > 0 ? RESPONSE_CHUNK : RESPONSE_TRAILER;
  }
}

static void read_line(response_t *response) {
  const char *line = response->line;
  switch (response->state) {
  case RESPONSE_STATUS: read_status(response, line); break;
  case RESPONSE_HEADER: read_header(response, line); break;
  case RESPONSE_CHUNK_SIZE: read_chunk_size(response, line); break;
  case RESPONSE_CHUNK_END:
    response->state = RESPONSE_CHUNK_SIZE;
    if (line[0] != '\0') fail(response, "a chunk of the answer is longer than it says");
    break;
  default: /* a trailer; the last one is empty */
    if (line[0] == '\0') response->state = RESPONSE_DONE;
  }
}

static bool is_in_body(const response_t *response) {
  return response->state == RESPONSE_BODY || response->state == RESPONSE_CHUNK ||
         response->state == RESPONSE_BODY_TO_END;
}

/* Returns how many of the bytes belong to the body, or to the chunk. */
static size_t feed_body(response_t *response, const char *bytes, size_t count) {
  bool to_end = response->state == RESPONSE_BODY_TO_END;
  if (!to_end && count > response->left) count = (size_t)response->left;
  if (response->on_body != NULL) response->on_body(response->context, bytes, count);
  if (to_end) return count;
  response->left -= count;
  if (response->left > 0) return count;
  bool chunk = response->state == RESPONSE_CHUNK;
  response->state = chunk ? RESPONSE_CHUNK_END : RESPONSE_DONE;
  return count;
}

static void feed_line(response_t *response, char byte) {
  if (byte != '\n') {
    if (response->line_length < RESPONSE_LINE_MAX - 1)
      response->line[response->line_length++] = byte;
    return;
  }
  if (response->line_length > 0 && response->line[response->line_length - 1] == '\r') {
    response->line_length--;
  }
  response->line[response->line_length] = '\0';
  response->line_length = 0;
  read_line(response);
}

bool response_feed(response_t *response, const char *bytes, size_t count) {
  size_t i = 0;
  while (i < count && response->error == NULL && !response_is_done(response)) {
    if (is_in_body(response)) {
      i += feed_body(response, bytes + i, count - i);
    } else {
      feed_line(response, bytes[i++]);
    }
  }
  if (i < count) response->keeps_alive = false; /* more than was asked for */
  return response->error == NULL;
}

bool response_close(response_t *response) {
  response->keeps_alive = false;
  if (response->error != NULL) return false;
  if (response->state == RESPONSE_BODY_TO_END) response->state = RESPONSE_DONE;
  if (!response_is_done(response)) fail(response, "the connection ended within the answer");
  return response_is_done(response);
}
