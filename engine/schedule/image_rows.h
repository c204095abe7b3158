/* image_rows.h: rows that a tower has made of pictures, kept for the prompts that have these.
 *
 * A bounded pool of pages of rows, taken at start. An entry is one picture of one cache domain: who
 * may not share blocks of the prefix cache shares no rows either, so no time tells one client what
 * another has sent. An entry is found by the picture's key; it is made empty, filled by a run of
 * the tower, and stays until its pages are needed. Before pages are taken the caller marks what
 * must stay and what had better: of the rest the entry that was used least recently goes first.
 * What a step in flight reads stays. Engine thread only; image_rows_new allocates everything.
 */
#ifndef INFERD_ENGINE_SCHEDULE_IMAGE_ROWS_H
#define INFERD_ENGINE_SCHEDULE_IMAGE_ROWS_H

#include "engine/request.h"

enum { IMAGE_PAGE_ROWS = 32 };

typedef struct image_rows image_rows_t;

typedef enum image_mark {
  IMAGE_MAY_GO,
  IMAGE_IS_WANTED, /* by a request that may be computed again: goes if nothing else does */
  IMAGE_MUST_STAY
} image_mark_t;

/* `bytes` of rows of `row_values` floats each, a page at least. Returns 0 and *out, to be freed
 * with image_rows_free, or ERR_NO_MEMORY. */
int image_rows_new(size_t bytes, int32_t row_values, int32_t placeholder_id, image_rows_t **out,
                   inferd_error_t *error);
void image_rows_free(image_rows_t *rows);                    /* NULL is allowed */
size_t image_rows_bytes(int32_t tokens, int32_t row_values); /* of a picture: whole pages */
int32_t image_rows_placeholder(const image_rows_t *rows);

/* Whether the rows of the picture are there. */
bool image_rows_has(const image_rows_t *rows, const request_t *request, const image_t *image);
/* Whether its entry is made, but not filled. */
bool image_rows_is_begun(const image_rows_t *rows, const request_t *request, const image_t *image);
/* Row `row` of a picture that is there. The step that is built now reads it. */
const float *image_rows_use(image_rows_t *rows, const request_t *request, const image_t *image,
                            int32_t row);

/* All marks are IMAGE_MAY_GO; then those of pictures of requests, of which the highest counts. */
void image_rows_unmark(image_rows_t *rows);
void image_rows_mark(image_rows_t *rows, const request_t *request, const image_t *image,
                     image_mark_t mark);
/* Makes the entry of a picture that has none, and points out[layout.tokens] to its rows. Returns
 * the entry, or 0 without room, when all are as before. */
int32_t image_rows_take(image_rows_t *rows, const request_t *request, const image_t *image,
                        float **out);
void image_rows_fill(image_rows_t *rows, int32_t entry); /* its rows are there from now on */
void image_rows_drop(image_rows_t *rows, int32_t entry); /* they never will be */

/* A step is built next; the oldest step in flight has ended. */
void image_rows_launch(image_rows_t *rows);
void image_rows_land(image_rows_t *rows);

#endif
