/* http_answer.c: the functions by which a handler answers: one reply, or one stream.
 *
 * Loop thread. If the connection is suspended when the handler answers, it is resumed;
 * libmicrohttpd then asks http_exchange.c for the response, and stream_read for the bytes of a
 * stream. An errand has no connection: errand.c takes what its handler says.
 */
#include "engine/base/check.h"
#include "engine/base/util.h"
#include "server/http/errand.h"
#include "server/http/http_exchange.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  OUT_BYTES_FIRST = 256,  /* holds a token's chunk */
  OUT_BYTES_KEPT = 1024,  /* an empty buffer larger than this is freed */
  OVER_LIMIT_MS = 1000,   /* --stream-buffer-bytes may be exceeded for so long, */
  OVER_LIMIT_MOST = 16,   /* by this factor */
  ROOM_AFTER_BYTES = 4096 /* a stream that has sent as much is worth a system call */
};

static http_exchange_t *exchange_of(exchange_t *public) {
  return (http_exchange_t *)public;
}

/* ---- the body ---- */

bool exchange_take_body(exchange_t *public, held_t *out) {
  if (public->is_errand) return errand_take_body(public, out);
  http_exchange_t *exchange = exchange_of(public);
  held_t *body = &exchange->body;
  if (body->bytes == NULL) body->bytes = calloc(1, 1); /* the request had no body */
  if (body->bytes == NULL) return false;
  *out = *body;
  out->charge = charge_move(&body->charge);
  *body = (held_t){0};
  exchange->body_capacity = 0;
  public->body = "";
  public->body_length = 0;
  return true;
}

/* ---- the reply ---- */

const char *exchange_request_header(const exchange_t *public, const char *name) {
  const http_exchange_t *exchange = (const http_exchange_t *)public;
  if (public->is_errand) return NULL;
  return MHD_lookup_connection_value(exchange->mhd, MHD_HEADER_KIND, name);
}

const char *exchange_query(const exchange_t *public, const char *name) {
  const http_exchange_t *exchange = (const http_exchange_t *)public;
  if (public->is_errand) return NULL;
  return MHD_lookup_connection_value(exchange->mhd, MHD_GET_ARGUMENT_KIND, name);
}

void exchange_header(exchange_t *public, const char *name, const char *value) {
  http_exchange_t *exchange = exchange_of(public);
  if (public->is_errand) {
    if (strcasecmp(name, "retry-after") == 0) public->retry_after_s = atoi(value);
    return;
  }
  CHECK_LT(exchange->header_count, HEADERS_MAX);
  header_t *header = &exchange->headers[exchange->header_count];
  header->name = strdup(name);
  header->value = strdup(value);
  if (header->name != NULL && header->value != NULL) {
    exchange->header_count++;
    return;
  }
  free(header->name);
  free(header->value);
}

void exchange_answered(http_exchange_t *exchange, bool made, exchange_state_t state) {
  if (!made) {
    exchange->public.on_gone = NULL;
    exchange->cause = "no_memory";
    exchange_move(exchange, EXCHANGE_GONE);
  } else {
    exchange_move(exchange, state);
  }
  if (!exchange->in_handler) exchange_wake(exchange);
}

void exchange_reply(exchange_t *public, int status, const char *content_type, char *body,
                    size_t length) {
  http_exchange_t *exchange = exchange_of(public);
  if (public->is_errand) {
    errand_reply_text(public, status, body, length);
    return;
  }
  CHECK_EQ(exchange->state, EXCHANGE_HANDLING);
  pieces_count(exchange, length);
  exchange_answered(exchange, reply_make(exchange, status, content_type, body, length),
                    EXCHANGE_ANSWERED);
}

void exchange_reply_fixed(exchange_t *public, int status, const char *type, const void *bytes,
                          size_t length) {
  http_exchange_t *exchange = exchange_of(public);
  CHECK_EQ(exchange->state, EXCHANGE_HANDLING);
  exchange_answered(exchange, reply_make_fixed(exchange, status, type, bytes, length),
                    EXCHANGE_ANSWERED);
}

uint64_t exchange_turn(const exchange_t *exchange) {
  return ((const http_exchange_t *)exchange)->http->turn;
}

enum { SPARE_ANSWERS = 4 };

bool exchange_spare(exchange_t *public) {
  http_exchange_t *exchange = exchange_of(public);
  if (exchange->http->spare_answers == SPARE_ANSWERS) return false;
  exchange->spare = true;
  exchange->http->spare_answers++;
  return true;
}

void exchange_error(exchange_t *public, const inferd_error_t *error) {
  http_exchange_t *exchange = exchange_of(public);
  if (public->is_errand) {
    errand_fail(public, error);
    return;
  }
  CHECK_EQ(exchange->state, EXCHANGE_HANDLING);
  exchange_answered(exchange, reply_make_error(exchange, error), EXCHANGE_ANSWERED);
}

/* Writes the error into the stream. */
static void write_error(http_exchange_t *exchange, const inferd_error_t *error) {
  if (exchange->public.on_abort != NULL) {
    exchange->public.on_abort(&exchange->public, error);
    return;
  }
  bool numeric = strcmp(exchange->http->server->config->error_code, "status") == 0;
  size_t length = 0;
  char *body = error_body(error, numeric, &length);
  if (body == NULL) return;
  exchange_write(&exchange->public, "data: ", 6);
  exchange_write(&exchange->public, body, length);
  exchange_write(&exchange->public, "\n\ndata: [DONE]\n\n", 16);
  free(body);
}

void exchange_shutdown(http_exchange_t *exchange) {
  static const inferd_error_t error = {.code = ERR_DRAINING,
                                       .message = "The server is shutting down."};
  if (exchange->state == EXCHANGE_HANDLING) {
    exchange_tell_gone(exchange, "shutdown");
    exchange->cause = "shutdown";
    exchange->close = true;
    exchange_error(&exchange->public, &error);
  } else if (exchange->state == EXCHANGE_STREAMING) {
    write_error(exchange, &error);
    exchange_tell_gone(exchange, "shutdown");
    exchange->cause = "shutdown";
    exchange_end(&exchange->public);
  } else if (exchange->state == EXCHANGE_READING) {
    exchange_cut(exchange, "shutdown");
  }
}

/* ---- the stream ---- */

/* Gives the pages of a buffer that libmicrohttpd wants filled back to the system: what lies in them
 * is lost, as if zeros were written. The buffer is all that the memory of a connection has left,
 * and half of it was touched when the request was read. */
static void give_room_back(char *buffer, size_t size) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)buffer;
  size_t skipped = (size_t)(ROUND_UP(begin, page) - begin);
  if (size < skipped + page) return;
  (void)madvise(buffer + skipped, (size - skipped) / page * page, MADV_DONTNEED);
}

bool stream_wants_room_back(const http_exchange_t *exchange) {
  return !exchange->room_given && exchange->given >= ROOM_AFTER_BYTES;
}

void out_emptied(http_exchange_t *exchange) {
  if (exchange->out_capacity > OUT_BYTES_KEPT) {
    free(exchange->out);
    exchange->out = NULL;
    exchange->out_capacity = 0;
    charge_drop(&exchange->out_charge);
  }
  exchange->out_start = exchange->out_end = 0;
}

int exchange_socket(const exchange_t *public) {
  const http_exchange_t *exchange = (const http_exchange_t *)public;
  return !public->is_errand && exchange->chunked ? exchange->connection->fd : -1;
}

void exchange_when_sent(exchange_t *public, void (*sent)(exchange_t *exchange)) {
  http_exchange_t *exchange = exchange_of(public);
  CHECK_EQ(exchange->state, EXCHANGE_STREAMING);
  exchange->on_sent = sent;
  if (exchange->parked) direct_add(exchange);
}

void exchange_tell_sent(http_exchange_t *exchange) {
  void (*sent)(exchange_t * exchange) = exchange->on_sent;
  exchange->on_sent = NULL;
  if (sent != NULL) sent(&exchange->public);
}

void exchange_break(exchange_t *public) {
  exchange_doom(exchange_of(public), "half_sent");
}

/* A stream has more to send, or has ended. */
static void stream_stir(http_exchange_t *exchange) {
  if (exchange->parked) {
    direct_add(exchange);
  } else {
    exchange_wake(exchange);
  }
}

/* libmicrohttpd calls it for the next bytes. It may ask twice for one position before it sends. */
static ssize_t stream_read(void *context, uint64_t position, char *buffer, size_t size) {
  (void)position;
  http_exchange_t *exchange = context;
  if (exchange->state == EXCHANGE_GONE) return MHD_CONTENT_READER_END_WITH_ERROR;
  size_t pending = exchange->out_end - exchange->out_start;
  exchange->progress_ms = uv_now(exchange->http->loop);
  if (pending == 0 && exchange->pieces.print != NULL) {
    int code = pieces_fill(exchange);
    if (code != 0) return code > 0 ? 0 : MHD_CONTENT_READER_END_WITH_ERROR;
    pending = exchange->out_end;
  }
  if (pending == 0) {
    if (exchange->state == EXCHANGE_ENDING) return MHD_CONTENT_READER_END_OF_STREAM;
    out_emptied(exchange);
    bool asked = exchange->chunked && loan_ask(exchange);
    if (asked || stream_wants_room_back(exchange)) {
      exchange->room_given = true;
      give_room_back(buffer, size);
    }
    /* Returning 0 without suspending makes libmicrohttpd ask again at once, for ever. */
    exchange_suspend(exchange);
    exchange->parked = exchange->chunked;
    exchange_tell_sent(exchange);
    return 0;
  }
  size_t n = MIN(pending, size);
  memcpy(buffer, exchange->out + exchange->out_start, n);
  exchange->out_start += n;
  exchange->given += n;
  return (ssize_t)n;
}

void exchange_stream(exchange_t *public) {
  http_exchange_t *exchange = exchange_of(public);
  if (public->is_errand) return;
  CHECK_EQ(exchange->state, EXCHANGE_HANDLING);
  public->log.stream = true;
  exchange->out_charge = charge_open(exchange->http->server->ledger, public->source, LEDGER_output);
  bool made = reply_make_stream(exchange, stream_read);
  if (made) {
    exchange_answered(exchange, true, EXCHANGE_STREAMING);
    return;
  }
  /* The handler continues to write, so on_gone must tell it when the stream ends. */
  exchange_move(exchange, EXCHANGE_STREAMING);
  exchange_doom(exchange, "no_memory");
}

void exchange_stream_pieces(exchange_t *public, pieces_t pieces) {
  http_exchange_t *exchange = exchange_of(public);
  if (public->is_errand) {
    errand_stream_pieces(public, pieces);
    return;
  }
  CHECK(exchange->pieces.print == NULL);
  exchange->pieces = pieces;
  if (exchange->state != EXCHANGE_STREAMING) {
    exchange_stream(public);
  } else if (!exchange->in_handler) {
    stream_stir(exchange);
  }
}

void exchange_stream_more(exchange_t *public) {
  http_exchange_t *exchange = exchange_of(public);
  if (public->is_errand) {
    errand_stream_more(public);
    return;
  }
  CHECK_EQ(exchange->state, EXCHANGE_STREAMING);
  if (!exchange->in_handler && !exchange->waits_for_turn) stream_stir(exchange);
}

bool out_grow(http_exchange_t *exchange, size_t more) {
  size_t pending = exchange->out_end - exchange->out_start;
  if (exchange->out_end + more <= exchange->out_capacity) return true;
  if (exchange->out_start > 0) {
    memmove(exchange->out, exchange->out + exchange->out_start, pending);
    exchange->out_start = 0;
    exchange->out_end = pending;
    if (pending + more <= exchange->out_capacity) return true;
  }
  size_t capacity = exchange->out_capacity > 0 ? exchange->out_capacity : OUT_BYTES_FIRST;
  while (capacity < pending + more) capacity *= 2;
  if (!charge_resize(&exchange->out_charge, capacity)) return false;
  char *out = realloc(exchange->out, capacity);
  if (out == NULL) return false;
  exchange->out = out;
  exchange->out_capacity = capacity;
  return true;
}

/* More than the limit waits for the client. It is slow if that has lasted, or is too much by far;
 * at first it may be this thread that is late, or the client that has had no processor to read
 * with. */
static bool client_is_slow(http_exchange_t *exchange, size_t waiting, size_t limit) {
  uint64_t now = uv_now(exchange->http->loop);
  if (exchange->over_limit_ms == 0) exchange->over_limit_ms = now;
  return waiting > limit * OVER_LIMIT_MOST || now - exchange->over_limit_ms >= OVER_LIMIT_MS;
}

bool exchange_write(exchange_t *public, const char *bytes, size_t length) {
  http_exchange_t *exchange = exchange_of(public);
  if (public->is_errand) return errand_write(public, bytes, length);
  CHECK_EQ(exchange->state, EXCHANGE_STREAMING);
  if (exchange->doom != NULL) return false;
  size_t limit = (size_t)exchange->http->server->config->stream_buffer_bytes;
  size_t pending = exchange->out_end - exchange->out_start;
  /* One event larger than the limit may pass while nothing else waits. */
  bool over = pending > 0 && length > limit - MIN(pending, limit);
  if (!over) {
    exchange->over_limit_ms = 0;
  } else if (client_is_slow(exchange, pending + length, limit)) {
    exchange_doom(exchange, "slow_reader");
    return false;
  }
  if (!out_grow(exchange, length)) {
    exchange_doom(exchange, "no_memory");
    return false;
  }
  memcpy(exchange->out + exchange->out_end, bytes, length);
  exchange->out_end += length;
  exchange->bytes_out += length;
  if (!exchange->in_handler) stream_stir(exchange);
  return true;
}

size_t exchange_pending(const exchange_t *public) {
  const http_exchange_t *exchange = (const http_exchange_t *)public;
  return exchange->out_end - exchange->out_start;
}

void exchange_end(exchange_t *public) {
  http_exchange_t *exchange = exchange_of(public);
  if (public->is_errand) {
    errand_reply(public);
    return;
  }
  public->on_gone = NULL;
  exchange->on_sent = NULL;
  exchange_move(exchange, EXCHANGE_ENDING);
  if (!exchange->in_handler && !exchange->waits_for_turn) stream_stir(exchange);
}
