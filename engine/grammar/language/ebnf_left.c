/* ebnf_left.c: writes left recursion of user grammars as repetition.
 *
 * Part of a compilation, on its thread. The matcher reads from left to right and may not enter a
 * rule again before a byte is read. Rules that begin with each other form a group. A text of such a
 * rule is a base, which begins with no rule of the group, and tails behind it:
 *
 *   a ::= a "+" b | b             becomes  a ::= b ("+" b)*
 *   a ::= c "x" | "y"
 *   c ::= a "z"                   becomes  a ::= "y" a-a ;  a-a ::= "z" a-c | "" ;  a-c ::= "x" a-a
 *
 * The language stays the same. What stands before a rule of the group and may be empty is split
 * into its texts that are not empty, and nothing. The recursion is as deep as the nesting of
 * groups, which the parser bounds.
 */
#include "engine/grammar/language/ebnf.h"

/* Larger groups are refused: a group of n rules becomes n * (n + 1). */
enum { GROUP_MAX = 16, PIECES_MAX = 2000 };

typedef struct tail {
  uint32_t rule;
  regex_t *rest; /* what follows the rule */
} tail_t;

/* A tree, divided by what it begins with. */
typedef struct division {
  regex_t *base; /* ALT of what begins with no rule of the group */
  grammar_list_t tails;
} division_t;

typedef struct left {
  ebnf_t *ebnf;
  const uint32_t *group_of; /* [rules] 1 + the number of the group; 0 = in none */
  uint32_t group;           /* whose rules are rewritten */
  uint32_t rule;            /* that is divided, for messages */
} left_t;

static regex_t *copy_of(const left_t *left, const regex_t *tree) {
  regex_t *copy = regex_node(left->ebnf->compile, tree->kind);
  *copy = *tree;
  copy->sibling = NULL;
  return copy;
}

static regex_t *cat_of(const left_t *left, regex_t *first, regex_t *second) {
  regex_t *cat = regex_node(left->ebnf->compile, REGEX_CAT);
  regex_append(cat, first);
  regex_append(cat, second);
  return cat;
}

static regex_t *repeat_of(const left_t *left, const regex_t *body, uint32_t min, uint32_t max) {
  regex_t *node = regex_node(left->ebnf->compile, REGEX_REPEAT);
  regex_append(node, copy_of(left, body));
  node->min = min;
  node->max = max;
  return node;
}

static bool in_group(const left_t *left, uint32_t rule) {
  return left->group_of[rule] == left->group;
}

/* Returns true if a text of the tree can begin with a rule of the group. */
static bool leads(const left_t *left, const regex_t *tree) {
  if (tree->is_regular) return false;
  if (tree->kind == REGEX_RULE) return in_group(left, tree->min);
  for (const regex_t *child = tree->first; child != NULL; child = child->sibling) {
    if (leads(left, child)) return true;
    if (tree->kind == REGEX_CAT && !ebnf_nullable(left->ebnf, child)) return false;
  }
  return false;
}

_Noreturn static void refuse(const left_t *left) {
  const ebnf_rule_t *rule = ebnf_rule(left->ebnf, left->rule);
  ebnf_fail(left->ebnf, rule->at,
            "left recursion behind a rule that may be empty; write a repetition, such as "
            "a ::= b (\"+\" b)*, in the rule",
            rule->name, rule->length);
}

/* Returns a copy of the remaining children as one tree. */
static regex_t *remainder_of(const left_t *left, const regex_t *child) {
  regex_t *cat = regex_node(left->ebnf->compile, REGEX_CAT);
  for (; child != NULL; child = child->sibling) regex_append(cat, copy_of(left, child));
  return cat;
}

/* Returns the texts of a nullable tree that are not empty; NULL if there are none. */
static regex_t *not_empty(const left_t *left, const regex_t *tree) {
  ebnf_t *ebnf = left->ebnf;
  if (!ebnf_nullable(ebnf, tree)) return copy_of(left, tree);
  if (tree->kind == REGEX_REPEAT) {
    if (tree->max == 0) return NULL;
    regex_t *first = not_empty(left, tree->first);
    uint32_t max = tree->max == NONE ? NONE : tree->max - 1;
    return first == NULL ? NULL : cat_of(left, first, repeat_of(left, tree->first, 0, max));
  }
  if (tree->kind != REGEX_CAT && tree->kind != REGEX_ALT) refuse(left);
  regex_t *either = regex_node(ebnf->compile, REGEX_ALT);
  for (const regex_t *child = tree->first; child != NULL; child = child->sibling) {
    regex_t *part = not_empty(left, child);
    if (part == NULL) continue;
    bool more = tree->kind == REGEX_CAT && child->sibling != NULL;
    regex_append(either, more ? cat_of(left, part, remainder_of(left, child->sibling)) : part);
  }
  return either->first != NULL ? either : NULL;
}

static division_t divide(const left_t *left, const regex_t *tree);

static void add_tail(const left_t *left, division_t *pieces, uint32_t rule, regex_t *rest) {
  if (pieces->tails.count >= PIECES_MAX) {
    compile_fail(left->ebnf->compile, ERR_BAD_REQUEST,
                 "grammar: the left recursion takes more than %d alternatives.", PIECES_MAX);
  }
  *(tail_t *)list_add(left->ebnf->compile, &pieces->tails, sizeof(tail_t)) = (tail_t){rule, rest};
}

/* Adds what `child` and then `rest` begin with, where `rest` does not matter to the first byte. */
static void add_followed(const left_t *left, division_t *out, const division_t *first,
                         const regex_t *base, const regex_t *rest) {
  const tail_t *tails = first->tails.items;
  if (base != NULL) regex_append(out->base, cat_of(left, copy_of(left, base), copy_of(left, rest)));
  for (uint32_t i = 0; i < first->tails.count; i++) {
    add_tail(left, out, tails[i].rule, cat_of(left, tails[i].rest, copy_of(left, rest)));
  }
}

static void divide_cat(const left_t *left, const regex_t *child, division_t *out) {
  for (; child != NULL; child = child->sibling) {
    const regex_t *rest = remainder_of(left, child->sibling);
    bool may_skip = ebnf_nullable(left->ebnf, child) && leads(left, rest);
    division_t first = divide(left, child);
    const regex_t *base = first.base->first != NULL ? first.base : NULL;
    if (may_skip && base != NULL) base = not_empty(left, base);
    add_followed(left, out, &first, base, rest);
    if (!may_skip) return;
  }
}

static void divide_repeat(const left_t *left, const regex_t *tree, division_t *out) {
  bool empty = ebnf_nullable(left->ebnf, tree->first);
  uint32_t min = empty ? 0 : tree->min, max = tree->max == NONE ? NONE : tree->max - 1;
  if (min == 0) regex_append(out->base, regex_node(left->ebnf->compile, REGEX_CAT));
  if (tree->max == 0) return;
  division_t first = divide(left, tree->first);
  const regex_t *base = first.base->first != NULL ? first.base : NULL;
  if (empty && base != NULL) base = not_empty(left, base);
  add_followed(left, out, &first, base, repeat_of(left, tree->first, min > 0 ? min - 1 : 0, max));
}

static division_t divide(const left_t *left, const regex_t *tree) {
  compile_t *compile = left->ebnf->compile;
  division_t out = {regex_node(compile, REGEX_ALT), {0}};
  if (!leads(left, tree)) {
    regex_append(out.base, copy_of(left, tree));
  } else if (tree->kind == REGEX_RULE) {
    add_tail(left, &out, tree->min, regex_node(compile, REGEX_CAT));
  } else if (tree->kind == REGEX_CAT) {
    divide_cat(left, tree->first, &out);
  } else if (tree->kind == REGEX_REPEAT) {
    divide_repeat(left, tree, &out);
  } else {
    for (const regex_t *child = tree->first; child != NULL; child = child->sibling) {
      const division_t part = divide(left, child);
      const tail_t *tails = part.tails.items;
      for (const regex_t *base = part.base->first; base != NULL; base = base->sibling)
        regex_append(out.base, copy_of(left, base));
      for (uint32_t i = 0; i < part.tails.count; i++)
        add_tail(left, &out, tails[i].rule, tails[i].rest);
    }
  }
  return out;
}

/* ---- groups ---- */

static regex_t *reference(const left_t *left, uint32_t rule) {
  regex_t *node = regex_node(left->ebnf->compile, REGEX_RULE);
  node->min = rule;
  node->max = (uint32_t)ebnf_rule(left->ebnf, rule)->at;
  return node;
}

/* One rule that begins with itself: its bases, then any number of its tails. */
static void rewrite_alone(left_t *left, uint32_t rule) {
  left->rule = rule;
  const division_t pieces = divide(left, ebnf_rule(left->ebnf, rule)->tree);
  const tail_t *tails = pieces.tails.items;
  regex_t *either = regex_node(left->ebnf->compile, REGEX_ALT);
  for (uint32_t i = 0; i < pieces.tails.count; i++)
    regex_append(either, copy_of(left, tails[i].rest));
  ebnf_rule(left->ebnf, rule)->tree = cat_of(left, pieces.base, repeat_of(left, either, 0, NONE));
}

/* Rules rest_of[i * n + k] accept what may follow a text of rule k so that both are one of rule i.
 */
static void rewrite_group(left_t *left, const uint32_t *members, uint32_t n) {
  ebnf_t *ebnf = left->ebnf;
  division_t pieces[GROUP_MAX];
  uint32_t first = ebnf->rules.count;
  for (uint32_t i = 0; i < n; i++) {
    left->rule = members[i];
    pieces[i] = divide(left, ebnf_rule(ebnf, members[i])->tree);
  }
  for (uint32_t i = 0; i < n * n; i++) ebnf_add_rule(ebnf, members[i / n]);
  for (uint32_t i = 0; i < n; i++) {
    regex_t *whole = regex_node(ebnf->compile, REGEX_ALT);
    for (uint32_t k = 0; k < n; k++) {
      if (pieces[k].base->first != NULL)
        regex_append(
            whole, cat_of(left, copy_of(left, pieces[k].base), reference(left, first + i * n + k)));
      regex_t *rest = regex_node(ebnf->compile, REGEX_ALT);
      if (i == k) regex_append(rest, regex_node(ebnf->compile, REGEX_CAT));
      ebnf_rule(ebnf, first + i * n + k)->tree = rest;
    }
    ebnf_rule(ebnf, members[i])->tree = whole;
    for (uint32_t from = 0; from < n; from++) {
      const tail_t *tails = pieces[from].tails.items;
      for (uint32_t t = 0; t < pieces[from].tails.count; t++) {
        uint32_t k = 0;
        while (members[k] != tails[t].rule) k++;
        regex_append(
            ebnf_rule(ebnf, first + i * n + k)->tree,
            cat_of(left, copy_of(left, tails[t].rest), reference(left, first + i * n + from)));
      }
    }
  }
}

void ebnf_rewrite_left(ebnf_t *ebnf, const uint32_t *group_of, uint32_t num_groups) {
  uint32_t count = ebnf->rules.count;
  for (uint32_t group = 1; group <= num_groups; group++) {
    left_t left = {.ebnf = ebnf, .group_of = group_of, .group = group};
    uint32_t members[GROUP_MAX], n = 0;
    compile_spend(ebnf->compile, count);
    for (uint32_t i = 0; i < count; i++) {
      if (group_of[i] != group) continue;
      if (n == GROUP_MAX)
        ebnf_fail(ebnf, ebnf_rule(ebnf, i)->at,
                  "more than 16 rules begin with each other (left recursion); one of them is",
                  ebnf_rule(ebnf, i)->name, ebnf_rule(ebnf, i)->length);
      members[n++] = i;
    }
    if (n == 1) {
      rewrite_alone(&left, members[0]);
    } else {
      rewrite_group(&left, members, n);
    }
  }
}
