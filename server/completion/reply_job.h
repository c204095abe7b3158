/* reply_job.h: a request that a job of the lanes answers, because it waits for a disk.
 *
 * The loop thread receives the request and sends the answer. The client may disconnect at any time;
 * the job then ends for nobody. Who needs more than is here embeds a reply_job_t as the first
 * member.
 */
#ifndef INFERD_SERVER_COMPLETION_REPLY_JOB_H
#define INFERD_SERVER_COMPLETION_REPLY_JOB_H

#include "engine/base/buffer.h"
#include "server/completion/live.h"
#include "server/keys/api_key.h"
#include "server/lanes/lanes.h"

enum { REPLY_ID_BYTES = 160, LIST_DEFAULT = 20, LIST_MAX = 100 };

typedef struct reply_job reply_job_t;

struct reply_job {
  lane_job_t job; /* first */
  server_t *server;
  exchange_t *exchange; /* NULL = the client disconnected; the loop thread's */
  /* In the lanes. 0 and `reply`, or an error in `error`. */
  int (*work)(reply_job_t *job);
  void (*settled)(reply_job_t *job); /* loop thread: it has run, whoever waits; NULL = nothing */
  void (*finish)(reply_job_t *job);  /* sends a good answer in another way; NULL = as it is */
  uint8_t owner[KEY_DIGEST_BYTES];   /* the key, zeros without one */
  held_t body;                       /* of the request, if it was taken */
  charge_t charge;                   /* of what is read */
  const char *type;                  /* of the reply; NULL = JSON */
  int code;
  inferd_error_t error;
  buffer_t reply;
};

/* Returns a job of `size` bytes, zeros behind the reply_job_t; `takes`: with the body. NULL: memory
 * is short, and that was answered. */
reply_job_t *reply_job_new(exchange_t *exchange, size_t size, bool takes);
/* Submits it; if `code` is set, answers with the error at once. The job is not the caller's any
 * more. */
void reply_job_submit(reply_job_t *job);
/* Frees a job that was not submitted. */
void reply_job_free(reply_job_t *job);

/* Sets the error of a job, and returns its code. */
int reply_job_charge(reply_job_t *job, size_t bytes);

/* A page of a list, as the query asks for it, and what of it is printed. */
typedef struct list_page {
  char after[REPLY_ID_BYTES]; /* "" = from the first on */
  int64_t limit;
  bool ascending;
  int64_t count; /* elements, those behind the page among them */
  char first[REPLY_ID_BYTES], last[REPLY_ID_BYTES];
} list_page_t;

/* Reads limit, order and after. Returns 0 or the error of one of them. */
int list_page_read(const exchange_t *exchange, list_page_t *page, inferd_error_t *error);
/* Prints {"object":"list","data":[ */
void list_begin(buffer_t *out);
/* Whether the element of this id is one of the page: it is to be printed now, behind a comma that
 * is. Else there are more than the page has. */
bool list_takes(list_page_t *page, buffer_t *out, const char *id);
/* Prints the end, with the ids of the first and the last element, and whether there are more. */
void list_end(const list_page_t *page, buffer_t *out);
/* Copies an id. Returns false if it is empty or too long: it is nobody's then. */
bool reply_id_copy(char out[REPLY_ID_BYTES], const char *id, size_t length);

#endif
