/* events.h: the events of a response that was asked with `background` and `stream`, and who reads
 * them: from any event on, while they are made and afterwards.
 *
 * The number of an event is its place in the stream. Loop thread.
 */
#ifndef INFERD_SERVER_RESPONSES_EVENTS_H
#define INFERD_SERVER_RESPONSES_EVENTS_H

#include "engine/base/buffer.h"
#include "server/http/http.h"
#include "server/ledger/ledger.h"

/* All events so far. Its maker and each reader are users; the last one frees it. */
typedef struct events {
  buffer_t text;
  charge_t charge; /* of it */
  int users;
  bool ended;
  struct reader_of_events *readers;
} events_t;

events_t *events_new(ledger_t *ledger, uint64_t client); /* one user; NULL: memory is short */
/* Appends what was printed. Returns false if there is no memory for it. */
bool events_add(events_t *events, const char *bytes, size_t length);
/* No more come: every reader's stream ends behind the last. */
void events_end(events_t *events);
void events_release(events_t *events); /* one user less; NULL is allowed */
/* Answers with the events behind number `after`; -1 = with all. */
void events_follow(events_t *events, exchange_t *exchange, int64_t after);

#endif
