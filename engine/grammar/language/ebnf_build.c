/* ebnf_build.c: trees of user grammars -> nodes.
 *
 * Part of a compilation, on its thread. Neighbours that name no rule become one lexeme, so that the
 * matcher meets as few places as possible where a lexeme may end.
 */
#include "engine/grammar/language/ebnf.h"

static uint32_t build_tree(ebnf_t *g, const regex_t *t, uint32_t next);

static uint32_t build_lexeme(ebnf_t *g, const regex_t *t, uint32_t next) {
  regex_options_t options = {.json = false, .search = false, .what = "grammar"};
  return build_lex(g->c, lexeme_add(g->c, regex_build(g->c, t, &options)), next);
}

/* A tree with a copy of one more child; trees share their children's children. */
static void append_copy(ebnf_t *g, regex_t *tree, const regex_t *child) {
  regex_t *copy = regex_node(g->c, child->kind);
  *copy = *child;
  copy->sibling = NULL;
  regex_append(tree, copy);
}

static uint32_t build_cat(ebnf_t *g, const regex_t *t, uint32_t next) {
  uint32_t count = 0;
  for (const regex_t *child = t->first; child != NULL; child = child->sibling) count++;
  const regex_t **children = compile_scratch(g->c, count, sizeof *children);
  count = 0;
  for (const regex_t *child = t->first; child != NULL; child = child->sibling)
    children[count++] = child;
  while (count > 0) {
    uint32_t from = count - 1;
    if (!children[from]->is_regular) {
      next = build_tree(g, children[from], next);
      count = from;
      continue;
    }
    while (from > 0 && children[from - 1]->is_regular) from--;
    regex_t *run = regex_node(g->c, REGEX_CAT);
    for (uint32_t i = from; i < count; i++) append_copy(g, run, children[i]);
    next = build_lexeme(g, run, next);
    count = from;
  }
  return next;
}

static uint32_t build_either(ebnf_t *g, const regex_t *t, uint32_t next) {
  regex_t *regular = regex_node(g->c, REGEX_ALT);
  list_t branches = {0};
  for (const regex_t *child = t->first; child != NULL; child = child->sibling) {
    if (child->is_regular) {
      append_copy(g, regular, child);
    } else {
      uint32_t branch = build_tree(g, child, next);
      *(uint32_t *)list_add(g->c, &branches, sizeof(uint32_t)) = branch;
    }
  }
  if (regular->first != NULL) {
    uint32_t branch = build_lexeme(g, regular, next);
    *(uint32_t *)list_add(g->c, &branches, sizeof(uint32_t)) = branch;
  }
  return build_alt(g->c, branches.items, branches.count);
}

static uint32_t build_tree(ebnf_t *g, const regex_t *t, uint32_t next) {
  if (t->is_regular) return build_lexeme(g, t, next);
  switch (t->kind) {
  case REGEX_CAT: return build_cat(g, t, next);
  case REGEX_ALT: return build_either(g, t, next);
  case REGEX_RULE: return build_node(g->c, NODE_CALL, ebnf_rule(g, t->min)->node, next);
  case REGEX_REPEAT:
    return build_repeat(g->c, build_tree(g, t->first, NODE_ID_RETURN), t->min, t->max, next);
  default: break;
  }
  compile_fail(g->c, ERR_INTERNAL, "A term of the grammar is of an unknown kind.");
}

uint32_t ebnf_build(ebnf_t *g, uint32_t next) {
  for (uint32_t i = 0; i < g->rules.count; i++) {
    ebnf_rule(g, i)->node = build_alt(g->c, NULL, 0);
  }
  for (uint32_t i = 0; i < g->rules.count; i++) {
    const ebnf_rule_t *r = ebnf_rule(g, i);
    uint32_t body = build_tree(g, r->tree, NODE_ID_RETURN);
    build_alt_fill(g->c, r->node, &body, 1);
  }
  return build_node(g->c, NODE_CALL, ebnf_rule(g, g->root)->node, next);
}
