/* http_head.h: sends of libmicrohttpd, which go through the gate. Loop thread. */
#ifndef INFERD_SERVER_HTTP_HTTP_HEAD_H
#define INFERD_SERVER_HTTP_HTTP_HEAD_H

#include "server/http/http_internal.h"

/* A gate_write_t; `context` is the http_t. Keeps the head of a stream back until its first chunk is
 * sent, if that lies there already. */
ssize_t head_send(void *context, int fd, const char *bytes, size_t length, int flags);
void head_free(http_exchange_t *exchange); /* what was kept */

#endif
