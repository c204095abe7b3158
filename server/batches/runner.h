/* runner.h: runs the lines of batches, in what the requests of clients leave.
 *
 * Each line is an errand of its endpoint, and runs by best effort: the engine gives it what clients
 * leave. As many are in it as it runs at once. A batch has a share of its own beside its key's.
 * Loop thread.
 */
#ifndef INFERD_SERVER_BATCHES_RUNNER_H
#define INFERD_SERVER_BATCHES_RUNNER_H

#include "server/batches/bulk.h"
#include "server/server.h"

enum {
  RUNNER_OPEN_MAX = 4096,       /* batches that have not ended, */
  RUNNER_OPEN_EACH_MAX = 64,    /* of one key */
  RUNNER_BATCHES = 32,          /* that have lines in memory, */
  RUNNER_BATCHES_EACH = 2,      /* of one key */
  RUNNER_FETCH_LINES = 64,      /* lines that are read at once, */
  RUNNER_FETCH_BYTES = 1 << 20, /* or until they have so many bytes */
  RUNNER_LINES_SEVERAL = 64,    /* that run at once, of several models */
  RUNNER_AGAIN_MS = 1000        /* after a write that failed */
};

/* Returns ERR_QUEUE_FULL if this owner may make no further batch: the loop goes over all that have
 * not ended. Those whose rows are being written are not counted. */
int runner_room(const server_t *server, const uint8_t owner[STORE_OWNER_BYTES],
                inferd_error_t *error);
/* Runs a batch that was written. Takes what `batch` holds. */
void runner_add(server_t *server, bulk_t *batch);
/* Whether the batch is not gone, and has not ended: then its counts are set. `cancel` ends it and
 * tells the store; store_settle waits for that. */
bool runner_look(server_t *server, const uint8_t owner[STORE_OWNER_BYTES], const char *id,
                 bool cancel, bulk_t *batch);

#endif
