/* run.c: records -> arrivals and iterations of an engine; see run.h. */
#include "engine/journal/run.h"

#include "engine/base/util.h"
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

static bool give(const play_client_t *client, const journal_record_t *record) {
  uint64_t id;
  bool is_last = is_last_part(record, &id);
  if (record->kind == JOURNAL_REQUEST) return !is_last || client->submit(client->context, id);
  return record->kind != JOURNAL_CANCEL || client->cancel(client->context, id);
}

/* Gives the engine all that it then received at once: what comes up to the next plan, between which
 * only ends of what was cancelled stand. */
static void give_arrivals(play_t *play, const play_client_t *client) {
  const journal_lane_log_t *lane = &play->log->lanes[play->lane];
  for (size_t i = MAX(play->next, play->fed); i < lane->num_records && !play->differs; i++) {
    const journal_record_t *record = &lane->records[i];
    if (!play_is_arrival(record) && record->kind != JOURNAL_FINISH) return;
    if (play_is_arrival(record) && !give(client, record))
      stop(play, "a request cannot be run again");
    play->fed = i + 1;
  }
}

void play_run(engine_t *engine, play_t *play, const play_client_t *client) {
  const journal_record_t *next;
  int idle = 0;
  while ((next = play_next(play)) != NULL && next->kind != JOURNAL_END) {
    const size_t before = play->next;
    give_arrivals(play, client);
    if (play->differs) break;
    (void)engine_iterate(engine);
    client->drain(client->context);
    idle = play->next == before ? idle + 1 : 0;
    if (idle == IDLE_MAX) stop(play, "the engine does nothing, and the journal goes on");
  }
  engine_end(engine); /* the END of the lane is compared, if there is one */
  client->drain(client->context);
}
