/* dfa.h: byte automata while a grammar is made; the finished form is in program.h.
 *
 * Part of a compilation, on its thread: everything is scratch memory, everything may give up.
 */
#ifndef INFERD_ENGINE_GRAMMAR_AUTOMATON_DFA_H
#define INFERD_ENGINE_GRAMMAR_AUTOMATON_DFA_H

#include "engine/grammar/compile.h"

/* An automaton described by functions: states are numbers, 0 is dead, never given to `step`. */
typedef struct automaton {
  void *context;
  uint64_t start;
  uint64_t (*step)(void *context, uint64_t state, uint8_t byte);
  bool (*accepts)(void *context, uint64_t state);
  const uint8_t *class_of; /* [256] bytes that always act alike share a class */
} automaton_t;

/* Writes an automaton out; only states that can reach acceptance remain. When nothing is accepted,
 * the start is dead too: num_states 1. */
dfa_t *dfa_explore(compile_t *compile, const automaton_t *automaton);
/* Texts that both accept; with `negate` texts that `left` accepts and `right` does not. */
dfa_t *dfa_product(compile_t *compile, const dfa_t *left, const dfa_t *right, bool negate);
/* Accepts the texts that `left` or `right` accepts. */
dfa_t *dfa_union(compile_t *compile, const dfa_t *left, const dfa_t *right);
/* One of the texts that an automaton accepts exactly. */
typedef struct dfa_text {
  const char *bytes;
  uint32_t length;
} dfa_text_t;
dfa_t *dfa_texts(compile_t *compile, const dfa_text_t *texts, uint32_t count);
/* Any text up to the end of the first of these texts that occurs in it, which must be one of
 * from .. until - 1; if there are none of these, any text in which none occurs. If two end at the
 * same place, the wanted one counts. No text is empty. dfa_until.c. */
dfa_t *dfa_until(compile_t *compile, const dfa_text_t *texts, uint32_t count, uint32_t from,
                 uint32_t until);
/* `"` a `"`, for an automaton over the inside of JSON strings. */
dfa_t *dfa_quote(compile_t *compile, const dfa_t *dfa);
bool dfa_matches(const dfa_t *dfa, const char *bytes, size_t length);
static inline bool dfa_is_empty(const dfa_t *dfa) {
  return dfa->num_states < 2;
}
/* Removes the bytes that no token consists of, and the states that need them. */
dfa_t *dfa_restrict(compile_t *compile, const dfa_t *dfa);
/* Counts entries of the states that have COUNT: fills rest and the bounds. Exact for max; min only
 * where counting can always continue. lexeme.c. */
void dfa_count(compile_t *compile, dfa_t *dfa, uint32_t min, uint32_t max);
/* Copies the automaton of a JSON string so that the state after the opening quote is entered only
 * there. lexeme.c. */
dfa_t *dfa_split_first(compile_t *compile, const dfa_t *string);
/* lexeme.c: strings and values of JSON ----------------------------------------------------------
 */

/* Any JSON string of count_min..count_max characters, all escapes; python: that Python reads alike.
 */
uint32_t lexeme_string(compile_t *compile, uint32_t count_min, uint32_t count_max, bool python);
/* A JSON string with canonical escapes only: one spelling for each text. */
uint32_t lexeme_key(compile_t *compile);
dfa_t *canonical_string(compile_t *compile); /* the same without its quotes */
/* Returns the automaton of one of our own patterns, anchored. */
dfa_t *lexeme_dfa(compile_t *compile, const char *pattern);
/* Finds a lexeme that was made before, by its name (which must stay alive); NULL = none. */
const uint32_t *lexeme_kept(compile_t *compile, const char *name, uint32_t min, uint32_t max);
uint32_t lexeme_keep(compile_t *compile, const char *name, uint32_t min, uint32_t max,
                     uint32_t lexeme);

/* Returns the start node of the rule for any JSON value. */
uint32_t json_value_rule(compile_t *compile);
/* Returns the start node of any JSON object, followed by `next`. */
uint32_t json_object_any(compile_t *compile, uint32_t next);

extern const char pattern_number[], pattern_integer[];

/* lexeme_content.c --------------------------------------------------------------------------------
 */

/* A JSON string whose inside is `content`, canonically escaped, of min to max characters. */
uint32_t lexeme_content(compile_t *compile, const dfa_t *content, uint32_t min, uint32_t max);
/* Text outside of JSON, of a kind (compile.h) that is not 0: accepted by `content` (NULL = any),
 * and not text that a reader would take for the end of the value or for a value of another type. */
uint32_t lexeme_outside(compile_t *compile, const dfa_t *content, uint32_t kind, uint32_t min,
                        uint32_t max);
/* Returns a text as it is written inside a canonical JSON string. */
dfa_text_t canonical_text(compile_t *compile, const char *text, uint32_t length);
/* Fills the flag LIVE and the steps of a final automaton. */
void dfa_mark(compile_t *compile, dfa_t *dfa);
/* Joins two partitions: bytes share a class if both partitions treat them alike. */
void dfa_join_classes(const uint8_t left[256], const uint8_t right[256], uint8_t out[256]);

#endif
