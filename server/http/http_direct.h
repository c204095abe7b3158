/* http_direct.h: streams whose chunks go past libmicrohttpd (http_direct.c). Loop thread only. */
#ifndef INFERD_SERVER_HTTP_HTTP_DIRECT_H
#define INFERD_SERVER_HTTP_HTTP_DIRECT_H

#include "server/server.h"

struct http;
struct http_exchange;

/* Of the transport. */
typedef struct direct {
  struct http_exchange *ready, **last; /* parked streams that have something to do */
  int32_t num_ready, num_awaiting;     /* awaiting: those that do it when their parcel is back */
  struct sender *sender;               /* NULL: the loop thread sends all */
  uv_async_t wake;
  uint64_t sends_here, sends_by_thread, sends_short; /* http_stats_t */
} direct_t;

/* Starts the thread that sends, if --send-thread says so. Returns 0 or an error. */
int direct_start(struct http *http, inferd_error_t *error);
void direct_stop(struct http *http);                  /* all parcels have been sent, or came back */
void direct_begin_turn(struct http *http);            /* sends what parked streams have */
void direct_add(struct http_exchange *exchange);      /* a parked stream has something to do */
void direct_writable(struct http_exchange *exchange); /* its socket takes bytes again, perhaps */
void direct_forget(struct http_exchange *exchange);   /* at its end, before the descriptor closes */

#endif
