/* regex.h: ECMA-262 patterns -> syntax trees -> byte automata.
 *
 * The tree serves user grammars too, where a leaf may name a rule. Part of a compilation
 * (compile.h): gives up through compile_fail.
 */
#ifndef INFERD_ENGINE_GRAMMAR_AUTOMATON_REGEX_H
#define INFERD_ENGINE_GRAMMAR_AUTOMATON_REGEX_H

#include "engine/grammar/automaton/dfa.h"

typedef struct char_range {
  uint32_t low, high; /* code points, both included */
} char_range_t;

/* Sorted, disjoint, not adjacent. */
typedef struct charset {
  char_range_t *ranges;
  uint32_t count;
} charset_t;

typedef enum regex_kind {
  REGEX_EMPTY,
  REGEX_SET,    /* one character of `set` */
  REGEX_CAT,    /* children in order */
  REGEX_ALT,    /* one of the children */
  REGEX_REPEAT, /* the child, min to max times (NONE = no bound) */
  REGEX_BEGIN,  /* ^ */
  REGEX_FINISH, /* $ */
  REGEX_LOOK,   /* look-around at byte `min`: `first` matches from here on (`ahead`) or up to here;
                   not so if `negate` */
  REGEX_DFA,    /* what the automaton `dfa` accepts */
  REGEX_RULE    /* user grammars: rule number `min` */
} regex_kind_t;

typedef struct regex {
  regex_kind_t kind;
  bool is_regular; /* no REGEX_RULE inside */
  bool ahead, negate;
  charset_t set;
  uint32_t min, max;
  const dfa_t *dfa;
  struct regex *first, *last, *sibling; /* children */
} regex_t;

/* Which notation a pattern is in: what differs are escapes and the sets of \d \w \s and dot. */
typedef enum regex_dialect {
  REGEX_ECMA,  /* ECMA-262: \d and \w are ASCII, dot is no line end */
  REGEX_GBNF,  /* the same and \UXXXXXXXX */
  REGEX_PYTHON /* re of Python: sets of Unicode, dot is all but \n, {,n}, []a], \UXXXXXXXX */
} regex_dialect_t;

typedef struct regex_options {
  bool json;   /* the text is the inside of a JSON string, canonically escaped */
  bool search; /* a match anywhere is enough */
  bool own;    /* one of our own patterns, whose length has no bound */
  regex_dialect_t dialect;
  bool ignore_case, dot_all; /* the flags i and s, from the start */
  bool is_part;              /* of a longer text: anchors and look-around are refused */
  bool *found_lazy;          /* set if there is a non-greedy quantifier; NULL = not asked */
  bool lazy;                 /* a text ends as soon as it can: no text begins with another */
  const char *what; /* names the pattern in errors: "regex", "pattern" and where it stands */
} regex_options_t;

/* Makes the set sorted and disjoint. */
void charset_normalize(charset_t *set);
/* Everything up to U+10FFFF that is not in it, without surrogates. */
charset_t charset_invert(compile_t *compile, const char_range_t *ranges, uint32_t count);

regex_t *regex_node(compile_t *compile, regex_kind_t kind);
void regex_append(regex_t *parent, regex_t *child);
/* One character. */
regex_t *regex_character(compile_t *compile, uint32_t ch);
regex_t *regex_parse(compile_t *compile, const char *text, size_t length,
                     const regex_options_t *options);

/* regex_nfa.c: a tree without rules -> automaton. */
dfa_t *regex_build(compile_t *compile, const regex_t *tree, const regex_options_t *options);
/* Parses and builds. */
dfa_t *regex_dfa(compile_t *compile, const char *text, size_t length,
                 const regex_options_t *options);

#endif
