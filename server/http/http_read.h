/* http_read.h: the bytes of a connection on their way to libmicrohttpd. Loop thread only. */
#ifndef INFERD_SERVER_HTTP_HTTP_READ_H
#define INFERD_SERVER_HTTP_HTTP_READ_H

#include "engine/base/util.h"
#include "server/http/http_internal.h"

/* The memory that libmicrohttpd has for a connection is that of a request's head and
 * POOL_MORE_BYTES, so that the head of an answer always fits and the library never answers with an
 * error page of its own. */
enum { ANSWER_HEAD_BYTES = 1536, POOL_MORE_BYTES = 2048 };

/* Headers, query fields and cookies of a request. Their records get what the read buffer leaves
 * over: the library starts it at half of the memory, and enlarges it by an eighth of the rest while
 * that is at least 1 KiB, so 7 KiB are left. */
static inline int32_t pool_records(size_t head_bytes_max) {
  size_t left = MIN((head_bytes_max + POOL_MORE_BYTES) / 2, (size_t)7 * 1024);
  return (int32_t)((left - ANSWER_HEAD_BYTES) / STRICT_RECORD_BYTES);
}

/* Fails when libmicrohttpd does not read by gate.c: then nothing would be checked. */
int read_check(inferd_error_t *error);
void read_run(http_t *http, struct MHD_Daemon *mhd); /* MHD_run, with the gate in its way */
bool read_register(connection_t *connection);        /* false when memory is short */
void read_forget(connection_t *connection);
void read_answered(connection_t *connection); /* an answer has been sent */
void read_resume_due(http_t *http);           /* before the library runs */

#endif
