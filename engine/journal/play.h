/* play.h: a journal as the script of an engine: its lane takes each record in order.
 *
 * The first record that is not what the engine does now is the difference; from there on the engine
 * goes on by itself. Engine thread only.
 */
#ifndef INFERD_ENGINE_JOURNAL_PLAY_H
#define INFERD_ENGINE_JOURNAL_PLAY_H

#include "engine/journal/log.h"

typedef struct play {
  const journal_log_t *log;
  int32_t lane;
  size_t next;    /* of the records of the lane */
  size_t fed;     /* arrivals and cancels before this one were given to the engine */
  uint64_t steps; /* plans so far */
  bool differs;
  char why[512];
} play_t;

/* What comes from outside: a request, its constraint, a cancel. */
bool play_is_arrival(const journal_record_t *record);
/* The next record; NULL = the journal ends here, or the engine went another way. */
const journal_record_t *play_next(play_t *play);
/* The engine comes to `record`, which has the kind that it begins with. */
void play_compare(play_t *play, const uint8_t *record, size_t length);
/* lane_late. */
int play_late(const play_t *play, int32_t steps, int32_t entry);
/* The next record if it has this kind, which is then behind; else the difference, and NULL. */
const journal_record_t *play_take(play_t *play, journal_kind_t kind);

#endif
