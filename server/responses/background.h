/* background.h: answers that are made later: `background` of POST /v1/responses.
 *
 * A request is checked, written to the store and answered with the status "queued". Then it is an
 * errand of the server, which runs when its turn comes: also after a restart, from its beginning,
 * with the same seed. Loop thread.
 */
#ifndef INFERD_SERVER_RESPONSES_BACKGROUND_H
#define INFERD_SERVER_RESPONSES_BACKGROUND_H

#include "server/responses/responses.h"
#include "server/store/store.h"

enum {
  BACKGROUND_EACH_MAX = 64,        /* answers of a key that have not ended */
  BACKGROUND_MAX = 4096,           /* of all keys */
  BACKGROUND_RUNNING_EACH = 8,     /* of these a key has at most so many in the engine, */
  BACKGROUND_RUNNING = 32,         /* and all keys together */
  BACKGROUND_AGAIN_MS = 1000,      /* after an engine that was full */
  BACKGROUND_AGAIN_S_MAX = 60,     /* after a limit of its key that is used up, at most */
  BACKGROUND_WRITE_MS = 2000,      /* after a write that failed */
  BACKGROUND_TURN_BYTES = 64 << 10 /* of events that a turn of the loop prints */
};

typedef enum background_state {
  BACKGROUND_NONE,
  BACKGROUND_WAITS,
  BACKGROUND_RUNS
} background_state_t;

/* dialect_t.take_over of responses_posted. */
void background_take(completion_t *completion);

/* Of an errand. When its answer was asked, in unix seconds; takes its answer, printed; and why it
 * failed behind its first event. */
int64_t background_created(const exchange_t *exchange);
void background_put(exchange_t *exchange, stored_t *stored);
void background_fail(exchange_t *exchange, const inferd_error_t *error);

background_state_t background_state(const server_t *server, const uint8_t owner[STORE_OWNER_BYTES],
                                    const char *id);
/* The events of an answer that is streamed and has not ended, or NULL. */
struct events *background_events(const server_t *server, const uint8_t owner[STORE_OWNER_BYTES],
                                 const char *id);
/* Stops an answer that has not ended; what is stored of it stays. `removed`: that is removed, so an
 * answer that waits to be written is not written again. Returns whether there was one; then *row is
 * what background_again wants. */
bool background_drop(server_t *server, const uint8_t owner[STORE_OWNER_BYTES], const char *id,
                     bool removed, stored_t *row);
/* Makes one that was stopped all the same, from its beginning: its end could not be written. */
void background_again(server_t *server, const stored_t *row);

/* Gives the body of STORED_WAITING another status and, if not NULL, an error. Any thread. */
void background_restate(stored_t *stored, const char *status, const inferd_error_t *error);

#endif
