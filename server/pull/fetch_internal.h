/* fetch_internal.h: what fetch.c and its parts share: files, pieces, and who owns what.
 *
 * Main thread. A file is open from its lock to its blob. A piece owns a range of one file from the
 * request until its last byte is on the disk.
 */
#ifndef INFERD_SERVER_PULL_FETCH_INTERNAL_H
#define INFERD_SERVER_PULL_FETCH_INTERNAL_H

#include "server/pull/fetch.h"
#include "server/pull/hub.h"
#include "server/pull/sums.h"

enum {
  PIECE_BYTES = 8 << 20,
  FLUSH_BYTES = 1 << 20,     /* the first piece is written when so much has come */
  PROGRESS_BYTES = 256 << 10 /* a try that brought so much begins the count of tries anew */
};

typedef enum file_state { FILE_WAITS, FILE_OPEN, FILE_DONE } file_state_t;

typedef struct fetch_file {
  repo_file_t *repo;
  file_state_t state;
  int fd, lock_fd; /* -1 = closed */
  sum_t *sum;      /* of the first `written` bytes */
  int64_t written; /* bytes on the disk, without a gap */
  int64_t issued;  /* the bytes before belong to pieces or are written */
  int64_t counted; /* what progress has of this file: written, and pieces in memory */
  char *direct;    /* where a redirect led to, on another host; NULL = ask the hub */
  bool whole;      /* the server ignores ranges: one piece to the end */
  int restarts;    /* because of a wrong sum */
  bool told;       /* that another process has the lock */
  uint64_t due_ns; /* when the lock is tried again */
} fetch_file_t;

typedef struct fetch fetch_t;

typedef struct piece {
  fetch_t *fetch;
  fetch_file_t *file; /* NULL = free */
  CURL *easy;
  int64_t at, end; /* the range; `at` moves on as bytes are written */
  int64_t skip;    /* bytes of a whole answer that are here already */
  uint8_t *bytes;  /* [PIECE_BYTES] from `at` on */
  size_t used;
  size_t came; /* in this try */
  int tries;
  uint64_t due_ns; /* when the next try begins */
  bool active;     /* in the multi handle */
  bool direct;     /* this try goes to file->direct */
  bool dropped;    /* another piece does its work */
  int fault;       /* ERR_ number of what on_bytes found; the message is in fetch->error */
  hub_answer_t answer;
} piece_t;

struct fetch {
  const pull_settings_t *settings;
  const store_t *store;
  const char *commit;
  progress_t *progress;
  inferd_error_t *error;
  CURLM *multi;
  fetch_file_t *files;
  int num_files;
  piece_t *pieces; /* [num_pieces]: twice the connections, because some wait for an earlier one */
  int num_pieces, num_active;
};

/* ---- fetch_file.c: a file from its lock to its blob ---- */

/* Takes the lock, opens the file and sums up what is there. The state stays FILE_WAITS while
 * another process has the lock, and is FILE_DONE when that process has made the blob. */
int file_begin(fetch_t *fetch, fetch_file_t *file);
/* Writes what the piece at the end of the file holds; the caller says when. */
int file_write(fetch_t *fetch, piece_t *piece);
/* Checks the sum of a whole file and makes it the blob. A wrong sum empties the file, once. */
int file_finish(fetch_t *fetch, fetch_file_t *file);
void file_close(fetch_file_t *file);

/* ---- fetch_piece.c: one request ---- */

/* Starts the next try of a piece. */
int piece_start(piece_t *piece);
/* Takes what a request came to: the piece is whole, gets another try, or the download fails. */
int piece_end(piece_t *piece, CURLcode result);
/* True when the piece begins where the file on the disk ends. */
bool piece_is_first(const piece_t *piece);
void piece_free(piece_t *piece);

#endif
