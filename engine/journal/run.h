/* run.h: an engine without a thread that plays a lane of a journal, plan by plan.
 *
 * The caller is the loop thread and the engine thread at once: the very schedule is run again in
 * one thread, for a debugger or a sanitizer.
 */
#ifndef INFERD_ENGINE_JOURNAL_RUN_H
#define INFERD_ENGINE_JOURNAL_RUN_H

#include "engine/engine.h"
#include "engine/journal/play.h"

/* What the loop thread would do. */
typedef struct play_client {
  /* A request comes; it ends, as it was cancelled. False: that cannot be, and the play ends. */
  bool (*submit)(void *context, uint64_t id);
  bool (*cancel)(void *context, uint64_t id);
  void (*drain)(void *context); /* by engine_drain */
  void *context;
} play_client_t;

/* Makes an engine whose options have a `play`, and loads its model. 0 or the error of the start. */
int play_start(const engine_options_t *options, engine_t **out, inferd_error_t *error);
/* Plays to the end of the lane, or to the first difference, which `play` then has. */
void play_run(engine_t *engine, play_t *play, const play_client_t *client);

#endif
