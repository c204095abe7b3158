/* ebnf.h: what the files of the user grammar compiler share.
 *
 * Part of a compilation, on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LANGUAGE_EBNF_H
#define INFERD_ENGINE_GRAMMAR_LANGUAGE_EBNF_H

#include "engine/grammar/automaton/regex.h"

enum { EBNF_BUCKETS = 1024 };

typedef struct ebnf_rule {
  const char *name;
  uint32_t length;
  size_t at;       /* byte of the rule, or of its first use */
  uint32_t chain;  /* hash bucket: index + 1 of the next rule */
  regex_t *tree;   /* NULL = used and not defined */
  bool nullable;   /* may be empty */
  bool productive; /* can be finished */
  uint32_t node;
} ebnf_rule_t;

typedef struct ebnf {
  compile_t *compile;
  const char *text;
  size_t length;
  grammar_list_t rules; /* ebnf_rule_t */
  uint32_t *buckets;
  uint32_t root;
} ebnf_t;

static inline ebnf_rule_t *ebnf_rule(const ebnf_t *ebnf, uint32_t index) {
  return (ebnf_rule_t *)ebnf->rules.items + index;
}

/* Gives up with line and column of byte `at`; `name` (NULL = none) is quoted behind the reason. */
_Noreturn void ebnf_fail(const ebnf_t *ebnf, size_t at, const char *reason, const char *name,
                         uint32_t name_length);
/* ebnf_check.c: refuses rules that are not defined, cannot be finished or reach themselves first.
 */
void ebnf_check(ebnf_t *ebnf);
/* ebnf_build.c: the node of the root rule, then next. */
uint32_t ebnf_build(ebnf_t *ebnf, uint32_t next);

#endif
