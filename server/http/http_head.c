/* http_head.c: the head of a stream goes out with its first chunk, where the socket is a UNIX one.
 *
 * Loop thread, called by libmicrohttpd through gate.c. The library sends a head and a first chunk
 * by two calls. For TCP it asks the system to make one segment of these; a UNIX socket wakes its
 * reader twice, and the parent of several models is such a reader. If the first chunk lies there
 * already when the head is sent, the head is kept, and sent in front of it.
 */
#include "server/http/http_head.h"
#include "server/http/http_exchange.h"
#include "server/http/sockets/gate.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* The library asks for the first chunk next, so what is kept is not kept for long. An answer to
 * HEAD has none. */
static bool comes_before_a_chunk(const http_exchange_t *exchange) {
  bool streams = exchange->state == EXCHANGE_STREAMING || exchange->state == EXCHANGE_ENDING;
  bool whole = strcmp(exchange->public.method, "HEAD") != 0;
  return streams && whole && exchange->chunked && exchange->given == 0 &&
         exchange->out_end > exchange->out_start;
}

/* Sends what was kept and these bytes. Returns how many of these were sent, or -1 with errno. */
static ssize_t send_both(http_exchange_t *exchange, int fd, const char *bytes, size_t length,
                         int flags) {
  struct iovec parts[] = {{exchange->head, exchange->head_length}, {(char *)bytes, length}};
  struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
  ssize_t sent = sendmsg(fd, &message, flags);
  if (sent < 0) return -1;
  if ((size_t)sent < exchange->head_length) {
    exchange->head_length -= (size_t)sent;
    memmove(exchange->head, exchange->head + sent, exchange->head_length);
    errno = EAGAIN;
    return -1;
  }
  sent -= (ssize_t)exchange->head_length;
  head_free(exchange);
  if (sent > 0 || length == 0) return sent;
  errno = EAGAIN;
  return -1;
}

ssize_t head_send(void *context, int fd, const char *bytes, size_t length, int flags) {
  http_t *http = context;
  connection_t *connection = fd >= 0 && fd < http->by_fd_size ? http->by_fd[fd] : NULL;
  http_exchange_t *exchange =
      connection != NULL && connection->unix_socket ? connection->current : NULL;
  if (exchange == NULL) return gate_send(fd, bytes, length, flags);
  if (exchange->head != NULL) return send_both(exchange, fd, bytes, length, flags);
  if (!comes_before_a_chunk(exchange)) return gate_send(fd, bytes, length, flags);
  exchange->head = malloc(length);
  if (exchange->head == NULL) return gate_send(fd, bytes, length, flags);
  memcpy(exchange->head, bytes, length);
  exchange->head_length = length;
  return (ssize_t)length;
}

void head_free(http_exchange_t *exchange) {
  free(exchange->head);
  exchange->head = NULL;
  exchange->head_length = 0;
}
