/* connection.h: the load generator's HTTP client: where a server is, what a request looks like, and
 * a connection that carries one request after the other.
 *
 * Sockets do not block; the caller waits for them with the loop that it has (libuv, epoll, poll).
 * Not shared between threads.
 */
#ifndef INFERD_SERVER_BENCH_CONNECTION_H
#define INFERD_SERVER_BENCH_CONNECTION_H

#include "server/bench/response.h"

#include <sys/socket.h>

typedef struct server_address {
  char host[256], port[8];
  char authority[280]; /* for the Host header */
  char path[256];      /* in front of /v1, without a slash at its end; "" = none */
  struct sockaddr_storage socket;
  socklen_t socket_length;
} server_address_t;

/* Splits http://HOST[:PORT][/PATH][/v1]. Returns false for any other form, such as https. */
bool address_split(const char *url, server_address_t *out);
/* Splits, looks the host up and takes its first address that accepts a connection. Returns 0, or an
 * exit code after a message on stderr. */
int address_find(const char *url, server_address_t *out);

/* Returns the bytes of a request, which the caller frees, and their number in *length. `path`
 * follows the path of the address. `body` and `api_key` may be NULL. */
char *connection_request(const server_address_t *address, const char *method, const char *path,
                         const char *api_key, const char *body, size_t *length);

typedef struct connection {
  int fd;              /* -1 = closed */
  const char *request; /* the caller's, until the answer is done */
  size_t length, sent;
  bool was_used; /* carried another request before this one */
  bool heard;    /* a byte of the answer has come */
  response_t response;
  const char *error; /* why it failed */
} client_connection_t;

typedef enum connection_progress {
  CONNECTION_WAITS, /* for its socket to be readable, or writable while connection_is_sending */
  CONNECTION_DONE,  /* the answer is complete */
  CONNECTION_FAILED /* `error` says why; it must be closed */
} connection_progress_t;

/* Begins to connect. Returns false if that fails; connection->error says why. The caller calls
 * connection_close in both cases. */
bool connection_open(client_connection_t *connection, const server_address_t *address);
void connection_close(client_connection_t *connection);
/* Takes the next request and sends nothing yet. `request` must live until the answer is complete;
 * `on_body` gets each piece of the answer's body. */
void connection_begin(client_connection_t *connection, const char *request, size_t length,
                      void (*on_body)(void *, const char *, size_t), void *context);
static inline bool connection_is_sending(const client_connection_t *connection) {
  return connection->sent < connection->length;
}
connection_progress_t connection_send(client_connection_t *connection);
/* Reads once, at most 64 KiB, so that what arrived together is seen together. */
connection_progress_t connection_receive(client_connection_t *connection);
/* Waits until the answer is complete, or for `timeout_ms`. */
connection_progress_t connection_wait(client_connection_t *connection, int timeout_ms);

#endif
