/* ebnf_build.c: trees of user grammars -> nodes.
 *
 * Part of a compilation, on its thread. Neighbours that name no rule become one lexeme, so that the
 * matcher meets as few places as possible where a lexeme may end.
 */
#include "engine/grammar/language/ebnf.h"

static uint32_t build_tree(ebnf_t *ebnf, const regex_t *regex, uint32_t next);

static uint32_t build_lexeme(ebnf_t *ebnf, const regex_t *regex, uint32_t next) {
  regex_options_t options = {.json = false, .search = false, .what = "grammar"};
  return build_lex(ebnf->compile,
                   lexeme_add(ebnf->compile, regex_build(ebnf->compile, regex, &options)), next);
}

/* Appends a copy of `child` to `tree`; both copies share what is below the child. */
static void append_copy(ebnf_t *ebnf, regex_t *tree, const regex_t *child) {
  regex_t *copy = regex_node(ebnf->compile, child->kind);
  *copy = *child;
  copy->sibling = NULL;
  regex_append(tree, copy);
}

static uint32_t build_cat(ebnf_t *ebnf, const regex_t *regex, uint32_t next) {
  uint32_t count = 0;
  for (const regex_t *child = regex->first; child != NULL; child = child->sibling) count++;
  const regex_t **children = compile_scratch(ebnf->compile, count, sizeof *children);
  count = 0;
  for (const regex_t *child = regex->first; child != NULL; child = child->sibling)
    children[count++] = child;
  while (count > 0) {
    uint32_t from = count - 1;
    if (!children[from]->is_regular) {
      next = build_tree(ebnf, children[from], next);
      count = from;
      continue;
    }
    while (from > 0 && children[from - 1]->is_regular) from--;
    regex_t *run = regex_node(ebnf->compile, REGEX_CAT);
    for (uint32_t i = from; i < count; i++) append_copy(ebnf, run, children[i]);
    next = build_lexeme(ebnf, run, next);
    count = from;
  }
  return next;
}

static uint32_t build_either(ebnf_t *ebnf, const regex_t *regex, uint32_t next) {
  regex_t *regular = regex_node(ebnf->compile, REGEX_ALT);
  grammar_list_t branches = {0};
  for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
    if (child->is_regular) {
      append_copy(ebnf, regular, child);
    } else {
      uint32_t branch = build_tree(ebnf, child, next);
      *(uint32_t *)list_add(ebnf->compile, &branches, sizeof(uint32_t)) = branch;
    }
  }
  if (regular->first != NULL) {
    uint32_t branch = build_lexeme(ebnf, regular, next);
    *(uint32_t *)list_add(ebnf->compile, &branches, sizeof(uint32_t)) = branch;
  }
  return build_alt(ebnf->compile, branches.items, branches.count);
}

static uint32_t build_tree(ebnf_t *ebnf, const regex_t *regex, uint32_t next) {
  if (regex->is_regular) return build_lexeme(ebnf, regex, next);
  switch (regex->kind) {
  case REGEX_CAT: return build_cat(ebnf, regex, next);
  case REGEX_ALT: return build_either(ebnf, regex, next);
  case REGEX_RULE:
    return build_node(ebnf->compile, NODE_CALL, ebnf_rule(ebnf, regex->min)->node, next);
  case REGEX_REPEAT:
    return build_repeat(ebnf->compile, build_tree(ebnf, regex->first, NODE_ID_RETURN), regex->min,
                        regex->max, next);
  default: break;
  }
  compile_fail(ebnf->compile, ERR_INTERNAL, "A term of the grammar is of an unknown kind.");
}

uint32_t ebnf_build(ebnf_t *ebnf, uint32_t next) {
  for (uint32_t i = 0; i < ebnf->rules.count; i++) {
    ebnf_rule(ebnf, i)->node = build_alt(ebnf->compile, NULL, 0);
  }
  for (uint32_t i = 0; i < ebnf->rules.count; i++) {
    const ebnf_rule_t *rule = ebnf_rule(ebnf, i);
    if (rule->is_terminal && !rule->is_used) continue;
    uint32_t body = build_tree(ebnf, rule->tree, NODE_ID_RETURN);
    build_alt_fill(ebnf->compile, rule->node, &body, 1);
    named_rule_t *named = list_add(ebnf->compile, &ebnf->compile->rules, sizeof *named);
    *named = (named_rule_t){ebnf->compile->nodes.count, rule->length, rule->name};
  }
  return build_node(ebnf->compile, NODE_CALL, ebnf_rule(ebnf, ebnf->root)->node, next);
}
