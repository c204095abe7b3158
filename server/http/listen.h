/* listen.h: the listening sockets of the transport (http_listen.c). Loop thread. */
#ifndef INFERD_SERVER_HTTP_LISTEN_H
#define INFERD_SERVER_HTTP_LISTEN_H

#include "server/server.h"

enum { LISTENERS_MAX = 16, ADDRESS_BYTES = 128 };

struct http;

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

int listen_open(struct http *http, inferd_error_t *error);
void listen_start(struct http *http);
void listen_hand_on(struct http *http); /* leaves inherited TCP sockets to the next process */
int listen_ready(struct http *http, inferd_error_t *error); /* all TCP sockets take connections */
/* TCP sockets of this process: no connection begins any more, those that have begun are accepted;
 * some time later listen_shut closes them. */
void listen_narrow(struct http *http);
void listen_shut(struct http *http);
void listen_close(struct http *http);

#endif
