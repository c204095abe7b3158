/* line.h: a line of a batch, as an errand of its endpoint. Loop thread.
 *
 * Nothing of a line is freed where its errand ends, because its completion may still be at work:
 * its owner prints and frees lines in turns of the loop of their own.
 */
#ifndef INFERD_SERVER_BATCHES_LINE_H
#define INFERD_SERVER_BATCHES_LINE_H

#include "server/batches/bulk.h"
#include "server/http/errand.h"
#include "server/server.h"

enum {
  LINE_AGAIN_MS = 1000,       /* a line that found a full engine, */
  LINE_AGAIN_S_MAX = 60,      /* or whose key has used up a limit: until then, at most */
  LINE_TURN_BYTES = 64 << 10, /* of an answer that a turn of the loop prints */
  LINE_CUTS_MAX = 2           /* runs that end with their process before the line has failed */
};

typedef enum line_step { LINE_QUEUED, LINE_RUNS, LINE_PRINTS, LINE_OVER } line_step_t;

typedef struct line line_t;
struct line {
  errand_t errand; /* first */
  void *owner;
  /* The engine has it no more. The next turn of the owner calls line_print. */
  void (*left)(line_t *line);
  /* It is over: `status` and `answer` say how. */
  void (*ended)(line_t *line, line_state_t state);
  line_t *next;
  line_step_t step;
  bulk_endpoint_t endpoint;
  char id[BATCH_LINE_ID_BYTES];
  buffer_t custom_id, body; /* JSON; body: of the request */
  buffer_t answer;
  charge_t charge; /* of the answer */
  uint64_t not_before_ns;
  int status;
  int cuts; /* times that the process which had it ended */
};

/* Who asks. */
typedef struct line_client {
  server_t *server;
  const char *batch;   /* its id: with the line's own it says which seed a line has */
  struct api_key *key; /* or NULL */
  uint64_t source;     /* whose turns it uses */
} line_client_t;

/* Reads a line that was checked. NULL: memory is short, or it is none. */
line_t *line_read(const char *id, const char *text, size_t length);
/* Sends it to its endpoint, unless memory is short: then it is for later. */
void line_start(line_t *line, const line_client_t *client);
/* Prints on what a line of LINE_PRINTS has got, until it is over, or queued again because the
 * server was full. Returns whether more is left. */
bool line_print(line_t *line);
/* Ends it, for nobody. */
void line_stop(line_t *line, const char *cause);
void line_free(line_t *line);

#endif
