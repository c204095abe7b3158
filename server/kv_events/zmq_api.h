/* zmq_api.h: the functions of libzmq that events need. The library is opened by name when events
 * are asked for; inferd is not linked with it. Their contracts: zmq_socket(3), zmq_send(3), ... */
#ifndef INFERD_SERVER_KV_EVENTS_ZMQ_API_H
#define INFERD_SERVER_KV_EVENTS_ZMQ_API_H

#include "engine/base/error.h"

#include <stddef.h>

/* Numbers of libzmq 4: types and options of sockets, flags. */
enum {
  ZMQ_PUB = 1,
  ZMQ_ROUTER = 6,
  ZMQ_LINGER = 17,
  ZMQ_SNDHWM = 23,
  ZMQ_RCVHWM = 24,
  ZMQ_RCVMORE = 13,
  ZMQ_MAXMSGSIZE = 22,
  ZMQ_ROUTER_MANDATORY = 33,
  ZMQ_IPV6 = 42,
  ZMQ_DONTWAIT = 1,
  ZMQ_SNDMORE = 2,
  ZMQ_POLLIN = 1
};

typedef struct zmq_pollitem { /* as libzmq lays it out on Linux */
  void *socket;
  int fd;
  short events, revents;
} zmq_pollitem_t;

typedef struct zmq_api {
  void *handle;
  void *(*ctx_new)(void);
  int (*ctx_term)(void *context);
  void *(*socket)(void *context, int type);
  int (*close)(void *socket);
  int (*set)(void *socket, int option, const void *value, size_t size);
  int (*get)(void *socket, int option, void *value, size_t *size);
  int (*bind)(void *socket, const char *endpoint);
  int (*connect)(void *socket, const char *endpoint);
  int (*send)(void *socket, const void *bytes, size_t length, int flags);
  int (*recv)(void *socket, void *bytes, size_t length, int flags);
  int (*poll)(zmq_pollitem_t *items, int count, long timeout_ms);
  int (*number)(void); /* of the last error of this thread */
  const char *(*text)(int number);
} zmq_api_t;

/* Returns 0, or ERR_CONFIGURATION: the library is not there. */
int zmq_api_open(zmq_api_t *out, inferd_error_t *error);
void zmq_api_close(zmq_api_t *api);

#endif
