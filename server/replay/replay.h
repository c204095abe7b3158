/* replay.h: `inferd replay`: requests of a journal, or of an answer of --store, again, alone or by
 * its schedule; and the picture of a journal.
 *
 * Main thread of a process of its own.
 */
#ifndef INFERD_SERVER_REPLAY_REPLAY_H
#define INFERD_SERVER_REPLAY_REPLAY_H

#include "engine/engine.h"
#include "engine/journal/log.h"

#include <stdio.h>

enum { REPLAY_DIFFERS = 1 }; /* status: something differs, or could not be run */

/* `inferd replay`, behind that word. Returns the exit status. */
int replay_command(int argc, char **argv);

/* compare.c: an answer that comes, beside the one that the journal has. */
typedef struct comparison {
  kept_answer_t *answer;
  uint32_t *num_tokens; /* [choices] so far */
  uint32_t scores;
  uint64_t num_equal; /* tokens */
  bool done, differs;
  char why[256];
} comparison_t;

bool compare_new(kept_answer_t *answer, comparison_t *out); /* false: no memory */
void compare_free(comparison_t *comparison);
void compare_event(comparison_t *comparison, const engine_info_t *info, const event_t *event);

/* requests.c: answers of a log -> requests that an engine takes. */
typedef struct replayed {
  request_t request; /* its owner is this */
  comparison_t comparison;
  bool submitted;
  struct replayed *next;
} replayed_t;

typedef struct replay {
  const journal_log_t *log;
  engine_t *engine;
  arena_t arena; /* of constraints */
  struct compiled {
    const uint8_t *source;
    struct grammar *grammar;
  } * compiled; /* [num_compiled] */
  size_t num_compiled;
  const char *adapters[LORAS_MAX + 1]; /* directories by slot; NULL = none */
  replayed_t *live;
  uint64_t num_answers, num_tokens, num_differ, num_left;
  bool plays; /* by a schedule: only the end of it aborts a request that the journal did not */
} replay_run_t;

/* Makes a request of an answer, and submits it. Returns 0, or an error that says what is missing or
 * why it is refused. */
int replay_submit(replay_run_t *replay, kept_answer_t *answer, replayed_t **out,
                  inferd_error_t *error);
void replay_drain(replay_run_t *replay); /* takes events; counts and tells of what has ended */
void replay_free(replay_run_t *replay);  /* after the engine */

/* pictures.c: the steps of a journal as a picture (SVG), and as a trace that Perfetto reads (JSON).
 * Returns false if writing fails. */
bool timeline_svg(const journal_log_t *log, FILE *out);
bool timeline_trace(const journal_log_t *log, FILE *out);

#endif
