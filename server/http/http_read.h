/* http_read.h: the bytes of a connection on their way to libmicrohttpd.
 *
 * Every read of the library passes the strict_t of its connection first. A connection is found by
 * its descriptor. Loop thread only.
 */
#ifndef INFERD_SERVER_HTTP_HTTP_READ_H
#define INFERD_SERVER_HTTP_HTTP_READ_H

#include "engine/base/util.h"
#include "server/http/http_internal.h"

/* libmicrohttpd has one block of memory per connection: the bytes of a request's head, and
 * POOL_MORE_BYTES. So the head of an answer, at most ANSWER_HEAD_BYTES, always fits, and the
 * library never answers with an error page of its own. */
enum { ANSWER_HEAD_BYTES = 1536, POOL_MORE_BYTES = 2048 };

/* What a turn of the loop reads: requests of many connections that come at once, or on one
 * connection one behind the other, would else hold up all streams. Connections beyond it are read
 * in the next turns, in the order in which they came. One read may pass the bounds. */
enum { READ_TURN_REQUESTS = 128, READ_TURN_BYTES = 1 << 20 };

/* How many headers, query fields and cookies a request may have: their records get the memory that
 * the read buffer leaves over. The library makes that buffer half of the memory, and enlarges it by
 * an eighth of the rest while this eighth is at least 1 KiB, so up to 7 KiB are left. */
static inline int32_t pool_records(size_t head_bytes_max) {
  size_t left = MIN((head_bytes_max + POOL_MORE_BYTES) / 2, (size_t)7 * 1024);
  return (int32_t)((left - ANSWER_HEAD_BYTES) / STRICT_RECORD_BYTES);
}

/* Called once at start. Returns ERR_INTERNAL if libmicrohttpd does not read by gate.c, because then
 * nothing would be checked, and ERR_IO if that cannot be tried. */
int read_check(inferd_error_t *error);
/* MHD_run, with its reads going through the gate. */
void read_run(http_t *http, struct MHD_Daemon *mhd);
/* Lets a connection be found by its descriptor, until read_forget. Returns false if memory is
 * short. */
bool read_register(connection_t *connection);
void read_forget(connection_t *connection);
/* Begins a turn: what it may read. Connections that wait are read in read_resume_due. */
void read_begin_turn(http_t *http);
/* An answer of the connection has been sent: a refusal that waited for it may be due. */
void read_answered(connection_t *connection);
/* Makes the library look at connections whose refusal is due, and at those that waited to be read
 * and whose turn it is. Call it before the library runs. */
void read_resume_due(http_t *http);

#endif
