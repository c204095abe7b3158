/* hub.h: requests to the hub by libcurl, and what its refusals mean for the user.
 *
 * Main thread. The token goes to the endpoint alone: libcurl drops it when a redirect leads to
 * another host, port or protocol. No message holds a URL with a query, because the signed URLs of a
 * content network let every reader of a log download.
 */
#ifndef INFERD_SERVER_PULL_HUB_H
#define INFERD_SERVER_PULL_HUB_H

#include "engine/base/buffer.h"
#include "server/pull/repo.h"
#include "server/pull/settings.h"

#include <curl/curl.h>
#include <signal.h>

enum { HUB_URL_MAX = 8192, HUB_REDIRECTS_MAX = 10, HUB_WAIT_MAX_S = 300 };

/* What an answer says in its headers: those of the last response, and of the sum, the size and the
 * commit also those of a redirect on the way. */
typedef struct hub_answer {
  long status;                /* 0 = none came */
  char code[64];              /* X-Error-Code, as "GatedRepo" */
  char etag[130];             /* X-Linked-Etag, else ETag, without quotes */
  int64_t linked_size;        /* X-Linked-Size; -1 = not told */
  int64_t length;             /* Content-Length; -1 = not told */
  int64_t range_at, range_of; /* Content-Range; -1 = not told */
  bool linked;                /* etag is of X-Linked-Etag */
  char reason[CURL_ERROR_SIZE];
} hub_answer_t;

/* Set by SIGINT and SIGTERM: threads that wait stop soon. */
extern volatile sig_atomic_t hub_interrupted;

/* Prepares a handle for a GET of `url`: time limits, redirects, proxy, the headers into *answer.
 * The answer must live as long as the transfer. `to_hub`: with the token. */
void hub_prepare(CURL *easy, const pull_settings_t *settings, const char *url, bool to_hub,
                 hub_answer_t *answer);
/* Writes ENDPOINT/ORG/NAME/resolve/COMMIT/FILE. False: too long. */
bool hub_file_url(const pull_settings_t *settings, const char *commit, const char *name,
                  char out[HUB_URL_MAX]);

/* Milliseconds to wait before try number `tries` + 1 of a request that came to `result`; -1: no
 * further try can help, or there were enough. */
long hub_pause_ms(const pull_settings_t *settings, CURL *easy, CURLcode result,
                  const hub_answer_t *answer, int tries);
/* Says why a request failed: repository, file (NULL: the repository itself), status, what to do.
 * Returns ERR_MODEL_MISSING, ERR_PERMISSION or ERR_IO. */
int hub_refusal(const pull_settings_t *settings, const char *file, CURLcode result,
                const hub_answer_t *answer, inferd_error_t *error);

/* Asks for the commit and the files of the revision. Returns 0 and *out, freed with repo_free. */
int hub_list(const pull_settings_t *settings, repo_t *out, inferd_error_t *error);
/* Asks for the sum and the size of a file that the list does not tell, and sets them. */
int hub_describe(const pull_settings_t *settings, const char *commit, repo_file_t *file,
                 inferd_error_t *error);

#endif
