/* recipe.c: a recipe is written, see recipe.h. */
#include "engine/journal/recipe.h"

#include "engine/base/bytes.h"
#include "engine/grammar/source_bytes.h"
#include "engine/journal/hash.h"
#include "engine/journal/journal.h"
#include "engine/journal/request_bytes.h"

enum { PIECE_BYTES = 512 };

static byte_sink_t sink_into(buffer_t *out, uint8_t room[PIECE_BYTES]) {
  return (byte_sink_t){
      .bytes = room, .room = PIECE_BYTES, .flush = bytes_to_buffer, .context = out};
}

void recipe_add_token(buffer_t *drawn, const event_t *event) {
  uint8_t room[PIECE_BYTES];
  byte_sink_t sink = sink_into(drawn, room);
  if (drawn->length == 0) put_byte(&sink, event->has_logprob); /* of all of them */
  put_uint(&sink, (uint64_t)event->token_id);
  if (event->has_logprob) put_float(&sink, event->logprob);
  if (event->has_logprob)
    put_fixed_32(&sink, journal_hash_token(event->rank, event->num_top, event->top));
  bytes_to_buffer(&sink);
}

/* Appends a record, and empties it. */
static void end_record(buffer_t *out, buffer_t *record) {
  uint8_t room[PIECE_BYTES];
  byte_sink_t sink = sink_into(out, room);
  put_uint(&sink, record->length);
  bytes_to_buffer(&sink);
  buffer_append(out, record->data, record->length);
  out->failed = out->failed || record->failed;
  buffer_clear(record);
}

/* Of what a journal cuts into parts: the only one. */
static void put_only_part(byte_sink_t *sink, journal_kind_t kind, uint64_t id) {
  put_byte(sink, (uint8_t)kind);
  put_uint(sink, id);
  put_uint(sink, 0);
  put_byte(sink, 1);
}

static void write_constraint(buffer_t *out, buffer_t *record, const struct grammar *grammar) {
  uint8_t room[PIECE_BYTES];
  byte_sink_t sink = sink_into(record, room);
  size_t length;
  const char *source = grammar_source_of(grammar, &length);
  if (source == NULL) return; /* the request says that it lacks */
  put_only_part(&sink, JOURNAL_CONSTRAINT, grammar_serial(grammar) + 1);
  bytes_to_buffer(&sink);
  buffer_append(record, source, length);
  end_record(out, record);
}

void recipe_write(buffer_t *out, const buffer_t *text, const request_t *request,
                  const buffer_t *drawn, int32_t num_tokens, finish_reason_t finish) {
  uint8_t room[PIECE_BYTES];
  buffer_t record = {0};
  byte_sink_t sink = sink_into(out, room);
  put_uint(&sink, JOURNAL_VERSION);
  put_text(&sink, text->data, text->length);
  bytes_to_buffer(&sink);
  if (request->grammar != NULL) write_constraint(out, &record, request->grammar);
  sink.context = &record;
  put_only_part(&sink, JOURNAL_REQUEST, request->id);
  request_write(&sink, request);
  bytes_to_buffer(&sink);
  end_record(out, &record);
  put_byte(&sink, JOURNAL_CHOICE);
  put_uint(&sink, request->id);
  put_uint(&sink, 0);
  if (drawn->length == 0) put_byte(&sink, 0);
  bytes_to_buffer(&sink);
  buffer_append(&record, drawn->data, drawn->length);
  end_record(out, &record);
  put_byte(&sink, JOURNAL_FINISH);
  put_uint(&sink, request->id);
  put_byte(&sink, (uint8_t)finish);
  put_int(&sink, 0);
  put_uint(&sink, (uint64_t)num_tokens);
  put_fixed_64(&sink, 0);
  bytes_to_buffer(&sink);
  end_record(out, &record);
  buffer_free(&record);
}
