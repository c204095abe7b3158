/* ebnf_check.c: user grammars that make no sense, refused with line and column.
 *
 * Part of a compilation, on its thread. Recursion follows the nesting of groups, which the parser
 * bounds; between rules there is none.
 */
#include "engine/grammar/language/ebnf.h"

static void check_defined(const ebnf_t *g, const regex_t *t) {
  if (t->kind == REGEX_RULE && ebnf_rule(g, t->min)->tree == NULL) {
    ebnf_fail(g, t->max, "no rule with the name", ebnf_rule(g, t->min)->name,
              ebnf_rule(g, t->min)->length);
  }
  for (const regex_t *child = t->first; child != NULL; child = child->sibling)
    check_defined(g, child);
}

static bool is_productive(const ebnf_t *g, const regex_t *t) {
  switch (t->kind) {
  case REGEX_SET: return t->set.count > 0;
  case REGEX_RULE: return ebnf_rule(g, t->min)->productive;
  case REGEX_REPEAT: return t->min == 0 || is_productive(g, t->first);
  case REGEX_CAT:
    for (const regex_t *child = t->first; child != NULL; child = child->sibling) {
      if (!is_productive(g, child)) return false;
    }
    return true;
  case REGEX_ALT:
    for (const regex_t *child = t->first; child != NULL; child = child->sibling) {
      if (is_productive(g, child)) return true;
    }
    return false;
  default: return true;
  }
}

static bool is_nullable(const ebnf_t *g, const regex_t *t) {
  switch (t->kind) {
  case REGEX_SET: return false;
  case REGEX_RULE: return ebnf_rule(g, t->min)->nullable;
  case REGEX_REPEAT: return t->min == 0 || is_nullable(g, t->first);
  case REGEX_CAT:
    for (const regex_t *child = t->first; child != NULL; child = child->sibling) {
      if (!is_nullable(g, child)) return false;
    }
    return true;
  case REGEX_ALT:
    for (const regex_t *child = t->first; child != NULL; child = child->sibling) {
      if (is_nullable(g, child)) return true;
    }
    return false;
  default: return true;
  }
}

static void find_properties(ebnf_t *g) {
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(g->c, (uint32_t)g->length);
    for (uint32_t i = 0; i < g->rules.count; i++) {
      ebnf_rule_t *r = ebnf_rule(g, i);
      bool productive = r->productive || is_productive(g, r->tree);
      bool nullable = r->nullable || is_nullable(g, r->tree);
      changed = changed || productive != r->productive || nullable != r->nullable;
      r->productive = productive;
      r->nullable = nullable;
    }
  }
}

/* Adds the rules with which a text of the tree can begin. */
static void list_first(const ebnf_t *g, const regex_t *t, list_t *out) {
  if (t->kind == REGEX_RULE) *(uint32_t *)list_add(g->c, out, sizeof(uint32_t)) = t->min;
  for (const regex_t *child = t->first; child != NULL; child = child->sibling) {
    list_first(g, child, out);
    if (t->kind == REGEX_CAT && !is_nullable(g, child)) return;
  }
}

/* Depth first over "begins with"; a step back to an open rule is left recursion. */
static void refuse_left_recursion(ebnf_t *g) {
  uint32_t count = g->rules.count, depth = 0;
  list_t *firsts = compile_scratch(g->c, count, sizeof *firsts);
  uint32_t *at = compile_scratch(g->c, count, sizeof *at);
  uint32_t *stack = compile_scratch(g->c, count, sizeof *stack);
  uint8_t *color = compile_scratch(g->c, count, 1); /* 1 = open, 2 = done */
  for (uint32_t i = 0; i < count; i++) list_first(g, ebnf_rule(g, i)->tree, &firsts[i]);
  for (uint32_t root = 0; root < count; root++) {
    if (color[root]) continue;
    color[root] = 1;
    stack[depth++] = root;
    while (depth > 0) {
      uint32_t i = stack[depth - 1];
      if (at[i] == firsts[i].count) {
        color[i] = 2;
        depth--;
        continue;
      }
      uint32_t next = ((const uint32_t *)firsts[i].items)[at[i]++];
      if (color[next] == 1) {
        const ebnf_rule_t *r = ebnf_rule(g, next);
        ebnf_fail(g, r->at, "left recursion in the rule", r->name, r->length);
      }
      if (color[next] == 0) {
        color[next] = 1;
        stack[depth++] = next;
      }
    }
  }
}

void ebnf_check(ebnf_t *g) {
  for (uint32_t i = 0; i < g->rules.count; i++) {
    if (ebnf_rule(g, i)->tree != NULL) check_defined(g, ebnf_rule(g, i)->tree);
  }
  find_properties(g);
  refuse_left_recursion(g);
  for (uint32_t i = 0; i < g->rules.count; i++) {
    const ebnf_rule_t *r = ebnf_rule(g, i);
    if (!r->productive) ebnf_fail(g, r->at, "no text can finish the rule", r->name, r->length);
  }
}
