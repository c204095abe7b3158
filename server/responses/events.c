/* events.c: events that are kept to be read, see events.h.
 *
 * Loop thread. A reader has a place in the text and no copy of it: the transport takes pieces when
 * its client does, so a slow client costs nothing.
 */
#include "server/responses/events.h"

#include "engine/base/util.h"
#include "server/http/reply_json.h"

#include <stdlib.h>
#include <string.h>

typedef struct reader_of_events {
  events_t *events;
  exchange_t *exchange; /* NULL = it is the transport's: the stream has ended, or the client left */
  size_t place;
  int64_t skips; /* events that stand before those it wants */
  struct reader_of_events *next;
} reader_of_events_t;

events_t *events_new(ledger_t *ledger, uint64_t client) {
  events_t *events = calloc(1, sizeof *events);
  if (events == NULL) return NULL;
  events->charge = charge_open(ledger, client, LEDGER_reply);
  events->users = 1;
  return events;
}

void events_release(events_t *events) {
  if (events == NULL || --events->users > 0) return;
  buffer_free(&events->text);
  charge_drop(&events->charge);
  free(events);
}

bool events_add(events_t *events, const char *bytes, size_t length) {
  buffer_t *text = &events->text;
  buffer_append(text, bytes, length);
  if (text->failed || !charge_resize(&events->charge, text->capacity)) return false;
  for (reader_of_events_t *r = events->readers; r != NULL; r = r->next) {
    if (r->exchange != NULL) exchange_stream_more(r->exchange);
  }
  return true;
}

static void end_reader(reader_of_events_t *reader) {
  exchange_t *exchange = reader->exchange;
  reader->exchange = NULL;
  if (exchange == NULL) return;
  exchange_stream_more(exchange);
  exchange_end(exchange);
}

void events_end(events_t *events) {
  events->ended = true;
  for (reader_of_events_t *r = events->readers, *next; r != NULL; r = next) {
    next = r->next;
    end_reader(r);
  }
}

/* ---- a reader ---- */

/* Moves the place behind the events that are not wanted. Returns false if they are not all there.
 */
static bool skip(reader_of_events_t *reader) {
  const buffer_t *text = &reader->events->text;
  while (reader->skips > 0 && reader->place < text->length) {
    const char *from = text->data + reader->place;
    const char *end = memmem(from, text->length - reader->place, "\n\n", 2);
    if (end == NULL) return false;
    reader->place += (size_t)(end - from) + 2;
    reader->skips--;
  }
  return reader->skips == 0;
}

static bool print(void *owner, buffer_t *out, size_t room) {
  reader_of_events_t *reader = owner;
  const buffer_t *text = &reader->events->text;
  if (!skip(reader)) return false;
  size_t length = MIN(room, text->length - reader->place);
  if (length > 0) buffer_append(out, text->data + reader->place, length);
  reader->place += length;
  return reader->place < text->length;
}

static void free_reader(void *owner) {
  reader_of_events_t *reader = owner, **link = &reader->events->readers;
  while (*link != reader) link = &(*link)->next;
  *link = reader->next;
  events_release(reader->events);
  free(reader);
}

static void on_gone(exchange_t *exchange, const char *cause) {
  (void)cause;
  ((reader_of_events_t *)exchange->user)->exchange = NULL;
}

void events_follow(events_t *events, exchange_t *exchange, int64_t after) {
  reader_of_events_t *reader = calloc(1, sizeof *reader);
  if (reader == NULL) {
    reply_no_memory(exchange);
    return;
  }
  reader->events = events;
  reader->exchange = exchange;
  reader->skips = after + 1;
  reader->next = events->readers;
  events->readers = reader;
  events->users++;
  exchange->user = reader;
  exchange->on_gone = on_gone;
  exchange->on_abort = NULL;
  exchange_stream_pieces(exchange, (pieces_t){print, free_reader, reader});
  if (events->ended) end_reader(reader);
}
