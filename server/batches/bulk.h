/* bulk.h: a batch and its lines as JSON: OpenAI's objects, and what a line of a file must be.
 *
 * Pure functions, any thread.
 */
#ifndef INFERD_SERVER_BATCHES_BULK_H
#define INFERD_SERVER_BATCHES_BULK_H

#include "engine/base/buffer.h"
#include "engine/base/error.h"
#include "engine/base/json.h"
#include "server/store/store.h"

#include <stdbool.h>

enum {
  BATCH_LINES_MAX = 50000,
  BATCH_CUSTOM_ID_MAX = 512, /* bytes */
  BATCH_WINDOW_MAX_S = 7 * 86400,
  BATCH_LINE_ID_BYTES = 16
};

typedef enum bulk_endpoint {
  BATCH_CHAT,
  BATCH_COMPLETIONS,
  BATCH_RESPONSES,
  BATCH_EMBEDDINGS,
  BATCH_ENDPOINTS, /* those of /v1/batches; `inferd batch` has more */
  BATCH_SCORE = BATCH_ENDPOINTS,
  BATCH_V1_SCORE,
  BATCH_RERANK,
  BATCH_V1_RERANK,
  BATCH_V2_RERANK,
  BATCH_PATHS
} bulk_endpoint_t;
extern const char *const bulk_endpoints[BATCH_PATHS];

typedef enum bulk_status {
  BATCH_IN_PROGRESS,
  BATCH_CANCELLING,
  BATCH_COMPLETED,
  BATCH_CANCELLED,
  BATCH_EXPIRED,
  BATCH_FAILED,
  BATCH_STATUSES
} bulk_status_t;

typedef struct bulk {
  char id[STORE_ID_BYTES], input[STORE_ID_BYTES]; /* input: the file */
  char window[16];
  uint8_t owner[STORE_OWNER_BYTES];
  bulk_endpoint_t endpoint;
  bulk_status_t status;
  int64_t created, expires;
  int64_t times[BATCH_STATUSES]; /* when it got each status; 0 = never */
  int64_t total, completed, failed;
  bool has_output, has_errors; /* files */
  char problem[160];           /* of BATCH_FAILED */
  buffer_t metadata;           /* JSON; empty = none */
} bulk_t;

void bulk_free(bulk_t *batch); /* what it holds */
void bulk_print(buffer_t *out, const bulk_t *batch);
/* Reads what bulk_print wrote. Returns false if it is something else, or memory is short. */
bool bulk_parse(const char *text, size_t length, bulk_t *out);
/* The id of the file with answers, or with errors. */
void bulk_file_id(const bulk_t *batch, bool errors, char out[STORE_ID_BYTES]);
/* "24h", "30m", "90s" or "2d" in seconds; 0: it is something else, or more than a week. */
int64_t bulk_window(const char *text);

/* A file object. */
void file_print(buffer_t *out, const char *id, int64_t bytes, int64_t created, const char *name,
                const char *purpose);

/* One line of an input. The values point into `doc`, which the caller frees. */
typedef struct bulk_line_text {
  json_doc_t *doc;
  const json_t *custom_id, *body;
  bulk_endpoint_t endpoint;
} bulk_line_text_t;

/* Reads a line. Returns 0, or an error whose message says what is wrong with it. */
int bulk_line_read(const char *text, size_t length, bulk_line_text_t *out, inferd_error_t *error);
/* Checks all lines of a file, which are not empty: their endpoint is one of /v1/batches, the same
 * in all (`endpoint` NULL: they may differ, and there may be any number of lines), no custom_id is
 * there twice. Calls `visit` with each (NULL: not). Returns 0 and *endpoint, or an error that names
 * `file` and the numbers of lines. */
int bulk_lines_check(const char *text, size_t length,
                     bool (*visit)(void *context, int64_t number, const char *line, size_t length),
                     void *context, bulk_endpoint_t *endpoint, inferd_error_t *error);

/* The line of an output file, without its end. `body`: of the answer, NULL = none was made, because
 * of `code` and `message`. `custom_id` is JSON. */
void bulk_print_result(buffer_t *out, const char *batch, const char *line,
                       const buffer_t *custom_id, int status, const buffer_t *body,
                       const char *code, const char *message);

#endif
