/* local.h: `inferd batch`: the lines of a file are answered by a server that nobody else asks, and
 * that ends with them.
 *
 * Answers are appended to the output in the order of the lines. An output that a kill has cut is
 * gone on with: its whole lines stay, what is behind the last of them goes.
 */
#ifndef INFERD_SERVER_BATCHES_LOCAL_H
#define INFERD_SERVER_BATCHES_LOCAL_H

#include "server/server.h"

typedef struct local local_t;

/* Reads the input, and what the output has of it. Returns 0 and *out; or ERR_IO, or
 * ERR_INVALID_VALUE with the numbers of the lines that are wrong. Before the server starts: it
 * reads the disk. */
int local_open(const char *input, const char *output, local_t **out, inferd_error_t *error);
/* Makes it the work of a server; before its loop runs. */
void local_attach(local_t *local, server_t *server);
/* Loop thread: the engine is ready, or some time has passed. Calls `finished` of the server once
 * all lines are over, or the output cannot be written. NULL is allowed, here and below. */
void local_tick(local_t *local);
void local_stop(local_t *local); /* loop thread: ends what runs */
/* After the loop. Says what became of the lines on standard error. Returns the exit status of the
 * command: 0, or 1 if a line failed or is not answered. */
int local_close(local_t *local);

#endif
