/* listen.h: the listening sockets of the transport (http_listen.c), and how the next process gets
 * them (hand_over.c). Loop thread. */
#ifndef INFERD_SERVER_HTTP_LISTEN_H
#define INFERD_SERVER_HTTP_LISTEN_H

#include "server/http/limit.h"
#include "server/server.h"

enum { LISTENERS_MAX = 16, ADDRESS_BYTES = 128 };

struct http;
struct tls_identity; /* server/tls/tls.h */

typedef struct listener {
  struct http *http;
  int fd;
  bool unix_socket;
  bool shut;   /* bound, but it refuses connections yet (--refuse-unready) */
  bool beyond; /* other machines can reach the address */
  char address[ADDRESS_BYTES];
  char path[108];          /* UNIX sockets: removed at the end */
  uv_poll_t poll;          /* TCP: own accept */
  bool polling, inherited; /* inherited: the service manager's, lives on after this process */
} listener_t;

typedef struct visitor visitor_t;
enum { VISITORS_MAX = 4 };

/* All zero bytes: nothing was taken over, and no process can take over. */
typedef struct hand_over {
  int fd;         /* listens at `path`, if `polling` */
  char path[108]; /* "" = none, or the next process has it */
  uv_poll_t poll;
  bool polling, taken;               /* taken: the listeners came from the process before */
  visitor_t *visitors[VISITORS_MAX]; /* connected and silent, the first that came first */
  int num_visitors;
} hand_over_t;

int listen_open(struct http *http, inferd_error_t *error);
/* Whether a start could listen as `config` says, but for ports and sockets that are in use. */
int listen_check(config_t *config, auth_t *auth, inferd_error_t *error);
void listen_start(struct http *http);
void listen_hand_on(struct http *http); /* leaves inherited TCP sockets to the next process */
int listen_ready(struct http *http, inferd_error_t *error); /* all TCP sockets take connections */
/* TCP sockets of this process: no connection begins any more, those that have begun are accepted;
 * some time later listen_shut closes them. */
void listen_narrow(struct http *http);
void listen_shut(struct http *http);
void listen_close(struct http *http);

/* Takes the descriptors of the process before, with --take-over. Returns 0, with *count = 0 if
 * there is no such process; or an error. */
int hand_over_take(struct http *http, int fds[LISTENERS_MAX], int *count, inferd_error_t *error);
/* This process accepts connections: the one before may drain, and a next one may come. If none can
 * come, the log says why. */
void hand_over_ready(struct http *http);
void hand_over_close(struct http *http); /* the caller closes the handle */

/* http_tls.c: connections that speak TLS. */
int http_tls_start(struct http *http, inferd_error_t *error); /* does nothing without --tls-cert */
int http_tls_check(const config_t *config, inferd_error_t *error); /* reads the files alone */
/* Takes over a connection that was accepted. */
void http_tls_accept(struct http *http, int fd, const peer_t *peer, const struct sockaddr *address,
                     socklen_t length);
int64_t http_tls_expires(const struct http *http); /* unix seconds; 0 = no TLS */
void http_tls_stop(struct http *http);             /* after all connections are closed */
/* Whether TCP connections speak TLS, which was decided at start. */
bool http_has_tls(const struct http *http);
/* A reload in two steps: reads the files that `config` names, and serves them to new connections.
 * *out is NULL, and 0 comes back, where TLS is off, or would be with `config`. */
int http_identity_read(struct http *http, const config_t *config, struct tls_identity **out,
                       inferd_error_t *error);
void http_identity_replace(struct http *http,
                           struct tls_identity *identity); /* owns it; not NULL */
/* Does both if the files have changed, at most every --tls-refresh. */
void http_identity_refresh(struct http *http, uint64_t now_ns);

#endif
