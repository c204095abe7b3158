/* run.c: records -> arrivals and iterations of an engine; see run.h. */
#include "engine/journal/run.h"

#include "engine/internal.h"

#include <stdio.h>

enum { IDLE_MAX = 10000 }; /* iterations in which the engine comes to no record */

int play_start(const engine_options_t *options, engine_t **out, inferd_error_t *error) {
  engine_t *engine = NULL;
  int code = engine_new(options, &engine, error);
  if (code != 0) return code;
  engine_load(engine);
  if (engine_state(engine) != ENGINE_READY) {
    engine_failure(engine, error);
    engine_destroy(engine);
    return error->code;
  }
  *out = engine;
  return 0;
}

static bool is_last_part(const journal_record_t *record, uint64_t *id) {
  byte_source_t source = journal_source(record);
  *id = take_uint(&source);
  (void)take_uint(&source);
  return take_byte(&source) != 0;
}

static void stop(play_t *play, const char *why) {
  play->differs = true;
  if (play->why[0] == '\0') snprintf(play->why, sizeof play->why, "%s", why);
}

/* What came from outside is behind. Returns false if the record is the engine's own. */
static bool play_arrival(play_t *play, const play_client_t *client, const journal_record_t *next) {
  uint64_t id;
  bool good = true;
  switch (next->kind) {
  case JOURNAL_REQUEST:
    if (is_last_part(next, &id)) good = client->submit(client->context, id);
    break;
  case JOURNAL_CANCEL:
    (void)is_last_part(next, &id);
    good = client->cancel(client->context, id);
    break;
  case JOURNAL_CONSTRAINT:
  case JOURNAL_END: break;
  default: return false;
  }
  if (!good) stop(play, "a request cannot be run again");
  play->next++;
  return true;
}

void play_run(engine_t *engine, play_t *play, const play_client_t *client) {
  const journal_record_t *next;
  int idle = 0;
  while ((next = play_next(play)) != NULL && next->kind != JOURNAL_END) {
    const size_t before = play->next;
    if (play_arrival(play, client, next)) continue;
    (void)engine_iterate(engine);
    client->drain(client->context);
    idle = play->next == before ? idle + 1 : 0;
    if (idle == IDLE_MAX) stop(play, "the engine does nothing, and the journal goes on");
  }
  engine_end(engine); /* the END of the lane is compared, if there is one */
  client->drain(client->context);
}
