/* transfer.h: one file on its way: its URL, its connection, its bytes. media.c and transfer.c
 * alone; the thread of media, but for transfer_free. */
#ifndef INFERD_SERVER_MEDIA_TRANSFER_H
#define INFERD_SERVER_MEDIA_TRANSFER_H

#include "server/media/hosts.h"
#include "server/media/media.h"

typedef struct transfer {
  media_job_t *job;
  media_kind_t kind;
  struct transfer *next; /* of those that wait */
  const media_hosts_t *hosts;
  charge_t *charge; /* of the job */
  media_url_t url;
  CURL *easy; /* NULL = it does not run */
  uint64_t due_ns;
  int redirects;
  size_t headers; /* bytes */
  buffer_t bytes;
  bool closed; /* an address was not public */
  char reason[CURL_ERROR_SIZE];
  int code; /* what it came to: 0 or an ERR_ number, whose message is in `error` */
  inferd_error_t error;
} transfer_t;

/* Gives the transfer a handle that is ready for curl_multi_add_handle. False: no memory, and `code`
 * says so. */
bool transfer_prepare(transfer_t *transfer);
/* Takes what the handle came to. Returns true if it goes on behind a redirect: it is to be prepared
 * again. Else the handle is gone, and `code` says what it came to. */
bool transfer_end(transfer_t *transfer, CURLcode result);
/* Frees the handle, which no multi handle has. */
void transfer_close(transfer_t *transfer);
void transfer_free(transfer_t *transfer);

#endif
