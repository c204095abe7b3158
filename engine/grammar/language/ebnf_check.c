/* ebnf_check.c: refuses user grammars that are not well-formed, with line and column.
 *
 * Part of a compilation, on its thread. The recursion is as deep as the nesting of groups, which
 * the parser bounds; it never goes from rule to rule.
 */
#include "engine/grammar/language/ebnf.h"

static void check_defined(const ebnf_t *ebnf, const regex_t *regex) {
  if (regex->kind == REGEX_RULE && ebnf_rule(ebnf, regex->min)->tree == NULL) {
    ebnf_fail(ebnf, regex->max, "no rule with the name", ebnf_rule(ebnf, regex->min)->name,
              ebnf_rule(ebnf, regex->min)->length);
  }
  for (const regex_t *child = regex->first; child != NULL; child = child->sibling)
    check_defined(ebnf, child);
}

static bool is_productive(const ebnf_t *ebnf, const regex_t *regex) {
  switch (regex->kind) {
  case REGEX_SET: return regex->set.count > 0;
  case REGEX_RULE: return ebnf_rule(ebnf, regex->min)->productive;
  case REGEX_REPEAT: return regex->min == 0 || is_productive(ebnf, regex->first);
  case REGEX_CAT:
    for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
      if (!is_productive(ebnf, child)) return false;
    }
    return true;
  case REGEX_ALT:
    for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
      if (is_productive(ebnf, child)) return true;
    }
    return false;
  default: return true;
  }
}

static bool is_nullable(const ebnf_t *ebnf, const regex_t *regex) {
  switch (regex->kind) {
  case REGEX_SET: return false;
  case REGEX_RULE: return ebnf_rule(ebnf, regex->min)->nullable;
  case REGEX_REPEAT: return regex->min == 0 || is_nullable(ebnf, regex->first);
  case REGEX_CAT:
    for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
      if (!is_nullable(ebnf, child)) return false;
    }
    return true;
  case REGEX_ALT:
    for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
      if (is_nullable(ebnf, child)) return true;
    }
    return false;
  default: return true;
  }
}

static void find_properties(ebnf_t *ebnf) {
  for (bool changed = true; changed;) {
    changed = false;
    compile_spend(ebnf->compile, (uint32_t)ebnf->length);
    for (uint32_t i = 0; i < ebnf->rules.count; i++) {
      ebnf_rule_t *rule = ebnf_rule(ebnf, i);
      bool productive = rule->productive || is_productive(ebnf, rule->tree);
      bool nullable = rule->nullable || is_nullable(ebnf, rule->tree);
      changed = changed || productive != rule->productive || nullable != rule->nullable;
      rule->productive = productive;
      rule->nullable = nullable;
    }
  }
}

/* Adds the rules that can begin a text of the tree. */
static void list_first(const ebnf_t *ebnf, const regex_t *regex, grammar_list_t *out) {
  if (regex->kind == REGEX_RULE)
    *(uint32_t *)list_add(ebnf->compile, out, sizeof(uint32_t)) = regex->min;
  for (const regex_t *child = regex->first; child != NULL; child = child->sibling) {
    list_first(ebnf, child, out);
    if (regex->kind == REGEX_CAT && !is_nullable(ebnf, child)) return;
  }
}

/* A depth-first search over "begins with". A step to a rule that is still open is left recursion.
 */
static void refuse_left_recursion(ebnf_t *ebnf) {
  uint32_t count = ebnf->rules.count, depth = 0;
  grammar_list_t *firsts = compile_scratch(ebnf->compile, count, sizeof *firsts);
  uint32_t *at = compile_scratch(ebnf->compile, count, sizeof *at);
  uint32_t *stack = compile_scratch(ebnf->compile, count, sizeof *stack);
  uint8_t *color = compile_scratch(ebnf->compile, count, 1); /* 1 = open, 2 = done */
  for (uint32_t i = 0; i < count; i++) list_first(ebnf, ebnf_rule(ebnf, i)->tree, &firsts[i]);
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
        const ebnf_rule_t *rule = ebnf_rule(ebnf, next);
        ebnf_fail(ebnf, rule->at, "left recursion in the rule", rule->name, rule->length);
      }
      if (color[next] == 0) {
        color[next] = 1;
        stack[depth++] = next;
      }
    }
  }
}

void ebnf_check(ebnf_t *ebnf) {
  for (uint32_t i = 0; i < ebnf->rules.count; i++) {
    if (ebnf_rule(ebnf, i)->tree != NULL) check_defined(ebnf, ebnf_rule(ebnf, i)->tree);
  }
  find_properties(ebnf);
  refuse_left_recursion(ebnf);
  for (uint32_t i = 0; i < ebnf->rules.count; i++) {
    const ebnf_rule_t *rule = ebnf_rule(ebnf, i);
    if (!rule->productive)
      ebnf_fail(ebnf, rule->at, "no text can finish the rule", rule->name, rule->length);
  }
}
