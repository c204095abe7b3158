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
  size_t at;        /* byte of the rule, or of its first use */
  uint32_t chain;   /* hash bucket: index + 1 of the next rule */
  regex_t *tree;    /* NULL = used and not defined */
  bool nullable;    /* may be empty */
  bool productive;  /* can be finished */
  bool is_terminal; /* names no rule; nullable and productive are final */
  bool is_used;     /* by a rule that is no terminal */
  bool is_lazy;     /* a text ends as soon as it can */
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
/* Checks the length of the text and makes the rule of the name `root`. */
void ebnf_begin(ebnf_t *ebnf, const char *root);
/* Returns the number of the rule with the name text[at, at + length); makes it if it is new. */
uint32_t ebnf_rule_of(ebnf_t *ebnf, const char *text, size_t at, size_t length);
/* Adds a rule without a tree, under the name of the rule `like`, which no text can refer to. */
void ebnf_add_rule(ebnf_t *ebnf, uint32_t like);
/* ebnf_check.c: refuses rules that are not defined or cannot be finished, and writes left recursion
 * as repetition. */
void ebnf_check(ebnf_t *ebnf);
bool ebnf_nullable(const ebnf_t *ebnf, const regex_t *tree);   /* may be empty */
bool ebnf_productive(const ebnf_t *ebnf, const regex_t *tree); /* can be finished */
/* ebnf_left.c: rewrites the rules of the groups 1 .. num_groups, whose rules begin with each other.
 * group_of[rules]; 0 = the rule is in none. The language stays the same. */
void ebnf_rewrite_left(ebnf_t *ebnf, const uint32_t *group_of, uint32_t num_groups);
/* ebnf_build.c: the node of the root rule, then next. */
uint32_t ebnf_build(ebnf_t *ebnf, uint32_t next);

#endif
