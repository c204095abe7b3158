/* http_loan.c: streams whose chunks go to a socket that the parent of this process has lent.
 *
 * Loop thread of the process of a model. With a request the parent may send the socket of its
 * client (SCM_RIGHTS). The answer begins on the connection, as any. When the stream is parked, a
 * line asks for the socket; the parent answers when its client has been sent all that came before.
 * From then on http_direct.c writes chunks to the socket, and the parent has nothing to pass on.
 * The loan ends when libmicrohttpd gets the stream back: the next bytes on the connection tell the
 * parent.
 *
 * The first chunk of which the socket takes a part only is told, so the parent knows whether it may
 * speak to its client after the end of this process. One line for a loan: a client that is slow a
 * thousand times in a second fills no buffer with them.
 */
#include "server/http/http_exchange.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t loan_receive(connection_t *connection, char *bytes, size_t length, int flags) {
  union {
    struct cmsghdr header; /* for its alignment */
    char bytes[CMSG_SPACE(sizeof(int))];
  } control;
  struct iovec data = {bytes, length};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = sizeof control.bytes};
  ssize_t n = recvmsg(connection->fd, &message, flags | MSG_CMSG_CLOEXEC);
  const struct cmsghdr *header = n >= 0 ? CMSG_FIRSTHDR(&message) : NULL;
  bool came = header != NULL && header->cmsg_level == SOL_SOCKET &&
              header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof(int));
  if (!came) return n;
  if (connection->lent_fd >= 0) close(connection->lent_fd);
  memcpy(&connection->lent_fd, CMSG_DATA(header), sizeof(int));
  return n;
}

void loan_begin(http_exchange_t *exchange) {
  connection_t *connection = exchange->connection;
  exchange->loan = (loan_t){.kind = WATCH_LOAN,
                            .state = connection->lent_fd >= 0 ? LOAN_OFFERED : LOAN_NONE,
                            .fd = connection->lent_fd,
                            .exchange = exchange};
  connection->lent_fd = -1;
}

/* Writes a line to the parent, between two chunks. */
static bool say(const http_exchange_t *exchange, char what) {
  const char line[] = {what, '\r', '\n'};
  return send(exchange->connection->fd, line, sizeof line, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         (ssize_t)sizeof line;
}

/* A stream in pieces is printed by the library's calls. */
bool loan_ask(http_exchange_t *exchange) {
  loan_t *loan = &exchange->loan;
  if (loan->state != LOAN_OFFERED || exchange->pieces.free != NULL) return false;
  if (!say(exchange, LOAN_ASK)) return false; /* the parent is late: it passes on for longer */
  loan->state = LOAN_ASKED;
  connection_watch(exchange->connection, false);
  return true;
}

void loan_answer(http_exchange_t *exchange) {
  char byte;
  if (exchange->loan.state != LOAN_ASKED) return;
  ssize_t n = recv(exchange->connection->fd, &byte, 1, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n != 1 || byte != LOAN_GRANT) {
    exchange_cut(exchange, "client_gone");
    return;
  }
  exchange->loan.state = LOAN_TAKEN;
  connection_watch(exchange->connection, false);
  direct_add(exchange);
}

void loan_watch(http_exchange_t *exchange, bool wait) {
  loan_t *loan = &exchange->loan;
  struct epoll_event event = {.events = EPOLLOUT | EPOLLET, .data.ptr = loan};
  int watch = wait ? EPOLL_CTL_ADD : EPOLL_CTL_DEL;
  bool told = loan->told || !wait || say(exchange, LOAN_HALF);
  loan->told |= wait;
  if (!told || epoll_ctl(exchange->http->watch_epoll, watch, loan->fd, &event) != 0)
    exchange_doom(exchange, "client_gone");
}

/* The connection to the parent ends next, and this process lives: it is the client that is cut. */
void loan_cut(http_exchange_t *exchange) {
  loan_t *loan = &exchange->loan;
  if (loan->state == LOAN_TAKEN && !loan->told) (void)say(exchange, LOAN_HALF);
}

/* The parent has the socket still, so closing it here does not end its watch. */
void loan_end(http_exchange_t *exchange) {
  loan_t *loan = &exchange->loan;
  if (loan->fd < 0) return;
  if (exchange->framed > 0)
    (void)epoll_ctl(exchange->http->watch_epoll, EPOLL_CTL_DEL, loan->fd, NULL);
  close(loan->fd);
  loan->fd = -1;
  loan->state = LOAN_NONE;
}
