/* http_direct.c: the bytes of streams that go to their sockets past libmicrohttpd.
 *
 * Loop thread. Once libmicrohttpd has sent the head and the first chunks of a stream and waits,
 * suspended, for more, the stream is parked. Its next chunks are framed here, as chunks of
 * HTTP/1.1, and written to the socket: by this thread if the turn has few of them, else by a
 * sender's. The library gets the stream back only when it ends or does what is rare; by then all
 * bytes that were framed here have been sent.
 *
 * What a full socket does not take goes back to the front of exchange->out, framed as it is, and
 * waits until the socket is writable; what the handler writes meanwhile waits behind it.
 *
 * The socket may be one that the parent of this process has lent (http_loan.c). All that it has not
 * taken yet is sent before the loan ends, and the library gets the stream back.
 */
#include "server/http/http_exchange.h"
#include "server/http/sockets/sender.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
  MANY = 64,       /* fewer streams in a turn are served sooner without the thread */
  FRAME_BYTES = 12 /* most around a chunk: its size, and two line ends */
};

/* ---- the list of streams that have something to send ---- */

void direct_add(http_exchange_t *exchange) {
  http_t *http = exchange->http;
  http_mark(http, false);
  if (exchange->ready_link != NULL) return;
  exchange->ready_after = NULL;
  exchange->ready_link = http->direct.ready != NULL ? http->direct.last : &http->direct.ready;
  *exchange->ready_link = exchange;
  http->direct.last = &exchange->ready_after;
  http->direct.num_ready++;
}

static void leave_list(http_exchange_t *exchange) {
  http_exchange_t *after = exchange->ready_after;
  http_t *http = exchange->http;
  if (exchange->ready_link == NULL) return;
  *exchange->ready_link = after;
  *(after != NULL ? &after->ready_link : &http->direct.last) = exchange->ready_link;
  exchange->ready_link = NULL;
  http->direct.num_ready--;
}

static void parcel_ended(http_exchange_t *exchange) {
  exchange->parcel = NULL;
  exchange->http->direct.num_awaiting -= exchange->awaits_parcel;
  exchange->awaits_parcel = false;
}

void direct_forget(http_exchange_t *exchange) {
  leave_list(exchange);
  if (exchange->parcel != NULL) sender_cancel(exchange->parcel);
  parcel_ended(exchange);
}

static int socket_of(const http_exchange_t *exchange) {
  return exchange->loan.state == LOAN_TAKEN ? exchange->loan.fd : exchange->connection->fd;
}

/* ---- full sockets ---- */

static void wait_writable(http_exchange_t *exchange, bool wait) {
  if (exchange->loan.state == LOAN_TAKEN)
    loan_watch(exchange, wait);
  else
    connection_watch(exchange->connection, wait);
}

/* Takes back framed bytes that the socket has not taken. Without memory for them the stream ends
 * here: what waits behind them must not be sent. */
static void take_back(http_exchange_t *exchange, const char *bytes, size_t length) {
  size_t pending = exchange->out_end - exchange->out_start;
  if (!out_grow(exchange, length)) {
    exchange_cut(exchange, "no_memory");
    return;
  }
  char *front = exchange->out + exchange->out_start;
  memmove(front + length, front, pending);
  memcpy(front, bytes, length);
  exchange->out_end += length;
  exchange->framed = length;
  exchange->progress_ms = uv_now(exchange->http->loop);
  wait_writable(exchange, true);
}

static bool is_full(ssize_t sent) {
  return sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR);
}

void direct_writable(http_exchange_t *exchange) {
  if (exchange->framed == 0) return;
  const char *front = exchange->out + exchange->out_start;
  ssize_t sent = send(socket_of(exchange), front, exchange->framed, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) {
    if (!is_full(sent)) exchange_cut(exchange, "client_gone");
    return;
  }
  exchange->progress_ms = uv_now(exchange->http->loop);
  exchange->out_start += (size_t)sent;
  exchange->framed -= (size_t)sent;
  if (exchange->framed > 0) return;
  wait_writable(exchange, false);
  direct_add(exchange);
}

/* ---- sending ---- */

static size_t hex_digits(size_t n) {
  size_t digits = 1;
  while (n >>= 4) digits++;
  return digits;
}

static void frame(char *to, const char *bytes, size_t length, size_t digits) {
  static const char hex[] = "0123456789ABCDEF";
  for (size_t i = 0; i < digits; i++) to[i] = hex[length >> 4 * (digits - 1 - i) & 15];
  memcpy(to + digits, "\r\n", 2);
  if (to + digits + 2 != bytes) memcpy(to + digits + 2, bytes, length);
  memcpy(to + digits + 2 + length, "\r\n", 2);
}

/* All that was framed has been sent. */
static void give_back(http_exchange_t *exchange) {
  loan_end(exchange);
  exchange_wake(exchange);
}

/* Frames all that is pending where it lies, and sends it from this thread. */
static void send_here(http_exchange_t *exchange) {
  size_t pending = exchange->out_end - exchange->out_start, digits = hex_digits(pending);
  size_t head = digits + 2, length = head + pending + 2;
  if (!out_grow(exchange, head + 2)) {
    give_back(exchange); /* libmicrohttpd has memory of its own */
    return;
  }
  char *bytes = exchange->out + exchange->out_start;
  memmove(bytes + head, bytes, pending);
  frame(bytes, bytes + head, pending, digits);
  exchange->out_end += head + 2;
  exchange->given += pending;
  exchange->progress_ms = uv_now(exchange->http->loop);
  exchange->http->direct.sends_here++;
  ssize_t sent = send(socket_of(exchange), bytes, length, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0 && !is_full(sent)) {
    exchange_cut(exchange, "client_gone");
  } else if (sent == (ssize_t)length) {
    out_emptied(exchange);
  } else {
    exchange->http->direct.sends_short++;
    exchange->out_start += sent > 0 ? (size_t)sent : 0;
    exchange->framed = exchange->out_end - exchange->out_start;
    wait_writable(exchange, true);
  }
}

/* Frames all that is pending and sends it: the sender, if there is one and it takes so much. */
static void send_stream(http_exchange_t *exchange, sender_t *sender) {
  size_t pending = exchange->out_end - exchange->out_start, digits = hex_digits(pending);
  bool fits = pending <= PARCEL_BYTES_MAX - FRAME_BYTES;
  exchange->parcel = sender != NULL && fits ? sender_add(sender, socket_of(exchange), exchange,
                                                         digits + 2 + pending + 2)
                                            : NULL;
  if (exchange->parcel == NULL) {
    send_here(exchange);
    return;
  }
  frame(exchange->parcel->bytes, exchange->out + exchange->out_start, pending, digits);
  exchange->given += pending;
  exchange->progress_ms = uv_now(exchange->http->loop);
  exchange->http->direct.sends_by_thread++;
  out_emptied(exchange);
}

/* A stream of the list. */
static void serve(http_exchange_t *exchange, sender_t *sender) {
  if (!exchange->parked) return; /* the library has it again */
  if (exchange->parcel != NULL) {
    exchange->http->direct.num_awaiting += !exchange->awaits_parcel;
    exchange->awaits_parcel = true; /* on_parcel adds it again */
    return;
  }
  if (exchange->framed > 0) return;               /* direct_writable adds it again */
  if (exchange->loan.state == LOAN_ASKED) return; /* loan_answer adds it again */
  size_t pending = exchange->out_end - exchange->out_start;
  bool plain = exchange->state == EXCHANGE_STREAMING && exchange->pieces.print == NULL &&
               !stream_wants_room_back(exchange);
  if (!plain) {
    give_back(exchange);
    return;
  }
  if (pending > 0) send_stream(exchange, sender);
  bool sent = exchange->parcel == NULL && exchange->framed == 0;
  if (sent && exchange->parked) exchange_tell_sent(exchange);
}

static void on_parcel(const parcel_t *parcel) {
  http_exchange_t *exchange = parcel->owner;
  parcel_ended(exchange);
  if (parcel->error != 0) {
    exchange_cut(exchange, "client_gone");
  } else if (parcel->sent < parcel->length) {
    exchange->http->direct.sends_short++;
    take_back(exchange, parcel->bytes + parcel->sent, parcel->length - parcel->sent);
  }
  bool more = exchange->out_end > exchange->out_start || exchange->pieces.print != NULL ||
              exchange->on_sent != NULL || exchange->state != EXCHANGE_STREAMING;
  if (more && exchange->parked) direct_add(exchange);
}

void direct_begin_turn(http_t *http) {
  sender_t *sender = http->direct.sender;
  if (sender != NULL) sender_collect(sender, on_parcel);
  sender_t *for_many = http->direct.num_ready >= MANY ? sender : NULL;
  for (int32_t left = http->direct.num_ready; left > 0; left--) {
    http_exchange_t *exchange = http->direct.ready;
    leave_list(exchange);
    serve(exchange, for_many);
  }
  if (sender == NULL) return;
  sender_flush(sender);
  if (http->direct.num_awaiting > 0) sender_want(sender);
}

/* ---- start and end ---- */

static void on_wake(uv_async_t *async) {
  http_mark(async->data, true);
}

/* The sender's thread. */
static void wake(void *context) {
  uv_async_send(context);
}

int direct_start(http_t *http, inferd_error_t *error) {
  const char *wanted = http->server->config->send_thread;
  bool on =
      strcmp(wanted, "auto") == 0 ? uv_available_parallelism() > 1 : strcmp(wanted, "on") == 0;
  if (!on) return 0;
  if (uv_async_init(http->loop, &http->direct.wake, on_wake) != 0) {
    return error_set(error, ERR_IO, NULL, "cannot make a handle for the thread that sends");
  }
  http->direct.wake.data = http;
  http->open_handles++;
  return sender_start(wake, &http->direct.wake, &http->direct.sender, error);
}

void direct_stop(http_t *http) {
  sender_t *sender = http->direct.sender;
  http->direct.sender = NULL;
  sender_stop(sender, on_parcel);
  direct_begin_turn(http);
}
