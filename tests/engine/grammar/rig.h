/* rig.h: grammars for tests: one vocabulary, one matcher, short ways to ask. */
#ifndef INFERD_TESTS_ENGINE_GRAMMAR_RIG_H
#define INFERD_TESTS_ENGINE_GRAMMAR_RIG_H

#include "engine/base/buffer.h"
#include "engine/grammar/mask/matcher.h"
#include "server/parser/formats.h"

/* Ids 0..255 are single bytes, then words and pieces of JSON, then STOP (in no trie) and SPECIAL.
 */
enum { RIG_TOKENS = 3000, RIG_STOP = RIG_TOKENS, RIG_SPECIAL, RIG_WIDTH };

typedef struct rig {
  grammar_vocabulary_t *vocabulary;
  grammar_matcher_t *matcher;
  grammar_scratch_t *scratch;
  uint32_t row[(RIG_WIDTH + 31) / 32];
  grammar_t *grammar;
  inferd_error_t error;
} rig_t;

rig_t *rig_new(void);
void rig_free(rig_t *rig);

/* Compile in place of what was there; 0 or the ERR_ code, message in rig->error. */
int rig_compile(rig_t *rig, const grammar_source_t *source, const grammar_limits_t *limits);
int rig_schema(rig_t *rig, const char *schema); /* JSON text */
int rig_strict(rig_t *rig, const char *schema);
int rig_text(rig_t *rig, grammar_kind_t kind, const char *text);

void rig_start(rig_t *rig);
/* Feeds bytes; false as soon as one is not allowed. */
bool rig_feed(rig_t *rig, const char *text, size_t length);
/* The whole text is one that the grammar allows. */
bool rig_accepts(rig_t *rig, const char *text);
bool rig_fill(rig_t *rig); /* true = a mask with at least one bit; rig->row */
static inline bool rig_allows(const rig_t *rig, int32_t id) {
  return rig->row[id / 32] >> (id % 32) & 1;
}
/* Compiles each text, and asserts that it accepts and refuses whole texts as its row says. */
typedef struct row {
  const char *text;
  const char *accepted[10], *refused[10];
} row_t;
void rig_check(grammar_kind_t kind, const row_t *rows, size_t count);
#define CHECK_TEXTS(kind, rows) rig_check(kind, rows, sizeof(rows) / sizeof *(rows))
#define CHECK_ROWS(rows) CHECK_TEXTS(GRAMMAR_JSON_SCHEMA, rows)

/* What the parser of tool calls reads out of an output, if `f` with these parameters is the only
 * tool. The caller frees `arguments`. */
typedef struct rig_reading {
  buffer_t arguments;
  int calls, others; /* calls that ended; pieces of content */
} rig_reading_t;
rig_reading_t rig_read_back(const tool_format_t *format, const char *schema, const buffer_t *text);

uint64_t rig_random(uint64_t *state);
/* A random allowed id of the last mask. */
int32_t rig_pick(const rig_t *rig, uint64_t *state);

#endif
