/* cross_blocks.h: K and V of the rows that an encoder has made of sources, in blocks of their own,
 * for the decoders that see them.
 *
 * A bounded part of the K/V pool that no sequence has: block numbers behind those of block.h. An
 * entry is one source of one cache domain, with its block table: who may not share blocks of the
 * prefix cache shares no entry, so no time tells one client what another has sent. All choices and
 * beams of a group, and all requests of a domain with the same source, read one entry. It is made
 * empty, filled by a run of the encoder, never grows and is never written again, and stays until
 * its blocks are needed. Before blocks are taken the caller marks what must stay and what had
 * better: of the rest the entry that was used least recently goes first. What a step in flight
 * reads stays. Engine thread only; cross_blocks_new allocates everything.
 */
#ifndef INFERD_ENGINE_SCHEDULE_CROSS_BLOCKS_H
#define INFERD_ENGINE_SCHEDULE_CROSS_BLOCKS_H

#include "engine/request.h"

typedef struct cross_blocks cross_blocks_t;

typedef enum cross_mark {
  CROSS_MAY_GO,
  CROSS_IS_WANTED, /* by a request that was preempted, or by further choices: goes if nothing else
                    * does */
  CROSS_MUST_STAY  /* a request that runs reads it */
} cross_mark_t;

/* Block numbers [first, first + count), of block_size positions each; a source has at most
 * `longest`, for which there is room. Returns 0 and *out, or ERR_NO_MEMORY. */
int cross_blocks_new(int32_t first, int32_t count, int32_t block_size, int32_t longest,
                     cross_blocks_t **out, inferd_error_t *error);
void cross_blocks_free(cross_blocks_t *cross); /* NULL is allowed */
int32_t cross_blocks_num_free(const cross_blocks_t *cross);
int32_t cross_blocks_num_entries(const cross_blocks_t *cross); /* in use */

/* Whether K and V of the request's source are there. */
bool cross_blocks_has(const cross_blocks_t *cross, const request_t *request);
/* Whether its entry is made, but not filled. */
bool cross_blocks_is_begun(const cross_blocks_t *cross, const request_t *request);
/* The block table of a source that is there, and how many positions it has. The step that is built
 * now reads it. */
const int32_t *cross_blocks_use(cross_blocks_t *cross, const request_t *request, int32_t *length);

/* All marks are CROSS_MAY_GO; then those of the sources of requests, of which the highest counts.
 */
void cross_blocks_unmark(cross_blocks_t *cross);
void cross_blocks_mark(cross_blocks_t *cross, const request_t *request, cross_mark_t mark);
/* Makes the entry of a source that has none, of so many positions. Returns it and its block table,
 * which stays as long as the entry; or 0 without room, when all are as before. */
int32_t cross_blocks_take(cross_blocks_t *cross, const request_t *request, int32_t positions,
                          const int32_t **table);
void cross_blocks_fill(cross_blocks_t *cross, int32_t entry); /* K and V are there from now on */
void cross_blocks_drop(cross_blocks_t *cross, int32_t entry); /* they never will be */

/* A step is built next; the oldest step in flight has ended. */
void cross_blocks_launch(cross_blocks_t *cross);
void cross_blocks_land(cross_blocks_t *cross);

#endif
