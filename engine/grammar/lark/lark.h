/* lark.h: what the files of the Lark reader share.
 *
 * Part of a compilation, on its thread.
 */
#ifndef INFERD_ENGINE_GRAMMAR_LARK_LARK_H
#define INFERD_ENGINE_GRAMMAR_LARK_LARK_H

#include "engine/grammar/language/ebnf.h"

#include <string.h>

typedef struct lark {
  ebnf_t *ebnf;
  const char *text;
  size_t length, at;
  uint32_t depth;         /* groups around this place */
  bool in_terminal;       /* inside the definition of a terminal */
  bool is_lazy;           /* the terminal has a non-greedy quantifier */
  grammar_list_t ignored; /* lark_ignored_t: what may stand before every terminal */
} lark_t;

typedef struct lark_ignored {
  regex_t *tree;
  bool is_lazy;
} lark_ignored_t;

/* Marks a node, in `min`, as one terminal of a rule: what is ignored may stand before it. */
enum { LARK_TERMINAL = 1 };

_Noreturn void lark_fail(const lark_t *lark, size_t at, const char *reason);
_Noreturn void lark_refuse(const lark_t *lark, size_t at, const char *construct);
static inline char lark_here(const lark_t *lark) {
  return lark->at < lark->length ? lark->text[lark->at] : 0;
}
static inline bool lark_at(const lark_t *lark, const char *text, size_t length) {
  return lark->length - lark->at >= length && memcmp(lark->text + lark->at, text, length) == 0;
}

/* lark_terminal.c: a string ("..." or "..."i, or the range "a".."z") and a regex /.../flags. */
regex_t *lark_string(lark_t *lark);
regex_t *lark_regex(lark_t *lark);
/* Returns the tree of common.NAME; NULL if there is none of this name. */
regex_t *lark_common(lark_t *lark, const char *name, size_t length);
/* Makes a terminal of a tree with a non-greedy quantifier: its texts end as soon as they can. */
regex_t *lark_cut(const lark_t *lark, const regex_t *tree);
/* Puts the trees of terminals in the place of their names in the trees of other terminals. */
void lark_expand(lark_t *lark);
/* Puts what is ignored before every terminal, and behind the rule `start`. */
void lark_weave(lark_t *lark);

#endif
