/* log.h: a file of --journal, read and checked: its records, and what they say of each request.
 *
 * A file that was cut, or is damaged in part, is read as far as it is whole; `notes` says where it
 * is not. Any thread; nothing changes after journal_read.
 */
#ifndef INFERD_ENGINE_JOURNAL_LOG_H
#define INFERD_ENGINE_JOURNAL_LOG_H

#include "engine/base/arena.h"
#include "engine/base/bytes.h"
#include "engine/journal/journal.h"
#include "engine/journal/request_bytes.h"

typedef struct journal_record {
  journal_kind_t kind;
  const uint8_t *bytes; /* [length] behind the kind */
  uint32_t length;
} journal_record_t;

typedef struct journal_lane_log {
  journal_record_t *records; /* [num_records] in order */
  size_t num_records, room;
  bool begins;   /* the first record is the first of the engine: nothing was overwritten */
  bool ends;     /* the last one is JOURNAL_END */
  uint64_t gaps; /* records that are missing in between */
} journal_lane_log_t;

typedef struct kept_token {
  int32_t id;
  bool has_logprob;
  float logprob;
  uint32_t hash; /* of rank and alternatives */
} kept_token_t;

typedef struct kept_choice {
  kept_token_t *tokens; /* [num_tokens] */
  uint32_t num_tokens, room;
} kept_choice_t;

/* A request that the journal has from its arrival on. */
typedef struct kept_answer {
  uint64_t id;
  int32_t lane;
  kept_request_t kept;
  const uint8_t *constraint; /* its source; NULL = it has none, or `lost` says so */
  size_t constraint_bytes;
  kept_choice_t *choices; /* [num_choices] */
  int32_t num_choices;
  uint32_t scores; /* sum over the prompt */
  uint64_t vector;
  bool has_finish;
  finish_reason_t finish;
  int32_t error_code;
  uint64_t num_output_tokens;
  const char *lost; /* what the journal lacks of it; NULL = it is whole */
} kept_answer_t;

typedef struct journal_log {
  arena_t arena;
  uint8_t *bytes; /* of the file */
  size_t num_bytes;
  char *text; /* of the head, NUL-terminated */
  journal_lane_log_t lanes[JOURNAL_LANES_MAX];
  kept_answer_t *answers; /* [num_answers] by lane, in the order of their arrival */
  size_t num_answers, answers_room;
  char notes[512]; /* what is damaged; "" = nothing */
} journal_log_t;

/* Reads a file. Returns 0 and *out, or ERR_MODEL_MISSING, ERR_PERMISSION, ERR_IO, ERR_NO_MEMORY, or
 * ERR_CONFIGURATION: it is no journal, or one of another version, or its head is damaged. */
int journal_read(const char *path, journal_log_t **out, inferd_error_t *error);
/* The same of bytes, which it owns then, also in case of an error. */
int journal_parse(uint8_t *bytes, size_t length, journal_log_t **out, inferd_error_t *error);
/* The same of a recipe (recipe.h): a log of one answer. The bytes stay the caller's. */
int journal_parse_recipe(const void *bytes, size_t length, journal_log_t **out,
                         inferd_error_t *error);
void journal_log_free(journal_log_t *log); /* NULL is allowed */
/* Makes room behind `count` items of `size` bytes. False: no memory, and nothing has changed. */
bool journal_grow(void **items, size_t *room, size_t count, size_t size);

static inline byte_source_t journal_source(const journal_record_t *record) {
  return (byte_source_t){.at = record->bytes, .end = record->bytes + record->length};
}
/* NULL if the log has no request of this id in the lane. */
kept_answer_t *journal_answer(const journal_log_t *log, int32_t lane, uint64_t id);

/* A plan, as its record says. */
typedef struct kept_entry {
  uint64_t id;
  uint32_t flags, index, num_computed, num_tokens;
} kept_entry_t;

typedef struct kept_plan {
  uint64_t waiting, running, swapped, blocks_free, why, preempted;
  uint32_t num_entries, num_taken;
  byte_source_t source; /* of the entries that were not taken yet */
  uint64_t id;          /* of the entry taken last */
} kept_plan_t;

bool journal_plan(const journal_record_t *record, kept_plan_t *out); /* false: damaged */
/* The next entry. False: damaged, or none. */
bool journal_entry(kept_plan_t *plan, kept_entry_t *out);
/* Whether this choice of a request waits; no entry was taken yet. */
bool journal_waits_for_mask(const kept_plan_t *plan, uint64_t id, int32_t index);
uint8_t journal_skip_entry(byte_source_t *commit); /* its flags */

#endif
