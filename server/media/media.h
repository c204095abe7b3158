/* media.h: fetches the pictures and sounds of requests from the hosts of --allowed-media-hosts.
 *
 * One thread fetches for all requests, side by side, so that a host that is slow holds up what
 * waits for it alone: at once there are at most so many transfers in all, of a client and from a
 * host. Each has a time and a size, and its bytes are charged to the client as they come.
 *
 * What a client can reach by it is bounded (SSRF): https, a listed host and port, a certificate
 * that belongs to the host, and an address that is public. The address is checked where the socket
 * is opened, so it is the one that is connected to, whatever a name server says before or after.
 * Redirects lead to such URLs alone. No proxy, no cookies, no credentials, no kept connections.
 *
 *   light job of a request     media_job_new, media_job_add
 *   loop thread                media_job_begin  -->  media's thread  -->  done
 *   heavy job of the request   media_job_take
 */
#ifndef INFERD_SERVER_MEDIA_MEDIA_H
#define INFERD_SERVER_MEDIA_MEDIA_H

#include "config/config.h"
#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "server/ledger/ledger.h"

enum {
  MEDIA_MS_MAX = 5000,         /* of a file, from its turn to its last byte */
  MEDIA_AT_ONCE_MAX = 64,      /* transfers in all */
  MEDIA_OF_CLIENT_MAX = 4,     /* of these, of one client */
  MEDIA_OF_HOST_MAX = 16,      /* and from one host and port */
  MEDIA_REDIRECTS_MAX = 3,     /* of a file */
  MEDIA_HEADERS_MAX = 64 << 10 /* bytes of all headers of an answer */
};

typedef struct media media_t;

/* ---- make and free: loop thread ---- */

struct uv_loop_s; /* uv.h */

/* `hosts` must stay. Opens libcurl, before other threads exist. Returns 0; ERR_CONFIGURATION
 * without libcurl, or ERR_IO. */
int media_open(const config_list_t *hosts, struct uv_loop_s *loop, media_t **out,
               inferd_error_t *error);
/* Ends the thread and closes its handle on the loop, which must run once more. NULL is allowed. */
void media_stop(media_t *media);
void media_free(media_t *media); /* behind that; NULL is allowed */

/* ---- files of one request ---- */

typedef struct media_job media_job_t;

/* What is fetched. */
typedef struct media_kind {
  const char *noun; /* "picture"; stays */
  size_t bytes_max; /* of a file */
} media_kind_t;

/* Whether a URL may be fetched. Any thread; NULL: no. */
bool media_allows(const media_t *media, const char *url, size_t length);

/* Any thread. NULL = no memory. */
media_job_t *media_job_new(media_t *media, ledger_t *ledger, uint64_t client);
/* Adds the URL of a file of `kind`, before the job is begun. Returns 0; ERR_INVALID_VALUE, `param`
 * left to the caller; or ERR_NO_MEMORY. */
int media_job_add(media_job_t *job, const media_kind_t *kind, const char *url, size_t length,
                  inferd_error_t *error);
/* Begins to fetch; `done` is called from the loop when all files have ended. Loop thread. */
void media_job_begin(media_job_t *job, void (*done)(void *owner), void *owner);
/* Whether it was begun and `done` was not called yet. Loop thread. */
bool media_job_runs(const media_job_t *job);
/* Whether it was not begun. NULL: no. */
bool media_job_waits(const media_job_t *job);
/* Moves the bytes of file `index`, in the order of media_job_add, into *out. Their charge stays
 * with the job. Returns 0; ERR_INVALID_VALUE, which names host and limit, `param` left to the
 * caller; ERR_OVERLOADED or ERR_NO_MEMORY. Once for each; behind `done`. */
int media_job_take(media_job_t *job, size_t index, buffer_t *out, inferd_error_t *error);
/* Frees the job; of one that runs only the loop thread may, and `done` is not called any more.
 * NULL is allowed. */
void media_job_free(media_job_t *job);

#endif
