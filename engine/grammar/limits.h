/* limits.h: what a constraint may at most be and cost; each is a number that its refusal names. */
#ifndef INFERD_ENGINE_GRAMMAR_LIMITS_H
#define INFERD_ENGINE_GRAMMAR_LIMITS_H

#include <stdint.h>

enum { GRAMMAR_IGNORED_NAMES_MAX = 16, GRAMMAR_IGNORED_BYTES_MAX = 512 }; /* grammar_ignored */

typedef struct grammar_limits {
  uint32_t schema_depth_max;  /* nesting of schemas; strict: at most 10 */
  uint32_t schema_bytes_max;  /* of names and values, about the text without white space */
  uint32_t schema_nodes_max;  /* subschemas, enum values and property names together */
  uint32_t rules_max;         /* after expansion of anyOf, allOf and references */
  uint32_t pattern_bytes_max; /* of a regex */
  uint32_t regex_depth_max;   /* groups within groups */
  uint32_t regex_nodes_max;   /* after counted repetition is written out */
  uint32_t dfa_states_max;    /* of all lexemes of a grammar together */
  uint32_t grammar_bytes_max; /* of a user grammar */
  uint32_t grammar_rules_max; /* of a user grammar */
  uint32_t choices_max;       /* of GRAMMAR_CHOICE */
  uint64_t compile_work_max;  /* steps of one request: decides alone, so every time alike */
  uint64_t compile_ns_max; /* CPU time of one request: a backstop that the work should not reach */
} grammar_limits_t;

extern const grammar_limits_t grammar_limits_default;

#endif
